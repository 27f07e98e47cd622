"""A benchmark's units: one that raises, hangs or kills the GPU's context does not take the others with it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"

PROGRAM = """
import os, sys, threading
sys.path.insert(0, {folder!r})
import units
from pathlib import Path

context = []
for _ in range(10):  # as the GPU's driver has
    os.set_inheritable(os.open("/dev/null", os.O_RDONLY), True)

def alive():
    if context:
        raise RuntimeError("the context is dead")

def dies():
    context.append("dead")
    raise RuntimeError("an illegal access")

def rival_dies():
    context.append("dead")
    return {{"error": 0.25}}

def works():
    assert not context
    assert len(os.listdir("/proc/self/fd")) < 20  # files of the programs before are closed
    return {{"error": 0.5}}

done = units.Units(Path({kept!r}), limit=0.5, budget=60, resume="--resume" in sys.argv, alive=alive)
table = {{"first": works, "raises": lambda: {{}}["nothing"], "dies": dies, "second": works,
          "rival dies": rival_dies, "another": works, "ends": lambda: os._exit(3), "hangs": threading.Event().wait,
          "third": works, "hangs, of another kind": threading.Event().wait, "of another kind": works}}
for name, work in table.items():
    kinds = ("other",) if "kind" in name else ("all", "one " + name)
    row = done.run(name, {{"case": name}}, work, 0.3 if name == "hangs, of another kind" else None, kinds)
    print(name, row.get("failed", "right"), flush=True)
"""


def test_every_unit_has_a_row(tmp_path: Path) -> None:
    """The program starts itself again, or is started again where a unit ends it: what was done is not done again, and
    the last rows are there. A kind of which too many die is left out; another one is not."""
    kept = tmp_path / "rows.json"
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(folder=str(FOLDER), kept=str(kept)))
    command = [sys.executable, str(script)]
    assert subprocess.run(command, capture_output=True, timeout=50).returncode == 3
    ran = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=50, check=True)
    rows = json.loads(kept.read_text())["rows"]
    assert {name: row.get("failed") for name, row in rows.items()} == {
        "first": None, "raises": "KeyError: 'nothing'", "dies": "RuntimeError: an illegal access", "second": None,
        "rival dies": None, "another": None, "ends": "ended the process, or hung", "hangs": "took more than 0.5 s",
        "hangs, of another kind": "took more than 0.3 s", "of another kind": None,
    }  # fmt: skip
    assert all(row["took"] < 0.5 for row in rows.values() if "failed" not in row)
    assert "third left out: 1 of this kind hung, 3 left a dead context" in ran.stdout.splitlines()


def test_what_was_left_out_is_done_later(tmp_path: Path, monkeypatch, capsys) -> None:
    """By the same command with --resume, in as much time again; what was done stays done, and then the file goes."""
    monkeypatch.syspath_prepend(str(FOLDER))
    units = importlib.import_module("units")
    kept = tmp_path / "rows.json"
    now = [100.0]
    monkeypatch.setattr(units.time, "time", lambda: now[0])

    def slow() -> dict[str, float]:
        now[0] += 7
        return {"at": now[0]}

    first = units.Units(kept, budget=5)
    assert first.run("a", {}, slow)["at"] == 107
    assert first.run("b", {}, slow) == {"failed": "left out: the time was used up"}
    first.done()
    assert "--resume" in capsys.readouterr().err
    second = units.Units(kept, budget=5, resume=True)
    assert second.run("a", {}, slow)["at"] == 107
    assert second.run("b", {}, slow)["at"] == 114
    second.done()
    assert not kept.exists()


def test_a_part_has_its_share(tmp_path: Path, monkeypatch) -> None:
    """Also where the program started again within it; what was left out runs where there is no share."""
    monkeypatch.syspath_prepend(str(FOLDER))
    units = importlib.import_module("units")
    now = [100.0]
    monkeypatch.setattr(units.time, "time", lambda: now[0])

    def slow() -> dict[str, float]:
        now[0] += 7
        return {}

    first = units.Units(tmp_path / "rows.json", budget=500)
    with first.part("checks", 10):
        first.run("a", {}, slow)
        first._write(again=True)
    second = units.Units(tmp_path / "rows.json", budget=500, resume=True)
    with second.part("checks", 10):
        assert "failed" not in second.run("b", {}, slow)
        assert second.run("c", {}, slow)["failed"] == "left out: the time was used up"
    with second.part("checks", None):
        assert "failed" not in second.run("c", {}, slow)


def test_a_rival_fails_by_itself_and_ours_for_all(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    units = importlib.import_module("units")
    done = units.Units(tmp_path / "none", keep=False)
    asked = []

    def by(broken):
        def unit(name):
            def work():
                asked.append(name)
                if name in broken:
                    raise RuntimeError(f"no {name}")
                return {"seconds": 1.0}

            return f"{name} {broken}", work, "one kind"

        return units.by_providers(done, ("wavedsl", "a", "b"), unit)

    found, missing, failed = by(("a",))
    assert list(found) == ["wavedsl", "b"] and missing == {"a": "RuntimeError: no a"} and not failed
    asked.clear()
    assert by(("wavedsl",)) == ({}, {}, "RuntimeError: no wavedsl") and asked == ["wavedsl"]
