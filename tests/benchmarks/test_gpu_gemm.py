"""The GEMM benchmark runs end to end: on the emulator, and with a torch of NumPy arrays in the place of a GPU."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import sys
import types
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy_torch
import pytest

import wavedsl as wd

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_gemm.py"
FEW_CHECKS = ("dtype bf16 to bf16", "epilogue bias relu, fp8", "cluster, persistent")


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(PATH.parent))
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    spec = importlib.util.spec_from_file_location("gpu_gemm_under_test", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cases(benchmark):
    return importlib.import_module("gemm_cases")


def test_it_runs_on_the_emulator(benchmark, capsys, tmp_path):
    chosen = ["--checks", *FEW_CHECKS, "--cases", "squares bf16"]
    assert benchmark.main(["--tiny", "--out", str(tmp_path), *chosen]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in (*FEW_CHECKS, "squares bf16"))
    assert said.rstrip().splitlines()[-1].startswith("squares bf16")  # the table comes last
    written = json.loads((tmp_path / "gpu_gemm_tiny.json").read_text())
    assert "commit" in written and written["date"] and len(written["checks"]) == 3
    (row,) = written["rows"]
    assert row["error"] <= 1 and set(row["seconds"]) == {"wavedsl", "numpy"} and row["clock"] == "wall"
    assert (tmp_path / "gpu_gemm_tiny.png").stat().st_size > 1000


@pytest.mark.slow
def test_every_check_and_case_on_the_emulator(benchmark, capsys, tmp_path):
    assert benchmark.main(["--tiny", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for named in (*benchmark.CHECKS, *benchmark.CASES):
        assert named.name in said


@pytest.mark.exhaustive
def test_kernels_are_right_on_the_32_lane_path(benchmark, tmp_path):
    hopper = ("fp8", "f8", "tf32", "cluster", "persistent", "no roles", "operands", "input", "ping-pong", "dependent")
    checks = [c.name for c in benchmark.CHECKS if not any(word in c.name for word in hopper)]
    assert benchmark.main(["--tiny", "sm_80", "--out", str(tmp_path), "--cases", "--checks", *checks]) == 0


def test_all_that_is_asked_for_is_there(benchmark):
    """The cases of the goal, one by one."""
    sizes = {case.name: set(case.sizes) for case in benchmark.CASES}
    for name in ("squares bf16", "squares f16"):
        assert sizes[name] == {(n, n, n) for n in (4096, 8192, 16384)}
    assert sizes["depths"] == {(8192, 8192, 1 << e) for e in range(8, 15)}
    tokens = (16, 64, 128, 512, 2048, 8192)
    assert sizes["mlp up"] == {(t, i, h) for h, i in ((4096, 14336), (8192, 28672)) for t in tokens}
    assert sizes["mlp down"] == {(t, h, i) for h, i in ((4096, 14336), (8192, 28672)) for t in tokens}
    assert sizes["fp8"] == {(8192, 8192, 8192)}
    kinds = " ".join(check.name for check in benchmark.CHECKS)
    for kind in ("bf16", "f16", "tf32", "f8e4m3", "f8e5m2", "i8", "alpha beta", "bias", "gelu", "silu", "input a",
                 "block scales", "batched", "grouped", "split-K", "stream-K", "cluster", "persistent"):  # fmt: skip
        assert kind in kinds


@pytest.mark.parametrize("wrong", ["one element", "one never written"])
def test_a_wrong_result_is_reported(benchmark, cases, capsys, monkeypatch, tmp_path, wrong):
    right = cases.kernels.product

    def broken(form, config):
        kernel = right(form, config)

        def call(a, b, c):
            kernel(a, b, c)
            found = np.float64(c[3, 5])
            c[3, 5] = np.nan if wrong == "one never written" else found + 0.1 + 0.05 * abs(found)

        return types.SimpleNamespace(bind=lambda a, b, c: lambda: call(a, b, c))

    monkeypatch.setattr(cases.kernels, "product", broken)
    chosen = ["--skip-checks", "--cases", "squares bf16"]
    assert benchmark.main(["--tiny", "--out", str(tmp_path), *chosen]) == 1
    assert "WRONG: squares bf16" in capsys.readouterr().err


def test_what_fails_takes_nothing_with_it(benchmark, cases, capsys, monkeypatch, tmp_path):
    """A check and a case that raise are rows that say so; a candidate that is wrong is named and passed over."""
    right = cases.kernels.product

    def broken(form, config):
        if form.dtype is wd.f16:
            raise RuntimeError("an illegal memory access\nwas encountered")
        kernel = right(form, config)

        def forgets(a, b, c):
            before = c[3, 5].copy()
            kernel(a, b, c)
            c[3, 5] = before  # right only where another candidate has written it

        return types.SimpleNamespace(bind=lambda a, b, c: lambda: forgets(a, b, c)) if config is both[0] else kernel

    monkeypatch.setattr(cases.kernels, "product", broken)
    both = [cases.Config(64, 64, bk, 64, 64) for bk in (128, 64)]
    monkeypatch.setattr(cases, "candidates", lambda form, m, tiny: both)

    def time_of(torch, calls, seconds=None):
        for call in calls:
            call()
        return 0.1, "wall"

    monkeypatch.setattr(benchmark, "median_time", time_of)
    chosen = ["--checks", "dtype f16 to f32", "--cases", "squares f16", "squares bf16"]
    assert benchmark.main(["--tiny", "--out", str(tmp_path), *chosen]) == 1
    written = json.loads((tmp_path / "gpu_gemm_tiny.json").read_text())
    assert written["checks"][0]["failed"] == "RuntimeError: an illegal memory access"
    good, bad = written["rows"]
    assert bad["failed"].startswith("RuntimeError") and good["error"] <= 1
    assert good["tiles"] == str(both[1]) and list(good["wrong"]) == [str(both[0])]
    assert f"WRONG: squares bf16 [72, 72, 72] {both[0]}" in capsys.readouterr().err


def test_a_budget_leaves_the_rest_out(benchmark, tmp_path):
    chosen = ["--checks", "dtype bf16 to bf16", "--cases", "squares bf16"]
    assert benchmark.main(["--tiny", "--out", str(tmp_path), "--budget", "-1", *chosen]) == 1
    written = json.loads((tmp_path / "gpu_gemm_tiny.json").read_text())
    assert all(row["failed"] == "left out: the time was used up" for row in (*written["checks"], *written["rows"]))


def test_products_of_few_rows_are_tried_in_several_plans(benchmark, cases, monkeypatch):
    """Each is another way to cut the product, `matmul`'s own first, and right; there may be fewer."""
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    ways = cases.ways(cases.BF16, 128, False)
    plans = {name: way for name, way in ways.items() if isinstance(way, benchmark.Planned)}
    assert list(plans) == ["strategy", *(f"strategy {i}" for i in range(2, 7))]
    assert [str(way) for way in cases.ways(cases.BF16, 4096, False).values()][-1] == "strategy"
    case = benchmark.Case("mlp down", cases.BF16, ((128, 128, 2048),), (), 0.95)
    held = benchmark.Held(benchmark.Space(None), case, case.sizes[0], True)
    found = {name: benchmark.trial(held, plans[name], True) for name in ("strategy", "strategy 2", "strategy 3")}
    assert all(trial["error"] <= 1 for trial in found.values()), found
    assert len({trial["does"] for trial in found.values()}) == 3
    assert "there are" in benchmark.trial(held, benchmark.Planned(500), True)["unfit"]


# ------------------------------------------------------------------------------------------- in the place of a GPU


def no_strategy(a, b, c, place=0):
    raise wd.LaunchError("no plan for these")


def test_as_on_a_gpu(benchmark, cases, capsys, monkeypatch, tmp_path):
    """Candidates are tried, operands rotated, times taken from graphs, rivals compared and missing ones explained."""
    torch = numpy_torch.module()
    monkeypatch.setattr(benchmark, "_torch_with_gpu", lambda: torch)
    monkeypatch.setattr(benchmark, "GRAPH_SECONDS", 1e-4)
    monkeypatch.setattr(benchmark, "WARM", 0.01)
    monkeypatch.setattr(cases, "ROTATED_BYTES", 50_000)
    monkeypatch.setattr(cases, "candidates", lambda form, m, tiny: [
        cases.Config(64, 64, 1024 // form.dtype.bits, 64, 64), cases.Config(64, 1 << 12, 64, 64, 1 << 12),
    ])  # fmt: skip
    monkeypatch.setattr(cases, "strategy", no_strategy)
    size = (40, 48, 64)
    products = [benchmark.Case("depths", cases.BF16, (size,), (), 0.95, 1.0),
                benchmark.Case("fp8", cases.E4M3, (size,), (), 1.0)]  # fmt: skip
    monkeypatch.setattr(benchmark, "CASES", tuple(products))
    monkeypatch.setitem(sys.modules, "triton", None)
    with contextlib.suppress(SystemExit):
        assert benchmark.main(["--skip-checks", "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "gpu_gemm.json").read_text())
    assert written["gpu"]["name"] == "NVIDIA H200" and written["gpu"]["cuda"] == "0"
    depths, fp8 = written["rows"]
    for row in (depths, fp8):
        assert row["error"] <= 1 and row["clock"] == "graph" and row["tiles"].startswith("64x64")
        assert set(row["seconds"]) == {"wavedsl", "cublas"} and "triton" in row["missing"]["triton tma"]
        assert "Error" in row["tried"]["64x4096x64/64x4096"]  # what does not fit is left out, and said
        assert row["of_cublas"] == 1.0 and row["of_triton"] is None and 0 < row["of_roofline"] < 1
        assert row["reached"] is True
        assert {name: len(times) for name, times in row["slices"].items()} == dict.fromkeys(
            ("wavedsl", "cublas"), benchmark.SLICES
        )
    assert {graph.replays for graph in torch.graphs} >= {benchmark.REPLAYS + 1, benchmark.SLICES}
    said = capsys.readouterr().out
    assert "depths: geometric mean of the ratios to cuBLAS 1.000, asked for 1.0" in said


@pytest.mark.parametrize("count", range(1, 7))
def test_orders_favour_nobody(benchmark, count):
    """Each stands in each place, and directly behind each other one, equally often."""
    names = "abcdef"[:count]
    orders = benchmark.balanced(names)
    assert all(sorted(order) == list(names) for order in orders)
    for place in range(count):
        assert len(set(Counter(order[place] for order in orders).values())) == 1
    pairs = Counter(pair for order in orders for pair in pairwise(order))
    assert len(pairs) == count * (count - 1) and len(set(pairs.values())) <= 1


def test_providers_are_timed_in_turns(benchmark, monkeypatch):
    """Finalists warm the chip up and the one that lasts best is ours; then each provider has its slices, between the
    others'. A clock that falls all the time is nobody's fault."""
    ran, own = [], {"first": 1.0, "second": 0.9, "rival": 0.9}

    def repeated(torch, calls, seconds=None):
        def run():
            ran.append(calls[0])
            return own[calls[0]] * (1 + len(ran) / 1000)

        return run, "graph"

    monkeypatch.setattr(benchmark, "repeated", repeated)
    monkeypatch.setattr(benchmark, "WARM", 0.01)
    products = types.SimpleNamespace(calls=lambda bind: [bind()])
    held = types.SimpleNamespace(space=types.SimpleNamespace(torch=object()), products=products)
    found = benchmark.together(held, {n: lambda n=n: n for n in ("first", "second")}, {"rival": lambda: "rival"})
    assert found["best"] == "second" and set(found["lasting"]) == {"first", "second"}
    behind = ran[ran.index("rival") - 1 :] if ran[ran.index("rival") - 1] == "second" else ran[ran.index("rival") :]
    assert "first" not in behind[1:] and behind.count("rival") == behind.count("second") == benchmark.SLICES
    ours, theirs = (benchmark.middle(found["slices"][name]) for name in ("second", "rival"))
    assert abs(ours / theirs - 1) < 0.001
    assert benchmark.middle([9.0, 1.0, 2.0, 4.0, 0.0]) == 7 / 3


@pytest.mark.parametrize(
    ("ours", "cublas", "triton", "roofline", "reached"),
    [
        (1.0, 1.0, 1.1, 0.9, True),
        (1.0, 0.99, 1.1, 0.9, False),  # slower than cuBLAS
        (1.0, 1.0, 1.04, 0.9, False),  # not far enough from Triton
        (1.0, 1.0, 1.04, 0.93, True),  # but near the roofline
        (1.0, None, None, None, None),
    ],
)
def test_what_is_asked_for(benchmark, ours, cublas, triton, roofline, reached):
    seconds = {"wavedsl": ours, "cublas": cublas, "triton": 2.0 if triton else None, "triton tma": triton}
    row = {"seconds": {name: s for name, s in seconds.items() if s is not None}, "roofline": roofline}
    found = benchmark.judged(benchmark.CASES[0], row)
    assert found["reached"] is reached
    assert cublas is None or math.isclose(found["of_cublas"], cublas / ours)


def test_full_sizes_compile(benchmark, cases, capsys, monkeypatch):
    """Candidates of a case, the plan of the strategies, and checks; nothing runs and no array is read."""
    config = cases.Config(64, 192, 128, 64, 192)
    monkeypatch.setattr(cases, "candidates", lambda form, m, tiny: [config])
    chosen = ["--checks", "split-K", "grouped", "epilogue alpha beta", "--cases", "fp8"]
    assert benchmark.main(["--compile", "sm_90a", *chosen]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "5 kernels for sm_90a, 0 failures, 0 with notes"


def test_a_rehearsal_names_what_spills_and_what_fails(benchmark, cases, capsys, monkeypatch):
    from wavedsl.runtime import toolchain

    entry = toolchain.PtxasEntry("plain", "sm_90a", 168, 8, 4, 16, 0, 0)
    result = toolchain.PtxasResult(b"", (entry,), ("(C7510) serialized",), "")
    monkeypatch.setattr(toolchain, "find_cuda_tool", lambda name: name)
    monkeypatch.setattr(toolchain, "assemble_ptx", lambda text, arch: result)
    small, large = (cases.Config(size, size, 64, 64, 64) for size in (64, 512))
    monkeypatch.setattr(cases, "candidates", lambda form, m, tiny: [small, large])
    monkeypatch.setattr(cases, "strategy", lambda a, b, c, place=0: None)
    assert benchmark.main(["--compile", "sm_90a", "--skip-checks", "--cases", "fp8"]) == 1
    failed, noted, last = capsys.readouterr().out.splitlines()
    assert failed.startswith("FAILED: fp8 (8192, 8192, 8192) 512x512x64/64x64: ")
    assert noted.endswith("plain, 168 registers: 8 bytes of spills; (C7510) serialized") and "NOTE" in noted
    assert last == "1 kernels for sm_90a, 1 failures, 1 with notes"


@pytest.mark.slow
def test_every_check_compiles_at_its_full_size(benchmark):
    """As on the chip: tiny sizes say nothing of how many tiles a cluster divides."""
    rehearsal = benchmark.Rehearsal("sm_90a")
    benchmark.compile_all(benchmark.CHECKS, (), rehearsal)
    assert not rehearsal.failed and rehearsal.kernels >= len(benchmark.CHECKS) / 2
