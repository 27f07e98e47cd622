"""Waves that share the contracted dimension trip by trip: each adds up its part of every tile, once behind the loop the
parts are added through shared memory, in order of the waves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

M, N, K, BM, BN, BK, WK, WM = wd.symbols("M N K BM BN BK WK WM")


def product(schedule: wd.Schedule | None = None, start: float = 1.0, twice: bool = False):
    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, BM / WM), wd.WaveConstraint(N, BN), wd.WaveConstraint(K, BK / WK),
        ],
        subs={BM: 64, BN: 64},
        schedule=schedule,
    )  # fmt: skip
    def gemm(
        a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](start)])
        def loop(acc):
            acc = wd.mma(wd.read(a), wd.read(b), acc)
            return acc * 2.0 if twice else acc

        wd.write(loop, c)

    return gemm


def arguments(m: int, n: int, k: int) -> list[np.ndarray]:
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-3, 4, (rows, k)).astype(np.float16) for rows in (m, n))
    return [a, b, np.full((m, n), np.nan, np.float32)]


CASES = [
    ((64, 64, 256), {BK: 64, WK: 2, WM: 1}),
    ((100, 70, 200), {BK: 64, WK: 2, WM: 1}),
    ((64, 64, 512), {BK: 128, WK: 4, WM: 1}),
    ((70, 64, 130), {BK: 128, WK: 2, WM: 2}),
    ((64, 40, 64), {BK: 64, WK: 4, WM: 1}),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("sizes", "tiles"), CASES, ids=[f"{s}" for s, _ in CASES])
def test_parts_are_added_behind_the_loop(
    sizes: tuple, tiles: dict, target: str, oracle: Callable[[str], str]
) -> None:
    compiled = agree(product(), arguments(*sizes), target, oracle, subs=tiles)
    loops = [x for x in compiled.resources.loops if x.instructions.get("mfma") or x.instructions.get("tensor")]
    # Nothing is added through shared memory in the loop: a ring of one slot takes three barriers, adding six or more.
    assert all(x.instructions["barrier"] <= 2 * max(1, x.steps) + 1 for x in loops)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_more_than_a_sum_is_added_in_every_trip(target: str, oracle: Callable[[str], str]) -> None:
    agree(product(twice=True), arguments(64, 64, 128), target, oracle, subs={BK: 32, WK: 2, WM: 1})


@pytest.mark.parametrize(("waves", "barriers", "loads"), [(2, 1, 1), (4, 1, 4)])
def test_parts_meet_at_two_places_in_turn(
    waves: int, barriers: int, loads: int, oracle: Callable[[str], str]
) -> None:
    """Per fragment and trip a barrier, one store, and of two waves one load of the other's part: its own a wave still
    has. Of 64 registers of both parts, which ptxas added up later, the text of two trips spilled 8 bytes for sm_90."""
    tiles = {BK: 32 * waves, WK: waves, WM: 1}
    compiled = agree(product(twice=True), arguments(64, 64, 64 * waves), "sm_80", oracle, subs=tiles)
    fragments = compiled.asm.count("mma.sync") // 2  # two instructions along K
    assert compiled.asm.count("st.shared") == fragments
    assert compiled.asm.count("ld.shared") == loads * fragments
    assert compiled.asm.count("bar.sync") <= barriers * fragments + 3


@pytest.mark.parametrize("schedule", [wd.Schedule(specialize=False), wd.Schedule(stages=2), None], ids=str)
def test_warpgroups_share_the_contracted_dimension(schedule: wd.Schedule | None, oracle: Callable[[str], str]) -> None:
    for start in (0.0, 1.0):
        compiled = agree(
            product(schedule, start), arguments(64, 64, 320), "sm_90a", oracle, subs={BK: 128, WK: 2, WM: 1}
        )
        assert "wgmma.mma_async" in compiled.asm
