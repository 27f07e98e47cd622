"""Kernel IR written by hand for tests of the PTX back end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_ir import B32, F32, F64, I32, I64, Kernel, Param, Type, Value, vector
from wavedsl.ir.target import Target

THREADS = 64
TYPES: dict[DType, Type] = {dt.i32: I32, dt.u32: I32, dt.f32: F32, dt.f64: F64, dt.i64: I64, dt.u64: I64}


def pointwise(
    target: Target,
    inputs: Sequence[DType],
    outputs: Sequence[DType],
    build: Callable[..., Sequence[Value]],
    *,
    shared: int = 0,
) -> Kernel:
    """Thread i of 64 loads element i of each input, `build(builder, *values)` computes, and it stores each result.

    Elements are 4 or 8 bytes wide; dtypes other than those of `TYPES` are words of packed numbers.
    """
    arrays = [*(("in", d) for d in inputs), *(("out", d) for d in outputs)]
    params = [
        Param(f"{what}{i}", "pointer", d, 8 * i, 8, access="read" if what == "in" else "write")
        for i, (what, d) in enumerate(arrays)
    ]
    kernel = new_kernel(
        "pointwise", target.name, wave_size=32, waves=2, params=params, grid=(1, 1, 1), shared_bytes=shared
    )
    b = Builder(kernel, target)
    tid = b.tid()
    bytes_ = [8 if d.bits == 64 else 4 for _, d in arrays]
    bufs = [b.buffer(b.param(i), THREADS * size) for i, size in enumerate(bytes_)]
    values = [
        b.load_global(buf, b.mul(tid, size), bytes=size, type=TYPES.get(d, B32))
        for (_, d), buf, size in zip(arrays[: len(inputs)], bufs, bytes_)
    ]
    results = build(b, *values)
    for buf, size, value in zip(bufs[len(inputs) :], bytes_[len(inputs) :], results):
        b.store_global(buf, b.mul(tid, size), value, bytes=size)
    return b.finish()


def gemm(target: Target, m: int, n: int, k: int, *, stages: int = 3, dynamic_k: bool = False) -> Kernel:
    """C[m, n] f32 = A[m, k] f16 B[n, k] f16 (k a multiple of 8): tile 64 x 64 x 32, 4 warps of 32 x 32.

    `stages` buffers filled by asynchronous copies; 64-byte rows whose 16-byte chunks are permuted by XOR with the row.
    """
    bm = bn = 64
    bk, row_bytes, tile = 32, 64, 64 * 64
    params = [
        Param("a", "pointer", dt.f16, 0, 8, access="read"),
        Param("b", "pointer", dt.f16, 8, 8, access="read"),
        Param("c", "pointer", dt.f32, 16, 8, access="write"),
    ]
    if dynamic_k:
        params.append(Param("k", "scalar", dt.i32, 24, 4, source="extent K"))
    kernel = new_kernel(
        "gemm", target.name, wave_size=32, waves=4, params=params, grid=(-(-m // bm), -(-n // bn), 1),
        shared_bytes=2 * stages * tile,
        shared_names={"a": (0, stages * tile), "b": (stages * tile, stages * tile)},
    )  # fmt: skip
    b = Builder(kernel, target)
    extent = b.param(3, lo=0, hi=1 << 20) if dynamic_k else b.i32(k)
    a_buf, b_buf, c_buf = (b.buffer(b.param(i), size) for i, size in enumerate((2 * m * k, 2 * n * k, 4 * m * n)))
    tid, lane, wave = b.tid(), b.lane(), b.readfirst(b.wave())
    m0, n0 = b.mul(b.wgid(0), bm), b.mul(b.wgid(1), bn)

    # Copies: thread t moves chunk t % 4 of row t / 4, and of row t / 4 + 32.
    chunk, row = b.and_(tid, 3), b.lshr(tid, 2)
    swizzled = b.xor(chunk, b.and_(b.lshr(row, 1), 3))
    target_byte = b.add(b.shl(row, 6), b.shl(swizzled, 4))
    copies = []
    for buffer, buf, extent_rows, first, base in (("a", a_buf, m, m0, 0), ("b", b_buf, n, n0, stages * tile)):
        for half in range(2):
            at = b.add(b.add(first, row), 32 * half)
            voff = b.add(b.mul(at, 2 * k), b.shl(chunk, 4))
            inside = b.cmp("slt", at, extent_rows)
            copies.append((buffer, buf, voff, inside, base + half * 32 * row_bytes))

    def issue(k0: Value, slot: Value) -> None:
        left = b.cmp("slt", b.add(b.shl(chunk, 3), k0), extent)
        for buffer, buf, voff, inside, base in copies:
            b.copy_async(
                buf, voff, b.add(b.add(target_byte, slot), base), b.shl(k0, 1), bytes=16, buffer=buffer,
                mask=b.pand(inside, left), split=False,
            )  # fmt: skip
        b.copy_commit()

    for stage in range(stages - 1):
        issue(b.i32(stage * bk), b.i32(stage * tile))

    # Fragments: ldmatrix.x4 takes 16 rows of A and one k16 step, or two n8 columns of B and one k16 step.
    wm, wn = b.shl(b.and_(wave, 1), 5), b.shl(b.lshr(wave, 1), 5)
    a_row, a_chunk = b.and_(lane, 15), b.lshr(lane, 4)
    b_row = b.or_(b.and_(lane, 7), b.shl(b.lshr(lane, 4), 3))
    b_chunk = b.and_(b.lshr(lane, 3), 1)

    def place(first: Value, row: Value, chunk: Value, step: int) -> Value:
        turned = b.xor(b.xor(chunk, b.and_(b.lshr(row, 1), 3)), 2 * step)
        return b.add(b.shl(b.add(first, row), 6), b.shl(turned, 4))

    a_at = [place(wm, a_row, a_chunk, step) for step in range(2)]
    b_at = [place(wn, b_row, b_chunk, step) for step in range(2)]
    atom = next(x for x in target.mma_atoms if x.name == "F32_16x8x16_F16")
    zero = b.zero(vector(4, "f32"))
    ring = stages * tile
    with b.for_(0, extent, bk, [b.i32(0), b.i32((stages - 1) * tile), *[zero] * 8], label="K") as loop:
        read, write, *acc = loop.carried
        b.copy_wait(stages - 2)
        b.barrier()
        issue(b.add(loop.iv, (stages - 1) * bk), write)
        for step in range(2):
            frag_a = [
                b.load_shared(
                    b.add(b.add(a_at[step], read), i * 16 * row_bytes), bytes=16, atom="ldmatrix.x4", buffer="a"
                )
                for i in range(2)
            ]
            frag_b = [
                b.load_shared(
                    b.add(b.add(b_at[step], read), ring + j * 16 * row_bytes), bytes=16, atom="ldmatrix.x4", buffer="b"
                )
                for j in range(2)
            ]
            for i in range(2):
                for j in range(4):
                    acc[4 * i + j] = b.mma(atom, frag_a[i], b.slice(frag_b[j // 2], 2 * (j % 2), 2), acc[4 * i + j])

        def turn(slot: Value) -> Value:
            after = b.add(slot, tile)
            return b.select(b.cmp("eq", after, ring), b.i32(0), after)

        loop.yield_(turn(read), turn(write), *acc)
    out = loop.results[2:]
    row, col = b.lshr(lane, 2), b.shl(b.and_(lane, 3), 1)
    for i in range(2):
        for j in range(4):
            for half in range(2):
                at_m = b.add(b.add(m0, wm), b.add(row, 16 * i + 8 * half))
                at_n = b.add(b.add(n0, wn), b.add(col, 8 * j))
                voff = b.shl(b.add(b.mul(at_m, n), at_n), 2)
                value = out[4 * i + j]
                in_m = b.cmp("slt", at_m, m)
                if n % 2 == 0:
                    mask = b.pand(in_m, b.cmp("slt", at_n, n))
                    b.store_global(c_buf, voff, b.slice(value, 2 * half, 2), mask=mask)
                else:
                    for e in range(2):
                        mask = b.pand(in_m, b.cmp("slt", b.add(at_n, e), n))
                        b.store_global(c_buf, voff, b.slice(value, 2 * half + e), imm=4 * e, mask=mask)
    return b.finish()
