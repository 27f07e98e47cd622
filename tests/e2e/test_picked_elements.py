"""What a loop picks of a value that is made element by element, made where it is picked (`picked_elements`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree
from families import normal
from wavedsl.ir.dataflow.picked_elements import picked_elements
from wavedsl.ir.evaluator.evaluate import evaluate

import wavedsl as wd

B, I, J, K, T = wd.symbols("B I J K T")
F32, I32 = wd.f32, wd.i32
ROWS, COLUMNS = 20, 70
ALL = (*TARGETS, "sm_90a")


@wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
def suppressed(
    low: wd.Memory[B, I, F32], high: wd.Memory[B, I, F32], limit: wd.Scalar[F32], keep: wd.Memory[B, I, I32]
):
    """Stretches by falling score, of which one drops those behind it that it overlaps with by more than the limit."""
    as_column = wd.IndexMapping((J,), {B: B, I: J})
    left, right = wd.read(low), wd.read(high)
    left2, right2 = wd.read(low, mapping=as_column), wd.read(high, mapping=as_column)
    both = wd.maximum(wd.minimum(right, right2) - wd.maximum(left, left2), 0.0)
    over = wd.cast((both > limit * (right - left + right2 - left2 - both)) & (wd.index(J) > wd.index(I)), I32)

    def step(alive, i):
        drops = (wd.extract(alive, {J: i}) > 0) & (wd.extract(over, {I: i}) > 0)
        return wd.where(drops, 0, alive), i + 1

    start = [wd.Register[J, I32](1), wd.Register[I32](0)]
    alive, _ = wd.while_loop(lambda alive, i: i < I, step, start)
    wd.write(alive, keep, mapping=as_column)


def stretches(n: int) -> tuple[list[Any], np.ndarray]:
    rng = np.random.default_rng(0)
    low = np.round(rng.random((1, n)) * 64 * 16) / 16  # lengths and limits are exact
    high = low + np.round(rng.random((1, n)) * 16 * 4 + 16) / 16
    keep = np.ones((1, n), np.int32)
    for i in range(n):
        if keep[0, i]:
            both = np.maximum(np.minimum(high[0, i], high[0]) - np.maximum(low[0, i], low[0]), 0)
            either = high[0, i] - low[0, i] + high[0] - low[0] - both
            keep[0, (both > 0.25 * either) & (np.arange(n) > i)] = 0
    arrays = [low.astype(np.float32), high.astype(np.float32)]
    return [*arrays, np.float32(0.25), np.zeros((1, n), np.int32)], keep


@pytest.mark.parametrize("n", [300, 600])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_overlaps_of_many_are_never_held(target: str, n: int, oracle: Callable[[str], str]) -> None:
    """Those of 300 spilled in 32 warps with 80 to 160 KB of shared memory; those of 600 were refused."""
    oracle("ptxas")
    arguments, want = stretches(n)
    compiled = suppressed.compile(*arguments, target=target, subs={J: n})
    compiled.emulate(*arguments)
    np.testing.assert_array_equal(arguments[3], want)
    assert not compiled.resources.spills and compiled.shared_bytes <= 4096
    assert sum(compiled.resources.instructions.values()) < 600


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_nor_on_amd(target: str) -> None:
    arguments, want = stretches(600)
    compiled = suppressed.compile(*arguments, target=target, subs={J: 600})
    compiled.emulate(*arguments)
    np.testing.assert_array_equal(arguments[3], want)
    assert not compiled.resources.spills and compiled.shared_bytes <= 4096


# ---- what is picked, by the evaluator and by the chip's text


def picking(value: Callable[..., Any], dtype: Any) -> Any:
    """A kernel that picks rows of `value` at `at`, one after the other, which need not exist."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0)], subs={I: ROWS, J: COLUMNS})
    def picks(
        x: wd.Memory[B, I, F32], y: wd.Memory[J, F32], w: wd.Memory[I, J, F32], at: wd.Memory[T, I32],
        out: wd.Memory[B, T, J, dtype],
    ):  # fmt: skip
        made = value(x, y, w)

        def step(t):
            row = wd.extract(made, {I: wd.read(at[t])})
            wd.write(row, out[:, t, :])
            return t + 1

        wd.while_loop(lambda t: t < T, step, [wd.Register[I32](0)])

    return picks


def plain(x: Any, y: Any, w: Any) -> Any:
    return wd.read(x) * wd.read(y) + 1.0


def of_a_matrix(x: Any, y: Any, w: Any) -> Any:
    return wd.exp(wd.read(x) - wd.abs(wd.read(w)))


def of_indices(x: Any, y: Any, w: Any) -> Any:
    return wd.where(wd.index(I) < wd.index(J), wd.read(y), wd.cast(wd.index(I), F32))


def of_sums(x: Any, y: Any, w: Any) -> Any:
    """A sum of each row is no element of a row: it is picked as it was."""
    return wd.read(w) - wd.sum(wd.read(w) * wd.read(y), dim=J)


def of_conditions(x: Any, y: Any, w: Any) -> Any:
    return wd.read(x) > wd.read(y)


def turned(x: Any, y: Any, w: Any) -> Any:
    return wd.permute(wd.broadcast(wd.read(x), I, J) + wd.Register[I, J, F32](2.0), J, I)


MADE = {
    "plain": (plain, F32), "of a matrix": (of_a_matrix, F32), "of indices": (of_indices, F32),
    "of sums": (of_sums, F32), "of conditions": (of_conditions, wd.i1), "turned": (turned, F32),
}  # fmt: skip


def given(dtype: Any) -> list[Any]:
    at = np.array([3, 0, ROWS - 1, ROWS, -1, 7, 1 << 30, 3], np.int32)
    out = np.full((2, len(at), COLUMNS), 1, dtype.storage)
    return [normal(2, ROWS), normal(COLUMNS, seed=1), normal(ROWS, COLUMNS, seed=2), at, out]


@pytest.mark.parametrize("name", MADE)
def test_the_same_bits(name: str) -> None:
    """The copy of the graph gives what the graph gives, also of places that do not exist."""
    value, dtype = MADE[name]
    kernel, meant, got = picking(value, dtype), given(dtype), given(dtype)
    graph = kernel.trace(None)
    made = picked_elements(graph)
    assert made is not graph
    left = [n for n in made.all_nodes() if n.op == "extract"]
    assert bool(left) == (name == "of sums") and all(len(n.inputs[0].dims) == 1 for n in left)
    for g, arrays in ((graph, meant), (made, got)):
        arguments = kernel.bind_arguments(arrays, {})
        evaluate(g, arguments, kernel.binding(arguments, None, dynamic=()).dims)
    np.testing.assert_array_equal(got[-1], meant[-1])
    assert not meant[-1][:, 3:5].any() and meant[-1][:, 0].any()


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("name", MADE)
def test_on_chips(name: str, target: str, oracle: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is only done for want of registers, done wherever it can be."""
    from wavedsl.ir import pipeline

    value, dtype = MADE[name]
    before = pipeline.prepared
    monkeypatch.setattr(
        pipeline, "prepared", lambda graph, *more, **options: picked_elements(before(graph, *more, **options))
    )
    agree(picking(value, dtype), given(dtype), target, oracle, _near)


def _near(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-5, atol=1e-5)


def test_what_stays_as_it_is() -> None:
    """Arrays that the kernel writes are not read again; nor is what stands in the loop itself taken apart."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0)], subs={I: ROWS, J: COLUMNS})
    def written(w: wd.Memory[I, J, F32], out: wd.Memory[B, J, F32]):
        made = wd.read(w) + 1.0

        def step(row, t):
            wd.write(row, w[t, :])
            return row + wd.extract(made, {I: t}), t + 1

        row, _ = wd.while_loop(lambda row, t: t < I, step, [wd.Register[J, F32](0.0), wd.Register[I32](0)])
        wd.write(row, out)

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0)], subs={I: ROWS, J: COLUMNS})
    def carried(w: wd.Memory[I, J, F32], out: wd.Memory[B, J, F32]):
        def step(tile, row, t):
            return tile * 2.0, row + wd.extract(tile + 1.0, {I: t}), t + 1

        start = [wd.read(w), wd.Register[J, F32](0.0), wd.Register[I32](0)]
        _, row, _ = wd.while_loop(lambda tile, row, t: t < I, step, start)
        wd.write(row, out)

    for kernel in (written, carried):
        graph = kernel.trace(None)
        assert picked_elements(graph) is graph
