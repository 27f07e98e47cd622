"""Kernels around caches, quantised rows and sampling as servers write them, against NumPy and the evaluator."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from families import Case, both_tests, normal, wide

import wavedsl as wd

B, T, H, G, D, E, N, S, L, C, P, W, V, K, M, R, Q = wd.symbols("B T H G D E N S L C P W V K M R Q")
F8, F16, BF16, F32, I32, U32 = wd.f8e4m3, wd.f16, wd.bf16, wd.f32, wd.i32, wd.u32
HALF, BYTE = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


# ---- two parts of an attention joined by their levels; one of them may be of no keys


@wd.wave([wd.WorkgroupConstraint(T, 4, 0), wd.WorkgroupConstraint(H, 4, 1)])
def joined(
    x: wd.Memory[T, H, D, BF16], x_level: wd.Memory[H, T, F32], y: wd.Memory[T, H, D, BF16],
    y_level: wd.Memory[H, T, F32], out: wd.Memory[T, H, D, BF16], level: wd.Memory[H, T, F32],
):  # fmt: skip
    first, second = (wd.read(a) for a in (x_level, y_level))
    top = wd.maximum(first, second)
    top = wd.where(top == -math.inf, 0.0, top)
    p, q = wd.exp(first - top), wd.exp(second - top)
    total = p + q
    value = (wd.cast(wd.read(x), F32) * p + wd.cast(wd.read(y), F32) * q) / total
    wd.write(wd.cast(wd.where(total > 0, value, 0.0), BF16), out)
    wd.write(wd.log(total) + top, level)


def joined_case(t: int, h: int, d: int) -> Case:
    x, y, levels = *normal(2, t, h, d, dtype=HALF), normal(2, h, t, seed=1, scale=4)
    levels[0, 0, 0] = levels[1, 1, 0] = levels[:, 0, -1] = -np.inf
    shares = np.exp(wide(levels)).swapaxes(1, 2)[..., None]
    total = shares.sum(0)
    with np.errstate(all="ignore"):
        want = np.where(total > 0, (wide(x) * shares[0] + wide(y) * shares[1]) / total, 0)
        level = np.log(total)[..., 0].T
    arguments = [x, levels[0], y, levels[1], np.zeros_like(x), np.zeros((h, t), np.float32)]
    return Case(arguments, {4: want, 5: level}, slack=1e-2, dynamic=(T,))


# ---- an indexer of keys: scores of many heads in bytes, of which the positive parts count


@wd.wave([wd.WorkgroupConstraint(T, 1, 0), wd.WorkgroupConstraint(N, 128, 1)])
def indexer(
    q: wd.Memory[T, H, D, F8], weight: wd.Memory[T, H, F32], k: wd.Memory[N, D, F8], scale: wd.Memory[N, F32],
    first: wd.Memory[T, I32], last: wd.Memory[T, I32], score: wd.Memory[T, N, F32],
):  # fmt: skip
    products = wd.mma(wd.read(q), wd.read(k), wd.Register[H, N, F32](0.0))
    total = wd.sum(wd.maximum(products, 0.0) * wd.read(weight), dim=H) * wd.read(scale)
    inside = (wd.index(N) >= wd.read(first)) & (wd.index(N) < wd.read(last))
    wd.write(wd.where(inside, total, -math.inf), score)


def indexer_case(t: int, h: int, n: int, d: int) -> Case:
    q, k = normal(t, h, d, dtype=BYTE), normal(n, d, seed=1, dtype=BYTE)
    weight, scale = normal(t, h, seed=2), np.abs(normal(n, seed=3))
    first, last = np.arange(t, dtype=np.int32), np.linspace(n // 2, n, t).astype(np.int32)
    products = np.maximum(np.einsum("thd,nd->thn", wide(q), wide(k)), 0)
    want = (products * weight[..., None]).sum(1) * scale
    at = np.arange(n)
    want[(at < first[:, None]) | (at >= last[:, None])] = -np.inf
    return Case([q, weight, k, scale, first, last, np.zeros((t, n), np.float32)], {6: want}, slack=2e-3, dynamic=(T, N))


# ---- the activation between two products of experts, in bytes with a power of two for each 128


@wd.wave([wd.WorkgroupConstraint(E, 1, 2), wd.WorkgroupConstraint(T, 4, 1), wd.WorkgroupConstraint(G, 1, 0)],
         subs={L: 128})  # fmt: skip
def experts_in_bytes(
    x: wd.Memory[E, T, 2 * D, BF16], count: wd.Memory[E, I32], q: wd.Memory[E, T, D, F8], scale: wd.Memory[E, G, T, F32]
):
    wd.exit_if(wd.tile_start(T) >= wd.read(count))
    gate, up = (
        wd.cast(wd.read(x, mapping=wd.IndexMapping((T, L), {2 * D: half * D + G * 128 + L})), F32) for half in (0, 1)
    )
    y = gate * wd.sigmoid(gate) * up
    power = wd.exp2(wd.ceil(wd.log2(wd.maximum(wd.max(wd.abs(y), dim=L), 1e-10) / 448.0)))
    row = wd.where(wd.index(T) < wd.read(count), wd.index(T), -1)
    place = wd.IndexMapping((T, L), {T: row, D: G * 128 + L})
    wd.write(wd.cast(wd.clamp(y / power, -448.0, 448.0), F8), q, mapping=place)
    wd.write(power, scale, mapping=wd.IndexMapping((T,), {T: row}))


def experts_case(e: int, t: int, d: int) -> Case:
    x, count = normal(e, t, 2 * d, dtype=HALF), np.random.default_rng(1).integers(0, t + 1, e).astype(np.int32)
    gate, up = wide(x[..., :d]), wide(x[..., d:])
    y = (gate / (1 + np.exp(-gate)) * up).reshape(e, t, d // 128, 128)
    power = np.exp2(np.ceil(np.log2(np.abs(y).max(-1) / 448)))
    some = np.arange(t) < count[:, None]
    want = np.where(some[..., None], (y / power[..., None]).reshape(e, t, d), 0).astype(BYTE)
    outputs = np.zeros((e, t, d), BYTE), np.zeros((e, d // 128, t), np.float32)
    scale = np.where(some[..., None], power, 0).swapaxes(1, 2)
    return Case([x, count, *outputs], {2: wide(want), 3: scale}, slack=0.07, dynamic=(E, T))


# ---- a row of a latent cache: 512 numbers in bytes, a scale for each 128, and 64 halves, all in one array of bytes


@wd.wave([wd.WorkgroupConstraint(T, 1, 0)], subs={G: 4, L: 128, R: 64, Q: 4, P: 2})
def latent_rows(
    c: wd.Memory[T, D, BF16], rope: wd.Memory[T, R, BF16], slot: wd.Memory[T, wd.i64], cache: wd.Memory[N, W, wd.u8]
):  # fmt: skip
    at = wd.cast(wd.read(slot), I32)
    parts = wd.cast(wd.read(c, mapping=wd.IndexMapping((G, L), {D: G * 128 + L})), F32)
    scale = wd.maximum(wd.max(wd.abs(parts), dim=L), 1e-4) / 448.0
    codes = wd.bitcast(wd.cast(parts / scale, F8), wd.u8)
    wd.write(codes, cache, mapping=wd.IndexMapping((G, L), {N: at, W: G * 128 + L}))
    words = wd.bitcast(scale, U32) >> wd.cast(wd.index(Q) * 8, U32)
    wd.write(wd.cast(words & 255, wd.u8), cache, mapping=wd.IndexMapping((G, Q), {N: at, W: 512 + G * 4 + Q}))
    halves = wd.bitcast(wd.read(rope), wd.u16) >> wd.cast(wd.index(P) * 8, wd.u16)
    wd.write(wd.cast(halves & 255, wd.u8), cache, mapping=wd.IndexMapping((R, P), {N: at, W: 528 + R * 2 + P}))


def latent_case(t: int) -> Case:
    c, rope = normal(t, 512, dtype=HALF), normal(t, 64, seed=1, dtype=HALF)
    slot = np.random.default_rng(2).permutation(t + 3)[:t].astype(np.int64)
    slot[t // 2] = -1
    parts = c.astype(np.float32).reshape(t, 4, 128)
    scale = np.maximum(np.abs(parts).max(-1), np.float32(1e-4)) / np.float32(448)
    codes = (parts / scale[..., None]).astype(BYTE).view(np.uint8).reshape(t, 512)
    want = np.zeros((t + 3, 656), np.uint8)
    some = slot >= 0
    want[slot[some]] = np.concatenate([codes, scale.view(np.uint8), rope.view(np.uint8)], 1)[some]
    return Case([c, rope, slot, np.zeros_like(want)], {3: want}, dynamic=(T, N))


# ---- a token of those that a grammar allows, above a share of the likeliest, by noise


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(V, 1024)])
def allowed(
    x: wd.Memory[B, V, BF16], mask: wd.Memory[B, W, I32], heat: wd.Memory[B, F32], least: wd.Memory[B, F32],
    noise: wd.Memory[B, V, F32], token: wd.Memory[B, I32],
):  # fmt: skip
    one, place = wd.Register[F32], wd.IndexMapping((V,), {W: V // 32})

    def logits():
        bits = wd.read(mask, mapping=place) >> (wd.index(V) % 32)
        return wd.where(bits & 1 != 0, wd.cast(wd.read(x), F32) / wd.read(heat), -math.inf)

    @wd.iterate(V, init_args=[one(-math.inf)])
    def top(so_far):
        return wd.maximum(so_far, wd.max(logits(), dim=V))

    @wd.iterate(V, init_args=[one(-math.inf), wd.Register[I32](-1)])
    def best(high, at):
        value = logits()
        noisy = wd.where(value >= top + wd.log(wd.read(least)), value + wd.read(noise), -math.inf)
        here, place = wd.max(noisy, dim=V), wd.argmax(noisy, dim=V)
        return wd.maximum(high, here), wd.where(here > high, place, at)

    wd.write(best[1], token)


def allowed_case(b: int, v: int) -> Case:
    rng = np.random.default_rng(0)
    x, some = normal(b, v, dtype=HALF, scale=3), rng.random((b, v)) < 0.3
    words = np.zeros((b, -(-v // 32) * 32), bool)
    words[:, :v] = some
    mask = np.packbits(words, axis=1, bitorder="little").view(np.int32)
    heat, least = (rng.random(b) + 0.5).astype(np.float32), np.full(b, 0.05, np.float32)
    noise = -np.log(-np.log(rng.random((b, v)))).astype(np.float32)
    value = np.where(some, wide(x) / heat[:, None], -np.inf)
    value = np.where(value >= value.max(1, keepdims=True) + np.log(0.05), value + noise, -np.inf)
    arguments = [x, mask, heat, least, noise, np.zeros(b, np.int32)]
    return Case(arguments, {5: value.argmax(1)}, dynamic=(B, V, W))


# ---- drafts that are what the model says, up to the first that is not, and one token more


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)], subs={K: 8, S: 9})
def greedy_drafts(
    ends: wd.Memory[B, I32], draft: wd.Memory[T, I32], best: wd.Memory[T, I32], bonus: wd.Memory[B, I32],
    out: wd.Memory[B, S, I32], count: wd.Memory[B, I32],
):  # fmt: skip
    last = wd.read(ends)
    first = wd.where(wd.index(B) == 0, 0, wd.read(ends, mapping=wd.IndexMapping((), {B: B - 1})))
    length = last - first
    drafted, said = (wd.read(a, mapping=wd.IndexMapping((K,), {T: first + wd.index(K)})) for a in (draft, best))
    wrong = wd.cast((drafted != said) & (wd.index(K) < length), I32)
    good = wd.sum(wd.cast((wd.cumsum(wrong, dim=K) == 0) & (wd.index(K) < length), I32), dim=K)
    mine = wd.read(best, mapping=wd.IndexMapping((S,), {T: wd.where(wd.index(S) < length, first + wd.index(S), -1)}))
    token = wd.where(wd.index(S) == length, wd.read(bonus), mine)
    wd.write(wd.where(wd.index(S) <= good, token, -1), out)
    wd.write(good + 1, count)


def drafts_case(lengths: tuple[int, ...]) -> Case:
    rng, b = np.random.default_rng(3), len(lengths)
    ends = np.cumsum(lengths).astype(np.int32)
    draft, best = rng.integers(0, 3, (2, ends[-1])).astype(np.int32)
    draft = np.where(rng.random(ends[-1]) < 0.7, best, draft).astype(np.int32)
    bonus, out, count = rng.integers(0, 99, b).astype(np.int32), np.full((b, 9), -1), np.zeros(b)
    for i, n in enumerate(lengths):
        mine = slice(ends[i] - n, ends[i])
        same = draft[mine] == best[mine]
        good = n if same.all() else int(same.argmin())
        count[i], out[i, : good + 1] = good + 1, [*best[mine], bonus[i]][: good + 1]
    return Case([ends, draft, best, bonus, np.zeros((b, 9), np.int32), np.zeros(b, np.int32)], {4: out, 5: count},
                dynamic=(B, T))  # fmt: skip


# ---- the places of a row's largest, of rows too long to sort: their bits from above, then those that have them


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(V, 1024)])
def largest(x: wd.Memory[B, V, F32], at: wd.Memory[B, K, I32]):
    def keys():
        bits = wd.bitcast(wd.read(x), U32)
        return wd.where(bits >> 31 != 0, ~bits, bits | 0x80000000)

    def count(least, equal):
        @wd.iterate(V, init_args=[wd.Register[I32](0)])
        def total(so_far):
            key = keys()
            mine = key >= least if equal else key > least
            return so_far + wd.sum(wd.cast(mine & (wd.index(V) < V), I32), dim=V)

        return total

    def unfinished(least, bit):
        return bit != 0

    def next_bit(least, bit):
        return wd.where(count(least | bit, True) >= K, least | bit, least), bit >> 1

    least, _ = wd.while_loop(unfinished, next_bit, [wd.Register[U32](0), wd.Register[U32](0x80000000)])
    above = count(least, False)

    @wd.iterate(V, init_args=[wd.Register[I32](0), wd.Register[I32](0)])
    def places(larger, same):
        key, inside = keys(), wd.index(V) < V
        more, equal = (wd.cast(c & inside, I32) for c in (key > least, key == least))
        front, behind = larger + wd.cumsum(more, dim=V) - more, above + same + wd.cumsum(equal, dim=V) - equal
        place = wd.where(more != 0, front, wd.where((equal != 0) & (behind < K), behind, -1))
        wd.write(wd.index(V), at, mapping=wd.IndexMapping((V,), {K: place}))
        return larger + wd.sum(more, dim=V), same + wd.sum(equal, dim=V)


def largest_case(b: int, v: int, k: int) -> Case:
    x = np.round(normal(b, v), 2)
    want = np.zeros((b, k))
    for i in range(b):
        least = np.sort(x[i])[-k]
        above = np.flatnonzero(x[i] > least)
        want[i] = [*above, *np.flatnonzero(x[i] == least)[: k - len(above)]]
    return Case([x, np.zeros((b, k), np.int32)], {1: want}, dynamic=(B, V))


# ---- four bits whose groups are in the order in which the columns were quantised


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
def by_activation(
    x: wd.Memory[M, K, F16], q: wd.Memory[K / 8, N, I32], zero: wd.Memory[G, N / 8, I32], scale: wd.Memory[G, N, F16],
    group: wd.Memory[K, I32], y: wd.Memory[M, N, F16],
):  # fmt: skip
    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def total(acc):
        mine = wd.read(group)
        words = wd.read(q, mapping=wd.IndexMapping((K, N), {K / 8: K // 8}))
        code = (words >> (wd.index(K) % 8 * 4)) & 15
        zeros = wd.read(zero, mapping=wd.IndexMapping((K, N), {G: mine, N / 8: N // 8}))
        origin = ((zeros >> (wd.index(N) % 8 * 4)) & 15) + 1
        scales = wd.read(scale, mapping=wd.IndexMapping((K, N), {G: mine}))
        return wd.mma(wd.read(x), wd.cast(code - origin, F16) * scales, acc)

    wd.write(wd.cast(total, F16), y)


def activation_case(m: int, n: int, k: int, g: int) -> Case:
    rng = np.random.default_rng(0)
    x, code, zero = normal(m, k, dtype=np.float16), rng.integers(0, 16, (k, n)), rng.integers(0, 15, (g, n))
    scale, group = (rng.random((g, n)) * 0.05).astype(np.float16), rng.integers(0, g, k).astype(np.int32)
    shifts = np.arange(8) * 4
    words = (code.reshape(k // 8, 8, n) << shifts[:, None]).sum(1).astype(np.uint32).view(np.int32)
    zeros = (zero.reshape(g, n // 8, 8) << shifts).sum(2).astype(np.uint32).view(np.int32)
    want = wide(x) @ ((code - zero[group] - 1) * wide(scale)[group])
    return Case([x, words, zeros, scale, group, np.zeros((m, n), np.float16)], {5: want}, slack=2e-2, dynamic=(M,))


KERNELS: dict[str, Any] = {
    "joined": (joined, joined_case, ((8, 8, 128), (5, 3, 40))),
    "indexer": (indexer, indexer_case, ((2, 64, 256, 128), (3, 16, 200, 64))),
    "experts-in-bytes": (experts_in_bytes, experts_case, ((2, 16, 256), (3, 7, 128))),
    "latent-rows": (latent_rows, latent_case, ((5,), (3,))),
    "allowed": (allowed, allowed_case, ((2, 4096), (3, 1500))),
    "greedy-drafts": (greedy_drafts, drafts_case, (((4, 8, 0, 3),), ((1, 5),))),
    "largest": (largest, largest_case, ((2, 2048, 256), (1, 3000, 100))),
    "by-activation": (by_activation, activation_case, ((16, 64, 128, 4), (7, 72, 192, 3))),
}
BYTES = ("gfx950", "sm_90a")
"""Chips that have OCP's bytes."""

test_against_numpy, test_the_evaluator_agrees = both_tests(
    KERNELS, dict.fromkeys(("indexer", "experts-in-bytes", "latent-rows"), BYTES)
)
