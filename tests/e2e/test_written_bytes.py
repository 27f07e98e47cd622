"""Bytes and the numbers that they are made of: text that is checked and classified, runs, copies of what came before,
numbers of any length, fields of remainders, tables by hash."""

from __future__ import annotations

import numpy as np
from families import Case, both_tests, whole

import wavedsl as wd

B, G, I, J, K, L, M, N, P, S, T, V = wd.symbols("B G I J K L M N P S T V")
I32, I64, U8, U16, U32, U64 = wd.i32, wd.i64, wd.u8, wd.u16, wd.u32, wd.u64


# ---- text: is it UTF-8, where do its strings lie


@wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
def utf8(x: wd.Memory[N, U8], first_wrong: wd.Memory[1, I32]):
    """The least index of a byte that cannot stand where it does; what is cut off at the end is found there."""
    def before(step):
        return wd.cast(wd.read(x, mapping=wd.IndexMapping((N,), {N: N - step})), I32)

    b0, b1, b2, b3 = (before(i) for i in range(4))
    follows = (b0 & 0xC0) == 0x80
    expected = (b1 >= 0xC0) | (b2 >= 0xE0) | (b3 >= 0xF0)
    wrong = follows != expected
    wrong |= (b0 == 0xC0) | (b0 == 0xC1) | (b0 >= 0xF5)
    wrong |= ((b1 == 0xE0) & (b0 < 0xA0)) | ((b1 == 0xED) & (b0 >= 0xA0))
    wrong |= ((b1 == 0xF0) & (b0 < 0x90)) | ((b1 == 0xF4) & (b0 >= 0x90))
    last, n = wd.index(N) + 1, wd.index(N)
    cut = (last == N) & ((b0 >= 0xC0) | (b1 >= 0xE0) | (b2 >= 0xF0))
    place = wd.min(wd.where(wrong | cut, n, 2**31 - 1), dim=N)
    wd.atomic_min(place, first_wrong[0])


def utf8_case(n: int, damage: int) -> Case:
    text = "größe ∑ 𝄞 plain ascii and ñ 漢字 " * 40
    data = text.encode()[:n]
    while (data[-1] & 0xC0) == 0x80 or data[-1] >= 0xC0:
        data = data[:-1]
    data = np.frombuffer(data.ljust(n, b"."), np.uint8).copy()
    want = 2**31 - 1
    if damage:
        place = np.flatnonzero(data >= 0xE0)[damage]
        data[place + 2] = ord("x")
        want = place + 2
    return Case([data, np.full(1, 2**31 - 1, np.int32)], {1: np.array([want])}, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(B, 4, 0), wd.WaveConstraint(B, 1)], subs={L: 32})
def structure(x: wd.Memory[B, N, U8], quoted: wd.Memory[B, N / 32, U32], marks: wd.Memory[B, N / 32, U32]):
    """Bits of what lies in strings, and of braces, brackets, colons and commas outside of them."""
    c, n = wd.read(x), wd.index(N)
    backslash = c == ord("\\")
    since = wd.scan(wd.where(backslash, -1, n), wd.maximum, -1, dim=N)
    odd = ((n - since) & 1) == 1
    escaped = wd.shuffle(wd.cast(odd & backslash, I32), wd.maximum(n - 1, 0), dim=N) == 1
    quote = (c == ord('"')) & ~(escaped & (n > 0))
    inside = wd.scan(wd.cast(quote, I32), lambda a, b: a ^ b, 0, dim=N)
    mark = (c == ord("{")) | (c == ord("}")) | (c == ord("[")) | (c == ord("]")) | (c == ord(":")) | (c == ord(","))

    def packed(bits):
        pieces = wd.reshape(wd.cast(bits, U32), B, N / 32, L)
        return wd.sum(pieces << wd.cast(wd.index(L), U32), dim=L)

    wd.write(packed(inside == 1), quoted)
    wd.write(packed(mark & (inside == 0)), marks)


def structure_case(b: int, n: int) -> Case:
    rng = np.random.default_rng(0)
    x = rng.choice(np.frombuffer(b'{}[]:,"\\ab"\\ ', np.uint8), (b, n))
    inside, marks = np.zeros((b, n), bool), np.zeros((b, n), bool)
    for row in range(b):
        state = escape = False
        for i, c in enumerate(x[row].tobytes()):
            if c == ord('"') and not escape:
                state = not state
            escape = c == ord("\\") and not escape
            inside[row, i] = state
            marks[row, i] = not state and chr(c) in "{}[]:,"
    words = [np.packbits(a, 1, "little").view(np.uint32) for a in (inside, marks)]
    return Case([x, *(np.zeros_like(w) for w in words)], {1: words[0], 2: words[1]}, dynamic=(B,))


# ---- numbers of several bytes, runs, copies


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def varints(x: wd.Memory[B, N, U8], length: wd.Memory[B, I32], out: wd.Memory[B, V, U32], count: wd.Memory[B, I32]):
    """Seven bits to a byte, the last byte of a number without the eighth."""
    n = wd.index(N)
    byte = wd.where(n < wd.read(length), wd.cast(wd.read(x), U32), 128)
    ends = byte < 128
    start = wd.scan(wd.where(ends, n + 1, 0), wd.maximum, 0, dim=N)
    start = wd.where(n == 0, 0, wd.shuffle(start, n - 1, dim=N))
    total = wd.Register[N, U32](0)
    for back in range(5):
        place = n - back
        piece = wd.shuffle(byte, wd.maximum(place, 0), dim=N) & 127
        shift = wd.cast(wd.maximum(place - start, 0) * 7, U32)
        total = wd.where(place >= start, total | piece << shift, total)
    which = wd.cumsum(wd.cast(ends, I32), dim=N) - 1
    wd.write(total, out, mapping=wd.IndexMapping((B, N), {B: B, V: wd.where(ends, which, -1)}))
    wd.write(wd.sum(wd.cast(ends, I32), dim=N), count)


def varints_case(b: int, n: int) -> Case:
    rng = np.random.default_rng(1)
    x, length, out, count = np.zeros((b, n), np.uint8), np.zeros(b, np.int32), np.zeros((b, n), np.uint32), []
    for row in range(b):
        data, numbers = b"", []
        while True:
            number = int(rng.integers(0, 2**32) >> rng.integers(0, 32))
            rest, more = number, b""
            while rest >= 128:
                rest, more = rest >> 7, more + bytes([rest & 127 | 128])
            if len(data) + len(more) + 1 > n - row:
                break
            data, numbers = data + more + bytes([rest]), [*numbers, number]
        x[row, : len(data)], length[row] = np.frombuffer(data, np.uint8), len(data)
        out[row, : len(numbers)] = numbers
        count.append(len(numbers))
    return Case([x, length, np.zeros_like(out), np.zeros(b, np.int32)], {2: out, 3: np.array(count)}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def runs(x: wd.Memory[B, N, U8], value: wd.Memory[B, V, U8], length: wd.Memory[B, V, I32], count: wd.Memory[B, I32]):
    """Run-length code of rows: each run's value and length."""
    v, n = wd.read(x), wd.index(N)
    before = wd.read(x, mapping=wd.IndexMapping((B, N), {N: N - 1}))
    head = (n == 0) | (v != before)
    run = wd.cumsum(wd.cast(head, I32), dim=N) - 1
    place = wd.IndexMapping((B, N), {B: B, V: wd.where(head, run, -1)})
    following = wd.scan(wd.where(head, n, 2**30), wd.minimum, 2**30, dim=N, reverse=True)
    following = wd.where(n + 1 < N, wd.shuffle(following, wd.minimum(n + 1, N - 1), dim=N), N)
    wd.write(v, value, mapping=place)
    wd.write(wd.minimum(following, N) - n, length, mapping=place)
    wd.write(wd.max(run, dim=N) + 1, count)


def runs_case(b: int, n: int) -> Case:
    rng = np.random.default_rng(0)
    x = np.repeat(rng.integers(0, 256, (b, n)), 3, axis=1)[:, 1 : n + 1].astype(np.uint8)
    x[0] = 7
    value, length, count = np.zeros((b, n), np.uint8), np.zeros((b, n), np.int32), []
    for row in range(b):
        heads = np.flatnonzero(np.r_[True, x[row, 1:] != x[row, :-1]])
        value[row, : len(heads)], length[row, : len(heads)] = x[row, heads], np.diff(np.r_[heads, n])
        count.append(len(heads))
    zeros = [np.zeros_like(value), np.zeros_like(length), np.zeros(b, np.int32)]
    return Case([x, *zeros], {1: value, 2: length, 3: np.array(count)}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def copies(
    start: wd.Memory[B, S, I32], distance: wd.Memory[B, S, I32], literal: wd.Memory[B, N, U8], out: wd.Memory[B, N, U8]
):  # fmt: skip
    """What LZ says: from `start` on, bytes as they stood `distance` before, or literals where it is 0. Each byte looks
    up where it comes from until that is a literal, all of them at once: log of the longest chain of steps."""
    n = wd.index(N)
    token = wd.sum(wd.cast(wd.read(start) <= n, I32), dim=S) - 1
    source = n - wd.read(distance, mapping=wd.IndexMapping((B, N), {B: B, S: token}))

    def unfinished(source, moved):
        return wd.any(moved, dim=N)

    def step(source, moved):
        further = wd.shuffle(source, source, dim=N)
        return further, further != source

    source, _ = wd.while_loop(unfinished, step, [source, source != n])
    wd.write(wd.shuffle(wd.read(literal), source, dim=N), out)


def copies_case(b: int, n: int) -> Case:
    rng = np.random.default_rng(0)
    s = n // 4
    start, distance = np.full((b, s), n, np.int32), np.zeros((b, s), np.int32)
    literal, want = rng.integers(0, 256, (b, n)).astype(np.uint8), np.zeros((b, n), np.uint8)
    for row in range(b):
        places = np.sort(rng.choice(np.arange(1, n), s - 2, replace=False))
        start[row, : s - 1] = [0, *places]
        distance[row, 1 : s - 1] = [rng.integers(0, min(p, 9) + 1) for p in places]
        for i in range(n):
            t = np.searchsorted(start[row], i, "right") - 1
            d = distance[row, t]
            want[row, i] = want[row, i - d] if d else literal[row, i]
    return Case([start, distance, literal, np.zeros_like(want)], {3: want}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def base64(x: wd.Memory[3 * N, U8], alphabet: wd.Memory[V, U8], out: wd.Memory[4 * N, U8]):
    a, b, c = (wd.cast(wd.read(x[i::3]), I32) for i in range(3))
    word = a << 16 | b << 8 | c
    for i in range(4):
        letter = wd.read(alphabet, mapping=wd.IndexMapping((N,), {V: word >> 18 - 6 * i & 63}))
        wd.write(letter, out[i::4])


def base64_case(n: int) -> Case:
    import base64 as standard
    import string

    letters = (string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode()
    x = np.random.default_rng(0).integers(0, 256, 3 * n).astype(np.uint8)
    want = np.frombuffer(standard.b64encode(x.tobytes()), np.uint8)
    return Case([x, np.frombuffer(letters, np.uint8).copy(), np.zeros(4 * n, np.uint8)], {2: want}, dynamic=(N,))


# ---- numbers of any length, remainders


@wd.wave([wd.WorkgroupConstraint(B, 2, 0), wd.WaveConstraint(B, 1)])
def long_product(x: wd.Memory[B, I, U32], y: wd.Memory[B, J, U32], z: wd.Memory[B, K, U32]):
    """Digits of 16 bits, the lowest first. Columns' sums, then carries, first by hand, at last by a scan of what each
    digit does with a carry: none, one, or what comes."""
    k = wd.index(K)
    other = wd.read(y, mapping=wd.IndexMapping((B, I, K), {B: B, J: K - I}))
    column = wd.sum(wd.cast(wd.read(x), U64) * wd.cast(other, U64), dim=I)

    def from_below(v):
        return wd.where(k > 0, wd.shuffle(v, wd.maximum(k - 1, 0), dim=K), 0)

    for _ in range(3):
        column = (column & 0xFFFF) + from_below(column >> 16)
    digit = wd.cast(column, U32)

    def after(a, b):
        return b[0] | (b[1] & a[0]), b[1] & a[1]

    makes, passes = digit >> 16, wd.cast(digit == 0xFFFF, U32)
    carry, _ = wd.scan((makes, passes), after, (0, 1), dim=K)
    wd.write((digit + from_below(carry)) & 0xFFFF, z)


def long_case(b: int, i: int, j: int) -> Case:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 2**16, (b, i)).astype(np.uint32), rng.integers(0, 2**16, (b, j)).astype(np.uint32)
    x[0], y[0] = 0xFFFF, 0xFFFF
    want = np.zeros((b, i + j), np.uint32)
    for row in range(b):
        value = [sum(int(d) << 16 * p for p, d in enumerate(a)) for a in (x[row], y[row])]
        product = value[0] * value[1]
        want[row] = [product >> 16 * p & 0xFFFF for p in range(i + j)]
    return Case([x, y, np.zeros_like(want)], {2: want}, dynamic=(B,))


BABY_BEAR = 15 * 2**27 + 1
INVERSE = pow(-BABY_BEAR, -1, 2**32)
FULL, PARTIAL = 8, 3
"""Rounds of the permutation: all of whose words, and the first of whose words, are raised to the seventh power."""


@wd.wave([wd.WorkgroupConstraint(B, 8, 0)])
def permuted(
    x: wd.Memory[B, T, U32], constants: wd.Memory[P, T, U32], matrix: wd.Memory[S, T, U32], out: wd.Memory[B, T, U32]
):  # fmt: skip
    """Poseidon's permutation of words of BabyBear as Montgomery has them."""
    def times(a, b):
        low = a * b
        high = wd.mulhi(a, b) + wd.mulhi(low * INVERSE, BABY_BEAR) + wd.cast(low != 0, U32)
        return wd.minimum(high, high - BABY_BEAR)

    def plus(a, b):
        return wd.minimum(a + b, a + b - BABY_BEAR)

    mixing, v = wd.read(matrix), wd.read(x)
    for r in range(FULL + PARTIAL):
        v = plus(v, wd.read(constants[r, :]))
        square = times(v, v)
        power = times(times(times(square, square), square), v)
        full = r < FULL // 2 or r >= FULL // 2 + PARTIAL
        v = power if full else wd.where(wd.index(T) == 0, power, v)
        v = wd.reshape(wd.permute(wd.reduce(times(mixing, v), plus, 0, dim=T), B, S), B, T)
    wd.write(v, out)


def permuted_case(b: int, t: int) -> Case:
    rng = np.random.default_rng(0)
    x, constants, matrix = (rng.integers(0, BABY_BEAR, shape).astype(np.uint32) for shape in ((b, t), (11, t), (t, t)))
    down = pow(2**32, -1, BABY_BEAR)
    v = x.astype(object)
    for r in range(FULL + PARTIAL):
        v = (v + constants[r].astype(object)) % BABY_BEAR
        power = np.vectorize(lambda a: pow(int(a), 7, BABY_BEAR) * pow(down, 6, BABY_BEAR) % BABY_BEAR, "O")(v)
        full = r < FULL // 2 or r >= FULL // 2 + PARTIAL
        v = power if full else np.concatenate([power[:, :1], v[:, 1:]], 1)
        v = v.dot(matrix.T.astype(object)) * down % BABY_BEAR
    return Case([x, constants, matrix, np.zeros_like(x)], {3: v.astype(np.uint32)}, {S: t}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def parities(
    x: wd.Memory[K, N, U8], rows: wd.Memory[M, K, U8], log: wd.Memory[V, U8], power: wd.Memory[T, U8],
    out: wd.Memory[M, N, U8],
):  # fmt: skip
    """Reed and Solomon's parities: a product over GF(256) by tables of logarithms and powers."""
    def logarithm(v, *dims):
        return wd.cast(wd.read(log, mapping=wd.IndexMapping(dims, {V: wd.cast(v, I32)})), I32)

    data, factor = wd.read(x), wd.read(rows)
    place = logarithm(data, K, N) + logarithm(factor, M, K)
    product = wd.read(power, mapping=wd.IndexMapping((M, K, N), {T: place}))
    product = wd.where((data == 0) | (factor == 0), 0, product)
    wd.write(wd.reduce(product, lambda a, b: a ^ b, 0, dim=K), out)


def parities_case(m: int, k: int, n: int) -> Case:
    power, log, v = np.zeros(512, np.uint8), np.zeros(256, np.uint8), 1
    for i in range(255):
        power[i] = power[i + 255] = v
        log[v] = i
        v = v << 1 ^ (0x11D if v & 0x80 else 0)
    x, rows = whole(k, n, dtype=np.uint8, low=0, high=256), whole(m, k, seed=1, dtype=np.uint8, low=0, high=256)
    x[:, 0] = 0
    parts = power[log[x].astype(int)[None] + log[rows].astype(int)[:, :, None]]
    parts = np.where((x == 0)[None] | (rows == 0)[:, :, None], 0, parts)
    want = np.bitwise_xor.reduce(parts, 1)
    return Case([x, rows, log, power, np.zeros((m, n), np.uint8)], {4: want}, dynamic=(N,))


# ---- tables by hash


EMPTY = 0xFFFFFFFF


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def inserted(keys: wd.Memory[N, U32], values: wd.Memory[N, I32], table: wd.Memory[T, U32], sums: wd.Memory[T, I32]):
    """Group by key: a place is claimed by exchanging an empty one, else the next one is tried."""
    key = wd.read(keys)
    start = wd.cast(key * 2654435769 >> 16, I32) % T

    def searching(place, found):
        return ~found

    def probe(place, found):
        there = wd.atomic_cas(EMPTY, key, table, mapping=wd.IndexMapping((N,), {T: place}))
        mine = (there == EMPTY) | (there == key)
        return wd.where(mine, place, (place + 1) % T), mine

    place, _ = wd.while_loop(searching, probe, [start, key == EMPTY])
    wd.atomic_add(wd.read(values), sums, mapping=wd.IndexMapping((N,), {T: place}))


def inserted_case(n: int, t: int) -> Case:
    """Sums by key do not depend on where keys come to lie where there is one key to a start."""
    keys = (whole(n, dtype=np.int64, low=0, high=t // 2) * 7919 % 2**32).astype(np.uint32)
    values = whole(n, seed=1, dtype=np.int32)
    table, sums = np.full(t, EMPTY, np.uint32), np.zeros(t, np.int32)
    for key in np.unique(keys):
        place = (int(key) * 2654435769 % 2**32 >> 16) % t
        if table[place] != EMPTY:
            keys[keys == key] = table[place]
            continue
        table[place] = key
    for key, value in zip(keys, values):
        sums[table == key] += value
    return Case([keys, values, np.full(t, EMPTY, np.uint32), np.zeros(t, np.int32)], {2: table, 3: sums}, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(N, 128, 0)], subs={J: 3})
def filtered(keys: wd.Memory[N, U32], bits: wd.Memory[V, U32], seen: wd.Memory[N, I32]):
    """Bloom's filter: three bits to a key; says which keys may have been there before the launch."""
    key = wd.read(keys)
    hashed = (key + wd.cast(wd.index(J), U32) * 0x9E3779B9) * 0x85EBCA6B
    hashed = (hashed ^ hashed >> 15) % (32 * V)
    there = wd.IndexMapping((N, J), {V: wd.cast(hashed // 32, I32)})
    mask = wd.cast(wd.Register[N, J, I32](1), U32) << (hashed & 31)
    wd.write(wd.cast(wd.all(wd.read(bits, mapping=there) & mask != 0, dim=J), I32), seen)


def filtered_case(n: int, v: int) -> Case:
    keys = whole(n, dtype=np.uint32, low=0, high=1000)
    j = np.arange(3, dtype=np.uint32)

    def places(k):
        hashed = (k[:, None] + j * np.uint32(0x9E3779B9)) * np.uint32(0x85EBCA6B)
        return (hashed ^ hashed >> 15) % np.uint32(32 * v)

    flat = np.zeros(32 * v, bool)
    flat[places(keys[::3])] = True
    bits = np.packbits(flat, bitorder="little").view(np.uint32)
    want = flat[places(keys)].all(1)
    return Case([keys, bits, np.zeros(n, np.int32)], {2: want.astype(np.int32)}, dynamic=(N,))


KERNELS = {
    "utf8": (utf8, utf8_case, ((256, 0), (300, 2), (777, 40))),
    "structure": (structure, structure_case, ((4, 64), (3, 256))),
    "varints": (varints, varints_case, ((2, 64), (3, 201))),
    "runs": (runs, runs_case, ((2, 64), (3, 201))),
    "copies": (copies, copies_case, ((2, 64), (3, 201))),
    "base64": (base64, base64_case, ((64,), (77,))),
    "long product": (long_product, long_case, ((2, 16, 16), (3, 21, 30))),
    "permuted": (permuted, permuted_case, ((8, 16), (11, 12))),
    "parities": (parities, parities_case, ((4, 16, 64), (3, 10, 101))),
    "inserted": (inserted, inserted_case, ((64, 256), (150, 97))),
    "filtered": (filtered, filtered_case, ((128, 16), (150, 7))),
}


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)
