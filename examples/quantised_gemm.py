"""A product with weights of 8 or 4 bits: y = x (q * scale)ᵀ, or in mxfp4.

    python examples/quantised_gemm.py --bits 4 --target sm_80 --m 100 --n 70
    python examples/quantised_gemm.py --bits 4 --target gfx942 --m 5 --n 256 --k 1024 --dtype bf16
    python examples/quantised_gemm.py --format mxfp4 --target gfx950

Integer weights are widened to the type of x in registers, right before the matrix instruction. A row of 8 bits has one
scale; of 4 bits, two to a byte and 8 too large, 128 neighbours along K have one. With few rows of x memory is what
takes the time: tiles are long along K, and the waves of a workgroup share them there. In mxfp4, x has 8-bit floats
(4-bit ones with `--activations mxfp4`, or where a chip has no 8-bit floats of this kind) and the weights 4-bit ones,
and 32 neighbours along K share a power of two. gfx950 multiplies them so; elsewhere they are scaled in registers first.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import ml_dtypes
import numpy as np

import wavedsl as wd

M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")
GROUP = 128
"""Neighbours along K of 4-bit weights that share a scale."""


def tile_of(target: str, m: int) -> tuple[dict, int]:
    """The tile, and waves along K that share it, for so many rows of x: what takes the fewest clocks by the cycle model
    at N = K = 8192, where rows are few at most 0.75 times the memory's time more."""
    if m <= 64:
        rows = max(16, 1 << (m - 1).bit_length())
        return {BM: rows, BN: 32 if target.startswith("gfx") else 64, BK: 512 if rows <= 32 else 256}, 4
    return {BM: 128 if target == "sm_80" else 256, BN: 128, BK: 64}, 1


def quantised_kernel(dtype: wd.DType, bits: int, tile: dict | None = None, waves: int = 1):
    """`tile`: of M, N and K; `waves` of a workgroup share the tile along K."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
            *([wd.WaveConstraint(K, BK / waves)] if waves > 1 else ()),
        ],
        subs=tile or {BM: 64, BN: 64, BK: 64},
    )  # fmt: skip
    def quantised(
        x: wd.Memory[M, K, wd.SHARED, dtype], q: wd.Memory[N, K, wd.SHARED, wd.i8 if bits == 8 else wd.u4],
        scale: wd.Memory[(N, dtype) if bits == 8 else (N, K / GROUP, dtype)], y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            weights = wd.cast(wd.read(q), dtype)
            if bits == 4:
                weights = (weights - 8) * wd.repeat_interleave(wd.read(scale), K)
            return wd.mma(wd.read(x), weights, acc)

        wd.write(loop * wd.cast(wd.read(scale), wd.f32) if bits == 8 else loop, y)

    return quantised


def mx_kernel(x_dtype: wd.DType):
    """Both operands with a scale for every 32 elements along K."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 128)])
    def mx_gemm(
        x: wd.Memory[M, K, wd.SHARED, x_dtype], x_scale: wd.Memory[M, K / 32, wd.f8e8m0],
        q: wd.Memory[N, K, wd.SHARED, wd.f4e2m1], q_scale: wd.Memory[N, K / 32, wd.f8e8m0],
        y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.scaled_mma(wd.read(x), wd.read(x_scale), wd.read(q), wd.read(q_scale), acc)

        wd.write(loop, y)

    return mx_gemm


def mx_quantised(values: np.ndarray, dtype: wd.DType) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(array of codes, array of scales, what they mean): each block's scale brings its largest number into range."""
    blocks = values.reshape(*values.shape[:-1], -1, 32).astype(np.float64)
    largest = np.abs(blocks).max(-1)
    top = int(np.log2(float(ml_dtypes.finfo(dtype.numpy).max)))
    exponent = np.floor(np.log2(np.where(largest > 0, largest, 1.0))).astype(np.int64) - top
    factor = np.exp2(exponent)[..., None]
    limit = float(ml_dtypes.finfo(dtype.numpy).max)
    rounded = np.clip(blocks / factor, -limit, limit).astype(np.float32).astype(dtype.numpy)
    means = (rounded.astype(np.float64) * factor).reshape(values.shape)
    codes = rounded.reshape(values.shape)
    if dtype is wd.f4e2m1:
        nibbles = codes.view(np.uint8)
        codes = nibbles[..., ::2] | nibbles[..., 1::2] << 4
    return codes, (exponent + 127).astype(np.uint8).view(wd.f8e8m0.numpy), means


def mx_main(given) -> int:
    m, n, k = given.m, given.n, -(-given.k // 32) * 32
    x_dtype = wd.f8e4m3 if given.activations == "mxfp8" and given.target in ("gfx950", "sm_90a") else wd.f4e2m1
    rng = np.random.default_rng(given.seed)
    x, x_scale, wide = mx_quantised(rng.standard_normal((m, k)), x_dtype)
    q, q_scale, weights = mx_quantised(rng.standard_normal((n, k)), wd.f4e2m1)
    y = np.zeros((m, n), np.float32)
    common.run(mx_kernel(x_dtype), [x, x_scale, q, q_scale, y], given)
    return common.verdict("y", y, wide @ weights.T, 2.0**-24 * (k + 8) * (np.abs(wide) @ np.abs(weights).T))


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("f16", "bf16"), m=64, n=64, k=128)
    parser.add_argument("--bits", type=int, choices=(4, 8), default=8)
    parser.add_argument("--format", choices=("integer", "mxfp4"), default="integer")
    parser.add_argument("--activations", choices=("mxfp8", "mxfp4"), default="mxfp8")
    given = parser.parse_args(arguments)
    if given.format == "mxfp4":
        return mx_main(given)
    dtype = common.dtype_called(given.dtype)
    m, n, k = given.m, given.n, given.k if given.bits == 8 else -(-given.k // GROUP) * GROUP
    rng = np.random.default_rng(given.seed)
    x = common.data((m, k), dtype, given.seed)
    scale = common.data((n,) if given.bits == 8 else (n, k // GROUP), dtype, given.seed + 1)
    wide, s = x.astype(np.float64), scale.astype(np.float64)
    if given.bits == 8:
        q = rng.integers(-128, 128, (n, k), dtype=np.int8)
        weights = q * s[:, None]
    else:
        codes = rng.integers(0, 16, (n, k), dtype=np.uint8)
        q = codes[:, ::2] | codes[:, 1::2] << 4
        weights = ((codes - 8.0) * np.repeat(s, GROUP, axis=1)).astype(dtype.storage).astype(np.float64)
    y = np.zeros((m, n), np.float32)
    common.run(quantised_kernel(dtype, given.bits, *tile_of(given.target, m)), [x, q, scale, y], given)
    return common.verdict("y", y, wide @ weights.T, 2.0**-24 * (k + 9) * (np.abs(wide) @ np.abs(weights).T))


if __name__ == "__main__":
    sys.exit(main())
