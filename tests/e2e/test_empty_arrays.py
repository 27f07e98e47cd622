"""Calls with arrays that have no elements: nothing is launched, whatever is launched with is compiled all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

B, G, M, N, K = wd.symbols("B G M N K")
F16, F32 = wd.f16, wd.f32


def product(schedule: wd.Schedule | None) -> Any:
    grid = [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1)]
    batch = [wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(G, 1, 2)]

    @wd.wave([*grid, *batch, wd.TilingConstraint(K, 64)], schedule=schedule)
    def kernel(a: wd.Memory[B, G, M, K, F16], b: wd.Memory[B, G, N, K, F16], c: wd.Memory[B, G, M, N, F32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return kernel


def arrays(b: int, g: int, m: int, n: int, k: int) -> list[np.ndarray]:
    shapes = ((b, g, m, k), (b, g, n, k), (b, g, m, n))
    return [np.zeros(shape, dtype) for shape, dtype in zip(shapes, (np.float16, np.float16, np.float32))]


@pytest.mark.parametrize("dynamic", [[], [M], [N], [G]], ids=str)
@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_no_tiles(target: str, dynamic: list[Any]) -> None:
    """A dimension known to be empty, beside one that is known at run time only, was divided by."""
    kernel = product(None)
    for sizes in ((0, 3, 64, 64, 64), (2, 0, 64, 64, 64), (1, 2, 0, 64, 64), (1, 2, 64, 0, 64)):
        given = arrays(*sizes)
        kernel.compile(*given, target=target, dynamic=dynamic).emulate(*given)


@pytest.mark.parametrize("dynamic", [[], [M], [N]], ids=str)
def test_no_tiles_in_turn(dynamic: list[Any]) -> None:
    """Workgroups that take tiles in turn; NumPy's strides of arrays without elements, which are 0, are nobody's."""
    kernel = product(wd.Schedule(persistent=True))
    for sizes in ((0, 3, 64, 64, 64), (1, 2, 0, 64, 64), (1, 2, 64, 0, 64)):
        given = arrays(*sizes)
        kernel.compile(*given, target="sm_90a", dynamic=dynamic).emulate(*given)


@pytest.mark.parametrize("target", ["gfx942", "sm_80", "sm_90a"])
@pytest.mark.parametrize("how", ["stream_k", "persistent"])
def test_no_tiles_in_rows(how: str, target: str) -> None:
    """Tiles numbered row by row: in a plane without any a number was divided by their count."""
    kernel = product(wd.Schedule(swizzle=False, **{how: True}))
    for dynamic in ([], [N]):
        given = arrays(1, 2, 0, 64, 64)
        kernel.compile(*given, target=target, dynamic=dynamic).emulate(*given)


def test_no_trips() -> None:
    """Rows without elements have no stride to refuse tensor maps for."""
    roles = (wd.Schedule(persistent=True), wd.Schedule(cluster=(2, 1, 1)), wd.Schedule(specialize=True))
    turns, parts = wd.Schedule(ping_pong=True, persistent=True), wd.Schedule(split_k=2)
    for schedule, target in [*((s, "sm_90a") for s in (*roles, turns, parts)), (parts, "gfx942")]:
        a, b, c = arrays(1, 2, 128, 64, 0)
        c[:] = np.nan
        product(schedule).compile(a, b, c, target=target).emulate(a, b, c)
        assert (c == 0).all(), schedule


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_no_trips_at_run_time(target: str) -> None:
    """One text serves calls with and without trips, whichever it was compiled for."""
    kernel = product(wd.Schedule(persistent=True) if target == "sm_90a" else None)
    for first, then in ((0, 64), (64, 0)):
        compiled = kernel.compile(*arrays(1, 1, 64, 64, first), target=target, dynamic=[K])
        for k in (first, then):
            a, b, c = arrays(1, 1, 64, 64, k)
            a[:], b[:], c[:] = 1, 1, np.nan
            compiled.emulate(a, b, c)
            assert (c == k).all()
    compiled = kernel.compile(target=target, subs={B: 1, G: 1, M: 64, N: 64, K: 0})  # without arrays
    a, b, c = arrays(1, 1, 64, 64, 0)
    compiled.emulate(a, b, c)
    assert (c == 0).all()


def test_no_elements_first() -> None:
    """What a call without rows compiled serves calls with rows: it relied on strides of 0."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)], dynamic=[M])
    def kernel(x: wd.Memory[M, N, F32], y: wd.Memory[M, N, F32]):
        wd.write(wd.read(x) + 1.0, y)

    texts = []
    for strides in ((0, 0), (64, 4)):  # NumPy's and torch's
        none = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (0, 16), strides)
        compiled = kernel.compile(none, none, target="gfx942")
        texts.append(compiled.asm)
    assert texts[0] == texts[1]
    x, y = np.ones((5, 16), np.float32), np.zeros((5, 16), np.float32)
    compiled.emulate(x, y)
    assert (y == 2).all()


@pytest.mark.parametrize("target", TARGETS)
def test_no_rows_to_reduce(target: str) -> None:
    """A dimension without elements, which needs no workgroup, was taken for one that several share."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
    def kernel(x: wd.Memory[M, N, F32], total: wd.Memory[N, F32], y: wd.Memory[M, N, F32], count: wd.Memory[G, wd.i32]):
        value = wd.read(x)
        wd.write(wd.sum(value, dim=M), total)
        wd.write(wd.cumsum(value, dim=M) + wd.cast(wd.argmax(value, dim=M), F32), y)
        wd.cond(wd.any(wd.any(value > 0, dim=M), dim=N), lambda: add(count), lambda: None)

    def add(count):
        wd.atomic_add(wd.Register[G, wd.i32](1), count)

    for m in (0, 5):
        x, total, y, count = np.ones((m, 3), np.float32), np.zeros(3, np.float32), np.zeros((m, 3), np.float32), [0]
        agree(kernel, [x, total, y, np.array(count, np.int32)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_a_value_without_the_empty_dimension(target: str) -> None:
    """No workgroup runs, so that nothing is written along M either: the evaluator did so."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0), wd.WorkgroupConstraint(N, 8, 1)])
    def kernel(x: wd.Memory[M, N, F32], count: wd.Memory[M, F32], y: wd.Memory[M, N, F32]):
        wd.atomic_xchg(wd.Register[M, F32](1), count)
        wd.write(wd.read(x), y)

    for n in (0, 5):
        agree(kernel, [np.ones((3, n), np.float32), np.full(3, 7, np.float32), np.zeros((3, n), np.float32)], target)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_what_only_a_loop_without_trips_reads(target: str) -> None:
    """An operand that does not depend on the loop was fetched in front of it, and the record of copies had nothing of
    it. The loop's results are what it starts from, also behind a loop that has trips."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(N, 32), wd.TilingConstraint(G, 32)])
    def kernel(
        q: wd.Memory[M, K, wd.SHARED, F16], k: wd.Memory[N, K, F16], x: wd.Memory[M, G, F32], y: wd.Memory[M, K, F32]
    ):
        @wd.iterate(G, init_args=[wd.Register[M, F32](1.0)])
        def total(before):
            return before + wd.sum(wd.read(x), dim=G)

        @wd.iterate(N, init_args=[wd.Register[M, K, F32](0.0) + total, total])
        def keys(acc, last):
            rows = wd.read(k)
            scores = wd.mma(wd.read(q), rows, wd.Register[M, N, F32](0.0))
            return wd.mma(wd.cast(scores, F16), rows, acc), last + 1.0

        wd.write(keys[0] + keys[1], y)

    for n, schedule in ((0, None), (0, wd.Schedule(stages=2)), (0, wd.Schedule(split_k=2)), (64, None)):
        kernel.schedule = schedule
        q, k, x = np.ones((70, 64), np.float16), np.ones((n, 64), np.float16), np.ones((70, 40), np.float32)
        agree(kernel, [q, k, x, np.zeros((70, 64), np.float32)], target)
