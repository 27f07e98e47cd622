"""Products by weights in few bits as others' libraries store them, and what stands before and behind such products."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from families import Case, both_tests, normal, whole, wide

import wavedsl as wd

B, C, D, E, F, G, H, K, L, M, N, P, R, S, T, W = wd.symbols("B C D E F G H K L M N P R S T W")
F16, BF16, F32, I8, I32, U8 = wd.f16, wd.bf16, wd.f32, wd.i8, wd.i32, wd.u8
HALF = ml_dtypes.bfloat16


def pairs(x: np.ndarray) -> np.ndarray:
    """Two numbers of four bits in each byte, the first one low."""
    return (x[..., ::2] | x[..., 1::2] << 4).astype(np.uint8)


# ---- experts in mxfp4: tokens by index, gate and value in neighbouring rows, both clamped


@wd.wave([wd.WorkgroupConstraint(G, 1, 1), wd.WorkgroupConstraint(F, 32, 0), wd.TilingConstraint(K, 64)],
         subs={L: 32, P: 2})  # fmt: skip
def clamped_experts(
    x: wd.Memory[T, K, BF16], w: wd.Memory[E, F, P, K, wd.f4e2m1], scale: wd.Memory[E, F, P, K / 32, wd.f8e8m0],
    bias: wd.Memory[E, F, P, F32], rows: wd.Memory[G, L, I32], expert: wd.Memory[G, I32], y: wd.Memory[G, L, F, BF16],
):  # fmt: skip
    """A group of 32 tokens has one expert; a row of -1 is none."""
    e, which = wd.read(expert), wd.read(rows)
    wd.exit_if(e < 0)
    zero = wd.Register[L, F, F32](0.0)

    @wd.iterate(K, init_args=[zero, zero])
    def halves(*sums):
        token = wd.read(x, mapping=wd.IndexMapping((L, K), {T: which}))
        new = []
        for i, acc in enumerate(sums):
            weight = wd.read(w, mapping=wd.IndexMapping((F, K), {E: e, F: F, P: i, K: K}))
            factor = wd.read(scale, mapping=wd.IndexMapping((F, K / 32), {E: e, F: F, P: i, K / 32: K / 32}))
            new.append(wd.mma(token, wd.cast(weight, BF16) * wd.repeat_interleave(wd.cast(factor, BF16), K), acc))
        return new

    def biased(i):
        return halves[i] + wd.read(bias, mapping=wd.IndexMapping((F,), {E: e, F: F, P: i}))

    gate, value = wd.minimum(biased(0), 7.0), wd.clamp(biased(1), -7.0, 7.0)
    wd.write(wd.cast(gate * wd.sigmoid(1.702 * gate) * (value + 1.0), BF16), y)


def clamped_case(t: int, k: int, f: int, e: int, g: int) -> Case:
    rng = np.random.default_rng(0)
    x, bias = normal(t, k, dtype=HALF), normal(e, f, 2, seed=1)
    w = rng.integers(0, 16, (e, f, 2, k))
    scale = rng.integers(122, 127, (e, f, 2, k // 32)).astype(np.uint8)
    rows, expert = rng.integers(0, t, (g, 32)).astype(np.int32), rng.integers(0, e, g).astype(np.int32)
    rows[0, 20:] = -1
    expert[-1] = -1
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    full = np.where(w < 8, 1, -1) * values[w % 8] * np.exp2(scale.astype(float) - 127).repeat(32, -1)
    y = np.zeros((g, 32, f))
    for i in range(g):
        if expert[i] >= 0:
            token = np.where(rows[i, :, None] < 0, 0, wide(x)[rows[i]])
            z = np.einsum("lk,fpk->lfp", token, full[expert[i]]) + bias[expert[i]]
            gate, value = np.minimum(z[..., 0], 7), np.clip(z[..., 1], -7, 7)
            y[i] = gate / (1 + np.exp(-1.702 * gate)) * (value + 1)
    arguments = [x, pairs(w), scale.view(ml_dtypes.float8_e8m0fnu), bias, rows, expert, np.zeros(y.shape, HALF)]
    return Case(arguments, {6: y}, {K: k}, 2e-2, (T, G))


# ---- GPTQ: each row of weights names its group; zeros packed along the columns, weights along the rows


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 32)])
def by_order_of_activations(
    x: wd.Memory[M, K, F16], words: wd.Memory[S, N, I32], zeros: wd.Memory[G, W, I32], scale: wd.Memory[G, N, F16],
    group: wd.Memory[K, I32], y: wd.Memory[M, N, F16],
):  # fmt: skip
    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def total(acc):
        k, n, g = wd.index(K), wd.index(N), wd.read(group)
        word = wd.read(words, mapping=wd.IndexMapping((K, N), {S: k // 8, N: N}))
        zero = wd.read(zeros, mapping=wd.IndexMapping((K, N), {G: g, W: n // 8}))
        number = ((word >> (k % 8 * 4)) & 15) - ((zero >> (n % 8 * 4)) & 15) - 1
        factor = wd.read(scale, mapping=wd.IndexMapping((K, N), {G: g, N: N}))
        return wd.mma(wd.read(x), wd.cast(number, F16) * factor, acc)

    wd.write(wd.cast(total, F16), y)


def order_case(m: int, n: int, k: int, g: int) -> Case:
    rng = np.random.default_rng(0)
    x, w, z = whole(m, k), rng.integers(0, 16, (k, n)), rng.integers(0, 15, (g, n))
    scale = np.exp2(rng.integers(-3, 1, (g, n))).astype(np.float16)
    group = rng.integers(0, g, k).astype(np.int32)
    shift = np.arange(8, dtype=np.uint32) * 4
    words = (w.reshape(k // 8, 8, n).astype(np.uint32) << shift[:, None]).sum(1, dtype=np.uint32).view(np.int32)
    zeros = (z.reshape(g, n // 8, 8).astype(np.uint32) << shift).sum(2, dtype=np.uint32).view(np.int32)
    want = wide(x) @ ((w - z[group] - 1) * wide(scale)[group])
    return Case([x, words, zeros, scale, group, np.zeros((m, n), np.float16)], {5: want}, {}, 2e-3, (M, K))


# ---- four-bit normal floats whose scales are bytes with scales of their own


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
def twice_quantised(
    x: wd.Memory[M, K, BF16], w: wd.Memory[N, K, wd.u4], level: wd.Memory[C, F32], size: wd.Memory[N, K / 64, U8],
    code: wd.Memory[D, F32], large: wd.Memory[S, F32], offset: wd.Scalar[F32], y: wd.Memory[M, N, BF16],
):  # fmt: skip
    """Scales of 64 weights are bytes that a table names, of 256 of them along all rows there is one number."""

    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def total(acc):
        number = wd.read(level, mapping=wd.IndexMapping((N, K), {C: wd.cast(wd.read(w), I32)}))
        block = wd.index(N) * (K // 64) + wd.tile_start(K) // 64
        byte = wd.cast(wd.read(size), I32)  # [N, K / 64]
        around = wd.read(large, mapping=wd.IndexMapping((N,), {S: block // 256}))
        one = wd.read(code, mapping=wd.IndexMapping((N, K / 64), {D: byte})) * around + offset
        return wd.mma(wd.read(x), wd.cast(number * wd.repeat_interleave(one, K), BF16), acc)

    wd.write(wd.cast(total, BF16), y)


def twice_case(m: int, n: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    x, w = normal(m, k, dtype=HALF), rng.integers(0, 16, (n, k))
    level, code = np.sort(normal(16, seed=1)), np.sort(normal(256, seed=2))
    size = rng.integers(0, 256, (n, k // 64)).astype(np.uint8)
    large = rng.random(-(-n * k // 64 // 256)).astype(np.float32)
    one = code[size] * large[np.arange(n * k // 64).reshape(n, -1) // 256] + np.float32(0.25)
    full = (level[w] * one.repeat(64, 1)).astype(HALF)
    arguments = [x, pairs(w), level, size, code, large, 0.25, np.zeros((m, n), HALF)]
    return Case(arguments, {7: wide(x) @ wide(full).T}, {K: k}, 2e-2, (M,))


# ---- weights of -1, 0 and 1, four in a byte in four quarters, by bytes that the kernel makes of its rows


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)], subs={P: 4})
def ternary(
    x: wd.Memory[M, P, K, BF16], w: wd.Memory[N, K, U8], factor: wd.Scalar[F32], bias: wd.Memory[N, F32],
    y: wd.Memory[M, N, BF16],
):  # fmt: skip
    @wd.iterate(K, init_args=[wd.Register[M, F32](1e-5)])
    def top(high):
        for i in range(4):
            high = wd.maximum(high, wd.max(wd.abs(wd.cast(wd.read(x[:, i, :]), F32)), dim=K))
        return high

    step = 127.0 / top

    @wd.iterate(K, init_args=[wd.Register[M, N, I32](0)])
    def total(acc):
        byte = wd.read(w)
        for i in range(4):
            number = wd.cast((byte >> (2 * i)) & 3, I8) - 1
            mine = wd.cast(wd.round(wd.cast(wd.read(x[:, i, :]), F32) * step), I8)
            acc = wd.mma(mine, number, acc)
        return acc

    wd.write(wd.cast(wd.cast(total, F32) * (factor / step) + wd.read(bias), BF16), y)


def ternary_case(m: int, n: int, k: int) -> Case:
    x, w = normal(m, 4, k, dtype=HALF), whole(n, 4, k, seed=1, low=-1, high=2, dtype=np.int32)
    bias = normal(n, seed=2)
    x32 = x.astype(np.float32)
    step = np.float32(127) / np.maximum(np.abs(x32).max((1, 2)), np.float32(1e-5))
    byte = ((w + 1) << np.arange(0, 8, 2)[:, None]).sum(1).astype(np.uint8)
    whole_x = np.rint(x32 * step[:, None, None]).astype(np.int64)
    y = np.einsum("mpk,npk->mn", whole_x, w) * (0.5 / wide(step))[:, None] + bias
    return Case([x, byte, 0.5, bias, np.zeros((m, n), HALF)], {4: y}, {}, 1e-2, (M, K))


# ---- a product with an adapter beside it, and one whose result leaves in bytes with a scale for each 128 columns


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)], subs={R: 16})
def adapted(
    x: wd.Memory[M, K, BF16], w: wd.Memory[N, K, I8], scale: wd.Memory[N, F32], a: wd.Memory[R, K, BF16],
    b: wd.Memory[N, R, BF16], alpha: wd.Scalar[F32], y: wd.Memory[M, N, BF16],
):  # fmt: skip
    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0), wd.Register[M, R, F32](0.0)])
    def both(acc, low):
        rows = wd.read(x)
        return wd.mma(rows, wd.cast(wd.read(w), BF16), acc), wd.mma(rows, wd.read(a), low)

    acc, low = both
    more = wd.mma(wd.cast(low * alpha, BF16), wd.read(b), acc * wd.read(scale))
    wd.write(wd.cast(more, BF16), y)


def adapted_case(m: int, n: int, k: int) -> Case:
    x, w = normal(m, k, dtype=HALF, scale=0.3), whole(n, k, seed=1, low=-128, high=128, dtype=np.int8)
    a, b = normal(16, k, seed=2, dtype=HALF, scale=0.3), normal(n, 16, seed=3, dtype=HALF)
    scale = np.abs(normal(n, seed=4)) / 64
    y = wide(x) @ (wide(w) * wide(scale)[:, None]).T + 0.5 * wide(x) @ wide(a).T @ wide(b).T
    return Case([x, w, scale, a, b, 0.5, np.zeros((m, n), HALF)], {6: y}, {}, 4e-2, (M, K))


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(G, 1, 1), wd.TilingConstraint(K, 32)], subs={L: 128})
def into_bytes(
    x: wd.Memory[M, K, F16], w: wd.Memory[G, L, K, F16], residual: wd.Memory[M, G, L, F16], q: wd.Memory[M, G, L, I8],
    scale: wd.Memory[G, M, F32],
):  # fmt: skip
    @wd.iterate(K, init_args=[wd.Register[M, L, F32](0.0)])
    def total(acc):
        return wd.mma(wd.read(x), wd.read(w), acc)

    y = wd.maximum(total, 0.0)
    y = y * y + wd.cast(wd.read(residual), F32)
    top = wd.maximum(wd.max(wd.abs(y), dim=L), 1e-6) / 127
    wd.write(top, scale)
    wd.write(wd.cast(wd.round(y / top), I8), q)


def bytes_case(m: int, k: int, g: int) -> Case:
    x, w, residual = whole(m, k), whole(g, 128, k, seed=1), whole(m, g, 128, seed=2)
    y = np.maximum(np.einsum("mk,glk->mgl", wide(x), wide(w)), 0) ** 2 + residual
    y = y.astype(np.float32)
    top = np.maximum(np.abs(y).max(2), np.float32(1e-6)) / np.float32(127)
    want = {3: np.rint(y / top[..., None]), 4: wide(top.T)}
    return Case([x, w, residual, np.zeros(y.shape, np.int8), np.zeros((g, m), np.float32)], want, {}, 0, (M, K))


KERNELS = {
    "clamped experts": (clamped_experts, clamped_case, ((40, 128, 64, 3, 3), (21, 96, 37, 2, 4))),
    "order of activations": (by_order_of_activations, order_case, ((32, 64, 64, 4), (37, 40, 72, 3))),
    "twice quantised": (twice_quantised, twice_case, ((32, 64, 128), (37, 101, 192))),
    "ternary": (ternary, ternary_case, ((16, 64, 64), (21, 75, 44))),
    "adapted": (adapted, adapted_case, ((32, 64, 64), (37, 75, 44))),
    "into bytes": (into_bytes, bytes_case, ((32, 64, 2), (37, 44, 3))),
}  # fmt: skip

test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)
