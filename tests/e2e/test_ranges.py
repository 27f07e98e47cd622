"""Loops over a range of tiles, tiles placed by index mappings, optional arguments: evaluator and targets agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from products import TARGETS

import wavedsl as wd

M, N, H, G, P = wd.symbols("M N H G P")


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(N, 8)])
def window_sums(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, wd.f32], low: wd.Scalar[wd.i32], high: wd.Scalar[wd.i32]):
    """Sums of the tiles of N that hold an element of tile_start(M) + low up to tile_stop(M) + high."""

    @wd.iterate(N, init_args=[wd.Register[M, wd.f32](0.0)], start=wd.tile_start(M) + low, stop=wd.tile_stop(M) + high)
    def total(total):
        return total + wd.sum(wd.read(x), dim=N)

    wd.write(total, y)


@pytest.mark.parametrize("target", TARGETS)
def test_ranges_that_differ_between_workgroups(target: str) -> None:
    m, n = 50, 61
    x = np.random.default_rng(0).integers(-50, 50, (m, n)).astype(np.float32)
    compiled = window_sums.compile(target=target, subs={M: m, N: n})
    for low, high in ((-8, 3), (0, 0), (-100, 100), (7, -20), (100, 200), (-3, -16)):
        want = np.zeros(m, np.float32)
        for row in range(m):
            start, stop = row // 16 * 16 + low, min(row // 16 * 16 + 16, m) + high
            for tile in range(0, n, 8):
                if start < stop and tile + 8 > start and tile < stop:
                    want[row] += x[row, tile : tile + 8].sum()
        evaluated, emulated = np.full(m, 93, np.float32), np.full(m, 93, np.float32)
        window_sums.evaluate(x, evaluated, np.int32(low), np.int32(high))
        compiled.emulate(x, emulated, np.int32(low), np.int32(high))
        assert np.array_equal(evaluated, want), (low, high)
        assert np.array_equal(emulated, want), (low, high)


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(N, 16)])
def counted(ends: wd.Memory[P, wd.i32], below: wd.Memory[M, wd.i32], after: wd.Memory[M, wd.i32]):
    """How many indices of N are less than index(M) + ends[0], and how many greater than ends[1]."""
    first, last = (wd.read(ends, mapping=wd.IndexMapping((), {P: i})) for i in (0, 1))
    none = wd.Register[M, wd.i32](0)

    @wd.iterate(N, init_args=[none, none])
    def counts(below, after):
        one = wd.Register[M, N, wd.i32](1)
        less = wd.where(wd.index(N) < wd.index(M) + first, one, 0)
        more = wd.where(wd.index(N) > last, one, 0)
        return below + wd.sum(less, dim=N), after + wd.sum(more, dim=N)

    for value, out in zip(counts, (below, after)):
        wd.write(value, out)


@pytest.mark.parametrize("target", TARGETS)
def test_indices_compare_with_any_loaded_number(target: str) -> None:
    """Sums with loaded numbers wrap around, differences from indices must not: the ends of i32, and of what the
    compiler cuts numbers to before it subtracts."""
    m, n, half, quarter = 20, 80, 1 << 31, 1 << 30
    ends = (0, 5, 70, 80, -1, -30, half - 1, half - 10, -half, 9 - half, quarter, quarter - 1, -quarter, -quarter - 1)
    compiled = counted.compile(target=target, subs={M: m, N: n, P: 2})
    for first, last in zip(ends, ends[::-1]):
        edge = (np.arange(m) + np.int64(first) + half) % (2 * half) - half
        found = [np.full(m, 93, np.int32) for _ in range(2)]
        compiled.emulate(np.array([first, last], np.int32), *found)
        assert np.array_equal(found[0], (np.arange(n) < edge[:, None]).sum(1)), (first, last)
        assert np.array_equal(found[1], np.full(m, (np.arange(n) > last).sum())), (first, last)


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(N, 8)])
def copy_below(x: wd.Memory[M, N, wd.i32], y: wd.Memory[M, N, wd.i32]):
    """Copies tiles of N up to the end of the workgroup's tile of M: an effect in a loop with a range of its own."""

    @wd.iterate(N, start=0, stop=wd.tile_stop(M))
    def copied():
        wd.write(wd.read(x), y)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_effects_happen_in_the_range_only(target: str) -> None:
    x = np.arange(40 * 45, dtype=np.int32).reshape(40, 45)
    want = np.full_like(x, -1)
    for row in range(40):
        stop = -(-min(row // 16 * 16 + 16, 40) // 8) * 8
        want[row, :stop] = x[row, :stop]
    evaluated, emulated = np.full_like(x, -1), np.full_like(x, -1)
    copy_below.evaluate(x, evaluated)
    copy_below.compile(x, emulated, target=target).emulate(x, emulated)
    assert np.array_equal(evaluated, want) and np.array_equal(emulated, want)


def shared_rows(group: int) -> Any:
    """y[h] = x[h // group] + bias[h], the row placed by an index mapping and checked against the array's end."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(H, 1, 1)])
    def add(x: wd.Memory[G, M, wd.f32], bias: wd.Memory[H, wd.f32], y: wd.Memory[H, M, wd.f32]):
        wd.write(wd.read(x, mapping=wd.IndexMapping((M,), {G: H // group})) + wd.read(bias), y)

    return add


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("heads", "rows"), [(6, 2), (6, 1)])
def test_tiles_placed_by_index_dimensions(target: str, heads: int, rows: int) -> None:
    """With one row, heads from 3 on read outside of the array: zeros."""
    random = np.random.default_rng(1)
    x, bias = random.standard_normal((rows, 70)).astype(np.float32), random.standard_normal(heads).astype(np.float32)
    padded = np.concatenate([x, np.zeros((2, 70), np.float32)])
    want = padded[np.arange(heads) // 3] + bias[:, None]
    kernel, y, z = shared_rows(3), np.zeros((heads, 70), np.float32), np.zeros((heads, 70), np.float32)
    kernel.evaluate(x, bias, y)
    kernel.compile(x, bias, z, target=target).emulate(x, bias, z)
    assert np.array_equal(y, want) and np.array_equal(z, want)


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(H, 1, 1)])
def chosen_rows(x: wd.Memory[G, M, wd.f32], which: wd.Memory[H, wd.i32], y: wd.Memory[H, M, wd.f32]):
    """y[h] = x[which[h]]: one traced number places the tile; one outside of the array reads zeros."""
    wd.write(wd.read(x, mapping=wd.IndexMapping((M,), {G: wd.read(which)})), y)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_tiles_placed_by_a_number_from_memory(target: str) -> None:
    x = np.random.default_rng(2).standard_normal((5, 50)).astype(np.float32)
    which = np.array([4, 0, -1, 5, 2, 1 << 30], np.int32)
    want = np.where(((which >= 0) & (which < 5))[:, None], x[np.clip(which, 0, 4)], 0)
    y, z = (np.zeros((len(which), 50), np.float32) for _ in range(2))
    chosen_rows.evaluate(x, which, y)
    chosen_rows.compile(x, which, z, target=target).emulate(x, which, z)
    assert np.array_equal(y, want) and np.array_equal(z, want)


def scaled(factor: bool) -> Any:
    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
    def kernel(
        x: wd.Memory[M, wd.f32],
        y: wd.Memory[M, wd.f32],
        by: wd.Scalar[wd.f32] if factor else None,
    ):
        wd.write(wd.read(x) if by is None else wd.read(x) * by, y)

    return kernel


def test_a_parameter_annotated_none_is_none() -> None:
    x, y = np.arange(70, dtype=np.float32), np.zeros(70, np.float32)
    plain = scaled(False)
    assert [p.name for p in plain.parameters] == ["x", "y"]
    plain.compile(x, y, target="gfx942").emulate(x, y)
    assert np.array_equal(y, x)
    scaled(True).compile(x, y, np.float32(3), target="gfx942").emulate(x, y, np.float32(3))
    assert np.array_equal(y, 3 * x)
    with pytest.raises(wd.LaunchError, match="takes 2 arguments, got 3"):
        plain.evaluate(x, y, np.float32(3))


T, D = wd.symbols("T D")


@wd.wave([wd.WorkgroupConstraint(M, 32, 0)])
def moved_rows(
    x: wd.Memory[T, D, wd.f32],
    y: wd.Memory[T, D, wd.f32],
    start: wd.Scalar[wd.i32],
    count: wd.Scalar[wd.i32],
    to: wd.Scalar[wd.i32],
):
    """y[to + m] = x[start + m] for m < count; rows outside of x are zeros, rows outside of y are skipped."""
    taken = wd.read(x, mapping=wd.IndexMapping((M, D), {T: wd.index(M) + start}))
    row = wd.where(wd.index(M) < count, wd.index(M) + to, -1)
    wd.write(taken, y, mapping=wd.IndexMapping((M, D), {T: row}))


@pytest.mark.parametrize("target", TARGETS)
def test_rows_moved_by_run_time_numbers(target: str) -> None:
    x = np.random.default_rng(3).standard_normal((50, 24)).astype(np.float32)
    compiled = moved_rows.compile(target=target, subs={T: 50, D: 24, M: 70})
    for start, count, to in (
        (0, 70, 0),
        (7, 30, 11),
        (-9, 60, 3),
        (40, 20, -5),
        (60, 9, 0),
        (3, 0, 0),
        (0, -4, 2),
        (5, 70, 48),
    ):
        want = np.full_like(x, 5)
        for m in range(max(0, min(count, 70))):
            if 0 <= to + m < 50:
                want[to + m] = x[start + m] if 0 <= start + m < 50 else 0
        numbers = [np.int32(n) for n in (start, count, to)]
        evaluated, emulated = np.full_like(x, 5), np.full_like(x, 5)
        moved_rows.evaluate(x, evaluated, *numbers, subs={M: 70})
        compiled.emulate(x, emulated, *numbers)
        assert np.array_equal(evaluated, want), (start, count, to)
        assert np.array_equal(emulated, want), (start, count, to)


K, S, J = wd.symbols("K S J")


@wd.wave(
    [wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(N, 16), wd.WaveConstraint(M, 16)],
    subs={S: 32, N: 96},
)
def paged_product(
    a: wd.Memory[M, N, wd.f16],
    pool: wd.Memory[P, S, K, wd.SHARED, wd.f16],
    table: wd.Memory[J, wd.i32],
    y: wd.Memory[M, K, wd.f32],
):
    """y = a b, the rows n of b in pages: pool[table[n // 32], n % 32]. The page's number is loaded in the loop."""

    @wd.iterate(N, init_args=[wd.Register[M, K, wd.f32](0.0)])
    def product(acc):
        number = wd.read(table, mapping=wd.IndexMapping((), {J: wd.tile_start(N) // 32}))
        rows = wd.read(pool, mapping=wd.IndexMapping((N, K), {P: number, S: N % 32}))
        return wd.mma(wd.read(a), rows, acc)

    wd.write(product, y)


@pytest.mark.parametrize("target", TARGETS)
def test_pages_are_staged_through_shared_memory(target: str) -> None:
    random = np.random.default_rng(4)
    a = random.integers(-3, 4, (32, 96)).astype(np.float16)
    pool = random.integers(-3, 4, (7, 32, 32)).astype(np.float16)
    for table in ([4, 0, 6], [1, 9, -1]):
        pages = np.array(table, np.int32)
        rows = np.concatenate([pool[p] if 0 <= p < 7 else np.zeros((32, 32), np.float16) for p in table])
        want = a.astype(np.float32) @ rows.astype(np.float32)
        y, z = np.zeros((32, 32), np.float32), np.zeros((32, 32), np.float32)
        paged_product.evaluate(a, pool, pages, y)
        compiled = paged_product.compile(a, pool, pages, z, target=target)
        compiled.emulate(a, pool, pages, z)
        assert np.array_equal(y, want) and np.array_equal(z, want)
        assert compiled.shared_bytes >= 16 * 32 * 2
