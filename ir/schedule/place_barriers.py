"""The fewest barriers of a body whose order is known.

In: a `BodySchedule`, its steps, the ring depth of each shared buffer. Out: its `barriers` and `commits`: points that
stab every interval between a shared write and the reads it feeds, and between those reads and the next write to the
same slot; and how many groups of asynchronous copies may be in flight at each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from wavedsl.ir.errors import CompileError
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import BodySchedule, Step, shared_readers, shared_writers


@dataclass
class _Arc:
    """A barrier must lie after position `start` and not after position `end`, `trips` trips later (`end` counts
    trips)."""

    start: int
    end: int
    buffer: str


def place_barriers(
    body: BodySchedule,
    steps: Sequence[Step],
    slots: Mapping[str, int],
    cyclic: bool = True,
    at: Mapping[int, int | None] | None = None,
    over: Mapping[str, Collection[str]] | None = None,
    starts: Sequence[int] = (),
) -> None:
    """Fewest barrier positions that separate shared writes from the reads they feed and reads from the next write.
    `over`: of code in taps, buffers that lie where earlier ones have been; `starts`: of its taps, each of which ends a
    group of copies and waits for its own tiles alone, so that those of later ones stay in flight.

    Position p means: before the p-th step of the order. An arc (start, end] in positions, cyclic with the body's
    length. Positions in `at` are tried first; a schedule that has its barrier already needs no other.
    """
    n = len(body.order)
    place = {i: p for p, i in enumerate(body.order)}
    arcs: list[_Arc] = []
    readers, writers = shared_readers(steps), shared_writers(steps)
    for buffer, depth in slots.items():
        writes, reads = writers.get(buffer, []), readers.get(buffer, [])
        first = min((place[r] for r in reads), default=0)
        for w in writes:
            for r in reads:
                ahead = body.stages[r] - body.stages[w]
                arcs.append(_Arc(place[w] + 1, place[r] + ahead * n, buffer))
                if starts:
                    arcs[-1].start = max(arcs[-1].start, starts[bisect_right(starts, first) - 1] + ahead * n)
                if cyclic:
                    back = depth + body.stages[w] - body.stages[r]
                    arcs.append(_Arc(place[r] + 1, place[w] + back * n, buffer))
    for buffer, earlier in (over or {}).items():
        last = max((place[r] for other in earlier for r in readers.get(other, ())), default=-1)
        if last >= 0 and writers.get(buffer) and not cyclic:
            arcs.append(_Arc(last + 1, min(place[w] for w in writers[buffer]), buffer))
        elif cyclic:
            for read, written in (pair for other in earlier for pair in ((other, buffer), (buffer, other))):
                # They take turns in every trip: who writes next does so in this one or in the next.
                behind = max((place[r] for r in readers.get(read, ())), default=-1) + 1
                first = min((place[w] + body.stages[w] * n for w in writers.get(written, ())), default=behind)
                arcs.append(_Arc(behind, behind + (first - behind) % n, written))
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

    chosen: list[int] = []
    for p in _of_taps(arcs, starts, n if cyclic else 0):
        if p not in chosen:
            chosen.append(p)
    left = [a for a in arcs if not any(stabbed(a, p) for p in chosen)]
    first_reads = {place[i] for buffer in slots for i in readers.get(buffer, ())}
    while left:
        # Prefer the spot right before a first read: the copy has had the longest time to arrive.
        covers = _arcs_at(left, n, cyclic)
        best = max(range(n), key=lambda p: (covers[p], p in given, p in first_reads, -p))
        if not covers[best]:
            raise CompileError("no barrier can separate a shared write from its read", steps[body.order[0]].loc)
        chosen.append(best)
        left = [a for a in left if not stabbed(a, best)]
    copies = sorted(place[i] for i, s in enumerate(steps) if s.kind == "acopy")
    body.commits = _commits(copies, starts or chosen, cyclic)
    chosen.sort()
    following = dict(zip(chosen, [*chosen[1:], chosen[0] if cyclic else n]))
    awaited = [
        _Copied([i for i in found if steps[i].kind == "acopy"], readers[buffer])
        for buffer, found in writers.items()
        if buffer in readers
    ]
    awaited = [x for x in awaited if x.copies]
    loc = steps[body.order[0]].loc
    body.barriers = {p: _pending(body, awaited, place, p, following[p], cyclic, loc) for p in chosen}


def _of_taps(arcs: Sequence[_Arc], starts: Sequence[int], trip: int = 0) -> list[int]:
    """The taps' starts at which a barrier stands: the last one in front of what ends an arc, where no other lies
    between its ends. `trip`: positions of a loop's trip."""
    chosen: list[int] = []
    every = [*starts, *(s + trip for s in starts)] if trip else starts
    for a in sorted(arcs, key=lambda a: (a.end, a.start)):
        place = bisect_right(every, a.end) - 1
        if place >= 0 and every[place] >= a.start and not (chosen and chosen[-1] >= a.start):
            chosen.append(every[place])
    return [s % trip for s in chosen] if trip else chosen


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


class _Copied(NamedTuple):
    """A buffer's copies and reads, by step."""

    copies: list[int]
    reads: list[int]


def _pending(
    body: BodySchedule, buffers: Sequence[_Copied], place: Mapping[int, int], p: int, following: int, cyclic: bool,
    loc: Loc | None,
) -> int | None:  # fmt: skip
    """Copy groups that may be in flight at barrier p: those committed after the newest one that is needed by a read up
    to the barrier that follows (p itself, a trip later, where it is the only one).

    Groups are numbered over trips, as are iterations: the copies of stage g in trip t belong to iteration t - g.
    """
    if not buffers or not body.commits:
        return None
    newest = bisect_left(body.commits, p) - 1
    if not cyclic:
        awaited = [
            bisect_left(body.commits, max([place[w] for w in x.copies]))
            for x in buffers
            if any(p <= place[r] < following for r in x.reads)
        ]
        return newest - max(awaited) if awaited else None
    per_trip = len(body.commits)
    needed = newest - per_trip * (body.count + 1)  # older than anything in flight
    for x in buffers:
        for r in x.reads:
            later = 0 if place[r] >= p and (following <= p or place[r] < following) else 1
            if later and not (following <= p and place[r] < following):
                continue  # another barrier lies between
            for w in x.copies:
                trip = later - body.stages[r] + body.stages[w]
                needed = max(needed, trip * per_trip + bisect_left(body.commits, place[w]))
    if needed > newest:
        raise CompileError("a barrier is scheduled before the copies that it waits for", loc)
    return newest - needed
