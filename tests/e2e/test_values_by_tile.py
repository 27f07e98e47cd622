"""Values that lack a grid dimension but differ from tile to tile along it, since each tile took a branch or went round
a loop by itself: what is computed of them lies along the same tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wavedsl as wd

M, N, D, E, P, Q = wd.symbols("M N D E P Q")
TARGETS = ["gfx90a", "gfx950", "sm_80", "sm_90a"]
ROWS = 40
"""Three tiles of 16, the last one short."""

AFTER: dict[str, tuple[Any, Any]] = {
    "sum": (lambda v: wd.sum(v, dim=D), lambda v: v.sum()),
    "argmax": (lambda v: wd.cast(wd.argmax(v, dim=D), wd.f32), lambda v: np.float32(v.argmax())),
    "reduce": (lambda v: wd.reduce(v, lambda a, b: wd.maximum(a, b), -999.0, dim=D), lambda v: v.max()),
    "scan": (
        lambda v: wd.scan((v, v * 0.0 + 1.0), lambda a, b: (a[0] + b[0], a[1] + b[1]), (0.0, 0.0), dim=D)[0],
        np.cumsum,
    ),
    "cumsum": (lambda v: wd.cumsum(v, dim=D), np.cumsum),
    "sort": (lambda v: wd.sort(v, dim=D), np.sort),
    "shuffle": (lambda v: wd.shuffle(v, 7 - wd.index(D), D), lambda v: v[::-1]),
    "extract": (lambda v: wd.extract(v, {D: 3}), lambda v: v[3]),
    "reshape": (lambda v: wd.sum(wd.reshape(v, P, Q), dim=Q), lambda v: v.reshape(4, 2).sum(1)),
}


@pytest.mark.parametrize("name", AFTER)
@pytest.mark.parametrize("how", ["branch", "loop"])
def test_values_that_differ_by_tile(how: str, name: str) -> None:
    """The evaluator lost the tiles of such a value: "cannot reshape array of size 40 into shape (1, 8)"."""
    ours, theirs = AFTER[name]

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(N, 16)], subs={P: 4, Q: 2})
    def kernel(x: wd.Memory[D, wd.f32], n: wd.Memory[N, wd.f32], y: wd.Memory[M, P, wd.f32]):
        v = wd.read(x)
        if how == "branch":
            v = wd.cond(wd.tile_start(M) >= 16, lambda: v * 2.0 + 1.0, lambda: v)
        else:

            @wd.iterate(N, stop=wd.tile_start(M), init_args=[v])
            def loop(v):
                return v + wd.sum(wd.read(n), dim=N)

            v = loop
        v = ours(v)
        if wd.sym.D in v.dims:
            v = wd.extract(v, {D: (P, 2, 1)})
        wd.write(wd.broadcast(v, M, P), y)

    x, n = np.array([5, -3, 8, 2, 9, -7, 4, 1], np.float32), np.arange(ROWS, dtype=np.float32)
    expected = np.zeros((ROWS, 4), np.float32)
    for row in range(ROWS):
        tile = row // 16
        v = (x * 2 + 1 if tile else x) if how == "branch" else x + n[: 16 * tile].sum()
        v = theirs(v)
        expected[row] = v[2:6] if np.shape(v) == (8,) else v
    meant = np.full((ROWS, 4), 77, np.float32)
    kernel.evaluate(x, n, meant)
    np.testing.assert_array_equal(meant, expected)
    for target in TARGETS:
        got = np.full((ROWS, 4), 77, np.float32)
        kernel.compile(x, n, got, target=target).emulate(x, n, got)
        np.testing.assert_array_equal(got, expected, err_msg=target)


@pytest.mark.parametrize("target", TARGETS)
def test_an_operand_that_differs_by_tile(target: str) -> None:
    """Each tile of rows has the columns that its branch chose."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def kernel(a: wd.Memory[M, D, wd.f16], b: wd.Memory[E, D, wd.f16], y: wd.Memory[M, E, wd.f32]):
        v = wd.read(b)
        v = wd.cond(wd.tile_start(M) >= 16, lambda: v * 2.0, lambda: v)
        wd.write(wd.mma(wd.read(a), v), y)

    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((ROWS, 16), (16, 16)))
    expected = (a.astype(np.float32) @ b.T.astype(np.float32)) * np.where(np.arange(ROWS) < 16, 1, 2)[:, None]
    for run in (lambda y: kernel.evaluate(a, b, y), lambda y: kernel.compile(a, b, y, target=target).emulate(a, b, y)):
        y = np.full((ROWS, 16), 77, np.float32)
        run(y)
        np.testing.assert_array_equal(y, expected)
