"""Numbers in few bits, steps of optimisers, digits, factors, as people write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from families import Case, both_tests, normal, whole, wide

import wavedsl as wd

B, C, D, G, I, J, K, L, M, N, P, R, T = wd.symbols("B C D G I J K L M N P R T")
F32, F16, BF16, I32, U8 = wd.f32, wd.f16, wd.bf16, wd.i32, wd.u8
HALF = wd.bf16.storage
WIDTH = 256
"""Columns of what is rotated."""
LEVELS = (
    -1.0, -0.7, -0.5, -0.4, -0.3, -0.2, -0.1, 0.0, 0.1, 0.15, 0.25, 0.35, 0.45, 0.55, 0.7, 1.0,
)  # fmt: skip
"""What four bits mean."""


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
def normal_floats(
    x: wd.Memory[M, K, BF16], q: wd.Memory[N, K / 2, U8], top: wd.Memory[N, K / 64, U8], code: wd.Memory[C, F32],
    nested: wd.Memory[P, F32], offset: wd.Scalar[F32], levels: wd.Memory[L, F32], y: wd.Memory[M, N, BF16],
):  # fmt: skip
    """Four-bit codes with a scale for 64 of them, which are codes of a byte themselves with a scale for 256."""
    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def loop(acc):
        byte = wd.repeat_interleave(wd.cast(wd.read(q), I32), K)
        nibble = wd.where(wd.index(K) % 2 == 0, byte >> 4, byte & 15)
        block = (wd.index(N) * K + wd.index(K)) // 64
        group = wd.cast(wd.read(top, mapping=wd.IndexMapping((N, K), {K / 64: K // 64})), I32)
        scale = wd.read(code, mapping=wd.IndexMapping((N, K), {C: group}))
        scale = scale * wd.read(nested, mapping=wd.IndexMapping((N, K), {P: block // 256})) + offset
        w = wd.read(levels, mapping=wd.IndexMapping((N, K), {L: nibble})) * scale
        return wd.mma(wd.read(x), wd.cast(w, BF16), acc)

    wd.write(wd.cast(loop, BF16), y)


def normal_floats_case(m: int, n: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    codes, top = rng.integers(0, 16, (n, k)), rng.integers(0, 256, (n, k // 64)).astype(np.uint8)
    q = (codes[:, ::2] << 4 | codes[:, 1::2]).astype(np.uint8)
    table, levels = np.sort(normal(256)), np.array(LEVELS, np.float32)
    nested = rng.random(-(-n * k // 64 // 256)).astype(np.float32)
    scale = wide(table)[top].reshape(-1) * np.repeat(wide(nested), 256)[: n * k // 64] + 0.5
    w = wide(levels)[codes] * np.repeat(scale, 64).reshape(n, k)
    x = normal(m, k, seed=2, dtype=HALF)
    return Case([x, q, top, table, nested, np.float32(0.5), levels, np.zeros((m, n), HALF)],
                {7: wide(x) @ wide(w.astype(HALF)).T}, {}, 2e-2, (M,))


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)])
def three_bit(
    x: wd.Memory[M, K, F16], q: wd.Memory[R, N, I32], group: wd.Memory[K, I32], zero: wd.Memory[G, N, I32],
    scale: wd.Memory[G, N, F16], y: wd.Memory[M, N, F32],
):  # fmt: skip
    """32 codes of three bits in three words; the rows of a group lie anywhere."""
    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def loop(acc):
        bit = wd.index(K) % 32 * 3
        word = wd.index(K) // 32 * 3 + bit // 32
        low = wd.bitcast(wd.read(q, mapping=wd.IndexMapping((K, N), {R: word})), wd.u32)
        high = wd.bitcast(wd.read(q, mapping=wd.IndexMapping((K, N), {R: word + 1})), wd.u32)
        shift = wd.cast(bit % 32, wd.u32)
        code = (low >> shift) | wd.where(shift > 29, high << (32 - shift), 0)
        mine = wd.read(group)
        zeros = wd.read(zero, mapping=wd.IndexMapping((K, N), {G: mine}))
        scales = wd.read(scale, mapping=wd.IndexMapping((K, N), {G: mine}))
        w = wd.cast(wd.cast(code & 7, I32) - zeros, F16) * scales
        return wd.mma(wd.read(x), w, acc)

    wd.write(loop, y)


def three_bit_case(m: int, n: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    g = k // 16
    codes, group = rng.integers(0, 8, (k, n)), rng.integers(0, g, k).astype(np.int32)
    bits = (codes.reshape(k // 32, 32, 1, n) >> np.arange(3)[None, None, :, None] & 1).reshape(k // 32, 3, 32, n)
    places = np.arange(32, dtype=np.uint64)[None, None, :, None]
    q = (bits.astype(np.uint64) << places).sum(2).astype(np.uint32).view(np.int32)
    zero, scale, x = rng.integers(0, 8, (g, n)).astype(np.int32), whole(g, n, low=1), whole(m, k, low=-1)
    w = (codes - zero[group]) * wide(scale)[group]
    arguments = [x, q.reshape(-1, n), group, zero, scale, np.zeros((m, n), np.float32)]
    return Case(arguments, {5: wide(x) @ w}, {}, 1e-5, (M,))


@wd.wave([wd.WorkgroupConstraint(G, 1, 0)])
def bytes_adam(
    p: wd.Memory[G, N, F32], g: wd.Memory[G, N, BF16], m: wd.Memory[G, N, U8], v: wd.Memory[G, N, U8],
    code: wd.Memory[C, F32], code2: wd.Memory[C, F32], top: wd.Memory[G, F32], top2: wd.Memory[G, F32],
    rate: wd.Scalar[F32],
):  # fmt: skip
    """Moments kept as the nearest of 256 levels, by blocks with a scale each."""
    grad = wd.cast(wd.read(g), F32)

    def kept(array, table, scale):
        return wd.read(table, mapping=wd.IndexMapping((N,), {C: wd.cast(wd.read(array), I32)})) * wd.read(scale)

    def nearest(x, table):
        low = wd.Register[N, I32](0)
        for bit in range(7, -1, -1):
            more = low + (1 << bit)
            low = wd.where(wd.read(table, mapping=wd.IndexMapping((N,), {C: more})) <= x, more, low)
        here, there = (wd.read(table, mapping=wd.IndexMapping((N,), {C: wd.minimum(low + i, 255)})) for i in (0, 1))
        return wd.cast(wd.where(there - x < x - here, wd.minimum(low + 1, 255), low), U8)

    first = 0.875 * kept(m, code, top) + 0.125 * grad
    second = 0.75 * kept(v, code2, top2) + 0.25 * grad * grad
    wd.write(wd.read(p) - rate * first / (wd.sqrt(second) + 1e-8), p)
    for x, array, table, scale in ((first, m, code, top), (second, v, code2, top2)):
        high = wd.max(wd.abs(x), dim=N)
        wd.write(nearest(x / high, table), array)
        wd.write(high, scale)


def bytes_adam_case(g: int, n: int) -> Case:
    rng = np.random.default_rng(0)
    code = np.sort(np.concatenate([[-1, 0, 1], rng.random(253) * 2 - 1])).astype(np.float32)
    code2 = np.sort(np.concatenate([[0, 1], rng.random(254)])).astype(np.float32)
    p, grad = normal(g, n), normal(g, n, seed=1, dtype=HALF)
    m, v = (rng.integers(0, 256, (g, n)).astype(np.uint8) for _ in range(2))
    top, top2 = (rng.random(g).astype(np.float32) + 0.5 for _ in range(2))
    one = np.float32
    first = one(0.875) * (code[m] * top[:, None]) + one(0.125) * grad.astype(np.float32)
    second = one(0.75) * (code2[v] * top2[:, None]) + one(0.25) * grad.astype(np.float32) * grad.astype(np.float32)
    want = {0: p - 1e-2 * wide(first) / (np.sqrt(wide(second)) + 1e-8)}
    for x, table, at, to in ((first, code, 2, 6), (second, code2, 3, 7)):
        high = np.abs(x).max(1)
        y = x / high[:, None]
        low = np.searchsorted(table, y, side="right") - 1
        low = low.clip(0)
        up = (low + 1).clip(0, 255)
        want[at], want[to] = np.where(table[up] - y < y - table[low], up, low), high
    return Case([p, grad, m, v, code, code2, top, top2, np.float32(1e-2)], want, {}, 1e-6, (G,))


@wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
def rotated(x: wd.Memory[M, D, BF16], q: wd.Memory[M, D / 2, U8], scale: wd.Memory[M, F32]):
    """A Hadamard transform of whole rows, then four bits a number."""
    row = wd.cast(wd.read(x), F32)
    step = 1
    while step < WIDTH:
        other = wd.shuffle(row, wd.index(D) ^ step, dim=D)
        row = wd.where((wd.index(D) & step) == 0, row + other, other - row)
        step *= 2
    row = row * (1 / math.sqrt(WIDTH))
    top = wd.max(wd.abs(row), dim=D) / 7
    code = wd.cast(wd.round(row / top), I32) & 15
    low, high = (wd.extract(code, {D: (D / 2, i, 2)}) for i in (0, 1))
    wd.write(wd.cast(low | high << 4, U8), q)
    wd.write(top, scale)

def rotated_case(m: int) -> Case:
    d = WIDTH
    x = normal(m, d, dtype=HALF)
    h = np.ones((1, 1))
    while len(h) < d:
        h = np.block([[h, h], [h, -h]])
    row = (wide(x) @ h / math.sqrt(d))
    top = np.abs(row).max(1) / 7
    code = np.rint(row / top[:, None]).astype(int) & 15
    want = {1: code[:, ::2] | code[:, 1::2] << 4, 2: top}
    return Case([x, np.zeros((m, d // 2), np.uint8), np.zeros(m, np.float32)], want, {}, 1e-5, (M,))


@wd.wave([wd.WorkgroupConstraint(C, 1, 0)], subs={L: 1024})
def norms(
    p: wd.Memory[N, F32], g: wd.Memory[N, F32], m: wd.Memory[N, F32], v: wd.Memory[N, F32],
    tensor: wd.Memory[C, I32], first: wd.Memory[C, I32], count: wd.Memory[C, I32], u: wd.Memory[N, F32],
    size: wd.Memory[T, F32], change: wd.Memory[T, F32],
):  # fmt: skip
    """The first half of LAMB over chunks of many tensors."""
    there = wd.index(L) < wd.read(count)
    at = wd.where(there, wd.read(first) + wd.index(L), -1)
    one = wd.IndexMapping((L,), {N: at})
    grad, weight = wd.read(g, mapping=one), wd.read(p, mapping=one)
    m2 = 0.875 * wd.read(m, mapping=one) + 0.125 * grad
    v2 = 0.75 * wd.read(v, mapping=one) + 0.25 * grad * grad
    step = m2 / (wd.sqrt(v2) + 1e-6) + 0.01 * weight
    wd.write(m2, m, mapping=one)
    wd.write(v2, v, mapping=one)
    wd.write(step, u, mapping=one)
    mine = wd.IndexMapping((), {T: wd.read(tensor)})
    wd.atomic_add(wd.sum(wd.where(there, weight * weight, 0.0), dim=L), size, mapping=mine)
    wd.atomic_add(wd.sum(wd.where(there, step * step, 0.0), dim=L), change, mapping=mine)


def norms_case(sizes: Any) -> Case:
    n = sum(sizes)
    p, g, m, v = (normal(n, seed=i) for i in range(4))
    v = v * v
    tensor: list[int] = []
    first: list[int] = []
    count: list[int] = []
    at = 0
    for i, s in enumerate(sizes):
        for j in range(0, s, 1024):
            for numbers, x in ((tensor, i), (first, at + j), (count, min(1024, s - j))):
                numbers.append(x)
        at += s
    m2, v2 = 0.875 * wide(m) + 0.125 * g, 0.75 * wide(v) + 0.25 * wide(g) ** 2
    u = m2 / (np.sqrt(v2) + 1e-6) + 0.01 * p
    ends = np.cumsum(sizes)
    size = [(wide(p)[e - s : e] ** 2).sum() for s, e in zip(sizes, ends)]
    change = [(u[e - s : e] ** 2).sum() for s, e in zip(sizes, ends)]
    ints = [np.array(z, np.int32) for z in (tensor, first, count)]
    outs = [np.zeros(n, np.float32), *(np.zeros(len(sizes), np.float32) for _ in "ab")]
    want = {2: m2, 3: v2, 7: u, 8: np.array(size), 9: np.array(change)}
    return Case([p, g, m, v, *ints, *outs], want, {}, 1e-4, (N, C, T))


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(K, 256, 1)])
def pruned(x: wd.Memory[M, K, F16], kept: wd.Memory[M, K / 2, F16], places: wd.Memory[M, K / 8, U8]):
    """The two largest of each four, in their order, and two bits for the place of each."""
    parts = [wd.extract(wd.read(x), {K: (K / 4, i, 4)}) for i in range(4)]
    size = [wd.abs(z) for z in parts]

    def before(i, j):
        return wd.cast(size[j] >= size[i] if j < i else size[j] > size[i], I32)

    chosen = [sum(before(i, j) for j in range(4) if j != i) < 2 for i in range(4)]
    first = wd.where(chosen[0], 0, wd.where(chosen[1], 1, 2))
    second = wd.where(chosen[3], 3, wd.where(chosen[2], 2, 1))

    def pick(at):
        return wd.where(at == 0, parts[0], wd.where(at == 1, parts[1], wd.where(at == 2, parts[2], parts[3])))

    wd.write(pick(first), kept[:, ::2])
    wd.write(pick(second), kept[:, 1::2])
    code = first | second << 2
    low, high = (wd.extract(code, {K / 4: (K / 8, i, 2)}) for i in (0, 1))
    wd.write(wd.cast(low | high << 4, U8), places)


def pruned_case(m: int, k: int) -> Case:
    x = normal(m, k, dtype=np.float16)
    size = np.abs(wide(x)).reshape(m, k // 4, 4)
    order = np.sort(np.argsort(-size, 2, kind="stable")[..., :2], 2)
    kept = np.take_along_axis(wide(x).reshape(m, k // 4, 4), order, 2).reshape(m, k // 2)
    code = order[..., 0] | order[..., 1] << 2
    outputs = [np.zeros((m, k // 2), np.float16), np.zeros((m, k // 8), np.uint8)]
    return Case([x, *outputs], {1: kept, 2: code[:, ::2] | code[:, 1::2] << 4}, {}, 0, (M,))


@wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
def tiny_floats(x: wd.Memory[M, K, BF16], q: wd.Memory[M, K / 2, U8], scale: wd.Memory[M, K / 32, U8]):
    """Blocks of 32 with a common exponent, each number four bits."""
    value = wd.cast(wd.read(x), F32)
    block = wd.reshape(value, M, G, L)
    top = wd.max(wd.abs(block), dim=L)
    exponent = (wd.bitcast(top, I32) >> 23) - 2
    exponent = wd.maximum(exponent, 1)
    size = wd.bitcast((254 - exponent) << 23, F32)
    y = wd.abs(block) * size
    code = wd.Register[M, G, L, I32](0)
    for i, edge in enumerate((0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)):
        code = code + wd.cast((y > edge) if i % 2 == 0 else (y >= edge), I32)
    code = code | wd.where(block < 0, 8, 0)
    code = wd.reshape(code, M, K)
    low, high = (wd.extract(code, {K: (K / 2, i, 2)}) for i in (0, 1))
    wd.write(wd.cast(low | high << 4, U8), q)
    wd.write(wd.cast(wd.reshape(exponent, M, K / 32), U8), scale)


def tiny_floats_case(m: int, k: int) -> Case:
    x = normal(m, k, dtype=HALF, scale=3)
    v = wide(x).reshape(m, -1, 32)
    top = np.abs(v).max(2)
    e = np.floor(np.log2(top)).astype(int) - 2
    y = np.abs(v) / 2.0 ** e[..., None]
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    d = np.abs(y[..., None] - levels)
    best = d.min(-1, keepdims=True)
    tie = d == best
    code = np.where(tie.sum(-1) == 1, tie.argmax(-1), 0)
    two = tie.sum(-1) > 1
    a = tie.argmax(-1)
    code = np.where(two, np.where(a % 2 == 0, a, a + 1), code)
    code = (code | np.where(v < 0, 8, 0)).reshape(m, k)
    return Case([x, np.zeros((m, k // 2), np.uint8), np.zeros((m, k // 32), np.uint8)],
                {1: code[:, ::2] | code[:, 1::2] << 4, 2: e + 127}, {G: k // 32, L: 32}, 0, (M,))


@wd.wave([wd.WorkgroupConstraint(G, 1, 0)], subs={L: 512, D: 16})
def radix(key: wd.Memory[N, wd.u32], shift: wd.Scalar[wd.u32], start: wd.Memory[D, G, I32], out: wd.Memory[N, wd.u32]):
    """One pass: each block's keys go, by a digit and in their order, to where counts of all blocks say."""
    place = wd.index(G) * 512 + wd.index(L)
    mine = wd.read(key, mapping=wd.IndexMapping((L,), {N: place}))
    digit = wd.cast((mine >> shift) & 15, I32)
    hot = wd.cast((digit == wd.index(D)) & (place < N), I32)
    rank = wd.sum((wd.cumsum(hot, dim=L) - hot + wd.read(start)) * hot, dim=D)
    wd.write(mine, out, mapping=wd.IndexMapping((L,), {N: wd.where(place < N, rank, -1)}))


def radix_case(n: int) -> Case:
    key = np.random.default_rng(0).integers(0, 2**32, n, dtype=np.uint32)
    digit = key >> 8 & 15
    blocks = -(-n // 512)
    count = np.array([[(digit[b * 512 : b * 512 + 512] == d).sum() for b in range(blocks)] for d in range(16)])
    start = (np.cumsum(count.reshape(-1)) - count.reshape(-1)).reshape(16, blocks).astype(np.int32)
    want = key[np.argsort(digit, kind="stable")]
    return Case([key, np.uint32(8), start, np.zeros(n, np.uint32)], {3: want}, {}, 0, (N, G))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def lu(a: wd.Memory[B, I, J, F32], pivots: wd.Memory[B, I, I32], out: wd.Memory[B, I, J, F32]):
    """Factors with the largest of each column as its pivot."""
    def step(rest, order, k):
        column = wd.extract(rest, {J: k})
        size = wd.where(wd.index(I) >= k, wd.abs(column), -1.0)
        best = wd.argmax(size, dim=I)
        other = wd.where(wd.index(I) == k, best, wd.where(wd.index(I) == best, k, wd.index(I)))
        rest, order = wd.shuffle(rest, other, dim=I), wd.shuffle(order, other, dim=I)
        row, column = wd.extract(rest, {I: k}), wd.extract(rest, {J: k})
        below = wd.index(I) > k
        factor = wd.where(below, column / wd.extract(row, {J: k}), 0.0)
        rest = wd.where(wd.index(J) > k, rest - factor * row, rest)
        return wd.where(below & (wd.index(J) == k), factor, rest), order, k + 1

    start = [wd.read(a), wd.Register[I, I32](0) + wd.index(I), wd.Register[I32](0)]
    found, order, _ = wd.while_loop(lambda rest, order, k: k < I, step, start)
    wd.write(found, out)
    wd.write(order, pivots)


def lu_case(b: int, n: int) -> Case:
    a = normal(b, n, n)
    out, order = a.astype(np.float32).copy(), np.tile(np.arange(n), (b, 1))
    for q in range(b):
        m = out[q]
        for k in range(n):
            best = k + np.abs(m[k:, k]).argmax()
            m[[k, best]], order[q, [k, best]] = m[[best, k]], order[q, [best, k]]
            m[k + 1 :, k] /= m[k, k]
            m[k + 1 :, k + 1 :] -= m[k + 1 :, k, None] * m[k, k + 1 :]
    return Case([a, np.zeros((b, n), np.int32), np.zeros_like(a)], {1: order, 2: wide(out)}, {}, 1e-3, (B,))


KERNELS = {
    "normal-floats": (normal_floats, normal_floats_case, ((16, 64, 128), (5, 72, 320))),
    "three-bit": (three_bit, three_bit_case, ((16, 64, 64), (19, 70, 96))),
    "bytes-adam": (bytes_adam, bytes_adam_case, ((2, 256), (3, 131))),
    "rotated": (rotated, rotated_case, ((2,), (3,))),
    "norms": (norms, norms_case, (((1024, 100, 2000),), ((7, 3000, 1),))),
    "pruned": (pruned, pruned_case, ((16, 256), (5, 72))),
    "tiny-floats": (tiny_floats, tiny_floats_case, ((8, 128), (5, 96))),
    "radix": (radix, radix_case, ((1024,), (1300,))),
    "lu": (lu, lu_case, ((1, 32), (2, 21))),
}


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)


def test_more_waves_where_addresses_lack_registers(oracle: Callable[[str], str]) -> None:
    """1024 elements of five arrays at places of their own, 64 bits each, were one warp's: 1084 bytes of spills."""
    oracle("ptxas")
    compiled = norms.compile(target="sm_80", subs={N: 1 << 20, C: 1024, T: 50})
    assert not compiled.resources.spills
    assert sum(compiled.resources.instructions.values()) < 800


def test_scans_get_the_registers_that_ptxas_takes(oracle: Callable[[str], str]) -> None:
    """It was told to leave room for two workgroups on an SM: 88 bytes of spills where N is known at run time."""
    oracle("ptxas")
    case = radix_case(1024)
    assert not radix.compile(*case.arguments, target="sm_80", subs=case.subs, dynamic=case.dynamic).resources.spills
