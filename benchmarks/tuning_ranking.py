"""How well the tuner's prediction ranks candidates: an exhaustive search by the emulator's clocks beside it.

    python benchmarks/tuning_ranking.py [--target gfx950] [--problem wide] [--workers 2] [--out FOLDER]

Every candidate of a space is compiled, predicted and then emulated, without pruning. Per chip and problem: Spearman's
rank correlation between prediction and clocks, the place of the best candidate by the prediction, whether it is among
the best 10 %, and how much slower the best of those kept is. A run of some chips or problems leaves the rows of the
others in the results as they are; each row has its date and commit.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

import record

import wavedsl as wd
from wavedsl.reports import table
from wavedsl.tuning import tune
from wavedsl.tuning.tuner import Steps, by_prediction

M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")
TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
SPACE = {BM: [32, 64, 128], BN: [32, 64, 128], BK: [16, 32, 64, 128], "stages": [1, 2, 3]}
DEEP = {BM: [32, 64, 128], BN: [32, 64, 128], BK: [32, 64, 128, 256], "stages": [1, 2, 3]}
HOPPER = {BM: [64, 128, 256], BN: [64, 128, 256], BK: [32, 64, 128], "stages": [2, 3, 4], "persistent": [0, 1]}
KEPT = 0.1
TILES = [
    wd.WorkgroupConstraint(M, BM, 0),
    wd.WorkgroupConstraint(N, BN, 1),
    wd.TilingConstraint(K, BK),
    wd.WaveConstraint(M, BM / 2),
    wd.WaveConstraint(N, BN / 2),
]


@wd.wave(TILES)
def gemm(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


@wd.wave(TILES)
def rows_of_b(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[K, N, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
    """B as it lies in memory: its fragments are read with transposing reads, or element by element."""
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


@wd.wave(TILES)
def bytes_gemm(a: wd.Memory[M, K, wd.SHARED, wd.i8], b: wd.Memory[N, K, wd.SHARED, wd.i8], c: wd.Memory[M, N, wd.i32]):
    acc = wd.Register[M, N, wd.i32](0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.i32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


PROBLEMS: dict[str, tuple[Any, tuple[int, int, int]]] = {
    "square": (gemm, (1024, 1024, 512)),
    "wide": (gemm, (512, 2048, 1024)),
    "skinny": (gemm, (64, 4096, 1024)),
    "bytes": (bytes_gemm, (512, 2048, 1024)),
    "rows": (rows_of_b, (1024, 1024, 512)),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: all")
    parser.add_argument("--problem", choices=PROBLEMS, action="append", help="default: all")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", type=Path, help="another folder than benchmarks/results")
    given = parser.parse_args()
    path = (given.out or Path(record.HERE) / "results") / "tuning_ranking.json"
    rows = {(r["target"], r["problem"]): r for r in json.loads(path.read_text())["rows"]} if path.is_file() else {}
    for target in given.target or TARGETS:
        for problem in given.problem or PROBLEMS:
            row = rows[target, problem] = summary(target, problem, search(target, problem, given.workers))
            print(json.dumps(row), flush=True)
            record.write("tuning_ranking", [rows[key] for key in sorted(rows)], given.out)
    found = [rows[key] for key in sorted(rows)]
    print(table(list(found[0]), [list(row.values()) for row in found]))


if __name__ == "__main__":
    main()
