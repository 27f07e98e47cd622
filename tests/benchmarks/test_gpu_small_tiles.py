"""The script that measures small tiles by warpgroups, with a role that copies and without, and by warps runs, and tells
right from wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import benchmark_files
import pytest


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("WAVEDSL_DEVICE", "")
    with benchmark_files.imported("gpu_small_tiles") as module:
        yield module


def test_it_runs_on_the_emulator(small_tiles: Any, capfd: pytest.CaptureFixture, tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    assert small_tiles.main(["--emulate", "sm_90a", "--out", str(out)]) == 0
    assert "16 x 64 x 64" in capfd.readouterr().out
    rows = json.loads(out.read_text())["rows"]
    assert [r["kind"] for r in rows] == ["u4", "i8", "norm", "attention"]
    assert all(0 < e < 1 for r in rows for e in r["error"].values())


def test_what_is_wrong_is_said(small_tiles: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given, reference = small_tiles.operands("i8", (16, 64, 256))
    monkeypatch.setattr(small_tiles, "TINY", (("i8", (16, 64, 64), (16, 64, 256)),))
    monkeypatch.setattr(small_tiles, "operands", lambda *case: (given, lambda: (reference()[0] + 100, 1.0)))
    assert small_tiles.main(["--emulate", "sm_90a"]) == 1
