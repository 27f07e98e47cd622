"""Timelines of replays: they tell what the timing adds up, change nothing of it, and a viewer can draw them."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from products import BK, BM, BN, K, M, N
from wavedsl.runtime.emulator.timeline import SHORT

import wavedsl as wd
from wavedsl.cli import main

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
LONG = ("vmcnt", "lgkmcnt", "barrier", "copies", "matrix", "mbarrier")
"""Reasons of waits that are hardly ever short."""
SUM = wd.Register[M, N, wd.f32]


@wd.wave(
    [
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(N, BN, 1),
        wd.TilingConstraint(K, BK),
        wd.WaveConstraint(M, BM / 2),
    ],
    subs={BM: 128, BN: 128, BK: 64},
)
def gemm(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f16]):
    @wd.iterate(K, init_args=[SUM(0)])
    def loop(acc: SUM) -> Any:
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(wd.cast(loop, wd.f16), c)


@lru_cache
def report(target: str, clusters: bool = False) -> Any:
    a, b = (np.ones((256, 512), np.float16) for _ in range(2))
    kernel = gemm if not clusters else wd.wave(
        list(gemm.constraints), subs=dict(gemm.subs), schedule=wd.Schedule(cluster=(2, 1, 1))
    )(gemm.function)  # fmt: skip
    c = np.zeros((256, 256), np.float16)
    return kernel.compile(a, b, c, target=target).emulate(a, b, c)


def spans(trace: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """By track."""
    found = defaultdict(list)
    for e in trace["traceEvents"]:
        if e["ph"] == "X":
            found[e["pid"], e["tid"]].append(e)
    return found


def names(trace: dict[str, Any]) -> dict[tuple[int, int], str]:
    return {
        (e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"
    }  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_tracks(target: str) -> None:
    ran = report(target)
    trace = ran.timeline()
    timing = ran.replay()
    assert timing.cycles == ran.cycles, "the timeline changes nothing"
    called, waited, worked = names(trace), 0.0, 0.0
    for track, found in spans(trace).items():
        found.sort(key=lambda e: e["ts"])
        for first, second in pairwise(found):
            assert first["ts"] + first["dur"] <= second["ts"] + 1e-6, "no two spans of a track overlap"
        # Rates make parts of clocks, and what a kernel takes is rounded to whole ones.
        assert all(e["dur"] > 0 for e in found) and found[-1]["ts"] + found[-1]["dur"] < timing.cycles + 1
        if called[track].startswith(("wave", "warp")):
            assert sum(e["dur"] for e in found) == pytest.approx(found[-1]["ts"] + found[-1]["dur"] - found[0]["ts"])
            waits = [e for e in found if e["cat"] == "wait"]
            assert all(e["name"] in timing.stalls and e["dur"] >= SHORT and e["args"]["instruction"] for e in waits)
            waited += sum(e["dur"] for e in waits if e["name"] in LONG)
        elif "matrix unit" in called[track] or "tensor core" in called[track]:
            worked += sum(e["dur"] for e in found)
    most = sum(timing.stalls.get(name, 0) for name in LONG)
    assert 0.8 * most < waited <= 1.01 * most  # stalls are counted in whole clocks, spans are not
    share = timing.utilisation["mfma" if target.startswith("gfx") else "tensor"]
    assert worked >= 0.99 * share * 4 * timing.cycles > 0
    assert trace["metadata"]["complete"]
    assert any(__file__.rsplit("/", 1)[-1] in e["args"].get("line", "") for e in trace["traceEvents"] if "args" in e)


def test_roles() -> None:
    """One warp copies, others multiply, and both at once."""
    trace = report("sm_90a").timeline()
    called = set(names(trace).values())
    assert any(name.endswith("(bulk loads)") for name in called)
    assert any("(tensor core" in name for name in called) and not any("tensor core, bulk loads" in n for n in called)
    loads = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] == "bulk loads"]
    products = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"].startswith("tensor core")]
    assert {e["args"]["bytes"] for e in loads} == {16384}
    busy = (products[0]["ts"], max(e["ts"] + e["dur"] for e in products))
    assert any(busy[0] < e["ts"] + e["dur"] and e["ts"] < busy[1] for e in loads)


def test_clusters_have_tracks_per_workgroup() -> None:
    called = set(names(report("sm_90a", clusters=True).timeline()).values())
    for rank in range(2):
        assert any(f"of workgroup {rank} of the cluster" in name for name in called)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_bytes_on_their_way(target: str) -> None:
    """They begin and end with none."""
    trace = report(target).timeline()
    for name in {e["name"] for e in trace["traceEvents"] if e["ph"] == "C"}:
        there = [e["args"]["bytes"] for e in trace["traceEvents"] if e["name"] == name]
        assert there[-1] == 0 and min(there) >= 0 < max(there)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--subs", "M=128,N=128,K=128", "--target", "sm_90a"]
    assert main(["emulate", f"{__file__}:gemm", *sizes, "--timeline", str(tmp_path / "t.json")]) == 0
    assert "ui.perfetto.dev" in capsys.readouterr().out
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert main(["emulate", f"{__file__}:gemm", *sizes, "--timeline", str(tmp_path / "no" / "t.json")]) != 0
    assert "No such file" in capsys.readouterr().err


def test_nothing_ran() -> None:
    from wavedsl.runtime.emulator.report import EmulationReport

    with pytest.raises(ValueError, match="nothing ran"):
        EmulationReport().timeline()
