"""Slices with steps that together are all there is: read and written in whole vectors, in every order of accesses."""

from __future__ import annotations

import re

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

M, N = wd.symbols("M N")
ROWS = [wd.WorkgroupConstraint(M, 4, 0)]


def swapped(step: int, dtype: wd.DType) -> wd.Kernel:
    """Each element and its neighbour of the same `step`."""

    @wd.wave(ROWS)
    def kernel(x: wd.Memory[M, step * N, dtype], y: wd.Memory[M, step * N, dtype]):
        for i in range(step):
            wd.write(wd.read(x[:, i::step]) + wd.read(x[:, (i + 1) % step :: step]), y[:, i::step])

    return kernel


@wd.wave(ROWS)
def in_place(x: wd.Memory[M, 2 * N, wd.f16]):
    """What is written is read after."""
    for i in range(2):
        wd.write(wd.read(x[:, 0::2]) + wd.read(x[:, 1::2]), x[:, i::2])


@wd.wave(ROWS)
def overwritten(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, 2 * N, wd.f16]):
    """One half twice."""
    v = wd.cast(wd.read(x), wd.f16)
    for i, of in ((0, 1), (1, 2), (0, 3)):
        wd.write(v * of, y[:, i::2])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.bf16, wd.f32, wd.i8], ids=str)
@pytest.mark.parametrize("step", [2, 3, 8])
def test_the_same_numbers(step: int, dtype: wd.DType, target: str) -> None:
    for columns in (64, 75):
        x = np.random.default_rng(1).integers(-9, 10, (5, step * columns)).astype(dtype.storage)
        agree(swapped(step, dtype), [x, np.zeros_like(x)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_written_between(target: str) -> None:
    x = np.random.default_rng(1).integers(-9, 10, (5, 128)).astype(np.float16)
    agree(in_place, [x], target)
    agree(overwritten, [np.ones((5, 64), np.float32) * 2, np.zeros((5, 128), np.float16)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_whole_vectors(target: str) -> None:
    """It took 64 loads and 64 stores of 2 bytes in a lane of 64 elements."""
    text = swapped(8, wd.bf16).compile(target=target, subs={M: 8192, N: 512}).asm
    words = re.findall(r"(?:buffer_load|buffer_store|ld\.global|st\.global)[_.](\S+)", text)
    assert set(words) in ({"dwordx4"}, {"v4.b32"})


def moved(fields: int) -> wd.Kernel:
    """Records of so many numbers, each lane's several: a step of what half of them say of the other half."""

    @wd.wave([wd.WorkgroupConstraint(M, 256, 0)])
    def kernel(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
        record = [wd.read(x[:, i]) for i in range(fields)]
        for i in range(fields):
            wd.write(record[i] + record[(i + fields // 2) % fields] * 0.5, y[:, i])

    return kernel


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("fields", [4, 8, 9])
def test_fields_of_records(fields: int, target: str) -> None:
    """A lane has four records, of which it read and wrote the first in vectors and the others number by number: their
    places are the first one's and a constant, which came in another part of the address. Clocks of 2^20 matrices of
    3 x 3 that are inverted: 2.8 (gfx942), 4.7 (gfx950) and 1.3 (sm_80) times as many."""
    kernel = moved(fields)
    for rows in (1000, 1024):
        x = np.random.default_rng(0).integers(-9, 10, (rows, fields)).astype(np.float32)
        compiled = agree(kernel, [x, np.zeros_like(x)], target)
    words = re.findall(r"(?:buffer_load|buffer_store|ld\.global|st\.global)[_.](\S+)", compiled.asm)
    assert set(words) in ({"dwordx4"}, {"v4.b32"})
