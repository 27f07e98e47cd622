"""Clocks of a unit for each tile of a kernel with products, waiting included, counted from kernel IR.

In: a kernel, the chip, how many of its warps compute a tile, how many workgroups the unit holds, a tile's share of the
arrays. Out: `Clocks`: the longest that something is busy for, and all told. Workgroups that take one tile each wait for
themselves and queue for what they keep busy longest (`unit_clocks.queued`). One that takes tiles in turn is alone, its
copies run ahead, and it takes as long as its longer role; where two warpgroups take turns, loops come one after the
other, and what is around them beside. Loops of which nobody knows the trips count as `UNKNOWN`.

It is for choosing between ways to divide the same tile among waves. Constants are fitted to the model's clocks of 84
cases, up to three ways each (docs/design/004-hopper.md).
"""

from __future__ import annotations

from dataclasses import field
from math import hypot, inf

from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region
from wavedsl.ir.kernel.trip_clocks import LONG, Walk
from wavedsl.ir.kernel.unit_clocks import PORTS, UNKNOWN, port_cost, queued
from wavedsl.ir.kernel.unroll import static_trips
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

STARTS = frozenset({"mma", "mma.scaled", "matrix.start"})
APART = frozenset({"for", *STARTS})
"""What makes a condition's side one that is not gone through beside what stands around it."""
FILLS = frozenset({"signal.expect", "copy.async"})
"""What brings tiles to shared memory while waves go on."""
BULK = "copy.bulk"
TELLS = frozenset({"signal.expect", "signal.copied"})
"""What the role that copies does, and no other."""
SPECIAL = frozenset({"exp2", "log2", "rcp", "rsqrt", "sqrt", "sqrt_approx", "sin", "cos", "fdiv"})
"""Operations of the unit for special functions."""
MULTIPLIES = frozenset({"fadd", "fsub", "fmul", "ffma", "mul", "mulhi_u", "mul_wide_u"})
"""Operations of the unit for multiply-adds; other arithmetic takes twice as long (CUDA programming guide,
arithmetic throughput)."""
IN_TURN = "tile"
"""Label of the loop over the tiles that a workgroup takes in turn."""

BEGINS = 2500
"""Clocks that a workgroup takes beside its code's: until it begins, until the first tiles are there and what places
them, and until its results have left. Seven kernels of two trips took 1900 to 2600."""
SIGNALS = 1000
"""What it takes more where tiles come while waves go on: barriers and tensor maps are made ready, and a tile comes by
way of its barrier."""
LEAVES = 300
"""Clocks between a tile's last result and the next tile's first product, of workgroups that take several."""
HELD = 0.5
"""Part of a tile's clocks until what it has once has been read, and the next tile's may come."""
IN_ORDER = 0.5
"""Clocks that a warp waits for results for each that it issues in, whatever order the assembler finds."""


@dataclass
class Clocks:
    """Clocks of a unit for a tile. `busy`: of whatever any way to divide it keeps busy as long: memory, what brings
    operands, the matrix unit."""

    taken: float
    busy: float


SUMS = (
    "alone", "looped", "issued", "multiplied", "special", "logic", "brought", "fills", "copying", "beside",
)  # fmt: skip


@dataclass
class Spent:
    """Of one computing wave: clocks from first to last, in loops, issuing, multiplying, and keeping units of a SIMD and
    of all waves busy. Of its workgroup: bytes that it asks for, copies that run beside waves; of the role that copies:
    its clocks, what it keeps each SIMD busy for, whether a copy waits for the tile before to be done."""

    alone: float = 0.0
    looped: float = 0.0
    issued: float = 0.0
    multiplied: float = 0.0
    special: float = 0.0
    logic: float = 0.0
    busy: dict[str, float] = field(default_factory=dict)
    brought: float = 0.0
    fills: int = 0
    copying: float = 0.0
    beside: float = 0.0
    late: bool = False

    def add(self, other: Spent, times: int = 1) -> None:
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name) * times)
        self.late |= other.late
        for unit, clocks in other.busy.items():
            self.busy[unit] = self.busy.get(unit, 0.0) + clocks * times


def in_turn(body: Region) -> bool:
    """Whether a kernel's workgroups take several tiles."""
    return any(op.name == "for" and op.attrs.get("label") == IN_TURN for op in body.walk())


def group_clocks(kernel: Kernel, target: Target, warps: int, resident: int, share: float) -> Clocks:
    """Clocks of a unit for a tile that so many warps compute, where it holds `resident` workgroups. `share`: bytes of
    the arrays for each tile, which memory moves once, as far as the kernel asks for so much."""
    strategy = kernel.notes["lowering"].strategy
    copies = bool(strategy and strategy.specialize)
    slots = {buffer.name: buffer.slots for buffer in kernel.notes["decisions"].buffers}
    spent = _Tile(target, warps, copies, slots).spent(kernel.body)
    rounds = warps / target.simds
    memory = min(share, spent.brought) * target.units / (target.memory_rate or inf)
    least = max(memory, spent.brought / (target.tile_rate or inf), spent.multiplied * rounds)
    logic = spent.logic * rounds + spent.beside
    shared = max(spent.busy.values(), default=0.0) * warps
    busy = max(least, spent.issued * rounds, spent.special * rounds, logic, shared)
    if in_turn(kernel.body):
        teams = strategy.teams if strategy else 1
        loops = spent.looped if teams > 1 else 0.0
        copying = max(spent.copying, target.bulk_latency + spent.alone * HELD if spent.late else 0.0)
        waits = max(loops, copying, (spent.alone + LEAVES) / teams)
        return Clocks(hypot(busy, waits) if warps * teams <= target.simds else max(busy, waits), least)
    alone = spent.alone + BEGINS + (SIGNALS if spent.fills else 0)
    return Clocks(queued(max(0.0, alone - busy), busy, resident), least)


class _Tile:
    """What computing a tile takes. `copies`: another role brings its operands. `slots` of shared buffers."""

    def __init__(self, target: Target, warps: int, copies: bool, slots: dict[str, int]):
        self.target, self.warps, self.copies, self.slots = target, warps, copies, slots

    def spent(self, region: Region) -> Spent:
        total = Spent()
        wave, here = _Wave(self.target), Spent()
        for op in region.ops:
            if op.name == "yield":
                continue  # what is handed on is waited for where it is used
            if op.name == "for" or (op.name == "if" and _apart(op)):
                total.add(wave.told(here))
                wave, here = _Wave(self.target), Spent()
                if op.name == "for":
                    self.loop(op, total)
                else:
                    self.branch(op, total)
                continue
            wave.step(op)
            self.note(op, here)
            for side in op.regions:
                for x in side.walk():
                    self.note(x, here)
        total.add(wave.told(here))
        return total

    def note(self, op: Op, spent: Spent) -> None:
        """Add what an op keeps busy for all waves."""
        if op.name in STARTS:
            spent.multiplied += op.attrs["atom"].cycles
        if op.name in FILLS:
            spent.fills += 1
        if op.name == "signal.expect":
            spent.brought += op.attrs["bytes"]
        if op.name in PORTS:
            shared = op.name.endswith(".shared")
            kind = "shared" if shared else "memory"
            spent.busy[kind] = spent.busy.get(kind, 0.0) + port_cost(op, self.target).cycles
            if not shared:
                spent.brought += op.attrs["bytes"] * self.target.wave_size * self.warps

    def loop(self, op: Op, total: Spent) -> None:
        trip = self.spent(op.regions[0])
        trips = _trips(op)
        if op.attrs.get("label") != IN_TURN:
            slots = self.depth(op.regions[0])
            if trip.fills and trips > slots:
                # A slot is filled when its tile has been read; by the wave itself at the end of that trip, if it is a
                # bulk copy's, at the start of the next one, if its lanes copy.
                by_waves = all(x.name != BULK for x in op.regions[0].walk())
                later = slots if self.copies else slots - 1 if by_waves else slots - 2
                trip.alone = max(trip.alone, self.target.bulk_latency / max(1, later))
            trip.looped = trip.alone
        total.add(trip, trips)

    def depth(self, region: Region) -> int:
        """Slots of what a loop's trips fill."""
        filled = [self.slots[x.attrs["buffer"]] for x in region.walk() if x.name == BULK]
        return min(filled) if filled else max(self.slots.values(), default=1)

    def branch(self, op: Op, total: Spent) -> None:
        """The side that takes longer; of roles, which run beside each other, the computing one."""
        sides = [self.spent(side) for side in op.regions]
        longest = max(sides, key=lambda side: side.alone)
        if self.copies and len(sides) == 2 and any(x.name in TELLS for x in op.regions[0].walk()):
            copying, longest = sides
            longest.copying, longest.beside = copying.alone, copying.logic
            longest.late = self.single(op.regions[0])
        longest.brought = sum(side.brought for side in sides)
        total.add(longest)

    def single(self, region: Region) -> bool:
        """Whether the role that copies fills a buffer of one slot once a tile."""
        for op in region.ops:
            if op.name != "for" or op.attrs.get("label") == IN_TURN:
                if (op.name == BULK and self.slots[op.attrs["buffer"]] == 1) or any(map(self.single, op.regions)):
                    return True
        return False


class _Wave(Walk):
    """A wave that waits for groups of products of its own, and queues for the unit of special functions."""

    def __init__(self, target: Target):
        super().__init__(target)
        self.special = self.logic = self.multiplies = 0.0
        self.groups: list[float] = []

    def step(self, op: Op) -> None:
        if op.name == "matrix.wait":
            done = max(0, len(self.groups) - op.attrs["pending"])
            self.now = max([self.now, *(end + self.target.product_latency for end in self.groups[:done])])
            del self.groups[:done]
            return
        if op.name == "matrix.commit":
            self.groups.append(self.multiplies)
        before = self.issued
        super().step(op)
        if op.name not in MULTIPLIES and op.row.pure:
            self.logic += 2 * (self.issued - before)
        if op.name in STARTS:
            self.multiplies = max(self.multiplies, self.now) + op.attrs["atom"].cycles
            self.end = max(self.end, self.multiplies)
        if op.name in SPECIAL:
            parts = 2 if op.name in LONG else 1  # a quotient or a sine is more than one of them
            self.special += self.target.cost("special").cycles * parts * max([1, *(v.type.n for v in op.results)])

    def told(self, spent: Spent) -> Spent:
        """What it took, beside what was noted."""
        spent.alone = max(self.now + IN_ORDER * self.issued, self.end, self.special, self.logic)
        spent.issued, spent.special, spent.logic = self.issued, self.special, self.logic
        return spent


def _apart(op: Op) -> bool:
    return any(x.name in APART for side in op.regions for x in side.walk())


def _trips(loop: Op) -> int:
    if loop.attrs.get("label") == IN_TURN:
        return 1
    known = static_trips(loop)
    return UNKNOWN if known is None else known


__all__ = ["Clocks", "group_clocks", "in_turn"]
