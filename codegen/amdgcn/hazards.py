"""Software hazards: `s_nop` where two instructions stand closer than the chip allows.

In: a physical `Program`, waits inserted (a wait counts as an issued instruction). Out: the same with the fewest
`s_nop`s that its order needs; `hazard_fill` has moved what is useful into the gaps before.

The one idea: walk each block with the list of recent producers and how many wait states have passed since each; ask
`hazard_rules.required` for every pair whose registers meet, and pad for the worst. At a join every producer of every
predecessor is taken with its smallest distance, and loops are walked until that stops changing.

What a pair requires does not depend on where the two stand, so a consumer remembers it (`Fact.needs`) for all walks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wavedsl.codegen.amdgcn.footprint import Footprint
from wavedsl.codegen.amdgcn.hazard_rules import LONGEST, PRODUCERS, classes, required
from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.codegen.amdgcn.machine import EXEC, M0, UNITS, Inst, Program
from wavedsl.codegen.amdgcn.rows import Rows
from wavedsl.ir.quick_dataclass import dataclass

_REACH = 5
"""Wait states after which only a matrix result can still be a hazard."""
_ALWAYS = 3 << EXEC | 1 << M0
"""Registers that consumers depend on without naming them."""
_ANYTHING = 1 << UNITS
"""A bit beyond all registers that every consumer has: what a producer touches (-1) whose consumers name no register."""
_MANY = 24
"""Producers on the list from which those out of reach are dropped before anything meets them."""


class Producer:
    """A recent instruction: what of it a later one may run into, and for how long."""

    __slots__ = ("footprint", "marks", "number", "reach", "touch")

    def __init__(self, number: int, inst: Inst, footprint: Footprint, marks: frozenset[str]):
        self.number = number
        self.footprint = footprint
        self.marks = marks
        matrix = "mfma" in marks
        self.reach = LONGEST if matrix else _REACH
        self.touch = inst.writes
        if matrix or inst.row.mem is not None:
            self.touch |= footprint.mask("c", "data")
        if "setreg" in marks or "dgemm" in marks or inst.writes & _ALWAYS:
            self.touch = -1


class Fact:
    """Of one instruction: its operands, its hazard classes, what it opens, the registers by which it may meet a
    producer, its wait states, and what is known of the wait states it needs after producers (by their numbers)."""

    __slots__ = ("footprint", "marks", "meets", "needs", "producer", "states")

    def __init__(self, inst: Inst, number: int):
        row = inst.row
        self.footprint = Footprint(row, inst.ops, inst.mods)
        self.marks = marks = classes(self.footprint)
        opens = marks & PRODUCERS and ("salu" not in marks or inst.writes >> M0 & 1 or "setreg" in marks)
        self.producer = Producer(number, inst, self.footprint, marks) if opens else None
        self.meets = inst.reads | inst.writes | _ANYTHING
        self.states: int = inst.ops[0] + 1 if row.unit is Unit.NOP else 1
        self.needs: dict[int, int] = {}


Recent = list[tuple[Producer, int]]
"""Producers and the times of their first wait states."""


@dataclass
class Flow:
    """What the hazards of a program are found from. Per block: the `facts` of its instructions, the producers in reach
    where it is entered, with their distances (None: never entered), and the wait states that are missing before each
    instruction (`pads`)."""

    chip: str
    facts: list[list[Fact]]
    entry: list[dict[int, tuple[Producer, int]] | None]
    pads: list[list[int]]


def flow(program: Program) -> Flow:
    """The facts of every instruction; `entry` and `pads` by a walk to a fixed point."""
    number = 0
    facts: list[list[Fact]] = []
    for block in program.blocks:
        facts.append([Fact(inst, number + i) for i, inst in enumerate(block.insts, 1)])
        number += len(block.insts)
    found = Flow(program.chip, facts, [], [])
    follow(program, found)
    return found


def follow(program: Program, flow: Flow) -> None:
    """Set `entry` and `pads` from the facts: producers have their smallest distance on any path."""
    n = len(program.blocks)
    entry: list[dict[int, tuple[Producer, int]] | None] = [None] * n
    pads: list[list[int]] = [[] for _ in range(n)]
    entry[0] = {}
    work = [0]
    while work:
        b = min(work)
        work.remove(b)
        pads[b], after = walk(flow.facts[b], entry[b] or {}, program.chip)
        for s in program.blocks[b].succs:
            before = entry[s]
            if before is None:
                entry[s] = dict(after)
                work.append(s)
                continue
            changed = False
            for key, (producer, distance) in after.items():
                if key not in before or before[key][1] > distance:
                    before[key] = (producer, distance)
                    changed = True
            if changed and s not in work:
                work.append(s)
    flow.entry, flow.pads = entry, pads


def insert_nops(program: Program, rows: Rows, known: Flow | None = None) -> None:
    """Insert the nops into `program`, in place. `known`: the flow of the program as it is."""
    known = known or flow(program)
    for block, pads in zip(program.blocks, known.pads):
        if not any(pads):
            continue
        out: list[Inst] = []
        for inst, pad in zip(block.insts, pads):
            while pad > 0:
                step = min(pad, 16)
                out.append(rows.make(rows.s_nop, (step - 1,), None, inst.loc))
                pad -= step
            out.append(inst)
        block.insts = out


def walk(
    facts: Sequence[Fact], entry: dict[int, tuple[Producer, int]], chip: str
) -> tuple[list[int], dict[int, tuple[Producer, int]]]:
    """The wait states missing before each instruction, and the producers in reach behind the last, with their
    distances."""
    recent: Recent = [(p, -d) for p, d in entry.values()]
    met = touched(recent)
    time = 0
    pads: list[int] = []
    for fact in facts:
        pad = 0
        if met & fact.meets:
            pad = missing(fact, recent, time, chip)
            recent = in_reach(recent, time)
            met = touched(recent)
        elif len(recent) > _MANY:
            recent = in_reach(recent, time)
            met = touched(recent)
        pads.append(pad)
        time += pad + fact.states
        producer = fact.producer
        if producer is not None:
            recent.append((producer, time))
            met |= producer.touch
    after: dict[int, tuple[Producer, int]] = {}
    for other, since in recent:
        passed = time - since
        if passed < other.reach:
            key = other.number
            if key not in after or after[key][1] > passed:
                after[key] = (other, passed)
    return pads, after


def missing(fact: Fact, recent: Recent, time: int, chip: str) -> int:
    """Wait states that an instruction lacks at a time."""
    pad = 0
    meets, needs = fact.meets, fact.needs
    for other, since in recent:
        if other.touch & meets:
            passed = time - since
            if passed < other.reach:
                need = needs.get(other.number)
                if need is None:
                    need = required(other.footprint, fact.footprint, chip, other.marks, fact.marks)
                    needs[other.number] = need
                if need - passed > pad:
                    pad = need - passed
    return pad


def in_reach(recent: Recent, time: int) -> Recent:
    """The producers that may still be a hazard at a time."""
    return [item for item in recent if time - item[1] < item[0].reach]


def touched(recent: Iterable[tuple[Producer, int]]) -> int:
    """What any of these producers touches."""
    out = 0
    for producer, _ in recent:
        out |= producer.touch
    return out
