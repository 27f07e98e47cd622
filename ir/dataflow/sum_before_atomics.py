"""Atomics that many elements do in one place: a workgroup joins its own elements first, and does one.

In: a traced graph. Out: a graph in which an `atomic_add`, whose mapping sends all elements along a dimension to one
place and whose result nobody uses, adds their sum; `atomic_min` and `atomic_max` likewise. The order in which atomics
happen is nobody's promise, so the answer is as good; f16 and bf16 are added one by one, as they round at each step.

Invariant: the graph that was traced is not changed; it stays what the kernel means.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Graph, Node, ValueType
from wavedsl.ir.dataflow.graph_copy import Copy, copied

_JOINED = {"atomic_add": "sum", "atomic_min": "min", "atomic_max": "max"}
_SUMMED = (dt.i32, dt.u32, dt.i64, dt.u64, dt.f32, dt.f64)
_COMPARED = (*_SUMMED, dt.f16, dt.bf16)


def sum_before_atomics(graph: Graph) -> Graph:
    """`graph`, itself where no atomic can be joined."""
    nodes = list(graph.all_nodes())
    if not any(n.op in _JOINED for n in nodes):
        return graph
    used = {x.id for n in nodes for x in n.inputs} | {y.id for r in graph.regions() for y in r.yields}
    joined = {n.id: dims for n in nodes if n.op in _JOINED and n.id not in used and (dims := _one_place(n))}
    if not joined:
        return graph
    return copied(graph, lambda copy, n: _joined(copy, n, joined[n.id]) if n.id in joined else copy.same(n))


def _one_place(n: Node) -> tuple[Any, ...]:
    """The dimensions of an atomic's value along which its elements meet in one place."""
    mapping, dtype = n.attrs["mapping"], n.inputs[0].dtype
    if mapping is None or dtype not in (_SUMMED if n.op == "atomic_add" else _COMPARED):
        return ()
    apart = {d for x in n.inputs[1:] for d in x.dims}
    coords = [c for c in mapping.coords if not isinstance(c, int)]
    return tuple(d for d in n.inputs[0].dims if d not in apart and not any(c.has(d) for c in coords))


def _joined(copy: Copy, n: Node, dims: tuple[Any, ...]) -> Node:
    """An atomic of its elements' sum (or least, or largest) along `dims`."""
    value, *rest = copy.of(n.inputs)
    for d in dims:
        left = ValueType(tuple(x for x in value.dims if x != d), value.dtype)
        value = copy.add(_JOINED[n.op], (value,), {"dim": d, "partial": True}, left, n.loc)
    mapping = n.attrs["mapping"]
    mapping = replace(mapping, dims=tuple(d for d in mapping.dims if d not in dims))
    attrs = {**n.attrs, "mapping": mapping, "joined": (*n.attrs.get("joined", ()), *map(str, dims))}
    return copy.same(n, (value, *rest), attrs=attrs, type=value.type)


__all__ = ["sum_before_atomics"]
