"""Calls that have been made before: what they notice, whose stream they run on, how long arrays live, threads.

Each scenario runs in a process of its own that finds a stand-in as its driver (see `standin`), with real kernels, real
bindings, and arrays as packages have them (`device_arrays`).
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
import types
import weakref
from pathlib import Path

import numpy as np
import pytest
import standin
from selected import slow_but

N_ITEMS = 96


# ------------------------------------------------------------------------------------------------ scenarios, over there


class There:
    """What a scenario works with: a kernel out[i] = 2 source[i], memory on the stand-in's devices, array classes."""

    def __init__(self, side: str):
        import device_arrays
        from wavedsl.runtime import devices, launch

        import wavedsl as wd

        self.side, self.arrays, self.devices, self.launch = side, device_arrays, devices, launch
        self.place = {"cuda": 2, "hip": 10}[side]
        self.stand_in = ctypes.CDLL({"cuda": "libcuda.so.1", "hip": "libamdhip64.so"}[side])
        N, BN = wd.symbols("N BN")

        @wd.wave([wd.WorkgroupConstraint(N, BN, 0)], subs={BN: 64})
        def twice(source: wd.Memory[N, wd.f32], out: wd.Memory[N, wd.f32], n: wd.Scalar[wd.i32]):
            x = wd.read(source)
            wd.write(wd.where(wd.index(N) < n, x + x, x), out)

        self.kernel = twice
        self.long = 0
        once = getattr(launch.launch_kernel, "once", launch.launch_kernel)

        def counted(*arguments):
            self.long += 1
            return once(*arguments)

        counted.once = once
        launch.launch_kernel = counted

    def driver(self, index=0):
        return self.devices.open_driver(self.side, index)

    def memory(self, count=N_ITEMS, index=0):
        """The address of `count` numbers on a device, and a view of them."""
        address = self.driver(index).allocate(4 * count)
        view = np.frombuffer((ctypes.c_float * count).from_address(address), np.float32)
        view[:] = np.arange(count)
        return address, view

    def load(self, name):
        sys.modules[name] = self.arrays.module(name)
        self.arrays.STREAMS.clear()

    def pair(self, kind="torch", count=N_ITEMS, index=0, **options):
        """(source, out) of a class of arrays, and what they hold."""
        (a, x), (b, y) = self.memory(count, index), self.memory(count, index)
        y[:] = -1
        return self.array(kind, a, (count,), index=index, **options), self.array(kind, b, (count,), index=index), x, y

    def array(self, kind, address, shape, strides=None, index=0, **options):
        strides = strides or self.arrays.row_major(shape)
        if kind == "torch":
            return self.arrays.Tensor(address, shape, strides, index=index, device_type=self.place, **options)
        if kind == "cupy":
            return self.arrays.ndarray(address, shape, strides, index=index, **options)
        if kind == "dlpack":
            return self.arrays.Dlpack(address, shape, strides, index=index, device_type=self.place, **options)
        return self.arrays.Interface(address, shape, strides, **options)

    def called(self, *arguments, long, **keywords):
        """Call, and tell whether it took the way that is expected."""
        before = self.long
        self.kernel(*arguments, **keywords)
        assert self.long - before == long, f"{self.long - before} long ways, not {long}"

    def refused(self, *arguments, match):
        from wavedsl.ir.errors import LaunchError

        with pytest.raises(LaunchError, match=match):
            self.kernel(*arguments)

    def kinds(self):
        return ["torch", "cupy", "dlpack", "interface"] if self.side == "cuda" else ["torch", "dlpack"]

    def stream(self, index=0):
        driver = self.driver(index)
        with driver.entered():
            if self.side == "cuda":
                return int(driver._call("cuStreamCreate", 0))
            return int(driver._call("hipStreamCreate"))

    def own_context(self, driver):
        """A context of one's own (CUDA), current in this thread from now on."""
        before = (None,) if driver.driver.CUDA_VERSION >= 13000 else ()  # parameters of the context's creation
        return int(driver._call("cuCtxCreate", *before, 0, driver.handle))


def changes_are_noticed(there: There) -> None:
    for name in ("torch", "cupy"):
        there.load(name)
    for kind in there.kinds():
        source, out, x, y = there.pair(kind)
        there.called(source, out, N_ITEMS, long=1)
        assert (y == 2 * x).all()
        for _ in range(3):
            y[:] = -1
            there.called(source, out, N_ITEMS, long=0)
            assert (y == 2 * x).all(), kind
        there.called(source, out, n=7, long=0)
        there.called(n=7, out=out, source=source, long=0)
        # Other arrays with the same facts, at other addresses.
        other, into, x, y = there.pair(kind)
        there.called(other, into, N_ITEMS, long=0)
        assert (y == 2 * x).all()
        # The same objects are asked again in every call: an extent that has changed is seen.
        for changed in (other, into):
            changed.shape = (60,)
        y[:] = -1
        there.called(other, into, 60, long=1)
        assert (y[:60] == 2 * x[:60]).all()
        there.called(other, into, 60, long=0)
        # Strides.
        address, _ = there.memory(2 * N_ITEMS)
        strided = there.array(kind, address, (N_ITEMS,), (2,))
        there.called(strided, out, N_ITEMS, long=1)
        # Alignment: 4 bytes on.
        address, _ = there.memory(N_ITEMS + 1)
        there.called(there.array(kind, address + 4, (N_ITEMS,)), out, N_ITEMS, long=1)
        there.called(there.array(kind, address + 8, (N_ITEMS,)), out, N_ITEMS, long=1)
        # What is wrong is said although all else was seen before.
        there.refused(there.array(kind, address, (N_ITEMS,), dtype="int32"), out, N_ITEMS, match="dtype int32")
        there.refused(source, source, N_ITEMS, match="overlaps")
        there.refused(source, there.array(kind, source_address(source) + 16, (N_ITEMS,)), N_ITEMS, match="overlaps")
        there.refused(source, out, 1 << 31, match="does not fit|an integer from")
        there.refused(source, out, "7", match="Scalar")
        there.refused(there.array(kind, 1 << 50, (N_ITEMS,)), out, N_ITEMS, match="48 bits")
        there.refused(there.array(kind, 0, (N_ITEMS,)), out, N_ITEMS, match="no memory: its address is 0")
        there.refused(source, out, source, match="`?n`? is an? .*, but is declared Scalar")
        there.refused(source, out, np.zeros(3), match="n is an? ndarray, but is declared Scalar")
        # Classes of numbers are told apart, and each has a way.
        there.called(source, out, np.int64(50), long=1)
        there.called(source, out, np.int64(50), long=0)
        there.called(source, out, True, long=1)
    class Flaky(there.arrays.Dlpack):
        """It gives capsules to the long way, and none any more when the call is to be remembered."""

        def __dlpack__(self, **options):
            if len(self.told) >= 3:
                raise RuntimeError("no more")
            return super().__dlpack__(**options)

    source, out, x, y = there.pair("dlpack")
    source = Flaky(source.pointer, source.shape, source.strides, device_type=there.place)
    there.called(source, out, N_ITEMS, long=1)  # it has been launched: it does not fail
    assert (y == 2 * x).all()
    there.refused(source, out, N_ITEMS, match="does not export its memory: no more")
    source, out, *_ = there.pair("torch")
    there.refused(there.array("torch", source.data_ptr(), (N_ITEMS,), requires_grad=True), out, 5, match="gradient")
    there.refused(there.array("torch", source.data_ptr(), (N_ITEMS,), negative=True), out, 5, match="negated")
    if there.side == "cuda":
        source, out, *_ = there.pair("interface")
        locked = there.array("interface", out.pointer, (N_ITEMS,), readonly=True)
        there.refused(source, locked, 5, match="read-only")


def source_address(array) -> int:
    return array.data_ptr() if hasattr(array, "data_ptr") else array.pointer


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


def graphs_hold_what_they_use(there: There) -> None:
    from wavedsl.ir.errors import LaunchError
    from wavedsl.runtime import in_flight

    there.load("torch")
    driver = there.driver()
    held = in_flight.of(driver)
    stream = there.stream()
    there.arrays.STREAMS["torch", 0] = stream
    prefix = {"cuda": "cu", "hip": "hip"}[there.side]

    def ask(name, *arguments):
        with driver.entered():
            return driver._call(prefix + name, *arguments)

    if there.side == "cuda":
        mode = driver.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        instantiate = lambda graph: ask("GraphInstantiate", graph, 0)  # noqa: E731
    else:
        mode = driver.hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
        instantiate = lambda graph: ask("GraphInstantiate", graph, 0)[0]  # noqa: E731

    def alive(dead):
        gc.collect()
        held.release()
        return [kept() is not None for kept in dead]

    for kind in ("torch", "dlpack"):
        source, out, x, y = there.pair(kind)
        if kind == "dlpack":  # on a stream as such arrays have it: through a tensor that comes first
            source, *_ = there.pair("torch")
            x = np.frombuffer((ctypes.c_float * N_ITEMS).from_address(source.data_ptr()), np.float32)
        there.kernel(source, out, N_ITEMS)
        bound = there.kernel.bind(source, out, N_ITEMS)
        y[:] = -1
        ask("StreamBeginCapture", stream, mode)
        there.called(source, out, N_ITEMS, long=0)
        bound()
        assert (y == -1).all()  # nothing runs while it is captured
        graph = ask("StreamEndCapture", stream)
        weak = [weakref.ref(source), weakref.ref(out)]
        runnable = instantiate(graph)
        del source, out, bound
        assert alive(weak) == [True, True]
        ask("GraphLaunch", runnable, stream)
        assert (y == 2 * x).all()
        ask("GraphDestroy", graph)
        assert alive(weak) == [True, True]  # the executable graph goes on without the one that it was made of
        ask("GraphExecDestroy", runnable)
        assert alive(weak) == [False, False]
        assert len(held) == 0
    # What cannot be captured says what to do; so does a kernel that talks.
    source, out, *_ = there.pair("torch", count=80)
    ask("StreamBeginCapture", stream, mode)
    with pytest.raises(LaunchError, match="call the kernel once before the capture"):
        there.kernel(source, out, 80)
    ask("StreamEndCapture", stream)
    there.kernel(source, out, 80)


def hidden_memory_belongs_to_a_stream_or_a_graph(there: There) -> None:
    """Each stream's launches share sums and counters, which grow; a graph has its own, and the next one takes them."""
    import wavedsl as wd

    M, K = wd.symbols("M K")

    @wd.wave(
        [wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(K, 32)], schedule=wd.Schedule(split_k=2)
    )
    def row_sums(source: wd.Memory[M, K, wd.f32], out: wd.Memory[M, wd.f32], n: wd.Scalar[wd.i32]):
        @wd.iterate(K, init_args=[wd.Register[M, wd.f32](0.0)])
        def loop(acc):
            return acc + wd.sum(wd.read(source), dim=K)

        wd.write(loop * wd.cast(n, wd.f32), out)

    log = Path(os.environ["STANDIN_LOG"])
    os.environ["STANDIN_HIDDEN"] = "1"
    there.load("torch")
    driver = there.driver()
    streams = [there.stream(), there.stream()]
    cuda = there.side == "cuda"
    prefix = "cu" if cuda else "hip"
    modes = driver.driver.CUstreamCaptureMode if cuda else driver.hip.hipStreamCaptureMode
    mode = modes.CU_STREAM_CAPTURE_MODE_GLOBAL if cuda else modes.hipStreamCaptureModeGlobal

    def on(stream):
        there.arrays.STREAMS["torch", 0] = stream

    def ask(name, *arguments):
        with driver.entered():
            return driver._call(prefix + name, *arguments)

    def arrays(rows):
        address, into = there.memory(64 * rows)[0], there.memory(rows)[0]
        return there.array("torch", address, (rows, 64)), there.array("torch", into, (rows,)), 1

    def used(call):
        """(sums, counters) of the launches of a call, which all find counters of 0."""
        log.write_text("")
        call()
        found = [line.split()[2:] for line in log.read_text().splitlines() if line.startswith("ran with")]
        assert all(counter == "0" for *_, counter in found)
        return {tuple(addresses) for *addresses, _ in found}

    def captured(calls):
        ask("StreamBeginCapture", streams[0], mode)
        for call in calls:
            call()
        graph = ask("StreamEndCapture", streams[0])
        runnable = ask("GraphInstantiate", graph, 0) if cuda else ask("GraphInstantiate", graph, 0)[0]
        ask("GraphDestroy", graph)
        return runnable

    small, large = arrays(40), arrays(4000)
    bound = row_sums.bind(*small)
    found = []
    for stream in streams:
        on(stream)
        ways = [lambda: row_sums(*small), lambda: row_sums(*small), bound, bound]
        (one,) = set.union(*map(used, ways))
        found.append(one)
    on(streams[0])
    (larger,) = used(lambda: row_sums(*large))
    assert used(bound) == used(lambda: row_sums(*small)) == {larger}  # what has grown serves all
    for _ in range(2):
        graph = captured([lambda: row_sums(*small), bound])
        (own,) = used(lambda: ask("GraphLaunch", graph, streams[0]))
        found += [own]
        ask("GraphExecDestroy", graph)
        gc.collect()
    assert found[2] == found[3] and len({*found, larger}) == 4, (found, larger)
    assert used(bound) == {larger}
    del os.environ["STANDIN_HIDDEN"]


def arrays_live_until_the_stream_is_done(there: There) -> None:
    from wavedsl.runtime import in_flight

    there.load("torch")
    held = in_flight.of(there.driver())
    kind = "interface" if there.side == "cuda" else "dlpack"

    def alive(weak):
        gc.collect()
        held.release()
        return weak() is not None

    for use in ("call", "bound"):
        first = there.pair(kind)
        there.kernel(*first[:2], N_ITEMS)
        source, out, *_ = there.pair(kind)
        there.stand_in.standin_busy(1)
        if use == "call":
            there.called(source, out, N_ITEMS, long=0)
        else:
            bound = there.kernel.bind(source, out, N_ITEMS)
            bound()
            del bound
        weak = weakref.ref(source)
        del source, out
        assert alive(weak)
        there.stand_in.standin_busy(0)
        there.kernel(*first[:2], N_ITEMS)
        assert not alive(weak), use
    # torch frees in the order of its stream: nothing is held for its tensors.
    there.stand_in.standin_busy(1)
    source, out, *_ = there.pair("torch")
    for _ in range(2):
        there.kernel(source, out, N_ITEMS)
    weak = weakref.ref(source)
    del source, out
    assert not alive(weak)
    assert len(held) == 0, held._streams
    # The device is the arrays' own, whichever the first call was for. Launches of the same arrays are held once.
    second = in_flight.of(there.driver(1))
    with there.driver(1).entered():
        for long in (1, 0, 0):
            source, out, *_ = there.pair(kind, index=1)
            there.called(source, out, N_ITEMS, long=long)
        assert len(held) == 0 and len(second) == 3
        weak = weakref.ref(source)
        for _ in range(5):
            there.called(source, out, N_ITEMS, long=0)
    del source, out
    gc.collect()
    second.release()
    assert weak() is not None and len(second) == 3
    there.stand_in.standin_busy(0)
    second.release()
    assert weak() is None and len(second) == 0


def launches_again_cost_no_event(there: There) -> None:
    """The same arrays again and again on the default stream: marked when others come, behind the last launch."""
    from wavedsl.runtime import in_flight

    driver, log = there.driver(), Path(os.environ["STANDIN_LOG"])
    held = in_flight.of(driver)
    held.release()
    kind = there.kinds()[-1]
    events = {"cuda": "cuEventRecord", "hip": "hipEventRecord"}[there.side]

    def recorded() -> int:
        found = log.read_text().count(events)
        log.write_text("")
        return found

    def alive(weak) -> bool:
        gc.collect()
        held.release()
        return weak() is not None

    other = there.pair(kind)
    for settled in (lambda: there.kernel(*other[:2], N_ITEMS), lambda: None):
        source, out, x, y = there.pair(kind)
        there.kernel(source, out, N_ITEMS)
        there.kernel(source, out, N_ITEMS)
        recorded()
        for _ in range(5):
            y[:] = -1
            there.called(source, out, N_ITEMS, long=0)
            assert (y == 2 * x).all()
        assert recorded() == 0
        # The first launches have ended, the last has not: its end is what counts.
        there.stand_in.standin_busy(1)
        there.called(source, out, N_ITEMS, long=0)
        weak = weakref.ref(source)
        del source, out
        settled()
        assert alive(weak) and recorded() > 0
        there.stand_in.standin_busy(0)
        assert not alive(weak) and len(held) == 0
    # Same objects at another address, or another object at the same: nothing is taken for granted.
    source, out, x, y = there.pair(kind)
    for _ in range(2):
        there.kernel(source, out, N_ITEMS)
    address, moved = there.memory()
    source.pointer, moved[:] = address, -x
    recorded()
    there.called(source, out, N_ITEMS, long=0)
    assert (y == -2 * x).all() and recorded() == 2  # the launches before, and this one
    twin = there.array(kind, address, (N_ITEMS,))
    there.called(twin, out, N_ITEMS, long=0)
    assert recorded() == 1
    # In a capture nothing is given to another stream: it would end the capture.
    there.called(twin, out, N_ITEMS, long=0)
    weak = weakref.ref(twin)
    del twin
    recorded()
    held.release(settle=False)
    gc.collect()
    assert weak() is not None and recorded() == 0
    # From a thread whose device or context is another one.
    with there.driver(1).entered():
        assert not alive(weak)
    # A stream that may be destroyed is marked in each launch.
    if there.side == "cuda":
        source, out, *_ = there.pair(kind, stream=there.stream())
        there.kernel(source, out, N_ITEMS)
        recorded()
        for _ in range(3):
            there.called(source, out, N_ITEMS, long=0)
        assert recorded() == 3


def capsules_are_checked(there: There) -> None:
    """What is no capsule, or one of another name, goes the long way, which says so."""
    source, out, x, y = there.pair("dlpack")

    class Switching(there.arrays.Dlpack):
        """It gives what it is told to."""

        answer = None

        def __dlpack__(self, **options):
            made = super().__dlpack__(**options)
            return made if self.answer is None else self.answer(self)

    given = Switching(source.pointer, source.shape, source.strides, device_type=there.place)
    there.called(given, out, N_ITEMS, long=1)
    there.called(given, out, N_ITEMS, long=0)

    def named(name):
        lasting.append(ctypes.create_string_buffer(name))
        return lambda array: new(ctypes.addressof(array.keep[1]), ctypes.addressof(lasting[-1]), None)

    lasting: list = []
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    given.answer = named(b"dltensor")  # the same name elsewhere
    y[:] = -1
    there.called(given, out, N_ITEMS, long=0)
    assert (y == 2 * x).all()
    for answer in (named(b"used_dltensor"), named(b"d"), lambda _: 5, lambda _: None, lambda _: "dltensor"):
        given.answer = answer
        there.refused(given, out, N_ITEMS, match="exports no DLPack tensor")
    # A name that is written over in place, as by a producer that reuses its memory.
    given = Switching(source.pointer, source.shape, source.strides, device_type=there.place)
    given.answer = named(b"dltensor")
    there.kernel.dispatch.forget()
    there.called(given, out, N_ITEMS, long=1)
    there.called(given, out, N_ITEMS, long=0)
    buffer = ctypes.create_string_buffer(64)
    buffer.value = b"dltensor"
    given.answer = lambda array: new(ctypes.addressof(array.keep[1]), ctypes.addressof(buffer), None)
    written_over = given
    there.kernel.dispatch.forget()
    there.called(given, out, N_ITEMS, long=1)
    there.called(given, out, N_ITEMS, long=0)
    # A capsule with a version: its flags are read in each call.
    address, _ = there.memory()
    given = there.arrays.Versioned(source.pointer, (N_ITEMS,), (1,), device_type=there.place)
    result = there.arrays.Versioned(address, (N_ITEMS,), (1,), device_type=there.place)
    for long in (1, 0):
        there.called(given, result, N_ITEMS, long=long)
    given.flags = 1
    for long in (1, 0):
        there.called(given, result, N_ITEMS, long=long)
    result.flags = 1
    there.refused(given, result, N_ITEMS, match="read-only")
    given.shape = result.shape = (50,)
    result.flags = 0
    there.called(given, result, 50, long=1)
    buffer.value = b"used_dltensor"
    there.refused(written_over, out, N_ITEMS, match="exports no DLPack tensor")


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


def tensor_maps(there: There) -> None:
    """Made once per address, with the arguments that the prototypes of the installed bindings name, and passed by
    value; an error of the driver is a LaunchError."""
    if there.side == "hip":
        return
    import hopper
    from products import BF16, TILE
    from wavedsl.ir.errors import LaunchError
    from wavedsl.runtime.tensor_map import DATA_TYPES, PROMOTIONS, SWIZZLES

    import wavedsl as wd

    there.load("torch")
    os.environ["STANDIN_IDLE"] = "1"
    log = Path(os.environ["STANDIN_LOG"])
    log.write_text("")
    driver = there.driver()
    passed = []
    once = driver.prepared

    def recorded(function, block, params):
        start, pointers = once(function, block, params), (ctypes.c_void_p * 3).from_address(params)

        def spied(stream, grid):
            passed.append([ctypes.c_uint64.from_address(pointer).value for pointer in pointers])
            start(stream, grid)

        return spied

    driver.prepared = recorded
    tiles = dict(zip(TILE, (64, 128, 64, 64, 128)))
    kernel = hopper.gemm(BF16, schedule=wd.Schedule(specialize=True)).variant(Choice(tiles))
    m, n, k = 256, 384, 512

    def operands():
        shapes = ((m, k), (n, k), (m, n))
        return [there.array("torch", there.memory(a * b)[0], (a, b), dtype="bfloat16")
                for i, (a, b) in enumerate(shapes)]  # fmt: skip

    def made() -> list[str]:
        found = [line for line in log.read_text().splitlines() if "Encode" in line]
        log.write_text("")
        return found

    first, second = operands(), operands()
    kernel(*first)
    maps = made()
    assert len(maps) == 3
    for line, (rows, columns), box_rows in zip(maps, ((m, k), (n, k), (m, n)), (64, 128, 64)):
        kind, size = DATA_TYPES["bf16"], 2
        width = 128 // size
        assert line == (
            f"cuTensorMapEncodeTiled type {kind} rank 2 address given sizes {columns} {rows} strides {columns * size} "
            f"box {width} {box_rows} steps 1 1 interleave 0 swizzle {SWIZZLES[128]} "
            f"promotion {PROMOTIONS[128]} fill 0"
        )
    for arrays, new in ((first, 0), (second, 3), (first, 0), (second, 0)):
        kernel(*arrays)
        assert len(made()) == new
        # The stand-in's maps start with the address.
        assert passed[-1] == [array.data_ptr() for array in arrays]
    bound = kernel.bind(*second)
    made()
    bound()
    assert made() == [] and passed[-1] == [array.data_ptr() for array in second]
    # A kernel that waits for the launch in front itself is launched with the attribute that lets it begin early.
    log.write_text("")
    dependent = hopper.gemm(BF16, schedule=wd.Schedule(dependent=True)).variant(Choice(tiles))
    dependent(*first)
    dependent(*first)
    dependent.bind(*first)()
    kernel(*first)
    attributes = [line for line in log.read_text().splitlines() if "Launch" in line or "attribute" in line]
    assert [line.split(" attrs ")[1] for line in attributes if "Launch" in line] == [
        "1 extra (nil)", "1 extra (nil)", "1 extra (nil)", "0 extra (nil)"
    ]  # fmt: skip
    assert attributes.count("attribute 6 = 1") == 3
    # The same classes of arrays, but a text with other parameters: what lies askew is not copied in bulk.
    askew = operands()
    askew[0] = there.array("torch", there.memory(m * k)[0] + 2, (m, k), dtype="bfloat16")
    for arrays, long in ((askew, 1), (first, 0), (askew, 0), (second, 0)):
        before = there.long
        dependent(*arrays)
        assert there.long - before == long
    assert passed[-2][0] == askew[0].data_ptr() and passed[-1] == [array.data_ptr() for array in second]
    os.environ["STANDIN_FAIL"] = "cuTensorMapEncodeTiled:1:0"
    with pytest.raises(LaunchError, match=r"cuTensorMapEncodeTiled failed: CUDA_ERROR_INVALID_VALUE \(1\): as the"):
        kernel(*operands())


def run_time_extents(there: There) -> None:
    """New extents of run-time dimensions are launched as the long way launches them: grid, parameters, refusals."""
    from wavedsl.ir.errors import LaunchError
    from wavedsl.runtime.ways import Ways

    import wavedsl as wd

    there.load("torch")
    os.environ["STANDIN_IDLE"] = "1"
    M, N, K = wd.symbols("M N K")
    cuda = there.side == "cuda"

    @wd.wave([wd.WorkgroupConstraint(M, 8, 1), wd.WorkgroupConstraint(N, 64, 0)], dynamic=[M, N])
    def scaled(
        a: wd.Memory[M, N, wd.f32], row: wd.Memory[N, wd.f32], c: wd.Memory[M, N, wd.f32], by: wd.Scalar[wd.f32]
    ):
        wd.write(wd.read(a) * wd.broadcast(wd.read(row), [M, N]) * by, c)

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)], dynamic=[M]
    )
    def product(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        acc = wd.Register[M, N, wd.f32](0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    launched = []
    driver = there.driver()
    once = driver.prepared

    def recorded(function, block, params):
        start = once(function, block, params)

        def spied(stream, grid):
            sizes = [p.size for p in next(iter(there.launch._COMPILED[kernel].values())).params]
            pointers = (ctypes.c_void_p * len(sizes)).from_address(params)
            launched.append((grid, [ctypes.string_at(at, size) for at, size in zip(pointers, sizes)]))
            start(stream, grid)

        return spied

    driver.prepared = recorded
    place = [there.memory(1 << 16)[0] for _ in range(3)]

    def matrix(i, rows, columns, pitch=None, dtype="float32", kind="torch"):
        return there.array(kind, place[i], (rows, columns), (pitch or columns, 1), dtype=dtype)

    def pair(m, n, pitch=None, kind="torch"):
        return [matrix(0, m, n, pitch, kind=kind), there.array(kind, place[1], (n,)), matrix(2, m, n, kind=kind), 0.5]

    def operands(m, pitch=96):
        return [matrix(0, m, 96, pitch, "float16"), matrix(1, 128, 96, None, "float16"), matrix(2, m, 128)]

    def both(arguments, long):
        """By the way that is expected, and by the long way: the same launch."""
        before = there.long
        kernel(*arguments)
        assert there.long - before == long, (there.long - before, long)
        ways, kernel.dispatch.ways = kernel.dispatch.ways, Ways()
        kernel.ways = Ways()
        kernel(*arguments)
        kernel.ways = kernel.dispatch.ways = ways
        assert launched[-1] == launched[-2]

    kernel = scaled
    for kind in there.kinds():
        both(pair(24, 160, kind=kind), 1)
        for m, n, pitch in ((25, 160, None), (200, 48, None), (40, 96, 128), (64, 320, 640), (24, 160, None)):
            both(pair(m, n, pitch, kind), 0)
        kernel(*pair(31, 168, kind=kind))  # divides by 8 only: another text
        both(pair(33, 136, kind=kind), 0)
    for m in (1, 0):  # strides of such say nothing
        kernel(*pair(m, 160))
    transposed = pair(24, 160)
    transposed[2] = there.array("torch", place[2], (24, 160), (1, 24))
    kernel(*transposed)
    for wrong, match in (
        ([*pair(56, 160)[:2], *pair(64, 160)[2:]], "`c` has 64|dimension M is 64 in argument `c`, but 56"),
        ([pair(56, 160)[0], *pair(56, 176)[1:]], "N is 176|dimension N"),
        ([*pair(56, 160)[:2], matrix(2, 56, 160, 80), 0.5], "share memory"),
        ([*pair(56, 160)[:2], there.array("torch", place[0] + 640, (56, 160)), 0.5], "overlaps `a`"),
    ):
        with pytest.raises(LaunchError, match=match):
            kernel(*wrong)
    kernel = product
    both(operands(100), 1)
    for m, pitch in ((101, 96), (65, 104), (330, 96), (100, 96)):
        both(operands(m, pitch), int(pitch == 104))
    maps = [p for p in next(iter(there.launch._COMPILED[kernel].values())).params if p.map is not None]
    assert bool(maps) == cuda
    with pytest.raises(LaunchError, match=r"M is 80|dimension M"):
        kernel(*operands(72)[:2], matrix(2, 80, 128))
    driver.prepared = once


def tuned_kernels(there: There) -> None:
    """The choice of a tuned kernel is looked up once per bucket, and again when it has been tuned."""
    import types

    import wavedsl as wd
    from wavedsl.tuning import Candidate, tuned_kernel

    there.load("torch")
    os.environ["STANDIN_IDLE"] = "1"
    M, BM = wd.symbols("M BM")
    tiles, looked_up = {"M<=16": 4, "M>16": 16}, []

    shift = 0.0

    @wd.autotune({BM: [4, 8, 16]}, results=Path("none.tuning.json"))
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0)], dynamic=[M], buckets={M: (16,)})
    def copied(source: wd.Memory[M, wd.f32], out: wd.Memory[M, wd.f32], by: wd.Scalar[wd.f32]):
        wd.write(wd.read(source) * by + shift, out)

    def look_up(target, bucket):
        looked_up.append(bucket)
        return Candidate((("BM", tiles[bucket]),))

    copied._look_up = look_up
    address, into = there.memory(1 << 10)[0], there.memory(1 << 10)[0]

    def call(m, grid, long, **keywords):
        before = there.long
        copied(there.array("torch", address, (m,)), there.array("torch", into, (m,)), **(keywords or {"by": 2.0}))
        assert f" grid {grid} 1 1 " in Path(os.environ["STANDIN_LOG"]).read_text().splitlines()[-1]
        assert there.long - before == long, (m, there.long - before)

    calls = ((16, 4, 1), (16, 4, 0), (48, 3, 1), (64, 4, 0), (16, 4, 0), (32, 2, 0), (12, 3, 1), (4, 1, 0), (8, 2, 1))
    for m, grid, long in calls:  # 4 and 12 divide alike, and are of one bucket
        call(m, grid, long)
    assert looked_up == ["M<=16", "M>16"]
    call(80, 5, 1, by=1)
    once, tiles["M>16"] = tuned_kernel.tune, 8
    target = there.driver().device.target
    tuned_kernel.tune = lambda *_, **__: types.SimpleNamespace(target=target, bucket="M>16")
    copied.tune()
    tuned_kernel.tune = once
    for m, grid, long in ((48, 6, 1), (64, 8, 0), (16, 4, 1)):
        call(m, grid, long)
    seen = shift
    for shift in (1.0, float("1.0"), 2.0):
        call(16, 4, int(shift != seen))  # a variable that the kernel reads has changed, or is an equal one
        call(16, 4, 0)
        seen = shift


def values_from_outside(there: There) -> None:
    """A variable that the kernel reads has changed: the call compiles for it. An equal one changes nothing."""
    import wavedsl as wd

    N = wd.sym.N
    by, compiled = 2.0, []

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def times(source: wd.Memory[N, wd.f32], out: wd.Memory[N, wd.f32], n: wd.Scalar[wd.i32]):
        compiled.append(by)
        wd.write(wd.where(wd.index(N) < n, wd.read(source) * by, 0.0), out)

    there.kernel = times
    source, out, *_ = there.pair()
    for value, long in ((2.0, 1), (2.0, 0), (float("2.0"), 0), (3.0, 1), (3.0, 0)):
        by = value
        there.called(source, out, N_ITEMS, long=long)
    assert compiled == [2.0, 3.0]
    bound = times.bind(source, out, N_ITEMS)
    by = 4.0
    bound()  # as it was bound
    assert compiled == [2.0, 3.0]


def guards_are_tried_before_keys(there: There) -> None:
    """Tensors like those of an earlier call are told by torch's guards, and whatever guards say, launches are right."""
    from wavedsl.runtime.dispatch import RECENT, RENEWED

    import wavedsl as wd

    there.load("torch")
    guards = there.arrays.TensorGuards

    def told():
        return sum(guard.told for guard in guards.made)

    def guarded(*arguments):
        """Whether a call of the short way found its plan by a guard."""
        before = told()
        there.called(*arguments, arguments[0].shape[0], long=0)
        return told() > before

    source, out, x, y = there.pair()
    there.called(source, out, N_ITEMS, long=1)
    guarded(source, out)  # makes the guard
    for _ in range(3):
        y[:] = -1
        assert guarded(source, out) and (y == 2 * x).all()
    for other in (there.pair(), there.pair()):  # at other addresses
        assert guarded(*other[:2]) and (other[3] == 2 * other[2]).all()
    # Addresses count as ever.
    address, view = there.memory(N_ITEMS + 8)
    view[:] = -1
    skewed = there.array("torch", address + 4, (N_ITEMS,))
    there.called(source, skewed, N_ITEMS, long=1)
    view[:] = -1
    there.called(source, skewed, N_ITEMS, long=0)
    assert (view[1 : N_ITEMS + 1] == 2 * x).all() and view[0] == -1
    there.refused(source, there.array("torch", 0, (N_ITEMS,)), N_ITEMS, match="null|address|memory")
    there.refused(source, source, N_ITEMS, match="overlaps `source`")
    there.refused(source, there.pair(requires_grad=True)[0], N_ITEMS, match="grad")
    there.refused(source, there.pair(negative=True)[0], N_ITEMS, match="neg")
    # Shapes in turn, at addresses of their own: all are found so. At one address, sizes tell them apart.
    pairs = [there.pair(count=N_ITEMS + 16 * i) for i in range(1, RECENT + 4)]
    room = there.pair(count=2 * N_ITEMS)
    for n in (N_ITEMS + 8, N_ITEMS + 24, 2 * N_ITEMS):
        pairs.append([*(there.array("torch", z.data_ptr(), (n,)) for z in room[:2]), *(z[:n] for z in room[2:])])
    for a, b, x, _ in pairs:
        there.called(a, b, len(x), long=1)
        there.called(a, b, len(x), long=0)  # makes the guard
    for a, b, x, y in pairs * 2:
        y[:] = -1
        assert guarded(a, b) and (y == 2 * x).all()
    # New addresses in every call: the plan that was found last is tried.
    for _ in range(3 * RENEWED):
        guarded(*there.pair()[:2])
    source, out, x, y = there.pair()
    keys = len(guards.made)
    assert guarded(source, out) and (y == 2 * x).all() and len(guards.made) == keys
    # Another class of numbers is another way, and calls go back and forth.
    for n in (np.int32(N_ITEMS), N_ITEMS, np.int32(7)):
        there.kernel(source, out, n)
        there.called(source, out, n, long=0)
    # A context of one's own has plans of its own.
    if there.side == "cuda":
        driver = there.driver()
        there.own_context(driver)
        there.called(source, out, N_ITEMS, long=1)
        driver._call("cuCtxPopCurrent")
        assert guarded(source, out)
    # A torch whose guards do not tell what a call depends on, or that has none: keys do.
    from wavedsl.runtime import tensor_guard

    class Forgetful(guards):
        def check(self, *tensors):
            return [t.shape for t in tensors] == [facts[3] for facts in self._facts]

    for torch_has in (types.SimpleNamespace(TensorGuards=Forgetful), types.SimpleNamespace()):
        there.load("torch")
        sys.modules["torch"]._C._dynamo.guards = torch_has
        tensor_guard._tell.cache_clear()
        there.kernel.dispatch.forget()
        source, out, x, y = there.pair()
        there.called(source, out, N_ITEMS, long=1)
        for _ in range(3):
            y[:] = -1
            assert not guarded(source, out) and (y == 2 * x).all()
    tensor_guard._tell.cache_clear()
    # A tensor that is there twice is refused by guards; others with the same extents are not.
    there.load("torch")
    os.environ["STANDIN_IDLE"] = "1"
    N, BN = wd.symbols("N BN")

    @wd.wave([wd.WorkgroupConstraint(N, BN, 0)], subs={BN: 64})
    def added(a: wd.Memory[N, wd.f32], b: wd.Memory[N, wd.f32], out: wd.Memory[N, wd.f32], n: wd.Scalar[wd.i32]):
        wd.write(wd.where(wd.index(N) < n, wd.read(a) + wd.read(b), 0.0), out)

    there.kernel = added
    (a, b, *_), (out, *_) = there.pair(), there.pair()
    there.called(a, a, out, N_ITEMS, long=1)
    made = len(guards.made)
    assert not any(guarded(a, a, out) for _ in range(RENEWED - 1))
    assert len(guards.made) <= made + 4  # tried out, and sampled
    for _ in range(RENEWED + 1):
        guarded(a, b, out)
    assert guarded(a, b, out) and not guarded(a, a, out) and guarded(a, b, out)
    del os.environ["STANDIN_IDLE"]


class Choice:
    """A tuning candidate, as `Kernel.variant` takes one."""

    def __init__(self, subs):
        self.subs = subs.items()

    def fields(self):
        return {}


SCENARIOS = (
    streams_are_respected,  # first: nothing has loaded a package yet
    changes_are_noticed,
    guards_are_tried_before_keys,
    graphs_hold_what_they_use,
    hidden_memory_belongs_to_a_stream_or_a_graph,
    arrays_live_until_the_stream_is_done,
    launches_again_cost_no_event,
    capsules_are_checked,
    threads_devices_and_contexts,
    run_time_extents,
    tuned_kernels,
    values_from_outside,
    tensor_maps,
)


# ------------------------------------------------------------------------------------------------------------ tests


@pytest.mark.parametrize("side", slow_but(["cuda", "hip"], "cuda"))
def test_calls(side, standins, tmp_path):
    folder = str(standins(side))
    done = subprocess.run(
        [sys.executable, __file__, side],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=100,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": folder,
            "PYTHONPATH": str(Path(standin.__file__).parent),
            "ROCM_PATH": str(tmp_path / "no-rocm"),
            "STANDIN_FOLDER": folder,
            "STANDIN_LOG": str(tmp_path / "log"),
            "STANDIN_EACH": "8",
            "STANDIN_DEVICES": "2",
            "STANDIN_ARCH_OFFSET": str(standin.arch_offset()) if side == "hip" else "0",
        },
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f.__name__ for f in SCENARIOS]


if __name__ == "__main__":
    for scenario in SCENARIOS:
        scenario(There(sys.argv[1]))
        print(scenario.__name__)
