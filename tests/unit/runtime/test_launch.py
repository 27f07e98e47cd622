"""Launching with a driver and an emulator that only do what a test says: what is copied, stored, left alone."""

from __future__ import annotations

import ctypes
import types

import numpy as np
import pytest
import sympy
from wavedsl.ir import dtypes
from wavedsl.ir.errors import EmulationError, LaunchError
from wavedsl.ir.kernel.kernel_ir import Param
from wavedsl.runtime import devices, launch, on_emulator, prepare
from wavedsl.runtime.emulator.report import EmulationReport, Finding

M, N = sympy.symbols("M N", integer=True, positive=True)


def kernel(**changes):
    """A compiled kernel out[i, j] = 2 source[i, j] with a dynamic M, over 16 × N tiles."""
    fields = {
        "target": "gfx942",
        "name": "twice",
        "asm": "text",
        "grid": (sympy.ceiling(M / 16), 1),
        "block": (64,),
        "shared_bytes": 0,
        "params": [
            Param("source", "pointer", dtypes.f32, 0, 8, access="read"),
            Param("out", "pointer", dtypes.f32, 8, 8, access="write"),
            Param("scale", "scalar", dtypes.f32, 16, 4),
            Param("_m", "scalar", dtypes.i32, 20, 4, source="extent M"),
            Param("_s", "scalar", dtypes.i64, 24, 8, source="stride source[0]"),
        ],
        "shapes": {"source": (M, N), "out": (M, N)},
        "divisors": {},
        "tiles": {},
        "sites": (),
        "expects": {"source": ((None, 6), (None, 1), 16), "out": ((None, 6), (6, 1), 16)},
        "location": None,
    }
    return types.SimpleNamespace(**{**fields, **changes})


@pytest.fixture
def arguments():
    return np.arange(60, dtype=np.float32).reshape(5, 12)[:, :6], np.full((5, 6), -1, np.float32), 2.0


@pytest.fixture
def emulator(monkeypatch):
    """Replaces the emulator's `run` by one that doubles, and records what it was given."""
    from wavedsl.runtime import emulator

    record = types.SimpleNamespace(calls=[], findings=[], raises=None)

    def run(asm, *, target, grid, block, args, kernel, shared_bytes, checks, workgroups=None, **sampled):
        record.calls.append({"asm": asm, "target": target, "grid": grid, "block": block, "args": args})
        args[1][...] = 2 * args[0]
        args[0][...] = 77  # a stray write: kernels work on copies
        if record.raises is not None:
            raise record.raises
        return EmulationReport(findings=record.findings)

    monkeypatch.setattr(emulator, "run", run, raising=False)
    return record


EMULATED = devices.Device("emulator", 0, "gfx942")


def test_prepare_fills_hidden_parameters_and_the_grid(arguments):
    call = prepare.prepare(kernel(), arguments)
    assert (call.grid, call.block, call.place) == ((1, 1, 1), (64, 1, 1), ("cpu", 0))
    assert call.values[2] == np.float32(2).tobytes()
    assert call.values[3] == (5).to_bytes(4, "little")
    assert call.values[4] == (12).to_bytes(8, "little")
    tall = np.zeros((33, 6), np.float32)
    assert prepare.prepare(kernel(), (tall, tall.copy(), 1)).grid == (3, 1, 1)


@pytest.mark.parametrize(("grid", "axis"), [((1, 65535, 65535), None), ((1, 65536, 1), 1), ((1 << 31, 1, 1), 0)])
def test_grids_that_cuda_does_not_launch_are_refused(arguments, grid, axis):
    if axis is None:
        assert prepare.prepare(kernel(grid=grid, target="sm_90a"), arguments).grid == grid
        return
    with pytest.raises(LaunchError, match=f"twice needs {grid[axis]} workgroups along axis {axis} of its grid"):
        prepare.prepare(kernel(grid=grid, target="sm_90a"), arguments)
    if axis:  # gfx942 has no such limit of y and z
        assert prepare.prepare(kernel(grid=grid), arguments).grid == grid


def test_grids_of_more_threads_than_hip_counts_are_refused(arguments):
    """2^32 along an axis: the packet that starts a kernel has 32 bits, which some releases of ROCm cut off silently."""
    most = ((1 << 32) - 1) // 64
    assert prepare.prepare(kernel(grid=(most, 65536, 1)), arguments).grid == (most, 65536, 1)
    with pytest.raises(LaunchError, match=f"{most + 1} workgroups along axis 0 .* HIP launches at most {most}"):
        prepare.prepare(kernel(grid=(most + 1, 1, 1)), arguments)


def test_emulated_results_are_stored_and_inputs_are_not(emulator, arguments):
    source, out, scale = arguments
    expected = 2 * source
    whole = source.base.copy()
    assert launch.launch(kernel(), (source, out, scale), EMULATED).findings == []
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(source.base, whole)
    (call,) = emulator.calls
    assert call["args"][0].strides == source.strides
    assert all(a.ctypes.data % 16 == 0 for a in call["args"][:2])


def test_strided_outputs_keep_what_lies_between(emulator):
    memory = np.zeros((5, 12), np.float32)
    source = np.ones((5, 6), np.float32)
    launch.launch(kernel(expects={}), (source, memory[:, 6:], 1.0), EMULATED)
    assert (memory[:, 6:] == 2).all() and (memory[:, :6] == 0).all()


@pytest.mark.parametrize("how", ["raises", "reports"])
def test_findings_leave_the_arrays(emulator, arguments, how):
    source, out, scale = arguments
    if how == "raises":
        emulator.raises = EmulationError("race")
        with pytest.raises(EmulationError):
            launch.launch(kernel(), (source, out, scale), EMULATED)
    else:
        emulator.findings = [Finding("race", "two waves")]
        assert launch.launch(kernel(), (source, out, scale), EMULATED, checks="report").findings
    assert (out == -1).all()


def test_emulate_works_in_place_with_findings(emulator, arguments):
    source, out, scale = arguments
    expected = 2 * source
    emulator.raises = EmulationError("race")
    with pytest.raises(EmulationError):
        on_emulator.emulate(kernel(), (source, out, scale))
    np.testing.assert_array_equal(out, expected)


def test_emulate_copies_what_lies_misaligned(emulator):
    room = np.zeros(5 * 6 + 1, np.float32)
    start = 1 if room.ctypes.data % 16 == 0 else 0
    out = room[start : start + 30].reshape(5, 6)
    assert out.ctypes.data % 16
    on_emulator.emulate(kernel(), (np.ones((5, 6), np.float32), out, 1.0))
    assert emulator.calls[0]["args"][1].ctypes.data % 16 == 0
    assert (out == 2).all()


def test_an_empty_grid_launches_nothing(emulator):
    empty = np.zeros((0, 6), np.float32)
    assert launch.launch(kernel(), (empty, empty.copy(), 1.0), EMULATED).findings == []
    assert on_emulator.emulate(kernel(), (empty, empty.copy(), 1.0)).findings == []
    launch.bind(kernel(), (empty, empty.copy(), 1.0), EMULATED)()
    assert emulator.calls == []


class FakeGpu:
    """A driver over host memory that fails at the step `fail`."""

    def __init__(self, fail=""):
        self.device = devices.Device("cuda", 0, "sm_80")
        self.fail, self.memory, self.launches = fail, {}, []

    def _step(self, name):
        if name == self.fail:
            raise LaunchError(f"{name} failed")

    def allocate(self, size):
        self._step("allocate")
        block = np.zeros(size, np.uint8)
        self.memory[block.ctypes.data] = block
        return block.ctypes.data

    def free(self, address):
        del self.memory[address]

    def upload(self, address, data):
        self._step("upload")
        self.memory[address][:] = data

    def download(self, data, address):
        self._step("download")
        data[:] = self.memory[address]

    def load(self, text, target, name, shared_bytes):
        return types.SimpleNamespace(name=name, context=0)

    def current(self):
        return 0

    def capturing(self, stream):
        return False

    def mark(self, stream, current):
        return stream

    def passed(self, mark):
        return True

    def prepared(self, function, block, params):
        return lambda stream, grid: self.launch(function, grid, block, params, stream)

    def launch(self, function, grid, block, params, stream):
        self._step("launch")
        pointers = (ctypes.c_void_p * 5).from_address(params)
        source, out = (ctypes.c_uint64.from_address(pointers[i]).value for i in (0, 1))
        rows, stride = ctypes.c_int32.from_address(pointers[3]).value, ctypes.c_int64.from_address(pointers[4]).value
        self.launches.append((function.name, grid, block, stream, ctypes.c_float.from_address(pointers[2]).value))
        if source in self.memory:
            floats = self.memory[source].view(np.float32)
            tile = np.lib.stride_tricks.as_strided(floats, (rows, 6), (4 * stride, 4))
            self.memory[out].view(np.float32)[:] = (2 * tile).ravel()

    def synchronize(self, stream):
        self._step("synchronize")


@pytest.fixture
def gpu(monkeypatch):
    driver = FakeGpu()
    monkeypatch.setattr(devices, "open_driver", lambda kind, index: driver)
    return driver


def test_host_arrays_go_to_the_gpu_and_back(gpu, arguments):
    source, out, scale = arguments
    assert launch.launch(kernel(), (source, out, scale), gpu.device) is None
    np.testing.assert_array_equal(out, 2 * source)
    assert gpu.memory == {}
    assert gpu.launches == [("twice", (1, 1, 1), (64, 1, 1), 0, 2.0)]


@pytest.mark.parametrize("fail", ["allocate", "upload", "launch", "synchronize", "download"])
def test_a_failed_gpu_launch_leaves_the_arrays_and_says_so(gpu, arguments, fail):
    source, out, scale = arguments
    gpu.fail = fail
    with pytest.raises(LaunchError, match=f"{fail} failed; the arguments are as they were"):
        launch.launch(kernel(), (source, out, scale), gpu.device)
    assert (out == -1).all() and gpu.memory == {}


def on_gpu(shape, strides, stream=None):
    return types.SimpleNamespace(
        __cuda_array_interface__={
            "shape": shape,
            "typestr": "<f4",
            "data": (0x7F00_0000_0000 if stream else 0x7F10_0000_0000, False),
            "strides": strides,
            "stream": stream,
            "version": 3,
        }
    )


def test_arrays_on_a_gpu_run_there_on_their_stream(gpu):
    source, out = on_gpu((5, 6), (48, 4), stream=99), on_gpu((5, 6), (24, 4))
    assert launch.launch(kernel(), (source, out, 3.0)) is None
    again = launch.bind(kernel(), (source, out, 3.0))
    again()
    again()
    assert [call[3:] for call in gpu.launches] == [(99, 3.0)] * 3
    assert gpu.memory == {}


def test_arrays_elsewhere_than_the_device(gpu):
    source, out = on_gpu((5, 6), (48, 4), stream=99), on_gpu((5, 6), (24, 4))
    with pytest.raises(LaunchError, match="lie on cuda:0, but the launch is for emulator:gfx942"):
        launch.launch(kernel(), (source, out, 3.0), EMULATED)
    with pytest.raises(LaunchError, match="the emulator runs on host memory"):
        on_emulator.emulate(kernel(), (source, out, 3.0))


def test_a_kernel_object_compiles_once_per_kind_of_argument(emulator, monkeypatch, arguments):
    class Kernel:
        compiled: list = []  # noqa: RUF012
        dynamic = ()
        scalars = frozenset({"scale"})
        forgotten = ""

        def refresh(self):
            pass

        def compile_cached(self, arguments, target, why, asked):
            self.compiled.append(target)
            return kernel(expects={})

    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx950")
    own = Kernel()
    source, out, scale = arguments
    for scale in (1.0, 2.5):
        launch.launch_kernel(own, {"source": source, "out": out, "scale": scale})
    assert own.compiled == ["gfx950"]
    launch.launch_kernel(own, {"source": np.ascontiguousarray(source), "out": out, "scale": scale})
    assert own.compiled == ["gfx950"] * 2
    launch.bind_kernel(own, {"source": source, "out": out, "scale": scale})()
    assert own.compiled == ["gfx950"] * 2 and len(emulator.calls) == 4
