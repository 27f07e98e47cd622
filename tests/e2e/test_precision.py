"""What `mma(..., precision=...)` promises, on every chip: instructions, errors against float64, and the evaluator."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree
from products import K, M, N, numbers
from wavedsl.ir.numerics import mma_tolerance

import wavedsl as wd

TENSOR = ("sm_80", "sm_90a", "gfx942")
"""Chips that multiply tf32."""


@lru_cache(maxsize=16)
def product(precision: str | None, tile: tuple[int, int, int] = (64, 64, 32)) -> Any:
    m, n, k = tile

    @wd.wave([wd.WorkgroupConstraint(M, m, 0), wd.WorkgroupConstraint(N, n, 1), wd.TilingConstraint(K, k)])
    def gemm(a: wd.Memory[M, K, wd.f32], b: wd.Memory[N, K, wd.f32], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc, precision=precision)

        wd.write(loop, c)

    return gemm


def operands(k: int, values: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return numbers((72, k), wd.f32, 1, values), numbers((40, k), wd.f32, 2, values), np.zeros((72, 40), np.float32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("precision", ["ieee", "tf32", "3xtf32"])
def test_errors_stay_within_the_bound(precision: str, target: str) -> None:
    a, b, c = operands(136, "normal")
    compiled = product(precision).compile(a, b, c, target=target)
    compiled.emulate(a, b, c)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).T
    error = np.abs(c - want)
    assert (error <= mma_tolerance(136, magnitude, wd.f32, precision=precision)).all()
    # One product of tf32 is visibly less precise; three are not: they stay in reach of a sum in f32.
    close = error <= 2.0**-24 * np.sqrt(136) * magnitude
    assert close.all() == (precision != "tf32" or target not in TENSOR)
    assert compiled.kernel_ir is not None
    tensor = any("TF32" in atom for atom in compiled.kernel_ir.notes["lowering"].atoms.values())
    assert tensor == (precision != "ieee" and target in TENSOR)


@pytest.mark.parametrize("precision", ["ieee", "tf32", "3xtf32"])
def test_whole_numbers_are_exact_and_the_evaluator_agrees(precision: str) -> None:
    a, b, c = operands(72, "whole")
    want = a.astype(np.float64) @ b.astype(np.float64).T
    evaluated = np.zeros_like(c)
    product(precision).evaluate(a, b, evaluated)
    assert np.array_equal(evaluated, want)
    for target in ("sm_90a", "gfx942"):
        product(precision).compile(a, b, c, target=target).emulate(a, b, c)
        assert np.array_equal(c, want)


def test_the_evaluator_rounds_operands() -> None:
    a, b, c = operands(8, "normal")
    exact = np.zeros_like(c)
    product("ieee").evaluate(a, b, exact)
    product("tf32").evaluate(a, b, c)
    assert not np.array_equal(c, exact)
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).T
    assert (np.abs(c - exact) <= mma_tolerance(8, magnitude, wd.f32, precision="tf32")).all()


@pytest.mark.parametrize("precision", ["tf32", pytest.param("3xtf32", marks=pytest.mark.slow)])
def test_hopper_keeps_roles(precision: str) -> None:
    """f32 arrays come by bulk copies: the instruction cuts their low bits off, or waves split them."""
    a, b, c = operands(136, "normal")
    compiled = product(precision, (64, 40, 32)).compile(a, b, c, target="sm_90a")
    compiled.emulate(a, b, c)
    assert compiled.kernel_ir is not None
    assert compiled.kernel_ir.notes["lowering"].strategy.specialize


def test_operands_of_a_loop_around() -> None:
    """An operand that is read outside of the loop, and one that two products share."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(N, 32)])
    def twice(a: wd.Memory[M, K, wd.f32], b: wd.Memory[N, K, wd.f32], c: wd.Memory[M, K, wd.f32]):
        left = wd.read(a)

        @wd.iterate(N, init_args=[wd.Register[M, K, wd.f32](0.0)])
        def loop(acc):
            right = wd.read(b)
            scores = wd.mma(left, right, precision="3xtf32")
            return wd.mma(scores, right, acc, precision="3xtf32")

        wd.write(loop, c)

    a, b = numbers((64, 32), wd.f32, 1, "normal"), numbers((96, 32), wd.f32, 2, "normal")
    want = a.astype(np.float64) @ b.astype(np.float64).T @ b.astype(np.float64)
    for target in ("sm_90a", "gfx942"):
        c = np.zeros((64, 32), np.float32)
        twice.compile(a, b, c, target=target).emulate(a, b, c)
        assert np.abs(c - want).max() < 2.0**-16 * np.abs(want).max()


@pytest.mark.parametrize("target", ["gfx942", "sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", [wd.f32, wd.f64])
def test_operands_cut_to_tf32(dtype: wd.DType, target: str) -> None:
    """The digits that tf32 lacks are dropped, also those of f64 behind f32's."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 16)])
    def kernel(a: wd.Memory[M, K, dtype], b: wd.Memory[N, K, wd.f32], y: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            cut = wd.cast(wd.read(a), wd.tf32, rounding="toward_zero")
            return wd.mma(cut, wd.cast(wd.read(b), wd.tf32), acc)

        wd.write(loop, y)

    a = (np.random.default_rng(0).standard_normal((40, 16)) * 1000).astype(dtype.storage)
    a[0, :4] = [np.inf, -np.inf, 1 + 2.0**-10 - 2.0**-23, -(1 + 2.0**-10 - 2.0**-23)]
    a[1, 0] = np.nan
    b, y = np.eye(16, dtype=np.float32), np.zeros((40, 16), np.float32)
    agree(kernel, [a, b, y], target)
    kernel.compile(a, b, y, target=target).emulate(a, b, y)
    found = np.where(np.isfinite(a).all(1, keepdims=True), y, 0)
    want = np.where(np.isfinite(a).all(1, keepdims=True), a.astype(np.float64), 0)
    step = np.exp2(np.floor(np.log2(np.abs(np.where(want == 0, 1, want)))) - 10)
    np.testing.assert_array_equal(found, np.trunc(want / step) * step)
