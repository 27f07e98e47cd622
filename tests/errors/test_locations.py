"""A location quotes its own file, and only that."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest
from wavedsl.ir.loc import Loc


def test_a_file_of_the_same_name_on_the_path_is_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gemm_of_another.py").write_text("somebody else's line\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert Loc("gemm_of_another.py", 1).text() == ""
    assert Loc(str(tmp_path / "gemm_of_another.py"), 1).text() == "somebody else's line"
    monkeypatch.chdir(tmp_path)
    assert Loc("gemm_of_another.py", 1).text() == "somebody else's line"


def test_a_registered_cell_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linecache.cache, "<cell 3>", (9, None, ["a cell\n"], "<cell 3>"))
    assert Loc("<cell 3>", 1).text() == "a cell"
