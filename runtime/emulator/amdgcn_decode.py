"""One closure per static instruction: vector ALU and scalar instructions.

In: a parsed line with its row. Out: `step(state)`, with operands, modifiers and widths bound. The row's semantics see
typed arrays; this file does what all rows share: neg and abs, clamp, omod, op_sel, DPP, SDWA, packed halves, denormal
flushing. Instructions that a row marks `special` are in the tables `SPECIAL` here, in `amdgcn_memory` and in
`amdgcn_matrix`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Inst, Operand, Reg, Src, Unit
from wavedsl.codegen.amdgcn.isa_valu import fma32, scale_of
from wavedsl.runtime.emulator.amdgcn_state import (
    ALL,
    F16,
    F32,
    F64,
    I64,
    LANES,
    NUMPY,
    U8,
    U16,
    U32,
    U64,
    Read,
    Registers,
    State,
    Write,
    constant,
    constant_bits,
    scalar_lane,
    scalar_operand,
    scalar_read,
    scalar_write,
    scc_write,
    to_lanes,
    vector_raw,
    vector_read,
    vector_write,
)
from wavedsl.runtime.emulator.amdgcn_text import CODE_BASE, Line, Program

Step = Callable[[State], None]


class Unsupported(Exception):
    """A form of an instruction that the emulator has no meaning for."""


class Context:
    """What closures are bound to besides their operands: registers, target, modes of the kernel, the program."""

    def __init__(self, program: Program, regs: Registers, target: str, flush32: bool, flush16: bool):
        self.program, self.regs, self.target = program, regs, target
        self.flush32, self.flush16 = flush32, flush16
        self.clock = 0


def named(line: Line) -> dict[str, Any]:
    """Operand name → value of the text, explicit operands only."""
    assert line.inst is not None
    return {o.name: v for o, v in zip(line.inst.explicit, line.operands)}


# -------------------------------------------------------------------------------------------------------------- sources


_TINY32 = np.float32(2.0**-126)


def flush32(x: Any) -> Any:
    """Denormals to zero of the same sign."""
    small = np.abs(x) < _TINY32
    return np.where(small, np.copysign(F32(0), x), x) if small.any() else x


def _modified(read: Read, neg: bool, absolute: bool) -> Read:
    """neg and abs are bit operations: they also act on NaN and leave the rest of the word alone."""
    if absolute and neg:
        return lambda st: -np.abs(read(st))
    if absolute:
        return lambda st: np.abs(read(st))
    if neg:
        return lambda st: np.negative(read(st))
    return read


def _source(ctx: Context, inst: Inst, o: Operand, value: Any, high: bool) -> Read:
    read = vector_read(ctx.regs, o, value, high)
    if isinstance(value, Src):
        if NUMPY[o.dtype] in (U32,) and (value.neg or value.abs):
            read = vector_read(ctx.regs, Operand(o.name, o.kinds, o.regs, "f32", True, False), value, high)
            bits = _modified(read, value.neg, value.abs)
            return lambda st: bits(st).view(U32)
        read = _modified(read, value.neg, value.abs)
    if o.dtype == "f32" and (inst.flush or ctx.flush32):
        inner = read
        return lambda st: flush32(inner(st))
    return read


# ------------------------------------------------------------------------------------------------------------------ DPP


def dpp_lanes(control: str) -> tuple[np.ndarray, np.ndarray]:
    """Source lane of each lane, and whether it exists."""
    lane = np.arange(LANES)
    row, at = lane & ~15, lane & 15
    valid = np.ones(LANES, bool)
    name, _, arg = control.partition(":")
    n = int(arg) if arg and arg[0] != "[" else 0
    if name == "quad_perm":
        p = np.array([int(x) for x in arg[1:-1].split(",")])
        source = (lane & ~3) + p[lane & 3]
    elif name == "row_shl":
        source, valid = lane + n, at + n < 16
    elif name == "row_shr":
        source, valid = lane - n, at - n >= 0
    elif name == "row_ror":
        source = row + (at - n) % 16
    elif name == "row_mirror":
        source = row + 15 - at
    elif name == "row_half_mirror":
        source = (lane & ~7) + 7 - (lane & 7)
    elif name == "row_bcast":
        if n == 15:
            source, valid = row - 1, lane >= 16
        else:
            source, valid = np.full(LANES, 31), lane >= 32
    elif name in ("row_newbcast", "row_share"):
        source = row + n
    elif name == "wave_shr":
        source, valid = lane - 1, lane >= 1
    elif name == "wave_shl":
        source, valid = lane + 1, lane < 63
    elif name == "wave_ror":
        source = (lane - 1) % 64
    elif name == "wave_rol":
        source = (lane + 1) % 64
    else:
        raise Unsupported(f"DPP control {control}")
    return np.where(valid, source, 0), valid


def _dpp(line: Line) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Source lanes, validity, lanes enabled by row and bank masks, and whether invalid sources read 0."""
    m = line.modifiers
    source, valid = dpp_lanes(m.get("dpp", "quad_perm:[0,1,2,3]"))
    lane = np.arange(LANES)
    rows, banks = m.get("row_mask", 15), m.get("bank_mask", 15)
    enabled = ((rows >> (lane >> 4)) & 1 == 1) & ((banks >> ((lane >> 2) & 3)) & 1 == 1)
    return source, valid, enabled, "bound_ctrl" in m


# ----------------------------------------------------------------------------------------------------------------- SDWA


def _sdwa_source(raw: Read, select: str, sext: bool, kind: Any) -> Read:
    if select == "DWORD":
        shift, bits = 0, 32
    elif select.startswith("BYTE_"):
        shift, bits = 8 * int(select[5:]), 8
    else:
        shift, bits = 16 * int(select[5:]), 16
    size = np.dtype(kind).itemsize

    def read(st: State) -> Any:
        x = raw(st)
        if bits < 32:
            x = (x >> U32(shift)) & U32((1 << bits) - 1)
            if sext:
                sign = U32(1 << bits - 1)
                x = (x ^ sign) - sign
        return x.view(kind) if size == 4 else x.astype(U16).view(kind)

    return read


def _sdwa_write(regs: Registers, o: Operand, reg: Reg, m: dict[str, Any]) -> Write:
    select, unused = m.get("dst_sel", "DWORD"), m.get("dst_unused", "UNUSED_PRESERVE")
    if select == "DWORD" or o.dtype == "mask":
        return vector_write(regs, o, reg)
    shift, bits = (8 * int(select[5:]), 8) if select.startswith("BYTE") else (16 * int(select[5:]), 16)
    mask = ((1 << bits) - 1) << shift
    r = regs.row(reg)

    def write(st: State, x: Any) -> None:
        x = np.asarray(x)
        x = x.view({2: U16, 4: U32}[x.dtype.itemsize]).astype(U32)
        field = (x << U32(shift)) & U32(mask)
        if unused == "UNUSED_PRESERVE":
            out = (st.U[r] & U32(~mask & 0xFFFFFFFF)) | field
        elif unused == "UNUSED_SEXT":
            top = U32(1 << shift + bits - 1)
            out = np.where(field & top, field | U32(~((1 << shift + bits) - 1) & 0xFFFFFFFF), field)
        else:
            out = field
        if st.mask is None:
            st.U[r] = out
        else:
            np.copyto(st.U[r], out, where=st.mask)

    return write


# ---------------------------------------------------------------------------------------------------------- vector rows


def vector(ctx: Context, line: Line) -> Step:
    """A vector row with semantics: VOP1, VOP2, VOP3, VOPC, DPP, SDWA."""
    inst = line.inst
    assert inst is not None and inst.semantics is not None
    values = named(line)
    m = line.modifiers
    sel = m.get("op_sel", ())
    reads: list[Read] = []
    sources = [o for o in inst.operands if o.reads and not o.implicit]
    ins = [o for o in inst.explicit if o.reads and not o.writes]
    for o in sources:
        at = ins.index(o) if o in ins else len(ins)
        high = bool(sel) and at < len(sel) and bool(sel[at]) and o.dtype in ("f16", "u16", "i16")
        if inst.encoding == "SDWA" and o.dtype != "mask" and at < 2 and not o.writes:
            value = values[o.name]
            src = value if isinstance(value, Src) else Src(value)
            raw = vector_raw(ctx.regs, src.value)
            read = _sdwa_source(raw, m.get(f"src{at}_sel", "DWORD"), src.sext, NUMPY[o.dtype])
            reads.append(_modified(read, src.neg, src.abs))
        else:
            reads.append(_source(ctx, inst, o, values[o.name], high))
    for name in inst.implicit_reads:
        if name == "vcc":
            reads.append(lambda st: to_lanes(st.S[53]))
    fn = _with_output_modifiers(ctx, inst, m)
    writes = _vector_writes(ctx, line, values, sel, len(ins))
    if inst.encoding == "DPP":
        return _dpp_step(line, reads, fn, writes)
    return _assemble(inst, reads, fn, writes)


def _vector_writes(ctx: Context, line: Line, values: dict[str, Any], sel: Sequence[int], sources: int) -> list[Write]:
    inst = line.inst
    assert inst is not None
    writes: list[Write] = []
    for o in inst.operands:
        if not o.writes:
            continue
        if o.implicit:
            writes.append(_exec_write)
            continue
        reg = values[o.name]
        if not isinstance(reg, Reg):
            raise Unsupported(f"`{line.text}`: destination {reg}")
        if inst.encoding == "SDWA":
            writes.append(_sdwa_write(ctx.regs, o, reg, line.modifiers))
        else:
            high = len(sel) > sources and bool(sel[sources])
            writes.append(vector_write(ctx.regs, o, reg, high, preserve=len(sel) > 0 or inst.extra == "halves"))
    return writes


def _exec_write(st: State, lanes: Any) -> None:
    """v_cmpx: EXEC becomes the result."""
    bits = lanes if st.mask is None else lanes & st.mask
    st.S[63] = np.packbits(np.broadcast_to(bits, (st.waves, LANES)), axis=1, bitorder="little").view(U64)[:, 0]
    st.exec_changed()


def _with_output_modifiers(ctx: Context, inst: Inst, m: dict[str, Any]) -> Callable[..., Any]:
    fn = inst.semantics
    assert fn is not None
    if inst.extra == "bitop3":
        table = int(m.get("bitop3", 0))
        return lambda a, b, c: inst.semantics(a, b, c, table)  # type: ignore[misc]
    dtype = next((o.dtype for o in inst.operands if o.writes), "b32")
    if m.get("clamp") and dtype in ("u32", "i32", "u16", "i16"):
        if not callable(inst.extra):
            raise Unsupported(f"clamp on {inst.mnemonic}")
        info = np.iinfo(NUMPY[dtype])
        wide = inst.extra
        return lambda a, b: np.clip(wide(a.astype(I64), b.astype(I64)), info.min, info.max).astype(NUMPY[dtype])
    if omod := m.get("omod"):
        factor = {"mul:2": 2.0, "mul:4": 4.0, "div:2": 0.5}[omod]
        inner = fn
        fn = lambda *x: (lambda r: r * r.dtype.type(factor))(inner(*x))  # noqa: E731
    if m.get("clamp"):
        before = fn
        fn = lambda *x: _unit_interval(before(*x))  # noqa: E731
    if dtype == "f32" and (inst.flush or ctx.flush32):
        exact = fn
        multiple = sum(o.writes for o in inst.operands) > 1
        if multiple:
            return lambda *x: (lambda r: (flush32(r[0]), *r[1:]))(exact(*x))
        return lambda *x: flush32(exact(*x))
    return fn


def _unit_interval(x: Any) -> Any:
    """Float clamp: to [0, 1], NaN to 0."""
    return np.where(np.isnan(x), x.dtype.type(0), np.clip(x, x.dtype.type(0), x.dtype.type(1)))


def _assemble(inst: Inst, reads: list[Read], fn: Callable[..., Any], writes: list[Write]) -> Step:
    if len(writes) == 1:
        w = writes[0]
        if len(reads) == 1:
            a = reads[0]

            def step1(st: State) -> None:
                w(st, fn(a(st)))

            return step1
        if len(reads) == 2:
            a, b = reads

            def step2(st: State) -> None:
                w(st, fn(a(st), b(st)))

            return step2
        if len(reads) == 3:
            a, b, c = reads

            def step3(st: State) -> None:
                w(st, fn(a(st), b(st), c(st)))

            return step3
    return_many = len(writes) > 1

    def step(st: State) -> None:
        result = fn(*[r(st) for r in reads])
        if return_many:
            # ORDER: EXEC last, the others are written under the old one
            for w, x in zip(writes, result):
                w(st, x)
        else:
            writes[0](st, result)

    return step


def _dpp_step(line: Line, reads: list[Read], fn: Callable[..., Any], writes: list[Write]) -> Step:
    """Permute the first source; lanes whose source is missing or inactive keep their destination or read 0."""
    source, valid, enabled, zero = _dpp(line)
    inst = line.inst
    assert inst is not None
    first = 1 if inst.operands and any(o.writes and o.reads for o in inst.operands) else 0

    def step(st: State) -> None:
        full = st.mask
        ok = valid if full is None else valid & full[:, source]
        args = [r(st) for r in reads]
        x = np.broadcast_to(args[first], (st.waves, LANES))[:, source]
        if zero:
            x = np.where(ok, x, x.dtype.type(0))
            lanes = enabled
        else:
            lanes = enabled & ok
        args[first] = x
        result = fn(*args)
        results = result if len(writes) > 1 else (result,)
        whole = bool(np.all(lanes))
        if not whole:
            st.mask = np.broadcast_to(lanes, (st.waves, LANES)) & (True if full is None else full)
        try:
            for w, r in zip(writes, results):
                w(st, r)
        finally:
            st.mask = full

    return step


# ---------------------------------------------------------------------------------------------------------- packed rows


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
            pair.append(_modified(read, bool(i < len(neg) and neg[i]), False))
        halves.append(pair)
    fn = inst.semantics
    if m.get("clamp"):
        if np.dtype(kind).kind == "f":
            exact = fn
            fn = lambda *x: _unit_interval(exact(*x))  # noqa: E731
        elif callable(inst.extra):
            info, op = np.iinfo(kind), inst.extra
            fn = lambda a, b: np.clip(op(a.astype(I64), b.astype(I64)), info.min, info.max).astype(kind)  # noqa: E731
        else:
            raise Unsupported(f"clamp on {inst.mnemonic}")
    r = ctx.regs.row(values[d.name])
    flush = wide and ctx.flush32

    def step(st: State) -> None:
        lo, hi = (fn(*[h[side](st) for h in halves]) for side in (0, 1))
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
            _put(st, r + i, x)

    return step


def _put(st: State, row: int, x: Any) -> None:
    if st.mask is None:
        st.U[row] = x
    else:
        np.copyto(st.U[row], x, where=st.mask)


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
            _modified(
                read, src.neg or bool(m.get("neg_lo", (0, 0, 0))[i]), src.abs or bool(m.get("neg_hi", (0, 0, 0))[i])
            )
        )
    assert line.inst is not None
    form = line.inst.extra
    r = ctx.regs.row(v["d"])
    clamp = bool(m.get("clamp"))

    def step(st: State) -> None:
        x = fma32(*[q(st) for q in reads])
        if clamp:
            x = _unit_interval(x)
        if form == "fma_mix_f32":
            _put(st, r, np.asarray(x, F32).view(U32))
            return
        bits = np.broadcast_to(x.astype(F16).view(U16), (st.waves, LANES))
        target = st.U[r].view(U16)[:, (1 if form.startswith("fma_mixhi") else 0) :: 2]
        np.copyto(target, bits, where=True if st.mask is None else st.mask)

    return step


# -------------------------------------------------------------------------------------------------------- lane crossing


def first_active(st: State) -> np.ndarray:
    """First active lane of each wave; lane 0 when none is."""
    return np.zeros(st.waves, np.intp) if st.mask is None else st.mask.argmax(axis=1)


def readfirstlane(ctx: Context, line: Line) -> Step:
    v = named(line)
    value = v["a"]
    w = scalar_write(v["d"], "b32")
    if not isinstance(value, Reg) or value.file == "s":
        one = scalar_operand(line.inst.operand("a"), value)  # type: ignore[union-attr]
        return lambda st: w(st, np.broadcast_to(one(st), (st.waves,)))
    r = ctx.regs.row(value)

    def step(st: State) -> None:
        w(st, st.U[r][:, 0] if st.mask is None else st.U[r][np.arange(st.waves), first_active(st)])

    return step


def readlane(ctx: Context, line: Line) -> Step:
    v = named(line)
    r = ctx.regs.row(v["a"])
    lane = scalar_operand(Operand("lane", "sn", 1, "u32", True, False), v["lane"])
    w = scalar_write(v["d"], "b32")

    def step(st: State) -> None:
        at = np.broadcast_to(lane(st) & U32(63), (st.waves,)).astype(np.intp)
        w(st, st.U[r][np.arange(st.waves), at])

    return step


def writelane(ctx: Context, line: Line) -> Step:
    v = named(line)
    r = ctx.regs.row(v["d"])
    lane = scalar_operand(Operand("lane", "sn", 1, "u32", True, False), v["lane"])
    data = scalar_operand(Operand("a", "sn", 1, "b32", True, False), v["a"])

    def step(st: State) -> None:
        at = np.broadcast_to(lane(st) & U32(63), (st.waves,)).astype(np.intp)
        st.U[r][np.arange(st.waves), at] = data(st)

    return step


def permlane_swap(ctx: Context, line: Line) -> Step:
    """Odd groups of n lanes of a change places with even groups of b; lanes must be active."""
    v = named(line)
    assert line.inst is not None
    n = line.inst.extra
    ra, rb = ctx.regs.row(v["a"]), ctx.regs.row(v["b"])
    lane = np.arange(LANES)
    odd = (lane // n) % 2 == 1

    def step(st: State) -> None:
        a, b = st.U[ra].copy(), st.U[rb].copy()
        new_a = np.where(odd, b[:, lane ^ n], a)
        new_b = np.where(odd, b, a[:, lane ^ n])
        _put(st, ra, new_a)
        _put(st, rb, new_b)

    return step


# ------------------------------------------------------------------------------------------------------------- fp8, fp4


def cvt_pk_fp8(ctx: Context, line: Line) -> Step:
    """Two floats, rounded to bytes, to the half of the destination that op_sel names."""
    v = named(line)
    inst = line.inst
    assert inst is not None
    a, b = (_source(ctx, inst, inst.operand(n), v[n], False) for n in "ab")
    r = ctx.regs.row(v["d"])
    sel = line.modifiers.get("op_sel", ())
    high = bool(sel and sel[-1])
    dtype = inst.extra

    def step(st: State) -> None:
        low, up = (np.asarray(q(st)).astype(dtype).view(U8).astype(U16) for q in (a, b))
        target = st.U[r].view(U16)[:, (1 if high else 0) :: 2]
        bits = np.broadcast_to(low | (up << U16(8)), target.shape)
        np.copyto(target, bits, where=True if st.mask is None else st.mask)

    return step


def cvt_sr_fp8(ctx: Context, line: Line) -> Step:
    """Stochastic rounding: random bits are added below the kept mantissa, then truncation."""
    v = named(line)
    inst = line.inst
    assert inst is not None
    a, b = (_source(ctx, inst, inst.operand(n), v[n], False) for n in "ab")
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
            _put(st, r + i, np.asarray(y).view(U32))

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
    scale = _source(ctx, inst, inst.operand("scale"), v["scale"], False)
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
                _put(st, r + i, y.view(U32))
        elif count == 2:
            low, high = (y.view(U16).astype(U32) for y in out)
            _put(st, r, low | (high << U32(16)))
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
    scale = _source(ctx, inst, inst.operand("scale"), v["scale"], False)
    sources = [_source(ctx, inst, inst.operand(n), v[n], False) for n in ("a", "b") if n in v]
    nibbles = _nibbles(dtype)
    # op_sel bits: one per source, then the destination's; a nibble pair has two destination bits
    part = sel[2] + 2 * sel[3] if nibbles else sel[len(v) - 1] if len(v) <= 4 else sel[3]
    r = ctx.regs.row(v["d"])

    def step(st: State) -> None:
        values = [np.asarray(q(st)) for q in sources]
        if len(values) == 1:
            word = values[0]
            values = [(word & U32(0xFFFF)).astype(U16).view(wide), (word >> U32(16)).astype(U16).view(wide)]
        s = scale_of(scale(st))
        a, b = ((x.astype(F64) / s).astype(F32).astype(dtype).view(U8) for x in values)
        mask = True if st.mask is None else st.mask
        if nibbles:
            target = st.U[r].view(U8)[:, part::4]
            np.copyto(target, np.broadcast_to((a & U8(15)) | (b << U8(4)), target.shape), where=mask)
        else:
            half = st.U[r].view(U16)[:, part::2]
            np.copyto(half, np.broadcast_to(a.astype(U16) | (b.astype(U16) << U16(8)), half.shape), where=mask)

    return step


# ---------------------------------------------------------------------------------------------------------- scalar rows


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


def getreg(ctx: Context, line: Line) -> Step:
    w = scalar_write(line.operands[0], "u32")
    name, offset, size = _hwreg(line.operands[1])
    if name not in ("HW_REG_MODE", "1"):
        zero = U32(0)
        return lambda st: w(st, np.full(st.waves, zero))
    mask = U32((1 << size) - 1)
    return lambda st: w(st, (st.mode >> U32(offset)) & mask)


def setreg(ctx: Context, line: Line) -> Step:
    name, offset, size = _hwreg(line.operands[0])
    value = scalar_operand(Operand("a", "snk", 1, "u32", True, False), line.operands[1])
    if name not in ("HW_REG_MODE", "1"):
        raise Unsupported(f"`{line.text}`: only MODE can be written")
    mask = U32(((1 << size) - 1) << offset)

    def step(st: State) -> None:
        st.mode = (st.mode & ~mask) | ((value(st) << U32(offset)) & mask)
        # denormal control is bound when the kernel is decoded
        wants = bool(((st.mode[0] >> U32(4)) & U32(3)) == 0)
        if wants != ctx.flush32:
            raise Unsupported(f"`{line.text}` changes the denormal mode inside the kernel")

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


__all__ = ["ALL", "Context", "Step", "Unsupported", "decode", "first_active", "named"]
