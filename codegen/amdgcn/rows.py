"""The instruction tables as selection sees them: `rows.v_add_u32` is the row of one chip, `rows.make` an instruction.

Every machine instruction of the back end is made by `Rows.make`, which reads from the row which operands are written
and read, implicit ones included. Attribute access fails for what the chip lacks; `rows.has` asks first.
"""

from __future__ import annotations

from typing import Any

from wavedsl.codegen.amdgcn import isa, roles
from wavedsl.codegen.amdgcn.machine import EXEC, M0, SCC, Inst, Operand, Ref, fixed_register
from wavedsl.ir.errors import CompileError
from wavedsl.ir.loc import Loc

_IMPLICIT = {
    "scc": fixed_register("s", SCC, 1, "scc"),
    "exec": fixed_register("s", EXEC, 2, "exec"),
    "m0": fixed_register("s", M0, 1, "m0"),
}
EXEC_REF = _IMPLICIT["exec"]
M0_REF = _IMPLICIT["m0"]
SCC_REF = _IMPLICIT["scc"]


class _Plan:
    """Which operands of a row are read and written, by position in the text."""

    __slots__ = ("count", "early", "implicit_defs", "implicit_uses", "is_mma", "reads", "vcc", "writes")

    def __init__(self, row: isa.Inst):
        explicit = row.explicit
        self.count = len(explicit)
        self.reads = tuple(i for i, o in enumerate(explicit) if o.reads)
        self.writes = tuple(i for i, o in enumerate(explicit) if o.writes)
        self.implicit_uses = tuple(_IMPLICIT[n] for n in row.implicit_reads if n != "vcc")
        self.implicit_defs = tuple(_IMPLICIT[n] for n in row.implicit_writes if n != "vcc")
        self.vcc = "vcc" in row.implicit_reads, "vcc" in row.implicit_writes
        # what a sparse product adds to is its result: no other operand can share a register with it
        self.is_mma = row.encoding == "MFMA" and "c" in row.position
        # a load that is replayed after a page fault must find its address registers unchanged
        self.early = self.is_mma or row.unit in (isa.Unit.VMEM, isa.Unit.SMEM)


class Rows:
    """The rows of one chip by mnemonic, as attributes."""

    def __init__(self, chip: str):
        self.chip = chip
        self._plans: dict[str, _Plan] = {}
        self.packs_rounded = self.has(roles.ROUNDED_PACK)
        """Two f32 are rounded and packed to f16 or bf16 by one instruction."""
        self.swaps_halves = self.has(roles.HALF_SWAP)
        self.moves_pairs = self.has(roles.PAIR_MOVE)

    def __getattr__(self, name: str) -> isa.Inst:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            row = isa.lookup(name, self.chip)
        except KeyError as error:
            raise CompileError(str(error.args[0])) from None
        self.__dict__[name] = row
        return row

    def named(self, mnemonic: str) -> isa.Inst:
        """The row of a mnemonic that a table column holds."""
        return getattr(self, mnemonic)

    def has(self, name: str) -> bool:
        """Whether the chip has the instruction."""
        try:
            isa.lookup(name, self.chip)
        except KeyError:
            return False
        return True

    def make(
        self,
        row: isa.Inst,
        ops: tuple[Operand, ...],
        mods: dict[str, Any] | None = None,
        loc: Loc | None = None,
        vcc: Ref | None = None,
    ) -> Inst:
        """One instruction. `vcc` stands for the implicit VCC of rows that have one."""
        plan = self._plans.get(row.mnemonic)
        if plan is None:
            plan = self._plans[row.mnemonic] = _Plan(row)
        if len(ops) != plan.count:
            raise CompileError(f"{row.mnemonic} takes {plan.count} operands, not {len(ops)}", loc)
        inst = Inst(row, ops, mods, loc)
        defs = [o for i in plan.writes if (o := ops[i]).__class__ is Ref]
        uses = [o for i in plan.reads if (o := ops[i]).__class__ is Ref]
        for i in plan.reads:
            if ops[i].__class__ is isa.Src and ops[i].value.__class__ is Ref:
                uses.append(ops[i].value)
        if plan.implicit_defs:
            defs += plan.implicit_defs
        if plan.implicit_uses:
            uses += plan.implicit_uses
        if vcc is not None:
            if plan.vcc[0]:
                uses.append(vcc)
            if plan.vcc[1]:
                defs.append(vcc)
        elif plan.vcc != (False, False):
            raise CompileError(f"{row.mnemonic} needs its VCC named", loc)
        inst.defs = tuple(defs)
        inst.uses = tuple(uses)
        if plan.early:
            inst.early = True
            if plan.is_mma and ops[3].__class__ is Ref:
                inst.hint = (ops[0], ops[3])
            if row.mem is not None and row.mem.op == "dma":
                inst.tokens = 1
        return inst


def addend(row: isa.Inst, ops: tuple[Operand, ...]) -> Operand:
    """C of a matrix instruction: an operand of its own, or what its result is added to."""
    return ops[row.position.get("c", 0)]


_CACHE: dict[str, Rows] = {}


def rows_of(chip: str) -> Rows:
    """The (shared) rows of a chip."""
    found = _CACHE.get(chip)
    if found is None:
        found = _CACHE[chip] = Rows(chip)
    return found


def queue_of(inst: Inst) -> str:
    """The queue that an instruction joins: `vm`, `lds`, `scalar`, or nothing."""
    row = inst.row
    if row.__class__ is str or not row.counters:
        return ""
    if "vmcnt" in row.counters:
        return "vm"
    return "scalar" if row.unit is isa.Unit.SMEM else "lds"


def is_barrier(inst: Inst) -> bool:
    row = inst.row
    return row.__class__ is not str and row.unit is isa.Unit.BARRIER


def set_physical(inst: Inst) -> None:
    """Fill `reads` and `writes` from the allocated registers."""
    reads = writes = 0
    for ref in inst.uses:
        reads |= ((1 << ref.n) - 1) << (ref.reg.at + ref.start)
    for ref in inst.defs:
        writes |= ((1 << ref.n) - 1) << (ref.reg.at + ref.start)
    inst.reads, inst.writes = reads, writes


def physical(operand: Operand) -> Any:
    """An operand as the tables know it: registers by file and number."""
    if operand.__class__ is Ref:
        return isa.register(operand.reg.at + operand.start, operand.n)
    if operand.__class__ is isa.Src:
        return isa.Src(physical(operand.value), operand.neg, operand.abs, operand.sext)
    return operand
