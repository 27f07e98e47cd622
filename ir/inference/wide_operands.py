"""Operands of multiply-adds of which each lane would hold many registers, most of them held by other lanes, too.

In: the plans of a graph's products. Out: those operands (`wide_operands`), which are read from shared memory as they
are multiplied (`ir/lower/sliced_operands.py`) where they have to change lanes; and which of their classes had better
lie as no product wants them (`between_products`), so that they have to.

In loops these are what a trip computes, and what the loop does not change: reads are steps of their own there, which
the schedule has come when they are multiplied, and tiles are in shared memory already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from math import prod
from typing import Any

from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.cuts.register_file import staged_reads, tile_bytes
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.dataflow.ops import MADE_ANYWHERE, ROWS
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.inference.mma_plan import MmaPlan
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.layouts.value_classes import Classes
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import Target

WIDE = 64
"""Registers of a lane from which on an operand of multiply-adds is read from shared memory as it is multiplied."""
LASTING = 128
"""The same of an operand that a loop does not change, which is read again in every trip."""
IN_LOOPS = 1 / 4
"""Part of shared memory that such operands of loops may take, whatever tiles take."""
STAGES = 2
"""Tiles of each read for which room is kept where such operands take more: one is copied, one multiplied."""


def wide_operands(
    graph: Graph, plans: Mapping[int, MmaPlan], partition: Partition, target: Target
) -> set[tuple[int, int]]:
    """(product, position) of operands of multiply-adds of which a lane would hold `WIDE` registers, most of them what
    other lanes hold as well, where shared memory has room for those of all waves. In loops, but for what trips read."""
    found: set[tuple[int, int]] = set()
    left = max(IN_LOOPS * target.shared_bytes, target.shared_bytes - STAGES * _tiles(graph, partition))
    for region in graph.regions():
        own = {x.id for x in (*region.nodes, *region.carries)}
        place = 0
        for n in region.nodes:
            if n.op != "mma" or plans[n.id].atom.instruction != "fma":
                continue
            plan = plans[n.id]
            wide: list[int] = []
            lasting: list[int] = []
            for position, port in zip(plan.positions, (plan.first, plan.second)):
                x = n.inputs[position]
                lasts = region.dim is not None and x.id not in own
                if region.dim is not None and ((x.op == "read" and not lasts) or x.op in MADE_ANYWHERE):
                    continue
                words = port.elements_per_lane * x.dtype.bits // 32
                least = LASTING if lasts else WIDE
                if x.dtype.bits >= 32 and words >= least and len(port.replica_bits("l")) > 0:
                    (lasting if lasts else wide).append(position)
            room = left if region.dim is not None else target.shared_bytes / 2
            made, kept = (_bytes(n, positions, partition) for positions in (wide, lasting))
            if max(0, made - place) + kept <= room:
                found |= {(n.id, p) for p in (*wide, *lasting)}
                if region.dim is not None:
                    left -= max(0, made - place) + kept
                    place = max(place, made)
    return found


def _bytes(n: Node, positions: Sequence[int], partition: Partition) -> int:
    """Bytes that operands of a product take, of all waves."""
    sizes = [prod(partition.dims[d].wave for d in n.inputs[p].dims) * n.inputs[p].dtype.bits // 8 for p in positions]
    return partition.waves * sum(sizes)


def _tiles(graph: Graph, partition: Partition) -> int:
    """Bytes of shared memory that tiles of the reads of a kernel take."""
    tiles = {d: plan.tile for d, plan in partition.dims.items()}
    staged = staged_reads(graph)
    return sum(tile_bytes(n, tiles) for n in graph.all_nodes() if n.id in staged)


def between_products(
    graph: Graph, wide: Set[tuple[int, int]], plans: Mapping[int, MmaPlan], members: Mapping[int, list[Node]],
    classes: Classes,
) -> dict[int, Any]:  # fmt: skip
    """Classes of wide operands that had better lie as no product wants them: they hold what another product left, and
    would be computed with in each lane that multiplies them; or are summed, by each of those lanes, which then hold
    all of them; or several products want them in different ways; or each lane of a loop's product would compute them.
    For each, the dimension along which lanes had better lie: rows that a loop's product has side by side
    (`sliced_operands`) are then stored without bank conflicts."""
    looped = {n.id for region in graph.regions() if region.dim is not None for n in region.nodes}
    summed = {classes.find(n.inputs[0].id) for n in graph.all_nodes() if ROWS[n.op].index_rule == "project"}
    ports: dict[int, list[Layout]] = {}
    computed: dict[int, Any] = {}
    for number, position in sorted(wide):
        plan = plans[number]
        x = plan.node.inputs[position]
        c = classes.find(x.id)
        if number in looped:
            rows = [d for d in x.dims if dim_name(d) != plan.k]
            computed.setdefault(c, rows[0] if len(rows) == 1 else None)
        port = (plan.first, plan.second)[plan.positions.index(position)]
        if not any(same_layout(port, other) for other in ports.setdefault(c, [])):
            ports[c].append(port)
    regrouped = {c for c in ports if any(ROWS[x.op].index_rule == "regroup" for x in members[c])}
    apart = {c for c, wanted in ports.items() if len(wanted) > 1} | regrouped | summed | computed.keys()
    return {c: computed.get(c) for c in ports if c in apart}


__all__ = ["between_products", "wide_operands"]
