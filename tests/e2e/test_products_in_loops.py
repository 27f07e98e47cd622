"""Loops of products that are carried out again: inside of `while_loop`, of branches in loops, and loops without trips.

What one pass has read from shared memory the next one fills again, behind a barrier. All chips, every check on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import selected
from agree import TARGETS, agree
from products import K, M, N, numbers

import wavedsl as wd

T = wd.sym.T


@lru_cache
def again(rows: int, how: str) -> Any:
    """The product of a tile, `times` times added up; waves share its rows or columns."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, rows, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64),
         wd.TilingConstraint(T, 1)]
    )  # fmt: skip
    def again(
        a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], x: wd.Memory[T, wd.i32],
        c: wd.Memory[M, N, wd.f32], times: wd.Scalar[wd.i32],
    ):  # fmt: skip
        def product(start: Any) -> Any:
            @wd.iterate(K, init_args=[start])
            def sums(acc):
                return wd.mma(wd.read(a), wd.read(b), acc)

            return sums

        zero = wd.Register[M, N, wd.f32](0.0)
        if how == "while":
            _, found = wd.while_loop(
                lambda i, acc: i < times, lambda i, acc: (i + 1, product(acc)), [wd.Register[wd.i32](0), zero]
            )
        else:

            @wd.iterate(T, init_args=[zero])
            def found(acc):
                return wd.cond(wd.read(x[wd.tile_start(T)]) < times, lambda: product(acc), lambda: acc)

        wd.write(found, c)

    return again


@pytest.mark.parametrize("how", ["while", "branch"])
@pytest.mark.parametrize("rows", [32, pytest.param(128, marks=pytest.mark.slow)])
@pytest.mark.parametrize("k", [64, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", selected.slow_but((*TARGETS, "sm_90a"), "gfx942", "sm_80", "sm_90a"))
def test_again(target: str, k: int, rows: int, how: str, oracle: Callable[[str], str]) -> None:
    a, b = numbers((rows, k), wd.f16, 1), numbers((64, k), wd.f16, 2)
    x = np.arange(4, dtype=np.int32)
    for times in (3, 0):
        c = np.full((rows, 64), np.nan, np.float32)
        compiled = agree(again(rows, how), [a, b, x, c, np.int32(times)], target, oracle if times else None)
    assert "mma" in compiled.asm


@lru_cache
def from_there(start: int, schedule: wd.Schedule) -> Any:
    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)],
        schedule=schedule,
    )
    def from_there(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](1.0)], start=start)
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return from_there


@pytest.mark.parametrize("schedule", [{}, {"split_k": 2}, {"persistent": True}], ids=str)
@pytest.mark.parametrize("target", selected.slow_but((*TARGETS, "sm_90a"), "sm_80", "sm_90a"))
def test_ranges_that_begin_at_the_end(target: str, schedule: dict[str, Any]) -> None:
    """A range that is known to have no tile: nothing is copied or multiplied, and the record says so."""
    a, b = numbers((70, 64), wd.f16, 1), numbers((64, 64), wd.f16, 2)
    kernel = from_there(64, wd.Schedule(**schedule))
    compiled = agree(kernel, [a, b, np.full((70, 64), np.nan, np.float32)], target)
    assert compiled.decisions.text().count("never: its loop has no trip") == 3


@pytest.mark.parametrize("sizes", [(0, 64), (64, 0)])
def test_no_tiles_to_deal(sizes: tuple[int, int]) -> None:
    m, n = sizes
    given = [np.zeros((m, 64), np.float16), np.zeros((n, 64), np.float16), np.zeros((m, n), np.float32)]

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 64)],
        schedule=wd.Schedule(stream_k=2),
    )
    def dealt(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](1.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    agree(dealt, given, "sm_90a")
