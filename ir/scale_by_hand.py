"""Block-scaled products on chips whose matrix instructions take no scales: the operands are scaled before.

In: a graph, a target. Out: the graph, or a copy in which every `scaled_mma` is the `mma` of its operands cast to bf16,
each element times its block's scale. The products are exact: an operand has at most four significant bits and a scale
is a power of two; only what leaves bf16's range (below 2^-126 or from 2^128 on) is rounded, to a denormal or infinity.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.graph import Graph, Node, Region, ValueType, addend, factors
from wavedsl.ir.ops import ROWS, scale_block
from wavedsl.ir.target import Target


def scale_by_hand(graph: Graph, target: Target) -> Graph:
    """`graph` as `target` can carry it out: itself where nothing is to be done."""
    native = any(atom.scale_block for atom in target.mma_atoms)
    if native or not any(n.op == "scaled_mma" for n in graph.all_nodes()):
        return graph
    return replace(graph, region=_Copy(graph).region(graph.region))


class _Copy:
    """A copy of a graph's regions, node by node."""

    def __init__(self, graph: Graph):
        self.graph, self.number = graph, graph.next_id()
        self.made: dict[int, Node] = {}

    def region(self, old: Region) -> Region:
        new = Region(old.dim, [], [self.node(c) for c in old.carries], (), old.loc)
        for n in old.nodes:
            made = self.product(n, new) if n.op == "scaled_mma" else self.node(n)
            new.nodes.append(made)
        new.yields = tuple(self.made[y.id] for y in old.yields)
        return new

    def node(self, old: Node) -> Node:
        attrs = dict(old.attrs)
        inputs = tuple(self.made[x.id] for x in old.inputs)
        if isinstance(attrs.get("body"), Region):
            attrs["body"] = self.region(attrs["body"])
        new = self.made[old.id] = Node(old.id, old.op, inputs, attrs, old.type, old.loc)
        return new

    def product(self, old: Node, region: Region) -> Node:
        """The plain product of the scaled operands."""
        sides = []
        for position in factors(old):
            value, scale = self.made[old.inputs[position].id], self.made[old.inputs[position + 1].id]
            sides.append(self.scaled(region, old, value, scale))
        added = addend(old)
        inputs = (*sides, *(() if added is None else (self.made[added.id],)))
        new = self.made[old.id] = Node(old.id, "mma", inputs, {}, old.type, old.loc)
        return new

    def scaled(self, region: Region, product: Node, value: Node, scale: Node) -> Node:
        k = next(d for d in value.dims if d not in scale.dims and d not in product.dims)
        assert isinstance(value.type, ValueType) and isinstance(scale.type, ValueType)
        attrs = {"dim": k, "count": scale_block(value.type, scale.type, k)}
        wide = self.add(region, product, "cast", (value,), {"dtype": dt.bf16}, ValueType(value.dims, dt.bf16))
        of_scale = ValueType(scale.dims, dt.bf16)
        factor = self.add(region, product, "cast", (scale,), {"dtype": dt.bf16}, of_scale)
        of_all = ROWS["repeat_interleave"].rule((of_scale,), dict(attrs), self.graph)
        repeated = self.add(region, product, "repeat_interleave", (factor,), attrs, of_all)
        return self.add(region, product, "mul", (wide, repeated), {}, wide.type)

    def add(
        self, region: Region, near: Node, op: str, inputs: tuple[Node, ...], attrs: dict[str, Any], type: Any
    ) -> Node:
        new = Node(self.number, op, inputs, attrs, type, near.loc)
        self.number += 1
        region.nodes.append(new)
        return new


__all__ = ["scale_by_hand"]
