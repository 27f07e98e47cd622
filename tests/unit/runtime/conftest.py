"""The stand-ins for drivers, built once for all tests of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import standin


@pytest.fixture(scope="session")
def standins(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Side (`cuda`, `hip`) → the folder of its library."""

    @functools.cache
    def built(side: str) -> Path:
        folder = tmp_path_factory.mktemp(side)
        standin.build(side, folder)
        return folder

    return built
