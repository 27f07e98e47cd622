"""Kernels that several tests here use."""

import random

from wavedsl.ir import dtypes
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_ir import I32, Param, vector
from wavedsl.ir.loc import Loc
from wavedsl.ir.target import MmaAtom, Target

ATOM = MmaAtom(
    "F32_16x16x16_F16", 16, 16, 16, dtypes.f16, dtypes.f16, dtypes.f32,
    {"M": "l0 l1 l2 l3", "K": "e0 e1 l4 l5"}, {"N": "l0 l1 l2 l3", "K": "e0 e1 l4 l5"},
    {"M": "e0 e1 l4 l5", "N": "l0 l1 l2 l3"}, 2, 2, 4, 32, 32, "v_mfma_f32_16x16x16_f16",
)  # fmt: skip


def make_target(**kw):
    rest = {
        "name": "gfx942", "vendor": "amd", "wave_size": 64, "max_threads": 1024, "max_waves": 16, "simds": 4,
        "scalar_registers": True, "units": 304, "shared_bytes": 65536, "banks": {}, "phases": {}, "registers": 512,
        "mma_atoms": (ATOM,), "load_atoms": (), "copy_async": (), "buffer_bounds": True, "global_imm": (0, 4095),
        "shared_imm": (0, 65535), "costs": {}, "shared_units": frozenset(), "dtypes": frozenset(), "instead": {},
        "occupancy": lambda r, s, t: 1,
    }  # fmt: skip
    return Target(**{**rest, **kw})


def gemm(tile_m=64, tile_n=64, tile_k=64, m=64, n=64, k=128):
    """C = A Bᵀ in f16 with an f32 result, 2 × 2 waves, whole tiles only: shared memory double-buffered by slots."""
    params = [
        Param("a", "pointer", dtypes.f16, 0, 8, access="read"),
        Param("b", "pointer", dtypes.f16, 8, 8, access="read"),
        Param("c", "pointer", dtypes.f32, 16, 8, access="write"),
    ]
    row = tile_k * 2
    kernel = new_kernel(
        "gemm", "gfx942", waves=4, params=params, grid=(m // tile_m, n // tile_n, 1),
        shared_bytes=(tile_m + tile_n) * row, shared_names={"a": (0, tile_m * row), "b": (tile_m * row, tile_n * row)},
    )  # fmt: skip
    b = Builder(kernel)
    b.set_loc(Loc("gemm.py", 10))
    bufs = [b.buffer(b.param(i), size) for i, size in enumerate((m * k * 2, n * k * 2, m * n * 4))]
    tid, lane, wave = b.tid(), b.lane(), b.readfirst(b.wave())
    wave_m, wave_n = b.urem(wave, 2), b.udiv(wave, 2)
    chunks = tile_k // 8
    fm, fn = tile_m // 32, tile_n // 32
    with b.for_(0, k, tile_k, [b.zero(vector(4, "f32"))] * (fm * fn), label="K") as loop:
        b.set_loc(Loc("gemm.py", 12))
        b.barrier()
        for which, tile, base in ((0, tile_m, 0), (1, tile_n, tile_m * row)):
            for r in range(tile * chunks // 256):
                at = b.add(tid, 256 * r)
                line, col = b.udiv(at, chunks), b.mul(b.urem(at, chunks), 8)
                index = b.add(b.mul(b.add(b.mul(b.wgid(which), tile), line), k), b.add(loop.iv, col))
                v = b.load_global(bufs[which], b.mul(index, 2), bytes=16)
                b.store_shared(b.add(b.add(b.mul(line, row), b.mul(col, 2)), base), v, buffer="ab"[which])
        b.barrier()
        b.set_loc(Loc("gemm.py", 13))
        acc = list(loop.carried)
        for kk in range(tile_k // 16):

            def fragment(which, i, wave_at, kk=kk):
                line = b.add(b.add(b.mul(wave_at, tile_m // 2), 16 * i), b.urem(lane, 16))
                col = b.add(b.mul(b.udiv(lane, 16), 4), kk * 16)
                base = tile_m * row if which else 0
                addr = b.add(b.add(b.mul(line, row), b.mul(col, 2)), base)
                return b.load_shared(addr, bytes=8, buffer="ab"[which])

            for i in range(fm):
                for j in range(fn):
                    x, y = fragment(0, i, wave_m), fragment(1, j, wave_n)
                    acc[i * fn + j] = b.mma(ATOM, x, y, acc[i * fn + j])
        loop.yield_(acc)
    b.set_loc(Loc("gemm.py", 15))
    for i in range(fm):
        for j in range(fn):
            for e in range(4):
                line = b.add(b.add(b.mul(wave_m, tile_m // 2), 16 * i + e), b.mul(b.udiv(lane, 16), 4))
                col = b.add(b.add(b.mul(wave_n, tile_n // 2), 16 * j), b.urem(lane, 16))
                index = b.add(b.mul(b.add(b.mul(b.wgid(0), tile_m), line), n), b.add(b.mul(b.wgid(1), tile_n), col))
                b.store_global(bufs[2], b.mul(index, 4), b.slice(loop.results[i * fn + j], e))
    return b.finish()


def random_loops(seed):
    """Nested loops with affine and other address arithmetic, loads and stores: `(kernel, i32 words of memory)`."""
    rng = random.Random(seed)
    words = 4096
    params = [
        Param("x", "pointer", dtypes.i32, 0, 8, access="read"),
        Param("y", "pointer", dtypes.i32, 8, 8, access="write"),
        Param("n", "scalar", dtypes.i32, 16, 4, source="extent n"),
    ]
    b = Builder(new_kernel("loops", "gfx942", waves=2, params=params, grid=(3, 1, 1), shared_bytes=4096))
    b.set_loc(Loc("loops.py", 1))
    x, y = b.buffer(b.param(0), words * 4), b.buffer(b.param(1), words * 4)
    n = b.param(2, I32)
    total = b.const(0)

    def body(ivs, depth, sums):
        b.set_loc(Loc("loops.py", 2 + depth))
        out = list(sums)
        for _ in range(rng.randrange(1, 4)):
            index = b.mul(rng.choice([b.lane(), b.tid(), b.wgid(0), n]), rng.choice([1, 2, 3, 8]))
            for iv in ivs:
                scaled = b.mul(iv, rng.choice([0, 1, 2, 3, 4, 7, 16, rng.randrange(100)]))
                if rng.random() < 0.2:
                    scaled = b.mul(iv, b.add(n, 1))
                if rng.random() < 0.2:
                    scaled = b.xor(scaled, b.lane())
                index = b.add(index, scaled)
            index = b.add(b.and_(index, 1023), rng.randrange(64)) if rng.random() < 0.5 else index
            v = b.load_global(x, b.mul(b.and_(index, words - 1), 4), bytes=4, type=I32)
            v2 = b.load_global(x, b.shl(index, 2), bytes=4, type=I32)
            at = rng.randrange(len(out))
            out[at] = b.add(b.mul(out[at], 3), b.xor(v, v2))
            if rng.random() < 0.3:
                with b.if_(b.cmp("slt", rng.choice(ivs), rng.randrange(20))) as br:
                    br.yield_(b.add(out[at], rng.choice(ivs)))
                with br.orelse():
                    br.yield_(b.load_global(x, b.shl(b.and_(index, 255), 2), bytes=4, type=I32))
                out[at] = br.results[0]
        if depth < 2 and rng.random() < 0.7:
            with loop(ivs, depth) as inner:
                inner.yield_(body([*ivs, inner.iv], depth + 1, inner.carried))
            out[0] = b.add(out[0], inner.results[0])
        return out

    def loop(ivs, depth):
        lo = rng.choice([0, 0, 1, 5, ivs[-1] if ivs else 0])
        step = rng.choice([1, 1, 2, 3, 16])
        hi = rng.choice([b.const(7), b.const(step * 4), b.const(0), n, b.add(n, 3)])
        return b.for_(lo, hi, step, [total, b.const(rng.randrange(9))], label=f"d{depth}")

    with loop([], 0) as outer:
        outer.yield_(body([outer.iv], 1, outer.carried))
    at = b.add(b.mul(b.wgid(0), 128), b.tid())
    b.store_global(y, b.mul(at, 4), b.bitcast(outer.results[0], vector(1)))
    b.store_global(y, b.mul(b.add(at, 512), 4), b.bitcast(outer.results[1], vector(1)))
    return b.finish(), words
