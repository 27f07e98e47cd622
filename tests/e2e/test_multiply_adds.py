"""Products without matrix instructions: f32 on NVIDIA's chips."""

from __future__ import annotations

import itertools
import re

import numpy as np
import products
import pytest

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
    """`matmul` gives waves 64 x 64, so that lanes share what they read, and two workgroups a unit."""
    arrays = spread((2048, 2048, 2048))
    plan = plan_gemm(*arrays, transpose_b=True, product="H200")
    (launch,) = plan.launches
    compiled = launch.kernel.compile(*launch.arguments, target="sm_90a")
    assert compiled.block == (128, 1, 1)
    assert wd.analyze(compiled, {}, product=product_named("H200")).seconds_by["issue"] * 0.8 < 2 * 2048**3 / 66.9e12


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("size", [(256, 192, 64), (130, 100, 45), (70, 300, 7)], ids=str)
def test_rows_along_k_are_laid_down_across(size, target, oracle):
    """What one multiply-add takes of an operand and its neighbour of the next row lies side by side, so that vectors
    bring them to both banks of registers: single words are copied there, 32 bytes of a row at a time."""
    a, b, c = spread(size)
    compiled = tiled(Form(wd.f32, wd.f32, True), (128, 128, 16), (2, 2, 1), 2).compile(a, b, c, 1.0, 0.0, target=target)
    compiled.emulate(a, b, c, 1.0, 0.0)
    assert np.abs(c - a.astype(np.float64) @ b.T.astype(np.float64)).max() < 1e-4
    places = {buffer.name: buffer.place for buffer in compiled.decisions.buffers}
    assert "M/1%128*4 " in places["a"] and "N/1%128*4 " in places["b"]
    copies = re.findall(r"cp\.async\.c\w\.shared\.global\S* +\[[^]]*\], \[[^]]*\], (\d+)", compiled.asm)
    assert set(copies) == {"4"}
    products.assemble(compiled, oracle)


def test_neighbours_share_an_operand():
    """Rows of a lane's sums are walked to and fro where copies keep vectors: one operand stays for the next."""
    a, b, c = spread((128, 128, 256))
    a, b = np.asfortranarray(a), np.ascontiguousarray(b.T)
    kernel = tiled(Form(wd.f32, wd.f32), (128, 128, 16), (2, 2, 1), 2)
    compiled = kernel.compile(a, b, c, 1.0, 0.0, target="sm_90a")
    pairs = re.findall(r"fma\.rn\.f32 +%r\d+, (%r\d+), (%r\d+), %r\d+;", compiled.asm)
    shared = sum(x == y or u == v for (x, u), (y, v) in itertools.pairwise(pairs))
    assert len(pairs) >= 2048 and shared > 0.95 * len(pairs)
    compiled.emulate(a, b, c, 1.0, 0.0)
    assert np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max() < 1e-4


def test_tiles_are_as_large_as_units_have_work_for():
    """128 x 128 where they fill the units, parts of K or smaller tiles where they do not; four waves either way."""
    for size, cut in ((2048, (128, 128, 1)), (1024, (128, 128, 2)), (512, (64, 64, 2))):
        plan = plan_gemm(*(np.empty((size, size), np.float32) for _ in range(3)), transpose_b=True, product="H200")
        assert (plan.tiles.tile_m, plan.tiles.tile_n, plan.tiles.split) == cut
        (launch,) = plan.launches
        assert launch.kernel.compile(*launch.arguments, target="sm_90a").block == (128, 1, 1)
