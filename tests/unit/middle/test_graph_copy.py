"""What passes that rewrite graphs rely on: a copy is the same graph in other nodes, and what is copied stays."""

from __future__ import annotations

import products
from products import BK, BM, BN, WM, WN, K, M, N
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dataflow.graph_verify import verify_graph


def traced() -> Graph:
    tile = {BM: 32, BN: 32, BK: 16, WM: 32, WN: 32}
    return products.gemm(products.F16_OUT).trace({**tile, M: 64, N: 64, K: 64})


def test_a_plain_copy_is_the_same_graph_in_other_nodes() -> None:
    graph = traced()
    again = copied(graph, Copy.same)
    assert str(again) == str(graph)
    old, new = list(graph.all_nodes()), list(again.all_nodes())
    assert len(old) == len(new) and not {id(n) for n in old} & {id(n) for n in new}
    inside = {id(n) for n in new}
    assert all(id(x) in inside for n in new for x in n.inputs)
    assert all(id(y) in inside for region in again.regions() for y in region.yields)
    verify_graph(again)


def test_what_is_added_has_its_own_number_and_the_given_graph_stays() -> None:
    graph = traced()
    before, taken = str(graph), {n.id for n in graph.all_nodes()}
    added: list[Node] = []

    def doubled(copy: Copy, n: Node) -> Node:
        if n.op != "mma":
            return copy.same(n)
        a, b, sums = copy.of(n.inputs)
        added.append(copy.add("add", (a, a), {}, a.type, n.loc))
        return copy.same(n, (added[-1], b, sums))

    changed = copied(graph, doubled)
    verify_graph(changed)
    (new,) = added
    loop = next(n.attrs["body"] for n in changed.loops())
    product = next(n for n in loop.nodes if n.op == "mma")
    assert new.id not in taken and loop.nodes.index(new) + 1 == loop.nodes.index(product)
    assert product.inputs[0] is new and product.id in taken
    assert str(graph) == before and {n.id for n in graph.all_nodes()} == taken
