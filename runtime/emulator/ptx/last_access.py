"""The last access of a kind to each granule of shared memory by each agent: when, and by which lane of a warp.

In: accesses of lanes or of agents without lanes. Out: those that whoever comes later does not know of. One number holds
an access, its clock above its lane: agents are apart by column, and of a warp's lanes that have accessed a granule in
one epoch of the warp it is enough to know whether they are one or several, since one of several is another lane than
whoever comes later.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.runtime.emulator.global_page import ANY, LANES, SEVERAL

Array = Any


class LastAccess:
    """`last` [granules, columns], int32: clock << LANES | lane, 0 where there was none."""

    def __init__(self, granules: int, columns: int):
        self.columns = columns
        self.last = np.zeros((granules, columns), np.int32)

    def note(self, g: Array, column: Array, now: Array, met: Array) -> None:
        """Accesses of granules [rows, k] by columns [rows, 1], `now`, whose lanes have met at clocks `met`."""
        flat: Array = self.last.reshape(-1)
        at = g * self.columns + column
        before: Array = flat.take(at)
        flat[at] = now
        several = before > (met << LANES | ANY)
        before ^= now
        before &= ANY
        several &= before != 0
        several |= flat.take(at) != now  # lanes of this instruction
        if several.any():
            flat[at[several]] = flat[at[several]] >> LANES << LANES | SEVERAL

    def put(self, g: Array, column: Array, tick: Array) -> None:
        """The same by agents that have no lanes, at their running numbers [rows]."""
        self.last.reshape(-1)[g * self.columns + column[:, None]] = tick[:, None] << LANES | ANY

    def unseen(self, g: Array, known: Array) -> tuple[Array, Array]:
        """The last accesses [rows, k, columns] of granules, and where those are later than clocks `known` [rows,
        columns].
        """
        last: Array = self.last.take(g, axis=0)
        return last, last > (known << LANES | ANY)[:, None, :]
