"""A process pool that survives its tasks: one that crashes or hangs costs its worker, and nobody else notices.

`concurrent.futures.ProcessPoolExecutor` is broken for good by one crash and cannot stop a task. `WorkerPool` is an
`Executor` too, with a process per worker, a deadline per task, and a new process in the place of a lost one. A task
that crashed raises `WorkerCrash` from its future, one over its deadline `TimeoutError`.

Workers are forked where the system can, so that they know what this process knows; they must not touch a GPU that this
process uses.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import queue
import signal
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

_STARTING = threading.Lock()
"""One start at a time: a worker that is forked between another's pipe and its fork would hold that one's end of it, and
a crash of the other would not be seen."""


class WorkerCrash(RuntimeError):
    """A worker process ended while it worked on a task."""


class Stopped(RuntimeError):
    """A task that `WorkerPool.stop` ended."""


class WorkerPool(Executor):
    """`workers` processes (default: one per core); `timeout` seconds per task, None for no limit."""

    def __init__(self, workers: int | None = None, timeout: float | None = None):
        count = workers or os.cpu_count() or 1
        self.timeout = timeout
        self._forks = "fork" in multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context("fork" if self._forks else "spawn")
        self._tasks: queue.SimpleQueue[tuple[Future, Callable[..., Any], tuple, dict] | None] = queue.SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        self._running: dict[Future, Any] = {}
        self._stopped: set[Future] = set()
        self._halted = False
        workers_now = [self._start() for _ in range(count)]  # before there are threads to fork around
        self._threads = [threading.Thread(target=self._serve, args=w, daemon=True) for w in workers_now]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """A future of `fn(*args, **kwargs)`. What of it or of its result cannot be pickled ends it in a TypeError."""
        if self._closed:
            raise RuntimeError("the pool is shut down")
        future: Future = Future()
        self._tasks.put((future, fn, args, kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers after the tasks that were submitted, or with `cancel_futures` after those that run."""
        self._closed = True
        if cancel_futures:
            while True:
                try:
                    item = self._tasks.get_nowait()
                except queue.Empty:
                    break
                if item is not None and item[0].cancel():
                    item[0].set_running_or_notify_cancel()  # so that those who wait for it are told
        for _ in self._threads:
            self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def stop(self, future: Future | None = None) -> None:
        """End a task that runs at once, which raises `Stopped` from its future. Without one: all of them, for good."""
        with self._lock:
            self._halted = self._halted or future is None
            for running, process in list(self._running.items()):
                if future is None or running is future:
                    self._stopped.add(running)
                    process.kill()

    def _start(self) -> tuple[Any, Any]:
        with _STARTING:
            ours, theirs = self._context.Pipe()
            # A forked worker has our end as well, and would never see the last of us if it kept it.
            process = self._context.Process(target=_work, args=(theirs, ours if self._forks else None), daemon=True)
            with warnings.catch_warnings():
                # Python warns of forks beside threads, from 3.15 on by an exception where warnings are errors. A worker
                # that a lock of theirs holds up is stopped as others are, and only a fork knows a notebook's kernels.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
        return process, ours

    def _serve(self, process: Any, pipe: Any) -> None:
        while True:
            item = self._tasks.get()
            if item is None:
                break
            future, fn, args, kwargs = item
            if not future.set_running_or_notify_cancel():
                continue
            with self._lock:
                self._running[future] = process
            if self._halted:
                self.stop(future)
            try:
                pipe.send((fn, args, kwargs))
                answer = pipe.recv() if pipe.poll(self.timeout) else None
                if answer is not None and not self._ended(future):
                    good, value = answer
                    future.set_result(value) if good else future.set_exception(value)
                    continue
                if answer is None and not self._ended(future):
                    future.set_exception(TimeoutError(f"stopped after {self.timeout:g} s"))
                else:
                    future.set_exception(Stopped("it was stopped"))
            except (EOFError, OSError):
                process.join(1)
                lost = WorkerCrash(f"the worker ended with status {process.exitcode}")
                future.set_exception(Stopped("it was stopped") if self._ended(future) else lost)
            except Exception as error:  # the worker has not seen it
                self._ended(future)
                unsent = TypeError(f"the task cannot be pickled: {type(error).__name__}: {error}")
                unsent.__cause__ = error
                future.set_exception(unsent)
                continue
            _end(process, pipe)
            if self._halted:
                return
            process, pipe = self._start()
        try:
            pipe.send(None)
            process.join(1)
        except OSError:
            pass
        _end(process, pipe)

    def _ended(self, future: Future) -> bool:
        """Take the task off the list of those that run; whether it was stopped, and its process with it."""
        with self._lock:
            self._running.pop(future, None)
            stopped = future in self._stopped
            self._stopped.discard(future)
            return stopped


def _end(process: Any, pipe: Any) -> None:
    if process.is_alive():
        process.kill()
        process.join()
    pipe.close()


def _work(pipe: Any, other_end: Any) -> None:
    """The worker: tasks in, results or exceptions out, until None or the other side is gone. Workers that were forked
    before hold no end of this pipe, so the ends of the latest go first, and all see theirs. A terminal's Ctrl-C is for
    the process that tunes, which ends its workers."""
    with contextlib.suppress(ValueError):  # only the main thread of a fork may
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if other_end is not None:
        other_end.close()
    gc.freeze()  # what it was forked with stays as long as it does, and collections need not look at it
    while True:
        try:
            item = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        if item is None:
            os._exit(0)
        fn, args, kwargs = item
        try:
            answer = (True, fn(*args, **kwargs))
        except BaseException as error:
            answer = (False, error)
        try:
            pipe.send(answer)
        except Exception as error:
            said = f"{answer[1]!r} cannot be pickled: {type(error).__name__}: {error}"
            pipe.send((False, TypeError(said)))
