"""Rows that nothing outside confirms are not emitted unawares: what any test here compiles is looked at.

The default run takes a fixed part of the cases of each end-to-end test: the others are marked `slow`.

Every test function keeps its first case and every `SHARE`-th of the others on average, chosen by name, so that the
choice does not change with the machine or with what else is collected. The whole suite runs all of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import witnesses

import wavedsl.compiler

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


@pytest.fixture(autouse=True)
def rows_have_witnesses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every row that a compiled kernel uses has a witness from outside or is named in docs/unverified.md."""
    texts: list[tuple[str, str]] = []
    emit = wavedsl.compiler._emit

    def recorded(ir: Any, chip: Any) -> Any:
        done = emit(ir, chip)
        texts.append((done[0], chip.name))
        return done

    monkeypatch.setattr(wavedsl.compiler, "_emit", recorded)
    yield
    for text, target in texts:
        alone = witnesses.rows(text, target) - witnesses.witnessed(target) - witnesses.unverified(target)
        assert not alone, f"{target}: {sorted(alone)} have no witness from outside and no line in docs/unverified.md"
