"""Filters of many neighbours, whose weights depend on what they meet: two long sums of the same terms, each of a load.

They are stored as they are computed (`late_reads`), and what is held meanwhile is what the program holds: some loads on
their way, and one term.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree, near

import wavedsl as wd

H, W = wd.symbols("H W")


def weighted(radius: int) -> Any:
    """Means of neighbours by how much they differ from the element in their middle."""

    @wd.wave([wd.WorkgroupConstraint(H, 8, 0), wd.WorkgroupConstraint(W, 64, 1)])
    def kernel(x: wd.Memory[H, W, wd.u8], y: wd.Memory[H, W, wd.f32]):
        def at(down: int, right: int) -> Any:
            place = {H: wd.clamp(wd.index(H) + down, 0, H - 1), W: wd.clamp(wd.index(W) + right, 0, W - 1)}
            return wd.cast(wd.read(x, mapping=wd.IndexMapping((H, W), place)), wd.f32)

        here, total, weights = at(0, 0), 0.0, 0.0
        for down in range(-radius, radius + 1):
            for right in range(-radius, radius + 1):
                value = at(down, right)
                weight = wd.exp2(-abs(value - here) - (down * down + right * right) / 8)
                total = total + weight * value
                weights = weights + weight
        wd.write(total / weights, y)

    return kernel


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("radius", [1, 4])
def test_right(radius: int, target: str) -> None:
    x = np.random.default_rng(radius).integers(0, 9, (19, 70)).astype(np.uint8)
    agree(weighted(radius), [x, np.zeros(x.shape, np.float32)], target, compare=near(64))


@pytest.mark.parametrize("radius", [5, 7])
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_no_term_is_held_for_the_second_sum(target: str, radius: int) -> None:
    """All terms of the first sum were computed before the second one was begun, of loads that were all started before:
    of 11 x 11 neighbours with 492 registers, 512 of which moved, and 14 in scratch."""
    used = weighted(radius).compile(target=target, subs={H: 480, W: 640}).resources
    assert used.registers <= 128 and used.spills == 0 and used.scratch_bytes == 0
