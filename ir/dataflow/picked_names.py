"""Values under another dimension's name, [I] as [J], with their elements picked by that one's index.

In: a graph. Out: the graph, or a copy in which `reshape`s that only rename a dimension are `shuffle`s. A reshape is a
renaming of registers, which costs nothing, but what it renames is one wave's as a whole. Elements that are picked come
from whichever wave has them, so waves may share both dimensions: conjugate gradients of 96 unknowns, whose matrix is
[I, J] and whose direction is needed as [I] and as [J], take 16 warps in place of one that lacks the registers. Of a
recurrent layer, h = f(h @ W), whose state is a product's result as [B, H] and its operand as [B, J], each wave has some
columns and picks the others' of every step.

Invariant: the graph that is given is not changed.
"""

from __future__ import annotations

from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Graph, Node, ValueType
from wavedsl.ir.dataflow.graph_copy import Copy, copied


def renamed(n: Node) -> tuple[Any, Any] | None:
    """The name that a `reshape` takes away and the one that it gives in its place; None where it does anything else."""
    if n.op != "reshape" or len(n.dims) != len(n.inputs[0].dims):
        return None
    others = [(old, new) for old, new in zip(n.inputs[0].dims, n.dims) if old != new]
    if len(others) != 1 or others[0][0] in n.dims or others[0][1] in n.inputs[0].dims:
        return None
    return others[0]


def picked_names(graph: Graph) -> Graph:
    """`graph` with picked elements for renamed dimensions that no constraint cuts; itself where there are none."""
    cut = {getattr(c, "dim", None) for c in graph.constraints}
    nodes = list(graph.all_nodes())
    found = {n.id: names for n in nodes if (names := renamed(n)) is not None and not cut & {*names}}
    if not found:
        return graph

    def change(copy: Copy, n: Node) -> Node:
        if n.id not in found:
            return copy.same(n)
        old, new = found[n.id]
        index = copy.add("index", (), {"dim": new}, ValueType((new,), dt.i32), n.loc)
        return copy.add("shuffle", (*copy.of(n.inputs), index), {"dim": old}, n.type, n.loc)

    return copied(graph, change)


__all__ = ["picked_names", "renamed"]
