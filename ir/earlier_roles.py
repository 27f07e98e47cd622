"""Whether a small tile of warpgroups is done earlier without one that copies, or by warps.

In: a kernel as it leaves the passes, its plan, and how to begin another one of a graph. Out: the best one.
Warpgroups beside one that copies are alone on an SM and wait for each of their own results; warpgroups that copy for
themselves, and warps, whose instructions have 16 rows for 64, are in several workgroups on an SM. Nobody is best
everywhere, so clocks are estimated (`group_clocks`) from what the passes leave: they halve what some kernels issue.
Where memory, operands from L2 or the matrix unit take most of the time, nothing else is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil, inf, prod
from typing import NamedTuple

from wavedsl.ir.choices import Choices
from wavedsl.ir.dataflow.constraints import HardwareConstraint
from wavedsl.ir.dataflow.graph import PRODUCTS, Graph, Node, region_nodes
from wavedsl.ir.errors import WaveError
from wavedsl.ir.inference.plans import Plan, is_fixed
from wavedsl.ir.kernel.group_clocks import Clocks, group_clocks, in_turn
from wavedsl.ir.kernel.kernel_ir import Kernel
from wavedsl.ir.kernel.pressure import pressure
from wavedsl.ir.staging.strategy import bounded
from wavedsl.ir.target import Target

SOONER = 0.9
"""Part of the clocks beside a copying warpgroup that another way may take to be given the tile."""

LEFT = 0.7
"""Part of its clocks behind the first passes that a kernel takes at least behind all (three-bit weights, which warps no
longer store to shared memory; warpgroups keep 0.98)."""

Made = tuple[Kernel, Plan, float]
"""A kernel, the plan it was made by, and the registers that it lacks."""


class Begun(NamedTuple):
    """What the first passes have made of a kernel, and how to go on with it."""

    made: Made
    rest: Callable[[], Made]


def sooner(
    found: Made, graph: Graph, target: Target, choices: Choices, bytes: int, begun: Callable[[Graph, Choices], Begun]
) -> Made:
    """What was found, or what is made of the graph in another way, if that is done earlier. `bytes`: of all arrays.
    Clocks behind the first passes are near those behind all: who is surely later then goes through no others."""
    plan = found[1]
    if plan.target is target or is_fixed(graph, target, choices) or not _even(graph, plan):
        return found
    usual = _clocks(found, target, bytes)
    best, least = found, SOONER * usual.taken
    if usual.busy >= least:
        return found
    for way, other_graph, other_choices in _ways(found, graph, target, choices):
        try:
            first = begun(other_graph, other_choices)
        except WaveError:
            continue
        if first.made[2] > 0 or _clocks(first.made, target, bytes).taken * LEFT >= least:
            continue
        other = first.rest()
        clocks = _clocks(other, target, bytes).taken
        if clocks >= least:
            continue
        best, least = other, clocks
        decided = other[0].notes["decisions"]
        why = f"{way}: {clocks:.0f} clocks of an SM for a tile, estimated, for {usual.taken:.0f}"
        other[0].notes["decisions"] = replace(decided, reasons=(*decided.reasons, why))
    return best


def _ways(found: Made, graph: Graph, target: Target, choices: Choices) -> Iterator[tuple[str, Graph, Choices]]:
    """Other ways to compute a tile."""
    kernel, plan, _ = found
    if kernel.waves > plan.partition.waves:
        yield "warpgroups copy for themselves", graph, replace(choices, unaided=True)
    if plan.partition.waves == 1:
        lanes = HardwareConstraint(threads_per_wave=target.wave_size)
        yield "warps", replace(graph, constraints=[*graph.constraints, lanes]), choices


def _even(graph: Graph, plan: Plan) -> bool:
    """Whether nobody says who computes a tile, and every tile is as much work: where they differ, handing them out
    evens that out. Two warpgroups hide one another's waits in loops, more of them everywhere."""
    if any(isinstance(c, HardwareConstraint) for c in graph.constraints) or plan.partition.waves > 2:
        return False
    nodes = list(plan.graph.all_nodes())
    if plan.partition.waves > 1 and any(n.op == "iterate" and _multiplies(n) for n in nodes):
        return False
    return not bounded(plan.graph) and not any(n.op in ("when", "repeat") and _multiplies(n) for n in nodes)


def _multiplies(n: Node) -> bool:
    """Whether products stand in an op's region."""
    return any(x.op in PRODUCTS for x in region_nodes(n.attrs["body"]))


def _clocks(made: Made, target: Target, bytes: int) -> Clocks:
    """Clocks of an SM for a tile."""
    kernel, plan, _ = made
    counts = [p.trips for p in plan.partition.dims.values() if p.axis is not None]
    tiles = inf if None in counts else prod(n for n in counts if n is not None)  # a launch may have as many as it likes
    groups = 1
    if tiles > target.units and not in_turn(kernel.body):
        held = plan.target.resident_waves(pressure(kernel, plan.target), kernel.shared_bytes, kernel.block)
        groups = max(1, min(held // kernel.waves, ceil(min(tiles / target.units, held))))
    warps = plan.partition.waves * kernel.wave_size // target.wave_size
    return group_clocks(kernel, target, warps, groups, bytes / max(1, tiles))


__all__ = ["Made", "sooner"]
