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


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.HardwareConstraint(threads_per_wave=32)], subs={BM: 128})
def corners(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, wd.f32]):
    """Four numbers of each row of 32, from different sectors of its line."""
    total = wd.read(x[:, 0])
    for k in (8, 16, 24):
        total = total + wd.read(x[:, k])
    wd.write(total, y)


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.HardwareConstraint(threads_per_wave=32)], subs={BM: 128})
def neighbours(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, wd.f32]):
    """Four neighbours of each row, from one sector."""
    total = wd.read(x[:, 0])
    for k in (2, 4, 6):
        total = total + wd.read(x[:, k])
    wd.write(total, y)


def test_sectors_of_a_line_come_one_by_one() -> None:
    x, y = np.ones((1 << 17, 32), np.float32), np.zeros(1 << 17, np.float32)
    took = {}
    for kernel in (corners, neighbours):
        compiled = kernel.compile(x, y, target="sm_90a")
        took[kernel.name] = sample(compiled, [x, y]).replay().cycles
    assert took["corners"] > 2 * took["neighbours"]
