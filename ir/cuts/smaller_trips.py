"""Loops over tiles of rows that may as well take them in smaller tiles.

In: a graph and the dimension of a loop. Out: whether smaller tiles give the same results, but for the order of sums:
each trip does something with every row by itself, writes it, and adds rows up to what the loop carries. Gradients of a
norm take four rows of 8192 a trip because somebody wrote so, and sixteen waves have no room for what four of them hold
between two sums (`retile.fewer_rows_a_trip`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Graph, Node, Region, ValueType
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import divisor

BY_PLACE = ("fill", "constant", "scalar", "size", "index", "random", "permute", "read", "carry")
"""Operations that give each row what it has whatever other rows there are, beside elementwise ones."""
JOINED = {"sum": "add", "max": "maximum", "min": "minimum"}
"""Reductions along the rows, and what takes them to those of the trips before."""


def rows_apart(graph: Graph, dim: Any, tile: int) -> bool:
    """Whether all loops over a dimension go through it row by row, by ranges of tiles of `tile` rows that smaller ones
    divide as well, and nothing else asks for its tiles."""
    users: dict[int, list[Node]] = {}
    loops = []
    for n in graph.all_nodes():
        for x in n.inputs:
            users.setdefault(x.id, []).append(n)
        if n.op in ("tile_start", "tile_stop") and n.attrs.get("dim") == dim:
            return False
        if n.op == "iterate" and n.attrs["body"].dim == dim:
            loops.append(n)
    return bool(loops) and all(_by_rows(n, dim, tile, users) for n in loops)


def _by_rows(loop: Node, dim: Any, tile: int, users: Mapping[int, list[Node]]) -> bool:
    body: Region = loop.attrs["body"]
    ends = loop.inputs[len(body.carries) :]
    if loop.attrs.get("per_wave") or loop.attrs.get("aligned") or any(divisor(n) % tile for n in ends):
        return False  # whole tiles take part in a range
    stored = {n.attrs["memory"] for n in body.nodes if ROWS[n.op].effect and "memory" in n.attrs}
    sums = [_joined(carry, last, dim, users) for carry, last in zip(body.carries, body.yields)]
    if None in sums:
        return False
    whole = {x.id for x in sums if x is not None}
    return all(n.id in whole or _has_rows(n, dim, stored) for n in body.nodes)


def _joined(carry: Node, last: Node, dim: Any, users: Mapping[int, list[Node]]) -> Node | None:
    """The reduction along the rows that a trip joins to what it carries, and does nothing else with; of a sum of sums
    the one along the rows. Sums of narrow numbers are rounded tile by tile."""
    if len(last.inputs) != 2 or carry not in last.inputs or users.get(carry.id) != [last] or users.get(last.id):
        return None
    part, user = last.inputs[1] if last.inputs[0] is carry else last.inputs[0], last
    while JOINED.get(part.op) == last.op and users.get(part.id) == [user]:
        if part.op == "sum" and part.dtype.bits < 32:
            return None
        if part.attrs["dim"] == dim:
            return part
        part, user = part.inputs[0], part
    return None


def _has_rows(n: Node, dim: Any, stored: set[str]) -> bool:
    """Whether an operation does the same for a row in whichever tile that comes."""
    if n.op in REGIONS or n.op in PRODUCTS:
        return False
    if n.op == "read":
        return n.attrs["memory"] not in stored
    if n.op == "write":  # what has no rows would be written in every trip
        return dim in n.inputs[0].dims
    row = ROWS[n.op]
    if row.effect:
        return False
    if row.index_rule in ("same", "lift") or n.op in BY_PLACE:
        return True
    return n.attrs.get("dim") != dim and all(dim not in _changed(n, x) for x in n.inputs)


def _changed(n: Node, x: Node) -> set[Any]:
    """Dimensions that an operation takes from a value, or gives it."""
    types = n.type if isinstance(n.type, tuple) else (n.type,)
    mine = {d for t in types if isinstance(t, ValueType) for d in t.dims}
    return mine ^ set(x.dims)


__all__ = ["rows_apart"]
