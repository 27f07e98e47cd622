"""Closures of vector rows: VOP1, VOP2, VOP3, VOPC, DPP, SDWA.

In: a parsed line with its row. Out: `step(state)`. The row's semantics see typed arrays; what all rows share is done
here: neg and abs, clamp, omod, op_sel, DPP, SDWA, denormal flushing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Inst, Operand, Reg, Src
from wavedsl.codegen.amdgcn.isa_valu import POLES_F16
from wavedsl.runtime.emulator.amdgcn.lanes import dpp
from wavedsl.runtime.emulator.amdgcn.state import (
    I64,
    LANES,
    NUMPY,
    U16,
    U32,
    U64,
    Read,
    Registers,
    State,
    Write,
    to_lanes,
    vector_raw,
    vector_write,
)
from wavedsl.runtime.emulator.amdgcn.step import (
    Context,
    Step,
    Unsupported,
    flush32,
    limited,
    modified,
    named,
    read_source,
    unit_interval,
)
from wavedsl.runtime.emulator.amdgcn.text import Line

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
            reads.append(modified(read, src.neg, src.abs))
        else:
            reads.append(read_source(ctx, inst, o, values[o.name], high))
    for name in inst.implicit_reads:
        if name == "vcc":
            reads.append(lambda st: to_lanes(st.S[53]))
    fn = _with_output_modifiers(ctx, inst, m)
    writes = _vector_writes(ctx, line, values, sel, len(ins))
    halves = ctx.overflow and any(o.writes and o.dtype == "f16" for o in inst.operands)
    if inst.encoding == "DPP":
        if halves:
            raise Unsupported(f"`{line.text}`: DPP of halves in a kernel that sets FP16_OVFL")
        return _dpp_step(line, reads, fn, writes)
    if halves:
        (write,), known = writes, limited(fn, inst.mnemonic.startswith(POLES_F16))
        return lambda st: write(st, known(st, [r(st) for r in reads]))
    return _assemble(reads, fn, writes)


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
        fn = lambda *x: unit_interval(before(*x))  # noqa: E731
    if dtype == "f32" and (inst.flush or ctx.flush32):
        exact = fn
        multiple = sum(o.writes for o in inst.operands) > 1
        if multiple:
            return lambda *x: (lambda r: (flush32(r[0]), *r[1:]))(exact(*x))
        return lambda *x: flush32(exact(*x))
    return fn


def _assemble(reads: list[Read], fn: Callable[..., Any], writes: list[Write]) -> Step:
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
    source, valid, enabled, zero = dpp(line)
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
