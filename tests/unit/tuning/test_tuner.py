"""Tuning runs: the choice, budgets, resumption, and candidates that the compiler, the checks or a crash take out."""

from __future__ import annotations

import io
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tune_kernels as tk
from tune_kernels import BK, BM, BN, K, M, N, centred, double, gemm
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd
from wavedsl import cli
from wavedsl.tuning import tune
from wavedsl.tuning.progress import Bar, Lines, make_progress
from wavedsl.tuning.results import TuningWarning
from wavedsl.tuning.tuner import BY_MODEL, Steps

SIZES = {M: 64, N: 256}
FAKE = Steps(tk.instant, tk.right, tk.measured)
MISBEHAVE = Steps(tk.compile_or_misbehave, tk.right, tk.measured)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "kernels.tuning.json"


def run(results: Path, kernel=double, space=None, **options):
    space = {BM: [4, 64], BN: [64]} if space is None else space
    merged = {"subs": SIZES, "target": "gfx942", "workers": 2, "progress": False, **options}
    return tune(kernel, space=space, results=results, **merged)


def stored(results: Path) -> dict:
    """The entry of the only kernel, chip and bucket, with what its only run has beside it."""
    (targets,) = json.loads(results.read_text())["kernels"].values()
    (products,) = targets.values()
    (buckets,) = products.values()
    (entry,) = buckets.values()
    ((by, run),) = entry["runs"].items()
    return {**entry, **run, "by": by}


def choice(pinned: dict) -> dict:
    """A pinned choice without what it rests on."""
    return {"subs": pinned["subs"], "schedule": pinned["schedule"]}


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_a_run_compiles_checks_ranks_and_pins(results, target):
    sizes = {M: 80, N: 96, K: 70}
    found = run(results, gemm, {BM: [32, 64], BN: [32], BK: [32]}, subs=sizes, target=target)
    assert found.count("ok") == 2 and found.by == BY_MODEL
    assert found.best is not None and found.seconds == min(e["seconds"] for e in found.entries.values())
    assert "no measurement" in found.message and "emulator cycle model" in str(found)
    entry = stored(results)
    assert choice(entry["pinned"]) == found.best.to_json() and entry["by"] == entry["pinned"]["by"] == BY_MODEL
    assert set(entry["candidates"]) == {"BK=32 BM=32 BN=32", "BK=32 BM=64 BN=32"}
    assert all(e["predicted"] > 0 and e["clocks"] > 0 and len(e["text"]) == 16 for e in entry["candidates"].values())
    assert found.bucket == "K=70 M=80 N=96"


@pytest.mark.parametrize(
    ("target", "space"),
    [
        ("sm_90a", {"specialize": [0, 1], "cluster": [1, 2, (2, 2)], "persistent": [0, 1]}),
        pytest.param("gfx950", {"direct_to_shared": [0, 1]}, marks=pytest.mark.slow),
    ],
)
def test_choices_of_the_schedule_are_tuned(results, target, space):
    """Each is compiled, right on the emulator, and timed by its clocks; what does not go together is pruned."""
    tiles = {BM: [128], BN: [64], BK: [64], "stages": [2]}
    found = tune(
        gemm, subs={M: 256, N: 128, K: 256}, space={**tiles, **space}, target=target, results=results, keep=1.0,
        budget=200.0, workers=1,
    )  # fmt: skip
    ran = [k for k, e in found.entries.items() if e.get("seconds")]
    assert len(ran) == (7 if target == "sm_90a" else 2) and found.best is not None
    reasons = [e["reason"] for e in found.entries.values() if e["status"] == "pruned"]
    assert all("copying warpgroup" in reason or "tiles in turn" in reason for reason in reasons)
    texts = {found.entries[k]["text"] for k in ran}
    assert len(texts) >= len(ran) - 2, "choices change the text"


def test_arrays_give_the_sizes(results):
    a = np.zeros((64, 256), np.float32)
    found = tune(double, a, a.copy(), space={BM: [4], BN: [64]}, target="sm_80", results=results, workers=1)
    assert found.bucket == "M=64 N=256" and found.best is not None


def test_the_model_decides_what_runs(results):
    found = run(results, space={BM: list(range(1, 21)), BN: [256]}, steps=FAKE, at_least=2, keep=0.1)
    assert (found.count("ok"), found.count("pruned")) == (2, 18)
    assert found.best is not None and found.best.key == "BM=1 BN=256"
    assert "not among the model's best 2" in found.entries["BM=20 BN=256"]["reason"]


def test_the_limit_bounds_what_is_compiled(results):
    found = run(results, space={BM: list(range(1, 21)), BN: [256]}, steps=FAKE, limit=3)
    assert sum("predicted" in e for e in found.entries.values()) == 3
    assert sum("best 3 by its tiles" in e.get("reason", "") for e in found.entries.values()) == 17


def test_a_wrong_candidate_is_never_chosen(results):
    """The fastest one computes something else; the reference is the user's."""
    found = run(results, tk.by_tile, {BM: [4, 16, 64], BN: [64]}, reference=tk.plus_sixteen)
    assert {k: e["status"] for k, e in found.entries.items()} == {
        "BM=4 BN=64": "wrong",
        "BM=16 BN=64": "ok",
        "BM=64 BN=64": "wrong",
    }
    assert found.best is not None and found.best.key == "BM=16 BN=64"
    assert "b: differs by 12" in found.entries["BM=4 BN=64"]["reason"]


def test_a_reference_that_was_mended_judges_anew(results):
    """What a wrong one had said of every candidate held, whatever judged them later."""
    found = run(results, reference=tk.not_double)
    assert found.best is None and found.count("wrong") == 2
    again = run(results, reference=tk.not_double, steps=Steps(tk.forbidden, tk.forbidden, tk.forbidden))
    assert again.count("wrong") == 2 and "--fresh, tries them again" in again.message
    assert run(results, reference=tk.doubled, steps=Steps(compile=tk.forbidden)).count("ok") == 2
    assert "judge" not in json.dumps(stored(results))


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (tk.fails, "the reference fails raised RuntimeError: as the test wants it"),
        (tk.right, r"the reference right raised TypeError: right\(\) got an unexpected keyword argument 'a'"),
        (tk.returns, "the reference returns left every argument as it was"),
    ],
)
def test_a_reference_that_judges_nothing_is_the_users_mistake(results, reference, said):
    """It was every candidate's: they had crashed, or were wrong, and stayed so in the file."""
    with pytest.raises(wd.ConstraintError, match=said) as caught:
        run(results, reference=reference)
    assert caught.value.location is not None and caught.value.hint
    assert run(results).count("ok") == 2


def test_what_took_too_long_may_take_longer_later(results):
    assert run(results, space={BM: [4], BN: [64]}, reference=tk.waits, timeout=1.0).count("hung") == 1
    assert run(results, space={BM: [4], BN: [64]}, reference=tk.waits, timeout=0.5).count("hung") == 1
    assert run(results, space={BM: [4], BN: [64]}, timeout=30.0).count("ok") == 1


def test_candidates_that_crash_hang_or_raise_are_reported(results):
    found = run(
        results, space={BM: [4, 8, 16, 32, 64], BN: [64]}, steps=MISBEHAVE, timeout=2
    )  # fmt: skip
    said = {k.split()[0]: (e["status"], e.get("reason", "")) for k, e in found.entries.items()}
    assert said["BM=8"] == ("crashed", "the worker ended with status 7")
    assert said["BM=16"][0] == "hung" and "2 s" in said["BM=16"][1]
    assert said["BM=32"] == ("crashed", "MemoryError: as the test wants it")
    assert said["BM=4"][0] == said["BM=64"][0] == "ok"
    assert found.best is not None and found.best.key in ("BM=4 BN=64", "BM=64 BN=64")


def test_all_candidates_lost_says_why(results):
    found = run(results, space={BM: [8, 32], BN: [64]}, steps=MISBEHAVE)
    assert found.best is None and stored(results)["pinned"] is None
    assert "no candidate is usable" in found.message and "MemoryError" in found.message


def test_what_no_tile_changes_is_pruned_with_the_reason(results):
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0)], schedule=wd.Schedule(cluster=(2, 1, 1)))
    def clustered(a: wd.Memory[M, wd.f32], b: wd.Memory[M, wd.f32]):
        wd.write(wd.read(a), b)

    found = run(results, clustered, {BM: [64, 128]}, subs={M: 256})
    assert found.count("pruned") == 2 and found.best is None
    assert "cluster" in found.message and "gfx942" in found.entries["BM=64"]["reason"]


def test_what_only_lowering_refuses_is_recorded(results):
    """Rows of 501 elements of f16 are no multiple of 4 bytes: no asynchronous copy takes them."""
    sizes, space = {M: 256, N: 256, K: 501}, {BM: [128], BN: [128], BK: [64], "specialize": [1]}
    found = run(results, gemm, space, subs=sizes, target="sm_90a")
    assert found.count("refused") == 1 and found.best is None
    assert "no multiple of 16 bytes" in found.entries["BK=64 BM=128 BN=128 specialize=1"]["reason"]


def test_an_empty_space_is_an_error(results):
    with pytest.raises(wd.ConstraintError, match="search space is empty"):
        run(results, space={BM: []})

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def fixed(a: wd.Memory[M, wd.f32], b: wd.Memory[M, wd.f32]):
        wd.write(wd.read(a), b)

    with pytest.raises(wd.ConstraintError, match="leaves nothing to choose"):
        tune(fixed, subs={M: 64}, target="gfx942", results=results)
    assert not results.exists()


def test_a_space_that_no_chip_holds_finds_nothing(results):
    found = run(results, kernel=centred, space={BM: [1, 2]}, subs={M: 4, N: 1 << 20})
    assert found.best is None and found.count("pruned") == 2 and "registers of each of its" in found.message


def test_extents_without_a_value_are_an_error(results):
    with pytest.raises(wd.ConstraintError, match="M has no value"):
        run(results, subs={N: 64})


def test_a_budget_of_zero_tries_nothing_and_loses_nothing(results):
    empty = run(results, budget=0)
    assert empty.best is None and "nothing was tried" in empty.message and not results.exists()
    before = run(results, steps=FAKE)
    text = stored(results)
    again = run(results, budget=0)
    assert again.best == before.best and "nothing was tried" in again.message
    assert stored(results)["candidates"] == text["candidates"] and stored(results)["pinned"] == text["pinned"]


def test_the_budget_stops_a_run_that_goes_on_later(results):
    space = {BM: [2, 4, 8, 16, 32, 64], BN: [256]}
    start = time.monotonic()
    first = run(results, space=space, steps=Steps(tk.slow_compile), budget=2.0, workers=1)
    assert time.monotonic() - start < 8
    done = [k for k, e in first.entries.items() if "predicted" in e]
    assert 0 < len(done) < 6 and first.count("skipped") >= 1
    second = run(results, space=space)
    assert second.best is not None
    assert all(second.entries[k]["compile_seconds"] == first.entries[k]["compile_seconds"] for k in done)


def test_a_second_run_measures_nothing_again(results):
    first = run(results)
    again = run(results, steps=Steps(tk.forbidden, tk.forbidden, tk.forbidden))
    assert again.best == first.best and again.seconds == first.seconds
    fresh = run(results, steps=FAKE, resume=False)
    assert fresh.best is not None and fresh.best.key == "BM=4 BN=64"


def test_a_corrupted_file_is_reported_and_replaced(results):
    results.write_text('{"format": 1, "kern')
    unused, moved = "is not used: it is not JSON", r"moved aside to .*rejected: it is not JSON"
    with pytest.warns(TuningWarning, match=unused), pytest.warns(TuningWarning, match=moved):
        found = run(results, steps=FAKE)
    assert found.best is not None and choice(stored(results)["pinned"]) == found.best.to_json()
    assert results.with_name(results.name + ".rejected").read_text() == '{"format": 1, "kern'


def test_results_of_another_chip_do_not_count(results):
    run(results, steps=FAKE)
    other = run(results, steps=FAKE, product="MI325X")
    assert other.product == "MI325X"
    chips = json.loads(results.read_text())["kernels"]["double"]["gfx942"]
    for name, buckets in chips.items():
        assert buckets["M=64 N=256"]["runs"][BY_MODEL]["environment"]["product"] == name
    assert set(chips) == {"MI300X", "MI325X"}


def test_an_interrupted_run_keeps_what_it_has(results):
    class Interrupt(Lines):
        def step(self, best: str = "") -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(results, steps=FAKE, progress=Interrupt(io.StringIO()))
    assert len(stored(results)["candidates"]) >= 1


@pytest.mark.parametrize("make", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_any_executor_does(results, make):
    with make(2) as executor:
        found = run(results, executor=executor)
    assert found.count("ok") == 2


def test_a_broken_executor_is_replaced(results):
    """ProcessPoolExecutor is broken by the first crash: the innocent go on in our own processes."""
    with ProcessPoolExecutor(1) as executor:
        found = run(results, space={BM: [4, 8, 64], BN: [64]}, executor=executor, steps=MISBEHAVE)
    said = {k: e["status"] for k, e in found.entries.items()}
    assert said == {"BM=4 BN=64": "ok", "BM=8 BN=64": "crashed", "BM=64 BN=64": "ok"}


def test_kernels_of_a_function_tune_in_forked_workers(results):
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)])
    def local(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a) * 3.0, b)

    assert run(results, local).count("ok") == 2


def test_run_time_dimensions_are_tuned_for_an_extent(results):
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)], dynamic=[M], buckets={M: (64, 1024)})
    def ragged(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a) * 3.0, b)

    found = run(results, ragged, subs={M: 70, N: 256})
    assert found.count("ok") == 2 and found.bucket == "M<=1024 N=256"
    with pytest.raises(wd.ConstraintError, match="M has no extent to tune for"):
        run(results, ragged, subs={N: 256})


def test_progress_lines_tell_the_best_and_the_time_left(results):
    said = io.StringIO()
    run(results, progress=Lines(said, every=0))
    assert "tuning: compile 1/2" in said.getvalue() and "s left" in said.getvalue()
    assert "tuning: measure 2/2" in said.getvalue() and "best " in said.getvalue()


def test_the_bar_shows_the_best(results):
    rich = pytest.importorskip("rich.console")
    out = io.StringIO()
    run(results, progress=Bar(rich.Console(file=out, force_terminal=True, width=120)))
    assert "tuning: measure" in out.getvalue() and "BN=64" in out.getvalue()
    assert type(make_progress(False)).__name__ == "Progress"


def test_the_command_line_tunes_and_pins(capsys, results):
    source = Path(tk.__file__)
    base = ["tune", f"{source}:double", "--subs", "M=64,N=256", "--space", "BM=4/64,BN=64", "--results", str(results)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cli.main([*base, "--target", "gfx950", "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert "pinned BM=" in said and "no measurement" in said and str(results) in said
    assert cli.main([*base, "--target", "gfx950", "--budget", "0", "--results", f"{results}2"]) == 1
    assert "nothing was tried" in capsys.readouterr().out
    assert cli.main(["tune", f"{source}:double", "--subs", "M=64,N=256", "--space", "BM:4"]) == 1
    assert "is no search space" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_the_sampled_workgroup_of_several_that_share_a_loop_adds_their_parts(results, target):
    """It is the last to arrive: the four of a tile do less than four times what it does."""
    subs = {M: 64, N: 64, K: 1024}
    space = {BM: [64], BN: [64], BK: [64], "stages": [2], "split_k": [1, 4]}
    found = run(results, gemm, space, subs=subs, target=target, keep=1.0, workers=1, steps=Steps(check=tk.right))
    clocks = {e["schedule"]["split_k"]: e["clocks"] for e in found.entries.values()}
    assert clocks[4] < clocks[1]
    cut = gemm.variant(found.best).compile(target=target, subs=subs)
    arrays = [np.zeros(s, t) for s, t in (((64, 1024), np.float16), ((64, 1024), np.float16), ((64, 64), np.float32))]
    last, whole = sample(cut, arrays), cut.emulate(*arrays, checks=False)
    assert sum(whole.instructions.values()) < 4 * sum(last.instructions.values())


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"budget": "3"}, r"budget='3'(.|\n)*seconds of wall time"),
        ({"budget": True}, "budget=True"),
        ({"executor": 5}, r"executor=5(.|\n)*concurrent.futures.Executor"),
        ({"workers": -1}, r"workers=-1(.|\n)*from 1 on"),
        ({"keep": 2}, r"keep=2(.|\n)*at most 1"),
        ({"at_least": 0}, "at_least=0"),
        ({"timeout": 0}, "timeout=0"),
        ({"progress": "bar"}, "progress='bar'"),
        ({"reference": 3}, "reference=3"),
        ({"reference": lambda a, b: None}, r"cannot be sent to a worker(.|\n)*at the top level of a module"),
    ],
)
def test_options_without_meaning(results, option, said):
    with pytest.raises(wd.ConstraintError, match=said):
        run(results, steps=FAKE, **option)
    assert not results.exists()


def test_a_local_reference_will_do_for_threads(results):
    local = []
    with ThreadPoolExecutor(1) as executor:
        found = run(results, executor=executor, reference=lambda a, b: local.append(1) or np.multiply(a, 2, out=b))
    assert found.count("ok") == 2 and local
    with pytest.raises(wd.TraceError, match="tune takes a kernel"):
        tune(3)


def test_a_directory_as_results_file_is_refused_before_anything_runs(results):
    results.mkdir()
    with pytest.raises(wd.ConstraintError, match="is a directory"):
        run(results, steps=Steps(tk.forbidden, tk.forbidden, tk.forbidden))
    assert results.is_dir() and not list(results.parent.glob("*.rejected*"))
