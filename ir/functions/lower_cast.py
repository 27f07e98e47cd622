"""Casts in kernel IR: one number from one dtype to another, with its rounding.

In: a number in `scalar_type` of its dtype. Out: a number in that of the new dtype. A float in a dtype narrower than f32
is rounded to nearest even when it is packed; the other roundings are made here, as the f32 number that packs exactly.
"""

from __future__ import annotations

import ml_dtypes
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, F32, F64, I32, I64, Value
from wavedsl.ir.layouts.fragment import scalar_type


def cast(b: Builder, x: Value, source: DType, to: DType) -> Value:
    """One number from `scalar_type(source)` to `scalar_type(to)`; rounding to a narrow dtype happens when it is
    packed."""
    have, want = scalar_type(source), scalar_type(to)
    if source is dt.i1:
        if want is F32 or want is F64:
            return b.select(x, b.const(1.0, want), b.const(0.0, want))
        return b.select(x, b.const(1, want), b.const(0, want))
    if to is dt.i1:
        zero = b.zero(have)
        return b.fcmp("ne", x, zero) if source.is_float else b.cmp("ne", x, zero)
    if source.is_float and to.is_int:
        return _to_int(b, x, to)
    if source.is_int and to.is_int:
        if have is want:
            return x
        if have is I32 and want is I64:
            return b.zext(x) if _unsigned(source) else b.sext(x)
        return b.trunc(x)
    if have is F64 and want is F32 and to is not dt.f32:
        x, have = _odd(b, x), F32
    if source.is_int and to in _COARSE:
        x, have = _odd_of_integer(b, x, _unsigned(source)), F32
    if to is dt.tf32:
        return b.round_tf32(x)
    x = x if have is want else b.cvt(x, want, unsigned=_unsigned(source))
    if to.kind == "float" and to.bits < 8 and b.packs(to):
        return b.fmin(x, b.const(float(ml_dtypes.finfo(to.numpy).max), F32))  # a NaN becomes the largest number
    return _saturated(b, x, to) if to.kind == "float" and to.bits == 8 else x


def _unsigned(dtype: DType) -> bool:
    return dtype.kind == "uint"


def _to_int(b: Builder, x: Value, to: DType) -> Value:
    want = scalar_type(to)
    if to.bits >= 32:
        return b.cvt(x, want, unsigned=_unsigned(to))
    low = 0 if _unsigned(to) else -(1 << (to.bits - 1))
    high = (1 << (to.bits if _unsigned(to) else to.bits - 1)) - 1
    whole = b.cvt(x, want)
    return b.min_s(b.max_s(whole, b.const(low, want)), b.const(high, want))


def wrap(b: Builder, x: Value, dtype: DType) -> Value:
    """Bring an i32 back into the range of a narrow integer."""
    if dtype.bits >= 32:
        return x
    if _unsigned(dtype):
        return b.and_(x, (1 << dtype.bits) - 1)
    return b.ashr(b.shl(x, 32 - dtype.bits), 32 - dtype.bits)


def _saturated(b: Builder, x: Value, to: DType) -> Value:
    """Within the largest numbers of an 8-bit float, where the chip's conversion does not see to that; a NaN stays."""
    if b.target is None or b.target.casts_saturate:
        return x
    largest = float(ml_dtypes.finfo(to.numpy).max)
    if _limited(x, largest):
        return x
    inside = b.fmin(b.fmax(x, b.const(-largest, F32)), b.const(largest, F32))
    return b.select(b.fcmp("ne", x, x), x, inside)


def _limited(x: Value, most: float) -> bool:
    """Whether a number has been held between constants, neither beyond `most`: of a NaN that leaves one of them."""
    outer = x.op
    if outer is None or outer.name not in ("fmin", "fmax"):
        return False
    inner, limit = outer.args[0].op, outer.args[1].const
    if inner is None or inner.name not in ("fmin", "fmax") or inner.name == outer.name:
        return False
    own = inner.args[1].const
    return limit is not None and own is not None and max(abs(limit), abs(own)) <= most


def _odd(b: Builder, x: Value) -> Value:
    """f64 to f32, an inexact result with its last bit set: a second rounding then gives what one would have given."""
    near = b.cvt(x, F32)
    wide = b.cvt(near, F64)
    bits = b.bitcast(near, I32)
    down = b.select(b.fcmp("gt", b.fabs(wide), b.fabs(x)), b.sub(bits, 1), bits)
    return b.bitcast(b.select(b.fcmp("ne", wide, x), b.or_(down, 1), bits), F32)


WHOLE = 1 << 24
"""f32 holds every integer up to here."""
_COARSE = (dt.bf16, dt.tf32, dt.f8e8m0)
"""Narrower than f32, and with numbers beyond WHOLE."""


def _odd_of_integer(b: Builder, x: Value, unsigned: bool) -> Value:
    """An integer as f32, an inexact one with its last bit set. (What rounds to just past the type's largest integer
    comes back as that: an exact power of two, or one that is too large.)"""
    near = b.cvt(x, F32, unsigned=unsigned)
    assert x.lo is not None and x.hi is not None
    if x.hi <= WHOLE and x.lo >= (0 if unsigned else -WHOLE):
        return near
    back = b.cvt(near, x.type, unsigned=unsigned)
    if unsigned:
        down = b.cmp("ugt", back, x)
    else:
        down = b.select(b.cmp("slt", x, 0), b.cmp("slt", back, x), b.cmp("sgt", back, x))
    bits = b.bitcast(near, I32)
    inexact = b.or_(b.select(down, b.sub(bits, 1), bits), 1)
    return b.bitcast(b.select(b.cmp("ne", back, x), inexact, bits), F32)


HIGH, LOW = "high", "low"
"""Roundings that split an f32 number in two of tf32, for products of `precision="3xtf32"` alone (`precision.py`)."""


def rounded_cast(b: Builder, x: Value, source: DType, to: DType, rounding: str | None, noise: Value | None) -> Value:
    """`cast` with a rounding of `ops.ROUNDINGS`; `noise` holds the random bits of `stochastic`, as an i32.

    `HIGH`: to nearest, ties away from zero, in two instructions (a chip's own conversion tells special numbers apart
    first, in four): what is left of a NaN is one, whatever becomes of its high part. `LOW`: as it is; what is left has
    12 bits at most, and matrix instructions take the upper 11.
    """
    if rounding == HIGH:
        return b.bitcast(b.and_(b.add(b.bitcast(x, I32), 0x1000), -0x2000), F32)
    if rounding == LOW:
        return x
    if rounding in (None, "nearest_even"):
        return cast(b, x, source, to)
    if scalar_type(source) is F64 and to.bits < 32:
        x, source = _odd(b, x), dt.f32
    if scalar_type(source) is scalar_type(to) and _holds(to, source):
        return x
    if to is dt.tf32:
        return _cut_tf32(b, x if scalar_type(source) is F32 else _odd(b, x))
    if to.bits >= 32:
        return _toward_zero_f32(b, x) if source is dt.f64 else cast(b, x, source, to)
    size = b.fabs(x)
    found = _below(b, size, to)
    if rounding == "stochastic":
        found = _stochastic(b, size, found, to, noise)
    return b.select(b.cmp("slt", b.bitcast(x, I32), 0), b.fneg(found), found)


def _holds(to: DType, source: DType) -> bool:
    """Whether every number of `source` is one of `to`: of two as wide, one has fewer digits and one a smaller range."""
    return to is source or (to.bits > source.bits and to.mantissa >= source.mantissa)


def _cut_tf32(b: Builder, x: Value) -> Value:
    """The upper 19 bits; a NaN stays one."""
    cut = b.bitcast(b.and_(b.bitcast(x, I32), -0x2000), F32)
    return b.select(b.fcmp("ne", x, x), x, cut)


def _toward_zero_f32(b: Builder, x: Value) -> Value:
    near = b.cvt(x, F32)
    bits = b.bitcast(near, I32)
    over = b.fcmp("gt", b.fabs(b.cvt(near, F64)), b.fabs(x))
    return b.bitcast(b.select(over, b.sub(bits, 1), bits), F32)


def _stored(b: Builder, x: Value, dtype: DType) -> Value:
    """The word that packs one number, others 0, as an i32."""
    zero = b.zero(F32)
    x = cast(b, x, dt.f32, dtype)
    return b.bitcast(b.pack([x] + [zero] * (32 // dtype.slot - 1), dtype), I32)


def _number(b: Builder, word: Value, dtype: DType) -> Value:
    return b.unpack(b.bitcast(word, B32), dtype, 0)


def _below(b: Builder, x: Value, to: DType) -> Value:
    """The largest number of `to` that is not above x, which is not negative: the nearest, or the one before it.
    Numbers count up with their codes, infinity after the largest."""
    word = _stored(b, x, to)
    near = _number(b, word, to)
    return b.select(b.fcmp("gt", near, x), _number(b, b.sub(word, 1), to), near)


def _stochastic(b: Builder, x: Value, below: Value, to: DType, noise: Value | None) -> Value:
    """The next number up where the part of the step that lies below x, in 65536ths, is more than 16 random bits.

    Every product is exact. Past the largest number the step is infinite, so the largest stays; a NaN stays too.
    """
    assert noise is not None
    above = _number(b, b.add(_stored(b, below, to), 1), to)
    chance = b.cvt(b.and_(noise, 0xFFFF), F32)
    part = b.fmul(b.fsub(x, below), b.const(65536.0, F32))
    if to.bits < 8:  # no infinity follows the largest number
        above = b.select(b.fcmp("eq", below, b.const(float(ml_dtypes.finfo(to.numpy).max), F32)), below, above)
    return b.select(b.fcmp("gt", part, b.fmul(chance, b.fsub(above, below))), above, below)


__all__ = ["HIGH", "LOW", "cast", "rounded_cast", "wrap"]
