"""The modulo scheduler: correct on random loops, at its bound on GEMM, and what schedules cost."""

from __future__ import annotations

import pytest
import schedule_graphs as graphs
from hypothesis import given, settings
from wavedsl.ir.errors import CompileError
from wavedsl.ir.schedule import modulo as scheduler
from wavedsl.ir.schedule.modulo import ModuloSchedule, hoist, list_schedule_with_stages, modulo_schedule, sink
from wavedsl.ir.schedule.schedule_bounds import (
    SchedEdge,
    SchedNode,
    occupied_mii,
    recurrence_mii,
    resource_mii,
    topological_order,
)
from wavedsl.ir.schedule.schedule_check import check_schedule
from wavedsl.ir.schedule.schedule_registers import Value, lifetime, max_live


@pytest.mark.parametrize(("m", "n", "nodes", "clocks"), [(2, 2, 32, 384), (4, 4, 96, 1024), (8, 4, 176, 2048)])
def test_gemm_loops_reach_their_bound(m: int, n: int, nodes: int, clocks: int) -> None:
    """Wave 32x32 is bound by LDS (4*64 + 128 clocks, matrix unit 256), larger waves by the matrix unit."""
    body = graphs.gemm(m, n)
    found = modulo_schedule(body.nodes, body.edges, graphs.CAPACITY)
    assert found is not None and len(body.nodes) == nodes
    assert (found.ii * 4, found.mii * 4, found.tries) == (clocks, clocks, 1)
    assert check_schedule(body.nodes, body.edges, graphs.CAPACITY, found) == []


def test_attention_in_the_stages_it_is_given() -> None:
    body = graphs.attention()
    found = list_schedule_with_stages(body.nodes, body.edges, graphs.CAPACITY, graphs.ATTENTION_STAGES)
    assert found.kind == "list" and found.mii * 4 == 2048 and found.ii * 4 <= 2272
    assert found.stages == tuple(graphs.ATTENTION_STAGES)
    assert check_schedule(body.nodes, body.edges, graphs.CAPACITY, found) == []


def test_attention_by_modulo_scheduling_is_within_a_tenth_of_its_bound() -> None:
    body = graphs.attention()
    found = modulo_schedule(body.nodes, body.edges, graphs.CAPACITY)
    assert found is not None and found.ii * 10 <= 11 * found.mii
    assert check_schedule(body.nodes, body.edges, graphs.CAPACITY, found) == []


@settings(max_examples=150)
@given(graphs.loop_bodies())
def test_random_loops_are_scheduled_correctly(loop) -> None:  # type: ignore[no-untyped-def]
    nodes, edges, capacity = loop
    modulo = modulo_schedule(nodes, edges, capacity, max_tries=20)
    plain = list_schedule_with_stages(nodes, edges, capacity, [0] * len(nodes))
    for found in (modulo, plain):
        assert found is not None
        assert check_schedule(nodes, edges, capacity, found) == []
        assert found.ii >= found.mii
    assert plain.stage_count == 1
    scheduler._modulo_schedule.cache_clear()
    again = modulo_schedule(nodes, edges, capacity, max_tries=20)
    assert again == modulo


@settings(max_examples=60)
@given(graphs.loop_bodies())
def test_sinking_keeps_the_schedule_correct_and_moves_nothing_earlier(loop) -> None:  # type: ignore[no-untyped-def]
    nodes, edges, capacity = loop
    found = modulo_schedule(nodes, edges, capacity, max_tries=20)
    assert found is not None
    sunk = sink(found, nodes, edges, capacity, range(0, len(nodes), 2))
    assert check_schedule(nodes, edges, capacity, sunk) == []
    shift = min(b - a for a, b in zip(found.times, sunk.times))
    assert sunk.ii == found.ii and shift % found.ii == 0 and shift <= 0


@settings(max_examples=60)
@given(graphs.loop_bodies())
def test_hoisting_keeps_the_schedule_correct_and_moves_nothing_later(loop) -> None:  # type: ignore[no-untyped-def]
    nodes, edges, capacity = loop
    found = modulo_schedule(nodes, edges, capacity, max_tries=20)
    assert found is not None
    wanted = {v: found.times[v] - 3 * v for v in range(0, len(nodes), 2)}
    early = hoist(found, nodes, edges, capacity, wanted)
    assert check_schedule(nodes, edges, capacity, early) == []
    shift = max(b - a for a, b in zip(found.times, early.times))  # whole IIs, where something left stage 0
    assert early.ii == found.ii and shift % found.ii == 0
    assert all(early.times[v] - shift >= min(t, found.times[v]) for v, t in wanted.items())
    assert all(early.times[v] - shift == found.times[v] for v in range(len(nodes)) if v not in wanted)


def test_hoisting_starts_a_load_when_its_register_is_free() -> None:
    """A load, its store at tick 8 of 10, and the register between them: the load may start right behind the store of
    the trip before, no earlier."""
    nodes = [SchedNode(0, (("memory", 1),), "load"), SchedNode(1, (("lds", 1),), "store")]
    edges = [SchedEdge(0, 1, 4, 0), SchedEdge(1, 0, 1, 1)]
    late = made(10, 4, 8)
    early = hoist(late, nodes, edges, {"memory": 1, "lds": 1}, {0: -50})
    assert early.times[1] - early.times[0] == 9
    some = hoist(late, nodes, edges, {"memory": 1, "lds": 1}, {0: 2})
    assert some.times == (2, 8)


def test_hoisting_moves_loads_together_that_fill_memory() -> None:
    """Two loads of 5 ticks in a trip of 10: neither has a place but its own until the other has left."""
    nodes = [SchedNode(i, (("memory", 5),), "load") for i in range(2)]
    nodes += [SchedNode(i, (("lds", 1),), "store") for i in (2, 3)]
    edges = [SchedEdge(i, i + 2, 4, 0) for i in range(2)] + [SchedEdge(i + 2, i, 1, 1) for i in range(2)]
    late = made(10, 4, 9, 8, 13)
    early = hoist(late, nodes, edges, {"memory": 1, "lds": 1}, {0: -50, 1: -50})
    assert [early.times[i + 2] - early.times[i] for i in range(2)] == [9, 9]


@settings(max_examples=150)
@given(graphs.loop_bodies())
def test_recurrence_bound_is_the_smallest_ii_without_a_positive_cycle(loop) -> None:  # type: ignore[no-untyped-def]
    nodes, edges, _ = loop
    bound = recurrence_mii(len(nodes), edges)

    def feasible(ii: int) -> bool:
        """Floyd-Warshall on latency - II * distance: a positive diagonal is a violated cycle."""
        n = len(nodes)
        far = [[float("-inf")] * n for _ in range(n)]
        for e in edges:
            far[e.src][e.dst] = max(far[e.src][e.dst], e.latency - ii * e.distance)
        for k in range(n):
            for i in range(n):
                for j in range(n):
                    far[i][j] = max(far[i][j], far[i][k] + far[k][j])
        return all(far[i][i] <= 0 for i in range(n))

    assert feasible(bound) and (bound == 1 or not feasible(bound - 1))


def test_a_cycle_behind_a_node_whose_first_successor_is_new_is_found() -> None:
    """2 → 3 → 2 takes two ticks an iteration; 1, which 2 leads to first, is in no cycle."""
    edges = [SchedEdge(0, 0, 0, 1), SchedEdge(0, 2, 0, 0), SchedEdge(2, 1, 0, 1), SchedEdge(2, 3, 0, 0)]
    edges.append(SchedEdge(3, 2, 2, 1))
    assert recurrence_mii(4, edges) == 2


@settings(max_examples=30)
@given(graphs.loop_bodies())
def test_no_schedule_lies_below_the_bound_of_units_between_two_iterations(loop) -> None:  # type: ignore[no-untyped-def]
    nodes, edges, capacity = loop
    bound = occupied_mii(nodes, edges, capacity, topological_order(len(nodes), edges))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "occupied_mii", lambda *_: 1)
        scheduler._modulo_schedule.cache_clear()
        found = modulo_schedule(nodes, edges, capacity, max_tries=20)
    scheduler._modulo_schedule.cache_clear()
    assert found is not None and bound <= found.ii
    assert found == modulo_schedule(nodes, edges, capacity, max_tries=20)


def test_units_between_two_iterations_bound_the_interval() -> None:
    """A read of 9 ticks, four users of 8 ticks each behind the first of them, and the next read behind them all: no
    cycle of edges takes more than 10 and no unit more than 32, but together they take 33."""
    nodes = [SchedNode(0, (("lds", 1),)), *(SchedNode(i, (("matrix", 8),)) for i in range(1, 5))]
    edges = [SchedEdge(0, 1, 9, 0), *(SchedEdge(1, i, 1, 0) for i in (2, 3, 4))]
    edges += [SchedEdge(i, 0, 0, 1) for i in range(1, 5)]
    capacity = {"lds": 1, "matrix": 1}
    assert (recurrence_mii(5, edges), resource_mii(nodes, capacity)) == (10, 32)
    assert occupied_mii(nodes, edges, capacity, topological_order(5, edges)) == 33
    found = modulo_schedule(nodes, edges, capacity)
    assert found is not None and (found.ii, found.mii, found.tries) == (33, 32, 2)


def test_bounds_of_small_loops() -> None:
    a, b = SchedNode(0, (("alu", 3),)), SchedNode(1, (("alu", 4), ("issue", 1)))
    assert resource_mii([a, b], {"alu": 1, "issue": 1}) == 7
    assert resource_mii([a, b], {"alu": 2, "issue": 1}) == 4
    assert recurrence_mii(2, [SchedEdge(0, 1, 5, 0), SchedEdge(1, 0, 6, 2)]) == 6
    assert recurrence_mii(1, [SchedEdge(0, 0, 7, 2)]) == 4
    assert topological_order(2, [SchedEdge(1, 0, 1, 0)]) == [1, 0]


def test_copies_of_a_unit_work_side_by_side() -> None:
    nodes = [SchedNode(i, (("simd", 8),), f"mfma{i}") for i in range(4)]
    found = modulo_schedule(nodes, [], {"simd": 4})
    assert found is not None and found.ii == 8 and check_schedule(nodes, [], {"simd": 4}, found) == []


def test_a_slot_freed_late_costs_ii_and_more_slots_buy_it_back() -> None:
    """One slot: write, read back, write again is a recurrence of write + read latency; with two it is half of that."""
    one, two = graphs.gemm(slots=1), graphs.gemm(slots=2)
    bound = [recurrence_mii(len(b.nodes), b.edges) for b in (one, two)]
    assert bound == [17, 16]
    long = [SchedEdge(0, 1, 200, 0), SchedEdge(1, 0, 40, 1)]
    assert recurrence_mii(2, long) == 240
    assert recurrence_mii(2, [long[0], SchedEdge(1, 0, 40, 3)]) == 80


def test_impossible_loops_are_refused() -> None:
    alu = SchedNode(0, (("alu", 1),), "add")
    with pytest.raises(CompileError, match="uses unit 'alu', of which there is none"):
        modulo_schedule([alu], [], {"mfma": 1})
    with pytest.raises(CompileError, match="wait for each other within one iteration"):
        modulo_schedule([alu, SchedNode(1, ())], [SchedEdge(0, 1, 2, 0), SchedEdge(1, 0, 1, 0)], {"alu": 1})
    with pytest.raises(CompileError, match="is its position"):
        modulo_schedule([SchedNode(3, ())], [], {})
    with pytest.raises(CompileError, match="lists a unit twice"):
        modulo_schedule([SchedNode(0, (("alu", 1), ("alu", 2)))], [], {"alu": 1})
    with pytest.raises(CompileError, match="in stage 0 comes before"):
        list_schedule_with_stages([alu, SchedNode(1, ())], [SchedEdge(0, 1, 2, 0)], {"alu": 1}, [1, 0])
    with pytest.raises(CompileError, match="does not join two of 1 nodes"):
        modulo_schedule([alu], [SchedEdge(0, 4, 1, 0)], {"alu": 1})


def test_an_exhausted_search_gives_none_and_the_body_in_order_is_left() -> None:
    body = graphs.gemm()
    assert modulo_schedule(body.nodes, body.edges, graphs.CAPACITY, budget=0) is None
    assert modulo_schedule(body.nodes, body.edges, graphs.CAPACITY, max_ii=95) is None
    plain = list_schedule_with_stages(body.nodes, body.edges, graphs.CAPACITY, [0] * len(body.nodes))
    assert plain.kind == "list" and plain.stage_count == 1
    assert check_schedule(body.nodes, body.edges, graphs.CAPACITY, plain) == []


# ---- registers -------------------------------------------------------------------------------------------------------


def made(ii: int, *times: int) -> ModuloSchedule:
    return ModuloSchedule(ii, times, tuple(t // ii for t in times), 1, 1, 1, 1)


def brute_live(schedule: ModuloSchedule, values: list[Value]) -> int:
    """Live registers per tick of a steady state laid out iteration by iteration."""
    span = 40 * schedule.ii
    live = [0] * span
    for value in values:
        ticks = lifetime(schedule, value)
        for iteration in range(-40, 40):
            born = schedule.times[value.node] + iteration * schedule.ii
            for t in range(max(0, born), min(span, born + ticks)):
                live[t] += value.registers
    return max(live[10 * schedule.ii : 20 * schedule.ii])


def test_registers_alive_are_counted_over_overlapping_iterations() -> None:
    schedule = made(10, 0, 4, 27)
    values = [Value(0, ((2, 0, 3),), 4), Value(1, ((1, 1, 0),), 2), Value(0, ((1, 0, 1),), 1), Value(2, (), 7)]
    assert [lifetime(schedule, v) for v in values] == [30, 10, 5, 0]
    assert max_live(schedule, values) == {"v": 4 * 3 + 2 + 1} and brute_live(schedule, values) == 15
    wrapped = [Value(1, ((2, 0, 2),), 3, "a")]
    assert max_live(schedule, wrapped) == {"a": brute_live(schedule, wrapped)} == {"a": 9}


@settings(max_examples=60)
@given(graphs.loop_bodies())
def test_registers_alive_equal_the_brute_count(loop) -> None:  # type: ignore[no-untyped-def]
    nodes, edges, capacity = loop
    found = modulo_schedule(nodes, edges, capacity, max_tries=20)
    assert found is not None
    forward = [e for e in edges if found.times[e.dst] + e.distance * found.ii >= found.times[e.src]]
    values = [Value(e.src, ((e.dst, e.distance, 1),), 1 + e.latency % 3) for e in forward if e.distance <= 2]
    if values and max(lifetime(found, v) for v in values) < 9 * found.ii:
        assert max_live(found, values) == {"v": brute_live(found, values)}


def test_sinking_loads_saves_registers() -> None:
    body = graphs.gemm(8, 4)
    found = modulo_schedule(body.nodes, body.edges, graphs.CAPACITY)
    assert found is not None
    reads = [v.id for v in body.nodes if v.name.startswith("read")]
    users = {r: tuple((e.dst, e.distance, 4) for e in body.edges if e.src == r and e.distance == 0) for r in reads}
    values = [Value(r, users[r], 4) for r in reads]
    sunk = sink(found, body.nodes, body.edges, graphs.CAPACITY, reads)
    assert check_schedule(body.nodes, body.edges, graphs.CAPACITY, sunk) == []
    assert max_live(sunk, values)["v"] * 3 < max_live(found, values)["v"] * 2


def test_order_of_issue_puts_older_iterations_first() -> None:
    assert made(10, 3, 13, 5, 23, 2).order() == (4, 3, 1, 0, 2)
