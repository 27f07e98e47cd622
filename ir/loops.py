"""Software pipelining of a loop body: from steps with dependences to prologue, steady state and the barriers between.

In: the `Step`s of one iteration (loads, shared stores, fragment loads, matrix instructions, everything else), the
ring depth of each shared buffer, the trip count. Out: a `BodySchedule`, and the emitted kernel IR.

A step of stage s works on iteration t + (S - 1 - s) in trip t of the steady state. Stages before the last only load,
copy and read; everything with an effect or a carried value is in the last stage. So the loop runs exactly as many
trips as there are iterations, the prologue holds copies only, and copies past the end are switched off by a guard:
there is no remainder loop.

Values that cross trips travel as loop-carried values. Barriers are points that stab every interval between a shared
write and the reads it feeds, and between those reads and the next write to the same slot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from wavedsl.ir.builder import Builder
from wavedsl.ir.errors import CompileError
from wavedsl.ir.fragment import Fragment
from wavedsl.ir.kernel_ir import PRED, Value
from wavedsl.ir.loc import Loc
from wavedsl.ir.modulo import (
    ModuloSchedule,
    lighten,
    list_schedule_with_stages,
    max_live,
    modulo_schedule,
    sink,
)
from wavedsl.ir.modulo import Value as Held
from wavedsl.ir.schedule_bounds import SchedEdge, SchedNode, topological_order
from wavedsl.ir.schedule_check import verify_schedule

Key = tuple[Any, ...]
"""Names a value inside one iteration: (kind, node id, ...)."""

MODULO_STEPS = 200
"""Most steps of a body that is modulo-scheduled; longer ones are list-scheduled with the stages of their kinds."""

LIGHT_STEPS = 64
"""Most steps of a body whose order is searched for fewer registers."""
SLOWER = 17 / 16
"""How much longer a trip may become for them: less than what the latencies are known to."""

EARLY = ("gload", "swrite", "acopy", "sread", "barrier", "scalar")
"""Kinds of steps that may run ahead of their iteration."""


class Env:
    """Values by key and iteration. `iteration` is set before each step: absolute in the prologue, relative to the
    trip in the loop."""

    def __init__(self, outer: Mapping[Key, Any] | None = None):
        self.values: dict[tuple[Key, int], Any] = {}
        self.fixed: dict[Key, Any] = dict(outer or {})
        self.iteration = 0

    def __getitem__(self, key: Key) -> Any:
        found = self.values.get((key, self.iteration))
        return found if found is not None else self.fixed[key]

    def __setitem__(self, key: Key, value: Any) -> None:
        self.values[key, self.iteration] = value


@dataclass
class Context:
    """What a step needs to emit itself: values, its iteration (int or uniform value), whether the iteration exists."""

    env: Env
    iteration: Any
    guard: Value | None


@dataclass
class Step:
    """One schedulable piece of an iteration. `resources`: (unit, clocks); `latency`: clocks until its results are
    usable.
    `buffer`: the shared buffer that it writes (swrite, acopy) or reads (sread)."""

    name: str
    kind: str
    resources: tuple[tuple[str, int], ...]
    latency: int
    uses: tuple[Key, ...]
    defs: tuple[Key, ...]
    emit: Callable[[Context], None]
    buffer: str = ""
    loc: Loc | None = None
    array: str = ""
    """The array argument that a gload or acopy reads."""
    writes: tuple[str, ...] = ()
    """Arrays that an effect writes; loops inside the body count with all that they write."""
    words: int = 0
    """32-bit registers that hold the step's results from its issue on."""
    reads: tuple[str, ...] = ()
    """Shared buffers that a matrix instruction of the step reads itself."""

    loop: bool = False
    """Whether the step is a whole loop."""
    sequence: str = ""
    """Steps of one sequence keep their order: they share what is costly to set."""
    node: Any = None
    """The product that an asynchronous matrix step carries out."""

    def reads_shared(self, buffer: str) -> bool:
        """Whether the step reads this shared buffer."""
        return (self.buffer == buffer and self.kind == "sread") or buffer in self.reads


@dataclass
class BodySchedule:
    """Steps in order of issue with their stages, and where to synchronise: `barriers` maps a position to the copy
    groups that may still be in flight when it is passed (None: no asynchronous copies are involved); a group of copies
    ends after each position in `commits`, in every trip, so that they can be counted."""

    order: list[int]
    stages: list[int]
    count: int
    barriers: dict[int, int | None]
    commits: tuple[int, ...]
    ii: int
    mii: int
    kind: str
    times: list[int] = field(default_factory=list)
    clock: int = 1
    why: str = ""
    """The reason for this schedule, where there was another."""
    raised: dict[int, int] = field(default_factory=dict)
    """Position (the end included) → issue priority of the wave from there on."""


def dependences(
    steps: Sequence[Step], slots: Mapping[str, int], carried: Mapping[Key, Key], clock: int, load_latency: int | None,
    *, whole: bool = False,
) -> list[SchedEdge]:  # fmt: skip
    """Edges of one loop body in ticks of `clock` clocks. `carried` maps a carried key to the key that replaces it.

    `load_latency` caps the latency of global loads (`whole`: sets it) and sets that of asynchronous copies (None: as
    the steps say).
    """
    maker = {k: i for i, s in enumerate(steps) for k in s.defs}

    def ticks(s: Step) -> int:
        clocks = s.latency
        if load_latency is not None and s.kind == "gload":
            clocks = load_latency if whole else min(clocks, load_latency)
        elif load_latency is not None and s.kind == "acopy":
            clocks = (
                load_latency  # a copy in flight costs a ring slot and no register: run as far ahead as the ring allows
            )
        return max(1, -(-clocks // clock))

    edges: list[SchedEdge] = []
    for i, s in enumerate(steps):
        for k in s.uses:
            j = maker.get(k)
            if j is not None:
                edges.append(SchedEdge(j, i, ticks(steps[j]), 0))
                if steps[j].kind in ("gload", "sread"):
                    edges.append(SchedEdge(i, j, 0, 1))  # the register is loaded again only after its last use
            elif k in carried and carried[k] in maker:
                edges.append(SchedEdge(maker[carried[k]], i, ticks(steps[maker[carried[k]]]), 1))
    barrier = next((i for i, s in enumerate(steps) if s.kind == "barrier"), None)
    for buffer, depth in slots.items():
        writes = [i for i, s in enumerate(steps) if s.buffer == buffer and s.kind in ("swrite", "acopy")]
        reads = [i for i, s in enumerate(steps) if s.reads_shared(buffer)]
        if barrier is not None:
            # One barrier an iteration: writes, barrier, reads; reads, the next iteration's barrier, the slot's next
            # write.
            for w in writes:
                edges.append(SchedEdge(w, barrier, ticks(steps[w]), 0))
                edges.append(SchedEdge(barrier, w, 1, depth - 1))
            for r in reads:
                edges.append(SchedEdge(barrier, r, 1, 0))
                edges.append(SchedEdge(r, barrier, ticks(steps[r]), 1))
            continue
        for w in writes:
            for r in reads:
                edges.append(SchedEdge(w, r, ticks(steps[w]), 0))
                edges.append(SchedEdge(r, w, ticks(steps[r]), depth))
    edges += memory_edges(steps)
    for name in dict.fromkeys(s.sequence for s in steps if s.sequence):
        members = [i for i, s in enumerate(steps) if s.sequence == name]
        edges += [SchedEdge(a, c, 1, 0) for a, c in pairwise(members)]
    ordered = [i for i, s in enumerate(steps) if s.kind == "effect"]
    for a, c in pairwise(ordered):
        edges.append(SchedEdge(a, c, 1, 0))
    if ordered:
        edges.append(SchedEdge(ordered[-1], ordered[0], 1, 1))
    return edges


def batch_edges(steps: Sequence[Step], words: int, clock: int, copies: bool = True) -> list[SchedEdge]:
    """Reads from shared memory arrive together: the first user of up to `words` registers waits for all of them.

    A wait names how many reads may be outstanding, so reads in the order of their use could be waited for one by one;
    each wait takes an issue slot and, where reads come just in time, a stall. A batch is waited for once, by then
    without one.
    """
    if not words:
        return []
    edges: list[SchedEdge] = []
    for kind in ("sread", "gload") if copies else ("sread",):
        made = {k: i for i, s in enumerate(steps) if s.kind == kind for k in s.defs}
        users = [(i, sorted({made[k] for k in s.uses if k in made})) for i, s in enumerate(steps)]
        users = [(i, mine) for i, mine in users if mine and (kind == "sread" or steps[i].kind == "swrite")]
        first_of: dict[int, int] = {}
        taken, first = 0, -1
        for run in _fresh_runs(users, kind == "sread"):
            size = sum(steps[j].words for _, fresh in run for j in fresh)
            if first < 0 or taken + size > words:
                taken, first = 0, run[0][0]
            taken += size
            for _, fresh in run:
                first_of.update(dict.fromkeys(fresh, first))
        for i, mine in users:
            edges += [SchedEdge(start, i, 1, 0) for start in sorted({first_of[j] for j in mine} - {i})]
        for j, start in first_of.items():
            edges.append(SchedEdge(j, start, max(1, -(-steps[j].latency // clock)), 0))
    return edges


def _fresh_runs(users: Sequence[tuple[int, list[int]]], together: bool) -> list[list[tuple[int, list[int]]]]:
    """Users that need something that nobody before them needed, with what that is. `together`: in runs that a user
    ends which needs nothing fresh; else each by itself."""
    runs: list[list[tuple[int, list[int]]]] = []
    known: set[int] = set()
    inside = False
    for i, mine in users:
        fresh = [j for j in mine if j not in known]
        known.update(fresh)
        if fresh:
            if not inside:
                runs.append([])
            runs[-1].append((i, fresh))
        inside = bool(fresh) and together
    return runs


def memory_edges(steps: Sequence[Step]) -> list[SchedEdge]:
    """Order between reads and writes of one array, within an iteration and over the loop's back edge.

    Distinct arguments do not overlap (checked at launch), so accesses to different arrays may pass each other.
    """
    edges: list[SchedEdge] = []
    stores = [(j, t.writes) for j, t in enumerate(steps) if t.writes]
    for i, s in enumerate(steps):
        for j, arrays in stores:
            if s.array and s.array in arrays:
                edges.append(SchedEdge(i, j, 1, 0 if i < j else 1))
                edges.append(SchedEdge(j, i, 1, 1 if i < j else 0))
    return edges


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
) -> BodySchedule:
    """Choose order and stages of a pipelined body: the shorter of modulo scheduling and list scheduling with fixed
    stages. Where every ring has at least two slots one barrier per trip suffices, and it is scheduled like a step.

    `ahead`: iterations that asynchronous copies run before their use (ring depth - 1). `registers`: 32-bit registers
    that loads straight into fragments may hold a trip ahead; a body that loads more loads when it computes. `batch`:
    registers of shared reads that are waited for together (`batch_edges`), as long as what loads hold stays within
    `room`. `scarce`: registers that loads may hold before reads wait for the values they are multiplied with.
    `check`: re-derive every dependence and unit of the schedule (`schedule_check`).
    """
    together = bool(slots) and min(slots.values()) > 1
    _hold_back(steps, carried)
    real = list(steps)
    if together:
        steps = [*real, Step("barrier", "barrier", (("issue", clock),), clock, (), (), _no_emit)]
    units = sorted({u for s in steps for u, _ in s.resources})
    capacity = dict.fromkeys(units, 1)
    nodes = [
        SchedNode(i, tuple((u, max(1, -(-c // clock))) for u, c in s.resources if c), s.name)
        for i, s in enumerate(steps)
    ]
    busy: dict[str, int] = {}
    for n in nodes:
        for u, c in n.resources:
            busy[u] = busy.get(u, 0) + c
    res = max(busy.values(), default=1)
    asynchronous = any(s.kind == "acopy" for s in steps)
    copies = asynchronous or any(s.kind == "swrite" for s in steps)
    last = (ahead if asynchronous else 2) if copies else (1 if any(s.kind == "gload" for s in steps) else 0)
    hint = {"gload": 0, "acopy": 0, "swrite": min(1, last), "sread": last}
    hint["barrier"] = last if asynchronous else min(1, last)
    stages = [hint.get(s.kind, last) for s in steps]
    written = {array for s in steps for array in s.writes}
    feeds = {k for s in steps if s.kind == "swrite" for k in s.uses}
    direct = [i for i, s in enumerate(steps) if s.kind == "gload" and not feeds.intersection(s.defs)]
    crowded = sum(steps[i].words for i in direct) > registers
    for i, s in enumerate(steps):
        if (crowded and i in direct) or (s.array and s.array in written):
            stages[i] = last
    modulo = modulo and not crowded
    _settle_stages(steps, stages, last)
    together_edges = batch_edges(steps, batch, clock) if modulo and len(steps) <= MODULO_STEPS else []
    needed = dependences(steps, slots, carried, clock, 1)
    try:
        plain = list_schedule_with_stages(nodes, needed, capacity, stages)
    except CompileError:
        # Reads and writes of one array leave no order with these stages: keep the order of the program.
        return program_order(real, slots, cyclic=True)
    if len(steps) > MODULO_STEPS:
        # List scheduling starts what is ready: fragments would wait in registers for half a trip.
        plain = sink(plain, nodes, needed, capacity, [i for i, s in enumerate(steps) if s.kind == "sread"])
    chosen, times = plain, [t - g * plain.ii for t, g in zip(plain.times, stages)]
    if modulo and len(steps) <= MODULO_STEPS:
        span = max(1, ahead) * res * clock
        edges = dependences(
            steps, slots, carried, clock, max(clock, span - res * clock // 2 if asynchronous else res * clock // 2)
        )
        # What a load may take is known to a factor of two: best is one that starts most of a trip ahead, and all that
        # are stored together arrive together; that costs registers.
        far = dependences(steps, slots, carried, clock, max(clock, res * clock * 3 // 4), whole=True)
        attempts: list[tuple[Any, Any]] = [(edges, [])]
        if together_edges:
            attempts = [(far, batch_edges(steps, batch, clock, False)), (edges, together_edges)]
            # Registers of a batch are filled again only after the last use of each: where a batch is all that a trip
            # reads, its reads stand between two trips. Half of it leaves the other half to multiply.
            attempts += [(edges, batch_edges(steps, batch // 2, clock, False)), (edges, [])]
        known: list[tuple[list[SchedEdge], ModuloSchedule | None]] = []
        if len(steps) > LIGHT_STEPS:
            # A large body that no schedule is found for without the wishes will not have one with them.
            least = pinned_span(steps, nodes, edges) + 1
            found = modulo_schedule(nodes, edges, capacity, max_tries=1, max_ii=plain.ii, min_ii=least)
            known.append((edges, found))
            if found is None:
                attempts = []
        for basis, more in attempts:
            wanted = [*basis, *more]
            found = next((schedule for same, schedule in known if same == wanted), None)
            if found is None and all(same != wanted for same, _ in known):
                least = pinned_span(steps, nodes, wanted) + 1  # with less no stages could be aligned
                found = modulo_schedule(nodes, wanted, capacity, max_tries=4, max_ii=plain.ii, min_ii=least)
                known.append((wanted, found))
            if found is None:
                continue
            # Fragments wait in registers for nothing; loads from memory may take longer than the table says, so they
            # start late only where registers are short.
            limits = _one_trip(found, steps)
            late = [i for i, s in enumerate(steps) if s.kind == "sread"]
            loads_too = late + [i for i, s in enumerate(steps) if s.kind == "gload"]
            relaxed, found = found, sink(found, nodes, wanted, capacity, late)
            if asynchronous and together:
                found = settle(found, nodes, wanted, capacity, steps)
            if sum(max_live(found, held(steps)).values()) > room:
                found = sink(relaxed, nodes, wanted, capacity, loads_too, limits)
            aligned = _align(found, steps)
            if aligned is None or (more and sum(max_live(found, held(steps)).values()) > room):
                continue
            chosen, (times, stages), needed = found, aligned, wanted
            break
    if chosen is plain and len(steps) > LIGHT_STEPS:
        later = late_reads(steps)
        words = sum(max_live(plain, held(steps)).values())
        if later and words > scarce:
            try:
                found = list_schedule_with_stages(nodes, [*needed, *later], capacity, stages)
            except CompileError:
                found = plain
            if found is not plain and sum(max_live(found, held(steps)).values()) < words:
                chosen, needed = found, [*needed, *later]
                times = [t - g * chosen.ii for t, g in zip(chosen.times, stages)]
    if chosen is plain and len(steps) <= LIGHT_STEPS:
        puts = [i for i, s in enumerate(steps) if s.kind == "swrite"]
        takes = [i for i, s in enumerate(steps) if s.kind == "sread"]
        chosen = lighten(plain, nodes, needed, capacity, stages, held(steps), puts, takes, SLOWER)
        times = [t - g * chosen.ii for t, g in zip(chosen.times, stages)]
    if check:
        verify_schedule(nodes, needed, capacity, chosen)
    ii = chosen.ii
    order = sorted(range(len(steps)), key=lambda i: (times[i], i))
    count = max(stages, default=0) + 1
    body = BodySchedule(order, stages, count, {}, (), ii * clock, chosen.mii * clock, chosen.kind, times, clock)
    if together:
        _extract_barrier(body, len(real))
    place_barriers(body, real, slots, at=body.barriers)
    return body


ROUNDS = 32
"""Most rounds in which reads, copies and the barrier between them make room for each other."""


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


def _hold_back(steps: Sequence[Step], carried: Mapping[Key, Key]) -> None:
    """Numbers made of carried ones cannot be computed ahead of their iteration, as others are."""
    late = set(carried)
    for s in steps:  # in the order of the source
        if s.kind == "scalar" and not late.isdisjoint(s.uses):
            s.kind = "compute"
            late.update(s.defs)


def _settle_stages(steps: Sequence[Step], stages: list[int], last: int) -> None:
    """Stages of numbers that loads wait for, and of loads, so that nothing is used before it is made.

    A number is computed as early as its first use. A register is loaded again one trip later: its last use is at most
    one stage away.
    """
    users: dict[Key, list[int]] = {}
    for i, s in enumerate(steps):
        for k in s.uses:
            users.setdefault(k, []).append(i)
    for i in range(len(steps) - 1, -1, -1):
        if steps[i].kind == "scalar":
            stages[i] = min((stages[u] for k in steps[i].defs for u in users.get(k, ())), default=last)
    changed = True
    while changed:
        changed = False
        for i, s in enumerate(steps):
            for k in s.defs:
                for u in users.get(k, ()):
                    if s.kind == "gload" and stages[i] < stages[u] - 1:
                        stages[i], changed = stages[u] - 1, True
                    if stages[u] < stages[i] and steps[u].kind in EARLY:
                        stages[u], changed = stages[i], True


def pinned_span(steps: Sequence[Step], nodes: Sequence[SchedNode], edges: Sequence[SchedEdge]) -> int:
    """Ticks between the starts of the first and the last step that cannot run ahead of its iteration, at least.

    A step starts after the longest path to it, and after the time that its predecessors occupy any one unit; then come
    all its successors, on whichever unit is the busiest.
    """
    pinned = [s.kind not in EARLY for s in steps]
    before: list[int] = [0] * len(steps)
    """Per step a bit mask of the pinned steps that it waits for."""
    incoming: list[list[SchedEdge]] = [[] for _ in steps]
    for e in edges:
        if e.distance == 0:
            incoming[e.dst].append(e)
    users: dict[str, list[tuple[int, int]]] = {}
    for v, node in enumerate(nodes):
        if pinned[v]:
            for unit, ticks in node.resources:
                users.setdefault(unit, []).append((1 << v, ticks))

    def busy(mask: int) -> int:
        return max((sum(t for bit, t in found if bit & mask) for found in users.values()), default=0)

    order = topological_order(len(steps), edges)
    start = [0] * len(steps)
    known: dict[int, int] = {}
    for v in order:
        for e in incoming[v]:
            before[v] |= before[e.src] | pinned[e.src] << e.src
            if pinned[e.src] or start[e.src]:
                start[v] = max(start[v], start[e.src] + e.latency)
        if before[v] not in known:
            known[before[v]] = busy(before[v])
        start[v] = max(start[v], known[before[v]])
    after = [0] * len(steps)
    for v in reversed(order):
        for e in incoming[v]:
            after[e.src] |= after[v] | pinned[v] << v
    known.clear()
    longest = 0
    for v in order:
        if not pinned[v]:
            continue
        if after[v] not in known:
            widest = max((t for n in nodes for _, t in n.resources if after[v] >> n.id & 1), default=0)
            known[after[v]] = busy(after[v]) - widest
        longest = max(longest, start[v] + max(0, known[after[v]]))
    return longest


def late_reads(steps: Sequence[Step]) -> list[SchedEdge]:
    """Edges that keep shared reads behind the start of what computes the other operand of their product.

    A product of something computed in this trip (weights of attention) and something read (values): reads can be done
    long before, but then all fragments wait in registers for the computation.
    """
    maker = {k: i for i, s in enumerate(steps) for k in s.defs}
    edges: dict[tuple[int, int], SchedEdge] = {}
    for s in steps:
        if s.kind != "mma":
            continue
        made = [maker[k] for k in s.uses if k in maker]
        computed = [i for i in made if steps[i].kind == "compute" and not steps[i].name.startswith("join")]
        before = {maker[k] for i in computed for k in steps[i].uses if k in maker}
        before = {i for i in before if steps[i].kind == "compute"}
        for r in made:
            reads = [r] if steps[r].kind == "sread" else [maker[k] for k in steps[r].uses if k in maker]
            for j in reads:
                if steps[j].kind == "sread":
                    edges |= {(i, j): SchedEdge(i, j, 1, 0) for i in before}
    return list(edges.values())


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


def _no_emit(context: Context) -> None:
    """The scheduled barrier is emitted between steps, with the wait that it needs."""


def _extract_barrier(body: BodySchedule, index: int) -> None:
    """Turn the barrier's place in the order into a position between the other steps."""
    position = body.order.index(index)
    body.order.pop(position)
    body.stages.pop(index)
    body.times.pop(index)
    body.barriers = {position % max(1, len(body.order)): None}


def _align(schedule: ModuloSchedule, steps: Sequence[Step]) -> tuple[list[int], list[int]] | None:
    """Times within the trip and stages, with all steps that cannot run ahead in the last stage; None when they span
    more than one II."""
    pinned = [t for t, s in zip(schedule.times, steps) if s.kind not in EARLY]
    ii = schedule.ii
    if not pinned:
        return [t % ii for t in schedule.times], [t // ii for t in schedule.times]
    first = min(pinned)
    if max(pinned) - first >= ii:
        return None
    shift = -first % ii
    stage = [(t + shift) // ii for t in schedule.times]
    last = (first + shift) // ii
    if max(stage) > last:
        return None
    low = min(stage)
    return [(t + shift) % ii for t in schedule.times], [g - low for g in stage]


def _one_trip(schedule: ModuloSchedule, steps: Sequence[Step]) -> dict[int, int]:
    """The latest times of global loads that keep all of them in the trip of the first: then one guard serves them."""
    loads = [i for i, s in enumerate(steps) if s.kind == "gload"]
    pinned = [t for t, s in zip(schedule.times, steps) if s.kind not in EARLY]
    if not loads or not pinned:
        return {}
    start, ii = min(pinned) % schedule.ii, schedule.ii
    trip = min((schedule.times[i] - start) // ii for i in loads)
    return {i: start + (trip + 1) * ii - 1 for i in loads if schedule.times[i] < start + (trip + 1) * ii}


def program_order(
    steps: Sequence[Step], slots: Mapping[str, int], cyclic: bool, around_loops: bool = True
) -> BodySchedule:
    """The body as written, one stage: for loops that hold loops, and for straight code (`cyclic` False).

    Loads of arrays that are only read here come first, so that all of them are in flight together; unless
    `around_loops`, none comes before a loop that it stands behind, where it would hold registers.
    """
    rank = {"gload": 0, "acopy": 0, "swrite": 1}
    written = {array for s in steps for array in s.writes}
    behind = list(accumulate((s.loop and not around_loops for s in steps), initial=0))
    ranks: list[int] = []
    late: set[Key] = set()  # what is made in the program's order: a load that needs it waits for it
    for s in steps:
        mine = 2 if s.array in written or late.intersection(s.uses) else rank.get(s.kind, 2)
        ranks.append(mine)
        if mine == 2:
            late.update(s.defs)
    order = sorted(range(len(steps)), key=lambda i: (behind[i], ranks[i], i))
    body = BodySchedule(order, [0] * len(steps), 1, {}, (), 0, 0, "program order")
    place_barriers(body, steps, slots, cyclic=cyclic)
    return body


@dataclass
class _Arc:
    """A barrier must lie after position `start` and not after position `end`, `trips` trips later (`end` counts
    trips)."""

    start: int
    end: int
    raw: bool
    buffer: str


def place_barriers(
    body: BodySchedule,
    steps: Sequence[Step],
    slots: Mapping[str, int],
    cyclic: bool = True,
    at: Mapping[int, int | None] | None = None,
) -> None:
    """Fewest barrier positions that separate shared writes from the reads they feed and reads from the next write.

    Position p means: before the p-th step of the order. An arc (start, end] in positions, cyclic with the body's
    length. Positions in `at` are tried first; a schedule that has its barrier already needs no other.
    """
    n = len(body.order)
    place = {i: p for p, i in enumerate(body.order)}
    arcs: list[_Arc] = []
    for buffer, depth in slots.items():
        writes = [i for i, s in enumerate(steps) if s.buffer == buffer and s.kind in ("swrite", "acopy")]
        reads = [i for i, s in enumerate(steps) if s.reads_shared(buffer)]
        for w in writes:
            for r in reads:
                ahead = body.stages[r] - body.stages[w]
                arcs.append(_Arc(place[w] + 1, place[r] + ahead * n, True, buffer))
                if cyclic:
                    back = depth + body.stages[w] - body.stages[r]
                    arcs.append(_Arc(place[r] + 1, place[w] + back * n, False, buffer))
    given = frozenset(at or ())
    body.barriers = {}
    if not arcs:
        return
    for a in arcs:
        if a.end < a.start:
            raise CompileError("a shared read is scheduled before the write it needs", steps[body.order[0]].loc)

    def stabbed(a: _Arc, p: int) -> bool:
        if not cyclic:
            return a.start <= p <= a.end
        return a.end - a.start >= n - 1 or (p - a.start) % n <= a.end - a.start

    left = arcs
    chosen: list[int] = []
    first_reads = {place[i] for i, s in enumerate(steps) if s.kind == "sread" or s.reads}
    while left:
        # Prefer the spot right before a first read: the copy has had the longest time to arrive.
        covers = _arcs_at(left, n, cyclic)
        best = max(range(n), key=lambda p: (covers[p], p in given, p in first_reads, -p))
        if not covers[best]:
            raise CompileError("no barrier can separate a shared write from its read", steps[body.order[0]].loc)
        chosen.append(best)
        left = [a for a in left if not stabbed(a, best)]
    body.commits = _commits(sorted(place[i] for i, s in enumerate(steps) if s.kind == "acopy"), chosen, cyclic)
    chosen.sort()
    following = dict(zip(chosen, [*chosen[1:], chosen[0]]))
    body.barriers = {p: _pending(body, steps, place, p, following[p], cyclic) for p in chosen}


def _arcs_at(arcs: Sequence[_Arc], n: int, cyclic: bool) -> list[int]:
    """Per position, how many arcs a barrier there would serve."""
    steps = [0] * (2 * n + 1)
    for a in arcs:
        if not cyclic:
            first, last = max(a.start, 0), min(a.end, n - 1)
        else:
            first = a.start % n
            last = first + min(a.end - a.start, n - 1)
        if first <= last:
            steps[first] += 1
            steps[last + 1] -= 1
    counts = list(accumulate(steps))
    return [counts[p] + counts[p + n] for p in range(n)]


def _commits(copies: Sequence[int], barriers: Sequence[int], cyclic: bool) -> tuple[int, ...]:
    """Positions of the copies after which a group of copies ends: the last one before each barrier."""
    found = set()
    for p in barriers:
        before = [c for c in copies if c < p] or (copies if cyclic else ())
        if before:
            found.add(max(before))
    return tuple(sorted(found))


def _pending(
    body: BodySchedule, steps: Sequence[Step], place: Mapping[int, int], p: int, following: int, cyclic: bool
) -> int | None:
    """Copy groups that may be in flight at barrier p: those committed after the newest one that is needed by a read up
    to the barrier that follows (p itself, a trip later, where it is the only one).

    Groups are numbered over trips, as are iterations: the copies of stage g in trip t belong to iteration t - g.
    """
    writes: dict[str, list[int]] = {}
    for i, s in enumerate(steps):
        if s.kind == "acopy":
            writes.setdefault(s.buffer, []).append(i)
    reads = [i for i, s in enumerate(steps) if any(s.reads_shared(buffer) for buffer in writes)]
    if not reads or not body.commits:
        return None
    if not cyclic:
        return 0
    per_trip = len(body.commits)
    newest = bisect_left(body.commits, p) - 1
    needed = newest - per_trip * (body.count + 1)  # older than anything in flight
    for r in reads:
        later = 0 if place[r] >= p and (following <= p or place[r] < following) else 1
        if later and not (following <= p and place[r] < following):
            continue  # another barrier lies between
        for w in (w for buffer, found in writes.items() if steps[r].reads_shared(buffer) for w in found):
            trip = later - body.stages[r] + body.stages[w]
            needed = max(needed, trip * per_trip + bisect_left(body.commits, place[w]))
    if needed > newest:
        raise CompileError("a barrier is scheduled before the copies that it waits for", steps[body.order[0]].loc)
    return newest - needed


def emit_steps(
    b: Builder, body: BodySchedule, steps: Sequence[Step], context_of: Callable[[int], Context | None]
) -> None:
    """One pass over the body. `context_of(stage)` gives the context of a stage's iteration, None to leave the stage
    out."""
    contexts = {g: context_of(g) for g in range(body.count)}
    for p, i in enumerate(body.order):
        if p in body.barriers:
            synchronise(b, body.barriers[p])
        if p in body.raised:
            b.priority(body.raised[p])
        s = steps[i]
        context = contexts[body.stages[i]]
        if context is not None:
            context.env.iteration = context.relative  # type: ignore[attr-defined]
            with b.loc(s.loc):
                s.emit(context)
        if p in body.commits:
            b.copy_commit()
    if len(body.order) in body.raised:
        b.priority(body.raised[len(body.order)])


def half_barrier(b: Builder, half: int) -> None:
    """A barrier that only the lower (0) or upper (1) half of the workgroup's waves passes; the others pass it at the
    next one that stands in their way."""
    with b.if_(b.cmp("slt" if half == 0 else "sge", b.wave(), b.kernel.waves // 2)) as branch:
        b.barrier(half)
        branch.yield_()


def synchronise(b: Builder, pending: int | None) -> None:
    """A barrier of the workgroup, after the asynchronous copies that it has to see (None: there are none)."""
    if pending is not None:
        b.copy_wait(pending)
    if b.matrix_reads_shared:
        b.proxy_fence()
    b.barrier()


@dataclass
class StageContext(Context):
    """`relative`: the iteration under which values are filed in the environment."""

    relative: int = 0


def crossing(body: BodySchedule, steps: Sequence[Step]) -> list[tuple[Key, int]]:
    """(key, most trips that a use of it lies after its definition) for keys used in a later trip than they are made."""
    maker = {k: i for i, s in enumerate(steps) for k in s.defs}
    most: dict[Key, int] = {}
    for i, s in enumerate(steps):
        for k in s.uses:
            j = maker.get(k)
            if j is not None:
                distance = body.stages[i] - body.stages[j]
                if distance > 0:
                    most[k] = max(most.get(k, 0), distance)
    return sorted(most.items(), key=lambda e: (maker[e[0]], e[0]))


def emit_pipelined(
    b: Builder,
    body: BodySchedule,
    steps: Sequence[Step],
    env: Env,
    trips: Any,
    carried: Sequence[tuple[Key, Value]],
    next_keys: Sequence[Key],
    label: str,
    parts: int = 1,
    apart: bool = False,
) -> list[Value]:
    """Prologue and steady-state loop. `carried`: keys and initial values of the user's loop-carried registers,
    `next_keys` the keys that replace them. Returns their final values. `trips`: int or uniform i32.
    `parts`: trips that make up one of the user's. `apart`: the upper half of the waves runs a barrier behind the lower.
    """
    last = body.count - 1

    def exists(iteration: Any, ahead: int) -> Value | None:
        """Whether an iteration `ahead` of the trip exists; None when it surely does."""
        if isinstance(iteration, int) and isinstance(trips, int):
            return None if iteration < trips else b.false
        if not ahead and not isinstance(iteration, int):
            return None
        if isinstance(iteration, int):
            return b.cmp("sgt", trips, iteration)
        base = b.sub(iteration, ahead) if isinstance(trips, int) else iteration
        return b.cmp("slt", base, trips - ahead if isinstance(trips, int) else trips)

    early_reads = [(p, body.stages[i]) for p, i in enumerate(body.order) if steps[i].kind == "sread" or steps[i].reads]
    for j in range(last):
        contexts: dict[int, Context | None] = {}
        for g in range(body.count):
            it = j - g
            contexts[g] = StageContext(env, it, exists(it, 0), it) if it >= 0 else None
        needed = set() if apart else {
            p for p in body.barriers
            if any((q >= p and g <= j) or (q < p and g <= j + 1) for q, g in early_reads)
        }  # fmt: skip
        trimmed = BodySchedule(
            body.order,
            body.stages,
            body.count,
            {p: body.barriers[p] for p in needed},
            body.commits,
            0,
            0,
            body.kind,
        )
        emit_steps(b, trimmed, steps, contexts.get)
    cross = crossing(body, steps)
    maker = {k: i for i, s in enumerate(steps) for k in s.defs}
    inits: list[Value] = [v for _, v in carried]
    slots: list[tuple[Key, int]] = []
    for key, most in cross:
        made = last - body.stages[maker[key]]
        for d in range(1, most + 1):
            slots.append((key, made - d))
            inits.append(_register(b, env.values[key, made - d]))
    if apart:
        if body.commits:
            b.copy_wait(0)
        b.barrier()  # the prologue's stores to shared memory are waited for here, not in the loop
        half_barrier(b, 1)
    minimum = trips if isinstance(trips, int) else 0
    with b.for_(0, trips, 1, inits, label=label, min_trips=1 if minimum else 0) as loop:
        if parts > 1:
            loop.op.attrs["parts"] = parts
        inner = Env(env.fixed)
        for (key, _), v in zip(carried, loop.carried):
            inner.fixed[key] = v
        for (key, relative), v in zip(slots, loop.carried[len(carried) :]):
            inner.values[key, relative] = _value(b, v, env.values[key, relative])

        def context_of(g: int) -> Context:
            ahead = last - g
            iteration = b.add(loop.iv, ahead) if ahead else loop.iv
            return StageContext(inner, iteration, exists(iteration, ahead), ahead)

        emit_steps(b, body, steps, context_of)
        inner.iteration = 0
        out = [inner[k] for k in next_keys]
        for key, relative in slots:
            out.append(_register(b, inner.values[key, relative + 1]))
        loop.yield_(out)
    if apart:
        half_barrier(b, 0)
    if body.commits:
        b.copy_wait(0)
    return list(loop.results[: len(carried)])


def _register(b: Builder, v: Any) -> Value:
    """What a loop carries of a step's result: itself, or the one number of a fragment (conditions as 0 or 1)."""
    if not isinstance(v, Fragment):
        return v
    (word,) = v.words(b)
    return b.select(word, 1, 0) if word.type is PRED else word


def _value(b: Builder, register: Value, like: Any) -> Any:
    """The result that `_register` was made of."""
    if not isinstance(like, Fragment):
        return register
    word = b.cmp("ne", register, 0) if like.words(b)[0].type is PRED else register
    return Fragment(like.layout, like.dtype, [(word,) if word.type is PRED else word])


def emit_straight(b: Builder, body: BodySchedule, steps: Sequence[Step], env: Env, iteration: Any = 0) -> None:
    """One iteration in order, no pipeline. The values of earlier code are in `env.fixed`."""
    emit_steps(b, body, steps, lambda g: StageContext(env, iteration, None, 0))
