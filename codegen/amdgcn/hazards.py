"""Software hazards: `s_nop` where two instructions stand closer than the chip allows.

In: a physical `Program`, waits inserted (a wait counts as an issued instruction). Out: the same with the fewest
`s_nop`s.

The one idea: walk each block with the list of recent producers and how many wait states have passed since each; ask
`hazard_rules.required` for every pair whose registers meet, and pad for the worst. At a join every producer of every
predecessor is taken with its smallest distance, and loops are walked until that stops changing.
"""

from __future__ import annotations

from wavedsl.codegen.amdgcn.hazard_rules import LONGEST, PRODUCERS, classes, required
from wavedsl.codegen.amdgcn.isa import Footprint
from wavedsl.codegen.amdgcn.machine import EXEC, M0, Inst, Program
from wavedsl.codegen.amdgcn.rows import Rows

_REACH = 5
"""Wait states after which only a matrix result can still be a hazard."""
_ALWAYS = 3 << EXEC | 1 << M0
"""Registers that consumers depend on without naming them."""


class _Producer:
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


def insert_nops(program: Program, rows: Rows) -> None:
    """Insert the nops into `program`, in place."""
    chip = program.chip
    number = 0
    facts: list[list[tuple[Footprint, frozenset[str], _Producer | None]]] = []
    for block in program.blocks:
        here = []
        for inst in block.insts:
            footprint = Footprint(inst.row, inst.ops, inst.mods)
            marks = classes(footprint)
            opens = marks & PRODUCERS and ("salu" not in marks or inst.writes >> M0 & 1 or "setreg" in marks)
            number += 1
            here.append((footprint, marks, _Producer(number, inst, footprint, marks) if opens else None))
        facts.append(here)
    n = len(program.blocks)
    entry: list[dict[int, tuple[_Producer, int]] | None] = [None] * n
    entry[0] = {}
    work = [0]
    while work:
        b = min(work)
        work.remove(b)
        after = _walk(program.blocks[b].insts, facts[b], entry[b] or {}, None, rows, chip)
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
    for b, block in enumerate(program.blocks):
        if entry[b] is None:
            continue
        out: list[Inst] = []
        _walk(block.insts, facts[b], entry[b] or {}, out, rows, chip)
        block.insts = out


def _walk(
    insts: list[Inst],
    facts: list[tuple[Footprint, frozenset[str], _Producer | None]],
    entry: dict[int, tuple[_Producer, int]],
    out: list[Inst] | None,
    rows: Rows,
    chip: str,
) -> dict[int, tuple[_Producer, int]]:
    """The producers in reach after `insts`, with their distances; with `out`, the padded instructions."""
    time = 0
    # (producer, time of its first wait state)
    recent: list[tuple[_Producer, int]] = [(p, -d) for p, d in entry.values()]
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
        if pad:
            time += pad
            while pad > 0:
                step = min(pad, 16)
                if out is not None:
                    out.append(rows.make(rows.s_nop, (step - 1,), None, inst.loc))
                pad -= step
        time += inst.ops[0] + 1 if inst.row.unit.value == "nop" else 1
        if out is not None:
            out.append(inst)
        if producer is not None:
            recent.append((producer, time))
    after: dict[int, tuple[_Producer, int]] = {}
    for other, since in recent:
        passed = time - since
        if passed < other.reach:
            key = other.number
            if key not in after or after[key][1] > passed:
                after[key] = (other, passed)
    return after
