"""Whole kernels as people write them, against NumPy and the evaluator: states of recurrences, caches, losses, paths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from agree import TARGETS

import wavedsl as wd

M, N, K, D, B, H, T, V, P, R, S, W, C, G, I, J, L, E = wd.symbols("M N K D B H T V P R S W C G I J L E")
F32, F16, BF16, I32 = wd.f32, wd.f16, wd.bf16, wd.i32
HALF = ml_dtypes.bfloat16
Case = tuple[list[Any], Mapping[int, np.ndarray], dict[Any, int]]
"""Arguments, what some of them become, bindings."""


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


# ---- state-space duality (Mamba-2): what a chunk of steps gives, from the state in front of it


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(C, 1, 0)],
         subs={L: 32, S: 32})  # fmt: skip
def chunk_scan(
    x: wd.Memory[B, T, H, P, F16], dt: wd.Memory[B, T, H, F32], a: wd.Memory[H, F32], b: wd.Memory[B, T, G, N, F16],
    c: wd.Memory[B, T, G, N, F16], before: wd.Memory[B, H, C, P, N, F16], y: wd.Memory[B, T, H, P, F16],
):  # fmt: skip
    first, rate, group = wd.index(C) * L, wd.read(a), wd.index(H) // (H // G)
    steps = wd.read(dt[:, first : first + S, :])
    down = wd.cumsum(wd.read(dt[:, first : first + L, :]) * rate, dim=L)
    along = wd.cumsum(steps * rate, dim=S)
    queries = wd.read(c, mapping=wd.IndexMapping((L, N), {T: C * 32 + L, G: group}))
    keys = wd.read(b, mapping=wd.IndexMapping((S, N), {T: C * 32 + S, G: group}))
    fade = wd.where(wd.index(L) >= wd.index(S), wd.exp(down - along) * steps, 0.0)
    scores = wd.mma(queries, keys, wd.Register[L, S, F32](0.0)) * fade
    old = wd.mma(queries, wd.read(before), wd.Register[L, P, F32](0.0)) * wd.exp(down)
    out = wd.mma(wd.cast(scores, F16), wd.read(x[:, first : first + S, :, :]), old)
    wd.write(wd.cast(out, F16), y[:, first : first + L, :, :])


def chunk_case(b: int, t: int, h: int, g: int, p: int, n: int) -> Case:
    rng = np.random.default_rng(1)
    x, keys, queries = normal(b, t, h, p, dtype=np.float16), *normal(2, b, t, g, n, seed=3, dtype=np.float16, scale=0.5)
    dt, a = (rng.random((b, t, h)) * 0.3 + 0.01).astype(np.float32), -rng.random(h).astype(np.float32)
    before = np.zeros((b, h, -(-t // 32), p, n), np.float16)
    state, want = np.zeros((b, h, p, n)), np.zeros((b, t, h, p))
    for i in range(t):
        if i % 32 == 0:
            before[:, :, i // 32] = state
        k, q = (np.repeat(wide(z[:, i]), h // g, 1)[:, :, None] for z in (keys, queries))
        state = state * np.exp(wide(dt[:, i]) * a)[..., None, None] + (dt[:, i, :, None] * wide(x[:, i]))[..., None] * k
        want[:, i] = (state * q).sum(-1)
    return [x, dt, a, keys, queries, before, np.zeros_like(x)], {6: want}, {}


# ---- RWKV: a state per head that every step fades column by column; the delta rule, a chunk at a time


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(E, 32, 0),
          wd.TilingConstraint(T, 1)])  # fmt: skip
def weighted_keys(
    r: wd.Memory[B, T, H, D, BF16], k: wd.Memory[B, T, H, D, BF16], v: wd.Memory[B, T, H, E, BF16],
    w: wd.Memory[B, T, H, D, F32], bonus: wd.Memory[H, D, F32], state: wd.Memory[B, H, D, E, F32],
    o: wd.Memory[B, T, H, E, F32],
):  # fmt: skip
    more = wd.read(bonus)

    @wd.iterate(T, init_args=[wd.read(state)])
    def steps(s):
        t = wd.tile_start(T)
        now = wd.cast(wd.read(k[:, t]), F32) * wd.cast(wd.read(v[:, t]), F32)
        wd.write(wd.sum((s + more * now) * wd.cast(wd.read(r[:, t]), F32), dim=D), o[:, t])
        return s * wd.exp(-wd.exp(wd.read(w[:, t]))) + now

    wd.write(steps, state)


def weighted_case(b: int, t: int, h: int, d: int, e: int) -> Case:
    r, k, v = (normal(b, t, h, n, seed=i, dtype=HALF, scale=0.5) for i, n in enumerate((d, d, e)))
    w, bonus, state = normal(b, t, h, d, seed=4), normal(h, d, seed=5), normal(b, h, d, e, seed=6)
    now, want = wide(state), np.zeros((b, t, h, e))
    for i in range(t):
        new = wide(k[:, i])[..., None] * wide(v[:, i])[..., None, :]
        want[:, i] = ((now + bonus[..., None] * new) * wide(r[:, i])[..., None]).sum(2)
        now = now * np.exp(-np.exp(wide(w[:, i])))[..., None] + new
    return [r, k, v, w, bonus, state, np.zeros((b, t, h, e), np.float32)], {5: now, 6: want}, {}


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(H, 1, 0), wd.TilingConstraint(T, 16)],
         subs={S: 16, L: 16})  # fmt: skip
def delta_rule(
    q: wd.Memory[B, H, T, D, F16], k: wd.Memory[B, H, T, D, F16], v: wd.Memory[B, H, T, E, F16],
    beta: wd.Memory[B, H, T, F32], o: wd.Memory[B, H, T, E, F32],
):  # fmt: skip
    """What a chunk stores follows from a triangular system of its keys."""

    @wd.iterate(T, init_args=[wd.Register[D, E, F32](0.0)])
    def chunks(state):
        start = wd.tile_start(T)
        rows, keys = (wd.read(k[:, :, start : start + n, :]) for n in (L, S))
        strength, values = wd.read(beta[:, :, start : start + L]), wd.read(v[:, :, start : start + L, :])
        system = wd.mma(rows, keys, wd.Register[L, S, F32](0.0)) * strength
        system = wd.where(wd.index(L) > wd.index(S), system, 0.0)
        rest = wd.cast(values, F32) - wd.mma(rows, wd.cast(state, F16), wd.Register[L, E, F32](0.0))
        rest = rest * strength
        for j in range(16):
            rest = rest - wd.extract(system, {S: j}) * wd.extract(rest, {L: j})
        stored, queries = wd.cast(wd.reshape(rest, S, E), F16), wd.read(q)
        scores = wd.mma(queries, keys, wd.Register[T, S, F32](0.0))
        scores = wd.where(wd.index(T) - start >= wd.index(S), scores, 0.0)
        before = wd.mma(queries, wd.cast(state, F16), wd.Register[T, E, F32](0.0))
        wd.write(wd.mma(wd.cast(scores, F16), stored, before), o)
        return wd.mma(keys, stored, state)


def delta_case(b: int, h: int, t: int, d: int, e: int) -> Case:
    q, k, v = (normal(b, h, t, n, seed=i, scale=0.3) for i, n in enumerate((d, d, e)))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    q, k, v = (x.astype(np.float16) for x in (q, k, v))
    beta = np.random.default_rng(8).random((b, h, t)).astype(np.float32)
    state, want = np.zeros((b, h, d, e)), np.zeros((b, h, t, e))
    for i in range(t):
        key = wide(k[:, :, i])
        new = (wide(v[:, :, i]) - np.einsum("bhd,bhde->bhe", key, state)) * beta[:, :, i, None]
        state = state + key[..., None] * new[..., None, :]
        want[:, :, i] = np.einsum("bhd,bhde->bhe", wide(q[:, :, i]), state)
    return [q, k, v, beta, np.zeros((b, h, t, e), np.float32)], {4: want}, {}


# ---- caches: pages of bytes with a scale per row, in parts; drafts of which each sees its ancestors


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(G, 1, 1), wd.WorkgroupConstraint(S, 1, 0),
          wd.TilingConstraint(N, 32)], subs={S: 2})  # fmt: skip
def pages_of_bytes(
    q: wd.Memory[B, G, R, D, F16], k: wd.Memory[P, L, G, D, wd.i8], v: wd.Memory[P, L, G, D, wd.i8],
    key_scale: wd.Memory[P, L, G, F16], value_scale: wd.Memory[P, L, G, F16], table: wd.Memory[B, W, I32],
    lengths: wd.Memory[B, I32], o: wd.Memory[B, G, S, R, D, F32], level: wd.Memory[B, G, S, R, F32],
):  # fmt: skip
    length, queries = wd.read(lengths), wd.read(q)
    part = (length + 63) // 64 * 32
    first = wd.index(S) * part
    last = wd.minimum(first + part, length)
    one = wd.Register[R, F32]

    @wd.iterate(N, init_args=[one(-1e30), one(0.0), wd.Register[R, D, F32](0.0)], start=first, stop=last)
    def loop(top, total, acc):
        page = wd.read(table, mapping=wd.IndexMapping((N,), {W: N // 16}))

        def rows(values, scales):
            scale = wd.read(scales, mapping=wd.IndexMapping((N,), {P: page, L: N % 16}))
            codes = wd.read(values, mapping=wd.IndexMapping((N, D), {P: page, L: N % 16}))
            return wd.cast(wd.cast(codes, F32) * wd.cast(scale, F32), F16)

        scores = wd.mma(queries, rows(k, key_scale), wd.Register[R, N, F32](0.0)) * D**-0.5
        scores = wd.where(wd.index(N) < last, scores, -math.inf)
        higher = wd.maximum(top, wd.max(scores, dim=N))
        p, keep = wd.exp(scores - higher), wd.exp(top - higher)
        products = wd.mma(wd.cast(p, F16), rows(v, value_scale), acc * keep)
        return higher, total * keep + wd.sum(p, dim=N), products

    top, total, acc = loop
    wd.write(wd.where(total > 0, acc / total, 0.0), o)
    wd.write(wd.where(total > 0, top + wd.log(total), -math.inf), level)


def pages_case(b: int, g: int, r: int, d: int, longest: int) -> Case:
    rng = np.random.default_rng(0)
    lengths = np.array([longest, *rng.integers(1, longest + 1, b - 1)], np.int32)
    width = -(-longest // 16)
    count = b * width + 3
    table = rng.permutation(count)[: b * width].reshape(b, width).astype(np.int32)
    q, (k, v) = normal(b, g, r, d, dtype=np.float16), rng.integers(-127, 128, (2, count, 16, g, d)).astype(np.int8)
    scales = (rng.random((2, count, 16, g)) * 0.02).astype(np.float16)
    want, level = np.zeros((b, g, 2, r, d)), np.full((b, g, 2, r), -np.inf)
    for i, n in enumerate(lengths):
        part = -(-n // 64) * 32
        keys, values = ((wide(x) * wide(s)[..., None])[table[i]].reshape(-1, g, d) for x, s in zip((k, v), scales))
        for s in range(2):
            mine = slice(s * part, min((s + 1) * part, n))
            if mine.start < mine.stop:
                power = np.exp(np.einsum("grd,ngd->grn", wide(q[i]), keys[mine]) * d**-0.5)
                total = power.sum(-1, keepdims=True)
                want[i, :, s] = np.einsum("grn,ngd->grd", power, values[mine]) / total
                level[i, :, s] = np.log(total)[..., 0]
    outputs = np.zeros(want.shape, np.float32), np.zeros(level.shape, np.float32)
    return [q, k, v, *scales, table, lengths, *outputs], {7: want, 8: level}, {N: width * 16}


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(M, 16, 0),
          wd.TilingConstraint(N, 32)])  # fmt: skip
def tree_of_drafts(
    q: wd.Memory[B, H, M, D, BF16], k: wd.Memory[B, H, N, D, BF16], v: wd.Memory[B, H, N, D, BF16],
    mask: wd.Memory[B, M, wd.i64], context: wd.Memory[B, I32], o: wd.Memory[B, H, M, D, BF16],
):  # fmt: skip
    known, ancestors, one = wd.read(context), wd.read(mask), wd.Register[M, F32]

    @wd.iterate(N, init_args=[one(-math.inf), one(0.0), wd.Register[M, D, F32](0.0)])
    def loop(top, total, acc):
        scores = wd.mma(wd.read(q), wd.read(k), wd.Register[M, N, F32](0.0)) * (D**-0.5 * math.log2(math.e))
        draft = wd.index(N) - known
        sees = (ancestors >> wd.cast(wd.maximum(draft, 0), wd.i64)) & 1
        scores = wd.where((draft < 0) | ((sees != 0) & (draft < 64)), scores, -math.inf)
        higher = wd.maximum(top, wd.max(scores, dim=N))
        p, keep = wd.exp2(scores - higher), wd.exp2(top - higher)
        return higher, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, BF16), wd.read(v), acc * keep)

    wd.write(wd.cast(loop[2] / loop[1], BF16), o)


def tree_case(b: int, h: int, m: int, n: int, d: int) -> Case:
    rng = np.random.default_rng(0)
    q, (k, v) = normal(b, h, m, d, dtype=HALF), normal(2, b, h, n, d, seed=1, dtype=HALF)
    context, mask = rng.integers(1, n - m + 1, b).astype(np.int32), np.zeros((b, m), np.int64)
    for row in mask:
        for j in range(m):
            row[j] = 1 << j | (row[rng.integers(0, j)] if j else 0)
    draft = np.arange(n) - context[:, None, None]
    sees = (draft < 0) | ((draft < 64) & (mask[..., None] >> np.clip(draft, 0, 63) & 1 != 0))
    power = np.where(sees[:, None], np.exp(wide(q) @ wide(k).swapaxes(2, 3) * d**-0.5), 0)
    want = power / power.sum(-1, keepdims=True) @ wide(v)
    return [q, k, v, mask, context, np.zeros_like(q)], {5: want}, {}


# ---- a loss of logits that are never stored; a routing table by counting; clusters


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(V, 64), wd.TilingConstraint(K, 32)])
def linear_loss(x: wd.Memory[M, K, BF16], w: wd.Memory[V, K, BF16], label: wd.Memory[M, I32], loss: wd.Memory[M, F32]):
    """Cross entropy of capped logits, with label smoothing; rows labelled -100 do not count."""
    mine, one = wd.read(label), wd.Register[M, F32]

    @wd.iterate(V, init_args=[one(-math.inf), one(0.0), one(0.0), one(0.0)])
    def tiles(top, total, chosen, everything):
        @wd.iterate(K, init_args=[wd.Register[M, V, F32](0.0)])
        def products(acc):
            return wd.mma(wd.read(x), wd.read(w), acc)

        z = 30.0 * wd.tanh(products / 30.0)
        higher = wd.maximum(top, wd.max(z, dim=V))
        total = total * wd.exp(top - higher) + wd.sum(wd.exp(z - higher), dim=V)
        chosen = chosen + wd.sum(wd.where(wd.index(V) == mine, z, 0.0), dim=V)
        return higher, total, chosen, everything + wd.sum(z, dim=V)

    top, total, chosen, everything = tiles
    wd.write(wd.where(mine == -100, 0.0, top + wd.log(total) - 0.9 * chosen - 0.1 / V * everything), loss)


def loss_case(m: int, k: int, v: int) -> Case:
    x, w = normal(m, k, dtype=HALF), normal(v, k, seed=1, dtype=HALF)
    label = np.random.default_rng(2).integers(0, v, m).astype(np.int32)
    label[::3] = -100
    z = 30 * np.tanh(wide(x) @ wide(w).T / 30)
    loss = np.log(np.exp(z).sum(1)) - 0.9 * z[np.arange(m), label] - 0.1 * z.mean(1)
    return [x, w, label, np.zeros(m, np.float32)], {3: np.where(label == -100, 0, loss)}, {}


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)], subs={E: 8})
def sorted_by_expert(ids: wd.Memory[B, T, I32], first: wd.Memory[B, E, I32], order: wd.Memory[B, T, I32]):
    hot = wd.cast(wd.read(ids) == wd.index(E), I32)
    count = wd.sum(hot, dim=T)
    start = wd.cumsum(count, dim=E) - count
    wd.write(start, first)
    place = wd.sum(wd.where(hot != 0, wd.cumsum(hot, dim=T) - 1 + start, 0), dim=E)
    wd.write(wd.index(T), order, mapping=wd.IndexMapping((T,), {T: place}))


def expert_case(b: int, t: int) -> Case:
    ids = np.random.default_rng(0).integers(0, 8, (b, t)).astype(np.int32)
    count = np.stack([np.bincount(row, minlength=8) for row in ids])
    want = {1: np.cumsum(count, 1) - count, 2: np.argsort(ids, 1, kind="stable")}
    return [ids, np.zeros((b, 8), np.int32), np.zeros_like(ids)], want, {}


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(N, 32)])
def clusters(
    x: wd.Memory[M, D, F16], centre: wd.Memory[N, D, F16], which: wd.Memory[M, I32], far: wd.Memory[M, F32],
    sums: wd.Memory[N, D, F32], count: wd.Memory[N, I32],
):  # fmt: skip
    rows = wd.read(x)

    @wd.iterate(N, init_args=[wd.Register[M, F32](math.inf), wd.Register[M, I32](0)])
    def loop(best, at):
        centres = wd.read(centre)
        square = wd.sum(wd.cast(centres, F32) * wd.cast(centres, F32), dim=D)
        distance = square - 2.0 * wd.mma(rows, centres, wd.Register[M, N, F32](0.0))
        least = wd.min(distance, dim=N)
        return wd.minimum(best, least), wd.where(least < best, wd.argmin(distance, dim=N), at)

    best, at = loop
    point = wd.cast(rows, F32)
    wd.write(at, which)
    wd.write(best + wd.sum(point * point, dim=D), far)
    wd.atomic_add(point, sums, mapping=wd.IndexMapping((M, D), {N: at}))
    wd.atomic_add(wd.Register[M, I32](1), count, mapping=wd.IndexMapping((M,), {N: at}))


def clusters_case(m: int, n: int, d: int) -> Case:
    x, centre = (np.random.default_rng(i).integers(-4, 5, (r, d)).astype(np.float16) for i, r in enumerate((m, n)))
    distance = ((wide(x)[:, None] - wide(centre)) ** 2).sum(2)
    at, sums = distance.argmin(1), np.zeros((n, d))
    np.add.at(sums, at, wide(x))
    outputs = np.zeros(m, np.int32), np.zeros(m, np.float32), np.zeros((n, d), np.float32), np.zeros(n, np.int32)
    return [x, centre, *outputs], {2: at, 3: distance.min(1), 4: sums, 5: np.bincount(at, minlength=n)}, {}


# ---- rows by shuffles: a transform, a sort with a payload; alignments along diagonals; look-ups of hashes


@wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WaveConstraint(M, 1)], subs={N: 64})
def butterflies(z: wd.Memory[M, 2 * N, F32], out: wd.Memory[M, 2 * N, F32]):
    """A fast Fourier transform of rows of 64 complex numbers; the first step reads them in reversed order of bits."""
    i, turned = wd.index(N), 0
    for bit in range(6):
        turned = turned | ((i >> bit & 1) << (5 - bit))
    re, im = (wd.shuffle(wd.read(z[:, part::2]), wd.broadcast(turned, N), dim=N) for part in (0, 1))
    for half in (1, 2, 4, 8, 16, 32):
        upper, angle = (i & half) != 0, wd.cast(i & (half - 1), F32) * (-math.pi / half)
        cos, sin = wd.cos(angle), wd.sin(angle)
        re, im = wd.where(upper, re * cos - im * sin, re), wd.where(upper, re * sin + im * cos, im)
        other_re, other_im = (wd.shuffle(x, i ^ half, dim=N) for x in (re, im))
        re, im = wd.where(upper, other_re - re, re + other_re), wd.where(upper, other_im - im, im + other_im)
    wd.write(re, out[:, ::2])
    wd.write(im, out[:, 1::2])


def butterflies_case(m: int) -> Case:
    z = normal(m, 128)
    want = np.fft.fft(z.view(np.complex64).astype(np.complex128), axis=1)
    return [z, np.zeros_like(z)], {1: want.view(np.float64)}, {}


@wd.wave([wd.WorkgroupConstraint(M, 2, 0)], subs={N: 64})
def sorted_pairs(
    key: wd.Memory[M, N, F32], value: wd.Memory[M, N, wd.i64], keys: wd.Memory[M, N, F32],
    values: wd.Memory[M, N, wd.i64],
):  # fmt: skip
    i, k, v = wd.index(N), wd.read(key), wd.read(value)
    for run in (2, 4, 8, 16, 32, 64):
        step = run // 2
        while step:
            other, beside = (wd.shuffle(x, i ^ step, dim=N) for x in (k, v))
            take = wd.where(((i & run) == 0) == ((i & step) == 0), other < k, other > k)
            k, v = wd.where(take, other, k), wd.where(take, beside, v)
            step //= 2
    wd.write(k, keys)
    wd.write(v, values)


def pairs_case(m: int) -> Case:
    rng = np.random.default_rng(0)
    key, value = rng.permutation(m * 64).reshape(m, 64).astype(np.float32), rng.integers(-(2**62), 2**62, (m, 64))
    order = np.argsort(key, 1)
    want = {2: np.take_along_axis(key, order, 1), 3: np.take_along_axis(value, order, 1)}
    return [key, value, np.zeros_like(key), np.zeros_like(value)], want, {}


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(J, 1)])
def local_alignment(a: wd.Memory[B, S, I32], b: wd.Memory[B, T, I32], best: wd.Memory[B, I32]):
    """Smith and Waterman's score with gaps of 3, then 1 each: diagonal by diagonal, element i at column d - i."""
    i, letters, zero = wd.index(S), wd.read(a), wd.Register[S, I32](0)

    @wd.iterate(J, init_args=[zero, zero, zero - 1000, zero - 1000, wd.Register[I32](0)])
    def diagonal(before, two_before, across, down, top):
        column = wd.tile_start(J) - i
        inside = (column >= 0) & (column < T)

        def above(x, outside):
            return wd.where(i > 0, wd.shuffle(x, wd.maximum(i - 1, 0), dim=S), outside)

        same = letters == wd.read(b, mapping=wd.IndexMapping((S,), {T: column}))
        across = wd.where(column > 0, wd.maximum(before - 3, across - 1), -1000)
        down = wd.maximum(above(before, 0) - 3, above(down, -1000) - 1)
        both = wd.where(column > 0, above(two_before, 0), 0) + wd.where(same, 2, -1)
        score = wd.maximum(wd.maximum(both, 0), wd.maximum(across, down))
        score, across, down = (wd.where(inside, x, n) for x, n in ((score, 0), (across, -1000), (down, -1000)))
        return score, before, across, down, wd.maximum(top, wd.max(score, dim=S))

    wd.write(diagonal[4], best)


def alignment_case(n: int, s: int, t: int) -> Case:
    a, b = (np.random.default_rng(i).integers(0, 4, (n, k)).astype(np.int32) for i, k in enumerate((s, t)))
    best = []
    for x, y in zip(a, b):
        score, across, down = np.zeros((s + 1, t + 1), int), *np.full((2, s + 1, t + 1), -1000)
        for i in range(1, s + 1):
            for j in range(1, t + 1):
                across[i, j] = max(score[i, j - 1] - 3, across[i, j - 1] - 1) if j > 1 else -1000
                down[i, j] = max(score[i - 1, j] - 3, down[i - 1, j] - 1)
                both = score[i - 1, j - 1] + (2 if x[i - 1] == y[j - 1] else -1)
                score[i, j] = max(0, both, across[i, j], down[i, j])
        best.append(score.max())
    return [a, b, np.zeros(n, np.int32)], {2: np.array(best)}, {J: s + t - 1}


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def looked_up(token: wd.Memory[N, I32], keys: wd.Memory[V, wd.u64], values: wd.Memory[V, I32], out: wd.Memory[N, I32]):
    """Runs of three tokens, looked up in a table of hashes: each element goes on until it finds its own, or none."""
    words = (wd.read(token, mapping=wd.IndexMapping((N,), {N: N - back})) for back in (0, 1, 2))
    a, b, c = (wd.cast(x, wd.u64) for x in words)
    code = (a * FACTORS[0]) ^ (b * FACTORS[1]) ^ (c * FACTORS[2]) | 1
    code = (code ^ (code >> 29)) | 1

    def at(i):
        return wd.read(keys, mapping=wd.IndexMapping((N,), {V: i}))

    def another(i, key):
        i = (i + 1) % V
        return i, at(i)

    start = wd.cast((code >> 40) % V, I32)
    i, key = wd.while_loop(lambda i, key: (key != code) & (key != 0), another, [start, at(start)])
    wd.write(wd.where(key == code, wd.read(values, mapping=wd.IndexMapping((N,), {V: i})), -1), out)


FACTORS = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9


def looked_up_case(n: int, v: int) -> Case:
    token = np.random.default_rng(0).integers(0, 6, n).astype(np.int32)
    keys, values, found = np.zeros(v, np.uint64), np.zeros(v, np.int32), {}
    codes = []
    for run in np.lib.stride_tricks.sliding_window_view(np.r_[0, 0, token], 3).tolist():
        code = 1
        for word, factor in zip(reversed(run), FACTORS):
            code ^= word * factor % 2**64
        code |= 1
        codes.append((code ^ (code >> 29)) | 1)
    for code in codes[::2]:
        if code not in found and len(found) <= v * 2 // 3:
            i, found[code] = (code >> 40) % v, len(found) + 5
            while keys[i]:
                i = (i + 1) % v
            keys[i], values[i] = code, found[code]
    want = np.array([found.get(code, -1) for code in codes])
    return [token, keys, values, np.zeros(n, np.int32)], {3: want}, {}


KERNELS: dict[str, tuple[Any, Callable[..., Case], list[tuple[Any, ...]], tuple[Any, ...], float]] = {
    "chunk-scan": (chunk_scan, chunk_case, [(1, 64, 2, 1, 32, 32), (2, 50, 2, 2, 24, 40)], (B, T, C), 2e-2),
    "weighted-keys": (weighted_keys, weighted_case, [(1, 5, 2, 32, 64), (2, 3, 1, 20, 33)], (B, T), 2e-3),
    "delta-rule": (delta_rule, delta_case, [(1, 1, 32, 32, 32), (1, 2, 21, 24, 40)], (B, T), 2e-2),
    "pages": (pages_of_bytes, pages_case, [(2, 1, 4, 64, 70), (2, 2, 5, 40, 33)], (B, P, W), 1e-2),
    "tree": (tree_of_drafts, tree_case, [(1, 2, 16, 64, 64), (2, 1, 13, 77, 40)], (B, N), 2e-2),
    "linear-loss": (linear_loss, loss_case, [(32, 64, 128), (37, 50, 131)], (M, V, K), 2e-3),
    "by-expert": (sorted_by_expert, expert_case, [(1, 64), (2, 131)], (B,), 0),
    "clusters": (clusters, clusters_case, [(32, 64, 32), (37, 41, 20)], (M, N), 1e-3),
    "butterflies": (butterflies, butterflies_case, [(4,), (3,)], (M,), 1e-3),
    "pairs": (sorted_pairs, pairs_case, [(2,), (3,)], (M,), 0),
    "alignment": (local_alignment, alignment_case, [(1, 12, 20), (2, 33, 9)], (B,), 0),
    "looked-up": (looked_up, looked_up_case, [(64, 67), (77, 251)], (N, V), 0),
}
"""Kernel, arguments, their sizes (aligned, ragged), what the ragged ones leave to run time, and the tolerance."""


def compare(name: str, got: list[Any], wants: Mapping[int, np.ndarray]) -> None:
    slack = KERNELS[name][4]
    for position, want in wants.items():
        np.testing.assert_allclose(wide(got[position]), want, rtol=slack, atol=slack)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("name", KERNELS)
def test_against_numpy(name: str, target: str) -> None:
    kernel, case, sizes, dynamic, _ = KERNELS[name]
    for size, open_dims in [*((size, ()) for size in sizes), (sizes[-1], dynamic)]:
        arguments, wants, subs = case(*size)
        compiled = kernel.compile(*arguments, target=target, subs=subs or None, dynamic=list(open_dims))
        compiled.emulate(*arguments)
        compare(name, arguments, wants)


@pytest.mark.parametrize("name", KERNELS)
def test_the_evaluator_agrees(name: str) -> None:
    kernel, case, sizes, _, _ = KERNELS[name]
    for size in sizes:
        arguments, wants, subs = case(*size)
        kernel.evaluate(*arguments, subs=subs or None)
        compare(name, arguments, wants)
