"""Whole kernels as people write them, held against NumPy: arguments, what becomes of some of them, and how near.

Imported as `families` (pytest's `pythonpath` lists this folder). `on_chip` compiles and emulates with all checks,
`by_graph` evaluates; both compare the arrays that `wants` names by position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

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


def on_chip(kernel: Any, case: Case, target: str, dynamic: Sequence[Any] = ()) -> Any:
    """The kernel compiled for a chip and emulated on copies of the case's arguments, and what came of them compared."""
    mine = _copies(case)
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
