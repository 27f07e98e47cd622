"""Algebra of the kernel IR as data: `(name, pattern, condition, result)` rows, and what their conditions may call.

`fold_compile` turns the rows into `fold_matchers.py`, one function per op: after a change here run
`python -m wavedsl.ir.kernel.fold_compile`; a test fails until that is done.

A pattern is written as a call of builder methods. In it `x y z` stand for any value, `c d k m` for integer (or float)
constants, a literal for itself; the same name twice means the same value. `cmp(how, x, c)` binds the comparison. The
condition is Python over the bound names: constants are Python ints, values have `lo hi zeros`; `W` is the width in
bits; `regroup`, `levels` and `settled` ask the builder where values live. The result is built through the builder, so
it folds
again; a result that is not a call or a value is a constant of the result's type. Constants of commutative ops always
stand right (the builder swaps them), so patterns need only that order; for other commutative operands both orders are
tried. Rows are tried from top to bottom; the first that fits wins.

INVARIANTS: every row is an equality of wrapping integers for all inputs that meet the condition, and the rows end: each
moves constants towards the end of a chain, makes the expression smaller, or moves work outwards or to the scalar unit.

NORMAL FORM of addresses: `(invariant + … + varying) + constant`, multiplications by powers of two as shifts, constants
pulled out of shifts and products.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp
from typing import Any

from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.quick_dataclass import dataclass


@dataclass(frozen=True)
class FoldRule:
    """`pattern` may be replaced by `result` where `condition` (empty: always) holds."""

    name: str
    pattern: str
    condition: str
    result: str


# fmt: off
RULES: tuple[FoldRule, ...] = tuple(FoldRule(*row) for row in (
    # Sums ----------------------------------------------------------------------------------------------------------
    ("add zero",             "add(x, 0)",                    "",                          "x"),
    ("add constants",        "add(add(x, c), d)",            "",                          "add(x, c + d)"),
    ("constant outwards",    "add(add(x, c), y)",            "not is_const(y)",           "add(add(x, y), c)"),
    ("add of difference",    "add(sub(x, y), y)",            "",                          "x"),
    ("constant minus out",   "add(sub(c, x), d)",            "",                          "sub(c + d, x)"),
    ("add of minus",         "add(sub(0, x), y)",            "",                          "sub(y, x)"),
    ("add to double",        "add(x, x)",                    "",                          "shl(x, 1)"),
    ("gather cheap terms",   "add(add(x, y), z)",            "regroup(x, y, z)",          "add(add(y, z), x)"),
    ("gather cheap terms 2", "add(add(x, y), z)",            "regroup(y, x, z)",          "add(add(x, z), y)"),
    ("subtract constant",    "sub(x, c)",                    "",                          "add(x, -c)"),
    ("subtract itself",      "sub(x, x)",                    "",                          "0"),
    ("subtract a part",      "sub(add(x, y), y)",            "",                          "x"),
    ("subtract a whole",     "sub(x, add(x, y))",            "",                          "sub(0, y)"),
    ("subtract masked",      "sub(x, and_(x, c))",           "",                          "and_(x, ~c)"),
    ("constant out of minus","sub(add(x, c), y)",            "",                          "add(sub(x, y), c)"),
    ("constant out of minus 2", "sub(x, add(y, c))",         "not is_const(x)",           "add(sub(x, y), -c)"),
    ("constant minus sum",   "sub(c, add(x, d))",            "",                          "sub(c - d, x)"),
    ("minus a difference",   "sub(x, sub(x, y))",            "",                          "y"),
    ("minus minus",          "sub(0, sub(x, y))",            "",                          "sub(y, x)"),
    # Products and shifts -------------------------------------------------------------------------------------------
    ("times zero",           "mul(x, 0)",                    "",                          "0"),
    ("times one",            "mul(x, 1)",                    "",                          "x"),
    ("times power of two",   "mul(x, c)",                    "is_pow2(c, W)",             "shl(x, exponent(c, W))"),
    ("times minus one",      "mul(x, -1)",                   "",                          "sub(0, x)"),
    ("product of constants", "mul(mul(x, c), d)",            "",                          "mul(x, c * d)"),
    ("product of shift",     "mul(shl(x, k), c)",            "0 <= k < W",                "mul(x, c << k)"),
    ("product over sum",     "mul(add(x, c), d)",            "",                          "add(mul(x, d), c * d)"),
    ("product over levels",  "mul(add(x, y), c)",            "levels(x, y)",              "add(mul(x, c), mul(y, c))"),
    ("shift over levels",    "shl(add(x, y), k)", "0 <= k < W and levels(x, y)", "add(shl(x, k), shl(y, k))"),
    ("shift by zero",        "shl(x, 0)",                    "",                          "x"),
    ("shift of shift",       "shl(shl(x, c), d)",            "0 <= c and 0 <= d and c + d < W", "shl(x, c + d)"),
    ("shift of shift away",  "shl(shl(x, c), d)",            "0 <= c < W and 0 <= d < W and c + d >= W", "0"),
    ("shift of product",     "shl(mul(x, c), k)",            "0 <= k < W",                "mul(x, c << k)"),
    ("shift over sum",       "shl(add(x, c), k)",            "0 <= k < W",                "add(shl(x, k), c << k)"),
    ("down and up",          "shl(lshr(x, c), c)",           "0 < c < W",                 "and_(x, -1 << c)"),
    ("down and up signed",   "shl(ashr(x, c), c)",           "0 < c < W",                 "and_(x, -1 << c)"),
    ("right by zero",        "lshr(x, 0)",                   "",                          "x"),
    ("right of right",       "lshr(lshr(x, c), d)",          "0 <= c and 0 <= d and c + d < W", "lshr(x, c + d)"),
    ("right of right away",  "lshr(lshr(x, c), d)",          "0 <= c < W and 0 <= d < W and c + d >= W", "0"),
    ("up and down", "lshr(shl(x, c), d)", "0 <= d <= c < W and no_bits_above(x, W - c, W)", "shl(x, c - d)"),
    ("up and further down", "lshr(shl(x, c), d)", "0 <= c < d < W and no_bits_above(x, W - c, W)", "lshr(x, d - c)"),
    ("up and down masked",   "lshr(shl(x, c), c)",           "0 < c < W",                 "and_(x, (1 << W - c) - 1)"),
    ("right of digits",      "lshr(add(x, y), k)",           "0 < k < W and digits(x, y, k, W)", "lshr(x, k)"),
    ("right of digits plus", "lshr(add(x, c), k)", "0 < k < W and splits(x, c, k)", "add(lshr(x, k), c >> k)"),
    ("right of mask",        "lshr(and_(x, c), k)",          "0 < k < W and c >= 0",      "and_(lshr(x, k), c >> k)"),
    ("signed of positive",   "ashr(x, k)",                   "0 <= k < W and x.lo >= 0",  "lshr(x, k)"),
    ("signed by zero",       "ashr(x, 0)",                   "",                          "x"),
    ("signed of signed",     "ashr(ashr(x, c), d)",          "0 <= c < W and 0 <= d < W", "ashr(x, min(c + d, W - 1))"),
    ("high of nothing",      "mulhi_u(x, 0)",                "",                          "0"),
    ("high of one",          "mulhi_u(x, 1)",                "",                          "0"),
    # Bits ----------------------------------------------------------------------------------------------------------
    ("mask of nothing",      "and_(x, 0)",                   "",                          "0"),
    ("mask changes nothing", "and_(x, c)",                   "covers(c, x, W)",           "x"),
    ("mask leaves nothing",  "and_(x, y)",                   "disjoint(x, y)",            "0"),
    ("mask of mask",         "and_(and_(x, c), d)",          "",                          "and_(x, c & d)"),
    ("mask of itself",       "and_(x, x)",                   "",                          "x"),
    ("mask of sum",          "and_(add(x, y), c)",           "is_low_mask(c) and not x_bits(x, c)", "and_(y, c)"),
    ("mask of longer sum", "and_(add(add(x, y), z), c)", "is_low_mask(c) and not x_bits(x, c)", "and_(add(y, z), c)"),
    ("mask of longest sum", "and_(add(add(add(x, y), z), d), c)", "is_low_mask(c) and not x_bits(x, c)",
     "and_(add(add(y, z), d), c)"),
    ("mask of or",           "and_(or_(x, y), c)",           "not x_bits(x, c)",          "and_(y, c)"),
    ("mask of shift", "and_(shl(x, k), c)", "0 < k < W and drops(c, k)", "and_(shl(x, k), c & (-1 << k))"),
    ("or of nothing",        "or_(x, 0)",                    "",                          "x"),
    ("or of everything",     "or_(x, -1)",                   "",                          "-1"),
    ("or of or",             "or_(or_(x, c), d)",            "",                          "or_(x, c | d)"),
    ("or of itself",         "or_(x, x)",                    "",                          "x"),
    ("xor of nothing",       "xor(x, 0)",                    "",                          "x"),
    ("xor of xor",           "xor(xor(x, c), d)",            "",                          "xor(x, c ^ d)"),
    ("xor of itself",        "xor(x, x)",                    "",                          "0"),
    ("xor twice",            "xor(xor(x, y), y)",            "",                          "x"),
    # Order ---------------------------------------------------------------------------------------------------------
    ("smaller known",        "min_s(x, y)",                  "x.hi <= y.lo",              "x"),
    ("smaller known 2",      "min_s(x, y)",                  "y.hi <= x.lo",              "y"),
    ("smaller of itself",    "min_s(x, x)",                  "",                          "x"),
    ("smaller of constants", "min_s(min_s(x, c), d)",        "",                          "min_s(x, min(c, d))"),
    ("larger known",         "max_s(x, y)",                  "x.lo >= y.hi",              "x"),
    ("larger known 2",       "max_s(x, y)",                  "y.lo >= x.hi",              "y"),
    ("larger of itself",     "max_s(x, x)",                  "",                          "x"),
    ("larger of constants",  "max_s(max_s(x, c), d)",        "",                          "max_s(x, max(c, d))"),
    ("smaller is signed",    "min_u(x, y)",                  "x.lo >= 0 and y.lo >= 0",   "min_s(x, y)"),
    ("smaller of itself u",  "min_u(x, x)",                  "",                          "x"),
    ("larger is signed",     "max_u(x, y)",                  "x.lo >= 0 and y.lo >= 0",   "max_s(x, y)"),
    ("larger of itself u",   "max_u(x, x)",                  "",                          "x"),
    ("compare itself", "cmp(h, x, x)", "", "h in ('eq', 'sle', 'sge', 'ule', 'uge')"),
    ("compare known",        "cmp(h, x, y)",                 "decided(h, x, y, W) is not None", "decided(h, x, y, W)"),
    ("constant right",       "cmp(h, c, x)",                 "",                          "cmp(MIRROR[h], x, c)"),
    ("unsigned is signed", "cmp(h, x, y)", "h[0] == 'u' and x.lo >= 0 and y.lo >= 0", "cmp('s' + h[1:], x, y)"),
    ("move constant",        "cmp(h, add(x, c), d)",         "h in ('eq', 'ne')",         "cmp(h, x, d - c)"),
    ("move constant signed", "cmp(h, add(x, c), d)",         "h[0] == 's' and movable(x, c, d, W)", "cmp(h, x, d - c)"),
    ("compare a multiple", "cmp(h, x, c)", "h in ('slt', 'sge') and steps_over(x, c)", "cmp(h, x, c - c % -stride(x))"),
    ("compare a multiple 2", "cmp(h, x, c)", "h in LAST and steps_over(x, c)", "cmp(h, x, c - c % stride(x))"),
    # Choice and predicates -----------------------------------------------------------------------------------------
    ("choose the same",      "select(p, x, x)",              "",                          "x"),
    ("choose by true",       "select(c, x, y)",              "c",                         "x"),
    ("choose by false",      "select(c, x, y)",              "not c",                     "y"),
    ("choose by not",        "select(pnot(p), x, y)",        "",                          "select(p, y, x)"),
    ("and true",             "pand(p, c)",                   "c",                         "p"),
    ("and false",            "pand(p, c)",                   "not c",                     "False"),
    ("and itself",           "pand(p, p)",                   "",                          "p"),
    ("inside a range", "pand(cmp(h, x, 0), cmp(g, x, c))", "c >= 0 and h == 'sge' and g == 'slt'", "cmp('ult', x, c)"),
    ("higher of two floors", "pand(cmp(h, x, c), cmp(h, x, d))", "h in ('sgt', 'sge')",    "cmp(h, x, max(c, d))"),
    ("lower of two ceilings", "pand(cmp(h, x, c), cmp(h, x, d))", "h in ('slt', 'sle')",   "cmp(h, x, min(c, d))"),
    ("lower of two lengths", "pand(cmp(h, x, c), cmp(h, x, d))", "h in ('ult', 'ule') and min(c, d) >= 0",
     "cmp(h, x, min(c, d))"),
    ("or true",              "por(p, c)",                    "c",                         "True"),
    ("or false",             "por(p, c)",                    "not c",                     "p"),
    ("or itself",            "por(p, p)",                    "",                          "p"),
    ("exclusive itself",     "pxor(p, p)",                   "",                          "False"),
    ("exclusive true",       "pxor(p, c)",                   "c",                         "pnot(p)"),
    ("exclusive false",      "pxor(p, c)",                   "not c",                     "p"),
    ("not constant",         "pnot(c)",                      "",                          "not c"),
    ("not not",              "pnot(pnot(p))",                "",                          "p"),
    ("not compare",          "pnot(cmp(h, x, y))",           "",                          "cmp(NEGATED[h], x, y)"),
    # Widths --------------------------------------------------------------------------------------------------------
    ("extend positive",      "sext(x)",                      "x.lo >= 0",                 "zext(x)"),
    ("cut zero-extended",    "trunc(zext(x))",               "",                          "x"),
    ("cut sign-extended",    "trunc(sext(x))",               "",                          "x"),
    ("wave-wide already",    "readfirst(x)",                 "settled(x)",                "x"),
    # Floats: only what holds for every input, zeros and NaNs included ------------------------------------------------
    ("times one f",          "fmul(x, c)",                   "c == 1.0",                  "x"),
    ("times minus one f",    "fmul(x, c)",                   "c == -1.0",                 "fneg(x)"),
    ("times of minus f",     "fmul(fneg(x), c)",             "",                          "fmul(x, -c)"),
    ("fused of minus f",     "ffma(fneg(x), c, y)",          "",                          "ffma(x, -c, y)"),
    ("minus zero f",         "fadd(x, c)",                   "is_minus_zero(c)",          "x"),
    ("minus plus zero f",    "fsub(x, c)",                   "is_plus_zero(c)",           "x"),
    ("divide by one f",      "fdiv(x, c)",                   "c == 1.0",                  "x"),
    ("divide by power f",    "fdiv(x, c)",                   "exact_reciprocal(c)",       "fmul(x, 1.0 / c)"),
    ("fused with one",       "ffma(x, c, y)",                "c == 1.0",                  "fadd(x, y)"),
    ("fused with zero",      "ffma(x, y, c)",                "is_minus_zero(c)",          "fmul(x, y)"),
    ("minus minus f",        "fneg(fneg(x))",                "",                          "x"),
    ("magnitude of minus",   "fabs(fneg(x))",                "",                          "fabs(x)"),
    ("magnitude twice",      "fabs(fabs(x))",                "",                          "fabs(x)"),
))
# fmt: on

BITWISE = {"and_": "and", "or_": "or"}  # method names that avoid Python's keywords
NEGATED = {
    "eq": "ne", "ne": "eq", "slt": "sge", "sge": "slt", "sle": "sgt", "sgt": "sle",
    "ult": "uge", "uge": "ult", "ule": "ugt", "ugt": "ule",
}  # fmt: skip
LAST = ("sgt", "sle")
"""Comparisons with the last value of one side."""
MIRROR = {
    "eq": "eq", "ne": "ne", "slt": "sgt", "sgt": "slt", "sle": "sge", "sge": "sle",
    "ult": "ugt", "ugt": "ult", "ule": "uge", "uge": "ule",
}  # fmt: skip

# ------------------------------------------------------------------------------------------- what conditions may call


def is_const(x: Value) -> bool:
    return x.op is not None and x.op.name == "const"


def is_pow2(c: int, bits: int) -> bool:
    c &= (1 << bits) - 1
    return c > 1 and not c & (c - 1)


def exponent(c: int, bits: int) -> int:
    return (c & ((1 << bits) - 1)).bit_length() - 1


def no_bits_above(x: Any, start: int, bits: int) -> bool:
    """Whether bits `start` and up of x are 0."""
    return not ~x.zeros & ((1 << bits) - (1 << start))


def digits(x: Any, y: Any, k: int, bits: int) -> bool:
    """Whether x is a multiple of 2**k, y fits below it, and their sum cannot wrap: x + y is x | y."""
    return not ~x.zeros & ((1 << k) - 1) and no_bits_above(y, k, bits)


def splits(x: Any, c: int, k: int) -> bool:
    """Whether (x + c) >> k is (x >> k) + (c >> k): nothing negative, nothing wraps, no carry out of the low k bits."""
    low = (1 << k) - 1
    return c > low and 0 <= x.lo and x.hi + c < 1 << 31 and (low & ~x.zeros) + (c & low) <= low


def covers(c: int, x: Any, bits: int) -> bool:
    """Whether c has every bit that x may have."""
    return not ~c & ~x.zeros & ((1 << bits) - 1)


def is_low_mask(c: int) -> bool:
    return c > 0 and not c & (c + 1)


def x_bits(x: Any, c: int) -> int:
    """The bits of c that x may have."""
    return ~x.zeros & c & 0xFFFFFFFFFFFFFFFF if c >= 0 else -1


def drops(c: int, k: int) -> bool:
    """Whether a mask has bits below k that a shift by k has cleared anyway."""
    return bool(c & ((1 << k) - 1)) and c >= 0


def movable(x: Any, c: int, d: int, bits: int) -> bool:
    """Whether neither x + c nor d - c wraps, so that a signed comparison may move c across."""
    half = 1 << (bits - 1)
    return -half <= x.lo + c and x.hi + c < half and -half <= d - c < half


def stride(x: Any) -> int:
    """The power of two, up to 2**16, that surely divides x."""
    free = ~x.zeros & 0x1FFFF
    return min(free & -free, 1 << 16) if free else 1 << 16


def steps_over(x: Any, c: int) -> bool:
    """Whether x is a multiple of something that c is not a multiple of: no x lies between c and the multiple next to
    it."""
    return c % stride(x) != 0 and abs(c) < 1 << 30


def is_minus_zero(c: float) -> bool:
    return c == 0.0 and str(c)[0] == "-"


def is_plus_zero(c: float) -> bool:
    return c == 0.0 and str(c)[0] != "-"


def exact_reciprocal(c: float) -> bool:
    """Powers of two whose reciprocal is a normal single: multiplying gives the same rounding as dividing."""
    return 2.0**-100 <= abs(c) <= 2.0**100 and abs(frexp(c)[0]) == 0.5


def decided(how: str, x: Any, y: Any, bits: int) -> bool | None:
    """What the ranges say of a comparison: True, False, or None when they do not decide it."""
    xlo, xhi, ylo, yhi = x.lo, x.hi, y.lo, y.hi
    if how in ("eq", "ne"):
        if xhi < ylo or yhi < xlo or (ylo == yhi and x.zeros & ylo) or (xlo == xhi and y.zeros & xlo):
            return how == "ne"
        return (how == "eq") if xlo == xhi == ylo == yhi else None
    if how[0] == "u":
        if xlo < 0 <= xhi or ylo < 0 <= yhi:
            return None
        if xlo < 0:
            xlo, xhi = xlo + (1 << bits), xhi + (1 << bits)
        if ylo < 0:
            ylo, yhi = ylo + (1 << bits), yhi + (1 << bits)
    kind = how[1:]
    if kind in ("gt", "ge"):
        xlo, xhi, ylo, yhi = ylo, yhi, xlo, xhi
        kind = "lt" if kind == "gt" else "le"
    if kind == "lt":
        return True if xhi < ylo else False if xlo >= yhi else None
    return True if xhi <= ylo else False if xlo > yhi else None


# ------------------------------------------------------------------------------------------- constants meet constants


def _u(a: int, bits: int) -> int:
    return a & ((1 << bits) - 1)


CONSTANT: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, w: a + b,
    "sub": lambda a, b, w: a - b,
    "mul": lambda a, b, w: a * b,
    "mulhi_u": lambda a, b, w: _u(a, w) * _u(b, w) >> w,
    "and": lambda a, b, w: a & b,
    "or": lambda a, b, w: a | b,
    "xor": lambda a, b, w: a ^ b,
    "shl": lambda a, b, w: a << (b & (w - 1)),
    "lshr": lambda a, b, w: _u(a, w) >> (b & (w - 1)),
    "ashr": lambda a, b, w: a >> (b & (w - 1)),
    "min_s": lambda a, b, w: min(a, b),
    "max_s": lambda a, b, w: max(a, b),
    "min_u": lambda a, b, w: min(_u(a, w), _u(b, w)),
    "max_u": lambda a, b, w: max(_u(a, w), _u(b, w)),
    "udiv": lambda a, b, w: _u(a, w) // _u(b, w),
    "urem": lambda a, b, w: _u(a, w) % _u(b, w),
}
