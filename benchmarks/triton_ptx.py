"""Our GEMMs and attention beside Triton's, the text of both in one warp replay. Predicted, nothing measured.

    python benchmarks/triton_ptx.py --triton PYTHON [--cases WORD ...] [--json FILE]
    python benchmarks/triton_ptx.py --texts FILE         what `PYTHON benchmarks/triton_cuda.py` printed
    python benchmarks/triton_ptx.py --texts FILE --beside ROWS.json ...     more texts, beside rows of earlier runs

PYTHON is an interpreter that has Triton (it is none of our dependencies); no GPU is needed. Each of Triton's texts that
stands in the table has run on the emulator, every check on, and its result was exact for small integers (attention:
near float64). Then one workgroup, or cluster, of a whole launch of either side runs there, and the warp replay
(docs/cycle-model.md) gives its clocks on the chip that `predicted.py` takes, an H200 under load.

Triton's number is that of its best choice in `triton_cuda.py`: all are clocked on one size, and the `TRIED` best by
that at the row's. A choice that spills registers is left out where ptxas is at hand. Ours is what `matmul` chooses, and
for attention the best of the blocks of `gpu_attention`. K beyond `LONG` trips is clocked at two lengths and extended
along their line, for Triton. `without L2` is the same ratio where L2 gives every SM what its port takes: Triton's tiles
share nothing by multicast, so the rate of L2 decides much.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
from wavedsl.ir.errors import ToolchainError
from wavedsl.runtime.emulator.ptx import cost as ptx_cost
from wavedsl.runtime.emulator.ptx.emulator import run_ptx
from wavedsl.runtime.on_emulator import sample
from wavedsl.runtime.tensor_map import TensorMap

import wavedsl as wd
from wavedsl.reports import table

sys.path.append(str(Path(__file__).resolve().parent))

import gemm_cases
import gpu_attention
import predicted
import record
import sass

TARGET = predicted.PRODUCT.target
ROWS = {
    "squares bf16": ((4096, 4096, 4096), (8192, 8192, 8192)),
    "depths": tuple((8192, 8192, k) for k in (256, 512, 1024, 2048)),
    "mlp up": ((512, 14336, 4096), (2048, 14336, 4096)),
    "mlp down": ((512, 4096, 14336), (2048, 4096, 14336)),
    "fp8": ((8192, 8192, 8192),),
}
"""Cases of `gemm_cases`, and M, N, K of each."""
KEYS = 2048
"""Of attention; batches and heads as `gpu_attention` has them."""
ROUGH = 4096, 4096
"""M and N on which all choices are clocked."""
TRIED = 3
LONG = 48
ENDS = 16, 32
"""Trips of the two lengths that a longer loop is extended from."""
GOAL, CLOSE = 1.05, 0.92
"""What issue 4 asks for: so much faster than Triton, or that share of the roofline."""
BF16 = ml_dtypes.bfloat16
KINDS = {"bf16": BF16, "fp16": np.float16, "fp8e4nv": ml_dtypes.float8_e4m3fn, "fp32": np.float32}
"""What Triton calls types."""


# ------------------------------------------------------------------------------------------------------ Triton's texts


@dataclass(frozen=True)
class Text:
    """A kernel that Triton compiled with one choice of tile, warps and stages: a row of `triton_cuda.py`."""

    name: str
    kernel: str
    constants: dict[str, Any]
    options: dict[str, int]
    types: dict[str, str]
    threads: int
    shared: int
    room: int
    """Bytes of global memory that each workgroup writes tensor maps to."""
    text: str

    def __str__(self) -> str:
        c, o = self.constants, self.options
        tile = "x".join(str(c[x]) for x in ("BM", "BN", "BK") if x in c)
        more = [x.lower() for x in ("HALVES", "ROLES") if c.get(x) and x.lower() != self.kernel]
        return " ".join([self.kernel, f"{tile}/{o['num_stages']}", f"{self.threads // 32} warps", *more])

    @functools.cached_property
    def machine(self) -> tuple[int, int, tuple[str, ...]] | None:
        """Registers, spilled bytes and codes of serialised products by ptxas; None where there is none."""
        try:
            return sass.said(sass.toolchain.assemble_ptx(self.text, TARGET).log)
        except ToolchainError:
            return None

    def run(self, given: Sequence[Any], grid: tuple[int, ...], checks: Any, workgroups: int | None = None) -> Any:
        """On the emulator. What Triton adds to the arguments: room for tensor maps, and for a profile. How many
        workgroups reside together follows from the registers that ptxas gives."""
        return run_ptx(
            self.text, target=TARGET, grid=grid, block=(self.threads,), shared_bytes=self.shared, checks=checks,
            args=[*given, np.zeros(self.room * math.prod(grid), np.uint8), None], workgroups=workgroups,
            registers=self.machine[0] if self.machine and not checks else 0,
        )  # fmt: skip

    def kind(self, name: str) -> Any:
        """NumPy's type of an array's elements."""
        return KINDS[re.findall(r"\w+", self.types[name])[-3 if "[" in self.types[name] else -1]]

    def argument(self, name: str, x: Any) -> list[Any]:
        """An array or number as parameters of the text; a tensor map goes with sizes and strides."""
        kind = self.types[name]
        if kind == "i32":
            return [np.int32(x)]
        if not kind.startswith("tensordesc"):
            return [x]
        rows, columns = json.loads(kind[kind.index("[") : -1])
        inner = min(columns, 128 // x.itemsize)
        box = TensorMap(x, (inner, rows), swizzle=inner * x.itemsize)
        return [box, *(np.int32(n) for n in x.shape), np.int64(x.shape[1]), np.int64(1)]

    def arguments(self, values: dict[str, Any]) -> list[Any]:
        return [y for name in self.types for y in self.argument(name, values[name])]


def texts(python: str) -> dict[str, Any]:
    """Triton's version and texts; `python`: an interpreter that has it."""
    command = [python, str(Path(__file__).with_name("triton_cuda.py"))]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return dict(json.loads(found))


# ------------------------------------------------------------------------------------------------------------ products


def products_of(text: Text, arrays: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """(arguments, grid) of c = a b^T."""
    a, b, c = arrays
    (m, k), n = a.shape, b.shape[0]
    sizes = {"M": m, "N": n, "K": k, "lda": k, "ldb": k, "ldc": n}
    tiles = -(-m // text.constants["BM"]) * -(-n // text.constants["BN"])
    grid = (min(tiles, text.constants.get("UNITS", tiles)),)
    return text.arguments({"a": a, "b": b, "c": c, **sizes}), grid


def check_product(text: Text, size: tuple[int, int, int] = (272, 336, 400)) -> None:
    """Tiles at edges, several for a workgroup if it takes several, in small integers. Raises SystemExit where a result
    is wrong, EmulationError for what the checks find."""
    m, n, k = size
    random = np.random.default_rng(0)
    a, b = (random.integers(-2, 3, shape).astype(text.kind("a")) for shape in ((m, k), (n, k)))
    c = np.full((m, n), 93, text.kind("c"))
    want = (a.astype(np.float32) @ b.astype(np.float32).T).astype(c.dtype)
    given, grid = products_of(text, (a, b, c))
    text.run(given, grid, True)
    if not np.array_equal(c.astype(np.float32), want.astype(np.float32)):
        raise SystemExit(f"wrong result: {text.name}, {text}")


def tiles_of(text: Text, m: int, n: int) -> int:
    """Tiles of the SM that has most."""
    units = text.constants.get("UNITS", predicted.PRODUCT.units)
    return -(-(-(-m // text.constants["BM"]) * -(-n // text.constants["BN"])) // units)


class Sampled:
    """Runs samples of Triton's launches once, and replays them on both of `chips`."""

    def __init__(self) -> None:
        self.known: dict[Any, tuple[float, ...]] = {}
        self.roughly: dict[int, tuple[float, ...]] = {}

    def product(self, text: Text, size: tuple[int, int, int]) -> tuple[float, ...]:
        """Clocks of a whole launch."""
        m, n, k = size
        depth = text.constants["BK"]
        if k <= LONG * depth:
            return self.replayed(text, size)
        low, high = (self.replayed(text, (m, n, trips * depth)) for trips in ENDS)
        return tuple(x + (y - x) / (ENDS[1] - ENDS[0]) * (k / depth - ENDS[0]) for x, y in zip(low, high))

    def replayed(self, text: Text, size: tuple[int, int, int]) -> tuple[float, ...]:
        key = id(text), size
        if key not in self.known:
            report = self.report(text, size)
            self.known[key] = tuple(float(report.replay(chip=chip).cycles) for chip in chips())
        return self.known[key]

    def report(self, text: Text, size: tuple[int, int, int]) -> Any:
        m, n, k = size
        shapes = {"a": (m, k), "b": (n, k), "c": (m, n)}
        a, b, c = (np.zeros(shape, text.kind(name)) for name, shape in shapes.items())
        given, grid = products_of(text, (a, b, c))
        return text.run(given, grid, False, 1)

    def rough(self, text: Text, size: tuple[int, int, int]) -> float:
        """Clocks by the tiles of an SM and their trips, from two short launches of `ROUGH`."""
        m, n, k = size
        depth = text.constants["BK"]
        if id(text) not in self.roughly:
            reports = (self.report(text, (*ROUGH, trips * depth)) for trips in (8, 16))
            self.roughly[id(text)] = tuple(float(r.replay(chip=chips()[0]).cycles) for r in reports)
        low, high = self.roughly[id(text)]
        each = (high - low) / 8
        return (low + each * (k / depth - 8)) / tiles_of(text, *ROUGH) * tiles_of(text, m, n)


# ----------------------------------------------------------------------------------------------------------- attention


def heads_of(text: Text, q: Any, k: Any, v: Any, o: Any, lse: Any, scale: float) -> tuple[list[Any], tuple[int, int]]:
    """(arguments, grid) for [heads, keys, d]."""
    heads, n, d = q.shape
    flat = {name: x.reshape(heads * n, d) for name, x in zip("qkvo", (q, k, v, o))}
    values = {**flat, "lse": lse, "scale": np.float32(scale * math.log2(math.e)), "N": n}
    return text.arguments(values), (n // text.constants["BM"], heads)


def check_attention(text: Text, n: int = 256) -> None:
    """As `check_product`; the bound is that of bf16 weights and results."""
    d = text.constants["D"]
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((2, n, d)).astype(BF16) for _ in range(3))
    o, lse = np.full((2, n, d), 93, BF16), np.full((2, n), 93, np.float32)
    scale = 1 / math.sqrt(d)
    given, grid = heads_of(text, q, k, v, o, lse, scale)
    text.run(given, grid, True)
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) * scale
    if text.constants["CAUSAL"]:
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights @ v.astype(np.float64) / weights.sum(-1, keepdims=True)
    if not np.abs(o.astype(np.float64) - want).max() < gpu_attention.BOUND:
        raise SystemExit(f"wrong result: {text.name}, {text}")


def middles(total: int, wanted: int) -> list[int]:
    """`wanted` of the workgroups 0 … total - 1, whose mean is that of all: causal tiles are longer and longer."""
    n = max(2, min(total, wanted)) // 2
    low = [(2 * i + 1) * total // (4 * n) for i in range(n)]
    return sorted({*low, *(total - 1 - x for x in low)})


def attention_clocks(text: Text, keys: int, chips: Sequence[Any]) -> list[float]:
    """Clocks of a whole launch; of a causal one four tiles of a head stand for all."""
    d, causal = text.constants["D"], text.constants["CAUSAL"]
    sizes = gpu_attention.extents(keys, d)
    heads = sizes[gpu_attention.forward.B] * sizes[gpu_attention.forward.H]
    q, k, v, o = (np.zeros((heads, keys, d), BF16) for _ in range(4))
    given, grid = heads_of(text, q, k, v, o, np.zeros((heads, keys), np.float32), 1.0)
    with mock.patch.object(ptx_cost, "spread", middles if causal else ptx_cost.spread):
        report = text.run(given, grid, False, grid[0] if causal else 1)
    return [float(report.replay(chip=chip).cycles) for chip in chips]


# --------------------------------------------------------------------------------------------------------------- sides


@dataclass(frozen=True)
class Side:
    """One provider of a row: seconds by replay on the chip under load, and without a limit of L2."""

    what: str
    seconds: float
    without: float


def seconds(clocks: float) -> float:
    return clocks / predicted.PRODUCT.clock


def chips() -> tuple[Any, Any]:
    """The chip under load, and the same where L2 gives every SM what its port takes."""
    chip = predicted.model()
    return chip, replace(chip, l2_rate=chip.units * chip.l1_rate, unit_rate=math.inf)


def our_product(case: str, size: tuple[int, int, int]) -> Side:
    """What `matmul` launches."""
    form = next(c.form for c in gemm_cases.CASES if c.name == case)
    space = predicted.Space(empty_arrays=True)
    row = predicted.Row(case, size, "strategy", lambda: predicted.product(space, form, size, gemm_cases.Planned()))
    launches, said, _ = predicted.launched(row)
    reports = [sample(one.made, one.given) for one in launches]
    more = predicted.BETWEEN * (len(reports) - 1)
    each = [sum(seconds(r.replay(chip=chip).cycles) for r in reports) + more for chip in chips()]
    return Side(", ".join(said), each[0], each[1])


def our_attention(d: int, causal: bool, keys: int) -> Side:
    """The best of the blocks that the GPU benchmark tries, with the compiler's own choice of clusters."""
    forward = gpu_attention.forward
    sizes = gpu_attention.extents(keys, d)
    shape = sizes[forward.B], sizes[forward.H], keys, d
    q, k, v, o = (np.zeros(shape, BF16) for _ in range(4))
    given = [q, k, v, o, np.float32(1), np.zeros(shape[:3], np.float32)]
    variant = forward.Variant(wd.bf16, causal=causal, lse=True)
    found = []
    for choice in gpu_attention.candidates(TARGET, keys, d, causal):
        if choice.cluster:
            continue
        try:
            report = sample(gpu_attention.forward_kernel(variant, choice).compile(*given, target=TARGET), given)
        except wd.ConstraintError:  # too much shared memory for this block
            continue
        found.append(Side(str(choice), *(seconds(report.replay(chip=chip).cycles) for chip in chips())))
        say(f"  ours {found[-1]}")
    return min(found, key=lambda side: side.seconds)


def spill(text: Text) -> bool:
    return text.machine is not None and text.machine[1] > 0


def their_product(found: Sequence[Text], size: tuple[int, int, int], sampled: Sampled) -> list[Side]:
    """The best choices, the fastest first."""
    out: list[Side] = []
    for text in sorted(found, key=lambda x: sampled.rough(x, size)):
        if len(out) == TRIED:
            break
        if not spill(text):
            check_product(text)
            out.append(Side(str(text), *map(seconds, sampled.product(text, size))))
            say(f"  Triton {out[-1]}")
    return sorted(out, key=lambda side: side.seconds)


def their_attention(found: Sequence[Text], keys: int) -> list[Side]:
    """As `their_product`."""
    chip, _ = chips()
    # A causal launch of a few keys is short; what a block costs shows in a long row of them.
    rough = {id(x): attention_clocks(x, 1024, [chip])[0] for x in found if not spill(x)}
    out = []
    for text in sorted((x for x in found if id(x) in rough), key=lambda x: rough[id(x)])[:TRIED]:
        check_attention(text)
        out.append(Side(str(text), *map(seconds, attention_clocks(text, keys, chips()))))
        say(f"  Triton {out[-1]}")
    return sorted(out, key=lambda side: side.seconds)


# ---------------------------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Row:
    """`name`: of Triton's texts. `least`: seconds of the roofline that `predicted` takes, at the data sheet's rates."""

    case: str
    size: tuple[int, ...]
    name: str
    least: float
    ours: Callable[[], Side]
    theirs: Callable[[Sequence[Text], Sampled], list[Side]]


def rows() -> Iterator[Row]:
    """All of them."""
    for case, sizes in ROWS.items():
        kind = "fp8" if case == "fp8" else "bf16"
        for size in sizes:
            m, n, k = size
            moved = (m + n) * k * (1 if kind == "fp8" else 2) + 2 * m * n
            yield Row(
                case, size, f"gemm {kind}", bound(moved, 2 * m * n * k, "f8e4m3" if kind == "fp8" else "bf16"),
                lambda case=case, size=size: our_product(case, size),
                lambda found, sampled, size=size: their_product(found, size, sampled),
            )  # fmt: skip
    for d in (64, 128):
        for causal in (False, True):
            name = f"attention {d}{' causal' * causal}"
            sizes = gpu_attention.extents(KEYS, d)
            b, h = sizes[gpu_attention.forward.B], sizes[gpu_attention.forward.H]
            moved = b * h * KEYS * (4 * d * 2 + 4)
            yield Row(
                name, (b, h, KEYS, d), name, bound(moved, gpu_attention.flops(b, h, KEYS, d, causal, False), "bf16"),
                lambda d=d, causal=causal: our_attention(d, causal, KEYS),
                lambda found, sampled: their_attention(found, KEYS),
            )  # fmt: skip


def bound(moved: int, flops: int, dtype: str) -> float:
    """Seconds at the bandwidth that kernels reach and the data sheet's dense rate."""
    return max(moved / (predicted.REACHED * predicted.PRODUCT.hbm), flops / predicted.rate(dtype))


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def compared(row: Row, found: Sequence[Text], sampled: Sampled, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """One row of the table. `before`: the same of an earlier run, whose choices stand beside these. A launch that a
    replay extends may come out a little below the bound."""
    say(f"{row.case} {row.size}")
    theirs = row.theirs([x for x in found if x.name == row.name], sampled)
    if before is None:
        mine = row.ours()
    else:
        mine = Side(before["ours"], *(before[x] / predicted.SECONDS for x in ("us", "us without L2")))
        known = {side.what for side in theirs}
        theirs += [
            Side(x["what"], *(x[us] / predicted.SECONDS for us in ("us", "us without L2")))
            for x in before["tried"] if x["what"] not in known
        ]  # fmt: skip
        theirs.sort(key=lambda side: side.seconds)
    best = theirs[0]
    us = [max(row.least, side.seconds) * predicted.SECONDS for side in (mine, best)]
    free = min(max(row.least, side.without) for side in theirs) / max(row.least, mine.without)
    return {
        "case": row.case, "size": list(row.size), "us": us[0], "triton us": us[1], "ratio": us[1] / us[0],
        "of bound": row.least * predicted.SECONDS / us[0], "ratio without L2": free,
        "us without L2": max(row.least, mine.without) * predicted.SECONDS, "ours": mine.what, "triton": best.what,
        "tried": [{"what": s.what, "us": s.seconds * 1e6, "us without L2": s.without * 1e6} for s in theirs],
    }  # fmt: skip


HEAD = ("case", "size", "ours us", "Triton us", "ratio", "without L2", "of bound", "goal", "ours", "Triton")


def reached(row: dict[str, Any]) -> bool:
    """Whether a row has what the goal asks for."""
    return bool(row["ratio"] >= GOAL or row["of bound"] >= CLOSE)


def lines(done: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (r["case"], " x ".join(map(str, r["size"])), r["us"], r["triton us"], r["ratio"], r["ratio without L2"],
         r["of bound"], "yes" if reached(r) else "no", r["ours"], r["triton"])
        for r in done
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triton", metavar="PYTHON", help="an interpreter that has Triton")
    parser.add_argument("--texts", type=Path, metavar="FILE", help="what triton_cuda.py has printed")
    parser.add_argument("--cases", nargs="*", default=[], metavar="WORD", help="those whose name contains one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], metavar="FILE", help="what --json wrote before")
    given = parser.parse_args(arguments)
    if given.texts is None and given.triton is None:
        parser.error("Triton's texts are needed: --triton or --texts")
    os.environ["WAVEDSL_DEVICE"] = f"emulator:{TARGET}"
    said = json.loads(given.texts.read_text()) if given.texts else texts(given.triton)
    found = [Text(**x) for x in said["kernels"]]
    commit = record.surroundings()["commit"]  # before the table is made
    chosen = [row for row in rows() if not given.cases or any(word in row.case for word in given.cases)]
    before = {(r["case"], *r["size"]): r for path in given.beside for r in json.loads(path.read_text())["rows"]}
    sampled = Sampled()
    done = [compared(row, found, sampled, before.get((row.case, *row.size))) for row in chosen]
    print(table(HEAD, lines(done)))
    note = f"predicted for {predicted.PRODUCT.name} by our own model, nothing measured"
    print(note)
    more = {"commit": commit, "note": note, "triton": said["version"]}
    if given.json:
        given.json.write_text(json.dumps({**record.surroundings(), **more, "rows": done}, indent=1) + "\n")
    elif not given.cases:
        print(record.write("triton_ptx", done, **more))
    return 0


if __name__ == "__main__":
    sys.exit(main())
