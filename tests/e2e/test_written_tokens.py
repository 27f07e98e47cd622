"""Kernels around language models, against NumPy and the evaluator: positions of several axes, caches and weights in the
formats of others, attention by other sums, sampling, losses over pairs and over places."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from families import TARGETS, Case, four_tests, normal, whole, wide

import wavedsl as wd

T, H, D, E, N, M, K, S, L, V, P, A, B = wd.symbols("T H D E N M K S L V P A B")
F16, F32, I8, I32, U8 = wd.f16, wd.f32, wd.i8, wd.i32, wd.u8


@wd.wave([wd.WorkgroupConstraint(T, 8, 0), wd.WorkgroupConstraint(H, 1, 1)])
def rotary_of_axes(
    q: wd.Memory[T, H, 2 * D, F16], places: wd.Memory[A, T, I32], axis: wd.Memory[D, I32], base: wd.Scalar[F32]
):
    """Qwen-VL's rotation, in place: each pair of halves turns by the position along the axis that it belongs to."""
    place = wd.read(places[wd.read(axis), :])
    angle = wd.cast(place, F32) * wd.exp2(wd.cast(wd.index(D), F32) * (-wd.log2(base) / D))
    c, s = wd.cos(angle), wd.sin(angle)
    low, high = wd.cast(wd.read(q[:, H, :D]), F32), wd.cast(wd.read(q[:, H, D:]), F32)
    wd.write(wd.cast(low * c - high * s, F16), q[:, H, :D])
    wd.write(wd.cast(high * c + low * s, F16), q[:, H, D:])


def axes_case(t: int, h: int, d: int) -> Case:
    q, places = normal(t, h, 2 * d, dtype=np.float16), whole(3, t, dtype=np.int32, low=0, high=50)
    axis = np.repeat([0, 1, 2], [d - 2 * (3 * d // 8), 3 * d // 8, 3 * d // 8]).astype(np.int32)
    angle = (places[axis].T * 10000.0 ** (-np.arange(d) / d))[:, None]
    low, high = wide(q[..., :d]), wide(q[..., d:])
    want = np.concatenate([low * np.cos(angle) - high * np.sin(angle), high * np.cos(angle) + low * np.sin(angle)], 2)
    return Case([q, places, axis, 10000.0], {0: want}, slack=4e-3, dynamic=(T,))


@wd.wave([wd.WorkgroupConstraint(T, 4, 0), wd.WorkgroupConstraint(H, 1, 1)])
def turned_norm_back(
    x: wd.Memory[T, H, 2 * D, F16], dy: wd.Memory[T, H, 2 * D, F16], w: wd.Memory[2, D, F32],
    cosines: wd.Memory[T, D, F32], sines: wd.Memory[T, D, F32], dx: wd.Memory[T, H, 2 * D, F16],
    dw: wd.Memory[2, D, F32],
):  # fmt: skip
    """The gradient of a norm of each head and the rotation behind it; that of the weights is summed by atomics."""
    c, s = wd.read(cosines), wd.read(sines)
    a, b = (wd.cast(wd.read(dy[:, H, part]), F32) for part in (slice(None, D), slice(D, None)))
    da, db = a * c + b * s, b * c - a * s
    low, high = (wd.cast(wd.read(x[:, H, part]), F32) for part in (slice(None, D), slice(D, None)))
    scale = wd.rsqrt(wd.sum(low * low + high * high, dim=D) / (2 * D) + 1e-6)
    u, v = wd.read(w[0, :]), wd.read(w[1, :])
    dot = wd.sum(da * u * low + db * v * high, dim=D) * scale * scale / (2 * D)
    wd.write(wd.cast((da * u - low * dot) * scale, F16), dx[:, H, :D])
    wd.write(wd.cast((db * v - high * dot) * scale, F16), dx[:, H, D:])
    wd.atomic_add(wd.sum(da * low * scale, dim=T), dw[0, :])
    wd.atomic_add(wd.sum(db * high * scale, dim=T), dw[1, :])


def norm_back_case(t: int, h: int, d: int) -> Case:
    x, dy = normal(2, t, h, 2 * d, dtype=np.float16)
    w, angle = normal(2, d, seed=1), normal(t, d, seed=2)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = wide(dy[..., :d]), wide(dy[..., d:])
    g = np.concatenate([a * c + b * s, b * c - a * s], 2)
    y, weights = wide(x), w.reshape(-1).astype(np.float64)
    scale = 1 / np.sqrt((y * y).mean(2, keepdims=True) + 1e-6)
    want = scale * (g * weights - y * scale**2 * (g * weights * y).mean(2, keepdims=True))
    dw = (g * y * scale).sum((0, 1)).reshape(2, d)
    start = [x, dy, w, np.cos(angle), np.sin(angle), np.zeros_like(x), np.zeros((2, d), np.float32)]
    return Case(start, {5: want, 6: dw}, slack=1e-2, dynamic=(T,))


def bytes_cache(dtype: Any, top: float) -> Any:
    @wd.wave([wd.WorkgroupConstraint(T, 1, 0), wd.WorkgroupConstraint(H, 1, 1)])
    def into_cache(
        k: wd.Memory[T, H, D, F16], slots: wd.Memory[T, I32], cache: wd.Memory[P, S, H, D, dtype],
        scales: wd.Memory[P, S, H, F32],
    ):  # fmt: skip
        """Keys into pages of 8-bit floats, with a factor for each token and head; a slot of -1 is no token's."""
        x = wd.cast(wd.read(k), F32)
        scale = wd.maximum(wd.max(abs(x), dim=D) / top, 1e-12)
        slot = wd.read(slots[T])
        page, place = wd.where(slot < 0, -1, slot // S), slot % S
        wd.write(wd.cast(x / scale, dtype), cache[page, place, H, :])
        wd.write(scale, scales[page, place, H])

    return into_cache


def bytes_case(dtype: Any, top: float) -> Callable[..., Case]:
    def case(t: int, h: int, d: int, s: int) -> Case:
        k, pages = normal(t, h, d, dtype=np.float16), -(-t // s) + 2
        slots = np.random.default_rng(0).permutation(pages * s)[:t].astype(np.int32)
        slots[::5] = -1
        cache, scales = np.zeros((pages, s, h, d), dtype), np.zeros((pages, s, h), np.float32)
        want, factors = cache.copy(), scales.copy()
        for i, slot in enumerate(slots):
            if slot >= 0:
                x = k[i].astype(np.float32)
                f = np.maximum(abs(x).max(1) / np.float32(top), np.float32(1e-12))
                factors[slot // s, slot % s] = f
                want[slot // s, slot % s] = (x / f[:, None]).astype(dtype)
        return Case([k, slots, cache, scales], {2: wide(want.astype(np.float32)), 3: factors}, dynamic=(T, P))

    return case


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 64)])
def awq_product(
    x: wd.Memory[M, K, F16], w: wd.Memory[K, N / 8, I32], zeros: wd.Memory[K / 64, N / 8, I32],
    scales: wd.Memory[K / 64, N, F16], y: wd.Memory[M, N, F16],
):  # fmt: skip
    """AWQ's weights: eight to a word, columns in the order 0 2 4 6 1 3 5 7, zero points packed likewise."""
    j = wd.index(N) % 8
    shift = 4 * (j // 2 + j % 2 * 4)

    def unpacked(words):
        return wd.cast(wd.repeat_interleave(words, N) >> shift & 15, F16)

    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def total(acc):
        zero = wd.repeat_interleave(unpacked(wd.read(zeros)), K)
        factor = wd.repeat_interleave(wd.read(scales), K)
        return wd.mma(wd.read(x), (unpacked(wd.read(w)) - zero) * factor, acc)

    wd.write(wd.cast(total, F16), y)


def awq_case(m: int, n: int, k: int) -> Case:
    q, zeros = whole(k, n, dtype=np.int64, low=0, high=16), whole(k // 64, n, seed=1, dtype=np.int64, low=0, high=16)
    x = normal(m, k, dtype=np.float16)
    scales = np.random.default_rng(2).uniform(0.01, 0.02, (k // 64, n)).astype(np.float16)
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def packed(a: np.ndarray) -> np.ndarray:
        parts = a.reshape(len(a), -1, 8)
        return sum(parts[:, :, c] << 4 * i for i, c in enumerate(order)).astype(np.uint32).view(np.int32)

    w = (q - np.repeat(zeros, 64, 0)) * wide(np.repeat(scales, 64, 0))
    y = np.zeros((m, n), np.float16)
    return Case([x, packed(q), packed(zeros), scales, y], {4: wide(x) @ w}, slack=1e-2, dynamic=(M,))


@wd.wave([wd.WorkgroupConstraint(N, 4, 0)])
def q4_k_rows(
    halves: wd.Memory[N, S, 2, F16], factors: wd.Memory[N, S, 12, U8], nibbles: wd.Memory[N, S, L, U8],
    x: wd.Memory[S, P, F32], y: wd.Memory[N, F32],
):  # fmt: skip
    """GGUF's Q4_K: 256 weights, with 6-bit factors and minima of 32, themselves scaled by two halves. The fields of its
    blocks are arrays with strides of their own."""
    i = wd.index(P)
    part = i // 32

    def factor(at):
        return wd.cast(wd.read(factors[:, :, at]), I32)

    low_scale, low_minimum, high = factor(part % 4), factor(4 + part % 4), factor(8 + part % 4)
    scale = wd.where(part < 4, low_scale & 63, high & 15 | low_scale >> 6 << 4)
    minimum = wd.where(part < 4, low_minimum & 63, high >> 4 | low_minimum >> 6 << 4)
    q = wd.cast(wd.read(nibbles[:, :, i // 64 * 32 + i % 32]), I32) >> part % 2 * 4 & 15
    d, low = (wd.cast(wd.read(halves[:, :, j]), F32) for j in (0, 1))
    weight = d * wd.cast(scale * q, F32) - low * wd.cast(minimum, F32)
    wd.write(wd.sum(weight * wd.read(x), dim=(P, S)), y)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [(4, 1), (7, 2)], ids=str)
def test_fields_of_blocks(size: tuple[int, int], target: str) -> None:
    n, s = size
    rng = np.random.default_rng(0)
    blocks, x = rng.integers(0, 256, (n, s, 144)).astype(np.uint8), normal(s, 256)
    blocks[..., :4] = rng.uniform(0.01, 0.02, (n, s, 2)).astype(np.float16).view(np.uint8)
    halves = blocks[..., :4].view(np.float16)
    d, b, want = wide(halves), blocks.astype(int), np.zeros((n, s, 256))
    for i in range(256):
        p = i // 32
        if p < 4:
            scale, minimum = b[..., 4 + p] & 63, b[..., 8 + p] & 63
        else:
            scale = b[..., 8 + p] & 15 | b[..., p] >> 6 << 4
            minimum = b[..., 8 + p] >> 4 | b[..., 4 + p] >> 6 << 4
        q = b[..., 16 + i // 64 * 32 + i % 32] >> 4 * (p % 2) & 15
        want[..., i] = d[..., 0] * scale * q - d[..., 1] * minimum
    y, meant = np.zeros((2, n), np.float32)
    arguments = [halves, blocks[..., 4:16], blocks[..., 16:], x]
    q4_k_rows.compile(*arguments, y, target=target).emulate(*arguments, y)
    q4_k_rows.evaluate(*arguments, meant)
    for got in (y, meant):
        np.testing.assert_allclose(got, (want * x).sum((1, 2)), rtol=1e-4, atol=1e-3)


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1), wd.TilingConstraint(K, 64)])
def outlier_product(
    x: wd.Memory[M, K, F16], row: wd.Memory[M, F32], outlier: wd.Memory[K, I8], w: wd.Memory[N, K, I8],
    column: wd.Memory[N, F32], y: wd.Memory[M, N, F16],
):  # fmt: skip
    """LLM.int8: columns with outliers in halves, the others in bytes, in one go over K."""
    scale = wd.read(row)

    @wd.iterate(K, init_args=[wd.Register[M, N, I32](0), wd.Register[M, N, F32](0.0)])
    def both(whole_part, half_part):
        value, far, q = wd.read(x), wd.read(outlier) != 0, wd.read(w)
        near = wd.cast(wd.round(wd.where(far, 0.0, wd.cast(value, F32) / scale)), I8)
        return wd.mma(near, q, whole_part), wd.mma(wd.where(far, value, 0.0), wd.cast(q, F16), half_part)

    whole_part, half_part = both
    wd.write(wd.cast((wd.cast(whole_part, F32) * scale + half_part) * wd.read(column), F16), y)


def outlier_case(m: int, n: int, k: int) -> Case:
    x, w = normal(m, k, dtype=np.float16), whole(n, k, dtype=np.int8, low=-127, high=128)
    x[:, ::17] *= 20
    far = abs(x).max(0) > 6
    row = np.maximum(abs(np.where(far, 0, wide(x))).max(1), 0.1).astype(np.float32) / np.float32(127)
    column = np.full(n, 1 / 1270, np.float32)
    near = np.round(np.where(far, 0, x.astype(np.float32) / row[:, None])).astype(np.int64)
    want = ((near @ w.T.astype(np.int64)) * wide(row)[:, None] + np.where(far, wide(x), 0) @ wide(w.T)) * wide(column)
    start = [x, row, far.astype(np.int8), w, column, np.zeros((m, n), np.float16)]
    return Case(start, {5: want}, slack=1e-2, dynamic=(M,))


@wd.wave([wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(M, 16, 0)])
def stick_breaking(
    q: wd.Memory[H, M, D, F16], k: wd.Memory[H, N, D, F16], v: wd.Memory[H, N, E, F16], y: wd.Memory[H, M, E, F32]
):
    """Of a stick each earlier key, the nearest first, breaks off its share of what is left."""
    z = wd.mma(wd.read(q), wd.read(k), wd.Register[M, N, F32](0.0)) * D**-0.5
    past = wd.index(N) < wd.index(M)
    left = wd.where(past, -(wd.maximum(z, 0.0) + wd.log1p(wd.exp(-abs(z)))), 0.0)
    share = wd.where(past, wd.exp(wd.cumsum(left, dim=N, reverse=True) + z), 0.0)
    wd.write(wd.mma(wd.cast(share, F16), wd.read(v)), y)


def stick_case(h: int, n: int, d: int) -> Case:
    q, k, v = normal(3, h, n, d, dtype=np.float16)
    z = wide(q) @ wide(k).transpose(0, 2, 1) * d**-0.5
    beta, want = 1 / (1 + np.exp(-z)), np.zeros((h, n, d))
    for i in range(n):
        rest = np.ones(h)
        for j in reversed(range(i)):
            want[:, i] += (beta[:, i, j] * rest)[:, None] * wide(v[:, j])
            rest = rest * (1 - beta[:, i, j])
    return Case([q, k, v, np.zeros((h, n, d), np.float32)], {3: want}, slack=5e-3, dynamic=(M,) if n % 16 else ())


@wd.wave([wd.WorkgroupConstraint(T, 8, 0), wd.WorkgroupConstraint(H, 1, 1)])
def second_order(k: wd.Memory[T, H, D, F32], out: wd.Memory[T, H, 1 + D + D * D, F32]):
    """Features of exp's first terms: one, the key, and the products of its parts."""
    x = wd.read(k)
    wd.write(1.0, out[:, H, 0])
    wd.write(x, out[:, H, 1 : 1 + D])
    square = x * wd.reshape(x, T, E) * 0.5**0.5
    wd.write(square, out[:, H, 1 + D + wd.index(D) * D + wd.index(E)])


def second_order_case(t: int, h: int, d: int) -> Case:
    x = normal(t, h, d)
    square = (wide(x)[..., None] * wide(x)[..., None, :]).reshape(t, h, d * d) * 0.5**0.5
    want = np.concatenate([np.ones((t, h, 1)), wide(x), square], 2)
    return Case([x, np.zeros(want.shape, np.float32)], {1: want}, {E: d}, slack=1e-6, dynamic=(T,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(V, 256)])
def top_sigma(
    logits: wd.Memory[B, V, F32], noise: wd.Memory[B, V, F32], sigmas: wd.Scalar[F32], chosen: wd.Memory[B, I32],
    kept: wd.Memory[B, I32],
):  # fmt: skip
    """Top-n-sigma: tokens whose logits are no further below the largest than some deviations, by Gumbel's noise."""
    @wd.iterate(V, init_args=[wd.Register[F32](-math.inf), wd.Register[F32](0.0), wd.Register[F32](0.0)])
    def moments(top, total, squares):
        x = wd.read(logits)
        return wd.maximum(top, wd.max(x, dim=V)), total + wd.sum(x, dim=V), squares + wd.sum(x * x, dim=V)

    top, total, squares = moments
    mean = total / V
    floor = top - sigmas * wd.sqrt(squares / V - mean * mean)

    @wd.iterate(V, init_args=[wd.Register[F32](-math.inf), wd.Register[I32](-1), wd.Register[I32](0)])
    def draw(best, at, count):
        x = wd.read(logits)
        good = (x >= floor) & (wd.index(V) < V)
        score = wd.where(good, x - wd.log(-wd.log(wd.read(noise))), -math.inf)
        here, place = wd.max(score, dim=V), wd.argmax(score, dim=V)
        return wd.maximum(best, here), wd.where(here > best, place, at), count + wd.sum(wd.where(good, 1, 0), dim=V)

    wd.write(draw[1], chosen)
    wd.write(draw[2], kept)


def sigma_case(b: int, v: int) -> Case:
    x, noise = normal(b, v, scale=3), np.random.default_rng(1).uniform(0.01, 0.99, (b, v)).astype(np.float32)
    floor = wide(x).max(1) - 1.5 * wide(x).std(1)
    good = x >= floor[:, None]
    score = np.where(good, wide(x) - np.log(-np.log(wide(noise))), -np.inf)
    start = [x, noise, 1.5, np.zeros(b, np.int32), np.zeros(b, np.int32)]
    return Case(start, {3: score.argmax(1), 4: good.sum(1)}, dynamic=(V,))


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1), wd.TilingConstraint(D, 32)])
def pairs_loss(
    x: wd.Memory[M, D, F16], y: wd.Memory[N, D, F16], scale: wd.Scalar[F32], bias: wd.Scalar[F32],
    gradient: wd.Memory[M, N, F16], loss: wd.Memory[1, F32],
):  # fmt: skip
    """SigLIP: every pair by itself, those that belong together positive; the loss, and what its scores get back."""
    @wd.iterate(D, init_args=[wd.Register[M, N, F32](0.0)])
    def dots(acc):
        return wd.mma(wd.read(x), wd.read(y), acc)

    sign = wd.where(wd.index(M) == wd.index(N), 1.0, -1.0)
    z = (dots * scale + bias) * sign
    wd.write(wd.cast(-sign * wd.sigmoid(-z) * scale, F16), gradient)
    each = wd.maximum(-z, 0.0) + wd.log1p(wd.exp(-abs(z)))
    wd.atomic_add(wd.sum(each, dim=(M, N)) / M, loss[0])


def pairs_case(n: int, d: int) -> Case:
    x, y = normal(2, n, d, dtype=np.float16, scale=0.5)
    sign = 2 * np.eye(n) - 1
    z = (wide(x) @ wide(y).T * 0.7 - 1.5) * sign
    want = -sign / (1 + np.exp(z)) * 0.7
    start = [x, y, 0.7, -1.5, np.zeros((n, n), np.float16), np.zeros(1, np.float32)]
    return Case(start, {4: want, 5: np.array([np.logaddexp(0, -z).sum() / n])}, slack=5e-3, dynamic=(M, N))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def projected(p: wd.Memory[B, N, F32], reward: wd.Memory[B, F32], fade: wd.Memory[B, F32], low: wd.Scalar[F32],
              high: wd.Scalar[F32], out: wd.Memory[B, N, F32]):  # fmt: skip
    """C51: a distribution over places, moved by a reward and drawn together, back onto the places."""
    step = (high - low) / (N - 1)
    place = low + step * wd.cast(wd.index(N), F32)
    at = (wd.clamp(wd.read(reward) + wd.read(fade) * place, low, high) - low) / step
    under = wd.clamp(wd.floor(at), 0.0, wd.cast(N - 2, F32))
    share, left = at - under, wd.cast(under, I32)
    p = wd.read(p)
    wd.atomic_add(p * (1 - share), out[B, left])
    wd.atomic_add(p * share, out[B, left + 1])


def projected_case(b: int, n: int) -> Case:
    p, reward = np.random.default_rng(0).dirichlet(np.ones(n), b).astype(np.float32), normal(b, seed=1)
    fade = np.random.default_rng(2).uniform(0.5, 1, b).astype(np.float32)
    step = 20 / (n - 1)
    at = (np.clip(wide(reward)[:, None] + wide(fade)[:, None] * (-10 + step * np.arange(n)), -10, 10) + 10) / step
    want = np.zeros((b, n))
    for k in range(n):
        want[:, k] = (p * np.maximum(1 - abs(at - k), 0)).sum(1)
    return Case([p, reward, fade, -10.0, 10.0, np.zeros((b, n), np.float32)], {5: want}, slack=1e-4, dynamic=(B,))


E4, E4Z = (wd.f8e4m3, ml_dtypes.float8_e4m3fn), (wd.f8e4m3fnuz, ml_dtypes.float8_e4m3fnuz)


KERNELS: dict[str, tuple[Any, Callable[..., Case], Any]] = {
    "rotary of axes": (rotary_of_axes, axes_case, ((11, 2, 24),)),
    "turned norm back": (turned_norm_back, norm_back_case, ((7, 2, 24),)),
    "into bytes": (bytes_cache(E4[0], 448), bytes_case(E4[1], 448), ((11, 2, 40, 16),)),
    "into bytes, fnuz": (bytes_cache(E4Z[0], 240), bytes_case(E4Z[1], 240), ((11, 2, 40, 16),)),
    "awq": (awq_product, awq_case, ((21, 72, 128),)),
    "outliers": (outlier_product, outlier_case, ((21, 35, 101),)),
    "stick breaking": (stick_breaking, stick_case, ((2, 45, 32),)),
    "second order": (second_order, second_order_case, ((11, 2, 6),)),
    "top sigma": (top_sigma, sigma_case, ((2, 701),)),
    "pairs loss": (pairs_loss, pairs_case, ((35, 45),)),
    "projected": (projected, projected_case, ((3, 101),)),
}  # fmt: skip

HEAVY = ("outliers", "stick breaking")
"""Kernels that take a while: with the slow tests."""
HAVING = {"into bytes": ("gfx950", "sm_90a"), "into bytes, fnuz": ("gfx942",)}
test_against_numpy, test_the_evaluator_agrees, test_on_other_chips, test_the_assembler_takes_it = four_tests(
    KERNELS, HEAVY, HAVING
)
