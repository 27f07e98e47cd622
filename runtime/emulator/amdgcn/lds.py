"""The shadow of LDS: per granule who wrote and who read it last, in which epoch. (checks.py, RACE and UNDEF)

An epoch is the time between two barriers of a wave. Accesses are checked when they issue; what a wave has not waited
for when it passes a barrier belongs to the next epoch too.

Who accessed a cell is one number: epoch, wave of the workgroup and instruction from the top. What an access
touches is [cell, lane], not [lane, cell]: NumPy reduces and broadcasts over an access's few cells slowly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Inst
from wavedsl.runtime.emulator.amdgcn.ds import lds_load
from wavedsl.runtime.emulator.amdgcn.state import LANES, U32, State

EPOCH, WAVE = 40, 24
"""Bits where epoch and wave begin in the number of who accessed a cell; below is the instruction."""
NOBODY = -1 << 63
"""Set in what nothing has written or read."""
MANY = 0xFFFF
"""Instead of a wave: several of one epoch."""

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
        self.writer = np.full(n, NOBODY, np.int64)
        self.reader = np.full(n, NOBODY, np.int64)
        self.equal: np.ndarray | None = None
        """Who else wrote the value that the last writer wrote: whoever writes another must come behind both."""
        self.coming = np.zeros(n, bool)
        """LDS granules that a direct copy will still write."""
        self.unreturned = np.zeros(n, bool)
        self.carried: dict[tuple[int, int], str] = {}
        """By epoch and instruction the counter of accesses that were under way when their wave came to it."""

    def granules(self, position: np.ndarray, size: int) -> np.ndarray:
        """Shadow cells of an access, [wave, lane, cell]."""
        first, count = self._first(position, size)
        return first[..., None] + np.arange(count)

    def _first(self, position: np.ndarray, size: int) -> tuple[np.ndarray, int]:
        """The first shadow cell of every lane's access, [wave, lane], and how many there are."""
        g = self.granule
        if g > 1 and (size % g or np.bitwise_or.reduce(position, axis=None) % g):
            self._refine()
            g = self.granule
        return position // g, max(1, size // g)

    def _refine(self) -> None:
        """Track single bytes from here on: an access was not aligned to the cells."""
        n = self.granule
        for name in ("writer", "reader", "equal", "coming", "unreturned"):
            if getattr(self, name) is not None:
                setattr(self, name, np.repeat(getattr(self, name), n))
        self.granule = 1

    def unwrite(self, position: np.ndarray, size: int, active: np.ndarray) -> None:
        """As if nothing had written what lanes access; which instruction did so stays known."""
        cells = self.granules(position, size)[active]
        self.writer[cells] |= NOBODY

    def _cells(
        self, st: State, index: int, position: np.ndarray, size: int, active: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cells [k, n] that the active lanes access, and as whom."""
        first, count = self._first(position, size)
        wave = st.epoch << EPOCH | st.wave << WAVE | index
        if active is None:
            first, wave = first.reshape(-1), wave.repeat(position.shape[1])
        else:
            first, wave = first[active], wave[np.nonzero(active)[0]]
        own = np.empty((count, len(first)), np.int64)
        own[:] = wave
        return first + np.arange(count)[:, None], own

    def lane_mask(self, st: State, active: Any, chosen: Any) -> np.ndarray:
        mask = np.zeros((st.waves, LANES), bool)
        if active is None:
            mask.reshape(-1)[:] = chosen
        else:
            mask[active] = chosen
        return mask

    def _race(
        self, st: State, index: int, active: Any, conflict: np.ndarray, cells: np.ndarray, other: np.ndarray, what: str
    ) -> None:
        lanes: np.ndarray = np.any(conflict, axis=0)
        at = _first_of(conflict, cells)
        line = self._line(other, at)
        offset = at * self.granule % max(1, self.engine.env.stride)
        which = int(other[at])
        counter = self.carried.get((which >> EPOCH, which & (1 << WAVE) - 1))
        between = "with no barrier between"
        if counter is not None:
            between = f"and had not waited for ({counter}) when it came to the barrier between"
        self.engine.find(
            "race",
            index,
            f"{what} LDS byte {offset}, which another wave {_TOUCHES[what]} by `{line.text}` "
            f"(line {line.number}) {between}",
            st,
            self.lane_mask(st, active, lanes),
        )

    def _line(self, accesses: np.ndarray, cell: int) -> Any:
        """The instruction that accessed a cell last."""
        return self.engine.program.lines[int(accesses[cell]) & (1 << WAVE) - 1]

    def read(self, st: State, index: int, position: np.ndarray, size: int, active: Any) -> np.ndarray | None:
        """Check and record a read; returns lanes that read bytes never written, or None."""
        cells, own = self._cells(st, index, position, size, active)
        if not cells.size:
            return None
        writer = self.writer.take(cells)
        if self.races:
            conflict = _others(writer, own)
            if conflict.any():
                self._race(st, index, active, conflict, cells, self.writer, "reads")
        if self.has_dma:
            early = self.coming.take(cells)
            if early.any():
                lanes = self.lane_mask(st, active, early.any(axis=0))
                line = self._line(self.writer, _first_of(early, cells))
                self.engine.find(
                    "missing-wait",
                    index,
                    f"reads LDS before `{line.text}` (line {line.number}) has written it: no wait for vmcnt covers it",
                    st,
                    lanes,
                )
        if self.races:
            _join(self.reader, cells, own)
        never = writer < 0
        return self.lane_mask(st, active, never.any(axis=0)) if never.any() else None

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
        cells, own = self._cells(st, index, position, size, active)
        if not cells.size:
            return
        if self.races:
            conflict = _others(self.reader.take(cells), own)
            if conflict.any():
                self._race(st, index, active, conflict, cells, self.reader, "overwrites")
            writer = self.writer.take(cells)
            conflict = _others(writer, own)
            if conflict.any() and exclusive:
                if self._same(st, position, size, active, words, conflict):
                    self._keep_equal(cells[conflict], writer[conflict])
                else:
                    self._race(st, index, active, conflict, cells, self.writer, "writes")
            if self.equal is not None:
                conflict = _others(self.equal.take(cells), own)
                if conflict.any() and exclusive and not self._same(st, position, size, active, words, conflict):
                    self._race(st, index, active, conflict, cells, self.equal, "writes")
        self.writer[cells] = own
        if self.races and exclusive:
            other = self.writer.take(cells) != own
            if other.any():
                if self._equal(st, position, size, active, words, other):
                    self._keep_equal(cells[other], own[other])
                else:
                    self._race(st, index, active, other, cells, self.writer, "writes")

    def _keep_equal(self, cells: np.ndarray, who: np.ndarray) -> None:
        """Remember who wrote what the last writer has written again."""
        if self.equal is None:
            self.equal = np.full(len(self.writer), NOBODY, np.int64)
        _join(self.equal, cells, who)

    def _same(self, st: State, position: np.ndarray, size: int, active: Any, words: Any, conflict: np.ndarray) -> bool:
        """Whether the bytes already there are the ones written now."""
        if words is None:
            return False
        now = lds_load(self.engine.env, position, size, active)
        limit = U32(0xFFFFFFFF if size >= 4 else (1 << 8 * size) - 1)
        equal = ((now ^ words) & limit == 0).all(axis=0)
        equal = equal.reshape(-1) if active is None else equal[active]
        return bool(equal[conflict.any(axis=0)].all())

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
        cells, own = self._cells(st, index, position, size, active)
        if not cells.size:
            return
        if not self.races:
            self.writer[cells] = own
            return
        for accesses, what in ((self.writer, "writes"), (self.reader, "overwrites")):
            conflict = _others(accesses.take(cells), own)
            if conflict.any():
                conflict &= ~self._by_atomics(accesses.take(cells))
                if conflict.any():
                    self._race(st, index, active, conflict, cells, accesses, what)
        writer = self.writer.take(cells)
        before = (writer ^ own) >> WAVE == 0  # a plain write by this wave stays: atomics of others come behind it, too
        before &= ~self._by_atomics(writer)
        _join(self.writer, cells[~before], own[~before])

    def _by_atomics(self, accesses: np.ndarray) -> np.ndarray:
        """Which of accesses are atomics."""
        lines = self.engine.program.lines
        which, place = np.unique(accesses & (1 << WAVE) - 1, return_inverse=True)
        atomic = [i < len(lines) and _is_atomic(lines[i].inst) for i in which.tolist()]
        return np.array(atomic, bool)[place].reshape(accesses.shape)

    def barrier(self, st: State) -> None:
        """(RACE) What is under way when a wave passes a barrier also happens after it."""
        if not self.races:
            return
        for counter, f in (*(("vmcnt", f) for f in st.vm), *(("lgkmcnt", f) for f in st.lgkm)):
            for part in f.places():
                for epoch in np.unique(st.epoch).tolist():
                    self.carried[epoch + 1, f.index] = counter
                cells, own = self._cells(st, f.index, part.position, part.size, part.active)
                _join(self.reader if f.role == "read" else self.writer, cells, own + (1 << EPOCH))


def _join(accesses: np.ndarray, cells: np.ndarray, own: np.ndarray) -> None:
    """Record accesses of cells; where another wave has accessed one in the same epoch, there were several."""
    shared = _others(accesses.take(cells), own)
    accesses[cells] = np.where(shared, own | MANY << WAVE, own) if shared.any() else own
    after = accesses.take(cells)
    mixed = after != own
    if mixed.any():
        mixed &= after != own | MANY << WAVE
        accesses[cells[mixed]] |= MANY << WAVE


def _others(accesses: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Where the last access was by another wave, in the same epoch."""
    apart = accesses ^ own
    apart >>= WAVE
    apart -= 1  # without sign, the same wave and epoch is now the largest number, and nobody a large one
    return apart.view(np.uint64) < np.uint64(MANY)


def _first_of(marked: np.ndarray, cells: np.ndarray) -> int:
    """The first marked cell of the first lane that has one."""
    lane, k = np.argwhere(marked.T)[0]
    return int(cells[k, lane])


def _is_atomic(inst: Inst | None) -> bool:
    return inst is not None and inst.mem is not None and inst.mem.op == "atomic"
