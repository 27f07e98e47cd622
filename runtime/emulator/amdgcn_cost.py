"""The cycle model and LDS bank conflicts of an emulated AMDGCN run.

In: how often each block ran, the rows' issue clocks, LDS addresses. Out: `.cycles`, `.utilisation`, `.bank_conflicts`.

Model: every wave issues in order; a unit of one SIMD (matrix, vector, transcendental on the vector unit) or of one
compute unit
(scalar, LDS, memory, branch) is busy for the row's issue clocks per wave. Workgroups are spread evenly over the
compute units of the reference product, their waves over its SIMDs. The kernel takes as long as its busiest unit, plus
once the memory latency that no wave can hide. Dependences are not followed, so this is a lower bound.

Bank conflicts: extra cycles of LDS instructions, by the lane groups that are served together (HipKittens' measurements
on MI355X; on gfx90a and gfx942 the same groups over 32 banks, unverified there).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.runtime.emulator.amdgcn_state import LANES, State
from wavedsl.runtime.emulator.report import EmulationReport

UNITS_OF = {"gfx90a": 110, "gfx942": 304, "gfx950": 256}
"""Compute units: MI250X (one die), MI300X, MI355X."""
LATENCY = 800
"""Clocks of one exposed trip to memory and back, typical."""

_B128 = [
    [0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27],
    [4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 28, 29, 30, 31],
]
_B96 = [
    [0, 1, 2, 3, 20, 21, 22, 23],
    [4, 5, 6, 7, 16, 17, 18, 19],
    [8, 9, 10, 11, 28, 29, 30, 31],
    [12, 13, 14, 15, 24, 25, 26, 27],
]


def _twice(groups: list[list[int]]) -> np.ndarray:
    return np.array(groups + [[x + 32 for x in g] for g in groups])


def phases(size: int, store: bool, target: str) -> tuple[np.ndarray, int]:
    """Lane groups served together [group, lane], and the banks such an access sees."""
    banks = 64 if target == "gfx950" else 32
    halves = np.arange(LANES).reshape(2, 32)
    if size <= 4:
        return (np.arange(LANES).reshape(1, 64), banks) if banks == 64 else (halves, banks)
    if size == 8:
        if store or target != "gfx950":
            return np.arange(LANES).reshape(4, 16), 32
        return halves, banks
    if size == 12:
        return _twice(_B96), 32
    if target != "gfx950":
        return _twice(_B96), 32
    return _twice(_B128), banks


class Cost:
    """Counts what a run costs; `conflict` is called with the LDS addresses of each access."""

    def __init__(self, engine: Any, target: str):
        self.engine, self.target = engine, target
        self.extra = 0
        self.known: dict[tuple[int, bool, bytes], int] = {}

    def conflict(self, st: State, index: int, address: np.ndarray, size: int, store: bool) -> None:
        """Add the conflicts of one access. Waves whose addresses differ by a constant have the same."""
        if st.mask is not None:
            address = np.where(st.mask, address, address[:, :1])
        relative = address - address[:, :1]
        first = relative[0]
        same = (relative == first).all(axis=1)
        n = int(np.count_nonzero(same))
        self.extra += n * self._of(first, size, store)
        for w in np.flatnonzero(~same).tolist() if n < st.waves else ():
            self.extra += self._of(relative[w], size, store)

    def _of(self, relative: np.ndarray, size: int, store: bool) -> int:
        key = (size, store, relative.tobytes())
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._count(relative.astype(np.int64), size, store)
        return found

    def _count(self, address: np.ndarray, size: int, store: bool) -> int:
        """Extra cycles: per group, the fullest bank's distinct words beyond what the width needs anyway."""
        groups, banks = phases(size, store, self.target)
        words = max(1, size // 4)
        extra = 0
        for lanes in groups:
            at = (address[lanes] >> 2)[:, None] + np.arange(words)
            distinct = np.unique(at)
            fullest = int(np.bincount(distinct % banks).max())
            extra += max(0, fullest - max(1, math.ceil(len(lanes) * words / banks)))
        return extra

    def finish(self, report: EmulationReport) -> None:
        engine = self.engine
        lines = engine.program.lines
        shared = {Unit.DS: "lds", Unit.VMEM: "vmem", Unit.SCRATCH: "vmem", Unit.SMEM: "smem"}
        busy: dict[str, int] = {}
        for first, times in engine.executed.items():
            block = engine.blocks[first]
            for i in range(block.first, block.last + 1):
                inst = lines[i].inst
                if inst is None:
                    continue
                unit = inst.unit
                name = shared.get(unit) or {
                    Unit.MFMA: "mfma",
                    Unit.VALU: "valu",
                    Unit.TRANS: "valu",
                    Unit.ACCMOVE: "valu",
                }.get(unit, "salu")
                busy[name] = busy.get(name, 0) + times * inst.issue
        if self.extra:
            busy["lds"] = busy.get("lds", 0) + self.extra
        groups = math.prod(engine.grid)
        units = min(UNITS_OF[self.target], groups)
        share = math.ceil(groups / units) / groups
        per_simd = {"mfma", "valu"}
        simds = min(4, max(1, engine.waves * math.ceil(groups / units)))
        clocks = {name: total * share / (simds if name in per_simd else 1) for name, total in busy.items()}
        report.bank_conflicts = self.extra
        cycles = max(clocks.values(), default=0)
        report.cycles = int(cycles) + (LATENCY if "vmem" in busy or "smem" in busy else 0)
        report.utilisation = {name: c / report.cycles for name, c in sorted(clocks.items())} if report.cycles else {}
