"""Which of a test's parameters belong to the default run."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
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
        if folder not in item.path.parents or item.get_closest_marker("slow") or not hasattr(item, "callspec"):
            continue
        function = item.nodeid.partition("[")[0]
        if function in seen and zlib.crc32(item.name.encode()) % share:
            item.add_marker(pytest.mark.slow)
        seen.add(function)


def slow_but(values: Iterable[str], *quick: str) -> list[Any]:
    """`values` as parameters, `slow` where not `quick`: one chip of a kind by default, every chip in CI."""
    values = list(values)
    assert set(quick) <= set(values), quick
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
