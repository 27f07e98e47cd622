"""`wavedsl.testing`: times, quantiles, tables, CSV files and plots; the device's clock on a stand-in driver."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from wavedsl.runtime import devices

import wavedsl as wd
from wavedsl.testing import Benchmark, Times, bench_compiled, do_bench, perf_report

M, BM = wd.symbols("M BM")


def test_times_and_quantiles():
    times = Times((4.0, 1.0, 3.0, 2.0), "wall")
    assert (times.best, times.median, times.count) == (1.0, 2.5, 4)
    assert [times.quantile(q) for q in (0, 0.5, 1)] == [1.0, 2.5, 4.0]


def test_do_bench_counts_milliseconds():
    calls = []

    def work() -> None:
        calls.append(time.sleep(0.002))

    assert 2.0 <= do_bench(work, warmup=1, rep=10, return_mode="min") < 50
    assert len(calls) >= 3
    everything = do_bench(work, warmup=0, rep=10, return_mode="all")
    assert len(everything) >= 1 and min(everything) >= 2.0
    low, high = do_bench(work, warmup=0, rep=6, quantiles=[0.0, 1.0])
    assert 2.0 <= low <= high


def test_what_do_bench_refuses():
    with pytest.raises(wd.ConstraintError, match="return_mode='fast'"):
        do_bench(lambda: None, return_mode="fast")
    with pytest.raises(wd.ConstraintError, match="quantiles"):
        do_bench(lambda: None, quantiles=[50])


def test_a_compiled_kernel_on_the_emulator_is_timed_by_the_wall():
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0)], subs={BM: 64})
    def copy(a: wd.Memory[M, wd.f32], b: wd.Memory[M, wd.f32]):
        wd.write(wd.read(a), b)

    a, b = np.ones(64, np.float32), np.zeros(64, np.float32)
    times = bench_compiled(copy.compile(a, b, target="gfx942"), [a, b], devices.parse("emulator:gfx942"), 0.0, 0.001)
    assert times.clock == "wall" and times.count >= 1 and (b == 1).all()


SQUARES = Benchmark(
    x_names=["n"], x_vals=[1, 2, 4], line_arg="provider", line_vals=["square", "none", "spread"],
    line_names=["n squared", "nothing", "with spread"], plot_name="squares", ylabel="units",
)  # fmt: skip


@perf_report(SQUARES)
def squares(n: int, provider: str, scale: float = 1.0):
    if provider == "none":
        return None
    return scale * n * n if provider == "square" else (n, n - 0.5, n + 0.5)


def test_a_report_is_a_table(capsys):
    (table,) = squares.run(print_data=True)
    assert table.heads == ("n", "n squared", "nothing", "with spread")
    assert table.rows == ((1, 1.0, None, 1), (2, 4.0, None, 2), (4, 16.0, None, 4))
    assert "squares:" in capsys.readouterr().out
    assert squares.run(scale=2.0)[0].rows[2][1] == 32.0


def test_a_report_is_saved_with_its_plot(tmp_path: Path):
    pytest.importorskip("matplotlib")
    squares.run(save_path=tmp_path)
    assert (tmp_path / "squares.csv").read_text().splitlines()[:2] == ["n,n squared,nothing,with spread", "1,1.0,,1"]
    assert (tmp_path / "squares.png").read_bytes()[:4] == b"\x89PNG"


def test_several_x_names_take_tuples():
    @perf_report(Benchmark(["m", "n"], [(2, 3), 4], "p", ["x"], ["x"], "areas", args={"k": 10}))
    def area(m, n, p, k):
        return m * n * k

    assert area.run()[0].rows == ((2, 3, 60), (4, 4, 160))


def test_benchmarks_that_cannot_be():
    with pytest.raises(wd.ConstraintError, match="2 line_vals, but 1 line_names"):
        Benchmark(["n"], [1], "p", ["a", "b"], ["a"], "wrong")
    with pytest.raises(wd.ConstraintError, match="one value per name"):
        perf_report(Benchmark(["n"], [(1, 2)], "p", ["a"], ["a"], "wrong"))(lambda n, p: 1).run()
