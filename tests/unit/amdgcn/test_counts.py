"""Every number of benchmarks/amdgcn_counts.py stays within its limit, and `.resources` says what LLVM's disassembler
shows."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).resolve().parents[3] / "benchmarks" / "amdgcn_counts.py"


@pytest.fixture(scope="module")
def counts() -> Any:
    spec = importlib.util.spec_from_file_location("amdgcn_counts", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_counts_are_within_their_limits(counts: Any, target: str, oracle: Callable[[str], str]) -> None:
    rows = counts.rows((target,), oracles=(oracle("llvm-mc"), oracle("llvm-objdump")))
    assert sum(r["limit"] is not None for r in rows) > 40 and sum(r["counted again"] is not None for r in rows) > 40
    assert counts.wrong(rows) == []


SOME = {
    "gfx90a": (((128, 128, 64, 64, 64), "f16"), ((32, 32, 64, 16, 16), "f16")),
    "gfx942": (((64, 64, 64, 32, 32), "bf16"), ((32, 64, 64, 32, 32), "f16"), ((32, 32, 64, 16, 16), "f16")),
    "gfx950": (((128, 64, 64, 32, 64), "bf16"),),
}


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "every"])
@pytest.mark.parametrize("target", list(SOME))
def test_turned_operands_are_within_their_limits(counts: Any, target: str, every: bool) -> None:
    """No vector instruction transposes B, whatever the tile."""
    rows = counts.turned_rows((target,), None if every else SOME[target])
    assert len(rows) == 4 * (1 + len(counts.TURNED) if every else len(SOME[target]))
    assert counts.wrong(rows) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", ["NK", "KN"])
@pytest.mark.parametrize("target", list(SOME))
def test_no_tile_computes_in_its_loop(counts: Any, target: str, order: str) -> None:
    """No vector instruction, accumulator move or spill in the loop of a static f16 product, whatever its tiles."""
    found = list(counts.every_tile(target, order))
    assert len(found) > 250
    assert [x for x in found if any(x[1:])] == []
