"""Counts what an emulated AMDGCN run costs: LDS bank conflicts now, clocks when somebody asks.

In: LDS and memory addresses as instructions run. Out: `.bank_conflicts`, and `.timing` through the cycle model
(`cycle_model`), which replays what `trace` recorded of the workgroups that share one compute unit.

Bank conflicts: extra cycles of LDS instructions, by the lane groups that are served together (HipKittens' measurements
on MI355X; on gfx90a and gfx942 the same groups over 32 banks, unverified there).
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.products import DIES
from wavedsl.codegen.amdgcn.target import resident_groups
from wavedsl.runtime.emulator.amdgcn.cycle_model import Replay
from wavedsl.runtime.emulator.amdgcn.state import LANES, State
from wavedsl.runtime.emulator.amdgcn.trace import MAX_RECORDED, Tracer
from wavedsl.runtime.emulator.cycle_chips import CHIPS, ChipModel
from wavedsl.runtime.emulator.cycle_queue import STORED, Launch, LineCache, Timing, sharing, spread
from wavedsl.runtime.emulator.report import EmulationReport
from wavedsl.runtime.emulator.timeline import Timeline

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
    if size == 12 or target != "gfx950":
        return _twice(_B96), 32
    return (np.arange(LANES).reshape(8, 8) if store else _twice(_B128)), banks


def lds_clocks(address: np.ndarray, size: int, store: bool, target: str) -> tuple[int, int]:
    """Clocks of an LDS access at these byte addresses [lane] beyond what the width needs anyway, and all clocks: per
    group of lanes that is served together, its fullest bank's distinct words."""
    groups, banks = phases(size, store, target)
    words = max(1, size // 4)
    at = ((address[groups] >> 2)[:, :, None] + np.arange(words)).reshape(len(groups), -1)
    at.sort(axis=1)
    distinct = np.ones(at.shape, bool)
    np.not_equal(at[:, 1:], at[:, :-1], out=distinct[:, 1:])
    bank = np.nonzero(distinct)[0] * banks + at[distinct] % banks
    fullest = np.bincount(bank, minlength=len(groups) * banks).reshape(len(groups), banks).max(axis=1)
    least = max(1, math.ceil(groups.shape[1] * words / banks))
    clocks = int(np.maximum(fullest, least).sum())
    return clocks - len(groups) * least, clocks


def atomic_clocks(address: np.ndarray, active: Any, size: int, target: str) -> tuple[np.ndarray, np.ndarray]:
    """The same of an atomic at byte addresses [wave, lane], by wave: a bank changes one word per clock, so lanes that
    meet in one place take turns as those do that meet in one bank (not published)."""
    groups, banks = phases(size, True, target)
    words, waves = max(1, size // 4), len(address)
    at = (address[:, groups] >> 2)[..., None] + np.arange(words)
    slot = np.arange(waves * len(groups)).reshape(waves, -1, 1, 1) * banks + at % banks
    met = slot.ravel() if active is None else slot[active[:, groups]].ravel()
    size = waves * len(groups) * banks
    fullest = np.bincount(met, minlength=size).reshape(waves, len(groups), banks).max(axis=2)
    least = max(1, math.ceil(groups.shape[1] * words / banks))
    clocks = np.maximum(fullest, least).sum(axis=1)
    return clocks - len(groups) * least, clocks


class Cost:
    """Counts what a run costs; `conflict`, `atomic` and `access` are called with the addresses of each access."""

    def __init__(self, engine: Any, target: str):
        self.engine, self.target = engine, target
        self.chip = CHIPS[target]
        self.extra = 0
        self.known: dict[tuple[int, bool, bytes], tuple[int, int]] = {}
        self.kept: list[np.ndarray] = []
        """Arrays that caches keep."""
        self.total = math.prod(engine.grid)
        registers = int(engine.kernel.directives.get("next_free_vgpr", 0)) or engine.regs.count
        self.resident = max(1, resident_groups(target, registers, engine.lds, engine.launch.threads))
        share = -(-self.total // self.chip.units)
        recorded = spread(engine.runs, min(self.resident, share, MAX_RECORDED)) if self.total else []
        self.tracer = Tracer([engine.begin + x for x in recorded], engine.waves, self.chip.line)

    def conflict(self, st: State, index: int, address: np.ndarray, size: int, store: bool) -> None:
        """Add the conflicts of one access. Waves whose addresses differ by a constant have the same."""
        if st.mask is not None:
            address = np.where(st.mask, address, address[:, :1])
        relative = address - address[:, :1]
        first = relative[0]
        same = (relative == first).all(axis=1)
        n = int(np.count_nonzero(same))
        extra, clocks = self._of(first, size, store)
        self.extra += n * extra
        others: dict[int, int] = {}
        for w in np.flatnonzero(~same).tolist() if n < st.waves else ():
            extra, others[w] = self._of(relative[w], size, store)
            self.extra += extra
        for w, trace in self.tracer.of(st):
            trace.events.append(others.get(w, clocks))

    def atomic(self, st: State, address: np.ndarray, active: Any, size: int) -> None:
        """Add the conflicts of one atomic of LDS."""
        extra, clocks = atomic_clocks(address.astype(np.int64), active, size, self.target)
        self.extra += int(extra.sum())
        for w, trace in self.tracer.of(st):
            trace.events.append(int(clocks[w]))

    def access(
        self, st: State, at: np.ndarray, active: Any, size: int, private: bool, changes: bool = False,
        stores: bool = False,
    ) -> None:  # fmt: skip
        """Record one access of global memory, or of scratch. `changes`: it is an atomic that gives nothing back."""
        if not self.tracer.of(st):
            return
        if private:
            self.tracer.scratch_access(st, at, active, size)
        elif changes:
            self.tracer.changes(st, at, active, size)
        else:
            self.tracer.global_access(st, at, active, size, stores)

    def _of(self, relative: np.ndarray, size: int, store: bool) -> tuple[int, int]:
        key = (size, store, relative.tobytes())
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = lds_clocks(relative.astype(np.int64), size, store, self.target)
        return found

    def finish(self, report: EmulationReport) -> None:
        report.bank_conflicts = self.extra
        report.set_model(self.timing, self.place, self.launch)

    def launch(self, chip: ChipModel | None = None) -> Launch:
        """How this launch loads the compute unit that has most workgroups."""
        chip = chip or self.chip
        share = -(-self.total // chip.units)
        missed = self._memory_share()
        rate = min(chip.l2_rate, chip.dram_rate / missed) if missed else chip.l2_rate
        used = sharing(self.total, chip.units, rate, chip.l1_rate)
        lines, busy = len(self.tracer.changed), min(self.total, chip.units) / DIES[self.target]
        return Launch(share, min(self.resident, share), missed, used, busy / lines if lines else 0.0)

    def _memory_share(self) -> float:
        """How much of what workgroups ask for the first time must come from memory."""
        line = self.chip.line
        memory = self.engine.memory
        groups = self.tracer.groups.values()
        scale = line * self.total / max(1, len(groups))
        asked: dict[tuple[int, bool], float] = {}
        for group in groups:
            touched = LineCache()
            for event in chain.from_iterable(wave.events for wave in group):
                if not isinstance(event, tuple) or not event[1] or event[1][0] < 0:
                    continue
                lines = event[1]
                if new := touched.missed(lines):
                    first, last = (x % STORED * line for x in (lines[0], lines[-1]))
                    found = memory.find(last) or memory.find(first)
                    key = -1 if found is None else memory.allocations.index(found), lines[0] >= STORED
                    asked[key] = asked.get(key, 0.0) + scale * new
        return memory.share_of_memory(asked, self.kept)

    def place(self, instruction: int) -> tuple[str, str]:
        """The text of an instruction, and the user's line."""
        line = self.engine.program.lines[instruction]
        return line.text, "" if line.location is None else str(line.location)

    def timing(
        self, launch: Launch | None = None, chip: ChipModel | None = None, timeline: Timeline | None = None
    ) -> Timing:
        """Replay what was recorded; `launch` and `chip` replace what was run, for studies; `timeline` is told all."""
        engine = self.engine
        traces = [waves for waves in self.tracer.groups.values() if any(w.blocks for w in waves)]
        if not traces:
            return Timing()
        spans = {first: block.last for first, block in engine.blocks.items()}
        chip = chip or self.chip
        replay = Replay(engine.program, spans, self.target, chip, launch or self.launch(chip))
        replay.timeline = timeline
        return replay.run(traces)
