"""Memory-bound kernels on a GPU beside torch (cuBLAS) and Triton, in one run.

    python benchmarks/gpu_memory_bound.py                         on cuda:0, all cases; needs torch
    python benchmarks/gpu_memory_bound.py --cases copy softmax
    python benchmarks/gpu_memory_bound.py --budget 600            what fits into ten minutes of a borrowed chip
    python benchmarks/gpu_memory_bound.py --compile sm_90a        full sizes compiled and assembled, nothing runs
    python benchmarks/gpu_memory_bound.py --emulate sm_90a        tiny sizes on the emulator: right or wrong, no times

Every result is compared with a NumPy or torch reference before it is timed. A rate is the bytes (or FLOP) that the
algorithm needs, divided by the median time with an L2 cache that holds nothing of it, and nothing to write back. The
GPU is busy until the host has started the call, so that the host's own time, longest of what torch.compile makes, does
not count. Triton is torch.compile for streams, and the faster of the GEMMs of `rivals_triton` for products (Inductor
would call cuBLAS); f64 and groups have none. Providers are timed in slices, in turn. The table also gives the share of
the best copy rate that the same run measured, and of the rate of a copy of as many bytes: what moves less than 100 MB
is ruled by the latency of a launch. A provider that cannot do a case has no number, and the row says why. Kernels are
tried in a few cuts first (tiles, waves that share a row, for products what `gemm_choices` lists), as tuned kernels
would be, and timed in the fastest that is right, which of a few slices in turn say, for the fastest differ by less
than a chip does from one moment to the next. Rows, the goal's lines with what was reached, GPU, driver, machine and
versions go to results/gpu_memory_bound.json, a plot beside it. A check or provider that fails, hangs or kills the
context is named, and the next one runs (`units`).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from wavedsl.ir.errors import ToolchainError

import wavedsl as wd

sys.path.append(str(Path(__file__).resolve().parent))

import memory_bound_kernels as kernels
import record
import units
from memory_bound_cases import CASES, NoSuchCut
from on_gpu import Case, Space, Work, error_of, relative_error
from rehearsal import Rehearsal
from turns import middle, slices

PROVIDERS = ("wavedsl", "torch", "triton")
SLICE = 0.015
"""Seconds of calls in a slice."""
FINALISTS, TRIES, TURNS = 3, 3, 6
"""Cuts that are timed in turn, slices of each, and slices of each provider behind them, at least."""


class Held:
    """The work of a case at one size, made when the first unit asks for it."""

    def __init__(self, space: Space, case: Case, size: tuple[int, ...]):
        self.space, self.case, self.size = space, case, size

    @functools.cached_property
    def work(self) -> Work:
        return self.case.make(self.space, self.size)

    @functools.cached_property
    def right(self) -> Any:
        """What the call that was checked gives: f32 where the result lies."""
        self.work.calls["wavedsl"]()
        return self.now()

    def now(self) -> Any:
        """A copy of the result as it is, in f32."""
        result = self.work.result
        return result.astype(np.float32) if self.space.torch is None else result.clone().float()

    def ours(self, cut: Any) -> Callable[[], Any]:
        """Our call in a cut (None: the case has none)."""
        work = self.work
        return work.calls["wavedsl"] if cut is None or work.bind is None else work.bind(cut)


def _seconds(space: Space, call: Callable[[], Any], warmup: float, rep: float) -> Any:
    """`Times` of a call, all providers' in the same way: with a cache that holds nothing of it, and in the queue before
    the GPU gets to it."""
    from wavedsl.testing import bench

    call()  # compiles what is compiled at the first call
    return bench(call, warmup, rep, space.flushed(call))


def checked(held: Held) -> dict[str, Any]:
    """What the case needs, and the error of our result; `errors` of ours and torch's where they are compared."""
    work = held.work
    found: dict[str, Any] = {"bytes": work.bytes, "flops": work.flops}
    if work.compared:
        found["errors"] = {}
        for name in [x for x in ("torch", units.OURS) if x in work.calls]:  # ours last: its result is looked at below
            work.result[...] = math.nan
            work.calls[name]()
            found["errors"][name] = relative_error(held.space, work)
    else:
        work.calls[units.OURS]()
    return found | {"error": error_of(held.space, work)}


def trial(held: Held, cut: Any, timing: bool) -> dict[str, Any]:
    """Roughly the seconds of our kernel in a cut, and the error of its result beside the one that was checked;
    `unfit` and why where it cannot be cut so."""
    right, work, torch = held.right, held.work, held.space.torch
    named: dict[str, Any] = {}
    try:
        named = {"cut": work.named(cut)} if work.named is not None else {}
        call = held.ours(cut)
        found = {"seconds": _seconds(held.space, call, 0.005, 0.02).median} if timing else {}
        work.result[...] = math.nan
        call()
    except wd.WaveError as error:
        if torch is not None:
            torch.cuda.synchronize()  # what was launched before it must not be blamed on the next
        return {**named, "unfit": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    off = float(abs(held.now() - right).max())  # NaN where something was not written
    allowed = work.tolerance * max(1.0, float(abs(right).max()))
    error = math.inf if math.isnan(off) else off / allowed if allowed else math.inf if off else 0.0
    return {**named, **found, "error": error}


def timed(held: Held, provider: str, cut: Any = None) -> dict[str, Any]:
    """A provider's seconds and rate, alone: roughly."""
    call = held.ours(cut) if provider == units.OURS else held.work.calls[provider]
    times = _seconds(held.space, call, 0.005, 0.02)
    assert times.clock == "device"
    found = {"seconds": times.median, "best": times.best, "runs": times.count}
    return found | {"bytes_per_second": held.work.bytes / times.median}


def in_turn(held: Held, cuts: Sequence[Any], rivals: Sequence[str]) -> dict[str, Any]:
    """Seconds of a call in each slice: of our cuts in turn, by their places, of which the fastest then takes turns with
    the rivals."""
    from wavedsl.testing import bench

    calls = {**{place: held.ours(cut) for place, cut in enumerate(cuts)}, **{r: held.work.calls[r] for r in rivals}}
    for call in calls.values():
        call()
    flushes = {name: held.space.flushed(call) for name, call in calls.items()}

    def once(name: Any) -> float:
        return bench(calls[name], 0.0, SLICE, flushes[name]).median

    best = 0
    if len(cuts) > 1:
        tries = slices(range(len(cuts)), TRIES, once)
        best = min(tries, key=lambda place: middle(tries[place]))
    found = slices((best, *rivals), TURNS, once)
    return {"best": best, "slices": {units.OURS if name == best else name: times for name, times in found.items()}}


def copy_size(moved: int) -> tuple[int, int]:
    """Rows and columns of f16 whose copy moves as many bytes: rounded, so that cases which hardly differ share it."""
    rows = moved / (2 * 2 * COPY_COLUMNS)
    return max(1, round(rows / COPY_ROWS)) * COPY_ROWS, COPY_COLUMNS


COPY_COLUMNS, COPY_ROWS = 4096, 16
COPY_TILE = kernels.TILES[1]
"""The fastest of large copies on an H200, and within 3 % of it of small ones."""


def copied_alike(space: Space, size: tuple[int, int], provider: str) -> dict[str, Any]:
    """Seconds and rate of a provider's copy."""
    a, _ = space.exact_array(size, wd.f16)
    b = a.clone()  # where it lies: gigabytes take seconds to come from the host
    call = _copy_alike(space, size, a, b) if provider == units.OURS else functools.partial(b.copy_, a)
    times = _seconds(space, call, 0.01, 0.05)
    return {"seconds": times.median, "bytes_per_second": 2 * 2 * math.prod(size) / times.median}


def _copy_alike(space: Space, size: tuple[int, int], *arrays: Any) -> Callable[[], Any]:
    """Our copy, of these arrays or new ones."""
    arrays = arrays or (space.empty(size, wd.f16), space.empty(size, wd.f16))
    return kernels.copy(wd.f16, *COPY_TILE).bind(*arrays)


def _same_copy(done: Any, space: Space, moved: int) -> dict[str, Any] | None:
    """The faster copy of as many bytes; None where one has no time."""
    size = copy_size(moved)
    found = []
    for provider in COPIERS:
        work = functools.partial(copied_alike, space, size, provider)
        key, kinds = f"copy of {size[0]} x {size[1]} by {provider}", ("copies of as many bytes",)
        found.append(done.run(key, {}, work, units.CHECK_LIMIT, kinds))
    if any("failed" in f for f in found):
        return None
    best = max(found, key=lambda f: f["bytes_per_second"])
    return {"size": list(size), "seconds": best["seconds"], "bytes_per_second": best["bytes_per_second"]}


COPIERS = (units.OURS, "torch")


def run_case(
    done: Any, space: Space, case: Case, size: tuple[int, ...], timing: bool, copy_rate: float | None,
    trying: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """A row: our result's error, with `timing` each provider's rate, ours in the fastest right cut, and with `trying`
    the errors of all cuts. The check, every cut and every provider are units of `done` (`Units`, or `Kept` for a row
    out of what was measured before)."""
    key, row = f"{case.name} {size}", {"case": case.name, "size": list(size)}
    held = Held(space, case, size)
    kinds = ("memory", f"one case {case.name}")
    row |= done.run(f"{key} checked", row, functools.partial(checked, held), 2 * units.CHECK_LIMIT, kinds)
    if not row.get("error", math.inf) <= 1:
        return row
    cuts = _tried(done, held, key, row, timing) if timing or trying else [None]
    if not timing:
        return row
    cut = cuts[0]

    def unit(provider: str) -> tuple[str, Callable[[], dict[str, Any]], str]:
        of = f", {cut}" if cut is not None and provider == units.OURS else ""
        return f"{key} by {provider}{of}", functools.partial(timed, held, provider, cut), f"memory by {provider}"

    found, missing, failed = units.by_providers(done, PROVIDERS, unit)
    row |= {**found, "missing": missing} if missing else found
    if failed:
        return {**row, "failed": failed}
    rivals = [name for name in found if name != units.OURS]
    seen = done.run(f"{key} in turn", {}, functools.partial(in_turn, held, cuts, rivals), 2 * units.CHECK_LIMIT, kinds)
    if "failed" not in seen:
        row["slices"] = seen["slices"]
        for name, times in seen["slices"].items():
            seconds = middle(times)
            row[name] = {**row[name], "seconds": seconds, "bytes_per_second": row["bytes"] / seconds}
        if row.get("cut"):
            row["cut"] = row["finalists"][seen["best"]]
    if copy_rate:
        row["of_copy"] = row["wavedsl"]["bytes_per_second"] / copy_rate
    same = _same_copy(done, space, row["bytes"])
    if same:
        row |= {"same_copy": same, "of_same_copy": row["wavedsl"]["bytes_per_second"] / same["bytes_per_second"]}
    return row


def _tried(done: Any, held: Held, key: str, row: dict[str, Any], timing: bool) -> list[Any]:
    """The fastest right cuts of a case, FINALISTS at most (None where it has none), beside what became of all in
    `row`."""
    cuts = held.case.cuts(held.size)
    if not cuts:
        return [None]
    tries: dict[Any, dict[str, Any]] = {}
    for cut in cuts:
        one = functools.partial(trial, held, cut, timing)
        kinds = ("memory cuts", f"one case {held.case.name}")
        tries[cut] = done.run(f"{key} cut {cut}", {}, one, units.CHECK_LIMIT, kinds)
    names = {cut: t.get("cut", str(cut)) for cut, t in tries.items()}
    row["tried"] = {names[cut]: t.get("unfit") or t.get("failed") or t.get("seconds") for cut, t in tries.items()}
    wrong = {names[cut]: t["error"] for cut, t in tries.items() if not t.get("error", 0.0) <= 1}
    if wrong:
        row["wrong"] = wrong
    right = [cut for cut, t in tries.items() if t.get("error", math.inf) <= 1]
    best = sorted(right, key=lambda c: tries[c].get("seconds", 0.0))[:FINALISTS] or [cuts[0]]
    row["cut"], row["finalists"] = names[best[0]], [names[cut] for cut in best]
    return best


def run_cases(
    done: Any, space: Space, cases: Sequence[Case], timing: bool, tiny: bool, copy_rate: float | None = None
) -> list[dict[str, Any]]:
    """Rows of all cases. Shares are of the best copy among them, or of `copy_rate`."""
    rows = []
    for case in cases:
        for size in case.tiny if tiny else case.sizes:
            row = run_case(done, space, case, size, timing, copy_rate, trying=True)
            rows.append(row)
            print(f"{case.name} {size}: {row.get('failed', 'done')}", file=sys.stderr)
            if case.name == "copy" and "wavedsl" in row:
                best = max(row[p]["bytes_per_second"] for p in PROVIDERS if p in row)
                copy_rate = max(copy_rate or 0.0, best)
    for row in rows:
        if copy_rate and "wavedsl" in row:
            row["of_copy"] = row["wavedsl"]["bytes_per_second"] / copy_rate
    return rows


# ------------------------------------------------------------------------------------------------------------ criteria

STREAMS = ("copy", "elementwise", "softmax", "rms_norm", "row_sum")


def ratio(row: dict[str, Any], others: Sequence[str]) -> float | None:
    """How many times the best of the others we are, by time."""
    seconds = [row[p]["seconds"] for p in others if p in row]
    return min(seconds) / row["wavedsl"]["seconds"] if seconds and "wavedsl" in row else None


def criteria(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, float | None, float]]:
    """(what is asked for, of what, what was measured, the least that is asked for) of each line of the goal."""
    found: list[tuple[str, str, float | None, float]] = []

    def line(what: str, of: str, values: Sequence[float | None], least: float, mean: bool = False) -> None:
        known = [v for v in values if v]
        whole = known and len(known) == len(values)  # one that is missing leaves the line open
        value = (statistics.geometric_mean(known) if mean else min(known)) if whole else None
        found.append((what, of, value, least))

    def of(*names: str) -> list[dict[str, Any]]:
        return [row for row in rows if row["case"] in names]

    for name in STREAMS:
        line(name, "best of torch and Triton, least", [ratio(r, ("torch", "triton")) for r in of(name)], 0.95)
        line(name, "measured copy rate, least", [r.get("of_copy") for r in of(name)], 0.90)
        line(name, "copy of as many bytes, least", [r.get("of_same_copy") for r in of(name)], 0.90)
    thin = of("gemv", "skinny")
    line("GEMV and M <= 64", "cuBLAS, geometric mean", [ratio(r, ("torch",)) for r in thin], 1.1, mean=True)
    line("GEMV and M <= 64", "measured copy rate, least", [r.get("of_copy") for r in thin], 0.75)
    line("GEMV and M <= 64", "copy of as many bytes, least", [r.get("of_same_copy") for r in thin], 0.75)
    split = ("f32 3xtf32", "f32 3xtf32 A B")
    for name in ("small_k", "f32", "f32 A B", *split, "f64"):
        line(name, "cuBLAS, least", [ratio(r, ("torch",)) for r in of(name)], 1.0)
    for name in split:
        shares = [x["torch"] / x[units.OURS] for r in of(name) if "torch" in (x := r.get("errors", {}))]
        line(name, "cuBLAS' error to ours, least", shares, 1.0)
    return found


def criteria_text(found: Sequence[tuple[str, str, float | None, float]]) -> str:
    """The lines of the goal as a table."""
    from wavedsl.reports import table

    body = [
        (what, of, value, least, "not measured" if value is None else "reached" if value >= least else "NOT REACHED")
        for what, of, value, least in found
    ]
    return table(("case", "of", "measured", "asked for", "verdict"), body)


def plot(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """GB/s of all providers per case and size."""
    from wavedsl.analysis.plot import pyplot

    plt = pyplot()
    figure, axes = plt.subplots(figsize=(12, 5))
    for place, provider in enumerate(PROVIDERS):
        at = [i + 0.27 * (place - 1) for i, row in enumerate(rows) if provider in row]
        axes.bar(at, [r[provider]["bytes_per_second"] / 1e9 for r in rows if provider in r], 0.27, label=provider)
    labels = [f"{row['case']} {'x'.join(map(str, row['size']))}" for row in rows]
    axes.set_xticks(range(len(rows)), labels, fontsize=6, rotation=90)
    axes.set_ylabel("GB/s")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return path


def text(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a table: GB/s by provider, and the share of the best of the others."""
    from wavedsl.reports import table

    def rate(row: dict[str, Any], provider: str) -> float | None:
        return row[provider]["bytes_per_second"] / 1e9 if provider in row else None

    out = []
    for row in rows:
        rates = [rate(row, p) for p in PROVIDERS]
        others = [r for r in rates[1:] if r]
        ratio = rates[0] / max(others) if rates[0] and others else None
        size = " x ".join(map(str, row["size"]))
        shares = (row.get("of_copy"), row.get("of_same_copy"))
        out.append((row["case"], size, *rates, ratio, *shares, row.get("error", row.get("failed"))))
    heads = (
        "case", "size", "wavedsl GB/s", "torch GB/s", "triton GB/s", "of best", "of copy", "of same copy",
        "error of allowed",
    )  # fmt: skip
    return table(heads, out)


def compile_all(cases: Sequence[Case], rehearsal: Rehearsal) -> None:
    """Compile every case at its full size, as a run on the chip would: in all cuts, or as it is without; and the copies
    that cases are compared with."""
    space = Space(empty_arrays=True)
    for case in cases:
        for size in case.sizes:
            if not case.cuts(size):
                rehearsal.run(f"{case.name} {size}", functools.partial(_whole, space, case, size))
                continue
            work = case.make(space, size)
            for cut in case.cuts(size):
                rehearsal.run(f"{case.name} {size} cut {cut}", functools.partial(_fitting, work.bind, cut))
            alike = copy_size(work.bytes)
            rehearsal.run(f"copy of {alike}", functools.partial(_copy_alike, space, alike))


def _whole(space: Space, case: Case, size: tuple[int, ...]) -> None:
    """Compile a case without cuts, and its copy."""
    _copy_alike(space, copy_size(case.make(space, size).bytes))


def _fitting(bind: Callable[[Any], Any], cut: Any) -> None:
    """Bind in a cut, if the case has it on this chip."""
    with contextlib.suppress(NoSuchCut):
        bind(cut)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=[c.name for c in CASES], help="default: all")
    parser.add_argument("--compile", metavar="TARGET", help="compile every case at its full size, run nothing")
    parser.add_argument("--emulate", metavar="TARGET", help="tiny sizes on the emulator, without times")
    parser.add_argument("--out", type=Path, help="folder of the JSON (default: benchmarks/results)")
    units.option(parser)
    given = parser.parse_args(arguments)
    chosen = [c for c in CASES if not given.cases or c.name in given.cases]
    torch = None
    if given.compile:
        rehearsal = Rehearsal(given.compile)
        compile_all(chosen, rehearsal)
        return rehearsal.report()
    if given.emulate:
        os.environ["WAVEDSL_DEVICE"] = f"emulator:{given.emulate}"
    else:
        import torch

        if not torch.cuda.is_available():
            print("no GPU: --emulate TARGET runs tiny sizes without times", file=sys.stderr)
            return 1
    space = Space(torch)
    done = units.Units(
        (given.out or record.HERE / "results") / "gpu_memory_bound.part.json", budget=given.budget, limit=given.limit,
        resume=given.resume, alive=units.alive(torch) if arguments is None else None, keep=torch is not None,
    )  # fmt: skip
    rows = run_cases(done, space, chosen, torch is not None, bool(given.emulate))
    print(text(rows))
    wrong = [row for row in rows if not row.get("error", math.inf) <= 1 or "wrong" in row]
    for row in wrong:
        print(f"WRONG: {row['case']} {row['size']} {row.get('failed') or row.get('wrong', '')}", file=sys.stderr)
    if torch is not None:
        asked = criteria(rows)
        path = record.write("gpu_memory_bound", rows, given.out, gpu=record.gpu(torch), criteria=asked)
        print(f"{criteria_text(asked)}\nwritten to {path}")
        try:
            print(f"plot: {plot([row for row in rows if 'wavedsl' in row], path.with_suffix('.png'))}")
        except ToolchainError as error:  # no matplotlib
            print(f"no plot: {error}")
    done.done()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
