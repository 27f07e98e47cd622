"""Tuning on a GPU, without one: the driver, CUDA or HIP, is the recording stand-in, which doubles numbers whatever text
it gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import oracles
import pytest
import standin
import tune_kernels as tk

import wavedsl as wd
from wavedsl.tuning import tune
from wavedsl.tuning.chip import chip_for
from wavedsl.tuning.merging import BY_DEVICE, BY_MODEL
from wavedsl.tuning.on_device import Staging, random_arguments, time_candidate
from wavedsl.tuning.tuner import Steps

N, BN = tk.N, tk.BN
SIZE = 4096


@dataclass(frozen=True)
class Side:
    """A driver and its chip. `said`: the chip's name in the driver's words; `each`: numbers that a thread of the
    stand-in computes: with 64 columns per wave it fills the array, with 256 it does not; `unknown`: a name that no
    product has; `others`: chips that are not at hand; `fail` makes launches fail with `error`; `copy` brings arrays."""

    said: str
    product: str
    target: str
    each: int
    unknown: str
    others: tuple[str, str]
    fail: str
    error: str
    copy: str


SIDES = {
    "cuda": Side(
        "NVIDIA H200", "H200", "sm_90a", 2, "NVIDIA B300", ("H100 SXM", "MI300X"), "cuLaunchKernelEx:719:0",
        "CUDA_ERROR_LAUNCH_FAILED", "cuMemcpyHtoD",
    ),
    "hip": Side(
        "AMD Instinct MI300X", "MI300X", "gfx942", 1, "AMD Instinct MI399X", ("MI355X", "H200"),
        "hipModuleLaunchKernel:719:0", "hipErrorLaunchFailure", "hipMemcpyHtoD",
    ),
}  # fmt: skip


def here() -> Side:
    """The side that this process is on."""
    return SIDES[os.environ["STANDIN_SIDE"]]


def tuned(kernel, folder: Path, **options):
    """A run whose checks on the emulator say yes, with time for the device on a busy machine, too: once its budget is
    spent, a run chooses among what passed those checks."""
    merged = {"subs": {N: SIZE}, "space": {BN: [64, 256]}, "workers": 1, "progress": False, "budget": 250.0, **options}
    return tune(kernel, results=folder / "r.json", steps=Steps(check=tk.right), **merged)


def said(found) -> dict:
    return {
        "product": found.product,
        "by": found.by,
        "best": found.best and found.best.key,
        "message": found.message,
        "entries": {k: [e["status"], e.get("reason", ""), e.get("seconds")] for k, e in found.entries.items()},
    }


def named_or_not(folder: Path) -> list:
    """With neither the target nor the product named, and with one of them."""
    named = ({"target": here().target}, {"product": here().product})
    return [once(folder), *(said(tuned(tk.twice, folder / "".join(n), space={BN: [64]}, **n)) for n in named)]


def once(folder: Path) -> dict:
    return said(tuned(tk.twice, folder))


def other_chips(folder: Path) -> list:
    """No GPU of that kind is at hand, or an emulator was asked for."""
    found = [said(tuned(tk.twice, folder / n, product=n, space={BN: [64]})) for n in here().others]
    os.environ["WAVEDSL_DEVICE"] = f"emulator:{here().target}"
    return [*found, said(tuned(tk.twice, folder / "asked", space={BN: [64]}))]


def all_wrong(folder: Path) -> dict:
    return said(tuned(tk.thrice, folder))


def both_ways(folder: Path) -> dict:
    """By the device, then by the model; a fresh run on the device adds to what is there."""
    first = tuned(tk.twice, folder, space={BN: [64]})
    os.environ["WAVEDSL_DEVICE"] = f"emulator:{here().target}"
    second = tuned(tk.twice, folder, product=here().product, space={BN: [128]})
    del os.environ["WAVEDSL_DEVICE"]
    return {
        "first": said(first),
        "second": said(second),
        "pinned": second.pinned and second.pinned.key,
        "stored": json.loads((folder / "r.json").read_text()),
    }


def on_a_miss(folder: Path) -> dict:
    """A call of a tuned kernel tunes on the device where its arrays go."""
    import numpy as np

    options = {"steps": Steps(check=tk.right), "workers": 1, "progress": False, "budget": 250.0}
    kernel = wd.autotune({BN: [64, 256]}, results=folder / "r.json", **options)(tk.twice)
    source, out = np.arange(SIZE, dtype=np.float32), np.zeros(SIZE, np.float32)
    kernel(source, out)
    (places,) = json.loads((folder / "r.json").read_text())["kernels"].values()
    return {"right": bool((out == 2 * source).all()), "where": {t: list(p) for t, p in places.items()}}


def benched(folder: Path) -> str:
    """`wavedsl bench` there."""
    import contextlib
    import io

    from wavedsl.runtime import timing

    from wavedsl import cli

    timing.FLUSH_BYTES = 1000
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main(["bench", f"{tk.__file__}:first_of_twice", "--subs", f"N={SIZE},BN=64", "--repeat", "7"]) == 0
    return out.getvalue()


def on_standin(side, scenario, folder: Path, **environment: str):
    """What a scenario says in a process that finds the stand-in as its driver."""
    library = standin.built(side)
    folder.mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if k not in ("WAVEDSL_DEVICE", "STANDIN_LOG")}
    places = os.pathsep.join([str(Path(standin.__file__).parent), *filter(None, sys.path)])
    surroundings = {
        **kept, "LD_LIBRARY_PATH": str(library), "STANDIN_FOLDER": str(library), "STANDIN_SIDE": side,
        "STANDIN_NAME": SIDES[side].said, "STANDIN_EACH": str(SIDES[side].each), "PYTHONPATH": places,
        "STANDIN_ARCH_OFFSET": str(standin.arch_offset()) if side == "hip" else "0",
        "ROCM_PATH": str(folder / "no-rocm"), **environment,
    }  # fmt: skip
    command = [sys.executable, __file__, scenario.__name__, str(folder)]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(params=SIDES)
def side(request) -> str:
    if request.param == "hip":
        oracles.require("llvm-mc")
    return request.param


def test_a_gpu_at_hand_is_used_whether_or_not_the_target_is_named(side, tmp_path):
    """The wrong candidate is found on the chip alone, and its launches are never timed."""
    chip = SIDES[side]
    runs = on_standin(side, named_or_not, tmp_path)
    for found in runs:
        assert (found["product"], found["by"], found["best"]) == (chip.product, BY_DEVICE, "BN=64")
        assert found["entries"]["BN=64"] == ["ok", "", 0.00025] and f"timed on {chip.said}" in found["message"]
    status, reason, seconds = runs[0]["entries"]["BN=256"]
    assert status == "wrong" and f"on {side}:0, out: differs" in reason and seconds is None


def test_a_gpu_that_nothing_describes_keeps_its_own_results(side, tmp_path):
    found = on_standin(side, once, tmp_path, STANDIN_NAME=SIDES[side].unknown)
    assert (found["product"], found["by"]) == (SIDES[side].unknown, BY_DEVICE)


def test_another_chip_is_ranked_by_the_model(side, tmp_path):
    for found in on_standin(side, other_chips, tmp_path):
        assert found["by"] == BY_MODEL and found["best"] == "BN=64", found


def test_candidates_that_are_wrong_or_fail_on_the_chip_are_never_chosen(side, tmp_path):
    found = on_standin(side, all_wrong, tmp_path / "wrong")
    assert found["best"] is None and {e[0] for e in found["entries"].values()} == {"wrong"}
    found = on_standin(side, once, tmp_path / "failing", STANDIN_FAIL=SIDES[side].fail)
    assert found["best"] is None and {e[0] for e in found["entries"].values()} == {"crashed"}
    assert SIDES[side].error in found["message"]


def test_a_model_s_ranking_leaves_what_the_device_measured(side, tmp_path):
    chip = SIDES[side]
    found = on_standin(side, both_ways, tmp_path)
    (places,) = found["stored"]["kernels"].values()
    entry = places[chip.target][chip.product][f"N={SIZE}"]
    assert found["first"]["by"] == BY_DEVICE and found["second"]["by"] == BY_MODEL
    assert found["second"]["best"] == "BN=128" and found["pinned"] == "BN=64"
    assert "BN=64 stays pinned, by device time" in found["second"]["message"]
    assert entry["pinned"]["subs"] == {"BN": 64} and set(entry["runs"]) == {BY_DEVICE, BY_MODEL}
    assert entry["runs"][BY_DEVICE]["environment"]["device"] == chip.said


def test_a_call_of_a_tuned_kernel_tunes_on_its_device(side, tmp_path):
    where = {SIDES[side].target: [SIDES[side].product]}
    assert on_standin(side, on_a_miss, tmp_path) == {"right": True, "where": where}


def test_bench_times_launches_by_the_device_s_clock(side, tmp_path):
    found = on_standin(side, benched, tmp_path, STANDIN_LOG=str(tmp_path / "log"))
    assert "median 0.250 ms, best 0.250 ms of 7 (device time" in found
    copies = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith(SIDES[side].copy)]
    assert len(copies) == 2, "host arrays are copied once, not with every launch"


def task(folder: Path, **subs: int):
    from wavedsl.tuning import Candidate
    from wavedsl.tuning.kernel_ref import reference
    from wavedsl.tuning.work import Task

    chip = chip_for("gfx942", None)
    return Task(
        reference(tk.twice), Candidate((("BN", 64),)), "gfx942", chip.product, (("N", 100),), dynamic=("N",), **subs
    )


def test_a_candidate_that_hangs_or_ends_its_process_is_told(tmp_path):
    staging = Staging(str(tmp_path))
    assert staging(task(tmp_path))["compared"] == "N=100"
    path = staging.path(task(tmp_path))
    kept = path.read_bytes()
    assert time_candidate(path, "emulator:gfx942", 0.01)["status"] == "hung" and not path.exists()
    path.write_bytes(kept)
    found = time_candidate(path, "emulator:gfx942", 60)
    assert found["status"] == "ok" and found["seconds"] > 0
    path.write_bytes(kept[:100])
    found = time_candidate(path, "emulator:gfx942", 60)
    assert found["status"] == "crashed" and "status 1" in found["reason"]


def test_large_problems_are_compared_by_a_small_one_with_the_same_edges(tmp_path, monkeypatch):
    monkeypatch.setattr("wavedsl.tuning.on_device.WHOLE", 50)
    assert Staging(str(tmp_path))(task(tmp_path))["compared"] == "N=100"  # one whole tile and the rest


def test_arguments_to_time_on_are_those_of_the_text():
    compiled = tk.twice.variant(task(Path()).candidate).compile(target="gfx942", subs={}, dynamic=[N])
    arrays = random_arguments(compiled, {"N": 100}, 0)
    assert [a.shape for a in arrays] == [(100,), (100,)] and str(arrays[0].dtype) == "float32"


def test_unknown_chips_are_errors():
    with pytest.raises(wd.ConstraintError, match="no product"):
        chip_for(None, "H1000")
    with pytest.raises(wd.ConstraintError, match="runs sm_90a text"):
        chip_for("gfx942", "H200")


if __name__ == "__main__":
    if os.environ["STANDIN_SIDE"] == "hip":
        from wavedsl.runtime import devices

        devices.driver_present = lambda kind: kind == "hip"  # the kernel's own driver has no stand-in
    print(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]))))
