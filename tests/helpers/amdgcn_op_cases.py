"""One row per kernel IR op and type: how to build it, its inputs and what NumPy says (see test_ops)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from wavedsl.ir import dtypes as dt
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, F32, F64, I32, I64, Type, Value, vector

U32, U64 = np.uint32, np.uint64
N = 64
NUMPY = {"i32": np.int32, "b32": np.uint32, "f32": np.float32, "i64": np.int64, "f64": np.float64, "b64": np.uint64}
INTERESTING = np.array(
    [
        0,
        1,
        2,
        3,
        5,
        7,
        31,
        32,
        63,
        64,
        255,
        256,
        65535,
        65536,
        2**24 - 1,
        2**24,
        2**31 - 1,
        -1,
        -2,
        -7,
        -128,
        -(2**31),
    ],
    dtype=np.int64,
)
INTERESTING_FLOATS = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        1e-3,
        123.75,
        -7.25,
        1e10,
        -1e10,
        3e38,
        1e-30,
        2.0**-140,
        np.inf,
        -np.inf,
        np.nan,
    ]
)


@dataclass(frozen=True)
class Case:
    """`body` builds the op; `reference` computes it; `ulp` is the tolerance in units of the last place (0: same bits).

    `values` makes the inputs (default: interesting numbers, then random ones); NaNs compare equal to each other.
    """

    name: str
    inputs: tuple[Type, ...]
    output: Type
    body: Callable[..., Value]
    reference: Callable[..., Any]
    ulp: float = 0
    values: Callable[[np.random.Generator], list[np.ndarray]] | None = None
    chips: tuple[str, ...] = ("gfx90a", "gfx942", "gfx950")
    absolute: float = 0.0
    packed: Any = None
    """dtype of what words of the output hold; any NaN stands for NaN."""


def numbers(t: Type, rng: np.random.Generator, salt: int) -> np.ndarray:
    """64 × n numbers of a type: the interesting ones in an order that differs per operand, then random ones."""
    kind = NUMPY[t.kind]
    count = N * t.n
    if t.is_float:
        known = rng.permutation(INTERESTING_FLOATS)
        rest = rng.standard_normal(count) * np.exp2(rng.integers(-20, 20, count))
    else:
        known = rng.permutation(INTERESTING)
        bits = 64 if t.words // t.n == 2 else 32
        rest = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), count, dtype=np.int64)
        rest >>= rng.integers(0, bits - 1, count)
    with np.errstate(over="ignore"):
        return np.concatenate([known, rest])[:count].astype(kind)


CASES: list[Case] = []


def case(
    name: str, inputs: str, output: str, body: Callable[..., Value], reference: Callable[..., Any], **rest: Any
) -> None:
    CASES.append(Case(name, tuple(_type(t) for t in inputs.split()), _type(output), body, reference, **rest))


def _type(text: str) -> Type:
    kind, _, n = text.partition("x")
    return Type(kind, int(n)) if n else Type(kind)


def _u(x: np.ndarray) -> np.ndarray:
    return x.view({4: U32, 8: U64}[x.dtype.itemsize])


# ------------------------------------------------------------------------------------------------------------- integers

for _t in ("i32", "i64"):
    for _name, _np in (
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("mul", lambda a, b: a * b),
        ("and", lambda a, b: a & b),
        ("or", lambda a, b: a | b),
        ("xor", lambda a, b: a ^ b),
        ("min_s", np.minimum),
        ("max_s", np.maximum),
        ("min_u", lambda a, b: np.minimum(_u(a), _u(b))),
        ("max_u", lambda a, b: np.maximum(_u(a), _u(b))),
    ):
        case(f"{_name} {_t}", f"{_t} {_t}", _t, lambda b, x, y, n=_name: b.emit(n, (x, y)), _np)
    _bits = 32 if _t == "i32" else 64
    for _name, _np in (
        ("shl", lambda a, s: a << s),
        ("lshr", lambda a, s: _u(a) >> _u(s)),
        ("ashr", lambda a, s: a >> s),
    ):
        case(
            f"{_name} {_t}",
            f"{_t} i32",
            _t,
            lambda b, x, y, n=_name, m=_bits - 1: b.emit(n, (x, b.and_(y, m))),
            lambda a, s, f=_np, m=_bits - 1: f(a, (s & m).astype(a.dtype)),
        )
        case(
            f"{_name} by constant {_t}",
            _t,
            _t,
            lambda b, x, n=_name, m=_bits - 3: b.emit(n, (x, b.i32(m))),
            lambda a, f=_np, m=_bits - 3: f(a, np.full_like(a, m)),
        )
    for _how, _np in (
        ("eq", lambda a, b: a == b),
        ("ne", lambda a, b: a != b),
        ("slt", lambda a, b: a < b),
        ("sle", lambda a, b: a <= b),
        ("sgt", lambda a, b: a > b),
        ("sge", lambda a, b: a >= b),
        ("ult", lambda a, b: _u(a) < _u(b)),
        ("ule", lambda a, b: _u(a) <= _u(b)),
        ("ugt", lambda a, b: _u(a) > _u(b)),
        ("uge", lambda a, b: _u(a) >= _u(b)),
    ):
        case(
            f"cmp {_how} {_t}",
            f"{_t} {_t}",
            "i32",
            lambda b, x, y, h=_how: b.select(b.cmp(h, x, y), b.i32(7), b.i32(1000)),
            lambda x, y, f=_np: np.where(f(x, y), 7, 1000),
        )


def _nonzero(t: Type) -> Callable[[np.random.Generator], list[np.ndarray]]:
    def values(rng: np.random.Generator) -> list[np.ndarray]:
        a, d = numbers(t, rng, 0), numbers(t, rng, 1)
        d[d == 0] = 1
        return [a, d]

    return values


for _t, _ty in (("i32", I32), ("i64", I64)):
    case(
        f"udiv {_t}",
        f"{_t} {_t}",
        _t,
        lambda b, x, y: b.emit("udiv", (x, y)),
        lambda x, y: _u(x) // _u(y),
        values=_nonzero(_ty),
    )
    case(
        f"urem {_t}",
        f"{_t} {_t}",
        _t,
        lambda b, x, y: b.emit("urem", (x, y)),
        lambda x, y: _u(x) % _u(y),
        values=_nonzero(_ty),
    )


def _uniform_operand(b: Builder, x: Value, lane: int = 5) -> Value:
    """The value of one lane, as a uniform value."""
    return b.emit("readfirst", (b.shuffle_index(x, b.i32(lane)),))


def _scalar_case(
    name: str, operands: int, body: Callable[..., Value], reference: Callable[..., Any], **rest: Any
) -> None:
    """The same on uniform operands, taken from lane 5: everything goes through the scalar unit."""
    case(
        f"uniform {name}",
        " ".join(["i32"] * operands),
        "i32",
        lambda b, *xs: b.add(body(b, *(_uniform_operand(b, x) for x in xs)), b.and_(b.tid(), 0)),
        lambda *xs: np.full(N, reference(*(x[5:6] for x in xs))[0]),
        **rest,
    )


for _name, _np in (
    ("add", lambda a, b: a + b),
    ("sub", lambda a, b: a - b),
    ("mul", lambda a, b: a * b),
    ("and", lambda a, b: a & b),
    ("or", lambda a, b: a | b),
    ("xor", lambda a, b: a ^ b),
    ("min_s", np.minimum),
    ("max_s", np.maximum),
    ("min_u", lambda a, b: np.minimum(_u(a), _u(b))),
    ("max_u", lambda a, b: np.maximum(_u(a), _u(b))),
    ("mulhi_u", lambda a, b: (_u(a).astype(U64) * _u(b) >> U64(32)).astype(U32)),
):
    _scalar_case(_name, 2, lambda b, x, y, n=_name: b.emit(n, (x, y)), _np)
for _name, _np in (
    ("popcount", lambda x: np.array([int(v).bit_count() for v in _u(x)])),
    ("clz", lambda x: np.array([32 - int(v).bit_length() for v in _u(x)])),
    ("ctz", lambda x: np.array([((int(v) & -int(v)).bit_length() - 1) % 33 for v in _u(x)])),
    ("brev", lambda x: np.array([int(f"{int(v):032b}"[::-1], 2) for v in _u(x)], U32)),
):
    case(_name, "i32", "i32", lambda b, x, n=_name: b.emit(n, (x,)), _np)
    few = (lambda b, x, n=_name: b.emit(n, (b.and_(x, 6),)), lambda x, f=_np: f(x & 6))
    case(f"{_name} of a few bits", "i32", "i32", *few)
    _scalar_case(_name, 1, lambda b, x, n=_name: b.emit(n, (x,)), _np)
def _funnel(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    return ((_u(x).astype(U64) << U64(32) | _u(y)) >> (_u(z) & 31).astype(U64)).astype(U32)


case(
    "ldexp", "f64 i32", "f64", lambda b, x, n: b.ldexp(x, b.ashr(n, 22)), lambda x, n: np.ldexp(x, n >> 22)
)
case("funnel", "i32 i32 i32", "i32", lambda b, x, y, z: b.funnel(x, y, z), _funnel)
case("funnel by 9", "i32", "i32", lambda b, x: b.funnel(x, x, 9), lambda x: _funnel(x, x, np.full_like(x, 9)))
_scalar_case("funnel", 3, lambda b, x, y, z: b.funnel(x, y, z), _funnel)
_scalar_case("udiv", 2, lambda b, x, y: b.emit("udiv", (x, b.or_(y, 1))), lambda x, y: _u(x) // _u(y | 1))


def _halves(b: Any, v: Value) -> Value:
    """Both words of a number of 64 bits in one."""
    return b.xor(b.trunc(v), b.mul(b.trunc(b.lshr(v, 32)), 3))


def _words(v: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return v.astype(np.int32) ^ (v >> 32).astype(np.int32) * np.int32(3)


for _name, _lift, _wide in (
    ("sext, sext", lambda b, x, y: (b.sext(x), b.sext(y)), lambda x, y: (x.astype(np.int64), y.astype(np.int64))),
    ("zext, sext", lambda b, x, y: (b.zext(x), b.sext(y)), lambda x, y: (_u(x).astype(np.int64), y.astype(np.int64))),
    ("sext, zext", lambda b, x, y: (b.sext(x), b.zext(y)), lambda x, y: (x.astype(np.int64), _u(y).astype(np.int64))),
    (
        "zext, zext",
        lambda b, x, y: (b.zext(b.and_(x, 0x7FFFFFF)), b.zext(y)),
        lambda x, y: ((x & 0x7FFFFFF).astype(np.int64), _u(y).astype(np.int64)),
    ),
):
    for _salt in (0, -1):  # of both signs
        _scalar_case(
            f"mul64 {_name} {_salt}",
            2,
            lambda b, x, y, lift=_lift, n=_salt: _halves(b, b.mul(*lift(b, b.xor(x, n), y))),
            lambda x, y, wide=_wide, n=_salt: _words(np.multiply(*wide(x ^ np.int32(n), y))),
        )
for _salt in (0, -1):
    _scalar_case(
        f"max64 of 0 {_salt}",
        2,
        lambda b, x, y, n=_salt: _halves(b, b.max_s(b.mul(b.sext(b.xor(x, n)), b.sext(y)), b.i64(0))),
        lambda x, y, n=_salt: _words(np.maximum((x ^ np.int32(n)).astype(np.int64) * y, 0)),
    )
_scalar_case("bfe", 1, lambda b, x: b.bfe(x, 5, 9, True), lambda x: (x << 18) >> 23)
_scalar_case(
    "select",
    2,
    lambda b, x, y: b.select(b.cmp("slt", x, y), b.add(x, 9), b.xor(y, 77)),
    lambda x, y: np.where(x < y, x + 9, y ^ 77),
)
_scalar_case(
    "pand",
    2,
    lambda b, x, y: b.select(b.pand(b.cmp("slt", x, y), b.cmp("ne", x, 3)), b.add(x, 9), b.xor(y, 77)),
    lambda x, y: np.where((x < y) & (x != 3), x + 9, y ^ 77),
)
case("mulhi_u", "i32 i32", "i32", lambda b, x, y: b.mulhi_u(x, y), lambda x, y: _u(x).astype(U64) * _u(y) >> U64(32))
case("mul_wide_u", "i32 i32", "i64", lambda b, x, y: b.mul_wide_u(x, y), lambda x, y: _u(x).astype(U64) * _u(y))
case(
    "mul 24 bits",
    "i32 i32",
    "i32",
    lambda b, x, y: b.mul(b.and_(x, 0xFFFFFF), b.and_(y, 0xFF)),
    lambda x, y: (x & 0xFFFFFF) * (y & 0xFF),
)
case("zext", "i32", "i64", lambda b, x: b.zext(x), lambda x: _u(x).astype(np.int64))
case("sext", "i32", "i64", lambda b, x: b.sext(x), lambda x: x.astype(np.int64))
case("trunc", "i64", "i32", lambda b, x: b.trunc(x), lambda x: x.astype(np.int32))
case("bfe u", "i32", "i32", lambda b, x: b.bfe(x, 7, 13), lambda x: _u(x) >> 7 & 0x1FFF)
case("bfe s", "i32", "i32", lambda b, x: b.bfe(x, 7, 13, True), lambda x: (x << 12) >> 19)
for _name, _body, _np in (
    ("lshl_add", lambda b, x, y: b.add(b.shl(x, 5), y), lambda x, y: (x << 5) + y),
    ("lshl_or", lambda b, x, y: b.or_(b.shl(x, 5), y), lambda x, y: (x << 5) | y),
    ("and_or", lambda b, x, y: b.or_(b.and_(x, 0x1234), y), lambda x, y: (x & 0x1234) | y),
    ("xad", lambda b, x, y: b.add(b.xor(x, y), x), lambda x, y: (x ^ y) + x),
    (
        "add3",
        lambda b, x, y: b.emit("add", (b.emit("add", (x, y)), b.mulhi_u(x, y))),
        lambda x, y: x + y + (_u(x).astype(U64) * _u(y) >> U64(32)).astype(np.int32),
    ),
    ("add_lshl", lambda b, x, y: b.shl(b.add(x, y), 3), lambda x, y: (x + y) << 3),
    (
        "bfe",
        lambda b, x, y: b.add(b.and_(b.lshr(x, 9), 0x1FF), y),
        lambda x, y: (_u(x) >> 9 & 0x1FF).astype(np.int32) + y,
    ),
):
    case(f"fused {_name}", "i32 i32", "i32", _body, _np)
case(
    "pred logic",
    "i32 i32",
    "i32",
    lambda b, x, y: b.select(b.pxor(b.pand(b.cmp("slt", x, y), b.cmp("ne", y, 7)), b.pnot(b.cmp("ult", x, y))), x, y),
    lambda x, y: np.where(((x < y) & (y != 7)) ^ ~(_u(x) < _u(y)), x, y),
)
case("select i64", "i64 i64", "i64", lambda b, x, y: b.select(b.cmp("slt", x, y), x, y), np.minimum)
case(
    "select pred",
    "i32 i32",
    "i32",
    lambda b, x, y: b.select(b.select(b.cmp("slt", x, 5), b.cmp("eq", y, 1), b.cmp("ne", y, 3)), x, y),
    lambda x, y: np.where(np.where(x < 5, y == 1, y != 3), x, y),
)

# --------------------------------------------------------------------------------------------------------------- floats

for _t in ("f32", "f64", "f32x2", "f32x3", "f32x4"):
    for _name, _np in (
        ("fadd", np.add),
        ("fsub", np.subtract),
        ("fmul", np.multiply),
        ("fmin", np.fmin),
        ("fmax", np.fmax),
    ):
        case(f"{_name} {_t}", f"{_t} {_t}", _t, lambda b, x, y, n=_name: b.emit(n, (x, y)), _np)
    case(f"fneg {_t}", _t, _t, lambda b, x: b.fneg(x), np.negative)
    case(f"fabs {_t}", _t, _t, lambda b, x: b.fabs(x), np.abs)
for _t in ("f32", "f64"):
    for _name, _np in (("ffloor", np.floor), ("fceil", np.ceil), ("frint", np.rint), ("ftrunc", np.trunc)):
        case(f"{_name} {_t}", _t, _t, lambda b, x, n=_name: b.emit(n, (x,)), _np)
    case(f"fdiv {_t}", f"{_t} {_t}", _t, lambda b, x, y: b.fdiv(x, y), np.divide)
    case(f"sqrt {_t}", _t, _t, lambda b, x: b.emit("sqrt", (x,)), np.sqrt)
    for _how, _np in (
        ("eq", np.equal),
        ("ne", np.not_equal),
        ("lt", np.less),
        ("le", np.less_equal),
        ("gt", np.greater),
        ("ge", np.greater_equal),
    ):
        case(
            f"fcmp {_how} {_t}",
            f"{_t} {_t}",
            "i32",
            lambda b, x, y, h=_how: b.select(b.fcmp(h, x, y), b.i32(1), b.i32(0)),
            _np,
        )


def _exact_fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """One rounding, by exact fractions."""
    from fractions import Fraction

    out = np.empty_like(x)
    for i, (a, b, c) in enumerate(zip(x.ravel(), y.ravel(), z.ravel())):
        if not all(map(np.isfinite, (a, b, c))):
            out.ravel()[i] = np.float64(a) * np.float64(b) + np.float64(c)
            continue
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        out.ravel()[i] = _round_f32(exact) if exact else (a * b + c)
    return out


def _round_f32(x: Any) -> float:
    """A fraction to the nearest f32, ties to even."""
    first = np.float32(float(x)) if abs(x) < 2**130 else np.float32(np.inf if x > 0 else -np.inf)
    if not np.isfinite(first):
        return float(first)
    from fractions import Fraction

    near = sorted({first, np.nextafter(first, np.float32(np.inf)), np.nextafter(first, np.float32(-np.inf))})
    finite = [c for c in near if np.isfinite(c)]
    return float(min(finite, key=lambda c: (abs(Fraction(float(c)) - x), int(np.float32(c).view(U32)) & 1)))


def _moderate(count: int, t: Type) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda rng: [rng.standard_normal(N * t.n).astype(NUMPY[t.kind]) for _ in range(count)]


case("ffma f32", "f32 f32 f32", "f32", lambda b, x, y, z: b.ffma(x, y, z), _exact_fma, values=_moderate(3, F32))
case(
    "ffma f32x4",
    "f32x4 f32x4 f32x4",
    "f32x4",
    lambda b, x, y, z: b.ffma(x, y, z),
    _exact_fma,
    values=_moderate(3, vector(4, "f32")),
)
case(
    "ffma f64",
    "f64 f64 f64",
    "f64",
    lambda b, x, y, z: b.ffma(x, y, z),
    lambda x, y, z: x * y + z,
    ulp=2,
    values=_moderate(3, F64),
    absolute=1e-15,
)
case(
    "fmul by constant f32x4",
    "f32x4",
    "f32x4",
    lambda b, x: b.fmul(x, b.const(1.7, vector(4, "f32"))),
    lambda x: x * np.float32(1.7),
)
case("fadd constant", "f32", "f32", lambda b, x: b.fadd(x, b.f32(0.5)), lambda x: x + np.float32(0.5))
case("fadd constant f64", "f64", "f64", lambda b, x: b.fadd(x, b.f64(0.3)), lambda x: x + 0.3)
case(
    "exp2",
    "f32",
    "f32",
    lambda b, x: b.exp2(x),
    np.exp2,
    ulp=2,
    values=lambda r: [r.uniform(-100, 100, N).astype(np.float32)],
)
case(
    "log2",
    "f32",
    "f32",
    lambda b, x: b.log2(x),
    np.log2,
    ulp=2,
    absolute=2e-7,
    values=lambda r: [np.exp2(r.uniform(-100, 100, N)).astype(np.float32)],
)
case("rcp", "f32", "f32", lambda b, x: b.rcp(x), lambda x: 1 / x, ulp=1.5, values=_moderate(1, F32))
case("rcp f64", "f64", "f64", lambda b, x: b.rcp(x), lambda x: 1 / x)
case(
    "rsqrt",
    "f32",
    "f32",
    lambda b, x: b.emit("rsqrt", (x,)),
    lambda x: 1 / np.sqrt(x.astype(np.float64)),
    ulp=1.5,
    values=lambda r: [np.exp2(r.uniform(-100, 100, N)).astype(np.float32)],
)
case(
    "rsqrt f64",
    "f64",
    "f64",
    lambda b, x: b.emit("rsqrt", (x,)),
    lambda x: 1 / np.sqrt(x),
    ulp=1.5,
    values=lambda r: [np.exp2(r.uniform(-100, 100, N))],
)
for _name, _np in (("sin", np.sin), ("cos", np.cos)):
    case(
        _name,
        "f32",
        "f32",
        lambda b, x, n=_name: b.emit(n, (x,)),
        lambda x, f=_np: f(x.astype(np.float64)),
        absolute=2e-6,
        values=lambda r: [(r.standard_normal(N) * 1000).astype(np.float32)],
    )


def _saturated(low: int, high: int, dtype: Any) -> Callable[[np.ndarray], np.ndarray]:
    def convert(x: np.ndarray) -> np.ndarray:
        out = [
            0
            if np.isnan(v)
            else min(max(int(np.trunc(v)) if np.isfinite(v) else (high if v > 0 else low), low), high)
            for v in x
        ]
        return np.array(out, dtype=dtype)

    return convert


for _f in ("f32", "f64"):
    for _i, _bits in (("i32", 32), ("i64", 64)):
        _nf, _ni, _nu = NUMPY[_f], NUMPY[_i], (U32, U64)[_bits == 64]
        case(
            f"cvt {_f} to {_i}",
            _f,
            _i,
            lambda b, x, t=_i: b.cvt(x, Type(t)),
            _saturated(-(2 ** (_bits - 1)), 2 ** (_bits - 1) - 1, _ni),
        )
        case(
            f"cvt {_f} to unsigned {_i}",
            _f,
            _i,
            lambda b, x, t=_i: b.cvt(x, Type(t), unsigned=True),
            _saturated(0, 2**_bits - 1, _nu),
        )
        case(f"cvt {_i} to {_f}", _i, _f, lambda b, x, t=_f: b.cvt(x, Type(t)), lambda x, n=_nf: x.astype(n))
        case(
            f"cvt unsigned {_i} to {_f}",
            _i,
            _f,
            lambda b, x, t=_f: b.cvt(x, Type(t), unsigned=True),
            lambda x, n=_nf: _u(x).astype(n),
        )
case("cvt f32 to f64", "f32", "f64", lambda b, x: b.cvt(x, F64), lambda x: x.astype(np.float64))
case("cvt f64 to f32", "f64", "f32", lambda b, x: b.cvt(x, F32), lambda x: x.astype(np.float32))

# -------------------------------------------------------------------------------------------------------- packed words

_PACKED = {
    "f16": (dt.f16, ("gfx90a", "gfx942", "gfx950")),
    "bf16": (dt.bf16, ("gfx90a", "gfx942", "gfx950")),
    "f8e4m3": (dt.f8e4m3, ("gfx950",)),
    "f8e5m2": (dt.f8e5m2, ("gfx950",)),
    "f8e4m3fnuz": (dt.f8e4m3fnuz, ("gfx942",)),
    "f8e5m2fnuz": (dt.f8e5m2fnuz, ("gfx942",)),
}


def _floats_that_fit(dtype: Any, count: int) -> Callable[[np.random.Generator], list[np.ndarray]]:
    """Values across the format's range, halfway cases included, without overflow (what that gives is the chip's)."""

    def values(rng: np.random.Generator) -> list[np.ndarray]:
        top = float(ml_dtypes.finfo(dtype.numpy).max)
        x = rng.standard_normal((count, N)) * np.exp2(rng.integers(-12, 6, (count, N)))
        x[:, :8] = [
            0.0,
            -0.0,
            top,
            -top,
            1 + 2.0 ** -(dtype.mantissa + 1),
            1 + 3 * 2.0 ** -(dtype.mantissa + 1),
            1e-9,
            np.nan,
        ]
        return list(np.clip(x, -top, top).astype(np.float32))

    return values


for _name, (_d, _chips) in _PACKED.items():
    _n = 32 // _d.bits

    def _pack_reference(*xs: np.ndarray, d: Any = _d) -> np.ndarray:
        stacked = np.stack(xs, axis=1).astype(d.numpy)
        return np.ascontiguousarray(stacked).view(U32).ravel()

    case(
        f"pack {_name}",
        " ".join(["f32"] * _n),
        "b32",
        lambda b, *xs, d=_d: b.pack(xs, d),
        _pack_reference,
        values=_floats_that_fit(_d, _n),
        chips=_chips,
        packed=_d,
    )
    for _k in range(_n):
        case(
            f"unpack {_name} {_k}",
            "b32",
            "f32",
            lambda b, x, d=_d, k=_k: b.unpack(x, d, k),
            lambda x, d=_d, k=_k, n=_n: x.view(d.numpy).reshape(-1, n)[:, k].astype(np.float32),
            chips=_chips,
        )
for _name in ("f16", "bf16"):
    _d, _chips = _PACKED[_name]

    def _pair(b: Any, x: Any, low: float | None, high: float | None, d: Any) -> Any:
        return b.pack([x if c is None else b.const(c, F32) for c in (low, high)], d)

    def _pair_reference(x: np.ndarray, low: float | None, high: float | None, d: Any) -> np.ndarray:
        both = [x if c is None else np.full_like(x, c) for c in (low, high)]
        return np.ascontiguousarray(np.stack(both, axis=1).astype(d.numpy)).view(U32).ravel()

    for _low, _high in (
        (None, None), (None, 0.0), (0.0, None), (None, -0.0), (-0.0, None), (None, 1.1), (1e30, None), (None, np.inf),
        (np.nan, None), (3e-6, 0.1),
    ):  # fmt: skip
        case(
            f"pack {_name} of {_low} and {_high}",
            "f32",
            "b32",
            lambda b, x, low=_low, high=_high, d=_d: _pair(b, x, low, high, d),
            lambda x, low=_low, high=_high, d=_d: _pair_reference(x, low, high, d),
            values=_floats_that_fit(_d, 1),
            chips=_chips,
            packed=_d,
        )
for _name, _d in (("i8", dt.i8), ("u8", dt.u8), ("i16", dt.i16), ("u16", dt.u16)):
    _n = 32 // _d.bits
    case(
        f"pack {_name}",
        " ".join(["i32"] * _n),
        "b32",
        lambda b, *xs, d=_d: b.pack(xs, d),
        lambda *xs, d=_d: np.ascontiguousarray(np.stack(xs, axis=1).astype(d.numpy)).view(U32).ravel(),
    )
    for _k in range(_n):
        case(
            f"unpack {_name} {_k}",
            "b32",
            "i32",
            lambda b, x, d=_d, k=_k: b.unpack(x, d, k),
            lambda x, d=_d, k=_k, n=_n: x.view(d.numpy).reshape(-1, n)[:, k].astype(np.int32),
        )
case(
    "pack u4",
    " ".join(["i32"] * 8),
    "b32",
    lambda b, *xs: b.pack(xs, dt.u4),
    lambda *xs: sum(((_u(x) & U32(15)) << U32(4 * i) for i, x in enumerate(xs)), np.zeros(N, U32)),
)
for _k in (0, 3, 7):
    case(
        f"unpack i4 {_k}",
        "b32",
        "i32",
        lambda b, x, k=_k: b.unpack(x, dt.i4, k),
        lambda x, k=_k: (x << U32(28 - 4 * k)).view(np.int32) >> 28,
    )


def _tf32(x: np.ndarray) -> np.ndarray:
    bits = (x.view(U32) + U32(0x1000)) & U32(0xFFFFE000)
    return np.where(np.isnan(x), np.float32(np.nan), bits.view(np.float32))


case("round_tf32", "f32", "f32", lambda b, x: b.emit("round_tf32", (x,)), _tf32)
case(
    "permute_bytes",
    "b32 b32",
    "b32",
    lambda b, x, y: b.emit("permute_bytes", (x, y), {"selector": 0x07020500}),
    lambda x, y: (
        (y & U32(0xFF))
        | ((x >> U32(8) & U32(0xFF)) << U32(8))
        | ((y >> U32(16) & U32(0xFF)) << U32(16))
        | (x & U32(0xFF000000))
    ),
)
case("bitcast", "f32", "i32", lambda b, x: b.bitcast(x, I32), lambda x: x.view(np.int32))

# --------------------------------------------------------------------------------------------- tuples and lane exchange

case(
    "vec and slice",
    "b32x4",
    "b32x4",
    lambda b, x: b.vec(b.slice(x, 2), b.slice(x, 0, 2), b.slice(x, 3)),
    lambda x: x.reshape(N, 4)[:, [2, 0, 1, 3]].ravel(),
)
case(
    "slice at odd start",
    "b32x4 b32x2",
    "b32x2",
    lambda b, x, y: b.vec(b.slice(b.slice(x, 1, 2), 1), b.slice(y, 0)),
    lambda x, y: np.stack([x.reshape(N, 4)[:, 2], y.reshape(N, 2)[:, 0]], axis=1).ravel(),
)
case(
    "vec used twice",
    "b32 b32",
    "b32x4",
    lambda b, x, y: b.vec(x, y, b.bitcast(b.add(b.bitcast(x, I32), 1), B32), x),
    lambda x, y: np.stack([x, y, x + U32(1), x], axis=1).ravel(),
)
for _m in (1, 2, 3, 4, 7, 8, 12, 15, 16, 21, 31, 32, 33, 48, 63):
    case(
        f"shuffle_xor {_m}", "i32", "i32", lambda b, x, m=_m: b.shuffle_xor(x, m), lambda x, m=_m: x[np.arange(N) ^ m]
    )
case(
    "shuffle_xor f32x2",
    "f32x2",
    "f32x2",
    lambda b, x: b.emit("shuffle_xor", (x,), {"mask": 32}),
    lambda x: x.reshape(N, 2)[np.arange(N) ^ 32].ravel(),
)
for _lane in (4, 5):
    for _register in (0, 1):

        def _swapped(x: np.ndarray, lane: int = _lane, register: int = _register) -> np.ndarray:
            number = np.arange(N * 4)
            apart = (number >> register ^ number >> 2 + lane) & 1
            changed = apart * (1 << register | 4 << lane)
            return x[number ^ changed]

        case(
            f"swap_lanes {_lane} {_register}",
            "b32x4",
            "b32x4",
            lambda b, x, lane=_lane, register=_register: b.swap_lanes(x, register, lane),
            _swapped,
            chips=("gfx950",),
        )
case("shuffle_index", "i32 i32", "i32", lambda b, x, y: b.shuffle_index(x, b.and_(y, 63)), lambda x, y: x[y & 63])
case("readfirst", "i32", "i32", lambda b, x: b.add(b.emit("readfirst", (x,)), b.tid()), lambda x: x[0] + np.arange(N))
case("lane", "i32", "i32", lambda b, x: b.add(x, b.mul(b.lane(), 3)), lambda x: x + 3 * np.arange(N).astype(np.int32))

__all__ = ["CASES", "NUMPY", "Case", "N", "numbers"]
