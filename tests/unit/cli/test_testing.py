"""`wavedsl.testing`: times, quantiles, tables, CSV files and plots; the device's clock on a stand-in driver."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from source import assert_points_at
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
    for quantiles in ([50], 0.5, ["half"]):
        with pytest.raises(wd.ConstraintError, match="quantiles") as caught:
            do_bench(lambda: None, quantiles=quantiles)
        assert_points_at(caught.value, "do_bench(lambda: None, quantiles=quantiles)")
    for name, value in (("warmup", "x"), ("rep", -1), ("rep", float("inf"))):
        with pytest.raises(wd.ConstraintError, match=f"do_bench: {name}="):
            do_bench(lambda: None, **{name: value})


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
    with pytest.raises(wd.ConstraintError, match="wrong: 2 line_vals, but 1 styles"):
        Benchmark(["n"], [1], "p", ["a", "b"], ["a", "b"], "wrong", styles=[("blue", "-")])
    with pytest.raises(wd.ConstraintError, match="Benchmark has no option color") as caught:
        Benchmark(["n"], [1], "p", ["a"], ["a"], "wrong", color="blue")
    assert "styles=…" in caught.value.hint
    with pytest.raises(wd.ConstraintError, match="perf_report: 3 is no Benchmark") as caught:
        perf_report(3)
    assert_points_at(caught.value, "perf_report(3)")


def test_a_function_that_does_not_take_the_names():
    """Python's own error came out of a line of this package's."""
    report = perf_report(Benchmark(["n"], [1], "line", ["a"], ["a"], "times"))(lambda n, p: 1)
    with pytest.raises(wd.ConstraintError, match=r"times: <lambda> cannot be called: missing .*'p'") as caught:
        report.run()
    assert "def bench(n, line)" in caught.value.hint
    assert_points_at(caught.value, "report.run()")
    with pytest.raises(wd.ConstraintError, match="squares cannot be called") as caught:
        squares.run(return_df=True)
    assert "table.rows" in caught.value.hint


def test_lines_have_the_styles_of_tritons_reports(tmp_path: Path):
    pytest.importorskip("matplotlib")
    styles = [("blue", "-"), ("green", "--")]
    styled = Benchmark(["n"], [1, 2], "p", ["a", "b"], ["a", "b"], "styled", {}, styles=styles)
    perf_report(styled)(lambda n, p: n).run(save_path=tmp_path)
    assert (tmp_path / "styled.png").exists()
