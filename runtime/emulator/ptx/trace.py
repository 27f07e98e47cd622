"""What some warps of an emulated PTX run executed: the raw material of the warp replay.

In: the emulator's blocks as they run, addresses of memory instructions, what happens to mbarriers. Out: a `WarpTrace`
per recorded warp. The one idea: groups of warps run a block together, so one `Visit` per block stands for all of them,
and keeps what the clock must know of data by instruction: raw addresses, of which each warp takes its own lanes when
somebody asks for clocks, and actions on mbarriers by warp.

A warp that spins at an mbarrier leaves one visit of the block that tests it, that of the test that held: how long it
waits is for the replay to say. Invariant: recording changes nothing that the program sees.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MAX_RECORDED = 4
"""Workgroups, or clusters, that are recorded at most."""
MAX_VISITS = 60_000
"""Blocks of one warp that are recorded at most; what a longer warp does counts as going on like this."""

Array = Any
Mask = Any
Visit = dict[int, list[tuple[Any, ...]]]
"""Instruction → its events: `(space, width, addresses, threads)` of an access (`atomic`: of one to shared memory;
`changes`: of one to global memory that gives nothing back), `("signal", warp, kind, …)` of mbarriers
and bulk copies."""


class WarpTrace:
    """One warp: the blocks that it ran, in order, each with what memory and mbarriers saw."""

    __slots__ = ("cut", "failed", "visits", "warp")

    def __init__(self, warp: int):
        self.warp = warp
        """Number of the warp in its batch, by which visits know it."""
        self.visits: list[tuple[int, Visit]] = []
        self.failed = -1
        """Place of the last visit if an mbarrier was not ready there."""
        self.cut = 0
        """Blocks that were not recorded."""


class Tracer:
    """Records the warps of the chosen clusters (workgroups where there are none), each given by its place in the order
    in which they run. `ranks`: workgroups of a cluster; `idle`: blocks that only go back to a test."""

    def __init__(self, places: list[int], ranks: int, warps: int, stride: int, idle: list[bool]):
        self.places, self.ranks, self.warps, self.stride = places, ranks, warps, stride
        self.idle = idle
        self.clusters: list[list[WarpTrace]] = []
        self.first: list[int] = []
        """First workgroup of each recorded cluster in its batch."""
        self.traces: dict[int, WarpTrace] = {}
        """Recorded warps of the running batch."""
        self.rows: Array = None
        self.recorded: Array = None
        self.threads: Array = None
        self.visit: Visit = {}

    def new_batch(self, first: int, count: int) -> bool:
        """Workgroups `first` … of the order run next, `count` of them. Whether any of them is recorded."""
        self.traces = {}
        for place in self.places:
            at = place * self.ranks - first
            if 0 <= at < count:
                warps = range(at * self.warps, (at + self.ranks) * self.warps)
                found = [WarpTrace(w) for w in warps]
                self.clusters.append(found)
                self.first.append(at)
                self.traces.update((t.warp, t) for t in found)
        if not self.traces:
            return False
        self.rows = np.array(sorted(self.traces))
        self.recorded = np.zeros(count * self.warps * 32, bool)
        self.recorded.reshape(-1, 32)[self.rows] = True
        self.threads = self.recorded.nonzero()[0]
        return True

    # ------------------------------------------------------------------------------------------------ events

    def enter(self, block: int, mask: Mask) -> None:
        """The threads of `mask` run a block."""
        visit = self.visit = {}
        found = self.traces.values()
        if mask is not None:
            on = mask.reshape(-1, 32)[self.rows].any(axis=1)
            found = [self.traces[w] for w in self.rows[on].tolist()]  # type: ignore[assignment]
        for trace in found:
            if trace.failed >= 0:  # it was sent back to a test, or to one by way of a jump
                if self.idle[block]:
                    continue
                if trace.visits[trace.failed][0] == block:
                    del trace.visits[trace.failed :]
                trace.failed = -1
            if len(trace.visits) < MAX_VISITS:
                trace.visits.append((block, visit))
            else:
                trace.cut += 1

    def access(self, pc: int, space: str, width: int, at: Array, lanes: Array) -> None:
        """Threads `lanes` (None: all) access `width` bytes each at byte addresses `at` of a space."""
        if lanes is None:
            lanes = self.threads
            at = at.take(lanes)
        else:
            on = self.recorded.take(lanes).nonzero()[0]
            at, lanes = at.take(on), lanes.take(on)
        if len(lanes):
            self.visit.setdefault(pc, []).append((space, width, at, lanes))

    def signal(self, pc: int, threads: Array, kind: str, *what: Any) -> None:
        """Threads act on an mbarrier or have a bulk copy made: `what` belongs to each warp among them."""
        warps, counts = np.unique(np.asarray(threads) // 32, return_counts=True)
        for warp, n in zip(warps.tolist(), counts.tolist()):
            if warp in self.traces:
                self.visit.setdefault(pc, []).append(("signal", warp, kind, n, *what))

    def test(self, pc: int, threads: Array, now: Array, key: int, phase: int) -> None:
        """Threads ask whether `phase` phases of an mbarrier have completed; `now` is the answer by thread."""
        warps = np.asarray(threads) // 32
        for warp in np.unique(warps).tolist():
            trace = self.traces.get(warp)
            if trace is None:
                continue
            if now[warps == warp].all():
                self.visit.setdefault(pc, []).append(("signal", warp, "test", 1, key, phase))
            elif trace.visits:
                trace.failed = len(trace.visits) - 1
