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

from collections import Counter, defaultdict
from collections.abc import Sequence
from copy import copy
from heapq import heappop, heappush, heapreplace
from math import inf
from operator import itemgetter

from wavedsl.runtime.emulator.cycle_chips import SIMDS, SmModel
from wavedsl.runtime.emulator.cycle_queue import STORED, Launch, Queue, Timing
from wavedsl.runtime.emulator.ptx.trace import WarpTrace
from wavedsl.runtime.emulator.ptx.warp_events import Events
from wavedsl.runtime.emulator.ptx.warp_ops import (
    ACCESS,
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
    TEST,
    WarpOp,
    WarpProgram,
)  # fmt: skip
from wavedsl.runtime.emulator.ptx.warp_state import NEVER, Cluster, Fork, Meeting, Phases, Sm, Warp, Waves, copied
from wavedsl.runtime.emulator.timeline import Timeline

OF_SM = frozenset(("lsu", "l1", "memory"))
"""Units that the sub-cores share."""
_WHY = {
    COPIES: "copies", BULK_WAIT: "copies", PRODUCTS: "matrix", TEST: "mbarrier", CLUSTER_WAIT: "barrier",
    FENCE: "memory",
}  # fmt: skip


class WarpReplay(Queue):
    """One SM, or those of a cluster of `ranks` workgroups, at work on a queue of workgroups or clusters. `l1_lines`:
    cache lines that shared memory leaves to L1."""

    def __init__(self, program: WarpProgram, events: Events, chip: SmModel, launch: Launch, ranks: int, l1_lines: int):
        self.program, self.events, self.chip, self.launch, self.ranks = program, events, chip, launch, ranks
        self.sms = [Sm(chip.queue, l1_lines) for _ in range(ranks)]
        self.waves: Waves = []
        self.parked = 0
        self.at_work: list[Cluster] = []
        self.count = 0
        self.last = 0
        self.busy: dict[str, float] = dict.fromkeys((*OF_SM, "tensor"), 0.0)
        self.stalls: defaultdict[str, int] = defaultdict(int)
        self.lines: defaultdict[int, int] = defaultdict(int)
        self.started: Counter[int] = Counter()
        """Recorded workgroup → how often it was put to work."""
        self.recorded: dict[int, Counter[int]] = {}
        """Recorded workgroup → block → how often its warps run it."""
        self.ops: dict[int, Sequence[WarpOp]] = {}
        """Block → its instructions, of all blocks that are run."""
        self.window = [inf, -inf]
        """The first clock of a matrix instruction, and the last."""
        self.timeline: Timeline | None = None
        self.explains = True
        """Whether somebody wants to know who waited for what: `stalls` and `lines`."""
        self.forks: list[Fork] = []
        """Where replays of other traces of the one recorded workgroup are to go on by themselves."""
        self.reached = False
        """Whether a warp has come to a mark of one of them."""
        used = launch.used_units or chip.units
        share = launch.memory_share
        self.near_rate = min(chip.unit_rate, chip.l2_rate / used)
        self.memory_rate = chip.dram_rate / used / share if share else inf
        """Bytes per clock that L2 has for this SM, and what memory brings together with L2's part."""
        self.miss_latency = chip.hit_latency + share * (chip.memory_latency - chip.hit_latency)

    # ---- workgroups come and go

    def _length(self, number: int, group: Sequence[WarpTrace]) -> int:
        blocks = self.program.flow.blocks
        found = self.recorded[number] = Counter[int]()
        for w in group:
            found.update(map(itemgetter(0), w.visits))
        self.ops.update((b, self.program.ops(b)) for b in found)
        return sum(n * (blocks[b].end - blocks[b].start) for b, n in found.items())

    def _start(self, recorded: Sequence[Sequence[WarpTrace]], number: int, slot: int, at: int) -> None:
        again, which = divmod(number, len(recorded))
        traces = recorded[which]
        self.started[which] += 1
        cluster = Cluster(slot, self.events.first[which], self.ranks)
        each = len(traces) // self.ranks
        load = [0] * SIMDS
        for other in self.at_work:
            for w in other.warps:
                load[w.core] += w.rank == 0 and not w.ended
        core = min(range(SIMDS), key=lambda c: load[c])
        self.at_work.append(cluster)
        for i, trace in enumerate(traces):
            rank = i // each
            warp = Warp(
                trace, cluster, rank, self.sms[rank], (core + i % each) % SIMDS, at, self.count, again << 80,
                self.program.count,
            )  # fmt: skip
            if self.timeline is not None:
                name = f"warp {i % each}" + (f" of workgroup {rank} of the cluster" if self.ranks > 1 else "")
                self.timeline.begin(self.count, number, name, at)
            self.count += 1
            warp.mark = self._mark(trace)
            cluster.warps.append(warp)
        for warp in cluster.warps:
            self._next(warp)
        if cluster.ended == len(cluster.warps):
            self.at_work.remove(cluster)

    def _mark(self, trace: WarpTrace) -> int:
        return min((fork.marks[trace.warp] for fork in self.forks if fork.replay is None), default=NEVER)

    def _fork(self) -> None:
        """Copy the replay for those forks to whose marks a warp has come; it has still to issue what is in front."""
        at_work = [w for cluster in self.at_work for w in cluster.warps]
        for fork in self.forks:
            if fork.replay is None and any(w.place >= fork.marks[w.trace.warp] for w in at_work):
                new = fork.replay = copy(self)
                new.sms, new.at_work, new.waves = copied(self.sms, self.at_work, self.waves)
                new.busy, new.window = dict(self.busy), self.window[:]
                new.stalls, new.lines, new.started = self.stalls.copy(), self.lines.copy(), self.started.copy()
                new.recorded, new.ops = {}, {}
                new.forks, new.reached, new.begun = [], False, self.started[0]
                for cluster in new.at_work:
                    for w in cluster.warps:
                        w.trace, w.mark = fork.others[w.trace.warp], NEVER
        for w in at_work:
            w.mark = self._mark(w.trace)
        self.reached = False

    def _next(self, w: Warp, earliest: float = 0.0) -> Cluster | None:
        """Put a warp's next instruction on the queue; the cluster, if that was its last."""
        return None if self._fetch(w, earliest) else self._ended(w, earliest)

    def _ended(self, w: Warp, earliest: float) -> Cluster | None:
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

    def _step(self) -> tuple[int, Cluster | None]:
        """Issue instructions, each time the one that can go first, until one ends a cluster or none is left. Returns
        the clock of the last one, and that cluster.

        One loop for all that the replay spends its time on: who has to wait for a pipe, and instructions of a block
        whose next one waits for nobody else. Those who wait for the same pipe stand in line, the oldest first, and only
        that one is asked again when the pipe is free: no other can go before it.
        """
        waves, stalls, lines, sources = self.waves, self.stalls, self.lines, self.program.sources
        timeline, explains = self.timeline, self.explains
        t: float = 0
        latest: float = 0
        ended: Cluster | None = None
        if self.reached:  # by warps that have just begun
            self._fork()
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
            if explains and t > w.free:
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
            kind = op.kind
            ready = w.ready
            done = t + op.latency
            loud = False
            if kind == PLAIN:
                pass
            elif kind == PRODUCT:
                self._product(w, op, t, free)
            elif kind == ACCESS:
                done = self._access(w, op, t)
            elif kind == CLOSE:
                w.closed.append(w.product)
            elif kind == COPY:
                w.copied = max(w.copied, self._access(w, op, t))
            elif kind == COMMIT:
                w.groups.append(w.copied)
            elif kind == BULK_COMMIT:
                w.stores.append(w.stored)
            elif kind <= CLUSTER_ARRIVE:
                loud = True
                heappop(waves)
                if kind <= BULK:
                    self._signals(w, op, t)
                elif kind == BRANCH:
                    self._branch(w, op, t)
                else:
                    ended = self._arrive(w, op, t)
                    if not waves and self.parked:
                        self._unpark(t)
                    if ended is not None:
                        break
                    if self.reached:
                        self.last = max(self.last, int(latest) + self.turn)
                        self._fork()
                    continue
            for c in op.writes:
                ready[c] = done
            place = w.next
            if place < w.end:
                op = w.ops[place]
                kind = op.kind
                if kind <= PRODUCTS:
                    w.op = op
                    w.next = place + 1
                    at = w.free
                    reason = "issue"
                    for c in op.reads:
                        if ready[c] > at:
                            at, reason = ready[c], sources[c]
                    port = op.port
                    if port == "lsu":
                        queue = w.sm.queue
                        if len(queue) == queue.maxlen and queue[0] > at:
                            at, reason = queue[0], "queue"
                    elif kind == PRODUCTS:
                        closed = w.closed
                        if len(closed) > op.limit and closed[-1 - op.limit] > at:
                            at, reason = closed[-1 - op.limit], "matrix"
                    elif free[port] > at:
                        if at == t + 1:
                            reason = "port"
                        at = free[port]
                    w.reason = reason
                    if loud:
                        heappush(waves, (at, age, w))
                    else:
                        heapreplace(waves, (at, age, w))
                    continue
            if not loud:
                heappop(waves)
            if not self._fetch(w, 0.0):
                ended = self._ended(w, 0.0)
            if not waves and self.parked:
                self._unpark(t)
            if ended is not None:
                break
            if self.reached:
                self.last = max(self.last, int(latest) + self.turn)
                self._fork()
        self.last = max(self.last, int(latest) + self.turn)
        return int(t), ended

    def _branch(self, w: Warp, op: WarpOp, t: float) -> None:
        """A branch that is taken costs more than one that is not."""
        visits = w.trace.visits
        if w.place < len(visits):
            blocks = self.program.flow.blocks
            if blocks[visits[w.place][0]].start != op.index + 1:
                w.free = t + self.chip.taken_branch

    def _fetch(self, w: Warp, earliest: float) -> bool:
        """Load the next instruction of a warp and find when nothing of its own holds it. False at the trace's end."""
        ready, ops, place, end = w.ready, w.ops, w.next, w.end
        while True:
            if place >= end:
                visits = w.trace.visits
                number = w.place
                if number >= len(visits):
                    return False
                block, w.visit = visits[number]
                w.place = number + 1
                if number + 1 == w.mark:
                    self.reached = True
                ops, place = self.ops[block], 0
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
        heappush(self.waves, (at, w.age, w))
        return True

    def _until(self, w: Warp, op: WarpOp, at: float) -> float | None:
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
                        self._park(w, "mbarrier")
                        return None
                    until = max(until, phases.over[event[3] - 1] + self.chip.signal_latency)
        elif kind == CLUSTER_WAIT:
            w.waits += 1
            meeting = w.cluster.meetings.setdefault((-1, 0), Meeting())
            if meeting.need < w.waits:  # `need` counts the phases that are over
                meeting.waiting.append(w)
                self._park(w, "barrier")
                return None
            until = meeting.latest
        return until

    def _park(self, w: Warp, why: str) -> None:
        w.reason = why
        self.parked += 1

    def _wake(self, w: Warp, at: float) -> None:
        self.parked -= 1
        heappush(self.waves, (max(at, w.free), w.age, w))

    # ---- barriers

    def _arrive(self, w: Warp, op: WarpOp, t: float) -> Cluster | None:
        cluster = w.cluster
        if op.kind == CLUSTER_ARRIVE:
            meeting = cluster.meetings.setdefault((-1, 0), Meeting())
            meeting.arrived += 1
            meeting.latest = max(meeting.latest, t + self.chip.meeting_latency)
            self._meet(cluster, (-1, 0), meeting)
            return self._next(w)
        number, need = 0, 0
        for event in self.events.of(w.visit, op.index, w.trace.warp):
            number, need = event[2], event[3]
        key = (w.rank, number)
        meeting = cluster.meetings.setdefault(key, Meeting())
        meeting.arrived += 1
        meeting.need = need
        meeting.latest = max(meeting.latest, t + self.chip.barrier)
        if op.limit:
            meeting.waiting.append(w)
            self._park(w, "barrier")
        ended = self._meet(cluster, key, meeting)
        return ended if op.limit else self._next(w) or ended

    def _meet(self, cluster: Cluster, key: tuple[int, int], meeting: Meeting) -> Cluster | None:
        """Let the warps of a barrier go when all have come; the cluster, if that ends it."""
        rank, arrived = key[0], meeting.arrived
        everybody = rank < 0 or not meeting.need
        if not arrived or (not everybody and arrived < meeting.need):
            return None
        if everybody and arrived < sum(not w.ended and rank in (-1, w.rank) for w in cluster.warps):
            return None
        if rank < 0:
            meeting.arrived = 0
            meeting.need += 1
            waiting, meeting.waiting = meeting.waiting, []
            for w in waiting:
                self._wake(w, meeting.latest)
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

    def _served(self, sm: Sm, t: float, clocks: float) -> float:
        """When an access that takes `clocks` of the pipe begins there."""
        start = t if t > sm.pipe else sm.pipe
        sm.queue.append(start)
        sm.pipe = start + clocks
        sm.beside = [x + clocks for x in sm.beside]
        self.busy["lsu"] += clocks
        return start

    def _brought(self, sm: Sm, t: float, size: float, near: float = 0.0) -> float:
        """When `size` bytes that are asked for at t are through the link; `near` of them L2 has for certain. A
        multicast takes each receiver's share of L2's rate: 2 x 1 clusters are 7 % slower than none where L2 bounds a
        product (results/h200_ranking.json)."""
        begun = max(t, sm.link, sm.far, sm.memory)
        sm.link = max(t, sm.link) + size / self.chip.l1_rate
        sm.far = max(t, sm.far) + size / self.near_rate
        if size > near:
            sm.memory = max(t, sm.memory) + (size - near) / self.memory_rate
        done = max(sm.link, sm.far, sm.memory)
        self.busy["memory"] += done - begun
        return done

    def _access(self, w: Warp, op: WarpOp, t: float) -> float:
        """When the result of an access is there."""
        chip, sm = self.chip, w.sm
        done = t + 1
        for event in self.events.of(w.visit, op.index, w.trace.warp):
            if event[0] == "shared":
                clocks = event[1]
                if op.kind == COPY:  # what a copy brings passes by later
                    sm.pipe = max(sm.pipe, t) + clocks
                    sm.beside = [x + clocks for x in sm.beside]
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
            _, size, lines, sectors, number, *turns = event
            looked = -(-len(lines) // chip.tags)
            end = sm.tags = max(sm.tags, t) + looked
            self.busy["l1"] += looked
            if op.kind != COPY:  # what a copy brings goes to shared memory alone
                clocks = -(-size // int(chip.shared_rate))
                end = max(end, self._served(sm, t, clocks) + clocks)
            missed = number
            if not op.bypass:
                missed = sm.cache.missed(lines, sectors, w.shift)
            if missed:
                shift = STORED if op.stores else 0
                new = 0 if op.near else w.cluster.touched[w.rank].missed(lines, sectors, shift)
                latency = self.miss_latency if new else chip.hit_latency
                brought = self._brought(sm, end, 32.0 * missed, 32.0 * (missed - new))
                if turns:
                    sm.changes = max(sm.changes, t) + turns[0] * self.launch.turns
                    brought = max(brought, sm.changes)
                end = max(brought, end) + latency
            else:
                end += chip.l1_latency
            done = max(done, end)
            if self.timeline is not None:
                self.timeline.move("copies" if op.kind == COPY else "global memory", t, end, size)
            if op.kind != COPY:
                w.accessed = max(w.accessed, end)
        self.last = max(self.last, int(done))  # a kernel has not ended before its stores have
        return done

    def _product(self, w: Warp, op: WarpOp, t: float, free: dict[str, float]) -> None:
        """A warp's part of a product of its warpgroup: it begins when the tensor core has done what it was given
        before, and the warp goes on meanwhile."""
        chip, beside, core, clocks = self.chip, w.sm.beside, w.core, op.busy
        read = op.traffic / chip.shared_rate
        before = free["tensor"]
        start = before if before > t else t
        taken = beside[core] - (start - before)
        if taken > 0.0:
            left = taken
            if taken > clocks / 2:
                taken = clocks / 2
            beside[core] = left - taken
        else:
            beside[core] = taken = 0.0
        needed = read * SIMDS + taken
        free["tensor"] = end = start + (needed if needed > clocks else clocks)
        w.product = end + chip.product_latency
        busy = self.busy
        busy["tensor"] += clocks
        busy["lsu"] += read
        self._worked(w, op, start, end)
        if w.product > self.last:
            self.last = int(w.product)

    def _worked(self, w: Warp, op: WarpOp, start: float, end: float) -> None:
        """A tensor core was busy."""
        if self.timeline is not None:
            self._span("tensor core", w, op, start, end, core=w.core)
        window = self.window
        if start < window[0]:
            window[0] = start
        if end > window[1]:
            window[1] = end
            if end > self.last:
                self.last = int(end)

    def _span(
        self, unit: str, w: Warp, op: WarpOp, start: float, end: float, size: int = 0, core: int | None = None
    ) -> None:
        """Tell the timeline, if there is one, what works for a warp."""
        if self.timeline is not None:
            of = [f"sub-core {core}"] * (core is not None) + [f"workgroup {w.rank} of the cluster"] * (self.ranks > 1)
            self.timeline.work(" of ".join([unit, *of]), w.age, start, end, op.index, size)

    def _signals(self, w: Warp, op: WarpOp, t: float) -> None:
        """What an instruction does to mbarriers, and the bulk copies that it has made."""
        cluster, chip = w.cluster, self.chip
        for event in self.events.of(w.visit, op.index, w.trace.warp):
            kind, key = event[0], event[2]
            if kind == "store":
                size = event[2]
                read = self._served(w.sm, t, size / chip.shared_rate) + size / chip.shared_rate
                done = self._brought(w.sm, read, size) + self.miss_latency
                w.stored = (max(w.stored[0], read + chip.shared_latency), max(w.stored[1], done))
                self._span("bulk stores", w, op, t, done, size)
                self.last = max(self.last, int(done))
                continue
            if kind == "init":
                cluster.phases[key] = Phases(event[3])
                continue
            phases = cluster.phases.get(key)
            if phases is None:
                continue
            if kind == "arrive":
                phases.bytes += event[4]
                phases.pending -= event[1] * event[3]
                # The events of a workgroup that stands for all of its cluster say which of them come from others.
                remote = event[5] if len(event) > 5 else self.events.rank(key, cluster.first) != w.rank
                self._over(phases, t + (chip.remote_latency if remote else 0))
            elif kind == "expect":
                phases.bytes += event[3]
                self._over(phases, t)
            elif kind == "copied":
                phases.pending -= event[1] if event[3] else 0
                self._over(phases, max(t, w.copied))
            elif kind == "copy":
                size = event[3]
                sm = self.sms[self.events.rank(key, cluster.first) % self.ranks]
                phases.bytes -= size
                done = self._brought(sm, t, size) + self.miss_latency + chip.bulk_latency
                self._span("bulk loads", w, op, t, done, size)
                self._over(phases, done)

    def _over(self, phases: Phases, t: float) -> None:
        """Something has come to a phase at t; let those go who wait, if that was the last."""
        if t > phases.latest:
            phases.latest = t
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
        visits: Counter[int] = Counter()
        for which, times in self.started.items():
            for block, n in self.recorded[which].items():
                visits[block] += n * times
        for block, n in visits.items():
            for op in self.ops[block]:
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
            {op.index: n for block, n in visits.items() for op in self.ops[block] if op.kind != NAME},
            matrix / (SIMDS * self.ranks * window) if window > 0 else 0.0,
        )
