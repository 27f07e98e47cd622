"""Attention and states of recent models: two maps that are subtracted, gates that forget, shifted windows of pictures,
caches in four bits, weights that learn while they read, gradients of recurrences and of biases, parts joined again."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from families import Case, both_tests, normal, wide

import wavedsl as wd

B, D, E, G, H, K, L, M, N, O, P, Q, R, S, T, V, W, X, Y = wd.symbols("B D E G H K L M N O P Q R S T V W X Y")
F16, BF16, F32, I32 = wd.f16, wd.bf16, wd.f32, wd.i32
HALF = ml_dtypes.bfloat16


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---- two softmaxes of which one is subtracted, and the norm of each head


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(M, 64, 0),
          wd.TilingConstraint(N, 32)])  # fmt: skip
def differential(
    q: wd.Memory[B, M, H, P, D, BF16], k: wd.Memory[B, N, H, P, D, BF16], v: wd.Memory[B, N, H, E, BF16],
    share: wd.Memory[H, F32], weight: wd.Memory[E, F32], o: wd.Memory[B, M, H, E, BF16],
):  # fmt: skip
    one, out = wd.Register[M, F32], wd.Register[M, E, F32](0.0)

    @wd.iterate(N, init_args=[one(-1e30), one(0.0), out, one(-1e30), one(0.0), out])
    def keys(*state):
        values = wd.read(v)
        new: list[Any] = []
        for i in (0, 1):
            top, total, acc = state[3 * i : 3 * i + 3]
            scores = wd.mma(wd.read(q[:, :, :, i, :]), wd.read(k[:, :, :, i, :]), wd.Register[M, N, F32](0.0)) * D**-0.5
            scores = wd.where(wd.index(M) >= wd.index(N), scores, -1e30)
            higher = wd.maximum(top, wd.max(scores, dim=N))
            p, keep = wd.exp(scores - higher), wd.exp(top - higher)
            new += [higher, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, BF16), values, acc * keep)]
        return new

    _, first_total, first, _, second_total, second = keys
    y = first / first_total - wd.read(share) * (second / second_total)
    y = y * wd.rsqrt(wd.sum(y * y, dim=E) / E + 1e-5) * wd.read(weight) * 0.2
    wd.write(wd.cast(y, BF16), o)


def differential_case(b: int, m: int, h: int, d: int, e: int) -> Case:
    q, k = normal(b, m, h, 2, d, dtype=HALF), normal(b, m, h, 2, d, seed=1, dtype=HALF)
    v, share, weight = normal(b, m, h, e, seed=2, dtype=HALF), np.abs(normal(h, seed=3)), normal(e, seed=4)
    scores = np.einsum("bmhpd,bnhpd->bhpmn", wide(q), wide(k)) * d**-0.5
    scores = np.where(np.tri(m, dtype=bool), scores, -np.inf)
    p = softmax(scores)
    y = np.einsum("bhmn,bnhe->bmhe", p[:, :, 0] - wide(share)[:, None, None] * p[:, :, 1], wide(v))
    y = y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-5) * weight * 0.2
    return Case([q, k, v, share, weight, np.zeros(y.shape, HALF)], {5: y}, {P: 2}, 2e-2, (B, M, N))


# ---- gates that forget: a bias of running sums, capped scores, groups of queries


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(G, 1, 1), wd.WorkgroupConstraint(M, 32, 0),
          wd.TilingConstraint(N, 32)])  # fmt: skip
def forgetting(
    q: wd.Memory[B, M, G, R, D, F16], k: wd.Memory[B, N, G, D, F16], v: wd.Memory[B, N, G, D, F16],
    gate: wd.Memory[B, N, G, R, F32], gate_of_rows: wd.Memory[B, M, G, R, F32], o: wd.Memory[B, M, G, R, D, F16],
    level: wd.Memory[B, G, R, M, F32],
):  # fmt: skip
    """`gate`: sums of log gates up to each place."""
    for r in range(2):
        query = wd.read(q[:, :, :, r, :])
        mine = wd.read(gate_of_rows[:, :, :, r])

        @wd.iterate(N, init_args=[wd.Register[M, F32](-1e30), wd.Register[M, F32](0.0), wd.Register[M, D, F32](0.0)],
                    stop=wd.tile_stop(M), per_wave=True)  # fmt: skip
        def keys(top, total, acc, r=r, query=query, mine=mine):
            scores = wd.mma(query, wd.read(k), wd.Register[M, N, F32](0.0)) * D**-0.5
            scores = 20.0 * wd.tanh(scores / 20.0) + mine - wd.read(gate[:, :, :, r])
            scores = wd.where(wd.index(M) >= wd.index(N), scores, -1e30)
            higher = wd.maximum(top, wd.max(scores, dim=N))
            p, keep = wd.exp(scores - higher), wd.exp(top - higher)
            return higher, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, F16), wd.read(v), acc * keep)

        top, total, acc = keys
        wd.write(wd.cast(acc / total, F16), o[:, :, :, r, :])
        wd.write(top + wd.log(total), level[:, :, r, :])


def forgetting_case(b: int, m: int, g: int, d: int) -> Case:
    q, k, v = (normal(b, m, g, *n, d, seed=i, dtype=np.float16) for i, n in enumerate(((2,), (), ())))
    gate = np.cumsum(-np.log1p(np.exp(-normal(b, m, g, 2, seed=4) - 2)), 1).astype(np.float32)
    scores = np.einsum("bmgrd,bngd->bgrmn", wide(q), wide(k)) * d**-0.5
    c = wide(gate).transpose(0, 2, 3, 1)
    scores = 20 * np.tanh(scores / 20) + c[..., :, None] - c[..., None, :]
    scores = np.where(np.tri(m, dtype=bool), scores, -np.inf)
    o = np.einsum("bgrmn,bngd->bmgrd", softmax(scores), wide(v))
    arguments = [q, k, v, gate, gate.copy(), np.zeros(o.shape, np.float16), np.zeros((b, g, 2, m), np.float32)]
    return Case(arguments, {5: o, 6: np.log(np.exp(scores).sum(-1))}, {R: 2}, 5e-3, (B, M, N))


# ---- windows of a picture that are shifted, with a table of biases for relative places


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(P, 1, 0),
          wd.WorkgroupConstraint(M, 64, 0)],
         subs={M: 49, N: 49})  # fmt: skip
def shifted_windows(
    qkv: wd.Memory[B, Y, X, O, H, D, F16], bias: wd.Memory[K, H, F32], o: wd.Memory[B, Y, X, H, D, F16],
    windows: wd.Memory[P, I32],
):  # fmt: skip
    """7 x 7 places each, the picture rolled by 3 up and to the left; what was rolled round sees only its like."""
    p = wd.read(windows)
    across = X // 7

    def place(dim):
        i = wd.index(dim)
        return p // across * 7 + i // 7, p % across * 7 + i % 7

    def region(at, extent):
        return wd.where(at < extent - 7, 0, wd.where(at < extent - 3, 1, 2))

    (my, mx), (ny, nx) = place(M), place(N)

    def part(i, dim, y, x):
        there = {B: B, Y: (y + 3) % Y, X: (x + 3) % X, O: i, H: H, D: D}
        return wd.read(qkv, mapping=wd.IndexMapping((dim, D), there))

    scores = wd.mma(part(0, M, my, mx), part(1, N, ny, nx), wd.Register[M, N, F32](0.0)) * D**-0.5
    relative = (my - ny + 6) * 13 + mx - nx + 6
    scores = scores + wd.read(bias, mapping=wd.IndexMapping((M, N), {K: relative, H: H}))
    alike = (region(my, Y) == region(ny, Y)) & (region(mx, X) == region(nx, X))
    p = wd.softmax(wd.where(alike, scores, -100.0), dim=N)
    out = wd.mma(wd.cast(p, F16), part(2, N, ny, nx), wd.Register[M, D, F32](0.0))
    there = {B: B, Y: (my + 3) % Y, X: (mx + 3) % X, H: H, D: D}
    wd.write(wd.cast(out, F16), o, mapping=wd.IndexMapping((M, D), there))


def windows_case(b: int, y: int, x: int, h: int, d: int) -> Case:
    qkv, bias = normal(b, y, x, 3, h, d, dtype=np.float16), normal(169, h, seed=1)
    count = y // 7 * (x // 7)
    rolled = np.roll(wide(qkv), (-3, -3), (1, 2))

    def cut(z):
        z = z.reshape(*z.shape[:-2], y // 7, 7, x // 7, 7).swapaxes(-2, -3)
        return z.reshape(*z.shape[:-4], count, 49)

    q, k, v = np.moveaxis(cut(np.moveaxis(rolled, (1, 2), (-2, -1))), 1, 0)  # [b, h, d, windows, places]
    j, i = (a.ravel() for a in np.mgrid[:7, :7])
    relative = (j[:, None] - j + 6) * 13 + i[:, None] - i + 6
    like = [np.digitize(np.arange(n), (n - 7, n - 3)) for n in (y, x)]
    like = cut(like[0][:, None] * 3 + like[1])
    scores = np.einsum("bhdpm,bhdpn->bhpmn", q, k) * d**-0.5 + wide(bias)[relative].transpose(2, 0, 1)[:, None]
    scores = np.where(like[:, :, None] == like[:, None], scores, -100)
    out = np.einsum("bhpmn,bhdpn->bhdpm", softmax(scores), v)
    out = out.reshape(b, h, d, y // 7, x // 7, 7, 7).swapaxes(-2, -3).reshape(b, h, d, y, x)
    out = np.roll(np.moveaxis(out, (-2, -1), (1, 2)), (3, 3), (1, 2))
    return Case([qkv, bias, np.zeros(out.shape, np.float16), np.arange(count, dtype=np.int32)], {2: out}, {O: 3}, 5e-3,
                (B, P))  # fmt: skip


# ---- a cache in four bits: keys scaled by channel, values by token


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(G, 1, 0), wd.TilingConstraint(N, 32)])
def four_bit_cache(
    q: wd.Memory[B, G, R, D, F16], k: wd.Memory[B, G, N, D, wd.u4], key_scale: wd.Memory[B, G, N / 32, D, F16],
    key_zero: wd.Memory[B, G, N / 32, D, F16], v: wd.Memory[B, G, N, E, wd.u4],
    value_scale: wd.Memory[B, G, N, E / 32, F16], value_zero: wd.Memory[B, G, N, E / 32, F16],
    length: wd.Memory[B, I32], o: wd.Memory[B, G, R, E, F32],
):  # fmt: skip
    one, last = wd.Register[R, F32], wd.read(length)
    query = wd.read(q)

    @wd.iterate(N, init_args=[one(-1e30), one(0.0), wd.Register[R, E, F32](0.0)], stop=last)
    def keys(top, total, acc):
        wide_key = wd.cast(wd.read(k), F16) * wd.repeat_interleave(wd.read(key_scale), N)
        key = wide_key + wd.repeat_interleave(wd.read(key_zero), N)
        scores = wd.mma(query, key, wd.Register[R, N, F32](0.0)) * D**-0.5
        scores = wd.where(wd.index(N) < last, scores, -1e30)
        higher = wd.maximum(top, wd.max(scores, dim=N))
        p, keep = wd.where(wd.index(N) < last, wd.exp(scores - higher), 0.0), wd.exp(top - higher)
        value = wd.cast(wd.read(v), F16) * wd.repeat_interleave(wd.read(value_scale), E)
        value = value + wd.repeat_interleave(wd.read(value_zero), E)
        return higher, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, F16), value, acc * keep)

    _, total, acc = keys
    wd.write(wd.where(total > 0, acc / total, 0.0), o)


def four_bit_case(lengths: tuple[int, ...], n: int, g: int, r: int, d: int, e: int) -> Case:
    b, rng = len(lengths), np.random.default_rng(0)
    q = normal(b, g, r, d, dtype=np.float16)
    k4, v4 = rng.integers(0, 16, (b, g, n, d)), rng.integers(0, 16, (b, g, n, e))
    ks, kz = ((rng.random((b, g, n // 32, d)) * 0.2 - low).astype(np.float16) for low in (0, 1))
    vs, vz = ((rng.random((b, g, n, e // 32)) * 0.2 - low).astype(np.float16) for low in (0, 1))
    key = (k4.astype(np.float16) * ks.repeat(32, 2) + kz.repeat(32, 2)).astype(float)
    value = (v4.astype(np.float16) * vs.repeat(32, 3) + vz.repeat(32, 3)).astype(float)
    o = np.zeros((b, g, r, e))
    for i, some in enumerate(lengths):
        if some:
            o[i] = softmax(wide(q)[i] @ key[i, :, :some].swapaxes(1, 2) * d**-0.5) @ value[i, :, :some]
    packed = [(x[..., ::2] | x[..., 1::2] << 4).astype(np.uint8) for x in (k4, v4)]
    arguments = [q, packed[0], ks, kz, packed[1], vs, vz, np.array(lengths, np.int32), np.zeros(o.shape, np.float32)]
    return Case(arguments, {8: o}, {D: d, E: e}, 5e-3, (B, N))


# ---- weights that learn while they read: a step of descent for each chunk, through a layer's norm


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(H, 1, 0), wd.TilingConstraint(T, 16)],
         subs={S: 16, L: 16})  # fmt: skip
def learned_while_reading(
    q: wd.Memory[B, H, T, D, F16], k: wd.Memory[B, H, T, D, F16], v: wd.Memory[B, H, T, E, F16],
    rate: wd.Memory[B, H, T, F32], gamma: wd.Memory[H, E, F32], start: wd.Memory[H, D, E, F32],
    o: wd.Memory[B, H, T, E, F32], state: wd.Memory[B, H, D, E, F32],
):  # fmt: skip
    factor = wd.read(gamma)

    @wd.iterate(T, init_args=[wd.read(start)])
    def chunks(weight):
        t = wd.tile_start(T)

        def chunk(array, dim):
            return wd.read(array[:, :, t : t + dim] if array is rate else array[:, :, t : t + dim, :])

        half = wd.cast(weight, F16)
        keys = chunk(k, L)
        z = wd.mma(keys, half, wd.Register[L, E, F32](0.0))
        mean = wd.sum(z, dim=E) / E
        size = wd.rsqrt(wd.sum((z - mean) * (z - mean), dim=E) / E + 1e-6)
        unit = (z - mean) * size
        error = (unit * factor - wd.cast(chunk(v, L), F32)) * factor
        grad = (error - wd.sum(error, dim=E) / E - unit * (wd.sum(error * unit, dim=E) / E)) * size * chunk(rate, L)
        grad = wd.cast(grad, F16)
        queries = wd.read(q)
        scores = wd.mma(queries, chunk(k, S), wd.Register[T, S, F32](0.0))
        scores = wd.where(wd.index(T) - t >= wd.index(S), scores, 0.0)
        out = wd.mma(queries, half, wd.Register[T, E, F32](0.0))
        wd.write(out - wd.mma(wd.cast(scores, F16), wd.reshape(grad, S, E), wd.Register[T, E, F32](0.0)), o)
        return weight - wd.mma(keys, grad, wd.Register[D, E, F32](0.0))

    wd.write(chunks, state)


def learned_case(b: int, h: int, t: int, d: int, e: int) -> Case:
    q, k, v = (normal(b, h, t, n, seed=i, scale=0.3, dtype=np.float16) for i, n in enumerate((d, d, e)))
    rate = np.random.default_rng(3).random((b, h, t)).astype(np.float32) * np.float32(0.1)
    gamma, start = normal(h, e, seed=4), normal(h, d, e, seed=5, scale=0.3)
    w, o = np.broadcast_to(wide(start), (b, h, d, e)).copy(), np.zeros((b, h, t, e))
    f = wide(gamma)[:, None]
    for i in range(0, t, 16):
        some = slice(i, min(i + 16, t))
        queries, keys = wide(q)[:, :, some], wide(k)[:, :, some]
        z = keys @ w
        size = 1 / np.sqrt(z.var(-1, keepdims=True) + 1e-6)
        unit = (z - z.mean(-1, keepdims=True)) * size
        error = (unit * f - wide(v)[:, :, some]) * f
        grad = error - error.mean(-1, keepdims=True) - unit * (error * unit).mean(-1, keepdims=True)
        grad *= size * rate[:, :, some, None]
        scores = np.tril(queries @ keys.swapaxes(2, 3))
        o[:, :, some] = queries @ w - scores @ grad
        w -= keys.swapaxes(2, 3) @ grad
    arguments = [q, k, v, rate, gamma, start, np.zeros(o.shape, np.float32), np.zeros(w.shape, np.float32)]
    return Case(arguments, {6: o, 7: w}, {}, 2e-2, (B, T))


# ---- the gradient of a recurrence with a bonus for what is at hand (RWKV-6), forwards and back again


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(H, 1, 0), wd.TilingConstraint(T, 1)])
def bonus_gradient(
    r: wd.Memory[B, T, H, D, F16], k: wd.Memory[B, T, H, D, F16], v: wd.Memory[B, T, H, E, F16],
    w: wd.Memory[B, T, H, D, F32], u: wd.Memory[H, D, F32], dy: wd.Memory[B, T, H, E, F16],
    dr: wd.Memory[B, T, H, D, F16], dk: wd.Memory[B, T, H, D, F16], dv: wd.Memory[B, T, H, E, F16],
    dw: wd.Memory[B, T, H, D, F32], du: wd.Memory[H, D, F32],
):  # fmt: skip
    """dr of the states before each step, dw as what comes in less what goes out, from the last step on."""
    bonus = wd.read(u)

    @wd.iterate(T, init_args=[wd.Register[D, E, F32](0.0), wd.Register[D, F32](0.0)])
    def forward(s, total):
        t = wd.tile_start(T)
        key, value, back = (wd.cast(wd.read(x[:, t]), F32) for x in (k, v, dy))
        product = key * wd.sum(value * back, dim=E)
        wd.write(wd.cast(wd.sum(s * back, dim=E) + bonus * product, F16), dr[:, t])
        return s * wd.exp(wd.read(w[:, t])) + key * value, total + product * wd.cast(wd.read(r[:, t]), F32)

    wd.atomic_add(forward[1], du)

    @wd.iterate(T, init_args=[wd.Register[D, E, F32](0.0), wd.Register[D, F32](0.0)])
    def backward(a, flow):
        t = T - 1 - wd.tile_start(T)
        row, key, value, back = (wd.cast(wd.read(x[:, t]), F32) for x in (r, k, v, dy))
        late = wd.sum(a * value, dim=E)
        wd.write(wd.cast(late + row * bonus * wd.sum(value * back, dim=E), F16), dk[:, t])
        wd.write(wd.cast(wd.sum(a * key, dim=D) + back * wd.sum(row * bonus * key, dim=D), F16), dv[:, t])
        flow = flow - key * late
        wd.write(flow, dw[:, t])
        own = wd.cast(wd.read(dr[:, t]), F32) - bonus * key * wd.sum(value * back, dim=E)
        return (a + row * back) * wd.exp(wd.read(w[:, t])), flow + row * own

    wd.write(backward[1], dw[:, 0])


def bonus_case(b: int, t: int, h: int, d: int, e: int) -> Case:
    r, k, dr = (normal(b, t, h, d, seed=i, scale=0.5, dtype=np.float16) for i in range(3))
    v, dy = (normal(b, t, h, e, seed=i, scale=0.5, dtype=np.float16) for i in (3, 4))
    w, u = -np.abs(normal(b, t, h, d, seed=5)), normal(h, d, seed=6)
    R_, K_, V_, G_, W_ = (wide(x) for x in (r, k, v, dy, w))
    s, want = np.zeros((b, h, d, e)), {6: np.zeros(r.shape), 7: np.zeros(r.shape), 8: np.zeros(v.shape)}
    du = np.zeros((h, d))
    for i in range(t):
        product = K_[:, i] * (V_[:, i] * G_[:, i]).sum(-1, keepdims=True)
        want[6][:, i] = (s * G_[:, i, :, None]).sum(-1) + u * product
        du += (product * R_[:, i]).sum(0)
        s = s * np.exp(W_[:, i])[..., None] + K_[:, i, ..., None] * V_[:, i, :, None]
    a = np.zeros((b, h, d, e))
    for i in reversed(range(t)):
        inner = (V_[:, i] * G_[:, i]).sum(-1, keepdims=True)
        want[7][:, i] = (a * V_[:, i, :, None]).sum(-1) + R_[:, i] * u * inner
        want[8][:, i] = (a * K_[:, i, ..., None]).sum(-2) + G_[:, i] * (R_[:, i] * u * K_[:, i]).sum(-1, keepdims=True)
        a = (a + R_[:, i, ..., None] * G_[:, i, :, None]) * np.exp(W_[:, i])[..., None]
    arguments = [r, k, v, w, u.astype(np.float32), dy, dr, dr.copy(), dy.copy(), np.zeros_like(w),
                 np.zeros((h, d), np.float32)]  # fmt: skip
    return Case(arguments, {**want, 10: du}, {}, 1e-2, (B, T))


# ---- the gradient of a table of biases by how far keys are away, in buckets of which the later ones are logarithmic


@wd.wave([wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(N, 32)])
def bucket_gradient(
    scores: wd.Memory[B, H, M, N, F16], level: wd.Memory[B, H, M, F32], dp: wd.Memory[B, H, M, N, F16],
    delta: wd.Memory[B, H, M, F32], bias: wd.Memory[H, K, F32], dbias: wd.Memory[H, K, F32],
):  # fmt: skip
    @wd.iterate(N)
    def keys():
        away = wd.index(M) - wd.index(N)
        far = wd.maximum(away, 1)
        late = 8 + wd.cast(wd.log(wd.cast(far, F32) / 8.0) / math.log(16) * 8.0, I32)
        bucket = wd.where(away < 8, away, wd.minimum(late, 15))
        bucket = wd.where(away >= 0, bucket, -1)
        more = wd.read(bias, mapping=wd.IndexMapping((M, N), {H: H, K: bucket}))
        p = wd.exp(wd.cast(wd.read(scores), F32) + more - wd.read(level))
        ds = p * (wd.cast(wd.read(dp), F32) - wd.read(delta))
        wd.atomic_add(wd.sum(ds, dim=B), dbias, mapping=wd.IndexMapping((M, N), {H: H, K: bucket}))


def bucket_case(b: int, h: int, m: int) -> Case:
    scores, dp = normal(b, h, m, m, dtype=np.float16), normal(b, h, m, m, seed=1, dtype=np.float16)
    bias = normal(h, 16, seed=2)
    away = np.arange(m)[:, None] - np.arange(m)
    late = 8 + (np.log(np.maximum(away, 1).astype(np.float32) / 8) / np.float32(math.log(16)) * 8).astype(np.int32)
    bucket = np.where(away < 8, away, np.minimum(late, 15))
    z = np.where(away >= 0, wide(scores) + wide(bias)[:, np.where(away >= 0, bucket, 0)], -np.inf)
    level = np.log(np.exp(z).sum(-1)).astype(np.float32)
    p = np.exp(z - level[..., None])
    delta = (p * wide(dp)).sum(-1).astype(np.float32)
    ds = (p * (wide(dp) - delta[..., None])).sum(0)
    want = np.stack([(ds * (bucket == i) * (away >= 0)).sum((1, 2)) for i in range(16)], 1)
    return Case([scores, level, dp, delta, bias, np.zeros((h, 16), np.float32)], {5: want}, {}, 2e-3, (M,))


# ---- parts of attention that are joined by their levels; some have nothing


@wd.wave([wd.WorkgroupConstraint(T, 2, 0), wd.WorkgroupConstraint(H, 2, 1)])
def joined(
    parts: wd.Memory[S, T, H, D, BF16], level: wd.Memory[S, T, H, F32], o: wd.Memory[T, H, D, BF16],
    total: wd.Memory[T, H, F32],
):  # fmt: skip
    mine = wd.read(level)
    top = wd.max(mine, dim=S)
    shift = wd.where(wd.isfinite(top), top, 0.0)
    p = wd.exp(mine - shift)
    size = wd.sum(p, dim=S)
    out = wd.sum(wd.cast(wd.read(parts), F32) * p, dim=S) / wd.where(size > 0, size, 1.0)
    wd.write(wd.cast(out, BF16), o)
    wd.write(wd.log(size) + shift, total)


def joined_case(s: int, t: int, h: int, d: int) -> Case:
    parts, level = normal(s, t, h, d, dtype=HALF), normal(s, t, h, seed=1, scale=3)
    level[np.random.default_rng(2).random(level.shape) < 0.3] = -np.inf
    level[:, 0, 0] = -np.inf
    p = np.exp(wide(level))
    size = p.sum(0)
    o = (wide(parts) * p[..., None]).sum(0) / np.where(size > 0, size, 1)[..., None]
    with np.errstate(divide="ignore"):
        total = np.log(size)
    outputs = [np.zeros((t, h, d), HALF), np.zeros((t, h), np.float32)]
    return Case([parts, level, *outputs], {2: o, 3: total}, {}, 1e-2, (T,))


KERNELS = {
    "differential": (differential, differential_case, ((1, 64, 2, 64, 64), (2, 37, 1, 24, 40))),
    "forgetting": (forgetting, forgetting_case, ((1, 64, 2, 64), (2, 75, 1, 40))),
    "shifted windows": (shifted_windows, windows_case, ((1, 14, 14, 2, 32), (2, 14, 21, 1, 20))),
    "four-bit cache": (four_bit_cache, four_bit_case, (((64, 40), 64, 1, 8, 64, 64), ((0, 33, 7), 96, 2, 5, 96, 32))),
    "learned while reading": (learned_while_reading, learned_case, ((1, 2, 32, 32, 32), (2, 1, 21, 24, 40))),
    "bonus gradient": (bonus_gradient, bonus_case, ((1, 4, 2, 64, 64), (2, 3, 1, 20, 33))),
    "bucket gradient": (bucket_gradient, bucket_case, ((2, 2, 64), (3, 1, 77))),
    "joined": (joined, joined_case, ((4, 2, 2, 128), (3, 5, 3, 72))),
}  # fmt: skip

test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)
