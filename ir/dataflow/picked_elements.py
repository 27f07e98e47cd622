"""Elements that a loop picks of a value, computed where they are picked.

In: a graph. Out: the graph, or a copy in which `extract(x, {I: i})` in a loop, of a value that stands before it and is
computed element by element, is computed of the elements of its operands at `i`: in a loop over boxes, whose row of
overlaps a trip asks for, the row is made of one box and all others. Nobody holds the tile then, in registers or in
shared memory: overlaps of 300 boxes were 88 registers of each lane of sm_80, which has 64, and each trip wrote all of
them to shared memory to read a row; those of 512 boxes were refused. The arithmetic is the tile's where a loop takes
each row once.

Invariant: the graph that is given is not changed; elements are computed by the same operations, so they are the same
bits, and outside of the dimension they are 0. An array that the kernel writes is not read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.empty_loops import without_unused
from wavedsl.ir.dataflow.graph import Graph, Mapping, Node, Region, ValueType
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.walks import postorder

LOOPS = ("iterate", "repeat")


def picked_elements(graph: Graph) -> Graph:
    """`graph` with elements computed where a loop picks them; itself where it picks none that are made one by one."""
    written = {n.attrs["memory"] for n in graph.all_nodes() if ROWS[n.op].effect and "memory" in n.attrs}
    found = {n.id for n in _picked_in_loops(graph.region, set()) if _is_made_again(graph, n, written)}
    if not found:
        return graph
    return without_unused(copied(graph, lambda copy, n: _picked(copy, n, written) if n.id in found else copy.same(n)))


def _picked_in_loops(region: Region, inside: set[int], loops: bool = False) -> Iterator[Node]:
    """Nodes that pick one place of what stands in front of the outermost loop around them. `inside`: numbers of the
    values of that loop."""
    for n in region.nodes:
        if loops and n.op == "extract" and n.attrs["new"] is None and len(n.inputs) == 2:
            if n.inputs[0].id not in inside:
                yield n
        body = n.attrs.get("body")
        if body is not None and n.op in (*LOOPS, "when"):
            within = loops or n.op in LOOPS
            if within:
                inside |= {c.id for c in body.carries}
            yield from _picked_in_loops(body, inside, within)
        if loops:
            inside.add(n.id)


def _by_element(n: Node) -> bool:
    """Whether an element is made of the operands' elements at the same place, and of nothing else."""
    return ROWS[n.op].compute is not None or n.op in ("cast", "bitcast", "broadcast", "permute")


def _is_made_again(graph: Graph, n: Node, written: set[str]) -> bool:
    """Whether what is picked of has several dimensions, is made element by element, and all that has as many is."""
    x, dim = n.inputs[0], n.attrs["dim"]
    if len(x.dims) < 2 or not _by_element(x) or not dim.is_Symbol:
        return False
    known: dict[int, None] = {}

    def steps(y: Node) -> tuple[Node, ...]:
        return y.inputs if _by_element(y) and dim in y.dims else ()

    for y in postorder(x, steps, known):
        known[y.id] = None
        made = _by_element(y) or dim not in y.dims or y.op in ("index", "fill")
        if not made and len(y.dims) >= len(x.dims) and _place(graph, y, dim, written) is None:
            return False
    return True


def _place(graph: Graph, n: Node, dim: Any, written: set[str]) -> int | None:
    """Which coordinate of a read is the element's own index along a dimension, and no other depends on it."""
    if n.op != "read" or n.attrs["memory"] in written:
        return None
    coords = _coords(graph, n)
    if any(isinstance(c, int) and dim in n.inputs[c].dims for c in coords):
        return None
    own = [i for i, c in enumerate(coords) if not isinstance(c, int) and c.has(dim)]
    return own[0] if len(own) == 1 and coords[own[0]] == dim else None


def _coords(graph: Graph, n: Node) -> tuple[Any, ...]:
    mapping = n.attrs["mapping"]
    return graph.argument(n.attrs["memory"]).dims if mapping is None else mapping.coords


def _picked(copy: Copy, n: Node, written: set[str]) -> Node:
    """What stands for an `extract`: the element that its operand has at one place, or 0 where there is no such."""
    dim, (at,) = n.attrs["dim"], copy.of(n.inputs[1:])
    made: dict[int, Node] = {}

    def add(op: str, inputs: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
        kind = ROWS[op].rule([x.type for x in inputs], attrs, copy.graph)  # type: ignore[misc]
        return copy.add(op, inputs, attrs, kind, n.loc)

    def steps(y: Node) -> tuple[Node, ...]:
        return y.inputs if _by_element(y) and dim in y.dims else ()

    def element(y: Node) -> Node:
        if dim not in y.dims:
            return copy.of((y,))[0]
        if y.op == "index":
            return at
        rest = tuple(d for d in y.dims if d != dim)
        if _by_element(y):
            attrs = {**y.attrs, "dims": rest} if "dims" in y.attrs else y.attrs
            return add(y.op, tuple(made[x.id] for x in y.inputs), attrs)
        if y.op == "fill":
            return add("fill", (), {**y.attrs, "dims": rest})
        place = _place(copy.graph, y, dim, written)
        if place is None:
            return add("extract", (*copy.of((y,)), at), dict(n.attrs))
        coords = list(_coords(copy.graph, y))
        coords[place] = len(y.inputs)
        kind = ValueType(rest, y.dtype)
        attrs = {**y.attrs, "mapping": Mapping(rest, tuple(coords)), "elements_per_thread": None}
        return copy.add("read", (*copy.of(y.inputs), at), attrs, kind, n.loc)

    for y in postorder(n.inputs[0], steps, made):
        made[y.id] = element(y)
    found = made[n.inputs[0].id]
    zero = add("constant", (), {"value": 0, "dtype": dt.i32})
    extent = add("size", (), {"expr": dim})
    inside = add("bitand", (add("ge", (at, zero), {}), add("lt", (at, extent), {})), {})
    if n.dtype.bits == 1:
        return copy.same(n, (found, inside), op="bitand", attrs={})
    nothing = add("constant", (), {"value": 0.0 if n.dtype.is_float else 0, "dtype": n.dtype})
    return copy.same(n, (inside, found, nothing), op="where", attrs={})


__all__ = ["picked_elements"]
