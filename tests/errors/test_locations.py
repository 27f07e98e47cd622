"""A location quotes its own file, and only that, and is the user's line, not one of Python's library."""

from __future__ import annotations

import linecache
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from source import run
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


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_findings_begin_at_the_expression(target: str) -> None:
    """Columns of `.loc` count from 1. On AMD they counted from 0: debuggers and carets were one off to the left."""
    kernel = run("""
        @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
        def kernel(x: wd.Memory[N, wd.f32], y: wd.Memory[M, wd.f32]):
            wd.write(wd.read(x), y, mapping=wd.IndexMapping((N,), {M: wd.index(N) % 64}))
    """)["kernel"]
    x, y = np.arange(256, dtype=np.float32), np.zeros(64, np.float32)
    compiled = kernel.compile(x, y, target=target)
    report = compiled.emulate(x, y, checks="report")
    (finding,) = report.findings
    assert finding.kind == "race" and finding.location is not None
    assert finding.location.text()[finding.location.col :].startswith("wd.")
