"""Elementwise operations on every chip: text against evaluator, within the bounds of docs/numerics.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from agree import TARGETS, agree
from wavedsl.ir.numerics import tolerance

import wavedsl as wd
from wavedsl.targets import get_target

N = wd.sym.N
LINE = [wd.WorkgroupConstraint(N, 256, 0)]


def line(*dtypes: wd.DType) -> list[Any]:
    return [wd.Memory[N, d] for d in dtypes]


def unary(function: Callable[[Any], Any], dtype: wd.DType, out: wd.DType | None = None) -> Any:
    source, result = line(dtype, out or dtype)

    @wd.wave(LINE)
    def kernel(a: source, b: result):
        wd.write(function(wd.read(a)), b)

    return kernel


def binary(function: Callable[[Any, Any], Any], dtype: wd.DType) -> Any:
    (source,) = line(dtype)

    @wd.wave(LINE)
    def kernel(a: source, b: source, c: source):
        wd.write(function(wd.read(a), wd.read(b)), c)

    return kernel


SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3.9, 4.0, 4.1, 0.9999, 1.0001, 1e-8, 1e-20], np.float32
)
RANGES: dict[str, tuple[float, float]] = {
    "erf": (-5, 5), "sin": (-50, 50), "cos": (-50, 50), "tanh": (-10, 10), "sigmoid": (-30, 30), "exp": (-60, 60),
    "exp2": (-100, 100), "log": (1e-6, 1e6), "log2": (1e-6, 1e6), "rsqrt": (1e-6, 1e6), "reciprocal": (0.01, 1e5),
    "sqrt": (0, 1e6), "expm1": (-20, 60), "log1p": (-0.999, 1e3), "log10": (1e-6, 1e6), "atan": (-50, 50),
    "asin": (-1, 1), "acos": (-1, 1),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", RANGES)
def test_functions_stay_within_their_bounds(op: str, target: str, oracle: Callable[[str], str]) -> None:
    low, high = RANGES[op]
    x = np.random.default_rng(1).uniform(low, high, 500).astype(np.float32)
    wide = np.zeros_like(x, np.float64)
    unary(getattr(wd, op), wd.f32).evaluate(x.astype(np.float64), wide, float64=True)
    argument = {"exp": x * 1.4427, "expm1": x * 1.4427, "sigmoid": x * 1.4427}.get(op, 0.0)

    def within(got: np.ndarray, want: np.ndarray) -> None:
        if np.array_equal(got, want):
            return
        error = np.abs(got.astype(np.float64) - wide)
        allowed = tolerance(op, target, wd.f32, wide, argument)
        worst = int(np.argmax(error - allowed))
        assert (error <= allowed).all(), (x[worst], got[worst], wide[worst], error[worst], allowed[worst])

    agree(unary(getattr(wd, op), wd.f32), [x, np.zeros_like(x)], target, oracle if op == "erf" else None, within)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["expm1", "log1p"])
def test_small_numbers_lose_no_digits(op: str, target: str) -> None:
    """Relative errors, down to denormal numbers; and where one formula gives way to the other."""
    rng = np.random.default_rng(8)
    sizes = np.exp2(rng.uniform(-140, -1, 400)) * rng.choice([-1.0, 1.0], 400)
    x = np.concatenate([sizes, rng.uniform(-0.6, 0.6, 400), [0.5, -0.5, -0.29, 0.41, 0.0, -0.0]]).astype(np.float32)
    got = np.zeros_like(x)
    unary(getattr(wd, op), wd.f32).compile(x, got, target=target).emulate(x, got)
    exact = getattr(np, op)(x.astype(np.float64))
    assert (np.abs(got - exact) <= tolerance(op, target, wd.f32, exact, x * 1.4427)).all()
    assert np.array_equal(np.signbit(got), np.signbit(x))
    ends = np.array([np.inf, -np.inf, np.nan, -1.0, -2.0, 200.0], np.float32)
    got = np.zeros_like(ends)
    unary(getattr(wd, op), wd.f32).compile(ends, got, target=target).emulate(ends, got)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, getattr(np, op)(ends), rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.f64, wd.f16], ids=str)
def test_kinds_of_numbers(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    source, result, truth = line(dtype, dtype, wd.i32)

    @wd.wave(LINE)
    def kernel(a: source, b: result, c: truth):
        x = wd.read(a)
        flags = [wd.cast(f(x), wd.i32) for f in (wd.isnan, wd.isinf, wd.isfinite)]
        wd.write(wd.trunc(x), b)
        wd.write(flags[0] + flags[1] * 2 + flags[2] * 4, c)

    x = np.concatenate([SPECIAL, [-0.5, 2.5, -2.5, 60000.0]]).astype(dtype.numpy)
    b, c = np.zeros_like(x), np.zeros(x.size, np.int32)
    kernel.evaluate(x, b, c)
    assert np.array_equal(b, np.trunc(x), equal_nan=True)
    assert (c == np.isnan(x) + 2 * np.isinf(x) + 4 * np.isfinite(x)).all()
    agree(kernel, [x, np.zeros_like(x), np.zeros_like(c)], target, oracle)


def _fast(op: str) -> Callable[[Any], Any]:
    if op == "div":
        return lambda x: wd.divide(3.0, x, fast=True)
    return lambda x: getattr(wd, op)(x, fast=True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["div", "reciprocal", "sqrt", "sigmoid", "tanh", "exp"])
def test_fast_functions_stay_within_theirs(op: str, target: str) -> None:
    """Fewer instructions, and the bounds of docs/numerics.md; a function that has no faster form is what it was."""
    low, high = RANGES.get(op, (0.01, 1e5))
    x = np.random.default_rng(1).uniform(low, high, 500).astype(np.float32)
    wide, got = np.zeros_like(x, np.float64), np.zeros_like(x)
    unary(_fast(op), wd.f32).evaluate(x.astype(np.float64), wide, float64=True)
    compiled = unary(_fast(op), wd.f32).compile(x, got, target=target)
    compiled.emulate(x, got)
    argument = {"exp": x * 1.4427, "sigmoid": x * 1.4427}.get(op, 0.0)
    assert (np.abs(got - wide) <= tolerance(op, target, wd.f32, wide, argument, fast=True)).all()
    usual = {"div": lambda v: 3.0 / v}.get(op) or getattr(wd, op)
    slower = unary(usual, wd.f32).compile(x, got, target=target)
    if target.startswith("sm"):
        assert ".rn.f32" in slower.asm or op == "exp"
        assert not [line for line in compiled.asm.splitlines() if "div.rn" in line or "sqrt.rn" in line]
    else:
        assert (compiled.resources.instructions["valu"] < slower.resources.instructions["valu"]) == (
            op not in ("exp", "sigmoid")
        )


@pytest.mark.parametrize("op", ["exp", "sigmoid", "tanh"])
def test_functions_take_the_approximations_that_their_bounds_allow(op: str) -> None:
    """An exponential and a reciprocal are one machine instruction each of NVIDIA's chips."""
    x = np.zeros(64, np.float32)
    text = unary(getattr(wd, op), wd.f32).compile(x, x.copy(), target="sm_80").asm
    assert "ex2.approx.ftz.f32" in text and "div." not in text
    assert ("rcp.approx.ftz.f32" in text) == (op != "exp")


def test_fast_math_is_fast_for_the_whole_kernel() -> None:
    """`/` too; what is in f64 stays as it is, and cannot be asked for."""

    @wd.wave(LINE, fast_math=True)
    def kernel(a: wd.Memory[N, wd.f32], b: wd.Memory[N, wd.f64], c: wd.Memory[N, wd.f64]):
        wd.write(wd.cast(wd.tanh(wd.read(a)) / wd.read(a), wd.f64) + wd.read(b) / 3.0, c)

    nodes = {(n.op, n.dtype.name): n.attrs.get("fast") for n in kernel.trace().all_nodes() if n.op in ("tanh", "div")}
    assert nodes == {("tanh", "f32"): True, ("div", "f32"): True, ("div", "f64"): None}
    x = np.random.default_rng(3).uniform(0.1, 4, 300)
    c = np.zeros(300)
    kernel.compile(x.astype(np.float32), x, c, target="sm_90a").emulate(x.astype(np.float32), x, c)
    assert np.abs(c - (np.tanh(x) / x + x / 3)).max() < 2.0**-17
    with pytest.raises(wd.ConstraintError, match="sqrt: fast is for f32, f16 and bf16, not f64"):
        unary(lambda v: wd.sqrt(v, fast=True), wd.f64).trace()


@pytest.mark.parametrize("target", TARGETS)
def test_erf_of_special_numbers_and_of_halves(target: str) -> None:
    b = np.zeros_like(SPECIAL)
    unary(wd.erf, wd.f32).compile(SPECIAL, b, target=target).emulate(SPECIAL, b)
    want = np.zeros_like(SPECIAL)
    unary(wd.erf, wd.f32).evaluate(SPECIAL, want)
    np.testing.assert_allclose(b, want, rtol=4e-7, atol=2.0**-149)
    assert np.array_equal(np.signbit(b[:2]), [False, True])
    x = np.linspace(-5, 5, 333).astype(np.float16)
    got, meant = np.zeros_like(x), np.zeros_like(x)
    unary(wd.erf, wd.f16).compile(x, got, target=target).emulate(x, got)
    unary(wd.erf, wd.f16).evaluate(x, meant)
    assert np.abs(got.view(np.int16).astype(int) - meant.view(np.int16)).max() <= 1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["sin", "cos"])
def test_angles_of_many_turns(op: str, target: str) -> None:
    x = np.random.default_rng(2).uniform(-1e4, 1e4, 400).astype(np.float32)
    got = np.zeros_like(x)
    unary(getattr(wd, op), wd.f32).compile(x, got, target=target).emulate(x, got)
    assert np.abs(got - getattr(np, op)(x.astype(np.float64))).max() <= 2.0**-19


INTEGERS = (wd.i8, wd.u8, wd.i16, wd.u16, wd.i32, wd.u32, wd.i64, wd.u64)
QUICK = [d if d in (wd.u8, wd.i16, wd.u32, wd.i64) else pytest.param(d, marks=pytest.mark.slow) for d in INTEGERS]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", QUICK, ids=str)
def test_bits_and_shifts(dtype: wd.DType, target: str) -> None:
    rng = np.random.default_rng(3)
    info = np.iinfo(dtype.numpy)
    a, b = (rng.integers(info.min, info.max, 300, dtype.numpy, endpoint=True) for _ in range(2))
    counts = np.where(rng.random(300) < 0.8, rng.integers(0, dtype.bits + 3, 300), b).astype(dtype.numpy)
    c = np.zeros_like(a)
    agree(binary(lambda x, y: (x & y) ^ ~(x | y), dtype), [a, b, c], target)
    agree(binary(lambda x, y: (x << y) ^ (x >> y), dtype), [a, counts, c], target)


FLOATS = (wd.f16, wd.bf16, wd.f8e4m3, wd.f8e5m2, wd.f8e4m3fnuz, wd.f8e5m2fnuz)


def to_round(dtype: wd.DType) -> np.ndarray:
    """f32 numbers of every size that the type has, around its numbers, and past its largest."""
    rng = np.random.default_rng(4)
    x = np.exp2(rng.uniform(-30, 20, 600)) * rng.choice([-1.0, 1.0], 600)
    largest = float(ml_dtypes.finfo(dtype.numpy).max)
    edges = [0.0, -0.0, largest, largest * 1.01, -largest * 1.5, 1e30, np.nan]
    whole = np.arange(-40, 40) / 8
    with np.errstate(over="ignore"):
        return np.concatenate([x, edges, whole]).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_roundings(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    if dtype.name not in get_target(target).dtypes:
        pytest.skip(f"{target} has no {dtype}")
    x = to_round(dtype)
    b = np.zeros(x.shape, dtype.storage)
    agree(unary(lambda v: wd.cast(v, dtype), wd.f32, dtype), [x, b], target)
    agree(unary(lambda v: wd.cast(v, dtype, rounding="toward_zero"), wd.f32, dtype), [x, b], target)
    noise = np.random.default_rng(5).integers(0, 1 << 32, x.size, np.uint32)
    source, bits, result = line(wd.f32, wd.u32, dtype)

    @wd.wave(LINE)
    def kernel(a: source, r: bits, b: result):
        wd.write(wd.cast(wd.read(a), dtype, rounding="stochastic", bits=wd.read(r)), b)

    agree(kernel, [x, noise, b], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
def test_stochastic_rounding_has_the_right_mean(target: str) -> None:
    x = np.full(4096, 1.0 + 3 / 1024, np.float32)  # 3/8 of the way from 1 to the next bf16
    noise = np.arange(4096, dtype=np.uint32) * np.uint32(16)
    b = np.zeros(x.shape, ml_dtypes.bfloat16)
    source, bits, result = line(wd.f32, wd.u32, wd.bf16)

    @wd.wave(LINE)
    def kernel(a: source, r: bits, b: result):
        wd.write(wd.cast(wd.read(a), wd.bf16, rounding="stochastic", bits=wd.read(r)), b)

    kernel.compile(x, noise, b, target=target).emulate(x, noise, b)
    assert abs(b.astype(np.float64).mean() - x[0]) < 2.0**-16


@pytest.mark.parametrize("target", TARGETS)
def test_f64_rounds_once_to_narrow_types(target: str) -> None:
    """1 + 2^-11 + 2^-40 lies above the middle of two f16 numbers; f32 would round it to the middle, then down."""
    x = np.array([1 + 2.0**-11 + 2.0**-40, -(1 + 2.0**-11 + 2.0**-40), 1 + 2.0**-11, 1e300, np.nan, 2.0**-30])
    for dtype in (wd.f16, wd.bf16):
        agree(unary(lambda v: wd.cast(v, dtype), wd.f64, dtype), [x, np.zeros(x.shape, dtype.storage)], target)
    truncated = unary(lambda v: wd.cast(v, wd.f32, rounding="toward_zero"), wd.f64, wd.f32)
    agree(truncated, [x, np.zeros(6, np.float32)], target)


WITH_TF32 = [target for target in TARGETS if "tf32" in get_target(target).dtypes]


def nearest(n: int, digits: int, half: int) -> float:
    """An integer rounded to so many binary digits; halves to even (`half` 0) or away from zero (1)."""
    size = abs(n)
    spare = max(0, size.bit_length() - digits)
    kept, rest = size >> spare, size & (1 << spare) - 1
    up = 2 * rest > 1 << spare or (spare > 0 and 2 * rest == 1 << spare and bool(half or kept & 1))
    return float(kept + up << spare) * (-1 if n < 0 else 1)


def beside_ties(dtype: wd.DType, digits: int) -> list[int]:
    """Integers on either side of a tie between two floats of so many digits, by as little as f32 or f64 can lose."""
    info = np.iinfo(dtype.storage)
    found = [0, 1, -1, info.max, info.max - 1, info.max - 63, info.min, info.min + 1, (1 << 24) + 1]
    for top in range(digits + 1, info.bits):
        for kept in (0b1010101, 0b1111111, 0b1000000):
            tie = (1 << top) + (kept << max(0, top - digits)) + (1 << top - digits)
            found += [s * (tie + d) for s in (1, -1) for d in (-1, 0, 1)]
    return [n for n in found if info.min <= n <= info.max]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.i32, wd.u32, wd.i64, wd.u64], ids=str)
def test_integers_round_once_to_floats(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """f32 would round most of them to the middle of two bf16 numbers first, and f64 those of 64 bits."""
    for to, digits, half in ((wd.bf16, 8, 0), *(((wd.tf32, 11, 1),) if target in WITH_TF32 else ())):
        numbers = beside_ties(dtype, digits)
        x = np.array(numbers, dtype.storage)
        kernel = unary(lambda v, to=to: wd.cast(v, to), dtype, to)
        got, meant = (np.zeros(x.shape, to.storage) for _ in range(2))
        kernel.compile(x, got, target=target).emulate(x, got)
        kernel.evaluate(x, meant)
        np.testing.assert_array_equal(got.astype(np.float64), [nearest(n, digits, half) for n in numbers])
        np.testing.assert_array_equal(meant.astype(np.float64), [nearest(n, digits, 0) for n in numbers])


@pytest.mark.parametrize("target", TARGETS)
def test_denormal_quotients_of_f64_are_rounded_once(target: str, oracle: Callable[[str], str]) -> None:
    """A quotient rounded to 53 digits, and then to those of a denormal number, is another one time in two hundred."""
    rng = np.random.default_rng(0)
    x = np.ldexp(rng.uniform(1, 2, 2048) * rng.choice([-1, 1], 2048), rng.integers(-560, -515, 2048))
    y = np.ldexp(rng.uniform(1, 2, 2048), 508)
    agree(binary(lambda u, v: u / v, wd.f64), [x, y, np.zeros_like(x)], target, oracle)


@pytest.mark.parametrize("target", WITH_TF32)
def test_f64_rounds_once_to_tf32(target: str) -> None:
    """Just below a tie, which f32 would make one, and casts to tf32 round those away from zero."""
    x = np.array([1 + 2.0**-11 - 2.0**-40, -(1 + 2.0**-11 - 2.0**-40), 1 + 2.0**-11 + 2.0**-40, 1e300, np.nan, 0.1])
    agree(unary(lambda v: wd.cast(v, wd.tf32), wd.f64, wd.tf32), [x, np.zeros(x.shape, np.float32)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_casts_to_integers_saturate(target: str) -> None:
    x = np.array([0.9, -0.9, 127.5, 128.5, -129, 1e30, -1e30, np.nan, np.inf, -np.inf, 300.0, 70000.0], np.float32)
    for dtype in INTEGERS:
        agree(unary(lambda v: wd.cast(v, dtype), wd.f32, dtype), [x, np.zeros(x.shape, dtype.storage)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_pow(target: str) -> None:
    x = np.random.default_rng(6).uniform(0.01, 30, 300).astype(np.float32)
    y = np.random.default_rng(7).uniform(-5, 5, 300).astype(np.float32)
    got = np.zeros_like(x)
    binary(wd.pow, wd.f32).compile(x, y, got, target=target).emulate(x, y, got)
    exact = np.power(x.astype(np.float64), y)
    assert (np.abs(got - exact) <= tolerance("pow", target, wd.f32, exact, y * np.log2(x))).all()
