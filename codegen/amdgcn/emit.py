"""The AMDGCN back end in order: kernel IR in, assembler text and resources out. Reads as its contents page.

    select → (fusions) → liveness → allocate → check → physical moves → early constants → waits → hazards → priorities
    → clauses → check → operand check → text

Invariant: every instruction that is printed went through its row's `check_operands`.
"""

from __future__ import annotations

from wavedsl.codegen.amdgcn import liveness, spelling
from wavedsl.codegen.amdgcn.accumulators import accumulator_groups, lasting_operands, move_to_accumulation, widest
from wavedsl.codegen.amdgcn.allocate import Pressure, allocate, pressure_error
from wavedsl.codegen.amdgcn.allocation_check import check_allocation
from wavedsl.codegen.amdgcn.clauses import break_clauses
from wavedsl.codegen.amdgcn.early_constants import check_early, set_early
from wavedsl.codegen.amdgcn.explain import explain_registers, explain_spill
from wavedsl.codegen.amdgcn.finalize import make_physical
from wavedsl.codegen.amdgcn.hazard_fill import check_order, fill_gaps
from wavedsl.codegen.amdgcn.hazards import flow, follow, insert_nops
from wavedsl.codegen.amdgcn.machine import Program
from wavedsl.codegen.amdgcn.machine_text import program_text
from wavedsl.codegen.amdgcn.occupancy import fewer_registers
from wavedsl.codegen.amdgcn.operand_rules import check_operands
from wavedsl.codegen.amdgcn.pair_shared import pair_shared
from wavedsl.codegen.amdgcn.priorities import raise_priorities
from wavedsl.codegen.amdgcn.resources import Resources, Spilled, describe
from wavedsl.codegen.amdgcn.rows import Rows, rows_of
from wavedsl.codegen.amdgcn.select import select
from wavedsl.codegen.amdgcn.spill_rewrite import remember
from wavedsl.codegen.amdgcn.spill_scalars import Spill as SpillScalars
from wavedsl.codegen.amdgcn.spill_vectors import VectorSpill, pressure_of
from wavedsl.codegen.amdgcn.target import SGPRS, VGPRS, register_limit
from wavedsl.codegen.amdgcn.text import render
from wavedsl.codegen.amdgcn.waits import insert_waits
from wavedsl.codegen.amdgcn.waits_check import check_waits
from wavedsl.ir import trail
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.kernel_ir import Kernel
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

_SPARE = 64
"""Vector registers that should stay free of accumulators when some of these must leave."""
_MORE = (8, 32)
"""Accumulators that move in further rounds beside as many registers as are missing; then all do."""


@dataclass
class AmdProgram:
    """A compiled kernel: its text, what it uses, and the machine program the text was printed from."""

    name: str
    text: str
    resources: Resources
    program: Program


def compile_kernel_ir(
    kernel: Kernel, target: Target, verify: bool = True, *, registers: int | None = None
) -> AmdProgram:
    """Compile a verified kernel for one of `target.TARGETS`, with at most `registers` vector registers per lane.

    With `verify` the allocation and the waits are re-derived by checkers that share no code with them. Raises
    `RegisterPressureError` when registers run out, `CompileError` for what the chip has no instructions for.
    """
    rows = rows_of(target.name)
    program, used, spilled = allocated(kernel, target, registers=registers)
    explain_registers(program, used, spilled)
    if verify:
        _complain(kernel, "register allocation", check_allocation(program))
    _complain(kernel, "register moves", make_physical(program, rows, verify))
    trail.stage("registers placed", lambda: program_text(program))
    before = [block.insts for block in program.blocks]
    if set_early(program) and verify:
        _complain(kernel, "places of constants", check_early(before, program))
    insert_waits(program, rows)
    hazards = flow(program)
    before = [block.insts for block in program.blocks]
    if fill_gaps(program, hazards):
        if verify:
            _complain(kernel, "order of instructions", check_order(before, program))
        follow(program, hazards)
    insert_nops(program, rows, hazards)
    occupancy = target.occupancy(_registers(used), program.shared_bytes, program.block_threads)
    raise_priorities(program, rows, occupancy)
    break_clauses(program, rows)
    if verify:
        _complain(kernel, "waits", check_waits(program))
    _check_operands(program)
    resources = describe(program, used, occupancy, spilled)
    text = render(program, resources, kernel.params)
    trail.stage("text", lambda: text)
    return AmdProgram(kernel.name, text, resources, program)


def allocated(
    kernel: Kernel, target: Target, *, registers: int | None = None
) -> tuple[Program, dict[str, int], Spilled]:
    """A kernel's program with a register for every tuple, copies still in place; registers by file; what is spilled."""
    rows = rows_of(target.name)
    program = select(kernel, target.name)
    pair_shared(program, rows)
    selected = program
    trail.stage("selected", lambda: program_text(selected))
    used, spilled, live = _allocate(program, rows, registers)
    if not spilled.registers and not used["a"]:
        program, used, again = fewer_registers(program, rows, used, live, target)
        spilled.again += again
    return program, used, spilled


def _registers(used: dict[str, int]) -> int:
    return (used["v"] + 3) // 4 * 4 + used["a"] if used["a"] else max(1, used["v"])


def _allocate(
    program: Program, rows: Rows, registers: int | None = None
) -> tuple[dict[str, int], Spilled, liveness.Liveness]:
    """Registers by file for everything, what lives elsewhere, and the liveness that this came of.

    When the scalar file is full, its least used tuples are spilled to lanes. When the vector file is, operands that
    stay the same in a loop move to the accumulation file, then accumulators, as few as will do; then values are
    computed again, copied to that file, or kept in scratch.
    `registers` caps what the chip would give.
    """
    total = min(register_limit(program.block_threads), registers or 2 * VGPRS)
    room = max(0, total - VGPRS)
    scalars = SpillScalars(program, rows)
    movers: _Movers | None = None
    vectors = VectorSpill(program, rows)
    while True:
        live = liveness.analyse(program)
        try:
            limits = {"v": min(VGPRS, total), "a": room if movers or vectors.copied else 0, "s": SGPRS}
            used = allocate(program, live, limits)
            return used, Spilled(scalars.words, vectors.copied, vectors.stored, vectors.again), live
        except Pressure as failure:
            remember(program)
            explain_spill(program, live, failure.cls, failure.limit, failure.bundles)
            if failure.cls == "s":
                if scalars.part(live, failure) or scalars.relieve(live, failure):
                    continue
                raise pressure_error(program, live, failure) from None
            if failure.cls == "v" and room:
                movers = movers or _Movers(program, room)
                if movers.rounds and movers.some(_most(failure, live) - limits["v"]):
                    continue
            if not vectors.relieve(live, failure, {**limits, "a": room}):
                raise pressure_error(program, live, failure) from None


def _most(failure: Pressure, live: liveness.Liveness) -> int:
    """Registers of the vector file that are live together at most."""
    return int(pressure_of(failure.bundles, "v", 2 * live.instructions + 2).max())


class _Movers:
    """What may move to the accumulation file, which has `room`: operands that stay the same in a loop, then
    accumulators, in rounds of as few as will do."""

    def __init__(self, program: Program, room: int):
        self.program, self.left = program, room
        sums = accumulator_groups(program)
        least = sum(widest(program, group) for group in sums) - VGPRS + _SPARE
        self.rounds = [(lasting_operands(program), room), *((sums, wanted) for wanted in (least, *_MORE, room))]
        """Groups that move together, cheapest first, and how many registers at least."""

    def some(self, missing: int) -> bool:
        """Move the next of them, where the vector file lacks so many registers; False when nothing is left to move."""
        chosen: list[list[int]] = []
        while self.rounds and not chosen:
            groups, wanted = self.rounds.pop(0)
            wanted += missing if wanted in _MORE else 0
            while groups and wanted > 0 and (size := widest(self.program, groups[0])) <= self.left:
                self.left -= size
                wanted -= size
                chosen.append(groups.pop(0))
        if chosen:
            move_to_accumulation(self.program, chosen)
        return bool(chosen)


def _check_operands(program: Program) -> None:
    """The rules of every row, for every instruction."""
    for block in program.blocks:
        for inst in block.insts:
            wrong = check_operands(inst.row, inst.ops, program.chip, inst.mods)
            if wrong:
                line = spelling.text(inst.row, inst.ops, inst.mods)
                raise CompileError(f"{program.name}: `{line}`: {'; '.join(wrong)}", inst.loc)


def _complain(kernel: Kernel, what: str, complaints: list[str]) -> None:
    if complaints:
        raise CompileError(
            f"{kernel.name}: the verifier rejects the {what}: " + "; ".join(complaints[:5]),
            None,
            "this is a defect of the compiler: please report the kernel",
        )
