"""Instructions of the machine code that ptxas makes of our NVIDIA kernels, per trip of each hot loop, beside limits.

    python benchmarks/sass_counts.py                     all cases; nothing runs, no GPU is needed
    python benchmarks/sass_counts.py --cases gemm        those whose name contains a word
    python benchmarks/sass_counts.py --triton PYTHON     beside Triton's tutorials; PYTHON is an interpreter that has it

* products: matrix products on sm_90a (`wgmma`) and sm_80 (`mma.sync`), its text assembled for sm_89 too. Of the loop
  with the matrix instructions: what else a trip issues, also per 2^20 FLOP of a warp; of the copying warps' loop: what
  a trip issues.
* scores: attention, forward and backward: the same, and what a trip issues per exponential.
* adds: a product of f32, on multiply-adds: what else a trip issues, and how many registers a multiply-add reads.
* bytes: copies, elementwise functions, softmax, norms, reductions, transposes, matrix-vector products: whether all
  accesses to global memory have 16 bytes a lane, and per such access what is issued and what of it computes addresses;
  of the loop where there is one.

In all: spilled bytes, warnings that products run one after the other, fences in a loop that wait for memory beyond the
compute unit. The exit status is 1 where a number is above its limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import wavedsl as wd

sys.path.append(str(Path(__file__).resolve().parent))

import gemm_kernels
import memory_bound_kernels as bound
import sass
from amdgcn_counts import example
from gemm_kernels import Config, Form

SIZE = 4096
ROW = 8192
"""Columns of softmax and the like: a workgroup of four warps holds a row."""


@dataclass(frozen=True)
class Case:
    """`text` gives the PTX; `arch`: what it is assembled for; `limits`: name of a number → the most that it may be.
    `kind`: one of `MEASURES`."""

    name: str
    kind: str
    arch: str
    text: Callable[[], str]
    limits: dict[str, float] = field(default_factory=dict)

    def measured(self) -> dict[str, float]:
        return MEASURES[self.kind](sass.assembled(self.text(), self.arch))


# ---------------------------------------------------------------------------------------------------------- what counts

FENCES = r"MEMBAR\.\w+\.(GPU|SYS)|ERRBAR|CGAERRBAR"
"""What waits for memory beyond the compute unit."""


def _common(machine: sass.Machine) -> dict[str, float]:
    return {"registers": machine.registers, "spilled bytes": machine.spills, "serialised": len(machine.codes)}


def _loop(loop: sass.Loop) -> dict[str, float]:
    """All classes of a trip."""
    return {"issued": len(loop.trip), **dict(sorted(loop.counts.items()))}


def hot(machine: sass.Machine) -> list[sass.Loop]:
    """The innermost loops with matrix instructions in their own trip, the most of them first."""
    found = [loop for loop in machine.loops if loop.flops]
    deepest = max((loop.depth for loop in found), default=0)
    return sorted((x for x in found if x.depth == deepest), key=lambda x: (-x.flops, len(x.trip)))


def of_products(machine: sass.Machine) -> dict[str, float]:
    loop = hot(machine)[0]
    others = len(loop.trip) - loop.counts["product"]
    out = {**_common(machine), "in all": len(machine.instructions), **_loop(loop), "others": others}
    out["others per 2^20 FLOP"] = round(others / loop.flops * 2**20, 2)
    out["fences"] = loop.named(FENCES)
    out["narrow copies"] = sum(one.bits < 128 for one in loop.trip if one.name.startswith("LDGSTS"))
    copying = [x for x in machine.loops if x.named("UTMALDG|UBLKCP") and not x.flops]
    if copying:
        out["copying role"] = len(max(copying, key=lambda x: x.depth).trip)
    return out


def of_scores(machine: sass.Machine) -> dict[str, float]:
    loops = [loop for loop in hot(machine) if loop.named(r"MUFU\.EX2")]
    # A masked loop is cut in parts, and of a last block only the columns inside count: this one has no mask.
    loop = min(loops, key=lambda x: len(x.trip) / x.named(r"MUFU\.EX2"))
    scores = loop.named(r"MUFU\.EX2")
    out = {**_common(machine), **_loop(loop), "others": len(loop.trip) - loop.counts["product"]}
    out["float"] = sum(loop.counts.get(kind, 0) for kind in ("ffma", "fadd", "fmul", "compare"))
    for name in ("others", "float", "mufu", "convert"):
        out[f"{name} per score"] = round(out.get(name, 0) / scores, 2)
    out["others per 2^20 FLOP"] = round(out["others"] / loop.flops * 2**20, 2)
    out["fences"] = loop.named(FENCES)
    return out


def of_bytes(machine: sass.Machine) -> dict[str, float]:
    """Of the innermost loop that loads, or of the whole kernel."""
    loads = [loop for loop in machine.loops if loop.named("LDG") or loop.named("UBLKCP")]
    body: Sequence[sass.Instruction] = loads[-1].trip if loads else machine.instructions
    part = sass.Machine(0, 0, (), tuple(body), {})
    access = part.accesses()
    moved = sum(access) / 128
    counts = part.counts
    out = {**_common(machine), "loop": int(bool(loads)), "issued": len(body), **dict(sorted(counts.items()))}
    out["accesses"] = len(access)
    out["narrow accesses"] = sum(bits < 128 for bits in access)
    out["issued per 16 bytes"] = round(len(body) / moved, 2)
    out["addresses per 16 bytes"] = round(sum(counts.get(kind, 0) for kind in sass.ADDRESS) / moved, 2)
    return out


def of_adds(machine: sass.Machine) -> dict[str, float]:
    """Of the loop with the most multiply-adds."""
    loop = max(machine.loops, key=lambda x: x.counts.get("ffma", 0))
    others = len(loop.trip) - loop.counts["ffma"]
    out = {**_common(machine), **_loop(loop), "others": others, "fences": loop.named(FENCES)}
    out["others per ffma"] = round(others / loop.counts["ffma"], 3)
    out["reads per ffma"] = round(sass.operand_reads(loop.trip), 3)
    return out


MEASURES = {"products": of_products, "scores": of_scores, "bytes": of_bytes, "adds": of_adds}
ADDS = {"sm_90a": (0.13, 2.25), "sm_80": (0.105, 2.6)}
"""Of a product of f32 by multiply-adds: other instructions and registers read per multiply-add at most."""
CLEAN = {"spilled bytes": 0, "serialised": 0}


# ---------------------------------------------------------------------------------------------------------------- cases


def gemm(form: Form, config: Config, target: str = "sm_90a", size: int = SIZE) -> str:
    """C = A B^T of size^3."""
    sizes = {gemm_kernels.M: size, gemm_kernels.N: size, gemm_kernels.K: size}
    return gemm_kernels.product(form, config).compile(target=target, subs=sizes).asm


def forward(d: int, causal: bool, target: str = "sm_90a") -> str:
    """Attention of 16 heads of size d over 4096 keys."""
    attention = example("attention")
    variant = attention.Variant(wd.bf16, causal=causal)
    tile, waves = attention.tile_for(variant, target, d)
    names = zip("B H G M N D E".split(), (2, 16, 16, SIZE, SIZE, d, d))
    sizes = {getattr(attention, name): n for name, n in names}
    return attention.attention_kernel(variant, tile=tile, waves=waves).compile(target=target, subs=sizes).asm


def backward(d: int, which: int, target: str = "sm_90a") -> str:
    """The kernel number `which` of its gradients: 1 for dK and dV, 2 for dQ."""
    gradients = example("attention_backward")
    variant = gradients.Variant(wd.bf16, causal=True)
    sizes = {"B": 2, "H": 16, "G": 16, "M": SIZE, "N": SIZE, "D": d, "E": d}
    kernel = gradients.kernels(variant, gradients.tile_of(target, d))[which]
    subs = {getattr(gradients, name): n for name, n in sizes.items()}
    return kernel.compile(target=target, subs=subs).asm


def rows(make: Callable[..., Any], target: str, *given: Any) -> str:
    """A kernel of `memory_bound_kernels` on ROW x ROW numbers of bf16."""
    return make(wd.bf16, *given).compile(target=target, subs={bound.M: ROW, bound.N: ROW}).asm


def planned(m: int, strategy: str, target: str, dtype: wd.DType = wd.bf16, side: int = ROW) -> str:
    """C = A B^T of m x side x side as `matmul` plans it."""
    from wavedsl.strategies import plan_gemm

    a, b, c = (np.empty(shape, dtype.storage) for shape in ((m, side), (side, side), (m, side)))
    product = {"sm_90a": "H100 SXM", "sm_80": "A100"}[target]
    (launch,) = plan_gemm(a, b, c, transpose_b=True, strategy=strategy, product=product).launches
    return launch.kernel.compile(*launch.arguments, target=target).asm


BF16, FP8 = Form(wd.bf16), Form(wd.f8e4m3)
TURNS = (("persistent", True), ("ping_pong", True))
PAIR = (("cluster", (2, 1, 1)),)
FOUR = (("cluster", (2, 2, 1)),)
FULL = Config(128, 256, 64, 64, 256)
FLOATS = {
    ("sm_90a", 64): 3.9, ("sm_90a", 128): 4.2, ("sm_90a", 256): 7.2, ("sm_80", 64): 4.3, ("sm_80", 128): 5.3,
    ("sm_80", 256): 10.9,
}  # fmt: skip
"""Most float instructions per score of attention, by head size: a multiply-add, a maximum and an addition each, and a
trip's multiplications of O by what its maxima changed, 1/2 of a head per key of a block."""
OTHERS = {
    ("sm_90a", 64): 6.9, ("sm_90a", 128): 7.3, ("sm_90a", 256): 12.4, ("sm_80", 64): 7.5, ("sm_80", 128): 10.5,
    ("sm_80", 256): 20.5,
}  # fmt: skip
"""What a trip issues per score beside products, all in all: sm_80's threads load their operands and copy."""
GRADIENTS = {
    ("sm_90a", 64, "dK dV"): 12.5, ("sm_90a", 64, "dQ"): 8, ("sm_90a", 128, "dK dV"): 14, ("sm_90a", 128, "dQ"): 9,
    ("sm_80", 64, "dK dV"): 14.6, ("sm_80", 64, "dQ"): 8.4, ("sm_80", 128, "dK dV"): 17.9,
    ("sm_80", 128, "dQ"): 13.3,
}  # fmt: skip


SKINNY = {("sm_90a", 16): 47, ("sm_90a", 64): 47, ("sm_80", 16): 100, ("sm_80", 64): 148}


def cases() -> list[Case]:
    """All of them."""
    out: list[Case] = []

    def add(kind: str, name: str, arch: str, make: Callable[..., str], *given: Any, **limits: float) -> None:
        named = {key.replace("_", " "): value for key, value in limits.items()}
        out.append(Case(name, kind, arch, lambda: make(*given), {**CLEAN, **named}))

    for name, form, config in (
        ("128x256x64", BF16, FULL),
        ("128x256x64 ping-pong", BF16, Config(64, 256, 64, 64, 256, TURNS)),
        ("128x256x64 cluster 2", BF16, Config(128, 256, 64, 64, 256, PAIR)),
        ("128x256x64 cluster 2 x 2", BF16, Config(128, 256, 64, 64, 256, FOUR)),
        ("128x256x64 stream-K", BF16, Config(128, 256, 64, 64, 256, (("stream_k", True),))),
        ("128x128x64", BF16, Config(128, 128, 64, 64, 128)),
        ("fp8 128x256x128", FP8, Config(128, 256, 128, 64, 256)),
    ):
        add("products", f"gemm {name}", "sm_90a", gemm, form, config, fences=0, others=52, copying_role=40)
    # Numbers leave through their functions: one exponential and one reciprocal for each of a thread's 128.
    for name, most in (("scales silu", 1420), ("bias gelu", 3480)):
        form = Form(wd.bf16, epilogue=name)
        add("products", f"gemm 128x256x64 {name}", "sm_90a", gemm, form, FULL, fences=0, others=52, in_all=most)
    # Numbers are rounded to tf32 on their way to shared memory, by all threads.
    tf32 = Form(wd.tf32, out=wd.f32), Config(128, 256, 32, 64, 256)
    add("products", "gemm tf32 128x256x32", "sm_90a", gemm, *tf32, fences=0, others=345)
    # Of sums of 16 x 8 a trip multiplies 32, for 32 clocks each.
    doubles = 2048, "auto", "sm_90a", wd.f64, 2048
    add("products", "gemm f64", "sm_90a", planned, *doubles, fences=0, narrow_copies=0, others=160)
    for arch in ("sm_80", "sm_89"):
        for name, form, config in (
            ("128x128x32", BF16, Config(128, 128, 32, 64, 64)),
            ("128x256x32", BF16, Config(128, 256, 32, 64, 64)),
        ):
            limits = {"fences": 0, "narrow_copies": 0, "others": 62}
            add("products", f"gemm {name}", arch, gemm, form, config, "sm_80", **limits)
    for target in ("sm_90a", "sm_80"):
        for d in (64, 128, 256):
            for causal in (False, True):
                most = {"float_per_score": FLOATS[target, d], "others_per_score": OTHERS[target, d]}
                add(
                    "scores", f"attention {d}{' causal' * causal}", target, forward, d, causal, target, fences=0, **most
                )
        for d in (64, 128):
            for which, name in ((1, "dK dV"), (-1, "dQ")):
                most = {"others_per_score": GRADIENTS[target, d, name]}
                add("scores", f"attention {d} backward {name}", target, backward, d, which, target, fences=0, **most)
        others, reads = ADDS[target]
        limits = {"fences": 0, "others_per_ffma": others, "reads_per_ffma": reads}
        add("adds", "gemm f32", target, planned, 2048, "auto", target, wd.f32, 2048, **limits)
        for m in (16, 64):
            limits = {"fences": 0, "narrow_copies": 0, "others": SKINNY[target, m]}
            add("products", f"skinny {m}", target, planned, m, "skinny", target, **limits)
        for m in (1, 4):
            # One column of one row is a result of two bytes, and is multiplied as a number instead of half a pair.
            limits = {"narrow_accesses": int(m == 1), "fmul": 4 + (m == 1), "issued_per_16_bytes": 21.5}
            add("bytes", f"gemv {m}", target, planned, m, "gemv", target, **limits)
        for name, most, make, *given in (
            ("copy", 7, bound.copy), ("elementwise", 15, bound.scaled_sum), ("softmax", 42.5, bound.softmax, ROW),
            ("rms norm", 18.5, bound.rms_norm, ROW), ("transpose", 10, bound.transpose),
            ("row sum", 22.5, bound.row_sum, ROW),
        ):  # fmt: skip
            own = int(name == "row sum")  # its result is a number
            add("bytes", name, target, rows, make, target, *given, narrow_accesses=own, issued_per_16_bytes=most)
    return out


def counted(chosen: Sequence[Case]) -> list[dict[str, Any]]:
    """One row per number: kernel, target, what, value, limit (None: none)."""
    out = []
    for case in chosen:
        found = case.measured()
        missing = case.limits.keys() - found.keys()
        assert not missing, f"{case.name}: no number is called {missing}"
        out += [
            {"kernel": case.name, "target": case.arch, "what": what, "value": value, "limit": case.limits.get(what)}
            for what, value in found.items()
        ]
    return out


BESIDE = {
    # (ours, Triton's): on which chips
    ("gemm 128x256x64", "gemm"): ("sm_90a",),
    ("gemm 128x256x64", "gemm persistent, TMA"): ("sm_90a",),
    ("gemm 128x128x32", "gemm"): ("sm_80",),
    **{(f"attention {d}{c}",) * 2: ("sm_90a",) for d in (64, 128) for c in ("", " causal")},
    ("softmax", "softmax"): ("sm_90a", "sm_80"),
    ("rms norm", "rms norm"): ("sm_90a", "sm_80"),
    ("elementwise", "elementwise"): ("sm_90a", "sm_80"),
}
RATIO = ("others per score", "others per 2^20 FLOP", "issued per 16 bytes")
"""What of two kernels is compared: the first that both have."""


def triton(python: str) -> tuple[str, list[Case]]:
    """Triton's version and its kernels; `python`: an interpreter that has it. The assembler is ours."""
    command = [python, str(Path(__file__).with_name("triton_sass.py"))]
    said = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    kernels = [Case(x["name"], x["kind"], x["arch"], lambda x=x: x["text"]) for x in said["kernels"]]
    return said["version"], kernels


def beside(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """Our kernel, Triton's, the chip, registers and spilled bytes of both, what `RATIO` names, and ours / theirs."""
    mine, its = ({(r["kernel"], r["target"], r["what"]): r["value"] for r in x} for x in (ours, theirs))
    out = []
    for (one, other), archs in BESIDE.items():
        for arch in archs:
            what = next(x for x in RATIO if (one, arch, x) in mine and (other, arch, x) in its)
            a, b = mine[one, arch, what], its[other, arch, what]
            more = [
                found[name, arch, x]
                for x in ("registers", "spilled bytes")
                for found, name in ((mine, one), (its, other))
            ]
            out.append([one, other, arch, *more, what, a, b, round(a / b, 2)])
    return out


def over(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows above their limit."""
    return [row for row in found if row["limit"] is not None and row["value"] > row["limit"]]


def main(arguments: Sequence[str] | None = None) -> int:
    import record
    from wavedsl.runtime import toolchain

    from wavedsl.reports import table

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", default="", metavar="WORD", help="those whose name contains it; nothing is kept")
    options.add_argument("--triton", metavar="PYTHON", help="an interpreter that has Triton")
    given = options.parse_args(arguments)
    chosen = [case for case in cases() if given.cases in f"{case.name} {case.arch}"]
    found = counted(chosen)
    for kind in MEASURES:
        shown: dict[str, Any] = dict.fromkeys(HEADS[kind])
        lines = []
        for case in (x for x in chosen if x.kind == kind):
            mine = {r["what"]: r["value"] for r in found if (r["kernel"], r["target"]) == (case.name, case.arch)}
            lines.append([case.name, case.arch, *(mine.get(what, 0) for what in shown)])
        if lines:
            print(table(("kernel", "target", *shown), lines), end="\n\n")
    if not given.cases:
        more: dict[str, Any] = {"tools": {tool: toolchain.version_of(find()) for tool, find in TOOLS.items()}}
        if given.triton:
            version, kernels = triton(given.triton)
            theirs = counted(kernels)
            more["triton"] = {"version": version, "rows": theirs}
            print(table(AGAINST, beside(found, theirs)), end="\n\n")
        print(record.write("sass_counts", found, **more))
    for row in over(found):
        print("OVER:", row)
    return 1 if over(found) else 0


HEADS = {
    "products": (
        "registers", "in all", "issued", "product", "others", "others per 2^20 FLOP", "fences", "integer", "uniform",
        "move", "predicate", "signal", "branch", "shared", "async copy", "copying role",
    ),
    "scores": (
        "registers", "issued", "product", "others per score", "float per score", "mufu per score", "convert per score",
        "fences", "integer", "uniform", "move", "signal", "shared", "others per 2^20 FLOP",
    ),
    "bytes": (
        "registers", "loop", "issued", "accesses", "narrow accesses", "issued per 16 bytes", "addresses per 16 bytes",
        "ffma", "fadd", "fmul", "mufu", "convert", "integer", "branch",
    ),
    "adds": (
        "registers", "issued", "ffma", "others per ffma", "reads per ffma", "fences", "shared", "integer", "move",
        "async copy",
    ),
}  # fmt: skip
AGAINST = (
    "ours", "Triton's", "target", "registers", "its registers", "spilled", "its spilled", "what", "value", "its",
    "ratio",
)  # fmt: skip
TOOLS = {"ptxas": sass.toolchain.find_ptxas, "nvdisasm": sass.toolchain.find_nvdisasm}


if __name__ == "__main__":
    sys.exit(main())
