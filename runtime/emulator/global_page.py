"""The granules of a stretch of global memory: who wrote each last, and who has read it since.

In: accesses, by codes. Out: the codes of those whom whoever comes next has to know of. A code is an access's domain +
1, column and time in one int64; 0: nobody. Where lanes of a wave are told apart (`Order.lane_bits`), the last bits of
a time are the lane; of several lanes that have read a granule since their wave's lanes met, it is enough to know that
they were several, since one of them is another lane than whoever comes next.

Of readers the last `READERS` are at hand for each granule, and beside them one of another domain than the last: however
many waves of a workgroup have read what it then writes, who has read it elsewhere is not forgotten. Of still more
those are kept, in a list, that somebody of their domain does not know of yet (`Order.settled`); there are few where
waves meet at barriers, and it is looked through only when such a granule is written.

Reads of a page are kept as they come, and looked at when somebody writes to it, so arrays that a kernel only reads cost
little.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

Array = Any

DOMAIN, COLUMN = 44, 32
"""First bits of the domain and the column in a code; the time is below."""
COLUMNS = 1 << (DOMAIN - COLUMN)
DOMAINS = (1 << 63 - DOMAIN) - 1
TIME = (1 << COLUMN) - 1
MANY = COLUMNS - 1
"""The column of waves of one domain that wrote the same value at once."""
LANES = 6
"""Bits for a lane in a time: 0 to 31, or"""
ANY = (1 << LANES) - 1
"""none: an agent that has no lanes, or all that matters of the wave, or"""
SEVERAL = ANY - 1
"""several lanes."""
READERS = 4
"""Waves that have read a granule, the last ones, that are at hand."""
KEPT = 1 << 21
"""Granules read that a page keeps before it looks at them."""
CROWD = 1 << 22
"""Readers in the list; beyond that the oldest go."""


class Order(Protocol):
    """What a page asks about the order of accesses."""

    lane_bits: int
    """The bits of a time that tell lanes: `ANY`, or 0 where lanes of a wave need no order."""

    def settled(self, codes: Array) -> Array:
        """Which accesses the whole domain knows of, or nobody of it can come after."""

    def lanes_met(self, codes: Array) -> Array:
        """Which accesses all lanes of their wave know of."""


class Page:
    """The granules of a stretch of one array: codes and instructions of accesses."""

    def __init__(self, low: int, high: int, granule: int, order: Order):
        """Of addresses [low, high)."""
        self.low, self.high, self.granule, self.order = low, high, granule, order
        self.shift = granule.bit_length() - 1
        self.first = low // granule
        self.size = -(-high // granule) - self.first
        self.write_code: Array = None
        """int64 per granule, None while nobody has written to the page."""
        self.write_inst: Array = None
        self.atomic: Array = None
        self.lane: Array = None
        self.write_lanes: Array = None
        """A bit for each lane of the last write, where that was by several."""
        self.readers: list[Array] = []
        """Codes of the last readers, the very last first, then one of another domain than that: as many as were needed,
        int64 per granule."""
        self.read_inst: Array = None
        self.still: Array = None
        """The instruction + 1 that has read a granule as memory that no launch changes while it runs, int32."""
        self.crowded: Array = None
        """Whether a granule has readers in the list."""
        self.crowd: list[tuple[Array, Array]] = []
        """Granules and codes of readers beyond those at hand."""
        self.by_lane = False
        """Whether readers' codes name lanes."""
        self.kept: list[tuple[Array, Array, Array, Array, int, int]] = []
        self.count = 0

    def cells(self, addresses: Array, size: int) -> Array:
        """Granule numbers [rows, k] of accesses of `size` bytes."""
        return self._spread((addresses >> self.shift) - self.first, size >> self.shift)

    def _spread(self, first: Array, k: int) -> Array:
        return first[:, None] if k <= 1 else np.minimum(first[:, None] + np.arange(k), self.size - 1)

    # ------------------------------------------------------------------------------------------------ readers

    def keep(self, addresses: Array, size: int, rows: Array, table: Array, inst: int, lanes: Array = None) -> None:
        """Remember reads by rows, whose codes are in `table`; they are looked at later. `lanes`: numbers whose last
        bits are the lane.
        """
        k = max(1, size >> self.shift)
        self.kept.append((((addresses >> self.shift) - self.first).astype(np.int32), rows, table, lanes, k, inst))
        self.count += k * len(rows)
        if self.count > KEPT:
            self.look()

    def look(self) -> None:
        """Bring the readers of each granule up to date."""
        if not self.kept:
            return
        if not self.readers:
            self.readers.append(np.zeros(self.size, np.int64))
            self.read_inst = np.zeros(self.size, np.int32)
        where, who, what = [], [], []
        for first, rows, table, lanes, k, inst in self.kept:
            cells = self._spread(first, k).reshape(-1)
            where.append(cells)
            codes = self._codes(rows, table, lanes)
            who.append(codes if k == 1 else np.repeat(codes, k))
            what.append(np.full(len(cells), inst, np.int32))
        self.kept, self.count = [], 0
        cells, codes = np.concatenate(where), np.concatenate(who)
        self.read_inst[cells] = np.concatenate(what)
        for number in range(READERS):
            cells, codes = self._remember(number, cells, codes)
            if not len(cells):
                return
        far = (codes ^ self.readers[0].take(cells)) >> DOMAIN != 0
        if far.any():
            self._reader(READERS)[cells[far]] = codes[far]
        self._crowd_in(cells, codes)

    def _codes(self, rows: Array, table: Array, lanes: Array) -> Array:
        """Codes of reads, with lanes where a wave's have not met since."""
        if lanes is None:
            return table.take(rows)
        met = self.order.lanes_met(table)
        if met.all():
            return (table | ANY).take(rows)
        self.by_lane = True
        codes = np.where(met, table | ANY, table).take(rows)
        codes |= lanes & 31
        return codes

    def _remember(self, number: int, cells: Array, codes: Array) -> tuple[Array, Array]:
        """Put readers in place `number` of granules, the later in front; those who have no place there and are in none
        before it."""
        slot = self._reader(number)
        before = slot.take(cells)
        slot[cells] = codes
        after = slot.take(cells)
        moved = before != 0
        if self.by_lane:
            if moved.any():
                self._mark_lanes(slot, cells, before, after, False)
            if (after != codes).any():
                self._mark_lanes(slot, cells, codes, after, True)
        moved &= (before ^ after) >> COLUMN != 0
        lost = (after ^ codes) >> COLUMN != 0
        if not (moved.any() or lost.any()):
            return cells[:0], codes[:0]
        # The later of the same wave stay behind the earlier: the last of them is what remains.
        cells, codes = np.concatenate([cells[moved], cells[lost]]), np.concatenate([before[moved], codes[lost]])
        for earlier in self.readers[:number]:
            there = earlier.take(cells)
            new = (there ^ codes) >> COLUMN != 0
            if not new.all():
                if self.by_lane:
                    self._mark_lanes(earlier, cells, codes, there, False)
                cells, codes = cells[new], codes[new]
        return cells, codes

    def _mark_lanes(self, slot: Array, cells: Array, codes: Array, there: Array, fresh: bool) -> None:
        """Readers of which another lane of the same wave is in a place, `there`, with no meeting of its lanes since:
        the place is by several. `fresh`: codes of this moment, which have no lane where their wave's have met.
        """
        differ = codes ^ there
        several = (differ >> COLUMN == 0) & (differ & ANY != 0) & (codes & ANY != ANY)
        if not fresh and several.any():
            at = np.flatnonzero(several)
            several[at[self.order.lanes_met(codes[at])]] = False
        if several.any():
            slot[cells[several]] = slot[cells[several]] >> LANES << LANES | SEVERAL

    def _reader(self, number: int) -> Array:
        """The codes of the readers in place `number`."""
        while len(self.readers) <= number:
            self.readers.append(np.zeros(self.size, np.int64))
        return self.readers[number]

    def _crowd_in(self, cells: Array, codes: Array) -> None:
        """Readers that have no place at hand: those that somebody of their domain does not know of."""
        left = ~self.order.settled(codes)
        if not left.any():
            return
        cells, codes = cells[left], codes[left]
        if self.crowded is None:
            self.crowded = np.zeros(self.size, np.bool_)
        self.crowded[cells] = True
        self.crowd.append((cells.astype(np.int32), codes))
        if sum(len(c) for c, _ in self.crowd) > CROWD:
            self._thin()
            while sum(len(c) for c, _ in self.crowd) > CROWD // 2:
                self.crowd.pop(0)

    def _thin(self) -> None:
        """Drop from the list whom everybody knows of by now."""
        left = []
        for cells, codes in self.crowd:
            keep = ~self.order.settled(codes)
            if keep.any():
                left.append((cells[keep], codes[keep]))
        self.crowd = left
        self.crowded[:] = False
        for cells, _ in left:
            self.crowded[cells] = True

    def more_readers(self, cells: Array) -> list[tuple[Array, Array]]:
        """Beyond those at hand, readers of granules [rows, k]: positions in `cells`, flat, and their codes."""
        if self.crowded is None or not self.crowded.take(cells).any():
            return []
        self._thin()
        out = []
        flat = cells.reshape(-1)
        number = np.full(self.size, -1, np.int32)
        number[flat] = np.arange(len(flat), dtype=np.int32)
        for where, codes in self.crowd:
            at: Array = number.take(where)
            hit = np.flatnonzero(at >= 0)
            if len(hit):
                out.append((at[hit], codes[hit]))
        return out

    # ------------------------------------------------------------------------------------------------ writers

    def written(self) -> None:
        """Make room for writers."""
        if self.write_code is None:
            self.write_code = np.zeros(self.size, np.int64)
            self.write_inst = np.zeros(self.size, np.int32)
            self.atomic = np.zeros(self.size, np.bool_)
            self.lane = np.zeros(self.size, np.int32)

    def stays(self, cells: Array, inst: int) -> None:
        """An instruction reads granules as memory that does not change."""
        if self.still is None:
            self.still = np.zeros(self.size, np.int32)
        self.still[cells] = inst + 1

    def refine(self) -> None:
        """Track single bytes from here on."""
        self.look()
        skip = self.low - self.first * self.granule
        for name in ("write_code", "write_inst", "atomic", "lane", "write_lanes", "read_inst", "still", "crowded"):
            old = getattr(self, name)
            if old is not None:
                setattr(self, name, np.repeat(old, self.granule)[skip:])
        self.readers = [np.repeat(x, self.granule)[skip:] for x in self.readers]
        if self.crowd:
            own = np.arange(self.granule, dtype=np.int32) - skip
            for at, (cells, codes) in enumerate(self.crowd):
                cells, codes = (cells[:, None] * self.granule + own).reshape(-1), np.repeat(codes, self.granule)
                self.crowd[at] = cells[cells >= 0], codes[cells >= 0]
        self.first, self.size = self.low, self.size * self.granule - skip
        self.granule, self.shift = 1, 0
