"""What any test here compiles is looked at: rows that nothing outside confirms are not emitted unawares, and AMD's
lines are spelled as LLVM spells them.

The default run takes a fixed part of the cases of each end-to-end test: the others are marked `slow`, and `exhaustive`
where they combine nothing that does not meet in another case.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import canonical
import oracles
import products
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


@pytest.fixture(scope="session")
def lines_of_amd() -> Iterator[dict[str, set[str]]]:
    """Chip → lines of the kernels that tests here compile. At the end LLVM, if there is one, is asked how it spells
    them."""
    found: dict[str, set[str]] = {target: set() for target in products.AMD}
    yield found
    llvm_mc, objdump = oracles.find("llvm-mc"), oracles.find("llvm-objdump")
    for target, lines in found.items():
        plain = sorted(line for line in lines if not (line.endswith(":") or canonical.BRANCH.match(line.strip())))
        if plain and llvm_mc and objdump:
            with tempfile.TemporaryDirectory() as folder:
                assert not canonical.spelled_otherwise(plain, target, llvm_mc, objdump, Path(folder))


@pytest.fixture(autouse=True)
def rows_have_witnesses(monkeypatch: pytest.MonkeyPatch, lines_of_amd: dict[str, set[str]]) -> Iterator[None]:
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
        if target in lines_of_amd:
            lines_of_amd[target].update(canonical.code_of(text))
        alone = witnesses.rows(text, target) - witnesses.witnessed(target) - witnesses.unverified(target)
        assert not alone, f"{target}: {sorted(alone)} have no witness from outside and no line in docs/unverified.md"
