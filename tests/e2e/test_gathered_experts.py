"""Experts with 4-bit weights: rows of activations by index, weights of the expert that a workgroup has, a scale and a
zero point for 64 of them. Graph evaluator, emulator and assembler agree; clocks are the model's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import agree, near
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

TARGETS = ("gfx942", "gfx950", "sm_80", "sm_90a")
B, E, J, K, N, S, T = wd.symbols("B E J K N S T")
F16, F32, I32, U4 = wd.f16, wd.f32, wd.i32, wd.u4


def experts(zeros: bool, schedule: wd.Schedule | None = None) -> Any:
    """Blocks of 16 choices of one expert. `zeros`: zero points, or 8."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)],
             subs={J: 16}, schedule=schedule)  # fmt: skip
    def kernel(
        x: wd.Memory[T, K, F16], order: wd.Memory[B, J, I32], expert: wd.Memory[B, I32], w: wd.Memory[E, N, K, U4],
        zero: wd.Memory[E, K / 64, N, U4], scale: wd.Memory[E, K / 64, N, F16], y: wd.Memory[S, N, F16],
        choices: wd.Scalar[I32],
    ):  # fmt: skip
        choice, mine = wd.read(order), wd.read(expert)

        @wd.iterate(K, init_args=[wd.Register[J, N, F32](0.0)])
        def total(acc):
            weights = wd.cast(wd.read(w[mine, :, :]), F16)
            z = wd.cast(wd.read(zero[mine, :, :]), F16)
            weights = weights - (wd.repeat_interleave(z, K) if zeros else 8)
            weights = weights * wd.repeat_interleave(wd.read(scale[mine, :, :]), K)
            return wd.mma(wd.read(x[choice // choices, :]), weights, acc)

        wd.write(wd.cast(total, F16), y[choice, :])

    return kernel


def data(blocks: int, experts: int, k: int, n: int, tokens: int) -> list[Any]:
    """Two choices of each token, all different, so that no two rows of y are the same."""
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (tokens, k)).astype(np.float16)
    order = rng.permutation(2 * tokens)[: blocks * 16].reshape(blocks, 16).astype(np.int32)
    expert = rng.integers(0, experts, blocks).astype(np.int32)
    w, zero = (rng.integers(0, 256, s).astype(np.uint8) for s in ((experts, n, k // 2), (experts, k // 64, n // 2)))
    scale = (rng.integers(1, 4, (experts, k // 64, n)) / 16).astype(np.float16)
    return [x, order, expert, w, zero, scale, np.zeros((2 * tokens, n), np.float16), np.int32(2)]


def loop_of(compiled: wd.CompiledKernel) -> str:
    """The text of the loop over K that multiplies."""
    marks = re.finditer(r"^(\$K\d+|\.L\w*_K\d+):", compiled.asm, re.M)
    loops = [re.match(rf".*?branch\w*\s+{re.escape(m[1])}\b|.*?bra\s+{re.escape(m[1])};", compiled.asm[m.end() :], re.S)
             for m in marks]  # fmt: skip
    return max((m[0] for m in loops if m), key=len)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("zeros", [True, False], ids=["zero points", "eight"])
def test_the_three_answers_are_one(zeros: bool, target: str, oracle: Callable[[str], str]) -> None:
    """Sums of whole numbers over 16: exact but for the rounding to halves, which is one."""
    for shape in ((3, 2, 64, 64, 40), (2, 3, 448, 80, 33)):
        agree(experts(zeros), data(*shape), target, oracle, near(1.0))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
def test_trips_that_the_launch_counts(target: str, oracle: Callable[[str], str]) -> None:
    for k in (128, 640):
        compiled = agree(experts(True), data(2, 2, k, 64, 33), target, oracle, near(1.0), dynamic=[K])
    empty = data(2, 2, 0, 64, 33)
    empty[6][:] = 7
    compiled.emulate(*empty)
    written = np.unique(empty[1])
    assert not empty[6][written].any() and (np.delete(empty[6], written, 0) == 7).all()


def test_lanes_keep_the_words_of_rows_by_index() -> None:
    """On sm_80 K was permuted for plain rows only: lanes had words of weights, and exchanged their elements one by one,
    32 shuffles a trip."""
    compiled = experts(False, wd.Schedule(split_k=1)).compile(*data(3, 2, 1024, 64, 40), target="sm_80")
    assert "shfl" not in loop_of(compiled) and "mma.sync" in loop_of(compiled)


@pytest.mark.parametrize("target", ["sm_80", "gfx942", "gfx950"])
def test_rows_are_numbered_in_front_of_the_loop(target: str) -> None:
    """What the loop's body says of them changes in no trip: neither the numbers nor the division are in it."""
    compiled = experts(False, wd.Schedule(split_k=1)).compile(*data(3, 2, 1024, 64, 40), target=target)
    assert not re.search(r"div\.|v_rcp|v_mul_hi", loop_of(compiled))


def test_scales_come_a_trip_ahead() -> None:
    """On sm_90a a trip's scales are loaded behind the operand of the trip before, for as long as its products run, and
    so are zero points, of two rows."""
    for schedule, ahead in ((None, True), (wd.Schedule(stages=1), False)):
        loop = loop_of(experts(True, schedule).compile(*data(3, 2, 1024, 64, 40), target="sm_90a"))
        loads = list(re.finditer(r"ld\.global\.\w+\s+(%r\d+),", loop))
        assert len(loads) == 4
        assert all(bool(re.search(rf", {m[1]}\b", loop[: m.start()])) == ahead for m in loads), loop


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_scales_are_asked_for_before_tiles(target: str) -> None:
    """Loads end in their order: behind the tiles for the trip after the next, scales that the next trip begins with
    had memory's whole latency in front of them."""
    whole = experts(True, wd.Schedule(split_k=1))
    loop = loop_of(whole.compile(*data(3, 2, 1024, 64, 40), target=target))
    loads = [m.start() for name in ("ubyte", "ushort") for m in re.finditer(f"buffer_load_{name}", loop)]
    assert loads and max(loads[: len(loads) // 2]) < loop.rindex("buffer_load_dwordx4")
    assert min(loads) < loop.index("buffer_load_dwordx4")


@pytest.mark.warpgroups
def test_warpgroups_that_make_operands_are_several_on_an_sm() -> None:
    """Each workgroup takes one tile; where two warpgroups compute, or the user says so, they take tiles in turn."""
    given = data(20, 8, 512, 1024, 160)

    def reason(schedule: wd.Schedule | None) -> str:
        compiled = experts(False, schedule).compile(*given, target="sm_90a")
        found = [r for r in compiled.kernel_ir.notes["decisions"].reasons if r.startswith("tiles: ")]
        return found[0] if found else ""

    assert "several on an SM" in reason(None)
    assert reason(wd.Schedule(persistent=True)) == "tiles: as asked for"


CLOCKS = {
    "gfx942": (107_000, 146_169),
    "gfx950": (112_000, 152_051),
    "sm_80": (240_000, 243_784),
    "sm_90a": (240_000, 258_147),
}
"""Of 16 blocks of 8192 x 4096 weights: at most, and before lanes loaded the bytes of their own zero points."""


@pytest.mark.parametrize("target", TARGETS)
def test_clocks(target: str) -> None:
    given = data(16, 8, 4096, 8192, 128)
    most, before = CLOCKS[target]
    assert sample(experts(True).compile(*given, target=target), given).replay().cycles < most < before
