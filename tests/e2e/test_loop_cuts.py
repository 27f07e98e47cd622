"""Tiles and parts of K that `auto` takes for f32 and f64 where tiles alone leave units idle."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

import wavedsl as wd
from wavedsl.analysis.roofline import product_named
from wavedsl.analysis.strategy import GemmShape, choose_tiles
from wavedsl.strategies import gemm_choices, plan_gemm
from wavedsl.strategies.loop_cuts import clocks, parts_of_k
from wavedsl.strategies.warpgroups import KEPT_SUMS, Rates

H200, A100 = product_named("H200"), product_named("A100")


def planned(dtype, size, chip, **given):
    m, n, k = size
    name = {wd.f32: np.float32, wd.f64: np.float64}[dtype]
    return plan_gemm(np.empty((m, k), name), np.empty((k, n), name), np.empty((m, n), name), product=chip, **given)


def workgroups(tiles, m, n):
    return ceil(m / tiles.tile_m) * ceil(n / tiles.tile_n) * tiles.split


@pytest.mark.parametrize(("dtype", "chip"), [(wd.f32, H200), (wd.f32, A100), (wd.f64, H200)], ids=str)
@pytest.mark.parametrize("size", [(512, 512, 16384), (768, 768, 768), (512, 512, 2048), (128, 128, 65536)], ids=str)
def test_few_tiles_give_all_units_work(dtype, size, chip):
    """All units that 64 x 64 could reach are busy for most of the time."""
    tiles = planned(dtype, size, chip).tiles
    groups = workgroups(tiles, *size[:2])
    assert groups / (ceil(groups / chip.units) * chip.units) > 0.7, tiles


@pytest.mark.parametrize(
    ("dtype", "size", "parts"),
    [
        (wd.f32, (1024, 1024, 16384), (128, 128, 4)),  # one tile of 128 x 64 for each unit took a tenth longer
        (wd.f32, (1536, 1792, 8192), (128, 128, 3)),
        (wd.f64, (512, 512, 16384), (64, 128, 8)),
        (wd.f64, (256, 256, 65536), (64, 64, 16)),
    ],
    ids=str,
)
def test_what_takes_fewest_clocks(dtype, size, parts):
    plan = planned(dtype, size, H200)
    assert plan.strategy == "split_k"
    assert (plan.tiles.tile_m, plan.tiles.tile_n, plan.tiles.split) == parts
    assert f"{parts[0]} x {parts[1]} in {parts[2]} parts of K take fewest clocks" in plan.why


@pytest.mark.parametrize("dtype", [wd.f32, wd.f64], ids=str)
@pytest.mark.parametrize("size", [(2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 64), (1024, 1024, 512)], ids=str)
def test_tiles_enough_stay_whole(dtype, size):
    assert planned(dtype, size, H200).strategy != "split_k"


def test_parts_are_none_of_other_products():
    """What matrix units of other dtypes multiply has estimates of its own."""
    for dtype, chip in ((wd.f32, product_named("MI300X")), (wd.f64, product_named("MI300X")), (wd.bf16, A100)):
        shape = GemmShape(512, 512, 16384, dtype)
        assert parts_of_k(shape, choose_tiles("wave_parallel", shape, chip), chip) is None
    by_multiply_adds = planned(wd.f32, (1024, 1024, 16384), H200)
    by_tensor_cores = planned(wd.f32, (1024, 1024, 16384), H200, precision="3xtf32")
    assert by_multiply_adds.tiles.tile_k != by_tensor_cores.tiles.tile_k
    assert planned(wd.f32, (1024, 1024, 16384), H200, strategy="wave_parallel").tiles.split == 1


def test_sums_that_l2_does_not_keep_cost_their_way():
    size = (4096, 4096, 8192)
    shape = GemmShape(*size, wd.f32)
    tiles = choose_tiles("wave_parallel", shape, H200)
    kept, more = (clocks(shape, replace(tiles, split=x), Rates.of(H200), 128) for x in (1, 2))
    way = 2 * 2 * size[0] * size[1] * 4 / (H200.hbm / H200.clock)
    assert 2 * size[0] * size[1] * 4 > KEPT_SUMS * H200.l2_bytes
    assert more - kept > way


def test_whole_tiles_stay_a_choice():
    c = np.empty((1024, 1024), np.float32)
    a, b = np.empty((1024, 16384), np.float32), np.empty((16384, 1024), np.float32)
    first, *others = gemm_choices(a, b, c, product="H200")
    assert first.strategy == "split_k" and first.cut.split == 4
    assert any(x.strategy == "wave_parallel" for x in others)


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("dtype", "close"), [(np.float32, 1e-4), (np.float64, 1e-12)])
@pytest.mark.parametrize("size", [(70, 68, 1100), (130, 66, 1300)], ids=str)
def test_products_in_parts(size, dtype, close, transpose_b):
    """Against NumPy, with alpha and beta; of one layout the same bits again."""
    m, n, k = size
    random = np.random.default_rng(0)
    a, c = random.standard_normal((m, k)).astype(dtype), random.standard_normal((m, n)).astype(dtype)
    b = random.standard_normal((n, k) if transpose_b else (k, n)).astype(dtype)
    want = 2 * (a.astype(np.float64) @ (b.T if transpose_b else b)) - 0.5 * c
    found: list[np.ndarray] = []
    for _ in range(1 + transpose_b):
        out = c.copy()
        plan = plan_gemm(a, b, out, alpha=2.0, beta=-0.5, transpose_b=transpose_b, product=H200)
        (launch,) = plan.launches
        assert plan.strategy == "split_k" and plan.tiles.split > 1
        launch.kernel.compile(*launch.arguments, target="sm_90a").emulate(*launch.arguments)
        found.append(out)
        np.testing.assert_allclose(out, want, atol=close)
    assert found[0].tobytes() == found[-1].tobytes()
