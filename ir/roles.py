"""Kernels whose operands come by bulk copies: rings, tensor maps, and who does what.

In: a `Lowering` and its `Strategy`. The reads that matrix instructions take from shared memory are gathered in rings.
With a copying warpgroup the kernel's body is written twice: one thread of that warpgroup walks the regions and fills
the rings, all other waves walk them as if the rings were full. Without it one thread of the first wave fills a slot
as soon as it has been given back (`ring_loops`).

Rings are filled in the order in which the reads stand, but for what is given back later than others: then those come
first whose slots are free (`rings_behind`, `rings_of_second_products`).

Invariants: both walks meet each ring as often, so slots and parities agree. No slot that the copying thread waits for
is given back only behind a read of what that thread fills later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from wavedsl.ir.access import scaled
from wavedsl.ir.builder import FIRST_WAVE_BARRIER
from wavedsl.ir.bulk_atomics import plan_reduction
from wavedsl.ir.bulk_store import BUFFER, BUFFERS, Outlet, finish, lasting, panel_count, plan_outlet
from wavedsl.ir.bulk_store import reserve as reserve_outlets
from wavedsl.ir.cluster_shape import ALONE, ClusterShape
from wavedsl.ir.cluster_sharing import shared_along
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.graph import Node, Region, loop_bounds, region_nodes
from wavedsl.ir.kernel_ir import Param, TensorBoxes, Value
from wavedsl.ir.loop_range import loop_range
from wavedsl.ir.lower_async import registers_wanted_behind
from wavedsl.ir.lower_reads import direct_steps
from wavedsl.ir.lower_values import emit_node
from wavedsl.ir.lowering import Lowering
from wavedsl.ir.open_regions import Loop
from wavedsl.ir.plan_reads import invariant_reads
from wavedsl.ir.rings import Ring, fill, initialise, map_of, reserve
from wavedsl.ir.staged import Staged
from wavedsl.ir.staging import plan_fetched, plan_matrix
from wavedsl.ir.steps import Context, Env, Key
from wavedsl.ir.strategy import MOST_STAGES, Strategy
from wavedsl.ir.tile_ends import may_straddle, tile_ends
from wavedsl.ir.tile_order import count_tiles, tile_numbers
from wavedsl.ir.uneven_tiles import dealt
from wavedsl.ir.views import placement
from wavedsl.ir.workgroup_tiles import set_coordinates, tile_counts

ENOUGH_SLOTS = 3
"""Slots of a ring with which copies run far enough ahead of large tiles."""
AHEAD_SLOTS = 6
"""Slots of a loop's rings beyond which one is worth less than a second slot of what a tile has once. By the replay,
attention of 2048 keys: 192 x 128 (three warpgroups) full 786670 clocks with 5 slots and one tile, 865415 with 4 and
two; 192 x 96 causal 532390 with 7 and one, 518371 with 6 and two."""
FEW_TRIPS = 8
"""Trips of a tile below which a slot is worth more than buffers: copies for the next tile run on while results leave.
H200, 8192 x 8192 in tiles of 128 x 256 x 64, 3 slots and buffers for all panels against 4 slots: 75.6 and 67.3 us with
4 trips, 213.8 and 217.1 with 16, as good as equal with more."""
MAP_BYTES = 128
"""Size of a tensor map; it is aligned to half of that."""


def run(low: Lowering, strategy: Strategy, compute: Callable[[], None]) -> None:
    """Emit the kernel: barriers, then the roles. `compute` emits what is not copying."""
    b, waves = low.b, low.partition.waves * strategy.teams
    rings = low.rings
    initialise(low, rings)
    begin(low)
    if not strategy.specialize:
        each_tile(low, rings, compute)
        finish(low)
        return
    low.role = "copying warpgroup"
    with b.if_(b.cmp("eq", b.wave(), waves)) as role:
        if strategy.registers[0]:
            b.registers(strategy.registers[0], more=False)
        with b.if_(b.elect()) as one:
            b.one_thread = True
            each_tile(low, rings, lambda: produce(low, low.graph.region, Env()), copying=True)
            release(low)
            b.one_thread = False
            one.yield_()
        role.yield_()
    low.role = "computing warpgroups"
    for ring in rings:
        ring.slot = ring.parity = 0
    with role.orelse():
        if strategy.registers[1]:
            b.registers(strategy.registers[1], more=True)
        if strategy.teams == 1:
            b.role_barrier = {"id": 1, "threads": waves * low.target.wave_size}
        else:
            b.role_barrier = {"id": FIRST_WAVE_BARRIER, "threads": low.target.wave_size, "per_wave": True}
        each_tile(low, rings, compute, strategy.teams)
        finish(low)
        b.role_barrier = {}
        role.yield_()
    if low.kernel.cluster > 1:
        b.cluster_barrier()  # shared memory that others still write to or arrive in must live until they are done


def begin(low: Lowering) -> None:
    """Where the launch may begin early, wait for the one in front: nothing before this touches global memory."""
    if low.choices.dependent:
        low.b.grid_wait()
        low.note("wait for the launch in front")


def release(low: Lowering) -> None:
    """Where launches may overlap, let the next one begin: what follows is computing and storing results."""
    if low.choices.dependent:
        low.b.grid_release()
        low.note("let the next launch begin")


def release_behind(low: Lowering, following: Value, numbers: Any) -> None:
    """Let the next launch begin if this is the workgroup's last tile."""
    with low.b.if_(low.b.cmp("sge", following, numbers)) as branch:
        release(low)
        branch.yield_()


def each_tile(
    low: Lowering, rings: Sequence[Ring], body: Callable[[], None], teams: int = 1, copying: bool = False
) -> None:
    """`body` for the workgroup's output tile, or for each of them in turn, or for each that is this team's: a team goes
    past the slots that the others use. `copying`: what is emitted fills rings and shares no other buffer."""
    b, order = low.b, low.notes.order
    if order is None:
        if not low.strategy.specialize and low.choices.dependent:
            low.behind_loads = partial(release, low)
        body()
        return
    counts = tile_counts(low)
    moving = [*rings, *low.fillers(rings)]
    # The launch may hold fewer workgroups than the order foresees: fewer compute units.
    first: Any = b.udiv(b.wgid(0), order.cluster.count)
    place = order.cluster.place(b)
    numbers = count_tiles(b, order, counts)
    step = b.udiv(b.wgcount(0), order.cluster.count)
    if step.lo == 0:
        step = b.max_s(step, 1)
    earliest, single = first, step
    if teams > 1:
        team = b.wave()
        first, step = b.add(first, b.mul(step, team)), b.mul(step, teams)
        for ring in rings:
            ring.skip(low, scaled(b, uses(low, ring), team))
    with low.noted_loop("tiles"), b.for_(first, numbers, step, ring_states(moving), label="tile") as loop:
        set_states(moving, loop.carried)
        number = loop.iv
        if order.uneven is not None:
            number = dealt(b, number, earliest, single, numbers, order.uneven.back)
        set_coordinates(low, tile_numbers(b, order, number, counts, place))
        if teams > 1:
            take_turns(low, loop.iv, earliest, b.add(loop.iv, single), numbers)
        if not low.strategy.specialize and low.choices.dependent:
            low.behind_loads = partial(release_behind, low, b.add(loop.iv, single), numbers)
        body()
        low.give_turn = None
        others = (name for name in low.kernel.shared_names if not name.startswith("barriers"))
        if not copying and any(name not in ring_buffers(low) for name in others):
            b.barrier()  # the next tile writes to buffers that others may still read
        for ring in rings if teams > 1 else ():
            ring.skip(low, scaled(b, uses(low, ring), teams - 1))
        loop.yield_(ring_states(moving))


def take_turns(low: Lowering, tile: Value, earliest: Any, following: Value, numbers: Any) -> None:
    """Teams use rings one tile at a time: parity tells a slot's phase from the one before only. The first tile of a
    workgroup waits for nobody; the turn goes to the next tile's team, if there is one, when the rings are read."""
    b = low.b
    with b.if_(b.cmp("ne", tile, earliest)) as branch:
        b.turn_take()
        branch.yield_()
    low.note("take the turn")

    def give() -> None:
        with b.if_(b.cmp("slt", following, numbers)) as branch:
            b.turn_give()
            branch.yield_()
        low.note("give the turn to the other")

    low.give_turn = give


def uses(low: Lowering, ring: Ring) -> Any:
    """Slots of a ring that one output tile uses."""
    around = [
        n.attrs["body"].dim
        for n in low.graph.all_nodes()
        if n.op == "iterate" and any(r is ring.region for r in (n.attrs["body"], *_inside(n.attrs["body"])))
    ]
    count: Any = 1
    for d in around:
        count = scaled(low.b, count, low.trip_count(str(d)))
    return count


def _inside(region: Region) -> list[Region]:
    return [n.attrs["body"] for n in region_nodes(region) if n.op == "iterate"]


def ring_buffers(low: Lowering) -> set[str]:
    """Names of the shared buffers that have synchronisation of their own."""
    return {low.buffer_names[n.id] for ring in low.rings for n in ring.members} | {BUFFER}


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
    top = low.shared_top
    wanted = low.choices.stages or min(MOST_STAGES, max((_trips(low, r, MOST_STAGES) for r in rings), default=1))
    stages = _reserve_buffers(low, rings, outlets, wanted)
    short = stages < min(2, wanted) or _set_depth(low, rings, stages) > low.target.shared_bytes
    if outlets and short:
        low.shared_top, outlets = top, []
        refused = ["their buffers would leave rings of tiles a single slot"]
        del low.kernel.shared_names[BUFFER]
        stages = _depth(low, rings, wanted)
    low.outlets = {o.node.id: o for o in outlets}
    used = _two_tiles(low, rings, stages)
    if _third_slots(low, rings, stages):
        used = _set_depth(low, rings, stages)
    for ring in rings:
        for n in ring.members:
            low.staged[n.id] = _planned(low, n, ring.slots)
    strategy.stages = max((r.slots for r in rings), default=1)
    fixed = low.choices.stages is not None
    strategy.why["stages"] = "as asked for" if fixed else f"{used} of {low.target.shared_bytes} bytes of shared memory"
    strategy.outlets = len(outlets)
    if refused:
        strategy.why["results"] = "; ".join(dict.fromkeys(refused))
    reserve(low, rings)
    if low.shared_top > low.target.shared_bytes:
        asked = f"Schedule(stages={stages}): " if fixed else ""
        raise ConstraintError(
            f"{asked}rings of {stages} slots take {low.shared_top} bytes of shared memory, but a workgroup of "
            f"{low.target.name} has {low.target.shared_bytes}",
            low.graph.loc,
            "fewer stages or smaller tiles",
        )
    low.rings = rings
    add_maps(low, rings, outlets)


def _reserve_buffers(low: Lowering, rings: Sequence[Ring], outlets: list[Outlet], wanted: int) -> int:
    """Places for results, and the slots that this leaves to rings. Where one ring feeds tile after tile, each panel has
    a buffer of its own if that leaves ENOUGH_SLOTS: products of the next tile then wait for one barrier, not for copies
    that read one panel after the other. Not for FEW_TRIPS, nor for what takes many registers: with nothing between
    panels, ptxas computes more of them at once, and spills."""
    top = low.shared_top
    panels = sum(panel_count(low, outlet) for outlet in outlets)
    loops = [n for n in low.graph.region.nodes if n.op == "iterate"]
    light = len(rings) == len(loops) == 1 and not registers_wanted_behind(low, loops[0])
    trips = low.plans[str(loops[0].attrs["body"].dim)].trips if light else None
    if light and (trips is None or trips >= FEW_TRIPS) and low.strategy.order is not None and panels > BUFFERS:
        reserve_outlets(low, outlets, panels)
        stages = _depth(low, rings, wanted)
        if stages >= min(ENOUGH_SLOTS, wanted) and _set_depth(low, rings, stages) <= low.target.shared_bytes:
            return stages
        low.shared_top = top
    reserve_outlets(low, outlets)
    return _depth(low, rings, wanted)


def _third_slots(low: Lowering, rings: Sequence[Ring], stages: int) -> bool:
    """Give rings of two slots that products of both stages of a loop read (Q of attention's gradients: scores of the
    next block, dK of this one) a third one. They are given back a trip later than others: with two slots the next copy
    begins when what it brings is wanted. Results have half of their buffers where that makes the room."""
    late = [ring for ring in rings if ring.slots == 2 and ring.region.dim is not None and _in_both(low, ring)]
    if stages != 2 or low.choices.stages is not None or not low.strategy.specialize or not late:
        return False
    outlets = list(low.outlets.values())
    given = outlets[0].buffers if outlets else 0
    for more, buffers in ((1, given), (1, given // 2), (0, given)):
        for ring in late:
            ring.more = more
        if buffers and buffers != outlets[0].buffers:
            low.shared_top = outlets[0].offset
            reserve_outlets(low, outlets, buffers)
        if (buffers or not given) and _set_depth(low, rings, stages) <= low.target.shared_bytes:
            return more == 1
    return False


def _in_both(low: Lowering, ring: Ring) -> bool:
    """Whether products of a trip that need another product of it read a ring, and such that need none."""
    users, second = low.users(), _second(ring.region)
    readers = [u for n in ring.members for u in users.get(n.id, ()) if u.op == "mma" and u.id in second]
    return len({second[u.id] for u in readers}) > 1


def _second(body: Region) -> dict[int, bool]:
    """Nodes of a loop: whether they are made of a product of their trip."""
    found: dict[int, bool] = {}
    for n in body.nodes:
        found[n.id] = any(x.op == "mma" or found[x.id] for x in n.inputs if x.id in found)
    return found


def _two_tiles(low: Lowering, rings: Sequence[Ring], stages: int) -> int:
    """Give rings their slots, those of regions that are no loops a second one where the copying warpgroup goes on to
    the next of several tiles, and loops keep all of theirs or AHEAD_SLOTS: what a tile has once then comes while the
    tile before is computed. The bytes of shared memory that takes, all told."""
    outside = [ring for ring in rings if ring.region.dim is None]
    if low.strategy.specialize and low.strategy.order is not None and len(outside) < len(rings):
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
    if low.strategy.specialize and low.strategy.order is not None:
        return unknown
    return low.plans[str(ring.region.dim)].trips or unknown


def _set_depth(low: Lowering, rings: Sequence[Ring], stages: int) -> int:
    """Give rings that many slots, no more than they have uses; the bytes of shared memory that takes, all told."""
    for ring in rings:
        ring.slots = max(1, min(stages + ring.more, _trips(low, ring, stages + ring.more)))
    return low.shared_top + sum(_bytes(low, ring) for ring in rings)


def _depth(low: Lowering, rings: Sequence[Ring], wanted: int) -> int:
    """The most slots, up to `wanted`, that fit; exactly that many where the user says so."""
    if low.choices.stages is not None:
        return wanted
    return next((n for n in range(wanted, 1, -1) if _set_depth(low, rings, n) <= low.target.shared_bytes), 1)


def _share(low: Lowering, ring: Ring, cluster: ClusterShape) -> None:
    """Which members are the same along which axes of a cluster."""
    ring.cluster = cluster
    if any(may_straddle(low, n) for n in ring.members):
        return  # its filler waits for a whole fill at times, and others would not
    for n in ring.members:
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
    left = low.target.shared_bytes - low.shared_top
    if n.id in low.fetched:
        return plan_fetched(n, *low.fetched_view(n), low.target, slots, left)
    info = low.view_info(n)
    return plan_matrix(n, info, low.layout(n), low.matrix_uses[n.id], low.partition, low.target, slots, left, False)


def _bytes(low: Lowering, ring: Ring) -> int:
    """Shared memory that a ring takes, tiles rounded up to their alignment."""
    tiles = (-(-_planned(low, n, 1).place.bytes * ring.slots // 1024) * 1024 for n in ring.members)
    return sum(tiles) + 16 * ring.slots


def _gather(low: Lowering, region: Region, rings: list[Ring]) -> None:
    """Rings of a region's own reads, one per set of products that use them; of the same in loops inside."""
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
                if x.id in low.matrix_uses or x.id in low.fetched:
                    join(x, region)
            _gather(low, body, rings)
        elif (n.id in low.matrix_uses or n.id in low.fetched) and n not in outside:
            join(n, region)


def add_maps(low: Lowering, rings: Sequence[Ring], outlets: Sequence[Outlet]) -> None:
    """Tensor maps as parameters: in place of an array's pointer where nothing else needs it, else hidden ones."""
    params = low.kernel.params
    ringed = {n.id for ring in rings for n in ring.members} | {o.node.id for o in outlets}
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

    for ring in rings:
        for n in ring.members:
            parts = ring.cluster.along(ring.axes(n))
            ended = next((end.axis for end in tile_ends(low, n)), None)
            ring.maps[n.id] = take(map_of(low.staged[n.id], parts, ended))
    for outlet in outlets:
        outlet.param = take(outlet.boxes)
    offset = 0
    for i, p in enumerate(params):
        size = MAP_BYTES if p.map is not None else p.size
        align = MAP_BYTES // 2 if p.map is not None else p.size
        offset = -(-offset // align) * align
        params[i] = replace(p, offset=offset, size=size)
        offset += size


def walked(low: Lowering) -> set[int]:
    """Nodes that a thread which only copies computes as well: those of which bounds of its loops and coordinates of its
    tiles are made."""
    work: list[Node] = []
    copied = {n.id for ring in low.rings for n in ring.members}
    for n in low.graph.all_nodes():
        if n.op == "iterate" and rings_inside(low, n.attrs["body"]):
            work += [x for x in loop_bounds(n) if x is not None]
        elif n.id in copied:
            found_place = placement(low.graph, n)
            work += found_place.numbers() if found_place is not None else []
    found: set[int] = set()
    while work:
        x = work.pop()
        if x.id not in found:
            found.add(x.id)
            work += x.inputs
    return found


def produce(
    low: Lowering, region: Region, env: Env, iteration: Any = 0, behind: Callable[[], None] | None = None,
    but: Sequence[Ring] = (),
) -> None:  # fmt: skip
    """Fill the rings of a region's reads in their order, for one of its trips, and compute what that needs. `behind`:
    something to emit behind the first ring; `but`: rings to leave out."""
    later = {n.id: rings_behind(low, region, n) for n in region.nodes if n.op == "iterate"}
    filled: set[str] = {ring.name for rings in (*later.values(), but) for ring in rings}
    needed = walked(low)

    def bring(n: Node, where: Any) -> None:
        nonlocal behind
        ring = low.ring_of.get(n.id)
        if ring is not None and ring.region is region and ring.name not in filled:
            filled.add(ring.name)
            with low.b.loc(n.loc):
                fill(low, ring, where, env)
                ring.advance(low)
                if behind is not None:
                    behind()
                    behind = None

    for n in region.nodes:
        if n.id in needed:
            with low.b.loc(n.loc):
                _compute(low, n, Context(env, iteration, None))
        if n.op == "read":
            bring(n, iteration)
        if n.op != "iterate":
            continue
        body: Region = n.attrs["body"]
        inner = rings_inside(low, body)
        for x in body.nodes:
            bring(x, iteration)
        if inner:
            with low.b.loc(n.loc):
                _produce_loop(low, n, inner, env, iteration, later[n.id])


def rings_behind(low: Lowering, region: Region, n: Node) -> list[Ring]:
    """Rings of a region, each with one slot that the tile before may still have, which the loop `n` alone reads: they
    are filled behind the first ring of its first trip, whose slots are free by then."""
    body: Region = n.attrs["body"]
    if low.notes.order is None or not low.strategy.specialize or region.dim is not None:
        return []
    if low.plans[str(body.dim)].trips == 1 or not any(low.ring_of.get(x.id) in _own(low, body) for x in body.nodes):
        return []
    inside, users = {x.id for x in region_nodes(body)}, low.users()
    alone = [ring for ring in _own(low, region) if ring.slots == 1]
    return [ring for ring in alone if all(u.id in inside for x in ring.members for u in users.get(x.id, ()))]


def _own(low: Lowering, region: Region) -> list[Ring]:
    return [ring for ring in low.rings if ring.region is region]


def _compute(low: Lowering, n: Node, context: Context) -> None:
    """A node that coordinates or bounds are made of, in the thread that copies."""
    if n.op != "read":
        emit_node(low, n, context)
        return
    for step in direct_steps(low, n):
        step.emit(context)


def rings_inside(low: Lowering, region: Region) -> list[Ring]:
    """Rings that a region uses per trip, those of the loops inside it included."""
    regions = [region, *_inside(region)]
    return [ring for ring in low.rings if any(ring.region is r for r in regions)]


def _produce_loop(
    low: Lowering, n: Node, inner: Sequence[Ring], env: Env, iteration: Any, later: Sequence[Ring]
) -> None:
    """Fill the rings of a loop, and `later` ones of the region around it behind the first of these."""
    b, body = low.b, n.attrs["body"]
    first, trips = loop_range(low, n, str(body.dim), env)
    outer = low.loop_dim, low.base

    def fill_later() -> None:
        inside, (low.loop_dim, low.base) = (low.loop_dim, low.base), outer
        for ring in later:
            fill(low, ring, iteration, env)
        low.loop_dim, low.base = inside

    def fill_later_if(exists: Value) -> None:
        if later:
            with b.if_(exists) as branch:
                fill_later()
                branch.yield_()

    if isinstance(trips, int) and trips <= 1:
        for ring in later:
            fill(low, ring, iteration, env)
            ring.advance(low)
        later = ()
    with entered(low, body, iteration, first):
        if isinstance(trips, int) and trips <= 1:
            if trips:
                produce(low, body, env, 0)
            return
        slow = rings_of_second_products(low, body)
        if slow:
            first_ones = [ring for ring in inner if ring not in slow]

            def staggered() -> list[Value]:
                produce(low, body, env, 0, fill_later, slow)
                last = trips - 1 if isinstance(trips, int) else b.sub(trips, 1)
                with _copies(low, body, last, inner) as loop:
                    produce(low, body, env, b.add(loop.iv, 1), None, slow)
                    produce(low, body, env, loop.iv, None, first_ones)
                produce(low, body, env, last, None, first_ones)
                return []

            unless_empty(low, body, trips, (), staggered)
        else:
            with _copies(low, body, trips, inner) as loop:
                produce(low, body, env, loop.iv, lambda: fill_later_if(b.cmp("eq", loop.iv, 0)))
    if not isinstance(trips, int):
        fill_later_if(b.cmp("sle", trips, 0))
    for ring in later:
        ring.advance(low)


@contextmanager
def _copies(low: Lowering, body: Region, trips: Any, rings: Sequence[Ring]) -> Iterator[Loop]:
    """A loop of the thread that copies, which carries where it stands in rings."""
    least = 1 if isinstance(trips, int) else 0
    states, label = ring_states(rings), f"copy_{body.dim}"
    with low.noted_loop(f"{body.dim}"), low.b.for_(0, trips, 1, states, label=label, min_trips=least) as loop:
        set_states(rings, loop.carried)
        yield loop
        loop.yield_(ring_states(rings))
    set_states(rings, loop.results)


def rings_of_second_products(low: Lowering, body: Region) -> list[Ring]:
    """Rings of a loop that only products read which need another product of their trip, where slots are few: they are
    given back later than the others, which are therefore filled a trip ahead (K of the next block before V of this
    one). The others must be given back in their own trip whatever of these is there: only lanes, or products whose
    results the trip uses, may read them."""
    rings = _own(low, body)
    if not rings or min(ring.slots for ring in rings) < 2 or min(ring.slots for ring in rings) > ENOUGH_SLOTS:
        return []
    needed = walked(low)
    if any(n.op == "iterate" or n.id in needed for n in body.nodes):
        return []
    inside, users, made_of = {n.id for n in body.nodes}, low.users(), _second(body)

    def readers(ring: Ring) -> list[Node]:
        return [u for n in ring.members for u in users.get(n.id, ())]

    def used(n: Node) -> bool:
        return n.op != "mma" or any(u.id in inside for u in users.get(n.id, ()))

    second = [ring for ring in rings if all(u.op == "mma" and made_of.get(u.id, False) for u in readers(ring))]
    others = [ring for ring in rings if ring not in second]
    return second if others and all(used(u) for ring in others for u in readers(ring)) else []


class entered:
    """Inside, positions are those of a loop over `body`'s dimension, from tile `first` on."""

    def __init__(self, low: Lowering, body: Region, iteration: Any, first: Any):
        self.low, self.body, self.iteration, self.first = low, body, iteration, first

    def __enter__(self) -> None:
        low = self.low
        self.dim, self.base = low.loop_dim, dict(low.base)
        if low.loop_dim is not None:
            low.base[low.loop_dim] = low.trip_base(low.loop_dim, self.iteration)
        low.loop_dim = str(self.body.dim)
        low.first[low.loop_dim] = scaled(low.b, self.first, low.plans[low.loop_dim].tile)

    def __exit__(self, *error: Any) -> None:
        del self.low.first[str(self.body.dim)]
        self.low.loop_dim, self.low.base = self.dim, self.base


def ring_states(rings: Sequence[Ring]) -> list[Any]:
    """Slots and parities, for a loop to carry."""
    return [x for ring in rings for x in ((ring.slot, ring.parity) if ring.slots > 1 else (ring.parity,))]


def set_states(rings: Sequence[Ring], values: Sequence[Value]) -> None:
    """What `ring_states` gave, as a loop hands it on."""
    rest = iter(values)
    for ring in rings:
        if ring.slots > 1:
            ring.slot = next(rest)
        ring.parity = next(rest)
        ring.waited = False


def unless_empty(
    low: Lowering, region: Region, trips: Any, carried: Sequence[tuple[Key, Value]], play: Callable[[], list[Value]],
    otherwise: Callable[[], Any] | None = None,
) -> list[Value]:  # fmt: skip
    """What `play` leaves in a loop's carried values, for loops that must have a trip: one that may have none is skipped
    whole, its rings stay where they are, and `otherwise` is done."""
    if isinstance(trips, int):
        return play()
    b, rings = low.b, rings_inside(low, region)
    before = ring_states(rings)
    with b.if_(b.cmp("sgt", trips, 0)) as branch:
        results = play()
        branch.yield_([*results, *(b.i32(x) if isinstance(x, int) else x for x in ring_states(rings))])
    with branch.orelse():
        if otherwise is not None:
            otherwise()
        branch.yield_([*(v for _, v in carried), *before])
    set_states(rings, branch.results[len(carried) :])
    return list(branch.results[: len(carried)])
