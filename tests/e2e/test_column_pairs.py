"""Products of 16-bit operands that are contracted along their slow dimension, on gfx942: two sparse products stand for
a dense one of twice the columns and pick the even and the odd ones, so words of two neighbouring columns are read as
they lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import products
import pytest
from products import TILE, K, M, N
from wavedsl.ir.kernel.kernel_eval import run
from wavedsl.runtime import emulator

import wavedsl as wd

SPARSE = "v_smfmac_f32_"
SMALL = (64, 64, 64, 32, 32)


def emulated(kind: products.Kind, tiles: tuple[int, ...], sizes: tuple[int, int, int], values: str = "whole") -> Any:
    """A product on the emulator, held to NumPy's; the kernel."""
    a, b, c = products.operands(kind, *sizes, b_order="KN", values=values)
    kernel = products.gemm(kind, b_order="KN", spaces=(None, None))
    compiled = kernel.compile(a, b, c, target="gfx942", subs=dict(zip(TILE, tiles)))
    compiled.emulate(a, b, c)
    want, magnitude = products.exact(a, b, kind, b_order="KN")
    if values == "whole":
        products.expect_equal(c, want, kind)
    else:
        products.expect_product(c, want, magnitude, sizes[2], kind)
    return compiled


@pytest.mark.parametrize(
    ("kind", "tiles", "sizes"),
    [
        (products.F16, SMALL, (64, 64, 128)),
        (products.BF16, (128, 64, 32, 64, 64), (130, 66, 100)),
        (products.F16_OUT, SMALL, (33, 131, 77)),  # rows of B start at odd halves of words
        (products.BF16, (96, 96, 32, 48, 96), (96, 192, 64)),
        (products.F16, (32, 64, 64, 32, 32), (31, 3, 65)),
    ],
    ids=str,
)
def test_whole_numbers_are_exact(kind: products.Kind, tiles: tuple, sizes: tuple) -> None:
    assert SPARSE in emulated(kind, tiles, sizes).asm


@pytest.mark.parametrize("kind", [products.F16, products.BF16], ids=str)
def test_any_numbers_are_within_the_bound(kind: products.Kind) -> None:
    assert SPARSE in emulated(kind, SMALL, (70, 90, 200), "normal").asm


@pytest.mark.parametrize("tiles", [SMALL, (32, 64, 64, 32, 32), (128, 128, 64, 64, 64)], ids=str)
def test_nothing_is_computed_and_every_read_is_a_pair(tiles: tuple) -> None:
    """The loop has no vector instruction, rows are stored as they were loaded, and two words of two rows are one read;
    nothing in LDS conflicts."""
    sizes = {M: 64 * tiles[0], N: 64 * tiles[1], K: 64 * tiles[2]}
    kernel = products.gemm(products.F16, b_order="KN")
    compiled = kernel.compile(target="gfx942", subs={**dict(zip(TILE, tiles)), **sizes})
    assert compiled.resources.loops[0].instructions["valu"] == 0
    assert SPARSE in compiled.asm and "v_mfma" not in compiled.asm
    assert "ds_read2st64_b32" in compiled.asm and "ds_read_b32" not in compiled.asm
    assert {op.attrs["bytes"] for op in compiled.kernel_ir.body.walk() if op.name == "store.shared"} == {16}
    a, b, c = products.operands(products.F16, tiles[0], tiles[1], 2 * tiles[2], b_order="KN")
    few = kernel.compile(a, b, c, target="gfx942", subs=dict(zip(TILE, tiles)))
    assert few.emulate(a, b, c).bank_conflicts == 0


def test_kernel_ir_means_the_same() -> None:
    """One instruction of 32 x 64 (16 x 32) for the interpreter of the kernel's IR, two for the chip."""
    a, b, c = products.operands(products.F16, 64, 64, 64, b_order="KN")
    kernel = products.gemm(products.F16, b_order="KN")
    compiled = kernel.compile(a, b, c, target="gfx942", subs=dict(zip(TILE, SMALL)))
    atoms = [op.attrs["atom"] for op in compiled.kernel_ir.body.walk() if op.name == "mma"]
    assert {x.parts for x in atoms} == {2} and compiled.resources.instructions["mfma"] == 2 * len(atoms)
    run(compiled.kernel_ir, [a, b, c])
    products.expect_equal(c, products.exact(a, b, products.F16, b_order="KN")[0], products.F16)


@pytest.mark.parametrize("wrong", [("0xdd88", "0x88dd"), (" abid:1", "")], ids=["places", "byte"])
def test_every_slip_of_the_places_shows(wrong: tuple[str, str]) -> None:
    a, b, c = products.operands(products.F16, 64, 64, 64, b_order="KN")
    kernel = products.gemm(products.F16, b_order="KN")
    compiled = kernel.compile(a, b, c, target="gfx942", subs=dict(zip(TILE, SMALL)))
    text = compiled.asm.replace(*wrong)
    assert text != compiled.asm
    emulator.run(text, target="gfx942", grid=compiled.grid, block=compiled.block, args=[a, b, c], checks=False)
    assert not np.array_equal(c, products.exact(a, b, products.F16, b_order="KN")[0])


def test_columns_keep_apart() -> None:
    """What stands in a neighbouring column is not multiplied, not even by zero."""
    a, b, c = products.operands(products.F16, 64, 64, 64, b_order="KN")
    want, _ = products.exact(a, b, products.F16, b_order="KN")
    b[:, 1::4], b[:, 2::4] = np.inf, np.nan
    kernel = products.gemm(products.F16, b_order="KN")
    compiled = kernel.compile(a, b, c, target="gfx942", subs=dict(zip(TILE, SMALL)))
    compiled.emulate(a, b, c)
    assert SPARSE in compiled.asm
    for column in (0, 3):
        np.testing.assert_array_equal(c[:, column::4], want[:, column::4])
    assert not np.isfinite(c[:, 1::4]).any() and np.isnan(c[:, 2::4]).all()


def test_the_first_operand_may_lie_so_instead() -> None:
    """A as [K, M]: operands change roles."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32),
            wd.WaveConstraint(M, 32), wd.WaveConstraint(N, 32),
        ]
    )  # fmt: skip
    def product(a: wd.Memory[K, M, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0)])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.permute(wd.read(a), [M, K]), wd.read(b), acc)

        wd.write(loop, c)

    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((96, 70), (65, 96)))
    c = np.zeros((70, 65), np.float32)
    compiled = product.compile(a, b, c, target="gfx942")
    compiled.emulate(a, b, c)
    np.testing.assert_array_equal(c, a.T.astype(np.float32) @ b.T.astype(np.float32))


def test_strides_decide_not_the_order_of_dimensions() -> None:
    """B as [N, K] of an array in Fortran's order lies as [K, N] in C's does."""
    a, b, c = products.operands(products.F16, 64, 64, 64)
    turned = np.asfortranarray(b)
    compiled = products.gemm(products.F16).compile(a, turned, c, target="gfx942", subs=dict(zip(TILE, SMALL)))
    compiled.emulate(a, turned, c)
    assert SPARSE in compiled.asm
    products.expect_equal(c, products.exact(a, b, products.F16)[0], products.F16)


@pytest.mark.parametrize("split", [1, 2])
def test_what_follows_reads_the_layout(split: int) -> None:
    """Bias of a column, a row's largest number, rounding, parts of K in several workgroups."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32),
            wd.WaveConstraint(M, 32), wd.WaveConstraint(N, 64),
        ],
        schedule=wd.Schedule(split_k=split),
    )  # fmt: skip
    def product(
        a: wd.Memory[M, K, wd.bf16], b: wd.Memory[K, N, wd.bf16], bias: wd.Memory[N, wd.f32],
        c: wd.Memory[M, N, wd.f16], most: wd.Memory[M, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0)])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        sums = wd.maximum(loop + wd.broadcast(wd.read(bias), [M, N]), 0.0)
        wd.write(wd.cast(sums, wd.f16), c)
        wd.write(wd.max(sums, dim=N), most)

    rng = np.random.default_rng(split)
    a, b = (rng.integers(-3, 4, shape).astype(wd.bf16.storage) for shape in ((70, 128), (128, 63)))
    bias, c, most = rng.integers(-9, 9, 63).astype(np.float32), np.zeros((70, 63), np.float16), np.zeros(70, np.float32)
    compiled = product.compile(a, b, bias, c, most, target="gfx942")
    compiled.emulate(a, b, bias, c, most)
    want = np.maximum(a.astype(np.float32) @ b.astype(np.float32) + bias, 0)
    assert SPARSE in compiled.asm
    np.testing.assert_array_equal(c, want.astype(np.float16))
    np.testing.assert_array_equal(most, want.max(axis=1))


def test_a_product_that_feeds_another_keeps_its_layout() -> None:
    """A result in pairs of columns is no operand of the next product without moves between lanes."""
    (L,) = wd.symbols("L")

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(L, 64, 1), wd.TilingConstraint(N, 64),
            wd.WaveConstraint(M, 32),
        ]
    )  # fmt: skip
    def chain(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[K, N, wd.f16], v: wd.Memory[N, L, wd.f16], c: wd.Memory[M, L, wd.f32]
    ):
        @wd.iterate(N, init_args=[wd.Register[M, L, wd.f32](0)])
        def loop(acc: wd.Register[M, L, wd.f32]):
            first = wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32](0))
            return wd.mma(wd.cast(first, wd.f16), wd.read(v), acc)

        wd.write(loop, c)

    rng = np.random.default_rng(5)
    a, b, v = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((32, 32), (32, 64), (64, 64)))
    c = np.zeros((32, 64), np.float32)
    compiled = chain.compile(a, b, v, c, target="gfx942", subs={K: 32})
    compiled.emulate(a, b, v, c)
    assert SPARSE not in compiled.asm
    np.testing.assert_array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)) @ v.astype(np.float32))


@pytest.mark.parametrize("target", ["gfx90a", "gfx950"])
def test_other_chips_do_without(target: str) -> None:
    """gfx90a has no such instruction, gfx950 has reads that transpose."""
    sizes = {M: 640, N: 640, K: 640}
    compiled = products.gemm(products.F16, b_order="KN").compile(
        target=target, subs={**dict(zip(TILE, SMALL)), **sizes}
    )
    assert SPARSE not in compiled.asm and compiled.resources.loops[0].instructions["valu"] == 0
