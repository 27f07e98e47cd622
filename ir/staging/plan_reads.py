"""Which reads of a region go through shared memory: with how many stages, copied how, and where each tile lies there.

In: the reads of a region. Out: their `Staged` plans, offsets and ring depths, filed in the `Lowering`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from wavedsl.ir.addresses.copy_ways import Trip
from wavedsl.ir.addresses.staged import Staged, copy_vector, tile_extents
from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Node, Region, factors, loop_bounds, region_nodes
from wavedsl.ir.dataflow.many_products import brings_many
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import is_settled, is_tile, static_number, view_dims
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.inference.matrix_count import instructions
from wavedsl.ir.inference.read_apart import same_reads
from wavedsl.ir.inference.retile import only_products
from wavedsl.ir.kernel.unit_clocks import UNKNOWN
from wavedsl.ir.layouts.matrix_tile import ALIGN
from wavedsl.ir.layouts.shared_search import PlaceChoice
from wavedsl.ir.lower.lower_mapped import mapped_groups
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.staging.gathered_rows import GatheredRows, gathered_rows, only_for_rows
from wavedsl.ir.staging.memory_depth import grid, memory_depth, tile_bytes
from wavedsl.ir.staging.staging import memory_order, plan_matrix, plan_staged, taken_too
from wavedsl.ir.symbols import AddressSpace, dim_name
from wavedsl.ir.target import LoadAtom


def plan_staged_reads(low: Lowering, region: Region, nodes: Sequence[Node], once: bool = False) -> None:
    """Decide which reads among `nodes` of a region go through shared memory, their ring depth and their place. `once`:
    they are carried out before the region's loop."""
    loop = region.dim is not None and not once
    reads = [n for n in nodes if n.op == "read" and n.id not in low.reads.ring_of and wants_shared(low, n, once)]
    if not reads:
        return
    for n in reads:
        if not is_tile(low.graph, n):
            low.reads.rows[n.id] = gathered_rows(low, n)
    budget = low.target.shared_bytes - low.room.top
    if in_taps(low, region) and not once:
        _plan_each(low, region, reads, budget)
        return
    trips = low.plans[str(region.dim)].trips if loop else 1
    weight = trips or UNKNOWN
    trips = known_trips(low, region) if loop else 1
    plans, depth = _plans(low, region, reads, trips, budget, weight, loop)
    if any(_has_gaps(s) for s in plans):
        low.reads.dense = True
        dense = _plans(low, region, reads, trips, budget, weight, loop)
        if dense[1] > depth or _alone(low, plans, depth) > _alone(low, *dense):
            plans, depth = dense
        low.reads.dense = False
    if plans:
        low.placing |= only_for_rows(low, low.reads.rows)
        _placed(low, plans, depth)


def in_taps(low: Lowering, region: Region) -> bool:
    """Whether a region's products get their operands one after the other (`windows`)."""
    return low.reads.window.copies > 0 and brings_many(low.graph, region)


def _plan_each(low: Lowering, region: Region, reads: Sequence[Node], budget: int) -> None:
    """Plan reads whose tiles take each other's places (`windows`, which gives them)."""
    trips = 1 if region.dim is None else low.plans[str(region.dim)].trips or UNKNOWN
    for n in reads:
        plans, problem = _planned(low, region, [n], 1, budget, trips, False)
        if problem is not None:
            problem.location = problem.location or n.loc
            raise problem
        _file(low, plans[0], 1)
    low.placing |= only_for_rows(low, low.reads.rows)


def _has_gaps(s: Staged) -> bool:
    """Whether a tile is larger than it need be, for the sake of the banks that its copies meet in."""
    counted = isinstance(s.cost, PlaceChoice) and s.cost.accesses[1].access.vectors is not None
    return counted and s.place.bytes > -(-prod(s.extents.values()) * s.info.elsize // 128) * 128


def _alone(low: Lowering, plans: Sequence[Staged], depth: int) -> bool:
    """Whether tiles leave no room for a second workgroup."""
    waves = low.partition.waves
    taken = low.room.top + sum(_rounded(s, depth) for s in plans)
    return low.target.resident_waves(1, taken, waves * low.target.wave_size) < 2 * waves


def _plans(
    low: Lowering, region: Region, reads: list[Node], trips: int | None, budget: int, weight: int, loop: bool
) -> tuple[list[Staged], int]:
    """The plans of a region's reads and their stages; reads that can do without shared memory may leave `reads`."""
    plans, depth = _with_fewer(low, region, reads, _attempts(low, region, reads, trips, budget), weight, loop)
    if plans and loop and _asynchronous(low) and depth > 1 and not low.choices.stages:
        # Copies through registers run one trip ahead.
        own = [s.node for s in plans if s.asynchronous and s.copied_by is None]
        deepest = memory_depth(low, region, own, depth, product_clocks(low, region))
        for deeper in range(deepest if trips is None else min(deepest, trips), depth, -1):
            found, problem = _planned(low, region, reads, deeper, budget, weight, loop)
            if problem is None and _fit(low, found, deeper, budget):
                plans, depth = found, deeper
                break
    return plans, depth


def known_trips(low: Lowering, region: Region) -> int | None:
    """Trips of a region's loop at most, as far as that is known: of a part of its dimension (split-K, bounds) those of
    the part. A ring of more slots would have some that nothing fills, and reads that run ahead would find nothing."""
    plan = low.plans[str(region.dim)]
    n = next(x for x in low.graph.all_nodes() if x.op == "iterate" and x.attrs["body"] is region)
    start, stop = loop_bounds(n)
    if start is None and stop is None:
        return plan.trips
    if n.attrs.get("length") is not None:
        return max(1, int(n.attrs["length"]) // plan.tile)
    first, last = (None if x is None else static_number(low.graph, x) for x in (start, stop))
    if plan.trips is None or (start is not None and first is None) or (stop is not None and last is None):
        return plan.trips
    end = plan.trips if last is None else min(plan.trips, -(-last // plan.tile))
    return max(1, end - max(first or 0, 0) // plan.tile)


def _asynchronous(low: Lowering) -> bool:
    """Whether copies pass by the registers, with several trips under way."""
    return bool(low.target.copy_async) and not low.target.copy_linear


def _attempts(
    low: Lowering, region: Region, reads: Sequence[Node], trips: int | None, budget: int
) -> list[tuple[int, int]]:
    """Numbers of stages, each with the bytes of shared memory that they may take, the best first."""
    depth = low.choices.stages or (4 if _asynchronous(low) else 2)
    if trips == 1 or holds_loop(region, lambda n: wants_shared(low, n)):
        depth = 1
    if trips is not None:
        depth = max(1, min(depth, trips))
    if low.choices.stages:
        return [(depth, budget)]
    # First what leaves room for a second workgroup, be it with fewer stages; then what fits at all.
    rooms = [shared_room(low, region), budget]
    attempts = [(d, b) for b in dict.fromkeys(rooms) for d in range(depth, 0, -1)]
    rows = any(n.id in low.reads.rows for n in reads)
    if _asynchronous(low) and any((found := low.reads.rows.get(n.id)) is not None and found.runs for n in reads):
        # Where runs begin is worked out in every trip: another workgroup's products run meanwhile.
        half = low.target.shared_bytes // 2 - low.room.top
        attempts = [(d, half) for d in range(depth, 1, -1)] + attempts
    if low.partition.waves < low.target.simds and (rows or (not _asynchronous(low) and _fills_simds(low))):
        # Small workgroups leave no SIMD idle where lanes fetch rows themselves, nor half of them for another stage.
        beside = low.target.simds // low.partition.waves
        each, most = (low.target.shared_bytes // n - low.room.top for n in (beside, beside // 2 + 1))
        first = [min(rooms[0], each), each] if rows else [rooms[0]]
        attempts = [(d, b) for b in first for d in range(depth, 0, -1)]
        attempts += [(depth, most)] * (not rows) + [(d, b) for b in (each, budget) for d in range(depth, 0, -1)]
    return [(d, b) for d, b in attempts if b > 0 or b == budget]


def _with_fewer(
    low: Lowering, region: Region, reads: list[Node], attempts: Sequence[tuple[int, int]], weight: int, loop: bool
) -> tuple[list[Staged], int]:
    """The plans of `reads` and their stages. Those that do not fit and can do without shared memory leave `reads`, the
    largest first. Raises ConstraintError or CompileError where some can not."""
    while reads:
        plans, problem, depth = _first_that_fits(low, region, reads, attempts, weight, loop)
        if problem is None:
            return plans, depth
        gathered = [n for n in reads if n.id in low.reads.rows and n.id not in low.reads.matrix_uses]
        if gathered:
            # A gather does without: lanes fetch what they need themselves.
            spared = max(gathered, key=lambda n: tile_bytes(low, n))
            del low.reads.rows[spared.id]
        elif loop or (straight := _straight(low, reads)) is None:
            problem.location = problem.location or reads[0].loc
            raise problem
        else:
            spared = straight
        reads.remove(spared)
    return [], 1


def _placed(low: Lowering, plans: Sequence[Staged], depth: int) -> None:
    """Give the plans their bytes of shared memory, and file them."""
    copies = [s for s in plans if s.copied_by is None]
    if any(s.direct is not None for s in plans) and not low.room.top:
        low.room.top = low_gap(low, copies, depth)
    offsets, low.room.top = stacked(low.room.top, copies, depth)
    for s, offset in zip(copies, offsets):
        s.offset = offset
        unique = _file(low, s, depth)
        low.kernel.shared_names[unique] = (s.offset, s.place.bytes * depth)
    for s in plans:
        if s.copied_by is not None:
            s.offset = low.reads.staged[s.copied_by.id].offset
            low.reads.staged[s.node.id] = s
            low.room.buffers[s.node.id] = low.room.buffers[s.copied_by.id]


def _file(low: Lowering, s: Staged, depth: int) -> str:
    """File a plan, and give its buffer a name."""
    low.reads.staged[s.node.id] = s
    unique = f"{s.name}" if s.name not in low.room.depths else f"{s.name}.{s.node.id}"
    low.room.buffers[s.node.id] = unique
    low.room.depths[unique] = depth
    low.notes.places[unique] = s.cost.explain() if hasattr(s.cost, "explain") else str(s.place)
    return unique


def _fills_simds(low: Lowering) -> bool:
    """Whether the launch has a wave for every SIMD, as far as it is known."""
    groups = grid(low)
    return groups is None or groups * low.partition.waves >= low.target.units * low.target.simds


def _first_that_fits(
    low: Lowering, region: Region, reads: Sequence[Node], attempts: Sequence[tuple[int, int]], weight: int, loop: bool
) -> tuple[list[Staged], ConstraintError | None, int]:
    """The plans of the first (stages, bytes) that the reads fit, and its stages; of the last one why they do not."""
    for depth, room in attempts:
        plans, problem = _planned(low, region, reads, depth, room, weight, loop)
        if problem is None and not _fit(low, plans, depth, room):
            what = ", ".join(s.name for s in plans)
            tiles = tuple(dict.fromkeys(d for s in plans for d in s.extents))
            problem = ConstraintError(f"tiles of {what} do not fit {room} bytes of shared memory", tile=tiles)
        if problem is None:
            break
    return plans, problem, depth


def _straight(low: Lowering, reads: Sequence[Node]) -> Node | None:
    """Of reads that do not fit shared memory the one with the largest tile that can do without: waves fetch its
    elements themselves, each all that it needs. Outside of loops alone: a loop's tiles can be cut (`retile`)."""
    free = [n for n in reads if not (n.id in low.reads.matrix_uses or n.id in low.reads.kept or _asked(low, n))]
    return max(free, key=lambda n: tile_bytes(low, n), default=None)


def _asked(low: Lowering, n: Node) -> bool:
    """Whether the user wants a read's array in shared memory, or its elements can be unpacked from there only."""
    space = low.graph.argument(n.attrs["memory"]).address_space
    unit = low.units(n)
    return low.graph.subs.get(space, space) is AddressSpace.SHARED or (unit is not None and bool(unit.atom))


def _planned(
    low: Lowering, region: Region, reads: Sequence[Node], depth: int, room: int, weight: int, loop: bool
) -> tuple[list[Staged], ConstraintError | None]:
    """The reads in `room` bytes of shared memory with that many stages, and why one of them has no place there."""
    left = room
    plans: list[Staged] = []
    direct = copies_arrive(low, region, reads, depth) if loop else low.choices.direct
    groups = {n.id: group for group in (_same(low, region, reads) if loop else []) for n in group}
    trips = beside(low, region, reads, depth) if loop else {}

    def asked(n: Node) -> bool | None:
        """What is asked of a read's copies: those of tiles that nobody wants in shared memory may be either."""
        if n.id in low.reads.rows and low.target.copy_linear:
            return False
        return None if direct and not _asked(low, n) and _scales(low, n) else direct

    def plan(n: Node, left: int, others: Sequence[Node] = ()) -> Staged:
        return plan_staged(
            n, low.view_info(n), low.layout(n), contraction_fed(low, n), low.partition, low.target, depth, left, weight,
            asked(n),
            trip=trips[n.id] if loop else None, paired=low.paired_words(n) > 0,
            others=[low.layout(x) for x in others], added=_added(low, n), dense=low.reads.dense,
        )  # fmt: skip

    for n in reads:
        if any(s.node is n for s in plans):
            continue
        info = low.view_info(n)
        uses = low.reads.matrix_uses.get(n.id)
        unit = low.units(n)
        try:
            if uses is not None:
                found = [plan_matrix(n, info, low.layout(n), uses, low.partition, low.target, depth, left, direct)]
            elif n.id in groups:
                found = _one_copy_or_more(low, groups[n.id], plan, depth, left, weight)
            elif unit is None:
                found = [plan(n, left)]
            else:
                cut = replace(low.partition, dims={d: unit.plans[dim_name(d)] for d in low.partition.dims})
                size = unit.dtype.bytes
                atom = LoadAtom(unit.atom, size, size, (size,)) if unit.atom else None
                found = [
                    plan_staged(
                        n, unit.info, unit.layout, contraction_fed(low, n), cut, low.target, depth, left, weight,
                        direct, atom,
                    )
                ]  # fmt: skip
        except ConstraintError as problem:
            return plans, problem
        left -= sum(_rounded(s, depth) for s in found)
        plans += found
    return plans, None


def _rounded(s: Staged, depth: int) -> int:
    """Bytes of shared memory that a tile's slots count as; 0 for what lies in another read's tile."""
    return 0 if s.copied_by is not None else -(-s.place.bytes * depth // 1024) * 1024


def _same(low: Lowering, region: Region, reads: Sequence[Node]) -> list[list[Node]]:
    """Reads of a loop that have the same elements. Not what matrix instructions read themselves, nor units."""
    apart = {*low.reads.matrix_uses, *low.reads.rows}
    own = [n for n in reads if n.id not in apart and low.units(n) is None]
    return same_reads(region, own)


def _one_copy_or_more(
    low: Lowering, group: Sequence[Node], plan: Callable[[Node, int, Sequence[Node]], Staged], depth: int, room: int,
    trips: int,
) -> list[Staged]:  # fmt: skip
    """Reads of the same elements from one tile, or each from its own where that fits and takes less time: a tile that
    lies as one product wants it is read element by element for another where nothing transposes on the way. The price
    of a tile of one's own is another copy."""
    first, *others = group
    copied = plan(first, room, others)
    together = [copied, *(taken_too(copied, i, n, low.layout(n), low.partition) for i, n in enumerate(others))]
    apart: list[Staged] = []
    try:
        for n in group:
            apart.append(plan(n, room - sum(_rounded(s, depth) for s in apart), ()))
    except (CompileError, ConstraintError):
        return together
    clocks = sum(s.clocks for s in apart)
    for s in apart[1:]:
        size = s.vector * s.info.elsize
        kind = "copy.async" if s.asynchronous or s.direct is not None else "load.global"
        (_, busy), *_ = low.memory_cost(kind, size)[0]
        clocks += trips * s.count * busy
    return together if copied.clocks <= clocks else apart


def _fit(low: Lowering, plans: Sequence[Staged], depth: int, room: int) -> bool:
    """Whether all tiles together fit."""
    left = room - sum(_rounded(s, depth) for s in plans)
    own = [s for s in plans if s.copied_by is None]
    return left >= 0 and stacked(low.room.top, own, depth)[1] <= low.room.top + room


def stacked(top: int, plans: Sequence[Staged], depth: int) -> tuple[list[int], int]:
    """Where tiles of that many slots start, one behind the other from byte `top` on, each at a multiple of what its
    swizzle asks for; and where they end."""
    offsets = []
    for s in plans:
        align = alignment(s)
        offsets.append(-(-top // align) * align)
        top = offsets[-1] + s.place.bytes * depth
    return offsets, top


def alignment(s: Staged) -> int:
    """What a tile's place begins at a multiple of."""
    return max(128, s.place.window if s.place.xor else 16, ALIGN if s.tile is not None else 16)


def copies_arrive(low: Lowering, region: Region, reads: Sequence[Node], depth: int) -> bool | None:
    """What is asked of direct copies in a loop: what the user says; else False on chips where other copies wait in
    registers, unless the matrix instructions of the trips between a slot's last reader and its next one take longer
    than all copies of a trip: then nobody waits for them. None: what costs less.

    A copy through registers is started while its slot is still read, a direct one only behind that.
    """
    target = low.target
    if low.choices.direct is not None or not target.copy_linear:
        return low.choices.direct
    busy = product_clocks(low, region)
    width = max(target.copy_async)
    whole = target.cost("copy.async", width)
    bytes = sum(tile_bytes(low, n) for n in reads)
    moved = bytes * whole.cycles // (width * target.wave_size)
    return None if (depth - 1) * busy >= whole.latency + moved else False


def product_clocks(low: Lowering, region: Region) -> int:
    """Clocks that the matrix instructions of a trip keep the unit of a SIMD busy."""
    busy = 0
    for n in region_nodes(region):
        if n.op == "mma":
            plan = low.inference.mmas[n.id]
            busy += instructions(plan) * plan.atom.cycles * -(-low.partition.waves // low.target.simds)
    return busy


def beside(low: Lowering, region: Region, reads: Sequence[Node], depth: int) -> dict[int, Trip | None]:
    """Per read, what a trip keeps busy beside its tile: the others count as stored once and read by every wave without
    conflicts. None where the loop has no products, or where copies and products are not each wave's own."""
    products = product_clocks(low, region)
    if not products or not low.target.copy_linear:
        return dict.fromkeys(n.id for n in reads)
    clocks = {n.id: _clocks_of_tile(low, n) for n in reads}
    together = sum(clocks.values())
    return {i: Trip(products, together - own, depth) for i, own in clocks.items()}


def _clocks_of_tile(low: Lowering, n: Node) -> int:
    """Clocks of shared memory per trip for a tile that is stored once and read by every wave."""
    info, layout = low.view_info(n), low.layout(n)
    tile = prod(tile_extents(layout, [d for d in info.names if d in layout.dims], low.plans).values())
    held = layout.elements_per_lane * low.target.wave_size
    wide, size = 16 * low.target.wave_size, info.elsize
    stored = tile * size * low.target.cost("store.shared", 16).cycles // wide
    return stored + held * low.partition.waves * size * low.target.cost("load.shared", 16).cycles // wide


NARROW = 8
"""Bytes of a lane's load of gathered elements below which a single wave brings the rows to shared memory."""
WIDE = 16
"""Bytes of a load as wide as any copy."""
GAP = 1024
"""Bytes in front of the first tile that is copied directly: the immediate of such a copy is taken off its shared
address, and eight steps along a row of 128 bytes are immediates."""


def low_gap(low: Lowering, plans: Sequence[Staged], depth: int) -> int:
    """`GAP` where shared memory has room for it, tiles at multiples of what they ask for, at the same number of
    workgroups; else 0."""
    plain, moved = (stacked(top, plans, depth)[1] for top in (0, GAP))
    return GAP if gap_fits(low, plain, moved) else 0


def gap_fits(low: Lowering, plain: int, moved: int | None = None) -> bool:
    """Whether shared memory of `plain` bytes has room for the gap, then `moved` bytes, at as many workgroups."""
    target = low.target
    threads = low.partition.waves * target.wave_size
    moved = plain + GAP if moved is None else moved
    fits = moved + GAP <= target.shared_bytes
    return fits and target.occupancy(1, moved + GAP, threads) == target.occupancy(1, plain, threads)


SECOND_WAVE = 192
"""Registers of accumulators from which on a SIMD has no room for a second wave."""


def shared_room(low: Lowering, region: Region) -> int:
    """Bytes of shared memory that the staged reads of a region may take if each SIMD is to have two waves: with one
    nobody computes while it waits at a barrier or for memory. All that is left where copies need no wave to wait for
    them, where registers keep a second wave away, and for products alone where the launch has no second workgroup for a
    unit. (What else a loop computes takes registers of a second wave's.)"""
    target, waves = low.target, low.partition.waves
    budget = target.shared_bytes - low.room.top
    launched = grid(low)
    if launched is not None and launched <= target.units and only_products(region, low.inference):
        return budget
    held = sum(low.layout(n).elements_per_lane * n.dtype.bits // 32 for n in region_nodes(region) if n.op in PRODUCTS)
    if (target.copy_async and not target.copy_linear) or held > SECOND_WAVE:
        return budget
    groups = -(-2 * target.simds // waves)
    room = target.shared_bytes // groups - low.room.top
    two = target.occupancy(1, target.shared_bytes // groups, waves * target.wave_size) > 1
    return room if two and room > 0 else budget


def invariant_reads(low: Lowering, region: Region) -> list[Node]:
    """Reads of a loop body that give the same in every trip: of arrays, or parts of them, without the loop's dimension
    that nothing in the loop writes."""
    inside = {n.id for n in region_nodes(region)}
    written = {n.attrs["memory"] for n in region_nodes(region) if "memory" in n.attrs and ROWS[n.op].effect}
    return [
        n
        for n in region.nodes
        if n.op == "read"
        and n.attrs["memory"] not in written
        and is_settled(low.graph, n, inside)
        and not low.moves_with([dim_name(d) for d in view_dims(low.graph, n)], str(region.dim))
    ]


def only_in_loops(low: Lowering, n: Node) -> bool:
    """Whether a read stands outside of all loops and what it gives is used inside of them only."""
    home = low.region_of(n)
    users = low.users().get(n.id, ())
    return home is low.graph.region and bool(users) and all(low.region_of(u) is not home for u in users)


def wants_shared(low: Lowering, n: Node, once: bool = False) -> bool:
    """A read goes through shared memory when the user says so, or when it feeds a matrix instruction of several waves;
    one that is carried out once for a loop only if waves need the same elements."""
    if n.id in low.reads.matrix_uses or n.id in low.reads.kept:
        return True
    if n.id in low.reads.spared:
        return False
    argument = low.graph.argument(n.attrs["memory"])
    space = argument.address_space
    if not isinstance(space, AddressSpace) and space is not None:
        space = low.graph.subs.get(space, space)
    if not is_tile(low.graph, n):
        return _wants_rows(low, n, space) is not None
    unit = low.units(n)
    if unit is not None and unit.atom:
        return True
    if not any(dim_name(d) in low.layout(n).dims for d in view_dims(low.graph, n)):
        return False
    if space is AddressSpace.SHARED:
        return True
    if space is AddressSpace.GLOBAL:
        return False
    cut = [d for d, p in low.plans.items() if p.waves > 1 and d not in low.followed]
    if (once or only_in_loops(low, n)) and all(d in low.layout(n).dims for d in cut):
        return False
    return (contraction_fed(low, n) is not None or _scales(low, n)) and low.partition.waves > 1


SCALED_ROWS = 32
"""Rows of a wave from which on scales that others need, too, pass through shared memory. By the model of gfx950 tiles
of 16 x 128 x 512 in fp4, four waves, take 3 to 5 % longer with them there, those of 64 x 64 x 256 are 5 to 9 % faster,
and 256 x 256 x 256 in eight waves has registers left for its sums (71503 clocks for 266316)."""


def _scales(low: Lowering, n: Node) -> bool:
    """Whether a read is of scales that matrix instructions take beside their operands, and of nothing else. A wave's
    load of them has few bytes of each row, and vector memory takes a clock for every row's line: what several waves
    need, one fetches."""
    users = low.users().get(n.id, ())
    held = low.layout(n).dims
    apart = all(p.waves == 1 or d in held or d in low.followed for d, p in low.plans.items())
    if apart or max(low.plans[d].wave for d in held) < SCALED_ROWS:
        return False
    return bool(users) and all(
        u.op == "scaled_mma" and all(u.inputs[p] is not n for p in factors(u)) and low.inference.mmas[u.id].scales
        for u in users
    )


def _wants_rows(low: Lowering, n: Node, space: Any) -> GatheredRows | None:
    """A gather of whole rows that goes through shared memory: when the user says so, or when it feeds a matrix
    instruction and several waves need the same rows, or lanes would have to fetch them in narrow pieces. Not beside
    warpgroups' products: whoever copies for them knows tiles only."""
    asked = space is AddressSpace.SHARED
    if space is AddressSpace.GLOBAL or not (asked or contraction_fed(low, n) is not None):
        return None
    if low.arrays[n.attrs["memory"]].dtype.packed:
        return None
    bulk = low.matrix.strategy is not None and low.matrix.strategy.bulk
    if bulk or any(plan.atom.asynchronous for plan in low.inference.mmas.values()):
        return None
    rows = gathered_rows(low, n)
    return rows if rows is not None and (asked or _better_staged(low, n, rows)) else None


def _better_staged(low: Lowering, n: Node, rows: GatheredRows) -> bool:
    """Whether rows had better be copied to shared memory than fetched by each lane that needs a part of them. Copies of
    less than a word would hold more registers than what lanes fetch. Where a lane's loads are as wide as copies that
    only saves what several waves fetch, and it takes room from workgroups beside: it pays where those loads keep
    memory's unit busy for half of the time that the products take. Where runs begin is worked out for each copy, so
    their loads have to take all of it: of 3 x 3 filters of 64 channels in five tiles one then takes 10 % more clocks on
    gfx942 and one 2 % less, one 1 % more on gfx950 and four 5 to 39 % less."""
    layout, info = low.layout(n), rows.info
    extents = tile_extents(layout, memory_order(info, layout), low.plans)
    if copy_vector(info, extents, low.plans) * info.elsize < 4:
        return False
    width, groups, _ = mapped_groups(low, n, layout, False)
    size = width * info.elsize
    if size < NARROW or low.partition.waves == 1:
        return size < NARROW
    if size < WIDE or not low.target.copy_linear:
        return True
    _, clocks, _ = low.unit_cost("load.global", size)
    region = low.region_of(n)
    together = (1 if rows.runs else 2) * len(groups) * clocks
    reads = (x for x in region.nodes if x.op == "read" and not is_tile(low.graph, x))
    better = together * sum(bool(contraction_fed(low, x)) for x in reads) >= product_clocks(low, region)
    if low.reads.window.rows if in_taps(low, region) else region.dim is not None:
        return better
    # Of straight code, with all loads first waves would wait for what they copy, and for each other.
    alone = together >= product_clocks(low, region)
    low.notes.rows_left |= better and not alone
    return alone


def _added(low: Lowering, n: Node) -> bool:
    """Whether a read is an operand of multiply-adds and of nothing else, and for so many sums per lane that it pays to
    copy single words."""
    users = low.users().get(n.id, ())
    products = [low.inference.mmas.get(u.id) for u in users]
    return bool(products) and all(
        plan is not None and plan.atom.instruction == "fma" and plan.result.elements_per_lane >= MANY_SUMS
        for plan in products
    )


MANY_SUMS = 128
"""Sums of a lane from which on operands of multiply-adds are copied word by word: with 64, 2048^3 takes as long either
way on an H200 (417 to 430 us), 8192 x 8192 x 64 a tenth longer."""


def contraction_fed(low: Lowering, n: Node) -> str | None:
    """The contraction dimension of the matrix product that a read feeds, through elementwise steps or directly."""
    found: str | None = None
    if not low.inference.mmas:
        return None
    users = low.users()
    work, seen = [n], {n.id}
    while work:
        x = work.pop()
        for u in users.get(x.id, ()):
            if u.op in PRODUCTS and any(x is u.inputs[p] for p in factors(u)):
                found = low.inference.mmas[u.id].k
            elif u.id not in seen and u.op in ROWS and ROWS[u.op].index_rule == "same" and u.op not in REGIONS:
                seen.add(u.id)
                work.append(u)
    return found


def holds_loop(region: Region, staged: Callable[[Node], bool] = lambda n: True) -> bool:
    """Whether another loop lies inside this region, or a condition with reads that are staged: what is in flight for
    later trips could not be counted there."""
    for n in region.nodes:
        if n.op == "when":
            inside = n.attrs["body"]
            if any(x.op == "read" and staged(x) for x in inside.nodes) or holds_loop(inside, staged):
                return True
        elif n.op in REGIONS:
            return True
    return False
