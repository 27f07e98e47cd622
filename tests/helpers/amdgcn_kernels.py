"""Kernel IR kernels for tests of the AMDGCN back end, written by hand with the builder.

`gemm` is C = A B^T with f16 operands and f32 results: 4 waves of 32x32 in a 64x64 tile, K steps of 32 through LDS
with an XOR swizzle, register prefetch of the next step. `elementwise` wraps one function of loaded values into a
kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wavedsl.codegen.amdgcn import get_target
from wavedsl.ir import dtypes
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, F32, F64, I32, I64, Kernel, Param, Region, Type, Value, vector
from wavedsl.ir.loc import Loc

LANES = 64
_DTYPES = {
    "i32": dtypes.i32,
    "f32": dtypes.f32,
    "b32": dtypes.i32,
    "i64": dtypes.i64,
    "f64": dtypes.f64,
    "b64": dtypes.i64,
}


def new_kernel(name: str, chip: str, pointers: Sequence[str], waves: int = 1, **rest: Any) -> Kernel:
    """An empty kernel with pointer parameters, 8 bytes each."""
    params = [Param(p, "pointer", dtypes.f32, 8 * i, 8, access="readwrite") for i, p in enumerate(pointers)]
    return Kernel(name, chip, params, Region(), LANES, waves, **rest)


def elementwise(
    chip: str, inputs: Sequence[Type], output: Type, body: Callable[..., Value], waves: int = 1, name: str = "op"
) -> Kernel:
    """out[tid] = body(builder, in0[tid], in1[tid], …); one buffer per input, then the output."""
    kernel = new_kernel(name, chip, [*(f"in{i}" for i in range(len(inputs))), "out"], waves)
    b = Builder(kernel, get_target(chip))
    tid = b.tid()
    values = []
    for i, t in enumerate(inputs):
        size = 4 * t.words
        buffer = b.buffer(b.param(i), LANES * waves * size)
        words = b.load_global(buffer, b.mul(tid, size), bytes=size, type=vector(t.words) if t.words > 1 else B32)
        values.append(b.bitcast(words, t) if t is not words.type else words)
    out = body(b, *values)
    size = 4 * output.words
    buffer = b.buffer(b.param(len(inputs)), LANES * waves * size)
    raw = vector(output.words) if output.words > 1 else B32
    b.store_global(buffer, b.mul(tid, size), out if out.type is raw else b.bitcast(out, raw), bytes=size)
    return kernel


def gemm(chip: str, m: int, n: int, k: int, loc: Loc | None = None) -> Kernel:
    """C[m, n] = A[m, k] B[n, k]^T; m and n multiples of 64, k a multiple of 32."""
    target = get_target(chip)
    atom = next(a for a in target.mma_atoms if a.name == "F32_16x16x16_F16")
    kernel = new_kernel("gemm", chip, ["a", "b", "c"], 4, shared_bytes=8192, grid=(m // 64, n // 64, 1))
    b = Builder(kernel, target)
    b.set_loc(loc)
    a_buf = b.buffer(b.param(0), 2 * m * k)
    b_buf = b.buffer(b.param(1), 2 * n * k)
    c_buf = b.buffer(b.param(2), 4 * m * n)
    tid, lane, wave = b.tid(), b.lane(), b.wave()
    row, column = b.mul(b.wgid(0), 64), b.mul(b.wgid(1), 64)
    # global → registers: thread t holds 8 halves of row t / 4, from column 8 (t % 4)
    t_row, t_part = b.lshr(tid, 2), b.and_(tid, 3)
    a_off = b.add(b.mul(b.add(t_row, row), 2 * k), b.mul(t_part, 16))
    b_off = b.add(b.mul(b.add(t_row, column), 2 * k), b.mul(t_part, 16))
    swizzled = b.xor(t_part, b.and_(b.lshr(t_row, 1), 3))
    put = b.add(b.mul(t_row, 64), b.mul(swizzled, 16))
    # LDS → fragments: lane l holds row l % 16, halves 4 (l / 16) .. + 3 of each 16
    l_row, l_part = b.and_(lane, 15), b.lshr(lane, 4)
    w_row, w_column = b.and_(wave, 1), b.lshr(wave, 1)

    def fragment(base: int, wave_part: Value, tile: int, step: int) -> Value:
        r = b.add(b.add(b.mul(wave_part, 32), 16 * tile), l_row)
        piece = b.xor(b.add(b.lshr(l_part, 1), 2 * step), b.and_(b.lshr(r, 1), 3))
        address = b.add_many([b.mul(r, 64), b.mul(piece, 16), b.mul(b.and_(l_part, 1), 8)])
        return b.load_shared(address, bytes=8, type=vector(2), imm=base)

    zero = b.const(0.0, vector(4, "f32"))
    first = [b.load_global(buf, off, bytes=16, type=vector(4)) for buf, off in ((a_buf, a_off), (b_buf, b_off))]
    with b.for_(0, k, 32, [*first, *([zero] * 4)], label="k") as loop:
        a_next, b_next, *acc = loop.carried
        b.store_shared(put, a_next, imm=0)
        b.store_shared(put, b_next, imm=4096)
        b.barrier()
        after = b.mul(b.add(loop.iv, 32), 2)
        more = b.cmp("slt", b.add(loop.iv, 32), k)
        fetched = [
            b.load_global(buf, off, after, bytes=16, type=vector(4), guard=more)
            for buf, off in ((a_buf, a_off), (b_buf, b_off))
        ]
        for step in range(2):
            a_frag = [fragment(0, w_row, i, step) for i in range(2)]
            b_frag = [fragment(4096, w_column, j, step) for j in range(2)]
            for i in range(2):
                for j in range(2):
                    acc[2 * i + j] = b.mma(atom, a_frag[i], b_frag[j], acc[2 * i + j])
        b.barrier()
        loop.yield_([*fetched, *acc])
    for i in range(2):
        for j in range(2):
            d = loop.results[2 + 2 * i + j]
            at_row = b.add_many([row, b.mul(w_row, 32), b.mul(l_part, 4)])
            at_column = b.add_many([column, b.mul(w_column, 32), l_row])
            offset = b.add(b.mul(at_row, 4 * n), b.mul(at_column, 4))
            for r in range(4):
                word = b.bitcast(b.slice(d, r), B32)
                b.store_global(c_buf, offset, word, bytes=4, imm=(16 * i + r) * 4 * n + 64 * j, split=False)
    return kernel


__all__ = ["B32", "F32", "F64", "I32", "I64", "LANES", "elementwise", "gemm", "new_kernel"]
