"""Operands of multiply-adds of which each lane would hold many registers, most of them held by other lanes, too.

In: the plans of a graph's products. Out: those operands (`wide_operands`), which are read from shared memory as they
are multiplied (`ir/lower/sliced_operands.py`) where they have to change lanes; and which of their classes had better
lie as no product wants them (`between_products`), so that they have to.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from math import prod

from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.inference.mma_plan import MmaPlan
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.layouts.value_classes import Classes
from wavedsl.ir.target import Target

WIDE = 64
"""Registers of a lane from which on an operand of multiply-adds is read from shared memory as it is multiplied."""


def wide_operands(
    graph: Graph, plans: Mapping[int, MmaPlan], partition: Partition, target: Target
) -> set[tuple[int, int]]:
    """(product, position) of operands of multiply-adds in straight code of which a lane would hold `WIDE` registers,
    most of them what other lanes hold as well, where shared memory has room for those of all waves."""
    found: set[tuple[int, int]] = set()
    for region in graph.regions():
        for n in region.nodes if region.dim is None else ():
            if n.op != "mma" or plans[n.id].atom.instruction != "fma":
                continue
            plan, wide = plans[n.id], []
            for position, port in zip(plan.positions, (plan.first, plan.second)):
                x = n.inputs[position]
                words = port.elements_per_lane * x.dtype.bits // 32
                if x.dtype.bits >= 32 and words >= WIDE and len(port.replica_bits("l")) > 0:
                    wide.append(position)
            sizes = [prod(partition.dims[d].wave for d in n.inputs[p].dims) * n.inputs[p].dtype.bits // 8 for p in wide]
            if 2 * partition.waves * sum(sizes) <= target.shared_bytes:
                found |= {(n.id, p) for p in wide}
    return found


def between_products(
    graph: Graph, wide: Set[tuple[int, int]], plans: Mapping[int, MmaPlan], members: Mapping[int, list[Node]],
    classes: Classes,
) -> set[int]:  # fmt: skip
    """Classes of wide operands that had better lie as no product wants them: they hold what another product left, and
    would be computed with in each lane that multiplies them; or are summed, by each of those lanes, which then hold
    all of them; or several products want them in different ways."""
    summed = {classes.find(n.inputs[0].id) for n in graph.all_nodes() if ROWS[n.op].index_rule == "project"}
    ports: dict[int, list[Layout]] = {}
    for number, position in sorted(wide):
        plan = plans[number]
        c = classes.find(plan.node.inputs[position].id)
        port = (plan.first, plan.second)[plan.positions.index(position)]
        if not any(same_layout(port, other) for other in ports.setdefault(c, [])):
            ports[c].append(port)
    return {
        c
        for c, wanted in ports.items()
        if len(wanted) > 1 or c in summed or any(ROWS[x.op].index_rule == "regroup" for x in members[c])
    }


__all__ = ["between_products", "wide_operands"]
