"""How far the clocks of docs/cycle-model.md are from what a GPU took: every measured case and candidate predicted.

    python benchmarks/model_error.py                            of results/h200.json; writes results/model_error.json
    python benchmarks/model_error.py SESSION.json --cases "squares bf16" --out FILE

SESSION.json is what `gpu_session.py` writes. Candidates were timed in short bursts of launches, before the power limit
takes the clock down; cases without candidates (gradients) by the least of their runs. Per shape: predicted over
measured (geometric mean of the candidates), Spearman's correlation of both, the place of the fastest by the prediction,
and how much slower the best predicted is than the fastest. Nothing runs but the model.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))

import gemm_cases
import gpu_attention
import memory_bound_cases
import predicted
import record
from gemm_kernels import Config
from on_gpu import Space
from tuning_ranking import ranks, spearman

import wavedsl as wd
from wavedsl.reports import table

SESSION = record.HERE / "results" / "h200.json"
TILES = re.compile(r"(\d+)x(\d+)x(\d+)/(\d+)x(\d+)(.*)")


def way_of(text: str) -> gemm_cases.Way:
    """The plan, or the tiles, that a session calls by this name."""
    if text.startswith("strategy"):
        return gemm_cases.Planned(int(text.removeprefix("strategy") or 1) - 1)
    found = TILES.fullmatch(text)
    if found is None:
        raise ValueError(f"no tiles: {text!r}")
    schedule = re.findall(r"(\w+)=(\([^)]*\)|\S+)", found[6])
    return Config(*map(int, found.groups()[:5]), schedule=tuple((name, ast.literal_eval(v)) for name, v in schedule))


def rows_of(session: dict[str, Any]) -> Iterator[tuple[str, float, predicted.Row]]:
    """(shape, measured seconds, what predicts them) of everything of ours that a session timed."""
    space = Space(empty_arrays=True)
    forms = {case.name: case.form for case in gemm_cases.CASES}
    for found in session.get("gemm", ()):
        size = tuple(found["size"])
        for name, seconds in timed(found):
            form = forms[found["case"]]
            launch = partial(predicted.product, space, form, size, way_of(name))
            yield shape_of(found), seconds, predicted.Row(found["case"], size, name, launch)
    for found in session.get("attention", ()):
        seen = timed(found) or [("gradients", found["wavedsl"]["best"])] if "wavedsl" in found else []
        known = ways_of(found)
        for name, seconds in seen:
            if name not in known:  # tried in an earlier run, by a benchmark of that day
                continue
            launch = partial(attention, found, known[name])
            yield shape_of(found), seconds, predicted.Row(found["case"], tuple(found["size"]), name, launch)
    bound = {case.name: case for case in memory_bound_cases.CASES}
    for found in session.get("memory", ()):
        case, size = bound[found["case"]], tuple(found["size"])
        names = cut_names(space, case, size) if timed(found) else {}
        for name, seconds in timed(found):
            if name in names:
                launch = partial(predicted.memory_bound, space, case, size, names[name])
                yield shape_of(found), seconds, predicted.Row(found["case"], size, name, launch)


def timed(found: dict[str, Any]) -> list[tuple[str, float]]:
    """Candidates of a row that have a time."""
    return [(name, seconds) for name, seconds in found.get("tried", {}).items() if isinstance(seconds, float)]


def shape_of(found: dict[str, Any]) -> str:
    return f"{found['case']} {' x '.join(map(str, found['size']))}"


def ways_of(found: dict[str, Any]) -> dict[str, Any]:
    """The candidates of a row of attention by name; `gradients` is the first of theirs."""
    target, d, causal = predicted.PRODUCT.target, found["d"], found["causal"]
    if not found["gradients"]:
        return {str(choice): choice for choice in gpu_attention.candidates(target, found["keys"], d, causal)}
    ways = gpu_attention.gradient_candidates(target, d, causal)
    return {"gradients": ways[0], **{str(way): way for way in ways}}


def attention(found: dict[str, Any], way: Any) -> tuple[int, int, str]:
    """Launches of a candidate of attention, or of the gradients."""
    subs = gpu_attention.extents(found["keys"], found["d"])
    variant = gpu_attention.forward.Variant(wd.bf16, causal=found["causal"], lse=True)
    if found["gradients"]:
        kernels = list(gpu_attention.gradient_kernels(variant, way))
    else:
        kernels = [gpu_attention.forward_kernel(variant, way)]
    for kernel in kernels:
        kernel.bind(*gpu_attention.empty_arguments(kernel, subs))
    return found["bytes"], found["flops"], "bf16"


def cut_names(space: Space, case: Any, size: tuple[int, ...]) -> dict[str, Any]:
    """The cuts of a memory-bound case by the names that a session has for them."""
    work = case.make(space, size)
    found: dict[str, Any] = {}
    for cut in case.cuts(size):
        with contextlib.suppress(memory_bound_cases.NoSuchCut):  # a case may have fewer
            found[work.named(cut) if work.named is not None else str(cut)] = cut
    return found


PRODUCTS = frozenset(case.name for case in gemm_cases.CASES)


def kind_of(case: str) -> str:
    """products, attention, or memory: what bounds the others."""
    return "products" if case in PRODUCTS else "attention" if case.startswith("attention") else "memory"


def compared(shape: str, seconds: float, row: predicted.Row) -> dict[str, Any]:
    """What was measured and what is predicted of it, in microseconds."""
    found = {"shape": shape, "kind": kind_of(row.case), "what": row.what, "measured": seconds * predicted.SECONDS}
    said = predicted.predicted(row)
    if "failed" in said:
        return {**found, "failed": said["failed"]}
    more = {k: said[k] for k in ("tiles", "us by", "bound us") if k in said}
    return {**found, "predicted": said["us"], **more, "ratio": said["us"] / found["measured"]}


def by_shape(done: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per shape."""
    found = []
    for shape in dict.fromkeys(row["shape"] for row in done):
        own = [row for row in done if row["shape"] == shape and "predicted" in row]
        if not own:
            continue
        best = min(own, key=lambda row: row["measured"])
        likely = min(own, key=lambda row: row["predicted"])
        order = ranks([row["predicted"] for row in own])
        found.append({
            "shape": shape, "kind": best["kind"], "candidates": len(own),
            "predicted / measured": statistics.geometric_mean(row["ratio"] for row in own),
            "correlation": spearman(*([row[k] for row in own] for k in ("predicted", "measured"))) if len(own) > 2
            else None,
            "place of the best": 1 + order[own.index(best)], "best": best["what"],
            "best predicted": likely["what"], "slower by": likely["measured"] / best["measured"] - 1,
        })  # fmt: skip
    return found


def overall(done: Sequence[dict[str, Any]], shapes: Sequence[dict[str, Any]]) -> str:
    """The same in one line per kind of case."""
    lines = []
    for kind in ("all", "products", "attention", "memory"):
        ratios = [row["ratio"] for row in done if "ratio" in row and kind in ("all", row["kind"])]
        own = [row for row in shapes if kind in ("all", row["kind"])]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            spread = [abs(r / mean - 1) for r in ratios]
            ranked = [row["correlation"] for row in own if row["correlation"] is not None]
            lines.append((kind, len(ratios), mean, min(ratios), max(ratios), statistics.fmean(spread),
                          statistics.fmean(ranked) if ranked else None,
                          statistics.fmean(row["slower by"] for row in own)))  # fmt: skip
    heads = ("cases", "count", "predicted / measured", "least", "most", "mean distance from that", "correlation",
             "best predicted is slower by")  # fmt: skip
    return table(heads, lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("session", type=Path, nargs="?", default=SESSION)
    parser.add_argument("--cases", nargs="*", help="default: all")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: results/model_error.json, of all cases only")
    given = parser.parse_args(arguments)
    os.environ["WAVEDSL_DEVICE"] = f"emulator:{predicted.PRODUCT.target}"
    done = []
    for shape, seconds, row in rows_of(json.loads(given.session.read_text())):
        if given.cases is None or row.case in given.cases:
            done.append(compared(shape, seconds, row))
    shapes = by_shape(done)
    print(table(tuple(shapes[0]), [tuple(row.values()) for row in shapes]) if shapes else "nothing measured")
    print(overall(done, shapes))
    if given.out or given.cases is None:
        path = given.out or record.HERE / "results" / "model_error.json"
        written = {**record.surroundings(), "product": predicted.PRODUCT.name, "shapes": shapes, "rows": done}
        path.write_text(json.dumps(written, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
