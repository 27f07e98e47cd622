"""Tiles of K are cut finer where a second stage or registers fit only then, and only where no one can tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

M, N, K = wd.symbols("M N K")
SIZES = {M: 256, N: 256, K: 512}
WAVES = [
    wd.WorkgroupConstraint(M, 256, 0),
    wd.WorkgroupConstraint(N, 256, 1),
    wd.TilingConstraint(K, 64),
    wd.WaveConstraint(M, 64),
    wd.WaveConstraint(N, 128),
]


@wd.wave(WAVES)
def products(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


@wd.wave(WAVES)
def counting(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
    """Adds one per trip: the number of trips is the user's."""
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc) + 1.0

    wd.write(loop, c)


def slots(compiled: wd.CompiledKernel) -> tuple[int, int | None]:
    (note,) = compiled.kernel_ir.notes["lowering"].loops
    return note.slots, note.trips


def test_a_tile_that_fills_shared_memory_is_halved() -> None:
    compiled = products.compile(target="gfx942", subs=SIZES)
    assert slots(compiled) == (2, 16)
    loop = compiled.resources.loops[0]
    assert loop.instructions["mfma"] == 64 * loop.steps  # steps are the user's
    assert compiled.shared_bytes == 65536


def test_room_for_two_keeps_the_tile() -> None:
    assert slots(products.compile(target="gfx950", subs=SIZES)) == (2, 8)


@pytest.mark.parametrize(("target", "found"), [("gfx90a", (2, 16)), ("gfx942", (1, 8)), ("gfx950", (2, 8))])
def test_rows_of_a_second_workgroup_s_tiles_stay_whole_lines(target: str, found: tuple[int, int]) -> None:
    """One slot of 128 x 128 x 64 leaves room for a second workgroup, which multiplies while the first one copies. Half
    of K would be rows of 64 bytes: a line of gfx90a, half of one of gfx942, where each line came from L2 twice."""
    wide = narrow((128, 128, 64), (2, 2), False)
    made = wide.compile(target=target, subs={M: 4096, N: 4096, K: 512})
    assert slots(made) == found
    halves = narrow((128, 128, 32), (2, 2), False).compile(target=target, subs={M: 4096, N: 4096, K: 512})
    a, b, c = np.zeros((4096, 512), np.float16), np.zeros((4096, 512), np.float16), np.zeros((4096, 4096), np.float32)
    clocks, others = (sample(x, [a, b, c]).cycles for x in (made, halves))
    assert clocks < (0.9 if target == "gfx942" else 1.02) * others
    alone = wide.compile(target=target, subs={M: 256, N: 256, K: 512})
    assert slots(alone) == (2, 8)  # nobody leaves room


def narrow(tile: tuple[int, int, int], waves: tuple[int, int], transposed: bool) -> Any:
    """A product of f16 by few wide waves; B is [K, N] if `transposed`."""
    (bm, bn, bk), b_dims = tile, (K, N) if transposed else (N, K)

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, bm, 0),
            wd.WorkgroupConstraint(N, bn, 1),
            wd.TilingConstraint(K, bk),
            wd.WaveConstraint(M, bm // waves[0]),
            wd.WaveConstraint(N, bn // waves[1]),
        ],
        schedule=wd.Schedule(split_k=1),
    )
    def few(
        a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[(*b_dims, wd.SHARED, wd.f16)], c: wd.Memory[M, N, wd.f32]
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return few


@pytest.mark.parametrize(
    ("target", "tile", "waves", "transposed"),
    [
        ("gfx90a", (64, 64, 128), (1, 1), False),
        ("gfx942", (64, 128, 128), (1, 1), True),
        ("gfx942", (128, 128, 64), (2, 1), True),
        ("gfx950", (32, 128, 128), (1, 1), False),
        ("gfx950", (128, 128, 128), (2, 1), False),
    ],
)
def test_a_trip_that_registers_do_not_hold_is_halved(target, tile, waves, transposed) -> None:
    """These spilled up to 219 registers or computed addresses in the loop."""
    compiled = narrow(tile, waves, transposed).compile(target=target, subs={M: 256, N: 256, K: 1024})
    (loop,) = (x for x in compiled.resources.loops if x.instructions["mfma"])
    assert loop.instructions["valu"] == loop.instructions["accmove"] == compiled.resources.spills == 0
    assert slots(compiled)[1] in (2 * 1024 // tile[2], 4 * 1024 // tile[2])


def test_a_trip_that_registers_hold_keeps_the_tile() -> None:
    compiled = narrow((64, 64, 64), (1, 1), False).compile(target="gfx942", subs={M: 256, N: 256, K: 1024})
    assert slots(compiled) == (2, 16)


def test_stages_that_the_user_fixes_keep_the_tile() -> None:
    kernel = wd.wave(WAVES, schedule=wd.Schedule(stages=1))(products.function)
    assert slots(kernel.compile(target="gfx942", subs=SIZES)) == (1, 8)


def test_a_loop_that_counts_its_trips_keeps_the_tile() -> None:
    assert slots(counting.compile(target="gfx942", subs=SIZES))[1] == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "tile", "waves", "transposed"),
    [("gfx942", (64, 128, 128), (1, 1), True), ("gfx950", (32, 128, 128), (1, 1), False)],
)
def test_what_was_halved_for_registers_is_exact(target, tile, waves, transposed) -> None:
    random = np.random.default_rng(0)
    a, b = random.integers(-4, 5, (100, 500)).astype(np.float16), random.integers(-4, 5, (130, 500)).astype(np.float16)
    got, stored = np.zeros((100, 130), np.float32), np.ascontiguousarray(b.T) if transposed else b
    narrow(tile, waves, transposed).compile(a, stored, got, target=target).emulate(a, stored, got)
    np.testing.assert_array_equal(got, a.astype(np.float32) @ b.T.astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [products, counting])
def test_both_compute_what_they_say(kernel) -> None:
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, (256, 512)).astype(np.float16) for _ in range(2))
    got, want = np.zeros((256, 256), np.float32), np.zeros((256, 256), np.float32)
    kernel.compile(a, b, got, target="gfx942").emulate(a, b, got)
    kernel.evaluate(a, b, want)
    np.testing.assert_array_equal(got, want)
