"""On which iteration each step of a pipelined body works.

In: steps, and a schedule of them or the last stage. Out: stages such that whatever cannot run ahead of its iteration
is in the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wavedsl.ir.schedule.modulo import ModuloSchedule
from wavedsl.ir.schedule.schedule_bounds import SchedEdge, SchedNode, topological_order
from wavedsl.ir.schedule.steps import EARLY, Key, Step


def hold_back(steps: Sequence[Step], carried: Mapping[Key, Key]) -> None:
    """Numbers made of carried ones cannot be computed ahead of their iteration, as others are."""
    late = set(carried)
    for s in steps:  # in the order of the source
        if s.kind == "scalar" and not late.isdisjoint(s.uses):
            s.kind = "compute"
            late.update(s.defs)


def _direct(steps: Sequence[Step]) -> list[int]:
    """Loads straight into fragments: those that no shared store waits for."""
    feeds = {k for s in steps if s.kind == "swrite" for k in s.uses}
    return [i for i, s in enumerate(steps) if s.kind == "gload" and not feeds.intersection(s.defs)]


def direct_words(steps: Sequence[Step]) -> int:
    """32-bit registers that loads straight into fragments hold."""
    return sum(steps[i].words for i in _direct(steps))


def numbers_first(steps: Sequence[Step]) -> dict[int, int]:
    """Load of a single number → the first load of a tile that goes to shared memory. Where loads are counted in their
    order, whoever waits for the number waits for what was loaded before it, and tiles are needed last."""
    direct = _direct(steps)
    tiles = [i for i, s in enumerate(steps) if s.kind == "gload" and i not in set(direct)]
    return {i: tiles[0] for i in direct if tiles and steps[i].words <= 1}


MANY_TRIPS = 5
"""Trips of a loop from which on what it keeps for later ones pays for the first."""
FIRST_WORDS = (16, 32)
"""Registers of loads that come first unasked, in loops of few trips and of many: they are taken all trip long. By the
text bodies with more took 0.93 to 1.05 times the clocks, those with fewer 0.78 to 1.01; whether more do is decided when
the kernel is known (`first_loads`)."""


FEW_WORDS = 4
"""Registers of a load that comes first beside tiles: they wait in front of what memory gives after it."""


def loads_first(steps: Sequence[Step], stages: Sequence[int], many: bool, asked: bool = False) -> list[int]:
    """Loads straight into fragments that a later trip uses, and what places them. Nothing in a trip waits for what it
    loads for a later one, so by list scheduling they would start at the trip's end, and the next one would wait for
    their whole latency; before everything else they start as soon as registers are free. None where the trip itself
    waits for memory, which gives in turn what was asked for. `many`: whether the loop has so many trips; `asked`:
    whether more than `FIRST_WORDS` come first, too."""
    early, words = _early(steps, stages)
    return early if asked or words <= FIRST_WORDS[many] else []


def early_and_many(steps: Sequence[Step], stages: Sequence[int], many: bool) -> bool:
    """Whether there are such loads, but for how many they are."""
    return _early(steps, stages)[1] > FIRST_WORDS[many]


def _early(steps: Sequence[Step], stages: Sequence[int]) -> tuple[list[int], int]:
    """Loads that may come first, and what places them; and the registers that they take. Beside tiles that pass by
    shared memory they are few numbers, scales of groups say, that nothing of the trip places."""
    last = max(stages, default=0)
    if any(s.array and stages[i] == last for i, s in enumerate(steps)):
        return [], 0
    early = [i for i, s in enumerate(steps) if stages[i] < last and s.kind in ("gload", "scalar")]
    if any(s.buffer for s in steps):
        made = {k for s in steps for k in s.defs}
        alone = {i for i in _direct(steps) if steps[i].words <= FEW_WORDS and made.isdisjoint(steps[i].uses)}
        early = [i for i in early if i in alone]
    return early, sum(steps[i].words for i in early)


def stages_of_kinds(steps: Sequence[Step], ahead: int, crowded: bool) -> list[int]:
    """Fixed stages: loads and copies first, then stores to shared memory, the rest last.

    Asynchronous copies run `ahead` iterations before their use. `crowded`: loads straight into fragments have no
    registers to run ahead.
    """
    asynchronous = any(s.kind == "acopy" for s in steps)
    copies = asynchronous or any(s.kind == "swrite" for s in steps)
    last = (ahead if asynchronous else 2) if copies else (1 if any(s.kind == "gload" for s in steps) else 0)
    hint = {"gload": 0, "acopy": 0, "swrite": min(1, last), "sread": last}
    hint["barrier"] = last if asynchronous else min(1, last)
    stages = [hint.get(s.kind, last) for s in steps]
    written = {array for s in steps for array in s.writes}
    direct = _direct(steps) if crowded else []
    for i, s in enumerate(steps):
        if i in direct or (s.array and s.array in written):
            stages[i] = last
    settle_stages(steps, stages, last)
    return _numbers_first(steps, stages)


def _numbers_first(steps: Sequence[Step], stages: list[int]) -> list[int]:
    """The stages with loads of numbers that place other loads and copies one iteration ahead of these: else every trip
    waits for memory twice, one time after the other. As they are where something uses such a number later."""
    maker = {k: i for i, s in enumerate(steps) for k in s.defs}
    numbers: set[int] = set()
    work = [k for s in steps if s.kind in ("gload", "acopy") for k in s.uses]
    while work:
        i = maker.get(work.pop())
        if i is not None and i not in numbers and steps[i].kind in ("gload", "scalar"):
            numbers.add(i)
            work += steps[i].uses
    loads = {k for i in numbers if steps[i].kind == "gload" for k in steps[i].defs}
    users = [(i, k) for i, s in enumerate(steps) for k in s.uses if k in loads]
    if not loads or any(stages[i] != stages[maker[k]] for i, k in users):
        return stages
    # What is made of a loaded number belongs to what it places.
    made: set[int] = set()
    for i, s in enumerate(steps):
        if s.kind == "scalar" and any(k in loads or maker.get(k) in made for k in s.uses):
            made.add(i)
    before = numbers - made
    return [g if i in before else g + 1 for i, g in enumerate(stages)]


def settle_stages(steps: Sequence[Step], stages: list[int], last: int) -> None:
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
    users: dict[str, dict[int, int]] = {}
    """Per unit and number of ticks a bit mask of the pinned steps that occupy it for so long."""
    longest_of: dict[int, int] = {}
    """Per number of ticks that a step occupies a unit for, the most first, a bit mask of these steps."""
    for v, node in enumerate(nodes):
        for unit, ticks in node.resources:
            longest_of[ticks] = longest_of.get(ticks, 0) | 1 << v
            if pinned[v]:
                masks = users.setdefault(unit, {})
                masks[ticks] = masks.get(ticks, 0) | 1 << v
    longest_of = dict(sorted(longest_of.items(), reverse=True))

    def busy(mask: int) -> int:
        return max((sum([t * (m & mask).bit_count() for t, m in masks.items()]) for masks in users.values()), default=0)

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
            widest = next((t for t, m in longest_of.items() if m & after[v]), 0)
            known[after[v]] = busy(after[v]) - widest
        longest = max(longest, start[v] + max(0, known[after[v]]))
    return longest


def align(schedule: ModuloSchedule, steps: Sequence[Step]) -> tuple[list[int], list[int]] | None:
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


def one_trip(schedule: ModuloSchedule, steps: Sequence[Step]) -> dict[int, int]:
    """The latest times of global loads that keep all of them in the trip of the first: then one guard serves them."""
    loads = [i for i, s in enumerate(steps) if s.kind == "gload"]
    pinned = [t for t, s in zip(schedule.times, steps) if s.kind not in EARLY]
    if not loads or not pinned:
        return {}
    start, ii = min(pinned) % schedule.ii, schedule.ii
    trip = min((schedule.times[i] - start) // ii for i in loads)
    return {i: start + (trip + 1) * ii - 1 for i in loads if schedule.times[i] < start + (trip + 1) * ii}
