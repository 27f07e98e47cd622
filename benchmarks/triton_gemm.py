"""Triton's text of the GEMM that the cycle model is tried on: 256 x 256 x 64 tiles of bf16 on 8 warps, C in f32.

Run by an interpreter that has Triton (it is none of our dependencies), without a GPU:

    PYTHON benchmarks/triton_gemm.py gfx942 2        target, number of stages

prints JSON: the text, the bytes of dynamic LDS, Triton's version.
"""

from __future__ import annotations

import json
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

TILE, BLOCK_K, WARPS = 256, 64, 8


@triton.jit
def gemm(a, b, c, K, lda, ldb, ldc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + rows[:, None] * lda + inner[None, :]
    right = b + columns[None, :] * ldb + inner[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(left), tl.load(right), acc)
        left += BK
        right += BK
    tl.store(c + rows[:, None] * ldc + columns[None, :], acc)


def main(target: str, stages: int) -> None:
    types = {"a": "*bf16", "b": "*bf16", "c": "*fp32", "K": "i32", "lda": "i32", "ldb": "i32", "ldc": "i32"}
    source = ASTSource(
        gemm,
        signature={**types, "BM": "constexpr", "BN": "constexpr", "BK": "constexpr"},
        constexprs={"BM": TILE, "BN": TILE, "BK": BLOCK_K},
        attrs={(i,): [["tt.divisibility", 16]] for i in range(len(types))},
    )
    kernel = compile(source, target=GPUTarget("hip", target, 64), options={"num_warps": WARPS, "num_stages": stages})
    print(json.dumps({"text": kernel.asm["amdgcn"], "shared": kernel.metadata.shared, "version": triton.__version__}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
