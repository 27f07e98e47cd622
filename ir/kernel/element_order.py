"""Values are computed when something asks for them, where all at once are more than a wave's registers.

In: a kernel. Out: the same, reordered. Node by node lowering makes all elements of a value before the first of the
next, so a chain of comparisons and choices over 64 elements of a lane holds several times 64 registers between its
ends, where element by element it would hold the ends. On AMD the order is the chip's; ptxas finds another one, but not
for hundreds of values.
INVARIANT: every op still comes after what it reads; ops with effects, and moves between lanes, keep their order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from types import MappingProxyType

from wavedsl.ir.kernel.build_core import PINNED
from wavedsl.ir.kernel.kernel_ir import ROWS, Kernel, Op, Region, Value
from wavedsl.ir.kernel.late_loads import latest
from wavedsl.ir.kernel.pressure import NAMES, pressure
from wavedsl.ir.kernel.read_again import constant_loads, read_again
from wavedsl.ir.target import Target, wave_room

WORTH = 0.85
"""Share of the registers that another order has to do with before ptxas is given it: it reorders by itself, and spilled
96 bytes of a quantiser of 4096 columns in 301 registers where it spilled none of the 332 of the first order."""

LOADS = ("load.global", "load.shared")


def order_elements(kernel: Kernel, target: Target | None = None) -> Kernel | None:
    """Compute as late as readers allow, in every region, where more values are live than a wave has registers, and
    fewer are so. The kernel where it stays as it is, None where it is reordered in place."""
    if target is None:
        return kernel
    if target.asynchronous and _deals(kernel):
        return kernel
    held = pressure(kernel, target)
    room = wave_room(target, kernel.waves)
    if held <= room:
        return kernel
    before = Saved(kernel)
    order_regions(kernel, target)
    now = pressure(kernel, target)
    ordered = now < held and (not target.assembler_schedules or now <= WORTH * held)
    if target.assembler_schedules and now > room:
        by_text = Saved(kernel)
        before.restore()
        if _come_late(kernel, target, WORTH * (now if ordered else held)):
            return None
        by_text.restore()
    if now > room:
        elements = Saved(kernel)
        again = read_again(kernel, target, room)
        if again:
            order_regions(kernel, target, [*again, *constant_loads(kernel)])
            if pressure(kernel, target) < now:
                return None
            elements.restore()
    if ordered:
        return None
    before.restore()
    return kernel


def _come_late(kernel: Kernel, target: Target, most: float) -> bool:
    """Move loads of shared memory down to the multiply-adds that read them, where `most` registers are enough then:
    ptxas does not move them over barriers. Else the kernel is as it was."""
    names = {op.name for op in kernel.body.walk()}
    if "ffma" not in names or not names.isdisjoint(PINNED):
        return False
    before = Saved(kernel)
    order_regions(kernel, target, stay=("ffma",), late=True)
    if pressure(kernel, target) <= most:
        return True
    before.restore()
    return False


def on_demand(kernel: Kernel, target: Target, stay: Sequence[str] = ()) -> int:
    """Registers that values take together in the order in which they are computed, and loaded, as they are asked for,
    but for ops of names that `stay`: a product's multiply-adds, which would add up one sum after the other. The kernel
    stays as it is."""
    before = Saved(kernel)
    order_regions(kernel, target, [op for op in kernel.body.walk() if op.name in LOADS], stay)
    found = pressure(kernel, target)
    before.restore()
    return found


def order_regions(
    kernel: Kernel, target: Target, again: Sequence[Op] = (), stay: Sequence[str] = (), late: bool = False
) -> None:
    """`again`: what may move although it loads; `stay`: names of what may not; `late`: whether loads of shared memory
    move down as far as what they read stays the same."""
    products = any(op.name in PINNED for op in kernel.body.walk())
    for region in list(kernel.body.regions()):
        before = latest(kernel, region) if late else {}
        region.ops[:] = _Order(region, target.scalar_registers, frozenset(again), products, stay, before).out


MANY = 8
"""Readers from which on a value is computed for the first of them that would leave registers."""
FEW = 32
"""Operations, at most, that such a value takes: for each of its readers they are looked at again."""


class Saved:
    """The order of a kernel's ops, and what they read, to be had again."""

    def __init__(self, kernel: Kernel):
        self.regions = [(region, [(op, op.args) for op in region.ops]) for region in kernel.body.regions()]

    def restore(self) -> None:
        for region, ops in self.regions:
            region.ops[:] = [op for op, _ in ops]
            for op, args in ops:
                op.args = args


def _deals(kernel: Kernel) -> bool:
    """Whether warpgroups have shares of their own of the registers, or wait for products that nothing may delay."""
    return any(op.name == "registers" or op.name.startswith(("mma", "matrix.")) for op in kernel.body.walk())


def _movable(op: Op) -> bool:
    return ROWS[op.name].pure and bool(op.results) and not op.regions and not op.name.startswith("shuffle")


class _Order:
    """The ops of a region in the order in which something asks for them: each that is pure right before the first one
    that needs it, or as soon as it takes no more registers than it gives back."""

    def __init__(
        self, region: Region, scalars: bool, again: Set[Op] = frozenset(), products: bool = False,
        stay: Collection[str] = (), before: Mapping[Op, Op] = MappingProxyType({}),
    ):  # fmt: skip
        """`before`: loads that may move down, and in front of which op each stands at the latest."""
        self.scalars, self.products, self.before = scalars, products, before
        movable = [op in again or op in before or (_movable(op) and op.name not in stay) for op in region.ops]
        due: dict[Op, list[Op]] = {}
        for load, op in before.items():
            due.setdefault(op, []).append(load)
        self.waiting: dict[Value, Op] = {v: op for op, m in zip(region.ops, movable) if m for v in op.results}
        self.read: dict[Op, Sequence[Value]] = {}
        """What an op or a body of it reads, each once."""
        self.readers: dict[Value, list[Op]] = {}
        """Ops that read a value and may be computed as soon as it is there."""
        self.left: dict[Value, int] = {}
        """Ops that have yet to read a value."""
        self.height: dict[Value, int] = {}
        """The most operations one behind the other that make a value, of those that may move."""
        self.out: list[Op] = []
        left, readers, heights = self.left, self.readers, self.height
        for op, moves in zip(region.ops, movable):
            if moves:
                height = 1 + max([heights.get(a, 0) for a in op.args], default=0)
                for v in op.results:
                    heights[v] = height
            read = self.read[op] = _read(op)
            for v in read:
                left[v] = left.get(v, 0) + 1
            if moves and ROWS[op.name].pure:
                for v in read:
                    readers.setdefault(v, []).append(op)
        self.own = {v for op in region.ops for v in op.results}
        self.lacks: dict[Op, int] = {}
        """Values of the region that such an op reads and that are yet to be made."""
        for v in self.own:
            for op in readers.get(v, ()):
                self.lacks[op] = self.lacks.get(op, 0) + 1
        self.made = set(region.args)
        for op, moves in zip(region.ops, movable):
            for load in due.get(op, ()):
                if load.results[0] in self.waiting:
                    self.emit(load)
            if not moves:
                self.emit(op)
        for op in region.ops:  # what nobody reads
            if op.results and op.results[0] in self.waiting:
                self.emit(op)

    def emit(self, op: Op) -> None:
        """Append an op behind all that it, or a body of it, reads and that has not been computed."""
        self._taken(op)
        waiting = self.waiting
        work = [(op, self._asked(op))]
        while work:
            current, rest = work[-1]
            made = None
            while rest and made is None:
                made = waiting.get(rest.pop())
            if made is not None:
                self._taken(made)
                work.append((made, self._asked(made)))
                continue
            work.pop()
            self._append(current)

    def _asked(self, op: Op) -> list[Value]:
        """What an op waits for, the longest chains last, which come first: what a sum adds last is not made before what
        it adds first."""
        found = [v for v in self.read[op] if v in self.waiting]
        if len(found) > 1:
            found.sort(key=lambda v: -self.height.get(v, 0))
            found.reverse()
        return found

    def _taken(self, op: Op) -> None:
        for v in op.results:
            self.waiting.pop(v, None)

    def _append(self, op: Op) -> None:
        done, left, readers = [op], self.left, self.readers
        while done:
            op = done.pop()
            self.out.append(op)
            self.made.update(op.results)
            for v in op.results:
                for user in readers.get(v, ()):
                    self.lacks[user] -= 1
            ready = list(op.results)
            for v in self.read[op]:
                rest = left[v] = left[v] - 1
                if rest == 1:  # the last one may take its place
                    ready.append(v)
            for v in ready:
                for user in readers.get(v, ()):
                    if user.results[0] in self.waiting and self._gives_back(user):
                        first = self._in_common(user)
                        if first is not None:
                            self._taken(user)
                            done += [user, *reversed(first)]

    def _in_common(self, op: Op) -> list[Op] | None:
        """What has to be computed before an op, in order: only what many others wait for as well, such as the mask of
        a row of a product's operand. None where there is more than that, or where it cannot be computed yet; and
        without products, where such a value is one more that is held: two rows of 32000 columns spilled for it."""
        if not self.lacks.get(op):
            return []
        if not self.products:
            return None
        wanted = [v for v in self.read[op] if v in self.own and v not in self.made]
        if any(self.left[v] < MANY or self._words(v) > 1 for v in wanted):
            return None
        out: dict[Op, None] = {}
        work = [(v, False) for v in reversed(wanted)]
        while work:
            v, ready = work.pop()
            made = self.waiting.get(v)
            if made is None or made in self.before:
                return None
            if ready:
                out[made] = None
            elif len(work) > FEW or len(out) > FEW:
                return None
            elif made not in out:
                work.append((v, True))
                work += [(a, False) for a in made.args if a in self.own and a not in self.made]
        for made in out:
            self._taken(made)
        return [*out]

    def _gives_back(self, op: Op) -> bool:
        """Whether an op that waits takes no more registers than its operands leave."""
        if op.name in NAMES:
            return True
        ends = 0
        for v in self.read[op]:
            if self.left[v] == 1 and v in self.made:
                ends += self._words(v)
        return sum([self._words(v) for v in op.results]) <= ends

    def _words(self, v: Value) -> int:
        return 0 if self.scalars and v.uniform else v.type.words


def _read(op: Op) -> Sequence[Value]:
    """What an op or a body of it reads, each once."""
    if op.regions:
        found = list(op.args)
        for body in op.regions:
            for x in body.walk():
                found += x.args
        return [*dict.fromkeys(found)]
    return op.args if len(op.args) < 2 else [*dict.fromkeys(op.args)]


__all__ = ["Saved", "on_demand", "order_elements", "order_regions"]
