"""Kernels on words and strings, against NumPy and the evaluator: sums of many words, hashes, a table that fills by
atomics, bits of matrices, what a parser looks for first, and marriages, in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from families import Case, four_tests, whole

import wavedsl as wd

B, N, M, W, V, L, T, S = wd.symbols("B N M W V L T S")
I32, U8, U32, U64 = wd.i32, wd.u8, wd.u32, wd.u64


def words(*shape: int, seed: int = 0, bits: int = 32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << bits, shape, dtype=np.uint64).astype(f"u{bits // 8}")


def as_number(row: np.ndarray) -> int:
    return int.from_bytes(row.tobytes(), "little")


def as_words(number: int, count: int) -> np.ndarray:
    return np.frombuffer(number.to_bytes(4 * count, "little"), np.uint32)


@wd.wave([wd.WorkgroupConstraint(B, 4, 0)])
def long_sum(a: wd.Memory[B, W, U32], b: wd.Memory[B, W, U32], c: wd.Memory[B, W, U32], over: wd.Memory[B, U32]):
    """A carry is made, or passed on: what that composes to is a scan."""
    x, y = wd.read(a), wd.read(b)
    total = x + y
    makes, passes = total < x, total == 0xFFFFFFFF

    def after(low, high):
        return high[0] | (high[1] & low[0]), high[1] & low[1]

    carries, _ = wd.scan((makes, passes), after, (False, True), dim=W)
    before = wd.shuffle(wd.cast(carries, U32), wd.maximum(wd.index(W) - 1, 0), dim=W)
    wd.write(total + wd.where(wd.index(W) > 0, before, 0), c)
    wd.write(wd.cast(wd.extract(carries, {W: W - 1}), U32), over)


def long_sum_case(b: int, w: int) -> Case:
    x, y = words(2, b, w, bits=32)
    x[0], y[0] = 0xFFFFFFFF, 0
    y[0, 0] = 1
    y[-1, 1:] = ~x[-1, 1:]
    sums = [as_number(p) + as_number(q) for p, q in zip(x, y)]
    want = np.array([as_words(s % (1 << 32 * w), w) for s in sums])
    return Case([x, y, np.zeros_like(x), np.zeros(b, np.uint32)], {2: want, 3: np.array([s >> 32 * w for s in sums])},
                dynamic=(B,))  # fmt: skip


PCG = 6364136223846793005


@wd.wave([wd.WorkgroupConstraint(N, 64, 0), wd.WorkgroupConstraint(S, 1, 1)])
def jumped_ahead(seeds: wd.Memory[S, U64], step: wd.Scalar[wd.u64], out: wd.Memory[S, N, U32]):
    """PCG32, each element at its own place of the stream: by squaring, as many steps as its number has bits."""
    def left(ahead, m, a, power, add):
        return ahead > 0

    def square(ahead, m, a, power, add):
        odd = ahead & 1 == 1
        return (
            ahead >> 1, wd.where(odd, m * power, m), wd.where(odd, a * power + add, a), power * power, (power + 1) * add
        )  # fmt: skip

    one, none = wd.Register[N, U64](1), wd.Register[N, U64](0)
    start = [wd.cast(wd.index(N), U64), one, none, one * PCG, one * step]
    _, m, a, _, _ = wd.while_loop(left, square, start)
    state = wd.read(seeds) * m + a
    mixed = wd.cast((state >> 18 ^ state) >> 27, U32)
    wd.write(wd.rotate_left(mixed, -wd.cast(state >> 59, I32)), out)


def jumped_case(s: int, n: int) -> Case:
    seeds, add = words(s, bits=64), 1442695040888963407
    want = np.zeros((s, n), np.uint32)
    for i, state in enumerate(map(int, seeds)):
        for j in range(n):
            mixed, turn = ((state >> 18 ^ state) >> 27) & 0xFFFFFFFF, state >> 59
            want[i, j] = (mixed >> turn | mixed << (-turn & 31)) & 0xFFFFFFFF
            state = (state * PCG + add) % (1 << 64)
    return Case([seeds, add, np.zeros((s, n), np.uint32)], {2: want}, dynamic=(N,))


def mixed_word(h, k):
    k = wd.rotate_left(k * 0xCC9E2D51, 15) * 0x1B873593
    return wd.rotate_left(h ^ k, 13) * 5 + 0xE6546B64


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def murmur(text: wd.Memory[N, L, U8], length: wd.Memory[N, I32], seed: wd.Scalar[U32], out: wd.Memory[N, U32]):
    """MurmurHash3 of strings of their own lengths, each word put together from bytes."""
    size = wd.read(length)

    def word(at):
        def byte(i):
            return wd.where(at + i < size, wd.cast(wd.read(text[:, at + i]), U32), 0)

        return byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24

    def whole_words(h, at):
        return at + 4 <= size

    def step(h, at):
        return mixed_word(h, word(at)), at + 4

    h, at = wd.while_loop(whole_words, step, [wd.Register[N, U32](seed), wd.Register[N, I32](0)])
    tail = wd.rotate_left(word(at) * 0xCC9E2D51, 15) * 0x1B873593
    h = h ^ tail ^ wd.cast(size, U32)
    h = (h ^ h >> 16) * 0x85EBCA6B
    h = (h ^ h >> 13) * 0xC2B2AE35
    wd.write(h ^ h >> 16, out)


def murmur_of(data: bytes, seed: int) -> int:
    mask, h = 0xFFFFFFFF, seed
    turn = lambda x, r: (x << r | x >> (32 - r)) & mask  # noqa: E731
    cut = len(data) // 4 * 4
    for i in range(0, cut, 4):
        k = turn(int.from_bytes(data[i : i + 4], "little") * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
        h = (turn(h ^ k, 13) * 5 + 0xE6546B64) & mask
    h ^= turn(int.from_bytes(data[cut:], "little") * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    return h ^ h >> 16


def murmur_case(n: int, l: int) -> Case:
    text = words(n, l, bits=8)
    lengths = np.random.default_rng(1).integers(0, l + 1, n).astype(np.int32)
    want = np.array([murmur_of(row[:k].tobytes(), 0x9747B28C) for row, k in zip(text, lengths)])
    return Case([text, lengths, 0x9747B28C, np.zeros(n, np.uint32)], {3: want}, dynamic=(N,))


EMPTY = 0xFFFFFFFF


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def into_table(
    keys: wd.Memory[N, U32], table: wd.Memory[V, U32], taken: wd.Memory[V, I32], count: wd.Memory[1, I32],
    steps: wd.Memory[1, I32],
):  # fmt: skip
    """A set by open addressing. Which slots are taken does not depend on who came first."""
    key = wd.read(keys)

    def looking(slot, found, tried):
        return (found != EMPTY) & (found != key)

    def probe(slot, found, tried):
        slot = wd.where(tried == 0, slot, (slot + 1) % V)
        return slot, wd.atomic_cas(EMPTY, key, table[slot]), tried + 1

    first = wd.cast(key * 0x9E3779B1 % V, I32)
    found = wd.Register[N, U32](EMPTY - 1)
    slot, found, tried = wd.while_loop(looking, probe, [first, found, wd.Register[N, I32](0)])
    new = found == EMPTY
    wd.write(wd.Register[N, I32](1), taken[slot])
    wd.atomic_add(wd.sum(wd.cast(new, I32), dim=N), count[0])
    wd.atomic_max(wd.max(tried, dim=N), steps[0])


def table_case(n: int, v: int) -> Case:
    keys = np.random.default_rng(0).integers(0, 3 * v // 4, n).astype(np.uint32) * np.uint32(77)
    table = np.full(v, EMPTY, np.uint32)
    for key in np.unique(keys):
        slot = int(key) * 0x9E3779B1 % (1 << 32) % v
        while table[slot] != EMPTY:
            slot = (slot + 1) % v
        table[slot] = key
    start = [keys, np.full(v, EMPTY, np.uint32), np.zeros(v, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    return Case(start, {2: (table != EMPTY).astype(np.int32), 3: np.array([len(np.unique(keys))])}, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(B, 4, 0)])
def turned_bits(x: wd.Memory[B, L, U32], y: wd.Memory[B, L, U32]):
    """32 x 32 bits, transposed: halves are swapped with the row whose number differs in a bit."""
    value, row = wd.read(x), wd.index(L)
    for reach, mask in ((16, 0x0000FFFF), (8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
        other = wd.shuffle(value, row ^ reach, dim=L)
        low = row & reach == 0
        value = wd.where(low, value & mask | (other & mask) << reach, value & ~mask | other >> reach & mask)
    wd.write(value, y)


def turned_case(b: int) -> Case:
    x = words(b, 32)
    bits = np.unpackbits(x.view(np.uint8), axis=1, bitorder="little").reshape(b, 32, 32)
    want = np.packbits(bits.transpose(0, 2, 1).reshape(b, -1), axis=1, bitorder="little").view(np.uint32)
    return Case([x, np.zeros_like(x)], {1: want}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1), wd.TilingConstraint(W, 8)])
def binary_layer(x: wd.Memory[M, W, U32], w: wd.Memory[N, W, U32], top: wd.Memory[N, I32], y: wd.Memory[M, N, U8]):
    """Products of signs: as many as agree less as many as do not, against a threshold."""
    @wd.iterate(W, init_args=[wd.Register[M, N, I32](0)])
    def differ(count):
        return count + wd.sum(wd.popcount(wd.read(x) ^ wd.read(w)), dim=W)

    wd.write(wd.cast(32 * W - 2 * differ >= wd.read(top), U8), y)


def binary_case(m: int, n: int, w: int) -> Case:
    x, y, top = words(m, w), words(n, w, seed=1), whole(n, seed=2, dtype=np.int32, low=-9, high=9)
    bits = lambda a: np.unpackbits(a.view(np.uint8), axis=1).astype(np.int32) * 2 - 1  # noqa: E731
    want = bits(x) @ bits(y).T >= top
    return Case([x, y, top, np.zeros((m, n), np.uint8)], {3: want.astype(np.uint8)}, dynamic=(M,))


@wd.wave([wd.WorkgroupConstraint(M, M, 0), wd.TilingConstraint(T, 1)])
def reached(x: wd.Memory[M, W, U32]):
    """The transitive closure of a graph of bits, in place (Warshall): row k is added to the rows that reach k."""
    @wd.iterate(T, init_args=[])
    def over_middles():
        k = wd.tile_start(T)
        through = wd.read(x[k, :])
        own = wd.read(x)
        word = wd.read(x[:, k // 32])
        wd.write(wd.where(word >> k % 32 & 1 == 1, own | through, own), x)


def reached_case(m: int) -> Case:
    graph = np.random.default_rng(0).random((m, m)) < 1.2 / m
    w = -(-m // 32)
    pad = np.zeros((m, 32 * w), np.uint8)
    pad[:, :m] = graph
    packed = np.packbits(pad, axis=1, bitorder="little").view(np.uint32)
    for k in range(m):
        pad |= pad[:, k : k + 1] & pad[k]
    return Case([packed], {0: np.packbits(pad, axis=1, bitorder="little").view(np.uint32)}, subs={T: m})


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(L, 64)])
def structural(text: wd.Memory[B, L, U8], at: wd.Memory[B, L, I32], depth: wd.Memory[B, L, I32], n: wd.Memory[B, I32]):
    """Where JSON opens, closes and separates, outside of its strings, and how deep: simdjson's first stage."""
    @wd.iterate(L, init_args=[wd.Register[I32](0), wd.Register[I32](0), wd.Register[I32](0)])
    def over(inside, deep, found):
        c = wd.cast(wd.read(text), I32)
        c = wd.where(wd.index(L) < L, c, 32)
        quote = wd.where(c == ord('"'), 1, 0)
        odd = wd.scan(quote, lambda a, b: a ^ b, 0, dim=L) ^ inside
        free = (odd == 0) & (quote == 0)
        opens = free & ((c == ord("{")) | (c == ord("[")))
        closes = free & ((c == ord("}")) | (c == ord("]")))
        marks = opens | closes | (free & ((c == ord(",")) | (c == ord(":"))))
        level = deep + wd.cumsum(wd.cast(opens, I32) - wd.cast(closes, I32), dim=L)
        place = found + wd.cumsum(wd.cast(marks, I32), dim=L) - 1
        place = wd.where(marks, place, -1)
        wd.write(wd.index(L), at[B, place])
        wd.write(level, depth[B, place])
        total = wd.sum(wd.cast(marks, I32), dim=L)
        turns = wd.sum(quote, dim=L)
        rise = wd.sum(wd.cast(opens, I32) - wd.cast(closes, I32), dim=L)
        return inside ^ turns & 1, deep + rise, found + total

    wd.write(over[2], n)


def structural_case(b: int, l: int) -> Case:
    text = np.random.default_rng(0).choice(np.frombuffer(b'{}[],: "ab', np.uint8), (b, l))
    at, depth, n = np.zeros((3, b, l), np.int32)
    for i in range(b):
        inside, level, k = False, 0, 0
        for j, c in enumerate(text[i].tobytes().decode()):
            if c == '"':
                inside = not inside
            elif not inside and c in "{}[],:":
                level += (c in "{[") - (c in "}]")
                at[i, k], depth[i, k] = j, level
                k += 1
        n[i, 0] = k
    start = [text, *np.zeros((2, b, l), np.int32), np.zeros(b, np.int32)]
    return Case(start, {1: at, 2: depth, 3: n[:, 0]}, dynamic=(L,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.WaveConstraint(B, 1)])
def stable_marriages(
    wishes: wd.Memory[B, N, M, I32], ranks: wd.Memory[B, M, N, I32], holds: wd.Memory[B, M, I32],
    wife: wd.Memory[B, N, I32],
):  # fmt: skip
    """Gale and Shapley: who is free asks the next on his list; she keeps the smallest rank, in any order."""
    me = wd.index(N)

    def anybody_free(asked, free):
        return wd.any(free, dim=N)

    def ask(asked, free):
        she = wd.read(wishes[B, me, asked])
        rank = wd.read(ranks[B, she, me])
        wd.atomic_min(rank, holds[B, wd.where(free, she, -1)])
        mine = wd.read(holds[B, she]) == rank
        return wd.where(mine, asked, asked + 1), ~mine

    asked, _ = wd.while_loop(anybody_free, ask, [wd.Register[N, I32](0), wd.index(N) >= 0])
    wd.write(wd.read(wishes[B, me, asked]), wife)


def marriages_case(b: int, n: int) -> Case:
    rng = np.random.default_rng(0)
    wishes = rng.permuted(np.tile(np.arange(n), (b, n, 1)), axis=2).astype(np.int32)
    ranks = rng.permuted(np.tile(np.arange(n), (b, n, 1)), axis=2).astype(np.int32)
    want = np.zeros((b, n), np.int32)
    for i in range(b):
        held, free, asked = {}, list(range(n)), [0] * n
        while free:
            he = free.pop()
            she = wishes[i, he, asked[he]]
            asked[he] += 1
            other = held.get(she)
            if other is None or ranks[i, she, he] < ranks[i, she, other]:
                held[she] = he
                if other is not None:
                    free.append(other)
            else:
                free.append(he)
        for she, he in held.items():
            want[i, he] = she
    start = [wishes, ranks, np.full((b, n), 1 << 20, np.int32), np.zeros((b, n), np.int32)]
    return Case(start, {3: want}, dynamic=(B,))


KERNELS: dict[str, tuple[Any, Callable[..., Case], Any]] = {
    "long sum": (long_sum, long_sum_case, ((5, 45),)),
    "jumped ahead": (jumped_ahead, jumped_case, ((3, 101),)),
    "murmur": (murmur, murmur_case, ((99, 21),)),
    "into a table": (into_table, table_case, ((99, 101),)),
    "turned bits": (turned_bits, turned_case, ((7,),)),
    "binary layer": (binary_layer, binary_case, ((21, 35, 11),)),
    "reached": (reached, reached_case, ((45,),)),
    "structural": (structural, structural_case, ((3, 201),)),
    "stable marriages": (stable_marriages, marriages_case, ((3, 21),)),
}  # fmt: skip

HEAVY = ("long sum",)
"""Kernels that take a while: with the slow tests."""
test_against_numpy, test_the_evaluator_agrees, test_on_other_chips, test_the_assembler_takes_it = four_tests(
    KERNELS, HEAVY
)
