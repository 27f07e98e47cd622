"""Kernels that go over their data again and again, against NumPy and the evaluator: blocks of messages, codes with
errors, digits of keys, prefixes that double, partitions of a table, lines of a picture, edges between components."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from families import Case, four_tests, whole

import wavedsl as wd

B, N, L, T, S, E, V, X, Y = wd.symbols("B N L T S E V X Y")
F32, I8, I32, I64, U8, U32, U64 = wd.f32, wd.i8, wd.i32, wd.i64, wd.u8, wd.u32, wd.u64


def root_bits(power: int, count: int) -> list[int]:
    """The first 32 bits behind the point of roots of the first primes."""
    primes = [p for p in range(2, 400) if all(p % q for q in range(2, p))][:count]
    found = []
    for p in primes:
        wanted, low = p << 32 * power, 0
        for bit in reversed(range(40)):
            if (low | 1 << bit) ** power <= wanted:
                low |= 1 << bit
        found.append(low & 0xFFFFFFFF)
    return found


ROUNDS, START = root_bits(3, 64), root_bits(2, 8)


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def sha256(message: wd.Memory[N, B, 16, U32], blocks: wd.Memory[N, I32], digest: wd.Memory[N, 8, U32]):
    """Each message as many blocks as it has; the bytes of a word stand the other way round in it."""
    count, n = wd.read(blocks), wd.index(N)

    def mixed(x, *places):
        return sum_of(wd.rotate_left(x, -p) for p in places)

    def sum_of(xs):
        total = None
        for x in xs:
            total = x if total is None else total ^ x
        return total

    def block(at, *state):
        w = [wd.permute_bytes(x, x, 0x0123) for x in (wd.read(message[n, at, i]) for i in range(16))]
        a, b, c, d, e, f, g, h = state
        for i in range(64):
            if i >= 16:
                early, late = w[i - 15], w[i - 2]
                w.append(w[i - 16] + (mixed(early, 7, 18) ^ early >> 3) + w[i - 7] + (mixed(late, 17, 19) ^ late >> 10))
            one = h + mixed(e, 6, 11, 25) + (e & f ^ ~e & g) + ROUNDS[i] + w[i]
            two = mixed(a, 2, 13, 22) + (a & b ^ a & c ^ b & c)
            a, b, c, d, e, f, g, h = one + two, a, b, c, d + one, e, f, g
        return at + 1, *(x + y for x, y in zip(state, (a, b, c, d, e, f, g, h)))

    start = [wd.Register[N, I32](0), *(wd.Register[N, U32](x) for x in START)]
    _, *state = wd.while_loop(lambda at, *state: at < count, block, start)
    for i, x in enumerate(state):
        wd.write(wd.permute_bytes(x, x, 0x0123), digest[:, i])


def sha_case(n: int) -> Case:
    rng = np.random.default_rng(0)
    text, want, blocks = np.zeros((n, 256), np.uint8), np.zeros((n, 32), np.uint8), np.zeros(n, np.int32)
    for i, length in enumerate([0, *rng.integers(0, 180, n - 1).tolist()]):
        message = rng.bytes(length)
        want[i] = np.frombuffer(hashlib.sha256(message).digest(), np.uint8)
        padded = message + b"\x80" + bytes((55 - length) % 64) + (8 * length).to_bytes(8, "big")
        blocks[i] = len(padded) // 64
        text[i, : len(padded)] = np.frombuffer(padded, np.uint8)
    words = text.view(np.uint32).reshape(n, 4, 16)
    return Case([words, blocks, np.zeros((n, 8), np.uint32)], {2: want.view(np.uint32)}, dynamic=(N,))


@cache
def field() -> tuple[list[int], list[int]]:
    """Powers of 2 in GF(256), and their logarithms."""
    power = [1]
    while len(power) < 255:
        power.append(power[-1] << 1 ^ (0x11D if power[-1] & 0x80 else 0))
    log = [0] * 256
    for i, x in enumerate(power):
        log[x] = i
    return power, log


def product(a: int, b: int) -> int:
    power, log = field()
    return power[(log[a] + log[b]) % 255] if a and b else 0


@wd.wave([wd.WorkgroupConstraint(N, 32, 0), wd.TilingConstraint(L, 1)])
def mended(
    code: wd.Memory[N, L, U8], power: wd.Memory[255, I32], log: wd.Memory[256, I32], out: wd.Memory[N, L, U8],
    count: wd.Memory[N, I32],
):  # fmt: skip
    """Reed and Solomon's codes with four letters to check: up to two wrong ones are found and mended."""
    def times(a, b):
        found = wd.read(power[(wd.read(log[a]) + wd.read(log[b])) % 255])
        return wd.where((a == 0) | (b == 0), 0, found)

    def over(a, b):
        return wd.where(a == 0, 0, wd.read(power[(wd.read(log[a]) - wd.read(log[b]) + 255) % 255]))

    zero = wd.Register[N, I32](0)

    def letter():
        return wd.cast(wd.read(code[:, wd.tile_start(L)]), I32)

    @wd.iterate(L, init_args=[zero] * 4)
    def sums(s0, s1, s2, s3):
        x, powers = letter(), field()[0]
        return tuple(times(s, zero + powers[i]) ^ x for i, s in enumerate((s0, s1, s2, s3)))

    s0, s1, s2, s3 = sums
    wrong = s0 | s1 | s2 | s3
    apart = times(s0, s2) ^ times(s1, s1)
    two, safe = apart != 0, wd.where(apart != 0, apart, 1)
    first = wd.where(two, over(times(s0, s3) ^ times(s1, s2), safe), over(s1, wd.where(s0 == 0, 1, s0)))
    second = wd.where(two, over(times(s1, s3) ^ times(s2, s2), safe), 0)

    @wd.iterate(L, init_args=[zero] * 3)
    def places(found, p, q):
        z = zero + wd.read(power[L - 1 - wd.tile_start(L)])
        hit = (wrong != 0) & (times(z, z) ^ times(first, z) ^ second == 0)
        return found + wd.cast(hit, I32), wd.where(hit & (found == 0), z, p), wd.where(hit & (found == 1), z, q)

    found, p, q = places
    at_q = wd.where(found == 2, over(s1 ^ times(s0, p), wd.where(p == q, 1, p ^ q)), 0)
    at_p = s0 ^ at_q

    @wd.iterate(L, init_args=[])
    def mend():
        z = wd.read(power[L - 1 - wd.tile_start(L)])
        change = wd.where((z == p) & (wrong != 0), at_p, 0) ^ wd.where((z == q) & (found == 2), at_q, 0)
        wd.write(wd.cast(letter() ^ change, U8), out[:, wd.tile_start(L)])

    wd.write(found, count)


def mended_case(n: int, length: int) -> Case:
    rng, power = np.random.default_rng(0), field()[0]
    divisor = [1]
    for i in range(4):
        longer = [*divisor, 0]
        for j, c in enumerate(divisor):
            longer[j + 1] ^= product(c, power[i])
        divisor = longer
    clean = np.zeros((n, length), np.uint8)
    for row in clean:
        message = rng.integers(0, 256, length - 4).tolist()
        rest = [*message, 0, 0, 0, 0]
        for i in range(length - 4):
            rest[i : i + 5] = [x ^ product(rest[i], d) for x, d in zip(rest[i : i + 5], divisor)]
        row[:] = [*message, *rest[-4:]]
    dirty, errors = clean.copy(), np.arange(n) % 3
    for row, wrong in zip(dirty, errors):
        row[rng.choice(length, wrong, replace=False)] ^= rng.integers(1, 256, wrong).astype(np.uint8)
    tables = [np.array(x, np.int32) for x in field()]
    return Case([dirty, *tables, np.zeros_like(dirty), np.zeros(n, np.int32)], {3: clean, 4: errors}, dynamic=(N, L))


POLYNOMIALS = (0o171, 0o133)


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)], subs={S: 64})
def convolutional(soft: wd.Memory[B, T, 2, I8], kept: wd.Memory[B, T, U64], bits: wd.Memory[B, T, U8]):
    """The likeliest way through 64 states, whose choices of a step are a word; then back along it."""
    s = wd.index(S)

    def sent(old):
        return [wd.popcount((old | s >> 5 << 6) & p) & 1 for p in POLYNOMIALS]

    before = [(s << 1 & 63) | i for i in (0, 1)]
    letters = [sent(old) for old in before]

    @wd.iterate(T, init_args=[wd.where(s == 0, 0, -10000)])
    def step(score):
        t = wd.tile_start(T)
        heard = [wd.cast(wd.read(soft[B, t, i]), I32) for i in range(2)]
        ways = [
            wd.shuffle(score, old, dim=S) + sum(wd.where(x == 1, h, -h) for x, h in zip(bits, heard))
            for old, bits in zip(before, letters)
        ]
        other = ways[1] > ways[0]
        wd.write(wd.sum(wd.where(other, wd.Register[S, U64](1) << s, 0), dim=S), kept[B, t])
        return wd.where(other, ways[1], ways[0])

    @wd.iterate(T, init_args=[wd.argmax(step, dim=S)])
    def back(state):
        t = T - 1 - wd.tile_start(T)
        wd.write(wd.cast(state >> 5, U8), bits[B, t])
        return (state << 1 & 63) | wd.cast(wd.read(kept[B, t]) >> state & 1, I32)


def convolutional_case(b: int, t: int) -> Case:
    rng = np.random.default_rng(0)
    data, soft = rng.integers(0, 2, (b, t)), np.zeros((b, t, 2), np.int8)
    data[:, -6:] = 0
    for row, heard in zip(data, soft):
        state = 0
        for k, bit in enumerate(row):
            register = state | int(bit) << 6
            for i, p in enumerate(POLYNOMIALS):
                heard[k, i] = (40 if (register & p).bit_count() % 2 else -40) + rng.integers(-30, 31)
            state = register >> 1
    return Case([soft, np.zeros((b, t), np.uint64), np.zeros((b, t), np.uint8)], {2: data}, dynamic=(B, T))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)], subs={T: 4})
def by_digits(keys: wd.Memory[B, 2, N, U32], values: wd.Memory[B, 2, N, I32]):
    """A stable sort, four bits at a time: what one pass writes the next one reads, of the other half of the arrays."""
    n = wd.index(N)

    @wd.iterate(T, init_args=[])
    def one_pass():
        t = wd.tile_start(T)
        key, value = wd.read(keys[B, t % 2, n]), wd.read(values[B, t % 2, n])
        digit = wd.cast(key >> (4 * t), I32) & 15
        place, base = wd.Register[N, I32](0), wd.Register[I32](0)
        for d in range(16):
            mine = wd.cast(digit == d, I32)
            place = wd.where(digit == d, base + wd.cumsum(mine, dim=N) - 1, place)
            base += wd.sum(mine, dim=N)
        wd.write(key, keys[B, (t + 1) % 2, place])
        wd.write(value, values[B, (t + 1) % 2, place])


def digits_case(b: int, n: int) -> Case:
    keys, values = np.zeros((b, 2, n), np.uint32), np.zeros((b, 2, n), np.int32)
    keys[:, 0] = np.random.default_rng(0).integers(0, 1 << 16, (b, n))
    values[:, 0] = np.arange(n)
    orders = np.stack([np.argsort(keys[:, 0] & m, 1, kind="stable") for m in (0xFFFF, 0xFFF)], 1)
    return Case([keys, values], {0: np.take_along_axis(keys[:, :1], orders, 2), 1: orders}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)])
def suffixes(text: wd.Memory[B, N, U8], rank: wd.Memory[B, N, I32], order: wd.Memory[B, N, I32]):
    """The order of a text's ends: by twice as many letters in every trip."""
    n = wd.index(N)
    wd.write(wd.cast(wd.read(text), I32) + 1, rank)

    @wd.iterate(T, init_args=[])
    def double():
        far = wd.Register[I32](1) << wd.tile_start(T)
        other = wd.where(n + far < N, wd.read(rank[B, n + far]), 0)
        key = wd.cast(wd.read(rank), U64) << 40 | wd.cast(other, U64) << 20 | wd.cast(n, U64)
        key = wd.sort(key, dim=N)
        before = wd.shuffle(key, wd.maximum(n - 1, 0), dim=N)
        differs = wd.cast((n == 0) | (key >> 20 != before >> 20), I32)
        at = wd.cast(key & 0xFFFFF, I32)
        wd.write(wd.cumsum(differs, dim=N), rank[B, at])
        wd.write(at, order)


def suffixes_case(b: int, n: int) -> Case:
    text = whole(b, n, dtype=np.uint8, low=0, high=3)
    order = np.stack([sorted(range(n), key=lambda i: row[i:].tolist()) for row in text])
    rank = np.zeros((b, n), int)
    np.put_along_axis(rank, order, np.arange(1, n + 1)[None], 1)
    none = np.zeros((b, n), np.int32)
    return Case([text, none, none.copy()], {1: rank, 2: order}, {T: (n - 1).bit_length()}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def windows(
    part: wd.Memory[B, N, I32], key: wd.Memory[B, N, F32], amount: wd.Memory[B, N, I64], number: wd.Memory[B, N, I32],
    rank: wd.Memory[B, N, I32], dense: wd.Memory[B, N, I32], running: wd.Memory[B, N, I64], lag: wd.Memory[B, N, F32],
):  # fmt: skip
    """row_number(), rank(), dense_rank(), sum() and lag() of rows that are sorted by part and key."""
    n, mine = wd.index(N), wd.read(key)
    before = wd.read(key[B, n - 1])
    new = (n == 0) | (wd.read(part) != wd.read(part[B, n - 1]))
    differs = new | (mine != before)

    def last(flags):
        return wd.scan(wd.where(flags, n, -1), lambda a, b: wd.maximum(a, b), -1, dim=N)

    def after(x, y):
        return x[0] | y[0], *(wd.where(y[0] != 0, b, a + b) for a, b in zip(x[1:], y[1:]))

    wd.write(n - last(new) + 1, number)
    wd.write(last(differs) - last(new) + 1, rank)
    flags = wd.cast(new, I32), wd.cast(differs, I32)
    _, ranks, sums = wd.scan((*flags, wd.read(amount)), after, (0, 0, 0), dim=N)
    wd.write(ranks, dense)
    wd.write(sums, running)
    wd.write(wd.where(new, -1.0, before), lag)


def windows_case(b: int, n: int) -> Case:
    rng = np.random.default_rng(0)
    part = np.sort(rng.integers(0, max(2, n // 9), (b, n)), 1).astype(np.int32)
    key = np.take_along_axis(k := rng.integers(0, 5, (b, n)).astype(np.float32), np.lexsort((k, part), axis=1), 1)
    amount = rng.integers(-(2**40), 2**40, (b, n))
    wants = np.zeros((5, b, n))
    for i in range(b):
        for p in np.unique(part[i]):
            rows = np.flatnonzero(part[i] == p)
            k = key[i, rows]
            wants[0, i, rows] = np.arange(len(rows)) + 1
            wants[1, i, rows] = np.searchsorted(k, k) + 1
            wants[2, i, rows] = np.unique(k, return_inverse=True)[1] + 1
            wants[3, i, rows] = amount[i, rows].cumsum()
            wants[4, i, rows] = [-1, *k[:-1]]
    outs = [np.zeros((b, n), t) for t in (np.int32, np.int32, np.int32, np.int64, np.float32)]
    return Case([part, key, amount, *outs], dict(enumerate(wants, 3)), dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)], subs={T: 1 << 14})
def dithered(x: wd.Memory[B, Y, X, U8], out: wd.Memory[B, Y, X, U8], steps: wd.Scalar[I32]):
    """Floyd and Steinberg's: a row is two columns behind the one above, whose errors it takes from that row's lane."""
    row = wd.index(Y)
    zero = wd.Register[Y, I32](0)

    @wd.iterate(T, init_args=[zero] * 3, stop=steps)
    def step(e1, e2, e3):
        column = wd.tile_start(T) - 2 * row
        inside = (column >= 0) & (column < X)
        right, above, left = (wd.shuffle(e, wd.maximum(row - 1, 0), dim=Y) for e in (e1, e2, e3))
        at = wd.where(inside, column, -1)
        value = wd.cast(wd.read(x[B, row, at]), I32) * 16 + 7 * e1 + wd.where(row > 0, 3 * right + 5 * above + left, 0)
        white = value >= 128 * 16
        wd.write(wd.cast(wd.where(white, 255, 0), U8), out[B, row, at])
        return wd.where(inside, (value - wd.where(white, 255 * 16, 0)) // 16, 0), e1, e2


def dithered_case(b: int, h: int, w: int) -> Case:
    x = whole(b, h, w, dtype=np.uint8, low=0, high=256)
    out, error = np.zeros_like(x), np.zeros((b, h + 1, w + 2), int)  # a row above, a column on either side
    for y, c in np.ndindex(h, w):
        above = error[:, y, c : c + 3] @ [1, 5, 3]
        value = x[:, y, c].astype(int) * 16 + 7 * error[:, y + 1, c] + above
        out[:, y, c] = np.where(value >= 2048, 255, 0)
        error[:, y + 1, c + 1] = (value - 16 * out[:, y, c].astype(int)) // 16
    return Case([x, np.zeros_like(x), np.int32(w + 2 * (h - 1))], {1: out}, dynamic=(B, X))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def spanning(
    ends: wd.Memory[B, E, 2, I32], weight: wd.Memory[B, E, U32], best: wd.Memory[B, V, U64],
    component: wd.Memory[B, V, I32], taken: wd.Memory[B, E, I32], total: wd.Memory[B, U64],
):  # fmt: skip
    """Boruvka's: the lightest edge out of each component, by the least of 64 bits, until there is none."""
    a, b, e, v = wd.read(ends[B, :, 0]), wd.read(ends[B, :, 1]), wd.index(E), wd.index(V)
    heavy = wd.cast(wd.read(weight), U64)
    wd.write(v, component)

    def join(going):
        wd.write((1 << 64) - 1, best)
        one, other = wd.read(component[B, a]), wd.read(component[B, b])
        for mine in (one, other):
            wd.atomic_min(heavy << 32 | wd.cast(e, U64), best[B, wd.where(one != other, mine, -1)])
        least = wd.read(best)
        has = least != (1 << 64) - 1
        edge = wd.where(has, wd.cast(least & 0xFFFFFFFF, I32), -1)
        wd.write(1, taken[B, edge])
        left, right = (wd.read(component[B, wd.read(ends[B, edge, i])]) for i in range(2))
        to = wd.where(has, left + right - v, v)
        to = wd.where(has & (wd.shuffle(to, to, dim=V) == v) & (v < to), v, to)  # of two that chose each other

        def jump(x, further):
            return further, wd.shuffle(further, further, dim=V)

        root, _ = wd.while_loop(lambda x, further: wd.any(x != further, dim=V), jump, [to, wd.shuffle(to, to, dim=V)])
        wd.write(wd.shuffle(root, wd.read(component), dim=V), component)
        return wd.cast(wd.any(has, dim=V), I32)

    wd.while_loop(lambda going: going != 0, join, [wd.Register[I32](1)])
    wd.write(wd.sum(wd.where(wd.read(taken) == 1, heavy, 0), dim=E), total)


def spanning_case(b: int, v: int, e: int) -> Case:
    rng = np.random.default_rng(0)
    ends, weight = rng.integers(0, v, (b, e, 2)).astype(np.int32), rng.integers(0, 1 << 31, (b, e)).astype(np.uint32)
    taken = np.zeros((b, e), np.int32)
    for i in range(b):
        label = np.arange(v)
        for j in np.argsort(weight[i], kind="stable"):
            x, y = label[ends[i, j]]
            taken[i, j] = x != y
            label[label == x] = y
    outs = [np.zeros((b, v), np.uint64), np.zeros((b, v), np.int32), np.zeros_like(taken), np.zeros(b, np.uint64)]
    return Case([ends, weight, *outs], {4: taken, 5: (taken * weight.astype(np.uint64)).sum(1)}, dynamic=(B,))


KERNELS: dict[str, tuple[Any, Callable[..., Case], Any]] = {
    "SHA-256": (sha256, sha_case, ((77,),)),
    "mended": (mended, mended_case, ((40, 27),)),
    "convolutional": (convolutional, convolutional_case, ((3, 40),)),
    "by digits": (by_digits, digits_case, ((2, 77), (1, 300))),
    "suffixes": (suffixes, suffixes_case, ((2, 45),)),
    "windows": (windows, windows_case, ((3, 333),)),
    "dithered": (dithered, dithered_case, ((2, 21, 33),)),
    "spanning": (spanning, spanning_case, ((2, 40, 150),)),
}
test_against_numpy, test_the_evaluator_agrees, test_on_other_chips, test_the_assembler_takes_it = four_tests(KERNELS)
