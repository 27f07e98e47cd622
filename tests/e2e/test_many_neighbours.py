"""Filters of many neighbours, whose weights depend on what they meet: two long sums of the same terms, each of a load.

They are stored as they are computed (`late_reads`), and what is held meanwhile is what the program holds: some loads on
their way, and one term.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from agree import TARGETS, agree, near

import wavedsl as wd

H, W, C, I, J = wd.symbols("H W C I J")


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


@wd.wave([wd.WorkgroupConstraint(H, 4, 1), wd.WorkgroupConstraint(W, 8, 0), wd.WorkgroupConstraint(C, 64, 2)])
def by_channel(
    x: wd.Memory[H, W, C, wd.bf16], w: wd.Memory[I, J, C, wd.bf16], y: wd.Memory[H, W, C, wd.f32],
):  # fmt: skip
    """A filter of 7 x 7 of each channel's own."""
    total = 0.0
    for i in range(7):
        for j in range(7):
            value = wd.read(x, mapping=wd.IndexMapping((H, W, C), {H: H + (i - 3), W: W + (j - 3)}))
            total = total + wd.cast(value, wd.f32) * wd.cast(wd.read(w[i, j]), wd.f32)
    wd.write(total, y)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_right_by_channel(target: str) -> None:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((9, 10, 72), (7, 7, 72)))
    agree(by_channel, [x, w, np.zeros(x.shape, np.float32)], target, compare=near(64, 1e-5))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_what_several_elements_are_loaded_by_is_not_held_for_the_last(
    target: str, oracle: Callable[[str], str]
) -> None:  # fmt: skip
    """Four channels a lane went one after the other, each through all 98 loads of four: 424 bytes of scratch."""
    oracle("ptxas")
    assert not by_channel.compile(target=target, subs={H: 56, W: 56, C: 192, I: 7, J: 7}).resources.spills


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
