"""Tiles that products of a loop contract along different dimensions: a read for each, of one copy in shared memory.

In: a traced graph whose matrix instructions take operands from registers, and the target's waves. Out: a graph in which
such a read is one per contracted dimension. Latent attention multiplies queries with a tile of keys along its columns
and weights with the same tile along its rows. A value lies in one layout; the second product would have it exchanged
between lanes and waves, while the tile that both are taken from lies in shared memory already.

`same_reads` says which reads have the same elements: `plan_reads` gives them one place. `read_once.py` is the opposite,
for matrix instructions that read shared memory themselves.

Invariant: the graph that was traced is not changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from wavedsl.ir.graph import Graph, Node, Region
from wavedsl.ir.graph_copy import Copy, copied
from wavedsl.ir.mma_dims import product_dims
from wavedsl.ir.read_once import what_is_read
from wavedsl.ir.symbols import AddressSpace
from wavedsl.ir.views import is_tile


def read_apart(graph: Graph, waves: int) -> Graph:
    """`graph`, itself where no read is contracted along several dimensions. `waves` of a workgroup."""
    uses = {n.id: found for n in _staged(graph, waves) if len(found := _contractions(graph, n)) > 1}
    if not uses:
        return graph
    other: dict[tuple[int, int], Node] = {}
    """Product, input position → the read of its own; the first contraction of a read keeps it."""

    def change(copy: Copy, n: Node) -> Node:
        inputs = tuple(other.get((n.id, i), copy.made[x.id]) for i, x in enumerate(n.inputs))
        node = copy.same(n, inputs)
        for products in list(uses.get(n.id, {}).values())[1:]:
            again = copy.add(n.op, node.inputs, n.attrs, n.type, n.loc)
            other.update(dict.fromkeys(products, again))
        return node

    return copied(graph, change)


def same_reads(region: Region, reads: Collection[Node]) -> list[list[Node]]:
    """Those of `reads` that have the same elements, two or more together: nothing is written between them."""
    wanted = {n.id for n in reads}
    groups: list[list[Node]] = []
    known: dict[Any, list[Node]] = {}
    for n in region.nodes:
        if n.type is None or any(isinstance(x, Region) for x in n.attrs.values()) or n.op.startswith("atomic"):
            known = {}  # what was read before may be written here
        elif n.id in wanted:
            group = known.setdefault((what_is_read(n), n.type), [])
            group.append(n)
            if len(group) == 2:
                groups.append(group)
    return groups


def _staged(graph: Graph, waves: int) -> Iterator[Node]:
    """Reads of tiles that a loop's trips bring through shared memory."""
    for region in graph.regions():
        for n in region.nodes:
            if n.op != "read" or region.dim is None or region.dim not in n.dims or not is_tile(graph, n):
                continue
            space = graph.argument(n.attrs["memory"]).address_space
            space = graph.subs.get(space, space)
            if space is AddressSpace.SHARED or (space is None and waves > 1):
                yield n


def _contractions(graph: Graph, read: Node) -> dict[Any, list[tuple[int, int]]]:
    """Contracted dimension → (product, input position) of the uses of a read; the first also stands for other uses."""
    found: dict[Any, list[tuple[int, int]]] = {}
    for n in graph.all_nodes():
        if n.op == "mma":
            for position in (0, 1):
                if n.inputs[position] is read:
                    found.setdefault(product_dims(n)[2], []).append((n.id, position))
    return found


__all__ = ["read_apart", "same_reads"]
