"""Mappings that move a whole tile: reads and writes through an `IndexMapping` that need no gather.

In: a node with a mapping, the graph. Out: per dimension of the array that the mapping fixes, where its coordinate comes
from; the other dimensions are indexed by themselves. Such a coordinate is the same for all elements of the tile: an
expression over index dimensions (`{G: H // 4}`, the key head of a query head) or a single traced integer (a page
number). So the access is that of a plain tile, staged, vectorised and masked like one, from another base.
"""

from __future__ import annotations

from typing import Any

from wavedsl.ir.graph import Graph, Node
from wavedsl.ir.graph import Mapping as ResolvedMapping


def fixed_coordinates(graph: Graph, n: Node) -> dict[str, Any] | None:
    """Array dimension → expression over index dimensions, or the node that holds the coordinate; empty without a
    mapping. None for a mapping that moves elements one by one."""
    mapping: ResolvedMapping | None = n.attrs.get("mapping")
    if mapping is None:
        return {}
    argument = graph.argument(n.attrs["memory"])
    index_dims = set(graph.index_dims)
    fixed: dict[str, Any] = {}
    own = set()
    for dim, c in zip(argument.dims, mapping.coords):
        if isinstance(c, int):
            if n.inputs[c].dims:
                return None
            fixed[str(dim)] = n.inputs[c]
        elif c == dim and (dim in mapping.dims or dim in index_dims):
            own.add(dim)
        elif not c.free_symbols & (set(mapping.dims) - index_dims):
            fixed[str(dim)] = c
        else:
            return None
    if any(d not in own for d in mapping.dims if d not in index_dims):
        return None
    return fixed


def is_tile(graph: Graph, n: Node) -> bool:
    """Whether a read or write moves a plain tile, with a mapping or without."""
    return fixed_coordinates(graph, n) is not None


def is_settled(graph: Graph, n: Node) -> bool:
    """Whether a read moves a tile that no traced value places."""
    fixed = fixed_coordinates(graph, n)
    return fixed is not None and not any(isinstance(c, Node) for c in fixed.values())


def unmapped_dims(graph: Graph) -> set[Any]:
    """Dimensions of arrays that no value has and no constraint names: every access fixes their coordinate."""
    held = {getattr(c, "dim", None) for c in graph.constraints}
    for n in graph.all_nodes():
        for t in n.type if isinstance(n.type, tuple) else (n.type,):
            if t is not None:
                held |= set(t.dims)
    return {d for a in graph.arguments for d in a.dims if d not in held}
