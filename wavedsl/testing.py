"""Benchmarking: `do_bench` times a function, `perf_report` runs one over sizes and providers and makes tables and
plots.

    @perf_report(Benchmark(x_names=["n"], x_vals=[1024, 4096], line_arg="provider", line_vals=["wavedsl", "torch"],
                           line_names=["wavedsl", "torch"], plot_name="copy", ylabel="GB/s"))
    def bench(n, provider):
        milliseconds = do_bench(lambda: ...)
        return 2e-6 * 4 * n / milliseconds

    bench.run(print_data=True, save_path="results")

Names and units follow Triton's `triton.testing`: times are in milliseconds. On a GPU the device's own clock counts,
with the L2 cache flushed before each call; without one it is the wall clock, which says nothing of a chip.
"""

from __future__ import annotations

import csv
import functools
import inspect
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.options import with_options
from wavedsl.ir.source import here

_ELSEWHERE = {
    "assert_close": "numpy.testing.assert_allclose(got, want, rtol=1e-3), want by kernel.evaluate(…, float64=True)",
    "allclose": "numpy.allclose(got, want, rtol=1e-3), want by kernel.evaluate(…, float64=True)",
    "do_bench_cudagraph": "do_bench(graph.replay), of a graph that holds the calls",
}
"""What other packages' testing modules have → what it is here."""


def __getattr__(name: str) -> NoReturn:
    said = f"module 'wavedsl.testing' has no attribute {name!r}"
    if name in _ELSEWHERE:
        said += f"; help: {_ELSEWHERE[name]}"
    raise AttributeError(said, name=name, obj=sys.modules[__name__])


RETURN_MODES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
}


@dataclass(frozen=True)
class Times:
    """Seconds of several runs. `clock`: `device` or `wall`."""

    seconds: tuple[float, ...]
    clock: str

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def count(self) -> int:
        return len(self.seconds)

    def quantile(self, share: float) -> float:
        """The time that `share` of the runs do not exceed, interpolated."""
        ordered = sorted(self.seconds)
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@with_options(
    {
        "grad_to_none": "nothing: a kernel makes no gradients by itself", "percentiles": "quantiles",
        "fast_flush": "flush", "n_warmup": "warmup", "n_repeat": "rep",
    },
    "wd.testing.do_bench",
)
def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    flush: bool | Callable[[], Any] = True,
) -> Any:
    """Milliseconds of one call of `fn`, after `warmup` ms of calls, over about `rep` ms of them.

    `return_mode`: min, max, mean, median, or `all` for the list; `quantiles`: a list of quantiles instead. `flush`:
    whether the L2 cache is cleared before each call, which leaves it full of lines to be written back, or what is
    called in its place. Raises ConstraintError for other modes and for quantiles outside of 0 to 1.
    """
    if not callable(fn):
        raise ConstraintError(f"do_bench: {fn!r} cannot be called", here(calls=False), hint="lambda: kernel(a, b, c)")
    if return_mode != "all" and return_mode not in RETURN_MODES:
        raise ConstraintError(
            f"do_bench: return_mode={return_mode!r}", hint=f"one of {', '.join(RETURN_MODES)} and all"
        )
    for name, value in (("warmup", warmup), ("rep", rep)):
        if not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise ConstraintError(f"do_bench: {name}={value!r}", hint="milliseconds, from 0 on")
    if quantiles is not None and not _are_shares(quantiles):
        raise ConstraintError(f"do_bench: quantiles={quantiles!r}", hint="shares from 0 to 1, such as [0.5, 0.2, 0.8]")
    times = bench(fn, warmup / 1e3, rep / 1e3, flush)
    if quantiles is not None:
        return [1e3 * times.quantile(q) for q in quantiles]
    if return_mode == "all":
        return [1e3 * s for s in times.seconds]
    return 1e3 * RETURN_MODES[return_mode](times.seconds)


def _are_shares(quantiles: Any) -> bool:
    try:
        return all(0 <= q <= 1 for q in quantiles)
    except TypeError:
        return False


def bench(fn: Callable[[], Any], warmup: float, rep: float, flush: bool | Callable[[], Any] = True) -> Times:
    """As `do_bench`, in seconds, with every time. torch's current stream is timed where torch runs on a GPU, else the
    default stream of the default device, else the wall clock."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return Times(tuple(_torch_times(torch, fn, warmup, rep, flush)), "device")
    from wavedsl.runtime import devices

    device = devices.default()
    if device.kind != "emulator":
        from wavedsl.runtime.timing import time_events

        driver = devices.open_driver(device.kind, device.index)
        return Times(tuple(time_events(driver, fn, 0, warmup, rep, flush)), "device")
    return Times(tuple(_wall_times(fn, warmup, rep)), "wall")


def _nothing() -> None:
    """What comes before a call where the cache is left as it is."""


def _wall_times(fn: Callable[[], Any], warmup: float, rep: float, count: int | None = None) -> list[float]:
    fn()
    began = time.perf_counter()
    while time.perf_counter() - began < warmup:
        fn()
    times: list[float] = []
    while (not times or sum(times) < rep) if count is None else len(times) < count:
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return times


def _torch_times(
    torch: Any, fn: Callable[[], Any], warmup: float, rep: float, flush: bool | Callable[[], Any]
) -> list[float]:
    from wavedsl.runtime.timing import FLUSH_BYTES, LEAST

    if not callable(flush):
        flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda").zero_ if flush else _nothing
    fn()
    torch.cuda.synchronize()
    began, warm = time.perf_counter(), 0
    while warm == 0 or time.perf_counter() - began < warmup:
        fn()
        torch.cuda.synchronize()
        warm += 1
    each = (time.perf_counter() - began) / warm
    marks = []
    for _ in range(max(LEAST, int(rep / each))):
        flush()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        fn()
        end.record()
        marks.append((start, end))
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in marks]


def bench_compiled(
    compiled: Any, values: Sequence[Any], device: Any, warmup: float = 0.025, rep: float = 0.1, count: int | None = None
) -> Times:
    """Times of a compiled kernel on a device, its arguments copied there once: `count` launches, or as many as `rep`
    seconds take. On an emulator: wall time of emulation."""
    if device.kind == "emulator":
        from wavedsl.runtime.launch import launch

        again = functools.partial(launch, compiled, values, device, checks=False)
        return Times(tuple(_wall_times(again, warmup, rep, count)), "wall")
    from wavedsl.runtime.timing import time_launches

    return Times(tuple(time_launches(compiled, values, device, warmup=warmup, seconds=rep, count=count)), "device")


# ----------------------------------------------------------------------------------------------------------- reports


@with_options({"color": "styles", "colors": "styles", "title": "plot_name"}, "wd.testing.Benchmark")
@dataclass(frozen=True)
class Benchmark:
    """One table and plot. For each of `x_vals` and each of `line_vals` the function is called with them, `line_arg` and
    `args` by name; it returns a number, a tuple (middle, low, high), or None where a provider cannot do it. An x value
    stands for all `x_names`, a tuple has one for each. `styles`: per line a colour and a form of matplotlib's, such as
    ("blue", "-")."""

    x_names: Sequence[str]
    x_vals: Sequence[Any]
    line_arg: str
    line_vals: Sequence[Any]
    line_names: Sequence[str]
    plot_name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Sequence[tuple[str, str]] | None = None

    def __post_init__(self) -> None:
        if len(self.line_vals) != len(self.line_names):
            raise ConstraintError(
                f"{self.plot_name}: {len(self.line_vals)} line_vals, but {len(self.line_names)} line_names",
                hint="one name per value",
            )
        if self.styles is not None and len(self.styles) < len(self.line_vals):
            raise ConstraintError(
                f"{self.plot_name}: {len(self.line_vals)} line_vals, but {len(self.styles)} styles",
                hint="a colour and a form per line: [('blue', '-'), ('green', '--')]",
            )


@dataclass(frozen=True)
class Table:
    """Numbers of one benchmark: `heads` are the x names and the lines' names, a row per x; None where nothing ran."""

    name: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def __str__(self) -> str:
        from wavedsl.reports import table

        return f"{self.name}:\n{table(self.heads, self.rows)}"

    def save(self, folder: str | Path) -> Path:
        """Write `NAME.csv`; the path."""
        path = Path(folder) / f"{self.name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self.heads)
            writer.writerows(self.rows)
        return path


class Mark:
    """What `perf_report` returns: `run` makes the tables."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Sequence[Benchmark]):
        self.fn = fn
        self.benchmarks = list(benchmarks)

    @with_options({}, "run")
    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str | Path = "",
        **given: Any,
    ) -> list[Table]:
        """Run all benchmarks; one table each. `save_path`: a folder for CSV files, and plots where matplotlib is
        installed; `show_plots` needs it. `given` goes to the function as it is. Raises ConstraintError where the
        function does not take what it is given."""
        tables = []
        for b in self.benchmarks:
            self._check(b, given)
            result, ranges = self._run(b, given)
            tables.append(result)
            if print_data:
                print(result)
            if save_path:
                result.save(save_path)
            if show_plots or (save_path and _has_matplotlib()):
                _plot(b, result, ranges, show_plots, save_path)
        return tables

    def _check(self, b: Benchmark, given: Mapping[str, Any]) -> None:
        """ConstraintError where the function cannot be called with these names."""
        names = (*b.x_names, b.line_arg, *b.args, *given)
        try:
            inspect.signature(self.fn).bind(**dict.fromkeys(names))
        except TypeError as error:
            hint = f"def bench({', '.join(names)}): x_names, line_arg and args are given by name"
            if "return_df" in given:
                hint = "run gives tables, whose rows are tuples: pandas.DataFrame(table.rows, columns=table.heads)"
            name = getattr(self.fn, "__name__", "the function")
            raise ConstraintError(f"{b.plot_name}: {name} cannot be called: {error}", hint=hint) from None

    def _run(self, b: Benchmark, given: Mapping[str, Any]) -> tuple[Table, list[list[Any]]]:
        rows, ranges = [], []
        for x in b.x_vals:
            values = tuple(x) if isinstance(x, (list, tuple)) else (x,) * len(b.x_names)
            if len(values) != len(b.x_names):
                raise ConstraintError(f"{b.plot_name}: {x!r} for {', '.join(b.x_names)}", hint="one value per name")
            found = [
                self.fn(**dict(zip(b.x_names, values)), **{b.line_arg: line}, **b.args, **given) for line in b.line_vals
            ]
            ranges.append(found)
            rows.append((*values, *(f[0] if isinstance(f, tuple) else f for f in found)))
        return Table(b.plot_name, (*b.x_names, *b.line_names), tuple(rows)), ranges


@with_options(name="wd.testing.perf_report")
def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Decorates a function of sizes and a provider; gives a `Mark` whose `run` measures it."""
    many: list[Any] = list(benchmarks) if isinstance(benchmarks, (list, tuple)) else [benchmarks]
    for b in many:
        if not isinstance(b, Benchmark):
            hint = "@perf_report(Benchmark(x_names=[…], x_vals=[…], …)), or a list of them"
            raise ConstraintError(f"perf_report: {b!r} is no Benchmark", hint=hint)
    return lambda fn: Mark(fn, many)


def _has_matplotlib() -> bool:
    import importlib.util

    return importlib.util.find_spec("matplotlib") is not None


def _plot(b: Benchmark, result: Table, ranges: list[list[Any]], show: bool, save_path: str | Path) -> None:
    from wavedsl.analysis.plot import pyplot

    plt = pyplot()
    figure, axes = plt.subplots(figsize=(6.4, 4))
    xs = [row[0] for row in result.rows]
    for i, name in enumerate(b.line_names):
        ys = [row[len(b.x_names) + i] for row in result.rows]
        color, form = (None, "-") if b.styles is None else b.styles[i]
        ys = [float("nan") if y is None else y for y in ys]
        axes.plot(xs, ys, color=color, linestyle=form, marker=".", label=name)
        spread = [r[i] for r in ranges]
        if all(isinstance(r, tuple) and len(r) == 3 for r in spread):
            axes.fill_between(xs, [r[1] for r in spread], [r[2] for r in spread], alpha=0.15)
    axes.set_xlabel(b.xlabel or b.x_names[0])
    axes.set_ylabel(b.ylabel)
    axes.set_xscale("log" if b.x_log else "linear")
    axes.set_yscale("log" if b.y_log else "linear")
    axes.legend()
    figure.tight_layout()
    if save_path:
        Path(save_path).mkdir(parents=True, exist_ok=True)
        figure.savefig(Path(save_path) / f"{b.plot_name}.png")
    if show:
        plt.show()
    plt.close(figure)
