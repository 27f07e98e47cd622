"""Gathers from packed arrays and scatters into them: rows in whole units, single 4-bit elements by their byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import packed
import pytest
from agree import TARGETS, agree

import wavedsl as wd

V, D, T, S, N, K, BT, BD = wd.symbols("V D T S N K BT BD")
CHIPS = [*TARGETS, "sm_90a"]
FOURS = [wd.i4, wd.u4, wd.f4e2m1]
CUT = [wd.WorkgroupConstraint(T, BT, 0), wd.WorkgroupConstraint(D, BD, 1)]
ROWS = 37

rng = np.random.default_rng(11)


def table(dtype: wd.DType, *shape: int) -> np.ndarray:
    return packed.operand(np.random.default_rng(3), dtype, shape)[0]


def places(count: int, end: int) -> np.ndarray:
    """Numbers of rows, some of them outside of the table."""
    return np.random.default_rng(5).integers(-2, end + 2, count).astype(np.int32)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("dtype", [*FOURS, wd.f6e3m2], ids=str)
@pytest.mark.parametrize("columns", [64, 48])
def test_rows(columns: int, dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """A quantised embedding: whole rows by their numbers, loaded as vectors."""

    @wd.wave(CUT, subs={BT: 16, BD: 32})
    def lookup(w: wd.Memory[V, D, dtype], which: wd.Memory[T, wd.i32], y: wd.Memory[T, D, wd.f32]):
        row = wd.read(w, mapping=wd.IndexMapping((T, D), {V: wd.read(which)}))
        wd.write(wd.cast(row, wd.f32), y)

    w, at = table(dtype, ROWS, columns), places(21, ROWS)
    compiled = agree(lookup, [w, at, np.zeros((21, columns), np.float32)], target, oracle)
    if target == "gfx942" and dtype.bits == 4:
        assert "_load_ubyte" not in compiled.asm

    y = np.zeros((21, columns), np.float32)
    lookup.compile(w, at, y, target=target).emulate(w, at, y)
    numbers = packed.numbers(packed.unpack(w, dtype.bits, columns), dtype)
    inside = (at >= 0) & (at < ROWS)
    np.testing.assert_array_equal(y, np.where(inside[:, None], numbers[np.clip(at, 0, ROWS - 1)], 0))


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("dtype", FOURS, ids=str)
def test_single_elements(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """Each element from a column of its own: either half of a byte."""

    @wd.wave([wd.WorkgroupConstraint(T, BT, 0)], subs={BT: 64})
    def lookup(
        w: wd.Memory[V, D, dtype], row: wd.Memory[T, wd.i32], column: wd.Memory[T, wd.i32], y: wd.Memory[T, wd.f32]
    ):
        found = wd.read(w, mapping=wd.IndexMapping((T,), {V: wd.read(row), D: wd.read(column)}))
        wd.write(wd.cast(found, wd.f32), y)

    given = [table(dtype, ROWS, 50), places(201, ROWS), places(201, 50), np.zeros(201, np.float32)]
    agree(lookup, given, target, oracle)


COORDINATES: list[Callable[[Any], Any]] = [
    lambda d: d + 1, lambda d: 49 - d, lambda d: 2 * d, lambda d: d // 2, lambda d: d + 16, lambda d: (d + 7) % 50,
]  # fmt: skip


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("place", range(len(COORDINATES)))
@pytest.mark.parametrize("columns", [32, 33])
def test_columns_of_any_order(columns: int, place: int, target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(T, BT, 0), wd.WorkgroupConstraint(S, BD, 1)], subs={BT: 16, BD: 32})
    def moved(w: wd.Memory[T, D, wd.i4], y: wd.Memory[T, S, wd.i32]):
        found = wd.read(w, mapping=wd.IndexMapping((T, S), {D: COORDINATES[place](S)}))
        wd.write(wd.cast(found, wd.i32), y)

    agree(moved, [table(wd.i4, 19, 50), np.zeros((19, columns), np.int32)], target)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("single", [False, True])
def test_in_a_loop_with_a_product(single: bool, target: str, oracle: Callable[[str], str]) -> None:
    """Weights whose rows are sorted otherwise than the inputs' columns, as activation order leaves them; the loop's
    copies run ahead of what takes elements out of their bytes."""

    @wd.wave(
        [wd.WorkgroupConstraint(T, BT, 0), wd.WorkgroupConstraint(N, BD, 1), wd.TilingConstraint(K, 32)],
        subs={BT: 32, BD: 32},
    )
    def product(
        a: wd.Memory[T, K, wd.f16], w: wd.Memory[V, N, wd.i4], order: wd.Memory[K, wd.i32],
        column: wd.Memory[N, wd.i32], y: wd.Memory[T, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[T, N, wd.f32](0.0)])
        def loop(acc):
            at = {V: wd.read(order), N: wd.read(column)} if single else {V: wd.read(order)}
            rows = wd.read(w, mapping=wd.IndexMapping((N, K), at))
            return wd.mma(wd.read(a), wd.cast(rows, wd.f16), acc)

        wd.write(loop, y)

    a = rng.integers(-2, 3, (40, 96)).astype(np.float16)
    order, column = rng.permutation(96).astype(np.int32), rng.permutation(48).astype(np.int32)
    given = [a, table(wd.i4, 96, 48), order, column, np.zeros((40, 48), np.float32)]
    agree(product, given, target, oracle)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("single", [False, True])
def test_multiplied_as_they_are(single: bool, target: str, oracle: Callable[[str], str]) -> None:
    """Operands of integer products, and of gfx950's scaled ones, whose registers hold packed elements."""

    @wd.wave(
        [wd.WorkgroupConstraint(T, BT, 0), wd.WorkgroupConstraint(N, BD, 1), wd.TilingConstraint(K, 64)],
        subs={BT: 32, BD: 32},
    )
    def product(
        a: wd.Memory[T, K, wd.i4], w: wd.Memory[V, S, wd.i4], row: wd.Memory[N, wd.i32], column: wd.Memory[K, wd.i32],
        y: wd.Memory[T, N, wd.i32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[T, N, wd.i32](0)])
        def loop(acc):
            at = {V: wd.read(row), S: wd.read(column) if single else K}
            return wd.mma(wd.read(a), wd.read(w, mapping=wd.IndexMapping((N, K), at)), acc)

        wd.write(loop, y)

    row, column = places(48, ROWS), rng.permutation(128).astype(np.int32)
    given = [table(wd.i4, 40, 128), table(wd.i4, ROWS, 128), row, column, np.zeros((40, 48), np.int32)]
    agree(product, given, target, oracle)


@pytest.mark.parametrize("target", CHIPS)
def test_few_columns_of_wide_tiles(target: str) -> None:
    """Results are stored late there, element by element: what was loaded then was taken for the elements themselves."""

    @wd.wave([wd.WorkgroupConstraint(T, 16, 0), wd.WorkgroupConstraint(S, 132, 1)])
    def lookup(w: wd.Memory[T, D, wd.u4], y: wd.Memory[T, S, wd.i32]):
        found = wd.read(w, mapping=wd.IndexMapping((T, S), {D: S + 1}))
        wd.write(wd.cast(found, wd.i32), y)

    agree(lookup, [table(wd.u4, 9, 4), np.zeros((9, 2), np.int32)], target)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("dtype", [wd.i4, wd.u4, wd.f4e2m1], ids=str)
def test_rows_are_scattered(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """A quantised cache: rows go where a table says."""

    @wd.wave(CUT, subs={BT: 16, BD: 32})
    def append(x: wd.Memory[T, D, wd.f32], slot: wd.Memory[T, wd.i32], cache: wd.Memory[V, D, dtype]):
        wd.write(wd.cast(wd.read(x), dtype), cache, mapping=wd.IndexMapping((T, D), {V: wd.read(slot)}))

    slots = rng.permutation(ROWS)[:21].astype(np.int32)
    slots[4] = -1
    x = rng.integers(0, 3, (21, 64)).astype(np.float32)
    agree(append, [x, slots, table(dtype, ROWS, 64)], target, oracle)


@pytest.mark.parametrize("target", ["gfx950", "sm_80"])
def test_half_a_byte_is_not_written(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(T, BT, 0)], subs={BT: 64})
    def scatter(x: wd.Memory[T, wd.i32], at: wd.Memory[T, wd.i32], y: wd.Memory[D, wd.i4]):
        wd.write(wd.cast(wd.read(x), wd.i4), y, mapping=wd.IndexMapping((T,), {D: wd.read(at)}))

    with pytest.raises(wd.CompileError, match="single elements along D") as caught:
        scatter.compile(target=target, subs={T: 64, D: 64})
    assert "2 i4 are moved together" in caught.value.hint


def test_six_bits_move_in_units() -> None:
    @wd.wave([wd.WorkgroupConstraint(T, BT, 0)], subs={BT: 64})
    def gather(w: wd.Memory[D, wd.f6e2m3], at: wd.Memory[T, wd.i32], y: wd.Memory[T, wd.f32]):
        wd.write(wd.cast(wd.read(w, mapping=wd.IndexMapping((T,), {D: wd.read(at)})), wd.f32), y)

    with pytest.raises(wd.CompileError, match="single elements along D") as caught:
        gather.compile(target="gfx942", subs={T: 64, D: 64})
    assert "16 f6e2m3 are moved together" in caught.value.hint
