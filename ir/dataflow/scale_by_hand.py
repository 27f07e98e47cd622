"""Block-scaled products on chips whose matrix instructions take no scales: the operands are scaled before.

In: a graph, a target. Out: the graph, or a copy in which every `scaled_mma` is the `mma` of its operands cast to bf16,
each element times its block's scale. The products are exact: an operand has at most four significant bits and a scale
is a power of two; only what leaves bf16's range (below 2^-126 or from 2^128 on) is rounded, to a denormal or infinity.
"""

from __future__ import annotations

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Graph, Node, ValueType, addend, factors
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dataflow.ops import ROWS, scale_block
from wavedsl.ir.target import Target


def scale_by_hand(graph: Graph, target: Target) -> Graph:
    """`graph` as `target` can carry it out: itself where nothing is to be done."""
    native = any(atom.scale_block for atom in target.mma_atoms)
    if native or not any(n.op == "scaled_mma" for n in graph.all_nodes()):
        return graph
    return copied(graph, lambda copy, n: _product(copy, n) if n.op == "scaled_mma" else copy.same(n))


def _product(copy: Copy, n: Node) -> Node:
    """The plain product of the scaled operands."""
    inputs = copy.of(n.inputs)
    sides = [_scaled(copy, n, inputs[position], inputs[position + 1]) for position in factors(n)]
    added = addend(n)
    return copy.same(n, (*sides, *(() if added is None else copy.of((added,)))), op="mma", attrs={})


def _scaled(copy: Copy, product: Node, value: Node, scale: Node) -> Node:
    """One operand of `product`, each element times its block's scale."""
    k = next(d for d in value.dims if d not in scale.dims and d not in product.dims)
    assert isinstance(value.type, ValueType) and isinstance(scale.type, ValueType)
    attrs = {"dim": k, "count": scale_block(value.type, scale.type, k)}
    of_scale = ValueType(scale.dims, dt.bf16)
    of_all = ROWS["repeat_interleave"].rule((of_scale,), dict(attrs), copy.graph)
    loc = product.loc
    wide = copy.add("cast", (value,), {"dtype": dt.bf16}, ValueType(value.dims, dt.bf16), loc)
    factor = copy.add("cast", (scale,), {"dtype": dt.bf16}, of_scale, loc)
    repeated = copy.add("repeat_interleave", (factor,), attrs, of_all, loc)
    return copy.add("mul", (wide, repeated), {}, wide.type, loc)


__all__ = ["scale_by_hand"]
