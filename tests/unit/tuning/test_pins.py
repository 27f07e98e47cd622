"""Pinned choices on the command line, and what a tuned kernel has of a kernel's doors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tune_kernels as tk

import wavedsl as wd
from wavedsl import cli
from wavedsl.tuning import tune
from wavedsl.tuning.results import ResultsFile, TuningWarning
from wavedsl.tuning.tuner import Steps

M, N, BM, BN = wd.symbols("M N BM BN")
SOURCE = """
import wavedsl as wd

M, N, BM, BN = wd.symbols("M N BM BN")
TILES = [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)]


@wd.autotune({BM: [4, 8], BN: [64]}, results=RESULTS, budget=20.0, workers=1)
@wd.wave(TILES)
def tuned(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
    wd.write(wd.read(a) * 2.0, b)


@wd.wave(TILES)
def plain(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
    wd.write(wd.read(a) * 2.0, b)


@wd.wave(TILES, subs={BM: 4, BN: 64})
def bound(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
    wd.write(wd.read(a) * 2.0, b)
"""
SIZES = ["--subs", "M=64,N=128"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "kernels_of_pins.py"
    path.write_text(SOURCE.replace("RESULTS", repr(str(tmp_path / "own.json"))))
    return path


def done(capsys, *words: str) -> tuple[int, str, str]:
    status = cli.main(list(words))
    said = capsys.readouterr()
    return status, said.out, said.err


def test_tune_takes_what_the_decorator_says(capsys, source):
    status, out, _ = done(capsys, "tune", f"{source}:tuned", *SIZES, "--target", "gfx942")
    own = source.with_name("own.json")
    assert status == 0 and str(own) in out and "reads" not in out and not source.with_suffix(".tuning.json").exists()
    (run,) = ResultsFile(own).read()["tuned"]["gfx942"]["MI300X"]["M=64 N=128"]["runs"].values()
    assert set(run["candidates"]) == {"BM=4 BN=64", "BM=8 BN=64"}
    other = source.with_name("other.json")
    flags = ["--space", "BM=16,BN=64", "--results", str(other)]
    status, out, _ = done(capsys, "tune", f"{source}:tuned", *SIZES, "--target", "gfx942", *flags)
    assert status == 0 and "pinned BM=16 BN=64" in out and f"tuned reads {own}, not this file" in out


@pytest.mark.parametrize("kernel", ["tuned", "plain"])
def test_commands_take_the_pinned_choice_and_say_so(capsys, source, kernel):
    where = [f"{source}:{kernel}", *SIZES]
    for command in (["compile"], ["inspect"], ["run", "--device", "emulator:gfx942"]):
        status, _, err = done(capsys, command[0], *where, *command[1:])
        assert status == 1 and f"{kernel} has no pinned choice for gfx942 (MI300X), M=64 N=128" in err
        assert "wavedsl tune" in err
    assert done(capsys, "inspect", *where, "--graph")[0] == 0
    status, out, _ = done(capsys, "tune", *where, "--target", "gfx942", "--space", "BM=8,BN=64", "--workers", "1")
    assert status == 0 and ("@wd.autotune()" in out) == (kernel == "plain")
    commands = (
        ["compile"], ["inspect"], ["inspect", "--roofline"], ["emulate"], ["bench", "--repeat", "2"], ["run"],
    )  # fmt: skip
    for command in commands:
        device = ["--device", "emulator:gfx942"] if command[0] in ("run", "bench") else ["--target", "gfx942"]
        status, _, err = done(capsys, command[0], *where, *command[1:], *device)
        assert status == 0 and f"{kernel} takes the choice pinned in" in err and "BM=8 BN=64" in err
    _, text, _ = done(capsys, "inspect", *where, "--target", "gfx942", "--ir")
    _, over, _ = done(capsys, "inspect", where[0], "--subs", "M=64,N=128,BM=16", "--target", "gfx942", "--ir")
    assert "grid=(8, 2, 1)" in text and "grid=(4, 2, 1)" in over, "flags go over the pinned choice"


def test_a_plain_kernel_whose_tiles_are_bound_keeps_them(capsys, source):
    where = [f"{source}:bound", *SIZES]
    assert done(capsys, "tune", *where, "--target", "gfx942", "--space", "BM=8,BN=64", "--workers", "1")[0] == 0
    status, _, err = done(capsys, "compile", *where, "--target", "gfx942")
    assert status == 0 and "takes the choice" not in err


def test_warnings_of_commands_are_one_line(capsys, source):
    results = source.with_name("own.json")
    results.write_text("not json")
    status, _, err = done(capsys, "tune", f"{source}:tuned", *SIZES, "--target", "gfx942")
    assert status == 0 and f"was moved aside to {results}.rejected: it is not JSON" in err
    assert "results.py" not in err and "warn" in err


def test_a_directory_for_results_is_refused(capsys, source, tmp_path):
    folder = tmp_path / "dd"
    folder.mkdir()
    where = [f"{source}:plain", *SIZES, "--target", "gfx942", "--results", str(folder)]
    status, _, err = done(capsys, "tune", *where)
    assert status == 1 and f"{folder} is a directory" in err and "name a file" in err
    assert folder.is_dir() and not (tmp_path / "dd.rejected").exists()


def test_bench_refuses_a_count_that_times_nothing(capsys):
    status, _, err = done(capsys, "bench", f"{tk.__file__}:double", "--subs", "M=4,N=64,BM=4,BN=64", "--repeat", "-3")
    assert status == 1 and "--repeat -3 times no launch" in err
    status, out, _ = done(capsys, "bench", f"{tk.__file__}:double", "--subs", "M=4,N=64,BM=4,BN=64", "--repeat", "3")
    assert status == 0 and " of 3 (emulation" in out


def made(results: Path, buckets=None, dynamic=(), **options):
    merged = {"steps": Steps(tk.instant, tk.right, tk.measured), "workers": 1, **options}

    @wd.autotune({BM: [4, 16], BN: [64]}, results=results, **merged)
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)], buckets=buckets, dynamic=dynamic)
    def triple(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a) * 3.0, b)

    return triple


def test_a_tuned_kernel_has_a_kernel_s_doors(tmp_path):
    triple = made(tmp_path / "r.json")
    sizes = {M: 20, N: 130}
    assert triple.name == "triple" and [p.name for p in triple.parameters] == ["a", "b"]
    assert triple.trace() is triple.kernel.trace()
    record = wd.analyze(triple, subs=sizes, target="gfx942")
    assert record.seconds == wd.analyze(triple.kernel, subs={**sizes, BM: 4, BN: 64}, target="gfx942").seconds
    a = np.ones((20, 130), np.float32)
    assert wd.analyze(triple, a, a.copy()).seconds > 0
    (compiled,) = triple.precompile(subs=sizes)
    assert compiled.grid == (5, 3, 1)
    b = np.zeros_like(a)
    triple(a, b)
    assert (b == 3).all()


def test_precompile_prepares_every_bucket(tmp_path, monkeypatch):
    triple = made(tmp_path / "r.json", {M: (8,)}, [M])
    found = triple.precompile(subs={N: 64}, target="gfx942")
    choices = json.loads((tmp_path / "r.json").read_text())["kernels"]["triple"]["gfx942"]["MI300X"]
    assert set(choices) == {"M<=8 N=64", "M>8 N=64"} and found
    monkeypatch.setenv("WAVEDSL_STRICT", "1")
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    for m in (4, 7, 16, 33):
        a, b = np.ones((m, 64), np.float32), np.zeros((m, 64), np.float32)
        triple(a, b)
        assert (b == 3).all()


def test_tune_of_a_tuned_kernel_takes_its_options(tmp_path):
    triple = made(tmp_path / "r.json")
    found = tune(triple, subs={M: 20, N: 130}, target="gfx942")
    assert found.path == tmp_path / "r.json" and set(found.entries) == {"BM=4 BN=64", "BM=16 BN=64"}
    found = tune(triple, subs={M: 20, N: 130}, target="gfx942", space={BM: [16], BN: [64]})
    assert set(found.entries) == {"BM=4 BN=64", "BM=16 BN=64"} and found.pinned.key == "BM=4 BN=64"


def test_a_missing_choice_names_the_chips_that_have_one(tmp_path):
    made(tmp_path / "r.json").tune(subs={M: 20, N: 130}, target="gfx942", product="MI325X")
    strict = made(tmp_path / "r.json", on_miss="raise")
    with pytest.raises(wd.LaunchError, match=r"for gfx942 \(MI300X\).*there is one for MI325X"):
        strict.choice(subs={M: 20, N: 130}, target="gfx942")
    assert made(tmp_path / "r.json", on_miss="raise", product="MI325X").choice(subs={M: 20, N: 130})


def test_options_of_the_decorator_are_checked(tmp_path):
    for options, why in (
        ({"bugdet": 3}, "bugdet is no option"),
        ({"budget": "3"}, "budget='3'"),
        ({"reference": lambda a, b: None}, "cannot be sent to a worker"),
    ):
        with pytest.raises(wd.ConstraintError, match=why):
            made(tmp_path / "r.json", **options)


def test_a_changed_kernel_is_said_and_tuned_anew(tmp_path):
    """The old results are kept under `earlier`."""
    made(tmp_path / "r.json").tune(subs={M: 20, N: 130}, target="gfx942")
    factor = 4.0

    @wd.autotune({BM: [16], BN: [64]}, results=tmp_path / "r.json", steps=Steps(tk.instant, tk.right, tk.measured))
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)])
    def triple(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a) * factor, b)

    with pytest.warns(TuningWarning, match="the kernel has changed since"):
        found = triple.tune(subs={M: 20, N: 130}, target="gfx942")
    assert found.best.key == "BM=16 BN=64"
    entry = json.loads((tmp_path / "r.json").read_text())["kernels"]["triple"]["gfx942"]["MI300X"]["M=20 N=130"]
    (before,) = entry["earlier"].values()
    assert before["pinned"]["subs"]["BM"] == 4
