"""Lowering of `read`: which reads go through shared memory, and the steps that carry each one out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from wavedsl.ir.access import GlobalAccess, element_groups, join_word, load_group, total, vector_elements
from wavedsl.ir.copy_tile import CopyLanes, copy_access, copy_directly, store_copied, store_transposed
from wavedsl.ir.copy_ways import Trip, transposing_clocks
from wavedsl.ir.errors import CompileError
from wavedsl.ir.fragment_loads import FragmentLoads, wave_digits
from wavedsl.ir.graph import PRODUCTS, REGIONS, Node, Region, factors, region_nodes
from wavedsl.ir.kernel_ir import Value, vector
from wavedsl.ir.lowering import Lowering, both, never
from wavedsl.ir.matrix_count import k_issues, result_tiles
from wavedsl.ir.matrix_tile import ALIGN
from wavedsl.ir.memory_depth import memory_depth
from wavedsl.ir.ops import ROWS
from wavedsl.ir.partition import DimPlan
from wavedsl.ir.place_address import place_address
from wavedsl.ir.prefetch import ask
from wavedsl.ir.rings import wait_full
from wavedsl.ir.shared_search import PlaceChoice
from wavedsl.ir.staged import Staged, tile_extents
from wavedsl.ir.staging import plan_matrix, plan_staged
from wavedsl.ir.steps import Context, Key, Step
from wavedsl.ir.symbols import AddressSpace, dim_name
from wavedsl.ir.target import LoadAtom
from wavedsl.ir.views import is_settled, is_tile, placement, view_dims


def plan_staged_reads(low: Lowering, region: Region, nodes: Sequence[Node], once: bool = False) -> None:
    """Decide which reads among `nodes` of a region go through shared memory, their ring depth and their place. `once`:
    they are carried out before the region's loop."""
    loop = region.dim is not None and not once
    reads = [n for n in nodes if n.op == "read" and n.id not in low.ring_of and wants_shared(low, n, once)]
    if not reads:
        return
    budget = low.target.shared_bytes - low.shared_top
    trips = low.plans[str(region.dim)].trips if loop else 1
    asynchronous = bool(low.target.copy_async) and not low.target.copy_linear
    depth = low.choices.stages or (4 if asynchronous else 2)
    if not loop or holds_loop(region):
        depth = 1
    if trips is not None:
        depth = max(1, min(depth, trips))
    weight = trips if trips is not None and trips > 0 else 16
    # First what leaves room for a second workgroup, be it with fewer stages; then what fits at all.
    attempts = [(d, b) for b in dict.fromkeys((shared_room(low, region), budget)) for d in range(depth, 0, -1)]
    if low.choices.stages:
        attempts = [(depth, budget)]
    for depth, room in attempts:
        plans, problem = _planned(low, region, reads, depth, room, weight, loop)
        if problem is None and _fit(low, plans, depth, room):
            break
    if problem is not None:
        raise problem
    if loop and asynchronous and depth > 1 and not low.choices.stages:
        own = [s.node for s in plans if s.asynchronous]  # copies through registers run one trip ahead
        for deeper in range(memory_depth(low, region, own, depth, product_clocks(low, region)), depth, -1):
            found, problem = _planned(low, region, reads, deeper, budget, weight, loop)
            if problem is None and _fit(low, found, deeper, budget):
                plans, depth = found, deeper
                break
    if any(s.direct is not None for s in plans) and not low.shared_top:
        low.shared_top = low_gap(low, sum(s.place.bytes for s in plans) * depth)
    offsets, low.shared_top = stacked(low.shared_top, plans, depth)
    for s, offset in zip(plans, offsets):
        s.offset = offset
        low.staged[s.node.id] = s
        unique = f"{s.name}" if s.name not in low.depths else f"{s.name}.{s.node.id}"
        low.buffer_names[s.node.id] = unique
        low.depths[unique] = depth
        low.kernel.shared_names[unique] = (s.offset, s.place.bytes * depth)
        low.notes.places[unique] = s.cost.explain() if hasattr(s.cost, "explain") else str(s.place)


def _planned(
    low: Lowering, region: Region, reads: Sequence[Node], depth: int, room: int, weight: int, loop: bool
) -> tuple[list[Staged], Exception | None]:
    """The reads in `room` bytes of shared memory with that many stages, and why one of them has no place there."""
    left = room
    plans: list[Staged] = []
    direct = copies_arrive(low, region, reads, depth) if loop else low.choices.direct
    for n in reads:
        info = low.view_info(n)
        uses = low.matrix_uses.get(n.id)
        try:
            if uses is not None:
                s = plan_matrix(n, info, low.layout(n), uses, low.partition, low.target, depth, left, direct)
                left -= -(-s.place.bytes * depth // 1024) * 1024
                plans.append(s)
                continue
            with_k = contraction_fed(low, n)
            unit = low.units(n)
            if unit is None:
                s = plan_staged(
                    n, info, low.layout(n), with_k, low.partition, low.target, depth, left, weight, direct,
                    trip=beside(low, region, reads, n, depth) if loop else None, paired=low.paired_words(n) > 0,
                )  # fmt: skip
            else:
                cut = replace(low.partition, dims={d: unit.plans[dim_name(d)] for d in low.partition.dims})
                size = unit.dtype.bytes
                atom = LoadAtom(unit.atom, size, size, (size,)) if unit.atom else None
                s = plan_staged(n, unit.info, unit.layout, with_k, cut, low.target, depth, left, weight, direct, atom)
        except CompileError:
            raise
        except Exception as e:
            return plans, e
        left -= -(-s.place.bytes * depth // 1024) * 1024
        plans.append(s)
    return plans, None


def _fit(low: Lowering, plans: Sequence[Staged], depth: int, room: int) -> bool:
    """Whether all tiles together fit."""
    left = room - sum(-(-s.place.bytes * depth // 1024) * 1024 for s in plans)
    return left >= 0 and stacked(low.shared_top, plans, depth)[1] <= low.shared_top + room


def stacked(top: int, plans: Sequence[Staged], depth: int) -> tuple[list[int], int]:
    """Where tiles of that many slots start, one behind the other from byte `top` on, each at a multiple of what its
    swizzle asks for; and where they end."""
    offsets = []
    for s in plans:
        align = max(128, s.place.window if s.place.xor else 16, ALIGN if s.tile is not None else 16)
        offsets.append(-(-top // align) * align)
        top = offsets[-1] + s.place.bytes * depth
    return offsets, top


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
    bytes = 0
    for n in reads:
        info, layout = low.view_info(n), low.layout(n)
        extents = tile_extents(layout, [d for d in info.names if d in layout.dims], low.plans)
        bytes += prod(extents.values()) * info.elsize
    moved = bytes * whole.cycles // (width * target.wave_size)
    return None if (depth - 1) * busy >= whole.latency + moved else False


def product_clocks(low: Lowering, region: Region) -> int:
    """Clocks that the matrix instructions of a trip keep the unit of a SIMD busy."""
    busy = 0
    for n in region_nodes(region):
        if n.op == "mma":
            plan = low.inference.mmas[n.id]
            count = len(result_tiles(plan)) * len(k_issues(plan))
            busy += count * plan.atom.cycles * -(-low.partition.waves // low.target.simds)
    return busy


def beside(low: Lowering, region: Region, reads: Sequence[Node], read: Node, depth: int) -> Trip | None:
    """What a trip keeps busy beside one of its tiles: the others count as stored once and read by every wave without
    conflicts. None where the loop has no products, or where copies and products are not each wave's own."""
    products = product_clocks(low, region)
    if not products or not low.target.copy_linear:
        return None
    waves, shared = low.partition.waves, 0
    for n in reads:
        if n is not read:
            info, layout = low.view_info(n), low.layout(n)
            tile = prod(tile_extents(layout, [d for d in info.names if d in layout.dims], low.plans).values())
            held = layout.elements_per_lane * low.target.wave_size
            wide, size = 16 * low.target.wave_size, info.elsize
            shared += tile * size * low.target.cost("store.shared", 16).cycles // wide
            shared += held * waves * size * low.target.cost("load.shared", 16).cycles // wide
    return Trip(products, shared, depth)


GAP = 1024
"""Bytes in front of the first tile that is copied directly: the immediate of such a copy is taken off its shared
address, and eight steps along a row of 128 bytes are immediates."""


def low_gap(low: Lowering, bytes: int) -> int:
    """`GAP` where shared memory has room for it at the same number of workgroups, else 0."""
    target = low.target
    threads = low.partition.waves * target.wave_size
    fits = bytes + 2 * GAP <= target.shared_bytes
    same = fits and target.occupancy(1, bytes + 2 * GAP, threads) == target.occupancy(1, bytes, threads)
    return GAP if same else 0


SECOND_WAVE = 192
"""Registers of accumulators from which on a SIMD has no room for a second wave."""


def shared_room(low: Lowering, region: Region) -> int:
    """Bytes of shared memory that the staged reads of a region may take if each SIMD is to have two waves: with one
    nobody computes while it waits at a barrier or for memory. All that is left where copies need no wave to wait for
    them, and where registers keep a second wave away."""
    target, waves = low.target, low.partition.waves
    budget = target.shared_bytes - low.shared_top
    held = sum(low.layout(n).elements_per_lane * n.dtype.bits // 32 for n in region_nodes(region) if n.op in PRODUCTS)
    if (target.copy_async and not target.copy_linear) or held > SECOND_WAVE:
        return budget
    groups = -(-2 * target.simds // waves)
    room = target.shared_bytes // groups - low.shared_top
    two = target.occupancy(1, target.shared_bytes // groups, waves * target.wave_size) > 1
    return room if two and room > 0 else budget


def invariant_reads(low: Lowering, region: Region) -> list[Node]:
    """Reads of a loop body that give the same in every trip: of arrays without the loop's dimension that nothing in the
    loop writes."""
    written = {n.attrs["memory"] for n in region_nodes(region) if "memory" in n.attrs and ROWS[n.op].effect}
    return [
        n
        for n in region.nodes
        if n.op == "read"
        and is_settled(low.graph, n)
        and n.attrs["memory"] not in written
        and not low.moves_with([dim_name(d) for d in low.graph.argument(n.attrs["memory"]).dims], str(region.dim))
    ]


def only_in_loops(low: Lowering, n: Node) -> bool:
    """Whether a read stands outside of all loops and what it gives is used inside of them only."""
    home = low.region_of(n)
    users = low.users().get(n.id, ())
    return home is low.graph.region and bool(users) and all(low.region_of(u) is not home for u in users)


def wants_shared(low: Lowering, n: Node, once: bool = False) -> bool:
    """A read goes through shared memory when the user says so, or when it feeds a matrix instruction of several waves;
    one that is carried out once for a loop only if waves need the same elements."""
    if n.id in low.matrix_uses or n.id in low.kept:
        return True
    argument = low.graph.argument(n.attrs["memory"])
    space = argument.address_space
    if not isinstance(space, AddressSpace) and space is not None:
        space = low.graph.subs.get(space, space)
    if not is_tile(low.graph, n):
        return False
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
    return contraction_fed(low, n) is not None and low.partition.waves > 1


def contraction_fed(low: Lowering, n: Node) -> str | None:
    """The contraction dimension of the matrix product that a read feeds, through elementwise steps or directly."""
    found: str | None = None
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


def _nothing(context: Context) -> None:
    """A step that only stands for others."""


def staged_steps(low: Lowering, n: Node, once: bool = False) -> list[Step]:
    """The steps of a read through shared memory; `once`: those that use it are in a loop that comes later."""
    b, s = low.b, low.staged[n.id]
    buffer = low.buffer_names[n.id]
    info, extents, strides = low.view(n)
    plans, partition = low.plans, low.partition
    unit = low.units(n)
    if unit is not None:
        info, plans = unit.info, unit.plans
        extents, strides = unit.extents(b, extents), unit.strides(strides)
        partition = replace(partition, dims={d: plans[dim_name(d)] for d in partition.dims})
    es = info.elsize
    size, hint = s.vector * es, n.attrs.get("cache")
    bundle: dict[str, Any] = {}

    def slot_of(context: Context) -> Any:
        return low.slot_bytes(n, context)

    def copy_lanes() -> CopyLanes:
        lanes = bundle.get("lanes")
        if lanes is None:
            lanes = bundle["lanes"] = CopyLanes(b, s)
        return lanes

    def copy_parts(i: int) -> tuple[dict[str, Any], dict[str, int], Value]:
        return copy_lanes().coordinates(i)

    placed_by = coordinate_keys(low, n)

    def direct_step(i: int) -> Step:
        """A copy that passes by the registers and lands lane by lane."""
        assert s.direct is not None

        def copy(context: Context) -> None:
            if never(context.guard):
                return
            position, inside, limits = low.located(n, context, low.base_at(context.iteration))
            copy_directly(
                b, s, position, low.plans, low.target, i, extents, strides, limits, slot_of(context), buffer,
                both(b, context.guard, inside), hint,
            )  # fmt: skip

        resources, latency = low.memory_cost("copy.async", size)
        step = Step(f"copy {s.name}.{i}", "acopy", resources, latency, placed_by, (), copy, buffer, n.loc)
        step.sequence = "copies"
        return step

    def access_for(
        context: Context, parts: dict[str, Any], plans: Mapping[str, DimPlan] = plans
    ) -> tuple[GlobalAccess, Value | None]:
        position, inside, limits = low.located(n, context, low.base_at(context.iteration))
        if unit is not None:
            position = unit.position(b, position)
        access = copy_access(b, s, position, plans, low.target, copy_lanes(), parts, extents, strides, limits)
        return access, both(b, context.guard, inside)

    def ask_ahead(context: Context, i: int) -> None:
        lanes, fixed, _ = copy_parts(i)
        ask(low, n, context, low.plans, lambda later, plans: access_for(later, lanes, plans), fixed, size)

    def block_step(first: int) -> Step:
        """The stores of a block that is transposed in registers."""
        keys = tuple(("c", n.id, first + r) for r in range(s.deep))

        def put_block(context: Context) -> None:
            lanes, fixed, _ = copy_parts(first)
            rows = [context.env[k] for k in keys]
            store_transposed(b, s, copy_lanes(), lanes, fixed, rows, slot_of(context), buffer)

        stores = s.vector * s.deep // s.piece
        resources, latency = low.memory_cost("store.shared", max(1, s.piece * es))
        valu = low.target.cost("valu")
        clocks = low.issue_clocks() * transposing_clocks(low.target, es, s.vector * s.deep, s.vector, s.deep)
        moved = (*((u, c * stores) for u, c in resources), (valu.unit, clocks // low.target.clock_unit))
        return Step(f"store {s.name}.{first}", "swrite", moved, latency, keys, (), put_block, buffer, n.loc)

    steps: list[Step] = []
    for i in range(s.count):
        if s.direct is not None:
            steps.append(direct_step(i))
            continue
        if s.asynchronous:

            def copy(context: Context, i: int = i) -> None:
                if never(context.guard):
                    return
                lanes, fixed, active = copy_parts(i)
                access, guard = access_for(context, lanes)
                voff, soff, mask = access.operands(fixed)
                at = place_address(b, s.place, lanes, fixed, copy_lanes().by_bit)
                address = total(b, [at, s.offset, slot_of(context)])
                assert active.const is True, "asynchronous copies are planned for whole rounds of threads only"
                b.copy_async(
                    access.buffer,
                    voff,
                    address,
                    soff,
                    bytes=size,
                    buffer=buffer,
                    mask=mask,
                    guard=guard,
                    split=False,
                    cache=hint,
                )
                ask_ahead(context, i)

            resources, latency = low.memory_cost("copy.async", size)
            steps.append(Step(f"copy {s.name}.{i}", "acopy", resources, latency, placed_by, (), copy, buffer, n.loc))
            continue

        def load(context: Context, i: int = i) -> None:
            if never(context.guard):
                context.env["c", n.id, i] = b.zero(vector(max(size // 4, 1)))
                return
            lanes, fixed, active = copy_parts(i)
            access, guard = access_for(context, lanes)
            voff, soff, mask = access.operands(fixed)
            context.env["c", n.id, i] = b.load_global(
                access.buffer,
                voff,
                soff,
                bytes=size,
                mask=b.pand(mask, active),
                guard=guard,
                split=False,
                bounded=True,
                cache=hint,
            )
            ask_ahead(context, i)

        def put(context: Context, i: int = i) -> None:
            lanes, fixed, active = copy_parts(i)
            store_copied(b, s, copy_lanes(), lanes, fixed, active, context.env["c", n.id, i], slot_of(context), buffer)

        resources, latency = low.memory_cost("load.global", size)
        key = ("c", n.id, i)
        fetched = Step(f"load {s.name}.{i}", "gload", resources, latency, placed_by, (key,), load, "", n.loc)
        fetched.words = max(1, size // 4)
        steps.append(fetched)
        if s.deep > 1:
            if i % s.deep == s.deep - 1:
                steps.append(block_step(i - s.deep + 1))
            continue
        pieces = s.vector // s.piece
        resources, latency = low.memory_cost("store.shared", max(1, size // pieces))
        resources = tuple((u, c * pieces) for u, c in resources)
        stored = s.cost.accesses[1].worst if isinstance(s.cost, PlaceChoice) and low.target.copy_linear else 0
        if pieces > 1 and stored:  # narrow stores keep LDS busy for less than the turn that each takes to issue
            counted = stored // s.count * low.partition.waves
            resources = tuple((u, c if u == "issue" else counted) for u, c in resources)
        steps.append(Step(f"store {s.name}.{i}", "swrite", resources, latency, (key,), (), put, buffer, n.loc))

    if s.loads is None or (once and n.id in low.kept):
        if once:
            # The readers come later: a step in their place, before which the copies have arrived.
            steps.append(Step(f"await {s.name}", "sread", (), 1, (), (), _nothing, buffer, n.loc))
        return steps
    return steps + fragment_steps(low, n)


def fragment_steps(low: Lowering, n: Node) -> list[Step]:
    """The loads of a read's elements from its tile in shared memory, and what joins them to registers."""
    b, s = low.b, low.staged[n.id]
    assert s.loads is not None
    buffer, ring = low.buffer_names[n.id], low.ring_of.get(n.id)
    plans, partition, unit = low.plans, low.partition, low.units(n)
    if unit is not None:
        plans = unit.plans
        partition = replace(partition, dims={d: plans[dim_name(d)] for d in partition.dims})
    _, digit_dims = wave_digits(s.layout, partition, plans)
    made: list[FragmentLoads] = []

    def fragments() -> FragmentLoads:
        if not made:
            made.append(FragmentLoads(b, s, {d: low.digit(d) for d in plans}, plans, digit_dims))
        return made[0]

    steps: list[Step] = []
    together = low.gathered(n)
    resources, latency = low.memory_cost("load.shared", min(2, together) * s.loads.bytes)
    if together > 2:
        resources = tuple((u, c * (together // 2)) for u, c in resources)
    for g in range(len(s.groups) // together):

        def fetch(context: Context, g: int = g) -> None:
            if ring is not None:
                wait_full(low, ring)
            slot = low.slot_bytes(n, context)
            loads = [fragments().load(g * together + i, slot, buffer) for i in range(together)]
            context.env["f", n.id, g] = b.vec(*loads) if together > 1 else loads[0]

        read = Step(f"read {s.name}.{g}", "sread", resources, latency, (), (("f", n.id, g),), fetch, buffer, n.loc)
        read.words = max(1, s.loads.bytes * together // 4)
        steps.append(read)
    if low.joined(n):
        steps += join_steps(low, n, s)
    return steps


def join_steps(low: Lowering, n: Node, s: Staged) -> list[Step]:
    """One step per register that several narrow loads fill."""
    b = low.b
    home = {e: (g, position) for g, group in enumerate(s.groups) for position, e in enumerate(group)}
    valu = low.target.cost("valu")
    steps = []
    for r, group in enumerate(low.read_groups(n)):
        parts = [home[e] for e in group]

        def join(context: Context, r: int = r, parts: list[tuple[int, int]] = parts) -> None:
            loaded = [(context.env["f", n.id, g], position) for g, position in parts]
            context.env["w", n.id, r] = join_word(b, s.info.dtype, loaded)

        uses = tuple(dict.fromkeys(("f", n.id, g) for g, _ in parts))
        clocks = low.issue_clocks() * max(1, len(uses) - 1)
        resources = ((valu.unit, clocks), ("issue", clocks)) if valu.unit != "issue" else (("issue", clocks),)
        steps.append(
            Step(f"join {s.name}.{r}", "compute", resources, valu.latency, uses, (("w", n.id, r),), join, "", n.loc)
        )
    return steps


def direct_steps(low: Lowering, n: Node) -> list[Step]:
    """A read straight into registers, one step per vector."""
    b = low.b
    if not is_tile(low.graph, n):
        return mapped_steps(low, n)
    info, extents, strides = low.view(n)
    layout, plans = low.layout(n), low.plans
    unit = low.units(n)
    if unit is not None:
        info, layout, plans = unit.info, unit.layout, unit.plans
        extents, strides = unit.extents(b, extents), unit.strides(strides)
    width, bits = vector_elements(info, layout, plans, False)
    steps = []
    resources, latency = low.memory_cost("load.global", width * info.elsize)
    loop_dim = low.loop_dim
    moves = low.moves_with(info.names, loop_dim)
    placed_by = coordinate_keys(low, n)
    found = placement(low.graph, n)
    assert found is not None
    late = loop_dim is not None and not all(runs_ahead(low, x, low.region_of(n)) for x in found.numbers())
    kind = "compute" if late else "gload"

    def access_at(context: Context, plans: Mapping[str, DimPlan]) -> tuple[GlobalAccess, Value | None]:
        position, inside, limits = low.located(n, context, low.base_at(context.iteration) if moves else None)
        if unit is not None:
            position = unit.position(b, position)
        access = GlobalAccess(
            b, info, layout, position, plans, low.target, extents, strides, store=False, limits=limits
        )
        return access, inside

    for g, group in enumerate(element_groups(layout, bits)):

        def load(context: Context, g: int = g, group: tuple[int, ...] = group) -> None:
            access, inside = access_at(context, plans)
            guard = both(b, context.guard if moves else None, inside)
            if never(guard):
                context.env["f", n.id, g] = b.zero(vector(max(width * info.elsize // 4, 1)))
                return
            context.env["f", n.id, g] = load_group(b, access, n.dtype, group, width, guard, n.attrs.get("cache"))
            if moves:
                ask(low, n, context, plans, access_at, layout.coords(group[0]), width * info.elsize)

        step = Step(f"load {info.name}.{g}", kind, resources, latency, placed_by, (("f", n.id, g),), load, "", n.loc)
        step.words = max(1, width * info.elsize // 4)
        step.array = info.name
        steps.append(step)
    return steps


def coordinate_keys(low: Lowering, n: Node) -> tuple[Key, ...]:
    """Keys of the numbers that say where the tile of a read lies."""
    found = placement(low.graph, n)
    assert found is not None
    return tuple(dict.fromkeys(k for x in found.numbers() for k in low.keys(x)))


def runs_ahead(low: Lowering, x: Node, region: Any) -> bool:
    """Whether a single number of a region may be computed before its iteration: from other such numbers and loads."""
    if low.region_of(x) is not region:
        return True
    if x.op == "read":
        found = placement(low.graph, x)
        return found is not None and all(runs_ahead(low, y, region) for y in found.numbers())
    plain = ROWS[x.op].compute is not None or x.op in ("constant", "size", "tile_start", "tile_stop", "index", "cast")
    return plain and not x.dims and all(runs_ahead(low, y, region) for y in x.inputs)


def mapped_steps(low: Lowering, n: Node) -> list[Step]:
    """A gather, one step per vector. Indices that the loop computes keep it among what is computed; other gathers may
    run ahead like any load."""
    from wavedsl.ir.lower_mapped import MappedAccess, mapped_groups

    b, layout = low.b, low.layout(n)
    info = low.arrays[n.attrs["memory"]]
    width, groups = mapped_groups(low, n, layout, False)
    size = width * info.elsize
    resources, latency = low.memory_cost("load.global", size)
    uses = tuple(dict.fromkeys(k for x in n.inputs for k in low.keys(x)))
    kind = "compute" if any(low.region_of(x) is low.region_of(n) for x in n.inputs) else "gload"
    accesses: dict[Any, MappedAccess] = {}
    steps = []
    for g, group in enumerate(groups):

        def load(context: Context, g: int = g, group: tuple[int, ...] = group) -> None:
            if never(context.guard):
                context.env["f", n.id, g] = b.zero(vector(max(size // 4, 1)))
                return
            at = context.iteration if isinstance(context.iteration, int) else context.iteration.id
            access = accesses.get(at)
            if access is None:
                accesses.clear()
                access = accesses[at] = MappedAccess(low, n, layout, context, store=False)
            context.env["f", n.id, g] = access.load(group[0], size, context.guard, n.attrs.get("cache"))

        step = Step(f"gather {info.name}.{g}", kind, resources, latency, uses, (("f", n.id, g),), load, "", n.loc)
        step.words = max(1, size // 4)
        step.array = info.name
        steps.append(step)
    return steps


def holds_loop(region: Region) -> bool:
    """Whether another loop, or a condition, lies directly inside this region."""
    return any(n.op in REGIONS for n in region.nodes)
