"""Tokens from a vocabulary: the largest of a row of logits, one drawn by its softmax, or the largest of a product.

    python examples/sampling.py --target gfx950 --m 3 --n 9000
    python examples/sampling.py --how drawn --temperature 0.7
    python examples/sampling.py --how head --target sm_90a --m 5 --n 768 --k 128 --dtype f16

Drawn: the largest of x / temperature - log(-log u), u uniform, is at n with the probability that softmax gives n
(Gumbel maxima), so a row is gone through once and nothing is added up. A workgroup has a row and takes it tile after
tile; of few rows more waves share one.

Head: the logits of the language model's last layer are never stored. Each workgroup multiplies 256 rows of the weights,
its own part of them, and what it finds meets in one number per token: the logit's bits, ordered as the numbers are,
above the row's, so that an atomic maximum takes both. Of equal logits the first wins.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

M, N, K, G, L = wd.symbols("M N K G L")
PART = 256
"""Rows of the weights of a workgroup (L); G counts workgroups."""
LAST = 0x7FFFFFFF


def token_kernel(dtype: wd.DType, drawn: bool, tile: int = 4096):
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.TilingConstraint(N, tile)], name="drawn" if drawn else "greedy")
    def token(
        x: wd.Memory[M, N, dtype],
        temperature: wd.Memory[M, wd.f32] if drawn else None,
        seed: wd.Scalar[wd.i64] if drawn else None,
        tokens: wd.Memory[M, wd.i32],
    ):
        sharper = 1.0 / wd.read(temperature) if drawn else 1.0
        one = wd.Register[wd.f32]

        @wd.iterate(N, init_args=[one(-math.inf), wd.Register[wd.i32](0)])
        def over_tiles(top, at):
            value = wd.cast(wd.read(x), wd.f32) * sharper
            if drawn:
                u = wd.maximum(wd.random(seed, M, N), 2.0**-25)  # 0 is drawn, too
                value = value - wd.log(-wd.log(u))
            largest = wd.max(value, dim=N)
            return wd.maximum(top, largest), wd.where(largest > top, wd.argmax(value, dim=N), at)

        wd.write(over_tiles[1], tokens)

    return token


def head_kernel(dtype: wd.DType, rows: int = 64):
    @wd.wave(
        [wd.WorkgroupConstraint(M, rows, 0), wd.WorkgroupConstraint(G, 1, 1), wd.TilingConstraint(K, 64)],
        subs={L: PART},
    )
    def head(x: wd.Memory[M, K, dtype], w: wd.Memory[G * L, K, dtype], best: wd.Memory[M, wd.i64]):
        @wd.iterate(K, init_args=[wd.Register[M, L, wd.f32](0.0)])
        def logits(acc):
            return wd.mma(wd.read(x), wd.read(w[G * L : (G + 1) * L, :]), acc)

        bits = wd.bitcast(wd.max(logits, dim=L), wd.i32)
        ordered = wd.where(bits < 0, bits ^ LAST, bits)
        token = wd.index(G) * PART + wd.argmax(logits, dim=L)
        wd.atomic_max(wd.cast(ordered, wd.i64) << 32 | wd.cast(LAST - token, wd.i64), best)

    return head


@wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, 4096, 1)])
def uniform(seed: wd.Scalar[wd.i64], u: wd.Memory[M, N, wd.f32]):
    wd.write(wd.random(seed, M, N), u)


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("bf16", "f16", "f32"), m=4, n=5000, k=128)
    parser.add_argument("--how", choices=("greedy", "drawn", "head"), default="greedy")
    parser.add_argument("--temperature", type=float, default=1.0)
    given = parser.parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    m, n, rows = given.m, given.n, np.arange(given.m)
    if given.how == "head":
        if n % PART:
            parser.error(f"--n {n}: the weights have a multiple of {PART} rows")
        x, w = common.data((m, given.k), dtype, given.seed), common.data((n, given.k), dtype, given.seed + 1)
        best = np.full(m, np.iinfo(np.int64).min)
        common.run(head_kernel(dtype), [x, w, best], given, subs={G: n // PART})
        tokens = LAST - (best & 0xFFFFFFFF)
        scores = x.astype(np.float64) @ w.astype(np.float64).T
        slack = 2.0**-22 * given.k * np.abs(x).max() * np.abs(w).max()
    else:
        x, tokens = common.data((m, n), dtype, given.seed), np.zeros(m, np.int32)
        scores, slack = x.astype(np.float64), 0.0
        if given.how == "drawn":
            temperature = np.full(m, given.temperature, np.float32)
            common.run(token_kernel(dtype, True), [x, temperature, given.seed, tokens], given)
            u = np.zeros((m, n), np.float32)
            uniform.evaluate(given.seed, u)  # the same numbers on every chip, whatever the tiles
            scores = scores / given.temperature - np.log(-np.log(np.maximum(u.astype(np.float64), 2.0**-25)))
            slack = 2.0**-18 * np.abs(scores).max(1)
        else:
            common.run(token_kernel(dtype, False), [x, tokens], given)
            return common.verdict("tokens", tokens, scores.argmax(1), np.zeros(m))  # of equal logits the first
    # Two scores may differ by less than what f32 rounds: then either is right.
    return common.verdict("tokens' scores", scores[rows, tokens], scores.max(1), slack + np.zeros(m))


if __name__ == "__main__":
    sys.exit(main())
