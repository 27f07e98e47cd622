"""Lower bounds of a loop's initiation interval (II): what no modulo schedule gets below, whatever its order.

Comes in: nodes with the units they occupy, edges with latency and distance (in iterations), copies of each unit. Goes
out: ticks. Units alone (`resource_mii`), cycles of edges alone (`recurrence_mii`), and both together for what lies
between a node and itself an iteration later (`occupied_mii`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
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
            if index[v] < 0:
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


SOURCES = 4
"""Nodes that `occupied_mii` looks at: those where the most paths meet. The others rarely bound II any further."""


def occupied_mii(
    nodes: Sequence[SchedNode], edges: Sequence[SchedEdge], capacity: Mapping[str, int], order: Sequence[int]
) -> int:
    """An II below which no schedule exists, because of units on the way from a node to itself an iteration later.

    What must start after some node and end before the same node of the next iteration shares II ticks: on a unit of
    which there is one copy its preemptive schedule, with the longest paths as heads and tails, takes no longer than
    II. `order` is a topological order of the nodes.
    """
    n = len(nodes)
    out: list[list[tuple[int, int]]] = [[] for _ in range(2 * n)]  # node v of the next iteration is n + v
    into: list[list[tuple[int, int]]] = [[] for _ in range(2 * n)]
    meeting = [[0, 0] for _ in range(n)]
    for s, d, latency, distance in edges:
        if distance == 0:
            out[n + s].append((n + d, latency))
            into[n + d].append((n + s, latency))
        elif distance > 1:
            continue
        out[s].append((n * distance + d, latency))
        into[n * distance + d].append((s, latency))
        meeting[s][0] += 1
        meeting[d][1] += 1
    twice = [*order, *(n + v for v in order)]
    bound = 1
    for source in sorted(range(n), key=lambda v: (-meeting[v][0] * meeting[v][1], v))[:SOURCES]:
        head = _longest(twice, out, source)
        goal = n + source
        if head[goal] < 0:
            continue
        tail = _longest(twice[::-1], into, goal)
        bound = max(bound, head[goal])
        occupants: dict[str, list[tuple[int, int, int]]] = {}
        for v in twice:
            if head[v] >= 0 and tail[v] >= 0 and v != goal:
                for unit, ticks in nodes[v % n].resources:
                    if capacity[unit] == 1:
                        occupants.setdefault(unit, []).append((head[v], ticks, tail[v] - ticks))
        bound = max(bound, *(_preemptive(found) for found in occupants.values()), 1)
    return bound


def _longest(order: Sequence[int], out: Sequence[Sequence[tuple[int, int]]], source: int) -> list[int]:
    """Longest path from the source to every node of a graph without cycles; -1 where there is none."""
    path = [-1] * len(order)
    path[source] = 0
    for v in order:
        here = path[v]
        if here >= 0:
            for d, latency in out[v]:
                if here + latency > path[d]:
                    path[d] = here + latency
    return path


def _preemptive(tasks: Iterable[tuple[int, int, int]]) -> int:
    """Ticks until everything is done, at least, on one unit that may interrupt its tasks (Jackson's rule: the longest
    tail first). A task is (head, ticks, tail): it waits for its head, and the tail follows it elsewhere."""
    coming = sorted(tasks, reverse=True)
    ready: list[tuple[int, int]] = []
    clock = done = 0
    while coming or ready:
        if not ready:
            clock = max(clock, coming[-1][0])
        while coming and coming[-1][0] <= clock:
            _, ticks, tail = coming.pop()
            heapq.heappush(ready, (-tail, ticks))
        tail, ticks = heapq.heappop(ready)
        if coming and coming[-1][0] < clock + ticks:
            heapq.heappush(ready, (tail, clock + ticks - coming[-1][0]))
            clock = coming[-1][0]
        else:
            clock += ticks
            done = max(done, clock - tail)
    return done
