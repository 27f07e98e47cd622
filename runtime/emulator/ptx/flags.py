"""What strong accesses hand on between the warps of one CTA or cluster, beside barriers.

In: fences, and strong or atomic accesses of shared or global memory in the order in which they are carried out. Out:
the clocks of `Clocks.know`. A lane that has fenced, or knows of another's fence, hands on what had been done
before the fence by whatever strong write comes next (a releasing one fences by itself); a lane whose strong read finds
it knows it once it fences (an acquiring one does at once), other lanes do once they meet it. Both accesses and both
fences have to be of a scope that has the other warp in it: `.cta` ones hand on nothing to other CTAs of a cluster. A
warp that acquires what it has released itself, as lanes do that take a lock in turn, is taken to have told all of its
lanes what they have done themselves.
Between clusters see global_shadow.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.global_page import SEVERAL
from wavedsl.runtime.emulator.ptx.lane_knowledge import by_warp, lanes_of
from wavedsl.runtime.emulator.ptx.shadow import SharedShadow

Array = Any

CTA, CLUSTER, CHIP = 0, 1, 2
"""How far a scope reaches."""
REACH = {"cta": CTA, "cluster": CLUSTER, "gpu": CHIP, "gl": CHIP, "sys": CHIP}
FENCES = 256
"""Fences of a domain that are remembered."""


@dataclass(frozen=True, eq=False)
class Fence:
    """By a warp (its column) at its clock: how far it reaches, what the warp knew, the lanes that fenced (a bit for
    each), the clock up to which they knew of each other, and what each knew alone (None: nothing).
    """

    column: int
    clock: int
    reach: int
    clocks: Array
    lanes: int
    met: int
    alone: Array | None


class Fences:
    """The releasing fences of each domain."""

    def __init__(self, shadow: SharedShadow):
        self.shadow = shadow
        self.made: dict[int, list[Fence]] = {}
        self.any = [False] * (CHIP + 1)

    def add(self, threads: Array, reach: int) -> None:
        """Threads fence."""
        shadow = self.shadow
        rows, lanes = by_warp(threads)
        for row, bits in zip(rows.tolist(), lanes):
            column = int(shadow.own[row])
            fences = self.made.setdefault(row // shadow.warps, [])
            clock, known = int(shadow.know[row, column]), shadow.know[row].copy()
            table = shadow.heard.tables.get(row)
            alone = None if table is None else table.copy()
            fences.append(Fence(column, clock, reach, known, bits, int(shadow.met[row]), alone))
            del fences[:-FENCES]
        for r in range(reach + 1):
            self.any[r] = True
        shadow.advance(rows)

    def released(self, row: int, lanes: int, reach: int) -> Array | None:
        """By column the clock up to which a strong write by lanes of a global warp hands on what was done, so far, or
        None.
        """
        shadow = self.shadow
        own, know, told = int(shadow.own[row]), shadow.know[row], shadow.heard.told(row, lanes)
        if told is not None:
            know = know.copy()
            np.maximum(know[: len(told)], told, out=know[: len(told)])
        out: Array = None
        for fence in self.made.get(row // shadow.warps, ()):
            if fence.reach < reach:
                continue
            if fence.column == own:
                clocks = self._by_lanes(fence, row, lanes)
            else:
                clocks = _fenced(fence) if know[fence.column] >= fence.clock or self._told(fence, know) else None
            if clocks is None:
                continue
            out = _joined(out, clocks)
        return out

    def _told(self, fence: Fence, know: Array) -> bool:
        """Whether who knows these clocks knows of a fence by a lane that has arrived at an mbarrier alone."""
        columns = self.shadow.lane_columns
        return bool(columns) and any(
            fence.lanes >> lane & 1 and know[column] >= fence.clock
            for (warp, lane), column in columns.items()
            if warp == fence.column and lane < 32
        )

    def _by_lanes(self, fence: Fence, row: int, lanes: int) -> Array | None:
        """What lanes of the warp that has fenced hand on: what they fenced themselves, or those whom they have met
        since then.
        """
        shadow = self.shadow
        if fence.clock <= shadow.met[row]:
            lanes = -1
        for clock, members in reversed(shadow.parts.get(row, [])):
            if clock > fence.clock and lanes & members:
                lanes |= members
        lanes &= fence.lanes
        if not lanes:
            return None
        alive = shadow.heard.living()[32 * row : 32 * row + 32]
        if not any(alive[lane] and not lanes >> lane & 1 for lane in range(32)):
            return _fenced(fence)
        each = lanes_of(lanes)
        columns = [shadow.lane_column(fence.column, lane) for lane in (*each, *([SEVERAL] if len(each) > 1 else []))]
        clocks = np.zeros(shadow.columns, np.int32)
        clocks[: len(fence.clocks)] = fence.clocks
        clocks[fence.column] = fence.met
        clocks[columns] = fence.clock
        return _joined(clocks, _fenced(fence, lanes)) if fence.alone is not None else clocks


def _fenced(fence: Fence, lanes: int = 0) -> Array:
    """What the lanes of a fence knew; `lanes`: only what some of them knew alone."""
    if fence.alone is None:
        return fence.clocks
    alone = fence.alone[lanes_of(lanes or fence.lanes)].max(axis=0)
    return alone if lanes else _joined(fence.clocks, alone)


def lanes_by(keys: list[tuple[int, int]], threads: Array) -> dict[tuple[int, int], int]:
    """By key of each access the lanes that made it, a bit for each."""
    out: dict[tuple[int, int], int] = {}
    for key, thread in zip(keys, threads.tolist()):
        out[key] = out.get(key, 0) | 1 << (thread & 31)
    return out


class Flags:
    """Strong accesses of a batch of CTAs."""

    def __init__(self, shadow: SharedShadow, fences: Fences):
        self.shadow, self.fences = shadow, fences
        self.mail: dict[tuple[int, int, int], Array] = {}
        """By reach, CTA or cluster, and place: what has been handed on there."""
        self.seen: dict[tuple[int, int], dict[int, Array]] = {}
        """By global warp and reach: what lanes, a bit for each, have found and not acquired."""

    def access(
        self, places: Array, threads: Array, reach: int, *, reads: bool, writes: bool, acquires: bool
    ) -> None:
        """Strong accesses of places [n] by threads [n], in this order."""
        writes = writes and self.fences.any[CTA]
        if not (writes or (reads and self.mail)):
            return
        keys = list(zip(places.tolist(), (threads >> 5).tolist()))
        lanes = lanes_by(keys, threads)
        # A warp's first access of a place hands on, its last sees most.
        turns = [(i, False, key) for key, i in {k: i for i, k in enumerate(keys)}.items()] if reads else []
        if writes:
            turns += [(i, True, key) for key, i in {k: i for i, k in reversed(list(enumerate(keys)))}.items()]
        for _, hands_on, (place, row) in sorted(turns):
            for near in range(min(reach, CLUSTER) + 1):
                key = near, row // (self.shadow.cta_warps if near == CTA else self.shadow.warps), place
                if hands_on:
                    clocks = self.fences.released(row, lanes[place, row], near)
                    if clocks is not None:
                        self.mail[key] = _joined(self.mail.get(key), clocks)
                elif key in self.mail:
                    by = lanes[place, row]
                    if acquires:
                        self._know(row, by, self.mail[key])
                    else:
                        found = self.seen.setdefault((row, near), {})
                        found[by] = _joined(found.get(by), self.mail[key])

    def acquire(self, threads: Array, reach: int) -> None:
        """Threads fence: what they have found themselves they know."""
        if not self.seen:
            return
        rows, lanes = by_warp(threads)
        for row, bits in zip(rows.tolist(), lanes):
            for near in range(min(reach, CLUSTER) + 1):
                found = self.seen.get((row, near), {})
                for by, clocks in list(found.items()):
                    if by & bits:
                        self._know(row, by & bits, clocks)
                    if not by & ~bits:
                        del found[by]

    def _know(self, row: int, by: int, clocks: Array) -> None:
        self.shadow.learn(32 * row + np.array(lanes_of(by)), clocks)
        # Of its own warp it is another lane's release that a lane has found.
        own = int(self.shadow.own[row])
        lanes = [column for (warp, _), column in self.shadow.lane_columns.items() if warp == own]
        self.shadow.lanes_know(row, max(int(clocks[c]) for c in (own, *lanes) if c < len(clocks)))


def _joined(x: Array | None, y: Array) -> Array:
    """The later of the clocks of each column."""
    if x is None:
        return y
    if len(x) < len(y):
        x, y = y, x
    out = x.copy()
    np.maximum(out[: len(y)], y, out=out[: len(y)])
    return out
