"""A gated MLP: out = (silu(x Wgᵀ) * (x Wuᵀ)) Wdᵀ, silu(t) = t * sigmoid(t).

    python examples/swiglu.py --target sm_80 --m 100 --n 70 --k 65

The first kernel makes both products in one loop, reading x once, and the gate in registers; the second is a product.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

M, N, K = wd.symbols("M N K")
TILES = [wd.WorkgroupConstraint(M, 128, 0), wd.WorkgroupConstraint(N, 128, 1), wd.TilingConstraint(K, 64)]


def hidden_kernel(dtype: wd.DType):
    @wd.wave(TILES)
    def hidden(
        x: wd.Memory[M, K, wd.SHARED, dtype], gate: wd.Memory[N, K, wd.SHARED, dtype],
        up: wd.Memory[N, K, wd.SHARED, dtype], h: wd.Memory[M, N, dtype],
    ):  # fmt: skip
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero, zero])
        def loop(gated, lifted):
            rows = wd.read(x)
            return wd.mma(rows, wd.read(gate), gated), wd.mma(rows, wd.read(up), lifted)

        gated, lifted = loop
        wd.write(wd.cast(gated * wd.sigmoid(gated) * lifted, dtype), h)

    return hidden


def down_kernel(dtype: wd.DType):
    @wd.wave(TILES)
    def down(a: wd.Memory[M, K, wd.SHARED, dtype], b: wd.Memory[N, K, wd.SHARED, dtype], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return down


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("f16", "bf16"), m=64, n=96, k=64).parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    m, n, k = given.m, given.n, given.k
    small = 1 / np.sqrt(k)
    x = common.data((m, k), dtype, given.seed)
    gate, up = ((common.data((n, k), dtype, given.seed + i) * small).astype(x.dtype) for i in (1, 2))
    last = (common.data((k, n), dtype, given.seed + 3) * small).astype(x.dtype)
    h, out = np.zeros((m, n), x.dtype), np.zeros((m, k), np.float32)
    common.run(hidden_kernel(dtype), [x, gate, up, h], given)
    common.run(down_kernel(dtype), [h, last, out], given)

    wide = [a.astype(np.float64) for a in (x, gate, up, last)]
    gated, lifted = wide[0] @ wide[1].T, wide[0] @ wide[2].T
    want = gated / (1 + np.exp(-gated)) * lifted
    slack = 2.0**-24 * (k + 24) * (np.abs(wide[0]) @ np.abs(wide[1]).T + np.abs(wide[0]) @ np.abs(wide[2]).T)
    allowed = common.bound(want, dtype, 2) + slack * (2 + np.abs(gated) + np.abs(lifted))
    product = h.astype(np.float64) @ wide[3].T
    sums = 2.0**-24 * (n + 8) * (np.abs(h.astype(np.float64)) @ np.abs(wide[3]).T)
    sums += common.taken_as_zero(h, last.T, given.target)
    return common.verdicts(common.verdict("h", h, want, allowed), common.verdict("out", out, product, sums))


if __name__ == "__main__":
    sys.exit(main())
