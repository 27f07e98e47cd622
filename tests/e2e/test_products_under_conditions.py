"""Products that a loop's condition leaves out: blocks of a sparse matrix, keys that a mask hides, factors by block.

Text against NumPy, all checks on; tiles are read in front of the condition, so that they come ahead, or behind it.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wavedsl as wd

M, N, K, G, J, H, D = wd.symbols("M N K G J H D")
TARGETS = ["gfx942", "gfx950", "sm_80", "sm_90a"]
rng = np.random.default_rng(31)


def small(*shape: int) -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(np.float16)


def sparse_product(where: str, tiles: tuple[int, int, int] = (128, 64, 64), **schedule: Any) -> Any:
    m, n, k = tiles
    cut = [wd.WorkgroupConstraint(M, m, 0), wd.WorkgroupConstraint(N, n, 1), wd.TilingConstraint(K, k)]

    @wd.wave(cut, schedule=wd.Schedule(**schedule))
    def kernel(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], use: wd.Memory[G, J, wd.i32], c: wd.Memory[M, N, wd.f32]
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            kind = wd.read(use[wd.tile_start(M) // m, wd.tile_start(K) // k])
            x, y = (wd.read(a), wd.read(b)) if where == "front" else (None, None)

            def product():
                left, right = (x, y) if where == "front" else (wd.read(a), wd.read(b))
                return wd.mma(left, right, acc)

            if where == "both":  # a number of blocks counts twice
                return wd.cond(kind > 0, lambda: wd.mma(wd.read(a), wd.read(b), acc), lambda: acc + acc)
            return wd.cond(kind > 0, product, lambda: acc)

        wd.write(loop, c)

    return kernel


def blocks(shape: tuple[int, int], which: str) -> np.ndarray:
    found = {"some": rng.integers(0, 2, shape), "all": np.ones(shape), "none": np.zeros(shape)}[which].astype(np.int32)
    if which == "some":
        found[0, 0], found[-1, -1] = 0, 1
    return found


@pytest.mark.parametrize("which", ["some", "all", "none"])
@pytest.mark.parametrize("where", ["front", "behind", "both"])
@pytest.mark.parametrize("target", TARGETS)
def test_blocks_that_are_zero(target: str, where: str, which: str) -> None:
    m, n, k = 256, 128, 320
    a, b, use = small(m, k), small(n, k), blocks((2, 5), which)
    c = np.full((m, n), 7, np.float32)
    compiled = sparse_product(where).compile(a, b, use, c, target=target)
    compiled.emulate(a, b, use, c)
    want = np.zeros((m, n), np.float32)
    for i in range(2):
        rows = slice(128 * i, 128 * (i + 1))
        for j in range(5):
            depth = slice(64 * j, 64 * (j + 1))
            if use[i, j]:
                want[rows] += a[rows, depth].astype(np.float32) @ b[:, depth].astype(np.float32).T
            elif where == "both":
                want[rows] *= 2
    np.testing.assert_array_equal(c, want)


def shared_tiles(which: str) -> Any:
    """Tiles that a branch and something else use: a sum in every trip, another branch, a branch in the branch."""
    cut = [wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(K, 32)]

    @wd.wave(cut)
    def kernel(
        a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], e: wd.Memory[N, K, wd.bf16],
        use: wd.Memory[J, 2, wd.i32], c: wd.Memory[2, M, N, wd.f32], sums: wd.Memory[M, wd.f32],
    ):  # fmt: skip
        zeros = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zeros, zeros, wd.Register[M, wd.f32](0.0)])
        def loop(one, two, total):
            x, y, z = wd.read(a), wd.read(b), wd.read(e)
            trip = wd.tile_start(K) // 32
            first, second = wd.read(use[trip, 0]) > 0, wd.read(use[trip, 1]) > 0
            if which == "nested":
                inner = lambda: wd.cond(second, lambda: wd.mma(x, y, one), lambda: one)  # noqa: E731
                return wd.cond(first, inner, lambda: one), two, total
            one = wd.cond(first, lambda: wd.mma(x, y, one), lambda: one)
            if which == "sum":
                return one, two, total + wd.sum(wd.cast(x, wd.f32), dim=K)
            return one, wd.cond(second, lambda: wd.mma(x, z, two), lambda: two), total

        one, two, total = loop
        wd.write(one, c[0, :, :])
        wd.write(two, c[1, :, :])
        wd.write(total, sums)

    return kernel


@pytest.mark.parametrize("k", [320, 326, 321])
@pytest.mark.parametrize("which", ["sum", "two", "nested"])
@pytest.mark.parametrize("target", TARGETS)
def test_tiles_that_others_use_too(target: str, which: str, k: int) -> None:
    """Rows of 321 bf16 numbers are copied by no bulk copy, and by lanes two bytes at a time."""
    m, n, trips = 128, 64, -(-k // 32)
    a, b, e = (small(x, k).astype(ml_dtypes.bfloat16) for x in (m, n, n))
    use = rng.integers(0, 2, (trips, 2)).astype(np.int32)
    use[0], use[1], use[2] = (0, 1), (1, 0), (1, 1)
    c, sums = np.full((2, m, n), 7, np.float32), np.full(m, 7, np.float32)
    shared_tiles(which).compile(a, b, e, use, c, sums, target=target).emulate(a, b, e, use, c, sums)
    first, second = (np.repeat(use[:, i], 32)[:k].astype(np.float32) for i in (0, 1))
    x, y, z = (v.astype(np.float32) for v in (a, b, e))
    np.testing.assert_array_equal(c[0], (x * (first * second if which == "nested" else first)) @ y.T)
    np.testing.assert_array_equal(c[1], (x * second) @ z.T if which == "two" else 0)
    np.testing.assert_array_equal(sums, x.sum(1) if which == "sum" else 0)


def masked(where: str, rows: int = 64, keys: int = 32, **schedule: Any) -> Any:
    """Attention in which `use` says which blocks of keys a block of queries sees, and `own` which keys of those."""
    cut = [wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(M, rows, 0), wd.TilingConstraint(N, keys)]

    @wd.wave(cut, schedule=wd.Schedule(**schedule))
    def kernel(
        q: wd.Memory[H, M, D, wd.f16], k: wd.Memory[H, N, D, wd.f16], v: wd.Memory[H, N, D, wd.f16],
        own: wd.Memory[M, wd.i32], other: wd.Memory[N, wd.i32], use: wd.Memory[G, J, wd.i32],
        out: wd.Memory[H, M, D, wd.f32],
    ):  # fmt: skip
        mine, queries, low = wd.read(own), wd.read(q), -1e30
        start = [wd.Register[M, wd.f32](low), wd.Register[M, wd.f32](0.0), wd.Register[M, D, wd.f32](0.0)]

        @wd.iterate(N, init_args=start)
        def loop(top, total, acc):
            front = (wd.read(k), wd.read(v)) if where == "front" else ()

            def attend():
                x, y = front or (wd.read(k), wd.read(v))
                score = wd.mma(queries, x, wd.Register[M, N, wd.f32](0.0)) * D**-0.5
                score = wd.where(mine == wd.read(other), score, low)
                new = wd.maximum(top, wd.max(score, dim=N))
                p, fade = wd.exp(score - new), wd.exp(top - new)
                return new, total * fade + wd.sum(p, dim=N), wd.mma(wd.cast(p, wd.f16), y, acc * fade)

            sees = wd.read(use[wd.tile_start(M) // rows, wd.tile_start(N) // keys]) > 0
            return wd.cond(sees, attend, lambda: (top, total, acc))

        _, total, acc = loop
        wd.write(acc / total, out)

    return kernel


@pytest.mark.parametrize("where", ["front", "behind"])
@pytest.mark.parametrize("target", TARGETS)
def test_blocks_of_keys_that_are_hidden(target: str, where: str) -> None:
    h, m, d, rows, keys = 2, 256, 64, 64 if target != "sm_90a" else 128, 32 if target != "sm_90a" else 64
    q, k, v = ((small(h, m, d) / 4).astype(np.float16) for _ in range(3))
    own = (np.arange(m) // 100).astype(np.int32)
    use = (own.reshape(-1, 1, rows, 1) == own.reshape(1, -1, 1, keys)).any((2, 3)).astype(np.int32)
    assert 0 < use.sum() < use.size
    out = np.full((h, m, d), np.nan, np.float32)
    compiled = masked(where, rows, keys).compile(q, k, v, own, own, use, out, target=target)
    compiled.emulate(q, k, v, own, own, use, out)
    score = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * d**-0.5
    p = np.where(own[:, None] == own, np.exp(score - score.max(-1, keepdims=True)), 0)
    np.testing.assert_allclose(out, p @ v.astype(np.float64) / p.sum(-1, keepdims=True), rtol=4e-3, atol=4e-3)


def test_tiles_in_front_of_a_condition_come_by_bulk_copies() -> None:
    """The condition says what is multiplied, not what is copied: a copying warpgroup runs ahead."""
    a, b, use, c = small(256, 320), small(128, 320), np.ones((2, 5), np.int32), np.zeros((256, 128), np.float32)
    compiled = sparse_product("front").compile(a, b, use, c, target="sm_90a")
    assert compiled.kernel_ir.notes["lowering"].strategy.specialize


@pytest.mark.parametrize("target", TARGETS)
def test_a_branch_that_hands_on_what_is_there_is_none(target: str) -> None:
    """What a carried value stays without the branch was chosen by a second branch, of zeros and the first one's."""
    a, b, use, c = small(256, 320), small(128, 320), np.ones((2, 5), np.int32), np.zeros((256, 128), np.float32)
    graph = sparse_product("behind").compile(a, b, use, c, target=target).graph
    assert sum(n.op == "when" for n in graph.all_nodes()) == 1
    graph = sparse_product("both").compile(a, b, use, c, target=target).graph
    assert sum(n.op == "when" for n in graph.all_nodes()) == 2


@pytest.mark.parametrize("target", TARGETS)
def test_either_function_may_hand_on_what_is_there(target: str) -> None:
    """Numbers that the text says are there, too, and flags go on as flags."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
    def kernel(x: wd.Memory[M, wd.f32], which: wd.Scalar[wd.i32], y: wd.Memory[M, wd.f32]):
        value = wd.read(x)
        doubled = wd.cond(which > 0, lambda: value, lambda: value * 2)
        five = lambda: (wd.Register[M, wd.f32](5.0), value < 0)  # noqa: E731
        small, flag = wd.cond(which > 1, lambda: (doubled * 3, value > 0), five)
        kept, same = wd.cond(which > 2, lambda: (small, flag), lambda: (small, flag))
        wd.write(wd.where(same, kept, -kept), y)

    x = np.linspace(-1, 1, 128).astype(np.float32)
    for which in range(4):
        y = np.zeros(128, np.float32)
        kernel.compile(x, which, y, target=target).emulate(x, which, y)
        doubled = x if which > 0 else x * 2
        small, flag = (doubled * 3, x > 0) if which > 1 else (np.full(128, 5, np.float32), x < 0)
        np.testing.assert_array_equal(y, np.where(flag, small, -small))


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("target", TARGETS)
def test_conditions_that_are_known(target: str, holds: bool) -> None:
    """The only tile's number decides: the record of a kernel without the product said that it multiplies."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 16, 1), wd.TilingConstraint(K, 16)])
    def kernel(a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](1.0)])
        def loop(acc):
            x, y = wd.read(a), wd.read(b)
            known = wd.tile_start(M) < 16 if holds else wd.tile_start(M) >= 16
            return wd.cond(known, lambda: wd.mma(x, y, acc), lambda: acc)

        wd.write(loop, c)

    a, b, c = small(18, 40).astype(ml_dtypes.bfloat16), small(32, 40).astype(ml_dtypes.bfloat16), np.zeros((18, 32))
    c = c.astype(np.float32)
    kernel.compile(a, b, c, target=target).emulate(a, b, c)
    np.testing.assert_array_equal(c, 1 + holds * (a.astype(np.float32) @ b.astype(np.float32).T))
