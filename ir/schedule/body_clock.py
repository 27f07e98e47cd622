"""Clocks of a loop body's trip, by playing a schedule: what an initiation interval leaves out.

In: a `BodySchedule` with its steps, the waves of the workgroup. Out: clocks per trip.

An initiation interval counts what the busiest unit does. It does not know that a wave issues in order, that a barrier
stops every wave until the slowest has come and its own accesses to shared memory have returned, and that two waves on a
SIMD that stop together leave its matrix unit idle. So two schedules are compared by playing both: every wave goes
through the body's order a few trips long, on units that serve in order of issue: the matrix unit of its SIMD, LDS and
vector memory of the compute unit. The rules are those of the cycle model of emitted text
(docs/cycle-model.md); waits are those that the text will have (`body_waits.py`), loads bring whole cache lines from L2
at the unit's share of its bandwidth, bank conflicts are those of the steps.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from wavedsl.ir.schedule.body_waits import BARRIER, COMMIT, PRIORITY, QUEUES, Event, waits
from wavedsl.ir.schedule.steps import BodySchedule, Key, Step
from wavedsl.ir.target import Target

TURN = 4
"""Clocks between two instructions of a wave."""
WARM, TRIPS, AHEAD = 4, 4, 2
"""Trips that are played before the clock starts, that are counted, and by which other waves may be ahead."""


class _Wave:
    __slots__ = (
        "arrivals", "at", "came", "copied", "done", "groups", "number", "position", "priority", "returned", "trip",
    )  # fmt: skip

    def __init__(self, number: int, arrivals: int):
        self.number = number
        self.at = self.position = self.trip = self.priority = 0
        self.arrivals = arrivals
        """Barriers that it passes before its first trip."""
        self.returned = 0
        """When its last access to LDS has returned."""
        self.copied = 0
        """When its last copy without registers has arrived."""
        self.groups: list[int] = []
        """The same of each of its last groups of copies."""
        self.done: dict[tuple[Key, int], int] = {}
        """When a value of an iteration is there that no access brings."""
        self.came: dict[str, list[int]] = {"vm": [], "lds": []}
        """When each of its accesses has returned, in order of issue."""


class _Play:
    """One workgroup on a compute unit."""

    def __init__(self, body: BodySchedule, steps: Sequence[Step], waves: int, target: Target):
        self.body, self.steps, self.simds, self.shared = body, steps, target.simds, target.shared_units
        simds = target.simds
        rate = target.cache_rate
        bytes_of = [s.words * 4 * target.wave_size if s.kind == "gload" else self.copied(s, waves) for s in steps]
        bytes_of = [s.moved or n for s, n in zip(steps, bytes_of)]
        self.transfer = [n / rate if rate else 0.0 for n in bytes_of]
        """Clocks of the link to L2 that a load takes."""
        held = sum(bytes_of) * waves <= target.l1_bytes
        self.again = [s.again if held else 1 for s in steps]
        """Every how many iterations it takes them: whose lines L1 still holds from the ones before take none."""
        self.link = 0.0
        least = target.cost("load.shared", 4).latency
        self.latency = [max(s.latency, least) if s.kind == "swrite" else s.latency for s in steps]
        """A store to LDS has returned when a read would have."""
        brought = {k for s in steps if s.kind in QUEUES for k in s.defs}
        self.uses = [[k for k in s.uses if k not in brought] for s in steps]
        """What no access brings: that is waited for."""
        self.events: list[Event] = []
        for p in range(len(body.order) + 1):
            if p in body.barriers:
                pending = body.barriers[p]
                self.events.append((BARRIER, 1 << 20 if pending is None else pending))
            if p in body.raised:
                self.events.append((PRIORITY, body.raised[p]))
            if p < len(body.order):
                self.events.append((body.order[p], 0))
            if p in body.commits:
                self.events.append((COMMIT, 0))
        share = {unit: waves if unit in self.shared else -(-waves // simds) for s in steps for unit, _ in s.resources}
        self.units = [[(u, c // share[u]) for u, c in s.resources if u != "issue"] for s in steps]
        lds = target.cost("load.shared", 4).unit
        for i, s in enumerate(steps):
            if s.shared_clocks:
                self.units[i] = [(u, s.shared_clocks if u == lds else c) for u, c in self.units[i]]
        busy = [max((c for _, c in units), default=0) for units in self.units]
        self.left = waits(self.events, steps, body.stages, busy, WARM + TRIPS + AHEAD, waves, simds)
        self.issue = [max([TURN, *(c // share[u] for u, c in s.resources if u == "issue")]) for s in steps]
        self.free: dict[tuple[str, int], int] = {}
        behind = waves // 2 if body.raised else waves
        self.waves = [_Wave(n, int(n >= behind)) for n in range(waves)]
        self.queue: list[tuple[int, int, int]] = []
        self.arrived: list[_Wave] = []
        self.marks: list[int] = []

    @staticmethod
    def copied(s: Step, waves: int) -> int:
        """Bytes that a wave's copy without registers moves: vector memory takes 64 a clock."""
        return sum(64 * clocks // waves for unit, clocks in s.resources if unit == "vmem") if s.kind == "acopy" else 0

    def run(self) -> float:
        for w in self.waves:
            if w.arrivals:
                self.arrived.append(w)
            else:
                heapq.heappush(self.queue, (0, 0, w.number))
        while len(self.marks) < WARM + TRIPS:
            when, rank, number = heapq.heappop(self.queue)
            w = self.waves[number]
            now = self.ready(w)
            if now > when or rank != -w.priority:
                heapq.heappush(self.queue, (now, -w.priority, number))
            else:
                self.issue_one(w, now)
        return (self.marks[-1] - self.marks[WARM - 1]) / TRIPS

    def ready(self, w: _Wave) -> int:
        """The clock from which a wave's next event can happen."""
        step, pending = self.events[w.position]
        if step == BARRIER:
            return max([w.at, w.returned, *w.groups[: max(0, len(w.groups) - pending)]])
        at = w.at
        if step < 0:
            return at
        iteration = w.trip - self.body.stages[step]
        for k in self.uses[step]:
            at = max(at, w.done.get((k, iteration), 0))
        for came, left in zip(w.came.values(), self.left.get((w.trip, w.position), ())):
            if 0 <= left < len(came):
                at = max(at, came[-1 - left])
        for unit, _ in self.units[step]:
            if unit not in self.shared:
                at = max(at, self.free.get((unit, w.number % self.simds), 0))
        return at

    def issue_one(self, w: _Wave, now: int) -> None:
        step, level = self.events[w.position]
        if step == BARRIER:
            self.arrived.append(w)
            if len(self.arrived) == len(self.waves):
                arrived, self.arrived = self.arrived, []
                for other in arrived:
                    if other.arrivals:
                        other.arrivals -= 1
                    else:
                        self.advance(other, now)
                    self.go_on(other, now + TURN)
            return
        clocks = TURN
        if step == PRIORITY:
            w.priority = level
        elif step == COMMIT:
            w.groups = [*w.groups[-3:], w.copied]
            clocks = 0
        else:
            clocks = self.issue[step]
            s, start = self.steps[step], now
            for unit, busy in self.units[step]:
                key = (unit, -1 if unit in self.shared else w.number % self.simds)
                begin = max(now, self.free.get(key, 0))
                self.free[key] = begin + busy
                start = max(start, begin)
            done = start + self.latency[step]
            iteration = w.trip - self.body.stages[step]
            if self.transfer[step]:
                taken = self.transfer[step] if iteration % self.again[step] == 0 else 0.0
                self.link = max(self.link, start) + taken
                done = int(self.link) + s.latency
            for k in s.defs:
                w.done[k, iteration] = done
            if s.kind in QUEUES:
                came = w.came[QUEUES[s.kind]]
                came.append(max([done, *came[-1:]]))
            if s.kind == "acopy":
                w.copied = done
            elif s.buffer:
                w.returned = max(w.returned, done)
        self.advance(w, now)
        self.go_on(w, now + clocks)

    def advance(self, w: _Wave, now: int) -> None:
        w.position += 1
        if w.position == len(self.events):
            w.position = 0
            w.trip += 1
            if w.number == 0:
                self.marks.append(now)

    def go_on(self, w: _Wave, at: int) -> None:
        w.at = at
        heapq.heappush(self.queue, (at, -w.priority, w.number))


def clocks_per_trip(body: BodySchedule, steps: Sequence[Step], waves: int, target: Target) -> float:
    """Clocks between two trips of a workgroup of `waves` waves that has the compute unit to itself, while all other
    units are as busy."""
    return _Play(body, steps, waves, target).run()
