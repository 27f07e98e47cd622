"""Products in loops along a dimension that warpgroups share, whose sums an atomic adds to an array.

In: a graph and how it is cut. Out: such products, and which dimension of the result each warpgroup has a share of.
In attention's gradients warpgroups have the keys of a tile among them, and what a trip adds to dQ is contracted over
these: each could make a part of every sum, which would be added up through shared memory or by twice the atomics. But
both operands lie in shared memory, or are stored there by all warpgroups, so each warpgroup contracts all of the tile
for its share of the result: as many instructions, half the registers, every sum added once and by one lane. Rows or
columns are shared out, whichever has the instructions read less of shared memory.

Invariant: nobody but the atomic uses the result, so only these two know where it lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.dataflow.mma_dims import product_dims
from wavedsl.ir.quick_dataclass import dataclass

ROWS, LEAST, MOST = 64, 8, 256
"""Rows of an instruction of a warpgroup; the columns of the narrowest and of the widest."""


@dataclass(frozen=True)
class Spread:
    """`dim`: of the result, of which each of the waves along the contracted dimension `over` has `share` elements.
    `computed`: position of the operand that waves store to shared memory. `alike`: numbers of the nodes that lie as the
    result does: the zeros that it starts from, and the atomic that takes it."""

    dim: Any
    over: Any
    share: int
    computed: int
    alike: tuple[int, ...]


def spread_products(graph: Graph, partition: Partition, read_tiles: frozenset[int]) -> Mapping[int, Spread]:
    """Products that are carried out so, by number. `read_tiles`: reads whose tiles matrix instructions can take."""
    users: dict[int, list[Node]] = {}
    for n in graph.all_nodes():
        for x in n.inputs:
            users.setdefault(x.id, []).append(n)
    yielded = {x.id for region in graph.regions() for x in region.yields}
    found: dict[int, Spread] = {}
    for region in graph.regions():
        inside = {n.id for n in region.nodes}
        for n in region.nodes if region.dim is not None else ():
            if n.op != "mma" or n.id in yielded or not _from_zero(n, users):
                continue
            atomics = users.get(n.id, [])
            if len(atomics) != 1 or not _adds(atomics[0], users, yielded):
                continue
            found_one = _spread(n, partition, read_tiles, inside, atomics[0])
            if found_one is not None:
                found[n.id] = found_one
    return found


def _from_zero(n: Node, users: Mapping[int, list[Node]]) -> bool:
    """Whether a product starts from zeros of its own."""
    start = n.inputs[2] if len(n.inputs) > 2 else None
    return start is None or (
        start.op in ("fill", "constant") and not start.attrs["value"] and len(users[start.id]) == 1
    )


def _adds(atomic: Node, users: Mapping[int, list[Node]], yielded: set[int]) -> bool:
    """Whether a node adds a value to an array and nobody asks what was there."""
    return atomic.op == "atomic_add" and not users.get(atomic.id) and atomic.id not in yielded


def _spread(n: Node, partition: Partition, read_tiles: frozenset[int], inside: set[int], atomic: Node) -> Spread | None:
    """How warpgroups share the result of a product along what they share of K; None where they cannot."""
    k = product_dims(n)[2]
    waves = partition.dims[k].waves
    if waves == 1 or any(partition.dims[d].waves > 1 for d in n.dims):
        return None
    for position in (0, 1):
        computed, tile = n.inputs[position], n.inputs[1 - position]
        if tile.id not in read_tiles or computed.id in read_tiles or computed.id not in inside:
            continue
        if computed.op in ("constant", "fill") or len(computed.dims) != 2 or computed.dtype.bits < 8:
            continue
        sizes = {d: partition.dims[d].wave for d in n.dims}
        order = [d for d in (*tile.dims, *computed.dims) if d in sizes]  # columns first: they lie along arrays
        ways = {d: _read({**sizes, d: sizes[d] // waves}) for d in order if sizes[d] % waves == 0}
        best = min(ways, key=lambda d: ways[d], default=None)
        if best is not None and ways[best] < inf:
            alike = (atomic.id, *(x.id for x in n.inputs[2:]))
            return Spread(best, k, sizes[best] // waves, position, alike)
    return None


def _read(sizes: Mapping[Any, int]) -> float:
    """Elements of shared memory that a warpgroup's instructions read for a result of these sizes, per step along the
    contracted dimension: rows of the first operand once for all of its columns, columns once per `ROWS`."""
    if len(sizes) != 2:
        return inf
    least = inf
    for rows, columns in (tuple(sizes.values()), tuple(sizes.values())[::-1]):
        if rows % ROWS == 0 and columns % LEAST == 0:
            least = min(least, rows // ROWS * (-(-columns // MOST) * ROWS + columns))
    return least


__all__ = ["Spread", "spread_products"]
