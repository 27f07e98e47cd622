"""Quotients and remainders of 64 bits by numbers of the launch and of memory: all of the range, next to multiples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from products import TARGETS, assemble

import wavedsl as wd

N = wd.sym.N
CHIPS = (*TARGETS, "sm_90a")


@wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
def unsigned(
    x: wd.Memory[N, wd.u64], y: wd.Memory[N, wd.u64], z: wd.Scalar[wd.u64], q: wd.Memory[N, wd.u64],
    r: wd.Memory[N, wd.u64], of_all: wd.Memory[N, wd.u64],
):  # fmt: skip
    a, b = wd.read(x), wd.read(y)
    wd.write(a // b, q)
    wd.write(a % b, r)
    wd.write(a // z, of_all)


@wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
def signed(x: wd.Memory[N, wd.i64], y: wd.Memory[N, wd.i64], q: wd.Memory[N, wd.i64], r: wd.Memory[N, wd.i64]):
    a, b = wd.read(x), wd.read(y)
    wd.write(a // b, q)
    wd.write(a % b, r)


def pairs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Divisors of all lengths, and dividends beside their multiples, of all lengths, and at the ends of the range."""
    random = np.random.default_rng(seed)

    def some() -> np.ndarray:
        return random.integers(0, 1 << 63, count, np.uint64) * 2 + random.integers(0, 2, count, np.uint64)

    y = np.maximum(some() >> random.integers(0, 64, count, np.uint64), 1)
    ends = np.array([1, 2, 3, *(2**k + d for k in (32, 53, 63) for d in (-1, 0, 1)), 2**64 - 1], np.uint64)
    y[: len(ends)] = ends
    multiple = (some() >> random.integers(0, 64, count, np.uint64)) // y * y
    x = np.choose(random.integers(0, 4, count), [some(), multiple, multiple - 1, ~(some() >> np.uint64(40))])
    x[: 2 * len(ends)] = np.uint64(2**64 - 1)
    return x, y


@pytest.mark.parametrize("target", CHIPS)
def test_unsigned(target: str, oracle: Callable[[str], str]) -> None:
    (x, y), z = pairs(5000, 1), np.uint64(10**9 + 7)
    q, r, of_all = (np.zeros_like(x) for _ in range(3))
    compiled = unsigned.compile(x, y, z, q, r, of_all, target=target)
    compiled.emulate(x, y, z, q, r, of_all)
    np.testing.assert_array_equal(q, x // y)
    np.testing.assert_array_equal(r, x % y)
    np.testing.assert_array_equal(of_all, x // z)
    assemble(compiled, oracle)


@pytest.mark.parametrize("target", CHIPS)
def test_signed(target: str) -> None:
    x, y = (v.view(np.int64) for v in pairs(5000, 2))
    y = np.where(np.random.default_rng(3).random(len(y)) < 0.5, y, -y)
    q, r = np.zeros_like(x), np.zeros_like(x)
    signed.compile(x, y, q, r, target=target).emulate(x, y, q, r)
    fits = ~((x == np.iinfo(np.int64).min) & (y == -1))  # whose quotient has no place
    np.testing.assert_array_equal(q[fits], x[fits] // y[fits])
    np.testing.assert_array_equal(r[fits], x[fits] % y[fits])


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_without_a_loop_of_bits(target: str) -> None:
    compiled = unsigned.compile(target=target, subs={N: 1024})
    assert "s_cbranch" not in compiled.asm
