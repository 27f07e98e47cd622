"""The rings of a kernel: which reads share one, how many slots each has, where they lie, and their tensor maps.

In: a `Lowering` and its `Strategy`. Out: `low.reads.rings` with `low.reads.ring_of`, the buffers of results that leave
through shared memory (`low.writes.outlets`), and tensor maps among the kernel's parameters.
The idea: reads that the same products use are brought together. All of shared memory is slots: first as many as copies
run ahead, then what a tile has once gets a second one where rings are deep enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from wavedsl.ir.addresses.staged import Staged
from wavedsl.ir.dataflow.graph import Node, Region, region_nodes
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.grid.cluster_shape import ALONE, ClusterShape
from wavedsl.ir.grid.cluster_sharing import shared_along
from wavedsl.ir.kernel.kernel_ir import Param, TensorBoxes
from wavedsl.ir.lower.bulk_atomics import plan_reduction
from wavedsl.ir.lower.bulk_store import BUFFER, BUFFERS, Outlet, lasting, panel_count, plan_outlet
from wavedsl.ir.lower.bulk_store import reserve as reserve_outlets
from wavedsl.ir.lower.lower_async import registers_wanted_behind
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.rings import BARRIER_BYTES, Ring, map_of, reserve
from wavedsl.ir.lower.short_tiles import array_rows
from wavedsl.ir.lower.tile_ends import may_straddle, tile_ends
from wavedsl.ir.staging.copy_steps import RingRows, RingTile
from wavedsl.ir.staging.gathered_rows import only_for_rows
from wavedsl.ir.staging.memory_depth import tile_bytes
from wavedsl.ir.staging.plan_reads import invariant_reads
from wavedsl.ir.staging.staging import plan_fetched, plan_matrix
from wavedsl.ir.staging.strategy import MAKING, MOST_STAGES, Strategy, most_registers

ENOUGH_SLOTS = 3
"""Slots of a ring with which copies run far enough ahead of large tiles."""
AHEAD_SLOTS = 6
"""Slots of a loop's rings beyond which one is worth less than a second slot of what a tile has once. By the replay,
attention of 2048 keys: 192 x 128 (three warpgroups) full 786670 clocks with 5 slots and one tile, 865415 with 4 and
two; 192 x 96 causal 532390 with 7 and one, 518371 with 6 and two."""
COVERED = 96 << 10
"""Bytes of tiles on their way that cover a copy's latency. By the replay, 4096 x 4096 x 1024 in tiles of 64 x 64 x 32,
8 KiB a slot: 188648 clocks with 8 slots, 150297 with 12, 150290 with 16; of 16 KiB, 12 slots are worth what 8 are."""
DEEPEST = 16
"""Slots beyond which no ring grows."""
FEW_TRIPS = 8
"""Trips of a tile below which a slot is worth more than buffers: copies for the next tile run on while results leave.
H200, 8192 x 8192 in tiles of 128 x 256 x 64, 3 slots and buffers for all panels against 4 slots: 75.6 and 67.3 us with
4 trips, 213.8 and 217.1 with 16, as good as equal with more."""
MAP_BYTES = 128
"""Size of a tensor map; it is aligned to half of that."""


def ring_buffers(low: Lowering) -> set[str]:
    """Names of the shared buffers that have synchronisation of their own."""
    return {low.room.buffers[n.id] for ring in low.reads.rings for n in ring.members} | {BUFFER}


def plan_rings(low: Lowering, strategy: Strategy) -> None:
    """Gather the reads in rings, as deep as shared memory allows and trips can use, and place them; with them the
    buffers of writes that leave through shared memory, unless they would leave rings a single slot."""
    rings: list[Ring] = []
    _gather(low, low.graph.region, rings)
    for ring in rings:
        _share(low, ring, strategy.shape)
    outlets: list[Outlet] = []
    refused: list[str] = []
    for n in low.graph.all_nodes():
        if n.op == "write" and not low.graph.argument(n.attrs["memory"]).hidden:
            found = plan_outlet(low, n)
            if isinstance(found, Outlet):
                outlets.append(found)
            else:
                refused.append(found)
    last = lasting(low, outlets)
    refused += [f"ordinary stores write to {o.boxes.array} afterwards" for o in outlets if o not in last]
    outlets = last
    bulk = low.choices.bulk_atomics
    for n in low.graph.all_nodes() if bulk is not False else ():
        if n.op.startswith("atomic_") and (bulk or n.id in low.inference.spread):
            reduced = plan_reduction(low, n)
            if isinstance(reduced, Outlet):
                outlets.append(reduced)
            else:
                refused.append(reduced)
    top = low.room.top
    most = _most_stages(low, rings)
    wanted = low.choices.stages or min(most, max((_trips(low, r, most) for r in rings), default=1))
    stages = _reserve_buffers(low, rings, outlets, wanted)
    short = stages < min(2, wanted) or _set_depth(low, rings, stages) > low.target.shared_bytes
    low.writes.outlets = {o.node.id: o for o in outlets}
    if outlets and short:
        _without_buffers(low, top)
        refused = ["their buffers would leave rings of tiles a single slot"]
        stages = _depth(low, rings, wanted)
    used = _two_tiles(low, rings, stages)
    if _late_slots(low, rings, stages, top):
        used = _set_depth(low, rings, stages)
        if outlets and not low.writes.outlets and not refused:
            refused = ["their buffers would leave no slot to tiles that two trips read"]
    outlets = list(low.writes.outlets.values())
    for ring in rings:
        for n in ring.members:
            planned = low.reads.staged[n.id] = _planned(low, n, ring.slots)
            if n.id not in low.reads.by_threads:
                planned.rows = array_rows(low, n, planned, ring.cluster.along(ring.axes(n)))
    strategy.stages = max((r.slots for r in rings), default=1)
    fixed = low.choices.stages is not None
    strategy.why["stages"] = "as asked for" if fixed else f"{used} of {low.target.shared_bytes} bytes of shared memory"
    strategy.outlets = len(outlets)
    if refused:
        strategy.why["results"] = "; ".join(dict.fromkeys(refused))
    reserve(low, rings)
    for ring in rings:
        threaded = [n for n in ring.members if n.id in low.reads.by_threads]
        ring.threaded = {n.id: partial(RingRows if n.id in low.reads.rows else RingTile, low, n) for n in threaded}
    low.placing |= only_for_rows(low, low.reads.rows)
    if low.room.top > low.target.shared_bytes:
        asked = f"Schedule(stages={stages}): " if fixed else ""
        raise ConstraintError(
            f"{asked}rings of {stages} slots take {low.room.top} bytes of shared memory, but a workgroup of "
            f"{low.target.name} has {low.target.shared_bytes}",
            low.graph.loc,
            "fewer stages or smaller tiles",
        )
    low.reads.rings = rings
    add_maps(low, rings, outlets)


def _reserve_buffers(low: Lowering, rings: Sequence[Ring], outlets: list[Outlet], wanted: int) -> int:
    """Places for results, and the slots that this leaves to rings. Where one ring feeds tile after tile, each panel has
    a buffer of its own if that leaves ENOUGH_SLOTS: products of the next tile then wait for one barrier, not for copies
    that read one panel after the other. Not for FEW_TRIPS, nor for what takes many registers: with nothing between
    panels, ptxas computes more of them at once, and spills."""
    top = low.room.top
    panels = sum(panel_count(low, outlet) for outlet in outlets)
    loops = [n for n in low.graph.region.nodes if n.op == "iterate"]
    light = len(rings) == len(loops) == 1 and not registers_wanted_behind(low, loops[0])
    trips = low.plans[str(loops[0].attrs["body"].dim)].trips if light else None
    if light and (trips is None or trips >= FEW_TRIPS) and low.matrix.strategy.order is not None and panels > BUFFERS:
        reserve_outlets(low, outlets, panels)
        stages = _depth(low, rings, wanted)
        if stages >= min(ENOUGH_SLOTS, wanted) and _set_depth(low, rings, stages) <= low.target.shared_bytes:
            return stages
        low.room.top = top
    reserve_outlets(low, outlets)
    return _depth(low, rings, wanted)


def _without_buffers(low: Lowering, top: int) -> None:
    """Results leave from registers, and shared memory that was reserved from `top` on is free."""
    low.room.top = top
    low.writes.outlets = {}
    del low.kernel.shared_names[BUFFER]


def _late_slots(low: Lowering, rings: Sequence[Ring], stages: int, top: int) -> bool:
    """Give rings of one or two slots that products of both stages of a loop read (Q of attention's gradients: scores of
    the next block, dK of this one) one more. They are given back a trip later than others: with as many slots the next
    copy begins when what it brings is wanted. Results have half of their buffers, or none (from `top` on), where that
    makes the room. By the replay, dK of 2048 keys, 64 queries per trip: of 256 elements 1274642 clocks with one slot
    each, 845372 with two of Q and one of dO; of 192 elements 1017788 with two each, 643642 with three of Q, without
    buffers."""
    late = [ring for ring in rings if ring.slots == stages and ring.region.dim is not None and _in_both(low, ring)]
    if stages > 2 or low.choices.stages is not None or not low.matrix.strategy.specialize or not late:
        return False
    outlets = list(low.writes.outlets.values())
    given = outlets[0].buffers if outlets else 0
    once = all(outlet.node in low.graph.region.nodes for outlet in outlets)
    for more, buffers in ((1, given), (1, given // 2), *([(1, 0)] if once else ()), (0, given)):
        for ring in late:
            ring.more = more
        if buffers and buffers != outlets[0].buffers:
            low.room.top = outlets[0].offset
            reserve_outlets(low, outlets, buffers)
        kept = low.room.top if buffers else top
        if (buffers or once) and _set_depth(low, rings, stages) - low.room.top + kept <= low.target.shared_bytes:
            if outlets and not buffers:
                _without_buffers(low, top)
            return more == 1
    return False


def _in_both(low: Lowering, ring: Ring) -> bool:
    """Whether products of a trip that need another product of it read a ring, and such that need none."""
    users, second = low.users(), second_products(ring.region)
    readers = [u for n in ring.members for u in users.get(n.id, ()) if u.op == "mma" and u.id in second]
    return len({second[u.id] for u in readers}) > 1


def second_products(body: Region) -> dict[int, bool]:
    """Nodes of a loop: whether they are made of a product of their trip, for which they wait. A product that another
    one's sums go on in waits for none."""
    found: dict[int, bool] = {}
    for n in body.nodes:
        inside = [(i, x) for i, x in enumerate(n.inputs) if x.id in found]
        found[n.id] = any(found[x.id] or (x.op == "mma" and (n.op, i) != ("mma", 2)) for i, x in inside)
    return found


def _two_tiles(low: Lowering, rings: Sequence[Ring], stages: int) -> int:
    """Give rings their slots, those of regions that are no loops a second one where the copying warpgroup goes on to
    the next of several tiles, and loops keep all of theirs or AHEAD_SLOTS: what a tile has once then comes while the
    tile before is computed. The bytes of shared memory that takes, all told."""
    outside = [ring for ring in rings if ring.region.dim is None]
    if low.matrix.strategy.specialize and low.matrix.strategy.order is not None and len(outside) < len(rings):
        for ring in outside:
            ring.tiles = 2
        least = stages if low.choices.stages is not None else min(stages, AHEAD_SLOTS)
        for fewer in range(stages, least - 1, -1):
            used = _set_depth(low, rings, fewer)
            if used <= low.target.shared_bytes:
                return used
        for ring in outside:
            ring.tiles = 1
    return _set_depth(low, rings, stages)


def _trips(low: Lowering, ring: Ring, unknown: int) -> int:
    """How often a ring is used: once a tile outside loops, `unknown` where a run-time extent decides, or where a
    copying warpgroup goes on to the next of several tiles."""
    if ring.region.dim is None:
        return ring.tiles
    if low.matrix.strategy.specialize and low.matrix.strategy.order is not None:
        return unknown
    return low.plans[str(ring.region.dim)].trips or unknown


def _most_stages(low: Lowering, rings: Sequence[Ring]) -> int:
    """Slots beyond which rings do not grow: more of small tiles where one copying warpgroup brings tile after tile."""
    strategy = low.matrix.strategy
    in_loops = sum(tile_bytes(low, n) for ring in rings if ring.region.dim is not None for n in ring.members)
    if not (strategy.specialize and strategy.order is not None and in_loops):
        return MOST_STAGES
    return max(MOST_STAGES, min(DEEPEST, COVERED // in_loops))


def _set_depth(low: Lowering, rings: Sequence[Ring], stages: int) -> int:
    """Give rings that many slots, no more than they have uses; the bytes of shared memory that takes, all told."""
    for ring in rings:
        most = 1 if ring.single else stages + ring.more
        ring.slots = max(1, min(most, _trips(low, ring, most)))
    return low.room.top + sum(_bytes(low, ring) for ring in rings)


def _depth(low: Lowering, rings: Sequence[Ring], wanted: int) -> int:
    """The most slots, up to `wanted`, that fit; exactly that many where the user says so. Rings of a loop with loops in
    it (a head's keys, beside its tiles of queries) have one where others would have no second one else."""
    if low.choices.stages is not None:
        return wanted
    around = [ring for ring in rings if ring.region.dim is not None and _loops_inside(ring.region)]
    for single in (False, True) if around else (False,):
        for ring in around:
            ring.single = single
        for n in range(wanted, 1, -1):
            if _set_depth(low, rings, n) <= low.target.shared_bytes:
                return n if low.matrix.strategy.specialize else _beside(low, rings, n)
    return 1


def _beside(low: Lowering, rings: Sequence[Ring], most: int) -> int:
    """The most slots with which a unit holds as many workgroups as with ENOUGH_SLOTS: those of waves that copy for
    themselves hide one another's waits. By the replay, 4096 x 4096 x 1024 in tiles of 64 x 64 x 64: 163804 clocks with
    two slots, 157261 with three, 202881 with all of shared memory."""
    waves = low.partition.waves
    held, threads = most_registers(low) + MAKING, waves * low.target.wave_size

    def groups(slots: int) -> int:
        return low.target.resident_waves(held, _set_depth(low, rings, slots), threads) // waves

    enough = min(most, ENOUGH_SLOTS)
    return next(n for n in range(most, enough - 1, -1) if groups(n) == groups(enough))


def _loops_inside(region: Region) -> bool:
    return any(n.op == "iterate" for n in region.nodes)


def _share(low: Lowering, ring: Ring, cluster: ClusterShape) -> None:
    """Which members are the same along which axes of a cluster."""
    ring.cluster = cluster
    if any(may_straddle(low, n) for n in ring.members):
        return  # its filler waits for a whole fill at times, and others would not
    for n in ring.members:
        if n.id in low.reads.by_threads:
            continue
        staged = _planned(low, n, 1)
        same = shared_along(low.graph, low.partition, cluster, n)
        # Where a tile is the same along both axes but cannot be cut so often, along the one with more workgroups.
        ways = [same, *sorted(((axis,) for axis in same), key=lambda way: -cluster.along(way))]
        ring.shared[n.id] = next((way for way in ways if way and _divides(staged, cluster.along(way))), ALONE)


def _divides(staged: Staged, parts: int) -> bool:
    """Whether a tile can be cut in so many parts, each of boxes of its own."""
    tile = staged.tile
    assert tile is not None
    rows = staged.extents.get(tile.other, 1)  # a row alone is not cut
    if tile.block and rows % (tile.block * parts) and (rows, parts) != (tile.block, 2):
        return False
    return rows % (8 * parts) == 0


def _planned(low: Lowering, n: Node, slots: int) -> Any:
    left = low.target.shared_bytes - low.room.top
    if n.id in low.reads.fetched:
        return plan_fetched(n, *low.fetched_view(n), low.target, slots, left)
    info = low.view_info(n)
    use = low.reads.matrix_uses[n.id]
    alone = n.id in low.reads.by_threads  # of one warpgroup
    threads = low.target.wave_size if alone else 0
    return plan_matrix(
        n, info, low.layout(n), use, low.partition, low.target, slots, left, None if alone else False, threads
    )


def _bytes(low: Lowering, ring: Ring) -> int:
    """Shared memory that a ring takes at most: tiles rounded up to their alignment, two barriers per slot."""
    tiles = (-(-_planned(low, n, 1).place.bytes * ring.slots // 1024) * 1024 for n in ring.members)
    return sum(tiles) + 2 * BARRIER_BYTES * ring.slots


def _gather(low: Lowering, region: Region, rings: list[Ring]) -> None:
    """Rings of a region's own reads, one per set of products that use them; the same of loops and branches inside."""
    users = low.users()
    groups: dict[Any, Ring] = {}
    outside = invariant_reads(low, region) if region.dim is not None else []

    def join(n: Node, where: Region) -> None:
        key = (id(where), tuple(sorted(u.id for u in users[n.id])))
        ring = groups.get(key)
        if ring is None:
            ring = groups[key] = Ring(str(len(rings)), where, [], 1, low.partition.waves)
            rings.append(ring)
        ring.members.append(n)

    for n in region.nodes:
        if n.op == "iterate":
            body = n.attrs["body"]
            for x in invariant_reads(low, body):
                if x.id in low.reads.matrix_uses or x.id in low.reads.fetched:
                    join(x, region)
            _gather(low, body, rings)
        elif n.op == "when":
            _gather(low, n.attrs["body"], rings)
        elif (n.id in low.reads.matrix_uses or n.id in low.reads.fetched) and n not in outside:
            join(n, region)


def add_maps(low: Lowering, rings: Sequence[Ring], outlets: Sequence[Outlet]) -> None:
    """Tensor maps as parameters: in place of an array's pointer where nothing else needs it, else hidden ones."""
    params = low.kernel.params
    mapped = [(ring, n) for ring in rings for n in ring.members if n.id not in low.reads.by_threads]
    ringed = {n.id for _, n in mapped} | {o.node.id for o in outlets}
    pointed = {n.attrs["memory"] for n in region_nodes(low.graph.region) if "memory" in n.attrs and n.id not in ringed}
    known: dict[TensorBoxes, int] = {}

    def take(boxes: TensorBoxes) -> int:
        """The parameter that holds a map."""
        at = known.get(boxes)
        if at is None:
            own = low.arrays[boxes.array].param
            if boxes.array not in pointed and params[own].map is None:
                at = own
                params[at] = replace(params[own], kind="tensormap", map=boxes)
            else:
                at = len(params)
                old = params[own]
                name, source = f"_map_{boxes.array}_{at}", f"tensormap {boxes.array}"
                params.append(Param(name, "tensormap", old.dtype, 0, MAP_BYTES, source, old.access, boxes))
            known[boxes] = at
        return at

    for ring, n in mapped:
        parts = ring.cluster.along(ring.axes(n))
        ended = next((end.axis for end in tile_ends(low, n)), None)
        ring.maps[n.id] = take(map_of(low.reads.staged[n.id], parts, ended))
    for outlet in outlets:
        outlet.param = take(outlet.boxes)
    offset = 0
    for i, p in enumerate(params):
        size = MAP_BYTES if p.map is not None else p.size
        align = MAP_BYTES // 2 if p.map is not None else p.size
        offset = -(-offset // align) * align
        params[i] = replace(p, offset=offset, size=size)
        offset += size
