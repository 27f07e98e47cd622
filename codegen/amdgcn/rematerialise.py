"""Values that are cheaper to compute again than to keep: their readers get a fresh copy of the instruction.

In: a `Program` before allocation, its liveness. Out: candidates, and a rewrite for chosen ones: the instruction that
made the value goes, and stands again before every reader (neighbouring readers share one).

A value can be made again where it is written once, by one vector instruction of full rate that touches nothing but its
operands, and where each of those operands is written once and is live anyway, or is one that several such values are
made of: then its range grows and all of theirs shrink.

Where registers are short in the last loops only, readers before those keep the value: what is made again costs nothing
in loops that have room (`tail`).
"""

from __future__ import annotations

from collections.abc import Iterable

from wavedsl.codegen.amdgcn import isa
from wavedsl.codegen.amdgcn.liveness import Liveness
from wavedsl.codegen.amdgcn.machine import COPY, GONE, KEPT, Inst, Program, Ref, Reg, copy
from wavedsl.codegen.amdgcn.rows import Rows
from wavedsl.codegen.amdgcn.spill_rewrite import ends_region, moved_to, substitute, temporary
from wavedsl.ir.quick_dataclass import dataclass

_NEAR = 8
"""Instructions for which a value that was made again is kept for the next reader."""
_SHARE = 3
"""Values that must be made of one operand before it is kept alive for them."""
_FULL_RATE = 4
"""Clocks of a vector instruction that is cheap enough."""


@dataclass
class Candidate:
    """A tuple that can be made again: by what, and what that costs (instructions, ten times as dear per loop level).
    Readers in blocks before `tail` keep it."""

    reg: Reg
    maker: Inst
    cost: int
    tail: int = 0


def tail_of(program: Program, first: int) -> int:
    """The last block up to `first` from which on control never returns to an earlier one."""
    reach = len(program.blocks)
    found = 0
    for b in range(len(program.blocks) - 1, -1, -1):
        reach = min([reach, *program.blocks[b].succs])
        if b <= first and b <= reach:
            found = b
            break
    return found


def candidates(program: Program, live: Liveness, tail: int = 0, points: int = -1) -> list[Candidate]:
    """What can be made again, in order of ids, for readers from block `tail` on where there are earlier ones too. Of
    values that are live at none of these `points` only those that are in question together with others."""
    many = len(program.regs) + 1  # the last for fixed registers, whose id is -1
    writers = [0] * many
    makers: list[tuple[Inst, int] | None] = [None] * many
    readers: list[list[tuple[int, int]] | None] = [None] * many
    cut = 2 * live.starts[tail]
    for ref in program.inputs:
        writers[ref.reg.id] += 1
    for b, block in enumerate(program.blocks):
        point, depth = 2 * live.starts[b], block.depth
        for inst in block.insts:
            for ref in inst.defs:
                writers[ref.reg.id] += 1
                makers[ref.reg.id] = inst, depth
            if inst.uses:
                here = point, depth
                for ref in inst.uses:
                    known = readers[ref.reg.id]
                    if known is None:
                        readers[ref.reg.id] = [here]
                    else:
                        known.append(here)
            point += 2

    def asked(reg: Reg) -> tuple[Candidate, set[int]] | None:
        """The candidate, and the operands that would have to stay live for it."""
        made, read = makers[reg.id], readers[reg.id]
        assert made is not None and read is not None
        maker, depth = made
        if not _cheap(maker, reg) or any(r.reg.id < 0 or writers[r.reg.id] != 1 for r in maker.uses):
            return None
        late = [r for r in read if r[0] >= cut] if cut else read
        if not late:
            return None
        apart = len(late) < len(read)
        cost = sum(10**d for _, d in late) - (0 if apart else 10**depth)
        dead = set()
        if maker.uses:
            used = 0
            for at, _ in late:
                used |= 1 << at
            dead = {r.reg.id for r in maker.uses if not _covers(live, r, used)}
        return Candidate(reg, maker, cost, tail if apart else 0), dead

    out = []
    shared: dict[int, list[Candidate]] = {}
    elsewhere: list[Reg] = []
    for reg in program.regs:
        if reg.cls != "v" or reg.fixed or reg.origin is not None or writers[reg.id] != 1:
            continue
        if makers[reg.id] is None or readers[reg.id] is None:
            continue
        if not live.live[live.first[reg.id]] & points:
            elsewhere.append(reg)
        elif (found := asked(reg)) is not None:
            candidate, dead = found
            if not dead:
                out.append(candidate)
            elif len(dead) == 1:
                shared.setdefault(dead.pop(), []).append(candidate)
    for reg in elsewhere if shared else ():
        maker, _ = makers[reg.id]  # type: ignore[misc]
        if any(r.reg.id in shared for r in maker.uses) and (found := asked(reg)) is not None:
            candidate, dead = found
            if len(dead) == 1 and (key := dead.pop()) in shared:
                shared[key].append(candidate)
    for key, group in shared.items():
        if len(group) >= _SHARE and program.regs[key].n == 1:
            out += group
    return sorted(out, key=lambda c: c.reg.id)


def _covers(live: Liveness, ref: Ref, points: int) -> bool:
    """Whether what an access touches is live at all these points."""
    if not live.split[ref.reg.id]:
        return not points & ~live.live[live.first[ref.reg.id]]
    return not any(points & ~live.live[p] for p in live.pieces(ref))


def _cheap(maker: Inst, reg: Reg) -> bool:
    if maker.added or len(maker.defs) != 1 or not maker.defs[0].whole or maker.defs[0].reg is not reg:
        return False
    if maker.row == COPY:
        return maker.ops[1].__class__ is not Ref
    row = maker.row
    return (
        row.__class__ is not str
        and row.unit is isa.Unit.VALU
        and row.issue <= _FULL_RATE
        and row.mem is None
        and not row.implicit_reads
        and not row.implicit_writes
        and "readlane" not in row.hazard
        and row.encoding not in ("DPP", "SDWA")
        and all(r.reg is not reg for r in maker.uses)
    )


def independent(chosen: Iterable[Candidate]) -> list[Candidate]:
    """Those of the chosen that neither read another one nor are read by one that makes another, first come first."""
    out: list[Candidate] = []
    taken: set[int] = set()
    needed: set[int] = set()
    for c in chosen:
        sources = {r.reg.id for r in c.maker.uses}
        if not sources & taken and c.reg.id not in needed:
            out.append(c)
            taken.add(c.reg.id)
            needed |= sources
    return out


def make_again(program: Program, rows: Rows, chosen: Iterable[Candidate]) -> None:
    """Rewrite the program: the chosen values are made anew before their readers."""
    makers: dict[int, Inst] = {}
    tails: dict[int, int] = {}
    for c in chosen:
        makers[c.reg.id] = c.maker
        if c.tail:
            tails[c.reg.id] = c.tail
    early: dict[int, Reg] = {}
    for b, block in enumerate(program.blocks):
        out: list[Inst] = []
        recent: dict[int, tuple[Reg, int]] = {}
        for inst in block.insts:
            if inst.row not in (KEPT, GONE) and any(r.reg.id in makers for r in inst.defs):
                out.append(_gone(inst))
                reg = inst.defs[0].reg
                if reg.id in tails:
                    early[reg.id] = made = temporary(program, reg, 0, reg.n)
                    made.align = reg.align
                    out.append(_again(rows, inst, made))
                continue
            wanted = {} if inst.row in (KEPT, GONE) else {r.reg.id: r.reg for r in inst.uses if r.reg.id in makers}
            fresh: dict[int, Reg] = {}
            for key, reg in wanted.items():
                if b < tails.get(key, 0):
                    fresh[key] = early[key]
                    continue
                known = recent.get(key)
                if known is None or len(out) - known[1] > _NEAR:
                    made = temporary(program, reg, 0, reg.n)
                    made.align = reg.align
                    out.append(_again(rows, makers[key], made))
                    recent[key] = (made, len(out))
                fresh[key] = recent[key][0]
            if fresh:
                substitute(inst, moved_to({key: (reg, 0) for key, reg in fresh.items()}))
            out.append(inst)
            if ends_region(inst):
                recent.clear()
        block.insts = out


def _gone(maker: Inst) -> Inst:
    return Inst(GONE, maker.ops, {"row": maker.row, "mods": maker.mods}, maker.loc)


def _again(rows: Rows, maker: Inst, made: Reg) -> Inst:
    """The maker's instruction, into another register."""
    dst = Ref(made, 0, made.n)
    if maker.row == COPY:
        inst = copy(dst, maker.ops[1], maker.loc)
    else:
        ops = tuple([dst if o is maker.defs[0] or (o.__class__ is Ref and o.same(maker.defs[0])) else o
                     for o in maker.ops])  # fmt: skip
        inst = rows.make(maker.row, ops, maker.mods, maker.loc)
    inst.added = "again"
    return inst
