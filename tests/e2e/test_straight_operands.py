"""Operands outside of loops for which shared memory has no room: waves fetch them straight to registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wavedsl as wd

M, N, K, H = wd.symbols("M N K H")
F16, F32 = wd.f16, wd.f32


def layers(schedule: wd.Schedule | None) -> Any:
    """Two layers of a network: the second's weights are read behind the loop of the first."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(K, 64)], schedule=schedule)
    def kernel(
        x: wd.Memory[M, K, F16], first: wd.Memory[H, K, F16], second: wd.Memory[N, H, F16], y: wd.Memory[M, N, F32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, H, F32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x), wd.read(first), acc)

        hidden = wd.cast(wd.maximum(loop, 0.0), F16)
        wd.write(wd.mma(hidden, wd.read(second), wd.Register[M, N, F32](0.0)), y)

    return kernel


@pytest.mark.parametrize(
    ("target", "schedule", "hidden"),
    [("gfx942", wd.Schedule(split_k=2), 128), ("gfx90a", wd.Schedule(split_k=2), 128), ("gfx942", None, 256)],
    ids=["gfx942-parts", "gfx90a-parts", "gfx942-wide"],
)
def test_the_second_of_two_products(target: str, schedule: wd.Schedule | None, hidden: int) -> None:
    """The exchange of sums that other workgroups left took the room of the second layer's tile."""
    rng = np.random.default_rng(0)
    shapes = (70, 200), (hidden, 200), (130, hidden)
    x, first, second = (rng.integers(-1, 2, shape).astype(np.float16) for shape in shapes)
    y = np.zeros((70, 130), np.float32)
    layers(schedule).compile(x, first, second, y, target=target).emulate(x, first, second, y)
    between = np.maximum(x.astype(np.float32) @ first.astype(np.float32).T, 0)
    assert np.array_equal(y, between @ second.astype(np.float32).T)


def test_what_the_user_wants_in_shared_memory_is_not_spared() -> None:
    """An array that is declared to travel through shared memory does, or is refused."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
    def kernel(x: wd.Memory[M, K, F16], w: wd.Memory[N, K, wd.SHARED, F16], y: wd.Memory[M, N, F32]):
        wd.write(wd.mma(wd.read(x), wd.read(w), wd.Register[M, N, F32](0.0)), y)

    with pytest.raises(wd.ConstraintError, match="argument w: a shared tile"):
        kernel.compile(target="gfx942", subs={M: 64, N: 128, K: 512})
