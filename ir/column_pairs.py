"""Which products may be carried out by instructions of column pairs: `MmaAtom.parts` of two.

Such an instruction takes words of two neighbouring columns of B, so a B whose rows are contiguous in memory is read as
it lies there. Its result has the even columns in one run of registers and the odd ones in the next, which elementwise
steps, reductions and stores read from its layout like any other. Whether one is taken is a question of price
(`mma_plan.mma_options`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.graph import Graph, Node
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import MmaAtom
from wavedsl.ir.views import placement

Rows = Mapping[int, str]
"""Read, by its id → the dimension along which its tile is contiguous in memory."""
NO_ROWS: Rows = MappingProxyType({})


def contiguous_rows(graph: Graph, arrays: Mapping[str, ArrayInfo]) -> dict[int, str]:
    """The reads of plain tiles whose rows are contiguous in memory, with the dimension along which they are."""
    found = {}
    for n in graph.all_nodes():
        if n.op != "read" or n.dtype.packed or n.attrs["memory"] not in arrays:
            continue
        place, info = placement(graph, n), arrays[n.attrs["memory"]]
        c = info.contiguous()
        if place is not None and not place.moved and c is not None and info.dims[c] in n.dims:
            found[n.id] = info.names[c]
    return found


def turned(atom: MmaAtom, operands: Sequence[tuple[Node, str]], k: str, rows: Rows) -> int:
    """Operands of a product that have to be turned on their way to an instruction: (node, its dimension beside K) of
    the instruction's A and B."""
    return sum(
        rows.get(n.id) == free and free != k and not (atom.parts > 1 and port == 1)
        for port, (n, free) in enumerate(operands)
    )


def may_take(atom: MmaAtom, operands: Sequence[tuple[Node, str]], rows: Rows) -> bool:
    """Whether an instruction suits the operands of its A and B: one of column pairs is for a B that has rows of them."""
    second, free = operands[1]
    return atom.parts == 1 or (bool(free) and rows.get(second.id) == free)
