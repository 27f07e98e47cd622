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
from wavedsl.analysis.roofline import product_named
from wavedsl.strategies import plan_gemm
from wavedsl.strategies.caching import depth, hints, needed_bytes
from wavedsl.strategies.kernels import UNASKED, Asked, Form
from wavedsl.strategies.plan import chip_of, gemv_cut

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


@pytest.mark.parametrize("target", ["gfx942", "gfx90a", "gfx950", "sm_80", "sm_90a"])
@pytest.mark.parametrize(("dtype", "b_rows"), [(wd.bf16, False), (wd.f64, True)], ids=str)
def test_units_share_k_where_columns_are_few(target: str, dtype: wd.DType, b_rows: bool) -> None:
    """Every part has trips of its own; they are added in order, with beta, and the tickets are 0 again."""
    plan, want, c = planned(target, dtype, (2, 5 if b_rows else 40, 5000), "gemv", b_rows)
    assert plan.tiles.split > 1 and ceil(5000 / plan.tiles.tile_k) >= 2 * plan.tiles.split
    checked_text(plan, want, c, target)


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
