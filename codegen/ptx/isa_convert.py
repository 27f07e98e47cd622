"""Rows of PTX conversions (`cvt`), with their NumPy semantics.

Every conversion goes through a value that is exact, or float64 rounded to odd, and is then rounded once. Packed
conversions take the high half first, as the chip does: `cvt.rn.f16x2.f32 d, hi, lo`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from wavedsl.codegen.ptx import isa_numerics as num
from wavedsl.codegen.ptx.isa import NUMPY, TYPE_BITS, Unit, inst

Mods = dict[str, Any]
Array = Any

_INT = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_FLOAT = ("f16", "bf16", "f32", "f64")
_INTEGRAL: dict[str, Any] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _holds(d: str, s: str) -> bool:
    """Whether every value of integer type `s` is one of `d`."""
    narrow, wide = np.iinfo(NUMPY[s]), np.iinfo(NUMPY[d])
    return bool(wide.min <= narrow.min and narrow.max <= wide.max)


def _legal(m: Mods) -> str:
    d, s = m["dtype"], m["stype"]
    if "irnd" in m and "frnd" in m:
        return f".{m['irnd']} and .{m['frnd']} exclude each other"
    if "bf16" in (d, s) and (TYPE_BITS[d] == 8 or TYPE_BITS[s] == 8):
        return "no conversion between .bf16 and 8-bit integers"
    if "ftz" in m and "f32" not in (d, s):
        return ".ftz needs an .f32 on one side"
    if "sat" in m and d in _INT and s in _INT and _holds(d, s):
        return f"every .{s} fits .{d}: no .sat"
    if "irnd" in m and s in _INT:
        return f".{m['irnd']} rounds floats, .{s} is an integer"
    if d in _INT and s in _FLOAT:
        return "" if "irnd" in m else "float to integer needs .rni, .rzi, .rmi or .rpi"
    if d in _FLOAT and s in _INT:
        return "" if "frnd" in m else "integer to float needs .rn, .rz, .rm or .rp"
    if d in _FLOAT and s in _FLOAT:
        narrower = TYPE_BITS[d] < TYPE_BITS[s] or (d != s and TYPE_BITS[d] == TYPE_BITS[s])
        if narrower and "frnd" not in m:
            return f".{s} to .{d} needs a rounding"
        if "irnd" in m and d != s:
            return f".{m['irnd']} rounds .{s} to .{s}"
        if not narrower and "frnd" in m and d != s:
            return f".{s} to .{d} is exact: no rounding"
        if d == s and "frnd" in m and "sat" not in m:
            return f".{d} to .{s} takes .rni, .rzi, .rmi or .rpi"
        return ""
    return "" if "frnd" not in m else "integer to integer takes no rounding"


def _cvt(m: Mods) -> Any:
    d, s, ftz, sat = m["dtype"], m["stype"], "ftz" in m, "sat" in m
    before = num.flush if ftz and s == "f32" else (lambda x: x)
    after = num.flush if ftz and d == "f32" else (lambda x: x)
    if d in _INT:
        if s in _INT:
            return _int_to_int(d, sat)
        nan = nan_as_int(d, s)
        return lambda a: float_to_int(_INTEGRAL[m["irnd"]](np.asarray(before(a)).astype(np.float64)), d, nan)
    if s in _INT:
        convert = _int_to_float(d, m["frnd"])
        return (lambda a: num.saturate(convert(a))) if sat else convert
    mode = m.get("frnd", "rn")

    def run(a: Array) -> Array:
        a = before(a)
        if "irnd" in m:
            a = _INTEGRAL[m["irnd"]](a.astype(np.float64))
        r = after(to_float(a, d, mode))
        return num.saturate(r) if sat else r

    return run


_WORDS = "u8|s8|u16|s16|u32|s32|u64|s64|f16|f32|f64"
_CVT: dict[str, Any] = {"unit": Unit.CVT, "latency": 6, "interval": 2, "legal": _legal, "source": "unverified"}
_DOC = "d = a converted; float to integer saturates; NaN gives 0, or the top bit alone from .f64 and in 64 bits"
inst(
    f"cvt{{.irnd:rni|rzi|rmi|rpi}}{{.frnd:rn|rz|rm|rp}}{{.ftz}}{{.sat}}.dtype:{_WORDS}.stype:{_WORDS}",
    "d:dtype <- a:stype",
    doc=_DOC,
    **_CVT,
)(_cvt)
inst("cvt.dtype:f32.stype:bf16", "d:dtype <- a:stype", ptx=(7, 1), doc="d = a, exact", **_CVT)(_cvt)
inst("cvt.frnd:rn|rz.dtype:bf16.stype:f32", "d:dtype <- a:stype", doc="d = a rounded to bf16", **_CVT)(_cvt)
inst(
    f"cvt{{.irnd:rni|rzi|rmi|rpi}}{{.frnd:rn|rz|rm|rp}}.dtype:bf16.stype:{_WORDS}|bf16",
    "d:dtype <- a:stype",
    ptx=(7, 8),
    sm=90,
    doc=_DOC,
    **_CVT,
)(_cvt)
inst(
    f"cvt{{.irnd:rni|rzi|rmi|rpi}}.dtype:{_WORDS}.stype:bf16", "d:dtype <- a:stype", ptx=(7, 8), sm=90, doc=_DOC, **_CVT
)(_cvt)


def _int_to_int(d: str, sat: bool) -> Callable[[Array], Array]:
    dt = NUMPY[d]
    info = np.iinfo(dt)

    def run(a: Array) -> Array:
        if not sat:
            return a.astype(dt)
        lo, hi = max(info.min, np.iinfo(a.dtype).min), min(info.max, np.iinfo(a.dtype).max)
        return np.clip(a, a.dtype.type(lo), a.dtype.type(hi)).astype(dt)

    return run


def nan_as_int(d: str, s: str) -> int:
    """The bits that NaN of float type `s` becomes in integer type `d`: an H200 agrees with the PTX ISA."""
    return 1 << (8 * NUMPY[d].itemsize - 1) if s == "f64" or d in ("s64", "u64") else 0


def float_to_int(x: Array, d: str, nan: int) -> Array:
    """Integral float64 values to an integer type, clamped; NaN gives the bits of `nan`."""
    dt = NUMPY[d]
    info = np.iinfo(dt)
    top = 2.0 ** (info.bits - (info.min < 0))
    inside = np.where(np.isnan(x), 0.0, np.clip(x, float(info.min), np.nextafter(top, 0.0)))
    r = np.where(x >= top, dt.type(info.max), inside.astype(dt))
    return np.where(np.isnan(x), np.array(nan, f"u{dt.itemsize}").view(dt), r)


def _int_to_float(d: str, mode: str) -> Callable[[Array], Array]:
    def run(a: Array) -> Array:
        if a.dtype.itemsize < 8:
            return to_float(a.astype(np.float64), d, mode)
        if mode == "rn" and d == "f32":
            return a.astype(np.float32)
        low = (a & np.array(0xFFFFFFFF, dtype=a.dtype)).astype(np.float64)
        high = (a >> np.array(32, dtype=a.dtype)).astype(np.float64) * 2.0**32
        if d == "f64":
            return high + low if mode == "rn" else num.add_f64(high, low, mode)
        return to_float(num.sum_odd(high, low), d, mode)

    return run


def to_float(x: Array, d: str, mode: str = "rn") -> Array:
    """A float array (exact, or float64 rounded to odd) to PTX float type `d` with one rounding."""
    dt = NUMPY[d]
    if x.dtype == dt:
        return x
    if x.dtype.itemsize < dt.itemsize:
        return x.astype(dt)
    if d == "f32":
        return num.round_f32(x.astype(np.float64), mode)
    if d == "bf16":
        if mode == "rn":
            r = x.astype(dt) if x.dtype == np.float32 else num.to_bf16(x)
        else:
            r = _directed_bf16(x.astype(np.float64), mode)
    elif mode == "rn":
        r = x.astype(dt)
    else:
        r = num._direct(x.astype(dt), x.astype(np.float64), mode)
    nan = np.isnan(r)
    return np.where(nan, num.canonical_nan(dt), r) if nan.any() else r


def _directed_bf16(x: Array, mode: str) -> Array:
    """float64 to bfloat16 in mode rz, rm or rp: cut the low bits of a float32, then step away where the mode says
    so.
    """
    f = num.round_f32(x, "rz")
    bits = np.ascontiguousarray(f).view(np.uint32)
    top = (bits >> np.uint32(16)).astype(np.uint16)
    cut = (top.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    away = ((cut < x) & (mode == "rp")) | ((cut > x) & (mode == "rm"))
    top = np.where(away & np.isfinite(x), top + np.uint16(1), top).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), top).astype(np.uint16).view(ml_dtypes.bfloat16)


def _finish(r: Array, m: Mods) -> Array:
    """.relu and .satfinite of the 16-bit destinations."""
    if "relu" in m:
        r = np.where(np.isnan(r) | (r > 0), r, r.dtype.type(0))
    if "satfinite" in m:
        top = np.array(65504.0 if r.dtype == np.float16 else 3.3895313892515355e38, dtype=r.dtype)
        r = np.where(np.isinf(r), np.copysign(top, r), r)
    return r


_FRND2 = ".frnd:rn|rz{.relu}{.satfinite}"


def _legal_plain(m: Mods) -> str:
    return "" if "relu" in m or "satfinite" in m else "take the general row"


@inst(
    f"cvt{_FRND2}.dtype:f16|bf16.f32",
    "d:dtype <- a:f32",
    Unit.CVT,
    latency=6,
    interval=2,
    source="unverified",
    legal=_legal_plain,
    doc="d = a in 16 bits; .relu clamps at 0, .satfinite at the largest finite value",
)
def _cvt_half(m: Mods) -> Any:
    return lambda a: _finish(to_float(a, m["dtype"], m["frnd"]), m)


@inst(
    f"cvt{_FRND2}.dtype:f16x2|bf16x2.f32",
    "d:dtype <- a:f32, b:f32",
    Unit.CVT,
    latency=6,
    interval=2,
    source="unverified",
    doc="d = a in the high half, b in the low half",
)
def _cvt_pair(m: Mods) -> Any:
    half = m["dtype"][:-2]

    def run(a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)
        return np.stack([_finish(to_float(x, half, m["frnd"]), m) for x in (b, a)], axis=-1)

    return run


def _tf32(a: Array, mode: str) -> Array:
    """float32 to tf32 kept in 32 bits: 10 mantissa bits, the lower 13 zero. As an H200 does, `.rna` cuts a NaN's bits
    off too, so that one whose payload lies below becomes an infinity; the others give one NaN."""
    bits = np.ascontiguousarray(a).view(np.uint32)
    cut = np.uint32(0xFFFFE000)
    if mode == "rna":
        r = (bits + np.uint32(0x1000)) & cut
    elif mode == "rn":
        r = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & cut
    else:
        r = bits & cut
    r = np.where(np.isinf(a), bits, r)
    return np.where(np.isnan(a), bits & cut if mode == "rna" else np.uint32(0x7FFFE000), r).astype(np.uint32)


def _cvt_tf32(m: Mods) -> Any:
    def run(a: Array) -> Array:
        r = _tf32(a, m["frnd"])
        if "relu" in m:
            r = np.where((r >> np.uint32(31)).astype(bool), np.uint32(0), r)
        if "satfinite" in m:
            endless = (r & np.uint32(0x7F800000)) == np.uint32(0x7F800000)  # a NaN too is one step less
            r = np.where(endless, r - np.uint32(0x2000), r)
        return r

    return run


inst(
    "cvt.frnd:rna{.satfinite}.tf32.f32",
    "d:b32 <- a:f32",
    Unit.CVT,
    latency=6,
    interval=2,
    source="unverified",
    doc="d = a rounded to tf32, ties away from zero",
)(_cvt_tf32)
inst(
    "cvt.frnd:rn|rz{.relu}.tf32.f32",
    "d:b32 <- a:f32",
    Unit.CVT,
    latency=6,
    interval=2,
    ptx=(7, 8),
    sm=90,
    source="unverified",
    doc="d = a rounded to tf32",
)(_cvt_tf32)

_FP8: dict[str, tuple[Any, float]] = {
    "e4m3x2": (ml_dtypes.float8_e4m3fn, 448.0),
    "e5m2x2": (ml_dtypes.float8_e5m2, 57344.0),
}


def _to_fp8(x: Array, kind: str, relu: bool) -> Array:
    """float32 to fp8 bytes, to nearest even, clamped to the largest finite value; NaN is 0x7f."""
    dt, top = _FP8[kind]
    x = x.astype(np.float32)
    if relu:
        x = np.where(np.isnan(x) | (x > 0), x, np.float32(0))
    r = np.clip(x, np.float32(-top), np.float32(top)).astype(dt).view(np.uint8)
    return np.where(np.isnan(x), np.uint8(0x7F), r)


@inst(
    "cvt.rn.satfinite{.relu}.dtype:e4m3x2|e5m2x2.f32",
    "d:b16 <- a:f32, b:f32",
    Unit.CVT,
    latency=6,
    interval=2,
    sm=89,
    ptx=(8, 1),
    source="unverified",
    doc="d = a in the high byte, b in the low byte, as fp8",
)
def _cvt_fp8(m: Mods) -> Any:
    def run(a: Array, b: Array) -> Array:
        hi, lo = (_to_fp8(x, m["dtype"], "relu" in m).astype(np.uint16) for x in np.broadcast_arrays(a, b))
        return hi << np.uint16(8) | lo

    return run


@inst(
    "cvt.rn.satfinite{.relu}.dtype:e4m3x2|e5m2x2.f16x2",
    "d:b16 <- a:f16x2",
    Unit.CVT,
    latency=6,
    interval=2,
    sm=89,
    ptx=(8, 1),
    source="unverified",
    doc="d = both halves of a as fp8",
)
def _cvt_fp8_half(m: Mods) -> Any:
    def run(a: Array) -> Array:
        b = _to_fp8(a, m["dtype"], "relu" in m).astype(np.uint16)
        return b[:, 1] << np.uint16(8) | b[:, 0]

    return run


@inst(
    "cvt.rn{.relu}.f16x2.stype:e4m3x2|e5m2x2",
    "d:f16x2 <- a:b16",
    Unit.CVT,
    latency=6,
    interval=2,
    sm=89,
    ptx=(8, 1),
    source="unverified",
    doc="d = both fp8 of a as f16",
)
def _cvt_from_fp8(m: Mods) -> Any:
    def run(a: Array) -> Array:
        bytes_ = np.stack([a & np.uint16(0xFF), a >> np.uint16(8)], axis=-1).astype(np.uint8)
        return _finish(bytes_.view(_FP8[m["stype"]][0]).astype(np.float16), m)

    return run


@inst(
    "cvt.pack.sat.dtype:u16|s16.s32",
    "d:b32 <- a:s32, b:s32",
    Unit.CVT,
    latency=6,
    interval=2,
    source="unverified",
    doc="d = a and b clamped to 16 bits, a high",
)
def _pack16(m: Mods) -> Any:
    info = np.iinfo(NUMPY[m["dtype"]])

    def run(a: Array, b: Array) -> Array:
        hi, lo = (np.clip(x, info.min, info.max).astype(np.uint32) & np.uint32(0xFFFF) for x in (a, b))
        return hi << np.uint32(16) | lo

    return run


@inst(
    "cvt.pack.sat.dtype:u8|s8.s32.b32",
    "d:b32 <- a:s32, b:s32, c:b32",
    Unit.CVT,
    latency=6,
    interval=2,
    source="unverified",
    doc="d = c's low 16 bits moved up, then a and b clamped to 8 bits, b lowest",
)
def _pack8(m: Mods) -> Any:
    info = np.iinfo(NUMPY[m["dtype"]])

    def run(a: Array, b: Array, c: Array) -> Array:
        hi, lo = (np.clip(x, info.min, info.max).astype(np.uint32) & np.uint32(0xFF) for x in (a, b))
        return c << np.uint32(16) | hi << np.uint32(8) | lo

    return run
