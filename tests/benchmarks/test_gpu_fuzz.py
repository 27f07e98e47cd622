"""Drawn kernels beside a GPU: every pair has a verdict, and a kernel that ends its process does not end the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_fuzz.py"


def test_every_pair_has_a_verdict(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    options = ["--out", str(out), "--seeds", "330000:330003", "--emulate", "--workers", "1"]
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["pairs"] == 6 and sum(found["counts"].values()) == 6 and found["odd"] == []
    assert any(row.startswith("ret") for row in found["rows"])


def test_a_kernel_that_ends_its_process_is_named(tmp_path: Path) -> None:
    """The worker is started again behind it."""
    out, broken = tmp_path / "found.json", tmp_path / "broken.py"
    broken.write_text(f"""
import os, sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
import gpu_fuzz
from generator import check
def emulated(compiled, arguments, own=check.emulated):
    if compiled.target == "sm_80":
        os._exit(9)
    own(compiled, arguments)
check.emulated = emulated
sys.exit(gpu_fuzz.main(["--out", {str(out)!r}, "--seeds", "330000:330003", "--emulate", "--workers", "1"]))
""")
    done = subprocess.run([sys.executable, str(broken)], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    odd = json.loads(out.read_text())["odd"]
    assert odd and {row["kind"] for row in odd} == {"exit 9"} and all(330000 <= row["seed"] < 330003 for row in odd)
