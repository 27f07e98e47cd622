"""Whether warps compute a tile earlier than the one warpgroup that it was cut for.

In: a kernel behind the first passes, its plan, and how to make another one of a graph. Out: the better one of both,
behind all passes.
Instructions of 64 rows leave lanes of a small tile without anything to do, and one warpgroup on an SM, beside one that
copies, waits for each of its own results; warps have instructions of 16 rows, and several workgroups on an SM.
Clocks are estimated (`group_clocks`) from what passes leave: they halve what some kernels of warps issue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

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

LEFT = 0.7
"""Part of its clocks behind the first passes that a kernel takes at least behind all (three-bit weights, which warps no
longer store to shared memory; warpgroups keep 0.98), but for rounding."""
SURE = 0.9
"""Part of `SOONER` up to which clocks behind the first passes decide for warps: warpgroups keep more of theirs."""

Made = tuple[Kernel, Plan, float]
"""A kernel, the plan it was made by, and the registers that it lacks."""


class Begun(NamedTuple):
    """What the first passes have made of a kernel, and how to go on with it."""

    made: Made
    rest: Callable[[], Made]


def sooner(found: Begun, graph: Graph, target: Target, choices: Choices, begun: Callable[[Graph], Begun]) -> Made:
    """What was found, or what is made of the graph for warps, if that is done earlier. Clocks behind the first passes
    are near those behind all: where they leave no doubt, only the better one goes through the others."""
    kernel, plan, _ = found.made
    if plan.target is target or is_fixed(graph, target, choices) or not _one_warpgroup(kernel, plan):
        return found.rest()
    if any(isinstance(c, HardwareConstraint) for c in graph.constraints):
        return found.rest()
    lanes = HardwareConstraint(threads_per_wave=target.wave_size)
    try:
        other = begun(replace(graph, constraints=[*graph.constraints, lanes]))
    except WaveError:
        return found.rest()
    if other.made[2] > 0:
        return found.rest()
    warps, warpgroup = _clocks(other.made, target), _clocks(found.made, target)
    if warps * LEFT > SOONER * warpgroup:
        return found.rest()
    if warps <= SURE * SOONER * warpgroup:
        return _told(other.rest(), warps, warpgroup)
    kept, given = found.rest(), other.rest()
    warps, warpgroup = _clocks(given, target), _clocks(kept, target)
    return _told(given, warps, warpgroup) if warps <= SOONER * warpgroup else kept


def _told(made: Made, warps: float, warpgroup: float) -> Made:
    """Warps' kernel with the reason in its record."""
    decided = made[0].notes["decisions"]
    why = f"warps: {warps:.0f} clocks of an SM for a tile, estimated, where one warpgroup takes {warpgroup:.0f}"
    made[0].notes["decisions"] = replace(decided, reasons=(*decided.reasons, why))
    return made


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
