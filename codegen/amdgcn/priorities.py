"""Raised issue priority where a wave multiplies in a loop that also computes with the vector unit.

In: a physical `Program` with its waits and nops, and how many waves share a SIMD. Out: the same, with `s_setprio` around runs of
matrix instructions.

The one idea: vector and matrix instructions of a SIMD's waves share one issue port, but a matrix instruction needs it
for one turn and then keeps the matrix unit busy for many. A wave that computes asks for every turn; where it is the
older one, one that multiplies gets none until it is through, and both units are in use by turns instead of together.
With the multiplying wave in front the matrix unit stays busy and the other wave loses a turn in four or eight. Waves
then drift apart by themselves: whoever is behind computes while the other multiplies.

Not where a wave has its SIMD to itself, where nothing but products is in the loop, where matrix instructions keep the
port themselves (f32 and f64 operands), nor where a schedule has set priorities of its own (ping-pong).
"""

from __future__ import annotations

from collections.abc import Iterator

from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.codegen.amdgcn.machine import Inst, Loop, Program
from wavedsl.codegen.amdgcn.rows import Rows

RAISED = 1
"""Priority of a wave that multiplies; it starts with 0."""
BETWEEN = 2
"""Most vector instructions between two matrix instructions of one run."""
SHARE = 1 / 4
"""Vector clocks of a trip over those of its matrix instructions from which on waves have something to do beside
another's products."""
_VECTOR = (Unit.VALU, Unit.TRANS, Unit.ACCMOVE)


def raise_priorities(program: Program, rows: Rows, waves: int) -> None:
    """Insert the instructions, in place. `waves`: that share a SIMD."""
    if waves < 2 or any(_name(inst) == "s_setprio" for block in program.blocks for inst in block.insts):
        return
    for loop in _innermost(program):
        blocks = program.blocks[loop.first : loop.last + 1]
        if not _mixed([inst for block in blocks for inst in block.insts], program.chip):
            continue
        for block in blocks:
            block.insts = _around_runs(block.insts, rows, program.chip)


def _innermost(program: Program) -> Iterator[Loop]:
    for loop in program.loops:
        if not any(loop is not x and loop.first <= x.first and x.last <= loop.last for x in program.loops):
            yield loop


def _name(inst: Inst) -> str:
    return inst.row if isinstance(inst.row, str) else str(inst.row.mnemonic)


def _multiplies(inst: Inst) -> bool:
    """Whether an instruction leaves the issue port to others while it multiplies."""
    return not isinstance(inst.row, str) and inst.row.unit is Unit.MFMA and inst.row.extra.kind == "xdl"


def _computes(inst: Inst) -> bool:
    return not isinstance(inst.row, str) and inst.row.unit in _VECTOR


def _mixed(insts: list[Inst], chip: str) -> bool:
    matrix = sum(inst.row.extra.cycles(chip) for inst in insts if _multiplies(inst))
    vector = sum(inst.row.issue for inst in insts if _computes(inst))
    return 0 < matrix and vector >= SHARE * matrix


def _around_runs(insts: list[Inst], rows: Rows, chip: str) -> list[Inst]:
    first: set[int] = set()
    last: set[int] = set()
    runs = []
    at, between = -1, 0
    for n, inst in enumerate(insts):
        if _computes(inst):
            between += 1
        elif _multiplies(inst):
            if at < 0 or between > BETWEEN:
                runs.append([])
            runs[-1].append(n)
            at, between = n, 0
    import os
    for r in runs:
        if len(r)>=int(os.environ.get('MINRUN','1')): first.add(r[0]); last.add(r[-1])
    out: list[Inst] = []
    for n, inst in enumerate(insts):
        if n in first:
            out.append(rows.make(rows.s_setprio, (RAISED,), None, inst.loc))
        out.append(inst)
        if n in last:
            out.append(rows.make(rows.s_setprio, (0,), None, inst.loc))
    return out
