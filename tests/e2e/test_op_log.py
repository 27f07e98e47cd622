"""device_print and device_assert on every chip: what the emulated text reports, and what a GPU's launch would."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import products
import pytest
from agree import TARGETS
from wavedsl.ir.dataflow.device_log import HEADER
from wavedsl.runtime import devices, launch

import wavedsl as wd

B, M, N = wd.symbols("B M N")


@pytest.mark.parametrize("target", TARGETS)
def test_prints(target: str, capsys: pytest.CaptureFixture[str], oracle: Callable[[str], str]) -> None:
    """One line per element, once, in order, whatever the lanes and waves."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(M, 4, 0)])
    def kernel(x: wd.Memory[B, M, N, wd.f16], y: wd.Memory[B, M, wd.f32]):
        value = wd.read(x)
        total = wd.sum(wd.cast(value, wd.f32), dim=N)
        wd.device_print("total", total)
        wd.device_print("large", value > 2)
        wd.device_print("here")
        wd.write(total, y)

    x = np.arange(12, dtype=np.float16).reshape(2, 3, 2) / 2
    y = np.zeros((2, 3), np.float32)
    compiled = kernel.compile(x, y, target=target)
    compiled.emulate(x, y)
    said = capsys.readouterr().out.splitlines()
    want = [f"total [B={b}, M={m}] = {y[b, m]}" for b in range(2) for m in range(3)]
    want += [f"large [B={b}, M={m}, N={n}] = {x[b, m, n] > 2}" for b in range(2) for m in range(3) for n in range(2)]
    want += [f"here [B={b}]" for b in range(2)]
    assert said == want
    products.assemble(compiled, oracle)
    compiled.emulate(x, y)
    assert capsys.readouterr().out.splitlines() == want, "a log is empty before each launch"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.i64, wd.f64, wd.u8, wd.bf16, wd.u32], ids=str)
def test_prints_of_every_width(dtype: wd.DType, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(x: wd.Memory[N, dtype]):
        wd.device_print(wd.read(x))

    x = (np.array([3, 250, 1]) if dtype.is_int else np.array([0.5, -2.0, 1e20])).astype(dtype.storage)
    kernel.compile(x, target=target).emulate(x)
    said = [line.split(" = ") for line in capsys.readouterr().out.splitlines()]
    assert [place for place, _ in said] == ["[N=0]", "[N=1]", "[N=2]"]
    assert [float(number) for _, number in said] == [float(v) for v in x.astype(np.float64)]


@pytest.mark.parametrize("target", TARGETS)
def test_asserts(target: str) -> None:
    """The first of the indices where it does not hold, as the evaluator says it."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
    def kernel(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
        value = wd.read(x)
        wd.device_assert(value >= 0.0, "negative")
        wd.write(wd.sqrt(value), y)

    x = np.ones((20, 30), np.float32)
    y = np.zeros_like(x)
    compiled = kernel.compile(x, y, target=target)
    compiled.emulate(x, y)
    assert (y == 1).all()
    x[13, 7] = x[17, 2] = -1
    with pytest.raises(wd.EmulationError) as meant:
        kernel.evaluate(x, y)
    with pytest.raises(wd.EmulationError) as caught:
        compiled.emulate(x, y)
    assert "device_assert: negative (first at M = 13, N = 7)" in str(caught.value)
    assert str(caught.value) == str(meant.value)
    report = compiled.emulate(x, y, checks="report")
    assert [f.kind for f in report.findings] == ["assertion"]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_reports_of_workgroups_without_the_first(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A value that all workgroups share is reported by those that come by: the first one of all need not."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def kernel(x: wd.Memory[N, wd.i32], y: wd.Memory[M, wd.i32]):
        def later():
            wd.device_print("x", wd.read(x))
            wd.device_assert(wd.read(x) < 3, "below 3")

        wd.cond(wd.tile_start(M) >= 32, later, lambda: None)
        wd.write(wd.index(M), y)

    x, y = np.array([1, 2], np.int32), np.zeros(40, np.int32)
    compiled = kernel.compile(x, y, target=target)
    compiled.emulate(x, y)
    assert capsys.readouterr().out.splitlines() == ["x [N=0] = 1", "x [N=1] = 2"]
    x[1] = 3
    for run in (compiled.emulate, kernel.evaluate):
        with pytest.raises(wd.EmulationError, match="below 3"):
            run(x, y)
        few = np.zeros(32, np.int32)  # nobody asks
        (kernel.compile(x, few, target=target).emulate if run == compiled.emulate else kernel.evaluate)(x, few)


def test_a_full_log_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1)])
    def kernel(x: wd.Memory[M, N, wd.f32]):
        wd.device_print("x", wd.read(x))

    x = np.ones((300, 320), np.float32)
    kernel.compile(x, target="gfx942").emulate(x)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 60000 and "the log was full" in lines[-1]


def test_kernels_that_report_can_be_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(x: wd.Memory[N, wd.i32]):
        wd.device_print("x", wd.read(x))

    x = np.array([5], np.int32)
    kernel.compile(x, target="sm_80").save(tmp_path / "k.json")
    assert json.loads((tmp_path / "k.json").read_text())["sites"]
    wd.load(tmp_path / "k.json").emulate(x)
    assert capsys.readouterr().out == "x [N=0] = 5\n"


class HostDriver:
    """A stand-in for a GPU's driver whose memory is the host's: its kernel leaves `records` in the log."""

    def __init__(self, records: list[int]):
        self.records = np.array(records, np.int32)
        self.blocks: dict[int, np.ndarray] = {}

    def allocate(self, size: int) -> int:
        block = np.zeros(size, np.uint8)
        self.blocks[block.ctypes.data] = block
        return block.ctypes.data

    def free(self, address: int) -> None:
        del self.blocks[address]

    def upload(self, address: int, data: np.ndarray) -> None:
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def download(self, data: np.ndarray, address: int) -> None:
        ctypes.memmove(data.ctypes.data, address, data.nbytes)

    def load(self, text: str, target: str, name: str, shared_bytes: int) -> str:
        return name

    def launch(self, function: str, grid: tuple, block: tuple, parameters: int, stream: int) -> None:
        pointers = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))
        log = ctypes.cast(pointers[1] or 0, ctypes.POINTER(ctypes.c_uint64))[0]  # the parameter after the array
        words = np.ctypeslib.as_array(ctypes.cast(log, ctypes.POINTER(ctypes.c_int32)), (HEADER + self.records.size,))
        assert words[0] == HEADER, "the log is empty before a launch"
        words[0] = words.size
        words[HEADER:] = self.records

    def synchronize(self, stream: int) -> None:
        return None


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_gpus_report_too(kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Host arrays are copied there and back, the log with them; prints come out, assertions raise."""

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(x: wd.Memory[N, wd.i32]):
        value = wd.read(x)
        wd.device_print("x", value)
        wd.device_assert(value > 0, "not positive")

    x = np.array([5, 6], np.int32)
    target = "sm_80" if kind == "cuda" else "gfx942"
    compiled = kernel.compile(x, target=target)
    device = devices.Device(kind, 0, target)
    for records, failing in (([0, 1, 6, 0, 0, 5], False), ([1, 1], True)):
        driver = HostDriver(records)
        monkeypatch.setattr(devices, "open_driver", lambda *_, driver=driver: driver)
        if failing:
            with pytest.raises(wd.LaunchError, match=r"not positive \(first at N = 1\)"):
                launch.launch(compiled, [x], device)
        else:
            launch.launch(compiled, [x], device)
            assert capsys.readouterr().out == "x [N=0] = 5\nx [N=1] = 6\n"
        assert not driver.blocks, "everything is freed"
