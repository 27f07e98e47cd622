"""Everything that is to be learnt on a GPU, in one call with a wall limit: checks first, then rates, then times.

    python benchmarks/gpu_session.py --out DIR --limit 560 --commit HASH         all parts, in order of worth
    python benchmarks/gpu_session.py --out DIR2 --limit 560 --resume DIR         goes on where DIR stopped
    python benchmarks/gpu_session.py --out DIR --part ladder checks              only these parts
    python benchmarks/gpu_session.py --out DIR --report                          tables and plots of DIR's rows again
    python benchmarks/gpu_session.py --out DIR --tiny                            on the emulator, at tiny sizes

Parts: `ladder` (the smallest correct things, one feature more on each rung), `checks` (everything against float64),
`rates` (what the cycle model assumes), `gemm`, `attention`, `memory` (times beside cuBLAS and Triton). Bf16 8192^3 is
timed first of all. Each part has a share of the time at first; what is left over then goes to what did not fit.

In DIR: rows.json, every row as it comes, by part and name; log.txt; session.json and summary.txt at the end, and three
plots. The work is done in a process of its own, which this one starts again after a hang, a crash or a dead context,
and ends in time to write. `--again` drops rows that failed or were wrong, so that they run once more. Rows of times
that another kind of chip gave are dropped. Works where wavedsl is not installed and where there is no git.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent))

import units

HERE = Path(__file__).resolve().parent


def _linked() -> str:
    """A folder to import wavedsl from where it is not installed, laid out as pyproject.toml says."""
    folder = Path(tempfile.mkdtemp(prefix="wavedsl-"))
    package = folder / "wavedsl"
    package.mkdir()
    for file in (HERE.parent / "wavedsl").iterdir():
        (package / file.name).symlink_to(file)
    for name in ("ir", "tracer", "codegen", "runtime"):
        (package / name).symlink_to(HERE.parent / name)
    return str(folder)


def _importable() -> bool:
    try:
        return importlib.util.find_spec("wavedsl.ir") is not None
    except ImportError:
        return False


if not _importable():
    _folder = _linked()
    sys.path.insert(0, _folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_folder, os.environ.get("PYTHONPATH"))))

PARTS = ("ladder", "checks", "rates", "gemm", "attention", "memory")
SHARES = {"ladder": 0.12, "checks": 0.3, "rates": 0.08, "gemm": 0.24, "attention": 0.14, "memory": 0.14}
"""Of the time of a call, that a part may take before the others have had their turn."""
TIMED = ("gemm", "attention", "memory", "rates")
WORTH = {"squares bf16": 0, "fp8": 1, "squares f16": 2, "depths": 3}
"""The order of products."""
ATTENTION = [(d, n, causal) for d in (128, 64, 256) for n in (4096, 16384, 8192, 2048) for causal in (True, False)]
"""Head sizes, keys, and whether masked, in this order."""
RESERVE = 15.0
"""Seconds in which tables and plots are written."""
AGAIN = 75
"""Exit status of a worker that is to be started again."""
LAUNCHES, LAUNCHES_LIMIT = "launch.json", 60
"""The file with host times of launches, and seconds that they may take."""
LAST = 2.0
"""Seconds by which a unit may overrun its limit before its process is ended from outside."""


class Part:
    """`Units` under a part's name, so that two parts never have one key."""

    def __init__(self, done: Any, name: str):
        self.done, self.name = done, name

    def run(self, key: str, row: dict[str, Any], work: Any, limit: Any = None, kinds: Sequence[str] = ("",)) -> Any:
        return self.done.run(f"{self.name}: {key}", row, work, limit, [kind or self.name for kind in kinds])


# -------------------------------------------------------------------------------------------------------------- stages


class Session:
    """The parts' rows out of `done`: measured where it is `Units`, looked up where it is `Kept`."""

    def __init__(self, done: Any, torch: Any, tiny: str | None, chip: str | None):
        from on_gpu import Space

        self.done, self.torch, self.tiny, self.chip = done, torch, tiny, chip
        self.space = Space(torch)
        self.space.random = np.random.default_rng()

    @property
    def target(self) -> str:
        if self.torch is None:
            return self.tiny or "sm_90a"
        return "sm_90a" if self.torch.cuda.get_device_capability()[0] == 9 else "sm_80"

    def ladder(self) -> list[dict[str, Any]]:
        import ladder

        return ladder.run_ladder(Part(self.done, "ladder"), self.space)

    def checks(self) -> list[dict[str, Any]]:
        import gemm_checks
        import gpu_attention
        import gpu_memory_bound as memory
        import launch_checks
        import memory_bound_cases

        part, tiny = Part(self.done, "checks"), bool(self.tiny)
        rows = gemm_checks.run_checks(part, self.space, gemm_checks.CHECKS, tiny)
        rows += launch_checks.run_checks(part, self.space, not tiny)
        for case in memory_bound_cases.CASES:
            for size in (case.tiny if tiny else case.sizes)[:1]:
                row = memory.run_case(part, self.space, case, size, False, None)
                rows.append({"check": f"memory {case.name}", **row})
        word = "d 64" if tiny else None
        seed = int.from_bytes(os.urandom(3), "little")
        place = gpu_attention.Place(self.torch)
        found = gpu_attention.run_checks(part, place, self.target, seed, tiny, word)
        return rows + [{**r, "error": math.inf if r["wrong"] else 0.0} if "wrong" in r else r for r in found]

    def rates(self) -> list[dict[str, Any]]:
        import gpu_rates
        from rate_probes import PROBES

        if self.tiny:
            return []
        chip: list[Any] = []

        def run(probe: Any) -> list[float]:
            if not chip:
                from wavedsl.runtime import devices

                chip.append(gpu_rates.Chip(devices.open_driver("cuda", 0)))
            return chip[0].measured(probe)

        return gpu_rates.rows(PROBES, run, gpu_rates.model_of(self.chip or ""), Part(self.done, "rates"))

    def gemm(self) -> list[dict[str, Any]]:
        import gemm_cases
        import gpu_gemm

        every = [(c, size) for c in gemm_cases.CASES for size in (c.tiny if self.tiny else c.sizes)]
        worth = {case.name: WORTH.get(case.name, len(WORTH)) for case in gemm_cases.CASES}
        every.sort(key=lambda x: (x[1] != (8192, 8192, 8192) or worth[x[0].name] > 1, worth[x[0].name]))
        product = gpu_gemm.product_called(self.chip or "")
        part = Part(self.done, "gemm")
        return [gpu_gemm.run_case(part, self.space, c, size, bool(self.tiny), product) for c, size in every]

    def attention(self) -> list[dict[str, Any]]:
        import gpu_attention

        if self.tiny:
            return []
        place = gpu_attention.Place(self.torch)
        with contextlib.redirect_stdout(sys.stderr):
            tutorial = None if self.torch is None else gpu_attention.tutorial_at(None)
            return gpu_attention.measure(place, self.target, ATTENTION, tutorial, Part(self.done, "attention"))

    def memory(self) -> list[dict[str, Any]]:
        import gpu_memory_bound
        import memory_bound_cases

        part = Part(self.done, "memory")
        return gpu_memory_bound.run_cases(part, self.space, memory_bound_cases.CASES, not self.tiny, bool(self.tiny))


def environment(torch: Any, commit: str) -> dict[str, Any]:
    """Machine, driver and versions; `commit` where the caller knows it."""
    import record

    found = record.surroundings(commit)
    for name in ("cuda-bindings", "torch", "triton"):
        found["versions"][name] = record._version(name)
    found["gpu"] = {"name": "emulator"} if torch is None else record.gpu(torch)
    return found


# -------------------------------------------------------------------------------------------------------------- worker


def work(given: argparse.Namespace) -> int:
    """Run the parts: in turn, each within its share, then again what did not fit."""
    torch = None
    if given.tiny:
        os.environ["WAVEDSL_DEVICE"] = f"emulator:{given.tiny}"
    else:
        import torch

        torch.cuda.synchronize()
    done = units.Units(
        given.out / "rows.json", budget=given.limit, resume=True, alive=units.alive(torch),
        again=functools.partial(os._exit, AGAIN),
    )  # fmt: skip
    here = done.run(f"environment {given.call}", {}, functools.partial(environment, torch, given.commit), 60)
    chip = here.get("gpu", {}).get("name")
    gone = done.forget(lambda key, row: key.split(":")[0] in TIMED and row.get("chip", chip) != chip)
    if gone:
        print(f"{gone} rows of times of another chip are measured again", file=sys.stderr)
    session = Session(Chips(done, chip), torch, given.tiny, chip)
    for share in (True, False):
        for name in given.part:
            print(f"-- {name}", file=sys.stderr, flush=True)
            with done.part(name, SHARES[name] * given.limit if share else None):
                getattr(session, name)()
        if not done.left_out:
            break
    return 0


class Chips:
    """`Units` whose rows say on which chip they were measured."""

    def __init__(self, done: units.Units, chip: str | None):
        self.done, self.chip = done, chip

    def run(self, key: str, row: dict[str, Any], work: Callable[[], dict[str, Any]], *more: Any) -> dict[str, Any]:
        return self.done.run(key, row, lambda: {**work(), "chip": self.chip}, *more)


# ---------------------------------------------------------------------------------------------------------- supervisor


def supervise(command: Sequence[str], kept: Path, log: Path, end: float) -> str:
    """Start the worker until it is through or time is up, again after each unit that ended it; why it is over."""
    same, before = 0, ""
    while time.time() < end:
        with open(log, "a") as out:
            started = time.time()
            child = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
            while child.poll() is None:
                time.sleep(0.1)
                if time.time() > end or overdue(kept, started):
                    child.kill()  # the driver ends what runs on the GPU; the file says which unit it was
                    child.wait()
        if child.returncode == 0:
            return "all parts ran"
        now = kept.read_text() if kept.exists() else ""
        same, before = (same + 1 if now == before else 0), now
        if same >= 2:
            return f"the worker ends before its first unit (status {child.returncode}): see {log.name}"
    return "the time was used up"


def overdue(kept: Path, started: float) -> bool:
    """Whether the unit that runs has outlived its limit, its own process, which `started` then, not having noticed."""
    with contextlib.suppress(OSError, ValueError):
        running = json.loads(kept.read_text()).get("running")
        if running and running["since"] > started:  # else it is what ended the process before
            return time.time() > running["since"] + running["limit"] + LAST
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--limit", type=float, default=560.0, metavar="SECONDS", help="wall time of the call (560)")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="of an earlier call, whose rows stay")
    parser.add_argument("--again", action="store_true", help="but those that failed or were wrong")
    parser.add_argument("--commit", default="", metavar="HASH", help="what is measured, where there is no git")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--tiny", nargs="?", const="sm_90a", metavar="TARGET", help="on the emulator, at tiny sizes")
    parser.add_argument("--report", action="store_true", help="only tables and plots of the rows that are there")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--call", default="", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.worker:
        return work(given)
    began = time.time()
    given.out.mkdir(parents=True, exist_ok=True)
    kept, why = given.out / "rows.json", "report"
    if not given.report:
        prepare(kept, given.resume, given.again)
        options = [f"--out={given.out}", f"--limit={max(1.0, given.limit - RESERVE):g}", "--part", *given.part]
        options += [f"--commit={given.commit}", f"--call={began:.0f}"]
        options += [f"--tiny={given.tiny}"] if given.tiny else []
        command = [sys.executable, str(Path(__file__).resolve()), "--worker", *options]
        import ahead

        if "checks" in given.part and not given.tiny:
            time_launches(given.out, given.resume, given.commit)
        with ahead.beside(given.out / "log.txt", given.part, ahead.gpu_at_hand(), 0 if given.tiny else None):
            why = supervise(command, kept, given.out / "log.txt", began + given.limit - RESERVE)
    said = report(given.out, why)
    print(said)
    return 0


def time_launches(out: Path, resume: Path | None, commit: str) -> None:
    """Host time of launches (`gpu_launch.py`), while nothing else runs yet; once, be it in an earlier call."""
    kept = out / LAUNCHES
    if resume is not None and (resume / LAUNCHES).exists() and not kept.exists():
        shutil.copy(resume / LAUNCHES, kept)
    if kept.exists():
        return
    command = [sys.executable, str(HERE / "gpu_launch.py"), f"--out={kept}", f"--commit={commit}"]
    with open(out / "log.txt", "a") as log, contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(command, stdout=log, stderr=log, timeout=LAUNCHES_LIMIT, check=False)


def prepare(kept: Path, resume: Path | None, again: bool) -> None:
    """The rows to go on with: of the folder `resume`, or of an earlier call into the same one; new counts and time."""
    source = (resume / "rows.json") if resume is not None else kept
    if source.exists() and source.resolve() != kept.resolve():
        shutil.copy(source, kept)
    if not kept.exists():
        return
    state = json.loads(kept.read_text())
    running = state.get("running")
    if running:  # what was running when time was up has no verdict
        state["rows"].pop(running["key"], None)
    rows = {k: r for k, r in state["rows"].items() if not (again and _bad(r))}
    kept.write_text(json.dumps({"rows": rows, "again": False, "running": None}))


def _bad(row: dict[str, Any]) -> bool:
    return "failed" in row or bool(row.get("wrong")) or not row.get("error", 0.0) <= 1


# -------------------------------------------------------------------------------------------------------------- report


def report(out: Path, why: str) -> str:
    """Write session.json, summary.txt and plots out of the rows; the summary."""
    kept = out / "rows.json"
    rows = json.loads(kept.read_text())["rows"] if kept.exists() else {}
    places = [row for key, row in rows.items() if key.startswith("environment")]
    chip = next((p["gpu"]["name"] for p in reversed(places) if "gpu" in p), None)
    tiny = "sm_90a" if chip == "emulator" else None
    session = Session(units.Kept(rows), None, tiny, chip)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere), contextlib.redirect_stdout(nowhere):
        found = {name: getattr(session, name)() for name in PARTS}
    launches = json.loads((out / LAUNCHES).read_text())["rows"] if (out / LAUNCHES).exists() else []
    lines = list(summary(found, why, chip, launches))
    said = "\n".join(lines)
    (out / "summary.txt").write_text(said + "\n")
    whole = {"environment": places, "over": why, **found, "launches": launches}
    (out / "session.json").write_text(json.dumps(whole, indent=1, default=str) + "\n")
    for name in ("gemm", "attention", "memory"):
        with contextlib.suppress(Exception):  # no matplotlib, or nothing measured: the tables are there
            draw(name, found[name], out / f"{name}.png")
    return said


def draw(name: str, rows: Sequence[dict[str, Any]], path: Path) -> None:
    import gpu_attention
    import gpu_gemm
    import gpu_memory_bound

    plot = {"gemm": gpu_gemm.plot, "attention": gpu_attention.plot, "memory": gpu_memory_bound.plot}[name]
    measured = [row for row in rows if "wavedsl" in row.get("seconds", row)]
    if measured:
        plot(measured, path)


def summary(
    found: dict[str, list[dict[str, Any]]], why: str, chip: str | None, launches: Sequence[dict[str, Any]]
) -> Iterator[str]:
    """What a reader wants first: what fails, and which lines of the goals are reached."""
    import gpu_memory_bound
    import ladder

    from wavedsl.reports import table

    yield f"{chip or 'no GPU'}: {why}"
    for name in ("ladder", "checks"):
        rows = found[name]
        ran = [r for r in rows if not str(r.get("failed", "")).startswith(("left out", "not measured"))]
        bad = [r for r in ran if not r.get("error", math.inf) <= 1]
        yield f"{name}: {len(ran) - len(bad)} of {len(rows)} right, {len(bad)} not, {len(rows) - len(ran)} not run"
        for row in bad[:20]:
            yield f"  NOT RIGHT: {row['check']}: {row.get('failed', row.get('error'))}"
    yield f"first rung to fail: {ladder.first_to_fail(found['ladder']) or 'none'}"
    rates = [r for r in found["rates"] if "measured" in r]
    yield f"rates: {len(rates)} of {len(found['rates'])} measured"
    for row in rates:
        if "model" in row:
            yield f"  {row['probe']}: {row['measured']:.4g} {row['unit']}, model {row['model']:.4g}"
    for row in launches:
        if "us" in row and ("limit_us" in row or (row["group"] == "driver" and row["call"].startswith("cuLaunch"))):
            limit = row.get("limit_us", math.inf)
            verdict = f" of {limit:g}, {'reached' if row['us'] <= limit else 'NOT REACHED'}" if limit < math.inf else ""
            yield f"launch: {row['call']}: {row['us']:.3g} us, least {row['least_us']:.3g}{verdict}"
    lines = [*gemm_criteria(found["gemm"]), *attention_criteria(found["attention"])]
    lines += gpu_memory_bound.criteria(found["memory"])
    body = [
        (what, of, value, least, "not measured" if value is None else "reached" if value >= least else "NOT REACHED")
        for what, of, value, least in lines
    ]
    yield table(("case", "of", "measured", "asked for", "verdict"), body)


def gemm_criteria(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, float | None, float]]:
    """The lines of the products' table: the least ratio of a case's sizes, and its mean where one is asked."""
    import statistics

    import gemm_cases

    found: list[tuple[str, str, float | None, float]] = []
    for case in gemm_cases.CASES:
        ratios = [row.get("of_cublas") for row in rows if row["case"] == case.name]
        known = [r for r in ratios if r]
        whole = bool(known) and len(known) == len(ratios)
        of = f"cuBLAS, least of {len(ratios)} ({len(known)} measured)"
        found.append((case.name, of, min(known) if whole else None, case.least))
        if case.least_mean:
            mean = statistics.geometric_mean(known) if whole else None
            found.append((case.name, "cuBLAS, geometric mean", mean, case.least_mean))
    judged = [row["of_triton"] >= gemm_cases.TRITON_RATIO or (row["of_roofline"] or 0.0) >= gemm_cases.ROOFLINE_SHARE
              for row in rows if row.get("of_triton")]  # fmt: skip
    share = sum(judged) / len(judged) if judged and len(judged) == len(rows) else None
    found.append(("every product", "1.05 x Triton or 92 % of roofline: share of cases", share, 1.0))
    return found


def attention_criteria(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, float | None, float]]:
    """The least ratio to the best rival, forward and backward."""
    import gpu_memory_bound

    found: list[tuple[str, str, float | None, float]] = []
    for gradients in (False, True):
        ratios = [gpu_memory_bound.ratio(r, ("cudnn", "flash", "triton")) for r in rows if r["gradients"] is gradients]
        known = [r for r in ratios if r]
        what = "attention, gradients" if gradients else "attention, forward"
        of = f"best rival, least of {len(ratios)} ({len(known)} measured)"
        found.append((what, of, min(known) if known and len(known) == len(ratios) else None, 1.0))
    return found


if __name__ == "__main__":
    sys.exit(main())
