"""What each pure op of kernel IR computes, on NumPy arrays: for the interpreter and the verifier's samples.

In: an op's operands as arrays whose last axis is the threads (a tuple of n registers is `[n, threads]`). Out: its
result. `PLAIN` rules take the operands alone, `TYPED` ones the op first; `CHEAP` has the integer and predicate ops,
which work on arrays of any shape.

INVARIANT: nothing is shared with the builder's folding, facts or the emulators, so each can be checked against this.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.kernel_ir import Op

Array = Any
NUMPY = {
    "pred": np.bool_,
    "i32": np.int32,
    "b32": np.uint32,
    "f32": np.float32,
    "i64": np.int64,
    "b64": np.uint64,
    "f64": np.float64,
    "buffer": np.int64,
}


def _unsigned(a: Array) -> Array:
    return a.view(np.uint32 if a.dtype.itemsize == 4 else np.uint64)


def _shift(f: Callable[[Array, Array], Array], unsigned: bool) -> Callable[[Array, Array], Array]:
    def shift(a: Array, s: Array) -> Array:
        bits = 8 * a.dtype.itemsize
        x = _unsigned(a) if unsigned else a
        return f(x, (s & (bits - 1)).astype(x.dtype)).view(a.dtype)

    return shift


def _by_unsigned(f: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: f(_unsigned(a), _unsigned(b)).view(a.dtype)


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _cmp(op: Op, a: Array, b: Array) -> Array:
    how = op.attrs["how"]
    if how[0] == "u":
        return _COMPARE[how[1:]](_unsigned(a), _unsigned(b))
    return _COMPARE[how[1:] if how[0] == "s" else how](a, b)


def _bfe(op: Op, a: Array) -> Array:
    start, width = op.attrs["start"], op.attrs["width"]
    up, down = np.int32(32 - start - width), np.int32(32 - width)
    if op.attrs["signed"]:
        return (a << up) >> down
    return ((_unsigned(a) << np.uint32(up)) >> np.uint32(down)).view(np.int32)


def _funnel(hi: Array, lo: Array, s: Array) -> Array:
    both = _unsigned(hi).astype(np.uint64) << np.uint64(32) | _unsigned(lo)
    return (both >> (s & 31).astype(np.uint64)).astype(np.uint32).view(np.int32)


def _digits(a: Array) -> Array:
    """Bits of 32-bit integers, the highest first, along a new last axis."""
    return np.unpackbits(np.ascontiguousarray(a)[..., None].view(np.uint8)[..., ::-1], axis=-1)


def _zeros_first(digits: Array) -> Array:
    return np.where(digits.any(-1), digits.argmax(-1), 32).astype(np.int32)


def _brev(a: Array) -> Array:
    packed = np.packbits(_digits(a)[..., ::-1], axis=-1)[..., ::-1]
    return np.ascontiguousarray(packed).view(np.int32)[..., 0]


def _cvt(op: Op, a: Array) -> Array:
    t = op.results[0].type
    to = np.dtype(NUMPY[t.kind])
    unsigned = op.attrs.get("unsigned", False)
    if a.dtype.kind == "i" and unsigned:
        a = _unsigned(a)
    if a.dtype.kind == "f" and to.kind == "i":
        limits = np.iinfo(np.dtype(f"u{to.itemsize}") if unsigned else to)
        exact = np.clip(np.trunc(np.nan_to_num(a.astype(np.float64), nan=0.0)), limits.min, limits.max)
        top = exact >= float(limits.max)
        whole = np.where(top, 0, exact).astype(np.uint64 if unsigned else np.int64)
        return np.where(top, np.asarray(limits.max, whole.dtype), whole).astype(to)
    return a.astype(to)


def _pack(op: Op, *values: Array) -> Array:
    dtype: DType = op.attrs["dtype"]
    if dtype.bits < 8:
        if not dtype.is_int:
            values = tuple(v.astype(dtype.numpy).view(np.uint8) for v in values)
        mask = (1 << dtype.bits) - 1
        return sum(((v & mask).astype(np.uint32) << np.uint32(i * dtype.slot)) for i, v in enumerate(values))
    rows: Any = np.stack([v.astype(dtype.numpy) for v in values], axis=-1)  # [threads, elements]
    return np.ascontiguousarray(rows).view(np.uint32)[..., 0]


def _unpack(op: Op, w: Array) -> Array:
    dtype: DType = op.attrs["dtype"]
    at = np.uint32(op.attrs["index"] * dtype.slot)
    to = NUMPY[op.results[0].type.kind]
    bits = (w.view(np.uint32) >> at) & np.uint32((1 << dtype.bits) - 1)
    if dtype.bits < 8:
        if not dtype.is_int:
            return bits.astype(np.uint8).view(dtype.numpy).astype(to)
        half = 1 << (dtype.bits - 1)
        signed = bits.astype(np.int64) - np.where((bits >= half) & (dtype.kind == "int"), 2 * half, 0)
        return signed.astype(to)
    return bits.astype(f"u{dtype.bits // 8}").view(dtype.numpy).astype(to)


def _widen(op: Op, w: Array) -> Array:
    source, dtype, index = op.attrs["source"], op.attrs["dtype"], op.attrs["index"]
    bits = [(w.view(np.uint32) >> np.uint32((index + i) * source.bits)) & ((1 << source.bits) - 1) for i in (0, 1)]
    if source.is_float:
        numbers = [x.astype(np.uint8).view(source.numpy).astype(np.float32) for x in bits]
    else:
        half = (1 << source.bits - 1) if source.is_signed else 0
        numbers = [((x.astype(np.int64) ^ half) - half).astype(np.float32) for x in bits]
    rows: Any = np.stack([x.astype(dtype.numpy) for x in numbers], axis=-1)
    return np.ascontiguousarray(rows).view(np.uint32)[..., 0]


def _pair(op: Op, a: Array, b: Array) -> Array:
    dtype = op.attrs["dtype"]
    wide = [np.ascontiguousarray(x).view(np.uint32)[..., None].view(dtype.numpy).astype(np.float32) for x in (a, b)]
    rows = PLAIN[op.attrs["operation"]](*wide).astype(dtype.numpy)
    return np.ascontiguousarray(rows).view(np.uint32)[..., 0]


def _round_tf32(a: Array) -> Array:
    """Nearest with 10 mantissa bits, ties away from zero; infinities and NaNs stay."""
    bits = a.view(np.uint32)
    special = (bits & 0x7F800000) == 0x7F800000
    return np.where(special, bits, (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def _permute_bytes(op: Op, hi: Array, lo: Array) -> Array:
    both = hi.astype(np.uint64) << np.uint64(32) | lo.astype(np.uint64)
    out = np.zeros_like(both)
    for i in range(4):
        at = (op.attrs["selector"] >> (8 * i)) & 7
        out |= (both >> np.uint64(8 * at) & np.uint64(0xFF)) << np.uint64(8 * i)
    return out.astype(np.uint32)


def _bitcast(op: Op, a: Array) -> Array:
    t = op.results[0].type
    rows: Any = np.ascontiguousarray(a.reshape(-1, a.shape[-1]).T).view(NUMPY[t.kind])
    return np.ascontiguousarray(rows.T) if t.n > 1 else rows[:, 0].copy()


def _vec(op: Op, *values: Array) -> Array:
    return np.concatenate([v.reshape(-1, v.shape[-1]) for v in values])


def _slice(op: Op, v: Array) -> Array:
    start, count = op.attrs["start"], op.attrs["count"]
    return v[start] if count == 1 else v[start : start + count]


def _ffma(a: Array, b: Array, c: Array) -> Array:
    """The product of singles is exact in float64, where rare ties round a second time; doubles are rational numbers."""
    if a.dtype == np.float64:
        return np.asarray(_multiply_add(a, b, c), np.float64)
    return (a.astype(np.float64) * b + c).astype(a.dtype)


def _rational(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:
        return a * b + c  # which zero
    try:
        return float(exact)
    except OverflowError:
        return math.copysign(math.inf, exact.numerator)


_multiply_add = np.frompyfunc(_rational, 3, 1)


PLAIN: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "mulhi_u": lambda a, b: (
        (_unsigned(a).astype(np.uint64) * _unsigned(b) >> np.uint64(32)).astype(np.uint32).view(np.int32)
    ),
    "mul_wide_u": lambda a, b: (_unsigned(a).astype(np.uint64) * _unsigned(b)).view(np.int64),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": _shift(np.left_shift, True),
    "lshr": _shift(np.right_shift, True),
    "ashr": _shift(np.right_shift, False),
    "popcount": lambda a: _digits(a).sum(-1).astype(np.int32),
    "clz": lambda a: _zeros_first(_digits(a)),
    "ctz": lambda a: _zeros_first(_digits(a)[..., ::-1]),
    "brev": _brev,
    "funnel": _funnel,
    "min_s": np.minimum,
    "max_s": np.maximum,
    "min_u": _by_unsigned(np.minimum),
    "max_u": _by_unsigned(np.maximum),
    "udiv": _by_unsigned(np.floor_divide),
    "urem": _by_unsigned(np.remainder),
    "zext": lambda a: _unsigned(a).astype(np.int64),
    "sext": lambda a: a.astype(np.int64),
    "trunc": lambda a: a.astype(np.int32),
    "select": lambda c, a, b: np.where(c, a, b),
    "pand": np.logical_and,
    "por": np.logical_or,
    "pxor": np.logical_xor,
    "pnot": np.logical_not,
    "fadd": np.add,
    "fsub": np.subtract,
    "fmul": np.multiply,
    "ffma": _ffma,
    "fdiv": np.divide,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "fneg": np.negative,
    "fabs": np.abs,
    "ffloor": np.floor,
    "fceil": np.ceil,
    "frint": np.rint,
    "ftrunc": np.trunc,
    "ldexp": np.ldexp,
    "exp2": np.exp2,
    "log2": np.log2,
    "rcp": lambda a: (1 / a).astype(a.dtype),
    "rsqrt": lambda a: (1 / np.sqrt(a)).astype(a.dtype),
    "sqrt": np.sqrt,
    "sqrt_approx": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "round_tf32": _round_tf32,
}

def _pairs(dtype: Any) -> Callable[[Array, Array], Array]:
    def add(old: Array, v: Array) -> Array:
        x, y = (np.ascontiguousarray(a).view(dtype).astype(np.float32) for a in (old, v))
        return (x + y).astype(dtype).view(old.dtype)

    return add


ATOMIC: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "min_s": np.minimum,
    "max_s": np.maximum,
    "min_u": _by_unsigned(np.minimum),
    "max_u": _by_unsigned(np.maximum),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": lambda old, v: v,
    "cas": lambda old, expected, new: np.where(old == expected, new, old),
    "fadd": np.add,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "pk_add_f16": _pairs(np.float16),
    "pk_add_bf16": _pairs(ml_dtypes.bfloat16),
}
"""What an atomic op leaves in memory, from what was there and its operands."""
ORDERLESS = ("add", "min_s", "max_s", "min_u", "max_u", "and", "or", "xor")
"""Those of them of integers that leave the same in any order, and where some are carried out elsewhere first."""
ANY_ORDER = (*ORDERLESS, "fadd")
"""The same, and sums that round, of which nobody is promised an order."""

TYPED: dict[str, Callable[..., Array]] = {
    "cmp": _cmp,
    "fcmp": lambda op, a, b: _COMPARE[op.attrs["how"]](a, b),
    "bfe": _bfe,
    "cvt": _cvt,
    "pack": _pack,
    "unpack": _unpack,
    "widen": _widen,
    "pair": _pair,
    "permute_bytes": _permute_bytes,
    "bitcast": _bitcast,
    "vec": _vec,
    "slice": _slice,
}


def _without_op(f: Callable[..., Array]) -> Callable[..., Array]:
    return lambda op, *args: f(*args)


CHEAP: dict[str, Callable[..., Array]] = {
    name: _without_op(f)
    for name, f in PLAIN.items()
    if name[0] != "f"
    and name not in ("ldexp", "exp2", "log2", "rcp", "rsqrt", "sqrt", "sqrt_approx", "sin", "cos", "round_tf32")
} | {"cmp": _cmp, "bfe": _bfe, "cvt": _cvt}
"""Meaning of the integer and predicate ops: `(op, operands) → result`."""
OF_INVERSES: dict[str, Callable[..., Array]] = {"cvt": _cvt} | {n: _without_op(PLAIN[n]) for n in ("rcp", "fmul")}
"""The same of what an integer's inverse is computed by (`divide.py`)."""
