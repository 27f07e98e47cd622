"""The ways to compute a product that are tried: all right, the default first; wrong ones are never taken."""

from __future__ import annotations

import numpy as np
import pytest
from wavedsl.ir.dtypes import DType

import wavedsl as wd
from wavedsl.analysis.roofline import product_named
from wavedsl.strategies import Choice, gemm_choices, matmul, plan_gemm, tune_gemm, tuned, tuned_matmul
from wavedsl.strategies.gemv_cuts import GemvCut
from wavedsl.strategies.plan import Launch
from wavedsl.strategies.warpgroups import Cut

SIZES = {
    "few rows": (2, 300, 520), "few columns": (300, 3, 520), "one trip": (70, 90, 40), "long K": (40, 50, 700),
    "more tiles": (260, 200, 96),
}  # fmt: skip


def arrays(dtype: DType, size: tuple[int, int, int], b_rows: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whole numbers, whose sums are the same in any order."""
    m, n, k = size
    random = np.random.default_rng(m + n + k)
    shapes = (m, k), (n, k) if b_rows else (k, n), (m, n)
    a, b, c = (random.integers(-2, 3, shape).astype(dtype.storage) for shape in shapes)
    return a, b, c


def product_of(a: np.ndarray, b: np.ndarray, b_rows: bool) -> np.ndarray:
    left, right = a.astype(np.float64), b.astype(np.float64)
    return left @ (right.T if b_rows else right)


CASES = [
    ("gfx942", wd.f16, "few rows", True), ("gfx942", wd.bf16, "long K", False), ("gfx950", wd.f32, "few columns", True),
    ("sm_80", wd.f16, "more tiles", True), ("sm_80", wd.f64, "long K", True), ("sm_90a", wd.bf16, "few rows", True),
    ("sm_90a", wd.bf16, "one trip", True), ("sm_90a", wd.f32, "more tiles", False), ("sm_90a", wd.f16, "long K", True),
]  # fmt: skip


@pytest.mark.parametrize(("target", "dtype", "name", "b_rows"), CASES, ids=str)
def test_every_choice_is_right(monkeypatch, target, dtype, name, b_rows):
    monkeypatch.setenv("WAVEDSL_DEVICE", f"emulator:{target}")
    a, b, c = arrays(dtype, SIZES[name], b_rows)
    choices = gemm_choices(a, b, c, beta=0.5, transpose_b=b_rows)
    assert 3 <= len(choices) <= 8 and len(set(map(str, choices))) == len(choices)
    assert choices[0] == plan_gemm(a, b, c, beta=0.5, transpose_b=b_rows).choice
    want = (2 * product_of(a, b, b_rows) + 0.5 * c.astype(np.float64)).astype(dtype.storage)
    right = 0
    for choice in choices:
        got = c.copy()
        plan = plan_gemm(a, b, got, alpha=2.0, beta=0.5, transpose_b=b_rows, choice=choice)
        assert plan.choice is choice and plan.strategy == choice.strategy
        try:
            plan.run()
        except wd.CompileError:  # registers or shared memory do not hold it, which trying it finds out
            continue
        right += 1
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), str(choice))
    assert right >= 3


@pytest.mark.parametrize("size", [(2, 8192, 8192), (16, 4096, 14336), (4096, 4096, 4096), (512, 512, 16384)])
def test_neighbours_are_not_tried(monkeypatch, size):
    """On a chip with warpgroups: cuts that an estimate cannot tell apart have one of them stand for all."""
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    m, n, k = size
    a, b, c = (np.empty(shape, wd.bf16.storage) for shape in ((m, k), (n, k), (m, n)))
    choices = gemm_choices(a, b, c, transpose_b=True, product="H200", most=20)
    cuts = [x.cut for x in choices if isinstance(x.cut, Cut)]
    assert len(cuts) >= 3
    assert len({(x.parts, x.apart, x.joined, *x.tile, *x.waves) for x in cuts}) == len(cuts)
    for one, other in ((x, y) for i, x in enumerate(cuts) for y in cuts[:i]):
        same = (one.waves, one.parts, one.apart, one.joined) == (other.waves, other.parts, other.apart, other.joined)
        assert not same or any(max(p, q) / min(p, q) >= 1.4 for p, q in zip(one.tile, other.tile))
    assert any(isinstance(x.cut, GemvCut) for x in choices) == (m <= 4)
    assert gemm_choices(a, b, c, transpose_b=True, product="H200", most=2) == choices[:2]


def test_without_a_gpu_the_model_decides_and_nothing_runs(monkeypatch):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    a, b, c = arrays(wd.bf16, (256, 192, 2048), True)
    before = c.copy()
    found = tune_gemm(a, b, c, transpose_b=True, product=product_named("H200"))
    np.testing.assert_array_equal(c, before)
    seconds = {str(t.choice): t.seconds for t in found.trials}
    assert not found.measured and len(seconds) >= 4 and all(s is None or 1e-7 < s < 1e-3 for s in seconds.values())
    assert seconds[str(found.plan.choice)] == min(s for s in seconds.values() if s is not None)
    assert "by the cycle model" in str(found) and "compared by the cycle model" in found.plan.why
    found.plan.run()
    np.testing.assert_array_equal(c.astype(np.float64), product_of(a, b, True).astype(c.dtype).astype(np.float64))


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_wrong_and_broken_choices_are_left_out(monkeypatch, beta):
    """As on a device, with the emulator in its place: the second choice leaves zeros, the third does not compile."""
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    monkeypatch.setattr(tuned, "_has_clock", lambda device: True)
    a, b, c = arrays(wd.f32, SIZES["one trip"], True)
    first, second, third, *_ = gemm_choices(a, b, c, beta=beta, transpose_b=True)

    def cleared(array: np.ndarray) -> None:
        array[...] = 0

    def strange(*args, choice=None, **kwargs):
        if choice == third:
            raise wd.CompileError("no room")
        plan = plan_gemm(*args, choice=choice, **kwargs)
        if choice == second:
            plan.launches = [Launch(cleared, (c,))]
        return plan

    monkeypatch.setattr(tuned, "plan_gemm", strange)
    times = {str(first): 3.0, str(second): 1.0}
    monkeypatch.setattr(tuned, "_seconds", lambda plan: times.get(str(plan.choice), 4.0))
    before = c.copy()
    found = tune_gemm(a, b, c, beta=beta, transpose_b=True, most=4)
    assert found.measured and found.plan.choice == first and "that were timed" in found.plan.why
    reasons = {str(t.choice): t.reason for t in found.trials if t.seconds is None}
    assert reasons[str(third)] == "no room" and reasons[str(second)].startswith("differs from the default's result by")
    assert list(reasons) == [str(second), str(third)]
    if beta:
        np.testing.assert_array_equal(c, before)
    found.plan.run()
    np.testing.assert_array_equal(c, (product_of(a, b, True) + beta * before).astype(np.float32))


def test_times_are_taken_of_every_launch(monkeypatch):
    """Two launches, by the wall clock of the emulator."""
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    monkeypatch.setattr(tuned, "WARMUP", 0.0)
    monkeypatch.setattr(tuned, "REPEATED", 0.0)
    a, b, c = arrays(wd.bf16, (64, 64, 1024), True)
    plan = plan_gemm(a, b, c, transpose_b=True, choice=Choice("split_k", Cut((64, 64, 64), (1, 1), 2, 0.0, True)))
    assert len(plan.launches) == 2
    assert tuned._seconds(plan) > 0


def test_a_shape_is_tuned_once(monkeypatch):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    monkeypatch.setattr(tuned, "_KNOWN", {})
    tried = []
    own = tune_gemm
    monkeypatch.setattr(tuned, "tune_gemm", lambda *args, **kwargs: tried.append(args[0].shape) or own(*args, **kwargs))
    for size in ((20, 37, 64), (20, 37, 64), (21, 37, 64)):
        a, b, c = arrays(wd.f16, size, False)
        plan = tuned_matmul(a, b, c)
        np.testing.assert_array_equal(c.astype(np.float64), product_of(a, b, False))
        assert "choice" not in plan.why
    assert tried == [(20, 64), (21, 64)]
    tuned_matmul(a, b.copy("F"), c)  # other strides may want another choice
    assert len(tried) == 3


def test_nothing_to_choose_from(monkeypatch):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    a, b, c = np.empty((4, 0), np.float32), np.empty((0, 5), np.float32), np.full((4, 5), np.nan, np.float32)
    assert gemm_choices(a, b, c) == []
    tuned_matmul(a, b, c)
    np.testing.assert_array_equal(c, 0)
    monkeypatch.setattr(tuned, "_predicted", lambda choice, planned, chip: tuned.Trial(choice, None, "no room"))
    a, b, c = arrays(wd.f16, (20, 37, 64), False)
    with pytest.raises(wd.CompileError, match=r"none of \d choices can be used; .*: no room"):
        tune_gemm(a, b, c)
    with pytest.raises(wd.ConstraintError, match="gemv is not cut by"):
        plan_gemm(a, b, c, choice=Choice("gemv", plan_gemm(a, b, c, strategy="split_k").tiles))
    with pytest.raises(wd.LaunchError, match="matmul: a is"):
        gemm_choices(a, b.T, c)


def test_the_default_is_what_matmul_runs(monkeypatch):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx950")
    a, b, c = arrays(wd.bf16, (40, 50, 700), True)
    plan = matmul(a, b, c, transpose_b=True)
    again = plan_gemm(a, b, c, transpose_b=True, choice=plan.choice)
    assert [x.kernel for x in again.launches] == [x.kernel for x in plan.launches] and again.tiles == plan.tiles
