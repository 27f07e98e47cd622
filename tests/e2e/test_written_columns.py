"""Columns of databases and what stands beside them: packed numbers, dates, decimals, checksums, streams of bits, text,
sketches, tables by two hashes, joins, groups, searches along a graph, thresholds digit by digit."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from families import TARGETS, Case, both_tests, normal

import wavedsl as wd

B, C, D, E, G, H, K, L, M, N, P, S, T, V, W = wd.symbols("B C D E G H K L M N P S T V W")
F32, I32, I64, U8, U32, U64 = wd.f32, wd.i32, wd.i64, wd.u8, wd.u32, wd.u64


# ---- packed numbers, dates, decimals


@wd.wave([wd.WorkgroupConstraint(G, 1, 0)], subs={L: 128})
def packed_deltas(
    words: wd.Memory[W, U32], start: wd.Memory[G, I32], width: wd.Memory[G, I32], first: wd.Memory[G, I32],
    least: wd.Memory[G, I32], out: wd.Memory[G, L, I32],
):  # fmt: skip
    """Parquet's DELTA_BINARY_PACKED: blocks of 128 differences above the least one, each as wide as the block needs."""
    bits = wd.read(width)
    at = wd.index(L) * bits
    word = wd.read(start) + at // 32
    both = wd.cast(wd.read(words[word]), U64) | wd.cast(wd.read(words[word + 1]), U64) << 32
    mask = (wd.Register[U64](1) << wd.cast(bits, U64)) - 1
    delta = wd.cast(both >> wd.cast(at % 32, U64) & mask, I32)
    wd.write(wd.read(first) + wd.cumsum(delta + wd.read(least), dim=L), out)


def packed_case(g: int) -> Case:
    rng = np.random.default_rng(0)
    width = rng.integers(0, 18, g).astype(np.int32)
    width[:2] = (0, 31)
    least, first = rng.integers(-500, 10, g).astype(np.int32), rng.integers(-99, 99, g).astype(np.int32)
    words, start, want = [], [], []
    for w, low, begin in zip(width, least, first):
        deltas = rng.integers(0, 2 ** int(w), 128)
        start.append(len(words))
        total = sum(int(d) << i * int(w) for i, d in enumerate(deltas))
        words += [total >> 32 * i & 0xFFFFFFFF for i in range(int(w) * 4)]
        want.append((begin + np.cumsum(deltas + low)).astype(np.int32))
    words += [0, 0]
    arguments = [np.array(words, np.uint32), np.array(start, np.int32), width, first, least]
    return Case([*arguments, np.zeros((g, 128), np.int32)], {5: np.array(want)}, dynamic=(G, W))


@wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
def by_month(
    days: wd.Memory[N, I32], amount: wd.Memory[N, I64], valid: wd.Memory[W, U32], totals: wd.Memory[12, I64],
    latest: wd.Memory[12, I32], weekdays: wd.Memory[7, I32],
):  # fmt: skip
    """Days since 1970 as Gregorian dates; sums by month of what is not null, its latest year, and who comes on what
    day of the week."""
    n, day = wd.index(N), wd.read(days)
    there = wd.read(valid[n // 32]) >> wd.cast(n % 32, U32) & 1 == 1
    z = day + 719468
    era = z // 146097
    doe = z % 146097
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    month = wd.where(mp < 10, mp + 2, mp - 10)
    year = yoe + era * 400 + wd.cast(month < 2, I32)
    place = wd.where(there, month, -1)
    wd.atomic_add(wd.read(amount), totals[place])
    wd.atomic_max(year, latest[place])
    wd.atomic_add(1, weekdays[wd.where(there, (day + 4) % 7, -1)])


def month_case(n: int) -> Case:
    import datetime

    rng = np.random.default_rng(0)
    days = rng.integers(-200000, 200000, n).astype(np.int32)
    amount, valid = rng.integers(-(2**40), 2**40, n), rng.random(-(-n // 32) * 32) < 0.8
    totals, latest, weekdays = np.zeros(12, np.int64), np.full(12, -9999, np.int32), np.zeros(7, np.int32)
    for d, a, v in zip(days, amount, valid):
        if v:
            date = datetime.date(1970, 1, 1) + datetime.timedelta(int(d))
            totals[date.month - 1] += a
            latest[date.month - 1] = max(latest[date.month - 1], date.year)
            weekdays[date.isoweekday() % 7] += 1
    bits = np.packbits(valid, bitorder="little").view(np.uint32)
    empty = [np.zeros(12, np.int64), np.full(12, -9999, np.int32), np.zeros(7, np.int32)]
    return Case([days, amount, bits, *empty], {3: totals, 4: latest, 5: weekdays}, dynamic=(N, W))


@wd.wave([wd.WorkgroupConstraint(G, 1, 0)])
def decimals(
    price: wd.Memory[G, N, I64], count: wd.Memory[G, N, I64], low: wd.Memory[G, U64], high: wd.Memory[G, I64]
):
    """Sums of products of numbers of 64 bits, in 128."""
    a, b = wd.read(price), wd.read(count)

    def add(x, y):
        total = x[0] + y[0]
        return total, x[1] + y[1] + wd.cast(total < x[0], I64)

    part = (wd.bitcast(a * b, U64), wd.mulhi(a, b))
    bottom, top = wd.reduce(part, add, (0, 0), dim=N)
    wd.write(bottom, low)
    wd.write(top, high)


def decimal_case(g: int, n: int) -> Case:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-(2**62), 2**62, (g, n)) for _ in range(2))
    sums = [sum(int(x) * int(y) for x, y in zip(*rows)) for rows in zip(a, b)]
    low, high = np.array([s & 2**64 - 1 for s in sums], np.uint64), np.array([s >> 64 for s in sums], np.int64)
    return Case([a, b, np.zeros_like(low), np.zeros_like(high)], {2: low, 3: high}, dynamic=(G,))


# ---- checksums


@wd.wave([wd.WorkgroupConstraint(B, 64, 0)])
def checksums(data: wd.Memory[N, U8], start: wd.Memory[S, I32], table: wd.Memory[256, U32], out: wd.Memory[B, U32]):
    """CRC-32 of pieces of any length, a byte at a time by a table."""
    first, last = wd.read(start[wd.index(B)]), wd.read(start[wd.index(B) + 1])

    def step(i, crc):
        byte = wd.cast(wd.read(data[i]), U32)
        return i + 1, wd.read(table[wd.cast((crc ^ byte) & 255, I32)]) ^ crc >> 8

    _, crc = wd.while_loop(lambda i, crc: i < last, step, [first, wd.Register[B, U32](0xFFFFFFFF)])
    wd.write(~crc, out)


def checksum_case(b: int) -> Case:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 40, b)
    start = np.r_[0, np.cumsum(lengths)].astype(np.int32)
    data = rng.integers(0, 256, int(start[-1]) + 1).astype(np.uint8)
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ 0xEDB88320, table >> 1).astype(np.uint32)
    want = np.array([zlib.crc32(data[s:e].tobytes()) for s, e in pairwise(start)], np.uint32)
    return Case([data, start, table, np.zeros(b, np.uint32)], {3: want}, dynamic=(B, N))


PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)


@wd.wave([wd.WorkgroupConstraint(B, 4, 0)])
def digests(x: wd.Memory[B, T, 4, U32], seed: wd.Scalar[U32], out: wd.Memory[B, U32]):
    """XXH32 of rows of whole blocks of sixteen bytes: four sums that each take a word of a block."""
    p1, p2, p3, *_ = PRIMES
    starts = (seed + p1 + p2, seed + p2, seed, seed - p1)

    def more(t, *sums):
        return t < T

    def block(t, *sums):
        out = []
        for i, s in enumerate(sums):
            out.append(wd.rotate_left(s + wd.read(x[:, t, i]) * p2, 13) * p1)
        return t + 1, *out

    _, *sums = wd.while_loop(more, block, [wd.Register[I32](0), *(wd.broadcast(s, B) for s in starts)])
    h = sum(wd.rotate_left(s, r) for s, r in zip(sums, (1, 7, 12, 18))) + wd.cast(T * 16, U32)
    h = (h ^ h >> 15) * p2
    h = (h ^ h >> 13) * p3
    wd.write(h ^ h >> 16, out)


def digest_case(b: int, t: int) -> Case:
    x = np.random.default_rng(0).integers(0, 2**32, (b, t, 4), dtype=np.uint64).astype(np.uint32)
    p1, p2, p3, *_ = PRIMES
    word, want = 0xFFFFFFFF, []

    def left(v: int, r: int) -> int:
        return (v << r | v >> 32 - r) & word

    for row in x:
        sums = [(7 + p1 + p2) & word, (7 + p2) & word, 7, (7 - p1) & word]
        for lanes in row:
            sums = [left((s + int(v) * p2) & word, 13) * p1 & word for s, v in zip(sums, lanes)]
        h = sum(left(s, r) for s, r in zip(sums, (1, 7, 12, 18))) + t * 16 & word
        h = (h ^ h >> 15) * p2 & word
        h = (h ^ h >> 13) * p3 & word
        want.append(h ^ h >> 16)
    return Case([x, np.uint32(7), np.zeros(b, np.uint32)], {2: np.array(want, np.uint32)}, dynamic=(B, T))


# ---- streams of bits and of text


@wd.wave([wd.WorkgroupConstraint(B, 32, 0)])
def symbols_by_range(
    data: wd.Memory[B, W, U8], state: wd.Memory[B, U32], symbol: wd.Memory[V, U8], frequency: wd.Memory[256, U32],
    before: wd.Memory[256, U32], out: wd.Memory[B, T, U8],
):  # fmt: skip
    """Asymmetric numeral systems: a stream to an element, bytes taken in as the state runs low."""
    def more(t, x, at):
        return t < T

    def symbol_of(t, x, at):
        slot = x & 4095
        s = wd.read(symbol[wd.cast(slot, I32)])
        wd.write(s, out[:, t])
        s = wd.cast(s, I32)
        x = wd.read(frequency[s]) * (x >> 12) + slot - wd.read(before[s])

        def take(x, at):
            return x << 8 | wd.cast(wd.read(data[:, at]), U32), at + 1

        return t + 1, *wd.while_loop(lambda x, at: x < 2**23, take, [x, at])

    wd.while_loop(more, symbol_of, [wd.Register[B, I32](0), wd.read(state), wd.Register[B, I32](0)])


def range_case(b: int, t: int) -> Case:
    rng = np.random.default_rng(0)
    share = np.zeros(256, np.int64)
    share[:5] = (2500, 1000, 500, 95, 1)
    before = np.r_[0, np.cumsum(share)[:-1]]
    text = rng.choice(256, (b, t), p=share / 4096).astype(np.uint8)
    state, streams = [], []
    for row in text:
        x, out = 2**23, []
        for s in row[::-1]:
            while x >= (2**23 >> 12 << 8) * share[s]:
                out.append(x & 255)
                x >>= 8
            x = int(x // share[s] << 12) + int(x % share[s]) + int(before[s])
        state.append(x)
        streams.append(out[::-1])
    data = np.zeros((b, max(map(len, streams)) + 1), np.uint8)
    for row, s in zip(data, streams):
        row[: len(s)] = s
    slots = np.repeat(np.arange(256), share).astype(np.uint8)
    tables = [slots, share.astype(np.uint32), before.astype(np.uint32)]
    return Case([data, np.array(state, np.uint32), *tables, np.zeros_like(text)], {5: text}, dynamic=(B, W))


@wd.wave([wd.WorkgroupConstraint(B, 64, 0)])
def floats_by_difference(words: wd.Memory[B, W, U64], first: wd.Memory[B, U64], out: wd.Memory[B, T, wd.f64]):
    """Gorilla: each number's bits by what changed; a 0 for none, 10 for the same window of bits as before, 11 with a
    window of its own, of five and six bits."""
    def take(at, count):
        """The next bits; a word has them from the top."""
        word, inside = at // 64, wd.cast(at % 64, U64)
        high = wd.read(words[:, word]) << inside
        low = wd.where(inside == 0, 0, wd.read(words[:, word + 1]) >> (64 - inside))
        return (high | low) >> wd.cast(64 - count, U64)

    def more(t, *rest):
        return t < T

    def number(t, at, value, lead, length):
        wd.write(wd.bitcast(value, wd.f64), out[:, t])
        changed = take(at, 1) == 1
        own = changed & (take(at + 1, 1) == 1)
        lead = wd.where(own, wd.cast(take(at + 2, 5), I32), lead)
        length = wd.where(own, wd.cast(take(at + 7, 6), I32) + 1, length)
        start = at + wd.where(own, 13, 2)
        bits = take(start, length) << wd.cast(64 - lead - length, U64)
        value = wd.where(changed, value ^ bits, value)
        return t + 1, wd.where(changed, start + length, at + 1), value, lead, length

    none = wd.Register[B, I32](0)
    wd.while_loop(more, number, [none, none, wd.read(first), none, none + 1])


def difference_case(b: int, t: int) -> Case:
    rng = np.random.default_rng(0)
    values = np.round(np.cumsum(rng.integers(-1, 2, (b, t)) * 0.25, axis=1) + 100, 2)
    values[0] = rng.standard_normal(t)
    streams = []
    for row in values.view(np.uint64):
        text, lead, length = "", 0, 1
        for old, new in pairwise(row):
            change = int(old ^ new)
            if not change:
                text += "0"
                continue
            front, tail = min(64 - change.bit_length(), 31), (change & -change).bit_length() - 1
            if front >= lead and 64 - tail <= lead + length:
                text += f"10{change >> 64 - lead - length:0{length}b}"
            else:
                lead, length = front, 64 - front - tail
                text += f"11{lead:05b}{length - 1:06b}{change >> tail:0{length}b}"
        streams.append(text)
    w = max(map(len, streams)) // 64 + 3
    words = np.array([[int(s.ljust(64 * w, "0")[64 * i :][:64], 2) for i in range(w)] for s in streams], np.uint64)
    first = values.view(np.uint64)[:, 0].copy()
    return Case([words, first, np.zeros_like(values)], {2: values}, dynamic=(B, W))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def numbers_of_text(text: wd.Memory[T, U8], start: wd.Memory[N, I32], out: wd.Memory[N, F32], bad: wd.Memory[1, I32]):
    """Fields of text, each up to a comma or the end of a line: a sign, digits, a point, digits."""
    def char(i):
        return wd.cast(wd.read(text[i]), I32)

    at = wd.read(start)
    minus = char(at) == ord("-")

    def more(i, *rest):
        c = char(i)
        return (c != ord(",")) & (c != ord("\n"))

    def letter(i, value, places, point, wrong):
        c = char(i)
        digit = (c >= ord("0")) & (c <= ord("9"))
        dot = c == ord(".")
        value = wd.where(digit, value * 10 + c - ord("0"), value)
        places = places + wd.cast(digit & point, I32)
        return i + 1, value, places, point | dot, wrong | ~(digit | dot) | dot & point

    none, no = wd.Register[N, I32](0), wd.index(N) < 0
    _, value, places, _, wrong = wd.while_loop(more, letter, [at + wd.cast(minus, I32), none, none, no, no])
    number = wd.cast(value, F32) / wd.pow(10.0, wd.cast(places, F32))
    wd.write(wd.where(wrong, wd.where(minus, -0.0, 0.0), wd.where(minus, -number, number)), out)
    wd.atomic_add(wd.sum(wd.cast(wrong, I32), dim=N), bad[0])


def text_case(n: int) -> Case:
    rng, fields = np.random.default_rng(0), []
    for i in range(n):
        whole, part = int(rng.integers(-2000, 2000)), int(rng.integers(0, 4))
        fields.append(f"{whole / 10**part:.{part}f}" if i % 7 else ("12x", "1.2.3")[i % 2])
    text = "".join(f + (",", "\n")[i % 4 == 3] for i, f in enumerate(fields))
    start = np.r_[0, np.cumsum([len(f) + 1 for f in fields])[:-1]].astype(np.int32)
    want = np.array([float(f) if i % 7 else 0.0 for i, f in enumerate(fields)])
    data = np.frombuffer(text.encode(), np.uint8).copy()
    return Case([data, start, np.zeros(n, np.float32), np.zeros(1, np.int32)],
                {2: want, 3: np.array([len(range(0, n, 7))])}, slack=1e-6, dynamic=(N, T))


# ---- sketches, tables, joins, groups


@wd.wave([wd.WorkgroupConstraint(D, 1, 0), wd.TilingConstraint(N, 64)])
def signatures(
    words: wd.Memory[D, N, U32], length: wd.Memory[D, I32], a: wd.Memory[K, U32], b: wd.Memory[K, U32],
    out: wd.Memory[D, K, U32],
):  # fmt: skip
    """MinHash: of three words in a row each, the least of each of K hashes."""
    count = wd.read(length)

    @wd.iterate(N, init_args=[wd.Register[K, U32](0xFFFFFFFF)])
    def least(best):
        one, two, three = (wd.read(words, mapping=wd.IndexMapping((N,), {D: D, N: N + i})) for i in range(3))
        h = (one * 31 + two) * 31 + three
        h = h ^ h >> 16
        each = h * wd.read(a) + wd.read(b)
        each = wd.where(wd.index(N) + 2 < count, each, 0xFFFFFFFF)
        return wd.minimum(best, wd.min(each, dim=N))

    wd.write(least, out)


def signature_case(d: int, n: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, (d, n), dtype=np.uint64)
    length = rng.integers(0, n + 1, d).astype(np.int32)
    a, b = (rng.integers(0, 2**32, k, dtype=np.uint64) | 1 for _ in range(2))
    want = np.full((d, k), 0xFFFFFFFF, np.uint64)
    for row in range(d):
        x = words[row, : length[row]]
        h = ((x[:-2] * 31 + x[1:-1]) * 31 + x[2:]) & 0xFFFFFFFF
        h ^= h >> 16
        if len(h):
            want[row] = (h[:, None] * a + b & 0xFFFFFFFF).min(0)
    u32 = [x.astype(np.uint32) for x in (words, a, b)]
    return Case([u32[0], length, u32[1], u32[2], np.zeros((d, k), np.uint32)], {4: want}, dynamic=(D,))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def two_nests(keys: wd.Memory[N, U32], table: wd.Memory[V, U64], failed: wd.Memory[1, I32]):
    """A cuckoo's table of keys with their places: who is thrown out moves to its other nest, up to 32 times."""
    def nests(key):
        h = key * 0x9E3779B1
        size = wd.cast(wd.Register[I32](0) + V, U32)
        return wd.cast((h >> 7) % size, I32), wd.cast((h ^ h >> 15) * 0x85EBCA77 % size, I32)

    mine = wd.cast(wd.read(keys), U64) << 32 | wd.cast(wd.index(N) + 1, U64)

    def homeless(entry, place, tries):
        return (entry != 0) & (tries < 32)

    def move(entry, place, tries):
        out = wd.atomic_xchg(entry, table[place])
        one, two = nests(wd.cast(out >> 32, U32))
        return out, wd.where(place == one, two, one), tries + 1

    start, _ = nests(wd.read(keys))
    entry, _, _ = wd.while_loop(homeless, move, [mine, start, wd.Register[N, I32](0)])
    wd.atomic_add(wd.sum(wd.cast(entry != 0, I32), dim=N), failed[0])


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def joined_pairs(
    keys: wd.Memory[N, I32], heads: wd.Memory[V, I32], following: wd.Memory[M, I32], others: wd.Memory[M, I32],
    count: wd.Memory[1, I32], left: wd.Memory[P, I32], right: wd.Memory[P, I32],
):  # fmt: skip
    """A join: buckets are chains of rows; pairs with equal keys are written in any order."""
    key = wd.read(keys)

    def more(row):
        return row >= 0

    def look(row):
        same = wd.read(others[row]) == key
        place = wd.atomic_add(1, count[wd.where(same, 0, -1)])
        place = wd.where(same, place, -1)
        wd.write(wd.index(N), left[place])
        wd.write(row, right[place])
        return wd.read(following[row])

    wd.while_loop(more, look, [wd.read(heads[key % V])])


def joined_case(n: int, m: int) -> Case:
    rng = np.random.default_rng(0)
    v = 29
    keys, others = rng.integers(0, 2 * m, n).astype(np.int32), rng.permutation(2 * m)[:m].astype(np.int32)
    heads, following = np.full(v, -1, np.int32), np.full(m, -1, np.int32)
    for row, k in enumerate(others):
        heads[k % v], following[row] = row, heads[k % v]
    pairs = np.argwhere(keys[:, None] == others)
    room = len(pairs)
    return Case([keys, heads, following, others, np.zeros(1, np.int32), np.zeros(room, np.int32),
                 np.zeros(room, np.int32)], {4: np.array([room])}, dynamic=(N, M))


@wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
def kth_largest(x: wd.Memory[M, N, F32], k: wd.Scalar[I32], bins: wd.Memory[M, V, I32], out: wd.Memory[M, F32]):
    """The k-th largest of long rows by their digits, eight bits of the ordered number at a time."""
    bits = wd.bitcast(wd.read(x), U32)
    ordered = wd.where(bits >> 31 == 1, ~bits, bits | 0x80000000)
    prefix, left = wd.Register[U32](0), k
    for digit in range(4):
        shift = 24 - 8 * digit
        alike = ordered >> shift >> 8 == prefix if digit else wd.index(N) >= 0
        place = wd.cast(ordered >> shift & 255, I32)
        wd.write(0, bins)
        wd.atomic_add(1, bins[M, wd.where(alike, place, -1)])
        behind = wd.cumsum(wd.read(bins), dim=V, reverse=True)
        chosen = wd.sum(wd.cast(behind >= left, I32), dim=V) - 1
        left = left - wd.sum(wd.where(wd.index(V) == chosen + 1, behind, 0), dim=V)
        prefix = prefix << 8 | wd.cast(chosen, U32)
    wd.write(wd.bitcast(wd.where(prefix >> 31 == 1, prefix ^ 0x80000000, ~prefix), F32), out)


def kth_case(m: int, n: int, k: int) -> Case:
    x = normal(m, n)
    x[:, ::3] = np.round(x[:, ::3])
    want = np.sort(x, axis=1)[:, n - k]
    return Case([x, np.int32(k), np.zeros((m, 256), np.int32), np.zeros(m, np.float32)], {3: want}, dynamic=(M,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def along_edges(
    queries: wd.Memory[B, D, F32], points: wd.Memory[V, D, F32], edges: wd.Memory[V, E, I32], entry: wd.Scalar[I32],
    found: wd.Memory[B, I32], distance: wd.Memory[B, F32],
):  # fmt: skip
    """A layer of HNSW: from the entry always to the neighbour that is nearest to the query, while one is nearer."""
    query = wd.read(queries)

    def far(row):
        return wd.sum((wd.read(points[row, :]) - query) ** 2, dim=D)

    def nearer(at, best, moved):
        return moved

    def step(at, best, moved):
        near = wd.read(edges[at, :])
        rows = wd.where(near >= 0, near, at)
        distances = far(rows)
        least = wd.min(distances, dim=E)
        which = wd.argmin(distances, dim=E)
        closer = least < best
        return wd.where(closer, wd.read(edges[at, which]), at), wd.minimum(least, best), closer

    at, best, _ = wd.while_loop(nearer, step, [entry, far(entry), entry >= 0])
    wd.write(at, found)
    wd.write(best, distance)


def edges_case(b: int, v: int, e: int) -> Case:
    points, queries = whole_points(v, 8, 1), whole_points(b, 8, 2)
    away = ((points[:, None] - points) ** 2).sum(-1)
    edges = np.argsort(away, axis=1, kind="stable")[:, 1 : e + 1].astype(np.int32)
    edges[::5, -1] = -1
    found, distance = [], []
    for q in queries:
        d = ((points - q) ** 2).sum(-1)
        at = 3
        while True:
            near = np.where(edges[at] >= 0, edges[at], at)
            best = int(near[np.argmin(d[near])])
            if d[best] >= d[at]:
                break
            at = best
        found.append(at)
        distance.append(d[at])
    return Case([queries, points, edges, np.int32(3), np.zeros(b, np.int32), np.zeros(b, np.float32)],
                {4: np.array(found), 5: np.array(distance)}, dynamic=(B, V))


def whole_points(n: int, d: int, seed: int) -> np.ndarray:
    """Points whose distances are exact."""
    return np.random.default_rng(seed).integers(-50, 50, (n, d)).astype(np.float32)


KERNELS: dict[str, tuple[Any, Callable[..., Case], Any]] = {
    "packed deltas": (packed_deltas, packed_case, ((3,), (6,))),
    "by month": (by_month, month_case, ((256,), (601,))),
    "decimals": (decimals, decimal_case, ((2, 64), (3, 77))),
    "checksums": (checksums, checksum_case, ((64,), (81,))),
    "digests": (digests, digest_case, ((4, 3), (7, 5))),
    "symbols by range": (symbols_by_range, range_case, ((32, 20), (45, 17))),
    "floats by difference": (floats_by_difference, difference_case, ((16, 12), (70, 9))),
    "numbers of text": (numbers_of_text, text_case, ((64,), (101,))),
    "signatures": (signatures, signature_case, ((2, 64, 16), (3, 100, 24))),
    "joined pairs": (joined_pairs, joined_case, ((64, 40), (100, 61))),
    "kth largest": (kth_largest, kth_case, ((2, 256, 9), (3, 1001, 100))),
    "along edges": (along_edges, edges_case, ((2, 40, 6), (5, 77, 9))),
}  # fmt: skip


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)


@pytest.mark.parametrize("target", TARGETS)
def test_what_comes_in_any_order(target: str) -> None:
    """A join's pairs as a set, and every key of the cuckoo's table in one of its nests."""
    case = joined_case(100, 61)
    keys, _, _, others, *_ = case.arguments
    want = {(int(a), int(b)) for a, b in np.argwhere(keys[:, None] == others)}
    rng = np.random.default_rng(0)
    names = rng.choice(2**32, 100, replace=False).astype(np.uint32)
    for emulated in (True, False):
        mine = [a.copy() for a in case.arguments]
        table, failed = np.zeros(257, np.uint64), np.zeros(1, np.int32)
        if emulated:
            joined_pairs.compile(*mine, target=target).emulate(*mine)
            two_nests.compile(names, table, failed, target=target).emulate(names, table, failed)
        else:
            joined_pairs.evaluate(*mine)
            two_nests.evaluate(names, table, failed)
        assert {(int(a), int(b)) for a, b in zip(mine[5], mine[6])} == want
        assert failed[0] == 0 and np.count_nonzero(table) == 100
        for row, key in enumerate(names):
            h = int(key) * 0x9E3779B1 & 0xFFFFFFFF
            nests = ((h >> 7) % 257, ((h ^ h >> 15) * 0x85EBCA77 & 0xFFFFFFFF) % 257)
            assert int(key) << 32 | row + 1 in {int(table[n]) for n in nests}
