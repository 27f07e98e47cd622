"""Arithmetic that NumPy does not have, for the semantics of PTX rows: fused multiply-add, directed rounding, flushing.

In: typed arrays. Out: arrays of the same type. The idea: an exact result is kept as a float64 that is *rounded to odd*
(its last bit records whether anything was lost); rounding that to a narrower type once more, in any mode, is correct.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray as Array
else:
    Array = np.ndarray  # numpy.typing is an import of its own, of which no compile has a use

F32_TINY = np.float32(2.0**-126)
BF16 = np.dtype(ml_dtypes.bfloat16)
_HALF29 = np.uint64(0x10000000)
_LOW29 = np.uint64(0x1FFFFFFF)
_ONE = np.uint64(1)
CANONICAL_NAN = np.uint32(0x7FFFFFFF).view(np.float32)


_TINY: dict[Any, Any] = {
    np.dtype(t): np.array(least, t) for t, least in ((np.float32, F32_TINY), (np.float16, 2.0**-14), (BF16, 2.0**-126))
}
"""The smallest normal number."""


def flush(x: Array) -> Array:
    """Denormals of a float of 32 or 16 bits to zero of the same sign."""
    small = np.abs(x) < _TINY[x.dtype]
    return np.where(small, np.copysign(x.dtype.type(0), x), x) if small.any() else x


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b exactly, as the rounded sum and its error (both float64, no overflow)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def to_odd(s: Array, err: Array) -> Array:
    """`s + err` rounded to odd: where err is not zero the last bit of the result is 1. `s` is s + err rounded to
    nearest.
    """
    bits = np.ascontiguousarray(s).view(np.uint64)
    fix = (err != 0) & ((bits & _ONE) == 0) & np.isfinite(s) & np.isfinite(err)
    if not fix.any():
        return s
    away = (err > 0) == (s >= 0)
    zero = s == 0
    moved = np.where(away, bits + _ONE, bits - _ONE).view(np.float64)
    moved = np.where(zero, np.copysign(np.float64(5e-324), err), moved)
    return np.where(fix, moved, s)


def sum_odd(a: Array, b: Array) -> Array:
    """a + b in float64, rounded to odd."""
    s, e = two_sum(a, b)
    return to_odd(s, e)


def round_f32(x: Array, mode: str = "rn") -> Array:
    """float64 (exact or rounded to odd) to float32 in mode rn, rz, rm (down) or rp (up)."""
    r = np.asarray(x).astype(np.float32)
    return _direct(r, x, mode)


def _direct(r: Array, exact: Array, mode: str) -> Array:
    """Correct a nearest result `r` to a directed mode, `exact` being the value before rounding."""
    if mode in ("rn", ""):
        return r
    back = r.astype(np.float64)
    over, under = back > exact, back < exact
    inf = np.array(np.inf, dtype=r.dtype)
    zero = np.array(0, dtype=r.dtype)
    if mode == "rm":
        return np.where(over, np.nextafter(r, -inf), r)
    if mode == "rp":
        return np.where(under, np.nextafter(r, inf), r)
    toward = (over & (exact > 0)) | (under & (exact < 0))
    return np.where(toward, np.nextafter(r, zero), r)


def fma_f32(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c with one rounding. The product of two float32 is exact in float64."""
    p = a.astype(np.float64) * b
    s = p + c
    if mode == "rn":
        bits = s.view(np.uint64)
        if not (((bits & _LOW29) == _HALF29).any() or (np.abs(s) < 2.0**-125).any()):
            return s.astype(np.float32)
    return round_f32(sum_odd(p, np.asarray(c, dtype=np.float64)), mode)


def _split(a: Array) -> tuple[Array, Array]:
    t = a * 134217729.0
    hi = t - (t - a)
    return hi, a - hi


def fma_f64(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c in float64 with one rounding (Boldo and Melquiond's use of odd rounding); extremes go through
    Fraction.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    p = a * b
    mags = [np.abs(x) for x in (a, b, p, c)]
    safe = np.ones(p.shape, dtype=bool)
    for m in mags:
        safe &= (m < 1e280) & ((m > 1e-280) | (m == 0))
    safe &= (p != 0) | (a == 0) | (b == 0)
    ah, al = _split(a)
    bh, bl = _split(b)
    e = al * bl - (((p - ah * bh) - al * bh) - ah * bl)
    uh, ul = two_sum(c, e)
    th, tl = two_sum(p, uh)
    v = sum_odd(tl, ul)
    z = th + v
    if mode != "rn":
        zz, err = two_sum(th, v)
        z = _nudge(zz, err, mode)
    whole = safe & (p != 0)  # a zero product is exact, and its parts would lose which zero it is
    if whole.all():
        return z
    out = np.where(whole, z, p + c)
    hard = ~safe & np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    flat = out.reshape(-1)
    for i in np.flatnonzero(hard):
        exact = Fraction(float(a.flat[i])) * Fraction(float(b.flat[i])) + Fraction(float(c.flat[i]))
        flat[i] = _fraction_f64(exact, mode) if exact else p.flat[i] + c.flat[i]
    return flat.reshape(out.shape)


def _nudge(r: Array, err: Array, mode: str) -> Array:
    """`r` is nearest to r + err; move one step where a directed mode says so."""
    with np.errstate(all="ignore"):
        if mode == "rm":
            return np.where(err < 0, np.nextafter(r, -np.inf), r)
        if mode == "rp":
            return np.where(err > 0, np.nextafter(r, np.inf), r)
        return np.where(((err < 0) & (r > 0)) | ((err > 0) & (r < 0)), np.nextafter(r, 0.0), r)


def _fraction_f64(x: Fraction, mode: str) -> float:
    try:
        r = x.numerator / x.denominator
    except OverflowError:
        r = float("inf") if x > 0 else float("-inf")
        if mode == "rz" or (mode == "rm" and x > 0) or (mode == "rp" and x < 0):
            return float(np.copysign(np.finfo(np.float64).max, r))
        return r
    f = Fraction(r)
    if mode == "rn" or f == x:
        return r
    if (mode == "rm" and f > x) or (mode == "rz" and abs(f) > abs(x) and x > 0):
        return float(np.nextafter(r, -np.inf))
    if (mode == "rp" and f < x) or (mode == "rz" and abs(f) > abs(x)):
        return float(np.nextafter(r, np.inf))
    return r


def add_f64(a: Array, b: Array, mode: str) -> Array:
    """float64 sum in a directed mode."""
    return via_f64(np.add, mode)(a, b)


def quotient_f32(a: Array, b: Array, mode: str = "rn") -> Array:
    """a / b, correctly rounded: float64 carries more than 2 * 24 + 2 bits, and its residual gives the odd bit."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    q = x / y
    with np.errstate(all="ignore"):
        residual = fma_residual(q, y, x)
        err = np.where(
            np.isfinite(q) & np.isfinite(residual) & (residual != 0),
            np.where((residual > 0) == (y > 0), 1.0, -1.0),
            0.0,
        )
    return round_f32(to_odd(q, err), mode)


def fma_residual(q: Array, y: Array, x: Array) -> Array:
    """Sign-exact x - q * y where q is x / y rounded and y has at most 24 significant bits."""
    qh, ql = _split(q)
    return (x - qh * y) - ql * y


def sqrt_f32(a: Array, mode: str = "rn") -> Array:
    x = np.asarray(a, dtype=np.float64)
    r = np.sqrt(x)
    with np.errstate(all="ignore"):
        rh, rl = _split(r)
        residual = ((x - rh * rh) - 2 * rh * rl) - rl * rl
        err = np.where(np.isfinite(r) & (residual != 0), np.sign(residual), 0.0)
    return round_f32(to_odd(r, err), mode)


_EXACT: dict[Any, Callable[..., Fraction]] = {
    np.add: Fraction.__add__,
    np.multiply: Fraction.__mul__,
    np.divide: Fraction.__truediv__,
}


def via_f64(fn: Callable[..., Array], mode: str) -> Callable[..., Array]:
    """float64 arithmetic (a NumPy function) with a directed rounding, one element at a time through Fraction: rare in
    kernels.
    """

    def run(*args: Array) -> Array:
        arrays = np.broadcast_arrays(*args)
        out = np.array(fn(*arrays), dtype=np.float64)
        finite = np.logical_and.reduce([np.isfinite(x) for x in arrays])
        for i in np.flatnonzero(finite & (out == out) & ((out != 0) | (fn is not np.sqrt))):
            values = [Fraction(float(x.flat[i])) for x in arrays]
            if fn is np.sqrt:
                r = Fraction(float(out.flat[i]))
                residual = values[0] - r * r
                sign = np.float64((residual > 0) - (residual < 0))
                out.flat[i] = _nudge(out[i : i + 1], sign, mode)[0]
                continue
            if fn is np.divide and values[1] == 0:
                continue
            exact = _EXACT[fn](*values)
            if exact:
                out.flat[i] = _fraction_f64(exact, mode)
            elif mode == "rm" and fn is np.add and any(values):
                out.flat[i] = -0.0  # x + (-x) rounds to -0 downwards
        return out

    return run


def saturate(x: Array) -> Array:
    """Clamp to [0, 1]; NaN becomes +0."""
    out = np.where(np.isnan(x), x.dtype.type(0), np.clip(x, x.dtype.type(0), x.dtype.type(1)))
    return np.where(out == 0, x.dtype.type(0), out)


def float_max(a: Array, b: Array) -> Array:
    """maximumNumber: the number where one operand is NaN, +0 over -0, canonical NaN for two NaNs."""
    r = np.fmax(a, b)
    return _tidy(r, (a == 0) & (b == 0), a, b, 1)


def float_min(a: Array, b: Array) -> Array:
    r = np.fmin(a, b)
    return _tidy(r, (a == 0) & (b == 0), a, b, -1)


def _tidy(r: Array, zeros: Array, a: Array, b: Array, sign: int) -> Array:
    if zeros.any():
        r = np.where(zeros, a + b if sign > 0 else -((-a) + (-b)), r)
    nan = np.isnan(r)
    if nan.any():
        r = np.where(nan, canonical_nan(r.dtype), r)
    return r


def canonical_nan(dtype: np.dtype) -> np.generic:
    """The NaN an operation makes: all payload bits set and sign clear, except float64's, which is the default one."""
    if dtype == np.float32:
        return CANONICAL_NAN
    if dtype == np.float64:
        return np.uint64(0x7FF8000000000000).view(np.float64)
    if dtype == np.float16:
        return np.uint16(0x7FFF).view(np.float16)
    return np.array(0x7FFF, dtype=np.uint16).view(ml_dtypes.bfloat16)[()]


def nan_if_any(fn: Callable[..., Array]) -> Callable[..., Array]:
    """The `.NaN` form of min and max: NaN where any operand is NaN."""

    def run(a: Array, b: Array) -> Array:
        r = fn(a, b)
        bad = np.isnan(a) | np.isnan(b)
        return np.where(bad, canonical_nan(r.dtype), r) if bad.any() else r

    return run


def to_bf16(x: Array) -> Array:
    """float64 (exact or odd) to bfloat16 with one rounding to nearest even."""
    return odd_f32(x).astype(ml_dtypes.bfloat16)


def to_f16(x: Array) -> Array:
    """float64 (exact or odd) to float16, one rounding."""
    return np.asarray(x, dtype=np.float64).astype(np.float16)


def odd_f32(x: Array) -> Array:
    """float64 to float32 rounded to odd, so that a second rounding to at most 22 bits is as good as the first."""
    x = np.asarray(x, dtype=np.float64)
    r = round_f32(x, "rz")
    bits = np.ascontiguousarray(r).view(np.uint32)
    inexact = (r.astype(np.float64) != x) & np.isfinite(r)
    return np.where(inexact, (bits | np.uint32(1)).view(np.float32), r)
