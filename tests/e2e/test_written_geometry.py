"""Kernels of training and of models of points and pictures, against NumPy and the evaluator."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from families import Case, both_tests, normal, on_chip, whole, wide

import wavedsl as wd

B, T, H, G, D, E, N, S, L, C, P, W, V, K, M, R, Q, I, J, X, Y = wd.symbols(
    "B T H G D E N S L C P W V K M R Q I J X Y"
)
F16, BF16, F32, I32, U32 = wd.f16, wd.bf16, wd.f32, wd.i32, wd.u32
HALF = ml_dtypes.bfloat16


# ---- streams of a hyper-connection: a doubly stochastic matrix for each token, and what it mixes


@wd.wave([wd.WorkgroupConstraint(T, 1, 0), wd.WorkgroupConstraint(D, 256, 1)], subs={I: 4, J: 4})
def streams(x: wd.Memory[T, J, D, BF16], w: wd.Memory[T, I, J, F32], y: wd.Memory[T, I, D, BF16]):
    m = wd.read(w)
    m = wd.exp(m - wd.max(m, dim=J))
    for _ in range(8):
        m = m / (wd.sum(m, dim=J) + 1e-6)
        m = m / (wd.sum(m, dim=I) + 1e-6)
    wd.write(wd.cast(wd.sum(m * wd.cast(wd.read(x), F32), dim=J), BF16), y)


def streams_case(t: int, d: int) -> Case:
    x, w = normal(t, 4, d, dtype=HALF), normal(t, 4, 4, seed=1)
    m = np.exp(wide(w) - w.max(2, keepdims=True))
    for _ in range(8):
        m /= m.sum(2, keepdims=True) + 1e-6
        m /= m.sum(1, keepdims=True) + 1e-6
    return Case([x, w, np.zeros_like(x)], {2: m @ wide(x)}, slack=1e-2, dynamic=(T,))


# ---- probabilities that may be 0: sorted rows, and the threshold at which they sum to 1; their gradients


@wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
def sparse_shares(x: wd.Memory[M, N, F32], y: wd.Memory[M, N, F32]):
    row = wd.read(x)
    row = row - wd.max(row, dim=N)
    order = wd.flip(wd.sort(row, dim=N), dim=N)
    total, rank = wd.cumsum(order, dim=N), wd.cast(wd.index(N) + 1, F32)
    inside = 1.0 + rank * order > total
    count = wd.sum(wd.cast(inside, F32), dim=N)
    level = (wd.sum(wd.where(inside, order, 0.0), dim=N) - 1.0) / count
    wd.write(wd.maximum(row - level, 0.0), y)


def sparse_case(m: int, n: int) -> Case:
    x = normal(m, n)
    want = np.zeros((m, n))
    for i, row in enumerate(wide(x)):
        order = np.sort(row)[::-1]
        inside = 1 + np.arange(1, n + 1) * order > np.cumsum(order)
        count = inside.sum()
        want[i] = np.maximum(row - (order[:count].sum() - 1) / count, 0)
    return Case([x, np.zeros_like(x)], {1: want}, slack=1e-5, dynamic=(M,))


# ---- clipped policy gradients: logits with a heat, of the chosen token, against an older policy and a reference


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(T, 1, 0), wd.TilingConstraint(V, 1024)])
def policy(
    x: wd.Memory[B, T, V, BF16], token: wd.Memory[B, T, I32], old: wd.Memory[B, T, F32], base: wd.Memory[B, T, F32],
    gain: wd.Memory[B, F32], mask: wd.Memory[B, T, wd.u8], loss: wd.Memory[B, T, F32], kl: wd.Memory[B, T, F32],
    clipped: wd.Memory[B, T, F32],
):  # fmt: skip
    wd.exit_if(wd.read(mask) == 0)
    one = wd.Register[F32]

    @wd.iterate(V, init_args=[one(-math.inf), one(0.0)])
    def state(top, total):
        logits = wd.cast(wd.read(x), F32) / 0.9
        higher = wd.maximum(top, wd.max(logits, dim=V))
        return higher, total * wd.exp(top - higher) + wd.sum(wd.exp(logits - higher), dim=V)

    chosen = wd.cast(wd.read(x, mapping=wd.IndexMapping((), {V: wd.read(token)})), F32) / 0.9
    level = chosen - (state[0] + wd.log(state[1]))
    ratio, advantage = wd.exp(level - wd.read(old)), wd.read(gain)
    limited = wd.clamp(ratio, 0.8, 1.2)
    free, held = ratio * advantage, limited * advantage
    away = wd.read(base) - level
    distance = wd.exp(away) - away - 1.0
    wd.write(0.04 * distance - wd.minimum(free, held), loss)
    wd.write(distance, kl)
    wd.write(wd.cast(held < free, F32), clipped)


def policy_case(b: int, t: int, v: int) -> Case:
    rng = np.random.default_rng(0)
    x, token = normal(b, t, v, dtype=HALF), rng.integers(0, v, (b, t)).astype(np.int32)
    logits = wide(x) / 0.9
    level = np.take_along_axis(logits, token[..., None], 2)[..., 0] - np.log(np.exp(logits).sum(2))
    old, base = ((level + rng.normal(0, 0.3, (b, t))).astype(np.float32) for _ in range(2))
    gain, mask = normal(b, seed=1), (rng.random((b, t)) < 0.8).astype(np.uint8)
    ratio, away = np.exp(level - old), base - level
    free, held = ratio * gain[:, None], np.clip(ratio, 0.8, 1.2) * gain[:, None]
    distance = np.exp(away) - away - 1
    wants = 0.04 * distance - np.minimum(free, held), distance, held < free
    outputs = np.zeros((3, b, t), np.float32)
    return Case([x, token, old, base, gain, mask, *outputs], {6 + i: np.where(mask, w, 0) for i, w in enumerate(wants)},
                slack=1e-4, dynamic=(B, T))  # fmt: skip


# ---- a loss of a vocabulary in chunks, whose logits are capped, and its gradient in place


@wd.wave([wd.WorkgroupConstraint(M, 1, 1), wd.WorkgroupConstraint(C, 1, 0)], subs={L: 2048})
def capped_levels(x: wd.Memory[M, V, F16], level: wd.Memory[M, C, F32]):
    logits = 30.0 * wd.tanh(wd.cast(wd.read(x, mapping=wd.IndexMapping((L,), {V: C * 2048 + L})), F32) / 30.0)
    logits = wd.where(wd.index(C) * 2048 + wd.index(L) < V, logits, -math.inf)
    top = wd.max(logits, dim=L)
    wd.write(top + wd.log(wd.sum(wd.exp(logits - top), dim=L)), level)


def levels_case(m: int, v: int) -> Case:
    x = normal(m, v, dtype=np.float16, scale=10)
    logits, chunks = 30 * np.tanh(wide(x) / 30), -(-v // 2048)
    want = np.stack([np.log(np.exp(logits[:, i * 2048 : i * 2048 + 2048]).sum(1)) for i in range(chunks)], 1)
    return Case([x, np.zeros(want.shape, np.float32)], {1: want}, slack=1e-4, dynamic=(M, V, C))


@wd.wave([wd.WorkgroupConstraint(M, 1, 1), wd.WorkgroupConstraint(V, 2048, 0)])
def capped_gradient(
    x: wd.Memory[M, V, F16], level: wd.Memory[M, C, F32], label: wd.Memory[M, I32], dy: wd.Memory[M, F32]
):
    parts, mine = wd.read(level), wd.read(label)
    top = wd.max(parts, dim=C)
    whole_level = top + wd.log(wd.sum(wd.exp(parts - top), dim=C))
    bent = wd.tanh(wd.cast(wd.read(x), F32) / 30.0)
    share = wd.exp(30.0 * bent - whole_level) - wd.where(wd.index(V) == mine, 1.0, 0.0)
    slope = share * (1.0 - bent * bent) * wd.read(dy)
    wd.write(wd.cast(wd.where(mine == -100, 0.0, slope), F16), x)


def gradient_case(m: int, v: int) -> Case:
    case = levels_case(m, v)
    x, level = case.arguments[0], case.wants[1].astype(np.float32)
    label, dy = np.random.default_rng(1).integers(0, v, m).astype(np.int32), normal(m, seed=2)
    label[-1] = -100
    bent = np.tanh(wide(x) / 30)
    share = np.exp(30 * bent - np.log(np.exp(wide(level)).sum(1, keepdims=True)))
    share[np.arange(m), label] -= 1
    want = np.where(label[:, None] == -100, 0, share * (1 - bent * bent) * dy[:, None])
    return Case([x, level, label, dy], {0: want}, slack=2e-3, dynamic=(M, V))


# ---- rotations by three positions, each of its own columns, of queries and keys in place


@wd.wave([wd.WorkgroupConstraint(T, 4, 0), wd.WorkgroupConstraint(H, 4, 1)], subs={P: 3})
def three_positions(x: wd.Memory[T, H, 2 * D, BF16], cos: wd.Memory[P, T, D, F32], sin: wd.Memory[P, T, D, F32]):
    first, second = wd.cast(wd.read(x[:, :, :D]), F32), wd.cast(wd.read(x[:, :, D:]), F32)
    which = wd.where(wd.index(D) < D // 4, 0, wd.where(wd.index(D) < D // 4 + 3 * D // 8, 1, 2))
    c, s = (wd.read(a, mapping=wd.IndexMapping((T, D), {P: which})) for a in (cos, sin))
    wd.write(wd.cast(first * c - second * s, BF16), x[:, :, :D])
    wd.write(wd.cast(second * c + first * s, BF16), x[:, :, D:])


def positions_case(t: int, h: int, d: int) -> Case:
    x, angle = normal(t, h, 2 * d, dtype=HALF), normal(3, t, d, seed=1)
    cos, sin = np.cos(angle), np.sin(angle)
    which = np.where(np.arange(d) < d // 4, 0, np.where(np.arange(d) < d // 4 + 3 * d // 8, 1, 2))
    c, s = (np.take_along_axis(wide(a), np.broadcast_to(which, (1, t, d)), 0)[0][:, None] for a in (cos, sin))
    first, second = wide(x[..., :d]), wide(x[..., d:])
    want = np.concatenate([first * c - second * s, second * c + first * s], 2)
    return Case([x, cos, sin], {0: want}, slack=1e-2, dynamic=(T,))


# ---- rows of several lengths behind each other: shares of each, and their products with a matrix of each


@wd.wave([wd.WorkgroupConstraint(S, 1, 0), wd.WorkgroupConstraint(H, 8, 1), wd.TilingConstraint(T, 64)])
def jagged_shares(x: wd.Memory[T, H, F32], ends: wd.Memory[P, I32], y: wd.Memory[T, H, F32]):
    first, last = (wd.read(ends[wd.index(S) + i]) for i in (0, 1))

    def rows():
        inside = (wd.index(T) >= first) & (wd.index(T) < last)
        return inside, wd.where(inside, wd.read(x), -math.inf)

    @wd.iterate(T, init_args=[wd.Register[H, F32](-1e30), wd.Register[H, F32](0.0)], start=first, stop=last)
    def state(top, total):
        _, value = rows()
        higher = wd.maximum(top, wd.max(value, dim=T))
        return higher, total * wd.exp(top - higher) + wd.sum(wd.exp(value - higher), dim=T)

    @wd.iterate(T, start=first, stop=last)
    def store():
        inside, value = rows()
        place = wd.IndexMapping((T, H), {T: wd.where(inside, wd.index(T), -1)})
        wd.write(wd.exp(value - state[0]) / state[1], y, mapping=place)


def jagged_case(lengths: tuple[int, ...], h: int) -> Case:
    ends = np.cumsum([0, *lengths]).astype(np.int32)
    x = normal(ends[-1], h)
    want = np.exp(wide(x))
    for i, j in pairwise(ends):
        want[i:j] /= want[i:j].sum(0)
    return Case([x, ends, np.zeros_like(x)], {2: want}, slack=1e-5, subs={S: len(lengths)}, dynamic=(T, P))


@wd.wave([wd.WorkgroupConstraint(S, 1, 2), wd.WorkgroupConstraint(N, 64, 1), wd.WorkgroupConstraint(L, 64, 0),
          wd.TilingConstraint(K, 32)])  # fmt: skip
def jagged_product(
    x: wd.Memory[T, K, F16], w: wd.Memory[S, K, N, F16], bias: wd.Memory[S, N, F32], ends: wd.Memory[P, I32],
    y: wd.Memory[T, N, F32],
):  # fmt: skip
    """L: the longest length."""
    first, last = (wd.read(ends[wd.index(S) + i]) for i in (0, 1))
    row = first + wd.index(L)
    place = wd.where(row < last, row, -1)
    wd.exit_if(first + wd.tile_start(L) >= last)

    @wd.iterate(K, init_args=[wd.Register[L, N, F32](0.0)])
    def total(acc):
        return wd.mma(wd.read(x, mapping=wd.IndexMapping((L, K), {T: place})), wd.read(w), acc)

    wd.write(total + wd.read(bias), y, mapping=wd.IndexMapping((L, N), {T: place}))


def product_case(lengths: tuple[int, ...], k: int, n: int) -> Case:
    ends, s = np.cumsum([0, *lengths]).astype(np.int32), len(lengths)
    x, w, bias = whole(ends[-1], k), whole(s, k, n, seed=1), whole(s, n, seed=2, dtype=np.float32)
    want = np.concatenate([wide(x[i:j]) @ wide(w[z]) + bias[z] for z, (i, j) in enumerate(pairwise(ends))])
    return Case([x, w, bias, ends, np.zeros(want.shape, np.float32)], {4: want}, subs={L: max(lengths)},
                dynamic=(T, P, S))  # fmt: skip


# ---- points: those farthest from all before, and the first neighbours within a radius


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(S, 1)], subs={D: 3})
def farthest(p: wd.Memory[B, N, D, F32], at: wd.Memory[B, S, I32]):
    points = [wd.read(p[:, :, i]) for i in range(3)]

    @wd.iterate(S, init_args=[wd.Register[N, F32](1e10), wd.Register[I32](0)])
    def steps(nearest, last):
        wd.write(last, at[:, wd.tile_start(S)])
        here = [wd.read(p, mapping=wd.IndexMapping((), {N: last, D: i})) for i in range(3)]
        away = sum((x - y) * (x - y) for x, y in zip(points, here, strict=True))
        nearest = wd.minimum(nearest, away)
        return nearest, wd.argmax(wd.where(wd.index(N) < N, nearest, -1.0), dim=N)


def farthest_case(b: int, n: int, s: int) -> Case:
    p, want = normal(b, n, 3), np.zeros((b, s))
    for i in range(b):
        nearest, last = np.full(n, 1e10, np.float32), 0
        for j in range(s):
            want[i, j] = last
            nearest = np.minimum(nearest, ((p[i] - p[i, last]) ** 2).sum(1))
            last = nearest.argmax()
    return Case([p, np.zeros((b, s), np.int32)], {1: want}, dynamic=(B, S))


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(Q, 16, 0), wd.TilingConstraint(N, 64)],
         subs={D: 3, K: 16})  # fmt: skip
def neighbours(p: wd.Memory[B, N, D, F32], q: wd.Memory[B, Q, D, F32], at: wd.Memory[B, Q, K, I32]):
    """Fewer than 16 are followed by the first of them."""

    @wd.iterate(N, init_args=[wd.Register[Q, I32](0), wd.Register[Q, I32](0)])
    def found(count, first):
        away = sum((wd.read(q[:, :, i]) - wd.read(p[:, :, i])) ** 2 for i in range(3))
        near = wd.cast((away < 0.5) & (wd.index(N) < N), I32)
        place = count + wd.cumsum(near, dim=N) - 1
        where = wd.IndexMapping((Q, N), {K: wd.where((near != 0) & (place < 16), place, -1)})
        wd.write(wd.broadcast(wd.index(N), Q, N), at, mapping=where)
        least = wd.min(wd.where(near != 0, wd.index(N), N), dim=N)
        return count + wd.sum(near, dim=N), wd.where((count == 0) & (least < N), least, first)

    count, first = found
    rest = wd.where(wd.index(K) >= count, wd.index(K), -1)
    wd.write(wd.broadcast(first, Q, K), at, mapping=wd.IndexMapping((Q, K), {K: rest}))


def neighbours_case(b: int, n: int, q: int) -> Case:
    p, z = np.round(normal(b, n, 3) * 16) / 16, np.round(normal(b, q, 3, seed=1) * 16) / 16
    want = np.zeros((b, q, 16))
    for i in range(b):
        for j in range(q):
            near = np.flatnonzero(((p[i] - z[i, j]) ** 2).sum(1) < 0.5)[:16]
            if len(near):
                want[i, j] = near[0]
                want[i, j, : len(near)] = near
    return Case([p, z, np.zeros((b, q, 16), np.int32)], {2: want}, dynamic=(B, N))


# ---- attention over the blocks of a list, some of them masked by document and distance


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(M, 64, 0),
          wd.TilingConstraint(W, 1)], subs={N: 64})  # fmt: skip
def listed_blocks(
    q: wd.Memory[B, H, M, D, BF16], k: wd.Memory[B, H, T, D, BF16], v: wd.Memory[B, H, T, D, BF16],
    count: wd.Memory[B, C, I32], block: wd.Memory[B, C, W, I32], document: wd.Memory[B, T, I32],
    o: wd.Memory[B, H, M, D, BF16], level: wd.Memory[B, H, M, F32],
):  # fmt: skip
    queries, tile, one = wd.read(q), wd.tile_start(M) // 64, wd.Register[M, F32]
    mine = wd.read(document, mapping=wd.IndexMapping((M,), {T: M}))
    blocks = wd.read(count[:, tile])

    @wd.iterate(W, init_args=[one(-math.inf), one(0.0), wd.Register[M, D, F32](0.0)], stop=blocks)
    def loop(top, total, acc):
        at = wd.read(block[:, tile, wd.tile_start(W)]) * 64 + wd.index(N)
        keys, values = (wd.read(x, mapping=wd.IndexMapping((N, D), {T: at})) for x in (k, v))
        theirs = wd.read(document, mapping=wd.IndexMapping((N,), {T: at}))
        scores = wd.mma(queries, keys, wd.Register[M, N, F32](0.0)) * (D**-0.5 * math.log2(math.e))
        sees = (wd.index(M) >= at) & (mine == theirs)
        scores = wd.where(sees & (at < T), scores, -math.inf)
        higher = wd.maximum(top, wd.max(scores, dim=N))
        safe = wd.where(higher == -math.inf, 0.0, higher)
        p, keep = wd.exp2(scores - safe), wd.exp2(top - safe)
        return higher, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, BF16), values, acc * keep)

    top, total, acc = loop
    wd.write(wd.cast(wd.where(total > 0, acc / total, 0.0), BF16), o)
    wd.write(top + wd.log2(total), level)


def blocks_case(b: int, h: int, t: int, d: int) -> Case:
    rng = np.random.default_rng(0)
    q, k, v = normal(3, b, h, t, d, dtype=HALF)
    document = np.sort(rng.integers(0, 3, (b, t)), 1).astype(np.int32)
    sees = (document[:, :, None] == document[:, None]) & np.tri(t, dtype=bool)
    tiles = -(-t // 64)
    count, block = np.zeros((b, tiles), np.int32), np.zeros((b, tiles, tiles), np.int32)
    for i in range(b):
        for j in range(tiles):
            some = [z for z in range(tiles) if sees[i, j * 64 : j * 64 + 64, z * 64 : z * 64 + 64].any()]
            count[i, j], block[i, j, : len(some)] = len(some), some
    scores = np.where(sees[:, None], wide(q) @ wide(k).swapaxes(2, 3) * d**-0.5, -np.inf)
    power = np.exp(scores)
    want, level = power @ wide(v) / power.sum(-1, keepdims=True), np.log2(power.sum(-1))
    arguments = [q, k, v, count, block, document, np.zeros_like(q), np.zeros((b, h, t), np.float32)]
    return Case(arguments, {6: want, 7: level}, slack=2e-2, dynamic=(B, M, T, C, W))


# ---- pictures: tiles of 4 x 4 for convolutions by 16 products instead of 36


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(P, 2, 1), wd.WorkgroupConstraint(Q, 4, 0)])
def winograd(x: wd.Memory[B, H, W, C, F16], y: wd.Memory[I, B, P, Q, C, F16]):
    def at(i, j):
        return wd.cast(wd.read(x, mapping=wd.IndexMapping((P, Q, C), {H: P * 2 + (i - 1), W: Q * 2 + (j - 1)})), F32)

    def turned(a, b, c, d):
        return a - c, b + c, c - b, b - d

    columns = [turned(*(at(i, j) for i in range(4))) for j in range(4)]
    for i in range(4):
        for j, value in enumerate(turned(*(columns[j][i] for j in range(4)))):
            wd.write(wd.cast(value, F16), y[i * 4 + j])


def winograd_case(b: int, h: int, w: int, c: int) -> Case:
    x = whole(b, h, w, c)
    around, p, q = np.pad(wide(x), ((0, 0), (1, 3), (1, 3), (0, 0))), -(-h // 2), -(-w // 2)
    turn = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
    want = np.zeros((4, 4, b, p, q, c))
    for i in range(p):
        for j in range(q):
            tile = around[:, 2 * i : 2 * i + 4, 2 * j : 2 * j + 4]
            want[:, :, :, i, j] = np.einsum("im,bmnc,jn->ijbc", turn, tile, turn)
    want = want.reshape(16, b, p, q, c)
    return Case([x, np.zeros(want.shape, np.float16)], {1: want}, dynamic=(B,))


KERNELS: dict[str, Any] = {
    "streams": (streams, streams_case, ((4, 512), (3, 300))),
    "sparse-shares": (sparse_shares, sparse_case, ((4, 256), (3, 100))),
    "policy": (policy, policy_case, ((2, 3, 4096), (1, 2, 1500))),
    "capped-levels": (capped_levels, levels_case, ((2, 8192), (3, 5000))),
    "capped-gradient": (capped_gradient, gradient_case, ((2, 8192), (3, 5000))),
    "three-positions": (three_positions, positions_case, ((8, 4, 64), (5, 3, 32))),
    "jagged-shares": (jagged_shares, jagged_case, (((70, 3, 130), 16), ((5, 0, 9), 5))),
    "jagged-product": (jagged_product, product_case, (((70, 3, 130), 64, 128), ((5, 0, 9), 40, 72))),
    "farthest": (farthest, farthest_case, ((2, 1024, 8), (1, 300, 5))),
    "neighbours": (neighbours, neighbours_case, ((2, 512, 32), (1, 200, 20))),
    "listed-blocks": (listed_blocks, blocks_case, ((1, 2, 256, 64), (2, 1, 150, 40))),
    "winograd": (winograd, winograd_case, ((1, 8, 16, 64), (2, 7, 9, 24))),
}


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dynamic", [(), (B,)], ids=["known", "open"])
def test_addresses_of_loads_are_left_registers(
    dynamic: tuple[Any, ...], target: str, oracle: Callable[[str], str]
) -> None:
    """ptxas was told to leave room for as many workgroups as the text's registers let in, and computes the addresses of
    the 16 places first: 28 bytes of spills with 64 registers, 52 with 96."""
    oracle("ptxas")
    assert not on_chip(winograd, winograd_case(1, 8, 16, 64), target, dynamic).resources.spills
