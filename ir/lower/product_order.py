"""Where asynchronous products stand among the steps of a trip.

In: the steps of a loop's body in program order. Out: the same steps, in an order in which the matrix unit has work
while lanes compute. Steps keep their order but where a function here says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from wavedsl.ir.inference.mma_tiles import SAME
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.schedule.steps import Step


def operands_first(low: Lowering, steps: Sequence[Step]) -> list[Step]:
    """Steps in an order in which registers that a product reads are made before products that it does not need are
    started: assemblers take registers that are written while any product runs for unsafe, and run one after the other
    (ptxas' C7513)."""
    order = list(steps)
    for product in [s for s in steps if s.node is not None and not low.inference.mmas[s.node.id].a_shared]:
        mine = {id(s) for s in _needed(order[: order.index(product)], product)}
        first = next((s for s in order if s.node is not None and id(s) not in mine), product)
        at = order.index(first)
        moved = [s for s in order[at : order.index(product)] if id(s) in mine]
        if first is product or any(s.node is not None or s.kind == "effect" for s in moved):
            continue
        rest = [s for s in order if s not in moved]
        at = rest.index(first)
        order = rest[:at] + moved + rest[at:]
    return order


def products_together(low: Lowering, steps: Sequence[Step]) -> list[Step]:
    """Steps in an order in which a product that needs nothing of its trip is started right behind the one before it, in
    front of what waits for that: in gradients of attention dO V^T runs while exponentials of Q K^T are taken. The
    products of the trip before are waited for in between (`low.matrix.started_early`), so that what they read from
    registers and the new results are not held at once."""
    order = list(steps)
    for product in [s for s in steps if s.node is not None]:
        at = order.index(product)
        last = max((p for p in range(at) if order[p].node is not None), default=-1)
        if last < 0:
            continue
        started = {k for s in order[: last + 1] if s.node is not None for k in s.defs}
        mine = _needed(order[last + 1 : at], product)
        passed = [s for s in order[last + 1 : at] if all(s is not m for m in mine)]
        free = all(s.kind == "compute" and s.name.split()[0] in SAME for s in mine)
        waits = any(started.intersection(s.uses) for s in (*mine, product))
        if waits or not free or not any(started.intersection(s.uses) for s in passed):
            continue
        order[last + 1 : at + 1] = [*mine, product, *passed]
        low.matrix.started_early.add(product.node.id)
    return order


def _needed(before: Sequence[Step], product: Step) -> list[Step]:
    """The steps that a product needs, itself or through others: for values, or for what it reads in shared memory."""
    keys, buffers, found = set(product.uses), set(product.reads), []
    for s in reversed(before):
        if keys.intersection(s.defs) or (s.kind in ("swrite", "acopy") and s.buffer in buffers):
            keys.update(s.uses)
            if s.kind == "sread":
                buffers.add(s.buffer)
            found.append(s)
    return found[::-1]
