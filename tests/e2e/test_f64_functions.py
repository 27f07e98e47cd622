"""Functions of f64 on every chip against 50 digits: numbers of all sizes, the edges of the type, rows of a softmax."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from agree import TARGETS, agree, near
from wavedsl.ir.functions import f64_constants
from wavedsl.ir.kernel.kernel_eval import run
from wavedsl.ir.numerics import F64_BOUNDS

import wavedsl as wd
from wavedsl.targets import get_target

ROOT = Path(__file__).parents[2]
M, N = wd.symbols("M N")
LINE = [wd.WorkgroupConstraint(N, 256, 0)]
COUNT = 250
FARTHEST = 2.0**45

EXACT: dict[str, Callable[..., Any]] = {
    "exp": mp.exp, "exp2": lambda x: mp.mpf(2) ** x, "log": mp.log, "log2": lambda x: mp.log(x, 2), "sin": mp.sin,
    "cos": mp.cos, "tanh": mp.tanh, "erf": mp.erf, "sigmoid": lambda x: 1 / (1 + mp.exp(-x)), "pow": mp.power,
    "rsqrt": lambda x: 1 / mp.sqrt(x), "expm1": mp.expm1, "log1p": mp.log1p, "log10": mp.log10,
    "atan": mp.atan, "asin": mp.asin, "acos": mp.acos, "atan2": mp.atan2,
}  # fmt: skip
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 2.0**-1022, 1.7e308, -1.7e308, 1.0, -1.0])


def unary(op: str) -> Any:
    @wd.wave(LINE)
    def kernel(a: wd.Memory[N, wd.f64], b: wd.Memory[N, wd.f64]):
        wd.write(getattr(wd, op)(wd.read(a)), b)

    return kernel


def binary(op: str) -> Any:
    @wd.wave(LINE)
    def kernel(a: wd.Memory[N, wd.f64], b: wd.Memory[N, wd.f64], c: wd.Memory[N, wd.f64]):
        wd.write(getattr(wd, op)(wd.read(a), wd.read(b)), c)

    return kernel


def arguments(op: str) -> list[np.ndarray]:
    """Numbers of every size that a function takes, and many where its formula changes or its result is denormal."""
    rng = np.random.default_rng(sum(op.encode()))
    sizes = np.exp2(rng.uniform(-1074, 1023, COUNT))
    near_one = np.concatenate([1 + rng.standard_normal(COUNT) * 1e-6, rng.uniform(0.5, 2, COUNT)])
    roots = np.sqrt(0.5) * (1 + np.arange(-20, 20) * 2.0**-50)
    positive = np.concatenate([sizes, near_one, roots, 2 * roots])
    signs = rng.choice([-1.0, 1.0], COUNT)
    if op in ("asin", "acos"):
        ends = 1 - np.exp2(rng.uniform(-53, -1, COUNT))
        few = np.minimum(sizes, 1.0)
        return [np.concatenate([rng.uniform(-1, 1, COUNT), ends, -ends, signs * few, [0.26794, 0.57735, 0.5, 0.7071]])]
    if op == "atan":
        return [np.concatenate([rng.uniform(-6, 6, COUNT), signs * sizes, rng.uniform(0.26, 0.28, COUNT)])]
    if op == "atan2":
        plane = rng.uniform(-3, 3, (2, COUNT))
        return [np.concatenate([plane[0], signs * sizes]), np.concatenate([plane[1], signs[::-1] * sizes[::-1]])]
    if op == "log10":
        return [np.concatenate([positive, 10.0 ** np.arange(-300, 300, 9)])]
    if op in ("log", "log2", "rsqrt"):
        return [positive]
    if op == "log1p":
        below = np.concatenate([-np.exp2(rng.uniform(-1074, -1, COUNT)), np.exp2(rng.uniform(-52, 0, COUNT)) - 1])
        return [np.concatenate([positive, below[below > -1], rng.uniform(-0.4, 0.5, COUNT), [-0.29, 0.41]])]
    if op == "pow":
        exponents = rng.uniform(-1100, 1060, positive.size) / np.log2(positive)
        exponents[::5] = rng.uniform(-3, 3, exponents[::5].size)
        return [positive, np.where(np.isfinite(exponents), exponents, 0.5)]
    if op in ("sin", "cos"):
        quarters = np.concatenate([np.arange(COUNT), np.round(rng.uniform(0, 2**44, COUNT))])
        angles = [quarters * (np.pi / 2), rng.uniform(0, FARTHEST, COUNT), np.exp2(rng.uniform(-1074, 45, COUNT))]
        return [np.concatenate([*angles, -angles[0], [FARTHEST, 6381956970095103 * 2.0**-8]])]
    most = 1100 if op == "exp2" else 760
    edges = [x + step for x in (0.25, 0.5, 1, 2.25, 6, 22, np.log(2) / 2) for step in (-1e-15, 0.0, 1e-15)]
    spread = [rng.uniform(-most, most, COUNT), rng.uniform(-8, 8, COUNT), rng.uniform(-1, 1, COUNT), signs * sizes]
    return [np.concatenate([*spread, edges, -np.array(edges), [-745.1, -744.9, -708.5, 709.7, -1074.4, -1022.5]])]


def check(got: np.ndarray, exact: list[Any], ulps: float, given: list[np.ndarray]) -> None:
    """Within `ulps` units of the last place of the exact result; beyond the largest number is infinity."""
    largest = mp.mpf(2) ** 1024 - mp.mpf(2) ** 970
    for i, (mine, want) in enumerate(zip(got, exact)):
        if abs(want) >= largest:
            assert mine == np.copysign(np.inf, float(mp.sign(want))), [x[i] for x in given]
            continue
        unit = np.spacing(abs(float(want)))
        if abs(want) > mp.mpf(2) ** 1023:
            unit = 2.0**971
        assert np.isfinite(mine) and abs(mp.mpf(float(mine)) - want) <= ulps * mp.mpf(float(unit)), (
            [x[i] for x in given], mine, float(want),
        )  # fmt: skip


@pytest.mark.parametrize("op", EXACT)
def test_within_their_bounds_and_the_same_bits_on_every_chip(op: str, oracle: Callable[[str], str]) -> None:
    given = arguments(op)
    kernel = binary(op) if op in ("pow", "atan2") else unary(op)
    with mp.workdps(50):
        exact = [EXACT[op](*(mp.mpf(float(x)) for x in numbers)) for numbers in zip(*given)]
        results = []
        for target in TARGETS:
            got = np.full_like(given[0], 7.0)
            kernel.compile(*given, got, target=target).emulate(*given, got)
            results.append(got)
        check(results[0], exact, F64_BOUNDS[op], given)
        meant = np.empty_like(given[0])
        kernel.evaluate(*given, meant)
        check(meant, exact, 4, given)  # what NumPy computes
    assert all(np.array_equal(x.view(np.int64), results[0].view(np.int64)) for x in results)


@pytest.mark.parametrize("op", [*(op for op in EXACT if op not in ("pow", "atan2"))])
def test_special_numbers(op: str) -> None:
    """NaN, infinities, both zeros, the smallest and the largest numbers: the evaluator's bits, which are NumPy's."""
    given = SPECIAL[np.abs(SPECIAL) < FARTHEST] if op in ("sin", "cos") else SPECIAL
    want = np.empty_like(given)
    unary(op).evaluate(given, want)
    for target in TARGETS:
        got = np.empty_like(given)
        unary(op).compile(given, got, target=target).emulate(given, got)
        np.testing.assert_array_max_ulp(got, want, 1)
        assert np.array_equal(np.signbit(got) | np.isnan(got), np.signbit(want) | np.isnan(want))


@pytest.mark.parametrize("target", TARGETS)
def test_angles_beyond_the_limit_are_no_numbers(target: str) -> None:
    x = np.array([np.nextafter(FARTHEST, np.inf), -1e300, np.inf, -np.inf, np.nan])
    for op in ("sin", "cos"):
        got = np.zeros_like(x)
        unary(op).compile(x, got, target=target).emulate(x, got)
        assert np.isnan(got).all()


@pytest.mark.parametrize("target", TARGETS)
def test_powers_of_special_numbers(target: str) -> None:
    """By the definition exp2(y log2 x), in f64 as in f32."""
    x, y = np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)
    agree(binary("pow"), [x, y, np.zeros_like(x)], target, compare=near(1))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_angles_of_special_points(dtype: type, target: str) -> None:
    """Both zeros, axes, diagonals and infinities, as NumPy has them: octants, and the sign of what is on an axis."""
    memory = wd.Memory[N, wd.f64 if dtype is np.float64 else wd.f32]

    @wd.wave(LINE)
    def kernel(a: memory, b: memory, c: memory):
        wd.write(wd.atan2(wd.read(a), wd.read(b)), c)

    some = np.array([*SPECIAL[np.abs(SPECIAL) != 1.7e308], 0.3, -0.3, 3e38, -1e-38]).astype(dtype)
    some = some[(np.abs(some) > 1e-37) | ~(some != 0)] if dtype is np.float32 else some
    y, x = np.repeat(some, some.size), np.tile(some, some.size)
    got = np.zeros_like(x)
    kernel.compile(y, x, got, target=target).emulate(y, x, got)
    want = np.arctan2(y, x)
    np.testing.assert_array_max_ulp(got, want, 5, dtype)
    assert np.array_equal(np.signbit(got) | np.isnan(got), np.signbit(want) | np.isnan(want))


@pytest.mark.parametrize("target", TARGETS)
def test_softmax_and_its_logarithm(target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
    def softmax(x: wd.Memory[M, N, wd.f64], y: wd.Memory[M, N, wd.f64], sums: wd.Memory[M, wd.f64]):
        row = wd.read(x)
        top = wd.max(row, dim=N)
        e = wd.exp(row - top)
        total = wd.sum(e, dim=N)
        wd.write(e / total, y)
        wd.write(top + wd.log(total), sums)

    x = np.random.default_rng(0).standard_normal((6, 77)) * 30
    x[3, 5:] = -np.inf
    agree(softmax, [x, np.zeros_like(x), np.zeros(6)], target, oracle, near(40))


def test_the_kernel_ir_means_what_chips_compute() -> None:
    """The interpreter of kernel IR, whose multiply-adds are rational numbers, has the emulators' bits."""
    x = np.random.default_rng(2).uniform(0.1, 9, 64)
    for op in ("exp", "log", "sin", "erf"):
        compiled = unary(op).compile(x, x.copy(), target="gfx942")
        got, meant = np.zeros_like(x), np.zeros_like(x)
        compiled.emulate(x, got)
        run(compiled.kernel_ir, [x, meant], target=get_target("gfx942"))
        assert np.array_equal(got, meant)


def test_constants_are_what_their_script_makes() -> None:
    spec = importlib.util.spec_from_file_location("f64_coefficients", ROOT / "benchmarks" / "f64_coefficients.py")
    assert spec is not None and spec.loader is not None
    script = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    with mp.workdps(script.DIGITS):
        assert Path(f64_constants.__file__).read_text(encoding="utf-8") == script.source()


@pytest.mark.parametrize("target", TARGETS)
def test_whole_numbers_of_f64(target: str) -> None:
    """Each way of rounding, of halves, zeros, infinities and what has no fraction."""
    @wd.wave(LINE)
    def kernel(
        x: wd.Memory[N, wd.f64], a: wd.Memory[N, wd.f64], b: wd.Memory[N, wd.f64], c: wd.Memory[N, wd.f64],
        d: wd.Memory[N, wd.f64],
    ):  # fmt: skip
        value = wd.read(x)
        for f, out in ((wd.floor, a), (wd.ceil, b), (wd.round, c), (wd.trunc, d)):
            wd.write(f(value), out)

    edges = [-0.0, np.inf, -np.inf, np.nan, 2.0**52 + 1, -(2.0**51) - 0.5, 1e-300]
    x = np.concatenate([np.arange(-5, 5.5, 0.5), edges])
    got = [np.zeros_like(x) for _ in range(4)]
    kernel.compile(x, *got, target=target).emulate(x, *got)
    for f, mine in zip((np.floor, np.ceil, np.rint, np.trunc), got):
        np.testing.assert_array_equal(mine, f(x))
        signed = ~np.isnan(x)
        np.testing.assert_array_equal(np.signbit(mine)[signed], np.signbit(f(x))[signed])
