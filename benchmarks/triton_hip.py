"""Triton's AMDGCN of kernels as its tutorials write them, for `triton_amdgcn.py`.

Run by an interpreter that has Triton (it is none of our dependencies), without a GPU:

    PYTHON benchmarks/triton_hip.py gfx942 [WORD ...]       kernels whose name contains a word; none: all

prints JSON: Triton's version, and per kernel and choice of options its name, options, text, bytes of dynamic LDS and
the milliseconds of a compile that finds nothing cached.

Sizes are constants and tiles divide them, so nothing is masked: what our compiler knows, LLVM knows, too. A kernel that
has several rows of options is compiled once with each; who compares takes the best.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Any

os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
os.environ["TRITON_ALWAYS_COMPILE"] = "1"
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

sys.path.append(os.path.dirname(os.path.abspath(__file__)))

import triton_models
from triton_models import PLAIN, pointers


@triton.jit
def vector_add(x, y, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + tl.load(y + at))


@triton.jit
def scaled_sum(x, y, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at).to(tl.float32) * 2.0 + tl.load(y + at).to(tl.float32)
    tl.store(out + at, value.to(out.dtype.element_ty))


@triton.jit
def softmax(x, out, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    value = tl.load(x + at).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    tl.store(out + at, (powers / tl.sum(powers, 0)).to(out.dtype.element_ty))


@triton.jit
def rms_norm(x, w, out, eps, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + tl.program_id(0) * N + at).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / N + eps)
    result = value * scale * tl.load(w + at).to(tl.float32)
    tl.store(out + tl.program_id(0) * N + at, result.to(out.dtype.element_ty))


@triton.jit
def layer_norm(x, w, b, out, mean, rstd, eps, N: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, N)
    value = tl.load(x + row * N + at).to(tl.float32)
    middle = tl.sum(value, 0) / N
    away = value - middle
    scale = tl.rsqrt(tl.sum(away * away, 0) / N + eps)
    tl.store(mean + row, middle)
    tl.store(rstd + row, scale)
    result = away * scale * tl.load(w + at).to(tl.float32) + tl.load(b + at).to(tl.float32)
    tl.store(out + row * N + at, result.to(out.dtype.element_ty))


@triton.jit
def row_sum(x, out, N: tl.constexpr):
    row = tl.program_id(0)
    tl.store(out + row, tl.sum(tl.load(x + row * N + tl.arange(0, N)).to(tl.float32), 0))


@triton.jit
def transpose(x, out, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + rows[:, None] * N + columns[None, :])
    tl.store(out + columns[:, None] * M + rows[None, :], tl.trans(tile))


@triton.jit
def gemv(a, x, out, K: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    """out = a x, `BM` rows of a [.., K] a program."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inner = tl.arange(0, BK)
    sums = tl.zeros((BM, BK), tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :]).to(tl.float32)
        sums += left * tl.load(x + k + inner).to(tl.float32)[None, :]
    tl.store(out + rows, tl.sum(sums, 1).to(out.dtype.element_ty))


@triton.jit
def gemm(
    a, b, c, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    B_ROW: tl.constexpr, B_COLUMN: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    """B's strides along K and N say how it lies."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + rows[:, None] * K + inner[None, :]
    right = b + inner[:, None] * B_ROW + columns[None, :] * B_COLUMN
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(left), tl.load(right), acc)
        left += BK
        right += BK * B_ROW
    if SILU:
        acc = acc * tl.sigmoid(acc)
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def gemm_int4(
    a, q, scale, c, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Weights q [N, K / 2], two to a byte, the even one in the low half, 8 too large, with a factor per row."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + rows[:, None] * K + inner[None, :]
    right = q + columns[None, :] * (K // 2) + (inner // 2)[:, None]
    shift = ((inner % 2) * 4)[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        weights = (((tl.load(right) >> shift) & 15).to(tl.int32) - 8).to(tl.float16)
        acc = tl.dot(tl.load(left), weights, acc)
        left += BK
        right += BK // 2
    acc = acc * tl.load(scale + columns).to(tl.float32)[None, :]
    tl.store(c + rows[:, None] * N + columns[None, :], acc)


@triton.jit
def attention(
    q, k, v, o, scale, N: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr
):  # fmt: skip
    """A tile of queries of one head; blocks without a mask first, then those with one. `scale` has log2(e) in it."""
    start = tl.program_id(0) * BM
    head = tl.program_id(1) * N * D
    rows = start + tl.arange(0, BM)
    columns = tl.arange(0, BN)
    deep = tl.arange(0, D)
    x = tl.load(q + head + rows[:, None] * D + deep[None, :])
    keys = k + head + columns[None, :] * D + deep[:, None]
    values = v + head + columns[:, None] * D + deep[None, :]
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for _ in range(0, start if CAUSAL else N, BN):
        scores = tl.dot(x, tl.load(keys))
        higher = tl.maximum(top, tl.max(scores, 1) * scale)
        weights = tl.math.exp2(scores * scale - higher[:, None])
        less = tl.math.exp2(top - higher)
        total = total * less + tl.sum(weights, 1)
        acc = tl.dot(weights.to(v.dtype.element_ty), tl.load(values), acc * less[:, None])
        top = higher
        keys += BN * D
        values += BN * D
    if CAUSAL:
        for at in range(start, start + BM, BN):
            scores = tl.dot(x, tl.load(keys))
            scores = scores * scale + tl.where(rows[:, None] >= (at + columns)[None, :], 0, -1.0e6)
            higher = tl.maximum(top, tl.max(scores, 1))
            weights = tl.math.exp2(scores - higher[:, None])
            less = tl.math.exp2(top - higher)
            total = total * less + tl.sum(weights, 1)
            acc = tl.dot(weights.to(v.dtype.element_ty), tl.load(values), acc * less[:, None])
            top = higher
            keys += BN * D
            values += BN * D
    tl.store(o + head + rows[:, None] * D + deep[None, :], (acc / total[:, None]).to(o.dtype.element_ty))


@triton.jit
def attention_keys(
    q, k, v, d_o, lse, delta, scale, d_k, d_v, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """dK and dV of a tile of keys of one head. `lse` is the natural one."""
    head = tl.program_id(1)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    deep = tl.arange(0, D)
    own = head * N * D + columns[:, None] * D + deep[None, :]
    keys, values = tl.load(k + own), tl.load(v + own)
    key_sum = tl.zeros((BN, D), tl.float32)
    value_sum = tl.zeros((BN, D), tl.float32)
    rows = tl.arange(0, BM)
    queries = q + head * M * D + rows[None, :] * D + deep[:, None]
    slopes = d_o + head * M * D + rows[:, None] * D + deep[None, :]
    unit = scale * 1.4426950408889634
    for at in range(0, M, BM):
        x = tl.load(queries)
        level = tl.load(lse + head * M + at + rows) * 1.4426950408889634
        weights = tl.math.exp2(tl.dot(keys, x) * unit - level[None, :])
        slope = tl.load(slopes)
        value_sum = tl.dot(weights.to(slope.dtype), slope, value_sum)
        away = tl.load(delta + head * M + at + rows)
        change = weights * (tl.dot(values, tl.trans(slope)) - away[None, :])
        key_sum = tl.dot(change.to(x.dtype), tl.trans(x), key_sum)
        queries += BM * D
        slopes += BM * D
    tl.store(d_v + own, value_sum.to(d_v.dtype.element_ty))
    tl.store(d_k + own, (key_sum * scale).to(d_k.dtype.element_ty))


# ---------------------------------------------------------------------------------------------------------------- rows

PRODUCT = tuple({"num_warps": 8, "num_stages": 2, "matrix_instr_nonkdim": n} for n in (16, 32))
ATTENTION = tuple({"num_warps": 4, "num_stages": s, "matrix_instr_nonkdim": n} for s in (1, 2) for n in (16, 32))
"""What is tried, as the tutorials' tuners do on these chips."""


COLUMNS = 4864
"""Of a product's result: 38 tiles of 128, 19 of 256."""


def kernels(target: str) -> list[tuple[str, Any, dict[str, str], dict[str, Any], tuple[dict[str, int], ...]]]:
    """(name, kernel, types of arguments, constants, rows of options)."""
    out: list[tuple[str, Any, dict[str, str], dict[str, Any], tuple[dict[str, int], ...]]] = [
        ("vector add", vector_add, pointers("x y out", "fp32"), {"BLOCK": 1024}, PLAIN[:1]),
        ("elementwise", scaled_sum, pointers("x y out", "bf16"), {"BLOCK": 2048}, PLAIN[:1]),
        *(
            (f"softmax {n}", softmax, pointers("x out", "bf16"), {"N": n}, PLAIN)
            for n in (1024, 4096, 8192)
        ),
        ("rms norm", rms_norm, {**pointers("x w out", "bf16"), "eps": "fp32"}, {"N": 8192}, PLAIN),
        ("layer norm", layer_norm,
         {**pointers("x w b out", "bf16"), **pointers("mean rstd", "fp32"), "eps": "fp32"}, {"N": 8192}, PLAIN),
        ("row sum", row_sum, {**pointers("x", "bf16"), **pointers("out", "fp32")}, {"N": 8192}, PLAIN),
        ("transpose", transpose, pointers("x out", "bf16"), {"M": 256, "N": 256, "BLOCK": 64}, PLAIN),
        *(
            ("gemv", gemv, pointers("a x out", "bf16"), {"K": 8192, "BM": 8, "BK": deep}, PLAIN)
            for deep in (512, 1024, 2048)
        ),
    ]  # fmt: skip
    fp8 = "fp8e4nv" if target == "gfx950" else "fp8e4b8"
    for name, dtype, tile, order, silu in (
        *(
            (f"gemm {kind} {m}x{n}x64 {order}", dtype, (m, n, 64), order, False)
            for m, n in ((128, 128), (256, 256)) for kind, dtype in (("f16", "fp16"), ("bf16", "bf16"))
            for order in ("NK", "KN")
        ),
        ("gemm fp8 128x128x128 NK", fp8, (128, 128, 128), "NK", False),
        ("gemm fp8 256x256x128 NK", fp8, (256, 256, 128), "NK", False),
        ("gemm bf16 128x128x64 silu", "bf16", (128, 128, 64), "NK", True),
    ):  # fmt: skip
        m, n, k = tile
        depth = 16 * k
        strides = (1, depth) if order == "NK" else (COLUMNS, 1)
        constants = {
            "N": COLUMNS, "K": depth, "BM": m, "BN": n, "BK": k, "B_ROW": strides[0], "B_COLUMN": strides[1],
            "SILU": silu,
        }  # fmt: skip
        types = {**pointers("a b", dtype), **pointers("c", "bf16" if dtype != "fp16" else "fp16")}
        out.append((name, gemm, types, constants, PRODUCT))
    types = {**pointers("a", "fp16"), **pointers("q", "u8"), **pointers("scale", "fp16"), **pointers("c", "fp32")}
    options = tuple({**x, "num_warps": 4} for x in PRODUCT)
    constants = {"N": COLUMNS, "K": 1024, "BM": 128, "BN": 128, "BK": 64}
    out.append(("gemm int4 128x128x64", gemm_int4, types, constants, options))
    for d in (64, 128):
        types = {**pointers("q k v o", "bf16"), "scale": "fp32"}
        for causal in (False, True):
            constants = {"N": 512, "D": d, "BM": 128, "BN": 64, "CAUSAL": causal}
            out.append((f"attention {d}{' causal' * causal}", attention, types, constants, ATTENTION))
        types = {**pointers("q k v d_o", "bf16"), **pointers("lse delta", "fp32"), "scale": "fp32"}
        types |= pointers("d_k d_v", "bf16")
        constants = {"M": 512, "N": 64, "D": d, "BM": 32, "BN": 64}
        out.append((f"attention {d} backward dK dV", attention_keys, types, constants, ATTENTION))
    return out + triton_models.kernels(target, fp8, COLUMNS)


def compiled(
    kernel: Any, target: str, types: dict[str, str], constants: dict[str, Any], options: dict[str, int]
) -> Any:
    source = ASTSource(
        kernel,
        signature={**types, **dict.fromkeys(constants, "constexpr")},
        constexprs=constants,
        attrs={(i,): [["tt.divisibility", 16]] for i, kept in enumerate(types.values()) if kept.startswith("*")},
    )
    return compile(source, target=GPUTarget("hip", target, 64), options=options)


def main(target: str, words: list[str]) -> None:
    rows = kernels(target)
    compiled(*rows[0][1:2], target, *rows[0][2:4], rows[0][4][0])  # what only the first compile of a process takes
    found = []
    for name, kernel, types, constants, choices in rows:
        if words and not any(word in name for word in words):
            continue
        for options in choices:
            start = time.perf_counter()
            try:
                made = compiled(kernel, target, types, constants, options)
            except Exception as error:  # more LDS than there is, and whatever else a choice may meet
                print(f"{name}, {options}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
                continue
            found.append(
                {
                    "name": name, "options": options, "text": made.asm["amdgcn"], "shared": made.metadata.shared,
                    "ms": round(1e3 * (time.perf_counter() - start), 1),
                }
            )  # fmt: skip
    print(json.dumps({"version": triton.__version__, "kernels": found}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
