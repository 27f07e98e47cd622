"""The checker objects to every mutation that breaks a schedule, and to nothing else; the printed table is pinned."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import schedule_graphs as graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from wavedsl.ir.errors import CompileError
from wavedsl.ir.schedule.cycle_table import cycle_table
from wavedsl.ir.schedule.modulo import ModuloSchedule, modulo_schedule
from wavedsl.ir.schedule.schedule_bounds import SchedEdge, SchedNode
from wavedsl.ir.schedule.schedule_check import check_schedule, verify_schedule

GOLDEN = Path(__file__).parents[2] / "golden" / "schedule"


def gemm() -> tuple[graphs.Body, ModuloSchedule]:
    body = graphs.gemm()
    found = modulo_schedule(body.nodes, body.edges, graphs.CAPACITY)
    assert found is not None
    return body, found


def moved(schedule: ModuloSchedule, node: int, by: int) -> ModuloSchedule:
    times = list(schedule.times)
    times[node] += by
    return replace(schedule, times=tuple(times), stages=tuple(t // schedule.ii for t in times))


def legal(body: graphs.Body, schedule: ModuloSchedule) -> bool:
    """The rules once more, by laying out eight iterations tick by tick."""
    if min(schedule.times) < 0 or min(schedule.stages):
        return False
    for s, d, latency, distance in body.edges:
        if schedule.times[d] + distance * schedule.ii < schedule.times[s] + latency:
            return False
    seen: dict[tuple[str, int], int] = {}
    for node in body.nodes:
        for unit, ticks in node.resources:
            for iteration in range(8):
                for t in range(ticks):
                    at = (unit, schedule.times[node.id] + iteration * schedule.ii + t)
                    seen[at] = seen.get(at, 0) + 1
                    if seen[at] > 1:
                        return False
    return True


def test_every_single_shift_is_accepted_exactly_when_it_is_legal() -> None:
    body, found = gemm()
    caught = 0
    for node in range(len(body.nodes)):
        for by in (-5, -1, 1, 3, found.ii):
            mutant = moved(found, node, by)
            objections = check_schedule(body.nodes, body.edges, graphs.CAPACITY, mutant)
            assert (not objections) == legal(body, mutant), (node, by, objections)
            caught += bool(objections)
    assert caught > 100


def test_every_schedule_made_without_an_edge_is_caught_if_it_breaks_it() -> None:
    """The scheduler forgets one edge; the checker knows it."""
    body = graphs.gemm()
    caught = 0
    for i in range(0, len(body.edges), 3):
        forgotten = body.edges[i]
        found = modulo_schedule(body.nodes, [e for e in body.edges if e is not forgotten], graphs.CAPACITY)
        assert found is not None
        objections = check_schedule(body.nodes, body.edges, graphs.CAPACITY, found)
        src, dst, latency, distance = forgotten
        early = found.times[dst] + distance * found.ii < found.times[src] + latency
        assert any("early" in o for o in objections) == early
        caught += early
    assert caught >= 5


@settings(max_examples=60)
@given(st.integers(0, 31), st.integers(0, 31))
def test_swapping_two_nodes_is_caught_unless_legal(a: int, b: int) -> None:
    body, found = gemm()
    times = list(found.times)
    times[a], times[b] = times[b], times[a]
    mutant = replace(found, times=tuple(times), stages=tuple(t // found.ii for t in times))
    assert (check_schedule(body.nodes, body.edges, graphs.CAPACITY, mutant) == []) == legal(body, mutant)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda s: replace(s, ii=s.ii - 1), "below the 96 ticks"),
        (lambda s: replace(s, stages=(*s.stages[:-1], s.stages[-1] + 1)), "is not in stage"),
        (lambda s: replace(s, res_mii=1), "the resource bound is 96, not 1"),
        (lambda s: replace(s, mii=1), "disagree"),
        (lambda s: replace(s, times=s.times[:-1]), "32 nodes, but 31 times"),
        (lambda s: replace(s, ii=0), "II is 0"),
    ],
    ids=["shorter II", "wrong stage", "wrong bound", "wrong MII", "missing node", "no II"],
)
def test_wrong_summaries_are_found(change, finding: str) -> None:  # type: ignore[no-untyped-def]
    body, found = gemm()
    assert any(finding in f for f in check_schedule(body.nodes, body.edges, graphs.CAPACITY, change(found)))


def test_findings_name_the_nodes_and_the_ticks() -> None:
    nodes = [SchedNode(0, (("alu", 2),), "load"), SchedNode(1, (("alu", 2),), "use")]
    wrong = ModuloSchedule(4, (0, 1), (0, 0), 4, 4, 1, 1)
    assert check_schedule(nodes, [SchedEdge(0, 1, 3, 0)], {"alu": 1}, wrong) == [
        "[1] use starts 2 ticks early, after [0] load",
        "tick 1 of 4: 2 on alu, which has 1: [0] load, [1] use",
    ]
    with pytest.raises(CompileError, match="the schedule is wrong"):
        verify_schedule(nodes, [SchedEdge(0, 1, 3, 0)], {"alu": 1}, wrong)
    assert check_schedule(nodes, [], {}, wrong)[0] == "[0] load uses unit alu, which has no capacity"


def test_cycle_table_of_the_gfx942_gemm() -> None:
    body, found = gemm()
    text = cycle_table(body.nodes, graphs.CAPACITY, found, clocks_per_tick=4, title="gfx942 wave 32x32, k64")
    path = GOLDEN / "gfx942_gemm_32x32.txt"
    if os.environ.get("WAVEDSL_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_cycle_table_shows_every_start_once_and_busy_ticks() -> None:
    nodes = [SchedNode(0, (("alu", 3),), "mul"), SchedNode(1, (("mem", 1),), "load"), SchedNode(2, (), "phi")]
    text = cycle_table(nodes, {"alu": 1, "mem": 2}, ModuloSchedule(4, (6, 0, 1), (1, 0, 0), 4, 3, 4, 1))
    assert text == (
        "II 4 clocks, at least 4, set by a recurrence (resources 3, recurrences 4); 2 stages, modulo scheduling\n"
        "use: alu 75%, mem 12%\n"
        "clock  alu    mem     -\n"
        "    0  |      load:0\n"
        "    1                 phi:0\n"
        "    2  mul:1\n"
        "    3  |\n"
    )
