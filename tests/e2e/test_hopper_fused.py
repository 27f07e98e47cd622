"""Operands that are computed, on the emulated sm_90a with every check on: they leave rings and roles as they are.

One computed operand comes to the matrix instruction from registers, with the operands swapped where it is the second;
two are stored to shared memory by the waves that computed them.
"""

from __future__ import annotations

from typing import Any

import example_files
import hopper
import numpy as np
import products
import pytest
from hopper import strategy, tiles
from products import BF16, BK, BM, BN, F16, TF32, WM, WN, K, Kind, M, N, numbers
from selected import slow

import wavedsl as wd

pytestmark = pytest.mark.warpgroups

SMALL = tiles(64, 64, 64, 64, 64)
WIDE = tiles(128, 64, 64, 64, 64)
BF16_SUMS = Kind("bf16-sums", wd.bf16, wd.f32, wd.f32)


def multiply(
    kind: Kind, stored: tuple[Any, Any], size: tuple[int, int, int], subs: dict[Any, int] = SMALL,
    a_order: str = "MK", b_order: str = "NK", **options: Any,
) -> wd.CompiledKernel:  # fmt: skip
    """Compile for this size, emulate with all checks, expect the exact product."""
    m, n, k = size
    a_in, b_in = (own or kind.dtype for own in stored)
    a = numbers((m, k) if a_order == "MK" else (k, m), a_in, 1)
    b = numbers((n, k) if b_order == "NK" else (k, n), b_in, 2)
    c = np.full((m, n), products.SENTINEL).astype(kind.out.storage)
    kernel = hopper.gemm(kind, a_order, b_order, stored=stored, **options)
    compiled = kernel.compile(a, b, c, target="sm_90a", subs=subs)
    compiled.emulate(a, b, c)
    left, right = a if a_order == "MK" else a.T, b if b_order == "NK" else b.T
    products.expect_equal(c, left.astype(np.float64) @ right.astype(np.float64).T, kind)
    return compiled


def atoms(compiled: wd.CompiledKernel) -> set[str]:
    assert compiled.kernel_ir is not None
    return set(compiled.kernel_ir.notes["lowering"].atoms.values())


@pytest.mark.parametrize("which", ["a", "b", "ab"])
@pytest.mark.parametrize("dtype", [wd.i8, pytest.param(wd.f32, marks=pytest.mark.slow), wd.bf16], ids=str)
def test_casts(which: str, dtype: Any) -> None:
    """Raw tiles come by bulk copies, whatever the edges; only what is computed twice needs shared memory of its own."""
    stored = (dtype if "a" in which else None, dtype if "b" in which else None)
    compiled = multiply(F16, stored, (100, 72, 208))
    found = strategy(compiled)
    assert found.bulk and found.specialize
    assert atoms(compiled) == {"F32_64x64x16_F16 swapped" if which == "b" else "F32_64x64x16_F16"}
    assert compiled.kernel_ir is not None
    made = [name for name in compiled.kernel_ir.shared_names if name.startswith("operand")]
    assert len(made) == (2 if which == "ab" else 0)


@pytest.mark.parametrize(
    ("which", "size", "subs", "schedule"),
    [
        ("ab", (200, 72, 208), WIDE, None),
        slow("a", (200, 72, 208), WIDE, None),
        slow("b", (200, 72, 208), WIDE, None),
        slow("a", (320, 256, 96), tiles(64, 64, 32, 64, 64), wd.Schedule(persistent=True)),
        slow("b", (320, 256, 96), tiles(64, 64, 32, 64, 64), wd.Schedule(persistent=True)),
        ("ab", (320, 256, 96), tiles(64, 64, 32, 64, 64), wd.Schedule(persistent=True)),
        slow("a", (256, 64, 208), SMALL, wd.Schedule(cluster=(2, 1, 1))),
        ("b", (256, 64, 208), SMALL, wd.Schedule(cluster=(2, 1, 1))),
        slow("ab", (256, 64, 208), SMALL, wd.Schedule(cluster=(2, 1, 1))),
        ("a", (64, 64, 208), SMALL, wd.Schedule(specialize=False)),
        slow("b", (64, 64, 208), SMALL, wd.Schedule(specialize=False)),
        slow("ab", (64, 64, 208), SMALL, wd.Schedule(specialize=False)),
        slow("ab", (64, 64, 64), SMALL, wd.Schedule(stages=1)),
    ],
)
def test_strategies(which: str, size: tuple[int, int, int], subs: dict[Any, int], schedule: Any) -> None:
    """Several waves, several tiles per workgroup (five workgroups where 132 were foreseen), clusters, no roles."""
    stored = (wd.i8 if "a" in which else None, wd.i8 if "b" in which else None)
    compiled = multiply(F16, stored, size, subs, schedule=schedule)
    assert strategy(compiled).bulk
    if schedule is not None and schedule.persistent:
        a, b = (numbers((n, size[2]), own or wd.f16, 3) for n, own in zip(size, stored))
        c = np.full(size[:2], products.SENTINEL, np.float32)
        compiled.grid = (5, 1, 1)
        compiled.emulate(a, b, c)
        products.expect_equal(c, a.astype(np.float64) @ b.astype(np.float64).T, F16)


@pytest.mark.parametrize("which", ["a", "b", slow("ab")])
@pytest.mark.parametrize("k", [200, slow(201)])
def test_pitches_that_tensor_maps_refuse(which: str, k: int) -> None:
    """All threads copy; the products stay those of warpgroups."""
    stored = (wd.i8 if "a" in which else None, wd.i8 if "b" in which else None)
    compiled = multiply(F16, stored, (64, 64, k))
    assert not strategy(compiled).bulk and "wgmma" in compiled.asm


@pytest.mark.parametrize("orders", [("KM", "NK"), ("MK", "KN"), slow(("KM", "KN"))])
@pytest.mark.parametrize("which", ["ab", slow("a"), slow("b")])
def test_orders(which: str, orders: tuple[str, str]) -> None:
    """Operands that are not contiguous along K, of eight bits in memory and of sixteen in the product."""
    stored = (wd.i8 if "a" in which else None, wd.i8 if "b" in which else None)
    compiled = multiply(F16, stored, (128, 64, 192), SMALL, *orders)
    assert strategy(compiled).bulk


@pytest.mark.parametrize("kind", [BF16, TF32], ids=str)
@pytest.mark.parametrize("which", ["a", "ab"])
def test_other_products(kind: Kind, which: str) -> None:
    stored = (wd.i8 if "a" in which else None, wd.i8 if "b" in which else None)
    compiled = multiply(kind, stored, (64, 64, 96), tiles(64, 64, 32, 64, 64))
    assert "wgmma" in compiled.asm


@pytest.mark.parametrize("both", [False, True])
def test_values_beyond_the_end_of_k_count_nothing(both: bool) -> None:
    """What is computed of the zeros that copies bring is no zero: q + 1 is 1."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
    def shifted(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            x, y = wd.read(a), wd.read(b)
            return wd.mma(x + 1.0 if both else x, y + 1.0, acc)

        wd.write(loop, c)

    a, b, c = numbers((64, 72), wd.f16, 1), numbers((64, 72), wd.f16, 2), np.zeros((64, 64), np.float32)
    compiled = shifted.compile(a, b, c, target="sm_90a")
    compiled.emulate(a, b, c)
    assert strategy(compiled).specialize
    products.expect_equal(c, (a.astype(np.float64) + both) @ (b.astype(np.float64) + 1).T, F16)


def test_scaled_operand() -> None:
    """Weights of eight bits with a scale per row: a broadcast operand beside the raw tile."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 128, 1), wd.TilingConstraint(K, 64)])
    def scaled(
        x: wd.Memory[M, K, wd.f16], q: wd.Memory[N, K, wd.i8], scale: wd.Memory[N, wd.f16], y: wd.Memory[M, N, wd.f32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x), wd.cast(wd.read(q), wd.f16) * wd.read(scale), acc)

        wd.write(loop, y)

    x, q, scale = numbers((64, 128), wd.f16, 1), numbers((128, 128), wd.i8, 2), numbers((128,), wd.f16, 3)
    y = np.zeros((64, 128), np.float32)
    compiled = scaled.compile(x, q, scale, y, target="sm_90a")
    compiled.emulate(x, q, scale, y)
    assert strategy(compiled).specialize and "wgmma" in compiled.asm
    want = x.astype(np.float64) @ (q.astype(np.float64) * scale.astype(np.float64)[:, None]).T
    products.expect_equal(y, want, F16)


def packed_product(dtype: Any, kind: Kind) -> Any:
    """x [M, K] times weights of four bits [N, K] with a scale per row."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM), wd.WaveConstraint(N, WN),
        ]
    )  # fmt: skip
    def packed(
        x: wd.Memory[M, K, kind.dtype], q: wd.Memory[N, K, dtype], scale: wd.Memory[N, wd.f32],
        y: wd.Memory[M, N, kind.out],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, kind.sums](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x), wd.cast(wd.read(q), kind.dtype), acc)

        product = loop * wd.read(scale)
        wd.write(product if kind.out is wd.f32 else wd.cast(product, kind.out), y)

    return packed


@pytest.mark.parametrize(
    ("dtype", "kind", "size"),
    [
        (wd.i4, F16, (100, 72, 224)),
        slow(wd.u4, BF16_SUMS, (128, 64, 192)),
        slow(wd.f4e2m1, BF16_SUMS, (64, 72, 160)),
    ],
    ids=str,
)
def test_operands_of_four_bits(dtype: Any, kind: Kind, size: tuple[int, int, int]) -> None:
    """Their packed tiles come by bulk copies, two numbers to a byte; lanes take the bytes that they need."""
    m, n, k = size
    x, scale = numbers((m, k), kind.dtype, 1), (2.0 ** numbers((n,), wd.i32, 3)).astype(np.float32)
    codes = np.random.default_rng(2).integers(0, 16, (n, k)).astype(np.uint8)
    q = codes[:, ::2] | codes[:, 1::2] << 4
    values = {wd.i4: (codes.astype(np.int64) ^ 8) - 8, wd.u4: codes}.get(dtype)
    if values is None:
        values = codes.view(dtype.numpy).astype(np.float64)
    y = np.zeros((m, n), np.float32)
    compiled = packed_product(dtype, kind).compile(x, q, scale, y, target="sm_90a", subs=SMALL)
    compiled.emulate(x, q, scale, y)
    assert np.array_equal(y, x.astype(np.float64) @ (values * scale[:, None].astype(np.float64)).T)
    found = strategy(compiled)
    assert found.bulk and found.specialize and found.why["copies"].startswith("every stride")
    if dtype.is_int:
        assert "cvt.rn.f32" not in compiled.asm


block_scaled = example_files.load("block_scaled_gemm")


@pytest.mark.parametrize(
    ("dtype", "size", "schedule"),
    [
        (wd.f8e4m3, (100, 200, 304), None),
        slow(wd.f8e5m2, (128, 256, 256), wd.Schedule(cluster=(2, 1, 1))),
        slow(wd.f8e4m3, (200, 128, 640), wd.Schedule(persistent=True, stages=2)),
        slow(wd.f8e4m3, (64, 128, 128), wd.Schedule(specialize=False)),
    ],
)
def test_block_scales_of_both_operands(dtype: Any, size: tuple[int, int, int], schedule: Any) -> None:
    """A scale per row and block of K of A, one per block of B: powers of two and small numbers come out exactly."""
    m, n, k = size
    a, b, sa, sb, c = block_scaled.arguments_of(dtype, m, n, k, 5)
    a[...], b[...] = numbers(a.shape, dtype, 1), numbers(b.shape, dtype, 2)
    sa[...], sb[...] = 2.0 ** numbers(sa.shape, wd.i32, 3), 2.0 ** numbers(sb.shape, wd.i32, 4)
    kernel = block_scaled.block_scaled_kernel(dtype, schedule=schedule)
    compiled = kernel.compile(a, b, sa, sb, c, target="sm_90a")
    compiled.emulate(a, b, sa, sb, c)
    assert np.array_equal(c, block_scaled.reference(a, b, sa, sb)[0])
    assert strategy(compiled).specialize == (schedule is None or schedule.specialize is None)


@pytest.mark.parametrize(("rows", "pitch"), [(64, 200), slow(32, 200), slow(16, 200), (64, 201)])
def test_a_row_of_factors_comes_by_bulk_copies_where_it_can(rows: int, pitch: int) -> None:
    """One factor per k: a box of 128 bytes or more is copied into a ring, and nothing in the loop makes all threads
    meet. A row that is shorter, or lies at no multiple of 16 bytes, is copied by all threads; the tiles still come by
    bulk copies."""
    (B,) = wd.symbols("B")

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 64, 0),
            wd.WorkgroupConstraint(N, 64, 1),
            wd.WorkgroupConstraint(B, 1, 2),
            wd.TilingConstraint(K, rows),
        ]
    )
    def scaled(
        a: wd.Memory[M, K, wd.SHARED, wd.bf16],
        b: wd.Memory[N, K, wd.SHARED, wd.bf16],
        factor: wd.Memory[B, K, wd.f32],
        c: wd.Memory[B, M, N, wd.f32],
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            x = wd.cast(wd.read(a), wd.f32) * wd.read(factor)
            return wd.mma(wd.cast(x, wd.bf16), wd.read(b), acc)

        wd.write(loop, c)

    a, b = (numbers((64, 200), wd.bf16, i) for i in (1, 2))
    factor = numbers((2, pitch), wd.f32, 3)[:, :200]
    c = np.full((2, 64, 64), products.SENTINEL, np.float32)
    compiled = scaled.compile(a, b, factor, c, target="sm_90a")
    compiled.emulate(a, b, factor, c)
    np.testing.assert_array_equal(c, (a.astype(np.float64) * factor[:, None]) @ b.astype(np.float64).T)
    assert strategy(compiled).bulk and strategy(compiled).specialize
    assert compiled.kernel_ir is not None
    rings = "".join(compiled.kernel_ir.notes["lowering"].rings)
    assert ("factor" in rings) == (rows * 4 % 128 == 0 and pitch * 4 % 16 == 0)
