"""Division by constants is exact: every interesting divisor, at the edges of every quotient, in every range."""

import random

import numpy as np
import pytest
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.divide import division_magic
from wavedsl.ir.kernel.kernel_eval import evaluate
from wavedsl.ir.kernel.kernel_ir import I32, I64

DIVISORS = sorted(
    {*range(1, 130), 176, 192, 255, 256, 257, 641, 1000, 1023, 4096, 6700417, 65535, 65536, 65537, 10**6, 10**9}
    | {(1 << k) + d for k in range(8, 32) for d in (-1, 0, 1)}
)
MOST = [63, 255, 1000, 65535, 1 << 20, (1 << 31) - 1, (1 << 32) - 1]


def edges(d, most):
    """Around multiples of d, powers of two, and the ends: where a wrong multiplier shows first."""
    top = most // d
    quotients = {0, 1, 2, 3, top, top - 1, top // 2, *(1 << k for k in range(0, 32, 3))}
    xs = {0, 1, most, most - 1, *((1 << k) - 1 for k in range(33)), *(1 << k for k in range(32))}
    for q in quotients:
        xs |= {q * d - 1, q * d, q * d + 1, q * d + d - 1}
    return sorted(x for x in xs if 0 <= x <= most)


@pytest.mark.parametrize("most", MOST)
def test_magic_multipliers(most):
    for d in DIVISORS:
        if not d & (d - 1) or d > most:
            continue
        kind, m, p = division_magic(d, most)
        assert all(x * m >> p == x // d for x in edges(d, most)), (d, most)
        assert {"mul": m * most, "high": m, "high33": m >> 1}[kind] < 1 << 32
        assert kind == "mul" or p >= 32


def test_every_small_dividend_of_every_small_divisor():
    xs = np.arange(1 << 12)
    for d in range(3, 200):
        if d & (d - 1):
            _, m, p = division_magic(d, len(xs) - 1)
            assert np.array_equal(xs * m >> p, xs // d)


@pytest.mark.parametrize("most", MOST)
def test_built_quotients_and_remainders(most):
    rng = random.Random(most)
    for d in DIVISORS:
        if d > most or rng.random() < 0.5:
            continue
        b = Builder(new_kernel(waves=4))
        x = b.param(0, I32, lo=0, hi=most) if most < 1 << 31 else b.param(0, I32)
        q, r = b.udiv(x, d), b.urem(x, d)
        xs = edges(d, most)
        xs = np.array((xs * (256 // len(xs) + 1))[:256] if len(xs) <= 256 else rng.sample(xs, 256))
        out = evaluate(b.finish(), {0: xs.astype(np.uint32).view(np.int32)})
        assert np.array_equal(out[q].view(np.uint32), xs // d), d
        assert np.array_equal(out[r].view(np.uint32), xs % d), d
        assert q.lo <= out[q].min() and out[q].max() <= q.hi
        if most < 1 << 31 and d & (d - 1):
            assert r.hi == min(d - 1, most) and q.hi == most // d


@pytest.mark.parametrize("type", [I32, I64])
def test_floor_division_of_signed_values(type):
    rng = np.random.default_rng(5)
    bits = 32 if type is I32 else 64
    for d in (1, 2, 3, 5, 7, 8, 12, 100, 4096, 65537, (1 << 31) - 1):
        b = Builder(new_kernel(waves=4))
        x = b.param(0, type)
        q, r = b.floordiv(x, d), b.floormod(x, d)
        xs = rng.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1, 256, endpoint=True)
        xs[:8] = [0, -1, 1, -d, d, -d - 1, d - 1, -(1 << (bits - 1))]
        out = evaluate(b.finish(), {0: xs})
        assert np.array_equal(out[q], xs // d) and np.array_equal(out[r], xs % d), d
        assert r.lo >= 0 and r.hi == d - 1 if d > 1 else r.const == 0


def test_wide_quotients_are_products():
    """Every signed 64-bit dividend by divisors of up to 62 bits, without the op that is a loop or a subroutine."""
    rng = np.random.default_rng(7)
    least = -(1 << 63)
    for d in (3, 7, 10, 641, 6700417, 10**9 + 7, (1 << 32) - 1, (1 << 32) + 1, 10**15, (1 << 61) + 1, (1 << 62) - 1):
        b = Builder(new_kernel(waves=4))
        x = b.param(0, I64)
        q, r = b.floordiv(x, d), b.floormod(x, d)
        xs = rng.integers(least, (1 << 63) - 1, 256, endpoint=True)
        near = [least, least + 1, (1 << 63) - 1, 0, -1, *(sign * ((1 << k) + e) for k in range(62) for sign in (1, -1)
                for e in (-1, 0))][:120]  # fmt: skip
        near += [k * d + e for k in (1, -1, ((1 << 63) - 2) // d, least // d + 1) for e in (-1, 0, 1)]
        xs[: len(near)] = near
        kernel = b.finish()
        assert "udiv" not in {op.name for op in kernel.body.walk()}
        out = evaluate(kernel, {0: xs})
        assert np.array_equal(out[q], xs // d) and np.array_equal(out[r], xs % d), d
        assert q.lo <= out[q].min() and out[q].max() <= q.hi


def test_division_by_a_run_time_value():
    b = Builder(new_kernel(waves=4))
    x, d = b.param(0, I32), b.param(1, I32, lo=1)
    q, r = b.udiv(x, d), b.urem(x, d)
    rng = np.random.default_rng(6)
    xs, ds = rng.integers(0, 1 << 32, 256), rng.integers(1, 1 << 31, 256) >> rng.integers(0, 30, 256)
    ds = np.maximum(ds, 1)
    out = evaluate(b.finish(), {0: xs.astype(np.uint32).view(np.int32), 1: ds})
    assert np.array_equal(out[q].view(np.uint32), xs // ds) and np.array_equal(out[r].view(np.uint32), xs % ds)


def test_narrow_ranges_need_no_wide_product():
    b = Builder(new_kernel(waves=4))
    q = b.udiv(b.tid(), 3)
    names = {op.name for op in b.finish().body.walk()}
    assert q.hi == 85 and "mulhi_u" not in names and "udiv" not in names


def test_division_by_zero_is_refused():
    b = Builder(new_kernel())
    with pytest.raises(CompileError, match="division by zero"):
        b.udiv(b.lane(), 0)
    with pytest.raises(CompileError, match="positive constant"):
        b.floordiv(b.lane(), -3)
