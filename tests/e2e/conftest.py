"""What any test here compiles is looked at: rows that nothing outside confirms are not emitted unawares.

The default run takes a fixed part of the cases of each end-to-end test: the others are marked `slow`, and `exhaustive`
where they combine nothing that does not meet in another case.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import cut_for
import pytest
import selected
import witnesses

import wavedsl.compiler

HERE = Path(__file__).parent
SHARE = 12


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    selected.thinned(items, HERE, SHARE)
    selected.covering(items, HERE)


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


@pytest.fixture(autouse=True)
def as_warpgroups(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests with the mark are about what one warpgroup makes of a tile, also of a small one."""
    with cut_for.warpgroups() if request.node.get_closest_marker("warpgroups") else nullcontext():
        yield
