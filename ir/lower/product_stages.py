"""Products that span trips: which steps of a loop's body run a trip later than the others.

In: the steps of a ring loop's body, what it carries. Out: `TripStages`, or the reason why there are none. A product
that needs another product of its iteration (attention's P V needs Q Kᵀ) would leave the matrix unit idle while all in
between is computed. So what needs its result, what it adds to, and the product itself become a second stage: a trip
starts the first product of one iteration and the second of the iteration before, both in flight together, and what
lies between them is computed while the second runs.

Invariant: within an iteration nothing of the first stage needs the second, and nothing that the loop carries into the
first stage is made in the second.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from wavedsl.ir.dataflow.graph import Region, ValueType
from wavedsl.ir.inference.mma_tiles import REGISTER_FILE, SAME
from wavedsl.ir.layouts.fragment import register_count
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import BodySchedule, Key, Step

OTHERS = 7
"""One register in this many is kept for addresses, slots, and what a row or a score takes on its way: attention with
206 of 240 registers in values spills with ptxas 13, with 202 of 240 and with 134 of 160 it does not."""

@dataclass
class TripStages:
    """Positions in the list of steps. A trip runs `first` of an iteration (its products are started, nothing waits for
    them), `second` of the iteration before, `rest` of the first iteration. `both`: steps that each stage runs."""

    first: list[int]
    second: list[int]
    rest: list[int]
    both: list[int]
    crossing: list[Key]
    """What the second stage needs of the first, or of what the loop carries into it."""
    operands: dict[int, frozenset[Key]]
    """Product of the second stage → keys of the registers that it reads while it runs."""
    later: frozenset[Key]
    """Carried values that the second stage replaces."""
    why: str = ""


def trip_stages(
    low: Lowering, region: Region, body: BodySchedule, steps: Sequence[Step], trips: Any, replaced: Mapping[Key, Key]
) -> TripStages | str:
    """The stages of a loop's products, or why it has one stage only: empty where products do not need each other.
    `replaced`: carried key → the key that replaces it."""
    products = [i for i in body.order if steps[i].node is not None]
    later = _second(steps, products, replaced)
    if not later:
        return ""
    if all(i in later for i in products):
        return "every product needs what the last one of the trip before gives"
    problem = _problem(low, region, body, steps, trips, later, replaced)
    if problem:
        return problem
    maker = {k: i for i, s in enumerate(steps) for k in s.defs}
    both = {i for i, s in enumerate(steps) if not s.uses and s.kind == "compute" and s.name.split()[0] in SAME}
    second_keys = frozenset(k for k, after in replaced.items() if maker.get(after) in later)
    crossing: dict[Key, None] = {}
    for i in body.order:
        for k in steps[i].uses if i in later else ():
            if (k in maker and maker[k] not in later and maker[k] not in both) or (
                k in replaced and k not in second_keys
            ):
                crossing.setdefault(k)
    # Until a step needs a product of its own trip everything is started; then the other stage, then what waits.
    started = {k for i in products if i not in later for k in steps[i].defs}
    first: list[int] = []
    rest: list[int] = []
    for i in body.order:
        if i in later:
            continue
        waits = started.intersection(steps[i].uses)
        started |= set(steps[i].defs) if waits else set()
        (rest if waits else first).append(i)
    # What lanes read of a ring holds registers: it is read when it is needed.
    late = [i for i in first if steps[i].kind == "sread" and not any(_uses(steps, i, j) for j in (*first, *later))]
    first = [i for i in first if i not in late]
    for i in late:
        at = next((p for p, j in enumerate(rest) if _uses(steps, i, j)), len(rest))
        rest.insert(at, i)
    operands = {}
    for i in sorted(later):
        n = steps[i].node
        if n is not None:
            adds = set(low.keys(n.inputs[2])) if len(n.inputs) > 2 else set()
            read = [k for k in steps[i].uses if k in crossing and k not in adds]
            operands[n.id] = frozenset(_same_registers(steps, maker, read))
    found = TripStages(
        first, [i for i in body.order if i in later], rest, sorted(both), list(crossing), operands, second_keys
    )
    needed, room = _registers(low, region, steps, products, later, found), register_room(low)
    found.why = f"values take {needed} of {room} registers while products of both run"
    if needed > room - -(-room // OTHERS):
        return found.why
    return found


def _uses(steps: Sequence[Step], maker: int, user: int) -> bool:
    """Whether a step uses what another makes."""
    return not set(steps[maker].defs).isdisjoint(steps[user].uses)


ALIASES = ("operand", "permute", "bitcast", "relabel")
"""Steps whose results may be their operands' registers: an operand in its product's layout is often a renaming."""


def _same_registers(steps: Sequence[Step], maker: Mapping[Key, int], keys: Sequence[Key]) -> set[Key]:
    """Keys whose registers these keys' values may lie in."""
    found: set[Key] = set()
    work = list(keys)
    while work:
        k = work.pop()
        if k not in found:
            found.add(k)
            if k in maker and steps[maker[k]].name.split()[0] in ALIASES:
                work += steps[maker[k]].uses
    return found


def _second(steps: Sequence[Step], products: Sequence[int], replaced: Mapping[Key, Key]) -> set[int]:
    """The second stage: products that need another of their iteration, what needs these, and what works on what they
    leave for the next iteration."""
    maker = {k: i for i, s in enumerate(steps) for k in s.defs}
    needs: set[Key] = {k for i in products for k in steps[i].defs}
    later: set[int] = set()
    made = set(needs)
    for i, s in enumerate(steps):  # uses stand behind what they use
        if made.intersection(s.uses):
            made.update(s.defs)
            if i in products:
                later.add(i)
    while True:
        keys = {k for i in later for k in steps[i].defs}
        keys |= {k for k, after in replaced.items() if maker.get(after) in later}
        more = {i for i, s in enumerate(steps) if i not in later and keys.intersection(s.uses)}
        if not more:
            return later
        later |= more


def _problem(
    low: Lowering, region: Region, body: BodySchedule, steps: Sequence[Step], trips: Any, later: set[int],
    replaced: Mapping[Key, Key],
) -> str:  # fmt: skip
    """Why a loop's trips are run as written; empty if nothing speaks against two stages."""
    if not low.matrix.strategy.specialize:
        return "no warpgroup of its own copies"
    if low.choices.stages == 1:
        return "stages=1 asks for no pipeline"
    if isinstance(trips, int) and trips < 2:
        return "the loop has one trip"
    if body.barriers or body.commits:
        return "threads copy and synchronise inside the loop"
    if any(s.loop or s.kind == "effect" for s in steps):
        return "the loop holds effects or other loops"
    maker = {k for s in steps for k in s.defs}
    if any(after not in maker and after[0] == "carry" and after != key for key, after in replaced.items()):
        return "carried values change places"
    for ring in low.reads.rings:
        if ring.region is region:
            if in_both(low, ring, steps, later) and (ring.slots < 2 or not _only_products(low, ring, steps)):
                return f"both stages read ring {ring.name}, which has {ring.slots} slots"
    return ""


def in_both(low: Lowering, ring: Any, steps: Sequence[Step], later: Collection[int]) -> bool:
    """Whether steps of both stages read a ring; `later`: those of the second."""
    return len({i in later for i, s in enumerate(steps) if reads_ring(low, s, ring)}) > 1


def _only_products(low: Lowering, ring: Any, steps: Sequence[Step]) -> bool:
    """Whether matrix instructions alone read a ring."""
    return all(s.node is not None for s in steps if reads_ring(low, s, ring))


def reads_ring(low: Lowering, step: Step, ring: Any) -> bool:
    """Whether a product takes an operand from a ring, or lanes read it."""
    if step.node is None:
        return step.kind == "sread" and any(step.buffer == low.room.buffers[n.id] for n in ring.members)
    plan = low.inference.mmas[step.node.id]
    return any(brought and low.reads.ring_of.get(x.id) is ring for x, brought in zip(plan.ports, plan.brought))


def register_room(low: Lowering) -> int:
    """Registers per thread of a computing warpgroup."""
    if low.matrix.strategy.registers[1]:
        return int(low.matrix.strategy.registers[1])
    threads = (low.partition.waves * low.matrix.strategy.teams + low.matrix.strategy.specialize) * low.target.wave_size
    return min(255, REGISTER_FILE // threads // 8 * 8)


def _registers(
    low: Lowering, region: Region, steps: Sequence[Step], products: Sequence[int], later: set[int], found: TripStages
) -> int:
    """Registers while products of both stages run: what the loop carries, what crosses, what is being computed."""
    values = [c for c in region.carries if isinstance(c.type, ValueType)]
    total = sum(register_count(low.layout(c), c.dtype) for c in values)
    nodes = {k: n for n in region.nodes if isinstance(n.type, ValueType) for k in low.keys(n)}
    for k in found.crossing:
        n = nodes.get(k)
        if n is None and k[0] == "port":
            n = low.inference.mmas[k[1]].ports[0]
        if n is not None:
            total += register_count(low.layout(n), n.dtype)
    for i in products:
        if i not in later:
            n = steps[i].node
            total += register_count(low.layout(n), n.dtype)
    return total


__all__ = ["OTHERS", "TripStages", "in_both", "reads_ring", "register_room", "trip_stages"]
