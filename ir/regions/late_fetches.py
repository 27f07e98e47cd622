"""Operands outside of loops that waves fetch themselves, a part at a time: each right before the product's step for it.

In: the steps of a kernel's outermost region. Out: the same steps in another order, where values that a loop carries and
whole operands would be more than a wave's registers. Loads come first as a rule, all of them in flight together; one of
128 columns of 512 elements would be held while a loop runs, and while a product goes through it.

Invariant: a load is moved towards its first reader, and only where no step of the region writes its array: what it
gives is the same wherever it is carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wavedsl.ir.cuts.register_file import ADDRESSES, FETCHED
from wavedsl.ir.dataflow.graph import PRODUCTS, factors
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.schedule.steps import Key, Step
from wavedsl.ir.staging.strategy import most_registers
from wavedsl.ir.target import wave_room


def late_fetches(low: Lowering, steps: Sequence[Step]) -> list[Step]:
    """The steps, with loads of products' operands behind a loop in front of their first readers, `FETCHED` registers of
    them ahead; as they are where all has room."""
    loads = _operand_loads(low, steps)
    words = sum(steps[i].words for i in loads)
    room = wave_room(low.target, low.partition.waves)
    if words <= FETCHED or words + most_registers(low) + ADDRESSES <= room:
        return list(steps)
    first = {key: i for i, s in reversed(list(enumerate(steps))) for key in s.uses}
    readers = {i: min((first[k] for k in steps[i].defs if k in first), default=i) for i in loads}
    order = sorted(loads, key=lambda i: (readers[i], i))
    before: dict[int, list[Step]] = {}
    ahead: list[int] = []
    for i in order:
        ahead.append(i)
        while len(ahead) > 1 and sum(steps[j].words for j in ahead[1:]) >= FETCHED:
            ahead.pop(0)
        before.setdefault(readers[ahead[0]], []).append(replace(steps[i], late=True))
    moved = set(loads)
    out: list[Step] = []
    for i, s in enumerate(steps):
        out += before.get(i, ())
        if i not in moved:
            out.append(s)
    return out


def _operand_loads(low: Lowering, steps: Sequence[Step]) -> list[int]:
    """Loads into registers of tiles that products of the outermost region behind a loop multiply, of arrays that the
    kernel only reads."""
    written = {array for s in steps for array in s.writes}
    keys: set[Key] = set()
    for n in low.graph.region.nodes:
        if n.op in PRODUCTS:
            for x in (n.inputs[p] for p in factors(n)):
                if x.op == "read" and x.id not in low.reads.staged:
                    keys |= set(low.keys(x))
    loop = next((i for i, s in enumerate(steps) if s.loop), len(steps))
    users = {key: i for i, s in reversed(list(enumerate(steps))) for key in s.uses}
    return [
        i
        for i, s in enumerate(steps)
        if s.kind == "gload" and s.array not in written and s.defs and keys.issuperset(s.defs)
        and all(users.get(k, -1) > loop for k in s.defs)
    ]  # fmt: skip


__all__ = ["late_fetches"]
