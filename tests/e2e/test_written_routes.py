"""What stands around experts and adapters: who goes where, rows on their way there and back, gradients of both,
products by the weights of each row's own expert or adapter."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from families import Case, both_tests, normal, whole, wide

import wavedsl as wd

A, B, C, D, E, G, J, K, L, M, N, P, Q, R, S, T = wd.symbols("A B C D E G J K L M N P Q R S T")
BF16, F16, F32, I8, I32, U4 = wd.bf16, wd.f16, wd.f32, wd.i8, wd.i32, wd.u4
HALF = ml_dtypes.bfloat16


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-wide(x)))


# ---- routers


@wd.wave([wd.WorkgroupConstraint(T, 4, 0)], subs={P: 2, L: 3})
def group_limited(
    x: wd.Memory[T, G, J, F32], bias: wd.Memory[G, J, F32], scale: wd.Scalar[F32], weight: wd.Memory[T, K, F32],
    ids: wd.Memory[T, K, I32],
):  # fmt: skip
    """The best experts of the three groups whose two best are best together; the bias chooses but does not weigh."""
    score = wd.sigmoid(wd.read(x))
    biased = score + wd.read(bias)
    two, _ = wd.topk(biased, P, dim=J)
    _, group = wd.topk(wd.sum(two, dim=P), L, dim=G)
    kept = wd.any(wd.index(G) == group, dim=L)
    flat = wd.reshape(wd.where(kept, biased, -math.inf), T, E)
    _, which = wd.topk(flat, K, dim=E)
    chosen = wd.shuffle(wd.reshape(score, T, E), which, dim=E)
    wd.write(chosen / (wd.sum(chosen, dim=K) + 1e-20) * scale, weight)
    wd.write(which, ids)


def group_limited_case(t: int, g: int, j: int, k: int) -> Case:
    x, bias = normal(t, g, j), normal(g, j, seed=1, scale=0.1)
    score = sigmoid(x)
    biased = score + bias
    groups = np.argsort(-np.sort(biased, 2)[:, :, -2:].sum(2), 1)[:, :3]
    kept = (np.arange(g) == groups[..., None]).any(1)
    which = np.argsort(-np.where(kept[..., None], biased, -np.inf).reshape(t, -1), 1, kind="stable")[:, :k]
    chosen = np.take_along_axis(score.reshape(t, -1), which, 1)
    outputs = np.zeros((t, k), np.float32), np.zeros((t, k), np.int32)
    want = {3: chosen / chosen.sum(1, keepdims=True) * 2.5, 4: which}
    return Case([x, bias, np.float32(2.5), *outputs], want, {E: g * j}, 1e-5, (T,))


@wd.wave([wd.WorkgroupConstraint(E, 1, 0)])
def experts_choose(logits: wd.Memory[T, E, F32], token: wd.Memory[E, C, I32], gate: wd.Memory[E, C, F32]):
    """Each expert takes the C tokens that want it most."""
    p, at = wd.topk(wd.softmax(wd.read(logits), dim=T), C, dim=T)
    wd.write(at, token)
    wd.write(p, gate)


def experts_choose_case(t: int, e: int, c: int) -> Case:
    logits = normal(t, e)
    p = np.exp(wide(logits)) / np.exp(wide(logits)).sum(0)
    at = np.argsort(-p.T, 1)[:, :c]
    outputs = np.zeros((e, c), np.int32), np.zeros((e, c), np.float32)
    return Case([logits, *outputs], {1: at, 2: np.take_along_axis(p.T, at, 1)}, slack=1e-5, dynamic=(E,))


@wd.wave([wd.WorkgroupConstraint(T, 8, 0)])
def router_gradient(
    x: wd.Memory[T, E, BF16], ids: wd.Memory[T, K, I32], dweight: wd.Memory[T, K, F32], load: wd.Memory[E, F32],
    balance: wd.Scalar[F32], z_loss: wd.Scalar[F32], dx: wd.Memory[T, E, BF16],
):  # fmt: skip
    """Of normalised weights of the chosen, of the balance of loads and of the logarithm of sums."""
    logits = wd.cast(wd.read(x), F32)
    top = wd.max(logits, dim=E)
    e = wd.exp(logits - top)
    total = wd.sum(e, dim=E)
    p, level = e / total, top + wd.log(total)
    which = wd.read(ids)
    chosen = wd.shuffle(p, which, dim=E)
    size = wd.sum(chosen, dim=K)
    back = wd.read(dweight)
    inner = (back - wd.sum(back * chosen, dim=K) / size) / size
    dp = wd.sum(wd.where(wd.index(E) == which, inner, 0.0), dim=K) + balance * wd.read(load) * E / T
    grad = p * (dp - wd.sum(dp * p, dim=E)) + 2 * z_loss / T * level * p
    wd.write(wd.cast(grad, BF16), dx)


def router_gradient_case(t: int, e: int, k: int) -> Case:
    x = normal(t, e, dtype=HALF)
    ids = np.argsort(-wide(x), 1, kind="stable")[:, :k].astype(np.int32)
    back, load = normal(t, k, seed=1), np.random.default_rng(2).random(e).astype(np.float32)
    p = np.exp(wide(x))
    level = np.log(p.sum(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    chosen = np.take_along_axis(p, ids, 1)
    size = chosen.sum(1, keepdims=True)
    dp = np.zeros((t, e)) + 0.1 * wide(load) * e / t
    np.put_along_axis(dp, ids, np.take_along_axis(dp, ids, 1) + (back - (back * chosen).sum(1, keepdims=True) / size)
                      / size, 1)  # fmt: skip
    want = p * (dp - (dp * p).sum(1, keepdims=True)) + 2 * 0.01 / t * level * p
    arguments = [x, ids, back, load, np.float32(0.1), np.float32(0.01), np.zeros_like(x)]
    return Case(arguments, {6: want}, {}, 1e-2, (T,))


@wd.wave([wd.WorkgroupConstraint(L, 1, 0)])
def biases_follow(count: wd.Memory[L, E, I32], bias: wd.Memory[L, E, F32], step: wd.Scalar[F32]):
    """Layer by layer: who has more tokens than the mean is wanted less next time."""
    n = wd.cast(wd.read(count), F32)
    over = wd.sum(n, dim=E) / E - n
    sign = wd.where(over > 0, 1.0, wd.where(over < 0, -1.0, 0.0))
    new = wd.read(bias) + step * sign
    wd.write(new - wd.sum(new, dim=E) / E, bias)


def biases_case(layers: int, e: int) -> Case:
    count = np.random.default_rng(0).integers(0, 50, (layers, e)).astype(np.int32)
    bias = normal(layers, e, scale=0.1)
    new = bias + 0.01 * np.sign(count.mean(1, keepdims=True) - count)
    return Case([count, bias, np.float32(0.01)], {1: new - new.mean(1, keepdims=True)}, {}, 1e-5, (L,))


# ---- rows on their way


@wd.wave([wd.WorkgroupConstraint(T, 4, 0)])
def to_places(
    x: wd.Memory[T, D, BF16], place: wd.Memory[T, K, I32], q: wd.Memory[R, D, I8], scale: wd.Memory[R, F32],
    source: wd.Memory[R, I32],
):  # fmt: skip
    """Each token in bytes to the places of its experts; -1: dropped."""
    row = wd.cast(wd.read(x), F32)
    top = wd.maximum(wd.max(wd.abs(row), dim=D), 1e-6) / 127
    byte = wd.cast(wd.clamp(wd.round(row / top), -127, 127), I8)
    at = wd.read(place)
    wd.write(wd.broadcast(byte, T, K, D), q[at, :])
    wd.write(wd.broadcast(top, T, K), scale[at])
    wd.write(wd.broadcast(wd.index(T), T, K), source[at])


def to_places_case(t: int, k: int, d: int) -> Case:
    rng = np.random.default_rng(0)
    x = normal(t, d, dtype=HALF)
    place = np.where(rng.random((t, k)) < 0.2, -1, rng.permutation(t * k).reshape(t, k)).astype(np.int32)
    top = (np.maximum(np.abs(wide(x)).max(1), 1e-6).astype(np.float32) / np.float32(127))
    byte = np.clip(np.round(x.astype(np.float32) / top[:, None]), -127, 127)
    q, scale, source = np.zeros((t * k, d), np.int8), np.zeros(t * k, np.float32), np.full(t * k, -1, np.int32)
    arguments = [x, place, q.copy(), scale.copy(), source.copy()]
    for i, j in np.argwhere(place >= 0):
        q[place[i, j]], scale[place[i, j]], source[place[i, j]] = byte[i], top[i], i
    return Case(arguments, {2: q, 3: scale, 4: source}, {}, 1e-6, (T, R))


@wd.wave([wd.WorkgroupConstraint(T, 4, 0)])
def back_gradient(
    dy: wd.Memory[T, D, BF16], rows: wd.Memory[R, D, BF16], place: wd.Memory[T, K, I32], share: wd.Memory[T, K, F32],
    drows: wd.Memory[R, D, BF16], dshare: wd.Memory[T, K, F32],
):  # fmt: skip
    """Of the weighted sums of experts' rows: the rows' gradients and the weights'."""
    g, at = wd.cast(wd.read(dy), F32), wd.read(place)
    row = wd.cast(wd.read(rows[at, :]), F32)
    wd.write(wd.sum(row * g, dim=D), dshare)
    wd.write(wd.cast(g * wd.read(share), BF16), drows[at, :])


def back_gradient_case(t: int, k: int, d: int) -> Case:
    rng = np.random.default_rng(0)
    dy, rows, share = whole(t, d, dtype=HALF), whole(t * k, d, seed=1, dtype=HALF), whole(t, k, seed=2, dtype="f4")
    place = np.where(rng.random((t, k)) < 0.2, -1, rng.permutation(t * k).reshape(t, k)).astype(np.int32)
    kept = place >= 0
    dshare = np.where(kept, (wide(rows)[place] * wide(dy)[:, None]).sum(2), 0)
    drows = np.zeros((t * k, d))
    drows[place[kept]] = (wide(dy)[:, None] * share[..., None])[kept]
    outputs = np.zeros((t * k, d), HALF), np.zeros((t, k), np.float32)
    return Case([dy, rows, place, share, *outputs], {4: drows, 5: dshare}, dynamic=(T, R))


@wd.wave([wd.WorkgroupConstraint(T, 4, 0)])
def shared_expert(
    x: wd.Memory[T, D, F16], gate: wd.Memory[D, F16], shared: wd.Memory[T, D, F16], routed: wd.Memory[T, K, D, F16],
    weight: wd.Memory[T, K, F32], residual: wd.Memory[T, D, F16], y: wd.Memory[T, D, F16],
):  # fmt: skip
    """What all tokens' expert says, as much as a gate lets through, beside the chosen ones' weighted sum."""
    through = wd.sigmoid(wd.sum(wd.cast(wd.read(x), F32) * wd.cast(wd.read(gate), F32), dim=D))
    own = wd.sum(wd.cast(wd.read(routed), F32) * wd.read(weight), dim=K)
    total = own + through * wd.cast(wd.read(shared), F32) + wd.cast(wd.read(residual), F32)
    wd.write(wd.cast(total, F16), y)


def shared_expert_case(t: int, k: int, d: int) -> Case:
    x, shared, residual = (normal(t, d, seed=s, dtype=np.float16) for s in range(3))
    gate, routed = normal(d, seed=4, dtype=np.float16), normal(t, k, d, seed=5, dtype=np.float16)
    weight = normal(t, k, seed=6)
    through = sigmoid((wide(x) * wide(gate)).sum(1, keepdims=True))
    want = (wide(routed) * wide(weight)[..., None]).sum(1) + through * wide(shared) + wide(residual)
    return Case([x, gate, shared, routed, weight, residual, np.zeros_like(x)], {6: want}, {}, 5e-3, (T,))


@wd.wave([wd.WorkgroupConstraint(R, 1, 0)])
def sent(ids: wd.Memory[R, T, K, I32], count: wd.Memory[R, E, I32], place: wd.Memory[R, T, K, I32]):
    """Before an all-to-all: how many tokens a rank has for each expert, and each choice's place among them in order."""
    choice = wd.reshape(wd.read(ids), S)
    hot = wd.cast(choice == wd.index(E), I32)
    number = wd.sum(hot, dim=S)
    before = wd.cumsum(number, dim=E) - number
    own = wd.sum((wd.cumsum(hot, dim=S) - 1 + before) * hot, dim=E)
    wd.write(number, count)
    wd.write(wd.reshape(own, T, K), place)


def sent_case(r: int, t: int, k: int, e: int) -> Case:
    ids = np.random.default_rng(0).integers(0, e, (r, t, k)).astype(np.int32)
    flat = ids.reshape(r, -1)
    count = np.stack([np.bincount(row, minlength=e) for row in flat])
    place = np.argsort(np.argsort(flat, 1, kind="stable"), 1).reshape(ids.shape)
    outputs = np.zeros((r, e), np.int32), np.zeros_like(ids)
    return Case([ids, *outputs], {1: count, 2: place}, {S: t * k}, dynamic=(R,))


# ---- products by each row's own weights


@wd.wave([wd.WorkgroupConstraint(T, 1, 0), wd.WorkgroupConstraint(N, 128, 1)])
def own_adapter(
    x: wd.Memory[T, D, F16], which: wd.Memory[T, I32], rank: wd.Memory[A, I32], scale: wd.Memory[A, F32],
    down: wd.Memory[A, R, D, F16], up: wd.Memory[A, N, R, F16], y: wd.Memory[T, N, F16],
):  # fmt: skip
    """A token alone by its adapter, of as many directions as it has; -1: by none."""
    mine = wd.read(which)
    wd.exit_if(mine < 0)
    row = wd.cast(wd.read(x), F32)
    narrow = wd.sum(row * wd.cast(wd.read(down[mine, :, :]), F32), dim=D)
    narrow = wd.where(wd.index(R) < wd.read(rank[mine]), narrow * wd.read(scale[mine]), 0.0)
    wider = wd.sum(narrow * wd.cast(wd.read(up[mine, :, :]), F32), dim=R)
    wd.write(wd.cast(wd.cast(wd.read(y), F32) + wider, F16), y)


def own_adapter_case(t: int, d: int, n: int, r: int) -> Case:
    x, y = normal(t, d, dtype=np.float16), normal(t, n, seed=1, dtype=np.float16)
    which = (np.arange(t) % 4 - 1).astype(np.int32)
    rank, scale = np.array([r, r // 2, 3], np.int32), np.array([1, 0.5, 2], np.float32)
    down = normal(3, r, d, seed=2, dtype=np.float16, scale=0.1)
    up = normal(3, n, r, seed=3, dtype=np.float16, scale=0.1)
    want = wide(y)
    for i, a in enumerate(which):
        if a >= 0:
            narrow = (wide(down[a]) @ wide(x[i]))[: rank[a]] * scale[a]
            want[i] += wide(up[a])[:, : rank[a]] @ narrow
    return Case([x, which, rank, scale, down, up, y], {6: want}, {}, 5e-3, (T,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)],
         subs={J: 16})  # fmt: skip
def four_bit_experts(
    x: wd.Memory[T, K, F16], order: wd.Memory[B, J, I32], expert: wd.Memory[B, I32], share: wd.Memory[S, F32],
    w: wd.Memory[E, N, K, U4], zero: wd.Memory[E, K / 64, N, U4], scale: wd.Memory[E, K / 64, N, F16],
    y: wd.Memory[S, N, F16], choices: wd.Scalar[I32],
):  # fmt: skip
    """Blocks of 16 choices of one expert, whose weights have four bits, a scale and a zero point for 64 of them; a
    choice from S on is padding."""
    choice, mine = wd.read(order), wd.read(expert)

    @wd.iterate(K, init_args=[wd.Register[J, N, F32](0.0)])
    def total(acc):
        row = wd.read(x[choice // choices, :])
        q = wd.cast(wd.read(w[mine, :, :]), F16)
        z = wd.repeat_interleave(wd.cast(wd.read(zero[mine, :, :]), F16), K)
        s = wd.repeat_interleave(wd.read(scale[mine, :, :]), K)
        return wd.mma(row, (q - z) * s, acc)

    wd.write(wd.cast(total * wd.read(share[choice]), F16), y[choice, :])


def four_bit_case(t: int, k: int, n: int, e: int) -> Case:
    rng = np.random.default_rng(0)
    ids, blocks, owners = rng.integers(0, e, t * 2), [], []
    for i in range(e):
        mine = np.flatnonzero(ids == i)
        for j in range(0, len(mine), 16):
            blocks.append(np.pad(mine[j : j + 16], (0, max(0, 16 - len(mine) + j)), constant_values=2 * t))
            owners.append(i)
    x, share = whole(t, k), rng.random(2 * t).astype(np.float32)
    q, z = rng.integers(0, 16, (e, n, k)), rng.integers(0, 16, (e, k // 64, n))
    scale = (rng.integers(1, 4, z.shape) / 16).astype(np.float16)
    w = (q - np.repeat(z, 64, 1).transpose(0, 2, 1)) * np.repeat(wide(scale), 64, 1).transpose(0, 2, 1)
    want = np.stack([wide(x[i // 2]) @ w[ids[i]].T * share[i] for i in range(2 * t)])

    def packed(a):
        return (a[..., ::2] | a[..., 1::2] << 4).astype(np.uint8)

    arguments = [x, np.array(blocks, np.int32), np.array(owners, np.int32), share, packed(q), packed(z), scale,
                 np.zeros((2 * t, n), np.float16), np.int32(2)]  # fmt: skip
    return Case(arguments, {7: want}, {}, 1e-2, (T, S, B))


KERNELS = {
    "biases-follow": (biases_follow, biases_case, ((2, 64), (3, 161))),
    "group-limited": (group_limited, group_limited_case, ((8, 8, 32, 8), (7, 5, 12, 6))),
    "experts-choose": (experts_choose, experts_choose_case, ((64, 8, 16), (150, 5, 12))),
    "router-gradient": (router_gradient, router_gradient_case, ((16, 64, 4), (21, 60, 3))),
    "to-places": (to_places, to_places_case, ((8, 4, 256), (13, 3, 200))),
    "back-gradient": (back_gradient, back_gradient_case, ((8, 4, 256), (13, 3, 200))),
    "shared-expert": (shared_expert, shared_expert_case, ((8, 4, 256), (13, 3, 200))),
    "sent": (sent, sent_case, ((3, 43, 3, 9),)),
    "own-adapter": (own_adapter, own_adapter_case, ((5, 256, 256, 16), (9, 200, 150, 8))),
    "four-bit-experts": (four_bit_experts, four_bit_case, ((41, 192, 80, 4),)),
}


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)
