"""Numbers at the edges of their types, on every chip: the evaluator's bits, and the evaluator against definitions.

docs/numerics.md says of these operations that they give the same bits everywhere: NaN, infinities, denormals and the
signs of zeros included.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from agree import TARGETS
from wavedsl.codegen.ptx.isa_numerics import fma_f32, fma_f64
from wavedsl.ir.rounding import fma

import wavedsl as wd

M, N = wd.symbols("M N")
LINE = [wd.WorkgroupConstraint(N, 256, 0)]
CASES = [
    pytest.param(dtype, target, id=f"{dtype}-{target}")
    for dtype in (wd.f32, wd.f64, wd.f16, wd.bf16)
    for target in TARGETS
]


def special(dtype: wd.DType) -> np.ndarray:
    info = ml_dtypes.finfo(dtype.numpy)
    tiny = [float(info.max), float(info.tiny), float(info.smallest_subnormal), float(info.tiny) * 0.75, float(info.eps)]
    found = [0.0, 1.0, 0.5, 1.5, 3.0, 7.0, 100.25, np.inf, *tiny]
    return np.array([*found, *(-x for x in found), np.nan]).astype(dtype.numpy)


def same_bits(got: np.ndarray, want: np.ndarray, where: Any = True) -> None:
    """Equal bits, or NaN on both sides."""
    wide = [x.astype(np.float64) for x in (got, want)]
    same = np.isnan(wide[0]) & np.isnan(wide[1])
    same |= (wide[0] == wide[1]) & (np.signbit(wide[0]) == np.signbit(wide[1]))
    assert np.all(same | ~np.asarray(where)), [(got[i], want[i]) for i in np.flatnonzero(~same & where)[:5]]


@pytest.mark.parametrize("dtype, target", CASES)
def test_exact_operations(dtype: wd.DType, target: str) -> None:
    memory = wd.Memory[N, dtype]

    @wd.wave(LINE)
    def kernel(
        a: memory, b: memory, low: memory, high: memory, quotient: memory, rest: memory, sum: memory, root: memory
    ):
        x, y = wd.read(a), wd.read(b)
        wd.write(wd.minimum(x, y), low)
        wd.write(wd.maximum(x, y), high)
        wd.write(x // y, quotient)
        wd.write(x % y, rest)
        wd.write(wd.fma(x, y, x), sum)
        wd.write(wd.sqrt(wd.maximum(x, y)), root)

    numbers = special(dtype)
    x, y = np.repeat(numbers, numbers.size), np.tile(numbers, numbers.size)
    meant, got = ([np.zeros_like(x) for _ in range(6)] for _ in range(2))
    kernel.evaluate(x, y, *meant)
    kernel.compile(x, y, *got, target=target).emulate(x, y, *got)
    with np.errstate(all="ignore"):
        known = ~(np.abs(x.astype(np.float64) / y.astype(np.float64)) >= 2.0**23) & (y != 0)
    for i, (mine, theirs) in enumerate(zip(got, meant)):
        same_bits(mine, theirs, known if i in (2, 3) else True)
    finite = known & np.isfinite(x.astype(np.float64))
    for p, q, mine in zip(x[finite], y[finite], meant[3][finite]):
        want = dtype.numpy(float(p) % float(q))
        assert (np.isnan(want) and np.isnan(mine)) or mine == want


def test_multiply_add_rounds_once() -> None:
    """Against rational numbers: ties, products beyond the largest number, sums below the smallest normal one."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(300) * np.exp2(rng.uniform(-560, 560, 300)) for _ in range(2))
    with np.errstate(over="ignore"):
        c = -a * b * (1 + rng.integers(-2, 3, 300) * 2.0**-52)
    c[::3] = rng.standard_normal(100)
    a[:3], b[:3], c[:3] = 1.5e308, (1.25, -1.25, 1e-10), (-1.7e308, 1.7e308, 5e-324)
    c = np.where(np.isfinite(c), c, np.copysign(1.7e308, c))
    got = fma(a, b, c)
    for x, y, z, mine in zip(a, b, c, got):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        want = float(exact) if abs(exact) < 2**1024 - 2**970 else np.copysign(np.inf, float(np.sign(exact)))
        assert mine == want, (x, y, z)
    zeros = np.array([(-0.0, 0.5, -0.0), (-0.0, -0.5, -0.0), (-0.0, 0.5, 0.0), (0.0, 0.5, 2.5), (1.5, -2.0, 3.0)]).T
    for dtype in (np.float64, np.float32):
        a, b, c = zeros.astype(dtype)
        for made in (fma(a, b, c), fma_f64(*zeros) if dtype is np.float64 else fma_f32(a, b, c)):
            assert list(map(str, made.tolist())) == ["-0.0", "0.0", "0.0", "2.5", "0.0"]
    one, half = np.float32([1 + 2.0**-12]), np.float32([2.0**-60])
    assert fma(one, one, half)[0] == np.float32(1 + 2.0**-11 + 2.0**-23)  # just above the middle of two numbers


@pytest.mark.parametrize("dtype, target", CASES)
def test_extremes_of_rows(dtype: wd.DType, target: str) -> None:
    """Rows of NaN in a padded tile are NaN, not what stands for absent elements; zeros are ordered."""
    rows, column = wd.Memory[M, N, dtype], wd.Memory[M, dtype]

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
    def kernel(a: rows, high: column, low: column, up: rows):
        x = wd.read(a)
        wd.write(wd.max(x, dim=N), high)
        wd.write(wd.min(x, dim=N), low)
        wd.write(wd.sort(x, dim=N), up)

    rng = np.random.default_rng(1)
    a = rng.choice(special(dtype), (7, 37))
    a[0], a[1] = np.nan, -np.inf
    a[2:4] = rng.choice([0.0, -0.0], (2, 37))
    a[4, 1:] = np.nan
    meant, got = ([np.zeros(7, a.dtype), np.zeros(7, a.dtype), np.zeros_like(a)] for _ in range(2))
    kernel.evaluate(a, *meant)
    kernel.compile(a, *got, target=target).emulate(a, *got)
    for mine, theirs in zip(got, meant):
        same_bits(mine.ravel(), theirs.ravel())
    assert np.isnan(meant[0][0]) and np.isnan(meant[1][0])
    assert list(np.signbit(meant[0][2:4].astype(np.float64))) == [False, False] and np.signbit(float(meant[1][2]))
    zeros = np.signbit(meant[2][2].astype(np.float64))
    assert list(zeros) == sorted(zeros, reverse=True) and zeros.sum() == np.signbit(a[2].astype(np.float64)).sum()


COUNTS = (-1, 0, 7, 31, 32, 40, 64)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shift", [operator.lshift, operator.rshift], ids=["left", "right"])
def test_shifts_by_constants(shift: Callable[[Any, int], Any], target: str) -> None:
    """By the width and more, as by run-time counts: 0, or the sign of a signed number shifted right."""
    memory = wd.Memory[N, wd.i32]

    @wd.wave(LINE)
    def kernel(a: memory, b: memory, c: memory, d: memory, e: memory, f: memory, g: memory, h: memory):
        x = wd.read(a)
        for count, out in zip(COUNTS, (b, c, d, e, f, g, h)):
            wd.write(shift(x, count), out)

    a = np.array([1, -1, 3, -(2**31), 2**31 - 1], np.int32)
    meant, got = ([np.zeros_like(a) for _ in COUNTS] for _ in range(2))
    kernel.evaluate(a, *meant)
    kernel.compile(a, *got, target=target).emulate(a, *got)
    for count, mine, theirs in zip(COUNTS, got, meant):
        exact = [shift(int(x), count if 0 <= count < 32 else 32) for x in a]
        want = [(x + 2**31) % 2**32 - 2**31 for x in exact]
        assert list(mine) == list(theirs) == want


@pytest.mark.parametrize("target", TARGETS)
def test_powers_rounded_to_bf16(target: str) -> None:
    """Powers and NaNs of any sign and payload: what adding to bits makes of them, where a chip rounds by that."""

    @wd.wave(LINE)
    def kernel(a: wd.Memory[N, wd.f32], powers: wd.Memory[N, wd.f32], rounded: wd.Memory[N, wd.bf16]):
        power = wd.exp2(wd.read(a))
        wd.write(power, powers)
        wd.write(wd.cast(power, wd.bf16), rounded)

    nans = np.array([0x7FC00000, 0x7FFFFFFF, 0x7FFF8000, 0xFFC00000, 0xFFFFFFFF], np.uint32).view(np.float32)
    edges = [np.inf, -np.inf, 127.9999, 128.0, -126.0, -140.0, -200.0, 0.0, -0.0]
    a = np.concatenate([nans, np.float32(edges), np.linspace(-130, 130, 1009, dtype=np.float32)])
    powers, rounded = np.zeros_like(a), np.zeros(len(a), wd.bf16.storage)
    compiled = kernel.compile(a, powers, rounded, target=target)
    compiled.emulate(a, powers, rounded, checks=True)
    assert np.isnan(powers[: len(nans)]).all() and not np.isnan(powers[len(nans) :]).any()
    with np.errstate(all="ignore"):
        same_bits(rounded.view(ml_dtypes.bfloat16), powers.astype(ml_dtypes.bfloat16))
    if target in ("gfx90a", "gfx942"):
        assert "v_cmp_u_f32" not in compiled.asm


@pytest.mark.parametrize("target", TARGETS)
def test_whole_powers(target: str) -> None:
    """Whichever type the exponent is written in, negative bases have powers."""
    exponents = (0, 2.0, -1, -3, np.int64(9), -10)
    memory = wd.Memory[N, wd.f32]

    @wd.wave(LINE)
    def kernel(a: memory, b: memory, c: memory, d: memory, e: memory, f: memory, g: memory):
        for exponent, out in zip(exponents, (b, c, d, e, f, g)):
            wd.write(wd.read(a) ** exponent, out)

    a = np.array([-2.0, -1.5, -0.5, 0.0, 0.5, 3.0, np.inf, -np.inf, np.nan], np.float32)
    meant, got = ([np.zeros_like(a) for _ in exponents] for _ in range(2))
    kernel.evaluate(a, *meant)
    kernel.compile(a, *got, target=target).emulate(a, *got)
    with np.errstate(all="ignore"):
        for exponent, mine, theirs in zip(exponents, got, meant):
            want = a.astype(np.float64) ** float(exponent)
            np.testing.assert_allclose(mine, want, 1e-5)
            np.testing.assert_allclose(theirs, want, 1e-5)


def test_reciprocal_roots_of_f64() -> None:
    memory = wd.Memory[N, wd.f64]

    @wd.wave(LINE)
    def kernel(a: memory, b: memory):
        wd.write(wd.rsqrt(wd.read(a)), b)

    a = np.concatenate([special(wd.f64), np.random.default_rng(2).uniform(0, 50, 100)])
    for target in TARGETS:
        b, c = np.zeros_like(a), np.zeros_like(a)
        kernel.evaluate(a, c)
        kernel.compile(a, b, target=target).emulate(a, b)
        same_bits(b, c)
