"""One closure per static instruction: which file makes it.

In: a parsed line with its row. Out: `step(state)`, with operands, modifiers and widths bound. Instructions that a row
marks `special` are in the tables `SPECIAL` here, in `amdgcn_memory` and in `amdgcn_matrix`.
"""

from __future__ import annotations

from collections.abc import Callable

from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.runtime.emulator.amdgcn_lanes import permlane_swap, readfirstlane, readlane, writelane
from wavedsl.runtime.emulator.amdgcn_packed import fma_mix, packed, pk_mov
from wavedsl.runtime.emulator.amdgcn_scalar import getpc, getreg, nothing, scalar, setreg, time
from wavedsl.runtime.emulator.amdgcn_small_floats import cvt_pk_f32_fp8, cvt_pk_fp8, cvt_sr_fp8, scale_down, scale_up
from wavedsl.runtime.emulator.amdgcn_step import Context, Step
from wavedsl.runtime.emulator.amdgcn_text import Line
from wavedsl.runtime.emulator.amdgcn_vector import vector

SPECIAL: dict[str, Callable[[Context, Line], Step]] = {
    "readfirstlane": readfirstlane,
    "readlane": readlane,
    "writelane": writelane,
    "permlane_swap": permlane_swap,
    "pk_mov": pk_mov,
    "fma_mix": fma_mix,
    "cvt_pk_fp8": cvt_pk_fp8,
    "cvt_sr_fp8": cvt_sr_fp8,
    "cvt_pk_f32_fp8": cvt_pk_f32_fp8,
    "scale_up": scale_up,
    "scale_down": scale_down,
    "getreg": getreg,
    "setreg": setreg,
    "time": time,
    "nothing": nothing,
    "nop": nothing,
}


def decode(ctx: Context, line: Line, index: int) -> Step:
    """The closure of a vector or scalar instruction. Raises Unsupported for a form that has no meaning here."""
    inst = line.inst
    assert inst is not None
    if inst.special == "getpc":
        return getpc(ctx, line, index)
    if inst.special:
        return SPECIAL[inst.special](ctx, line)
    if inst.unit is Unit.SALU:
        return scalar(ctx, line, index)
    if inst.encoding == "VOP3P" and inst.extra != "whole" and inst.unit is Unit.VALU:
        return packed(ctx, line)
    return vector(ctx, line)
