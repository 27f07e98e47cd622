"""Order and stages of a body: software pipelining of a loop, or the program's own order.

In: the `Step`s of one iteration (loads, shared stores, fragment loads, matrix instructions, everything else), the
ring depth of each shared buffer, what the loop carries. Out: a `BodySchedule`.

The loop runs exactly as many trips as there are iterations, its prologue holds copies only, and copies past the end
are switched off by a guard: there is no remainder loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from wavedsl.ir.errors import CompileError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.body_stages import (
    align,
    direct_words,
    hold_back,
    loads_first,
    numbers_first,
    one_trip,
    pinned_span,
    stages_of_kinds,
)
from wavedsl.ir.schedule.early_loads import early_loads
from wavedsl.ir.schedule.modulo import ModuloSchedule, hoist, list_schedule_with_stages, modulo_schedule, sink
from wavedsl.ir.schedule.place_barriers import place_barriers
from wavedsl.ir.schedule.schedule_bounds import SchedEdge, SchedNode
from wavedsl.ir.schedule.schedule_check import verify_schedule
from wavedsl.ir.schedule.schedule_registers import Value as Held
from wavedsl.ir.schedule.schedule_registers import lighten, max_live
from wavedsl.ir.schedule.step_edges import batch_edges, dependences, reads_after_partners
from wavedsl.ir.schedule.steps import BodySchedule, Context, Key, Step

MODULO_STEPS = 200
"""Most steps of a body that is modulo-scheduled; longer ones are list-scheduled with the stages of their kinds."""

LIGHT_STEPS = 64
"""Most steps of a body whose order is searched for fewer registers."""
SLOWER = 17 / 16
"""How much longer a trip may become for them: less than what the latencies are known to."""


LEADS = (512, 256, 128, 64)
"""Clocks by which reads may start early (`_reads_ahead`): half a trip of a wave of 64 x 32 at most."""
LONG_PRODUCT = 32
"""Clocks of a matrix instruction from which on reads find room beside any order of them (`in_turn`)."""
READ_LEAD = 256
"""Clocks by which reads are issued before matrix instructions that fill their unit (`early_reads`)."""
ROUNDS = 32
"""Most rounds in which reads, copies and the barrier between them make room for each other."""


@dataclass(frozen=True)
class _Work:
    """What is scheduled: steps with their units in ticks of `clock` clocks. `together`: a trip has one barrier, and it
    is the last of the steps. `beside`: bodies that run on the same units at a time."""

    steps: Sequence[Step]
    slots: Mapping[str, int]
    carried: Mapping[Key, Key]
    clock: int
    together: bool
    nodes: Sequence[SchedNode]
    capacity: Mapping[str, int]
    beside: int

    def of_kinds(self, *kinds: str) -> list[int]:
        """Positions of the steps of these kinds, kind by kind."""
        return [i for kind in kinds for i, s in enumerate(self.steps) if s.kind == kind]

    @property
    def asynchronous(self) -> bool:
        """Whether there are copies that nobody waits for until a barrier."""
        return any(s.kind == "acopy" for s in self.steps)

    @property
    def busiest(self) -> int:
        """Ticks of an iteration on the unit that has the most to do."""
        busy: dict[str, int] = {}
        for n in self.nodes:
            for u, c in n.resources:
                busy[u] = busy.get(u, 0) + c
        return max(busy.values(), default=1)

    def edges(self, load_latency: int, whole: bool = False) -> list[SchedEdge]:
        """`dependences` with global loads of so many clocks."""
        return dependences(self.steps, self.slots, self.carried, self.clock, load_latency, whole=whole)

    def arrivals(self, schedule: ModuloSchedule) -> dict[int, int]:
        """Global load → the latest start at which it has arrived when it is used first, if it takes as long as its
        step says."""
        maker = {k: i for i, s in enumerate(self.steps) if s.kind == "gload" for k in s.defs}
        found: dict[int, int] = {}
        for i, s in enumerate(self.steps):
            for j in sorted({maker[k] for k in s.uses if k in maker}):
                start = schedule.times[i] - -(-self.steps[j].latency // self.clock)
                found[j] = min(found.get(j, start), start)
        return found

    def words(self, schedule: ModuloSchedule) -> int:
        """32-bit registers that hold what was loaded, at the worst moment."""
        return sum(max_live(schedule, held(self.steps)).values())


class _Choice(NamedTuple):
    """A schedule, times within the trip and stages of its steps, and the edges that it was made for."""

    schedule: ModuloSchedule
    times: list[int]
    stages: list[int]
    edges: Sequence[SchedEdge]


LEAST_BATCH = 32
"""Registers of copies that are on their way together where there is room for fewer: eight of 16 bytes. And of reads
that start early."""


def plan_body(
    steps: Sequence[Step],
    slots: Mapping[str, int],
    carried: Mapping[Key, Key],
    *,
    clock: int,
    ahead: int,
    modulo: bool = True,
    registers: int = 96,
    batch: int = 0,
    room: int = 256,
    scarce: int = 256,
    check: bool = True,
    beside: int = 1,
    places: int = 0,
    many: bool = False,
    first: bool = False,
) -> BodySchedule:
    """Choose order and stages of a pipelined body: the shorter of modulo scheduling and list scheduling with fixed
    stages. Where every ring has at least two slots one barrier per trip suffices, and it is scheduled like a step.

    `ahead`: iterations that asynchronous copies run before their use (ring depth - 1). `registers`: 32-bit registers
    that loads straight into fragments may hold a trip ahead, `room` at most; a body that loads more loads when it
    computes. `batch`: registers of shared reads that are waited for together (`batch_edges`), as long as what loads
    hold stays within `room`. `scarce`: registers that loads may hold before reads wait for the values they are
    multiplied with. `beside`: workgroups that share the units. `check`: re-derive every dependence and unit of the
    schedule (`schedule_check`). Copies through registers whose loads alone would hold more than `room` from trip to
    trip (bytes that lie on no word's boundary take one each) do not run ahead. `places`: registers of where a load lies
    that lanes hold beside: none where scalar registers have it. `many`: whether it has `MANY_TRIPS`, or nobody knows.
    `first`: whether loads come first, however many registers they take (`loads_first`).
    """
    hold_back(steps, carried)
    work = _work(steps, slots, carried, clock, beside)
    crowded = direct_words(work.steps) > min(registers, room)
    stages = stages_of_kinds(work.steps, ahead, crowded)
    needed = work.edges(load_latency=1)
    try:
        before = loads_first(work.steps, stages, many, first)
        plain = list_schedule_with_stages(
            work.nodes, needed, work.capacity, stages, numbers_first(work.steps), before
        )
    except CompileError:
        # Reads and writes of one array leave no order with these stages: keep the order of the program.
        return program_order(steps, slots, cyclic=True)
    if len(work.steps) > MODULO_STEPS:
        # List scheduling starts what is ready: fragments would wait in registers for half a trip.
        late, held = sink(plain, work.nodes, needed, work.capacity, work.of_kinds("sread")), room
        if min(slots.values(), default=2) == 1:
            # Copies into the only slot start when the last read is done, and hold reads early.
            held = min(room, max(scarce, LEAST_BATCH))
            if work.words(late) > room:
                late = settle(late, work.nodes, needed, work.capacity, work.steps)
        plain = _reads_ahead(work, late, needed, held)
    chosen = None
    if modulo and not crowded and len(work.steps) <= MODULO_STEPS:
        chosen = _modulo(work, ahead, batch, room, longest=plain.ii)
    if chosen is None:
        listed = _Choice(plain, [], stages, needed)
        chosen = _later(work, listed, scarce) if len(work.steps) > LIGHT_STEPS else _lighter(work, listed, before)
        if batch:  # an assembler that orders instructions itself moves loads
            chosen = _loads_early(work, chosen, room)
    ahead_words = _ahead_words(steps, chosen.stages)
    least = room - places * sum(s.kind == "gload" for s in steps)
    if ahead_words and ahead_words > least:
        return program_order(steps, slots, cyclic=True, room=max(least, LEAST_BATCH))
    if check:
        verify_schedule(work.nodes, chosen.edges, work.capacity, chosen.schedule)
    body = _body_of(chosen, clock)
    if work.together:
        _extract_barrier(body, len(steps))
    place_barriers(body, steps, slots, at=body.barriers)
    return body


def _work(
    steps: Sequence[Step], slots: Mapping[str, int], carried: Mapping[Key, Key], clock: int, beside: int = 1
) -> _Work:
    """The steps, and a barrier where one a trip suffices, with the units that they occupy."""
    together = bool(slots) and min(slots.values()) > 1
    if together:
        steps = [*steps, Step("barrier", "barrier", (("issue", clock),), clock, (), (), _no_emit)]
    units = sorted({u for s in steps for u, _ in s.resources})
    nodes = [
        SchedNode(i, tuple((u, max(1, -(-c // clock))) for u, c in s.resources if c), s.name)
        for i, s in enumerate(steps)
    ]
    return _Work(steps, slots, carried, clock, together, nodes, dict.fromkeys(units, 1), beside)


def _body_of(chosen: _Choice, clock: int) -> BodySchedule:
    schedule, times, stages, _ = chosen
    order = sorted(range(len(times)), key=lambda i: (times[i], i))
    count = max(stages, default=0) + 1
    ii, mii = schedule.ii * clock, schedule.mii * clock
    return BodySchedule(order, stages, count, {}, (), ii, mii, schedule.kind, times, clock)


# ---- modulo scheduling -----------------------------------------------------------------------------------------------


def _modulo(work: _Work, ahead: int, batch: int, room: int, longest: int) -> _Choice | None:
    """The first wish that a modulo schedule of at most `longest` ticks comes true for; None if there is none."""
    steps, nodes, capacity = work.steps, work.nodes, work.capacity
    attempts = _attempts(work, ahead, batch)
    known: list[tuple[list[SchedEdge], ModuloSchedule | None]] = []
    if len(steps) > LIGHT_STEPS:
        # A large body that no schedule is found for without the wishes will not have one with them.
        edges = attempts[-1][0]
        least = pinned_span(steps, nodes, edges) + 1
        found = modulo_schedule(nodes, edges, capacity, max_tries=4, max_ii=longest, min_ii=least)
        known.append((edges, found))
        if found is None:
            return None
    if not batch and (turns := in_turn(work)):
        place = 0 if min(e.latency for e in turns) * work.clock >= LONG_PRODUCT else len(attempts)
        attempts.insert(place, ([*early_reads(work, attempts[-1][0]), *turns], []))
    for basis, more in attempts:
        wanted = [*basis, *more]
        found = next((schedule for same, schedule in known if same == wanted), None)
        if found is None and all(same != wanted for same, _ in known):
            try:
                least = pinned_span(steps, nodes, wanted) + 1  # with less no stages could be aligned
                found = modulo_schedule(nodes, wanted, capacity, max_tries=4, max_ii=longest, min_ii=least)
            except CompileError:
                found = None  # reads that should arrive together with ones behind a fence that waits for what they feed
            known.append((wanted, found))
        if found is None:
            continue
        found = _reads_ahead(work, _loads_late(work, found, wanted, room), wanted, room)
        aligned = align(found, steps)
        if aligned is None or (more and work.words(found) > room):
            continue
        return _Choice(found, *aligned, wanted)
    return None


def in_turn(work: _Work) -> list[SchedEdge]:
    """Edges that start matrix instructions in their order, each right behind the one before, also over the loop's back
    edge. Where they fill their unit, one that starts before its neighbours can leaves a gap that only one of the trip
    before fits into; then they span more than a trip, and no stages can be aligned."""
    products = [i for i in work.of_kinds("mma") if any(unit == "mfma" for unit, _ in work.nodes[i].resources)]
    ticks = {i: next(c for unit, c in work.nodes[i].resources if unit == "mfma") for i in products}
    around = zip(products, [*products[1:], *products[:1]])
    return [SchedEdge(i, j, ticks[i], int(j == products[0])) for i, j in around]


def early_reads(work: _Work, edges: Sequence[SchedEdge]) -> list[SchedEdge]:
    """The edges with `READ_LEAD` clocks between a read of shared memory and the product that it is for: all waves read
    at the same time behind a barrier, and what a read takes alone is less than it then takes. Of rings of two slots the
    barrier stays as late as it can: their copies have one trip to arrive."""
    if min(work.slots.values(), default=0) <= 2:
        return list(edges)
    lead = -(-READ_LEAD // work.clock)

    def early(e: SchedEdge) -> bool:
        return work.steps[e.src].kind == "sread" and work.steps[e.dst].kind == "mma" and not e.distance

    return [e._replace(latency=max(e.latency, lead)) if early(e) else e for e in edges]


def _attempts(work: _Work, ahead: int, batch: int) -> list[tuple[list[SchedEdge], list[SchedEdge]]]:
    """(edges, wishes) to try, best first; the last has no wishes."""
    steps, clock = work.steps, work.clock
    trip = work.busiest * clock
    edges = work.edges(max(clock, max(1, ahead) * trip - trip // 2 if work.asynchronous else trip // 2))
    batches = batch_edges(steps, batch, clock)
    if not batches:
        return [(edges, [])]
    # What a load may take is known to a factor of two: best is one that starts most of a trip ahead, and all that
    # are stored together arrive together; that costs registers.
    far = work.edges(max(clock, trip * 3 // 4), whole=True)
    # Registers of a batch are filled again only after the last use of each: where a batch is all that a trip
    # reads, its reads stand between two trips. Half of it leaves the other half to multiply.
    return [
        (far, batch_edges(steps, batch, clock, False)),
        (edges, batches),
        (edges, batch_edges(steps, batch // 2, clock, False)),
        (edges, []),
    ]


def _loads_late(work: _Work, found: ModuloSchedule, wanted: Sequence[SchedEdge], room: int) -> ModuloSchedule:
    """Fragments wait in registers for nothing. Loads from memory may take longer than the edges say, so they start late
    only where registers are short, or where other workgroups compute meanwhile (by the cycle model early loads cost up
    to a fifth there: all wait for memory at the same time), and else as long before their first use as memory takes: at
    most a trip, since their registers are in use until then."""
    late = sink(found, work.nodes, wanted, work.capacity, work.of_kinds("sread"))
    if work.asynchronous and work.together:
        late = settle(late, work.nodes, wanted, work.capacity, work.steps)
    if work.words(late) > room:
        limits = one_trip(found, work.steps)
        return sink(late, work.nodes, wanted, work.capacity, work.of_kinds("sread", "gload"), limits)
    if work.beside > 1:
        return late
    early = hoist(late, work.nodes, wanted, work.capacity, work.arrivals(late))
    return early if work.words(early) <= room else late


def _reads_ahead(work: _Work, late: ModuloSchedule, wanted: Sequence[SchedEdge], room: int) -> ModuloSchedule:
    """Where products are multiply-adds, reads from shared memory start earlier than their latency asks for, as far as
    registers allow: all issue slots are filled, so every clock that a read waits for other waves' reads is lost."""
    if not any(s.kind == "mma" and any(u == "valu" for u, _ in s.resources) for s in work.steps):
        return late
    reads = work.of_kinds("sread")
    for lead in LEADS:
        early = {i: late.times[i] - lead // work.clock for i in reads}
        found = hoist(late, work.nodes, wanted, work.capacity, early)
        if work.words(found) <= room:
            return found
    return late


def settle(
    schedule: ModuloSchedule, nodes: Sequence[SchedNode], edges: Sequence[SchedEdge], capacity: Mapping[str, int],
    steps: Sequence[Step],
) -> ModuloSchedule:  # fmt: skip
    """The schedule with the barrier as late as the first reads behind it allow, and with it the copies that it waits
    for: then reads wait in registers for their products only. They push each other along, a little every round."""
    copies = [i for i, s in enumerate(steps) if s.kind == "acopy"]
    reads = [i for i, s in enumerate(steps) if s.kind == "sread"]
    barrier = [i for i, s in enumerate(steps) if s.kind == "barrier"]
    for _ in range(ROUNDS):
        before = schedule.times
        for group in (copies, barrier, reads):
            schedule = sink(schedule, nodes, edges, capacity, group)
        if schedule.times == before:
            break
    return schedule


# ---- list scheduling with fixed stages -------------------------------------------------------------------------------


def _in_trip(schedule: ModuloSchedule, stages: Sequence[int]) -> list[int]:
    """Start times within the trip."""
    return [t - g * schedule.ii for t, g in zip(schedule.times, stages)]


def _later(work: _Work, plain: _Choice, scarce: int) -> _Choice:
    """A long body: where loads hold more than `scarce` registers, reads come behind what they are multiplied with."""
    schedule, _, stages, needed = plain
    chosen = plain._replace(times=_in_trip(schedule, stages))
    later = reads_after_partners(work.steps)
    words = work.words(schedule)
    if not later or words <= scarce:
        return chosen
    try:
        found = list_schedule_with_stages(work.nodes, [*needed, *later], work.capacity, stages)
    except CompileError:
        return chosen
    if work.words(found) >= words:
        return chosen
    return _Choice(found, _in_trip(found, stages), stages, [*needed, *later])


def _lighter(work: _Work, plain: _Choice, first: Sequence[int]) -> _Choice:
    """A short body: the order that needs the fewest registers in about the same time. `first`: what comes before all
    else."""
    schedule, _, stages, needed = plain
    puts, takes = work.of_kinds("swrite"), work.of_kinds("sread")
    found = lighten(schedule, work.nodes, needed, work.capacity, stages, held(work.steps), puts, takes, SLOWER, first)
    return _Choice(found, _in_trip(found, stages), stages, needed)


def _loads_early(work: _Work, chosen: _Choice, room: int) -> _Choice:
    """Loads start as long before their first use as memory takes, or as soon after that as their registers are free, in
    the stage that they have. Nothing in a trip waits for what it loads for the next one, so list scheduling leaves
    loads for last, and the next trip, which may begin by storing them, would wait for the last one's whole latency."""
    schedule, _, stages, edges = chosen
    wanted = {i: max(t, stages[i] * schedule.ii) for i, t in work.arrivals(schedule).items()}
    early = hoist(schedule, work.nodes, edges, work.capacity, wanted)
    if early.times == schedule.times or work.words(early) > room:
        return chosen
    return _Choice(early, _in_trip(early, stages), stages, edges)


def held(steps: Sequence[Step]) -> list[Held]:
    """The registers that loads fill, from their issue to the issue of the last reader."""
    readers: dict[Key, list[int]] = {}
    for i, s in enumerate(steps):
        for k in s.uses:
            readers.setdefault(k, []).append(i)
    return [
        Held(i, tuple((u, 0, 1) for k in s.defs for u in readers.get(k, ())), s.words)
        for i, s in enumerate(steps)
        if s.words and s.kind in ("gload", "sread")
    ]


def _ahead_words(steps: Sequence[Step], stages: Sequence[int]) -> int:
    """Registers that hold from trip to trip what is stored to shared memory a stage after it was loaded."""
    maker = {k: i for i, s in enumerate(steps) if s.kind == "gload" for k in s.defs}
    found: dict[int, int] = {}
    for i, s in enumerate(steps):
        for j in {maker[k] for k in s.uses if k in maker} if s.kind == "swrite" else ():
            found[j] = max(found.get(j, 0), (stages[i] - stages[j]) * steps[j].words)
    return sum(found.values())


def _no_emit(context: Context) -> None:
    """The scheduled barrier is emitted between steps, with the wait that it needs."""


def _extract_barrier(body: BodySchedule, index: int) -> None:
    """Turn the barrier's place in the order into a position between the other steps."""
    position = body.order.index(index)
    body.order.pop(position)
    body.stages.pop(index)
    body.times.pop(index)
    body.barriers = {position % max(1, len(body.order)): None}


def program_order(
    steps: Sequence[Step], slots: Mapping[str, int], cyclic: bool, around_loops: bool = True, room: int = 1 << 30
) -> BodySchedule:  # fmt: skip
    """The body as written, one stage: for loops that hold loops, and for straight code (`cyclic` False).

    Loads of arrays that are only read here come first, so that all of them are in flight together, and behind them
    those whose places are computed (`early_loads`); unless `around_loops`, none comes before a loop that it stands
    behind, where it would hold registers. Copies that take more than `room` registers are stored before more are
    loaded.
    """
    rank = {"gload": 0, "acopy": 0, "swrite": 1}
    written = {array for s in steps for array in s.writes}
    behind = list(accumulate((s.loop and not around_loops for s in steps), initial=0))
    ranks: list[int] = []
    late: set[Key] = set()  # what is made in the program's order: a load that needs it waits for it
    for s in steps:
        mine = 2 if s.late or s.array in written or late.intersection(s.uses) else rank.get(s.kind, 2)
        ranks.append(mine)
        if mine == 2:
            late.update(s.defs)
    batch = _batches(steps, ranks, room)
    depths = {} if batch else early_loads(steps, written)
    for i in depths:
        ranks[i] = 0
    # Loads that wait for nothing are in flight before places are computed, those that places are made of first.
    turn = [2 * depths[i] if i in depths else 1 for i in range(len(steps))]
    order = sorted(range(len(steps)), key=lambda i: (behind[i], batch.get(i, len(steps)), ranks[i], turn[i], i))
    body = BodySchedule(order, [0] * len(steps), 1, {}, (), 0, 0, "program order")
    place_barriers(body, steps, slots, cyclic=cyclic)
    return body


def reads_late(steps: Sequence[Step], room: int) -> list[Step]:
    """Steps of straight code in an order in which each read of shared memory stands right before its first user, where
    all reads together take more than `room` registers: those of a product's operand would be held while the other one
    is exchanged, since assemblers move no read over a barrier. No read passes an effect or what fills its buffer."""
    if sum(s.words for s in steps if s.kind == "sread") <= room:
        return list(steps)
    before: dict[int, list[Step]] = {}
    for i, s in enumerate(steps):
        at = i
        if s.kind == "sread" and s.defs:
            for j in range(i + 1, len(steps)):
                other = steps[j]
                if not set(s.defs).isdisjoint(other.uses):
                    at = j
                    break
                fills = other.kind in ("swrite", "acopy") and other.buffer == s.buffer
                if other.kind == "effect" or other.loop or fills:
                    break
        before.setdefault(at, []).append(s)
    return [s for i in range(len(steps)) for s in before.get(i, ())]


def _batches(steps: Sequence[Step], ranks: Sequence[int], room: int) -> dict[int, int]:
    """Batches of the loads that may come first (`ranks` 0), of `room` registers, and of the shared stores of what they
    load; everything else is in none. Empty where all loads are one batch."""
    found: dict[int, int] = {}
    maker: dict[Key, int] = {}
    words = batch = 0
    for i, s in enumerate(steps):
        if s.kind == "gload" and ranks[i] == 0:
            if words and words + s.words > room:
                words, batch = 0, batch + 1
            words += s.words
            found[i] = batch
            maker.update(dict.fromkeys(s.defs, batch))
        elif s.kind == "swrite" and ranks[i] == 1 and any(k in maker for k in s.uses):
            found[i] = max(maker[k] for k in s.uses if k in maker)
    return found if batch else {}
