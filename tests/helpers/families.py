"""Whole kernels as people write them, held against NumPy: arguments, what becomes of some of them, and how near.

Imported as `families` (pytest's `pythonpath` lists this folder). `on_chip` compiles and emulates with all checks,
`by_graph` evaluates; both compare the arrays that `wants` names by position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import cut_for
import numpy as np
import products
import pytest

TARGETS = (*products.TARGETS, "sm_90a")


@dataclass(frozen=True)
class Case:
    """Arguments, what some of them become, bindings, the allowed error, and dimensions that may be left to run time."""

    arguments: Sequence[Any]
    wants: Mapping[int, np.ndarray]
    subs: Mapping[Any, int] = field(default_factory=dict)
    slack: float = 0.0
    dynamic: Sequence[Any] = ()


def wide(x: np.ndarray) -> np.ndarray:
    """Floats of any width as f64; integers as they are."""
    return x if x.dtype.kind in "iub" else x.astype(np.float64)


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def whole(*shape: int, seed: int = 0, dtype: Any = np.float16, low: int = -2, high: int = 3) -> np.ndarray:
    """Whole numbers, whose sums are exact in f32."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def philox(seed: int, count: int, offset: int = 0) -> np.ndarray:
    """The first words of Philox 4x32-10 at counters 0 to count, as numbers in [0, 1): what `wd.random` gives."""
    key, c = [seed & 0xFFFFFFFF, seed >> 32], [np.full(count, x, np.uint64) for x in (0, 0, offset, 0)]
    c[0] += np.arange(count, dtype=np.uint64)
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        low, high = (lambda p: p & np.uint64(0xFFFFFFFF)), (lambda p: p >> np.uint64(32))
        c = [high(p1) ^ c[1] ^ np.uint64(key[0]), low(p1), high(p0) ^ c[3] ^ np.uint64(key[1]), low(p0)]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return (c[0] >> np.uint64(8)).astype(np.float64) * 2.0**-24


def on_chip(kernel: Any, case: Case, target: str, dynamic: Sequence[Any] = ()) -> Any:
    """The kernel compiled for a chip and emulated on copies of the case's arguments, and what came of them compared.
    With extents of the call, tiles that one warpgroup computes stay so, as large sizes have them."""
    mine = _copies(case)
    with cut_for.warpgroups() if dynamic else nullcontext():
        compiled = kernel.compile(*mine, target=target, subs=case.subs or None, dynamic=list(dynamic))
    compiled.emulate(*mine)
    _compare(mine, case)
    return compiled


def by_graph(kernel: Any, case: Case) -> None:
    """The traced graph executed in NumPy."""
    mine = _copies(case)
    kernel.evaluate(*mine, subs=case.subs or None)
    _compare(mine, case)


def _copies(case: Case) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in case.arguments]


def _compare(mine: Sequence[Any], case: Case) -> None:
    for position, want in case.wants.items():
        got = mine[position]
        np.testing.assert_allclose(wide(got), want, rtol=case.slack, atol=case.slack, err_msg=f"argument {position}")


Kernels = Mapping[str, tuple[Any, Callable[..., Case], Sequence[tuple[Any, ...]]]]
"""Name → a kernel, what makes a case of sizes, and sizes; the last ones are also run with extents of the call."""


def both_tests(
    kernels: Kernels, chips: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> tuple[Callable[..., None], Callable[..., None]]:
    """The tests of a file of kernels: on the emulator of every chip, and of the graph. `chips`: those of kernels whose
    types not every chip has."""

    @pytest.mark.parametrize(("name", "target"), [(name, t) for name in kernels for t in chips.get(name, TARGETS)])
    def against_numpy(name: str, target: str) -> None:
        kernel, made, sizes = kernels[name]
        for size in sizes:
            on_chip(kernel, made(*size), target)
        case = made(*sizes[-1])
        on_chip(kernel, case, target, case.dynamic)

    @pytest.mark.parametrize("name", kernels)
    def the_evaluator_agrees(name: str) -> None:
        kernel, made, sizes = kernels[name]
        for size in sizes:
            by_graph(kernel, made(*size))

    return against_numpy, the_evaluator_agrees


QUICK = ("gfx942", "sm_80")
"""Chips of the default run, where a file has many kernels."""


def four_tests(
    kernels: Kernels, heavy: Collection[str] = (), chips: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> tuple[Callable[..., None], ...]:
    """Those of `both_tests`, of which the default run has `QUICK` chips only, and none of `heavy` kernels; a slow one
    of the other chips; and a slow one in which the vendors' assemblers take the text."""
    quick = {name: chips.get(name, () if name in heavy else QUICK) for name in kernels}
    others = {name: tuple(t for t in TARGETS if name not in chips and t not in quick[name]) for name in kernels}
    against_numpy, the_evaluator_agrees = both_tests(kernels, quick)
    elsewhere, _ = both_tests(kernels, others)
    every = [(name, t) for name in kernels for t in (*quick[name], *others[name])]

    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "target"), every)
    def the_assembler_takes_it(name: str, target: str, oracle: Callable[[str], str]) -> None:
        kernel, made, sizes = kernels[name]
        case = made(*sizes[-1])
        products.assemble(kernel.compile(*case.arguments, target=target, subs=case.subs or None), oracle)

    return against_numpy, the_evaluator_agrees, pytest.mark.slow(elsewhere), the_assembler_takes_it
