"""One closure per static instruction: which file makes it.

In: a parsed line with its row. Out: `step(state)`, with operands, modifiers and widths bound. Instructions that a row
marks `special` are in the tables `SPECIAL` here, in `memory` and in `matrix`.
"""

from __future__ import annotations

from collections.abc import Callable

from wavedsl.codegen.amdgcn.isa import Reg, Src, Unit
from wavedsl.runtime.emulator.amdgcn.lanes import permlane_swap, readfirstlane, readlane, writelane
from wavedsl.runtime.emulator.amdgcn.matrix import mfma
from wavedsl.runtime.emulator.amdgcn.packed import fma_mix, packed, pk_mov
from wavedsl.runtime.emulator.amdgcn.scalar import getpc, getreg, nothing, scalar, setreg, time
from wavedsl.runtime.emulator.amdgcn.small_floats import cvt_pk_f32_fp8, cvt_pk_fp8, cvt_sr_fp8, scale_down, scale_up
from wavedsl.runtime.emulator.amdgcn.step import Context, Step
from wavedsl.runtime.emulator.amdgcn.text import Line
from wavedsl.runtime.emulator.amdgcn.vector import vector

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


_OF_THE_RUN = frozenset(("time", "getpc"))
"""Special rows whose closures depend on the run or on their place in the program."""


def shared(ctx: Context, line: Line, index: int) -> Step:
    """`decode` of a line, or what an earlier line of the same spelling was decoded to: of this program, in another run,
    or of another one. A closure is bound to its operands, to where AGPRs lie and to how denormals and overflows are
    treated, which the key says, and to the program by a symbol only; what changes is in the state that it is given.
    Raises Unsupported."""
    inst = line.inst
    assert inst is not None
    bound = line.facts.get("bound")
    if bound is None:
        bound = line.facts["bound"] = _bound(line)
    if bound == "program":
        return decode(ctx, line, index)
    key = ("step", ctx.regs.vgprs if bound == "registers" else 0, ctx.flush32, ctx.overflow)
    found = line.facts.get(key)
    if found is None:
        found = line.facts[key] = mfma(ctx, line) if inst.special == "mfma" else decode(ctx, line, index)
    return found


def _bound(line: Line) -> str:
    """What a closure is bound to beside its operands and the modes: `program`, `registers` (AGPRs lie behind as many
    VGPRs as a program has), or nothing."""
    assert line.inst is not None
    values = [x.value if x.__class__ is Src else x for x in line.operands]
    if line.inst.special in _OF_THE_RUN or any(x.__class__ is str and "@" in x for x in values):
        return "program"
    return "registers" if any(x.__class__ is Reg and x.file == "a" for x in values) else ""


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
