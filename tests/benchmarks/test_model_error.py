"""Predictions beside what a session measured: of candidates of products, cuts of memory-bound cases, and attention."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "model_error.py"
TILES = ("128x256x64/64x256", "128x256x64/64x256 cluster=(1, 1, 1)", "64x256x64/64x256", "strategy")


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(PATH.parent))
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    spec = importlib.util.spec_from_file_location("model_error_under_test", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def session():
    tried = dict(zip(TILES, (190e-6, 176e-6, 200e-6, 187e-6)))
    squares = {"case": "squares bf16", "size": [4096] * 3, "tried": {**tried, "512x512x64/64x512": "no room"}}
    copy = {"case": "copy", "size": [8192, 8192], "tried": {"(4, 512)": 68e-6, "(2, 512)": 67.7e-6}}
    return {"gemm": [squares, {"case": "fp8", "size": [8192] * 3, "failed": "not measured"}], "memory": [copy]}


def test_cases_are_compared(benchmark, capsys, tmp_path):
    given, out = tmp_path / "session.json", tmp_path / "error.json"
    given.write_text(json.dumps(session()))
    assert benchmark.main([str(given), "--out", str(out)]) == 0
    written = json.loads(out.read_text())
    products, copy = written["shapes"]
    assert written["product"] == "H200" and products["kind"] == "products" and copy["kind"] == "memory"
    assert products["candidates"] == 4 and products["best"] == TILES[1] and -1 <= products["correlation"] <= 1
    assert copy["candidates"] == 2 and copy["correlation"] is None
    assert all(0.5 < row["ratio"] < 1.5 for row in written["rows"])  # the model is no worse than that
    assert all(row["predicted"] >= row["bound us"] for row in written["rows"])
    said = capsys.readouterr().out
    assert "squares bf16 4096 x 4096 x 4096" in said and "memory" in said


def test_names_of_tiles_are_read(benchmark):
    found = benchmark.way_of("128x256x64/64x256 cluster=(2, 2, 1) persistent=True")
    assert found.schedule == (("cluster", (2, 2, 1)), ("persistent", True)) and found.wave_n == 256
    assert str(found) == "128x256x64/64x256 cluster=(2, 2, 1) persistent=True"
    plans = [benchmark.gemm_cases.Planned(place) for place in (0, 1, 5)]
    assert [benchmark.way_of(str(plan)) for plan in plans] == plans
    with pytest.raises(ValueError, match="no tiles"):
        benchmark.way_of("tiles")
