"""What has to come before what in a loop body: edges between steps, with a latency and a distance in iterations.

In: the steps of one iteration, the ring depth of each shared buffer, what the loop carries. Out: `SchedEdge`s in
ticks. Edges of `dependences` always hold; those of `batch_edges` and `reads_after_partners` are wishes, for fewer waits
and registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from wavedsl.ir.schedule.schedule_bounds import SchedEdge
from wavedsl.ir.schedule.steps import Key, Step, shared_readers, shared_writers


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
    readers, writers = shared_readers(steps), shared_writers(steps)
    for buffer, depth in slots.items():
        writes, reads = writers.get(buffer, []), readers.get(buffer, [])
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


def reads_after_partners(steps: Sequence[Step]) -> list[SchedEdge]:
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
