"""Timing one candidate on a GPU, in a process of its own: a kernel that hangs or faults takes that process with it."""

from __future__ import annotations

import multiprocessing
from typing import Any

from wavedsl.tuning.work import Task
from wavedsl.tuning.workers import WorkerCrash


def time_candidate(task: Task, device: str, timeout: float) -> dict[str, Any]:
    """Median seconds of a launch on `device`. Raises WorkerCrash and TimeoutError.

    The process is spawned, not forked: a forked one would share this process's GPU context.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_time, args=(theirs, task, device), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(timeout):
            raise TimeoutError(f"no result after {timeout:g} s on {device}")
        try:
            good, value = ours.recv()
        except EOFError:
            process.join(1)
            raise WorkerCrash(f"the timing process ended with status {process.exitcode}") from None
        if not good:
            raise value
        return value
    finally:
        if process.is_alive():
            process.kill()
        process.join()
        ours.close()


def _time(pipe: Any, task: Task, device: str) -> None:
    try:
        pipe.send((True, measure(task, device)))
    except BaseException as error:
        pipe.send((False, error))


def measure(task: Task, device: str) -> dict[str, Any]:
    """Compile, put random arguments on the device, launch until the times are steady."""
    from wavedsl.find_kernel import make_arguments
    from wavedsl.runtime import devices
    from wavedsl.testing import bench_compiled

    values = task.symbols()
    compiled = task.compiled()
    arguments = make_arguments(task.kernel(), values, task.seed, False)
    times = bench_compiled(compiled, list(arguments.values()), devices.parse(device))
    return {"status": "ok", "seconds": times.median, "launches": times.count}
