"""Vector instruction rows: VOP1, VOP2, VOP3, VOP3P, VOPC, and their NumPy meaning.

In: typed arrays that broadcast to [wave, lane]; out: the same. The engine applies EXEC, neg/abs, clamp, omod, op_sel,
DPP, SDWA and the denormal mode, so a row says only what the operation computes. Packed rows (VOP3P) are written for
one half and applied to both. Rows that differ only in a ufunc are one line.

Accuracy: transcendental rows are rounded from f64; hardware is within 1 ulp of that. f32 FMA rounds once.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from wavedsl.codegen.amdgcn.isa import CDNA3_UP, CDNA4, Unit, inst
from wavedsl.ir import rounding

A = Any
GFX90A = frozenset(("gfx90a",))
_NO_SDWA = ("_e32", "_e64", "_dpp")
POLES_F16 = ("v_rcp_f16", "v_rsq_f16", "v_log_f16", "v_div_fixup_f16")
"""Rows of halves with a finite source, zero, of which the result is infinite."""
QUARTER: dict[str, Any] = {"latency": 16, "issue": 16}
U32, I32, U64, I64 = np.uint32, np.int32, np.uint64, np.int64
F32, F64, F16 = np.float32, np.float64, np.float16

# ----------------------------------------------------------------------------------------------------------- arithmetic


def f(x: A) -> A:
    return np.asarray(x).astype(F64)


def fma32(a: A, b: A, c: A) -> A:
    """One rounding. The product is exact in f64; a sum that lands on an f32 tie is nudged by its own error (round to
    odd).
    """
    c = np.asarray(c).astype(F64)
    p = f(a) * b
    s = p + c
    low = s.view(I64) & 0x1FFFFFFF
    risky = (low == 0x10000000) | (np.abs(s) < 2.0**-125)
    if risky.any():
        s = np.where(risky & np.isfinite(s), _to_odd(p, c, s), s)
    return s.astype(F32)


def _to_odd(a: A, b: A, s: A) -> A:
    """`s` = a + b in f64 with its last bit set to odd when the sum was inexact."""
    t = s - a
    error = (a - (s - t)) + (b - t)
    bits = s.view(I64)
    toward = np.where((error > 0) == (s > 0), 0, -1)
    odd = np.where((error != 0) & (bits & 1 == 0), np.where(toward < 0, bits - 1, bits + 1), bits)
    return odd.view(F64)


def fma16(a: A, b: A, c: A) -> A:
    p, c = f(a) * f(b), f(c)
    s = p + c
    return np.where(np.isfinite(s), _to_odd(p + 0 * s, c + 0 * s, s), s).astype(F16)


def fma64(a: A, b: A, c: A) -> A:
    """One rounding."""
    return rounding.fma(f(a), f(b), f(c))


def lshl(x: A, n: A) -> A:
    return x << (n & U32(31))


def lshr(x: A, n: A) -> A:
    return x >> (n & U32(31))


def ashr(x: A, n: A) -> A:
    return x >> (n & U32(31)).astype(I32)


def bfe_u(x: A, offset: A, width: A) -> A:
    width = (width & U32(31)).astype(U64)
    return ((x.astype(U64) >> (offset & U32(31)).astype(U64)) & ((U64(1) << width) - U64(1))).astype(U32)


def bfe_i(x: A, offset: A, width: A) -> A:
    width = (width & U32(31)).astype(I64)
    field = x.astype(I64) >> (offset & U32(31)).astype(I64) & ((I64(1) << width) - I64(1))
    sign = np.where(width > 0, I64(1) << np.maximum(width - 1, 0), 0)
    return ((field ^ sign) - sign).astype(I32)


def bit_reverse(x: A) -> A:
    for step, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        x = ((x >> U32(step)) & U32(mask)) | ((x & U32(mask)) << U32(step))
    return x


def popcount(x: A) -> A:
    x = x - ((x >> U32(1)) & U32(0x55555555))
    x = (x & U32(0x33333333)) + ((x >> U32(2)) & U32(0x33333333))
    x = (x + (x >> U32(4))) & U32(0x0F0F0F0F)
    return (x * U32(0x01010101)) >> U32(24)


def highest(x: A) -> A:
    """Position of the highest set bit of a u32 as int64, -1 for 0."""
    return np.frexp(x.astype(F64))[1].astype(I64) - 1


def ffbh_u(x: A) -> A:
    return np.where(x == 0, -1, 31 - highest(x)).astype(I32).view(U32)


def ffbh_i(x: A) -> A:
    y = np.where(x < 0, ~x, x).astype(U32)
    return np.where(y == 0, -1, 31 - highest(y)).astype(I32).view(U32)


def ffbl(x: A) -> A:
    low = x & (~x + U32(1))
    return np.where(x == 0, -1, highest(low)).astype(I32).view(U32)


def perm(a: A, b: A, sel: A) -> A:
    """Byte i of the result is chosen by byte i of sel: 0-3 from b, 4-7 from a, 8-11 sign bytes, 12 zero, >12 ones."""
    both = (a.astype(U64) << U64(32)) | b.astype(U64)
    out = U32(0)
    for i in range(4):
        s = (sel >> U32(8 * i)) & U32(255)
        byte = (both >> ((s & U32(7)).astype(U64) * U64(8))) & U64(255)
        sign = (both >> (((s & U32(3)) * U32(16) + U32(15)).astype(U64))) & U64(1)
        byte = np.where(s < 8, byte, np.where(s < 12, sign * U64(255), np.where(s == 12, U64(0), U64(255))))
        out = out | (byte.astype(U32) << U32(8 * i))
    return out


def i24(x: A) -> A:
    return ((x.astype(I64) & 0xFFFFFF) ^ 0x800000) - 0x800000


def u24(x: A) -> A:
    return x.astype(U64) & U64(0xFFFFFF)


def mul_hi_u(a: A, b: A) -> A:
    return ((a.astype(U64) * b.astype(U64)) >> U64(32)).astype(U32)


def mul_hi_i(a: A, b: A) -> A:
    return ((a.astype(I64) * b.astype(I64)) >> 32).astype(I32)


def sat_int(x: A, lo: int, hi: int, dtype: Any) -> A:
    """Truncate toward zero and saturate; NaN is 0."""
    x = np.trunc(f(x))
    return np.where(np.isnan(x), 0.0, np.clip(x, lo, hi)).astype(dtype)


def to_i32(x: A) -> A:
    return sat_int(x, -(2**31), 2**31 - 1, I64).astype(I32)


def to_u32(x: A) -> A:
    return sat_int(x, 0, 2**32 - 1, I64).astype(U32)


def bf16_bits(x: A) -> A:
    """f32 → bf16 bits (as u32), round to nearest even, NaN kept quiet."""
    u = np.asarray(x, F32).view(U32)
    rounded = (u + U32(0x7FFF) + ((u >> U32(16)) & U32(1))) >> U32(16)
    return np.where(np.isnan(x), (u >> U32(16)) | U32(0x40), rounded)


def f16_bits(x: A) -> A:
    return np.asarray(x).astype(F16).view(np.uint16).astype(U32)


def rtz16(x: A) -> A:
    """f32 → f16 bits, toward zero."""
    x = np.asarray(x, F32)
    h = x.astype(F16)
    over = np.abs(h.astype(F32)) > np.abs(x)
    return (h.view(np.uint16) - (over & np.isfinite(x)).astype(np.uint16)).astype(U32)


def pack(lo: A, hi: A) -> A:
    return (lo & U32(0xFFFF)) | (hi << U32(16))


def fmin(a: A, b: A) -> A:
    """The number where one is NaN; -0 is less than +0."""
    both = (a == 0) & (b == 0)
    out = np.fmin(a, b)
    return np.where(both & np.signbit(b), b, np.where(both, a, out)) if both.any() else out


def fmax(a: A, b: A) -> A:
    both = (a == 0) & (b == 0)
    out = np.fmax(a, b)
    return np.where(both & np.signbit(a), b, np.where(both, a, out)) if both.any() else out


def med3(a: A, b: A, c: A) -> A:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def fmed3(a: A, b: A, c: A) -> A:
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(nan, fmin(fmin(a, b), c), fmax(fmin(a, b), fmin(fmax(a, b), c)))


def ldexp(x: A, n: A) -> A:
    return np.ldexp(f(x), np.clip(n, -2200, 2200).astype(np.int32))


def exponent(x: A) -> A:
    """The biased exponent field."""
    return (x.view(U32) >> U32(23) & U32(255)).astype(I64) if x.dtype == F32 else x.view(I64) >> 52 & 0x7FF


def div_scale(s0: A, den: A, num: A) -> tuple[A, A]:
    """Scale numerator or denominator so that the Newton steps neither over- nor underflow; VCC asks div_fmas to undo
    it.
    """
    s0, den, num = (np.ascontiguousarray(x) for x in np.broadcast_arrays(s0, den, num))
    single = s0.dtype == F32
    near_max, power, tiny_exp, tiny = (96, 64, 23, 2.0**-126) if single else (768, 128, 53, 2.0**-1022)
    up, down = s0 * s0.dtype.type(2.0**power), s0 * s0.dtype.type(2.0**-power)
    e_num, e_den = exponent(num), exponent(den)
    bias = 127 if single else 1023
    if single:
        q, inverse = np.abs(f(num) / f(den)), np.abs(1.0 / f(den))
        q_denorm, inv_denorm = (q < tiny) & (q > 0), (inverse < tiny) & (inverse > 0)
    else:
        q_denorm = (e_num - e_den + bias < 1) & (e_num > 0)
        inv_denorm = e_den > 2 * bias - 2
    is_den = s0.view(U32 if single else U64) == den.view(U32 if single else U64)
    is_num = s0.view(U32 if single else U64) == num.view(U32 if single else U64)
    zero = (num == 0) | (den == 0)
    overflow = ~zero & (e_num - e_den >= near_max)
    denormal = ~zero & ~overflow & (e_den == 0)
    rest = ~zero & ~overflow & ~denormal
    both, inv, quot = rest & inv_denorm & q_denorm, rest & inv_denorm & ~q_denorm, rest & ~inv_denorm & q_denorm
    small = rest & ~inv_denorm & ~q_denorm & (e_num <= tiny_exp)
    d = np.where(zero, s0.dtype.type(np.nan), s0)
    d = np.where((overflow & is_den) | denormal | (quot & is_num) | small, up, d)
    d = np.where((both & is_den) | inv, down, d)
    return d, overflow | both | quot


def div_fmas32(a: A, b: A, c: A, vcc: A) -> A:
    """FMA and the undoing of div_scale with one rounding: the exact sum is scaled in f64."""
    c = np.asarray(c)
    p, z = f(a) * b, f(c)
    s = p + z
    s = np.where(np.isfinite(s), _to_odd(p, z, s), s)
    up = exponent(np.ascontiguousarray(np.broadcast_to(c, s.shape))) > 127
    return np.where(vcc, s * np.where(up, 2.0**64, 2.0**-64), s).astype(F32)


def div_fmas64(a: A, b: A, c: A, vcc: A) -> A:
    """The same in f64: where the scaled sum is denormal it is worked out as a fraction, and rounded once."""
    a, b, c, vcc = np.broadcast_arrays(a, b, c, vcc)
    r = fma64(a, b, c)
    up = exponent(np.ascontiguousarray(c)) > 1023
    out = np.where(vcc, r * np.where(up, 2.0**128, 2.0**-128), r)
    for at in np.argwhere(vcc & ~up & np.isfinite(r) & (np.abs(out) < 2.0**-1021)):
        i = tuple(at)
        exact = (Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))) / (1 << 128)
        if exact:
            out[i] = exact.numerator / exact.denominator
    return out


def div_fixup(q: A, den: A, num: A) -> A:
    """Special cases of num / den, and the sign, put onto the computed quotient."""
    dtype = np.result_type(q, den, num)
    negative = np.signbit(den) ^ np.signbit(num)
    out = np.abs(q)
    bias = {2: 15, 4: 127, 8: 1023}[dtype.itemsize]
    if dtype.itemsize > 2:
        en, ed = (exponent(np.ascontiguousarray(np.asarray(x, dtype))) for x in np.broadcast_arrays(num, den))
        out = np.where(en - ed < -(bias + 23 if bias == 127 else bias + 52), 0, out)
        out = np.where(np.isnan(q) & (en > ed), np.inf, out)  # the quotient overflowed on the way
    out = np.where(np.isinf(den) | (num == 0), 0, out)
    out = np.where((den == 0) | np.isinf(num), np.inf, out)
    out = np.where(negative, -out, out)
    invalid = ((den == 0) & (num == 0)) | (np.isinf(den) & np.isinf(num)) | np.isnan(den) | np.isnan(num)
    return np.where(invalid, np.nan, out).astype(dtype)


def fp8(dtype: Any) -> Callable[[A], A]:
    return lambda x: np.asarray(x, F32).astype(dtype).view(np.uint8).astype(U32)


def from_fp8(dtype: Any) -> Callable[[A], A]:
    def convert(x: A) -> A:
        return (np.asarray(x) & U32(255)).astype(np.uint8).view(dtype).astype(F32)

    return convert


# ----------------------------------------------------------------------------------------------------- row constructors


def vop1(name: str, to: str, of: str, fn: Callable[..., A], **kw: Any) -> None:
    inst(f"v_{name}", f"d:v.{to} <- a:vs.{of}", kw.pop("unit", Unit.VALU), "VOP1", semantics=fn, **kw)


def vop2(name: str, ty: str, fn: Callable[..., A], **kw: Any) -> None:
    inst(f"v_{name}", f"d:v.{ty} <- a:vs.{ty}, b:vs.{ty}", Unit.VALU, "VOP2", semantics=fn, **kw)


def vop3(name: str, spec: str, fn: Callable[..., A] | None = None, **kw: Any) -> None:
    """`spec` is terse: "f32 <- f32 f32 f32"; operands are a, b, c."""
    to, of = (s.split() for s in spec.split("<-"))
    sources = ", ".join(f"{n}:vs.{t}" for n, t in zip("abcd", of))
    kw.setdefault("unit", Unit.VALU)
    inst(f"v_{name}", f"d:v.{to[0]} <- {sources}", kw.pop("unit"), kw.pop("encoding", "VOP3"), semantics=fn, **kw)


def packed(name: str, ty: str, n: int, fn: Callable[..., A] | None, **kw: Any) -> None:
    """A VOP3P row; `fn` is the meaning for one half."""
    vop3(name, f"{ty} <- {' '.join([ty] * n)}", fn, encoding="VOP3P", **kw)


def trans(name: str, ty: str, fn: Callable[..., A], **kw: Any) -> None:
    fn64 = lambda x: fn(f(x)).astype({"f32": F32, "f16": F16, "f64": F64}[ty])  # noqa: E731
    kw.setdefault("doc", "transcendental: quarter rate, 1 ulp")
    vop1(name, ty, ty, fn64, unit=Unit.TRANS, hazard=("trans",), flush=ty == "f32", **kw)


# ----------------------------------------------------------------------------------------------------------- VOP1 moves

vop1("mov_b32", "b32", "b32", lambda a: a, doc="d = a")
vop1(
    "mov_b64",
    "b64",
    "b64",
    lambda a: a,
    doc="d = a, 64 bits",
    targets=CDNA3_UP,
    hazard=("carries_up",),
    forms=_NO_SDWA,
)
vop1("not_b32", "u32", "u32", np.invert)
vop1("bfrev_b32", "u32", "u32", bit_reverse, doc="bits in reverse order")
vop1("ffbh_u32", "u32", "u32", ffbh_u, doc="leading zeros, -1 for 0")
vop1("ffbh_i32", "u32", "i32", ffbh_i, doc="leading sign copies, -1 for 0 and -1")
vop1("ffbl_b32", "u32", "u32", ffbl, doc="trailing zeros, -1 for 0")
inst("v_swap_b32", "a=:v.b32, b=:v.b32 <-", Unit.VALU, "VOP1", semantics=lambda a, b: (b, a), forms=("_e32",),
     doc="exchange two VGPRs")  # fmt: skip
inst("v_nop", "", Unit.VALU, "VOP1", special="nothing", forms=("_e32", "_e64"), doc="nothing, for one issue")
inst("v_clrexcp", "", Unit.VALU, "VOP1", special="nothing", forms=("_e32", "_e64"), doc="clear exceptions")
inst("v_readfirstlane_b32", "d:s.b32 <- a:v.b32", Unit.VALU, "VOP1", special="readfirstlane", forms=("_e32",),
     hazard=("readlane", "readfirstlane"), doc="value of the first active lane")  # fmt: skip
inst("v_readlane_b32", "d:s.b32 <- a:v.b32, lane:sn.u32", Unit.VALU, "VOP3", special="readlane",
     hazard=("readlane", "lane_select"), doc="value of one lane, active or not")  # fmt: skip
inst("v_writelane_b32", "d=:v.b32 <- a:sn.b32, lane:sn.u32", Unit.VALU, "VOP3", special="writelane",
     hazard=("writelane", "lane_select"), doc="write one lane, active or not")  # fmt: skip
inst("v_accvgpr_read_b32", "d:v.b32 <- a:a.b32", Unit.ACCMOVE, "VOP3P", semantics=lambda a: a, modifiers=(),
     doc="AGPR to VGPR")  # fmt: skip
inst("v_accvgpr_write_b32", "d:a.b32 <- a:vsn.b32", Unit.ACCMOVE, "VOP3P", semantics=lambda a: a, doc="VGPR to AGPR")
inst("v_accvgpr_mov_b32", "d:a.b32 <- a:a.b32", Unit.ACCMOVE, "VOP1", semantics=lambda a: a, forms=("_e32",),
     doc="AGPR to AGPR")  # fmt: skip
for _n in (16, 32):
    inst(f"v_permlane{_n}_swap_b32", "a=:v.b32, b=:v.b32 <-", Unit.VALU, "VOP1", special="permlane_swap",
         hazard=("permlane_swap",), targets=CDNA4, extra=_n, forms=("_e32", "_e64"),
         doc=f"exchange odd {_n}-lane groups of a with even groups of b")  # fmt: skip
vop1("prng_b32", "u32", "u32", lambda x: (x << U32(1)) ^ np.where(x >> U32(31), U32(0xC5), U32(0)), targets=CDNA4,
     doc="one step of a linear feedback shift register")  # fmt: skip

# ----------------------------------------------------------------------------------------------------- VOP1 conversions

vop1("cvt_f32_i32", "f32", "i32", lambda a: a.astype(F32))
vop1("cvt_f32_u32", "f32", "u32", lambda a: a.astype(F32))
vop1("cvt_i32_f32", "i32", "f32", to_i32, doc="truncate, saturate, NaN is 0")
vop1("cvt_u32_f32", "u32", "f32", to_u32, doc="truncate, saturate, NaN is 0")
vop1("cvt_rpi_i32_f32", "i32", "f32", lambda a: to_i32(np.floor(f(a) + 0.5)))
vop1("cvt_flr_i32_f32", "i32", "f32", lambda a: to_i32(np.floor(a)))
vop1("cvt_f16_f32", "f16", "f32", lambda a: a.astype(F16), doc="round to nearest even")
vop1("cvt_f32_f16", "f32", "f16", lambda a: a.astype(F32))
vop1("cvt_f32_bf16", "f32", "u16", lambda a: (a.astype(U32) << U32(16)).view(F32), targets=CDNA4)
vop1("cvt_f64_i32", "f64", "i32", f)
vop1("cvt_f64_u32", "f64", "u32", f)
vop1("cvt_f64_f32", "f64", "f32", f)
vop1("cvt_f32_f64", "f32", "f64", lambda a: a.astype(F32))
vop1("cvt_i32_f64", "i32", "f64", to_i32)
vop1("cvt_u32_f64", "u32", "f64", to_u32)
vop1("cvt_f16_u16", "f16", "u16", lambda a: a.astype(F16))
vop1("cvt_f16_i16", "f16", "i16", lambda a: a.astype(F16))
vop1("cvt_u16_f16", "u16", "f16", lambda a: sat_int(a, 0, 65535, np.uint16))
vop1("cvt_i16_f16", "i16", "f16", lambda a: sat_int(a, -32768, 32767, np.int16))
vop1(
    "cvt_norm_i16_f16", "i16", "f16", lambda a: sat_int(np.rint(np.clip(f(a), -1, 1) * 32767), -32768, 32767, np.int16)
)
vop1("cvt_norm_u16_f16", "u16", "f16", lambda a: sat_int(np.rint(np.clip(f(a), 0, 1) * 65535), 0, 65535, np.uint16))
vop1(
    "sat_pk_u8_i16",
    "u32",
    "u32",
    lambda a: (
        np.clip((a & U32(0xFFFF)).astype(np.uint16).view(np.int16), 0, 255).astype(U32)
        | (np.clip((a >> U32(16)).astype(np.uint16).view(np.int16), 0, 255).astype(U32) << U32(8))
    ),
)
for _i in range(4):
    vop1(f"cvt_f32_ubyte{_i}", "f32", "u32", lambda a, i=_i: ((a >> U32(8 * i)) & U32(255)).astype(F32),
         doc=f"byte {_i} as a float")  # fmt: skip
vop1("cvt_off_f32_i4", "f32", "u32", lambda a: (((a & U32(15)).astype(I32) ^ 8) - 8).astype(F32) / F32(16))
for _on, _e4, _e5 in ((frozenset(("gfx942",)), ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz),
                      (CDNA4, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)):  # fmt: skip
    for _s, _t in (("fp8", _e4), ("bf8", _e5)):
        vop1(f"cvt_f32_{_s}", "f32", "u32", from_fp8(_t), targets=_on, forms=("_e32", "_e64", "_sdwa"),
             doc="byte 0 (byte 1 by SDWA) as a float")  # fmt: skip
        inst(f"v_cvt_pk_f32_{_s}", "d:v*2.f32x2 <- a:vs.u32", Unit.VALU, "VOP1", targets=_on, special="cvt_pk_f32_fp8",
             extra=_t, forms=("_e32", "_e64", "_sdwa"), doc="two bytes as two floats")  # fmt: skip
        inst(
            f"v_cvt_pk_{_s}_f32",
            "d=:v.u32 <- a:vs.f32, b:vs.f32",
            Unit.VALU,
            "VOP3",
            targets=_on,
            special="cvt_pk_fp8",
            extra=_t,
            modifiers=("op_sel",),
            doc="two floats to the half op_sel names, RNE",
        )
        inst(
            f"v_cvt_sr_{_s}_f32",
            "d=:v.u32 <- a:vs.f32, b:vs.u32",
            Unit.VALU,
            "VOP3",
            targets=_on,
            special="cvt_sr_fp8",
            extra=_t,
            modifiers=("op_sel",),
            doc="stochastic rounding to one byte",
        )

# ----------------------------------------------------------------------------------------------- VOP1 rounding, special

for _t in ("f16", "f32", "f64"):
    for _name, _fn in (("trunc", np.trunc), ("ceil", np.ceil), ("floor", np.floor), ("rndne", np.rint)):
        vop1(f"{_name}_{_t}", _t, _t, _fn)
    _one = {"f16": F16(0.99951172), "f32": np.nextafter(F32(1), F32(0)), "f64": np.nextafter(1.0, 0.0)}[_t]
    vop1(f"fract_{_t}", _t, _t, lambda a, one=_one: np.minimum(a - np.floor(a), one))
    vop1(f"frexp_mant_{_t}", _t, _t, lambda a: np.where(np.isfinite(a), np.frexp(a)[0], a))
    trans(f"rcp_{_t}", _t, lambda a: 1.0 / a)
    trans(f"rsq_{_t}", _t, lambda a: 1.0 / np.sqrt(a))
    trans(f"sqrt_{_t}", _t, np.sqrt)
for _t in ("f32", "f64"):
    vop1(f"frexp_exp_i32_{_t}", "i32", _t, lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(I32))
vop1("frexp_exp_i16_f16", "i16", "f16", lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(np.int16))
trans("rcp_iflag_f32", "f32", lambda a: 1.0 / a)


def _turns(fn: Callable[..., A]) -> Callable[..., A]:
    """Sine or cosine of turns: beyond 256 turns as of 0, NaN for infinities."""
    return lambda a: np.where(
        np.isinf(a), np.nan, np.where(np.abs(a) > 256.0, fn(0.0), fn(2 * np.pi * (a - np.rint(a))))
    )


for _t in ("f16", "f32"):
    trans(f"exp_{_t}", _t, np.exp2, doc="2 to the a; quarter rate, 1 ulp")
    trans(f"log_{_t}", _t, np.log2, doc="base 2 logarithm; quarter rate, 1 ulp")
    trans(f"sin_{_t}", _t, _turns(np.sin), doc="sine of a in turns")
    trans(f"cos_{_t}", _t, _turns(np.cos), doc="cosine of a in turns")
trans("exp_legacy_f32", "f32", np.exp2)
trans("log_legacy_f32", "f32", np.log2)

# ----------------------------------------------------------------------------------------------------------------- VOP2

inst("v_cndmask_b32", "d:v.b32 <- a:vs.b32, b:vs.b32, m:s.mask", Unit.VALU, "VOP2",
     semantics=lambda a, b, m: np.where(m, b, a), doc="b where the lane's bit is set, else a")  # fmt: skip
for _t in ("f16", "f32"):
    vop2(f"add_{_t}", _t, np.add)
    vop2(f"sub_{_t}", _t, np.subtract)
    vop2(f"subrev_{_t}", _t, lambda a, b: b - a, doc="b - a")
    vop2(f"mul_{_t}", _t, np.multiply)
    vop2(f"min_{_t}", _t, fmin, doc="the number, if one is NaN")
    vop2(f"max_{_t}", _t, fmax, doc="the number, if one is NaN")
vop3(
    "mul_legacy_f32",
    "f32 <- f32 f32",
    lambda a, b: np.where((a == 0) | (b == 0), F32(0), a * b),
    doc="0 times anything is 0",
    forms=("_e64",),
)
for _t in ("i32", "u32", "i16", "u16"):
    vop2(f"min_{_t}", _t, np.minimum)
    vop2(f"max_{_t}", _t, np.maximum)
vop2("mul_i32_i24", "i32", lambda a, b: (i24(a) * i24(b)).astype(I32))
vop2("mul_hi_i32_i24", "i32", lambda a, b: (i24(a) * i24(b) >> 32).astype(I32))
vop2("mul_u32_u24", "u32", lambda a, b: (u24(a) * u24(b)).astype(U32))
vop2("mul_hi_u32_u24", "u32", lambda a, b: (u24(a) * u24(b) >> U64(32)).astype(U32))
vop2("lshrrev_b32", "u32", lambda a, b: lshr(b, a), doc="b >> a")
vop2("lshlrev_b32", "u32", lambda a, b: lshl(b, a), doc="b << a")
inst(
    "v_ashrrev_i32", "d:v.i32 <- a:vs.u32, b:vs.i32", Unit.VALU, "VOP2", semantics=lambda a, b: ashr(b, a), doc="b >> a"
)
vop2("and_b32", "u32", np.bitwise_and)
vop2("or_b32", "u32", np.bitwise_or)
vop2("xor_b32", "u32", np.bitwise_xor)
vop2("xnor_b32", "u32", lambda a, b: ~(a ^ b))
for _t in ("u32", "u16"):
    vop2(f"add_{_t}", _t, np.add, extra=np.add)
    vop2(f"sub_{_t}", _t, np.subtract, extra=np.subtract)
    vop2(f"subrev_{_t}", _t, lambda a, b: b - a, extra=lambda a, b: b - a, doc="b - a")
vop2("mul_lo_u16", "u16", np.multiply)
vop2("lshlrev_b16", "u16", lambda a, b: b << (a & np.uint16(15)))
vop2("lshrrev_b16", "u16", lambda a, b: b >> (a & np.uint16(15)))
vop2("ashrrev_i16", "i16", lambda a, b: b >> (a & np.int16(15)))
inst("v_ldexp_f16", "d:v.f16 <- a:vs.f16, b:vs.i16", Unit.VALU, "VOP2", semantics=lambda a, b: ldexp(a, b).astype(F16),
     doc="a times 2 to the b")  # fmt: skip


def _carry(name: str, fn: Callable[..., A], uses_carry: bool) -> None:
    spec = "d:v.u32, co:s.mask <- a:vs.u32, b:vs.u32" + (", ci:s.mask" if uses_carry else "")

    def apply(a: A, b: A, c: A = 0) -> tuple[A, A]:
        wide = fn(a.astype(I64), b.astype(I64), np.asarray(c).astype(I64))
        return wide.astype(U32), (wide < 0) | (wide > 0xFFFFFFFF)

    inst(f"v_{name}", spec, Unit.VALU, "VOP2", semantics=apply, hazard=("carry",), doc="32 bits and a carry per lane")


_carry("add_co_u32", lambda a, b, c: a + b, False)
_carry("sub_co_u32", lambda a, b, c: a - b, False)
_carry("subrev_co_u32", lambda a, b, c: b - a, False)
_carry("addc_co_u32", lambda a, b, c: a + b + c, True)
_carry("subb_co_u32", lambda a, b, c: a - b - c, True)
_carry("subbrev_co_u32", lambda a, b, c: b - a - c, True)
inst(
    "v_fmac_f32",
    "d=:v.f32 <- a:vs.f32, b:vs.f32",
    Unit.VALU,
    "VOP2",
    forms=_NO_SDWA,
    semantics=lambda d, a, b: fma32(a, b, d),
    doc="d += a b, one rounding",
)
inst("v_fmac_f64", "d=:v.f64 <- a:vs.f64, b:vs.f64", Unit.VALU, "VOP2", semantics=lambda d, a, b: fma64(a, b, d),
     hazard=("f64_fma",))  # fmt: skip
inst(
    "v_mac_f32",
    "d=:v.f32 <- a:vs.f32, b:vs.f32",
    Unit.VALU,
    "VOP2",
    forms=_NO_SDWA,
    semantics=lambda d, a, b: a * b + d,
    targets=GFX90A,
)
for _name, _on in (("fmaak", CDNA3_UP), ("madak", GFX90A)):
    inst(f"v_{_name}_f32", "d:v.f32 <- a:vsn.f32, b:v.f32, k:nk.f32", Unit.VALU, "VOP2", forms=(), targets=_on,
         semantics=fma32 if _name == "fmaak" else lambda a, b, c: a * b + c, doc="a b + literal")  # fmt: skip
for _name, _on in (("fmamk", CDNA3_UP), ("madmk", GFX90A)):
    inst(f"v_{_name}_f32", "d:v.f32 <- a:vsn.f32, k:nk.f32, c:v.f32", Unit.VALU, "VOP2", forms=(), targets=_on,
         semantics=fma32 if _name == "fmamk" else lambda a, b, c: a * b + c, doc="a literal + c")  # fmt: skip

# ----------------------------------------------------------------------------------------------------------------- VOP3

vop3("fma_f32", "f32 <- f32 f32 f32", fma32, doc="a b + c, one rounding")
vop3("fma_f64", "f64 <- f64 f64 f64", fma64, latency=8, hazard=("f64_fma",), doc="a b + c, one rounding")
vop3("fma_f16", "f16 <- f16 f16 f16", fma16, doc="a b + c, one rounding")
vop3("mad_f32", "f32 <- f32 f32 f32", lambda a, b, c: a * b + c, targets=GFX90A, doc="a b + c, two roundings")
vop3("mad_f16", "f16 <- f16 f16 f16", lambda a, b, c: a * b + c, doc="a b + c, two roundings")
vop3(
    "mad_legacy_f32", "f32 <- f32 f32 f32", lambda a, b, c: np.where((a == 0) | (b == 0), c, a * b + c), targets=GFX90A
)
vop3("add_f64", "f64 <- f64 f64", np.add, latency=8)
vop3("mul_f64", "f64 <- f64 f64", np.multiply, latency=8)
vop3("min_f64", "f64 <- f64 f64", fmin, latency=8)
vop3("max_f64", "f64 <- f64 f64", fmax, latency=8)
vop3("mul_lo_u32", "u32 <- u32 u32", np.multiply, **QUARTER)
vop3("mul_hi_u32", "u32 <- u32 u32", mul_hi_u, **QUARTER)
vop3("mul_hi_i32", "i32 <- i32 i32", mul_hi_i, **QUARTER)
vop3("mad_i32_i24", "i32 <- i32 i32 i32", lambda a, b, c: (i24(a) * i24(b) + c).astype(I32))
vop3("mad_u32_u24", "u32 <- u32 u32 u32", lambda a, b, c: (u24(a) * u24(b) + c.astype(U64)).astype(U32))
vop3("mad_u32_u16", "u32 <- u16 u16 u32", lambda a, b, c: a.astype(U32) * b.astype(U32) + c)
vop3("mad_i32_i16", "i32 <- i16 i16 i32", lambda a, b, c: a.astype(I32) * b.astype(I32) + c)
vop3("mad_u16", "u16 <- u16 u16 u16", lambda a, b, c: a * b + c)
vop3("mad_i16", "i16 <- i16 i16 i16", lambda a, b, c: a * b + c)


def _mad64(a: A, b: A, c: A) -> tuple[A, A]:
    p = a.astype(U64) * b.astype(U64)
    s = p + c
    return s, s < p


def _mad64i(a: A, b: A, c: A) -> tuple[A, A]:
    p = a.astype(I64) * b.astype(I64)
    s = p + c
    return s, (s < p) != (c < 0)


inst("v_mad_u64_u32", "d:v.u64, co:s.mask <- a:vs.u32, b:vs.u32, c:vs.u64", Unit.VALU, "VOP3", semantics=_mad64,
     hazard=("carries_up",), doc="64-bit a b + c and a carry", **QUARTER)  # fmt: skip
inst("v_mad_i64_i32", "d:v.i64, co:s.mask <- a:vs.i32, b:vs.i32, c:vs.i64", Unit.VALU, "VOP3", semantics=_mad64i,
     hazard=("carries_up",), doc="64-bit signed a b + c", **QUARTER)  # fmt: skip
vop3("lshl_add_u64", "u64 <- u64 u32 u64", lambda a, n, c: (a << (n & U32(7)).astype(U64)) + c, targets=CDNA3_UP,
     doc="(a << n) + c, n is 0..4", extra="shift4", hazard=("carries_up",))  # fmt: skip
vop3("lshlrev_b64", "u64 <- u32 u64", lambda n, a: a << (n & U32(63)).astype(U64), hazard=("carries_up",))
vop3("lshrrev_b64", "u64 <- u32 u64", lambda n, a: a >> (n & U32(63)).astype(U64))
vop3("ashrrev_i64", "i64 <- u32 i64", lambda n, a: a >> (n & U32(63)).astype(I64))
vop3("lshl_add_u32", "u32 <- u32 u32 u32", lambda a, b, c: lshl(a, b) + c)
vop3("add_lshl_u32", "u32 <- u32 u32 u32", lambda a, b, c: lshl(a + b, c))
vop3("add3_u32", "u32 <- u32 u32 u32", lambda a, b, c: a + b + c)
vop3("lshl_or_b32", "u32 <- u32 u32 u32", lambda a, b, c: lshl(a, b) | c)
vop3("and_or_b32", "u32 <- u32 u32 u32", lambda a, b, c: (a & b) | c)
vop3("or3_b32", "u32 <- u32 u32 u32", lambda a, b, c: a | b | c)
vop3("xad_u32", "u32 <- u32 u32 u32", lambda a, b, c: (a ^ b) + c)
vop3("bfe_u32", "u32 <- u32 u32 u32", bfe_u)
inst("v_bfe_i32", "d:v.i32 <- a:vs.i32, b:vs.u32, c:vs.u32", Unit.VALU, "VOP3", semantics=bfe_i)
vop3("bfi_b32", "u32 <- u32 u32 u32", lambda a, b, c: (a & b) | (~a & c))
vop3("bfm_b32", "u32 <- u32 u32", lambda a, b: lshl(lshl(np.ones_like(a), a) - U32(1), b))
vop3("perm_b32", "u32 <- u32 u32 u32", perm, doc="bytes of b (0-3) and a (4-7) chosen by c")
vop3("alignbit_b32", "u32 <- u32 u32 u32",
     lambda a, b, c: (((a.astype(U64) << U64(32)) | b) >> (c & U32(31)).astype(U64)).astype(U32))  # fmt: skip
vop3("alignbyte_b32", "u32 <- u32 u32 u32",
     lambda a, b, c: (((a.astype(U64) << U64(32)) | b) >> ((c & U32(3)).astype(U64) * U64(8))).astype(U32))  # fmt: skip
vop3("bcnt_u32_b32", "u32 <- u32 u32", lambda a, b: popcount(a) + b, doc="set bits of a, plus b")
_LANE = np.arange(64, dtype=U32)[None, :]
_BELOW_LO = np.where(_LANE < 32, (U64(1) << np.minimum(_LANE, 31).astype(U64)) - U64(1), U64(0xFFFFFFFF)).astype(U32)
_BELOW_HI = np.where(
    _LANE >= 32, (U64(1) << np.maximum(_LANE.astype(I64) - 32, 0).astype(U64)) - U64(1), U64(0)
).astype(U32)
vop3(
    "mbcnt_lo_u32_b32", "u32 <- u32 u32", lambda a, b: popcount(a & _BELOW_LO) + b, doc="set bits of a below this lane"
)
vop3("mbcnt_hi_u32_b32", "u32 <- u32 u32", lambda a, b: popcount(a & _BELOW_HI) + b, doc="the same for lanes 32 to 63")
for _t in ("i32", "u32", "i16", "u16"):
    vop3(f"min3_{_t}", f"{_t} <- {_t} {_t} {_t}", lambda a, b, c: np.minimum(np.minimum(a, b), c))
    vop3(f"max3_{_t}", f"{_t} <- {_t} {_t} {_t}", lambda a, b, c: np.maximum(np.maximum(a, b), c))
    vop3(f"med3_{_t}", f"{_t} <- {_t} {_t} {_t}", med3)
for _t in ("f32", "f16"):
    vop3(f"min3_{_t}", f"{_t} <- {_t} {_t} {_t}", lambda a, b, c: fmin(fmin(a, b), c))
    vop3(f"max3_{_t}", f"{_t} <- {_t} {_t} {_t}", lambda a, b, c: fmax(fmax(a, b), c))
    vop3(f"med3_{_t}", f"{_t} <- {_t} {_t} {_t}", fmed3)
vop3(
    "minimum3_f32", "f32 <- f32 f32 f32", lambda a, b, c: np.minimum(np.minimum(a, b), c), targets=CDNA4, doc="NaN wins"
)
vop3(
    "maximum3_f32", "f32 <- f32 f32 f32", lambda a, b, c: np.maximum(np.maximum(a, b), c), targets=CDNA4, doc="NaN wins"
)
vop3("add_i32", "i32 <- i32 i32", np.add, extra=np.add)
vop3("sub_i32", "i32 <- i32 i32", np.subtract, extra=np.subtract)
vop3("add_i16", "i16 <- i16 i16", np.add, extra=np.add)
vop3("sub_i16", "i16 <- i16 i16", np.subtract, extra=np.subtract)
vop3("sad_u32", "u32 <- u32 u32 u32", lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c)
vop3("sad_u16", "u32 <- u32 u32 u32", lambda a, b, c: _fields(a, b, 16, lambda x, y: np.abs(x - y)) + c)
vop3("sad_u8", "u32 <- u32 u32 u32", lambda a, b, c: _fields(a, b, 8, lambda x, y: np.abs(x - y)) + c)
vop3("lerp_u8", "u32 <- u32 u32 u32", lambda a, b, c: _lerp(a, b, c))


def _fields(a: A, b: A, bits: int, fn: Callable[..., A]) -> A:
    mask = U32((1 << bits) - 1)
    total = 0
    for at in range(0, 32, bits):
        total = total + fn((a >> U32(at) & mask).astype(I64), (b >> U32(at) & mask).astype(I64))
    return np.asarray(total).astype(U32)


def _lerp(a: A, b: A, c: A) -> A:
    out = U32(0)
    for at in range(0, 32, 8):
        x, y, r = ((v >> U32(at)) & U32(255) for v in (a, b, c))
        out = out | (((x + y + (r & U32(1))) >> U32(1)) << U32(at))
    return out


inst("v_ldexp_f32", "d:v.f32 <- a:vs.f32, b:vs.i32", Unit.VALU, "VOP3", semantics=lambda a, b: ldexp(a, b).astype(F32),
     doc="a times 2 to the b")  # fmt: skip
inst("v_ldexp_f64", "d:v.f64 <- a:vs.f64, b:vs.i32", Unit.VALU, "VOP3", semantics=ldexp, latency=8, doc="a 2^b")
for _t, _fmas in (("f32", div_fmas32), ("f64", div_fmas64)):
    inst(f"v_div_scale_{_t}", f"d:v.{_t}, co:s.mask <- a:vs.{_t}, b:vs.{_t}, c:vs.{_t}", Unit.VALU, "VOP3",
         semantics=div_scale, doc="scale an operand of a division; VCC: undo it in div_fmas")  # fmt: skip
    inst(f"v_div_fmas_{_t}", f"d:v.{_t} <- a:vs.{_t}, b:vs.{_t}, c:vs.{_t}, vcc", Unit.VALU, "VOP3",
         semantics=_fmas, hazard=("div_fmas",), doc="FMA that undoes div_scale where VCC is set")  # fmt: skip
    vop3(f"div_fixup_{_t}", f"{_t} <- {_t} {_t} {_t}", div_fixup, doc="special cases and sign of c / b onto quotient a")
vop3("div_fixup_f16", "f16 <- f16 f16 f16", div_fixup)
vop3("pack_b32_f16", "u32 <- u16 u16", lambda a, b: pack(a.astype(U32), b.astype(U32)), doc="a | b << 16")
vop3("cvt_pkrtz_f16_f32", "u32 <- f32 f32", lambda a, b: pack(rtz16(a), rtz16(b)), doc="two f16, toward zero",
     forms=("_e64",))  # fmt: skip
vop3("cvt_pk_f16_f32", "u32 <- f32 f32", lambda a, b: pack(f16_bits(a), f16_bits(b)), targets=CDNA4, doc="two f16, RNE")
vop3(
    "cvt_pk_bf16_f32",
    "u32 <- f32 f32",
    lambda a, b: pack(bf16_bits(a), bf16_bits(b)),
    targets=CDNA4,
    doc="two bf16, RNE",
)
inst("v_cvt_sr_bf16_f32", "d=:v.u16 <- a:vs.f32, b:vs.u32", Unit.VALU, "VOP3", targets=CDNA4,
     semantics=lambda d, a, r: _sr_bf16(a, r).astype(np.uint16), modifiers=("op_sel",), extra="halves",
     doc="bf16 into the half op_sel names, stochastic rounding by the low bits of b")  # fmt: skip
vop3(
    "cvt_pknorm_i16_f32", "u32 <- f32 f32", lambda a, b: pack(_norm(a, -1, 32767), _norm(b, -1, 32767)), forms=("_e64",)
)
vop3("cvt_pknorm_u16_f32", "u32 <- f32 f32", lambda a, b: pack(_norm(a, 0, 65535), _norm(b, 0, 65535)), forms=("_e64",))
vop3("cvt_pk_u16_u32", "u32 <- u32 u32", lambda a, b: pack(np.minimum(a, U32(65535)), np.minimum(b, U32(65535))),
     forms=("_e64",))  # fmt: skip
vop3(
    "cvt_pk_i16_i32",
    "u32 <- i32 i32",
    lambda a, b: pack(np.clip(a, -32768, 32767).view(U32), np.clip(b, -32768, 32767).view(U32)),
    forms=("_e64",),
)
inst(
    "v_cvt_pk_u8_f32",
    "d:v.u32 <- a:vs.f32, b:vs.u32, c:vs.u32",
    Unit.VALU,
    "VOP3",
    semantics=lambda a, b, c: (c & ~lshl(U32(255), b * U32(8))) | lshl(sat_int(np.rint(f(a)), 0, 255, U32), b * U32(8)),
)


def _sr_bf16(x: A, r: A) -> A:
    u = np.asarray(x, F32).view(U32)
    return np.where(np.isfinite(x), u + (r & U32(0xFFFF)), u) >> U32(16)


def _norm(x: A, low: int, scale: int) -> A:
    return np.rint(np.where(np.isnan(x), 0, np.clip(f(x), low, 1)) * scale).astype(I64).astype(U32)


def _bitop3(a: A, b: A, c: A, table: int) -> A:
    """Bit i of the result is table[a_i << 2 | b_i << 1 | c_i]."""
    out = a & U32(0)
    for i in range(8):
        if table >> i & 1:
            out = out | ((a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c))
    return out


inst(
    "v_bitop3_b32",
    "d:v.u32 <- a:vs.u32, b:vs.u32, c:vs.u32",
    Unit.VALU,
    "VOP3",
    semantics=_bitop3,
    modifiers=("bitop3",),
    targets=CDNA4,
    extra="bitop3",
    doc="any function of three bits, by truth table",
)
inst("v_bitop3_b16", "d:v.u16 <- a:vs.u16, b:vs.u16, c:vs.u16", Unit.VALU, "VOP3", modifiers=("bitop3",),
     semantics=lambda a, b, c, t: _bitop3(a.astype(U32), b.astype(U32), c.astype(U32), t).astype(np.uint16),
     targets=CDNA4, extra="bitop3", doc="any function of three bits, 16 bits wide")  # fmt: skip
vop3("ashr_pk_i8_i32", "u32 <- i32 i32 u32", lambda a, b, n: _ashr_pk(a, b, n, -128, 127), targets=CDNA4)
vop3("ashr_pk_u8_i32", "u32 <- i32 i32 u32", lambda a, b, n: _ashr_pk(a, b, n, 0, 255), targets=CDNA4)


def _ashr_pk(a: A, b: A, n: A, lo: int, hi: int) -> A:
    x, y = (np.clip(ashr(v, n), lo, hi).view(U32) & U32(255) for v in (a, b))
    return x | (y << U32(8))


# ---------------------------------------------------------------------------------------------------------------- VOP3P

for _t in ("i16", "u16"):
    packed(f"pk_add_{_t}", _t, 2, np.add, extra=np.add)
    packed(f"pk_sub_{_t}", _t, 2, np.subtract, extra=np.subtract)
    packed(f"pk_min_{_t}", _t, 2, np.minimum)
    packed(f"pk_max_{_t}", _t, 2, np.maximum)
    packed(f"pk_mad_{_t}", _t, 3, lambda a, b, c: a * b + c)
packed("pk_mul_lo_u16", "u16", 2, np.multiply)
packed("pk_lshlrev_b16", "u16", 2, lambda a, b: b << (a & np.uint16(15)))
packed("pk_lshrrev_b16", "u16", 2, lambda a, b: b >> (a & np.uint16(15)))
packed("pk_ashrrev_i16", "i16", 2, lambda a, b: b >> (a & np.int16(15)))
packed("pk_fma_f16", "f16", 3, fma16)
packed("pk_add_f16", "f16", 2, np.add)
packed("pk_mul_f16", "f16", 2, np.multiply)
packed("pk_min_f16", "f16", 2, fmin)
packed("pk_max_f16", "f16", 2, fmax)
packed("pk_minimum3_f16", "f16", 3, lambda a, b, c: np.minimum(np.minimum(a, b), c), targets=CDNA4)
packed("pk_maximum3_f16", "f16", 3, lambda a, b, c: np.maximum(np.maximum(a, b), c), targets=CDNA4)
packed("pk_fma_f32", "f32x2", 3, fma32, doc="two f32 FMAs")
packed("pk_mul_f32", "f32x2", 2, np.multiply, doc="two f32 products")
packed("pk_add_f32", "f32x2", 2, np.add, doc="two f32 sums")
inst("v_pk_mov_b32", "d:v.b32x2 <- a:vs.b32x2, b:vs.b32x2", Unit.VALU, "VOP3P", special="pk_mov",
     doc="low from a, high from b, halves by op_sel")  # fmt: skip
inst("v_pk_fmac_f16", "d=:v.f16 <- a:vsn.f16, b:v.f16", Unit.VALU, "VOP3P", semantics=lambda d, a, b: fma16(a, b, d),
     modifiers=())  # fmt: skip
for _name in ("fma_mix_f32", "fma_mixlo_f16", "fma_mixhi_f16"):
    inst(f"v_{_name}", "d=:v.u32 <- a:vs.u32, b:vs.u32, c:vs.u32", Unit.VALU, "VOP3P", special="fma_mix", extra=_name,
         doc="FMA of f32 and f16 operands; op_sel_hi says which are f16, op_sel which half")  # fmt: skip


def _parts(x: A, bits: int, signed: bool) -> list[A]:
    """The fields of a packed operand as int64, low field first."""
    out = []
    for at in range(0, 32, bits):
        y = (x >> U32(at)).astype(I64) & ((1 << bits) - 1)
        out.append((y ^ (1 << bits - 1)) - (1 << bits - 1) if signed else y)
    return out


def _halves(x: A, dtype: str) -> tuple[A, A]:
    if dtype == "bf16":
        return (x << U32(16)).view(F32), (x & U32(0xFFFF0000)).view(F32)
    lo, hi = (x & U32(0xFFFF)).astype(np.uint16), (x >> U32(16)).astype(np.uint16)
    return lo.view(F16).astype(F32), hi.view(F16).astype(F32)


def _dotf(dtype: str) -> Callable[..., A]:
    def dot(a: A, b: A, c: A) -> A:
        (al, ah), (bl, bh) = _halves(a, dtype), _halves(b, dtype)
        return (f(al) * bl + f(ah) * bh + f(c)).astype(F32)

    return dot


def _doti(bits: int, signed: bool, dtype: Any) -> Callable[..., A]:
    def dot(a: A, b: A, c: A) -> A:
        total = c.astype(I64)
        for x, y in zip(_parts(a, bits, signed), _parts(b, bits, signed)):
            total = total + x * y
        return total.astype(dtype)

    return dot


def _into(fn: Callable[..., A]) -> Callable[..., A]:
    """The form whose accumulator is the destination."""
    return lambda d, a, b: fn(a, b, d)


DOT = {"encoding": "VOP3P", "hazard": ("dot",), "extra": "whole"}
vop3("dot2_f32_f16", "f32 <- u32 u32 f32", _dotf("f16"), doc="two f16 products and a sum", **DOT)
vop3("dot2_f32_bf16", "f32 <- u32 u32 f32", _dotf("bf16"), targets=CDNA4, **DOT)
for _bits, _n in ((16, 2), (8, 4), (4, 8)):
    vop3(f"dot{_n}_i32_i{_bits}", "i32 <- u32 u32 i32", _doti(_bits, True, I32), **DOT)
    vop3(f"dot{_n}_u32_u{_bits}", "u32 <- u32 u32 u32", _doti(_bits, False, U32), **DOT)
inst("v_dot2c_f32_f16", "d=:v.f32 <- a:vs.u32, b:vs.u32", Unit.VALU, "VOP2", forms=_NO_SDWA, hazard=("dot",),
     semantics=lambda d, a, b: _dotf("f16")(a, b, d))  # fmt: skip
inst(
    "v_dot2c_f32_bf16",
    "d=:v.f32 <- a:vs.u32, b:vs.u32",
    Unit.VALU,
    "VOP2",
    forms=_NO_SDWA,
    hazard=("dot",),
    targets=CDNA4,
    semantics=lambda d, a, b: _dotf("bf16")(a, b, d),
)
for _bits, _n in ((16, 2), (8, 4), (4, 8)):
    inst(
        f"v_dot{_n}c_i32_i{_bits}",
        "d=:v.i32 <- a:vs.u32, b:vs.u32",
        Unit.VALU,
        "VOP2",
        forms=_NO_SDWA,
        hazard=("dot",),
        semantics=_into(_doti(_bits, True, I32)),
    )

# ------------------------------------------------------------------------------------------- gfx950 scaled conversions


def scale_of(x: A) -> A:
    """The power of two of the scale operand: only its f32 exponent field counts."""
    e = (x >> U32(23) & U32(255)).astype(I64)
    return np.ldexp(1.0, (e - 127).astype(np.int32))


_SMALL: dict[str, Any] = {
    "fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2, "fp4": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
_LARGE: dict[str, Any] = {"f32": F32, "f16": F16, "bf16": ml_dtypes.bfloat16}


def _scaled(name: str, spec: str, special: str, extra: Any, doc: str, hazard: tuple[str, ...] = ()) -> None:
    inst(
        f"v_cvt_scalef32_{name}",
        spec,
        Unit.VALU,
        "VOP3",
        targets=CDNA4,
        special=special,
        extra=extra,
        hazard=hazard,
        doc=doc,
    )


for _s, _t in _SMALL.items():
    for _w, _wide in _LARGE.items():
        _d = "d:v*2.f32x2" if _w == "f32" else "d:v.u32"
        _scaled(
            f"pk_{_w}_{_s}",
            f"{_d} <- a:vs.u32, scale:vs.u32",
            "scale_up",
            (_t, _wide, 2),
            "two small floats times scale",
        )
        _ab = "a:vs.f32, b:vs.f32" if _w == "f32" else "a:vs.u32"
        _scaled(f"pk_{_s}_{_w}", f"d=:v.u32 <- {_ab}, scale:vs.u32", "scale_down", (_t, _wide),
                "two floats over scale, to the part op_sel names", ("nibble_dst",) if _s == "fp4" else ())  # fmt: skip
        if _s != "fp4" and _w != "bf16":
            _d = "d:v.f32" if _w == "f32" else "d=:v.u32"
            _scaled(
                f"{_w}_{_s}",
                f"{_d} <- a:vs.u32, scale:vs.u32",
                "scale_up",
                (_t, _wide, 1),
                "one small float times scale",
            )

# ----------------------------------------------------------------------------------------------------------------- VOPC


def _ordered(fn: Callable[..., A]) -> Callable[..., A]:
    return lambda a, b: fn(a, b) & ~(np.isnan(a) | np.isnan(b))


def _not(fn: Callable[..., A]) -> Callable[..., A]:
    return lambda a, b: ~fn(a, b)


def _const(value: bool) -> Callable[..., A]:
    return lambda a, b: np.full(np.broadcast(a, b).shape, value)


_LG = _ordered(np.not_equal)
_FLOAT: dict[str, Callable[..., A]] = {
    "f": _const(False), "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "lg": _LG,
    "ge": np.greater_equal, "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": _not(np.greater_equal), "nlg": _not(_LG), "ngt": _not(np.greater), "nle": _not(np.less_equal),
    "neq": _not(np.equal), "nlt": _not(np.less), "tru": _const(True),
}  # fmt: skip
_INT: dict[str, Callable[..., A]] = {
    "f": _const(False), "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ne": np.not_equal,
    "ge": np.greater_equal, "t": _const(True),
}  # fmt: skip


def classify(x: A, mask: A) -> A:
    """Whether x is in one of the classes of mask: sNaN qNaN -inf -normal -denormal -0 +0 +denormal +normal +inf."""
    info = np.finfo(x.dtype)
    tiny = info.tiny
    bits = x.view({2: np.uint16, 4: U32, 8: U64}[x.dtype.itemsize])
    quiet = (bits >> bits.dtype.type(info.nmant - 1)) & bits.dtype.type(1) == 1
    negative = np.signbit(x)
    kinds = (
        np.isnan(x) & ~quiet,
        np.isnan(x) & quiet,
        np.isinf(x),
        np.abs(x) >= tiny,
        (x != 0) & (np.abs(x) < tiny),
        x == 0,
    )
    normal = kinds[3] & np.isfinite(x)
    order = (kinds[0], kinds[1], kinds[2] & negative, normal & negative, kinds[4] & negative, kinds[5] & negative,
             kinds[5] & ~negative, kinds[4] & ~negative, normal & ~negative, kinds[2] & ~negative)  # fmt: skip
    out = np.zeros(np.broadcast(x, mask).shape, bool)
    for i, is_kind in enumerate(order):
        out = out | (is_kind & ((mask >> mask.dtype.type(i)) & mask.dtype.type(1) == 1))
    return out


def _compare(name: str, ty: str, fn: Callable[..., A], b: str = "") -> None:
    sources = f"a:vs.{ty}, b:vs.{b or ty}"
    inst(f"v_cmp_{name}_{ty}", f"d:s.mask <- {sources}", Unit.VALU, "VOPC", semantics=fn, doc="one bit per active lane",
         forms=("_e32", "_e64") if ty.endswith("64") else ("_e32", "_e64", "_sdwa"))  # fmt: skip
    inst(f"v_cmpx_{name}_{ty}", f"d:s.mask, exec <- {sources}", Unit.VALU, "VOPC", semantics=lambda *x: (fn(*x),) * 2,
         hazard=("cmpx",), doc="also writes EXEC", extra="cmpx",
         forms=("_e32", "_e64") if ty.endswith("64") else ("_e32", "_e64", "_sdwa"))  # fmt: skip


for _t in ("f16", "f32", "f64"):
    for _name, _how in _FLOAT.items():
        _compare(_name, _t, _how)
    _compare("class", _t, classify, b="u32")
for _t in ("i16", "u16", "i32", "u32", "i64", "u64"):
    for _name, _how in _INT.items():
        _compare(_name, _t, _how)
