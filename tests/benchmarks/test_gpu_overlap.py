"""The script that measures launches which begin early runs, and its processes compile what they are told to."""

from __future__ import annotations

from typing import Any

import benchmark_files
import pytest


@pytest.fixture
def overlap() -> Any:
    with benchmark_files.imported("gpu_overlap") as module:
        yield module


def test_it_runs_on_the_emulator(overlap: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(overlap, "CLOCKS", (0, 3500))
    assert overlap.main(["--emulate", "sm_90a"]) == 0
    assert "16 x 128 x 256" in capfd.readouterr().out


@pytest.mark.parametrize("clocks", [0, 3500])
def test_clocks_decide_what_is_asked_for(overlap: Any, clocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap.first_tiles, "EARLY_CLOCKS", clocks)
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    from wavedsl.strategies import kernels, plan_gemm

    kernels.tiled.cache_clear()  # kernels hold what they compiled before
    gemm, size = overlap.gemm_cases, (16, 192, 640)
    a, b, c = gemm.Products(overlap.Space(empty_arrays=True), gemm.BF16, size, False).sets[0]
    texts = [x.kernel.compile(*x.arguments, target="sm_90a").asm for x in plan_gemm(a, b, c, transpose_b=True).launches]
    assert any("bulk.prefetch" in text for text in texts) == (clocks > 0)
