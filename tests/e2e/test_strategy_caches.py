"""What strategies ask of the caches and how many bytes they keep on their way: chosen by the chip, seen in the text."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from math import ceil
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from wavedsl.runtime import devices, launch

import wavedsl as wd
from wavedsl.analysis.issued import residency
from wavedsl.analysis.roofline import product_named
from wavedsl.strategies import plan_gemm, plan_grouped
from wavedsl.strategies.caching import depth, hints, needed_bytes
from wavedsl.strategies.gemv_cuts import gemv_cut
from wavedsl.strategies.kernels import UNASKED, Asked, Form
from wavedsl.strategies.plan import chip_of, one_pass_cut
from wavedsl.targets import get_target

BF16 = Form(wd.bf16, wd.bf16, True)


def planned(target: str, dtype: wd.DType, sizes: tuple[int, int, int], strategy: str, b_rows: bool, **chip: Any) -> Any:
    """A plan and what it should make of C; the chip's fields as given, such as an L2 that holds nothing."""
    m, n, k = sizes
    random = np.random.default_rng(n)
    a, b = (random.integers(-3, 4, s).astype(dtype.storage) for s in ((m, k), (n, k) if b_rows else (k, n)))
    c = random.integers(-3, 4, (m, n)).astype(dtype.storage)
    product = replace(product_named(None, target), **chip)
    plan = plan_gemm(a, b, c, beta=0.5, transpose_b=b_rows, strategy=strategy, product=product)
    wide = a.astype(np.float64), b.astype(np.float64)
    want = (wide[0] @ (wide[1].T if b_rows else wide[1]) + 0.5 * c.astype(np.float64)).astype(c.dtype)
    return plan, want, c


def checked_text(plan: Any, want: np.ndarray, c: np.ndarray, target: str) -> str:
    """The text of a plan's launch, which must make the right numbers."""
    (launch,) = plan.launches
    compiled = launch.kernel.compile(*launch.arguments, target=target)
    compiled.emulate(*launch.arguments)
    np.testing.assert_array_equal(c.astype(np.float64), want.astype(np.float64))
    return compiled.asm


def test_hints_follow_from_what_passes_through_l2() -> None:
    chip = product_named("H200")
    assert hints(BF16, (4096, 4096, 1024), (128, 128), chip) == UNASKED  # all of it stays anyway
    assert hints(BF16, (1, 8192, 8192), (1, 8), chip) == Asked("keep", "stream", "stream")
    assert hints(BF16, (16384, 16, 8192), (128, 16), chip) == Asked("stream", "keep", "stream")
    # Both are read again, and the larger does not fit: neither is thrown out early nor kept in the other's way.
    assert hints(BF16, (65536, 256, 1024), (128, 128), chip) == Asked(None, "keep", "stream")
    assert hints(BF16, (8192, 8192, 64), (128, 128), chip) == Asked(None, None, "stream")


SPELLED = {
    "sm_80": ("L1::no_allocate.L2::cache_hint", "createpolicy.fractional.L2::evict_last", r"st\.global\.L1::no_alloc"),
    "gfx942": (r"buffer_load\S+ .* nt\b", "", r"buffer_store\S+ .* nt\b"),
}


@pytest.mark.parametrize("target", SPELLED)
def test_a_streamed_operand_and_a_kept_one_are_spelled(target: str) -> None:
    """B is touched once, A by every workgroup; results are what they are without hints."""
    plan, want, c = planned(target, wd.f32, (3, 70, 140), "gemv", True, l2_bytes=4000)
    assert plan.asked == Asked("keep", "stream", "stream")
    text = checked_text(plan, want, c, target)
    assert all(re.search(word, text) for word in SPELLED[target])
    plain, *_ = planned(target, wd.f32, (3, 70, 140), "gemv", True)
    (launch,) = plain.launches
    without = launch.kernel.compile(*launch.arguments, target=target).asm
    assert not any(word and re.search(word, without) for word in SPELLED[target])


def test_bulk_copies_carry_the_hints() -> None:
    plan, want, c = planned("sm_90a", wd.bf16, (20, 150, 200), "skinny", True, l2_bytes=20000)
    assert plan.asked == Asked("keep", "stream", "stream")
    text = checked_text(plan, want, c, "sm_90a")
    assert "evict_last" in text and "evict_first" in text


@pytest.mark.parametrize(
    ("name", "target", "found"),
    [
        ("NVIDIA H200", "sm_90a", "H200"), ("NVIDIA H100 80GB HBM3", "sm_90a", "H100 SXM"),
        ("NVIDIA A100-SXM4-80GB", "sm_80", "A100"), ("NVIDIA A10", "sm_80", "A100"),
        ("AMD Instinct MI325X", "gfx942", "MI325X"), ("AMD Instinct MI250X / MI250", "gfx90a", "MI250X die"),
    ],
)  # fmt: skip
def test_a_plan_is_for_the_chip_where_the_arrays_lie(
    name: str, target: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "device_of", lambda arguments: devices.Device("cuda", 3, target))
    monkeypatch.setattr(devices, "open_driver", lambda kind, index: SimpleNamespace(name=name))
    arrays = [np.zeros((4, 4))] * 3
    assert chip_of(None, *arrays).name == found
    assert chip_of("MI300X", *arrays).name == "MI300X"


def test_stages_reach_what_the_chip_needs() -> None:
    chip = product_named("H200")
    need = needed_bytes(chip)
    cut = (16, 128, 32)
    usual = depth(BF16, cut, 132, 100, 2, 1, chip)
    assert usual.in_flight >= need and usual.stages > 2 and not usual.prefetch
    assert depth(BF16, cut, 132 * 8, 100, 2, 1, chip).stages == 2  # eight workgroups have enough on their way
    slow = replace(chip, latency=20 * chip.latency)
    deep = depth(BF16, cut, 132, 100, 2, 1, slow)
    assert deep.prefetch > deep.stages and deep.in_flight > usual.in_flight
    assert depth(BF16, cut, 132, 3, 2, 1, slow).prefetch < 3  # no further than the loop goes
    amd = replace(product_named("MI300X"), latency=1e-4)
    assert depth(BF16, cut, 304, 100, 2, 4, amd).prefetch == 0  # no instruction brings lines into its L2


def test_the_recommended_distance_is_prefetched_where_memory_bounds() -> None:
    plan, want, c = planned("sm_80", wd.f16, (130, 140, 300), "wave_parallel", True, units=2, hbm=3.7e10)
    assert plan.tiles.prefetch_distance == 2 > plan.tiles.pipeline_stages - 1
    text = checked_text(plan, want, c, "sm_80")
    assert "prefetch.global.L2" in text


@pytest.mark.parametrize("name", ["H200", "A100", "MI300X", "MI355X"])
@pytest.mark.parametrize("dtype", [wd.f64, wd.f32, wd.bf16], ids=str)
def test_a_matrix_vector_product_keeps_enough_on_its_way(name: str, dtype: wd.DType) -> None:
    """8192 columns of bf16 along N in the narrowest cuts, 64 bytes wide, are 256 workgroups for the 304 units of an
    MI300X: two share K there."""
    chip = product_named(name)
    for n, b_rows, m in product((8192, 16384), (True, False), (1, 4)):
        form = Form(dtype, dtype, b_rows)
        cut = gemv_cut(form, m, n, 8192, chip)
        assert cut.groups(n) >= chip.units
        assert cut.split == (2 if (name, dtype, n, b_rows) == ("MI300X", wd.bf16, 8192, False) else 1)
        assert cut.in_flight(form, n, chip) >= needed_bytes(chip)


def test_one_column_a_workgroup_where_columns_are_runs_of_memory() -> None:
    """What an H200 measured: many workgroups that read one run each. B along N, and chips of other makers, keep wide
    cuts; where columns are fewer than units, workgroups share K."""
    h200, mi300 = product_named("H200"), product_named("MI300X")
    form = Form(wd.bf16, wd.bf16, True)
    for m in (1, 2):
        cut = gemv_cut(form, m, 8192, 8192, h200)
        assert (cut.columns, cut.deep, cut.waves, cut.split) == (1, 2048, 4, 1)
        assert gemv_cut(Form(wd.bf16, wd.bf16), m, 8192, 8192, h200).columns > 1
        assert gemv_cut(form, m, 8192, 8192, mi300).columns > 1
    few = gemv_cut(form, 1, 60, 65536, h200)
    assert few.columns == 1 and few.split == 3 and few.groups(60) >= h200.units
    assert gemv_cut(form, 1, 8192, 1024, h200).deep <= 1024  # no trip is longer than K


CHIPS = ["MI250X die", "MI300X", "MI355X", "A100", "H100 SXM", "H200"]
BOUND = [
    ("shallow_k", (8192, 8192, 8)), ("shallow_k", (8192, 8192, 16)), ("shallow_k", (16384, 4096, 31)),
    ("cache_persistent", (8192, 8192, 64)), ("cache_persistent", (8192, 8192, 100)), ("skinny", (16, 8192, 8192)),
    ("skinny", (64, 4096, 4096)), ("wave_parallel", (128, 8192, 8192)), ("wave_parallel", (64, 64, 65536)),
    ("split_k", (256, 256, 65536)), ("split_k", (64, 256, 16384)), ("stream_k", (100, 100, 32768)),
]  # fmt: skip
"""Products that memory bounds, by each strategy that loads tiles."""


def empty(dtype: wd.DType, *shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Arrays without contents; the last is a result, of 16 bits where the inputs have 8."""
    out = dtype if dtype.bits > 8 else wd.bf16
    return *(np.empty(s, dtype.storage) for s in shapes[:-1]), np.empty(shapes[-1], out.storage)


FLOATS = ["f64", "f32", "f16", "bf16", "f8e4m3", "f8e4m3fnuz"]
HELD = [(x, d) for x, d in product(CHIPS, FLOATS) if d in get_target(product_named(x).target).dtypes]


@pytest.mark.parametrize(("name", "kind"), HELD)
def test_every_strategy_keeps_enough_on_its_way(name: str, kind: str) -> None:
    """But for one pass over 8 elements of K on Hopper's chips: of 8 bits they are so few bytes, and f32's multiply-adds
    take so many registers, that no tile's operands are enough. With C's bytes they are."""
    chip, dtype = product_named(name), getattr(wd, kind)
    need = needed_bytes(chip)
    for strategy, (m, n, k) in BOUND:
        a, b, c = empty(dtype, (m, k), (n, k), (m, n))
        plan = plan_gemm(a, b, c, transpose_b=True, strategy=strategy, product=chip)
        if chip.target == "sm_90a" and kind in ("f32", "f8e4m3") and k == 8:
            form = Form(dtype, wd.f32 if kind == "f32" else wd.bf16, True)
            cut = one_pass_cut(form, (m, n, k), (128, 128), chip)
            assert plan.in_flight == cut.in_flight < need and cut.moved >= 2 * need
        else:
            assert plan.in_flight >= need, (strategy, m, n, k)
    for groups, rows, n, k in ((8, 16, 4096, 4096), (64, 256, 2048, 4096), (8, 1, 512, 4096), (4, 64, 256, 2048)):
        a, b, c = empty(dtype, (groups * rows, k), (groups, n, k), (groups * rows, n))
        assert plan_grouped(a, b, c, [rows] * groups, transpose_b=True, product=chip).in_flight >= need


def test_small_products_are_on_their_way_at_once() -> None:
    """There are fewer bytes than the chip needs: every workgroup has a unit, and one pass reads all it has."""
    for name in CHIPS:
        chip, form = product_named(name), Form(wd.bf16, wd.bf16, True)
        cut = one_pass_cut(form, (256, 256, 16), (128, 128), chip)
        assert cut.in_flight < needed_bytes(chip)
        assert cut.cut == (32, 32) and cut.in_flight == int(64 / chip.units * 64 * 16 * 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MI300X", "A100", "H200"])
@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [wd.f64, wd.f32, wd.bf16], ids=str)
def test_one_pass_takes_the_registers_it_is_said_to(name: str, beta: float, dtype: wd.DType, oracle: Any) -> None:
    """As many workgroups reside on a unit as keep enough in flight, by the registers of the assembled text."""
    chip = product_named(name)
    target = get_target(chip.target)
    if target.vendor == "nvidia":
        oracle("ptxas")
    for k in (8, 16, 31):
        a, b, c = empty(dtype, (8192, k), (8192, k), (8192, 8192))
        plan = plan_gemm(a, b, c, beta=beta, transpose_b=True, strategy="shallow_k", product=chip)
        if plan.in_flight < needed_bytes(chip):
            continue
        (launch,) = plan.launches
        compiled = launch.kernel.compile(*launch.arguments, target=chip.target)
        resident = residency(compiled.resources.occupancy, compiled.block[0] // target.wave_size, target)
        assert resident * (plan.tiles.tile_m + plan.tiles.tile_n) * k * dtype.bits // 8 >= needed_bytes(chip)


@pytest.mark.parametrize("target", ["gfx942", "gfx90a", "gfx950", "sm_80", "sm_90a"])
@pytest.mark.parametrize(("dtype", "b_rows"), [(wd.bf16, False), (wd.f64, True)], ids=str)
def test_units_share_k_where_columns_are_few(target: str, dtype: wd.DType, b_rows: bool) -> None:
    """Every part has trips of its own; they are added in order, with beta, and the tickets are 0 again."""
    plan, want, c = planned(target, dtype, (2, 5 if b_rows else 40, 5000), "gemv", b_rows)
    assert plan.tiles.split > 1 and ceil(5000 / plan.tiles.tile_k) >= 2 * plan.tiles.split
    checked_text(plan, want, c, target)


@pytest.mark.parametrize(
    ("name", "rows", "dtype"),
    [  # the first spilled 420 bytes
        ("H200", 2, wd.bf16),
        pytest.param("H200", 2, wd.f8e4m3, marks=pytest.mark.slow),
        pytest.param("A100", 4, wd.bf16, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_few_rows_have_no_more_warps_than_registers(name: str, rows: int, dtype: wd.DType, oracle: Any) -> None:
    """B as [K, N]: 8 warps share K; with the columns shared out as well, 32 would have 64 registers a lane."""
    oracle("ptxas")
    n, k = {2: 100, 4: 1000}[rows], 28672
    a, b, c = empty(dtype, (rows, k), (k, n), (rows, n))
    (launch,) = plan_gemm(a, b, c, strategy="gemv", product=product_named(name)).launches
    compiled = launch.kernel.compile(*launch.arguments, target=product_named(name).target)
    assert compiled.block[0] <= 512 and not compiled.resources.spills


@pytest.mark.parametrize(
    ("target", "dtype", "b_rows"),
    [("sm_80", wd.bf16, True), ("sm_80", wd.f32, False), ("gfx942", wd.f64, True), ("gfx942", wd.bf16, False)],
    ids=str,
)
def test_a_matrix_vector_product_loads_16_bytes_at_a_time(target: str, dtype: wd.DType, b_rows: bool) -> None:
    """All of what streams; lanes exchange nothing before the loop ends."""
    plan, *_ = planned(target, dtype, (1, 4096, 4096), "gemv", b_rows, l2_bytes=1)
    (launch,) = plan.launches
    text = launch.kernel.compile(*launch.arguments, target=target).asm
    streamed = r"ld\.global\.L1::no_allocate\S*\.(v\d\.)?b?\w+ .*" if target == "sm_80" else r"buffer_load_\w+ .* nt\b"
    labels = re.findall(r"^\s*([.$]\w*K\d+(?:_\d+)?):", text, re.M)
    loop = text[text.index(labels[0] + ":") :]  # to the last branch back in a loop over K; parts are added behind it
    loop = loop[: max(m.start() for m in re.finditer(r"bra\S*\s+([.$]\w+)", loop) if m.group(1) in labels)]
    found = [m.group(0) for m in re.finditer(streamed, loop)]
    assert found and all(re.search(r"\.v4\.b32|dwordx4", x) for x in found)
    assert not re.search(r"shfl|_dpp|ds_swizzle|ds_bpermute", loop)
