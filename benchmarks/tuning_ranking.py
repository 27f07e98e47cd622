"""How well the tuner's prediction ranks candidates: an exhaustive search by the emulator's clocks or a GPU's beside it.

    python benchmarks/tuning_ranking.py [--target gfx950] [--problem wide] [--workers 2] [--out FOLDER]
    python benchmarks/tuning_ranking.py --gpu --out FILE [--limit 60] [--problem large] [--workers 15]
    python benchmarks/tuning_ranking.py --gpu --tiny --out FILE         on the emulator, at a tiny size
    python benchmarks/tuning_ranking.py --again FILE                    today's predictions beside FILE's times

Every candidate of a space is compiled, predicted and then emulated, or timed, without pruning. Per chip and problem:
Spearman's rank correlation between prediction and clocks, the place of the best candidate by the prediction, whether it
is among the best 10 %, and how much slower the best of those kept is. A run of some chips or problems leaves the rows
of the others in the results as they are; each row has its date and commit.

On a GPU (`--gpu`: an sm_90 one, and torch) problems fill the chip. Processes compile and assemble, in an order that is
drawn by chance, so that what a limit cuts off is a fair sample; this one meanwhile compares each candidate's result
with float64 on the GPU and times it (the median of short CUDA graphs that rotate through operands, as `gpu_gemm` does).
FILE has the summaries and every candidate; beside it, as they come, FILE's name with .part.json. Works where wavedsl is
not installed. `--again` needs no GPU: what was timed once says how good another model is; FILE keeps both.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import functools
import json
import math
import os
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))

import gpu_session  # noqa: F401  (finds wavedsl where it is not installed)
import record
import units
from free_tiles import BK, BM, BN, WM, K, M, N, bytes_gemm, gemm, rows_of_b, stacked
from wavedsl.ir.errors import ToolchainError

import wavedsl as wd
from wavedsl.reports import table
from wavedsl.tuning import tune
from wavedsl.tuning.tuner import Steps, by_prediction

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
SPACE = {BM: [32, 64, 128], BN: [32, 64, 128], BK: [16, 32, 64, 128], "stages": [1, 2, 3]}
DEEP = {BM: [32, 64, 128], BN: [32, 64, 128], BK: [32, 64, 128, 256], "stages": [1, 2, 3]}
HOPPER = {BM: [64, 128, 256], BN: [64, 128, 256], BK: [32, 64, 128], "stages": [2, 3, 4], "persistent": [0, 1]}
WARPGROUPS = {
    BM: [64, 128, 256], BN: [64, 128, 192, 256], BK: [64], WM: [64, 128], "stages": [3, 4], "persistent": [0, 1],
    "cluster": [1, 2],
}  # fmt: skip
KEPT = 0.1
BURST, REPLAYS = 0.004, 7
"""Seconds of a graph of launches of a candidate, and how often it is replayed: too short for the power limit."""
PROBLEMS: dict[str, tuple[Any, tuple[int, int, int]]] = {
    "square": (gemm, (1024, 1024, 512)),
    "wide": (gemm, (512, 2048, 1024)),
    "skinny": (gemm, (64, 4096, 1024)),
    "bytes": (bytes_gemm, (512, 2048, 1024)),
    "rows": (rows_of_b, (1024, 1024, 512)),
}


@dataclass(frozen=True)
class Timed:
    """A problem on a GPU: the kernel with its operands' and sums' dtypes, the space, and extents."""

    kernel: Any
    dtypes: tuple[Any, Any]
    space: Mapping[Any, Sequence[Any]]
    size: tuple[int, int, int]


TIMED = {
    "large": Timed(stacked, (wd.bf16, wd.bf16), WARPGROUPS, (4096, 4096, 4096)),
    "large f16": Timed(gemm, (wd.f16, wd.f32), HOPPER, (4096, 4096, 4096)),
    "few rows": Timed(stacked, (wd.bf16, wd.bf16), WARPGROUPS, (256, 8192, 16384)),
}
FEW = {BM: [64], BN: [64, 128], BK: [64], "stages": [2, 3], "persistent": [0], WM: [64]}
TINY = {
    "large": Timed(stacked, (wd.bf16, wd.bf16), FEW, (72, 136, 200)),
    "large f16": Timed(gemm, (wd.f16, wd.f32), {k: v for k, v in FEW.items() if k is not WM}, (72, 136, 200)),
}


def not_checked(task: Any) -> dict[str, Any]:
    """The check is left out."""
    return {"status": "ok"}


def ranks(values: Sequence[Any]) -> list[float]:
    """Rank of each value from 0; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for i in order[start:end]:
            found[i] = (start + end - 1) / 2
        start = end
    return found


def spearman(a: Sequence[Any], b: Sequence[Any]) -> float:
    """Spearman's rank correlation."""
    x, y = ranks(a), ranks(b)
    mean = (len(a) - 1) / 2
    top = sum((p - mean) * (q - mean) for p, q in zip(x, y))
    sides = sum((p - mean) ** 2 for p in x) * sum((q - mean) ** 2 for q in y)
    return top / sides**0.5 if sides else 1.0


def search(target: str, problem: str, workers: int | None = None) -> list[dict[str, Any]]:
    """Every candidate that compiles, predicted and emulated; fastest first."""
    kernel, sizes = PROBLEMS[problem]
    space = HOPPER if target == "sm_90a" else DEEP if problem == "bytes" else SPACE
    with tempfile.TemporaryDirectory() as folder:
        found = tune(
            kernel, subs=dict(zip((M, N, K), sizes)), space=space, target=target, results=Path(folder) / "r.json",
            keep=1.0, limit=1000, budget=3600.0, workers=workers, steps=Steps(check=not_checked),
        )  # fmt: skip
    bad = {k: e for k, e in found.entries.items() if e["status"] in ("wrong", "crashed", "hung", "skipped")}
    if bad:
        raise SystemExit(f"{target}, {problem}: {bad}")
    return sorted(
        ({"candidate": k, **e} for k, e in found.entries.items() if e.get("seconds")), key=lambda e: e["seconds"]
    )


def summary(target: str, problem: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of one search."""
    order = sorted(found, key=lambda e: (*by_prediction(e), e["candidate"]))
    kept = order[: ceil(KEPT * len(found))]
    best = found[0]["seconds"]
    place = min(i for i, e in enumerate(order, 1) if e["seconds"] == best)
    loss = min(e["seconds"] for e in kept) / best - 1
    return {
        "target": target,
        "problem": problem,
        "candidates": len(found),
        "correlation": round(spearman([by_prediction(e) for e in found], [e["seconds"] for e in found]), 3),
        "place of the best": place,
        "kept": len(kept),
        "best is kept": place <= len(kept),
        "best kept is slower by": f"{100 * loss:.1f} %",
        "best": found[0]["candidate"],
        "compile_cpu_seconds": round(sum(e["compile_cpu_seconds"] for e in found), 1),
        "date": datetime.date.today().isoformat(),
        "commit": record.surroundings()["commit"],
    }


# ------------------------------------------------------------------------------------------------------------- on a GPU


def assembled(task: Any) -> dict[str, Any]:
    """A step for workers: compiled, predicted, and its binary in the cache on disk."""
    from wavedsl.runtime import binaries

    from wavedsl.tuning.work import compiled_and_predicted

    compiled, outcome = compiled_and_predicted(task)
    if compiled is None:
        return outcome
    with contextlib.suppress(ToolchainError):  # no assembler: the driver's own takes the text
        binaries.binary(compiled.asm, compiled.target, compiled.name)
    return {**outcome, "kernel": compiled.to_json()}


class OnGpu:
    """Exhaustive searches that are timed on a GPU (`torch`), or on the emulator where there is none."""

    def __init__(self, done: Any, torch: Any, product: Any, pool: Any, end: float):
        from on_gpu import Space

        self.done, self.torch, self.product, self.pool, self.end = done, torch, product, pool, end
        self.space = Space(torch)

    def search(self, name: str, problem: Timed) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """Every candidate that was timed, fastest first; why others were not."""
        from gemm_cases import Products
        from gemm_kernels import Form

        from wavedsl.targets import get_target
        from wavedsl.tuning.candidates import check_space, enumerate_space, estimates
        from wavedsl.tuning.kernel_ref import reference
        from wavedsl.tuning.work import Task

        kernel, dims = problem.kernel, dict(zip(("M", "N", "K"), problem.size))
        space = check_space(kernel, problem.space)
        target = get_target("sm_90a")
        judged = estimates(kernel, enumerate_space(space), dict(zip((M, N, K), problem.size)), target, self.product)
        why = {e.candidate.key: f"before it is compiled: {e.reason}" for e in judged if e.reason}
        chosen = [e.candidate for e in judged if not e.reason]
        random.Random(0).shuffle(chosen)
        jobs: Any = deque((assembled, c) for c in chosen if f"{name}: {c.key}" not in self.done.rows)
        products = functools.cache(lambda: Products(
            self.space, Form(problem.dtypes[0], out=problem.dtypes[1]), problem.size, self.torch is not None
        ))  # fmt: skip
        task = functools.partial(
            Task, reference(kernel), target="sm_90a", product=self.product, dims=tuple(dims.items())
        )
        for _, c, outcome in self.pool.outcomes(jobs, lambda c: task(candidate=c), lambda: self.end):
            text = outcome.pop("kernel", None)
            if outcome["status"] != "skipped":
                work = dict if text is None else functools.partial(self.times, products, text)
                self.done.run(f"{name}: {c.key}", {"candidate": c.key, **outcome}, work, units.CHECK_LIMIT)
        rows = [self.done.rows.get(f"{name}: {c.key}", {"candidate": c.key, "failed": "left out"}) for c in chosen]
        for row in rows:
            if "failed" in row or row["status"] != "ok":
                why[row["candidate"]] = row.get("failed") or f"{row['status']}: {row.get('reason', '')}"
            elif not row["error"] <= 1:
                why[row["candidate"]] = f"wrong: {row['error']:.3g} of the error that is allowed"
        found = [row for row in rows if row["candidate"] not in why]
        return sorted(found, key=lambda row: row["seconds"]), why

    def times(self, products: Any, text: Mapping[str, Any]) -> dict[str, Any]:
        """A candidate's error on an output filled with NaN, and its seconds."""
        from gpu_gemm import median_time
        from wavedsl.runtime import devices
        from wavedsl.runtime.launch import bind

        from wavedsl.compiled_kernel import from_json

        compiled, here, held = from_json(text), devices.default(), products()
        calls = [bind(compiled, list(operands), here) for operands in held.sets]
        held.poison()
        calls[0]()
        error = held.error()
        return {"error": error, "seconds": median_time(self.torch, calls, BURST, REPLAYS)[0]}


def on_gpu(given: argparse.Namespace) -> int:
    """Search the problems in turn, and write what is known after each."""
    from wavedsl.tuning.kernel_ref import reference
    from wavedsl.tuning.parallel import Pool

    for problem in (*TIMED.values(), *TINY.values()):
        reference(problem.kernel)  # before there are workers, which then know it
    with Pool(None, given.workers, units.CHECK_LIMIT, "sm_90a") as pool:  # and they before this process has a GPU
        return search_all(given, pool)


def search_all(given: argparse.Namespace, pool: Any) -> int:
    from gpu_gemm import _torch_with_gpu

    from wavedsl.analysis.roofline import product_called

    problems = TINY if given.tiny else TIMED
    started = time.time()
    torch = None if given.tiny else _torch_with_gpu()
    if torch is None and not given.tiny:
        raise SystemExit("no GPU that torch can use")
    if given.tiny:
        os.environ["WAVEDSL_DEVICE"] = "emulator:sm_90a"
    done = units.Units(
        given.out.with_suffix(".part.json"), budget=given.limit, resume=given.resume, alive=units.alive(torch)
    )
    left = (done.end or math.inf) - started
    gpu = {"name": "emulator"} if torch is None else record.gpu(torch)
    searches = OnGpu(done, torch, product_called(gpu["name"], "sm_90a"), pool, time.monotonic() + left)
    rows, candidates, bad = [], {}, 0
    for name in given.problem or problems:
        found, why = searches.search(name, problems[name])
        keys = ("candidate", "seconds", "predicted", "issue_seconds", "bound", "error")
        candidates[name] = {"timed": [{k: row[k] for k in keys} for row in found], "not timed": why}
        row: dict[str, Any] = {"target": "sm_90a", "problem": name}
        row |= {"size": " x ".join(map(str, problems[name].size)), "gpu": gpu["name"]}
        if found:
            row = {**row, **summary("sm_90a", name, found), "seconds of the best": found[0]["seconds"]}
        row["not timed"] = len(why)
        row["left out"] = sum(said.startswith("left out") for said in why.values())
        bad += sum(said.startswith(("wrong", "crashed", "hung")) or "failed" in said for said in why.values())
        rows.append(row)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        print(json.dumps(row), flush=True)
        written = {**record.surroundings(given.commit), "gpu": gpu, "rows": rows, "candidates": candidates}
        given.out.write_text(json.dumps(written, indent=1) + "\n")
    done.done()
    return 1 if bad else 0


# ---------------------------------------------------------------------------------------------------------- once more


def predicted_anew(task: Any) -> dict[str, Any]:
    """A step for workers: what the model says of a candidate."""
    from wavedsl.tuning.work import compiled_and_predicted

    return compiled_and_predicted(task)[1]


def again(path: Path, problems: Sequence[str], workers: int | None) -> list[dict[str, Any]]:
    """Summaries of the searches that a GPU has timed, by today's predictions; FILE's `again` are these rows."""
    from wavedsl.analysis.roofline import product_called
    from wavedsl.targets import get_target
    from wavedsl.tuning.candidates import check_space, enumerate_space, estimates
    from wavedsl.tuning.kernel_ref import reference
    from wavedsl.tuning.work import Task

    written, rows = json.loads(path.read_text()), []
    product = product_called(written["gpu"]["name"], "sm_90a")
    known = TINY if written["gpu"]["name"] == "emulator" else TIMED
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        for name in problems or written["candidates"]:
            problem = known[name]
            dims = dict(zip(("M", "N", "K"), problem.size))
            space = enumerate_space(check_space(problem.kernel, problem.space))
            judged = estimates(problem.kernel, space, dict(zip((M, N, K), problem.size)), get_target("sm_90a"), product)
            task = functools.partial(
                Task, reference(problem.kernel), target="sm_90a", product=product, dims=tuple(dims.items())
            )
            timed = {e["candidate"]: e for e in written["candidates"][name]["timed"]}
            tasks = [task(candidate=e.candidate) for e in judged if e.candidate.key in timed]
            done = zip(tasks, pool.map(predicted_anew, tasks, chunksize=4))
            found = [{**timed[t.candidate.key], **outcome} for t, outcome in done if outcome["status"] == "ok"]
            rows.append(summary("sm_90a", name, sorted(found, key=lambda e: e["seconds"])))
            print(json.dumps(rows[-1]), flush=True)
    path.write_text(json.dumps({**written, "again": rows}, indent=1) + "\n")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: all")
    parser.add_argument("--problem", choices=dict.fromkeys((*PROBLEMS, *TIMED)), action="append", help="default: all")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", type=Path, help="another folder than benchmarks/results; with --gpu, a file")
    parser.add_argument("--gpu", action="store_true", help="time on the GPU at hand")
    parser.add_argument("--again", type=Path, metavar="FILE", help="of --gpu, whose times are kept")
    parser.add_argument("--tiny", action="store_true", help="with --gpu: on the emulator")
    parser.add_argument("--limit", type=float, default=60.0, metavar="SECONDS", help="with --gpu (%(default)g)")
    parser.add_argument("--commit", default="", metavar="HASH", help="what is measured, where there is no git")
    parser.add_argument(units.RESUME, action="store_true", help="with --gpu: go on with the rows of the last run")
    given = parser.parse_args(arguments)
    known = (TINY if given.tiny else TIMED) if given.gpu or given.again else PROBLEMS
    unknown = [name for name in given.problem or () if name not in known]
    if unknown or (given.gpu and given.out is None):
        parser.error(f"no problem {unknown[0]} here" if unknown else "--gpu wants --out FILE")
    if given.again:
        again(given.again, given.problem or (), given.workers)
        return 0
    if given.gpu:
        return on_gpu(given)
    path = (given.out or Path(record.HERE) / "results") / "tuning_ranking.json"
    rows = {(r["target"], r["problem"]): r for r in json.loads(path.read_text())["rows"]} if path.is_file() else {}
    for target in given.target or TARGETS:
        for problem in given.problem or PROBLEMS:
            row = rows[target, problem] = summary(target, problem, search(target, problem, given.workers))
            print(json.dumps(row), flush=True)
            record.write("tuning_ranking", [rows[key] for key in sorted(rows)], given.out)
    found = [rows[key] for key in sorted(rows)]
    print(table(list(found[0]), [list(row.values()) for row in found]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
