"""The exhaustive searches of tuning: on the emulator, and with a torch of NumPy arrays in the place of a GPU."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy_torch
import pytest

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "tuning_ranking.py"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(PATH.parent))
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    spec = importlib.util.spec_from_file_location("tuning_ranking_under_test", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_a_search_on_the_emulator(tmp_path):
    """As it is started by hand, workers in processes of their own."""
    out = tmp_path / "found.json"
    command = [sys.executable, str(PATH), "--gpu", "--tiny", "--workers=1", f"--out={out}", "--limit=120"]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    written = json.loads(out.read_text())
    assert written["gpu"]["name"] == "emulator" and "commit" in written
    assert [row["problem"] for row in written["rows"]] == ["large", "large f16"]
    for row in written["rows"]:
        timed = written["candidates"][row["problem"]]["timed"]
        assert row["candidates"] == len(timed) == 4 and row["not timed"] == row["left out"] == 0
        assert all(one["error"] <= 1 and one["predicted"] > 0 for one in timed)
        assert timed == sorted(timed, key=lambda one: one["seconds"])
        assert row["seconds of the best"] == timed[0]["seconds"] and -1 <= row["correlation"] <= 1
    assert not out.with_suffix(".part.json").exists()


def test_times_beside_another_model(benchmark, monkeypatch, tmp_path):
    """What was timed stays; predictions and ranks are today's."""
    row, candidates, _ = search(benchmark, monkeypatch, tmp_path)
    out = tmp_path / "found.json"
    written = json.loads(out.read_text())
    slow = {one["candidate"]: 1 / one["predicted"] for one in written["candidates"]["large"]["timed"]}
    for one in written["candidates"]["large"]["timed"]:
        one |= {"seconds": slow[one["candidate"]], "predicted": 1.0}
    out.write_text(json.dumps(written))
    assert benchmark.main(["--again", str(out), "--workers", "1"]) == 0
    after = json.loads(out.read_text())
    assert after["candidates"] == written["candidates"] and after["rows"] == [row]
    (again,) = after["again"]
    assert again["candidates"] == len(candidates["timed"]) == 4
    assert again["correlation"] == -1.0 and again["place of the best"] == 4 and not again["best is kept"]


def search(benchmark, monkeypatch, tmp_path, *more, seconds=lambda calls: 1e-3, problem=None):
    """As on a GPU: what the file of results has of `large`, and the exit status."""
    import gemm_cases
    import gpu_gemm

    monkeypatch.setattr(gpu_gemm, "_torch_with_gpu", numpy_torch.module)
    monkeypatch.setattr(gemm_cases, "ROTATED_BYTES", 50_000)
    monkeypatch.setattr(gpu_gemm, "median_time", lambda torch, calls, *rest: (seconds(calls), "graph"))
    monkeypatch.setattr(benchmark.units, "alive", lambda torch: None)
    monkeypatch.setattr(benchmark, "TIMED", {"large": problem or benchmark.TINY["large"]})
    out = tmp_path / "found.json"
    status = benchmark.main(["--gpu", "--workers", "1", "--out", str(out), "--problem", "large", *more])
    written = json.loads(out.read_text())
    assert written["gpu"]["name"] == "NVIDIA H200"
    return written["rows"][0], written["candidates"]["large"], status


def test_candidates_that_cannot_be_timed_are_named(benchmark, monkeypatch, tmp_path):
    """Those that do not fit the chip, and those that are wrong, which end the run in an error."""
    import gemm_cases

    space = {**benchmark.FEW, benchmark.BK: [64, 1024], "stages": [3]}
    problem = benchmark.Timed(benchmark.stacked, (benchmark.wd.bf16, benchmark.wd.bf16), space, (72, 136, 200))
    row, candidates, status = search(benchmark, monkeypatch, tmp_path, problem=problem)
    assert status == 0 and row["candidates"] == 2 and row["not timed"] == 2 and row["left out"] == 0
    assert all("bytes of shared tiles" in said for said in candidates["not timed"].values())
    monkeypatch.setattr(gemm_cases.Products, "error", lambda self: 2.0)
    row, candidates, status = search(benchmark, monkeypatch, tmp_path)
    assert status == 1 and not candidates["timed"] and "seconds of the best" not in row
    assert all(said.startswith("wrong") for said in candidates["not timed"].values())


def test_a_limit_leaves_the_rest_out_and_it_is_done_later(benchmark, monkeypatch, tmp_path):
    row, _, status = search(benchmark, monkeypatch, tmp_path, "--limit", "-1")
    assert status == 0 and row["left out"] == 4 and "correlation" not in row
    row, _, _ = search(benchmark, monkeypatch, tmp_path, "--resume", "--limit", "100")
    assert row["left out"] == 0 and row["candidates"] == 4
