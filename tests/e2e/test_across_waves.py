"""Reductions that waves share: what they leave each other in shared memory, and who reads how much of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree, near

import wavedsl as wd

M, N = wd.symbols("M N")
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
