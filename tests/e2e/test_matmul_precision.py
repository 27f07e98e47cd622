"""`matmul(..., precision=)`: which products are multiplied by tf32, errors against float64, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import products
import pytest
from wavedsl.ir.numerics import mma_tolerance

import wavedsl as wd
from wavedsl.strategies import gemm_choices, matmul, plan_gemm, tune_gemm, tuned_matmul
from wavedsl.strategies.warpgroups import Cut

TENSOR = ("sm_80", "sm_90a", "gfx942")
"""Chips that multiply tf32."""
DEPTH = 64
"""Elements of K that a wave multiplies in a trip at most, in the tiles of all strategies."""


def operands(size: tuple[int, int, int], b_rows: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    m, n, k = size
    random = np.random.default_rng(m + n + k)
    a, b = (random.standard_normal(s).astype(np.float32) for s in ((m, k), (n, k) if b_rows else (k, n)))
    return a, b, np.full((m, n), np.nan, np.float32)


def errors(a: np.ndarray, b: np.ndarray, c: np.ndarray, b_rows: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """(error, sum of magnitudes) per element."""
    x, y = a.astype(np.float64), (b.T if b_rows else b).astype(np.float64)
    return np.abs(c - x @ y), np.abs(x) @ np.abs(y)


def multiplies_tf32(plan: Any, target: str) -> bool:
    names = []
    for launch in plan.launches:
        compiled = launch.kernel.compile(*launch.arguments, target=target)
        names += compiled.kernel_ir.notes["lowering"].atoms.values()
    return any("TF32" in name for name in names)


CASES = [
    ("sm_90a", (130, 200, 520), True, "auto"), ("sm_90a", (70, 130, 330), False, "auto"),
    ("sm_90a", (130, 200, 520), False, "auto"), ("sm_90a", (10, 140, 400), False, "auto"),
    ("sm_90a", (10, 140, 400), True, "auto"), ("sm_90a", (70, 90, 40), True, "shallow_k"),
    ("sm_90a", (64, 64, 2048), True, "split_k"), ("sm_80", (130, 70, 330), True, "auto"),
    ("sm_80", (150, 70, 200), False, "stream_k"), ("gfx942", (70, 90, 330), True, "auto"),
    ("gfx942", (20, 37, 600), False, "wave_parallel"), ("gfx950", (70, 90, 330), True, "auto"),
]  # fmt: skip


@pytest.mark.parametrize("precision", ["tf32", "3xtf32"])
@pytest.mark.parametrize(("target", "size", "b_rows", "strategy"), CASES, ids=str)
def test_errors_stay_within_the_bound(monkeypatch, target, size, b_rows, strategy, precision):
    monkeypatch.setenv("WAVEDSL_DEVICE", f"emulator:{target}")
    a, b, c = operands(size, b_rows)
    plan = matmul(a, b, c, transpose_b=b_rows, strategy=strategy, precision=precision)
    assert multiplies_tf32(plan, target) == (target in TENSOR)
    error, magnitude = errors(a, b, c, b_rows)
    promoted = DEPTH if precision == "3xtf32" else None
    assert (error <= mma_tolerance(size[2], magnitude, wd.f32, precision=precision, promoted=promoted)).all()
    close = (error <= 2.0**-24 * np.sqrt(size[2]) * magnitude).all()
    assert close == (precision == "3xtf32" or target not in TENSOR)


def test_three_products_are_added_trip_by_trip(monkeypatch):
    """Tensor cores cut their sums: each trip's starts from zero, and vector units add it to the sums."""
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    arrays = operands((256, 256, 256))
    adds, sums = {}, 0
    for precision in ("tf32", "3xtf32"):
        plan = plan_gemm(*arrays, transpose_b=True, precision=precision, product="H200")
        (launch,) = plan.launches
        adds[precision] = launch.kernel.compile(*launch.arguments, target="sm_90a").asm.count("add.rn.f32")
        cut = plan.choice.cut
        assert isinstance(cut, Cut)
        sums = cut.tile[0] * cut.tile[1] // (128 * cut.waves[0] * cut.waves[1])
    assert adds["tf32"] < sums <= adds["3xtf32"]  # parts of K are added too, in a loop
    assert sums <= 96  # each is held twice


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_what_is_no_number_stays_none(monkeypatch, target):
    """NaN stays NaN; 3xtf32 makes NaN of infinities too, and tf32 keeps them. Denormals count as they are in three
    products, whose remainders they are."""
    monkeypatch.setenv("WAVEDSL_DEVICE", f"emulator:{target}")
    for precision, of_infinity in (("3xtf32", np.isnan), ("tf32", np.isposinf)):
        a, b, c = (np.ones((64, 64), np.float32) for _ in range(3))
        a[3, 5], a[7, 9], b[11, 2] = np.nan, np.inf, np.array(0xFFFFFFFF, np.uint32).view(np.float32)
        matmul(a, b, c, transpose_b=True, precision=precision)
        assert np.isnan(c[3]).all() and np.isnan(c[:, 11]).all()
        row = np.delete(c[7], 11)
        assert of_infinity(row).all()
        others = np.delete(np.delete(c, [3, 7], 0), 11, 1)
        assert (others == 64).all()


@pytest.mark.parametrize("exponent", [-100, -115, -122, -130])
def test_steps_of_tf32_end_at_2_to_the_minus_136(monkeypatch, exponent):
    """What is smaller is cut off an operand; an H200 has the same errors (docs/numerics.md)."""
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    a, b, c = operands((128, 128, 128))
    a, b = np.ldexp(a, exponent), np.ldexp(b, 60)
    matmul(a, b, c, transpose_b=True, precision="3xtf32")
    error, magnitude = errors(a, b, c)
    bound = mma_tolerance(128, magnitude, wd.f32, precision="3xtf32", promoted=DEPTH)
    steps = 2.0**-136 * (np.abs(a, dtype=np.float64).sum(1)[:, None] + np.abs(b, dtype=np.float64).sum(1))
    assert (error <= bound + steps).all()
    assert (error > bound).any() == (exponent < -115)


def test_ieee_is_the_default(monkeypatch):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    a, b, c = operands((64, 64, 64))
    plans = [plan_gemm(a, b, c, transpose_b=True, precision=x) for x in (None, "ieee")]
    assert plans[0].launches[0].kernel is plans[1].launches[0].kernel
    assert not multiplies_tf32(plans[1], "sm_90a")


def test_what_is_refused():
    a, b, c = operands((64, 64, 64))
    for call in (matmul, plan_gemm, gemm_choices, tune_gemm, tuned_matmul):
        with pytest.raises(wd.ConstraintError, match="precision='tf23' is none"):
            call(a, b, c, precision="tf23")
        with pytest.raises(wd.ConstraintError, match="is for operands of f32, these are f16 and f16"):
            call(a.astype(np.float16), b.astype(np.float16), c, precision="ieee")


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_every_choice_keeps_the_bound(monkeypatch, target, oracle):
    monkeypatch.setenv("WAVEDSL_DEVICE", f"emulator:{target}")
    a, b, c = operands((260, 200, 160))
    choices = gemm_choices(a, b, c, transpose_b=True, precision="3xtf32")
    assert len(choices) >= 3
    right = 0
    for choice in choices:
        c[...] = np.nan
        plan = plan_gemm(a, b, c, transpose_b=True, choice=choice, precision="3xtf32")
        try:
            plan.run()
        except wd.CompileError:  # registers or shared memory do not hold it, which trying it finds out
            continue
        error, magnitude = errors(a, b, c)
        assert (error <= mma_tolerance(160, magnitude, wd.f32, precision="3xtf32", promoted=DEPTH)).all()
        right += 1
    assert right >= 3
    (launch,) = plan_gemm(a, b, c, transpose_b=True, precision="3xtf32").launches
    products.assemble(launch.kernel.compile(*launch.arguments, target=target), oracle)


def test_tuning_takes_the_precision(monkeypatch):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    a, b, c = operands((130, 128, 128))
    tuned = tune_gemm(a, b, c, transpose_b=True, most=3, precision="3xtf32")
    assert multiplies_tf32(tuned.plan, "sm_90a")
    tuned_matmul(a, b, c, transpose_b=True, precision="tf32")
    error, magnitude = errors(a, b, c)
    assert (error <= mma_tolerance(128, magnitude, wd.f32, precision="tf32")).all()
    assert (error > mma_tolerance(128, magnitude, wd.f32, precision="3xtf32", promoted=DEPTH) / 4).any()
