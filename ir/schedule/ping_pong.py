"""The ping-pong schedule: two groups of waves on the same SIMDs, half a trip apart.

In: the steps of a loop body with products. Out: a `BodySchedule` of two phases, or the reason why there is none.

The one idea: a trip has a phase that reads and copies and a phase that multiplies, each begun by a barrier. Each SIMD
has one wave of either group. The upper half of the workgroup's waves passes one barrier more before the loop, the lower
half one more behind it, so between any two barriers one group multiplies, at raised priority, while the other reads the
fragments of its next products. (HipKittens and Triton have this schedule for CDNA 3; the words are theirs.)

(OFFSET) The groups share LDS, and the offset takes one barrier from what orders them. Count phases of a wave from its
first; a phase of the upper group lies one later. Two accesses that a barrier separates in one group are two apart or
race with the other group's. `check` proves it: between a write and its reads, and between reads and the next write to
their slot, at least two barriers lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wavedsl.ir.errors import CompileError
from wavedsl.ir.schedule.steps import EARLY, BodySchedule, Key, Step

KIND = "ping-pong"
JOIN = "join"
"""What names steps begin with that put the parts of a fragment together: registers, nothing else."""
RAISED = 1
"""Issue priority of a wave while it multiplies: above the others' 0."""


def problem(steps: Sequence[Step], slots: Mapping[str, int], waves: int, simds: int) -> str:
    """Why a loop cannot have this schedule; empty if it can."""
    if waves != 2 * simds:
        return f"it takes {2 * simds} waves, two on each SIMD, and there are {waves}"
    if not slots or min(slots.values()) < 2:
        return "it takes two slots in shared memory for every operand"
    maker = {k: s for s in steps for k in s.defs}
    stored = {k for s in steps if s.kind == "swrite" for k in s.uses}
    for s in steps:
        if s.kind == "effect" or s.writes:
            return f"{s.name} has an effect in the loop"
        if s.kind not in (*EARLY, "mma", "yield") and not s.name.startswith(JOIN):
            return f"{s.name} is computed in the loop, which may take barriers of its own"
        if s.reads:
            return f"{s.name} reads shared memory by itself"
        if s.kind == "gload" and not stored.issuperset(s.defs):
            return f"{s.name} loads straight into a fragment"
        if s.kind in EARLY and any(k in maker and maker[k].kind not in EARLY for k in s.uses):
            return f"{s.name} depends on what the loop computes"
    if not any(s.kind == "mma" for s in steps):
        return "there is no product in the loop"
    return ""


def plan(steps: Sequence[Step], slots: Mapping[str, int], clock: int, room: int) -> BodySchedule | None:
    """The body: reads, stores to shared memory, loads | products and what else is computed, in the program's order.

    A load runs two iterations ahead, its store to shared memory one, so that nobody waits for memory. A copy without
    registers runs one ahead; it begins in the first phase and is waited for behind the last but one, which takes two
    pairs of phases. Where fragments and loads in flight exceed `room` registers, a trip is cut along the contraction
    into more pairs; None where that does not help.
    """
    direct = any(s.kind == "acopy" for s in steps)
    depth = _depths(steps)
    most = max(depth.values(), default=0) + 1
    parts = 1
    while _registers(steps, part := {i: d * parts // most for i, d in depth.items()}) > room or parts <= direct:
        parts *= 2
        if parts > most or any(s.kind not in EARLY and s.kind not in ("mma", "yield") for s in steps):
            return None
    users: dict[Key, list[int]] = {}
    for i, s in enumerate(steps):
        for k in s.uses:
            users.setdefault(k, []).append(i)
    for kind in ("swrite", "gload"):
        mine = [i for i, s in enumerate(steps) if s.kind == kind]
        part.update((i, n * parts // len(mine)) for n, i in enumerate(mine))
    for i, s in enumerate(steps):
        if s.kind == "acopy":
            part[i] = 0
        elif s.kind not in ("mma", "swrite", "gload"):
            part[i] = min((part[u] for k in s.defs for u in users.get(k, ()) if u in part), default=parts - 1)
    rank = {"scalar": 0, "sread": 1, "acopy": 2, "swrite": 3, "gload": 4}
    order = sorted(range(len(steps)), key=lambda i: (part[i], rank.get(steps[i].kind, 5), i))
    last = 2 if any(s.kind == "gload" for s in steps) else 1
    stages = [{"gload": 0, "swrite": last - 1, "acopy": last - 1}.get(s.kind, last) for s in steps]
    for i, s in enumerate(steps):
        if s.kind == "scalar":
            stages[i] = min((stages[u] for k in s.defs for u in users.get(k, ())), default=last)
    early = [steps[i].kind in EARLY for i in order]
    edges = [0, *(p for p in range(1, len(order)) if early[p] != early[p - 1])]
    raised = {p: 0 if early[p] else RAISED for p in edges[1:]} | {len(order): 0}
    ii = 2 * sum(max(pair) for pair in phase_clocks(steps, part, parts))
    barriers: dict[int, int | None] = dict.fromkeys(edges)
    commits: tuple[int, ...] = ()
    if direct:
        barriers[edges[-1]] = 0
        commits = (max(p for p, i in enumerate(order) if steps[i].kind == "acopy"),)
    body = BodySchedule(order, stages, last + 1, barriers, commits, ii, ii, KIND, [], clock, raised=raised)
    check(body, steps, slots)
    return body


def _depths(steps: Sequence[Step]) -> dict[int, int]:
    """Per product, how many come before it in the chain that adds up its sum."""
    maker = {k: i for i, s in enumerate(steps) if s.kind == "mma" for k in s.defs}
    depth: dict[int, int] = {}
    for i, s in enumerate(steps):
        if s.kind == "mma":
            depth[i] = max((depth[maker[k]] + 1 for k in s.uses if k in maker and maker[k] in depth), default=0)
    return depth


def _registers(steps: Sequence[Step], part: Mapping[int, int]) -> int:
    """Most registers that loads hold: all that come from memory, and the fragments of any part's products."""
    loads = sum(s.words for s in steps if s.kind == "gload")
    most = 0
    spans = []
    for s in steps:
        if s.kind == "sread":
            used = [part.get(i, 0) for i, t in enumerate(steps) if set(t.uses) & set(s.defs)]
            spans.append((min(used, default=0), max(used, default=0), s.words))
    for p in range(max(part.values(), default=0) + 1):
        most = max(most, sum(words for first, last, words in spans if first <= p <= last))
    return loads + most


def phase_clocks(steps: Sequence[Step], part: Mapping[int, int], parts: int) -> list[tuple[int, int]]:
    """Per pair of phases, the clocks that one group needs for its reads and copies, the last result's arrival included,
    and for its products.

    Resources count for the whole workgroup: for all waves of a shared unit, for both waves of a SIMD's own.
    """
    out = []
    for p in range(parts):
        pair = []
        for early in (True, False):
            use: dict[str, int] = {}
            latency = 0
            for i, s in enumerate(steps):
                if part[i] == p and (s.kind in EARLY) is early:
                    for unit, clocks in s.resources:
                        use[unit] = use.get(unit, 0) + clocks
                    if s.kind == "sread":
                        latency = max(latency, s.latency)
            pair.append(max(use.values(), default=0) // 2 + latency)
        out.append((pair[0], pair[1]))
    return out


def check(body: BodySchedule, steps: Sequence[Step], slots: Mapping[str, int]) -> None:
    """Raises CompileError unless (OFFSET) holds for every pair of accesses to a shared buffer."""
    marks = sorted(body.barriers)
    phase = {i: sum(m <= p for m in marks) - 1 for p, i in enumerate(body.order)}
    count = len(marks)

    def at(i: int, iteration: int) -> int:
        return count * (iteration + body.stages[i]) + phase[i]

    def there(i: int) -> int:
        """The phase of iteration 0 in which what a step writes has arrived: a copy's at the wait that follows it."""
        if steps[i].kind != "acopy":
            return at(i, 0)
        waits = [n for n, m in enumerate(marks) if body.barriers[m] is not None]
        after = [n for n in waits if n > phase[i]] or [n + count for n in waits]
        return at(i, 0) - phase[i] + min(after) - 1

    for buffer, depth in slots.items():
        writes = [i for i, s in enumerate(steps) if s.buffer == buffer and s.kind in ("swrite", "acopy")]
        reads = [i for i, s in enumerate(steps) if s.reads_shared(buffer)]
        for w in writes:
            for r in reads:
                if at(r, 0) - there(w) < 2 or at(w, depth) - at(r, 0) < 2:
                    raise CompileError(
                        f"fewer than two barriers lie between {steps[w].name} and {steps[r].name}", steps[r].loc
                    )
