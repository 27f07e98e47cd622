"""More live scalars than registers: they go to vector lanes. Random programs of all shapes, against NumPy."""

from __future__ import annotations

import amdgcn_kernels as kernels
import numpy as np
import pytest
from amdgcn_random import random_kernel
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, I32
from wavedsl.runtime.emulator import run

CHIPS = ("gfx90a", "gfx942", "gfx950")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("count", [40, 150])
def test_many_live_scalars(chip: str, count: int) -> None:
    """`count` uniform values are made before a loop and used in and after it."""
    kernel = kernels.new_kernel("scalars", chip, ["x", "y"])
    b = Builder(kernel, get_target(chip))
    tid = b.tid()
    x = b.bitcast(b.load_global(b.buffer(b.param(0), 256), b.mul(tid, 4), bytes=4, type=B32), I32)
    values = [b.emit("readfirst", (b.xor(x, 1000 * i + 7),)) for i in range(count)]
    with b.for_(0, 3, 1, [tid]) as loop:
        total = loop.carried[0]
        for v in values[::2]:
            total = b.add(b.xor(total, v), loop.iv)
        loop.yield_(total)
    total = loop.results[0]
    for v in reversed(values):
        total = b.add(b.xor(total, v), 1)
    b.store_global(b.buffer(b.param(1), 256), b.mul(tid, 4), b.bitcast(total, B32), bytes=4)
    data, out = np.arange(5, 69, dtype=np.int32), np.zeros(64, np.int32)
    program = compile_kernel_ir(kernel, get_target(chip))
    run(program.text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[data, out], checks=True)
    want = np.arange(64, dtype=np.int32)
    scalars = [int(data[0]) ^ (1000 * i + 7) for i in range(count)]
    for iv in range(3):
        for s in scalars[::2]:
            want = (want ^ s) + iv
    for s in reversed(scalars):
        want = (want ^ s) + 1
    assert np.array_equal(out, want)
    assert (program.resources.spills > 0) == (count > 102)
    assert program.resources.sgprs <= 102


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int) -> None:
    chip = CHIPS[seed % 3]
    kernel, data, want = random_kernel(seed, chip)
    out = np.zeros((64, 4), np.int32)
    text = compile_kernel_ir(kernel, get_target(chip)).text
    run(text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[data, out], checks=True)
    assert np.array_equal(out, want)
