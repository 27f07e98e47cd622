"""Matrix products on a GPU: whether they are right, and how fast beside cuBLAS and Triton, in one run.

    python benchmarks/gpu_gemm.py                     on cuda:0: all checks, all cases; needs torch
    python benchmarks/gpu_gemm.py --cases squares fp8 --skip-checks
    python benchmarks/gpu_gemm.py --budget 1500       what fits into 25 minutes of a borrowed chip
    python benchmarks/gpu_gemm.py --compile sm_90a    full sizes compiled and assembled, nothing runs
    python benchmarks/gpu_gemm.py --tiny              the same at tiny sizes on the emulator (also where no GPU is)

First every kind of product is compared with a float64 reference: fresh N(0, 1) data, outputs filled with NaN before.
What may be off: the rounding of the output, and errors of sums relative to the sum of the products' magnitudes. Then
the cases are timed. For each our tiles are chosen by trying `ways` on the chip, tiles and plans of the strategies:
the fastest whose result, on an output filled with NaN again, agrees with float64 there; one that does not is named,
and the run ends with an error. A time is that of replays of a CUDA graph whose launches rotate through as many copies
of the operands as exceed the L2 cache several times, per launch. All providers are timed together, in slices of one
graph in turn, each as often behind every other (`together`): the mean of a provider's slices, a quarter at each end
left out. A rival that cannot be imported or run has no number, and the JSON says why.

The table comes last; beside it are written results/gpu_gemm.json, with machine, driver and versions, and a plot of the
rates. A check or case that fails, hangs or kills the context is a row that says so, and the next one runs (`units`).
`--tiny` has NumPy for a rival, the wall clock for a clock, and says nothing of speed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from wavedsl.ir.errors import ToolchainError

import wavedsl as wd

sys.path.append(str(Path(__file__).resolve().parent))

import record
import units
from gemm_cases import (
    CASES,
    ROOFLINE_SHARE,
    TRITON_RATIO,
    Bind,
    Case,
    NoSuchPlan,
    Planned,
    Products,
    Way,
    bound_by,
    choice_at,
    ways,
)
from gemm_checks import CHECKS, Check, made, run_checks
from gemm_kernels import Form
from on_gpu import Space
from rehearsal import Rehearsal
from turns import balanced, middle, slices

FINALISTS = 3
"""Candidates that are timed as long as the rivals: a chip at its power limit favours others than a short burst does."""
GRAPH_SECONDS, REPLAYS, SETTLING = 0.02, 10, 3
"""A graph holds launches for about so long: a slice. Where one provider is timed alone, the median is over so many
replays, without the first ones, in which the chip's clock settles."""
WARM, SLICES = 0.5, 20
"""Seconds for which our finalists take slices before rivals join, and slices of each provider then, at least."""

# -------------------------------------------------------------------------------------------------------------- timing


def median_time(
    torch: Any, calls: Sequence[Callable[[], Any]], seconds: float | None = None, replayed: int = REPLAYS
) -> tuple[float, str]:  # fmt: skip
    """(seconds per call, clock) of `repeated`: the median of so many replays, the first ones left out; of one run where
    there is no GPU."""
    run, clock = repeated(torch, calls, seconds)
    if clock == "wall":
        return run(), clock
    if clock == "graph":
        run()
    replays = [run() for _ in range(replayed)]
    return statistics.median(replays[SETTLING:] or replays), clock


def repeated(
    torch: Any, calls: Sequence[Callable[[], Any]], seconds: float | None = None
) -> tuple[Callable[[], float], str]:  # fmt: skip
    """(what makes all calls in turn and gives the seconds of one, clock): a graph of them, replayed; events where a
    call cannot be captured; the wall clock without a GPU. `seconds`: how long it takes (default: GRAPH_SECONDS)."""
    if torch is None:
        return functools.partial(_wall_time, calls), "wall"
    for call in calls:  # compiles, loads, allocates: none of that can be captured
        call()
    torch.cuda.synchronize()
    rough = _event_time(torch, calls, 1)
    rounds = max(1, int((seconds or GRAPH_SECONDS) / (rough * len(calls))))
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(rounds):
                for call in calls:
                    call()
    except RuntimeError:
        torch.cuda.synchronize()
        return functools.partial(_event_time, torch, calls, rounds), "events"
    return lambda: _event_time(torch, [graph.replay], 1) / (rounds * len(calls)), "graph"


def _wall_time(calls: Sequence[Callable[[], Any]]) -> float:
    start = time.perf_counter()
    for call in calls:
        call()
    return (time.perf_counter() - start) / len(calls)


def _event_time(torch: Any, calls: Sequence[Callable[[], Any]], rounds: int) -> float:
    """Seconds per call between two events."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(rounds):
        for call in calls:
            call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / (rounds * len(calls))


class Held:
    """The operands of one case and size, made when the first unit asks for them."""

    def __init__(self, space: Space, case: Case, size: tuple[int, int, int], tiny: bool):
        self.space, self.case, self.size, self.tiny = space, case, size, tiny

    @functools.cached_property
    def products(self) -> Products:
        return Products(self.space, self.case.form, self.size, not self.tiny)

    def bind(self, way: Way) -> Bind:
        """What binds one of `ways` to operands."""
        return bound_by(self.case.form, way)

    def named(self, way: Way) -> str:
        """What a plan does, tiles by their name."""
        return str(choice_at(*self.products.sets[0], way.place)) if isinstance(way, Planned) else str(way)


def trial(held: Held, way: Way, alone: bool) -> dict[str, Any]:
    """Roughly the seconds of a candidate (not of one `alone`), and its error on an output filled with NaN; `unfit` and
    why where it cannot do this shape."""
    products = held.products
    try:
        bind = held.bind(way)
        calls = [bind(*operands) for operands in products.sets[:2]]
        found = {} if alone else {"seconds": median_time(products.space.torch, calls, 0.004)[0]}
        products.poison()
        calls[0]()
    except wd.WaveError as error:
        if products.space.torch is not None:
            products.space.torch.cuda.synchronize()  # what was launched before it must not be blamed on the next
        return {"unfit": f"{type(error).__name__}: {error}"}
    return {**found, "error": products.error(), "does": held.named(way)}


def sound(held: Held, bind: Bind) -> dict[str, Any]:
    """That a rival runs: roughly its seconds, and on what clock."""
    seconds, clock = median_time(held.space.torch, held.products.calls(bind), 0.004)
    return {"seconds": seconds, "clock": clock}


def together(held: Held, finalists: Mapping[str, Bind], rivals: Mapping[str, Bind]) -> dict[str, Any]:
    """Seconds of each provider in each of its slices, all of them in turn.

    A GPU at its power limit changes its clock by steps of 1 to 3 % every few slices, looking for the limit, and at
    first overshoots for half a second. So nobody has a turn of seconds. First our finalists take slices for WARM
    seconds, which brings the chip to its limit and, in the later half, says which of them is ours. Then that one and
    the rivals take slices in the orders of `balanced`, SLICES each or more: whatever the clock does, it does to all of
    them, and `middle` of many slices levels its steps. A clock that follows all providers' mean power does not show
    what one would gain at the limit, alone, by taking less power than the others; `gpu_power` does.
    """
    torch = held.space.torch
    made = {name: repeated(torch, held.products.calls(bind)) for name, bind in {**finalists, **rivals}.items()}
    lasting: dict[str, list[float]] = {name: [] for name in finalists}
    warming = itertools.cycle(balanced(list(finalists)))
    started = time.perf_counter()
    while True:
        for name in next(warming):
            lasting[name].append(made[name][0]())
        if torch is None or time.perf_counter() - started >= WARM:
            break
    settled = {name: middle(times[len(times) // 2 :]) for name, times in lasting.items()}
    best = min(settled, key=settled.__getitem__)
    found = slices((best, *rivals), 1 if torch is None else SLICES, lambda name: made[name][0]())
    return {"best": best, "lasting": settled, "slices": found, "clock": made[best][1]}


def _of_way(held: Held, way: Way, *operands: Any) -> Callable[[], Any]:
    """Our call in one of `ways`, which is compiled when this is called."""
    return held.bind(way)(*operands)


def rivals_of(torch: Any, on_gpu: bool) -> dict[str, Bind]:
    """What is timed beside ours."""
    if on_gpu:
        import rivals

        return {name: functools.partial(make, torch) for name, make in rivals.RIVALS.items()}

    def numpy(a: Any, b: Any, c: Any) -> Callable[[], Any]:
        x, y = a.astype(np.float32), b.astype(np.float32)
        return lambda: np.matmul(x, y.T)

    return {"numpy": numpy}


def run_case(
    done: Any, space: Space, case: Case, size: tuple[int, int, int], tiny: bool, product: str | None = None
) -> dict[str, Any]:
    """A row: our tiles, the error, and each provider's seconds. Every candidate and every provider is a unit of `done`
    (`Units`, or `Kept` for a row out of what was measured before); `product`: the chip, where it is described."""
    m, n, k = size
    key, form = f"{case.name} {size}", case.form
    row: dict[str, Any] = {"case": case.name, "size": list(size), "flops": 2 * m * n * k}
    row["bytes"] = (m * k + n * k) * form.dtype.bits // 8 + m * n * form.out.bits // 8
    held = Held(space, case, size, tiny)
    found = ways(form, m, tiny)
    tries = {}
    for name, way in found.items():
        one = functools.partial(trial, held, way, len(found) == 1)
        kinds = ("products", f"one product {name}")
        tries[name] = done.run(f"{key} with {name}", {}, one, units.CHECK_LIMIT, kinds)
    right = [name for name, tried in tries.items() if tried.get("error", math.inf) <= 1]
    row["tried"] = {n: t.get("unfit") or t.get("failed") or t.get("seconds") for n, t in tries.items()}
    row["wrong"] = {n: t["error"] for n, t in tries.items() if not t.get("error", 0.0) <= 1}
    row["dead"] = {n: t["failed"] for n, t in tries.items() if "failed" in t and not _absent(t)}
    if not right:
        whys = [*row["dead"].values(), *(t["failed"] for t in tries.values() if "failed" in t)]
        whys += [f"{name} is wrong" for name in row["wrong"]] + [t["unfit"] for t in tries.values() if "unfit" in t]
        return {**row, "failed": whys[0]}
    finals = sorted(right, key=lambda name: tries[name].get("seconds", 0.0))[:FINALISTS]
    row["missing"], sane = {}, {}
    for name, bind in rivals_of(space.torch, not tiny).items():
        seen = done.run(
            f"{key} by {name}", {}, functools.partial(sound, held, bind), 2 * units.CHECK_LIMIT, (f"by {name}",)
        )
        if "failed" in seen:
            row["missing"][name] = seen["failed"]
        else:
            sane[name] = bind
    ours = {name: functools.partial(_of_way, held, found[name]) for name in finals}
    one = functools.partial(together, held, ours, sane)
    seen = done.run(f"{key} together", {}, one, 2 * units.CHECK_LIMIT, ("products",))
    if "failed" in seen:
        return {**row, "failed": seen["failed"]}
    best = row["tiles"] = seen["best"]
    row["does"] = tries[best].get("does", best)
    row["error"], row["lasting"], row["clock"] = tries[best]["error"], seen["lasting"], seen["clock"]
    row["slices"] = {units.OURS if name == best else name: times for name, times in seen["slices"].items()}
    row["seconds"] = {name: middle(times) for name, times in row["slices"].items()}
    row["roofline"] = roofline_seconds(product, form, size)
    return {**row, **judged(case, row)}


def _absent(row: dict[str, Any]) -> bool:
    """Whether a unit was not run at all."""
    return row["failed"].startswith(("left out", "not measured"))


def roofline_seconds(product: str | None, form: Form, size: tuple[int, int, int]) -> float | None:
    """The least time that the chip's rates allow, where the chip is described."""
    from wavedsl.analysis.roofline import analyze_gemm

    if product is None:
        return None
    found = analyze_gemm(*size, form.dtype, product=product, out=form.out)
    return max(found.flops / found.peak_compute, found.bytes / found.peak_bandwidth)


def product_of(torch: Any) -> str | None:
    """The described chip that runs here."""
    if torch is None:
        return None
    return product_called(torch.cuda.get_device_properties(torch.cuda.current_device()).name)


def product_called(name: str) -> str | None:
    """The described chip of such a name."""
    known = (("H200", "H200"), ("H100", "H100 SXM"), ("A100", "A100"))
    return next((product for part, product in known if part in name), None)


def judged(case: Case, row: dict[str, Any]) -> dict[str, Any]:
    """Ratios to the rivals and to the roofline, and whether they are what is asked for (None: cannot be told)."""
    seconds = row["seconds"]
    ours = seconds["wavedsl"]
    triton = [seconds[name] for name in ("triton", "triton tma") if name in seconds]
    found: dict[str, Any] = {
        "of_cublas": seconds["cublas"] / ours if "cublas" in seconds else None,
        "of_triton": min(triton) / ours if triton else None,
        "of_roofline": row["roofline"] / ours if row.get("roofline") else None,
    }
    enough = [found["of_cublas"] >= case.least] if found["of_cublas"] is not None else []
    if found["of_triton"] is not None:
        enough.append(found["of_triton"] >= TRITON_RATIO or (found["of_roofline"] or 0.0) >= ROOFLINE_SHARE)
    found["reached"] = all(enough) if enough else None
    return found


# -------------------------------------------------------------------------------------------------------------- output


def check_table(rows: Sequence[dict[str, Any]]) -> str:
    from wavedsl.reports import table

    body = [(row["check"], " x ".join(map(str, row["size"])), row.get("error"), row.get("failed", "")) for row in rows]
    return table(("check", "size", "error of allowed", "failed"), body)


def case_table(rows: Sequence[dict[str, Any]]) -> str:
    """Rates in TFLOP/s, ratios of times (above 1: we are faster), and the geometric means per case."""
    from wavedsl.reports import table

    names = list(dict.fromkeys(name for row in rows for name in row.get("seconds", ())))
    body: list[Any] = []
    for row in (row for row in rows if "failed" not in row):
        rates = [row["flops"] / row["seconds"][n] / 1e12 if n in row["seconds"] else None for n in names]
        ratios = [row["of_cublas"], row["of_triton"], row["of_roofline"]]
        reached = {True: "yes", False: "NO", None: "-"}[row["reached"]]
        size = " x ".join(map(str, row["size"]))
        body.append((row["case"], size, *rates, *ratios, reached, row["error"], row["tiles"]))
    heads = ("case", "M x N x K", *(f"{n} TFLOP/s" for n in names), "of cuBLAS", "of Triton", "of roofline", "reached",
             "error of allowed", "our tiles")  # fmt: skip
    said = table(heads, body)
    for case in CASES:
        own = [row for row in rows if row["case"] == case.name and "failed" not in row]
        ratios = [row["of_cublas"] for row in own if row["of_cublas"] is not None]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            asked = f", asked for {case.least_mean}" if case.least_mean else ""
            said += f"\n{case.name}: geometric mean of the ratios to cuBLAS {mean:.3f}{asked}"
    return said


def plot(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """Rates of all providers per size, one panel per case."""
    from wavedsl.analysis.plot import pyplot

    plt = pyplot()
    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure, panels = plt.subplots(len(cases), 1, figsize=(9, 2.6 * len(cases)), squeeze=False)
    for axes, case in zip(panels[:, 0], cases):
        own = [row for row in rows if row["case"] == case]
        for name in dict.fromkeys(name for row in own for name in row["seconds"]):
            rates = [row["flops"] / row["seconds"][name] / 1e12 if name in row["seconds"] else math.nan for row in own]
            axes.plot(range(len(own)), rates, marker="o", label=name)
        axes.set_xticks(range(len(own)), ["x".join(map(str, row["size"])) for row in own], fontsize=6, rotation=15)
        axes.set_title(case, fontsize=9)
        axes.set_ylabel("TFLOP/s")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return path


# ----------------------------------------------------------------------------------------------------------------- run


def compile_all(checks: Sequence[Check], cases: Sequence[Case], rehearsal: Rehearsal) -> None:
    """Compile every check, and every candidate of every case, at full sizes."""
    space = Space(empty_arrays=True)

    def check_made(check: Check) -> None:
        for kernel, arguments in made(space, check, check.size).launches:
            kernel.bind(*arguments)

    for check in checks:
        rehearsal.run(f"check {check.name}", functools.partial(check_made, check), timed=False)
    for case in cases:
        for size in case.sizes:
            operands = Products(space, case.form, size, False).sets[0]
            held = Held(space, case, size, tiny=False)
            for name, way in ways(case.form, size[0], False).items():
                rehearsal.run(f"{case.name} {size} {name}", functools.partial(_bound, held.bind(way), operands))


def _bound(bind: Bind, operands: Sequence[Any]) -> None:
    """Bound once, or nothing where there are fewer plans."""
    with contextlib.suppress(NoSuchPlan):
        bind(*operands)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=[c.name for c in CASES], help="default: all")
    parser.add_argument("--checks", nargs="*", choices=[c.name for c in CHECKS], help="default: all")
    parser.add_argument("--skip-checks", action="store_true")
    parser.add_argument("--tiny", nargs="?", const="sm_90a", metavar="TARGET", help="on the emulator (default: sm_90a)")
    parser.add_argument("--compile", metavar="TARGET", help="compile all at full sizes, run nothing")
    parser.add_argument("--out", type=Path, help="folder of JSON and plot (default: benchmarks/results)")
    units.option(parser)
    given = parser.parse_args(arguments)
    cases = [c for c in CASES if given.cases is None or c.name in given.cases]
    checks = [] if given.skip_checks else [c for c in CHECKS if given.checks is None or c.name in given.checks]
    if given.compile:
        rehearsal = Rehearsal(given.compile)
        compile_all(checks, cases, rehearsal)
        return rehearsal.report()
    torch = None if given.tiny else _torch_with_gpu()
    tiny = torch is None
    if tiny:
        os.environ["WAVEDSL_DEVICE"] = f"emulator:{given.tiny or 'sm_90a'}"
        if not given.tiny:
            print("no GPU that torch can use: tiny sizes on the emulator instead", file=sys.stderr)
    space = Space(torch)
    space.random = np.random.default_rng()  # fresh data in every run
    name = "gpu_gemm_tiny" if tiny else "gpu_gemm"
    done = units.Units(
        (given.out or record.HERE / "results") / f"{name}.part.json", budget=given.budget, limit=given.limit,
        resume=given.resume, alive=units.alive(torch) if arguments is None else None,
    )  # fmt: skip
    checks_done = run_checks(done, space, checks, tiny)
    rows = []
    for case in cases:
        for size in case.tiny if tiny else case.sizes:
            rows.append(run_case(done, space, case, size, tiny, product_of(torch)))
            print(f"{case.name} {size}: {rows[-1].get('failed', 'done')}", file=sys.stderr)
    wrong = [r for r in (*checks_done, *rows) if not r.get("error", math.inf) <= 1 or r.get("wrong") or r.get("dead")]
    gpu = {} if torch is None else record.gpu(torch)
    path = record.write(name, rows, given.out, gpu=gpu, checks=checks_done)
    done.done()
    timed = [row for row in rows if "failed" not in row]
    if timed:
        try:
            print(f"plot: {plot(timed, path.with_suffix('.png'))}")
        except ToolchainError as error:  # no matplotlib
            print(f"no plot: {error}")
    print(f"written to {path}")
    if checks_done:
        print(check_table(checks_done))
    if rows:
        print(case_table(rows))
    for row in wrong:
        why = row.get("failed") or ", ".join((*row.get("wrong", ()), *row.get("dead", ())))
        print(f"WRONG: {row.get('check', row.get('case'))} {row['size']} {why}", file=sys.stderr)
    return 1 if wrong else 0


def _torch_with_gpu() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


if __name__ == "__main__":
    sys.exit(main())
