"""The shadow of LDS: per granule who wrote and who read it last, in which epoch. (checks.py, RACE and UNDEF)

An epoch is the time between two barriers of a wave. Accesses are checked when they issue; what a wave has not waited
for when it passes a barrier belongs to the next epoch too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Inst
from wavedsl.runtime.emulator.amdgcn.ds import lds_load
from wavedsl.runtime.emulator.amdgcn.state import LANES, U32, State

_TOUCHES = {"reads": "wrote", "overwrites": "read", "writes": "also wrote"}


class LdsShadow:
    """LDS of one batch of workgroups. `engine` gives the program, the bytes and the place for findings.

    `granule`: bytes of a cell, the smallest access of the program; it becomes 1 at the first access that is not aligned
    to it. `has_dma`: whether direct copies write to LDS. `races`: whether a workgroup has several waves.
    """

    def __init__(self, engine: Any, granule: int, has_dma: bool, races: bool):
        self.engine = engine
        self.granule = granule
        self.has_dma = has_dma
        self.races = races

    def new_batch(self, size: int) -> None:
        """Forget everything; `size`: bytes of all workgroups of the batch together."""
        n = max(64, size) // self.granule + 64
        self.w_wave = np.full(n, -1, np.int16)
        self.w_epoch = np.full(n, -1, np.int32)
        self.w_index = np.zeros(n, np.int32)
        self.r_wave = np.full(n, -1, np.int16)
        self.r_epoch = np.full(n, -1, np.int32)
        self.r_index = np.zeros(n, np.int32)
        self.coming = np.zeros(n, bool)
        """LDS granules that a direct copy will still write."""
        self.unreturned = np.zeros(n, bool)

    def granules(self, position: np.ndarray, size: int) -> np.ndarray:
        """Shadow cells of an access, [wave, lane, cell]."""
        g = self.granule
        if g > 1 and (size % g or np.bitwise_or.reduce(position, axis=None) % g):
            self._refine()
            g = self.granule
        first = position // g
        return first[..., None] + np.arange(max(1, size // g))

    def _refine(self) -> None:
        """Track single bytes from here on: an access was not aligned to the cells."""
        n = self.granule
        for name in ("w_wave", "w_epoch", "w_index", "r_wave", "r_epoch", "r_index", "coming", "unreturned"):
            setattr(self, name, np.repeat(getattr(self, name), n))
        self.granule = 1

    def _cells(
        self, st: State, position: np.ndarray, size: int, active: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cells [n, k] of the active lanes, with the wave and epoch of each lane."""
        g = self.granules(position, size)
        wave, epoch = st.wave.astype(np.int16)[:, None], st.epoch.astype(np.int32)[:, None]
        if active is None:
            lanes = position.shape[1]
            return g.reshape(-1, g.shape[-1]), wave.repeat(lanes, axis=0), epoch.repeat(lanes, axis=0)
        of_wave = np.nonzero(active)[0]
        return g[active], wave[of_wave], epoch[of_wave]

    def lane_mask(self, st: State, active: Any, chosen: np.ndarray) -> np.ndarray:
        mask = np.zeros((st.waves, LANES), bool)
        if active is None:
            mask.reshape(-1)[:] = chosen
        else:
            mask[active] = chosen
        return mask

    def _race(
        self, st: State, index: int, active: Any, conflict: np.ndarray, cells: np.ndarray, other: np.ndarray, what: str
    ) -> None:
        lanes: np.ndarray = np.any(conflict, axis=1)
        at = np.argwhere(conflict)[0]
        line = self.engine.program.lines[int(other[cells[at[0], at[1]]])]
        offset = int(cells[at[0], at[1]]) * self.granule % max(1, self.engine.env.stride)
        self.engine.find(
            "race",
            index,
            f"{what} LDS byte {offset}, which another wave {_TOUCHES[what]} by `{line.text}` "
            f"(line {line.number}) with no barrier between",
            st,
            self.lane_mask(st, active, lanes),
        )

    def read(self, st: State, index: int, position: np.ndarray, size: int, active: Any) -> np.ndarray | None:
        """Check and record a read; returns lanes that read bytes never written, or None."""
        cells, wave, epoch = self._cells(st, position, size, active)
        if not cells.size:
            return None
        writer = self.w_wave[cells]
        if self.races:
            conflict = (writer >= 0) & (writer != wave) & (self.w_epoch[cells] == epoch)
            if conflict.any():
                self._race(st, index, active, conflict, cells, self.w_index, "reads")
        if self.has_dma:
            early = self.coming[cells]
            if early.any():
                lanes = self.lane_mask(st, active, early.any(axis=1))
                at = np.argwhere(early)[0]
                line = self.engine.program.lines[int(self.w_index[cells[at[0], at[1]]])]
                self.engine.find(
                    "missing-wait",
                    index,
                    f"reads LDS before `{line.text}` (line {line.number}) has written it: no wait for vmcnt covers it",
                    st,
                    lanes,
                )
        if self.races:
            same = self.r_epoch[cells] == epoch
            before = self.r_wave[cells]
            self.r_wave[cells] = np.where(same & (before != wave) & (before != -1), np.int16(-2), wave)
            self.r_epoch[cells] = epoch
            self.r_index[cells] = index
            after = self.r_wave[cells]
            mixed = (after != wave) & (after != -2)
            if mixed.any():
                self.r_wave[cells[mixed]] = -2
        never = (writer == -1).any(axis=1)
        return self.lane_mask(st, active, never) if never.any() else None

    def write(
        self,
        st: State,
        index: int,
        position: np.ndarray,
        size: int,
        active: Any,
        words: np.ndarray | None,
        exclusive: bool,
    ) -> None:
        """Check and record a write. `words`: what is written, to tell harmless equal writes from races."""
        cells, wave, epoch = self._cells(st, position, size, active)
        if not cells.size:
            return
        if self.races:
            reader = self.r_wave[cells]
            conflict = (self.r_epoch[cells] == epoch) & (reader != wave) & (reader != -1)
            if conflict.any():
                self._race(st, index, active, conflict, cells, self.r_index, "overwrites")
            writer = self.w_wave[cells]
            conflict = (writer >= 0) & (writer != wave) & (self.w_epoch[cells] == epoch)
            if conflict.any() and exclusive and not self._same(st, position, size, active, words, conflict):
                self._race(st, index, active, conflict, cells, self.w_index, "writes")
        self.w_wave[cells] = wave
        self.w_epoch[cells] = epoch
        self.w_index[cells] = index
        if self.races and exclusive:
            other = self.w_wave[cells] != wave
            if other.any() and not self._equal(st, position, size, active, words, other):
                self._race(st, index, active, other, cells, self.w_index, "writes")

    def _same(self, st: State, position: np.ndarray, size: int, active: Any, words: Any, conflict: np.ndarray) -> bool:
        """Whether the bytes already there are the ones written now."""
        if words is None:
            return False
        now = lds_load(self.engine.env, position, size, active)
        limit = U32(0xFFFFFFFF if size >= 4 else (1 << 8 * size) - 1)
        equal = ((now ^ words) & limit == 0).all(axis=0)
        equal = equal.reshape(-1) if active is None else equal[active]
        return bool(equal[conflict.any(axis=1)].all())

    def _equal(self, st: State, position: np.ndarray, size: int, active: Any, words: Any, conflict: np.ndarray) -> bool:
        """Whether lanes of different waves that write the same address at once write the same words."""
        if words is None:
            return False
        at = position.reshape(-1) if active is None else position[active]
        w = words.reshape(words.shape[0], -1) if active is None else words[:, active]
        limit = U32(0xFFFFFFFF if size >= 4 else (1 << 8 * size) - 1)
        _, inverse = np.unique(at, return_inverse=True)
        inverse = inverse.reshape(-1)
        first = np.zeros(inverse.max() + 1, np.intp)
        first[inverse[::-1]] = np.arange(inverse.size)[::-1]
        return bool(((w ^ w[:, first[inverse]]) & limit == 0).all())

    def atomic(self, st: State, index: int, position: np.ndarray, size: int, active: Any) -> None:
        """Atomics order themselves among waves; against plain accesses they are writes."""
        cells, wave, epoch = self._cells(st, position, size, active)
        if not cells.size:
            return
        if self.races:
            lines = self.engine.program.lines
            for owner, when, who in (
                (self.w_wave, self.w_epoch, self.w_index),
                (self.r_wave, self.r_epoch, self.r_index),
            ):
                conflict = (owner[cells] != wave) & (owner[cells] != -1) & (when[cells] == epoch)
                if conflict.any():
                    at = np.argwhere(conflict)
                    plain = [p for p in at[:64].tolist() if not _is_atomic(lines[int(who[cells[p[0], p[1]]])].inst)]
                    if plain:
                        only = np.zeros_like(conflict)
                        only[plain[0][0], plain[0][1]] = True
                        self._race(
                            st, index, active, only, cells, who, "overwrites" if owner is self.r_wave else "writes"
                        )
        self.w_wave[cells] = wave
        self.w_epoch[cells] = epoch
        self.w_index[cells] = index

    def barrier(self, st: State) -> None:
        """(RACE) What is under way when a wave passes a barrier also happens after it."""
        if not self.races:
            return
        for f in (*st.vm, *st.lgkm):
            for part in f.places():
                cells, wave, epoch = self._cells(st, part.position, part.size, part.active)
                if not cells.size:
                    continue
                if f.role == "read":
                    self.r_wave[cells] = wave
                    self.r_epoch[cells] = epoch + 1
                    self.r_index[cells] = f.index
                else:
                    self.w_wave[cells] = wave
                    self.w_epoch[cells] = epoch + 1
                    self.w_index[cells] = f.index


def _is_atomic(inst: Inst | None) -> bool:
    return inst is not None and inst.mem is not None and inst.mem.op == "atomic"
