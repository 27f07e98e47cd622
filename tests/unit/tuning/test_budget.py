"""What a tuning run does with its time: it ends in it, with a choice, and loses nothing when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tune_kernels as tk
from tune_kernels import BM, BN, M, N, double

from wavedsl import cli
from wavedsl.tuning import TuningInterrupted, tune
from wavedsl.tuning.merging import BY_PREDICTION
from wavedsl.tuning.progress import Progress
from wavedsl.tuning.tuner import Steps

SPACE = {BM: list(range(1, 21)), BN: [256]}


def run(folder: Path, steps: Steps, **options):
    merged = {"space": SPACE, "workers": 1, "progress": False, **options}
    return tune(
        double, subs={M: 64, N: 256}, target="gfx942", results=folder / "r.json", steps=steps, **merged
    )  # fmt: skip


def entry(folder: Path) -> dict:
    (buckets,) = json.loads((folder / "r.json").read_text())["kernels"]["double"]["gfx942"].values()
    return buckets["M=64 N=256"]


def test_compiling_leaves_time_to_check_and_measure(tmp_path):
    found = run(tmp_path, Steps(tk.compile_slowly, tk.right, tk.measured), budget=2.5)
    assert found.count("ok") >= 1 and found.count("skipped") >= 10 and found.seconds is not None


def test_what_runs_when_the_budget_ends_is_stopped(tmp_path):
    """And the choice is the best predicted of those that are right, which is said."""
    began = time.monotonic()
    found = run(tmp_path, Steps(tk.instant, tk.right, tk.slow_measure), budget=2.0)
    assert time.monotonic() - began < 10  # a measurement takes a minute
    assert found.best is not None and found.best.key == "BM=1 BN=256" and found.seconds is None
    assert "the best predicted of the candidates that passed their check" in found.message
    assert "the budget of 2 s was spent before any was measured" in found.message
    assert entry(tmp_path)["pinned"]["by"] == BY_PREDICTION
    again = run(tmp_path, Steps(tk.forbidden, tk.forbidden, tk.measured))
    assert again.best == found.best and again.seconds is not None, "what was compiled and checked counts"


def test_a_spent_budget_is_named_first(tmp_path):
    found = run(tmp_path, Steps(tk.compile_without_end, tk.right, tk.measured), budget=0.5)
    assert found.best is None and found.message.startswith("the budget of 0.5 s was spent before")


def test_of_pruned_candidates_the_file_has_counts(tmp_path):
    space = {BM: [1, 2, 4, 8], BN: [1, 2, 4, 8, 16, 256]}
    found = run(tmp_path, Steps(tk.instant, tk.right, tk.measured), space=space, limit=2)
    (stored,) = entry(tmp_path)["runs"].values()
    assert len(stored["candidates"]) == 2 and sum(stored["pruned"].values()) == found.count("pruned") == 22
    assert any("leave lanes of a wave idle" in reason for reason in stored["pruned"])


def test_the_file_is_written_now_and_then(tmp_path, monkeypatch):
    from wavedsl.tuning.results import ResultsFile

    written, write = [], ResultsFile.write
    monkeypatch.setattr(ResultsFile, "write", lambda *a, **k: written.append(1) or write(*a, **k))
    run(tmp_path, Steps(tk.instant, tk.right, tk.measured), keep=1.0)
    assert len(written) <= 2 and len(next(iter(entry(tmp_path)["runs"].values()))["candidates"]) == 20


def test_an_interrupted_run_says_what_it_has(tmp_path):
    class AfterThree(Progress):
        steps = 0

        def step(self, best: str = "") -> None:
            self.steps += bool(best)
            if self.steps == 3:
                raise KeyboardInterrupt

    with pytest.raises(TuningInterrupted) as caught:
        run(tmp_path, Steps(tk.instant, tk.right, tk.measured), progress=AfterThree())
    found = caught.value.result
    assert found.best is not None and found.message.startswith(f"interrupted; pinned {found.best.key}")
    assert entry(tmp_path)["pinned"]["subs"]["BM"] == dict(found.best.subs)["BM"]


def test_ctrl_c_ends_the_command_with_the_best_so_far(tmp_path):
    """The signal goes to the whole group, as from a terminal: workers leave it to the command."""
    options = "M=64,N=256 --target gfx942 --space BM=1/2/4/8/16,BN=256 --budget 100 --workers 1".split()
    command = [sys.executable, "-m", "wavedsl", "tune", f"{tk.__file__}:by_tile", "--subs", *options]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(tk.__file__).parent), *filter(None, sys.path)]),
    }
    results = tmp_path / "r.json"
    script = (
        "import functools, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from wavedsl.tuning import tuner; import tune_kernels as tk; from wavedsl import cli\n"
        "tuner.SAVE_EVERY = 0.0\n"
        "tuner.Steps = functools.partial(tuner.Steps, tk.instant, tk.right, tk.hang_after_one)\n"
        "sys.exit(cli.main(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, *command[3:], "--results", str(results)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while time.monotonic() < until and not (results.exists() and '"predicted"' in results.read_text()):
        time.sleep(0.05)
    time.sleep(1.0)  # the first is checked and measured at once, all others hang
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted; pinned BM=1 BN=256" in out and "Traceback" not in err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--budget", "-3"], "budget=-3.0"),
        (["--budget", "nan"], "budget=nan"),
        (["--keep", "2"], "keep=2.0"),
        (["--keep", "0"], "keep=0.0"),
        (["--workers", "-1"], "workers=-1"),
        (["--limit", "0"], "limit=0"),
    ],
)
def test_flags_without_meaning(capsys, tmp_path, flags, said):
    where = ["--target", "gfx942", "--results", str(tmp_path / "r.json")]
    assert cli.main(["tune", f"{tk.__file__}:double", "--subs", "M=64,N=256", *where, *flags]) == 1
    told = capsys.readouterr().err
    assert f"tune: {said}" in told and "help:" in told and not (tmp_path / "r.json").exists()
