"""Every dense matrix instruction of the AMD chips by its name: chosen, executed, right, assembled.

Several small products at once (`_4B_`) serve one product whose columns lie side by side; every block takes the same A.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import products
import pytest
from products import K, M, N
from wavedsl.codegen.amdgcn import mfma

import wavedsl as wd

ROWS = [
    pytest.param(target, row, id=f"{target}-{row.name}", marks=() if target == "gfx942" else pytest.mark.slow)
    for target in products.AMD
    for row in mfma.dense(target)
    if not row.scaled and min(row.a_dtype.bits, row.b_dtype.bits) >= 8
]


def test_rows_are_all_there() -> None:
    """Those of the calculator's tables (95 with gfx950's wider ones), and the unscaled pairs of 8-bit floats."""
    assert len(ROWS) == 95 + 2 * 4


@pytest.mark.parametrize(("target", "row"), ROWS)
def test_a_row_by_name(target: str, row: Any, oracle: Callable[[str], str]) -> None:
    """Small integers, so sums are exact in any order; the second wave has other rows."""
    a_dtype, b_dtype, result = row.a_dtype, row.b_dtype, row.d_dtype
    m, n, k = 2 * row.m, row.n * row.blocks, 2 * row.k

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, m, 0),
            wd.WorkgroupConstraint(N, n, 1),
            wd.TilingConstraint(K, row.k),
            wd.WaveConstraint(M, row.m),
            wd.HardwareConstraint(mma_type=getattr(wd.MMAType, row.name)),
        ]
    )
    def product(a: wd.Memory[M, K, a_dtype], b: wd.Memory[N, K, b_dtype], c: wd.Memory[M, N, result]):
        zero = wd.Register[M, N, result](0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc: wd.Register[M, N, result]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    rng = np.random.default_rng(row.m + row.k)
    a, b = (
        rng.integers(-3, 4, shape).astype(np.float32 if d is wd.tf32 else d.numpy)
        for shape, d in (((m, k), a_dtype), ((n, k), b_dtype))
    )
    want = a.astype(np.float64) @ b.astype(np.float64).T
    c = np.zeros((m, n), result.numpy)
    product.evaluate(a, b, c)
    assert (c == want).all()
    c[:] = 0
    compiled = product.compile(a, b, c, target=target)
    report = compiled.emulate(a, b, c)
    assert (c == want).all()
    assert [name for name in report.instructions if "mfma" in name] == [row.spelling(target)]
    products.assemble(compiled, oracle)
