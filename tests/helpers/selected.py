"""Which of a test's parameters belong to the default run, and which to CI."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest


def thinned(items: Sequence[pytest.Item], folder: Path, share: int) -> None:
    """Mark as `slow` all but a fixed part of the cases of each test function under a folder: every function keeps its
    first case and every `share`-th of the others on average, chosen by name, so that the choice does not change with
    the machine or with what else is collected. The whole suite runs all of them.
    """
    seen: set[str] = set()
    for item in items:
        if not hasattr(item, "callspec") or not inside(item.path, folder) or item.get_closest_marker("slow"):
            continue
        function = item.nodeid.partition("[")[0]
        if function in seen and zlib.crc32(item.name.encode()) % share:
            item.add_marker(pytest.mark.slow)
        seen.add(function)


def beginning(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """All of them, from a file on that `seed` decides, the same on every machine; those in front of it come last."""
    files = list(dict.fromkeys(item.path for item in items))
    if not files:
        return []
    first = files[zlib.crc32(seed.encode()) % len(files)]
    place = next(i for i, item in enumerate(items) if item.path == first)
    return [*items[place:], *items[:place]]


def covering(items: Sequence[pytest.Item], folder: Path) -> None:
    """Mark as `exhaustive` the slow cases of each test function under a folder in which no two parameters have values
    that do not meet elsewhere: quick cases and a greedy choice of slow ones have every pair. Of a list of tuples every
    column is a parameter. Functions marked `every_case` keep all theirs.
    """
    functions: dict[str, list[Any]] = {}
    for item in items:
        if not hasattr(item, "callspec") or not inside(item.path, folder):
            continue
        if not item.get_closest_marker("every_case"):
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in functions.values():
        pairs = {case: _pairs(case) for case in cases}
        slow = [c for c in cases if c.get_closest_marker("slow") and not c.get_closest_marker("exhaustive")]
        left = set().union(*(pairs[c] for c in slow))
        left -= set().union(*(pairs[c] for c in cases if not c.get_closest_marker("slow")))
        while left:
            best = max(slow, key=lambda c: len(pairs[c] & left))  # the first of the best
            slow.remove(best)
            left -= pairs[best]
        for case in slow:
            case.add_marker(pytest.mark.exhaustive)


@functools.cache
def inside(path: Path, folder: Path) -> bool:
    """Whether a file is anywhere under a folder. Asked for each test, so remembered."""
    return folder in path.parents


def _pairs(case: Any) -> set[Any]:
    """Pairs of (parameter, value); the values alone where there is one parameter."""
    values = []
    for name, value in case.callspec.params.items():
        shown = repr(value)
        values.append((name, case.callspec.indices.get(name) if " at 0x" in shown else shown))
    return set(combinations(values, 2)) or set(values)


def slow(*values: Any) -> Any:
    """A case of a parametrised test that is not part of the default run."""
    return pytest.param(*values, marks=pytest.mark.slow)


def slow_but(values: Iterable[str], *quick: str) -> list[Any]:
    """`values` as parameters, `slow` where not `quick`: one chip of a kind by default, every chip in CI."""
    values = list(values)
    assert set(quick) <= set(values), quick
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
