"""`split_k` behind `wd.exit_if`: the parts of a tile leave together, and those of other tiles are put together.

Evaluator, emulator and assembler against NumPy, on whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree
from products import BK, BM, BN, K, M, N

import wavedsl as wd

CHIPS = (*TARGETS, "sm_90a")
TILES = [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK)]
SIZES = {BM: 32, BN: 32, BK: 32}
SUMS = wd.Register[M, N, wd.f32]


def operands(m: int = 100, n: int = 70, k: int = 300) -> list[np.ndarray]:
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (n, k)))
    return [a, b, np.full((m, n), 77, np.float32)]


def product(a: Any, b: Any, c: Any) -> None:
    @wd.iterate(K, init_args=[SUMS(1.0)])
    def loop(acc: SUMS):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop * 2.0, c)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_some_tiles_leave(persistent: bool, parts: int, target: str, oracle: Callable[[str], str]) -> None:
    """By a number of the launch and by one that an array has for each tile of rows."""
    schedule = wd.Schedule(split_k=parts, persistent=persistent or None)

    @wd.wave(TILES, subs=SIZES, schedule=schedule)
    def kernel(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32], stop: wd.Scalar[wd.i32],
        skip: wd.Memory[M, wd.i32],
    ):  # fmt: skip
        wd.exit_if(wd.tile_start(N) >= stop)
        wd.exit_if(wd.read(skip[wd.tile_start(M)]) != 0)
        product(a, b, c)

    a, b, c = operands()
    skip = np.zeros(100, np.int32)
    skip[64] = 1
    compiled = agree(kernel, [a, b, c, np.int32(64), skip], target, oracle)
    want = np.full((100, 70), 77, np.float32)
    for rows in (slice(0, 64), slice(96, 100)):
        want[rows, :64] = 2 + 2 * (a[rows].astype(np.float32) @ b[:64].astype(np.float32).T)
    compiled.emulate(a, b, c, np.int32(64), skip)
    assert (c == want).all()


@pytest.mark.parametrize("target", CHIPS)
def test_a_condition_behind_the_loop_is_no_exit(target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave(TILES, subs=SIZES, schedule=wd.Schedule(split_k=2))
    def kernel(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32], stop: wd.Scalar[wd.i32]
    ):
        @wd.iterate(K, init_args=[SUMS(0.0)])
        def loop(acc: SUMS):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.exit_if(wd.tile_start(N) >= stop)
        wd.write(loop, c)

    a, b, c = operands()
    agree(kernel, [a, b, c, np.int32(32)], target, oracle).emulate(a, b, c, np.int32(32))
    assert (c[:, :32] == a.astype(np.float32) @ b[:32].astype(np.float32).T).all() and (c[:, 32:] == 77).all()


def test_what_parts_could_decide_otherwise_is_refused() -> None:
    """What the kernel writes may have changed when the next part reads it; what is stored in front would be stored by
    every part."""

    @wd.wave(TILES, subs=SIZES, schedule=wd.Schedule(split_k=2))
    def reads(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        wd.exit_if(wd.read(c[wd.tile_start(M), wd.tile_start(N)]) == 0.0)
        product(a, b, c)

    @wd.wave(TILES, subs=SIZES, schedule=wd.Schedule(split_k=2))
    def stores(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        wd.write(SUMS(0.0), c)
        wd.exit_if(wd.tile_start(M) > 0)
        product(a, b, c)

    found = ((reads, "c is read before wd.exit_if and written"), (stores, "c is written before wd.exit_if"))
    for kernel, said in found:
        with pytest.raises(wd.ConstraintError, match=said):
            kernel.compile(target="gfx942", subs={M: 64, N: 64, K: 128})
