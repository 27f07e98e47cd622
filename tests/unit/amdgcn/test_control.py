"""Loops, conditionals, traps: trip counts, carried values that trade places, nesting; against NumPy on the emulator."""

from __future__ import annotations

import amdgcn_kernels as kernels
import numpy as np
import pytest
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target
from wavedsl.ir.dtypes import i32
from wavedsl.ir.errors import EmulationError
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, I32, Kernel, Param, Value
from wavedsl.runtime.emulator import run

CHIPS = ("gfx90a", "gfx942", "gfx950")


def start(chip: str, scalars: int = 1, waves: int = 1) -> Builder:
    """A kernel `(y, n0, n1, …)`: one output pointer and i32 scalars."""
    kernel = kernels.new_kernel("control", chip, ["y"], waves)
    for i in range(scalars):
        kernel.params.append(Param(f"n{i}", "scalar", i32, 8 + 4 * i, 4))
    return Builder(kernel, get_target(chip))


def finish(b: Builder, *values: Value) -> Kernel:
    """Store i32 values, one row of 64 each."""
    buf = b.buffer(b.param(0), 256 * len(values))
    for i, v in enumerate(values):
        v = v if not v.uniform else b.add(v, b.and_(b.tid(), 0))
        b.store_global(buf, b.mul(b.tid(), 4), b.bitcast(v, B32), bytes=4, imm=256 * i, split=False)
    return b.kernel


def emulate(kernel: Kernel, rows: int, *scalars: int) -> np.ndarray:
    y = np.zeros((rows, 64), np.int32)
    text = compile_kernel_ir(kernel, get_target(kernel.target)).text
    args = [y, *(np.int32(s) for s in scalars)]
    run(text, target=kernel.target, grid=(1, 1, 1), block=(64, 1, 1), args=args, checks=True)
    return y


@pytest.mark.parametrize("step", [2, 16, 17, 32])
def test_steps_that_are_no_inline_constants(step: int) -> None:
    """A counter that counts down loses the step; LLVM spells what is below -16 without a sign (tests/conftest.py)."""
    b = start("gfx942", 0)
    with b.for_(0, 5 * step, step, [b.tid()]) as loop:
        loop.yield_(b.xor(b.mul(loop.carried[0], 3), 1))
    kernel = finish(b, *loop.results)
    text = compile_kernel_ir(kernel, get_target("gfx942")).text
    assert f"-{step}\n" in text if step <= 16 else f", {(1 << 32) - step:#x}\n" in text
    want = np.arange(64)
    for _ in range(5):
        want = want * 3 ^ 1
    assert np.array_equal(emulate(kernel, 1)[0], want)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("n", [-3, 0, 1, 2, 7])
def test_trip_count_at_run_time(chip: str, n: int) -> None:
    b = start(chip)
    with b.for_(0, b.param(1, I32), 2, [b.tid(), b.i32(100)]) as loop:
        lane_sum, uniform_sum = loop.carried
        loop.yield_(b.add(lane_sum, loop.iv), b.add(uniform_sum, b.mul(loop.iv, 3)))
    y = emulate(finish(b, *loop.results), 2, n)
    steps = range(0, max(n, 0), 2)
    assert np.array_equal(y[0], np.arange(64) + sum(steps))
    assert (y[1] == 100 + 3 * sum(steps)).all()


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("n", [-1, 0, 3, 8, 20])
def test_masks_of_what_stands_outside_are_made_in_front_of_a_loop(chip: str, n: int) -> None:
    """0 <= n < 8 is one comparison, and a loop that needs it as a mask does not compare again."""
    b = start(chip)
    number = b.param(1, I32)
    inside = b.pand(b.cmp("sge", number, 0), b.cmp("slt", number, 8))
    with b.for_(0, 10, 1, [b.tid()]) as loop:
        taken = b.pand(inside, b.cmp("slt", loop.iv, number))
        loop.yield_(b.add(loop.carried[0], b.select(taken, b.i32(1), b.i32(100))))
    kernel = finish(b, *loop.results)
    text = compile_kernel_ir(kernel, get_target(chip)).text
    assert text.count("s_cmp_lt_u32") == 1 and text.index("s_cmp_lt_u32") < text.index("; loop over")
    assert "s_cmp_ge_i32" not in text
    want = np.arange(64) + sum(1 if 0 <= n < 8 and i < n else 100 for i in range(10))
    assert np.array_equal(emulate(kernel, 1, n)[0], want)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 10])
def test_carried_values_that_trade_places(chip: str, n: int) -> None:
    b = start(chip)
    t = b.tid()
    inits = [t, b.add(t, 1000), b.add(t, 5000), b.i32(1), b.i32(2)]
    with b.for_(0, b.param(1, I32), 1, inits) as loop:
        x, y, z, u, v = loop.carried
        loop.yield_(y, z, x, v, b.add(u, v))
    got = emulate(finish(b, *loop.results), 5, n)
    state = [np.arange(64), np.arange(64) + 1000, np.arange(64) + 5000, 1, 2]
    for _ in range(n):
        state = [state[1], state[2], state[0], state[4], state[3] + state[4]]
    for row, want in zip(got, state):
        assert (row == want).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_nested_loops_and_conditionals(chip: str) -> None:
    b = start(chip, 2)
    n, m = b.param(1, I32), b.param(2, I32)
    with b.for_(0, n, 1, [b.tid()]) as outer:
        with b.for_(0, m, 1, [outer.carried[0], outer.iv]) as inner:
            a, c = inner.carried
            odd = b.cmp("eq", b.and_(b.add(inner.iv, outer.iv), 1), 1)
            with b.if_(odd) as branch:
                branch.yield_(b.add(a, inner.iv), b.add(c, 1))
            with branch.orelse():
                branch.yield_(b.xor(a, outer.iv), c)
            inner.yield_(*branch.results)
        outer.yield_(b.add(inner.results[0], inner.results[1]))
    for trips in ((0, 4), (3, 0), (4, 5)):
        got = emulate(finish_once(b, outer.results[0]), 1, *trips)[0]
        want = np.arange(64)
        for i in range(trips[0]):
            c = i
            for j in range(trips[1]):
                if (i + j) % 2:
                    want, c = want + j, c + 1
                else:
                    want = want ^ i
            want = want + c
        assert np.array_equal(got, want)


def finish_once(b: Builder, value: Value) -> Kernel:
    """Store the value the first time; the same kernel is compiled again later."""
    if not any(op.name == "store.global" for op in b.kernel.body.ops):
        finish(b, value)
    return b.kernel


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("n", [0, 5])
def test_if_without_else(chip: str, n: int) -> None:
    b = start(chip)
    buf = b.buffer(b.param(0), 256)
    off = b.mul(b.tid(), 4)
    with b.if_(b.cmp("sgt", b.param(1, I32), 3)):
        b.store_global(buf, off, b.bitcast(b.add(b.tid(), 1), B32), bytes=4)
    y = emulate(b.kernel, 1, n)[0]
    assert np.array_equal(y, np.arange(1, 65) if n > 3 else np.zeros(64))


@pytest.mark.parametrize("chip", CHIPS)
def test_trap(chip: str) -> None:
    b = start(chip)
    b.trap(b.cmp("eq", b.tid(), b.param(1, I32)), "lane must differ")
    kernel = finish(b, b.tid())
    assert np.array_equal(emulate(kernel, 1, 64)[0], np.arange(64))
    with pytest.raises(EmulationError) as failure:
        emulate(kernel, 1, 17)
    assert any(f.kind == "assertion" for f in failure.value.report.findings)
