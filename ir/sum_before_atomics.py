"""Atomics that many elements do in one place: a workgroup joins its own elements first, and does one.

In: a traced graph. Out: a graph in which an `atomic_add`, whose mapping sends all elements along a dimension to one
place and whose result nobody uses, adds their sum; `atomic_min` and `atomic_max` of whole numbers likewise. The order
in which atomics happen is nobody's promise, so the answer is as good; f16 and bf16 are added one by one, as they round
at each step.

Invariant: the graph that was traced is not changed; it stays what the kernel means.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.graph import Graph, Node, Region, ValueType

_JOINED = {"atomic_add": "sum", "atomic_min": "min", "atomic_max": "max"}
_WHOLE = (dt.i32, dt.u32, dt.i64, dt.u64)


def sum_before_atomics(graph: Graph) -> Graph:
    """`graph`, itself where no atomic can be joined."""
    nodes = list(graph.all_nodes())
    if not any(n.op in _JOINED for n in nodes):
        return graph
    used = {x.id for n in nodes for x in n.inputs} | {y.id for r in graph.regions() for y in r.yields}
    joined = {n.id: dims for n in nodes if n.op in _JOINED and n.id not in used and (dims := _one_place(n))}
    return replace(graph, region=_Copy(graph, joined).region(graph.region)) if joined else graph


def _one_place(n: Node) -> tuple[Any, ...]:
    """The dimensions of an atomic's value along which its elements meet in one place."""
    mapping, dtype = n.attrs["mapping"], n.inputs[0].dtype
    if mapping is None or not (dtype in _WHOLE or (n.op == "atomic_add" and dtype in (dt.f32, dt.f64))):
        return ()
    apart = {d for x in n.inputs[1:] for d in x.dims}
    apart |= {s for c in mapping.coords if not isinstance(c, int) for s in getattr(c, "free_symbols", ())}
    return tuple(d for d in n.inputs[0].dims if d not in apart)


class _Copy:
    """A copy of a graph's regions, node by node. `joined`: per atomic, the dimensions to reduce first."""

    def __init__(self, graph: Graph, joined: dict[int, tuple[Any, ...]]):
        self.joined, self.fresh = joined, graph.next_id()
        self.made: dict[int, Node] = {}

    def region(self, old: Region) -> Region:
        new = Region(old.dim, [], [self.node(c, None) for c in old.carries], (), old.loc)
        for n in old.nodes:
            new.nodes.append(self.node(n, new))
        new.yields = tuple(self.made[y.id] for y in old.yields)
        return new

    def node(self, old: Node, region: Region | None) -> Node:
        attrs = dict(old.attrs)
        inputs = tuple(self.made[x.id] for x in old.inputs)
        if isinstance(attrs.get("body"), Region):
            attrs["body"] = self.region(attrs["body"])
        kind = old.type
        if old.id in self.joined and region is not None:
            value = inputs[0]
            for d in self.joined[old.id]:
                left = ValueType(tuple(x for x in value.dims if x != d), value.dtype)
                value = Node(self.fresh, _JOINED[old.op], (value,), {"dim": d, "partial": True}, left, old.loc)
                self.fresh += 1
                region.nodes.append(value)
            inputs, kind = (value, *inputs[1:]), value.type
            mapping = attrs["mapping"]
            attrs["mapping"] = replace(mapping, dims=tuple(d for d in mapping.dims if d not in self.joined[old.id]))
            attrs["joined"] = tuple(map(str, self.joined[old.id]))
        new = self.made[old.id] = Node(old.id, old.op, inputs, attrs, kind, old.loc)
        return new


__all__ = ["sum_before_atomics"]
