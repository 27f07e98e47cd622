"""Who knows of whose accesses among the warps of a CTA or cluster: vector clocks, and what hands them on.

In: barriers, arrivals, fences and waits, as the executor carries them out. Out: `Clocks.know`, which the shadows of
shared and of global memory ask. shadow.py says what the clocks are for; its rules about lanes are carried out here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.runtime.emulator.ptx.lane_knowledge import LaneKnowledge, lanes_of
from wavedsl.runtime.emulator.ptx.last_access import ANY, LANES, SEVERAL

Array = Any


class Clocks:
    """Clocks of a batch of CTAs, of which `cluster` that follow each other are a domain.

    `agents`: whether the program has asynchronous agents. Columns of `know`: the domain's warps; the reading agents
    (warpgroups, then bulk stores by warp); what is fenced in shared memory, in global memory, which mbarrier
    initialisations are known, and which bulk stores have written, by warp; whether the grids in front have ended; one
    per mbarrier, or lane that has arrived at one alone (`slots`).
    """

    def __init__(
        self,
        ctas: int,
        warps: int,
        cluster: int = 1,
        agents: bool = False,
        slots: dict[tuple[int, int], int] | None = None,
        living: Callable[[], Array] | None = None,
    ):
        """`living`: gives the threads that have not ended (None: all of them live)."""
        everybody = np.ones(ctas * warps * 32, np.bool_)
        self.heard = LaneKnowledge(living or (lambda: everybody))
        self.slots = {} if slots is None else slots
        """Numbers of mbarriers, by CTA and place, and of lanes, by ~warp and lane: one batch's are the next's."""
        self.ctas, self.cta_warps, self.cluster = ctas, warps, cluster
        w = self.warps = warps * cluster
        self.agents = agents
        groups = self.groups = (warps + 3) // 4 * cluster if agents else 0
        self.readers = 2 * w + groups if agents else w
        self.stores = w + groups
        self.fenced = self.readers
        self.fenced_global = self.fenced + w
        self.inits = self.fenced_global + w
        self.written = self.inits + w
        self.prior = self.written + w if agents else w
        self.barriers = self.prior + 1
        # know[warp, u]: the latest clock of u that the warp has synchronised with; a warp's own is its clock.
        self.own = np.tile(np.arange(w), ctas // cluster)
        self.rows = np.arange(ctas * warps)
        threads = np.arange(ctas * warps * 32)
        self.codes: Array = (threads >> 5) % w << LANES | threads & 31
        """Of each thread, its warp in the domain and its lane."""
        self.lanes: Array = (threads & 31).astype(np.int32)
        self.know = np.zeros((ctas * warps, self.barriers + (16 if agents else 0)), np.int32)
        self.know[self.rows, self.own] = 1
        self.met = np.zeros(ctas * warps, np.int32)
        """Of each warp, the clock up to which its lanes know of each other."""
        self.lane_columns = {(~warp, lane): self.barriers + n for (warp, lane), n in self.slots.items() if warp < 0}
        """By warp in the domain and lane (`SEVERAL`: two lanes or more) the columns for what these alone have told."""
        self.lane_table: Array = np.zeros((3 * w, ANY + 1), np.int64)
        """The same, 0 where there is none; warps from `w` on, and from `2 w`, are for what lanes of a warp have fenced
        alone in shared, and in global memory."""
        for key, column in self.lane_columns.items():
            self.lane_table[key] = column
        if self.lane_columns:
            self.barrier_column(max(self.slots.values()))
        self.arrivers: dict[int, tuple[int, int]] = {}
        """By warp, lanes that have arrived at mbarriers since its lanes met, and when that was."""
        self.parts: dict[int, list[tuple[int, int]]] = {}
        """By warp the barriers of some of its lanes since then: clock and lanes, a bit for each."""
        self.done: dict[tuple[int, int], int] = {}
        """By domain and reading agent: the number up to which anybody has waited for it."""

    @property
    def columns(self) -> int:
        return self.know.shape[1]

    def barrier_column(self, slot: int) -> int:
        """The column of the domain's mbarrier number `slot`."""
        column = self.barriers + slot
        while column >= self.columns:
            more = np.zeros((self.know.shape[0], self.columns), np.int32)
            self.know = np.concatenate([self.know, more], axis=1)
        return column

    def slot(self, key: tuple[int, int]) -> int:
        """The number of an mbarrier, or of a lane."""
        return self.slots.setdefault(key, len(self.slots))

    def told(self, warps: Array, writers: Array, clocks: Array, lanes: Array) -> Array | None:
        """Which accesses by warps `writers` of the domain global warps know of by lanes alone; None: none."""
        return self._by_lanes(warps, writers, clocks, lanes) if self.lane_columns else None

    def heard_of(self, warps: Array, by: Array, writers: Array, clocks: Array, lanes: Array) -> Array:
        """Which accesses [n] by `lanes` of warps `writers` of the domain lanes `by` of global warps know of alone."""
        known: Array = self.heard.at(warps, by, writers) >= clocks
        columns = self.lane_table[np.minimum(writers, self.warps - 1), lanes]
        return known | ((columns > 0) & (self.heard.at(warps, by, columns) >= clocks))

    def _by_lanes(self, warps: Array, writers: Array, clocks: Array, lanes: Array) -> Array:
        columns: Array = self.lane_table[np.minimum(writers, self.warps - 1), lanes]
        return (columns > 0) & (self.know.reshape(-1).take(warps * self.columns + columns) >= clocks)

    # ------------------------------------------------------------------------------------------------ agents

    def waited(self, warps: Array, column: Array, tick: Array, lanes: list[int] | None = None) -> None:
        """Global warps [rows], or `lanes` of them, a bit for each, have waited for reads of agents up to a running
        number.
        """
        for w, c, t in zip((warps // self.warps).tolist(), column.tolist(), tick.tolist()):
            self.done[w, c] = max(self.done.get((w, c), 0), t)
        if lanes is not None:
            for warp, bits, c, t in zip(warps.tolist(), lanes, column.tolist(), tick.tolist()):
                clocks = np.zeros(c + 1, np.int32)
                clocks[c] = t
                self._learn(warp, bits, clocks)
            return
        at = warps * self.columns + column
        flat = self.know.reshape(-1)
        flat[at] = np.maximum(flat.take(at), tick)

    def fence(self, threads: Array, space: str | None = None) -> None:
        """Threads execute a proxy fence: all that they know of is fenced, in `global` memory, in shared memory, or
        (None) in both.
        """
        if not self.agents:
            return
        warps, parts = self.heard.parted(threads)
        spaces = (1, 2) if space is None else (2,) if space == "global" else (1,)
        for n in spaces:
            first = self.fenced if n == 1 else self.fenced_global
            at = slice(first, first + self.warps)
            self.know[warps, at] = np.maximum(self.know[warps, at], self.know[warps, : self.warps])
        for warp in warps.tolist():
            self._each_fences(warp, -1, spaces)
        for warp, bits in parts:
            self._each_fences(warp, bits, spaces)
            self._fences_alone(warp, bits, spaces)
        self.advance(np.unique(threads >> 5))

    def _each_fences(self, warp: int, lanes: int, spaces: tuple[int, ...]) -> None:
        """Lanes of a global warp fence what they know of other warps' stores; -1: each of them what it knows alone."""
        if lanes == -1 and warp not in self.heard.tables:
            return
        table = self.heard.table(warp, self.columns)
        rows, w = lanes_of(lanes), self.warps
        seen: Array = table[rows, :w]
        if lanes != -1:
            seen = np.maximum(seen, self.know[warp, :w])
            own = int(self.own[warp])
            seen[:, own] = np.maximum(table[rows, own], self.met[warp])
        for n in spaces:
            first = self.fenced if n == 1 else self.fenced_global
            table[rows, first : first + w] = np.maximum(table[rows, first : first + w], seen)

    def _fences_alone(self, warp: int, lanes: int, spaces: tuple[int, ...]) -> None:
        """Lanes of a global warp fence what they have written themselves since its lanes met."""
        own, rows = int(self.own[warp]), lanes_of(lanes)
        for n in spaces:
            for lane in (*rows, *([SEVERAL] if len(rows) > 1 else [])):
                column = self.lane_column(n * self.warps + own, lane)
                clocks = np.zeros(column + 1, np.int32)
                clocks[column] = self.know[warp, own]
                self._learn(warp, lanes if lane == SEVERAL else 1 << lane, clocks)

    def grids_end(self, threads: Array) -> None:
        """Threads have waited for the grids in front of theirs."""
        clocks = np.zeros(self.prior + 1, np.int32)
        clocks[self.prior] = 1
        self.learn(threads, clocks)

    def before_grids_end(self, threads: Array) -> Array:
        """Which threads do not know of such a wait."""
        warps = threads >> 5
        early: Array = self.know[:, self.prior].take(warps) == 0
        if self.heard.tables and early.any():
            early &= self.heard.at(warps, threads & 31, np.full(len(threads), self.prior)) == 0
        return early

    def fence_inits(self, warps: Array) -> None:
        """Global warps make their mbarrier initialisations visible to the cluster."""
        if self.agents:
            own = warps % self.warps
            self.know[warps, self.inits + own] = self.know[warps, own]

    # ------------------------------------------------------------------------------------------------ barriers

    def barrier_all(self) -> None:
        """Every warp of every CTA has met every other of its CTA."""
        self.tell_all(self.rows)
        by_cta = self.know.reshape(self.ctas, self.cta_warps, -1)
        by_cta[:] = by_cta.max(axis=1)[:, None, :]
        self.lanes_meet(self.rows)

    def advance(self, warps: Array) -> None:
        """The clocks of global warps go on."""
        self.know[warps, self.own[warps]] += 1

    def lanes_meet(self, warps: Array) -> None:
        """All lanes of global warps have met: a new epoch of theirs begins."""
        self.tell_all(warps)
        self._met(warps, self.know[warps, self.own[warps]])
        self.advance(warps)

    def tell_all(self, warps: Array) -> None:
        """What single lanes of global warps know their warps know."""
        if not self.heard.tables:
            return
        for warp in warps.tolist():
            told = self.heard.told(warp)
            if told is not None:
                del self.heard.tables[warp]
                self._take(warp, told)

    def _take(self, warp: int, clocks: Array) -> None:
        """A global warp as a whole learns clocks."""
        own = int(self.own[warp])
        mine = self.know[warp, : len(clocks)]
        np.maximum(mine, clocks, out=mine)
        if len(clocks) > own:
            self.lanes_know(warp, int(clocks[own]))

    def _learn(self, warp: int, lanes: int, clocks: Array) -> None:
        """Some lanes of a global warp, a bit for each, learn clocks; what all living ones know then, the warp knows."""
        known: Array = self.know[warp].copy()
        known[self.own[warp]] = self.met[warp]
        if (clocks <= known[: len(clocks)]).all():
            return
        heard = self.heard
        heard.learn(warp, lanes, clocks, self.columns)
        self._take(warp, heard.common(warp))
        self._forget(warp)

    def _forget(self, warp: int) -> None:
        """Drop what single lanes of a global warp know if the warp knows all of it."""
        table = self.heard.tables.get(warp)
        if table is None:
            return
        known: Array = self.know[warp].copy()
        known[self.own[warp]] = self.met[warp]
        if (table <= known[: table.shape[1]]).all():
            del self.heard.tables[warp]

    def learn(self, threads: Array, clocks: Array) -> None:
        """Threads acquire clocks: their warps, where all lanes do."""
        warps, parts = self.heard.parted(threads)
        if len(warps):
            self.acquire(clocks[None], np.zeros_like(warps), warps)
        for warp, lanes in parts:
            self._learn(warp, lanes, clocks)

    def known_by(self, thread: int) -> Array:
        """The clocks that a thread knows, of its own warp those up to which its lanes know of each other."""
        warp = thread >> 5
        known: Array = self.know[warp].copy()
        known[self.own[warp]] = self.met[warp]
        told = self.heard.told(warp, 1 << (thread & 31))
        if told is not None:
            np.maximum(known[: len(told)], told, out=known[: len(told)])
        return known

    def some_meet(self, warp: int, lanes: int) -> None:
        """Some lanes of a global warp, a bit for each, have met."""
        self.heard.meet(warp, lanes)
        self.parts.setdefault(warp, []).append((int(self.know[warp, self.own[warp]]), lanes))
        self.advance(np.array([warp]))

    def lanes_know(self, warp: int, clock: int) -> None:
        """The lanes of a global warp know what they did up to a clock."""
        if clock > self.met[warp]:
            self._met(np.array([warp]), np.array([clock]))

    def _met(self, warps: Array, clocks: Array) -> None:
        """The lanes of global warps know what they did up to some clocks."""
        self.met[warps] = np.maximum(self.met[warps], clocks)
        if self.parts:
            for warp in warps.tolist():
                left = [part for part in self.parts.pop(warp, ()) if part[0] > self.met[warp]]
                if left:
                    self.parts[warp] = left

    def arrive(self, into: Array, groups: Array, warps: Array) -> None:
        """Global warps `warps` arrive: their knowledge goes into rows `groups` of `into` [n, columns]."""
        np.maximum.at(into, groups, self.know[warps])
        for group, warp in zip(groups.tolist(), warps.tolist()) if self.heard.tables else ():
            told = self.heard.told(warp)
            if told is not None:
                mine = into[group, : len(told)]
                np.maximum(mine, told, out=mine)
        self.advance(warps)

    def release(self, threads: Array, live: Array) -> Array:
        """The clocks that threads hand on by arriving at an mbarrier: all that their warps know, but, where other
        `live` threads of a warp do not arrive with them, of its own accesses those up to the last meeting of its lanes,
        the threads' own, and those of lanes that they have met since.
        """
        warps, here = np.unique(threads >> 5, return_counts=True)
        partly = np.flatnonzero(here < live.reshape(-1, 32)[warps].sum(axis=1))
        if not len(partly):
            return self._with_heard(self.know[warps].max(axis=0), warps, threads)
        alone = []
        for at in partly.tolist():
            warp = int(warps[at])
            own = int(self.own[warp])
            for lane, clock in self._alone(warp, threads[threads >> 5 == warp] & 31).items():
                alone.append((at, self.lane_column(own, lane), clock))
        know: Array = self.know[warps]
        for at in partly.tolist():
            know[at, self.own[warps[at]]] = self.met[warps[at]]
        for at, column, clock in alone:
            know[at, column] = clock
        return self._with_heard(know.max(axis=0), warps, threads)

    def _with_heard(self, clocks: Array, warps: Array, threads: Array) -> Array:
        """Clocks, and what threads of global warps know alone."""
        for warp in warps.tolist() if self.heard.tables else ():
            lanes = sum(1 << lane for lane in set((threads[threads >> 5 == warp] & 31).tolist()))
            told = self.heard.told(warp, lanes)
            if told is not None:
                np.maximum(clocks[: len(told)], told, out=clocks[: len(told)])
        return clocks

    def _alone(self, warp: int, lanes: Array) -> dict[int, int]:
        """By lane (`SEVERAL`: two or more) the clock up to which arriving lanes of a global warp speak for it."""
        now, met = int(self.know[warp, self.own[warp]]), int(self.met[warp])
        reached = sum(1 << lane for lane in set(lanes.tolist()))
        since, before = self.arrivers.get(warp, (met, 0))
        before = before if since == met else 0
        self.arrivers[warp] = met, before | reached
        out = {lane: now for lane in range(32) if reached >> lane & 1}
        if (before | reached).bit_count() > 1:
            out[SEVERAL] = now
        for clock, members in reversed(self.parts.get(warp, [])):
            if reached & members:
                reached |= members
                for lane in (*(lane for lane in range(32) if members >> lane & 1), SEVERAL):
                    out.setdefault(lane, clock)
        return out

    def lane_column(self, own: int, lane: int) -> int:
        """The column for what a lane of a warp of the domain has told alone."""
        column = self.barrier_column(self.slot((~own, lane)))
        self.lane_columns[own, lane] = column
        self.lane_table[own, lane] = column
        return column

    def arrive_inits(self, into: Array, groups: Array, warps: Array) -> None:
        """The same for an arrival without release semantics, which carries initialised mbarriers only."""
        if self.agents:
            at = slice(self.inits, self.inits + self.warps)
            part = into[:, at]
            np.maximum.at(part, groups, self.know[warps, at])

    def acquire(self, source: Array, groups: Array, warps: Array) -> None:
        """Global warps `warps` learn what rows `groups` of a completed barrier gathered."""
        n = source.shape[1]
        self.know[warps, :n] = np.maximum(self.know[warps, :n], source[groups])
        self._met(warps, source[groups, self.own[warps]])
        for warp in warps.tolist() if self.heard.tables else ():
            self._forget(warp)
