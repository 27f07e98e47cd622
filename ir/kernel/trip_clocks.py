"""Clocks of a loop's trip and how many trips ahead its loads have to start, counted from kernel IR.

In: a loop, its target, the waves that share a SIMD. Out: clocks from a trip's start to the next one's. A wave goes
through the body in order and waits for what shared memory, other lanes and memory give it in the same trip, not for
what was loaded in trips before: that is what `trips_to_cover` is asked about. An assembler that orders instructions
itself finds something else to do meanwhile, but for what hangs on each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from wavedsl.ir.kernel.kernel_ir import Op, Region, Value
from wavedsl.ir.kernel.unit_clocks import NAMES, PORTS, port_cost
from wavedsl.ir.target import Target

FROM_MEMORY = 2.0
"""How many times as long as the target says a load takes that comes from memory and not from L2, as rows do that are
read once (`cycle_chips`: 800 clocks for 500), behind others that start with it."""
LATER = 0.5
"""Part of a trip that a load waits for its registers, between their first and their last use, on average."""
LONG = {"fdiv": 10, "udiv": 16, "urem": 16, "sin": 4, "cos": 4}
"""Operations that are several instructions."""
LOADS = frozenset({"load.global", "load.far"})
LANES = frozenset({"shuffle_xor", "shuffle_index"})
ROW = 16
"""Neighbouring lanes that exchange by patterns, where a chip has them (`Target.row_patterns`)."""


def trips_to_cover(clocks: float, target: Target, many: bool) -> int:
    """Trips of so many clocks that pass while a load is on its way, of a loop of `many` trips: code for several costs
    few of them more than the last part of a trip gains."""
    later = LATER if many else 0.0
    return ceil(target.cost("load.global", 4).latency * FROM_MEMORY / max(1.0, clocks) + later)


def trip_clocks(loop: Op, target: Target, beside: int, waves: int) -> float:
    """Clocks of a trip of `loop`, with `beside` waves on a SIMD and `waves` on the unit."""
    walk = Walk(target)
    walk.region(loop.regions[0])
    busy = [clocks * (waves if unit in target.shared_units else beside) for unit, clocks in walk.busy.items()]
    return max([walk.now, walk.end, walk.issued * beside, *busy])


def started(now: float, op: Op, ready: Mapping[Value, float]) -> float:
    """When an op that comes at `now` has its operands."""
    for a in op.args:
        there = ready.get(a)
        if there is not None and there > now:
            now = there
    return now


class Walk:
    """A wave in a body: its clock, when the last result comes, clocks that it issued for and kept units busy for."""

    def __init__(self, target: Target):
        self.target, self.valu = target, target.cost("valu")
        self.now = self.end = self.issued = 0.0
        self.busy: dict[str, float] = {}
        self.ready: dict[Value, float] = {}

    def region(self, region: Region) -> None:
        for op in region.ops:
            if op.name == "yield" and region.parent is not None and region.parent.name == "for":
                continue  # what is only handed on is waited for where it is used
            self.step(op)

    def step(self, op: Op) -> None:
        start = started(self.now, op, self.ready)
        issue, latency = self.price(op)
        if op.name == "barrier":
            self.now = max(start, self.end)
        elif not self.target.assembler_schedules:
            self.now = start
        self.now += issue
        self.issued += issue
        done = start + issue + latency
        self.ready.update(dict.fromkeys(op.results, done))
        if op.name not in LOADS:  # whoever uses what comes from memory waits for it, in this trip or a later one
            self.end = max(self.end, done)
        for body in op.regions:
            self.region(body)

    def price(self, op: Op) -> tuple[float, float]:
        """(clocks to issue it, clocks from then on until its results are there)."""
        target, valu = self.target, self.valu
        by_itself = target.assembler_schedules
        if op.name in NAMES or op.name in ("yield", "readfirst"):
            return 0.0, 0.0
        turn = valu.cycles / 2 if by_itself else target.clock_unit
        if op.name in PORTS or op.name in LOADS:
            cost = port_cost(op, target)
            self.busy[cost.unit] = self.busy.get(cost.unit, 0.0) + cost.cycles
            return turn, cost.latency if op.results else 0.0
        if op.name in LANES and not (target.row_patterns and op.attrs.get("mask", ROW) < ROW):
            return turn, target.cost("load.shared", 4).latency
        if op.name == "barrier":
            return turn + target.cost("barrier").latency, 0.0
        if target.scalar_registers and op.results and all(v.uniform for v in op.results):
            return turn, 0.0
        many = LONG.get(op.name, 1) * max([1, *(v.type.n for v in op.results)])
        return turn * many, valu.latency if by_itself else 0.0


__all__ = ["FROM_MEMORY", "Walk", "started", "trip_clocks", "trips_to_cover"]
