"""Hundreds of operations one behind the other, each of which uses the one before several times: what looks at a value
looks once, however many ways lead there, and Python's stack does not hold the chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wavedsl as wd

M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")
LENGTH = 150
TARGETS = ("gfx942", "sm_80", "sm_90a")


def small(x: Any) -> Any:
    """x, in steps of which the numbers stay small."""
    for _ in range(LENGTH):
        x = (x + x) - x
    return x


def whole(i: Any) -> Any:
    """A whole number below 1024."""
    for _ in range(LENGTH):
        i = (i * i + i + 1) & 1023
    return i


def by_rows(body: Callable[..., None], *more: Any) -> Any:
    @wd.wave([wd.WorkgroupConstraint(M, 2, 0), *more])
    def kernel(a: wd.Memory[M, N, wd.f32], n: wd.Scalar[wd.i32], c: wd.Memory[M, N, wd.f32]):
        body(a, n, c)

    return kernel


def softmax(a: Any, n: Any, c: Any) -> None:
    x = small(wd.read(a))
    e = small(wd.exp(x - small(wd.max(x, N))))
    wd.write(e / small(wd.sum(e, N)), c)


def gathered(a: Any, n: Any, c: Any) -> None:
    wd.write(wd.read(a, mapping=wd.IndexMapping((M, N), {M: M, N: whole(wd.index(N) + n) & 31})), c)


def moved(a: Any, n: Any, c: Any) -> None:
    wd.write(wd.read(a, mapping=wd.IndexMapping((M, N), {M: M, N: wd.index(N) + (whole(n) & 1)})), c)


def masked(a: Any, n: Any, c: Any) -> None:
    wd.write(wd.where(whole(wd.index(N)) < whole(n), small(wd.read(a)), 0.0), c)


def branched(a: Any, n: Any, c: Any) -> None:
    wd.cond(whole(n) >= 0, lambda: wd.write(small(wd.read(a)), c), lambda: None)


def scattered(a: Any, n: Any, c: Any) -> None:
    wd.write(small(wd.read(a)), c, mapping=wd.IndexMapping((M, N), {M: M, N: wd.index(N) ^ (whole(n) & 0)}))


def over_part(a: Any, n: Any, c: Any) -> None:
    @wd.iterate(N, stop=(whole(n) & 0) + 32, init_args=[wd.Register[M, wd.f32](0.0)])
    def total(total: wd.Register[M, wd.f32]):
        return total + wd.sum(small(wd.read(a)), N)

    wd.write(total, c, mapping=wd.IndexMapping((M,), {M: M, N: 0}))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", [softmax, gathered, moved, masked, branched, scattered, over_part])
def test_rows(body: Callable[..., None], target: str) -> None:
    kernel = by_rows(body, *([wd.TilingConstraint(N, 16)] if body is over_part else []))
    a = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)
    c, want = np.zeros_like(a), np.zeros_like(a)
    kernel.evaluate(a, 3, want)
    kernel.compile(a, 3, c, target=target).emulate(a, 3, c, checks=True)
    np.testing.assert_allclose(c, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("place", ["operand", "sums", "result"])
def test_products(place: str, target: str) -> None:
    change = {name: small if name == place else lambda x: x for name in ("operand", "sums", "result")}

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK)],
        subs={BM: 64, BN: 64, BK: 32},
    )
    def gemm(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def sums(acc: wd.Register[M, N, wd.f32]):
            return change["sums"](wd.mma(change["operand"](wd.read(a)), wd.read(b), acc))

        wd.write(change["result"](sums), c)

    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, (64, 64)).astype(np.float16) for _ in range(2))
    c = np.zeros((64, 64), np.float32)
    gemm.compile(a, b, c, target=target).emulate(a, b, c, checks=True)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
