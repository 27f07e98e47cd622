"""Clocks of a unit for each workgroup of a kernel of many products: what orders of straight code are compared by, and
of loops whose trips are long.

In: a kernel, its target, how many workgroups the unit has. Out: the clocks from one workgroup's end to the next one's,
of workgroups that wait each for itself and queue for the unit that they keep busy longest (`unit_clocks.queued`).

By itself a workgroup's waves go through the code in step. Each waits where it uses what it has loaded, where it waits
for copies, and where it meets the others, and what they do takes its turn at their units; an assembler that orders
instructions itself finds something else to do up to the next meeting. It is a comparison between kernels that compute
the same, not a prediction.
"""

from __future__ import annotations

from collections.abc import Set
from math import inf

from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Value
from wavedsl.ir.kernel.trip_clocks import FROM_MEMORY, LANES, LOADS, LONG, started
from wavedsl.ir.kernel.unit_clocks import NAMES, PORTS, UNKNOWN, issued, port_cost, queued, unit_clocks
from wavedsl.ir.kernel.unroll import static_trips
from wavedsl.ir.target import Target

COPY = "copy.async"
MOVES = LOADS | {COPY, "store.global"}


def straight_clocks(
    kernel: Kernel, target: Target, resident: int, bytes: float = 0.0, there: Set[Value] | None = None,
    busy: float | None = None,
) -> float:  # fmt: skip
    """Clocks per workgroup of a unit that holds so many at a time. `bytes`: a workgroup's share of the arrays, which
    memory moves once at the least, as far as the kernel asks for so much. `there`: results of loads that nobody waits
    for, nor for copies then, as if they had been asked for early enough; a workgroup that is alone does not wait for
    its other waves either, since barriers may come to stand elsewhere. So no order takes less in which these come
    earlier. `busy`: what `unit_clocks` says of it, where that is known."""
    alone = _Alone(target, kernel.waves, there, resident == 1).clocks(kernel.body)
    moved = kernel.block * sum(op.attrs["bytes"] * times for op, times in issued(kernel.body) if op.name in MOVES)
    memory = min(bytes, moved) * target.units / (target.memory_rate or inf)
    busy = max(memory, unit_clocks(kernel, target, resident) if busy is None else busy)
    return queued(max(0.0, alone - busy), busy, resident)


def loaded(kernel: Kernel) -> Set[Value]:
    """What comes from memory."""
    return {v for op in kernel.body.walk() if op.name in LOADS for v in op.results}


def copied(kernel: Kernel) -> Set[Value]:
    """What is stored to shared memory, and what of that is chosen, or another name for it."""
    found = {op.args[-1] for op in kernel.body.walk() if op.name == "store.shared"}
    work = list(found)
    while work:
        op = work.pop().op
        for v in op.args if op is not None and (op.name in NAMES or op.name == "select") else ():
            if v not in found:
                found.add(v)
                work.append(v)
    return found


FIRST = 3
"""Trips of a loop that are gone through: the others take as long as the last of these."""


class _Alone:
    """A workgroup that has the unit to itself: when its waves go on, when results and copies are there, when units are
    free."""

    def __init__(self, target: Target, waves: int, there: Set[Value] | None, alone: bool):
        self.target, self.waves, self.there = target, waves, there
        self.valu = target.cost("valu")
        self.apart = alone and there is not None
        self.rounds = -(-waves // target.simds)
        self.now = self.end = 0.0
        self.ready: dict[Value, float] = {}
        self.free: dict[str, float] = {}
        self.open = 0.0
        """When the copies of the group that is being filled have arrived; of those in flight, in order, below."""
        self.groups: list[float] = []

    def clocks(self, region: Region) -> float:
        self.region(region)
        return max([self.now, self.end, *self.free.values()])

    def region(self, region: Region) -> None:
        for op in region.ops:
            if op.name == "for":
                self.loop(op)
                continue
            self.op(op)
            for body in op.regions:
                self.region(body)

    def loop(self, loop: Op) -> None:
        """A loop's trips. What they carry is waited for where it is used."""
        body, known = loop.regions[0], static_trips(loop)
        trips = UNKNOWN if known is None else known
        carried, began = [self.ready.get(a, 0.0) for a in loop.args[3:]], self.now
        for _ in range(min(trips, FIRST)):
            self.ready.update(zip(body.args[1:], carried))
            began = self.now
            self.region(body)
            carried = [self.ready.get(a, 0.0) for a in body.ops[-1].args]
        self.ready.update(zip(loop.results, carried[len(carried) - len(loop.results) :]))
        self.later((self.now - began) * max(0, trips - FIRST))

    def later(self, clocks: float) -> None:
        """Everything that goes on does so that much later."""
        if clocks:
            self.now, self.end, self.open = self.now + clocks, self.end + clocks, self.open + clocks
            self.groups = [end + clocks for end in self.groups]
            for times in (self.ready, self.free):
                for key, at in times.items():
                    times[key] = at + clocks  # type: ignore[index]

    def op(self, op: Op) -> None:
        if op.name == "yield":
            return
        start = started(self.now, op, self.ready)
        if op.name in NAMES or op.name == "readfirst":
            self.ready.update(dict.fromkeys(op.results, start))
            return
        if op.name == "barrier":
            if not self.apart:
                self.now = max(start, self.end) + self.target.cost("barrier").latency
            return
        if op.name == "copy.commit":
            self.groups.append(self.open)
            return
        if op.name == "copy.wait":
            left = max(0, len(self.groups) - op.attrs["pending"])
            self.now = max([start, *self.groups[:left]])
            del self.groups[:left]
            return
        if not self.target.assembler_schedules:
            self.now = start
        self.now += self.target.clock_unit * self.rounds
        unit, clocks, latency = self.price(op)
        if self.there is not None and (op.name == COPY or not self.there.isdisjoint(op.results)):
            latency = 0.0
        done = max(start, self.free.get(unit, 0.0)) + clocks
        if unit:
            self.free[unit] = done
        done += latency
        if op.name == COPY:
            self.open = max(self.open, done)
        elif op.name not in LOADS:  # whoever uses what comes from memory waits for it, and nobody else
            self.end = max(self.end, done)
        self.ready.update(dict.fromkeys(op.results, done))

    def price(self, op: Op) -> tuple[str, float, float]:
        """(unit, clocks that all waves together keep it busy for, clocks from then on until results are there)."""
        target, valu = self.target, self.valu
        if op.name in PORTS or op.name in LOADS:
            cost = port_cost(op, target)
            from_memory = op.name in LOADS or op.name == COPY
            latency = target.cost("load.global", 4).latency * FROM_MEMORY if from_memory else cost.latency
            share = self.waves if cost.unit in target.shared_units else self.rounds
            return cost.unit, cost.cycles * share, latency if op.results or from_memory else 0.0
        if op.name in ("mma", "mma.scaled"):
            return "matrix", op.attrs["atom"].cycles * self.rounds, 0.0
        if op.name in LANES:
            return "", 0.0, target.cost("load.shared", 4).latency
        if not op.results or (target.scalar_registers and all(v.uniform for v in op.results)):
            return "", 0.0, 0.0
        many = LONG.get(op.name, 1) * max(v.type.n for v in op.results)
        return valu.unit, many * valu.cycles * self.rounds, valu.latency if target.assembler_schedules else 0.0


__all__ = ["copied", "loaded", "straight_clocks"]
