"""A product of 8-bit floats with scales per block: C = (A * sa) (B * sb)ᵀ, summed in f32 registers.

    python examples/block_scaled_gemm.py --target sm_90a --dtype f8e4m3 --m 100 --n 200 --k 300

A has a scale per row and 128 of K, B one per 128 rows and 128 of K, as DeepSeek-V3 quantises activations and weights.
The product of one block is scaled in f32 before it is added, so no more than 128 terms are summed by the matrix unit
(which keeps fewer bits of fp8 sums on Hopper).
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

M, N, K, KB, NB = wd.symbols("M N K KB NB")
BLOCK = 128
FP8 = {"gfx942": "f8e4m3fnuz", "gfx950": "f8e4m3", "sm_90a": "f8e4m3"}
"""The 8-bit floats that a chip multiplies; others compute with bf16."""


def block_scaled_kernel(dtype: wd.DType, out: wd.DType = wd.f32, tile: tuple[int, int] = (64, 128), schedule=None):
    """`tile`: of M and N; one scale of B serves a workgroup's columns, so that of N divides the block."""
    assert BLOCK % tile[1] == 0

    @wd.wave(
        [wd.WorkgroupConstraint(M, tile[0], 0), wd.WorkgroupConstraint(N, tile[1], 1), wd.TilingConstraint(K, BLOCK)],
        schedule=schedule,
    )
    def block_scaled(
        a: wd.Memory[M, K, wd.SHARED, dtype], b: wd.Memory[N, K, wd.SHARED, dtype], sa: wd.Memory[KB, M, wd.f32],
        sb: wd.Memory[NB, KB, wd.f32], c: wd.Memory[M, N, out],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            block = wd.tile_start(K) // BLOCK
            rows = wd.read(sa, mapping=wd.IndexMapping((M,), {KB: block}))
            columns = wd.read(sb, mapping=wd.IndexMapping((), {NB: wd.tile_start(N) // BLOCK, KB: block}))
            return wd.fma(wd.mma(wd.read(a), wd.read(b)), rows * columns, acc)  # one scale a row, one step a number

        wd.write(loop if out is wd.f32 else wd.cast(loop, out), c)

    return block_scaled


def arguments_of(dtype: wd.DType, m: int, n: int, k: int, seed: int, out: wd.DType = wd.f32) -> list[np.ndarray]:
    """Quantised operands, their scales, and an output that holds no number."""
    blocks = -(-k // BLOCK)
    random = np.random.default_rng(seed)
    a, b = common.data((m, k), dtype, seed + 1), common.data((n, k), dtype, seed + 2)
    sa = random.uniform(0.5, 2.0, (blocks, m)).astype(np.float32)
    sb = random.uniform(0.5, 2.0, (-(-n // BLOCK), blocks)).astype(np.float32)
    return [a, b, sa, sb, np.full((m, n), np.nan).astype(out.storage)]


def reference(a: np.ndarray, b: np.ndarray, sa: np.ndarray, sb: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(C in float64, the same of absolute values)."""
    k, n = a.shape[1], b.shape[0]
    left = a.astype(np.float64) * np.repeat(sa.T, BLOCK, 1)[:, :k]
    right = b.astype(np.float64) * np.repeat(np.repeat(sb, BLOCK, 0)[:n], BLOCK, 1)[:, :k]
    return left @ right.T, np.abs(left) @ np.abs(right).T


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("f8e4m3", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "bf16"), m=64, n=128, k=256)
    parser.set_defaults(dtype=None)
    given = parser.parse_args(arguments)
    dtype = common.dtype_called(given.dtype or FP8.get(given.target, "bf16"))
    arrays = arguments_of(dtype, given.m, given.n, given.k, given.seed)
    common.run(block_scaled_kernel(dtype), arrays, given)
    want, magnitude = reference(*arrays[:4])
    return common.verdict("c", arrays[4], want, 2.0**-24 * (given.k + 3 * -(-given.k // BLOCK)) * magnitude)


if __name__ == "__main__":
    sys.exit(main())
