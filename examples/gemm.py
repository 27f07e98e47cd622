"""Matrix products C = A B^T, from one matrix instruction to a general GEMM.

    python examples/gemm.py                                   the general one: 4 waves, 64 x 64 x 32 tiles
    python examples/gemm.py --kernel mma                      16 x 16 x 16, one wave, one instruction
    python examples/gemm.py --kernel small                    64 x 64 x 128, 32 x 32 x 64 tiles, 4 waves of 16 x 16
    python examples/gemm.py --kernel waves16                  a workgroup of 16 waves
    python examples/gemm.py --target sm_80 --m 100 --n 70 --k 65 --dtype bf16

A is M x K and B is N x K, both row-major; sums are f32 (f64 for f64, i32 for i8). Sizes need not divide the tiles.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

M, N, K, BM, BN, BK, WM, WN = wd.symbols("M N K BM BN BK WM WN")

SUMS = {"f16": wd.f32, "bf16": wd.f32, "f32": wd.f32, "tf32": wd.f32, "f64": wd.f64, "i8": wd.i32}
SUMS |= {"f8e4m3fnuz": wd.f32, "f8e5m2fnuz": wd.f32, "f8e4m3": wd.f32, "f8e5m2": wd.f32}

TILES = {
    # workgroup tile M, N, K; wave tile M, N; default sizes
    "mma": ((16, 16, 16, 16, 16), (16, 16, 16)),
    "small": ((32, 32, 64, 16, 16), (64, 64, 128)),
    "gemm": ((64, 64, 32, 32, 32), (128, 128, 128)),
    "waves16": ((64, 64, 32, 16, 16), (64, 64, 64)),
}


def gemm_kernel(dtype: wd.DType, tiles: tuple[int, ...]):
    """A GEMM of one input type; `tiles` is the workgroup's tile (M, N, K) and the wave's (M, N)."""
    sums = SUMS[dtype.name]

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, WN),
        ],
        subs=dict(zip((BM, BN, BK, WM, WN), tiles)),
    )
    def gemm(a: wd.Memory[M, K, wd.SHARED, dtype], b: wd.Memory[N, K, wd.SHARED, dtype], c: wd.Memory[M, N, sums]):
        acc = wd.Register[M, N, sums](0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, sums]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return gemm


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, tuple(SUMS))
    parser.add_argument("--kernel", choices=TILES, default="gemm")
    for name in "mnk":
        parser.add_argument(f"--{name}", type=int, help="default: as the kernel's name says")
    given = parser.parse_args(arguments)
    tiles, sizes = TILES[given.kernel]
    m, n, k = (size if asked is None else asked for asked, size in zip((given.m, given.n, given.k), sizes))
    dtype = common.dtype_called(given.dtype)
    a, b = common.data((m, k), dtype, given.seed), common.data((n, k), dtype, given.seed + 1)
    c = np.full((m, n), 93, SUMS[dtype.name].storage)
    common.run(gemm_kernel(dtype, tiles), [a, b, c], given)
    return common.verdict("c", c, *reference(a, b, dtype))


def reference(a: np.ndarray, b: np.ndarray, dtype: wd.DType) -> tuple[np.ndarray, np.ndarray]:
    """A B^T and the error that is allowed: products are exact, K sums are rounded (docs/numerics.md)."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    sums = SUMS[dtype.name]
    unit = 0.0 if sums.is_int else 2.0 ** -(sums.mantissa + 1)
    allowed = (a.shape[1] + 8) * unit * (np.abs(wide_a) @ np.abs(wide_b).T)
    if dtype.name == "tf32":  # each input is rounded to 11 bits first
        allowed += 2.0**-10 * (np.abs(wide_a) @ np.abs(wide_b).T)
    return wide_a @ wide_b.T, allowed


if __name__ == "__main__":
    sys.exit(main())
