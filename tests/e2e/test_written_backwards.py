"""Losses, norms, gates and optimisers of training with their gradients, and what newer layers do between products."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from families import Case, both_tests, normal, philox, whole, wide

import wavedsl as wd

B, C, D, E, G, H, I, J, K, L, M, N, P, Q, R, S, T, U, V, W, X, Y = wd.symbols(
    "B C D E G H I J K L M N P Q R S T U V W X Y"
)
BF16, F16, F32, I32 = wd.bf16, wd.f16, wd.f32, wd.i32
HALF = ml_dtypes.bfloat16


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-wide(x)))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(wide(x) - wide(x).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---- losses


@wd.wave([wd.WorkgroupConstraint(T, 1, 0), wd.TilingConstraint(V, 256)])
def weighted_entropy(
    x: wd.Memory[T, V, BF16], label: wd.Memory[T, I32], weight: wd.Memory[V, F32], smooth: wd.Scalar[F32],
    z_loss: wd.Scalar[F32], loss: wd.Memory[T, F32],
):  # fmt: skip
    """Classes have weights, labels are smoothed, sums' logarithms are kept small; the gradient in place of the logits.
    Labels of -100 do not count."""
    own = wd.read(label)
    start = [wd.Register[F32](-math.inf), *(wd.Register[F32](0.0) for _ in range(3))]

    @wd.iterate(V, init_args=start)
    def sums(top, total, plain, all_weights):
        z, w = wd.cast(wd.read(x), F32), wd.read(weight)
        higher = wd.maximum(top, wd.max(z, dim=V))
        total = total * wd.exp(top - higher) + wd.sum(wd.exp(z - higher), dim=V)
        return higher, total, plain + wd.sum(w * z, dim=V), all_weights + wd.sum(w, dim=V)

    top, total, plain, all_weights = sums
    level = top + wd.log(total)
    mine, logit = wd.read(weight[own]), wd.cast(wd.read(x[:, own]), F32)
    hard, soft = mine * (level - logit), (all_weights * level - plain) / V
    counted = own >= 0
    value = (1 - smooth) * hard + smooth * soft + z_loss * level * level
    wd.write(wd.where(counted, value, 0.0), loss)
    share = (1 - smooth) * mine + smooth * all_weights / V + 2 * z_loss * level

    @wd.iterate(V)
    def gradient():
        z, w = wd.cast(wd.read(x), F32), wd.read(weight)
        target = smooth * w / V + wd.where(wd.index(V) == own, (1 - smooth) * mine, 0.0)
        grad = wd.exp(z - level) * share - target
        wd.write(wd.cast(wd.where(counted, grad, 0.0), BF16), x)


def entropy_case(t: int, v: int) -> Case:
    x, weight = normal(t, v, dtype=HALF), np.random.default_rng(1).random(v).astype(np.float32)
    label = np.random.default_rng(2).integers(0, v, t).astype(np.int32)
    label[::3] = -100
    p = softmax(x)
    level = np.log(np.exp(wide(x)).sum(1))
    target = 0.1 * weight / v + 0.9 * weight * (np.arange(v) == label[:, None])
    kept = label >= 0
    loss = (target * (level[:, None] - wide(x))).sum(1) + 1e-2 * level**2
    grad = p * (target.sum(1) + 2e-2 * level)[:, None] - target
    arguments = [x, label, weight, np.float32(0.1), np.float32(1e-2), np.zeros(t, np.float32)]
    return Case(arguments, {0: np.where(kept[:, None], grad, 0), 5: np.where(kept, loss, 0)}, {}, 5e-3, (T, V))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0), wd.WorkgroupConstraint(C, 32, 1)])
def focal(
    x: wd.Memory[N, C, F16], label: wd.Memory[N, I32], alpha: wd.Scalar[F32], total: wd.Memory[1, F32],
    dx: wd.Memory[N, C, F16], scale: wd.Scalar[F32],
):  # fmt: skip
    """Boxes' classes, each yes or no, of which the easy ones count for little; a label of -1 is background."""
    z = wd.cast(wd.read(x), F32)
    positive = wd.index(C) == wd.read(label)
    p, ce = wd.sigmoid(z), wd.log1p(wd.exp(-wd.abs(z))) + wd.maximum(z, 0.0) - wd.where(positive, z, 0.0)
    wrong = wd.where(positive, 1 - p, p)
    factor = wd.where(positive, alpha, 1 - alpha)
    wd.atomic_add(wd.sum(factor * wrong * wrong * ce, dim=(N, C)), total[0])
    slope = wd.where(positive, -1.0, 1.0) * wrong * wrong * (wrong + 2 * (1 - wrong) * ce)
    wd.write(wd.cast(scale * factor * slope, F16), dx)


def focal_case(n: int, c: int) -> Case:
    x, label = normal(n, c, dtype=np.float16), np.random.default_rng(1).integers(-1, c, n).astype(np.int32)
    positive = np.arange(c) == label[:, None]
    p = sigmoid(x)
    ce = -np.log(np.where(positive, p, 1 - p))
    wrong, factor = np.where(positive, 1 - p, p), np.where(positive, 0.25, 0.75)
    slope = np.where(positive, -1, 1) * wrong**2 * (wrong + 2 * (1 - wrong) * ce)
    arguments = [x, label, np.float32(0.25), np.zeros(1, np.float32), np.zeros_like(x), np.float32(0.5)]
    want = {3: np.array([(factor * wrong**2 * ce).sum()]), 4: 0.5 * factor * slope}
    return Case(arguments, want, {}, 3e-3, (N, C))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(D, 1)])
def transducer(
    blank: wd.Memory[B, T, U, F32], emit: wd.Memory[B, T, U, F32], frames: wd.Memory[B, I32], words: wd.Memory[B, I32],
    alpha: wd.Memory[B, T, U, F32], loss: wd.Memory[B, F32],
):  # fmt: skip
    """RNN-T: all ways through frames and words, diagonal by diagonal: place u is in frame d - u."""
    u = wd.index(U)

    def plus(a, b):
        top, low = wd.maximum(a, b), wd.minimum(a, b)
        return wd.where(low == -math.inf, top, top + wd.log1p(wd.exp(low - top)))

    @wd.iterate(D, init_args=[wd.where(u == 0, 0.0, wd.Register[U, F32](-math.inf))])
    def diagonal(last):
        d = wd.tile_start(D)
        t = d - u
        stay = wd.where(t > 0, last + wd.read(blank[:, t - 1, u]), -math.inf)
        before = wd.shuffle(last, u - 1, dim=U)
        step = wd.where((u > 0) & (t >= 0), before + wd.read(emit[:, t, u - 1]), -math.inf)
        new = wd.where((u == 0) & (t == 0), 0.0, plus(stay, step))
        wd.write(new, alpha[:, t, u])
        return new

    del diagonal
    t, u = wd.read(frames) - 1, wd.read(words)
    wd.write(-(wd.read(alpha[:, t, u]) + wd.read(blank[:, t, u])), loss)


def transducer_case(b: int, t: int, u: int) -> Case:
    rng = np.random.default_rng(0)
    blank, emit = np.log(rng.random((2, b, t, u)) * 0.5 + 0.01).astype(np.float32)
    frames, words = rng.integers(2, t + 1, b).astype(np.int32), rng.integers(0, u, b).astype(np.int32)
    alpha = np.full((b, t, u), -np.inf)
    for i in range(t):
        for j in range(u):
            ways = [np.zeros(b)] if i == j == 0 else []
            ways += [alpha[:, i - 1, j] + blank[:, i - 1, j]] if i else []
            ways += [alpha[:, i, j - 1] + emit[:, i, j - 1]] if j else []
            alpha[:, i, j] = np.logaddexp.reduce(ways)
    rows = np.arange(b)
    loss = -(alpha[rows, frames - 1, words] + blank[rows, frames - 1, words])
    outputs = np.zeros(alpha.shape, np.float32), np.zeros(b, np.float32)
    return Case([blank, emit, frames, words, *outputs], {4: alpha, 5: loss}, {D: t + u - 1}, 1e-4, (B,))


# ---- norms


@wd.wave([wd.WorkgroupConstraint(C, 64, 0), wd.TilingConstraint(N, 32)])
def batch_norm_back(
    x: wd.Memory[N, C, F16], y: wd.Memory[N, C, F16], dy: wd.Memory[N, C, F16], gain: wd.Memory[C, F32],
    mean: wd.Memory[C, F32], scale: wd.Memory[C, F32], dx: wd.Memory[N, C, F16], dgain: wd.Memory[C, F32],
    dshift: wd.Memory[C, F32],
):  # fmt: skip
    """Channels last, behind a ReLU: two passes over the rows."""
    middle, factor = wd.read(mean), wd.read(scale)

    def rows():
        g = wd.where(wd.read(y) > 0, wd.cast(wd.read(dy), F32), 0.0)
        return g, (wd.cast(wd.read(x), F32) - middle) * factor

    @wd.iterate(N, init_args=[wd.Register[C, F32](0.0), wd.Register[C, F32](0.0)])
    def sums(plain, weighed):
        g, unit = rows()
        return plain + wd.sum(g, dim=N), weighed + wd.sum(g * unit, dim=N)

    plain, weighed = sums
    wd.write(plain, dshift)
    wd.write(weighed, dgain)

    @wd.iterate(N)
    def into_x():
        g, unit = rows()
        wd.write(wd.cast((g - plain / N - unit * weighed / N) * factor * wd.read(gain), F16), dx)


def batch_back_case(n: int, c: int) -> Case:
    x, dy, gain = normal(n, c, dtype=np.float16), normal(n, c, seed=1, dtype=np.float16), normal(c, seed=2)
    mean, scale = wide(x).mean(0).astype("f4"), (1 / np.sqrt(wide(x).var(0) + 1e-5)).astype("f4")
    unit = (wide(x) - mean) * scale
    y = np.maximum(unit * gain + 0.2, 0).astype(np.float16)
    g = np.where(y > 0, wide(dy), 0)
    dgain, dshift = (g * unit).sum(0), g.sum(0)
    want = {6: (g - dshift / n - unit * dgain / n) * scale * gain, 7: dgain, 8: dshift}
    outputs = np.zeros_like(x), np.zeros(c, np.float32), np.zeros(c, np.float32)
    return Case([x, y, dy, gain, mean, scale, *outputs], want, {}, 5e-3, (N, C))


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(G, 1, 0)])
def group_norm_back(
    x: wd.Memory[B, G, J, S, BF16], dy: wd.Memory[B, G, J, S, BF16], gain: wd.Memory[G, J, F32],
    dx: wd.Memory[B, G, J, S, BF16], dgain: wd.Memory[G, J, F32], dshift: wd.Memory[G, J, F32],
):  # fmt: skip
    """Groups of J channels of S places each; moments are made again."""
    row, g = wd.cast(wd.read(x), F32), wd.cast(wd.read(dy), F32)
    size = J * S
    mean = wd.sum(row, dim=(J, S)) / size
    away = row - mean
    scale = wd.rsqrt(wd.sum(away * away, dim=(J, S)) / size + 1e-5)
    unit = away * scale
    weighed = g * wd.read(gain)
    a, b = wd.sum(weighed, dim=(J, S)) / size, wd.sum(weighed * unit, dim=(J, S)) / size
    wd.write(wd.cast((weighed - a - unit * b) * scale, BF16), dx)
    wd.atomic_add(wd.sum(g * unit, dim=S), dgain)
    wd.atomic_add(wd.sum(g, dim=S), dshift)


def group_back_case(b: int, g: int, j: int, s: int) -> Case:
    x, dy, gain = normal(b, g, j, s, dtype=HALF), normal(b, g, j, s, seed=1, dtype=HALF), normal(g, j, seed=2)
    row, back = wide(x), wide(dy)
    away = row - row.mean((2, 3), keepdims=True)
    scale = 1 / np.sqrt((away**2).mean((2, 3), keepdims=True) + 1e-5)
    unit, weighed = away * scale, back * gain[..., None]
    inner = (weighed * unit).mean((2, 3), keepdims=True)
    dx = (weighed - weighed.mean((2, 3), keepdims=True) - unit * inner) * scale
    want = {3: dx, 4: (back * unit).sum((0, 3)), 5: back.sum((0, 3))}
    outputs = np.zeros_like(x), np.zeros((g, j), np.float32), np.zeros((g, j), np.float32)
    return Case([x, dy, gain, *outputs], want, {}, 2e-2, (B, G))


@wd.wave([wd.WorkgroupConstraint(T, 4, 0)])
def dropped_norm(
    x: wd.Memory[T, D, F16], residual: wd.Memory[T, D, F32], gain: wd.Memory[D, F32], seed: wd.Scalar[wd.u64],
    rate: wd.Scalar[F32], y: wd.Memory[T, D, F16], scale: wd.Memory[T, F32],
):  # fmt: skip
    """Some elements left out, the residual, RMS norm; nothing but the seed says which ones."""
    kept = wd.random(seed, T, D) >= rate
    row = wd.where(kept, wd.cast(wd.read(x), F32) / (1 - rate), 0.0) + wd.read(residual)
    wd.write(row, residual)
    factor = wd.rsqrt(wd.sum(row * row, dim=D) / D + 1e-6)
    wd.write(factor, scale)
    wd.write(wd.cast(row * factor * wd.read(gain), F16), y)


def dropped_case(t: int, d: int) -> Case:
    x, residual, gain = normal(t, d, dtype=np.float16), normal(t, d, seed=1), normal(d, seed=2)
    kept = philox(77 + (5 << 32), t * d).reshape(t, d) >= 0.25
    row = np.where(kept, wide(x) / 0.75, 0) + residual
    factor = 1 / np.sqrt((row**2).mean(1) + 1e-6)
    outputs = np.zeros_like(x), np.zeros(t, np.float32)
    want = {1: row, 5: row * factor[:, None] * gain, 6: factor}
    return Case([x, residual, gain, np.uint64(77 + (5 << 32)), np.float32(0.25), *outputs], want, {}, 2e-3, (T,))


# ---- bags, gates


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(D, 64, 1), wd.TilingConstraint(S, 8)])
def largest_of_bags(
    table: wd.Memory[V, D, F16], ids: wd.Memory[S, I32], first: wd.Memory[P, I32], back: wd.Memory[B, D, F32],
    out: wd.Memory[B, D, F16], which: wd.Memory[B, D, I32], d_table: wd.Memory[V, D, F32],
):  # fmt: skip
    """Column by column the largest of a bag's rows, and whose it was; an empty bag is zero."""
    begin, end = wd.read(first[B]), wd.read(first[B + 1])

    @wd.iterate(S, init_args=[wd.Register[D, F32](-math.inf), wd.Register[D, I32](-1)], start=begin, stop=end)
    def best(top, at):
        mine = (wd.index(S) >= begin) & (wd.index(S) < end)
        row = wd.where(mine, wd.read(ids), -1)
        x = wd.where(mine, wd.cast(wd.read(table[row, :]), F32), -math.inf)
        here, place = wd.max(x, dim=S), wd.argmax(x, dim=S)
        return wd.maximum(top, here), wd.where(here > top, place, at)

    top, at = best
    row = wd.read(ids[at])
    wd.write(wd.cast(wd.where(at >= 0, top, 0.0), F16), out)
    wd.write(wd.where(at >= 0, row, -1), which)
    wd.atomic_add(wd.read(back), d_table, mapping=wd.IndexMapping((D,), {V: wd.where(at >= 0, row, -1), D: D}))


def largest_case(sizes: tuple[int, ...], v: int, d: int) -> Case:
    rng = np.random.default_rng(0)
    first = np.cumsum([0, *sizes]).astype(np.int32)
    ids, table = rng.integers(0, v, first[-1]).astype(np.int32), normal(v, d, dtype=np.float16)
    back = whole(len(sizes), d, seed=1, dtype=np.float32)
    out, which, d_table = np.zeros((len(sizes), d)), np.full((len(sizes), d), -1), np.zeros((v, d))
    for i, n in enumerate(sizes):
        mine = ids[first[i] : first[i + 1]]
        if n:
            which[i] = mine[wide(table)[mine].argmax(0)]
            out[i] = wide(table)[mine].max(0)
            np.add.at(d_table, (which[i], np.arange(d)), back[i])
    outputs = np.zeros(out.shape, np.float16), np.zeros(out.shape, np.int32), np.zeros((v, d), np.float32)
    return Case([table, ids, first, back, *outputs], {4: out, 5: which, 6: d_table}, dynamic=(B, S, V))


@wd.wave([wd.WorkgroupConstraint(T, 8, 0), wd.WorkgroupConstraint(N, 128, 1)])
def gelu_gate_back(
    x: wd.Memory[T, 2 * N, BF16], dy: wd.Memory[T, N, BF16], y: wd.Memory[T, N, BF16], dx: wd.Memory[T, 2 * N, BF16],
):  # fmt: skip
    """The gate in front, its value behind; what they give once more, and both gradients, in one array as they came."""
    gate, value = wd.cast(wd.read(x[:, :N]), F32), wd.cast(wd.read(x[:, N:]), F32)
    g = wd.cast(wd.read(dy), F32)
    inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
    t = wd.tanh(inner)
    act = 0.5 * gate * (1 + t)
    slope = 0.5 * (1 + t) + 0.5 * gate * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * gate**2)
    wd.write(wd.cast(act * value, BF16), y)
    wd.write(wd.cast(g * value * slope, BF16), dx[:, :N])
    wd.write(wd.cast(g * act, BF16), dx[:, N:])


def gelu_case(t: int, n: int) -> Case:
    x, dy = normal(t, 2 * n, dtype=HALF), normal(t, n, seed=1, dtype=HALF)
    gate, value, c = wide(x)[:, :n], wide(x)[:, n:], math.sqrt(2 / math.pi)
    th = np.tanh(c * (gate + 0.044715 * gate**3))
    act = 0.5 * gate * (1 + th)
    slope = 0.5 * (1 + th) + 0.5 * gate * (1 - th**2) * c * (1 + 3 * 0.044715 * gate**2)
    dx = np.concatenate([wide(dy) * value * slope, wide(dy) * act], 1)
    return Case([x, dy, np.zeros_like(dy), np.zeros_like(x)], {2: act * value, 3: dx}, {}, 1e-2, (T,))


# ---- optimisers


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def factored_moments(
    p: wd.Memory[B, M, N, F32], g: wd.Memory[B, M, N, F32], rows: wd.Memory[B, M, F32], columns: wd.Memory[B, N, F32],
    keep: wd.Scalar[F32], rate: wd.Scalar[F32],
):  # fmt: skip
    """Adafactor: second moments as means of rows and columns; a step no longer than its root mean square allows."""
    grad = wd.read(g)
    square = grad * grad + 1e-30
    r = keep * wd.read(rows) + (1 - keep) * wd.sum(square, dim=N) / N
    c = keep * wd.read(columns) + (1 - keep) * wd.sum(square, dim=M) / M
    wd.write(r, rows)
    wd.write(c, columns)
    u = grad * wd.rsqrt(r / (wd.sum(r, dim=M) / M)) * wd.rsqrt(c)
    size = wd.sqrt(wd.sum(u * u, dim=(M, N)) / (M * N))
    old = wd.read(p)
    length = wd.maximum(wd.sqrt(wd.sum(old * old, dim=(M, N)) / (M * N)), 1e-3)
    wd.write(old - rate * length * u / wd.maximum(size, 1.0), p)


def factored_case(b: int, m: int, n: int) -> Case:
    p, g = normal(b, m, n), normal(b, m, n, seed=1)
    rows, columns = np.abs(normal(b, m, seed=2)), np.abs(normal(b, n, seed=3))
    r, c = 0.9 * wide(rows) + 0.1 * (wide(g) ** 2).mean(2), 0.9 * wide(columns) + 0.1 * (wide(g) ** 2).mean(1)
    u = wide(g) / np.sqrt(r / r.mean(1, keepdims=True))[..., None] / np.sqrt(c)[:, None]
    size, length = (np.sqrt((x**2).mean((1, 2), keepdims=True)) for x in (u, wide(p)))
    want = {0: p - 0.01 * np.maximum(length, 1e-3) * u / np.maximum(size, 1), 2: r, 3: c}
    return Case([p, g, rows, columns, np.float32(0.9), np.float32(0.01)], want, {}, 1e-4, (B,))


@wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
def compensated(
    p: wd.Memory[N, BF16], lost: wd.Memory[N, BF16], g: wd.Memory[N, BF16], m: wd.Memory[N, BF16],
    v: wd.Memory[N, BF16], average: wd.Memory[N, F32], rate: wd.Scalar[F32], step: wd.Scalar[I32],
):  # fmt: skip
    """AdamW in halves, with what rounding lost kept for the next step (Kahan), and an average of the weights."""
    grad = wd.cast(wd.read(g), F32)
    first = 0.9 * wd.cast(wd.read(m), F32) + 0.1 * grad
    second = 0.95 * wd.cast(wd.read(v), F32) + 0.05 * grad * grad
    wd.write(wd.cast(first, BF16), m)
    wd.write(wd.cast(second, BF16), v)
    t = wd.cast(step, F32)
    update = first / (1 - 0.9**t) / (wd.sqrt(second / (1 - 0.95**t)) + 1e-8)
    old = wd.cast(wd.read(p), F32)
    change = wd.cast(wd.read(lost), F32) - rate * (update + 0.1 * old)
    new = wd.cast(old + change, BF16)
    wd.write(wd.cast(change - (wd.cast(new, F32) - old), BF16), lost)
    wd.write(new, p)
    seen = wd.read(average)
    wd.write(seen + 0.01 * (wd.cast(new, F32) - seen), average)


def compensated_case(n: int) -> Case:
    p, g, m = normal(n, dtype=HALF), normal(n, seed=1, dtype=HALF), normal(n, seed=2, dtype=HALF, scale=0.1)
    v, lost = np.abs(normal(n, seed=3, scale=0.1)).astype(HALF), normal(n, seed=4, dtype=HALF, scale=1e-3)
    average = normal(n, seed=5)
    first, second = 0.9 * wide(m) + 0.1 * wide(g), 0.95 * wide(v) + 0.05 * wide(g) ** 2
    update = first / (1 - 0.9**3) / (np.sqrt(second / (1 - 0.95**3)) + 1e-8)
    exact = wide(p) + wide(lost) - 1e-3 * (update + 0.1 * wide(p))
    want = {0: exact, 3: first, 4: second, 5: wide(average) + 0.01 * (exact - average)}
    return Case([p, lost, g, m, v, average, np.float32(1e-3), np.int32(3)], want, {}, 8e-3, (N,))


# ---- newer layers


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(D, 16, 0), wd.TilingConstraint(T, 16)])
def minimal_gru(
    z: wd.Memory[B, T, D, F16], h: wd.Memory[B, T, D, F16], first: wd.Memory[B, D, F32], y: wd.Memory[B, T, D, F16],
    last: wd.Memory[B, D, F32],
):  # fmt: skip
    """Gates that see the input alone, so that a scan over logarithms does all steps of a tile."""
    def logistic(x):
        return -wd.maximum(-x, 0.0) - wd.log1p(wd.exp(-wd.abs(x)))

    def longer(a, b):
        fade, size = a[0] + b[0], a[1] + b[0]
        top, low = wd.maximum(size, b[1]), wd.minimum(size, b[1])
        return fade, wd.where(low == -math.inf, top, top + wd.log1p(wd.exp(low - top)))

    @wd.iterate(T, init_args=[wd.log(wd.read(first))])
    def state(before):
        gate, x = wd.cast(wd.read(z), F32), wd.cast(wd.read(h), F32)
        new = wd.where(x >= 0, wd.log(wd.maximum(x, 0.0) + 0.5), logistic(x))
        fade, level = wd.scan((logistic(-gate), logistic(gate) + new), longer, (0.0, -math.inf), dim=T)
        kept = fade + before
        top, low = wd.maximum(kept, level), wd.minimum(kept, level)
        now = top + wd.log1p(wd.exp(low - top))
        wd.write(wd.cast(wd.exp(now), F16), y)
        end = wd.minimum(wd.tile_stop(T), T) - 1
        return wd.sum(wd.where(wd.index(T) == end, now, 0.0), dim=T)

    wd.write(wd.exp(state), last)


def minimal_case(b: int, t: int, d: int) -> Case:
    z, h = normal(2, b, t, d, dtype=np.float16)
    first = np.random.default_rng(1).random((b, d)).astype(np.float32) + np.float32(0.1)
    now, want = wide(first), np.zeros((b, t, d))
    for i in range(t):
        gate, x = sigmoid(z[:, i]), wide(h[:, i])
        now = (1 - gate) * now + gate * np.where(x >= 0, x + 0.5, sigmoid(x))
        want[:, i] = now
    outputs = np.zeros_like(z), np.zeros_like(first)
    return Case([z, h, first, *outputs], {3: want, 4: now}, {}, 5e-3, (B, T))


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.TilingConstraint(T, 16)],
         subs={S: 16})  # fmt: skip
def faded_columns(
    r: wd.Memory[B, T, H, D, F32], k: wd.Memory[B, T, H, D, F32], v: wd.Memory[B, T, H, E, F32],
    w: wd.Memory[B, T, H, D, F32], bonus: wd.Memory[H, D, F32], o: wd.Memory[B, T, H, E, F32],
    state: wd.Memory[B, H, D, E, F32],
):  # fmt: skip
    """RWKV-6 by chunks: w are logarithms of what each column keeps; a token sees its own key by a bonus."""
    @wd.iterate(T, init_args=[wd.read(state)])
    def chunks(now):
        fades = wd.read(w)
        level = wd.cumsum(fades, dim=T)
        before, end = level - fades, wd.sum(fades, dim=T)
        first = wd.tile_start(T)
        place = first + wd.index(S)
        queries = wd.read(r) * wd.exp(before)
        keys = wd.read(k[:, place, :, :])
        values = wd.read(v[:, place, :, :])
        early = keys * wd.exp(-wd.cumsum(wd.read(w[:, place, :, :]), dim=S))
        t = wd.index(T) - first
        scores = wd.mma(queries, early, wd.Register[T, S, F32](0.0), precision="3xtf32")
        own = wd.sum(wd.read(r) * wd.read(k) * wd.read(bonus), dim=D)
        scores = wd.where(t > wd.index(S), scores, wd.where(t == wd.index(S), own, 0.0))
        out = wd.mma(queries, now, wd.Register[T, E, F32](0.0), precision="3xtf32")
        wd.write(wd.mma(scores, values, out, precision="3xtf32"), o)
        late = wd.read(k) * wd.exp(end - level)
        return wd.mma(late, wd.read(v), now * wd.exp(end), precision="3xtf32")

    wd.write(chunks, state)


def faded_case(b: int, t: int, h: int, d: int, e: int) -> Case:
    r, k, v = (normal(b, t, h, n, seed=i) for i, n in enumerate((d, d, e)))
    w, bonus = -np.abs(normal(b, t, h, d, seed=3, scale=0.3)), normal(h, d, seed=4)
    state = normal(b, h, d, e, seed=5)
    now, want = wide(state), np.zeros((b, t, h, e))
    for i in range(t):
        kv = wide(k[:, i])[..., None] * v[:, i][:, :, None]
        want[:, i] = ((now + bonus[..., None] * kv) * wide(r[:, i])[..., None]).sum(2)
        now = now * np.exp(wide(w[:, i]))[..., None] + kv
    return Case([r, k, v, w, bonus, np.zeros(want.shape, np.float32), state], {5: want, 6: now}, {}, 2e-3, (B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(Y, 1, 0)],
         subs={I: 7, J: 7})  # fmt: skip
def neighbourhood(
    q: wd.Memory[B, H, Y, X, D, F16], k: wd.Memory[B, H, Y, X, D, F16], v: wd.Memory[B, H, Y, X, D, F16],
    bias: wd.Memory[H, P, Q, F32], o: wd.Memory[B, H, Y, X, D, F16],
):  # fmt: skip
    """NATTEN: each pixel looks at the 7 x 7 around it, moved so that they lie in the picture."""
    y, x = wd.index(Y), wd.index(X)
    top = wd.clamp(y - 3, 0, Y - 7)
    left = wd.clamp(x - 3, 0, X - 7)
    row, column = top + wd.index(I), left + wd.index(J)
    keys = wd.cast(wd.read(k[:, :, row, column, :]), F32)
    offset = wd.read(bias[:, row - y + 6, column - x + 6])
    s = wd.sum(keys * wd.cast(wd.read(q), F32), dim=D) * D**-0.5 + offset
    s = s - wd.max(s, dim=(I, J))
    p = wd.exp(s)
    p = p / wd.sum(p, dim=(I, J))
    values = wd.cast(wd.read(v[:, :, row, column, :]), F32)
    wd.write(wd.cast(wd.sum(p * values, dim=(I, J)), F16), o)


def neighbourhood_case(b: int, h: int, y: int, x: int, d: int) -> Case:
    q, k, v = normal(3, b, h, y, x, d, dtype=np.float16)
    bias, want = normal(h, 13, 13, seed=1), np.zeros((b, h, y, x, d))
    for i in range(y):
        for j in range(x):
            t, s = np.clip(i - 3, 0, y - 7), np.clip(j - 3, 0, x - 7)
            keys, values = (wide(m[:, :, t : t + 7, s : s + 7]).reshape(b, h, 49, d) for m in (k, v))
            z = (keys * wide(q[:, :, i, j])[:, :, None]).sum(3) * d**-0.5
            z = z + bias[:, t - i + 6 : t - i + 13, s - j + 6 : s - j + 13].reshape(h, 49)
            want[:, :, i, j] = (softmax(z)[..., None] * values).sum(2)
    return Case([q, k, v, bias, np.zeros_like(q)], {4: want}, {}, 5e-3, (B, H))


@wd.wave([wd.WorkgroupConstraint(T, 4, 0), wd.WorkgroupConstraint(H, 1, 1)], subs={J: 16})
def part_turned(
    x: wd.Memory[T, H, D, BF16], gain: wd.Memory[D, F32], position: wd.Memory[T, I32], base: wd.Scalar[F32],
    low: wd.Scalar[F32], high: wd.Scalar[F32], factor: wd.Scalar[F32],
):  # fmt: skip
    """In place: a norm over a head, then its first 2 J numbers turned in pairs of neighbours, slow turns stretched
    (YaRN); the rest stays."""
    row = wd.cast(wd.read(x), F32)
    row = row * wd.rsqrt(wd.sum(row * row, dim=D) / D + 1e-6) * (1 + wd.read(gain))
    wd.write(wd.cast(row, BF16), x)
    j = wd.cast(wd.index(J), F32)
    speed = wd.exp2(-wd.log2(base) * j / J)
    ramp = wd.clamp((j - low) / (high - low), 0.0, 1.0)
    speed = speed * (1 - ramp) + speed / factor * ramp
    angle = wd.cast(wd.read(position), F32) * speed
    c, s = wd.cos(angle), wd.sin(angle)
    even, odd = (wd.extract(row, {D: (J, i, 2)}) for i in (0, 1))
    wd.write(wd.cast(even * c - odd * s, BF16), x[:, :, 0 : 2 * J : 2])
    wd.write(wd.cast(odd * c + even * s, BF16), x[:, :, 1 : 2 * J : 2])


def part_case(t: int, h: int, d: int) -> Case:
    x, gain = normal(t, h, d, dtype=HALF), normal(d, seed=1, scale=0.1)
    position = np.random.default_rng(2).integers(0, 100, t).astype(np.int32)
    row = wide(x) / np.sqrt((wide(x) ** 2).mean(2, keepdims=True) + 1e-6) * (1 + gain)
    j = np.arange(16)
    speed, ramp = 10000.0 ** (-j / 16), np.clip((j - 4) / 8, 0, 1)
    angle = position[:, None, None] * (speed * (1 - ramp) + speed / 4 * ramp)
    c, s = np.cos(angle), np.sin(angle)
    want = row.copy()
    want[..., 0:32:2] = row[..., 0:32:2] * c - row[..., 1:32:2] * s
    want[..., 1:32:2] = row[..., 1:32:2] * c + row[..., 0:32:2] * s
    numbers = [np.float32(z) for z in (10000, 4, 12, 4)]
    return Case([x, gain, position, *numbers], {0: want}, {}, 2e-2, (T, H))


KERNELS = {
    "compensated": (compensated, compensated_case, ((256,), (1001,))),
    "weighted-entropy": (weighted_entropy, entropy_case, ((4, 512), (5, 701))),
    "focal": (focal, focal_case, ((64, 32), (75, 33))),
    "transducer": (transducer, transducer_case, ((2, 8, 8), (3, 11, 6))),
    "batch-norm-back": (batch_norm_back, batch_back_case, ((64, 64), (101, 75))),
    "group-norm-back": (group_norm_back, group_back_case, ((2, 2, 4, 64), (2, 2, 5, 45))),
    "dropped-norm": (dropped_norm, dropped_case, ((4, 256), (7, 333))),
    "largest-of-bags": (largest_of_bags, largest_case, (((5, 9, 3), 20, 64), ((7, 0, 12, 1), 33, 100))),
    "gelu-gate-back": (gelu_gate_back, gelu_case, ((8, 128), (11, 301))),
    "factored-moments": (factored_moments, factored_case, ((2, 16, 32), (3, 21, 45))),
    "minimal-gru": (minimal_gru, minimal_case, ((2, 43, 21),)),
    "faded-columns": (faded_columns, faded_case, ((1, 48, 1, 24, 16),)),
    "neighbourhood": (neighbourhood, neighbourhood_case, ((1, 2, 8, 16, 32), (2, 1, 9, 11, 24))),
    "part-turned": (part_turned, part_case, ((4, 2, 64), (9, 3, 80))),
}


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)
