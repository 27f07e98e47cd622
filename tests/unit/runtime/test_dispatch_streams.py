"""Whose stream calls run on, and calls of several threads, devices and contexts."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from scenarios import N_ITEMS, There, main, run_there
from selected import slow_but


def streams_are_respected(there: There) -> None:
    log = Path(os.environ["STANDIN_LOG"])

    def used() -> list[str]:
        found = [
            line.split(" stream ")[1].split()[0] for line in log.read_text().splitlines() if "Kernel" in line
        ]
        log.write_text("")
        return found

    source, out, x, y = there.pair("dlpack")
    there.kernel(source, out, N_ITEMS)
    there.kernel(source, out, N_ITEMS)
    assert "torch" not in sys.modules and "cupy" not in sys.modules  # nothing is imported for its stream
    assert used() == ["(nil)"] * 2
    # Where the producer has no current stream, the default one is to wait for what it has under way.
    assert len(source.told) > 3 and set(source.told) == {1 if there.side == "cuda" else 0}
    numbers = [there.stream() for _ in range(3)]
    for name in ("torch", "cupy"):
        there.load(name)

    class Derived(there.arrays.Tensor):
        """A user's own class of tensors runs on torch's stream too."""

    Derived.__module__ = "mine"
    kinds = ["torch", "cupy"] if there.side == "cuda" else ["torch"]
    for kind in [*kinds, "derived"]:
        source, out, x, y = there.pair(kind if kind != "derived" else "torch")
        if kind == "derived":
            source.__class__ = out.__class__ = Derived
        package = "cupy" if kind == "cupy" else "torch"
        now = there.arrays.STREAMS
        now[package, 0] = numbers[0]
        there.kernel(source, out, N_ITEMS)
        bound = there.kernel.bind(source, out, N_ITEMS)
        if kind == "derived":  # it is read by DLPack, and is not to synchronise with its own stream
            assert set(source._exported.told) == {-1}
        for number in (numbers[1], 0, numbers[2], numbers[0]):
            now[package, 0] = number
            there.kernel(source, out, N_ITEMS)
            bound()
        wanted = [numbers[0], *[n for n in (numbers[1], 0, numbers[2], numbers[0]) for _ in range(2)]]
        assert used() == [f"{n:#x}" if n else "(nil)" for n in wanted], kind
        assert (y == 2 * x).all()
    if there.side == "cuda":  # an array that names its stream itself
        source, out, x, y = there.pair("interface")
        for number in (numbers[1], numbers[2]):
            source.stream = number
            there.kernel(source, out, N_ITEMS)
            there.kernel(source, out, N_ITEMS)
        assert used() == [f"{n:#x}" for n in (numbers[1], numbers[1], numbers[2], numbers[2])]


def threads_devices_and_contexts(there: There) -> None:
    """Eight threads on two devices, with streams and results of their own; contexts are left as they are found."""
    for name in ("torch", "cupy"):
        there.load(name)
    drivers = [there.driver(0), there.driver(1)]
    own = []
    if there.side == "cuda":
        with drivers[1].entered():  # this thread's context becomes the device's own primary one, and one on top
            own.append(there.own_context(drivers[1]))
            drivers[1]._call("cuCtxPopCurrent")
    for driver in drivers:
        slow_down(driver)
    jobs, errors = [], []
    for i in range(8):
        source, out, x, y = there.pair("torch" if i < 7 else there.kinds()[-1], index=i % 2)
        x[:] = 100 * i + np.arange(N_ITEMS)
        jobs.append((i, source, out, x, y))

    def work(i, source, out, x, y):
        try:
            driver = drivers[i % 2]
            context = None
            if there.side == "cuda" and i == 3:
                driver._call("cuCtxSetCurrent", own[0])
                context = own[0]
            if there.side == "hip" and i == 4:  # device 1 is current, the arrays are on device 0
                drivers[1]._call("hipSetDevice", 1)
                context = 1
            if there.side == "cuda" and i == 4:
                drivers[1]._call("cuCtxSetCurrent", drivers[1].context)
                context = int(drivers[1].context)
            bound = there.kernel.bind(source, out, N_ITEMS)
            for n in range(90):
                count = 1 + (37 * i + n) % N_ITEMS  # every call has another number: blocks are nobody else's
                y[:] = -1
                if n % 3:
                    there.kernel(source, out, count)
                    expected = np.where(np.arange(N_ITEMS) < count, 2 * x, -1)
                else:
                    bound()
                    expected = 2 * x
                assert (y == expected).all(), (i, n)
                if context is not None:
                    assert driver.current() == context
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    # A thread that stays on device 1 while its arrays are on device 0, and the other way round.
    for index in (0, 1):
        source, out, x, y = there.pair("torch", index=index)
        other = drivers[1 - index]
        if there.side == "cuda":
            other._call("cuCtxSetCurrent", other.context)
        else:
            other._call("hipSetDevice", 1 - index)
        before = other.current()
        # A thread has been on device 1 with arrays of device 0 already; with HIP all have begun on device 0.
        for long in (index if there.side == "cuda" else 0, 0, 0):
            there.called(source, out, N_ITEMS, long=long)
            assert other.current() == before and (y == 2 * x).all()
    if there.side == "cuda":  # arrays that do not say where they lie
        source, out, x, y = there.pair("interface", index=1)
        there.kernel(source, out, N_ITEMS)
        assert (y == 2 * x).all()


def slow_down(driver) -> None:
    """Let other threads have their turn when the parameters are written and the driver has not been called."""
    once = driver.prepared

    def prepared(*arguments):
        start = once(*arguments)

        def start_late(stream, grid):
            time.sleep(0)
            start(stream, grid)

        return start_late

    driver.prepared = prepared


SCENARIOS = (
    streams_are_respected,  # first: nothing has loaded a package yet
    threads_devices_and_contexts,
)


@pytest.mark.parametrize("side", slow_but(["cuda", "hip"], "cuda"))
def test_calls(side, standins, tmp_path):
    assert run_there(__file__, side, standins, tmp_path) == [f.__name__ for f in SCENARIOS]


if __name__ == "__main__":
    main(SCENARIOS)
