"""One tuning run: enumerate, estimate, compile in parallel, prune by the model, check, measure, choose, keep.

    space ── limits ──▶ candidates ── quick estimate ──▶ at most `limit` ── compile ──▶ predicted seconds
          ── the best `keep` share ──▶ checked on the emulator ──▶ measured ──▶ the fastest is pinned

Measuring is timing on the device where the target is a GPU at hand, else the emulator's cycle model of one workgroup,
extended to the grid (`work.count_clocks`): the report says which. Every result is written to the results file as soon
as it is there, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from wavedsl.analysis.roofline import product_named
from wavedsl.ir.errors import ConstraintError, LaunchError
from wavedsl.ir.product import Product
from wavedsl.ir.symbols import DYNAMIC, AddressSpace
from wavedsl.tuning.candidates import Candidate, check_space, derive_space, enumerate_space, estimates
from wavedsl.tuning.kernel_ref import reference as kernel_reference
from wavedsl.tuning.progress import Progress, make_progress
from wavedsl.tuning.results import ResultsFile, beside, environment
from wavedsl.tuning.work import Task, check_candidate, compile_candidate, count_clocks
from wavedsl.tuning.workers import WorkerCrash, WorkerPool

BY_MODEL = "emulator cycle model"
BY_DEVICE = "device time"

Outcome = dict[str, Any]


@dataclass
class TuningResult:
    """What a run found. `best` is None where no candidate is right; `entries` has a dict per candidate key."""

    kernel: str
    target: str
    product: str
    bucket: str
    best: Candidate | None
    seconds: float | None
    by: str
    message: str
    path: Path
    entries: dict[str, Outcome] = field(default_factory=dict)

    def count(self, status: str) -> int:
        """Candidates with this status."""
        return sum(e["status"] == status for e in self.entries.values())

    def __str__(self) -> str:
        from wavedsl.analysis.text import duration
        from wavedsl.reports import table

        counts = {s: self.count(s) for s in ("ok", "pruned", "refused", "wrong", "crashed", "hung", "skipped")}
        said = ", ".join(f"{n} {s}" for s, n in counts.items() if n)
        lines = [f"{self.kernel} for {self.target} ({self.product}), {self.bucket}: {said or 'no candidates'}"]
        measured = sorted((e["seconds"], k) for k, e in self.entries.items() if e.get("seconds"))
        if measured:
            rows = [(k, duration(s), duration(self.entries[k].get("predicted") or s)) for s, k in measured[:5]]
            lines.append(table(("candidate", self.by, "roofline"), rows))
        lines.append(self.message)
        return "\n".join(lines)


@dataclass(frozen=True)
class Steps:
    """What is done to a candidate, each a picklable function of a `Task` that returns an outcome."""

    compile: Callable[[Task], Outcome] = compile_candidate
    check: Callable[[Task], Outcome] = check_candidate
    measure: Callable[[Task], Outcome] = count_clocks


def tune(
    kernel: Any,
    *args: Any,
    subs: Mapping[Any, Any] | None = None,
    space: Mapping[Any, Sequence[int]] | None = None,
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
    file.

    `space` maps tile symbols (and `"stages"`) to values (default: derived from the constraints and the chip). `budget`:
    seconds of wall time; `limit`: candidates that are compiled at most; `keep`: the share of them that runs, but
    `at_least` so many. `executor`: any `concurrent.futures` executor (default: own processes that survive crashes);
    `timeout`: seconds that one step of one candidate may take. `reference`: a function of the arguments by name that
    makes the right outputs in place (default: the graph evaluator). `results`: the file (default: beside the source).

    A candidate that the compiler refuses, that crashes, hangs or is wrong is recorded with its reason and never chosen.
    Raises ConstraintError for an empty search space and for extents without a value.
    """
    kernel = getattr(kernel, "kernel", kernel)
    run = _Run(kernel, args, kwargs, subs, target, product, space, limit, reference, results, bucket)
    run.steps = steps or Steps()
    run.deadline = time.monotonic() + budget
    run.timeout = timeout
    run.progress = make_progress(progress)
    try:
        if resume:
            run.take_over()
        if budget <= 0:
            return run.finish(f"a budget of {budget:g} s: nothing was tried")
        with _Pool(executor, workers, timeout, run.target.name) as pool:
            run.compile(pool)
            run.measure(pool, keep, at_least)
        return run.finish()
    finally:
        run.progress.close()
        run.save(force=True)


class _Pool:
    """The executor of a run: the user's, or our own; our own too once the user's broke."""

    def __init__(self, executor: Executor | None, workers: int | None, timeout: float, target: str):
        self.given = executor
        self.target = target
        self.workers, self.timeout = workers, timeout
        self.own: WorkerPool | None = None
        self.broken = False

    def __enter__(self) -> _Pool:
        if self.given is None:
            self._open()
        return self

    def _open(self) -> WorkerPool:
        _load_compiler(self.target)
        self.own = WorkerPool(self.workers, self.timeout)
        return self.own

    def __exit__(self, *_: object) -> None:
        if self.own is not None:
            self.own.shutdown(wait=True, cancel_futures=True)

    def submit(self, fn: Callable[..., Outcome], task: Task) -> Future:
        if self.given is not None and not self.broken:
            try:
                return self.given.submit(fn, task)
            except (BrokenExecutor, RuntimeError):
                self.broken = True
        return (self.own or self._open()).submit(fn, task)

    @property
    def size(self) -> int:
        """Tasks to keep in flight: enough for any cluster, few enough to stop soon when the budget ends."""
        return 2 * (self.workers or os.cpu_count() or 1) if self.given is None or self.broken else 64


def _load_compiler(target: str) -> None:
    """Import what workers need, so that forked ones have it."""
    import wavedsl.ir.evaluate
    import wavedsl.ir.pipeline
    import wavedsl.runtime.launch

    if target.startswith("gfx"):
        import wavedsl.codegen.amdgcn.emit
        import wavedsl.runtime.emulator.amdgcn
    else:
        import wavedsl.codegen.ptx.emit
        import wavedsl.runtime.emulator.ptx  # noqa: F401


class _Run:
    def __init__(
        self, kernel: Any, args: Any, kwargs: Any, subs: Any, target: str | None, product: Any, space: Any, limit: int,
        reference: Any, results: Any, bucket: str | None,
    ):  # fmt: skip
        from wavedsl.runtime import devices
        from wavedsl.targets import get_target

        self.kernel = kernel
        self.device = devices.default() if target is None and product is None else None
        if target is None:
            target = product_named(product).target if product is not None else devices.default().target
        self.target = get_target(target)
        self.product = product_named(product, target)
        arguments = kernel.bind_arguments(args, kwargs) if args or kwargs else None
        self.dims, self.dynamic = tuned_extents(kernel, arguments, subs)
        derived = derive_space(kernel, self.dims, self.target, self.product) if space is None else {}
        chosen = check_space(kernel, space) if space is not None else derived
        if not chosen:
            raise ConstraintError(
                f"{kernel.name} leaves nothing to choose: the search space is empty",
                kernel.loc,
                hint="use symbols as tiles, such as wd.WorkgroupConstraint(M, BM, 0), or give a space={BM: [32, 64]}",
            )
        self.space = chosen
        self.bucket = bucket if bucket is not None else kernel.bucket(self.dims)
        self.file = ResultsFile(results if results is not None else beside(kernel))
        self.limit = limit
        self.reference = reference
        self.entries: dict[str, Outcome] = {}
        self.before: dict[str, Outcome] = {}
        self.pinned: Candidate | None = None
        self.candidates: list[Candidate] = []
        self.by = BY_MODEL if self.device is None or self.device.kind == "emulator" else BY_DEVICE
        self.steps = Steps()
        self.deadline = 0.0
        self.timeout = 60.0
        self.progress = Progress()
        self.stamp = environment(kernel, self.product.name)
        self.saved = 0.0
        self.ref = kernel_reference(kernel)

    # ------------------------------------------------------------------------------------------------ what there is

    def take_over(self) -> None:
        """Read what earlier runs found for this kernel, target and bucket."""
        entry = self.file.entry(self.kernel, self.target.name, self.bucket)
        if entry is None:
            return
        if entry.get("by") == self.by and entry["environment"].get("product") == self.product.name:
            self.before = dict(entry["candidates"])
        if entry["pinned"] is not None:
            self.pinned = Candidate.from_json(entry["pinned"])

    def task(self, candidate: Candidate) -> Task:
        names = {n for n, _ in candidate.subs}
        dims = [(str(k), v) for k, v in self.dims.items() if isinstance(v, int) and str(k) not in names]
        spaces = [(str(k), v.name) for k, v in self.dims.items() if isinstance(v, AddressSpace)]
        return Task(
            self.ref, candidate, self.target.name, self.product, tuple(sorted(dims)), tuple(sorted(spaces)),
            tuple(str(d) for d in self.dynamic), self.reference,
        )  # fmt: skip

    # -------------------------------------------------------------------------------------------------------- phases

    def compile(self, pool: _Pool) -> None:
        """Estimate every candidate, compile the most promising."""
        judged = estimates(self.kernel, enumerate_space(self.space), self.dims, self.target, self.product)
        for e in judged:
            if e.reason:
                self.entries[e.candidate.key] = {"status": "pruned", "reason": e.reason, **e.candidate.to_json()}
        good = sorted((e for e in judged if not e.reason), key=lambda e: (e.seconds, e.candidate))
        for e in good[self.limit :]:
            self.note(e.candidate, {"status": "pruned", "reason": f"not among the best {self.limit} by its tiles"})
        self.candidates = [e.candidate for e in good[: self.limit]]
        todo = []
        for c in self.candidates:
            known = self.before.get(c.key)
            if known is not None and known["status"] in ("refused", "crashed", "hung", "wrong"):
                self.entries[c.key] = known
            elif known is not None and "predicted" in known:  # compiled; measured too where it has seconds
                self.entries[c.key] = {k: v for k, v in known.items() if k != "reason"} | {"status": "ok"}
            else:
                todo.append(c)
        self.progress.stage("compile", len(todo))
        for candidate, outcome in self.in_parallel(pool, self.steps.compile, todo):
            self.note(candidate, outcome)
            self.progress.step()

    def measure(self, pool: _Pool, keep: float, at_least: int) -> None:
        """Check and measure the best of the model's ranking."""
        ranked = sorted(
            (c for c in self.candidates if self.entries.get(c.key, {}).get("predicted") is not None
             and self.entries[c.key]["status"] == "ok"),
            key=lambda c: (*by_prediction(self.entries[c.key]), c),
        )  # fmt: skip
        few = max(at_least, ceil(keep * len(ranked)))
        for c in ranked[few:]:
            if self.entries[c.key].get("seconds") is None:
                self.note(c, {**self.entries[c.key], "status": "pruned", "reason": f"not among the model's best {few}"})
        chosen = [c for c in ranked[:few] if self.entries[c.key].get("seconds") is None]
        self.progress.stage("check", len(chosen))
        right = []
        for c, outcome in self.in_parallel(pool, self.steps.check, chosen):
            self.note(c, {**self.entries[c.key], **outcome})
            self.progress.step(self.leader())
            if outcome["status"] == "ok":
                right.append(c)
        right.sort(key=ranked.index)
        self.progress.stage("measure", len(right))
        for c, outcome in self.timed(pool, right):
            self.note(c, {**self.entries[c.key], **outcome})
            self.progress.step(self.leader())

    def timed(self, pool: _Pool, candidates: list[Candidate]) -> Iterator[tuple[Candidate, Outcome]]:
        if self.by == BY_MODEL:
            yield from self.in_parallel(pool, self.steps.measure, candidates)
            return
        from wavedsl.tuning.on_device import time_candidate

        for c in candidates:
            if time.monotonic() > self.deadline:
                yield c, {"status": "skipped", "reason": "the budget is spent"}
                continue
            try:
                yield c, time_candidate(self.task(c), str(self.device), self.timeout)
            except WorkerCrash as error:
                yield c, {"status": "crashed", "reason": str(error)}
            except (TimeoutError, FutureTimeout) as error:
                yield c, {"status": "hung", "reason": str(error)}
            except LaunchError as error:
                yield c, {"status": "crashed", "reason": error.message}

    def in_parallel(
        self, pool: _Pool, step: Callable[[Task], Outcome], candidates: list[Candidate]
    ) -> Iterator[tuple[Candidate, Outcome]]:
        """Outcomes as they come, every candidate once. Past the deadline nothing new starts."""
        waiting = list(reversed(candidates))
        running: dict[Future, tuple[Candidate, float]] = {}
        retried: set[str] = set()
        while waiting or running:
            while waiting and len(running) < pool.size and time.monotonic() < self.deadline:
                c = waiting.pop()
                running[pool.submit(step, self.task(c))] = (c, time.monotonic())
            if not running:
                for c in reversed(waiting):
                    yield c, {"status": "skipped", "reason": "the budget is spent"}
                return
            done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in done:
                c, _ = running.pop(future)
                outcome = _outcome(future)
                if outcome is None:  # the whole executor broke: not this candidate's fault until it breaks again
                    pool.broken = pool.given is not None
                    if c.key not in retried:
                        retried.add(c.key)
                        waiting.append(c)
                        continue
                    outcome = {"status": "crashed", "reason": "its executor broke"}
                yield c, outcome
            now = time.monotonic()
            for future, (c, started) in list(running.items()):
                if pool.own is None and future.running() and now - started > self.timeout + 1:
                    del running[future]
                    future.cancel()
                    yield c, {"status": "hung", "reason": f"no answer after {self.timeout:g} s"}
                elif now > self.deadline and future.cancel():
                    del running[future]
                    yield c, {"status": "skipped", "reason": "the budget is spent"}
                elif now > self.deadline + self.timeout:
                    del running[future]
                    yield c, {"status": "hung", "reason": f"no answer {self.timeout:g} s after the budget was spent"}

    # -------------------------------------------------------------------------------------------------------- results

    def note(self, candidate: Candidate, outcome: Outcome) -> None:
        self.entries[candidate.key] = {**outcome, **candidate.to_json()}
        self.save()

    def best(self) -> tuple[Candidate | None, float | None]:
        """The fastest right candidate; the earlier pinned one where this run measured none."""
        ranked = sorted(
            (e["seconds"], Candidate.from_json(e))
            for e in self.entries.values()
            if e["status"] == "ok" and e.get("seconds")
        )
        return (ranked[0][1], ranked[0][0]) if ranked else (self.pinned, None)

    def leader(self) -> str:
        from wavedsl.analysis.text import duration

        best, seconds = self.best()
        return f"{duration(seconds)} {best.key}" if best is not None and seconds is not None else ""

    def save(self, force: bool = False) -> None:
        """Write the results file, at most twice a second unless forced. Nothing known before is lost."""
        now = time.monotonic()
        merged = {**self.before, **self.entries}
        if not merged or (now - self.saved < 0.5 and not force):
            return
        self.saved = now
        best, seconds = self.best()
        entry = {
            "pinned": None if best is None else best.to_json(),
            "by": self.by,
            "seconds": seconds,
            "environment": self.stamp,
            "candidates": merged,
        }
        self.file.write(self.kernel, self.target.name, self.bucket, entry)

    def finish(self, message: str = "") -> TuningResult:
        best, seconds = self.best()
        note = "ranked by the emulator's cycle model, which is no measurement" if self.by == BY_MODEL else "timed"
        if not message and best is None:
            reasons = sorted({e.get("reason", "") for e in self.entries.values() if e["status"] != "pruned"})
            reasons = reasons or sorted({e.get("reason", "") for e in self.entries.values()})
            message = "no candidate is usable: " + "; ".join(reasons[:3])
        elif not message:
            message = f"pinned {best.key if best else ''} ({note})"
        entries = {**self.before, **self.entries}
        return TuningResult(
            self.kernel.name, self.target.name, self.product.name, self.bucket, best, seconds, self.by, message,
            self.file.path, entries,
        )  # fmt: skip


def by_prediction(entry: Outcome) -> tuple[float, float]:
    """The key by which the model ranks. Candidates that memory or shared memory holds up alike are told apart by what
    their units do."""
    return entry["predicted"], entry.get("issue_seconds", 0.0)


def _outcome(future: Future) -> Outcome | None:
    """What became of a task; None where its executor broke."""
    try:
        return future.result()
    except BrokenExecutor:
        return None
    except CancelledError:
        return {"status": "skipped", "reason": "cancelled"}
    except WorkerCrash as error:
        return {"status": "crashed", "reason": str(error)}
    except (TimeoutError, FutureTimeout) as error:
        return {"status": "hung", "reason": str(error)}
    except ConstraintError:
        raise
    except Exception as error:
        return {"status": "crashed", "reason": f"{type(error).__name__}: {error}"}


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
