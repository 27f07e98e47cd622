"""How fast the emulators run GEMMs (f16, 64 x 64 x 32 tiles), and that the results are right.

python benchmarks/emulator.py [--targets gfx942,sm_80] [--repeat 3]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import numpy as np
import record

from wavedsl.demo import gemm
from wavedsl.reports import table

CASES = ((256, False, 100), (256, True, 500), (1024, False, 4000))
"""Size of the cube, checks, milliseconds that are asked for."""


def measure(target: str, size: int, checks: bool, limit_ms: float, repeat: int) -> dict[str, Any]:
    """Emulate one GEMM on small whole numbers, whose result is exact; median and best time in milliseconds."""
    random = np.random.default_rng(size)
    a, b = (random.integers(-2, 3, (size, size)).astype(np.float16) for _ in range(2))
    want = a.astype(np.float32) @ b.astype(np.float32).T
    c = np.empty((size, size), np.float32)
    compiled = gemm.compile(a, b, c, target=target)
    seconds = []
    for _ in range(repeat):
        c[:] = np.nan
        start = time.perf_counter()
        report = compiled.emulate(a, b, c, checks=checks)
        seconds.append(time.perf_counter() - start)
        if not np.array_equal(c, want):
            raise SystemExit(f"wrong result: {target}, {size}, checks {checks}")
    executed = sum(report.instructions.values())
    return {
        "target": target,
        "size": size,
        "checks": checks,
        "median_ms": 1e3 * statistics.median(seconds),
        "best_ms": 1e3 * min(seconds),
        "limit_ms": limit_ms,
        "instructions": executed,
        "million_per_s": executed / statistics.median(seconds) / 1e6,
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--targets", default="gfx942,sm_80")
    options.add_argument("--repeat", type=int, default=3)
    given = options.parse_args()
    rows = [measure(target, *case, given.repeat) for target in given.targets.split(",") for case in CASES]
    print(table(list(rows[0]), [list(row.values()) for row in rows]))
    print(record.write("emulator", rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
