"""Matrix products with everything drawn at random: chip, types, sizes, tiles, waves, spaces, forms in memory, depth of
the pipeline, which extents are dynamic. Whole numbers must come out exactly and no check may find anything.

The default run takes a second with a fixed seed. Longer ones:

    WAVEDSL_FUZZ_SECONDS=300 WAVEDSL_FUZZ_SEED=7 pytest tests/fuzz -s

A failure prints the case; `WAVEDSL_FUZZ_CASE=<number> WAVEDSL_FUZZ_SEED=<seed>` runs it alone. What a chip refuses
(registers, shared memory, too many waves) is no failure.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import products
from products import TARGETS, TILE, K, M, N

import wavedsl as wd

SECONDS = float(os.environ.get("WAVEDSL_FUZZ_SECONDS", "1"))
SEED = int(os.environ.get("WAVEDSL_FUZZ_SEED", "0"))
ONLY = os.environ.get("WAVEDSL_FUZZ_CASE")


@dataclass(frozen=True)
class Case:
    """One product. `spread`: per argument, how its elements lie in memory."""

    target: str
    kind: products.Kind
    sizes: tuple[int, int, int]
    tile: tuple[int, int, int, int, int]
    order: str
    spaces: tuple[Any, Any]
    spread: tuple[str, str, str]
    stages: int | None
    dynamic: tuple[Any, ...]


def draw(rng: np.random.Generator) -> Case:
    """Sizes and tiles are small, so that a case is quick, and often no powers of two."""

    def one(options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    target = one((*TARGETS, "sm_90a"))
    waves = one(((1, 1), (2, 1), (1, 2), (2, 2), (1, 4), (4, 1), (3, 1), (2, 3), (4, 2), (4, 4)))
    own = tuple(one((16, 16, 32, 32, 32, 64, 8, 24, 48, 20)) for _ in range(2))
    if max(own) == 64 and waves[0] * waves[1] > 4:
        own = (32, 32)
    tile = (waves[0] * own[0], waves[1] * own[1], one((8, 16, 16, 32, 32, 64, 24, 40)), *own)
    sizes = tuple(
        int(one((1, 2, 7, 16, 17, 33, 63, 64, 65, 100, 127, 128, 130, int(rng.integers(0, 140))))) for _ in range(3)
    )
    spaces = tuple(one((wd.SHARED, wd.SHARED, wd.GLOBAL, None)) for _ in range(2))
    spread = tuple(one(("plain", "plain", "transposed", "rows", "columns", "inside")) for _ in range(3))
    dynamic = tuple(d for d in (M, N, K) if rng.random() < 0.15)
    stages = one((None, None, 1, 2, 3, 5))
    return Case(target, one(products.kinds(target)), sizes, tile, one(("NK", "KN")), spaces, spread, stages, dynamic)  # type: ignore[arg-type]


def laid_out(x: np.ndarray, spread: str) -> np.ndarray:
    if spread == "transposed":
        return np.ascontiguousarray(x.T).T
    if spread == "rows":
        return products.inside(x, (3 * x.shape[0], x.shape[1]), np.s_[::3])
    if spread == "columns":
        return products.inside(x, (x.shape[0], 2 * x.shape[1]), np.s_[:, ::2])
    if spread == "inside":
        return products.inside(x, (x.shape[0] + 3, x.shape[1] + 5), np.s_[2:-1, 3:-2])
    return x


def run(case: Case) -> bool:
    """Whether the chip takes the case; raises where anything is wrong."""
    m, n, k = case.sizes
    a, b, c = products.operands(case.kind, m, n, k, b_order=case.order)
    want, _ = products.exact(a, b, case.kind, case.order)
    a, b, c = (laid_out(x, spread) for x, spread in zip((a, b, c), case.spread))
    schedule = {} if case.stages is None else {"schedule": wd.Schedule(stages=case.stages)}
    kernel = products.gemm(case.kind, b_order=case.order, spaces=case.spaces, **schedule)
    try:
        compiled = kernel.compile(
            a, b, c, target=case.target, subs=dict(zip(TILE, case.tile)), dynamic=case.dynamic or None
        )
    except (wd.RegisterPressureError, wd.ConstraintError):
        return False
    around = c if c.base is None else c.base
    before = around.copy()
    compiled.emulate(a, b, c)
    products.expect_equal(c, want, case.kind)
    c[...] = np.asarray(products.SENTINEL).astype(c.dtype)
    assert np.array_equal(around, before), "elements around the output changed"
    return True


def test_products() -> None:
    until = time.monotonic() + SECONDS
    taken = refused = 0
    number = int(ONLY) if ONLY else 0
    while time.monotonic() < until and (ONLY is None or not taken + refused):
        case = draw(np.random.default_rng([SEED, number]))
        try:
            took = run(case)
        except Exception as error:
            raise AssertionError(f"seed {SEED}, case {number}: {case}") from error
        taken, refused, number = taken + took, refused + (not took), number + 1
    print(f"{taken} products right, {refused} refused (seed {SEED})")
    assert ONLY or taken > refused
