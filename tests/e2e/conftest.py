"""The default run takes a fixed part of the cases of each end-to-end test: the others are marked `slow`.

Every test function keeps its first case and every `SHARE`-th of the others on average, chosen by name, so that the
choice does not change with the machine or with what else is collected. The whole suite runs all of them.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SHARE = 4


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: set[str] = set()
    for item in items:
        if HERE not in item.path.parents or item.get_closest_marker("slow") or not hasattr(item, "callspec"):
            continue
        function = item.nodeid.partition("[")[0]
        if function in seen and zlib.crc32(item.name.encode()) % SHARE:
            item.add_marker(pytest.mark.slow)
        seen.add(function)
