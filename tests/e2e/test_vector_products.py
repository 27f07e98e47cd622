"""Products of which one operand is a vector: its rows are an index dimension, a workgroup each.

The instruction's rows (or columns) are then equal, and the value has one of them; what a loop carries and what the
first instruction adds to are as short as the value.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from families import TARGETS, Case, on_chip, whole, wide

import wavedsl as wd

M, N, K = wd.symbols("M N K")
TYPES = {
    "f16": (wd.f16, np.float16, wd.f32, np.float32),
    "bf16": (wd.bf16, ml_dtypes.bfloat16, wd.f32, np.float32),
    "i8": (wd.i8, np.int8, wd.i32, np.int32),
    "f32": (wd.f32, np.float32, wd.f32, np.float32),
    "f64": (wd.f64, np.float64, wd.f64, np.float64),
}


def product(dtype: wd.DType, sums: wd.DType, first: bool, tiled: bool) -> Any:
    """c[m] += a[m] b, the vector as the first operand or the second; all of K at once or in tiles."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 1), wd.WorkgroupConstraint(N, 64, 0),
              *([wd.TilingConstraint(K, 32)] if tiled else [])])  # fmt: skip
    def kernel(a: wd.Memory[M, K, dtype], b: wd.Memory[K, N, dtype], c: wd.Memory[M, N, sums]):
        def added(acc):
            x, y = wd.read(a), wd.read(b)
            return wd.mma(x, y, acc) if first else wd.mma(y, x, acc)

        old = wd.read(c)
        if tiled:
            old = wd.iterate(K, init_args=[old])(added)
        wd.write(old if tiled else added(old), c)

    return kernel


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tiled", [False, True], ids=["whole", "tiled"])
@pytest.mark.parametrize("first", [False, True], ids=["behind", "in-front"])
@pytest.mark.parametrize("name", TYPES)
def test_against_numpy(name: str, first: bool, tiled: bool, target: str) -> None:
    dtype, held, sums, held_sums = TYPES[name]
    kernel = product(dtype, sums, first, tiled)
    for m, n, k in ((1, 64, 64), (3, 70, 45)):
        a, b, c = whole(m, k, dtype=held), whole(k, n, seed=1, dtype=held), whole(m, n, seed=2, dtype=held_sums)
        case = Case([a, b, c], {2: wide(a).astype(np.float64) @ wide(b).astype(np.float64) + c})
        on_chip(kernel, case, target)
        if tiled:
            on_chip(kernel, case, target, (M, N, K))
