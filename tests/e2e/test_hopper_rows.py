"""Whole rows of a product whose operands a copying warpgroup brings: sorted, searched and summed up by warpgroups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wavedsl as wd

pytestmark = pytest.mark.warpgroups

M, N, K, T = wd.symbols("M N K T")
F16, F32 = wd.f16, wd.f32
PERSISTENT = wd.Schedule(persistent=True)
TOP = 4


def kernel(out: Any, follow: Callable[[Any], Any]) -> Any:
    """A product of 64 rows a workgroup, and what becomes of its rows."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(K, 64)], schedule=PERSISTENT, subs={T: TOP})
    def rows(a: wd.Memory[M, K, F16], b: wd.Memory[N, K, F16], c: wd.Memory[M, out, F32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(follow(loop), c)

    return rows


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((128, 64), (256, 64)))
    return a, b, a.astype(np.float32) @ b.astype(np.float32).T


def test_rows_are_sorted_inside_of_warps() -> None:
    """A row of 256 elements has six bits of lanes; warps of a warpgroup differ in rows then."""
    a, b, product = operands()
    c = np.zeros_like(product)
    kernel(N, lambda x: wd.sort(x, dim=N)).compile(a, b, c, target="sm_90a").emulate(a, b, c)
    assert np.array_equal(c, np.sort(product, axis=1))


def test_the_largest_are_found_inside_of_warps() -> None:
    a, b, product = operands()
    c = np.zeros((128, TOP), np.float32)
    kernel(T, lambda x: wd.topk(x, T, dim=N)[0]).compile(a, b, c, target="sm_90a").emulate(a, b, c)
    assert np.array_equal(c, -np.sort(-product, axis=1)[:, :TOP])


def test_what_crosses_warps_says_where_and_what_helps() -> None:
    """It pointed to the kernel's `def` and at nothing to do."""
    a, b, product = operands()
    scan = kernel(N, lambda x: wd.cumsum(x, dim=M))
    with pytest.raises(wd.ConstraintError, match="of several warps of a warpgroup") as found:
        scan.compile(a[:64], b, product[:64], target="sm_90a")
    text = str(found.value)
    assert "wd.cumsum(x, dim=M)" in text and "leave persistent out" in text
