# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Arithmetic of floats of the rows against references that do not come from them: exact fractions, math, ml_dtypes."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from ptx_harness import elementwise, raw
from ptx_operands import MODES, array, float_pairs, floats, pairs, rng, round_exact


def expect(fn, mode, dtype, *operands):
    """Exact result of finite operands, rounded; what IEEE says for the others comes from NumPy in float64."""
    out = []
    for values in zip(*operands):
        if all(math.isfinite(v) for v in values):
            exact = fn(*[Fraction(float(v)) for v in values])
            if exact is not None and exact != 0:
                out.append(round_exact(exact, mode, dtype))
                continue
        out.append(None)
    return out


def same(got, want, dtype, special):
    """Elements of `want` that are not None equal bit for bit (as values); the others equal `special` or are both NaN."""
    got = got.view(dtype)
    for i, w in enumerate(want):
        g = float(got[i])
        s = float(special[i]) if w is None else w
        assert g == s or (math.isnan(g) and math.isnan(s)), (i, g, s)


EXACT = {
    "add": (2, lambda a, b: a + b, np.add),
    "sub": (2, lambda a, b: a - b, np.subtract),
    "mul": (2, lambda a, b: a * b, np.multiply),
    "fma": (3, lambda a, b, c: a * b + c, lambda a, b, c: a * b + c),
    "div": (2, lambda a, b: a / b if b else None, np.divide),
}


@pytest.mark.parametrize("type_, dtype", [("f32", np.float32), ("f64", np.float64)])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", EXACT)
def test_correctly_rounded(op, mode, type_, dtype):
    n, fn, plain = EXACT[op]
    a, b = float_pairs(dtype)
    operands = [a, b, rng.permutation(b)][:n]
    names = ", ".join(f"%in{i}" for i in range(n))
    got = elementwise(f"{op}.{mode}.{type_} %out, {names};", operands, dtype(0).itemsize * 8)
    with np.errstate(all="ignore"):
        special = plain(*[x.astype(np.float64) for x in operands])
    same(got, expect(fn, mode, dtype, *operands), dtype, special)


@pytest.mark.parametrize("mode", MODES)
def test_fused_multiply_add_near_ties(mode):
    """Sums that fall on or beside the midpoint of two floats: where a second rounding would show."""
    a = np.float32(1) + np.arange(200, dtype=np.float32) * np.float32(2**-23)
    b = np.float32(1) + np.arange(200, dtype=np.float32)[::-1] * np.float32(2**-23)
    c = np.where(np.arange(200) % 2, np.float32(2**-24), np.float32(-(2**-49)))
    c = np.where(np.arange(200) % 3 == 0, np.float32(2.0**-60), c).astype(np.float32)
    got = elementwise(f"fma.{mode}.f32 %out, %in0, %in1, %in2;", [a, b, c], 32)
    same(got, expect(EXACT["fma"][1], mode, np.float32, a, b, c), np.float32, a)
    tiny = np.float32(2.0**-130) * np.arange(1, 201, dtype=np.float32)
    got = elementwise(f"fma.{mode}.f32 %out, %in0, %in1, %in2;", [tiny, a * np.float32(2**-10), tiny[::-1]], 32)
    same(got, expect(EXACT["fma"][1], mode, np.float32, tiny, a * np.float32(2**-10), tiny[::-1]), np.float32, a)


@pytest.mark.parametrize("type_, dtype", [("f32", np.float32), ("f64", np.float64)])
@pytest.mark.parametrize("mode", MODES)
def test_square_root_is_correctly_rounded(mode, type_, dtype):
    a = np.abs(floats(dtype))
    got = elementwise(f"sqrt.{mode}.{type_} %out, %in0;", [a], dtype(0).itemsize * 8).view(dtype)
    for x, r in zip(a, got):
        if not np.isfinite(x) or x == 0:
            assert r == np.sqrt(x) or np.isnan(x)
            continue
        exact, value = Fraction(float(x)), Fraction(float(r))
        below, above = (
            Fraction(float(np.nextafter(r, dtype(d)))) if np.isfinite(np.nextafter(r, dtype(d))) else None
            for d in (-np.inf, np.inf)
        )
        if mode in ("rm", "rz"):
            assert value**2 <= exact < above**2
        elif mode == "rp":
            assert below**2 < exact <= value**2
        else:
            assert ((value + below) / 2) ** 2 <= exact <= ((value + above) / 2) ** 2


@pytest.mark.parametrize("type_, dtype", [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma"])
def test_sixteen_bit_floats_round_once(op, type_, dtype):
    n, fn, plain = EXACT[op]
    a, b = float_pairs(dtype)
    operands = [a, b, rng.permutation(b)][:n]
    names = ", ".join(f"%in{i}" for i in range(n))
    rnd = ".rn" if op == "fma" else ""
    got = elementwise(f"{op}{rnd}.{type_} %out, {names};", operands, 16)
    with np.errstate(all="ignore"):
        special = plain(*[x.astype(np.float64) for x in operands])
    same(got, expect(fn, "rn", dtype, *operands), dtype, special)
    # The packed form is the scalar one on both halves.
    packed = [np.ascontiguousarray(np.stack([raw(x), raw(x)[::-1]], axis=1)).view(np.uint32)[:, 0] for x in operands]
    both = elementwise(f"{op}{rnd}.{type_}x2 %out, {names};", packed, 32).view(np.uint16).reshape(-1, 2)
    assert np.array_equal(both[:, 0], got) and np.array_equal(both[:, 1], got[::-1])


def test_sixteen_bit_modifiers():
    a = np.array([-2.0, 3.0, 0.5, np.nan], np.float16)
    one = np.ones(4, np.float16)
    zero = np.zeros(4, np.float16)
    got = elementwise("fma.rn.relu.f16 %out, %in0, %in1, %in2;", [a, one, zero], 16).view(np.float16)
    assert got[:3].tolist() == [0.0, 3.0, 0.5] and np.isnan(got[3])
    got = elementwise("fma.rn.sat.f16 %out, %in0, %in1, %in2;", [a, one, zero], 16).view(np.float16)
    assert got.tolist() == [0.0, 1.0, 0.5, 0.0]
    got = elementwise("neg.f16 %out, %in0;", [a], 16).view(np.float16)
    assert got[:3].tolist() == [2.0, -3.0, -0.5]
    got = elementwise("abs.bf16x2 %out, %in0;", [np.array([0xC0003F80], np.uint32)], 32)
    assert got.tolist() == [0x40003F80]


def test_flush_to_zero():
    tiny = np.array([1e-40, -1e-40, 2.0**-126, 1e-30, 1.0], np.float32)
    got = elementwise("mul.ftz.f32 %out, %in0, 0f3F000000;", [tiny], 32).view(np.float32)
    assert got.tolist() == [0.0, -0.0, 0.0, float(np.float32(5e-31)), 0.5]
    assert np.signbit(got).tolist() == [False, True, False, False, False]
    got = elementwise("add.ftz.f32 %out, %in0, 0f00000000;", [tiny], 32).view(np.float32)
    assert got[0] == 0 and got[2] == np.float32(2.0**-126)
    assert elementwise("mul.f32 %out, %in0, 0f3F000000;", [tiny], 32).view(np.float32)[0] == np.float32(1e-40) / 2


HALF_TINY = np.array([6e-8, -6e-8, 2.0**-14 - 2.0**-24, 2.0**-14, -1.0], np.float16)


@pytest.mark.parametrize(
    ("code", "want"),
    [("neg.ftz.f16 %out, %in0;", [-0.0, 0.0, -0.0, -(2.0**-14), 1.0]),
     ("abs.ftz.f16 %out, %in0;", [0.0, 0.0, 0.0, 2.0**-14, 1.0]),
     ("min.ftz.f16 %out, %in0, %in1;", [0.0, -0.0, 0.0, 0.0, -1.0]),
     ("max.ftz.f16 %out, %in0, %in1;", [0.0, 0.0, 0.0, 2.0**-14, 0.0]),
     ("add.ftz.f16 %out, %in0, %in0;", [0.0, -0.0, 0.0, 2.0**-13, -2.0])],
)  # fmt: skip
def test_flush_to_zero_of_halves(code, want):
    """PTX ISA: .ftz flushes denormal inputs and results to zeros of the same sign, of f16 as of f32."""
    zero = np.zeros(5, np.float16)
    got = elementwise(code, [HALF_TINY, zero], 16).view(np.float16)
    assert got.tolist() == want and np.signbit(got).tolist() == np.signbit(want).tolist()


def test_comparisons_that_flush_halves():
    both = [HALF_TINY, np.zeros(5, np.float16)]
    for ftz, want in (("", [1, 0, 1, 1, 0]), (".ftz", [0, 0, 0, 1, 0])):
        got = elementwise(f"setp.gt{ftz}.f16 %p1, %in0, %in1; selp.u32 %out, 1, 0, %p1;", both, 32)
        assert got.tolist() == want
        got = elementwise(f"set.gt{ftz}.u32.f16 %out, %in0, %in1;", both, 32)
        assert got.tolist() == [0xFFFFFFFF * x for x in want]
    pair = [np.array([0x0001_8001, 0x3C00_0400], np.uint32), np.zeros(2, np.uint32)]
    for ftz, want in (("", [2, 3]), (".ftz", [0, 3])):
        code = f"setp.gt{ftz}.f16x2 %p1|%p2, %in0, %in1; selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 2, 0, %p2;"
        assert elementwise(code + "or.b32 %out, %r1, %r2;", pair, 32).tolist() == want


def test_powers_of_two_in_bf16_flush():
    """`.ftz` is part of the form: 2^-127 would be a denormal, and a denormal is 0."""
    x = np.array([-126, -127, 1e-39, 3], ml_dtypes.bfloat16)
    got = elementwise("ex2.approx.ftz.bf16 %out, %in0;", [x], 16).view(ml_dtypes.bfloat16)
    assert got.astype(float).tolist() == [2.0**-126, 0.0, 1.0, 8.0]


@pytest.mark.parametrize(("type_", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_classes_of_numbers(type_, dtype):
    """PTX ISA, testp: "As a special case, positive and negative zero are considered normal numbers."."""
    tiny = float(np.finfo(dtype).tiny)
    x = np.array([0.0, -0.0, tiny, -tiny / 2, 1, np.inf, -np.inf, np.nan], dtype)
    classes = {
        "finite": [1, 1, 1, 1, 1, 0, 0, 0], "infinite": [0, 0, 0, 0, 0, 1, 1, 0], "number": [1, 1, 1, 1, 1, 1, 1, 0],
        "notanumber": [0, 0, 0, 0, 0, 0, 0, 1], "normal": [1, 1, 1, 0, 1, 0, 0, 0], "subnormal": [0, 0, 0, 1, 0, 0, 0, 0],
    }  # fmt: skip
    for op, want in classes.items():
        code = f"testp.{op}.{type_} %p1, %in0; selp.u32 %out, 1, 0, %p1;"
        assert elementwise(code, [x], 32).tolist() == want, op


def test_saturation_clamps_to_one():
    a = np.array([-1, 0.25, 1.5, math.nan, math.inf, -0.0], np.float32)
    got = elementwise("add.sat.f32 %out, %in0, 0f00000000;", [a], 32).view(np.float32)
    assert got.tolist() == [0, 0.25, 1, 0, 1, 0] and not np.signbit(got).any()


@pytest.mark.parametrize(
    "type_, dtype", [("f32", np.float32), ("f64", np.float64), ("f16", np.float16), ("bf16", ml_dtypes.bfloat16)]
)
def test_minimum_and_maximum(type_, dtype):
    a, b = float_pairs(dtype)
    for op, fn in (("min", min), ("max", max)):
        got = elementwise(f"{op}.{type_} %out, %in0, %in1;", [a, b], dtype(0).itemsize * 8).view(dtype)
        for x, y, r in zip(a.astype(float), b.astype(float), got.astype(float)):
            if math.isnan(x) or math.isnan(y):
                want = y if math.isnan(x) else x
                assert r == want or (math.isnan(r) and math.isnan(want))
            elif x == y == 0:
                negative = (math.copysign(1, x), math.copysign(1, y))
                assert math.copysign(1, r) == fn(negative)
            else:
                assert r == fn(x, y)
        if type_ != "f64":
            got = elementwise(f"{op}.NaN.{type_} %out, %in0, %in1;", [a, b], dtype(0).itemsize * 8)
            nan = np.isnan(a.astype(float)) | np.isnan(b.astype(float))
            assert np.array_equal(np.isnan(got.view(dtype).astype(float)), nan)
            canonical = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF}[type_]
            assert (got[nan] == canonical).all()


def test_comparisons_with_nan():
    a, b = float_pairs(np.float32)
    ordered = {
        "eq": lambda x, y: x == y,
        "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y,
    }
    for name, fn in ordered.items():
        plain = [fn(float(x), float(y)) for x, y in zip(a, b)]
        unordered = [p or math.isnan(x) or math.isnan(y) for p, x, y in zip(plain, a, b)]
        for suffix, want in (("", plain), ("u", unordered)):
            got = elementwise(f"setp.{name}{suffix}.f32 %p0, %in0, %in1; selp.b32 %out, 1, 0, %p0;", [a, b], 32)
            assert got.tolist() == [int(w) for w in want], name + suffix
    nan = [math.isnan(x) or math.isnan(y) for x, y in zip(a, b)]
    want = {"ne": [not n and x != y for n, x, y in zip(nan, a, b)], "neu": [n or x != y for n, x, y in zip(nan, a, b)],
            "num": [not n for n in nan], "nan": nan}  # fmt: skip
    for name, w in want.items():
        got = elementwise(f"setp.{name}.f32 %p0, %in0, %in1; selp.b32 %out, 1, 0, %p0;", [a, b], 32)
        assert got.tolist() == [int(x) for x in w], name


def test_predicates_combine():
    a, b = pairs(32, True)
    arrays = [array(a, 32), array(b, 32)]
    code = "setp.gt.s32 %p1, %in0, 0; setp.lt.{}.s32 %p2|%p3, %in0, %in1, {}%p1; selp.b32 %r1, 1, 0, %p2; selp.b32 %r2, 2, 0, %p3; or.b32 %out, %r1, %r2;"
    for op, fn in {"and": lambda x, y: x and y, "or": lambda x, y: x or y, "xor": lambda x, y: x != y}.items():
        for neg in ("", "!"):
            got = elementwise(code.format(op, neg), arrays, 32)
            want = []
            for x, y in zip(a, b):
                c = (x > 0) != (neg == "!")
                want.append(int(fn(x < y, c)) + 2 * int(fn(x >= y, c)))
            assert got.tolist() == want
    got = elementwise(
        "set.lt.u32.s32 %r1, %in0, %in1; set.lt.f32.s32 %f1, %in0, %in1; cvt.rzi.u32.f32 %r2, %f1; add.u32 %out, %r1, %r2;",
        arrays,
        32,
    )
    assert not got.any()
    got = elementwise(
        "setp.lt.s32 %p1, %in0, %in1; not.pred %p2, %p1; xor.pred %p3, %p1, %p2; and.pred %p4, %p3, !%p1; selp.b32 %out, 1, 0, %p4;",
        arrays,
        32,
    )
    assert got.tolist() == [int(x >= y) for x, y in zip(a, b)]


def ulps(got, want, dtype=np.float32):
    unit = np.abs(np.spacing(want.astype(dtype)).astype(np.float64))
    return np.abs(got.astype(np.float64) - want) / unit


@pytest.mark.parametrize("op, fn, low, high", [
    ("rcp.approx", lambda x: 1 / x, -1e3, 1e3), ("sqrt.approx", np.sqrt, 0, 1e6), ("rsqrt.approx", lambda x: 1 / np.sqrt(x), 1e-6, 1e6),
    ("ex2.approx", np.exp2, -100, 100), ("lg2.approx", np.log2, 1e-6, 1e6), ("sin.approx", np.sin, -3, 3), ("cos.approx", np.cos, -3, 3),
    ("tanh.approx", np.tanh, -5, 5),
])  # fmt: skip
def test_approximations_are_rounded_once(op, fn, low, high):
    x = rng.uniform(low, high, 500).astype(np.float32)
    got = elementwise(f"{op}.f32 %out, %in0;", [x], 32).view(np.float32)
    assert (ulps(got, fn(x.astype(np.float64))) <= 0.51).all()


def test_approximations_at_the_edges():
    x = np.array([0, -0.0, math.inf, -math.inf, math.nan, 1e-40], np.float32)
    with np.errstate(all="ignore"):
        got = elementwise("rcp.approx.ftz.f32 %out, %in0;", [x], 32).view(np.float32)
        assert got[:4].tolist() == [math.inf, -math.inf, 0, -0.0] and np.isnan(got[4]) and got[5] == math.inf
        got = elementwise("lg2.approx.f32 %out, %in0;", [x], 32).view(np.float32)
        assert got[0] == -math.inf and got[2] == math.inf and np.isnan(got[3])
        got = elementwise(
            "ex2.approx.ftz.f32 %out, %in0;", [np.array([-150, -126.5, 128, -math.inf], np.float32)], 32
        ).view(np.float32)
        assert got.tolist() == [0, 0, math.inf, 0]
        got = elementwise(
            "div.approx.f32 %out, %in0, %in1;",
            [np.array([1, math.inf], np.float32), np.array([2.0**127, 2.0**127], np.float32)],
            32,
        )
        assert got.view(np.float32)[0] == 0 and np.isnan(got.view(np.float32)[1])
        got = elementwise(
            "div.full.f32 %out, %in0, %in1;", [np.array([1], np.float32), np.array([2.0**127], np.float32)], 32
        )
        assert got.view(np.float32)[0] == 2.0**-127
