"""Numbers rounded to few: rows, groups of odd sizes and blocks into bytes and half bytes and back, with zero points,
with common exponents, by Hessians, by chance; products by such weights and by entries of books."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from families import Case, both_tests, normal, whole, wide

import wavedsl as wd

B, C, D, E, G, H, J, K, L, M, N, P, R, S, T, V = wd.symbols("B C D E G H J K L M N P R S T V")
BF16, F16, F32, F8, I8, I32, U4, U8 = wd.bf16, wd.f16, wd.f32, wd.f8e4m3, wd.i8, wd.i32, wd.u4, wd.u8
HALF, EIGHT = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


def packed(x: np.ndarray) -> np.ndarray:
    return (x[..., ::2] | x[..., 1::2] << 4).astype(np.uint8)


# ---- rows and groups


@wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
def rows_with_zeros(
    x: wd.Memory[M, N, BF16], q: wd.Memory[M, N, U8], scale: wd.Memory[M, F32], zero: wd.Memory[M, U8],
    back: wd.Memory[M, N, BF16],
):  # fmt: skip
    """Row by row from the least to the largest number, 0 among them, in 255 steps; and what that makes of them."""
    row = wd.cast(wd.read(x), F32)
    low, high = wd.minimum(wd.min(row, dim=N), 0.0), wd.maximum(wd.max(row, dim=N), 0.0)
    step = wd.maximum((high - low) / 255, 1e-8)
    z = wd.clamp(wd.round(-low / step), 0, 255)
    byte = wd.cast(wd.clamp(wd.round(row / step) + z, 0, 255), U8)
    wd.write(byte, q)
    wd.write(step, scale)
    wd.write(wd.cast(z, U8), zero)
    wd.write(wd.cast((wd.cast(byte, F32) - z) * step, BF16), back)


def rows_case(m: int, n: int) -> Case:
    x = normal(m, n, dtype=HALF)
    row = x.astype(np.float32)
    low, high = np.minimum(row.min(1), 0), np.maximum(row.max(1), 0)
    step = np.maximum((high - low) / np.float32(255), np.float32(1e-8))
    z = np.clip(np.round(-low / step), 0, 255)
    byte = np.clip(np.round(row / step[:, None]) + z[:, None], 0, 255)
    back = (byte - z[:, None]) * step[:, None]
    outputs = np.zeros((m, n), np.uint8), np.zeros(m, np.float32), np.zeros(m, np.uint8), np.zeros((m, n), HALF)
    return Case([x, *outputs], {1: byte, 2: step, 3: z, 4: wide(back.astype(HALF))}, {}, 1e-6, (M,))


@wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
def groups_of_forty(
    w: wd.Memory[M, N, F32], q: wd.Memory[M, N, U4], scale: wd.Memory[M, N / 40, F16], zero: wd.Memory[M, N / 40, U8],
):  # fmt: skip
    groups = wd.reshape(wd.read(w), M, G, J)
    low, high = wd.min(groups, dim=J), wd.max(groups, dim=J)
    step = wd.maximum((high - low) / 15, 1e-6)
    z = wd.clamp(wd.round(-low / step), 0, 15)
    code = wd.clamp(wd.round(groups / step) + z, 0, 15)
    wd.write(wd.cast(wd.reshape(code, M, N), U4), q)
    wd.write(wd.cast(step, F16), scale[:, wd.index(G)])
    wd.write(wd.cast(z, U8), zero[:, wd.index(G)])


def forty_case(m: int, n: int) -> Case:
    w = normal(m, n)
    groups = w.reshape(m, n // 40, 40)
    low, high = groups.min(2), groups.max(2)
    step = np.maximum((high - low) / np.float32(15), np.float32(1e-6))
    z = np.clip(np.round(-low / step), 0, 15)
    code = np.clip(np.round(groups / step[..., None]) + z[..., None], 0, 15).astype(int).reshape(m, n)
    outputs = np.zeros((m, n // 2), np.uint8), np.zeros(z.shape, np.float16), np.zeros(z.shape, np.uint8)
    return Case([w, *outputs], {1: packed(code), 2: step, 3: z}, {G: n // 40, J: 40}, 1e-3, (M,))


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 80)])
def by_groups_of_forty(
    x: wd.Memory[M, K, F16], w: wd.Memory[N, K, U4], scale: wd.Memory[N, K / 40, F16], zero: wd.Memory[N, K / 40, U8],
    y: wd.Memory[M, N, F32],
):  # fmt: skip
    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def total(acc):
        code = wd.cast(wd.read(w), F16) - wd.repeat_interleave(wd.cast(wd.read(zero), F16), K)
        return wd.mma(wd.read(x), code * wd.repeat_interleave(wd.read(scale), K), acc)

    wd.write(total, y)


def by_forty_case(m: int, n: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    x, q, zero = whole(m, k), rng.integers(0, 16, (n, k)), rng.integers(0, 16, (n, k // 40)).astype(np.uint8)
    scale = (rng.integers(1, 5, zero.shape) / 8).astype(np.float16)
    w = (q - np.repeat(zero, 40, 1).astype(int)) * np.repeat(wide(scale), 40, 1)
    return Case([x, packed(q), scale, zero, np.zeros((m, n), np.float32)], {4: wide(x) @ w.T}, {}, 1e-3, (M, N))


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(C, 1, 1)], subs={L: 128})
def turned_blocks(
    x: wd.Memory[M, K, BF16], q: wd.Memory[M, K, F8], scale: wd.Memory[C, M, F32], turned: wd.Memory[K, M, F8],
):  # fmt: skip
    """Powers of two as factors of 1 x 128, block by block in memory; the bytes as they are, and turned."""
    place = wd.index(C) * 128 + wd.index(L)
    row = wd.cast(wd.read(x[:, place]), F32)
    top = wd.maximum(wd.max(wd.abs(row), dim=L), 1e-4) / 448
    factor = wd.exp2(wd.ceil(wd.log2(top)))
    byte = wd.cast(row / factor, F8)
    wd.write(byte, q[:, place])
    wd.write(byte, turned[place, :])
    wd.write(factor, scale)


def turned_case(m: int, k: int) -> Case:
    x = normal(m, k, dtype=HALF)
    count = -(-k // 128)
    blocks = np.zeros((m, count * 128), np.float32)
    blocks[:, :k] = x.astype(np.float32)
    blocks = blocks.reshape(m, count, 128)
    factor = np.exp2(np.ceil(np.log2(np.maximum(np.abs(blocks).max(2), 1e-4) / 448)))
    byte = (blocks / factor[..., None]).astype(np.float32).astype(EIGHT).reshape(m, -1)[:, :k]
    outputs = np.zeros((m, k), EIGHT), np.zeros((count, m), np.float32), np.zeros((k, m), EIGHT)
    return Case([x, *outputs], {1: wide(byte), 2: factor.T, 3: wide(byte.T)}, dynamic=(M, C))


@wd.wave([wd.WorkgroupConstraint(N, 64, 0), wd.WorkgroupConstraint(K, 128, 1)])
def blocks_to_halves(w: wd.Memory[N, K, F8], scale: wd.Memory[R, C, F32], y: wd.Memory[N, K, BF16]):
    """Factors of blocks of 128 x 128, the last ones cut off."""
    factor = wd.read(scale[wd.index(N) // 128, wd.index(K) // 128])
    wd.write(wd.cast(wd.cast(wd.read(w), F32) * factor, BF16), y)


def blocks_case(n: int, k: int) -> Case:
    w, scale = normal(n, k).astype(EIGHT), normal(-(-n // 128), -(-k // 128), seed=1)
    want = w.astype(np.float32) * np.repeat(np.repeat(scale, 128, 0), 128, 1)[:n, :k]
    return Case([w, scale, np.zeros((n, k), HALF)], {2: wide(want.astype(HALF))}, dynamic=(N,))


# ---- norms and bytes


@wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
def smoothed_norm(
    x: wd.Memory[M, N, F16], residual: wd.Memory[M, N, F16], gain: wd.Memory[N, F16], shift: wd.Memory[N, F16],
    smooth: wd.Memory[N, F32], q: wd.Memory[M, N, I8], scale: wd.Memory[M, F32], total: wd.Memory[M, F32],
):  # fmt: skip
    """Residual, layer norm, columns divided by what makes them alike, bytes; and the bytes' sums, for zero points."""
    row = wd.cast(wd.read(x), F32) + wd.cast(wd.read(residual), F32)
    wd.write(wd.cast(row, F16), residual)
    mean = wd.sum(row, dim=N) / N
    away = row - mean
    var = wd.sum(away * away, dim=N) / N
    y = away * wd.rsqrt(var + 1e-5) * wd.cast(wd.read(gain), F32) + wd.cast(wd.read(shift), F32)
    y = y / wd.read(smooth)
    top = wd.max(wd.abs(y), dim=N) / 127
    byte = wd.cast(wd.round(y / top), I8)
    wd.write(byte, q)
    wd.write(top, scale)
    wd.write(wd.cast(wd.sum(wd.cast(byte, I32), dim=N), F32) * top, total)


def smoothed_case(m: int, n: int) -> Case:
    x, residual = (normal(m, n, seed=i, dtype=np.float16) for i in (6, 7))
    gain, shift, smooth = whole(n, seed=2, low=1), whole(n, seed=3), whole(n, seed=4, dtype=np.float32, low=1)
    row = wide(x) + wide(residual)
    away = row - row.mean(1, keepdims=True)
    y = away / np.sqrt((away**2).mean(1, keepdims=True) + 1e-5) * wide(gain) + wide(shift)
    y = y / smooth
    top = np.abs(y).max(1) / 127
    byte = np.round(y / top[:, None])
    outputs = np.zeros((m, n), np.int8), np.zeros(m, np.float32), np.zeros(m, np.float32)
    want = {1: wide(row.astype(np.float16)), 5: byte, 6: top, 7: byte.sum(1) * top}
    return Case([x, residual, gain, shift, smooth, *outputs], want, {}, 1e-4, (M,))


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
def four_by_eight(
    x: wd.Memory[M, K, I8], sx: wd.Memory[M, F32], w: wd.Memory[N, K, U4], zero: wd.Memory[N, K / 64, I8],
    level: wd.Memory[N, K / 64, I8], sw: wd.Memory[N, F32], bias: wd.Memory[N, F32], y: wd.Memory[M, N, F16],
):  # fmt: skip
    """Weights of four bits become bytes by whole factors of 64 of them, bytes are multiplied by bytes."""
    @wd.iterate(K, init_args=[wd.Register[M, N, I32](0)])
    def total(acc):
        code = wd.cast(wd.read(w), I8) - wd.repeat_interleave(wd.read(zero), K)
        return wd.mma(wd.read(x), code * wd.repeat_interleave(wd.read(level), K), acc)

    wd.write(wd.cast(wd.cast(total, F32) * wd.read(sx) * wd.read(sw) + wd.read(bias), F16), y)


def four_by_eight_case(m: int, n: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    x, q = rng.integers(-127, 128, (m, k)).astype(np.int8), rng.integers(0, 16, (n, k))
    zero, level = rng.integers(0, 16, (n, k // 64)).astype(np.int8), rng.integers(1, 8, (n, k // 64)).astype(np.int8)
    sx, sw, bias = (rng.random(m) * 1e-3).astype("f4"), (rng.random(n) * 1e-2).astype("f4"), normal(n, seed=1)
    w = (q - np.repeat(wide(zero), 64, 1)) * np.repeat(wide(level), 64, 1)
    want = (x.astype(np.int64) @ w.T.astype(np.int64)) * wide(sx)[:, None] * wide(sw) + bias
    return Case([x, sx, packed(q), zero, level, sw, bias, np.zeros((m, n), np.float16)], {7: want}, {}, 2e-3, (M, N))


# ---- rounding by what it costs, and by chance


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)], subs={K: 16})
def hessian_columns(
    w: wd.Memory[N, K, F32], inverse: wd.Memory[K, J, F32], scale: wd.Memory[N, F32], q: wd.Memory[N, K, I8],
    error: wd.Memory[N, K, F32],
):  # fmt: skip
    """GPTQ's block: column by column rounded, what that costs made good in the columns behind."""
    step, rows = wd.read(scale), wd.read(w)
    columns = [wd.extract(rows, {K: i}) for i in range(16)]
    factors = wd.read(inverse)
    for i in range(16):
        code = wd.clamp(wd.round(columns[i] / step), -8, 7)
        off = (columns[i] - code * step) / wd.extract(factors, {K: i, J: i})
        wd.write(wd.cast(code, I8), q[:, i])
        wd.write(off, error[:, i])
        for j in range(i, 16):
            columns[j] = columns[j] - off * wd.extract(factors, {K: i, J: j})


def hessian_case(n: int) -> Case:
    rng = np.random.default_rng(0)
    w, scale = whole(n, 16, dtype=np.float32, low=-31, high=32) / 8, np.full(n, 0.5, np.float32)
    inverse = np.triu(rng.integers(-2, 3, (16, 16)) / 8).astype(np.float32)
    np.fill_diagonal(inverse, 1)
    columns, q, error = wide(w), np.zeros((n, 16)), np.zeros((n, 16))
    for i in range(16):
        q[:, i] = np.clip(np.round(columns[:, i] / 0.5), -8, 7)
        error[:, i] = columns[:, i] - q[:, i] * 0.5
        columns[:, i:] -= error[:, i : i + 1] * inverse[i, i:]
    return Case([w, inverse, scale, np.zeros((n, 16), np.int8), np.zeros((n, 16), np.float32)], {3: q, 4: error},
                {J: 16}, 1e-4, (N,))


@wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
def by_chance(p: wd.Memory[N, BF16], update: wd.Memory[N, F32], rate: wd.Scalar[F32], seed: wd.Scalar[wd.u32]):
    """Weights in halves that small steps still move: rounded up as often as they lie near the upper neighbour."""
    exact = wd.cast(wd.read(p), F32) - rate * wd.read(update)
    bits = wd.bitcast(exact, wd.u32) + (wd.random(seed, N, dtype=wd.u32) >> 16)
    wd.write(wd.cast(wd.bitcast(bits & 0xFFFF0000, F32), BF16), p)


def by_chance_case(n: int) -> Case:
    p, update = normal(n, dtype=HALF), normal(n, seed=1)
    exact = (p.astype(np.float32) - np.float32(0.01) * update).astype(np.float32)
    low = exact.view(np.uint32) & np.uint32(0xFFFF0000)
    want = wide(low.view(np.float32))
    return Case([p, update, np.float32(0.01), np.uint32(5)], {0: want}, {}, 8e-3, (N,))


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 64, 1)])
def cast_and_turned(
    x: wd.Memory[M, N, BF16], scale: wd.Memory[1, F32], top: wd.Memory[1, F32], y: wd.Memory[M, N, F8],
    turned: wd.Memory[N, M, F8],
):  # fmt: skip
    """By the scale of steps before; what the largest is now is for the next one."""
    v = wd.cast(wd.read(x), F32)
    wd.atomic_max(wd.max(wd.abs(v), dim=(M, N)), top[0])
    byte = wd.cast(wd.clamp(v * wd.read(scale[0]), -448.0, 448.0), F8)
    wd.write(byte, y)
    wd.write(byte, turned)


def cast_case(m: int, n: int) -> Case:
    x = normal(m, n, dtype=HALF)
    byte = np.clip(x.astype(np.float32) * np.float32(100), -448, 448).astype(EIGHT)
    outputs = np.zeros(1, np.float32), np.zeros((m, n), EIGHT), np.zeros((n, m), EIGHT)
    return Case([x, np.full(1, 100, np.float32), *outputs],
                {2: np.array([np.abs(wide(x)).max()]), 3: wide(byte), 4: wide(byte.T)}, dynamic=(M, N))


@wd.wave([wd.WorkgroupConstraint(C, 1, 0)])
def scales_of_steps(history: wd.Memory[L, C, F32], scale: wd.Memory[C, F32], margin: wd.Scalar[F32]):
    """Delayed scaling: the history moves on by one, in place; a factor from the largest of it."""
    past = wd.read(history)
    moved = wd.where(wd.index(L) == 0, 0.0, wd.shuffle(past, wd.index(L) - 1, dim=L))
    top = wd.max(past, dim=L)
    new = wd.exp2(wd.floor(wd.log2(448.0 / top)) - margin)
    fine = (top > 0) & wd.isfinite(top)
    wd.write(wd.where(fine, new, wd.read(scale)), scale)
    wd.write(moved, history)


def scales_case(length: int, c: int) -> Case:
    history, scale = np.abs(normal(length, c)), np.full(c, 3, np.float32)
    history[:, 0] = 0
    history[1, 1] = np.inf
    top = history.max(0)
    with np.errstate(all="ignore"):
        new = np.exp2(np.floor(np.log2(448 / top)) - 1)
    want = np.where((top > 0) & np.isfinite(top), new, 3)
    moved = np.concatenate([np.zeros((1, c)), history[:-1]])
    return Case([history, scale, np.float32(1)], {0: moved, 1: want}, dynamic=(C,))


# ---- books


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)],
         subs={P: 2, E: 8})  # fmt: skip
def two_books(
    x: wd.Memory[M, K, F16], code: wd.Memory[N, K / 8, P, U8], book: wd.Memory[P, V, E, F16], scale: wd.Memory[N, F32],
    y: wd.Memory[M, N, F32],
):  # fmt: skip
    """AQLM: eight weights are the sum of an entry of each of two books."""
    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def total(acc):
        k = wd.index(K)
        parts = [wd.cast(wd.read(code[:, k // 8, i]), I32) for i in (0, 1)]
        first, second = (wd.read(book[i, part, k % 8]) for i, part in enumerate(parts))
        return wd.mma(wd.read(x), first + second, acc)

    wd.write(total * wd.read(scale), y)


def two_books_case(m: int, n: int, k: int) -> Case:
    rng = np.random.default_rng(0)
    x, code, book = whole(m, k), rng.integers(0, 256, (n, k // 8, 2)).astype(np.uint8), whole(2, 256, 8, seed=1)
    scale = rng.random(n).astype(np.float32)
    w = (wide(book)[0][code[:, :, 0]] + wide(book)[1][code[:, :, 1]]).reshape(n, k)
    want = wide(x) @ w.T * scale
    return Case([x, code, book, scale, np.zeros((m, n), np.float32)], {4: want}, {}, 1e-5, (M, N))


@wd.wave([wd.WorkgroupConstraint(M, 1, 1), wd.WorkgroupConstraint(N, 16, 0)], subs={J: 5})
def five_in_a_byte(x: wd.Memory[M, L, J, F16], w: wd.Memory[N, L, U8], scale: wd.Scalar[F32], y: wd.Memory[M, N, F32]):
    """Weights -1, 0 and 1 as digits of base three."""
    byte, total = wd.cast(wd.read(w), I32), wd.Register[N, F32](0.0)
    for i, power in enumerate((1, 3, 9, 27, 81)):
        digit = wd.cast(byte // power % 3 - 1, F32)
        total = total + wd.sum(digit * wd.cast(wd.read(x[:, :, i]), F32), dim=L)
    wd.write(total * scale, y)


def five_case(m: int, n: int, size: int) -> Case:
    rng = np.random.default_rng(0)
    digits, x = rng.integers(0, 3, (n, size, 5)), whole(m, size, 5)
    w = (digits * 3 ** np.arange(5)).sum(2).astype(np.uint8)
    want = wide(x).reshape(m, -1) @ (digits - 1).reshape(n, -1).T * 0.5
    return Case([x, w, np.float32(0.5), np.zeros((m, n), np.float32)], {3: want}, dynamic=(M, N))


KERNELS = {
    "rows-with-zeros": (rows_with_zeros, rows_case, ((4, 256), (9, 333))),
    "groups-of-forty": (groups_of_forty, forty_case, ((8, 160), (11, 280))),
    "by-groups-of-forty": (by_groups_of_forty, by_forty_case, ((45, 70, 240),)),
    "turned-blocks": (turned_blocks, turned_case, ((16, 256), (21, 384))),
    "blocks-to-halves": (blocks_to_halves, blocks_case, ((128, 256), (150, 333))),
    "smoothed-norm": (smoothed_norm, smoothed_case, ((4, 256), (9, 331))),
    "four-by-eight": (four_by_eight, four_by_eight_case, ((45, 70, 192),)),
    "hessian-columns": (hessian_columns, hessian_case, ((101,),)),
    "by-chance": (by_chance, by_chance_case, ((256,), (1001,))),
    "cast-and-turned": (cast_and_turned, cast_case, ((32, 64), (45, 101))),
    "scales-of-steps": (scales_of_steps, scales_case, ((16, 4), (33, 7))),
    "two-books": (two_books, two_books_case, ((21, 70, 192),)),
    "five-in-a-byte": (five_in_a_byte, five_case, ((2, 16, 64), (3, 21, 77))),
}
CHIPS = dict.fromkeys(("turned-blocks", "blocks-to-halves", "cast-and-turned"), ("gfx950", "sm_90a"))


test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS, CHIPS)
