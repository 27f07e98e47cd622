"""What our own model expects of an H200 for every row of the GPU benchmarks. Predicted, nothing measured.

    python benchmarks/predicted.py                      all rows; writes results/predicted.json
    python benchmarks/predicted.py --cases "mlp up" gemv
    python benchmarks/predicted.py --candidates         products also in the tiles that gpu_gemm.py tries

A row is what the benchmarks would time (`matmul`'s own choice for products, and the kernels of the memory-bound cases),
compiled for the chip and replayed by the clocks of docs/cycle-model.md. Beside it stands the least time that the chip
allows: bytes at the share of the data sheet's bandwidth that kernels reach, operations at the data sheet's dense rate,
whichever is longer. `of bound` is that over the prediction: 1 is as good as it can be.

The replay is that of `wavedsl analyze`, at the clock that the power limit leaves a kernel; from the end of a launch to
the start of one that waits for it a microsecond passes. Launching otherwise and cold code count for nothing. How far
such predictions are from what was measured, `model_error.py` says.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import wavedsl as wd
from wavedsl.analysis.launches import Launch, analyze_launches, launch_of
from wavedsl.analysis.own_clock import sm_of
from wavedsl.analysis.roofline import product_named
from wavedsl.strategies import choices
from wavedsl.strategies import plan as plans
from wavedsl.strategies.warpgroups import BETWEEN
from wavedsl.targets import get_target

sys.path.append(str(Path(__file__).resolve().parent))

import gemm_cases
import gemm_kernels
import memory_bound_cases
import record
from on_gpu import Space

PRODUCT = product_named("H200")
REACHED = PRODUCT.reached
"""Share of the data sheet's bandwidth that the best kernels reach."""
SECONDS = 1e6
"""Microseconds in one."""


def model() -> Any:
    """The chip at the data sheet's clock, for replays of other text; rows are predicted at the clock that the power
    limit leaves them."""
    return sm_of(PRODUCT)


@dataclass(frozen=True)
class Row:
    """One row of a benchmark: `launch` binds or calls kernels, and gives (bytes, FLOP, dtype that multiplies)."""

    case: str
    size: tuple[int, ...]
    what: str
    launch: Callable[[], tuple[int, int, str]]


def rows(names: Sequence[str] | None, candidates: bool) -> Iterator[list[Row]]:
    """All rows, in the order of the two benchmarks: each in the ways of which the fastest is timed."""
    space = Space(empty_arrays=True)
    for case in gemm_cases.CASES:
        if names is None or case.name in names:
            for size in case.sizes:
                tried = gemm_cases.ways(case.form, size[0], False).values() if candidates else (gemm_cases.Planned(),)
                for way in sorted(tried, key=lambda way: isinstance(way, gemm_cases.Config)):  # ours first
                    yield [Row(case.name, size, str(way), partial(product, space, case.form, size, way))]
    for bound in memory_bound_cases.CASES:
        if names is None or bound.name in names:
            for size in bound.sizes:
                cuts = bound.cuts(size) or (None,)
                yield [Row(bound.name, size, "", partial(memory_bound, space, bound, size, cut)) for cut in cuts]


def product(
    space: Space, form: gemm_kernels.Form, size: tuple[int, int, int], way: gemm_cases.Way
) -> tuple[int, int, str]:  # fmt: skip
    """Bind a product in one of `gemm_cases.ways`."""
    operands = gemm_cases.Products(space, form, size, False)
    gemm_cases.bound_by(form, way)(*operands.sets[0])
    return operands.bytes, 2 * size[0] * size[1] * size[2], form.dtype.name


DTYPES = {"f32": "f32", "f32 A B": "f32", "f64": "f64"}
"""Cases of `memory_bound_cases` whose products are not of bf16."""


def memory_bound(space: Space, case: Any, size: tuple[int, ...], cut: Any) -> tuple[int, int, str]:
    work = case.make(space, size)
    if cut is not None:
        work.bind(cut)
    return work.bytes, work.flops, DTYPES.get(case.name, "bf16")


def launched(row: Row) -> tuple[list[Launch], list[str], tuple[int, int, str]]:
    """What a row launches, compiled for the chip; the strategies that `matmul` chose; what `launch` gives."""
    found: list[Launch] = []
    said: list[str] = []

    def bound_to(kernel: Any, *args: Any) -> None:
        found.append(launch_of(kernel, args, PRODUCT.target))

    def planned(*args: Any, **kwargs: Any) -> Any:
        chosen = own(*args, **kwargs)
        said.append(f"{chosen.strategy}")
        return chosen

    own = plans.plan_gemm
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(wd.Kernel, "bind", bound_to))
        for module in (plans, choices):
            stack.enter_context(mock.patch.object(module, "chip_of", lambda product, *arrays: PRODUCT))
        stack.enter_context(mock.patch("wavedsl.strategies.plan_gemm", planned))
        return found, said, row.launch()


def predicted(row: Row) -> dict[str, Any]:
    """The row's kernels compiled and replayed, beside the bound."""
    try:
        launches, said, (moved, flops, dtype) = launched(row)
        found = analyze_launches(launches, PRODUCT)
    except wd.WaveError as error:
        return {"case": row.case, "size": list(row.size), "failed": str(error).splitlines()[0]}
    # L2 and shared memory are in the clocks of the replay, with what runs beside them.
    times = [{"hbm": r.seconds_by["hbm"] / REACHED, "replay": r.seconds_by["issue"]} for r in found]
    bounds = {"memory": moved / (REACHED * PRODUCT.hbm), "compute": flops / rate(dtype)}
    bound = max(bounds.values())
    # A launch that the replay extends from a few workgroups may come out a little below the bound.
    seconds = max(bound, sum(max(parts.values()) for parts in times) + BETWEEN * (len(times) - 1))
    tiles = "; ".join(f"{t.tile_m}x{t.tile_n}x{t.tile_k}/{t.pipeline_stages}" for t in (r.kernel_tiles for r in found))
    return {
        "case": row.case, "size": list(row.size), "what": ", ".join([row.what, *said]).strip(", "), "tiles": tiles,
        "us": seconds * SECONDS, "us by": {k: v * SECONDS for k, v in times[0].items()}, "bound us": bound * SECONDS,
        "bound by": max(bounds, key=lambda k: bounds[k]), "of bound": bound / seconds,
        "GB/s": moved / seconds / 1e9, "TFLOP/s": flops / seconds / 1e12,
        "workgroups": [one.workgroups for one in launches],
    }  # fmt: skip


def rate(dtype: str) -> float:
    """Operations per second of the fastest pipe for a dtype."""
    target = get_target(PRODUCT.target)
    return PRODUCT.peak(dtype, "matrix" if PRODUCT.has_matrix(dtype, target) else "vector", target)


def table(done: Sequence[dict[str, Any]]) -> str:
    from wavedsl.reports import table as drawn

    body = [
        (r["case"], " x ".join(map(str, r["size"])), *([r["failed"]] if "failed" in r else
         (f"{r['what']} {r['tiles']}", r["workgroups"], r["us"], r["bound us"], r["bound by"], r["of bound"])))
        for r in done
    ]  # fmt: skip
    heads = ("case", "size", "kernel", "workgroups", "predicted us", "bound us", "by", "of bound")
    return drawn(heads, [(*row, *[None] * (len(heads) - len(row))) for row in body])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", help="default: all")
    parser.add_argument("--candidates", action="store_true", help="also the tiles that gpu_gemm.py tries")
    parser.add_argument("--out", type=Path, help="folder of the JSON (default: benchmarks/results, of all cases only)")
    given = parser.parse_args(arguments)
    os.environ["WAVEDSL_DEVICE"] = f"emulator:{PRODUCT.target}"
    done = []
    for ways in rows(given.cases, given.candidates):
        done.append(min(map(predicted, ways), key=lambda found: found.get("us", math.inf)))
        row = ways[0]
        print(f"{row.case} {row.size} {row.what}: {done[-1].get('failed') or done[-1]['of bound']}", file=sys.stderr)
    print(table(done))
    print(f"predicted for {PRODUCT.name} by our own model, nothing measured")
    if given.cases is None or given.out:
        print(record.write("predicted", done, given.out, note="predicted by our own model, nothing measured"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
