"""Rows of a product that lie side by side in a lane: neighbours along M or N in instructions side by side.

In: a graph with its layouts. Out: how many neighbours along which dimensions (`side_rows`), which `mma_plan` builds
fragments and results by.

The idea: lanes take single elements of an operand that lies in shared memory with its rows along M, and not along K:
16 reads for four numbers of K in each of four instructions. The rows of a result may come in any order. Where lane l
has row 4 l + i of instruction i, and not row l of each, it takes four neighbours at a time: four reads of 8 bytes,
whose halves `v_perm_b32` joins to the same registers as those of single elements. Products that a dimension is in
agree about it. A lane's results are neighbours, too: they are stored in wider pieces.

Invariant: a wave has whole numbers of such groups of instructions; a dimension of which one product has not stays as it
is.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.dataflow.graph import Node, ValueType
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.inference.mma_plan import MmaPlan, may_group
from wavedsl.ir.layouts.column_pairs import Rows
from wavedsl.ir.target import Target

SideRows = Mapping[str, int]
"""Dimension → log2 of the neighbours that a lane has of it."""
NO_SIDE_ROWS: SideRows = MappingProxyType({})
WIDEST = 2
"""log2 of the most neighbours: 8 bytes of 16-bit elements, read by half a wave without conflicts."""


def side_rows(mmas: Mapping[int, MmaPlan], partition: Partition, target: Target, rows: Rows) -> dict[str, int]:
    """Dimensions of which lanes had better hold neighbours, as many as all products of each allow: those along which
    the rows lie in memory of what a product contracts along another one. `rows`: reads whose rows are contiguous, by
    id. None where reads of shared memory transpose."""
    if any(x.lane for x in target.load_atoms):
        return {}
    most: dict[str, int] = {}
    wanted = set()
    waves = {str(d): p.wave for d, p in partition.dims.items()}
    for plan in mmas.values():
        for port, d, size in ((plan.ports[0], plan.m, plan.atom.m), (plan.ports[1], plan.n, plan.atom.n)):
            if not d:
                continue
            most[d] = min(most.get(d, WIDEST), _groups(waves[d], size) if may_group(plan.atom) else 0)
            if any(rows.get(x.id) == d and x.dtype.bits == 16 for x in _read_for(port)):
                wanted.add(d)
    return {d: n for d, n in most.items() if n and d in wanted}


def _groups(wave: int, size: int) -> int:
    """log2 of the instructions that a wave's tile is a whole number of groups of."""
    found = 0
    while found < WIDEST and wave % (size << (found + 1)) == 0:
        found += 1
    return found


def _read_for(x: Node) -> list[Node]:
    """The reads of both dimensions of an operand that it is computed of, element by element."""
    found, work, seen = [], [x], {x.id}
    while work:
        y = work.pop()
        if y.op == "read":
            found.append(y)
        elif y.op in ROWS and ROWS[y.op].index_rule == "same":
            new = [z for z in y.inputs if z.id not in seen and isinstance(z.type, ValueType)]
            seen.update(z.id for z in new)
            work += [z for z in new if len(z.dims) == len(x.dims)]
    return found


__all__ = ["NO_SIDE_ROWS", "SideRows", "side_rows"]
