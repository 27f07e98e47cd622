"""Globals and closed-over variables that a kernel reads: a call after one has changed means the new value."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from source import run

import wavedsl as wd
from wavedsl.outside import Snapshot

KERNEL = """
SCALE = 2.0
FACTORS = (1, 2)
def bend(x):
    return x * SCALE + OFFSET
OFFSET = 1.0
def make():
    shift = 3.0
    def move(by):
        nonlocal shift
        shift = by
    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
    def kernel(a: wd.Memory[M, wd.f32], c: wd.Memory[M, wd.f32]):
        wd.write(bend(wd.read(a)) + shift, c)
    return kernel, move
kernel, move = make()
"""


@pytest.fixture
def cell() -> dict[str, Any]:
    return run(KERNEL)


def result(kernel: wd.Kernel, way: str, monkeypatch: pytest.MonkeyPatch) -> float:
    a, c = np.ones(64, np.float32), np.zeros(64, np.float32)
    if way == "evaluate":
        kernel.evaluate(a, c)
    elif way == "compile":
        kernel.compile(a, c, target="gfx942").emulate(a, c)
    else:
        monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
        kernel(a, c)
    assert (c == c[0]).all()
    return float(c[0])


@pytest.mark.parametrize("way", ["evaluate", "compile", "call"])
def test_a_changed_value_is_taken(way: str, cell: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = cell["kernel"]
    assert result(kernel, way, monkeypatch) == 6.0
    cell["SCALE"] = 10.0  # read by a helper
    assert result(kernel, way, monkeypatch) == 14.0
    cell["move"](5.0)  # a closed-over variable
    assert result(kernel, way, monkeypatch) == 16.0
    cell["bend"] = lambda x: x - 1.0  # a helper itself
    assert result(kernel, way, monkeypatch) == 5.0


def test_equal_values_trace_once(cell: dict[str, Any]) -> None:
    kernel = cell["kernel"]
    graph = kernel.trace()
    assert kernel.trace() is graph
    cell["SCALE"] = float("2.0")  # a cell of a notebook that is run again
    assert not kernel.unchanged()
    assert kernel.trace() is graph and kernel.unchanged()
    cell["FACTORS"] = (3,)  # the kernel does not read it
    assert kernel.unchanged() and kernel.trace() is graph


def test_what_is_followed(cell: dict[str, Any]) -> None:
    function = cell["kernel"].function
    assert sorted(name for _, name in Snapshot(function)._places) == ["OFFSET", "SCALE", "bend", "shift"]
    plain = run("def f(a):\n    return wd.exp(wd.read(a)) + M + math.pi\n")["f"]
    assert Snapshot(plain).unchanged is None  # modules, symbols and functions of wavedsl: nothing to ask per call


def test_what_has_gone_has_changed(cell: dict[str, Any]) -> None:
    seen = Snapshot(cell["kernel"].function)
    del cell["OFFSET"]
    assert not seen.unchanged() and not seen.same()


def test_an_unbound_cell_is_not_followed() -> None:
    def outer() -> types.FunctionType:
        def inner() -> Any:
            return later

        if inner is None:
            later = 1
        return inner

    assert Snapshot(outer()).unchanged is None


def test_helpers_that_call_each_other() -> None:
    space = run("DEPTH = 3\ndef f(n):\n    return g(n)\ndef g(n):\n    return f(n - 1) if n else DEPTH\n")
    seen = Snapshot(space["f"])
    assert seen.same()
    space["DEPTH"] = 4
    assert not seen.unchanged() and not seen.same()


def test_a_kernel_that_counts_its_traces_is_traced_once() -> None:
    space = run(
        "COUNT = 0\n"
        "@wd.wave([wd.WorkgroupConstraint(M, 64, 0)])\n"
        "def kernel(a: wd.Memory[M, wd.f32]):\n"
        "    global COUNT\n"
        "    COUNT += 1\n"
        "    wd.write(wd.read(a) + 1.0, a)\n"
    )
    for _ in range(3):
        space["kernel"].trace()
    assert space["COUNT"] == 1


def test_a_compile_says_what_has_changed(
    cell: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    """It said that this was the first call."""
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path))
    caplog.set_level("INFO", "wavedsl")
    result(cell["kernel"], "call", monkeypatch)
    cell["SCALE"], cell["OFFSET"] = 10.0, 2.0
    result(cell["kernel"], "call", monkeypatch)
    cell["move"](5.0)
    result(cell["kernel"], "call", monkeypatch)
    said = [r.getMessage().rpartition(": ")[2] for r in caplog.records]
    assert said[0] == "first call in this process"
    assert sorted(said[1].split(" changed")[0].split(" and ")) == ["OFFSET", "SCALE"]
    assert said[2] == "shift changed since it was traced"
