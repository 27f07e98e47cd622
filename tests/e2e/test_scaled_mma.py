"""Block-scaled products: text against a reference made of ml_dtypes' numbers, on every chip."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import packed
import products
import pytest
from products import BK, BM, BN, K, M, N

import wavedsl as wd

MX = [wd.f8e4m3, wd.f8e5m2, wd.f6e2m3, wd.f6e3m2, wd.f4e2m1]
PAIRS = [(a, b) for a in MX for b in MX]


def kernel(
    a_dtype: wd.DType, b_dtype: wd.DType, a_order: str, b_order: str, space: Any, mma_type: Any, waves: int,
    schedule: wd.Schedule | None = None,
) -> Any:  # fmt: skip
    a_dims, b_dims = ((M, K) if a_order == "MK" else (K, M)), ((N, K) if b_order == "NK" else (K, N))
    hardware = [wd.HardwareConstraint(mma_type=getattr(wd.MMAType, mma_type))] if mma_type else []

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, BM / waves),
            *hardware,
        ],
        schedule=schedule,
    )
    def scaled(
        a: wd.Memory[a_dims[0], a_dims[1], space, a_dtype], a_scale: wd.Memory[M, K / 32, wd.f8e8m0],
        b: wd.Memory[b_dims[0], b_dims[1], space, b_dtype], b_scale: wd.Memory[N, K / 32, wd.f8e8m0],
        c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.scaled_mma(wd.read(a), wd.read(a_scale), wd.read(b), wd.read(b_scale), acc)

        wd.write(loop, c)

    return scaled


def check(
    a_dtype: wd.DType, b_dtype: wd.DType, target: str, shape: tuple[int, int, int] = (32, 48, 256), *, tile: int = 32,
    depth: int = 128, orders: tuple[str, str] = ("MK", "NK"), space: Any = wd.SHARED, mma_type: str | None = None,
    waves: int = 1, oracle: Callable[[str], str] | None = None, schedule: wd.Schedule | None = None,
) -> tuple[wd.CompiledKernel, dict[str, int]]:  # fmt: skip
    """Compile, assemble, emulate; the sums may be in any order, each rounded to f32. Gives what was executed."""
    m, n, k = shape
    rng = np.random.default_rng(m + n + k)
    a, a_value = packed.operand(rng, a_dtype, (m, k) if orders[0] == "MK" else (k, m))
    b, b_value = packed.operand(rng, b_dtype, (n, k) if orders[1] == "NK" else (k, n))
    a_value, b_value = a_value if orders[0] == "MK" else a_value.T, b_value if orders[1] == "NK" else b_value.T
    a_scale, a_factor = packed.scales(rng, (m, k // 32))
    b_scale, b_factor = packed.scales(rng, (n, k // 32))
    left, right = a_value * np.repeat(a_factor, 32, axis=1), b_value * np.repeat(b_factor, 32, axis=1)
    arguments = [a, a_scale, b, b_scale, np.zeros((m, n), np.float32)]
    made = kernel(a_dtype, b_dtype, *orders, space, mma_type, waves, schedule)
    subs = {BM: tile, BN: tile, BK: depth}
    bound = (k + 8) * 2.0**-24 * (np.abs(left) @ np.abs(right).T)
    made.evaluate(*arguments, subs=subs)
    assert (np.abs(arguments[-1] - left @ right.T) <= bound).all()
    arguments[-1][:] = 0
    compiled = made.compile(*arguments, target=target, subs=subs)
    report = compiled.emulate(*arguments)
    assert (np.abs(arguments[-1] - left @ right.T) <= bound).all()
    if oracle is not None:
        products.assemble(compiled, oracle)
    return compiled, report.instructions


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=str)
def test_every_pair_of_formats(a: wd.DType, b: wd.DType, oracle: Callable[[str], str]) -> None:
    _, executed = check(a, b, "gfx950", oracle=oracle)
    assert executed["v_mfma_scale_f32_16x16x128_f8f6f4"]


@pytest.mark.parametrize("dtype", MX, ids=str)
def test_the_32_wide_instruction(dtype: wd.DType, oracle: Callable[[str], str]) -> None:
    name = f"F32_32x32x64_{dtype.name.upper()}"
    _, executed = check(dtype, dtype, "gfx950", (64, 33, 160), tile=64, mma_type=name, waves=2, oracle=oracle)
    assert executed["v_mfma_scale_f32_32x32x64_f8f6f4"]


@pytest.mark.parametrize("space", [wd.SHARED, wd.GLOBAL], ids=["shared", "global"])
@pytest.mark.parametrize(
    ("shape", "depth"), [((50, 34, 416), 256), ((16, 16, 96), 128), ((33, 64, 1024), 512), ((32, 32, 0), 128)]
)
@pytest.mark.parametrize(("a", "b"), [(wd.f4e2m1, wd.f4e2m1), (wd.f8e4m3, wd.f4e2m1), (wd.f6e3m2, wd.f8e5m2)], ids=str)
def test_sizes(a: wd.DType, b: wd.DType, shape: tuple[int, int, int], depth: int, space: Any) -> None:
    """Tiles that stick out, one step and four steps along K in an iteration, no step at all."""
    check(a, b, "gfx950", shape, depth=depth, space=space)


@pytest.mark.parametrize(
    ("dtype", "instruction"),
    [(wd.f4e2m1, "ds_read_b64_tr_b4"), (wd.f6e2m3, "ds_read_b96_tr_b6"), (wd.f8e4m3, "ds_read_b64_tr_b8")],
    ids=str,
)
@pytest.mark.parametrize("orders", [("KM", "KN"), ("MK", "KN")], ids=["both", "B"])
@pytest.mark.parametrize("size", [16, 32])
def test_k_strided_operands_are_transposed_by_the_read(
    size: int, orders: tuple[str, str], dtype: wd.DType, instruction: str, oracle: Callable[[str], str]
) -> None:
    name = f"F32_{size}x{size}x{128 if size == 16 else 64}_{dtype.name.upper()}"
    shape = (64, 96, 224)
    _, executed = check(dtype, dtype, "gfx950", shape, tile=64, orders=orders, mma_type=name, waves=2, oracle=oracle)
    assert executed[instruction]


def test_k_strided_rows_that_fill_no_unit_are_converted() -> None:
    _, executed = check(wd.f4e2m1, wd.f4e2m1, "gfx950", (50, 34, 128), orders=("KM", "KN"))
    assert not any("_tr_" in name for name in executed)


@pytest.mark.parametrize("shape", [(64, 96, 768), (50, 70, 416)], ids=["whole", "odd"])
@pytest.mark.parametrize("orders", [("MK", "NK"), ("KM", "KN")], ids=["rows", "columns"])
@pytest.mark.parametrize("stages", [1, 2])
def test_tiles_of_four_bits_are_copied_straight_to_shared_memory(
    orders: tuple[str, str], shape: tuple[int, int, int], stages: int
) -> None:
    """Two elements to a byte: what lanes fetch and where waves start is counted in bytes."""
    schedule = wd.Schedule(direct_to_shared=True, stages=stages)
    shape = shape if orders[0] == "MK" else tuple(-(-x // 32) * 32 for x in shape)
    compiled, executed = check(
        wd.f4e2m1, wd.f4e2m1, "gfx950", shape, tile=64, depth=256, orders=orders, waves=2, schedule=schedule
    )
    assert re.search(r"^\tbuffer_load_dwordx4 .* lds$", compiled.asm, re.M)
    assert executed["buffer_load_dwordx4"] and not executed["ds_write_b128"]  # scales of odd rows go by registers


@pytest.mark.parametrize(
    ("tile", "waves", "staged"),
    [(128, 4, {"b_scale"}), (64, 1, {"a_scale"}), (64, 2, {"a_scale", "b_scale"}), (32, 2, set())],
)
def test_scales_that_waves_share_pass_through_shared_memory(tile: int, waves: int, staged: set[str]) -> None:
    """Of four waves, so many along M. Those of 16 rows fetch scales themselves, as all do what no other needs."""
    compiled, _ = check(wd.f4e2m1, wd.f4e2m1, "gfx950", (128, 128, 512), tile=tile, depth=256, waves=waves)
    assert compiled.decisions is not None and compiled.block == (256, 1, 1)
    assert {b.name for b in compiled.decisions.buffers} == {"a", "b", *staged}


def test_room_in_front_of_direct_copies_costs_no_workgroup() -> None:
    """Tiles that are swizzled begin at multiples of 8 KiB: with the gap, which is less, a compute unit held one
    workgroup instead of two."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 128, 0), wd.WorkgroupConstraint(N, 128, 1), wd.TilingConstraint(K, 256)],
        schedule=wd.Schedule(direct_to_shared=True),
    )
    def product(
        a: wd.Memory[M, K, wd.SHARED, wd.f4e2m1], sa: wd.Memory[M, K / 32, wd.SHARED, wd.f8e8m0],
        b: wd.Memory[N, K, wd.SHARED, wd.f4e2m1], sb: wd.Memory[N, K / 32, wd.SHARED, wd.f8e8m0],
        c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.scaled_mma(wd.read(a), wd.read(sa), wd.read(b), wd.read(sb), acc)

        wd.write(loop, c)

    compiled = product.compile(subs={M: 4096, N: 4096, K: 4096}, target="gfx950")
    assert 2 * compiled.shared_bytes <= wd.targets.get_target("gfx950").shared_bytes


def test_scales_of_four_steps_are_one_register() -> None:
    """One load brings the scales of four instructions, which name their byte."""
    compiled, _ = check(wd.f4e2m1, wd.f4e2m1, "gfx950", (16, 16, 512), tile=16, depth=512, space=wd.GLOBAL)
    mfma = [line for line in compiled.asm.splitlines() if "v_mfma_scale" in line]
    assert len(mfma) == 4
    assert sum("op_sel:[1,1,0]" in line for line in mfma) == 2 and sum("op_sel:[" in line for line in mfma) == 2
    assert sum("op_sel_hi:[1,1,0]" in line for line in mfma) == 2
    assert compiled.resources.instructions["vmem"] == 2 * 4 + 2 + 1  # fragments, scales, the store


@pytest.mark.parametrize("target", [t for t in products.TARGETS if t != "gfx950"])
@pytest.mark.parametrize(("a", "b"), [(wd.f4e2m1, wd.f4e2m1), (wd.f6e3m2, wd.f4e2m1)], ids=str)
def test_the_same_kernel_on_other_chips(a: wd.DType, b: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """Operands are scaled in registers before they are multiplied, exactly."""
    check(a, b, target, (33, 32, 160), depth=64, waves=1, oracle=oracle)


def test_a_quantised_operand_made_in_registers() -> None:
    """Activations are quantised on the fly: their codes and scales never see memory."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 128)])
    def quantise(
        a: wd.Memory[M, K, wd.f32], a_scale: wd.Memory[M, K / 32, wd.f32], b: wd.Memory[N, K, wd.f4e2m1],
        b_scale: wd.Memory[N, K / 32, wd.f8e8m0], c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc: wd.Register[M, N, wd.f32]):
            x, scale = wd.cast(wd.read(a), wd.f6e2m3), wd.cast(wd.read(a_scale), wd.f8e8m0)
            return wd.scaled_mma(x, scale, wd.read(b), wd.read(b_scale), acc)

        wd.write(loop, c)

    rng = np.random.default_rng(11)
    m, n, k = 40, 32, 160
    a, s = rng.standard_normal((m, k)).astype(np.float32), np.exp2(rng.integers(-3, 4, (m, k // 32))).astype(np.float32)
    b, b_value = packed.operand(rng, wd.f4e2m1, (n, k))
    b_scale, b_factor = packed.scales(rng, (n, k // 32))
    c = np.zeros((m, n), np.float32)
    compiled = quantise.compile(a, s, b, b_scale, c, target="gfx950")
    compiled.emulate(a, s, b, b_scale, c)
    left = a.astype(packed.FLOATS["f6e2m3"]).astype(np.float64) * np.repeat(s, 32, axis=1)
    right = b_value * np.repeat(b_factor, 32, axis=1)
    assert (np.abs(c - left @ right.T) <= (k + 8) * 2.0**-24 * (np.abs(left) @ np.abs(right).T)).all()


@pytest.mark.parametrize(("a", "b"), [(wd.f4e2m1, wd.f4e2m1), (wd.f6e2m3, wd.f4e2m1), (wd.f8e5m2, wd.f6e3m2)], ids=str)
def test_plain_products_of_small_floats(a: wd.DType, b: wd.DType, oracle: Callable[[str], str]) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1)])
    def plain(x: wd.Memory[M, K, a], y: wd.Memory[N, K, b], c: wd.Memory[M, N, wd.f32]):
        wd.write(wd.mma(wd.read(x), wd.read(y)), c)

    rng = np.random.default_rng(2)
    (x, left), (y, right) = packed.operand(rng, a, (40, 160)), packed.operand(rng, b, (33, 160))
    c = np.zeros((40, 33), np.float32)
    compiled = plain.compile(x, y, c, target="gfx950")
    report = compiled.emulate(x, y, c)
    assert report.instructions["v_mfma_f32_16x16x128_f8f6f4"]
    assert (np.abs(c - left @ right.T) <= 168 * 2.0**-24 * (np.abs(left) @ np.abs(right).T)).all()
    products.assemble(compiled, oracle)


@pytest.mark.parametrize("result", [wd.f16, wd.bf16, wd.f8e4m3], ids=str)
@pytest.mark.parametrize("dtype", MX, ids=str)
def test_narrow_results(dtype: wd.DType, result: wd.DType) -> None:
    """Rows of an operand are renumbered where that makes stores wider: the scales were those of the rows by their own
    number, so products for results of 16 and 8 bits were wrong throughout."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)])
    def kernel(
        a: wd.Memory[M, K, dtype], a_scale: wd.Memory[M, K / 32, wd.f8e8m0], b: wd.Memory[N, K, dtype],
        b_scale: wd.Memory[N, K / 32, wd.f8e8m0], c: wd.Memory[M, N, result],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.scaled_mma(wd.read(a), wd.read(a_scale), wd.read(b), wd.read(b_scale), acc)

        wd.write(wd.cast(loop, result), c)

    rng = np.random.default_rng(11)
    for m, n in ((64, 64), (33, 70), (70, 6)):
        a, a_value = packed.operand(rng, dtype, (m, 96))
        b, b_value = packed.operand(rng, dtype, (n, 96))
        (a_scale, a_factor), (b_scale, b_factor) = (packed.scales(rng, (rows, 3)) for rows in (m, n))
        left, right = a_value * np.repeat(a_factor, 32, axis=1), b_value * np.repeat(b_factor, 32, axis=1)
        got, meant = np.zeros((2, m, n), result.storage)
        kernel.evaluate(a, a_scale, b, b_scale, meant)
        kernel.compile(a, a_scale, b, b_scale, got, target="gfx950").emulate(a, a_scale, b, b_scale, got)
        step = {wd.f16: 2.0**-10, wd.bf16: 2.0**-7, wd.f8e4m3: 2.0**-3}[result]
        wide, bound = meant.astype(np.float64), 1e-5 * (np.abs(left) @ np.abs(right).T)
        finite = np.isfinite(wide)
        error = np.abs(np.where(finite, got.astype(np.float64), 0.0) - np.where(finite, wide, 0.0))
        assert (error <= step * (np.abs(wide) + 1e-3) + bound)[finite].all()
