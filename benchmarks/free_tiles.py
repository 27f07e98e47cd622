"""Products whose tiles are left to a search: what the tuning benchmarks compile."""

from __future__ import annotations

import wavedsl as wd

M, N, K, BM, BN, BK, WM = wd.symbols("M N K BM BN BK WM")
TILES = [
    wd.WorkgroupConstraint(M, BM, 0),
    wd.WorkgroupConstraint(N, BN, 1),
    wd.TilingConstraint(K, BK),
    wd.WaveConstraint(M, BM / 2),
    wd.WaveConstraint(N, BN / 2),
]


@wd.wave(TILES)
def gemm(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


@wd.wave(TILES)
def rows_of_b(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[K, N, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
    """B as it lies in memory: its fragments are read with transposing reads, or element by element."""
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


@wd.wave(TILES)
def bytes_gemm(a: wd.Memory[M, K, wd.SHARED, wd.i8], b: wd.Memory[N, K, wd.SHARED, wd.i8], c: wd.Memory[M, N, wd.i32]):
    acc = wd.Register[M, N, wd.i32](0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.i32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


@wd.wave(
    [
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(N, BN, 1),
        wd.TilingConstraint(K, BK),
        wd.WaveConstraint(M, WM),
        wd.WaveConstraint(N, BN),
    ]
)
def stacked(
    a: wd.Memory[M, K, wd.SHARED, wd.bf16], b: wd.Memory[N, K, wd.SHARED, wd.bf16], c: wd.Memory[M, N, wd.bf16]
):  # fmt: skip
    """Warpgroups lie along M alone."""
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(wd.cast(loop, wd.bf16), c)
