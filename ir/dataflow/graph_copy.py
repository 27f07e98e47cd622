"""Copies of a dataflow graph, for passes that replace nodes or put others beside them.

In: a graph, and a function that says what stands for each of its nodes. Out: the graph in new nodes and regions.
`Copy.same` is what most nodes become; a pass says what is different about the others.

Invariant: the graph that is copied does not change. A copy has the number of the node it stands for; what is added has
numbers that no node of the graph has, in the order in which it is added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from wavedsl.ir.dataflow.graph import Graph, Node, Region, ValueType
from wavedsl.ir.loc import Loc

NodeType = ValueType | tuple[ValueType, ...] | None


def copied(graph: Graph, change: Callable[[Copy, Node], Node]) -> Graph:
    """`graph` with `change(copy, n)` for each node `n`, asked in program order, a loop before its body. It puts what
    it makes at the end of the region with `copy.same` and `copy.add`, and gives the node that stands for `n`."""
    copy = Copy(graph, change)
    return replace(graph, region=copy.inner(graph.region))


class Copy:
    """A copy that is being made. `made`: number of a node → what stands for it."""

    def __init__(self, graph: Graph, change: Callable[[Copy, Node], Node]):
        self.graph, self.change = graph, change
        self.fresh = graph.next_id()
        self.made: dict[int, Node] = {}
        self.region = graph.region
        """Where nodes go; a region of the copy."""

    def inner(self, old: Region) -> Region:
        """The copy of a region; nodes go to it meanwhile."""
        outer = self.region
        new = self.region = Region(old.dim, [], [], (), old.loc)
        for carry in old.carries:
            new.carries.append(self._copy(carry, carry.op, (), carry.attrs, carry.type))
        for n in old.nodes:
            self.made[n.id] = self.change(self, n)
        new.yields = self.of(old.yields)
        self.region = outer
        return new

    def of(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """What stands for nodes of the graph that come before."""
        return tuple(self.made[n.id] for n in nodes)

    def same(
        self,
        n: Node,
        inputs: tuple[Node, ...] | None = None,
        *,
        op: str | None = None,
        attrs: dict[str, Any] | None = None,
        type: NodeType = None,
    ) -> Node:
        """`n` at the end of the region, the region inside it copied, with what is given in place of its own."""
        inputs = self.of(n.inputs) if inputs is None else inputs
        node = self._copy(n, op or n.op, inputs, n.attrs if attrs is None else attrs, type or n.type)
        self.region.nodes.append(node)
        return node

    def add(self, op: str, inputs: tuple[Node, ...], attrs: dict[str, Any], type: NodeType, loc: Loc | None) -> Node:
        """A node that the graph does not have, at the end of the region."""
        node = Node(self.fresh, op, inputs, attrs, type, loc)
        self.fresh += 1
        self.region.nodes.append(node)
        return node

    def _copy(self, n: Node, op: str, inputs: tuple[Node, ...], attrs: dict[str, Any], type: NodeType) -> Node:
        attrs = dict(attrs)
        if "body" in attrs:
            attrs["body"] = self.inner(attrs["body"])
        node = self.made[n.id] = Node(n.id, op, inputs, attrs, type, n.loc)
        return node


__all__ = ["Copy", "copied"]
