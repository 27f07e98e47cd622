"""The tests of the fourth seed document: its roofline analysis of a product, and its tiles, on an A100-class chip.

The seed counts every dtype against the f32 peak of an A100 (19.5 TFLOP/s, 2 TB/s, 9.75 FLOP per byte): here that is f32
on the vector pipes.
"""

from __future__ import annotations

import numpy as np
import pytest

import wavedsl as wd
from wavedsl.analysis import GemmShape, Roofline, analyze_gemm, choose_tiles
from wavedsl.strategies import plan_gemm


def analysis(m: int, n: int, k: int) -> Roofline:
    return analyze_gemm(m, n, k, wd.f32, product="A100", unit="vector")


def tiles(strategy: str, m: int, n: int, k: int, dtype: wd.DType = wd.f32):
    return choose_tiles(strategy, GemmShape(m, n, k, dtype))


def test_peaks_of_the_chip():
    a = analysis(1024, 1024, 1024)
    assert a.peak_compute == pytest.approx(19.5e12, rel=0.01)
    assert a.peak_bandwidth == pytest.approx(2.0e12, rel=0.02)
    assert a.balance_point == pytest.approx(9.75, rel=0.03)


def test_compute_bound_large_k():
    a = analysis(1024, 1024, 4096)
    assert a.intensity > a.balance_point
    assert not a.is_memory_bound
    assert a.flops == 2 * 1024 * 1024 * 4096
    assert a.bytes == (1024 * 4096 + 4096 * 1024 + 1024 * 1024) * 4


def test_memory_bound_small_k():
    a = analysis(4096, 4096, 8)
    assert a.is_memory_bound
    assert a.intensity < a.balance_point


def test_bandwidth_limited_detection():
    assert analysis(4096, 4096, 4).is_memory_bound
    assert not analysis(1024, 1024, 4096).is_memory_bound


@pytest.mark.parametrize(("m", "n", "k"), [(8192, 8192, 4), (16384, 16384, 2)])
def test_large_m_small_k_is_bandwidth_limited(m: int, n: int, k: int):
    assert analysis(m, n, k).is_memory_bound


def test_shallow_k_tiles():
    t = tiles("shallow_k", 256, 256, 16)
    assert (t.tile_k, t.pipeline_stages, t.prefetch_distance) == (16, 1, 0)
    assert t.tile_m >= 32 and t.tile_n >= 32


def test_cache_persistent_tiles():
    t = tiles("cache_persistent", 512, 512, 64)
    assert (t.tile_m, t.tile_n, t.pipeline_stages, t.prefetch_distance) == (64, 64, 2, 1)
    assert t.tile_k == 8


def test_wave_parallel_tiles():
    t = tiles("wave_parallel", 256, 256, 128)
    assert (t.tile_m, t.tile_n, t.tile_k, t.pipeline_stages, t.prefetch_distance) == (128, 64, 16, 2, 2)
    assert (t.waves_m, t.waves_n) == (4, 2)


@pytest.mark.parametrize(
    ("size", "k", "strategy"),
    [
        (4096, 8, "shallow_k"),
        (4096, 16, "shallow_k"),
        (24, 31, "shallow_k"),
        (24, 32, "cache_persistent"),
        (24, 127, "cache_persistent"),
        (16, 128, "wave_parallel"),
        (4096, 4096, "wave_parallel"),
    ],
)
def test_auto_strategy(size: int, k: int, strategy: str):
    assert analysis(size, size, k).recommended_strategy == strategy


def test_auto_uses_the_strategy_s_tiles():
    assert analysis(4096, 4096, 8).tiles == tiles("shallow_k", 4096, 4096, 8)


@pytest.mark.parametrize("strategy", ["shallow_k", "cache_persistent", "wave_parallel"])
@pytest.mark.parametrize("size", [16, 64, 100, 512])
def test_tiles_have_sensible_values(strategy: str, size: int):
    t = tiles(strategy, size, size, 64)
    sizes = (t.tile_m, t.tile_n, t.tile_k, t.waves_m, t.waves_n, t.vector_width, t.pipeline_stages)
    assert all(n >= 1 for n in sizes)
    assert t.tile_m == t.tile_n == 32 if size < 64 else t.tile_m >= 64


def test_vector_widths_by_precision():
    f16, f32, f64 = (tiles("wave_parallel", 512, 512, 64, d).vector_width for d in (wd.f16, wd.f32, wd.f64))
    assert (f16, f32, f64) == (8, 4, 2)
    assert tiles("wave_parallel", 512, 512, 64, wd.bf16).vector_width == 8


@pytest.mark.parametrize("empty", ["M", "N", "K"])
def test_an_empty_extent_is_refused(empty: str):
    sizes = [0 if name == empty else 128 for name in "MNK"]
    with pytest.raises(wd.ConstraintError, match=f"{empty} = 0"):
        analysis(*sizes)


def test_a_shallow_product_assembles_and_is_right(oracle, monkeypatch):
    """What the seed's generator only prints: vector loads and multiply-adds, here assembled by ptxas and run."""
    oracle("ptxas")
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_80")
    random = np.random.default_rng(3)
    a, b = (random.integers(-3, 4, shape).astype(np.float32) for shape in ((100, 16), (16, 72)))
    c = random.integers(-3, 4, (100, 72)).astype(np.float32)
    want = 2 * (a @ b) + 3 * c
    plan = plan_gemm(a, b, c, alpha=2.0, beta=3.0, strategy="shallow_k")
    (launch,) = plan.launches
    compiled = launch.kernel.compile(*launch.arguments, target="sm_80")
    assert ".entry" in compiled.asm and "ld.global.v4" in compiled.asm and "fma.rn.f32" in compiled.asm
    assert compiled.binary()[:4] == b"\x7fELF"
    plan.run()
    np.testing.assert_array_equal(c, want)
