"""A product with weights of 8 or 4 bits: y = x (q * scale)ᵀ, one f16 scale per weight row.

    python examples/quantised_gemm.py --bits 4 --target sm_80 --m 100 --n 70

Weights are widened to the type of x in registers, right before the matrix instruction. Four-bit ones lie two to a byte,
the even one in the low half, and are 8 too large.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np
import sympy

import wavedsl as wd

M, N, K, HALF = wd.symbols("M N K HALF")


def quantised_kernel(dtype: wd.DType, bits: int):
    columns, stored = (K, wd.i8) if bits == 8 else (HALF, wd.u8)

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)])
    def quantised(
        x: wd.Memory[M, K, wd.SHARED, dtype], q: wd.Memory[N, columns, stored], scale: wd.Memory[N, dtype],
        y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            if bits == 8:
                weights = wd.cast(wd.read(q), dtype)
            else:
                pair = wd.cast(wd.read(q, mapping=wd.IndexMapping((N, K), {HALF: sympy.floor(K / 2)})), wd.i32)
                weights = wd.cast((pair >> wd.index(K) % 2 * 4 & 15) - 8, dtype)
            return wd.mma(wd.read(x), weights, acc)

        wd.write(loop * wd.cast(wd.read(scale), wd.f32), y)

    return quantised


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("f16", "bf16"), m=64, n=64, k=128)
    parser.add_argument("--bits", type=int, choices=(4, 8), default=8)
    given = parser.parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    m, n, k = given.m, given.n, given.k + given.k % 2
    rng = np.random.default_rng(given.seed)
    x, scale = common.data((m, k), dtype, given.seed), common.data((n,), dtype, given.seed + 1)
    weights = rng.integers(-128, 128, (n, k)) if given.bits == 8 else rng.integers(-8, 8, (n, k))
    if given.bits == 8:
        q = weights.astype(np.int8)
    else:
        q = ((weights[:, 1::2] + 8) << 4 | weights[:, ::2] + 8).astype(np.uint8)
    y = np.zeros((m, n), np.float32)
    common.run(quantised_kernel(dtype, given.bits), [x, q, scale, y], given)
    wide, s = x.astype(np.float64), scale.astype(np.float64)
    magnitude = np.abs(wide) @ np.abs(weights).T * np.abs(s)
    return common.verdict("y", y, wide @ weights.T * s, 2.0**-24 * (k + 9) * magnitude)


if __name__ == "__main__":
    sys.exit(main())
