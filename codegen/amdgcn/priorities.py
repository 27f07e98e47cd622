"""Raised issue priority where a wave multiplies in a loop that also computes with the vector unit.

In: a physical `Program` with its waits and nops, and how many waves share a SIMD. Out: the same, with `s_setprio`
around runs of matrix instructions.

The one idea: vector and matrix instructions of a SIMD's waves share one issue port, but a matrix instruction needs it
for one turn and then keeps the matrix unit busy for many. A wave that computes asks for every turn; where it is the
older one, one that multiplies gets none until it is through, and both units are in use by turns instead of together.
With the multiplying wave in front the matrix unit stays busy and the other wave loses a turn in four or eight. A long
run that has begun goes before one that begins, however old: two waves that took the matrix unit by turns would be
through at the same time and compute at the same time, while it stands idle. So they drift apart: one computes while the
other multiplies.

Not where a wave has its SIMD to itself, where nothing but products is in the loop, where matrix instructions keep the
port themselves (f32 and f64 operands), nor where a schedule has set priorities of its own (ping-pong).
"""

from __future__ import annotations

from collections.abc import Iterator

from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.codegen.amdgcn.machine import Inst, Loop, Program
from wavedsl.codegen.amdgcn.rows import Rows

STARTING, RUNNING = 1, 2
"""Priorities of a wave that begins to multiply, and of one that has begun; waves start with 0."""
FIRST = 2
"""Matrix instructions of a run before it counts as one that runs."""
LONG = 256
"""Clocks of the matrix unit from which on a run has both priorities. What runs go on for is what another wave has to
compute; those of a few instructions end before anyone could make use of it."""
BETWEEN = 2
"""Most vector instructions between two matrix instructions of one run."""
SHARE = 1 / 4
"""Vector clocks of a trip over those of its matrix instructions from which on waves have something to do beside
another's products."""
_VECTOR = (Unit.VALU, Unit.TRANS, Unit.ACCMOVE)


def raise_priorities(program: Program, rows: Rows, waves: int) -> None:
    """Insert the instructions, in place. `waves`: that share a SIMD."""
    if waves < 2 or any(inst.row is rows.s_setprio for block in program.blocks for inst in block.insts):
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


def _multiplies(inst: Inst) -> bool:
    """Whether an instruction leaves the issue port to others while it multiplies."""
    return inst.row.unit is Unit.MFMA and inst.row.extra.kind == "xdl"


def _computes(inst: Inst) -> bool:
    return inst.row.unit in _VECTOR


def _mixed(insts: list[Inst], chip: str) -> bool:
    matrix = sum(inst.row.extra.cycles(chip) for inst in insts if _multiplies(inst))
    vector = sum(inst.row.issue for inst in insts if _computes(inst))
    return 0 < matrix and vector >= SHARE * matrix


def _runs(insts: list[Inst]) -> list[list[int]]:
    """Positions of matrix instructions, run by run."""
    runs: list[list[int]] = []
    between = 0
    for n, inst in enumerate(insts):
        if _computes(inst):
            between += 1
        elif _multiplies(inst):
            if not runs or between > BETWEEN:
                runs.append([])
            runs[-1].append(n)
            between = 0
    return runs


def _around_runs(insts: list[Inst], rows: Rows, chip: str) -> list[Inst]:
    """The instructions of a block with the priorities of its runs. A run begins in front of what its first instruction
    waits for: the wait takes no turn, and what comes behind it need not ask for one more."""
    ahead: dict[int, int] = {}
    behind: dict[int, int] = {}
    for run in _runs(insts):
        start = run[0]
        while start and insts[start - 1].row.unit in (Unit.WAITCNT, Unit.NOP):
            start -= 1
        ahead[start] = STARTING
        if len(run) > FIRST and sum(insts[n].row.extra.cycles(chip) for n in run) >= LONG:
            behind[run[FIRST - 1]] = RUNNING
        behind[run[-1]] = 0
    out: list[Inst] = []
    for n, inst in enumerate(insts):
        if n in ahead:
            out.append(rows.make(rows.s_setprio, (ahead[n],), None, inst.loc))
        out.append(inst)
        if n in behind:
            out.append(rows.make(rows.s_setprio, (behind[n],), None, inst.loc))
    return out
