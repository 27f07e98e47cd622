"""Tiles brought into the second-level cache some trips before they are copied (`wd.Schedule(prefetch=trips)`).

In: a read that a loop advances. Out: per access of the read one that asks for the same bytes of a later trip's tile,
and moves nothing. Where the chip checks no bounds, lanes whose elements lie past the end of the loop's dimension ask
for nothing; a tensor map drops what lies outside by itself. A read that a number of the loop places is left alone:
where its later tiles lie is not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from wavedsl.ir.addresses.access import GlobalAccess
from wavedsl.ir.addresses.coordinates import total
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.views import placement, view_dims
from wavedsl.ir.lower.lowering import Lowering, both, never
from wavedsl.ir.schedule.steps import Context


def distance(low: Lowering, n: Node) -> int:
    """Trips ahead by which a read's tiles are asked for; 0 for a read that no loop advances."""
    trips = low.choices.prefetch or 0
    region = low.region_of(n)
    found = placement(low.graph, n)
    if not trips or found is None or str(region.dim) not in map(str, view_dims(low.graph, n)):
        return 0
    return 0 if any(low.region_of(x) is region for x in found.numbers()) else trips


def later(low: Lowering, context: Context, trips: int) -> Context:
    """The same place, some trips on."""
    return Context(context.env, total(low.b, [context.iteration, trips]), context.guard)


Access = Callable[[Context, Mapping[str, DimPlan]], tuple[GlobalAccess, Any]]


def ask(
    low: Lowering, n: Node, context: Context, plans: Mapping[str, DimPlan], access_at: Access,
    offsets: Mapping[str, int], size: int,
) -> None:  # fmt: skip
    """Ask for what an access of a read will load some trips on; `access_at` makes it for a context and plans."""
    trips = distance(low, n)
    if not trips or never(context.guard) or low.loop_dim is None:
        return
    b, dim = low.b, low.loop_dim
    ragged = {**plans, dim: replace(plans[dim], extent=None)}  # any later tile may lie past the end
    access, guard = access_at(later(low, context, trips), ragged)
    voff, soff, mask = access.operands(offsets)
    b.touch_global(access.buffer, voff, soff, bytes=size, mask=mask, guard=both(b, context.guard, guard))
