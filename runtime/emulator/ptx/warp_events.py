"""What the clock must know of a warp's accesses, worked out of the raw addresses that `trace` kept.

In: visits of blocks. Out: per instruction and warp its events: `("shared", clocks)` with bank conflicts, `("global",
bytes, cache lines, the sectors of each, how many)`, of an atomic that gives nothing back also `changes in turn`, and
`(kind, threads, …)` of mbarriers and bulk copies as recorded. Worked out when first asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from wavedsl.runtime.emulator.cycle_queue import fullest
from wavedsl.runtime.emulator.ptx.machine import Machine, conflicts
from wavedsl.runtime.emulator.ptx.trace import Tracer, Visit

SECTOR = 5
"""Bits of a byte's place in a sector of 32 bytes, which is what is brought; four of them are a cache line."""
WARP = 32


class Events:
    """Events of the warps of a tracer."""

    def __init__(self, tracer: Tracer):
        self.stride, self.first = tracer.stride, tracer.first
        self.known: dict[tuple[int, bytes], int] = {}
        self.split: dict[int, dict[int, dict[int, list[tuple[Any, ...]]]]] = {}

    def rank(self, key: int, first: int) -> int:
        """Workgroup of a cluster in whose shared memory an mbarrier lies."""
        return key // self.stride - first

    def of(self, visit: Visit, pc: int, warp: int) -> Sequence[tuple[Any, ...]]:
        """The events of one warp at an instruction."""
        raw = visit.get(pc)
        if raw is None:
            return ()
        known = self.split.setdefault(id(visit), {})
        found = known.get(pc)
        if found is None:
            found = known[pc] = {}
            for event in raw:
                if event[0] == "signal":
                    found.setdefault(event[1], []).append(event[2:])
                else:
                    self._accesses(found, *event)
        return found.get(warp, ())

    def _accesses(self, found: dict[int, list[tuple[Any, ...]]], space: str, width: int, at: Any, lanes: Any) -> None:
        warps = lanes >> 5
        starts = np.flatnonzero(np.concatenate(([True], warps[1:] != warps[:-1])))
        for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(warps)]):
            mine = at[first:last]
            if space in ("shared", "atomic"):
                event: tuple[Any, ...] = ("shared", self._shared(width, mine, space == "atomic"))
            else:
                event = ("global", width * len(mine), *lines_of(np.unique(mine >> SECTOR).tolist()))
                if space == "changes":
                    event = (*event, fullest(mine >> 2, SECTOR - 2)[0])
            found.setdefault(int(warps[first]), []).append(event)

    def _shared(self, width: int, offsets: Any, atomic: bool) -> int:
        """Clocks of one warp's access: the phases in which its lanes are served, and conflicts beyond."""
        relative = (offsets - (int(offsets[0]) & ~127)).astype(np.int32)
        key = (-width if atomic else width, relative.tobytes())
        clocks = self.known.get(key)
        if clocks is None:
            clocks = self.known[key] = shared_clocks(width, offsets, atomic)
        return clocks


def lines_of(sectors: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """(cache lines, the sectors of each that are meant, a bit each, how many these are) of different sectors."""
    lines: dict[int, int] = {}
    for s in sectors:
        lines[s >> 2] = lines.get(s >> 2, 0) | 1 << (s & 3)
    return tuple(lines), tuple(lines.values()), len(sectors)


def shared_clocks(width: int, offsets: Any, atomic: bool = False) -> int:
    """Clocks that one warp's access of `width` bytes at byte offsets [lane] keeps shared memory busy. `atomic`: it is
    one that changes memory.

    Wide accesses whose lanes agree in pairs (each lane with its neighbour, or each with the lane two further) are
    served once per pair: NVIDIA's answer in its developers' forum (topic 77228), of compute capability 7.
    """
    if width > 4 and len(offsets) == WARP and not atomic:
        lanes = np.arange(WARP)
        for bit in (1, 2):
            if (offsets == offsets[lanes ^ bit]).all():
                offsets = offsets[(lanes & bit) == 0]
                break
    n = len(offsets)
    warps = np.zeros(n, np.int64)
    phases = -(-n // (32 if width <= 4 else 128 // width))
    return phases + conflicts(offsets, width, warps, Machine.lane_count(warps), atomic)
