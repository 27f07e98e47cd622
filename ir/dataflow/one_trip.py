"""Loops of one trip over many products become straight code, whose operands may come one after the other.

In: a prepared graph and the numbers of its symbols. Out: a graph in which such loops' bodies stand where the loops
stood, over dimensions that no constraint cuts any more; the graph itself where there are none.
A loop's trip waits for all that it multiplies: a filter's nine places of a tile of channels have room in shared memory
together, or not at all. Straight code has windows (`regions/windows.py`); of a loop with one trip nothing else is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wavedsl.ir.dataflow.constraints import TilingConstraint
from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Graph, Node, initial_values, loop_bounds
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dataflow.many_products import MANY
from wavedsl.ir.symbols import evaluate


def straightened(graph: Graph, dims: Mapping[Any, Any]) -> Graph:
    """The graph without loops of one trip, where it has no others."""
    loops = [n for n in graph.region.nodes if n.op in REGIONS]
    if not loops or not all(_one_trip(graph, n, dims) for n in loops):
        return graph
    if max(sum(x.op in PRODUCTS for x in n.attrs["body"].nodes) for n in loops) < MANY:
        return graph
    ids = {n.id for n in loops}

    def change(copy: Copy, n: Node) -> Node:
        if n.id in ids:
            body = n.attrs["body"]
            for carry, start in zip(body.carries, initial_values(n), strict=True):
                copy.made[carry.id] = copy.made[start.id]
            for x in body.nodes:
                copy.made[x.id] = change(copy, x)
            return n  # nobody asks what stands for it: its results are what its body yields
        if n.op == "result" and n.inputs[0].id in ids:
            return copy.of(n.inputs[0].attrs["body"].yields)[n.attrs["position"]]
        return copy.same(n)

    gone = {n.attrs["body"].dim for n in loops}
    kept = [c for c in graph.constraints if not (isinstance(c, TilingConstraint) and c.dim in gone)]
    return replace(copied(graph, change), constraints=kept)


def _one_trip(graph: Graph, n: Node, dims: Mapping[Any, Any]) -> bool:
    """Whether a node is a loop over a whole dimension that is one tile, with nothing in it that only loops have."""
    if n.op != "iterate" or loop_bounds(n) != (None, None):
        return False
    body = n.attrs["body"]
    if any(x.op in (*REGIONS, "tile_start", "tile_stop") for x in body.nodes):
        return False
    tiles = [c.tile for c in graph.constraints if isinstance(c, TilingConstraint) and c.dim == body.dim]
    return len(tiles) == 1 and isinstance(tile := evaluate(tiles[0], dims), int) and tile == evaluate(body.dim, dims)


__all__ = ["straightened"]
