"""Products of 4-bit integers on chips that multiply none: the operands are made bytes before.

In: a graph, a target. Out: the graph, or a copy in which such products are those of their operands cast to i8. Every i4
and every u4 is an i8, so the products and their sums are the same, bit for bit. sm_80 to sm_89 multiply 4-bit integers;
from sm_90 on ptxas takes the instruction and makes 20 to 191 of it (`codegen/ptx/mma.py`), and AMD's chips have none.

Invariant: the graph that is given is not changed.
"""

from __future__ import annotations

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Graph, Node, ValueType
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dataflow.scale_by_hand import scale_by_hand
from wavedsl.ir.target import Target


def by_hand(graph: Graph, target: Target) -> Graph:
    """The graph in products that `target` has instructions for: scales multiplied, operands as wide as they must be."""
    return wider_operands(scale_by_hand(graph, target), target)


def multiplies_as_bytes(a: dt.DType, b: dt.DType, target: Target) -> bool:
    """Whether products of these types are carried out by the target's instructions for bytes."""
    if a not in dt.INT4 or b not in dt.INT4 or target.multiplies(a, b):
        return False
    return target.multiplies(dt.i8) or target.warpgroups_multiply(dt.i8)


def wider_operands(graph: Graph, target: Target) -> Graph:
    """`graph` as `target` can carry it out: itself where nothing is to be done."""
    found = {
        n.id
        for n in graph.all_nodes()
        if n.op == "mma" and multiplies_as_bytes(n.inputs[0].dtype, n.inputs[1].dtype, target)
    }
    if not found:
        return graph
    wide: dict[tuple[int, int], Node] = {}
    """(region, operand) → what it became there: several products share it."""

    def bytes_of(copy: Copy, x: Node, product: Node) -> Node:
        key = id(copy.region), x.id
        if key not in wide:
            wide[key] = copy.add("cast", (x,), {"dtype": dt.i8}, ValueType(x.dims, dt.i8), product.loc)
        return wide[key]

    def change(copy: Copy, n: Node) -> Node:
        if n.id not in found:
            return copy.same(n)
        a, b, *addend = copy.of(n.inputs)
        return copy.same(n, (bytes_of(copy, a, n), bytes_of(copy, b, n), *addend))

    return copied(graph, change)


__all__ = ["by_hand", "multiplies_as_bytes", "wider_operands"]
