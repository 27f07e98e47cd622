"""Operands of multiply-adds that change lanes through shared memory, read as the product comes to them: text against
evaluator, exactly, and the registers that it spares."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

B, I, J, K, M, D = wd.symbols("B I J K M D")


def chain(dtype: wd.DType) -> Any:
    """x (x (2 x) + x) + x, and its square: each product's result is an operand of the next, lies as another does, and
    meets x element by element."""
    exactly: dict[str, Any] = {"precision": "ieee"} if dtype is wd.f32 else {}

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
    def kernel(a: wd.Memory[B, I, J, dtype], y: wd.Memory[B, I, J, dtype]):
        def times(x: Any, y: Any) -> Any:
            y = wd.reshape(wd.reshape(y, I, K), J, K)
            return wd.reshape(wd.mma(x, y, wd.Register[I, K, dtype](0), **exactly), I, J)

        x = wd.read(a)
        total = x + x
        for _ in range(2):
            total = times(x, total) + x
        wd.write(times(total, total) - x, y)

    return kernel


def small(*shape: int, dtype: wd.DType) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-1, 2, shape).astype(dtype.storage)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("dtype", [wd.f32, wd.f64], ids=str)
@pytest.mark.parametrize("n", [32, 16, 21])
def test_products_of_products(n: int, dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    a = small(2, n, n, dtype=dtype)
    agree(chain(dtype), [a, np.zeros_like(a)], target, oracle if n == 21 else None, subs={K: n})


def test_no_operand_is_held_as_a_whole(oracle: Callable[[str], str]) -> None:
    """Eight rows and four columns of 32 are 384 registers, and x was computed with in the layout of an operand, eight
    times in each lane: 255 registers and 15784 bytes of spills for the exponential of 32 x 32, 1024 quotients for 128.
    """
    oracle("ptxas")
    compiled = chain(wd.f32).compile(target="sm_80", subs={B: 4, I: 32, J: 32, K: 32})
    r = compiled.resources
    assert not r.spills and r.registers <= 168, (r.spills, r.registers)
    assert len(re.findall(r"\badd\.rn\.f32", compiled.asm)) <= 160, "sums of whole operands"


@wd.wave([wd.WorkgroupConstraint(M, 64, 0)], subs={K: 16})
def distances(x: wd.Memory[M, D, wd.f32], p: wd.Memory[K, D, wd.f32], y: wd.Memory[M, K, wd.f32]):
    """Squares of differences, weighted: both operands of both products are computed, or meet others."""
    points, weights = wd.read(x), wd.read(p)
    cross = wd.mma(points, weights + 1, precision="ieee")
    wd.write(wd.mma(points * points, weights, precision="ieee") - 2 * cross, y)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("d", [64, 40])
def test_waves_have_rows_of_their_own(d: int, target: str) -> None:
    arguments = [small(100, d, dtype=wd.f32), small(16, d, dtype=wd.f32), np.zeros((100, 16), np.float32)]
    agree(distances, arguments, target)


def test_operands_that_one_way_serves_stay_tiles_in_shared_memory(oracle: Callable[[str], str]) -> None:
    """Computed element by element of tiles that all waves share; in a layout of their own they took 128 registers, and
    each wave's scratch 55296 bytes for 20480."""
    oracle("ptxas")
    compiled = distances.compile(target="sm_80", subs={M: 256, D: 64})
    assert not compiled.resources.spills and compiled.resources.registers <= 96 and compiled.shared_bytes <= 20480
