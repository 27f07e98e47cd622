"""Virtual registers become physical: operands take their allocated registers, copies become moves or vanish.

In: an allocated `Program`. Out: the same with `isa.Reg` operands and `Inst.reads`, `Inst.writes` set; no
pseudo-instruction but the wait markers is left.
"""

from __future__ import annotations

from wavedsl.codegen.amdgcn.allocation_check import check_moves
from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.codegen.amdgcn.machine import A_BASE, COPY, GONE, KEPT, V_BASE, Inst, Operand, Program, Ref, fixed_register
from wavedsl.codegen.amdgcn.resources import ACCUMULATOR_COPY
from wavedsl.codegen.amdgcn.rows import Rows, addend, physical, set_physical
from wavedsl.ir.errors import CompileError


def make_physical(program: Program, rows: Rows, verify: bool = True) -> list[str]:
    """Rewrite all blocks in place. With `verify`, complaints about moves that do not do what the copies say."""
    complaints: list[str] = []
    _mark_accumulator_copies(program)

    def flush(copies: list[Inst], out: list[Inst]) -> None:
        before = len(out)
        expand_copies(copies, rows, out)
        if verify:
            complaints.extend(check_moves(copies, out[before:]))

    for block in program.blocks:
        out: list[Inst] = []
        pending: list[Inst] = []
        for inst in block.insts:
            if inst.row == COPY:
                pending.append(inst)
                continue
            if inst.row in (KEPT, GONE):
                continue
            if pending:
                flush(pending, out)
                pending = []
            out.append(inst)
        if pending:
            flush(pending, out)
        block.insts = out
        for inst in out:
            set_physical(inst)
            if inst.row.__class__ is not str:
                inst.ops = tuple([physical(o) for o in inst.ops])
    return complaints


def _mark_accumulator_copies(program: Program) -> None:
    """Copies between a loop-carried value and a matrix result are counted apart (`resources`)."""
    carried = {ref.reg.id for loop in program.loops for ref, _ in loop.carried}
    results: set[int] = set()
    for block in program.blocks:
        for inst in block.insts:
            if inst.row.__class__ is not str and inst.row.unit is Unit.MFMA:
                results.update(o.reg.id for o in (inst.ops[0], addend(inst.row, inst.ops)) if o.__class__ is Ref)
    if not results:
        return
    for block in program.blocks:
        for inst in block.insts:
            if inst.row == COPY and inst.uses:
                sides = (inst.defs[0].reg.id, inst.uses[0].reg.id)
                if any(a in carried and b in results for a, b in (sides, sides[::-1])):
                    inst.comment = ACCUMULATOR_COPY


def expand_copies(copies: list[Inst], rows: Rows, out: list[Inst]) -> None:
    """Append the moves of neighbouring copies to `out`; two that fill an even pair with zero become one."""
    singles: list[tuple[int, Operand, Inst]] = []
    for inst in copies:
        dst, src = inst.ops
        at = dst.at
        if src.__class__ is not Ref:
            singles.append((at, src, inst))
            continue
        if src.at == at:
            continue
        order = range(dst.n - 1, -1, -1) if src.at < at < src.at + src.n else range(dst.n)
        if dst.n >= 2 and dst.n % 2 == 0 and at % 2 == 0 and src.at % 2 == 0 and _pairs(rows, at, src.at):
            pairs = range(dst.n - 2, -1, -2) if order.step < 0 else range(0, dst.n, 2)
            for k in pairs:
                row = rows.s_mov_b64 if at < V_BASE else rows.v_mov_b64
                move = rows.make(row, (_place(at + k, 2), _place(src.at + k, 2)), None, inst.loc)
                move.comment = inst.comment
                singles.append((-1, move, inst))
            continue
        for k in order:
            singles.append((at + k, _place(src.at + k), inst))
    i = 0
    while i < len(singles):
        at, src, inst = singles[i]
        if at < 0:
            out.append(src)
            i += 1
            continue
        if i + 1 < len(singles) and src == 0 and src.__class__ is int and at % 2 == 0:
            next_at, next_src, _ = singles[i + 1]
            if next_at == at + 1 and next_src.__class__ is int and next_src == 0 and _pairs(rows, at, at):
                row = rows.s_mov_b64 if at < V_BASE else rows.v_mov_b64
                out.append(rows.make(row, (_place(at, 2), 0), None, inst.loc))
                i += 2
                continue
        out.append(_move(rows, at, src, inst))
        i += 1


def _pairs(rows: Rows, dst: int, src: int) -> bool:
    """Whether 64-bit moves exist between these files."""
    if dst < V_BASE:
        return src < V_BASE and max(dst, src) < 102
    return V_BASE <= dst < A_BASE and V_BASE <= src < A_BASE and rows.moves_pairs


def _move(rows: Rows, at: int, src: Operand, inst: Inst) -> Inst:
    """One 32-bit move between any two files, or of a constant."""
    dst = _place(at)
    source_file = src.reg.cls if src.__class__ is Ref else "k"
    if at < V_BASE:
        if source_file not in "sk":
            raise CompileError(f"a scalar register cannot be copied from {src}", inst.loc)
        row = rows.s_mov_b32
    elif at < A_BASE:
        row = rows.v_accvgpr_read_b32 if source_file == "a" else rows.v_mov_b32
    else:
        row = rows.v_accvgpr_mov_b32 if source_file == "a" else rows.v_accvgpr_write_b32
    move = rows.make(row, (dst, src), None, inst.loc)
    move.comment = inst.comment
    return move


def _place(at: int, n: int = 1) -> Ref:
    """A reference to physical registers."""
    return fixed_register("s" if at < V_BASE else "v" if at < A_BASE else "a", at, n)
