"""Tiles that products of a loop contract along different dimensions: a read for each, of one copy in shared memory.

In: a traced graph whose matrix instructions take operands from registers, and the target's waves. Out: a graph in which
such a read is one per contracted dimension. Latent attention multiplies queries with a tile of keys along its columns
and weights with the same tile along its rows; retention's keys make scores as they are, and the state once faded. A
value lies in one layout; the second product would have it exchanged between lanes and waves, while the tile that both
are taken from lies in shared memory already.

`same_reads` says which reads have the same elements: `plan_reads` gives them one place. `read_once.py` is the opposite,
for matrix instructions that read shared memory themselves.

Invariant: the graph that was traced is not changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from wavedsl.ir.dataflow.graph import Graph, Node, Region
from wavedsl.ir.dataflow.mma_dims import product_dims
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import placement
from wavedsl.ir.dataflow.walks import postorder
from wavedsl.ir.inference.read_once import what_is_read, with_reads
from wavedsl.ir.symbols import AddressSpace


def read_apart(graph: Graph, waves: int) -> Graph:
    """`graph`, itself where no read is contracted along several dimensions. `waves` of a workgroup."""
    found = _contractions(graph, [*_staged(graph, waves)])
    uses = {read: along for read, along in found.items() if len(along) > 1}
    if not uses:
        return graph
    return with_reads(graph, uses)


def same_reads(region: Region, reads: Collection[Node]) -> list[list[Node]]:
    """Those of `reads` that have the same elements, two or more together: nothing is written between them."""
    wanted = {n.id for n in reads}
    groups: dict[Any, list[Node]] = {}
    for n, what in what_is_read(region):
        if n.id in wanted:
            groups.setdefault(what, []).append(n)
    return [group for group in groups.values() if len(group) > 1]


def _staged(graph: Graph, waves: int) -> Iterator[Node]:
    """Reads of tiles that a loop's trips bring through shared memory."""
    for region in graph.regions():
        inside = {n.id for n in region.nodes}
        for n in region.nodes:
            found = placement(graph, n) if n.op == "read" and region.dim is not None else None
            if found is None or not (region.dim in n.dims or any(x.id in inside for x in found.numbers())):
                continue
            space = graph.argument(n.attrs["memory"]).address_space
            space = graph.subs.get(space, space)
            if space is AddressSpace.SHARED or (space is None and waves > 1):
                yield n


def _contractions(graph: Graph, reads: Collection[Node]) -> dict[int, dict[Any, list[tuple[int, int]]]]:
    """Per read, by id, contracted dimension → (user, input position) of its uses that end in products along it,
    directly or element by element; the first also stands for all other uses."""
    if not reads:
        return {}
    users: dict[int, list[tuple[Node, int]]] = {}
    for n in graph.all_nodes():
        for position, x in enumerate(n.inputs):
            users.setdefault(x.id, []).append((n, position))
    yielded = {y.id for region in graph.regions() for y in region.yields}

    ends: dict[int, set[Any]] = {}
    """User → dimensions that products contract of what it makes; None among them where that is used in another way."""

    def uses(user: Node) -> list[tuple[Node, int]] | None:
        """Of what a user makes element by element; None of others."""
        row = ROWS.get(user.op)
        plain = row is not None and row.index_rule == "same" and not row.effect and user.id not in yielded
        return users.get(user.id, []) if plain else None

    def end(user: Node, position: int) -> set[Any]:
        return {product_dims(user)[2]} if user.op == "mma" and position < 2 else ends[user.id]

    found: dict[int, dict[Any, list[tuple[int, int]]]] = {}
    for read in reads:
        along = found[read.id] = {}
        for user, position in users.get(read.id, ()):
            for x in postorder(user, lambda x: [u for u, _ in uses(x) or ()], ends):
                after = uses(x)
                ends[x.id] = {None} if after is None else {k for u, i in after for k in end(u, i)}
            dims = end(user, position)
            if len(dims) == 1 and (k := next(iter(dims))) is not None:
                along.setdefault(k, []).append((user.id, position))
    return found


__all__ = ["read_apart", "same_reads"]
