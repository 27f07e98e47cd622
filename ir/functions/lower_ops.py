"""Elementwise operations in kernel IR: one function per row of `ops.py`, by name.

Each takes numbers in the `scalar_type` of the operand dtype and gives one in that of the result. Numbers narrower
than f32 are computed in f32 and rounded when they are packed, which for + - * / and square root equals one rounding
(24 >= 2 p + 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.functions import lower_arc, lower_bits, lower_f64
from wavedsl.ir.functions.lower_cast import cast, rounded_cast, wrap
from wavedsl.ir.functions.lower_pieces import polynomial
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.facts import BITS
from wavedsl.ir.kernel.kernel_ir import I32, PRED, Value

Rule = Callable[..., Value]
RULES: dict[str, Rule] = {}
"""Operation → (builder, operand dtype, *operands) → result."""


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(f: Rule) -> Rule:
        for name in names:
            RULES[name] = f
        return f

    return register


def _split(float_op: str, int_op: str) -> Rule:
    def rule(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
        return getattr(b, float_op if dtype.is_float else int_op)(x, y)

    return rule


RULES["add"] = _split("fadd", "add")
RULES["sub"] = _split("fsub", "sub")
RULES["mul"] = _split("fmul", "mul")


def _unsigned(dtype: DType) -> bool:
    return dtype.kind == "uint"


@_rule("minimum")
def _minimum(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    if dtype.is_float:
        return b.fmin(x, y)
    return b.min_u(x, y) if _unsigned(dtype) else b.min_s(x, y)


@_rule("maximum")
def _maximum(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    if dtype.is_float:
        return b.fmax(x, y)
    return b.max_u(x, y) if _unsigned(dtype) else b.max_s(x, y)


@_rule("clamp")
def _clamp(b: Builder, dtype: DType, x: Value, low: Value, high: Value) -> Value:
    return _minimum(b, dtype, _maximum(b, dtype, x, low), high)


@_rule("div")
def _div(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    return b.fdiv(x, y)


@_rule("floordiv")
def _floordiv(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    return (_float_divide if dtype.is_float else _int_divide)(b, dtype, x, y)[0]


@_rule("mod")
def _mod(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    return (_float_divide if dtype.is_float else _int_divide)(b, dtype, x, y)[1]


def _float_divide(b: Builder, dtype: DType, x: Value, y: Value) -> tuple[Value, Value]:
    """Floor quotient and remainder with the divisor's sign, as NumPy has them.

    The rounded quotient may be the whole number above the exact one, also where the exact one lies just below 0: then
    the remainder has the wrong sign, and both are corrected.
    """
    zero = b.zero(x.type)
    q = b.ffloor(b.fdiv(x, y))
    # No multiple of an infinite divisor is taken off.
    rest = b.select(b.fcmp("eq", q, zero), x, b.ffma(b.fneg(q), y, x))
    y_low = b.fcmp("lt", y, zero)
    wrong = b.pand(b.fcmp("ne", rest, zero), b.pxor(b.fcmp("lt", rest, zero), y_low))
    whole = b.select(wrong, b.fsub(q, b.const(1.0, x.type)), q)
    inside = b.select(wrong, b.fadd(rest, y), rest)
    signed_zero = b.select(y_low, b.const(-0.0, x.type), zero)
    # An infinite dividend has no whole quotient: less itself it is NaN, any other one 0.
    return b.fsub(whole, b.fsub(x, x)), b.select(b.fcmp("eq", inside, zero), signed_zero, inside)


def _int_divide(b: Builder, dtype: DType, x: Value, y: Value) -> tuple[Value, Value]:
    """Floor quotient and remainder with the divisor's sign, from an unsigned division.

    By y < 0, floor(x / y) is ~floor((x - 1) / -y); of a dividend u < 0, floor(u / d) is ~floor(~u / d). Of the least
    number less one, which has no room in its type, ~u has room as an unsigned number.
    """
    if _unsigned(dtype):
        return b.udiv(x, y), b.urem(x, y)
    if isinstance(y.const, int) and y.const > 0:
        return b.floordiv(x, y.const), b.floormod(x, y.const)
    last = 31 if x.type is I32 else 63
    y_sign = b.ashr(y, last)  # -1 below zero, else 0
    u = b.add(x, y_sign)
    u_sign = b.ashr(b.or_(x, u), last)
    q = b.xor(b.udiv(b.xor(u, u_sign), b.sub(b.xor(y, y_sign), y_sign)), b.xor(u_sign, y_sign))
    return q, b.sub(x, b.mul(q, y))  # one division for both


@_rule("neg")
def _neg(b: Builder, dtype: DType, x: Value) -> Value:
    return b.fneg(x) if dtype.is_float else b.neg(x)


@_rule("abs")
def _abs(b: Builder, dtype: DType, x: Value) -> Value:
    if dtype.is_float:
        return b.fabs(x)
    return x if _unsigned(dtype) else b.max_s(x, b.neg(x))


@_rule("fma")
def _fma(b: Builder, dtype: DType, x: Value, y: Value, z: Value) -> Value:
    return b.ffma(x, y, z) if dtype.is_float else b.add(b.mul(x, y), z)


def _unary(method: str) -> Rule:
    def rule(b: Builder, dtype: DType, x: Value) -> Value:
        return getattr(b, method)(x)

    return rule


for _name, _method in (
    ("floor", "ffloor"), ("ceil", "fceil"), ("trunc", "ftrunc"), ("round", "frint"), ("exp2", "exp2"),
    ("log2", "log2"), ("sqrt", "sqrt"), ("sin", "sin"), ("cos", "cos"),
):  # fmt: skip
    RULES[_name] = _unary(_method)


@_rule("rsqrt")
def _rsqrt(b: Builder, dtype: DType, x: Value) -> Value:
    return b.fdiv(b.const(1.0, x.type), b.sqrt(x)) if dtype is dt.f64 else b.rsqrt(x)


@_rule("reciprocal")
def _reciprocal(b: Builder, dtype: DType, x: Value) -> Value:
    return b.fdiv(b.const(1.0, x.type), x)


@_rule("exp")
def _exp(b: Builder, dtype: DType, x: Value) -> Value:
    return RULES["exp2"](b, dtype, b.fmul(x, b.const(math.log2(math.e), x.type)))


@_rule("log")
def _log(b: Builder, dtype: DType, x: Value) -> Value:
    return b.fmul(RULES["log2"](b, dtype, x), b.const(math.log(2.0), x.type))


@_rule("log10")
def _log10(b: Builder, dtype: DType, x: Value) -> Value:
    return b.fmul(RULES["log2"](b, dtype, x), b.const(math.log10(2.0), x.type))


@_rule("expm1")
def _expm1(b: Builder, dtype: DType, x: Value) -> Value:
    """Taylor's series of degree 8 below 1/2, where exp(x) - 1 cancels; the ninth term is below 2^-25 of the result."""
    terms = [1.0 / math.factorial(n) for n in range(2, 9)]
    near = b.ffma(b.fmul(x, x), polynomial(b, x, terms), x)
    near = b.select(b.fcmp("eq", x, b.const(0.0, x.type)), x, near)  # which zero
    far = b.fsub(_exp(b, dtype, x), b.const(1.0, x.type))
    return b.select(b.fcmp("lt", b.fabs(x), b.const(0.5, x.type)), near, far)


@_rule("log1p")
def _log1p(b: Builder, dtype: DType, x: Value) -> Value:
    """2 atanh(s) of s = x / (2 + x) where 1 + x is near 1: s + s³/3 + … to s⁹; the next is below 2^-28 of it."""
    s = b.fmul(x, b.rcp(b.fadd(x, b.const(2.0, x.type))))
    z = b.fmul(s, s)
    series = polynomial(b, z, [2.0 / n for n in (3, 5, 7, 9)])
    near = b.ffma(b.fmul(z, s), series, b.fadd(s, s))
    far = _log(b, dtype, b.fadd(x, b.const(1.0, x.type)))
    inside = b.pand(b.fcmp("gt", x, b.const(-0.29, x.type)), b.fcmp("lt", x, b.const(0.41, x.type)))
    return b.select(b.fcmp("eq", x, b.const(0.0, x.type)), x, b.select(inside, near, far))


@_rule("isnan")
def _isnan(b: Builder, dtype: DType, x: Value) -> Value:
    return b.fcmp("ne", x, x)


@_rule("isinf")
def _isinf(b: Builder, dtype: DType, x: Value) -> Value:
    return b.fcmp("eq", b.fabs(x), b.const(math.inf, x.type))


@_rule("isfinite")
def _isfinite(b: Builder, dtype: DType, x: Value) -> Value:
    return b.fcmp("lt", b.fabs(x), b.const(math.inf, x.type))


@_rule("sigmoid")
def _sigmoid(b: Builder, dtype: DType, x: Value) -> Value:
    """1 / (1 + exp(-x)); the chip's reciprocal adds at most an ulp to an exponential's several."""
    return b.rcp(b.fadd(_exp(b, dtype, b.fneg(x)), b.const(1.0, x.type)))


@_rule("tanh")
def _tanh(b: Builder, dtype: DType, x: Value) -> Value:
    """1 - 2 / (exp(2|x|) + 1) with the sign of x; below 1/4, where that cancels, an odd polynomial."""
    one = b.const(1.0, x.type)
    ax = b.fabs(x)
    big = b.ffma(b.const(-2.0, x.type), b.rcp(b.fadd(_exp(b, dtype, b.fadd(ax, ax)), one)), one)
    x2 = b.fmul(x, x)
    p = b.const(-0.053968254, x.type)
    for c in (0.13333333, -0.33333333):
        p = b.ffma(p, x2, b.const(c, x.type))
    small = b.ffma(b.fmul(p, x2), ax, ax)
    t = b.select(b.fcmp("lt", ax, b.const(0.25, x.type)), small, big)
    return b.select(b.fcmp("lt", x, b.const(0.0, x.type)), b.fneg(t), t)


_ERF_SMALL = (
    1.128379225730896, -0.37612637877464294, 0.11283782124519348, -0.0268654003739357, 0.005220945458859205,
    -0.0008482828852720559, 0.0001125694761867635, -9.64151604421204e-06,
)  # fmt: skip
"""erf(x) / x as a polynomial of x² for |x| <= 1: least maximum relative error, 3.4e-11 before rounding."""
_ERF_LARGE = (
    0.0002948289620690048, -1.6297565698623657, -0.913283109664917, -0.1567329466342926, 0.036606304347515106,
    -0.006178172305226326, 0.0006691046291962266, -3.6521545553114265e-05, 3.6258745694794925e-07,
)  # fmt: skip
"""log2(1 - erf(x)) as a polynomial of x for 1 <= x <= 4; beyond, erf is 1 in f32."""


@_rule("erf")
def _erf(b: Builder, dtype: DType, x: Value) -> Value:
    """x p(x²) up to 1, where a NaN goes too; 1 - exp2(q(|x|)) with the sign of x beyond."""
    ax = b.fabs(x)
    small = b.fmul(polynomial(b, b.fmul(x, x), _ERF_SMALL), x)
    rest = b.exp2(polynomial(b, b.fmin(ax, b.const(4.0, x.type)), _ERF_LARGE))
    one = b.const(1.0, x.type)
    big = b.fsub(one, rest)
    big = b.select(b.fcmp("lt", x, b.const(0.0, x.type)), b.fneg(big), big)
    return b.select(b.fcmp("ge", ax, one), big, small)


@_rule("pow")
def _pow(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    if not dtype.is_float:
        raise CompileError("pow of integers is not lowered", b.current_loc, "multiply, or cast to f32")
    return RULES["exp2"](b, dtype, b.fmul(y, RULES["log2"](b, dtype, x)))


def _plain(f: Callable[..., Value]) -> Rule:
    return lambda b, dtype, *operands: f(b, *operands)


def _by_width(narrow: Rule, f64: Callable[..., Value]) -> Rule:
    def rule(b: Builder, dtype: DType, *operands: Value) -> Value:
        return f64(b, *operands) if dtype is dt.f64 else narrow(b, dtype, *operands)

    return rule


for _name in (
    "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sigmoid", "tanh", "erf", "pow", "sin", "cos",
):  # fmt: skip
    RULES[_name] = _by_width(RULES[_name], getattr(lower_f64, _name))


for _name in ("atan", "asin", "acos"):
    RULES[_name] = _plain(getattr(lower_arc, _name))
RULES["atan2"] = _plain(lower_arc.atan2)

for _name in (
    "popcount", "clz", "ctz", "bit_reverse", "rotate_left", "permute_bytes", "mulhi", "saturating_add",
    "saturating_sub",
):  # fmt: skip
    RULES[_name] = getattr(lower_bits, _name)


FAST: dict[str, Rule] = {}
"""The same for operations that need not be rounded correctly: reciprocals and roots as the chip approximates them."""


def _fast(name: str) -> Callable[[Rule], Rule]:
    def register(f: Rule) -> Rule:
        FAST[name] = f
        return f

    return register


@_fast("div")
def _fast_div(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    return b.fmul(x, b.rcp(y))


@_fast("reciprocal")
def _fast_reciprocal(b: Builder, dtype: DType, x: Value) -> Value:
    return b.rcp(x)


@_fast("sqrt")
def _fast_sqrt(b: Builder, dtype: DType, x: Value) -> Value:
    return b.sqrt_approx(x)


@_fast("tanh")
def _fast_tanh(b: Builder, dtype: DType, x: Value) -> Value:
    """1 - 2 / (exp(2x) + 1), also where that cancels: the error is small beside 1, not beside a small result."""
    one = b.const(1.0, x.type)
    rest = b.rcp(b.fadd(b.exp2(b.fmul(x, b.const(2 * math.log2(math.e), x.type))), one))
    return b.ffma(b.const(-2.0, x.type), rest, one)


def _bitwise(int_op: str, pred_op: str) -> Rule:
    def rule(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
        return getattr(b, pred_op if dtype is dt.i1 else int_op)(x, y)

    return rule


RULES["bitand"] = _bitwise("and_", "pand")
RULES["bitor"] = _bitwise("or_", "por")
RULES["bitxor"] = _bitwise("xor", "pxor")


@_rule("invert")
def _invert(b: Builder, dtype: DType, x: Value) -> Value:
    return b.pnot(x) if dtype is dt.i1 else b.not_(x)


def _shift(b: Builder, shift: Callable[[Value, Value], Value], x: Value, count: Value) -> Value:
    """Whatever is shifted by its width or more is 0; chips take the count modulo the width, or saturate it."""
    width = BITS[x.type.kind]
    short = count if count.type is I32 else b.trunc(count)
    if _within(count, width):
        return shift(x, short)
    return b.select(b.cmp("ult", count, width), shift(x, b.and_(short, width - 1)), b.zero(x.type))


def _within(count: Value, width: int) -> bool:
    return count.lo is not None and count.hi is not None and 0 <= count.lo and count.hi < width


@_rule("shl")
def _shl(b: Builder, dtype: DType, x: Value, count: Value) -> Value:
    return _shift(b, b.shl, x, count)


@_rule("shr")
def _shr(b: Builder, dtype: DType, x: Value, count: Value) -> Value:
    """Of signed numbers the sign remains: they are shifted by the width less one at most."""
    if _unsigned(dtype):
        return _shift(b, b.lshr, x, count)
    most = BITS[x.type.kind] - 1
    if not _within(count, most + 1):
        count = b.select(b.cmp("ult", count, most), count, b.const(most, count.type))
    return b.ashr(x, count if count.type is I32 else b.trunc(count))


def _comparison(how: str) -> Rule:
    def rule(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
        if dtype is dt.i1:
            if how not in ("eq", "ne"):
                raise CompileError(f"i1 values have no order: {how}", b.current_loc, "combine them with & | ^ ~")
            differ = b.pxor(x, y)
            return differ if how == "ne" else b.pnot(differ)
        if dtype.is_float:
            return b.fcmp(how, x, y)
        if not _unsigned(dtype):
            x, y = _constants_right(b, x, y)
        return b.cmp(how if how in ("eq", "ne") else ("u" if _unsigned(dtype) else "s") + how, x, y)

    return rule


FAR = 1 << 30
"""Further than any index: half of what an i32 holds, so that differences fit one."""


def _near(v: Value, constant: int) -> bool:
    """Whether a number, and its sum with a constant, stay off ±FAR."""
    half = FAR // 2
    return v.lo is not None and v.hi is not None and -half < v.lo and v.hi < half and -half < constant < half


def _anything(v: Value) -> bool:
    """Whether a number's range is so wide that differences from an index may overflow."""
    return v.lo is not None and v.hi is not None and (v.lo < -FAR or v.hi >= FAR)


def _constants_right(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """x ? y as (x' - y') ? constant: the elements of an index share what they have but for a constant. As it was where
    that could overflow.

    A number that may be anything (made of what is loaded) is cut to -FAR .. FAR - 1 where the other side is an index
    nearer than that: it compares the same, and the difference does not overflow."""
    (p, c), (q, d) = b.split_constant(x), b.split_constant(y)
    if p is None or q is None or not (c or d) or x.type is not I32:
        return x, y
    if not c and _near(q, d) and _anything(p):
        p = x = b.min_s(b.max_s(p, -FAR), FAR - 1)
    elif not d and _near(p, c) and _anything(q):
        q = y = b.min_s(b.max_s(q, -FAR), FAR - 1)
    if p.lo is None or p.hi is None or q.lo is None or q.hi is None:
        return x, y
    for v, base, k in ((x, p, c), (y, q, d)):
        if k and (base.lo is None or base.hi is None or (v.lo, v.hi) != (base.lo + k, base.hi + k)):
            return x, y
    if p.lo - q.hi < -(1 << 31) or p.hi - q.lo >= 1 << 31 or not -(1 << 31) <= d - c < 1 << 31:
        return x, y
    return b.sub(p, q), b.const(d - c)


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    RULES[_name] = _comparison(_name)


@_rule("where")
def _where(b: Builder, dtype: DType, c: Value, x: Value, y: Value) -> Value:
    if x.type is PRED:
        return b.por(b.pand(c, x), b.pand(b.pnot(c), y))
    return b.select(c, x, y)


@_rule("permute", "broadcast")
def _same(b: Builder, dtype: DType, x: Value) -> Value:
    return x


def lower_elementwise(b: Builder, node: Node, operands: list[Value]) -> Value:
    """One element of an elementwise node. Raises CompileError for a row that has no lowering."""
    if node.op == "cast":
        noise = operands[1] if len(operands) > 1 else None
        return rounded_cast(b, operands[0], node.inputs[0].dtype, node.dtype, node.attrs.get("rounding"), noise)
    rule = FAST[node.op] if node.attrs.get("fast") else RULES.get(node.op)
    if rule is None:
        raise CompileError(
            f"{node.op} is not lowered to instructions yet", node.loc, "kernel.evaluate runs it in NumPy"
        )
    dtype = node.inputs[-1].dtype if node.inputs else node.dtype
    if node.dtype.bits < 32 and node.dtype.is_int and dtype.is_int and node.dtype is not dt.i1:
        return wrap(b, rule(b, dtype, *operands), node.dtype)
    return rule(b, dtype, *operands)


__all__ = ["I32", "RULES", "cast", "lower_elementwise", "wrap"]
