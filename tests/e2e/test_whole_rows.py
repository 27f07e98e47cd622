"""Rows of products that no constraint cuts: a workgroup has all of them, and its waves share them as if one did."""

from __future__ import annotations

from typing import Any

import numpy as np
import products
import pytest

import wavedsl as wd
from wavedsl.targets import get_target

H, M, N, D, E, K = wd.symbols("H M N D E K")
TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")


def attention(constraints: list[Any]) -> wd.Kernel:
    @wd.wave([wd.WorkgroupConstraint(H, 1, 0), *constraints, wd.TilingConstraint(N, 64)])
    def attention(
        q: wd.Memory[H, M, D, wd.f16], k: wd.Memory[H, N, D, wd.f16], v: wd.Memory[H, E, N, wd.f16],
        o: wd.Memory[H, M, E, wd.f32],
    ):  # fmt: skip
        x = wd.read(q)

        @wd.iterate(
            N,
            init_args=[wd.Register[M, wd.f32](-1e30), wd.Register[M, wd.f32](0.0), wd.Register[M, E, wd.f32](0.0)],
        )
        def loop(most, total, acc):
            s = wd.mma(x, wd.read(k), wd.Register[M, N, wd.f32](0.0))
            now = wd.maximum(most, wd.max(s, dim=N))
            p = wd.exp2(s - now)
            old = wd.exp2(most - now)
            return now, total * old + wd.sum(p, dim=N), wd.mma(wd.cast(p, wd.f16), wd.read(v), acc * old)

        wd.write(loop[2] / loop[1], o)

    return attention


def given(rows: int) -> list[np.ndarray]:
    random = np.random.default_rng(rows)
    shapes = (2, rows, 64), (2, 192, 64), (2, 64, 192)
    return [random.normal(0, 1, s).astype(np.float16) for s in shapes] + [np.full((2, rows, 64), np.nan, np.float32)]


def check(q: np.ndarray, k: np.ndarray, v: np.ndarray, o: np.ndarray) -> None:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = q @ k.swapaxes(1, 2)
    p = np.exp2(s - s.max(2, keepdims=True))
    np.testing.assert_allclose(o, p @ v.swapaxes(1, 2) / p.sum(2, keepdims=True), rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("target", TARGETS)
def test_waves_share_queries_that_no_constraint_cuts(target: str) -> None:
    """On gfx942 64 of them had been one wave's: 508 registers and 24 spilled, 2.8 times the clocks."""
    arrays = given(64)
    whole, cut = (
        attention(c).compile(*arrays, target=target) for c in ([], [wd.WorkgroupConstraint(M, 64, 2)])
    )  # fmt: skip
    assert whole.block == cut.block
    if target.startswith("gfx"):
        assert whole.resources.registers == cut.resources.registers and not whole.resources.spills
    whole.emulate(*arrays)
    check(*arrays)


@pytest.mark.parametrize("rows", [1, 24, 40, 96])
@pytest.mark.parametrize("target", TARGETS)
def test_any_number_of_rows(rows: int, target: str) -> None:
    arrays = given(rows)
    attention([]).compile(*arrays, target=target).emulate(*arrays)
    check(*arrays)


@pytest.mark.parametrize("target", TARGETS)
def test_a_product_in_one_workgroup(target: str) -> None:
    @wd.wave([wd.TilingConstraint(K, 32)])
    def product(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    a, b = products.numbers((64, 96), wd.f16, 1), products.numbers((64, 96), wd.f16, 2)
    c = np.full((64, 64), np.nan, np.float32)
    compiled = product.compile(a, b, c, target=target)
    assert int(np.prod(compiled.block)) // get_target(target).wave_size >= 4
    compiled.emulate(a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
