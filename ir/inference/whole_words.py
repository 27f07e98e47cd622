"""Products whose lanes can hold runs of the contracted dimension that are whole words of what factors are made of.

In: a product, and which reads have rows that are contiguous in memory. Out: whether the contracted dimension may be
permuted within instructions, so that a lane has 16 bytes of a plain factor and eight neighbours of 4 bits.

What counts four bits of an array per element: an array of 4-bit elements, and one of bytes or words of which two or
eight elements each take their part, repeated (`repeat_interleave`) or read where `K // 2` says. A factor is made of
them element by element, by arithmetic, or by looking each up in a table.
"""

from __future__ import annotations

from wavedsl.ir.addresses.mapped_runs import counted_along, longest_run, resolved
from wavedsl.ir.dataflow.graph import PRODUCTS, Graph, Node, ValueType
from wavedsl.ir.dataflow.mma_dims import product_dims
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import is_tile, view_dims
from wavedsl.ir.layouts.column_pairs import Rows
from wavedsl.ir.layouts.value_classes import is_packed_read
from wavedsl.ir.symbols import AddressSpace, dim_name

BITS = 4
"""Of an array, per element."""


def straight(graph: Graph, x: Node, product: Node, rows: Rows) -> bool:
    """Whether a factor of a product is read where it is multiplied, as lanes hold it, and has the contracted dimension
    contiguous in global memory."""
    if x.op != "read" or x.dtype.packed or rows.get(x.id) != dim_name(product_dims(product)[2]):
        return False
    space = graph.argument(x.attrs["memory"]).address_space
    return graph.subs.get(space, space) is AddressSpace.GLOBAL


def of_whole_words(graph: Graph, product: Node, rows: Rows) -> bool:
    """Whether lanes can hold whole words of an array of 4 bits per element of which a factor of a product is made,
    element by element: the contracted dimension is contiguous in that array, and in the other factor's, which is
    another such or a plain one, whose rows may lie anywhere."""
    k = dim_name(product_dims(product)[2])
    packed = [_packed_along(graph, x, k) for x in product.inputs[:2]]
    plain = [
        x.op == "read" and not x.dtype.packed and (rows.get(x.id) == k or _row_by_index(graph, x, k))
        for x in product.inputs[:2]
    ]
    return any(packed) and all(x or y for x, y in zip(packed, plain))


def _row_by_index(graph: Graph, x: Node, k: str) -> bool:
    """Whether a read takes rows by index whose elements `k` counts, as the array's last dimension."""
    if is_tile(graph, x):
        return False
    *rows, last = x.attrs["mapping"].coords
    return not isinstance(last, int) and dim_name(last) == k and any(isinstance(c, int) for c in rows)


def _packed_along(graph: Graph, x: Node, k: str) -> bool:
    """Whether a value is made of an array with 4 bits per element, `k` contiguous, element by element."""
    todo, seen = [(x, k, 1)], {x.id}
    while todo:
        n, along, count = todo.pop()
        if n.op == "read" and _parts(graph, n, along) * count * BITS == n.dtype.bits:
            return True
        dims = set(n.dims)
        if n.op == "repeat_interleave" and dim_name(n.attrs["dim"]) == along:
            (source,) = set(n.inputs[0].dims) - dims
            along, count, dims = dim_name(source), count * n.attrs["count"], set(n.inputs[0].dims)
        elif n.op in PRODUCTS or not (ROWS[n.op].index_rule == "same" or _looked_up(graph, n)):
            continue
        for y in n.inputs:
            if isinstance(y.type, ValueType) and set(y.dims) == dims and y.id not in seen:
                seen.add(y.id)
                todo.append((y, along, count))
    return False


def _parts(graph: Graph, n: Node, along: str) -> int:
    """How many neighbours of a read's value along a dimension take their parts of one element of the array, whose last
    dimension it counts along; 0 where they lie otherwise."""
    if is_packed_read(n) or is_tile(graph, n):
        return int(dim_name(view_dims(graph, n)[-1]) == along)
    coords = resolved(graph, n).coords
    c = len(coords) - 1
    others = [x for x in coords[:c] if not isinstance(x, int)]
    counted = [d for d in counted_along(n, coords, c, [dim_name(d) for d in n.dims]) if dim_name(d) == along]
    longest, parts = longest_run(coords[c], others, counted[0]) if counted else (1, 0)
    return parts if longest > parts else 0


def _looked_up(graph: Graph, n: Node) -> bool:
    """Whether a read gathers each element by an index of its own."""
    return n.op == "read" and not is_tile(graph, n)


__all__ = ["of_whole_words", "straight"]
