"""Register operands that are made while the instructions before them run.

In: the steps of a ring loop's body. Out: `OperandsAhead`, or the reason why there are none; and the loop. A product
whose first operand is computed in registers would wait for all of it, and the next trip's operand for the product. So
the product is started part by part along K, a group of instructions each (a *unit*): while one unit runs the registers
of the next are made, and while the last of a trip runs, those of the first unit of the next trip. A unit has the same
registers in every trip, which costs no move: it has ended when they are made anew, since only the unit in front of
it still runs then. No more than two units' registers are held, where a product in one piece held all.

Invariants: when registers of a unit's operand are written, or read by anything but products, that unit is not in
flight: only the unit before it is, and what is made of positions alone, or is the same in two units, waits for that
too. A ring's slot is given back when the last unit that reads it has ended, one unit into the next trip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from wavedsl.ir.dataflow.graph import Region
from wavedsl.ir.inference.mma_plan import MmaPlan
from wavedsl.ir.kernel.kernel_ir import I64, Op, Value
from wavedsl.ir.kernel.same_registers import arguments, same_values
from wavedsl.ir.lower.lower_async import Issue, pieces, starts_at_zero
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.rings import release, wait_full
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.regions.copying import rings_inside
from wavedsl.ir.regions.loop_frame import LoopFrame
from wavedsl.ir.schedule.steps import BodySchedule, Env, Key, StageContext, Step

UNIT_CLOCKS = 128
"""What the matrix unit has to do for a unit, at least, if a trip is long enough for two of them: starting it, waiting
for the one before and the latency of loads from shared memory are less. By the warp replay of eight products (16 to
1024 rows), 64 takes from 3 % less to 15 % more, 256 up to 1 % more."""


@dataclass
class OperandsAhead:
    """Positions in the list of steps: `making` the operands, then `products`, together where they have the same one;
    and why trips are cut into units."""

    making: list[int]
    products: list[list[int]]
    why: str


def operands_ahead(
    low: Lowering, region: Region, body: BodySchedule, steps: Sequence[Step], carried: Mapping[Key, Key]
) -> OperandsAhead | str:
    """How a loop's operands are made ahead, or why not; empty where no product has a computed operand in registers.
    `carried`: carried key → the key that replaces it."""
    products = [i for i in body.order if steps[i].node is not None]
    plans = [low.inference.mmas[steps[i].node.id] for i in products]
    if all(plan.a_shared for plan in plans):
        return ""
    if not low.matrix.strategy.specialize:
        return "no warpgroup of its own copies"
    if low.choices.stages == 1:
        return "stages=1 asks for no pipeline"
    if body.barriers or body.commits:
        return "threads copy and synchronise inside the loop"
    if any(s.loop or s.kind == "effect" for s in steps):
        return "the loop holds effects or other loops"
    if any(ring.slots < 2 for ring in low.reads.rings if ring.region is region):
        return "a ring has no slot to hold while the next trip begins"
    making = [i for i in body.order if i not in products and steps[i].kind != "yield"]
    if any(steps[i].kind == "gload" for i in making):
        return "an operand is loaded straight from the array"
    results = {k for i in products for k in steps[i].defs}
    if any(results.intersection(steps[i].uses) for i in making):
        return "a product's result is used in its own trip"
    if any(set(carried).intersection(steps[i].uses) for i in making):
        return "an operand depends on what the loop carries"
    made = {k for i in making for k in steps[i].defs}
    addends = [steps[i].node.inputs[2] for i in products if len(steps[i].node.inputs) > 2]
    if any(made.intersection(low.keys(x)) for x in addends if not starts_at_zero(x)):
        return "a product adds to what its trip makes"
    if made.intersection(carried.values()):
        return "the loop carries what an operand is made of"
    passed = {k for s in steps if s.kind == "yield" and results.issuperset(s.uses) for k in s.defs}
    if any(after not in results and after not in passed and after != k for k, after in carried.items()):
        return "the loop carries more than sums of products"
    groups = _groups(low, steps, products)
    shared = [set(_making(steps, making, steps[group[0]])) for group in groups]
    if any(a & b for i, a in enumerate(shared) for b in shared[:i]):
        return "products share a part of what makes their operands"
    count = sum(len(units(low.inference.mmas[steps[group[0]].node.id])) for group in groups)
    if count < 2:
        return "a trip is one matrix instruction deep"
    why = f"a trip is {count} groups of instructions, and registers of the next are made while one runs"
    return OperandsAhead(making, groups, why)


def _groups(low: Lowering, steps: Sequence[Step], products: Sequence[int]) -> list[list[int]]:
    """Products in order, those together that read the same registers: their instructions are in the same units."""
    groups: list[list[int]] = []
    operand: list[Any] = []
    for i in products:
        plan, prepared = low.inference.mmas[steps[i].node.id], steps[i].prepared
        mine = None if plan.a_shared else (plan.ports[0].id, plan.first, plan.k, units(plan), prepared is None)
        if mine is not None and mine in operand:
            groups[operand.index(mine)].append(i)
        else:
            groups.append([i])
            operand.append(mine)
    return groups


def _making(steps: Sequence[Step], making: Sequence[int], product: Step) -> list[int]:
    """The steps that make a product's operand, in order; numbers that steer it, which cost nothing twice, aside."""
    return [i for i in _chain(steps, making, product) if steps[i].kind != "scalar"]


def _chain(steps: Sequence[Step], making: Sequence[int], product: Step) -> list[int]:
    """The steps that make what a product uses, in order."""
    needed, found = set(product.uses), []
    for i in reversed(making):
        if needed.intersection(steps[i].defs):
            needed.update(steps[i].uses)
            found.append(i)
    return found[::-1]


def units(plan: MmaPlan) -> list[Sequence[int]]:
    """Offsets along K of the instructions of each unit. What a product reads from shared memory alone is one."""
    depth = range(0, plan.deep, plan.atom.k)
    if plan.a_shared:
        return [depth]
    clocks, per = plan.atom.cycles * len(pieces(plan)), 1
    while per * clocks < UNIT_CLOCKS and per * 2 < len(depth):
        per *= 2
    return [depth[i : i + per] for i in range(0, len(depth), per)]


def emit_ahead(frame: LoopFrame, ahead: OperandsAhead) -> list[Value]:
    """The loop, of two trips or more or of a number that is known when it runs. Returns the final values of what it
    carries. One that may have no trip is skipped whole."""
    return frame.unless_empty(lambda: _trips(frame, ahead))


def _trips(frame: LoopFrame, ahead: OperandsAhead) -> list[Value]:
    """The first unit's registers, all trips but the last, the last."""
    low, region, carried = frame.low, frame.region, frame.carried
    b, rings = low.b, rings_inside(low, region)
    run = _Trip(low, region, frame.steps, ahead)
    low.note(f"before the loop over {region.dim}: the operand of its first unit")
    first = run.first_operands(frame.env, 0)
    inits = [*(v for _, v in carried), *first]
    last = frame.last
    with frame.loop(last, inits, rings, ", without the last trip") as loop:
        inner = frame.inside(loop.carried)
        again = b.cmp("ne", loop.iv, 0)
        following = run(inner, loop.iv, loop.carried[len(carried) : len(inits)], again, b.add(loop.iv, 1))
        frame.again(loop, [*(inner[k] for k in frame.next_keys), *following], rings)
    low.note("wait until no product runs")
    b.mma_wait(0)
    inner = frame.inside(loop.results)
    low.note(f"behind the loop over {region.dim}: its last trip")
    again = b.true if isinstance(last, int) else b.cmp("sgt", last, 0)
    run(inner, last, loop.results[len(carried) : len(inits)], again, None)
    return [inner[k] for k in frame.next_keys]


class _Trip:
    """Emits one trip, and the operand of its first unit in the trip before."""

    def __init__(self, low: Lowering, region: Region, steps: Sequence[Step], ahead: OperandsAhead):
        self.low, self.steps, self.ahead = low, steps, ahead
        self.rings = [ring for ring in low.reads.rings if ring.region is region]
        self.running: set[Value] = set()
        """Values in registers that a unit in flight reads."""

    def place(self, ops: Sequence[Op]) -> None:
        """Puts ops here, behind the end of the unit in flight where they read its registers."""
        if not self.running.isdisjoint(same_values(arguments(ops))):
            self.wait(0)
        self.low.b.place(ops)

    def wait(self, pending: int) -> None:
        self.low.b.mma_wait(pending)
        if not pending:
            self.running = set()

    def first_operands(self, env: Env, iteration: Any) -> list[Value]:
        """Registers of the first unit, a value per matrix instruction; the slots of `iteration` are waited for."""
        for ring in self.rings:
            wait_full(self.low, ring)
        step = self.steps[self.ahead.products[0][0]]
        plan = self.low.inference.mmas[step.node.id]
        if plan.a_shared:
            return []
        b = self.low.b
        at = b.here()
        operands = self._operands(env, iteration, step, plan)
        found = [v for (_, k), v in operands.items() if k in units(plan)[0]]
        head, loads, rest = by_first_use(b.cut(at), [found])
        self.place([*head, *loads[0], *rest[0]])
        if not self.running.isdisjoint(same_values(found)):
            self.wait(0)  # the loop's next trip has them in other registers: they are copied
        return found

    def _operands(self, env: Env, iteration: Any, step: Step, plan: MmaPlan) -> dict[tuple[int, int], Value]:
        """What makes a product's operand, and its registers by offset (M, K)."""
        low = self.low
        context = StageContext(Env(env.fixed), iteration, None, 0)
        for i in _chain(self.steps, self.ahead.making, step):
            with low.b.loc(self.steps[i].loc):
                self.steps[i].emit(context)
        with low.b.loc(step.loc):
            return Issue.registers(low, plan, context, step.prepared)

    def __call__(
        self, env: Env, iteration: Any, first: Sequence[Value], again: Value, following: Any
    ) -> list[Value]:
        """A trip. `first`: its first unit's registers; `again`: whether there was a trip before it; `following`: the
        next iteration, None for the last. Returns the first unit's registers of that."""
        low, b = self.low, self.low.b
        context = StageContext(env, iteration, None, 0)
        for ring in self.rings:
            ring.waited = True
        issues: list[Issue] = []
        todo: list[_Unit] = []
        start = b.here()
        for group in self.ahead.products:
            step = self.steps[group[0]]
            plan = low.inference.mmas[step.node.id]
            made = [] if plan.a_shared else self._made(env, iteration, step, plan, first if not todo else ())
            mine = []
            for i in group:
                n = self.steps[i].node
                with b.loc(n.loc):
                    mine.append(Issue(low, n, low.inference.mmas[n.id], context))
            if plan.a_shared:
                made = [_Unit(mine[0].tile_operands())]
            for unit, depth in zip(made, units(plan)):
                unit.issues, unit.depth = mine, depth
            issues += mine
            todo += made
        if following is not None:
            self._end_rewritten(start, todo[-1])
        for unit in todo[:2]:
            self.place(unit.loads)
        for u, unit in enumerate(todo):
            unit.start(low)
            self.running = unit.registers()
            last = u + 1 == len(todo)
            self.wait(0 if last and following is None else 1)
            if u == 0:  # the unit in front of it, the last of the trip before, has ended
                for ring in self.rings:
                    release(low, ring, ring.before(low), again)
            for later in todo[u + 2 : u + 3]:
                self.place(later.loads)  # one unit ahead of what is computed of them
            for later in todo[u + 1 : u + 2]:
                self.place(later.rest)
        for issue in issues:
            issue.end(context)
            low.note(f"start product %{issue.n.id} in {len(units(issue.plan))} groups, one running beside what is made")
        for step in self.steps:
            if step.kind == "yield":
                step.emit(context)
        for ring in self.rings:
            if following is None:
                release(low, ring)
            ring.advance(low)
        if following is None:
            return []
        low.note("the operand of the next trip's first group")
        return self.first_operands(env, following)

    def _end_rewritten(self, start: int, last: _Unit) -> None:
        """Waits at position `start` of the trip, if what stands there makes registers anew that the trip before has
        just given to its last unit: those that are computed of positions and not of loads."""
        b = self.low.b
        ops = b.cut(start)
        if not last.registers().isdisjoint(v for op in ops for v in op.results):
            self.low.note("wait until no product runs: the last group's registers are made of positions")
            b.mma_wait(0)
        b.place(ops)

    def _made(
        self, env: Env, iteration: Any, step: Step, plan: MmaPlan, first: Sequence[Value]
    ) -> list[_Unit]:
        """The units of a product with what makes their operands, taken out of the text. `first`: registers of the
        first that are there."""
        b, cuts = self.low.b, units(plan)
        at = b.here()
        operands = self._operands(env, iteration, step, plan)
        made = b.cut(at)
        wanted = [[v for (_, k), v in operands.items() if k in cut] for cut in cuts]
        if first:
            operands.update(zip([place for place in operands if place[1] in cuts[0]], first))
            wanted[0] = []
        head, loads, rest = by_first_use(made, wanted)
        b.place(head)
        return [_Unit(operands, *both) for both in zip(loads, rest)]


@dataclass
class _Unit:
    """A group of instructions of one product, or of several with the same operand: `operands` by offset (M, K), and the
    ops that make its own."""

    operands: dict[tuple[int, int], Value]
    loads: list[Op] = field(default_factory=list)
    rest: list[Op] = field(default_factory=list)
    issues: Sequence[Issue] = ()
    depth: Sequence[int] = ()

    def registers(self) -> set[Value]:
        """What its instructions read from registers, and what that is made of without being computed."""
        return same_values(v for (_, k), v in self.operands.items() if k in self.depth and v.type is not I64)

    def start(self, low: Lowering) -> None:
        """Fence, the instructions of all products that read these operands, end of the group."""
        with low.b.loc(self.issues[0].n.loc):
            low.b.mma_fence()
        for issue in self.issues:
            with low.b.loc(issue.n.loc):
                for piece in pieces(issue.plan):
                    for k in self.depth:
                        issue.add(piece, k, self.operands)
        low.b.mma_commit()


def by_first_use(
    ops: Sequence[Op], wanted: Sequence[Sequence[Value]]
) -> tuple[list[Op], list[list[Op]], list[list[Op]]]:
    """Cut what makes an operand by the unit that needs it first: (what stays in front, loads from shared memory per
    unit, what is computed of loads per unit). `wanted`: values that each unit reads.

    Only loads behind the last other effect move, and what is computed of them: nothing else that is built later can
    be the same as one of these. Loads that nobody needs are dropped.
    """
    need: dict[Value, int] = {}
    for unit in reversed(range(len(wanted))):
        for v in wanted[unit]:
            need[v] = unit
    unit_of: dict[Op, int] = {}
    for op in reversed(ops):
        units = [need[v] for v in op.results if v in need]
        if units:
            unit_of[op] = min(units)
            for region_op in (op, *(x for body in op.regions for x in body.walk())):
                for v in region_op.args:
                    need[v] = min(need.get(v, len(wanted)), unit_of[op])
    fixed = max((i for i, op in enumerate(ops) if op.name != "load.shared" and not op.row.pure), default=-1)
    moving: set[Value] = set()
    head: list[Op] = []
    loads: list[list[Op]] = [[] for _ in wanted]
    rest: list[list[Op]] = [[] for _ in wanted]
    for i, op in enumerate(ops):
        load = op.name == "load.shared"
        if i > fixed and (load or not moving.isdisjoint(op.args)):
            moving.update(op.results)
            if op in unit_of:
                (loads if load else rest)[unit_of[op]].append(op)
        else:
            head.append(op)
    return head, loads, rest


__all__ = ["OperandsAhead", "by_first_use", "emit_ahead", "operands_ahead"]
