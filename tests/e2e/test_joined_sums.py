"""Sums along one dimension that are added up: one sum of what is added element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree, near

import wavedsl as wd

M, N, K = wd.symbols("M N K")
KINDS = {"f32": wd.f32, "f16": wd.f16, "i32": wd.i32}


def several(dtype: Any) -> Any:
    """Sums of products, of values and of sums, some of them used again, along two dimensions."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
    def kernel(
        a: wd.Memory[M, N, K, dtype], b: wd.Memory[M, N, K, dtype], c: wd.Memory[M, N, dtype],
        once: wd.Memory[M, N, dtype], both: wd.Memory[M, dtype], again: wd.Memory[M, N, dtype],
    ):  # fmt: skip
        x, y, z = wd.read(a), wd.read(b), wd.read(c)
        part = wd.sum(x + y, dim=K)
        total = wd.Register[M, N, dtype](1)
        for i in range(1, 4):
            total = total + wd.sum(x * y, dim=K) + wd.sum(x * i, dim=K)
        wd.write(total + z, once)
        wd.write(wd.sum(x * y, dim=(N, K)) + wd.sum(z, dim=N) + wd.sum(x - y, dim=(K, N)), both)
        wd.write(part + wd.sum(y, dim=K) * 2 + (part + z), again)

    return kernel


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_summed_as_they_mean(kind: str, target: str) -> None:
    dtype = KINDS[kind]
    for m, n, k in ((4, 8, 32), (3, 5, 21)):
        rng = np.random.default_rng(0)
        a, b = (rng.integers(-1, 2, (m, n, k)).astype(dtype.storage) for _ in range(2))
        c = rng.integers(-9, 10, (m, n)).astype(dtype.storage)
        outputs = [np.zeros((m, n), c.dtype), np.zeros(m, c.dtype), np.zeros((m, n), c.dtype)]
        x, y, z = (v.astype(np.float64) for v in (a, b, c))
        kernel = several(dtype)
        agree(kernel, [a, b, c, *outputs], target, compare=near())
        kernel.compile(a, b, c, *outputs, target=target).emulate(a, b, c, *outputs)
        np.testing.assert_array_equal(outputs[0], 1 + 3 * (x * y).sum(2) + 6 * x.sum(2) + z)
        np.testing.assert_array_equal(outputs[1], (x * y + x - y).sum((1, 2)) + z.sum(1))
        np.testing.assert_array_equal(outputs[2], 2 * (x + y).sum(2) + 2 * y.sum(2) + z)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_lanes_exchange_once(target: str) -> None:
    """Four sums of whole rows that are added: lanes exchanged for each of them."""

    def rows(count: int) -> Any:
        @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
        def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, wd.f32]):
            x = wd.read(a)
            total = wd.sum(x, dim=N)
            for i in range(1, count):
                total = total + wd.sum(wd.exp2(x * i), dim=N)
            wd.write(total, b)

        return kernel

    moves = "dpp|ds_bpermute|ds_swizzle|permlane|readlane" if target.startswith("gfx") else "shfl"
    one, four = (count_of(rows(n).compile(target=target, subs={M: 64, N: 512}).asm, moves) for n in (1, 4))
    assert one == four > 0


def count_of(text: str, words: str) -> int:
    return sum(text.count(word) for word in words.split("|"))
