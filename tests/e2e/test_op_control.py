"""Conditions, loops that end by themselves and early exits of workgroups on every chip: text against evaluator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

B, M, N, K = wd.symbols("B M N K")


def whole(shape: tuple[int, ...], dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-5, 6, shape).astype(dtype)


@pytest.mark.parametrize("target", TARGETS)
def test_branches_by_argument(target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
    def kernel(flag: wd.Scalar[wd.i32], x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
        value = wd.read(x)
        total, doubled = wd.cond(
            flag > 2,
            lambda: (wd.sum(value, dim=N), value * 2.0),
            lambda: (wd.max(value, dim=N), value - 1.0),
        )
        wd.write(doubled + total, y)

    for flag in (2, 3):
        agree(kernel, [np.int32(flag), whole((13, 40)), np.zeros((13, 40), np.float32)], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
def test_branches_by_workgroup(target: str) -> None:
    """Each workgroup looks up what to do; one kind writes nothing."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(M, 16, 1)])
    def kernel(kind: wd.Memory[B, wd.i32], x: wd.Memory[B, M, N, wd.f16], y: wd.Memory[B, M, N, wd.f16]):
        which = wd.read(kind)

        def negated():
            wd.write(-wd.read(x), y)

        def otherwise():
            wd.cond(which == 2, lambda: wd.write(wd.read(x) * 2.0, y))

        wd.cond(which == 1, negated, otherwise)

    kinds = np.array([0, 1, 2, 1, 0], np.int32)
    agree(kernel, [kinds, whole((5, 20, 33), np.float16), whole((5, 20, 33), np.float16, 1)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_early_exit(target: str, oracle: Callable[[str], str]) -> None:
    """Sequences of different lengths: workgroups past the end of theirs do nothing; loops and shared memory follow."""

    @wd.wave(
        [wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(M, 32, 1), wd.WorkgroupConstraint(N, 32, 2),
         wd.TilingConstraint(K, 16)]
    )  # fmt: skip
    def kernel(
        skip: wd.Memory[B, wd.i32], a: wd.Memory[B, M, K, wd.SHARED, wd.f16], w: wd.Memory[N, K, wd.SHARED, wd.f16],
        c: wd.Memory[B, M, N, wd.f32],
    ):  # fmt: skip
        wd.exit_if(wd.read(skip) != 0)

        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(w), acc)

        wd.write(loop, c)

    arguments = [np.array([0, 1, 0], np.int32), whole((3, 40, 48), np.float16), whole((33, 48), np.float16, 1)]
    agree(kernel, [*arguments, whole((3, 40, 33), np.float32, 2)], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_that_ends_by_itself(target: str, oracle: Callable[[str], str]) -> None:
    """Newton's square roots of each workgroup's row until all of it has settled; a count that differs per workgroup."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
    def kernel(x: wd.Memory[B, N, wd.f32], y: wd.Memory[B, N, wd.f32], trips: wd.Memory[B, wd.i32]):
        value = wd.read(x)

        def unsettled(root, count):
            return (wd.max(abs(root * root - value), dim=N) > 0.01) & (count < 50)

        def step(root, count):
            return (root + value / root) * 0.5, count + 1

        root, count = wd.while_loop(unsettled, step, [value, wd.Register[wd.i32](0)])
        wd.write(root, y)
        wd.write(count, trips)

    x = np.random.default_rng(1).integers(1, 100, (4, 70)).astype(np.float32) ** 2
    x[2] = 1.0
    agree(kernel, [x, np.zeros_like(x), np.zeros(4, np.int32)], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
def test_a_condition_inside_a_loop(target: str) -> None:
    """Tiles that a table marks are left out of a sum; the operands go through shared memory."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 16)])
    def kernel(
        a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32],
        limit: wd.Scalar[wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0), wd.Register[wd.f32](0.0)])
        def loop(acc, seen):
            more = wd.cond(seen < limit, lambda: wd.mma(wd.read(a), wd.read(b), acc), lambda: acc)
            return more, seen + 1.0

        wd.write(loop[0], c)

    for limit in (0.0, 2.0, 9.0):
        arguments = [whole((40, 64), np.float16), whole((33, 64), np.float16, 1), np.zeros((40, 33), np.float32)]
        agree(kernel, [*arguments, np.float32(limit)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_an_odd_number_of_halves_is_carried(target: str) -> None:
    """17 elements of f16 per wave: five per lane, the last word half full; several waves convert at once."""
    tiles = [wd.WorkgroupConstraint(M, 5, 0), wd.WaveConstraint(M, 5), wd.WorkgroupConstraint(N, 68, 1)]

    @wd.wave([*tiles, wd.WaveConstraint(N, 17)])
    def kernel(x: wd.Memory[M, N, wd.f16], y: wd.Memory[M, N, wd.f16], flag: wd.Scalar[wd.i32]):
        value = wd.read(x)
        wd.write(wd.cond(flag > 0, lambda: value + 1.0, lambda: -value), y)

    for flag in (0, 1):
        agree(kernel, [whole((7, 65), np.float16), np.zeros((7, 65), np.float16), np.int32(flag)], target)


def test_mistakes_are_named() -> None:
    def compiled(use):
        @wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
        def kernel(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
            use(wd.read(x), y)

        kernel.trace()

    for use, text in (
        (lambda x, y: wd.cond(x > 0, lambda: wd.write(x, y)), "a workgroup takes one branch"),
        (lambda x, y: wd.cond(wd.Register[wd.i32](1), lambda: wd.write(x, y)), "the condition is i32"),
        (lambda x, y: wd.cond(wd.Register[wd.i32](1) > 0, lambda: x), "there is no other branch"),
        (lambda x, y: wd.cond(wd.Register[wd.i32](1) > 0, lambda: x, lambda: None), "the other nothing"),
        (lambda x, y: wd.while_loop(lambda a: a > 0, lambda a: a, [x]), "a workgroup takes one branch"),
        (lambda x, y: wd.while_loop(lambda a: a > 0, lambda a: None, [wd.Register[wd.i32](1)]), "returns nothing"),
    ):
        with pytest.raises(wd.TraceError, match=text) as caught:
            compiled(use)
        assert __file__ in str(caught.value)
