"""Two narrow accesses of shared memory as one instruction: the forms with two offsets.

In: a selected `Program`, registers virtual. Out: the same with pairs of `ds_read_b32` or `ds_read_b64` from one address
register joined, and pairs of stores likewise.

LDS takes the same clocks for both; an issue slot, and with it a count of the wait, is saved. A read's two results
become one tuple, so results that a copy may want elsewhere are not joined; but where their only copies lay them side by
side into a tuple, the pair fills that tuple itself and the copies go. The later read of a
pair moves up, the earlier store moves down, by at most `REACH` instructions and over nothing that orders shared memory.

Invariant: between the two places of a moved access nothing writes its registers, and nothing touches shared memory that
it may not pass: stores pass nothing, reads pass reads.
"""

from __future__ import annotations

from typing import Any

from wavedsl.codegen.amdgcn import isa, roles
from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.codegen.amdgcn.machine import COPY, EXEC, Block, Inst, Program, Ref, Reg
from wavedsl.codegen.amdgcn.rows import Rows

REACH = 8
"""Instructions that an access moves at most: further, registers would be held for it."""
MOST = 255
"""The largest of the two offsets."""
_READS = {roles.SHARED_LOADS[n]: n for n in roles.PAIR_LOADS}
_STORES = {roles.SHARED_STORES[n]: n for n in roles.PAIR_STORES}
_FAR = 64
"""Accesses that the offsets of the `st64` forms count together."""


def pair_shared(program: Program, rows: Rows) -> int:
    """Join what can be joined, in place; returns how many pairs."""
    narrow = _READS.keys() | _STORES.keys()
    found = [b for b in program.blocks if sum(_name(i) in narrow for i in b.insts) > 1]
    if not found:
        return 0
    facts = _Facts(program)
    moved: dict[Reg, tuple[Reg, int]] = {}
    pairs = 0
    for block in found:
        pairs += _reads(program, block, rows, facts, moved) + _stores(block, rows, facts)
    if moved:
        _rename(program, moved)
    return pairs


def _name(inst: Inst) -> str:
    return inst.row.mnemonic if isinstance(inst.row, isa.Inst) else ""


class _Facts:
    """What the whole program does with its registers: `written` how often; `pinned` those that must stay as they are;
    `products` results of matrix instructions, which may move to the other file; `homes` for results whose only use is
    a copy to a part of a tuple, of which every register is written once, that copy."""

    def __init__(self, program: Program):
        self.written: dict[Reg, int] = {}
        self.pinned: set[Reg] = set()
        self.products: set[Reg] = set()
        for block in program.blocks:
            for inst in block.insts:
                matrix = isinstance(inst.row, isa.Inst) and inst.row.unit is Unit.MFMA
                for ref in inst.defs:
                    self.written[ref.reg] = self.written.get(ref.reg, 0) + 1
                    if matrix:
                        self.products.add(ref.reg)
                if inst.row == COPY:
                    self.pinned.update(x.reg for x in (*inst.defs, *inst.uses))
                if inst.hint is not None:
                    self.pinned.update(x.reg for x in inst.hint)
                for op in inst.ops:
                    if op.__class__ is isa.Src and op.value.__class__ is Ref:
                        self.pinned.add(op.value.reg)
        self.homes = self._homes(program)

    def _homes(self, program: Program) -> dict[Reg, Inst]:
        used: dict[Reg, int] = {}
        filled: dict[Reg, int] = {}
        again: set[Reg] = set()
        copies: list[Inst] = []
        for block in program.blocks:
            for inst in block.insts:
                for ref in inst.uses:
                    used[ref.reg] = used.get(ref.reg, 0) + 1
                for ref in inst.defs:
                    bits, known = ((1 << ref.n) - 1) << ref.start, filled.get(ref.reg, 0)
                    filled[ref.reg] = known | bits
                    if known & bits:
                        again.add(ref.reg)
                if inst.row == COPY and inst.ops[1].__class__ is Ref and inst.ops[1].whole:
                    copies.append(inst)
        carried = {ref.reg for loop in program.loops for ref, _ in loop.carried}
        return {
            i.ops[1].reg: i for i in copies
            if used[i.ops[1].reg] == 1 and i.ops[0].reg not in again | carried and i.ops[0].reg.cls == "v"
            and not i.ops[0].reg.fixed
        }  # fmt: skip


def _offsets(a: Inst, b: Inst, size: int) -> tuple[bool, int, int] | None:
    """(whether in steps of 64, both offsets) of a pair's instruction; None where they do not fit."""
    first, second = ((x.mods or {}).get("offset", 0) for x in (a, b))
    for far, unit in ((False, size), (True, size * _FAR)):
        if first % unit == 0 and second % unit == 0 and max(first, second) // unit <= MOST and first != second:
            return far, first // unit, second // unit
    return None


def _plain(inst: Inst, where: int) -> Ref | None:
    """The address of an access that has no modifier but its offset."""
    address = inst.ops[where]
    return address if address.__class__ is Ref and not set(inst.mods or ()) - {"offset"} else None


def _orders(inst: Inst, reads_pass: bool) -> bool:
    """Whether an access to shared memory may not pass an instruction."""
    if not isinstance(inst.row, isa.Inst):
        return inst.row != COPY
    row = inst.row
    if row.unit is Unit.DS:
        return not (reads_pass and _name(inst) in _ONLY_READS)
    if row.unit in (Unit.BARRIER, Unit.BRANCH, Unit.WAITCNT) or inst.tokens:
        return True
    return any(x.reg.at == EXEC and x.reg.fixed for x in inst.defs)


_ONLY_READS = frozenset(roles.SHARED_LOADS.values()) | {n for names in roles.PAIR_LOADS.values() for n in names}


def _home(first: Inst, second: Inst, facts: _Facts, block: Block) -> Ref | None:
    """Where in a tuple the results of two reads of this block lie side by side, if their only uses copy them there."""
    one, other = (facts.homes.get(x.ops[0].reg) for x in (first, second))
    if one is None or other is None or one not in block.insts or other not in block.insts:
        return None
    low, high = one.ops[0], other.ops[0]
    if low.reg is not high.reg or low.start % 2 or high.start != low.start + low.n or low.n != high.n:
        return None
    return Ref(low.reg, low.start, 2 * low.n)


def _reads(program: Program, block: Block, rows: Rows, facts: _Facts, moved: dict[Reg, tuple[Reg, int]]) -> int:
    """Join reads of a block; how many pairs."""
    pairs = i = 0
    while i < len(block.insts):
        size = _READS.get(_name(block.insts[i]))
        if size:
            pairs += _join_read(program, block, i, size, rows, facts, moved)
        i += 1
    return pairs


def _join_read(
    program: Program, block: Block, i: int, size: int, rows: Rows, facts: _Facts, moved: dict[Reg, tuple[Reg, int]]
) -> bool:
    """Join the read at `i` with the next one that may move up to it; whether there was one."""
    insts = block.insts
    first = insts[i]
    address = _plain(first, 1)
    if address is None or not _may_join(first, facts):
        return False
    for j in range(i + 1, min(i + 1 + REACH, len(insts))):
        second = insts[j]
        at = _same_place(first, second, 1, address, size)
        if at is not None and _may_join(second, facts) and not _touched(second.ops[0].reg, insts[i:j]):
            results = first.ops[0].reg, second.ops[0].reg
            if not facts.pinned.intersection(results):
                both = Reg(len(program.regs), "v", size // 2, 2, -1, results[0].name, first.loc)
                program.regs.append(both)
                moved[results[0]], moved[results[1]] = (both, 0), (both, size // 4)
                insts[i] = _joined(rows, roles.PAIR_LOADS[size], (Ref(both, 0, size // 2), address), at, first)
                del insts[j]
                return True
            home = _home(first, second, facts, block)
            if home is not None:
                insts[i] = _joined(rows, roles.PAIR_LOADS[size], (home, address), at, first)
                gone = {id(second), *(id(facts.homes[x]) for x in results)}
                insts[:] = [x for x in insts if id(x) not in gone]
                return True
        if _orders(second, True) or any(x.reg is address.reg for x in second.defs):
            return False
    return False


def _may_join(inst: Inst, facts: _Facts) -> bool:
    """Whether the result of a read may become part of a tuple."""
    dst = inst.ops[0]
    return (
        dst.__class__ is Ref and dst.whole and dst.reg.cls == "v" and not dst.reg.fixed
        and facts.written.get(dst.reg) == 1 and (dst.reg not in facts.pinned or dst.reg in facts.homes)
    )  # fmt: skip


def _same_place(first: Inst, second: Inst, where: int, address: Ref, size: int) -> tuple[bool, int, int] | None:
    """The offsets (`_offsets`) of two accesses of one kind from one address, operand `where`; None where they are not
    that."""
    if _name(second) != _name(first):
        return None
    other = _plain(second, where)
    return _offsets(first, second, size) if other is not None and other.same(address) else None


def _touched(reg: Reg, insts: list[Inst]) -> bool:
    """Whether instructions read or write a register."""
    return any(x.reg is reg for inst in insts for x in (*inst.uses, *inst.defs))


def _stores(block: Block, rows: Rows, facts: _Facts) -> int:
    """Join stores of a block; how many pairs."""
    pairs = i = 0
    while i < len(block.insts):
        size = _STORES.get(_name(block.insts[i]))
        if size and _join_store(block, i, size, rows, facts):
            pairs += 1
        else:
            i += 1
    return pairs


def _join_store(block: Block, i: int, size: int, rows: Rows, facts: _Facts) -> bool:
    """Move the store at `i` down to the next one that it can be joined with; whether there was one."""
    insts = block.insts
    first = insts[i]
    address, data = _plain(first, 0), first.ops[1]
    if address is None or data.__class__ is not Ref or data.reg in facts.products:
        return False
    for j in range(i + 1, min(i + 1 + REACH, len(insts))):
        second = insts[j]
        at = _same_place(first, second, 0, address, size)
        if at is not None:
            more = second.ops[1]
            if more.__class__ is Ref and more.reg not in facts.products and more.reg.cls == data.reg.cls:
                insts[j] = _joined(rows, roles.PAIR_STORES[size], (address, data, more), at, second)
                del insts[i]
                return True
        if _orders(second, False) or any(x.reg in (address.reg, data.reg) for x in second.defs):
            return False
    return False


def _joined(rows: Rows, names: tuple[str, str], ops: tuple[Any, ...], at: tuple[bool, int, int], like: Inst) -> Inst:
    """The instruction of a pair; offsets of 0 are left out."""
    far, first, second = at
    mods = {name: value for name, value in (("offset0", first), ("offset1", second)) if value}
    inst = rows.make(rows.named(names[far]), ops, mods or None, like.loc)
    inst.comment = like.comment
    return inst


def _rename(program: Program, moved: dict[Reg, tuple[Reg, int]]) -> None:
    """Every reference to a joined result, as part of its tuple."""

    def new(x: Any) -> Any:
        if x.__class__ is not Ref or x.reg not in moved:
            return x
        both, start = moved[x.reg]
        return Ref(both, start + x.start, x.n)

    for block in program.blocks:
        for inst in block.insts:
            if any(x.reg in moved for x in (*inst.uses, *inst.defs)):
                inst.ops = tuple(map(new, inst.ops))
                inst.uses = tuple(map(new, inst.uses))
                inst.defs = tuple(map(new, inst.defs))
