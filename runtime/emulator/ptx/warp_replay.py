"""Replays traces of warps on a model of one SM (of a cluster: one SM per workgroup): `cycle_model` for PTX text.

In: the program, `WarpTrace`s of a few workgroups, how many share an SM, the chip. Out: `Timing`. Discrete events, one
per issued instruction:

* A sub-core issues one instruction per clock, of its oldest warp that is ready; each of its pipes takes the next
  instruction when the last one leaves it. Instructions of a block are in the order of `warp_ops.scheduled`.
* A register is ready when its writer's latency is over; readers wait for it, writers do not.
* Shared memory and L1's data are one pipe of the SM, in order of issue: an access to shared memory takes the clocks
  that its addresses need, one to global memory a clock per 128 bytes, and one of L1's tags per four cache lines; what
  `cp.async` brings passes the pipe too. Lines that L1 does not hold come over a link as in `cycle_model`.
* Groups of copies are waited for by count; an mbarrier's phase is over when its arrivals have been and its bytes have
  come; who tests it waits until then instead of spinning.
* A fence beyond the workgroup waits until what its warp has loaded and stored is done.
* A product of a warpgroup keeps the four tensor cores busy for its clocks, one warp's part on each, and reads its
  operands over the pipe of shared memory meanwhile. Loads and stores of lanes go first there; what they took, and what
  `cp.async` brings, a product makes up for while it runs, in up to half of its clocks. Bulk copies write beside it.

Divergent lanes go one after the other, as they were recorded. Code fetch, address translation, power and clock changes
are not modelled. Sources of the numbers: `cycle_chips.SmModel`, the rows of `codegen/ptx/isa*.py`.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from typing import Any

from wavedsl.runtime.emulator.cycle_chips import SIMDS, SmModel
from wavedsl.runtime.emulator.cycle_queue import Launch, LineCache, Queue, Timing
from wavedsl.runtime.emulator.ptx.trace import WarpTrace
from wavedsl.runtime.emulator.ptx.warp_events import Events
from wavedsl.runtime.emulator.ptx.warp_ops import (
    ACCESS,
    BARRIER,
    BRANCH,
    BULK,
    BULK_COMMIT,
    BULK_WAIT,
    CLOSE,
    CLUSTER_ARRIVE,
    CLUSTER_WAIT,
    COMMIT,
    COPIES,
    COPY,
    FENCE,
    NAME,
    NEIGHBOUR,
    PLAIN,
    PRODUCT,
    PRODUCTS,
    SIGNAL,
    TEST,
    WarpOp,
    WarpProgram,
)  # fmt: skip
from wavedsl.runtime.emulator.timeline import Timeline

OF_SM = frozenset(("lsu", "l1", "memory"))
"""Units that the sub-cores share."""
_WHY = {
    COPIES: "copies", BULK_WAIT: "copies", PRODUCTS: "matrix", TEST: "mbarrier", CLUSTER_WAIT: "barrier",
    FENCE: "memory",
}  # fmt: skip


class _Sm:
    """Pipes of one SM."""

    __slots__ = ("beside", "cache", "far", "free", "link", "pipe", "queue", "tags", "waiting")

    def __init__(self, queue: int, l1_lines: int) -> None:
        self.free: list[defaultdict[str, float]] = [defaultdict(float) for _ in range(SIMDS)]
        """Per sub-core: pipe → when it takes the next instruction."""
        self.waiting: list[defaultdict[str, list[tuple[int, _Warp]]]] = [defaultdict(list) for _ in range(SIMDS)]
        """Per sub-core: pipe → a heap of those whose next instruction has found it busy, or another just issued."""
        self.pipe = self.tags = self.link = self.far = 0.0
        """When the memory that is shared memory and L1, L1's tags, the link behind them, and this SM's share of what
        lies behind that are free."""
        self.beside = [0.0] * SIMDS
        """Per sub-core: clocks of that memory that others have asked for since its tensor core last read operands."""
        self.cache = LineCache(l1_lines)
        self.queue: deque[float] = deque(maxlen=queue)


class _Phases:
    """An mbarrier."""

    __slots__ = ("bytes", "expected", "latest", "over", "pending", "waiting")

    def __init__(self, expected: int):
        self.expected = self.pending = expected
        self.bytes = 0
        self.latest = 0.0
        self.over: list[float] = []
        """When each phase was over."""
        self.waiting: list[tuple[int, _Warp]] = []


class _Meeting:
    """One barrier of a workgroup, or that of a cluster."""

    __slots__ = ("arrived", "latest", "need", "waiting")

    def __init__(self) -> None:
        self.arrived = self.need = 0
        self.latest = 0.0
        self.waiting: list[_Warp] = []


class _Cluster:
    """A workgroup, or the workgroups of a cluster, at work."""

    __slots__ = ("ended", "first", "meetings", "phases", "slot", "warps")

    def __init__(self, slot: int, first: int):
        self.slot, self.first = slot, first
        self.warps: list[_Warp] = []
        self.ended = 0
        self.phases: dict[int, _Phases] = {}
        self.meetings: dict[tuple[int, int], _Meeting] = {}
        """By (workgroup, number); the cluster's own is (-1, 0)."""


class _Warp:
    __slots__ = (
        "accessed", "age", "closed", "cluster", "copied", "core", "end", "ended", "free", "groups", "lines", "listed",
        "next", "op", "ops", "place", "ports", "product", "queued", "rank", "ready", "reason", "shift", "sm",
        "stored", "stores", "trace", "visit", "waits",
    )  # fmt: skip

    def __init__(self, trace: WarpTrace, cluster: _Cluster, rank: int, sm: _Sm, core: int, at: float, age: int,
                 shift: int, count: int):  # fmt: skip
        self.trace, self.cluster, self.rank, self.sm, self.core, self.age = trace, cluster, rank, sm, core, age
        self.shift = shift
        """Added to cache lines: a workgroup that stands for others touches lines of its own."""
        self.ports, self.lines = sm.free[core], sm.waiting[core]
        self.queued, self.listed = False, True
        """Whether it is in one of `lines`, and whether the replay's own queue has it."""
        self.ready = [0.0] * count
        self.free = at
        self.place = self.next = self.end = 0
        self.ops: Sequence[WarpOp] = ()
        self.op: WarpOp | None = None
        self.visit: dict[int, Any] = {}
        self.reason = ""
        self.copied = self.accessed = 0.0
        """When what it has copied, and all that it has loaded and stored itself, is done."""
        self.groups: list[float] = []
        """When each group of copies has arrived; the same of bulk stores (read, done) and of products below."""
        self.stored = (0.0, 0.0)
        self.stores: list[tuple[float, float]] = []
        self.product = 0.0
        self.closed: list[float] = []
        self.waits = 0
        """How often it has waited at the cluster's barrier."""
        self.ended = False


class WarpReplay(Queue):
    """One SM, or those of a cluster of `ranks` workgroups, at work on a queue of workgroups or clusters. `l1_lines`:
    cache lines that shared memory leaves to L1."""

    def __init__(self, program: WarpProgram, events: Events, chip: SmModel, launch: Launch, ranks: int, l1_lines: int):
        self.program, self.events, self.chip, self.launch, self.ranks = program, events, chip, launch, ranks
        self.sms = [_Sm(chip.queue, l1_lines) for _ in range(ranks)]
        self.waves: list[tuple[float, int, _Warp]] = []
        self.parked = 0
        self.at_work: list[_Cluster] = []
        self.count = 0
        self.last = 0
        self.busy: dict[str, float] = dict.fromkeys(OF_SM, 0.0)
        self.stalls: defaultdict[str, int] = defaultdict(int)
        self.lines: defaultdict[int, int] = defaultdict(int)
        self.visits: Counter[int] = Counter()
        """Block → how often a warp runs it."""
        self.window = (-1.0, -1.0)
        self.timeline: Timeline | None = None
        used = launch.used_units or chip.units
        share = launch.memory_share
        rates = [chip.unit_rate, chip.l2_rate / used] + ([chip.dram_rate / used / share] if share else [])
        self.share_rate = min(rates)
        """Bytes per clock that L2 and memory have for this SM."""
        self.miss_latency = chip.hit_latency + share * (chip.memory_latency - chip.hit_latency)

    # ---- workgroups come and go

    def _length(self, group: Sequence[WarpTrace]) -> int:
        blocks = self.program.flow.blocks
        return sum(blocks[b].end - blocks[b].start for w in group for b, _ in w.visits)

    def _start(self, recorded: Sequence[Sequence[WarpTrace]], number: int, slot: int, at: int) -> None:
        again, which = divmod(number, len(recorded))
        traces = recorded[which]
        cluster = _Cluster(slot, self.events.first[which])
        each = len(traces) // self.ranks
        load = [0] * SIMDS
        for other in self.at_work:
            for w in other.warps:
                load[w.core] += w.rank == 0 and not w.ended
        core = min(range(SIMDS), key=lambda c: load[c])
        self.at_work.append(cluster)
        for i, trace in enumerate(traces):
            rank = i // each
            warp = _Warp(
                trace, cluster, rank, self.sms[rank], (core + i % each) % SIMDS, at, self.count, again << 80,
                self.program.count,
            )  # fmt: skip
            if self.timeline is not None:
                name = f"warp {i % each}" + (f" of workgroup {rank} of the cluster" if self.ranks > 1 else "")
                self.timeline.begin(self.count, number, name, at)
            self.count += 1
            self.visits.update(block for block, _ in trace.visits)
            cluster.warps.append(warp)
        for warp in cluster.warps:
            self._next(warp)
        if cluster.ended == len(cluster.warps):
            self.at_work.remove(cluster)

    def _next(self, w: _Warp, earliest: float = 0.0) -> _Cluster | None:
        """Put a warp's next instruction on the queue; the cluster, if that was its last."""
        return None if self._fetch(w, earliest) else self._ended(w, earliest)

    def _ended(self, w: _Warp, earliest: float) -> _Cluster | None:
        """A warp has run its last instruction; the cluster, if it was the last there."""
        w.ended = True
        if self.timeline is not None:
            self.timeline.until(w.age, w.free)
        cluster = w.cluster
        cluster.ended += 1
        self.last = max(self.last, int(max(w.free, earliest)))
        for key, meeting in list(cluster.meetings.items()):
            self._meet(cluster, key, meeting)
        if cluster.ended < len(cluster.warps):
            return None
        if cluster in self.at_work:
            self.at_work.remove(cluster)
        return cluster

    # ---- one instruction

    def _step(self) -> tuple[int, _Cluster | None]:
        """Issue instructions, each time the one that can go first, until one ends a cluster or none is left. Returns
        the clock of the last one, and that cluster.

        One loop for all that the replay spends its time on: plain instructions, and who has to wait for a pipe. Those
        who wait for the same pipe stand in line, the oldest first, and only that one is asked again when the pipe is
        free: no other can go before it.
        """
        waves, stalls, lines, sources = self.waves, self.stalls, self.lines, self.program.sources
        heappush, heappop, heapreplace = heapq.heappush, heapq.heappop, heapq.heapreplace
        timeline = self.timeline
        t: float = 0
        latest: float = 0
        ended: _Cluster | None = None
        while waves:
            at, age, w = waves[0]
            op = w.op
            assert op is not None
            free, port = w.ports, op.port
            t = free["issue"]
            if free[port] > t:
                t = free[port]
            if t > at:
                if at <= w.free:
                    w.reason = "port"
                line = w.lines[port]
                if not w.queued:
                    w.queued = True
                    heappush(line, (age, w))
                if line[0][1] is w:
                    heapreplace(waves, (t, age, w))
                else:
                    w.listed = False
                    heappop(waves)
                continue
            t = at
            if t > latest:
                latest = t
            if t > w.free:
                waited = int(t - w.free)
                if waited:
                    stalls[w.reason] += waited
                    lines[op.index] += waited
                    if timeline is not None:
                        timeline.wait(age, w.free, t, w.reason, op.index)
            free["issue"] = w.free = t + 1
            if port != "issue" and port != "lsu":
                free[port] = t + op.busy
                if port == "tensor":
                    self._worked(w, op, t, t + op.busy)
            if w.queued:
                w.queued = False
                line = w.lines[port]
                heappop(line)
                if line and not line[0][1].listed:
                    age_of_next, following = line[0]
                    following.listed = True
                    heappush(waves, (max(t + 1, free[port]), age_of_next, following))
            if op.kind == PLAIN:
                ready = w.ready
                done = t + op.latency
                for c in op.writes:
                    ready[c] = done
                if w.next < w.end:
                    op = w.ops[w.next]
                    if op.kind == PLAIN and op.port != "lsu":
                        w.op = op
                        w.next += 1
                        at, w.reason = t + 1, "issue"
                        for c in op.reads:
                            if ready[c] > at:
                                at, w.reason = ready[c], sources[c]
                        done = free[op.port]
                        if done > at:
                            if at == t + 1:
                                w.reason = "port"
                            at = done
                        heapreplace(waves, (at, age, w))
                        continue
                heappop(waves)
                if not self._fetch(w, 0.0):
                    ended = self._ended(w, 0.0)
            else:
                heappop(waves)
                ended = self._issue(w, op, t, free)
            if not waves and self.parked:
                self._unpark(t)
            if ended is not None:
                break
        self.last = max(self.last, int(latest) + self.turn)
        return int(t), ended

    def _issue(self, w: _Warp, op: WarpOp, t: float, free: dict[str, float]) -> _Cluster | None:
        """What an instruction that is not plain does, and the warp's next one; the cluster, if that was its last."""
        kind = op.kind
        done = t + op.latency
        if kind == PRODUCT:
            self._product(w, op, t, free)
        elif kind in _WHY:
            pass
        elif kind in (SIGNAL, BULK):
            self._signals(w, op, t)
        elif kind == ACCESS:
            done = self._access(w, op, t)
        elif kind == CLOSE:
            w.closed.append(w.product)
        elif kind in (BARRIER, CLUSTER_ARRIVE):
            return self._arrive(w, op, t)
        elif kind == COPY:
            w.copied = max(w.copied, self._access(w, op, t))
        elif kind == COMMIT:
            w.groups.append(w.copied)
        elif kind == BULK_COMMIT:
            w.stores.append(w.stored)
        elif kind == BRANCH:
            visits = w.trace.visits
            if w.place < len(visits):
                blocks = self.program.flow.blocks
                if blocks[visits[w.place][0]].start != op.index + 1:
                    w.free = t + self.chip.taken_branch
        for c in op.writes:
            w.ready[c] = done
        return None if self._fetch(w, 0.0) else self._ended(w, 0.0)

    def _fetch(self, w: _Warp, earliest: float) -> bool:
        """Load the next instruction of a warp and find when nothing of its own holds it. False at the trace's end."""
        ready, ops, place, end = w.ready, w.ops, w.next, w.end
        while True:
            if place >= end:
                visits = w.trace.visits
                if w.place >= len(visits):
                    return False
                block, w.visit = visits[w.place]
                w.place += 1
                ops, place = self.program.ops(block), 0
                end = len(ops)
                continue
            op = ops[place]
            place += 1
            if op.kind != NAME:
                break
            t = 0.0
            for c in op.reads:
                if ready[c] > t:
                    t = ready[c]
            for c in op.writes:
                ready[c] = t
        w.op, w.ops, w.next, w.end = op, ops, place, end
        at, why = w.free, "issue"
        if earliest > at:
            at, why = earliest, "barrier"
        for c in op.reads:
            if ready[c] > at:
                at, why = ready[c], self.program.sources[c]
        if op.port == "lsu":
            queue = w.sm.queue
            if len(queue) == queue.maxlen and queue[0] > at:
                at, why = queue[0], "queue"
        if op.kind in _WHY:
            until = self._until(w, op, at)
            if until is None:
                return True
            if until > at:
                at, why = until, _WHY[op.kind]
        w.reason = why
        heapq.heappush(self.waves, (at, w.age, w))
        return True

    def _until(self, w: _Warp, op: WarpOp, at: float) -> float | None:
        """When what an instruction waits for is there; None: nobody knows yet, and the warp is woken then."""
        kind = op.kind
        until = 0.0
        if kind == COPIES:
            until = w.copied if op.limit < 0 else w.groups[-1 - op.limit] if len(w.groups) > op.limit else 0.0
        elif kind == PRODUCTS:
            until = w.closed[-1 - op.limit] if len(w.closed) > op.limit else 0.0
        elif kind == BULK_WAIT:
            keep, read = op.limit >> 1, op.limit & 1
            until = w.stores[-1 - keep][0 if read else 1] if len(w.stores) > keep else 0.0
        elif kind == FENCE:
            until = w.accessed
        elif kind == TEST:
            for event in self.events.of(w.visit, op.index, w.trace.warp):
                phases = w.cluster.phases.get(event[2])
                if event[0] == "test" and phases is not None and event[3] > 0:
                    if len(phases.over) < event[3]:
                        phases.waiting.append((event[3], w))
                        self._park(w, at, "mbarrier")
                        return None
                    until = max(until, phases.over[event[3] - 1] + self.chip.signal_latency)
        elif kind == CLUSTER_WAIT:
            w.waits += 1
            meeting = w.cluster.meetings.setdefault((-1, 0), _Meeting())
            if meeting.need < w.waits:  # `need` counts the phases that are over
                meeting.waiting.append(w)
                self._park(w, at, "barrier")
                return None
            until = meeting.latest
        return until

    def _park(self, w: _Warp, at: float, why: str) -> None:
        w.reason = why
        self.parked += 1

    def _wake(self, w: _Warp, at: float) -> None:
        self.parked -= 1
        heapq.heappush(self.waves, (max(at, w.free), w.age, w))

    # ---- barriers

    def _arrive(self, w: _Warp, op: WarpOp, t: float) -> _Cluster | None:
        cluster = w.cluster
        if op.kind == CLUSTER_ARRIVE:
            meeting = cluster.meetings.setdefault((-1, 0), _Meeting())
            meeting.arrived += 1
            meeting.latest = max(meeting.latest, t + self.chip.meeting_latency)
            self._meet(cluster, (-1, 0), meeting)
            return self._next(w)
        number, need = 0, 0
        for event in self.events.of(w.visit, op.index, w.trace.warp):
            number, need = event[2], event[3]
        key = (w.rank, number)
        meeting = cluster.meetings.setdefault(key, _Meeting())
        meeting.arrived += 1
        meeting.need = need
        meeting.latest = max(meeting.latest, t + self.chip.barrier)
        if op.limit:
            meeting.waiting.append(w)
            self._park(w, t, "barrier")
        ended = self._meet(cluster, key, meeting)
        return ended if op.limit else self._next(w) or ended

    def _meet(self, cluster: _Cluster, key: tuple[int, int], meeting: _Meeting) -> _Cluster | None:
        """Let the warps of a barrier go when all have come; the cluster, if that ends it."""
        rank = key[0]
        living = sum(not w.ended and rank in (-1, w.rank) for w in cluster.warps)
        if rank < 0:
            if meeting.arrived and meeting.arrived >= living:
                meeting.arrived = 0
                meeting.need += 1
                waiting, meeting.waiting = meeting.waiting, []
                for w in waiting:
                    self._wake(w, meeting.latest)
            return None
        if not meeting.arrived or meeting.arrived < (meeting.need or living):
            return None
        del cluster.meetings[key]
        ended = None
        for w in meeting.waiting:
            self.parked -= 1
            ended = self._next(w, meeting.latest) or ended
        return ended

    def _unpark(self, t: float) -> None:
        """Nobody is left whom those who wait could wait for: traces that were cut. They go on."""
        for cluster in list(self.at_work):
            for phases in cluster.phases.values():
                waiting, phases.waiting = phases.waiting, []
                for _, w in waiting:
                    self._wake(w, t)
            for key, meeting in list(cluster.meetings.items()):
                stuck, meeting.waiting = meeting.waiting, []
                for w in stuck:
                    if key[0] < 0:
                        self._wake(w, t)
                    else:
                        self.parked -= 1
                        self._next(w, t)

    # ---- memory

    def _served(self, sm: _Sm, t: float, clocks: float) -> float:
        """When an access that takes `clocks` of the pipe begins there."""
        start = max(t, sm.pipe)
        sm.queue.append(start)
        sm.pipe = start + clocks
        self._taken(sm, clocks)
        self.busy["lsu"] += clocks
        return start

    def _taken(self, sm: _Sm, clocks: float) -> None:
        """Others than products take that many clocks of the pipe."""
        beside = sm.beside
        for core in range(SIMDS):
            beside[core] += clocks

    def _brought(self, sm: _Sm, t: float, size: float) -> float:
        """When `size` bytes that are asked for at t are through the link. A multicast takes each receiver's share of
        L2's rate: 2 x 1 clusters are 7 % slower than none where L2 bounds a product (results/h200_ranking.json)."""
        link, far = size / self.chip.l1_rate, size / self.share_rate
        begun = max(t, sm.link, sm.far)
        sm.link = max(t, sm.link) + link
        sm.far = max(t, sm.far) + far
        done = max(sm.link, sm.far)
        self.busy["memory"] += done - begun
        return done

    def _access(self, w: _Warp, op: WarpOp, t: float) -> float:
        """When the result of an access is there."""
        chip, sm = self.chip, w.sm
        done = t + 1
        for event in self.events.of(w.visit, op.index, w.trace.warp):
            if event[0] == "shared":
                clocks = event[1]
                if op.kind == COPY:  # what a copy brings passes by later
                    sm.pipe = max(sm.pipe, t) + clocks
                    self._taken(sm, clocks)
                    self.busy["lsu"] += clocks
                    continue
                begun = self._served(sm, t, clocks)
                if op.memory == NEIGHBOUR:
                    # As others ask this one: its own pipe stands for theirs. The rate of the way there is not
                    # published: it is taken for that of the port that leads to L2.
                    sm.link = max(sm.link, begun) + clocks * chip.shared_rate / chip.l1_rate
                    done = max(done, sm.link + chip.remote_latency)
                    continue
                done = max(done, begun + clocks - 1 + chip.shared_latency)
                continue
            _, size, lines, sectors = event
            looked = -(-len(lines) // chip.tags)
            end = sm.tags = max(sm.tags, t) + looked
            self.busy["l1"] += looked
            if op.kind != COPY:  # what a copy brings goes to shared memory alone
                clocks = -(-size // int(chip.shared_rate))
                end = max(end, self._served(sm, t, clocks) + clocks)
            missed = len(lines)
            if not op.bypass:
                missed = sm.cache.missed([x + w.shift for x in lines] if w.shift else lines)
            if missed:
                moved = 32 * sectors * missed / len(lines)
                end = max(self._brought(sm, end, moved), end) + self.miss_latency
            else:
                end += chip.l1_latency
            done = max(done, end)
            if self.timeline is not None:
                self.timeline.move("copies" if op.kind == COPY else "global memory", t, end, size)
            if op.kind != COPY:
                w.accessed = max(w.accessed, end)
        self.last = max(self.last, int(done))  # a kernel has not ended before its stores have
        return done

    def _product(self, w: _Warp, op: WarpOp, t: float, free: dict[str, float]) -> None:
        """A warp's part of a product of its warpgroup: it begins when the tensor core has done what it was given
        before, and the warp goes on meanwhile."""
        sm = w.sm
        clocks = op.traffic / self.chip.shared_rate
        before = free.get("tensor", 0.0)
        start = max(t, before)
        beside = max(0.0, sm.beside[w.core] - (start - before))
        taken = min(beside, op.busy / 2)
        sm.beside[w.core] = beside - taken
        free["tensor"] = end = start + max(op.busy, clocks * SIMDS + taken)
        w.product = end + self.chip.product_latency
        self.busy["tensor"] = self.busy.get("tensor", 0.0) + op.busy
        self.busy["lsu"] += clocks
        self._worked(w, op, start, end)
        self.last = max(self.last, int(w.product))

    def _worked(self, w: _Warp, op: WarpOp, start: float, end: float) -> None:
        """A tensor core was busy."""
        if self.timeline is not None:
            self._span("tensor core", w, op, start, end, core=w.core)
        first, last = self.window
        self.window = start if first < 0 or start < first else first, end if end > last else last
        if end > self.last:
            self.last = int(end)

    def _span(
        self, unit: str, w: _Warp, op: WarpOp, start: float, end: float, size: int = 0, core: int | None = None
    ) -> None:
        """Tell the timeline, if there is one, what works for a warp."""
        if self.timeline is not None:
            of = [f"sub-core {core}"] * (core is not None) + [f"workgroup {w.rank} of the cluster"] * (self.ranks > 1)
            self.timeline.work(" of ".join([unit, *of]), w.age, start, end, op.index, size)

    def _signals(self, w: _Warp, op: WarpOp, t: float) -> None:
        """What an instruction does to mbarriers, and the bulk copies that it has made."""
        cluster, chip = w.cluster, self.chip
        for kind, n, *what in self.events.of(w.visit, op.index, w.trace.warp):
            if kind == "store":
                size = what[0]
                read = self._served(w.sm, t, size / chip.shared_rate) + size / chip.shared_rate
                done = self._brought(w.sm, read, size) + self.miss_latency
                w.stored = (max(w.stored[0], read + chip.shared_latency), max(w.stored[1], done))
                self._span("bulk stores", w, op, t, done, size)
                self.last = max(self.last, int(done))
                continue
            key = what[0]
            if kind == "init":
                cluster.phases[key] = _Phases(what[1])
                continue
            phases = cluster.phases.get(key)
            if phases is None:
                continue
            if kind == "arrive":
                phases.bytes += what[2]
                phases.pending -= n * what[1]
                # The events of a workgroup that stands for all of its cluster say which of them come from others.
                remote = what[3] if len(what) > 3 else self.events.rank(key, cluster.first) != w.rank
                self._over(phases, t + (chip.remote_latency if remote else 0))
            elif kind == "expect":
                phases.bytes += what[1]
                self._over(phases, t)
            elif kind == "copied":
                phases.pending -= n if what[1] else 0
                self._over(phases, max(t, w.copied))
            elif kind == "copy":
                size = what[1]
                sm = self.sms[self.events.rank(key, cluster.first) % self.ranks]
                phases.bytes -= size
                done = self._brought(sm, t, size) + self.miss_latency + chip.bulk_latency
                self._span("bulk loads", w, op, t, done, size)
                self._over(phases, done)

    def _over(self, phases: _Phases, t: float) -> None:
        """Something has come to a phase at t; let those go who wait, if that was the last."""
        phases.latest = max(phases.latest, t)
        if phases.pending > 0 or phases.bytes:
            return
        phases.over.append(phases.latest)
        phases.pending = phases.expected
        waiting, phases.waiting = phases.waiting, []
        for number, w in waiting:
            if len(phases.over) < number:
                phases.waiting.append((number, w))
            else:
                self._wake(w, phases.over[number - 1] + self.chip.signal_latency)

    # ---- result

    def _timing(self, cycles: int) -> Timing:
        for block, n in self.visits.items():
            for op in self.program.ops(block):
                if op.port not in ("issue", "lsu"):
                    self.busy[op.port] = self.busy.get(op.port, 0.0) + n * op.busy
        shares = {
            unit: min(1.0, clocks / (cycles * self.ranks * (1 if unit in OF_SM else SIMDS)))
            for unit, clocks in self.busy.items()
            if clocks and cycles
        }
        window = self.window[1] - self.window[0]
        matrix = self.busy.get("tensor", 0.0)
        return Timing(
            cycles,
            {unit: round(share, 4) for unit, share in sorted(shares.items())},
            dict(sorted(self.stalls.items(), key=lambda s: -s[1])),
            dict(self.lines),
            {op.index: n for block, n in self.visits.items() for op in self.program.ops(block) if op.kind != NAME},
            matrix / (SIMDS * self.ranks * window) if window > 0 else 0.0,
        )
