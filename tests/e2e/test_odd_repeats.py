"""Factors of groups that no bits count, which were refused (`powers of two are lowered`, `no multiple of`): groups of
3, 40 or 96, groups that neither divide a tile nor are divided by it, and of which a wave has a part. Text against
evaluator, exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

M, N, K, BK = wd.symbols("M N K BK")
CHIPS = (*TARGETS, "sm_90a")


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize(
    ("group", "tile", "waves"),
    [(40, 80, 1), (96, 96, 1), (40, 64, 1), (64, 96, 1), (48, 16, 1), (3, 48, 1), (128, 256, 4), (64, 64, 2)], ids=str,
)
def test_products_of_groups(group: int, tile: int, waves: int, target: str, oracle: Callable[[str], str]) -> None:
    k = 2 * int(np.lcm(group, 16))
    shared = [wd.WaveConstraint(K, tile // waves)] if waves > 1 else []

    @wd.wave(
        [wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, tile), *shared],
        dynamic=[M],
    )
    def kernel(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.u4], zero: wd.Memory[N, K / group, wd.u8],
        s: wd.Memory[N, K / group, wd.f16], c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def total(acc):
            code = wd.cast(wd.read(b), wd.f16) - wd.repeat_interleave(wd.cast(wd.read(zero), wd.f16), K)
            return wd.mma(wd.read(a), code * wd.repeat_interleave(wd.read(s) * 2, K), acc)

        wd.write(total, c)

    rng = np.random.default_rng(0)
    q, zero = rng.integers(0, 16, (41, k)), rng.integers(0, 16, (41, k // group)).astype(np.uint8)
    a, s = rng.integers(-2, 3, (37, k)).astype(np.float16), rng.integers(1, 4, zero.shape).astype(np.float16)
    packed = (q[:, ::2] | q[:, 1::2] << 4).astype(np.uint8)
    given = [a, packed, zero, s, np.zeros((37, 41), np.float32)]
    agree(kernel, given, target, oracle if group == 40 else None)
    kernel.evaluate(*given)
    w = (q - np.repeat(zero, group, 1).astype(int)) * np.repeat(s, group, 1).astype(float) * 2
    np.testing.assert_array_equal(given[4], a.astype(float) @ w.T)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("computed", [False, True])
def test_rows_that_a_workgroup_has_as_a_whole(computed: bool, target: str) -> None:
    """What is computed along the groups by more than its own element (a running sum) is picked by number."""
    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
    def kernel(x: wd.Memory[M, N, wd.i32], s: wd.Memory[M, N / 7, wd.i32], y: wd.Memory[M, N, wd.i32]):
        factor = wd.read(s)
        factor = wd.cumsum(factor, dim=N / 7) if computed else factor + 1
        wd.write(wd.read(x) * wd.repeat_interleave(factor, N), y)

    rng = np.random.default_rng(0)
    x, s = rng.integers(-9, 9, (9, 133)).astype(np.int32), rng.integers(-9, 9, (9, 19)).astype(np.int32)
    given = [x, s, np.zeros_like(x)]
    agree(kernel, given, target)
    kernel.evaluate(*given)
    np.testing.assert_array_equal(given[2], x * np.repeat(s.cumsum(1) if computed else s + 1, 7, 1))
