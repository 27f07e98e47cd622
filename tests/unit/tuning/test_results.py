"""The results file: what is written is read again, what is not ours is never used and never lost."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from tune_kernels import double, gemm

from wavedsl.tuning.results import ResultsFile, TuningWarning, beside, environment, kernel_digest


def entry(kernel=gemm, **more):
    return {
        "pinned": {"subs": {"BM": 64, "BN": 64, "BK": 32}, "schedule": {"stages": 2}},
        "by": "emulator cycle model",
        "seconds": 1e-5,
        "environment": environment(kernel, "MI300X"),
        "candidates": {"BK=32 BM=64 BN=64 stages=2": {"status": "ok", "seconds": 1e-5, "predicted": 2e-5}},
        **more,
    }


@pytest.fixture
def file(tmp_path: Path) -> ResultsFile:
    return ResultsFile(tmp_path / "gemm.tuning.json")


def quietly(file: ResultsFile, kernel=gemm):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return file.entry(kernel, "gfx942", "K=64")


def test_the_file_lies_beside_the_source():
    assert beside(gemm).name == "tune_kernels.tuning.json"
    assert beside(gemm).parent == Path(gemm.function.__code__.co_filename).parent


def test_a_round_trip_keeps_other_entries(file):
    assert quietly(file) is None
    file.write(gemm, "gfx942", "K=64", entry())
    file.write(gemm, "gfx942", "K=128", entry())
    file.write(double, "sm_80", "M=1", entry(double))
    assert quietly(file)["pinned"]["subs"]["BM"] == 64
    assert set(file.read()) == {"gemm", "double"} and set(file.read()["gemm"]["gfx942"]) == {"K=64", "K=128"}
    assert file.path.read_text() == json.dumps(json.loads(file.path.read_text()), indent=1, sort_keys=True) + "\n"


def test_the_stamp_says_where_it_was_found():
    stamp = environment(gemm, "MI300X")
    assert set(stamp) == {"wavedsl", "python", "platform", "product", "kernel", "date"}
    assert stamp["kernel"] == kernel_digest(gemm) != kernel_digest(double)


@pytest.mark.parametrize(
    "text",
    ["", "not json", "[1, 2]", '{"format": 99, "kernels": {}}', '{"kernels": {}}', '{"format": 1, "kernels": [1]}',
     '{"format": 1, "kernels": {"gemm": {"gfx942": 3}}}', "\x00\xff"],
)  # fmt: skip
def test_a_corrupted_or_foreign_file_is_reported_and_kept(file, text):
    file.path.write_text(text, encoding="utf-8")
    with pytest.warns(TuningWarning, match="is not used"):
        assert file.entry(gemm, "gfx942", "K=64") is None
    assert file.path.read_text(encoding="utf-8") == text
    file.write(gemm, "gfx942", "K=64", entry())
    assert quietly(file) is not None
    aside = file.path.with_name(file.path.name + ".rejected")
    assert aside.read_text(encoding="utf-8") == text
    file.path.write_text("again not json")
    file.write(gemm, "gfx942", "K=64", entry())
    assert aside.read_text(encoding="utf-8") == text  # the first one is still there
    assert len(list(file.path.parent.glob("*.rejected*"))) == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"environment": {"kernel": "0" * 16}}, "has changed"),
        ({"environment": None}, "no environment stamp"),
        ({"pinned": {"subs": {"BM": "large"}, "schedule": {}}}, "cannot be read"),
        ({"pinned": 7}, "cannot be read"),
    ],
)
def test_entries_of_something_else_are_reported(file, change, why):
    file.write(gemm, "gfx942", "K=64", entry(**change))
    with pytest.warns(TuningWarning, match=why):
        assert file.entry(gemm, "gfx942", "K=64") is None


def test_candidates_that_make_no_sense_are_dropped(file):
    good = {"status": "ok", "seconds": 1e-5}
    strange = {
        "a": 1,
        "b": {"status": "great"},
        "c": {"status": "ok", "seconds": -1},
        "d": {"status": "ok", "seconds": "1"},
    }
    file.write(gemm, "gfx942", "K=64", entry(candidates={**strange, "e": good}))
    assert quietly(file)["candidates"] == {"e": good}


def test_no_temporary_file_stays(file):
    file.write(gemm, "gfx942", "K=64", entry())
    assert sorted(p.name for p in file.path.parent.iterdir()) == [".gemm.tuning.json.lock", "gemm.tuning.json"]
