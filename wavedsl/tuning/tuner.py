"""One tuning run: enumerate, estimate, compile in parallel, prune by the model, check, measure, choose, keep.

    space ── limits ──▶ candidates ── quick estimate ──▶ at most `limit` ── compile ──▶ predicted seconds
          ── the best `keep` share ──▶ checked on the emulator ──▶ measured ──▶ the fastest is pinned

Measuring is timing on the GPU at hand where one runs the target (`on_device`: its results are compared first), else the
emulator's cycle model of one workgroup, extended to the grid (`work.count_clocks`): the report says which. Compiling
ends in time for the rest (`COMPILE_SHARE`); where even so nothing is measured, the best predicted of the candidates
that passed their check is chosen. What is known goes to the results file now and then, at the end, and when the run is
interrupted, so that another goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import inspect
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from wavedsl.ir.called import door
from wavedsl.ir.errors import ConstraintError, TraceError
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import DYNAMIC, AddressSpace
from wavedsl.tuning.candidates import (
    Candidate,
    Estimate,
    check_space,
    derive_space,
    enumerate_space,
    estimates,
    worth_it,
)
from wavedsl.tuning.chip import chip_for
from wavedsl.tuning.kernel_ref import reference as kernel_reference
from wavedsl.tuning.merging import (
    BAD,
    BY_DEVICE,
    BY_HAND,
    BY_MODEL,
    Outcome,
    by_prediction,
    counted,
    fastest,
    likeliest,
    measured,
)
from wavedsl.tuning.misfits import Misfits
from wavedsl.tuning.on_device import Staging, time_candidate
from wavedsl.tuning.options import check_options
from wavedsl.tuning.outcome import TuningInterrupted, TuningResult
from wavedsl.tuning.parallel import SPENT, Jobs, Pool
from wavedsl.tuning.progress import Progress, make_progress
from wavedsl.tuning.results import ResultsFile, beside, environment
from wavedsl.tuning.work import Task, check_candidate, compile_candidate, count_clocks

COMPILE_SHARE = 0.6
"""Share of the budget after which no further candidate is compiled, as soon as there is one: the rest is for checks and
measurements, of which one of a large problem takes ten seconds on the emulator."""
SAVE_EVERY = 5.0
"""Seconds between writes of the results file while a run works; more where a write takes over a twentieth of that."""
AT_ONCE = 500
"""Candidates that are estimated between looks at the clock."""


@dataclass(frozen=True)
class Steps:
    """What is done to a candidate, each a picklable function of a `Task` that returns an outcome. `measure` is for the
    model: a device is timed by `on_device`."""

    compile: Callable[[Task], Outcome] = compile_candidate
    check: Callable[[Task], Outcome] = check_candidate
    measure: Callable[[Task], Outcome] = count_clocks


@door
def tune(
    kernel: Any,
    *args: Any,
    subs: Mapping[Any, Any] | None = None,
    space: Mapping[Any, Sequence[Any]] | None = None,
    target: str | None = None,
    product: str | Product | None = None,
    budget: float = 60.0,
    limit: int = 200,
    keep: float = 0.1,
    at_least: int = 5,
    executor: Executor | None = None,
    workers: int | None = None,
    timeout: float = 60.0,
    reference: Callable[..., Any] | None = None,
    results: str | Path | None = None,
    resume: bool = True,
    progress: bool | Progress | None = None,
    bucket: str | None = None,
    steps: Steps | None = None,
    **kwargs: Any,
) -> TuningResult:
    """Find the fastest candidate for these arguments (or the extents that `subs` binds), and pin it in the results
    file. Of a kernel with `@wd.autotune`, what the decorator says holds where nothing else is given.

    `space` maps tile symbols and choices of the schedule (`"stages"`, …) to values (default: derived from the
    constraints and the chip). `target`, `product`: the chip (default: the default device's); a GPU at hand of that
    kind is what is measured on. `budget`: seconds of wall time; `limit`: candidates that are compiled at most; `keep`:
    the share of them that runs, but `at_least` so many. `executor`: any `concurrent.futures` executor (default: own
    processes that survive crashes); `timeout`: seconds that one step of one candidate may take. `reference`: a function
    of the arguments by name that makes the right outputs in place (default: the graph evaluator). `results`: the file
    (default: beside the source). `resume`: whether what it holds counts; what another reference found wrong does not.

    A candidate that the compiler refuses, that crashes, hangs or is wrong is recorded with its reason and never chosen.
    Raises ConstraintError for options without meaning, an empty search space and extents without a value; LaunchError
    where the results file cannot be written; TuningInterrupted, a KeyboardInterrupt with the result so far, on Ctrl-C.
    """
    started = time.monotonic()
    given: dict[str, Any] = {
        "subs": subs, "space": space, "target": target, "product": product, "budget": budget, "limit": limit,
        "keep": keep, "at_least": at_least, "executor": executor, "workers": workers, "timeout": timeout,
        "reference": reference, "results": results, "resume": resume, "progress": progress, "bucket": bucket,
        "steps": steps,
    }  # fmt: skip
    if hasattr(kernel, "tune"):  # a TunedKernel: over its own options go those that are not the defaults
        return kernel.tune(*args, **{k: v for k, v in given.items() if v is not DEFAULTS[k]}, **kwargs)
    if not hasattr(kernel, "bind_arguments"):
        raise TraceError(f"tune takes a kernel, not {kernel!r}", hint="a function under @wd.wave(…)")
    check_options(given)
    run = _Run(kernel, args, kwargs, subs, target, product, space, limit, reference, results, bucket)
    run.steps = steps or Steps()
    run.started, run.budget, run.timeout = started, budget, timeout
    run.progress = make_progress(progress)
    try:
        if resume:
            run.take_over()
        if budget > 0:
            with Pool(executor, workers, timeout, run.chip.target.name) as pool:
                run.compile(pool)
                run.measure(pool, keep, at_least)
    except KeyboardInterrupt:
        raise TuningInterrupted(run.finish(interrupted=True)) from None
    finally:
        run.progress.close()
        run.save(force=True)
    return run.finish()


DEFAULTS: Mapping[str, Any] = inspect.unwrap(tune).__kwdefaults__ or {}
"""Of the options of `tune`, by name."""


class _Run:
    def __init__(
        self, kernel: Any, args: Any, kwargs: Any, subs: Any, target: str | None, product: Any, space: Any, limit: int,
        reference: Any, results: Any, bucket: str | None,
    ):  # fmt: skip
        self.kernel = kernel
        self.file = ResultsFile(results if results is not None else beside(kernel))
        self.file.check()
        self.chip = chip_for(target, product)
        self.by = BY_MODEL if self.chip.device is None else BY_DEVICE
        arguments = kernel.bind_arguments(args, kwargs) if args or kwargs else None
        self.dims, self.dynamic = tuned_extents(kernel, arguments, subs)
        if space is not None:
            self.space = check_space(kernel, space)
        else:
            self.space = derive_space(kernel, self.dims, self.chip.target, self.chip.product)
        if not self.space:
            raise ConstraintError(
                f"{kernel.name} leaves nothing to choose: the search space is empty",
                kernel.loc,
                hint="use symbols as tiles, such as wd.WorkgroupConstraint(M, BM, 0), or give a space={BM: [32, 64]}",
            )
        self.bucket = bucket if bucket is not None else kernel.bucket(self.dims)
        self.limit = limit
        self.reference = reference
        self.judge = _judge(reference)
        self.entries: dict[str, Outcome] = {}
        self.before: dict[str, Outcome] = {}
        self.resumed = False
        self.pinned: dict[str, Any] | None = None
        self.candidates: list[Candidate] = []
        self.steps = Steps()
        self.started = self.budget = 0.0
        self.timeout = 60.0
        self.progress = Progress()
        self.stamp = environment(kernel, self.chip.name, self.chip.said)
        self.saved, self.save_every, self.unsaved = time.monotonic(), SAVE_EVERY, False
        self.ref = kernel_reference(kernel)

    # ------------------------------------------------------------------------------------------------ what there is

    @property
    def place(self) -> tuple[Any, str, str, str]:
        """Where in the results file this run's bucket is."""
        return self.kernel, self.chip.target.name, self.chip.name, self.bucket

    def take_over(self) -> None:
        """Read what earlier runs found for this kernel, chip and bucket."""
        self.resumed = True
        entry = self.file.entry(*self.place)
        if entry is not None:
            self.before = dict(entry["runs"].get(self.by, {}).get("candidates", {}))
            self.pinned = entry["pinned"]

    def task(self, candidate: Candidate) -> Task:
        names = {n for n, _ in candidate.subs}
        dims = [(str(k), v) for k, v in self.dims.items() if isinstance(v, int) and str(k) not in names]
        spaces = [(str(k), v.name) for k, v in self.dims.items() if isinstance(v, AddressSpace)]
        return Task(
            self.ref, candidate, self.chip.target.name, self.chip.product, tuple(sorted(dims)), tuple(sorted(spaces)),
            tuple(str(d) for d in self.dynamic), self.reference,
        )  # fmt: skip

    # --------------------------------------------------------------------------------------------------------- time

    def end(self) -> float:
        return self.started + self.budget

    def compile_until(self) -> float:
        """When compiling ends: in time for what follows, but not before there is something that could follow."""
        return self.started + self.budget * (COMPILE_SHARE if self.compiled() else 1.0)

    def compiled(self) -> bool:
        return any(e["status"] == "ok" and e.get("predicted") is not None for e in self.entries.values())

    # -------------------------------------------------------------------------------------------------------- phases

    def estimated(self) -> list[Estimate]:
        """Every candidate judged before it is compiled, as far as the time goes."""
        candidates = enumerate_space(self.space)
        found: list[Estimate] = []
        for i in range(0, len(candidates), AT_ONCE):
            if i and time.monotonic() > self.compile_until():
                found += [Estimate(c, SPENT) for c in candidates[i:]]
                break
            here = candidates[i : i + AT_ONCE]
            found += estimates(self.kernel, here, self.dims, self.chip.target, self.chip.product)
        return worth_it(found)

    def compile(self, pool: Pool) -> None:
        """Estimate every candidate, compile the most promising, best first."""
        judged = self.estimated()
        good = sorted((e for e in judged if not e.reason), key=lambda e: (e.seconds, e.candidate))
        for e in judged:
            if e.reason:
                self.dismiss(e.candidate, e.reason)
        self.candidates = self.best_of(good)
        jobs: Jobs = deque()
        for c in self.candidates:
            known = self.before.get(c.key)
            if known is not None and known["status"] in BAD and self.counts(known):
                self.entries[c.key] = known
            elif known is not None and "predicted" in known:  # compiled; measured too where it has seconds
                told = {k: v for k, v in known.items() if k not in ("reason", "judge", "timeout")}
                self.entries[c.key] = told | {"status": "ok"}
            else:
                jobs.append((self.steps.compile, c))
        self.progress.stage("compile", len(jobs))
        for _, candidate, outcome in pool.outcomes(jobs, self.task, self.compile_until):
            self.note(candidate, outcome)
            self.progress.step()

    def counts(self, known: Outcome) -> bool:
        """Whether an earlier run's bad word on a candidate holds: another reference may judge otherwise, and one that
        took longer than a step might may take as long as it may now."""
        if known["status"] == "hung" and known.get("timeout", self.timeout) < self.timeout:
            return False
        return "predicted" not in known or known.get("judge", "") == self.judge

    def best_of(self, good: Sequence[Estimate]) -> list[Candidate]:
        """The first `limit` of the estimated candidates that the compiler would not refuse for their cuts."""
        misfits = Misfits(self.kernel, self.dims, self.dynamic, self.chip.target.name)
        found: list[Candidate] = []
        for e in good:
            if len(found) == self.limit:
                self.dismiss(e.candidate, f"not among the best {self.limit} by its tiles")
            elif time.monotonic() > self.compile_until():
                self.dismiss(e.candidate, SPENT)
            elif reason := misfits.reason(e.candidate):
                self.dismiss(e.candidate, reason)
            else:
                found.append(e.candidate)
        return found

    def measure(self, pool: Pool, keep: float, at_least: int) -> None:
        """Check and measure the best of the model's ranking, each as soon as it is found right, best first."""
        ranked = sorted(
            (c for c in self.candidates if self.entries[c.key]["status"] == "ok"
             and self.entries[c.key].get("predicted") is not None),
            key=lambda c: (*by_prediction(self.entries[c.key]), c),
        )  # fmt: skip
        few = max(at_least, ceil(keep * len(ranked)))
        for c in ranked[few:]:
            if self.entries[c.key].get("seconds") is None:
                self.note(c, {**self.entries[c.key], "status": "pruned", "reason": f"not among the model's best {few}"})
        chosen = [c for c in ranked[:few] if self.entries[c.key].get("seconds") is None]
        self.progress.stage("measure", len(chosen))
        with ExitStack() as stack:
            if self.by == BY_MODEL:
                self.by_model(pool, chosen)
            elif chosen:
                # What is staged lies on this machine, whatever machines the user's executor has.
                own = Pool(None, pool.workers, self.timeout, self.chip.target.name)
                near = pool if pool.given is None else stack.enter_context(own)
                self.on_device(pool, near, chosen, stack.enter_context(TemporaryDirectory(prefix="wavedsl-")))

    def by_model(self, pool: Pool, chosen: list[Candidate]) -> None:
        jobs = self.checks(chosen, self.steps.measure)
        for step, c, outcome in pool.outcomes(jobs, self.task, self.end):
            if step is self.steps.check and self.passed(c, outcome):
                jobs.appendleft((self.steps.measure, c))
                continue
            self.settle(c, outcome)

    def on_device(self, pool: Pool, near: Pool, chosen: list[Candidate], folder: str) -> None:
        """Check on the emulator, then compare and time on the device, one candidate after the other."""
        staging = Staging(folder)
        right = {c for c in chosen if self.entries[c.key].get("checked")}
        checks: Jobs = deque((self.steps.check, c) for c in chosen if c not in right)
        for _, c, outcome in pool.outcomes(checks, self.task, self.check_until):
            if self.passed(c, outcome):
                right.add(c)
            else:
                self.settle(c, outcome)
        jobs: Jobs = deque((staging, c) for c in chosen if c in right)
        for _, c, outcome in near.outcomes(jobs, self.task, self.end):
            left = self.end() - time.monotonic()
            if outcome["status"] == "ok" and left > 0:
                patience = min(left, self.timeout)
                timed = time_candidate(staging.path(self.task(c)), str(self.chip.device), patience)
                if timed["status"] == "hung" and patience < self.timeout:
                    timed = {"status": "skipped", "reason": SPENT}
                outcome = {**outcome, **timed}
            elif outcome["status"] == "ok":
                outcome = {"status": "skipped", "reason": SPENT}
            self.settle(c, outcome)

    def check_until(self) -> float:
        """When checks end where a device waits for what passes them: half of what is left is the device's."""
        return (self.started + COMPILE_SHARE * self.budget + self.end()) / 2

    def checks(self, chosen: list[Candidate], behind: Any) -> Jobs:
        """A check for every candidate, or what comes behind it for those that an earlier run has checked."""
        return deque((behind if self.entries[c.key].get("checked") else self.steps.check, c) for c in chosen)

    def passed(self, candidate: Candidate, outcome: Outcome) -> bool:
        if outcome["status"] != "ok":
            return False
        self.note(candidate, {**self.entries[candidate.key], **outcome, "checked": True})
        return True

    def settle(self, candidate: Candidate, outcome: Outcome) -> None:
        """The last word on a candidate of this run."""
        judge = {"judge": self.judge} if self.judge and outcome["status"] in BAD else {}
        self.note(candidate, {**self.entries[candidate.key], **outcome, **judge})
        self.progress.step(self.leader())

    # -------------------------------------------------------------------------------------------------------- results

    def dismiss(self, candidate: Candidate, reason: str) -> None:
        """Not worth a compile. The file has counts of such ones only."""
        status = "skipped" if reason == SPENT else "pruned"
        self.entries[candidate.key] = {"status": status, "reason": reason, **candidate.to_json()}

    def note(self, candidate: Candidate, outcome: Outcome) -> None:
        patience = {"timeout": self.timeout} if outcome["status"] == "hung" else {}
        self.entries[candidate.key] = {**outcome, **patience, **candidate.to_json()}
        self.unsaved = True
        self.save()

    def known(self) -> dict[str, Outcome]:
        """What of this run is worth keeping candidate by candidate, with what it went on from."""
        return {**self.before, **{k: e for k, e in self.entries.items() if e["status"] in BAD or "predicted" in e}}

    def best(self) -> tuple[Candidate | None, float | None]:
        """The fastest right candidate of this run, else the best predicted of those that passed their check, else what
        is pinned."""
        best = fastest(self.entries)
        if best is not None:
            return best, self.entries[best.key]["seconds"]
        best = likeliest(self.entries)
        if best is not None:
            return best, None
        return (None, None) if self.pinned is None else (Candidate.from_json(self.pinned), self.pinned.get("seconds"))

    def leader(self) -> str:
        from wavedsl.analysis.text import duration

        best, seconds = self.best()
        return f"{duration(seconds)} {best.key}" if best is not None and seconds is not None else ""

    def save(self, force: bool = False) -> None:
        """Merge what is new into the results file, now and then unless forced."""
        now = time.monotonic()
        if not self.unsaved or (now - self.saved < self.save_every and not force):
            return
        left_out = [e["reason"] for e in self.entries.values() if e["status"] not in BAD and "predicted" not in e]
        run = {"environment": self.stamp, "candidates": self.known(), "pruned": counted(left_out)}
        fresh = () if self.resumed else [k for k, e in self.entries.items() if measured(e)]
        self.pinned = self.file.write(*self.place, self.by, run, fresh)["pinned"]
        self.unsaved = False
        self.saved = time.monotonic()
        self.save_every = max(SAVE_EVERY, 20 * (self.saved - now))

    def finish(self, interrupted: bool = False) -> TuningResult:
        """What there is to say, with everything written."""
        best, seconds = self.best()  # before what is pinned is read again
        self.save(force=True)
        message = self.message(best, seconds)
        if interrupted:
            message = f"interrupted; {message}"
        pinned = None if self.pinned is None else Candidate.from_json(self.pinned)
        return TuningResult(
            self.kernel.name, self.chip.target.name, self.chip.name, self.bucket, best, seconds, self.by, message,
            self.file.path, {**self.before, **self.entries}, pinned,
        )  # fmt: skip

    def message(self, best: Candidate | None, seconds: float | None) -> str:
        """The choice and what it rests on; or why there is none, the budget first."""
        spent = any(e.get("reason") == SPENT for e in self.entries.values())
        if self.budget <= 0:
            kept = f"; {best.key} stays pinned" if best is not None else ""
            return f"a budget of {self.budget:g} s: nothing was tried{kept}"
        if best is None:
            others = {e.get("reason", "") for e in self.entries.values() if e["status"] not in ("pruned", "skipped")}
            others = others or {e.get("reason", "") for e in self.entries.values() if e.get("reason") != SPENT}
            reasons = "; ".join(sorted(r for r in others if r)[:3])
            if spent:
                told = f"the budget of {self.budget:g} s was spent before a candidate had compiled and passed its check"
                return f"{told} ({reasons})" if reasons else told
            known = any(e["status"] in BAD and e is self.before.get(k) for k, e in self.entries.items())
            again = " (as an earlier run found; resume=False, or --fresh, tries them again)" if known else ""
            return f"no candidate is usable: {reasons}{again}"
        how = "timed on " + (self.chip.said or self.chip.name)
        if self.by == BY_MODEL:
            how = "ranked by the emulator's cycle model, which is no measurement"
        if best.key not in self.entries:
            told = f"the budget of {self.budget:g} s is spent" if spent else "no other candidate is usable"
            return f"{best.key} stays pinned: {told}"
        if seconds is None:
            ended = (
                f"the budget of {self.budget:g} s was spent before any was measured" if spent else "none was measured"
            )
            how = f"the best predicted of the candidates that passed their check: {ended}"
        pinned = self.pinned
        if pinned is None or Candidate.from_json(pinned) == best:
            return f"pinned {best.key} ({how})"
        source = "by hand" if pinned.get("by") == BY_HAND else f"by {pinned.get('by')}"
        return f"the best is {best.key} ({how}); {Candidate.from_json(pinned).key} stays pinned, {source}"


def _judge(reference: Any) -> str:
    """The name of a user's reference and a digest of its source, empty for the graph evaluator."""
    if reference is None:
        return ""
    function = inspect.unwrap(getattr(reference, "func", reference))
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = ""
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{name} {hashlib.sha256(source.encode()).hexdigest()[:16]}"


def tuned_extents(kernel: Any, arguments: Any, subs: Any) -> tuple[dict[Any, Any], tuple[Any, ...]]:
    """A number for every dimension (also the run-time ones), and which are run-time arguments."""
    from wavedsl.tuning.candidates import tile_symbols

    dynamic = tuple(d for d in kernel.dynamic)
    merged = kernel.merged(subs)
    free = {s: 1 for s in tile_symbols(kernel) if s not in merged}
    binding = kernel.binding(arguments, {**free, **dict(subs or {})}, dynamic=[d for d in dynamic if d not in merged])
    dims = {k: v for k, v in {**binding.dims, **binding.extents}.items() if k not in free}
    missing = [str(k) for k, v in dims.items() if v is DYNAMIC]
    if missing:
        raise ConstraintError(
            f"{kernel.name}: {', '.join(missing)} has no extent to tune for",
            kernel.loc,
            hint=f"give one: subs={{{missing[0]}: …}}, or pass arrays",
        )
    return dims, dynamic
