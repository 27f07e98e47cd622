"""Loops whose products get their operands one after the other, across trips: whatever else stands in them and around
them, the graph evaluator, the emulator with all checks and NumPy agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import agree
from in_window import in_this_window
from wavedsl.ir.schedule.taps import Window

import wavedsl as wd

K, L, M, N, T = wd.symbols("K L M N T")
F16, F32, I32 = wd.f16, wd.f32, wd.i32
CHIPS = ("gfx90a", "gfx942", "gfx950", "sm_80")
CUT = [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)]
A, B, Y = wd.Memory[T, M, K, F16], wd.Memory[T, N, K, F16], wd.Memory[M, N, F32]


@wd.wave(CUT)
def scaled(a: A, b: B, s: wd.Memory[T, K, F16], y: Y):
    """What is multiplied is computed of two reads."""

    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def loop(acc):
        for t in range(3):
            x = wd.read(a[t, :, :]) * wd.broadcast(wd.read(s[t, :]), (M, K))
            acc = wd.mma(x, wd.read(b[t, :, :]), acc)
        return acc

    wd.write(loop, y)


@wd.wave(CUT)
def one_after_the_other(a: A, b: B, y: Y):
    """Two loops over one dimension, of which the second goes on in the first one's sums."""

    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def loop(acc):
        for t in range(3):
            acc = wd.mma(wd.read(a[t, :, :]), wd.read(b[t, :, :]), acc)
        return acc

    @wd.iterate(K, init_args=[loop])
    def again(acc):
        for t in (2, 0, 1):
            acc = wd.mma(wd.read(a[t, :, :]), wd.read(b[2 - t, :, :]), acc)
        return acc

    wd.write(again, y)


@wd.wave([*CUT, wd.TilingConstraint(L, 1)])
def nested(a: wd.Memory[L, T, M, K, F16], b: wd.Memory[L, T, N, K, F16], y: Y):
    """A loop in a loop: the tiles of its next pass wait for the readers of the last one."""

    @wd.iterate(L, init_args=[wd.Register[M, N, F32](0.0)])
    def outer(acc):
        @wd.iterate(K, init_args=[acc])
        def loop(acc):
            at = wd.tile_start(L)
            for t in range(3):
                x = wd.read(a, mapping=wd.IndexMapping((M, K), {L: at, T: t, M: M, K: K}))
                acc = wd.mma(x, wd.read(b, mapping=wd.IndexMapping((N, K), {L: at, T: t, N: N, K: K})), acc)
            return acc

        return loop

    wd.write(outer, y)


@wd.wave(CUT)
def bounded(a: A, b: B, first: wd.Scalar[I32], end: wd.Scalar[I32], y: Y):
    """Trips from one number of the call to another: some, one or none."""

    @wd.iterate(K, start=first, stop=end, init_args=[wd.Register[M, N, F32](0.0)])
    def loop(acc):
        for t in range(3):
            acc = wd.mma(wd.read(a[t, :, :]), wd.read(b[t, :, :]), acc)
        return acc

    wd.write(loop, y)


@wd.wave(CUT)
def several(a: A, b: B, y: Y, z: Y, r: wd.Memory[M, F32]):
    """Tiles that two products read, the second of them a product later, and sums of what is multiplied."""

    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0), wd.Register[M, N, F32](0.0), wd.Register[M, F32](0.0)])
    def loop(p, q, total):
        before = None
        for t in range(3):
            x, w = wd.read(a[t, :, :]), wd.read(b[t, :, :])
            p = wd.mma(x, w, p)
            q = q if before is None else wd.mma(x, before, q)
            total, before = total + wd.sum(wd.cast(x, F32), dim=K), w
        return p, q, total

    wd.write(loop[0], y)
    wd.write(loop[1], z)
    wd.write(loop[2], r)


@wd.wave(CUT)
def by_table(a: A, b: B, ids: wd.Memory[T, I32], y: Y):
    """Numbers that are read say which part is multiplied."""

    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)])
    def loop(acc):
        for t in range(3):
            part = wd.read(a, mapping=wd.IndexMapping((M, K), {T: wd.read(ids[t]), M: M, K: K}))
            acc = wd.mma(part, wd.read(b[t, :, :]), acc)
        return acc

    wd.write(loop, y)


def products(a: np.ndarray, b: np.ndarray, pairs: Any = ((0, 0), (1, 1), (2, 2))) -> np.ndarray:
    return np.asarray(sum(a[s].astype(float) @ b[t].astype(float).T for s, t in pairs))


def cases(m: int, n: int, k: int) -> dict[str, tuple[Any, list[Any], dict[int, np.ndarray]]]:
    """Kernel, arguments and what they become, of whole numbers."""
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-2, 3, (3, rows, k)).astype(np.float16) for rows in (m, n))
    s, ids = rng.integers(-2, 3, (3, k)).astype(np.float16), np.array([2, 0, 2], np.int32)
    y = np.zeros((m, n), np.float32)
    more = [np.stack([a, -a[::-1]]), np.stack([b, b[[1, 2, 0]]])]
    found: dict[str, tuple[Any, list[Any], dict[int, np.ndarray]]] = {
        "scaled": (scaled, [a, b, s, y], {3: products(a * s[:, None], b)}),
        "one after the other": (
            one_after_the_other, [a, b, y], {2: products(a, b) + products(a, b, ((0, 2), (1, 1), (2, 0)))},
        ),
        "nested": (nested, [*more, y], {2: products(a, b) + products(*(x[1] for x in more))}),
        "several": (
            several, [a, b, y, y.copy(), np.zeros(m, np.float32)],
            {2: products(a, b), 3: products(a, b, ((1, 0), (2, 1))), 4: a.astype(float).sum((0, 2))},
        ),
        "by table": (by_table, [a, b, ids, y], {3: products(a[ids], b)}),
    }  # fmt: skip
    bounds = {"all": (0, k), "a part": (32, 64), "none": (32, 32), "beyond": (0, 1 << 20), "backwards": (96, 32)}
    for name, (first, end) in bounds.items():
        part = slice(first, max(first, end))
        found[name] = bounded, [a, b, first, end, y], {4: products(a[..., part], b[..., part])}
    return found


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("window", [(1, 1), (2, 0), (2, 1, True, True)])
@pytest.mark.parametrize("size", [(64, 64, 128), (70, 50, 96), (64, 64, 32)])
@pytest.mark.parametrize("name", cases(1, 1, 1))
def test_against_numpy(
    name: str, size: tuple[int, int, int], window: tuple[int, ...], target: str, oracle: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    in_this_window(monkeypatch, Window(*window))
    kernel, args, wants = cases(*size)[name]
    compiled = agree(kernel, args, target, oracle)
    loops = compiled.kernel_ir.notes["lowering"].loops
    assert size[2] == 32 or any("products ahead" in note.body.kind for note in loops)
    mine = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    compiled.emulate(*mine)
    for place, want in wants.items():
        np.testing.assert_array_equal(mine[place], want)
