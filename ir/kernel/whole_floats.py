"""What is known of f32 numbers without running anything: which are integers, and what their NaNs look like.

In: a value of f32, or a tuple of them. Out: the least and the most of integers, so that rounding them to a type that
holds these changes nothing (weights of 4 bits minus a zero point, in bf16); whether a NaN's lower half is zero, so that
rounding to bf16 by an addition to the bits leaves a NaN; whether it is quiet, so that its upper half alone is one.
"""

from __future__ import annotations

from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.kernel_ir import Value

_MOST = 1 << 24
"""f32 holds every integer up to here."""
_DEEP = 6
"""Operations one behind the other that are looked through."""
EXACT = {"f16": 1 << 11, "bf16": 1 << 8}
"""A type's integers are exact up to here."""
_PICK = ("fmin", "fmax", "fneg", "fabs", "vec", "slice", "select")
"""What gives one of its operands, but for the sign."""
_OF_ALL = ("fadd", "fsub", "fmul", "ffma", "fmin", "fmax", "fneg", "fabs", "vec", "slice")
"""What gives a NaN that is an operand's, made quiet, or where none is one the chip's own, whose lower half is zero
(IEEE 754-2019, 6.2.3: the payload should be that of one of the operands)."""
_QUIETS = frozenset((
    "fadd", "fsub", "fmul", "ffma", "fdiv", "exp2", "log2", "rcp", "rsqrt", "sqrt_approx", "ffloor", "fceil", "frint",
    "ftrunc", "mma", "mma.scaled",
))  # fmt: skip
"""What makes a quiet NaN of any (IEEE 754-2019, 6.2: no operation but copies and signs gives a signaling one)."""
_PASSES = frozenset((
    "fmin", "fmax", "fneg", "fabs", "vec", "slice", "select", "bitcast", "readfirst", "shuffle_xor", "shuffle_index",
    "swap_lanes",
))  # fmt: skip
"""What gives operands' numbers, of this lane or of others."""


def whole(v: Value, deep: int = _DEEP) -> tuple[int, int] | None:
    """The least and the most that an integer in f32 may be; None where it may be anything else. Of a tuple, of all."""
    if v.const is not None:
        exact = abs(v.const) < _MOST and v.const == int(v.const)
        return (int(v.const), int(v.const)) if exact else None
    op = v.op
    if op is None or not deep or v.type.kind != "f32":
        return None
    if op.name == "cvt":
        x = op.args[0]
        if not x.type.is_int or x.lo is None or x.hi is None or (x.lo < 0 and op.attrs.get("unsigned")):
            return None
        return _held(x.lo, x.hi)
    if op.name not in ("fadd", "fsub", "fmul", "fmin", "fmax", "fneg", "vec", "slice"):
        return None
    ends = []
    for x in op.args:
        found = whole(x, deep - 1)
        if found is None:
            return None
        ends.append(found)
    (low, high), (other_low, other_high) = ends[0], ends[-1]
    if op.name == "fneg":
        return -high, -low
    if op.name == "fadd":
        return _held(low + other_low, high + other_high)
    if op.name == "fsub":
        return _held(low - other_high, high - other_low)
    if op.name == "fmul":
        corners = [x * y for x in ends[0] for y in ends[-1]]
        return _held(min(corners), max(corners))
    return min(x for x, _ in ends), max(y for _, y in ends)


def _held(low: int, high: int) -> tuple[int, int] | None:
    return (low, high) if -_MOST <= low and high <= _MOST else None


def is_exact(v: Value, dtype: DType, deep: int = _DEEP) -> bool:
    """Whether numbers are such as `dtype`, f16 or bf16, holds: small integers, its own numbers, the larger of two."""
    if dtype.name not in EXACT:
        return False
    op = v.op
    if op is not None and deep and op.name == "unpack":
        return op.attrs["dtype"] is dtype
    if op is not None and deep and op.name in _PICK:
        return all(is_exact(x, dtype, deep - 1) for x in op.args[op.name == "select" :])
    found = whole(v, deep)
    return found is not None and max(-found[0], found[1]) <= EXACT[dtype.name]


def has_short_nans(v: Value, deep: int = _DEEP) -> bool:
    """Whether the lower 16 bits of numbers of f32 that are NaN are zero."""
    if v.const is not None:
        return bool(v.const == v.const)
    op = v.op
    if op is None or not deep or v.type.kind != "f32":
        return False
    if op.name == "unpack":
        return op.attrs["dtype"].name == "bf16"
    if op.name == "cvt":
        return op.args[0].type.is_int
    return op.name in _OF_ALL and all(has_short_nans(x, deep - 1) for x in op.args)


def has_quiet_nans(v: Value) -> bool:
    """Whether numbers of f32 that are NaN are quiet ones. What a loop carries is if its starts and its trips' are."""
    seen: set[int] = set()
    left = [v]
    while left:
        v = left.pop()
        if v.id in seen:
            continue
        seen.add(v.id)
        if v.op is None:
            loop = v.region.parent if v.region is not None else None
            if loop is None or loop.name != "for":
                return False
            at = v.region.args.index(v) - 1  # type: ignore[union-attr]
            left += [loop.args[3 + at], loop.regions[0].ops[-1].args[at]]
        elif v.op.regions:
            at = v.op.results.index(v)
            left += [body.ops[-1].args[at] for body in v.op.regions]
            left += [v.op.args[3 + at]] if v.op.name == "for" else []
        elif v.op.name in _PASSES:
            left += [a for a in v.op.args if a.type.kind in ("f32", "b32")]
        elif v.const is not None:
            if v.const != v.const:
                return False
        elif v.op.name == "unpack":
            if v.op.attrs["dtype"].name != "f16":
                return False
        elif v.op.name == "cvt":
            if not v.op.args[0].type.is_int and v.op.args[0].type.kind != "f64":
                return False
        elif v.op.name not in _QUIETS:
            return False
    return True


__all__ = ["EXACT", "has_quiet_nans", "has_short_nans", "is_exact", "whole"]
