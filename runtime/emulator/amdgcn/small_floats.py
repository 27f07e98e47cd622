"""Closures of conversions from and to floats of 8, 6 and 4 bits, with and without a scale.

In: a parsed line with its row. Out: `step(state)`; op_sel names the byte or half of the register.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Src
from wavedsl.codegen.amdgcn.isa_valu import scale_of
from wavedsl.runtime.emulator.amdgcn.state import (
    F32,
    F64,
    LANES,
    U8,
    U16,
    U32,
    State,
    vector_raw,
)
from wavedsl.runtime.emulator.amdgcn.step import (
    FP16_OVFL,
    Context,
    Step,
    Unsupported,
    limited8,
    named,
    put,
    read_source,
)
from wavedsl.runtime.emulator.amdgcn.text import Line


def cvt_pk_fp8(ctx: Context, line: Line) -> Step:
    """Two floats, rounded to bytes, to the half of the destination that op_sel names."""
    v = named(line)
    inst = line.inst
    assert inst is not None
    a, b = (read_source(ctx, inst, inst.operand(n), v[n], False) for n in "ab")
    r = ctx.regs.row(v["d"])
    sel = line.modifiers.get("op_sel", ())
    high = bool(sel and sel[-1])
    dtype = inst.extra
    narrowed = (lambda st, x: limited8(st, x, dtype)) if ctx.overflow else (lambda st, x: x)

    def step(st: State) -> None:
        low, up = (np.asarray(narrowed(st, q(st))).astype(dtype).view(U8).astype(U16) for q in (a, b))
        target = st.U[r].view(U16)[:, (1 if high else 0) :: 2]
        bits = np.broadcast_to(low | (up << U16(8)), target.shape)
        np.copyto(target, bits, where=True if st.mask is None else st.mask)

    return step


def cvt_sr_fp8(ctx: Context, line: Line) -> Step:
    """Stochastic rounding: random bits are added below the kept mantissa, then truncation."""
    v = named(line)
    inst = line.inst
    assert inst is not None
    a, b = (read_source(ctx, inst, inst.operand(n), v[n], False) for n in "ab")
    r = ctx.regs.row(v["d"])
    sel = (*line.modifiers.get("op_sel", ()), 0, 0, 0, 0)
    byte = sel[2] + 2 * sel[3]
    dtype = inst.extra
    kept = (
        np.finfo(np.float32).nmant
        - {"e4m3": 3, "e5m2": 2}[np.dtype(dtype).name[7:11] if "float8_" in np.dtype(dtype).name else "e4m3"]
    )

    def step(st: State) -> None:
        x = np.ascontiguousarray(np.broadcast_to(a(st), (st.waves, LANES)))
        if ctx.overflow and (st.mode >> U32(FP16_OVFL) & U32(1)).any():
            raise Unsupported(f"`{line.text}` where FP16_OVFL is set")
        noise = b(st) >> U32(32 - kept)
        bits = np.where(np.isfinite(x), (x.view(U32) + noise) & U32(~((1 << kept) - 1) & 0xFFFFFFFF), x.view(U32))
        out = bits.view(F32).astype(dtype).view(U8)
        target = st.U[r].view(U8)[:, byte::4]
        np.copyto(target, out, where=True if st.mask is None else st.mask)

    return step


def cvt_pk_f32_fp8(ctx: Context, line: Line) -> Step:
    """Two bytes, of the half that op_sel or SDWA names, as two floats."""
    v = named(line)
    inst = line.inst
    assert inst is not None
    value = v["a"].value if isinstance(v["a"], Src) else v["a"]
    raw = vector_raw(ctx.regs, value)
    sel = line.modifiers.get("op_sel", ())
    word = (sel and sel[0]) or line.modifiers.get("src0_sel") == "WORD_1"
    shift = U32(16 if word else 0)
    dtype = inst.extra
    r = ctx.regs.row(v["d"])

    def step(st: State) -> None:
        x = np.array(raw(st) >> shift)
        for i in (0, 1):
            y = ((x >> U32(8 * i)) & U32(255)).astype(U8).view(dtype).astype(F32)
            put(st, r + i, np.asarray(y).view(U32))

    return step


def _part(sel: Sequence[int], dtype: Any, first: int) -> int:
    """Bit offset in a register of two small floats: a half for bytes, a byte for nibbles, as op_sel names it."""
    sel = (*sel, 0, 0, 0, 0)
    return 8 * (sel[first] + 2 * sel[first + 1]) if _nibbles(dtype) else 16 * sel[first]


def _nibbles(dtype: Any) -> bool:
    return "float4" in np.dtype(dtype).name


def scale_up(ctx: Context, line: Line) -> Step:
    """Small floats times a power of two, as f32, f16 or bf16."""
    v = named(line)
    inst = line.inst
    assert inst is not None
    dtype, wide, count = inst.extra
    raw = vector_raw(ctx.regs, v["a"].value if isinstance(v["a"], Src) else v["a"])
    scale = read_source(ctx, inst, inst.operand("scale"), v["scale"], False)
    sel = (*line.modifiers.get("op_sel", ()), 0, 0, 0, 0)
    bits = 4 if _nibbles(dtype) else 8
    shift = 8 * (sel[0] + 2 * sel[1]) if count == 1 else _part(sel, dtype, 0)
    mask = U32((1 << bits) - 1)
    r = ctx.regs.row(v["d"])

    def step(st: State) -> None:
        x, s = np.array(raw(st)), scale_of(scale(st))
        out = []
        for i in range(count):
            code = ((x >> U32(shift + bits * i)) & mask).astype(U8).view(dtype)
            out.append((code.astype(F64) * s).astype(F32).astype(wide))
        if wide is F32:
            for i, y in enumerate(out):
                put(st, r + i, y.view(U32))
        elif count == 2:
            low, high = (y.view(U16).astype(U32) for y in out)
            put(st, r, low | (high << U32(16)))
        else:
            half = st.U[r].view(U16)[:, (1 if sel[3] else 0) :: 2]
            np.copyto(half, np.broadcast_to(out[0].view(U16), half.shape), where=True if st.mask is None else st.mask)

    return step


def scale_down(ctx: Context, line: Line) -> Step:
    """Two floats over a power of two, rounded to small ones: to a half (bytes) or a byte (nibbles) of a register."""
    v = named(line)
    inst = line.inst
    assert inst is not None
    dtype, wide = inst.extra
    sel = (*line.modifiers.get("op_sel", ()), 0, 0, 0, 0)
    scale = read_source(ctx, inst, inst.operand("scale"), v["scale"], False)
    sources = [read_source(ctx, inst, inst.operand(n), v[n], False) for n in ("a", "b") if n in v]
    nibbles = _nibbles(dtype)
    # op_sel bits: one per source, then the destination's; a nibble pair has two destination bits
    part = sel[2] + 2 * sel[3] if nibbles else sel[len(v) - 1] if len(v) <= 4 else sel[3]
    r = ctx.regs.row(v["d"])
    narrowed = (lambda st, x: limited8(st, x, dtype)) if ctx.overflow and not nibbles else (lambda st, x: x)

    def step(st: State) -> None:
        values = [np.asarray(q(st)) for q in sources]
        if len(values) == 1:
            word = values[0]
            values = [(word & U32(0xFFFF)).astype(U16).view(wide), (word >> U32(16)).astype(U16).view(wide)]
        s = scale_of(scale(st))
        a, b = (narrowed(st, (x.astype(F64) / s).astype(F32)).astype(dtype).view(U8) for x in values)
        mask = True if st.mask is None else st.mask
        if nibbles:
            target = st.U[r].view(U8)[:, part::4]
            np.copyto(target, np.broadcast_to((a & U8(15)) | (b << U8(4)), target.shape), where=mask)
        else:
            half = st.U[r].view(U16)[:, part::2]
            np.copyto(half, np.broadcast_to(a.astype(U16) | (b.astype(U16) << U16(8)), half.shape), where=mask)

    return step
