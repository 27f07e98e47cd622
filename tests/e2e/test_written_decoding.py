"""What serving a language model takes beside products: drafts accepted, tokens drawn, caches in a ring, adapters."""

from __future__ import annotations

import math

import numpy as np
from families import Case, both_tests, normal, wide

import wavedsl as wd

B, H, T, V, W, D, E, K, N, P, R, S = wd.symbols("B H T V W D E K N P R S")
F32, F16, I32 = wd.f32, wd.f16, wd.i32


def shares(*shape: int, seed: int, power: int = 1) -> np.ndarray:
    p = np.random.default_rng(seed).random(shape).astype(np.float32) ** power
    return p / p.sum(-1, keepdims=True)


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def verified(
    draft: wd.Memory[B, K, I32], q: wd.Memory[B, K, V, F32], p: wd.Memory[B, P, V, F32], u: wd.Memory[B, K, F32],
    draw: wd.Memory[B, F32], out: wd.Memory[B, P, I32], count: wd.Memory[B, I32],
):  # fmt: skip
    """The longest run of drafts that the large model accepts, and one token of what it has beyond the small one."""
    tokens = wd.read(draft)
    small = wd.read(q, mapping=wd.IndexMapping((K,), {V: tokens}))
    large = wd.read(p, mapping=wd.IndexMapping((K,), {P: K, V: tokens}))
    refused = wd.cast(wd.read(u) * small > large, I32)
    kept = wd.sum(wd.cast(wd.cumsum(refused, dim=K) == 0, I32), dim=K)
    rest = wd.read(p, mapping=wd.IndexMapping((V,), {P: kept})) - wd.read(q, mapping=wd.IndexMapping((V,), {K: kept}))
    rest = wd.maximum(rest, 0.0)  # behind the last draft q has no row, and gives 0
    below = wd.cumsum(rest, dim=V) <= wd.read(draw) * wd.sum(rest, dim=V)
    last = wd.minimum(wd.sum(wd.cast(below, I32), dim=V), V - 1)
    before = wd.read(draft, mapping=wd.IndexMapping((P,), {K: P}))
    place = wd.index(P)
    wd.write(wd.where(place < kept, before, wd.where(place == kept, last, -1)), out)
    wd.write(kept + 1, count)


def verified_case(b: int, k: int, v: int) -> Case:
    rng = np.random.default_rng(0)
    q, p = shares(b, k, v, seed=1), shares(b, k + 1, v, seed=2, power=3)
    draft, u, draw = rng.integers(0, v, (b, k)).astype(np.int32), rng.random((b, k)), rng.random(b)
    u, draw = (u * 0.6).astype(np.float32), draw.astype(np.float32)
    out, count = np.full((b, k + 1), -1), np.zeros(b, int)
    for i in range(b):
        n = 0
        while n < k and u[i, n] * q[i, n, draft[i, n]] <= p[i, n, draft[i, n]]:
            n += 1
        total = np.cumsum(np.maximum(wide(p[i, n]) - (q[i, n] if n < k else 0), 0))
        out[i, :n], out[i, n], count[i] = draft[i, :n], (total <= draw[i] * total[-1]).sum(), n + 1
    outputs = [np.zeros((b, k + 1), np.int32), np.zeros(b, np.int32)]
    return Case([draft, q, p, u, draw, *outputs], {5: out, 6: count}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(V, 256)])
def drawn(x: wd.Memory[B, V, F32], mass: wd.Memory[B, F32], u: wd.Memory[B, F32], token: wd.Memory[B, I32]):
    """A token of the most probable ones that have a given mass together: the least of them is found by halving."""

    @wd.iterate(V, init_args=[wd.Register[F32](-math.inf), wd.Register[F32](0.0)])
    def state(top, total):
        row = wd.read(x)
        higher = wd.maximum(top, wd.max(row, dim=V))
        return higher, total * wd.exp(top - higher) + wd.sum(wd.exp(row - higher), dim=V)

    def probabilities(least):
        p = wd.exp(wd.read(x) - state[0]) / state[1]
        return wd.where(p >= least, p, 0.0)

    def above(least):
        @wd.iterate(V, init_args=[wd.Register[F32](0.0)])
        def total(so_far):
            return so_far + wd.sum(probabilities(least), dim=V)

        return total

    def halved(low, high, trips):
        middle = (low + high) * 0.5
        enough = above(middle) >= wd.read(mass)
        return wd.where(enough, middle, low), wd.where(enough, high, middle), trips + 1

    start = [wd.Register[F32](0.0), wd.Register[F32](1.0), wd.Register[I32](0)]
    least, _, _ = wd.while_loop(lambda low, high, trips: trips < 22, halved, start)
    goal = wd.read(u) * above(least)

    @wd.iterate(V, init_args=[wd.Register[F32](0.0), wd.Register[I32](0)])
    def found(before, count):
        p = probabilities(least)
        below = wd.cumsum(p, dim=V) + before <= goal
        return before + wd.sum(p, dim=V), count + wd.sum(wd.cast(below, I32), dim=V)

    wd.write(wd.minimum(found[1], V - 1), token)


def drawn_case(b: int, v: int) -> Case:
    x, u = normal(b, v, scale=3), np.random.default_rng(3).random(b).astype(np.float32)
    p = np.exp(wide(x))
    p /= p.sum(1, keepdims=True)
    token = np.zeros(b, int)
    for i in range(b):
        order = np.argsort(-p[i])
        kept = np.zeros(v)
        best = order[: np.searchsorted(np.cumsum(p[i][order]), 0.7) + 1]
        kept[best] = p[i][best]
        token[i] = (np.cumsum(kept) <= u[i] * kept.sum()).sum()
    return Case([x, np.full(b, 0.7, np.float32), u, np.zeros(b, np.int32)], {3: token}, dynamic=(B, V))


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(H, 1, 0), wd.TilingConstraint(W, 32)])
def going_round(
    q: wd.Memory[B, H, D, F16], key: wd.Memory[B, H, D, F16], value: wd.Memory[B, H, E, F16],
    keys: wd.Memory[B, W, H, D, F16], values: wd.Memory[B, W, H, E, F16], place: wd.Memory[B, I32],
    o: wd.Memory[B, H, E, F32],
):  # fmt: skip
    """A step of one query over the last W keys, the newest of which takes the oldest one's place first."""
    newest = wd.read(place)
    slot = newest % W
    wd.write(wd.read(key), keys[:, slot])
    wd.write(wd.read(value), values[:, slot])
    query = wd.read(q)
    start = [wd.Register[F32](-math.inf), wd.Register[F32](0.0), wd.Register[E, F32](0.0)]

    @wd.iterate(W, init_args=start, stop=wd.minimum(newest + 1, W))
    def loop(top, total, acc):
        scores = wd.mma(query, wd.read(keys), wd.Register[W, F32](0.0)) * D**-0.5
        scores = wd.where(wd.index(W) <= newest, scores, -math.inf)
        higher = wd.maximum(top, wd.max(scores, dim=W))
        p, keep = wd.exp(scores - higher), wd.exp(top - higher)
        return higher, total * keep + wd.sum(p, dim=W), wd.mma(wd.cast(p, F16), wd.read(values), acc * keep)

    wd.write(loop[2] / loop[1], o)


def going_round_case(b: int, h: int, w: int, d: int, e: int) -> Case:
    q, key, value = (normal(b, h, n, seed=i, dtype=np.float16) for i, n in enumerate((d, d, e)))
    keys, values = (normal(b, w, h, n, seed=5 + i, dtype=np.float16) for i, n in enumerate((d, e)))
    place = np.array([3, w - 1, 5 * w + 7][:b], np.int32)
    new_keys, new_values, o = keys.copy(), values.copy(), np.zeros((b, h, e))
    for i in range(b):
        new_keys[i, place[i] % w], new_values[i, place[i] % w] = key[i], value[i]
        n = min(place[i] + 1, w)
        scores = np.einsum("hd,nhd->hn", wide(q[i]), wide(new_keys[i, :n])) * d**-0.5
        power = np.exp(scores - scores.max(1, keepdims=True))
        o[i] = np.einsum("hn,nhe->he", power / power.sum(1, keepdims=True), wide(new_values[i, :n]))
    arguments = [q, key, value, keys, values, place, np.zeros((b, h, e), np.float32)]
    return Case(arguments, {3: wide(new_keys), 4: wide(new_values), 6: o}, slack=1e-2, dynamic=(B, H, W))


@wd.wave([wd.WorkgroupConstraint(S, 1, 1), wd.WorkgroupConstraint(N, 64, 0), wd.TilingConstraint(T, 16)])
def adapters(
    x: wd.Memory[T, D, F16], down: wd.Memory[W, R, D, F16], up: wd.Memory[W, N, R, F16], ends: wd.Memory[P, I32],
    which: wd.Memory[S, I32], y: wd.Memory[T, N, F32],
):  # fmt: skip
    """Two small products for each run of tokens, by the matrices of its adapter."""
    first, last = (wd.read(ends, mapping=wd.IndexMapping((), {P: S + i})) for i in (0, 1))
    mine = wd.read(which)
    a = wd.read(down, mapping=wd.IndexMapping((R, D), {W: mine}))
    b = wd.read(up, mapping=wd.IndexMapping((N, R), {W: mine}))

    @wd.iterate(T, start=first, stop=last)
    def loop():
        narrow = wd.cast(wd.mma(wd.read(x), a, wd.Register[T, R, F32](0.0)), F16)
        rows = wd.where((wd.index(T) >= first) & (wd.index(T) < last), wd.index(T), -1)
        wd.write(wd.mma(narrow, b, wd.Register[T, N, F32](0.0)), y, mapping=wd.IndexMapping((T, N), {T: rows}))


def adapters_case(t: int, d: int, n: int, r: int) -> Case:
    x, down, up = normal(t, d, dtype=np.float16), normal(3, r, d, seed=1, scale=0.1), normal(3, n, r, seed=2)
    down, up = down.astype(np.float16), up.astype(np.float16)
    ends, which = np.array([0, t // 7, t // 7, 2 * t // 3, t], np.int32), np.array([0, 1, 2, 1], np.int32)
    y = np.zeros((t, n))
    for i, adapter in enumerate(which):
        rows = slice(ends[i], ends[i + 1])
        y[rows] = wide(x[rows]) @ wide(down[adapter]).T @ wide(up[adapter]).T
    return Case([x, down, up, ends, which, np.zeros((t, n), np.float32)], {5: y}, slack=1e-2, dynamic=(T, S, P, W, N))


KERNELS = {
    "verified": (verified, verified_case, ((3, 4, 64), (5, 3, 131))),
    "drawn": (drawn, drawn_case, ((1, 512), (2, 700))),
    "going-round": (going_round, going_round_case, ((3, 2, 64, 64, 32), (2, 1, 50, 40, 24))),
    "adapters": (adapters, adapters_case, ((48, 64, 64, 16), (50, 70, 96, 8))),
}


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)
