"""HIP devices through the bindings of hip-python.

In come text, addresses and launch sizes, out go calls of libamdhip64. The text is assembled and linked here-side
(`toolchain`), so a GPU needs no compiler of its own. Nothing here knows what a kernel computes; parameters arrive as an
array of pointers.
"""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from wavedsl.ir.errors import ConstraintError, LaunchError, ToolchainError
from wavedsl.runtime import toolchain
from wavedsl.runtime.devices import Device, known_target


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
        raise LaunchError(f"{call} failed: {hip.hipError_t(status).name} ({int(status)}): {text}")
    return answer[1] if len(answer) == 2 else answer[1:]


def device_count() -> int:
    hip = bindings()
    return int(check(hip, hip.hipGetDeviceCount(), "hipGetDeviceCount"))


@lru_cache(maxsize=32)
def open_device(index: int) -> Hip:
    """Device `index`. LaunchError if there is none of that number."""
    return Hip(index)


class Hip:
    """A `Driver` (see devices.py) for one AMD GPU."""

    def __init__(self, index: int):
        self.hip = bindings()
        self.index = index
        properties = self._call("hipGetDeviceProperties", index)
        self.arch = str(properties.gcnArchName)
        """The chip with its modes, as in `gfx942:sramecc+:xnack-`; the target is the part before the first colon."""
        self.name = str(properties.name)
        self.device = Device("hip", index, known_target(self.arch.partition(":")[0]))
        self._functions: dict[tuple[str, str], tuple[Any, Any]] = {}

    def _call(self, name: str, *arguments: Any) -> Any:
        return check(self.hip, getattr(self.hip, name)(*arguments), name)

    def _enter(self) -> None:
        """The current device is per thread: a call may come from any."""
        self._call("hipSetDevice", self.index)

    def allocate(self, size: int) -> int:
        self._enter()
        return int(self._call("hipMalloc", max(size, 1)))

    def free(self, address: int) -> None:
        self._enter()
        self._call("hipFree", address)

    def upload(self, address: int, data: np.ndarray) -> None:
        self._enter()
        if data.nbytes:
            self._call("hipMemcpyHtoD", address, data.ctypes.data, data.nbytes)

    def download(self, data: np.ndarray, address: int) -> None:
        self._enter()
        if data.nbytes:
            self._call("hipMemcpyDtoH", data.ctypes.data, address, data.nbytes)

    def load(self, text: str, target: str, name: str, shared_bytes: int) -> tuple[Any, Any]:
        """See Driver. Shared memory is static on AMD: the text's descriptor holds its size."""
        if target != self.device.target:
            raise ConstraintError(
                f"{name} was compiled for {target}, but {self.device} is a {self.device.target}",
                hint=f"compile it with target={self.device.target!r}",
            )
        function = self._functions.get((text, name))
        if function is None:
            self._enter()
            module = self._call("hipModuleLoadData", toolchain.assemble_amdgcn(text, target))
            function = self._functions[text, name] = (
                module,
                self._call("hipModuleGetFunction", module, name.encode()),
            )
        return function

    def launch(
        self,
        function: tuple[Any, Any],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        params: int,
        stream: int,
    ) -> None:
        self._enter()
        self._call("hipModuleLaunchKernel", function[1], *grid, *block, 0, stream, params, None)

    def tensor_map(self, address: int, **spec: Any) -> bytes:
        raise LaunchError(f"{self.device} has no tensor maps")

    def synchronize(self, stream: int) -> None:
        self._enter()
        self._call("hipStreamSynchronize", stream)

    def clear(self, address: int, size: int, stream: int) -> None:
        self._enter()
        self._call("hipMemsetAsync", address, 0, size, stream)

    def event(self, stream: int) -> Any:
        self._enter()
        event = self._call("hipEventCreate")
        self._call("hipEventRecord", event, stream)
        return event

    def elapsed(self, start: Any, end: Any) -> float:
        self._enter()
        milliseconds = float(self._call("hipEventElapsedTime", start, end))
        self._call("hipEventDestroy", start)
        self._call("hipEventDestroy", end)
        return milliseconds / 1e3
