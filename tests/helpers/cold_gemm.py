"""A GEMM that fresh processes import: compiled for a target, or called on NumPy arrays."""

import numpy as np

import wavedsl as wd

M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")


@wd.wave(
    [
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(N, BN, 1),
        wd.TilingConstraint(K, BK),
        wd.WaveConstraint(M, BM / 2),
        wd.WaveConstraint(N, BN / 2),
    ],
    subs={BM: 64, BN: 64, BK: 64},
)
def gemm(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


def compiled(target):
    """The text for 1024 x 1024 x 1024."""
    return gemm.compile(target=target, subs={M: 1024, N: 1024, K: 1024})


def call():
    """One launch on the default device, checked."""
    a, b, c = np.ones((64, 64), np.float16), np.ones((64, 64), np.float16), np.zeros((64, 64), np.float32)
    gemm(a, b, c)
    assert (c == 64).all()
