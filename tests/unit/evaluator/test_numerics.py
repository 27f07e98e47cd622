"""The accuracy contract: its numbers are in the docs, and its bounds admit what they should and nothing else."""

import pathlib

import numpy as np
import pytest
from wavedsl.ir import numerics
from wavedsl.ir.dataflow.ops import ACCUMULATORS, ROWS

import wavedsl as wd

DOCS = pathlib.Path(__file__).parents[3] / "docs" / "numerics.md"


def test_the_docs_hold_the_tables_of_the_code() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert numerics.table() in text and numerics.table(fast=True) in text and numerics.f64_table() in text
    for operand, sums in ACCUMULATORS.items():
        assert f"| {operand} | {', '.join(map(str, sums))} |" in text


def test_every_precise_row_has_a_bound_or_is_exact() -> None:
    for name, row in ROWS.items():
        if row.precise:
            assert name in numerics.EXACT_OPS or set(numerics.BOUNDS[name]) == set(numerics.VENDORS)
            assert name in (*numerics.EXACT_OPS, *numerics.F64_BOUNDS, "reciprocal")
    assert not set(numerics.BOUNDS) & set(numerics.EXACT_OPS)
    assert set(numerics.BOUNDS) | set(numerics.EXACT_OPS) <= set(ROWS)


@pytest.mark.parametrize("dtype", [wd.f32, wd.f64, wd.f16])
def test_ulp_is_numpys_spacing(dtype: wd.DType) -> None:
    x = np.array([1.0, 1.5, 2.0, 3.7, 1e-3, 65000.0, 0.0, 6e-8], dtype.numpy)
    assert np.array_equal(numerics.ulp(x, dtype), np.spacing(x).astype(np.float64))


def test_tolerances() -> None:
    assert numerics.vendor("gfx942") == "amd" and numerics.vendor("sm_90a") == "nvidia"
    assert numerics.tolerance("add", "gfx942", wd.f32, 1.0) == 2.0**-24
    assert numerics.tolerance("exp2", "gfx942", wd.f32, 1.0) == 2.0**-23
    assert numerics.tolerance("exp2", "sm_80", wd.f32, 1.0) == 3 * 2.0**-23
    assert numerics.tolerance("tanh", "sm_80", wd.f64, 1.0) == 3 * 2.0**-52
    assert numerics.tolerance("reciprocal", "sm_80", wd.f64, 1.0) == 2.0**-53
    assert numerics.tolerance("exp", "gfx942", wd.f32, 1.0, argument=10.0) == 18 * 2.0**-23
    assert numerics.tolerance("exp2", "gfx942", wd.f16, 1.0) == 2.0**-23 + 2.0**-11
    assert numerics.tolerance("exp2", "gfx942", wd.f32, 2.0**-140) == 2.0**-126
    assert numerics.mma_tolerance(8, 2.0, wd.f32) == 16 * 2.0**-24 * 2
    assert numerics.mma_tolerance(8, 2.0, wd.i32) == 0
    assert numerics.mma_tolerance(8, 2.0, wd.f32, wd.f16, 1.0) > 2.0**-11
