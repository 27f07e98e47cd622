"""Elements that stand for a number of others that a layout's bits do not count: `repeat_interleave` of a value along
`K / 40`, of one along `K / 64` where a tile of K is 96, or of one along `K / 128` where a wave has 64 of a tile of 256.

In: a graph. Out: a graph in which such a value has the dimension K itself: what it is read of is read at `K // 40`, and
what is computed of that is computed for every element of K. Weights in groups that a row of 2880 or 4304 divides have
such factors.

Done where everything that has the dimension is a plain read, computed element by element, or repeated
(`long_repeats.alone`), and nothing has K as well. Else, where a workgroup has all of K at once, elements are picked by
their number (`shuffle`); of tiles the graph stays as it is, and layouts refuse it (`inference/derived_layout.py`).
Invariant: the graph that is given is not changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from wavedsl.ir.dataflow.constraints import TilingConstraint, WaveConstraint, WorkgroupConstraint
from wavedsl.ir.dataflow.graph import Graph, Node, ValueType
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dataflow.long_repeats import alone, long_repeats, part_of, read_parts
from wavedsl.ir.symbols import evaluate


def fitted_repeats(graph: Graph) -> Graph:
    """`graph` with dimensions of which every tile has whole elements, as far as that can be: what is cut into tiles."""
    return odd_repeats(long_repeats(graph))


def odd_repeats(graph: Graph) -> Graph:
    """`graph`, itself where nothing is repeated so."""
    found = _found(graph, graph.subs)
    odd = odd_parts(graph, graph.subs)
    picked = {d for d, (of, _) in found.items() if d not in odd and not _tiles(graph, of, graph.subs)}
    return copied(graph, lambda copy, n: _spread(copy, n, odd, picked)) if odd or picked else graph


def odd_parts(graph: Graph, known: Mapping[Any, Any]) -> dict[Any, tuple[Any, int]]:
    """Dimensions such as `K / 40` whose elements no bits count and K may take the place of → (K, 40). `known`: values
    of symbols."""
    found = _found(graph, known)
    return {d: (of, count) for d, (of, count) in found.items() if alone(graph, d, of) and not _meet(graph, d, of)}


def _found(graph: Graph, known: Mapping[Any, Any]) -> dict[Any, tuple[Any, int]]:
    found: dict[Any, tuple[Any, int]] = {}
    for n in graph.all_nodes():
        if n.op == "repeat_interleave":
            d, of, count = next(d for d in n.inputs[0].dims if d not in n.dims), n.attrs["dim"], n.attrs["count"]
            if _is_odd(graph, of, count, known):
                found[d] = of, count
    return found


def _is_odd(graph: Graph, of: Any, count: int, known: Mapping[Any, Any]) -> bool:
    """Whether so many elements are no power of two, neither part nor multiple of a tile, or none of a wave's share."""
    uneven = any(isinstance(t, int) and t % count and count % t for t in _tiles(graph, of, known))
    shares = (evaluate(c.tile, known) for c in graph.constraints if isinstance(c, WaveConstraint) and c.dim == of)
    return uneven or any(isinstance(t, int) and t % count for t in shares) or bool(count & (count - 1))


def _tiles(graph: Graph, of: Any, known: Mapping[Any, Any]) -> list[Any]:
    return [evaluate(c.tile, known) for c in graph.constraints
            if isinstance(c, (WorkgroupConstraint, TilingConstraint)) and c.dim == of]  # fmt: skip


def _meet(graph: Graph, d: Any, of: Any) -> bool:
    return any(isinstance(n.type, ValueType) and d in n.dims and of in n.dims for n in graph.all_nodes())


def _spread(copy: Copy, n: Node, odd: Mapping[Any, tuple[Any, int]], picked: Collection[Any]) -> Node:
    """What stands for a node."""
    if n.op == "repeat_interleave":
        part = next(d for d in n.inputs[0].dims if d not in n.dims)
        if part in odd:
            return copy.of(n.inputs)[0]
        if part in picked:
            place = part_of(copy, n, "index", n.attrs["dim"], n.attrs["count"])
            return copy.same(n, (*copy.of(n.inputs), place), op="shuffle", attrs={"dim": part})
    if not isinstance(n.type, ValueType) or not any(d in odd for d in n.dims):
        return copy.same(n)
    dims = tuple(odd[d][0] if d in odd else d for d in n.dims)
    if n.op != "read":
        return copy.same(n, type=ValueType(dims, n.dtype))
    return read_parts(copy, n, dims, {d: part_of(copy, n, "index", *odd[d]) for d in n.dims if d in odd})


__all__ = ["fitted_repeats", "odd_parts", "odd_repeats"]
