"""The default run takes half of the cases of each unit test of the AMD back end: the others are marked `slow`."""

from __future__ import annotations

from pathlib import Path

import pytest
import selected


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    selected.thinned(items, Path(__file__).parent, 2)
