"""Records of words that lanes read element by element, each its own: on AMD's chips loads of several words begin at any
word, on NVIDIA's at multiples of their size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

N, K = wd.symbols("N K")


def weighted(words: int, dtype: wd.DType = wd.f32) -> wd.Kernel:
    """y[n] = sum of (k + 1) * x[n, k]."""

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(x: wd.Memory[N, K, dtype], y: wd.Memory[N, dtype]):
        total: Any = 0
        for k in range(words):
            total = total + wd.read(x[:, k]) * (k + 1)
        wd.write(total, y)

    return kernel


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("rows", [256, 77])
@pytest.mark.parametrize("words", [3, 4, 7, 27])
def test_records(words: int, rows: int, target: str, oracle: Callable[[str], str]) -> None:
    """Whole tiles, and a last one that the array's end cuts: no load passes it."""
    x = np.random.default_rng(0).integers(-3, 4, (rows, words)).astype(np.float32)
    compiled = agree(weighted(words), [x, np.zeros(rows, np.float32)], target, oracle)
    if target.startswith("gfx") and rows == 256:
        loads = [op.attrs["bytes"] for op in compiled.kernel_ir.body.walk() if op.name == "load.global"]
        assert sorted(loads) == sorted([16] * (words // 4) + [4 * (words % 4)] * (words % 4 > 0))


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("words", [3, 27])
def test_records_of_a_call(words: int, target: str) -> None:
    """Extents of the call: workgroups have a base of their own, and its slices one buffer."""
    x = np.random.default_rng(0).integers(-3, 4, (77, words)).astype(np.float32)
    compiled = agree(weighted(words), [x, np.zeros(77, np.float32)], target, dynamic=[N])
    if target.startswith("gfx"):
        loads = [op for op in compiled.kernel_ir.body.walk() if op.name == "load.global"]
        assert len(loads) == -(-words // 4) and len({op.args[0].id for op in loads}) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_words_of_other_records_stay_apart(target: str) -> None:
    """Neighbours in memory of which the array's end may lie between."""

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(x: wd.Memory[N, K, wd.f32], y: wd.Memory[N, wd.f32]):
        n = wd.index(N)
        beyond = wd.read(x, mapping=wd.IndexMapping((N,), {N: n + 1, K: 0}))
        wd.write(wd.read(x[:, 1]) + wd.read(x[:, 2]) * 2 + beyond * 4, y)

    rows = 77
    x = np.random.default_rng(0).integers(-3, 4, (rows, 3)).astype(np.float32)
    y = np.zeros(rows, np.float32)
    compiled = kernel.compile(x, y, target=target)
    compiled.emulate(x, y)
    after = np.append(x[1:, 0], 0)
    np.testing.assert_array_equal(y, x[:, 1] + 2 * x[:, 2] + 4 * after)
