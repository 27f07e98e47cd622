"""Lowering of regions: loops over tiles, conditions, repetitions, and the nodes in them.

Each region of the graph becomes a list of `Step`s (`steps.py`); a loop body is software-pipelined, straight code and
loops that hold loops are emitted as written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from wavedsl.ir.addresses.coordinates import scaled
from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Node, Region, ValueType, next_values, region_nodes
from wavedsl.ir.dataflow.ops import MADE_ANYWHERE, ROWS
from wavedsl.ir.dataflow.views import placement
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.inference.write_back import loops_around
from wavedsl.ir.kernel.kernel_ir import ENDLESS, I32, I64, Value
from wavedsl.ir.kernel.passes import verifying
from wavedsl.ir.layouts.fragment import Fragment, chunk_count, standard
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.exchange import convert
from wavedsl.ir.lower.late_numbers import by_element
from wavedsl.ir.lower.late_parts import Parts, adds_parts
from wavedsl.ir.lower.late_reads import compute_ahead, is_late, late_step
from wavedsl.ir.lower.late_sums import added_up, late_sums, started_once
from wavedsl.ir.lower.loop_range import loop_range
from wavedsl.ir.lower.loop_registers import kept_in_shared, room_for_loads, scarce_registers
from wavedsl.ir.lower.lower_async import async_steps, registers_wanted_behind, started_by_product, undefined
from wavedsl.ir.lower.lower_matrix import mma_steps, operands_before
from wavedsl.ir.lower.lower_values import emit_fill, emit_node
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.lowering_notes import LoopNote
from wavedsl.ir.lower.product_order import operands_first, products_together
from wavedsl.ir.lower.rings import wait_full
from wavedsl.ir.lower.sums_of_sums import in_parts
from wavedsl.ir.regions.branch_reads import buffers_read, find_taken, with_taken
from wavedsl.ir.regions.early_tiles import wait_for_early_tiles
from wavedsl.ir.regions.emit_loop import emit_pipelined, emit_straight, synchronise
from wavedsl.ir.regions.loop_frame import LoopFrame
from wavedsl.ir.regions.own_trips import own_trips
from wavedsl.ir.regions.windows import in_window
from wavedsl.ir.schedule.body_clock import clocks_per_trip
from wavedsl.ir.schedule.body_stages import MANY_TRIPS, hold_back
from wavedsl.ir.schedule.ping_pong import plan as plan_ping_pong
from wavedsl.ir.schedule.ping_pong import problem as ping_pong_problem
from wavedsl.ir.schedule.plan_body import plan_body, program_order, reads_late
from wavedsl.ir.schedule.steps import BodySchedule, Context, Env, Key, Step
from wavedsl.ir.schedule.trips_ahead import ahead_problem, further_ahead
from wavedsl.ir.staging.copy_steps import copy_steps
from wavedsl.ir.staging.lower_reads import direct_steps, fragment_steps, staged_steps
from wavedsl.ir.staging.made_tiles import made_before, store_step
from wavedsl.ir.staging.memory_depth import beside
from wavedsl.ir.staging.plan_reads import (
    holds_loop,
    in_taps,
    invariant_reads,
    plan_staged_reads,
    product_clocks,
    wants_shared,
)


def region_steps(low: Lowering, region: Region, done: Sequence[Node] = (), branch: Node | None = None) -> list[Step]:
    """Steps of one region, of a `branch` maybe, but for the nodes that are `done`; staged reads are planned together so
    that they share the memory budget."""
    nodes = [n for n in region.nodes if n not in done]
    plan_staged_reads(low, region, [n for n in nodes if n.id not in low.reads.kept])
    find_taken(low, region)
    found = [(n, node_steps(low, n)) for n in nodes]
    if branch is not None and branch.id in low.reads.taken.values():
        return with_taken(low, branch, found)
    return [step for _, steps in found for step in steps]


def emit_invariant(
    low: Lowering, region: Region, reads: Sequence[Node], env: Env, nested: bool, made: Sequence[Node] = ()
) -> None:
    """Carry out a loop's invariant reads before it, and what is `made` of them for products to read; their registers
    join what is fixed."""
    if not reads:
        return
    plan_staged_reads(low, region, reads, once=True)
    steps = [s for n in (*reads, *made) for s in node_steps(low, n, once=True)]
    slots = ring_depths(low, steps)
    if nested and slots:
        low.b.barrier()  # the last trip's readers of these buffers are done before they are filled again
    for n in reads:
        if n.id in low.reads.ring_of:
            wait_full(low, low.reads.ring_of[n.id])
    emit_before(low, env, steps, slots)
    if made:
        synchronise(low.b, None)


def emit_before(low: Lowering, env: Env, steps: Sequence[Step], slots: Mapping[str, int]) -> None:
    """Carry out steps in front of a loop; what they make joins what is fixed in it."""
    inner = Env(env.fixed)
    emit_straight(low.b, program_order(steps, slots, cyclic=False), steps, inner)
    for s in steps:
        for key in s.defs:
            env.fixed[key] = inner[key]


def ring_depths(low: Lowering, steps: Sequence[Step]) -> dict[str, int]:
    """Ring depth of every shared buffer that the steps use."""
    return {s.buffer: low.room.depths[s.buffer] for s in steps if s.buffer}


COUNTED = ("tile_start", "tile_stop", "constant", "size", "scalar", "index", "add", "sub", "mul")
"""Operations whose single numbers follow from an iteration's number by additions that a loop can make as it goes."""


def node_steps(low: Lowering, n: Node, once: bool = False) -> list[Step]:
    """The steps of one node; `once`: those that use it are in a loop that comes later."""
    if n.id in low.placing:
        return []
    if n.id in low.reads.ring_of:
        return fragment_steps(low, n) if n.id in low.reads.fetched else []
    if n.id in low.reads.kept and not once:
        return fragment_steps(low, n)
    if n.op == "read":
        if n.id in low.reads.taken:
            steps = [] if low.reads.staged[n.id].copied_by is not None else copy_steps(low, n)
        else:
            steps = staged_steps(low, n, once) if n.id in low.reads.staged else direct_steps(low, n)
        if is_late(low, n):
            return [late_step(low, n, steps)]
        for s in steps:
            if s.kind in ("gload", "acopy"):
                s.array = n.attrs["memory"]
        return steps
    if n.op in PRODUCTS:
        if low.inference.mmas[n.id].atom.asynchronous:
            return async_steps(low, n)
        return mma_steps(low, n)
    if n.op in REGIONS:
        return [loop_step(low, n)]
    if n.op == "result" and n.inputs[0].op in REGIONS:
        return []
    uses = tuple(k for x in _needs(low, n) for k in low.keys(x))
    kind = "effect" if ROWS[n.op].effect else "scalar" if _single(n) else "compute"
    clocks = low.issue_clocks()
    if isinstance(n.type, ValueType) and n.op not in ("fill", "constant", "scalar", "size"):
        clocks *= max(1, low.layout(n).elements_per_lane)
    defs = low.keys(n) if n.type is not None else ()

    def emit(context: Context, n: Node = n) -> None:
        emit_node(low, n, context)

    resources, latency = low.valu_cost(clocks)
    # The last of its elements is ready when all have been issued.
    latency += clocks - low.issue_clocks()
    step = Step(f"{n.op} %{n.id}", kind, resources, latency, uses, defs, emit, "", n.loc)
    step.light = kind != "effect" and (by_element(n) or n.op in MADE_ANYWHERE or kind == "scalar")
    step.anew = kind == "scalar" and n.op in COUNTED and n.dtype.is_int
    if kind == "effect" and "memory" in n.attrs:
        step.writes = (n.attrs["memory"],)
    if n.op == "fence":  # no access may pass it
        step.writes = tuple(a.name for a in low.graph.arguments if a.kind == "memory")
    return [step, store_step(low, n)] if n.id in low.reads.made else [step]


def _needs(low: Lowering, n: Node) -> Sequence[Node]:
    """What a node is carried out on: its operands; of a write whose place single numbers say, its value and these."""
    placed = placement(low.graph, n) if n.op == "write" and n.attrs.get("mapping") is not None else None
    return n.inputs if placed is None else (n.inputs[0], *placed.numbers())


def _single(n: Node) -> bool:
    """Whether a node computes a single number from single numbers, such as where a tile lies."""
    return all(isinstance(x.type, ValueType) and not x.dims for x in (n, *n.inputs)) and "body" not in n.attrs


def loop_step(low: Lowering, n: Node) -> Step:
    """A whole inner loop as one step of its region."""
    region: Region = n.attrs["body"]
    uses = tuple(k for x in n.inputs for k in low.keys(x)) + captured_keys(low, region)
    defs = tuple(
        ("r", n.id, position, c)
        for position, carry in enumerate(region.carries)
        for c in range(chunk_count(low.layout(carry), carry.dtype))
    )

    def emit(context: Context) -> None:
        {"iterate": emit_loop, "when": emit_when, "repeat": emit_repeat}[n.op](low, n, region, context)

    name = f"iterate {region.dim} %{n.id}" if n.op == "iterate" else f"{n.op} %{n.id}"
    step = Step(name, "effect", (("issue", 1),), 1, uses, defs, emit, "", n.loc)
    step.loop = n.op != "when"
    if n.op == "when":
        step.reads = buffers_read(low, n)
        if clocks := product_clocks(low, region):
            step.resources, step.latency = (("mfma", clocks), ("issue", clocks)), clocks
    step.writes = tuple(
        dict.fromkeys(x.attrs["memory"] for x in region_nodes(region) if "memory" in x.attrs and ROWS[x.op].effect)
    )
    return step


def captured_keys(low: Lowering, region: Region) -> tuple[Key, ...]:
    """Keys of values made outside a region and used inside it."""
    inside = {x.id for x in region_nodes(region)}
    out: dict[Key, None] = {}
    for x in region_nodes(region):
        for y in x.inputs:
            if y.id not in inside and y.id not in low.reads.taken:
                for k in low.keys(y):
                    out.setdefault(k)
    for y in region.yields:
        if y.id not in inside:
            for k in low.keys(y):
                out.setdefault(k)
    return tuple(out)


def emit_loop(low: Lowering, n: Node, region: Region, context: Context) -> None:
    """A loop over tiles: what it carries in, what is done once before it, its trips, and what they leave."""
    dim = str(region.dim)
    env, outer_dim, outer_base = enter(low, context)
    nested = bool(loops_around(low.graph, n))
    first, trips = loop_range(low, n, dim, context.env)
    own = None if nested else own_trips(low, n, dim, env, first, trips)
    low.loop_dim = dim
    low.first[dim] = scaled(low.b, first, low.plans[dim].tile)
    sums = late_sums(low, region)
    low.matrix.late_sums |= {x.id for part in sums.values() for x in in_parts(low, part)}
    carried = _first_values(low, n, region, sums, trips, context.env)
    emit_before(low, env, operands_before(low, region), {})
    once = invariant_reads(low, region)
    whole = in_taps(low, region) or (isinstance(trips, int) and trips < 2)
    if not whole and not once and not sums and adds_parts(low, n, region):
        parts = Parts(low, n, region, env, region_steps(low, region), trips, low.base, low.first.pop(dim))
        low.loop_dim, low.base = outer_dim, outer_base
        promises = [parts.result(i) for i in range(len(region.carries))]
        deliver(low, n, region, context, [p for p, c in zip(promises, region.carries) for _ in low.keys(c)])
        return
    low.reads.kept |= kept_in_shared(low, region, once, carried)
    made = made_before(low, region, once)
    emit_invariant(low, region, once, env, nested, made)
    once = [x for x in once if x.id not in low.reads.kept]
    steps = region_steps(low, region, [*once, *made])
    while low.reads.settled:
        low.reads.settled.pop(0)(env)
    low.labels += 1
    slots = ring_depths(low, steps)
    if nested and slots:
        low.b.barrier()  # the last trip's readers of these buffers are done before they are filled again
    chunk_steps, next_keys = yield_steps(low, list(zip(region.carries, region.yields)))
    frame = LoopFrame(low, region, steps + chunk_steps, env, trips, carried, next_keys, f"{dim}{low.labels}", own)
    if trips == 0:
        low.unreached |= {x.id for x in region_nodes(region)}
        results = [v for _, v in carried]
    elif low.matrix.strategy.bulk:
        results = _ring_trips(frame, slots)
    elif trips == 1:
        results = _single_trip(frame, slots)
    elif own is None and not isinstance(trips, int) and trips.hi is not None and trips.hi <= 1:
        # A pipeline would read the fragments of a second trip, for which nothing was copied.
        results = frame.unless_empty(lambda: _single_trip(frame, slots))
    elif in_taps(low, region):
        results = _trips_in_taps(frame, slots)
    else:
        results = _pipelined_trips(frame, slots, once)
    deliver(low, n, region, context, _summed(low, region, sums, results))
    low.loop_dim, low.base = outer_dim, outer_base
    del low.first[dim]


def _first_values(
    low: Lowering, n: Node, region: Region, sums: Mapping[int, Node], trips: Any, env: Env
) -> list[tuple[Key, Value]]:
    """What a loop carries into its first trip, chunk by chunk; nothing that its first product overwrites."""
    carried: list[tuple[Key, Value]] = []
    for i, (init, carry) in enumerate(zip(n.inputs, region.carries)):
        if started_by_product(low, region, init, carry, trips) and not registers_wanted_behind(low, n):
            value = undefined(low, carry)
            low.matrix.zero_started.add(carry.id)
        else:
            value = standard(low.b, first_value(low, n, i, env))
            if carry.id in sums:
                value = started_once(low, sums[carry.id], init, value)
        carried += list(zip(low.keys(carry), value.chunks))
    return carried


def _summed(low: Lowering, region: Region, sums: Mapping[int, Node], results: Sequence[Value]) -> list[Value]:
    """The results of a loop's trips, with the sums whose parts were left apart added up."""
    found: list[Value] = []
    for carry in region.carries:
        chunks = results[len(found) : len(found) + chunk_count(low.layout(carry), carry.dtype)]
        found += added_up(low, sums[carry.id], chunks) if carry.id in sums else chunks
    return found


def _ring_trips(frame: LoopFrame, slots: Mapping[str, int]) -> list[Value]:
    """A loop whose tiles bulk copies bring to rings."""
    from wavedsl.ir.regions.ring_loops import emit_ring_loop  # what chips without bulk copies never need

    low, region, dim = frame.low, frame.region, str(frame.region.dim)
    frame = replace(frame, steps=products_together(low, operands_first(low, frame.steps)))
    body = program_order(frame.steps, slots, cyclic=frame.trips != 1)
    rings = [ring.slots for ring in low.reads.rings if ring.region is region]
    deepest = max(rings, default=max(slots.values(), default=1))
    low.notes.loops.append(LoopNote(frame.label, frame.steps, body, deepest, low.plans[dim].trips, dim))
    wait_for_early_tiles(low, region, body, frame.steps)
    return emit_ring_loop(frame, body)


def _single_trip(frame: LoopFrame, slots: Mapping[str, int]) -> list[Value]:
    """The only trip of a loop: no loop."""
    low, steps = frame.low, frame.steps
    inner = frame.env_with(frame.carried)
    if in_taps(low, frame.region):
        body = in_window(low, steps, slots)
    else:
        steps = reads_late(steps, room_for_loads(low, frame.carried))
        body = program_order(steps, slots, cyclic=False)
    wait_for_early_tiles(low, frame.region, body, steps)
    emit_straight(low.b, body, steps, inner, 0)
    inner.iteration = 0
    return [inner[k] for k in frame.next_keys]


def _trips_in_taps(frame: LoopFrame, slots: Mapping[str, int]) -> list[Value]:
    """A loop whose products get their operands one after the other, across its trips."""
    hold_back(frame.steps, frame.after)
    body = in_window(frame.low, frame.steps, slots, cyclic=True)
    _begin_trips(frame, body, 1)
    return emit_pipelined(frame, body)


def _begin_trips(frame: LoopFrame, body: BodySchedule, depth: int) -> None:
    """Note a pipelined loop, whose rings have so many slots, and wait for what it finds in shared memory."""
    low, dim = frame.low, str(frame.region.dim)
    known = frame.trips if isinstance(frame.trips, int) else None
    most = known if known is not None else low.plans[dim].trips
    low.notes.loops.append(LoopNote(frame.label, frame.steps, body, depth, known, dim, most))
    wait_for_early_tiles(low, frame.region, body, frame.steps)


def _pipelined_trips(frame: LoopFrame, slots: Mapping[str, int], once: Sequence[Node]) -> list[Value]:
    """A software-pipelined loop; one around other loops is emitted as written. `once`: reads that registers hold over
    all trips."""
    low, region, steps, dim = frame.low, frame.region, frame.steps, str(frame.region.dim)
    depth, room = max(slots.values(), default=1), room_for_loads(low, frame.carried)
    if holds_loop(region, lambda n: wants_shared(low, n)):
        body = program_order(steps, slots, cyclic=True)
    else:
        body = plan_body(
            steps, slots, frame.after, clock=low.target.clock_unit, ahead=max(1, depth - 1), modulo=low.choices.modulo,
            batch=low.target.batch_words, room=room, scarce=scarce_registers(low, region, once, frame.carried),
            check=verifying(), beside=beside(low), places=int(not low.target.scalar_registers),
            many=not isinstance(frame.trips, int) or frame.trips >= MANY_TRIPS, first=frame.label in low.choices.first,
        )  # fmt: skip
    body = alternating(low, steps, slots, body, room)
    ahead = dict(low.choices.ahead).get(frame.label, 1)
    if ahead > 1 and low.plans[dim].parts == 1 and not ahead_problem(body, steps):
        body = further_ahead(body, ahead)
    _begin_trips(frame, body, depth)
    return emit_pipelined(frame, body, low.plans[dim].parts, apart=bool(body.raised))


def alternating(
    low: Lowering, steps: Sequence[Step], slots: Mapping[str, int], body: BodySchedule, room: int
) -> BodySchedule:
    """The ping-pong schedule of a loop where the user asks for it or it is predicted faster, else `body`."""
    asked = low.choices.ping_pong
    if asked is False or not low.target.waves_alternate:
        return body
    why = ping_pong_problem(steps, slots, low.partition.waves, low.target.simds)
    if why:
        low.notes.plain = low.notes.plain or why
        return body
    found = plan_ping_pong(steps, slots, low.target.clock_unit, room)
    if found is None:
        low.notes.plain = low.notes.plain or f"fragments and loads in flight do not fit {room} registers"
        return body
    if not asked:
        plain, apart = (clocks_per_trip(x, steps, low.partition.waves, low.target) for x in (body, found))
        found.why = f"a trip is predicted to take {apart:.0f} clocks, {plain:.0f} with all waves in step"
        if apart >= plain:
            low.notes.plain = f"two groups half a trip apart would take {apart:.0f} clocks a trip, not {plain:.0f}"
            return body
    return found


def enter(low: Lowering, context: Context) -> tuple[Env, str | None, dict[str, Any]]:
    """(values so far as fixed ones, the open loop's dimension, its tile starts) for a region inside the open loop: it
    works where the current iteration's tile lies, and until it says otherwise it is no loop over tiles."""
    outer_dim, outer_base = low.loop_dim, dict(low.base)
    if outer_dim is not None:
        low.base[outer_dim] = low.trip_base(outer_dim, context.iteration)
    low.loop_dim = None
    env = Env(context.env.fixed)
    for (key, it), v in context.env.values.items():
        if it == context.env.iteration:
            env.fixed[key] = v
    return env, outer_dim, outer_base


def emit_region(
    low: Lowering, n: Node, region: Region, env: Env, carried: Sequence[tuple[Key, Value]], cyclic: bool,
    iteration: Any = 0,
) -> list[Value]:  # fmt: skip
    """A region as written, once; what it yields for what is carried. `env` is extended. `iteration`: the trip around it
    that it is part of, which says where tiles lie that were copied for it."""
    for key, v in carried:
        env.fixed[key] = v
    steps = region_steps(low, region, branch=n)
    slots = ring_depths(low, steps)
    if slots:
        low.b.barrier()  # readers of these buffers, of an earlier pass, are done
    chunk_steps, next_keys = yield_steps(low, list(zip(region.carries, next_values(n))))
    steps += chunk_steps
    ringed = any(x.id in low.reads.ring_of or _runs_beside(low, x) for x in region_nodes(region))
    body = program_order(steps, slots, cyclic=cyclic, around_loops=not ringed)
    wait_for_early_tiles(low, region, body, steps)
    if ringed:
        from wavedsl.ir.regions.ring_loops import emit_once  # what chips without bulk copies never need

        emit_once(low, region, body, steps, env)
    else:
        emit_straight(low.b, body, steps, env, iteration)
    env.iteration = 0
    return [env[k] for k in next_keys]


def _runs_beside(low: Lowering, n: Node) -> bool:
    """Whether a node is a product that runs on beside what follows it, and says itself when its tiles are read."""
    return low.matrix.strategy.bulk and n.op in PRODUCTS and low.inference.mmas[n.id].atom.asynchronous


def initial_chunks(low: Lowering, n: Node, region: Region, env: Env) -> list[tuple[Key, Value]]:
    """What a node carries into its region, chunk by chunk."""
    carried: list[tuple[Key, Value]] = []
    for i, carry in enumerate(region.carries, n.op == "when"):  # which has its condition first
        value = standard(low.b, first_value(low, n, i, env))
        carried += list(zip(low.keys(carry), value.chunks))
    return carried


def first_value(low: Lowering, n: Node, position: int, env: Env) -> Fragment:
    """What a node of `REGIONS` starts from, in the layout that its region carries it in."""
    source, wanted = n.inputs[position], low.inference.demands.get((n.id, position))
    if wanted is not None and source.op in ("fill", "constant"):
        return emit_fill(low, source, wanted)
    value = low.value(source, env)
    return value if wanted is None else convert(low, value, wanted)


def deliver(low: Lowering, n: Node, region: Region, context: Context, results: Sequence[Any]) -> None:
    """File a node's results, or what stands for them until they are asked for, under their keys."""
    found = iter(results)
    for i, carry in enumerate(region.carries):
        for c in range(chunk_count(low.layout(carry), carry.dtype)):
            context.env["r", n.id, i, c] = next(found)


def same_for_all(low: Lowering, condition: Node, env: Env) -> Value:
    """A single condition as a uniform predicate: every lane of every wave has the same."""
    return low.b.any_lane(low.value(condition, env).element(low.b, 0), workgroup=True)


def emit_when(low: Lowering, n: Node, region: Region, context: Context) -> None:
    """A branch of the whole workgroup. Where it is not taken, what is carried stays."""
    from wavedsl.ir.regions.copying import in_branch  # what kernels without branches never need

    flag = same_for_all(low, n.inputs[0], context.env)
    if flag.const is False:
        low.unreached |= {x.id for x in region_nodes(region)}
    carried = initial_chunks(low, n, region, context.env)
    if low.matrix.strategy.bulk:
        from wavedsl.ir.regions.ring_loops import wait_for_brought  # what chips without bulk copies never need

        wait_for_brought(low, region)
    env, outer_dim, outer_base = enter(low, context)
    # Sums' registers hold what is computed of them: in front of a branch it would stand beside them.
    at = context.iteration
    results = in_branch(
        low, flag, region, [v for _, v in carried], lambda: emit_region(low, n, region, env, carried, False, at),
        stay=low.computes_late(region), one_of=n.attrs.get("one_of"), busiest=n.attrs.get("busiest"),
    )  # fmt: skip
    low.loop_dim, low.base = outer_dim, outer_base
    deliver(low, n, region, context, results)


def emit_repeat(low: Lowering, n: Node, region: Region, context: Context) -> None:
    """A loop that ends after the trip whose condition does not hold."""
    b = low.b
    carried = initial_chunks(low, n, region, context.env)
    env, outer_dim, outer_base = enter(low, context)
    low.labels += 1
    inits = [b.true, *(v for _, v in carried)]
    with b.for_(0, ENDLESS, 1, inits, label=f"while{low.labels}", again=True, min_trips=1) as loop:
        inside = [(key, v) for (key, _), v in zip(carried, loop.carried[1:])]
        results = emit_region(low, n, region, env, inside, True)
        loop.yield_([same_for_all(low, region.yields[-1], env), *results])
    low.loop_dim, low.base = outer_dim, outer_base
    deliver(low, n, region, context, loop.results[1:])


def relaid(low: Lowering, value: Fragment, layout: Layout) -> Fragment:
    """A value that a loop yields in the layout that the loop keeps it in."""
    return value if same_layout(value.layout, layout) else convert(low, value, layout)


def yield_steps(low: Lowering, pairs: Sequence[tuple[Node, Node]]) -> tuple[list[Step], list[Key]]:
    """Steps that bring yielded values into the chunks the loop carries, and the keys of those: one per carried key."""
    steps: list[Step] = []
    next_keys: list[Key] = []
    for i, (carry, last) in enumerate(pairs):
        mine, theirs = low.keys(carry), low.keys(last)
        if last.op in (*PRODUCTS, "carry") and len(mine) == len(theirs) and theirs[0][0] != "v":
            next_keys += theirs
            continue
        made = tuple(("y", carry.id, c) for c in range(len(mine)))

        def emit(context: Context, last: Node = last, made: tuple[Key, ...] = made, carry: Node = carry) -> None:
            found = low.value(last, context.env)
            compute_ahead(low, found)
            value = standard(low.b, relaid(low, found, low.layout(carry)))
            for key, chunk in zip(made, value.chunks):
                # Addresses in the loop may rest on a single number's being the same in all lanes; some hold parts.
                parts = any(x.id in low.matrix.late_sums for x in last.inputs)
                alone = not carry.dims and not parts and chunk.type in (I32, I64)
                context.env[key] = low.b.readfirst(chunk, same=True) if alone and not chunk.uniform else chunk

        # A value that is handed on as it is needs not even be there: a product may still be adding to it.
        kind = "yield" if last.op in PRODUCTS and same_layout(low.layout(last), low.layout(carry)) else "compute"
        steps.append(Step(f"yield {i}", kind, (), 0, tuple(theirs), made, emit, "", last.loc))
        next_keys += made
    return steps, next_keys
