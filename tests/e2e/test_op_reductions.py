"""Reductions along any dimension, across lanes and waves, on every chip: text against evaluator, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree
from products import BM, BN, WM, WN, K, M, N

import wavedsl as wd

MORE = [pytest.param(d, marks=pytest.mark.slow) for d in (wd.bf16, wd.i32, wd.u8, wd.f64)]
SHAPES = [
    ((16, 64), (16, 64, 16, 64)),
    ((17, 50), (8, 50, 8, 50)),
    ((9, 100), (8, 128, 4, 32)),
    ((33, 7), (64, 8, 16, 8)),
]
"""(M, N), then tiles of workgroup and wave: whole, ragged, waves along N, waves along M."""


def row_kernel(op: Callable[[Any], Any], dtype: wd.DType, out: wd.DType) -> Any:
    """b[m] = op over n of a[m, n]."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.WaveConstraint(M, WM),
         wd.WaveConstraint(N, WN)]
    )  # fmt: skip
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, out]):
        x = wd.read(a)
        wd.write(op(x), b)

    return kernel


def column_kernel(op: Callable[[Any], Any], dtype: wd.DType, out: wd.DType) -> Any:
    """b[n] = op over m of a[m, n], all of M in one tile."""

    @wd.wave([wd.WorkgroupConstraint(N, 32, 0)])
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[N, out]):
        wd.write(op(wd.read(a)), b)

    return kernel


def numbers(shape: tuple[int, ...], dtype: wd.DType, seed: int = 0) -> np.ndarray:
    """Few different numbers, so that equal ones meet; floats with NaN, infinities and both zeros among them."""
    rng = np.random.default_rng(seed)
    if dtype.is_int:
        info = np.iinfo(dtype.numpy)
        return rng.choice(np.array([info.min, info.max, 0, 1, 5, info.max - 1], dtype.numpy), shape)
    found = rng.integers(-3, 4, shape).astype(np.float64)
    found.ravel()[:: 11] = rng.choice([np.nan, np.inf, -np.inf, -0.0], found.ravel()[:: 11].shape)
    found[0] = np.nan
    return found.astype(dtype.storage)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.f16, wd.u64, *MORE], ids=str)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_index_of_the_extreme(op: str, dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    for shape, tile in SHAPES[op == "argmin" :: 2]:  # the two take turns
        kernel = row_kernel(lambda x: getattr(wd, op)(x, dim=N), dtype, wd.i32)
        arguments = [numbers(shape, dtype), np.zeros(shape[:1], np.int32)]
        checked = oracle if shape in ((9, 100), (17, 50)) else None
        agree(kernel, arguments, target, checked, subs=dict(zip((BM, BN, WM, WN), tile)))
    column = column_kernel(lambda x: getattr(wd, op)(x, dim=M), dtype, wd.i32)
    agree(column, [numbers((13, 40), dtype), np.zeros(40, np.int32)], target)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("dtype", [wd.f32, wd.bf16, wd.f16], ids=str)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_index_of_the_extreme_of_long_rows(op: str, dtype: wd.DType, target: str) -> None:
    """Many elements to a lane: whatever they are, the first of equals, none beyond the end, NaN last."""

    @wd.wave([wd.WorkgroupConstraint(M, 2, 0)])
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, wd.i32]):
        wd.write(getattr(wd, op)(wd.read(a), dim=N), b)

    worst = -math.inf if op == "argmax" else math.inf
    for n in (1000, 1024):
        a = numbers((9, n), dtype)
        a[1] = np.where(np.random.default_rng(1).integers(0, 2, n), math.nan, worst)
        a[2], a[3, :], a[4, :] = worst, 0.0, -0.0
        a[3, 500:], a[4, 37:] = -0.0, 0.0
        a[5, : n - 1] = math.nan
        a[6] = -np.arange(n) if op == "argmax" else np.arange(n)
        agree(kernel, [a, np.zeros(9, np.int32)], target)


@pytest.mark.parametrize("dtype", [wd.f32, wd.bf16, wd.f16], ids=str)
def test_an_element_of_an_argmax_takes_few_operations(dtype: wd.DType) -> None:
    """A maximum, a comparison and a choice; a key of its own, and comparisons of keys and indices, were 13 to 18."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.TilingConstraint(N, 4096)])
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, wd.i32]):
        @wd.iterate(N, init_args=[wd.Register[wd.i32](0)])
        def last(_):
            return wd.argmax(wd.read(a), dim=N)

        wd.write(last, b)

    (loop,) = kernel.compile(target="sm_90a", subs={M: 4096, N: 1 << 17}).resources.loops
    lane = 4096 // kernel.compile(target="sm_90a", subs={M: 4096, N: 1 << 17}).block[0]
    assert loop.instructions["alu"] <= 4 * lane + 100  # and what joins lanes and warps


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["any", "all"])
def test_truth(op: str, target: str) -> None:
    for shape, tile in SHAPES:
        kernel = row_kernel(lambda x: wd.cast(getattr(wd, op)(x > 2, dim=N), wd.i32), wd.i32, wd.i32)
        a = np.full(shape, 3 if op == "all" else 1, np.int32)
        a[3, 2] = a[5, shape[1] - 1] = 2 if op == "all" else 3
        agree(kernel, [a, np.zeros(shape[0], np.int32)], target, subs=dict(zip((BM, BN, WM, WN), tile)))


FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], Any, wd.DType]] = {
    "product": (lambda x, y: x * y, 1.0, wd.f32),
    "largest-magnitude": (lambda x, y: wd.where(abs(x) > abs(y), x, wd.where(abs(x) == abs(y), wd.maximum(x, y), y)),
                          0.0, wd.f16),
    "xor": (lambda x, y: x ^ y, 0, wd.u32),
    "and": (lambda x, y: x & y, -1, wd.i16),
    "sum-of-bytes": (lambda x, y: x + y, 0, wd.u8),
    "or-64": (lambda x, y: x | y, 0, wd.i64),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_user(name: str, target: str) -> None:
    function, identity, dtype = FUNCTIONS[name]
    for shape, tile in SHAPES:
        kernel = row_kernel(lambda x: wd.reduce(x, function, identity, dim=N), dtype, dtype)
        rng = np.random.default_rng(2)
        if dtype.is_int:
            info = np.iinfo(dtype.numpy)
            a = rng.integers(info.min, info.max, shape, dtype.numpy)
        else:
            a = rng.choice([-1.0, 2.0, 1.0, 0.5], shape).astype(dtype.storage)
        agree(kernel, [a, np.zeros(shape[0], a.dtype)], target, subs=dict(zip((BM, BN, WM, WN), tile)))


@pytest.mark.parametrize("target", TARGETS)
def test_index_of_the_extreme_in_a_loop(target: str) -> None:
    """The best of each tile, kept over the trips: the index counts over the whole array."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(N, 32)])
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, wd.i32]):
        best, where = wd.Register[M, wd.f32](-np.inf), wd.Register[M, wd.i32](-1)

        @wd.iterate(N, init_args=[best, where])
        def loop(best, where):
            x = wd.read(a)
            top, at = wd.max(x, dim=N), wd.argmax(x, dim=N)
            return wd.maximum(best, top), wd.where(top > best, at, where)

        wd.write(loop[1], b)

    a = np.random.default_rng(3).standard_normal((20, 100)).astype(np.float32)
    agree(kernel, [a, np.zeros(20, np.int32)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_to_choose_from(target: str) -> None:
    kernel = column_kernel(lambda x: wd.argmax(x, dim=M), wd.f32, wd.i32)
    agree(kernel, [np.zeros((0, 5), np.float32), np.zeros(5, np.int32)], target)
    total = column_kernel(lambda x: wd.sum(x, dim=M), wd.f32, wd.f32)
    agree(total, [np.zeros((0, 5), np.float32), np.ones(5, np.float32)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_values_that_are_reduced_together(target: str, oracle: Callable[[str], str]) -> None:
    """Which of the largest comes first, and how many there are: three dtypes in one cell, one of them narrow; and of
    two values without the rows' dimension."""

    def join(x: Any, y: Any) -> Any:
        larger, equal = y[0] > x[0], y[0] == x[0]
        first = wd.where(larger, y[1], wd.where(equal, wd.minimum(x[1], y[1]), x[1]))
        return wd.maximum(x[0], y[0]), first, wd.where(larger, y[2], wd.where(equal, x[2] + y[2], x[2]))

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.WaveConstraint(M, WM),
         wd.WaveConstraint(N, WN)]
    )  # fmt: skip
    def kernel(
        a: wd.Memory[M, N, wd.f16], top: wd.Memory[M, wd.f16], first: wd.Memory[M, wd.i32], count: wd.Memory[M, wd.f32],
    ):  # fmt: skip
        start = (-math.inf, 1 << 30, 0.0)
        found = wd.reduce((wd.read(a), wd.index(N), wd.Register[wd.f32](1.0)), join, start, dim=N)
        wd.write(found[0], top)
        wd.write(found[1], first)
        wd.write(found[2], count)

    for shape, tile in SHAPES:
        a = np.random.default_rng(1).integers(-3, 4, shape).astype(np.float16)
        m = shape[0]
        arguments = [a, np.zeros(m, np.float16), np.zeros(m, np.int32), np.zeros(m, np.float32)]
        checked = oracle if shape == (9, 100) else None
        agree(kernel, arguments, target, checked, subs=dict(zip((BM, BN, WM, WN), tile)))
        kernel.evaluate(*arguments, subs=dict(zip((BM, BN, WM, WN), tile)))
        np.testing.assert_array_equal(arguments[2], a.argmax(1))
        np.testing.assert_array_equal(arguments[3], (a == a.max(1, keepdims=True)).sum(1))


@pytest.mark.parametrize("target", TARGETS)
def test_a_sum_of_products_multiplies_and_adds_at_once(target: str) -> None:
    """The first of a lane's elements is a product, or of two chains each first one; the others come to the sum by a
    multiply-add each."""
    kernel = row_kernel(lambda x: wd.sum(x * x, dim=N), wd.f32, wd.f32)
    subs = {M: 8, N: 4096, BM: 1, BN: 4096, WM: 1, WN: 4096}
    ops = [op.name for op in kernel.compile(target=target, subs=subs).kernel_ir.body.walk()]
    lanes = 64 if target.startswith("gfx") else 32
    chains = ops.count("fmul")
    assert chains in (1, 2) and ops.count("ffma") == 4096 // lanes - chains


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dims", [(M, N), (N, M)], ids=str)
@pytest.mark.parametrize("op", ["sum", "max", "min", "any", "all"])
def test_several_dimensions(op: str, dims: tuple[Any, Any], target: str) -> None:
    """All of a matrix per batch: one tuple of dimensions, as numpy takes several axes."""
    dtype = wd.i1 if op in ("any", "all") else wd.i32

    @wd.wave([wd.WorkgroupConstraint(K, 2, 0), wd.WaveConstraint(K, 1)])
    def kernel(a: wd.Memory[K, M, N, dtype], b: wd.Memory[K, dtype]):
        wd.write(getattr(wd, op)(wd.read(a), dim=dims), b)

    a = np.random.default_rng(0).integers(-5, 6, (3, 9, 70)).astype(np.int32)
    a[0] = 0
    given = {"any": a > 4, "all": a > -5}.get(op, a)
    out = np.zeros(3, given.dtype)
    compiled = agree(kernel, [given, out], target)
    compiled.emulate(given, out)
    np.testing.assert_array_equal(out, getattr(np, op)(given, axis=(1, 2)))


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("columns", [64, 500, 4096])
@pytest.mark.parametrize("op", ["any", "all"])
def test_all_lanes_of_a_wave_vote(op: str, columns: int, target: str, oracle: Callable[[str], str]) -> None:
    """Where a row is all lanes', no exchange between them: the wave's mask says it. Rows beside each other in a wave,
    and waves that share a row, among them."""

    @wd.wave([wd.WorkgroupConstraint(M, 2, 0)])
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, wd.i32]):
        x = wd.read(a)
        wd.write(wd.cast(wd.any(x > 4.0, dim=N) if op == "any" else wd.all(x < 4.0, dim=N), wd.i32), b)

    a = np.random.default_rng(0).uniform(-4, 4, (23, columns)).astype(np.float32)
    a[::3, 0], a[1::6, -1], a[7, columns // 2], a[11] = 5, 5, np.nan, 5
    out = np.zeros(23, np.int32)
    compiled = agree(kernel, [a, out], target, oracle)
    compiled.emulate(a, out)
    np.testing.assert_array_equal(out, (a > 4).any(1) if op == "any" else (a < 4).all(1))
    if columns == 500:
        assert not any(word in compiled.asm for word in ("bpermute", "swizzle", "dpp", "permlane", "shfl"))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("op", "dtype"), [("sum", wd.i32), ("max", wd.i32), ("min", wd.u32), ("argmax", wd.bf16)], ids=str
)
def test_integers_of_a_warp_are_reduced_at_once(
    op: str, dtype: wd.DType, target: str, oracle: Callable[[str], str]
) -> None:
    """One `redux.sync` for five exchanges; short keys of argmax are integers. Rows that a part of the lanes has, and
    floats, are exchanged."""

    def reduced(of: wd.DType, columns: int) -> str:
        out = wd.i32 if op == "argmax" else of

        @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
        def kernel(a: wd.Memory[M, N, of], b: wd.Memory[M, out]):
            wd.write(getattr(wd, op)(wd.read(a), dim=N), b)

        a = np.random.default_rng(0).integers(0, 2**32, (23, columns)).astype(np.uint32)
        given = (a % 2**16).astype(np.uint16).view(of.storage) if of is wd.bf16 else a.view(of.storage)
        given = (a % 16).astype(np.float32) if of is wd.f32 else given
        return agree(kernel, [given, np.zeros(23, out.storage)], target, oracle).asm

    whole = reduced(dtype, 500)
    assert "redux.sync" in whole and "shfl" not in whole
    assert "redux.sync" not in reduced(dtype, 16)
    if dtype is not wd.bf16:
        assert "redux.sync" not in reduced(wd.f32, 500)
