"""Factors and eigenvalues of small matrices, transport, paths, quantiles, prices, flows and lookups in codes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from families import TARGETS, Case, both_tests, normal, whole, wide

import wavedsl as wd

B, C, D, G, I, J, K, L, M, N, P, Q, R, S, T, X, Y = wd.symbols("B C D G I J K L M N P Q R S T X Y")
F16, F32, F64, I32, U8 = wd.f16, wd.f32, wd.f64, wd.i32, wd.u8


# ---- systems: Cholesky's factor and both solves, Householder's reflections, rotations of Jacobi, gradients


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(K, 1)])
def solved(a: wd.Memory[B, I, J, F32], rhs: wd.Memory[B, K, R, F32], x: wd.Memory[B, K, R, F32]):
    """a x = rhs for symmetric positive a: column by column of the factor, the right-hand sides with it, then back."""

    def entry(values, dim, k):
        return wd.sum(wd.where(wd.index(dim) == k, values, 0.0), dim=dim)

    right = wd.read(rhs, mapping=wd.IndexMapping((I, R), {B: B, K: wd.index(I)}))

    @wd.iterate(K, init_args=[wd.read(a), right])
    def forward(rest, y):
        k = wd.tile_start(K)
        column = entry(rest, J, k)
        column = wd.where(wd.index(I) >= k, column * wd.rsqrt(entry(column, I, k)), 0.0)
        across = wd.where(wd.index(J) > k, wd.reshape(column, J), 0.0)
        done = entry(y, I, k) / entry(column, I, k)
        y = wd.where(wd.index(I) == k, done, y - wd.where(wd.index(I) > k, column, 0.0) * done)
        return wd.where(wd.index(J) == k, column, rest - column * across), y

    factor, y = forward

    @wd.iterate(K, init_args=[y])
    def back(y):
        k = K - 1 - wd.tile_start(K)
        row = entry(factor, I, k)  # [J]
        done = entry(y, I, k) / entry(row, J, k)
        return wd.where(wd.index(I) == k, done, y - wd.where(wd.index(I) < k, wd.reshape(row, I), 0.0) * done)

    wd.write(back, x, mapping=wd.IndexMapping((I, R), {B: B, K: wd.index(I)}))


def solved_case(b: int, n: int, r: int) -> Case:
    half, x = normal(b, n, n), normal(b, n, r, seed=1)
    a = (wide(half) @ wide(half).swapaxes(1, 2) / n + np.eye(n)).astype(np.float32)
    return Case([a, (wide(a) @ x).astype(np.float32), np.zeros_like(x)], {2: wide(x)}, {}, 2e-4, (B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)], subs={N: 8, S: 8})
def reflections(a: wd.Memory[B, M, N, F32], r: wd.Memory[B, M, N, F32], q: wd.Memory[B, M, S, F32]):
    """Householder: r = q' a has nothing below its diagonal, q the first columns of the product of reflections."""
    rest = wd.read(a)
    kept = []
    for k in range(8):
        x = wd.where(wd.index(M) >= k, wd.extract(rest, {N: k}), 0.0)
        head = wd.extract(x, {M: k})
        size = wd.sqrt(wd.sum(x * x, dim=M))
        v = x + wd.where(wd.index(M) == k, wd.where(head < 0, -size, size), 0.0)
        factor = 2.0 / wd.sum(v * v, dim=M)
        rest = rest - v * (wd.sum(v * rest, dim=M) * factor)
        kept.append((v, factor))
    wd.write(wd.where(wd.index(M) > wd.index(N), 0.0, rest), r)
    unit = wd.cast(wd.index(M) == wd.index(S), F32)
    for v, factor in reversed(kept):
        unit = unit - v * (wd.sum(v * unit, dim=M) * factor)
    wd.write(unit, q)


def reflections_case(b: int, m: int) -> Case:
    a = normal(b, m, 8)
    q, r = np.linalg.qr(wide(a))
    rest, qs = wide(a).copy(), []
    for k in range(8):
        v = np.where(np.arange(m) >= k, rest[:, :, k], 0)
        v[:, k] += np.where(v[:, k] < 0, -1, 1) * np.linalg.norm(v, axis=1)
        qs.append(np.eye(m) - 2 * v[:, :, None] * v[:, None] / (v * v).sum(1)[:, None, None])
        rest = qs[-1] @ rest
    product = np.broadcast_to(np.eye(m), (b, m, m))
    for z in qs:
        product = product @ z
    np.testing.assert_allclose(np.abs(product[:, :, :8]), np.abs(q), atol=1e-6)
    np.testing.assert_allclose(np.abs(np.triu(rest)[:, :8]), np.abs(r), atol=1e-6)
    outputs = [np.zeros_like(a), np.zeros((b, m, 8), np.float32)]
    return Case([a, *outputs], {1: np.triu(rest), 2: product[:, :, :8]}, {}, 1e-4, (B,))


@wd.wave([wd.WorkgroupConstraint(B, 4, 0), wd.TilingConstraint(S, 1)], subs={I: 8, J: 8})
def rotations(a: wd.Memory[B, I, J, F32], values: wd.Memory[B, I, F32], sweeps: wd.Memory[S, I32]):
    """Eigenvalues of symmetric 8 x 8: four rotations at a time, of rows and columns that are each other's partners."""

    @wd.iterate(S, init_args=[wd.read(a)])
    def sweep(m):
        for turn in range(1, 8):

            def partner(dim, turn=turn):
                return wd.index(dim) ^ turn

            own = wd.sum(wd.where(wd.index(I) == wd.index(J), m, 0.0), dim=J)  # [B, I]
            other = wd.shuffle(own, partner(I), dim=I)
            off = wd.sum(wd.where(partner(I) == wd.index(J), m, 0.0), dim=J)
            first = wd.index(I) < partner(I)
            theta = wd.where(first, other - own, own - other) / (2.0 * off)
            t = wd.where(theta < 0, -1.0, 1.0) / (wd.abs(theta) + wd.sqrt(theta * theta + 1.0))
            t = wd.where(off == 0.0, 0.0, t)
            c = wd.rsqrt(t * t + 1.0)
            s = wd.where(first, -t * c, t * c)
            m = c * m + s * wd.shuffle(m, partner(I), dim=I)
            c, s = wd.reshape(c, B, J), wd.reshape(s, B, J)
            m = c * m + s * wd.shuffle(m, partner(J), dim=J)
        return m

    diagonal = wd.sum(wd.where(wd.index(I) == wd.index(J), sweep, 0.0), dim=J)
    wd.write(wd.sort(diagonal, dim=I), values)


def rotations_case(b: int) -> Case:
    half = normal(b, 8, 8)
    a = (half + half.swapaxes(1, 2)) / 2
    arguments = [a, np.zeros((b, 8), np.float32), np.zeros(6, np.int32)]
    return Case(arguments, {1: np.linalg.eigvalsh(wide(a))}, {}, 3e-5, (B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def conjugate(a: wd.Memory[B, I, J, F32], b: wd.Memory[B, I, F32], x: wd.Memory[B, I, F32], trips: wd.Memory[B, I32]):
    """Conjugate gradients until the rest is small."""
    matrix, right = wd.read(a), wd.read(b)

    def unfinished(x, r, p, rr, n):
        return (rr > 1e-10) & (n < 100)

    def step(x, r, p, rr, n):
        ap = wd.sum(matrix * wd.reshape(p, J), dim=J)
        alpha = rr / wd.sum(p * ap, dim=I)
        r = r - alpha * ap
        new = wd.sum(r * r, dim=I)
        return x + alpha * p, r, r + (new / rr) * p, new, n + 1

    start = [wd.Register[I, F32](0.0), right, right, wd.sum(right * right, dim=I), wd.Register[I32](0)]
    found, _, _, _, n = wd.while_loop(unfinished, step, start)
    wd.write(found, x)
    wd.write(n, trips)


def conjugate_case(b: int, n: int) -> Case:
    half, x = normal(b, n, n), normal(b, n, seed=1)
    a = (wide(half) @ wide(half).swapaxes(1, 2) / n / 4 + np.eye(n)).astype(np.float32)
    right = (wide(a) @ wide(x)[..., None])[..., 0].astype(np.float32)
    return Case([a, right, np.zeros_like(x), np.zeros(b, np.int32)], {2: wide(x)}, {}, 1e-4, (B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def tridiagonal(
    lower: wd.Memory[B, N, F64], middle: wd.Memory[B, N, F64], upper: wd.Memory[B, N, F64], d: wd.Memory[B, N, F64],
    x: wd.Memory[B, N, F64],
):  # fmt: skip
    """Thomas by scans: ratios as 2 x 2 matrices, then two recurrences."""
    a, m, u, right = wd.read(lower), wd.read(middle), wd.read(upper), wd.read(d)
    before = wd.read(upper, mapping=wd.IndexMapping((N,), {B: B, N: N - 1}))

    def product(p, q):
        z = tuple(q[2 * i] * p[j] + q[2 * i + 1] * p[2 + j] for i in (0, 1) for j in (0, 1))
        size = wd.maximum(wd.abs(z[0]), wd.abs(z[2]))
        return tuple(e / size for e in z)

    one = wd.Register[N, F64](1.0)
    p = wd.scan((m, -a * before, one, one * 0.0), product, (1.0, 0.0, 0.0, 1.0), dim=N)
    pivot = wd.where(wd.index(N) == 0, m, p[0] / p[2])

    def after(p, q):
        return p[0] * q[0], p[1] * q[0] + q[1]

    y = wd.scan((-a / pivot, right / pivot), after, (1.0, 0.0), dim=N)[1]
    wd.write(wd.scan((-u / pivot, y), after, (1.0, 0.0), dim=N, reverse=True)[1], x)


def tridiagonal_case(b: int, n: int) -> Case:
    a, u, x = (normal(b, n, seed=i, dtype=np.float64) for i in range(3))
    a[:, 0] = u[:, -1] = 0
    m = np.abs(a) + np.abs(u) + 1
    right = m * x
    right[:, 1:] += a[:, 1:] * x[:, :-1]
    right[:, :-1] += u[:, :-1] * x[:, 1:]
    return Case([a, m, u, right, np.zeros_like(x)], {4: x}, {}, 1e-9, (B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(I, 1, 1), wd.WorkgroupConstraint(J, 64, 0)])
def kronecker(
    a: wd.Memory[B, I, P, F16], b: wd.Memory[B, J, Q, F16], c: wd.Memory[B, I * J, P * Q, F16], s: wd.Scalar[F32]
):
    x = wd.cast(wd.read(a), F32) * wd.cast(wd.read(b), F32) * s  # [P, J, Q]
    there = {B: B, I * J: wd.index(I) * J + wd.index(J), P * Q: wd.index(P) * Q + wd.index(Q)}
    wd.write(wd.cast(x, F16), c, mapping=wd.IndexMapping((P, J, Q), there))


def kronecker_case(b: int, i: int, p: int, j: int, q: int) -> Case:
    x, y = whole(b, i, p), whole(b, j, q, seed=1)
    want = np.einsum("bip,bjq->bijpq", wide(x), wide(y)).reshape(b, i * j, p * q) * 0.5
    return Case([x, y, np.zeros(want.shape, np.float16), 0.5], {2: want}, {}, 0, (B, I))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def exponential(a: wd.Memory[B, I, J, F32], y: wd.Memory[B, I, J, F32]):
    """exp of matrices: Taylor of a sixteenth, then four squares."""

    def times(x, y):
        y = wd.reshape(wd.reshape(y, I, K), J, K)
        return wd.reshape(wd.mma(x, y, wd.Register[I, K, F32](0.0)), I, J)

    x = wd.read(a) * (1 / 16)
    unit = wd.cast(wd.index(I) == wd.index(J), F32)
    total = unit + x / 8
    for n in range(7, 0, -1):
        total = unit + times(x, total) / n
    for _ in range(4):
        total = times(total, total)
    wd.write(total, y)


def exponential_case(b: int, n: int) -> Case:
    a = normal(b, n, n, scale=0.3)
    term = want = np.broadcast_to(np.eye(n), a.shape)
    for k in range(1, 40):
        term = term @ wide(a) / k
        want = want + term
    return Case([a, np.zeros_like(a)], {1: want}, {K: n}, 2e-2, (B,))


# ---- paths: optimal transport, time warped softly, gaps that cost more to open


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)])
def transport(
    cost: wd.Memory[B, M, N, F32], a: wd.Memory[B, M, F32], b: wd.Memory[B, N, F32], plan: wd.Memory[B, M, N, F32],
    price: wd.Memory[B, F32], trips: wd.Memory[T, I32], eps: wd.Scalar[F32],
):  # fmt: skip
    """Sinkhorn's steps on logarithms."""
    k = -wd.read(cost) / eps
    la, lb = wd.log(wd.read(a)), wd.log(wd.read(b))

    def level(x, dim):
        top = wd.max(x, dim=dim)
        return top + wd.log(wd.sum(wd.exp(x - top), dim=dim))

    @wd.iterate(T, init_args=[wd.Register[M, F32](0.0), wd.Register[N, F32](0.0)])
    def step(u, v):
        u = la - level(k + v, N)
        return u, lb - level(k + u, M)

    u, v = step
    p = wd.exp(u + v + k)
    wd.write(p, plan)
    wd.write(wd.sum(p * wd.read(cost), dim=(M, N)), price)


def transport_case(b: int, m: int, n: int) -> Case:
    rng = np.random.default_rng(0)
    cost = rng.random((b, m, n)).astype(np.float32)
    x, y = rng.random((b, m)) + 0.1, rng.random((b, n)) + 0.1
    x, y = ((z / z.sum(1, keepdims=True)).astype(np.float32) for z in (x, y))
    k, v = np.exp(-wide(cost) / 0.1), np.ones((b, n))
    for _ in range(9):
        u = x / (k @ v[..., None])[..., 0]
        v = y / (u[:, None] @ k)[:, 0]
    p = u[..., None] * k * v[:, None]
    arguments = [cost, x, y, np.zeros_like(cost), np.zeros(b, np.float32), np.zeros(9, np.int32), 0.1]
    return Case(arguments, {3: p, 4: (p * cost).sum((1, 2))}, {}, 1e-4, (B, T))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(S, 1)])
def soft_warp(x: wd.Memory[B, S, D, F32], y: wd.Memory[B, T, D, F32], out: wd.Memory[B, F32], gamma: wd.Scalar[F32]):
    """Soft dynamic time warping: row by row, each as a scan of what adds and takes the softest minimum."""
    others = wd.read(y)

    def softest(a, b):
        low, high = wd.minimum(a, b), wd.maximum(a, b)
        return low - gamma * wd.log1p(wd.exp((low - high) / gamma))

    def after(p, q):
        return wd.minimum(p[0] + q[0], 1e30), softest(p[1] + q[0], q[1])

    @wd.iterate(S, init_args=[wd.Register[T, F32](1e10)])
    def rows(above):
        i = wd.tile_start(S)
        away = wd.read(x[:, i]) - others
        d = wd.sum(away * away, dim=D)
        corner = wd.shuffle(above, wd.maximum(wd.index(T) - 1, 0), dim=T)
        corner = wd.where(wd.index(T) == 0, wd.where(i == 0, 0.0, 1e10), corner)
        best = softest(above, corner) + d
        return wd.scan((d, best), after, (0.0, 1e10), dim=T)[1]

    wd.write(wd.extract(rows, {T: T - 1}), out)


def soft_case(b: int, s: int, t: int, d: int) -> Case:
    x, y = normal(b, s, d), normal(b, t, d, seed=1)
    cost = ((wide(x)[:, :, None] - wide(y)[:, None]) ** 2).sum(-1)
    r = np.full((b, s + 1, t + 1), 1e10)
    r[:, 0, 0] = 0
    for i in range(s):
        for j in range(t):
            z = -np.stack([r[:, i, j], r[:, i, j + 1], r[:, i + 1, j]]) / 0.5
            top = z.max(0)
            r[:, i + 1, j + 1] = cost[:, i, j] - 0.5 * (top + np.log(np.exp(z - top).sum(0)))
    return Case([x, y, np.zeros(b, np.float32), 0.5], {2: r[:, -1, -1]}, {}, 1e-4, (B, S))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(S, 1)])
def gaps(
    a: wd.Memory[B, S, U8], b: wd.Memory[B, T, U8], table: wd.Memory[X, Y, wd.i8], best: wd.Memory[B, I32],
    ends: wd.Memory[B, P, I32],
):  # fmt: skip
    """Local alignment where opening a gap costs 11, each further place 1; a gap along the row is a running maximum."""
    other = wd.cast(wd.read(b), I32)
    t = wd.index(T)
    zero = wd.Register[T, I32](0)

    @wd.iterate(S, init_args=[zero, wd.Register[T, I32](-1000), zero, zero])
    def rows(above, down, top, at):
        i = wd.tile_start(S)
        letter = wd.cast(wd.read(a[:, i]), I32)
        score = wd.cast(wd.read(table, mapping=wd.IndexMapping((T,), {X: letter, Y: other})), I32)
        corner = wd.where(t == 0, 0, wd.shuffle(above, wd.maximum(t - 1, 0), dim=T))
        down = wd.maximum(above - 11, down - 1)
        h = wd.maximum(wd.maximum(corner + score, down), 0)
        run = wd.scan(h + t, wd.maximum, -1000, dim=T)
        before = wd.where(t == 0, -1000, wd.shuffle(run, wd.maximum(t - 1, 0), dim=T))
        h = wd.maximum(h, before - 10 - t)
        return h, down, wd.maximum(top, h), wd.where(h > top, i, at)

    _, _, top, at = rows
    wd.write(wd.max(top, dim=T), best)
    column = wd.argmax(top, dim=T)
    wd.write(wd.max(wd.where(t == column, at, 0), dim=T), ends[:, 0])
    wd.write(column, ends[:, 1])


def gaps_case(n: int, s: int, t: int) -> Case:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 20, (n, s)).astype(np.uint8), rng.integers(0, 20, (n, t)).astype(np.uint8)
    b[:, : min(s, t) // 2] = a[:, : min(s, t) // 2]
    table = rng.integers(-4, 3, (20, 20)).astype(np.int8)
    np.fill_diagonal(table, 5)
    best, ends = np.zeros(n, int), np.zeros((n, 2), int)
    for x in range(n):
        h, e, f = (np.full((s + 1, t + 1), low) for low in (0, -1000, -1000))
        for i in range(1, s + 1):
            for j in range(1, t + 1):
                e[i, j] = max(h[i, j - 1] - 11, e[i, j - 1] - 1)
                f[i, j] = max(h[i - 1, j] - 11, f[i - 1, j] - 1)
                h[i, j] = max(0, h[i - 1, j - 1] + table[a[x, i - 1], b[x, j - 1]], e[i, j], f[i, j])
        best[x] = h.max()
        column = h.max(0)[1:].argmax()
        ends[x] = h[1:, column + 1].argmax(), column
    return Case([a, b, table, np.zeros(n, np.int32), np.zeros((n, 2), np.int32)], {3: best, 4: ends}, {P: 2})


KERNELS = {
    "solved": (solved, solved_case, ((1, 16, 8), (3, 13, 3))),
    "reflections": (reflections, reflections_case, ((2, 32), (3, 21))),
    "rotations": (rotations, rotations_case, ((4,), (7,))),
    "conjugate": (conjugate, conjugate_case, ((1, 32), (2, 96), (1, 101), (3, 21))),
    "tridiagonal": (tridiagonal, tridiagonal_case, ((1, 64), (3, 101))),
    "kronecker": (kronecker, kronecker_case, ((1, 2, 8, 64, 16), (2, 3, 5, 37, 7))),
    "exponential": (exponential, exponential_case, ((1, 32), (2, 21))),
    "transport": (transport, transport_case, ((1, 32, 64), (2, 21, 37))),
    "soft warp": (soft_warp, soft_case, ((1, 8, 64, 16), (2, 7, 37, 5))),
    "gaps": (gaps, gaps_case, ((1, 16, 64), (3, 13, 37))),
}  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore:scan. f.identity:RuntimeWarning")
"""Of tridiagonal systems products of two rows count up to a factor, by which the identity changes them."""

test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_more_waves_where_vector_instructions_do_not_reach(target: str) -> None:
    """The scans of 1024 places in f64 were one wave's, in 346 registers: 376 copies from and to those that vector
    instructions do not reach, and 12558 instructions on gfx942."""
    compiled = tridiagonal.compile(target=target, subs={B: 1000, N: 1024})
    counts = compiled.resources.instructions
    assert compiled.block[0] > 64 and compiled.resources.vgprs <= 256 and not counts["accmove"]
    assert sum(counts.values()) < 7500


@pytest.mark.parametrize("target", TARGETS)
def test_renamed_dimensions_are_shared_where_registers_lack(target: str, oracle: Callable[[str], str]) -> None:
    """The direction is needed along the matrix's rows and its columns; renaming kept both in one wave, so 96 unknowns
    were refused by sm_80, and 400 registers with 148 copies beyond what vector instructions reach on gfx942."""
    if target.startswith("sm"):
        oracle("ptxas")
    compiled = conjugate.compile(target=target, subs={B: 10, I: 96, J: 96})
    assert compiled.block[0] == 512 and compiled.resources.registers <= 128 and not compiled.resources.spills
    small = conjugate.compile(target=target, subs={B: 10, I: 32, J: 32})
    assert small.block[0] <= 64 and any(n.op == "reshape" for n in small.graph.all_nodes())


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_padding_of_operands_is_stored_as_zeros(target: str, oracle: Callable[[str], str]) -> None:
    """Each load of an operand of 21 x 21 chose between what it read and zeros: 64 bytes of spills, 16709 lines."""
    oracle("ptxas")
    kernel, made, sizes = KERNELS["exponential"]
    case = made(*sizes[-1])
    compiled = kernel.compile(*case.arguments, target=target, subs=case.subs or None)
    assert not compiled.resources.spills and len(compiled.asm.splitlines()) <= 15000
