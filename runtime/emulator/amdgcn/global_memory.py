"""Global memory of the AMDGCN emulator under watch: which accesses of waves nothing orders.

In: accesses, waits, barriers and cache maintenance, as instructions carry them out. Out: findings. Rules, as LLVM's
memory model (AMDGPUUsage, one workgroup per compute unit: no threadgroup split) has them:

* Waves of a workgroup share the first-level cache and its queue, so a barrier orders what they do, waited for or not.
* What a wave did, and what it knows others to have done, is released to other workgroups when `vmcnt(0)` has been
  waited for; on chips with several L2 caches (gfx942 and later) behind a `buffer_wbl2 sc1`. Who meets it at a barrier
  may then make the access that hands it on.
* It is acquired by an instruction that drops the first-level cache (`buffer_inv sc1`, `buffer_wbinvl1`), behind the
  wait for the access that saw it.
* The scalar cache sees no stores, and no fence drops it: scalar loads are of what the launch has not written. (It may
  write that later: LLVM makes scalar loads of memory that nothing has changed yet.)
* A wave executes each instruction for all of its lanes, so these need no order among themselves.

A wave's clock counts barriers, and below them (in `FINE` bits) its releases.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.runtime.emulator.amdgcn.state import I64, LANES, State
from wavedsl.runtime.emulator.amdgcn.step import Step
from wavedsl.runtime.emulator.amdgcn.text import Line, Program
from wavedsl.runtime.emulator.global_page import COLUMN, DOMAIN, DOMAINS, TIME
from wavedsl.runtime.emulator.global_shadow import Clash, GlobalShadow
from wavedsl.runtime.emulator.memory import GlobalMemory

FINE = 12
"""Bits of the clock below the number of barriers passed."""


class Waves:
    """The waves of a batch as agents, `row = workgroup * waves + wave`; their domain is the workgroup. A time is the
    clock: a wave executes each instruction for all of its lanes at once, so lanes need no order.
    """

    lane_bits = 0

    def __init__(self, waves: int, writes_back: bool):
        self.waves, self.writes_back = waves, writes_back
        self.place = np.zeros(0, I64)

    def new_batch(self, groups: np.ndarray) -> None:
        """`groups`: numbers of the workgroups in the grid."""
        n = len(groups)
        self.own = np.tile(np.arange(self.waves, dtype=I64), n)
        self.base = np.repeat((groups.astype(I64) + 1) << DOMAIN, self.waves) | self.own << COLUMN
        self.clock = np.full(n * self.waves, 1 << FINE, I64)
        self.handed = np.zeros((n * self.waves, self.waves), I64)
        """What each row has released, by wave of its workgroup."""
        self.met = np.zeros((n, self.waves), I64)
        """The same of all waves of a workgroup, at its last barrier."""
        self.place = np.full(max(len(self.place), int(groups.max(initial=0)) + 2), -1, I64)
        """Of each domain the number of its workgroup in the batch, -1 for those of others."""
        self.place[groups[::-1] + 1] = np.arange(n)[::-1]
        self.under_way: dict[int, np.ndarray] = {}
        """What a row writes back, until it waits."""
        self.any = False

    def table(self) -> np.ndarray:
        return self.base | self.clock

    def codes(self, rows: np.ndarray) -> np.ndarray:
        return self.base.take(rows) | self.clock.take(rows)

    def known(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        clock = self.clock.take(rows)
        return np.where(columns == self.own.take(rows), clock, (clock >> FINE << FINE) - 1)

    def lanes_told(self, rows: np.ndarray, codes: np.ndarray, theirs: np.ndarray) -> np.ndarray | None:
        return None

    def lane_column(self, code: int) -> int | None:
        return None

    def lanes_met(self, codes: np.ndarray) -> np.ndarray:
        return np.ones(len(codes), bool)

    def settled(self, codes: np.ndarray) -> np.ndarray:
        """Which accesses are of a wave alone in its workgroup, or in front of a barrier that all have come through."""
        group = self.place.take(np.minimum(codes >> DOMAIN, len(self.place) - 1))
        group = np.where(codes >> DOMAIN < len(self.place), group, -1)
        least = self.clock.reshape(-1, self.waves).min(axis=1) >> FINE << FINE
        return (group < 0) | (least[group] > codes & TIME) | (self.waves == 1)

    def barrier(self, rows: np.ndarray) -> None:
        self.clock[rows] = ((self.clock[rows] >> FINE) + 1) << FINE
        if self.any:
            groups = np.unique(rows // self.waves)
            self.met[groups] = self.handed.reshape(-1, self.waves, self.waves)[groups].max(axis=1)

    def _snapshot(self, rows: np.ndarray) -> np.ndarray:
        """All that rows know to have been done, by wave."""
        clock = self.clock[rows][:, None]
        return np.where(np.arange(self.waves) == self.own[rows][:, None], clock, (clock >> FINE << FINE) - 1)

    def write_back(self, rows: np.ndarray) -> None:
        if self.writes_back:
            self.under_way.update(zip(rows.tolist(), self._snapshot(rows)))
            self._tick(rows)

    def _tick(self, rows: np.ndarray) -> None:
        """What rows do from here on is told from what they have done."""
        self.clock[rows] += (self.clock[rows] + 1 & (1 << FINE) - 1) != 0

    def waited(self, rows: np.ndarray) -> None:
        """Rows have nothing under way any more."""
        if not self.writes_back:
            self.handed[rows] = np.maximum(self.handed[rows], self._snapshot(rows))
            self._tick(rows)
            self.any = True
            return
        if not self.under_way:
            return
        for row in rows.tolist():
            clocks = self.under_way.pop(row, None)
            if clocks is not None:
                np.maximum(self.handed[row], clocks, out=self.handed[row])
                self.any = True

    def releases(self) -> bool:
        return self.any

    def released(self, row: int, lanes: int) -> np.ndarray | None:
        clocks = np.maximum(self.met[row // self.waves], self.handed[row])
        return clocks if clocks.any() else None


class WatchedMemory:
    """Findings about global memory of one launch. `engine` gives the program and the place for findings."""

    def __init__(self, engine: Any, memory: GlobalMemory):
        program: Program = engine.program
        rows = [x.inst for x in program.lines if x.inst is not None and x.inst.mem is not None]
        accesses = [r.mem for r in rows if r.unit is Unit.VMEM and r.mem is not None]
        self.engine = engine
        self.target: str = engine.target
        self.waves = Waves(engine.waves, self.target != "gfx90a")
        swaps = any(a.function == "cmpswap" for a in accesses)
        granule = max(1, min([4, *(a.bytes for a in accesses)]))
        self.shadow = GlobalShadow(memory, self.waves, granule, swaps)
        self.synchronises = any(a.returns for a in accesses if a.op == "atomic") or any(
            self.strong(x) and x.inst is not None and x.inst.mem is not None and x.inst.mem.op == "load"
            for x in program.lines
        )
        """Whether workgroups may learn anything of each other: somebody looks at what others change."""

    def new_batch(self, groups: np.ndarray) -> None:
        self.waves.new_batch(groups)

    def strong(self, line: Line) -> bool:
        """Whether an access is one of the chip's scope, which the first-level cache does not serve."""
        if line.inst is None or line.inst.mem is None or line.inst.unit is not Unit.VMEM:
            return False
        bits = line.modifiers
        return bool(bits.get("glc") and not bits.get("slc") if self.target == "gfx90a" else bits.get("sc1"))

    def rows(self, st: State) -> np.ndarray:
        return st.wg * self.waves.waves + st.wave

    def _lanes(self, st: State, active: Any) -> np.ndarray:
        """The row of each active lane."""
        rows = self.rows(st)
        return np.repeat(rows, LANES) if active is None else np.broadcast_to(rows[:, None], active.shape)[active]

    # ---- accesses: addresses [n] of the active lanes

    def read(self, st: State, index: int, address: np.ndarray, size: int, active: Any, strong: bool) -> None:
        rows = self._lanes(st, active)
        if strong:
            self.shadow.synchronise(address, rows, index, reads=True, writes=False)
        self._tell(st, index, active, self.shadow.read(address, size, rows, index, strong=strong))

    def write(
        self, st: State, index: int, address: np.ndarray, size: int, active: Any, words: np.ndarray, strong: bool
    ) -> None:
        """Before memory changes; `words` [k, n]."""
        rows = self._lanes(st, active)
        if strong and self.synchronises:
            self.shadow.synchronise(address, rows, index, reads=False, writes=True)
        self._tell(st, index, active, self.shadow.write(address, size, rows, index, words=words, strong=strong))

    def atomic(
        self, st: State, index: int, address: np.ndarray, size: int, active: Any, order: Any, returns: bool
    ) -> None:
        """Before memory changes. `order`: in which lanes take turns, None where that does not matter."""
        turn = np.arange(len(address)) if order is None else order
        address, rows = address[turn], self._lanes(st, active)[turn]
        if self.synchronises:
            self.shadow.synchronise(address, rows, index, reads=returns, writes=True)
        clash = self.shadow.write(address, size, rows, index, atomic=True)
        if clash is not None:
            self._tell(st, index, active, replace(clash, position=int(turn[clash.position])))

    def scalar(self, st: State, index: int, address: np.ndarray, size: int, good: Any) -> None:
        """Scalar loads, one address per wave; `good` [wave]: those that count (None: all)."""
        rows = self.rows(st)
        if good is not None:
            address, rows = address[good], rows[good]
        clash = self.shadow.read(address, size, rows, index, cache="the scalar cache")
        if clash is not None:
            lanes = np.zeros((st.waves, LANES), bool)
            wave = clash.position if good is None else int(np.flatnonzero(good)[clash.position])
            lanes[wave, 0] = True
            self._find(st, index, lanes, clash)

    # ---- order

    def barrier(self, st: State) -> None:
        self.waves.barrier(self.rows(st))

    def waited(self, st: State) -> None:
        """Nothing of the group's waves is under way to or from memory."""
        if self.synchronises:
            self.waves.waited(self.rows(st))

    def maintenance(self, line: Line) -> Step:
        """What write-backs and invalidations of caches mean to other workgroups."""
        chip = self.target == "gfx90a" or bool(line.modifiers.get("sc1"))
        assert line.inst is not None
        release = line.inst.extra == "writeback"

        def step(st: State) -> None:
            if not (chip and self.synchronises):
                return
            if release:
                self.waves.write_back(self.rows(st))
                return
            busy = {f.index for f in st.vm}
            self.shadow.acquire(self.rows(st), under_way=busy.__contains__)

        return step

    # ---- findings

    def _tell(self, st: State, index: int, active: Any, clash: Clash | None) -> None:
        if clash is None:
            return
        lanes = np.zeros((st.waves, LANES), bool)
        if active is None:
            lanes.reshape(-1)[clash.position] = True
        else:
            lanes.reshape(-1)[np.flatnonzero(active)[clash.position]] = True
        self._find(st, index, lanes, clash)

    def _find(self, st: State, index: int, lanes: np.ndarray, clash: Clash) -> None:
        other = ""
        if clash.other >= 0:
            line = self.engine.program.lines[clash.other]
            where = f" ({line.location})" if line.location is not None else ""
            other = f"; the other is line {line.number}: {' '.join(line.text.split())}{where}"
        self.engine.find("race", index, f"{clash.what} {self.shadow.place(clash.address)}{other}", st, lanes)


def watched(engine: Any, memory: GlobalMemory) -> WatchedMemory | None:
    """The watch over a launch; None where there are too many workgroups to tell apart."""
    gx, gy, gz = engine.grid
    return None if gx * gy * gz > DOMAINS else WatchedMemory(engine, memory)
