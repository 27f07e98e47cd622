"""The predictions of the GPU benchmarks: rows of both are compiled and replayed, none above what the chip can do."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import wavedsl as wd

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "predicted.py"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(PATH.parent))
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    spec = importlib.util.spec_from_file_location("predicted_under_test", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_rows_of_both_benchmarks(benchmark, tmp_path, capsys):
    assert benchmark.main(["--cases", "fp8", "gemv", "rms_norm", "split_k", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "nothing measured" in said and "8192 x 8192 x 8192" in said
    rows = json.loads((tmp_path / "predicted.json").read_text())["rows"]
    assert [row["case"] for row in rows] == ["fp8"] + ["rms_norm"] * 3 + ["gemv"] * 2 + ["split_k"] * 2
    assert all(0 < row["of bound"] <= 1 and row["us"] >= row["bound us"] for row in rows)
    assert rows[0]["bound by"] == "compute" and rows[1]["bound by"] == "memory"
    deep, square = rows[-2:]
    # Two launches, and what lies between them; one whose clusters add the parts.
    assert len(deep["workgroups"]) == 2 and deep["us"] > deep["us by"]["replay"] + 1
    assert square["workgroups"] == [128]


def test_few_units_do_not_fill_memory(benchmark):
    """As measured on an H200: 16 SMs have half of memory's rate, 66 nearly all."""
    chip = benchmark.model()
    assert 0.4 * chip.dram_rate < 16 * chip.unit_rate < 0.55 * chip.dram_rate
    assert 66 * chip.unit_rate > 0.93 * chip.dram_rate


M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")


@wd.wave(
    [
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(N, BN, 1),
        wd.TilingConstraint(K, BK),
        wd.WaveConstraint(M, BM),
    ],
    subs={BM: 64, BN: 128, BK: 64},
)
def over_zeros(a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], c: wd.Memory[M, N, wd.bf16]):
    wd.write(wd.Register[M, N, wd.bf16](0), c)

    @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0)])
    def loop(acc):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(wd.cast(loop, wd.bf16), c)


def test_an_array_that_is_stored_by_a_map_and_from_registers(benchmark):
    """It has a hidden map beside its pointer, which is no argument."""
    a, b, c = (np.zeros(s, ml_dtypes.bfloat16) for s in ((128, 64), (128, 64), (128, 128)))
    assert any(p.name.startswith("_map") for p in over_zeros.compile(a, b, c, target="sm_90a").params)

    def launch():
        over_zeros.bind(a, b, c)
        return c.nbytes, 2 * 128 * 128 * 64, "bf16"

    row = benchmark.predicted(benchmark.Row("product", (128, 128, 64), "over zeros", launch))
    assert row["us"] >= row["bound us"] > 0
