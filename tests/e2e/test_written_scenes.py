"""Pictures, meshes and fields of points, as people write them at first: filters that look at values, sums of
rectangles, seeds that spread, contours, lines that edges vote for, levels made even, bones, polygons, tables of grids,
boxes as bits, filters whose places are learned, arms, edges, colours by direction, curves, two clouds' distances."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from families import TARGETS, Case, both_tests, normal, whole, wide
from wavedsl.runtime.emulator.cycle_chips import model_of
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

B, C, E, F, I, J, K, L, M, N, P, R, T, V, W, X, Y = wd.symbols("B C E F I J K L M N P R T V W X Y")
F16, F32, I32, U8, U32 = wd.f16, wd.f32, wd.i32, wd.u8, wd.u32
PICTURE = [wd.WorkgroupConstraint(Y, 4, 0), wd.WorkgroupConstraint(X, 64, 1)]


# ---- pictures


@wd.wave(PICTURE)
def bilateral(x: wd.Memory[Y, X, F32], near: wd.Scalar[F32], alike: wd.Scalar[F32], out: wd.Memory[Y, X, F32]):
    """5 x 5: neighbours count by how near they are and how alike; the picture's edges are repeated."""
    here = wd.read(x)
    total, weights = wd.Register[Y, X, F32](0.0), wd.Register[Y, X, F32](0.0)
    for dy in range(-2, 3):
        for dx in range(-2, 3):
            there = wd.read(x[wd.clamp(wd.index(Y) + dy, 0, Y - 1), wd.clamp(wd.index(X) + dx, 0, X - 1)])
            w = wd.exp(-(dy * dy + dx * dx) * near - (there - here) ** 2 * alike)
            total, weights = total + w * there, weights + w
    wd.write(total / weights, out)


def bilateral_case(y: int, x: int) -> Case:
    a = normal(y, x)
    p, total, weights = np.pad(wide(a), 2, mode="edge"), 0.0, 0.0
    for j in range(5):
        for i in range(5):
            there = p[j : j + y, i : i + x]
            w = np.exp(-((j - 2) ** 2 + (i - 2) ** 2) * 0.25 - (there - a) ** 2 * 0.5)
            total, weights = total + w * there, weights + w
    return Case([a, np.float32(0.25), np.float32(0.5), np.zeros_like(a)], {3: total / weights}, slack=1e-5,
                dynamic=(Y, X))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def adaptive(x: wd.Memory[B, Y, X, F32], sums: wd.Memory[B, Y, X, F32], out: wd.Memory[B, Y, X, U8]):
    """A threshold below the mean of the rectangle around, by a table of sums of all from the corner on."""
    r = 3
    pixels = wd.read(x)
    wd.write(wd.cumsum(wd.cumsum(pixels, dim=X), dim=Y), sums)
    y, i = wd.index(Y), wd.index(X)
    top, bottom = wd.maximum(y - r, 0) - 1, wd.minimum(y + r, Y - 1)
    left, right = wd.maximum(i - r, 0) - 1, wd.minimum(i + r, X - 1)

    def at(row, column):
        return wd.read(sums[B, row, column])  # outside: 0

    box = at(bottom, right) - at(top, right) - at(bottom, left) + at(top, left)
    area = wd.cast((bottom - top) * (right - left), F32)
    wd.write(wd.cast(pixels * area > box - area, U8), out)


def adaptive_case(b: int, y: int, x: int) -> Case:
    a = whole(b, y, x, dtype=np.float32, low=0, high=9)
    want = np.zeros(a.shape, np.uint8)
    for k, j, i in np.ndindex(a.shape):
        box = a[k, max(j - 3, 0) : j + 4, max(i - 3, 0) : i + 4]
        want[k, j, i] = a[k, j, i] > box.mean() - 1
    return Case([a, np.zeros_like(a), np.zeros_like(want)], {1: a.cumsum(2).cumsum(1), 2: want}, dynamic=(B,))


@wd.wave(PICTURE)
def flooded(seed: wd.Memory[Y, X, I32], step: wd.Scalar[I32], out: wd.Memory[Y, X, I32]):
    """Jump flooding: of the seeds of nine places as far as `step` apart the nearest; y * 65536 + x, or -1."""
    y, x = wd.index(Y), wd.index(X)
    best, nearest = wd.Register[Y, X, I32](-1), wd.Register[Y, X, I32](2**30)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            row, column = y + dy * step, x + dx * step
            there = wd.read(seed[row, column])
            inside = (row >= 0) & (row < Y) & (column >= 0) & (column < X)
            away = (there // 65536 - y) ** 2 + (there % 65536 - x) ** 2
            closer = inside & (there >= 0) & (away < nearest)
            best, nearest = wd.where(closer, there, best), wd.where(closer, away, nearest)
    wd.write(best, out)


def flooded_case(y: int, x: int, step: int) -> Case:
    rng = np.random.default_rng(0)
    seed = np.full((y, x), -1, np.int32)
    for j, i in zip(rng.integers(0, y, 9), rng.integers(0, x, 9)):
        seed[j, i] = rng.integers(0, y) << 16 | rng.integers(0, x)
    p = np.pad(seed, step, constant_values=-1)
    best, nearest = np.full((y, x), -1), np.full((y, x), 2**30)
    rows, columns = np.mgrid[:y, :x]
    for j in (0, step, 2 * step):
        for i in (0, step, 2 * step):
            there = p[j : j + y, i : i + x]
            away = (there // 65536 - rows) ** 2 + (there % 65536 - columns) ** 2
            closer = (there >= 0) & (away < nearest)
            best, nearest = np.where(closer, there, best), np.where(closer, away, nearest)
    return Case([seed, np.int32(step), np.zeros_like(seed)], {2: best}, dynamic=(Y, X))


@wd.wave(PICTURE)
def contours(
    field: wd.Memory[Y + 1, X + 1, F32], level: wd.Scalar[F32], table: wd.Memory[16, 4, I32],
    count: wd.Memory[1, I32], ends: wd.Memory[P, 4, F32],
):  # fmt: skip
    """Marching squares: up to two pieces of the contour in each cell, in any order. The table: edges 0 to 3, or -1."""
    def corner(dy, dx):
        return wd.read(field[wd.index(Y) + dy, wd.index(X) + dx])

    a, b, c, d = corner(0, 0), corner(0, 1), corner(1, 1), corner(1, 0)
    case = sum(wd.cast(v > level, I32) << i for i, v in enumerate((a, b, c, d)))
    x, y = wd.cast(wd.index(X), F32), wd.cast(wd.index(Y), F32)

    def between(v, w):
        return (level - v) / (w - v)

    places = [(x + between(a, b), y), (x + 1, y + between(b, c)), (x + between(d, c), y + 1), (x, y + between(a, d))]
    for piece in range(2):
        first, last = (wd.read(table[case, 2 * piece + i]) for i in range(2))
        there = first >= 0
        row = wd.atomic_add(1, count[wd.where(there, 0, -1)])
        row = wd.where(there, row, -1)
        for i, edge in enumerate((first, last)):
            for axis in range(2):
                value = places[0][axis]
                for k in (1, 2, 3):
                    value = wd.where(edge == k, places[k][axis], value)
                wd.write(value, ends[row, 2 * i + axis])


PIECES = {1: (3, 0), 2: (0, 1), 3: (3, 1), 4: (1, 2), 5: (3, 0, 1, 2), 6: (0, 2), 7: (3, 2), 8: (2, 3), 9: (2, 0),
          10: (0, 1, 2, 3), 11: (2, 1), 12: (1, 3), 13: (1, 0), 14: (0, 3)}  # fmt: skip


def contours_case(y: int, x: int) -> Case:
    field = normal(y + 1, x + 1)
    table = np.full((16, 4), -1, np.int32)
    for case, edges in PIECES.items():
        table[case, : len(edges)] = edges
    high = field > 0.1
    cases = sum(high[j : j + y, i : i + x] << k for k, (j, i) in enumerate(((0, 0), (0, 1), (1, 1), (1, 0))))
    count = int(sum(len(PIECES.get(int(c), ())) // 2 for c in cases.ravel()))
    return Case([field, np.float32(0.1), table, np.zeros(1, np.int32), np.zeros((count, 4), np.float32)],
                {3: np.array([count])}, dynamic=(Y, X))


@wd.wave([wd.WorkgroupConstraint(Y, 4, 0), wd.WorkgroupConstraint(X, 32, 1)])
def lines(edges: wd.Memory[Y, X, U8], cosine: wd.Memory[T, F32], sine: wd.Memory[T, F32], votes: wd.Memory[T, R, I32]):
    """Hough: every edge votes for all lines through it."""
    x, y = wd.cast(wd.index(X), F32), wd.cast(wd.index(Y), F32)
    there = wd.read(edges) > 0

    def vote(t):
        away = wd.round(x * wd.read(cosine[t]) + y * wd.read(sine[t]))
        wd.atomic_add(1, votes[t, wd.where(there, wd.cast(away, I32) + R // 2, -1)])
        return t + 1

    wd.while_loop(lambda t: t < T, vote, [wd.Register[I32](0)])


def lines_case(y: int, x: int, t: int) -> Case:
    edges = (np.random.default_rng(0).random((y, x)) < 0.2).astype(np.uint8)
    angle = np.arange(t) * math.pi / t
    cosine, sine = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    r = 2 * (y + x)
    votes = np.zeros((t, r), np.int32)
    for j, i in np.argwhere(edges):
        away = np.round(np.float32(i) * cosine + np.float32(j) * sine).astype(int)
        np.add.at(votes, (np.arange(t), away + r // 2), 1)
    return Case([edges, cosine, sine, np.zeros_like(votes)], {3: votes}, dynamic=(Y, X))


@wd.wave([wd.WorkgroupConstraint(I, 1, 0), wd.WorkgroupConstraint(J, 1, 1)], subs={K: 256})
def evened(
    x: wd.Memory[I, Y, J, X, U8], counts: wd.Memory[I, J, K, I32], limit: wd.Scalar[I32], out: wd.Memory[I, Y, J, X, U8]
):  # fmt: skip
    """Levels of each tile of a picture made even, none of which counts more than `limit`; what is above is shared."""
    level = wd.cast(wd.read(x), I32)
    wd.atomic_add(1, counts[I, J, level])
    n = wd.read(counts)
    kept = wd.minimum(n, limit)
    extra = wd.sum(n - kept, dim=K)
    kept = kept + extra // 256 + wd.cast(wd.index(K) < extra % 256, I32)
    below = wd.cumsum(kept, dim=K)
    lowest = wd.min(wd.where(below > 0, below, 2**30), dim=K)
    share = wd.cast(below - lowest, F32) * 255 / wd.cast(wd.maximum(X * Y - lowest, 1), F32)
    table = wd.cast(wd.clamp(wd.round(share), 0, 255), U8)
    wd.write(wd.shuffle(table, level, dim=K), out)


def evened_case(i: int, y: int, j: int, x: int) -> Case:
    rng = np.random.default_rng(0)
    a = np.minimum(rng.integers(0, 256, (i, y, j, x)), rng.integers(20, 256, (i, y, j, x))).astype(np.uint8)
    want, limit = np.zeros_like(a), 5
    for r in range(i):
        for c in range(j):
            n = np.bincount(a[r, :, c].ravel(), minlength=256)
            kept = np.minimum(n, limit)
            extra = (n - kept).sum()
            kept = kept + extra // 256 + (np.arange(256) < extra % 256)
            below = np.cumsum(kept)
            lowest = below[below > 0].min()
            share = (below - lowest).astype(np.float32) * np.float32(255) / np.float32(max(x * y - lowest, 1))
            want[r, :, c] = np.clip(np.round(share), 0, 255).astype(np.uint8)[a[r, :, c]]
    return Case([a, np.zeros((i, j, 256), np.int32), np.int32(limit), np.zeros_like(a)], {3: want}, dynamic=(I, J))


@wd.wave(PICTURE)
def thin_edges(x: wd.Memory[Y, X, F32], low: wd.Scalar[F32], out: wd.Memory[Y, X, U8]):
    """Canny's: gradients by Sobel where they are larger than both neighbours' in their direction, of four."""
    def at(dy, dx):
        return wd.read(x[wd.clamp(wd.index(Y) + dy, 0, Y - 1), wd.clamp(wd.index(X) + dx, 0, X - 1)])

    around = {(dy, dx): at(dy, dx) for dy in range(-2, 3) for dx in range(-2, 3)}

    def gradient(dy, dx):
        def p(j, i):
            return around[dy + j, dx + i]

        across = p(-1, 1) + 2 * p(0, 1) + p(1, 1) - p(-1, -1) - 2 * p(0, -1) - p(1, -1)
        down = p(1, -1) + 2 * p(1, 0) + p(1, 1) - p(-1, -1) - 2 * p(-1, 0) - p(-1, 1)
        return across, down, wd.sqrt(across * across + down * down)

    across, down, here = gradient(0, 0)
    turn = wd.round(wd.atan2(down, across) * (4 / math.pi))
    which = wd.cast(turn, I32) % 4
    thin = wd.index(Y) < 0
    for k, (dy, dx) in enumerate(((0, 1), (1, 1), (1, 0), (1, -1))):
        larger = (here >= gradient(dy, dx)[2]) & (here >= gradient(-dy, -dx)[2])
        thin = thin | (which == k) & larger
    wd.write(wd.where(thin & (here > low), wd.cast(255, U8), 0), out)


def edges_case(y: int, x: int) -> Case:
    a = whole(y, x, dtype=np.float32, low=0, high=50)
    p = np.pad(wide(a), 2, mode="edge")

    def gradient(dy, dx):
        def at(j, i):
            return p[2 + dy + j : 2 + dy + j + y, 2 + dx + i : 2 + dx + i + x]

        across = at(-1, 1) + 2 * at(0, 1) + at(1, 1) - at(-1, -1) - 2 * at(0, -1) - at(1, -1)
        down = at(1, -1) + 2 * at(1, 0) + at(1, 1) - at(-1, -1) - 2 * at(-1, 0) - at(-1, 1)
        return across, down, np.sqrt((across * across + down * down).astype(np.float32))

    across, down, here = gradient(0, 0)
    which = np.round(np.arctan2(down, across) * 4 / math.pi).astype(int) % 4
    thin = np.zeros((y, x), bool)
    for k, (dy, dx) in enumerate(((0, 1), (1, 1), (1, 0), (1, -1))):
        thin |= (which == k) & (here >= gradient(dy, dx)[2]) & (here >= gradient(-dy, -dx)[2])
    return Case([a, np.float32(40), np.zeros((y, x), np.uint8)], {2: np.where(thin & (here > 40), 255, 0)},
                dynamic=(Y, X))


# ---- meshes and polygons


@wd.wave([wd.WorkgroupConstraint(V, 64, 0)])
def skinned(
    points: wd.Memory[V, 3, F32], bone: wd.Memory[V, K, U8], weight: wd.Memory[V, K, F32],
    matrices: wd.Memory[B, 3, 4, F32], out: wd.Memory[V, 3, F32],
):  # fmt: skip
    """Vertices moved by four bones each."""
    point = [wd.read(points[:, i]) for i in range(3)]
    which, share = wd.cast(wd.read(bone), I32), wd.read(weight)
    share = share / wd.sum(share, dim=K)
    for row in range(3):
        m = [wd.sum(wd.read(matrices[which, row, i]) * share, dim=K) for i in range(4)]
        wd.write(m[0] * point[0] + m[1] * point[1] + m[2] * point[2] + m[3], out[:, row])


def skinned_case(v: int, b: int) -> Case:
    rng = np.random.default_rng(0)
    points, weight, matrices = normal(v, 3), rng.random((v, 4)).astype(np.float32), normal(b, 3, 4, seed=1)
    bone = rng.integers(0, b, (v, 4)).astype(np.uint8)
    share = wide(weight) / wide(weight).sum(1, keepdims=True)
    m = (matrices[bone] * share[..., None, None]).sum(1)
    want = (m[..., :3] * points[:, None]).sum(-1) + m[..., 3]
    return Case([points, bone, weight, matrices, np.zeros_like(points)], {4: want}, slack=1e-5, dynamic=(V,))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def in_polygons(
    x: wd.Memory[N, F32], y: wd.Memory[N, F32], start: wd.Memory[P, I32], corners: wd.Memory[V, 2, F32],
    inside: wd.Memory[N, I32],
):  # fmt: skip
    """The first polygon that a point lies in, by how often a ray to the right crosses its sides; -1 for none."""
    px, py = wd.read(x), wd.read(y)

    def outside(p, found):
        return (p < P - 1) & (found < 0)

    def polygon(p, found):
        first, last = wd.read(start[p]), wd.read(start[p + 1])

        def side(i, odd):
            j = wd.where(i == first, last - 1, i - 1)
            ax, ay, bx, by = (wd.read(corners[k, axis]) for k in (i, j) for axis in (0, 1))
            crosses = ((ay > py) != (by > py)) & (px < (bx - ax) * (py - ay) / (by - ay) + ax)
            return i + 1, odd != crosses

        _, odd = wd.while_loop(lambda i, odd: i < last, side, [first, wd.index(N) < 0])
        return p + 1, wd.where(odd, p, found)

    _, found = wd.while_loop(outside, polygon, [wd.Register[N, I32](0), wd.Register[N, I32](-1)])
    wd.write(found, inside)


def polygons_case(n: int, p: int) -> Case:
    rng = np.random.default_rng(0)
    corners, start = [], [0]
    for k in range(p):
        m = int(rng.integers(3, 8))
        angle, away = np.sort(rng.random(m)) * 2 * np.pi, rng.random(m) * 2 + 0.5
        corners.append(np.stack([away * np.cos(angle) + k, away * np.sin(angle)], 1))
        start.append(start[-1] + m)
    points = (rng.random((n, 2)) * (p + 3, 4) - (2, 2)).astype(np.float32)
    all_corners = np.concatenate(corners).astype(np.float32)
    want = np.full(n, -1, np.int32)
    for row, (px, py) in enumerate(points):
        for k in range(p):
            c, odd = all_corners[start[k] : start[k + 1]], False
            for (ax, ay), (bx, by) in zip(c, np.roll(c, 1, 0)):
                if (ay > py) != (by > py):
                    odd ^= bool(px < (bx - ax) * (py - ay) / (by - ay) + ax)
            if odd:
                want[row] = k
                break
    return Case([points[:, 0].copy(), points[:, 1].copy(), np.array(start, np.int32), all_corners,
                 np.zeros(n, np.int32)], {4: want}, dynamic=(N, P, V))


@wd.wave([wd.WorkgroupConstraint(B, 4, 0)])
def arms(turn: wd.Memory[B, J, 4, F32], bone: wd.Memory[J, 3, F32], ends: wd.Memory[B, J, 3, F32]):
    """Where the joints of chains lie: each turned by a quaternion against the one before, a bone along."""
    w, x, y, z = (wd.read(turn[:, :, i]) for i in range(4))
    length = wd.rsqrt(w * w + x * x + y * y + z * z)
    own = tuple(v * length for v in (w, x, y, z))

    def turned(q, v):
        w, x, y, z = q
        a, b, c = v
        tx, ty, tz = 2 * (y * c - z * b), 2 * (z * a - x * c), 2 * (x * b - y * a)
        return a + w * tx + y * tz - z * ty, b + w * ty + z * tx - x * tz, c + w * tz + x * ty - y * tx

    def after(p, q):
        a, b, c, d = p[:4]
        e, f, g, h = q[:4]
        product = (
            a * e - b * f - c * g - d * h, a * f + b * e + c * h - d * g,
            a * g - b * h + c * e + d * f, a * h + b * g - c * f + d * e,
        )  # fmt: skip
        moved = turned(p[:4], q[4:])
        return *product, *(s + m for s, m in zip(p[4:], moved))

    along = turned(own, tuple(wd.read(bone[:, i]) for i in range(3)))
    chain = wd.scan((*own, *along), after, (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), dim=J)
    for i in range(3):
        wd.write(chain[4 + i], ends[:, :, i])


def arms_case(b: int, j: int) -> Case:
    turn, bone = normal(b, j, 4), normal(j, 3, seed=1)
    ends = np.zeros((b, j, 3))
    for row in range(b):
        total, place = np.eye(3), np.zeros(3)
        for k in range(j):
            w, x, y, z = wide(turn[row, k]) / np.linalg.norm(wide(turn[row, k]))
            total = total @ np.array([
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ])  # fmt: skip
            place = place + total @ bone[k]
            ends[row, k] = place
    return Case([turn, bone, np.zeros((b, j, 3), np.float32)], {2: ends}, slack=1e-4, dynamic=(B,))


# ---- fields of points


@wd.wave([wd.WorkgroupConstraint(N, 64, 0), wd.WorkgroupConstraint(L, 1, 1)])
def hashed_grid(
    points: wd.Memory[N, 3, F32], size: wd.Memory[L, F32], table: wd.Memory[L, V, F, F16], out: wd.Memory[N, L, F, F32]
):  # fmt: skip
    """Instant NGP: on each level the eight corners around a point, looked up by a hash, and what lies between them."""
    scaled = [wd.read(points[:, i]) * wd.read(size) for i in range(3)]
    corner = [wd.floor(v) for v in scaled]
    part = [v - c for v, c in zip(scaled, corner)]
    corner = [wd.cast(c, I32) for c in corner]
    total = wd.Register[N, F, F32](0.0)
    for which in range(8):
        h, weight = wd.Register[N, U32](0), wd.Register[N, F32](1.0)
        for axis, prime in enumerate((1, 2654435761, 805459861)):
            up = which >> axis & 1
            h = h ^ wd.cast(corner[axis] + up, U32) * prime
            weight = weight * (part[axis] if up else 1 - part[axis])
        row = wd.cast(h % wd.cast(V, U32), I32)
        total = total + weight * wd.cast(wd.read(table[L, row, :]), F32)
    wd.write(total, out)


def grid_case(n: int, levels: int, v: int, f: int) -> Case:
    points, table = np.random.default_rng(0).random((n, 3)).astype(np.float32), normal(levels, v, f, dtype=np.float16)
    size = (16 * 1.5 ** np.arange(levels)).astype(np.float32)
    out = np.zeros((n, levels, f))
    for k in range(levels):
        scaled = points * size[k]
        corner = np.floor(scaled)
        part = wide(scaled - corner)
        for which in range(8):
            up = np.array([which >> a & 1 for a in range(3)])
            place = (corner.astype(np.uint64) + up.astype(np.uint64)) * np.array([1, 2654435761, 805459861], np.uint64)
            h = np.bitwise_xor.reduce(place & 0xFFFFFFFF, axis=1)
            weight = np.where(up, part, 1 - part).prod(1)
            out[:, k] += weight[:, None] * wide(table[k, (h % v).astype(int)])
    return Case([points, size, table, np.zeros(out.shape, np.float32)], {3: out}, slack=1e-4, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(N, 32, 0)])
def overlaps_as_bits(boxes: wd.Memory[N, 4, F32], limit: wd.Scalar[F32], mask: wd.Memory[N, W, U32]):
    """Of boxes by falling score, a bit for each later one that overlaps by more than the limit."""
    mine = [wd.read(boxes[:, i]) for i in range(4)]
    other = wd.index(W) * 32 + wd.index(L)
    theirs = [wd.read(boxes[other, i]) for i in range(4)]
    wide_, high = (
        wd.maximum(wd.minimum(mine[i + 2], theirs[i + 2]) - wd.maximum(mine[i], theirs[i]), 0.0) for i in range(2)
    )
    shared = wide_ * high
    own, their = ((b[2] - b[0]) * (b[3] - b[1]) for b in (mine, theirs))
    over = (shared > limit * (own + their - shared)) & (other > wd.index(N)) & (other < N)
    bits = wd.cast(over, U32) << wd.cast(wd.index(L), U32)
    wd.write(wd.sum(bits, dim=L), mask)


def overlap_case(n: int) -> Case:
    rng = np.random.default_rng(0)
    low = rng.integers(0, 20, (n, 2))
    boxes = np.concatenate([low, low + rng.integers(1, 12, (n, 2))], 1).astype(np.float32)
    w = -(-n // 32)
    over = np.zeros((n, 32 * w), bool)
    a, b = boxes[:, None], boxes[None]
    size = np.maximum(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0).prod(-1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    over[:, :n] = np.triu(size > 0.3 * (area[:, None] + area - size), 1)
    want = np.packbits(over, 1, "little").view(np.uint32)
    return Case([boxes, np.float32(0.3), np.zeros((n, w), np.uint32)], {2: want}, {L: 32}, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(Y, 1, 0), wd.WorkgroupConstraint(X, 32, 1)])
def learned_places(
    image: wd.Memory[Y, X, C, F16], offsets: wd.Memory[Y, X, K, 2, F32], gate: wd.Memory[Y, X, K, F32],
    weights: wd.Memory[K, E, C, F16], out: wd.Memory[Y, X, E, F32],
):  # fmt: skip
    """A deformable convolution, 3 x 3, with gates: each tap's place is moved, what lies between pixels is bilinear."""
    total = wd.Register[X, E, F32](0.0)
    for tap in range(9):
        row = wd.cast(wd.index(Y) + tap // 3 - 1, F32) + wd.read(offsets[Y, :, tap, 0])
        column = wd.cast(wd.index(X) + tap % 3 - 1, F32) + wd.read(offsets[Y, :, tap, 1])
        top, left = wd.floor(row), wd.floor(column)
        down, right = row - top, column - left
        seen = wd.Register[X, C, F32](0.0)
        for dy in range(2):
            for dx in range(2):
                there = wd.read(image[wd.cast(top, I32) + dy, wd.cast(left, I32) + dx, :])  # outside: 0
                share = (down if dy else 1 - down) * (right if dx else 1 - right)
                seen = seen + wd.cast(there, F32) * share
        seen = seen * wd.read(gate[Y, :, tap])
        total = wd.mma(wd.cast(seen, F16), wd.read(weights[tap, :, :]), total)
    wd.write(total, out)


def places_case(y: int, x: int, c: int, e: int) -> Case:
    image, weights = normal(y, x, c, dtype=np.float16), normal(9, e, c, seed=1, dtype=np.float16, scale=0.2)
    offsets = np.round(normal(y, x, 9, 2, seed=2, scale=1.5) * 8) / 8
    gate = np.random.default_rng(3).random((y, x, 9)).astype(np.float32)
    p = np.zeros((y + 40, x + 40, c))
    p[20 : 20 + y, 20 : 20 + x] = image
    rows, columns = np.mgrid[:y, :x]
    want = np.zeros((y, x, e))
    for tap in range(9):
        row, column = rows + tap // 3 - 1 + offsets[..., tap, 0], columns + tap % 3 - 1 + offsets[..., tap, 1]
        top, left = np.floor(row).astype(int), np.floor(column).astype(int)
        down, right = (row - top)[..., None], (column - left)[..., None]
        seen = sum(
            p[20 + top + j, 20 + left + i] * (down if j else 1 - down) * (right if i else 1 - right)
            for j in range(2) for i in range(2)
        )  # fmt: skip
        want += (seen * gate[..., tap, None]).astype(np.float16).astype(float) @ wide(weights[tap]).T
    return Case([image, offsets, gate, weights, np.zeros(want.shape, np.float32)], {4: want}, {}, 5e-3, (Y,))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def colours_by_direction(
    centre: wd.Memory[N, 3, F32], eye: wd.Memory[3, F32], factors: wd.Memory[N, K, 3, F32], out: wd.Memory[N, 3, U8]
):  # fmt: skip
    """Spherical harmonics of degree two, seen from `eye`."""
    d = [wd.read(centre[:, i]) - wd.read(eye[i]) for i in range(3)]
    length = wd.rsqrt(d[0] ** 2 + d[1] ** 2 + d[2] ** 2)
    x, y, z = (v * length for v in d)
    basis = [0.28209479, -0.48860251 * y, 0.48860251 * z, -0.48860251 * x, 1.09254843 * x * y, -1.09254843 * y * z,
             0.31539157 * (2 * z * z - x * x - y * y), -1.09254843 * x * z, 0.54627422 * (x * x - y * y)]  # fmt: skip
    for c in range(3):
        level = sum(b * wd.read(factors[:, i, c]) for i, b in enumerate(basis)) + 0.5
        wd.write(wd.cast(wd.clamp(level, 0.0, 1.0) * 255 + 0.5, U8), out[:, c])


def direction_case(n: int) -> Case:
    centre, eye, factors = normal(n, 3), np.array([4, 5, 6], np.float32), normal(n, 9, 3, seed=1, scale=0.3)
    d = wide(centre - eye)
    x, y, z = (d / np.linalg.norm(d, axis=1, keepdims=True)).T
    basis = np.stack([
        0.28209479 + 0 * x, -0.48860251 * y, 0.48860251 * z, -0.48860251 * x, 1.09254843 * x * y, -1.09254843 * y * z,
        0.31539157 * (2 * z * z - x * x - y * y), -1.09254843 * x * z, 0.54627422 * (x * x - y * y),
    ], 1)  # fmt: skip
    level = np.clip((basis[..., None] * factors).sum(1) + 0.5, 0, 1) * 255 + 0.5
    # a level that lies on an integer's edge may round to either side
    near = np.abs(level - np.round(level)) < 1e-3
    factors[near.any(1)] = 0
    level = np.where(near.any(1)[:, None], 128.0, level)
    return Case([centre, eye, factors, np.zeros((n, 3), np.uint8)], {3: np.floor(level)}, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
def along_a_curve(points: wd.Memory[N, 3, F32], box: wd.Memory[2, 3, F32], code: wd.Memory[N, U32]):
    """Morton codes of thirty bits of points in a box."""
    def spread(v):
        for shift, mask in ((16, 0x30000FF), (8, 0x300F00F), (4, 0x30C30C3), (2, 0x9249249)):
            v = (v | v << shift) & mask
        return v

    total = wd.Register[N, U32](0)
    for axis in range(3):
        low, high = (wd.read(box[i, axis]) for i in range(2))
        part = (wd.read(points[:, axis]) - low) / (high - low)
        total = total | spread(wd.cast(wd.clamp(part * 1024, 0.0, 1023.0), U32)) << axis
    wd.write(total, code)


def curve_case(n: int) -> Case:
    points = (np.random.default_rng(0).integers(0, 1024, (n, 3)) + 0.5).astype(np.float32)
    box = np.array([[0, 0, 0], [1024, 1024, 1024]], np.float32)
    want = np.zeros(n, np.uint32)
    for axis in range(3):
        for bit in range(10):
            want |= (points[:, axis].astype(np.uint32) >> bit & 1) << 3 * bit + axis
    return Case([points, box, np.zeros(n, np.uint32)], {2: want}, dynamic=(N,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(N, 64, 0), wd.TilingConstraint(M, 32)])
def chamfer(
    x: wd.Memory[B, N, 3, F32], y: wd.Memory[B, M, 3, F32], nearest: wd.Memory[B, N, I32], away: wd.Memory[B, N, F32],
    grad: wd.Memory[B, M, 3, F32], total: wd.Memory[B, F32],
):  # fmt: skip
    """The nearest of the other cloud's points, the mean of the distances, and the other cloud's gradient."""
    mine = [wd.read(x[:, :, i]) for i in range(3)]

    @wd.iterate(M, init_args=[wd.Register[N, F32](math.inf), wd.Register[N, I32](0)])
    def search(best, which):
        theirs = [wd.read(y[:, :, i]) for i in range(3)]
        d = sum((a - b) ** 2 for a, b in zip(mine, theirs))
        least = wd.min(d, dim=M)
        where = wd.argmin(d, dim=M)
        return wd.minimum(best, least), wd.where(least < best, where, which)

    best, which = search
    wd.write(best, away)
    wd.write(which, nearest)
    wd.atomic_add(wd.sum(best / N, dim=N), total[B])
    for i in range(3):
        other = wd.read(y[B, which, i])
        wd.atomic_add(2 * (other - mine[i]) / N, grad[B, which, i])


def chamfer_case(b: int, n: int, m: int) -> Case:
    x, y = (whole(b, k, 3, seed=k, dtype=np.float32, low=-20, high=20) for k in (n, m))
    d = ((x[:, :, None] - y[:, None]) ** 2).sum(-1)
    nearest, away = d.argmin(2), d.min(2)
    grad = np.zeros(y.shape)
    for k in range(b):
        np.add.at(grad[k], nearest[k], 2 * wide(y[k, nearest[k]] - x[k]) / n)
    empty = [np.zeros((b, n), np.int32), np.zeros((b, n), np.float32), np.zeros_like(y), np.zeros(b, np.float32)]
    return Case([x, y, *empty], {2: nearest, 3: away, 4: grad, 5: away.mean(1)}, {}, 1e-4, (N, M))


KERNELS: dict[str, tuple[Any, Callable[..., Case], Any]] = {
    "bilateral": (bilateral, bilateral_case, ((5, 77),)),
    "adaptive": (adaptive, adaptive_case, ((2, 16, 16), (2, 13, 21))),
    "flooded": (flooded, flooded_case, ((8, 64, 4), (13, 80, 3))),
    "contours": (contours, contours_case, ((5, 71),)),
    "lines": (lines, lines_case, ((4, 32, 5), (9, 41, 7))),
    "evened": (evened, evened_case, ((2, 16, 1, 16), (2, 13, 2, 17))),
    "thin edges": (thin_edges, edges_case, ((5, 77),)),
    "skinned": (skinned, skinned_case, ((64, 10), (99, 17))),
    "in polygons": (in_polygons, polygons_case, ((64, 3), (101, 4))),
    "arms": (arms, arms_case, ((4, 16), (7, 13))),
    "hashed grid": (hashed_grid, grid_case, ((64, 2, 128, 2), (70, 3, 97, 4))),
    "overlaps as bits": (overlaps_as_bits, overlap_case, ((64,), (101,))),
    "learned places": (learned_places, places_case, ((1, 33, 64, 64), (2, 37, 24, 16))),
    "colours by direction": (colours_by_direction, direction_case, ((64,), (101,))),
    "along a curve": (along_a_curve, curve_case, ((256,), (301,))),
    "chamfer": (chamfer, chamfer_case, ((1, 64, 32), (2, 70, 53))),
}  # fmt: skip


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)


@pytest.mark.parametrize("target", TARGETS)
def test_pieces_of_contours(target: str) -> None:
    """In any order: each crosses its cell from edge to edge, where the field is at the level."""
    case = contours_case(7, 71)
    field, level = wide(case.arguments[0]), 0.1
    high = field > level
    sides = int((high[:-1] != high[1:]).sum() + (high[:, :-1] != high[:, 1:]).sum())
    edges = int((high[0, :-1] != high[0, 1:]).sum() + (high[-1, :-1] != high[-1, 1:]).sum())
    edges += int((high[:-1, 0] != high[1:, 0]).sum() + (high[:-1, -1] != high[1:, -1]).sum())
    for emulated in (True, False):
        mine = [a.copy() if isinstance(a, np.ndarray) else a for a in case.arguments]
        if emulated:
            contours.compile(*mine, target=target).emulate(*mine)
        else:
            contours.evaluate(*mine)
        points = np.concatenate([mine[4][:, :2], mine[4][:, 2:]])
        assert len(points) == 2 * sides - edges  # each crossing of a side is the end of two pieces
        low = np.floor(points).astype(int)
        part = points - low
        assert (np.minimum(part[:, 0], part[:, 1]) < 1e-5).all()  # on a side of a cell
        x, y = np.minimum(low[:, 0], 70), np.minimum(low[:, 1], 6)
        u, v = (points - np.stack([x, y], 1)).T
        top, bottom = ((1 - u) * field[y + j, x] + u * field[y + j, x + 1] for j in (0, 1))
        np.testing.assert_allclose((1 - v) * top + v * bottom, level, atol=1e-3)


@pytest.mark.parametrize(("target", "most"), [("gfx942", 6.2), ("gfx950", 4.8), ("sm_80", 5.7)])
def test_clocks_of_learned_places(target: str, most: float) -> None:
    """Nine products of what eighteen loads and four gathers each bring: with all loads first they took 21.7, 27.1 and
    9.7 times what memory takes for the bytes."""
    arguments = list(places_case(128, 256, 64, 64).arguments)
    compiled = learned_places.compile(*arguments, target=target)
    moved = sum(a.nbytes for a in arguments) / model_of(target).dram_rate
    assert sample(compiled, arguments).replay().cycles / moved < most
