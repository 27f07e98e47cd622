"""The AMDGCN cycle model beside others: llvm-mca block by block, published GEMMs, and what its assumptions change.

    python benchmarks/cycle_model.py [--triton PYTHON] [--whole] [--update]

`--triton`: an interpreter that has Triton, whose text of the same GEMM is then modelled too. `--update` writes the
measured errors to `runtime/emulator/amdgcn/cycle_error.py`, which the command line prints beside predictions.

The published products have K up to 16384. Their loops are in a steady state after a few trips, so clocks of the same
text at K = 1024 and 2048, replayed in the launch of the published size, are extended along a straight line. `--whole`
emulates all of K, too, and prints how far the line is off: of our texts, less than one clock in 10000.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mca
import ml_dtypes
import numpy as np
import record
from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.runtime.emulator import run
from wavedsl.runtime.emulator.amdgcn.cycle_blocks import basic_blocks, clocks_per_trip
from wavedsl.runtime.emulator.amdgcn.text import Program, parse
from wavedsl.runtime.emulator.cycle_chips import CHIPS
from wavedsl.runtime.emulator.cycle_queue import Launch

import wavedsl as wd
from wavedsl.demo import copy as copy_kernel
from wavedsl.demo import gemm as small_gemm
from wavedsl.reports import table

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ("gfx90a", "gfx942", "gfx950")
TILE, BLOCK_K, WAVES = 256, 64, 8
_MEMORY = (Unit.VMEM, Unit.SCRATCH, Unit.DS, Unit.SMEM, Unit.BARRIER)

PUBLISHED = (
    ("gfx942", "MI325X", 4096, (714, 753)), ("gfx942", "MI325X", 8192, (749, 785)),
    ("gfx942", "MI325X", 16384, (714, 750)), ("gfx950", "MI355X", 4096, (1413, 1114, 1139)),
    ("gfx950", "MI355X", 8192, (1610, 1591, 1521)), ("gfx950", "MI355X", 16384, (1572, 1564, 1560)),
)  # fmt: skip
"""Target, product, N, TFLOP/s of bf16 GEMMs N x N x N by several libraries: HipKittens, analysis/bf16_gemm."""


# ------------------------------------------------------------------------------------------------- llvm-mca, per block


def texts() -> Iterator[tuple[str, str, str]]:
    """(name, target, text) of what is compared: our kernels, and the conformance vectors of Triton and clang."""
    M, N, K = wd.symbols("M N K")
    for target in TARGETS:
        yield "our copy", target, copy_kernel.compile(target=target, subs={M: 512, N: 512}).asm
        yield "our small GEMM", target, small_gemm.compile(target=target, subs={M: 512, N: 512, K: 512}).asm
        yield "our large GEMM", target, our_gemm(512, target).asm
    for path in sorted((ROOT / "tests" / "vectors" / "amdgcn").glob("*/case.json")):
        case = json.loads(path.read_text())
        yield case["name"], case["arch"], (path.parent / case["asm"]).read_text()


def straight_blocks(program: Program) -> list[tuple[int, int]]:
    """Basic blocks of four instructions or more, without the branch at their end."""
    out = []
    for first, last in basic_blocks(program):
        inst = program.lines[last].inst
        if inst is not None and inst.special in ("branch", "endpgm", "setpc", "call", "trap"):
            last -= 1
        if last - first >= 3:
            out.append((first, last))
    return out


def against_mca() -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """Per text and kind of block the spread of (our clocks / llvm-mca's), and the same over everything."""
    tool = mca.find()
    if tool is None:
        return None
    rows = []
    ratios: dict[str, list[float]] = {"arithmetic": [], "with memory": []}
    for name, target, text in texts():
        program = parse(text, target)
        blocks = straight_blocks(program)
        theirs = mca.clocks(program, blocks, target, tool)
        here: dict[str, list[float]] = {kind: [] for kind in ratios}
        for block, other in zip(blocks, theirs):
            if other:
                lines = program.lines[block[0] : block[1] + 1]
                memory = any(line.inst is not None and line.inst.unit in _MEMORY for line in lines)
                here["with memory" if memory else "arithmetic"].append(
                    clocks_per_trip(program, [block], target) / other
                )
        for kind, values in here.items():
            ratios[kind] += values
            if values:
                rows.append({"text": name, "target": target, "blocks": kind, **_spread(values)})
    return rows, {kind: _spread(values) for kind, values in ratios.items()}


def _spread(values: list[float]) -> dict[str, Any]:
    ordered = sorted(values)
    at = [ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in (0.1, 0.5, 0.9)]
    return {
        "count": len(ordered), "p10": round(at[0], 3), "median": round(at[1], 3), "p90": round(at[2], 3),
        "mean error": round(statistics.fmean(abs(v - 1) for v in ordered), 3),
    }  # fmt: skip


# -------------------------------------------------------------------------------------------------- the large GEMM


@functools.cache
def our_gemm(k: int, target: str, block_k: int = BLOCK_K) -> Any:
    """256 x 256 x `block_k` tiles of bf16 on 8 waves, one workgroup."""
    M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, BM / 2),
            wd.WaveConstraint(N, BN / 4),
        ],
        subs={BM: TILE, BN: TILE, BK: block_k},
        schedule=wd.Schedule(split_k=1),  # the one tile stands for a grid that fills the chip
    )
    def gemm(a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], c: wd.Memory[M, N, wd.f32]):
        acc = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return gemm.compile(target=target, subs={M: TILE, N: TILE, K: k})


@functools.cache
def triton_text(python: str, target: str, stages: int) -> dict[str, Any] | None:
    """What `triton_gemm.py` prints under that interpreter, None where it fails."""
    script = Path(__file__).with_name("triton_gemm.py")
    done = subprocess.run(
        [python, str(script), target, str(stages)], capture_output=True, text=True, check=False, timeout=600
    )
    try:
        return json.loads(done.stdout)
    except ValueError:
        return None


@dataclasses.dataclass(frozen=True)
class Text:
    """Somebody's text of the GEMM: ours with tiles of `block_k` along K, or Triton's of `python` with `stages`."""

    target: str
    block_k: int = BLOCK_K
    python: str = ""
    stages: int = 0


BEST_BLOCK = {"gfx942": 32, "gfx950": 64}
"""Tiles along K of which two stages fit."""


@functools.cache
def emulated(text: Text, k: int) -> Any:
    """The report of one workgroup. The result is checked."""
    random = np.random.default_rng(k)
    a, b = (random.integers(-2, 3, (TILE, k)).astype(ml_dtypes.bfloat16) for _ in range(2))
    c = np.empty((TILE, TILE), np.float32)
    if text.python:
        kernel = triton_text(text.python, text.target, text.stages)
        assert kernel is not None
        sizes = [np.int32(n) for n in (k, k, k, TILE)]
        entry = next(iter(parse(kernel["text"], text.target).kernels.values()))
        hidden = [x for x in entry.args or () if not str(x[".value_kind"]).startswith("hidden_")][7:]
        report = run(
            kernel["text"], target=text.target, grid=(1, 1, 1), block=(64 * WAVES, 1, 1),
            args=[a, b, c, *sizes, *(None for _ in hidden)], shared_bytes=kernel["shared"], checks=False,
        )  # fmt: skip
    else:
        report = our_gemm(k, text.target, text.block_k).emulate(a, b, c, checks=False)
    if not np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T):
        raise SystemExit(f"wrong result: {text}, K = {k}")
    return report


def launch_of(n: int, target: str) -> Launch:
    """How an N x N x N GEMM in these tiles loads the busiest compute unit. Memory gives A, B once and takes C once."""
    units = CHIPS[target].units
    groups = (n // TILE) ** 2
    asked = groups * (2 * TILE * n * 2 + TILE * TILE * 4)
    needed = 2 * n * n * 2 + n * n * 4
    return Launch(-(-groups // units), 1, needed / asked, min(units, groups))


def large_gemms(python: str | None, k: int) -> list[dict[str, Any]]:
    """Share of the matrix units' clocks, whole kernel and main loop, of a workgroup in an 8192^3 GEMM (cut at `k`)."""
    rows = []
    for target in ("gfx942", "gfx950"):
        kernels = [(f"ours, BK {block_k}", Text(target, block_k)) for block_k in (32, 64)]
        for stages in (1, 2, 3) if python else ():
            text = triton_text(python, target, stages)
            limit = 65536 if target == "gfx942" else 163840
            if text is not None and text["shared"] <= limit:
                name = f"Triton {text['version']}, {stages} stages"
                kernels.append((name, Text(target, python=python, stages=stages)))
        for name, kernel in kernels:
            start = time.perf_counter()
            report = emulated(kernel, k)
            middle = time.perf_counter()
            timing = report.replay(dataclasses.replace(launch_of(8192, target), groups=1))
            rows.append(
                {
                    "target": target, "kernel": name, "K": k, "cycles": timing.cycles,
                    "mfma": round(timing.utilisation["mfma"], 3), "mfma in loop": round(timing.matrix_window, 3),
                    "lds": round(timing.utilisation["lds"], 3), "waits": _top(timing.stalls),
                    "conflicts": report.bank_conflicts,
                    "emulated_ms": round(1e3 * (middle - start)),
                    "modelled_ms": round(1e3 * (time.perf_counter() - middle)),
                }
            )  # fmt: skip
    return rows


def _top(stalls: dict[str, int]) -> str:
    total = sum(stalls.values()) or 1
    return " ".join(f"{name} {100 * clocks // total}%" for name, clocks in list(stalls.items())[:3])


STEADY = (1024, 2048)
"""Two values of K, between which a text's loop is in its steady state."""


def clocks_of_whole(text: Text, n: int) -> float:
    """Clocks of the busiest compute unit in an N x N x N GEMM, by a straight line through the two K of `STEADY`."""
    launch = launch_of(n, text.target)
    low, high = (emulated(text, k).replay(launch).cycles for k in STEADY)
    return high + (high - low) * (n - STEADY[1]) / (STEADY[1] - STEADY[0])


def against_published(python: str | None, whole: bool) -> list[dict[str, Any]]:
    """Predicted TFLOP/s of whole GEMMs, our text and Triton's, beside what others measured with their best kernels.
    `whole`: emulate all of K, too, and compare."""
    rows = []
    for target, product, n, measured in PUBLISHED:
        kernels = {"ours": Text(target, BEST_BLOCK[target])}
        if python and triton_text(python, target, 2) is not None:
            kernels["Triton"] = Text(target, python=python, stages=2)
        for name, kernel in kernels.items():
            cycles = clocks_of_whole(kernel, n)
            predicted = 2 * n**3 / (cycles / CHIPS[target].gigahertz) / 1e3
            row = {
                "product": product, "N": n, "text": name, "predicted": round(predicted),
                "published": "/".join(str(x) for x in measured),
                "ratio to best": round(predicted / max(measured), 2),
            }  # fmt: skip
            if whole:
                row["line / whole"] = round(cycles / emulated(kernel, n).replay(launch_of(n, target)).cycles, 4)
            rows.append(row)
    return rows


def sensitivity(k: int) -> list[dict[str, Any]]:
    """The same GEMM when one assumption that nobody published is changed."""
    changes: list[dict[str, Any]] = [
        {}, {"queue": 1}, {"queue": 4}, {"queue": 16}, {"hit_latency": 250}, {"hit_latency": 750},
        {"memory_latency": 600}, {"memory_latency": 1200}, {"barrier": 32}, {"taken_branch": 32},
        {"l2_rate": CHIPS["gfx942"].l2_rate / 2},
    ]  # fmt: skip
    rows = []
    for target in ("gfx942", "gfx950"):
        report = emulated(Text(target, BEST_BLOCK[target]), k)
        for change in changes:
            chip = dataclasses.replace(CHIPS[target], **change)
            timing = report.replay(dataclasses.replace(launch_of(8192, target), groups=1), chip)
            rows.append(
                {
                    "target": target, "assumption": ", ".join(f"{n} = {v}" for n, v in change.items()) or "as stated",
                    "cycles": timing.cycles, "mfma in loop": round(timing.matrix_window, 3),
                }
            )  # fmt: skip
    return rows


# ------------------------------------------------------------------------------------------------------------- report

_ERROR_FILE = '''"""How far the AMDGCN cycle model is from others. Written by `benchmarks/cycle_model.py --update`."""

from __future__ import annotations

MCA = {mca}
"""Our clocks over llvm-mca's, per basic block of one wave: blocks, 10th percentile, median, 90th percentile."""
PUBLISHED = {published}
"""Product: lowest and highest of (predicted over best published TFLOP/s) of bf16 GEMMs.

Predicted for our text at the peak clock; published for hand-tuned kernels at whatever clock the board kept."""
'''


def update(mca_spread: dict[str, Any] | None, published: list[dict[str, Any]]) -> None:
    spread = {kind: (v["count"], v["p10"], v["median"], v["p90"]) for kind, v in (mca_spread or {}).items()}
    products: dict[str, list[float]] = {}
    for row in published:
        if row["text"] == "ours":
            products.setdefault(row["product"], []).append(row["ratio to best"])
    found = {product: (min(values), max(values)) for product, values in products.items()}
    (ROOT / "runtime" / "emulator" / "amdgcn" / "cycle_error.py").write_text(
        _ERROR_FILE.format(mca=_literal(spread), published=_literal(found)), encoding="utf-8"
    )


def _literal(values: dict[str, tuple[Any, ...]]) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in values.items()) + "}"


def _show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}")
    if rows:
        print(table(list(rows[0]), [list(row.values()) for row in rows]))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--triton", metavar="PYTHON")
    options.add_argument("--update", action="store_true")
    options.add_argument("--whole", action="store_true", help="emulate all of K of the published products, too")
    options.add_argument("-k", type=int, default=2048, help="K of the GEMM whose utilisation is shown (default 2048)")
    given = options.parse_args()
    found = against_mca()
    rows: list[dict[str, Any]] = []
    if found is None:
        print("llvm-mca is not installed: no comparison by block")
    else:
        _show("our clocks / llvm-mca's, per basic block", found[0])
        _show("all blocks", [{"blocks": kind, **values} for kind, values in found[1].items()])
        rows += [{"table": "mca", **row} for row in found[0]]
    tables = {
        "large": ("256 x 256 tiles of bf16, 8 waves", large_gemms(given.triton, given.k)),
        "published": ("whole GEMMs, TFLOP/s", against_published(given.triton, given.whole)),
        "sensitivity": ("assumptions that nobody published", sensitivity(given.k)),
    }
    for name, (title, part) in tables.items():
        _show(title, part)
        rows += [{"table": name, **row} for row in part]
    if given.update:
        update(found[1] if found else None, tables["published"][1])
    print(record.write("cycle_model", rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
