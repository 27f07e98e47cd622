"""How many stages a loop takes that memory holds up: as many as keep enough bytes on their way.

In: a loop's reads that are copied to shared memory while others compute, the kernel's grid, a target with the rates of
its reference product. Out: stages, at least the usual ones.

A unit gets its share of the chip's bandwidth if what it has on its way is that share times the latency
(`Target.bytes_in_flight`). Its workgroups that reside together bring

    workgroups · (stages - 1) · bytes of a trip's tiles

A loop counts as held up by memory where what it reads, each array once, takes longer than its products: only then are
there more stages than the usual ones, which stay where extents are known at launch only. Deeper rings take room from
workgroups beside: the fewest stages that suffice are taken, and where none do, those that bring most.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from wavedsl.ir.addresses.staged import tile_extents
from wavedsl.ir.dataflow.graph import Node, Region
from wavedsl.ir.lower.lowering import Lowering

MOST_STAGES = 8
"""As many as a ring of bulk copies has at most."""


def memory_depth(low: Lowering, region: Region, reads: Sequence[Node], usual: int, products: int) -> int:
    """Stages for the loop `region`, whose `reads` are copied without passing through registers; `products`: clocks that
    a trip's matrix instructions keep a SIMD busy."""
    target = low.target
    trips = low.plans[str(region.dim)].trips
    groups = grid(low)
    if not target.bytes_in_flight or not target.memory_rate or trips is None or groups is None or trips <= usual:
        return usual
    views = [low.view_info(n) for n in reads]
    arrays: dict[str, int] = {}
    for info in views:
        known = [n for n in info.extents if n is not None]
        if len(known) < len(info.extents):
            return usual
        arrays[info.name] = prod(known) * info.elsize
    share = ceil(groups / target.units)  # workgroups that a unit has, beside and after one another
    if products * trips * share >= sum(arrays.values()) / target.memory_rate:
        return usual
    trip = sum(tile_bytes(low, n) for n in reads)

    def ahead(stages: int) -> int:
        """Bytes per unit on their way; 0 where the tiles do not fit."""
        return min(share, per_unit(low, low.room.top + stages * trip)) * (stages - 1) * trip

    choice = range(usual, max(usual, min(MOST_STAGES, trips)) + 1)
    return next((s for s in choice if ahead(s) >= target.bytes_in_flight), max(choice, key=lambda s: (ahead(s), -s)))


def per_unit(low: Lowering, shared: int) -> int:
    """Workgroups with so many bytes of shared memory that a unit holds, whatever their registers."""
    target = low.target
    return target.resident_waves(1, shared, low.partition.waves * target.wave_size) // low.partition.waves


def beside(low: Lowering) -> int:
    """Workgroups that a unit works on at a time, whatever their registers; 1 where run-time extents decide."""
    groups = grid(low)
    return 1 if groups is None else max(1, min(ceil(groups / low.target.units), per_unit(low, low.room.top)))


def tile_bytes(low: Lowering, n: Node) -> int:
    """Bytes of the tile that a workgroup reads."""
    info, layout = low.view_info(n), low.layout(n)
    return prod(tile_extents(layout, [d for d in info.names if d in layout.dims], low.plans).values()) * info.elsize


def grid(low: Lowering) -> int | None:
    """Workgroups of the launch; None where a run-time extent decides."""
    counts = [low.partition.dims[d].trips for axis in low.partition.grid_axes() for d in axis]
    known = [n for n in counts if n is not None]
    return prod(known) if len(known) == len(counts) else None


__all__ = ["beside", "grid", "memory_depth", "per_unit", "tile_bytes"]
