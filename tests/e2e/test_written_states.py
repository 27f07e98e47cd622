"""Kernels of models that keep a state for a cache, against NumPy and the evaluator: selective scans and what a step
makes of slots, chunks of a dual and of gated linear attention, short convolutions, a delta rule of packed sequences."""

from __future__ import annotations

import numpy as np
from families import Case, both_tests, normal, wide

import wavedsl as wd

B, T, H, G, D, E, N, S, L, C, P, W, J = wd.symbols("B T H G D E N S L C P W J")
F16, F32, I32 = wd.f16, wd.f32, wd.i32


def softplus(x):
    return wd.maximum(x, 0.0) + wd.log1p(wd.exp(-wd.abs(x)))


def silu(x):
    return x * wd.sigmoid(x)


# ---- selective state spaces (Mamba): all steps of a channel by a scan, and one step on the slots of a batch


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(D, 16, 0), wd.TilingConstraint(T, 64)])
def selective_scan(
    x: wd.Memory[B, D, T, F16], dt: wd.Memory[B, D, T, F16], bias: wd.Memory[D, F32], a: wd.Memory[D, N, F32],
    b: wd.Memory[B, N, T, F16], c: wd.Memory[B, N, T, F16], skip: wd.Memory[D, F32], z: wd.Memory[B, D, T, F16],
    y: wd.Memory[B, D, T, F16], last: wd.Memory[B, D, N, F32],
):  # fmt: skip
    rate = wd.read(a)

    def after(early, late):
        return early[0] * late[0], early[1] * late[0] + late[1]

    @wd.iterate(T, init_args=[wd.Register[D, N, F32](0.0)])
    def state(h):
        values = wd.cast(wd.read(x), F32)
        step = softplus(wd.cast(wd.read(dt), F32) + wd.read(bias))
        step = wd.where(wd.index(T) < T, step, 0.0)
        fade, new = wd.exp(step * rate), step * values * wd.cast(wd.read(b), F32)
        kept, here = wd.scan((fade, new), after, (1.0, 0.0), dim=T)
        states = kept * h + here
        out = wd.sum(states * wd.cast(wd.read(c), F32), dim=N) + values * wd.read(skip)
        wd.write(wd.cast(out * silu(wd.cast(wd.read(z), F32)), F16), y)
        return wd.sum(wd.where(wd.index(T) == wd.minimum(wd.tile_stop(T), T) - 1, states, 0.0), dim=T)

    wd.write(state, last)


def selective_case(b: int, d: int, t: int, n: int) -> Case:
    x, dt, z = normal(3, b, d, t, dtype=np.float16)
    keys, queries = normal(2, b, n, t, seed=1, dtype=np.float16)
    bias, skip, a = normal(d, seed=2), normal(d, seed=3), -np.exp(normal(d, n, seed=4, scale=0.3))
    state, want = np.zeros((b, d, n)), np.zeros((b, d, t))
    for i in range(t):
        step = np.logaddexp(0, wide(dt[..., i]) + bias)
        state = state * np.exp(step[..., None] * a) + (step * wide(x[..., i]))[..., None] * wide(keys[:, None, :, i])
        want[..., i] = (state * wide(queries[:, None, :, i])).sum(-1) + wide(x[..., i]) * skip
    want *= wide(z) / (1 + np.exp(-wide(z)))
    outputs = np.zeros_like(x), np.zeros(state.shape, np.float32)
    return Case([x, dt, bias, a, keys, queries, skip, z, *outputs], {8: want, 9: state}, slack=4e-3, dynamic=(B, T))


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(P, 16, 0)])
def state_update(
    state: wd.Memory[S, H, P, N, F16], slot: wd.Memory[B, I32], x: wd.Memory[B, H, P, F16], dt: wd.Memory[B, H, F32],
    bias: wd.Memory[H, F32], a: wd.Memory[H, F32], b: wd.Memory[B, G, N, F16], c: wd.Memory[B, G, N, F16],
    skip: wd.Memory[H, F32], z: wd.Memory[B, H, P, F16], y: wd.Memory[B, H, P, F16],
):  # fmt: skip
    """A slot of -1 is padding."""
    mine, group = wd.read(slot), wd.index(H) // (H // G)
    wd.exit_if(mine < 0)
    place = wd.IndexMapping((P, N), {S: mine})
    step = softplus(wd.read(dt) + wd.read(bias))
    values = wd.cast(wd.read(x), F32)
    keys, queries = (wd.cast(wd.read(m, mapping=wd.IndexMapping((N,), {G: group})), F32) for m in (b, c))
    new = wd.cast(wd.read(state, mapping=place), F32) * wd.exp(step * wd.read(a)) + step * values * keys
    wd.write(wd.cast(new, F16), state, mapping=place)
    out = wd.sum(new * queries, dim=N) + values * wd.read(skip)
    wd.write(wd.cast(out * silu(wd.cast(wd.read(z), F32)), F16), y)


def update_case(b: int, h: int, g: int, p: int, n: int) -> Case:
    slots = np.random.default_rng(0).permutation(b + 2)[:b].astype(np.int32)
    slots[b // 2] = -1
    state, x, z = normal(b + 2, h, p, n, dtype=np.float16), *normal(2, b, h, p, seed=1, dtype=np.float16)
    dt, bias, skip, a = normal(b, h, seed=2), normal(h, seed=3), normal(h, seed=4), -np.exp(normal(h, seed=5))
    keys, queries = normal(2, b, g, n, seed=6, dtype=np.float16)
    new, want = wide(state), np.zeros((b, h, p))
    for i, at in enumerate(slots):
        if at >= 0:
            step = np.logaddexp(0, wide(dt[i]) + bias)
            k, q = (np.repeat(wide(m[i]), h // g, 0)[:, None] for m in (keys, queries))
            new[at] = new[at] * np.exp(step * a)[:, None, None] + (step[:, None] * wide(x[i]))[..., None] * k
            gate = wide(z[i]) / (1 + np.exp(-wide(z[i])))
            want[i] = ((new[at] * q).sum(-1) + wide(x[i]) * skip[:, None]) * gate
    arguments = [state, slots, x, dt, bias, a, keys, queries, skip, z, np.zeros_like(x)]
    return Case(arguments, {0: new, 10: want}, slack=1e-2, dynamic=(B, S))


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(D, 64, 0)], subs={W: 4, J: 4})
def convolution_update(
    x: wd.Memory[B, D, F16], state: wd.Memory[S, D, W - 1, F16], slot: wd.Memory[B, I32], w: wd.Memory[D, J, F16],
    bias: wd.Memory[D, F32], y: wd.Memory[B, D, F16],
):  # fmt: skip
    """A causal convolution of four steps, whose last three inputs a slot keeps."""
    mine, new = wd.read(slot), wd.read(x)
    before = [wd.read(state, mapping=wd.IndexMapping((D,), {S: mine, W - 1: i})) for i in range(3)]
    weights = [wd.cast(wd.read(w[:, i]), F32) for i in range(4)]
    total = wd.read(bias)
    for value, weight in zip([*before, new], weights, strict=True):
        total = total + wd.cast(value, F32) * weight
    for i, value in enumerate([*before[1:], new]):
        wd.write(value, state, mapping=wd.IndexMapping((D,), {S: mine, W - 1: i}))
    wd.write(wd.cast(silu(total), F16), y)


def convolution_case(b: int, d: int) -> Case:
    slots = np.random.default_rng(0).permutation(b + 2)[:b].astype(np.int32)
    x, state, w = normal(b, d, dtype=np.float16), normal(b + 2, d, 3, seed=1, dtype=np.float16), normal(d, 4, seed=2)
    w, bias = w.astype(np.float16), normal(d, seed=3)
    rows = np.concatenate([state[slots], x[..., None]], 2)
    total = (wide(rows) * wide(w)).sum(-1) + bias
    new = wide(state)
    new[slots] = rows[..., 1:]
    arguments = [x, state, slots, w, bias, np.zeros_like(x)]
    return Case(arguments, {1: new, 5: total / (1 + np.exp(-total))}, slack=2e-3, dynamic=(B, S))


# ---- chunks of the dual form: what each adds to the state, and the states in front of all of them


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(C, 1, 0)],
         subs={L: 64})  # fmt: skip
def chunk_states(
    x: wd.Memory[B, T, H, P, F16], dt: wd.Memory[B, T, H, F32], a: wd.Memory[H, F32], b: wd.Memory[B, T, G, N, F16],
    states: wd.Memory[B, C, H, P, N, F32], decay: wd.Memory[B, C, H, F32],
):  # fmt: skip
    group = wd.index(H) // (H // G)
    steps = wd.read(dt, mapping=wd.IndexMapping((L,), {T: C * 64 + L}))
    level = wd.cumsum(steps * wd.read(a), dim=L)
    end = wd.sum(steps * wd.read(a), dim=L)
    keys = wd.cast(wd.read(b, mapping=wd.IndexMapping((L, N), {T: C * 64 + L, G: group})), F32)
    values = wd.read(x, mapping=wd.IndexMapping((L, P), {T: C * 64 + L}))
    keys = wd.cast(keys * (wd.exp(end - level) * steps), F16)
    wd.write(wd.mma(values, keys, wd.Register[P, N, F32](0.0)), states)
    wd.write(end, decay)


def states_case(b: int, t: int, h: int, g: int, p: int, n: int) -> Case:
    x, keys = normal(b, t, h, p, dtype=np.float16), normal(b, t, g, n, seed=1, dtype=np.float16, scale=0.5)
    rng = np.random.default_rng(2)
    dt, a = (rng.random((b, t, h)) * 0.1).astype(np.float32), -rng.random(h).astype(np.float32)
    count = -(-t // 64)
    want, ends = np.zeros((b, count, h, p, n)), np.zeros((b, count, h))
    for i in range(count):
        mine = slice(i * 64, i * 64 + 64)
        level = np.cumsum(wide(dt[:, mine]) * a, 1)
        scale = np.exp(level[:, -1:] - level) * dt[:, mine]
        k = np.repeat(wide(keys[:, mine]), h // g, 2)
        want[:, i] = np.einsum("blhp,blhn,blh->bhpn", wide(x[:, mine]), k, scale)
        ends[:, i] = level[:, -1]
    outputs = np.zeros(want.shape, np.float32), np.zeros(ends.shape, np.float32)
    return Case([x, dt, a, keys, *outputs], {4: want, 5: ends}, slack=5e-3, dynamic=(B, T, C))


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(P, 8, 0),
          wd.TilingConstraint(C, 1)])  # fmt: skip
def passed_on(
    states: wd.Memory[B, C, H, P, N, F32], decay: wd.Memory[B, C, H, F32], first: wd.Memory[B, H, P, N, F32],
    before: wd.Memory[B, C, H, P, N, F16], last: wd.Memory[B, H, P, N, F32],
):  # fmt: skip
    @wd.iterate(C, init_args=[wd.read(first)])
    def state(now):
        chunk = wd.tile_start(C)
        wd.write(wd.cast(now, F16), before[:, chunk])
        return wd.exp(wd.read(decay[:, chunk])) * now + wd.read(states[:, chunk])

    wd.write(state, last)


def passed_case(b: int, c: int, h: int, p: int, n: int) -> Case:
    states, decay, first = normal(b, c, h, p, n), -np.abs(normal(b, c, h, seed=1)), normal(b, h, p, n, seed=2)
    now, before = wide(first), np.zeros((b, c, h, p, n))
    for i in range(c):
        before[:, i] = now
        now = now * np.exp(wide(decay[:, i]))[..., None, None] + states[:, i]
    outputs = np.zeros(before.shape, np.float16), np.zeros_like(first)
    return Case([states, decay, first, *outputs], {3: before, 4: now}, slack=2e-3, dynamic=(B, C))


# ---- gated linear attention, whose columns fade each by itself


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(E, 32, 0),
          wd.TilingConstraint(T, 16)], subs={S: 16})  # fmt: skip
def gated(
    q: wd.Memory[B, H, T, D, F16], k: wd.Memory[B, H, T, D, F16], v: wd.Memory[B, H, T, E, F16],
    g: wd.Memory[B, H, T, D, F32], o: wd.Memory[B, H, T, E, F16],
):  # fmt: skip
    @wd.iterate(T, init_args=[wd.Register[D, E, F32](0.0)])
    def chunks(state):
        first = wd.tile_start(T)
        gates = wd.read(g)
        level, end = wd.cumsum(gates, dim=T), wd.sum(gates, dim=T)
        queries = wd.cast(wd.cast(wd.read(q), F32) * wd.exp(level) * D**-0.5, F16)
        keys = wd.cast(wd.read(k), F32)
        again = wd.cast(wd.read(k[:, :, first : first + S, :]), F32)
        early = wd.cast(again * wd.exp(-wd.cumsum(wd.read(g[:, :, first : first + S, :]), dim=S)), F16)
        late = wd.cast(keys * wd.exp(end - level), F16)
        scores = wd.mma(queries, early, wd.Register[T, S, F32](0.0))
        scores = wd.where(wd.index(T) - first >= wd.index(S), scores, 0.0)
        old = wd.mma(queries, wd.cast(state, F16), wd.Register[T, E, F32](0.0))
        values = wd.read(v)
        wd.write(wd.cast(wd.mma(wd.cast(scores, F16), wd.read(v[:, :, first : first + S, :]), old), F16), o)
        return wd.mma(late, values, state * wd.exp(end))


def gated_case(b: int, h: int, t: int, d: int, e: int) -> Case:
    q, k, v = (normal(b, h, t, n, seed=i, dtype=np.float16) for i, n in enumerate((d, d, e)))
    g = -np.abs(normal(b, h, t, d, seed=3, scale=0.1))
    state, want = np.zeros((b, h, d, e)), np.zeros((b, h, t, e))
    for i in range(t):
        state = state * np.exp(wide(g[:, :, i]))[..., None]
        state += wide(k[:, :, i])[..., None] * wide(v[:, :, i])[:, :, None]
        want[:, :, i] = (state * wide(q[:, :, i])[..., None]).sum(2) * d**-0.5
    return Case([q, k, v, g, np.zeros(want.shape, np.float16)], {4: want}, slack=2e-2, dynamic=(B, T))


# ---- the gated delta rule, step by step, of sequences packed behind each other, whose states lie in slots


@wd.wave([wd.WorkgroupConstraint(S, 1, 2), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(E, 16, 0),
          wd.TilingConstraint(T, 1)])  # fmt: skip
def delta_steps(
    q: wd.Memory[T, G, D, F16], k: wd.Memory[T, G, D, F16], v: wd.Memory[T, H, E, F16], a: wd.Memory[T, H, F32],
    beta: wd.Memory[T, H, F32], ends: wd.Memory[P, I32], slot: wd.Memory[S, I32], states: wd.Memory[N, H, D, E, F32],
    o: wd.Memory[T, H, E, F16],
):  # fmt: skip
    first, last = (wd.read(ends[wd.index(S) + i]) for i in (0, 1))
    place = wd.IndexMapping((D, E), {N: wd.read(slot)})
    group = wd.index(H) // (H // G)

    def unit(values, t):
        row = wd.cast(wd.read(values, mapping=wd.IndexMapping((D,), {T: t, G: group})), F32)
        return row * wd.rsqrt(wd.sum(row * row, dim=D) + 1e-6)

    @wd.iterate(T, init_args=[wd.read(states, mapping=place)], start=first, stop=last)
    def state(now):
        t = wd.tile_start(T)
        key, query = unit(k, t), unit(q, t) * D**-0.5
        now, strength = now * wd.exp(wd.read(a[t])), wd.read(beta[t])
        value = wd.cast(wd.read(v[t]), F32)
        now = now + key * ((value - wd.sum(now * key, dim=D)) * wd.sigmoid(strength))
        wd.write(wd.cast(wd.sum(now * query, dim=D), F16), o[t])
        return now

    wd.write(state, states, mapping=place)


def steps_case(lengths: tuple[int, ...], h: int, g: int, d: int, e: int) -> Case:
    t, s = sum(lengths), len(lengths)
    q, k, v = normal(t, g, d, dtype=np.float16), normal(t, g, d, seed=1, dtype=np.float16), normal(t, h, e, seed=2)
    v, a, beta = v.astype(np.float16), -np.abs(normal(t, h, seed=3, scale=0.2)), normal(t, h, seed=4)
    ends, slots = np.cumsum([0, *lengths]).astype(np.int32), np.arange(s, 0, -1).astype(np.int32)
    states = normal(s + 1, h, d, e, seed=5)
    new, want = wide(states), np.zeros((t, h, e))
    for i, at in enumerate(slots):
        for j in range(ends[i], ends[i + 1]):
            key, query = (np.repeat(x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6), h // g, 0)
                          for x in (wide(k[j]), wide(q[j])))  # fmt: skip
            now = new[at] * np.exp(wide(a[j]))[:, None, None]
            rest = (wide(v[j]) - (now * key[..., None]).sum(1)) / (1 + np.exp(-wide(beta[j])))[:, None]
            new[at] = now + key[..., None] * rest[:, None]
            want[j] = (new[at] * query[..., None]).sum(1) * d**-0.5
    arguments = [q, k, v, a, beta, ends, slots, states, np.zeros(want.shape, np.float16)]
    return Case(arguments, {7: new, 8: want}, slack=2e-3, dynamic=(T, S, P, N))


KERNELS = {
    "selective-scan": (selective_scan, selective_case, ((1, 16, 64, 16), (2, 40, 150, 16))),
    "state-update": (state_update, update_case, ((3, 4, 2, 64, 128), (2, 2, 1, 40, 16))),
    "convolution-update": (convolution_update, convolution_case, ((3, 256), (2, 100))),
    "chunk-states": (chunk_states, states_case, ((1, 128, 2, 1, 64, 128), (2, 100, 2, 2, 40, 32))),
    "passed-on": (passed_on, passed_case, ((1, 4, 2, 64, 128), (2, 3, 2, 20, 16))),
    "gated": (gated, gated_case, ((1, 2, 64, 64, 64), (2, 1, 50, 32, 40))),
    "delta-steps": (delta_steps, steps_case, (((5, 9, 3), 4, 2, 64, 64), ((7, 0, 2), 2, 2, 32, 40))),
}


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)
