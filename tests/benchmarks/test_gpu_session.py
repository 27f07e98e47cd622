"""The session on a borrowed GPU: it runs on the emulator, goes on where it stopped, and outlives what its units do."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import benchmark_files
import pytest


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    with benchmark_files.imported("gpu_session") as module:
        yield module


def test_it_runs_and_goes_on(session: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    options = ["--tiny", "--limit", "90", "--part", "ladder", "--commit", "abc"]
    assert session.main(["--out", str(first), *options]) == 0
    said = capsys.readouterr().out
    assert "emulator: all parts ran" in said and "ladder: 21 of 21 right" in said and "first rung to fail: none" in said
    assert len(said) < 12_000 and len(list(first.iterdir())) <= 8
    state = json.loads((first / "rows.json").read_text())
    state["rows"]["ladder: ladder ring"]["error"] = 7.0
    (first / "rows.json").write_text(json.dumps(state))
    assert session.main(["--out", str(first), "--report"]) == 0
    assert "first rung to fail: ring" in capsys.readouterr().out
    assert session.main(["--out", str(second), "--resume", str(first), "--again", *options]) == 0
    assert "first rung to fail: none" in capsys.readouterr().out
    written = json.loads((second / "session.json").read_text())
    kept = json.loads((second / "rows.json").read_text())["rows"]["ladder: ladder copy"]
    assert kept == state["rows"]["ladder: ladder copy"]  # it was not run again
    assert written["environment"][0]["commit"] == "abc" and written["ladder"][0]["check"] == "copy"


WORKER = """
import json, os, sys, time
sys.path.insert(0, {folder!r})
import units
from pathlib import Path
time.sleep(1)  # as importing torch takes: longer than what is running may
done = units.Units(Path({kept!r}), budget=60, resume=True, alive=lambda: None, again=lambda: os._exit(75))
def stuck():  # so that its own watch does not run, either
    sys.setswitchinterval(1000)
    while True:
        pass
for name, work in {{"ends": lambda: os._exit(9), "stuck": stuck, "works": lambda: {{"error": 0.5}}}}.items():
    done.run(name, {{}}, work, 0.5)
"""


def test_units_that_end_or_stop_the_worker(session: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session, "LAST", 0.3)
    kept, script = tmp_path / "rows.json", tmp_path / "worker.py"
    script.write_text(WORKER.format(folder=str(benchmark_files.FOLDER), kept=str(kept)))
    why = session.supervise([sys.executable, str(script)], kept, tmp_path / "log.txt", time.time() + 40)
    rows = json.loads(kept.read_text())["rows"]
    assert why == "all parts ran" and rows["works"]["error"] == 0.5
    assert rows["ends"]["failed"] == rows["stuck"]["failed"] == "ended the process, or hung"


def test_a_worker_that_cannot_start_is_given_up(session: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(1)"]
    why = session.supervise(command, tmp_path / "rows.json", tmp_path / "log.txt", time.time() + 30)
    assert why.startswith("the worker ends before its first unit")


def test_time_that_is_up_ends_the_worker(session: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    began = time.time()
    assert session.supervise(command, tmp_path / "none", tmp_path / "log.txt", began + 0.5) == "the time was used up"
    assert time.time() - began < 10


def test_a_line_of_the_goal_is_open_until_all_of_it_is_measured(session: Any) -> None:
    row = {"case": "squares bf16", "of_cublas": 1.02, "of_triton": 1.2, "of_roofline": 0.8}
    lines = session.gemm_criteria([row, {**row, "of_cublas": 0.9}])
    assert lines[0][2:] == (0.9, 1.0) and lines[-1][2] == 1.0
    lines = session.gemm_criteria([row, {"case": "squares bf16", "failed": "not measured"}])
    assert lines[0][2] is None and lines[-1][2] is None


def test_rows_of_a_session_on_a_gpu(session: Any, tmp_path: Path) -> None:
    """Tables are made of what is kept, where there is no GPU; what was cut off by the end of time runs again."""
    size = (8192, 8192, 8192)
    key = f"gemm: squares bf16 {size}"
    tiles = "128x256x64/64x256 dependent=True"
    rows = {
        "environment 1": {"gpu": {"name": "NVIDIA H200"}},
        f"{key} with {tiles}": {"seconds": 1e-3, "error": 0.5},
        f"{key} by cublas": {"seconds": 1.2e-3, "clock": "graph"},
        f"{key} together": {
            "best": tiles,
            "lasting": {tiles: 1.4e-3},
            "clock": "graph",
            "slices": {tiles: [1.5e-3, 1.6e-3, 1.4e-3], "cublas": [1.6e-3, 1.7e-3, 1.5e-3]},
        },
        "rates: rate L2 hit": {"measured": 200.0},
    }
    running = {"key": "rates: rate L2 hit"}
    launches = [
        {"group": "ours", "call": "bound()", "us": 4.0, "least_us": 3.5, "limit_us": 3.0},
        {"group": "ours", "call": "kernel(), torch", "us": 4.0, "least_us": 3.5, "limit_us": 5.0},
        {"group": "driver", "call": "cuLaunchKernelEx, C", "us": 2.5, "least_us": 2.0},
        {"group": "ours", "call": "kernel(), CuPy", "failed": "no CuPy", "limit_us": 5.0},
    ]
    (tmp_path / session.LAUNCHES).write_text(json.dumps({"rows": launches}))
    (tmp_path / "rows.json").write_text(json.dumps({"rows": rows, "running": running}))
    session.prepare(tmp_path / "rows.json", None, False)
    assert "rates: rate L2 hit" not in json.loads((tmp_path / "rows.json").read_text())["rows"]
    said = session.report(tmp_path, "the time was used up")
    assert said.startswith("NVIDIA H200: the time was used up") and "cuBLAS, least of 3 (1 measured)" in said
    for line in ("bound(): 4 us, least 3.5 of 3, NOT REACHED", "kernel(), torch: 4 us, least 3.5 of 5, reached",
                 "cuLaunchKernelEx, C: 2.5 us, least 2\n"):  # fmt: skip
        assert f"launch: {line}" in said
    (best,) = [r for r in json.loads((tmp_path / "session.json").read_text())["gemm"] if "seconds" in r]
    assert best["tiles"] == tiles and abs(best["of_cublas"] - 1.6 / 1.5) < 1e-9 and 0 < best["of_roofline"] < 1
    assert (tmp_path / "gemm.png").exists()


def test_launches_are_timed_once(session: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    calls: list[list[str]] = []

    def run(command: list[str], **options: Any) -> None:
        calls.append(command)
        (first / session.LAUNCHES).write_text('{"rows": []}')

    monkeypatch.setattr(session.subprocess, "run", run)
    for folder in (first, second):
        folder.mkdir()
    session.time_launches(first, None, "abc")
    session.time_launches(first, None, "abc")
    session.time_launches(second, first, "abc")
    assert len(calls) == 1 and calls[0][-1] == "--commit=abc" and (second / session.LAUNCHES).exists()


def test_it_imports_where_nothing_is_installed(session: Any) -> None:
    folder = Path(session._linked()) / "wavedsl"
    assert (folder / "__init__.py").exists() and (folder / "ir" / "errors.py").exists()
