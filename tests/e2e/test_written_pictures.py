"""Convolutions in three dimensions and backwards, pools, rays, splats, flows and windows of pictures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from families import Case, both_tests, normal, on_chip, whole, wide

import wavedsl as wd

B, C, D, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, W, X, Y, Z = wd.symbols(
    "B C D F G H I J K L M N O P Q R S T W X Y Z"
)
F16, F32, I32, U8 = wd.f16, wd.f32, wd.i32, wd.u8


# ---- convolutions: of volumes, with gaps; the transposed one; the gradient of filters that each channel has of its own


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(Z, 1, 1), wd.WorkgroupConstraint(Y, 1, 1),
          wd.WorkgroupConstraint(X, 32, 0), wd.WorkgroupConstraint(F, 32, 0), wd.TilingConstraint(C, 16)])  # fmt: skip
def volumes(
    x: wd.Memory[B, P, Q, R, C, F16], w: wd.Memory[F, I, J, K, C, F16], bias: wd.Memory[F, F32],
    y: wd.Memory[B, F, Z, Y, X, F16],
):  # fmt: skip
    """3 x 3 x 3, every second place of the filter left out along the depth, results channel by channel."""

    @wd.iterate(C, init_args=[wd.Register[X, F, F32](0.0)])
    def total(acc):
        for i in range(3):
            for j in range(3):
                for k in range(3):
                    there = {B: B, P: Z + 2 * i - 2, Q: 2 * Y + j - 1, R: X + k - 1, C: C}
                    acc = wd.mma(wd.read(x, mapping=wd.IndexMapping((X, C), there)), wd.read(w[:, i, j, k, :]), acc)
        return acc

    z = total + wd.read(bias)
    wd.write(wd.cast(z * wd.sigmoid(z), F16), y)


def volumes_case(b: int, z: int, y: int, x: int, c: int, f: int) -> Case:
    w = normal(f, 3, 3, 3, c, seed=1, scale=0.1, dtype=np.float16)
    data, bias = whole(b, z, 2 * y, x, c), normal(f, seed=2)
    padded = np.pad(wide(data), ((0, 0), (2, 2), (1, 1), (1, 1), (0, 0)))
    want = np.zeros((b, z, y, x, f)) + bias
    for i in range(3):
        for j in range(3):
            for k in range(3):
                part = padded[:, 2 * i : 2 * i + z, j : j + 2 * y : 2, k : k + x]
                want += part @ wide(w)[:, i, j, k].T
    want = np.moveaxis(want / (1 + np.exp(-want)), -1, 1)
    return Case([data, w, bias, np.zeros(want.shape, np.float16)], {3: want}, {I: 3, J: 3, K: 3}, 4e-3, (B, Z))


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(Y, 1, 1), wd.WorkgroupConstraint(X, 32, 0),
          wd.WorkgroupConstraint(F, 16, 0), wd.TilingConstraint(C, 16)])  # fmt: skip
def transposed(x: wd.Memory[B, P, Q, C, F16], w: wd.Memory[I, J, F, C, F16], y: wd.Memory[B, Y, X, F, F16]):
    """4 x 4 with steps of 2: of each result the filter's places of one parity, which the row and the column say."""

    @wd.iterate(C, init_args=[wd.Register[X, F, F32](0.0)])
    def total(acc):
        for i in range(4):
            for j in range(4):
                row, column = wd.index(Y) + 1 - i, wd.index(X) + 1 - j
                fits = (row % 2 == 0) & (column % 2 == 0)
                row, column = wd.where(fits, row // 2, -1), wd.where(fits, column // 2, -1)
                there = wd.IndexMapping((X, C), {B: B, P: row, Q: column, C: C})
                acc = wd.mma(wd.read(x, mapping=there), wd.read(w[i, j, :, :]), acc)
        return acc

    wd.write(wd.cast(total, F16), y)


def transposed_case(b: int, p: int, q: int, c: int, f: int) -> Case:
    x, w = whole(b, p, q, c), whole(4, 4, f, c, seed=1)
    full = np.zeros((b, 2 * p + 2, 2 * q + 2, f))
    for i in range(4):
        for j in range(4):
            full[:, i : i + 2 * p : 2, j : j + 2 * q : 2] += wide(x) @ wide(w)[i, j].T
    want = full[:, 1:-1, 1:-1]
    return Case([x, w, np.zeros(want.shape, np.float16)], {2: want}, {I: 4, J: 4}, 0, (B, P, Y))


@wd.wave([wd.WorkgroupConstraint(Y, 1, 1), wd.WorkgroupConstraint(C, 64, 0), wd.TilingConstraint(X, 32)])
def filters_gradient(x: wd.Memory[Y, X, C, F16], dy: wd.Memory[Y, X, C, F16], dw: wd.Memory[I, J, C, F32]):
    zero = wd.Register[C, F32](0.0)

    @wd.iterate(X, init_args=[zero] * 9)
    def sums(*parts):
        back, new = wd.cast(wd.read(dy), F32), []
        for n, part in enumerate(parts):
            there = wd.IndexMapping((X, C), {Y: Y + n // 3 - 1, X: X + n % 3 - 1, C: C})
            new.append(part + wd.sum(wd.cast(wd.read(x, mapping=there), F32) * back, dim=X))
        return new

    for n, part in enumerate(sums):
        wd.atomic_add(part, dw[n // 3, n % 3, :])


def filters_case(y: int, x: int, c: int) -> Case:
    data, dy = whole(y, x, c), whole(y, x, c, seed=1)
    padded = np.pad(wide(data), ((1, 1), (1, 1), (0, 0)))
    want = np.array([[(padded[i : i + y, j : j + x] * dy).sum((0, 1)) for j in range(3)] for i in range(3)])
    return Case([data, dy, np.zeros((3, 3, c), np.float32)], {2: want}, {}, 1e-5, (Y, X))


# ---- a pool with gaps that keeps where its maxima were, and its gradient


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(P, 1, 1), wd.WorkgroupConstraint(Q, 16, 0)])
def spread_pool(
    x: wd.Memory[B, H, W, C, F16], dy: wd.Memory[B, P, Q, C, F16], y: wd.Memory[B, P, Q, C, F16],
    at: wd.Memory[B, P, Q, C, I32], dx: wd.Memory[B, H, W, C, F32],
):  # fmt: skip
    """3 x 3, gaps of one, steps of 2, a border of 2; the first of equal ones."""
    best, where = wd.Register[Q, C, F32](float("-inf")), wd.Register[Q, C, I32](-1)
    for i in range(3):
        for j in range(3):
            row, column = wd.index(P) * 2 + 2 * i - 2, wd.index(Q) * 2 + 2 * j - 2
            inside = (row >= 0) & (row < H) & (column >= 0) & (column < W)
            z = wd.cast(wd.read(x, mapping=wd.IndexMapping((Q, C), {B: B, H: row, W: column, C: C})), F32)
            more = inside & (z > best)
            best, where = wd.where(more, z, best), wd.where(more, row * W + column, where)
    wd.write(wd.cast(best, F16), y)
    wd.write(where, at)
    there = {B: B, H: where // W, W: where % W, C: C}
    wd.atomic_add(wd.cast(wd.read(dy), F32), dx, mapping=wd.IndexMapping((Q, C), there))


def spread_case(b: int, h: int, w: int, c: int) -> Case:
    p, q = (h - 1) // 2 + 1, (w - 1) // 2 + 1
    x, dy = normal(b, h, w, c, dtype=np.float16), whole(b, p, q, c, seed=1)
    y, at, dx = np.full((b, p, q, c), -np.inf), np.full((b, p, q, c), -1), np.zeros((b, h, w, c))
    for n, r, s in np.ndindex(b, p, q):
        for i, j in np.ndindex(3, 3):
            row, column = 2 * r + 2 * i - 2, 2 * s + 2 * j - 2
            if 0 <= row < h and 0 <= column < w:
                z = wide(x)[n, row, column]
                more = z > y[n, r, s]
                y[n, r, s], at[n, r, s] = np.where(more, z, y[n, r, s]), np.where(more, row * w + column, at[n, r, s])
        np.add.at(dx[n].reshape(-1, c), (at[n, r, s], np.arange(c)), wide(dy)[n, r, s])
    outputs = [np.zeros(dy.shape, t) for t in (np.float16, np.int32)]
    return Case([x, dy, *outputs, np.zeros(dx.shape, np.float32)], {2: y, 3: at, 4: dx}, {}, 0, (B,))


# ---- rays: colours behind each other and the gradients of density and colour; splats until nothing shines through


@wd.wave([wd.WorkgroupConstraint(R, 4, 0)])
def rays(
    density: wd.Memory[R, S, F32], step: wd.Memory[R, S, F32], colour: wd.Memory[R, S, C, F16],
    back: wd.Memory[R, C, F32], out: wd.Memory[R, C, F32], weights: wd.Memory[R, S, F32],
    d_density: wd.Memory[R, S, F32], d_colour: wd.Memory[R, S, C, F16],
):  # fmt: skip
    thick = wd.read(density) * wd.read(step)
    clear = wd.exp(-(wd.cumsum(thick, dim=S) - thick))
    alpha = -wd.expm1(-thick)
    weight = clear * alpha
    seen = wd.cast(wd.read(colour), F32)
    wd.write(weight, weights)
    wd.write(wd.sum(weight * seen, dim=S), out)
    g = wd.read(back)
    wd.write(wd.cast(weight * g, F16), d_colour)
    value = wd.sum(seen * g, dim=C)  # [R, S]
    behind = wd.cumsum(weight * value, dim=S, reverse=True) - weight * value
    wd.write((clear * (1.0 - alpha) * value - behind) * wd.read(step), d_density)


def rays_case(r: int, s: int) -> Case:
    rng = np.random.default_rng(0)
    density, step = (rng.random((r, s)).astype(np.float32) for _ in range(2))
    colour, back = rng.random((r, s, 3)).astype(np.float16), normal(r, 3)
    thick = wide(density) * step
    clear = np.exp(-(np.cumsum(thick, 1) - thick))
    alpha = 1 - np.exp(-thick)
    weight, value = clear * alpha, (wide(colour) * back[:, None]).sum(2)
    behind = np.cumsum((weight * value)[:, ::-1], 1)[:, ::-1] - weight * value
    outputs = [np.zeros((r, 3), np.float32), np.zeros_like(density), np.zeros_like(density), np.zeros_like(colour)]
    want = {4: (weight[..., None] * colour).sum(1), 5: weight, 6: (clear * (1 - alpha) * value - behind) * step,
            7: weight[..., None] * back[:, None]}  # fmt: skip
    return Case([density, step, colour, back, *outputs], want, {C: 3}, 2e-3, (R,))


@wd.wave([wd.WorkgroupConstraint(Y, 8, 1), wd.WorkgroupConstraint(X, 32, 0)], subs={D: 2, O: 3})
def splats(
    centre: wd.Memory[N, D, F32], conic: wd.Memory[N, O, F32], opacity: wd.Memory[N, F32], colour: wd.Memory[N, C, F32],
    out: wd.Memory[Y, X, C, F32], last: wd.Memory[Y, X, I32],
):  # fmt: skip
    """Each pixel leaves when it is opaque."""
    x, y = wd.cast(wd.index(X), F32), wd.cast(wd.index(Y), F32)

    def unfinished(clear, n, *parts):
        return (clear > 1e-2) & (n < N)

    def splat(clear, n, *parts):
        def of(array, rest):
            return wd.read(array, mapping=wd.IndexMapping((Y, X), {N: n, **rest}))

        dx, dy = of(centre, {D: 0}) - x, of(centre, {D: 1}) - y
        a, b, c = (of(conic, {O: i}) for i in range(3))
        power = -0.5 * (a * dx * dx + c * dy * dy) - b * dx * dy
        alpha = wd.minimum(0.99, of(opacity, {}) * wd.exp(power))
        alpha = wd.where((power > 0.0) | (alpha < 1 / 255), 0.0, alpha)
        share = alpha * clear
        return clear * (1.0 - alpha), n + 1, *(p + share * of(colour, {C: i}) for i, p in enumerate(parts))

    zero = wd.Register[Y, X, F32](0.0)
    _, n, *parts = wd.while_loop(unfinished, splat, [zero + 1.0, wd.Register[Y, X, I32](0), zero, zero, zero])
    for i, part in enumerate(parts):
        wd.write(part, out[:, :, i])
    wd.write(n, last)


def splats_case(n: int, y: int, x: int) -> Case:
    rng = np.random.default_rng(0)
    centre = (rng.random((n, 2)) * [x, y]).astype(np.float32)
    conic = np.stack([rng.random(n) * 0.2 + 0.01, rng.random(n) * 0.02 - 0.01, rng.random(n) * 0.2 + 0.01], 1)
    conic, opacity, colour = conic.astype(np.float32), rng.random(n).astype(np.float32), rng.random((n, 3))
    colour = colour.astype(np.float32)
    j, i = np.mgrid[:y, :x]
    clear, out, last = np.ones((y, x)), np.zeros((y, x, 3)), np.zeros((y, x), int)
    for k in range(n):
        dx, dy = wide(centre)[k, 0] - i, wide(centre)[k, 1] - j
        a, b, c = wide(conic)[k]
        power = -0.5 * (a * dx * dx + c * dy * dy) - b * dx * dy
        alpha = np.minimum(0.99, opacity[k] * np.exp(power))
        alpha = np.where((power > 0) | (alpha < 1 / 255), 0, alpha)
        more = clear > 1e-2
        out += np.where(more, alpha * clear, 0)[..., None] * colour[k]
        clear, last = np.where(more, clear * (1 - alpha), clear), last + more
    arguments = [centre, conic, opacity, colour, np.zeros(out.shape, np.float32), np.zeros((y, x), np.int32)]
    return Case(arguments, {4: out, 5: last}, {C: 3}, 1e-3, (Y, X, N))


# ---- a step of a lattice gas that flows, likeness of windows, medians


@wd.wave([wd.WorkgroupConstraint(Y, 4, 1), wd.WorkgroupConstraint(X, 64, 0)], subs={Q: 9})
def lattice(f: wd.Memory[Q, Y, X, F32], wall: wd.Memory[Y, X, U8], new: wd.Memory[Q, Y, X, F32], omega: wd.Scalar[F32]):
    """D2Q9: what streams in, collided; walls send back what comes."""
    steps = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    weights = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4
    opposite = [0, 3, 4, 1, 2, 7, 8, 5, 6]
    parts = []
    for q, (dx, dy) in enumerate(steps):
        y, x = (wd.index(Y) - dy + Y) % Y, (wd.index(X) - dx + X) % X
        parts.append(wd.read(f, mapping=wd.IndexMapping((Y, X), {Q: q, Y: y, X: x})))
    rho = sum(parts)
    ux = sum(p * float(dx) for p, (dx, _) in zip(parts, steps) if dx) / rho
    uy = sum(p * float(dy) for p, (_, dy) in zip(parts, steps) if dy) / rho
    solid = wd.read(wall) != 0
    for q, (dx, dy) in enumerate(steps):
        along = ux * float(dx) + uy * float(dy)
        rest = weights[q] * rho * (1 + 3 * along + 4.5 * along * along - 1.5 * (ux * ux + uy * uy))
        moved = parts[q] + omega * (rest - parts[q])
        wd.write(wd.where(solid, parts[opposite[q]], moved), new[q, :, :])


def lattice_case(y: int, x: int) -> Case:
    rng = np.random.default_rng(0)
    f, wall = rng.random((9, y, x)).astype(np.float32) + 1, (rng.random((y, x)) < 0.2).astype(np.uint8)
    steps = np.array([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)])
    weights = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
    g = np.stack([np.roll(wide(f)[q], (dy, dx), (0, 1)) for q, (dx, dy) in enumerate(steps)])
    rho = g.sum(0)
    u = np.einsum("qd,qyx->dyx", steps, g) / rho
    along = np.einsum("qd,dyx->qyx", steps, u)
    rest = weights[:, None, None] * rho * (1 + 3 * along + 4.5 * along**2 - 1.5 * (u**2).sum(0))
    want = np.where(wall, g[[0, 3, 4, 1, 2, 7, 8, 5, 6]], g + 0.6 * (rest - g))
    return Case([f, wall, np.zeros_like(f), 0.6], {2: want}, {}, 1e-4, (Y, X))


@wd.wave([wd.WorkgroupConstraint(Y, 2, 1), wd.WorkgroupConstraint(X, 64, 0)], subs={N: 16})
def middles(x: wd.Memory[Y, X, F16], y: wd.Memory[Y, X, F16]):
    """The median of 3 x 3 places that lie in the picture, the lower of two."""
    n = wd.index(N)
    row, column = wd.index(Y) + n // 3 - 1, wd.index(X) + n % 3 - 1
    inside = (n < 9) & (row >= 0) & (row < Y) & (column >= 0) & (column < X)
    z = wd.where(inside, wd.read(x, mapping=wd.IndexMapping((Y, X, N), {Y: row, X: column})), float("inf"))
    ordered = wd.sort(z, dim=N)
    count = wd.sum(wd.cast(inside, I32), dim=N)
    wd.write(wd.sum(wd.where(n == (count - 1) // 2, ordered, 0.0), dim=N), y)


def middles_case(y: int, x: int) -> Case:
    data = normal(y, x, dtype=np.float16)
    want = np.zeros((y, x))
    for i, j in np.ndindex(y, x):
        some = np.sort(wide(data)[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2], axis=None)
        want[i, j] = some[(len(some) - 1) // 2]
    return Case([data, np.zeros_like(data)], {1: want}, {}, 0, (Y,))


KERNELS = {
    "volumes": (volumes, volumes_case, ((1, 2, 2, 32, 16, 32), (2, 3, 1, 21, 20, 37))),
    "transposed": (transposed, transposed_case, ((1, 3, 16, 16, 16), (2, 2, 11, 20, 7))),
    "gradient of filters": (filters_gradient, filters_case, ((3, 32, 64), (4, 37, 75))),
    "spread pool": (spread_pool, spread_case, ((1, 8, 32, 16), (2, 7, 21, 5))),
    "rays": (rays, rays_case, ((4, 64), (7, 77))),
    "splats": (splats, splats_case, ((20, 8, 32), (33, 13, 37))),
    "lattice": (lattice, lattice_case, ((8, 64), (7, 75))),
    "middles": (middles, middles_case, ((2, 64), (5, 37))),
}  # fmt: skip

test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_copies_ahead_leave_registers_for_their_places(target: str, oracle: Callable[[str], str]) -> None:
    """54 tiles that pass through 216 registers a trip ahead, and where each of them lies: 116 bytes of spills."""
    oracle("ptxas")
    compiled = on_chip(volumes, volumes_case(1, 2, 2, 32, 64, 64), target)
    assert not compiled.resources.spills
