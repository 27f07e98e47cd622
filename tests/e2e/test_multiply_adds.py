"""Products without matrix instructions: f32 on NVIDIA's chips."""

from __future__ import annotations

import numpy as np
import products

import wavedsl as wd
from wavedsl.analysis.roofline import product_named
from wavedsl.strategies import plan_gemm
from wavedsl.strategies.kernels import Form, tiled


def spread(size: tuple[int, int, int]) -> list[np.ndarray]:
    m, n, k = size
    random = np.random.default_rng(0)
    return [random.standard_normal(s).astype(np.float32) for s in ((m, k), (n, k))] + [np.full((m, n), np.nan, "f4")]


def test_reads_leave_registers_for_the_sums(oracle):
    """A wave's 16 x 8 sums per lane: all of a trip's reads once stood before the barrier, 267 registers."""
    a, b, c = spread((128, 256, 64))
    kernel = tiled(Form(wd.f32, wd.f32, True), (128, 256, 8), (2, 4, 1), 4)
    compiled = kernel.compile(a, b, c, 1.0, 0.0, target="sm_90a")
    compiled.emulate(a, b, c, 1.0, 0.0)
    assert np.abs(c - a.astype(np.float64) @ b.T.astype(np.float64)).max() < 1e-4
    products.assemble(compiled, oracle)


def test_a_wave_has_what_lanes_hold():
    """`matmul` gives waves 64 x 32, so that lanes share what they read, and two workgroups a unit."""
    arrays = spread((2048, 2048, 2048))
    plan = plan_gemm(*arrays, transpose_b=True, product="H200")
    (launch,) = plan.launches
    compiled = launch.kernel.compile(*launch.arguments, target="sm_90a")
    assert compiled.block == (128, 1, 1)
    assert wd.analyze(compiled, {}, product=product_named("H200")).seconds_by["issue"] * 0.8 < 2 * 2048**3 / 66.9e12
