"""The stand-ins for drivers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import standin


@pytest.fixture(scope="session")
def standins() -> Callable[[str], Path]:
    """Side (`cuda`, `hip`) → the folder of its library."""
    return functools.cache(standin.built)
