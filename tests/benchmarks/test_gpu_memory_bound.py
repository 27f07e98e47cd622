"""The memory-bound benchmark runs end to end at tiny sizes on the emulator, and its full sizes compile for the chip."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy_torch
import pytest

from wavedsl.strategies import GEMM_STRATEGIES
from wavedsl.testing import Times

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_memory_bound.py"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(PATH.parent))
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    spec = importlib.util.spec_from_file_location("gpu_memory_bound_under_test", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_every_case_is_right_on_the_emulator(benchmark, capsys):
    assert benchmark.main(["--emulate", "sm_90a"]) == 0
    said = capsys.readouterr().out
    for case in benchmark.CASES:
        assert case.name in said
    names = {"copy", "elementwise", "softmax", "rms_norm", "row_sum", "transpose", "gemv", "skinny", "small_k"}
    names |= {"split_k", "stream_k", "grouped", "f32", "f32 A B", "f32 3xtf32", "f32 3xtf32 A B", "f64"}
    assert names == {case.name for case in benchmark.CASES}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "sm_80"])
def test_every_case_is_right_elsewhere(benchmark, target):
    assert benchmark.main(["--emulate", target]) == 0


def test_a_wrong_result_is_reported(benchmark, capsys, monkeypatch):
    right = importlib.import_module("memory_bound_cases").copied

    def broken(space, size):
        work = right(space, size)
        work.want = lambda: np.zeros(size)
        return work

    monkeypatch.setattr(benchmark, "CASES", (benchmark.Case("copy", broken, [], [(5, 64)]),))
    assert benchmark.main(["--emulate", "sm_80"]) == 1
    assert "WRONG: copy" in capsys.readouterr().err


def test_streams_are_tried_in_all_their_cuts(benchmark, tmp_path):
    """Each cut is right on the emulator; a row says what was tried."""
    streams = [case for case in benchmark.CASES if case.name in (*benchmark.STREAMS, "transpose")]
    done = benchmark.units.Units(tmp_path / "rows.json", keep=False)
    rows = benchmark.run_cases(done, benchmark.Space(), streams, timing=False, tiny=True)
    for case, row in zip(streams, rows):
        assert list(row["tried"]) == [str(cut) for cut in case.cuts(case.tiny[0])]
        assert "wrong" not in row and "failed" not in row
    assert len(rows[0]["tried"]) > 1


@pytest.mark.parametrize("name", ["f32 3xtf32", "f32 3xtf32 A B"])
def test_errors_of_a_precision_stand_in_the_row(benchmark, tmp_path, name):
    """Ours, and on a GPU cuBLAS', of which the goal's line is made."""
    (case,) = (case for case in benchmark.CASES if case.name == name)
    done = benchmark.units.Units(tmp_path / "rows.json", keep=False)
    (row,) = benchmark.run_cases(done, benchmark.Space(), [case], timing=False, tiny=True)
    assert 0 < row["errors"]["wavedsl"] < 2e-7
    row["errors"]["torch"] = 2 * row["errors"]["wavedsl"]
    (line,) = (x for x in benchmark.criteria([row]) if "error" in x[1] and x[0] == name)
    assert line[2] == pytest.approx(2.0) and line[3] == 1.0


def test_rows_are_cut_by_what_a_lane_can_hold(benchmark):
    """Waves share long rows and have short ones to themselves; what rows pass by is tried beside weights only."""
    cuts = benchmark.kernels.row_cuts
    assert [cut.waves for cut in cuts(4096)] == [4, 2, 8, 16] and [cut.waves for cut in cuts(16384)] == [4, 8, 16]
    short = [(cut.rows, cut.waves, cut.each) for cut in cuts(1024)]
    assert short == [(1, 4, 1), (1, 2, 1), (4, 1, 1), (8, 1, 1), (4, 1, 2), (8, 1, 2)]
    assert {cut.each for cut in cuts(2048)} == {1}
    shared = cuts(16384, shared=True)
    assert shared[:3] == cuts(16384) and {cut.cache for cut in shared[3:6]} == {"stream"}
    assert [cut.waves for cut in shared if cut.again] == [4, 8, 16]
    assert [cut.waves for cut in cuts(4096, shared=True) if cut.again] == [4]
    assert len({str(cut) for cut in shared}) == len(shared)


@pytest.mark.parametrize("size", [(11, 300), (8, 1024), (2, 4096)])
@pytest.mark.parametrize("name", ["softmax", "rms_norm", "layer_norm", "row_sum"])
def test_every_cut_of_a_row_kernel_agrees_with_numpy(benchmark, name, size):
    """Rows that workgroups have several of, also where the last has fewer."""
    wd, kernels = benchmark.wd, benchmark.kernels
    random, (m, n) = np.random.default_rng(4), size
    x, w, b = (random.standard_normal(shape).astype(np.float16) for shape in (size, n, n))
    wide, eps = x.astype(np.float64), 1e-5
    away = wide - wide.mean(1)[:, None]
    variance = (away * away).mean(1)
    e = np.exp(wide - wide.max(1)[:, None])
    for cut in kernels.row_cuts(n, shared=name != "row_sum"):
        c, s, t = np.full(size, np.nan, np.float16), *(np.full(m, np.nan, np.float32) for _ in range(2))
        kernel = getattr(kernels, name)(wd.f16, n, cut)
        given, results = {
            "softmax": ((x, c), [(c, e / e.sum(1)[:, None])]),
            "rms_norm": ((x, w, c, eps), [(c, wide / np.sqrt((wide * wide).mean(1)[:, None] + eps) * w)]),
            "layer_norm": (
                (x, w, b, c, s, t, eps),
                [(c, away / np.sqrt(variance[:, None] + eps) * w + b), (s, wide.mean(1)),
                 (t, 1 / np.sqrt(variance + eps))],
            ),
            "row_sum": ((x, s), [(s, wide.sum(1))]),
        }[name]  # fmt: skip
        kernel(*given)
        for found, want in results:
            np.testing.assert_allclose(found, want, rtol=4e-3, atol=4e-3, err_msg=f"{cut}")


def test_the_gpu_is_busy_until_the_host_has_started_a_call(benchmark):
    """The cache is filled once before what starts at once, and more often before what takes the host long: twice what
    it needs of a GPU's 1 ms."""
    reads = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            pass

        def elapsed_time(self, end):
            return 1.0

    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(Event=Event, synchronize=lambda: None))
    space = benchmark.Space(torch)
    space._other = types.SimpleNamespace(sum=lambda: reads.append(1))

    def fills(call):
        flush = space.flushed(call)
        reads.clear()
        flush()
        return len(reads)

    assert fills(None) == fills(lambda: None) == 1
    assert 6 <= fills(lambda: time.sleep(3e-3)) <= 20
    assert fills(lambda: time.sleep(30e-3)) == 20


def test_a_case_is_compared_with_a_copy_of_as_many_bytes(benchmark):
    """The faster of ours and torch's; what hardly differs in bytes shares it."""
    one, other = (8192 * 1024 * 4 + extra for extra in (0, 2048))
    assert benchmark.copy_size(one) == benchmark.copy_size(other) == (2048, 4096)
    assert benchmark.copy_size(5) == (16, 4096)
    times = {"wavedsl": 2e-5, "torch": 1e-5}
    rows = {
        f"copy of 2048 x 4096 by {p}": {"seconds": s, "bytes_per_second": one / s} for p, s in times.items()
    }  # fmt: skip
    found = benchmark._same_copy(benchmark.units.Kept(rows), benchmark.Space(), other)
    assert found == {"size": [2048, 4096], "seconds": 1e-5, "bytes_per_second": one / 1e-5}
    del rows["copy of 2048 x 4096 by torch"]
    assert benchmark._same_copy(benchmark.units.Kept(rows), benchmark.Space(), one) is None
    row = {"case": "copy", "size": [8192, 1024], "of_copy": 0.5, "of_same_copy": 0.95}
    lines = {(what, of): value for what, of, value, _ in benchmark.criteria([row])}
    assert lines["copy", "measured copy rate, least"] == 0.5
    assert lines["copy", "copy of as many bytes, least"] == 0.95


@pytest.mark.parametrize("provider", ["wavedsl", "torch"])
def test_a_copy_is_timed_as_a_case_is(benchmark, monkeypatch, provider):
    """The rate is of what it reads and writes."""
    space, calls = benchmark.Space(numpy_torch.module()), []
    monkeypatch.setattr(numpy_torch.Tensor, "copy_", lambda self, other: calls.append(other), raising=False)
    monkeypatch.setattr(benchmark, "_copy_alike", lambda space, size, a, b: lambda: calls.append(a))

    def seconds(space, call, warmup, rep):
        call()
        return types.SimpleNamespace(median=0.5)

    monkeypatch.setattr(benchmark, "_seconds", seconds)
    found = benchmark.copied_alike(space, (16, 4096), provider)
    assert found == {"seconds": 0.5, "bytes_per_second": 2 * 2 * 16 * 4096 / 0.5}
    assert len(calls) == 1 and calls[0].shape == (16, 4096)


def test_all_cuts_and_copies_are_compiled(benchmark):
    """What a session compiles ahead of the GPU."""
    names = []
    rehearsal = types.SimpleNamespace(run=lambda name, work: names.append(name))
    cases = [replace(case, sizes=[(8, 1024)]) for case in benchmark.CASES if case.name == "rms_norm"]
    benchmark.compile_all(cases, rehearsal)
    cuts = benchmark.kernels.row_cuts(1024, shared=True)
    assert names == [*(f"rms_norm (8, 1024) cut {cut}" for cut in cuts), "copy of (16, 4096)"]


def test_products_are_tried_in_several_ways(benchmark, tmp_path):
    """Each is right on the emulator, and a row names it; what a product has too few of does not fit."""
    cases = [case for case in benchmark.CASES if case.name in ("gemv", "split_k")]
    done = benchmark.units.Units(tmp_path / "rows.json", keep=False)
    for row in benchmark.run_cases(done, benchmark.Space(), cases, timing=False, tiny=True):
        assert "wrong" not in row and "failed" not in row
        named = [name for name, why in row["tried"].items() if why is None]
        assert len(named) >= 2 and row["cut"] == named[0]
        assert {name.split()[0] for name in named} <= set(GEMM_STRATEGIES)
    held = benchmark.Held(benchmark.Space(), cases[0], cases[0].tiny[0])
    held.work.named = lambda cut: cases[0].make(held.space, held.size).named(99)
    assert "there are" in benchmark.trial(held, 99, False)["unfit"]


def test_the_fastest_right_cut_is_timed(benchmark):
    """One is wrong, one does not fit, one failed; the faster of the others counts."""
    case = next(case for case in benchmark.CASES if case.name == "copy")
    size = case.sizes[0]
    held = benchmark.Held(benchmark.Space(empty_arrays=True), case, size)
    found = ({"seconds": 3.0, "error": 0.0}, {"seconds": 2.0, "error": 0.5}, {"seconds": 1.0, "error": 2.0},
             {"unfit": "ConstraintError: no"}, {"failed": "took more than 30 s"})  # fmt: skip
    cuts = case.cuts(size)
    done = benchmark.units.Kept({f"copy {size} cut {cut}": row for cut, row in zip(cuts, found, strict=True)})
    row = {}
    assert benchmark._tried(done, held, f"copy {size}", row, True) == [cuts[1], cuts[0]]
    assert row["cut"] == str(cuts[1]) and row["finalists"] == [str(cuts[1]), str(cuts[0])]
    assert row["wrong"] == {str(cuts[2]): 2.0}
    assert row["tried"][str(cuts[3])] == "ConstraintError: no" and row["tried"][str(cuts[0])] == 3.0


class Wanes:
    """A chip that takes 1 % longer for each slice; `seconds` of each call."""

    def __init__(self, seconds):
        self.seconds, self.called = seconds, []

    def bench(self, call, warmup, rep, flush):
        self.called.append(call)
        return Times((self.seconds[call] * 1.01 ** len(self.called),), "device")


def test_providers_take_turns(benchmark, monkeypatch):
    """What a chip's heat does to all of them does not tell: the best of the cuts that seemed fastest is found, and the
    ratio to a rival is theirs. What fails then is timed alone."""
    size = (4, 64)
    case = benchmark.Case("row_sum", None, [size], [], lambda size: ("slow", "fast"))
    held = benchmark.Held(benchmark.Space(), case, size)
    slow, fast, theirs = (lambda: None), (lambda: None), (lambda: None)
    calls = {"wavedsl": slow, "torch": theirs}
    held.work = benchmark.Work(calls, None, None, 0, 1000, bind={"slow": slow, "fast": fast}.get)
    chip = Wanes({slow: 1.02, fast: 1.0, theirs: 1.1})
    monkeypatch.setattr("wavedsl.testing.bench", chip.bench)
    found = benchmark.in_turn(held, ["slow", "fast"], ["torch"])
    assert found["best"] == 1 and set(found["slices"]) == {"wavedsl", "torch"}
    ours, rivals = (benchmark.middle(found["slices"][name]) for name in ("wavedsl", "torch"))
    assert rivals / ours == pytest.approx(1.1, rel=2e-3) and len(found["slices"]["torch"]) >= benchmark.TURNS
    alone = benchmark.in_turn(held, [None], [])
    assert alone["best"] == 0 and list(alone["slices"]) == ["wavedsl"] and chip.called[-1] is slow
    assert json.dumps(found)

    monkeypatch.setattr(benchmark, "Held", lambda *args: held)
    units = {"checked": {"bytes": 1000, "flops": 0, "error": 0.0}}
    units |= {f"cut {cut}": {"seconds": seconds, "error": 0.0} for cut, seconds in (("slow", 1.0), ("fast", 1.001))}
    units |= {f"by {x}": {"seconds": 9.0, "bytes_per_second": 1.0} for x in ("wavedsl, slow", "torch")}
    for turn, cut, rate in ((found, "fast", 1000 / ours), (None, "slow", 1.0)):
        more = {"in turn": turn} if turn else {}
        kept = benchmark.units.Kept({f"row_sum {size} {key}": row for key, row in (units | more).items()})
        row = benchmark.run_case(kept, held.space, case, size, True, None)
        assert row["cut"] == cut and row["wavedsl"]["bytes_per_second"] == pytest.approx(rate)
        assert "triton" in row["missing"] and units["by torch"] == {"seconds": 9.0, "bytes_per_second": 1.0}


def test_a_cut_whose_result_differs_is_wrong(benchmark):
    """What it leaves unwritten is, too."""
    case = next(case for case in benchmark.CASES if case.name == "copy")
    held = benchmark.Held(benchmark.Space(), case, (4, 64))
    assert benchmark.trial(held, case.cuts((4, 64))[0], False) == {"error": 0.0}
    held.work.bind = lambda cut: lambda: None
    assert benchmark.trial(held, None, False)["error"] == 0.0  # no cut: the case's own call
    assert benchmark.trial(held, (4, 512), False)["error"] == float("inf")
    held.work.bind = lambda cut: lambda: held.work.result.fill(1)
    assert benchmark.trial(held, (4, 512), False)["error"] == float("inf")


def test_a_result_of_f32_is_compared_with_a_copy(benchmark):
    """torch's `float()` gives such a tensor itself, which the next cut overwrites."""
    case = next(case for case in benchmark.CASES if case.name == "row_sum")
    held = benchmark.Held(benchmark.Space(numpy_torch.module()), case, (4, 64))
    result = np.zeros(4, np.float32).view(numpy_torch.Tensor)
    held.work = benchmark.Work(
        {"wavedsl": lambda: result.fill(2)}, result, None, 1e-3, 0, bind=lambda cut: lambda: result.fill(cut)
    )
    assert benchmark.trial(held, 2, False) == {"error": 0.0}
    assert benchmark.trial(held, 3, False)["error"] > 1


def test_rates_and_shares_are_of_what_was_measured(benchmark):
    """The table from rows as a GPU run makes them."""
    row = {"case": "copy", "size": [2, 4], "error": 0.0, "bytes": 1000}
    row |= {p: {"bytes_per_second": rate} for p, rate in (("wavedsl", 3e12), ("torch", 2e12), ("triton", 1e12))}
    text = benchmark.text(
        [row | {"of_copy": 1.0, "of_same_copy": 0.5}, {"case": "softmax", "size": [2, 4], "error": 0.5}]
    )
    first, second = text.splitlines()[2:]
    assert first.split()[4:] == ["3e+03", "2e+03", "1e+03", "1.5", "1", "0.5", "0"]
    assert second.split()[4:] == ["-", "-", "-", "-", "-", "-", "0.5"]
    assert json.dumps(row)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "gfx942"])
def test_the_full_sizes_compile(benchmark, target):
    assert benchmark.main(["--compile", target]) == 0


def test_without_a_gpu_nothing_is_timed(benchmark, capsys, monkeypatch):
    class Torch:
        class cuda:
            @staticmethod
            def is_available() -> bool:
                return False

    monkeypatch.setitem(sys.modules, "torch", Torch)
    assert benchmark.main([]) == 1
    assert "no GPU" in capsys.readouterr().err
