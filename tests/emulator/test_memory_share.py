"""Memory has its part of what workgroups ask for the first time; what they ask for again L1 has, or L2."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from wavedsl.runtime.emulator.cycle_chips import model_of
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

M, N, BM = wd.symbols("M N BM")


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_rows_that_are_read_twice(target: str) -> None:
    """The second time L1 has them: to half of what was read memory seemed to have nothing to do, and the whole took 0.8
    of memory's time."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
    def softmax(x: wd.Memory[M, N, wd.bf16], y: wd.Memory[M, N, wd.bf16]):
        wd.write(wd.cast(wd.softmax(wd.cast(wd.read(x), wd.f32), dim=N), wd.bf16), y)

    x, y = (np.zeros((1056, 32000), ml_dtypes.bfloat16) for _ in range(2))
    compiled = softmax.compile(x, y, target=target)
    assert ".minnctapersm 2" in compiled.asm, "rows are loaded again to make room for two workgroups"
    assert sample(compiled, [x, y]).replay().cycles > (x.nbytes + y.nbytes) / model_of(target).dram_rate


@pytest.mark.parametrize("waves", [1, 16])
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_lines_that_several_instructions_read(target: str, waves: int) -> None:
    """Four loads of each line of 128 bytes, whether L1 has room for all lines of a workgroup or not: memory is asked
    once."""

    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WaveConstraint(M, 64)], subs={BM: 64 * waves})
    def four(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, wd.f32]):
        total = wd.read(x[:, 0])
        for k in (8, 16, 24):
            total = total + wd.read(x[:, k])
        wd.write(total, y)

    chip = model_of(target)
    rows = chip.units * 64 * waves
    x, y = np.zeros((rows, 32), np.float32), np.zeros(rows, np.float32)
    clocks = sample(four.compile(x, y, target=target), [x, y]).replay().cycles
    bytes = x.nbytes + y.nbytes
    assert bytes / chip.dram_rate < clocks < bytes / chip.dram_rate + (3000 if waves == 1 else 5000)


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "sm_80", "sm_90a"])
def test_arrays_that_are_changed_in_place(target: str) -> None:
    """They are read and written: what a workgroup had read it stored for nothing, so that a step of an optimiser took
    0.57 of what memory takes for it."""

    @wd.wave([wd.WorkgroupConstraint(M, 4096, 0)])
    def apart(x: wd.Memory[M, wd.f32], y: wd.Memory[M, wd.f32], z: wd.Memory[M, wd.f32]):
        wd.write(wd.read(x) * 0.5 + wd.read(y), z)

    @wd.wave([wd.WorkgroupConstraint(M, 4096, 0)])
    def inside(x: wd.Memory[M, wd.f32], y: wd.Memory[M, wd.f32]):
        wd.write(wd.read(x) * 0.5 + wd.read(y), x)

    chip = model_of(target)
    x, y, z = (np.zeros(4096 * 4 * chip.units, np.float32) for _ in range(3))
    clocks = sample(inside.compile(x, y, target=target), [x, y]).replay().cycles
    assert clocks > 3 * x.nbytes / chip.dram_rate
    assert clocks == pytest.approx(sample(apart.compile(x, y, z, target=target), [x, y, z]).replay().cycles, rel=0.02)
