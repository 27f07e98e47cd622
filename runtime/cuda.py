"""CUDA devices through the driver bindings of cuda-python.

In come text, addresses and launch sizes, out go calls of libcuda. A kernel runs in the calling thread's context if that
is one of the device's, else in the device's primary context, which torch and CuPy use too, so that their pointers and
streams are valid here. A thread's context is left as it was found, but for a thread that had none.

PTX is assembled by ptxas for the chip at hand if there is a ptxas whose binaries the driver takes, else by the driver.
Nothing here knows what a kernel computes; parameters arrive as an array of pointers.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from wavedsl.ir.errors import LaunchError, ToolchainError
from wavedsl.runtime import binaries, toolchain
from wavedsl.runtime.devices import Device, as_argument, known_target
from wavedsl.runtime.parameters import MAP_ALIGN
from wavedsl.runtime.tensor_map import BYTES as MAP_BYTES
from wavedsl.runtime.tensor_map import TensorMapSpec, data_type

DEFAULT_SHARED = 48 * 1024
"""Dynamic shared memory that a kernel may use without asking (CUDA programming guide, compute capability tables)."""
_LOG_BYTES = 16384
_NOT_FOR_THIS_DRIVER = (
    "CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    "CUDA_ERROR_INVALID_SOURCE",
)  # fmt: skip
"""What a driver answers to a binary of a toolkit that it does not know (JAX' issue 18572, Legion's 1690: the first)."""
LEGACY_STREAM = 1
"""`CU_STREAM_LEGACY` (cuda.h): the default stream, whatever 0 stands for."""
PER_THREAD_DEFAULT = "CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM"
"""The variable by which the bindings make stream 0 another one in each thread."""
KEPT_MAPS = 4096
"""Tensor maps that are remembered: 128 bytes each, and what they are found by."""


@lru_cache(maxsize=1)
def bindings() -> ModuleType:
    """`cuda.bindings.driver`, with the driver initialised. ToolchainError if either is missing."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise ToolchainError(
            f"cuda-python cannot be imported: {error}", hint="install it with pip install 'wavedsl[cuda]'"
        ) from error
    try:
        check(driver, driver.cuInit(0), "cuInit")
    except (RuntimeError, OSError) as error:
        # The bindings load libcuda at the first call and raise exceptions of their own where it is missing.
        raise ToolchainError(f"no CUDA driver: {error}", hint="install NVIDIA's driver (libcuda.so.1)") from error
    return driver


def check(driver: ModuleType, answer: tuple[Any, ...], call: str) -> Any:
    """The results of a driver call, whose first part is its status. LaunchError names call and status."""
    status = answer[0]
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        said = text.decode() if text else "unknown error"
        name = driver.CUresult(status).name
        raise LaunchError(f"{call} failed: {name} ({int(status)}): {said}", hint=_hint(name))
    return answer[1] if len(answer) == 2 else answer[1:]


def _hint(name: str) -> str:
    """What to do about an error of the driver, by its name."""
    if "STREAM_CAPTURE" in name:
        return "call the kernel once before the capture: compiling, loading and copying cannot be captured"
    return ""


def device_count() -> int:
    driver = bindings()
    return int(check(driver, driver.cuDeviceGetCount(), "cuDeviceGetCount"))


@lru_cache(maxsize=1)
def several() -> bool:
    """Whether there are several devices; False without a driver."""
    try:
        return device_count() > 1
    except ToolchainError:
        return False


def ordinal_of(pointer: int) -> int:
    """The number of the device that an address belongs to; 0 where there is but one, or the driver does not know it."""
    if not several():
        return 0
    driver = bindings()
    status, index = driver.cuPointerGetAttribute(
        driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer
    )
    return int(index) if status == driver.CUresult.CUDA_SUCCESS else 0


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    """The library that the bindings have loaded: what each launch calls goes there by ctypes, which takes less time."""
    return ctypes.CDLL("libcuda.so.1")


@lru_cache(maxsize=32)
def open_device(index: int) -> Cuda:
    """Device `index` with its primary context. LaunchError if there is none of that number."""
    return Cuda(index)


class Function:
    """A loaded entry. It keeps its module, and remembers its context, the dynamic shared memory of its launches,
    whether they may begin before the kernel in front has ended (`dependent`: the text waits for that itself), and the
    workgroups that run at once, where more of them would only wait (`most`; None: all are wanted)."""

    __slots__ = ("context", "dependent", "dynamic_shared", "handle", "module", "most")

    def __init__(
        self, context: int, module: Any, handle: Any, dynamic_shared: int, dependent: bool, most: int | None = None
    ):
        self.dependent = dependent
        self.most = most
        self.context = context
        self.module = module
        self.handle = handle
        self.dynamic_shared = dynamic_shared


class Cuda:
    """A `Driver` (see devices.py) for one NVIDIA GPU."""

    def __init__(self, index: int):
        self.driver = driver = bindings()
        self.handle = self._call("cuDeviceGet", index)
        attribute = driver.CUdevice_attribute
        major = self._call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self.handle)
        minor = self._call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self.handle)
        self.arch = f"sm_{major}{minor}"
        """The chip's own name; the target is what text is generated for."""
        self.name = self._call("cuDeviceGetName", 256, self.handle).split(b"\0")[0].decode()
        self.device = Device("cuda", index, known_target(self.arch))
        self.context = self._call("cuDevicePrimaryCtxRetain", self.handle)
        self._primary = int(self.context)
        per_thread = os.environ.get(PER_THREAD_DEFAULT, "0") != "0"
        self._default_streams = () if per_thread else (0, LEGACY_STREAM)
        self._launch = getattr(_library(), "cuLaunchKernelEx_ptsz" if per_thread else "cuLaunchKernelEx")
        states = driver.CUstreamCaptureStatus
        self._active, self._idle = states.CU_STREAM_CAPTURE_STATUS_ACTIVE, states.CU_STREAM_CAPTURE_STATUS_NONE
        self._is_capturing = driver.cuStreamIsCapturing
        self._current_context = driver.cuCtxGetCurrent
        self._record_event, self._query_event = driver.cuEventRecord, driver.cuEventQuery
        self._not_ready = driver.CUresult.CUDA_ERROR_NOT_READY
        self._functions: dict[tuple[int, str, str, int], Function] = {}
        self._maps: dict[Any, bytes] = {}
        self._marks: dict[int, list[Any]] = {}
        """Contexts of this device, and events of theirs that nobody waits for."""

    def _call(self, name: str, *arguments: Any) -> Any:
        return check(self.driver, getattr(self.driver, name)(*arguments), name)

    def current(self) -> int:
        """See Driver: the thread's context."""
        return int(self._current_context()[1])

    @contextmanager
    def entered(self) -> Iterator[int]:
        """See Driver. Contexts are current per thread: a call may come from any."""
        current = int(self._call("cuCtxGetCurrent"))
        if not current:
            self._call("cuCtxSetCurrent", self.context)
            yield int(self.context)
        elif int(self._call("cuCtxGetDevice")) == int(self.handle):
            yield current
        else:
            self._call("cuCtxPushCurrent", self.context)
            try:
                yield int(self.context)
            finally:
                self._call("cuCtxPopCurrent")

    def allocate(self, size: int) -> int:
        with self.entered():
            return int(self._call("cuMemAlloc", max(size, 1)))

    def allocate_in_capture(self, size: int) -> int:
        relaxed = self.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        before = self._call("cuThreadExchangeStreamCaptureMode", relaxed)
        try:
            return self.allocate(size)
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", before)

    def free(self, address: int) -> None:
        with self.entered():
            self._call("cuMemFree", address)

    def upload(self, address: int, data: np.ndarray) -> None:
        if data.nbytes:
            with self.entered():
                self._call("cuMemcpyHtoD", address, data.ctypes.data, data.nbytes)

    def download(self, data: np.ndarray, address: int) -> None:
        if data.nbytes:
            with self.entered():
                self._call("cuMemcpyDtoH", data.ctypes.data, address, data.nbytes)

    def load(self, text: str, target: str, name: str, shared_bytes: int) -> Function:
        with self.entered() as context:
            key = (context, text, name, shared_bytes)
            function = self._functions.get(key)
            if function is None:
                # Text with a chip's own features assembles for that very chip only, other text for any later one.
                module = self._module(text, target if target.endswith("a") else self.arch, name)
                handle = self._call("cuModuleGetFunction", module, name.encode())
                # By the text, which declares one array: what drivers report as static may hold what they reserve.
                dynamic = shared_bytes if ".extern .shared" in text else 0
                if dynamic > DEFAULT_SHARED:
                    limit = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                    self._call("cuFuncSetAttribute", handle, limit, dynamic)
                from wavedsl.codegen.ptx.isa_warp import GRID_WAIT
                from wavedsl.codegen.ptx.turns import taking_turns

                shape = taking_turns(text)
                most = None if shape is None else self._at_once(handle, *shape, dynamic)
                function = self._functions[key] = Function(context, module, handle, dynamic, GRID_WAIT in text, most)
        return function

    def _at_once(self, handle: Any, threads: int, cluster: int, dynamic: int) -> int | None:
        """The workgroups that the chip has room for at once, in whole clusters; None where the driver cannot tell."""
        driver = self.driver
        if cluster == 1:
            status, each = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(handle, threads, dynamic)
            attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
            count = each * self._call("cuDeviceGetAttribute", attribute, self.handle) if not int(status) else 0
        else:
            config = driver.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = cluster, 1, 1
            config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
            config.sharedMemBytes = dynamic
            status, clusters = driver.cuOccupancyMaxActiveClusters(handle, config)
            count = clusters * cluster if not int(status) else 0
        return count or None

    def _module(self, text: str, arch: str, name: str) -> Any:
        """The module that ptxas makes of the text, or else the driver's own assembler.

        A driver older than ptxas does not know its binaries, an older ptxas does not know the text.
        """
        if toolchain.find_cuda_tool("ptxas") is None:
            return self._assembled_by_driver(text, arch)
        try:
            return self._call("cuModuleLoadData", binaries.ptx(text, arch, name).cubin)
        except ToolchainError as error:
            refused: ToolchainError | LaunchError = error
        except LaunchError as error:
            if not any(known in error.message for known in _NOT_FOR_THIS_DRIVER):
                raise
            refused = error
        try:
            return self._assembled_by_driver(text, arch)
        except ToolchainError as error:
            raise ToolchainError(
                f"{refused.message}\nand {error.message}",
                hint="ptxas and the driver should be of one CUDA release, or the driver's of the later one",
            ) from refused

    def _assembled_by_driver(self, text: str, arch: str) -> Any:
        driver, log = self.driver, bytearray(_LOG_BYTES)
        options = [
            driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER,
            driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ]
        answer = driver.cuModuleLoadDataEx(text.encode() + b"\0", len(options), options, [log, _LOG_BYTES])
        if answer[0] != driver.CUresult.CUDA_SUCCESS:
            said = bytes(log).split(b"\0")[0].decode(errors="replace").strip()
            raise ToolchainError(
                f"the driver does not assemble the text for {arch} ({driver.CUresult(answer[0]).name}):\n{said}",
                hint=f"for a fuller message {toolchain.INSTALL_PTXAS}",
            )
        return answer[1]

    def prepared(
        self, function: Function, block: tuple[int, int, int], params: int
    ) -> Callable[[int, tuple[int, int, int]], None]:
        driver = self.driver
        config = driver.CUlaunchConfig()
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = function.dynamic_shared
        attributes = []
        if function.dependent:
            overlap = driver.CUlaunchAttribute()
            overlap.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            overlap.value.programmaticStreamSerializationAllowed = 1
            attributes.append(overlap)
        config.attrs, config.numAttrs = attributes, len(attributes)
        handle, pointers = as_argument(int(function.handle)), as_argument(params)
        at, launch, refused = as_argument(config.getPtr()), self._launch, self._refused
        last, used, most = None, -1, function.most

        def start(stream: int, grid: tuple[int, int, int]) -> None:
            nonlocal last, used
            if grid is not last:
                config.gridDimX, config.gridDimY, config.gridDimZ = grid
                if most is not None and grid[0] > most:
                    config.gridDimX = most
                last = grid
            if stream != used:
                config.hStream = used = stream
            status = launch(at, handle, pointers, None)
            if status:
                refused(status, "cuLaunchKernelEx")

        return start

    def _refused(self, status: int, name: str) -> None:
        """Raise what `check` raises for the status of a call by ctypes."""
        check(self.driver, (self.driver.CUresult(status),), name)

    def launch(
        self, function: Function, grid: tuple[int, int, int], block: tuple[int, int, int], params: int, stream: int
    ) -> None:
        with self.entered():
            self.prepared(function, block, params)(stream, grid)

    def capturing(self, stream: int) -> bool:
        state = self._is_capturing(stream)[1]
        return state is not self._idle and state == self._active

    def capture(self, stream: int) -> int:
        return int(self._call("cuStreamGetCaptureInfo", stream)[1])

    def at_end_of_graph(self, stream: int, function: int, pointer: int) -> None:
        d = self.driver
        graph = self._call("cuStreamGetCaptureInfo", stream)[2]
        flags = int(d.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        made = self._call("cuUserObjectCreate", pointer, d.CUhostFn(function), 1, flags)
        move = int(d.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE)
        self._call("cuGraphRetainUserObject", graph, made, 1, move)

    def mark(self, stream: int, current: int) -> Any:
        idle = self._marks.get(current)
        if idle is not None:
            return current, self._record(idle, stream)
        with self.entered() as context:  # not seen before, or another device's
            return context, self._record(self._marks.setdefault(context, []), stream)

    def _record(self, idle: list[Any], stream: int) -> Any:
        """An event of the current context, recorded on the stream; events are used again."""
        try:
            event = idle.pop()
        except IndexError:
            event = self._call("cuEventCreate", int(self.driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        self._record_again(event, stream)
        return event

    def _record_again(self, event: Any, stream: int) -> None:
        answer = self._record_event(event, stream)
        if answer[0]:
            check(self.driver, answer, "cuEventRecord")

    def move(self, mark: Any, stream: int, current: int | None) -> bool:
        context, event = mark
        if current == context:
            self._record_again(event, stream)
            return True
        if current is not None:
            return False
        self._call("cuCtxPushCurrent", self.context)
        try:
            self._record_again(event, stream)
        finally:
            self._call("cuCtxPopCurrent")
        return True

    def lasting(self, mark: Any, stream: int, current: int) -> bool:
        # Contexts of others may be destroyed, the primary one is retained. Streams of its own begin at 3 (cuda.h).
        return stream in self._default_streams and mark[0] == current == self._primary

    def passed(self, mark: Any) -> bool:
        # After a failed kernel every call answers its error, which whoever waits for results is told.
        context, event = mark
        if self._query_event(event)[0] == self._not_ready:
            return False
        self._marks[context].append(event)
        return True

    def tensor_map(self, address: int, **spec: Any) -> bytes:
        key = (address, tuple(spec.items()))
        found = self._maps.get(key)
        if found is None:
            if len(self._maps) >= KEPT_MAPS:
                self._maps.clear()
            at = address + spec["shift"]
            found = self._maps[key] = self.tensor_maps(**spec)(at, spec["dims"], spec["strides"])
        return found

    def tensor_maps(self, **spec: Any) -> Callable[[int, tuple[int, ...], tuple[int, ...]], bytes]:
        first = TensorMapSpec(
            data_type(spec["dtype"]), spec["dims"], spec["strides"], spec["box"], swizzle=spec["swizzle"]
        )
        kind, rank, *_, interleave, swizzle, promotion, fill = first.driver_arguments(0)
        wide, narrow = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
        box, steps = narrow(*first.box), narrow(*first.element_strides)
        encode, room_of = _library().cuTensorMapEncodeTiled, ctypes.c_char * (MAP_BYTES + MAP_ALIGN)

        def made(address: int, dims: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
            if address % 16 or not 0 < min(dims) <= max(dims) <= 1 << 32 or any(s % 16 or s >> 40 for s in strides):
                replace(first, dims=dims, strides=strides).check_address(address)  # says what is wrong
            room = room_of()
            at = ctypes.addressof(room)
            at += -at % MAP_ALIGN
            place, start = ctypes.c_void_p(at), ctypes.c_void_p(address)
            given = (kind, rank, start, wide(*dims), wide(*strides), box, steps, interleave, swizzle, promotion, fill)
            status = encode(place, *given)
            if status:
                with self.entered():  # a thread without a context may be what is wrong
                    status = encode(place, *given)
            if status:
                self._refused(status, "cuTensorMapEncodeTiled")
            return ctypes.string_at(at, MAP_BYTES)

        return made

    def synchronize(self, stream: int) -> None:
        with self.entered():
            self._call("cuStreamSynchronize", stream)

    def clear(self, address: int, size: int, stream: int) -> None:
        with self.entered():
            self._call("cuMemsetD8Async", address, 0, size, stream)

    def event(self, stream: int) -> Any:
        with self.entered():
            event = self._call("cuEventCreate", 0)
            self._call("cuEventRecord", event, stream)
        return event

    def elapsed(self, start: Any, end: Any) -> float:
        with self.entered():
            milliseconds = float(self._call("cuEventElapsedTime", start, end))
            self._call("cuEventDestroy", start)
            self._call("cuEventDestroy", end)
        return milliseconds / 1e3
