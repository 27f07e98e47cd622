"""What closures of all instructions share: their context, and operands with modifiers.

In: a parsed line with its row. Out: reads of typed arrays, as `state.py` makes them, with neg, abs and
denormal flushing bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    """What closures are bound to besides their operands: registers, target, modes of the kernel, the program."""

    def __init__(self, program: Program, regs: Registers, target: str, flush32: bool):
        self.program, self.regs, self.target = program, regs, target
        self.flush32 = flush32
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
