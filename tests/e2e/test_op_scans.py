"""Running sums and running reductions on every chip, along lanes, registers and waves: text against evaluator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree
from products import BM, BN, WM, WN, M, N

import wavedsl as wd

SHAPES = [
    ((16, 64), (16, 64, 16, 64)),
    ((17, 50), (8, 50, 8, 50)),
    ((9, 100), (8, 128, 4, 32)),
    ((33, 7), (64, 8, 16, 8)),
    ((5, 300), (2, 384, 2, 96)),
]


def tiled(function: Callable[[Any], Any], dtype: wd.DType) -> Any:
    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.WaveConstraint(M, WM),
         wd.WaveConstraint(N, WN)]
    )  # fmt: skip
    def kernel(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, dtype]):
        wd.write(function(wd.read(a)), b)

    return kernel


def whole(shape: tuple[int, ...], dtype: wd.DType, seed: int = 0) -> np.ndarray:
    low = 0 if dtype.kind == "uint" else -5
    return np.random.default_rng(seed).integers(low, 6, shape).astype(dtype.storage)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.f16, wd.i64, wd.u8], ids=str)
def test_running_sums(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    for shape, tile in SHAPES:
        arguments = [whole(shape, dtype), np.zeros(shape, dtype.storage)]
        checked = oracle if shape == (9, 100) else None
        kernel = tiled(lambda x: wd.cumsum(x, dim=N), dtype)
        agree(kernel, arguments, target, checked, subs=dict(zip((BM, BN, WM, WN), tile)))


@pytest.mark.parametrize("target", ["gfx942", "sm_90a"])
def test_nobody_asks_which_of_two_totals_is_first_where_both_orders_are_one(target: str) -> None:
    """Of sums: each lane bit costs one choice for what comes before a block, none for the block's total."""

    def choices(function: Callable[[Any], Any], dtype: wd.DType) -> int:
        kernel = tiled(function, dtype)
        arguments = [whole((4, 64), dtype), np.zeros((4, 64), dtype.storage)]
        made = agree(kernel, arguments, target, subs={BM: 1, BN: 64, WM: 1, WN: 64})
        return sum(op.name == "select" for op in made.kernel_ir.body.walk())

    bits = 6 if target == "gfx942" else 5
    assert choices(lambda x: wd.cumsum(x, dim=N), wd.f32) == bits
    function, identity, dtype = FUNCTIONS["last-that-is-not-zero"]
    assert choices(lambda x: wd.scan(x, function, identity, dim=N), dtype) > 3 * bits


@pytest.mark.parametrize("target", TARGETS)
def test_down_the_columns(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(N, 32, 0)])
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.cumsum(wd.read(a), dim=M), b)

    for shape in ((40, 64), (7, 33), (130, 5)):
        agree(kernel, [whole(shape, wd.f32), np.zeros(shape, np.float32)], target)


LN2 = math.log(2)
FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], Any, wd.DType]] = {
    "maximum": (lambda x, y: wd.maximum(x, y), float("-inf"), wd.f32),
    "last-that-is-not-zero": (lambda x, y: wd.where(y == 0, x, y), 0, wd.i32),
    "xor": (lambda x, y: x ^ y, 0, wd.u16),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_user(name: str, target: str) -> None:
    """Associative, and one of them not commutative."""
    function, identity, dtype = FUNCTIONS[name]
    for shape, tile in SHAPES:
        a = np.where(np.random.default_rng(1).random(shape) < 0.6, 0, whole(shape, dtype)).astype(dtype.storage)
        kernel = tiled(lambda x: wd.scan(x, function, identity, dim=N), dtype)
        agree(kernel, [a, np.zeros_like(a)], target, subs=dict(zip((BM, BN, WM, WN), tile)))


@pytest.mark.parametrize("target", TARGETS)
def test_a_long_row_in_a_loop(target: str) -> None:
    """Tiles of a row one after the other, each with the sum of those before it."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(N, 64)])
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[M, wd.f32](0.0)])
        def loop(before):
            x = wd.read(a)
            wd.write(wd.cumsum(x, dim=N) + before, b)
            return before + wd.sum(x, dim=N)

    for shape in ((20, 200), (16, 128)):
        agree(kernel, [whole(shape, wd.f32), np.zeros(shape, np.float32)], target)


def recurrence(x: Any, y: Any) -> Any:
    """Two steps h -> a h + b, one after the other; not commutative."""
    return x[0] * y[0], x[1] * y[0] + y[1]


@pytest.mark.filterwarnings("ignore:scan. f.identity:RuntimeWarning")
@pytest.mark.parametrize("target", TARGETS)
def test_values_that_are_combined_together(target: str, oracle: Callable[[str], str]) -> None:
    """A linear recurrence, of a value with one that lacks a dimension, and beside it flags and whole numbers. Places of
    elements that have no flag count for nothing in the end, but the identity changes them."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.WaveConstraint(M, WM),
         wd.WaveConstraint(N, WN)]
    )  # fmt: skip
    def kernel(
        a: wd.Memory[N, wd.f32], b: wd.Memory[M, N, wd.f16], h: wd.Memory[M, N, wd.f16], last: wd.Memory[M, N, wd.i32],
    ):  # fmt: skip
        _, state = wd.scan((wd.read(a), wd.cast(wd.read(b), wd.f32)), recurrence, (1.0, 0.0), dim=N)
        wd.write(wd.cast(state, wd.f16), h)
        positive, place = wd.scan(
            (wd.read(b) > 0, wd.index(N)),
            lambda x, y: (x[0] | y[0], wd.where(y[0], y[1], wd.where(x[0], x[1], -1))), (False, -1), dim=N,
        )  # fmt: skip
        wd.write(wd.where(positive, place, -1), last)

    for shape, tile in SHAPES:
        a = np.random.default_rng(2).choice(np.array([-1, 1, 0], np.float32), shape[1])
        arguments = [a, whole(shape, wd.f16), np.zeros(shape, np.float16), np.zeros(shape, np.int32)]
        checked = oracle if shape == (9, 100) else None
        agree(kernel, arguments, target, checked, subs=dict(zip((BM, BN, WM, WN), tile)))
        h, state = np.zeros(shape), np.zeros(shape[0])
        for i in range(shape[1]):
            h[:, i] = state = a[i] * state + arguments[1][:, i]
        kernel.evaluate(*arguments, subs=dict(zip((BM, BN, WM, WN), tile)))
        np.testing.assert_array_equal(arguments[2], h)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_asked_of_an_identity_that_comes_second(target: str, reverse: bool) -> None:
    """Sums of runs of equal keys: nothing is left of a (key, sum) before (-1, 0), which stands before all of them."""

    def later(x: Any, y: Any) -> Any:
        return y[0], wd.where(x[0] == y[0], x[1] + y[1], y[1])

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.WaveConstraint(M, WM),
         wd.WaveConstraint(N, WN)]
    )  # fmt: skip
    def runs(keys: wd.Memory[M, N, wd.i32], x: wd.Memory[M, N, wd.f32], sums: wd.Memory[M, N, wd.f32]):
        _, found = wd.scan((wd.read(keys), wd.read(x)), later, (-1, 0.0), dim=N, reverse=reverse)
        wd.write(found, sums)

    for shape, tile in (*SHAPES, ((3, 700), (1, 1024, 1, 512))):
        keys, x = np.sort(np.random.default_rng(1).integers(0, 9, shape), 1).astype(np.int32), whole(shape, wd.f32)
        want, order = np.zeros_like(x), range(shape[1])
        for n in reversed(order) if reverse else order:
            last = n + 1 if reverse else n - 1
            want[:, n] = x[:, n] + (want[:, last] * (keys[:, n] == keys[:, last]) if last in order else 0)
        got = np.zeros_like(x)
        runs.compile(keys, x, got, target=target, subs=dict(zip((BM, BN, WM, WN), tile))).emulate(keys, x, got)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_from_the_end(target: str) -> None:
    """What lies beyond the end comes first, and counts for nothing; the function's first argument is the later one."""
    functions: list[tuple[Callable[[Any], Any], wd.DType]] = [
        (lambda x: wd.cumsum(x, dim=N, reverse=True), wd.f16),
        (lambda x: wd.scan(x + 1, lambda p, q: q, 0, dim=N, reverse=True), wd.i32),
        (lambda x: wd.scan(x - 9, lambda p, q: wd.where(p > q, p, q), -100, dim=N, reverse=True), wd.i32),
    ]
    for function, dtype in functions:
        for shape, tile in SHAPES[1:] if dtype is wd.f16 else SHAPES[2:3]:
            arguments = [whole(shape, dtype), np.zeros(shape, dtype.storage)]
            agree(tiled(function, dtype), arguments, target, subs=dict(zip((BM, BN, WM, WN), tile)))


@pytest.mark.parametrize("target", TARGETS)
def test_a_recurrence_from_the_end(target: str, oracle: Callable[[str], str]) -> None:
    """Advantages: r[t] + a[t] h[t + 1], tile after tile from the last one."""
    L = wd.sym.L

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.TilingConstraint(N, 16)], subs={L: 16})
    def kernel(a: wd.Memory[M, N, wd.f32], r: wd.Memory[M, N, wd.f32], h: wd.Memory[M, N, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[M, wd.f32](0.0)])
        def loop(after):
            first = (N + 15) // 16 * 16 - 16 - wd.tile_start(N)
            decay, reward = wd.read(a[:, first : first + L]), wd.read(r[:, first : first + L])
            beyond = first + wd.index(L) >= N
            pair = wd.where(beyond, 1.0, decay), wd.where(beyond, 0.0, reward)
            product, total = wd.scan(pair, recurrence, (1.0, 0.0), dim=L, reverse=True)
            total = total + product * after
            wd.write(total, h[:, first : first + L])
            return wd.extract(total, {L: 0})

        wd.write(loop, h[:, 0])

    for m, n in ((4, 64), (7, 50)):
        a = np.random.default_rng(0).integers(-1, 2, (m, n)).astype(np.float32)
        r, want = whole((m, n), wd.f32, 1), np.zeros((m, n), np.float32)
        for t in reversed(range(n)):
            want[:, t] = r[:, t] + a[:, t] * (want[:, t + 1] if t + 1 < n else 0)
        arguments = [a, r, np.zeros_like(r)]
        compiled = agree(kernel, arguments, target, oracle if n == 50 else None)
        compiled.emulate(*arguments)
        np.testing.assert_array_equal(arguments[2], want)


@pytest.mark.filterwarnings("ignore:reduce. f.identity:RuntimeWarning")  # limits from the launch change it
@pytest.mark.parametrize("target", TARGETS)
def test_functions_use_what_the_launch_gives(target: str, oracle: Callable[[str], str]) -> None:
    """Numbers that a call passes, extents, and what is computed of them outside or inside; the evaluator alone knew
    them."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
    def kernel(
        a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32], c: wd.Memory[M, wd.f32], softness: wd.Scalar[wd.f32],
        least: wd.Scalar[wd.i32], keep: wd.Scalar[wd.f16],
    ):  # fmt: skip
        sharpness, floor = 1 / softness, wd.cast(least, wd.f32) - wd.Register[wd.f32](1.0)

        def softest(x, y, ln2=LN2):
            low, high = wd.minimum(x, y), wd.maximum(x, y)
            return low - softness * ln2 * wd.log2(wd.exp((low - high) * sharpness) + 1.0)

        x = wd.read(a)
        wd.write(wd.scan(x, softest, math.inf, dim=N), b)
        size = wd.reduce(wd.abs(x) * 2.0, lambda p, q: wd.minimum(p + q, N - floor), 0.0, dim=N)
        rounded = wd.reduce(wd.cast(x, wd.f16), lambda p, q: wd.minimum(wd.maximum(p, q), keep), -9.0, dim=N)
        _, given = wd.reduce((x, x), lambda p, q: (p[0] + q[0], softness), (0.0, 0.0), dim=N)
        wd.write(size + wd.cast(rounded, wd.f32) + given, c)

    def near(mine: np.ndarray, theirs: np.ndarray) -> None:
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)

    for shape in ((4, 64), (5, 77)):
        a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        arguments = [a, np.zeros_like(a), np.zeros(shape[0], np.float32), 0.5, -2, np.float16(1.5)]
        compiled = agree(kernel, arguments, target, oracle, near)
        compiled.emulate(*arguments)
        near(arguments[1], -0.5 * np.log(np.cumsum(np.exp(-2.0 * a), 1)))
        near(arguments[2], np.minimum(2 * np.abs(a).sum(1), shape[1] + 3) + np.minimum(a.max(1), 1.5) + 0.5)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("dtype, bits", [(wd.f32, wd.i32), (wd.f16, wd.u16), (wd.bf16, wd.i16), (wd.f64, wd.i64)])
def test_bits_of_elements_are_combined(dtype: wd.DType, bits: wd.DType, target: str) -> None:
    """Numbers from 0 on are ordered as their bits are."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def kernel(x: wd.Memory[M, N, dtype], least: wd.Memory[M, dtype], so_far: wd.Memory[M, N, dtype]):
        def smaller(a, b):
            return wd.bitcast(wd.minimum(wd.bitcast(a, bits), wd.bitcast(b, bits)), dtype)

        wd.write(wd.reduce(wd.read(x), smaller, math.inf, dim=N), least)
        wd.write(wd.scan(wd.read(x), smaller, math.inf, dim=N), so_far)

    x = np.abs(np.random.default_rng(3).standard_normal((20, 37))).astype(dtype.storage)
    arguments = [x, np.zeros(20, dtype.storage), np.zeros_like(x)]
    compiled = agree(kernel, arguments, target)
    compiled.emulate(*arguments)
    np.testing.assert_array_equal(arguments[1].astype(np.float64), x.astype(np.float64).min(1))
    np.testing.assert_array_equal(arguments[2].astype(np.float64), np.minimum.accumulate(x.astype(np.float64), 1))
