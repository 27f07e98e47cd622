"""Carried integers that always equal one another become one; those that only begin or go on alike do not."""

from __future__ import annotations

import numpy as np
import pytest
from wavedsl.ir import dtypes
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_eval import run
from wavedsl.ir.kernel.kernel_ir import I32, Param
from wavedsl.ir.kernel.kernel_verify import check
from wavedsl.ir.kernel.merge_carried import merge_carried

from .kernels import make_target


def rings(counts, starts, inner=3, branch=False):
    """Rings of `counts` slots that start at slot `starts` walk on in a loop in a loop, or in a branch of it: every trip
    adds its slots and parities, weighted by place, to what is stored."""
    params = [Param("y", "pointer", dtypes.i32, 0, 8, access="write"), Param("n", "scalar", dtypes.i32, 8, 4)]
    kernel = new_kernel("rings", "gfx942", waves=1, params=params, grid=(1, 1, 1))
    b = Builder(kernel)

    def advanced(states):
        found = []
        for (slot, parity), count in zip(zip(states[::2], states[1::2]), counts):
            following = b.add(slot, 1)
            wraps = b.cmp("eq", following, count)
            found += [b.select(wraps, 0, following), b.xor(parity, b.select(wraps, 1, 0))]
        return found

    def added(total, states):
        for place, x in enumerate(states):
            total = b.add(b.mul(total, 3), b.add(x, place))
        return total

    states = [b.const(x, I32) for start in starts for x in (start, 0)]
    n = b.param(1, lo=0, hi=50)
    with b.for_(0, n, 1, [b.const(0, I32), *states], label="outer") as outer:
        if branch:
            with b.if_(b.cmp("sgt", outer.iv, 2)) as taken:
                taken.yield_([added(outer.carried[0], outer.carried[1:]), *advanced(outer.carried[1:])])
            with taken.orelse():
                taken.yield_(list(outer.carried))
            outer.yield_(list(taken.results))
        else:
            with b.for_(0, inner, 1, list(outer.carried), label="inner") as loop:
                loop.yield_([added(loop.carried[0], loop.carried[1:]), *advanced(loop.carried[1:])])
            outer.yield_(list(loop.results))
    b.store_global(b.buffer(b.param(0), 256), b.mul(b.lane(), 4), outer.results[0])
    return b.finish()


def carried(kernel):
    return [len(op.results) for op in kernel.body.walk() if op.name == "for"]


def meaning(kernel, n):
    y = np.zeros(64, np.int32)
    run(kernel, [y, n])
    return int(y[0])


@pytest.mark.parametrize(
    ("counts", "starts", "kept"),
    [
        ((3, 3, 3), (0, 0, 0), 1),
        ((3, 3, 2), (0, 0, 0), 2),
        ((3, 3, 3), (0, 1, 0), 2),
        ((2, 3, 4), (0, 0, 0), 3),
        ((4, 2, 4, 2), (1, 1, 1, 1), 2),
    ],
)
@pytest.mark.parametrize("branch", [False, True])
def test_rings_in_step_share_slot_and_parity(counts, starts, kept, branch):
    before = rings(counts, starts, branch=branch)
    assert set(carried(before)) == {1 + 2 * len(counts)}
    after = merge_carried(rings(counts, starts, branch=branch))
    assert set(carried(after)) == {1 + 2 * kept}
    assert not check(after, make_target())
    for n in (0, 1, 2, 5, 12):
        assert meaning(after, n) == meaning(before, n)


def test_values_that_change_places_are_told_apart_by_what_they_start_from():
    """x, y = y, x: equal where both start from the same number, and never else."""

    def swapping(first, second):
        params = [Param("y", "pointer", dtypes.i32, 0, 8, access="write"), Param("n", "scalar", dtypes.i32, 8, 4)]
        b = Builder(new_kernel("swap", "gfx942", waves=1, params=params, grid=(1, 1, 1)))
        with b.for_(0, b.param(1, lo=0, hi=9), 1, [b.const(first, I32), b.const(second, I32)]) as loop:
            x, y = loop.carried
            loop.yield_([b.add(y, 1), b.add(x, 1)])
        b.store_global(b.buffer(b.param(0), 256), b.mul(b.lane(), 4), b.sub(b.mul(loop.results[0], 5), loop.results[1]))
        return b.finish()

    assert carried(merge_carried(swapping(4, 4))) == [1]
    kernel = swapping(4, 5)
    assert merge_carried(kernel) is kernel
    for start in ((4, 4), (4, 5)):
        assert [meaning(merge_carried(swapping(*start)), n) for n in (0, 3)] == [
            meaning(swapping(*start), n) for n in (0, 3)
        ]
