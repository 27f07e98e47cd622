"""What strong accesses hand on between the warps of one CTA or cluster, beside barriers.

In: fences, and strong or atomic accesses of shared or global memory in the order in which they are carried out. Out:
the clocks of `SharedShadow.know`. A warp that has fenced, or knows of a warp's fence, hands on what had been done
before the fence by whatever strong write comes next (a releasing one fences by itself); a warp whose strong read
finds it knows it once it fences (an acquiring one does at once). Both accesses and both fences have to be of a scope
that has the other warp in it: `.cta` ones hand on nothing to other CTAs of a cluster. A warp that acquires what it has
released itself, as lanes do that take a lock in turn, is taken to have told all of its lanes. Between clusters see
global_shadow.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.runtime.emulator.ptx.shadow import SharedShadow

Array = Any

CTA, CLUSTER, CHIP = 0, 1, 2
"""How far a scope reaches."""
REACH = {"cta": CTA, "cluster": CLUSTER, "gpu": CHIP, "gl": CHIP, "sys": CHIP}
FENCES = 256
"""Fences of a domain that are remembered."""


class Fences:
    """The releasing fences of each domain: which warp, when, how far they reach and what it knew."""

    def __init__(self, shadow: SharedShadow):
        self.shadow = shadow
        self.made: dict[int, list[tuple[int, int, int, Array]]] = {}
        self.any = [False] * (CHIP + 1)

    def add(self, rows: Array, reach: int) -> None:
        """Global warps fence."""
        shadow = self.shadow
        for row in rows.tolist():
            column = int(shadow.own[row])
            fences = self.made.setdefault(row // shadow.warps, [])
            fences.append((column, int(shadow.know[row, column]), reach, shadow.know[row].copy()))
            del fences[:-FENCES]
        for r in range(reach + 1):
            self.any[r] = True
        shadow.advance(rows)

    def released(self, row: int, reach: int) -> Array | None:
        """By column the clock up to which a strong write of a global warp hands on what was done, so far, or None."""
        shadow = self.shadow
        own, know = int(shadow.own[row]), shadow.know[row]
        out: Array = None
        for column, clock, far, clocks in self.made.get(row // shadow.warps, ()):
            if far >= reach and (column == own or know[column] >= clock):
                if out is None:
                    out = np.zeros(len(know), np.int32)
                np.maximum(out[: len(clocks)], clocks, out=out[: len(clocks)])
        return out


class Flags:
    """Strong accesses of a batch of CTAs."""

    def __init__(self, shadow: SharedShadow, fences: Fences):
        self.shadow, self.fences = shadow, fences
        self.mail: dict[tuple[int, int, int], Array] = {}
        """By reach, CTA or cluster, and place: what has been handed on there."""
        self.seen: dict[tuple[int, int], Array] = {}
        """By global warp and reach: what it has found and not acquired."""

    def access(self, places: Array, rows: Array, reach: int, *, reads: bool, writes: bool, acquires: bool) -> None:
        """Strong accesses of places [n] by global warps [n], in this order."""
        writes = writes and self.fences.any[CTA]
        if not (writes or (reads and self.mail)):
            return
        keys = list(zip(places.tolist(), rows.tolist()))
        # A warp's first access of a place hands on, its last sees most.
        turns = [(i, False, key) for key, i in {k: i for i, k in enumerate(keys)}.items()] if reads else []
        if writes:
            turns += [(i, True, key) for key, i in {k: i for i, k in reversed(list(enumerate(keys)))}.items()]
        for _, hands_on, (place, row) in sorted(turns):
            for near in range(min(reach, CLUSTER) + 1):
                key = near, row // (self.shadow.cta_warps if near == CTA else self.shadow.warps), place
                if hands_on:
                    clocks = self.fences.released(row, near)
                    if clocks is not None:
                        self.mail[key] = _joined(self.mail.get(key), clocks)
                elif key in self.mail:
                    if acquires:
                        self._know(row, self.mail[key])
                    else:
                        self.seen[row, near] = _joined(self.seen.get((row, near)), self.mail[key])

    def acquire(self, rows: Array, reach: int) -> None:
        """Global warps fence: what they have found they know."""
        if not self.seen:
            return
        for row in rows.tolist():
            for near in range(min(reach, CLUSTER) + 1):
                clocks = self.seen.pop((row, near), None)
                if clocks is not None:
                    self._know(row, clocks)

    def _know(self, row: int, clocks: Array) -> None:
        mine = self.shadow.know[row, : len(clocks)]
        np.maximum(mine, clocks, out=mine)
        # Of its own warp it is another lane's release that it has found.
        self.shadow.lanes_know(row, int(clocks[self.shadow.own[row]]))


def _joined(x: Array | None, y: Array) -> Array:
    """The later of the clocks of each column."""
    if x is None:
        return y
    if len(x) < len(y):
        x, y = y, x
    out = x.copy()
    np.maximum(out[: len(y)], y, out=out[: len(y)])
    return out
