"""One candidate on a GPU: its results compared with the reference, then its launches timed, in a process of its own.

    Staging (a worker, no GPU) ── compiled text, arguments, right outputs ──▶  a file
    time_candidate             ── python -m wavedsl.tuning.on_device FILE DEVICE ──▶  an outcome, or the lack of one

A kernel that hangs or faults takes that process with it and nothing else. The process knows no kernel of the user's,
only target text: neither a script nor a notebook is run again in it.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from wavedsl.ir.errors import WaveError
from wavedsl.tuning.work import BadReference, Task, difference, outputs_of, right_outputs, small_problem

WHOLE = 1 << 33
"""Product of all extents up to which the whole problem is compared with the reference; beyond it takes the host too
long, and a small problem with the same ragged edges is compared (as on the emulator)."""


class Staging:
    """A step that makes, in `folder` of this machine, the file of a candidate: it compiles it for the whole problem,
    and for the one that is compared. Status `refused` where the compiler refuses."""

    def __init__(self, folder: str):
        self.folder = folder

    def path(self, task: Task) -> Path:
        """The candidate's file."""
        return Path(self.folder, task.candidate.key.replace(" ", ",").replace(":", "-"))

    def __call__(self, task: Task) -> dict[str, Any]:
        kernel, values = task.kernel(), task.symbols()
        tiles = {n for n, _ in task.candidate.subs}
        whole = prod(v for k, v in values.items() if isinstance(v, int) and str(k) not in tiles) <= WHOLE
        compared = values if whole else small_problem(kernel, values)
        try:
            timed = task.compiled()
            checked = timed if whole else task.compiled(compared)
            arguments, want = self._right(task) if whole else right_outputs(task, compared)
        except BadReference:
            raise
        except WaveError as error:
            return {"status": "refused", "reason": error.message}
        staged = {
            "timed": timed.to_json(),
            "extents": {str(k): v for k, v in values.items() if isinstance(v, int)},
            "checked": checked.to_json(),
            "arguments": arguments,
            "want": {p.name: want[p.name] for p in outputs_of(checked)},
            "seed": task.seed,
        }
        self.path(task).write_bytes(pickle.dumps(staged))
        sizes = {str(k): v for k, v in compared.items() if isinstance(v, int) and str(k) not in tiles}
        return {"status": "ok", "compared": " ".join(f"{k}={v}" for k, v in sorted(sizes.items()))}

    def _right(self, task: Task) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments and right outputs of the whole problem, which no tile changes: worked out once per folder."""
        known = Path(self.folder, "right")
        if not known.exists():
            partial = known.with_name(f"right.{os.getpid()}")
            partial.write_bytes(pickle.dumps(right_outputs(task, task.symbols())))
            os.replace(partial, known)
        arguments, want = pickle.loads(known.read_bytes())
        return arguments, want


def time_candidate(path: Path, device: str, timeout: float) -> dict[str, Any]:
    """The outcome of a staged candidate on `device`: `seconds`, the median of `launches`, or what went wrong."""
    answer = path.with_name(path.name + ".json")
    answer.unlink(missing_ok=True)
    places = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-m", "wavedsl.tuning.on_device", str(path), device, str(answer)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": places}, start_new_session=True,
    )  # fmt: skip
    try:
        _, said = process.communicate(timeout=max(0.0, timeout))
    except subprocess.TimeoutExpired:
        return {"status": "hung", "reason": f"no result after {timeout:.3g} s on {device}"}
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        path.unlink(missing_ok=True)
    try:
        return dict(json.loads(answer.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        last = said.strip().splitlines()[-1:] or [""]
        told = f"the process on {device} ended with status {process.returncode}"
        return {"status": "crashed", "reason": f"{told}: {last[0]}" if last[0] else told}


def measure(staged: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Compare the results on the device with the reference, then launch on random arguments until times are steady."""
    from wavedsl.compiled_kernel import from_json
    from wavedsl.runtime import devices
    from wavedsl.runtime.launch import launch
    from wavedsl.testing import bench_compiled

    place = devices.parse(device)
    checked, timed = from_json(staged["checked"]), from_json(staged["timed"])
    arguments = staged["arguments"]
    names = [p.name for p in checked.params if not p.source]
    launch(checked, [arguments[n] for n in names], place)
    for p in outputs_of(checked):
        reason = difference(arguments[p.name], staged["want"][p.name], p.dtype)
        if reason:
            return {"status": "wrong", "reason": f"on {device}, {p.name}: {reason}"}
    times = bench_compiled(timed, random_arguments(timed, staged["extents"], staged["seed"]), place)
    return {"status": "ok", "seconds": times.median, "launches": times.count}


def random_arguments(compiled: Any, extents: Mapping[str, int], seed: int) -> list[Any]:
    """Arguments to time on: numbers as they come in use, since the power that a product takes depends on them."""
    from wavedsl.find_kernel import random_array, random_scalar
    from wavedsl.ir.symbols import evaluate_int, symbol

    values = {symbol(n): v for n, v in extents.items()}
    random = np.random.default_rng(seed)
    found: list[Any] = []
    for p in (p for p in compiled.params if not p.source):
        if p.kind == "scalar":
            found.append(random_scalar(p.dtype, random))
        else:
            shape = [evaluate_int(d, values) for d in compiled.shapes[p.name]]
            found.append(random_array(p.dtype, shape, random, False))
    return found


def main(path: str, device: str, answer: str) -> None:
    """The process of one candidate. Its answer appears in one step."""
    with open(path, "rb") as file:
        staged = pickle.load(file)
    try:
        outcome = measure(staged, device)
    except WaveError as error:
        outcome = {"status": "crashed", "reason": f"on {device}: {error.message}"}
    partial = Path(answer + ".partial")
    partial.write_text(json.dumps(outcome), encoding="utf-8")
    os.replace(partial, answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
