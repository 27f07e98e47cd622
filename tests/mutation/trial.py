"""One mutant, one verdict: does an emulated run show that the text is wrong?

In: a case (an example on a target, with exact arguments) and a mutant's text. Out: how it was found, or None when every
run came to the right numbers without a finding. The idea: runs under checks stop at their first finding,
and are repeated with results that arrive at the latest, the earliest and random moments, and with other data.

Arguments hold small integers: sums of products are exact, so that the right numbers are the same in every order. An
array of zeros shows what is added to a sum and is too small to matter to another; an array of infinities shows where
what should be masked is multiplied by 0 instead. At last numbers whose sums are rounded have to come out with the bits
of the original text: sums in another order are another program.
"""

from __future__ import annotations

import functools
import importlib.util
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any
from unittest import mock

import numpy as np
from wavedsl.runtime.emulator.amdgcn import checks as amdgcn_checks
from wavedsl.runtime.emulator.amdgcn import emulator as amdgcn
from wavedsl.runtime.emulator.ptx import copies as ptx_copies
from wavedsl.runtime.emulator.ptx import emulator as ptx
from wavedsl.runtime.emulator.ptx import program as ptx_program
from wavedsl.runtime.emulator.report import Collector, Finding

import wavedsl as wd
from wavedsl.collector import PAUSED

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80")
CASES = {
    # name: tiles (of examples/gemm.py), sizes
    "copy": ("copy", (33, 21)),
    "mma": ("mma", (16, 16, 16)),
    "small": ("small", (64, 64, 128)),
    "gemm": ("gemm", (128, 64, 192)),
    "ragged": ("gemm", (70, 61, 135)),
    "waves16": ("waves16", (64, 128, 160)),
    "direct": ("small", (40, 64, 192)),
    "pairs": ("gemm", (70, 64, 96)),
}
DIRECT = ("direct",)
"""Cases whose tiles are copied to shared memory without passing by registers: AMD's, NVIDIA's always are."""
TURNED = {"pairs": ("gfx942",)}
"""Cases whose B lies as [K, N], and the targets that take its rows as they are, by sparse products of column pairs."""
PLACES = [
    (name, target)
    for target in TARGETS
    for name in CASES
    if target in TURNED.get(name, TARGETS) and (name not in DIRECT or target.startswith("gfx"))
]
CPU_LIMIT = 4.0
"""Seconds of processor time after which a run counts as endless; good texts take a hundredth."""


@dataclass(frozen=True)
class Data:
    """What to launch a text with: `inputs` hold, after the run, `outputs`."""

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Case:
    """An example's text for a target and what to launch it with."""

    name: str
    target: str
    asm: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    data: tuple[Data, ...]


def _example(name: str) -> ModuleType:
    """An example script as a module; its folder comes last on the path, because it has a copy.py."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def case(name: str, target: str) -> Case:
    """Compile an example for a target, with distinct sizes so that a mistaken extent shows."""
    which, sizes = CASES[name]
    rng = np.random.default_rng(len(name))
    if which == "copy":
        a = rng.integers(-2000, 2000, sizes).astype(np.float16)
        kernel = _example("copy").copy_kernel(wd.f16)
        # pairs of elements whose bits are an offset within the arrays, for texts that take data for an address
        near = np.zeros(sizes, np.uint16)
        near[:, ::2] = 2 * rng.permutation(near[:, ::2].size).reshape(near[:, ::2].shape)
        # rows of the output lie further apart, so that elements past their end show
        room = np.full((sizes[0], sizes[1] + 9), 93, np.float16)[:, : sizes[1]]
        data = [Data((x, room), (x, x)) for x in (a, near.view(np.float16).copy())]
    else:
        gemm = _example("gemm")
        m, n, k = sizes
        kernel = gemm.gemm_kernel(wd.f16, gemm.TILES[which][0])
        if name in DIRECT:
            kernel.schedule = wd.Schedule(direct_to_shared=True)
        small = rng.integers(-8, 9, (m, k)), rng.integers(-8, 9, (n, k))
        pairs = [small, (small[0], 0 * small[1]), (0 * small[0], small[1])]
        pairs += [(np.full((m, k), x), np.full((n, k), y)) for x, y in ((np.inf, 1.0), (1.0, np.inf))]
        data = []
        for a, b in ((x.astype(np.float16), y.astype(np.float16)) for x, y in pairs):
            product = (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)
            b = np.asfortranarray(b) if name in TURNED else b
            data.append(Data((a, b, np.full((m, n), 93, np.float32)), (a, b, product)))
    compiled = kernel.compile(*data[0].inputs, target=target)
    out = Case(name, target, compiled.asm, compiled.grid, compiled.block, tuple(data))
    if which == "copy":
        return out
    x, y = (rng.standard_normal(side.shape).astype(np.float16) for side in (a, b))
    fractions = Data((x, np.asfortranarray(y) if name in TURNED else y, data[0].inputs[2]), ())
    results = execute(replace(out, data=(fractions,)), out.asm, 0)
    return replace(out, data=(*data, replace(fractions, outputs=tuple(results))))


class Found(Exception):
    """Carries the first finding out of a run."""


class _Eager(Collector):
    def add(self, finding: Finding) -> None:
        raise Found(finding)


class Endless(Exception):
    """A run took longer than it may."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise Endless after so much processor time of this process. None of it is the garbage collector's: late in a test
    run a collection looks at millions of objects, which takes seconds and says nothing of the text."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise Endless

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        with PAUSED:
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


ARRIVALS = ("late", "early", "random")
"""When results of asynchronous operations reach their registers or shared memory."""


class _Checker(amdgcn_checks.Checker):
    """Draws nothing: the seed is the place in ARRIVALS."""

    def __init__(self, engine: Any, seed: int):
        super().__init__(engine, seed)
        self.arrival = {"late": "latest", "early": "earliest"}.get(ARRIVALS[seed % 3], "random")


def execute(c: Case, text: str, seed: int, checks: bool = True, data: int = 0) -> list[np.ndarray]:
    """The arrays after a run of the text. Results arrive as ARRIVALS[seed % 3] says. Raises Found at the first
    finding."""

    class Copies(ptx_copies.AsyncCopies):
        def __init__(self, machine: Any):
            super().__init__(machine)
            self.arrival = ARRIVALS[seed % 3]

    arrays = [x.copy(order="K") if x.base is None else x.base.copy()[:, : x.shape[1]] for x in c.data[data].inputs]
    run: Callable[..., Any] = amdgcn.run_amdgcn if c.target.startswith("gfx") else ptx.run_ptx
    with (
        mock.patch.object(amdgcn, "Collector", _Eager), mock.patch.object(ptx, "Collector", _Eager),
        mock.patch.object(amdgcn, "Checker", _Checker), mock.patch.object(ptx_program, "AsyncCopies", Copies),
    ):  # fmt: skip
        report = run(text, target=c.target, grid=c.grid, block=c.block, args=arrays, seed=seed,
                     checks="report" if checks else False)  # fmt: skip
    if report.findings:
        raise Found(report.findings[0])
    return arrays


def equal(data: Data, arrays: list[np.ndarray]) -> bool:
    """Whether the arrays hold the right numbers, and what lies between the rows of one is as it was."""
    for array, right in zip(arrays, data.outputs):
        if not np.array_equal(array, right):
            return False
        if array.base is not None and (array.base[:, array.shape[1] :] != 93).any():
            return False
    return True


def verdict(c: Case, text: str) -> str | None:
    """How a run shows that the text is wrong: the kind of a finding, `refused`, `numbers` or `endless`; None: it does
    not."""
    runs = [(seed, 0) for seed in range(len(ARRIVALS))] + [(at, at) for at in range(1, len(c.data))]
    for seed, data in runs:
        try:
            with limited(CPU_LIMIT):
                arrays = execute(c, text, seed, data=data)
        except Found as found:
            return found.args[0].kind
        except wd.WaveError:
            return "refused"
        except Endless:
            return "endless"
        if not equal(c.data[data], arrays):
            return "numbers"
    return None
