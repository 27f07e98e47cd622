"""`benchmarks/choices.py`: the ladder that `auto` is compared with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import benchmark_files
import pytest

from wavedsl.analysis.roofline import product_named


@pytest.fixture
def choices() -> Iterator[Any]:
    with benchmark_files.imported("choices") as module:
        yield module


@pytest.mark.parametrize("chip", ["MI300X", "A100", "H200"])
@pytest.mark.parametrize("case", ["bf16", "bf16 KN", "grouped", "batched"])
def test_a_ladder_begins_with_what_may_be_fastest(choices: Any, chip: str, case: str) -> None:
    """Its bounds ascend, and tiles of several sides are among those that may be as fast as any."""
    of = next(x for x in choices.CASES if x.name == case)
    ladder = choices.Work(of, of.sizes[1], product_named(chip)).ladder()
    bounds = [way.bound for way in ladder]
    assert bounds == sorted(bounds) and bounds[0] > 0
    assert len({(way.tiles.tile_m, way.tiles.tile_n) for way in ladder}) >= 5
    assert any(way.tiles.split > 1 for way in ladder) == (of.ragged is None)


@pytest.mark.parametrize("case", ["bf16", "grouped"])
def test_auto_is_among_those_that_are_compared(choices: Any, case: str, monkeypatch: Any, tmp_path: Any) -> None:
    """One small product of each kind, with the emitted text, written and read again."""
    monkeypatch.setattr(choices, "SHAPES", ((64, 128, 512),))
    monkeypatch.setattr(choices, "GROUPS", ((2, 40, 128, 256),))
    out = tmp_path / "rows.json"
    given = ["--chip", "MI300X", "--case", case, "--most", "2", "--text", "--json", str(out)]
    assert choices.main(given) == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert row["best us"] == min(x["us"] for x in row["every"]) <= row["us"]
    assert row["ratio"] == row["us"] / row["best us"] and row["best text"] > 0
    assert all(x["estimated"] > 0 for x in row["every"])
