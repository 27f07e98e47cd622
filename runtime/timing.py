"""Launch times on a GPU, by the device's own clock.

In: a compiled kernel, its arguments, a device. Out: seconds per launch. Host arrays are copied to the device once;
between launches the L2 cache is filled with something else, outside of what is timed. Outputs are not copied back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from wavedsl.ir.errors import LaunchError
from wavedsl.runtime import devices
from wavedsl.runtime.arrays import ArrayRef, covering_bytes
from wavedsl.runtime.devices import Device, Driver
from wavedsl.runtime.on_gpu import stream_of
from wavedsl.runtime.parameters import ParameterBlock
from wavedsl.runtime.prepare import Launchable, prepare
from wavedsl.runtime.workspace import borrow

FLUSH_BYTES = 256 << 20
"""More than any L2 (and MI300's Infinity Cache): clearing so much leaves none of a kernel's data behind."""
LEAST = 5
"""Launches that are timed at least."""


def time_events(
    driver: Driver,
    run: Callable[[], None],
    stream: int,
    warmup: float,
    seconds: float,
    flush: bool | Callable[[], Any] = True,
    count: int | None = None,
) -> list[float]:
    """Seconds of each call of `run`, which only starts work on `stream`. `count` calls, or as many as fit `seconds` by
    an estimate made while warming up for `warmup` seconds. `flush`: whether the L2 cache is cleared before each, or
    what is called in its place."""
    clears = flush is True
    buffer = driver.allocate(FLUSH_BYTES) if clears else 0
    try:
        run()
        driver.synchronize(stream)
        began, warm = time.perf_counter(), 0
        while warm == 0 or time.perf_counter() - began < warmup:
            run()
            driver.synchronize(stream)
            warm += 1
        each = (time.perf_counter() - began) / warm
        marks = []
        for _ in range(max(LEAST, int(seconds / each)) if count is None else count):
            if clears:
                driver.clear(buffer, FLUSH_BYTES, stream)
            elif callable(flush):
                flush()
            start = driver.event(stream)
            run()
            marks.append((start, driver.event(stream)))
        driver.synchronize(stream)
        return [driver.elapsed(start, end) for start, end in marks]
    finally:
        if clears:
            driver.free(buffer)


def time_launches(
    compiled: Launchable,
    values: Sequence[Any],
    device: Device,
    *,
    warmup: float = 0.025,
    seconds: float = 0.1,
    flush: bool = True,
    count: int | None = None,
) -> list[float]:
    """Seconds of launches of `compiled` on a GPU, as `time_events` counts them. Raises LaunchError for an emulator, and
    what a launch raises."""
    if device.kind == "emulator":
        raise LaunchError(
            "an emulator has no clock of its own", hint="time on cuda:N or hip:N; emulate for modelled clocks"
        )
    call = prepare(compiled, values)
    if 0 in call.grid:
        return []
    driver = devices.open_driver(device.kind, device.index)
    function = driver.load(compiled.asm, compiled.target, compiled.name, compiled.shared_bytes)
    copies: dict[int, int] = {}
    placed: dict[int, int] = {}
    try:
        if call.place[0] == "cpu":
            for i, value in enumerate(call.values):
                if isinstance(value, ArrayRef) and id(value) not in placed:
                    data = covering_bytes(value)
                    placed[id(value)] = driver.allocate(data.nbytes)
                    driver.upload(placed[id(value)], data)
                if isinstance(value, ArrayRef):
                    copies[i] = placed[id(value)]
        stream = stream_of(call)
        borrowed, _ = borrow(driver, call.values, stream)
        block = ParameterBlock(compiled.params, call.values, {**copies, **borrowed}, driver)
        return time_events(
            driver,
            lambda: driver.launch(function, call.grid, call.block, block.address, stream),
            stream,
            warmup,
            seconds,
            flush,
            count,
        )
    finally:
        for address in placed.values():
            driver.free(address)
