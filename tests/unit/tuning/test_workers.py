"""The worker pool: results, exceptions, and workers that are lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import CancelledError, wait
from pathlib import Path

import pytest

from wavedsl.tuning.workers import Stopped, WorkerCrash, WorkerPool


def square(x: int) -> int:
    return x * x


def leave(status: int) -> None:
    os._exit(status)


def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "awake"


def unpicklable() -> object:
    return lambda: 0


def pid() -> int:
    return os.getpid()


def test_results_and_exceptions_come_back():
    with WorkerPool(2) as pool:
        assert list(pool.map(square, range(20))) == [x * x for x in range(20)]
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result()
        assert pool.submit(pid).result() != os.getpid()


def test_a_crash_costs_one_task_and_no_other():
    with WorkerPool(2) as pool:
        lost = pool.submit(leave, 9)
        rest = [pool.submit(square, x) for x in range(10)]
        with pytest.raises(WorkerCrash, match="status 9"):
            lost.result(10)
        assert [f.result(10) for f in rest] == [x * x for x in range(10)]


def test_a_hanging_task_is_stopped():
    with WorkerPool(1, timeout=0.3) as pool:
        start = time.monotonic()
        stuck, after = pool.submit(sleep, 60), pool.submit(square, 3)
        with pytest.raises(TimeoutError, match=r"0\.3 s"):
            stuck.result(10)
        assert after.result(10) == 9
        assert time.monotonic() - start < 10


def test_what_cannot_travel_is_an_exception_of_its_task():
    with WorkerPool(1) as pool:
        with pytest.raises(TypeError, match=r"lambda.* cannot be pickled"):
            pool.submit(unpicklable).result(10)
        with pytest.raises(TypeError, match="the task cannot be pickled"):
            pool.submit(square, lambda: 0).result(10)
        assert pool.submit(square, 4).result(10) == 16


def test_shutdown_cancels_what_has_not_started_and_leaves_no_process():
    pool = WorkerPool(1)
    process = pool.submit(pid).result(10)
    running, waiting = pool.submit(sleep, 0.2), pool.submit(sleep, 60)
    while not running.running():
        time.sleep(0.01)
    pool.shutdown(wait=True, cancel_futures=True)
    assert running.result() == "awake"
    with pytest.raises(CancelledError):
        waiting.result(1)
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(square, 1)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert wait([waiting]).done


def test_a_task_that_is_stopped_costs_no_other():
    with WorkerPool(1) as pool:
        running, next_one = pool.submit(sleep, 60), pool.submit(square, 3)
        while not running.running():
            time.sleep(0.01)
        pool.stop(next_one)  # it does not run yet
        pool.stop(running)
        with pytest.raises(Stopped):
            running.result(10)
        assert next_one.result(10) == 9


def test_a_pool_that_is_stopped_waits_for_nothing():
    pool = WorkerPool(2)
    running = [pool.submit(sleep, 60) for _ in range(3)]
    while not running[1].running():
        time.sleep(0.01)
    began = time.monotonic()
    pool.stop()
    pool.shutdown(wait=True, cancel_futures=True)
    assert time.monotonic() - began < 20
    for future in running:
        with pytest.raises((Stopped, CancelledError)):
            future.result(1)


def test_workers_end_with_the_process_that_is_killed(tmp_path: Path):
    """It has no time to tell them: they see that nobody holds the other end of their pipes."""
    code = "from wavedsl.tuning.workers import WorkerPool; import os, time\n"
    code += "pool = WorkerPool(3)\n"
    code += (
        "print(*{pool.submit(time.sleep, 0.2) and pool.submit(os.getpid).result(10) for _ in range(9)}, flush=True)\n"
    )
    code += "os.kill(os.getpid(), 9)"
    with open(tmp_path / "said", "w") as said:  # not a pipe, which workers that stay would hold open
        assert subprocess.run([sys.executable, "-c", code], stdout=said, timeout=60).returncode == -9
    left, until = {int(p) for p in (tmp_path / "said").read_text().split()}, time.monotonic() + 20
    assert left
    while left and time.monotonic() < until:
        left = {p for p in left if _runs(p)}
        time.sleep(0.05)
    for process in left:
        os.kill(process, 9)
    assert not left


def _runs(process: int) -> bool:
    """Whether it exists, as more than an entry that nobody has asked for its status."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_pool_starts_beside_threads_where_warnings_are_errors():
    """Notebooks have threads; Python 3.15 raises what it says about forks beside them."""
    done = threading.Event()
    beside = threading.Thread(target=done.wait)
    beside.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with WorkerPool(1) as pool:
                assert pool.submit(square, 3).result(10) == 9
    finally:
        done.set()
        beside.join()
