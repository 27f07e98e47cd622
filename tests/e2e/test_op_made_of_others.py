"""Operations that are made of others, on every chip, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree, near

import wavedsl as wd

M, N = wd.symbols("M N")
ROWS = [wd.WorkgroupConstraint(M, 4, 0)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.i32, wd.f64], ids=str)
def test_products_along_rows_and_the_opposite_order(
    dtype: wd.DType, target: str, oracle: Callable[[str], str]
) -> None:
    rows, column = wd.Memory[M, N, dtype], wd.Memory[M, dtype]

    @wd.wave(ROWS)
    def kernel(a: rows, total: column, running: rows, from_end: rows, back: rows):
        x = wd.read(a)
        wd.write(wd.prod(x, dim=N), total)
        wd.write(wd.cumprod(x, dim=N), running)
        wd.write(wd.cumprod(x, dim=N, reverse=True), from_end)
        wd.write(wd.flip(x, dim=N), back)

    x = np.random.default_rng(0).choice([-2, -1, 1, 2], (6, 21)).astype(dtype.numpy)  # exact in any order
    results = [np.zeros(6, x.dtype), *(np.zeros_like(x) for _ in range(3))]
    want = [x.prod(1, dtype=x.dtype), np.cumprod(x, 1, dtype=x.dtype)]
    want += [np.cumprod(x[:, ::-1], 1, dtype=x.dtype)[:, ::-1], x[:, ::-1]]
    kernel.evaluate(x, *results)
    for mine, theirs in zip(results, want):
        np.testing.assert_array_equal(mine, theirs)
    agree(kernel, [x, *(np.zeros_like(r) for r in results)], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
def test_softmax(target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave(ROWS)
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.softmax(wd.read(a), dim=N), b)

    x = (np.random.default_rng(1).standard_normal((7, 70)) * 40).astype(np.float32)
    x[2, 9:] = -np.inf
    agree(kernel, [x, np.zeros_like(x)], target, oracle, near(120, 1e-37))  # exponents down to some -200
    got = np.zeros_like(x)
    kernel.evaluate(x, got)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=2e-5, atol=1e-37)


@pytest.mark.parametrize("target", TARGETS)
def test_normal_numbers(target: str, oracle: Callable[[str], str]) -> None:
    """Mean, variance, and the share of a few intervals; other numbers at other offsets."""

    @wd.wave(ROWS)
    def kernel(seed: wd.Scalar[wd.u32], a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.randn(seed, M, N), a)
        wd.write(wd.randn(seed, M, N, offset=1), b)

    a, b = np.zeros((16, 256), np.float32), np.zeros((16, 256), np.float32)
    agree(kernel, [7, a, b], target, oracle, near(0, 2e-5))
    kernel.evaluate(7, a, b)
    for x in (a, b):
        assert abs(x.mean()) < 0.06 and abs(x.var() - 1) < 0.1
        assert abs((np.abs(x) < 1).mean() - 0.6827) < 0.03 and abs((x > 1.645).mean() - 0.05) < 0.015
    assert abs((a * b).mean()) < 0.06


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: wd.prod(x), "prod: which dimension"),
        (lambda x: wd.flip(x), "flip: which dimension"),
        (lambda x: wd.flip(x, wd.sym.K), "shuffle: the value has no dimension K"),
        (lambda x: wd.softmax(wd.cast(x, wd.i32), N), "exp: needs floating point, not i32"),
        (lambda x: wd.isnan(wd.cast(x, wd.i32)), "isnan: needs floating point, not i32"),
    ],
)
def test_mistakes(call: Callable[[Any], Any], message: str) -> None:
    @wd.wave(ROWS)
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(call(wd.read(a)), b)

    with pytest.raises(wd.WaveError, match=message) as error:
        kernel.trace()
    assert error.value.location is not None and error.value.location.file == __file__
