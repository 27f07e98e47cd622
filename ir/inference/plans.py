"""Ways to cut a graph and to lay out its values, best first; the lowering takes the first that it can carry out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from wavedsl.ir import trail
from wavedsl.ir.choices import Choices
from wavedsl.ir.cuts.numbers_apart import numbers_apart
from wavedsl.ir.cuts.partition import Partition, cut, cuts, more_waves, smaller_trips
from wavedsl.ir.dataflow.constraints import HardwareConstraint, ResolvedConstraints, resolve_constraints
from wavedsl.ir.dataflow.graph import PRODUCTS, Graph, ValueType, node_text, region_nodes
from wavedsl.ir.dataflow.wider_operands import by_hand
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.inference.infer import Inference, infer
from wavedsl.ir.inference.layout_check import check_layouts
from wavedsl.ir.inference.read_apart import read_apart
from wavedsl.ir.inference.read_once import read_once
from wavedsl.ir.inference.side_rows import NO_SIDE_ROWS, SideRows
from wavedsl.ir.inference.write_back import by_layouts, by_waves
from wavedsl.ir.kernel.passes import verifying
from wavedsl.ir.layouts.column_pairs import NO_ROWS, Rows
from wavedsl.ir.layouts.fragment import register_count
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.taps import NO_WINDOW, Window
from wavedsl.ir.target import Target

TURN_SUMS = 128
"""Registers of sums that one warpgroup of a tile may hold: a wider tile leaves none for anything else."""


@dataclass(frozen=True)
class Plan:
    """How a graph is cut and laid out, and for which view of the chip. `graph`: as this view takes it."""

    graph: Graph
    target: Target
    hardware: HardwareConstraint
    partition: Partition
    inference: Inference
    rows: Rows
    """Reads whose rows are contiguous in memory."""
    given: tuple[Graph, ResolvedConstraints] | None = None
    """The graph before waves were counted, and its constraints."""
    spared: frozenset[int] = frozenset()
    """Reads outside of loops whose tiles shared memory has no room for: waves fetch the elements themselves."""
    window: Window = NO_WINDOW
    beside: SideRows = field(default_factory=dict)
    """Dimensions of which lanes hold neighbours."""


def plan(graph: Graph, dims: Mapping[Any, Any], target: Target) -> Plan:
    """Partition and layouts of a graph: the first of `plans`."""
    return next(plans(by_hand(graph, target), dims, target))


def plans(
    graph: Graph, dims: Mapping[Any, Any], target: Target, rows: Rows = NO_ROWS, in_turn: bool = False
) -> Iterator[Plan]:
    """Ways to cut a graph and to lay out its values, best first, each for the target or for its view with four warps as
    the wave: there where every product fits an instruction of a warpgroup, with two waves of 32 rows taken together, as
    they were given, or with four neighbours together, and registers do not lack; with gathers that products take from
    shared memory before such that lanes hold. What the user asks for is the only way. `rows`: reads whose rows are
    contiguous in memory. `in_turn`: the user asks for warpgroups that take tiles in turn, so a tile is one's where its
    registers hold the sums. Raises ConstraintError where there is none.
    """
    trail.stage("graph", lambda: graph.text(locations=True))
    word = f"{target.wave_word}s"
    resolved = resolve_constraints(graph, dims, max_waves=target.max_waves, wave_word=word)
    lanes = resolved.hardware.threads_per_wave
    products = any(n.op in PRODUCTS for n in graph.all_nodes())
    wide = target.warpgroup() if target.warpgroup is not None and lanes != target.wave_size and products else None
    either = [graph, replace(graph, gathered=frozenset())] if graph.gathered else [graph]
    if wide is not None and in_turn:
        alone = [_by_one(read_once(g), resolved, wide, rows) for g in either]
        yield from (x for x in alone if x is not None)
        if alone[-1] is not None:
            return
    if wide is not None and lanes == wide.wave_size:
        for g in either:
            try:
                yield from _ways(read_once(g), resolved, wide, rows)
            except ConstraintError:
                if g is either[-1]:
                    raise
        return
    if wide is not None:
        for g in either:
            once = read_once(g)
            for given in (*two_together(resolved, wide.tile_rows), resolved, *four_together(resolved)):
                try:
                    for found in _ways(once, given, wide, rows):
                        if most_carried(found) <= wide.registers:
                            yield found
                except ConstraintError:
                    continue
    yield from _ways(either[-1], resolved, target, rows)


def _ways(graph: Graph, resolved: ResolvedConstraints, target: Target, rows: Rows) -> Iterator[Plan]:
    """Plans for one view of the chip, best first. Raises ConstraintError where there is none."""
    for partition in cuts(graph, resolved, target):
        try:
            yield _plan(graph, partition, resolved, target, rows)
        except ConstraintError:
            if not partition.shared_rows:
                raise


def _by_one(graph: Graph, resolved: ResolvedConstraints, wide: Target, rows: Rows) -> Plan | None:
    """The plan by which one warpgroup computes a tile; None where the constraints or its registers are against it."""
    try:
        alone = replace(wide, default_waves=1)
        found = _plan(graph, cut(graph, resolved, alone, widen=False), resolved, alone, rows)
    except ConstraintError:
        return None
    return found if found.partition.waves == 1 and most_sums(found.inference) <= TURN_SUMS else None


def most_carried(plan: Plan) -> int:
    """Registers per lane of what the widest loop of products carries: no order of the code keeps fewer."""
    most = 0
    for n in plan.graph.loops():
        body = n.attrs["body"]
        if any(x.op in PRODUCTS for x in region_nodes(body)):
            carries = [c for c in body.carries if isinstance(c.type, ValueType)]
            most = max(most, sum(register_count(plan.inference.layouts[c.id], c.dtype) for c in carries))
    return most


def most_sums(inference: Inference) -> int:
    """Registers per lane of the largest product's result."""
    results = (register_count(plan.result, plan.node.dtype) for plan in inference.mmas.values())
    return max(results, default=0)


def lanes_asked(graph: Graph) -> int | None:
    """The lanes of a wave that the user asks for."""
    return next((c.threads_per_wave for c in graph.constraints if isinstance(c, HardwareConstraint)), None)


def takes_turns(target: Target, choices: Choices) -> bool:
    """Whether the user asks for warpgroups that take tiles in turn."""
    return bool(choices.ping_pong) and target.warpgroup is not None


def is_fixed(graph: Graph, target: Target, choices: Choices) -> bool:
    """Whether the user asks for what the first plan alone can have: its error is not passed over."""
    return lanes_asked(graph) is not None or bool(choices.roles) or takes_turns(target, choices)


def _plan(
    graph: Graph, partition: Partition, resolved: ResolvedConstraints, target: Target, rows: Rows = NO_ROWS
) -> Plan:
    trail.stage("cut", lambda: "\n".join(str(p) for p in (partition.order, *partition.dims.values())))
    given = graph, resolved
    graph = by_waves(graph, partition)
    if not target.asynchronous:
        graph = numbers_apart(read_apart(graph, partition.waves))
    return replace(_laid_out(graph, partition, target, resolved.hardware, rows), given=given)


def with_more_waves(plan: Plan) -> Iterator[Plan]:
    """The plan with more waves of smaller tiles, where nobody has said how many."""
    if plan.given is None:
        return
    graph, resolved = plan.given
    for partition in more_waves(graph, resolved, plan.target, plan.partition):
        try:
            yield replace(_plan(graph, partition, resolved, plan.target, plan.rows), window=plan.window)
        except ConstraintError:
            continue


def with_fewer_rows(plan: Plan, tiles: Mapping[Any, int]) -> Iterator[Plan]:
    """The plan with these tiles of loops, for as many waves as suit them, and for more."""
    assert plan.given is not None
    graph, resolved = plan.given
    for partition in smaller_trips(graph, resolved, plan.target, tiles):
        try:
            yield _plan(graph, partition, resolved, plan.target, plan.rows)
        except ConstraintError:
            continue


def with_partition(plan: Plan, partition: Partition) -> Plan:
    """The plan with other cuts: layouts follow from them."""
    found = _laid_out(plan.graph, partition, plan.target, plan.hardware, plan.rows, plan.beside)
    return replace(found, spared=plan.spared, window=plan.window, given=plan.given)


def with_side_rows(plan: Plan, beside: SideRows) -> Plan:
    """The plan with neighbours of these dimensions in a lane."""
    return with_partition(replace(plan, beside=beside), plan.partition)


def _laid_out(
    graph: Graph, partition: Partition, target: Target, hardware: HardwareConstraint, rows: Rows,
    beside: SideRows = NO_SIDE_ROWS,
) -> Plan:  # fmt: skip
    inference = infer(graph, partition, target, hardware, rows, beside)
    if not target.lockstep:
        apart = by_layouts(graph, inference, target.asynchronous)
        if apart is not graph:
            graph, inference = apart, infer(apart, partition, target, hardware, rows, beside)
    trail.stage("layouts", lambda: _layouts_text(graph, inference))
    if verifying():
        check_layouts(graph, partition, inference)
    return Plan(graph, target, hardware, partition, inference, rows, beside=beside)


def two_together(resolved: ResolvedConstraints, rows: int) -> Iterator[ResolvedConstraints]:
    """The same constraints with two waves that are neighbours along the grid's dimensions as one, where together they
    have the `rows` of an instruction: along all dimensions where that is so, then along one. Two warpgroups of 64 rows
    have twice the registers of one that has 128; four whose instructions have 32 columns read all rows four times. Not
    where the user counts the waves of a workgroup."""
    if resolved.hardware.waves_per_block is not None:
        return
    pairs = {
        d: replace(r, wave=rows)
        for d, r in resolved.dims.items()
        if r.wave is not None and 2 * r.wave == rows and (tile := r.workgroup or 0) > rows and tile // r.wave % 2 == 0
    }  # fmt: skip
    for found in ([pairs] if len(pairs) > 1 else []) + [{d: r} for d, r in pairs.items()]:
        yield replace(resolved, dims={**resolved.dims, **found})


def four_together(resolved: ResolvedConstraints) -> Iterator[ResolvedConstraints]:
    """The same constraints with four waves that are neighbours along one dimension as one."""
    asked = resolved.hardware.waves_per_block
    for d, r in resolved.dims.items():
        if r.wave is not None and (r.workgroup or r.loop or 0) // r.wave % 4 == 0:
            hardware, axis = resolved.hardware, r.axis or 0
            if asked is not None and axis < len(asked) and asked[axis] % 4 == 0:
                fused = (*asked[:axis], asked[axis] // 4, *asked[axis + 1 :])
                hardware = replace(hardware, waves_per_block=fused)
            yield replace(resolved, dims={**resolved.dims, d: replace(r, wave=4 * r.wave)}, hardware=hardware)


def _layouts_text(graph: Graph, inference: Inference) -> str:
    """Which lane and register holds which element, node by node."""
    out = []
    for node in graph.all_nodes():
        out.append(node_text(node))
        if node.id in inference.layouts:
            out.append(f"    {inference.layouts[node.id]!r}")
        for i in range(len(node.inputs)):
            if (node.id, i) in inference.demands:
                out.append(f"    operand {i} as {inference.demands[node.id, i]!r}")
    return "\n".join(out)
