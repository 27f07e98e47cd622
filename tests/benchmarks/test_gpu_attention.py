"""The attention benchmark's checks run end to end at tiny sizes on the emulator, and its numbers are what it says."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wavedsl as wd

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_attention.py"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    spec = importlib.util.spec_from_file_location("gpu_attention_under_test", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_options_are_right_on_the_emulator(benchmark, capsys):
    for word in ("plain", "packed", "paged"):
        assert benchmark.main(["--emulate", "sm_90a", "--only", word]) == 0
        assert f"{word}, d 64" in capsys.readouterr().out


@pytest.mark.exhaustive
def test_every_option_is_right(benchmark):
    assert benchmark.main(["--emulate", "sm_90a"]) == 0


def test_a_wrong_result_is_reported_and_nothing_is_timed(benchmark, capsys, monkeypatch):
    def broken(place: Any, kernel: Any, given: dict[str, Any], subs: Any = None) -> None:
        given["o"][:] = 0  # what the log-sum-exp would have been stays NaN

    monkeypatch.setattr("attention_checks.launch", broken)
    monkeypatch.setattr(benchmark, "measure", lambda *a: pytest.fail("timed"))
    assert benchmark.main(["--emulate", "sm_90a", "--only", "causal, d"]) == 1
    assert "WRONG: causal, d 64" in capsys.readouterr().err


def test_outputs_start_as_nan_and_data_is_fresh(benchmark):
    import attention_checks

    given = attention_checks.poisoned({"o": np.zeros((2, 3), np.float16), "q": np.ones(2)}, ("o", "lse"))
    assert np.isnan(given["o"]).all() and (given["q"] == 1).all()


def test_exact_rows(benchmark):
    random = np.random.default_rng(3)
    q, k, v = random.standard_normal((3, 1, 2, 9, 4))
    for causal in (False, True):
        scores = q @ k.swapaxes(-1, -2) * 0.5
        if causal:
            scores = np.where(np.tri(9, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        want = weights / weights.sum(-1, keepdims=True) @ v
        rows = [(0, 1, 4), (0, 0, 8), (0, 0, 0)]
        got = benchmark.sampled((q, k, v), causal, 0.5, rows)
        assert all(np.allclose(x, want[row]) for x, row in zip(got, rows))


def test_work_is_what_is_needed(benchmark):
    assert benchmark.flops(2, 3, 8, 16, False, False) == 2 * 3 * 2 * (2 * 8 * 8 * 16)
    assert benchmark.flops(1, 1, 4, 16, True, False) == 2 * (2 * 10 * 16)
    assert benchmark.flops(1, 1, 8, 16, False, True) == 5 * (2 * 8 * 8 * 16)


def rows() -> list[dict[str, Any]]:
    """Rows as a run on a GPU makes them."""
    base = {"d": 128, "keys": 4096, "causal": True, "error": 0.2, "flops": 10**12}
    times = {"wavedsl": 0.002, "cudnn": 0.0025, "flash": 0.004}
    made = [{**base, "gradients": g, **{p: {"seconds": s} for p, s in times.items()}} for g in (False, True)]
    return [*made, {**made[0], "keys": 8192, "error": math.inf}]


class Tried:
    """Three ways of the same work: the fastest is wrong, one cannot be done, the last is right."""

    def __init__(self, wrong):
        self.choices, self.wrong, self.ran = ["fast", "impossible", "slow"], wrong, ""

    def bound(self, choice):
        if choice == "impossible":
            raise wd.ConstraintError("no room")

        def run():
            self.ran = choice
            time.sleep(0.002 if choice == "slow" else 0.0)

        return run

    def poison(self, gradients):
        self.ran, self.gradients = "nothing", gradients

    def error(self, gradients):
        assert self.ran in self.choices and gradients is self.gradients
        return math.inf if self.ran in self.wrong else 0.5


def test_the_fastest_way_that_is_right_is_timed(benchmark, tmp_path):
    """One that kills the context, or is wrong, takes nothing from the others."""

    def row(wrong, gradients=False):
        held = types.SimpleNamespace(work=Tried(wrong), tutorial=None)
        held.work.others = lambda gradients, tutorial: {}
        held.work.forward = lambda: None
        done = benchmark.units.Units(tmp_path / "none", keep=False)
        return benchmark.timed(held, "shape", {"gradients": gradients}, held.work.choices, done)

    found = row({"fast"})
    assert found["tiles"] == "slow" and found["error"] == 0.5 and list(found["wrong"]) == ["fast"]
    assert "no room" in found["tried"]["impossible"] and found["wavedsl"]["seconds"] > 0
    assert found["missing"]["flash"] == "NotImplementedError: not at hand"
    found = row(set())
    assert found["tiles"] == "fast" and not found["wrong"]
    assert row({"fast"}, gradients=True)["tiles"] == "slow"
    found = row({"fast", "slow"})
    assert "failed" in found and set(found["wrong"]) == {"fast", "slow"}


def test_ways_to_try(benchmark):
    """The example's own tiles first; two workgroups to a cluster only where tiles of queries pair up."""
    own = benchmark.forward.tile_of("sm_90a", 64)
    for n, clusters in ((4096, {0, 2}), (2048, {0})):
        found = benchmark.candidates("sm_90a", n, 64, False)
        assert (found[0].tile, found[0].waves, found[0].cluster) == (*own, 0)
        assert {choice.cluster for choice in found} == clusters
    assert {choice.cluster for choice in benchmark.candidates("sm_90a", 4096, 64, True)} == {0}
    assert len(benchmark.candidates("gfx942", 4096, 64, False)) == 1


def test_gradients_are_tried_with_and_without_atomics(benchmark):
    import attention_ways

    """The same bits on every run first; by atomics where dK and dV come from one kernel, in both forms."""
    for d, ways in ((64, {True, False}), (128, {True, False}), (256, {True})):
        found = benchmark.gradient_candidates("sm_90a", d, True)
        assert found[0].deterministic and {way.deterministic for way in found} == ways
        forms = {way.schedule for way in found if not way.deterministic}
        assert forms == ({None, attention_ways.ONE_TILE} if d < 256 else set())
        plain = {way.schedule for way in benchmark.gradient_candidates("sm_90a", d, False)}
        assert plain == ({None, attention_ways.LANES} if d < 256 else {None})
        assert len({str(way) for way in found}) == len(found)
    assert [way.deterministic for way in benchmark.gradient_candidates("gfx942", 64, False)] == [True]
    assert [way.tiles.step for way in benchmark.gradient_candidates("sm_90a", 256, False)] == [64, 32]


def test_rates_and_ratios_are_of_what_was_measured(benchmark):
    first, second, third = benchmark.text(rows()).splitlines()[2:]
    assert first.split() == ["forward", "128", "causal", "4096", "500", "400", "250", "-", "1.25", "0.2"]
    assert second.split()[0] == "gradients" and third.split()[-1] == "inf"
    assert json.dumps(rows())


def test_the_picture(benchmark, tmp_path):
    pytest.importorskip("matplotlib")
    path = benchmark.plot(rows(), tmp_path / "rates.png")
    assert path.read_bytes().startswith(b"\x89PNG")


HEADS = (("64", "slow"), ("128", "slow"), ("256", "exhaustive"))


@pytest.mark.parametrize("d", [pytest.param(n, marks=getattr(pytest.mark, kind)) for n, kind in HEADS])
def test_what_is_timed_compiles(benchmark, d):
    assert benchmark.main(["--compile", "sm_90a", "--sequence", "2048", "--d", d, "--skip-checks"]) == 0


@pytest.mark.parametrize(
    "word", [pytest.param(w, marks=pytest.mark.slow) for w in ("alibi, sinks, d 64", "gradients, f8, d 256")]
)
def test_checks_compile_at_their_full_size(benchmark, capsys, word):
    assert benchmark.main(["--compile", "sm_90a", "--only", word]) == 0
    assert ", 0 failures" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "word",
    ["bias, cap, d 128", *(pytest.param(w, marks=pytest.mark.exhaustive) for w in ("alibi, d 64", "window, d 128"))],
)
def test_what_is_added_to_scores_does_not_spill(benchmark, capsys, word):
    assert benchmark.main(["--compile", "sm_90a", "--only", word]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 kernels for sm_90a, 0 failures, 0 with notes"


def test_without_a_gpu_nothing_is_timed(benchmark, capsys, monkeypatch):
    class Torch:
        class cuda:
            @staticmethod
            def is_available() -> bool:
                return False

    monkeypatch.setitem(sys.modules, "torch", Torch)
    assert benchmark.main([]) == 1
    assert "no GPU" in capsys.readouterr().err


def test_bytes_are_those_of_the_arrays(benchmark):
    """Forward: Q, K, V, O of bf16, a log-sum-exp of f32 per query. Gradients: three kernels, each by itself."""
    n, d = 2048, 128
    b, h = benchmark.TOKENS // n, benchmark.WIDTH // d
    array, row = 2 * b * h * n * d, 4 * b * h * n
    sizes = benchmark.extents(n, d)
    assert benchmark.moved(benchmark.kernels_of("sm_90a", n, d, True, False), sizes) == 4 * array + row
    delta = 2 * array + row
    keys, queries = 6 * array + 2 * row, 5 * array + 2 * row
    kernels = benchmark.kernels_of("sm_90a", n, d, False, True)
    assert [benchmark.moved([k], sizes) for k in kernels] == [delta, keys, queries]


def test_the_roofline_takes_its_rows(benchmark, monkeypatch, tmp_path):
    """What is written are points of a roofline: work, bytes, seconds, a name."""
    from wavedsl.analysis.measured import read_measured

    times = {"wavedsl": {"seconds": 0.002}}
    monkeypatch.setattr(benchmark, "timed", lambda held, key, row, choices, done: {**row, **times, "error": 0.5})
    rows = benchmark.measure(benchmark.Place(), "sm_90a", [(128, 2048, True)], None, None)
    (tmp_path / "r.json").write_text(json.dumps({"rows": rows}))
    first, second = read_measured(tmp_path / "r.json")[1]
    assert (first.name, first.seconds) == ("attention, causal 8 x 16 x 2048 x 128", 0.002)
    assert second.name == "attention, causal, gradients 8 x 16 x 2048 x 128" and second.bytes > first.bytes > 0
