"""Clocks of atomics that give nothing back: words of L2 change once a clock, whichever units ask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from wavedsl.runtime.emulator.cycle_queue import Launch, fullest
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

B, N = wd.symbols("B N")


@wd.wave([wd.WorkgroupConstraint(N, 1024, 0)])
def sums(at: wd.Memory[N, wd.i32], bins: wd.Memory[B, wd.f32]):
    wd.atomic_add(1.0, bins[wd.read(at)])


@wd.wave([wd.WorkgroupConstraint(N, 1024, 0)])
def claims(at: wd.Memory[N, wd.i32], bins: wd.Memory[B, wd.i32], old: wd.Memory[N, wd.i32]):
    wd.write(wd.atomic_add(1, bins[wd.read(at)]), old)


def around(report: Any) -> Launch:
    """What a report's clocks take for what else runs."""
    found: Launch = report._launch(None)
    return found


@pytest.mark.parametrize(("words", "turns", "lines"), [
    ([0, 0, 0, 1], 3, 1), ([0, 1, 2, 3], 1, 1), ([0, 8, 8, 16], 4, 3), ([5], 1, 1), ([9, 9, 1, 1, 1], 5, 2),
])  # fmt: skip
def test_changes_that_wait_for_each_other(words: list[int], turns: int, lines: int) -> None:
    found = fullest(np.array(words), 3)
    assert found[0] == turns and len(found[1]) == lines


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "sm_80", "sm_90a"])
def test_where_units_meet(target: str) -> None:
    """One place is worse than one line, that worse than many; who asks what was there is taken for alone."""
    n = 1 << 18
    places = {"one": np.zeros(n, np.int32), "line": np.arange(n, dtype=np.int32) % 8,
              "many": np.arange(n, dtype=np.int32) * 8 % 4096}  # fmt: skip
    clocks, turns = {}, {}
    for name, at in places.items():
        bins = np.zeros(4096, np.float32)
        report = sample(sums.compile(at, bins, target=target), [at, bins])
        launch = around(report)
        clocks[name], turns[name] = report.replay().cycles, launch.turns
        alone = report.replay(replace(launch, turns=0.0)).cycles
        assert alone <= clocks[name] and (alone < clocks[name]) == (name != "many")
    assert clocks["one"] > 1.8 * clocks["line"] > 3.6 * clocks["many"]  # a lane has four neighbours: 64, 32 and 1 turn
    assert turns["one"] == turns["line"] > turns["many"] > 0
    asked = [places["one"], np.zeros(4096, np.int32), np.zeros(n, np.int32)]
    assert around(sample(claims.compile(*asked, target=target), asked)).turns == 0
