"""Rows are loaded again behind a barrier, or a loop that has some, where a wave cannot hold them until then.

In: a kernel whose values are together more than a wave's registers, in the order in which they are asked for. Out: the
same, in which some of what barriers separate from its readers is made again behind them: elements of arrays that the
kernel only reads, and the few operations that made something of them. A divergence of two rows of 32000 columns holds
62 of the 64 registers that a lane has in 32 warps, and three sums need all of both; registers that spill cost a store
and a load, and the load goes to the same cache.
INVARIANT: nobody writes what is loaded again (an argument that is written overlaps no other); ops with effects keep
their order, and what is made again is made of what comes before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Value
from wavedsl.ir.kernel.pressure import NAMES
from wavedsl.ir.kernel.verify_copies import only_read
from wavedsl.ir.target import Target

FREE = 32
"""Registers that stay free of what is held over a barrier: those of a few elements on their way, and addresses."""
DEAREST = 8
"""Operations, loads among them, from which on a value is rather spilled."""
DEAREST_BESIDE = 10
"""The same where a second workgroup finds room so: an exponential of a number beyond whose row nothing is, loaded."""
CHEAP = 4
"""Operations up to which it counts more how long a value would have to be held."""
OF_ALL = 8
"""Readers of one kind from which on a value is taken for one that all elements of a row have in common."""
SLOW = frozenset({"exp2", "log2", "rcp", "rsqrt", "sin", "cos", "tanh", "sqrt_approx"})
"""Operations of the special function unit: four of the others."""
LONG = frozenset({"fdiv", "sqrt", "div", "rem"})
"""Operations that a back end makes of many."""


def read_again(kernel: Kernel, target: Target, room: int, dearest: float = DEAREST) -> list[Op]:
    """Hold no more over the kernel's barriers and loops than leaves `FREE` of `room` registers, as far as what is held
    can be made again by `dearest` operations. What was: all of it may move down to its readers."""
    region = kernel.body
    phases = [0]
    for op in region.ops:
        phases.append(phases[-1] + _parts(op))
    if phases[-1] == 0:
        return []
    plan = _Plan(region, phases, kernel, target.scalar_registers, dearest)
    plan.drop(room - FREE)
    plan.rewrite()
    return plan.again


def constant_loads(kernel: Kernel) -> list[Op]:
    """Loads of arrays that the kernel only reads, in its body: they may as well come later."""
    return [op for op in kernel.body.ops if op.name == "load.global" and only_read(kernel, op.args[0])]


class _Plan:
    """What is not held over which barrier, by phase: the part between two barriers of the kernel's body."""

    def __init__(self, region: Region, phases: list[int], kernel: Kernel, scalars: bool, dearest: float):
        self.region, self.phases, self.kernel, self.scalars = region, phases, kernel, scalars
        self.dearest = dearest
        self.made: dict[Value, int] = {}
        """Phase of each value of the body."""
        self.wanted: dict[Value, set[int]] = {}
        """Phases in which something reads it, under its own name or another."""
        self.readers: dict[Value, dict[str, int]] = {}
        """Operations that read it, by name."""
        self.costs: dict[Value, float] = {}
        self.dropped: dict[int, set[Value]] = {}
        """Per phase the values that are not held behind it."""
        self.left: dict[Value, int] = {}
        """The last phase behind which a value is not held, of those that some are not."""
        self.again: list[Op] = []
        """What makes them again."""
        for op, phase in zip(region.ops, phases):
            for v in _read(op):
                of = self.readers.setdefault(v, {})
                of[op.name] = of.get(op.name, 0) + 1
                self._want(v, phase)
            for v in op.results:
                self.made[v] = phase

    def _want(self, v: Value, phase: int) -> None:
        work = [v]
        while work:
            x = work.pop()
            self.wanted.setdefault(x, set()).add(phase)
            if x.op is not None and x.op.name in NAMES:
                work += x.op.args

    def _words(self, v: Value) -> int:
        nothing = v.op is not None and (v.op.name in NAMES or v.op.name == "const")
        return 0 if nothing or (self.scalars and v.uniform) else v.type.words

    def drop(self, most: int) -> None:
        """Choose, barrier by barrier, until no more than `most` words are held there: of what is cheap to make again
        that which is wanted last, and of that what is made of what was dropped before, so that the same elements are
        held from phase to phase."""
        held_to = {v: max(phases, default=-1) for v, phases in self.wanted.items()}
        for phase in range(self.phases[-1]):
            over = [v for v, at in self.made.items() if at <= phase < held_to.get(v, -1) and self._words(v)]
            over = [v for v in over if self._next(v, phase) is not None and not self._away(v, phase)]
            words = sum(map(self._words, over))
            if words <= most:
                continue
            cheap = [v for v in over if self.cost(v) <= self.dearest and not self._common(v)]
            some = [(v, self.cost(v), self._next(v, phase) or 0) for v in cheap]
            for v, _, _ in sorted(
                some, key=lambda x: (x[1] > CHEAP, -x[2], not self._parted(x[0]), x[1], -self.made[x[0]])
            ):
                self.dropped.setdefault(phase, set()).add(v)
                self.left[v] = phase
                words -= self._words(v)
                if words <= most:
                    break

    def _next(self, v: Value, phase: int) -> int | None:
        return min((p for p in self.wanted[v] if p > phase), default=None)

    def _away(self, v: Value, phase: int) -> bool:
        """Whether a value was dropped before and nothing has asked for it since."""
        before = self.left.get(v)
        return before is not None and not any(before < p <= phase for p in self.wanted[v])

    def _parted(self, v: Value) -> bool:
        """Whether a value is made of something that was dropped."""
        work = [v]
        while work:
            x = work.pop()
            if x in self.left:
                return True
            if x.op is not None and self.cost(x) <= self.dearest and not self._common(x):
                work += x.op.args
        return False

    def cost(self, v: Value) -> float:
        """Operations that make a value again of what is held anyway; infinite where some of that would not be."""
        found = self.costs.get(v)
        if found is None:
            self.costs[v] = float("inf")  # while it is being looked at
            found = self.costs[v] = self._cost(v)
        return found

    def _cost(self, v: Value) -> float:
        op = v.op
        if op is None or v not in self.made or v.uniform:
            return 0.0 if v.uniform or v.region is not None else float("inf")
        if op.name == "load.global":
            if not only_read(self.kernel, op.args[0]):
                return float("inf")
            own = 1.0
        elif op.row.pure and not op.name.startswith("shuffle") and not op.regions:
            own = 0.0 if op.name in NAMES else 4.0 if op.name in SLOW else 2 * self.dearest if op.name in LONG else 1.0
        else:
            return float("inf")
        return own + sum(0.0 if self._common(a) else self.cost(a) for a in dict.fromkeys(op.args))

    def _common(self, v: Value) -> bool:
        """Whether a value is held whatever becomes of a single element."""
        if v.uniform or not v.type.words:
            return True
        if v.op is not None and (v.op.name == "load.global" or v.op.name in NAMES):
            return False
        return max(self.readers.get(v, {}).values(), default=0) >= OF_ALL

    def rewrite(self) -> None:
        """Make what was dropped again in front of the first that asks for it."""
        if not self.dropped:
            return
        fresh = 1 + max(v.id for op in self.kernel.body.walk() for v in _defined(op))
        now: dict[Value, Value] = {}
        args = {v: op.args for op in self.region.ops for v in op.results}
        gone: set[Value] = set()
        out: list[Op] = []

        def again(v: Value) -> Value:
            """A value as it is known here, made again where it is not held."""
            nonlocal fresh
            work = [v]
            while work:
                x = work[-1]
                if x not in gone:
                    work.pop()
                    continue
                missing = [a for a in args[x] if a in gone]
                if missing:
                    work += missing
                    continue
                op = x.op
                assert op is not None
                copy = Op(op.name, tuple(now.get(a, a) for a in args[x]), dict(op.attrs), op.loc)
                made = Value(fresh, x.type, x.uniform, copy)
                made.lo, made.hi, made.zeros, made.name = x.lo, x.hi, x.zeros, x.name
                fresh += 1
                copy.results = (made,)
                out.append(copy)
                self.again.append(copy)
                now[x] = made
                gone.discard(x)
                work.pop()
            return now.get(v, v)

        for op, phase in zip(self.region.ops, self.phases):
            for x in (op, *(y for body in op.regions for y in body.walk())):
                x.args = tuple(again(a) for a in x.args)
            out.append(op)
            if _parts(op):
                gone |= self._not_held(phase)
        self.region.ops[:] = out

    def _not_held(self, phase: int) -> set[Value]:
        """What is dropped behind a phase, other names of it, and what was only wanted before but may be needed to make
        another value again."""
        gone = set(self.dropped.get(phase, ()))
        for v, at in self.made.items():  # in order of execution
            if at > phase or v.op is None:
                continue
            if v.op.name in NAMES:
                if any(a in gone for a in v.op.args):
                    gone.add(v)
            elif max(self.wanted.get(v, ()), default=-1) <= phase and not self._common(v):
                if self.cost(v) <= self.dearest:
                    gone.add(v)
        return gone


def _parts(op: Op) -> bool:
    """Whether what is held over an op is held for long: a barrier, or a loop in which waves meet."""
    return op.name == "barrier" or (op.name == "for" and any(x.name == "barrier" for x in op.regions[0].walk()))


def _read(op: Op) -> Iterator[Value]:
    yield from op.args
    for body in op.regions:
        for x in body.walk():
            yield from x.args


def _defined(op: Op) -> Iterator[Value]:
    yield from op.results
    for body in op.regions:
        yield from body.args


__all__ = ["DEAREST_BESIDE", "constant_loads", "read_again"]
