"""Rewrites a program for spilled tuples: who reads one gets a temporary filled just before, who writes one a temporary
that is saved just behind.

In: a `Program` before allocation, and homes: where spilled tuples live (consecutive registers of the accumulation file,
or words of scratch). Out: the same with `reload` and `spill` instructions added. Temporaries name in `Reg.origin` whose
value they hold; `allocation_check` proves by it that nothing was lost.

A scratch word's address is `offset:` of the instruction, so a home must lie in the first `SCRATCH_WORDS` words. Writes
under a partial EXEC save only the lanes they write, which is what a register would have done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from wavedsl.codegen.amdgcn import isa, roles
from wavedsl.codegen.amdgcn.machine import COPY, GONE, KEPT, SCRATCH_BASE, Inst, Program, Ref, Reg, copy, fixed_register
from wavedsl.codegen.amdgcn.rows import EXEC_REF, Rows
from wavedsl.ir.quick_dataclass import dataclass

SCRATCH_WORDS = 1024
"""Words that the immediate offset of scratch instructions reaches."""
_NEAR = 4
"""Instructions for which a reloaded value is kept for the next reader."""


@dataclass(frozen=True)
class Home:
    """Where a spilled tuple lives: registers of `file` from `start`, or scratch words from `start` (`file` None)."""

    file: Reg | None
    start: int


@dataclass(frozen=True)
class Recent:
    """A temporary that may serve the next reader: it holds `words` of its tuple, and begins at register `low`."""

    reg: Reg
    low: int
    words: frozenset[int]
    when: int
    """How many instructions there were when it was last used."""

    def serves(self, words: Iterable[int], now: int) -> bool:
        """Whether who reads these words of the tuple, when there are so many instructions, finds them here."""
        return self.words.issuperset(words) and now - self.when <= _NEAR


def remember(program: Program) -> None:
    """Keep the instructions as they are, for the checker, before the first rewrite."""
    if program.original is None:
        program.original = [
            [(inst.row, inst.ops, dict(inst.mods) if inst.mods else {}) for inst in block.insts]
            for block in program.blocks
        ]


def temporary(program: Program, origin: Reg, start: int, n: int, cls: str | None = None) -> Reg:
    """A new tuple that holds registers [start, start + n) of `origin`."""
    align = 1 if n == 1 else max(2, origin.align)
    reg = Reg(len(program.regs), cls or origin.cls, n, align, -1, origin.name, origin.loc)
    reg.origin = (origin, start)
    if origin.origin is not None:
        reg.origin = (origin.origin[0], origin.origin[1] + start)
    program.regs.append(reg)
    return reg


def spill(program: Program, rows: Rows, homes: Mapping[int, Home]) -> None:
    """Move the tuples with these ids to their homes."""
    for block in program.blocks:
        out: list[Inst] = []
        recent: dict[int, Recent] = {}
        for inst in block.insts:
            if inst.row == KEPT:
                _kept_home(inst, homes)
            if inst.row in (KEPT, GONE) or not any(r.reg.id in homes for r in (*inst.defs, *inst.uses)):
                out.append(inst)
            elif inst.row == COPY and inst.added in ("spill", "reload"):
                _further(program, rows, inst, homes, out)
            elif inst.row == COPY and (place := _same_home(inst, homes)) is not None:
                out.append(_kept(inst, place))
                recent.pop(inst.defs[0].reg.id, None)
            else:
                _rewrite(program, rows, inst, homes, out, recent)
            if ends_region(inst):
                recent.clear()
        block.insts = out


def ends_region(inst: Inst) -> bool:
    """Whether all lanes go on from here: what was filled with some of them off lacks theirs."""
    return bool(inst.ops) and inst.ops[0] == EXEC_REF


def _kept_home(inst: Inst, homes: Mapping[int, Home]) -> None:
    """A copy that stands for no instruction, when its home in the accumulation file moves to scratch."""
    assert inst.mods is not None
    place = inst.mods["home"]
    if place.__class__ is Ref and place.reg.id in homes:
        inst.mods["home"] = homes[place.reg.id].start + place.start
        inst.uses = ()


def _further(program: Program, rows: Rows, inst: Inst, homes: Mapping[int, Home], out: list[Inst]) -> None:
    """A move to or from the accumulation file, when that home moves to scratch: straight to or from there."""
    dst, src = inst.ops
    place, other = (dst, src) if dst.reg.id in homes else (src, dst)
    _transfer(program, rows, other, homes[place.reg.id], place.start, inst, out, load=place is src)


def _same_home(inst: Inst, homes: Mapping[int, Home]) -> Any:
    """Where both sides of a copy live, if that is one place."""
    dst, src = inst.ops
    if src.__class__ is not Ref or dst.reg.id not in homes or src.reg.id not in homes:
        return None
    a, b = homes[dst.reg.id], homes[src.reg.id]
    if a.file is not b.file or a.start + dst.start != b.start + src.start:
        return None
    return a.start + dst.start if a.file is None else Ref(a.file, a.start + dst.start, dst.n)


def _kept(inst: Inst, place: Any) -> Inst:
    out = Inst(KEPT, inst.ops, {"home": place}, inst.loc)
    if place.__class__ is Ref:
        out.uses = (place,)
    return out


def _rewrite(
    program: Program,
    rows: Rows,
    inst: Inst,
    homes: Mapping[int, Home],
    out: list[Inst],
    recent: dict[int, Recent],
) -> None:
    """Append `inst` on temporaries, with what fills and saves them. `recent`: tuple → its last temporary."""
    touched: dict[int, tuple[Reg, int, int]] = {}
    for ref in (*inst.uses, *inst.defs):
        if ref.reg.id in homes:
            _, low, high = touched.get(ref.reg.id, (ref.reg, ref.start, ref.start + ref.n))
            touched[ref.reg.id] = (ref.reg, min(low, ref.start), max(high, ref.start + ref.n))
    temporaries: dict[int, tuple[Reg, int]] = {}
    for key, (reg, low, high) in touched.items():
        reads = [r for r in inst.uses if r.reg is reg]
        writes = [r for r in inst.defs if r.reg is reg]
        known = recent.pop(key, None)
        words = {k for r in (*reads, *writes) for k in range(r.start, r.start + r.n)}
        if known is not None and not writes and known.serves(words, len(out)):
            temporaries[key] = (known.reg, known.low)
            recent[key] = replace(known, when=len(out))
            continue
        low -= low % min(reg.align, 2)
        made = temporary(program, reg, low, high - low)
        temporaries[key] = (made, low)
        for first, n in _runs(reads):
            _transfer(program, rows, Ref(made, first - low, n), homes[key], first, inst, out, load=True)
        recent[key] = Recent(made, low, frozenset(words), len(out))

    writes = [r for r in inst.defs if r.reg.id in temporaries]
    substitute(inst, moved_to(temporaries))
    out.append(inst)
    for ref in writes:
        reg, low = temporaries[ref.reg.id]
        _transfer(program, rows, Ref(reg, ref.start - low, ref.n), homes[ref.reg.id], ref.start, inst, out, load=False)


def moved_to(temporaries: Mapping[int, tuple[Reg, int]]) -> Callable[[Any], Any]:
    """What an operand is once its tuple lives in a temporary: tuple → (temporary, which register it begins with)."""

    def moved(operand: Any) -> Any:
        if operand.__class__ is Ref and operand.reg.id in temporaries:
            reg, low = temporaries[operand.reg.id]
            return Ref(reg, operand.start - low, operand.n)
        if operand.__class__ is isa.Src and operand.value.__class__ is Ref:
            return isa.Src(moved(operand.value), operand.neg, operand.abs, operand.sext)
        return operand

    return moved


def substitute(inst: Inst, moved: Any) -> None:
    """Replace the references of an instruction by what `moved` says."""
    inst.ops = tuple([moved(o) for o in inst.ops])
    inst.defs = tuple([moved(r) for r in inst.defs])
    inst.uses = tuple([moved(r) for r in inst.uses])
    if inst.hint is not None:
        inst.hint = (moved(inst.hint[0]), moved(inst.hint[1]))


def _runs(refs: list[Ref]) -> list[tuple[int, int]]:
    """(first, count) of the registers that any of these references covers."""
    words = sorted({k for r in refs for k in range(r.start, r.start + r.n)})
    out: list[tuple[int, int]] = []
    for k in words:
        if out and out[-1][0] + out[-1][1] == k:
            out[-1] = (out[-1][0], out[-1][1] + 1)
        else:
            out.append((k, 1))
    return out


def _transfer(
    program: Program, rows: Rows, ref: Ref, home: Home, first: int, near: Inst, out: list[Inst], *, load: bool
) -> None:
    """Between temporary registers and the home of registers [first, first + ref.n) of a spilled tuple."""
    what = "reload" if load else "spill"
    if home.file is not None:
        place = Ref(home.file, home.start + first, ref.n)
        inst = copy(ref, place, near.loc) if load else copy(place, ref, near.loc)
        inst.added = what
        out.append(inst)
        return
    k = 0
    while k < ref.n:
        aligned = (ref.start + k) % 2 == 0
        rest = ref.n - k
        n = 1 if not aligned else 4 if rest >= 4 else 2 if rest >= 2 else 1
        word = home.start + first + k
        out.append(scratch_access(program, rows, ref.part(k, n), word, near, load=load))
        k += n


def scratch_access(program: Program, rows: Rows, ref: Ref, word: int, near: Inst, *, load: bool) -> Inst:
    """One load or store of scratch words from `word`."""
    row = rows.named((roles.RELOADS if load else roles.SPILLS)[ref.n])
    base = program.scratch_base if program.scratch_base is not None else isa.OFF
    ops = (ref, isa.OFF, base) if load else (isa.OFF, ref, base)
    inst = rows.make(row, ops, {"offset": 4 * word} if word else {}, near.loc)
    inst.added = "reload" if load else "spill"
    return inst


def open_scratch(program: Program, rows: Rows) -> None:
    """Ask for scratch, once.

    gfx942 and gfx950 know where a wave's scratch is. gfx90a hands over its base, behind the argument pointer, and the
    wave's offset, behind the workgroup ids, which the kernel adds into FLAT_SCRATCH; its instructions also need an
    address, so a scalar register holds 0 (LLVM's AMDGPU usage guide; llc -mattr=+enable-flat-scratch does the same).
    """
    if program.scratch_base is not None or program.chip != "gfx90a":
        return
    first = program.user_sgprs
    for ref in program.inputs:
        if ref.reg.cls == "s" and ref.reg.at >= first:
            ref.reg.at += 2

    def fixed(at: int, n: int, name: str) -> Ref:
        reg = Reg(len(program.regs), "s", n, 1, at, name)
        program.regs.append(reg)
        program.inputs.append(Ref(reg, 0, n))
        return program.inputs[-1]

    start = fixed(first, 2, "scratch start")
    offset = fixed(first + 2 + len(program.workgroup_ids), 1, "scratch offset of the wave")
    base = Reg(len(program.regs), "s", 1, 1, -1, SCRATCH_BASE)
    program.regs.append(base)
    program.scratch_base = Ref(base, 0, 1)
    low, high = (fixed_register("s", isa.FLAT_SCRATCH.index + k) for k in (0, 1))
    setup = [
        rows.make(rows.s_add_u32, (low, start.part(0), offset)),
        rows.make(rows.s_addc_u32, (high, start.part(1), 0)),
        copy(program.scratch_base, 0),
    ]
    for inst in setup:
        inst.added = "setup"
    program.blocks[0].insts[:0] = setup
