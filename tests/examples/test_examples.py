"""Every example runs as a script and gets the right answer on every target; they are the first thing a user tries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from forks import Forks
from selected import slow_but

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TARGETS = slow_but(("gfx90a", "gfx942", "gfx950", "sm_80"), "gfx950", "sm_80")


@pytest.fixture
def run(fresh_processes: Forks) -> Callable[..., str]:
    """Standard output of `python examples/<name>`, which must succeed."""

    def script(name: str, *arguments: str) -> str:
        done = fresh_processes.run(str(EXAMPLES / name), *arguments, cwd=EXAMPLES.parent)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return script


@pytest.mark.parametrize("target", TARGETS)
def test_copy(target: str, run: Callable[..., str]):
    assert "b: largest error against NumPy 0," in run("copy.py", "--target", target)


@pytest.mark.parametrize(
    ("kernel", "target"),
    [
        ("gemm", "gfx950"), ("gemm", "sm_80"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (
            ("gemm", "gfx90a"), ("mma", "gfx942"), ("mma", "sm_80"), ("small", "gfx90a"), ("small", "sm_80"),
            ("waves16", "gfx950"), ("waves16", "sm_80"),
        )),
    ],
)  # fmt: skip
def test_gemm(kernel: str, target: str, run: Callable[..., str]):
    out = run("gemm.py", "--kernel", kernel, "--target", target)
    assert "c: largest error against NumPy" in out and "no findings" in out


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_that_divide_nothing(target: str, run: Callable[..., str]):
    run("copy.py", "--target", target, "--m", "17", "--n", "63", "--dtype", "i8")
    run("gemm.py", "--target", target, "--m", "65", "--n", "7", "--k", "100", "--dtype", "bf16")


@pytest.mark.parametrize("dtype", slow_but(["f32", "f64", "i8"], "i8"))
@pytest.mark.parametrize("target", slow_but(["gfx942", "sm_80"], "gfx942"))
def test_other_types(target: str, dtype: str, run: Callable[..., str]):
    run("gemm.py", "--target", target, "--dtype", dtype, "--m", "64", "--n", "64", "--k", "64")


@pytest.mark.slow
def test_torch_operator(run: Callable[..., str]):
    pytest.importorskip("torch")
    assert run("torch_op.py", "--m", "17", "--n", "33").endswith("\nopcheck: fine\n")


def test_help_shows_how_to_call_it(run: Callable[..., str]):
    command = [sys.executable, str(EXAMPLES / "gemm.py"), "--help"]  # as a user does
    assert "--kernel waves16" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "--dtype" in run("copy.py", "--help")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        (
            "attention.py",
            ("--causal", "--lse", "--group", "2", "--m", "40", "--n", "50", "--tile-m", "32", "--waves", "2"),
        ),
        ("attention_backward.py", ("--causal", "--m", "40", "--n", "30", "--heads", "1", "--target", "sm_80")),
        ("attention_varlen_backward.py", ("--lengths", "9,0,20", "--heads", "1", "--causal", "--target", "gfx950")),
        ("attention_varlen.py", ("--lengths", "20,0,9", "--heads", "1", "--target", "gfx950")),
        ("attention_decode.py", ("--lengths", "40,3", "--heads", "2", "--group", "2", "--page", "32")),
    ],
)
def test_attention(name: str, arguments: tuple[str, ...], run: Callable[..., str]):
    assert "largest error against NumPy" in run(name, *arguments)
