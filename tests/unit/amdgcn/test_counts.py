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
