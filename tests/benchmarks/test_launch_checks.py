"""Checks of the launch path: what runs without a driver is right here, and torch is asked for what it has."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy_torch
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path, str(FOLDER)])
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    before = set(sys.modules)
    yield importlib.import_module("launch_checks")
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
            del sys.modules[name]


def test_threads_on_the_emulator(checks: Any, tmp_path: Path) -> None:
    done = checks.units.Units(tmp_path / "none", keep=False)
    (row,) = checks.run_checks(done, checks.Space(), on_gpu=False)
    assert row["error"] == 0


class OfNumPy:
    """A Space on a stand-in for torch, whose graphs replay nothing."""

    def __init__(self, checks: Any):
        self.torch = numpy_torch.module()
        self.plain = checks.Space()
        self.host = self.plain.host

    def array(self, shape: Any, dtype: Any) -> Any:
        a, want = self.plain.array(shape, dtype)
        return a.view(numpy_torch.Tensor), want

    def empty(self, shape: Any, dtype: Any) -> Any:
        return self.plain.empty(shape, dtype).view(numpy_torch.Tensor)


def test_what_needs_a_gpu_runs_on_one_of_numpy(checks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    space = OfNumPy(checks)
    monkeypatch.setattr(checks, "SHAPE", (8, 512))
    monkeypatch.setattr(checks, "CALLS", 1)
    assert checks.streams(space)["error"] == 0


def test_a_graph_that_replays_nothing_is_found(checks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    space = OfNumPy(checks)
    monkeypatch.setattr(checks, "SHAPE", (8, 512))
    assert checks.graph(space)["error"] == np.inf
    assert checks.bound_graph(space)["error"] == np.inf
