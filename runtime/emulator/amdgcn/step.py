"""What closures of all instructions share: their context, and operands with modifiers.

In: a parsed line with its row. Out: reads of typed arrays, as `state.py` makes them, with neg, abs and
denormal flushing bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from wavedsl.codegen.amdgcn.isa import Inst, Operand, Src
from wavedsl.runtime.emulator.amdgcn.state import (
    F32,
    NUMPY,
    U32,
    Read,
    Registers,
    State,
    vector_read,
)
from wavedsl.runtime.emulator.amdgcn.text import Line, Program

Step = Callable[[State], None]


class Unsupported(Exception):
    """A form of an instruction that the emulator has no meaning for."""


class Context:
    """What closures are bound to besides their operands: registers, target, modes of the kernel, the program.
    `overflow`: FP16_OVFL of MODE may be set, so that results of 16 and 8 bits are asked about it."""

    def __init__(self, program: Program, regs: Registers, target: str, flush32: bool, overflow: bool = False):
        self.program, self.regs, self.target = program, regs, target
        self.flush32, self.overflow = flush32, overflow
        self.clock = 0


def named(line: Line) -> dict[str, Any]:
    """Operand name → value of the text, explicit operands only."""
    assert line.inst is not None
    return {o.name: v for o, v in zip(line.inst.explicit, line.operands)}


_TINY32 = np.float32(2.0**-126)


def flush32(x: Any) -> Any:
    """Denormals to zero of the same sign."""
    small = np.abs(x) < _TINY32
    return np.where(small, np.copysign(F32(0), x), x) if small.any() else x


FP16_OVFL = 23
"""Its bit of MODE: results of 16 bits that are infinite though no source is, and everything beyond the largest number
of an 8-bit float, become the largest number."""


def limited(fn: Callable[..., Any], pole: bool = False) -> Callable[..., Any]:
    """`fn` with results that know FP16_OVFL: `fn(state, sources)`. `pole`: it is infinite at zero by itself, and stays
    so (AMDGPUUsage)."""

    def known(st: State, sources: Sequence[Any]) -> Any:
        out = np.asarray(fn(*sources))
        clamps = (st.mode >> U32(FP16_OVFL) & U32(1)).astype(bool)[:, None]
        if not clamps.any() or not np.isinf(out).any():
            return out
        beyond: Any = clamps & np.isinf(out)
        for x in sources:
            beyond = beyond & np.isfinite(x) & (not pole or x != 0)
        return np.where(beyond, np.copysign(np.finfo(out.dtype).max, out), out)

    return known


def limited8(st: State, x: Any, dtype: Any) -> Any:
    """f32 numbers before they are rounded to floats of 8 bits: FP16_OVFL takes infinity for the largest number, too.
    That is what ROCm's emulator does for gfx1250; of CDNA nobody has said so, and we emit no text that sets it."""
    clamps = (st.mode >> U32(FP16_OVFL) & U32(1)).astype(bool)[:, None]
    if not clamps.any():
        return x
    most = float(ml_dtypes.finfo(dtype).max)
    return np.where(clamps & (np.abs(x) > most), np.copysign(F32(most), x), x)


def modified(read: Read, neg: bool, absolute: bool) -> Read:
    """neg and abs are bit operations: they also act on NaN and leave the rest of the word alone."""
    if absolute and neg:
        return lambda st: -np.abs(read(st))
    if absolute:
        return lambda st: np.abs(read(st))
    if neg:
        return lambda st: np.negative(read(st))
    return read


def read_source(ctx: Context, inst: Inst, o: Operand, value: Any, high: bool) -> Read:
    read = vector_read(ctx.regs, o, value, high)
    if isinstance(value, Src):
        if NUMPY[o.dtype] in (U32,) and (value.neg or value.abs):
            read = vector_read(ctx.regs, Operand(o.name, o.kinds, o.regs, "f32", True, False), value, high)
            bits = modified(read, value.neg, value.abs)
            return lambda st: bits(st).view(U32)
        read = modified(read, value.neg, value.abs)
    if o.dtype == "f32" and (inst.flush or ctx.flush32):
        inner = read
        return lambda st: flush32(inner(st))
    return read


def unit_interval(x: Any) -> Any:
    """Float clamp: to [0, 1], NaN to 0."""
    return np.where(np.isnan(x), x.dtype.type(0), np.clip(x, x.dtype.type(0), x.dtype.type(1)))


def put(st: State, row: int, x: Any) -> None:
    if st.mask is None:
        st.U[row] = x
    else:
        np.copyto(st.U[row], x, where=st.mask)
