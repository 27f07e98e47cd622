"""Values that are reshaped right behind a read, or right before a write, read and written at the places of their new
shape.

In: a graph, extents. Out: the graph, or a copy in which `reshape(read(ids), S)` of an array [T, K] is a read at
(S // K, S % K), and `write(reshape(x, T, K), a)` a write there. A reshape in registers keeps what it changes in one
wave; places in memory are for all waves, which may then share the new dimensions: 2048 choices of 64 experts, counted,
are 131072 elements, of which a wave had all.

Done for whole arrays (no mapping) of at least bytes and dimensions that no constraint cuts. A read stays where it
stood: what is written behind it is not seen. Invariant: the graph that is given is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import sympy
from wavedsl.ir.dataflow.graph import Graph, Node, ValueType
from wavedsl.ir.dataflow.graph import Mapping as Placed
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.symbols import evaluate


def counted_again(n: Node) -> tuple[list[Any], list[Any], list[Any]]:
    """Of a reshape (dimensions that stay, the old ones of the others, the new ones): what both sides list first or last
    stays, whoever shares it."""
    before, after = list(n.inputs[0].dims), list(n.dims)
    most = min(len(before), len(after))
    lead = next((i for i in range(most) if before[i] != after[i]), most)
    trail = next((i for i in range(most - lead) if before[-1 - i] != after[-1 - i]), most - lead)
    last = len(before) - trail
    return before[:lead] + before[last:], before[lead:last], after[lead : len(after) - trail]


def reshaped_places(graph: Graph, known: Mapping[Any, Any]) -> Graph:
    """`graph` without reshapes of what is read or written as it is; itself where there are none. `known`: values of
    symbols."""
    cut = {getattr(c, "dim", None) for c in graph.constraints}
    users: dict[int, list[Node]] = {}
    for n in graph.all_nodes():
        for x in n.inputs:
            users.setdefault(x.id, []).append(n)
    kept = {x.id for region in graph.regions() for x in region.yields}
    found: dict[int, Sequence[Any]] = {}
    """Reshapes → places along the dimensions of the array, of a read by the new dimensions, of writes by the old."""
    reads: dict[int, list[Node]] = {}
    for n in graph.all_nodes():
        if n.op != "reshape":
            continue
        _, old, new = counted_again(n)
        extents = {d: evaluate(d, known) for d in (*old, *new)}
        sizes = {d: s for d, s in extents.items() if d.is_Symbol and isinstance(s, int)}
        if cut & {*old, *new} or len(sizes) < len(extents):
            continue
        if prod(sizes[d] for d in old) != prod(sizes[d] for d in new):
            continue
        source = n.inputs[0]
        if _plain(graph, source, "read"):
            found[n.id] = _places(new, old, sizes)
            reads.setdefault(source.id, []).append(n)
        elif n.id not in kept and n.id in users and all(_plain(graph, u, "write") for u in users[n.id]):
            found[n.id] = _places(old, new, sizes)
    if not found:
        return graph
    instead: dict[int, Node] = {}

    def change(copy: Copy, n: Node) -> Node:
        for reshape in reads.get(n.id, ()):
            mapping = _mapping(graph, n, reshape.dims, found[reshape.id], counted_again(reshape)[1])
            attrs = {**n.attrs, "mapping": mapping}
            instead[reshape.id] = copy.add("read", copy.of(n.inputs), attrs, ValueType(reshape.dims, n.dtype), n.loc)
        if n.id in reads and n.id not in kept and all(u.id in instead for u in users[n.id]):
            return instead[reads[n.id][0].id]
        if n.id in instead:
            return instead[n.id]
        if n.op == "reshape" and n.id in found:
            return copy.of(n.inputs)[0]
        if n.op == "write" and (x := n.inputs[0]).id in found and x.id not in instead:
            mapping = _mapping(graph, n, x.inputs[0].dims, found[x.id], counted_again(x)[2])
            return copy.same(n, attrs={**n.attrs, "mapping": mapping})
        return copy.same(n)

    return copied(graph, change)


def _plain(graph: Graph, n: Node, op: str) -> bool:
    if n.op != op or n.attrs.get("mapping") is not None:
        return False
    return graph.argument(n.attrs["memory"]).dtype.bits >= 8


def _places(own: Sequence[Any], others: Sequence[Any], sizes: Mapping[Any, int]) -> list[Any]:
    """The index along each of `others` of the element that has the indices `own`, both in row-major order."""
    number, step = sympy.S.Zero, 1
    for d in reversed(own):
        number, step = number + d * step, step * sizes[d]
    out, step = [], 1
    for d in reversed(others):
        place = sympy.floor(number / step)
        out.append(sympy.Mod(place, sizes[d]) if d != others[0] else place)
        step *= sizes[d]
    return out[::-1]


def _mapping(graph: Graph, n: Node, dims: tuple[Any, ...], places: Sequence[Any], changed: Sequence[Any]) -> Placed:
    where = dict(zip(changed, places))
    return Placed(dims, tuple(where.get(d, d) for d in graph.argument(n.attrs["memory"]).dims))


__all__ = ["counted_again", "reshaped_places"]
