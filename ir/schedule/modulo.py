"""Modulo scheduling of a loop body. What a schedule costs in registers is in `schedule_registers.py`.

Comes in: nodes with the units they occupy, edges with latency and distance (in iterations), copies of each unit. Goes
out: a `ModuloSchedule`: an initiation interval (II) and a start time per node, so that iterations started II apart
never collide.

The idea: Rau's iterative modulo scheduling. Nodes are placed highest first; a node without a free slot evicts what is
in its way and the evicted go back to the queue, until all are placed or the budget is spent and II grows. Occupancy of
a unit is one integer bit mask of II ticks, so that all legal starts of a node come from a few shifts. No II is tried
that `schedule_bounds.py` proves too short. A unit that is nearly full takes starts only on a raster of the node's
own width, otherwise holes too small for anything fragment it.
Where the stage of every node is already known, `list_schedule_with_stages` orders the steady-state body in one pass.

Invariants: an edge holds iff `time[dst] + II * distance >= time[src] + latency`; the result depends on nothing but the
arguments. Times are in ticks of the caller's choice (the greatest common divisor of all occupancies keeps masks short).
"""

from __future__ import annotations

import functools
import heapq
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence

from wavedsl.ir.errors import CompileError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.schedule_bounds import (
    SchedEdge,
    SchedNode,
    occupied_mii,
    recurrence_mii,
    resource_mii,
    topological_order,
)


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
        return tuple(sorted(range(len(self.times)), key=lambda v: (self.times[v] % self.ii, -self.stages[v], v)))


# ---- iterative modulo scheduling -------------------------------------------------------------------------------------


class _Table:
    """Modulo reservation table: per unit and copy a bit mask of busy ticks, one of the ticks at which occupants start,
    and those occupants. Which starts are free for a width follows from the busy ticks by a few shifts."""

    def __init__(self, ii: int, nodes: Sequence[SchedNode], capacity: Mapping[str, int], raster: bool):
        self.ii = ii
        self.full = (1 << ii) - 1
        use: dict[str, int] = {}
        self.widest: dict[str, int] = {}
        for node in nodes:
            for unit, ticks in node.resources:
                use[unit] = use.get(unit, 0) + ticks
                if ticks > self.widest.get(unit, 0):
                    self.widest[unit] = ticks
        self.busy: dict[str, list[int]] = {unit: [0] * capacity[unit] for unit in use}
        self.starts: dict[str, list[int]] = {unit: [0] * capacity[unit] for unit in use}
        # per unit and copy: first tick of an occupant → (node, ticks)
        self.held: dict[str, list[dict[int, tuple[int, int]]]] = {
            unit: [{} for _ in range(capacity[unit])] for unit in use
        }
        self.grid: dict[int, int] = {}
        """Per node that keeps to a raster the starts on it, for the others nothing."""
        if raster:
            hot = {unit for unit, ticks in use.items() if ticks * 10 >= 9 * ii * capacity[unit]}
            offset = {unit: i for i, unit in enumerate(sorted(use))}
            masks: dict[tuple[int, str], int] = {}
            for v, node in enumerate(nodes) if hot else ():
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

    def free(self, resources: tuple[tuple[str, int], ...]) -> int:
        """The starts at which every unit has a copy that is free for as long as it is needed."""
        blocked = 0
        for unit, ticks in resources:
            everywhere = -1
            for busy in self.busy[unit]:
                if ticks > 1 and busy:
                    busy |= (busy & (1 << ticks) - 1) << self.ii
                    done = 1
                    while done < ticks:  # busy in any of the `ticks` ticks from a start, by doubling
                        step = min(done, ticks - done)
                        busy |= busy >> step
                        done += step
                everywhere &= busy
            blocked |= everywhere
        return self.full & ~blocked

    def put(self, v: int, resources: tuple[tuple[str, int], ...], start: int) -> None:
        at = start % self.ii
        for unit, ticks in resources:
            arc = self._arc(at, ticks)
            for copy, busy in enumerate(self.busy[unit]):
                if not busy & arc:
                    self.busy[unit][copy] = busy | arc
                    self.starts[unit][copy] |= 1 << at
                    self.held[unit][copy][at] = v, ticks
                    break
            else:
                raise CompileError(f"no copy of {unit} is free for node {v} from tick {at} of {self.ii}")

    def _arc(self, at: int, ticks: int) -> int:
        """Mask of `ticks` consecutive ticks, at most II, from `at`, modulo II."""
        mask = ((1 << ticks) - 1) << at
        return mask if at + ticks <= self.ii else (mask | mask >> self.ii) & self.full

    def take(self, v: int, resources: tuple[tuple[str, int], ...], start: int) -> None:
        at = start % self.ii
        for unit, ticks in resources:
            for copy, held in enumerate(self.held[unit]):
                if at in held and held[at][0] == v:
                    del held[at]
                    self.busy[unit][copy] ^= self._arc(at, ticks)
                    self.starts[unit][copy] ^= 1 << at
                    break

    def in_the_way(self, resources: tuple[tuple[str, int], ...], start: int) -> set[int]:
        """Nodes to evict so that `resources` fit at `start`: per unit those of the copy with the fewest."""
        victims: set[int] = set()
        for unit, ticks in resources:
            before = self.widest[unit] - 1  # an occupant that starts earlier has ended
            first = (start - before) % self.ii
            fewest: list[int] | None = None
            for starts, held in zip(self.starts[unit], self.held[unit]):
                near = self.rotate(starts, first) & (1 << before + ticks) - 1
                found = []
                while near:
                    k = (near & -near).bit_length() - 1
                    near &= near - 1
                    w, lasts = held[(first + k) % self.ii]
                    if k >= before or k + lasts > before or k - before + self.ii < ticks:
                        found.append(w)
                if fewest is None or len(found) < len(fewest):
                    fewest = found
            victims.update(fewest or ())
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
    on a cycle without distance. The last `KEPT` answers are kept: other sizes of a kernel have the same loop bodies.
    """
    return _modulo_schedule(tuple(nodes), tuple(edges), tuple(capacity.items()), max_tries, max_ii, min_ii, budget)


KEPT = 32
"""Searches that `modulo_schedule` remembers."""


@functools.lru_cache(KEPT)
def _modulo_schedule(
    nodes: tuple[SchedNode, ...], edges: tuple[SchedEdge, ...], units: tuple[tuple[str, int], ...],
    max_tries: int, max_ii: int | None, min_ii: int, budget: int,
) -> ModuloSchedule | None:  # fmt: skip
    n = len(nodes)
    capacity = dict(units)
    _check_ids(nodes, edges)
    res, rec = resource_mii(nodes, capacity), recurrence_mii(n, edges)
    mii = max(res, rec)
    ii = max(mii, min_ii)
    if max_ii is not None and ii > max_ii:
        return None
    order = topological_order(n, edges)
    links = [e for e in dict.fromkeys(edges) if e.src != e.dst]
    possible = occupied_mii(nodes, links, capacity, order)
    for tries in range(1, max_tries + 1):
        if max_ii is not None and ii > max_ii:
            break
        if ii < possible:
            ii += max(1, ii // 32)
            continue
        outgoing: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        incoming: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        for s, d, latency, distance in links:
            outgoing[s].append((d, latency - distance * ii))
            incoming[d].append((s, latency - distance * ii))
        height = _heights(order, outgoing)
        table = _Table(ii, nodes, capacity, True)
        times = _place_all(nodes, incoming, outgoing, height, table, budget * n)
        if times is None and table.grid:  # else it would be the same search again
            table = _Table(ii, nodes, capacity, False)
            times = _place_all(nodes, incoming, outgoing, height, table, budget * n)
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


def _heights(order: Sequence[int], outgoing: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """Longest path from each node to any end: the priority of list and modulo scheduling. An edge is (node, weight)."""
    height = [0] * len(order)
    changed = True
    while changed:  # ends because II is at least the recurrence bound
        changed = False
        for v in reversed(order):
            best = height[v]
            for d, wait in outgoing[v]:
                if height[d] + wait > best:
                    best = height[d] + wait
            if best > height[v]:
                height[v] = best
                changed = True
    return height


def _place_all(
    nodes: Sequence[SchedNode],
    incoming: Sequence[Sequence[tuple[int, int]]],
    outgoing: Sequence[Sequence[tuple[int, int]]],
    height: Sequence[int],
    table: _Table,
    budget: int,
) -> list[int] | None:
    """One attempt at one II: start times, or None when the budget ran out. In `incoming` and `outgoing` an edge is
    (other node, latency - II * distance)."""
    n, ii = len(nodes), table.ii
    unplaced = -1
    times, last = [unplaced] * n, [-1] * n
    by_rank = sorted(range(n), key=lambda v: (-height[v], v))
    bit = [0] * n
    for rank, v in enumerate(by_rank):
        bit[v] = 1 << rank
    queue = (1 << n) - 1  # a bit per node that is to be placed, the highest first

    while queue:
        if budget == 0:
            return None
        budget -= 1
        first = queue & -queue
        queue ^= first
        v = by_rank[first.bit_length() - 1]
        earliest = 0
        for s, wait in incoming[v]:
            if times[s] >= 0 and times[s] + wait > earliest:
                earliest = times[s] + wait
        resources = nodes[v].resources
        grid = table.grid.get(v, table.full)
        free = table.free(resources) & grid
        if free:
            start = earliest
            free = table.rotate(free, start % ii)
            start += (free & -free).bit_length() - 1
        else:
            start = max(earliest, last[v] + 1)
            grid = table.rotate(grid, start % ii)
            start += (grid & -grid).bit_length() - 1
            for w in table.in_the_way(resources, start):
                table.take(w, nodes[w].resources, times[w])
                times[w] = unplaced
                queue |= bit[w]
        times[v] = last[v] = start
        table.put(v, resources, start)
        for d, wait in outgoing[v]:
            if unplaced < times[d] < start + wait:
                table.take(d, nodes[d].resources, times[d])
                times[d] = unplaced
                queue |= bit[d]
    return times


def _finished(times: Sequence[int], ii: int, mii: int, res: int, rec: int, tries: int, kind: str) -> ModuloSchedule:
    """Times shifted by whole IIs so that the earliest stage is 0 (a shift by less would move every node's tick)."""
    first = min(times, default=0) // ii * ii
    shifted = tuple(t - first for t in times)
    return ModuloSchedule(ii, shifted, tuple(t // ii for t in shifted), mii, res, rec, tries, kind)


# ---- stages given: cyclic list scheduling ----------------------------------------------------------------------------


LOOK = 9
"""Nodes, the most urgent first, that list scheduling looks at for one that can start."""


def list_schedule_with_stages(
    nodes: Sequence[SchedNode], edges: Sequence[SchedEdge], capacity: Mapping[str, int], stages: Sequence[int],
    urgent: Mapping[int, int] | None = None, first: Iterable[int] = (),
) -> ModuloSchedule:  # fmt: skip
    """The steady-state body in one pass of list scheduling, with the pipeline stage of every node given.

    `urgent[v] = w`: v goes before w where both are ready. `first` go before all others.

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
    above = max(height, default=0)
    for v in first:
        height[v] += above
    free: dict[str, list[int]] = {unit: [0] * copies for unit, copies in sorted(capacity.items())}
    times, ready_at = [0] * n, [0] * n
    first_free = dict.fromkeys(free, 0)  # per unit the tick from which some copy is free
    ready = sorted((-height[v], v) for v in range(n) if not degree[v])
    waiting: list[tuple[int, int]] = []
    clock = 0
    while ready or waiting:
        while waiting and waiting[0][0] <= clock:
            v = heapq.heappop(waiting)[1]
            insort(ready, (-height[v], v))
        picked, soonest = -1, waiting[0][0] if waiting else None
        # Units that are busy for the highest are busy for most: looking further than a few rarely pays.
        for place, (_, v) in enumerate(ready[:LOOK]):
            start = clock
            for unit, _ in nodes[v].resources:
                if first_free[unit] > start:
                    start = first_free[unit]
            if start <= clock:
                picked = v
                del ready[place]
                break
            if soonest is None or start < soonest:
                soonest = start
        if picked < 0:
            assert soonest is not None
            clock = max(clock + 1, soonest)
            continue
        times[picked] = clock
        for unit, ticks in nodes[picked].resources:
            copies = free[unit]
            copies[copies.index(first_free[unit])] = clock + ticks
            first_free[unit] = min(copies)
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


# ---- moving what is placed -------------------------------------------------------------------------------------------


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
    table = _filled(schedule, nodes, capacity)
    if table is None:
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
        span = latest - first + 1
        window = table.rotate(table.free(resources), first % ii) & ((1 << span) - 1)
        if window:  # bits count from `first`; the node's own start is among them only if it lies in this last II
            times[v] = first + window.bit_length() - 1
        table.put(v, resources, times[v])
    return _finished(times, ii, schedule.mii, schedule.res_mii, schedule.rec_mii, schedule.tries, schedule.kind)


def hoist(
    schedule: ModuloSchedule,
    nodes: Sequence[SchedNode],
    edges: Sequence[SchedEdge],
    capacity: Mapping[str, int],
    wanted: Mapping[int, int],
) -> ModuloSchedule:
    """Starts the nodes of `wanted` earlier: at the time it gives, or as soon after it as their predecessors and the
    units allow. II stays; a node only moves earlier, the earliest first. All leave their places before the first has a
    new one, since those that keep a unit busy for most of a trip can only move together; where one then finds no place,
    each moves by itself."""
    incoming: list[list[tuple[int, int, int]]] = [[] for _ in nodes]
    for s, d, latency, distance in edges:
        if s != d:
            incoming[d].append((s, latency, distance))
    for together in (True, False):
        times = _moved(schedule, nodes, incoming, capacity, wanted, together)
        if times is not None:
            mii, least = schedule.mii, (schedule.res_mii, schedule.rec_mii)
            return _finished(times, schedule.ii, mii, *least, schedule.tries, schedule.kind)
    return schedule


def _moved(
    schedule: ModuloSchedule,
    nodes: Sequence[SchedNode],
    incoming: Sequence[Sequence[tuple[int, int, int]]],
    capacity: Mapping[str, int],
    wanted: Mapping[int, int],
    together: bool,
) -> list[int] | None:
    """Times with `wanted` moved, all of them out of the table at once (`together`) or one by one; None where a node has
    no place."""
    ii, times = schedule.ii, list(schedule.times)
    table = _filled(schedule, nodes, capacity)
    if table is None:
        return None
    for v in wanted if together else ():
        table.take(v, nodes[v].resources, times[v])
    for v in sorted(wanted, key=lambda v: (times[v], v)):
        earliest = max((times[s] + latency - distance * ii for s, latency, distance in incoming[v]), default=wanted[v])
        earliest = min(max(earliest, wanted[v], times[v] - ii + 1), times[v])
        if earliest == times[v] and not together:
            continue
        resources = nodes[v].resources
        if not together:
            table.take(v, resources, times[v])
        window = table.rotate(table.free(resources), earliest % ii) & ((1 << times[v] - earliest + 1) - 1)
        if not window:  # by itself a node's own start is the last of the window
            return None
        times[v] = earliest + (window & -window).bit_length() - 1
        table.put(v, resources, times[v])
    return times


def _filled(schedule: ModuloSchedule, nodes: Sequence[SchedNode], capacity: Mapping[str, int]) -> _Table | None:
    """The table of a schedule; None where first fit finds no assignment to several copies of a unit, though one
    exists."""
    table = _Table(schedule.ii, nodes, capacity, False)
    try:
        for v in sorted(range(len(nodes)), key=lambda v: schedule.times[v]):
            table.put(v, nodes[v].resources, schedule.times[v])
    except CompileError:
        return None
    return table
