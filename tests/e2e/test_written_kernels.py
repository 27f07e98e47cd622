"""Whole kernels as people write them, against NumPy: none of them is an example or a test of one operation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from agree import TARGETS

import wavedsl as wd

M, N, K, D, B, H, T, V, P, Q, R, S, W, C, G, I, J, L, E = wd.symbols("M N K D B H T V P Q R S W C G I J L E")
ROWS = [wd.WorkgroupConstraint(M, 4, 0), wd.WaveConstraint(M, 1)]
F32, F16, I32 = wd.f32, wd.f16, wd.i32
BF16 = ml_dtypes.bfloat16
Case = tuple[list[Any], Mapping[int, np.ndarray], dict[Any, int]]
"""Arguments, what some of them become, bindings."""


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def whole(*shape: int, seed: int = 0, dtype: Any = np.float16) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype)


# ---- cross entropy with label smoothing: a vocabulary longer than a tile, with its gradient

SMOOTH = 0.1


@wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.TilingConstraint(V, 1024)])
def smoothed_loss(
    x: wd.Memory[M, V, wd.bf16], label: wd.Memory[M, I32], loss: wd.Memory[M, F32], dx: wd.Memory[M, V, F32]
):
    mine, one = wd.read(label), wd.Register[F32]

    @wd.iterate(V, init_args=[one(-math.inf), one(0.0), one(0.0), one(0.0)])
    def sums(top, total, chosen, everything):
        v = wd.cast(wd.read(x), F32)
        higher = wd.maximum(top, wd.max(v, dim=V))
        total = total * wd.exp(top - higher) + wd.sum(wd.exp(v - higher), dim=V)
        chosen = chosen + wd.sum(wd.where(wd.index(V) == mine, v, 0.0), dim=V)
        return higher, total, chosen, everything + wd.sum(v, dim=V)

    top, total, chosen, everything = sums
    level = wd.log(total) + top
    wd.write(level - (1 - SMOOTH) * chosen - SMOOTH / V * everything, loss)

    @wd.iterate(V)
    def gradient():
        p = wd.exp(wd.cast(wd.read(x), F32) - level) - SMOOTH / V
        wd.write(wd.where(wd.index(V) == mine, p - (1 - SMOOTH), p), dx)


def smoothed_case(m: int, v: int) -> Case:
    x, label = normal(m, v, dtype=BF16), np.random.default_rng(1).integers(0, v, m).astype(np.int32)
    wide, hot = x.astype(np.float64), np.eye(v)[label]
    level = np.log(np.exp(wide).sum(1))
    loss = level - (1 - SMOOTH) * (wide * hot).sum(1) - SMOOTH / v * wide.sum(1)
    dx = np.exp(wide - level[:, None]) - SMOOTH / v - (1 - SMOOTH) * hot
    return [x, label, np.zeros(m, np.float32), np.zeros((m, v), np.float32)], {2: loss, 3: dx}, {}


# ---- batches of small systems, each in one wave


@wd.wave([wd.WorkgroupConstraint(B, 4, 0), wd.WaveConstraint(B, 1)], subs={I: 9, J: 9})
def triangular(a: wd.Memory[B, I, J, F32], b: wd.Memory[B, I, F32], x: wd.Memory[B, I, F32]):
    matrix, rest = wd.read(a), wd.read(b)
    for j in range(9):
        column = wd.extract(matrix, {J: j})
        pivot = wd.extract(rest, {I: j}) / wd.extract(column, {I: j})
        rest = wd.where(wd.index(I) == j, pivot, wd.where(wd.index(I) > j, rest - column * pivot, rest))
    wd.write(rest, x)


def triangular_case(b: int) -> Case:
    a, right = np.tril(normal(b, 9, 9)) + 4 * np.eye(9, dtype=np.float32), normal(b, 9, seed=1)
    want = np.linalg.solve(a.astype(np.float64), right[..., None].astype(np.float64))[..., 0]
    return [a, right, np.zeros((b, 9), np.float32)], {2: want}, {}


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def newton_schulz(x: wd.Memory[B, I, J, F16], y: wd.Memory[B, I, J, F32]):
    now = wd.cast(wd.read(x), F32)
    for _ in range(2):
        half = wd.cast(now, F16)
        again = wd.reshape(half, K, J)
        square = wd.mma(half, again, wd.Register[I, K, F32](0.0))
        now = 1.5 * now - 0.5 * wd.mma(wd.cast(square, F16), again, wd.Register[I, J, F32](0.0))
    wd.write(now, y)


def newton_case(b: int, i: int, j: int) -> Case:
    x = (normal(b, i, j) * 0.05).astype(np.float16)
    want = x.astype(np.float64)
    for _ in range(2):
        want = 1.5 * want - 0.5 * want @ want.swapaxes(1, 2) @ want
    return [x, np.zeros((b, i, j), np.float32)], {1: want}, {K: i}


# ---- sparse products: rows of blocks, and weights of 4 bits with a scale and a zero for every 64


@wd.wave([wd.WorkgroupConstraint(I, 1, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)], subs={R: 32})
def block_sparse(
    blocks: wd.Memory[V, R, S, F16], ends: wd.Memory[P, I32], column: wd.Memory[V, I32], x: wd.Memory[W, N, F16],
    y: wd.Memory[I, R, N, F32],
):  # fmt: skip
    first, last = (wd.read(ends, mapping=wd.IndexMapping((), {P: I + i})) for i in (0, 1))

    @wd.iterate(K, init_args=[wd.Register[R, N, F32](0.0)], start=first * 32, stop=last * 32)
    def loop(acc):
        at = wd.read(column, mapping=wd.IndexMapping((K,), {V: K // 32}))
        block = wd.read(blocks, mapping=wd.IndexMapping((R, K), {V: K // 32, S: K % 32}))
        rows = wd.IndexMapping((K, N), {W: at * 32 + wd.index(K) % 32})
        return wd.mma(block, wd.read(x, mapping=rows), acc)

    wd.write(loop, y)


def block_sparse_case(count: int, n: int) -> Case:
    mask = np.random.default_rng(1).random((count, count)) < 0.5
    ends, column = np.cumsum([0, *mask.sum(1)]).astype(np.int32), np.argwhere(mask)[:, 1].astype(np.int32)
    blocks, x = whole(len(column), 32, 32), whole(count * 32, n, seed=1)
    full = np.zeros((count, count, 32, 32))
    full[mask] = blocks
    want = np.einsum("ijrs,jsn->irn", full, x.reshape(count, 32, n).astype(np.float64))
    return [blocks, ends, column, x, np.zeros((count, 32, n), np.float32)], {4: want}, {K: 32 * len(column)}


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
def four_bit(
    x: wd.Memory[M, K, F16], q: wd.Memory[N, K, wd.u4], scale: wd.Memory[N, G, F16], zero: wd.Memory[N, G, F16],
    y: wd.Memory[M, N, F32],
):  # fmt: skip
    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def loop(acc):
        group = wd.IndexMapping((N, K), {G: K // 64})
        weights = wd.cast(wd.cast(wd.read(q), I32), F16) - wd.read(zero, mapping=group)
        return wd.mma(wd.read(x), weights * wd.read(scale, mapping=group), acc)

    wd.write(loop, y)


def four_bit_case(m: int, n: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    q, zero = rng.integers(0, 16, (n, k)).astype(np.uint8), rng.integers(0, 16, (n, k // 64)).astype(np.float16)
    x, scale = whole(m, k), rng.integers(1, 4, (n, k // 64)).astype(np.float16)
    weights = (q - np.repeat(zero, 64, 1).astype(np.float64)) * np.repeat(scale, 64, 1)
    packed = q[:, ::2] | q[:, 1::2] << 4
    return [x, packed, scale, zero, np.zeros((m, n), np.float32)], {4: x.astype(np.float64) @ weights.T}, {}


# ---- rows: nucleus, compaction; groups of rows; neighbours


@wd.wave(ROWS)
def nucleus(x: wd.Memory[M, N, F32], y: wd.Memory[M, N, F32]):
    """The fewest of the largest probabilities that make 0.8 together."""
    power = wd.exp(wd.read(x) - wd.max(wd.read(x), dim=N))
    p = power / wd.sum(power, dim=N)
    ordered = -wd.sort(-p, dim=N)
    before = wd.cumsum(ordered, dim=N) - ordered
    least = wd.min(wd.where(before < 0.8, ordered, 2.0), dim=N)
    wd.write(wd.where(p >= least, p, 0.0), y)


def nucleus_case(m: int, n: int) -> Case:
    x = 2 * normal(m, n)
    p = np.exp(x - x.max(1, keepdims=True).astype(np.float64))
    p /= p.sum(1, keepdims=True)
    ordered = -np.sort(-p, 1)
    least = np.where(np.cumsum(ordered, 1) - ordered < 0.8, ordered, 2).min(1)
    return [x, np.zeros_like(x)], {1: np.where(p >= least[:, None], p, 0)}, {}


@wd.wave(ROWS)
def compaction(x: wd.Memory[M, N, F32], y: wd.Memory[M, N, F32], count: wd.Memory[M, I32]):
    value = wd.read(x)
    kept = wd.cast(value > 0, I32)
    place = wd.where(value > 0, wd.cumsum(kept, dim=N) - 1, -1)
    wd.write(value, y, mapping=wd.IndexMapping((M, N), {N: place}))
    wd.write(wd.sum(kept, dim=N), count)


def compaction_case(m: int, n: int) -> Case:
    x, want = normal(m, n), np.zeros((m, n), np.float32)
    for row, into in zip(x, want):
        into[: (row > 0).sum()] = row[row > 0]
    return [x, np.zeros_like(x), np.zeros(m, np.int32)], {1: want, 2: (x > 0).sum(1)}, {}


@wd.wave([wd.WorkgroupConstraint(S, 1, 0), wd.WorkgroupConstraint(D, 64, 1), wd.TilingConstraint(L, 32)])
def segments(
    x: wd.Memory[N, D, F16], ends: wd.Memory[P, I32], largest: wd.Memory[S, D, F16], where: wd.Memory[S, D, I32]
):
    """The largest of each segment of rows, and its row; -1 of no rows."""
    first, last = (wd.read(ends, mapping=wd.IndexMapping((), {P: S + i})) for i in (0, 1))

    @wd.iterate(
        L, init_args=[wd.Register[D, F16](-math.inf), wd.Register[D, I32](-1)], start=0, stop=last - first
    )
    def loop(top, at):
        rows = wd.read(x, mapping=wd.IndexMapping((L, D), {N: wd.index(L) + first}))
        rows = wd.where(wd.index(L) < last - first, rows, -math.inf)
        higher = wd.max(rows, dim=L)
        return wd.maximum(top, higher), wd.where(higher > top, wd.argmax(rows, dim=L) + first, at)

    wd.write(loop[0], largest)
    wd.write(loop[1], where)


def segments_case(sizes: tuple[int, ...], d: int) -> Case:
    ends = np.cumsum([0, *sizes]).astype(np.int32)
    x = normal(int(ends[-1]), d, dtype=np.float16)
    parts = [x[i:j] for i, j in itertools.pairwise(ends)]
    top = np.stack([p.max(0, initial=-np.inf) for p in parts])
    at = np.stack([p.argmax(0) + i if len(p) else np.full(d, -1) for p, i in zip(parts, ends)])
    shape = len(sizes), d
    return [x, ends, np.zeros(shape, np.float16), np.zeros(shape, np.int32)], {2: top, 3: at}, {L: len(x)}


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(P, 4, 1), wd.WorkgroupConstraint(Q, 16, 0)])
def bilinear(x: wd.Memory[B, H, W, C, F32], y: wd.Memory[B, P, Q, C, F32]):
    def along(dim, old, new):
        place = wd.maximum((wd.cast(wd.index(dim), F32) + 0.5) * (old / new) - 0.5, 0.0)
        low = wd.floor(place)
        return wd.cast(low, I32), place - low

    (row, down), (column, right) = along(P, H, P), along(Q, W, Q)

    def at(i, j):
        places = {H: wd.minimum(row + i, H - 1), W: wd.minimum(column + j, W - 1)}
        return wd.read(x, mapping=wd.IndexMapping((P, Q, C), places))

    upper, lower = (at(i, 0) * (1 - right) + at(i, 1) * right for i in (0, 1))
    wd.write(upper * (1 - down) + lower * down, y)


def bilinear_case(h: int, w: int, p: int, q: int) -> Case:
    x = normal(2, h, w, 3)

    def along(old: int, new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        place = np.maximum((np.arange(new) + 0.5) * old / new - 0.5, 0)
        low = place.astype(int)
        return low, np.minimum(low + 1, old - 1), place - low

    (i, below, down), (j, beside, right) = along(h, p), along(w, q)
    down, right = down[:, None, None], right[:, None]
    upper, lower = (x[:, r][:, :, j] * (1 - right) + x[:, r][:, :, beside] * right for r in (i, below))
    return [x, np.zeros((2, p, q, 3), np.float32)], {1: upper * (1 - down) + lower * down}, {}


# ---- recurrences


@wd.wave([wd.WorkgroupConstraint(B, 16, 0), wd.TilingConstraint(T, 1)])
def recurrent(x: wd.Memory[T, B, H, F32], w: wd.Memory[H, J, F16], out: wd.Memory[T, B, H, F32]):
    """h[t] = clamp(W h[t - 1] + x[t]): a product per step."""
    weights = wd.read(w)

    @wd.iterate(T, init_args=[wd.Register[B, H, F32](0.0)])
    def step(h):
        t = wd.tile_start(T)
        moved = wd.mma(wd.reshape(wd.cast(h, F16), B, J), weights, wd.Register[B, H, F32](0.0))
        new = wd.clamp(moved + wd.read(x[t, :, :]), -3.0, 3.0)
        wd.write(new, out[t, :, :])
        return new


def recurrent_case(t: int, b: int, h: int) -> Case:
    x, w = whole(t, b, h, dtype=np.float32), whole(h, h, seed=1)
    state, want = np.zeros((b, h)), np.zeros((t, b, h))
    for i in range(t):
        want[i] = state = np.clip(state @ w.T.astype(np.float64) + x[i], -3, 3)
    return [x, w, np.zeros((t, b, h), np.float32)], {2: want}, {J: h}


@wd.wave([wd.WorkgroupConstraint(H, 1, 0), wd.TilingConstraint(T, 16)], subs={C: 16})
def linear_attention(
    q: wd.Memory[H, T, D, F16], k: wd.Memory[H, T, D, F16], v: wd.Memory[H, T, E, F16], o: wd.Memory[H, T, E, F32]
):
    """Causal attention without softmax, a chunk at a time: what lies before a chunk is a matrix."""

    @wd.iterate(T, init_args=[wd.Register[D, E, F32](0.0)])
    def chunks(state):
        query, key, value = wd.read(q), wd.read(k), wd.read(v)
        place = wd.tile_start(T) + wd.index(C)
        keys, values = (wd.read(a, mapping=wd.IndexMapping((C, d), {T: place})) for a, d in ((k, D), (v, E)))
        scores = wd.where(wd.index(T) >= place, wd.mma(query, keys, wd.Register[T, C, F32](0.0)), 0.0)
        before = wd.mma(query, wd.cast(state, F16), wd.Register[T, E, F32](0.0))
        wd.write(wd.mma(wd.cast(scores, F16), values, before), o)
        return wd.mma(key, value, state)


def linear_case(h: int, t: int, d: int, e: int) -> Case:
    q, k, v = (np.sign(whole(h, t, size, seed=i)) for i, size in enumerate((d, d, e)))
    wide = [x.astype(np.float64) for x in (q, k, v)]
    want = np.tril(wide[0] @ wide[1].swapaxes(1, 2)) @ wide[2]
    return [q, k, v, np.zeros((h, t, e), np.float32)], {3: want}, {}


# ---- products whose operands are computed or gathered; a table that is filled row by row


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(K, 32, 1), wd.TilingConstraint(N, 16)])
def fourier(
    real: wd.Memory[M, N, F32], imaginary: wd.Memory[M, N, F32], re: wd.Memory[M, K, F32], im: wd.Memory[M, K, F32]
):
    """A discrete Fourier transform of rows, with factors that are computed where they are used."""

    @wd.iterate(N, init_args=[wd.Register[M, K, F32](0.0)] * 2)
    def sums(x, y):
        angle = wd.cast(wd.index(N) * wd.index(K) % N, F32) * (-2 * math.pi / N)
        cos, sin, a, b = wd.cos(angle), wd.sin(angle), wd.read(real), wd.read(imaginary)
        return wd.mma(-b, sin, wd.mma(a, cos, x)), wd.mma(b, cos, wd.mma(a, sin, y))

    wd.write(sums[0], re)
    wd.write(sums[1], im)


def fourier_case(m: int, n: int) -> Case:
    a, b = whole(m, n, dtype=np.float32), whole(m, n, seed=1, dtype=np.float32)
    want = np.fft.fft(a + 1j * b) / 8  # results of the size of 1
    a, b = a / np.float32(8), b / np.float32(8)
    return [a, b, *np.zeros((2, m, n), np.float32)], {2: want.real, 3: want.imag}, {}


@wd.wave([wd.WorkgroupConstraint(G, 1, 1), wd.WorkgroupConstraint(N, 64, 0), wd.TilingConstraint(K, 32)], subs={M: 32})
def routed(
    x: wd.Memory[S, K, F16], rows: wd.Memory[G, M, I32], expert: wd.Memory[G, I32], w: wd.Memory[E, N, K, F16],
    weight: wd.Memory[G, M, F32], y: wd.Memory[S, N, F32],
):  # fmt: skip
    """Rows of tokens that a router gave to an expert, times its matrix, added up where they came from; -1: no row."""
    which, place = wd.read(expert), wd.read(rows)
    at, theirs = wd.IndexMapping((M, K), {S: place}), wd.IndexMapping((N, K), {E: which})

    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def product(acc):
        return wd.mma(wd.read(x, mapping=at), wd.read(w, mapping=theirs), acc)

    wd.atomic_add(product * wd.read(weight), y, mapping=wd.IndexMapping((M, N), {S: place}))


def routed_case(tokens: int, n: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    x, w, expert = whole(tokens, k), whole(3, n, k, seed=1), np.array([0, 2, 2, 1], np.int32)
    rows, weight = np.full((4, 32), -1, np.int32), rng.integers(1, 3, (4, 32)).astype(np.float32)
    want = np.zeros((tokens, n))
    for g in range(4):
        some = rng.permutation(tokens)[: rng.integers(1, 33)]
        rows[g, : len(some)] = some
        found = x[some].astype(np.float64) @ w[expert[g]].T.astype(np.float64)
        want[some] += weight[g, : len(some), None] * found
    return [x, rows, expert, w, weight, np.zeros((tokens, n), np.float32)], {5: want}, {}


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(S, 1)])
def edits(a: wd.Memory[B, S, I32], b: wd.Memory[B, T, I32], out: wd.Memory[B, I32]):
    """Edit distances: a row of the table follows from the one before, and along itself from a scan."""
    letters, column = wd.read(b), wd.index(T)

    @wd.iterate(S, init_args=[column + 1])
    def last(above):
        row = wd.tile_start(S)
        diagonal = wd.where(column == 0, row, wd.shuffle(above, wd.maximum(column - 1, 0), dim=T))
        best = wd.minimum(above + 1, diagonal + wd.where(letters == wd.read(a[:, row]), 0, 1))
        first = wd.where(column == 0, row + 2, 1 << 20)
        along = wd.scan(wd.minimum(best, first) - column, lambda x, y: wd.minimum(x, y), 1 << 28, dim=T)
        return along + column

    wd.write(wd.sum(wd.where(column == T - 1, last, 0), dim=T), out)


def edits_case(count: int, s: int, t: int) -> Case:
    a, b = (np.random.default_rng(i).integers(0, 4, (count, n)).astype(np.int32) for i, n in enumerate((s, t)))
    want = []
    for x, y in zip(a, b):
        before = list(range(t + 1))
        for i, letter in enumerate(x):
            now = [i + 1]
            for j, other in enumerate(y):
                now.append(min(before[j + 1] + 1, now[j] + 1, before[j] + int(letter != other)))
            before = now
        want.append(before[-1])
    return [a, b, np.zeros(count, np.int32)], {2: np.array(want)}, {}


KERNELS: dict[str, tuple[Any, Callable[..., Case], list[tuple[Any, ...]]]] = {
    "smoothed-loss": (smoothed_loss, smoothed_case, [(3, 5000), (2, 1024), (1, 1)]),
    "triangular": (triangular, triangular_case, [(4,), (7,)]),
    "newton-schulz": (newton_schulz, newton_case, [(2, 32, 32), (1, 16, 48)]),
    "block-sparse": (block_sparse, block_sparse_case, [(3, 64), (4, 50)]),
    "four-bit": (four_bit, four_bit_case, [(32, 64, 128), (17, 70, 192)]),
    "nucleus": (nucleus, nucleus_case, [(4, 64), (2, 300), (1, 1)]),
    "compaction": (compaction, compaction_case, [(5, 77), (2, 3000), (1, 1)]),
    "segments": (segments, segments_case, [((5, 0, 40, 1, 33), 64), ((3,), 7)]),
    "bilinear": (bilinear, bilinear_case, [(8, 8, 16, 16), (5, 7, 9, 4)]),
    "recurrent": (recurrent, recurrent_case, [(5, 16, 32), (4, 5, 20)]),
    "linear-attention": (linear_attention, linear_case, [(1, 48, 32, 32), (2, 37, 16, 40)]),
    "fourier": (fourier, fourier_case, [(20, 64), (3, 48)]),
    "routed": (routed, routed_case, [(50, 80, 64), (33, 64, 40)]),
    "edits": (edits, edits_case, [(3, 9, 40), (2, 5, 100)]),
}


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("name", KERNELS)
def test_against_numpy(name: str, target: str) -> None:
    kernel, case, sizes = KERNELS[name]
    for size in sizes:
        arguments, wants, subs = case(*size)
        kernel.compile(*arguments, target=target, subs=subs or None).emulate(*arguments)
        for position, want in wants.items():
            got = arguments[position]
            if got.dtype.kind in "iu":
                np.testing.assert_array_equal(got, want)
            else:
                slack = 1e-4 if name != "newton-schulz" else 1e-2
                np.testing.assert_allclose(got.astype(np.float64), want, rtol=slack, atol=slack)
