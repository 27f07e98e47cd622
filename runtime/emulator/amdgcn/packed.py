"""Closures of VOP3P rows: two halves, or two floats of a pair of registers, at once.

In: a parsed line with its row. Out: `step(state)`; op_sel, op_sel_hi, neg_lo, neg_hi and clamp are bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Operand, Reg, Src
from wavedsl.codegen.amdgcn.isa_valu import fma32
from wavedsl.runtime.emulator.amdgcn.state import (
    F16,
    F32,
    I64,
    LANES,
    NUMPY,
    U16,
    U32,
    Read,
    State,
    constant,
    constant_bits,
    scalar_lane,
    vector_read,
)
from wavedsl.runtime.emulator.amdgcn.step import (
    Context,
    Step,
    Unsupported,
    flush32,
    limited,
    modified,
    named,
    put,
    unit_interval,
)
from wavedsl.runtime.emulator.amdgcn.text import Line


def packed(ctx: Context, line: Line) -> Step:
    """VOP3P: the row's meaning for the low and the high halves."""
    inst = line.inst
    assert inst is not None and inst.semantics is not None
    values = named(line)
    m = line.modifiers
    sources = [o for o in inst.explicit if o.reads]
    n = len(sources)
    low = m.get("op_sel", (0,) * n)
    high = m.get("op_sel_hi", (1,) * n)
    neg_lo, neg_hi = m.get("neg_lo", (0,) * n), m.get("neg_hi", (0,) * n)
    d = next(o for o in inst.explicit if o.writes)
    wide = d.dtype == "f32x2"
    kind = {"f32x2": F32}.get(d.dtype) or NUMPY[d.dtype]
    halves = []
    for i, o in enumerate(sources):
        value = values[o.name]
        pair = []
        for which, neg in ((low, neg_lo), (high, neg_hi)):
            up = bool(which[i]) if i < len(which) else False
            read = _wide_half(ctx, value, up) if wide else vector_read(ctx.regs, o, value, up)
            if not isinstance(value, (Reg, Src)) and not wide:
                bits = constant_bits(value, o.dtype if isinstance(value, float) else "b32")
                read = _fixed(np.array([[bits >> 16 & 0xFFFF if up else bits & 0xFFFF]], U16).view(kind))
            pair.append(modified(read, bool(i < len(neg) and neg[i]), False))
        halves.append(pair)
    fn = inst.semantics
    if m.get("clamp"):
        if np.dtype(kind).kind == "f":
            exact = fn
            fn = lambda *x: unit_interval(exact(*x))  # noqa: E731
        elif callable(inst.extra):
            info, op = np.iinfo(kind), inst.extra
            fn = lambda a, b: np.clip(op(a.astype(I64), b.astype(I64)), info.min, info.max).astype(kind)  # noqa: E731
        else:
            raise Unsupported(f"clamp on {inst.mnemonic}")
    r = ctx.regs.row(values[d.name])
    flush = wide and ctx.flush32
    known = limited(fn) if ctx.overflow and kind is F16 else None

    def step(st: State) -> None:
        of_both = ([h[side](st) for h in halves] for side in (0, 1))
        lo, hi = (fn(*sources) if known is None else known(st, sources) for sources in of_both)
        if wide:
            if flush:
                lo, hi = flush32(lo), flush32(hi)
            for i, x in enumerate((lo, hi)):
                if st.mask is None:
                    st.F[r + i] = x
                else:
                    np.copyto(st.F[r + i], x, where=st.mask)
            return
        target = st.U[r].view(U16)
        for i, x in enumerate((lo, hi)):
            bits = np.asarray(x).astype(kind, copy=False).view(U16)
            if st.mask is None:
                target[:, i::2] = bits
            else:
                np.copyto(target[:, i::2], bits, where=st.mask)

    if wide:
        # the low result may be a source of the high half: both are computed before either is written
        return step
    return step


def _fixed(x: np.ndarray) -> Read:
    return lambda st: x


def _wide_half(ctx: Context, value: Any, up: bool, dtype: Any = F32) -> Read:
    """Half of a 64-bit operand of packed f32: a register of the pair; constants exist in the low half only."""
    if isinstance(value, Src):
        value = value.value
    if not isinstance(value, Reg):
        return _fixed(constant(0 if up else value, "f32").view(dtype))
    one = Reg(value.file, value.index + (1 if up and value.count > 1 else 0))
    if value.file == "s":
        return scalar_lane(one, dtype)
    row = ctx.regs.row(one)
    return (lambda st: st.F[row]) if dtype is F32 else (lambda st: st.U[row])


def pk_mov(ctx: Context, line: Line) -> Step:
    v = named(line)
    sel = line.modifiers.get("op_sel", (0, 1))
    lo, hi = _wide_half(ctx, v["a"], bool(sel[0]), U32), _wide_half(ctx, v["b"], bool(sel[1]), U32)
    r = ctx.regs.row(v["d"])

    def step(st: State) -> None:
        pair = [np.array(lo(st)), np.array(hi(st))]
        for i, x in enumerate(pair):
            put(st, r + i, x)

    return step


def _as_f32(half: Read) -> Read:
    return lambda st: half(st).astype(F32)


def fma_mix(ctx: Context, line: Line) -> Step:
    """FMA whose operands are f32, or f16 halves (op_sel_hi: is f16; op_sel: which half); result f32 or one f16 half."""
    v = named(line)
    m = line.modifiers
    is_half, which = m.get("op_sel_hi", (0, 0, 0)), m.get("op_sel", (0, 0, 0))
    reads = []
    for i, name in enumerate("abc"):
        value = v[name]
        src = value if isinstance(value, Src) else Src(value)
        if is_half[i]:
            o = Operand(name, "vsn", 1, "f16", True, False)
            half = vector_read(ctx.regs, o, src.value, bool(which[i]))
            read: Read = _as_f32(half)
        else:
            read = vector_read(ctx.regs, Operand(name, "vsn", 1, "f32", True, False), src.value)
        reads.append(
            modified(
                read, src.neg or bool(m.get("neg_lo", (0, 0, 0))[i]), src.abs or bool(m.get("neg_hi", (0, 0, 0))[i])
            )
        )
    assert line.inst is not None
    form = line.inst.extra
    r = ctx.regs.row(v["d"])
    clamp = bool(m.get("clamp"))

    def mixed(*sources: Any) -> Any:
        x = fma32(*sources)
        return unit_interval(x) if clamp else x

    half_of = lambda *sources: mixed(*sources).astype(F16)  # noqa: E731
    known = limited(half_of) if ctx.overflow else None

    def step(st: State) -> None:
        sources = [q(st) for q in reads]
        if form == "fma_mix_f32":
            put(st, r, np.asarray(mixed(*sources), F32).view(U32))
            return
        half = half_of(*sources) if known is None else known(st, sources)
        bits = np.broadcast_to(half.view(U16), (st.waves, LANES))
        target = st.U[r].view(U16)[:, (1 if form.startswith("fma_mixhi") else 0) :: 2]
        np.copyto(target, bits, where=True if st.mask is None else st.mask)

    return step
