"""Pieces of training and of serving large models: products in blocks of bytes, norms before and statistics behind
products, experts with room for so many, optimisers over many tensors, attention that goes on or is chosen by block."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from families import TARGETS, Case, both_tests, normal, on_chip, philox, whole, wide

import wavedsl as wd

B, C, D, E, G, H, I, J, K, L, M, N, P, Q, R, S, T, V, W = wd.symbols("B C D E G H I J K L M N P Q R S T V W")
BM, BN, BK = wd.symbols("BM BN BK")
F16, BF16, F32, I32, U8, U32 = wd.f16, wd.bf16, wd.f32, wd.i32, wd.u8, wd.u32
HALF, BYTE = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


# ---- products


@wd.wave(
    [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, 128)],
    subs={BM: 64, BN: 64},
)
def in_blocks(
    x: wd.Memory[M, K, wd.f8e4m3], sx: wd.Memory[M, K / 128, F32], w: wd.Memory[N, K, wd.f8e4m3],
    sw: wd.Memory[N / 128, K / 128, F32], y: wd.Memory[M, N, BF16],
):  # fmt: skip
    """Rows of x have a factor for every 128 along K, w one for every 128 x 128."""
    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def total(acc):
        part = wd.mma(wd.read(x), wd.read(w), wd.Register[M, N, F32](0.0))
        block = wd.tile_start(K) // 128
        factor = wd.read(sx, mapping=wd.IndexMapping((M,), {K / 128: block}))
        other = wd.read(sw, mapping=wd.IndexMapping((N,), {N / 128: N // 128, K / 128: block}))
        return acc + part * (factor * other)

    wd.write(wd.cast(total, BF16), y)


def in_blocks_case(m: int, n: int, k: int) -> Case:
    x, w = normal(m, k, dtype=BYTE), normal(n, k, seed=1, dtype=BYTE)
    sx, sw = normal(m, k // 128, seed=2), normal(n // 128, k // 128, seed=3)
    blocks = wide(x).reshape(m, -1, 128) * wide(sx)[:, :, None]
    weights = wide(w).reshape(n, -1, 128) * np.repeat(wide(sw), 128, 0)[:, :, None]
    want = np.einsum("mbk,nbk->mn", blocks, weights)
    return Case([x, sx, w, sw, np.zeros((m, n), HALF)], {4: want}, {}, 5e-2, (M, N))


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)])
def norm_before(
    x: wd.Memory[M, K, F16], gain: wd.Memory[K, F16], w: wd.Memory[N, K, F16], bias: wd.Memory[N, F32],
    eps: wd.Scalar[F32], y: wd.Memory[M, N, F16],
):  # fmt: skip
    """RMS norm and product in one go: rows' squares are summed beside the product, which they divide at the end."""
    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0), wd.Register[M, F32](0.0)])
    def loop(acc, squares):
        row = wd.read(x)
        full = wd.cast(row, F32)
        return wd.mma(row * wd.read(gain), wd.read(w), acc), squares + wd.sum(full * full, dim=K)

    total, squares = loop
    wd.write(wd.cast(total * wd.rsqrt(squares / K + eps) + wd.read(bias), F16), y)


def norm_before_case(m: int, n: int, k: int) -> Case:
    x, gain, w = whole(m, k), whole(k, seed=1, low=1), normal(n, k, seed=2, dtype=np.float16)
    bias = normal(n, seed=3)
    row = wide(x) / np.sqrt((wide(x) ** 2).mean(1, keepdims=True) + 1e-5)
    want = row * wide(gain) @ wide(w).T + bias
    return Case([x, gain, w, bias, np.float32(1e-5), np.zeros((m, n), np.float16)], {5: want}, {}, 2e-2, (M, N, K))


@wd.wave(
    [wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(P, 1, 1), wd.TilingConstraint(K, 32)], subs={J: 64}
)
def statistics(
    x: wd.Memory[M, K, F16], w: wd.Memory[N, K, F16], label: wd.Memory[M, I32], top: wd.Memory[M, P, F32],
    total: wd.Memory[M, P, F32], hit: wd.Memory[M, F32], best: wd.Memory[M, P, I32],
):  # fmt: skip
    """Logits that are never stored: of each 64 of the vocabulary the rows' largest, where it is, and sums."""
    @wd.iterate(K, init_args=[wd.Register[M, J, F32](0.0)])
    def logits(acc):
        return wd.mma(wd.read(x), wd.read(w, mapping=wd.IndexMapping((J, K), {N: P * 64 + J})), acc)

    word = wd.index(P) * 64 + wd.index(J)
    logits = wd.where(word < N, logits, -math.inf)
    largest = wd.max(logits, dim=J)
    wd.write(largest, top)
    wd.write(wd.sum(wd.exp(logits - largest), dim=J), total)
    wd.write(wd.index(P) * 64 + wd.argmax(logits, dim=J), best)
    wd.atomic_add(wd.sum(wd.where(word == wd.read(label), logits, 0.0), dim=J), hit)


def statistics_case(m: int, n: int, k: int) -> Case:
    x, w = whole(m, k), normal(n, k, seed=1, dtype=np.float16)
    label = np.random.default_rng(2).integers(0, n, m).astype(np.int32)
    logits = wide(x) @ wide(w).T
    parts = [logits[:, i : i + 64] for i in range(0, n, 64)]
    top = np.stack([p.max(1) for p in parts], 1)
    total = np.stack([np.exp(p - p.max(1, keepdims=True)).sum(1) for p in parts], 1)
    best = np.stack([p.argmax(1) + 64 * i for i, p in enumerate(parts)], 1)
    outputs = [np.zeros(a.shape, a.dtype) for a in (top.astype("f4"), total.astype("f4"), np.zeros(m, "f4"))]
    return Case([x, w, label, *outputs, np.zeros(best.shape, np.int32)],
                {3: top, 4: total, 5: logits[np.arange(m), label], 6: best}, {}, 1e-2, (M, K))


@wd.wave([wd.WorkgroupConstraint(E, 1, 0), wd.WorkgroupConstraint(M, 32, 1), wd.WorkgroupConstraint(N, 32, 2),
          wd.TilingConstraint(T, 32)])  # fmt: skip
def ragged_gradient(
    x: wd.Memory[T, M, F16], dy: wd.Memory[T, N, F16], starts: wd.Memory[L, I32], dw: wd.Memory[E, M, N, F32]
):  # fmt: skip
    """Experts' weights: a product along the tokens of each, which lie one after the other."""
    first, last = (wd.read(starts, mapping=wd.IndexMapping((), {L: wd.index(E) + i})) for i in (0, 1))

    @wd.iterate(T, init_args=[wd.Register[M, N, F32](0.0)], start=first, stop=last)
    def total(acc):
        t = wd.index(T)
        token = wd.where((t >= first) & (t < last), wd.read(x), 0.0)
        return wd.mma(token, wd.read(dy), acc)

    wd.write(total, dw)


def ragged_gradient_case(t: int, e: int, m: int, n: int) -> Case:
    starts = np.sort(np.random.default_rng(0).integers(0, t + 1, e + 1)).astype(np.int32)
    starts[0], starts[-1] = 0, t
    if e > 2:
        starts[1] = starts[2]
    x, dy = whole(t, m), whole(t, n, seed=1)
    want = np.stack([wide(x)[i:j].T @ wide(dy)[i:j] for i, j in itertools.pairwise(starts)])
    return Case([x, dy, starts, np.zeros((e, m, n), np.float32)], {3: want}, dynamic=(T,))


# ---- experts


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)], subs={K: 2})
def with_room(
    logits: wd.Memory[B, T, E, F32], capacity: wd.Scalar[I32], place: wd.Memory[B, T, K, I32],
    share: wd.Memory[B, T, K, F32], load: wd.Memory[B, E, F32], loss: wd.Memory[B, F32],
):  # fmt: skip
    """Tokens' two best experts; who comes too late to an expert is dropped. First choices go before second ones."""
    p = wd.softmax(wd.read(logits), dim=E)
    value, which = wd.topk(p, K, dim=E)
    value = value / wd.sum(value, dim=K)
    chosen = wd.cast(wd.index(E) == which, I32)
    before = wd.cumsum(chosen, dim=T) - chosen
    counts = wd.sum(chosen, dim=T)
    before = before + (wd.cumsum(counts, dim=K) - counts)
    mine = wd.sum(before * chosen, dim=E)
    stays = mine < capacity
    wd.write(wd.where(stays, which * capacity + mine, -1), place)
    wd.write(wd.where(stays, value, 0.0), share)
    firsts = wd.sum(wd.cast(chosen, F32), dim=(T, K)) / (K * T)
    wd.write(firsts, load)
    wd.write(wd.sum(firsts * (wd.sum(p, dim=T) / T), dim=E) * E, loss)


def with_room_case(b: int, t: int, e: int) -> Case:
    logits, capacity = normal(b, t, e), max(1, t // e)
    p = np.exp(wide(logits))
    p /= p.sum(2, keepdims=True)
    which = np.argsort(-p, 2)[:, :, :2]
    value = np.take_along_axis(p, which, 2)
    value /= value.sum(2, keepdims=True)
    place, load = np.full((b, t, 2), -1), np.zeros((b, e))
    for row in range(b):
        for k in range(2):
            for i in range(t):
                expert = which[row, i, k]
                if load[row, expert] < capacity:
                    place[row, i, k] = expert * capacity + load[row, expert]
                load[row, expert] += 1
    load /= 2 * t
    outputs = [np.zeros((b, t, 2), np.int32), np.zeros((b, t, 2), np.float32), np.zeros((b, e), np.float32)]
    wants = {2: place, 3: np.where(place >= 0, value, 0), 4: load, 5: (load * p.mean(1)).sum(1) * e}
    return Case([logits, np.int32(capacity), *outputs, np.zeros(b, np.float32)], wants, {}, 1e-5, (B,))


@wd.wave([wd.WorkgroupConstraint(T, 8, 0), wd.WorkgroupConstraint(D, 64, 1)])
def gathered_back(
    rows: wd.Memory[R, D, F16], place: wd.Memory[T, K, I32], share: wd.Memory[T, K, F32], y: wd.Memory[T, D, F16]
):  # fmt: skip
    row = wd.read(rows, mapping=wd.IndexMapping((T, K, D), {R: wd.read(place)}))
    wd.write(wd.cast(wd.sum(wd.cast(row, F32) * wd.read(share), dim=K), F16), y)


def gathered_back_case(t: int, k: int, d: int) -> Case:
    rng = np.random.default_rng(0)
    place = np.where(rng.random((t, k)) < 0.2, -1, rng.permutation(t * k).reshape(t, k)).astype(np.int32)
    rows, share = whole(t * k, d), whole(t, k, seed=1, dtype=np.float32)
    want = (np.where((place >= 0)[:, :, None], wide(rows)[place], 0) * wide(share)[:, :, None]).sum(1)
    return Case([rows, place, share, np.zeros((t, d), np.float16)], {3: want}, dynamic=(T, D))


@wd.wave([wd.WorkgroupConstraint(G, 1, 0), wd.WorkgroupConstraint(N, 32, 1), wd.WorkgroupConstraint(R, 32, 2),
          wd.TilingConstraint(K, 32)], subs={R: 32})  # fmt: skip
def gated_experts(
    x: wd.Memory[T, K, F16], w: wd.Memory[E, 2 * N, K, F16], bias: wd.Memory[E, 2 * N, F32],
    expert: wd.Memory[G, I32], first: wd.Memory[G, I32], count: wd.Memory[G, I32], y: wd.Memory[T, N, F16],
):  # fmt: skip
    """Both projections of an expert in one pass, gate and value side by side in memory, row by row."""
    mine, start, rows = wd.read(expert), wd.read(first), wd.read(count)
    zero = wd.Register[R, N, F32](0.0)

    @wd.iterate(K, init_args=[zero, zero])
    def both(gate, value):
        token = wd.read(x, mapping=wd.IndexMapping((R, K), {T: wd.index(R) + start}))
        g, v = (wd.read(w, mapping=wd.IndexMapping((N, K), {E: mine, 2 * N: 2 * N + i})) for i in (0, 1))
        return wd.mma(token, g, gate), wd.mma(token, v, value)

    g, v = (
        z + wd.read(bias, mapping=wd.IndexMapping((N,), {E: mine, 2 * N: 2 * N + i})) for i, z in enumerate(both)
    )
    inside = wd.where(wd.index(R) < rows, wd.index(R) + start, -1)
    wd.write(wd.cast(g * wd.sigmoid(g) * v, F16), y, mapping=wd.IndexMapping((R, N), {T: inside}))


def gated_experts_case(t: int, e: int, n: int, k: int) -> Case:
    starts = np.sort(np.random.default_rng(0).integers(0, t + 1, e + 1))
    starts[0], starts[-1] = 0, t
    blocks = [(i, s, min(32, stop - s)) for i, (a, stop) in enumerate(itertools.pairwise(starts))
              for s in range(a, stop, 32)]
    expert, first, count = np.array(blocks, np.int32).T.copy()
    x, w, bias = whole(t, k), normal(e, 2 * n, k, seed=1, dtype=np.float16, scale=0.2), normal(e, 2 * n, seed=2)
    owner = np.searchsorted(starts, np.arange(t), "right") - 1
    z = np.einsum("tk,tnk->tn", wide(x), wide(w)[owner]) + bias[owner]
    g, v = z[:, ::2], z[:, 1::2]
    want = g / (1 + np.exp(-g)) * v
    return Case([x, w, bias, expert, first, count, np.zeros((t, n), np.float16)], {6: want}, {}, 2e-2, (T, K))


# ---- optimisers


@wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
def many_tensors(
    p: wd.Memory[N, BF16], g: wd.Memory[N, BF16], m: wd.Memory[N, F32], v: wd.Memory[N, F32], starts: wd.Memory[S, I32],
    decay: wd.Memory[S, F32], norm: wd.Memory[1, F32], step: wd.Scalar[I32], rate: wd.Scalar[F32],
):  # fmt: skip
    """AdamW on tensors that lie one after the other, each with its decay; gradients are clipped by their norm."""
    tensor = wd.sum(wd.cast(wd.read(starts) <= wd.index(N), I32), dim=S) - 1
    clip = wd.minimum(1.0 / (wd.sqrt(wd.read(norm[0])) + 1e-6), 1.0)
    grad = wd.cast(wd.read(g), F32) * clip
    first = 0.9 * wd.read(m) + 0.1 * grad
    second = 0.99 * wd.read(v) + 0.01 * grad * grad
    wd.write(first, m)
    wd.write(second, v)
    t = wd.cast(step, F32)
    update = (first / (1 - wd.pow(0.9, t))) / (wd.sqrt(second / (1 - wd.pow(0.99, t))) + 1e-8)
    weight = wd.cast(wd.read(p), F32)
    shrink = wd.read(decay, mapping=wd.IndexMapping((N,), {S: tensor}))
    wd.write(wd.cast(weight - rate * (update + shrink * weight), BF16), p)


def many_tensors_case(n: int, s: int) -> Case:
    p, g = normal(n, dtype=HALF), normal(n, seed=1, dtype=HALF)
    m, v = normal(n, seed=2, scale=0.1), np.abs(normal(n, seed=3, scale=0.1))
    starts = np.sort(np.random.default_rng(4).integers(0, n, s)).astype(np.int32)
    starts[0] = 0
    decay = normal(s, seed=5, scale=0.1)
    norm = (wide(g) ** 2).sum()
    grad = wide(g) / (np.sqrt(norm) + 1e-6)
    first, second = 0.9 * m + 0.1 * grad, 0.99 * v + 0.01 * grad**2
    update = first / (1 - 0.9**3) / (np.sqrt(second / (1 - 0.99**3)) + 1e-8)
    owner = np.searchsorted(starts, np.arange(n), "right") - 1
    want = wide(p) - 0.1 * (update + decay[owner] * wide(p))
    return Case([p, g, m, v, starts, decay, np.array([norm], np.float32), np.int32(3), np.float32(0.1)],
                {0: want, 2: first, 3: second}, {}, 1e-2, (N,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)], subs={I: 32, J: 32, K: 32, L: 32})
def rotated_adam(
    g: wd.Memory[B, I, J, F32], left: wd.Memory[B, I, K, F32], right: wd.Memory[B, J, L, F32],
    m: wd.Memory[B, I, J, F32], v: wd.Memory[B, K, L, F32], update: wd.Memory[B, I, J, F32],
):  # fmt: skip
    """SOAP: Adam in the directions of Shampoo's factors, and back."""
    def turned(x, zero):
        half = wd.mma(wd.read(left), x, wd.Register[K, J, F32](0.0), precision="ieee")
        return wd.mma(half, wd.read(right), zero, precision="ieee")

    grad = wd.read(g)
    first = 0.9 * wd.read(m) + 0.1 * grad
    wd.write(first, m)
    zero = wd.Register[K, L, F32](0.0)
    seen = turned(grad, zero)
    second = 0.99 * wd.read(v) + 0.01 * seen * seen
    wd.write(second, v)
    direction = turned(first, zero) / (wd.sqrt(second) + 1e-8)
    back = wd.mma(wd.read(left), direction, wd.Register[I, L, F32](0.0), precision="ieee")
    wd.write(wd.mma(back, wd.read(right), wd.Register[I, J, F32](0.0), precision="ieee"), update)


def rotated_adam_case(b: int, n: int) -> Case:
    g, m, v = normal(b, n, n), normal(b, n, n, seed=1), np.abs(normal(b, n, n, seed=2))
    left, right = (np.linalg.qr(normal(b, n, n, seed=s).astype(float))[0].astype(np.float32) for s in (3, 4))
    first = 0.9 * wide(m) + 0.1 * g
    lt = wide(left).transpose(0, 2, 1)
    second = 0.99 * wide(v) + 0.01 * (lt @ wide(g) @ right) ** 2
    want = left @ (lt @ first @ right / (np.sqrt(second) + 1e-8)) @ wide(right).transpose(0, 2, 1)
    return Case([g, left, right, m, v, np.zeros_like(g)], {3: first, 4: second, 5: want},
                {I: n, J: n, K: n, L: n}, 1e-3, (B,))


# ---- attention


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(M, 64, 1), wd.TilingConstraint(N, 32)])
def ring_step(
    q: wd.Memory[B, M, D, F16], k: wd.Memory[B, N, D, F16], v: wd.Memory[B, N, E, F16], ahead: wd.Scalar[I32],
    o: wd.Memory[B, M, E, F32], lse: wd.Memory[B, M, F32],
):  # fmt: skip
    """One step of ring attention: what a neighbour's keys add to a result and its logarithm of sums, both in place.
    Queries come `ahead` of the keys: causal."""
    query = wd.read(q)
    start = [wd.Register[M, F32](-math.inf), wd.Register[M, F32](0.0), wd.Register[M, E, F32](0.0)]

    @wd.iterate(N, init_args=start)
    def loop(top, total, acc):
        s = wd.mma(query, wd.read(k), wd.Register[M, N, F32](0.0)) * D**-0.5
        s = wd.where(wd.index(M) + ahead >= wd.index(N), s, -math.inf)
        new = wd.maximum(top, wd.max(s, dim=N))
        base = wd.where(new == -math.inf, 0.0, new)
        p, old = wd.exp(s - base), wd.exp(top - base)
        return new, total * old + wd.sum(p, dim=N), wd.mma(wd.cast(p, F16), wd.read(v), acc * old)

    top, total, acc = loop
    mine = top + wd.log(total)
    before = wd.read(lse)
    both = wd.maximum(mine, before)
    both = both + wd.log(wd.exp(mine - both) + wd.exp(before - both))
    wd.write(wd.read(o) * wd.exp(before - both) + acc / wd.maximum(total, 1e-30) * wd.exp(mine - both), o)
    wd.write(both, lse)


def ring_step_case(b: int, m: int, n: int, d: int, ahead: int) -> Case:
    q, k, v = (normal(b, rows, d, seed=i, dtype=np.float16) for i, rows in enumerate((m, n, n)))
    o, lse = normal(b, m, d, seed=3), normal(b, m, seed=4)
    s = wide(q) @ wide(k).transpose(0, 2, 1) * d**-0.5
    s = np.where(np.arange(m)[:, None] + ahead >= np.arange(n), s, -np.inf)
    e = np.exp(s)
    total = e.sum(2) + np.exp(wide(lse))
    want = (e @ wide(v) + wide(o) * np.exp(wide(lse))[..., None]) / total[..., None]
    return Case([q, k, v, np.int32(ahead), o, lse], {4: want, 5: np.log(total)}, {}, 1e-2, (B, M, N))


BLOCK = 32
"""Keys that are chosen together."""


@wd.wave([wd.WorkgroupConstraint(T, 1, 0), wd.WorkgroupConstraint(G, 1, 1)], subs={K: 4})
def chosen_blocks(
    q: wd.Memory[T, G, H, D, F16], means: wd.Memory[C, G, D, F16], chosen: wd.Memory[T, G, K, I32]
):  # fmt: skip
    """Which blocks of keys a token's group of heads looks at: the first, its own, and the best of those between."""
    scores = wd.mma(wd.read(q), wd.read(means), wd.Register[H, C, F32](0.0)) * D**-0.5
    own = wd.index(T) // BLOCK
    c = wd.index(C)
    p = wd.softmax(wd.where(c <= own, scores, -math.inf), dim=C)
    worth = wd.where(c > own, -1.0, wd.where((c == 0) | (c == own), 1e9, wd.sum(p, dim=H)))
    value, which = wd.topk(worth, K, dim=C)
    wd.write(wd.where(value >= 0, which, -1), chosen)


def chosen_blocks_case(t: int, g: int, h: int, d: int) -> Case:
    c = -(-t // BLOCK)
    q, means = normal(t, g, h, d, dtype=np.float16), normal(c, g, d, seed=1, dtype=np.float16)
    s = np.einsum("tghd,cgd->tghc", wide(q), wide(means)) * d**-0.5
    own = (np.arange(t) // BLOCK)[:, None, None]
    s = np.where(np.arange(c) <= own[..., None], s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    worth = (p / p.sum(-1, keepdims=True)).sum(2)
    worth = np.where((np.arange(c) == 0) | (np.arange(c) == own), 1e9, worth)
    worth = np.where(np.arange(c) > own, -1, worth)
    which = np.argsort(-worth, -1, kind="stable")[..., :4]
    want = np.where(np.take_along_axis(worth, which, -1) >= 0, which, -1)
    return Case([q, means, np.zeros((t, g, 4), np.int32)], {2: want})


@wd.wave([wd.WorkgroupConstraint(T, 1, 0), wd.WorkgroupConstraint(G, 1, 1), wd.TilingConstraint(K, 1)], subs={L: BLOCK})
def attends_blocks(
    q: wd.Memory[T, G, H, D, F16], k: wd.Memory[S, G, D, F16], v: wd.Memory[S, G, E, F16],
    chosen: wd.Memory[T, G, K, I32], o: wd.Memory[T, G, H, E, F16],
):  # fmt: skip
    """Attention of a token's group of heads to the blocks of keys that were chosen for it."""
    query = wd.read(q)
    start = [wd.Register[H, F32](-math.inf), wd.Register[H, F32](0.0), wd.Register[H, E, F32](0.0)]

    @wd.iterate(K, init_args=start)
    def loop(top, total, acc):
        block = wd.read(chosen[:, :, wd.tile_start(K)])
        place = wd.where(block < 0, -1, block * BLOCK + wd.index(L))
        key = wd.read(k, mapping=wd.IndexMapping((L, D), {S: place}))
        value = wd.read(v, mapping=wd.IndexMapping((L, E), {S: place}))
        s = wd.mma(query, key, wd.Register[H, L, F32](0.0)) * D**-0.5
        s = wd.where((place >= 0) & (place <= wd.index(T)), s, -math.inf)
        new = wd.maximum(top, wd.max(s, dim=L))
        p, old = wd.exp(s - new), wd.exp(top - new)
        return new, total * old + wd.sum(p, dim=L), wd.mma(wd.cast(p, F16), value, acc * old)

    _, total, acc = loop
    wd.write(wd.cast(acc / total, F16), o)


def attends_blocks_case(t: int, g: int, h: int, d: int) -> Case:
    c = -(-t // BLOCK)
    q, k, v = normal(t, g, h, d, dtype=np.float16), *(normal(t, g, d, seed=i, dtype=np.float16) for i in (1, 2))
    chosen = np.full((t, g, 3), -1, np.int32)
    want, rng = np.zeros((t, g, h, d)), np.random.default_rng(3)
    for i in range(t):
        for j in range(g):
            some = rng.permutation(np.arange(i // BLOCK))[:2]
            chosen[i, j, : len(some) + 1] = [i // BLOCK, *some]
            keys = [x for b in chosen[i, j] if b >= 0 for x in range(b * BLOCK, min((b + 1) * BLOCK, i + 1))]
            s = wide(q)[i, j] @ wide(k)[keys, j].T * d**-0.5
            p = np.exp(s - s.max(-1, keepdims=True))
            want[i, j] = p / p.sum(-1, keepdims=True) @ wide(v)[keys, j]
    assert c
    return Case([q, k, v, chosen, np.zeros(q.shape, np.float16)], {4: want}, {}, 1e-2)


@wd.wave([wd.WorkgroupConstraint(H, 1, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(M, 32)])
def attention_received(
    q: wd.Memory[H, M, D, F16], k: wd.Memory[H, N, D, F16], lse: wd.Memory[H, M, F32], received: wd.Memory[N, F32]
):  # fmt: skip
    """How much attention every key got from all queries of all heads: who is dropped from the cache first."""
    key = wd.read(k)

    @wd.iterate(M, init_args=[wd.Register[N, F32](0.0)])
    def total(acc):
        s = wd.mma(wd.read(q), key, wd.Register[M, N, F32](0.0)) * D**-0.5
        s = wd.where(wd.index(M) >= wd.index(N), s, -math.inf)
        return acc + wd.sum(wd.exp(s - wd.read(lse)), dim=M)

    wd.atomic_add(total, received)


def attention_received_case(h: int, m: int, d: int) -> Case:
    q, k = normal(h, m, d, dtype=np.float16), normal(h, m, d, seed=1, dtype=np.float16)
    s = wide(q) @ wide(k).transpose(0, 2, 1) * d**-0.5
    s = np.where(np.tri(m, dtype=bool), s, -np.inf)
    lse = np.log(np.exp(s).sum(2))
    return Case([q, k, lse.astype(np.float32), np.zeros(m, np.float32)],
                {3: np.exp(s - lse[:, :, None]).sum((0, 1))}, {}, 1e-2, (H,))


# ---- tokens


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def at_least(
    logits: wd.Memory[B, V, F32], least: wd.Memory[B, F32], warmth: wd.Memory[B, F32], seed: wd.Scalar[I32],
    token: wd.Memory[B, I32], chance: wd.Memory[B, F32],
):  # fmt: skip
    """Min-p sampling: tokens at least `least` times as probable as the best one, one of them by Gumbel's noise."""
    x = wd.read(logits) / wd.read(warmth)
    x = x - wd.max(x, dim=V)
    kept = wd.exp(x) >= wd.read(least)
    noise = -wd.log(-wd.log(wd.random(seed, B, V) + 1e-10))
    pick = wd.argmax(wd.where(kept, x + noise, -math.inf), dim=V)
    wd.write(pick, token)
    p = wd.where(kept, wd.exp(x), 0.0)
    wd.write(wd.sum(wd.where(wd.index(V) == pick, p, 0.0), dim=V) / wd.sum(p, dim=V), chance)


def at_least_case(b: int, v: int) -> Case:
    logits, least, warmth = normal(b, v), np.full(b, 0.2, np.float32), np.full(b, 0.8, np.float32)
    x = wide(logits) / warmth[:, None]
    x -= x.max(1, keepdims=True)
    p = np.where(np.exp(x) >= 0.2, np.exp(x), 0)
    noise = -np.log(-np.log(philox(7, b * v).reshape(b, v) + 1e-10))
    pick = np.where(p > 0, x + noise, -np.inf).argmax(1)
    return Case([logits, least, warmth, np.int32(7), np.zeros(b, np.int32), np.zeros(b, np.float32)],
                {4: pick, 5: p[np.arange(b), pick] / p.sum(1)}, {}, 1e-4, (B,))


@wd.wave([wd.WorkgroupConstraint(T, 1, 0), wd.WorkgroupConstraint(H, 1, 1)])
def into_cache(
    qkv: wd.Memory[T, H, 2 * D, F16], gain: wd.Memory[2 * D, F32], cosine: wd.Memory[P, D, F32],
    sine: wd.Memory[P, D, F32], position: wd.Memory[T, I32], slot: wd.Memory[T, I32], scale: wd.Memory[H, F32],
    cache: wd.Memory[S, H, 2 * D, wd.f8e4m3],
):  # fmt: skip
    """Keys' norm, positions as rotations of halves, and bytes in a page; a negative slot is no token's."""
    lower, upper = (wd.cast(wd.read(qkv[:, :, half]), F32) for half in (slice(None, D), slice(D, None)))
    norm = wd.rsqrt((wd.sum(lower * lower, dim=D) + wd.sum(upper * upper, dim=D)) / (2 * D) + 1e-6)
    lower, upper = lower * norm * wd.read(gain[:D]), upper * norm * wd.read(gain[D:])
    where = wd.IndexMapping((D,), {P: wd.read(position)})
    c, s = wd.read(cosine, mapping=where), wd.read(sine, mapping=where)
    factor = wd.read(scale)
    for x, first in ((lower * c - upper * s, 0), (upper * c + lower * s, D)):
        byte = wd.cast(wd.clamp(x / factor, -448.0, 448.0), wd.f8e4m3)
        wd.write(byte, cache, mapping=wd.IndexMapping((D,), {S: wd.read(slot), 2 * D: wd.index(D) + first}))


def into_cache_case(t: int, h: int, d: int) -> Case:
    x, gain, scale = normal(t, h, 2 * d, dtype=np.float16), normal(2 * d, seed=1), np.abs(normal(h, seed=2)) + 0.01
    rng = np.random.default_rng(3)
    position, slot = rng.integers(0, 50, t).astype(np.int32), rng.permutation(t + 5)[:t].astype(np.int32)
    slot[0] = -1
    angle = np.arange(50)[:, None] * 10.0 ** -np.linspace(0, 3, d)
    y = wide(x) / np.sqrt((wide(x) ** 2).mean(2, keepdims=True) + 1e-6) * gain
    c, s = np.cos(angle)[position][:, None], np.sin(angle)[position][:, None]
    y = np.concatenate([y[..., :d] * c - y[..., d:] * s, y[..., d:] * c + y[..., :d] * s], 2)
    want = np.zeros((t + 5, h, 2 * d))
    want[slot[1:]] = y[1:] / scale[:, None]
    tables = [a.astype(np.float32) for a in (np.cos(angle), np.sin(angle))]
    return Case([x, gain, *tables, position, slot, scale, np.zeros(want.shape, BYTE)], {7: want}, {}, 0.07, (T,))


KERNELS: dict[str, tuple[Any, Callable[..., Case], Any]] = {
    "in blocks": (in_blocks, in_blocks_case, ((64, 128, 256), (33, 256, 384))),
    "norm before": (norm_before, norm_before_case, ((32, 64, 64), (45, 70, 88))),
    "statistics": (statistics, statistics_case, ((32, 128, 64), (45, 150, 72))),
    "ragged gradient": (ragged_gradient, ragged_gradient_case, ((64, 2, 32, 32), (101, 4, 40, 72))),
    "with room": (with_room, with_room_case, ((2, 32, 8), (3, 77, 6))),
    "gathered back": (gathered_back, gathered_back_case, ((8, 2, 64), (13, 4, 72))),
    "gated experts": (gated_experts, gated_experts_case, ((64, 2, 32, 64), (101, 3, 40, 72))),
    "many tensors": (many_tensors, many_tensors_case, ((256, 4), (1001, 9))),
    "rotated adam": (rotated_adam, rotated_adam_case, ((2, 32), (1, 24))),
    "ring step": (ring_step, ring_step_case, ((2, 64, 64, 32, 64), (1, 70, 45, 40, 0))),
    "chosen blocks": (chosen_blocks, chosen_blocks_case, ((128, 2, 16, 32), (200, 1, 4, 24))),
    "attends blocks": (attends_blocks, attends_blocks_case, ((64, 1, 16, 32), (101, 2, 4, 24))),
    "attention received": (attention_received, attention_received_case, ((2, 64, 32), (3, 77, 24))),
    "at least": (at_least, at_least_case, ((4, 128), (3, 1001))),
    "into cache": (into_cache, into_cache_case, ((4, 2, 32), (7, 3, 20))),
}  # fmt: skip


CHIPS = {"in blocks": ("gfx950", "sm_90a"), "into cache": ("gfx950", "sm_90a")}


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS, CHIPS)


@pytest.mark.parametrize("target", TARGETS)
def test_lanes_read_for_themselves_what_is_short_and_summed(target: str) -> None:
    """Which tensor an element is of: nine starts lay across 16 lanes, so that each of 32 sums was made by shuffles, and
    came to its element by others (296 loads and moves on sm_80, 349 instructions instead of 148 on gfx942)."""
    compiled = on_chip(many_tensors, many_tensors_case(1001, 9), target)
    counts = compiled.resources.instructions
    assert not compiled.resources.spills
    assert counts["ds"] == 0 if target.startswith("gfx") else counts["lsu"] < 64


def test_masked_operands_are_multiplied_as_they_are_loaded(oracle: Callable[[str], str]) -> None:
    """Masks that all rows have in common kept every row's operand waiting: with tiles of 128 x 128 x 64, 340 bytes
    stored and 436 loaded."""
    oracle("ptxas")
    tiles = [wd.WorkgroupConstraint(E, 1, 0), wd.WorkgroupConstraint(M, 128, 1), wd.WorkgroupConstraint(N, 128, 2)]
    kernel = wd.wave([*tiles, wd.TilingConstraint(T, 64)])(ragged_gradient.function)
    compiled = on_chip(kernel, ragged_gradient_case(200, 3, 136, 128), "sm_80")
    assert not compiled.resources.spills and compiled.resources.registers <= 240
