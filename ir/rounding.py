"""Numbers from one dtype to another, as NumPy arrays: the contract's rounding, saturation and packing in one place.

Arrays of narrow types are ml_dtypes arrays, one element each; `unpack` and `pack` go to and from the packed `uint8`
storage of sub-byte types, little end first.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType

Array = Any

SATURATING = (dt.f8e4m3, dt.f8e5m2, dt.f8e4m3fnuz, dt.f8e5m2fnuz, dt.f6e2m3, dt.f6e3m2, dt.f4e2m1)
"""Casts into these clamp to the largest finite number; a NaN becomes it too where the type has none."""

_MOST_TF32 = np.uint32(0x7F7FE000).view(np.float32)
"""The largest finite number of tf32."""

_NO_NAN = (dt.f6e2m3, dt.f6e3m2, dt.f4e2m1)


def convert(x: Array, source: DType, to: DType, rounding: str | None = None) -> Array:
    """`x` (an array of `source`, or of f64 standing for one) as an array of `to`.

    float → float rounds to nearest even (`toward_zero` truncates); float → int truncates and saturates, NaN gives 0;
    int → int wraps; anything → i1 is `!= 0`.
    """
    x = np.asarray(x)
    if to.kind == "bool":
        return x.astype(np.float64) != 0 if x.dtype.kind == "V" else x != 0
    if to.is_int:
        return _to_int(x, source, to)
    if source.kind in ("int", "uint", "bool"):
        if x.dtype.kind == "V":
            x = x.astype(np.int32)
        if to.bits == 64 or (to is dt.f32):
            return x.astype(to.numpy)
        return to_float(_whole(x), to)
    return to_float(x, to, rounding)


def _whole(x: Array) -> Array:
    """Integers as f64; of those that it does not hold, the bits below are one that stands for all (round to odd)."""
    near = x.astype(np.float64)
    if x.dtype.itemsize < 8:
        return near
    low = x & x.dtype.type(0xFFF)
    odd = (x - low) + np.where(low != 0, x.dtype.type(0x800), x.dtype.type(0))
    return np.where(np.abs(near) > 2.0**53, odd.astype(np.float64), near)


def to_float(x: Array, to: DType, rounding: str | None = None) -> Array:
    """A float array rounded once to `to`."""
    x = np.asarray(x)
    if to is dt.f64:
        return x.astype(np.float64, copy=False)
    if to in SATURATING:
        result = _saturating(x, to)
    elif to is dt.tf32:
        # The tie bit decides the whole rounding only if nothing below it was rounded away before.
        found = _to_tf32(_odd(x), rounding == "toward_zero")
        if rounding == "toward_zero":  # f32 has made infinities of what lies beyond it
            found = np.where(np.isinf(found) & np.isfinite(x), np.copysign(_MOST_TF32, found), found)
        return found
    elif to is dt.bf16 or to is dt.f8e8m0:
        result = _odd(x).astype(to.numpy)
    else:
        result = x.astype(to.numpy, copy=False)
    if rounding == "toward_zero":
        wide = x.astype(np.float64)
        over = np.abs(result.astype(np.float64)) > np.abs(wide)
        result = np.where(over, np.nextafter(result, np.zeros_like(result)), result)
    return result


def stochastic(x: Array, to: DType, bits: Array) -> Array:
    """f32 numbers rounded away from zero where the part of the step below them, in 65536ths, is more than the low 16
    of the random `bits`, else towards zero. What lies past the largest number becomes the largest."""
    wide = np.abs(np.asarray(x, np.float64))
    below = to_float(wide, to, "toward_zero")
    small = below.astype(np.float64)
    codes = np.ascontiguousarray(below).view(f"u{max(1, to.bits // 8)}")
    most = codes.dtype.type((1 << to.bits - 1) - 1)  # without infinity the code after it would be -0
    above = (np.where(codes == most, codes, codes + codes.dtype.type(1)) if to in _NO_NAN else codes + 1)
    above = above.astype(codes.dtype).view(below.dtype)
    step = above.astype(np.float64) - small
    away = (wide - small) * 65536.0 > (np.asarray(bits).astype(np.int64) & 0xFFFF) * step
    found = np.where(away, above, below)
    return np.where(np.signbit(x), -found, found)


def _odd(x: Array) -> Array:
    """f64 to f32 with rounding to odd, so that a second rounding to a narrower type gives what one would."""
    if x.dtype == np.float32 or x.dtype != np.float64:
        return x.astype(np.float32, copy=False)
    near = np.atleast_1d(x.astype(np.float32))
    wide = np.atleast_1d(x)
    inexact = np.isfinite(near) & (near.astype(np.float64) != wide)
    bits = near.view(np.int32).copy()
    away = inexact & (np.abs(near.astype(np.float64)) > np.abs(wide))
    bits = np.where(away, bits - 1, bits)  # truncate, then make the last bit sticky
    bits = np.where(inexact, bits | 1, bits)
    return bits.view(np.float32).reshape(x.shape)


def _to_tf32(x: Array, truncate: bool = False) -> Array:
    bits = np.atleast_1d(x).view(np.uint32)
    half = np.uint32(0) if truncate else np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    rounded = (bits + half) & np.uint32(0xFFFFE000)
    finite = (bits & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
    return np.where(finite, rounded, bits).view(np.float32).reshape(x.shape)


def _saturating(x: Array, to: DType) -> Array:
    largest = float(ml_dtypes.finfo(to.numpy).max)
    wide = _odd(x)
    clipped = np.clip(wide, np.float32(-largest), np.float32(largest))  # keeps NaN
    if to in _NO_NAN:
        clipped = np.where(np.isnan(clipped), np.float32(largest), clipped)
    return clipped.astype(to.numpy)


def _to_int(x: Array, source: DType, to: DType) -> Array:
    if source.kind in ("int", "uint", "bool"):
        if x.dtype.kind == "V":
            x = x.astype(np.int32)
        if to.bits >= 8:
            return x.astype(to.numpy)
        low = x.astype(np.int64) & 15
        return ((low ^ 8) - 8 if to.is_signed else low).astype(np.int32).astype(to.numpy)
    low, high = (-(1 << to.bits - 1), (1 << to.bits - 1) - 1) if to.is_signed else (0, (1 << to.bits) - 1)
    whole = np.trunc(x.astype(np.float64))
    whole = np.where(np.isnan(whole), 0.0, whole)
    inside = (whole > float(low)) & (whole < float(high))
    narrow = np.where(inside, whole, 0.0)
    wide = np.uint64 if to.bits == 64 and not to.is_signed else np.int64
    ends = np.where(whole <= float(low), np.array(low, wide), np.array(high, wide))
    return np.where(inside, narrow.astype(wide), ends).astype(np.int64 if to.bits < 8 else wide).astype(to.numpy)


def unpack(packed: Array, dtype: DType, extent: int) -> Array:
    """Elements of a packed array: the last dimension's bytes hold `extent` elements, little end first."""
    bits = np.unpackbits(np.ascontiguousarray(packed), axis=-1, bitorder="little")
    bits = bits[..., : extent * dtype.bits].reshape(*packed.shape[:-1], extent, dtype.bits)
    codes = (bits.astype(np.uint8) << np.arange(dtype.bits, dtype=np.uint8)).sum(axis=-1, dtype=np.uint8)
    if dtype.is_int:
        if dtype.is_signed:
            return ((codes.astype(np.int32) ^ 8) - 8).astype(dtype.numpy)
        return codes.astype(dtype.numpy)
    return codes.view(dtype.numpy)


def pack(elements: Array, dtype: DType, out: Array) -> None:
    """Writes elements into their packed array; bits beyond the last element keep their value."""
    if dtype.is_int:
        codes = elements.astype(np.int32).astype(np.uint8)
    else:
        codes = np.ascontiguousarray(elements).view(np.uint8)
    bits = (codes[..., None] >> np.arange(dtype.bits, dtype=np.uint8)) & 1
    bits = bits.reshape(*elements.shape[:-1], elements.shape[-1] * dtype.bits)
    old = np.unpackbits(np.ascontiguousarray(out), axis=-1, bitorder="little")
    old[..., : bits.shape[-1]] = bits
    out[...] = np.packbits(old, axis=-1, bitorder="little")


# ---------------------------------------------------------------------------------------------- fused multiply-add


def fma(a: Array, b: Array, c: Array) -> Array:
    """a b + c of f32 or f64 arrays, rounded once.

    f32: the product is exact in f64; the sum is rounded to odd there, which leaves f32's rounding what it was. f64: the
    product's error is known exactly, and the two parts are added by way of odd rounding (Boldo and Melquiond). Where
    that could overflow or lose bits below the denormals, rational numbers decide.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    with np.errstate(all="ignore"):
        if a.dtype == np.float32:
            return _sum_to_odd(a.astype(np.float64) * b, c.astype(np.float64)).astype(np.float32)
        product = a * b
        magnitudes = [np.abs(x) for x in (a, b, product, c)]
        safe = np.logical_and.reduce([(m < 1e280) & ((m > 1e-280) | (m == 0)) for m in magnitudes])
        safe &= (product != 0) | (a == 0) | (b == 0)
        high, low = _two_sum(c, _product_error(a, b, product))
        top, rest = _two_sum(product, high)
        # A zero product is exact, and the parts of it would lose which zero it is.
        out = np.where(safe & (product != 0), top + _sum_to_odd(rest, low), product + c)
    hard = ~safe & np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    for at in map(tuple, np.argwhere(hard)):  # one empty index for numbers without dimensions
        exact = Fraction(float(a[at])) * Fraction(float(b[at])) + Fraction(float(c[at]))
        if exact:
            out[at] = _nearest(exact)
    return out


def _nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


def _product_error(a: Array, b: Array, product: Array) -> Array:
    """a b - product, exactly (Dekker)."""
    (ah, al), (bh, bl) = (_halves(x) for x in (a, b))
    return al * bl - (((product - ah * bh) - al * bh) - ah * bl)


def _halves(x: Array) -> tuple[Array, Array]:
    """The upper 26 bits of an f64 mantissa, and the rest (Veltkamp)."""
    shifted = x * 134217729.0
    high = shifted - (shifted - x)
    return high, x - high


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b as the rounded sum and its error (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _sum_to_odd(a: Array, b: Array) -> Array:
    """a + b in f64: of the two neighbours of an inexact sum the one whose last bit is set."""
    s, error = _two_sum(a, b)
    bits = np.ascontiguousarray(s).view(np.int64)
    even = (error != 0) & (bits & 1 == 0) & np.isfinite(s) & np.isfinite(error)
    away = (error > 0) == (s > 0)
    return np.where(even, np.where(away, bits + 1, bits - 1), bits).view(np.float64).reshape(s.shape)
