"""One compiled product serves every size: random M, N, K and row pitches against NumPy, checks on; 200 of them on
gfx942, 50 on each other chip (`-m exhaustive`: 200 there, too).

Sizes and pitches divide nothing, so neither does what the text was compiled for. The launch refuses what the text
cannot serve (`LaunchError`), so a wrong assumption about strides cannot pass silently.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import products
import pytest
from products import TILE, K, M, N

from wavedsl import compiler

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
MOST, FEWER = 200, 50
"""Sizes for gfx942, and for another chip."""
AROUND = 101
"""What lies around the arrays' elements."""

TILES: dict[str, tuple[int, ...]] = {"sm_90a": (64, 32, 32, 64, 32)}
"""On sm_90a a tile that a warpgroup multiplies."""

KINDS = {
    "gfx90a": (products.F16, products.BF16), "gfx942": (products.F16, products.kinds("gfx942")[-1]),
    "gfx950": (products.F16, products.kinds("gfx950")[-1]), "sm_80": (products.F16, products.F32),
    "sm_90a": (products.F16, products.I8),
}  # fmt: skip


def spread(x: np.ndarray, before: int, after: int) -> np.ndarray:
    """The elements of x in longer rows, `before` elements after their start; what lies between would spoil any sum."""
    around = np.full((x.shape[0], before + x.shape[1] + after), AROUND).astype(x.dtype)
    view = around[:, before : before + x.shape[1]]
    view[...] = x
    return view


def arrays(kind: products.Kind, order: str, size: tuple[int, int, int], rng: Any) -> list[np.ndarray]:
    """a, b and c in rows of pitches of their own, mostly odd, that begin anywhere."""
    given = products.operands(kind, *size, b_order=order)
    return [spread(x, int(rng.integers(0, 4)), int(rng.integers(0, 16))) for x in given]


def least(kind: products.Kind, order: str) -> list[np.ndarray]:
    """Arrays that nothing but whole elements divides: what the text is compiled for."""
    given = products.operands(kind, 65, 63, 37, b_order=order)
    return [spread(x, 1, x.shape[1] % 2) for x in given]


def shapes(seed: int) -> list[tuple[int, ...]]:
    """Sizes from 0 to 150, most of them small, some of several tiles and trips, some empty."""
    rng = np.random.default_rng(seed)
    found: list[tuple[int, ...]] = [(0, 5, 7), (5, 0, 7), (9, 11, 0), (1, 1, 1), (131, 127, 149)]
    while len(found) < MOST:
        top = (20, 40, 70, 150)[int(rng.choice(4, p=(0.4, 0.35, 0.2, 0.05)))]
        found.append(tuple(int(n) for n in rng.integers(0, top + 1, 3)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "order"),
    [  # in CI the other order on one chip of each kind
        pytest.param(t, o, marks=pytest.mark.exhaustive if o == "KN" and t not in ("gfx950", "sm_80") else [])
        for t in TARGETS
        for o in ("NK", "KN")
    ],
)
def test_one_text_for_every_shape(target: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = FEWER // 2 if order == "KN" else MOST if target == "gfx942" else FEWER
    expect_served(target, order, shapes(2)[:count], monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", ["NK", "KN"])
@pytest.mark.parametrize("target", TARGETS)
def test_two_hundred_other_shapes(target: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expect_served(target, order, shapes(3), monkeypatch)


def expect_served(target: str, order: str, sizes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """One text of a target is right for all these M, N, K."""
    kind = KINDS[target][order == "KN"]
    kernel = products.gemm(kind, b_order=order)
    compiles: list[str] = []
    original = compiler.compile_kernel

    def counted(*args: Any, **kwargs: Any) -> Any:
        compiles.append(target)
        return original(*args, **kwargs)

    monkeypatch.setattr(compiler, "compile_kernel", counted)
    subs = dict(zip(TILE, TILES.get(target, (32, 32, 16, 16, 16))))
    compiled = kernel.compile(*least(kind, order), target=target, subs=subs, dynamic=(M, N, K))
    text = compiled.asm
    rng = np.random.default_rng(1)
    for m, n, k in sizes:
        a, b, c = arrays(kind, order, (m, n, k), rng)
        around = c.base
        assert around is not None
        before = around.astype(np.float64)
        compiled.emulate(a, b, c)
        products.expect_equal(c, products.exact(a, b, kind, order)[0], kind)
        c[...] = np.full(c.shape, products.SENTINEL).astype(c.dtype)
        assert np.array_equal(around.astype(np.float64), before), f"elements around c changed at {m, n, k}"
    assert compiles == [target] and compiled.asm == text
