"""Software hazards: `s_nop` where two instructions stand closer than the chip allows.

In: a physical `Program`, waits inserted (a wait counts as an issued instruction). Out: the same with the fewest
`s_nop`s that its order needs; `hazard_fill` has moved what is useful into the gaps before.

The one idea: walk each block with the list of recent producers and how many wait states have passed since each; ask
`hazard_rules.required` for every pair whose registers meet, and pad for the worst. At a join every producer of every
predecessor is taken with its smallest distance, and loops are walked until that stops changing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wavedsl.codegen.amdgcn.hazard_rules import LONGEST, PRODUCERS, classes, required
from wavedsl.codegen.amdgcn.isa import Footprint
from wavedsl.codegen.amdgcn.machine import EXEC, M0, Inst, Program
from wavedsl.codegen.amdgcn.rows import Rows

_REACH = 5
"""Wait states after which only a matrix result can still be a hazard."""
_ALWAYS = 3 << EXEC | 1 << M0
"""Registers that consumers depend on without naming them."""


class Producer:
    """A recent instruction: what of it a later one may run into, and for how long."""

    __slots__ = ("footprint", "marks", "number", "reach", "touch")

    def __init__(self, number: int, inst: Inst, footprint: Footprint, marks: frozenset[str]):
        self.number = number
        self.footprint = footprint
        self.marks = marks
        self.reach = LONGEST if "mfma" in marks else _REACH
        self.touch = inst.writes
        for name in ("c", "data") if "mfma" in marks or inst.row.mem is not None else ():
            for code in footprint.operands.get(name, ()):
                self.touch |= 1 << code
        if "setreg" in marks or "dgemm" in marks or inst.writes & _ALWAYS:
            self.touch = -1


Fact = tuple[Footprint, frozenset[str], "Producer | None"]
"""Of one instruction: its operands, its hazard classes, what it opens."""


@dataclass
class Flow:
    """What the hazards of a program are found from: `facts` of every instruction, and per block the producers in reach
    where it is entered, with their distances (None: never entered)."""

    chip: str
    facts: list[list[Fact]]
    entry: list[dict[int, tuple[Producer, int]] | None]


def flow(program: Program) -> Flow:
    """The facts of every instruction, and `entry` by a walk to a fixed point."""
    number = 0
    facts: list[list[Fact]] = []
    for block in program.blocks:
        here: list[Fact] = []
        for inst in block.insts:
            footprint = Footprint(inst.row, inst.ops, inst.mods)
            marks = classes(footprint)
            opens = marks & PRODUCERS and ("salu" not in marks or inst.writes >> M0 & 1 or "setreg" in marks)
            number += 1
            here.append((footprint, marks, Producer(number, inst, footprint, marks) if opens else None))
        facts.append(here)
    return Flow(program.chip, facts, entries(program, facts))


def entries(program: Program, facts: Sequence[Sequence[Fact]]) -> list[dict[int, tuple[Producer, int]] | None]:
    """Per block, the producers in reach where it is entered, each with its smallest distance on any path."""
    n = len(program.blocks)
    entry: list[dict[int, tuple[Producer, int]] | None] = [None] * n
    entry[0] = {}
    work = [0]
    while work:
        b = min(work)
        work.remove(b)
        after = walk(program.blocks[b].insts, facts[b], entry[b] or {}, program.chip)
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
    return entry


def insert_nops(program: Program, rows: Rows, known: Flow | None = None) -> None:
    """Insert the nops into `program`, in place. `known`: the flow of the program as it is."""
    known = known or flow(program)
    for b, block in enumerate(program.blocks):
        entry = known.entry[b]
        if entry is None:
            continue
        pads: list[int] = []
        walk(block.insts, known.facts[b], entry, program.chip, pads=pads)
        out: list[Inst] = []
        for inst, pad in zip(block.insts, pads):
            while pad > 0:
                step = min(pad, 16)
                out.append(rows.make(rows.s_nop, (step - 1,), None, inst.loc))
                pad -= step
            out.append(inst)
        block.insts = out


def walk(
    insts: Sequence[Inst],
    facts: Sequence[Fact],
    entry: dict[int, tuple[Producer, int]],
    chip: str,
    pads: list[int] | None = None,
) -> dict[int, tuple[Producer, int]]:
    """The producers in reach after `insts`, with their distances; into `pads`, the wait states missing before each."""
    time = 0
    # (producer, time of its first wait state)
    recent: list[tuple[Producer, int]] = [(p, -d) for p, d in entry.values()]
    for inst, (footprint, marks, producer) in zip(insts, facts):
        pad = 0
        if recent:
            meets = inst.reads | inst.writes
            keep = []
            for item in recent:
                other, since = item
                passed = time - since
                if passed >= other.reach:
                    continue
                keep.append(item)
                if other.touch & meets or other.touch < 0:
                    need = required(other.footprint, footprint, chip, other.marks, marks) - passed
                    if need > pad:
                        pad = need
            recent = keep
        if pads is not None:
            pads.append(pad)
        time += pad + (inst.ops[0] + 1 if inst.row.unit.value == "nop" else 1)
        if producer is not None:
            recent.append((producer, time))
    after: dict[int, tuple[Producer, int]] = {}
    for other, since in recent:
        passed = time - since
        if passed < other.reach:
            key = other.number
            if key not in after or after[key][1] > passed:
                after[key] = (other, passed)
    return after
