"""Kernels with open tiles for tuning tests: worker processes import them from here."""

from __future__ import annotations

import wavedsl as wd

M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")


@wd.wave(
    [
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(N, BN, 1),
        wd.TilingConstraint(K, BK),
        wd.WaveConstraint(M, BM / 2),
        wd.WaveConstraint(N, BN / 2),
    ]
)
def gemm(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)])
def double(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
    wd.write(wd.read(a) * 2.0, b)
