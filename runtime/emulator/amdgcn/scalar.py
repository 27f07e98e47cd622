"""Closures of scalar rows, and of what the program asks about itself: its place, its modes, the time.

In: a parsed line with its row. Out: `step(state)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Operand, Reg
from wavedsl.runtime.emulator.amdgcn.state import (
    U32,
    U64,
    Read,
    State,
    Write,
    scalar_operand,
    scalar_read,
    scalar_write,
    scc_write,
)
from wavedsl.runtime.emulator.amdgcn.step import FP16_OVFL, Context, Step, Unsupported, named
from wavedsl.runtime.emulator.amdgcn.text import CODE_BASE, Line


def scalar(ctx: Context, line: Line, index: int) -> Step:
    """A scalar row with semantics: SOP1, SOP2, SOPC, SOPK."""
    inst = line.inst
    assert inst is not None and inst.semantics is not None
    values = {k: _resolve(ctx, v, index) for k, v in named(line).items()}
    sext = inst.extra == "sext16"
    reads: list[Read] = []
    writes: list[Write] = []
    for o in inst.operands:
        if o.reads:
            if o.implicit:
                reads.append((lambda st: st.scc) if o.name == "scc" else scalar_read(Reg("s", 126, 2), U64))
            else:
                reads.append(scalar_operand(o, values[o.name], sext and o.kinds == "i"))
        if o.writes:
            if o.name == "scc":
                writes.append(scc_write)
            elif o.name == "exec" and o.implicit:
                writes.append(scalar_write(Reg("s", 126, 2), "b64"))
            else:
                writes.append(scalar_write(values[o.name], o.dtype))
    fn = inst.semantics
    if len(writes) == 1:
        w = writes[0]
        if len(reads) == 1:
            a = reads[0]
            return lambda st: w(st, fn(a(st)))
        if len(reads) == 2:
            a, b = reads
            return lambda st: w(st, fn(a(st), b(st)))

    def step(st: State) -> None:
        result = fn(*[r(st) for r in reads])
        if len(writes) == 1:
            writes[0](st, result)
            return
        # a saveexec reads EXEC as a view: its old value must survive the write of EXEC
        for w, x in zip(writes, [np.array(x) for x in result]):
            w(st, x)

    return step


def _resolve(ctx: Context, value: Any, index: int) -> Any:
    """`symbol@rel32@lo+4` after s_getpc: the distance from the instruction behind it to the symbol, low or high
    half.
    """
    if not isinstance(value, str) or "@" not in value:
        return value
    symbol, _, rest = value.partition("@")
    here = index
    while here >= 0 and ctx.program.lines[here].inst is not None and ctx.program.lines[here].inst.special != "getpc":  # type: ignore[union-attr]
        here -= 1
    program = ctx.program
    if symbol in program.symbols:
        to = program.symbols[symbol]
    else:
        to = CODE_BASE + 8 * program.index_of(symbol)
    if "gotpcrel" in rest:
        raise Unsupported(f"{value}: a table of addresses (GOT)")
    distance = to - (CODE_BASE + 8 * (here + 1))
    return distance >> 32 & 0xFFFFFFFF if "@hi" in rest else distance & 0xFFFFFFFF


def getpc(ctx: Context, line: Line, index: int) -> Step:
    w = scalar_write(line.operands[0], "b64")
    value = np.array([CODE_BASE + 8 * (index + 1)], U64)
    return lambda st: w(st, np.broadcast_to(value, (st.waves,)))


ARITHMETIC = U32(0x3FF)
"""Of MODE: rounding, denormals, what clamps and minima make of NaN."""


def getreg(ctx: Context, line: Line) -> Step:
    w = scalar_write(line.operands[0], "u32")
    name, offset, size = _hwreg(line.operands[1])
    if name not in ("HW_REG_MODE", "1"):
        zero = U32(0)
        return lambda st: w(st, np.full(st.waves, zero))
    mask = U32((1 << size) - 1)
    return lambda st: w(st, (st.mode >> U32(offset)) & mask)


def sets_overflow(line: Line) -> bool:
    """Whether a line may change FP16_OVFL (`Context.overflow`)."""
    if line.inst is None or line.inst.special != "setreg":
        return False
    name, offset, size = _hwreg(line.operands[0])
    return name in ("HW_REG_MODE", "1") and offset <= FP16_OVFL < offset + size


def setreg(ctx: Context, line: Line) -> Step:
    name, offset, size = _hwreg(line.operands[0])
    value = scalar_operand(Operand("a", "snk", 1, "u32", True, False), line.operands[1])
    if name not in ("HW_REG_MODE", "1"):
        raise Unsupported(f"`{line.text}`: only MODE can be written")
    mask = U32(((1 << size) - 1) << offset)

    def step(st: State) -> None:
        new = (st.mode & ~mask) | ((value(st) << U32(offset)) & mask)
        if ((new ^ st.mode) & ARITHMETIC).any():  # it is bound when the kernel is decoded
            raise Unsupported(f"`{line.text}` changes how numbers are rounded, or denormals, inside the kernel")
        st.mode = new

    return step


def _hwreg(text: Any) -> tuple[str, int, int]:
    if isinstance(text, int):
        return str(text & 63), text >> 6 & 31, (text >> 11) + 1
    parts = [p.strip() for p in str(text).removeprefix("hwreg(").rstrip(")").split(",")]
    return parts[0], int(parts[1]) if len(parts) > 1 else 0, int(parts[2]) if len(parts) > 2 else 32


def time(ctx: Context, line: Line) -> Step:
    w = scalar_write(line.operands[0], "b64")

    def step(st: State) -> None:
        ctx.clock += 100
        w(st, np.full(st.waves, ctx.clock, U64))

    return step


def nothing(ctx: Context, line: Line) -> Step:
    return lambda st: None
