"""Drawn kernels beside a GPU: every pair has a verdict, and a kernel that ends its process does not end the run."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_fuzz.py"


def test_every_pair_has_a_verdict(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    options = ["--out", str(out), "--seeds", "400066:400069", "--emulate", "--workers", "1"]
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["pairs"] == 6 and sum(found["counts"].values()) == 6 and found["odd"] == []
    assert any(row.startswith("ret") for row in found["rows"])


def odd_with(tmp_path: Path, execute: str) -> tuple[int, dict[str, int], list[dict[str, Any]]]:
    """A run over three seeds whose texts are executed by `execute`: the exit status, the counts, what was not right."""
    out, script = tmp_path / "found.json", tmp_path / "changed.py"
    script.write_text(f"""
import os, sys, time
sys.path.insert(0, {str(SCRIPT.parent)!r})
import gpu_fuzz
from wavedsl import LaunchError
broken = False
def execute(compiled, arguments, tell):
    global broken
{textwrap.indent(execute, "    ")}
    tell("runs")
    compiled.emulate(*arguments)
gpu_fuzz.on_emulator, gpu_fuzz.STUCK = execute, 4.0
sys.exit(gpu_fuzz.main(["--out", {str(out)!r}, "--seeds", "400066:400069", "--emulate", "--workers", "1"]))
""")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert out.exists(), done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["pairs"] == 6, found
    return done.returncode, found["counts"], found["odd"]


def test_a_kernel_that_ends_its_process_is_named(tmp_path: Path) -> None:
    """The worker is started again behind it."""
    status, counts, odd = odd_with(tmp_path, 'if compiled.target == "sm_80":\n    os._exit(9)')
    assert status == 1 and odd and counts == {"right": 6 - len(odd), "exit 9": len(odd)}
    assert {row["target"] for row in odd} == {"sm_80"} and all(400066 <= row["seed"] < 400069 for row in odd)


def test_a_lost_context_is_blamed_on_the_pair_that_lost_it(tmp_path: Path) -> None:
    """What follows runs in another process, the other target of the same kernel too."""
    execute = """
if broken or (compiled.target == "sm_90a" and not os.path.exists(__file__ + ".lost")):
    broken = True
    open(__file__ + ".lost", "w").close()
    raise LaunchError("cuStreamSynchronize failed: CUDA_ERROR_ILLEGAL_INSTRUCTION (715)")"""
    status, counts, odd = odd_with(tmp_path, execute)
    assert status == 1 and counts == {"right": 5, "LaunchError": 1}
    assert [row["target"] for row in odd] == ["sm_90a"]


@pytest.mark.parametrize("doing, kind, status", [("runs", "hung", 1), ("assembles", "slow", 0)])
def test_what_does_not_return_is_hung_where_it_ran(doing: str, kind: str, status: int, tmp_path: Path) -> None:
    execute = f"""
if not os.path.exists(__file__ + ".slept"):
    open(__file__ + ".slept", "w").close()
    tell({doing!r})
    time.sleep(60)"""
    got, counts, odd = odd_with(tmp_path, execute)
    assert got == status and counts == {"right": 5, kind: 1}
    assert [row["detail"] for row in odd] == [f"while it {doing}"]
