"""`extract` and `shuffle` along dimensions that waves share: text against evaluator, on every chip."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree, near

import wavedsl as wd

M, N, P, Q, I, J, BM = wd.symbols("M N P Q I J BM")
DTYPES = (wd.f32, wd.f16, wd.f64, wd.i8)


def numbers(shape: tuple[int, ...], dtype: wd.DType) -> np.ndarray:
    return np.random.default_rng(3).integers(-90, 90, shape).astype(dtype.numpy)


def shared(wave: int, tile: int) -> list[Any]:
    """Two rows a wave, and rows of `tile` elements of which a wave has so many."""
    rows = [wd.WorkgroupConstraint(M, 4, 0), wd.WaveConstraint(M, 2)]
    return [*rows, wd.WorkgroupConstraint(N, tile, 1), wd.WaveConstraint(N, wave)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "wave, tile, columns",
    [(48, 192, 187), *(pytest.param(*x, marks=pytest.mark.slow) for x in [(64, 256, 256), (128, 256, 250)])],
)
def test_what_other_waves_hold(
    wave: int, tile: int, columns: int, dtype: wd.DType, target: str, oracle: Callable[[str], str]
) -> None:
    @wd.wave(shared(wave, tile), subs={P: 70, Q: 9})
    def kernel(
        a: wd.Memory[M, N, dtype], i: wd.Memory[M, N, wd.i32], place: wd.Scalar[wd.i32], one: wd.Memory[M, dtype],
        last: wd.Memory[M, dtype], outside: wd.Memory[M, dtype], some: wd.Memory[M, dtype],
        part: wd.Memory[M, P, dtype], picked: wd.Memory[M, N, dtype], few: wd.Memory[M, Q, dtype],
        flags: wd.Memory[M, N, wd.i32],
    ):  # fmt: skip
        row = wd.read(a)
        wd.write(wd.extract(row, {N: 3}), one)
        wd.write(wd.extract(row, {N: N - 1}), last)
        wd.write(wd.extract(row, {N: N}), outside)
        wd.write(wd.extract(row, {N: place}), some)
        wd.write(wd.extract(row, {N: (P, 41, 3)}), part)
        wd.write(wd.shuffle(row, wd.read(i), N), picked)
        wd.write(wd.shuffle(row, wd.index(Q) * 31 - 2, N), few)
        wd.write(wd.cast(wd.shuffle(row > 0, wd.read(i), N), wd.i32), flags)

    rng = np.random.default_rng(9)
    index = rng.integers(-4, columns + 9, (7, columns)).astype(np.int32)
    singles = [np.ones(7, dtype.numpy) for _ in range(4)]
    results = [np.ones((7, n), dtype.numpy) for n in (70, columns, 9)]
    for place in (0, columns // 2, columns, -1):
        arguments = [numbers((7, columns), dtype), index, np.int32(place), *singles, *results]
        agree(kernel, [*arguments, np.ones((7, columns), np.int32)], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mask", [1, 64, 128, 192 + 37])
@pytest.mark.parametrize("columns", [230, pytest.param(256, marks=pytest.mark.slow)])
def test_neighbours_change_places(columns: int, mask: int, dtype: wd.DType, target: str) -> None:
    @wd.wave(shared(64, 256))
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, dtype], c: wd.Memory[M, N, wd.i32]):
        row = wd.read(a)
        wd.write(wd.shuffle(row, wd.index(N) ^ mask, N), b)
        wd.write(wd.cast(wd.shuffle(row > 3, wd.index(N) ^ mask, N), wd.i32), c)

    a = numbers((5, columns), dtype)
    agree(kernel, [a, np.ones_like(a), np.ones(a.shape, np.int32)], target)


def hadamard(columns: int) -> Any:
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
    def kernel(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
        value, at, step = wd.read(x), wd.index(N), 1
        while step < columns:
            other = wd.shuffle(value, at ^ step, N)
            value = wd.where((at & step) == 0, value + other, other - value)
            step *= 2
        wd.write(value, y)

    return kernel


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_waves_share_a_long_transform(target: str, oracle: Callable[[str], str]) -> None:
    """8192 numbers were one wave's: refused on sm_80 and sm_90a. Steps within a wave's part take no shared memory."""
    x = np.random.default_rng(0).integers(-3, 4, (2, 8192)).astype(np.float32)
    compiled = agree(hadamard(8192), [x, np.zeros_like(x)], target, oracle)
    assert compiled.block[0] > (64 if target.startswith("gfx") else 32) and not compiled.resources.spills
    count = 8192 // compiled.block[0] * (64 if target.startswith("gfx") else 32)
    assert compiled.asm.count("barrier") // 2 <= np.log2(8192 // count) + 1
    alone = hadamard(512).compile(target=target, subs={M: 2, N: 512})
    assert alone.shared_bytes == 0


def transform(size: int) -> Any:
    """A fast Fourier transform of squares: rows, then columns, each read in reversed order of bits first."""
    bits = size.bit_length() - 1

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
    def kernel(
        x: wd.Memory[M, I, J, wd.f32], z: wd.Memory[M, I, J, wd.f32], real: wd.Memory[M, I, J, wd.f32],
        imaginary: wd.Memory[M, I, J, wd.f32],
    ):  # fmt: skip
        re, im = wd.read(x), wd.read(z)
        for dim in (J, I):
            i = wd.index(dim)
            turned = wd.broadcast(sum((i >> b & 1) << (bits - 1 - b) for b in range(bits)), dim)
            re, im = (wd.shuffle(part, turned, dim) for part in (re, im))
            for half in (1 << b for b in range(bits)):
                upper, angle = (i & half) != 0, wd.cast(i & (half - 1), wd.f32) * (-math.pi / half)
                cos, sin = wd.cos(angle), wd.sin(angle)
                re, im = wd.where(upper, re * cos - im * sin, re), wd.where(upper, re * sin + im * cos, im)
                far_re, far_im = (wd.shuffle(part, i ^ half, dim) for part in (re, im))
                re, im = wd.where(upper, far_re - re, re + far_re), wd.where(upper, far_im - im, im + far_im)
        wd.write(re, real)
        wd.write(im, imaginary)

    return kernel


@pytest.mark.slow
@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_waves_share_what_is_picked_where_values_together_are_many(target: str) -> None:
    """Six values of 64 registers each: 1442 spills in one wave of gfx942."""
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal((2, 64, 64)).astype(np.float32) for _ in range(2))
    real, imaginary = np.zeros_like(x), np.zeros_like(x)
    compiled = transform(64).compile(x, z, real, imaginary, target=target)
    compiled.emulate(x, z, real, imaginary)
    np.testing.assert_allclose(real + 1j * imaginary, np.fft.fft2(x + 1j * z), atol=1e-3)
    assert not compiled.resources.spills


@wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
def inverse(a: wd.Memory[M, I, J, wd.f32], x: wd.Memory[M, I, J, wd.f32]):
    """Of lower triangular matrices, by columns: one of 64 x 64 is more than a wave of 32 lanes holds."""
    matrix = wd.read(a)
    found = wd.cast(wd.index(I) == wd.index(J), wd.f32)
    for j in range(64):
        column = wd.extract(matrix, {J: j})
        row = wd.extract(found, {I: j}) / wd.extract(column, {I: j})
        found = wd.where(wd.index(I) == j, row, wd.where(wd.index(I) > j, found - column * row, found))
    wd.write(found, x)


@pytest.mark.slow
@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_waves_share_a_matrix_whose_rows_and_columns_are_picked(target: str, oracle: Callable[[str], str]) -> None:
    rng = np.random.default_rng(0)
    a = np.tril(rng.standard_normal((2, 64, 64))).astype(np.float32) / 8 + 2 * np.eye(64, dtype=np.float32)
    compiled = agree(inverse, [a, np.zeros_like(a)], target, oracle, near(64, 1e-5))
    assert not compiled.resources.spills
