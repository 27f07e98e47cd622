"""How results of warpgroups' products leave on the emulated sm_90a: through shared memory by bulk copies, whatever is
computed of them on the way, whichever way round they lie."""

from __future__ import annotations

import math
from typing import Any

import hopper
import numpy as np
import products
import pytest
from hopper import tiles
from products import BF16, BK, BM, BN, F16, F16_OUT, WM, WN, K, Kind, M, N, numbers
from wavedsl.ir.rounding import convert

import wavedsl as wd

pytestmark = pytest.mark.warpgroups

FP8_OUT = Kind("f8e4m3-out", wd.f8e4m3, wd.f32, wd.f8e4m3)
I8_OUT = Kind("i8-out", wd.i8, wd.i32, wd.i8)
BF16_OUT = Kind("bf16-out", wd.bf16, wd.f32, wd.bf16)


def strategy(compiled: wd.CompiledKernel) -> Any:
    assert compiled.kernel_ir is not None
    return compiled.kernel_ir.notes["lowering"].strategy


def product(kind: Kind, order: str) -> Any:
    """A product whose result lies in memory as [M, N] or as [N, M]."""
    result = wd.Memory[(M, N, kind.out) if order == "MN" else (N, M, kind.out)]

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM), wd.WaveConstraint(N, WN), wd.HardwareConstraint(threads_per_wave=128),
        ]
    )  # fmt: skip
    def gemm(a: wd.Memory[M, K, kind.dtype], b: wd.Memory[N, K, kind.dtype], c: result):
        @wd.iterate(K, init_args=[wd.Register[M, N, kind.sums](0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop if kind.sums is kind.out else wd.cast(loop, kind.out), c)

    return gemm


@pytest.mark.parametrize(
    ("order", "size", "subs"),
    [
        ("MN", (100, 80), tiles(64, 32, 32, 64, 32)),
        ("NM", (64, 64), tiles(64, 64, 32, 64, 64)),
        ("MN", (48, 144), tiles(16, 64, 32, 16, 64)),
        ("NM", (128, 192), tiles(64, 128, 32, 64, 128)),
        ("MN", (32, 128), tiles(32, 128, 32, 32, 128)),
    ],
    ids=lambda x: x if isinstance(x, str) else "x".join(map(str, x.values() if isinstance(x, dict) else x)),
)
@pytest.mark.parametrize("kind", [F16, F16_OUT, FP8_OUT, I8_OUT, BF16_OUT], ids=str)
def test_results_leave_by_bulk_copies(kind: Kind, order: str, size: tuple[int, int], subs: dict[Any, int]) -> None:
    """Of 32, 16 and 8 bits, with the instruction's rows across memory and along it (operands swapped)."""
    m, n = size
    a, b = numbers((m, 64), kind.dtype, 1), numbers((n, 64), kind.dtype, 2)
    c = np.full((m, n) if order == "MN" else (n, m), 55).astype(kind.out.storage)
    compiled = product(kind, order).compile(a, b, c, target="sm_90a", subs=subs)
    compiled.emulate(a, b, c)
    assert strategy(compiled).outlets == 1 and "cp.async.bulk.tensor.2d.global" in compiled.asm
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    want = exact.astype(np.int8) if kind.out is wd.i8 else convert(exact, wd.f64, kind.out)
    assert np.array_equal(c.astype(np.float64), (want if order == "MN" else want.T).astype(np.float64))


def test_transposing_matrix_stores() -> None:
    """Results of 16 bits are transposed by the matrix store itself."""
    sizes = {M: 32, N: 128, K: 64}
    compiled = product(BF16_OUT, "MN").compile(target="sm_90a", subs={**tiles(32, 64, 32, 32, 64), **sizes})
    assert "stmatrix.sync.aligned.m8n8.x4.trans" in compiled.asm


def test_several_tiles_and_swapped_products() -> None:
    """Two teams, buffers that are used again."""
    a, b = numbers((80, 96), wd.bf16, 1), numbers((384, 96), wd.bf16, 2)
    c = np.zeros((80, 384), wd.bf16.storage)
    kernel = product(BF16_OUT, "MN")
    kernel.schedule = wd.Schedule(persistent=True)
    compiled = kernel.compile(a, b, c, target="sm_90a", subs=tiles(16, 64, 32, 16, 64))
    assert strategy(compiled).teams == 2 and strategy(compiled).outlets == 1
    compiled.grid = (5, 1, 1)
    compiled.emulate(a, b, c)
    assert np.array_equal(c, convert(a.astype(np.float64) @ b.astype(np.float64).T, wd.f64, wd.bf16))


@pytest.mark.parametrize(
    ("kind", "k", "stages", "buffers", "batches"),
    [(BF16_OUT, 512, None, 4, 1), (BF16_OUT, 448, None, 2, 4), (BF16_OUT, 512, 4, 2, 4), (F16, 512, None, 2, 8)],
    ids=["all at once", "few trips", "a fourth slot asked for", "too many for shared memory"],
)
def test_panels_have_buffers_of_their_own(kind: Kind, k: int, stages: int | None, buffers: int, batches: int) -> None:
    """Where three slots of the ring are left beside them, all panels of a wave's tile leave behind one barrier, tile
    after tile; else two buffers are used in turn."""
    a, b = numbers((128, k), kind.dtype, 1), numbers((768, k), kind.dtype, 2)
    c = np.zeros((128, 768), kind.out.storage)
    kernel = product(kind, "MN")
    kernel.schedule = wd.Schedule(persistent=True, stages=stages)
    compiled = kernel.compile(a, b, c, target="sm_90a", subs=tiles(128, 256, 64, 64, 256))
    assert compiled.kernel_ir is not None
    assert compiled.kernel_ir.shared_names["results"][1] == 2 * buffers * 8192
    assert compiled.asm.count("fence.proxy.async") == batches
    assert strategy(compiled).stages == (3 if buffers == 4 else 4)
    compiled.grid = (2, 1, 1)
    compiled.emulate(a, b, c)
    assert np.array_equal(c, convert(a.astype(np.float64) @ b.astype(np.float64).T, wd.f64, kind.out))


@pytest.mark.parametrize("subs", [tiles(64, 48, 64, 64, 48), tiles(32, 64, 64, 32, 64)], ids=["straight", "swapped"])
@pytest.mark.parametrize("epilogue", ["bias relu", "gelu", "gelu tanh", "gelu tanh fast", "scales silu", "alpha beta"])
def test_epilogues_keep_the_way_out(epilogue: str, subs: dict[Any, int]) -> None:
    """Each is computed while it is stored, and stays within what its functions and the result's type round."""
    a, b = numbers((64, 128), wd.bf16, 1), numbers((96, 128), wd.bf16, 2)
    c = np.zeros((64, 96), wd.bf16.storage)
    rows, columns = (0.1 * numbers((n,), wd.f32, n, "normal") for n in (64, 96))
    sums = products.exact(a, b, BF16)[0]
    args: tuple[Any, ...] = (a, b, columns, c)
    if epilogue == "bias relu":
        want = np.maximum(sums + columns, 0)
    elif epilogue.startswith("gelu"):
        x = (sums + columns) * 1.0
        inner = (2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)
        erf = np.vectorize(math.erf)
        want = 0.5 * x * (1 + (erf(x * 0.5**0.5) if epilogue == "gelu" else np.tanh(inner)))
    elif epilogue == "scales silu":
        x = sums * rows[:, None].astype(np.float64) * columns[None]
        want, args = x / (1 + np.exp(-x)), (a, b, rows, columns, c)
    else:
        addend = numbers((64, 96), wd.bf16, 4)
        want = sums * 2.0 - 3.0 * addend.astype(np.float64)
        args = (a, b, addend, c, np.float32(2.0), np.float32(-3.0))
    compiled = hopper.gemm(BF16, epilogue=epilogue).compile(*args, target="sm_90a", subs=subs)
    compiled.emulate(*args)
    # 1 + erf and 1 + tanh cancel where x is far below zero: their error counts against x.
    lost = 2.0**-19 * np.abs(sums + columns) if epilogue.startswith("gelu") else 0.0
    half = 0.5 * np.exp2(np.floor(np.log2(np.maximum(np.abs(want), 2.0**-126))) - 7)
    assert (np.abs(c.astype(np.float64) - want) <= half * 1.01 + lost + 1e-6).all()
    assert strategy(compiled).specialize and strategy(compiled).outlets == 1


@pytest.mark.parametrize(
    ("subs", "columns"),
    [
        (tiles(64, 128, 64, 64, 128), 136),  # results of 16 and of 32 bits, both by bulk copies
        (tiles(32, 64, 64, 32, 64), 96),  # transposed
        pytest.param(tiles(64, 128, 64, 64, 128), 99, marks=pytest.mark.slow),  # from registers
    ],
    ids=["straight", "swapped", "rows of odd length"],
)
def test_operands_of_results_are_loaded_as_they_are_stored(subs: dict[Any, int], columns: int) -> None:
    """Scales, a bias and an addend; two results leave panel by panel, side by side."""
    m, n = 64, columns
    a, b = numbers((m, 128), wd.bf16, 1), numbers((n, 128), wd.bf16, 2)
    rows, cols, bias = (0.1 * numbers((size,), wd.f32, i, "normal") for i, size in enumerate((m, n, n), 3))
    c, before, d = numbers((m, n), wd.bf16, 4), np.zeros((m, n), np.float32), np.zeros((m, n), wd.bf16.storage)
    args = (a, b, rows, cols, bias, c, before, d)
    compiled = hopper.gemm(BF16, epilogue="all").compile(*args, target="sm_90a", subs=subs)
    compiled.emulate(*args)
    x = products.exact(a, b, BF16)[0] * rows[:, None].astype(np.float64) * cols + bias + c.astype(np.float64)
    assert np.allclose(before, x, rtol=1e-5, atol=1e-5)
    want = 0.5 * x * (1 + np.vectorize(math.erf)(x * 0.5**0.5))
    assert np.allclose(d.astype(np.float64), want, rtol=2.0**-8, atol=1e-5)
    assert strategy(compiled).outlets == (0 if n % 2 else 2)
