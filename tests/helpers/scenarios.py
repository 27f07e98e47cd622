"""Calls of kernels in a process of its own that finds a stand-in as its driver (see `standin`), with real kernels, real
bindings, and arrays as packages have them (`device_arrays`).

A test file has scenarios, functions of a `There`; its test calls `run_there` on itself, and as a program it calls
`main`.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import standin

N_ITEMS = 96
"""Numbers of the arrays that scenarios work with."""


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


def source_address(array) -> int:
    return array.data_ptr() if hasattr(array, "data_ptr") else array.pointer


def run_there(file: str, side: str, standins: Any, tmp_path: Path) -> list[str]:
    """Run a test file as a program with a stand-in of `side` as its driver; the names of the scenarios it went
    through."""
    folder = str(standins(side))
    done = subprocess.run(
        [sys.executable, file, side],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=100,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": folder,
            "PYTHONPATH": str(Path(__file__).parent),
            "ROCM_PATH": str(tmp_path / "no-rocm"),
            "STANDIN_FOLDER": folder,
            "STANDIN_LOG": str(tmp_path / "log"),
            "STANDIN_EACH": "8",
            "STANDIN_DEVICES": "2",
            "STANDIN_ARCH_OFFSET": str(standin.arch_offset()) if side == "hip" else "0",
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def main(scenarios: Sequence[Callable[[There], None]]) -> None:
    """What such a program does."""
    for scenario in scenarios:
        scenario(There(sys.argv[1]))
        print(scenario.__name__)
