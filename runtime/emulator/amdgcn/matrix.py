"""Matrix instructions, from the rows of `mfma`: fragments to dense matrices, one product per block, fragments back.

The idea: a fragment layout permutes bits, so gathering a dense matrix is a transpose of the register array seen with
one axis per bit, and consecutive bits that stay together are one axis. The copy also converts to the type of the
product.

Precision: f16, bf16, fp8 and narrower products are exact in f32 and their sums are f32, in NumPy's order (hardware's
order is not documented; the same of sparse products); i8 sums are exact (products below 2**14, at most 64 of them); f64
in f64; xf32 rounds its inputs to 10 bits. Denormals are kept, but that gfx90a takes those of f16 and bf16 operands, and
those of the f32 addend and result of such a product, as zeros (AMD's MIOpen documentation, "MI200 MFMA behavior
specifics"). EXEC is ignored, as on the chip.
"""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
from wavedsl.codegen.amdgcn.isa import Reg
from wavedsl.codegen.amdgcn.mfma import Mfma, index_byte, with_formats
from wavedsl.ir import dtypes as dt
from wavedsl.runtime.emulator.amdgcn.state import F32, F64, I32, LANES, U8, U16, U32, State, constant
from wavedsl.runtime.emulator.amdgcn.step import Context, Step, Unsupported, named
from wavedsl.runtime.emulator.amdgcn.text import Line


@functools.lru_cache(maxsize=256)
def axes(layout: tuple[tuple[str, str], ...], order: str, elements: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How to turn [element, wave, lane] into [wave, *coordinates in `order`]: (shape with split axes, transpose).

    Bits run from high to low within a coordinate; runs of bits that are neighbours in both places become one axis.
    """
    wanted: list[str] = []
    by_name = dict(layout)
    for name in order:
        wanted += reversed(by_name.get(name, "").split())
    e_bits = [f"e{i}" for i in reversed(range(elements.bit_length() - 1))]
    l_bits = [f"l{i}" for i in reversed(range(6))]
    runs: list[list[str]] = []
    source = [*e_bits, "wave", *l_bits]
    follows = dict(zip(wanted, wanted[1:]))  # noqa: RUF007
    for bit in source:
        if runs and bit != "wave" and runs[-1][-1] != "wave" and follows.get(runs[-1][-1]) == bit:
            runs[-1].append(bit)
        else:
            runs.append([bit])
    shape = tuple(-1 if r == ["wave"] else 1 << len(r) for r in runs)
    start = {r[0]: i for i, r in enumerate(runs)}
    out = [start["wave"]]
    for bit in wanted:
        if bit in start:
            out.append(start[bit])
    return shape, tuple(out)


def _items(layout: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(layout.items()))


_STORED = {dt.f16: np.float16, dt.bf16: ml_dtypes.bfloat16, dt.f32: F32, dt.f64: F64, dt.i8: np.int8, dt.tf32: F32,
           dt.f8e4m3: ml_dtypes.float8_e4m3fn, dt.f8e5m2: ml_dtypes.float8_e5m2,
           dt.f8e4m3fnuz: ml_dtypes.float8_e4m3fnuz, dt.f8e5m2fnuz: ml_dtypes.float8_e5m2fnuz}  # fmt: skip


def elements_of(block: np.ndarray, dtype: dt.DType) -> np.ndarray:
    """Registers uint32 [register, wave, lane] as f32 (f64) elements [element, wave, lane]."""
    r, w, _ = block.shape
    if dtype.bits == 32:
        x = block.view(F32)
        if dtype is dt.tf32:
            bits = block + U32(0xFFF) + ((block >> U32(13)) & U32(1))
            x = np.where(np.isfinite(x), bits & U32(0xFFFFE000), block).view(F32)
        return x
    if dtype.bits == 64:
        pairs = np.ascontiguousarray(np.moveaxis(block.reshape(r // 2, 2, w, LANES), 1, 3))
        return pairs.view(F64)[..., 0]
    if dtype.bits == 16:
        if dtype is dt.bf16:
            return np.stack((block << U32(16), block & U32(0xFFFF0000)), axis=1).view(F32).reshape(2 * r, w, LANES)
        halves = block.view(np.float16).reshape(r, w, LANES, 2).transpose(0, 3, 1, 2)
        return halves.astype(F32, order="C").reshape(2 * r, w, LANES)
    if dtype.bits == 8:
        table = dt.code_values(dtype)
        parts = block.view(U8).reshape(r, w, LANES, 4).transpose(0, 3, 1, 2).reshape(4 * r, w, LANES)
        return table[parts]
    return dt.code_values(dtype)[_narrow(block, dtype.bits)]


def _narrow(block: np.ndarray, bits: int) -> np.ndarray:
    """Codes of 4- or 6-bit elements, packed from bit 0 of register 0: uint8 [element, wave, lane]."""
    out = []
    for e in range(32):
        at = e * bits
        word, shift = at // 32, at % 32
        x = block[word] >> U32(shift)
        if shift + bits > 32:
            x = x | (block[word + 1] << U32(32 - shift))
        out.append((x & U32((1 << bits) - 1)).astype(U8))
    return np.stack(out)


def dense(block: np.ndarray, dtype: dt.DType, layout: Any, order: str, sizes: tuple[int, ...]) -> np.ndarray:
    """A fragment as [wave, *sizes], coordinates in `order`."""
    x = elements_of(block, dtype)
    shape, transpose = axes(_items(layout), order, x.shape[0])
    return x.reshape(shape).transpose(transpose).reshape(block.shape[1], *sizes)


_NORMAL = {dt.f16: F32(2.0**-14), dt.bf16: F32(2.0**-126), dt.f32: F32(2.0**-126)}
"""The smallest normal number."""


def _flushed(x: np.ndarray, dtype: dt.DType) -> np.ndarray:
    """The same with zeros for denormals."""
    return np.where(np.abs(x) < _NORMAL[dtype], F32(0), x)


def _lane_pattern(blgp: int) -> np.ndarray | None:
    """Source lane of B for blgp 1..7 of the forms that have it."""
    lane = np.arange(LANES)
    if blgp == 0:
        return None
    if blgp in (1, 2):
        return lane % 32 + 32 * (blgp - 1)
    if blgp == 3:
        return (lane + 16) % 64
    return lane % 16 + 16 * (blgp - 4)


def mfma(ctx: Context, line: Line) -> Step:
    inst = line.inst
    assert inst is not None
    row: Mfma = inst.extra
    if row.sparse:
        return sparse(ctx, line)
    m = line.modifiers
    if row.formats:
        row = with_formats(row, int(m.get("cbsz", 0)), int(m.get("blgp", 0)))
    v = named(line)
    regs = ctx.regs
    a, b, d = (regs.row(v[n]) for n in "abd")
    na, nb, nd = v["a"].count, v["b"].count, row.d_regs
    if (na, nb) != (row.a_regs, row.b_regs):
        raise Unsupported(f"`{line.text}`: these formats take {row.a_regs} and {row.b_regs} registers")
    wide = row.d_dtype is dt.f64
    product = F64 if wide else F32
    result = {dt.f64: F64, dt.i32: I32}.get(row.d_dtype, F32)
    elements = nd // 2 if wide else nd
    shape, transpose = axes(_items(row.d), "BMN", elements)
    back = np.argsort(transpose)
    source_c = v["c"]
    rc = regs.row(source_c) if isinstance(source_c, Reg) else None
    inline = None if rc is not None else constant(source_c, row.d_dtype.name)[0, 0]
    blocks, mm, nn, kk = row.blocks, row.m, row.n, row.k
    cbsz, abid = (0, 0) if row.formats else (int(m.get("cbsz", 0)), int(m.get("abid", 0)))
    blgp = 0 if row.formats else int(m.get("blgp", 0))
    if wide and (blgp or cbsz):
        raise Unsupported(f"`{line.text}`: cbsz, abid, blgp of an f64 form")
    if 1 << cbsz > blocks or abid >> cbsz:
        raise Unsupported(f"`{line.text}`: cbsz and abid name a block that is not there")
    lanes = _lane_pattern(blgp)
    scale = _scales(ctx, line, row) if row.scaled else None
    flushes = ctx.target == "gfx90a" and row.a_dtype.bits == 16
    sizes_a = (blocks, mm, kk) if blocks > 1 else (mm, kk)
    sizes_b = (blocks, kk, nn) if blocks > 1 else (kk, nn)

    def step(st: State) -> None:
        left = dense(st.U[a : a + na], row.a_dtype, row.a, "BMK", sizes_a)
        block_b = st.U[b : b + nb]
        if lanes is not None:
            block_b = block_b[:, :, lanes]
        right = dense(block_b, row.b_dtype, row.b, "BKN", sizes_b)
        if cbsz:
            pick = (np.arange(blocks) >> cbsz << cbsz) + abid
            left = left[:, pick]
        if scale is not None:
            left, right = scale(st, left, right)
        if flushes:
            left, right = _flushed(left, row.a_dtype), _flushed(right, row.b_dtype)
        full = np.matmul(left.astype(product, copy=False), right.astype(product, copy=False))
        if result is I32:
            full = full.astype(I32)
        st.U[d : d + nd] = accumulate(st, full)

    def accumulate(st: State, full: np.ndarray) -> np.ndarray:
        """D in register order."""
        dims = tuple(st.waves if s == -1 else s for s in shape)
        spread = (
            full.reshape([dims[i] for i in transpose])
            .transpose(back)
            .reshape(elements, st.waves, LANES)
        )
        if wide:
            if rc is None:
                out = spread + inline
            else:
                out = spread + elements_of(st.U[rc : rc + nd], dt.f64)
            pairs = np.ascontiguousarray(out).view(U32).reshape(elements, st.waves, LANES, 2)
            return np.moveaxis(pairs, 3, 1).reshape(nd, st.waves, LANES)
        if flushes:
            addend = inline if rc is None else _flushed(st.U[rc : rc + nd].view(F32), dt.f32)
            return np.ascontiguousarray(_flushed(spread + addend, dt.f32)).view(U32)
        if rc is None:
            return np.ascontiguousarray(spread + inline if inline else spread).astype(result, copy=False).view(U32)
        return (spread + st.U[rc : rc + nd].view(result)).view(U32)

    return step


def sparse(ctx: Context, line: Line) -> Step:
    """D += A B with two of every four elements of A along K: B's rows are picked, not multiplied by zero, so what is
    not picked may be anything. Raises Unsupported, when it runs, for two elements of one four that are not in order of
    their places."""
    inst = line.inst
    assert inst is not None
    row: Mfma = inst.extra
    byte = index_byte(int(line.modifiers.get("cbsz", 0)), int(line.modifiers.get("abid", 0)))
    v = named(line)
    a, b, d, index = (ctx.regs.row(v[n]) for n in ("a", "b", "d", "index"))
    na, nb, nd = row.a_regs, row.b_regs, row.d_regs
    shape, transpose = axes(_items(row.d), "MN", nd)
    back = np.argsort(transpose)
    mm, kk, half = row.m, row.k, row.k // 2
    fours = 4 * (np.arange(half) // 2)
    # shifts of a lane's four elements; its lane is row l % m, fours from 2 * (l // m) on
    shifts = 8 * byte + 2 * np.arange(4)

    def step(st: State) -> None:
        left = dense(st.U[a : a + na], row.a_dtype, row.a, "MK", (mm, half))
        right = dense(st.U[b : b + nb], row.b_dtype, row.b, "KN", (kk, mm))
        places = (st.U[index][..., None].astype(np.int64) >> shifts) & 3  # [wave, lane, element]
        picked = places.reshape(st.waves, LANES // mm, mm, 4).transpose(0, 2, 1, 3).reshape(st.waves, mm, half)
        if (picked[..., ::2] >= picked[..., 1::2]).any():
            raise Unsupported(f"`{line.text}`: the places of two elements of one four are not in order")
        picked = picked + fours
        if (picked == picked[:1, :1]).all():
            full = np.matmul(left, right[:, picked[0, 0]])
        else:
            rows = np.stack([x[at] for x, at in zip(right, picked)])  # [wave, M, K, N]
            full = (left[..., None] * rows).sum(axis=2)
        dims = tuple(st.waves if s == -1 else s for s in shape)
        spread = full.reshape([dims[i] for i in transpose]).transpose(back).reshape(nd, st.waves, LANES)
        st.U[d : d + nd] = (spread + st.U[d : d + nd].view(F32)).view(U32)

    return step


def _scales(ctx: Context, line: Line, row: Mfma) -> Any:
    """Multiply by the E8M0 scales: lane l holds, in the byte that op_sel names, the scale of row l % M, k block l //
    M.
    """
    v = named(line)
    sel, hi = line.modifiers.get("op_sel", (0, 0)), line.modifiers.get("op_sel_hi", (1, 1))
    from wavedsl.runtime.emulator.amdgcn.state import vector_raw

    reads = [vector_raw(ctx.regs, v[n]) for n in ("sa", "sb")]
    shifts = [U32(8 * (sel[i] + 2 * hi[i])) for i in (0, 1)]
    m = row.m
    groups = LANES // m

    def apply(st: State, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        out = []
        for read, shift in zip(reads, shifts):
            byte = (np.broadcast_to(read(st), (st.waves, LANES)) >> shift) & U32(255)
            value = np.where(byte == 255, np.nan, np.ldexp(1.0, byte.astype(np.int32) - 127)).astype(F32)
            out.append(np.repeat(value.reshape(st.waves, groups, m), row.k // groups, axis=1))
        return left * out[0].transpose(0, 2, 1), right * out[1]

    return apply


__all__ = ["U16", "axes", "dense", "mfma"]
