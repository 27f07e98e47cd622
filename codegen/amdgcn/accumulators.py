"""Moves operands and accumulators of matrix instructions to the accumulation file when the vector file is too small.

In: a `Program` before allocation. Out: the same with operands that a loop does not change, or with the C and D tuples
of matrix instructions and the loop-carried tuples they are copied to and from, in file `a`. Matrix instructions, loads,
stores and copies take that file as it is; before any other reader the value is copied to a vector register, after any
other writer from one.
"""

from __future__ import annotations

from wavedsl.codegen.amdgcn import isa
from wavedsl.codegen.amdgcn.machine import COPY, Inst, Program, Ref, copy
from wavedsl.codegen.amdgcn.rows import addend
from wavedsl.codegen.amdgcn.spill_rewrite import temporary as temporary_for


def accumulator_groups(program: Program) -> list[list[int]]:
    """Tuples (by id) that must lie in one file: C and D of a matrix instruction, and what they are copied to and from
    across the trips of a loop. Cheapest to move first: those that other instructions read least often."""
    parent: dict[int, int] = {}

    def find(x: int) -> int:
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    def join(x: int, y: int) -> None:
        parent.setdefault(x, x)
        parent.setdefault(y, y)
        parent[find(x)] = find(y)

    for block in program.blocks:
        for inst in block.insts:
            if inst.row.__class__ is not str and inst.row.unit is isa.Unit.MFMA:
                d, c = inst.ops[0].reg.id, addend(inst.row, inst.ops)
                join(d, c.reg.id if c.__class__ is Ref else d)
    carried = {ref.reg.id for loop in program.loops for ref, _ in loop.carried}
    grown = True
    while grown:
        grown = False
        for block in program.blocks:
            for inst in block.insts:
                if inst.row != COPY or not inst.uses:
                    continue
                dst, src = inst.defs[0], inst.uses[0]
                if not dst.whole or not src.whole:
                    continue
                for one, other in ((dst.reg.id, src.reg.id), (src.reg.id, dst.reg.id)):
                    if one in parent and other in carried and (other not in parent or find(one) != find(other)):
                        join(one, other)
                        grown = True
    groups: dict[int, list[int]] = {}
    for x in sorted(parent):
        groups.setdefault(find(x), []).append(x)
    cost = dict.fromkeys(groups, 0)
    for block in program.blocks:
        for inst in block.insts:
            if inst.row.__class__ is str or inst.row.unit is isa.Unit.MFMA:
                continue
            for ref in (*inst.defs, *inst.uses):
                if ref.reg.id in parent:
                    cost[find(ref.reg.id)] += ref.n << 3 * block.depth
    return [groups[g] for g in sorted(groups, key=lambda g: (cost[g], g))]


def lasting_operands(program: Program) -> list[list[int]]:
    """Tuples (by id), each a group, that are loaded before a loop for its matrix instructions: A and B may lie in
    either file, and nothing else reads these, so they need no moves there. Those of the innermost loops come first."""
    shallow: dict[int, int] = {}
    deep: dict[int, int] = {}
    refused = {ref.reg.id for loop in program.loops for ref, _ in loop.carried}
    for block in program.blocks:
        for inst in block.insts:
            if inst.row.__class__ is str:
                refused.update(ref.reg.id for ref in (*inst.defs, *inst.uses))
                continue
            product = inst.row.unit is isa.Unit.MFMA
            for op, slot in zip(inst.ops, inst.row.explicit):
                if op.__class__ is not Ref or op.reg.cls != "v":
                    continue
                x = op.reg.id
                if op.reg.fixed or "a" not in slot.kinds or (slot.reads and not (product and op in inst.uses)):
                    refused.add(x)
                elif slot.writes:
                    shallow[x] = max(shallow.get(x, 0), block.depth)
                else:
                    deep[x] = min(deep.get(x, block.depth), block.depth)
            refused.update(r.reg.id for r in (*inst.defs, *inst.uses) if r not in inst.ops)
    found = [x for x in deep if x in shallow and shallow[x] < deep[x] and x not in refused]
    return [[x] for x in sorted(found, key=lambda x: (-deep[x], x))]


def move_to_accumulation(program: Program, groups: list[list[int]]) -> None:
    """Rewrite the program in place: the tuples of these groups lie in file `a` from here on."""
    chosen = {x for group in groups for x in group}
    for reg in program.regs:
        if reg.id in chosen:
            reg.cls = "a"
    for block in program.blocks:
        block.insts = _rewrite(program, block.insts, chosen)


def widest(program: Program, group: list[int]) -> int:
    """Registers that a group needs: one place for all its tuples."""
    return max(program.regs[x].n for x in group)


def _rewrite(program: Program, insts: list[Inst], chosen: set[int]) -> list[Inst]:
    """Instructions that reach the chosen tuples in the accumulation file only through temporaries of the vector
    file, where their row takes no accumulation registers."""
    out: list[Inst] = []
    for inst in insts:
        if inst.row == COPY:
            _copy(program, inst, out)
            continue
        if inst.row.__class__ is str or not any(r.reg.id in chosen for r in (*inst.defs, *inst.uses)):
            out.append(inst)
            continue
        after: list[Inst] = []
        explicit = inst.row.explicit
        ops = list(inst.ops)
        replaced: dict[int, Ref] = {}
        for i, op in enumerate(ops):
            value = op.value if op.__class__ is isa.Src else op
            if value.__class__ is not Ref or value.reg.id not in chosen or "a" in explicit[i].kinds:
                continue
            temporary = replaced.get(id(value))
            if temporary is None:
                temporary = replaced[id(value)] = _temporary(program, value)
                if explicit[i].reads:
                    out.append(_moved(copy(temporary, value, inst.loc), "reload"))
                if explicit[i].writes:
                    after.append(_moved(copy(value, temporary, inst.loc), "spill"))
            ops[i] = isa.Src(temporary, op.neg, op.abs, op.sext) if op.__class__ is isa.Src else temporary
        inst.defs = tuple(replaced.get(id(r), r) for r in inst.defs)
        inst.uses = tuple(replaced.get(id(r), r) for r in inst.uses)
        inst.ops = tuple(ops)
        out.append(inst)
        out += after
    return out


def _copy(program: Program, inst: Inst, out: list[Inst]) -> None:
    """A constant that the accumulation file cannot take as immediate goes through a vector register."""
    dst, src = inst.ops
    if dst.reg.cls == "a" and (src.__class__ is not Ref and not isa.is_inline(src)):
        temporary = _temporary(program, dst)
        out.append(copy(temporary, src, inst.loc))
        out.append(_moved(copy(dst, temporary, inst.loc), "spill"))
    elif dst.reg.cls == "a" and src.__class__ is Ref and src.reg.cls == "s":
        temporary = _temporary(program, dst)
        out.append(copy(temporary, src, inst.loc))
        out.append(_moved(copy(dst, temporary, inst.loc), "spill"))
    else:
        out.append(inst)


def _moved(inst: Inst, added: str) -> Inst:
    inst.added = added
    return inst


def _temporary(program: Program, like: Ref) -> Ref:
    return Ref(temporary_for(program, like.reg, like.start, like.n, "v"), 0, like.n)
