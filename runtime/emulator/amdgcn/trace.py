"""What some waves of an emulated run executed: the raw material of the cycle model.

In: the emulator's blocks as they run, addresses of memory instructions. Out: a `WaveTrace` per recorded wave.

The one idea: the order of instructions of a wave is a list of basic blocks, and all that the clock must know of data is
one number or a few cache lines per memory instruction, so a trace is small and is replayed without executing anything.
Only as many workgroups are recorded as fit on one compute unit; they are spread evenly over the grid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.runtime.emulator.amdgcn.state import LANES, State
from wavedsl.runtime.emulator.cycle_queue import STORED, fullest

MAX_RECORDED = 4
"""Workgroups that are recorded at most; more that share a compute unit repeat them."""


class WaveTrace:
    """One wave: `blocks` are numbers of first instructions, in order; `events` one entry per memory instruction.

    An LDS access adds the clocks that it keeps LDS busy (one entry per address of two-address forms); an access of
    global or scratch memory a tuple (bytes, cache lines), of an atomic that gives nothing back (…, changes in turn).
    """

    __slots__ = ("blocks", "events", "serial")

    def __init__(self, serial: int = 0) -> None:
        self.serial = serial
        """Tells the scratch memory of this wave from that of others."""
        self.blocks: list[int] = []
        self.events: list[Any] = []


class Tracer:
    """Records the waves of the chosen workgroups (by linear id)."""

    def __init__(self, groups: list[int], waves: int, line: int):
        self.groups = {g: [WaveTrace(waves * k + w) for w in range(waves)] for k, g in enumerate(groups)}
        self.line = line.bit_length() - 1
        self.changed: set[int] = set()
        """Lines of `changes`."""
        self.batch: dict[int, int] = {}
        """Place in the running batch → linear id, recorded workgroups only."""

    def new_batch(self, groups: np.ndarray) -> None:
        self.batch = {i: g for i, g in enumerate(groups.tolist()) if g in self.groups}

    def of(self, st: State) -> list[tuple[int, WaveTrace]]:
        """The recorded waves of a group of waves, with their place in it."""
        found = st.trace
        if found is None:
            batch, groups = self.batch, self.groups
            found = st.trace = (
                [
                    (i, groups[batch[g]][w])
                    for i, (g, w) in enumerate(zip(st.wg.tolist(), st.wave.tolist()))
                    if g in batch
                ]
                if batch
                else []
            )
        return found

    def enter(self, st: State, first: int) -> None:
        """The group runs the block at `first`."""
        for _, trace in self.of(st):
            trace.blocks.append(first)

    def changes(self, st: State, at: np.ndarray, active: Any, size: int) -> None:
        """The group changes `size` bytes per active lane at byte addresses `at` [wave, lane] by atomics that give
        nothing back: their events say as well how many changes of words wait for each other."""
        for i, trace in self.of(st):
            lanes = at[i] if active is None else at[i][active[i]]
            if lanes.size:
                turns, lines = fullest(lanes >> 2, self.line - 2)
                self.changed.update(lines.tolist())
                trace.events.append((lanes.size * size, tuple(lines.tolist()), turns))
            else:
                trace.events.append((0, (), 0))

    def global_access(self, st: State, at: np.ndarray, active: Any, size: int, stores: bool = False) -> None:
        """The group accesses `size` bytes per active lane at byte addresses `at` [wave, lane]."""
        more = STORED if stores else 0
        for i, trace in self.of(st):
            lanes = at[i] if active is None else at[i][active[i]]
            if lanes.size:
                first, last = lanes >> self.line, (lanes + (size - 1)) >> self.line
                lines = {*first.tolist(), *last.tolist()} if (first != last).any() else set(first.tolist())
                trace.events.append((lanes.size * size, tuple(x + more for x in sorted(lines))))
            else:
                trace.events.append((0, ()))

    def scratch_access(self, st: State, at: np.ndarray, active: Any, size: int) -> None:
        """The same for scratch: its dwords are interleaved over the lanes, so a wave's dword is LANES * 4 bytes."""
        for i, trace in self.of(st):
            lanes = at[i] if active is None else at[i][active[i]]
            words = sorted(set((lanes >> 2).tolist()))
            span = max(1, LANES * 4 >> self.line)
            wave = trace.serial
            lines = tuple(
                -1 - (wave << 24 | (w + k) * span + j)
                for w in words
                for k in range(-(-size // 4))
                for j in range(span)
            )
            trace.events.append((lanes.size * size, lines))
