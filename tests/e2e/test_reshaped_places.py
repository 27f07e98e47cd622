"""Reshapes of what is read, or written, as it is become places in memory where a wave lacks the registers: counts of
choices [T, K] of E experts as one row of T K were refused, or compiled for a quarter of a minute, with 700 spills."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree
from families import whole
from wavedsl.ir import pipeline
from wavedsl.ir.dataflow.reshaped_places import reshaped_places

import wavedsl as wd

B, T, K, S, E, P, Q, R = wd.symbols("B T K S E P Q R")
CHIPS = ("sm_80", "sm_90a", *TARGETS[:3])


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def ranks(ids: wd.Memory[B, T, K, wd.i32], count: wd.Memory[B, E, wd.i32], place: wd.Memory[B, T, K, wd.i32]):
    choice = wd.reshape(wd.read(ids), S)
    hot = wd.cast(choice == wd.index(E), wd.i32)
    wd.write(wd.sum(hot, dim=S), count)
    wd.write(wd.reshape(wd.sum((wd.cumsum(hot, dim=S) - 1) * hot, dim=E), T, K), place)


@pytest.mark.parametrize("target", CHIPS)
def test_waves_share_what_is_read_in_another_shape(target: str) -> None:
    ids = np.random.default_rng(0).integers(0, 60, (1, 128, 6)).astype(np.int32)
    given = [ids, np.zeros((1, 60), np.int32), np.zeros_like(ids)]
    compiled = agree(ranks, given, target, subs={S: 768, E: 60})
    if target.startswith("sm"):
        assert compiled.block[0] == 1024, "one wave had all choices, beside eight that shared the experts"


@pytest.mark.parametrize("target", CHIPS)
def test_more_choices_than_a_wave_could_hold(target: str) -> None:
    """Refused everywhere but on gfx950."""
    compiled = ranks.compile(target=target, subs={B: 8, T: 251, K: 6, S: 1506, E: 60})
    assert compiled.block[0] == 1024


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def several(
    x: wd.Memory[B, T, P, Q, wd.i32], y: wd.Memory[B, T, R, wd.i32], z: wd.Memory[B, S, Q, wd.i32],
    w: wd.Memory[B, S, Q, wd.i32],
):  # fmt: skip
    """A read as it is and in two other shapes, behind a write of what it has read; a result in two shapes."""
    value = wd.read(x)
    wd.write(value + 100, x)
    flat = wd.reshape(value, T, R) * 2
    wd.write(flat, y)
    other = wd.reshape(value, S, Q)
    wd.write(other + 1, z)
    wd.write(wd.reshape(value * 3, S, Q), w)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("shape", [(4, 3, 8), (5, 7, 9)], ids=str)
def test_places_mean_what_reshapes_mean(
    shape: tuple[int, int, int], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared, changed = pipeline.prepared, []

    def placed(graph: Any, *rest: Any, **options: Any) -> Any:
        graph = prepared(graph, *rest, **options)
        found = reshaped_places(graph, graph.subs)
        changed.append(sum(n.op == "reshape" for n in graph.all_nodes()) - sum(
            n.op == "reshape" for n in found.all_nodes()))  # fmt: skip
        return found

    monkeypatch.setattr(pipeline, "prepared", placed)
    t, p, q = shape
    x = whole(2, t, p, q, dtype=np.int32, low=-99, high=99)
    given = [x, *(np.zeros(s, np.int32) for s in ((2, t, p * q), (2, t * p, q), (2, t * p, q)))]
    several.compile(*given, target=target, subs={T: t, P: p, Q: q, S: t * p, R: p * q}).emulate(*given)
    assert changed[0] == 3
    was = x - 100
    for got, want in zip(given[1:], (2 * was, was + 1, 3 * was), strict=True):
        np.testing.assert_array_equal(got.ravel(), want.ravel())
