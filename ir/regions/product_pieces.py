"""Products whose computed first operand lies in registers, a piece of the result's rows after the other.

In: the steps of a ring loop's body whose products add up to one sum, their first operand computed in registers and
their second one stored to shared memory (`MmaPlan.held`). Out: `Pieces`, or the reason why there are none; and the
loop.

What a running instruction reads from registers is not to be written, so a trip's first operand has to wait for the
products of the trip before. A trip stores the second operand while those run, and meets the waves that store other
parts of it; then it waits for them, once (two waits for all but one group make ptxas 13 serialise the loop: C7514).
Piece by piece it adds up what the loop carries of the trip before (`late_additions`), computes the piece's operand of
what was loaded ahead, and starts its products: they run while the next piece's operand is computed.

Invariants: when registers of a piece are read or written by anything but products, its products have ended. A slot of
the stored operand is written again three trips later: its readers have been waited for before the barrier between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from wavedsl.ir.dataflow.graph import Node, Region
from wavedsl.ir.kernel.kernel_ir import Op, Value
from wavedsl.ir.kernel.same_registers import same_values
from wavedsl.ir.lower.lower_async import Issue, pieces
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.rings import release, wait_full
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.regions.copying import rings_inside
from wavedsl.ir.regions.loop_frame import LoopFrame
from wavedsl.ir.regions.operands_ahead import by_first_use
from wavedsl.ir.schedule.steps import BodySchedule, Env, Key, StageContext, Step
from wavedsl.ir.staging.made_tiles import BESIDE_HELD


@dataclass
class Pieces:
    """Positions in the list of steps: `making` the first operand, `others` that make and store the second one,
    `products`, `behind` that use what the loop carries of products. `rows`: offsets of the pieces along M. `alone`:
    whether each wave stores what it reads. `why` the loop is cut so."""

    making: list[int]
    others: list[int]
    products: list[int]
    behind: list[int]
    rows: list[int]
    alone: bool
    why: str


def product_pieces(low: Lowering, region: Region, body: BodySchedule, steps: Sequence[Step]) -> Pieces | str:
    """How a loop's products are started piece by piece, or why not; empty where no operand is `held`."""
    products = [i for i in body.order if steps[i].node is not None]
    plans = [low.inference.mmas[steps[i].node.id] for i in products]
    if not plans or not all(plan.held for plan in plans):
        return ""
    if not low.matrix.strategy.specialize:
        return "no warpgroup of its own copies"
    if low.choices.stages == 1:
        return "stages=1 asks for no pipeline"
    if body.commits or any(s.loop or s.kind in ("effect", "gload", "acopy") for s in steps):
        return "the loop holds effects, other loops, or loads straight from an array"
    if any(low.room.depths[low.room.buffers[plan.ports[1].id]] < BESIDE_HELD for plan in plans):
        return "shared memory has no three slots for the stored operand"
    rest = [i for i in body.order if i not in products and steps[i].kind != "yield"]
    carried = {
        k for carry, last in zip(region.carries, region.yields) if last is steps[products[-1]].node
        for k in low.keys(carry)
    }  # fmt: skip
    behind = _using(steps, rest, carried)
    rest = [i for i in rest if i not in behind]
    making = _making(low, steps, rest, products)
    given = {k for i in making for k in steps[i].defs}
    used = {k for s in steps for k in s.uses}
    others = [i for i in rest if i not in making and (used.intersection(steps[i].defs) or steps[i].kind != "compute")]
    if any(given.intersection(steps[i].uses) for i in (*others, *behind)):
        return "both operands are made of the same values"
    if any(steps[i].kind == "sread" and i in behind for i in body.order):
        return "sums depend on what is read from shared memory"
    made = [low.reads.made[plan.ports[1].id] for plan in plans]
    shared = {d for d, plan in low.plans.items() if plan.waves > 1}
    alone = all(shared <= low.cut_along(x.layout.dims) for x in made)
    rows = list(dict.fromkeys(m for m, _ in pieces(plans[0])))
    why = f"{len(rows)} pieces of {plans[0].m}: one's operand is computed in registers while others' products run"
    return Pieces(making, others, products, behind, rows, alone, why)


def _using(steps: Sequence[Step], order: Iterable[int], keys: set[Key]) -> list[int]:
    """The steps that use any of these keys, or what such a step makes."""
    known, found = set(keys), []
    for i in order:
        if known.intersection(steps[i].uses):
            known.update(steps[i].defs)
            found.append(i)
    return found


def _making(low: Lowering, steps: Sequence[Step], order: Sequence[int], products: Sequence[int]) -> list[int]:
    """The steps that make the first operand of products, in order; numbers that steer it, which cost nothing twice,
    aside."""
    needed: set[Key] = set()
    for i in products:
        added = low.keys(steps[i].node.inputs[2]) if len(steps[i].node.inputs) > 2 else ()
        needed.update(k for k in steps[i].uses if k not in added)
    found = []
    for i in reversed(order):
        if needed.intersection(steps[i].defs) and steps[i].kind != "scalar":
            needed.update(steps[i].uses)
            found.append(i)
    return found[::-1]


def emit_pieces(frame: LoopFrame, cut: Pieces) -> list[Value]:
    """The loop. Returns the final values of what it carries."""
    low, region = frame.low, frame.region
    b, rings = low.b, rings_inside(low, region)
    inits = [v for _, v in frame.carried]
    with frame.loop(frame.trips, inits, rings) as loop:
        inner = frame.inside(loop.carried)
        _trip(frame, cut, inner, loop.iv)
        frame.again(loop, [inner[k] for k in frame.next_keys], rings)
    low.note("wait until no product runs")
    b.mma_wait(0)
    return list(loop.results[: len(inits)])


def _trip(frame: LoopFrame, cut: Pieces, env: Env, iteration: Any) -> None:
    """One trip, which leaves its products running."""
    low, steps = frame.low, frame.steps
    b = low.b
    rings = [ring for ring in low.reads.rings if ring.region is frame.region]
    context = StageContext(env, iteration, None, 0)
    outer, low.matrix.running = low.matrix.running, None

    def emit(indices: Iterable[int]) -> None:
        for i in indices:
            with b.loc(steps[i].loc):
                steps[i].emit(context)

    for ring in rings:
        wait_full(low, ring)
    at = b.here()
    emit(cut.making)
    plans = [low.inference.mmas[steps[i].node.id] for i in cut.products]
    operands = [Issue.registers(low, plan, context, steps[i].prepared) for i, plan in zip(cut.products, plans)]
    wanted = [[v for one in operands for (m, _), v in one.items() if m == row] for row in cut.rows]
    head, loads, rest = by_first_use(b.cut(at), wanted)
    held = same_values(v for one in wanted for v in one)
    if not all(held.isdisjoint(op.results) for op in (*head, *(op for one in loads for op in one))):
        low.note("wait until no product runs: operands are there without being computed")
        b.mma_wait(0)
    b.place(head)
    emit(cut.others)
    low.note(f"meet behind the stores of the other operand, {'this wave' if cut.alone else 'all waves'}")
    b.proxy_fence()
    if cut.alone:
        b.wave_barrier()
    else:
        b.barrier()
    late = {steps[i].buffer for i in cut.making if steps[i].kind == "sread"}
    last = [ring for ring in rings if not late.isdisjoint(low.room.buffers[n.id] for n in ring.members)]
    for ring in rings:
        if ring not in last:
            release(low, ring, met=True)
    issues = _issues(low, [steps[i].node for i in cut.products], context)
    at = b.here()
    emit(cut.behind)
    sums = _by_piece(b.cut(at), [[v for piece, v in issues[0].sums.items() if piece[0] == row] for row in cut.rows])
    b.place(loads[0])
    low.note("wait until no product runs")
    b.mma_wait(0)
    for p, row in enumerate(cut.rows):
        low.note(f"rows {row}: add up the trip before's, start this trip's")
        b.place(sums[p])
        b.place(rest[p])
        b.mma_fence()
        for issue, first in zip(issues, operands):
            with b.loc(issue.n.loc):
                for piece in pieces(issue.plan):
                    for k in issue.depth if piece[0] == row else ():
                        issue.add(piece, k, first)
        b.mma_commit()
        for following in loads[p + 1 : p + 2]:
            b.place(following)
    for issue in issues:
        issue.end(context)
    for ring in last:
        release(low, ring)
    for step in steps:
        if step.kind == "yield":
            step.emit(context)
    for ring in rings:
        ring.advance(low)
    low.matrix.running = outer


def _issues(low: Lowering, nodes: Sequence[Node], context: StageContext) -> list[Issue]:
    """Products that go on in one another's registers."""
    found: list[Issue] = []
    for n in nodes:
        with low.b.loc(n.loc):
            found.append(Issue(low, n, low.inference.mmas[n.id], context, found[-1] if found else None))
    return found


def _by_piece(ops: Sequence[Op], registers: Sequence[Iterable[Value]]) -> list[list[Op]]:
    """Ops by the last piece whose registers they use, through others: all elementwise, so each uses those of one.
    `registers`: of each piece's products."""
    place: dict[Value, int] = {}
    for p, values in enumerate(registers):
        place.update((v, p) for v in same_values(values))
    parts: list[list[Op]] = [[] for _ in registers]
    for op in ops:
        p = max((place.get(v, 0) for v in same_values(op.args)), default=0)
        parts[p].append(op)
        place.update((v, p) for v in op.results)
    return parts


__all__ = ["Pieces", "emit_pieces", "product_pieces"]
