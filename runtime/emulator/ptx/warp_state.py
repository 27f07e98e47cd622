"""What the warp replay knows at one clock: SMs, workgroups and warps at work, mbarriers and barriers; and a copy of it.

In: what `warp_replay` does to them. Out: the same again, for a replay that goes on otherwise from there (`copied`).
Traces that begin alike are replayed together as far as they do: a `Fork` says how far that is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from wavedsl.runtime.emulator.cycle_chips import SIMDS
from wavedsl.runtime.emulator.cycle_queue import SectorCache
from wavedsl.runtime.emulator.ptx.trace import WarpTrace
from wavedsl.runtime.emulator.ptx.warp_ops import NAME, PORTS, WarpOp

NEVER = 1 << 62
"""Place of a trace that no warp reaches."""
Waves = list[tuple[float, int, "Warp"]]
"""A heap of (clock, age, warp)."""


class Sm:
    """Pipes of one SM."""

    __slots__ = ("beside", "cache", "changes", "far", "free", "link", "memory", "pipe", "queue", "tags", "waiting")

    def __init__(self, queue: int, l1_lines: int) -> None:
        self.free: list[dict[str, float]] = [dict.fromkeys(PORTS, 0.0) for _ in range(SIMDS)]
        """Per sub-core: pipe → when it takes the next instruction."""
        self.waiting: list[dict[str, list[tuple[int, Warp]]]] = [{port: [] for port in PORTS} for _ in range(SIMDS)]
        """Per sub-core: pipe → a heap of those whose next instruction has found it busy, or another just issued."""
        self.pipe = self.tags = self.link = self.far = self.memory = self.changes = 0.0
        """When the memory that is shared memory and L1, L1's tags, the link behind them, and this SM's shares of L2 and
        of memory are free."""
        self.beside = [0.0] * SIMDS
        """Per sub-core: clocks of that memory that others have asked for since its tensor core last read operands."""
        self.cache = SectorCache(l1_lines)
        self.queue: deque[float] = deque(maxlen=queue)

    def copied(self) -> Sm:
        """A copy for which nobody waits yet."""
        new = Sm(self.queue.maxlen or 0, self.cache.most)
        new.free = [dict(ports) for ports in self.free]
        new.pipe, new.tags, new.link, new.far, new.memory = self.pipe, self.tags, self.link, self.far, self.memory
        new.changes = self.changes
        new.beside = self.beside[:]
        new.cache.lines = self.cache.lines.copy()
        new.queue.extend(self.queue)
        return new


class Phases:
    """An mbarrier."""

    __slots__ = ("bytes", "expected", "latest", "over", "pending", "waiting")

    def __init__(self, expected: int):
        self.expected = self.pending = expected
        self.bytes = 0
        self.latest = 0.0
        self.over: list[float] = []
        """When each phase was over."""
        self.waiting: list[tuple[int, Warp]] = []


class Meeting:
    """One barrier of a workgroup, or that of a cluster."""

    __slots__ = ("arrived", "latest", "need", "waiting")

    def __init__(self) -> None:
        self.arrived = self.need = 0
        self.latest = 0.0
        self.waiting: list[Warp] = []


class Cluster:
    """A workgroup, or the workgroups of a cluster, at work."""

    __slots__ = ("ended", "first", "meetings", "phases", "slot", "touched", "warps")

    def __init__(self, slot: int, first: int, ranks: int):
        self.slot, self.first = slot, first
        self.touched = [SectorCache() for _ in range(ranks)]
        """By workgroup, what it has asked for: memory's part of that it has had."""
        self.warps: list[Warp] = []
        self.ended = 0
        self.phases: dict[int, Phases] = {}
        self.meetings: dict[tuple[int, int], Meeting] = {}
        """By (workgroup, number); the cluster's own is (-1, 0)."""


class Warp:
    """A warp at work."""

    __slots__ = (
        "accessed", "age", "closed", "cluster", "copied", "core", "end", "ended", "free", "groups", "lines", "listed",
        "mark", "next", "op", "ops", "place", "ports", "product", "queued", "rank", "ready", "reason", "shift", "sm",
        "stored", "stores", "trace", "visit", "waits",
    )  # fmt: skip

    def __init__(self, trace: WarpTrace, cluster: Cluster, rank: int, sm: Sm, core: int, at: float, age: int,
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
        self.mark = NEVER
        """The place in the trace at which the replay may have to fork."""
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

    def twin(self, cluster: Cluster, sm: Sm) -> Warp:
        """A copy in a copy of its workgroup and SM."""
        new = Warp.__new__(Warp)
        for name in Warp.__slots__:
            setattr(new, name, getattr(self, name))
        new.cluster, new.sm = cluster, sm
        new.ports, new.lines = sm.free[self.core], sm.waiting[self.core]
        new.ready, new.groups, new.stores = self.ready[:], self.groups[:], self.stores[:]
        new.closed = self.closed[:]
        return new


class Fork:
    """Where a replay of one workgroup's traces and that of `others`, other traces of its warps, go different ways."""

    __slots__ = ("marks", "others", "replay")

    def __init__(self, others: Sequence[WarpTrace], marks: Sequence[int]):
        self.others, self.marks = others, marks
        self.replay: Any = None
        """The `WarpReplay` of `others`, as it was when the first warp came to its mark."""


def marks_of(
    traces: Sequence[WarpTrace], others: Sequence[WarpTrace], ops: Callable[[int], Sequence[WarpOp]]
) -> list[int]:  # fmt: skip
    """By warp, the place from which on its visits may no longer be the same: the one behind the last block with an
    instruction (which `ops` gives) whose next one is the same, too. A warp that has loaded that instruction has seen
    nothing in which the traces differ. `NEVER` where they are the same; empty where a warp's differ from the start."""
    found = []
    for one, other in zip(traces, others):
        alike = next((i for i, (x, y) in enumerate(zip(one.visits, other.visits)) if x != y), None)
        if alike is None:
            if len(one.visits) == len(other.visits):
                found.append(NEVER)
                continue
            alike = min(len(one.visits), len(other.visits))
        place = alike - 1
        while place > 0 and all(op.kind == NAME for op in ops(one.visits[place - 1][0])):
            place -= 1
        if place <= 0:
            return []
        found.append(place)
    return found


def copied(sms: Sequence[Sm], at_work: Sequence[Cluster], waves: Waves) -> tuple[list[Sm], list[Cluster], Waves]:
    """SMs, the workgroups at work on them and the queue of their warps, with nothing of them that can change in common
    with these."""
    new_sms = [sm.copied() for sm in sms]
    by_id = {id(sm): new for sm, new in zip(sms, new_sms)}
    twins: dict[int, Warp] = {}
    clusters = []
    for cluster in at_work:
        new = Cluster(cluster.slot, cluster.first, len(cluster.touched))
        new.ended = cluster.ended
        for known, touched in zip(cluster.touched, new.touched):
            touched.lines = known.lines.copy()
        new.warps = [w.twin(new, by_id[id(w.sm)]) for w in cluster.warps]
        twins.update((id(w), twin) for w, twin in zip(cluster.warps, new.warps))
        clusters.append(new)
    for cluster, new in zip(at_work, clusters):
        for key, phases in cluster.phases.items():
            of = new.phases[key] = Phases(phases.expected)
            of.pending, of.bytes, of.latest, of.over = phases.pending, phases.bytes, phases.latest, phases.over[:]
            of.waiting = [(number, twins[id(w)]) for number, w in phases.waiting]
        for name, meeting in cluster.meetings.items():
            there = new.meetings[name] = Meeting()
            there.arrived, there.need, there.latest = meeting.arrived, meeting.need, meeting.latest
            there.waiting = [twins[id(w)] for w in meeting.waiting]
    for sm, new_sm in zip(sms, new_sms):
        for lines, new_lines in zip(sm.waiting, new_sm.waiting):
            for port, line in lines.items():
                new_lines[port].extend((age, twins[id(w)]) for age, w in line)
    return new_sms, clusters, [(at, age, twins[id(w)]) for at, age, w in waves]
