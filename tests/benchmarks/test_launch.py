"""The benchmark of host time runs end to end against the stand-ins for drivers, and calls cost what they may."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "launch.py"


@pytest.mark.slow
@pytest.mark.parametrize("side", ["cuda", "hip"])
def test_calls_cost_what_they_may(monkeypatch, side):
    spec = importlib.util.spec_from_file_location("launch_under_test", PATH)
    benchmark = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, benchmark)
    spec.loader.exec_module(benchmark)
    rows = {row["arrays"]: row for row in benchmark.on_standin(side, 3)}
    assert set(rows) >= {"torch", "DLPack"}
    # A machine that does other work is slower: three times what is asked for still tells a short way from a long one,
    # which takes more than 50 us.
    assert rows["torch"]["call_us"] <= 3 * benchmark.CALL_US
    bound = [row["bound_us"] for row in rows.values() if "bound_us" in row]
    assert bound and max(bound) <= 3 * benchmark.BOUND_US
