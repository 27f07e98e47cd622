"""Clocks that a workgroup keeps a compute unit busy, counted from kernel IR: what ways to divide it are compared by.

In: a kernel, its target, how many workgroups the unit holds. Out: clocks of whichever takes longer, the units of its
SIMDs or those that all waves share. Loops of which nobody knows the trips count as `UNKNOWN`. Nothing is said of
latencies: it is a comparison between kernels that compute the same, not a prediction.
"""

from __future__ import annotations

from wavedsl.ir.kernel.kernel_ir import ROWS, Kernel, Op, Region
from wavedsl.ir.kernel.meetings import MEETINGS
from wavedsl.ir.kernel.unroll import static_trips
from wavedsl.ir.target import Target, Unit

UNKNOWN = 16
"""Trips of a loop of which nobody knows how many it has."""
PORTS = frozenset({"load.global", "store.global", "load.shared", "store.shared", "atomic.shared", "copy.async"})
NAMES = frozenset({"const", "param", "vec", "slice", "buffer", "bitcast", "undefined"})
"""Operations that name registers."""
WIDTHS = (1, 2, 4, 8, 12, 16)


def unit_clocks(kernel: Kernel, target: Target, resident: int, least: int = 1, beside: bool = True) -> float:
    """Clocks per workgroup of a unit that holds `resident` of them at a time. `least`: waves of a SIMD below which it
    is busy no more than with one, since each waits for its own results. `beside`: whether what some waves multiply,
    compute and load goes on at a time; where a SIMD has one wave, it does one after the other."""
    busy: dict[str, float] = {}
    for op, times in issued(kernel.body):
        unit, clocks = _cost(op, target)
        if clocks:
            busy[unit] = busy.get(unit, 0.0) + clocks * times
    waves = kernel.waves * resident
    rounds = max(least, -(-waves // target.simds))
    taken = [clocks * (waves if unit in target.shared_units else rounds) for unit, clocks in busy.items()]
    return (max(taken, default=0.0) if beside else sum(taken)) / resident


def queued(waits: float, busy: float, groups: int) -> float:
    """Clocks for each of so many workgroups that wait `waits` clocks each for itself and queue for the unit that each
    keeps `busy` (mean value analysis of one queue: each finds there what one workgroup less would have left)."""
    there, taken = 0.0, waits + busy
    for n in range(1, groups + 1):
        through = busy * (1 + there)
        taken = (waits + through) / n
        there = through / taken if taken else 0.0
    return taken


def vector_clocks(kernel: Kernel, target: Target) -> float:
    """Clocks that a wave's vector instructions take."""
    own = target.cost("valu").unit
    costs = ((_cost(op, target), times) for op, times in issued(kernel.body))
    return sum(clocks * times for (unit, clocks), times in costs if unit == own)


def meeting_clocks(kernel: Kernel, target: Target) -> float:
    """Clocks that a workgroup's waves wait where they meet: for a number to be in shared memory, for each other, and
    for what others have put there."""
    if kernel.waves == 1:
        return 0.0
    meetings = sum(times for op, times in issued(kernel.body) if op.name in MEETINGS)
    stored, met, loaded = target.cost("store.shared", 4), target.cost("barrier"), target.cost("load.shared", 4)
    return meetings * (stored.cycles + met.latency + loaded.latency)


def issued(region: Region, times: int = 1) -> list[tuple[Op, int]]:
    """Ops, and how often a wave issues each."""
    found: list[tuple[Op, int]] = []
    for op in region.ops:
        found.append((op, times))
        if op.regions:
            known = static_trips(op) if op.name == "for" else 1
            for body in op.regions:
                found += issued(body, times * (UNKNOWN if known is None else known))
    return found


def port_cost(op: Op, target: Target) -> Unit:
    """What an access costs, by the least of the widths in the target's table that holds it."""
    size = next((n for n in WIDTHS if n >= op.attrs["bytes"]), WIDTHS[-1])
    return target.cost(op.name.replace("far", "global"), size)


def _cost(op: Op, target: Target) -> tuple[str, float]:
    """The unit that an op occupies, and for how many clocks."""
    if op.name in PORTS:
        cost = port_cost(op, target)
        return cost.unit, cost.cycles
    if op.name in ("mma", "mma.scaled"):
        return "matrix", op.attrs["atom"].cycles
    if op.name in NAMES or not ROWS[op.name].pure or (target.scalar_registers and all(v.uniform for v in op.results)):
        return "", 0.0
    valu = target.cost("valu")
    return valu.unit, valu.cycles * max([1, *(v.type.n for v in op.results)])


__all__ = ["issued", "meeting_clocks", "port_cost", "queued", "unit_clocks", "vector_clocks"]
