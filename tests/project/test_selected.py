"""Tests that run for so long, and from another file on: what `.ci/run` asks for."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import selected

ROOT = Path(__file__).resolve().parents[2]


def test_every_file_comes_first_some_time_and_none_is_left_out() -> None:
    items: list[Any] = [SimpleNamespace(path=path, number=i) for i, path in enumerate("aabbbcd")]
    begun = set()
    for seed in map(str, range(50)):
        found = selected.beginning(items, seed)
        assert sorted(item.number for item in found) == list(range(len(items)))
        assert found == selected.beginning(items, seed)
        first = found[0].number
        assert items[first - 1].path != items[first].path or not first  # no file is cut
        begun.add(found[0].path)
    assert begun == set("abcd")
    assert selected.beginning([], "0") == []


@pytest.mark.slow  # two processes that load the suite's surroundings
@pytest.mark.parametrize(("spare", "said"), [(-1.0, "1 skipped"), (3600.0, "1 passed")])
def test_what_has_not_begun_in_time_is_skipped(tmp_path: Path, spare: float, said: str) -> None:
    name = f"{Path(__file__)}::test_every_file_comes_first_some_time_and_none_is_left_out"
    asked = ["--until", str(time.time() + spare), "--begin", "0"]
    where = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "--import-mode=importlib"]  # as `.ci/run` does
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *where, *asked, name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert said in done.stdout, done.stdout + done.stderr
    assert ("no time was left" in done.stdout) == (spare < 0)
