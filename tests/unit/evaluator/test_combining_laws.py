"""What `evaluate` says of functions whose result depends on how elements are cut."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from wavedsl.ir.evaluator.combining_laws import CombiningWarning

import wavedsl as wd

M, N = wd.symbols("M N")


def said(op: str, function: Callable[..., Any], identity: Any, x: np.ndarray, pairs: bool = False) -> str:
    """The warning of a `reduce` or `scan` of x, of pairs of x and its columns' numbers if asked for; empty: none."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def kernel(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, wd.f32], z: wd.Memory[M, N, wd.f32]):
        value = wd.read(x)
        made = getattr(wd, op)((value, wd.index(N)) if pairs else value, function, identity, dim=N)
        wd.write(made[0] if pairs else made, y if op == "reduce" else z)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel.evaluate(x, np.zeros(x.shape[0], np.float32), np.zeros_like(x))
    assert all(w.category is CombiningWarning and w.filename == __file__ for w in caught)
    assert not caught or "made = getattr(wd, op)" in open(__file__).read().splitlines()[caught[0].lineno - 1]
    return str(caught[0].message) if caught else ""


X = np.random.default_rng(0).standard_normal((3, 9)).astype(np.float32)


@pytest.mark.parametrize(
    "op, function, identity, message",
    [
        ("reduce", lambda a, b: a - b, 0.0, "but the other way round"),
        ("reduce", lambda a, b: a * b, 0.0, "the identity is what changes no element"),
        ("reduce", lambda a, b: a + b, math.nan, "f(identity, 0.1257"),
        ("reduce", lambda a, b: wd.abs(a) * 0.5 + wd.abs(b) * 0.5, 0.0, "f(identity, 0.1257"),
        ("scan", lambda a, b: wd.where(wd.isnan(a), b, (a + b) * 0.5), math.nan, "grouped the other way"),
        ("scan", lambda a, b: wd.maximum(a, b), 0.0, "is the identity, here 0.0"),
        ("scan", lambda a, b: a * 0.5 + b, 0.0, "grouped the other way"),
    ],
)
def test_what_is_warned_of(op: str, function: Callable[..., Any], identity: float, message: str) -> None:
    assert message in said(op, function, identity, X)


@pytest.mark.parametrize(
    "op, function, identity",
    [
        ("reduce", lambda a, b: a + b, 0.0),
        ("reduce", wd.maximum, math.nan),
        ("reduce", wd.minimum, math.inf),
        ("scan", lambda a, b: a * b, 1.0),
        ("scan", lambda a, b: wd.where(wd.isnan(b), a, b), math.nan),  # not commutative, which a scan need not be
    ],
)
def test_what_is_right_is_passed_over(op: str, function: Callable[..., Any], identity: float) -> None:
    with_gaps = np.where(X > 1, np.float32(np.nan), X)
    assert said(op, function, identity, X) == said(op, function, identity, with_gaps) == ""


def test_places_of_elements_that_are_equal() -> None:
    """Which of the largest is found depends on the order, unless the function decides."""

    def first(a: Any, b: Any) -> Any:
        take = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return wd.where(take, a[0], b[0]), wd.where(take, a[1], b[1])

    def any_of(a: Any, b: Any) -> Any:
        return wd.where(a[0] >= b[0], a[0], b[0]), wd.where(a[0] >= b[0], a[1], b[1])

    whole = np.round(X)
    assert said("reduce", first, (-math.inf, 1 << 30), whole, pairs=True) == ""
    assert "other way round" in said("reduce", any_of, (-math.inf, 1 << 30), whole, pairs=True)


@pytest.mark.parametrize("columns", [0, 1, 2])
def test_few_elements(columns: int) -> None:
    said("reduce", lambda a, b: a + b, 0.0, X[:, :columns].copy())
