"""Sums that loops start from one value and keep in different layouts: the value is converted for one of them.

Products of f32 without tensor cores and of bf16 with them leave their sums in different lanes on NVIDIA, on AMD not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from agree import TARGETS, agree
from products import BK, BM, BN, K, M, N

import wavedsl as wd

CHIPS = (*TARGETS, "sm_90a")
TILES = [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK)]
SIZES = {BM: 32, BN: 64, BK: 32}
SUMS = wd.Register[M, N, wd.f32]
A, B = wd.Memory[M, K, wd.f32], wd.Memory[N, K, wd.f32]
P, Q = wd.Memory[M, K, wd.bf16], wd.Memory[N, K, wd.bf16]
C = wd.Memory[M, N, wd.f32]


def operands(m: int = 40, n: int = 70, k: int = 100) -> list[np.ndarray]:
    """a, b, p, q, s of whole numbers, whose sums are exact, and two results."""
    rng = np.random.default_rng(m)
    a, b, p, q, s = (rng.integers(-4, 5, shape) for shape in ((m, k), (n, k), (m, k), (n, k), (m, n)))
    wide = [x.astype(np.float32) for x in (a, b)]
    narrow = [x.astype(ml_dtypes.bfloat16) for x in (p, q)]
    return [*wide, *narrow, s.astype(np.float32), *(np.ones((m, n), np.float32) for _ in range(2))]


def products(arrays: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    a, b, p, q = (x.astype(np.float32) for x in arrays[:4])
    return a @ b.T, p @ q.T


STARTS: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "read": (wd.read, lambda s: s),
    "computed": (lambda s: wd.abs(wd.read(s)) * 0.5, lambda s: np.abs(s) * np.float32(0.5)),
    "constant": (lambda s: SUMS(3.0), lambda s: np.full_like(s, 3)),
    "index": (
        lambda s: wd.broadcast(wd.cast(wd.index(M) - wd.index(N), wd.f32), M, N),
        lambda s: (np.arange(s.shape[0])[:, None] - np.arange(s.shape[1])).astype(np.float32),
    ),
}


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("start", STARTS)
def test_two_sums_from_one_start(start: str, target: str, oracle: Callable[[str], str]) -> None:
    make, meant = STARTS[start]

    @wd.wave(TILES, subs=SIZES)
    def kernel(a: A, b: B, p: P, q: Q, s: C, c: C, d: C):
        x = make(s)

        @wd.iterate(K, init_args=[x, x])
        def loop(u: SUMS, v: SUMS):
            return wd.mma(wd.read(a), wd.read(b), u), wd.mma(wd.read(p), wd.read(q), v)

        wd.write(loop[0], c)
        wd.write(loop[1], d)

    arrays = operands()
    agree(kernel, arrays, target, oracle).emulate(*arrays)
    one, two = products(arrays)
    assert (arrays[5] == meant(arrays[4]) + one).all() and (arrays[6] == meant(arrays[4]) + two).all()


@pytest.mark.parametrize("target", CHIPS)
def test_a_loop_that_goes_on_with_another_one_s_sums(target: str, oracle: Callable[[str], str]) -> None:
    """The sums so far are stored as well, and start a third loop."""

    @wd.wave(TILES, subs=SIZES)
    def kernel(a: A, b: B, p: P, q: Q, s: C, c: C, d: C):
        @wd.iterate(K, init_args=[wd.read(s)])
        def first(u: SUMS):
            return wd.mma(wd.read(a), wd.read(b), u)

        @wd.iterate(K, init_args=[first])
        def second(u: SUMS):
            return wd.mma(wd.read(p), wd.read(q), u)

        @wd.iterate(K, init_args=[second])
        def third(u: SUMS):
            return wd.mma(wd.read(a), wd.read(b), u)

        wd.write(first, c)
        wd.write(third, d)

    arrays = operands()
    agree(kernel, arrays, target, oracle).emulate(*arrays)
    one, two = products(arrays)
    assert (arrays[5] == arrays[4] + one).all() and (arrays[6] == arrays[4] + one + two + one).all()


@pytest.mark.parametrize("target", CHIPS)
def test_sums_that_go_on_in_a_while_loop(target: str, oracle: Callable[[str], str]) -> None:
    """`while_loop` starts from what a loop left, in a loop of its own."""

    @wd.wave(TILES, subs=SIZES)
    def kernel(a: A, b: B, p: P, q: Q, s: C, c: C, d: C):
        @wd.iterate(K, init_args=[wd.read(s)])
        def first(u: SUMS):
            return wd.mma(wd.read(a), wd.read(b), u)

        def more(trip: Any, u: Any) -> Any:
            @wd.iterate(K, init_args=[u])
            def inner(v: SUMS):
                return wd.mma(wd.read(p), wd.read(q), v)

            return trip + 1, inner

        _, last = wd.while_loop(lambda trip, u: trip < 2, more, [wd.Register[wd.i32](0), first])
        wd.write(first, c)
        wd.write(last, d)

    arrays = operands(33, 64, 64)
    agree(kernel, arrays, target, oracle).emulate(*arrays)
    one, two = products(arrays)
    assert (arrays[5] == arrays[4] + one).all() and (arrays[6] == arrays[4] + one + 2 * two).all()


@pytest.mark.parametrize("target", CHIPS)
def test_products_of_both_kinds_in_one_trip(target: str, oracle: Callable[[str], str]) -> None:
    """As the error says that stands where one is the other's accumulator."""

    sizes = {**SIZES, BK: 16}

    @wd.wave(TILES, subs=sizes)
    def chained(a: A, b: B, p: P, q: Q, s: C, c: C, d: C):
        @wd.iterate(K, init_args=[wd.read(s)])
        def loop(u: SUMS):
            return wd.mma(wd.read(p), wd.read(q), wd.mma(wd.read(a), wd.read(b), u))

        wd.write(loop, c)

    @wd.wave(TILES, subs=sizes)
    def added(a: A, b: B, p: P, q: Q, s: C, c: C, d: C):
        @wd.iterate(K, init_args=[wd.read(s)])
        def loop(u: SUMS):
            return wd.mma(wd.read(a), wd.read(b), u) + wd.mma(wd.read(p), wd.read(q))

        wd.write(loop, c)

    arrays = operands()
    agree(added, arrays, target, oracle).emulate(*arrays)
    one, two = products(arrays)
    assert (arrays[5] == arrays[4] + one + two).all()
    if not target.startswith("sm"):
        agree(chained, arrays, target, oracle)
        return
    with pytest.raises(wd.CompileError, match="need it in different layouts") as caught:
        chained.compile(*arrays, target=target)
    assert "x + wd.mma(y, z)" in str(caught.value)
