"""Parts of rows that begin where data say, at multiples of something: tiles that are moved in vectors, wherever they
lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wavedsl as wd

G, M, N, K, L, T = wd.symbols("G M N K L T")
TARGETS = ["gfx942", "gfx950", "sm_80", "sm_90a"]
rng = np.random.default_rng(37)
DTYPES = {"f32": (wd.f32, np.float32), "f16": (wd.f16, np.float16), "u8": (wd.u8, np.uint8), "i32": (wd.i32, np.int32)}


def part(x: np.ndarray, first: int, length: int) -> np.ndarray:
    """x[..., first : first + length], with zeros where there is nothing."""
    at = first + np.arange(length)
    inside = (at >= 0) & (at < x.shape[-1])
    return np.where(inside, x[..., np.clip(at, 0, x.shape[-1] - 1)], 0).astype(x.dtype)


@pytest.mark.parametrize("extent", [256, 250, 233])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("dynamic", [(), (N,)], ids=["known", "at run time"])
@pytest.mark.parametrize("target", TARGETS)
def test_they_are_read_and_written(target: str, dynamic: tuple[Any, ...], name: str, extent: int) -> None:
    """In front of the array, over its end and behind it there is nothing to read, and nothing is written there."""
    dtype, storage = DTYPES[name]

    @wd.wave([wd.WorkgroupConstraint(G, 1, 0)], subs={L: 64}, dynamic=dynamic)
    def kernel(
        x: wd.Memory[N, dtype], where: wd.Memory[G, wd.i32], y: wd.Memory[G, L, dtype], z: wd.Memory[G, N, dtype],
        most: wd.Memory[G, wd.i32],
    ):  # fmt: skip
        first = (wd.read(where) - 2) * 16
        found = wd.read(x[first : first + L])
        wd.write(found, y)
        wd.write(found, z[G, first : first + L])
        wd.write(wd.max(wd.cast(found, wd.i32), dim=L), most)

    where = np.array([2, 0, 1, 3, 7, 13, 14, 15, 16, 17, 18, 40, -30], np.int32)
    x = rng.integers(-50 if name != "u8" else 0, 100, extent).astype(storage)
    y = np.zeros((len(where), 64), storage)
    z, most = np.full((len(where), extent), 7, storage), np.zeros(len(where), np.int32)
    kernel.compile(x, where, y, z, most, target=target).emulate(x, where, y, z, most)
    other = [np.zeros_like(y), np.full_like(z, 7), np.zeros_like(most)]
    kernel.evaluate(x, where, *other)
    for i, w in enumerate(where):
        first = 16 * (w - 2)
        np.testing.assert_array_equal(y[i], part(x, first, 64))
        row = np.full(extent, 7, storage)
        at = np.arange(max(first, 0), max(0, min(first + 64, extent)))
        row[at] = x[at]
        np.testing.assert_array_equal(z[i], row)
    for mine, its in zip((y, z, most), other):
        np.testing.assert_array_equal(mine, its)


@pytest.mark.parametrize("extent", [256, 264, 250])
@pytest.mark.parametrize("target", TARGETS)
def test_columns_of_an_operand(target: str, extent: int) -> None:
    """Pages of keys stored as [D, N]: columns from where a table says, in a loop over pages."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(T, 1)], subs={L: 64})
    def kernel(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[K, N, wd.f16], pages: wd.Memory[T, wd.i32],
        c: wd.Memory[T, M, L, wd.f32], total: wd.Memory[M, K, wd.f32],
    ):  # fmt: skip
        x = wd.read(a)

        @wd.iterate(T, init_args=[wd.Register[M, K, wd.f32](0.0)])
        def loop(acc):
            first = wd.read(pages[wd.tile_start(T)]) * 8
            y = wd.read(b[:, first : first + L])
            s = wd.mma(x, y, wd.Register[M, L, wd.f32](0.0))
            wd.write(s, c[wd.tile_start(T), :, :])
            return wd.mma(wd.cast(s, wd.f16), y, acc)

        wd.write(loop, total)

    m, k = 128, 64
    a, b = rng.integers(-2, 3, (m, k)).astype(np.float16), rng.integers(-1, 2, (k, extent)).astype(np.float16)
    pages = np.array([0, 3, 24, 25, 28, -2], np.int32)
    c, total = np.zeros((len(pages), m, 64), np.float32), np.zeros((m, k), np.float32)
    kernel.compile(a, b, pages, c, total, target=target).emulate(a, b, pages, c, total)
    want = np.zeros((m, k), np.float32)
    for i, p in enumerate(pages):
        y = part(b, 8 * p, 64).astype(np.float32)
        s = a.astype(np.float32) @ y
        np.testing.assert_array_equal(c[i], s)
        want += s @ y.T
    np.testing.assert_array_equal(total, want)


@pytest.mark.parametrize("target", TARGETS)
def test_they_come_in_vectors(target: str) -> None:
    """Each element was loaded by itself, with a comparison of its own: 32 loads for 64 numbers beside a product's 32
    columns, in each trip of a loop over blocks of keys."""

    @wd.wave([wd.WorkgroupConstraint(G, 1, 0)], subs={L: 256})
    def kernel(x: wd.Memory[N, wd.f32], where: wd.Memory[G, wd.i32], y: wd.Memory[G, L, wd.f32]):
        first = wd.read(where) * 64
        wd.write(wd.read(x[first : first + L]) * 2, y)

    given = np.zeros(4096, np.float32), np.zeros(8, np.int32), np.zeros((8, 256), np.float32)
    text = kernel.compile(*given, target=target).asm
    wide = {"gfx942": "buffer_load_dwordx4", "gfx950": "buffer_load_dwordx4"}.get(target, "v4.b32")
    assert wide in text


@pytest.mark.parametrize("target", TARGETS)
def test_starts_that_nothing_is_known_of_stay_as_they_are(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(G, 1, 0)], subs={L: 64})
    def kernel(x: wd.Memory[N, wd.f32], where: wd.Memory[G, wd.i32], y: wd.Memory[G, L, wd.f32]):
        first = wd.read(where) * 64 + wd.maximum(wd.read(where), 3)
        wd.write(wd.read(x[first : first + L]), y)

    x, where, y = rng.random(300, np.float32), np.array([0, 1, 3, 4, -1], np.int32), np.zeros((5, 64), np.float32)
    kernel.compile(x, where, y, target=target).emulate(x, where, y)
    np.testing.assert_array_equal(y, [part(x, 64 * w + max(w, 3), 64) for w in where])


def test_starts_that_many_sums_are_made_of() -> None:
    """Each sum is looked at once, however many others it is part of; none is too deep."""

    @wd.wave([wd.WorkgroupConstraint(G, 1, 0)], subs={L: 256})
    def kernel(x: wd.Memory[N, wd.f32], where: wd.Memory[G, wd.i32], y: wd.Memory[G, L, wd.f32]):
        first = wd.read(where) * 16
        for _ in range(60):
            first = first + first
        for _ in range(1500):
            first = first + 32
        first = first - 48000 + wd.read(where) * 64
        wd.write(wd.read(x[first : first + L]), y)

    x, where, y = rng.random(300, np.float32), np.array([0, 1, 3, 4, -1], np.int32), np.zeros((5, 256), np.float32)
    kernel.evaluate(x, where, y)
    np.testing.assert_array_equal(y, [part(x, 64 * w, 256) for w in where])
    assert "dwordx4" in kernel.compile(x, where, y, target="gfx942").asm
