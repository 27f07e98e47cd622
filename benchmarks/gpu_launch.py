"""Host time of launches on a real driver, and what it is made of: calls, driver, arrays, rivals.

    python benchmarks/gpu_launch.py [--out FILE] [--rounds 100]

A kernel of 3 arrays and 5 scalars is called with torch's, CuPy's and other arrays and launched bound; beside that stand
the driver's calls alone (from C, which nothing can beat, by ctypes, through the bindings), each question that a call
asks of a tensor, and what Triton's launch of the same kernel and `torch.add` take. To be run on a machine that does
nothing else; this thread stays on one processor.

A row is one call's wall time and the process's CPU time in microseconds: the least, the lower quartile and the median
of short rounds, the time of an empty Python function included, which has a row of its own. Rounds of all rows take
turns, for a driver's call takes a quarter more or less from one second to the next; rows can be compared. The GPU is
waited for between two rounds, so that neither the driver's queue fills nor the GPU's time is measured. What cannot be
measured here is a row that says why.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))

import gpu_session  # finds wavedsl where it is not installed
import launch

SHAPE = (64, 256)
WARM = 5
"""Rounds that do not count."""
CALLS = 100
"""Launches in a round: a tenth of the driver's queue."""


class Interface:
    """A tensor that gives itself away by `__cuda_array_interface__` alone, with an answer at hand."""

    def __init__(self, tensor: Any):
        self.tensor = tensor
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape),
            "strides": None,
            "typestr": "<f4",
            "data": (tensor.data_ptr(), False),
            "stream": None,
            "version": 3,
        }


class Capsule:
    """A tensor that gives itself away by DLPack alone."""

    def __init__(self, tensor: Any):
        self.tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)


@dataclass
class Row:
    """A call that is timed, within `place`; `launches`: how many calls it stands for, where C makes them."""

    facts: dict[str, Any]
    call: Callable[[], Any]
    place: Callable[[], Any] = contextlib.nullcontext
    launches: int = 1
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


class Bench:
    """Rows of calls, and those that could not be made; `wait` waits for the GPU."""

    def __init__(self, wait: Callable[[], Any]):
        self.wait = wait
        self.found: list[dict[str, Any]] = []
        self.timed: list[Row] = []
        self.kept: list[Any] = []
        """What calls have but the address of."""

    def add(self, group: str, name: str, make: Callable[[], Callable[[], Any]], place: Any = None, **more: Any) -> None:
        """A row of the call that `make` gives; if that fails, of why."""
        launches = more.pop("launches", 1)
        row = {"group": group, "call": name, **more}
        self.found.append(row)
        try:
            made = Row(row, make(), place or contextlib.nullcontext, launches)
            with made.place():
                made.call()
                self.wait()
        except Exception as error:  # one that is missing here must not take the others with it
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
        else:
            self.timed.append(made)

    def run(self, rounds: int) -> list[dict[str, Any]]:
        """Time all rows in turn; their numbers."""
        gc.collect()
        gc.disable()
        try:
            for i in range(rounds + WARM):
                for row in self.timed:
                    with row.place():
                        self._round(row, i >= WARM)
        finally:
            gc.enable()
        for row in self.timed:
            for prefix, times in (("", row.wall), ("cpu_", row.cpu)):
                least = min(times)
                row.facts[f"{prefix}least_us"] = least
                row.facts[f"{prefix}quarter_us"] = statistics.quantiles(times, n=4)[0] if len(times) > 1 else least
                row.facts[f"{prefix}us"] = statistics.median(times)
        return self.found

    def _round(self, row: Row, keep: bool) -> None:
        call, times = row.call, CALLS // row.launches
        self.wait()
        began, busy = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(times):
            call()
        busy, took = time.process_time_ns() - busy, time.perf_counter_ns() - began
        if keep:
            row.wall.append(took / 1e3 / CALLS)
            row.cpu.append(busy / 1e3 / CALLS)


def ours(bench: Bench, torch: Any) -> Any:
    """Calls and bound launches of our kernel; gives the bound one."""
    kernel, numbers = launch.scaled_sum(), launch.SCALARS
    n, alpha, beta, low, high = numbers
    a, b, c = (torch.zeros(SHAPE, device="cuda") for _ in range(3))
    kernel(a, b, c, *numbers)
    bound = kernel.bind(a, b, c, *numbers)
    bench.add("ours", "bound()", lambda: bound, limit_us=launch.BOUND_US)
    bench.add(
        "ours", "kernel(), torch", lambda: lambda: kernel(a, b, c, n, alpha, beta, low, high), limit_us=launch.CALL_US
    )
    bench.add(
        "ours",
        "kernel(), torch, keywords",
        lambda: lambda: kernel(a, b, c, n=n, alpha=alpha, beta=beta, low=low, high=high),
    )

    def shapes() -> Callable[[], Any]:
        calls = []
        for rows in (64, 32, 16, 8):
            x, y, z = (torch.zeros((rows, SHAPE[1]), device="cuda") for _ in range(3))
            kernel(x, y, z, *numbers)
            calls.append((x, y, z))
        turn = 0

        def call() -> None:
            nonlocal turn
            turn = (turn + 1) % len(calls)
            x, y, z = calls[turn]
            kernel(x, y, z, n, alpha, beta, low, high)

        return call

    bench.add("ours", "kernel(), torch, 4 shapes in turn", shapes)

    def of(make: Callable[[Any], Any]) -> Callable[[], Callable[[], Any]]:
        def made() -> Callable[[], Any]:
            x, y, z = make(a), make(b), make(c)
            kernel(x, y, z, *numbers)
            return lambda: kernel(x, y, z, n, alpha, beta, low, high)

        return made

    def cupy_array(x: Any) -> Any:
        import cupy

        return cupy.from_dlpack(x)

    bench.add("ours", "kernel(), CuPy", of(cupy_array), limit_us=launch.CALL_US)
    bench.add("ours", "kernel(), __cuda_array_interface__", of(Interface), limit_us=launch.CALL_US)
    bench.add("ours", "bound(), __cuda_array_interface__", lambda: kernel.bind(*map(Interface, (a, b, c)), *numbers),
              limit_us=launch.BOUND_US)  # fmt: skip
    bench.add("ours", "kernel(), DLPack capsules of torch's", of(Capsule))
    side = torch.cuda.Stream()

    def aside() -> Any:
        return torch.cuda.stream(side)

    bench.add("ours", "bound(), side stream", lambda: bound, aside, limit_us=launch.BOUND_US)
    bench.add("ours", "kernel(), torch, side stream", lambda: lambda: kernel(a, b, c, n, alpha, beta, low, high), aside,
              limit_us=launch.CALL_US)  # fmt: skip
    return bound


def driver_calls(bench: Bench, torch: Any, bound: Any) -> None:
    """The driver's calls that a launch makes, and other ways of making them."""
    from wavedsl.runtime import devices

    driver = devices.open_driver("cuda", torch.cuda.current_device())
    bindings = driver.driver
    released, kept = ctypes.CDLL("libcuda.so.1"), ctypes.PyDLL("libcuda.so.1")
    compiled = bound._compiled
    function = driver.load(compiled.asm, compiled.target, compiled.name, compiled.shared_bytes)

    def config_of(stream: int) -> Any:
        config = bindings.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = bound._grid
        config.blockDimX, config.blockDimY, config.blockDimZ = bound._call.block
        config.sharedMemBytes, config.numAttrs, config.hStream = function.dynamic_shared, 0, stream
        return config

    config = config_of(0)
    at, handle = ctypes.c_void_p(config.getPtr()), ctypes.c_void_p(int(function.handle))
    pointers = ctypes.c_void_p(bound._block.address)
    address = bound._block.address

    def launched(entry: Any) -> Callable[[], Callable[[], Any]]:
        def made() -> Callable[[], Any]:
            if entry(at, handle, pointers, None):
                raise RuntimeError("the driver refuses the launch")
            return lambda: entry(at, handle, pointers, None)

        return made

    bench.add("driver", "cuLaunchKernelEx, ctypes", launched(released.cuLaunchKernelEx))
    bench.add("driver", "cuLaunchKernelEx, ctypes, lock kept", launched(kept.cuLaunchKernelEx))

    def declared() -> Callable[[], Any]:
        entry = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
        entry.argtypes = (ctypes.c_void_p,) * 4
        return launched(entry)()

    bench.add("driver", "cuLaunchKernelEx, ctypes, argtypes", declared)
    bench.add("driver", "cuLaunchKernelEx, bindings",
              lambda: lambda: bindings.cuLaunchKernelEx(config, function.handle, address, 0))  # fmt: skip

    def plain(library: Any) -> Callable[[], Callable[[], Any]]:
        def made() -> Callable[[], Any]:
            entry, numbers = library.cuLaunchKernel, (*bound._grid, *bound._call.block, function.dynamic_shared)
            if entry(handle, *numbers, None, pointers, None):
                raise RuntimeError("the driver refuses the launch")
            return lambda: entry(handle, *numbers, None, pointers, None)

        return made

    bench.add("driver", "cuLaunchKernel, ctypes", plain(released))

    def in_c(config: Any, parameters: Any, extra: Any) -> Callable[[], Callable[[], Any]]:
        def made() -> Callable[[], Any]:
            launches = compiled_loop().launches
            launches.argtypes = (ctypes.c_void_p,) * 5 + (ctypes.c_int,)
            entry = ctypes.cast(released.cuLaunchKernelEx, ctypes.c_void_p)
            given = entry, ctypes.c_void_p(config.getPtr()), handle, parameters, extra
            if launches(*given, 1):
                raise RuntimeError("the driver refuses the launch")
            return lambda: launches(*given, CALLS)

        return made

    bench.add("driver", "cuLaunchKernelEx, C", in_c(config, pointers, None), launches=CALLS)
    size = ctypes.c_size_t(ctypes.sizeof(bound._block.memory))
    ends, buffer_is, size_is = 0, 1, 2  # CU_LAUNCH_PARAM_* (cuda.h)
    extra = (ctypes.c_void_p * 5)(
        buffer_is, ctypes.addressof(bound._block.memory), size_is, ctypes.addressof(size), ends
    )
    bench.add("driver", "cuLaunchKernelEx, C, parameters as one buffer", in_c(config, None, extra), launches=CALLS)
    side = torch.cuda.Stream()
    number = int(side.cuda_stream)
    aside = config_of(number)
    bench.kept += [bound, config, aside, size]
    bench.add("driver", "cuLaunchKernelEx, C, side stream", in_c(aside, pointers, None), launches=CALLS)
    current = ctypes.c_void_p()
    place = ctypes.byref(current)
    bench.add("driver", "cuCtxGetCurrent, ctypes", lambda: lambda f=released.cuCtxGetCurrent: f(place))
    bench.add("driver", "cuCtxGetCurrent, ctypes, lock kept", lambda: lambda f=kept.cuCtxGetCurrent: f(place))
    bench.add("driver", "cuCtxGetCurrent, bindings", lambda: bindings.cuCtxGetCurrent)
    bench.add("driver", "what current() takes", lambda: driver.current)
    status = ctypes.c_int()
    where = ctypes.byref(status)
    stream = ctypes.c_void_p(number)
    bench.add("driver", "cuStreamIsCapturing, ctypes", lambda: lambda f=released.cuStreamIsCapturing: f(stream, where))
    bench.add("driver", "cuStreamIsCapturing, ctypes, lock kept",
              lambda: lambda f=kept.cuStreamIsCapturing: f(stream, where))  # fmt: skip
    bench.add("driver", "cuStreamIsCapturing, bindings", lambda: lambda f=bindings.cuStreamIsCapturing: f(number))
    bench.add("driver", "what capturing() takes", lambda: lambda f=driver.capturing: f(number))


LOOP = """
int launches(int (*entry)(void *, void *, void *, void *), void *config, void *function, void *parameters, void *extra,
             int times) {
  int status = 0;
  while (times-- && !status) status = entry(config, function, parameters, extra);
  return status;
}
"""


def compiled_loop() -> ctypes.CDLL:
    """A loop of launches that the machine's C compiler has made."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise RuntimeError("no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "loop.so")
        command = [compiler, "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=LOOP, text=True, check=True, capture_output=True)
        return ctypes.CDLL(str(library))


def python(bench: Bench) -> None:
    """What Python itself takes here, to compare machines by."""
    bench.add("python", "empty function", lambda: lambda: None)
    bench.add("python", "empty function of 8 arguments",
              lambda: lambda f=lambda a, b, c, d, e, f, g, h: None: f(1, 2, 3, 4, 5, 6, 7, 8))  # fmt: skip
    libc, kept = ctypes.CDLL(None), ctypes.PyDLL(None)
    one, two = ctypes.c_void_p(1), ctypes.c_void_p(2)
    bench.add("python", "abs, ctypes", lambda: lambda f=libc.abs: f(one, one, two, None))
    bench.add("python", "abs, ctypes, lock kept", lambda: lambda f=kept.abs: f(one, one, two, None))


def questions(bench: Bench, torch: Any) -> None:
    """What a call asks of a tensor, and of torch."""
    x, y, z = (torch.zeros(SHAPE, device="cuda") for _ in range(3))
    asked: dict[str, Callable[[], Any]] = {
        "shape": lambda: x.shape,
        "stride()": lambda: x.stride(),
        "dtype": lambda: x.dtype,
        "device": lambda: x.device,
        "get_device()": lambda: x.get_device(),
        "is_cuda": lambda: x.is_cuda,
        "requires_grad": lambda: x.requires_grad,
        "is_neg()": lambda: x.is_neg(),
        "is_contiguous()": lambda: x.is_contiguous(),
        "data_ptr()": lambda: x.data_ptr(),
        "all that is asked of 3 tensors": lambda: [launch.ASK["torch"](t) for t in (x, y, z)],
    }
    for name, call in asked.items():
        bench.add("torch", name, lambda call=call: call)

    def guard() -> Callable[[], Any]:
        kind = torch._C._dynamo.guards.TensorGuards
        three = (x, y, z)
        made = kind(*three, dynamic_dims_sizes=[list(t.shape) for t in three],
                    dynamic_dims_strides=[list(t.stride()) for t in three])  # fmt: skip
        check = made.check
        if not check(x, y, z):
            raise RuntimeError("the guard refuses what it was made of")
        return lambda: check(x, y, z)

    bench.add("torch", "TensorGuards of 3 tensors", guard)
    device = torch.cuda.current_device()
    bench.add("torch", "current stream, raw", lambda: lambda f=torch._C._cuda_getCurrentRawStream: f(device))
    bench.add("torch", "current stream, object", lambda: lambda: torch.cuda.current_stream(device).cuda_stream)


def rivals(bench: Bench, torch: Any) -> None:
    """What the same takes elsewhere."""
    a, b, c = (torch.zeros(SHAPE, device="cuda") for _ in range(3))
    n, alpha, beta, low, high = launch.SCALARS

    def triton_call() -> Callable[[], Any]:
        from rivals_triton import scaled_sum

        grid = (16,)
        return lambda: scaled_sum[grid](a, b, c, n, alpha, beta, low, high, SHAPE[1], 1024)

    def triton_bound() -> Callable[[], Any]:
        from rivals_triton import scaled_sum

        compiled = scaled_sum.warmup(a, b, c, n, alpha, beta, low, high, SHAPE[1], 1024, grid=(16,))
        run = compiled[(16, 1, 1)]
        return lambda: run(a, b, c, n, alpha, beta, low, high, SHAPE[1], 1024)

    bench.add("rivals", "Triton", triton_call)
    bench.add("rivals", "Triton, compiled kernel", triton_bound)
    bench.add("rivals", "torch.add(out=)", lambda: lambda: torch.add(a, b, out=c))

    def cupy_call() -> Callable[[], Any]:
        import cupy

        x, y, z = map(cupy.from_dlpack, (a, b, c))
        return lambda: cupy.add(x, y, out=z)

    bench.add("rivals", "cupy.add(out=)", cupy_call)


def measure(rounds: int) -> list[dict[str, Any]]:
    import torch

    torch.zeros(1, device="cuda")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    bench = Bench(torch.cuda.synchronize)
    python(bench)
    bound = ours(bench, torch)
    driver_calls(bench, torch, bound)
    questions(bench, torch)
    rivals(bench, torch)
    return bench.run(rounds)


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    from wavedsl.reports import table

    head = ("group", "call", "least_us", "quarter_us", "us", "cpu_us", "limit_us")
    yield table(head, [[row.get(key) for key in head] for row in rows])
    for row in rows:
        if "failed" in row:
            yield f"not measured: {row['group']}, {row['call']}: {row['failed']}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, metavar="FILE", help="JSON with machine, versions and rows")
    options.add_argument("--rounds", type=int, default=100, help=f"of {CALLS} calls each (100)")
    options.add_argument("--commit", default="", metavar="HASH", help="what is measured, where there is no git")
    given = options.parse_args()
    import torch

    before = os.getloadavg()
    rows = measure(given.rounds)
    print("\n".join(summary(rows)), flush=True)
    if given.out is not None:
        place = gpu_session.environment(torch, given.commit)
        found = {**place, "load": {"before": before, "after": os.getloadavg()}, "rows": rows}
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=1, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
