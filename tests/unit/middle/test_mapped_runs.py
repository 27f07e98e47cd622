"""`mapped_runs.py`: what it says of a mapping's neighbours is so for every index, and it says as much as it can."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
from wavedsl.ir.addresses.mapped_runs import longest_run, run_length

P, K, G = (sympy.Symbol(x, integer=True, nonnegative=True) for x in "PKG")


def floor(above: Any, below: int) -> Any:
    return sympy.floor(above / below)


CASES: list[tuple[Any, list[Any], int]] = [
    (K, [], 16),
    (K, [P], 16),
    (K, [K], 1),
    (P, [], 1),
    (2 * K, [], 1),
    (K + 1, [], 1),
    (K + 4, [], 4),
    (K + P, [], 1),
    (G * 24 + K, [P], 8),
    (sympy.Mod(K, 24), [floor(K, 24)], 8),
    (sympy.Mod(K, 6), [], 2),
    (sympy.Mod(K, 16), [floor(K, 48) + floor(P, 7) - 1, sympy.Mod(floor(K, 16), 3) + sympy.Mod(P, 7)], 16),
    (sympy.Mod(K + 8, 32), [floor(K + 8, 32)], 8),
    (K, [floor(K, 2) * 3], 2),
    (K, [floor(K, 3)], 1),
    (K, [sympy.Mod(K, 2)], 1),
    (K, [floor(K + P, 4)], 1),
]


@pytest.mark.parametrize(("contiguous", "others", "length"), CASES, ids=lambda x: str(x))
def test_runs(contiguous: Any, others: list[Any], length: int) -> None:
    assert run_length(contiguous, others, K) == length
    place = sympy.lambdify((P, K, G), [contiguous, *others], "math")
    for p in (0, 5, 6):
        for first in range(0, 96, length):
            start = place(p, first, 3)
            assert length == 1 or start[0] % length == 0
            for i in range(length):
                here = place(p, first + i, 3)
                assert length == 1 or here == [start[0] + i, *start[1:]]


SHARED: list[tuple[Any, list[Any], tuple[int, int]]] = [
    (floor(K, 2), [], (32, 2)),
    (floor(K, 8) + G * 4, [P], (32, 8)),
    (floor(K + 8, 2), [], (8, 2)),
    (floor(K + 1, 2), [], (1, 1)),
    (floor(K, 2) + P, [], (2, 2)),
    (sympy.Mod(floor(K, 2), 8), [floor(K, 16)], (16, 2)),
    (floor(sympy.Mod(K, 24), 4), [floor(K, 24)], (8, 4)),
    (floor(K, 2), [sympy.Mod(K, 2)], (1, 1)),
    (floor(K, 6), [], (1, 1)),
    (floor(K, 2) + floor(K, 4), [], (2, 2)),
    (K, [], (16, 1)),
]


@pytest.mark.parametrize(("contiguous", "others", "found"), SHARED, ids=lambda x: str(x))
def test_runs_that_share_elements(contiguous: Any, others: list[Any], found: tuple[int, int]) -> None:
    assert longest_run(contiguous, others, K) == found
    length, repeats = found
    place = sympy.lambdify((P, K, G), [contiguous, *others], "math")
    for p in (0, 5, 6):
        for first in range(0, 96, length):
            start = place(p, first, 3)
            assert length == repeats or start[0] % (length // repeats) == 0
            for i in range(length):
                here = place(p, first + i, 3)
                assert length == 1 or here == [start[0] + i // repeats, *start[1:]]
