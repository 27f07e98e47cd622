"""Global memory of the PTX emulator under watch: which accesses of warps and bulk copies nothing orders.

In: accesses, fences and strong accesses, as instructions carry them out. Out: findings. The shadow of shared memory
keeps the warps' vector clocks (barriers, mbarriers, waits); this adds what they mean for global memory, and what fences
of the chip's scope let go from CTA to CTA. Lanes of a warp are in order by what they meet at alone, as there.

A bulk load reads as the mbarrier's phase that it completes. A bulk store writes when it is performed, as an agent of
its own: who has waited for its group (not only until it has read), or synchronised with one who has, knows of it, and
nobody else does, later copies of its own thread included. Fences: all that a warp knows when it fences is released by a
strong access behind it, of itself or of a warp that knows of the fence. (PTX asks for the fence in the thread of the
access; published kernels fence in all threads, meet, and let one of them access.) Strong accesses and atomics of a
scope within the cluster are ordinary ones to other clusters. What they hand on within it, see flags.py.

Ordinary stores go through the generic proxy, bulk copies through the asynchronous one: a bulk copy that reads or
overwrites what a store of the same launch wrote needs a proxy fence for global memory between the two, in front of or
behind what orders them. What a bulk copy wrote is seen by everybody who is ordered behind its completion.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.runtime.emulator.global_page import ANY, COLUMN, DOMAIN, DOMAINS, LANES, MANY, TIME
from wavedsl.runtime.emulator.global_shadow import Clash, GlobalShadow
from wavedsl.runtime.emulator.ptx.flags import CHIP, REACH, Fences, Flags
from wavedsl.runtime.emulator.ptx.lane_knowledge import by_warp
from wavedsl.runtime.emulator.ptx.machine import Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.module import Inst


class Warps:
    """The warps of a batch as agents; their domain is the cluster, numbered by its first CTA in the grid. A time is a
    clock of the shadow of shared memory, and below it the lane.
    """

    lane_bits = ANY

    def __init__(self, m: Machine):
        self.m = m
        self.place: Array = np.zeros(0, np.int64)

    def new_batch(self) -> None:
        m = self.m
        cta = np.arange(m.ctas) // m.cluster * m.cluster + m.first
        first = m.order[np.minimum(cta, len(m.order) - 1)].astype(np.int64)
        domain = np.repeat((first + 1) << DOMAIN, m.warps)
        self.base = domain | m.shadow.own.astype(np.int64) << COLUMN
        self.fences = Fences(m.shadow)
        numbers = first[:: m.cluster] + 1
        self.place = np.full(len(m.order) + 2, -1, np.int64)
        """Of each domain the number of its cluster in the batch, -1 for those of others."""
        self.place[numbers[::-1]] = np.arange(len(numbers))[::-1]

    def table(self) -> Array:
        shadow = self.m.shadow
        return self.base | shadow.know[shadow.rows, shadow.own].astype(np.int64) << LANES

    def codes(self, rows: Array) -> Array:
        shadow = self.m.shadow
        if len(rows) > len(shadow.rows):
            return self.table().take(rows)
        clocks = shadow.know.reshape(-1).take(rows * shadow.columns + shadow.own.take(rows))
        return self.base.take(rows) | clocks.astype(np.int64) << LANES

    def known(self, rows: Array, columns: Array) -> Array:
        shadow = self.m.shadow
        clocks = shadow.know.reshape(-1).take(rows * shadow.columns + columns)
        clocks = np.where(columns == shadow.own.take(rows), shadow.met.take(rows), clocks)
        return clocks.astype(np.int64) << LANES | ANY

    def lanes_told(self, rows: Array, codes: Array, theirs: Array) -> Array | None:
        shadow = self.m.shadow
        clocks, column, lanes = (theirs & TIME) >> LANES, theirs >> COLUMN & MANY, theirs & ANY
        out = shadow.told(rows, column, clocks, lanes)
        if shadow.heard.tables:
            heard = shadow.heard_of(rows, codes & ANY, column, clocks, lanes)
            out = heard if out is None else out | heard
        if shadow.parts:
            out = np.zeros(len(theirs), np.bool_) if out is None else out
            mine = ~out & (column == shadow.own.take(rows))
            late = mine[:, None].copy()
            shadow._drop_ordered(late, lanes[:, None], clocks[:, None], codes[:, None] & ANY, rows[:, None])
            out |= mine & ~late[:, 0]
        return out

    def lane_column(self, code: int) -> int | None:
        shadow = self.m.shadow
        return shadow.lane_columns.get((code >> COLUMN & MANY, code & ANY)) if shadow.lane_columns else None

    def lanes_met(self, codes: Array) -> Array:
        shadow = self.m.shadow
        cluster, column = self.place.take(codes >> DOMAIN), codes >> COLUMN & MANY
        gone = (cluster < 0) | (column >= shadow.warps)
        clocks = shadow.met.take(np.where(gone, 0, cluster * shadow.warps + column))
        return gone | ((clocks.astype(np.int64) << LANES | ANY) >= codes & TIME)

    def settled(self, codes: Array) -> Array:
        shadow = self.m.shadow
        cluster, column = self.place.take(codes >> DOMAIN), codes >> COLUMN & MANY
        least: Array = shadow.know.reshape(-1, shadow.warps, shadow.columns).min(axis=1)
        clocks = least[cluster, np.minimum(column, shadow.columns - 1)].astype(np.int64)
        return (cluster < 0) | ((clocks << LANES | ANY) >= codes & TIME) & self.lanes_met(codes)

    def releases(self) -> bool:
        return self.fences.any[CHIP]

    def released(self, row: int, lanes: int) -> Array | None:
        clocks = self.fences.released(row, lanes, CHIP)
        return None if clocks is None else clocks.astype(np.int64) << LANES | ANY


class WatchedMemory:
    """Findings about global memory of one launch."""

    def __init__(self, m: Machine, granule: int, swaps: bool, synchronises: bool, copies: Array, dependent: bool):
        """`synchronises`: whether CTAs may learn anything of each other, since somebody looks at what others change.
        `copies` [instructions]: which write as bulk copies do. `dependent`: whether the text waits for grids in front.
        """
        self.m, self.synchronises, self.copies, self.dependent = m, synchronises, copies, dependent
        self.warps = Warps(m)
        self.shadow = GlobalShadow(m.memory, self.warps, granule, swaps)

    def new_batch(self) -> None:
        self.warps.new_batch()
        self.flags = Flags(self.m.shadow, self.warps.fences)

    def read(
        self, inst: Inst, pc: int, address: Array, width: int, lanes: Array, strong: bool, cache: str = ""
    ) -> None:
        """Loads of threads (None: all of them); `cache`: one that serves them and sees no writes."""
        rows = self.m.global_warp if lanes is None else self.m.global_warp[lanes]
        self.begins(inst, self._every(lanes))
        if strong:
            self.strong(inst, pc, address, self._every(lanes), True, False)
        near = strong and scope_of(inst) < CHIP
        clash = self.shadow.read(
            address, width, rows, pc, strong=strong, cache=cache, stays=bool(cache), near=near, lanes=self._every(lanes)
        )
        self._tell(inst, clash, lanes)

    def _every(self, lanes: Array) -> Array:
        """Numbers of threads (None: all of them)."""
        return self.m.every if lanes is None else lanes

    def begins(self, inst: Inst, threads: Array) -> None:
        """Threads touch memory, in a text that waits for the grids in front of its own: until then those may use it."""
        if not self.dependent or not len(threads):
            return
        early = self.m.shadow.before_grids_end(threads)
        if early.any():
            text = (
                "touches global memory that a grid in front may still write or read: this thread has neither executed "
                "griddepcontrol.wait nor met one that has"
            )
            self.m.tell("race", inst, text, int(threads[int(np.argmax(early))]))

    def copy_begins(self, inst: Inst, pc: int, address: Array, width: int, lanes: Array) -> None:
        """Threads (None: all of them) issue copies to shared memory, which read until they are waited for."""
        self.begins(inst, self._every(lanes))
        if not self.shadow.dirty:
            return
        rows = self.m.global_warp if lanes is None else self.m.global_warp[lanes]
        clash = self.shadow.read(address, width, rows, pc, keep=False, lanes=self._every(lanes))
        self._tell(inst, clash, lanes)

    def copy_ends(self, inst: Inst, pc: int, address: Array, width: int, threads: Array, words: Array) -> None:
        """Threads have waited for copies that brought `words` [k, n]."""
        rows = self.m.global_warp[threads]
        clash = self.shadow.changed(address, width, rows, words) if self.shadow.dirty else None
        clash = clash or self.shadow.read(address, width, rows, pc, lanes=threads)
        self._tell(inst, clash, threads)

    def write(self, inst: Inst, pc: int, address: Array, width: int, lanes: Array, words: Array, strong: bool) -> None:
        """Stores of threads, before memory changes."""
        rows = self.m.global_warp if lanes is None else self.m.global_warp[lanes]
        self.begins(inst, self._every(lanes))
        if strong:
            self.strong(inst, pc, address, self._every(lanes), False, True)
        near = strong and scope_of(inst) < CHIP
        clash = self.shadow.write(
            address, width, rows, pc, words=words, strong=strong, near=near, lanes=self._every(lanes)
        )
        self._tell(inst, clash, lanes)

    def atomic(self, inst: Inst, pc: int, address: Array, width: int, lanes: Array) -> None:
        """Atomics of threads in the order in which they take turns, before memory changes."""
        rows = self.m.global_warp[lanes]
        self.begins(inst, lanes)
        self.strong(inst, pc, address, lanes, True, True)
        near = scope_of(inst) < CHIP
        self._tell(inst, self.shadow.write(address, width, rows, pc, atomic=True, near=near, lanes=lanes), lanes)

    def strong(
        self, inst: Inst, pc: int, address: Array, threads: Array, reads: bool, writes: bool, shared: bool = False
    ) -> None:
        """Strong accesses by threads, of which acquiring and releasing ones fence by themselves; `shared`: places of
        shared memory instead of addresses.
        """
        if not self.synchronises:
            return
        words = inst.name.split(".")
        reach = scope_of(inst)
        if writes and ("release" in words or "acq_rel" in words):
            self.warps.fences.add(threads, reach)
        acquires = "acquire" in words or "acq_rel" in words
        places = ~address if shared else address
        self.flags.access(places, threads, reach, reads=reads, writes=writes, acquires=acquires)
        if reach == CHIP and not shared:
            rows = threads >> 5
            self.shadow.synchronise(address, rows, pc, reads=reads, writes=writes, acquires=acquires, lanes=threads)

    def fence(self, row: isa.Inst) -> Any:
        """The step of a fence, None where nobody asks for it."""
        if not self.synchronises:
            return None
        sem, reach = row.mods.get("sem"), REACH[row.mods["scope"]]
        m = self.m

        def step(mask: Mask) -> None:
            threads = m.every if mask is None else m.lanes(mask)
            if sem != "release":
                self.flags.acquire(threads, reach)
                if reach == CHIP:
                    self.shadow.acquire(*by_warp(threads))
            if sem != "acquire":
                self.warps.fences.add(threads, reach)

        return step

    def bulk_read(self, inst: Inst, pc: int, address: Array, width: int, threads: Array, codes: Array) -> None:
        """Bulk loads that threads issue; `codes`: of the phases that they complete, 0 where they leave no trace."""
        rows = self.m.global_warp[threads]
        self.begins(inst, threads)
        clash = self.shadow.read(address, width, rows, pc, by=codes, lanes=threads)
        self._tell(inst, clash, threads)
        if clash is None:
            self._tell(inst, self._unfenced(address, width, threads, "reads"), threads, "proxy-fence")

    def bulk_write(
        self, inst: Inst, pc: int, address: Array, width: int, threads: Array, ticks: Array, words: Array | None,
        atomic: bool,
    ) -> None:  # fmt: skip
        """Bulk stores that threads have issued, with their running numbers, before memory changes."""
        rows = self.m.global_warp[threads]
        shadow = self.m.shadow
        codes = self.warps.base[rows] >> DOMAIN << DOMAIN | (shadow.written + shadow.own[rows]) << COLUMN
        codes |= ticks.astype(np.int64) << LANES | ANY
        open_ = self._unfenced(address, width, threads, "overwrites")
        clash = self.shadow.write(address, width, rows, pc, words=words, atomic=atomic, by=codes, lanes=threads)
        self._tell(inst, clash, threads)
        if clash is None:
            self._tell(inst, open_, threads, "proxy-fence")

    def fence_proxies(self, threads: Array) -> None:
        """Threads execute a proxy fence for global memory; the clocks of their own domain are the other shadow's."""
        if self.synchronises:
            self.shadow.fence_proxies(*by_warp(threads))

    def _unfenced(self, address: Array, width: int, threads: Array, verb: str) -> Clash | None:
        """A bulk copy by threads of what an ordinary store of this launch wrote, no proxy fence between them."""
        shadow = self.m.shadow
        for page, lanes in self.shadow.parts(address, width):
            if page.write_code is None:
                continue
            at, thread = (address, threads) if lanes is None else (address[lanes], threads[lanes])
            row = thread >> 5
            cells = page.cells(at, width)
            writer = page.write_code.take(cells)
            stored = (writer != 0) & (writer >> COLUMN & MANY != MANY) & ~self.copies.take(page.write_inst.take(cells))
            if not stored.any():
                continue
            codes = self.warps.codes(row) | thread & 31
            i, j = np.nonzero(stored)
            theirs = writer[i, j]
            column, time = theirs >> COLUMN & MANY, theirs & TIME
            here = theirs >> DOMAIN == codes[i] >> DOMAIN
            first = shadow.fenced_global
            fine = here & (self.warps.known(row[i], first + np.where(here, column, 0)) >= time)
            for k in np.flatnonzero(here & ~fine).tolist():
                fine[k] = self._fenced_by_lanes(int(thread[i[k]]), int(column[k]), int(time[k]))
            for k in np.flatnonzero(~here).tolist():
                fine[k] = self.shadow.fenced_proxies(int(theirs[k]), int(row[i[k]]), int(codes[i[k]]), first)
            stored[i[fine], j[fine]] = False
            say = (
                f"{verb} in the asynchronous proxy what an ordinary store of {{}} wrote, with no proxy fence for "
                "global memory after it:"
            )
            found = self.shadow.clash(page, cells, stored, lanes, writer, codes, say, page.write_inst)
            if found is not None:
                return found
        return None

    def _fenced_by_lanes(self, thread: int, column: int, time: int) -> bool:
        """Whether single lanes have fenced what a warp of the domain, `column`, wrote at a time."""
        shadow = self.m.shadow
        alone = int(shadow.lane_table[2 * shadow.warps + column, time & ANY])
        columns = [shadow.fenced_global + column, *([alone] if alone else [])]
        return int(shadow.known_by(thread)[columns].max()) >= time >> LANES

    def phase_code(self, row: int, column: int, clock: int) -> int:
        """The code of an mbarrier's phase in a row's domain."""
        return int(self.warps.base[row]) >> DOMAIN << DOMAIN | column << COLUMN | clock << LANES | ANY

    def _tell(self, inst: Inst, clash: Clash | None, lanes: Array, kind: str = "race") -> None:
        if clash is None:
            return
        thread = clash.position if lanes is None else int(lanes[clash.position])
        what = clash.what
        if clash.other >= 0 and self.copies[clash.other]:
            what = what.replace("what another wave wrote", "what a bulk store writes whose group was not waited for")
        text = f"{what} {self.shadow.place(clash.address)}{self.m.other_line(clash.other)}"
        self.m.tell(kind, inst, text, thread)


def scope_of(inst: Inst) -> int:
    """How far a strong or atomic access reaches; without a scope, as far as the chip."""
    return next((REACH[word] for word in inst.name.split(".") if word in REACH), CHIP)


def watched(m: Machine, insts: list[Inst], rows: list[isa.Inst | None], granule: int) -> WatchedMemory | None:
    """The watch over a launch, None where nothing is checked (or there are too many CTAs to tell apart)."""
    gx, gy, gz = m.launch.grid
    if not m.checks or gx * gy * gz > DOMAINS:
        return None
    words = [set(inst.name.split(".")) for inst in insts]
    looks = any("atom" in w or ("ld" in w and w & {"volatile", "relaxed", "acquire"}) for w in words)
    copies = np.array([row is not None and bool(row.effects & {"bulk"}) for row in rows], np.bool_)
    dependent = any(row is not None and "grid" in row.effects for row in rows)
    return WatchedMemory(m, granule, any("cas" in w for w in words), looks, copies, dependent)
