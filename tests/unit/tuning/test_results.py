"""The results file: what is written is read again, what is not ours is never used and never lost."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from tune_kernels import double, gemm

import wavedsl as wd
from wavedsl.tuning import Candidate
from wavedsl.tuning.merging import BY_DEVICE, BY_HAND, BY_MODEL, BY_PREDICTION
from wavedsl.tuning.results import ResultsFile, TuningWarning, beside, environment, kernel_digest

WHERE = ("gfx942", "MI300X", "K=64")
CHOICE = {"subs": {"BM": 64, "BN": 64, "BK": 32}, "schedule": {"stages": 2}}
KEY = "BK=32 BM=64 BN=64 stages=2"


def ran(kernel=gemm, bm: int = 64, **outcome):
    """A run with one candidate."""
    c = Candidate((("BK", 32), ("BM", bm), ("BN", 64)), (("stages", 2),))
    found = {"status": "ok", "predicted": 2e-5, "seconds": 1e-5, **outcome, **c.to_json()}
    return {"environment": environment(kernel, "MI300X"), "candidates": {c.key: found}, "pruned": {}}


def change(file: ResultsFile, **values) -> None:
    """Write into the entry of the file, as a person with an editor."""
    data = json.loads(file.path.read_text())
    data["kernels"]["gemm"]["gfx942"]["MI300X"]["K=64"].update(values)
    file.path.write_text(json.dumps(data))


@pytest.fixture
def file(tmp_path: Path) -> ResultsFile:
    return ResultsFile(tmp_path / "gemm.tuning.json")


def quietly(file: ResultsFile, kernel=gemm):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return file.entry(kernel, *WHERE)


def test_the_file_lies_beside_the_source():
    assert beside(gemm).name == "tune_kernels.tuning.json"
    assert beside(gemm).parent == Path(gemm.function.__code__.co_filename).parent


def test_a_round_trip_keeps_other_entries(file):
    assert quietly(file) is None
    file.write(gemm, *WHERE, BY_MODEL, ran())
    file.write(gemm, "gfx942", "MI300X", "K=128", BY_MODEL, ran())
    file.write(gemm, "gfx942", "MI325X", "K=64", BY_MODEL, ran())
    file.write(double, "sm_80", "A100", "M=1", BY_MODEL, ran(double))
    assert quietly(file)["pinned"] == {**CHOICE, "by": BY_MODEL, "seconds": 1e-5}
    assert set(file.read()) == {"gemm", "double"}
    assert {p: set(b) for p, b in file.read()["gemm"]["gfx942"].items()} == {
        "MI300X": {"K=64", "K=128"},
        "MI325X": {"K=64"},
    }
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
        assert file.entry(gemm, *WHERE) is None
    assert file.path.read_text(encoding="utf-8") == text
    with pytest.warns(TuningWarning, match=r"was moved aside to .*\.rejected: "):
        file.write(gemm, *WHERE, BY_MODEL, ran())
    assert quietly(file) is not None
    aside = file.path.with_name(file.path.name + ".rejected")
    assert aside.read_text(encoding="utf-8") == text
    file.path.write_text("again not json")
    with pytest.warns(TuningWarning, match=r"\.rejected1: "):
        file.write(gemm, *WHERE, BY_MODEL, ran())
    assert aside.read_text(encoding="utf-8") == text  # the first one is still there
    assert len(list(file.path.parent.glob("*.rejected*"))) == 2


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"kernel": "0" * 16}, "has changed"),
        ({"kernel": None}, "no environment stamp"),
        ({"pinned": {"subs": {"BM": "large"}, "schedule": {}}}, "cannot be read"),
        ({"pinned": 7}, "cannot be read"),
    ],
)
def test_entries_of_something_else_are_reported(file, values, why):
    file.write(gemm, *WHERE, BY_MODEL, ran())
    change(file, **values)
    with pytest.warns(TuningWarning, match=why):
        assert file.entry(gemm, *WHERE) is None


def test_candidates_that_make_no_sense_are_dropped(file):
    good = {"status": "ok", "seconds": 1e-5}
    strange = {
        "a": 1,
        "b": {"status": "great"},
        "c": {"status": "ok", "seconds": -1},
        "d": {"status": "ok", "seconds": "1"},
    }
    file.write(gemm, *WHERE, BY_MODEL, ran())
    change(file, runs={BY_MODEL: {"candidates": {**strange, "e": good}}})
    assert quietly(file)["runs"][BY_MODEL]["candidates"] == {"e": good}
    file.write(gemm, *WHERE, BY_MODEL, ran())  # and they are in nobody's way
    assert quietly(file)["pinned"]["by"] == BY_HAND  # a choice that no run of the file has chosen


def test_no_temporary_file_stays(file):
    file.write(gemm, *WHERE, BY_MODEL, ran())
    assert sorted(p.name for p in file.path.parent.iterdir()) == [".gemm.tuning.json.lock", "gemm.tuning.json"]


def test_a_model_never_replaces_what_a_device_measured(file):
    file.write(gemm, *WHERE, BY_DEVICE, ran(seconds=3e-5))
    file.write(gemm, *WHERE, BY_MODEL, ran(bm=128, seconds=1e-6))
    found = quietly(file)
    assert found["pinned"] == {**CHOICE, "by": BY_DEVICE, "seconds": 3e-5}
    assert (
        set(found["runs"]) == {BY_DEVICE, BY_MODEL} and found["runs"][BY_DEVICE]["candidates"][KEY]["seconds"] == 3e-5
    )
    other = ResultsFile(file.path.with_name("other.json"))
    other.write(gemm, *WHERE, BY_MODEL, ran(bm=128, seconds=1e-6))
    other.write(gemm, *WHERE, BY_DEVICE, ran(seconds=3e-5))  # in the other order
    assert quietly(other)["pinned"] == found["pinned"]


def test_a_prediction_is_pinned_only_where_nothing_was_measured(file):
    file.write(gemm, *WHERE, BY_MODEL, ran(bm=32, seconds=None, status="skipped", checked=True))
    assert quietly(file)["pinned"]["by"] == BY_PREDICTION
    file.write(gemm, *WHERE, BY_MODEL, ran())
    file.write(gemm, *WHERE, BY_MODEL, ran(bm=16, seconds=None, checked=True, predicted=1e-9))
    assert quietly(file)["pinned"] == {**CHOICE, "by": BY_MODEL, "seconds": 1e-5}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_processes_that_tune_one_bucket_lose_nothing(file, order):
    """Each knows what it has found and what was there when it began."""
    runs = [ran(bm=32, seconds=2e-5), ran(bm=64, seconds=1e-5)]
    for i in order:
        file.write(gemm, *WHERE, BY_MODEL, runs[i])
    assert len(quietly(file)["runs"][BY_MODEL]["candidates"]) == 2
    assert quietly(file)["pinned"]["subs"]["BM"] == 64


def test_what_knows_less_does_not_replace_what_knows_more(file):
    file.write(gemm, *WHERE, BY_MODEL, ran())
    for outcome in ({"status": "skipped", "seconds": None}, {"status": "pruned", "seconds": None}):
        file.write(gemm, *WHERE, BY_MODEL, ran(**outcome))
        assert quietly(file)["runs"][BY_MODEL]["candidates"][KEY]["seconds"] == 1e-5
    file.write(gemm, *WHERE, BY_MODEL, ran(status="wrong", seconds=None))
    assert quietly(file)["runs"][BY_MODEL]["candidates"][KEY]["status"] == "wrong"


def test_a_choice_by_hand_stays(file):
    file.write(gemm, *WHERE, BY_MODEL, ran())
    change(file, pinned={"subs": {"BM": 16, "BN": 64, "BK": 32}, "schedule": {}})
    file.write(gemm, *WHERE, BY_DEVICE, ran(bm=32, seconds=1e-9))
    assert quietly(file)["pinned"] == {"subs": {"BM": 16, "BN": 64, "BK": 32}, "schedule": {}, "by": BY_HAND}


def test_results_of_a_kernel_that_has_changed_are_kept_and_come_back(file, monkeypatch):
    file.write(gemm, *WHERE, BY_DEVICE, ran(seconds=3e-5))
    before = quietly(file)
    monkeypatch.setattr("wavedsl.tuning.results.kernel_digest", lambda kernel: "another")
    with pytest.warns(TuningWarning, match="has changed since"):
        assert file.entry(gemm, *WHERE) is None
    file.write(gemm, *WHERE, BY_MODEL, ran(bm=32))
    assert quietly(file)["pinned"]["subs"]["BM"] == 32
    assert quietly(file)["earlier"][before["kernel"]] == before
    monkeypatch.undo()
    assert quietly(file) == before
    file.write(gemm, *WHERE, BY_MODEL, ran(bm=16))
    assert quietly(file)["pinned"]["by"] == BY_DEVICE and set(quietly(file)["earlier"]) == {"another"}


def test_a_file_of_the_first_format_is_read_and_written_as_the_second(file):
    stamp = environment(gemm, "MI300X")
    old = {
        "pinned": CHOICE,
        "by": BY_DEVICE,
        "seconds": 1e-5,
        "environment": stamp,
        "candidates": {
            KEY: {"status": "ok", "seconds": 1e-5, "predicted": 2e-5, **CHOICE},
            "BM=1": {"status": "pruned", "reason": "64 elements of a workgroup leave lanes idle"},
            "BM=2": {"status": "pruned", "reason": "128 elements of a workgroup leave lanes idle"},
        },
    }
    file.path.write_text(json.dumps({"format": 1, "kernels": {"gemm": {"gfx942": {"K=64": old}}}}))
    assert quietly(file)["pinned"] == {**CHOICE, "by": BY_DEVICE, "seconds": 1e-5}
    file.write(gemm, *WHERE, BY_MODEL, ran(bm=32, seconds=1e-9))
    found = quietly(file)
    assert json.loads(file.path.read_text())["format"] == 2
    assert found["pinned"]["by"] == BY_DEVICE and set(found["runs"][BY_DEVICE]["candidates"]) == {KEY}
    assert found["runs"][BY_DEVICE]["pruned"] == {"# elements of a workgroup leave lanes idle": 2}


def test_a_directory_is_refused_and_stays(file):
    file.path.mkdir()
    for use in (file.check, file.read, lambda: file.write(gemm, *WHERE, BY_MODEL, ran())):
        with pytest.raises(wd.ConstraintError, match="is a directory"):
            use()
    assert [p.name for p in file.path.parent.iterdir()] == [file.path.name]


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(wd.LaunchError, match="no folder that one may write to"):
        ResultsFile(tmp_path / "file" / "r.json").check()
    with pytest.raises(wd.LaunchError, match="cannot be"):
        ResultsFile(tmp_path / "file" / "r.json").write(gemm, *WHERE, BY_MODEL, ran())


def test_warnings_show_no_line_of_the_package(file):
    file.path.write_text("not json")
    with pytest.warns(TuningWarning) as caught:
        file.read()
    assert "tuning/results.py" not in caught[0].filename
