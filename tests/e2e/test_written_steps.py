"""Steps of training and of search: cells, advantages, preferences, mixtures, bags, lookups in codes, transforms of
whole numbers, what the last workgroup finishes."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from families import Case, both_tests, normal, on_chip, whole, wide

import wavedsl as wd

B, C, D, E, F, G, H, I, J, K, L, M, N, P, Q, R, S, T, V = wd.symbols("B C D E F G H I J K L M N P Q R S T V")
F16, BF16, F32, F64, I1, I32, U8, U32 = wd.f16, wd.bf16, wd.f32, wd.f64, wd.i1, wd.i32, wd.u8, wd.u32
HALF = ml_dtypes.bfloat16


# ---- a cell that remembers, all steps in one kernel; advantages back to front over episodes; preferences


@wd.wave([wd.WorkgroupConstraint(B, 16, 0), wd.TilingConstraint(T, 1)], subs={G: 4})
def remembers(
    x: wd.Memory[T, B, G, H, F16], w: wd.Memory[G, H, J, F16], bias: wd.Memory[G, H, F32], length: wd.Memory[B, I32],
    out: wd.Memory[T, B, H, F16], last: wd.Memory[B, H, F32],
):  # fmt: skip
    """LSTM: `x` are the inputs' shares of the gates; a sequence that has ended keeps its state."""
    zero = wd.Register[B, H, F32](0.0)
    count = wd.read(length)

    @wd.iterate(T, init_args=[zero, zero])
    def steps(h, c):
        t = wd.tile_start(T)
        before = wd.cast(wd.reshape(h, B, J), F16)

        def gate(i):
            z = wd.mma(before, wd.read(w[i, :, :]), wd.Register[B, H, F32](0.0))
            return z + wd.cast(wd.read(x[t, :, i, :]), F32) + wd.read(bias[i, :])

        new = wd.sigmoid(gate(1)) * c + wd.sigmoid(gate(0)) * wd.tanh(gate(2))
        shown = wd.sigmoid(gate(3)) * wd.tanh(new)
        goes_on = t < count
        h, c = wd.where(goes_on, shown, h), wd.where(goes_on, new, c)
        wd.write(wd.cast(wd.where(goes_on, h, 0.0), F16), out[t, :, :])
        return h, c

    wd.write(steps[1], last)


def remembers_case(t: int, b: int, h: int) -> Case:
    x, w = normal(t, b, 4, h, dtype=np.float16), normal(4, h, h, seed=1, scale=0.2, dtype=np.float16)
    bias, length = normal(4, h, seed=2), np.random.default_rng(3).integers(0, t + 1, b).astype(np.int32)
    state, c, out = np.zeros((b, h)), np.zeros((b, h)), np.zeros((t, b, h))
    for i in range(t):
        z = wide(x)[i] + np.einsum("bj,ghj->bgh", state, wide(w)) + bias
        s = 1 / (1 + np.exp(-z))
        new = s[:, 1] * c + s[:, 0] * np.tanh(z[:, 2])
        more = (i < length)[:, None]
        state, c = np.where(more, s[:, 3] * np.tanh(new), state), np.where(more, new, c)
        out[i] = np.where(more, state, 0)
    arguments = [x, w, bias, length, np.zeros(out.shape, np.float16), np.zeros((b, h), np.float32)]
    return Case(arguments, {4: out, 5: c}, {H: h, J: h}, 1e-2, (T, B))


@wd.wave([wd.WorkgroupConstraint(B, 4, 0)])
def advantages(
    reward: wd.Memory[B, T, F32], value: wd.Memory[B, P, F32], done: wd.Memory[B, T, I1], valid: wd.Memory[B, T, I1],
    gamma: wd.Scalar[F32], lam: wd.Scalar[F32], out: wd.Memory[B, T, F32], ret: wd.Memory[B, T, F32],
):  # fmt: skip
    """Of each row with mean 0 and deviation 1 over what is valid."""
    now, then = wd.read(value[:, 0:T]), wd.read(value[:, 1 : T + 1])
    ends, real = wd.read(done), wd.read(valid)
    stays = wd.where(ends, 0.0, gamma)
    delta = wd.read(reward) + stays * then - now

    def after(x, y):
        return x[0] * y[0], x[1] * y[0] + y[1]

    _, a = wd.scan((stays * lam, delta), after, (1.0, 0.0), dim=T, reverse=True)
    wd.write(a + now, ret)
    count = wd.sum(wd.cast(real, F32), dim=T)
    mean = wd.sum(wd.where(real, a, 0.0), dim=T) / count
    away = wd.where(real, a - mean, 0.0)
    wd.write(away * wd.rsqrt(wd.sum(away * away, dim=T) / count + 1e-8), out)


def advantages_case(b: int, t: int) -> Case:
    rng = np.random.default_rng(0)
    reward, value = normal(b, t), normal(b, t + 1, seed=1)
    done, valid = rng.random((b, t)) < 0.1, rng.random((b, t)) < 0.8
    a, after = np.zeros((b, t)), np.zeros(b)
    for i in reversed(range(t)):
        stays = np.where(done[:, i], 0, 0.99)
        after = reward[:, i] + stays * value[:, i + 1] - value[:, i] + stays * 0.95 * after
        a[:, i] = after
    ret = a + value[:, :-1]
    n = valid.sum(1, keepdims=True)
    away = np.where(valid, a - np.where(valid, a, 0).sum(1, keepdims=True) / n, 0)
    want = away / np.sqrt((away**2).sum(1, keepdims=True) / n + 1e-8)
    outputs = [np.zeros_like(reward), np.zeros_like(reward)]
    return Case([reward, value, done, valid, 0.99, 0.95, *outputs], {6: want, 7: ret}, {P: t + 1}, 1e-3, (B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1), wd.TilingConstraint(V, 128)])
def preferences(
    x: wd.Memory[B, S, T, V, F16], y: wd.Memory[B, S, T, F32], label: wd.Memory[B, S, T, I32], beta: wd.Scalar[F32],
    loss: wd.Memory[B, F32], dx: wd.Memory[B, S, T, V, F16],
):  # fmt: skip
    """DPO: of each pair the chosen answer first; `y` are the reference's logarithms. Labels of -100 do not count."""
    sums = []
    for s in (0, 1):

        @wd.iterate(T, init_args=[wd.Register[F32](0.0)])
        def answer(total, s=s):
            t = wd.tile_start(T)
            own = wd.read(label[:, s, t])

            @wd.iterate(V, init_args=[wd.Register[F32](-1e30), wd.Register[F32](0.0), wd.Register[F32](0.0)])
            def row(top, size, mine):
                z = wd.cast(wd.read(x[:, s, t, :]), F32)
                higher = wd.maximum(top, wd.max(z, dim=V))
                size = size * wd.exp(top - higher) + wd.sum(wd.exp(z - higher), dim=V)
                return higher, size, mine + wd.sum(wd.where(wd.index(V) == own, z, 0.0), dim=V)

            top, size, mine = row
            return total + wd.where(own < 0, 0.0, mine - top - wd.log(size) - wd.read(y[:, s, t]))

        sums.append(answer)
    margin = beta * (sums[0] - sums[1])
    wd.write(wd.log1p(wd.exp(-wd.abs(margin))) + wd.maximum(-margin, 0.0), loss)
    push = -beta * wd.sigmoid(-margin)
    for s in (0, 1):

        @wd.iterate(T)
        def gradient(s=s):
            t = wd.tile_start(T)
            own = wd.read(label[:, s, t])

            @wd.iterate(V, init_args=[wd.Register[F32](-1e30), wd.Register[F32](0.0)])
            def row(top, size):
                z = wd.cast(wd.read(x[:, s, t, :]), F32)
                higher = wd.maximum(top, wd.max(z, dim=V))
                return higher, size * wd.exp(top - higher) + wd.sum(wd.exp(z - higher), dim=V)

            top, size = row

            @wd.iterate(V)
            def store():
                p = wd.exp(wd.cast(wd.read(x[:, s, t, :]), F32) - top) / size
                g = (wd.where(wd.index(V) == own, 1.0, 0.0) - p) * (push if s == 0 else -push)
                wd.write(wd.cast(wd.where(own < 0, 0.0, g), F16), dx[:, s, t, :])


def preferences_case(b: int, t: int, v: int) -> Case:
    x, y = normal(b, 2, t, v, dtype=np.float16), -np.abs(normal(b, 2, t, seed=1))
    label = np.random.default_rng(2).integers(0, v, (b, 2, t)).astype(np.int32)
    label[:, 1, t // 2 :] = -100
    z = wide(x) - np.log(np.exp(wide(x)).sum(-1, keepdims=True))
    counted = label >= 0
    mine = np.take_along_axis(z, np.maximum(label, 0)[..., None], -1)[..., 0]
    sums = np.where(counted, mine - y, 0).sum(-1)
    margin = 0.2 * (sums[:, 0] - sums[:, 1])
    push = -0.2 / (1 + np.exp(margin))
    g = ((np.arange(v) == label[..., None]) - np.exp(z)) * counted[..., None]
    g = g * (push[:, None] * [1, -1])[..., None, None]
    arguments = [x, y, label, 0.2, np.zeros(b, np.float32), np.zeros_like(x)]
    return Case(arguments, {4: np.log1p(np.exp(-margin)), 5: g}, {S: 2}, 2e-3, (B, T, V))


# ---- mixtures: whose each point is, and the moments of a next step, by products; chains that are hidden


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)], subs={K: 16})
def mixture(
    x: wd.Memory[N, D, F32], mean: wd.Memory[K, D, F32], precision: wd.Memory[K, D, F32], share: wd.Memory[K, F32],
    total: wd.Memory[1, F32], count: wd.Memory[K, F32], first: wd.Memory[K, D, F32], second: wd.Memory[K, D, F32],
):  # fmt: skip
    points, p, m = wd.read(x), wd.read(precision), wd.read(mean)
    cross = wd.mma(points, p * m, precision="ieee")
    squares = wd.mma(points * points, p, precision="ieee")
    level = wd.log(wd.read(share)) + 0.5 * wd.sum(wd.log(p) - p * m * m, dim=D) - 0.5 * D * math.log(2 * math.pi)
    z = level + cross - 0.5 * squares
    top = wd.max(z, dim=K)
    e = wd.exp(z - top)
    size = wd.sum(e, dim=K)
    wd.atomic_add(wd.sum(top + wd.log(size), dim=N), total[0])
    own = e / size
    wd.atomic_add(wd.sum(own, dim=N), count)
    wd.atomic_add(wd.mma(own, points, wd.Register[K, D, F32](0.0), precision="ieee"), first)
    wd.atomic_add(wd.mma(own, points * points, wd.Register[K, D, F32](0.0), precision="ieee"), second)


def mixture_case(n: int, d: int) -> Case:
    x, mean = normal(n, d), normal(16, d, seed=1)
    precision = np.random.default_rng(2).random((16, d)).astype(np.float32) + np.float32(0.5)
    share = np.random.default_rng(3).random(16).astype(np.float32) + np.float32(0.1)
    z = np.log(wide(share)) + 0.5 * np.log(wide(precision)).sum(1) - 0.5 * d * math.log(2 * math.pi)
    z = z - 0.5 * (((wide(x)[:, None] - wide(mean)) ** 2) * wide(precision)).sum(2)
    size = np.log(np.exp(z).sum(1))
    own = np.exp(z - size[:, None])
    want = {4: np.array([size.sum()]), 5: own.sum(0), 6: own.T @ wide(x), 7: own.T @ wide(x) ** 2}
    outputs = [np.zeros(w.shape, np.float32) for w in want.values()]
    return Case([x, mean, precision, share, *outputs], want, {}, 2e-3, (N,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)])
def hidden_chain(
    seen: wd.Memory[B, T, U8], move: wd.Memory[I, J, F32], show: wd.Memory[V, I, F32], start: wd.Memory[I, F32],
    alpha: wd.Memory[B, T, I, F32], gamma: wd.Memory[B, T, I, F32], level: wd.Memory[B, F64],
):  # fmt: skip
    """Forwards scaled to 1, backwards with what was kept; the likelihood in f64."""
    steps = wd.read(move)

    def shown(t):
        symbol = wd.cast(wd.read(seen[:, t]), I32)
        return wd.read(show, mapping=wd.IndexMapping((I,), {V: symbol, I: I}))

    @wd.iterate(T, init_args=[wd.read(start), wd.Register[F64](0.0)])
    def forward(prior, total):
        t = wd.tile_start(T)
        a = prior * shown(t)
        size = wd.sum(a, dim=I)
        a = a / size
        wd.write(a, alpha[:, t, :])
        return wd.reshape(wd.sum(steps * a, dim=I), I), total + wd.log(wd.cast(size, F64))

    wd.write(forward[1], level)

    @wd.iterate(T, init_args=[wd.Register[I, F32](1.0)])
    def backward(beta):
        t = T - 1 - wd.tile_start(T)
        own = wd.read(alpha[:, t, :]) * beta
        wd.write(own / wd.sum(own, dim=I), gamma[:, t, :])
        beta = wd.sum(steps * wd.reshape(beta * shown(t), J), dim=J)
        return beta / wd.max(beta, dim=I)

    del backward


def hidden_case(b: int, t: int, s: int) -> Case:
    rng = np.random.default_rng(0)
    seen = rng.integers(0, 5, (b, t)).astype(np.uint8)
    move, show, start = rng.random((s, s)) + 0.1, rng.random((5, s)) + 0.1, rng.random(s) + 0.1
    move, show, start = move / move.sum(1, keepdims=True), show / show.sum(0), start / start.sum()
    move, show, start = (x.astype(np.float32) for x in (move, show, start))
    a, beta, level = np.zeros((b, t, s)), np.ones((b, t, s)), np.zeros(b)
    prior = np.broadcast_to(wide(start), (b, s))
    for i in range(t):
        a[:, i] = prior * wide(show)[seen[:, i]]
        level += np.log(a[:, i].sum(1))
        a[:, i] /= a[:, i].sum(1, keepdims=True)
        prior = a[:, i] @ wide(move)
    for i in reversed(range(t - 1)):
        beta[:, i] = (beta[:, i + 1] * wide(show)[seen[:, i + 1]]) @ wide(move).T
        beta[:, i] /= beta[:, i].max(1, keepdims=True)
    gamma = a * beta / (a * beta).sum(2, keepdims=True)
    outputs = [np.zeros(a.shape, np.float32), np.zeros(a.shape, np.float32), np.zeros(b)]
    return Case([seen, move, show, start, *outputs], {4: a, 5: gamma, 6: level}, {}, 1e-4, (B, T))


# ---- bags with weights of runs of rows; lookups in product codes and the nearest of them


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(S, 16)])
def weighted_bags(
    table: wd.Memory[V, D, BF16], ids: wd.Memory[S, I32], weight: wd.Memory[S, F32], first: wd.Memory[P, I32],
    back: wd.Memory[B, D, F32], out: wd.Memory[B, D, F32], d_weight: wd.Memory[S, F32], d_table: wd.Memory[V, D, F32],
):  # fmt: skip
    """Bag b has the places first[b] to first[b + 1]; a row that is not in the table counts for nothing."""
    begin, end = wd.read(first[B]), wd.read(first[B + 1])
    g = wd.read(back)

    @wd.iterate(S, init_args=[wd.Register[D, F32](0.0)], start=begin, stop=end)
    def total(acc):
        place = wd.index(S)
        mine = (place >= begin) & (place < end)
        row = wd.where(mine, wd.read(ids), -1)
        x = wd.cast(wd.read(table, mapping=wd.IndexMapping((S, D), {V: row})), F32)
        factor = wd.where(mine, wd.read(weight), 0.0)
        wd.write(wd.sum(x * g, dim=D), d_weight, mapping=wd.IndexMapping((S,), {S: wd.where(mine, place, -1)}))
        wd.atomic_add(factor * g, d_table, mapping=wd.IndexMapping((S, D), {V: row, D: D}))
        return acc + wd.sum(x * factor, dim=S)

    wd.write(total, out)


def bags_case(sizes: tuple[int, ...], v: int, d: int) -> Case:
    rng = np.random.default_rng(0)
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    s, b = int(first[-1]), len(sizes)
    table, ids, weight = whole(v, d).astype(HALF), rng.integers(0, v, s).astype(np.int32), whole(s, dtype=np.float32)
    ids[::7] = -1
    back = whole(b, d, seed=4, dtype=np.float32)
    rows = np.where(ids[:, None] < 0, 0, wide(table)[ids])
    bag = np.repeat(np.arange(b), sizes)
    out, d_table = np.zeros((b, d)), np.zeros((v, d))
    np.add.at(out, bag, rows * weight[:, None])
    some = ids >= 0
    np.add.at(d_table, ids[some], (weight[:, None] * back[bag])[some])
    arguments = [table, ids, weight, first, back, *(np.zeros(n, np.float32) for n in ((b, d), s, (v, d)))]
    return Case(arguments, {5: out, 6: (rows * back[bag]).sum(1), 7: d_table}, {}, 1e-5, (B, S))


@wd.wave([wd.WorkgroupConstraint(Q, 1, 0)], subs={K: 8})
def product_codes(
    q: wd.Memory[Q, M, D, F32], book: wd.Memory[M, C, D, F32], code: wd.Memory[N, M, U8], alive: wd.Memory[N, I1],
    best: wd.Memory[Q, K, F32], at: wd.Memory[Q, K, I32],
):  # fmt: skip
    """Distances from a query's table of distances; the nearest eight of those that were not deleted."""
    away = wd.read(q) - wd.read(book)
    table = wd.sum(away * away, dim=D)  # [M, C]
    number = wd.permute(wd.cast(wd.read(code), I32), M, N)
    far = wd.sum(wd.shuffle(table, number, dim=C), dim=M)
    nearest, place = wd.topk(wd.where(wd.read(alive), -far, float("-inf")), K, dim=N)
    wd.write(-nearest, best)
    wd.write(place, at)


def codes_case(q: int, m: int, d: int, n: int) -> Case:
    x, book = whole(q, m, d, dtype=np.float32), normal(m, 16, d, seed=1)
    rng = np.random.default_rng(2)
    code, alive = rng.integers(0, 16, (n, m)).astype(np.uint8), rng.random(n) < 0.7
    table = ((wide(x)[:, :, None] - wide(book)) ** 2).sum(-1)  # [q, m, c]
    far = np.where(alive, table[:, np.arange(m), code].sum(-1), np.inf)
    at = np.argsort(far, 1, kind="stable")[:, :8]
    outputs = [np.zeros((q, 8), np.float32), np.zeros((q, 8), np.int32)]
    return Case([x, book, code, alive, *outputs], {4: np.take_along_axis(far, at, 1), 5: at}, {C: 16}, 1e-4, (Q,))


# ---- a transform of whole numbers modulo a prime; a norm's gradient that the last workgroup finishes


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)], subs={N: 64})
def modular_transform(x: wd.Memory[B, N, U32], roots: wd.Memory[N, U32], y: wd.Memory[B, N, U32]):
    """Number theoretic, modulo 998244353: halves that meet over ever shorter distances, results in reversed order."""
    prime = 998244353
    v, place = wd.read(x), wd.index(N)

    def product(a, b):
        wide_product = wd.cast(a, wd.u64) * wd.cast(b, wd.u64)
        return wd.cast(wide_product % prime, U32)

    step = 32
    while step:
        other = wd.shuffle(v, place ^ step, dim=N)
        upper = place & step != 0
        root = wd.read(roots, mapping=wd.IndexMapping((N,), {N: place % step * (32 // step)}))
        total = v + other
        total = wd.where(total >= prime, total - prime, total)
        v = wd.where(upper, product(other + prime - v, root), total)
        step //= 2
    wd.write(wd.shuffle(v, wd.cast(wd.bit_reverse(wd.cast(place, U32)) >> 26, I32), dim=N), y)


def transform_case(b: int) -> Case:
    prime = 998244353
    x = np.random.default_rng(0).integers(0, prime, (b, 64)).astype(np.uint32)
    root = pow(3, (prime - 1) // 64, prime)
    powers = [pow(root, i, prime) for i in range(64)]
    want = [[sum(int(v) * powers[i * k % 64] for i, v in enumerate(row)) % prime for k in range(64)] for row in x]
    return Case([x, np.array(powers, np.uint32), np.zeros_like(x)], {2: np.array(want, np.uint32)}, {}, 0, (B,))


@wd.wave([wd.WorkgroupConstraint(G, 1, 0), wd.TilingConstraint(M, 8)], subs={P: 1})
def finished_by_the_last(
    x: wd.Memory[G, M, N, F16], dy: wd.Memory[G, M, N, F16], w: wd.Memory[N, F32], dx: wd.Memory[G, M, N, F16],
    part: wd.Memory[G, N, F32], ticket: wd.Memory[P, I32], dw: wd.Memory[N, F32],
):  # fmt: skip
    """RMS norm: rows' gradients, and the weight's, which the workgroup that comes last adds up in order."""
    weight = wd.read(w)

    @wd.iterate(M, init_args=[wd.Register[N, F32](0.0)])
    def rows(total):
        z, back = wd.cast(wd.read(x), F32), wd.cast(wd.read(dy), F32)
        size = wd.rsqrt(wd.sum(z * z, dim=N) / N + 1e-5)
        unit = z * size
        inner = wd.sum(unit * back * weight, dim=N) / N
        wd.write(wd.cast((back * weight - unit * inner) * size, F16), dx)
        return total + wd.sum(unit * back, dim=M)

    wd.write(rows, part)
    wd.fence()
    mine = wd.atomic_add(wd.Register[I32](1), ticket, mapping=wd.IndexMapping((), {P: 0}))
    wd.exit_if(mine != G - 1)
    wd.fence()
    every = wd.read(part, mapping=wd.IndexMapping((S, N), {G: wd.index(S), N: N}), cache="bypass")
    wd.write(wd.sum(every, dim=S), dw)


def last_case(g: int, m: int, n: int) -> Case:
    x, dy, w = normal(g, m, n, dtype=np.float16), normal(g, m, n, seed=1, dtype=np.float16), normal(n, seed=2)
    size = 1 / np.sqrt((wide(x) ** 2).mean(-1, keepdims=True) + 1e-5)
    unit = wide(x) * size
    dx = (wide(dy) * w - unit * (unit * dy * w).mean(-1, keepdims=True)) * size
    part = (unit * dy).sum(1)
    outputs = [np.zeros((g, n), np.float32), np.zeros(1, np.int32), np.zeros(n, np.float32)]
    arguments = [x, dy, w, np.zeros_like(x), *outputs]
    return Case(arguments, {3: dx, 4: part, 6: part.sum(0)}, {S: g}, 4e-3, (M,))


KERNELS = {
    "remembers": (remembers, remembers_case, ((3, 16, 32), (4, 21, 20))),
    "advantages": (advantages, advantages_case, ((4, 64), (7, 101))),
    "preferences": (preferences, preferences_case, ((1, 2, 256), (2, 3, 201))),
    "mixture": (mixture, mixture_case, ((64, 16), (101, 7))),
    "hidden chain": (hidden_chain, hidden_case, ((1, 6, 32), (2, 3, 64), (3, 5, 13))),
    "weighted bags": (weighted_bags, bags_case, (((16, 32, 3), 20, 64), ((5, 0, 33, 1), 9, 37))),
    "product codes": (product_codes, codes_case, ((2, 4, 8, 64), (3, 5, 3, 101))),
    "modular transform": (modular_transform, transform_case, ((2,), (3,))),
    "finished by the last": (finished_by_the_last, last_case, ((3, 16, 64), (4, 11, 77))),
}  # fmt: skip

test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)


HIDDEN = (("sm_80", 64), ("sm_90a", 96), ("sm_80", 128), ("gfx90a", 128), ("gfx942", 96))


@pytest.mark.parametrize(("target", "h"), HIDDEN)
def test_waves_share_the_state_of_a_recurrent_layer(target: str, h: int, oracle: Callable[[str], str]) -> None:
    """h is a product's result and, under another name, its operand, so one wave had all columns: of 64, 96 and 128 it
    spilled 428, 2064 and 3280 bytes on sm_80, of 96 and 128 57 and 369 registers on gfx942."""
    if target.startswith("sm"):
        oracle("ptxas")
    compiled = on_chip(remembers, remembers_case(3, 20, h), target)
    assert not compiled.resources.spills and compiled.resources.scratch_bytes == 0
    assert compiled.block[0] > (32 if target.startswith("sm") else 64)
    assert sum(compiled.resources.instructions.values()) < 2000


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_what_is_summed_and_multiplied_lies_in_few_lanes(target: str, oracle: Callable[[str], str]) -> None:
    """Weights of 128 dimensions, which sums meet, lay in each lane as its multiply-adds take them: 1768 bytes stored
    and loaded on sm_80, in 255 registers."""
    oracle("ptxas")
    compiled = on_chip(mixture, mixture_case(101, 128), target)
    assert not compiled.resources.spills and compiled.resources.registers <= 240
