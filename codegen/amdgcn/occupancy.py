"""One more wave per SIMD for a few registers: occupancy steps as the allocator's cost.

In: an allocated program that spills nothing, and how many vector registers it uses. Out: the same program, or one that
uses so few that more waves fit a SIMD (512 registers: 8 waves up to 64 registers, 7 up to 72, …, 2 up to 256).

The one idea: only what costs nothing is tried. Values that are computed early and read in one place, such as addresses
of the epilogue that live through the loop, are computed where they are read instead, which adds no instruction and
takes none into a loop. If that does not reach the next step, nothing is changed.
"""

from __future__ import annotations

import copy

from wavedsl.codegen.amdgcn import liveness
from wavedsl.codegen.amdgcn.allocate import Pressure, allocate
from wavedsl.codegen.amdgcn.liveness import Liveness
from wavedsl.codegen.amdgcn.machine import Block, Program
from wavedsl.codegen.amdgcn.rematerialise import candidates, independent, make_again
from wavedsl.codegen.amdgcn.rows import Rows
from wavedsl.codegen.amdgcn.spill_rewrite import remember
from wavedsl.codegen.amdgcn.target import REGISTER_GRANULE, SGPRS
from wavedsl.ir.target import Target

_REACH = 24
"""Registers above a step from which it is tried."""


def fewer_registers(
    program: Program, rows: Rows, used: dict[str, int], live: Liveness, target: Target
) -> tuple[Program, dict[str, int], int]:
    """(program, registers by file, values that moved to their readers). `live`: what the program was allocated by."""
    step = next_step(program, used["v"], target)
    if step is None:
        return program, used, 0
    chosen = independent([c for c in candidates(program, live) if c.cost <= 0])
    if not chosen:
        return program, used, 0
    places = [reg.at for reg in program.regs]
    trial = _copy(program)
    remember(trial)
    make_again(trial, rows, chosen)
    try:
        now = allocate(trial, liveness.analyse(trial), {"v": step, "a": 0, "s": SGPRS})
    except Pressure:
        for reg, at in zip(program.regs, places):  # the trial shares them
            reg.at = at
        return program, used, 0
    return trial, now, len(chosen)


def next_step(program: Program, registers: int, target: Target) -> int | None:
    """The most registers with which more waves fit than with this many, if that is near."""
    now = target.occupancy(registers, program.shared_bytes, program.block_threads)
    step = (registers - 1) // REGISTER_GRANULE * REGISTER_GRANULE
    while step > 0 and registers - step <= _REACH:
        if target.occupancy(step, program.shared_bytes, program.block_threads) > now:
            return step
        step -= REGISTER_GRANULE
    return None


def _copy(program: Program) -> Program:
    """The program with instructions of its own; tuples and operands are shared."""
    out = copy.copy(program)
    out.regs = list(program.regs)
    out.blocks = []
    for block in program.blocks:
        twin = Block(block.label, block.depth)
        twin.insts = [copy.copy(inst) for inst in block.insts]
        twin.succs, twin.preds, twin.comment = list(block.succs), list(block.preds), block.comment
        out.blocks.append(twin)
    return out
