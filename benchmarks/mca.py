"""llvm-mca on basic blocks of AMDGCN text: an opinion on clocks that shares nothing with ours.

llvm-mca counts turns of a SIMD (4 clocks each) of one wave. It knows nothing of LDS banks, bandwidths, or other waves,
and takes 20 clocks for LDS and 320 for vector memory.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from wavedsl.runtime.emulator.amdgcn.text import Program

TURN = 4
_CONTROL = ("branch", "endpgm", "setpc", "call", "trap")


def find() -> str | None:
    """llvm-mca, version 22 first."""
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "wavedsl", "llvm-22", "bin")
    path = f"{os.environ.get('PATH', '')}{os.pathsep}{own}"
    return next((p for n in ("-22", "") if (p := shutil.which("llvm-mca" + n, path=path))), None)


def clocks(program: Program, blocks: Sequence[tuple[int, int]], target: str, tool: str) -> list[float | None]:
    """Clocks per repetition of each block (first, last); None where llvm-mca refuses it."""
    out: list[float | None] = []
    bodies = []
    for first, last in blocks:
        lines = [
            re.split(r";|//", line.text)[0].strip()
            for line in program.lines[first : last + 1]
            if line.inst is not None and line.inst.special not in _CONTROL
        ]
        bodies.append([line for line in lines if line])
    found = _run(bodies, target, tool)
    if found is None:  # one block spoils all: one by one
        for body in bodies:
            one = _run([body], target, tool) if body else None
            out.append(None if one is None else one[0])
        return out
    return found


def _run(bodies: Sequence[Sequence[str]], target: str, tool: str) -> list[float | None] | None:
    text = "".join(
        # the label keeps the parser from reading the end marker twice, as it would behind an immediate
        f"; LLVM-MCA-BEGIN b{i}\n" + "\n".join(body) + f"\nend{i}:\n; LLVM-MCA-END b{i}\n"
        for i, body in enumerate(bodies)
        if body
    )
    totals = []
    for iterations in (8, 24):
        done = subprocess.run(
            [tool, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={target}", f"-iterations={iterations}", "-json", "-"],
            input=text, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        try:
            regions = json.loads(done.stdout)["CodeRegions"]
        except (ValueError, KeyError):
            return None
        totals.append({r["Name"]: r["SummaryView"]["TotalCycles"] for r in regions})
    few, many = totals
    return [
        TURN * (many[f"b{i}"] - few[f"b{i}"]) / 16 if f"b{i}" in many and f"b{i}" in few else None
        for i in range(len(bodies))
    ]
