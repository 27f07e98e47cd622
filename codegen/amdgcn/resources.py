"""What a kernel uses: registers, shared memory, occupancy and how many instructions of each class
(`CompiledKernel.resources`)."""

from __future__ import annotations

from dataclasses import field

from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.codegen.amdgcn.machine import Inst, Program
from wavedsl.ir.quick_dataclass import dataclass

CLASSES = ("valu", "accmove", "mfma", "salu", "smem", "vmem", "scratch", "ds", "waitcnt", "nop", "barrier", "branch")

ACCUMULATOR_COPY = "accumulator copy"
"""Comment of moves between a loop-carried value and a matrix result: they count as `accmove`."""


@dataclass
class LoopResources:
    """One loop: its label, the user's line, instructions by class in its body, source iterations per trip (a half where
    tiles were halved)."""

    label: str
    line: int | None
    instructions: dict[str, int]
    steps: float


@dataclass
class Spilled:
    """What found no register: scalar words in vector lanes, vector registers in the accumulation file, in scratch, and
    values that are computed again where they are read."""

    scalars: int = 0
    accumulation: int = 0
    scratch: int = 0
    again: int = 0

    @property
    def registers(self) -> int:
        """Registers whose value lives elsewhere between a write and a read."""
        return self.scalars + self.accumulation + self.scratch


@dataclass
class Resources:
    """Registers per lane (`registers` is what the chip allocates), bytes, waves per SIMD, instructions by class.

    `spills` counts registers whose value lives elsewhere for a while; `spilled` says how many live where.
    """

    vgprs: int
    agprs: int
    sgprs: int
    registers: int
    shared_bytes: int
    scratch_bytes: int
    spills: int
    occupancy: int
    instructions: dict[str, int]
    loops: list[LoopResources] = field(default_factory=list)
    spilled: Spilled = field(default_factory=Spilled)


def instruction_class(inst: Inst) -> str:
    """The one class of `resources.instructions` that an instruction belongs to."""
    if inst.comment == ACCUMULATOR_COPY and inst.row.unit in (Unit.VALU, Unit.ACCMOVE):
        return "accmove"
    return inst.row.unit.resource_class


def count(blocks: list) -> dict[str, int]:
    """Instructions by class, all classes present."""
    out = dict.fromkeys(CLASSES, 0)
    for block in blocks:
        for inst in block.insts:
            out[instruction_class(inst)] += 1
    return out


def describe(program: Program, used: dict[str, int], occupancy: int, spilled: Spilled | None = None) -> Resources:
    """The resources of a finished program. `used` is registers by file."""
    spilled = spilled or Spilled()
    vgprs, agprs = used["v"], used["a"]
    total = accum_offset(vgprs) + agprs if agprs else vgprs
    loops = [
        LoopResources(l.label, l.loc.line if l.loc else None, count(program.blocks[l.first : l.last + 1]), l.steps)
        for l in sorted(program.loops, key=lambda l: l.first)
    ]
    return Resources(
        vgprs, agprs, used["s"], total, program.shared_bytes, program.scratch_bytes, spilled.registers, occupancy,
        count(program.blocks), loops, spilled,
    )  # fmt: skip


def accum_offset(vgprs: int) -> int:
    """Where the accumulation registers start: a multiple of 4, at least 4."""
    return max(4, (vgprs + 3) // 4 * 4)
