"""Our AMDGCN beside what Triton, that is LLVM, makes of the same kernels: instructions, registers, clocks of one model.

    python benchmarks/triton_amdgcn.py --triton PYTHON [--target gfx942] [--cases WORD ...] [--json FILE]

PYTHON is an interpreter that has Triton (`pip install triton` into an environment of its own; it is none of our
dependencies); without one the script says so and ends. No GPU is needed: both texts run on the emulator, which checks
their results against NumPy, and the cycle model replays both. The model is ours and no AMD GPU has confirmed it
(docs/cycle-model.md): it says what would follow from the texts if a chip were as it assumes.

Sizes, tiles and waves are the same on both sides; sizes are constants for both. Of several rows of options either side
has the one whose workgroups take the fewest clocks when they fill a compute unit: Triton's are in `triton_hip.py`, ours
the compiler's own choice and, for products, `CHOSEN`.

Per text:

* static: instructions, vector, accumulation and scalar registers, bytes of LDS and scratch, spilled registers,
  workgroups that a compute unit holds, waves per SIMD, milliseconds of a compile with nothing cached;
* executed per wave, all of the kernel, by class; `valu per ...` of it per 64 elements or per 2^20 FLOP;
* loop: a trip of the innermost loop that issues most, by class, and per 2^20 FLOP of a wave where it multiplies;
* clocks: one workgroup `alone`, and `busy`: per workgroup, where as many as fit share a compute unit and others follow.
  Products find everything in L2, what moves bytes finds nothing there.

`AHEAD` lists the rows in which LLVM's text has fewer vector instructions, fewer clocks or more waves.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent))

import gemm_kernels
import memory_bound_kernels as bound
import model_cases
import record
from amdgcn_counts import CLASSES, example
from gemm_kernels import Config, Form
from problems import COLUMNS, ROWS, UNWRITTEN, Problem, empty, normal, wide
from wavedsl.codegen.amdgcn.target import resident_groups
from wavedsl.runtime.emulator import run
from wavedsl.runtime.emulator.amdgcn.cycle_blocks import loops
from wavedsl.runtime.emulator.amdgcn.text import Program, parse
from wavedsl.runtime.emulator.cycle_queue import Launch
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd
from wavedsl.reports import table

TARGETS = ("gfx942", "gfx950")
GROUPS = {"products": 12, "bytes": 24}
"""Workgroups of a `busy` compute unit: as many fit at a time as divide this number."""
CHOSEN: tuple[dict[str, Any], ...] = ({"stages": 1}, {"direct_to_shared": True, "ping_pong": False})
"""What our products are tried with beside the compiler's own choice; what a chip cannot do is left out."""
FP8_TYPES = {"gfx942": wd.f8e4m3fnuz, "gfx950": wd.f8e4m3}
LOG2_E = math.log2(math.e)


# ---------------------------------------------------------------------------------------------------------------- cases


def vector_add(target: str) -> Problem:
    n = ROWS * 1024
    a, b, c = normal(0, n, dtype=np.float32), normal(1, n, dtype=np.float32), empty(n, dtype=np.float32)
    kernel = example("vector_add").add_kernel(wd.f32)
    return Problem(kernel, [a, b, c], [a, b, c], (ROWS,), [(c, lambda: a + b)], 1e-6, 1024)


def elementwise(target: str) -> Problem:
    m, n = ROWS, 2048
    a, b, c = normal(0, m, n), normal(1, m, n), empty(m, n)
    kernel = bound.scaled_sum(wd.bf16)
    return Problem(kernel, [a, b, c], [a, b, c], (ROWS,), [(c, lambda: 2 * wide(a) + wide(b))], 1e-2, 2048)


def softmax(target: str, n: int) -> Problem:
    x, y = normal(0, ROWS, n), empty(ROWS, n)

    def want() -> np.ndarray:
        e = np.exp(wide(x) - wide(x).max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return Problem(bound.softmax(wd.bf16, n), [x, y], [x, y], (ROWS,), [(y, want)], 1e-2, n)


def rms_norm(target: str) -> Problem:
    n = 8192
    x, w, y, eps = normal(0, ROWS, n), normal(1, n), empty(ROWS, n), np.float32(1e-5)

    def want() -> np.ndarray:
        return wide(x) / np.sqrt((wide(x) ** 2).mean(1, keepdims=True) + eps) * wide(w)

    given = [x, w, y, eps]
    return Problem(bound.rms_norm(wd.bf16, n), given, given, (ROWS,), [(y, want)], 1e-2, n)


def layer_norm(target: str) -> Problem:
    n = 8192
    x, w, b, y, eps = normal(0, ROWS, n), normal(1, n), normal(2, n), empty(ROWS, n), np.float32(1e-5)
    mean, rstd = empty(ROWS, dtype=np.float32), empty(ROWS, dtype=np.float32)

    def spread() -> np.ndarray:
        return 1 / np.sqrt(wide(x).var(1, keepdims=True) + eps)

    def want() -> np.ndarray:
        return (wide(x) - wide(x).mean(1, keepdims=True)) * spread() * wide(w) + wide(b)

    results = [(y, want), (mean, lambda: wide(x).mean(1)), (rstd, lambda: spread()[:, 0])]
    given = [x, w, b, y, mean, rstd, eps]
    return Problem(bound.layer_norm(wd.bf16, n), given, given, (ROWS,), results, 1e-2, n)


def row_sum(target: str) -> Problem:
    n = 8192
    x, y = normal(0, ROWS, n), empty(ROWS, dtype=np.float32)
    return Problem(bound.row_sum(wd.bf16, n), [x, y], [x, y], (ROWS,), [(y, lambda: wide(x).sum(1))], 1e-4, n)


def transpose(target: str) -> Problem:
    x, y = normal(0, 256, 256), empty(256, 256)
    return Problem(bound.transpose(wd.bf16), [x, y], [x, y], (4, 4), [(y, lambda: wide(x).T)], 0.0, 64 * 64)


def gemv(target: str) -> Problem:
    """As `matmul` cuts it: eight rows of the matrix per workgroup of four waves."""
    from wavedsl.strategies import kernels as strategies

    n, k = 8 * ROWS, 8192
    x, a, y = normal(0, 1, k), normal(1, n, k), empty(1, n)
    kernel = strategies.gemv(strategies.Form(wd.bf16, wd.bf16, True, False), 8, 2048, 4)
    given = [x, a, y, np.float32(1), np.float32(0)]
    return Problem(kernel, given, [a, x, y], (ROWS,), [(y, lambda: wide(x) @ wide(a).T)], 1e-2, 8 * k)


def gemm(target: str, dtype: wd.DType, tile: tuple[int, int, int], wave: tuple[int, int], b_order: str = "NK",
         epilogue: str = "") -> Problem:  # fmt: skip
    bm, bn, bk = tile
    grid = 16, COLUMNS // bn
    m, n, k = grid[0] * bm, grid[1] * bn, 16 * bk
    out = wd.f16 if dtype is wd.f16 else wd.bf16
    a = normal(0, m, k, dtype=dtype.storage)
    b = normal(1, *((n, k) if b_order == "NK" else (k, n)), dtype=dtype.storage)
    c = empty(m, n, dtype=out.storage)

    def want() -> np.ndarray:
        x = wide(a) @ (wide(b).T if b_order == "NK" else wide(b))
        return x / (1 + np.exp(-x)) if epilogue else x

    form = Form(dtype, out=out, b=b_order, epilogue=epilogue)
    kernel, *others = (gemm_kernels.product(form, Config(bm, bn, bk, *wave, tuple(x.items()))) for x in ({}, *CHOSEN))
    problem = Problem(kernel, [a, b, c], [a, b, c], grid, [(c, want)], 1e-2)
    problem.others_of_ours = {str(x): other for x, other in zip(CHOSEN, others)}
    return problem


def int4(target: str) -> Problem:
    """Weights are widened in registers, so each wave has rows of its own."""
    bm, bn, bk = 128, 128, 64
    grid = 16, COLUMNS // bn
    m, n, k = grid[0] * bm, grid[1] * bn, 16 * bk
    x, scale, y = normal(0, m, k, dtype=np.float16), normal(1, n, dtype=np.float16), empty(m, n, dtype=np.float32)
    weights = np.random.default_rng(2).integers(-8, 8, (n, k))
    q = ((weights[:, 1::2] + 8) << 4 | weights[:, ::2] + 8).astype(np.uint8)
    given = [x, q, scale, y]
    kernel = gemm_kernels.four_bits(Config(bm, bn, bk, 128, 32))
    wanted = [(y, lambda: wide(x) @ (weights * wide(scale)[:, None]).T.astype(np.float32))]
    return Problem(kernel, given, given, grid, wanted, 1e-3)


def attention(target: str, d: int, causal: bool) -> Problem:
    forward = example("attention")
    n = 512
    q, k, v, o = (normal(i, 1, 1, n, d) for i in range(4))
    o[:] = UNWRITTEN
    scale = np.float32(1 / math.sqrt(d))
    variant = forward.Variant(wd.bf16, causal=causal, lazy=forward.lazy_of(target))
    kernel = forward.attention_kernel(variant, tile=(128, 64), waves=4)

    def want() -> np.ndarray:
        s = wide(q) @ wide(k).swapaxes(2, 3) * scale
        s = np.where(np.tri(n, dtype=bool), s, -np.inf) if causal else s
        p = np.exp(s - s.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True) @ wide(v)

    return Problem(
        kernel, [q, k, v, o, scale], [q, k, v, o, np.float32(scale * LOG2_E)], (n // 128, 1), [(o, want)], 2e-2,
        whole=causal,
    )  # fmt: skip


def backward(target: str, d: int) -> Problem:
    gradients = example("attention_backward")
    m, n = 512, 64
    q, d_o, k, v = (normal(i, 1, 1, s, d) for i, s in enumerate((m, m, n, n)))
    d_k, d_v = empty(1, 1, n, d), empty(1, 1, n, d)
    scale = np.float32(1 / math.sqrt(d))
    s = (wide(q) @ wide(k).swapaxes(2, 3) * scale).astype(np.float64)
    lse = np.log(np.exp(s).sum(-1)).astype(np.float32)
    p = np.exp(s - lse[..., None]).astype(np.float32)
    d_p = wide(d_o) @ wide(v).swapaxes(2, 3)
    delta = (p * d_p).sum(-1)
    kernel = gradients.keys_kernel(gradients.Variant(wd.bf16), tile=(32, 64), waves=4)
    results = [
        (d_k, lambda: (p * (d_p - delta[..., None])).swapaxes(2, 3) @ wide(q) * scale),
        (d_v, lambda: p.swapaxes(2, 3) @ wide(d_o)),
    ]
    given = [q, k, v, d_o, lse, delta, scale, d_k, d_v]
    return Problem(kernel, given, given, (1, 1), results, 2e-2)


def cases() -> dict[str, Callable[[str], Problem]]:
    """By the names of `triton_hip.kernels`."""
    out: dict[str, Callable[[str], Problem]] = {
        "vector add": vector_add,
        "elementwise": elementwise,
        **{f"softmax {n}": lambda t, n=n: softmax(t, n) for n in (1024, 4096, 8192)},
        "rms norm": rms_norm,
        "layer norm": layer_norm,
        "row sum": row_sum,
        "transpose": transpose,
        "gemv": gemv,
    }
    for side, wave in ((128, (64, 32)), (256, (64, 128))):
        tile = side, side, 64
        for name, dtype in (("f16", wd.f16), ("bf16", wd.bf16)):
            for order in ("NK", "KN"):
                out[f"gemm {name} {side}x{side}x64 {order}"] = (
                    lambda t, dtype=dtype, tile=tile, wave=wave, order=order: gemm(t, dtype, tile, wave, order)
                )  # fmt: skip
        out[f"gemm fp8 {side}x{side}x128 NK"] = (
            lambda t, wave=wave, side=side: gemm(t, FP8_TYPES[t], (side, side, 128), wave)
        )  # fmt: skip
    out["gemm bf16 128x128x64 silu"] = lambda t: gemm(t, wd.bf16, (128, 128, 64), (64, 32), epilogue="silu")
    out["gemm int4 128x128x64"] = int4
    for d in (64, 128):
        for causal in (False, True):
            out[f"attention {d}{' causal' * causal}"] = lambda t, d=d, causal=causal: attention(t, d, causal)
        out[f"attention {d} backward dK dV"] = lambda t, d=d: backward(t, d)
    return out | model_cases.cases(FP8_TYPES)


# ------------------------------------------------------------------------------------------------------------- measures


def kind_of(mnemonic: str) -> str:
    return next(kind for pattern, kind in CLASSES if re.match(pattern, mnemonic))


def flops(mnemonic: str) -> int:
    """Of one matrix instruction of a wave. What structured sparsity skips, half of a long product, is none."""
    found = re.match(r"v_(mfma|smfmac)\w*_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?", mnemonic)
    if found is None:
        return 0
    m, n, k = (int(x) for x in found.group(2, 3, 4))
    return 2 * m * n * k * int(found.group(5) or 1) // (1 + (found.group(1) == "smfmac"))


def check(name: str, problem: Problem) -> None:
    """Raise SystemExit where what a run wrote is wrong or nothing; make the outputs unwritten again."""
    for number, (array, want) in enumerate(problem.results):
        got = wide(array)
        written = got != wide(np.array(UNWRITTEN).astype(array.dtype))
        if number not in problem.exact:
            problem.exact[number] = want()
        exact = problem.exact[number]
        off = np.abs(got - exact)[written].max(initial=0.0)
        if not written.any() or not off <= problem.error * np.abs(exact).max():
            raise SystemExit(f"wrong result: {name}: off by {off}, {written.sum()} numbers written")
        array[...] = UNWRITTEN


def measured(name: str, text: str, target: str, threads: int, shared: int, report: Any, problem: Problem) -> dict:
    """What is said of a text that a run has executed."""
    program: Program = parse(text, target)
    (kernel,) = program.kernels.values()
    meta = kernel.meta
    registers = int(meta[".vgpr_count"])
    agprs = int(meta.get(".agpr_count", 0))
    resident = resident_groups(target, registers, shared, threads)
    waves = threads // 64
    share = 1.0 if problem.elements else 0.0
    groups = GROUPS[problem.kind]
    alone = report.replay(Launch(1, 1, share))
    busy = report.replay(Launch(groups, max(1, min(resident, groups)), share))
    run_groups = math.prod(problem.grid) if problem.whole else 1
    executed: Counter[str] = Counter()
    work = 0
    for mnemonic, times in report.instructions.items():
        executed[kind_of(mnemonic)] += times
        work += times * flops(mnemonic)
    per_wave = {kind: round(n / (waves * run_groups), 2) for kind, n in sorted(executed.items())}
    unit = problem.elements * run_groups / 64 if problem.elements else work / 2**20
    row = {
        "kernel": name, "target": target, "instructions": len(program.lines), "vgprs": registers - agprs,
        "agprs": agprs, "registers": registers, "sgprs": int(meta[".sgpr_count"]), "lds": shared,
        "scratch": int(meta.get(".private_segment_fixed_size", 0)),
        "spills": int(meta.get(".vgpr_spill_count", 0)) + int(meta.get(".sgpr_spill_count", 0)),
        "workgroups": resident, "waves per SIMD": -(-resident * waves // 4), "executed": per_wave,
        "valu per unit": round(executed["valu"] / unit, 2),
        "others per unit": round((sum(executed.values()) - executed["mfma"] - executed["valu"]) / unit, 2),
        "alone": alone.cycles, "busy": round(busy.cycles / groups),
    }  # fmt: skip
    spans = [(sum(alone.issued.get(i, 0) for i in range(a, b + 1)), a, b) for a, b in loops(program)]
    if spans and max(spans)[0]:
        _, first, last = max(spans)
        lines = program.lines[first : last + 1]
        counted = Counter(kind_of(line.mnemonic) for line in lines)
        row["loop"] = dict(sorted(counted.items()))
        depth = sum(flops(line.mnemonic) for line in lines) / 2**20
        if depth:
            row["loop per 2^20 FLOP"] = {kind: round(n / depth, 2) for kind, n in sorted(counted.items())}
    return row


def ours(name: str, target: str, problem: Problem) -> dict[str, Any]:
    """Our best row, by the same measure as Triton's."""
    rows = []
    for chosen, kernel in {"": problem.kernel, **problem.others_of_ours}.items():
        start = time.perf_counter()
        try:
            made = kernel.compile(*problem.arguments, target=target)
        except wd.ConstraintError:
            if not chosen:
                raise
            continue
        milliseconds = 1e3 * (time.perf_counter() - start)
        whole = made.emulate(*problem.arguments, checks=False) if problem.whole else None
        report = whole or sample(made, problem.arguments)
        check(f"{name}, {target}, ours {chosen}", problem)
        threads = int(np.prod(made.block))
        row = measured(name, made.asm, target, threads, made.shared_bytes, report, problem)
        rows.append({**row, "options": chosen, "spills": made.resources.spills, "compile ms": round(milliseconds, 1)})
    return min(rows, key=lambda row: row["busy"])


def theirs(name: str, target: str, problem: Problem, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The best row of Triton's texts."""
    rows = []
    for one in found:
        (kernel,) = parse(one["text"], target).kernels.values()
        hidden = [x for x in kernel.args or () if not str(x[".value_kind"]).startswith("hidden_")]
        arguments = [*problem.others, *(None for _ in hidden[len(problem.others) :])]
        threads = 64 * one["options"]["num_warps"]
        report = run(
            one["text"], target=target, grid=problem.grid, block=(threads, 1, 1), args=arguments,
            shared_bytes=one["shared"], checks=False, workgroups=None if problem.whole else 1,
        )  # fmt: skip
        check(f"{name}, {target}, Triton's {one['options']}", problem)
        row = measured(name, one["text"], target, threads, one["shared"], report, problem)
        rows.append({**row, "options": one["options"], "compile ms": one["ms"]})
    return min(rows, key=lambda row: row["busy"])


def compiled(python: str, target: str, words: Sequence[str]) -> tuple[str, dict[str, list[dict[str, Any]]]]:
    """Triton's version and its texts by name."""
    command = [python, str(Path(__file__).with_name("triton_hip.py")), target, *words]
    said = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    found: dict[str, list[dict[str, Any]]] = {}
    for one in said["kernels"]:
        found.setdefault(one["name"], []).append(one)
    return said["version"], found


# --------------------------------------------------------------------------------------------------------------- report

COMPARED = ("valu per unit", "others per unit", "instructions", "registers", "waves per SIMD", "alone", "busy")
HEAD = ("kernel", "target", *(f"{side}{what}" for what in COMPARED for side in ("", "its ")), "busy ratio")


def ahead(mine: dict[str, Any], its: dict[str, Any]) -> list[str]:
    """In what LLVM's text is better, of what decides speed. Waves count where its clocks are not more."""
    found = [what for what in ("valu per unit", "alone", "busy") if its[what] < mine[what]]
    if its["waves per SIMD"] > mine["waves per SIMD"] and its["busy"] <= mine["busy"]:
        found.append("waves per SIMD")
    return found


def has_triton(python: str) -> bool:
    try:
        return not subprocess.run([python, "-c", "import triton"], capture_output=True, check=False).returncode
    except OSError:
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--triton", metavar="PYTHON", default=sys.executable, help="an interpreter that has Triton")
    options.add_argument("--target", choices=TARGETS, action="append")
    options.add_argument("--cases", nargs="+", default=[], metavar="WORD", help="those whose name contains one")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    given = options.parse_args(arguments)
    if not has_triton(given.triton):
        print(f"{given.triton} has no Triton: `pip install triton` somewhere and name its interpreter by --triton")
        return 0
    rows, lines, behind, version = [], [], [], ""
    for target in given.target or TARGETS:
        version, texts = compiled(given.triton, target, given.cases)
        example("vector_add").add_kernel(wd.f16).compile(subs={wd.sym.N: 4096}, target=target)  # what only the first
        for name, make in cases().items():
            if name not in texts:
                continue
            problem = make(target)
            mine = ours(name, target, problem)
            its = theirs(name, target, problem, texts[name])
            rows.append({"kernel": name, "target": target, "ours": mine, "triton": its})
            pairs = [side[what] for what in COMPARED for side in (mine, its)]
            lines.append([name, target, *pairs, round(mine["busy"] / its["busy"], 3)])
            print(lines[-1], flush=True)
            worse = ahead(mine, its)
            if worse:
                behind.append([name, target, ", ".join(f"{what} {mine[what]} / {its[what]}" for what in worse)])
    print(table(HEAD, lines), end="\n\n")
    print("AHEAD: LLVM's text is better in")
    print(table(("kernel", "target", "what: ours / its"), behind))
    if given.json:
        given.json.write_text(json.dumps({**record.surroundings(), "triton": version, "rows": rows}, indent=1) + "\n")
    elif not given.cases and not given.target:
        print(record.write("triton_amdgcn", rows, triton=version))
    return 0


if __name__ == "__main__":
    sys.exit(main())
