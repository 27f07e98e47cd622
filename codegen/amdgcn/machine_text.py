"""Machine code, liveness and allocation as text, and live registers as numbers: where registers go, for people.

In: a `Program`, its `Liveness` or allocation. Out: text, one line per instruction, and `LiveCounts`.
"""

from __future__ import annotations

from wavedsl.codegen.amdgcn import isa
from wavedsl.codegen.amdgcn.liveness import Liveness
from wavedsl.codegen.amdgcn.machine import FILE_BASE, GONE, KEPT, Inst, Program, Ref, Reg
from wavedsl.ir.quick_dataclass import dataclass

_COLUMN = 76


@dataclass
class LiveCounts:
    """Live registers by file in front of every instruction, with what the instruction is and which line it is from."""

    vector: list[int]
    accumulation: list[int]
    scalar: list[int]
    labels: list[tuple[int, str]]
    """(number of an instruction, label of the block that begins there)."""
    lines: list[int | None]
    """The user's line of each instruction."""


def live_counts(program: Program, live: Liveness) -> LiveCounts:
    """Registers that hold something needed, per instruction in text order. Tuples that were given one register count
    once; before allocation every tuple counts."""
    total = live.instructions
    counts = {cls: [0] * (total + 1) for cls in "vas"}
    places: dict[tuple[str, int, int], int] = {}
    for reg in program.regs:
        first = live.first[reg.id]
        for k in range(reg.n):
            place = (reg.cls, reg.at + k, 0) if reg.at >= 0 else (reg.cls, reg.id, k)
            places[place] = places.get(place, 0) | live.live[first + (k if live.split[reg.id] else 0)]
    for (cls, _, _), bits in places.items():
        line = counts[cls]
        for begin, end in _ranges(bits):
            line[(begin + 1) // 2] += 1
            if (end + 1) // 2 <= total:
                line[(end + 1) // 2] -= 1
    for line in counts.values():
        for i in range(1, len(line)):
            line[i] += line[i - 1]
    lines: list[int | None] = [None] * total
    for b, block in enumerate(program.blocks):
        for i, inst in enumerate(block.insts):
            lines[live.starts[b] + i] = inst.loc.line if inst.loc is not None else None
    labels = [(live.starts[b], block.label) for b, block in enumerate(program.blocks) if block.label]
    return LiveCounts(counts["v"][:total], counts["a"][:total], counts["s"][:total], labels, lines)


def _ranges(bits: int) -> list[tuple[int, int]]:
    """Runs of set bits as [begin, end)."""
    out = []
    at = 0
    while bits:
        skip = (bits & -bits).bit_length() - 1
        bits >>= skip
        run = (~bits & (bits + 1)).bit_length() - 1
        out.append((at + skip, at + skip + run))
        bits >>= run
        at += skip + run
    return out


def program_text(program: Program, live: Liveness | None = None) -> str:
    """One line per instruction; allocated tuples with their registers, live registers by file in front of each."""
    counts = live_counts(program, live) if live is not None else None
    out = []
    number = 0
    for b, block in enumerate(program.blocks):
        targets = ", ".join(program.blocks[s].label or f"block {s}" for s in block.succs)
        head = f"{block.label or f'block {b}'}:"
        out.append(f"{head:<{_COLUMN}} ; depth {block.depth}, then {targets or 'the end'}")
        for inst in block.insts:
            line = "    " + instruction_text(inst)
            notes = []
            if counts is not None:
                notes.append(f"live {counts.vector[number]}v {counts.accumulation[number]}a {counts.scalar[number]}s")
            if inst.added:
                notes.append(inst.added)
            if inst.loc is not None:
                notes.append(f"line {inst.loc.line}")
            out.append(f"{line:<{_COLUMN}} ; {', '.join(notes)}" if notes else line)
            number += 1
        if not block.insts:
            number += 1
    return "\n".join(out)


def instruction_text(inst: Inst) -> str:
    """An instruction over virtual or allocated tuples."""
    if inst.row == GONE:
        return f"(gone) {operand_text(inst.ops[0])}"
    name = inst.row if inst.row.__class__ is str else inst.row.mnemonic
    mods = "" if inst.row == KEPT else " ".join(f"{k}:{v}" for k, v in (inst.mods or {}).items())
    return f"{name} {', '.join(operand_text(o) for o in inst.ops)} {mods}".rstrip()


def operand_text(operand: object) -> str:
    if isinstance(operand, Ref):
        name = repr(operand)
        if operand.reg.at < 0 or operand.reg.id < 0:
            return operand.reg.name if operand.reg.id < 0 and operand.reg.name else name
        return f"{name}={register_text(operand.reg, operand.start, operand.n)}"
    if isinstance(operand, isa.Src):
        return str(isa.Src(operand_text(operand.value), operand.neg, operand.abs, operand.sext))
    return isa.operand_text(operand)


def register_text(reg: Reg, start: int = 0, n: int | None = None) -> str:
    """Where a tuple lies: v4, s[8:11]."""
    n = reg.n if n is None else n
    return str(isa.Reg(reg.cls, reg.at + start - FILE_BASE[reg.cls], n))


def liveness_text(program: Program, live: Liveness) -> str:
    """Every tuple: its registers, the instructions between which it is live, and where it comes from."""
    out = []
    for reg in program.regs:
        first = live.first[reg.id]
        pieces = live.live[first : first + (reg.n if live.split[reg.id] else 1)]
        union = 0
        for bits in pieces:
            union |= bits
        if not union:
            continue
        spans = ", ".join(f"{begin // 2}-{(end - 1) // 2}" for begin, end in _ranges(union))
        where = f" {register_text(reg)}" if reg.at >= 0 else ""
        line = f", line {reg.loc.line}" if reg.loc is not None else ""
        parts = ", parts live on their own" if live.split[reg.id] and len(set(pieces)) > 1 else ""
        out.append(f"{reg!r:<10}{where:<12} instructions {spans}{parts}  ({reg.name or 'temporary'}{line})")
    return "\n".join(out)


def allocation_text(program: Program, used: dict[str, int]) -> str:
    """Register by register: which tuples it holds in the course of the program."""
    holders: dict[int, list[Reg]] = {}
    for reg in program.regs:
        for k in range(reg.n if reg.at >= 0 else 0):
            holders.setdefault(reg.at + k, []).append(reg)
    out = [f"used: {used['v']} vector, {used['a']} accumulation, {used['s']} scalar registers"]
    for place in sorted(holders):
        cls = "a" if place >= FILE_BASE["a"] else "v" if place >= FILE_BASE["v"] else "s"
        names = ", ".join(f"{reg!r} ({reg.name})" if reg.name else repr(reg) for reg in holders[place])
        out.append(f"{cls}{place - FILE_BASE[cls]}: {names}")
    return "\n".join(out)
