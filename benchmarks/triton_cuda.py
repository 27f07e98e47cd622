"""Triton's PTX of GEMMs and attention for sm_90a, for `triton_ptx.py`.

Run by an interpreter that has Triton (it is none of our dependencies), without a GPU:

    PYTHON benchmarks/triton_cuda.py [WORD ...]       kernels whose name contains a word; none: all

prints JSON: Triton's version, and per kernel and choice of options its name, constants, options, types of arguments,
text, threads, and bytes of dynamic shared memory. Sizes are arguments, multiples of 16 as Triton's launcher would find
them. Tiles, warps and stages are those that the tutorials' tuners choose among and those of `rivals.py`. A choice that
Triton cannot compile is named on the error output; one that asks for more shared memory than a workgroup has is left
out. Triton assembles what it compiles, so all of it takes minutes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp())
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

sys.path.append(os.path.dirname(os.path.abspath(__file__)))

from rivals_triton import leave, persistent, place, tiles


@triton.jit
def maps(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, UNITS: tl.constexpr,
    HALVES: tl.constexpr,
):  # fmt: skip
    """`rivals_triton.persistent` with tensor maps that the host makes. `HALVES`: results leave in two pieces."""
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    last = tl.program_id(0) - UNITS
    for tile in tl.range(tl.program_id(0), rows * columns, UNITS, flatten=True):
        row, column = place(tile, rows, columns, GROUP)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, tl.cdiv(K, BK)):
            x, y = a.load([row * BM, k * BK]), b.load([column * BN, k * BK])
            acc = tl.dot(x, y.T, acc)
        # Counted apart from the loop's own number, so that loads of the next tile need not wait for stores.
        last += UNITS
        row, column = place(last, rows, columns, GROUP)
        leave(c, acc, row * BM, column * BN, BM, BN, HALVES)


@triton.jit
def attention(
    q, k, v, o, lse, scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
    MADE: tl.constexpr, ROLES: tl.constexpr,
):  # fmt: skip
    """A tile of queries of one head over tensor maps of the host, or `MADE` in the kernel, as Triton asks for where
    warps have `ROLES`; blocks without a mask first, then those with one. `scale` has log2(e) in it."""
    if MADE:
        rows = tl.num_programs(1) * N
        k = tl.make_tensor_descriptor(k, [rows, D], [D, 1], [BN, D])
        v = tl.make_tensor_descriptor(v, [rows, D], [D, 1], [BN, D])
        q = tl.make_tensor_descriptor(q, [rows, D], [D, 1], [BM, D])
        o = tl.make_tensor_descriptor(o, [rows, D], [D, 1], [BM, D])
    start = tl.program_id(0) * BM
    head = tl.program_id(1) * N
    rows = start + tl.arange(0, BM)
    columns = tl.arange(0, BN)
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    x = q.load([head + start, 0])
    for at in tl.range(0, start if CAUSAL else N, BN, warp_specialize=ROLES):
        scores = tl.dot(x, k.load([head + at, 0]).T)
        higher = tl.maximum(top, tl.max(scores, 1) * scale)
        weights = tl.math.exp2(scores * scale - higher[:, None])
        less = tl.math.exp2(top - higher)
        total = total * less + tl.sum(weights, 1)
        acc = tl.dot(weights.to(tl.bfloat16), v.load([head + at, 0]), acc * less[:, None])
        top = higher
    if CAUSAL:
        for at in tl.range(start, start + BM, BN, warp_specialize=ROLES):
            scores = tl.dot(x, k.load([head + at, 0]).T)
            scores = scores * scale + tl.where(rows[:, None] >= (at + columns)[None, :], 0, -1.0e6)
            higher = tl.maximum(top, tl.max(scores, 1))
            weights = tl.math.exp2(scores - higher[:, None])
            less = tl.math.exp2(top - higher)
            total = total * less + tl.sum(weights, 1)
            acc = tl.dot(weights.to(tl.bfloat16), v.load([head + at, 0]), acc * less[:, None])
            top = higher
    tl.store(lse + head + rows, top + tl.math.log2(total))
    o.store([head + start, 0], (acc / total[:, None]).to(tl.bfloat16))


# ---------------------------------------------------------------------------------------------------------------- rows

PTX_VERSION = 88
"""8.8: what each assembler here takes, Triton's and ours."""
UNITS = 132
GROUP = 8
SHARED = 227 << 10
"""Bytes of shared memory of a workgroup."""
TILES = (
    (128, 256, 64, 8), (128, 128, 64, 4), (128, 128, 64, 8), (128, 128, 128, 8), (256, 128, 64, 8), (64, 256, 64, 4),
    (64, 128, 64, 4),
)  # fmt: skip
"""BM, BN, BK (of 16-bit elements) and warps: `rivals.py`, and the tuners of tutorials 3 and 9; none for a few rows."""
SPECIALISED = ((128, 256, 64), (256, 128, 64), (128, 128, 64), (128, 128, 128), (64, 128, 64))
"""The same where warps have roles: Triton does so with four warps."""
BLOCKS = ((128, 128, 8), (128, 64, 8), (128, 64, 4), (64, 128, 4), (64, 64, 4), (128, 32, 4))
"""BM, BN and warps of attention: the tuner of tutorial 6, and of eight warps a narrower one."""
TYPES = {"bf16": "bf16", "fp8": "fp8e4nv"}

Row = tuple[str, Any, dict[str, str], dict[str, Any], dict[str, int]]


def products(dtype: str) -> Iterator[Row]:
    """Of one operand type: one tile per program; persistent ones with maps of the host, or with roles."""
    kept = TYPES[dtype]
    numbers = dict.fromkeys(("M", "N", "K"), "i32")
    pointers = {"a": f"*{kept}", "b": f"*{kept}", "c": "*bf16", **numbers}
    strided = {**pointers, **dict.fromkeys(("lda", "ldb", "ldc"), "i32")}
    deeper = 1 if dtype == "bf16" else 2
    for bm, bn, bk, warps in TILES:
        tile = {"BM": bm, "BN": bn, "BK": bk * deeper, "GROUP": GROUP}
        for stages in (3, 4) if bm >= 128 else (3, 4, 5):
            options = {"num_warps": warps, "num_stages": stages}
            yield f"gemm {dtype}", tiles, strided, {**tile, "PRECISION": "ieee"}, options
            for halves in (False,) if stages == 3 else (True,):  # which leaves room for a stage more
                boxes = {"a": (kept, bm, bk * deeper), "b": (kept, bn, bk * deeper), "c": ("bf16", bm, bn >> halves)}
                types = {name: "tensordesc<{}[{},{}]>".format(*box) for name, box in boxes.items()} | numbers
                yield f"gemm {dtype}", maps, types, {**tile, "UNITS": UNITS, "HALVES": halves}, options
    for bm, bn, bk in SPECIALISED:
        tile = {"BM": bm, "BN": bn, "BK": bk * deeper, "GROUP": GROUP, "UNITS": UNITS}
        for stages in (3, 4):
            options = {"num_warps": 4, "num_stages": stages}
            constants = {**tile, "PRECISION": "ieee", "HALVES": stages > 3, "ROLES": True}
            yield f"gemm {dtype}", persistent, pointers, constants, options


def heads(d: int, causal: bool) -> Iterator[Row]:
    more = {"lse": "*fp32", "scale": "fp32", "N": "i32"}
    for bm, bn, warps in BLOCKS:
        boxes = {"q": bm, "k": bn, "v": bn, "o": bm}
        kept = {name: f"tensordesc<bf16[{rows},{d}]>" for name, rows in boxes.items()}
        for stages in (2, 3, 4):
            options = {"num_warps": warps, "num_stages": stages}
            # Of two loops that follow each other Triton 3.9 specialises none.
            for special in (False, True) if warps == 4 and not causal else (False,):
                types = (dict.fromkeys(boxes, "*bf16") if special else kept) | more
                constants = {"D": d, "BM": bm, "BN": bn, "CAUSAL": causal, "MADE": special, "ROLES": special}
                yield f"attention {d}{' causal' * causal}", attention, types, constants, options


def kernels() -> list[Row]:
    """(name, kernel, types of arguments, constants, options)."""
    return [
        *(row for dtype in TYPES for row in products(dtype)),
        *(row for d in (64, 128) for causal in (False, True) for row in heads(d, causal)),
    ]  # fmt: skip


def compiled(kernel: Any, types: dict[str, str], constants: dict[str, Any], options: dict[str, int]) -> Any:
    source = ASTSource(
        kernel,
        signature={**types, **dict.fromkeys(constants, "constexpr")},
        constexprs=constants,
        attrs={(i,): [["tt.divisibility", 16]] for i, x in enumerate(types.values()) if x.startswith(("*", "i32"))},
    )
    return compile(source, target=GPUTarget("cuda", 90, 32), options={**options, "ptx_version": PTX_VERSION})


def main(words: list[str]) -> None:
    found = []
    for name, kernel, types, constants, options in kernels():
        if words and not any(word in name for word in words):
            continue
        try:
            made = compiled(kernel, types, constants, options)
        except Exception as error:  # whatever a choice may meet
            print(f"{name}, {constants}, {options}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            continue
        if made.metadata.shared <= SHARED:
            found.append(
                {
                    "name": name, "kernel": "roles" if kernel is persistent else kernel.__name__,
                    "constants": constants, "options": options, "types": types,
                    "threads": 32 * made.metadata.num_warps, "shared": made.metadata.shared,
                    "room": made.metadata.global_scratch_size, "text": made.asm["ptx"],
                }
            )  # fmt: skip
    print(json.dumps({"version": triton.__version__, "kernels": found}))


if __name__ == "__main__":
    main(sys.argv[1:])
