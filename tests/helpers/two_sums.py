"""A kernel with two loops' sums in one, for tests of what workgroups share (`split_k`, `stream_k`)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import products
from products import BK, BM, BN, K, M, N

import wavedsl as wd


@lru_cache
def fused(schedule: wd.Schedule, waves: bool = False) -> Any:
    """Two sums, one from a bias and one without a dimension of the grid; C read and scaled; two outputs. `waves`: two
    waves share the columns."""
    constraints = [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK)]
    if waves:
        constraints.append(wd.WaveConstraint(N, BN / 2))

    @wd.wave(constraints, subs={BM: 32, BN: 32, BK: 32}, schedule=schedule)
    def fused(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], bias: wd.Memory[N, wd.f32],
        c: wd.Memory[M, N, wd.f32], rows: wd.Memory[M, wd.f32], alpha: wd.Scalar[wd.f32],
    ):  # fmt: skip
        old = wd.read(c)
        start = wd.broadcast(wd.read(bias), M, N)

        @wd.iterate(K, init_args=[start, wd.Register[M, wd.f32](1.0)])
        def loop(acc: wd.Register[M, N, wd.f32], total: wd.Register[M, wd.f32]):
            x = wd.read(a)
            return wd.mma(x, wd.read(b), acc), total - wd.sum(wd.cast(x, wd.f32), dim=K)

        acc, total = loop
        wd.write(wd.maximum(acc * alpha + old, 0.0), c)
        wd.write(total, rows)

    return fused


def arguments(m: int, n: int, k: int) -> list[Any]:
    """A, B, bias, C, rows (NaN), alpha."""
    a, b, c = (products.numbers(s, d, m + n + k) for s, d in (((m, k), wd.f16), ((n, k), wd.f16), ((m, n), wd.f32)))
    return [a, b, products.numbers((n,), wd.f32, 5), c, np.full(m, np.nan, np.float32), 0.5]
