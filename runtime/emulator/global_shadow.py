"""What is known about every piece of global memory: who wrote it last, who read it since, and who knows of that.

In: accesses and fences of either emulator. Out: `Clash`es, accesses that nothing orders: one of them writes, the other
is by another wave, and neither synchronises with the other. The idea is that of the shadow of shared memory: waves have
clocks, a *granule* (the smallest access of the program) remembers the last write and some of the last reads with the
clock of who made them, and an access is in order when its wave knows that clock. A *domain* is what meets at barriers,
a workgroup or a cluster; how its waves know each other is the vendor's (`Agents`).

Domains know of each other through memory alone. An access that is atomic, or strong (`relaxed`, `acquire`, `sc1`, …),
at an address hands on what its wave has released (by a fence of the chip's scope) to whoever accesses the address so
after it and then acquires (by such a fence; in PTX, of the same thread). So a missing fence between the parts of a sum
and the workgroup that adds them is a clash, although no cache is modelled.

Not reported, since the numbers are the same in any order or the habit is harmless: writes that leave memory as it was,
strong reads, atomics among each other, and, in programs that compare and swap, ordinary reads of what atomics change.

Lanes of a wave are in order on AMD's chips, where it executes an instruction for all of them at once. In PTX they are
threads like others: what one has written another may read, or write again, behind a meeting of both. Memory that is
read through a cache that sees no writes must not be written by the launch: before such a read on any chip, and where
the instruction promises that it stays (`.nc`), not after it either.

Memory is cut into pages that are made when they are touched, see global_page.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any, Protocol

import numpy as np
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.global_page import (
    ANY,
    COLUMN,
    DOMAIN,
    LANES,
    MANY,
    SEVERAL,
    TIME,
    Order,
    Page,
)
from wavedsl.runtime.emulator.memory import GlobalMemory

Array = Any

PAGE = 26
"""Bits of an address within a page: no array is as near to another."""


class Agents(Order, Protocol):
    """The waves of a batch, by *rows*: how an emulator tells who knows whom. Where lanes matter, times have a lane in
    their last bits; those that come from here have 0 there, and those up to which somebody knows something `ANY`.
    """

    def table(self) -> Array:
        """Domain, column and time of every row (int64), as of now."""

    def codes(self, rows: Array) -> Array:
        """The same of some rows."""

    def known(self, rows: Array, columns: Array) -> Array:
        """The time of a column of its domain up to which each row knows what that one did, of its own column what all
        lanes of it know (int64).
        """

    def lanes_told(self, rows: Array, codes: Array, theirs: Array) -> Array | None:
        """Which accesses `theirs` of their domain that rows, of these `codes`, do not know of as waves, they know of by
        lanes (None: none).
        """

    def releases(self) -> bool:
        """Whether anybody of the batch has released anything."""

    def released(self, row: int, lanes: int) -> Array | None:
        """By column of the domain the time up to which a strong access by lanes of `row`, a bit for each, hands on what
        was done, or None.
        """

    def lane_column(self, code: int) -> int | None:
        """The column for what single lanes have told of an access, where there is one."""


@dataclass(frozen=True)
class Clash:
    """The access (position in the given arrays) that is out of order, what it does and where, and the other one's
    instruction.
    """

    position: int
    what: str
    address: int
    other: int


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What a wave may know of other domains: by domain the clocks of its columns. Of each content there is one."""

    clocks: dict[int, Array]
    key: frozenset[tuple[int, bytes]]

    def covers(self, code: int, column: int | None = -1) -> bool:
        """Whether that includes what `code` stands for, by its own column or by another one, if any."""
        clocks = self.clocks.get(code >> DOMAIN)
        column = code >> COLUMN & MANY if column == -1 else column
        if clocks is None or column is None:
            return False
        return column == MANY or (column < len(clocks) and int(clocks[column]) >= code & TIME)


NOTHING = Knowledge({}, frozenset())
EVERY = (1 << 32) - 1
"""All lanes, a bit for each."""


@dataclass(frozen=True)
class Event:
    """A wave (column and clock of its domain) has seen what was released, by an access of this instruction, or has
    acquired it."""

    column: int
    clock: int
    what: Knowledge
    instruction: int
    lanes: int = EVERY
    """Which lanes of it, a bit for each."""


@dataclass(eq=False)
class Log:
    """What waves of a domain have seen of others, what they have acquired of that, and what of that they have fenced
    between the proxies of PTX.
    """

    observed: list[Event] = field(default_factory=list)
    acquired: list[Event] = field(default_factory=list)
    fenced: list[Event] = field(default_factory=list)


class GlobalShadow:
    """Global memory of one launch. `granule`: bytes of the smallest access of the program; it becomes 1 at the first
    access that is not aligned to it. `swaps`: whether the program compares and swaps.
    """

    def __init__(self, memory: GlobalMemory, agents: Agents, granule: int, swaps: bool):
        self.memory, self.agents, self.granule, self.swaps = memory, agents, granule, swaps
        self.pages: dict[int, Page] = {}
        self.dirty = False
        """Whether anybody has written anything."""
        self.mail: dict[int, Knowledge] = {}
        """Address → what strong accesses there have handed on."""
        self.logs: dict[int, Log] = {}
        self._known: dict[frozenset[tuple[int, bytes]], Knowledge] = {NOTHING.key: NOTHING}
        self._sums: dict[tuple[int, int], Knowledge] = {}

    # ------------------------------------------------------------------------------------------------ accesses

    def read(
        self, addresses: Array, size: int, rows: Array, inst: int, *, strong: bool = False, cache: str = "",
        stays: bool = False, near: bool = False, by: Array | None = None, keep: bool = True, lanes: Array | None = None,
    ) -> Clash | None:  # fmt: skip
        """Reads of `size` bytes at addresses [n] by rows [n]. `cache`: the one that serves them, if that sees no writes
        of this launch, which with `stays` must not come later either. `near`: strong within the domain only. Not to
        `keep`: only looked at, their end comes later. `by`: codes of agents that read for the rows, as bulk copies do
        (a code of 0 leaves no trace). `lanes`: numbers whose last five bits are the lane.
        """
        found = None
        for page, part in self.parts(addresses, size):
            at, row, lane = _part(part, addresses, rows, lanes)
            if page.write_code is not None and (near or not strong) and found is None:
                cells, codes = page.cells(at, size), self._codes(row, lane)
                writer = page.write_code.take(cells)
                bad = self._unordered(writer, codes, row)
                if bad is not None and near:
                    bad &= _elsewhere(writer, codes)
                if bad is not None and self.swaps:
                    bad &= ~page.atomic.take(cells)
                if bad is not None and page.write_lanes is not None:
                    bad &= ~_wrote_too(page, cells, writer, codes)
                say = "reads what {} wrote, and nothing orders the two:"
                if cache and (bad is None or not bad.any()) and (writer != 0).any():
                    bad, say = writer != 0, f"reads through {cache}, which does not see it, what {{}} wrote:"
                found = self.clash(page, cells, bad, part, writer, codes, say, page.write_inst)
            if stays:
                page.stays(page.cells(at, size), inst)
            if not keep:
                continue
            if by is not None:
                codes = by if part is None else by[part]
                traced = np.flatnonzero(codes)
                page.keep(at[traced], size, traced, codes, inst)
            elif not strong:
                page.keep(at, size, row, self.agents.table(), inst, lane if self.agents.lane_bits else None)
        return found

    def write(
        self, addresses: Array, size: int, rows: Array, inst: int, *, words: Array | None = None, atomic: bool = False,
        strong: bool = False, near: bool = False, by: Array | None = None, lanes: Array | None = None,
    ) -> Clash | None:  # fmt: skip
        """Writes of `size` bytes at addresses [n] by rows [n], before memory changes. `words` [k, n]: what is written
        (None: not known). Atomics and strong writes are in order among each other, `near` ones in their domain. `by`:
        codes of agents that write for the rows, as bulk copies do, in no order among themselves. `lanes`: see `read`.
        """
        found = None
        self.dirty = True
        mild = atomic or strong
        for page, part in self.parts(addresses, size):
            at, row, lane = _part(part, addresses, rows, lanes)
            put = words if words is None or part is None else words[:, part]
            page.look()
            page.written()
            cells = page.cells(at, size)
            codes = self._codes(row, lane)
            writer = page.write_code.take(cells)
            over = self._unordered(writer, codes, row)
            if over is not None and mild:
                mildly = page.atomic.take(cells)
                over &= ~(mildly & ~_elsewhere(writer, codes) if near else mildly)
            readers = [] if strong or (atomic and self.swaps) else self._late_readers(page, cells, codes, row)
            still = None if page.still is None else page.still.take(cells) != 0
            stay = None
            if put is not None and (over is not None or readers or (still is not None and still.any())):
                same = self._same(at, size, put)
                if same.any():
                    if over is not None:
                        stay = over & same[:, None] & _others(writer, codes)
                    for bad in (over, still, *(bad for _, bad in readers)):
                        if bad is not None:
                            bad &= ~same[:, None]
            if found is None:
                say = "overwrites what {} wrote, and nothing orders the two:"
                found = self.clash(page, cells, over, part, writer, codes, say, page.write_inst)
            say = "overwrites what {} reads, and nothing orders the two:"
            for theirs, bad in readers:
                if found is None:
                    found = self.clash(page, cells, bad, part, theirs, codes, say, page.read_inst)
            if found is None and still is not None:
                say = "overwrites what an instruction reads as memory that stays as it is (.nc, constant):"
                found = self.clash(page, cells, still, part, writer, codes, say, page.still - 1)
            whose = codes if by is None else by if part is None else by[part]
            broad = np.broadcast_to(whose[:, None], cells.shape)
            if stay is None:
                page.write_code[cells] = broad
            else:
                page.write_code[cells[~stay]] = broad[~stay]
            page.write_inst[cells] = inst
            page.atomic[cells] = mild
            if not mild or near or self.agents.lane_bits:
                clash = self._at_once(page, cells, codes, at, size, put, part, near, mild)
                found = clash if found is None else found
        return found

    def _codes(self, rows: Array, lanes: Array | None) -> Array:
        codes = self.agents.codes(rows)
        if lanes is not None and self.agents.lane_bits:
            codes |= lanes & 31
        return codes

    def _late_readers(self, page: Page, cells: Array, codes: Array, rows: Array) -> list[tuple[Array, Array]]:
        """Readers [rows, k] of granules that rows of these codes do not know of, and where."""
        out = []
        for slot in page.readers:
            readers = slot.take(cells)
            late = self._unordered(readers, codes, rows)
            if late is not None:
                out.append((readers, late))
        for at, theirs in page.more_readers(cells):
            row = at // cells.shape[1]
            late = self._late(theirs, codes[row], rows[row])
            if late.any():
                readers, where = np.zeros(cells.size, np.int64), np.zeros(cells.size, np.bool_)
                readers[at[late]], where[at[late]] = theirs[late], True
                out.append((readers.reshape(cells.shape), where.reshape(cells.shape)))
        return out

    def changed(self, addresses: Array, size: int, rows: Array, words: Array) -> Clash | None:
        """Of reads that began a while ago and end now those that do not find `words` [k, n], what they found then."""
        for page, lanes in self.parts(addresses, size):
            if page.write_code is None:
                continue
            at, row = (addresses, rows) if lanes is None else (addresses[lanes], rows[lanes])
            other = ~self._same(at, size, words if lanes is None else words[:, lanes])
            if other.any():
                cells = page.cells(at, size)
                say = "still reads what {} has overwritten, since nobody has waited for the copy in between:"
                bad = np.broadcast_to(other[:, None], cells.shape)
                codes = self.agents.codes(row)
                return self.clash(page, cells, bad, lanes, page.write_code.take(cells), codes, say, page.write_inst)
        return None

    def _at_once(
        self, page: Page, cells: Array, codes: Array, at: Array, size: int, words: Array | None, part: Array,
        near: bool, mild: bool,
    ) -> Clash | None:  # fmt: skip
        """Lanes of one instruction that write to one place: their values should agree, but those of atomic and strong
        writes (`mild`); `near` ones are strong in their domain, and should have their places alone among domains.
        """
        first, number = cells[:, 0], np.arange(len(cells), dtype=np.int32)
        page.lane[first] = number
        winner = page.lane.take(first)
        lost = np.flatnonzero(winner != number)
        if not len(lost):
            return None
        winner = winner[lost]
        if self.agents.lane_bits:
            self._by_several(page, cells, codes, lost[(codes[lost] ^ codes[winner]) >> COLUMN == 0], mild)
        if mild and not near:
            return None
        if near:
            far = (codes[lost] ^ codes[winner]) >> DOMAIN != 0
            lost, winner = lost[far], winner[far]
        differ = (codes[lost] ^ codes[winner]) >> COLUMN != 0
        if differ.any():
            elsewhere = (codes[lost] ^ codes[winner]) >> DOMAIN != 0
            page.write_code[cells[lost[differ]]] |= MANY << COLUMN
            page.write_code[cells[lost[elsewhere]]] = 0
        if words is None and not near:
            return None
        clash = np.ones(len(lost), np.bool_) if words is None else ~_equal(words[:, lost], words[:, winner], size)
        if not clash.any():
            return None
        i = int(np.argmax(clash))
        position = int(lost[i])
        who = _who(int(codes[lost[i]]), int(codes[winner[i]]), self.agents.lane_bits)
        what = f"writes {f'where {who} does' if near else f'another value than {who}'}, and nothing orders the two:"
        return Clash(position if part is None else int(part[position]), what, int(at[position]), -1)

    def _by_several(self, page: Page, cells: Array, codes: Array, lost: Array, mild: bool) -> None:
        """Other lanes of the writers' waves, `lost`, have written to their places. What they wrote, one value, each of
        them may read, but not what they changed one after the other.
        """
        places = cells[lost].reshape(-1)
        places = places[(page.write_code.take(places) ^ np.repeat(codes[lost], cells.shape[1])) >> COLUMN == 0]
        if not len(places):
            return
        page.write_code[places] = page.write_code[places] >> LANES << LANES | SEVERAL
        if page.write_lanes is None:
            page.write_lanes = np.zeros(page.size, np.uint32)
        page.write_lanes[places] = 0
        if not mild:
            among = page.write_code.take(cells) & ANY == SEVERAL
            bits = np.broadcast_to((np.uint32(1) << (codes & 31).astype(np.uint32))[:, None], cells.shape)
            np.bitwise_or.at(page.write_lanes, cells[among], bits[among])

    def _same(self, at: Array, size: int, words: Array) -> Array:
        """Which writes leave memory as it is."""
        old, fault = self.memory.load(at, size)
        same = _equal(old, words, size)
        return same if fault is None else same | fault.mask

    # ------------------------------------------------------------------------------------------------ order

    def _unordered(self, before: Array, codes: Array, rows: Array) -> Array | None:
        """Where [rows, k] an earlier access (codes [rows, k]) is by another wave, or lane, that the row does not know
        to have made it; None: nowhere.
        """
        if not before.any():
            return None
        apart: Array = before ^ codes[:, None]
        apart &= ~(TIME ^ self.agents.lane_bits)
        if not apart.any():
            return None
        other = (apart != 0) & (before != 0)
        i, j = np.nonzero(other)
        late = self._late(before[i, j], codes[i], rows[i])
        if not late.any():
            return None
        out = np.zeros(before.shape, np.bool_)
        out[i[late], j[late]] = True
        return out

    def _late(self, theirs: Array, codes: Array, rows: Array) -> Array:
        """Which earlier accesses by others, codes [n], rows [n] of these codes do not know of."""
        here = theirs >> DOMAIN == codes >> DOMAIN
        column, time = theirs >> COLUMN & MANY, theirs & TIME
        fine = here & (column == MANY)
        ask = np.flatnonzero(here & ~fine)
        if len(ask):
            fine[ask] = self.agents.known(rows[ask], column[ask]) >= time[ask]
            ask = ask[~fine[ask]]
            told = self.agents.lanes_told(rows[ask], codes[ask], theirs[ask]) if len(ask) else None
            if told is not None:
                fine[ask] = told
        ask = np.flatnonzero(~here)
        if len(ask) and self.logs:
            fine[ask] = self._told_of(theirs[ask], rows[ask], codes[ask])
        return ~fine

    def _told_of(self, theirs: Array, rows: Array, codes: Array) -> Array:
        """Whether rows have acquired what waves of other domains did."""
        out = np.zeros(len(theirs), np.bool_)
        for row in np.unique(rows).tolist():
            every = np.flatnonzero(rows == row)
            for on, lanes in self._alike(every, codes):
                known = self._acquired(row, int(codes[on[0]]), lanes)
                if known is NOTHING:
                    continue
                for code in np.unique(theirs[on]).tolist():
                    if known.covers(code) or known.covers(code, self.agents.lane_column(code)):
                        out[on[theirs[on] == code]] = True
        return out

    def _alike(self, on: Array, codes: Array) -> list[tuple[Array, int]]:
        """Positions of accesses by one row, apart where its lanes may know different things, with the lanes."""
        code = int(codes[on[0]])
        log = self.logs.get(code >> DOMAIN)
        own = code >> COLUMN & MANY
        if log is None or all(e.lanes == EVERY or e.column != own or self._met(e, code) for e in log.acquired):
            return [(on, EVERY)]
        lanes = codes[on] & 31
        return [(on[lanes == lane], 1 << lane) for lane in np.unique(lanes).tolist()]

    def _met(self, event: Event, code: int) -> bool:
        """Whether the lanes of the wave that an event is of have met since."""
        at = code >> DOMAIN << DOMAIN | event.column << COLUMN | event.clock
        return bool(self.agents.lanes_met(np.array([at]))[0])

    def _acquired(self, row: int, code: int, lanes: int = EVERY) -> Knowledge:
        """All that any of some lanes of a row knows to have been acquired in its domain."""
        log = self.logs.get(code >> DOMAIN)
        if log is None:
            return NOTHING
        return self._sum(e.what for e, _ in self._mine(log.acquired, row, code, lanes))

    def _mine(self, events: list[Event], row: int, code: int, lanes: int) -> list[tuple[Event, int]]:
        """Those that some lanes of a row, a bit for each, know of, and which of them do."""
        own = code >> COLUMN & MANY
        others = sorted({e.column for e in events if e.column != own})
        known = dict(zip(others, self.agents.known(np.full(len(others), row), np.array(others, np.int64)).tolist()))
        out = []
        for e in events:
            if e.column != own:
                here = lanes if known[e.column] >= e.clock else 0
            else:
                here = lanes if e.lanes == EVERY or self._met(e, code) else lanes & e.lanes
            if here:
                out.append((e, here))
        return out

    def _sum(self, parts: Iterable[Knowledge]) -> Knowledge:
        out = NOTHING
        for part in parts:
            out = self._plus(out, part)
        return out

    def _plus(self, x: Knowledge, y: Knowledge) -> Knowledge:
        if x is y or y is NOTHING:
            return x
        if x is NOTHING:
            return y
        pair = id(x), id(y)
        found = self._sums.get(pair)
        if found is None:
            found = self._sums[pair] = x if y.key <= x.key else self._of(_joined(x.clocks, y.clocks))
        return found

    def _of(self, clocks: dict[int, Array]) -> Knowledge:
        key = frozenset((d, c.tobytes()) for d, c in clocks.items())
        return self._known.setdefault(key, Knowledge(clocks, key))

    # ------------------------------------------------------------------------------------------------ synchronisation

    def synchronise(
        self, addresses: Array, rows: Array, inst: int, *, reads: bool, writes: bool, acquires: bool = False,
        lanes: Array | None = None,
    ) -> None:  # fmt: skip
        """Strong or atomic accesses at addresses [n] by rows [n], in this order: they hand on what their rows have
        released, and see what others have; with `acquires` they know it at once.
        """
        writes = writes and self.agents.releases()
        if not (writes or (reads and self.mail)):
            return
        keys = list(zip(addresses.tolist(), rows.tolist()))
        codes = dict(zip(rows.tolist(), self.agents.codes(rows).tolist()))
        bits: dict[tuple[int, int], int] = dict.fromkeys(keys, 0)
        for key, lane in zip(keys, () if lanes is None else (lanes & 31).tolist()):
            bits[key] |= 1 << lane
        # A wave's first access of an address hands on, its last sees most.
        turns = [(i, False, key) for key, i in {k: i for i, k in enumerate(keys)}.items()] if reads else []
        if writes:
            # Of what most lanes of a wave hand on at many addresses there is one.
            each = {(row, by): self._released(row, codes[row], by) for row, by in {(k[1], b) for k, b in bits.items()}}
            hands = {key: each[key[1], by] for key, by in bits.items()}
            firsts = {k: i for i, k in reversed(list(enumerate(keys)))}
            turns += [(i, True, key) for key, i in firsts.items() if hands[key] is not NOTHING]
        for _, hands_on, (address, row) in sorted(turns):
            mail = self.mail.get(address, NOTHING)
            if hands_on:
                self.mail[address] = self._plus(mail, hands[address, row])
            elif mail is not NOTHING:
                self._see(mail, codes[row], inst, acquires, bits[address, row] or EVERY)

    def _released(self, row: int, code: int, lanes: int) -> Knowledge:
        """What a strong access by lanes of a row hands on: its domain's clocks, and what it has acquired itself."""
        clocks = self.agents.released(row, lanes)
        if clocks is None:
            return NOTHING
        return self._plus(self._of({code >> DOMAIN: clocks}), self._acquired(row, code, lanes or EVERY))

    def _see(self, mail: Knowledge, code: int, inst: int, acquires: bool, lanes: int) -> None:
        log = self.logs.setdefault(code >> DOMAIN, Log())
        events = log.acquired if acquires else log.observed
        column = code >> COLUMN & MANY
        if not any(e.what is mail and (e.column, e.instruction, e.lanes) == (column, inst, lanes) for e in events):
            events.append(Event(column, code & TIME, mail, inst, lanes))

    def acquire(
        self, rows: Array, lanes: list[int] | None = None, under_way: Callable[[int], bool] = lambda inst: False
    ) -> None:
        """Rows fence: what they know to have been seen, they may use. `lanes`: of each row, a bit for each (None: all).
        `under_way(inst)`: an access whose result has not come back, which the fence does not cover.
        """
        if not self.logs:
            return
        each = [EVERY] * len(rows) if lanes is None else lanes
        for row, code, by in zip(rows.tolist(), self.agents.codes(rows).tolist(), each):
            log = self.logs.get(code >> DOMAIN)
            if log is None:
                continue
            if self.agents.lane_bits:  # a thread's fence is for what it has read itself
                column = code >> COLUMN & MANY
                found = [(e, by & e.lanes) for e in log.observed if e.column == column and by & e.lanes]
            else:
                known = self._mine(log.observed, row, code, by)
                found = [(e, here) for e, here in known if not under_way(e.instruction)]
            for here in dict.fromkeys(here for _, here in found):
                seen = self._sum(e.what for e, at in found if at & here == here)
                before = self._sum(e.what for e, at in self._mine(log.acquired, row, code, here) if at == here)
                after = self._plus(before, seen)
                if after is not before:
                    log.acquired.append(Event(code >> COLUMN & MANY, code & TIME, after, -1, here))

    def fence_proxies(self, rows: Array, lanes: list[int]) -> None:
        """Lanes of rows, a bit for each, fence what they have acquired, so that bulk copies may follow it."""
        for row, code, by in zip(rows.tolist(), self.agents.codes(rows).tolist(), lanes):
            log = self.logs.get(code >> DOMAIN)
            if log is None:
                continue
            column = code >> COLUMN & MANY
            for e, here in self._mine(log.acquired, row, code, by):
                if not any(f.what is e.what and (f.column, f.lanes) == (column, here) for f in log.fenced):
                    log.fenced.append(Event(column, code & TIME, e.what, -1, here))

    def fenced_proxies(self, theirs: int, row: int, code: int, column: int) -> bool:
        """Whether a write by another domain was fenced between the proxies before a row knew of it, by the writer
        (whose clocks have what its warp number 0 has fenced at `column`) or behind that.
        """
        log = self.logs.get(code >> DOMAIN)
        if log is None:
            return False
        lane = 1 << (code & 31)
        if any(e.what.covers(theirs) for e, _ in self._mine(log.fenced, row, code, lane)):
            return True
        clocks = self._acquired(row, code, lane).clocks.get(theirs >> DOMAIN)
        at = column + (theirs >> COLUMN & MANY)
        return clocks is not None and at < len(clocks) and int(clocks[at]) >= theirs & TIME

    # ------------------------------------------------------------------------------------------------ places

    def parts(self, addresses: Array, size: int) -> Iterator[tuple[Page, Array]]:
        """Pages with the positions of the accesses that begin there (None: all of them). What lies in no array is left
        out.
        """
        if not len(addresses):
            return
        if self.granule > 1 and (size | int(np.bitwise_or.reduce(addresses))) & (self.granule - 1):
            for page in self.pages.values():
                page.refine()
            self.granule = 1
        low, high = int(addresses.min()), int(addresses.max())
        if low >> PAGE == high >> PAGE:
            found = self._page(low >> PAGE)
            if found is not None and found.low <= low and high + size <= found.high:
                yield found, None
                return
        which = addresses >> PAGE
        near = range(low >> PAGE, (high >> PAGE) + 1)
        for number in near if len(near) <= 16 else np.unique(which).tolist():  # sorting costs what few pages do not
            found = self._page(number)
            if found is not None:
                inside = (which == number) & (addresses >= found.low) & (addresses + size <= found.high)
                if inside.any():
                    yield found, np.flatnonzero(inside)

    def _page(self, number: int) -> Page | None:
        found = self.pages.get(number)
        if found is None:
            begin, end = number << PAGE, (number + 1) << PAGE
            inside = [a for a in self.memory.allocations if a.base < end and begin < a.end]
            if not inside:
                return None
            low, high = min(a.base for a in inside), max(a.end for a in inside)
            found = self.pages[number] = Page(max(begin, low), min(end, high), self.granule, self.agents)
        return found

    def clash(
        self, page: Page, cells: Array, bad: Array | None, lanes: Array, theirs: Array, codes: Array, say: str,
        insts: Array,
    ) -> Clash | None:  # fmt: skip
        """The first of accesses that are `bad` [rows, k], by rows of `codes`, beside those of `theirs` [rows, k]."""
        if bad is None or not bad.any():
            return None
        i, j = (int(x[0]) for x in np.nonzero(bad))
        cell = int(cells[i, j])
        what = say.format(_who(int(codes[i]), int(theirs[i, j]), self.agents.lane_bits))
        return Clash(i if lanes is None else int(lanes[i]), what, (page.first + cell) * page.granule, int(insts[cell]))

    def place(self, address: int) -> str:
        """A byte of global memory in words."""
        found = self.memory.find(address)
        if found is None:
            return f"address {address:#x}"
        byte = address - found.base
        element = found.element(byte)
        return f"byte {byte} of argument `{found.name}`" + (f", which is {element}" if element else "")


def _part(part: Array, *given: Array) -> list[Array]:
    """Of each of some arrays the elements at `part` (None: all)."""
    return [x if part is None or x is None else x[part] for x in given]


def _equal(x: Array, y: Array, size: int) -> Array:
    """Whether words [k, n] agree in the `size` bytes that count."""
    limit = np.uint32(0xFFFFFFFF if size >= 4 else (1 << 8 * size) - 1)
    return (((x ^ y) & limit) == 0).all(axis=0)


def _others(before: Array, codes: Array) -> Array:
    """Which accesses [rows, k] are by another wave than the rows'."""
    return (before ^ codes[:, None]) >> COLUMN != 0


def _wrote_too(page: Page, cells: Array, writer: Array, codes: Array) -> Array:
    """Where [rows, k] a lane reads what several lanes of its wave wrote, itself among them."""
    mine = ~_others(writer, codes) & (writer & ANY == SEVERAL)
    return mine & (page.write_lanes.take(cells) >> (codes & 31).astype(np.uint32)[:, None] & 1 == 1)


def _elsewhere(before: Array, codes: Array) -> Array:
    """Which accesses [rows, k] are by another domain than the rows'."""
    return (before ^ codes[:, None]) >> DOMAIN != 0


def _who(mine: int, theirs: int, bits: int) -> str:
    if mine >> DOMAIN != theirs >> DOMAIN:
        return "another workgroup"
    if mine >> COLUMN != theirs >> COLUMN:
        return "another wave"
    return "another lane of the same wave" if (mine ^ theirs) & bits else "the same wave"


def _joined(x: dict[int, Array], y: dict[int, Array]) -> dict[int, Array]:
    """The later clock of each column of each domain."""
    out = dict(x)
    for domain, clocks in y.items():
        mine = out.get(domain)
        if mine is None or mine is clocks:
            out[domain] = clocks
            continue
        if len(mine) < len(clocks):
            mine, clocks = clocks, mine
        latest = mine.copy()
        np.maximum(latest[: len(clocks)], clocks, out=latest[: len(clocks)])
        out[domain] = latest
    return out
