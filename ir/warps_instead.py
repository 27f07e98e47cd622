"""Whether warps compute a tile earlier than the one warpgroup that it was cut for.

In: a kernel as it leaves the passes, its plan, and how to make another one of a graph. Out: the better one of both.
Instructions of 64 rows leave lanes of a small tile without anything to do, and one warpgroup on an SM, beside one that
copies, waits for each of its own results; warps have instructions of 16 rows, and several workgroups on an SM.
Clocks are estimated (`group_clocks`) from what the passes leave: they halve what some kernels of warps issue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wavedsl.ir.choices import Choices
from wavedsl.ir.dataflow.constraints import HardwareConstraint
from wavedsl.ir.dataflow.graph import PRODUCTS, Graph, Node, region_nodes
from wavedsl.ir.errors import WaveError
from wavedsl.ir.inference.plans import Plan, is_fixed
from wavedsl.ir.kernel.group_clocks import group_clocks, in_turn
from wavedsl.ir.kernel.kernel_ir import Kernel
from wavedsl.ir.kernel.pressure import pressure
from wavedsl.ir.staging.strategy import bounded
from wavedsl.ir.target import Target

SOONER = 0.85
"""Part of a warpgroup's clocks that warps may take to be given its tile."""

Made = tuple[Kernel, Plan, float]
"""A kernel, the plan it was made by, and the registers that it lacks."""


def sooner(found: Made, graph: Graph, target: Target, choices: Choices, made: Callable[[Graph], Made]) -> Made:
    """What was found, or what `made` makes of the graph for warps, if that is done earlier."""
    kernel, plan, _ = found
    if plan.target is target or is_fixed(graph, target, choices) or not _one_warpgroup(kernel, plan):
        return found
    if any(isinstance(c, HardwareConstraint) for c in graph.constraints):
        return found
    lanes = HardwareConstraint(threads_per_wave=target.wave_size)
    try:
        other = made(replace(graph, constraints=[*graph.constraints, lanes]))
    except WaveError:
        return found
    if other[2] > 0:
        return found
    warps, warpgroup = _clocks(other, target), _clocks(found, target)
    if warps > SOONER * warpgroup:
        return found
    decided = other[0].notes["decisions"]
    why = f"warps: {warps:.0f} clocks of an SM for a tile, estimated, where one warpgroup takes {warpgroup:.0f}"
    other[0].notes["decisions"] = replace(decided, reasons=(*decided.reasons, why))
    return other


def _one_warpgroup(kernel: Kernel, plan: Plan) -> bool:
    """Whether one warpgroup computes a tile, beside one that copies at the most, and every tile is as much work: where
    they differ, handing them out evens that out."""
    alone = plan.partition.waves == 1 and kernel.waves <= 2
    return alone and not bounded(plan.graph) and not any(map(_conditional, plan.graph.all_nodes()))


def _conditional(n: Node) -> bool:
    """Whether products stand under a condition."""
    return n.op in ("when", "repeat") and any(x.op in PRODUCTS for x in region_nodes(n.attrs["body"]))


def _clocks(made: Made, target: Target) -> float:
    """Clocks of an SM for a workgroup, or for a tile where workgroups take several."""
    kernel, plan, _ = made
    resident = plan.target.resident_waves(pressure(kernel, plan.target), kernel.shared_bytes, kernel.block)
    groups = 1 if in_turn(kernel.body) else max(1, resident // kernel.waves)
    return group_clocks(kernel.body, target, plan.partition.waves * kernel.wave_size // target.wave_size, groups)


__all__ = ["sooner"]
