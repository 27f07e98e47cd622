"""Functions of f64 in kernel IR, from what every chip rounds correctly: + - * / and multiply-adds.

So the results have the same bits on every chip. Each function reduces its argument by constants that are sums of f64
numbers, evaluates a polynomial (`f64_constants.py`; `benchmarks/f64_coefficients.py` makes it) and puts the exponent
back through the high word. What a reduction loses is carried along as a second, small number.

NAMES: `_nearest` adds 1.5 * 2^52, which leaves the nearest whole number in the sum's low bits; it holds for |x| < 2^51
only, and what that makes of larger arguments is replaced at the end.
"""

from __future__ import annotations

from wavedsl.ir.functions import f64_constants as constants
from wavedsl.ir.functions.lower_pieces import polynomial, words_of
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, F64, I32, Value

_ROUNDER = 1.5 * 2.0**52
_SIGN = -(1 << 31)
_INFINITY, _NAN = float("inf"), float("nan")
FARTHEST_ANGLE = 2.0**45
"""Sines and cosines of larger numbers are NaN: their reduction would need more of pi than three f64 numbers."""


def _number(b: Builder, low: Value, high: Value) -> Value:
    return b.bitcast(b.vec(b.bitcast(low, B32), b.bitcast(high, B32)), F64)


def _number_of_high(b: Builder, high: Value) -> Value:
    return _number(b, b.const(0), high)


def _flip(b: Builder, x: Value, sign: Value) -> Value:
    """`x` with the sign bit of a word xored to its own."""
    low, high = words_of(b, x)
    return _number(b, low, b.xor(high, b.and_(sign, _SIGN)))


def _nearest(b: Builder, x: Value, factor: float) -> tuple[Value, Value]:
    """The whole number nearest to x * factor: as f64, and modulo 2^32 as i32."""
    sum = b.ffma(x, factor, _ROUNDER)
    return b.fsub(sum, _ROUNDER), words_of(b, sum)[0]


def _product(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """x * y exactly, as a sum."""
    high = b.fmul(x, y)
    return high, b.ffma(x, y, b.fneg(high))


# -------------------------------------------------------------------------------------------------------- exponentials


def _reduced(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """x = n ln 2 + r + c: (n as i32, r with |r| <= ln(2) / 2, what r lost). x - n LN2[0] is exact: both are multiples
    of 2^-54, and the difference is below 2^-1."""
    k, n = _nearest(b, x, constants.LOG2_E[0])
    exact = b.ffma(k, -constants.LN2[0], x)
    rest = b.fmul(k, constants.LN2[1])
    r = b.fsub(exact, rest)
    return n, r, b.fsub(b.fsub(exact, r), rest)


def _expm1(b: Builder, r: Value, c: Value) -> Value:
    """exp(r + c) - 1 for |r| <= ln(2) / 2 and a c that r cannot hold."""
    return b.fadd(r, b.ffma(b.fmul(r, r), polynomial(b, r, constants.EXP), c))


def _power(b: Builder, n: Value) -> Value:
    """2^n for -1023 < n < 1024."""
    return _number_of_high(b, b.shl(b.add(n, 1023), 20))


def _scaled(b: Builder, x: Value, n: Value) -> Value:
    """x * 2^n, rounded once where that is denormal; |n| < 2045."""
    if b.target is not None and b.target.scales_by_powers:
        return b.ldexp(x, n)
    half = b.ashr(n, 1)
    return b.fmul(b.fmul(x, _power(b, half)), _power(b, b.sub(n, half)))


def _within(b: Builder, value: Value, x: Value, low: float, high: float) -> Value:
    """`value`, but 0 for x below `low` and infinity above `high`."""
    value = b.select(b.fcmp("gt", x, high), b.const(_INFINITY, F64), value)
    return b.select(b.fcmp("lt", x, low), b.zero(F64), value)


def exp(b: Builder, x: Value) -> Value:
    n, r, c = _reduced(b, x)
    return _within(b, _scaled(b, b.fadd(_expm1(b, r, c), 1.0), n), x, -746.0, 710.0)


def exp2(b: Builder, x: Value, rest: Value | None = None) -> Value:
    """2^(x + rest), where x cannot hold `rest`: the fraction times ln 2, as a sum, is what `_expm1` takes. The fraction
    could hold more of `rest` than x, so that is added to it first."""
    k, n = _nearest(b, x, 1.0)
    fraction = b.fsub(x, k)
    ln2 = b.const(constants.LN2[0], F64)
    r, c = _product(b, fraction, ln2)
    c = b.ffma(fraction, constants.LN2[1], c)
    if rest is not None:
        c = b.ffma(rest, ln2, c)
        total = b.fadd(r, c)
        r, c = total, b.fsub(c, b.fsub(total, r))
    return _within(b, _scaled(b, b.fadd(_expm1(b, r, c), 1.0), n), x, -1076.0, 1025.0)


def expm1(b: Builder, x: Value) -> Value:
    """2^n (1 + e) - 1 of e = exp(r) - 1, where 2^n - 1 is exact or does not matter; it is -1 from -40 on."""
    n, r, c = _reduced(b, b.select(b.fcmp("lt", x, -40.0), b.const(-40.0, F64), x))
    power = _power(b, b.min_s(n, 1023))
    value = b.ffma(power, _expm1(b, r, c), b.fsub(power, 1.0))
    value = b.select(b.cmp("sgt", n, 1023), b.fadd(value, value), value)
    value = b.select(b.fcmp("gt", x, 710.0), b.const(_INFINITY, F64), value)
    return b.select(b.fcmp("eq", x, 0.0), x, value)


def sigmoid(b: Builder, x: Value) -> Value:
    """1 / (1 + e) for x >= 0 and e / (1 + e) below, of e = exp(-|x|), which never overflows."""
    e = exp(b, b.fneg(b.fabs(x)))
    one = b.const(1.0, F64)
    return b.fdiv(b.select(b.fcmp("lt", x, 0.0), e, one), b.fadd(e, one))


def tanh(b: Builder, x: Value) -> Value:
    """e / (e + 2) of e = exp(2 |x|) - 1, with the sign of x; 2^n - 1 is exact, and the whole is 1 from 22 on."""
    twice = b.fadd(b.fabs(x), b.fabs(x))
    n, r, c = _reduced(b, b.select(b.fcmp("gt", twice, 44.0), b.const(44.0, F64), twice))
    power = _power(b, n)
    e = b.ffma(power, _expm1(b, r, c), b.fsub(power, 1.0))
    return _flip(b, b.fdiv(e, b.fadd(e, 2.0)), words_of(b, x)[1])


def erf(b: Builder, x: Value) -> Value:
    """x + x p(x²) up to 1, where a NaN goes too; 1 - exp(q(|x|)) with the sign of x beyond."""
    ax = b.fabs(x)
    small = b.ffma(x, polynomial(b, b.fmul(x, x), constants.ERF), x)
    first, second, last = constants.ERF_BOUNDS
    near, far = (
        polynomial(b, b.fsub(b.fmin(ax, end), centre), c)
        for end, centre, c in zip((second, last), constants.ERF_CENTRES, (constants.ERF_NEAR, constants.ERF_FAR))
    )
    n, r, c = _reduced(b, b.select(b.fcmp("lt", ax, second), near, far))
    rest = b.fmul(b.fadd(_expm1(b, r, c), 1.0), _power(b, n))
    large = _flip(b, b.fsub(b.const(1.0, F64), rest), words_of(b, x)[1])
    return b.select(b.fcmp("ge", ax, first), large, small)


# ---------------------------------------------------------------------------------------------------------- logarithms


def _exponent(b: Builder, x: Value) -> tuple[Value, Value]:
    """x = 2^e m of a positive number: (e as f64, m with sqrt(1/2) <= m < sqrt(2))."""
    tiny = b.fcmp("lt", x, 2.0**-1022)
    low, high = words_of(b, b.select(tiny, b.fmul(x, 2.0**54), x))
    root = 0x3FE6A09E  # the high word of sqrt(1/2), cut off: what lies just below the root goes up with it
    above = b.add(high, 0x3FF00000 - root)
    e = b.sub(b.ashr(above, 20), b.select(tiny, b.const(1023 + 54), b.const(1023)))
    return b.cvt(e, F64), _number(b, low, b.add(b.and_(above, 0xFFFFF), root))


def _log(b: Builder, f: Value, precise: bool, f_rest: Value | None = None) -> tuple[Value, Value]:
    """ln(1 + f + f_rest) as a sum, for 1 + f between sqrt(1/2) and sqrt(2): s (2 + z (2/3 + z p(z))) of z = s²,
    s = f / (2 + f).

    s is a sum of two numbers: what the quotient leaves, and what 2 + f lost. `precise`: so is everything down to
    z p(z), for about 2^-65 of the result instead of 2^-58."""
    two = b.const(2.0, F64)
    divisor = b.fadd(f, two)
    lost = b.fsub(f, b.fsub(divisor, two))
    reciprocal = b.fdiv(b.const(1.0, F64), divisor)
    s = b.fmul(f, reciprocal)
    left = b.ffma(b.fneg(s), lost, b.ffma(b.fneg(s), divisor, f))
    if f_rest is not None:
        left = b.fadd(left, b.ffma(b.fneg(s), f_rest, f_rest))
    s_rest = b.fmul(left, reciprocal)
    z = b.fmul(s, s)
    third, third_rest = constants.TWO_THIRDS
    if precise:
        z_rest = b.ffma(b.fadd(s, s), s_rest, b.ffma(s, s, b.fneg(z)))
        p = b.fmul(z, polynomial(b, z, constants.ATANH))
        t = b.fadd(p, third)
        t_rest = b.fadd(b.fsub(p, b.fsub(t, third)), third_rest)
        w, w_rest = _product(b, z, t)
        w_rest = b.fadd(w_rest, b.ffma(z, t_rest, b.fmul(z_rest, t)))
        u = b.fadd(w, two)
        u_rest = b.fadd(b.fsub(w, b.fsub(u, two)), w_rest)
    else:
        w = b.fmul(z, polynomial(b, z, (third, *constants.ATANH)))
        u = b.fadd(w, two)
        u_rest = b.fsub(w, b.fsub(u, two))
    high, rest = _product(b, s, u)
    return high, b.fadd(rest, b.ffma(s, u_rest, b.fmul(s_rest, u)))


def _logarithm(b: Builder, value: Value, x: Value) -> Value:
    """`value`, but for what has no logarithm, or an infinite one."""
    infinity = b.const(_INFINITY, F64)
    low = b.select(b.fcmp("eq", x, 0.0), b.const(-_INFINITY, F64), b.const(_NAN, F64))
    return b.select(b.fcmp("gt", x, 0.0), b.select(b.fcmp("eq", x, infinity), infinity, value), low)


def _times(b: Builder, high: Value, rest: Value, factor: tuple[float, float]) -> tuple[Value, Value]:
    """(high + rest) times a constant that is a sum, as a sum."""
    first = b.const(factor[0], F64)
    product, product_rest = _product(b, high, first)
    return product, b.fadd(product_rest, b.ffma(high, factor[1], b.fmul(rest, first)))


def _sum(b: Builder, e: Value, per: tuple[float, float], high: Value, rest: Value) -> tuple[Value, Value]:
    """e times a constant, and a sum of two, as a sum; e is 0 where the two could cancel."""
    whole = e
    if per != (1.0, 0.0):
        whole, whole_rest = _product(b, e, b.const(per[0], F64))
        rest = b.fadd(rest, b.ffma(e, per[1], whole_rest))
    total = b.fadd(whole, high)
    lost = b.fadd(b.fsub(high, b.fsub(total, whole)), rest)
    result = b.fadd(total, lost)
    return result, b.fsub(lost, b.fsub(result, total))


def log(b: Builder, x: Value) -> Value:
    e, m = _exponent(b, x)
    return _logarithm(b, _sum(b, e, constants.LN2, *_log(b, b.fsub(m, 1.0), False))[0], x)


def log1p(b: Builder, x: Value) -> Value:
    """ln(1 + x): of x itself where 1 + x lies around 1; else of the sum, and of what it lost at its scale."""
    one = b.const(1.0, F64)
    total = b.fadd(x, one)
    back = b.fsub(total, one)
    lost = b.fadd(b.fsub(one, b.fsub(total, back)), b.fsub(x, back))
    e, m = _exponent(b, total)
    power = _power(b, b.cvt(b.fmax(b.fneg(e), -1000.0), I32))
    near = b.pand(b.fcmp("gt", x, -0.29), b.fcmp("lt", x, 0.41))
    zero = b.zero(F64)
    f = b.select(near, x, b.fsub(m, 1.0))
    f_rest = b.select(near, zero, b.fmul(lost, power))
    value = _sum(b, b.select(near, zero, e), constants.LN2, *_log(b, f, False, f_rest))[0]
    return b.select(b.fcmp("lt", b.fabs(x), 2.0**-54), x, _logarithm(b, value, total))


def _log2(b: Builder, x: Value, precise: bool) -> tuple[Value, Value]:
    """log2 x of a positive finite number, as a sum."""
    e, m = _exponent(b, x)
    return _sum(b, e, (1.0, 0.0), *_times(b, *_log(b, b.fsub(m, 1.0), precise), constants.LOG2_E))


def log2(b: Builder, x: Value) -> Value:
    return _logarithm(b, _log2(b, x, False)[0], x)


def log10(b: Builder, x: Value) -> Value:
    e, m = _exponent(b, x)
    parts = _times(b, *_log(b, b.fsub(m, 1.0), False), constants.LOG10_E)
    return _logarithm(b, _sum(b, e, constants.LOG10_2, *parts)[0], x)


def pow(b: Builder, x: Value, y: Value) -> Value:
    """exp2(y log2 x), of a logarithm that is a sum of two numbers."""
    high, rest = _log2(b, x, True)
    high = _logarithm(b, high, x)
    exponent, exponent_rest = _product(b, high, y)
    return exp2(b, exponent, b.ffma(rest, y, exponent_rest))


# -------------------------------------------------------------------------------------------------------------- angles


def _quadrant(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """x = n pi / 2 + r + c for 0 <= x <= FARTHEST_ANGLE: (n as i32, r, what r lost).

    x less n HALF_PI[0] is exact: both are multiples of 2^-53, and the difference is below 1. The product with the
    second part is a sum of two numbers, the third part is far below what r can hold."""
    k, n = _nearest(b, x, constants.TWO_OVER_PI)
    first, second, third = constants.HALF_PI
    exact = b.ffma(k, -first, x)
    high, low = _product(b, k, b.const(second, F64))
    r = b.fsub(exact, high)
    back = b.fsub(r, exact)
    lost = b.fsub(b.fsub(exact, b.fsub(r, back)), b.fadd(high, back))
    lost = b.fsub(b.fsub(lost, low), b.fmul(k, third))
    total = b.fadd(r, lost)
    return n, total, b.fsub(lost, b.fsub(total, r))


def _angle(b: Builder, x: Value, quarters: int) -> Value:
    """sin(x + quarters pi / 2) for x >= 0."""
    n, r, c = _quadrant(b, x)
    z = b.fmul(r, r)
    half = b.fmul(z, 0.5)
    one = b.const(1.0, F64)
    near_one = b.fsub(one, half)
    sine = b.fadd(r, b.ffma(b.fmul(z, r), polynomial(b, z, constants.SIN), b.fmul(c, near_one)))
    lost = b.fsub(b.fsub(one, near_one), half)
    rest = b.ffma(b.fmul(z, z), polynomial(b, z, constants.COS), b.fsub(lost, b.fmul(r, c)))
    cosine = b.fadd(near_one, rest)
    n = b.add(n, quarters)
    value = b.select(b.cmp("eq", b.and_(n, 1), 0), sine, cosine)
    value = _flip(b, value, b.shl(n, 30))
    return b.select(b.fcmp("le", x, FARTHEST_ANGLE), value, b.const(_NAN, F64))


def sin(b: Builder, x: Value) -> Value:
    return _flip(b, _angle(b, b.fabs(x), 0), words_of(b, x)[1])


def cos(b: Builder, x: Value) -> Value:
    return _angle(b, b.fabs(x), 1)
