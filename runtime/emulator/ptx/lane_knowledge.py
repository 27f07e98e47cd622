"""What single lanes of a warp know of others, beyond what the whole warp knows.

In: what some lanes of a warp have acquired (a phase of an mbarrier, a release, the end of a bulk store, a fence between
proxies) while others of the warp have not. Out: whether a lane knows of an access, and what it may hand on. Each such
warp has a table of clocks, a row for each lane; it ends when the warp knows all that is in it, because its lanes have
met or each of them has acquired it. So programs whose warps wait as one have no tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any


def by_warp(threads: Array) -> tuple[Array, list[int]]:
    """The global warps of threads, and of each the lanes, a bit for each."""
    rows, at = np.unique(threads >> 5, return_inverse=True)
    bits = np.zeros(len(rows), np.int64)
    np.bitwise_or.at(bits, at.reshape(-1), np.int64(1) << (threads & 31))
    return rows, bits.tolist()


def lanes_of(bits: int) -> list[int]:
    """The lanes that a word has a bit for."""
    return [lane for lane in range(32) if bits >> lane & 1]


class LaneKnowledge:
    """`tables`: by global warp the clocks [32, columns] of its lanes; columns are those of `Clocks.know`.
    `living`: gives the threads that have not ended.
    """

    def __init__(self, living: Callable[[], Array]):
        self.living = living
        self.tables: dict[int, Array] = {}

    def table(self, warp: int, columns: int) -> Array:
        """That of a warp, with so many columns."""
        table = self.tables.get(warp)
        if table is None or table.shape[1] < columns:
            wider = np.zeros((32, columns), np.int32)
            if table is not None:
                wider[:, : table.shape[1]] = table
            table = self.tables[warp] = wider
        return table

    def parted(self, threads: Array) -> tuple[Array, list[tuple[int, int]]]:
        """Warps whose living lanes are all among threads, and the others with their lanes, a bit for each."""
        rows, bits = by_warp(threads)
        alive: Array = self.living().reshape(-1, 32)[rows].sum(axis=1)
        whole = [bit.bit_count() >= count for bit, count in zip(bits, alive.tolist())]
        parts = [(row, bit) for row, bit, all_ in zip(rows.tolist(), bits, whole) if not all_]
        return rows[np.array(whole, np.bool_)], parts

    def learn(self, warp: int, lanes: int, clocks: Array, columns: int) -> None:
        """Some lanes of a warp acquire clocks."""
        rows = lanes_of(lanes)
        table = self.table(warp, columns)
        table[rows, : len(clocks)] = np.maximum(table[rows, : len(clocks)], clocks)

    def common(self, warp: int) -> Array:
        """What each living lane of a warp knows."""
        alive = self.living()[32 * warp : 32 * warp + 32]
        table = self.tables[warp]
        return table[alive].min(axis=0) if alive.any() else table.max(axis=0)

    def told(self, warp: int, lanes: int = -1) -> Array | None:
        """What some lanes of a warp know between them (-1: all of them), None where the warp knows all of it."""
        table = self.tables.get(warp)
        return None if table is None else table[lanes_of(lanes)].max(axis=0)

    def meet(self, warp: int, lanes: int) -> None:
        """Some lanes of a warp tell each other all that they know."""
        table = self.tables.get(warp)
        if table is not None:
            rows = lanes_of(lanes)
            table[rows] = table[rows].max(axis=0)

    def at(self, warps: Array, lanes: Array, columns: Array) -> Array:
        """The clocks of columns [n] that lanes [n] of warps [n] know, 0 where their warp has no table."""
        out = np.zeros(len(warps), np.int32)
        for warp, table in self.tables.items():
            on = np.flatnonzero(warps == warp)
            on = on[columns[on] < table.shape[1]]
            out[on] = table[lanes[on], columns[on]]
        return out
