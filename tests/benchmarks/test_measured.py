"""The page of what was measured says what the results say."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_the_page_is_that_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(FOLDER)])
    before = set(sys.modules)
    measured = importlib.import_module("measured")
    page, shown = measured.page(FOLDER / "results"), measured.panels(measured.session_in(FOLDER / "results"))
    drawn = measured.drawn_from(measured.PICTURE)
    others = [replace(shown[0], unit="GFLOP/s"), *shown[1:]]
    digests = measured.digest(shown), measured.digest(others)
    ours, theirs = [1.0, 2.0, 4.0, 8.0], [1.1, 2.0, 4.4, 8.0]
    said = measured._turns({"slices": {"wavedsl": ours, "cublas": theirs}, "turns": {}})
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
            del sys.modules[name]
    assert page == measured.PAGE.read_text(), "python benchmarks/measured.py"
    assert drawn == digests[0] != digests[1], "python benchmarks/measured.py"
    assert [len(panel.labels) for panel in shown[:2]] == [37, 48]
    assert said == "1.000 to 1.100"
    assert "| squares bf16 | 8192 x 8192 x 8192 |" in page
