"""Values that two uses need in different layouts, and reductions that waves share: text against NumPy, exactly.

Whole numbers small enough for every type, so each answer has one value.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from products import TARGETS, K, M, N

import wavedsl as wd

P = wd.sym.P

TYPES = {"f16": (wd.f16, wd.f32), "f32": (wd.f32, wd.f32), "i8": (wd.i8, wd.i32)}


def whole(shape: tuple[int, ...], dtype: wd.DType, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype.storage)


def exact(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def both_ways(dtype: wd.DType, sums: wd.DType) -> Any:
    """X = A Bᵀ as the left operand of one product and the right one of another: over N and over M."""

    @wd.wave([wd.WorkgroupConstraint(P, 32, 0)])
    def kernel(
        a: wd.Memory[M, K, dtype],
        b: wd.Memory[N, K, dtype],
        y: wd.Memory[P, N, dtype],
        z: wd.Memory[P, M, dtype],
        left: wd.Memory[M, P, sums],
        right: wd.Memory[P, N, sums],
    ):
        x = wd.cast(wd.mma(wd.read(a), wd.read(b)), dtype)
        wd.write(wd.mma(x, wd.read(y)), left)
        wd.write(wd.mma(wd.read(z), x), right)

    return kernel


@wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WaveConstraint(M, 1)])
def turned(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, P, K, wd.f32]):
    """Each row, of a warp's own, as a matrix that is transposed."""
    wd.write(wd.permute(wd.reshape(wd.read(x), M, K, P), M, P, K), y)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_lanes_of_one_warp_wait_for_no_other_warp(target: str) -> None:
    """What a warp exchanges through shared memory is between barriers of its own, and the emulator misses each."""
    x = np.arange(8 * 60, dtype=np.float32).reshape(8, 60)
    y = np.zeros((8, 10, 6), np.float32)
    compiled = turned.compile(x, y, target=target)
    assert "bar.sync" not in compiled.asm and compiled.asm.count("bar.warp.sync") == 1
    compiled.emulate(x, y)
    np.testing.assert_array_equal(y, x.reshape(8, 6, 10).transpose(0, 2, 1))
    without = replace(compiled, asm=re.sub(r"bar\.warp\.sync.*;", "", compiled.asm))
    with pytest.raises(wd.EmulationError, match="another lane of this warp"):
        without.emulate(x, y)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TYPES)
def test_one_value_in_two_products(target: str, name: str) -> None:
    dtype, sums = TYPES[name]
    m, n, k, p = 64, 48, 16, 40
    a, b, y, z = whole((m, k), dtype, 1), whole((n, k), dtype, 2), whole((p, n), dtype, 3), whole((p, m), dtype, 4)
    left, right = np.full((m, p), 9, sums.storage), np.full((p, n), 9, sums.storage)
    both_ways(dtype, sums).compile(a, b, y, z, left, right, target=target).emulate(a, b, y, z, left, right)
    x = exact(a) @ exact(b).T
    np.testing.assert_array_equal(left, x @ exact(y).T)
    np.testing.assert_array_equal(right, exact(z) @ x)


@pytest.mark.parametrize("dtype", [wd.f32, wd.f64], ids=str)
def test_wide_elements_move_too(dtype: wd.DType) -> None:
    """On sm_80 f64 fragments hold pairs of words, and the result's lanes are not the operand's."""
    m, n, k, p = 32, 32, 8, 32
    a, b, y, z = whole((m, k), dtype, 1), whole((n, k), dtype, 2), whole((p, n), dtype, 3), whole((p, m), dtype, 4)
    left, right = np.full((m, p), 9, dtype.storage), np.full((p, n), 9, dtype.storage)
    compiled = both_ways(dtype, dtype).compile(a, b, y, z, left, right, target="sm_80")
    compiled.emulate(a, b, y, z, left, right)
    x = exact(a) @ exact(b).T
    np.testing.assert_array_equal(left, x @ exact(y).T)
    np.testing.assert_array_equal(right, exact(z) @ x)


@pytest.mark.parametrize("target", TARGETS)
def test_operand_in_a_loop(target: str) -> None:
    """Each trip makes a value, needs it in two layouts and carries a row statistic made in a third."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(N, 32)])
    def kernel(
        a: wd.Memory[M, K, wd.f16],
        b: wd.Memory[N, K, wd.SHARED, wd.f16],
        y: wd.Memory[P, N, wd.SHARED, wd.f16],
        s: wd.Memory[M, N, wd.f32],
        out: wd.Memory[M, P, wd.f32],
        gram: wd.Memory[P, wd.f32],
    ):
        acc = wd.Register[M, P, wd.f32](0.0)
        total = wd.Register[M, wd.f32](0.0)

        @wd.iterate(N, init_args=[acc, total])
        def loop(acc, total):
            x = wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32](0.0))
            rows = wd.sum(wd.read(s), dim=N)
            return wd.mma(wd.cast(x * rows, wd.f16), wd.read(y), acc), total + rows

        acc, total = loop
        wd.write(acc + total, out)

    m, n, k, p = 50, 83, 16, 24
    a, b, y = (whole(shape, wd.f16, i) for i, shape in enumerate(((m, k), (n, k), (p, n))))
    s = np.zeros((m, n), np.float32)
    s[:, ::32] = whole((m, 3), wd.f32, 5)  # few, so that products stay exact in f16
    out, gram = np.zeros((m, p), np.float32), np.zeros(p, np.float32)
    kernel.compile(a, b, y, s, out, gram, target=target).emulate(a, b, y, s, out, gram)
    x, want = exact(a) @ exact(b).T, np.zeros((m, p))
    for first in range(0, n, 32):
        rows = exact(s)[:, first : first + 32].sum(1, keepdims=True)
        want += (x[:, first : first + 32] * rows) @ exact(y)[:, first : first + 32].T + rows
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("target", TARGETS)
def test_row_factors_from_memory(target: str) -> None:
    """Rows summed in the layout of a coalesced read, used in that of a product."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 64, 0),
            wd.WorkgroupConstraint(N, 64, 1),
            wd.WaveConstraint(M, 32),
            wd.WaveConstraint(N, 32),
        ]
    )
    def kernel(
        a: wd.Memory[M, K, wd.f16],
        b: wd.Memory[N, K, wd.f16],
        s: wd.Memory[M, P, wd.f32],
        out: wd.Memory[M, N, wd.f32],
    ):
        wd.write(wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32](0.0)) * wd.sum(wd.read(s), dim=P), out)

    a, b, s = whole((100, 32), wd.f16, 1), whole((70, 32), wd.f16, 2), whole((100, 20), wd.f32, 3)
    out = np.zeros((100, 70), np.float32)
    kernel.compile(a, b, s, out, target=target).emulate(a, b, s, out)
    np.testing.assert_array_equal(out, exact(a) @ exact(b).T * exact(s).sum(1, keepdims=True))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.i32, wd.f64], ids=str)
@pytest.mark.parametrize(("m", "n", "waves"), [(33, 256, (1, 4)), (16, 101, (2, 2))])
def test_reductions_across_waves(target: str, dtype: wd.DType, m: int, n: int, waves: tuple[int, int]) -> None:
    """Largest element and sum of each row, rows spread over waves; the largest is below 0 where padding would win."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 16, 0),
            wd.WorkgroupConstraint(N, 256, 1),
            wd.WaveConstraint(M, 16 // waves[0]),
            wd.WaveConstraint(N, 256 // waves[1]),
        ]
    )
    def kernel(
        a: wd.Memory[M, N, dtype], top: wd.Memory[M, dtype], total: wd.Memory[M, dtype], c: wd.Memory[M, N, dtype]
    ):
        x = wd.read(a)
        largest = wd.max(x, dim=N)
        wd.write(largest, top)
        wd.write(wd.sum(x, dim=N), total)
        wd.write(x - largest, c)

    a = -1 - np.abs(whole((m, n), dtype, 7))
    top, total, c = np.zeros(m, dtype.storage), np.zeros(m, dtype.storage), np.zeros((m, n), dtype.storage)
    kernel.compile(a, top, total, c, target=target).emulate(a, top, total, c)
    np.testing.assert_array_equal(top, a.max(1))
    np.testing.assert_array_equal(total, a.sum(1))
    np.testing.assert_array_equal(c, a - a.max(1, keepdims=True))


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_products_of_different_layouts_meet(target: str) -> None:
    """A result that lies otherwise than the value it meets keeps its layout, and the use converts it."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WaveConstraint(M, 32), wd.WorkgroupConstraint(N, 32, 1)])
    def kernel(
        a: wd.Memory[M, K, wd.bf16],
        b: wd.Memory[N, K, wd.bf16],
        c: wd.Memory[N, K, wd.f32],
        d: wd.Memory[M, K, wd.f32],
        least: wd.Memory[M, N, wd.f32],
        sums: wd.Memory[M, wd.f32],
    ):
        one = wd.mma(wd.read(a), wd.read(b))
        other = wd.mma(wd.read(c), wd.read(d), wd.Register[N, M, wd.f32](0.0))
        both = wd.minimum(one, other) + 2.0 * other
        wd.write(both, least)
        wd.write(wd.sum(other, dim=N), sums)

    m, n, k = 70, 32, 24
    a, b = whole((m, k), wd.bf16, 1), whole((n, k), wd.bf16, 2)
    c, d = whole((n, k), wd.f32, 3), whole((m, k), wd.f32, 4)
    least, sums = np.full((m, n), 9, np.float32), np.full(m, 9, np.float32)
    kernel.compile(a, b, c, d, least, sums, target=target).emulate(a, b, c, d, least, sums)
    one, other = exact(a) @ exact(b).T, exact(d) @ exact(c).T
    np.testing.assert_array_equal(least, np.minimum(one, other) + 2 * other)
    np.testing.assert_array_equal(sums, other.sum(1))


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_sums_of_one_constant_lie_apart(target: str) -> None:
    """Two loops that start from one constant, with products whose instructions leave results in different lanes."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 16)])
    def kernel(
        a: wd.Memory[M, K, wd.bf16],
        b: wd.Memory[N, K, wd.bf16],
        c: wd.Memory[N, K, wd.f32],
        d: wd.Memory[M, K, wd.f32],
        left: wd.Memory[M, N, wd.f32],
        right: wd.Memory[M, N, wd.f32],
    ):
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero])
        def one(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        @wd.iterate(K, init_args=[zero])
        def other(acc):
            return wd.mma(wd.read(d), wd.read(c), wd.clamp(acc, -60.0, 60.0))

        wd.write(one, left)
        wd.write(other, right)

    m, n, k = 40, 50, 24
    a, b = whole((m, k), wd.bf16, 1), whole((n, k), wd.bf16, 2)
    c, d = whole((n, k), wd.f32, 3), whole((m, k), wd.f32, 4)
    left, right = np.full((m, n), 9, np.float32), np.full((m, n), 9, np.float32)
    kernel.compile(a, b, c, d, left, right, target=target).emulate(a, b, c, d, left, right)
    np.testing.assert_array_equal(left, exact(a) @ exact(b).T)
    np.testing.assert_array_equal(right, exact(d) @ exact(c).T)
