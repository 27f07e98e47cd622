"""Descriptors of many arrays stand where they are used first, in front of loops and in the branch that alone reads
them, and what is computed stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from wavedsl.ir import dtypes
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_eval import run
from wavedsl.ir.kernel.kernel_ir import F32, I64, Kernel, Param
from wavedsl.ir.kernel.kernel_verify import check
from wavedsl.ir.kernel.late_descriptors import CROWD, sink_descriptors

from .kernels import make_target

TARGET = make_target(scalar_registers=True)


def stores(count: int, again: bool = False) -> Kernel:
    """Each of `count` arrays gets its number, behind a loop: even ones in all workgroups, odd ones in the first only.
    The last is read in the loop. `again`: odd ones get 0 behind that, in all workgroups."""
    params = [Param(f"y{i}", "pointer", dtypes.f32, 8 * i, 8, access="read write") for i in range(count)]
    kernel = new_kernel("k", "gfx942", params=params, grid=(2, 1, 1))
    b = Builder(kernel)
    at = b.mul(b.lane(), 4)
    far = b.mul(b.cvt(b.wgid(0), I64), b.const(256, I64))
    buffers = [b.buffer(b.add(b.param(i), far), 256) for i in range(count)]
    with b.for_(0, 3, 1, [b.const(0.0, F32)]) as loop:
        seen = b.load_global(buffers[-1], at, bytes=4, type=F32)
        loop.yield_(b.fadd(loop.carried[0], seen))
    for i in range(0, count - 1, 2):
        b.store_global(buffers[i], at, b.fadd(loop.results[0], float(i)))
    with b.if_(b.cmp("eq", b.wgid(0), 0)):
        for i in range(1, count - 1, 2):
            b.store_global(buffers[i], at, b.const(float(i), F32))
    for i in range(1, count - 1, 2) if again else ():
        b.store_global(buffers[i], at, b.const(0.0, F32))
    return b.finish()


def results(kernel: Kernel, count: int) -> list[Any]:
    arrays = [np.full(128, np.nan, np.float32) for _ in range(count - 1)] + [np.arange(128, dtype=np.float32)]
    run(kernel, arrays)
    return arrays


def test_descriptors_stand_before_their_first_readers() -> None:
    count = CROWD + 2
    kernel = stores(count)
    want = results(kernel, count)
    sink_descriptors(kernel, TARGET)
    assert not check(kernel, TARGET)
    for x, y in zip(results(kernel, count), want, strict=True):
        np.testing.assert_array_equal(x, y)
    ops = kernel.body.ops
    loop, branch = (next(i for i, op in enumerate(ops) if op.name == name) for name in ("for", "if"))
    made = [i for i, op in enumerate(ops) if op.name == "buffer"]
    assert [i < loop for i in made].count(True) == 1  # what the loop reads: nothing moves into it
    assert all(ops[i + 1].name in ("fadd", "store.global") for i in made if i > loop)
    assert all(ops[i - 1].name == "add" and ops[i - 2].name == "param" for i in made if i > loop)
    inside = [op.name for op in ops[branch].regions[0].ops]
    assert inside[:-1] == ["param", "add", "buffer", "store.global"] * (count // 2 - 1)
    assert len(made) + inside.count("buffer") == count


def test_what_is_read_in_a_branch_and_behind_it_stands_before_it() -> None:
    """It moved into the branch, and what read it behind found nothing (seed 527840 of the fuzzer)."""
    count = CROWD + 2
    kernel = stores(count, again=True)
    want = results(kernel, count)
    sink_descriptors(kernel, TARGET)
    assert not check(kernel, TARGET)
    for x, y in zip(results(kernel, count), want, strict=True):
        np.testing.assert_array_equal(x, y)
    assert sum(op.name == "buffer" for op in kernel.body.ops) == count


@pytest.mark.parametrize("why", ["few", "no scalar registers"])
def test_others_stay(why: str) -> None:
    kernel = stores(CROWD if why == "few" else CROWD + 2)
    before = [list(r.ops) for r in kernel.body.regions()]
    sink_descriptors(kernel, TARGET if why == "few" else make_target(scalar_registers=False))
    assert before == [r.ops for r in kernel.body.regions()]
