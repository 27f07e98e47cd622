"""Matrix products of f32 at the precision that was asked for: which instructions carry them out on a target.

In: a traced graph whose `mma` nodes may have a `precision`, a target. Out: a graph of plain products. `tf32` multiplies
operands cut or rounded to tf32. `3xtf32` splits each operand in a tf32 number and a tf32 remainder and adds three
products, the small ones first: remainder times remainder is below f32's own rounding. Where a chip has no tf32
instruction, its f32 ones take over, which are more precise than asked for. `ieee` is what a product without a precision
is: f32 operands as they are.

Invariant: the graph that was traced is not changed; it stays what the kernel means.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wavedsl.ir.dtypes import f32, tf32
from wavedsl.ir.graph import Graph, Node, Region, ValueType
from wavedsl.ir.target import Target


def at_precision(graph: Graph, target: Target) -> Graph:
    """The graph with every product's precision carried out for the target; itself where none asks for one."""
    if not any("precision" in n.attrs for n in graph.all_nodes() if n.op == "mma"):
        return graph
    return _Rewrite(graph, any(atom.a_dtype is tf32 for atom in target.mma_atoms)).graph()


class _Rewrite:
    """A copy of a graph. `tensor`: whether the target multiplies tf32."""

    def __init__(self, graph: Graph, tensor: bool):
        self.old, self.tensor = graph, tensor
        self.fresh = graph.next_id()
        self.made: dict[int, Node] = {}
        """Old node → its copy."""
        self.parts: dict[tuple[int, int], tuple[Node, Node]] = {}
        """(region, old operand) → its tf32 number and remainder."""
        users: dict[int, list[tuple[Node, int]]] = {}
        for n in graph.all_nodes():
            for position, x in enumerate(n.inputs):
                users.setdefault(x.id, []).append((n, position))
        yielded = {x.id for region in graph.regions() for x in region.yields}
        self.cut = {
            n.id
            for n in graph.all_nodes()
            if tensor and n.op == "read" and n.dtype is f32 and users.get(n.id) and n.id not in yielded
            and all(u.attrs.get("precision") == "tf32" and position < 2 for u, position in users[n.id])
        }  # fmt: skip
        """Reads that only such products use: their bits go to the instruction as they are, which cuts off the low."""

    def graph(self) -> Graph:
        return replace(self.old, region=self.region(self.old.region))

    def region(self, old: Region) -> Region:
        carries = [self.copied(c) for c in old.carries]
        new = Region(old.dim, [], carries, (), old.loc)
        for n in old.nodes:
            if n.op == "mma" and "precision" in n.attrs:
                self.made[n.id] = self.product(n, new)
            else:
                new.nodes.append(self.copied(n))
        new.yields = tuple(self.made[x.id] for x in old.yields)
        return new

    def copied(self, n: Node) -> Node:
        attrs = dict(n.attrs)
        if "body" in attrs:
            attrs["body"] = self.region(attrs["body"])
        kind = ValueType(n.dims, tf32) if n.id in self.cut else n.type
        new = self.made[n.id] = Node(n.id, n.op, tuple(self.made[x.id] for x in n.inputs), attrs, kind, n.loc)
        return new

    def add(self, where: Region, op: str, inputs: tuple[Node, ...], kind: Any, like: Node, **attrs: Any) -> Node:
        node = Node(self.fresh, op, inputs, attrs, kind, like.loc)
        self.fresh += 1
        where.nodes.append(node)
        return node

    def product(self, n: Node, where: Region) -> Node:
        """The product with its precision carried out; the last of several has the old node's number."""
        attrs = {k: v for k, v in n.attrs.items() if k != "precision"}
        operands = [self.made[x.id] for x in n.inputs]
        if n.attrs["precision"] == "ieee" or not self.tensor:
            return self.last(n, where, tuple(operands), attrs)
        if n.attrs["precision"] == "tf32":
            a, b = (x if x.dtype is tf32 else self.rounded(x, where) for x in operands[:2])
            return self.last(n, where, (a, b, *operands[2:]), attrs)
        (a, low_a), (b, low_b) = (self.split(x, where) for x in operands[:2])
        addend = tuple(operands[2:])
        addend = (self.add(where, "mma", (low_a, b, *addend), n.type, n, **attrs),)
        addend = (self.add(where, "mma", (a, low_b, *addend), n.type, n, **attrs),)
        return self.last(n, where, (a, b, *addend), attrs)

    @staticmethod
    def last(n: Node, where: Region, operands: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
        node = Node(n.id, n.op, operands, attrs, n.type, n.loc)
        where.nodes.append(node)
        return node

    def rounded(self, x: Node, where: Region) -> Node:
        """An operand rounded to tf32."""
        return self.split(x, where, remainder=False)[0]

    def split(self, x: Node, where: Region, remainder: bool = True) -> tuple[Node, Node]:
        """(the operand rounded to tf32, what that leaves rounded to tf32). Without a remainder the same twice."""
        key = (id(where), 2 * x.id + remainder)
        found = self.parts.get(key)
        if found is not None:
            return found
        narrow = ValueType(x.dims, tf32)
        high = self.add(where, "cast", (x,), narrow, x, dtype=tf32)
        low = high
        if remainder:
            wide = self.add(where, "cast", (high,), x.type, x, dtype=f32)
            rest = self.add(where, "sub", (x, wide), x.type, x)
            low = self.add(where, "cast", (rest,), narrow, x, dtype=tf32)
        self.parts[key] = high, low
        return high, low


__all__ = ["at_precision"]
