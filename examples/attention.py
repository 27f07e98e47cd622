"""Attention O = softmax(Q Kᵀ · scale) V for every head, scores kept in registers.

    python examples/attention.py                                     2 heads, 256 queries and keys, head size 64
    python examples/attention.py --causal --dtype bf16 --d 128
    python examples/attention.py --target sm_80 --m 100 --n 77       sizes need not divide the tiles
    python examples/attention.py --target gfx950 --tile-m 64 --tile-n 32 --waves 2

Q is H x M x D, K and V are H x N x D, all row-major. A workgroup takes a tile of queries of one head and loops over
tiles of keys, keeping the running maximum and sum of each row; sums are f32.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

H, M, N, D, BM, BN = wd.symbols("H M N D BM BN")


def attention_kernel(dtype: wd.DType, *, causal: bool = False, tile: tuple[int, int] = (128, 64), waves: int = 4):
    """Attention on `tile` queries x keys at a time. With `causal`, a query sees the keys up to its own position."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(H, 1, 1),
            wd.WorkgroupConstraint(M, BM, 0),
            wd.TilingConstraint(N, BN),
            wd.WaveConstraint(M, BM / waves),
        ],
        subs={BM: tile[0], BN: tile[1]},
    )
    def attention(
        q: wd.Memory[H, M, D, dtype],
        k: wd.Memory[H, N, D, wd.SHARED, dtype],
        v: wd.Memory[H, N, D, wd.SHARED, dtype],
        o: wd.Memory[H, M, D, dtype],
        scale: wd.Scalar[wd.f32],
    ):
        top = wd.Register[M, wd.f32](-math.inf)
        total = wd.Register[M, wd.f32](0.0)
        acc = wd.Register[M, D, wd.f32](0.0)

        @wd.iterate(N, init_args=[top, total, acc])
        def over_keys(top, total, acc):
            scores = wd.mma(wd.read(q), wd.read(k), wd.Register[M, N, wd.f32](0.0)) * (scale * math.log2(math.e))
            if causal:
                scores = wd.where(wd.index(M) >= wd.index(N), scores, -math.inf)
            new_top = wd.maximum(top, wd.max(scores, dim=N))
            p = wd.exp2(scores - new_top)
            keep = wd.exp2(top - new_top)
            return new_top, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, dtype), wd.read(v), acc * keep)

        top, total, acc = over_keys
        wd.write(wd.cast(acc / total, dtype), o)

    return attention


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, causal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Attention in float64 and the error that is allowed, as docs/numerics.md counts it.

    Scores are f32 sums of D exact products, so exp2 of them is off by their error; P is rounded to the input type
    before the second product and not before the row's sum; O is rounded once more.
    """
    half = q.dtype == np.float16
    rounding = 2.0 ** -((wd.f16 if half else wd.bf16).mantissa + 1)
    tiny = 2.0**-25 if half else 2.0**-134  # half the spacing of numbers below the smallest normal one
    single = 2.0**-24
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = np.einsum("hmd,hnd->hmn", q, k) * scale
    slack = single * (q.shape[2] + 8) * np.einsum("hmd,hnd->hmn", np.abs(q), np.abs(k)) * abs(scale)
    if causal:
        scores = np.where(np.arange(q.shape[1])[:, None] >= np.arange(k.shape[1]), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    p = np.exp(scores - top)
    p /= p.sum(-1, keepdims=True)
    error = rounding + 2 * slack.max(-1, keepdims=True) + single * (k.shape[1] + 32)
    magnitude = np.einsum("hmn,hnd->hmd", p, np.abs(v))
    out = np.einsum("hmn,hnd->hmd", p, v)
    # Weights are at most 1 before they are divided by the row's sum, which is at least 1.
    return out, 2 * error * magnitude + rounding * np.abs(out) + tiny * (np.abs(v).sum(1, keepdims=True) + 1)


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("f16", "bf16"), heads=2, m=256, n=256, d=64, waves=4)
    parser.add_argument("--causal", action="store_true", help="a query sees the keys up to its own position")
    parser.add_argument("--tile-m", type=int, default=128, help="queries per workgroup")
    parser.add_argument("--tile-n", type=int, default=64, help="keys per trip")
    given = parser.parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    q = common.data((given.heads, given.m, given.d), dtype, given.seed)
    k, v = (common.data((given.heads, given.n, given.d), dtype, given.seed + i) for i in (1, 2))
    o = np.full(q.shape, 93, dtype.storage)
    scale = np.float32(1 / math.sqrt(given.d))
    kernel = attention_kernel(dtype, causal=given.causal, tile=(given.tile_m, given.tile_n), waves=given.waves)
    common.run(kernel, [q, k, v, o, scale], given)
    return common.verdict("o", o, *reference(q, k, v, float(scale), given.causal))


if __name__ == "__main__":
    sys.exit(main())
