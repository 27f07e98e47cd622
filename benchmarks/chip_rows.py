"""Which rows of the PTX table a chip has executed in kernels whose results were right.

    python benchmarks/chip_rows.py benchmarks/results/h200.json benchmarks/results/h200_fuzz.json

In: the result of a session on a GPU all of whose rungs and checks are right, and that of `gpu_fuzz.py`, which has the
rows of right kernels. Out: tests/data/ptx_chip.txt, the patterns of the rows in the texts of those kernels, the
session's compiled again here, one per line: what `docs/unverified.md` need not admit any more. Left out are rows that
no result depends on, such as hints to a cache, and products of which other drawn kernels were wrong (`DOUBTED`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))

from rehearsal import Rehearsal
from witnesses import rows

OUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "ptx_chip.txt"
TARGET = "sm_90a"
HINTS = re.compile(r"createpolicy|prefetch|griddepcontrol\.launch_dependents|setmaxnreg")
"""Rows that no result depends on."""
DOUBTED = re.compile(r"mma\.sync.*e5m2")
"""Two drawn kernels of three that have these gave other numbers on an H200 (docs/unverified.md)."""


class Texts(Rehearsal):
    """The texts of all units."""

    def __init__(self, target: str):
        super().__init__(target)
        self.texts: list[str] = []

    def _assemble(self, name: str, timed: bool, compiled: Any) -> None:
        self.texts.append(compiled.asm)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("session", type=Path, help="JSON of benchmarks/gpu_session.py")
    parser.add_argument("fuzz", type=Path, help="JSON of benchmarks/gpu_fuzz.py")
    given = parser.parse_args(arguments)
    found = json.loads(given.session.read_text())
    wrong = [r["check"] for part in ("ladder", "checks") for r in found[part] if not r.get("error", 2.0) <= 1]
    if wrong:
        print(f"not right, or not run: {', '.join(wrong)}", file=sys.stderr)
        return 1
    import gemm_checks
    import gpu_attention
    import gpu_gemm
    import gpu_memory_bound
    import ladder
    import memory_bound_cases

    texts = Texts(TARGET)
    gpu_gemm.compile_all((*ladder.LADDER, *gemm_checks.CHECKS), (), texts)
    gpu_attention.compile_all(texts, (), None, False)
    gpu_memory_bound.compile_all(memory_bound_cases.CASES, texts)
    seen = set(json.loads(given.fuzz.read_text())["rows"]).union(*(rows(text, TARGET) for text in texts.texts))
    executed = sorted(row for row in seen if not HINTS.search(row) and not DOUBTED.search(row))
    OUT.write_text("".join(f"{row}\n" for row in executed))
    print(f"{len(executed)} rows of {len(texts.texts)} texts, {len(texts.failed)} not compiled: {OUT}")
    return 1 if texts.failed else 0


if __name__ == "__main__":
    sys.exit(main())
