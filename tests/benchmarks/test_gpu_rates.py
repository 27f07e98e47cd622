"""Texts that measure a chip: they assemble and run, and what is launched is what they take."""

from __future__ import annotations

import ctypes
from typing import Any

import benchmark_files
import numpy as np
import oracles
import pytest
from wavedsl.runtime.toolchain import assemble_ptx, disassemble_cubin


@pytest.fixture
def rates() -> Any:
    with benchmark_files.imported("gpu_rates") as module:
        yield module


def test_every_text_runs_on_the_emulator(rates: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert rates.main(["--emulate"]) == 0
    assert "no number of a chip" in capsys.readouterr().out


@pytest.mark.slow
def test_texts_assemble_without_remarks(rates: Any) -> None:
    oracles.require("ptxas")
    for text in {probe.text for probe in rates.PROBES}:
        found = assemble_ptx(text, rates.TARGET)
        assert not found.warnings
        assert not any(entry.spill_stores for entry in found.entries)


@pytest.mark.slow
def test_ptxas_leaves_all_that_a_neighbour_is_asked_for(rates: Any) -> None:
    oracles.require("ptxas"), oracles.require("nvdisasm")
    for what, access in (("read", "LD.E.128"), ("written", "ST.E.128")):
        probe = next(x for x in rates.PROBES if x.name == f"shared memory of a neighbour, {what}, 1 x 2 SMs")
        code = disassemble_cubin(assemble_ptx(probe.text, rates.TARGET).cubin)
        assert code.count(access) >= 8 and code.count(access) % 8 == 0  # of a step


class Driver:
    """A driver whose launches read their parameters and leave 1000 clocks, the first one 9000."""

    def __init__(self) -> None:
        self.memory: dict[int, np.ndarray] = {}
        self.launched: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []

    def allocate(self, size: int) -> int:
        array = np.empty(size, np.uint8)
        self.memory[array.ctypes.data] = array
        return array.ctypes.data

    def free(self, address: int) -> None:
        del self.memory[address]

    def clear(self, address: int, size: int, stream: int) -> None:
        assert self.memory[address].nbytes == size

    def load(self, text: str, target: str, name: str, shared: int) -> str:
        assert f".entry {name}(" in text
        return name

    def launch(self, function: str, grid: tuple[int, ...], block: tuple[int, ...], params: int, stream: int) -> None:
        pointers = (ctypes.c_void_p * 3).from_address(params)
        source, found = (ctypes.c_uint64.from_address(x).value for x in pointers[:2])
        assert source in self.memory and ctypes.c_uint32.from_address(pointers[2]).value
        if function == "probe":
            first = all(name != "probe" for name, *_ in self.launched)
            self.memory[found].view(np.uint64)[: grid[0]] = 9000 if first else 1000
        self.launched.append((function, grid, block))

    def synchronize(self, stream: int) -> None: ...

    def download(self, data: np.ndarray, address: int) -> None:
        data[...] = self.memory[address].view(data.dtype)[: data.size]


def test_a_probe_is_launched_with_its_parameters(rates: Any) -> None:
    driver = Driver()
    probe = next(x for x in rates.PROBES if x.name == "L2 hit")
    values = rates.Chip(driver).measured(probe)
    assert values == [1000 / (4 * probe.steps)] * rates.REPEATS
    assert [name for name, *_ in driver.launched] == ["fill"] + ["probe"] * (1 + rates.REPEATS)
    assert len(driver.memory) == 1  # what is swept


def test_a_probe_that_fails_has_a_row_that_says_so(rates: Any) -> None:
    def run(probe: Any) -> list[float]:
        raise RuntimeError("no chip")

    (row,) = rates.rows(rates.PROBES[:1], run, None)
    assert row["failed"] == "RuntimeError: no chip" and "measured" not in row


def test_a_chip_is_compared_with_its_own_model(rates: Any) -> None:
    h100, h200 = rates.model_of("NVIDIA H100 80GB HBM3"), rates.model_of("NVIDIA H200")
    assert h200 == rates.predicted.model() and h100.dram_rate < h200.dram_rate
    assert rates.model_of("something else") is None
