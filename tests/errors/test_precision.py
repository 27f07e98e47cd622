"""Precisions that cannot be: each is a ConstraintError at the user's line with what is legal."""

from __future__ import annotations

import pytest
from source import assert_points_at, run

import wavedsl as wd

CASES = [
    ("halves", "x = wd.mma(wd.read(a), wd.read(b), precision='tf32')",
     "mma: precision='tf32' is for operands of f32, these are f16",
     "wd.mma(wd.read(a), wd.read(b), precision='tf32')", "leave precision out"),
    ("unknown", "x = wd.mma(wd.read(c), wd.read(c), precision='high')",
     "mma: precision='high' is none", "wd.mma(wd.read(c), wd.read(c), precision='high')", "ieee, tf32, 3xtf32"),
    ("fast-doubles", "x = wd.divide(wd.read(d), 3.0, fast=True)", "div: fast is for f32, f16 and bf16, not f64",
     "wd.divide(wd.read(d), 3.0, fast=True)", "leave fast out"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message", "underlined", "hint"), [pytest.param(*c[1:], id=c[0]) for c in CASES])
def test_named(body: str, message: str, underlined: str, hint: str) -> None:
    kernel = run(
        f"""
        @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)])
        def kernel(
            a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32],
            d: wd.Memory[M, N, wd.f64],
        ):
            {body}
        """
    )["kernel"]
    with pytest.raises(wd.ConstraintError) as raised:
        kernel.trace()
    assert message in raised.value.message and hint in str(raised.value)
    assert_points_at(raised.value, underlined)
