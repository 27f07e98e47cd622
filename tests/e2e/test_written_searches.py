"""Searches, each element as long as it takes: codes of varying length, sieves, pairs that touch, sets that are joined,
stacks, rays, primes, shortest ways, networks of comparisons, distances by bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from families import Case, both_tests, whole, wide

import wavedsl as wd

B, C, D, E, I, K, L, M, N, P, Q, R, S, T, V, W, X, Y = wd.symbols("B C D E I K L M N P Q R S T V W X Y")
F32, I32, I64, U8, U32, U64 = wd.f32, wd.i32, wd.i64, wd.u8, wd.u32, wd.u64


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def prefix_codes(
    bits: wd.Memory[B, U8], starts: wd.Memory[S, I32], table: wd.Memory[V, I32], out: wd.Memory[N, L, U8],
    count: wd.Memory[N, I32],
):  # fmt: skip
    """Huffman's codes: a stream for each element, each symbol as soon as it is known. The table has, for the next eight
    bits, symbol * 16 + length."""
    first, last = (wd.read(starts, mapping=wd.IndexMapping((N,), {S: N + i})) for i in (0, 1))

    def more(at, found):
        return at < last

    def symbol(at, found):
        window = wd.Register[N, I32](0)
        for i in range(2):
            window = window << 8 | wd.cast(wd.read(bits[at // 8 + i]), I32)
        entry = wd.read(table[window >> 8 - at % 8 & 255])
        wd.write(wd.cast(entry // 16, U8), out[:, found])
        return at + entry % 16, found + 1

    _, found = wd.while_loop(more, symbol, [first, wd.Register[N, I32](0)])
    wd.write(found, count)


def prefix_case(n: int) -> Case:
    codes = {0: "0", 1: "10", 2: "110", 3: "11100", 4: "11101", 5: "1111"}
    table = np.zeros(256, np.int32)
    for s, code in codes.items():
        low = int(code.ljust(8, "0"), 2)
        table[low : low + (1 << 8 - len(code))] = s * 16 + len(code)
    rng, text, starts = np.random.default_rng(0), "", [0]
    out, count = np.zeros((n, 12), np.uint8), rng.integers(0, 13, n)
    for row in range(n):
        out[row, : count[row]] = rng.integers(0, 6, count[row])
        text += "".join(codes[s] for s in out[row, : count[row]])
        starts.append(len(text))
    data = np.packbits(np.frombuffer(text.encode(), np.uint8) - 48)
    return Case([data, np.array(starts, np.int32), table, np.zeros_like(out), np.zeros(n, np.int32)],
                {3: out, 4: count}, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def sieve(primes: wd.Memory[N, I32], crossed: wd.Memory[W, U32], limit: wd.Scalar[I32]):
    """Multiples of each prime, a bit for a number."""
    p = wd.read(primes)

    def cross(m):
        wd.atomic_or(wd.cast(wd.Register[N, I32](1), U32) << wd.cast(m % 32, U32), crossed[m // 32])
        return m + p

    wd.while_loop(lambda m: m < limit, cross, [p * p])


def sieve_case(n: int, limit: int) -> Case:
    numbers = np.arange(2, 1000)
    primes = np.array([p for p in numbers if all(p % q for q in range(2, int(p**0.5) + 1))][:n], np.int32)
    flags = np.zeros(-(-limit // 32) * 32, bool)
    for p in primes:
        flags[p * p : limit : p] = True
    want = np.packbits(flags, bitorder="little").view(np.uint32)
    return Case([primes, np.zeros_like(want), np.int32(limit)], {1: want}, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def pairs_that_touch(
    low: wd.Memory[N, F32], high: wd.Memory[N, F32], y: wd.Memory[N, F32], size: wd.Memory[N, F32],
    count: wd.Memory[1, I32], touching: wd.Memory[N, I32], pairs: wd.Memory[P, 2, I32],
):  # fmt: skip
    """Sweep and prune: boxes sorted by their left ends, each looks at those that begin before it ends."""
    end, mine, half = wd.read(high), wd.read(y), wd.read(size)
    n = wd.index(N)

    def near(j, found):
        return (j < N) & (wd.read(low[wd.minimum(j, N - 1)]) <= end)

    def look(j, found):
        meets = wd.abs(mine - wd.read(y[j])) <= half + wd.read(size[j])
        slot = wd.atomic_add(wd.cast(meets, I32), count, mapping=wd.IndexMapping((N,), {1: 0}))
        for i, number in enumerate((n, j)):
            wd.write(number, pairs, mapping=wd.IndexMapping((N,), {P: wd.where(meets, slot, -1), 2: i}))
        return j + 1, found + wd.cast(meets, I32)

    _, found = wd.while_loop(near, look, [n + 1, wd.Register[N, I32](0)])
    wd.write(found, touching)


def pairs_case(n: int) -> Case:
    rng = np.random.default_rng(0)
    low = np.sort(rng.random(n).astype(np.float32) * n)
    high, y, size = low + 4, rng.random(n).astype(np.float32) * 8, rng.random(n).astype(np.float32)
    i, j = np.triu_indices(n, 1)
    meets = (low[j] <= high[i]) & (np.abs(y[i] - y[j]) <= size[i] + size[j])
    want = np.bincount(i[meets], minlength=n)
    room = int(meets.sum()) + 3
    return Case([low, high, y, size, np.zeros(1, np.int32), np.zeros(n, np.int32), np.zeros((room, 2), np.int32)],
                {4: np.array([meets.sum()]), 5: want}, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(E, 1, 0)])
def joined_sets(
    ends: wd.Memory[E, L, 2, I32], parent: wd.Memory[V, I32], done: wd.Memory[1, I32], label: wd.Memory[V, I32]
):  # fmt: skip
    """Edges join the sets of their ends: the larger root is hung below the smaller one, again where another edge was
    faster. The workgroup that comes last says which set every node is in."""
    def root(v):
        def up(x, above):
            return above, wd.atomic_add(0, parent[above])

        x, _ = wd.while_loop(lambda x, above: x != above, up, [v, wd.atomic_add(0, parent[v])])
        return x

    def hang(a, b):
        a, b = root(a), root(b)
        high, low = wd.maximum(a, b), wd.minimum(a, b)
        old = wd.atomic_cas(high, low, parent[wd.where(a == b, -1, high)])
        return wd.where((a == b) | (old == high), low, high), low

    wd.while_loop(lambda a, b: a != b, hang, [wd.read(ends[:, :, 0]), wd.read(ends[:, :, 1])])
    wd.fence()
    ticket = wd.atomic_add(1, done[0])

    def flatten():
        wd.fence()
        wd.write(root(wd.index(V)), label)

    wd.cond(ticket == E - 1, flatten)


def joined_case(v: int, e: int, l: int) -> Case:
    ends = np.random.default_rng(0).integers(0, v, (e, l, 2)).astype(np.int32)
    label = np.arange(v)
    for _ in range(v):
        for a, b in ends.reshape(-1, 2):
            label[[a, b]] = min(label[a], label[b])
    return Case([ends, np.arange(v, dtype=np.int32), np.zeros(1, np.int32), np.zeros(v, np.int32)],
                {2: np.array([e]), 3: label})


@wd.wave([wd.WorkgroupConstraint(N, 32, 0)], subs={D: 8})
def queens(first: wd.Memory[N, I32], count: wd.Memory[N, I32]):
    """Ways to place eight queens with the first one where it is told: a search in depth with a stack of what is left to
    try in each row."""
    full, d = 255, wd.index(D)
    one = wd.Register[N, I32](1)
    start = one << wd.read(first)
    zero = wd.Register[N, D, I32](0)

    def attacked(rows, depth):
        below = d < depth
        shift = wd.maximum(depth - d, 0)
        parts = wd.where(below, rows | rows << shift | rows >> shift, 0)
        return wd.reduce(parts, lambda a, b: a | b, 0, dim=D)

    def put(values, depth, value):
        return wd.where(d == depth, value, values)

    def searching(depth, rows, left, found):
        return depth > 0

    def step(depth, rows, left, found):
        rest = wd.sum(wd.where(d == depth, left, 0), dim=D)
        bit = rest & -rest
        none, last = rest == 0, depth == 7
        left = put(left, depth, rest ^ bit)
        rows = put(rows, depth, bit)
        further = full & ~attacked(rows, depth + 1)
        goes = ~none & ~last
        left = wd.where((d == depth + 1) & goes, further, left)
        depth = wd.where(none, depth - 1, wd.where(last, depth, depth + 1))
        return depth, rows, left, found + wd.cast(~none & last, I32)

    rows = put(zero, 0, start)
    left = put(zero, one, full & ~attacked(rows, one))
    _, _, _, found = wd.while_loop(searching, step, [one, rows, left, wd.Register[N, I32](0)])
    wd.write(found, count)


def queens_case(n: int) -> Case:
    first = (np.arange(n) % 8).astype(np.int32)
    return Case([first, np.zeros(n, np.int32)], {1: np.array([4, 8, 16, 18, 18, 16, 8, 4])[first]}, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(Y, 4, 0), wd.WorkgroupConstraint(X, 32, 1)])
def marched(centre: wd.Memory[S, 3, F32], radius: wd.Memory[S, F32], depth: wd.Memory[Y, X, F32]):
    """Rays into a scene of spheres, each as far as nothing is near, until something is."""
    dx = (wd.cast(wd.index(X), F32) + 0.5) / X - 0.5
    dy = (wd.cast(wd.index(Y), F32) + 0.5) / Y - 0.5
    length = wd.rsqrt(dx * dx + dy * dy + 1)
    px, py, pz = (wd.read(centre[:, i]) for i in range(3))

    def distance(t):
        gap = [a * t - b for a, b in ((dx * length, px), (dy * length, py), (length, pz))]
        return wd.min(wd.sqrt(sum(g * g for g in gap)) - wd.read(radius), dim=S)

    def going(t, gap):
        return (gap > 1e-3) & (t < 20.0)

    def step(t, gap):
        return t + gap, distance(t + gap)

    zero = wd.Register[Y, X, F32](0.0)
    t, gap = wd.while_loop(going, step, [zero, distance(zero)])
    wd.write(wd.where(gap <= 1e-3, t, -1.0), depth)


def marched_case(y: int, x: int) -> Case:
    centre = np.array([[0, 0, 4], [1, 0.5, 5], [-1, -1, 6]], np.float32)
    radius = np.array([1, 0.7, 1.2], np.float32)
    dx, dy = (np.arange(x) + 0.5) / x - 0.5, ((np.arange(y) + 0.5) / y - 0.5)[:, None]
    ray = np.stack(np.broadcast_arrays(dx, dy, 1.0), -1)
    ray /= np.linalg.norm(ray, axis=-1, keepdims=True)
    along = ray @ wide(centre).T
    square = radius**2 - (wide(centre) ** 2).sum(1) + along**2
    hit = np.where(square > 0, along - np.sqrt(np.maximum(square, 0)), np.inf).min(-1)
    return Case([centre, radius, np.zeros((y, x), np.float32)], {2: np.where(hit < 20, hit, -1)}, {}, 2e-2)


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def prime(x: wd.Memory[N, U32], flag: wd.Memory[N, I32]):
    """Miller and Rabin's test, which two bases decide for numbers of 16 bits."""
    n = wd.read(x)
    odd = wd.where(n % 2 == 0, n + 1, n)
    d = (odd - 1) >> wd.cast(wd.ctz(odd - 1), U32)
    fine = n % 2 == 1
    for base in (2, 3):
        def power(rest, square, result):
            return rest >> 1, square * square % odd, wd.where(rest & 1 == 1, result * square % odd, result)

        one = wd.Register[N, U32](1)
        _, _, y = wd.while_loop(lambda rest, square, result: rest > 0, power, [d, one * base % odd, one])

        def squared(y, t):
            return y * y % odd, t << 1

        y, t = wd.while_loop(lambda y, t: (t != odd - 1) & (y != 1) & (y != odd - 1), squared, [y, d])
        fine &= (n == base) | (y == odd - 1) | ((y == 1) & (t == d))
    wd.write(wd.cast((fine & (n > 1)) | (n == 2), I32), flag)


def prime_case(n: int) -> Case:
    some = [0, 1, 2, 3, 4, 5, 7, 9, 25, 341, 561, 2047, 65521, 65535, 1105, 49141]
    x = np.r_[some, np.random.default_rng(0).integers(0, 65536, n - len(some))].astype(np.uint32)

    def is_prime(v):
        return v > 1 and all(v % q for q in range(2, int(v**0.5) + 1))

    return Case([x, np.zeros(n, np.int32)], {1: np.array([is_prime(int(v)) for v in x], int)}, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def shortest_ways(ends: wd.Memory[E, 2, I32], weight: wd.Memory[B, E, I32], far: wd.Memory[B, V, I32]):
    """Bellman and Ford's: all edges, until none makes a way shorter."""
    source, target, w = wd.read(ends[:, 0]), wd.read(ends[:, 1]), wd.read(weight)

    def relax(changed):
        way = wd.read(far[:, source]) + w
        old = wd.atomic_min(way, far[:, target])
        return wd.cast(wd.any(way < old, dim=E), I32)

    wd.while_loop(lambda changed: changed != 0, relax, [wd.Register[I32](1)])


def shortest_case(b: int, v: int, e: int) -> Case:
    rng = np.random.default_rng(0)
    ends, weight = rng.integers(0, v, (e, 2)).astype(np.int32), rng.integers(1, 50, (b, e)).astype(np.int32)
    far = np.full((b, v), 10**6, np.int32)
    far[:, 0] = 0
    want = far.copy()
    for _ in range(v):
        for row in range(b):
            np.minimum.at(want[row], ends[:, 1], want[row, ends[:, 0]] + weight[row])
    return Case([ends, weight, far], {2: want}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def network(x: wd.Memory[B, N, F32], payload: wd.Memory[B, N, I32], y: wd.Memory[B, N, F32], z: wd.Memory[B, N, I32]):
    """Bitonic: keys and what belongs to them, compared at ever shorter distances; what is beyond the end is larger."""
    n = wd.index(N)
    key, value = wd.read(x), wd.read(payload)
    block = 2
    while block <= 256:
        step = block // 2
        while step:
            other = n ^ (block - 1) if step == block // 2 else n ^ step
            there = other < N
            k, v = wd.shuffle(key, other, dim=N), wd.shuffle(value, other, dim=N)
            first = n < other
            less = wd.where(k == key, v < value, k < key)
            swap = there & wd.where(first, less, ~less & ~((k == key) & (v == value)))
            key, value = wd.where(swap, k, key), wd.where(swap, v, value)
            step //= 2
        block *= 2
    wd.write(key, y)
    wd.write(value, z)


def network_case(b: int, n: int) -> Case:
    x = whole(b, n, dtype=np.float32, low=-50, high=50)
    payload = np.tile(np.random.default_rng(1).permutation(n), (b, 1)).astype(np.int32)
    order = np.lexsort((payload, x), axis=1)
    want = [np.take_along_axis(a, order, 1) for a in (x, payload)]
    return Case([x, payload, np.zeros_like(x), np.zeros_like(payload)], {2: want[0], 3: want[1]}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(N, 32, 0), wd.TilingConstraint(T, 1)], subs={V: 4})
def distances(word: wd.Memory[N, V, U64], length: wd.Memory[N, I32], text: wd.Memory[T, I32], score: wd.Memory[N, I32]):
    """Myers' edits of a text and of many words of up to 64 letters, a column of the table in two words of bits; `word`
    says for each of four letters where it is."""
    one = wd.Register[N, U64](1)
    m = wd.read(length)
    last = one << wd.cast(m - 1, U64)
    full = ~(one * 0)

    @wd.iterate(T, init_args=[full, one * 0, m])
    def column(up, down, score):
        letter = wd.read(text[wd.tile_start(T)])
        eq = wd.read(word[:, letter])
        xv = eq | down
        xh = (((eq & up) + up) ^ up) | eq
        rise = down | ~(xh | up)
        fall = up & xh
        score = score + wd.cast(rise & last != 0, I32) - wd.cast(fall & last != 0, I32)
        rise, fall = rise << one | one, fall << one
        return fall | ~(xv | rise), rise & xv, score

    wd.write(column[2], score)


def distances_case(n: int, t: int) -> Case:
    rng = np.random.default_rng(0)
    text, lengths = rng.integers(0, 4, t).astype(np.int32), rng.integers(1, 65, n).astype(np.int32)
    lengths[0] = 64
    word, want = np.zeros((n, 4), np.uint64), []
    for row in range(n):
        letters = rng.integers(0, 4, lengths[row])
        for i, c in enumerate(letters):
            word[row, c] |= np.uint64(1) << np.uint64(i)
        table = np.arange(lengths[row] + 1)
        for c in text:
            new = [table[0] + 1]
            for i, d in enumerate(letters):
                new.append(min(table[i] + (c != d), table[i + 1] + 1, new[i] + 1))
            table = np.array(new)
        want.append(table[-1])
    return Case([word, lengths, text, np.zeros(n, np.int32)], {3: np.array(want)}, dynamic=(N, T))


@wd.wave([wd.WorkgroupConstraint(Y, 4, 0)])
def life_in_words(x: wd.Memory[Y, W, U32], y: wd.Memory[Y, W, U32]):
    """Conway's life on a torus, 32 cells in a word: neighbours are added bit by bit."""
    def row(dy):
        here = wd.read(x[(wd.index(Y) + dy) % Y, :])
        w = wd.index(W)
        before, after = (wd.shuffle(here, (w + step) % W, dim=W) for step in (-1, 1))
        return here << 1 | before >> 31, here, here >> 1 | after << 31

    def add(total, bit):
        carry = bit
        out = []
        for t in total:
            out.append(t ^ carry)
            carry = t & carry
        return out

    above, mine, below = (row(dy) for dy in (-1, 0, 1))
    none = mine[1] & 0
    total = [none, none, none]
    for bit in (*above, mine[0], mine[2], *below):
        total = add(total, bit)
    ones, twos, fours = total
    wd.write(~fours & twos & (ones | mine[1]), y)


def life_case(y: int, w: int) -> Case:
    cells = np.random.default_rng(0).integers(0, 2, (y, 32 * w)).astype(np.uint8)
    near = sum(np.roll(cells, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
    want = ((near == 3) | ((near == 2) & (cells == 1))).astype(np.uint8)
    packed = [np.packbits(a, 1, "little").view(np.uint32) for a in (cells, want)]
    return Case([packed[0], np.zeros_like(packed[0])], {1: packed[1]}, dynamic=(Y,))


KERNELS: dict[str, tuple[Any, Callable[..., Case], Any]] = {
    "prefix codes": (prefix_codes, prefix_case, ((64,), (101,))),
    "sieve": (sieve, sieve_case, ((64, 1500), (21, 999))),
    "pairs that touch": (pairs_that_touch, pairs_case, ((64,), (150,))),
    "joined sets": (joined_sets, joined_case, ((64, 1, 50), (120, 3, 33))),
    "queens": (queens, queens_case, ((8,), (45,))),
    "marched": (marched, marched_case, ((4, 32), (11, 45))),
    "prime": (prime, prime_case, ((64,), (101,))),
    "shortest ways": (shortest_ways, shortest_case, ((2, 20, 64), (3, 31, 201))),
    "network": (network, network_case, ((2, 64), (2, 201))),
    "distances": (distances, distances_case, ((32, 20), (45, 31))),
    "life in words": (life_in_words, life_case, ((4, 2), (10, 5))),
}  # fmt: skip


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)
