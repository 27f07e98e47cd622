"""Loop tiles that shared memory does not hold: cut finer where the loop does nothing but add products, refused where
the number of its trips matters.

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
SIZES = {BM: 64, BN: 128, BK: 1024}
SUMS = wd.Register[M, N, wd.f32]


def product(step: Callable[[Any, Any, Any], Any] = wd.mma, b_dims: Any = (N, K), **schedule: Any) -> Any:
    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK)],
        schedule=wd.Schedule(**schedule),
    )
    def kernel(
        a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[(*b_dims, wd.SHARED, wd.f16)], c: wd.Memory[M, N, wd.f32]
    ):
        @wd.iterate(K, init_args=[SUMS(0.0)])
        def loop(acc: SUMS):
            return step(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return kernel


def arrays(m: int, n: int, k: int, transposed: bool = False) -> list[np.ndarray]:
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n) if transposed else (n, k)))
    return [a, b, np.ones((m, n), np.float32)]


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("transposed", [False, True])
def test_tiles_are_halved_until_they_fit(transposed: bool, target: str, oracle: Callable[[str], str]) -> None:
    """As often as that takes: the loop has more trips than the user's two."""
    kernel = product(b_dims=(K, N) if transposed else (N, K))
    a, b, c = arrays(70, 130, 2048, transposed)
    compiled = agree(kernel, [a, b, c], target, oracle, subs=SIZES)
    compiled.emulate(a, b, c)
    assert (c == a.astype(np.float32) @ (b if transposed else b.T).astype(np.float32)).all()
    (note,) = compiled.kernel_ir.notes["lowering"].loops
    assert note.trips >= 8


@pytest.mark.parametrize("target", CHIPS)
def test_parts_of_a_loop_are_halved_alike(target: str, oracle: Callable[[str], str]) -> None:
    a, b, c = arrays(64, 128, 4096)
    compiled = agree(product(split_k=2), [a, b, c], target, oracle, subs=SIZES)
    compiled.emulate(a, b, c)
    assert (c == a.astype(np.float32) @ b.T.astype(np.float32)).all()


def counting(a: Any, b: Any, acc: Any) -> Any:
    """Adds one per trip: the number of trips is the user's."""
    return wd.mma(a, b, acc) + 1.0


@pytest.mark.parametrize("target", CHIPS)
def test_last_tiles_beyond_the_end_are_halved_alike(target: str, oracle: Callable[[str], str]) -> None:
    a, b, c = arrays(64, 128, 2000)
    compiled = agree(product(), [a, b, c], target, oracle, subs=SIZES)
    compiled.emulate(a, b, c)
    assert (c == a.astype(np.float32) @ b.T.astype(np.float32)).all()


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("why", ["counts its trips", "stages", "ragged at launch"])
def test_tiles_that_stay_the_user_s(why: str, target: str) -> None:
    """Refused, with the tile as the user wrote it."""
    kernel = {"stages": product(stages=1), "ragged at launch": product()}.get(why, product(counting))
    with pytest.raises(wd.ConstraintError, match=r"a shared tile of .*K=1024") as caught:
        if why == "ragged at launch":
            kernel.compile(*arrays(64, 128, 2000), target=target, subs=SIZES, dynamic=[K])
        else:
            kernel.compile(target=target, subs={**SIZES, M: 64, N: 128, K: 2048})
    assert "smaller tiles" in str(caught.value)
