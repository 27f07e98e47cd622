"""Triton's kernels beside ours in one replay: on texts that Triton has compiled before, small, without Triton."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import example_files
import numpy as np
import pytest

import wavedsl as wd

VECTORS = Path(__file__).parents[1] / "vectors" / "triton"
beside = example_files.load("triton_ptx", example_files.BENCHMARKS)
NUMBERS = dict.fromkeys(("M", "N", "K"), "i32")
TILE = {"BM": 128, "BN": 128, "BK": 64, "UNITS": 3}
TEXTS: dict[str, dict[str, Any]] = {
    "gemm_persistent": {
        "name": "gemm f16", "kernel": "maps", "constants": {**TILE, "HALVES": False}, "room": 0,
        "types": {
            "a": "tensordesc<fp16[128,64]>", "b": "tensordesc<fp16[128,64]>", "c": "tensordesc<fp16[128,128]>",
            **NUMBERS,
        },
    },
    "gemm_roles": {
        "name": "gemm bf16", "kernel": "roles", "constants": {**TILE, "HALVES": True}, "room": 640,
        "types": {**dict.fromkeys("abc", "*bf16"), **NUMBERS},
    },
    "attention_causal": {
        "name": "attention 64 causal", "kernel": "attention", "room": 0,
        "constants": {"D": 64, "BM": 64, "BN": 64, "CAUSAL": True, "ROLES": False},
        "types": {**dict.fromkeys("qkvo", "tensordesc<bf16[64,64]>"), "lse": "*fp32", "scale": "fp32", "N": "i32"},
    },
}  # fmt: skip


def row(name: str) -> dict[str, Any]:
    """As `triton_cuda.py` prints it."""
    text = (VECTORS / f"{name}.ptx").read_text()
    warps, shared = map(int, re.findall(r"\d+", text.splitlines()[0])[-2:])
    return {**TEXTS[name], "options": {"num_stages": 3}, "threads": 32 * warps, "shared": shared, "text": text}


def text_of(name: str) -> Any:
    return beside.Text(**row(name))


@pytest.mark.parametrize("name", ["gemm_persistent", pytest.param("gemm_roles", marks=pytest.mark.slow)])
def test_a_product_is_checked_and_clocked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "ROUGH", (384, 128))
    text = text_of(name)
    beside.check_product(text)
    sampled = beside.Sampled()
    loaded, free = sampled.product(text, (384, 128, 256))
    assert 4 * 4 * 128 < free <= loaded  # four instructions of 128 clocks a trip
    # Three tiles in one round: the line through two lengths is where the whole loop is.
    deep = beside.LONG * 64 + 1024
    (line, _), (whole, _) = sampled.product(text, (384, 128, deep)), sampled.replayed(text, (384, 128, deep))
    # Warps with roles fall in and out of step over tens of trips: what a trip takes depends on where it is looked at.
    near = 1.5e-2 if name == "gemm_roles" else 2e-3
    assert line == pytest.approx(whole, rel=near) and (384, 128, deep) in {size for _, size in sampled.known}
    assert sampled.rough(text, (384, 128, 8192)) > 1.9 * sampled.rough(text, (384, 128, 4096))
    assert sampled.rough(text, (384, 256, 4096)) == 2 * sampled.rough(text, (384, 128, 4096))


def test_a_wrong_text_is_told() -> None:
    broken = row("gemm_persistent")
    broken["text"] = broken["text"].replace("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", "// ", 1)
    with pytest.raises((SystemExit, wd.WaveError)):
        beside.check_product(beside.Text(**broken))


def test_attention_is_checked_and_clocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside.gpu_attention, "TOKENS", 2048)
    text = text_of("attention_causal")
    beside.check_attention(text)
    short, long = (beside.attention_clocks(text, keys, beside.chips())[0] for keys in (512, 1024))
    assert 1.2 * short < long < 4 * short  # as many queries, nearly twice the keys of each, and what a tile costs
    worse = row("attention_causal")
    worse["text"] = worse["text"].replace("0fC9742400", "0f00000000")  # the mask's -1e6
    assert worse["text"] != text.text
    with pytest.raises(SystemExit, match="wrong result"):
        beside.check_attention(beside.Text(**worse))


@pytest.mark.parametrize("total", [8, 31, 32, 128])
def test_sampled_tiles_have_the_mean_of_all(total: int) -> None:
    found = beside.middles(total, 4)
    assert len(found) == 4 and np.mean(found) == (total - 1) / 2


@pytest.mark.slow
def test_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setattr(beside, "ROWS", {"squares bf16": ((256, 384, 256),)})
    monkeypatch.setattr(beside, "ROUGH", (384, 128))
    monkeypatch.setattr(beside, "KEYS", 256)
    monkeypatch.setattr(beside.gpu_attention, "TOKENS", 256)
    monkeypatch.setenv("WAVEDSL_DEVICE", "")
    kernels = [row("gemm_roles"), row("attention_causal")]
    texts = tmp_path / "texts.json"
    texts.write_text(json.dumps({"version": "3.9.0", "kernels": kernels}))
    out = tmp_path / "rows.json"
    named = {x["name"] for x in kernels}
    monkeypatch.setattr(beside, "rows", lambda rows=beside.rows: (r for r in rows() if r.name in named))
    assert beside.main(["--texts", str(texts), "--json", str(out)]) == 0
    said = capsys.readouterr().out
    assert "nothing measured" in said and "256 x 384 x 256" in said
    written = json.loads(out.read_text())
    assert written["triton"] == "3.9.0" and "nothing measured" in written["note"]
    product, attention = written["rows"]
    assert product["triton"].startswith("roles 128x128x64/3 12 warps") and product["ours"]
    # Once more beside these rows: our side is theirs, and so are Triton's choices.
    kept = {
        **written,
        "rows": [{**product, "us": 7.0, "tried": [{"what": "x", "us": 1e9, "us without L2": 1e9}]}, attention],
    }
    (tmp_path / "earlier.json").write_text(json.dumps(kept))
    again = ["--texts", str(texts), "--beside", str(tmp_path / "earlier.json"), "--json", str(out)]
    assert beside.main(again) == 0
    first, second = json.loads(out.read_text())["rows"]
    assert first["us"] == 7 and [x["what"] for x in first["tried"]][-1] == "x" and len(first["tried"]) == 2
    assert second["us"] == attention["us"] and len(second["tried"]) == 1
    assert second["triton us"] == attention["triton us"]
    for one in (product, attention):
        assert one["ratio"] == one["triton us"] / one["us"] and 0 < one["of bound"] <= 1
        assert beside.reached(one) == (one["ratio"] >= 1.05 or one["of bound"] >= 0.92)
