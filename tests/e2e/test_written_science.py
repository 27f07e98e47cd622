"""Kernels of simulation, signals and statistics, against NumPy and the evaluator."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from families import Case, both_tests, normal, on_chip, whole, wide

import wavedsl as wd

M, N, K, B, D, X, Y, C, F, P, Q, R, S, L = wd.symbols("M N K B D X Y C F P Q R S L")
F16, F32, I32, U8 = wd.f16, wd.f32, wd.i32, wd.u8
SHARP = {"slack": 1e-5}


# ---- grids: a step of heat with fixed ends, a step of cells that live and die, waves in a medium


@wd.wave([wd.WorkgroupConstraint(Y, 8, 1), wd.WorkgroupConstraint(X, 64, 0)])
def heat(u: wd.Memory[Y, X, F32], v: wd.Memory[Y, X, F32], rate: wd.Scalar[F32]):
    def at(dy: int, dx: int) -> Any:
        return wd.read(u, mapping=wd.IndexMapping((Y, X), {Y: Y + dy, X: X + dx}))

    here = wd.read(u)
    step = here + rate * (at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1) - 4.0 * here)
    y, x = wd.index(Y), wd.index(X)
    inside = (y > 0) & (y < Y - 1) & (x > 0) & (x < X - 1)
    wd.write(wd.where(inside, step, here), v)


def heat_case(y: int, x: int) -> Case:
    u = normal(y, x)
    w = wide(u)
    want = w.copy()
    mid = w[1:-1, 1:-1]
    want[1:-1, 1:-1] = mid + 0.2 * (w[:-2, 1:-1] + w[2:, 1:-1] + w[1:-1, :-2] + w[1:-1, 2:] - 4 * mid)
    return Case([u, np.zeros_like(u), 0.2], {1: want}, dynamic=(Y, X), **SHARP)


@wd.wave([wd.WorkgroupConstraint(Y, 4, 1), wd.WorkgroupConstraint(X, 128, 0)])
def life(u: wd.Memory[Y, X, U8], v: wd.Memory[Y, X, U8]):
    count = 0
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            if dy or dx:
                y, x = (wd.index(Y) + dy + Y) % Y, (wd.index(X) + dx + X) % X
                count = count + wd.cast(wd.read(u, mapping=wd.IndexMapping((Y, X), {Y: y, X: x})), I32)
    alive = wd.read(u) != 0
    wd.write(wd.cast((count == 3) | (alive & (count == 2)), U8), v)


def life_case(y: int, x: int) -> Case:
    u = whole(y, x, dtype=np.uint8, low=0, high=2)
    count = sum(np.roll(u.astype(int), (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1)) - u
    want = (count == 3) | ((u == 1) & (count == 2))
    return Case([u, np.zeros_like(u)], {1: want.astype(np.uint8)}, dynamic=(X,))


# ---- bodies: forces of all on all, in tiles


@wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(N, 32)], subs={D: 3})
def forces(at: wd.Memory[M, D, F32], others: wd.Memory[N, D, F32], mass: wd.Memory[N, F32], f: wd.Memory[M, D, F32]):
    place = [wd.read(at[:, i]) for i in range(3)]
    start = [wd.Register[M, F32](0.0) for _ in range(3)]

    @wd.iterate(N, init_args=start)
    def pulled(*force):
        away = [wd.read(others[:, i]) - place[i] for i in range(3)]
        r = wd.rsqrt(sum(d * d for d in away) + 1e-3)
        pull = wd.read(mass) * r * r * r
        return [f + wd.sum(d * pull, dim=N) for f, d in zip(force, away)]

    for i in range(3):
        wd.write(pulled[i], f[:, i])


def forces_case(m: int, n: int) -> Case:
    at, others, mass = normal(m, 3), normal(n, 3, seed=1), np.abs(normal(n, seed=2))
    away = wide(others)[None] - wide(at)[:, None]
    pull = wide(mass) * ((away**2).sum(2) + 1e-3) ** -1.5
    want = (away * pull[..., None]).sum(1)
    return Case([at, others, mass, np.zeros_like(at)], {3: want}, slack=2e-3, dynamic=(M, N))


# ---- graphs: the shortest of two steps, labels that meet, rows of a sparse matrix


@wd.wave([wd.WorkgroupConstraint(M, 32, 1), wd.WorkgroupConstraint(N, 32, 0), wd.TilingConstraint(K, 8)])
def shortest(a: wd.Memory[M, K, F32], b: wd.Memory[K, N, F32], c: wd.Memory[M, N, F32]):
    best = wd.Register[M, N, F32](float("inf"))

    @wd.iterate(K, init_args=[best])
    def found(best):
        return wd.minimum(best, wd.min(wd.read(a) + wd.read(b), dim=K))

    wd.write(found, c)


def shortest_case(m: int, n: int, k: int) -> Case:
    a, b = np.abs(normal(m, k)), np.abs(normal(k, n, seed=1))
    a[a < 0.1] = np.inf
    want = (a[:, :, None] + b[None]).min(1)
    return Case([a, b, np.zeros((m, n), np.float32)], {2: wide(want)})


@wd.wave([wd.WorkgroupConstraint(M, 256, 0)])
def labels(one: wd.Memory[M, I32], other: wd.Memory[M, I32], label: wd.Memory[N, I32]):
    i, j = wd.read(one), wd.read(other)
    x = wd.read(label, mapping=wd.IndexMapping((M,), {N: i}))
    y = wd.read(label, mapping=wd.IndexMapping((M,), {N: j}))
    low = wd.minimum(x, y)
    wd.atomic_min(low, label, mapping=wd.IndexMapping((M,), {N: i}))
    wd.atomic_min(low, label, mapping=wd.IndexMapping((M,), {N: j}))


def labels_case(m: int, n: int) -> Case:
    """Edges that share no end, so that one pass of them has one result."""
    ends = np.random.default_rng(m).permutation(n)[: 2 * m].astype(np.int32)
    label = np.random.default_rng(n).permutation(n).astype(np.int32)
    one, other = ends[:m].copy(), ends[m:].copy()
    want = label.copy()
    want[one] = want[other] = np.minimum(label[one], label[other])
    return Case([one, other, label], {2: want}, dynamic=(M,))


@wd.wave([wd.WorkgroupConstraint(R, 1, 0), wd.TilingConstraint(K, 64)])
def sparse_rows(
    start: wd.Memory[S, I32], column: wd.Memory[K, I32], value: wd.Memory[K, F32], x: wd.Memory[N, F32],
    y: wd.Memory[R, F32],
):  # fmt: skip
    first, last = wd.read(start[R]), wd.read(start[R + 1])

    @wd.iterate(K, init_args=[wd.Register[F32](0.0)], start=first, stop=last)
    def total(acc):
        k = wd.index(K)
        mine = (k >= first) & (k < last)
        at = wd.where(mine, wd.read(column), -1)
        part = wd.read(x, mapping=wd.IndexMapping((K,), {N: at}))
        return acc + wd.sum(wd.where(mine, wd.read(value), 0.0) * part, dim=K)

    wd.write(total, y[R])


def sparse_rows_case(r: int, n: int, most: int) -> Case:
    rng = np.random.default_rng(r)
    counts = rng.integers(0, most, r)
    counts[0] = 0
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    column = rng.integers(0, n, start[-1]).astype(np.int32)
    value, x = normal(start[-1], seed=1), normal(n, seed=2)
    each = wide(value) * wide(x)[column]
    want = np.array([each[i:j].sum() for i, j in pairwise(start)])
    return Case([start, column, value, x, np.zeros(r, np.float32)], {4: want}, slack=1e-5, dynamic=(R, K))


# ---- signals: an image warped, a convolution with strides, complex products


@wd.wave([wd.WorkgroupConstraint(C, 1, 1), wd.WorkgroupConstraint(P, 128, 0)])
def warped(img: wd.Memory[C, Y, X, F32], at: wd.Memory[P, D, F32], out: wd.Memory[C, P, F32]):
    x, y = wd.read(at[:, 0]), wd.read(at[:, 1])
    x0, y0 = wd.floor(x), wd.floor(y)
    total = wd.Register[P, F32](0.0)
    for dy in (0, 1):
        for dx in (0, 1):
            i, j = wd.cast(y0, I32) + dy, wd.cast(x0, I32) + dx
            part = wd.read(img, mapping=wd.IndexMapping((P,), {C: C, Y: i, X: j}))
            total = total + part * (1.0 - wd.abs(y - (y0 + dy))) * (1.0 - wd.abs(x - (x0 + dx)))
    wd.write(total, out)


def warped_case(c: int, y: int, x: int, p: int) -> Case:
    img = normal(c, y, x)
    at = (np.random.default_rng(1).random((p, 2)) * [x + 1, y + 1] - 1).astype(np.float32)
    padded = np.pad(wide(img), ((0, 0), (2, 2), (2, 2)))
    u, v = wide(at).T
    j, i = np.floor(u).astype(int), np.floor(v).astype(int)
    want = np.zeros((c, p))
    for dy in (0, 1):
        for dx in (0, 1):
            want += padded[:, i + dy + 2, j + dx + 2] * (1 - np.abs(v - i - dy)) * (1 - np.abs(u - j - dx))
    return Case([img, at, np.zeros((c, p), np.float32)], {2: want}, {D: 2}, slack=1e-5, dynamic=(P,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(Y, 1, 1), wd.WorkgroupConstraint(X, 32, 0),
          wd.WorkgroupConstraint(F, 32, 0), wd.TilingConstraint(C, 16)])  # fmt: skip
def strided(img: wd.Memory[B, P, Q, C, F16], w: wd.Memory[F, S, L, C, F16], out: wd.Memory[B, Y, X, F, F32]):
    acc = wd.Register[X, F, F32](0.0)

    @wd.iterate(C, init_args=[acc])
    def total(acc):
        for r in range(3):
            for s in range(3):
                there = wd.IndexMapping((X, C), {B: B, P: 2 * Y + r - 1, Q: 2 * X + s - 1, C: C})
                acc = wd.mma(wd.read(img, mapping=there), wd.read(w[:, r, s, :]), acc)
        return acc

    wd.write(total, out)


def strided_case(b: int, p: int, q: int, c: int, f: int) -> Case:
    img, w = whole(b, p, q, c), whole(f, 3, 3, c, seed=1)
    y, x = (p + 1) // 2, (q + 1) // 2
    padded = np.pad(wide(img), ((0, 0), (1, 2), (1, 2), (0, 0)))
    want = np.zeros((b, y, x, f))
    for r in range(3):
        for s in range(3):
            want += padded[:, r : r + 2 * y : 2, s : s + 2 * x : 2][:, :y, :x] @ wide(w)[:, r, s].T
    return Case([img, w, np.zeros((b, y, x, f), np.float32)], {2: want}, {S: 3, L: 3})


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 16)])
def complex_product(a: wd.Memory[M, K, P, F32], b: wd.Memory[K, N, P, F32], c: wd.Memory[M, N, P, F32]):
    zero = wd.Register[M, N, F32](0.0)

    @wd.iterate(K, init_args=[zero, zero, zero])
    def parts(rr, ii, mixed):
        ar, ai, br, bi = wd.read(a[:, :, 0]), wd.read(a[:, :, 1]), wd.read(b[:, :, 0]), wd.read(b[:, :, 1])
        return wd.mma(ar, br, rr), wd.mma(ai, bi, ii), wd.mma(ar + ai, br + bi, mixed)

    rr, ii, mixed = parts
    wd.write(rr - ii, c[:, :, 0])
    wd.write(mixed - rr - ii, c[:, :, 1])


def complex_case(m: int, n: int, k: int) -> Case:
    a, b = whole(m, k, 2, dtype=np.float32), whole(k, n, 2, seed=1, dtype=np.float32)
    want = (a[..., 0] + 1j * a[..., 1]) @ (b[..., 0] + 1j * b[..., 1])
    out = np.stack([want.real, want.imag], -1)
    return Case([a, b, np.zeros((m, n, 2), np.float32)], {2: out}, {P: 2}, dynamic=(K,))


# ---- statistics: the nearest of centres and what falls to each; moments of columns by Welford's pairs


@wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(D, 32)], subs={K: 32})
def assigned(
    x: wd.Memory[M, D, F32], centre: wd.Memory[K, D, F32], which: wd.Memory[M, I32], count: wd.Memory[K, I32],
    sums: wd.Memory[K, D, F32],
):  # fmt: skip
    start = wd.Register[M, K, F32](0.0)

    @wd.iterate(D, init_args=[start])
    def away(acc):
        d = wd.read(x) - wd.read(centre)
        return acc + wd.sum(d * d, dim=D)

    best = wd.argmin(away, dim=K)
    wd.write(best, which)
    wd.atomic_add(wd.where(wd.index(M) < M, 1, 0), count, mapping=wd.IndexMapping((M,), {K: best}))

    @wd.iterate(D)
    def added():
        wd.atomic_add(wd.read(x), sums, mapping=wd.IndexMapping((M, D), {K: best, D: D}))


def assigned_case(m: int, d: int) -> Case:
    x, centre = whole(m, d, dtype=np.float32), whole(32, d, seed=1, dtype=np.float32)
    far = ((wide(x)[:, None] - wide(centre)[None]) ** 2).sum(2)
    best = far.argmin(1)
    count = np.bincount(best, minlength=32).astype(np.int32)
    sums = np.zeros((32, d))
    np.add.at(sums, best, wide(x))
    arrays = [x, centre, np.zeros(m, np.int32), np.zeros(32, np.int32), np.zeros((32, d), np.float32)]
    return Case(arrays, {2: best.astype(np.int32), 3: count, 4: sums})


@wd.wave([wd.WorkgroupConstraint(N, 64, 0), wd.TilingConstraint(M, 32)])
def moments(x: wd.Memory[M, N, F32], mean: wd.Memory[N, F32], var: wd.Memory[N, F32]):
    def joined(a, b):
        (na, ma, sa), (nb, mb, sb) = a, b
        n = na + nb
        share = wd.where(n > 0, nb / wd.maximum(n, 1.0), 0.0)
        d = mb - ma
        return n, ma + d * share, sa + sb + d * d * na * share

    zero = wd.Register[N, F32](0.0)

    @wd.iterate(M, init_args=[zero, zero, zero])
    def total(n, m, s):
        one = wd.where(wd.index(M) < M, 1.0, 0.0)
        each = (wd.broadcast(one, M, N), wd.read(x), wd.Register[M, N, F32](0.0))
        return joined((n, m, s), wd.reduce(each, joined, (0.0, 0.0, 0.0), dim=M))

    n, m, s = total
    wd.write(m, mean)
    wd.write(s / n, var)


def moments_case(m: int, n: int) -> Case:
    x = normal(m, n, scale=0.1) + np.float32(10)
    w, out = wide(x), np.zeros(n, np.float32)
    return Case([x, out, out.copy()], {1: w.mean(0), 2: w.var(0)}, slack=3e-5, dynamic=(M,))


KERNELS = {
    "heat": (heat, heat_case, [(8, 64), (37, 150)]),
    "life": (life, life_case, [(8, 128), (13, 77)]),
    "forces": (forces, forces_case, [(64, 32), (70, 75)]),
    "labels": (labels, labels_case, [(256, 600), (70, 150)]),
    "shortest": (shortest, shortest_case, [(32, 32, 16), (37, 45, 21)]),
    "sparse rows": (sparse_rows, sparse_rows_case, [(5, 40, 100), (9, 33, 20)]),
    "warped": (warped, warped_case, [(2, 9, 11, 128), (3, 20, 7, 150)]),
    "strided convolution": (strided, strided_case, [(1, 4, 64, 16, 32), (2, 5, 37, 24, 40)]),
    "complex product": (complex_product, complex_case, [(32, 32, 16), (45, 37, 41)]),
    "assigned": (assigned, assigned_case, [(64, 32), (101, 40)]),
    "moments": (moments, moments_case, [(32, 64), (77, 70)]),
}  # fmt: skip

test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("d", [100, 128])
def test_nothing_is_loaded_ahead_that_registers_lack(d: int, target: str, oracle: Callable[[str], str]) -> None:
    """Of 64 registers, 40 held what the next trip computes with: 260 and 280 bytes of spills on sm_80."""
    oracle("ptxas")
    assert not on_chip(assigned, assigned_case(101, d), target).resources.spills
    assert not assigned.compile(target=target, subs={M: 4096, D: d}).resources.spills
