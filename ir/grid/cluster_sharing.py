"""What the workgroups of a cluster have in common: trips of loops, and tiles of arrays.

In: a graph, its partition, the shape of a cluster. Out: whether all of a cluster run the same trips, as they must (each
waits for slots that the others fill and give back), and along which axes a read brings them the same tile.

Along an axis the workgroups of a cluster differ in that axis' dimensions and in nothing else. A dimension of which a
workgroup has one place (a head) may count in blocks: query heads 0 to 3 read key head 0, and neighbours in a cluster
are in one such block where the block is a multiple of the cluster. So what depends on `H // 4` alone is theirs alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.cuts.tile_dims import number_dims, tile_dims
from wavedsl.ir.dataflow.graph import PART, PRODUCTS, Graph, Node, loop_bounds, region_nodes
from wavedsl.ir.grid.cluster_shape import ClusterShape
from wavedsl.ir.grid.turns import MEMBERS
from wavedsl.ir.symbols import dim_name

AXES = ("first", "second", "third")


def has_members(partition: Partition) -> bool:
    """Whether tiles are handed to clusters as a whole (`turns`): which of them a workgroup takes is its place along
    dimensions of the grid that mean nothing else."""
    return any(dim_name(d) in MEMBERS for d in partition.dims)


def parts_together(partition: Partition) -> bool:
    """Whether the parts of a tile are a cluster (`joined_parts`): the first axis of its shape is theirs, the second
    that of the tiles along the first grid axis."""
    return any(dim_name(d) == PART and plan.axis == 0 for d, plan in partition.dims.items())


def along(partition: Partition, axis: int) -> set[str]:
    """Dimensions in which a cluster's workgroups along an axis may differ."""
    if has_members(partition):
        return {MEMBERS[axis]}
    if parts_together(partition):
        return {PART} if axis == 0 else {str(d) for d in partition.grid_axes()[0]} - {PART}
    return {str(d) for d in partition.grid_axes()[axis]}


def blocks(graph: Graph, partition: Partition, shape: ClusterShape, axis: int) -> dict[str, int]:
    """Dimensions of which a cluster's workgroups along an axis have places side by side, the first a multiple of so
    many: the axis' fastest, where it is an index dimension and no cluster goes past its end into the next dimension."""
    if parts_together(partition):
        return {}
    dims = [d for d in partition.grid_axes()[axis] if partition.dims[d].trips != 1]
    size = shape.sizes[axis] if axis < len(shape.sizes) else 1
    if size == 1 or not dims or dims[0] not in graph.index_dims:
        return {}
    trips = partition.dims[dims[0]].trips
    return {str(dims[0]): size} if len(dims) == 1 or (trips is not None and trips % size == 0) else {}


def loop_apart(graph: Graph, partition: Partition, shape: ClusterShape) -> tuple[Node, int] | None:
    """A loop of products whose trips may differ between workgroups of a cluster, with the axis along which they do."""
    for n in graph.all_nodes():
        bounds = [x for x in loop_bounds(n) if x is not None] if n.op == "iterate" else []
        if not bounds or n.attrs.get("length") is not None:
            continue  # all of its dimension, or from somewhere on as many as anywhere else
        if not any(x.op in PRODUCTS for x in region_nodes(n.attrs["body"])):
            continue
        for axis in shape.long:
            own = along(partition, axis)
            if own == {PART}:
                continue  # parts share no tiles: nobody waits for another's slots
            if not own.isdisjoint(_dims(graph, bounds, own, blocks(graph, partition, shape, axis))):
                return n, axis
    return None


def depends(graph: Graph, n: Node, everything: Iterable[Any], in_blocks: Mapping[str, int] | None = None) -> set[str]:
    """Dimensions on which the tile that a read takes from its array depends, those among them that say where loops
    around it begin; `everything` where nobody knows. `in_blocks`: as in `tile_dims`."""
    every = set(map(str, everything))
    found = tile_dims(graph, n, in_blocks)
    if found is None:
        return every
    around = [x for x in graph.all_nodes() if x.op == "iterate" and n in region_nodes(x.attrs["body"])]
    left = list(found)
    while left:
        d = left.pop()
        for loop in around:
            if str(loop.attrs["body"].dim) == d:
                more = _dims(graph, [x for x in loop_bounds(loop) if x is not None], every, in_blocks or {})
                left += more - found
                found |= more
    return found


def shared_along(graph: Graph, partition: Partition, shape: ClusterShape, n: Node) -> tuple[int, ...]:
    """The axes of a cluster along which a read brings its workgroups the same tile."""
    found = []
    for axis in shape.long:
        own = along(partition, axis)
        if own.isdisjoint(depends(graph, n, partition.dims, blocks(graph, partition, shape, axis))):
            found.append(axis)
    return tuple(found)


def _dims(graph: Graph, numbers: Iterable[Node], every: set[str], in_blocks: Mapping[str, int]) -> set[str]:
    found: set[str] = set()
    for x in numbers:
        dims = number_dims(graph, x, in_blocks)
        found |= every if dims is None else dims
    return found


__all__ = ["AXES", "depends", "has_members", "loop_apart", "parts_together", "shared_along"]
