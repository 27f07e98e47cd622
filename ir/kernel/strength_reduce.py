"""Strength reduction: address arithmetic that grows linearly with a loop's induction variable becomes one carried add.

In: a kernel. Out: a new kernel in which an integer `base + iv * c` that a loop's memory ops (or anything else that is
not itself linear) use is a carried value: initialised before the loop, increased by `step * c` at its end. A constant
added on top stays an add, which memory ops take as their immediate.

(LINEAR) iv is linear; sums and differences of linear and invariant values are; a linear value shifted left by a
constant, or multiplied by an invariant, is; zext and sext of one are if its range shows that it cannot wrap.
(ROOT) A linear value that an op outside (LINEAR) reads is a root, unless it is iv itself; of `x + constant` x is.
(GAIN) The roots of one loop are carried together if the ops in the loop that this removes weigh more than one add per
root. A multiplication weighs more than an add, an op per lane more than a uniform one.
(ROOM) A carried value has its register for the whole loop. Where roots of a lane are more than `ROOM` words, those that
memory ops take come first, and what has no room is computed in each trip: of a factor that is computed for each of
32 x 48 elements every n * k would be carried.

INVARIANT: exact for wrapping arithmetic; facts of a root hold for the carried value in every trip.
"""

from __future__ import annotations

from dataclasses import field

from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.facts import BITS, full
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Value
from wavedsl.ir.kernel.kernel_passes import copy_op, copy_region, fresh_kernel, keep_facts, remove_dead_code
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

_LINEAR = frozenset({"add", "sub", "shl", "mul", "zext", "sext"})
_WEIGHT = {"mul": 4}
ROOM = 64
"""Words of a lane that one loop's roots may take: a quarter of what a lane has on NVIDIA, half of what it has on AMD
beside another wave."""


def strength_reduce(kernel: Kernel, target: Target | None = None) -> Kernel:
    """The kernel with linear address arithmetic carried through its loops, and what that leaves unused removed."""
    plans = {op: plan for op in kernel.body.walk() if op.name == "for" and (plan := _plan(op)).roots}
    if not plans:
        return kernel
    fresh = fresh_kernel(kernel)
    b = Builder(fresh, target)
    _Rewriter(b, plans).region(kernel.body)
    fresh = b.finish()
    remove_dead_code(fresh)
    return fresh


@dataclass
class _Plan:
    """The roots of one loop, in order of definition, and what was found linear."""

    roots: list[Value] = field(default_factory=list)
    linear: dict[Value, Op | None] = field(default_factory=dict)


def _plan(loop: Op) -> _Plan:
    """What of a loop's arithmetic is carried as a sum: linear values that something else reads, if that saves
    instructions."""
    body = loop.regions[0]
    iv = body.args[0]
    linear: dict[Value, Op | None] = {iv: None}
    inside: set[Value] = set(body.args)
    users: dict[Value, list[Op]] = {iv: []}
    for op in body.walk():
        inside.update(op.results)
        for nested in op.regions:
            inside.update(nested.args)
    # Only ops of the loop's own body change once per trip of this loop.
    for op in body.ops:
        if op.results and _is_linear(op, linear, inside):
            linear[op.results[0]] = op
            users[op.results[0]] = []
    for op in body.walk():
        for a in op.args:
            if a in users:
                users[a].append(op)
    found: dict[Value, bool] = {}
    """Roots in order of definition → whether a memory op takes one."""
    for v, made in linear.items():
        outside = [u for u in users[v] if not u.results or u.results[0] not in linear]
        root = made.args[0] if made is not None and _is_offset(made) else v
        if made is not None and outside and root is not iv:
            found[root] = found.get(root, False) or any(not u.row.pure for u in outside)
    roots = _with_room(found)
    chosen = set(roots)
    # What goes away: the definitions of roots, and linear ops that only they read.
    dead: set[Value] = set()
    for v in reversed(list(linear)):
        if v in chosen or (users[v] and all(u.results and u.results[0] in dead for u in users[v])):
            dead.add(v)
    gain = sum(_weight(linear[v]) for v in dead) - sum(1 if r.uniform else 2 for r in roots)
    return _Plan(roots, linear) if gain > 0 else _Plan()


def _with_room(found: dict[Value, bool]) -> list[Value]:
    """The roots that are carried, in order of definition: (ROOM)."""
    kept, left = {r for r in found if r.uniform}, ROOM
    for r in sorted((r for r in found if not r.uniform), key=lambda r: not found[r]):
        if r.type.words <= left:
            kept.add(r)
            left -= r.type.words
    return [r for r in found if r in kept]


def _weight(op: Op | None) -> int:
    if op is None:
        return 0
    return _WEIGHT.get(op.name, 1) * (1 if op.results[0].uniform else 2)


def _is_offset(op: Op) -> bool:
    """x + constant: what memory ops take as an immediate."""
    return op.name == "add" and op.args[1].const is not None


def _is_linear(op: Op, linear: dict[Value, Op | None], inside: set[Value]) -> bool:
    name = op.name
    if name not in _LINEAR:
        return False
    args = op.args
    varying = [a in linear for a in args]
    if not any(varying) or any(not v and a in inside for v, a in zip(varying, args)):
        return False
    if name == "shl":
        return varying[0] and args[1].const is not None
    if name == "mul":
        return varying != [True, True]
    if name in ("zext", "sext"):
        a = args[0]
        assert a.lo is not None and a.hi is not None
        lo, hi, _ = full(BITS[a.type.kind])
        return (a.lo > lo or a.hi < hi) and (name == "sext" or a.lo >= 0)
    return True


class _Rewriter:
    """Copies a kernel through a builder; loops with a plan get their roots as further carried values."""

    def __init__(self, b: Builder, plans: dict[Op, _Plan]):
        self.b = b
        self.plans = plans
        self.env: dict[Value, Value] = {}

    def region(self, region: Region) -> None:
        copy_region(self.b, region, self.env, self.loop)

    def loop(self, op: Op) -> bool:
        """Copy a loop that has a plan; False for any other op."""
        plan = self.plans.get(op)
        if plan is None:
            return False
        b, env, body = self.b, self.env, op.regions[0]
        lo, hi, step = (env[a] for a in op.args[:3])
        starts = [self.at(r, plan, lo, {}) for r in plan.roots]
        deltas = [self.delta(r, plan, step, {}) for r in plan.roots]
        b.set_loc(op.loc)
        count = len(op.args) - 3
        loop = b.for_(
            lo, hi, step, [*(env[a] for a in op.args[3:]), *starts], label=op.attrs.get("label", ""),
            min_trips=op.attrs.get("min_trips", 0),
            uniform=[a.uniform for a in body.args[1:]] + [r.uniform for r in plan.roots],
        )  # fmt: skip
        loop.op.attrs = {**op.attrs, **loop.op.attrs}
        with loop:
            for old, new in zip(body.args, (loop.iv, *loop.carried)):
                env[old] = new
                keep_facts(old, new)
            carried = loop.carried[count:]
            for root, new in zip(plan.roots, carried):
                new.lo, new.hi, new.zeros = root.lo, root.hi, root.zeros
                new.name = root.name
            replaced = dict(zip(plan.roots, carried))
            for inner in body.ops:
                if inner.results and inner.results[0] in replaced:
                    env[inner.results[0]] = replaced[inner.results[0]]
                elif not self.loop(inner):
                    copy_op(b, inner, env, self.loop)
            last = body.ops[-1]
            b.set_loc(last.loc)
            steps = [b.add(p, d) for p, d in zip(carried, deltas)]
            loop.yield_([*(env[a] for a in last.args), *steps])
        for old, new in zip(op.results, loop.results):
            env[old] = new
            keep_facts(old, new)
        return True

    def at(self, v: Value, plan: _Plan, iv: Value, memo: dict[Value, Value]) -> Value:
        """The value of v where the induction variable is `iv`."""
        if v not in plan.linear:
            return self.env[v]
        op = plan.linear[v]
        if op is None:
            return iv
        if v not in memo:
            self.b.set_loc(op.loc)
            memo[v] = self.b.emit(op.name, [self.at(a, plan, iv, memo) for a in op.args], op.attrs, v.type)
        return memo[v]

    def delta(self, v: Value, plan: _Plan, step: Value, memo: dict[Value, Value]) -> Value:
        """How much v grows from one trip to the next."""
        if v not in plan.linear:
            return self.b.zero(v.type)
        op = plan.linear[v]
        if op is None:
            return step
        if v in memo:
            return memo[v]
        b = self.b
        b.set_loc(op.loc)
        d = [self.delta(a, plan, step, memo) for a in op.args]
        if op.name == "mul":
            x, y = op.args
            memo[v] = b.mul(d[0], self.env[y]) if x in plan.linear else b.mul(d[1], self.env[x])
        elif op.name == "shl":
            memo[v] = b.shl(d[0], self.env[op.args[1]])
        elif op.name in ("zext", "sext"):
            memo[v] = b.sext(d[0])  # the difference of values that do not wrap may be negative
        else:
            memo[v] = b.emit(op.name, d)
        return memo[v]
