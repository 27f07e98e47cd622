"""Kernels of filters, transforms, losses and optimisers, against NumPy and the evaluator."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from families import Case, both_tests, normal, whole, wide

import wavedsl as wd

B, C, I, J, M, N, P, Q, S, T, V, X, Y = wd.symbols("B C I J M N P Q S T V X Y")
F16, BF16, F32, I8, I32 = wd.f16, wd.bf16, wd.f32, wd.i8, wd.i32
HALF = ml_dtypes.bfloat16


# ---- the largest so far and where it was; a decayed maximum of a signal from both ends


@wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
def best_so_far(x: wd.Memory[M, N, F32], top: wd.Memory[M, N, F32], at: wd.Memory[M, N, I32]):
    def later(a, b):
        take = b[0] > a[0]
        return wd.where(take, b[0], a[0]), wd.where(take, b[1], a[1])

    v = wd.read(x)
    best, where = wd.scan((v, wd.broadcast(wd.index(N), M, N)), later, (-math.inf, -1), dim=N)
    wd.write(best, top)
    wd.write(where, at)


def best_case(m: int, n: int) -> Case:
    x = whole(m, n, dtype=np.float32, low=-9, high=9)
    top = np.maximum.accumulate(x, 1)
    at = np.array([[row[: i + 1].argmax() for i in range(n)] for row in x], np.int32)
    return Case([x, np.zeros_like(x), np.zeros_like(at)], {1: top, 2: at}, dynamic=(M,))


@wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
def envelope(x: wd.Memory[M, N, F32], keep: wd.Scalar[F32], y: wd.Memory[M, N, F32]):
    # (level, age): a level is worth keep ** age less
    def joined(a, b):
        return wd.maximum(a[0] * b[1], b[0]), a[1] * b[1]

    v = abs(wd.read(x))
    fade = wd.broadcast(wd.Register[M, F32](1.0) * keep, M, N)
    ahead = wd.scan((v, fade), joined, (0.0, 1.0), dim=N)[0]
    behind = wd.scan((v, fade), joined, (0.0, 1.0), dim=N, reverse=True)[0]
    wd.write(wd.maximum(ahead, behind), y)


def envelope_case(m: int, n: int) -> Case:
    x = normal(m, n)
    age = np.abs(np.arange(n)[:, None] - np.arange(n))
    want = (np.abs(wide(x))[:, None] * np.float64(np.float32(0.9)) ** age).max(2)
    return Case([x, 0.9, np.zeros_like(x)], {2: want}, slack=1e-5, dynamic=(M,))


# ---- pictures: each channel's own filter, and the gradient of a norm of each channel


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(Y, 4, 1), wd.WorkgroupConstraint(X, 8, 0),
          wd.WorkgroupConstraint(C, 32, 0)])  # fmt: skip
def own_filters(
    x: wd.Memory[B, Y, X, C, F16], w: wd.Memory[P, Q, C, F16], bias: wd.Memory[C, F32], y: wd.Memory[B, Y, X, C, F16]
):
    total = wd.broadcast(wd.read(bias), Y, X, C)
    for i in range(3):
        for j in range(3):
            there = wd.IndexMapping((Y, X, C), {B: B, Y: Y + i - 1, X: X + j - 1, C: C})
            total = wd.fma(wd.cast(wd.read(x, mapping=there), F32), wd.cast(wd.read(w[i, j, :]), F32), total)
    wd.write(wd.cast(wd.clamp(total, 0.0, 6.0), F16), y)


def filters_case(b: int, y: int, x: int, c: int) -> Case:
    v, w, bias = whole(b, y, x, c), whole(3, 3, c, seed=1), normal(c, seed=2)
    padded = np.pad(wide(v), ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = sum(padded[:, i : i + y, j : j + x] * wide(w)[i, j] for i in range(3) for j in range(3)) + wide(bias)
    return Case([v, w, bias, np.zeros_like(v)], {3: np.clip(want, 0, 6)}, {P: 3, Q: 3}, slack=2e-3, dynamic=(Y,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(C, 4, 0), wd.TilingConstraint(S, 64)])
def channel_norm_gradient(
    x: wd.Memory[B, C, S, F32], g: wd.Memory[B, C, S, F32], scale: wd.Memory[C, F32], dx: wd.Memory[B, C, S, F32],
    dscale: wd.Memory[C, F32],
):  # fmt: skip
    zero = wd.Register[C, F32](0.0)

    @wd.iterate(S, init_args=[zero, zero, zero, zero])
    def sums(a, b, c, d):
        v, u = wd.read(x), wd.read(g)
        return a + wd.sum(v, dim=S), b + wd.sum(v * v, dim=S), c + wd.sum(u, dim=S), d + wd.sum(u * v, dim=S)

    a, b, c, d = sums
    mean = a / S
    inv = wd.rsqrt(b / S - mean * mean + 1e-5)
    along = (d - mean * c) * inv
    wd.atomic_add(along, dscale)
    gain = wd.read(scale) * inv

    @wd.iterate(S)
    def written():
        normed = (wd.read(x) - mean) * inv
        wd.write(gain * (wd.read(g) - c / S - normed * (along / S)), dx)


def channel_norm_case(b: int, c: int, s: int) -> Case:
    x, g, scale = normal(b, c, s), normal(b, c, s, seed=1), normal(c, seed=2)
    v, u = wide(x), wide(g)
    inv = 1 / np.sqrt(v.var(2, keepdims=True) + 1e-5)
    normed = (v - v.mean(2, keepdims=True)) * inv
    along = (u * normed).sum(2, keepdims=True)
    dx = wide(scale)[:, None] * inv * (u - u.mean(2, keepdims=True) - normed * along / s)
    arrays = [x, g, scale, np.zeros_like(x), np.zeros(c, np.float32)]
    return Case(arrays, {3: dx, 4: along.sum((0, 2))}, slack=2e-4, dynamic=(B,))


# ---- transforms: 64 points as 8 by 8, by two products with factors between


@wd.wave([wd.WorkgroupConstraint(T, 1, 0)], subs={I: 8, J: 8, P: 8, Q: 8})
def points(
    x: wd.Memory[T, P, I, J, F32], dft: wd.Memory[P, I, Q, F32], turn: wd.Memory[P, Q, J, F32],
    y: wd.Memory[T, P, V, Q, F32],
):  # fmt: skip
    """Complex numbers are planes: x[t, 0] and x[t, 1]. Points are 8 i + j, results q + 8 v."""
    xr, xi = wd.read(x[T, 0, :, :]), wd.read(x[T, 1, :, :])
    fr, fi = wd.read(dft[0, :, :]), wd.read(dft[1, :, :])
    ar = wd.sum(xr * fr - xi * fi, dim=I)
    ai = wd.sum(xr * fi + xi * fr, dim=I)
    tr, ti = wd.read(turn[0, :, :]), wd.read(turn[1, :, :])
    br, bi = ar * tr - ai * ti, ar * ti + ai * tr
    there = wd.IndexMapping((J, V), {P: 0, I: J, Q: V})
    gr = wd.read(dft, mapping=there)
    gi = wd.read(dft, mapping=wd.IndexMapping((J, V), {P: 1, I: J, Q: V}))
    wd.write(wd.sum(br * gr - bi * gi, dim=J), y[T, 0, :, :])
    wd.write(wd.sum(br * gi + bi * gr, dim=J), y[T, 1, :, :])


def points_case(t: int) -> Case:
    x = normal(t, 2, 8, 8)
    z = (wide(x)[:, 0] + 1j * wide(x)[:, 1]).reshape(t, 64)
    want = np.fft.fft(z).reshape(t, 8, 8)  # [t, v, q]
    i, q = np.arange(8)[:, None], np.arange(8)
    f = np.exp(-2j * np.pi * i * q / 8)
    turn = np.exp(-2j * np.pi * q[:, None] * q / 64)
    planes = [np.stack([a.real, a.imag]).astype(np.float32) for a in (f, turn)]
    out = np.stack([want.real, want.imag], 1)
    return Case([x, *planes, np.zeros((t, 2, 8, 8), np.float32)], {3: out}, {P: 2, V: 8}, slack=1e-4)


# ---- small systems: a filter's step of each track, two numbers and their covariance


@wd.wave([wd.WorkgroupConstraint(M, 128, 0)], subs={I: 2, J: 2})
def track(
    state: wd.Memory[M, I, F32], cov: wd.Memory[M, I, J, F32], seen: wd.Memory[M, F32], there: wd.Memory[M, I8],
    step: wd.Scalar[F32], drift: wd.Scalar[F32], noise: wd.Scalar[F32],
):  # fmt: skip
    place, speed = wd.read(state[:, 0]), wd.read(state[:, 1])
    a, b, d = wd.read(cov[:, 0, 0]), wd.read(cov[:, 0, 1]), wd.read(cov[:, 1, 1])
    place = place + step * speed
    a, b, d = a + step * (b + b + step * d) + drift, b + step * d, d + drift
    gain, more = a / (a + noise), b / (a + noise)
    seeing = wd.read(there) != 0
    off = wd.where(seeing, wd.read(seen) - place, 0.0)
    gain, more = wd.where(seeing, gain, 0.0), wd.where(seeing, more, 0.0)
    wd.write(place + gain * off, state[:, 0])
    wd.write(speed + more * off, state[:, 1])
    wd.write((1.0 - gain) * a, cov[:, 0, 0])
    wd.write((1.0 - gain) * b, cov[:, 0, 1])
    wd.write((1.0 - gain) * b, cov[:, 1, 0])
    wd.write(d - more * b, cov[:, 1, 1])


def track_case(m: int) -> Case:
    state, seen = normal(m, 2), normal(m, seed=1)
    root = normal(m, 2, 2, seed=2)
    cov = (root @ root.transpose(0, 2, 1) + np.eye(2)).astype(np.float32)
    there = whole(m, seed=3, dtype=np.int8, low=0, high=2)
    step, drift, noise = 0.5, 0.25, 2.0
    f = np.array([[1, step], [0, 1]])
    s = wide(state) @ f.T
    p = f @ wide(cov) @ f.T + drift * np.eye(2)
    gain = np.where(there[:, None] != 0, p[:, :, 0] / (p[:, :1, 0] + noise), 0)
    s = s + gain * (wide(seen) - s[:, 0])[:, None]
    p = p - gain[:, :, None] * p[:, :1, :]
    return Case([state, cov, seen, there, step, drift, noise], {0: s, 1: p}, slack=2e-5, dynamic=(M,))


# ---- training: gradients of a gate in bytes with a scale per row; a loss of tokens that count; an optimiser


@wd.wave([wd.WorkgroupConstraint(M, 2, 0)])
def gate_gradient(
    gate: wd.Memory[M, N, BF16], up: wd.Memory[M, N, BF16], g: wd.Memory[M, N, BF16], out: wd.Memory[M, 2 * N, I8],
    scale: wd.Memory[M, F32],
):  # fmt: skip
    a, u, d = (wd.cast(wd.read(x), F32) for x in (gate, up, g))
    s = wd.sigmoid(a)
    da, du = d * u * s * (1.0 + a * (1.0 - s)), d * a * s
    top = wd.maximum(wd.max(abs(da), dim=N), wd.max(abs(du), dim=N))
    step = wd.maximum(top, 1e-12) * (1 / 127)
    wd.write(step, scale)
    wd.write(wd.cast(wd.round(da / step), I8), out[:, :N])
    wd.write(wd.cast(wd.round(du / step), I8), out[:, N:])


def gate_case(m: int, n: int) -> Case:
    a, u, d = (normal(m, n, seed=i, dtype=HALF) for i in range(3))
    x, y, z = wide(a), wide(u), wide(d)
    s = 1 / (1 + np.exp(-x))
    both = np.concatenate([z * y * s * (1 + x * (1 - s)), z * x * s], 1)
    step = np.abs(both).max(1) / 127
    codes = np.round(both / step[:, None])
    arrays = [a, u, d, np.zeros((m, 2 * n), np.int8), np.zeros(m, np.float32)]
    # Codes may be one off where a gradient lies between two.
    return Case(arrays, {3: codes, 4: step}, slack=1.0)


@wd.wave([wd.WorkgroupConstraint(T, 1, 0), wd.TilingConstraint(V, 256)])
def loss_gradient(
    x: wd.Memory[T, V, BF16], label: wd.Memory[T, I32], dx: wd.Memory[T, V, BF16], loss: wd.Memory[1, F32],
    count: wd.Memory[1, I32], skipped: wd.Scalar[I32],
):  # fmt: skip
    mine = wd.read(label)
    counts = mine != skipped
    start = (wd.Register[F32](-math.inf), wd.Register[F32](0.0), wd.Register[F32](0.0))

    @wd.iterate(V, init_args=start)
    def level(top, total, own):
        v = wd.cast(wd.read(x), F32)
        inside = wd.index(V) < V
        high = wd.maximum(top, wd.max(wd.where(inside, v, -math.inf), dim=V))
        total = total * wd.exp(top - high) + wd.sum(wd.where(inside, wd.exp(v - high), 0.0), dim=V)
        return high, total, own + wd.sum(wd.where(wd.index(V) == mine, v, 0.0), dim=V)

    top, total, own = level
    wd.atomic_add(wd.where(counts, top + wd.log(total) - own, 0.0), loss[0])
    wd.atomic_add(wd.where(counts, 1, 0), count[0])

    @wd.iterate(V)
    def written():
        share = wd.exp(wd.cast(wd.read(x), F32) - top) / total
        d = share - wd.where(wd.index(V) == mine, 1.0, 0.0)
        wd.write(wd.cast(wd.where(counts, d, 0.0), BF16), dx)


def loss_case(t: int, v: int) -> Case:
    x = normal(t, v, dtype=HALF, scale=3)
    label = np.random.default_rng(t).integers(0, v, t).astype(np.int32)
    label[::3] = -100
    w = wide(x)
    share = np.exp(w - w.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    counts = label != -100
    hot = np.zeros((t, v))
    hot[counts, label[counts]] = 1
    loss = -np.log(share[counts, label[counts]]).sum()
    arrays = [x, label, np.zeros_like(x), np.zeros(1, np.float32), np.zeros(1, np.int32), -100]
    wants = {2: (share - hot) * counts[:, None], 3: np.array([loss]), 4: np.array([counts.sum()], np.int32)}
    return Case(arrays, wants, slack=4e-3, dynamic=(T,))


@wd.wave([wd.WorkgroupConstraint(N, 512, 0)])
def signed_step(
    w: wd.Memory[N, BF16], m: wd.Memory[N, F32], g: wd.Memory[N, BF16], rate: wd.Scalar[F32], keep: wd.Scalar[F32]
):  # fmt: skip
    grad, before, weight = wd.cast(wd.read(g), F32), wd.read(m), wd.cast(wd.read(w), F32)
    blend = keep * before + (1.0 - keep) * grad
    sign = wd.where(blend > 0, 1.0, wd.where(blend < 0, -1.0, 0.0))
    wd.write(wd.cast(weight * (1.0 - 0.5 * rate) - rate * sign, BF16), w)
    wd.write(0.99 * before + 0.01 * grad, m)


def signed_case(n: int) -> Case:
    w, m, g = normal(n, dtype=HALF), normal(n, seed=1), normal(n, seed=2, dtype=HALF)
    blend = 0.875 * wide(m) + 0.125 * wide(g)
    want = wide(w) * (1 - 0.5 * 0.25) - 0.25 * np.sign(blend)
    return Case([w, m, g, 0.25, 0.875], {0: want, 1: 0.99 * wide(m) + 0.01 * wide(g)}, slack=8e-3, dynamic=(N,))


KERNELS = {
    "best so far": (best_so_far, best_case, [(4, 64), (7, 150)]),
    "envelope": (envelope, envelope_case, [(4, 64), (6, 77)]),
    "own filters": (own_filters, filters_case, [(1, 4, 8, 32), (2, 7, 13, 40)]),
    "channel norm gradient": (channel_norm_gradient, channel_norm_case, [(2, 4, 128), (3, 6, 150)]),
    "points": (points, points_case, [(2,), (5,)]),
    "track": (track, track_case, [(128,), (200,)]),
    "gate gradient": (gate_gradient, gate_case, [(4, 256), (5, 300)]),
    "loss gradient": (loss_gradient, loss_case, [(4, 512), (7, 700)]),
    "signed step": (signed_step, signed_case, [(1024,), (1300,)]),
}

test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)
