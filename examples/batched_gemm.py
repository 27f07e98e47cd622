"""A product per batch: C[b] = A[b] B[b]ᵀ. A dimension with tile 1 is a batch: it is in no register's shape.

    python examples/batched_gemm.py --target gfx942 --batch 3 --m 100 --n 70 --k 65
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

B, M, N, K = wd.symbols("B M N K")


def batched_kernel(dtype: wd.DType):
    @wd.wave(
        [
            wd.WorkgroupConstraint(B, 1, 2),
            wd.WorkgroupConstraint(M, 128, 0),
            wd.WorkgroupConstraint(N, 128, 1),
            wd.TilingConstraint(K, 64),
        ]
    )
    def gemm(
        a: wd.Memory[B, M, K, wd.SHARED, dtype], b: wd.Memory[B, N, K, wd.SHARED, dtype], c: wd.Memory[B, M, N, wd.f32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return gemm


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("f16", "bf16"), batch=3, m=64, n=96, k=64).parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    a = common.data((given.batch, given.m, given.k), dtype, given.seed)
    b = common.data((given.batch, given.n, given.k), dtype, given.seed + 1)
    c = np.zeros((given.batch, given.m, given.n), np.float32)
    common.run(batched_kernel(dtype), [a, b, c], given)
    x, y = a.astype(np.float64), b.astype(np.float64).swapaxes(1, 2)
    return common.verdict("c", c, x @ y, 2.0**-24 * (given.k + 8) * (np.abs(x) @ np.abs(y)))


if __name__ == "__main__":
    sys.exit(main())
