"""Host time of a launch, without a GPU: our code and the vendor's bindings in front of a driver that computes nothing.

    python benchmarks/launch.py [--repeat 40]

A kernel of 3 arrays and 5 scalars is called (`kernel(...)`) and a bound one is launched (`bound()`), for the ways in
which arrays give themselves away. The driver is the tests' stand-in, a C library behind the real bindings; arrays are
Python classes that answer what torch's, CuPy's, Numba's and DLPack's do. Each number is the best of `--repeat` rounds
of many calls, in microseconds. What is asked for counts the whole call; beside it stand what of that the arrays take to
answer (`arrays_us`) and what bindings and stand-in take for the same driver calls (`driver_us`).

The rows are written to results/launch.json with machine and versions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HELPERS = Path(__file__).resolve().parents[1] / "tests" / "helpers"
CALL_US, BOUND_US = 5.0, 3.0
"""What is asked for: microseconds of a call with 3 arrays and 5 scalars, and of a bound launch."""
SCALARS = (2, 0.5, 1.5, -3, 7)
ROUND = 2000
ASK: dict[str, Callable[[Any], Any]] = {
    "torch": lambda x: (x.shape, x.stride(), x.dtype, x.device, x.requires_grad, x.is_neg(), x.data_ptr()),
    "cupy": lambda x: (x.shape, x.strides, x.dtype, x.data.device_id, x.data.ptr),
    "DLPack": lambda x: (x.__dlpack_device__(), x.__dlpack__(stream=-1)),
    "__cuda_array_interface__": lambda x: x.__cuda_array_interface__,
}
"""What is asked of an array in a call."""


def best(call: Callable[[], Any], repeat: int) -> float:
    """Microseconds of one call: the best of `repeat` rounds, the loop's own time taken off."""

    def rounds(function: Callable[[], Any]) -> float:
        found = float("inf")
        for _ in range(repeat):
            start = time.perf_counter()
            for _ in range(ROUND):
                function()
            found = min(found, (time.perf_counter() - start) / ROUND)
        return found

    return 1e6 * (rounds(call) - rounds(lambda: None))


def scaled_sum() -> Any:
    """A kernel of three arrays and five scalars."""
    import wavedsl as wd

    M, N, BM, BN = wd.symbols("M N BM BN")
    f32, i32 = wd.Scalar[wd.f32], wd.Scalar[wd.i32]

    @wd.wave([wd.WorkgroupConstraint(M, BM, 1), wd.WorkgroupConstraint(N, BN, 0)], subs={BM: 4, BN: 256})
    def kernel(
        a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32], c: wd.Memory[M, N, wd.f32],
        n: i32, alpha: f32, beta: f32, low: i32, high: i32,
    ):  # fmt: skip
        x = wd.read(a) * alpha + wd.read(b) * beta
        wd.write(wd.where(wd.index(N) < n, wd.clamp(x, wd.cast(low, wd.f32), wd.cast(high, wd.f32)), x), c)

    return kernel


def driver_calls(side: str, stream: int) -> Callable[[], None]:
    """The driver calls of one launch alone, through the bindings: which context, whether captured, the launch."""
    from wavedsl.runtime import devices

    driver = devices.open_driver(side, 0)
    with driver.entered():
        pass
    function = next(iter(driver._functions.values()))
    import ctypes

    room = (ctypes.c_uint64 * 16)()
    pointers = (ctypes.c_void_p * 8)(*[ctypes.addressof(room)] * 8)
    start = driver.prepared(function, (1, 1, 1), ctypes.addressof(pointers))
    current, capturing = driver.current, driver.capturing

    def run(_kept: Any = (room, pointers)) -> None:
        current()
        start(stream, (1, 1, 1))
        capturing(stream)

    return run


def measure(side: str, repeat: int) -> list[dict[str, Any]]:
    """The rows of one vendor; runs in a process that finds the stand-in as its driver."""
    sys.path.append(str(HELPERS))
    import device_arrays
    import numpy as np

    shape = (64, 256)
    memory = [np.zeros(shape, np.float32) for _ in range(3)]
    strides = device_arrays.row_major(shape)
    pointers = [m.ctypes.data // 16 * 16 for m in memory]
    place = {"cuda": 2, "hip": 10}[side]
    sys.modules["torch"], sys.modules["cupy"] = (device_arrays.module(name) for name in ("torch", "cupy"))
    device_arrays.STREAMS.update({("torch", 0): 0x6001, ("cupy", 0): 0x6001})
    kinds: dict[str, Callable[[int], Any]] = {
        "torch": lambda p: device_arrays.Tensor(p, shape, strides, device_type=place),
        "DLPack": lambda p: device_arrays.Dlpack(p, shape, strides, device_type=place),
    }
    if side == "cuda":
        kinds["cupy"] = lambda p: device_arrays.ndarray(p, shape, strides)
        kinds["__cuda_array_interface__"] = lambda p: device_arrays.Interface(p, shape, strides)
    rows = []
    kernel = scaled_sum()
    for kind, make in kinds.items():
        ask = ASK[kind]
        a, b, c = map(make, pointers)
        n, alpha, beta, low, high = SCALARS
        kernel(a, b, c, n, alpha, beta, low, high)
        bound = kernel.bind(a, b, c, n, alpha, beta, low, high)
        row = {"vendor": side, "arrays": kind}
        row["call_us"] = best(lambda: kernel(a, b, c, n, alpha, beta, low, high), repeat)  # noqa: B023
        row["keywords_us"] = best(lambda: kernel(a, b, c, n=n, alpha=alpha, beta=beta, low=low, high=high), repeat)  # noqa: B023
        row["bound_us"] = best(bound, repeat)
        row["arrays_us"] = best(lambda: [ask(x) for x in (a, b, c)], repeat)  # noqa: B023
        row["driver_us"] = best(driver_calls(side, 0x6001), repeat)
        row["call_limit_us"], row["bound_limit_us"] = CALL_US, BOUND_US
        rows.append(row)
    return rows


def on_standin(side: str, repeat: int) -> list[dict[str, Any]]:
    """`measure` in a process whose driver is the stand-in."""
    import json

    sys.path.append(str(HELPERS))
    import standin

    with tempfile.TemporaryDirectory() as folder:
        standin.build(side, Path(folder))
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": folder,
            "ROCM_PATH": str(Path(folder, "no-rocm")),
            "STANDIN_FOLDER": folder,
            "STANDIN_IDLE": "1",
            "STANDIN_ARCH_OFFSET": str(standin.arch_offset()) if side == "hip" else "0",
            "WAVEDSL_CACHE_DIR": str(Path(folder, "cache")),
        }
        done = subprocess.run(
            [sys.executable, __file__, "--repeat", str(repeat), "--in-standin", side],
            capture_output=True,
            text=True,
            env=environment,
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeat", type=int, default=40)
    options.add_argument("--in-standin", choices=["cuda", "hip"], help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.in_standin:
        import json

        print(json.dumps(measure(given.in_standin, given.repeat)))
        return 0
    import record

    from wavedsl.reports import table

    rows = [row for side in ("cuda", "hip") for row in on_standin(side, given.repeat)]
    limits = ("call_limit_us", "bound_limit_us")
    head = ("vendor", "arrays", "call_us", "keywords_us", "bound_us", "arrays_us", "driver_us", *limits)
    print(table(head, [[row[key] for key in head] for row in rows]))
    print(record.write("launch", rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
