"""Whole kernels as people write them, against NumPy and the evaluator: routing, groups, locks, schedulers, bytes."""

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
F32, F16, BF16, I32 = wd.f32, wd.f16, wd.bf16, wd.i32
HALF = ml_dtypes.bfloat16
Case = tuple[list[Any], Mapping[int, np.ndarray], dict[Any, int]]
"""Arguments, what some of them become, bindings."""


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def whole(*shape: int, seed: int = 0, dtype: Any = np.float16, low: int = -2, high: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


# ---- gradients of a layer norm: what rows give to the weights' meets by atomics


@wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
def norm_gradient(
    dy: wd.Memory[M, N, F32], x: wd.Memory[M, N, F32], w: wd.Memory[N, F32], mean: wd.Memory[M, F32],
    scale: wd.Memory[M, F32], dx: wd.Memory[M, N, F32], dw: wd.Memory[N, F32], db: wd.Memory[N, F32],
):  # fmt: skip
    g, r = wd.read(dy), wd.read(scale)
    normed = (wd.read(x) - wd.read(mean)) * r
    weighted = g * wd.read(w)
    along, level = wd.sum(normed * weighted, dim=N) / N, wd.sum(weighted, dim=N) / N
    wd.write((weighted - normed * along - level) * r, dx)
    columns = wd.IndexMapping((M, N), {N: N})
    wd.atomic_add(g * normed, dw, mapping=columns)
    wd.atomic_add(g, db, mapping=columns)


def norm_case(m: int, n: int) -> Case:
    x, dy, w = normal(m, n), normal(m, n, seed=1), normal(n, seed=2)
    mean, scale = wide(x).mean(1), 1 / np.sqrt(wide(x).var(1) + 1e-5)
    normed, weighted = (wide(x) - mean[:, None]) * scale[:, None], wide(dy) * w
    dx = weighted - normed * (normed * weighted).mean(1, keepdims=True) - weighted.mean(1, keepdims=True)
    outputs = np.zeros_like(x), *np.zeros((2, n), np.float32)
    want = {5: dx * scale[:, None], 6: (dy * normed).sum(0), 7: wide(dy).sum(0)}
    return [dy, x, w, mean.astype(np.float32), scale.astype(np.float32), *outputs], want, {}


# ---- a router, and the gradient of the experts' weights: a contraction over the rows that an expert got


@wd.wave([wd.WorkgroupConstraint(T, 4, 0), wd.WaveConstraint(T, 1)], subs={K: 4})
def router(
    x: wd.Memory[T, E, BF16], bias: wd.Memory[E, F32], weight: wd.Memory[T, K, F32], ids: wd.Memory[T, K, I32],
    count: wd.Memory[E, I32],
):  # fmt: skip
    p = wd.sigmoid(wd.cast(wd.read(x), F32))
    _, at = wd.topk(p + wd.read(bias), K, dim=E)
    chosen = wd.sigmoid(wd.cast(wd.read(x, mapping=wd.IndexMapping((T, K), {E: at})), F32))
    wd.write(chosen / wd.sum(chosen, dim=K) * 2.5, weight)
    wd.write(at, ids)
    wd.atomic_add(wd.Register[T, K, I32](1), count, mapping=wd.IndexMapping((T, K), {E: at}))


def router_case(t: int, e: int) -> Case:
    x = (np.random.default_rng(0).permutation(t * e).reshape(t, e) / (t * e) * 4 - 2).astype(HALF)
    bias = np.arange(e, dtype=np.float32) * 1e-4
    p = 1 / (1 + np.exp(-wide(x)))
    at = np.argsort(-p - bias, 1, kind="stable")[:, :4]
    chosen = np.take_along_axis(p, at, 1)
    want = {2: chosen / chosen.sum(1, keepdims=True) * 2.5, 3: at, 4: np.bincount(at.ravel(), minlength=e)}
    return [x, bias, np.zeros((t, 4), np.float32), np.zeros((t, 4), np.int32), np.zeros(e, np.int32)], want, {}


@wd.wave(
    [wd.WorkgroupConstraint(E, 1, 2), wd.WorkgroupConstraint(N, 64, 0), wd.WorkgroupConstraint(K, 64, 1),
     wd.TilingConstraint(R, 32)]
)  # fmt: skip
def expert_gradient(
    x: wd.Memory[T, K, BF16], rows: wd.Memory[R, I32], dy: wd.Memory[R, N, BF16], ends: wd.Memory[P, I32],
    dw: wd.Memory[E, N, K, F32],
):  # fmt: skip
    first, last = (wd.read(ends, mapping=wd.IndexMapping((), {P: E + i})) for i in (0, 1))

    @wd.iterate(R, init_args=[wd.read(dw)], start=first, stop=last)
    def loop(acc):
        mine = wd.where((wd.index(R) >= first) & (wd.index(R) < last), wd.read(rows), -1)
        return wd.mma(wd.read(dy), wd.read(x, mapping=wd.IndexMapping((R, K), {T: mine})), acc)

    wd.write(loop, dw)


def expert_case(t: int, k: int, n: int, e: int, r: int) -> Case:
    rng = np.random.default_rng(0)
    x, dy, before = whole(t, k, dtype=HALF), whole(r, n, seed=1, dtype=HALF), whole(e, n, k, seed=3, dtype=np.float32)
    rows, cuts = rng.integers(0, t, r).astype(np.int32), np.sort(rng.integers(0, r + 1, e - 1))
    ends = np.array([0, *cuts, r], np.int32)
    parts = [wide(dy)[i:j].T @ wide(x)[rows[i:j]] for i, j in itertools.pairwise(ends)]
    return [x, rows, dy, ends, before], {4: np.stack(parts) + before}, {}


# ---- tiles that workgroups take from a counter; waves that wait for the workgroup in front


@wd.wave(
    [wd.WorkgroupConstraint(W, 1, 0), wd.WorkgroupConstraint(I, 48, 1), wd.WorkgroupConstraint(J, 80, 2),
     wd.TilingConstraint(K, 32)],
    subs={W: 3, I: 48, J: 80},
)  # fmt: skip
def tile_scheduler(a: wd.Memory[M, K, F16], b: wd.Memory[N, K, F16], c: wd.Memory[M, N, F32], next: wd.Memory[P, I32]):
    def take():
        return wd.atomic_add(wd.Register[I32](1), next, mapping=wd.IndexMapping((), {P: 0}))

    across = (N + 79) // 80

    def product(tile):
        row, column = tile // across * 48, tile % across * 80

        @wd.iterate(K, init_args=[wd.Register[I, J, F32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a[row : row + I, :]), wd.read(b[column : column + J, :]), acc)

        wd.write(loop, c[row : row + I, column : column + J])
        return take()

    wd.while_loop(lambda tile: tile < (M + 47) // 48 * across, product, [take()])


def scheduler_case(m: int, n: int, k: int) -> Case:
    a, b = whole(m, k), whole(n, k, seed=1)
    return [a, b, np.zeros((m, n), np.float32), np.zeros(1, np.int32)], {2: wide(a) @ wide(b).T}, {}


@wd.wave([wd.WorkgroupConstraint(G, 1, 0)], subs={L: 256})
def look_back(
    x: wd.Memory[N, F32], done: wd.Memory[G, I32], total: wd.Memory[G, I32], y: wd.Memory[N, F32]
):  # fmt: skip
    """What is positive, in order: each workgroup waits for the number of those in front of it."""
    value = wd.read(x, mapping=wd.IndexMapping((L,), {N: G * 256 + L}))
    kept = wd.cast(value > 0, I32)
    front = wd.index(G) - 1
    there = wd.IndexMapping((), {G: front})

    def look(_):
        return wd.atomic_add(wd.Register[I32](0), done, mapping=there)

    wd.while_loop(lambda seen: (seen == 0) & (front >= 0), look, [wd.Register[I32](0)])
    wd.fence()
    before = wd.read(total, mapping=there)
    wd.write(before + wd.sum(kept, dim=L), total)
    wd.fence()
    wd.atomic_xchg(wd.Register[I32](1), done)
    place = wd.where(value > 0, wd.cumsum(kept, dim=L) - 1 + before, -1)
    wd.write(value, y, mapping=wd.IndexMapping((L,), {N: place}))


def look_back_case(n: int) -> Case:
    x, want = normal(n), np.zeros(n)
    kept = x[x > 0]
    want[: len(kept)] = kept
    counters = np.zeros((2, -(-n // 256)), np.int32)
    return [x, *counters, np.zeros(n, np.float32)], {3: want, 1: np.ones(len(counters[0]))}, {}


# ---- quantised products: words of eight weights with groups of their own order; tiles of 48 x 80 with a correction


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
def packed_words(
    x: wd.Memory[M, K, F16], q: wd.Memory[K / 8, N, I32], scale: wd.Memory[K / 64, N, F16],
    zero: wd.Memory[K / 64, N / 8, I32], order: wd.Memory[K, I32], y: wd.Memory[M, N, F16],
):  # fmt: skip
    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def loop(acc):
        weight = (wd.repeat_interleave(wd.read(q), K) >> (wd.index(K) % 8 * 4)) & 15
        zeros = wd.read(zero, mapping=wd.IndexMapping((K, N), {K / 64: K // 64, N / 8: N // 8}))
        zeros = ((zeros >> (wd.index(N) % 8 * 4)) & 15) + 1
        scales = wd.read(scale, mapping=wd.IndexMapping((K, N), {K / 64: K // 64}))
        columns = wd.read(x, mapping=wd.IndexMapping((M, K), {K: wd.read(order)}))
        return wd.mma(columns, wd.cast(weight - zeros, F16) * scales, acc)

    wd.write(wd.cast(loop, F16), y)


def packed_case(m: int, n: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    q, zero = rng.integers(0, 16, (k, n)), rng.integers(0, 15, (k // 64, n))
    scale, order = rng.integers(1, 3, (k // 64, n)).astype(np.float16), rng.permutation(k).astype(np.int32)
    shift = 4 * np.arange(8)
    words = (q.reshape(-1, 8, n) << shift[:, None]).sum(1).astype(np.uint32).view(np.int32)
    zeros = (zero.reshape(k // 64, -1, 8) << shift).sum(2).astype(np.uint32).view(np.int32)
    x = whole(m, k, low=-1, high=2)
    weights = (q - np.repeat(zero + 1, 64, 0)) * np.repeat(wide(scale), 64, 0)
    return [x, words, scale, zeros, order, np.zeros((m, n), np.float16)], {5: wide(x)[:, order] @ weights}, {}


@wd.wave([wd.WorkgroupConstraint(M, 48, 0), wd.WorkgroupConstraint(N, 80, 1), wd.TilingConstraint(K, 64)])
def bytes_with_zero_points(
    x: wd.Memory[M, K, wd.u8], w: wd.Memory[N, K, wd.i8], zero: wd.Memory[M, I32], scale: wd.Memory[M, F32],
    y: wd.Memory[M, N, wd.i8],
):  # fmt: skip
    @wd.iterate(K, init_args=[wd.Register[M, N, I32](0), wd.Register[N, I32](0)])
    def loop(acc, sums):
        weights = wd.read(w)
        signed = wd.cast(wd.cast(wd.read(x), I32) - 128, wd.i8)
        return wd.mma(signed, weights, acc), sums + wd.sum(wd.cast(weights, I32), dim=K)

    acc, sums = loop
    result = wd.cast(acc - (wd.read(zero) - 128) * sums, F32) * wd.read(scale)
    wd.write(wd.cast(wd.clamp(wd.round(result), -128.0, 127.0), wd.i8), y)


def bytes_case(m: int, n: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (m, k)).astype(np.uint8), rng.integers(-128, 128, (n, k)).astype(np.int8)
    zero, scale = rng.integers(0, 256, m).astype(np.int32), (rng.random(m) * 1e-3).astype(np.float32)
    exact = ((x.astype(np.int64) - zero[:, None]) @ w.T.astype(np.int64)).astype(np.float32)
    want = np.clip(np.rint(exact * scale[:, None]), -128, 127).astype(np.int8)
    return [x, w, zero, scale, np.zeros((m, n), np.int8)], {4: want}, {}


# ---- two products, the second of what the first gave; a path back through a table of choices; pairs


@wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(H, 32), wd.TilingConstraint(K, 32)])
def perceptron(
    x: wd.Memory[M, K, F16], up: wd.Memory[H, K, F16], bias: wd.Memory[H, F32], down: wd.Memory[D, H, F16],
    y: wd.Memory[M, D, F32],
):  # fmt: skip
    @wd.iterate(H, init_args=[wd.Register[M, D, F32](0.0)])
    def outer(acc):
        @wd.iterate(K, init_args=[wd.Register[M, H, F32](0.0)])
        def inner(hidden):
            return wd.mma(wd.read(x), wd.read(up), hidden)

        hidden = wd.clamp(inner + wd.read(bias), 0.0, 3.0)
        return wd.mma(wd.cast(hidden, F16), wd.read(down), acc)

    wd.write(outer, y)


def perceptron_case(m: int, k: int, h: int, d: int) -> Case:
    x, up, down = whole(m, k), whole(h, k, seed=1), whole(d, h, seed=2)
    bias = whole(h, seed=3, dtype=np.float32)
    hidden = np.clip(wide(x) @ wide(up).T + bias, 0, 3)
    return [x, up, bias, down, np.zeros((m, d), np.float32)], {4: hidden @ wide(down).T}, {}


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)])
def viterbi(
    emit: wd.Memory[B, T, S, F32], change: wd.Memory[S, J, F32], choice: wd.Memory[B, T, J, I32],
    path: wd.Memory[B, T, I32],
):  # fmt: skip
    changes = wd.read(change)

    @wd.iterate(T, init_args=[wd.Register[J, F32](0.0)])
    def forward(score):
        t = wd.tile_start(T)
        found = wd.reshape(score, S) + changes
        wd.write(wd.argmax(found, dim=S), choice, mapping=wd.IndexMapping((J,), {T: t}))
        return wd.max(found, dim=S) + wd.read(emit, mapping=wd.IndexMapping((J,), {T: t, S: wd.index(J)}))

    wd.fence()

    @wd.iterate(T, init_args=[wd.argmax(forward, dim=J)])
    def back(state):
        t = T - 1 - wd.tile_start(T)
        wd.write(state, path, mapping=wd.IndexMapping((), {T: t}))
        return wd.read(choice, mapping=wd.IndexMapping((), {T: t, J: state}))


def viterbi_case(b: int, t: int, s: int) -> Case:
    emit, change = normal(b, t, s), normal(s, s, seed=1)
    choice, path = np.zeros((b, t, s), np.int32), np.zeros((b, t), np.int32)
    for i in range(b):
        score = np.zeros(s, np.float32)
        for u in range(t):
            found = score[:, None] + change
            choice[i, u], score = found.argmax(0), found.max(0) + emit[i, u]
        state = score.argmax()
        for u in reversed(range(t)):
            path[i, u], state = state, choice[i, u, state]
    return [emit, change, np.zeros_like(choice), np.zeros_like(path)], {2: choice, 3: path}, {}


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(T, 8, 0), wd.WorkgroupConstraint(H, 4, 1)])
def rotary_pairs(
    x: wd.Memory[B, T, H, 2 * D, F16], cos: wd.Memory[T, D, F32], sin: wd.Memory[T, D, F32],
    y: wd.Memory[B, T, H, 2 * D, F16],
):  # fmt: skip
    even, odd = (wd.cast(wd.read(x[:, :, :, i::2]), F32) for i in (0, 1))
    wd.write(wd.cast(even * wd.read(cos) - odd * wd.read(sin), F16), y[:, :, :, ::2])
    wd.write(wd.cast(odd * wd.read(cos) + even * wd.read(sin), F16), y[:, :, :, 1::2])


def rotary_case(b: int, t: int, h: int, d: int) -> Case:
    x = normal(b, t, h, d, dtype=np.float16)
    angle = np.arange(t)[:, None] * 1e4 ** (-2 * np.arange(d // 2) / d)
    cos, sin = (f(angle).astype(np.float32) for f in (np.cos, np.sin))
    turned = (wide(x[..., ::2]) + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None]
    want = np.stack([turned.real, turned.imag], -1).reshape(x.shape)
    return [x, cos, sin, np.zeros_like(x)], {3: want}, {}


# ---- windows of attention with a sink per head, grouped queries and a slope


@wd.wave(
    [wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(M, 64, 0),
     wd.TilingConstraint(N, 32)]
)  # fmt: skip
def window_with_sink(
    q: wd.Memory[B, H, M, D, BF16], k: wd.Memory[B, G, N, D, BF16], v: wd.Memory[B, G, N, E, BF16],
    sink: wd.Memory[H, F32], slope: wd.Memory[H, F32], o: wd.Memory[B, H, M, E, BF16],
):  # fmt: skip
    group, queries, per_step = wd.index(H) // (H // G), wd.read(q), wd.read(slope)
    keys, values = (wd.IndexMapping((N, d), {G: group}) for d in (D, E))
    start = [wd.Register[M, F32](0.0) + wd.read(sink), wd.Register[M, F32](1.0), wd.Register[M, E, F32](0.0)]

    @wd.iterate(N, init_args=start, start=wd.maximum(wd.tile_start(M) - 39, 0), stop=wd.minimum(wd.tile_stop(M), N))
    def loop(top, total, acc):
        scores = wd.mma(queries, wd.read(k, mapping=keys), wd.Register[M, N, F32](0.0)) * D**-0.5
        behind = wd.index(M) - wd.index(N)
        scores = 20.0 * wd.tanh(scores / 20.0) - per_step * wd.cast(behind, F32)
        scores = wd.where((behind >= 0) & (behind < 40), scores, -math.inf)
        higher = wd.maximum(top, wd.max(scores, dim=N))
        p, keep = wd.exp(scores - higher), wd.exp(top - higher)
        products = wd.mma(wd.cast(p, BF16), wd.read(v, mapping=values), acc * keep)
        return higher, total * keep + wd.sum(p, dim=N), products

    wd.write(wd.cast(loop[2] / loop[1], BF16), o)


def window_case(b: int, h: int, g: int, m: int, d: int, e: int) -> Case:
    sizes = ((h, d), (g, d), (g, e))
    q, k, v = (normal(b, heads, m, n, seed=i, dtype=HALF) for i, (heads, n) in enumerate(sizes))
    sink, slope = normal(h, seed=3), (2.0 ** -np.arange(1, h + 1)).astype(np.float32)
    keys, values = (np.repeat(wide(x), h // g, 1) for x in (k, v))
    behind = np.arange(m)[:, None] - np.arange(m)
    scores = 20 * np.tanh(wide(q) @ keys.swapaxes(2, 3) * d**-0.5 / 20) - slope[:, None, None] * behind
    scores = np.where((behind >= 0) & (behind < 40), scores, -np.inf)
    power = np.exp(scores)
    share = power / (power.sum(-1, keepdims=True) + np.exp(wide(sink))[:, None, None])
    return [q, k, v, sink, slope, np.zeros((b, h, m, e), HALF)], {5: share @ values}, {}


KERNELS: dict[str, tuple[Any, Callable[..., Case], list[tuple[Any, ...]], tuple[Any, ...]]] = {
    "norm-gradient": (norm_gradient, norm_case, [(32, 256), (37, 300)], (M,)),
    "router": (router, router_case, [(16, 64), (7, 40)], (T,)),
    "expert-gradient": (expert_gradient, expert_case, [(40, 64, 64, 4, 128), (33, 72, 80, 3, 90)], (T, R, N, K)),
    "tile-scheduler": (tile_scheduler, scheduler_case, [(96, 160, 64), (100, 190, 40)], (M, N, K)),
    "look-back": (look_back, look_back_case, [(1024,), (1100,)], ()),
    "packed-words": (packed_words, packed_case, [(32, 64, 128), (17, 72, 192)], (M,)),
    "zero-points": (bytes_with_zero_points, bytes_case, [(48, 80, 128), (50, 90, 100)], (M, N, K)),
    "perceptron": (perceptron, perceptron_case, [(64, 64, 128, 64), (70, 50, 90, 40)], (M, H, K)),
    "viterbi": (viterbi, viterbi_case, [(2, 7, 16), (3, 9, 21)], (B, T)),
    "rotary-pairs": (rotary_pairs, rotary_case, [(2, 16, 4, 64), (1, 5, 3, 40)], (T, H)),
    "window": (window_with_sink, window_case, [(1, 4, 2, 128, 64, 64), (2, 2, 1, 77, 40, 24)], (B, M, N)),
}
"""Kernel, arguments, their sizes (aligned, ragged), and dimensions that the ragged ones leave to run time as well."""

SLACK = {"norm-gradient": 1e-3, "rotary-pairs": 2e-3, "window": 2e-2}
WAITING = {"look-back"}
"""Workgroups wait for each other, which the evaluator's do not."""


def compare(name: str, got: list[Any], wants: Mapping[int, np.ndarray]) -> None:
    for position, want in wants.items():
        if got[position].dtype.kind in "iu":
            np.testing.assert_array_equal(got[position], want)
        else:
            slack = SLACK.get(name, 1e-4)
            np.testing.assert_allclose(wide(got[position]), want, rtol=slack, atol=slack)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("name", KERNELS)
def test_against_numpy(name: str, target: str) -> None:
    kernel, case, sizes, dynamic = KERNELS[name]
    for size, open_dims in [*((size, ()) for size in sizes), (sizes[-1], dynamic)]:
        arguments, wants, subs = case(*size)
        compiled = kernel.compile(*arguments, target=target, subs=subs or None, dynamic=list(open_dims))
        compiled.emulate(*arguments)
        compare(name, arguments, wants)


@pytest.mark.parametrize("name", sorted(KERNELS.keys() - WAITING))
def test_the_evaluator_agrees(name: str) -> None:
    kernel, case, sizes, _ = KERNELS[name]
    for size in sizes:
        arguments, wants, subs = case(*size)
        kernel.evaluate(*arguments, subs=subs or None)
        compare(name, arguments, wants)
