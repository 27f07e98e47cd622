"""Memory instructions in a row may be issued again after a page fault: none may have overwritten what another reads.

In: a physical `Program` with its waits and nops. Out: the same with `s_nop 0` between two of them where the later one's
results are registers that an earlier one of the same row reads.

A row is consecutive vector memory instructions, or consecutive scalar loads, without anything in between (LLVM's soft
clauses: GCNHazardRecognizer breaks them so where XNACK is on, or may be on, as for a target without either suffix).
Stores alone are no such row there: it takes a load, or an atomic that returns. Chips with XNACK on (MI300A, or
`HSA_XNACK=1`) load our code, which says nothing of it. That an instruction does not overwrite its own address is the
allocator's rule (EARLY).
"""

from __future__ import annotations

from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.codegen.amdgcn.machine import UNITS, Inst, Program
from wavedsl.codegen.amdgcn.rows import Rows

_ROWS = {Unit.VMEM: "vector", Unit.SCRATCH: "vector", Unit.SMEM: "scalar"}
_REGISTERS = (1 << UNITS) - 1


def break_clauses(program: Program, rows: Rows) -> None:
    """Insert the nops, in place. A row may run on into the block behind."""
    kind, read, loads = "", 0, False
    for block in program.blocks:
        out: list[Inst] = []
        for inst in block.insts:
            own = _ROWS.get(inst.row.unit, "")
            if own != kind:
                kind, read, loads = own, 0, False
            elif own and loads and inst.writes & read & _REGISTERS:
                out.append(rows.make(rows.s_nop, (0,), None, inst.loc))
                read, loads = 0, False
            if own:
                read |= inst.reads
                loads = loads or inst.writes & _REGISTERS != 0
            out.append(inst)
        block.insts = out
