"""Covering arrays: few combinations of options in which every pair of values of two options occurs.

Imported as `pairwise` (pytest's `pythonpath` lists this folder). The choice is greedy and the same on every run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

Case = dict[str, Any]


def pairwise(
    options: Mapping[str, Sequence[Any]], legal: Callable[[Case], bool] = lambda case: True, tries: int = 300
) -> list[Case]:
    """Cases that cover every pair of values that occurs in a legal case; `tries` candidates compete for each place."""
    names = list(options)
    draw = random.Random(0)

    def pairs(case: Case) -> set[tuple[Any, ...]]:
        places = {n: list(options[n]).index(case[n]) for n in names}
        return {(a, places[a], b, places[b]) for a, b in combinations(names, 2)}

    def some() -> Case:
        return {n: draw.choice(options[n]) for n in names}

    pool = [c for _ in range(4000) if legal(c := some())]
    left = set().union(*(pairs(c) for c in pool))
    cases = []
    while left:
        best = max(draw.sample(pool, min(tries, len(pool))), key=lambda c: len(pairs(c) & left))
        gained = pairs(best) & left
        if not gained:
            best = next(c for c in pool if pairs(c) & left)
            gained = pairs(best) & left
        left -= gained
        cases.append(best)
    return cases


def name_of(case: Case) -> str:
    """A test's id."""
    shown = {k: v for k, v in case.items() if v not in (None, False)}
    return "-".join(f"{k}{v}" if isinstance(v, (int, bool)) else str(v) for k, v in shown.items())
