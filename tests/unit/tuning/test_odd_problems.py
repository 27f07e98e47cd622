"""Problems of which little is left to tune: no elements, few of them, dtypes that data sheets do not list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wavedsl as wd

M, N, K, BM = wd.symbols("M N K BM")


def doubled(tmp_path: Path, space: dict[Any, list[int]]) -> Any:
    @wd.autotune(space=space, results=tmp_path / "results.json")
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0)])
    def double(a: wd.Memory[M, wd.f32], b: wd.Memory[M, wd.f32]):
        wd.write(wd.read(a) * 2, b)

    return double


@pytest.mark.parametrize(("extent", "tiles"), [(0, [64, 128]), (40, [8, 16])], ids=["nothing", "less than a wave"])
def test_a_call_that_tunes_takes_some_candidate(
    extent: int, tiles: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of no elements there was nothing to rank; tiles of fewer than a wave's lanes were all left out."""
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    double = doubled(tmp_path, {BM: tiles})
    a, b = np.arange(extent, dtype=np.float32), np.zeros(extent, np.float32)
    double(a, b)
    np.testing.assert_array_equal(b, 2 * a)


def test_tiles_that_leave_lanes_idle_are_left_out_beside_others(tmp_path: Path) -> None:
    result = doubled(tmp_path, {BM: [8, 64]}).tune(subs={M: 1000}, target="gfx942")
    assert result.best is not None and result.best.key == "BM=64"
    assert result.count("pruned") == 1


@pytest.mark.parametrize("dtype", [wd.i4, wd.u4], ids=str)
@pytest.mark.parametrize("product", ["A100", "H200"])
def test_products_of_four_bits_have_a_roofline(dtype: Any, product: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 64)])
    def gemm(a: wd.Memory[M, K, dtype], b: wd.Memory[N, K, dtype], c: wd.Memory[M, N, wd.i32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.i32](0)])
        def sums(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(sums, c)

    found = wd.analyze(gemm, product=product, subs={M: 256, N: 256, K: 512})
    units, clock = {"A100": (108, 1.41e9), "H200": (132, 1.83e9)}[product]
    assert (found.dtype, found.unit) == (str(dtype), "matrix")
    assert found.peak_compute == pytest.approx(8192 * units * clock)
