"""The list of what ptxas spills, of the kernels of one test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


ONE = (str(ROOT / "tests" / "e2e" / "test_rows_beside.py"), "-m", "", "-k", "two_rows", "-p", "no:cacheprovider")


def run(*arguments: str) -> str:
    command = [sys.executable, str(ROOT / "benchmarks" / "ptx_spills.py"), *arguments, *ONE]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_the_kernels_of_a_test_are_listed(oracle: Callable[[str], str], tmp_path: Path) -> None:
    """A softmax on two chips, which spills nothing; and what differs from rows that were kept."""
    oracle("ptxas")
    kept = tmp_path / "rows.json"
    said = run("--out", str(kept))
    rows = json.loads(kept.read_text())
    assert sorted(r["target"] for r in rows) == ["sm_80", "sm_90a"]
    assert all(r["kernel"] == "softmax" and r["spills"] == 0 and 0 < r["registers"] <= 32 for r in rows)
    assert all(f"{r['target']}: 1 texts, 0 spill, 0 bytes in all" in said for r in rows)
    kept.write_text(json.dumps([{**rows[0], "key": "another text", "spills": 64}, rows[1]]))
    assert [line for line in run("--against", str(kept)).splitlines() if "->" in line] == [
        f"{rows[0]['target']:8}64 -> 0 B, registers {rows[0]['registers']} -> {rows[0]['registers']}: softmax, "
        f"{rows[0]['who']}"
    ]
