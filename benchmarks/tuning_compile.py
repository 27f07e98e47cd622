"""How long it takes to compile the candidates of a tuning run: wall-clock and processor time of the compile part.

    python benchmarks/tuning_compile.py [--target gfx942] [--limit 100] [--workers 2]

The space is that of a GEMM of f16 with tiles of 32 to 128 and one to three stages; nothing is checked or measured. The
aim is 100 candidates in 30 s on two cores that nobody else uses.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import record
from free_tiles import BK, BM, BN, K, M, N, gemm

from wavedsl.tuning import tune
from wavedsl.tuning.tuner import Steps
from wavedsl.tuning.work import compile_candidate

TARGETS = ("gfx942", "gfx950", "sm_80", "sm_90a")
SPACE = {BM: [32, 64, 128], BN: [32, 64, 128], BK: [16, 32, 64, 128], "stages": [1, 2, 3]}
AIM = 30.0


def nothing(task: Any) -> dict[str, Any]:
    """A step that is left out."""
    return {"status": "ok"}


def one_second(task: Any) -> dict[str, Any]:
    """A measurement that is left out."""
    return {"status": "ok", "seconds": 1.0}


def measure(target: str, limit: int, workers: int) -> dict[str, Any]:
    """One run of the compile part. `processor_seconds` is the sum over all processes."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        found = tune(
            gemm, subs={M: 4096, N: 4096, K: 4096}, space=SPACE, target=target, results=Path(folder) / "r.json",
            limit=limit, budget=600.0, workers=workers, steps=Steps(compile_candidate, nothing, one_second),
        )  # fmt: skip
        seconds = time.perf_counter() - start
    compiled = [e for e in found.entries.values() if "predicted" in e]
    return {
        "target": target,
        "workers": workers,
        "load": os.getloadavg()[0],
        "compiled": len(compiled),
        "refused": found.count("refused"),
        "seconds": round(seconds, 2),
        "processor_seconds": round(sum(e["compile_cpu_seconds"] for e in compiled), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: all")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    rows = []
    for target in given.target or TARGETS:
        row = measure(target, given.limit, given.workers)
        share = row["processor_seconds"] / row["workers"]
        print(
            f"{target}: {row['compiled']} candidates compiled in {row['seconds']} s by {row['workers']} processes at a "
            f"load of {row['load']:.1f}; {share:.1f} s of each processor (aim: {AIM:.0f})"
        )
        rows.append(row)
    print(record.write("tuning_compile", rows))


if __name__ == "__main__":
    main()
