"""Tiles that several products read: one copy in shared memory for all of them.

In: a traced graph whose products take operands from shared memory. Out: a graph in which reads of the same elements
are one, where every use of the result can take the same tile. Gradients of attention read Q for the scores and again
for dK; kept apart, both lie in shared memory and both are brought there. A matrix instruction takes 16-bit tiles with
either dimension as K; other elements want K along memory, so they are joined only where they have the same K, and a
read that is contracted along several dimensions becomes one for each.

Invariant: between two reads that become one nothing is written, and the graph that was traced is not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wavedsl.ir.dataflow.graph import Graph, Node, Region
from wavedsl.ir.dataflow.graph import Mapping as ResolvedMapping
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dataflow.mma_dims import product_dims
from wavedsl.ir.dataflow.same_values import Numbers
from wavedsl.ir.inference.mma_tiles import shared_reads

EITHER_WAY = 16
"""Bits of the elements that instructions of a warpgroup take from shared memory with either dimension along it."""


def read_once(graph: Graph) -> Graph:
    """`graph`, itself where no read is repeated."""
    graph = _one_way_each(graph)
    candidates = shared_reads(graph)
    contracted = {read: frozenset(uses) for read, uses in _contracted(graph, candidates).items()}
    first: dict[int, Node] = {}
    for region in graph.regions():
        known: dict[Any, Node] = {}
        for n, what in what_is_read(region):
            if n.id in candidates:
                along = None if n.dtype.bits == EITHER_WAY else contracted.get(n.id)
                if known.setdefault((what, along), n) is not n:
                    first[n.id] = known[what, along]
    if not first:
        return graph
    return copied(graph, lambda copy, n: copy.made[first[n.id].id] if n.id in first else copy.same(n))


def _one_way_each(graph: Graph) -> Graph:
    """`graph` with a read for each dimension that products contract, where instructions take the elements with that
    dimension along memory only."""
    uses = _contracted(graph, shared_reads(graph))
    bits = {n.id: n.dtype.bits for n in graph.all_nodes() if n.id in uses}
    several = {read: found for read, found in uses.items() if bits[read] != EITHER_WAY and len(found) > 1}
    return with_reads(graph, several) if several else graph


def _contracted(graph: Graph, reads: frozenset[int]) -> dict[int, dict[Any, list[tuple[int, int]]]]:
    """Read → dimension along which products sum over it → (product, input position)."""
    found: dict[int, dict[Any, list[tuple[int, int]]]] = {}
    for n in graph.all_nodes():
        if n.op == "mma":
            for position, x in enumerate(n.inputs[:2]):
                if x.id in reads:
                    found.setdefault(x.id, {}).setdefault(product_dims(n)[2], []).append((n.id, position))
    return found


def with_reads(graph: Graph, uses: Mapping[int, Mapping[Any, Sequence[tuple[int, int]]]]) -> Graph:
    """A copy of `graph` in which a read is one per group of its uses (user, input position); the first group, and uses
    in none, keep it."""
    other: dict[tuple[int, int], Node] = {}

    def change(copy: Copy, n: Node) -> Node:
        inputs = tuple(other.get((n.id, i), copy.made[x.id]) for i, x in enumerate(n.inputs))
        node = copy.same(n, inputs)
        for users in list(uses.get(n.id, {}).values())[1:]:
            again = copy.add(n.op, node.inputs, n.attrs, n.type, n.loc)
            other.update(dict.fromkeys(users, again))
        return node

    return copied(graph, change)


def what_is_read(region: Region) -> Iterator[tuple[Node, tuple[Any, ...]]]:
    """The reads of a region, and what they read: equal for reads of the same elements, of places that are computed
    alike, where nothing is written between them."""
    numbers, written = Numbers(), 0
    for n in region.nodes:
        if n.type is None or any(isinstance(x, Region) for x in n.attrs.values()) or n.op.startswith("atomic"):
            written += 1  # what was read before may be written here
        elif n.op == "read":
            attrs = tuple((k, v if isinstance(v, ResolvedMapping) else repr(v)) for k, v in sorted(n.attrs.items()))
            what = (n.op, tuple(map(numbers.of, n.inputs)), attrs, n.type, written)
            numbers.name(n, what)
            yield n, what


__all__ = ["read_once", "what_is_read", "with_reads"]
