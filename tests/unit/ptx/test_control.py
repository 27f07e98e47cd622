"""Loops and conditionals through the PTX back end, and the merging of loop-carried registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from wavedsl.codegen.ptx.emit import PtxProgram, compile_kernel_ir
from wavedsl.codegen.ptx.target import TARGETS
from wavedsl.ir import dtypes as dt
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_ir import F32, I32, PRED, Kernel, Param

SM80 = TARGETS["sm_80"]
THREADS = 32


def build_kernel(build: Callable[..., Sequence[Any]], scalars: int, outputs: int) -> Kernel:
    """i32 arguments; thread t stores each of the results of `build(b, tid, *arguments)` in its own row of `y`."""
    params = [
        Param("y", "pointer", dt.i32, 0, 8, access="write"),
        *(Param(f"n{i}", "scalar", dt.i32, 8 + 4 * i, 4) for i in range(scalars)),
    ]
    b = Builder(new_kernel("control", "sm_80", wave_size=32, waves=1, params=params, grid=(1, 1, 1)), SM80)
    y, tid = b.buffer(b.param(0), 4 * THREADS * outputs), b.tid()
    results = build(b, tid, *(b.param(1 + i) for i in range(scalars)))
    for i, r in enumerate(results):
        b.store_global(y, b.mul(tid, 4), r, imm=4 * THREADS * i)
    return b.finish()


def run(kernel: Kernel, outputs: int, *scalars: int) -> tuple[np.ndarray, PtxProgram]:
    from wavedsl.runtime import emulator

    program = compile_kernel_ir(kernel, SM80)
    y = np.zeros((outputs, THREADS), np.int32)
    emulator.run(
        program.text, target="sm_80", grid=(1, 1, 1), block=(THREADS, 1, 1),
        args=[y, *(np.int32(s) for s in scalars)], checks=True,
    )  # fmt: skip
    return y, program


def in_loop(program: PtxProgram, label: str) -> list[str]:
    body = program.text.split(f"${label}:")[1].split(f"${label}_end:")[0]
    return [line.strip() for line in body.split("\n") if line.strip() and ".loc" not in line]


@pytest.mark.parametrize(("lo", "hi", "step"), [(0, 10, 1), (0, 10, 3), (3, 3, 1), (5, 2, 1), (-7, 8, 5), (0, 1, 64)])
def test_trip_counts(lo: int, hi: int, step: int) -> None:
    def build(b: Builder, tid: Any, lo: Any, hi: Any) -> Sequence[Any]:
        with b.for_(lo, hi, step, [b.i32(0), tid], label="L") as loop:
            loop.yield_(b.add(loop.carried[0], 1), b.add(loop.carried[1], loop.iv))
        return loop.results

    y, _ = run(build_kernel(build, 2, 2), 2, lo, hi)
    trips = list(range(lo, hi, step))
    np.testing.assert_array_equal(y[0], len(trips))
    np.testing.assert_array_equal(y[1], np.arange(THREADS) + sum(trips))


def test_a_bound_near_the_top_of_the_range_ends() -> None:
    """i + step would wrap past 2**31; the test is made on what is left."""

    def build(b: Builder, tid: Any, hi: Any) -> Sequence[Any]:
        with b.for_(2**31 - 200, hi, 64, [b.i32(0)]) as loop:
            loop.yield_(b.add(loop.carried[0], 1))
        return loop.results

    y, _ = run(build_kernel(build, 1, 1), 1, 2**31 - 1)
    assert (y == 4).all()


@pytest.mark.parametrize(("trips", "branches"), [(0, 0), (1, 0), (2, 1)])
def test_constant_trips(trips: int, branches: int) -> None:
    def build(b: Builder, tid: Any) -> Sequence[Any]:
        with b.for_(0, trips, 1, [tid], label="L") as loop:
            loop.yield_(b.add(b.mul(loop.carried[0], 3), loop.iv))
        return loop.results

    y, program = run(build_kernel(build, 0, 1), 1)
    want = np.arange(THREADS)
    for i in range(trips):
        want = want * 3 + i
    np.testing.assert_array_equal(y[0], want)
    # The bound is known, so nothing guards the loop; `ret` is a branch too.
    assert program.resources.instructions["branch"] == branches + 1
    assert len(program.resources.loops) == branches


def test_carried_values_may_swap_and_rotate() -> None:
    def build(b: Builder, tid: Any, n: Any) -> Sequence[Any]:
        with b.for_(0, n, 1, [tid, b.i32(100), b.i32(7), b.i32(0)]) as loop:
            x, y, z, _ = loop.carried
            loop.yield_(y, z, x, x)
        return loop.results

    y, _ = run(build_kernel(build, 1, 4), 4, 5)
    x, a, z, w = np.arange(THREADS), np.full(THREADS, 100), np.full(THREADS, 7), np.zeros(THREADS, int)
    for _ in range(5):
        x, a, z, w = a, z, x, x
    np.testing.assert_array_equal(y, [x, a, z, w])


def test_an_accumulator_stays_in_one_register() -> None:
    def build(b: Builder, tid: Any, n: Any) -> Sequence[Any]:
        x = b.cvt(tid, F32)
        with b.for_(0, n, 1, [b.f32(0.0), b.f32(1.0)], label="L") as loop:
            s = b.fadd(b.fadd(loop.carried[0], x), loop.carried[1])
            loop.yield_(s, b.fmul(loop.carried[1], b.f32(0.5)))
        return [b.cvt(r, I32) for r in loop.results]

    y, program = run(build_kernel(build, 1, 2), 2, 4)
    np.testing.assert_array_equal(y[0], np.arange(THREADS) * 4 + 1)
    assert not [line for line in in_loop(program, "L") if line.startswith("mov")]


def test_an_initial_value_that_lives_on_is_copied() -> None:
    def build(b: Builder, tid: Any, n: Any) -> Sequence[Any]:
        with b.for_(0, n, 1, [tid]) as loop:
            loop.yield_(b.add(loop.carried[0], tid))
        return [loop.results[0], tid]

    y, _ = run(build_kernel(build, 1, 2), 2, 3)
    np.testing.assert_array_equal(y, [np.arange(THREADS) * 4, np.arange(THREADS)])


def test_the_last_and_the_previous_value_do_not_share_a_register() -> None:
    """The old carried value is read after the new one exists."""

    def build(b: Builder, tid: Any, n: Any) -> Sequence[Any]:
        with b.for_(0, n, 1, [tid, b.i32(0)]) as loop:
            new = b.add(loop.carried[0], 3)
            loop.yield_(new, b.xor(loop.carried[0], new))
        return loop.results

    y, _ = run(build_kernel(build, 1, 2), 2, 6)
    a = np.arange(THREADS) + 18
    np.testing.assert_array_equal(y, [a, (a - 3) ^ a])


def test_nested_loops_and_unused_results() -> None:
    def build(b: Builder, tid: Any, n: Any) -> Sequence[Any]:
        with b.for_(0, n, 1, [b.i32(0), tid], label="outer") as outer:
            with b.for_(0, outer.iv, 1, [outer.carried[0]], label="inner") as inner:
                inner.yield_(b.add(inner.carried[0], b.add(b.mul(outer.iv, 10), inner.iv)))
            outer.yield_(inner.results[0], b.add(outer.carried[1], 1))
        return [outer.results[0]]

    y, program = run(build_kernel(build, 1, 1), 1, 5)
    assert (y == sum(10 * i + j for i in range(5) for j in range(i))).all()
    labels = [loop.label for loop in program.resources.loops]
    assert labels == ["$outer", "$inner"]
    outer, inner = program.resources.loops
    assert sum(outer.instructions.values()) > sum(inner.instructions.values()) > 0


@pytest.mark.parametrize("n", [-1, 3])
def test_conditionals(n: int) -> None:
    def build(b: Builder, tid: Any, n: Any) -> Sequence[Any]:
        with b.if_(b.cmp("sgt", n, 0)) as br:
            with b.for_(0, n, 1, [tid]) as loop:
                loop.yield_(b.mul(loop.carried[0], 2))
            br.yield_(loop.results[0], b.i32(11))
        with br.orelse():
            br.yield_(b.sub(tid, 5), b.i32(22))
        with b.if_(b.cmp("slt", n, 100)):
            with b.if_(b.cmp("slt", n, -50)):
                b.trap(b.true, "never")
        return br.results

    y, _ = run(build_kernel(build, 1, 2), 2, n)
    t = np.arange(THREADS)
    np.testing.assert_array_equal(y, [t * 8, np.full(THREADS, 11)] if n > 0 else [t - 5, np.full(THREADS, 22)])


def test_a_predicate_may_be_carried() -> None:
    def build(b: Builder, tid: Any, n: Any) -> Sequence[Any]:
        with b.for_(0, n, 1, [b.const(True, PRED), b.i32(0)], uniform=[False, False]) as loop:
            flag, count = loop.carried
            count = b.add(count, b.select(flag, b.i32(1), b.i32(0)))
            loop.yield_(b.cmp("slt", loop.iv, tid), count)
        return [b.select(loop.results[0], b.i32(1), b.i32(0)), loop.results[1]]

    y, _ = run(build_kernel(build, 1, 2), 2, 8)
    t = np.arange(THREADS)
    np.testing.assert_array_equal(y, [(t > 7).astype(int), 1 + np.minimum(t, 7)])


def test_trap_is_predicated_and_says_why() -> None:
    def build(b: Builder, tid: Any, n: Any) -> Sequence[Any]:
        b.trap(b.cmp("sgt", tid, n), "index below the extent")
        return [tid]

    kernel = build_kernel(build, 1, 1)
    y, program = run(kernel, 1, 31)
    np.testing.assert_array_equal(y[0], np.arange(THREADS))
    assert "trap;" in program.text and "// index below the extent" in program.text
