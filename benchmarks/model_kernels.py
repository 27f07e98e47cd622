"""Kernels of `triton_amdgcn.py` that models launch between and around plain products: what quantised, gated, routed and
rotated layers do. All sizes are those of the arguments."""

from __future__ import annotations

import functools
from typing import Any

from gemm_kernels import BK, BM, BN, WM, WN, Config, K, M, N

import wavedsl as wd

T, H, D, S, G, R, E, J, HALF = wd.symbols("T H D S G R E J HALF")


@functools.cache
def gated(dtype: wd.DType, columns: int) -> Any:
    """y = silu(gate) * up of x [M, 2, N]: gate and up of a token lie side by side, as one product leaves them."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={BN: columns})
    def gate(x: wd.Memory[M, S, N, dtype], y: wd.Memory[M, N, dtype]):
        a, b = (wd.cast(wd.read(x, mapping=wd.IndexMapping((M, N), {S: half})), wd.f32) for half in (0, 1))
        wd.write(wd.cast(a * wd.sigmoid(a) * b, dtype), y)

    return gate


@functools.cache
def rotated(dtype: wd.DType, tokens: int, heads: int) -> Any:
    """Rotary embedding of x [T, H, 2, D]: halves of a head are turned by angles whose cosine and sine are [T, D]."""

    @wd.wave([wd.WorkgroupConstraint(T, BM, 0), wd.WorkgroupConstraint(H, BN, 1)], subs={BM: tokens, BN: heads})
    def rotate(
        x: wd.Memory[T, H, S, D, dtype], cosine: wd.Memory[T, D, dtype], sine: wd.Memory[T, D, dtype],
        y: wd.Memory[T, H, S, D, dtype],
    ):  # fmt: skip
        low, high = (wd.IndexMapping((T, H, D), {S: half}) for half in (0, 1))
        a, b = (wd.cast(wd.read(x, mapping=half), wd.f32) for half in (low, high))
        c, s = wd.cast(wd.read(cosine), wd.f32), wd.cast(wd.read(sine), wd.f32)
        wd.write(wd.cast(a * c - b * s, dtype), y, mapping=low)
        wd.write(wd.cast(b * c + a * s, dtype), y, mapping=high)

    return rotate


@functools.cache
def layer_norm_backward(dtype: wd.DType, columns: int, waves: int) -> Any:
    """dx of a layer norm: rows of x and dy, weights w, each row's mean and 1 / sqrt(variance + eps)."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, BN, 1), wd.WaveConstraint(N, BN / waves)],
        subs={BN: columns},
    )
    def backward(
        x: wd.Memory[M, N, dtype], w: wd.Memory[N, dtype], dy: wd.Memory[M, N, dtype], mean: wd.Memory[M, wd.f32],
        rstd: wd.Memory[M, wd.f32], dx: wd.Memory[M, N, dtype],
    ):  # fmt: skip
        scale = wd.read(rstd)
        normal = (wd.cast(wd.read(x), wd.f32) - wd.read(mean)) * scale
        slope = wd.cast(wd.read(dy), wd.f32) * wd.cast(wd.read(w), wd.f32)
        along = wd.sum(slope * normal, dim=N) * (1.0 / columns)
        across = wd.sum(slope, dim=N) * (1.0 / columns)
        wd.write(wd.cast((slope - normal * along - across) * scale, dtype), dx)

    return backward


@functools.cache
def norm_quantised(dtype: wd.DType, quantised: wd.DType, most: float, columns: int, waves: int) -> Any:
    """h = x + residual; q * scale = h / sqrt(mean of h^2 + eps) * w, with one scale for each row."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, BN, 1), wd.WaveConstraint(N, BN / waves)],
        subs={BN: columns},
    )
    def norm(
        x: wd.Memory[M, N, dtype], residual: wd.Memory[M, N, dtype], w: wd.Memory[N, dtype], h: wd.Memory[M, N, dtype],
        q: wd.Memory[M, N, quantised], scale: wd.Memory[M, wd.f32], eps: wd.Scalar[wd.f32],
    ):  # fmt: skip
        total = wd.cast(wd.read(x), wd.f32) + wd.cast(wd.read(residual), wd.f32)
        wd.write(wd.cast(total, dtype), h)
        spread = wd.rsqrt(wd.sum(total * total, dim=N) * (1.0 / columns) + eps)
        y = total * spread * wd.cast(wd.read(w), wd.f32)
        largest = wd.maximum(wd.max(wd.abs(y), dim=N), 1e-12)
        wd.write(largest * (1.0 / most), scale)
        wd.write(wd.cast(wd.clamp(y * (most / largest), -most, most), quantised), q)

    return norm


@functools.cache
def gathered(dtype: wd.DType, columns: int) -> Any:
    """y[t] = table[ids[t]]."""

    @wd.wave([wd.WorkgroupConstraint(T, 1, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={BN: columns})
    def embed(table: wd.Memory[E, N, dtype], ids: wd.Memory[T, wd.i32], y: wd.Memory[T, N, dtype]):
        wd.write(wd.read(table, mapping=wd.IndexMapping((T, N), {E: wd.read(ids)})), y)

    return embed


@functools.cache
def scanned(dtype: wd.DType, columns: int) -> Any:
    """Running sums of rows."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={BN: columns})
    def scan(x: wd.Memory[M, N, dtype], y: wd.Memory[M, N, wd.f32]):
        wd.write(wd.cumsum(wd.cast(wd.read(x), wd.f32), dim=N), y)

    return scan


@functools.cache
def column_sums(dtype: wd.DType, rows: int, columns: int) -> Any:
    """Gradients of a norm's weights: sums over rows of dy * x, and of dy, a strip of columns a workgroup."""

    @wd.wave([wd.WorkgroupConstraint(N, BN, 0), wd.TilingConstraint(M, BM)], subs={BM: rows, BN: columns})
    def summed(
        x: wd.Memory[M, N, dtype], dy: wd.Memory[M, N, dtype], dw: wd.Memory[N, wd.f32], db: wd.Memory[N, wd.f32]
    ):
        @wd.iterate(M, init_args=[wd.Register[N, wd.f32](0.0), wd.Register[N, wd.f32](0.0)])
        def over(to_w, to_b):
            slope = wd.cast(wd.read(dy), wd.f32)
            return to_w + wd.sum(slope * wd.cast(wd.read(x), wd.f32), dim=M), to_b + wd.sum(slope, dim=M)

        wd.write(over[0], dw)
        wd.write(over[1], db)

    return summed


def _product(config: Config, **more: Any) -> Any:
    """The decorator of a product's tiles."""
    return wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, WN),
        ],
        subs={BM: config.m, BN: config.n, BK: config.k, WM: config.wave_m, WN: config.wave_n},
        schedule=wd.Schedule(**dict(config.schedule)) if config.schedule else None,
        **more,
    )


@functools.cache
def scaled(dtype: wd.DType, config: Config) -> Any:
    """c = (a b^T) * rows * columns of operands of 8 bits."""

    @_product(config)
    def product(
        a: wd.Memory[M, K, wd.SHARED, dtype], b: wd.Memory[N, K, wd.SHARED, dtype], rows: wd.Memory[M, wd.f32],
        columns: wd.Memory[N, wd.f32], c: wd.Memory[M, N, wd.bf16],
    ):  # fmt: skip
        sums = wd.f32 if dtype.is_float else wd.i32

        @wd.iterate(K, init_args=[wd.Register[M, N, sums](0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(wd.cast(wd.cast(loop, wd.f32) * wd.read(rows) * wd.read(columns), wd.bf16), c)

    return product


@functools.cache
def eight_bits(dtype: wd.DType, config: Config) -> Any:
    """y = x (q * scale)^T: weights q [N, K] of i8 with a factor per row."""

    @_product(config)
    def quantised(
        x: wd.Memory[M, K, wd.SHARED, dtype], q: wd.Memory[N, K, wd.SHARED, wd.i8], scale: wd.Memory[N, dtype],
        y: wd.Memory[M, N, dtype],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x), wd.cast(wd.read(q), dtype), acc)

        wd.write(wd.cast(loop * wd.cast(wd.read(scale), wd.f32), dtype), y)

    return quantised


@functools.cache
def groups_of_four_bits(config: Config) -> Any:
    """y = x ((q - zero) * scale)^T in f16: weights q [N, K] of 4 bits; a zero and a scale, [J, N], for each `config.k`
    of K."""

    @_product(config)
    def quantised(
        x: wd.Memory[M, K, wd.SHARED, wd.f16], q: wd.Memory[N, K, wd.SHARED, wd.u4], zero: wd.Memory[J, N, wd.f16],
        scale: wd.Memory[J, N, wd.f16], y: wd.Memory[M, N, wd.f16],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            group = wd.IndexMapping((N,), {J: wd.tile_start(K) // config.k})
            weights = wd.cast(wd.read(q), wd.f16) - wd.read(zero, mapping=group)
            return wd.mma(wd.read(x), weights * wd.read(scale, mapping=group), acc)

        wd.write(wd.cast(loop, wd.f16), y)

    return quantised


@functools.cache
def blocks_scaled(dtype: wd.DType, config: Config) -> Any:
    """c = sum over blocks of K of (a b^T) * sa * sb: factors [blocks, M] and [N / 128, blocks]."""

    @_product(config)
    def scaled(
        a: wd.Memory[M, K, wd.SHARED, dtype], b: wd.Memory[N, K, wd.SHARED, dtype], sa: wd.Memory[J, M, wd.f32],
        sb: wd.Memory[E, J, wd.f32], c: wd.Memory[M, N, wd.bf16],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            block = wd.tile_start(K) // config.k
            rows = wd.read(sa, mapping=wd.IndexMapping((M,), {J: block}))
            column = wd.read(sb, mapping=wd.IndexMapping((), {E: wd.tile_start(N) // 128, J: block}))
            return wd.fma(wd.mma(wd.read(a), wd.read(b)), rows * column, acc)

        wd.write(wd.cast(loop, wd.bf16), c)

    return scaled


@functools.cache
def microscaled(dtype: wd.DType, config: Config, space: tuple[Any, ...] = ()) -> Any:
    """c = (a sa) (b sb)^T: operands [M, K] and [N, K] of 8 or 4 bits with a power of two for every 32 of K. `space`:
    where waves take the powers from, if that is not the compiler's choice."""

    @_product(config)
    def product(
        a: wd.Memory[M, K, wd.SHARED, dtype], sa: wd.Memory[(M, K / 32, *space, wd.f8e8m0)],
        b: wd.Memory[N, K, wd.SHARED, dtype], sb: wd.Memory[(N, K / 32, *space, wd.f8e8m0)],
        c: wd.Memory[M, N, wd.bf16],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.scaled_mma(wd.read(a), wd.read(sa), wd.read(b), wd.read(sb), acc)

        wd.write(wd.cast(loop, wd.bf16), c)

    return product


@functools.cache
def gate_and_up(dtype: wd.DType, config: Config) -> Any:
    """h = silu(x gate^T) * (x up^T), both products in one loop."""

    @_product(config)
    def hidden(
        x: wd.Memory[M, K, wd.SHARED, dtype], gate: wd.Memory[N, K, wd.SHARED, dtype],
        up: wd.Memory[N, K, wd.SHARED, dtype], h: wd.Memory[M, N, dtype],
    ):  # fmt: skip
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero, zero])
        def loop(left, right):
            rows = wd.read(x)
            return wd.mma(rows, wd.read(gate), left), wd.mma(rows, wd.read(up), right)

        left, right = loop
        wd.write(wd.cast(left * wd.sigmoid(left) * right, dtype), h)

    return hidden


@functools.cache
def routed(dtype: wd.DType, config: Config) -> Any:
    """y[id] = x[id] w[expert]^T for each block of `config.m` tokens: ids [G, R], one expert per block; a row whose id
    is not a token's is none."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(R, BM, 2),
            wd.WorkgroupConstraint(G, 1, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(R, WM),
            wd.WaveConstraint(N, WN),
        ],
        subs={BM: config.m, BN: config.n, BK: config.k, WM: config.wave_m, WN: config.wave_n},
        schedule=wd.Schedule(**dict(config.schedule)) if config.schedule else None,
    )
    def grouped(
        x: wd.Memory[T, K, wd.SHARED, dtype], w: wd.Memory[E, N, K, wd.SHARED, dtype], ids: wd.Memory[G, R, wd.i32],
        expert: wd.Memory[G, wd.i32], y: wd.Memory[T, N, dtype],
    ):  # fmt: skip
        mine, rows = wd.read(expert), wd.read(ids)

        @wd.iterate(K, init_args=[wd.Register[R, N, wd.f32](0.0)])
        def loop(acc):
            tokens = wd.read(x, mapping=wd.IndexMapping((R, K), {T: rows}))
            return wd.mma(tokens, wd.read(w, mapping=wd.IndexMapping((N, K), {E: mine})), acc)

        wd.write(wd.cast(loop, dtype), y, mapping=wd.IndexMapping((R, N), {T: rows}))

    return grouped
