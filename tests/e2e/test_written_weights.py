"""Products by weights that lie packed: words of eight in the order of AWQ, two of four with their places."""

from __future__ import annotations

import numpy as np
from families import Case, both_tests, whole, wide

import wavedsl as wd

M, N, K = wd.symbols("M N K")
F32, F16, I32 = wd.f32, wd.f16, wd.i32
ORDER = np.array([0, 4, 1, 5, 2, 6, 3, 7])
"""Where in its word each of eight neighbours lies, in units of four bits."""


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)])
def words(
    x: wd.Memory[M, K, F16], q: wd.Memory[K, N / 8, I32], zero: wd.Memory[K / 128, N / 8, I32],
    scale: wd.Memory[K / 128, N, F16], y: wd.Memory[M, N, F16],
):  # fmt: skip
    """Groups of 128 along K, of which a tile has a quarter: their scales and zero points are read by mappings."""
    lane = wd.index(N) % 8
    shift = ((lane & 1) * 4 + (lane >> 1)) * 4

    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def loop(acc):
        weight = (wd.repeat_interleave(wd.read(q), N) >> shift) & 15
        zeros = wd.read(zero, mapping=wd.IndexMapping((K, N), {K / 128: K // 128, N / 8: N // 8}))
        scales = wd.read(scale, mapping=wd.IndexMapping((K, N), {K / 128: K // 128}))
        return wd.mma(wd.read(x), wd.cast(weight - ((zeros >> shift) & 15), F16) * scales, acc)

    wd.write(wd.cast(loop, F16), y)


def words_case(m: int, n: int, k: int) -> Case:
    q, zero = (whole(rows, n, seed=i, dtype=np.int64, low=0, high=16) for i, rows in enumerate((k, k // 128)))
    scale, x = whole(k // 128, n, low=1), whole(m, k, low=-1, high=2)
    packed = [(a.reshape(len(a), -1, 8) << 4 * ORDER).sum(2).astype(np.uint32).view(np.int32) for a in (q, zero)]
    weights = (q - np.repeat(zero, 128, 0)) * np.repeat(wide(scale), 128, 0)
    return Case([x, *packed, scale, np.zeros((m, n), np.float16)], {4: wide(x) @ weights}, slack=1e-3, dynamic=(M, K))


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)])
def two_of_four(
    x: wd.Memory[M, K, F16], kept: wd.Memory[N, K / 2, F16], places: wd.Memory[N, K / 8, wd.u8],
    y: wd.Memory[M, N, F32],
):  # fmt: skip
    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def loop(acc):
        pair = wd.repeat_interleave(wd.cast(wd.read(places), I32), K) >> (wd.index(K) // 4 % 2 * 4)
        first, second = (wd.read(kept, mapping=wd.IndexMapping((N, K), {K / 2: K // 4 * 2 + i})) for i in (0, 1))
        at = wd.index(K) % 4
        weight = wd.where(at == pair & 3, first, wd.where(at == (pair >> 2) & 3, second, 0.0))
        return wd.mma(wd.read(x), weight, acc)

    wd.write(loop, y)


def two_of_four_case(m: int, n: int, k: int) -> Case:
    x, kept = whole(m, k), whole(n, k // 2, seed=1)
    choices, chosen = [(i, j) for j in range(4) for i in range(j)], np.random.default_rng(2).integers(0, 6, (n, k // 4))
    pairs = np.array(choices)[chosen]
    weights = np.zeros((n, k // 4, 4))
    np.put_along_axis(weights, pairs, wide(kept).reshape(n, k // 4, 2), 2)
    bits = pairs[..., 0] | pairs[..., 1] << 2
    places = (bits[:, ::2] | bits[:, 1::2] << 4).astype(np.uint8)
    want = wide(x) @ weights.reshape(n, k).T
    return Case([x, kept, places, np.zeros((m, n), np.float32)], {3: want}, dynamic=(M, N, K))


KERNELS = {
    "words": (words, words_case, ((32, 64, 256), (17, 72, 384))),
    "two-of-four": (two_of_four, two_of_four_case, ((32, 64, 64), (33, 70, 80))),
}


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)
