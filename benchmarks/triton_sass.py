"""Triton's PTX of kernels as its tutorials have them, for `sass_counts.py --triton`.

Run by an interpreter that has Triton (it is none of our dependencies), without a GPU:

    PYTHON benchmarks/triton_sass.py

prints JSON: Triton's version, and per kernel its name, its kind, the chip and the text. Tiles, warps and stages are
those that the tutorials choose, or choose among, on these chips.
"""

from __future__ import annotations

import json
import os
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

sys.path.append(os.path.dirname(os.path.abspath(__file__)))

from rivals_triton import persistent, tiles
from triton_cuda import attention


@triton.jit
def softmax(out, x, stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        value = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        powers = tl.exp(value - tl.max(value, 0))
        tl.store(out + row * stride + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=at < columns)


@triton.jit
def layer_norm(x, y, w, b, mean, rstd, stride, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * stride
    y += row * stride
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        sums += tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
    middle = tl.sum(sums, 0) / columns
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        away = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
        away = tl.where(at < columns, away - middle, 0.0)
        squares += away * away
    scale = 1 / tl.sqrt(tl.sum(squares, 0) / columns + eps)
    tl.store(mean + row, middle)
    tl.store(rstd + row, scale)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        factor, shift = tl.load(w + at, mask=inside), tl.load(b + at, mask=inside)
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + at, ((value - middle) * scale * factor + shift).to(tl.bfloat16), mask=inside)


@triton.jit
def rms_norm(x, w, y, stride, columns, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + tl.program_id(0) * stride + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / columns + eps)
    result = value * scale * tl.load(w + at, mask=inside).to(tl.float32)
    tl.store(y + tl.program_id(0) * stride + at, result.to(tl.bfloat16), mask=inside)


@triton.jit
def elementwise(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside).to(tl.float32) * 2.0 + tl.load(y + at, mask=inside).to(tl.float32)
    tl.store(out + at, value.to(tl.bfloat16), mask=inside)


PTX_VERSION = 88
"""8.8: what each assembler here takes, Triton's and ours."""
POINTER, NUMBER = "*bf16", "i32"
GEMM = {**dict.fromkeys("abc", POINTER), **dict.fromkeys(("M", "N", "K"), NUMBER)}
STRIDED = {**GEMM, **dict.fromkeys(("lda", "ldb", "ldc"), NUMBER)}
ATTENTION = {**dict.fromkeys("qkvo", POINTER), "lse": "*fp32", "scale": "fp32", "N": NUMBER}
ROWS = {"out": POINTER, "x": POINTER, **dict.fromkeys(("stride", "rows", "columns"), NUMBER)}
NORM = {
    **dict.fromkeys(("x", "y", "w", "b"), POINTER), "mean": "*fp32", "rstd": "*fp32", "stride": NUMBER,
    "columns": NUMBER, "eps": "fp32",
}  # fmt: skip
SHORT = {**dict.fromkeys("xwy", POINTER), "stride": NUMBER, "columns": NUMBER, "eps": "fp32"}
PRODUCT = {"GROUP": 8, "PRECISION": "ieee"}
"""Constants of every product: a compile names all, defaults or not."""
VECTORS = {**dict.fromkeys(("x", "y", "out"), POINTER), "n": NUMBER}

KERNELS = (
    # kernel, kind, chip, types of its arguments, constants, warps, stages
    ("gemm", tiles, "products", 90, STRIDED, {"BM": 128, "BN": 256, "BK": 64, **PRODUCT}, 8, 3),
    ("gemm persistent, TMA", persistent, "products", 90, GEMM,
     {"BM": 128, "BN": 256, "BK": 64, "UNITS": 132, **PRODUCT, "HALVES": False, "ROLES": False}, 8, 3),
    ("gemm", tiles, "products", 80, STRIDED, {"BM": 128, "BN": 128, "BK": 32, **PRODUCT}, 4, 4),
    *(("attention " + str(d) + " causal" * causal, attention, "scores", 90, ATTENTION,
       {"D": d, "BM": 128, "BN": 128 if d == 64 else 64, "CAUSAL": causal,
        "MADE": True, "ROLES": False}, 8, 3)
      for d in (64, 128) for causal in (False, True)),
    *(row for chip in (90, 80) for row in (
        ("softmax", softmax, "bytes", chip, ROWS, {"BLOCK": 8192, "STAGES": 4 if chip == 90 else 2}, 8, 3),
        ("layer norm", layer_norm, "bytes", chip, NORM, {"BLOCK": 8192}, 8, 3),
        ("rms norm", rms_norm, "bytes", chip, SHORT, {"BLOCK": 8192}, 8, 3),
        ("elementwise", elementwise, "bytes", chip, VECTORS, {"BLOCK": 1024}, 4, 3),
    )),
)  # fmt: skip


def main() -> None:
    found = []
    for name, kernel, kind, chip, types, constants, warps, stages in KERNELS:
        source = ASTSource(
            kernel,
            signature={**types, **dict.fromkeys(constants, "constexpr")},
            constexprs=constants,
            attrs={(i,): [["tt.divisibility", 16]] for i, kept in enumerate(types.values()) if kept != "fp32"},
        )
        options = {"num_warps": warps, "num_stages": stages, "ptx_version": PTX_VERSION}
        made = compile(source, target=GPUTarget("cuda", chip, 32), options=options)
        arch = "sm_90a" if chip == 90 else f"sm_{chip}"
        found.append({"name": name, "kind": kind, "arch": arch, "text": made.asm["ptx"]})
    print(json.dumps({"version": triton.__version__, "kernels": found}))


if __name__ == "__main__":
    main()
