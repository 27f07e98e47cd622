"""Loops that memory holds up have as many stages as keep enough bytes on their way; all others have the usual four."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pytest
from wavedsl.ir.staging.memory_depth import MOST_STAGES

import wavedsl as wd
from wavedsl.strategies.kernels import Form, tiled
from wavedsl.targets import get_target

M, N, K, BM, BN, BK, WM, WN = wd.symbols("M N K BM BN BK WM WN")


def product(dtype: wd.DType, tile: tuple[int, ...], schedule: wd.Schedule | None = None) -> Any:
    """c = a bᵀ in tiles of M, N, K, then of waves along M and N; nothing is said of stages unless by `schedule`."""
    sums = wd.f64 if dtype is wd.f64 else wd.f32

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM), wd.WaveConstraint(N, WN),
        ],
        subs=dict(zip((BM, BN, BK, WM, WN), tile)), schedule=schedule,
    )  # fmt: skip
    def gemm(a: wd.Memory[M, K, wd.SHARED, dtype], b: wd.Memory[N, K, wd.SHARED, dtype], c: wd.Memory[M, N, sums]):
        @wd.iterate(K, init_args=[wd.Register[M, N, sums](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return gemm


def compiled(kernel: Any, dtype: wd.DType, size: tuple[int, int, int], target: str, **options: Any) -> Any:
    m, n, k = size
    a, b = np.empty((m, k), dtype.storage), np.empty((n, k), dtype.storage)
    c = np.empty((m, n), np.float64 if dtype is wd.f64 else np.float32)
    return kernel.compile(a, b, c, target=target, **options)


def slots(found: Any) -> int:
    """Stages of the one loop."""
    (loop,) = found.kernel_ir.notes["lowering"].loops
    return int(loop.slots)


BOUND = [
    ("sm_90a", wd.f64, (16, 32, 8, 16, 16), (16, 4096, 4096), 7),
    ("sm_90a", wd.f64, (16, 64, 16, 16, 16), (16, 8192, 4096), 4),
    ("sm_90a", wd.f64, (16, 32, 8, 16, 16), (16, 4096 * 8, 4096), 4),  # workgroups that reside together have enough
    ("sm_80", wd.f64, (8, 16, 8, 8, 16), (8, 1600, 4096), 4),
]


@pytest.mark.parametrize(("target", "dtype", "tile", "size", "stages"), BOUND, ids=str)
def test_enough_is_on_its_way(
    target: str, dtype: wd.DType, tile: tuple[int, ...], size: tuple[int, int, int], stages: int
) -> None:
    chip = get_target(target)
    found = compiled(product(dtype, tile, wd.Schedule(split_k=1)), dtype, size, target)
    assert slots(found) == stages
    share = ceil(ceil(size[0] / tile[0]) * ceil(size[1] / tile[1]) / chip.units)
    warps = found.block[0] // chip.wave_size
    resident = min(share, chip.occupancy(1, found.shared_bytes, found.block[0]) // warps)
    trip = (tile[0] + tile[1]) * tile[2] * dtype.bits // 8
    assert resident * (stages - 1) * trip >= chip.bytes_in_flight
    assert stages == 4 or resident * (stages - 2) * trip < chip.bytes_in_flight


def test_what_the_ring_cannot_hold_is_not_asked_for() -> None:
    """Tiles so small that eight slots bring too little: a deeper ring would not end."""
    found = compiled(product(wd.f64, (8, 16, 8, 8, 16)), wd.f64, (8, 2112, 4096), "sm_90a")
    assert slots(found) == MOST_STAGES


KEPT = {
    "products take longer": (wd.f64, (64, 64, 8, 32, 32), (1024, 1024, 4096), None, {}),
    "the user says so": (wd.f64, (16, 32, 8, 16, 16), (16, 4096, 4096), wd.Schedule(stages=3), {}),
    "extents are run-time": (wd.f64, (16, 32, 8, 16, 16), (16, 4096, 4096), None, {"dynamic": (N,)}),
    "the loop is short": (wd.f64, (16, 32, 8, 16, 16), (16, 4096, 32), None, {}),
}


@pytest.mark.parametrize("why", KEPT)
def test_stages_stay(why: str) -> None:
    dtype, tile, size, schedule, options = KEPT[why]
    found = compiled(product(dtype, tile, schedule), dtype, size, "sm_90a", **options)
    assert slots(found) == (3 if schedule else 4)


def test_a_deep_ring_gives_the_same() -> None:
    dtype, tile = wd.f64, (16, 32, 8, 16, 16)
    random = np.random.default_rng(3)
    a, b = random.integers(-3, 4, (16, 75)).astype(np.float64), random.integers(-3, 4, (4096, 75)).astype(np.float64)
    c = np.full((16, 4096), np.nan)
    found = product(dtype, tile).compile(a, b, c, target="sm_90a")
    assert slots(found) == 7
    found.emulate(a, b, c)
    np.testing.assert_array_equal(c, a @ b.T)


@pytest.mark.parametrize(
    ("columns", "target", "m", "count"),
    [
        (32, "gfx942", 1 << 14, 1),  # 12 KiB a slot: two would leave room for two workgroups of a wave each
        (32, "gfx942", 1 << 10, 2),  # a launch that has no more than two
        (64, "gfx942", 1 << 14, 2),  # 20 KiB: four workgroups do not fit with one slot either
        (32, "gfx950", 1 << 14, 1),  # eight workgroups, two waves for each SIMD
        (96, "gfx950", 1 << 14, 1),  # 28 KiB: five workgroups of a wave, two with two slots
        (80, "gfx950", 1 << 14, 2),  # 24 KiB: three workgroups with two slots
    ],
)
def test_small_workgroups_leave_no_simd_idle(columns: int, target: str, m: int, count: int) -> None:
    """A loop whose tile of K cannot be cut, because a trip does more than add products."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, columns, 1), wd.TilingConstraint(K, 128),
              wd.WaveConstraint(M, 16), wd.WaveConstraint(N, columns)])  # fmt: skip
    def largest(
        a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(top):
            return wd.maximum(top, wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32](0.0)))

        wd.write(loop, c)

    assert slots(largest.compile(subs={M: m, N: 2 * columns, K: 512}, target=target)) == count


@pytest.mark.parametrize(("size", "shared"), [(2048, 65536), (4096, 32768)])
def test_nobody_leaves_room_for_a_workgroup_that_does_not_come(size, shared):
    """256 workgroups, fewer than MI300X has units, take all of shared memory: two slots of 64 elements of K. A launch
    of 1024 has two of them on a unit."""
    form = Form(wd.bf16, wd.bf16, True)
    made = tiled(form, (128, 128, 64), (2, 2, 1), 0, split=1).compile(
        *(np.empty((size, size), wd.bf16.numpy) for _ in range(3)), 1.0, 0.0, target="gfx942"
    )
    assert made.shared_bytes == shared
