"""Steps of candidates on an executor: as many at once as it takes, each with a time limit, until the time is up.

The executor is the user's, or our own `WorkerPool`; our own too once the user's broke. Ours stops what runs when the
time is up; the user's goes on with it, and its result is not waited for.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from wavedsl.codegen import is_amd
from wavedsl.ir.errors import ConstraintError
from wavedsl.tuning.candidates import Candidate
from wavedsl.tuning.work import Task
from wavedsl.tuning.workers import Stopped, WorkerCrash, WorkerPool

Outcome = dict[str, Any]
Step = Callable[[Task], Outcome]
Jobs = deque[tuple[Step, Candidate]]

SPENT = "the budget is spent"
"""Why a candidate was skipped."""
POLL = 0.2
"""Seconds between looks at the clock."""


class Pool:
    """The executor of a run. Leaving it ends our own processes at once."""

    def __init__(self, executor: Executor | None, workers: int | None, timeout: float, target: str):
        self.given = executor
        self.target = target
        self.workers, self.timeout = workers, timeout
        self.own: WorkerPool | None = None
        self.broken = False

    def __enter__(self) -> Pool:
        if self.given is None:
            self._open()
        return self

    def _open(self) -> WorkerPool:
        _load_compiler(self.target)
        self.own = WorkerPool(self.workers, self.timeout)
        return self.own

    def __exit__(self, *_: object) -> None:
        if self.own is not None:
            self.own.stop()
            self.own.shutdown(wait=True, cancel_futures=True)

    def submit(self, fn: Step, task: Task) -> Future:
        if self.given is not None and not self.broken:
            try:
                return self.given.submit(fn, task)
            except (BrokenExecutor, RuntimeError):
                self.broken = True
        return (self.own or self._open()).submit(fn, task)

    def give_up(self, future: Future) -> None:
        """Nobody waits for it any longer."""
        if not future.cancel() and self.own is not None:
            self.own.stop(future)

    @property
    def size(self) -> int:
        """Tasks to keep in flight: enough for any cluster, few enough to stop soon when the budget ends."""
        return 2 * (self.workers or os.cpu_count() or 1) if self.given is None or self.broken else 64

    def outcomes(
        self, jobs: Jobs, task: Callable[[Candidate], Task], until: Callable[[], float]
    ) -> Iterator[tuple[Step, Candidate, Outcome]]:
        """Outcomes as they come, one for every job; whoever takes them may add jobs. Past `until()`, a time of the
        monotonic clock, nothing new starts and what runs is given up."""
        running: dict[Future, tuple[Step, Candidate, float]] = {}
        retried: set[tuple[Step, Candidate]] = set()
        while jobs or running:
            while jobs and len(running) < self.size and time.monotonic() < until():
                step, c = jobs.popleft()
                running[self.submit(step, task(c))] = (step, c, time.monotonic())
            if running:
                wait(running, timeout=max(0.0, min(POLL, until() - time.monotonic())), return_when=FIRST_COMPLETED)
            for future in [f for f in running if f.done()]:
                step, c, _ = running.pop(future)
                outcome = outcome_of(future)
                if outcome is None:  # the whole executor broke: not this candidate's fault until it breaks again
                    self.broken = self.given is not None
                    if (step, c) not in retried:
                        retried.add((step, c))
                        jobs.append((step, c))
                        continue
                    outcome = {"status": "crashed", "reason": "its executor broke"}
                yield step, c, outcome
            now = time.monotonic()
            if now >= until():
                left = [(step, c) for step, c, _ in running.values()] + list(jobs)
                for future in running:
                    self.give_up(future)
                running.clear()
                jobs.clear()
                for step, c in left:
                    yield step, c, {"status": "skipped", "reason": SPENT}
            for future, (step, c, started) in list(running.items()):
                if self.own is None and future.running() and now - started > self.timeout + 1:
                    del running[future]
                    future.cancel()
                    yield step, c, {"status": "hung", "reason": f"no answer after {self.timeout:g} s"}


def outcome_of(future: Future) -> Outcome | None:
    """What became of a task; None where its executor broke."""
    try:
        return future.result()
    except BrokenExecutor:
        return None
    except (CancelledError, Stopped):
        return {"status": "skipped", "reason": "cancelled"}
    except WorkerCrash as error:
        return {"status": "crashed", "reason": str(error)}
    except (TimeoutError, FutureTimeout) as error:
        return {"status": "hung", "reason": str(error)}
    except ConstraintError:
        raise
    except Exception as error:
        return {"status": "crashed", "reason": f"{type(error).__name__}: {error}"}


def _load_compiler(target: str) -> None:
    """Import what workers need, so that forked ones have it."""
    import wavedsl.ir.evaluator.evaluate
    import wavedsl.ir.pipeline
    import wavedsl.runtime.launch

    if is_amd(target):
        import wavedsl.codegen.amdgcn.emit
        import wavedsl.runtime.emulator.amdgcn.emulator
    else:
        import wavedsl.codegen.ptx.emit
        import wavedsl.runtime.emulator.ptx.emulator  # noqa: F401
