"""Kernels of numerics, against NumPy and the evaluator: grids of half the cells, votes and rasters by atomics, roots,
small matrices, codes, cosines."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from families import Case, four_tests, normal, whole

import wavedsl as wd

B, N, H, W, X, Y, D, E, F, T, R, V, P, I, J, C = wd.symbols("B N H W X Y D E F T R V P I J C")
F32, F64, I32, U8, I64, U64 = wd.f32, wd.f64, wd.i32, wd.u8, wd.i64, wd.u64


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(Y, 4, 1), wd.WorkgroupConstraint(X, 16, 0)])
def box_means(table: wd.Memory[B, H, W, I32], out: wd.Memory[B, Y, X, F64]):
    """Adaptive means of any grid of windows, by four corners of the summed table."""
    y, x = wd.index(Y), wd.index(X)
    top, bottom = y * H // Y, ((y + 1) * H + Y - 1) // Y
    left, right = x * W // X, ((x + 1) * W + X - 1) // X

    def corner(i, j):
        return wd.read(table[B, i - 1, j - 1])

    total = corner(bottom, right) - corner(top, right) - corner(bottom, left) + corner(top, left)
    wd.write(wd.cast(total, F64) / wd.cast((bottom - top) * (right - left), F64), out)


def means_case(b: int, h: int, w: int, y: int, x: int) -> Case:
    image = whole(b, h, w, dtype=np.int32, low=-9, high=10)
    want = np.zeros((b, y, x))
    for i in range(y):
        for j in range(x):
            part = image[:, i * h // y : -(-(i + 1) * h // y), j * w // x : -(-(j + 1) * w // x)]
            want[:, i, j] = part.mean((1, 2))
    return Case([image.cumsum(1).cumsum(2).astype(np.int32), np.zeros((b, y, x))], {1: want}, slack=1e-12, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 2, 1), wd.WorkgroupConstraint(N, 64, 0)])
def restricted(fine: wd.Memory[B, 2 * N, F64], coarse: wd.Memory[B, N, F64]):
    own, after = wd.read(fine[:, ::2]), wd.read(fine[:, 1::2])
    before = wd.read(fine[:, 2 * wd.index(N) - 1])
    wd.write(before / 4 + own / 2 + after / 4, coarse)


def restricted_case(b: int, n: int) -> Case:
    fine = normal(b, 2 * n, dtype=np.float64)
    pad = np.pad(fine, ((0, 0), (1, 0)))
    return Case([fine, np.zeros((b, n))], {1: pad[:, :-1:2] / 4 + pad[:, 1::2] / 2 + pad[:, 2::2] / 4}, slack=1e-14,
                dynamic=(N,))  # fmt: skip


@wd.wave([wd.WorkgroupConstraint(B, 2, 1), wd.WorkgroupConstraint(N, 64, 0)])
def prolonged(coarse: wd.Memory[B, N, F64], fine: wd.Memory[B, 2 * N, F64]):
    own, after = wd.read(coarse), wd.read(coarse[:, wd.index(N) + 1])
    wd.write(wd.read(fine[:, ::2]) + own, fine[:, ::2])
    wd.write(wd.read(fine[:, 1::2]) + (own + after) / 2, fine[:, 1::2])


def prolonged_case(b: int, n: int) -> Case:
    coarse, fine = normal(b, n, dtype=np.float64), normal(b, 2 * n, seed=1, dtype=np.float64)
    want = fine.copy()
    want[:, ::2] += coarse
    want[:, 1::2] += (coarse + np.pad(coarse, ((0, 0), (0, 1)))[:, 1:]) / 2
    return Case([coarse, fine], {1: want}, slack=1e-14, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(Y, 4, 1), wd.WorkgroupConstraint(X, 32, 0)])
def hough(
    image: wd.Memory[Y, X, U8], cosines: wd.Memory[T, I32], sines: wd.Memory[T, I32], votes: wd.Memory[T, R, I32]
):
    """Every pixel that is set votes for the lines through it, in fixed point."""
    rho = (wd.read(cosines) * wd.index(X) + wd.read(sines) * wd.index(Y) >> 8) + R // 2
    where = wd.where(wd.read(image) > 0, rho, -1)
    wd.atomic_add(1, votes[wd.index(T), where])


def hough_case(y: int, x: int, t: int, r: int) -> Case:
    image = (np.random.default_rng(0).random((y, x)) < 0.2).astype(np.uint8)
    angles = np.arange(t) * np.pi / t
    cosines, sines = np.round(256 * np.cos(angles)).astype(np.int32), np.round(256 * np.sin(angles)).astype(np.int32)
    want = np.zeros((t, r), np.int32)
    for i, j in np.argwhere(image):
        rho = (cosines * j + sines * i >> 8) + r // 2
        inside = (rho >= 0) & (rho < r)
        np.add.at(want, (np.arange(t)[inside], rho[inside]), 1)
    return Case([image, cosines, sines, np.zeros((t, r), np.int32)], {3: want}, dynamic=(Y,))


@wd.wave([wd.WorkgroupConstraint(F, 1, 2), wd.WorkgroupConstraint(Y, 8, 1), wd.WorkgroupConstraint(X, 32, 0)])
def rasterised(corners: wd.Memory[F, P, C, I32], depth: wd.Memory[Y, X, U64]):
    """Triangles into a buffer of depths: the nearest and its number are the least of 64 bits."""
    (x0, y0, z0), (x1, y1, z1), (x2, y2, z2) = (
        tuple(wd.read(corners[F, p, c]) for c in range(3)) for p in range(3)
    )
    x, y = wd.index(X), wd.index(Y)

    def side(ax, ay, bx, by):
        return (bx - ax) * (y - ay) - (by - ay) * (x - ax)

    a, b, c = side(x1, y1, x2, y2), side(x2, y2, x0, y0), side(x0, y0, x1, y1)
    area = a + b + c
    inside = ((a >= 0) & (b >= 0) & (c >= 0) | (a <= 0) & (b <= 0) & (c <= 0)) & (area != 0)
    z = (a * z0 + b * z1 + c * z2) // wd.where(inside, area, 1)
    key = wd.cast(z, U64) << 32 | wd.cast(wd.index(F), U64)
    wd.atomic_min(key, depth[y, wd.where(inside, x, -1)])


def rasterised_case(f: int, h: int, w: int) -> Case:
    corners = np.random.default_rng(0).integers(0, min(h, w), (f, 3, 3)).astype(np.int32)
    none = np.uint64((1 << 64) - 1)
    want = np.full((h, w), none)
    y, x = np.indices((h, w))
    for n, ((x0, y0, z0), (x1, y1, z1), (x2, y2, z2)) in enumerate(corners.astype(np.int64)):
        side = lambda ax, ay, bx, by: (bx - ax) * (y - ay) - (by - ay) * (x - ax)  # noqa: E731
        a, b, c = side(x1, y1, x2, y2), side(x2, y2, x0, y0), side(x0, y0, x1, y1)
        inside = ((np.minimum(np.minimum(a, b), c) >= 0) | (np.maximum(np.maximum(a, b), c) <= 0)) & (a + b + c != 0)
        z = (a * z0 + b * z1 + c * z2) // np.where(inside, a + b + c, 1)
        key = np.where(inside, z.astype(np.uint64) << np.uint64(32) | np.uint64(n), none)
        want = np.minimum(want, key)
    return Case([corners, np.full((h, w), none)], {1: want}, dynamic=(F,))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def anomalies(mean: wd.Memory[N, F64], eccentricity: wd.Memory[N, F64], out: wd.Memory[N, F64]):
    """Kepler's equation by Newton's method, each orbit for as long as it takes."""
    m, e = wd.read(mean), wd.read(eccentricity)

    def unsettled(x, change):
        return abs(change) > 1e-13

    def newton(x, _):
        change = (x - e * wd.sin(x) - m) / (1 - e * wd.cos(x))
        return x - change, change

    wd.write(wd.while_loop(unsettled, newton, [m + e * wd.sin(m), m * 0 + 1])[0], out)


def anomalies_case(n: int) -> Case:
    rng = np.random.default_rng(0)
    x, e = rng.uniform(0.1, 6, n), rng.uniform(0, 0.9, n)
    return Case([x - e * np.sin(x), e, np.zeros(n)], {2: x}, slack=1e-10, dynamic=(N,))


DEGREE = 5


@wd.wave([wd.WorkgroupConstraint(B, 4, 0)])
def roots(c: wd.Memory[B, D, F64], re: wd.Memory[B, D, F64], im: wd.Memory[B, D, F64]):
    """All roots of a polynomial at once (Durand and Kerner), complex numbers as pairs."""
    i, j = wd.index(D), wd.index(E)
    coefficients = wd.read(c)

    def times(x, y):
        return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]

    def value(z):
        total = wd.Register[B, D, F64](1.0), wd.Register[B, D, F64](0.0)
        for k in range(DEGREE):
            x, y = times(total, z)
            total = x + wd.extract(coefficients, {D: k}), y
        return total

    def unsettled(n, x, y, change):
        return (n < 100) & (wd.max(change, dim=D) > 1e-26)

    def improve(n, x, y, _):
        dx, dy = x - wd.reshape(x, B, E), y - wd.reshape(y, B, E)
        dx, dy = wd.where(i == j, 1.0, dx), wd.where(i == j, 0.0, dy)
        px, py = wd.reduce((dx, dy), times, (1.0, 0.0), dim=E)
        vx, vy = value((x, y))
        size = px * px + py * py
        mx, my = (vx * px + vy * py) / size, (vy * px - vx * py) / size
        return n + 1, x - mx, y - my, mx * mx + my * my

    angle = wd.cast(i, F64) * (2 * math.pi / D) + 0.4
    ones = wd.Register[B, D, F64](1.0)
    start = [wd.Register[B, I32](0), ones * wd.cos(angle), ones * wd.sin(angle), ones]
    _, x, y, _ = wd.while_loop(unsettled, improve, start)
    wd.write(x, re)
    wd.write(y, im)


def roots_case(b: int) -> Case:
    rng = np.random.default_rng(0)
    z = rng.standard_normal((b, 2)) + 1j * rng.uniform(0.5, 1.5, (b, 2))
    z = np.concatenate([z, z.conj(), rng.uniform(-2, 2, (b, 1))], 1)
    c = np.array([np.poly(row).real for row in z])[:, 1:]
    # where the iteration ends does not depend on who computes it, which root comes where is its own affair
    x = np.exp(1j * (np.arange(5) * 2 * np.pi / 5 + 0.4)) * np.ones((b, 1))
    for _ in range(100):
        value = np.ones_like(x)
        for k in range(5):
            value = value * x + c[:, k : k + 1]
        others = x[:, :, None] - x[:, None]
        others[:, np.arange(5), np.arange(5)] = 1
        x = x - value / others.prod(2)
    return Case([c, np.zeros((b, 5)), np.zeros((b, 5))], {1: x.real, 2: x.imag}, {E: 5}, slack=1e-8, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 4, 0)])
def exponentials(a: wd.Memory[B, I, J, F64], out: wd.Memory[B, I, J, F64]):
    """exp of small matrices: a series of what is halved until it is small, squared as often as each needs."""
    def product(x, y):
        return wd.sum(wd.reshape(x, B, I, D) * wd.reshape(y, B, D, J), dim=D)

    x = wd.read(a)
    size = wd.max(wd.sum(abs(x), dim=J), dim=I)
    times = wd.maximum(wd.cast(wd.ceil(wd.log2(wd.maximum(size, 0.25))), I32) + 2, 0)
    x = x * wd.exp2(-wd.cast(times, F64))
    one = wd.where(wd.index(I) == wd.index(J), 1.0, x * 0)
    total = one
    for k in range(12, 0, -1):
        total = one + product(x, total) / k

    def square(n, y):
        return n - 1, product(y, y)

    wd.write(wd.while_loop(lambda n, y: n > 0, square, [times, total])[1], out)


def exponentials_case(b: int, n: int) -> Case:
    a = normal(b, n, n, dtype=np.float64) * np.geomspace(0.1, 3, b)[:, None, None]
    values, vectors = np.linalg.eig(a)
    want = (vectors * np.exp(values)[:, None] @ np.linalg.inv(vectors)).real
    return Case([a, np.zeros_like(a)], {1: want}, {D: n}, slack=1e-8, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 64, 0)])
def determinants(a: wd.Memory[B, I, J, I64], out: wd.Memory[B, I64]):
    """Whole determinants without fractions (Bareiss), with a pivot that is not zero."""
    m = [[wd.read(a[:, i, j]) for j in range(4)] for i in range(4)]
    sign, before = wd.Register[B, I64](1), wd.Register[B, I64](1)
    for k in range(3):
        for i in range(k + 1, 4):
            swap = (m[k][k] == 0) & (m[i][k] != 0)
            for j in range(k, 4):
                m[k][j], m[i][j] = wd.where(swap, m[i][j], m[k][j]), wd.where(swap, m[k][j], m[i][j])
            sign = wd.where(swap, -sign, sign)
        for i in range(k + 1, 4):
            for j in range(k + 1, 4):
                m[i][j] = (m[i][j] * m[k][k] - m[i][k] * m[k][j]) // before
        before = wd.where(m[k][k] == 0, 1, m[k][k])
    wd.write(sign * m[3][3], out)


def determinants_case(b: int) -> Case:
    a = whole(b, 4, 4, dtype=np.int64, low=-3, high=4)
    a[:3] = 0
    a[3, 0, 0] = a[4, :2, :2] = 0
    return Case([a, np.zeros(b, np.int64)], {1: np.round(np.linalg.det(a)).astype(np.int64)}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 4, 0)])
def predictors(r: wd.Memory[B, N, F64], out: wd.Memory[B, P, F64], rest: wd.Memory[B, F64]):
    """Levinson and Durbin: the coefficients that predict a signal, from what it has in common with itself."""
    i = wd.index(P)

    def more(k, a, error):
        return k <= P

    def step(k, a, error):
        other = wd.read(r[:, wd.clamp(k - 1 - i, 0, N - 1)])
        used = i < k - 1
        reflection = (wd.read(r[:, k]) - wd.sum(wd.where(used, a * other, 0.0), dim=P)) / error
        back = wd.shuffle(a, wd.clamp(k - 2 - i, 0, P - 1), dim=P)
        a = wd.where(used, a - reflection * back, wd.where(i == k - 1, reflection, 0.0))
        return k + 1, a, error * (1 - reflection * reflection)

    start = [wd.Register[I32](1), wd.Register[B, P, F64](0.0), wd.read(r[:, 0])]
    _, a, error = wd.while_loop(more, step, start)
    wd.write(a, out)
    wd.write(error, rest)


def predictors_case(b: int, p: int) -> Case:
    x = normal(b, 400, dtype=np.float64)
    r = np.array([[row[: 400 - k] @ row[k:] for k in range(p + 1)] for row in x]) / 400
    a = np.array([np.linalg.solve(row[abs(np.subtract.outer(np.arange(p), np.arange(p)))], row[1:]) for row in r])
    want = r[:, 0] - (a * r[:, 1:]).sum(1)
    return Case([r, np.zeros((b, p)), np.zeros(b)], {1: a, 2: want}, slack=1e-9, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 2, 0)])
def polar_code(x: wd.Memory[B, N, U8], y: wd.Memory[B, N, U8]):
    value, i = wd.read(x), wd.index(N)
    for k in range(8):
        value = value ^ wd.where(i & 1 << k == 0, wd.shuffle(value, i ^ 1 << k, dim=N), 0)
    wd.write(value, y)


def polar_case(b: int) -> Case:
    x = whole(b, 256, dtype=np.uint8, low=0, high=2)
    g = np.array([[1]])
    for _ in range(8):
        g = np.kron(g, [[1, 0], [1, 1]])
    return Case([x, np.zeros_like(x)], {1: (x @ g % 2).astype(np.uint8)}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(C, 16, 0)])
def check_messages(bits: wd.Memory[B, N, I32], edges: wd.Memory[C, D, I32], out: wd.Memory[B, C, D, I32]):
    """LDPC's min-sum: to each bit of a check the least of the others', with the sign of their product."""
    x = wd.read(bits[B, wd.read(edges)])

    def least_two(a, b):
        return wd.minimum(a[0], b[0]), wd.minimum(wd.maximum(a[0], b[0]), wd.minimum(a[1], b[1])), a[2] ^ b[2]

    big, sign = 1 << 20, wd.where(x < 0, 1, 0)
    low, second, signs = wd.reduce((abs(x), x * 0 + big, sign), least_two, (big, big, 0), dim=D)
    value = wd.where(abs(x) == low, second, low) * 3 // 4
    wd.write(wd.where(signs ^ sign == 1, -value, value), out)


def messages_case(b: int, n: int, c: int, d: int) -> Case:
    rng = np.random.default_rng(0)
    bits = whole(b, n, dtype=np.int32, low=-99, high=100)
    edges = np.array([rng.permutation(n)[:d] for _ in range(c)], np.int32)
    x = bits[:, edges]
    want = np.zeros_like(x)
    for i in range(d):
        others = np.delete(x, i, 2)
        value = abs(others).min(2) * 3 // 4
        want[:, :, i] = np.where((others < 0).sum(2) % 2, -value, value)
    return Case([bits, edges, np.zeros_like(x)], {2: want}, dynamic=(B,))


@wd.wave([wd.WorkgroupConstraint(B, 4, 0)])
def blocks_of_cosines(
    x: wd.Memory[B, Y, X, U8], basis: wd.Memory[V, Y, F32], table: wd.Memory[V, I, I32], places: wd.Memory[V, I, I32],
    out: wd.Memory[B, N, I32],
):  # fmt: skip
    """JPEG's blocks: cosines along both sides, divided and rounded, in zigzag."""
    pixels = wd.cast(wd.read(x), F32) - 128
    columns = wd.sum(pixels * wd.read(basis), dim=Y)
    both = wd.sum(wd.reshape(wd.read(basis), I, X) * columns, dim=X)
    level = wd.cast(wd.round(both / wd.cast(wd.read(table), F32)), I32)
    wd.write(level, out[:, wd.read(places)])


def cosines_case(b: int) -> Case:
    x = whole(b, 8, 8, dtype=np.uint8, low=0, high=256)
    k, n = np.indices((8, 8))
    basis = (np.cos((2 * n + 1) * k * np.pi / 16) * np.where(k == 0, np.sqrt(1 / 8), 0.5)).astype(np.float32)
    table = whole(8, 8, seed=1, dtype=np.int32, low=9, high=60)
    order = sorted(range(64), key=lambda p: (p // 8 + p % 8, (p // 8 if (p // 8 + p % 8) % 2 else p % 8)))
    places = np.zeros(64, np.int32)
    places[order] = np.arange(64)
    level = np.round(basis.astype(np.float64) @ (x - 128.0) @ basis.T.astype(np.float64) / table).astype(np.int32)
    want = np.zeros((b, 64), np.int32)
    want[:, places] = level.reshape(b, 64)
    return Case([x, basis, table, places.reshape(8, 8), np.zeros((b, 64), np.int32)], {4: want},
                {V: 8, I: 8}, dynamic=(B,))  # fmt: skip


KERNELS: dict[str, tuple[Any, Callable[..., Case], Any]] = {
    "box means": (box_means, means_case, ((2, 21, 45, 5, 19),)),
    "restricted": (restricted, restricted_case, ((3, 101),)),
    "prolonged": (prolonged, prolonged_case, ((3, 101),)),
    "hough": (hough, hough_case, ((11, 45, 6, 50),)),
    "rasterised": (rasterised, rasterised_case, ((5, 21, 45),)),
    "anomalies": (anomalies, anomalies_case, ((99,),)),
    "roots": (roots, roots_case, ((7,),)),
    "exponentials": (exponentials, exponentials_case, ((7, 6),)),
    "determinants": (determinants, determinants_case, ((99,),)),
    "predictors": (predictors, predictors_case, ((7, 13),)),
    "polar code": (polar_code, polar_case, ((5,),)),
    "check messages": (check_messages, messages_case, ((2, 101, 35, 7),)),
    "blocks of cosines": (blocks_of_cosines, cosines_case, ((7,),)),
}  # fmt: skip

HEAVY = ("roots", "exponentials")
"""Kernels that take a while: with the slow tests."""
test_against_numpy, test_the_evaluator_agrees, test_on_other_chips, test_the_assembler_takes_it = four_tests(
    KERNELS, HEAVY
)
