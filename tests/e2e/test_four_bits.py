"""Products of 4-bit integers: by instructions of their own up to sm_89, elsewhere as bytes, with the same sums."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import hopper
import numpy as np
import packed
import pytest
from products import K, M, N

import wavedsl as wd

TYPES = {(wd.i4, wd.i4): "i4", (wd.u4, wd.u4): "u4", (wd.i4, wd.u4): "i4 u4"}
WARPS, GROUPS = (64, 64, 64, 32, 32), (128, 128, 128, 64, 128)
"""Tiles of the workgroup, and of a wave: of 32 lanes, of 128."""


def kernel(a_type: wd.DType, b_type: wd.DType, tile: tuple[int, ...], **hardware: Any) -> Any:
    m, n, k, wave_m, wave_n = tile

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, m, 0), wd.WorkgroupConstraint(N, n, 1), wd.TilingConstraint(K, k),
            wd.WaveConstraint(M, wave_m), wd.WaveConstraint(N, wave_n),
            *([wd.HardwareConstraint(**hardware)] if hardware else []),
        ],
    )  # fmt: skip
    def product(
        a: wd.Memory[M, K, wd.SHARED, a_type], b: wd.Memory[N, K, wd.SHARED, b_type], c: wd.Memory[M, N, wd.i32]
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.i32](3)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return product


def exact(product: Any, a_type: wd.DType, b_type: wd.DType, target: str, shape: tuple[int, int, int]) -> Any:
    """The compiled product, emulated: sums are those of numpy."""
    m, n, k = shape
    rng = np.random.default_rng(5)
    (a, x), (b, y) = packed.operand(rng, a_type, (m, k)), packed.operand(rng, b_type, (n, k))
    c = np.full((m, n), 77, np.int32)
    compiled = product.compile(a, b, c, target=target)
    compiled.emulate(a, b, c)
    np.testing.assert_array_equal(c, 3 + x.astype(np.int64) @ y.astype(np.int64).T)
    return compiled


@pytest.mark.parametrize("types", TYPES, ids=TYPES.get)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx90a", "gfx942", "gfx950"])
def test_sums_are_those_of_numpy(types: tuple[wd.DType, wd.DType], target: str) -> None:
    """Extents that fill no tile, all numbers of the types."""
    compiled = exact(kernel(*types, WARPS), *types, target, (70, 40, 104))
    native = re.search(r"m16n8k\d+\.row\.col\.s32\.[su]4", compiled.asm) is not None
    assert native == (target == "sm_80")


@pytest.mark.parametrize("types", TYPES, ids=TYPES.get)
def test_warpgroups_multiply_them_as_bytes(types: tuple[wd.DType, wd.DType], oracle: Callable[[str], str]) -> None:
    oracle("ptxas")
    compiled = exact(kernel(*types, GROUPS), *types, "sm_90a", (140, 136, 416))
    assert "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8" in compiled.asm
    hopper.spilled_or_serialised(compiled.asm)


@pytest.mark.parametrize(("tile", "most"), [(WARPS, 14), (GROUPS, 140)], ids=["warps", "warpgroups"])
def test_what_the_machine_code_takes(tile: tuple[int, ...], most: int, oracle: Callable[[str], str]) -> None:
    """Per product of a trip: 191 where ptxas makes it of i4, 70 where lanes exchange what they have loaded."""
    oracle("ptxas")
    oracle("nvdisasm")
    compiled = kernel(wd.i4, wd.i4, tile).compile(target="sm_90a", subs={M: 4096, N: 4096, K: 4096})
    machine = hopper.sass.assembled(compiled.asm, "sm_90a")
    trip = max(machine.loops, key=lambda loop: loop.flops)
    assert len(trip.trip) <= most * trip.counts["product"]
    assert trip.counts.get("shuffle", 0) == 0


def test_warpgroups_make_a_share_of_what_they_have_in_common() -> None:
    """Two of 64 rows each have all of B's tile: each loads, widens and stores half of it."""
    compiled = exact(kernel(wd.i4, wd.i4, GROUPS), wd.i4, wd.i4, "sm_90a", (128, 128, 256))
    branches = [op for op in compiled.kernel_ir.body.walk() if op.name == "if" and op.attrs.get("inside")]
    shares = [[op.name for op in x.regions[0].ops] for x in branches]
    assert len(shares) % 2 == 0 and shares
    for names in shares:
        assert names.count("load.shared") == names.count("store.shared") == 4 and names.count("permute_bytes") == 16


def test_an_instruction_that_is_asked_for_is_one_of_bytes() -> None:
    asked = kernel(wd.i4, wd.i4, WARPS, mma_type=wd.MMAType.I32_16x8x16_I8)
    compiled = exact(asked, wd.i4, wd.i4, "sm_90a", (64, 64, 64))
    assert "m16n8k16.row.col.s32.s8.s8" in compiled.asm
    with pytest.raises(wd.ConstraintError, match="I32_16x8x64_I4: sm_90a has no such instruction"):
        kernel(wd.i4, wd.i4, WARPS, mma_type=wd.MMAType.I32_16x8x64_I4).compile(
            target="sm_90a", subs={M: 64, N: 64, K: 64}
        )


def test_an_operand_of_several_products_is_widened_once() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
    def both(
        a: wd.Memory[M, K, wd.i4], b: wd.Memory[N, K, wd.i4], d: wd.Memory[N, K, wd.u4], c: wd.Memory[M, N, wd.i32]
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.i32](0), wd.Register[M, N, wd.i32](0)])
        def loop(first, second):
            x = wd.read(a)
            return wd.mma(x, wd.read(b), first), wd.mma(x, wd.read(d), second)

        wd.write(loop[0] * loop[1], c)

    rng = np.random.default_rng(5)
    (a, x), (b, y), (d, z) = (packed.operand(rng, t, (64, 128)) for t in (wd.i4, wd.i4, wd.u4))
    c = np.zeros((64, 64), np.int32)
    compiled = both.compile(a, b, d, c, target="sm_90a")
    compiled.emulate(a, b, d, c)
    x, y, z = (v.astype(np.int32) for v in (x, y, z))
    np.testing.assert_array_equal(c, (x @ y.T) * (x @ z.T))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
@pytest.mark.parametrize("to", [wd.i8, wd.u8], ids=str)
@pytest.mark.parametrize("source", [wd.i4, wd.u4], ids=str)
def test_every_code_becomes_a_byte(source: wd.DType, to: wd.DType, target: str) -> None:
    """In every place of a word, beside every other: four of them at once, not one by one."""

    @wd.wave([wd.WorkgroupConstraint(N, 512, 0)])
    def widen(x: wd.Memory[N, source], y: wd.Memory[N, to]):
        wd.write(wd.cast(wd.read(x), to), y)

    codes = np.arange(256).astype(np.uint8)
    pairs = np.stack([codes & 15, codes >> 4], axis=-1).reshape(-1).astype(np.int64)
    half = 8 if source is wd.i4 else 0
    y = np.zeros(512, to.storage)
    compiled = widen.compile(codes, y, target=target)
    compiled.emulate(codes, y)
    np.testing.assert_array_equal(y, ((pairs ^ half) - half).astype(to.numpy))
    names = [op.name for op in compiled.kernel_ir.body.walk()]
    assert "pack" not in names and "permute_bytes" in names
