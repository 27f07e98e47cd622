"""Sums that a loop only adds to: lanes and waves keep their parts over all trips and add them once, behind the loop.

In: a loop of the graph. Two forms are found among what it carries: an `mma` whose waves share the loop's dimension, and
`carried + sum(x, dim)` where lanes or waves hold parts of `dim`, or of one of several (a sum along M and N is a sum of
sums). Inside the loop nobody exchanges anything. What the sum starts from counts once: in the first of those that hold
parts. A loop that does more with its sum than hand it on adds in every trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign

from wavedsl.ir.dataflow.graph import Node, Region
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.fragment import Fragment
from wavedsl.ir.layouts.layout import high_lanes, moving_lanes
from wavedsl.ir.lower.across_waves import joined
from wavedsl.ir.lower.lower_async import starts_at_zero
from wavedsl.ir.lower.lower_matrix import summed_over_waves
from wavedsl.ir.lower.lower_reduce import lane_bits, shuffled, steps_in_rows
from wavedsl.ir.lower.lowering import Lowering, both
from wavedsl.ir.lower.sums_of_sums import in_parts
from wavedsl.ir.lower.wave_meeting import lanes_speak


def late_sums(low: Lowering, region: Region) -> dict[int, Node]:
    """Carried sums that are added up behind the loop, by the carry's id: the product, or the `sum` of each trip."""
    users = low.users()
    found = {}
    for carry, last in zip(region.carries, region.yields):
        if last not in region.nodes or users.get(carry.id) != [last] or users.get(last.id):
            continue
        if last.op == "mma" and region.dim is not None:
            apart = low.inference.mmas[last.id].k == str(region.dim) and low.plans[str(region.dim)].waves > 1
            if apart and len(last.inputs) > 2 and last.inputs[2] is carry:
                found[carry.id] = last
        elif last.op == "add" and len(last.inputs) == 2:
            part = last.inputs[1] if last.inputs[0] is carry else last.inputs[0]
            if part in region.nodes and users.get(part.id) == [last] and _may_wait(low, carry, last, part):
                found[carry.id] = part
    return found


def _may_wait(low: Lowering, carry: Node, last: Node, part: Node) -> bool:
    """Whether lanes or waves hold parts of a reduction, and all that they are added to lies as they do."""
    if part.op != "sum" or part.dtype is not carry.dtype or part.dtype.bits < 32:
        return False
    shared = _shared_by(low, part)
    if any(high_lanes(bits, low.target.wave_size) for _, bits in shared):
        return False
    if not any(bits or low.plans[d].waves > 1 for d, bits in shared):
        return False
    mine = low.inference.operand_layout(part, 0).project(str(part.attrs["dim"]))
    return all(
        set(n.dims) == set(part.dims) and same_layout(low.inference.layouts[n.id], mine) for n in (part, last, carry)
    )


def _shared_by(low: Lowering, n: Node) -> list[tuple[str, list[int]]]:
    """Per dimension that is summed, the lane bits that tell which lanes hold parts; its waves may, too."""
    if n.op == "mma":
        return [(low.inference.mmas[n.id].k, [])]
    dims = [(x, str(x.attrs["dim"])) for x in in_parts(low, n)]
    return [(d, lane_bits(low.inference.operand_layout(x, 0), d)) for x, d in dims]


def started_once(low: Lowering, n: Node, init: Node, value: Fragment) -> Fragment:
    """What a sum starts from (`init`, as `value`), in the first of those that hold parts of it. The others start from
    what changes no number: -0, or 0 where a product adds or 0 is what the sum starts from."""
    b = low.b
    shared = _shared_by(low, n)
    bits = [bit for _, own in shared for bit in own]
    first: Value | None = None
    for d, _ in shared:
        if low.plans[d].waves > 1:
            first = both(b, first, b.cmp("eq", low.digit(d), 0))
    if bits:
        first = both(b, first, b.cmp("eq", b.and_(b.lane(), sum(1 << bit for bit in bits)), 0))
    assert first is not None

    plain = starts_at_zero(init) and copysign(1.0, float(init.attrs["value"])) > 0
    zero = 0.0 if n.op == "mma" or plain else -0.0

    def absent(c: Value) -> Value:
        return b.const(zero, c.type) if c.type.element.is_float else b.zero(c.type)

    return Fragment(value.layout, value.dtype, [b.select(first, c, absent(c)) for c in value.chunks])


def added_up(low: Lowering, n: Node, parts: Sequence[Value]) -> list[Value]:
    """The sums of what lanes and waves hold of each chunk: lanes by butterflies, then waves in their order.

    A reduction's chunks take the steps of a butterfly side by side, and cross the waves together: exchanges that do not
    wait for each other, and two barriers for as many as `SUMMED_WORDS` registers.
    """
    b = low.b
    shared = _shared_by(low, n)
    of_waves = [d for d, _ in shared if low.plans[d].waves > 1]
    if n.op == "mma":
        return [summed_over_waves(low, of_waves[0], part) if of_waves else part for part in parts]
    add = b.fadd if parts[0].type.element.is_float else b.add
    cells = [x for part in parts for x in (b.elements(part) if part.type.n > 1 else [part])]
    for bit in steps_in_rows(low, sorted(bit for _, own in shared for bit in own)):
        others = [shuffled(low, x, 1 << bit) for x in cells]
        cells = [add(x, other) for x, other in zip(cells, others)]
    mine = low.inference.operand_layout(n, 0).project(str(n.attrs["dim"]))
    kept = moving_lanes(mine, mine.dims)
    for d in of_waves:
        if lanes_speak(low.target.wave_size, kept):
            cells = [c for (c,) in joined(low, d, [(x,) for x in cells], lambda x, y: (add(x[0], y[0]),), kept)]
        else:
            whole = summed_over_waves(low, d, b.vec(*cells)) if len(cells) > 1 else summed_over_waves(low, d, cells[0])
            cells = list(b.elements(whole)) if len(cells) > 1 else [whole]
    out = []
    for part in parts:
        own, cells = cells[: part.type.n], cells[part.type.n :]
        out.append(b.vec(*own) if len(own) > 1 else own[0])
    return out


__all__ = ["added_up", "late_sums", "started_once"]
