"""L1 brings sectors of 32 bytes: a line that one access has touched lacks those that it did not ask for."""

from __future__ import annotations

import numpy as np
from wavedsl.runtime.emulator.cycle_queue import SectorCache
from wavedsl.runtime.emulator.ptx.warp_events import lines_of
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

M, N, BM = wd.symbols("M N BM")


def test_lines_of_sectors() -> None:
    assert lines_of([4, 5, 7, 8]) == ((1, 2), (0b1011, 0b0001), 4)


def test_each_sector_is_brought_once() -> None:
    cache = SectorCache(2)
    assert cache.missed((7,), (0b0001,)) == 1
    assert cache.missed((7,), (0b0011,)) == 1
    assert cache.missed((7, 8), (0b0011, 0b1111)) == 4
    assert cache.missed((9,), (0b0001,), shift=1) == 1  # line 10: 7 has to go
    assert cache.missed((7,), (0b0011,)) == 2


def four(step: int) -> wd.Kernel:
    """The sum of four numbers of each row of 32, `step` apart."""

    @wd.wave([wd.WorkgroupConstraint(M, BM, 0)], subs={BM: 128})
    def four(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, wd.f32]):
        total = wd.read(x[:, 0])
        for k in (1, 2, 3):
            total = total + wd.read(x[:, k * step])
        wd.write(total, y)

    return four


def test_sectors_of_a_line_come_one_by_one() -> None:
    """Eight apart each is of another sector, two apart all are of one."""
    x, y = np.ones((1 << 17, 32), np.float32), np.zeros(1 << 17, np.float32)
    apart, together = (sample(four(step).compile(x, y, target="sm_90a"), [x, y]).replay().cycles for step in (8, 2))
    assert apart > 2 * together
