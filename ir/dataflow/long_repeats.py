"""Elements that stand for more than a tile: `repeat_interleave` of a value along `K / 128` where a tile of K is 64.

In: a graph. Out: a graph in which such a value, all of whose elements in a tile are one, lacks the dimension: it is
read at `tile_start(K) // 128` of the array, and repeated along K as any value that lacks K. Weights of 4 bits mostly
have a factor for every 128 of K, and blocks of 128 x 128 one; tiles of K are 64, or 32.

Done where the tile divides what an element stands for, and where everything that has the dimension is a plain read,
computed element by element, or repeated; else the graph stays as it is, and the cut refuses it (`cuts/partition.py`).
Invariant: the graph that is given is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.constraints import TilingConstraint, WorkgroupConstraint
from wavedsl.ir.dataflow.graph import Graph, Node, Region, ValueType
from wavedsl.ir.dataflow.graph import Mapping as Placed
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.symbols import evaluate


def long_repeats(graph: Graph) -> Graph:
    """`graph`, itself where nothing is repeated so."""
    long = long_parts(graph, graph.subs)
    return copied(graph, lambda copy, n: _shorter(copy, n, long)) if long else graph


def long_parts(graph: Graph, known: Mapping[Any, Any]) -> dict[Any, tuple[Any, int]]:
    """Dimensions such as `K / 128` whose elements stand for several tiles → (K, 128). `known`: values of symbols."""
    dims = dict.fromkeys(d for n in graph.all_nodes() if n.op == "repeat_interleave" for d in n.inputs[0].dims)
    found = {d: of for d in dims if (of := _of_tiles(graph, d, known)) is not None}
    return {d: of for d, of in found.items() if alone(graph, d, of[0])}


def _of_tiles(graph: Graph, d: Any, known: Mapping[Any, Any]) -> tuple[Any, int] | None:
    """(dimension, how many of its elements one along d stands for), where these are several tiles."""
    above, below = d.as_numer_denom()
    stands = evaluate(below, known)
    if not above.is_Symbol or not isinstance(stands, int):
        return None
    for c in graph.constraints:
        if isinstance(c, (WorkgroupConstraint, TilingConstraint)) and c.dim == above:
            tile = evaluate(c.tile, known)
            return (above, stands) if isinstance(tile, int) and 1 < tile < stands and stands % tile == 0 else None
    return None


def alone(graph: Graph, d: Any, of: Any) -> bool:
    """Whether whatever has dimension d may do without it: inside of the loop over `of`, if there is one."""
    looped = any(isinstance(c, TilingConstraint) and c.dim == of for c in graph.constraints)

    def fits(n: Node) -> bool:
        if n.op == "repeat_interleave":
            return bool(d in n.dims or n.attrs["dim"] == of)
        if n.op == "read":
            return n.attrs.get("mapping") is None
        return ROWS[n.op].index_rule == "same" and "dims" not in n.attrs and "body" not in n.attrs

    def inside(region: Region, within: bool) -> bool:
        within = within or region.dim == of
        for n in region.nodes:
            if any(_has(x, d) for x in (n, *n.inputs)) and not (fits(n) and (within or not looped)):
                return False
            if "body" in n.attrs and not inside(n.attrs["body"], within):
                return False
        return not any(_has(x, d) for x in (*region.carries, *region.yields))

    return inside(graph.region, False)


def _has(n: Node, d: Any) -> bool:
    types = n.type if isinstance(n.type, tuple) else (n.type,)
    return any(t is not None and d in t.dims for t in types)


def _shorter(copy: Copy, n: Node, long: Mapping[Any, tuple[Any, int]]) -> Node:
    """What stands for a node."""
    if n.op == "repeat_interleave" and any(d in long for d in n.inputs[0].dims if d not in n.dims):
        return copy.same(n, op="broadcast", attrs={"dims": _kept(n.dims, long)}, type=_type(n, long))
    if not isinstance(n.type, ValueType) or not any(d in long for d in n.dims):
        return copy.same(n)
    if n.op != "read":
        return copy.same(n, type=_type(n, long))
    places = {d: part_of(copy, n, "tile_start", *long[d]) for d in n.dims if d in long}
    return read_parts(copy, n, _kept(n.dims, long), places)


def read_parts(copy: Copy, n: Node, dims: tuple[Any, ...], places: Mapping[Any, Node]) -> Node:
    """A plain read of an array as a value of `dims`: along a dimension of `places` at the element that stands there."""
    array = copy.graph.argument(n.attrs["memory"]).dims
    moved = [d for d in array if d in places]
    first = len(n.inputs)
    coords = tuple(first + moved.index(d) if d in places else d for d in array)
    inputs = (*copy.of(n.inputs), *(places[d] for d in moved))
    return copy.same(n, inputs, attrs={**n.attrs, "mapping": Placed(dims, coords)}, type=ValueType(dims, n.dtype))


def part_of(copy: Copy, n: Node, op: str, of: Any, count: int) -> Node:
    """Which element stands for `count` along `of`: for each element of `of` ("index"), or for a tile ("tile_start")."""
    dims = (of,) if op == "index" else ()
    index = copy.add(op, (), {"dim": of}, ValueType(dims, dt.i32), n.loc)
    number = copy.add("constant", (), {"value": count}, ValueType((), dt.i32), n.loc)
    return copy.add("floordiv", (index, number), {}, ValueType(dims, dt.i32), n.loc)


def _kept(dims: tuple[Any, ...], long: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(d for d in dims if d not in long)


def _type(n: Node, long: Mapping[Any, Any]) -> ValueType:
    return ValueType(_kept(n.dims, long), n.dtype)


__all__ = ["alone", "long_parts", "long_repeats", "part_of", "read_parts"]
