"""Coordinates that a kernel computes of its elements' own indices are expressions over them.

In: a traced graph. Out: a graph in which a coordinate of a mapping such as `wd.index(P) * Q + wd.index(Q)`, integers
made of `index`, of extents that are known and of whole numbers alone, is the expression `16*P + Q`, as if the kernel
had written that. Neighbours that lie side by side in the array are then seen to (`ir/addresses/mapped_runs.py`) and
move 16 bytes at a time; computed coordinates are compared and added element by element.

Left as they are: accesses of whole tiles (`views.placement` reads their nodes), and all of an array where one access
takes the index of a loop's dimension from another region, which is not the element's own there. So two accesses of one
place stay alike (`views.same_place`).

Invariant: the graph that was traced is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dataflow.views import index_positions, is_tile, static_number
from wavedsl.ir.dataflow.walks import postorder
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import evaluate

LEAST, MOST = -(1 << 31), (1 << 31) - 1
_RING = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}
"""What wraps around as integers of any width do."""
_PARTS = {
    "floordiv": lambda x, y: sympy.floor(x / y, evaluate=False),
    "mod": lambda x, y: sympy.Mod(x, y, evaluate=False),
}
"""As they are written: to simplify a handful of remainders takes sympy 50 ms."""


@dataclass(frozen=True)
class _Written:
    """An integer as an expression, and between which numbers it is; None: who knows."""

    expr: Any
    least: int | None
    most: int | None

    @property
    def ends(self) -> tuple[int, int] | None:
        """The least and the most that it is; None where it may wrap around."""
        if self.least is None or self.most is None or self.least < LEAST or self.most > MOST:
            return None
        return self.least, self.most


def written_places(graph: Graph) -> Graph:
    """`graph`, itself where no coordinate is computed so."""
    if not any(index_positions(n) for n in graph.all_nodes()):
        return graph
    places = {n.id: found for n in graph.all_nodes() if (found := _expressions(graph, n))}
    regions = {n.id: region for region in graph.regions() for n in region.nodes}
    loops = {region.dim for region in graph.regions()}
    kept = {
        n.attrs["memory"]
        for n in graph.all_nodes()
        for c in places.get(n.id, ())
        if any(
            x.op == "index" and x.attrs["dim"] in loops and regions[x.id] is not regions[n.id]
            for x in postorder(n.inputs[c], lambda x: x.inputs, ())
        )
    }
    places = {n.id: places[n.id] for n in graph.all_nodes() if n.id in places and n.attrs["memory"] not in kept}
    if not places:
        return graph
    return copied(graph, lambda copy, n: _placed(copy, n, places[n.id]) if n.id in places else copy.same(n))


def _expressions(graph: Graph, n: Node) -> dict[int, Any]:
    """The coordinates of an access that are such expressions, by the number of the input."""
    positions = index_positions(n)
    if not positions or is_tile(graph, n):
        return {}
    values: dict[int, _Written | None] = {}
    for c in sorted(positions):
        for x in postorder(n.inputs[c], lambda x: x.inputs if x.op in _RING or x.op in _PARTS else (), values):
            values[x.id] = _written(graph, x, values)
    found = {c: values[n.inputs[c].id] for c in positions if n.inputs[c].dims}
    return {c: x.expr for c, x in found.items() if x is not None}


def _written(graph: Graph, n: Node, values: Mapping[int, _Written | None]) -> _Written | None:
    """A node's value as an expression over indices with the ends of what it may be, from its operands'; None where
    it is none."""
    if n.dtype is not dt.i32:
        return None
    if n.op == "index" and n.attrs["dim"].is_Symbol:
        extent = evaluate(n.attrs["dim"], graph.subs)
        return _Written(n.attrs["dim"], 0, extent - 1 if isinstance(extent, int) else None)
    number = static_number(graph, n)
    if number is not None:
        return _Written(sympy.Integer(number), number, number)
    if n.op not in _RING and n.op not in _PARTS:
        return None
    x, y = (values[i.id] for i in n.inputs)
    if x is None or y is None:
        return None
    first, second = x.ends, y.ends
    if n.op in _PARTS:
        if first is None or not y.expr.is_Integer or y.expr <= 0:
            return None
        of = int(y.expr)
        ends = (first[0] // of, first[1] // of) if n.op == "floordiv" else (0, of - 1)
        return _Written(_PARTS[n.op](x.expr, y.expr), *ends)
    how = _RING[n.op]
    if first is None or second is None:
        return _Written(how(x.expr, y.expr), None, None)
    corners = [how(a, b) for a in first for b in second]
    return _Written(how(x.expr, y.expr), min(corners), max(corners))


def _placed(copy: Copy, n: Node, places: Mapping[int, Any]) -> Node:
    """An access with expressions in place of the inputs that they stand for."""
    inputs = copy.of(n.inputs)
    left = [i for i in range(len(inputs)) if i not in places]
    now: dict[Any, Any] = {i: k for k, i in enumerate(left)} | dict(places)
    mapping = n.attrs["mapping"]
    coords = tuple(now[c] if isinstance(c, int) else c for c in mapping.coords)
    return copy.same(n, tuple(inputs[i] for i in left), attrs={**n.attrs, "mapping": replace(mapping, coords=coords)})


__all__ = ["written_places"]
