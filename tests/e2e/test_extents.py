"""Extents as numbers: what stands beside a float is computed with fractions, known while compiling or in the launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from agree import TARGETS, agree, near

import wavedsl as wd

N = wd.sym.N
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "half": lambda n: n / 2,
    "tenth-of-one": lambda n: 0.1 / n,
    "one-of": lambda n: 1 / n,
    "one-of-less": lambda n: 1 / (n - 1),
    "share": lambda n: n / (n + 1),
    "root": lambda n: n**0.5,
    "one-of-root": lambda n: n**-0.5,
    "third-and-half": lambda n: n / 3 + 0.5,
    "whole": lambda n: n // 2 * n,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dynamic", [(), (N,)], ids=["known", "run-time"])
@pytest.mark.parametrize("dtype", [wd.f32, wd.f16], ids=str)
@pytest.mark.parametrize("name", NUMBERS)
def test_beside_floats(name: str, dtype: wd.DType, dynamic: Any, target: str) -> None:
    number = NUMBERS[name]

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(x: wd.Memory[N, dtype], y: wd.Memory[N, dtype]):
        wd.write(wd.read(x) * number(N), y)

    for n in (5, 130):
        x, y = np.linspace(-1, 1, n).astype(dtype.numpy), np.zeros(n, dtype.numpy)
        agree(kernel, [x, y], target, compare=near(1), dynamic=dynamic)
        kernel.evaluate(x, y)
        want = x.astype(np.float64) * number(n)
        np.testing.assert_allclose(y, want, rtol=1e-6 if dtype is wd.f32 else 2e-3)


@pytest.mark.parametrize("target", TARGETS)
def test_functions_of_extents(target: str) -> None:
    """Roots, extremes and magnitudes, also as a register's value."""

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
        share = wd.Register[N, wd.f32](sympy.Max(N / 3, sympy.Rational(5, 2)))
        wd.write(wd.read(x) / sympy.sqrt(N) + share - abs(3 - N / 2), y)

    for n in (4, 99):
        x, y = np.linspace(-1, 1, n, dtype=np.float32), np.zeros(n, np.float32)
        agree(kernel, [x, y], target, dynamic=(N,))
        kernel.evaluate(x, y)
        np.testing.assert_allclose(y, x / np.sqrt(n) + max(n / 3, 2.5) - abs(3 - n / 2), rtol=1e-5)


@pytest.mark.parametrize("dynamic", [(), (N,)], ids=["known", "run-time"])
def test_a_half_beside_integers_is_refused(dynamic: Any) -> None:
    """It was rounded down where the extent is known in the launch only."""

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(x: wd.Memory[N, wd.i32], y: wd.Memory[N, wd.i32]):
        wd.write(wd.read(x) + N / 2, y)

    x, y = np.arange(7, dtype=np.int32), np.zeros(7, np.int32)
    with pytest.raises(wd.CompileError, match=r"N/2 (is 7/2, no|need not be a) whole number") as raised:
        kernel.compile(x, y, target="gfx942", dynamic=dynamic)
    assert "// rounds down" in raised.value.hint
