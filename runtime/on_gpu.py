"""Runs a prepared call on a GPU: on arrays that lie there, or on copies of host arrays.

`Bound` keeps everything for launching again. A launch that raises has left the arrays as they were, or its error names
those that are undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from wavedsl.ir.dataflow.device_log import SOURCE
from wavedsl.ir.errors import LaunchError
from wavedsl.runtime import arrays, devices, in_flight, streams
from wavedsl.runtime.arrays import ArrayRef, covering_bytes, view
from wavedsl.runtime.device_log import log_of, speak
from wavedsl.runtime.devices import Device, Driver
from wavedsl.runtime.dispatch import within
from wavedsl.runtime.parameters import ParameterBlock
from wavedsl.runtime.prepare import Call, Launchable, written_arrays
from wavedsl.runtime.workspace import Loan, Need, borrow, need_of
from wavedsl.runtime.workspace import of as workspaces_of


class Bound:
    """A kernel with its arguments, ready to be launched from any thread: `bound()`.

    The parameters, tensor maps among them, were written once. What differs from launch to launch is the stream and the
    thread's context, and each context gets ways into the driver of its own when it first comes. Arrays live as long as
    this object, then as `in_flight` has it.
    """

    def __init__(self, compiled: Launchable, call: Call, driver: Driver, values: Sequence[Any]):
        self._compiled = compiled
        self._call = call
        self._driver = driver
        self._grid = call.grid
        self._need = need_of(call.values)
        places = {} if self._need is None else dict.fromkeys((i for i, _, _ in self._need.places), 0)
        self._block = ParameterBlock(compiled.params, call.values, places, driver)
        self._idle: dict[int, list[Callable[[int, tuple[int, int, int]], Any]]] = {}
        self._kept = [value.keep for value in call.values if isinstance(value, ArrayRef)]
        ordered = all(streams.package_of(type(v)) for v in values if arrays.is_array(v))
        self._used: set[int] | None = None if ordered else set()
        self._stream = current_stream(call)
        self._current, self._capturing = driver.current, driver.capturing
        self._held = in_flight.of(driver)
        self._ways_for(driver.current())

    def __call__(self) -> None:
        stream = self._stream()
        context = self._current()
        idle = self._idle.get(context)
        if idle is None:
            idle = self._ways_for(context)
        try:
            start = idle.pop()
        except IndexError:  # every way is taken by a thread at this moment
            start = self._way(context)
        loan = start(stream, self._grid)
        idle.append(start)
        if stream > 1 and self._capturing(stream):
            self._held.hold_for_graph(stream, (self._kept, loan))
        elif self._used is not None:
            self._used.add(stream)

    def __del__(self) -> None:
        try:
            for stream in self._used or ():
                self._held.hold(stream, self._kept)
        except (AttributeError, LaunchError, TypeError):
            pass  # the stream is gone, and what it was given with it; or the interpreter goes

    def _ways_for(self, context: int) -> list[Callable[[int, tuple[int, int, int]], Any]]:
        """Idle ways into the driver for a thread in `context`."""
        return self._idle.setdefault(context, [self._way(context)])

    def _way(self, context: int) -> Callable[[int, tuple[int, int, int]], Any]:
        c, call, driver = self._compiled, self._call, self._driver
        function = driver.load(c.asm, c.target, c.name, c.shared_bytes)
        if self._need is None:
            return within(driver, function, call.block, self._block.address, context)
        return self._borrowing(self._need, function, context)

    def _borrowing(self, need: Need, function: Any, context: int) -> Callable[[int, tuple[int, int, int]], Loan]:
        """A way of a kernel with hidden arrays: each has parameters of its own, and they follow the stream."""
        call, driver = self._call, self._driver
        places = dict.fromkeys((i for i, _, _ in need.places), 0)
        block = ParameterBlock(self._compiled.params, call.values, places, driver)
        start = within(driver, function, call.block, block.address, context)
        lend = workspaces_of(driver).lend
        last = (0, 0)

        def borrow_and_start(stream: int, grid: tuple[int, int, int]) -> Loan:
            nonlocal last  # addresses: to keep the loan would keep it from the next graph
            loan = lend(stream, need)
            if (loan.counters, loan.sums) != last:
                for i, address in loan.addresses(need).items():
                    block.write(i, address)
                last = loan.counters, loan.sums
            start(stream, grid)
            return loan

        return borrow_and_start


def run_on_gpu(compiled: Launchable, call: Call, device: Device) -> None:
    """Launch on a GPU. Host arrays are copied there and, when the kernel has finished well, back."""
    driver = devices.open_driver(device.kind, device.index)
    function = driver.load(compiled.asm, compiled.target, compiled.name, compiled.shared_bytes)
    if call.place[0] != "cpu":
        if compiled.sites:
            _with_log_on_gpu(compiled, call, driver, function)
            return
        stream = stream_of(call)
        places, loan = borrow(driver, call.values, stream)
        block = ParameterBlock(compiled.params, call.values, places, driver)
        driver.launch(function, call.grid, call.block, block.address, stream)
        _keep(call, driver, stream, loan)
        return
    copies: dict[int, int] = {}
    placed: dict[int, int] = {}
    done: list[str] = []
    written = written_arrays(compiled, call)
    try:
        for i, value in enumerate(call.values):
            if isinstance(value, ArrayRef) and id(value) in placed:
                copies[i] = placed[id(value)]  # an array that is reached both by its pointer and by a tensor map
            elif isinstance(value, ArrayRef):
                data = covering_bytes(value)
                copies[i] = placed[id(value)] = driver.allocate(data.nbytes)
                driver.upload(copies[i], data)
        places, _ = borrow(driver, call.values, 0)
        block = ParameterBlock(compiled.params, call.values, {**copies, **places}, driver)
        driver.launch(function, call.grid, call.block, block.address, 0)
        driver.synchronize(0)
        for i, name, ref in written:
            _copy_back(driver, copies[i], ref)
            if compiled.params[i].source != SOURCE:
                done.append(name)
    except LaunchError as error:
        state = f"`{'`, `'.join(done)}` hold results, the other arguments" if done else "the arguments"
        raise LaunchError(f"{error.message}; {state} are as they were", compiled.location, error.hint) from error
    finally:
        _free(driver, copies)
    failures = speak(compiled, call)
    if failures:
        raise LaunchError(failures[0].message, failures[0].location)


def _keep(call: Call, driver: Driver, stream: int, loan: Loan | None) -> None:
    """See to it that the arrays of a launch live until it is done, and what it has borrowed with a graph."""
    kept = [value.keep for value in call.values if isinstance(value, ArrayRef)]
    given = [keep[0] if isinstance(keep, tuple) else keep for keep in kept]
    if stream > 1 and driver.capturing(stream):
        in_flight.of(driver).hold_for_graph(stream, (kept, loan))
    elif not all(streams.package_of(type(array)) for array in given):
        in_flight.of(driver).hold(stream, kept)


def _with_log_on_gpu(compiled: Launchable, call: Call, driver: Driver, function: Any) -> None:
    """Launch on arrays of the device, wait, and report what the kernel had to say."""
    at, log = log_of(compiled, call)
    stream = stream_of(call)
    if stream > 1 and driver.capturing(stream):
        raise LaunchError(
            f"{compiled.name} prints or asserts, and what it has to say is read when it has finished: "
            "its launch cannot be captured in a graph",
            compiled.location,
            "take device_print and device_assert out of kernels for graphs",
        )
    address = driver.allocate(log.nbytes)
    try:
        driver.upload(address, log)
        places, _ = borrow(driver, call.values, stream)
        block = ParameterBlock(compiled.params, call.values, {at: address, **places}, driver)
        driver.launch(function, call.grid, call.block, block.address, stream)
        driver.synchronize(stream)
        driver.download(log, address)
    finally:
        _free(driver, {at: address})
    failures = speak(compiled, call)
    if failures:
        raise LaunchError(failures[0].message, failures[0].location)


def _free(driver: Driver, copies: Mapping[int, int]) -> None:
    """Free device copies. After a failed launch the driver may refuse everything: the launch's error says why."""
    for address in dict.fromkeys(copies.values()):
        try:
            driver.free(address)
        except LaunchError:
            return


def _copy_back(driver: Driver, address: int, ref: ArrayRef) -> None:
    """Download an array's bytes and store its elements, and nothing between them."""
    low, high = ref.extent_bytes()
    data = np.empty(high - low, np.uint8)
    driver.download(data, address)
    ref.numpy()[...] = view(ref, data)


def stream_of(call: Call) -> int:
    """The current stream of the package that the arrays come from; the default stream if none has one."""
    for value in call.values:
        if isinstance(value, ArrayRef) and value.stream is not None:
            return value.stream
    return 0


def current_stream(call: Call) -> Callable[[], int]:
    """What gives `stream_of` a later call with the same arrays, whose package may have another current stream then."""
    for value in call.values:
        if isinstance(value, ArrayRef) and value.stream is not None:
            array = value.keep[0] if isinstance(value.keep, tuple) else value.keep
            now = streams.current_of(type(array), value.index)
            return now if now is not None else lambda stream=value.stream: stream  # type: ignore[misc]
    return lambda: 0
