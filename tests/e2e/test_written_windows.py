"""Windows of pictures, volumes and series, what lies beside them, and layers, trees and pairs, as people write them."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from families import Case, four_tests, normal, whole, wide

import wavedsl as wd

B, C, D, F, H, I, K, L, M, N, O, P, Q, S, T, V, W, X, Y, Z = wd.symbols("B C D F H I K L M N O P Q S T V W X Y Z")
BF, F16, F32, I1, I8, I32, I64, U8, U16 = wd.bf16, wd.f16, wd.f32, wd.i1, wd.i8, wd.i32, wd.i64, wd.u8, wd.u16
BF16 = ml_dtypes.bfloat16
at = wd.IndexMapping


# ---- pictures: windows as columns, means of windows of any size, colours between sensors, paths of least cost


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(K, 4, 1), wd.WorkgroupConstraint(L, 256, 0)])
def columns(
    x: wd.Memory[B, C, H, W, F32], out: wd.Memory[B, K, L, F32], across: wd.Scalar[I32], stride: wd.Scalar[I32]
):  # fmt: skip
    """Windows of 3 x 3 one behind the other, `across` of them in a row: what is divided by comes with the call."""
    k, place = wd.index(K), wd.index(L)
    row = place // across * stride + k % 9 // 3 - 1
    column = place % across * stride + k % 3 - 1
    wd.write(wd.read(x, mapping=at((K, L), {B: B, C: k // 9, H: row, W: column})), out)


def columns_case(b: int, c: int, h: int, w: int, stride: int) -> Case:
    x, (p, q) = normal(b, c, h, w), ((h - 1) // stride + 1, (w - 1) // stride + 1)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    parts = [padded[:, :, i : i + h : stride, j : j + w : stride] for i in range(3) for j in range(3)]
    want = np.stack(parts, 2).reshape(b, c * 9, p * q)
    return Case([x, np.zeros_like(want), q, stride], {1: want}, {}, 0, (B, L))


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(C, 16, 1), wd.WorkgroupConstraint(P, 1, 1),
          wd.WorkgroupConstraint(Q, 8, 0)])  # fmt: skip
def adaptive(x: wd.Memory[B, C, H, W, BF], y: wd.Memory[B, C, P, Q, BF]):
    """Means of windows whose sizes differ: a loop in a loop, both as long as extents say."""
    p, q = wd.index(P), wd.index(Q)
    top, bottom = p * H // P, ((p + 1) * H + P - 1) // P
    left, right = q * W // Q, ((q + 1) * W + Q - 1) // Q

    def above(i, total):
        return i < bottom

    def row(i, total):
        def before(j, total):
            return j < right

        def pixel(j, total):
            return j + 1, total + wd.cast(wd.read(x, mapping=at((C, Q), {B: B, C: C, H: i, W: j})), F32)

        return i + 1, wd.while_loop(before, pixel, [left, total])[1]

    _, total = wd.while_loop(above, row, [top, wd.Register[C, Q, F32](0.0)])
    wd.write(wd.cast(total / wd.cast((bottom - top) * (right - left), F32), BF), y)


def adaptive_case(b: int, c: int, h: int, w: int, p: int, q: int) -> Case:
    x, want = normal(b, c, h, w, dtype=BF16), np.zeros((b, c, p, q))
    for i, j in np.ndindex(p, q):
        rows, places = slice(i * h // p, -(-(i + 1) * h // p)), slice(j * w // q, -(-(j + 1) * w // q))
        want[:, :, i, j] = wide(x)[:, :, rows, places].mean((2, 3))
    return Case([x, np.zeros(want.shape, BF16)], {1: want}, {}, 1e-2, (B, H, W))


@wd.wave([wd.WorkgroupConstraint(Y, 4, 1), wd.WorkgroupConstraint(X, 64, 0)])
def mosaic(raw: wd.Memory[Y, X, U16], out: wd.Memory[Y, X, C, U8], black: wd.Scalar[I32]):
    """Red and blue of every second row and column, green of the others; edges repeat."""
    y, x = wd.index(Y), wd.index(X)

    def near(dy, dx):
        there = at((Y, X), {Y: wd.clamp(y + dy, 0, Y - 1), X: wd.clamp(x + dx, 0, X - 1)})
        return wd.maximum(wd.cast(wd.read(raw, mapping=there), I32) - black, 0)

    here, above, beside = near(0, 0), near(-1, 0) + near(1, 0), near(0, -1) + near(0, 1)
    corners = (near(-1, -1) + near(-1, 1) + near(1, -1) + near(1, 1)) // 4
    even_row, even_column = y % 2 == 0, x % 2 == 0
    is_red, is_blue = even_row & even_column, ~even_row & ~even_column
    green = wd.where(is_red | is_blue, (above + beside) // 4, here)
    red = wd.where(is_red, here, wd.where(is_blue, corners, wd.where(even_row, beside // 2, above // 2)))
    blue = wd.where(is_blue, here, wd.where(is_red, corners, wd.where(even_row, above // 2, beside // 2)))
    for i, z in enumerate((red, green, blue)):
        wd.write(wd.cast(wd.minimum(z >> 2, 255), U8), out[:, :, i])


def mosaic_case(y: int, x: int) -> Case:
    raw = np.random.default_rng(0).integers(0, 1100, (y, x)).astype(np.uint16)
    padded = np.maximum(np.pad(raw.astype(int), 1, mode="edge") - 64, 0)

    def near(i: int, j: int) -> np.ndarray:
        return padded[1 + i : 1 + i + y, 1 + j : 1 + j + x]

    here, above, beside = near(0, 0), near(-1, 0) + near(1, 0), near(0, -1) + near(0, 1)
    corners = (near(-1, -1) + near(-1, 1) + near(1, -1) + near(1, 1)) // 4
    row, column = np.mgrid[:y, :x] % 2 == 0
    is_red, is_blue = row & column, ~row & ~column
    green = np.where(is_red | is_blue, (above + beside) // 4, here)
    red = np.where(is_red, here, np.where(is_blue, corners, np.where(row, beside // 2, above // 2)))
    blue = np.where(is_blue, here, np.where(is_red, corners, np.where(row, above // 2, beside // 2)))
    want = np.minimum(np.stack([red, green, blue], 2) >> 2, 255)
    return Case([raw, np.zeros(want.shape, np.uint8), 64], {1: want}, {C: 3}, 0, (Y, X))


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(Y, 1)])
def seams(energy: wd.Memory[B, Y, X, F32], cost: wd.Memory[B, Y, X, F32], step: wd.Memory[B, Y, X, I8]):
    x = wd.index(X)

    @wd.iterate(Y, init_args=[wd.Register[X, F32](0.0)])
    def rows(above):
        y = wd.tile_start(Y)
        left = wd.where(x > 0, wd.shuffle(above, wd.maximum(x - 1, 0), dim=X), math.inf)
        right = wd.where(x < X - 1, wd.shuffle(above, wd.minimum(x + 1, X - 1), dim=X), math.inf)
        best = wd.minimum(above, wd.minimum(left, right))
        wd.write(wd.cast(wd.where(left == best, -1, wd.where(above == best, 0, 1)), I8), step[B, y, :])
        new = best + wd.read(energy[B, y, :])
        wd.write(new, cost[B, y, :])
        return new


def seams_case(b: int, y: int, x: int) -> Case:
    energy = np.abs(whole(b, y, x, dtype=np.float32, high=9))
    above, cost, step = np.zeros((b, x)), np.zeros((b, y, x)), np.zeros((b, y, x))
    for i in range(y):
        padded = np.pad(above, ((0, 0), (1, 1)), constant_values=np.inf)
        best = np.minimum(above, np.minimum(padded[:, :-2], padded[:, 2:]))
        step[:, i] = np.where(padded[:, :-2] == best, -1, np.where(above == best, 0, 1))
        cost[:, i] = above = best + energy[:, i]
    return Case([energy, np.zeros_like(energy), np.zeros((b, y, x), np.int8)], {1: cost, 2: step}, {}, 0, (B, Y))


@wd.wave([wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(Y, 1, 1), wd.WorkgroupConstraint(X, 64, 0)])
def shuffled(
    x: wd.Memory[B, K, H, W, F16], skip: wd.Memory[B, D, Y, X, F16], out: wd.Memory[B, C + D, Y, X, F16]
):  # fmt: skip
    """Four channels become the four places of a picture twice as large; another picture's channels follow."""
    y, place, c = wd.index(Y), wd.index(X), wd.index(C)
    there = {B: B, K: c * 4 + y % 2 * 2 + place % 2, H: y // 2, W: place // 2}
    wd.write(wd.maximum(wd.read(x, mapping=at((C, X), there)), 0.0), out[:, :C, :, :])
    wd.write(wd.read(skip), out[:, C : C + D, :, :])


def shuffled_case(b: int, c: int, d: int, h: int, w: int) -> Case:
    x, skip = normal(b, 4 * c, h, w, dtype=np.float16), normal(b, d, 2 * h, 2 * w, seed=1, dtype=np.float16)
    large = x.reshape(b, c, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(b, c, 2 * h, 2 * w)
    want = np.concatenate([np.maximum(wide(large), 0), wide(skip)], 1)
    return Case([x, skip, np.zeros(want.shape, np.float16)], {2: want}, {C: c}, 0, (B,))


# ---- volumes and series: between eight places, windows as long as the host says


@wd.wave([wd.WorkgroupConstraint(C, 2, 2), wd.WorkgroupConstraint(Z, 1, 1), wd.WorkgroupConstraint(Y, 1, 1),
          wd.WorkgroupConstraint(X, 64, 0)])  # fmt: skip
def trilinear(v: wd.Memory[C, P, Q, S, F16], out: wd.Memory[C, Z, Y, X, F16]):
    def places(dim, source):
        s = wd.maximum((wd.cast(wd.index(dim), F32) + 0.5) * (source / dim) - 0.5, 0.0)
        low = wd.cast(s, I32)
        share = s - wd.cast(low, F32)
        return (low, 1.0 - share), (wd.minimum(low + 1, source - 1), share)

    total = wd.Register[C, X, F32](0.0)
    for z, of_z in places(Z, P):
        for y, of_y in places(Y, Q):
            for x, of_x in places(X, S):
                corner = wd.read(v, mapping=at((C, X), {C: C, P: z, Q: y, S: x}))
                total = total + of_z * of_y * of_x * wd.cast(corner, F32)
    wd.write(wd.cast(total, F16), out)


def trilinear_case(c: int, small: tuple[int, ...], large: tuple[int, ...]) -> Case:
    def shares(n: int, m: int) -> np.ndarray:
        s = np.maximum((np.arange(n) + 0.5) * (m / n) - 0.5, 0)
        low, found = s.astype(int), np.zeros((n, m))
        found[np.arange(n), low] += 1 - (s - low)
        found[np.arange(n), np.minimum(low + 1, m - 1)] += s - low
        return found

    v = normal(c, *small, dtype=np.float16)
    want = np.einsum("cpqr,zp,yq,xr->czyx", wide(v), *(shares(n, m) for n, m in zip(large, small)))
    return Case([v, np.zeros(want.shape, np.float16)], {1: want}, {}, 5e-3, (C,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(T, 256, 0)])
def rolling(
    x: wd.Memory[B, T, F32], window: wd.Scalar[I32], mean: wd.Memory[B, T, F32], spread: wd.Memory[B, T, F32]
):  # fmt: skip
    t = wd.index(T)

    def more(i, total, squares):
        return i < window

    def add(i, total, squares):
        z = wd.read(x, mapping=at((T,), {B: B, T: t - i}))
        return i + 1, total + z, squares + z * z

    zero = wd.Register[T, F32](0.0)
    _, total, squares = wd.while_loop(more, add, [wd.Register[I32](0), zero, zero])
    m = total / wd.cast(window, F32)
    variance = wd.maximum(squares / wd.cast(window, F32) - m * m, 0.0)
    wd.write(wd.where(t + 1 >= window, m, math.nan), mean)
    wd.write(wd.where(t + 1 >= window, wd.sqrt(variance), math.nan), spread)


def rolling_case(b: int, t: int, window: int) -> Case:
    x, want = whole(b, t, dtype=np.float32), np.full((2, b, t), np.nan)
    for i in range(window - 1, t):
        part = wide(x)[:, i - window + 1 : i + 1]
        want[:, :, i] = part.mean(1), part.std(1)
    return Case([x, window, np.zeros_like(x), np.zeros_like(x)], {2: want[0], 3: want[1]}, {}, 1e-5, (B, T))


# ---- layers: norms and positions of heads that lie together, a state that is complex, logarithms of running sums


@wd.wave([wd.WorkgroupConstraint(T, 4, 1), wd.WorkgroupConstraint(H, 1, 0)], subs={P: 64, S: 3})
def heads(
    qkv: wd.Memory[T, S, H, D, BF], gain: wd.Memory[S, D, BF], pos: wd.Memory[T, I64], table: wd.Memory[V, D, F32],
    q: wd.Memory[H, T, D, BF], k: wd.Memory[H, T, D, BF], v: wd.Memory[H, T, D, BF],
):  # fmt: skip
    """Queries, keys and values part; the first two get norms and positions, in halves of a head."""
    place = wd.read(pos)
    cos, sin = (wd.read(table, mapping=at((T, P), {V: place, D: P + half})) for half in (0, 64))
    for s, out in ((0, q), (1, k)):
        parts = [wd.read(qkv, mapping=at((T, P), {T: T, S: s, H: H, D: P + half})) for half in (0, 64)]
        x, y = (wd.cast(part, F32) for part in parts)
        r = wd.rsqrt((wd.sum(x * x, dim=P) + wd.sum(y * y, dim=P)) / 128 + 1e-6)
        gains = [wd.read(gain, mapping=at((P,), {S: s, D: P + half})) for half in (0, 64)]
        x, y = (z * r * wd.cast(g, F32) for z, g in zip((x, y), gains))
        wd.write(wd.cast(x * cos - y * sin, BF), out, mapping=at((T, P), {H: H, T: T, D: P}))
        wd.write(wd.cast(y * cos + x * sin, BF), out, mapping=at((T, P), {H: H, T: T, D: P + 64}))
    wd.write(wd.read(qkv[:, 2, H, :]), v)


def heads_case(t: int, h: int) -> Case:
    qkv, gain = normal(t, 3, h, 128, dtype=BF16), normal(3, 128, seed=1, dtype=BF16)
    pos = np.random.default_rng(0).integers(0, 50, t)
    angles = np.arange(50)[:, None] * 1e4 ** (-np.arange(64) / 64)
    table = np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    cos, sin = wide(table)[pos][:, None, :64], wide(table)[pos][:, None, 64:]
    wants = {6: wide(qkv)[:, 2].transpose(1, 0, 2)}
    for i in range(2):
        z = wide(qkv)[:, i]
        z = z / np.sqrt((z * z).mean(-1, keepdims=True) + 1e-6) * wide(gain)[i]
        x, y = z[..., :64], z[..., 64:]
        wants[4 + i] = np.concatenate([x * cos - y * sin, y * cos + x * sin], -1).transpose(1, 0, 2)
    outputs = [np.zeros((h, t, 128), BF16) for _ in range(3)]
    return Case([qkv, gain, pos, table, *outputs], wants, {}, 2e-2, (T,))


@wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(D, 16, 0)])
def complex_state(
    nu: wd.Memory[D, F32], theta: wd.Memory[D, F32], x: wd.Memory[B, T, D, I, F32], h: wd.Memory[B, T, D, I, F32]
):  # fmt: skip
    size = wd.exp(-wd.exp(wd.read(nu)))
    re, im = size * wd.cos(wd.read(theta)), size * wd.sin(wd.read(theta))

    def after(a, b):
        return (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0],
                b[0] * a[2] - b[1] * a[3] + b[2], b[0] * a[3] + b[1] * a[2] + b[3])  # fmt: skip

    given = [wd.read(x[B, :, :, i]) for i in range(2)]
    states = wd.scan((wd.broadcast(re, T, D), wd.broadcast(im, T, D), *given), after, (1.0, 0.0, 0.0, 0.0), dim=T)
    for i in range(2):
        wd.write(states[2 + i], h[B, :, :, i])


def complex_case(b: int, t: int, d: int) -> Case:
    nu, theta, x = normal(d), normal(d, seed=1), normal(b, t, d, 2, seed=2)
    factor, given = np.exp(-np.exp(wide(nu)) + 1j * wide(theta)), wide(x)[..., 0] + 1j * wide(x)[..., 1]
    h, state = np.zeros_like(given), np.zeros((b, d), complex)
    for i in range(t):
        h[:, i] = state = factor * state + given[:, i]
    return Case([nu, theta, x, np.zeros_like(x)], {3: np.stack([h.real, h.imag], -1)}, {I: 2}, 1e-4, (B,))


@wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
def log_sums(x: wd.Memory[M, N, F32], y: wd.Memory[M, N, F32]):
    def joined(a, b):
        top = wd.maximum(a[0], b[0])
        low = wd.where(top == -math.inf, 0.0, top)
        return top, a[1] * wd.exp(a[0] - low) + b[1] * wd.exp(b[0] - low)

    z = wd.read(x)
    ones = wd.where(z == -math.inf, 0.0, wd.Register[M, N, F32](1.0))
    top, total = wd.scan((z, ones), joined, (-math.inf, 0.0), dim=N)
    wd.write(top + wd.log(total), y)


def log_sums_case(m: int, n: int) -> Case:
    x = normal(m, n, scale=20)
    x[:, :2] = -np.inf
    return Case([x, np.zeros_like(x)], {1: np.logaddexp.accumulate(wide(x), 1)}, {}, 1e-5, (M,))


# ---- trees, pairs and lists: leaves of many trees, the hardest pairs, forces among neighbours in a box


@wd.wave([wd.WorkgroupConstraint(N, 64, 0), wd.WorkgroupConstraint(T, 1, 1)])
def forest(
    x: wd.Memory[N, F, F32], feature: wd.Memory[T, P, I8], threshold: wd.Memory[T, P, F32],
    children: wd.Memory[T, P, O, U16], leaf: wd.Memory[T, P, F32], out: wd.Memory[N, F32],
):  # fmt: skip
    def inside(node):
        return wd.read(feature[T, node]) >= 0

    def down(node):
        which = wd.cast(wd.read(feature[T, node]), I32)
        left = wd.read(x, mapping=at((N,), {N: N, F: which})) <= wd.read(threshold[T, node])
        return wd.cast(wd.where(left, wd.read(children[T, node, 0]), wd.read(children[T, node, 1])), I32)

    node = wd.while_loop(inside, down, [wd.Register[N, I32](0)])
    wd.atomic_add(wd.read(leaf[T, node]), out)


def forest_case(n: int, f: int, t: int, p: int) -> Case:
    x, threshold, leaf = normal(n, f), normal(t, p, seed=1), whole(t, p, seed=2, dtype=np.float32)
    feature = np.random.default_rng(0).integers(0, f, (t, p)).astype(np.int8)
    below = 2 * np.arange(p)[:, None] + [1, 2]
    feature[:, below[:, 1] >= p] = -1
    want = np.zeros(n)
    for a, tree in np.ndindex(n, t):
        node = 0
        while feature[tree, node] >= 0:
            node = below[node, int(x[a, feature[tree, node]] > threshold[tree, node])]
        want[a] += leaf[tree, node]
    children = np.broadcast_to(np.minimum(below, 65535), (t, p, 2)).astype(np.uint16)
    return Case([x, feature, threshold, children, leaf, np.zeros(n, np.float32)], {5: want}, {O: 2}, 1e-5, (N,))


@wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(N, 64)])
def triplets(
    a: wd.Memory[M, D, F16], b: wd.Memory[N, D, F16], of_a: wd.Memory[M, I64], of_b: wd.Memory[N, I64],
    margin: wd.Scalar[F32], loss: wd.Memory[M, F32], hardest: wd.Memory[M, O, I32],
):  # fmt: skip
    """Of each row the farthest of its own label and the nearest of another one."""
    nobody = wd.Register[M, I32](-1)
    x = wd.cast(wd.read(a), F32)
    own = wd.sum(x * x, dim=D)

    @wd.iterate(N, init_args=[wd.Register[M, F32](-math.inf), nobody, wd.Register[M, F32](math.inf), nobody])
    def search(far, far_at, near, near_at):
        y = wd.cast(wd.read(b), F32)
        distance = own + wd.sum(y * y, dim=D) - 2.0 * wd.mma(wd.read(a), wd.read(b))
        same = wd.read(of_a) == wd.read(of_b)
        alike, other = wd.where(same, distance, -math.inf), wd.where(same, math.inf, distance)
        f, n = wd.max(alike, dim=N), wd.min(other, dim=N)
        far_at = wd.where(f > far, wd.argmax(alike, dim=N), far_at)
        near_at = wd.where(n < near, wd.argmin(other, dim=N), near_at)
        return wd.maximum(far, f), far_at, wd.minimum(near, n), near_at

    far, far_at, near, near_at = search
    wd.write(wd.maximum(far - near + margin, 0.0), loss)
    wd.write(far_at, hardest[:, 0])
    wd.write(near_at, hardest[:, 1])


def triplets_case(m: int, n: int, d: int) -> Case:
    a, b, rng = whole(m, d), whole(n, d, seed=1), np.random.default_rng(2)
    of_a, of_b = rng.integers(0, 3, m), rng.integers(0, 3, n)
    distance, same = ((wide(a)[:, None] - wide(b)) ** 2).sum(2), of_a[:, None] == of_b
    alike, other = np.where(same, distance, -np.inf), np.where(same, np.inf, distance)
    wants = {5: np.maximum(alike.max(1) - other.min(1) + 0.5, 0), 6: np.stack([alike.argmax(1), other.argmin(1)], 1)}
    outputs = [np.zeros(m, np.float32), np.zeros((m, 2), np.int32)]
    return Case([a, b, of_a, of_b, 0.5, *outputs], wants, {O: 2}, 1e-4, (M, N))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def lennard_jones(
    pos: wd.Memory[N, D, F32], neighbours: wd.Memory[N, K, I32], counts: wd.Memory[N, I32], box: wd.Scalar[F32],
    cut: wd.Scalar[F32], force: wd.Memory[N, D, F32], energy: wd.Memory[1, wd.f64], skip: wd.Memory[1, I1],
):  # fmt: skip
    wd.exit_if(wd.read(skip[0]))
    there = wd.read(neighbours)
    delta = []
    for i in range(3):
        d = wd.read(pos[:, i]) - wd.read(pos[there, i])
        delta.append(d - box * wd.round(d / box))
    squared = sum(d * d for d in delta)
    counted = (wd.index(K) < wd.read(counts)) & (squared < cut * cut) & (squared > 0.0)
    inverse = wd.where(counted, 1.0 / wd.where(counted, squared, 1.0), 0.0)
    sixth = inverse * inverse * inverse
    f = 24.0 * inverse * sixth * (2.0 * sixth - 1.0)
    for i in range(3):
        wd.write(wd.sum(f * delta[i], dim=K), force[:, i])
    wd.atomic_add(wd.sum(wd.cast(2.0 * sixth * (sixth - 1.0), wd.f64), dim=(N, K)), energy[0])


def lennard_jones_case(n: int, k: int, skip: bool = False) -> Case:
    rng = np.random.default_rng(0)
    grid = np.stack(np.unravel_index(rng.permutation(1000)[:n], (10, 10, 10)), 1)
    pos = (grid * 1.1 + rng.random((n, 3)) * 0.1).astype(np.float32)
    neighbours, counts = rng.integers(0, n, (n, k)).astype(np.int32), rng.integers(0, k + 1, n).astype(np.int32)
    d = wide(pos)[:, None] - wide(pos)[neighbours]
    d -= 11 * np.round(d / 11)
    squared = (d * d).sum(2)
    counted = (np.arange(k) < counts[:, None]) & (squared < 9) & (squared > 0) & (not skip)
    inverse = np.where(counted, 1 / np.where(counted, squared, 1), 0)
    f = 24 * inverse**4 * (2 * inverse**3 - 1)
    wants = {5: (f[..., None] * d).sum(1), 6: np.array([(2 * inverse**3 * (inverse**3 - 1)).sum()])}
    outputs = [np.zeros((n, 3), np.float32), np.zeros(1), np.array([skip])]
    return Case([pos, neighbours, counts, 11.0, 3.0, *outputs], wants, {D: 3}, 2e-3, (N,))


KERNELS: dict[str, tuple[Any, Any, Any]] = {
    "columns": (columns, columns_case, ((1, 4, 16, 16, 1), (2, 3, 13, 11, 2))),
    "adaptive": (adaptive, adaptive_case, ((1, 16, 14, 14, 7, 7), (2, 19, 13, 17, 5, 9))),
    "mosaic": (mosaic, mosaic_case, ((1, 1), (7, 75))),
    "seams": (seams, seams_case, ((2, 3, 256), (3, 5, 333))),
    "shuffled": (shuffled, shuffled_case, ((1, 8, 8, 4, 32), (2, 3, 5, 5, 21))),
    "trilinear": (trilinear, trilinear_case, ((2, (4, 4, 32), (8, 8, 64)), (3, (3, 5, 7), (5, 9, 19)))),
    "rolling": (rolling, rolling_case, ((1, 5, 9), (3, 333, 20))),
    "heads": (heads, heads_case, ((8, 2), (7, 3))),
    "complex state": (complex_state, complex_case, ((1, 64, 32), (2, 37, 21))),
    "log sums": (log_sums, log_sums_case, ((4, 512), (7, 77))),
    "forest": (forest, forest_case, ((64, 8, 4, 31), (50, 5, 3, 13))),
    "triplets": (triplets, triplets_case, ((64, 128, 64), (50, 77, 40))),
    "lennard jones": (lennard_jones, lennard_jones_case, ((70, 9, True), (77, 11))),
}  # fmt: skip

test_against_numpy, test_the_evaluator_agrees, test_on_other_chips, test_the_assembler_takes_it = four_tests(KERNELS)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_waves_are_as_many_as_the_largest_value_wants(target: str) -> None:
    """Halves of heads beside whole ones: by all dimensions together four waves, with an element for each lane."""
    assert heads.compile(*heads_case(64, 2).arguments, target=target).block[0] == 128
