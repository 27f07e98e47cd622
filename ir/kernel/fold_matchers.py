# ruff: noqa
# fmt: off
# mypy: ignore-errors
"""Written by `python -m wavedsl.ir.kernel.fold_compile` from the rows of `fold_rules`. Do not edit.

Each function takes builder, result type, width in bits and operands, and returns the value that a rule gives, or None.
"""

from __future__ import annotations

from typing import Any

from wavedsl.ir.kernel.facts import disjoint
from wavedsl.ir.kernel.fold_rules import (
    LAST, MIRROR, NEGATED, covers, decided, digits, drops, exact_reciprocal, exponent, is_const, is_low_mask,
    is_minus_zero, is_plus_zero, is_pow2, movable, no_bits_above, splits, steps_over, stride,
    x_bits,
)


def fold_add(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # add zero: add(x, 0) -> x
    if n1 == "const" and p1.attrs["value"] == 0:
        x = a0
        return x
    # add constants: add(add(x, c), d) -> add(x, c + d)
    if n0 == "add" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            return b.add(x, c + d)
    # constant outwards: add(add(x, c), y) -> add(add(x, y), c)
    if n0 == "add":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            y = a1
            if not is_const(y):
                return b.add(b.add(x, y), c)
    if n1 == "add":
        y = a0
        x = p1.args[0]
        q1 = p1.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            if not is_const(y):
                return b.add(b.add(x, y), c)
    # add of difference: add(sub(x, y), y) -> x
    if n0 == "sub":
        x = p0.args[0]
        y = p0.args[1]
        if a1 is y:
            return x
    if n1 == "sub":
        y = a0
        x = p1.args[0]
        if p1.args[1] is y:
            return x
    # constant minus out: add(sub(c, x), d) -> sub(c + d, x)
    if n0 == "sub" and n1 == "const":
        q1 = p0.args[0].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            x = p0.args[1]
            d = p1.attrs["value"]
            return b.sub(c + d, x)
    # add of minus: add(sub(0, x), y) -> sub(y, x)
    if n0 == "sub":
        q1 = p0.args[0].op
        if q1 is not None and q1.name == "const" and q1.attrs["value"] == 0:
            x = p0.args[1]
            y = a1
            return b.sub(y, x)
    if n1 == "sub":
        y = a0
        q1 = p1.args[0].op
        if q1 is not None and q1.name == "const" and q1.attrs["value"] == 0:
            x = p1.args[1]
            return b.sub(y, x)
    # add to double: add(x, x) -> shl(x, 1)
    x = a0
    if a1 is x:
        return b.shl(x, 1)
    # gather cheap terms: add(add(x, y), z) -> add(add(y, z), x)
    if n0 == "add":
        x = p0.args[0]
        y = p0.args[1]
        z = a1
        if b._regroup(x, y, z):
            return b.add(b.add(y, z), x)
    if n1 == "add":
        z = a0
        x = p1.args[0]
        y = p1.args[1]
        if b._regroup(x, y, z):
            return b.add(b.add(y, z), x)
    if n0 == "add":
        y = p0.args[0]
        x = p0.args[1]
        z = a1
        if b._regroup(x, y, z):
            return b.add(b.add(y, z), x)
    if n1 == "add":
        z = a0
        y = p1.args[0]
        x = p1.args[1]
        if b._regroup(x, y, z):
            return b.add(b.add(y, z), x)
    # gather cheap terms 2: add(add(x, y), z) -> add(add(x, z), y)
    if n0 == "add":
        x = p0.args[0]
        y = p0.args[1]
        z = a1
        if b._regroup(y, x, z):
            return b.add(b.add(x, z), y)
    if n1 == "add":
        z = a0
        x = p1.args[0]
        y = p1.args[1]
        if b._regroup(y, x, z):
            return b.add(b.add(x, z), y)
    if n0 == "add":
        y = p0.args[0]
        x = p0.args[1]
        z = a1
        if b._regroup(y, x, z):
            return b.add(b.add(x, z), y)
    if n1 == "add":
        z = a0
        y = p1.args[0]
        x = p1.args[1]
        if b._regroup(y, x, z):
            return b.add(b.add(x, z), y)
    return None


def fold_sub(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # subtract constant: sub(x, c) -> add(x, -c)
    if n1 == "const":
        x = a0
        c = p1.attrs["value"]
        return b.add(x, -c)
    # subtract itself: sub(x, x) -> 0
    x = a0
    if a1 is x:
        return b.const(0, t)
    # subtract a part: sub(add(x, y), y) -> x
    if n0 == "add":
        x = p0.args[0]
        y = p0.args[1]
        if a1 is y:
            return x
    if n0 == "add":
        y = p0.args[0]
        x = p0.args[1]
        if a1 is y:
            return x
    # subtract a whole: sub(x, add(x, y)) -> sub(0, y)
    if n1 == "add":
        x = a0
        if p1.args[0] is x:
            y = p1.args[1]
            return b.sub(0, y)
    if n1 == "add":
        x = a0
        y = p1.args[0]
        if p1.args[1] is x:
            return b.sub(0, y)
    # subtract masked: sub(x, and_(x, c)) -> and_(x, ~c)
    if n1 == "and":
        x = a0
        if p1.args[0] is x:
            q1 = p1.args[1].op
            if q1 is not None and q1.name == "const":
                c = q1.attrs["value"]
                return b.and_(x, ~c)
    # constant out of minus: sub(add(x, c), y) -> add(sub(x, y), c)
    if n0 == "add":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            y = a1
            return b.add(b.sub(x, y), c)
    # constant out of minus 2: sub(x, add(y, c)) -> add(sub(x, y), -c)
    if n1 == "add":
        x = a0
        y = p1.args[0]
        q1 = p1.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            if not is_const(x):
                return b.add(b.sub(x, y), -c)
    # constant minus sum: sub(c, add(x, d)) -> sub(c - d, x)
    if n0 == "const" and n1 == "add":
        c = p0.attrs["value"]
        x = p1.args[0]
        q1 = p1.args[1].op
        if q1 is not None and q1.name == "const":
            d = q1.attrs["value"]
            return b.sub(c - d, x)
    # minus a difference: sub(x, sub(x, y)) -> y
    if n1 == "sub":
        x = a0
        if p1.args[0] is x:
            y = p1.args[1]
            return y
    # minus minus: sub(0, sub(x, y)) -> sub(y, x)
    if n0 == "const" and p0.attrs["value"] == 0 and n1 == "sub":
        x = p1.args[0]
        y = p1.args[1]
        return b.sub(y, x)
    return None


def fold_mul(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # times zero: mul(x, 0) -> 0
    if n1 == "const" and p1.attrs["value"] == 0:
        x = a0
        return b.const(0, t)
    # times one: mul(x, 1) -> x
    if n1 == "const" and p1.attrs["value"] == 1:
        x = a0
        return x
    # times power of two: mul(x, c) -> shl(x, exponent(c, W))
    if n1 == "const":
        x = a0
        c = p1.attrs["value"]
        if is_pow2(c, W):
            return b.shl(x, exponent(c, W))
    # times minus one: mul(x, -1) -> sub(0, x)
    if n1 == "const" and p1.attrs["value"] == -1:
        x = a0
        return b.sub(0, x)
    # product of constants: mul(mul(x, c), d) -> mul(x, c * d)
    if n0 == "mul" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            return b.mul(x, c * d)
    # product of shift: mul(shl(x, k), c) -> mul(x, c << k)
    if n0 == "shl" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            k = q1.attrs["value"]
            c = p1.attrs["value"]
            if 0 <= k < W:
                return b.mul(x, c << k)
    # product over sum: mul(add(x, c), d) -> add(mul(x, d), c * d)
    if n0 == "add" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            return b.add(b.mul(x, d), c * d)
    # product over levels: mul(add(x, y), c) -> add(mul(x, c), mul(y, c))
    if n0 == "add" and n1 == "const":
        x = p0.args[0]
        y = p0.args[1]
        c = p1.attrs["value"]
        if b._levels(x, y):
            return b.add(b.mul(x, c), b.mul(y, c))
    if n0 == "add" and n1 == "const":
        y = p0.args[0]
        x = p0.args[1]
        c = p1.attrs["value"]
        if b._levels(x, y):
            return b.add(b.mul(x, c), b.mul(y, c))
    return None


def fold_shl(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # shift over levels: shl(add(x, y), k) -> add(shl(x, k), shl(y, k))
    if n0 == "add" and n1 == "const":
        x = p0.args[0]
        y = p0.args[1]
        k = p1.attrs["value"]
        if 0 <= k < W and b._levels(x, y):
            return b.add(b.shl(x, k), b.shl(y, k))
    if n0 == "add" and n1 == "const":
        y = p0.args[0]
        x = p0.args[1]
        k = p1.attrs["value"]
        if 0 <= k < W and b._levels(x, y):
            return b.add(b.shl(x, k), b.shl(y, k))
    # shift by zero: shl(x, 0) -> x
    if n1 == "const" and p1.attrs["value"] == 0:
        x = a0
        return x
    # shift of shift: shl(shl(x, c), d) -> shl(x, c + d)
    if n0 == "shl" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            if 0 <= c and 0 <= d and c + d < W:
                return b.shl(x, c + d)
    # shift of shift away: shl(shl(x, c), d) -> 0
    if n0 == "shl" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            if 0 <= c < W and 0 <= d < W and c + d >= W:
                return b.const(0, t)
    # shift of product: shl(mul(x, c), k) -> mul(x, c << k)
    if n0 == "mul" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            k = p1.attrs["value"]
            if 0 <= k < W:
                return b.mul(x, c << k)
    # shift over sum: shl(add(x, c), k) -> add(shl(x, k), c << k)
    if n0 == "add" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            k = p1.attrs["value"]
            if 0 <= k < W:
                return b.add(b.shl(x, k), c << k)
    # down and up: shl(lshr(x, c), c) -> and_(x, -1 << c)
    if n0 == "lshr" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            if p1.attrs["value"] == c:
                if 0 < c < W:
                    return b.and_(x, -1 << c)
    # down and up signed: shl(ashr(x, c), c) -> and_(x, -1 << c)
    if n0 == "ashr" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            if p1.attrs["value"] == c:
                if 0 < c < W:
                    return b.and_(x, -1 << c)
    return None


def fold_lshr(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # right by zero: lshr(x, 0) -> x
    if n1 == "const" and p1.attrs["value"] == 0:
        x = a0
        return x
    # right of right: lshr(lshr(x, c), d) -> lshr(x, c + d)
    if n0 == "lshr" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            if 0 <= c and 0 <= d and c + d < W:
                return b.lshr(x, c + d)
    # right of right away: lshr(lshr(x, c), d) -> 0
    if n0 == "lshr" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            if 0 <= c < W and 0 <= d < W and c + d >= W:
                return b.const(0, t)
    # up and down: lshr(shl(x, c), d) -> shl(x, c - d)
    if n0 == "shl" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            if 0 <= d <= c < W and no_bits_above(x, W - c, W):
                return b.shl(x, c - d)
    # up and further down: lshr(shl(x, c), d) -> lshr(x, d - c)
    if n0 == "shl" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            if 0 <= c < d < W and no_bits_above(x, W - c, W):
                return b.lshr(x, d - c)
    # up and down masked: lshr(shl(x, c), c) -> and_(x, (1 << W - c) - 1)
    if n0 == "shl" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            if p1.attrs["value"] == c:
                if 0 < c < W:
                    return b.and_(x, (1 << W - c) - 1)
    # right of digits: lshr(add(x, y), k) -> lshr(x, k)
    if n0 == "add" and n1 == "const":
        x = p0.args[0]
        y = p0.args[1]
        k = p1.attrs["value"]
        if 0 < k < W and digits(x, y, k, W):
            return b.lshr(x, k)
    if n0 == "add" and n1 == "const":
        y = p0.args[0]
        x = p0.args[1]
        k = p1.attrs["value"]
        if 0 < k < W and digits(x, y, k, W):
            return b.lshr(x, k)
    # right of digits plus: lshr(add(x, c), k) -> add(lshr(x, k), c >> k)
    if n0 == "add" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            k = p1.attrs["value"]
            if 0 < k < W and splits(x, c, k):
                return b.add(b.lshr(x, k), c >> k)
    # right of mask: lshr(and_(x, c), k) -> and_(lshr(x, k), c >> k)
    if n0 == "and" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            k = p1.attrs["value"]
            if 0 < k < W and c >= 0:
                return b.and_(b.lshr(x, k), c >> k)
    return None


def fold_ashr(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # signed of positive: ashr(x, k) -> lshr(x, k)
    if n1 == "const":
        x = a0
        k = p1.attrs["value"]
        if 0 <= k < W and x.lo >= 0:
            return b.lshr(x, k)
    # signed by zero: ashr(x, 0) -> x
    if n1 == "const" and p1.attrs["value"] == 0:
        x = a0
        return x
    # signed of signed: ashr(ashr(x, c), d) -> ashr(x, min(c + d, W - 1))
    if n0 == "ashr" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            if 0 <= c < W and 0 <= d < W:
                return b.ashr(x, min(c + d, W - 1))
    return None


def fold_mulhi_u(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # high of nothing: mulhi_u(x, 0) -> 0
    if n1 == "const" and p1.attrs["value"] == 0:
        x = a0
        return b.const(0, t)
    # high of one: mulhi_u(x, 1) -> 0
    if n1 == "const" and p1.attrs["value"] == 1:
        x = a0
        return b.const(0, t)
    return None


def fold_and(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # mask of nothing: and_(x, 0) -> 0
    if n1 == "const" and p1.attrs["value"] == 0:
        x = a0
        return b.const(0, t)
    # mask changes nothing: and_(x, c) -> x
    if n1 == "const":
        x = a0
        c = p1.attrs["value"]
        if covers(c, x, W):
            return x
    # mask leaves nothing: and_(x, y) -> 0
    x = a0
    y = a1
    if disjoint(x, y):
        return b.const(0, t)
    # mask of mask: and_(and_(x, c), d) -> and_(x, c & d)
    if n0 == "and" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            return b.and_(x, c & d)
    # mask of itself: and_(x, x) -> x
    x = a0
    if a1 is x:
        return x
    # mask of sum: and_(add(x, y), c) -> and_(y, c)
    if n0 == "add" and n1 == "const":
        x = p0.args[0]
        y = p0.args[1]
        c = p1.attrs["value"]
        if is_low_mask(c) and not x_bits(x, c):
            return b.and_(y, c)
    if n0 == "add" and n1 == "const":
        y = p0.args[0]
        x = p0.args[1]
        c = p1.attrs["value"]
        if is_low_mask(c) and not x_bits(x, c):
            return b.and_(y, c)
    # mask of longer sum: and_(add(add(x, y), z), c) -> and_(add(y, z), c)
    if n0 == "add" and n1 == "const":
        q1 = p0.args[0].op
        if q1 is not None and q1.name == "add":
            x = q1.args[0]
            y = q1.args[1]
            z = p0.args[1]
            c = p1.attrs["value"]
            if is_low_mask(c) and not x_bits(x, c):
                return b.and_(b.add(y, z), c)
    if n0 == "add" and n1 == "const":
        z = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "add":
            x = q1.args[0]
            y = q1.args[1]
            c = p1.attrs["value"]
            if is_low_mask(c) and not x_bits(x, c):
                return b.and_(b.add(y, z), c)
    if n0 == "add" and n1 == "const":
        q1 = p0.args[0].op
        if q1 is not None and q1.name == "add":
            y = q1.args[0]
            x = q1.args[1]
            z = p0.args[1]
            c = p1.attrs["value"]
            if is_low_mask(c) and not x_bits(x, c):
                return b.and_(b.add(y, z), c)
    if n0 == "add" and n1 == "const":
        z = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "add":
            y = q1.args[0]
            x = q1.args[1]
            c = p1.attrs["value"]
            if is_low_mask(c) and not x_bits(x, c):
                return b.and_(b.add(y, z), c)
    # mask of longest sum: and_(add(add(add(x, y), z), d), c) -> and_(add(add(y, z), d), c)
    if n0 == "add" and n1 == "const":
        q1 = p0.args[0].op
        if q1 is not None and q1.name == "add":
            q2 = q1.args[0].op
            if q2 is not None and q2.name == "add":
                x = q2.args[0]
                y = q2.args[1]
                z = q1.args[1]
                q3 = p0.args[1].op
                if q3 is not None and q3.name == "const":
                    d = q3.attrs["value"]
                    c = p1.attrs["value"]
                    if is_low_mask(c) and not x_bits(x, c):
                        return b.and_(b.add(b.add(y, z), d), c)
    if n0 == "add" and n1 == "const":
        q1 = p0.args[0].op
        if q1 is not None and q1.name == "add":
            z = q1.args[0]
            q2 = q1.args[1].op
            if q2 is not None and q2.name == "add":
                x = q2.args[0]
                y = q2.args[1]
                q3 = p0.args[1].op
                if q3 is not None and q3.name == "const":
                    d = q3.attrs["value"]
                    c = p1.attrs["value"]
                    if is_low_mask(c) and not x_bits(x, c):
                        return b.and_(b.add(b.add(y, z), d), c)
    if n0 == "add" and n1 == "const":
        q1 = p0.args[0].op
        if q1 is not None and q1.name == "add":
            q2 = q1.args[0].op
            if q2 is not None and q2.name == "add":
                y = q2.args[0]
                x = q2.args[1]
                z = q1.args[1]
                q3 = p0.args[1].op
                if q3 is not None and q3.name == "const":
                    d = q3.attrs["value"]
                    c = p1.attrs["value"]
                    if is_low_mask(c) and not x_bits(x, c):
                        return b.and_(b.add(b.add(y, z), d), c)
    if n0 == "add" and n1 == "const":
        q1 = p0.args[0].op
        if q1 is not None and q1.name == "add":
            z = q1.args[0]
            q2 = q1.args[1].op
            if q2 is not None and q2.name == "add":
                y = q2.args[0]
                x = q2.args[1]
                q3 = p0.args[1].op
                if q3 is not None and q3.name == "const":
                    d = q3.attrs["value"]
                    c = p1.attrs["value"]
                    if is_low_mask(c) and not x_bits(x, c):
                        return b.and_(b.add(b.add(y, z), d), c)
    # mask of or: and_(or_(x, y), c) -> and_(y, c)
    if n0 == "or" and n1 == "const":
        x = p0.args[0]
        y = p0.args[1]
        c = p1.attrs["value"]
        if not x_bits(x, c):
            return b.and_(y, c)
    if n0 == "or" and n1 == "const":
        y = p0.args[0]
        x = p0.args[1]
        c = p1.attrs["value"]
        if not x_bits(x, c):
            return b.and_(y, c)
    # mask of shift: and_(shl(x, k), c) -> and_(shl(x, k), c & (-1 << k))
    if n0 == "shl" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            k = q1.attrs["value"]
            c = p1.attrs["value"]
            if 0 < k < W and drops(c, k):
                return b.and_(b.shl(x, k), c & -1 << k)
    return None


def fold_or(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # or of nothing: or_(x, 0) -> x
    if n1 == "const" and p1.attrs["value"] == 0:
        x = a0
        return x
    # or of everything: or_(x, -1) -> -1
    if n1 == "const" and p1.attrs["value"] == -1:
        x = a0
        return b.const(-1, t)
    # or of or: or_(or_(x, c), d) -> or_(x, c | d)
    if n0 == "or" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            return b.or_(x, c | d)
    # or of itself: or_(x, x) -> x
    x = a0
    if a1 is x:
        return x
    return None


def fold_xor(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # xor of nothing: xor(x, 0) -> x
    if n1 == "const" and p1.attrs["value"] == 0:
        x = a0
        return x
    # xor of xor: xor(xor(x, c), d) -> xor(x, c ^ d)
    if n0 == "xor" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            return b.xor(x, c ^ d)
    # xor of itself: xor(x, x) -> 0
    x = a0
    if a1 is x:
        return b.const(0, t)
    # xor twice: xor(xor(x, y), y) -> x
    if n0 == "xor":
        x = p0.args[0]
        y = p0.args[1]
        if a1 is y:
            return x
    if n1 == "xor":
        y = a0
        x = p1.args[0]
        if p1.args[1] is y:
            return x
    if n0 == "xor":
        y = p0.args[0]
        x = p0.args[1]
        if a1 is y:
            return x
    if n1 == "xor":
        y = a0
        if p1.args[0] is y:
            x = p1.args[1]
            return x
    return None


def fold_min_s(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # smaller known: min_s(x, y) -> x
    x = a0
    y = a1
    if x.hi <= y.lo:
        return x
    # smaller known 2: min_s(x, y) -> y
    x = a0
    y = a1
    if y.hi <= x.lo:
        return y
    # smaller of itself: min_s(x, x) -> x
    x = a0
    if a1 is x:
        return x
    # smaller of constants: min_s(min_s(x, c), d) -> min_s(x, min(c, d))
    if n0 == "min_s" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            return b.min_s(x, min(c, d))
    return None


def fold_max_s(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # larger known: max_s(x, y) -> x
    x = a0
    y = a1
    if x.lo >= y.hi:
        return x
    # larger known 2: max_s(x, y) -> y
    x = a0
    y = a1
    if y.lo >= x.hi:
        return y
    # larger of itself: max_s(x, x) -> x
    x = a0
    if a1 is x:
        return x
    # larger of constants: max_s(max_s(x, c), d) -> max_s(x, max(c, d))
    if n0 == "max_s" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            return b.max_s(x, max(c, d))
    return None


def fold_min_u(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # smaller is signed: min_u(x, y) -> min_s(x, y)
    x = a0
    y = a1
    if x.lo >= 0 and y.lo >= 0:
        return b.min_s(x, y)
    # smaller of itself u: min_u(x, x) -> x
    x = a0
    if a1 is x:
        return x
    return None


def fold_max_u(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # larger is signed: max_u(x, y) -> max_s(x, y)
    x = a0
    y = a1
    if x.lo >= 0 and y.lo >= 0:
        return b.max_s(x, y)
    # larger of itself u: max_u(x, x) -> x
    x = a0
    if a1 is x:
        return x
    return None


def fold_cmp(b: Any, t: Any, W: int, h: Any, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # compare itself: cmp(h, x, x) -> h in ('eq', 'sle', 'sge', 'ule', 'uge')
    x = a0
    if a1 is x:
        return b.const(h in ('eq', 'sle', 'sge', 'ule', 'uge'), t)
    # compare known: cmp(h, x, y) -> decided(h, x, y, W)
    x = a0
    y = a1
    if decided(h, x, y, W) is not None:
        return b.const(decided(h, x, y, W), t)
    # constant right: cmp(h, c, x) -> cmp(MIRROR[h], x, c)
    if n0 == "const":
        c = p0.attrs["value"]
        x = a1
        return b.cmp(MIRROR[h], x, c)
    # unsigned is signed: cmp(h, x, y) -> cmp('s' + h[1:], x, y)
    x = a0
    y = a1
    if h[0] == 'u' and x.lo >= 0 and y.lo >= 0:
        return b.cmp('s' + h[1:], x, y)
    # move constant: cmp(h, add(x, c), d) -> cmp(h, x, d - c)
    if n0 == "add" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            if h in ('eq', 'ne'):
                return b.cmp(h, x, d - c)
    # move constant signed: cmp(h, add(x, c), d) -> cmp(h, x, d - c)
    if n0 == "add" and n1 == "const":
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            d = p1.attrs["value"]
            if h[0] == 's' and movable(x, c, d, W):
                return b.cmp(h, x, d - c)
    # compare a multiple: cmp(h, x, c) -> cmp(h, x, c - c % -stride(x))
    if n1 == "const":
        x = a0
        c = p1.attrs["value"]
        if h in ('slt', 'sge') and steps_over(x, c):
            return b.cmp(h, x, c - c % -stride(x))
    # compare a multiple 2: cmp(h, x, c) -> cmp(h, x, c - c % stride(x))
    if n1 == "const":
        x = a0
        c = p1.attrs["value"]
        if h in LAST and steps_over(x, c):
            return b.cmp(h, x, c - c % stride(x))
    return None


def fold_select(b: Any, t: Any, W: int, a0: Any, a1: Any, a2: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    p2 = a2.op
    n2 = p2.name if p2 is not None else ""
    # choose the same: select(p, x, x) -> x
    p = a0
    x = a1
    if a2 is x:
        return x
    # choose by true: select(c, x, y) -> x
    if n0 == "const":
        c = p0.attrs["value"]
        x = a1
        y = a2
        if c:
            return x
    # choose by false: select(c, x, y) -> y
    if n0 == "const":
        c = p0.attrs["value"]
        x = a1
        y = a2
        if not c:
            return y
    # choose by not: select(pnot(p), x, y) -> select(p, y, x)
    if n0 == "pnot":
        p = p0.args[0]
        x = a1
        y = a2
        return b.select(p, y, x)
    return None


def fold_pand(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # and true: pand(p, c) -> p
    if n1 == "const":
        p = a0
        c = p1.attrs["value"]
        if c:
            return p
    # and false: pand(p, c) -> False
    if n1 == "const":
        p = a0
        c = p1.attrs["value"]
        if not c:
            return b.const(False, t)
    # and itself: pand(p, p) -> p
    p = a0
    if a1 is p:
        return p
    # inside a range: pand(cmp(h, x, 0), cmp(g, x, c)) -> cmp('ult', x, c)
    if n0 == "cmp" and n1 == "cmp":
        h = p0.attrs["how"]
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const" and q1.attrs["value"] == 0:
            g = p1.attrs["how"]
            if p1.args[0] is x:
                q2 = p1.args[1].op
                if q2 is not None and q2.name == "const":
                    c = q2.attrs["value"]
                    if c >= 0 and h == 'sge' and g == 'slt':
                        return b.cmp('ult', x, c)
    if n0 == "cmp" and n1 == "cmp":
        g = p0.attrs["how"]
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            h = p1.attrs["how"]
            if p1.args[0] is x:
                q2 = p1.args[1].op
                if q2 is not None and q2.name == "const" and q2.attrs["value"] == 0:
                    if c >= 0 and h == 'sge' and g == 'slt':
                        return b.cmp('ult', x, c)
    # higher of two floors: pand(cmp(h, x, c), cmp(h, x, d)) -> cmp(h, x, max(c, d))
    if n0 == "cmp" and n1 == "cmp":
        h = p0.attrs["how"]
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            if p1.attrs["how"] == h:
                if p1.args[0] is x:
                    q2 = p1.args[1].op
                    if q2 is not None and q2.name == "const":
                        d = q2.attrs["value"]
                        if h in ('sgt', 'sge'):
                            return b.cmp(h, x, max(c, d))
    if n0 == "cmp" and n1 == "cmp":
        h = p0.attrs["how"]
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            d = q1.attrs["value"]
            if p1.attrs["how"] == h:
                if p1.args[0] is x:
                    q2 = p1.args[1].op
                    if q2 is not None and q2.name == "const":
                        c = q2.attrs["value"]
                        if h in ('sgt', 'sge'):
                            return b.cmp(h, x, max(c, d))
    # lower of two ceilings: pand(cmp(h, x, c), cmp(h, x, d)) -> cmp(h, x, min(c, d))
    if n0 == "cmp" and n1 == "cmp":
        h = p0.attrs["how"]
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            if p1.attrs["how"] == h:
                if p1.args[0] is x:
                    q2 = p1.args[1].op
                    if q2 is not None and q2.name == "const":
                        d = q2.attrs["value"]
                        if h in ('slt', 'sle'):
                            return b.cmp(h, x, min(c, d))
    if n0 == "cmp" and n1 == "cmp":
        h = p0.attrs["how"]
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            d = q1.attrs["value"]
            if p1.attrs["how"] == h:
                if p1.args[0] is x:
                    q2 = p1.args[1].op
                    if q2 is not None and q2.name == "const":
                        c = q2.attrs["value"]
                        if h in ('slt', 'sle'):
                            return b.cmp(h, x, min(c, d))
    # lower of two lengths: pand(cmp(h, x, c), cmp(h, x, d)) -> cmp(h, x, min(c, d))
    if n0 == "cmp" and n1 == "cmp":
        h = p0.attrs["how"]
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            c = q1.attrs["value"]
            if p1.attrs["how"] == h:
                if p1.args[0] is x:
                    q2 = p1.args[1].op
                    if q2 is not None and q2.name == "const":
                        d = q2.attrs["value"]
                        if h in ('ult', 'ule') and min(c, d) >= 0:
                            return b.cmp(h, x, min(c, d))
    if n0 == "cmp" and n1 == "cmp":
        h = p0.attrs["how"]
        x = p0.args[0]
        q1 = p0.args[1].op
        if q1 is not None and q1.name == "const":
            d = q1.attrs["value"]
            if p1.attrs["how"] == h:
                if p1.args[0] is x:
                    q2 = p1.args[1].op
                    if q2 is not None and q2.name == "const":
                        c = q2.attrs["value"]
                        if h in ('ult', 'ule') and min(c, d) >= 0:
                            return b.cmp(h, x, min(c, d))
    return None


def fold_por(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # or true: por(p, c) -> True
    if n1 == "const":
        p = a0
        c = p1.attrs["value"]
        if c:
            return b.const(True, t)
    # or false: por(p, c) -> p
    if n1 == "const":
        p = a0
        c = p1.attrs["value"]
        if not c:
            return p
    # or itself: por(p, p) -> p
    p = a0
    if a1 is p:
        return p
    return None


def fold_pxor(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # exclusive itself: pxor(p, p) -> False
    p = a0
    if a1 is p:
        return b.const(False, t)
    # exclusive true: pxor(p, c) -> pnot(p)
    if n1 == "const":
        p = a0
        c = p1.attrs["value"]
        if c:
            return b.pnot(p)
    # exclusive false: pxor(p, c) -> p
    if n1 == "const":
        p = a0
        c = p1.attrs["value"]
        if not c:
            return p
    return None


def fold_pnot(b: Any, t: Any, W: int, a0: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    # not constant: pnot(c) -> not c
    if n0 == "const":
        c = p0.attrs["value"]
        return b.const(not c, t)
    # not not: pnot(pnot(p)) -> p
    if n0 == "pnot":
        p = p0.args[0]
        return p
    # not compare: pnot(cmp(h, x, y)) -> cmp(NEGATED[h], x, y)
    if n0 == "cmp":
        h = p0.attrs["how"]
        x = p0.args[0]
        y = p0.args[1]
        return b.cmp(NEGATED[h], x, y)
    return None


def fold_sext(b: Any, t: Any, W: int, a0: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    # extend positive: sext(x) -> zext(x)
    x = a0
    if x.lo >= 0:
        return b.zext(x)
    return None


def fold_trunc(b: Any, t: Any, W: int, a0: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    # cut zero-extended: trunc(zext(x)) -> x
    if n0 == "zext":
        x = p0.args[0]
        return x
    # cut sign-extended: trunc(sext(x)) -> x
    if n0 == "sext":
        x = p0.args[0]
        return x
    return None


def fold_readfirst(b: Any, t: Any, W: int, a0: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    # wave-wide already: readfirst(x) -> x
    x = a0
    if b._settled(x):
        return x
    return None


def fold_fmul(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # times one f: fmul(x, c) -> x
    if n1 == "const":
        x = a0
        c = p1.attrs["value"]
        if c == 1.0:
            return x
    # times minus one f: fmul(x, c) -> fneg(x)
    if n1 == "const":
        x = a0
        c = p1.attrs["value"]
        if c == -1.0:
            return b.fneg(x)
    # times of minus f: fmul(fneg(x), c) -> fmul(x, -c)
    if n0 == "fneg" and n1 == "const":
        x = p0.args[0]
        c = p1.attrs["value"]
        return b.fmul(x, -c)
    return None


def fold_ffma(b: Any, t: Any, W: int, a0: Any, a1: Any, a2: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    p2 = a2.op
    n2 = p2.name if p2 is not None else ""
    # fused of minus f: ffma(fneg(x), c, y) -> ffma(x, -c, y)
    if n0 == "fneg" and n1 == "const":
        x = p0.args[0]
        c = p1.attrs["value"]
        y = a2
        return b.ffma(x, -c, y)
    # fused with one: ffma(x, c, y) -> fadd(x, y)
    if n1 == "const":
        x = a0
        c = p1.attrs["value"]
        y = a2
        if c == 1.0:
            return b.fadd(x, y)
    # fused with zero: ffma(x, y, c) -> fmul(x, y)
    if n2 == "const":
        x = a0
        y = a1
        c = p2.attrs["value"]
        if is_minus_zero(c):
            return b.fmul(x, y)
    return None


def fold_fadd(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # minus zero f: fadd(x, c) -> x
    if n1 == "const":
        x = a0
        c = p1.attrs["value"]
        if is_minus_zero(c):
            return x
    return None


def fold_fsub(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # minus plus zero f: fsub(x, c) -> x
    if n1 == "const":
        x = a0
        c = p1.attrs["value"]
        if is_plus_zero(c):
            return x
    return None


def fold_fdiv(b: Any, t: Any, W: int, a0: Any, a1: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    p1 = a1.op
    n1 = p1.name if p1 is not None else ""
    # divide by one f: fdiv(x, c) -> x
    if n1 == "const":
        x = a0
        c = p1.attrs["value"]
        if c == 1.0:
            return x
    # divide by power f: fdiv(x, c) -> fmul(x, 1.0 / c)
    if n1 == "const":
        x = a0
        c = p1.attrs["value"]
        if exact_reciprocal(c):
            return b.fmul(x, 1.0 / c)
    return None


def fold_fneg(b: Any, t: Any, W: int, a0: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    # minus minus f: fneg(fneg(x)) -> x
    if n0 == "fneg":
        x = p0.args[0]
        return x
    return None


def fold_fabs(b: Any, t: Any, W: int, a0: Any) -> Any:
    p0 = a0.op
    n0 = p0.name if p0 is not None else ""
    # magnitude of minus: fabs(fneg(x)) -> fabs(x)
    if n0 == "fneg":
        x = p0.args[0]
        return b.fabs(x)
    # magnitude twice: fabs(fabs(x)) -> fabs(x)
    if n0 == "fabs":
        x = p0.args[0]
        return b.fabs(x)
    return None


FOLDERS: dict[str, Any] = {
    "add": fold_add,
    "sub": fold_sub,
    "mul": fold_mul,
    "shl": fold_shl,
    "lshr": fold_lshr,
    "ashr": fold_ashr,
    "mulhi_u": fold_mulhi_u,
    "and": fold_and,
    "or": fold_or,
    "xor": fold_xor,
    "min_s": fold_min_s,
    "max_s": fold_max_s,
    "min_u": fold_min_u,
    "max_u": fold_max_u,
    "cmp": fold_cmp,
    "select": fold_select,
    "pand": fold_pand,
    "por": fold_por,
    "pxor": fold_pxor,
    "pnot": fold_pnot,
    "sext": fold_sext,
    "trunc": fold_trunc,
    "readfirst": fold_readfirst,
    "fmul": fold_fmul,
    "ffma": fold_ffma,
    "fadd": fold_fadd,
    "fsub": fold_fsub,
    "fdiv": fold_fdiv,
    "fneg": fold_fneg,
    "fabs": fold_fabs,
}
