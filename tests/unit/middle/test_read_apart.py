"""Reads that two products contract along different dimensions; numbers that place tiles and are computed with."""

from __future__ import annotations

from typing import Any

import pytest
from wavedsl.ir.cuts.numbers_apart import numbers_apart
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.inference.read_apart import read_apart, same_reads

import wavedsl as wd

M, N, K, P, S, BM, BN = wd.symbols("M N K P S BM BN")
SIZES = {M: 64, N: 128, K: 64, BM: 64, BN: 32}
CONSTRAINTS = [wd.WorkgroupConstraint(M, BM, 0), wd.WaveConstraint(M, BM / 4), wd.TilingConstraint(N, BN)]


def chain(space: Any = wd.SHARED, reads: int = 1, between: bool = False):
    """(A Bᵀ) B, with B read once for both products or for each."""

    @wd.wave(CONSTRAINTS, subs=SIZES)
    def twice(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, space, wd.f16], c: wd.Memory[M, K, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[M, K, wd.f32](0.0)])
        def loop(acc):
            rows = wd.read(b)
            scores = wd.mma(wd.read(a), rows, wd.Register[M, N, wd.f32](0.0))
            if between:
                wd.write(wd.read(b) * 1, b)
            again = rows if reads == 1 else wd.read(b)
            return wd.mma(wd.cast(scores, wd.f16), again, acc)

        wd.write(loop, c)

    return twice.trace()


def of(graph: Graph, name: str) -> list[Node]:
    return [n for n in graph.all_nodes() if n.op == "read" and n.attrs["memory"] == name]


def test_a_read_for_each_contracted_dimension() -> None:
    graph = chain()
    apart = read_apart(graph, waves=4)
    first, second = of(apart, "b")
    products = [n for n in apart.all_nodes() if n.op == "mma"]
    assert first in products[0].inputs and second in products[1].inputs and second not in products[0].inputs
    assert len(of(graph, "b")) == 1 and len({n.id for n in apart.all_nodes()}) == len(list(apart.all_nodes()))
    assert read_apart(apart, waves=4) is apart


def test_what_no_loop_brings_to_shared_memory_stays_one() -> None:
    """A read straight to registers would be carried out twice; A has no dimension of the loop."""
    assert len(of(read_apart(chain(wd.GLOBAL), waves=4), "b")) == 1
    undecided = wd.wave(CONSTRAINTS, subs=SIZES)(chain_function)
    assert [len(of(read_apart(undecided.trace(), waves), "b")) for waves in (1, 4)] == [1, 2]


def chain_function(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, K, wd.f32]):
    @wd.iterate(N, init_args=[wd.Register[M, K, wd.f32](0.0)])
    def loop(acc):
        rows = wd.read(b)
        return wd.mma(wd.cast(wd.mma(wd.read(a), rows, wd.Register[M, N, wd.f32](0.0)), wd.f16), rows, acc)

    wd.write(loop, c)


def test_what_is_made_of_a_tile_for_another_product_reads_it_too() -> None:
    """Keys of retention: for the scores as they are, for the state faded. What has other uses stays with the first."""

    def kernel(shown: bool):
        @wd.wave(CONSTRAINTS, subs=SIZES)
        def faded(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, K, wd.f32]):
            @wd.iterate(N, init_args=[wd.Register[M, K, wd.f32](0.0)])
            def loop(acc):
                rows = wd.read(b)
                scores = wd.mma(wd.read(a), rows, wd.Register[M, N, wd.f32](0.0))
                half = rows * 0.5
                more = wd.sum(wd.cast(half, wd.f32), dim=N) if shown else 0.0
                return wd.mma(wd.cast(scores, wd.f16), half, acc) + more

            wd.write(loop, c)

        return faded.trace()

    apart = read_apart(kernel(shown=False), waves=4)
    first, second = of(apart, "b")
    (half,) = (n for n in apart.all_nodes() if n.op == "mul")
    assert second in half.inputs and first not in half.inputs
    assert len(of(read_apart(kernel(shown=True), waves=4), "b")) == 1


@pytest.mark.parametrize(("between", "groups"), [(False, [2]), (True, [2])])
def test_reads_of_the_same_elements(between: bool, groups: list[int]) -> None:
    """A write between two reads ends what is the same: then the second of two groups is the read after it."""
    graph = chain(reads=2, between=between)
    body = graph.loops()[0].attrs["body"]
    found = same_reads(body, of(graph, "b"))
    assert [len(group) for group in found] == groups
    assert (of(graph, "b")[-1] in found[0]) is not between


def paged(check: bool):
    @wd.wave([*CONSTRAINTS], subs={**SIZES, P: 8, S: 32})
    def kernel(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[P, S, K, wd.SHARED, wd.f16], table: wd.Memory[N, wd.i32],
        c: wd.Memory[M, wd.f32],
    ):  # fmt: skip
        @wd.iterate(N, init_args=[wd.Register[M, wd.f32](0.0)])
        def loop(acc):
            number = wd.read(table, mapping=wd.IndexMapping((), {N: wd.tile_start(N) // 32}))
            rows = wd.read(b, mapping=wd.IndexMapping((N, K), {P: number, S: N % 32}))
            scores = wd.mma(wd.read(a), rows, wd.Register[M, N, wd.f32](0.0))
            return acc + wd.sum(wd.where(number >= 0, scores, 0.0) if check else scores, dim=N)

        wd.write(loop, c)

    return kernel.trace()


def test_numbers_that_place_tiles_are_read_apart_from_those_computed_with() -> None:
    graph = paged(check=True)
    apart = numbers_apart(graph)
    placing, computed = of(apart, "table")
    (rows,) = of(apart, "b")
    (compared,) = (n for n in apart.all_nodes() if n.op == "ge")
    assert placing in rows.inputs and computed in compared.inputs and computed not in rows.inputs
    assert len(of(graph, "table")) == 1 and numbers_apart(apart) is apart
    alone = paged(check=False)
    assert numbers_apart(alone) is alone
