"""Tiles that lie inside their arrays are accessed in whole vectors, though the last one cannot be.

In: a kernel of one straight region whose accesses are narrower than their alignment allows, because a vector could
cross the end of a dimension that is no multiple of it (or known at run time only). Out: which dimensions; the region is
then emitted twice, and workgroups branch: all tiles but the last one are inside. A row with a pitch that no vector
divides is narrow anyway, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce

from wavedsl.ir.addresses.coordinates import total
from wavedsl.ir.addresses.vectors import vector_elements
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.dataflow.graph import REGIONS
from wavedsl.ir.dataflow.views import is_tile
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.symbols import dim_name


def narrowed(low: Lowering) -> list[str]:
    """Dimensions that make an access of the kernel narrower because their last tile sticks out; none where emitting the
    region twice is not worth it (it holds loops, or tiles in shared memory), or not possible."""
    if low.matrix.strategy.bulk or low.reads.staged or any(n.op in REGIONS for n in low.graph.all_nodes()):
        return []
    found: dict[str, None] = {}
    for n in low.graph.all_nodes():
        if n.op not in ("read", "write") or not is_tile(low.graph, n):
            continue
        info = low.view_info(n)
        if info.dtype.packed:
            return []
        c = info.contiguous()
        dim = "" if c is None else dim_name(info.dims[c])
        plan = low.plans.get(dim)
        if plan is None or plan.role != "workgroup" or not plan.ragged or plan.trips == 1 or dim in low.followed:
            continue
        layout = low.layout(n if n.op == "read" else n.inputs[0])
        wide, narrow = (vector_elements(info, layout, p)[0] for p in (whole_plans(low, [dim]), low.plans))
        if wide > narrow:
            found[dim] = None
    return list(found)


def inside(low: Lowering, dims: Sequence[str]) -> Value:
    """Whether the workgroup's tile lies inside the extents of `dims`: the same for all of its waves."""
    b = low.b
    ends = [(low.base.get(d, 0), low.plans[d].tile, low.extent(d)) for d in dims]
    return reduce(b.pand, (b.cmp("sle", total(b, [start, tile]), extent) for start, tile, extent in ends))


def whole_plans(low: Lowering, dims: Sequence[str]) -> dict[str, DimPlan]:
    """The plans of tiles that lie inside the extents of `dims`."""
    return {d: replace(p, inside=True) if d in dims else p for d, p in low.plans.items()}


@contextmanager
def whole(low: Lowering, dims: Sequence[str]) -> Iterator[None]:
    """What is emitted inside takes tiles along `dims` for whole."""
    before = low.plans
    low.plans = whole_plans(low, dims)
    low.reads.homes.clear()
    try:
        yield
    finally:
        low.plans = before
        low.reads.homes.clear()
