"""Arctangents, and arcsines and arccosines made of them, of f32 and f64 in kernel IR.

The smaller of two sides over the larger is a number of 0 to 1. Above tan(pi / 12), the arctangent of a number in the
middle is taken off: a polynomial has to hold for a twelfth of a turn's half only. The octant is put right at the end.
"""

from __future__ import annotations

import math

from wavedsl.ir.functions import f64_constants as constants
from wavedsl.ir.functions.lower_pieces import polynomial
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, F32, I32, Value, vector

_NEAR = 0.2679
_SERIES = [(-1.0) ** n / (2 * n + 1) for n in range(1, 7)]
"""Taylor's, enough for f32: the term behind them is below 2^-30 of the result."""


def _sign(b: Builder, x: Value) -> Value:
    """A word with the sign bit of `x`."""
    word = b.bitcast(x, B32) if x.type is F32 else b.elements(b.bitcast(x, vector(2)))[1]
    return b.bitcast(word, I32)


def _signed(b: Builder, x: Value, sign: Value) -> Value:
    """`x`, which is not negative, with the sign bit of a word."""
    bit = b.and_(sign, -(1 << 31))
    if x.type is F32:
        return b.bitcast(b.or_(b.bitcast(x, I32), bit), F32)
    low, high = b.elements(b.bitcast(x, vector(2)))
    return b.bitcast(b.vec(low, b.bitcast(b.or_(b.bitcast(high, I32), bit), B32)), x.type)


def _of_unit(b: Builder, t: Value) -> Value:
    """The arctangent of 0 <= t <= 1."""
    middle, (high, low) = constants.ATAN_MIDDLE, constants.ATAN_OF_MIDDLE
    if t.type is F32:
        low = high - float(_as_f32(b, high).const or 0.0) + low
    zero = b.zero(t.type)
    moved = b.fcmp("gt", t, _NEAR)
    above, below = b.fsub(t, middle), b.ffma(t, middle, 1.0)
    z = b.select(moved, b.fmul(above, b.rcp(below)) if t.type is F32 else b.fdiv(above, below), t)
    square = b.fmul(z, z)
    series = _SERIES if t.type is F32 else constants.ATAN
    rest = b.ffma(b.fmul(z, square), polynomial(b, square, series), b.select(moved, b.const(low, t.type), zero))
    return b.fadd(b.select(moved, b.const(high, t.type), zero), b.fadd(z, rest))


def _as_f32(b: Builder, number: float) -> Value:
    return b.const(number, F32)


def _less(b: Builder, whole: tuple[float, float], x: Value) -> Value:
    """A constant that is a sum, less x."""
    high, low = whole
    if x.type is F32:
        low = high - float(_as_f32(b, high).const or 0.0) + low
    return b.fsub(b.const(high, x.type), b.fsub(x, low))


def _angle(b: Builder, y: Value, x: Value, left: Value | None) -> Value:
    """Of the point (x, y), |y| taken: 0 to pi. `left`: whether x is negative; None: it is not."""
    ax, ay = b.fabs(x), b.fabs(y)
    longer, shorter = b.fmax(ax, ay), b.fmin(ax, ay)
    one = b.const(1.0, x.type)
    nowhere = b.fcmp("eq", longer, 0.0)
    t = b.fdiv(shorter, b.select(nowhere, one, longer))
    t = b.select(b.fcmp("eq", shorter, math.inf), one, t)
    a = _of_unit(b, t)
    a = b.select(b.fcmp("gt", ay, ax), _less(b, constants.HALF_PI[:2], a), a)
    if left is not None:
        a = b.select(left, _less(b, constants.PI, a), a)
    unknown = b.por(b.fcmp("ne", x, x), b.fcmp("ne", y, y))
    return b.select(unknown, b.const(math.nan, x.type), a)


def atan2(b: Builder, y: Value, x: Value) -> Value:
    return _signed(b, _angle(b, y, x, b.cmp("slt", _sign(b, x), 0)), _sign(b, y))


def atan(b: Builder, x: Value) -> Value:
    return _signed(b, _angle(b, x, b.const(1.0, x.type), None), _sign(b, x))


def _other_side(b: Builder, x: Value) -> Value:
    """sqrt(1 - x²), NaN beyond 1."""
    one = b.const(1.0, x.type)
    return b.sqrt(b.fmul(b.fsub(one, x), b.fadd(one, x)))


def asin(b: Builder, x: Value) -> Value:
    return _signed(b, _angle(b, x, _other_side(b, x), None), _sign(b, x))


def acos(b: Builder, x: Value) -> Value:
    return _angle(b, _other_side(b, x), x, b.cmp("slt", _sign(b, x), 0))
