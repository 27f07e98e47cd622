"""Clocks that a unit needs for a workgroup, waiting included, counted from kernel IR.

In: a kernel, the chip, how many of its warps compute, how many workgroups the unit holds. Out: the longest of what a
SIMD issues, what its matrix unit multiplies, what units of all waves are busy for, and what one workgroup takes alone
divided by those beside it. Warps with roles of their own run beside each other, so of a condition's sides the longer
counts; workgroups that take tiles in turn go through one. Loops of which nobody knows the trips count as `UNKNOWN`.

It is for choosing between a warpgroup and warps, whose kernels move the same bytes: memory's own time is left out.
"""

from __future__ import annotations

from wavedsl.ir.kernel.kernel_ir import Op, Region
from wavedsl.ir.kernel.trip_clocks import FROM_MEMORY, Walk
from wavedsl.ir.kernel.unit_clocks import PORTS, UNKNOWN, port_cost
from wavedsl.ir.kernel.unroll import static_trips
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

PRODUCTS = frozenset({"mma", "mma.scaled", "matrix.start"})
APART = frozenset({"for", *PRODUCTS})
"""What makes a condition's side one that is not gone through beside what stands around it."""
IN_TURN = "tile"
"""Label of the loop over the tiles that a workgroup takes in turn."""

BEGINS = 2500
"""Clocks that a workgroup takes beside its code's: until it begins, until the first tiles are there and what places
them, and until its results have left. Seven kernels of two trips took 1900 to 2600 by the model."""


def in_turn(body: Region) -> bool:
    """Whether a kernel's workgroups take several tiles."""
    return any(op.name == "for" and op.attrs.get("label") == IN_TURN for op in body.walk())


@dataclass
class Spent:
    """Clocks of one wave: from first to last, issuing, multiplying, and keeping units of all waves busy, those that
    shared memory answers apart from those that caches do."""

    alone: float
    issued: float
    multiplied: float
    busy: dict[str, float]

    def add(self, other: Spent, times: int = 1) -> None:
        self.alone += other.alone * times
        self.issued += other.issued * times
        self.multiplied += other.multiplied * times
        for unit, clocks in other.busy.items():
            self.busy[unit] = self.busy.get(unit, 0.0) + clocks * times


def group_clocks(body: Region, target: Target, warps: int, resident: int) -> float:
    """Clocks of a unit for each of the `resident` workgroups that it holds, each with so many warps that compute."""
    spent = _spent(body, target)
    first = target.cost("load.global", 4).latency * FROM_MEMORY if in_turn(body) else BEGINS
    rounds = warps / target.simds
    shared = max(spent.busy.values(), default=0.0) * warps
    return max(spent.issued * rounds, spent.multiplied * rounds, shared, (spent.alone + first) / resident)


def _spent(region: Region, target: Target) -> Spent:
    total, walk = Spent(0.0, 0.0, 0.0, {}), Walk(target)
    multiplied, busy = 0.0, dict[str, float]()

    def close() -> Walk:
        total.add(Spent(max(walk.now, walk.end), walk.issued, multiplied, busy))
        return Walk(target)

    for op in region.ops:
        if op.name == "yield":
            continue  # what is handed on is waited for where it is used
        if op.name == "for" or (op.name == "if" and _apart(op)):
            walk, multiplied, busy = close(), 0.0, {}
            sides = [_spent(side, target) for side in op.regions]
            total.add(max(sides, key=lambda side: side.alone), _trips(op) if op.name == "for" else 1)
            continue
        walk.step(op)
        for x in (op, *(x for side in op.regions for x in side.walk())):
            if x.name in PORTS:
                kind = "shared" if x.name.endswith(".shared") else "memory"
                busy[kind] = busy.get(kind, 0.0) + port_cost(x, target).cycles
        if op.name in PRODUCTS:
            multiplied += op.attrs["atom"].cycles
            walk.end = max(walk.end, walk.now + op.attrs["atom"].cycles)
    close()
    return total


def _apart(op: Op) -> bool:
    return any(x.name in APART for side in op.regions for x in side.walk())


def _trips(loop: Op) -> int:
    if loop.attrs.get("label") == IN_TURN:
        return 1
    known = static_trips(loop)
    return UNKNOWN if known is None else known


__all__ = ["group_clocks", "in_turn"]
