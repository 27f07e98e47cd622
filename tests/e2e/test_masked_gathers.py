"""Gathered elements that a mask throws away have no memory fetched for them, and nobody can tell but by the time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from families import TARGETS, Case, by_graph, normal, on_chip, whole, wide
from wavedsl.ir.dataflow.masked_gathers import masked_gathers
from wavedsl.runtime.emulator.cycle_chips import model_of
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

A, D, E, M, N, T, V = wd.symbols("A D E M N T V")
F32, I32 = wd.f32, wd.i32


@wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.TilingConstraint(E, 64)])
def sparse_rows(
    starts: wd.Memory[A, I32], columns: wd.Memory[E, I32], weights: wd.Memory[E, F32], x: wd.Memory[N, F32],
    y: wd.Memory[M, F32],
):  # fmt: skip
    """A sparse matrix of rows by a vector."""
    first, last = wd.read(starts[wd.index(M)]), wd.read(starts[wd.index(M) + 1])

    @wd.iterate(E, init_args=[wd.Register[F32](0.0)], start=first, stop=last)
    def row(total):
        mine = (wd.index(E) >= first) & (wd.index(E) < last)
        return total + wd.sum(wd.where(mine, wd.read(weights) * wd.read(x[wd.read(columns)]), 0.0), dim=E)

    wd.write(row, y)


def sparse_rows_arguments(rows: int, columns: int, each: int) -> list[Any]:
    rng = np.random.default_rng(0)
    starts = np.cumsum([0, *rng.integers(each // 2, 3 * each // 2, rows)]).astype(np.int32)
    at = rng.integers(0, columns, starts[-1]).astype(np.int32)
    return [starts, at, normal(len(at)), normal(columns, seed=1), np.zeros(rows, np.float32)]


def sparse_rows_case(rows: int, columns: int, each: int) -> Case:
    arguments = sparse_rows_arguments(rows, columns, each)
    starts, at, weights, x, _ = arguments
    terms = wide(weights) * wide(x)[at]
    want = np.array([terms[a:b].sum() for a, b in pairwise(starts)])
    return Case(arguments, {4: want}, {}, 1e-4)


@wd.wave([wd.WorkgroupConstraint(T, 4, 0)])
def rows_by_mask(
    ids: wd.Memory[T, I32], kept: wd.Memory[T, I32], table: wd.Memory[V, D, F32], other: wd.Memory[V, D, F32],
    a: wd.Memory[T, D, F32], b: wd.Memory[T, D, F32], c: wd.Memory[T, D, F32],
):  # fmt: skip
    """Rows of a table where ids count, else of another; where they are none; and one that is wanted everywhere."""
    at, holds = wd.read(ids), wd.read(kept) != 0
    wd.write(wd.where(holds, wd.read(table[at, :]) * 2.0, wd.read(other[at, :]) - 1.0), a)
    wd.write(wd.where(at < 0, -1.0, wd.read(table[at, :])), b)
    both = wd.read(other[at, :])
    wd.write(wd.where(holds, both, 0.0) + both, c)


def rows_by_mask_case(t: int, v: int, d: int) -> Case:
    rng = np.random.default_rng(0)
    ids, kept = rng.integers(-2, v + 2, t).astype(np.int32), rng.integers(0, 2, t).astype(np.int32)
    table, other = normal(v, d, seed=1), normal(v, d, seed=2)
    table[0] = np.nan
    inside = ((ids >= 0) & (ids < v))[:, None]
    first, second = (np.where(inside, wide(m)[np.clip(ids, 0, v - 1)], 0) for m in (table, other))
    held = (kept != 0)[:, None]
    wants = {4: np.where(held, first * 2, second - 1), 5: np.where(ids[:, None] < 0, -1, first), 6: second * (1 + held)}
    return Case([ids, kept, table, other, *(np.zeros((t, d), np.float32) for _ in range(3))], wants, {}, 1e-6, (T,))


@wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
def both_arms(at: wd.Memory[N, I32], x: wd.Memory[V, F32], y: wd.Memory[N, F32]):
    """What both arms of a choice are made of is wanted everywhere, and so is what the mask is."""
    i = wd.read(at)
    value = wd.read(x[i])
    wd.write(wd.where(i > 3, value * 2.0, value) + wd.where(value > 0, value, -value), y)


def both_arms_case(n: int, v: int) -> Case:
    at, x = whole(n, dtype=np.int32, low=0, high=v), normal(v)
    value = wide(x)[at]
    return Case([at, x, np.zeros(n, np.float32)], {2: np.where(at > 3, 2 * value, value) + np.abs(value)}, {}, 1e-6)


KERNELS: dict[str, tuple[Any, Callable[..., Case], Any]] = {
    "sparse rows": (sparse_rows, sparse_rows_case, ((7, 50, 90), (5, 33, 3))),
    "rows by mask": (rows_by_mask, rows_by_mask_case, ((10, 9, 40), (33, 20, 64))),
    "both arms": (both_arms, both_arms_case, ((300, 20),)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_against_numpy(name: str, target: str) -> None:
    kernel, made, sizes = KERNELS[name]
    for size in sizes:
        on_chip(kernel, made(*size), target)
        by_graph(kernel, made(*size))


def masked(kernel: Any) -> list[str]:
    """The arrays whose gathers are masked, in order."""
    graph = kernel.trace()
    before, after = list(graph.all_nodes()), {n.id: n for n in masked_gathers(graph).all_nodes()}
    pairs = [(n, after[n.id]) for n in before if n.op == "read"]
    return [n.attrs["memory"] for n, now in pairs if [x.op for x in n.inputs] != [x.op for x in now.inputs]]


def test_which_gathers_are_masked() -> None:
    assert masked(sparse_rows) == ["x"]
    assert masked(rows_by_mask) == ["table", "other", "table"]
    assert masked(both_arms) == []


def test_neighbours_stay_neighbours() -> None:
    """Numbers side by side at places that data decide are loaded together, which a choice of each place would hide."""

    @wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
    def kernel(at: wd.Memory[N, I32], x: wd.Memory[V, F32], y: wd.Memory[N, F32]):
        i = wd.read(at)
        wd.write(wd.where(i >= 0, wd.read(x[i * 4]) + wd.read(x[i * 4 + 1]), 0.0), y)

    assert masked(kernel) == []


def test_a_mask_that_is_known_late_holds_nothing_up() -> None:
    """One that a loop carries, or loads besides: gathers that run trips ahead would wait for it."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.TilingConstraint(E, 64)])
    def kernel(
        at: wd.Memory[E, I32], flags: wd.Memory[E, I32], x: wd.Memory[N, F32], z: wd.Memory[N, F32],
        y: wd.Memory[M, F32],
    ):  # fmt: skip
        @wd.iterate(E, init_args=[wd.Register[F32](0.0), wd.Register[wd.f32](1.0)])
        def row(total, least):
            i = wd.read(at)
            carried = wd.where(wd.cast(i, F32) > least, wd.read(x[i]), 0.0)
            loaded = wd.where(wd.read(flags) != 0, wd.read(z[i]), 0.0)
            return total + wd.sum(carried + loaded, dim=E), least + 1.0

        wd.write(row[0], y)

    assert masked(kernel) == []


@pytest.mark.parametrize(
    ("target", "most"), [("gfx942", 4.3), ("gfx950", 5.7), ("sm_80", 3.8), ("sm_90a", 4.0)]
)
def test_rows_of_few_numbers(target: str, most: float) -> None:
    """65536 rows of 32 numbers, a tile of 64 or two each, of which others' are as many: by the model 5.6, 7.5, 4.2 and
    4.4 times what memory takes for the bytes before. What is left are lines of L2 of which a lane wants four bytes."""
    arguments = sparse_rows_arguments(1 << 16, 1 << 16, 32)
    clocks = sample(sparse_rows.compile(*arguments, target=target), arguments).replay().cycles
    assert clocks < most * sum(a.nbytes for a in arguments) / model_of(target).dram_rate
