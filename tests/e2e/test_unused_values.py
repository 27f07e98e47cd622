"""Values that nobody reads leave no trace in a text: no barrier, no shared memory, no load."""

from __future__ import annotations

import re

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

M, N = wd.symbols("M N")
CUT = [wd.WorkgroupConstraint(M, 48, 0), wd.WaveConstraint(M, 16), wd.TilingConstraint(N, 32)]
EXCHANGES = r"^\s+(s_barrier|bar\.sync|ds_write|st\.shared|v_exp|ex2)"


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-9, 10, shape).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
def test_a_reduction_over_waves_that_nobody_reads(target: str) -> None:
    """It left four barriers and an exponential behind: stores to shared memory looked like effects."""

    @wd.wave(CUT)
    def kernel(a: wd.Memory[M, wd.f32], b: wd.Memory[M, N, wd.f32], c: wd.Memory[M, wd.f32]):
        first = wd.softmax(wd.read(a), dim=M)

        @wd.iterate(N, init_args=[wd.read(a)])
        def sums(total):
            shares = wd.softmax(total * 20, dim=M) > first
            wd.where(shares, total, 0)
            return total + wd.sum(wd.read(b), dim=N)

        wd.write(sums, c)

    compiled = agree(kernel, [numbers(46), numbers(46, 2), numbers(46)], target)
    assert not re.search(EXCHANGES, compiled.asm, re.MULTILINE)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_what_has_an_effect_stays(target: str) -> None:
    """Atomics whose results nobody reads, and what they need."""

    @wd.wave(CUT[:2])
    def kernel(a: wd.Memory[M, wd.i32], b: wd.Memory[M, wd.i32]):
        x = wd.read(a)
        wd.atomic_add(wd.max(x, dim=M) + x, b)
        wd.sum(x, dim=M)

    agree(kernel, [numbers(46).astype(np.int32), np.ones(46, np.int32)], target)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_a_schedule_holds_beside_an_unused_value(target: str) -> None:
    """Left out with empty loops is what was asked of them; not so here."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(wd.sym.K, 32)],
        schedule=wd.Schedule(split_k=2),
    )
    def kernel(a: wd.Memory[M, wd.sym.K, wd.f16], b: wd.Memory[N, wd.sym.K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(wd.sym.K, init_args=[wd.Register[M, N, wd.f32](0)])
        def acc(total):
            return wd.mma(wd.read(a), wd.read(b), total)

        wd.max(acc, dim=N)
        wd.write(acc, c)

    x, y = (numbers(2, 32, 256)[i].astype(np.float16) for i in (0, 1))
    compiled = agree(kernel, [x, y, numbers(32, 32)], target)
    assert compiled.grid[0] * compiled.grid[1] * compiled.grid[2] == 2
