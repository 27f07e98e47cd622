"""Which of a test's parameters belong to the default run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(values: Iterable[str], *quick: str) -> list[Any]:
    """`values` as parameters, `slow` where not `quick`: one chip of a kind by default, every chip in CI."""
    values = list(values)
    assert set(quick) <= set(values), quick
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
