"""Beside the products of a server: pages of caches that are copied, gathered and looked at through windows, drafts that
are found and judged, logits that are bent before a token is drawn."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from families import Case, both_tests, normal, philox, wide

import wavedsl as wd

B, C, D, E, G, H, I, J, K, L, M, N, P, Q, R, S, T, V, W = wd.symbols("B C D E G H I J K L M N P Q R S T V W")
BF16, F16, F32, I8, I32, U8, U32 = wd.bf16, wd.f16, wd.f32, wd.i8, wd.i32, wd.u8, wd.u32
HALF = ml_dtypes.bfloat16


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(wide(x) - wide(x).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---- pages


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(H, 1, 0), wd.TilingConstraint(T, 32)])
def window_and_sinks(
    q: wd.Memory[B, H, G, D, BF16], k: wd.Memory[P, S, H, D, BF16], v: wd.Memory[P, S, H, D, BF16],
    table: wd.Memory[B, L, I32], length: wd.Memory[B, I32], window: wd.Scalar[I32], sinks: wd.Scalar[I32],
    o: wd.Memory[B, H, G, D, BF16],
):  # fmt: skip
    """One query a head, G heads to a head of keys: the first tokens and the last ones, wherever their pages are."""
    end, query = wd.read(length), wd.read(q)

    def attend(first, last):
        def tile(top, total, acc):
            t = wd.index(T)
            page = wd.read(table[:, t // S])
            seen = (t < end) & ((t < sinks) | (t >= end - window)) & (t >= first) & (t < last)
            key, value = (wd.read(m[wd.where(seen, page, -1), t % S, H, :]) for m in (k, v))
            score = wd.mma(query, key, wd.Register[G, T, F32](0.0)) * D**-0.5
            score = wd.where(seen, score, -math.inf)
            higher = wd.maximum(top, wd.max(score, dim=T))
            base = wd.where(higher == -math.inf, 0.0, higher)
            p, keep = wd.exp(score - base), wd.exp(top - base)
            return higher, total * keep + wd.sum(p, dim=T), wd.mma(wd.cast(p, BF16), value, acc * keep)

        return tile, first, last

    state = [wd.Register[G, F32](-math.inf), wd.Register[G, F32](0.0), wd.Register[G, D, F32](0.0)]
    middle = wd.maximum(sinks, (end - window) // 32 * 32)
    for tile, first, last in (attend(0, wd.minimum(sinks, end)), attend(middle, end)):
        state = wd.iterate(T, init_args=list(state), start=first, stop=last)(tile)
    wd.write(wd.cast(state[2] / state[1], BF16), o)


def window_case(b: int, h: int, g: int, d: int, s: int, pages: int) -> Case:
    rng = np.random.default_rng(0)
    length = rng.integers(1, s * pages + 1, b).astype(np.int32)
    table = rng.permutation(b * pages).reshape(b, pages).astype(np.int32)
    q = normal(b, h, g, d, dtype=HALF)
    k, v = (normal(b * pages, s, h, d, seed=1 + i, dtype=HALF) for i in range(2))
    want, window, sinks = np.zeros((b, h, g, d)), 21, 4
    for i, n in enumerate(length):
        keys, values = (wide(m[table[i]]).reshape(-1, h, d)[:n] for m in (k, v))
        seen = (np.arange(n) < sinks) | (np.arange(n) >= n - window)
        p = softmax(np.where(seen, np.einsum("hgd,nhd->hgn", wide(q[i]), keys) * d**-0.5, -np.inf))
        want[i] = np.einsum("hgn,nhd->hgd", p, values)
    arguments = [q, k, v, table, length, np.int32(window), np.int32(sinks), np.zeros_like(q)]
    return Case(arguments, {7: want}, {T: s * pages}, 2e-2, (B, P, L))


@wd.wave([wd.WorkgroupConstraint(N, 1, 0), wd.WorkgroupConstraint(L, 1, 1)])
def pages_copied(cache: wd.Memory[L, 2, P, S, E, U8], pairs: wd.Memory[N, 2, I32]):
    """Keys and values of all layers, page by page, in place."""
    source, target = wd.read(pairs[:, 0]), wd.read(pairs[:, 1])
    for part in (0, 1):
        wd.write(wd.read(cache[:, part, source, :, :]), cache[:, part, target, :, :])


def pages_case(layers: int, pages: int, s: int, e: int) -> Case:
    rng = np.random.default_rng(0)
    cache = rng.integers(0, 256, (layers, 2, pages, s, e)).astype(np.uint8)
    pairs = rng.permutation(pages)[: pages // 2 * 2].reshape(-1, 2).astype(np.int32)
    want = cache.copy()
    want[:, :, pairs[:, 1]] = cache[:, :, pairs[:, 0]]
    return Case([cache, pairs], {0: want}, dynamic=(P, N))


@wd.wave([wd.WorkgroupConstraint(T, 16, 0)])
def pages_joined(
    cache: wd.Memory[P, S, D, I8], scale: wd.Memory[P, S, F32], table: wd.Memory[B, L, I32], starts: wd.Memory[W, I32],
    out: wd.Memory[T, D, F16],
):  # fmt: skip
    """All sequences' tokens behind each other, as numbers again. `starts`: where each sequence begins, and the end."""
    t = wd.index(T)
    owner = wd.sum(wd.cast(wd.read(starts) <= t, I32), dim=W) - 1
    place = t - wd.read(starts[owner])
    page = wd.read(table[owner, place // S])
    row = wd.cast(wd.read(cache[page, place % S, :]), F32) * wd.read(scale[page, place % S])
    wd.write(wd.cast(row, F16), out)


def joined_case(lengths: tuple[int, ...], s: int, d: int) -> Case:
    rng, b = np.random.default_rng(0), len(lengths)
    width = -(-max(lengths) // s)
    table = rng.permutation(b * width).reshape(b, width).astype(np.int32)
    cache, scale = rng.integers(-127, 128, (b * width, s, d)).astype(np.int8), rng.random((b * width, s)).astype("f4")
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    rows = wide(scale)[..., None] * cache
    want = np.concatenate([rows[table[i]].reshape(-1, d)[:n] for i, n in enumerate(lengths)])
    return Case([cache, scale, table, starts, np.zeros(want.shape, np.float16)], {4: want}, {}, 1e-3, (T, P))


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(D, 64, 0), wd.TilingConstraint(T, 32)])
def two_bit_keys(k: wd.Memory[B, T, D, F16], q: wd.Memory[B, T / 4, D, U8], low: wd.Memory[B, T / 32, D, F16],
                 step: wd.Memory[B, T / 32, D, F16]):  # fmt: skip
    """KIVI: channel by channel, 32 tokens with a least value and a step, four of them in a byte."""
    @wd.iterate(T)
    def group():
        rows = wd.cast(wd.read(k[:, wd.tile_start(T) + wd.index(R) * 4 + wd.index(J), :]), F32)
        least, most = wd.min(rows, dim=(R, J)), wd.max(rows, dim=(R, J))
        size = wd.maximum(most - least, 1e-4) / 3
        code = wd.cast(wd.clamp(wd.round((rows - least) / size), 0, 3), I32)
        at = wd.tile_start(T) // 32
        packed = wd.sum(code << (wd.index(J) * 2), dim=J)
        wd.write(wd.cast(packed, U8), q[:, at * 8 + wd.index(R), :])
        wd.write(wd.cast(least, F16), low[:, at, :])
        wd.write(wd.cast(size, F16), step[:, at, :])


def two_bit_case(b: int, t: int, d: int) -> Case:
    k = normal(b, t, d, dtype=np.float16)
    rows = k.astype(np.float32).reshape(b, t // 32, 32, d)
    least, most = rows.min(2), rows.max(2)
    size = np.maximum(most - least, np.float32(1e-4)) / np.float32(3)
    code = np.clip(np.round((rows - least[:, :, None]) / size[:, :, None]), 0, 3).astype(int).reshape(b, t // 4, 4, d)
    packed = (code << (np.arange(4) * 2)[:, None]).sum(2)
    outputs = [np.zeros((b, t // 4, d), np.uint8), *(np.zeros(least.shape, np.float16) for _ in range(2))]
    return Case([k, *outputs], {1: packed, 2: least, 3: size}, {R: 8, J: 4}, 1e-3, (B,))


# ---- drafts


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def tree_of_parents(parent: wd.Memory[B, N, I32], mask: wd.Memory[B, N, W, U32], depth: wd.Memory[B, N, I32]):
    """Who sees whom in a tree of drafts, as bits, and how deep each one lies; a root's parent is -1."""
    n = wd.index(N)

    def more(at, steps, seen):
        return at >= 0

    def up(at, steps, seen):
        bit = wd.where(wd.index(W) == at // 32, 1 << (at % 32), 0)
        return wd.read(parent[:, at]), steps + 1, seen | bit

    start = [n, wd.Register[N, I32](-1), wd.Register[N, W, I32](0)]
    _, steps, seen = wd.while_loop(more, up, start)
    wd.write(wd.bitcast(seen, U32), mask)
    wd.write(steps, depth)


def tree_case(b: int, n: int) -> Case:
    rng = np.random.default_rng(0)
    parent = np.array([[-1 if i < 2 else rng.integers(0, i) for i in range(n)] for _ in range(b)], np.int32)
    sees, depth = np.zeros((b, n, -(-n // 32) * 32), bool), np.zeros((b, n), int)
    for row in range(b):
        for i in range(n):
            at, steps = i, -1
            while at >= 0:
                sees[row, i, at], at, steps = True, parent[row, at], steps + 1
            depth[row, i] = steps
    mask = np.packbits(sees, -1, "little").view(np.uint32)
    return Case([parent, np.zeros_like(mask), np.zeros_like(parent)], {1: mask, 2: depth}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def looked_up_drafts(token: wd.Memory[B, T, I32], length: wd.Memory[B, I32], draft: wd.Memory[B, K, I32],
                     size: wd.Memory[B, I32]):  # fmt: skip
    """What followed the last three tokens when they came before, the latest time; else the last two, else nothing."""
    n, t = wd.read(length), wd.index(T)
    best = wd.Register[I32](-1)
    for width in (2, 3):
        same = t + width < n
        for i in range(width):
            same &= wd.read(token[:, t + i]) == wd.read(token[:, n - width + i])
        last = wd.max(wd.where(same, t, -1), dim=T)
        best = wd.where(last >= 0, last + width, best)
    place = best + wd.index(K)
    there = (best >= 0) & (place < n)
    wd.write(wd.where(there, wd.read(token[:, wd.where(there, place, -1)]), -1), draft)
    wd.write(wd.sum(wd.cast(there, I32), dim=K), size)


def drafts_case(b: int, t: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    token, length = rng.integers(0, 6, (b, t)).astype(np.int32), rng.integers(8, t + 1, b).astype(np.int32)
    token[0, length[0] - 2] = 99
    draft = np.full((b, k), -1)
    for row in range(b):
        words = token[row, : length[row]].tolist()
        found = -1
        for width in (2, 3):
            hits = [i for i in range(len(words) - width) if words[i : i + width] == words[-width:]]
            found = hits[-1] + width if hits else found
        if found >= 0:
            rest = words[found : found + k]
            draft[row, : len(rest)] = rest
    want = {2: draft, 3: (draft >= 0).sum(1)}
    return Case([token, length, np.zeros((b, k), np.int32), np.zeros(b, np.int32)], want, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def typical_paths(
    logits: wd.Memory[B, N, V, F32], token: wd.Memory[B, N, I32], path: wd.Memory[C, L, I32], heat: wd.Scalar[F32],
    floor: wd.Scalar[F32], share: wd.Scalar[F32], best: wd.Memory[B, I32], count: wd.Memory[B, I32],
    following: wd.Memory[B, I32],
):  # fmt: skip
    """Medusa: of paths through a tree of drafts the one of which most is likely enough where the model is that unsure;
    node 0 is the token that is already known, -1 is the end of a path."""
    p = wd.softmax(wd.read(logits) / heat, dim=V)
    unsure = -wd.sum(wd.where(p > 0, p * wd.log(p), 0.0), dim=V)
    least = wd.minimum(floor, share * wd.exp(-unsure))  # [N]
    node = wd.read(path)
    before = wd.read(path[:, wd.index(L) - 1])
    said = wd.shuffle(wd.read(token), node, dim=N)
    chance = wd.softmax(wd.read(logits) / heat, dim=V)
    there = wd.sum(wd.where(wd.index(V) == said, wd.shuffle(chance, before, dim=N), 0.0), dim=V)
    fine = (wd.index(L) == 0) | ((node >= 0) & (there > wd.shuffle(least, before, dim=N)))
    run = wd.sum(wd.cast(wd.cumprod(wd.cast(fine, I32), dim=L), I32), dim=L)
    winner = wd.argmax(run, dim=C)
    wd.write(winner, best)
    length = wd.max(run, dim=C)
    wd.write(length, count)
    last = wd.read(path[winner, length - 1])
    wd.write(wd.argmax(wd.read(logits[:, last, :]), dim=V), following)


def typical_case(b: int, n: int, v: int) -> Case:
    rng = np.random.default_rng(0)
    path = np.array([[0, 1, 3, -1], [0, 1, 4, 6], [0, 2, 5, -1], [0, 2, -1, -1]], np.int32)
    logits, token = normal(b, n, v, scale=2), rng.integers(0, v, (b, n)).astype(np.int32)
    p = softmax(logits / 0.8)
    for row in range(b):  # some of the drafts are what the model would say
        for line in path:
            for i in range(1, 4):
                if line[i] >= 0 and rng.random() < 0.7:
                    token[row, line[i]] = p[row, line[i - 1]].argmax()
    least = np.minimum(0.2, 0.5 * np.exp((p * np.log(p)).sum(2)))
    best, count, following = (np.zeros(b, int) for _ in range(3))
    for row in range(b):
        runs = []
        for line in path:
            run = 1
            while run < 4 and line[run] >= 0:
                at = line[run - 1]
                if p[row, at, token[row, line[run]]] <= least[row, at]:
                    break
                run += 1
            runs.append(run)
        best[row], count[row] = np.argmax(runs), max(runs)
        following[row] = logits[row, path[best[row], count[row] - 1]].argmax()
    outputs = [np.zeros(b, np.int32) for _ in range(3)]
    arguments = [logits, token, path, np.float32(0.8), np.float32(0.2), np.float32(0.5), *outputs]
    return Case(arguments, {6: best, 7: count, 8: following}, dynamic=(B,))


# ---- logits


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(V, 256), wd.TilingConstraint(T, 64)])
def counted_penalties(
    x: wd.Memory[B, V, F16], prompt: wd.Memory[B, T, I32], said: wd.Memory[B, T, I32], seen: wd.Memory[B, V, U8],
    count: wd.Memory[B, V, I32], repeated: wd.Memory[B, F32], often: wd.Memory[B, F32], present: wd.Memory[B, F32],
):  # fmt: skip
    """Tokens that were said or asked, by how often; -1 is none. Counts start as zeros."""
    @wd.iterate(T)
    def counts():
        wd.write(1, seen[:, wd.read(prompt)])
        wd.atomic_add(1, count[:, wd.read(said)])

    @wd.iterate(V)
    def bent():
        logit, n = wd.cast(wd.read(x), F32), wd.read(count)
        known = (n > 0) | (wd.read(seen) != 0)
        factor = wd.read(repeated)
        logit = wd.where(known, wd.where(logit > 0, logit / factor, logit * factor), logit)
        logit = logit - wd.read(often) * wd.cast(n, F32) - wd.where(n > 0, wd.read(present), 0.0)
        wd.write(wd.cast(logit, F16), x)


def penalties_case(b: int, v: int, t: int) -> Case:
    rng = np.random.default_rng(0)
    x, prompt, said = normal(b, v, dtype=np.float16), *rng.integers(-1, v, (2, b, t)).astype(np.int32)
    said[:, : t // 3] = 7
    repeated, often, present = (np.full(b, z, np.float32) for z in (1.25, 0.5, 0.25))
    seen, count = np.zeros((b, v), np.uint8), np.zeros((b, v), np.int32)
    for row in range(b):
        seen[row, prompt[row][prompt[row] >= 0]] = 1
        np.add.at(count[row], said[row][said[row] >= 0], 1)
    z, known = wide(x), (seen > 0) | (count > 0)
    want = np.where(known, np.where(z > 0, z / 1.25, z * 1.25), z) - 0.5 * count - 0.25 * (count > 0)
    arguments = [x, prompt, said, np.zeros_like(seen), np.zeros_like(count), repeated, often, present]
    return Case(arguments, {0: want, 3: seen, 4: count}, {}, 2e-3, (B, V, T))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(V, 512, 1)], subs={N: 3})
def no_run_twice(x: wd.Memory[B, V, F32], said: wd.Memory[B, T, I32], length: wd.Memory[B, I32],
                 banned: wd.Memory[S, I32], least: wd.Scalar[I32], stop: wd.Scalar[I32]):  # fmt: skip
    """No three tokens a second time, none of the banned ones, and no end before so many tokens were said."""
    n, t = wd.read(length), wd.index(T)
    same = t + 2 < n
    for i in range(2):
        same &= wd.read(said[:, t + i]) == wd.read(said[:, n - 2 + i])
    word = wd.where(same, wd.read(said[:, t + 2]), -1)
    out = wd.any(wd.index(V) == word, dim=T) | wd.any(wd.index(V) == wd.read(banned), dim=S)
    out |= (wd.index(V) == stop) & (n < least)
    wd.write(wd.where(out, -math.inf, wd.read(x)), x)


def no_run_case(b: int, v: int, t: int) -> Case:
    rng = np.random.default_rng(0)
    x, said = normal(b, v), rng.integers(0, 5, (b, t)).astype(np.int32)
    length, banned = rng.integers(5, t + 1, b).astype(np.int32), np.array([3, v - 1, 77], np.int32)
    want = wide(x)
    want[:, banned] = -np.inf
    want[length < 12, 2] = -np.inf
    for row in range(b):
        words = said[row, : length[row]].tolist()
        for i in range(len(words) - 2):
            if words[i : i + 2] == words[-2:]:
                want[row, words[i + 2]] = -np.inf
    return Case([x, said, length, banned, np.int32(12), np.int32(2)], {0: want}, dynamic=(B, V))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def spoken(
    x: wd.Memory[B, V, BF16], token: wd.Memory[B, I32], best: wd.Memory[B, K, F32], which: wd.Memory[B, K, I32],
    own: wd.Memory[B, F32], rank: wd.Memory[B, I32],
):  # fmt: skip
    """Logarithms of the K best chances and of the token that was drawn, and how many were as good as it."""
    logits = wd.cast(wd.read(x), F32)
    logp = logits - wd.max(logits, dim=V)
    logp = logp - wd.log(wd.sum(wd.exp(logp), dim=V))
    top, at = wd.topk(logp, K, dim=V)
    wd.write(top, best)
    wd.write(at, which)
    mine = wd.sum(wd.where(wd.index(V) == wd.read(token), logp, 0.0), dim=V)
    wd.write(mine, own)
    wd.write(wd.sum(wd.cast(logp >= mine, I32), dim=V), rank)


def spoken_case(b: int, v: int, k: int) -> Case:
    x = (np.random.default_rng(0).permutation(b * v).reshape(b, v) % 251 / 32).astype(HALF)
    token = np.random.default_rng(1).integers(0, v, b).astype(np.int32)
    logp = np.log(softmax(x))
    at = np.argsort(-wide(x), 1, kind="stable")[:, :k]
    mine = wide(x)[np.arange(b), token]
    want = {2: np.take_along_axis(logp, at, 1), 3: at, 4: logp[np.arange(b), token],
            5: (wide(x) >= mine[:, None]).sum(1)}  # fmt: skip
    outputs = [np.zeros((b, k), np.float32), np.zeros((b, k), np.int32), np.zeros(b, np.float32), np.zeros(b, np.int32)]
    return Case([x, token, *outputs], want, {}, 1e-4, (B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def without_the_obvious(
    x: wd.Memory[B, V, F32], unwanted: wd.Memory[B, V, F32], guide: wd.Scalar[F32], least: wd.Scalar[F32],
    chance: wd.Scalar[F32], seed: wd.Scalar[wd.u32], token: wd.Memory[B, I32], kept: wd.Memory[B, V, I32],
):  # fmt: skip
    """Logits steered away from an unwanted prompt's; at times all tokens that are likely but the least likely of them
    are left out; then one is drawn by Gumbel's noise."""
    def level(m):
        row = wd.read(m)
        row = row - wd.max(row, dim=V)
        return row - wd.log(wd.sum(wd.exp(row), dim=V))

    away = level(unwanted)
    logp = away + guide * (level(x) - away)
    p = wd.softmax(logp, dim=V)
    likely = p >= least
    lowest = wd.min(wd.where(likely, p, math.inf), dim=V)
    dropped = likely & (p > lowest) & (wd.random(seed, B) < chance)
    wd.write(wd.cast(~dropped, I32), kept)
    noise = -wd.log(-wd.log(wd.random(seed + 1, B, V) + 1e-20) + 1e-20)
    wd.write(wd.argmax(wd.where(dropped, -math.inf, logp + noise), dim=V), token)


def obvious_case(b: int, v: int) -> Case:
    x, unwanted = normal(b, v, scale=3), normal(b, v, seed=1)
    logp, away = np.log(softmax(x)), np.log(softmax(unwanted))
    logp = away + 1.5 * (logp - away)
    p = softmax(logp)
    likely = p >= 0.05
    dropped = likely & (p > np.where(likely, p, np.inf).min(1, keepdims=True)) & (philox(7, b) < 0.6)[:, None]
    noise = -np.log(-np.log(philox(8, b * v) + 1e-20) + 1e-20).reshape(b, v)
    token = np.where(dropped, -np.inf, logp + noise).argmax(1)
    arguments = [x, unwanted, np.float32(1.5), np.float32(0.05), np.float32(0.6), np.uint32(7), np.zeros(b, np.int32),
                 np.zeros((b, v), np.int32)]  # fmt: skip
    return Case(arguments, {6: token, 7: ~dropped}, dynamic=(B,))


KERNELS = {
    "pages-copied": (pages_copied, pages_case, ((2, 8, 16, 64), (3, 7, 5, 33))),
    "window-and-sinks": (window_and_sinks, window_case, ((2, 1, 5, 24, 8, 6),)),
    "pages-joined": (pages_joined, joined_case, (((20, 12, 30), 16, 64), ((7, 1, 0, 33), 8, 50))),
    "two-bit-keys": (two_bit_keys, two_bit_case, ((1, 64, 64), (2, 96, 100))),
    "tree-of-parents": (tree_of_parents, tree_case, ((2, 64), (3, 45))),
    "looked-up-drafts": (looked_up_drafts, drafts_case, ((4, 64, 4), (5, 301, 5))),
    "typical-paths": (typical_paths, typical_case, ((3, 9, 131),)),
    "counted-penalties": (counted_penalties, penalties_case, ((2, 512, 64), (3, 700, 41))),
    "no-run-twice": (no_run_twice, no_run_case, ((2, 512, 16), (2, 600, 21))),
    "spoken": (spoken, spoken_case, ((2, 256, 8), (3, 301, 5))),
    "without-the-obvious": (without_the_obvious, obvious_case, ((2, 256), (3, 333))),
}


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)
