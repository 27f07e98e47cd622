"""HIP devices through the bindings of hip-python.

In come text, addresses and launch sizes, out go calls of libamdhip64. The text is assembled and linked here-side
(`toolchain`, `binaries`), so a GPU needs no compiler of its own. Nothing here knows what a kernel computes; parameters
arrive as an array of pointers.

What every launch calls goes to the same library by ctypes: the bindings' own way there takes several times as long.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from wavedsl.ir.errors import ConstraintError, LaunchError, ToolchainError
from wavedsl.runtime import binaries, hip_library
from wavedsl.runtime.devices import Device, as_argument, known_target

KEPT_STREAMS = 256
"""Streams whose objects are remembered."""
DEFAULT_STREAMS = (0, 1)
"""The null stream, by both of its names (`hipStreamLegacy`, hip_runtime_api.h); 2 is each thread's own."""
NOT_READY, CAPTURE_ACTIVE = 600, 1
"""`hipErrorNotReady`, `hipStreamCaptureStatusActive` (hip_runtime_api.h)."""


@lru_cache(maxsize=1)
def bindings() -> ModuleType:
    """`hip.hip`, with the runtime initialised. ToolchainError if either is missing."""
    try:
        from hip import hip
    except ImportError as error:
        raise ToolchainError(
            f"hip-python cannot be imported: {error}", hint="install it with pip install 'wavedsl[rocm]'"
        ) from error
    try:
        with hip_library.found_by_bindings():
            check(hip, hip.hipInit(0), "hipInit")
    except RuntimeError as error:
        # The bindings load libamdhip64 at the first call and raise RuntimeError where it is missing.
        raise ToolchainError(f"no HIP runtime: {error}", hint="install ROCm (libamdhip64.so)") from error
    return hip


def check(hip: ModuleType, answer: tuple[Any, ...], call: str) -> Any:
    """The results of a runtime call, whose first part is its status. LaunchError names call and status."""
    status = answer[0]
    if status != hip.hipError_t.hipSuccess:
        _, text = hip.hipGetErrorString(status)
        name = hip.hipError_t(status).name
        raise LaunchError(f"{call} failed: {name} ({int(status)}): {text}", hint=_hint(name))
    return answer[1] if len(answer) == 2 else answer[1:]


def _hint(name: str) -> str:
    """What to do about an error of the runtime, by its name."""
    if "StreamCapture" in name:
        return "call the kernel once before the capture: compiling, loading and copying cannot be captured"
    return hip_library.mixed()


def device_count() -> int:
    hip = bindings()
    return int(check(hip, hip.hipGetDeviceCount(), "hipGetDeviceCount"))


@lru_cache(maxsize=32)
def open_device(index: int) -> Hip:
    """Device `index`. LaunchError if there is none of that number."""
    return Hip(index)


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    """The library of the runtime that the bindings have loaded."""
    there = hip_library.loaded()
    if len(there) == 1:
        return ctypes.CDLL(there[0])
    try:
        from rocm.bindings.util.paths import get_library_path
    except ImportError:  # releases that leave the search to the loader
        return ctypes.CDLL("libamdhip64.so")
    return ctypes.CDLL(os.fsdecode(get_library_path("amdhip64")))


class _Pointers(dict):
    """Handle → what ctypes passes as that handle."""

    def __missing__(self, handle: int) -> Any:
        if len(self) >= KEPT_STREAMS:
            self.clear()
        found = self[handle] = as_argument(handle)
        return found


class Function:
    """A loaded entry. It keeps its module; `context` is its device's number."""

    __slots__ = ("context", "handle", "module")

    def __init__(self, context: int, module: Any, handle: Any):
        self.context = context
        self.module = module
        self.handle = handle


class _Room(threading.local):
    """Where a call gives a number back, in each thread another place."""

    def __init__(self) -> None:
        self.number = ctypes.c_int()
        self.at = ctypes.byref(self.number)


class Hip:
    """A `Driver` (see devices.py) for one AMD GPU."""

    def __init__(self, index: int):
        self.hip = bindings()
        self.index = index
        properties = self._properties()
        self.arch = os.fsdecode(properties.gcnArchName)
        """The chip with its modes, as in `gfx942:sramecc+:xnack-`; the target is the part before the first colon."""
        self.name = os.fsdecode(properties.name)
        self.device = Device("hip", index, known_target(self.arch.partition(":")[0]))
        self._streams = _Pointers()
        self._room = _Room()
        self._marks: list[ctypes.c_void_p] = []
        """Events that nobody waits for."""
        library = _library()
        self._launch, self._get_device = library.hipModuleLaunchKernel, library.hipGetDevice
        self._is_capturing = library.hipStreamIsCapturing
        self._record, self._query = library.hipEventRecord, library.hipEventQuery
        self._functions: dict[tuple[str, str], Function] = {}

    def _call(self, name: str, *arguments: Any) -> Any:
        return check(self.hip, getattr(self.hip, name)(*arguments), name)

    def _properties(self) -> Any:
        """What the device is. Bindings before release 10 fill a record that they are handed."""
        try:
            return self._call("hipGetDeviceProperties", self.index)
        except TypeError:
            properties = self.hip.hipDeviceProp_t()
            self._call("hipGetDeviceProperties", properties, self.index)
            return properties

    def _refused(self, status: int, name: str) -> None:
        """Raise what `check` raises for the status of a call by ctypes."""
        check(self.hip, (self.hip.hipError_t(status),), name)

    def current(self) -> int:
        """See Driver: the thread's device."""
        room = self._room
        self._get_device(room.at)
        return room.number.value

    @contextmanager
    def entered(self) -> Iterator[int]:
        """See Driver. The current device is per thread: a call may come from any."""
        current = int(self._call("hipGetDevice"))
        if current == self.index:
            yield current
            return
        self._call("hipSetDevice", self.index)
        try:
            yield self.index
        finally:
            self._call("hipSetDevice", current)

    def allocate(self, size: int) -> int:
        with self.entered():
            return int(self._call("hipMalloc", max(size, 1)))

    def allocate_in_capture(self, size: int) -> int:
        # The bindings' own function of this name has no way to say which mode.
        mode = ctypes.c_int(int(self.hip.hipStreamCaptureMode.hipStreamCaptureModeRelaxed))
        exchange = _library().hipThreadExchangeStreamCaptureMode
        exchange(ctypes.byref(mode))
        try:
            return self.allocate(size)
        finally:
            exchange(ctypes.byref(mode))

    def free(self, address: int) -> None:
        with self.entered():
            self._call("hipFree", address)

    def upload(self, address: int, data: np.ndarray) -> None:
        if data.nbytes:
            with self.entered():
                self._call("hipMemcpyHtoD", address, data.ctypes.data, data.nbytes)

    def download(self, data: np.ndarray, address: int) -> None:
        if data.nbytes:
            with self.entered():
                self._call("hipMemcpyDtoH", data.ctypes.data, address, data.nbytes)

    def load(self, text: str, target: str, name: str, shared_bytes: int) -> Function:
        """See Driver. Shared memory is static on AMD: the text's descriptor holds its size."""
        if target != self.device.target:
            raise ConstraintError(
                f"{name} was compiled for {target}, but {self.device} is a {self.device.target}",
                hint=f"compile it with target={self.device.target!r}",
            )
        function = self._functions.get((text, name))
        if function is None:
            with self.entered():
                module = self._call("hipModuleLoadData", binaries.hsaco(text, target, name))
                handle = self._call("hipModuleGetFunction", module, name.encode())
            function = self._functions[text, name] = Function(self.index, module, handle)
        return function

    def prepared(
        self, function: Function, block: tuple[int, int, int], params: int
    ) -> Callable[[int, tuple[int, int, int]], None]:
        launch, streams, refused = self._launch, self._streams, self._refused
        u, v, w = block
        handle, pointers = as_argument(int(function.handle)), as_argument(params)

        def start(stream: int, grid: tuple[int, int, int]) -> None:
            x, y, z = grid
            status = launch(handle, x, y, z, u, v, w, 0, streams[stream], pointers, None)
            if status:
                refused(status, "hipModuleLaunchKernel")

        return start

    def launch(
        self, function: Function, grid: tuple[int, int, int], block: tuple[int, int, int], params: int, stream: int
    ) -> None:
        with self.entered():
            self.prepared(function, block, params)(stream, grid)

    def capturing(self, stream: int) -> bool:
        room = self._room
        self._is_capturing(self._streams[stream], room.at)
        return room.number.value == CAPTURE_ACTIVE

    def capture(self, stream: int) -> int:
        return int(self._call("hipStreamGetCaptureInfo_v2", stream, None)[1])

    def at_end_of_graph(self, stream: int, function: int, pointer: int) -> None:
        graph = self._call("hipStreamGetCaptureInfo_v2", stream, None)[2]
        flags = int(self.hip.hipUserObjectFlags.hipUserObjectNoDestructorSync)
        made = self._call("hipUserObjectCreate", pointer, function, 1, flags)
        move = int(self.hip.hipUserObjectRetainFlags.hipGraphUserObjectMove)
        self._call("hipGraphRetainUserObject", graph, made, 1, move)

    def mark(self, stream: int, current: int) -> Any:
        if current == self.index:
            return self._mark(stream)
        with self.entered():
            return self._mark(stream)

    def _mark(self, stream: int) -> ctypes.c_void_p:
        try:
            event = self._marks.pop()
        except IndexError:
            made = self._call("hipEventCreateWithFlags", self.hip.hipEventDisableTiming)
            event = ctypes.c_void_p(int(made))
        self._record_again(event, stream)
        return event

    def _record_again(self, event: ctypes.c_void_p, stream: int) -> None:
        status = self._record(event, self._streams[stream])
        if status:
            self._refused(status, "hipEventRecord")

    def move(self, mark: Any, stream: int, current: int | None) -> bool:
        if current == self.index:
            self._record_again(mark, stream)
            return True
        if current is not None:
            return False
        with self.entered():
            self._record_again(mark, stream)
        return True

    def lasting(self, mark: Any, stream: int, current: int) -> bool:
        return stream in DEFAULT_STREAMS and current == self.index

    def passed(self, mark: Any) -> bool:
        # After a failed kernel every call answers its error, which whoever waits for results is told.
        if self._query(mark) == NOT_READY:
            return False
        self._marks.append(mark)
        return True

    def tensor_map(self, address: int, **spec: Any) -> bytes:
        raise LaunchError(f"{self.device} has no tensor maps")

    def tensor_maps(self, **spec: Any) -> Callable[[int, tuple[int, ...], tuple[int, ...]], bytes]:
        raise LaunchError(f"{self.device} has no tensor maps")

    def synchronize(self, stream: int) -> None:
        with self.entered():
            self._call("hipStreamSynchronize", stream)

    def clear(self, address: int, size: int, stream: int) -> None:
        with self.entered():
            self._call("hipMemsetAsync", address, 0, size, stream)

    def event(self, stream: int) -> Any:
        with self.entered():
            event = self._call("hipEventCreate")
            self._call("hipEventRecord", event, stream)
        return event

    def elapsed(self, start: Any, end: Any) -> float:
        with self.entered():
            milliseconds = float(self._call("hipEventElapsedTime", start, end))
            self._call("hipEventDestroy", start)
            self._call("hipEventDestroy", end)
        return milliseconds / 1e3
