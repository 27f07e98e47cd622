"""A location quotes its own file, and only that, and is the user's line, not one of Python's library."""

from __future__ import annotations

import linecache
from dataclasses import replace
from pathlib import Path

import pytest
from wavedsl.ir.loc import Loc

import wavedsl as wd


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


def test_what_a_library_calls_is_the_users_line() -> None:
    """`dataclasses.replace` was quoted instead of the line that calls it."""
    with pytest.raises(wd.ConstraintError) as error:
        replace(wd.Schedule(stages=2), stages=0)
    assert error.value.location is not None
    assert error.value.location.text().strip() == "replace(wd.Schedule(stages=2), stages=0)"
