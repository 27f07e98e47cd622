"""Which tile a workgroup takes, and which part of it each wave: the coordinates that every address begins with.

In: a `Lowering` with its partition. Out: `base` and `wave_digit` of the lowering, emitted. Where a workgroup takes one
tile, the order in which workgroups take them is chosen for what they share in the L2 cache (`die_order.py`); where it
takes several, `Turns` says which, in the order of `tile_order.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from wavedsl.ir.addresses.coordinates import scaled
from wavedsl.ir.grid import uneven_tiles
from wavedsl.ir.grid.cluster_sharing import has_members, parts_together
from wavedsl.ir.grid.die_order import Numbering, Operand, choose_numbering, dealt
from wavedsl.ir.grid.tile_order import TileOrder, count_tiles, tile_numbers
from wavedsl.ir.inference.matrix_count import instructions
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.symbols import dim_name


def tile_counts(low: Lowering) -> list[Any]:
    """Tiles along each of the three grid axes: ints, or values where run-time extents decide. A dimension known to have
    none counts as one tile: nothing is launched then, and numbers of tiles are divided by."""
    counts = []
    for dims in low.partition.grid_axes():
        count: Any = 1
        for d in dims:
            trips = low.trip_count(dim_name(d))
            count = scaled(low.b, count, max(1, trips) if isinstance(trips, int) else trips)
        counts.append(count)
    return counts


def _numbering(low: Lowering) -> Numbering | None:
    """In which order workgroups take tiles, where each takes one; those of a cluster must stay side by side."""
    if has_members(low.partition) or parts_together(low.partition):
        return None
    axes = [{dim_name(d) for d in axis} for axis in low.partition.grid_axes()]
    counts = [
        None if any(low.partition.dims[d].trips is None for d in axis)
        else prod(low.partition.dims[d].trips or 1 for d in axis)
        for axis in low.partition.grid_axes()
    ]  # fmt: skip
    operands: list[Operand] = []
    clocks = 0
    for n in low.graph.all_nodes() if low.target.dies > 1 else ():
        if n.op not in ("read", "mma") or low.region_of(n).dim is None:
            continue
        if n.op == "read":
            size = n.dtype.bits * prod(low.plans[dim_name(d)].tile for d in n.dims) // 8
            moved = {dim_name(d) for d in n.dims}
            operands.append(Operand(size, tuple(i for i, names in enumerate(axes) if names & moved)))
        else:
            plan = low.inference.mmas[n.id]
            shares = -(-low.partition.waves // low.target.simds)
            clocks += instructions(plan) * plan.atom.cycles * shares
    return choose_numbering(counts, operands, clocks, low.target, low.choices.swizzle)


def _numbered(low: Lowering, numbering: Numbering) -> list[Any]:
    """The tile along each grid axis where workgroups that share data in the L2 cache follow each other."""
    b, counts = low.b, tile_counts(low)[:2]
    number = b.add(b.wgid(0), b.mul(b.wgid(1), counts[0]))
    number = dealt(b, number, scaled(b, counts[0], counts[1]), numbering.dies)
    order = TileOrder(tuple(c if isinstance(c, int) else None for c in counts), numbering.group, 0)
    return [*tile_numbers(b, order, number, counts), b.wgid(2)]


def set_coordinates(low: Lowering, numbers: Sequence[Any] | None = None) -> None:
    """Workgroup and wave coordinates of every dimension; `numbers`: of the tile along each axis, where a workgroup
    takes several."""
    b, p = low.b, low.partition
    if numbers is None:
        numbering = low.notes.numbering = _numbering(low)
        numbers = None if numbering is None else _numbered(low, numbering)
    for axis, dims in enumerate(p.grid_axes()):
        rest: Any = None
        for k, d in enumerate(dims):
            plan = p.dims[d]
            if plan.trips == 1:
                low.base[dim_name(d)] = 0
                continue
            if rest is None:
                rest = b.wgid(axis) if numbers is None else numbers[axis]
                rest = b.i32(rest) if isinstance(rest, int) else rest
            if k < len(dims) - 1 and any(p.dims[x].trips != 1 for x in dims[k + 1 :]):
                count: Any = 1 if plan.trips == 0 else plan.trips
                if count is None:
                    count = b.udiv(b.add(low.extent(dim_name(d)), plan.tile - 1), plan.tile)
                digit, rest = b.urem(rest, count), b.udiv(rest, count)
            else:
                digit = rest
            low.base[dim_name(d)] = b.mul(digit, plan.tile)
    wave: Any = b.wave() if p.waves > 1 else 0
    for d in p.dims:
        if d in p.derived or d in p.alike:
            continue
        divisor, modulus = p.wave_radix(d)
        if modulus == 1 or isinstance(wave, int):
            low.wave_digit[dim_name(d)] = 0
            continue
        digit = b.udiv(wave, divisor)
        low.wave_digit[dim_name(d)] = b.urem(digit, modulus) if divisor * modulus < p.waves else digit


class Turns:
    """The tiles of a workgroup that takes several: `first`, and every `step`-th up to `numbers`."""

    def __init__(self, low: Lowering, order: TileOrder):
        b, self.low, self.order = low.b, low, order
        self.counts = tile_counts(low)
        # The launch may hold fewer workgroups than the order foresees: fewer compute units.
        self.first: Any = b.udiv(b.wgid(0), order.cluster.count)
        self.place = order.cluster.place(b)
        self.numbers = count_tiles(b, order, self.counts)
        step = b.udiv(b.wgcount(0), order.cluster.count)
        self.step: Any = b.max_s(step, 1) if step.lo == 0 else step

    def go_to(self, turn: Any) -> None:
        """Set the coordinates to those of the tile that comes in a turn."""
        b, order = self.low.b, self.order
        if order.uneven is not None:
            turn = uneven_tiles.dealt(b, turn, self.first, self.step, self.numbers, order.uneven.back)
        set_coordinates(self.low, tile_numbers(b, order, turn, self.counts, self.place))
