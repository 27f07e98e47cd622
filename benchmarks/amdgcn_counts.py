"""Instructions and registers of the AMDGCN that is emitted, each beside its limit.

    python benchmarks/amdgcn_counts.py [--no-run]
    python benchmarks/amdgcn_counts.py --every-tile        # 1656 loops, some minutes: which of them compute anything

* small: the product 64 x 64 x 128 in tiles of 32 x 32 x 64 on four waves of 16 x 16, f16: what a wave executes, static
  instructions, registers, waits;
* copy: 16 x 16 numbers of f16;
* large: tiles of 256 x 256 x 64 of bf16 on 8 waves: the main loop, per step of 64 along K;
* loop: the main loops of other tiles, per step: nothing but matrix instructions, memory, waits, barriers and the
  loop's own scalar instructions;
* turned: the loops of all these tiles, and of two small ones, with B as [K, N], which is transposed on its way to the
  matrix units or taken by instructions of column pairs.

Static numbers are counted twice: `.resources`, and LLVM's disassembly of the assembled text where llvm-mc and
llvm-objdump are found. Limits of `small` and `large` hold for gfx942 and gfx950, of the others for every chip. The
limit of `loop` rows is a rule, not a number (`loop_limit`).
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import wavedsl as wd

HERE = Path(__file__).resolve().parent
TARGETS = ("gfx90a", "gfx942", "gfx950")
LARGE = (256, 256, 64, 64, 128)
LARGE_LIMITS = {"gfx942": (64, 56), "gfx950": (32, 56)}
SMALL_LIMITS = {"valu executed": 26, "instructions": 80, "vgprs": 31, "sgprs": 16, "waitcnt": 9, "nop": 1}
COPY_LIMITS = {"valu executed": 1, "instructions": 13}
TILES = (
    # workgroup tile M, N, K; wave tile M, N; dtype
    ((64, 64, 32, 32, 32), "f16"),
    ((64, 64, 64, 32, 32), "bf16"),
    ((128, 128, 32, 64, 64), "f16"),
    ((128, 128, 64, 64, 64), "f16"),
    ((128, 64, 64, 32, 64), "bf16"),
    ((256, 128, 64, 64, 64), "bf16"),
    ((256, 256, 32, 64, 128), "f16"),
    ((192, 128, 32, 96, 64), "f16"),
    ((16, 16, 16, 16, 16), "f16"),
)
TURNED = (*TILES, ((32, 64, 64, 32, 32), "f16"), ((32, 32, 64, 16, 16), "f16"))
"""Tiles whose B is [K, N]; small ones, of which LDS is the limit, among them."""
SIDES, DEPTHS = (16, 32, 64, 128, 256), (16, 32, 64, 128)
WAVES = ((1, 1), (2, 2), (2, 1), (1, 2), (4, 2))
MOST_SUMS = 128 * 64
"""`every_tile`: workgroup tiles, divided among these waves into 16 to 128 a side and at most so many elements."""
SLACK = 1.10
"""What holds for shapes that are named, holds within this factor for others."""


def example(name: str, folder: Path = HERE.parent / "examples") -> ModuleType:
    """The module examples/<name>.py; its folder goes last, because it has a copy.py and so has the standard library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    title = f"{folder.name}_{name}"
    spec = importlib.util.spec_from_file_location(title, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[title] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ------------------------------------------------------------------------------------------------- independent counting

CLASSES = (
    # the first that matches: LLVM's spelling → class of `.resources`
    (r"v_accvgpr_", "accmove"), (r"v_mfma_|v_smfmac_", "mfma"), (r"v_", "valu"), (r"s_waitcnt", "waitcnt"),
    (r"s_nop", "nop"), (r"s_barrier", "barrier"), (r"s_c?branch", "branch"),
    (r"s_(buffer_)?load|s_dcache|s_memtime", "smem"), (r"s_", "salu"), (r"ds_", "ds"), (r"scratch_", "scratch"),
    (r"buffer_|global_|flat_", "vmem"),
)  # fmt: skip


def disassembled(text: str, target: str, llvm_mc: str, objdump: str) -> list[str]:
    """The instructions of a text as LLVM reads them back, without what pads the code."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "k")
        path.with_suffix(".s").write_text(text)
        base = [llvm_mc, "-triple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-filetype=obj"]
        subprocess.run([*base, str(path.with_suffix(".s")), "-o", str(path)], check=True)
        command = [objdump, "-d", f"--mcpu={target}", str(path)]
        said = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = re.findall(r"^\t([a-z]\S*.*?)\s*//", said.stdout, re.M)
    return lines[: len(lines) - lines[::-1].index("s_endpgm")]


def count(lines: list[str]) -> dict[str, int]:
    """Instructions by class."""
    found: dict[str, int] = {}
    for line in lines:
        name = next(kind for pattern, kind in CLASSES if re.match(pattern, line))
        found[name] = found.get(name, 0) + 1
    return found


def registers(lines: list[str]) -> tuple[int, int]:
    """(highest numbered vector register + 1, the same of scalar registers), as the instructions name them."""
    top = {"v": -1, "s": -1}
    for line in lines:
        for file, first, last in re.findall(r"\b([vs])(?:\[(?:\d+:)?(?=\d+\])|(?=\d))(\d+)(?::(\d+))?", line):
            top[file] = max(top[file], int(last or first))
        for file, last in re.findall(r"\b([vs])\[\d+:(\d+)\]", line):
            top[file] = max(top[file], int(last))
    return top["v"] + 1, top["s"] + 1


def loops(lines: list[str], text: str) -> list[dict[str, int]]:
    """Instructions by class between each backward branch and what it jumps to, from the emitted text's labels."""
    out = []
    places: dict[str, int] = {}
    at = 0
    for line in text.split("\t.section .rodata")[0].splitlines():
        line = line.split(";")[0].rstrip()
        if re.match(r"^\.L\w+:", line):
            places[line[:-1]] = at
        elif re.match(r"^\t[a-z]", line):
            target = line.split()[-1]
            at += 1
            if target in places and "branch" in line:
                out.append(count(lines[places[target] : at]))
    return out


# ---------------------------------------------------------------------------------------------------------------- rows


def loop_limit(compiled: Any) -> int:
    """Most instructions that are not matrix instructions, per step of a pipelined loop.

    Every fragment is read once and every element of the tiles copied once; a wait for every four of these accesses;
    and per step the ten instructions that `ir/schedule/unroll_rule.py` calls a loop's own, barriers among them. Within
    `SLACK`.
    """
    loop = compiled.resources.loops[0]
    classes = loop.instructions
    memory = (classes["ds"] + classes["vmem"]) / loop.steps
    own = 10 + memory / 4
    return int((memory + own) * SLACK + 0.999)


def rows(targets: tuple[str, ...] = TARGETS, run: bool = True, oracles: tuple[str, str] | None = None) -> list[dict]:
    """One row per number: kernel, target, what, value, limit (None: none), and the value that LLVM's disassembly gives
    (None: not counted)."""
    gemm, copy = example("gemm"), example("copy")
    out: list[dict[str, Any]] = []

    def row(kernel: str, target: str, what: str, value: float, limit: float | None, again: float | None) -> None:
        out.append(
            {"kernel": kernel, "target": target, "what": what, "value": value, "limit": limit, "counted again": again}
        )

    for target in targets:
        tiles, (m, n, k) = gemm.TILES["small"]
        a, b = (np.ones((s, k), np.float16) for s in (m, n))
        c = np.zeros((m, n), np.float32)
        x, y = np.ones((16, 16), np.float16), np.zeros((16, 16), np.float16)
        for name, kernel, arguments, limits in (
            ("small", gemm.gemm_kernel(wd.f16, tiles), (a, b, c), SMALL_LIMITS if target in LARGE_LIMITS else {}),
            ("copy", copy.copy_kernel(wd.f16), (x, y), COPY_LIMITS),
        ):
            compiled = kernel.compile(*arguments, target=target)
            r = compiled.resources
            lines = disassembled(compiled.asm, target, *oracles) if oracles else None
            again = count(lines) if lines is not None else None
            if run:
                report = compiled.emulate(*arguments)
                waves = int(np.prod(compiled.grid)) * (int(np.prod(compiled.block)) // 64)
                executed = sum(
                    times for name_, times in report.instructions.items()
                    if name_.startswith("v_") and not name_.startswith(("v_mfma", "v_accvgpr"))
                )  # fmt: skip
                row(name, target, "valu executed", executed / waves, limits.get("valu executed"), None)
            row(name, target, "instructions", sum(r.instructions.values()), limits.get("instructions"),
                len(lines) if lines is not None else None)  # fmt: skip
            top = registers(lines) if lines is not None else (None, None)
            row(name, target, "vgprs", r.vgprs, limits.get("vgprs"), top[0])
            row(name, target, "sgprs", r.sgprs, limits.get("sgprs"), top[1])
            for what in ("valu", "waitcnt", "nop", "salu", "ds", "vmem"):
                row(name, target, what, r.instructions[what], limits.get(what),
                    again.get(what, 0) if again is not None else None)  # fmt: skip
        for tiles, dtype in ((LARGE, "bf16"), *TILES):
            name = "large" if tiles == LARGE else "loop " + "x".join(map(str, tiles)) + " " + dtype
            sizes = {gemm.M: 64 * tiles[0], gemm.N: 64 * tiles[1], gemm.K: 64 * tiles[2]}
            compiled = gemm.gemm_kernel(getattr(wd, dtype), tiles).compile(target=target, subs=sizes)
            loop = compiled.resources.loops[0]
            steps = loop.steps
            others = sum(v for what, v in loop.instructions.items() if what != "mfma") / steps
            limits = LARGE_LIMITS.get(target) if tiles == LARGE else None
            found = (
                loops(disassembled(compiled.asm, target, *oracles), compiled.asm)[0] if oracles is not None else None
            )
            row(name, target, "mfma per step", loop.instructions["mfma"] / steps, limits[0] if limits else None,
                found["mfma"] / steps if found else None)  # fmt: skip
            row(name, target, "others per step", others, limits[1] if limits else loop_limit(compiled),
                sum(v for what, v in found.items() if what != "mfma") / steps if found else None)  # fmt: skip
            for what in ("valu", "accmove"):
                row(name, target, f"{what} in the loop", loop.instructions[what], 0,
                    found.get(what, 0) if found else None)  # fmt: skip
            row(name, target, "registers", compiled.resources.registers, 256 if tiles == LARGE else None, None)
            row(name, target, "spills", compiled.resources.spills, 0, None)
    return out


def turned_rows(targets: tuple[str, ...] = TARGETS, tiles: tuple | None = None) -> list[dict]:
    """The same of loops whose B is [K, N]: vector instructions per step, others per step, accumulator moves, spills."""
    kernels = example("gemm_kernels", HERE)
    out = []
    for target in targets:
        for tile, dtype in tiles or ((LARGE, "bf16"), *TURNED):
            kernel = kernels.product(kernels.Form(getattr(wd, dtype), out=wd.f32, b="KN"), kernels.Config(*tile))
            sizes = {kernels.M: 64 * tile[0], kernels.N: 64 * tile[1], kernels.K: 64 * tile[2]}
            compiled = kernel.compile(target=target, subs=sizes)
            loop = compiled.resources.loops[0]
            others = sum(v for what, v in loop.instructions.items() if what not in ("mfma", "valu")) / loop.steps
            for what, value, limit in (
                ("valu per step", loop.instructions["valu"] / loop.steps, 0),
                ("others per step", others, loop_limit(compiled)),
                ("accmove in the loop", loop.instructions["accmove"], 0),
                ("spills", compiled.resources.spills, 0),
            ):
                name = "turned " + "x".join(map(str, tile)) + " " + dtype
                row = {"kernel": name, "target": target, "what": what, "value": value, "limit": limit}
                out.append({**row, "counted again": None})
    return out


def every_tile(target: str, order: str) -> Iterator[tuple[tuple[int, ...], float, float, int]]:
    """(workgroup tile M, N, K and wave tile M, N; vector instructions per step of the loop, accumulator moves in it,
    spills) of static products of f16 with B as [N, K] or [K, N]: all tiles of `SIDES`, `DEPTHS` and `WAVES` that fit
    shared memory."""
    kernels = example("gemm_kernels", HERE)
    form = kernels.Form(wd.f16, out=wd.f32, b=order)
    for m, n, k, (waves_m, waves_n) in itertools.product(SIDES, SIDES, DEPTHS, WAVES):
        wave = m // waves_m, n // waves_n
        if not (16 <= min(wave) and max(wave) <= 128 and wave[0] * wave[1] <= MOST_SUMS):
            continue
        sizes = {kernels.M: 64 * m, kernels.N: 64 * n, kernels.K: 64 * k}
        try:
            made = kernels.product(form, kernels.Config(m, n, k, *wave)).compile(target=target, subs=sizes)
        except wd.ConstraintError:  # more than shared memory
            continue
        loops = [x for x in made.resources.loops if x.instructions["mfma"]]
        valu, moves = (sum(x.instructions[c] / x.steps for x in loops) for c in ("valu", "accmove"))
        yield (m, n, k, *wave), valu, moves, made.resources.spills


def wrong(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows above their limit, or counted otherwise by LLVM's disassembler."""
    return [
        r for r in found
        if (r["limit"] is not None and r["value"] > r["limit"])
        or (r["counted again"] is not None and r["counted again"] != r["value"])
    ]  # fmt: skip


def main() -> int:
    import record

    from wavedsl.reports import table

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--no-run", action="store_true", help="static numbers only")
    options.add_argument("--every-tile", action="store_true", help="only: vector instructions in the loop of any tile")
    given = options.parse_args()
    if given.every_tile:
        return sweep()
    tools = [shutil.which(name) for name in ("llvm-mc", "llvm-objdump")]
    found = rows(run=not given.no_run, oracles=(tools[0], tools[1]) if all(tools) else None)  # type: ignore[arg-type]
    found += turned_rows()
    head = ("kernel", "target", "what", "value", "limit", "counted again")
    print(table(head, [["" if r[k] is None else r[k] for k in head] for r in found]))
    print(record.write("amdgcn_counts", found))
    for r in wrong(found):
        print("OVER:", r)
    return 1 if wrong(found) else 0


def sweep() -> int:
    """Print which of all tiles' loops compute, move or spill anything; 1 if one does."""
    status = 0
    for target, order in itertools.product(TARGETS, ("NK", "KN")):
        found = list(every_tile(target, order))
        bad = [x for x in found if any(x[1:])]
        print(f"{target}, B as [{order[0]}, {order[1]}]: {len(found)} tiles, {len(bad)} with more than products")
        for tile, valu, moves, spills in bad:
            print(f"  {tile}: {valu:g} vector instructions and {moves:g} accumulator moves a step, {spills} spills")
        status |= bool(bad)
    return status


if __name__ == "__main__":
    sys.exit(main())
