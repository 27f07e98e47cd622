"""The memory-bound benchmark runs end to end at tiny sizes on the emulator, and its full sizes compile for the chip."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_memory_bound.py"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(PATH.parent))
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    spec = importlib.util.spec_from_file_location("gpu_memory_bound_under_test", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_every_case_is_right_on_the_emulator(benchmark, capsys):
    assert benchmark.main(["--emulate", "sm_90a"]) == 0
    said = capsys.readouterr().out
    for case in benchmark.CASES:
        assert case.name in said
    names = {"copy", "elementwise", "softmax", "rms_norm", "row_sum", "transpose", "gemv", "skinny", "small_k"}
    assert names | {"split_k", "stream_k", "grouped", "f32", "f64"} == {case.name for case in benchmark.CASES}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "sm_80"])
def test_every_case_is_right_elsewhere(benchmark, target):
    assert benchmark.main(["--emulate", target]) == 0


def test_a_wrong_result_is_reported(benchmark, capsys, monkeypatch):
    right = benchmark.copied

    def broken(space, size):
        work = right(space, size)
        work.want = lambda: np.zeros(size)
        return work

    monkeypatch.setattr(benchmark, "CASES", (benchmark.Case("copy", broken, [], [(5, 64)]),))
    assert benchmark.main(["--emulate", "sm_80"]) == 1
    assert "WRONG: copy" in capsys.readouterr().err


def test_rates_and_shares_are_of_what_was_measured(benchmark):
    """The table from rows as a GPU run makes them."""
    row = {"case": "copy", "size": [2, 4], "error": 0.0, "bytes": 1000}
    row |= {p: {"bytes_per_second": rate} for p, rate in (("wavedsl", 3e12), ("torch", 2e12), ("triton", 1e12))}
    text = benchmark.text([row | {"of_copy": 1.0}, {"case": "softmax", "size": [2, 4], "error": 0.5}])
    first, second = text.splitlines()[2:]
    assert first.split()[4:] == ["3e+03", "2e+03", "1e+03", "1.5", "1", "0"]
    assert second.split()[4:] == ["-", "-", "-", "-", "-", "0.5"]
    assert json.dumps(row)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "gfx942"])
def test_the_full_sizes_compile(benchmark, target):
    assert benchmark.main(["--compile", target]) == 0


def test_without_a_gpu_nothing_is_timed(benchmark, capsys, monkeypatch):
    class Torch:
        class cuda:
            @staticmethod
            def is_available() -> bool:
                return False

    monkeypatch.setitem(sys.modules, "torch", Torch)
    assert benchmark.main([]) == 1
    assert "no GPU" in capsys.readouterr().err
