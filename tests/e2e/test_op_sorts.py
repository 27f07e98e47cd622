"""Sorting, top-k and reshape on every chip: text against evaluator, exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree
from products import BM, BN, M, N

import wavedsl as wd

TOP, P, Q, R = wd.symbols("TOP P Q R")
SHAPES = [((16, 64), (16, 64)), ((17, 50), (8, 50)), ((33, 7), (64, 8))]
DTYPES = [wd.f32, wd.f16, wd.u32, *(pytest.param(d, marks=pytest.mark.slow) for d in (wd.bf16, wd.i8, wd.f64, wd.u16))]


def numbers(shape: tuple[int, ...], dtype: wd.DType, seed: int = 0) -> np.ndarray:
    """Many equal ones; floats with NaN, infinities and both zeros among them."""
    rng = np.random.default_rng(seed)
    if dtype.is_int:
        info = np.iinfo(dtype.numpy)
        return rng.choice(np.array([info.min, info.max, 0, 1, 5, 7, info.max - 1], dtype.numpy), shape)
    found = rng.integers(-9, 10, shape).astype(np.float64)
    found.ravel()[::11] = rng.choice([np.nan, np.inf, -np.inf, -0.0], found.ravel()[::11].shape)
    return found.astype(dtype.storage)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_sorted_rows(descending: bool, dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)])
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, dtype]):
        wd.write(wd.sort(wd.read(a), dim=N, descending=descending), b)

    for shape, tile in SHAPES[1:2] if descending else SHAPES:
        arguments = [numbers(shape, dtype), np.zeros(shape, dtype.storage)]
        agree(kernel, arguments, target, oracle if shape == (17, 50) else None, subs=dict(zip((BM, BN), tile)))


@pytest.mark.parametrize("target", TARGETS)
def test_sorted_columns(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(N, 32, 0)])
    def kernel(a: wd.Memory[M, N, wd.i32], b: wd.Memory[M, N, wd.i32]):
        wd.write(wd.sort(wd.read(a), dim=M), b)

    for shape in ((32, 64), (13, 40)):
        agree(kernel, [numbers(shape, wd.i32), np.zeros(shape, np.int32)], target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_largest_and_where_they_were(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """The earlier of equals first; where there are too few, the lowest number and -1."""

    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)])
    def kernel(a: wd.Memory[M, N, dtype], values: wd.Memory[M, TOP, dtype], places: wd.Memory[M, TOP, wd.i32]):
        best, where = wd.topk(wd.read(a), TOP, dim=N)
        wd.write(best, values)
        wd.write(where, places)

    for shape, tile in SHAPES:
        for k in (4,) if shape != (33, 7) else (1, 9):
            out = np.zeros((shape[0], k), dtype.storage), np.zeros((shape[0], k), np.int32)
            subs = dict(zip((BM, BN), tile))
            checked = oracle if (shape[1], k) == (50, 4) else None
            agree(kernel, [numbers(shape, dtype), *out], target, checked, subs=subs)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_long_rows(target: str) -> None:
    """More elements than lanes: the network goes through registers too."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32], c: wd.Memory[M, TOP, wd.i32]):
        x = wd.read(a)
        wd.write(wd.sort(x, dim=N), b)
        wd.write(wd.topk(x, TOP, dim=N)[1], c)

    agree(kernel, [numbers((5, 300), wd.f32), np.zeros((5, 300), np.float32), np.zeros((5, 7), np.int32)], target)


SPLITS = [((8, 64), (4, 16)), ((9, 60), (5, 12)), ((16, 48), (3, 16)), ((3, 128), (128, 1))]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.f16, wd.i8], ids=str)
def test_heads_split_and_joined(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """[M, N] to [M, P, Q], something along Q, and back."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, dtype], c: wd.Memory[M, P, Q, dtype]):
        heads = wd.reshape(wd.read(a), M, P, Q)
        wd.write(heads, c)
        wd.write(wd.reshape(heads - wd.max(heads, dim=Q), M, N), b)

    for shape, (p, q) in SPLITS:
        a = np.random.default_rng(1).integers(-9, 10, shape).astype(dtype.storage)
        arguments = [a, np.zeros_like(a), np.zeros((shape[0], p, q), a.dtype)]
        agree(kernel, arguments, target, oracle if p == 5 else None)


@pytest.mark.parametrize("target", TARGETS)
def test_two_dimensions_to_two_others(target: str) -> None:
    S, U = wd.symbols("S U")

    @wd.wave([wd.WorkgroupConstraint(R, 1, 0)])
    def kernel(a: wd.Memory[R, P, Q, wd.f32], b: wd.Memory[R, S, U, wd.f32]):
        wd.write(wd.reshape(wd.permute(wd.read(a), Q, P), S, U), b)

    for (p, q), (s, u) in (((8, 16), (4, 32)), ((6, 10), (15, 4)), ((1, 64), (64, 1))):
        a = np.random.default_rng(1).standard_normal((2, p, q)).astype(np.float32)
        agree(kernel, [a, np.zeros((2, s, u), np.float32)], target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(16, 4, 4), (12, 3, 4), (5, 5, 1)], ids=str)
def test_what_trails_may_be_shared(shape: tuple[int, int, int], target: str) -> None:
    """Dimensions behind those that change stay as well: workgroups, waves and trips share N."""

    @wd.wave([wd.WorkgroupConstraint(R, 1, 1), wd.WorkgroupConstraint(N, 32, 0), wd.WaveConstraint(N, 16)])
    def by_waves(a: wd.Memory[R, M, N, wd.f32], b: wd.Memory[R, P, Q, N, wd.f32]):
        wd.write(wd.reshape(wd.read(a), P, Q, N), b)

    @wd.wave([wd.WorkgroupConstraint(R, 1, 0), wd.TilingConstraint(N, 32)])
    def by_trips(a: wd.Memory[R, M, N, wd.f32], b: wd.Memory[R, P, Q, N, wd.f32]):
        @wd.iterate(N)
        def loop():
            wd.write(wd.reshape(wd.read(a), P, Q, N), b)

    m, p, q = shape
    for kernel in (by_waves, by_trips):
        a = np.random.default_rng(1).standard_normal((2, m, 70)).astype(np.float32)
        agree(kernel, [a, np.zeros((2, p, q, 70), np.float32)], target)


def test_a_batch_that_the_result_lacks() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
    def kernel(a: wd.Memory[M, P, wd.f32], b: wd.Memory[M, Q, wd.f32]):
        wd.write(wd.read(b) + wd.reshape(wd.read(a), Q), b)

    with pytest.raises(wd.CompileError, match=r"name it in the result as well: wd.reshape\(x, M, Q\)"):
        kernel.compile(target="gfx942", subs={M: 8, P: 6, Q: 6})


@pytest.mark.parametrize("target", TARGETS)
def test_half_filled_words_move_between_lanes(target: str) -> None:
    """One bf16 per lane becomes two: its word is half empty before and full after."""
    tiles = [wd.WorkgroupConstraint(M, 16, 0), wd.WaveConstraint(M, 16), wd.WorkgroupConstraint(N, 32, 1)]

    @wd.wave([*tiles, wd.WaveConstraint(N, 32)])
    def kernel(x: wd.Memory[M, N, wd.bf16], y: wd.Memory[M, N, wd.f32], z: wd.Memory[M, N, wd.f32]):
        wd.write(wd.sort(wd.read(y), dim=N) + wd.cast(wd.max(wd.read(x), dim=N), wd.f32), z)

    x = np.random.default_rng(1).integers(-20, 21, (16, 32))
    agree(kernel, [x.astype(wd.bf16.storage), -x.astype(np.float32), np.zeros((16, 32), np.float32)], target)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_the_largest_of_a_long_row(target: str) -> None:
    """Runs of k meet two at a time: no network sorts what is not wanted, and a register's run is in every lane."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, TOP, wd.f32], c: wd.Memory[M, TOP, wd.i32]):
        best, where = wd.topk(wd.read(a), TOP, dim=N)
        wd.write(best + wd.sum(best, dim=TOP), b)
        wd.write(where, c)

    for k in (5, 64):
        a = np.random.default_rng(k).integers(0, 99, (2, 700)).astype(np.float32)
        agree(kernel, [a, np.zeros((2, k), np.float32), np.zeros((2, k), np.int32)], target)
    counts = [kernel.compile(target=target, subs={M: 1, N: 1024, TOP: k}).resources.instructions for k in (8, 512)]
    assert 3 * sum(counts[0].values()) < sum(counts[1].values())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.bf16, wd.i32], ids=str)
@pytest.mark.parametrize(
    ("rows", "columns", "k"), [(1, 1024, 8), (4, 900, 3), (16, 256, 20), (8, 64, 33), (32, 130, 1)]
)
def test_the_largest_spread_over_lanes(rows: int, columns: int, k: int, dtype: wd.DType, target: str) -> None:
    """Lanes keep half each of what two runs leave, and fetch the rest at the end; equal numbers, NaN and -0 too."""

    @wd.wave([wd.WorkgroupConstraint(M, BM, 0)])
    def kernel(a: wd.Memory[M, N, dtype], values: wd.Memory[M, TOP, dtype], places: wd.Memory[M, TOP, wd.i32]):
        best, where = wd.topk(wd.read(a), TOP, dim=N)
        wd.write(best, values)
        wd.write(where, places)

    shape = rows + 1, columns
    for a in (numbers(shape, dtype, k), np.random.default_rng(k).permutation(np.arange(shape[0] * columns) % 4096)):
        a = a.reshape(shape).astype(dtype.storage)
        out = np.zeros((shape[0], k), dtype.storage), np.zeros((shape[0], k), np.int32)
        agree(kernel, [a, *out], target, subs={BM: rows})


@pytest.mark.parametrize(
    ("target", "dtype", "most"),
    [("sm_90a", wd.f32, 1500), ("sm_90a", wd.bf16, 800), ("gfx942", wd.f32, 480), ("gfx942", wd.bf16, 500)],
)
def test_what_the_eight_largest_of_a_row_take(target: str, dtype: wd.DType, most: int) -> None:
    """Vector instructions of a wave for a row of 1024 numbers: bitonic steps of pairs of words, in every lane for all
    eight, took 2186, 1129, 1162 and 776."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, TOP, dtype], c: wd.Memory[M, TOP, wd.i32]):
        best, where = wd.topk(wd.read(a), TOP, dim=N)
        wd.write(best, b)
        wd.write(where, c)

    counts = kernel.compile(target=target, subs={M: 1, N: 1024, TOP: 8}).resources.instructions
    assert counts["valu" if target == "gfx942" else "alu"] <= most
