"""Persistent workgroups: how many there are, and in which order each takes its output tiles.

In: the tiles along the grid's axes, the chip's compute units, workgroups of a cluster. Out: a `TileOrder`: the linear
number of a tile to its number along each axis. Tiles that run at the same time should share operands in the L2 cache,
so they form a block: `group` tiles along the first axis, then on along the second. The block that fills the chip once
touches group · a + ⌈units / group⌉ · b elements of the operands, for tiles of a × b; the group with the least is taken.

With clusters, a number counts whole clusters: their workgroups take neighbouring tiles along one of the first two axes
or both. Where a run-time extent makes that no multiple of the cluster's, the last ones work on nothing: their copies
bring zeros, their stores are masked like those of any tile that sticks out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wavedsl.ir.addresses.coordinates import scaled, total
from wavedsl.ir.grid.cluster_shape import ONE, ClusterShape
from wavedsl.ir.grid.uneven_tiles import Uneven
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.quick_dataclass import dataclass

GROUPS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class TileOrder:
    """`counts`: tiles along each grid axis, None where a run-time extent decides. `workgroups`: how many are launched,
    in clusters of this shape, whose tiles are neighbours. `uneven`: where tiles differ in length, the order instead."""

    counts: tuple[int | None, ...]
    group: int
    workgroups: int
    cluster: ClusterShape = ONE
    uneven: Uneven | None = None

    def describe(self) -> str:
        """One line for reports."""
        if self.uneven is not None:
            return f"{self.workgroups} workgroups, {self.uneven.describe()}"
        return f"{self.workgroups} workgroups, blocks of {self.group} tiles along the first grid axis"

    def clusters(self, b: Builder, counts: Sequence[Any]) -> list[Any]:
        """What is handed out along each axis: tiles, or clusters of tiles."""
        return [_clusters(b, n, size) for n, size in zip(counts, (*self.cluster.sizes, 1))]


def best_group(tile: Sequence[int], units: int, cluster: ClusterShape = ONE) -> int:
    """Tiles (or clusters) along the first axis of a block that fills the chip and touches the fewest elements."""
    a, b = (n * size for n, size in zip(tile, cluster.sizes))
    blocks = max(1, units // cluster.count)
    return min(GROUPS, key=lambda g: (g * a + -(-blocks // g) * b, g))


def count_tiles(b: Builder, order: TileOrder, counts: Sequence[Any]) -> Any:
    """Numbers that are handed out: tiles, or clusters of tiles."""
    out, *rest = order.clusters(b, counts)
    for n in rest:
        out = scaled(b, out, n)
    return out


def _clusters(b: Builder, tiles: Any, cluster: int) -> Any:
    if cluster == 1:
        return tiles
    return -(-tiles // cluster) if isinstance(tiles, int) else b.udiv(b.add(tiles, cluster - 1), cluster)


def tile_numbers(
    b: Builder, order: TileOrder, number: Value, counts: Sequence[Any], place: Sequence[Any] = (0, 0)
) -> list[Any]:  # fmt: skip
    """The tile's number along each axis. `place`: where in its cluster this workgroup is (`ClusterShape.place`)."""
    if order.uneven is not None:
        out = order.uneven.numbers(b, number, order.clusters(b, counts))
        return _in_cluster(b, order.cluster, out, place)[: len(counts)]
    first, second, *_ = (*order.clusters(b, counts), 1)
    plane = scaled(b, first, second)
    rest: Any = number
    outer: Any = 0
    if len(counts) > 2 and counts[2] != 1:
        outer, rest = b.udiv(number, plane), b.urem(number, plane)
    along: Any
    across: Any
    if second == 1:
        along, across = rest, 0
    elif first == 1:
        along, across = 0, rest
    else:
        per = scaled(b, second, order.group)
        block, inside = b.udiv(rest, per), b.urem(rest, per)
        start = b.mul(block, order.group)
        if isinstance(first, int) and first % order.group == 0:
            height: Any = order.group
        else:
            height = b.min_s(b.sub(b.i32(first) if isinstance(first, int) else first, start), order.group)
        along, across = total(b, [start, b.urem(inside, height)]), b.udiv(inside, height)
    return _in_cluster(b, order.cluster, [along, across, outer], place)[: len(counts)]


def _in_cluster(b: Builder, cluster: ClusterShape, numbers: Sequence[Any], place: Sequence[Any]) -> list[Any]:
    """Numbers of the workgroup's tile along each axis from those of its cluster."""
    sizes, own = (*cluster.sizes, 1), (*place, 0)
    return [total(b, [scaled(b, n, sizes[i]), own[i]]) if sizes[i] > 1 else n for i, n in enumerate(numbers)]
