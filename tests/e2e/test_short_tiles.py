"""Tiles that are longer than their array: boxes of bulk copies end where the array does, what lies behind is zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracles
import pytest
from wavedsl.runtime.toolchain import assemble_ptx

import wavedsl as wd

pytestmark = pytest.mark.warpgroups

M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")


def gemm(b_rows: bool = True, dynamic: tuple[Any, ...] = (), **schedule: Any) -> wd.Kernel:
    of_b = wd.Memory[N, K, wd.f16] if b_rows else wd.Memory[K, N, wd.f16]

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK)],
        schedule=wd.Schedule(**schedule) if schedule else None,
        dynamic=dynamic,
    )
    def product(a: wd.Memory[M, K, wd.f16], b: of_b, c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return product


def boxes(compiled: wd.CompiledKernel) -> dict[str, tuple[int, ...]]:
    """Rows of the boxes by array, of bulk loads."""
    return {p.map.array: p.map.box[1] for p in compiled.kernel_ir.params if p.map is not None and p.map.array != "c"}


def run(kernel: wd.Kernel, size: tuple[int, int, int], tile: tuple[int, int, int], b_rows: bool = True) -> Any:
    m, n, k = size
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (n, k) if b_rows else (k, n)))
    got, evaluated = (np.full((m, n), np.nan, np.float32) for _ in range(2))
    subs = dict(zip((BM, BN, BK), tile))
    compiled = kernel.compile(a, b, got, target="sm_90a", subs=subs)
    compiled.emulate(a, b, got)
    want = a.astype(np.float32) @ (b.T if b_rows else b).astype(np.float32)
    np.testing.assert_array_equal(got, want)
    kernel.evaluate(a, b, evaluated, subs=subs)
    np.testing.assert_array_equal(evaluated, want)
    return compiled


CASES = [
    ((40, 256, 256), (64, 64, 64), {}, {"a": 40, "b": 64}),
    ((100, 256, 256), (128, 128, 64), {}, {"a": 100, "b": 128}),
    ((5, 128, 512), (16, 64, 128), {}, {"a": 5, "b": 64}),
    ((1, 128, 256), (16, 128, 64), {}, {"a": 1, "b": 128}),
    ((300, 30, 256), (64, 64, 64), {}, {"a": 64, "b": 30}),
    ((40, 256, 256), (64, 64, 64), {"specialize": False}, {"a": 40, "b": 64}),
    # A cluster's workgroups bring equal parts of the rows, whole groups of a swizzle's 8.
    ((100, 256, 256), (128, 64, 64), {"cluster": (1, 2, 1)}, {"a": 56, "b": 64}),
    ((100, 256, 256), (128, 64, 64), {"cluster": (1, 4, 1)}, {"a": 32, "b": 64}),
    ((70, 256, 256), (128, 64, 64), {"cluster": (1, 4, 1)}, {"a": 24, "b": 64}),
    # Sums of a cluster's parts lie where the tiles were; there is no tile behind them.
    ((72, 256, 1024), (128, 128, 64), {"split_k": 4, "cluster": (1, 1, 4)}, {"a": 72, "b": 128}),
]


@pytest.mark.parametrize("size, tile, schedule, rows", CASES)
def test_boxes_end_where_the_array_does(size: Any, tile: Any, schedule: dict[str, Any], rows: dict[str, int]) -> None:
    assert boxes(run(gemm(**schedule), size, tile)) == rows


def test_rows_of_k_that_are_not_there_are_zero() -> None:
    """B in rows of K, whose one tile is longer than K: what lies behind is multiplied."""
    compiled = run(gemm(b_rows=False), (64, 128, 40), (64, 64, 64), b_rows=False)
    assert boxes(compiled) == {"a": 64, "b": 40}


@pytest.mark.slow
def test_tiles_in_turn_find_the_same_zeros() -> None:
    """Every workgroup goes on to other columns; slots are filled again and again."""
    kernel = gemm(persistent=True)
    assert boxes(run(kernel, (40, 64 * 140, 128), (64, 64, 64)))["a"] == 40


def test_two_tiles_or_any_number_of_rows_keep_whole_boxes() -> None:
    compiled = run(gemm(), (100, 128, 128), (64, 64, 64))
    assert boxes(compiled) == {"a": 64, "b": 64}
    compiled = run(gemm(dynamic=(M,)), (40, 128, 128), (64, 64, 64))
    assert boxes(compiled) == {"a": 64, "b": 64}


def test_a_copy_is_waited_for_by_as_many_bytes_as_it_brings() -> None:
    compiled = run(gemm(), (40, 128, 128), (64, 64, 64))
    expected = (40 + 64) * 64 * 2
    assert f"], {expected};" in compiled.asm


@pytest.mark.slow
@pytest.mark.parametrize("size, tile, schedule, rows", CASES)
def test_what_makes_zeros_spills_nothing(size: Any, tile: Any, schedule: dict[str, Any], rows: dict[str, int]) -> None:
    oracles.require("ptxas")
    subs = dict(zip((BM, BN, BK, M, N, K), (*tile, *size)))
    found = assemble_ptx(gemm(**schedule).compile(subs=subs, target="sm_90a").asm, "sm_90a")
    assert not found.warnings and not any(entry.spill_stores for entry in found.entries)


def test_clocks_of_sums_that_a_neighbour_has() -> None:
    """Their addresses lie below this workgroup's own shared memory for all but the first."""
    kernel = gemm(split_k=4, cluster=(1, 1, 4))
    a, b, c = np.zeros((72, 1024), np.float16), np.zeros((256, 1024), np.float16), np.zeros((72, 256), np.float32)
    report = kernel.compile(a, b, c, target="sm_90a", subs={BM: 128, BN: 128, BK: 64}).emulate(a, b, c)
    assert report.cycles > 0
