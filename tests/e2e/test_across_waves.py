"""Reductions that waves share: what they leave each other in shared memory, and who reads how much of it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree, near

import wavedsl as wd

M, N, P = wd.symbols("M N P")
DTYPES = {"f32": wd.f32, "f64": wd.f64, "i32": wd.i32}


def sums(dtype: Any, rows: int, waves: int, columns: int) -> Any:
    """Sums and places of the largest along rows that waves share, `rows` of them to a workgroup."""

    @wd.wave([wd.WorkgroupConstraint(M, rows, 0), wd.WorkgroupConstraint(N, waves * columns, 1),
              wd.WaveConstraint(N, columns)])  # fmt: skip
    def kernel(
        x: wd.Memory[M, N, dtype], total: wd.Memory[M, dtype], most: wd.Memory[M, dtype], place: wd.Memory[M, wd.i32]
    ):  # fmt: skip
        value = wd.read(x)
        wd.write(wd.sum(value, dim=N), total)
        wd.write(wd.max(value, dim=N), most)
        wd.write(wd.argmax(value, dim=N), place)

    return kernel


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("waves", [2, 3, 7, 8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_waves_of_any_number_join_rows(dtype: str, waves: int, target: str) -> None:
    """Vectors of cells where waves fill them, single ones behind; lanes of one row or of several."""
    for rows, columns in ((1, 64), (4, 16), (16, 8)):
        n = waves * columns - 3
        x = np.random.default_rng(0).integers(-50, 50, (rows, n)).astype(DTYPES[dtype].storage)
        outputs = [np.zeros(rows, x.dtype), np.zeros(rows, x.dtype), np.zeros(rows, np.int32)]
        kernel = sums(DTYPES[dtype], rows, waves, columns)
        agree(kernel, [x, *outputs], target, compare=near())


@wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
def softmax(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
    value = wd.read(x)
    power = wd.exp(value - wd.max(value, dim=N))
    wd.write(power / wd.sum(power, dim=N), y)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_one_lane_speaks_for_those_that_hold_the_same(target: str) -> None:
    """A row of 32768 in 32 warps took 4096 bytes and 64 loads of a word; its 32 sums are 8 loads of 16 bytes, of
    the maximum at one place and of the sum at another."""
    x = np.random.default_rng(0).standard_normal((1, 32768)).astype(np.float32)
    compiled = agree(softmax, [x, np.zeros_like(x)], target, compare=near(absolute=1e-6))
    assert compiled.block[0] == 1024 and compiled.shared_bytes == 2 * 128
    loads = "ds_read" if target.startswith("gfx") else "ld.shared"
    assert compiled.asm.count(loads) <= 2 * 8


def column_sums(dtype: Any, waves: int, columns: int) -> Any:
    """Sums, largest and places of columns whose rows waves share."""

    @wd.wave([wd.WorkgroupConstraint(M, 4 * waves, 0), wd.WorkgroupConstraint(N, columns, 1),
              wd.WaveConstraint(M, 4), wd.WaveConstraint(N, columns)])  # fmt: skip
    def kernel(
        x: wd.Memory[M, N, dtype], total: wd.Memory[N, dtype], most: wd.Memory[N, dtype], place: wd.Memory[N, wd.i32]
    ):  # fmt: skip
        value = wd.read(x)
        wd.write(wd.sum(value, dim=M), total)
        wd.write(wd.max(value, dim=M), most)
        wd.write(wd.argmax(value, dim=M), place)

    return kernel


def words_loaded(text: str) -> int:
    """Words that a lane loads from shared memory by the instructions of a text."""
    amd = re.findall(r"\bds_read(2?)(?:st64)?_b(\d+)", text)
    nvidia = re.findall(r"\bld\.shared(?:\.v(\d))?\.b(\d+)", text)
    return sum((2 if two else 1) * int(bits) // 32 for two, bits in amd) + sum(
        int(count or 1) * int(bits) // 32 for count, bits in nvidia
    )


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("waves", [5, 8, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_wave_joins_a_share_of_many_cells(dtype: str, waves: int, target: str) -> None:
    """As many cells as waves, more, fewer, and a number that waves cannot share evenly."""
    for columns in (128, 192) if dtype == "f64" else (256, 384):
        x = np.random.default_rng(0).integers(-50, 50, (4 * waves - 1, columns - 3)).astype(DTYPES[dtype].storage)
        outputs = [np.zeros(columns - 3, x.dtype), np.zeros(columns - 3, x.dtype), np.zeros(columns - 3, np.int32)]
        agree(column_sums(DTYPES[dtype], waves, columns), [x, *outputs], target, compare=near())


@wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 512, 1), wd.WaveConstraint(M, 4),
          wd.WaveConstraint(N, 512)])  # fmt: skip
def long_columns(x: wd.Memory[M, N, wd.f32], total: wd.Memory[N, wd.f32]):
    wd.write(wd.sum(wd.read(x), dim=M), total)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_nobody_loads_all_that_was_left(target: str) -> None:
    """8 or 16 sums of 16 waves: each wave loaded 16 words for every one of them, 128 or 256."""
    x = np.random.default_rng(0).integers(-50, 50, (64, 512)).astype(np.float32)
    compiled = agree(long_columns, [x, np.zeros(512, np.float32)], target, compare=near())
    cells = 8 if target.startswith("gfx") else 16
    assert compiled.block[0] == 16 * (512 // cells)
    assert words_loaded(compiled.asm) == 16 + cells


@wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WaveConstraint(M, 4)], subs={P: 12})
def groups(x: wd.Memory[M, N, P, wd.f32], total: wd.Memory[N, wd.f32], most: wd.Memory[N, wd.f32]):
    """Statistics of a group norm's channels, in whatever order the dimensions are named."""
    value = wd.read(x)
    wd.write(wd.sum(value, dim=(M, P)), total)
    wd.write(wd.max(value, dim=(P, M)), most)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_what_several_dimensions_leave_crosses_the_waves_once(target: str) -> None:
    """A sum along M and P is a sum along P of sums along M: these are not exchanged, each lane's sum of both is."""
    x = np.random.default_rng(0).integers(-50, 50, (64, 32, 12)).astype(np.float32)
    arguments = [x, np.zeros(32, np.float32), np.zeros(32, np.float32)]
    compiled = agree(groups, arguments, target, compare=near())
    assert compiled.block[0] == 1024
    assert compiled.shared_bytes == 4096, "32768 where the first sum crosses the waves"
    assert words_loaded(compiled.asm) == 64, "160"
    for n in (31, 5):
        arguments = [x[:61, :n].copy(), np.zeros(n, np.float32), np.zeros(n, np.float32)]
        agree(groups, arguments, target, compare=near())
