"""Modulo scheduling of a loop body, and what a schedule costs in buffers and registers.

Comes in: nodes with the units they occupy, edges with latency and distance (in iterations), copies of each unit. Goes
out: a `ModuloSchedule`: an initiation interval (II) and a start time per node, so that iterations started II apart
never collide.

The idea: Rau's iterative modulo scheduling. Nodes are placed highest first; a node without a free slot evicts what is
in its way and the evicted go back to the queue, until all are placed or the budget is spent and II grows. Occupancy of
a unit is one integer bit mask of II ticks, so that all legal starts of a node come from a few shifts. A unit that is
nearly full takes starts only on a raster of the node's own width, otherwise holes too small for anything fragment it.
Where the stage of every node is already known, `list_schedule_with_stages` orders the steady-state body in one pass.

Invariants: an edge holds iff `time[dst] + II * distance >= time[src] + latency`; the result depends on nothing but the
arguments. Times are in ticks of the caller's choice (the greatest common divisor of all occupancies keeps masks short).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wavedsl.ir.errors import CompileError


class SchedNode(NamedTuple):
    """One operation: `id` is its position among the nodes, `resources` the (unit, ticks) it occupies from its start."""

    id: int
    resources: tuple[tuple[str, int], ...]
    name: str = ""


class SchedEdge(NamedTuple):
    """`dst`, `distance` iterations later, starts at least `latency` ticks after `src`."""

    src: int
    dst: int
    latency: int
    distance: int


@dataclass(frozen=True)
class ModuloSchedule:
    """Start times of one iteration; the next starts `ii` later. `kind` is `modulo` or `list`."""

    ii: int
    times: tuple[int, ...]
    stages: tuple[int, ...]
    mii: int
    res_mii: int
    rec_mii: int
    tries: int
    kind: str = "modulo"

    @property
    def stage_count(self) -> int:
        return max(self.stages, default=0) + 1

    def order(self) -> tuple[int, ...]:
        """Nodes in the order the steady-state body issues them: by tick of the II, later stages (older iterations)
        first."""
        return tuple(
            sorted(range(len(self.times)), key=lambda v: (self.times[v] % self.ii, -self.stages[v], v))
        )


# ---- bounds ----------------------------------------------------------------------------------------------------------


def resource_mii(nodes: Sequence[SchedNode], capacity: Mapping[str, int]) -> int:
    """Ticks the busiest unit needs per iteration. Raises CompileError when a node uses a unit without capacity."""
    use: dict[str, int] = {}
    longest = 1
    for node in nodes:
        for unit, ticks in node.resources:
            if capacity.get(unit, 0) < 1:
                raise CompileError(f"node {node.id} {node.name} uses unit {unit!r}, of which there is none")
            use[unit] = use.get(unit, 0) + ticks
            longest = max(longest, ticks)
    return max(longest, max((-(-ticks // capacity[unit]) for unit, ticks in use.items()), default=1))


def _components(n: int, successors: Sequence[Sequence[int]]) -> list[int]:
    """Strongly connected component of every node (Tarjan, iterative)."""
    index, low, component = [-1] * n, [0] * n, [-1] * n
    stack: list[int] = []
    count = 0
    for root in range(n):
        if index[root] >= 0:
            continue
        work = [(root, 0)]
        while work:
            v, i = work.pop()
            if i == 0:
                index[v] = low[v] = count
                count += 1
                stack.append(v)
            after = successors[v]
            while i < len(after):
                w = after[i]
                if index[w] < 0:
                    work.append((v, i))
                    work.append((w, 0))
                    break
                if component[w] < 0:
                    low[v] = min(low[v], low[w])
                i += 1
            else:
                if low[v] == index[v]:
                    while component[v] < 0:
                        component[stack.pop()] = v
                elif work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[v])
    return component


def recurrence_mii(n: int, edges: Sequence[SchedEdge]) -> int:
    """Smallest II (at least 1) for which no cycle of edges asks for more than its distances allow.

    Starts at the self loops, and raises II to the ratio of a violated cycle until there is none. Raises CompileError
    for a cycle without distance: such a loop body has no order.
    """
    successors: list[list[int]] = [[] for _ in range(n)]
    for e in edges:
        successors[e.src].append(e.dst)
    component = _components(n, successors)
    cyclic = [e for e in edges if component[e.src] == component[e.dst]]
    ii = 1
    for e in cyclic:
        if e.src == e.dst:
            ii = max(ii, _cycle_ratio([e]))
    cyclic = [e for e in cyclic if e.src != e.dst]
    while cyclic:
        violated = _positive_cycle(n, cyclic, ii)
        if not violated:
            break
        ii = _cycle_ratio(violated)
    return ii


def _cycle_ratio(cycle: Sequence[SchedEdge]) -> int:
    latency, distance = sum(e.latency for e in cycle), sum(e.distance for e in cycle)
    if distance <= 0:
        if latency > 0:
            raise CompileError(f"nodes {sorted(e.src for e in cycle)} wait for each other within one iteration")
        return 1
    return -(-latency // distance)


def _positive_cycle(n: int, edges: Sequence[SchedEdge], ii: int) -> list[SchedEdge]:
    """Edges of some cycle whose latency exceeds II times its distance, or nothing."""
    start = [0] * n
    parent: list[SchedEdge | None] = [None] * n
    weighted = [(e.src, e.dst, e.latency - e.distance * ii, e) for e in edges]
    while True:
        changed = False
        for s, d, w, e in weighted:
            x = start[s] + w
            if x > start[d]:
                start[d] = x
                parent[d] = e
                changed = True
        if not changed:
            return []
        seen = [-1] * n  # walk the parents: a walk that meets itself closed a positive cycle
        for v in range(n):
            u = v
            while seen[u] < 0 and parent[u] is not None:
                seen[u] = v
                u = parent[u].src  # type: ignore[union-attr]
            if seen[u] == v and parent[u] is not None:
                cycle, w = [], u
                while True:
                    edge = parent[w]
                    assert edge is not None
                    cycle.append(edge)
                    w = edge.src
                    if w == u:
                        return cycle


def topological_order(n: int, edges: Sequence[SchedEdge]) -> list[int]:
    """Nodes ordered by the edges of distance 0. Raises CompileError if those form a cycle."""
    degree = [0] * n
    out: list[list[int]] = [[] for _ in range(n)]
    for e in edges:
        if e.distance == 0:
            out[e.src].append(e.dst)
            degree[e.dst] += 1
    order = [v for v in range(n) if not degree[v]]
    for v in order:
        for d in out[v]:
            degree[d] -= 1
            if not degree[d]:
                order.append(d)
    if len(order) < n:
        raise CompileError(f"nodes {[v for v in range(n) if degree[v]]} wait for each other within one iteration")
    return order


# ---- iterative modulo scheduling -------------------------------------------------------------------------------------


class _Table:
    """Modulo reservation table. Per unit and copy a bit mask of occupied ticks; per (unit, ticks) the starts it
    blocks."""

    def __init__(self, ii: int, nodes: Sequence[SchedNode], capacity: Mapping[str, int], raster: bool):
        self.ii = ii
        self.full = (1 << ii) - 1
        use: dict[str, int] = {}
        self.widths: dict[str, list[int]] = {}
        for node in nodes:
            for unit, ticks in node.resources:
                use[unit] = use.get(unit, 0) + ticks
                known = self.widths.setdefault(unit, [])
                if ticks not in known:
                    known.append(ticks)
        self.capacity = {unit: capacity[unit] for unit in use}
        self.busy: dict[str, list[int]] = {unit: [0] * c for unit, c in self.capacity.items()}
        self.blocked: dict[tuple[str, int], list[int]] = {
            (unit, ticks): [0] * self.capacity[unit] for unit, known in self.widths.items() for ticks in known
        }
        # per unit and copy: first tick of an occupant → (node, ticks)
        self.held: dict[str, list[dict[int, tuple[int, int]]]] = {
            unit: [{} for _ in range(c)] for unit, c in self.capacity.items()
        }
        self.grid: list[int] = [self.full] * len(nodes)
        if raster:
            hot = {unit for unit, ticks in use.items() if ticks * 10 >= 9 * ii * self.capacity[unit]}
            offset = {unit: i for i, unit in enumerate(sorted(use))}
            masks: dict[tuple[int, str], int] = {}
            for v, node in enumerate(nodes):
                ticks, unit = max(((c, u) for u, c in node.resources if u in hot), default=(1, ""))
                if ticks > 1 and ii % ticks == 0:
                    mask = masks.get((ticks, unit))
                    if mask is None:
                        first = offset[unit] % ticks
                        mask = masks[ticks, unit] = sum(1 << k for k in range(first, ii, ticks))
                    self.grid[v] = mask

    def rotate(self, mask: int, by: int) -> int:
        """Tick `by + k` moves to tick k, modulo II."""
        return (mask >> by | mask << (self.ii - by)) & self.full

    def first_start(self, v: int, resources: tuple[tuple[str, int], ...], earliest: int) -> int | None:
        """The first start in the II ticks from `earliest` with every unit free."""
        free = self.grid[v]
        for key in resources:
            copies = self.blocked[key]
            blocked = copies[0]
            for other in copies[1:]:
                blocked &= other
            free &= ~blocked
        if not free:
            return None
        free = self.rotate(free, earliest % self.ii)
        return earliest + (free & -free).bit_length() - 1

    def put(self, v: int, resources: tuple[tuple[str, int], ...], start: int) -> None:
        ii = self.ii
        for key in resources:
            unit, ticks = key
            at = start % ii
            copy = next((c for c, blocked in enumerate(self.blocked[key]) if not blocked >> at & 1), -1)
            if copy < 0:
                raise CompileError(f"no copy of {unit} is free for node {v} from tick {at} of {ii}")
            self.held[unit][copy][at] = (v, ticks)
            self.busy[unit][copy] |= self._arc(at, ticks)
            for width in self.widths[unit]:
                self.blocked[unit, width][copy] |= self._arc(at - width + 1, ticks + width - 1)

    def _arc(self, first: int, ticks: int) -> int:
        """Mask of `ticks` consecutive ticks from `first`, modulo II."""
        if ticks >= self.ii:
            return self.full
        mask = (1 << ticks) - 1 << first % self.ii
        return (mask | mask >> self.ii) & self.full

    def take(self, v: int, resources: tuple[tuple[str, int], ...], start: int) -> None:
        at = start % self.ii
        for unit, ticks in resources:
            copy = next(c for c, held in enumerate(self.held[unit]) if held.get(at, (-1, 0))[0] == v)
            del self.held[unit][copy][at]
            busy = self.busy[unit][copy] = self.busy[unit][copy] & ~self._arc(at, ticks)
            for width in self.widths[unit]:
                blocked, done = busy, 1
                while done < width:  # busy in any of the `width` ticks from a start, by doubling
                    step = min(done, width - done)
                    blocked |= self.rotate(blocked, step % self.ii)
                    done += step
                self.blocked[unit, width][copy] = blocked

    def in_the_way(self, resources: tuple[tuple[str, int], ...], start: int) -> list[int]:
        """Nodes to evict so that `resources` fit at `start`: per unit those of the copy with the fewest."""
        victims: list[int] = []
        for unit, ticks in resources:
            widest = max(self.widths[unit])
            near = list(dict.fromkeys((start + k) % self.ii for k in range(1 - widest, ticks)))
            arc = self._arc(start, ticks)
            choices = [
                [held[at][0] for at in near if at in held and self._arc(at, held[at][1]) & arc]
                for held in self.held[unit]
            ]
            victims += [w for w in min(choices, key=len) if w not in victims]
        return victims


def modulo_schedule(
    nodes: Sequence[SchedNode],
    edges: Sequence[SchedEdge],
    capacity: Mapping[str, int],
    *,
    max_tries: int = 3,
    max_ii: int | None = None,
    min_ii: int = 1,
    budget: int = 6,
) -> ModuloSchedule | None:
    """Rau's iterative modulo scheduling, or None when `max_tries` values of II (from `min_ii`, up to `max_ii`) failed.

    `budget` bounds the placements per II to `budget * len(nodes)`. Raises CompileError on a unit without capacity and
    on a cycle without distance.
    """
    n = len(nodes)
    _check_ids(nodes, edges)
    res, rec = resource_mii(nodes, capacity), recurrence_mii(n, edges)
    mii = max(res, rec)
    ii = max(mii, min_ii)
    order = topological_order(n, edges)
    outgoing: list[list[tuple[int, int, int]]] = [[] for _ in range(n)]
    incoming: list[list[tuple[int, int, int]]] = [[] for _ in range(n)]
    for s, d, latency, distance in edges:
        if s != d:
            outgoing[s].append((d, latency, distance))
            incoming[d].append((s, latency, distance))
    tries = 0
    while tries < max_tries and (max_ii is None or ii <= max_ii):
        tries += 1
        height = _heights(order, outgoing, ii)
        for raster in (True, False):
            times = _place_all(nodes, incoming, outgoing, height, _Table(ii, nodes, capacity, raster), budget * n)
            if times is not None:
                return _finished(times, ii, mii, res, rec, tries, "modulo")
        ii += max(1, ii // 32)
    return None


def _check_ids(nodes: Sequence[SchedNode], edges: Sequence[SchedEdge]) -> None:
    if any(node.id != i for i, node in enumerate(nodes)):
        raise CompileError("the id of a schedule node is its position")
    for node in nodes:
        if len(node.resources) > 1 and len({unit for unit, _ in node.resources}) < len(node.resources):
            raise CompileError(f"node {node.id} {node.name} lists a unit twice")
        if any(ticks < 1 for _, ticks in node.resources):
            raise CompileError(f"node {node.id} {node.name} occupies a unit for less than a tick")
    n = len(nodes)
    for e in edges:
        if not (0 <= e.src < n and 0 <= e.dst < n) or e.distance < 0:
            raise CompileError(f"{e} does not join two of {n} nodes forwards in iterations")


def _heights(order: Sequence[int], outgoing: Sequence[Sequence[tuple[int, int, int]]], ii: int) -> list[int]:
    """Longest path from each node to any end at this II: the priority of list and modulo scheduling."""
    height = [0] * len(order)
    changed = True
    while changed:  # ends because II is at least the recurrence bound
        changed = False
        for v in reversed(order):
            best = height[v]
            for d, latency, distance in outgoing[v]:
                h = height[d] + latency - distance * ii
                if h > best:
                    best = h
            if best > height[v]:
                height[v] = best
                changed = True
    return height


def _place_all(
    nodes: Sequence[SchedNode],
    incoming: Sequence[Sequence[tuple[int, int, int]]],
    outgoing: Sequence[Sequence[tuple[int, int, int]]],
    height: Sequence[int],
    table: _Table,
    budget: int,
) -> list[int] | None:
    """One attempt at one II: start times, or None when the budget ran out."""
    n, ii = len(nodes), table.ii
    unplaced = -1
    times, last = [unplaced] * n, [-1] * n
    queue = [(-height[v], v) for v in range(n)]
    heapq.heapify(queue)

    def evict(w: int) -> None:
        table.take(w, nodes[w].resources, times[w])
        times[w] = unplaced
        heapq.heappush(queue, (-height[w], w))

    while queue:
        if budget == 0:
            return None
        budget -= 1
        _, v = heapq.heappop(queue)
        earliest = 0
        for s, latency, distance in incoming[v]:
            if times[s] >= 0:
                x = times[s] + latency - distance * ii
                if x > earliest:
                    earliest = x
        resources = nodes[v].resources
        start = table.first_start(v, resources, earliest)
        if start is None:
            start = max(earliest, last[v] + 1)
            ahead = table.rotate(table.grid[v], start % ii)
            start += (ahead & -ahead).bit_length() - 1
            for w in table.in_the_way(resources, start):
                evict(w)
        times[v] = last[v] = start
        table.put(v, resources, start)
        for d, latency, distance in outgoing[v]:
            if 0 <= times[d] < start + latency - distance * ii:
                evict(d)
    return times


def _finished(
    times: Sequence[int], ii: int, mii: int, res: int, rec: int, tries: int, kind: str
) -> ModuloSchedule:
    """Times shifted by whole IIs so that the earliest stage is 0 (a shift by less would move every node's tick)."""
    first = min(times, default=0) // ii * ii
    shifted = tuple(t - first for t in times)
    return ModuloSchedule(ii, shifted, tuple(t // ii for t in shifted), mii, res, rec, tries, kind)


# ---- stages given: cyclic list scheduling ----------------------------------------------------------------------------


def list_schedule_with_stages(
    nodes: Sequence[SchedNode], edges: Sequence[SchedEdge], capacity: Mapping[str, int], stages: Sequence[int],
    urgent: Mapping[int, int] | None = None,
) -> ModuloSchedule:  # fmt: skip
    """The steady-state body in one pass of list scheduling, with the pipeline stage of every node given.

    `urgent[v] = w`: v goes before w where both are ready.

    An edge reaches `distance + stage[dst] - stage[src]` windows ahead: 0 orders the body, more bounds II afterwards.
    All stages 0 is the plain loop. Raises CompileError when an edge would run backwards in time.
    """
    n = len(nodes)
    _check_ids(nodes, edges)
    res, rec = resource_mii(nodes, capacity), recurrence_mii(n, edges)
    inside: list[SchedEdge] = []
    ahead: list[tuple[int, int, int, int]] = []
    for e in edges:
        window = e.distance + stages[e.dst] - stages[e.src]
        if window < 0 or (window == 0 and e.src == e.dst and e.latency > 0):
            raise CompileError(
                f"node {e.dst} {nodes[e.dst].name} in stage {stages[e.dst]} comes before"
                f" node {e.src} {nodes[e.src].name} in stage {stages[e.src]}, which it waits for"
            )
        if window == 0:
            inside.append(SchedEdge(e.src, e.dst, e.latency, 0))
        else:
            ahead.append((e.src, e.dst, e.latency, window))
    order = topological_order(n, inside)
    out: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    degree = [0] * n
    for e in inside:
        out[e.src].append((e.dst, e.latency))
        degree[e.dst] += 1
    height = [max((ticks for _, ticks in node.resources), default=0) for node in nodes]
    for v in reversed(order):
        for d, latency in out[v]:
            height[v] = max(height[v], height[d] + latency)
    for v, w in (urgent or {}).items():
        height[v] = max(height[v], height[w] + 1)
    free: dict[str, list[int]] = {unit: [0] * copies for unit, copies in sorted(capacity.items())}
    times, ready_at = [0] * n, [0] * n
    ready = [(-height[v], v) for v in range(n) if not degree[v]]
    heapq.heapify(ready)
    waiting: list[tuple[int, int]] = []
    clock = 0
    while ready or waiting:
        while waiting and waiting[0][0] <= clock:
            v = heapq.heappop(waiting)[1]
            heapq.heappush(ready, (-height[v], v))
        picked, passed, soonest = -1, [], None
        while ready:
            item = heapq.heappop(ready)
            start = max((min(free[unit]) for unit, _ in nodes[item[1]].resources), default=clock)
            if start <= clock:
                picked = item[1]
                break
            passed.append(item)
            soonest = start if soonest is None else min(soonest, start)
            if len(passed) > 8:  # units that are busy for the highest are busy for most: looking further rarely pays
                break
        for item in passed:
            heapq.heappush(ready, item)
        if picked < 0:
            if waiting:
                soonest = waiting[0][0] if soonest is None else min(soonest, waiting[0][0])
            assert soonest is not None
            clock = max(clock + 1, soonest)
            continue
        times[picked] = clock
        for unit, ticks in nodes[picked].resources:
            copies = free[unit]
            copies[copies.index(min(copies))] = clock + ticks
        for d, latency in out[picked]:
            ready_at[d] = max(ready_at[d], clock + latency)
            degree[d] -= 1
            if not degree[d]:
                heapq.heappush(waiting, (ready_at[d], d))
    ii = max(1, res, *(max(copies) for copies in free.values()), *(t + 1 for t in times))
    for s, d, latency, window in ahead:
        ii = max(ii, -(-(times[s] + latency - times[d]) // window))
    placed = [t + stage * ii for t, stage in zip(times, stages)]
    return _finished(placed, ii, max(res, rec), res, rec, 1, "list")


def lighten(
    schedule: ModuloSchedule,
    nodes: Sequence[SchedNode],
    edges: Sequence[SchedEdge],
    capacity: Mapping[str, int],
    stages: Sequence[int],
    values: Sequence[Value],
    enders: Iterable[int],
    makers: Iterable[int],
    slower: float,
) -> ModuloSchedule:
    """A list schedule with fewer registers: `enders` (which give registers back) become more urgent than some of the
    `makers` (which take some), where the trip becomes at most `slower` times as long.

    Tries one node at a time before the latest maker that shortens the trip or lowers MaxLive; deterministic.
    """
    best, limit = schedule, int(schedule.ii * slower)
    live = sum(max_live(best, values).values())
    urgent: dict[int, int] = {}
    takers = sorted(makers, key=lambda v: (-(schedule.times[v] % schedule.ii), v))
    for v in sorted(enders, key=lambda v: (schedule.times[v] % schedule.ii, v)):
        for taker in takers:
            if best.times[taker] % best.ii > best.times[v] % best.ii:
                continue
            found = list_schedule_with_stages(nodes, edges, capacity, stages, {**urgent, v: taker})
            now = sum(max_live(found, values).values())
            if found.ii <= limit and (now < live or (now == live and found.ii < best.ii)):
                urgent[v] = taker
                best, live = found, now
                break
    return best


def schedule_loop(
    nodes: Sequence[SchedNode],
    edges: Sequence[SchedEdge],
    capacity: Mapping[str, int],
    stages: Sequence[int] | None = None,
    *,
    node_limit: int = 200,
    max_tries: int = 3,
) -> ModuloSchedule:
    """The better of modulo scheduling (up to `node_limit` nodes) and list scheduling with `stages`; ties go to fewer
    stages.

    Without stages the alternative is the unpipelined body, so there is always a result.
    """
    found = modulo_schedule(nodes, edges, capacity, max_tries=max_tries) if len(nodes) <= node_limit else None
    if found is not None and found.ii == found.mii and stages is None:
        return found
    choices = [list_schedule_with_stages(nodes, edges, capacity, stages or [0] * len(nodes))]
    if found is not None:
        choices.append(found)
    return min(choices, key=lambda s: (s.ii, s.stage_count, s.kind == "list"))


# ---- what a schedule costs -------------------------------------------------------------------------------------------


def sink(
    schedule: ModuloSchedule,
    nodes: Sequence[SchedNode],
    edges: Sequence[SchedEdge],
    capacity: Mapping[str, int],
    movable: Iterable[int],
    limits: Mapping[int, int] | None = None,
) -> ModuloSchedule:
    """Starts `movable` nodes (loads whose results wait in registers) as late as their users and the units allow, and
    not after the time that `limits` gives.

    Modulo scheduling starts everything as early as it can; that costs registers and gains nothing. II stays; a node
    only moves later within its slack, latest nodes first.
    """
    ii = schedule.ii
    times = list(schedule.times)
    table = _Table(ii, nodes, capacity, False)
    try:
        for v in sorted(range(len(nodes)), key=lambda v: times[v]):
            table.put(v, nodes[v].resources, times[v])
    except CompileError:  # first fit found no assignment to several copies of a unit, though one exists: leave it be
        return schedule
    outgoing: list[list[tuple[int, int, int]]] = [[] for _ in nodes]
    for s, d, latency, distance in edges:
        if s != d:
            outgoing[s].append((d, latency, distance))
    for v in sorted(dict.fromkeys(movable), key=lambda v: (-times[v], v)):
        if not outgoing[v]:
            continue
        latest = min(times[d] + distance * ii - latency for d, latency, distance in outgoing[v])
        if limits is not None and v in limits:
            latest = min(latest, limits[v])
        if latest <= times[v]:
            continue
        resources = nodes[v].resources
        table.take(v, resources, times[v])
        first = max(times[v], latest - ii + 1)
        free = table.full
        for key in resources:
            blocked = table.full
            for copy in table.blocked[key]:
                blocked &= copy
            free &= ~blocked
        span = latest - first + 1
        window = table.rotate(free, first % ii) & ((1 << span) - 1)
        if window:  # bits count from `first`; the node's own start is among them only if it lies in this last II
            times[v] = first + window.bit_length() - 1
        table.put(v, resources, times[v])
    return _finished(times, ii, schedule.mii, schedule.res_mii, schedule.rec_mii, schedule.tries, schedule.kind)


@dataclass(frozen=True)
class Value:
    """A result that `registers` registers of `register_class` hold from the start of `node` to its last use.

    `uses` are (node, distance, ticks): the register is read until `ticks` after that node starts, `distance` iterations
    on.
    """

    node: int
    uses: tuple[tuple[int, int, int], ...]
    registers: int
    register_class: str = "v"


def lifetime(schedule: ModuloSchedule, value: Value) -> int:
    """Ticks from definition to the end of the last use; 0 without a use."""
    born = schedule.times[value.node]
    return max((schedule.times[u] + d * schedule.ii + ticks - born for u, d, ticks in value.uses), default=0)


def copies_needed(ticks: int, ii: int) -> int:
    """Instances of something that lives `ticks` and is made anew every `ii`: slots of a buffer, copies of a
    register."""
    return max(1, -(-ticks // ii))


def buffer_slots(
    schedule: ModuloSchedule, writers: Iterable[int], readers: Iterable[tuple[int, int, int]]
) -> int:
    """Slots of a buffer: from the start of the first writer to the end of the last reader, in units of II.

    `readers` are (node, distance, ticks until the read has returned).
    """
    first = min(schedule.times[w] for w in writers)
    last = max(schedule.times[r] + d * schedule.ii + ticks for r, d, ticks in readers)
    return copies_needed(last - first, schedule.ii)


def max_live(schedule: ModuloSchedule, values: Iterable[Value]) -> dict[str, int]:
    """Per register class, the most registers alive at any tick of the steady state (MaxLive)."""
    ii = schedule.ii
    change: dict[str, list[int]] = {}
    always: dict[str, int] = {}
    for value in values:
        delta = change.setdefault(value.register_class, [0] * (ii + 1))
        ticks = lifetime(schedule, value)
        whole, rest = divmod(ticks, ii)
        always[value.register_class] = always.get(value.register_class, 0) + whole * value.registers
        start = schedule.times[value.node] % ii
        end = start + rest
        delta[start] += value.registers
        if end <= ii:
            delta[end] -= value.registers
        else:
            delta[ii] -= value.registers
            delta[0] += value.registers
            delta[end - ii] -= value.registers
    live: dict[str, int] = {}
    for register_class, delta in change.items():
        now = peak = 0
        for d in delta[:ii]:
            now += d
            peak = max(peak, now)
        live[register_class] = peak + always[register_class]
    return live
