"""Tiles that several products read: one copy in shared memory for all of them.

In: a traced graph whose products take operands from shared memory. Out: a graph in which reads of the same elements
are one, where every use of the result can take the same tile. Gradients of attention read Q for the scores and again
for dK; kept apart, both lie in shared memory and both are brought there. A matrix instruction takes 16-bit tiles with
either dimension as K; smaller elements want K along memory, so they are joined only where they have the same K.

Invariant: between two reads that become one nothing is written, and the graph that was traced is not changed.
"""

from __future__ import annotations

from typing import Any

from wavedsl.ir.graph import Graph, Node, Region
from wavedsl.ir.graph_copy import copied
from wavedsl.ir.mma_dims import product_dims
from wavedsl.ir.mma_tiles import shared_reads

EITHER_WAY = 16
"""Bits of the elements that instructions of a warpgroup take from shared memory with either dimension along it."""


def read_once(graph: Graph) -> Graph:
    """`graph`, itself where no read is repeated."""
    candidates = shared_reads(graph)
    contracted = _contracted(graph, candidates)
    first: dict[int, Node] = {}
    for region in graph.regions():
        known: dict[Any, Node] = {}
        for n in region.nodes:
            if n.type is None or any(isinstance(x, Region) for x in n.attrs.values()) or n.op.startswith("atomic"):
                known.clear()  # what was read before may be written here
            elif n.id in candidates:
                along = None if n.dtype.bits == EITHER_WAY else contracted.get(n.id)
                key = (what_is_read(n), n.type, along)
                if known.setdefault(key, n) is not n:
                    first[n.id] = known[key]
    if not first:
        return graph
    return copied(graph, lambda copy, n: copy.made[first[n.id].id] if n.id in first else copy.same(n))


def _contracted(graph: Graph, reads: frozenset[int]) -> dict[int, frozenset[Any]]:
    """Read → the dimensions along which products sum over it."""
    found: dict[int, frozenset[Any]] = {}
    for n in graph.all_nodes():
        if n.op == "mma":
            for x in n.inputs[:2]:
                if x.id in reads:
                    found[x.id] = found.get(x.id, frozenset()) | {product_dims(n)[2]}
    return found


def what_is_read(n: Node) -> tuple[Any, ...]:
    """What a read reads: equal for reads of the same elements."""
    attrs = tuple((k, repr(v)) for k, v in sorted(n.attrs.items()))
    return (n.op, tuple(x.id for x in n.inputs), attrs)


__all__ = ["read_once", "what_is_read"]
