"""Gathers whose elements lie in memory in runs, as the channels of pixels under a filter: copied in vectors.

Text against NumPy, all checks on. Runs of any length that copies have, borders that are zero, strides and dilation,
either dimension along the runs, sums along pixels, and places in arrays of numbers beside expressions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy

import wavedsl as wd

B, H, W, C, P, F, K, Y, X, N, T = wd.symbols("B H W C P F K Y X N T")
CHIPS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
rng = np.random.default_rng(23)


def small(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(dtype)


class Filter:
    """`size` x `size` places, `step` pixels from one result to the next and `apart` between places, of an image."""

    def __init__(self, height: int, width: int, channels: int, size: int = 3, step: int = 1, apart: int = 1):
        self.height, self.width, self.channels = height, width, channels
        self.size, self.step, self.apart = size, step, apart
        self.rows, self.columns = -(-height // step), -(-width // step)
        self.deep = size * size * channels

    def mapping(self) -> wd.IndexMapping:
        around = self.size // 2 * self.apart
        row, column = sympy.floor(K / (self.size * self.channels)), sympy.Mod(sympy.floor(K / self.channels), self.size)
        return wd.IndexMapping(
            (P, K),
            {
                H: self.step * sympy.floor(P / self.columns) + self.apart * row - around,
                W: self.step * sympy.Mod(P, self.columns) + self.apart * column - around,
                C: sympy.Mod(K, self.channels),
            },
        )

    def patches(self, x: np.ndarray) -> np.ndarray:
        """[batch, pixel, K] in f32."""
        around = self.size // 2 * self.apart
        padded = np.pad(x.astype(np.float32), ((0, 0), (around, around), (around, around), (0, 0)))
        found = [
            padded[:, i * self.apart :, j * self.apart :][:, : self.height : self.step, : self.width : self.step]
            for i in range(self.size)
            for j in range(self.size)
        ]
        return np.stack(found, 3).reshape(len(x), self.rows * self.columns, self.deep)


def convolution(f: Filter, dtype: wd.DType, tile: tuple[int, int, int], **schedule: Any) -> Any:
    patches = f.mapping()
    rows, columns = wd.WorkgroupConstraint(P, tile[0], 0), wd.WorkgroupConstraint(F, tile[1], 1)
    cut = [wd.WorkgroupConstraint(B, 1, 2), rows, columns, wd.TilingConstraint(K, tile[2])]

    @wd.wave(cut, schedule=wd.Schedule(**schedule))
    def kernel(x: wd.Memory[B, H, W, C, dtype], w: wd.Memory[F, K, dtype], y: wd.Memory[B, P, F, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[P, F, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x, mapping=patches), wd.read(w), acc)

        wd.write(loop, y)

    return kernel


def check(f: Filter, kernel: Any, target: str, dtype: Any = np.float16, batch: int = 2, filters: int = 64) -> Any:
    x, w = small((batch, f.height, f.width, f.channels), dtype), small((filters, f.deep), dtype)
    y = np.full((batch, f.rows * f.columns, filters), np.nan, np.float32)
    compiled = kernel.compile(x, w, y, target=target)
    compiled.emulate(x, w, y)
    np.testing.assert_array_equal(y, f.patches(x) @ w.astype(np.float32).T)
    return compiled


def copied(compiled: Any, name: str = "x") -> set[int]:
    """Bytes of the asynchronous copies that bring an array's tile; nothing where lanes fetch its elements."""
    ops = compiled.kernel_ir.body.walk()
    return {op.attrs["bytes"] for op in ops if op.name == "copy.async" and op.attrs["buffer"] == name}


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize(
    ("channels", "bytes"), [(64, 16), (24, 16), (8, 16), (20, 8), (12, 8), (6, 4), (3, 0)], ids=str
)
def test_runs_of_channels(channels: int, bytes: int, target: str) -> None:
    """Vectors are as wide as runs of channels let them be; single channels are fetched by lanes."""
    f = Filter(9, 11, channels)
    compiled = check(f, convolution(f, wd.f16, (64, 64, 64)), target)
    if target == "sm_80":
        assert copied(compiled) == ({bytes} if bytes else set())


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (1, 3), (2, 2)], ids=str)
def test_strides_and_dilation(shape: tuple[int, int], target: str) -> None:
    f = Filter(10, 13, 16, 3, *shape)
    check(f, convolution(f, wd.bf16, (64, 64, 32)), target, wd.bf16.storage)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize(("dtype", "channels"), [(wd.f32, 8), (wd.f32, 3), (wd.f8e4m3, 16), (wd.f8e4m3, 12)], ids=str)
def test_dtypes(dtype: wd.DType, channels: int, target: str) -> None:
    if dtype is wd.f8e4m3 and target in ("gfx90a", "gfx942", "sm_80"):
        pytest.skip("no such products")
    f = Filter(7, 9, channels)
    check(f, convolution(f, dtype, (64, 32, 64 // dtype.bytes)), target, dtype.storage, filters=40)


@pytest.mark.parametrize("target", CHIPS)
def test_sums_along_pixels(target: str) -> None:
    """A filter's gradient: the runs lie along the rows of the result, and pixels are summed."""
    f = Filter(8, 12, 16)
    patches = f.mapping()
    cut = [wd.WorkgroupConstraint(K, 64, 0), wd.WorkgroupConstraint(F, 64, 1), wd.WorkgroupConstraint(B, 1, 2)]

    @wd.wave([*cut, wd.TilingConstraint(P, 32)])
    def gradient(x: wd.Memory[B, H, W, C, wd.f16], dy: wd.Memory[B, P, F, wd.f16], dw: wd.Memory[B, K, F, wd.f32]):
        @wd.iterate(P, init_args=[wd.Register[K, F, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x, mapping=patches), wd.read(dy), acc)

        wd.write(loop, dw)

    x, dy = small((2, 8, 12, 16), np.float16), small((2, 96, 72), np.float16)
    dw = np.zeros((2, f.deep, 72), np.float32)
    gradient.compile(x, dy, dw, target=target).emulate(x, dy, dw)
    np.testing.assert_array_equal(dw, np.swapaxes(f.patches(x), 1, 2) @ dy.astype(np.float32))


@pytest.mark.parametrize("target", CHIPS)
def test_numbers_of_rows_and_places_in_them(target: str) -> None:
    """Which image a row of pixels is of says an array, which columns of it an expression does."""
    cut = [wd.WorkgroupConstraint(T, 64, 0), wd.WorkgroupConstraint(F, 64, 1), wd.TilingConstraint(K, 32)]

    @wd.wave(cut)
    def kernel(
        x: wd.Memory[N, X, C, wd.f16], ids: wd.Memory[T, wd.i32], w: wd.Memory[F, K, wd.f16], y: wd.Memory[T, F, wd.f32]
    ):
        rows = wd.read(ids)
        mapping = wd.IndexMapping((T, K), {N: rows, X: sympy.floor(K / 8) + sympy.Mod(T, 3) - 1, C: sympy.Mod(K, 8)})

        @wd.iterate(K, init_args=[wd.Register[T, F, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x, mapping=mapping), wd.read(w), acc)

        wd.write(loop, y)

    x, ids, w = small((20, 6, 8), np.float16), rng.integers(-2, 23, 100).astype(np.int32), small((70, 56), np.float16)
    y = np.zeros((100, 70), np.float32)
    kernel.compile(x, ids, w, y, target=target).emulate(x, ids, w, y)
    padded = np.zeros((20, 10, 8), np.float32)
    padded[:, 1:7] = x
    rows = np.where((ids >= 0) & (ids < 20), ids, 0)
    found = np.stack([padded[r, t % 3 : t % 3 + 7].ravel() for t, r in enumerate(rows)])
    found[(ids < 0) | (ids >= 20)] = 0
    np.testing.assert_array_equal(y, found @ w.astype(np.float32).T)
