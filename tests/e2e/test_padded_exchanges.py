"""Operands of products whose tile is shorter than what an instruction contracts, exchanged through shared memory: the
padding is zero, not what lies behind each row there."""

from __future__ import annotations

import numpy as np
import pytest

import wavedsl as wd

L, M, N = wd.symbols("L M N")


@pytest.mark.parametrize("tile", [2, 4, 6])
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a"])
def test_a_row_that_ends_inside_of_a_run(target: str, tile: int) -> None:
    """Runs of four elements were read of which the first decided for all: the others came from behind the row."""
    cut = [wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 32, 1), wd.WaveConstraint(N, 32)]

    @wd.wave([*cut, wd.TilingConstraint(L, tile)])
    def kernel(packed: wd.Memory[N, L, wd.i4], y: wd.Memory[M, N, wd.i32]):
        @wd.iterate(L, init_args=[wd.Register[M, N, wd.i32](0)])
        def loop(acc):
            return wd.mma(wd.Register[M, L, wd.i8](1), wd.cast(wd.read(packed), wd.i8), acc)

        wd.write(loop, y)

    numbers = np.random.default_rng(0).integers(-8, 8, (40, 12)).astype(np.int8)
    packed = ((numbers[:, ::2] & 15) | (numbers[:, 1::2] & 15) << 4).astype(np.uint8).view(wd.i4.storage)
    y = np.zeros((20, 40), np.int32)
    kernel.compile(packed, y, target=target).emulate(packed, y)
    np.testing.assert_array_equal(y, np.tile(numbers.astype(np.int32).sum(1), (20, 1)))
