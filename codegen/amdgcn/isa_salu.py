"""Scalar instruction rows: SOP1, SOP2, SOPK, SOPC, SOPP, and scalar memory.

Semantics work on one value per wave (arrays over waves). SCC comes in and goes out as a bool array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Mem, Unit, inst
from wavedsl.codegen.amdgcn.isa_valu import bfe_i, bit_reverse, ffbh_i, ffbh_u, ffbl, mul_hi_i, mul_hi_u, popcount

A = Any
GFX90A = frozenset(("gfx90a",))
U32, I32, U64, I64 = np.uint32, np.int32, np.uint64, np.int64


def sop2(name: str, ty: str, fn: Callable[..., A], *, scc: str = "", b: str = "", doc: str = "") -> None:
    """`scc`: how SCC is set: `nz` result is not zero, `out` by the function, `in` read, `inout`; empty: untouched."""
    out = ", scc" if scc in ("nz", "out", "inout") else ""
    read = ", scc" if scc in ("in", "inout") else ""
    meaning = (lambda *x: _nonzero(fn(*x))) if scc == "nz" else fn
    inst(
        f"s_{name}",
        f"d:s.{ty}{out} <- a:snk.{ty}, b:snk.{b or ty}{read}",
        Unit.SALU,
        "SOP2",
        semantics=meaning,
        doc=doc,
    )


def sop1(name: str, to: str, of: str, fn: Callable[..., A], *, scc: str = "", doc: str = "") -> None:
    out = ", scc" if scc else ""
    meaning = (lambda *x: _nonzero(fn(*x))) if scc == "nz" else fn
    inst(f"s_{name}", f"d:s.{to}{out} <- a:snk.{of}", Unit.SALU, "SOP1", semantics=meaning, doc=doc)


def _nonzero(x: A) -> tuple[A, A]:
    return x, x != 0


# ----------------------------------------------------------------------------------------------------------------- SOP2


def _overflow(a: A, b: A, r: A, subtract: bool) -> A:
    signs = a ^ b if subtract else ~(a ^ b)
    return (signs & (a ^ r)) < 0


sop2("add_u32", "u32", lambda a, b: (a + b, a + b < a), scc="out", doc="SCC is the carry")
sop2("sub_u32", "u32", lambda a, b: (a - b, a < b), scc="out", doc="SCC is the borrow")
sop2("add_i32", "i32", lambda a, b: (a + b, _overflow(a, b, a + b, False)), scc="out", doc="SCC is the signed overflow")
sop2("sub_i32", "i32", lambda a, b: (a - b, _overflow(a, b, a - b, True)), scc="out", doc="SCC is the signed overflow")


def _addc(a: A, b: A, c: A) -> tuple[A, A]:
    wide = a.astype(U64) + b.astype(U64) + c.astype(U64)
    return wide.astype(U32), wide > U64(0xFFFFFFFF)


def _subb(a: A, b: A, c: A) -> tuple[A, A]:
    wide = a.astype(I64) - b.astype(I64) - c.astype(I64)
    return wide.astype(U32), wide < 0


sop2("addc_u32", "u32", _addc, scc="inout", doc="with SCC as carry in and out")
sop2("subb_u32", "u32", _subb, scc="inout", doc="with SCC as borrow in and out")
for _t in ("i32", "u32"):
    sop2(f"min_{_t}", _t, lambda a, b: (np.minimum(a, b), a < b), scc="out", doc="SCC: a was chosen")
    sop2(f"max_{_t}", _t, lambda a, b: (np.maximum(a, b), a > b), scc="out", doc="SCC: a was chosen")
for _bits, _t in (("b32", "u32"), ("b64", "u64")):
    sop2(f"cselect_{_bits}", _t, lambda a, b, c: np.where(c, a, b), scc="in", doc="a if SCC else b")
    sop2(f"and_{_bits}", _t, np.bitwise_and, scc="nz")
    sop2(f"or_{_bits}", _t, np.bitwise_or, scc="nz")
    sop2(f"xor_{_bits}", _t, np.bitwise_xor, scc="nz")
    sop2(f"andn2_{_bits}", _t, lambda a, b: a & ~b, scc="nz")
    sop2(f"orn2_{_bits}", _t, lambda a, b: a | ~b, scc="nz")
    sop2(f"nand_{_bits}", _t, lambda a, b: ~(a & b), scc="nz")
    sop2(f"nor_{_bits}", _t, lambda a, b: ~(a | b), scc="nz")
    sop2(f"xnor_{_bits}", _t, lambda a, b: ~(a ^ b), scc="nz")
    _m = U32(31) if _t == "u32" else U32(63)
    _w = U32 if _t == "u32" else U64
    _s, _si = ("i32", I32) if _t == "u32" else ("i64", I64)
    sop2(f"lshl_{_bits}", _t, lambda a, n, m=_m, w=_w: a << (n & m).astype(w), scc="nz", b="u32")
    sop2(f"lshr_{_bits}", _t, lambda a, n, m=_m, w=_w: a >> (n & m).astype(w), scc="nz", b="u32")
    sop2(f"ashr_{_s}", _s, lambda a, n, m=_m, w=_si: a >> (n & m).astype(w), scc="nz", b="u32")
sop2("bfm_b32", "u32", lambda a, b: ((U32(1) << (a & U32(31))) - U32(1)) << (b & U32(31)))
inst("s_bfm_b64", "d:s.u64 <- a:snk.u32, b:snk.u32", Unit.SALU, "SOP2",
     semantics=lambda a, b: ((U64(1) << (a & U32(63)).astype(U64)) - U64(1)) << (b & U32(63)).astype(U64))  # fmt: skip
sop2("mul_i32", "u32", np.multiply, doc="low 32 bits")
sop2("mul_hi_u32", "u32", mul_hi_u)
sop2("mul_hi_i32", "i32", mul_hi_i)


def _field(b: A, bits: int) -> tuple[A, A]:
    """Offset and width of a bit-field operand 0xWW00OO."""
    return b & U32(bits - 1), (b >> U32(16)) & U32(0x7F)


def _bfe(signed: bool, bits: int) -> Callable[..., A]:
    def apply(a: A, b: A) -> A:
        offset, width = _field(b, bits)
        width = np.minimum(width, U32(bits) - offset).astype(np.int64)
        x = a.astype(U64) >> offset.astype(U64)
        mask = np.where(width >= 64, U64(0xFFFFFFFFFFFFFFFF), (U64(1) << np.minimum(width, 63).astype(U64)) - U64(1))
        x = x & mask
        if signed:
            sign = np.where(width > 0, U64(1) << np.maximum(width - 1, 0).astype(U64), U64(0))
            x = (x ^ sign) - sign
        return x.astype({(32, False): U32, (32, True): I32, (64, False): U64, (64, True): I64}[bits, signed])

    return apply


sop2("bfe_u32", "u32", _bfe(False, 32), scc="nz", b="u32", doc="b is 0xWW00OO: width and offset")
sop2("bfe_i32", "i32", _bfe(True, 32), scc="nz", b="u32", doc="b is 0xWW00OO: width and offset, sign-extended")
sop2("bfe_u64", "u64", _bfe(False, 64), scc="nz", b="u32")
sop2("bfe_i64", "i64", _bfe(True, 64), scc="nz", b="u32")
sop2("absdiff_i32", "i32", lambda a, b: np.abs(a.astype(I64) - b).astype(I32), scc="nz")
for _n in (1, 2, 3, 4):

    def _lshl_add(a: A, b: A, n: int = _n) -> tuple[A, A]:
        wide = (a.astype(U64) << U64(n)) + b.astype(U64)
        return wide.astype(U32), wide > U64(0xFFFFFFFF)

    sop2(f"lshl{_n}_add_u32", "u32", _lshl_add, scc="out", doc=f"(a << {_n}) + b, SCC is the carry")
sop2("pack_ll_b32_b16", "u32", lambda a, b: (a & U32(0xFFFF)) | (b << U32(16)))
sop2("pack_lh_b32_b16", "u32", lambda a, b: (a & U32(0xFFFF)) | (b & U32(0xFFFF0000)))
sop2("pack_hh_b32_b16", "u32", lambda a, b: (a >> U32(16)) | (b & U32(0xFFFF0000)))

# ----------------------------------------------------------------------------------------------------------------- SOP1

sop1("mov_b32", "b32", "b32", lambda a: a)
sop1("mov_b64", "b64", "b64", lambda a: a)
for _bits, _t in (("b32", "u32"), ("b64", "u64")):
    inst(f"s_cmov_{_bits}", f"d=:s.{_t} <- a:snk.{_t}, scc", Unit.SALU, "SOP1",
         semantics=lambda d, a, c: np.where(c, a, d), doc="d = a if SCC")  # fmt: skip
    sop1(f"not_{_bits}", _t, _t, np.invert, scc="nz")


def _wide(fn: Callable[[A], A], reverse: bool = False) -> Callable[[A], A]:
    """A count over 64 bits from one over 32: `fn` gives -1 for zero; `reverse` counts from the top."""

    def apply(x: A) -> A:
        lo, hi = x.astype(U32), (x >> U64(32)).astype(U32)
        first, second = (hi, lo) if reverse else (lo, hi)
        a, b = fn(first).view(I32), fn(second).view(I32)
        return np.where(first != 0, a, np.where(second != 0, b + 32, -1)).astype(I32).view(U32)

    return apply


sop1("brev_b32", "u32", "u32", bit_reverse)
sop1("brev_b64", "u64", "u64", lambda x: (bit_reverse(x.astype(U32)).astype(U64) << U64(32))
     | bit_reverse((x >> U64(32)).astype(U32)))  # fmt: skip
sop1("bcnt1_i32_b32", "u32", "u32", popcount, scc="nz", doc="set bits")
sop1("bcnt1_i32_b64", "u32", "u64", lambda x: popcount(x.astype(U32)) + popcount((x >> U64(32)).astype(U32)), scc="nz")
sop1("bcnt0_i32_b32", "u32", "u32", lambda x: popcount(~x), scc="nz")
sop1(
    "bcnt0_i32_b64",
    "u32",
    "u64",
    lambda x: popcount((~x).astype(U32)) + popcount((~x >> U64(32)).astype(U32)),
    scc="nz",
)
sop1("ff0_i32_b32", "u32", "u32", lambda x: ffbl(~x))
sop1("ff1_i32_b32", "u32", "u32", ffbl, doc="lowest set bit, -1 for 0")
sop1("ff1_i32_b64", "u32", "u64", _wide(ffbl), doc="lowest set bit, -1 for 0")
sop1("ff0_i32_b64", "u32", "u64", lambda x: _wide(ffbl)(~x))
sop1("flbit_i32_b32", "u32", "u32", ffbh_u, doc="leading zeros, -1 for 0")
sop1("flbit_i32_b64", "u32", "u64", _wide(ffbh_u, True), doc="leading zeros, -1 for 0")
sop1("flbit_i32", "u32", "i32", ffbh_i)
sop1("sext_i32_i8", "i32", "u32", lambda x: bfe_i(x.view(I32), U32(0), U32(8)))
sop1("sext_i32_i16", "i32", "u32", lambda x: bfe_i(x.view(I32), U32(0), U32(16)))
sop1("abs_i32", "i32", "i32", lambda x: np.abs(x), scc="nz")
sop1("quadmask_b64", "u64", "u64", lambda x: _quads(x), scc="nz", doc="one bit per four bits: any set")
sop1("wqm_b64", "u64", "u64", lambda x: _wqm(x), scc="nz", doc="groups of four with any bit set, all set")


def _quads(x: A) -> A:
    out = x & U64(0)
    for i in range(16):
        out = out | (((x >> U64(4 * i)) & U64(15) != 0).astype(U64) << U64(i))
    return out


def _wqm(x: A) -> A:
    out = x & U64(0)
    for i in range(16):
        out = out | (((x >> U64(4 * i)) & U64(15) != 0).astype(U64) * U64(15) << U64(4 * i))
    return out


for _bits, _t in (("b32", "u32"), ("b64", "u64")):
    for _k, _op in ((0, lambda d, a, m: d & ~m), (1, lambda d, a, m: d | m)):
        inst(
            f"s_bitset{_k}_{_bits}",
            f"d=:s.{_t} <- a:snk.u32",
            Unit.SALU,
            "SOP1",
            semantics=lambda d, a, op=_op: op(
                d, a, d.dtype.type(1) << (a.astype(d.dtype) & d.dtype.type(8 * d.itemsize - 1))
            ),
        )
for _name, _fn in (
    ("and", lambda a, e: a & e),
    ("or", lambda a, e: a | e),
    ("xor", lambda a, e: a ^ e),
    ("andn2", lambda a, e: a & ~e),
    ("orn2", lambda a, e: a | ~e),
    ("nand", lambda a, e: ~(a & e)),
    ("nor", lambda a, e: ~(a | e)),
    ("xnor", lambda a, e: ~(a ^ e)),
    ("andn1", lambda a, e: ~a & e),
    ("orn1", lambda a, e: ~a | e),
):
    inst(f"s_{_name}_saveexec_b64", "d:s.b64, exec, scc <- a:snk.b64, exec", Unit.SALU, "SOP1",
         semantics=lambda a, e, fn=_fn: (e, fn(a, e), fn(a, e) != 0), doc="d = EXEC; EXEC = op(a, EXEC)")  # fmt: skip
for _name, _fn in (("andn1", lambda a, e: ~a & e), ("andn2", lambda a, e: a & ~e)):
    inst(f"s_{_name}_wrexec_b64", "d:s.b64, exec, scc <- a:snk.b64, exec", Unit.SALU, "SOP1",
         semantics=lambda a, e, fn=_fn: (fn(a, e), fn(a, e), fn(a, e) != 0), doc="d = EXEC = op(a, EXEC)")  # fmt: skip
inst("s_getpc_b64", "d:s.b64 <-", Unit.SALU, "SOP1", special="getpc", doc="address of the next instruction")
inst("s_setpc_b64", "a:s.b64", Unit.BRANCH, "SOP1", special="setpc", doc="jump to an address")
inst("s_swappc_b64", "d:s.b64 <- a:s.b64", Unit.BRANCH, "SOP1", special="setpc", doc="call an address")

# ----------------------------------------------------------------------------------------------------------------- SOPC

_COMPARE = {
    "eq": np.equal,
    "lg": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
}
for _name, _how in _COMPARE.items():
    for _t, _d in (("i32", I32), ("u32", U32)):
        inst(
            f"s_cmp_{_name}_{_t}",
            f"scc <- a:snk.{_t}, b:snk.{_t}",
            Unit.SALU,
            "SOPC",
            semantics=_how,
            doc="SCC = compare",
        )
        inst(f"s_cmpk_{_name}_{_t}", f"scc <- a:s.{_t}, b:i.{_t}", Unit.SALU, "SOPK", semantics=_how,
             imm=(-32768, 65535) if _t == "i32" else (0, 65535), doc="SCC = compare with a 16-bit constant",
             extra="sext16" if _t == "i32" else None)  # fmt: skip
for _name in ("eq", "lg"):
    inst(f"s_cmp_{_name}_u64", "scc <- a:snk.u64, b:snk.u64", Unit.SALU, "SOPC", semantics=_COMPARE[_name])
for _k in (0, 1):
    inst(
        f"s_bitcmp{_k}_b32",
        "scc <- a:snk.u32, b:snk.u32",
        Unit.SALU,
        "SOPC",
        semantics=lambda a, b, k=_k: (a >> (b & U32(31))) & U32(1) == k,
        doc="SCC: that bit of a has the value",
    )
    inst(f"s_bitcmp{_k}_b64", "scc <- a:snk.u64, b:snk.u32", Unit.SALU, "SOPC",
         semantics=lambda a, b, k=_k: (a >> (b & U32(63)).astype(U64)) & U64(1) == U64(k))  # fmt: skip

# ----------------------------------------------------------------------------------------------------------------- SOPK

SIMM16 = (-32768, 65535)
inst("s_movk_i32", "d:s.i32 <- a:i.i32", Unit.SALU, "SOPK", semantics=lambda a: a, imm=SIMM16, extra="sext16")
inst(
    "s_cmovk_i32",
    "d=:s.i32 <- a:i.i32, scc",
    Unit.SALU,
    "SOPK",
    semantics=lambda d, a, c: np.where(c, a, d),
    imm=SIMM16,
    extra="sext16",
)
inst("s_addk_i32", "d=:s.i32, scc <- a:i.i32", Unit.SALU, "SOPK", imm=SIMM16, extra="sext16",
     semantics=lambda d, a: (d + a, _overflow(d, a, d + a, False)))  # fmt: skip
inst("s_mulk_i32", "d=:s.i32 <- a:i.i32", Unit.SALU, "SOPK", semantics=lambda d, a: d * a, imm=SIMM16, extra="sext16")
inst(
    "s_getreg_b32",
    "d:s.u32 <- r:h.u32",
    Unit.SALU,
    "SOPK",
    special="getreg",
    hazard=("getreg",),
    doc="read a hardware register",
)
inst(
    "s_setreg_b32",
    "r:h.u32, a:s.u32",
    Unit.SALU,
    "SOPK",
    special="setreg",
    hazard=("setreg",),
    doc="write a hardware register",
)
inst("s_setreg_imm32_b32", "r:h.u32, a:nk.u32", Unit.SALU, "SOPK", special="setreg", hazard=("setreg",))
inst("s_call_b64", "d:s.b64 <- target:l", Unit.BRANCH, "SOPK", special="call", doc="d = return address; jump")

# ----------------------------------------------------------------------------------------------------------------- SOPP


def _branch(name: str, reads: str, doc: str) -> None:
    spec = "target:l" + (f", {reads}" if reads else "")
    inst(f"s_{name}", spec, Unit.BRANCH, "SOPP", special="branch", extra=name, doc=doc)


_branch("branch", "", "jump")
_branch("cbranch_scc0", "scc", "jump if SCC is 0")
_branch("cbranch_scc1", "scc", "jump if SCC is 1")
_branch("cbranch_vccz", "vcc", "jump if VCC is 0")
_branch("cbranch_vccnz", "vcc", "jump if VCC is not 0")
_branch("cbranch_execz", "exec", "jump if no lane is active")
_branch("cbranch_execnz", "exec", "jump if a lane is active")
inst("s_endpgm", "", Unit.SALU, "SOPP", special="endpgm", doc="end of the wave")
inst(
    "s_barrier",
    "",
    Unit.BARRIER,
    "SOPP",
    special="barrier",
    doc="all waves of the workgroup arrive; waits for no counter",
)
inst(
    "s_waitcnt",
    "count:h",
    Unit.WAITCNT,
    "SOPP",
    special="waitcnt",
    doc="wait until counters are at most these values",
    modifiers=("vmcnt", "expcnt", "lgkmcnt"),
)
inst("s_nop", "n:i", Unit.NOP, "SOPP", special="nop", imm=(0, 15), doc="n + 1 wait states")
inst("s_sleep", "n:i", Unit.SALU, "SOPP", special="nothing", imm=(0, 127), extra="sleep",
     doc="about 64 n clocks")  # fmt: skip
inst("s_setprio", "n:i", Unit.SALU, "SOPP", special="nothing", imm=(0, 3), extra="priority",
     doc="priority of the wave")  # fmt: skip
inst("s_sethalt", "n:i", Unit.SALU, "SOPP", special="nothing", imm=(0, 1), doc="halt until the host resumes")
inst("s_trap", "n:i", Unit.SALU, "SOPP", special="trap", imm=(0, 255), doc="enter the trap handler")
inst("s_sendmsg", "m:h", Unit.SALU, "SOPP", special="nothing", counters=("lgkmcnt",), hazard=("sendmsg", "reads_m0"),
     doc="message to the host")  # fmt: skip
inst("s_icache_inv", "", Unit.SALU, "SOPP", special="nothing", doc="drop the instruction cache")
inst("s_wakeup", "", Unit.SALU, "SOPP", special="nothing", doc="wake waves that sleep")
inst("s_ttracedata", "", Unit.SALU, "SOPP", special="nothing", doc="M0 to the thread trace")

# -------------------------------------------------------------------------------------------------------- scalar memory

for _n in (1, 2, 4, 8, 16):
    _x = f"x{_n}" if _n > 1 else ""
    inst(
        f"s_load_dword{_x}",
        f"d:s*{_n}.b32 <- base:s.b64, offset:sk.u32",
        Unit.SMEM,
        "SMEM",
        special="smem",
        counters=("lgkmcnt",),
        modifiers=("offset", "glc"),
        mem=Mem("load", 4 * _n),
        doc=f"{_n} dwords from base + offset",
    )
    inst(f"s_buffer_load_dword{_x}", f"d:s*{_n}.b32 <- base:s*4.b32, offset:sk.u32", Unit.SMEM, "SMEM", special="smem",
         counters=("lgkmcnt",), modifiers=("offset", "glc"), mem=Mem("load", 4 * _n, function="buffer"),
         doc=f"{_n} dwords through a buffer descriptor")  # fmt: skip
for _name in ("s_memtime", "s_memrealtime"):
    inst(_name, "d:s.b64 <-", Unit.SMEM, "SMEM", special="time", counters=("lgkmcnt",), doc="a clock")
for _name in ("s_dcache_wb", "s_dcache_inv"):
    inst(_name, "", Unit.SMEM, "SMEM", special="nothing", counters=("lgkmcnt",), doc="scalar cache maintenance")
inst("s_dcache_inv_vol", "", Unit.SMEM, "SMEM", special="nothing", counters=("lgkmcnt",), targets=GFX90A)
