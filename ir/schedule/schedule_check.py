"""Checks a modulo schedule against the graph it came from. Shares no code with the scheduler.

Comes in: nodes, edges, capacities and a schedule. Goes out: findings as sentences, none for a correct schedule.

The idea: unroll. Iterations are laid out II apart for as long as the longest edge or occupancy reaches, every occupied
tick of one steady-state window is counted, and every edge is followed from one concrete iteration to another.

What it re-derives:
 (EDGES) iteration i + distance of `dst` starts at least `latency` ticks after iteration i of `src`;
 (UNITS) no tick of the steady state has more occupants on a unit than it has copies;
 (STAGES) `stages` are start times divided by II, the first stage is 0;
 (BOUND) II is not below what the busiest unit needs, and the reported resource bound is that number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from wavedsl.ir.errors import CompileError
from wavedsl.ir.schedule.modulo import ModuloSchedule
from wavedsl.ir.schedule.schedule_bounds import SchedEdge, SchedNode


def check_schedule(
    nodes: Sequence[SchedNode],
    edges: Sequence[SchedEdge],
    capacity: Mapping[str, int],
    schedule: ModuloSchedule,
) -> list[str]:
    """Findings, worst kind first, at most one per node pair and unit tick; an empty list for a correct schedule."""
    if len(schedule.times) != len(nodes) or len(schedule.stages) != len(nodes):
        return [f"{len(nodes)} nodes, but {len(schedule.times)} times and {len(schedule.stages)} stages"]
    if schedule.ii < 1:
        return [f"II is {schedule.ii}"]
    return (
        _edges_hold(nodes, edges, schedule)
        + _units_suffice(nodes, capacity, schedule)
        + _stages_fit(schedule)
        + _bound_is_right(nodes, capacity, schedule)
    )


def verify_schedule(
    nodes: Sequence[SchedNode],
    edges: Sequence[SchedEdge],
    capacity: Mapping[str, int],
    schedule: ModuloSchedule,
) -> None:
    """Raises CompileError with every finding of `check_schedule`."""
    findings = check_schedule(nodes, edges, capacity, schedule)
    if findings:
        raise CompileError("the schedule is wrong:\n  " + "\n  ".join(findings))


def _label(node: SchedNode) -> str:
    return f"[{node.id}] {node.name}".rstrip()


def _edges_hold(nodes: Sequence[SchedNode], edges: Sequence[SchedEdge], schedule: ModuloSchedule) -> list[str]:
    findings: dict[tuple[int, int, int], str] = {}
    for edge in edges:
        produced = schedule.times[edge.src] + edge.latency
        consumed = schedule.times[edge.dst]
        for _ in range(edge.distance):
            consumed += schedule.ii
        if consumed < produced:
            early = produced - consumed
            later = f" {edge.distance} iterations on" if edge.distance else ""
            text = f"{_label(nodes[edge.dst])}{later} starts {early} ticks early, after {_label(nodes[edge.src])}"
            findings.setdefault((edge.src, edge.dst, edge.distance), text)
    return list(findings.values())


def _units_suffice(nodes: Sequence[SchedNode], capacity: Mapping[str, int], schedule: ModuloSchedule) -> list[str]:
    """At no tick of a window more nodes are on a unit than it has room for."""
    ii = schedule.ii
    occupants: dict[tuple[str, int], list[int]] = {}
    unknown = []
    for node in nodes:
        for unit, ticks in node.resources:
            if unit not in capacity:
                unknown.append(f"{_label(node)} uses unit {unit}, which has no capacity")
                continue
            start = schedule.times[node.id]
            for tick in range(start, start + ticks):
                occupants.setdefault((unit, tick % ii), []).append(node.id)
    findings = []
    for unit, tick in sorted(at for at, ids in occupants.items() if len(ids) > capacity[at[0]]):
        ids = occupants[unit, tick]
        names = ", ".join(_label(nodes[v]) for v in ids)
        findings.append(f"tick {tick} of {ii}: {len(ids)} on {unit}, which has {capacity[unit]}: {names}")
    return unknown + findings


def _stages_fit(schedule: ModuloSchedule) -> list[str]:
    findings = []
    for v, (time, stage) in enumerate(zip(schedule.times, schedule.stages)):
        if not stage * schedule.ii <= time < (stage + 1) * schedule.ii:
            findings.append(f"[{v}] starts at {time}, which is not in stage {stage} of {schedule.ii} ticks")
    if schedule.stages and min(schedule.stages) != 0:
        findings.append(f"the first stage is {min(schedule.stages)}, not 0")
    return findings


def _bound_is_right(nodes: Sequence[SchedNode], capacity: Mapping[str, int], schedule: ModuloSchedule) -> list[str]:
    load: Counter[str] = Counter()
    bound = 1
    for node in nodes:
        for unit, ticks in node.resources:
            load[unit] += ticks
            bound = max(bound, ticks)
    for unit, ticks in load.items():
        bound = max(bound, (ticks + capacity.get(unit, 1) - 1) // capacity.get(unit, 1))
    findings = []
    if schedule.ii < bound:
        findings.append(f"II {schedule.ii} is below the {bound} ticks the busiest unit needs")
    if schedule.res_mii != bound:
        findings.append(f"the resource bound is {bound}, not {schedule.res_mii}")
    if schedule.mii != max(schedule.res_mii, schedule.rec_mii) or schedule.ii < schedule.mii:
        findings.append(
            f"II {schedule.ii}, MII {schedule.mii}, ResMII {schedule.res_mii} and RecMII {schedule.rec_mii} disagree"
        )
    return findings
