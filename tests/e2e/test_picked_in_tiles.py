"""`shuffle` by `index ^ mask` along dimensions that workgroups, waves and trips share: text, evaluator, NumPy.

Elsewhere a value's element had to lie in the workgroup: along tiles the compiler refused all of it, and the evaluator
took what lay in the trip by numbers that count from the dimension's start, so it answered with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree
from wavedsl.ir.errors import CompileError

import wavedsl as wd

M, N, K = wd.symbols("M N K")
ALL = (*TARGETS, "sm_90a")


def spread(tile: int, *more: Any) -> list[Any]:
    return [wd.WorkgroupConstraint(M, 4, 0), wd.WorkgroupConstraint(N, tile, 1), *more]


CUTS: dict[str, tuple[int, list[Any]]] = {
    "neighbours": (1, spread(64)),
    "threes": (3, spread(64)),
    "not by two": (12, spread(48)),
    "far": (129, spread(256)),
    "other waves": (33, spread(128, wd.WaveConstraint(N, 32))),
    "trips": (1, [wd.WorkgroupConstraint(M, 4, 0), wd.TilingConstraint(N, 32)]),
    "short trips": (5, [wd.WorkgroupConstraint(M, 4, 0), wd.TilingConstraint(N, 8)]),
}


def swapping(mask: int, constraints: list[Any], dtype: Any = wd.f32) -> Any:
    trips = any(isinstance(c, wd.TilingConstraint) for c in constraints)

    @wd.wave(constraints)
    def kernel(x: wd.Memory[M, N, dtype], y: wd.Memory[M, N, dtype]):
        def swap():
            wd.write(wd.shuffle(wd.read(x), wd.index(N) ^ mask, dim=N), y)

        wd.iterate(N)(swap) if trips else swap()

    return kernel


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("name", CUTS)
def test_partners_in_the_same_tile(name: str, target: str, oracle: Callable[[str], str]) -> None:
    """Also where the last tile is a part, whose partners may lie beyond the end: those are zeros."""
    mask, constraints = CUTS[name]
    for n, dynamic, dtype in ((200, (), wd.f32), (77, (M, N), wd.f16)):
        kernel = swapping(mask, constraints, dtype)
        x = np.random.default_rng(n).integers(-99, 99, (5, n)).astype(dtype.numpy)
        y = np.ones_like(x)
        agree(kernel, [x, y], target, oracle, dynamic=dynamic)
        kernel.evaluate(x, y)
        at = np.arange(n) ^ mask
        assert np.array_equal(y, np.where(at < n, x[:, np.minimum(at, n - 1)], 0))


@pytest.mark.parametrize("target", ALL)
def test_pairs_that_turn_on_their_way_into_a_product(target: str, oracle: Callable[[str], str]) -> None:
    """Positions as rotations of neighbours along the dimension that a loop contracts."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 32)], dynamic=[M]
    )
    def kernel(
        x: wd.Memory[M, K, wd.f16], c: wd.Memory[M, K, wd.f16], s: wd.Memory[M, K, wd.f16], w: wd.Memory[N, K, wd.f16],
        y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def total(acc):
            row = wd.read(x)
            turned = row * wd.read(c) + wd.shuffle(row, wd.index(K) ^ 1, dim=K) * wd.read(s)
            return wd.mma(turned, wd.read(w), acc)

        wd.write(total, y)

    rng = np.random.default_rng(0)
    x, c, s = (rng.integers(-2, 3, (37, 96)).astype(np.float16) for _ in range(3))
    w, y = rng.integers(-2, 3, (40, 96)).astype(np.float16), np.zeros((37, 40), np.float32)
    agree(kernel, [x, c, s, w, y], target, oracle)
    kernel.evaluate(x, c, s, w, y)
    turned = x * c + x[:, np.arange(96) ^ 1] * s
    assert np.array_equal(y, turned.astype(np.float32) @ w.astype(np.float32).T)


@pytest.mark.parametrize("index", [lambda: wd.index(N) ^ 16, lambda: wd.index(N) + 1])
def test_both_refuse_what_leaves_a_tile(index: Callable[[], Any]) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.TilingConstraint(N, 16)])
    def kernel(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
        @wd.iterate(N)
        def tiles():
            wd.write(wd.shuffle(wd.read(x), index(), dim=N), y)

    x, y = np.ones((4, 64), np.float32), np.ones((4, 64), np.float32)
    said = []
    for attempt in (lambda: kernel.evaluate(x, y), lambda: kernel.compile(x, y, target="gfx942")):
        with pytest.raises(CompileError, match="shuffle along N, which is spread over workgroups or trips") as caught:
            attempt()
        said.append(str(caught.value))
    assert said[0] == said[1] and "^^^" in said[0]
    assert ("multiples of 32, where these are 16" in said[0]) or ("wd.index(N) ^ mask" in said[0])


def test_both_refuse_one_element_of_a_trip() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.TilingConstraint(N, 16)])
    def kernel(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[M, wd.f32](0.0)])
        def total(so_far):
            return so_far + wd.extract(wd.read(x), {N: 17})

        wd.write(total, y)

    x, y = np.ones((4, 64), np.float32), np.ones(4, np.float32)
    for attempt in (lambda: kernel.evaluate(x, y), lambda: kernel.compile(x, y, target="gfx942")):
        with pytest.raises(CompileError, match="extract along N, which is spread over workgroups or trips"):
            attempt()
    kernel.evaluate(x[:, :16], y)  # one trip has all
    assert (y == 0).all()
