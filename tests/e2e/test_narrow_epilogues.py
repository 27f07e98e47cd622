"""Epilogues that go on in a narrow dtype: every operation's result is rounded or wrapped to it, also where elements are
computed as they are stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wavedsl as wd

M, N, K = wd.symbols("M N K")
TARGETS = ["gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a"]
CUT = [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)]


def product(operand: Any, sums: Any, result: Any, after: Any) -> Any:
    @wd.wave(CUT)
    def kernel(a: wd.Memory[M, K, operand], b: wd.Memory[N, K, operand], y: wd.Memory[M, N, result]):
        @wd.iterate(K, init_args=[wd.Register[M, N, sums](0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(after(loop), y)

    return kernel


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "factor"), [("f16", 0.1), ("bf16", 0.7)])
def test_floats_are_rounded_after_each_operation(dtype: str, factor: float, target: str) -> None:
    """10 * f16(0.1) is 1 once it is rounded, and 0.9998 in f32: its floor was 0."""
    narrow = getattr(wd, dtype)
    kernel = product(wd.f16, wd.f32, narrow, lambda acc: wd.floor(abs(wd.cast(acc, narrow)) * factor) * factor + 1.0)

    def rounded(x: Any) -> np.ndarray:
        return np.asarray(x, np.float32).astype(narrow.storage).astype(np.float32)

    rng = np.random.default_rng(1)
    a, b = rng.integers(-2, 3, (70, 48)).astype(np.float16), rng.integers(-2, 3, (66, 48)).astype(np.float16)
    acc = np.abs(a.astype(np.float32) @ b.T.astype(np.float32))
    whole = np.floor(rounded(acc * rounded(factor)))
    assert (np.floor(acc * rounded(factor)) != whole).any()
    want = rounded(rounded(whole * rounded(factor)) + np.float32(1))
    for run in (lambda y: kernel.evaluate(a, b, y), lambda y: kernel.compile(a, b, y, target=target).emulate(a, b, y)):
        y = np.zeros((70, 66), narrow.storage)
        run(y)
        np.testing.assert_array_equal(y.astype(np.float32), want)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16"])
def test_integers_wrap_after_each_operation(dtype: str, target: str) -> None:
    narrow = getattr(wd, dtype)
    kernel = product(wd.i8, wd.i32, narrow, lambda acc: (wd.cast(acc, narrow) * 77 + 5) >> 2)
    rng = np.random.default_rng(2)
    a, b = rng.integers(-9, 10, (70, 64)).astype(np.int8), rng.integers(-9, 10, (66, 64)).astype(np.int8)
    acc = a.astype(np.int64) @ b.T.astype(np.int64)
    numbers = np.dtype({"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    want = (acc.astype(numbers) * numbers.type(77) + numbers.type(5)) >> numbers.type(2)
    for run in (lambda y: kernel.evaluate(a, b, y), lambda y: kernel.compile(a, b, y, target=target).emulate(a, b, y)):
        y = np.zeros((70, 66), numbers)
        run(y)
        np.testing.assert_array_equal(y, want)
