"""What the evaluator runs and the compiler does not yet is refused by name at the user's line."""

from __future__ import annotations

import pytest
from wavedsl.ir.errors import CompileError

import wavedsl as wd

M, N, K = wd.symbols("M N K")


def test_block_scaled_products_are_refused_by_name():
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)], subs={M: 16, N: 16, K: 128})
    def kernel(
        a: wd.Memory[M, K, wd.f8e4m3], sa: wd.Memory[M, K / 32, wd.f8e8m0], b: wd.Memory[N, K, wd.f8e4m3],
        sb: wd.Memory[N, K / 32, wd.f8e8m0], c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        wd.write(wd.scaled_mma(wd.read(a), wd.read(sa), wd.read(b), wd.read(sb)), c)

    with pytest.raises(CompileError) as caught:
        kernel.compile(target="gfx950")
    text = str(caught.value)
    assert "scaled_mma is not lowered to instructions yet" in text
    assert __file__ in text and "^" in text and "kernel.evaluate" in text
