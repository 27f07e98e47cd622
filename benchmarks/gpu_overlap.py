"""Launches that may begin early, on a GPU: what it brings to ask for first tiles before the launch in front has ended.

    python benchmarks/gpu_overlap.py --out FILE                     products of few rows, one behind the other
    python benchmarks/gpu_overlap.py --emulate sm_90a               tiny ones on the emulator: right or wrong, no times

Each row is a product that `matmul` plans, in a CUDA graph whose launches rotate through more operands than L2 holds, as
`gpu_gemm` times them: with nothing asked for (0), and with what memory brings in so many clocks
(`ir/regions/first_tiles.py`, `EARLY_CLOCKS`). Each number of clocks has a process and a cache of its own, for texts on
disk do not say what the compiler assumed; they come in turn, `ROUNDS` times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))

import gemm_cases
import gpu_gemm
import gpu_session  # noqa: F401  finds wavedsl where it is not installed
import record
from on_gpu import Space
from wavedsl.ir.regions import first_tiles

from wavedsl.reports import table

CLOCKS = (0, 1750, 3500, 7000)
ROUNDS = 3
SIZES = (
    (16, 8192, 8192), (64, 8192, 8192), (16, 14336, 4096), (16, 28672, 8192), (64, 28672, 8192), (128, 28672, 8192),
    (128, 4096, 14336), (512, 4096, 14336), (4096, 4096, 4096),
)  # fmt: skip
TINY = ((16, 128, 256), (64, 128, 256))


def measured(torch: Any, sizes: Sequence[tuple[int, int, int]]) -> list[dict[str, Any]]:
    """Per size the seconds of one launch of many, and the largest error of what is allowed."""
    rows = []
    for size in sizes:
        products = gemm_cases.Products(Space(torch), gemm_cases.BF16, size, torch is not None)
        calls = products.calls(gemm_cases.strategy)
        calls[0]()
        error = products.error()
        seconds = None if torch is None else gpu_gemm.median_time(torch, calls)[0]
        rows.append({"size": size, "error": error, "seconds": seconds})
    return rows


def child(clocks: int, emulate: str | None) -> list[dict[str, Any]]:
    """What a process with these clocks measures."""
    with tempfile.TemporaryDirectory() as cache:
        more = {"WAVEDSL_CACHE_DIR": cache} | ({"WAVEDSL_DEVICE": f"emulator:{emulate}"} if emulate else {})
        done = subprocess.run(
            [sys.executable, __file__, "--clocks", str(clocks), *(["--emulate", emulate] if emulate else [])],
            env={**os.environ, **more}, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file for the rows")
    parser.add_argument("--emulate", metavar="TARGET", help="tiny sizes on the emulator, without times")
    parser.add_argument("--clocks", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    torch = None
    if not given.emulate:
        import torch
    if given.clocks is not None:
        first_tiles.EARLY_CLOCKS = given.clocks
        print(json.dumps(measured(torch, TINY if given.emulate else SIZES)))
        return 0
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for _ in range(1 if given.emulate else ROUNDS):
        for clocks in CLOCKS:
            for row in child(clocks, given.emulate):
                name = " x ".join(map(str, row["size"]))
                found.setdefault(name, {}).setdefault(clocks, []).append(row)
    rows = [
        {
            "size": name, "error": max(row["error"] for ways in tries.values() for row in ways),
            "seconds": {c: [row["seconds"] for row in ways] for c, ways in tries.items()},
        }
        for name, tries in found.items()
    ]  # fmt: skip
    lines = [[r["size"], *(_microseconds(r["seconds"][c]) for c in CLOCKS), f"{r['error']:.2f}"] for r in rows]
    print(table(("size", *(f"{c} clocks" for c in CLOCKS), "error of allowed"), lines))
    if given.out:
        gpu = torch and record.gpu(torch)
        given.out.write_text(json.dumps({**record.surroundings(), "gpu": gpu, "rows": rows}, indent=1) + "\n")
    return 0 if all(row["error"] <= 1 for row in rows) else 1


def _microseconds(seconds: Sequence[float | None]) -> str:
    known = [s for s in seconds if s is not None]
    return f"{statistics.median(known) * 1e6:.2f} us" if known else "–"


if __name__ == "__main__":
    sys.exit(main())
