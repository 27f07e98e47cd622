"""What of a schedule the cuts and layouts of a kernel rule out: known before anything is lowered.

In: a graph as it is cut, its arrays, the target, what the user fixed. Out: the reason, in the compiler's words, why no
way to cut and to lay out the graph can have that. The rules are those of the lowering itself: of `strategy` for what
only warpgroups have, of `staging` for tiles in shared memory. A tuner asks before it compiles.

Invariant: what has a reason here is refused by the compiler. The other way round does not hold: lowering decides about
bulk copies, exchanges between lanes, and places in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from wavedsl.ir.addresses.direct_copy import cannot, uneven
from wavedsl.ir.addresses.staged import tile_extents
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.choices import Choices
from wavedsl.ir.dataflow.graph import Graph, Node, Region
from wavedsl.ir.dataflow.views import is_tile, view_dims
from wavedsl.ir.errors import WaveError
from wavedsl.ir.grid.cluster_shape import ClusterShape
from wavedsl.ir.grid.cluster_sharing import parts_together
from wavedsl.ir.inference.plans import Plan, is_fixed, plans, takes_turns
from wavedsl.ir.layouts.column_pairs import contiguous_rows
from wavedsl.ir.layouts.shared_search import too_large
from wavedsl.ir.staging.gathered_rows import with_gathers
from wavedsl.ir.staging.plan_reads import holds_loop
from wavedsl.ir.staging.strategy import (
    asked_of_warpgroups,
    budget_misfit,
    cluster_misfit,
    no_warpgroup,
    only_turns,
    refusal,
    roles_misfit,
    turns_misfit,
    unshared,
)
from wavedsl.ir.symbols import AddressSpace, dim_name
from wavedsl.ir.target import Target


class Ways:
    """The ways to cut and to lay out a graph, made as they are asked for, for all schedules under which these are the
    same: those that agree in `split`, `stream`, and whether warpgroups take turns. `instead`: those of the graph that
    the compiler falls back on where this one cannot be."""

    def __init__(
        self, graph: Graph, dims: Mapping[Any, Any], arrays: Mapping[str, ArrayInfo], target: Target, choices: Choices,
        instead: Ways | None = None,
    ):  # fmt: skip
        graph = with_gathers(graph, dims, arrays, target)
        self.graph, self.arrays, self.target = graph, arrays, target
        turns = takes_turns(target, choices)
        self._left = plans(graph, dims, target, contiguous_rows(graph, arrays), in_turn=turns)
        self._made: list[Plan] = []
        self._instead = instead

    def __iter__(self) -> Iterator[Plan]:
        yield from self._made
        for plan in self._left:
            self._made.append(plan)
            yield plan

    def misfit(self, choices: Choices) -> str:
        """Why the compiler refuses the graph under a schedule; empty where lowering has the last word."""
        reason = self._misfit(choices)
        return self._instead.misfit(choices) if reason and self._instead is not None else reason

    def _misfit(self, choices: Choices) -> str:
        fixed = is_fixed(self.graph, self.target, choices)
        try:
            for plan in self:
                reason = plan_misfit(plan, choices, self.arrays)
                if not reason or plan.partition.shared_rows:  # those that share rows are cut again
                    return ""
                if (fixed and not plan.graph.gathered) or plan.target is self.target:
                    return reason
        except WaveError as error:
            return error.message
        return ""


def plan_misfit(plan: Plan, choices: Choices, arrays: Mapping[str, ArrayInfo]) -> str:
    """Why one way to cut and to lay out a graph cannot have what a schedule asks for; empty where it may."""
    return _of_warpgroups(plan, choices) or _of_tiles(plan, choices, arrays)


def _of_warpgroups(plan: Plan, choices: Choices) -> str:
    """Why what a schedule asks of warpgroups cannot be; empty where it can."""
    asked = asked_of_warpgroups(choices, plan.target)
    if not asked or only_turns(choices, plan.target):
        return ""
    if not any(mma.atom.asynchronous for mma in plan.inference.mmas.values()):
        return refusal(choices, asked[0], no_warpgroup(plan.target))
    crowded = roles_misfit(plan.partition, plan.target)
    if crowded and choices.specialize:
        return refusal(choices, "specialize", crowded)
    x, y, z = (*(choices.cluster or ()), 1, 1, 1)[:3]
    shape = ClusterShape((x, y) if z == 1 else (z, x) if parts_together(plan.partition) else (1, 1))
    if shape.count > 1 and (why := unshared(choices) or cluster_misfit(plan.graph, plan.partition, shape)):
        return refusal(choices, "cluster", why)
    waves = plan.partition.waves
    if choices.ping_pong and (why := turns_misfit(plan.graph, waves)):
        return refusal(choices, "ping_pong", why)
    if choices.registers is not None:
        teams = [2] if choices.ping_pong else [1] if choices.ping_pong is False or waves > 1 else [1, 2]
        reasons = [budget_misfit(choices.registers, waves * n, plan.target.wave_size) for n in teams]
        if all(reasons):
            return refusal(choices, "registers", reasons[0])
    return ""


def _of_tiles(plan: Plan, choices: Choices, arrays: Mapping[str, ArrayInfo]) -> str:
    """Why tiles that the user sends through shared memory do not fit it, or are not copied as the user asks."""
    target, partition = plan.target, plan.partition
    inside = {dim_name(d): p for d, p in partition.dims.items()}
    bulk = target.asynchronous  # tiles without the padding of lanes' layouts
    for region in plan.graph.regions():
        if region.dim is None:
            continue
        room = target.shared_bytes
        slots = min(choices.stages or 1, partition.dims[region.dim].trips or 1) if not holds_loop(region) else 1
        known: set[str] = set()
        for n in _sent_through_shared(plan, region):
            info = arrays[n.attrs["memory"]]
            layout = plan.inference.layouts[n.id]
            order = [d for d in info.names if d in layout.dims]
            if info.name in known or set(order) != set(layout.dims):
                continue  # of several reads of an array one tile may serve all
            known.add(info.name)
            if bulk:
                extents = {d: inside[d].tile for d in order}
            else:
                extents = tile_extents(layout, order, inside)
                direct = choices.direct and target.copy_linear
                if direct and (why := uneven(target, extents, info.elsize, partition.waves)):
                    return f"argument {info.name}: {cannot(why)}"
            bytes = prod(extents.values()) * info.elsize * slots
            if bytes > room:
                return f"argument {info.name}: {too_large(extents, info.elsize, slots, room).message}"
            room -= bytes
    return ""


def _sent_through_shared(plan: Plan, region: Region) -> list[Node]:
    """Reads of a loop's body whose tiles pass shared memory in every trip because the user says so."""
    graph, found = plan.graph, []
    for n in region.nodes:
        if n.op != "read" or not is_tile(graph, n) or region.dim not in view_dims(graph, n):
            continue
        argument = graph.argument(n.attrs["memory"])
        space = graph.subs.get(argument.address_space, argument.address_space)
        if space is AddressSpace.SHARED and not argument.dtype.packed:
            found.append(n)
    return found
