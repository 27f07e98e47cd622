"""Devices: which there are, which one a call goes to, and what a driver must be able to do.

In come names (`cuda:0`, `hip:1`, `emulator:gfx950`) or the places where arrays lie, out come `Device`s and, for GPUs,
an open `Driver`. The bindings (cuda-python, hip-python) are imported only when a GPU is used or could be there.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from wavedsl.codegen import TARGETS
from wavedsl.ir.errors import ConstraintError, LaunchError, ToolchainError
from wavedsl.ir.quick_dataclass import dataclass

DEFAULT_EMULATED = "gfx942"


@dataclass(frozen=True)
class Device:
    """Where kernels run: `kind` is `cuda`, `hip` or `emulator`; `target` is what is compiled for it."""

    kind: str
    index: int
    target: str

    def __str__(self) -> str:
        return f"emulator:{self.target}" if self.kind == "emulator" else f"{self.kind}:{self.index}"


class Driver(Protocol):
    """One open GPU. Sizes in bytes, addresses as integers, streams as the driver's handles (0: the default one).

    Every method raises LaunchError with the driver's name of the error, ToolchainError where a program is missing.
    """

    device: Device
    name: str
    """The product's, in the driver's words."""

    def allocate(self, size: int) -> int:
        """Address of `size` new bytes, aligned to 256."""
        ...

    def allocate_in_capture(self, size: int) -> int:
        """As `allocate`, in a thread that captures a stream: the memory is no part of the graph."""
        ...

    def free(self, address: int) -> None: ...

    def upload(self, address: int, data: np.ndarray) -> None:
        """Copy contiguous `data` to the device and wait."""
        ...

    def download(self, data: np.ndarray, address: int) -> None:
        """Copy from the device into contiguous `data` and wait; what runs on the default stream is finished before."""
        ...

    def load(self, text: str, target: str, name: str, shared_bytes: int) -> Any:
        """A launchable handle of entry `name`, which uses `shared_bytes` of shared memory. Loaded once per text."""
        ...

    def current(self) -> int:
        """What of this driver's kind is current in the calling thread: a context's handle, or a device's number."""
        ...

    def entered(self) -> AbstractContextManager[int]:
        """Make this device current in the calling thread for a while; gives what `current` then is."""
        ...

    def prepared(
        self, function: Any, block: tuple[int, int, int], params: int
    ) -> Callable[[int, tuple[int, int, int]], None]:
        """A function of the stream and the grid that starts the kernel in a thread where `function.context` is current;
        it is not for two threads at once. `params` is the address of an array of pointers to the parameters."""
        ...

    def launch(
        self, function: Any, grid: tuple[int, int, int], block: tuple[int, int, int], params: int, stream: int
    ) -> None:
        """Start the kernel from any thread; `params` as for `prepared`."""
        ...

    def capturing(self, stream: int) -> bool:
        """Whether what the stream is given goes to a graph now."""
        ...

    def capture(self, stream: int) -> int:
        """The number of the capture that the stream is in; no two of a process have the same."""
        ...

    def at_end_of_graph(self, stream: int, function: int, pointer: int) -> None:
        """Have the C function at address `function` called with `pointer` once the graph that the stream is captured
        into is gone, and every executable graph made of it."""
        ...

    def mark(self, stream: int, current: int) -> Any:
        """A mark on the stream that `passed` is asked about, in a thread where `current` is current."""
        ...

    def move(self, mark: Any, stream: int, current: int | None) -> bool:
        """Set a mark that was made on this stream behind what the stream has been given since. False, with nothing
        done, in a thread where not the same is current as when it was made. None: in any thread, for marks that
        are `lasting`."""
        ...

    def lasting(self, mark: Any, stream: int, current: int) -> bool:
        """Whether the mark was made in a thread where the same was current, and can be moved at any later time from
        any thread: the stream is never destroyed, and is the same one for all threads."""
        ...

    def passed(self, mark: Any) -> bool:
        """Whether the stream has passed the mark, which is then given up."""
        ...

    def tensor_map(self, address: int, **spec: Any) -> bytes:
        """The 128 bytes of a tensor map (arguments of `TensorMap`) of an array at `address`. LaunchError where the
        chip has none."""
        ...

    def tensor_maps(self, **spec: Any) -> Callable[[int, tuple[int, ...], tuple[int, ...]], bytes]:
        """A function of address, sizes and strides that makes maps which agree with `spec` in all else."""
        ...

    def synchronize(self, stream: int) -> None:
        """Wait for the stream; a kernel that failed on it is reported here."""
        ...

    def clear(self, address: int, size: int, stream: int) -> None:
        """Set bytes to 0 on the stream, without waiting."""
        ...

    def event(self, stream: int) -> Any:
        """A mark on the stream whose time can be asked for once the stream is finished."""
        ...

    def elapsed(self, start: Any, end: Any) -> float:
        """Seconds between two marks; both are given up."""
        ...


def parse(text: str) -> Device:
    """The device called `text`: `cuda`, `hip:1`, `emulator`, `emulator:gfx950`. LaunchError for other names."""
    kind, _, rest = text.strip().partition(":")
    if kind == "emulator":
        return Device("emulator", 0, known_target(rest or DEFAULT_EMULATED))
    if kind in ("cuda", "hip") and (not rest or rest.isdecimal()):
        index = int(rest or 0)
        return Device(kind, index, open_driver(kind, index).device.target)
    raise LaunchError(f"{text!r} is not a device", hint="use cuda:N, hip:N, or emulator:TARGET, as in emulator:gfx950")


def known_target(name: str) -> str:
    """The target whose text runs on `name`: itself, or sm_80 for later NVIDIA chips. ConstraintError if unknown."""
    if name in TARGETS:
        return name
    if name == "sm_90":
        return "sm_90a"
    if name.startswith("sm_") and name[3:].rstrip("a").isdecimal() and int(name[3:].rstrip("a")) >= 80:
        return "sm_80"
    raise ConstraintError(f"{name!r} is not a target", hint=f"use one of {', '.join(TARGETS)}")


def default() -> Device:
    """WAVEDSL_DEVICE if set, else the first GPU, else the emulator of gfx942."""
    name = os.environ.get("WAVEDSL_DEVICE")
    if name:
        try:
            return parse(name)
        except (LaunchError, ConstraintError) as error:
            error.message = f"WAVEDSL_DEVICE={name}: {error.message}"
            raise
    found = gpus()
    return found[0] if found else Device("emulator", 0, DEFAULT_EMULATED)


@lru_cache(maxsize=1)
def gpus() -> tuple[Device, ...]:
    """Every GPU that can be used: CUDA's, then HIP's. A driver without its bindings is warned of once."""
    found: list[Device] = []
    for kind in ("cuda", "hip"):
        if not driver_present(kind):
            continue
        try:
            found += [open_driver(kind, i).device for i in range(device_count(kind))]
        except (ToolchainError, LaunchError, ConstraintError) as error:
            warnings.warn(f"a {kind.upper()} driver is there, but not used: {error}", RuntimeWarning, stacklevel=2)
    return tuple(found)


def driver_present(kind: str) -> bool:
    """Whether a driver is installed, found out without importing its bindings."""
    if kind == "hip":
        return os.path.exists("/dev/kfd")  # the kernel driver's node: without it no HIP runtime sees a device
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def device_count(kind: str) -> int:
    """How many devices the driver of `kind` sees."""
    return _module(kind).device_count()


def open_driver(kind: str, index: int) -> Driver:
    """The driver of one device, opened once. ToolchainError says what to install where something is missing."""
    return _module(kind).open_device(index)


def _module(kind: str) -> Any:
    if kind == "cuda":
        from wavedsl.runtime import cuda

        return cuda
    from wavedsl.runtime import hip

    return hip


def for_place(place: str, index: int) -> Device:
    """The device that runs calls whose arrays lie at `place`: their GPU, or the default device for host memory."""
    return default() if place == "cpu" else open_driver(place, index).device


def as_argument(address: int) -> Any:
    """What ctypes passes as this pointer, or handle: of all that it takes as one, it passes a reference in the least
    time. Nothing is read there."""
    return ctypes.byref(ctypes.c_char.from_address(address))


def bindings_installed(kind: str) -> bool:
    """Whether cuda-python or hip-python can be imported."""
    package = {"cuda": "cuda.bindings", "hip": "hip"}[kind]
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False
