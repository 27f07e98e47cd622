"""Operands outside of loops that give up their shared memory, where a loop's tiles find none left.

In: a way to cut and to lay out a graph. Out: which read of the kernel's outermost region waves fetch themselves from
then on, each the elements that it needs. A loop's tiles are read in every trip, and copied while products run; what is
read once gains nothing by the detour but that waves with the same elements share the fetch.

Invariant: only reads that may also lie in registers are named: no tile that matrix instructions take from shared
memory, no array that the user wants there, no elements that are unpacked on the way from there.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.cuts.register_file import staged_reads, tile_bytes
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.inference.infer import Inference
from wavedsl.ir.symbols import AddressSpace


def next_spared(
    graph: Graph, partition: Partition, inference: Inference, spared: Collection[int]
) -> frozenset[int] | None:
    """`spared` and the largest tile outside of loops that can do without shared memory; None where there is none."""
    taken, staged = inference.matrix_uses(), staged_reads(graph)
    if not graph.loops():
        return None
    free = [
        n
        for n in graph.region.nodes
        if n.id in staged and n.id not in taken and n.id not in spared and not _asked(graph, n)
    ]
    if not free:
        return None
    tiles = {d: plan.tile for d, plan in partition.dims.items()}
    largest = max(free, key=lambda n: (tile_bytes(n, tiles), -n.id))
    return frozenset({*spared, largest.id})


def _asked(graph: Graph, n: Node) -> bool:
    """Whether the user wants a read's array in shared memory, or its elements are units, unpacked from there."""
    argument = graph.argument(n.attrs["memory"])
    space: Any = argument.address_space
    return graph.subs.get(space, space) is AddressSpace.SHARED or argument.dtype.packed


__all__ = ["next_spared"]
