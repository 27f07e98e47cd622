"""Factors that stand for several tiles (groups of 128 of K, tiles of 64; blocks of 128 x 128), which were refused: text
against evaluator, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

M, N, K, BM, BN, BK, G = wd.symbols("M N K BM BN BK G")
CHIPS = (*TARGETS, "sm_90a")


def grouped(kind: str, group: int, **schedule: Any) -> Any:
    """Products of weights with a factor for each group along K, of each row or (`blocks`) of as many rows."""
    weights = wd.Memory[N, K, wd.GLOBAL, wd.i4] if kind == "i4" else wd.Memory[N, K, wd.f16]
    factors = wd.Memory[N / group, K / group, wd.f16] if kind == "blocks" else wd.Memory[N, K / group, wd.f16]

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK)],
        subs={BM: 64, BN: 64, BK: 64}, schedule=wd.Schedule(**schedule),
    )  # fmt: skip
    def gemm(a: wd.Memory[M, K, wd.f16], b: weights, s: factors, c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            factor = wd.read(s) * 2
            factor = wd.repeat_interleave(factor, N) if kind == "blocks" else factor
            return wd.mma(wd.read(a), wd.cast(wd.read(b), wd.f16) * wd.repeat_interleave(factor, K), acc)

        wd.write(loop, c)

    return gemm


def arguments(kind: str, group: int, n: int = 256, k: int = 256, m: int = 72) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    a = rng.integers(-3, 4, (m, k)).astype(np.float16)
    b = rng.integers(0, 256, (n, k // 2), np.uint8) if kind == "i4" else rng.integers(-3, 4, (n, k)).astype(np.float16)
    s = rng.integers(1, 4, (n // group if kind == "blocks" else n, k // group)).astype(np.float16)
    return [a, b, s, np.zeros((m, n), np.float32)]


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("kind", ["f16", "i4", "blocks"])
@pytest.mark.parametrize("group", [128, 256])
def test_groups_of_several_tiles(group: int, kind: str, target: str, oracle: Callable[[str], str]) -> None:
    agree(grouped(kind, group), arguments(kind, group), target, oracle if kind == "i4" else None)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("schedule", [{"split_k": 2}, {"stream_k": 3}], ids=str)
def test_workgroups_that_share_k(schedule: dict[str, int], target: str) -> None:
    agree(grouped("f16", 128, **schedule), arguments("f16", 128, k=384), target)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_the_last_group_may_end_early(target: str) -> None:
    a, b, s, c = arguments("f16", 128, k=384)
    agree(grouped("f16", 128), [a, b, s, c], target, dynamic=(M, N))


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_a_loop_computes_no_more_than_with_groups_of_a_tile(target: str) -> None:
    """A factor's place is scalar arithmetic."""
    size = {M: 1024, N: 1024, K: 1024}
    long, short = (grouped("i4", g).compile(target=target, subs=size).resources.loops[0] for g in (128, 64))
    assert long.instructions["valu"] <= short.instructions["valu"]
    assert long.instructions["vmem"] <= short.instructions["vmem"]
