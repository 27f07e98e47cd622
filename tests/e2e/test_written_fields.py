"""Fields, particles, filters, prices, pictures, rows in order, sketches and letters, as people write them at first."""

from __future__ import annotations

import math

import numpy as np
from families import Case, both_tests, normal, whole, wide

import wavedsl as wd

A, B, C, D, E, F, G, H, I, J, K, L, M, N, P, Q, R, S, T, U, V, W, X, Y, Z = wd.symbols(
    "A B C D E F G H I J K L M N P Q R S T U V W X Y Z"
)
F16, F32, F64, I32, I64, U8, U32 = wd.f16, wd.f32, wd.f64, wd.i32, wd.i64, wd.u8, wd.u32


# ---- particles and fields


@wd.wave([wd.WorkgroupConstraint(N, 64, 0), wd.TilingConstraint(M, 32)])
def attracted(
    at: wd.Memory[N, D, F32], other: wd.Memory[M, E, F32], box: wd.Scalar[F32], cut: wd.Scalar[F32],
    force: wd.Memory[N, D, F32], energy: wd.Memory[1, F64],
):  # fmt: skip
    """Lennard-Jones in a box whose sides meet, particles nearer than the cut alone."""
    mine = [wd.read(at[:, i]) for i in range(3)]
    zero = wd.Register[N, F32](0.0)

    @wd.iterate(M, init_args=[zero, zero, zero, zero])
    def total(x, y, z, e):
        away = [a - wd.read(other[:, i]) for i, a in enumerate(mine)]
        away = [d - box * wd.round(d / box) for d in away]
        square = sum(d * d for d in away)
        near = (square < cut * cut) & (wd.index(N) != wd.index(M))
        inverse = wd.where(near, 1 / square, 0.0)
        six = inverse * inverse * inverse
        push = 24 * inverse * six * (2 * six - 1)
        new = [f + wd.sum(push * d, dim=M) for f, d in zip((x, y, z), away, strict=True)]
        return *new, e + wd.sum(4 * six * (six - 1), dim=M)

    for i in range(3):
        wd.write(total[i], force[:, i])
    wd.atomic_add(wd.sum(wd.cast(total[3], F64), dim=N) / 2, energy[0])


def attracted_case(n: int) -> Case:
    side = math.ceil(n ** (1 / 3))
    grid = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)[:n]
    at = (grid * 1.2 + normal(n, 3, scale=0.05)).astype(np.float32)
    box, cut = np.float32(side * 1.2), np.float32(1.9)
    away = wide(at)[:, None] - wide(at)
    away -= box * np.round(away / box)
    square = (away**2).sum(2) + np.eye(n)
    inverse = np.where((square < cut**2) & ~np.eye(n, dtype=bool), 1 / square, 0)
    six = inverse**3
    force = (away * (24 * inverse * six * (2 * six - 1))[..., None]).sum(1)
    energy = (4 * six * (six - 1)).sum() / 2
    arguments = [at, at.copy(), box, cut, np.zeros((n, 3), np.float32), np.zeros(1)]
    return Case(arguments, {4: force, 5: np.array([energy])}, {D: 3, E: 3}, 3e-3, (N, M))


@wd.wave([wd.WorkgroupConstraint(Y, 8, 0), wd.WorkgroupConstraint(X, 64, 1)])
def leapfrog(
    ez: wd.Memory[Y, X, F32], hx: wd.Memory[Y, X, F32], hy: wd.Memory[Y, X, F32], eps: wd.Memory[Y, X, F32],
    next_ez: wd.Memory[Y, X, F32], next_hx: wd.Memory[Y, X, F32], next_hy: wd.Memory[Y, X, F32],
    step: wd.Scalar[F32], pulse: wd.Scalar[F32], py: wd.Scalar[I32], px: wd.Scalar[I32],
):  # fmt: skip
    """Maxwell's equations on Yee's grid: magnetic fields first, then the electric one from what they have become."""
    y, x = wd.index(Y), wd.index(X)

    def h(dy, dx):
        e = wd.read(ez[y + dy, x + dx])
        new_x = wd.read(hx[y + dy, x + dx]) - step * (wd.read(ez[y + dy + 1, x + dx]) - e)
        new_y = wd.read(hy[y + dy, x + dx]) + step * (wd.read(ez[y + dy, x + dx + 1]) - e)
        inside = (y + dy >= 0) & (x + dx >= 0)
        return wd.where(inside, new_x, 0.0), wd.where(inside, new_y, 0.0)

    (here_x, here_y), (up, _), (_, left) = h(0, 0), h(-1, 0), h(0, -1)
    e = wd.read(ez) + step / wd.read(eps) * ((here_y - left) - (here_x - up))
    e = wd.where((y == 0) | (x == 0) | (y == Y - 1) | (x == X - 1), 0.0, e)
    wd.write(e + wd.where((y == py) & (x == px), pulse, 0.0), next_ez)
    wd.write(here_x, next_hx)
    wd.write(here_y, next_hy)


def leapfrog_case(y: int, x: int) -> Case:
    ez, hx, hy = normal(3, y, x)
    eps = 1 + np.random.default_rng(1).random((y, x)).astype(np.float32)
    more = np.pad(wide(ez), ((0, 1), (0, 1)))
    new_x, new_y = hx - 0.5 * (more[1:, :-1] - ez), hy + 0.5 * (more[:-1, 1:] - ez)
    up, left = np.pad(new_x, ((1, 0), (0, 0)))[:-1], np.pad(new_y, ((0, 0), (1, 0)))[:, :-1]
    e = ez + 0.5 / eps * ((new_y - left) - (new_x - up))
    e[[0, -1]] = e[:, [0, -1]] = 0
    e[3, 5] += 0.7
    numbers = [np.float32(0.5), np.float32(0.7), np.int32(3), np.int32(5)]
    outputs = [np.zeros_like(ez) for _ in range(3)]
    return Case([ez, hx, hy, eps, *outputs, *numbers], {4: e, 5: new_x, 6: new_y}, {}, 1e-5, (Y, X))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def deposited(at: wd.Memory[N, 2, F32], charge: wd.Memory[N, F32], grid: wd.Memory[Y, X, F32]):
    """Particles in cells: quadratic shares for 3 x 3 places of a torus."""
    q = wd.read(charge)
    places, shares = [], []
    for i, size in enumerate((Y, X)):
        p = wd.read(at[:, i])
        middle = wd.floor(p + 0.5)
        d = p - middle
        shares.append([0.5 * (0.5 - d) ** 2, 0.75 - d * d, 0.5 * (0.5 + d) ** 2])
        places.append([(wd.cast(middle, I32) + j) % size for j in (-1, 0, 1)])
    for y, share_y in zip(places[0], shares[0], strict=True):
        for x, share_x in zip(places[1], shares[1], strict=True):
            wd.atomic_add(q * share_y * share_x, grid[y, x])


def deposited_case(n: int, y: int, x: int) -> Case:
    at = (np.random.default_rng(0).random((n, 2)) * [y, x]).astype(np.float32)
    charge, grid = whole(n, dtype=np.float32), np.zeros((y, x))
    for p, q in zip(wide(at), charge):
        middle = np.floor(p + 0.5)
        d = p - middle
        s = np.stack([0.5 * (0.5 - d) ** 2, 0.75 - d * d, 0.5 * (0.5 + d) ** 2])
        for i in range(3):
            for j in range(3):
                grid[int(middle[0] + i - 1) % y, int(middle[1] + j - 1) % x] += q * s[i, 0] * s[j, 1]
    return Case([at, charge, np.zeros((y, x), np.float32)], {2: grid}, {}, 1e-4, (N,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)])
def relaxed(u: wd.Memory[B, Y, X, F32], f: wd.Memory[Y, X, F32], omega: wd.Scalar[F32], rest: wd.Memory[B, F32]):
    """Poisson's equation: some sweeps over red places, then black ones, all in registers; the borders stay."""
    y, x = wd.index(Y), wd.index(X)
    inner = (y > 0) & (x > 0) & (y < Y - 1) & (x < X - 1)
    source = wd.read(f)

    def around(now):
        rows = wd.shuffle(now, y - 1, dim=Y) + wd.shuffle(now, y + 1, dim=Y)
        return rows + wd.shuffle(now, x - 1, dim=X) + wd.shuffle(now, x + 1, dim=X)

    @wd.iterate(T, init_args=[wd.read(u)])
    def sweeps(now):
        for colour in (0, 1):
            new = now + omega * ((around(now) - source) / 4 - now)
            now = wd.where(inner & ((x + y) % 2 == colour), new, now)
        return now

    wd.write(sweeps, u)
    off = wd.where(inner, around(sweeps) - 4 * sweeps - source, 0.0)
    wd.write(wd.sqrt(wd.sum(off * off, dim=(Y, X))), rest)


def relaxed_case(b: int, y: int, x: int, t: int) -> Case:
    u, f = normal(b, y, x), normal(y, x, seed=1)
    now = wide(u)
    j, i = np.mgrid[:y, :x]
    inner = (j > 0) & (i > 0) & (j < y - 1) & (i < x - 1)

    def around(n):
        return np.roll(n, 1, 1) + np.roll(n, -1, 1) + np.roll(n, 1, 2) + np.roll(n, -1, 2)

    for _ in range(t):
        for colour in (0, 1):
            now = np.where(inner & ((i + j) % 2 == colour), now + 1.5 * ((around(now) - f) / 4 - now), now)
    off = np.where(inner, around(now) - 4 * now - f, 0)
    arguments = [u, f, np.float32(1.5), np.zeros(b, np.float32)]
    return Case(arguments, {0: now, 3: np.sqrt((off**2).sum((1, 2)))}, {T: t}, 1e-3, (B,))


# ---- filters


@wd.wave([wd.WorkgroupConstraint(B, 4, 0)])
def biquads(x: wd.Memory[B, T, F32], taps: wd.Memory[S, 5, F32], y: wd.Memory[B, T, F32]):
    """Four sections of second order, one behind the other; each one's state is a pair, its steps 2 x 2 matrices that a
    scan multiplies."""
    def behind(m, n):
        a, b, c, d, p, q = m
        e, f, g, h, r, s = n
        return (e * a + f * c, e * b + f * d, g * a + h * c, g * b + h * d,
                e * p + f * q + r, g * p + h * q + s)  # fmt: skip

    values = wd.read(x)
    for i in range(4):
        b0, b1, b2, a1, a2 = (wd.read(taps[i, j]) for j in range(5))
        one = values * 0 + 1
        steps = (-a1 * one, one, -a2 * one, one * 0, (b1 - a1 * b0) * values, (b2 - a2 * b0) * values)
        *_, now, _ = wd.scan(steps, behind, (1.0, 0.0, 0.0, 1.0, 0.0, 0.0), dim=T)
        values = b0 * values + wd.shuffle(now, wd.index(T) - 1, dim=T)
    wd.write(values, y)


def biquads_case(b: int, t: int) -> Case:
    x = normal(b, t)
    taps = np.array([[1, 0.5, 0.25, -0.4, 0.3], [0.5, -0.2, 0.1, 0.2, 0.1], [1, 1, 0.5, -0.9, 0.5],
                     [0.7, 0, 0.2, 0.1, -0.2]], np.float32)  # fmt: skip
    values = wide(x)
    for b0, b1, b2, a1, a2 in wide(taps):
        out, p, q = np.zeros_like(values), np.zeros(b), np.zeros(b)
        for i in range(t):
            out[:, i] = b0 * values[:, i] + p
            p, q = b1 * values[:, i] - a1 * out[:, i] + q, b2 * values[:, i] - a2 * out[:, i]
        values = out
    return Case([x, taps, np.zeros_like(x)], {2: values}, {S: 4}, 1e-3, (B,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(F, 16, 0), wd.TilingConstraint(N, 32)],
         subs={K: 48})  # fmt: skip
def mel_levels(
    x: wd.Memory[B, T, F32], window: wd.Memory[N, F32], bank: wd.Memory[M, K, F32], level: wd.Memory[B, F, M, F32],
    hop: wd.Scalar[I32],
):  # fmt: skip
    """Frames of a signal that is mirrored at its ends, a window, the power of 48 frequencies, bands, decibels."""
    zero = wd.Register[F, K, F32](0.0)

    @wd.iterate(N, init_args=[zero, zero])
    def spectrum(re, im):
        at = wd.index(F) * hop + wd.index(N) - N // 2
        at = wd.abs(at)
        at = wd.where(at >= T, 2 * T - 2 - at, at)
        frame = wd.read(x[:, at]) * wd.read(window)
        turn = wd.cast(wd.index(N) * wd.index(K) % N, F32) * (2 * math.pi / N)
        real = wd.mma(frame, wd.cos(turn), re, precision="3xtf32")
        return real, wd.mma(frame, wd.sin(turn), im, precision="3xtf32")

    re, im = spectrum
    power = re * re + im * im
    bands = wd.mma(power, wd.read(bank), wd.Register[F, M, F32](0.0), precision="3xtf32")
    wd.write(10 * wd.log10(wd.maximum(bands, 1e-10)), level)


def mel_case(b: int, t: int, n: int, m: int) -> Case:
    x, hop = normal(b, t), n // 3
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / n)).astype(np.float32)
    bank = np.random.default_rng(1).random((m, 48)).astype(np.float32)
    padded = np.pad(wide(x), ((0, 0), (n // 2, n // 2)), mode="reflect")
    frames = t // hop + 1
    cut = np.stack([padded[:, i * hop : i * hop + n] for i in range(frames) if i * hop + n <= padded.shape[1]], 1)
    turn = 2 * np.pi / n * np.outer(np.arange(n), np.arange(48))
    power = (cut * window @ np.cos(turn)) ** 2 + (cut * window @ np.sin(turn)) ** 2
    want = 10 * np.log10(np.maximum(power @ wide(bank).T, 1e-10))
    return Case([x, window, bank, np.zeros(want.shape, np.float32), np.int32(hop)], {3: want}, {}, 3e-3, (B, T))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def wavelets(x: wd.Memory[B, 8 * N, I32], y: wd.Memory[B, 8 * N, I32]):
    """JPEG 2000's whole numbers by lifting, three levels: means in front, differences behind, coarsest first."""
    even, odd = wd.read(x[:, ::2]), wd.read(x[:, 1::2])  # 4 N each
    for level in range(3):
        half = 4 * N // 2**level
        i, name = wd.index(half), half
        right = wd.shuffle(even, wd.minimum(i + 1, half - 1), dim=name)
        odd = odd - (even + right) // 2
        left = wd.shuffle(odd, wd.maximum(i - 1, 0), dim=name)
        even = even + (left + odd + 2) // 4
        wd.write(odd, y[:, half : 2 * half])
        if level < 2:
            low = even
            even, odd = (wd.extract(low, {name: (half / 2, start, 2)}) for start in (0, 1))
    wd.write(even, y[:, :N])


def wavelets_case(b: int, n: int) -> Case:
    x = np.random.default_rng(0).integers(-100, 100, (b, 8 * n)).astype(np.int32)
    even, parts = x, []
    for _ in range(3):
        even, odd = even[:, ::2], even[:, 1::2]
        odd = odd - (even + np.concatenate([even[:, 1:], even[:, -1:]], 1)) // 2
        even = even + (np.concatenate([odd[:, :1], odd[:, :-1]], 1) + odd + 2) // 4
        parts.append(odd)
    want = np.concatenate([even, *parts[::-1]], 1)
    return Case([x, np.zeros_like(x)], {1: want}, dynamic=(B,))


# ---- prices


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(T, 1)])
def early_exercise(
    spot: wd.Memory[B, F32], strike: wd.Memory[B, F32], up: wd.Scalar[F32], chance: wd.Scalar[F32],
    keep: wd.Scalar[F32], price: wd.Memory[B, F32],
):  # fmt: skip
    """An American put on a tree of N - 1 steps, from its leaves to its root."""
    n, s, k = wd.index(N), wd.read(spot), wd.read(strike)

    def leaf(level):
        return wd.maximum(k - s * wd.exp(wd.cast(2 * n - level, F32) * wd.log(up)), 0.0)

    @wd.iterate(T, init_args=[leaf(N - 1)])
    def levels(value):
        level = N - 2 - wd.tile_start(T)
        later = keep * (chance * wd.shuffle(value, n + 1, dim=N) + (1 - chance) * value)
        return wd.where(n <= level, wd.maximum(later, leaf(level)), 0.0)

    wd.write(wd.extract(levels, {N: 0}), price)


def exercise_case(b: int, n: int) -> Case:
    rng = np.random.default_rng(0)
    spot, strike = (rng.random(b) * 20 + 90).astype(np.float32), np.full(b, 100, np.float32)
    up, keep = np.float32(1.03), np.float32(0.999)
    chance = np.float32((1 / keep - 1 / up) / (up - 1 / up))
    i = np.arange(n)

    def leaf(level):
        return np.maximum(strike[:, None] - spot[:, None] * wide(up) ** (2 * i - level), 0)

    value = leaf(n - 1)
    for level in range(n - 2, -1, -1):
        later = keep * (chance * np.roll(value, -1, 1) + (1 - chance) * value)
        value = np.maximum(later, leaf(level))
    return Case([spot, strike, up, chance, keep, np.zeros(b, np.float32)], {5: value[:, 0]}, {N: n, T: n - 1}, 1e-3,
                (B,))  # fmt: skip


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def implied(
    price: wd.Memory[N, F64], spot: wd.Memory[N, F64], strike: wd.Memory[N, F64], years: wd.Memory[N, F64],
    vol: wd.Memory[N, F64], steps: wd.Memory[N, I32],
):  # fmt: skip
    """The volatility that explains a call's price: Newton's steps until they are small, each option as many as it
    takes."""
    s, k, t, p = (wd.read(m) for m in (spot, strike, years, price))
    root = wd.sqrt(t)

    def value(sigma):
        d1 = (wd.log(s / k) + 0.5 * sigma * sigma * t) / (sigma * root)
        cdf = [0.5 * (1 + wd.erf(d / math.sqrt(2))) for d in (d1, d1 - sigma * root)]
        return s * cdf[0] - k * cdf[1], s * root * wd.exp(-0.5 * d1 * d1) / math.sqrt(2 * math.pi)

    def wrong(sigma, change, n):
        return (wd.abs(change) > 1e-10) & (n < 50)

    def newton(sigma, change, n):
        v, vega = value(sigma)
        change = (v - p) / wd.maximum(vega, 1e-8)
        return wd.maximum(sigma - change, 1e-4), change, n + 1

    start = [wd.Register[N, F64](0.3), wd.Register[N, F64](1.0), wd.Register[N, I32](0)]
    sigma, _, n = wd.while_loop(wrong, newton, start)
    wd.write(sigma, vol)
    wd.write(wd.cast(n < 50, I32), steps)


def implied_case(n: int) -> Case:
    rng = np.random.default_rng(0)
    spot, strike, years = rng.random(n) * 20 + 90, rng.random(n) * 20 + 90, rng.random(n) + 0.5
    vol = rng.random(n) * 0.4 + 0.1
    d1 = (np.log(spot / strike) + 0.5 * vol**2 * years) / (vol * np.sqrt(years))
    cdf = [0.5 * (1 + np.vectorize(math.erf)(d / math.sqrt(2))) for d in (d1, d1 - vol * np.sqrt(years))]
    arguments = [spot * cdf[0] - strike * cdf[1], spot, strike, years, np.zeros(n), np.zeros(n, np.int32)]
    return Case(arguments, {4: vol, 5: np.ones(n)}, {}, 1e-7, (N,))


# ---- pictures


@wd.wave([wd.WorkgroupConstraint(Y, 4, 0), wd.WorkgroupConstraint(X, 64, 1)])
def colours(raw: wd.Memory[Y, X, wd.u16], gain: wd.Memory[3, F32], matrix: wd.Memory[C, 3, F32],
            out: wd.Memory[Y, X, C, U8]):  # fmt: skip
    """A Bayer picture (RGGB) by bilinear sums of neighbours that are mirrored at the edges; white balance, colours."""
    y, x = wd.index(Y), wd.index(X)

    def at(dy, dx):
        row, column = wd.abs(y + dy), wd.abs(x + dx)
        row = wd.where(row >= Y, 2 * Y - 2 - row, row)
        column = wd.where(column >= X, 2 * X - 2 - column, column)
        return wd.cast(wd.read(raw[row, column]), F32)

    here, cross = at(0, 0), (at(0, -1) + at(0, 1) + at(-1, 0) + at(1, 0)) / 4
    corners = (at(-1, -1) + at(-1, 1) + at(1, -1) + at(1, 1)) / 4
    across, along = (at(0, -1) + at(0, 1)) / 2, (at(-1, 0) + at(1, 0)) / 2
    even_row, even_column = y % 2 == 0, x % 2 == 0
    red = wd.where(even_row, wd.where(even_column, here, across), wd.where(even_column, along, corners))
    green = wd.where(even_row == even_column, cross, here)
    blue = wd.where(even_row, wd.where(even_column, corners, along), wd.where(even_column, across, here))
    mixed = wd.Register[C, F32](0.0)
    for i, plane in enumerate((red, green, blue)):
        mixed = mixed + plane * wd.read(gain[i]) * wd.read(matrix[:, i])
    wd.write(wd.cast(wd.clamp(wd.round(mixed), 0, 255), U8), out)


def colours_case(y: int, x: int) -> Case:
    raw = np.random.default_rng(0).integers(0, 200, (y, x)).astype(np.uint16)
    gain, matrix = np.array([1.5, 1, 1.25], np.float32), np.array([[1, -0.25, 0], [-0.125, 1, 0], [0, -0.5, 1.5]], "f4")
    p = np.pad(wide(raw.astype(float)), 1, mode="reflect")

    def at(dy, dx):
        return p[1 + dy : 1 + dy + y, 1 + dx : 1 + dx + x]

    here, cross = at(0, 0), (at(0, -1) + at(0, 1) + at(-1, 0) + at(1, 0)) / 4
    corners = (at(-1, -1) + at(-1, 1) + at(1, -1) + at(1, 1)) / 4
    across, along = (at(0, -1) + at(0, 1)) / 2, (at(-1, 0) + at(1, 0)) / 2
    j, i = np.mgrid[:y, :x] % 2
    red = np.where(j == 0, np.where(i == 0, here, across), np.where(i == 0, along, corners))
    green = np.where(j == i, cross, here)
    blue = np.where(j == 0, np.where(i == 0, corners, along), np.where(i == 0, across, here))
    mixed = np.stack([red, green, blue], -1) * gain @ matrix.T
    return Case([raw, gain, matrix, np.zeros((y, x, 3), np.uint8)], {3: np.clip(np.round(mixed), 0, 255)},
                dynamic=(Y, X))  # fmt: skip


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)], subs={K: 256})
def threshold(image: wd.Memory[B, Y, X, U8], counts: wd.Memory[B, K, I32], out: wd.Memory[B, Y, X, U8],
              best: wd.Memory[B, I32]):  # fmt: skip
    """Otsu: what divides a picture's levels into two that differ most."""
    pixels = wd.cast(wd.read(image), I32)
    wd.atomic_add(1, counts[:, pixels])
    n = wd.cast(wd.read(counts), F32)
    level = wd.cast(wd.index(K), F32)
    low, total = wd.cumsum(n, dim=K), wd.sum(n, dim=K)
    sums, all_sums = wd.cumsum(n * level, dim=K), wd.sum(n * level, dim=K)
    high = total - low
    apart = sums / low - (all_sums - sums) / high
    between = wd.where((low > 0) & (high > 0), low * high * apart * apart, -1.0)
    at = wd.argmax(between, dim=K)
    wd.write(at, best)
    wd.write(wd.cast(wd.where(pixels > at, 255, 0), U8), out)


def threshold_case(b: int, y: int, x: int) -> Case:
    rng = np.random.default_rng(0)
    dark = rng.random((b, y, x)) < 0.4
    image = np.where(dark, rng.normal(60, 15, dark.shape), rng.normal(170, 20, dark.shape))
    image = image.clip(0, 255).astype(np.uint8)
    counts = np.stack([np.bincount(i.ravel(), minlength=256) for i in image])
    low, sums = counts.cumsum(1), (counts * np.arange(256)).cumsum(1)
    high = low[:, -1:] - low
    with np.errstate(all="ignore"):
        apart = sums / low - (sums[:, -1:] - sums) / high
        between = np.where((low > 0) & (high > 0), low * high * apart**2, -1.0)
    best = between.argmax(1)
    want = {1: counts, 2: np.where(image > best[:, None, None], 255, 0), 3: best}
    return Case([image, np.zeros((b, 256), np.int32), np.zeros_like(image), np.zeros(b, np.int32)], want, dynamic=(B,))


# ---- rows in order


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(N, 128, 0)])
def merged(x: wd.Memory[B, M, I32], y: wd.Memory[B, K, I32], out: wd.Memory[B, N, I32], source: wd.Memory[B, N, I32]):
    """Two sorted rows as one, equal ones of the first in front: each place halves the diagonal that it lies on."""
    n = wd.index(N)
    low, high = wd.maximum(n - K, 0), wd.minimum(n, wd.Register[N, I32](0) + M)

    def open_still(low, high):
        return low < high

    def halve(low, high):
        middle = (low + high) // 2
        first = wd.read(x[:, middle]) <= wd.read(y[:, n - 1 - middle])
        return wd.where(first, middle + 1, low), wd.where(first, high, middle)

    at, _ = wd.while_loop(open_still, halve, [low, high])
    other = n - at
    a, b = wd.read(x[:, at]), wd.read(y[:, other])
    first = (at < M) & ((other >= K) | (a <= b))
    wd.write(wd.where(first, a, b), out)
    wd.write(wd.where(first, at, -1 - other), source)


def merged_case(b: int, m: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    x, y = (np.sort(rng.integers(0, 60, (b, n)), 1).astype(np.int32) for n in (m, k))
    both = np.concatenate([x, y], 1)
    names = np.broadcast_to(np.concatenate([np.arange(m), -1 - np.arange(k)]), both.shape)
    order = np.argsort(both, 1, kind="stable")
    want = [np.take_along_axis(a, order, 1) for a in (both, names)]
    outputs = [np.zeros((b, m + k), np.int32) for _ in range(2)]
    return Case([x, y, *outputs], {2: want[0], 3: want[1]}, dynamic=(B, N))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def between(x: wd.Memory[N, F32], knots: wd.Memory[B, F32], values: wd.Memory[B, F32], y: wd.Memory[N, F32]):
    """`numpy.interp`: a search for the knots on both sides, constant beyond the first and the last."""
    p = wd.read(x)
    right = wd.sum(wd.cast(wd.read(knots) <= p, I32), dim=B)
    low, high = wd.clamp(right - 1, 0, B - 1), wd.clamp(right, 0, B - 1)
    x0, x1 = wd.read(knots[low]), wd.read(knots[high])
    y0, y1 = wd.read(values[low]), wd.read(values[high])
    t = wd.where(x1 > x0, (p - x0) / (x1 - x0), 0.0)
    wd.write(y0 + wd.clamp(t, 0.0, 1.0) * (y1 - y0), y)


def between_case(n: int, b: int) -> Case:
    x, knots, values = normal(n), np.sort(normal(b, seed=1)), normal(b, seed=2)
    want = np.interp(wide(x), wide(knots), wide(values))
    return Case([x, knots, values, np.zeros_like(x)], {3: want}, {}, 1e-4, (N,))


@wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
def distinct(keys: wd.Memory[N, U32], registers: wd.Memory[R, I32], sketch: wd.Memory[D, W, I32]):
    """HyperLogLog's registers and a count-min sketch of four rows, by Murmur's mixing."""
    k = wd.read(keys)

    def mixed(h):
        h = (h ^ (h >> 16)) * 0x85EBCA6B
        h = (h ^ (h >> 13)) * 0xC2B2AE35
        return h ^ (h >> 16)

    h = mixed(k)
    wd.atomic_max(wd.clz(h << 6 | 32) + 1, registers[wd.cast(h >> 26, I32)])
    for i in range(4):
        wd.atomic_add(1, sketch[i, wd.cast(mixed(k ^ (i * 0x9E3779B9 & 0xFFFFFFFF)) % W, I32)])


def distinct_case(n: int, w: int) -> Case:
    keys = np.random.default_rng(0).integers(0, 2**32, n).astype(np.uint32)

    def mixed(h):
        h = (h ^ h >> 16) * np.uint32(0x85EBCA6B)
        h = (h ^ h >> 13) * np.uint32(0xC2B2AE35)
        return h ^ h >> 16

    h = mixed(keys)
    registers, sketch = np.zeros(64, np.int32), np.zeros((4, w), np.int32)
    for x in h:
        rest = int(x) << 6 & 0xFFFFFFFF | 32
        registers[x >> 26] = max(registers[x >> 26], 33 - rest.bit_length())
    for i in range(4):
        np.add.at(sketch[i], mixed(keys ^ np.uint32(i * 0x9E3779B9 & 0xFFFFFFFF)) % w, 1)
    return Case([keys, np.zeros_like(registers), np.zeros_like(sketch)], {1: registers, 2: sketch}, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def words_counted(text: wd.Memory[L, U8], count: wd.Memory[V, I32], first: wd.Memory[N, I64], span: wd.Scalar[I32]):
    """Words of five of a genome's letters, two bits each, the smaller of a word and its reverse complement; N and what
    is no letter is in no word. The least word of each `span` places is kept."""
    n = wd.index(N)

    def word(place):
        forward, back = wd.Register[N, I32](0), wd.Register[N, I32](0)
        fine = place >= 0
        for i in range(5):
            c = wd.cast(wd.read(text[place + i]), I32) & 0xDF
            code = wd.where(c == ord("A"), 0, wd.where(c == ord("C"), 1, wd.where(c == ord("G"), 2, 3)))
            fine &= (c == ord("A")) | (c == ord("C")) | (c == ord("G")) | (c == ord("T"))
            forward, back = forward << 2 | code, back | (3 - code) << (2 * i)
        return wd.where(fine, wd.minimum(forward, back), -1)

    mine = word(n)
    wd.atomic_add(1, count[mine])

    def step(i, best):
        w = word(n + i)
        h = wd.where(w < 0, 1 << 40, wd.cast(w, I64) * 2654435761 % 4294967296 * 1024 + wd.cast(w, I64))
        return i + 1, wd.minimum(best, h)

    start = [wd.Register[I32](0), wd.Register[N, I64](2**62)]
    _, best = wd.while_loop(lambda i, best: i < span, step, start)
    wd.write(best, first)


def words_case(n: int) -> Case:
    letters = np.frombuffer(b"ACGTacgtN", np.uint8)
    text = letters[np.random.default_rng(0).choice(9, n + 4, p=[0.22] * 4 + [0.025] * 4 + [0.02])]
    code = np.full(256, -1)
    for i, c in enumerate("ACGT"):
        code[ord(c)] = code[ord(c.lower())] = i
    digits = code[text]
    words = np.full(n + 8, -1)
    for i in range(n):
        five = digits[i : i + 5]
        if (five >= 0).all():
            words[i] = min(int((five * 4 ** np.arange(4, -1, -1)).sum()), int(((3 - five) * 4 ** np.arange(5)).sum()))
    count = np.bincount(words[:n][words[:n] >= 0], minlength=1024)
    h = np.where(words < 0, 1 << 40, words * 2654435761 % 4294967296 * 1024 + words)
    want = np.stack([h[i : n + i] for i in range(4)]).min(0)
    return Case([text, np.zeros(1024, np.int32), np.zeros(n, np.int64), np.int32(4)], {1: count, 2: want}, dynamic=(N,))


# ---- geometry


@wd.wave([wd.WorkgroupConstraint(N, 64, 0), wd.TilingConstraint(T, 32)])
def struck(
    origin: wd.Memory[N, 3, F32], ray: wd.Memory[N, 3, F32], a: wd.Memory[T, 3, F32], b: wd.Memory[T, 3, F32],
    c: wd.Memory[T, 3, F32], depth: wd.Memory[N, F32], which: wd.Memory[N, I32],
):  # fmt: skip
    """Möller and Trumbore's triangles: the nearest that a ray meets."""
    def vector(m):
        return [wd.read(m[:, i]) for i in range(3)]

    def cross(x, y):
        return [x[(i + 1) % 3] * y[(i + 2) % 3] - x[(i + 2) % 3] * y[(i + 1) % 3] for i in range(3)]

    def dot(x, y):
        return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]

    def less(x, y):
        return [p - q for p, q in zip(x, y, strict=True)]

    o, d = vector(origin), vector(ray)

    @wd.iterate(T, init_args=[wd.Register[N, F32](math.inf), wd.Register[N, I32](-1)])
    def nearest(best, at):
        corner = vector(a)
        e1, e2 = less(vector(b), corner), less(vector(c), corner)
        h, s = cross(d, e2), less(o, corner)
        det = dot(e1, h)
        q = cross(s, e1)
        u, v, t = dot(s, h) / det, dot(d, q) / det, dot(e2, q) / det
        hit = (wd.abs(det) > 1e-8) & (u >= 0) & (v >= 0) & (u + v <= 1) & (t > 1e-4)
        t = wd.where(hit, t, math.inf)
        here = wd.min(t, dim=T)
        return wd.minimum(best, here), wd.where(here < best, wd.argmin(t, dim=T), at)

    wd.write(nearest[0], depth)
    wd.write(nearest[1], which)


def struck_case(n: int, t: int) -> Case:
    a = normal(t, 3) * 2 + np.array([0, 0, 6], np.float32)
    b, c = a + normal(t, 3, seed=1), a + normal(t, 3, seed=2)
    origin, ray = normal(n, 3, seed=3, scale=0.2), np.stack([*normal(2, n, seed=4, scale=0.2), np.ones(n, "f4")], 1)
    e1, e2 = wide(b) - a, wide(c) - a
    h, s = np.cross(wide(ray)[:, None], e2), wide(origin)[:, None] - a
    det, q = (e1 * h).sum(2), np.cross(s, e1)
    u, v, far = (s * h).sum(2) / det, (wide(ray)[:, None] * q).sum(2) / det, (e2 * q).sum(2) / det
    hit = (np.abs(det) > 1e-8) & (u >= 0) & (v >= 0) & (u + v <= 1) & (far > 1e-4)
    far = np.where(hit, far, np.inf)
    which = np.where(hit.any(1), far.argmin(1), -1)
    arguments = [origin, ray, a, b, c, np.zeros(n, np.float32), np.zeros(n, np.int32)]
    return Case(arguments, {5: far.min(1), 6: which}, {}, 1e-3, (N, T))


@wd.wave([wd.WorkgroupConstraint(P, 64, 0)])
def voxels(
    point: wd.Memory[P, 3, F32], feature: wd.Memory[P, C, F32], low: wd.Memory[3, F32], size: wd.Scalar[F32],
    total: wd.Memory[Z, Y, X, C, F32], count: wd.Memory[Z, Y, X, I32], at: wd.Memory[P, I32],
):  # fmt: skip
    """Points' features summed by cell; points outside of the box are in none."""
    x, y, z = (wd.cast(wd.floor((wd.read(point[:, i]) - wd.read(low[i])) / size), I32) for i in range(3))
    inside = (x >= 0) & (x < X) & (y >= 0) & (y < Y) & (z >= 0) & (z < Z)
    z = wd.where(inside, z, -1)
    wd.atomic_add(wd.read(feature), total[z, y, x, :])
    wd.atomic_add(1, count[z, y, x])
    wd.write(wd.where(inside, (z * Y + y) * X + x, -1), at)


def voxels_case(p: int, c: int) -> Case:
    point, feature = normal(p, 3), whole(p, c, dtype=np.float32)
    low, size, shape = np.array([-1, -1.5, -1], np.float32), np.float32(0.5), (5, 6, 4)
    cell = np.floor((point - low) / size).astype(int)
    inside = ((cell >= 0) & (cell < shape[::-1])).all(1)
    x, y, z = cell[inside].T
    total, count, at = np.zeros((*shape, c)), np.zeros(shape, int), np.full(p, -1)
    np.add.at(total, (z, y, x), feature[inside])
    np.add.at(count, (z, y, x), 1)
    at[inside] = (z * 6 + y) * 4 + x
    outputs = [np.zeros(total.shape, np.float32), np.zeros(shape, np.int32), np.zeros(p, np.int32)]
    return Case([point, feature, low, size, *outputs], {4: total, 5: count, 6: at}, dynamic=(P,))


KERNELS = {
    "between": (between, between_case, ((64, 16), (101, 21))),
    "attracted": (attracted, attracted_case, ((64,), (101,))),
    "leapfrog": (leapfrog, leapfrog_case, ((8, 64), (21, 75))),
    "deposited": (deposited, deposited_case, ((64, 8, 8), (101, 5, 7))),
    "relaxed": (relaxed, relaxed_case, ((1, 16, 16, 3), (2, 11, 21, 4))),
    "biquads": (biquads, biquads_case, ((6, 45),)),
    "mel-levels": (mel_levels, mel_case, ((2, 500, 96, 13),)),
    "wavelets": (wavelets, wavelets_case, ((2, 8), (3, 13))),
    "early-exercise": (early_exercise, exercise_case, ((2, 32), (3, 77))),
    "implied": (implied, implied_case, ((64,), (101,))),
    "colours": (colours, colours_case, ((4, 64), (9, 75))),
    "threshold": (threshold, threshold_case, ((1, 16, 16), (2, 21, 33))),
    "merged": (merged, merged_case, ((1, 64, 64), (3, 100, 45))),
    "distinct": (distinct, distinct_case, ((256, 64), (1001, 77))),
    "words-counted": (words_counted, words_case, ((64,), (301,))),
    "struck": (struck, struck_case, ((75, 101),)),
    "voxels": (voxels, voxels_case, ((64, 16), (101, 5))),
}


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)
