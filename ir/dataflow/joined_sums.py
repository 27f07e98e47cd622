"""Sums along one dimension that are added up are one sum of what is added element by element.

In: a traced graph. Out: a graph in which `sum(x, d) + sum(y, d)` is `sum(x + y, d)`: a loop that Python unrolls, over
the four pixels around a place say, reduces once for all of them. What it saves is the exchange between lanes and
waves; in a lane there are as many additions either way, multiply-adds where a sum is of products.

Invariant: the graph that was traced is not changed. Sums are in any order; numbers of fewer than 32 bits would be
rounded in between, and are not added so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wavedsl.ir.dataflow.graph import Graph, Node, Region, ValueType
from wavedsl.ir.dataflow.graph_copy import Copy, copied


def joined_sums(graph: Graph) -> Graph:
    """`graph`, itself where no such sums are added."""
    while True:
        found = _Sums(graph)
        if not found.joins:
            return graph
        graph = copied(graph, found.change)


class _Sums:
    """What of a graph is joined. `joins`: the last sum of a group → all of it, in program order; `taken`: those before
    it, and the products of which multiply-adds are made; `roots`: an addition → its terms, with one sum for a group."""

    def __init__(self, graph: Graph):
        self.users: dict[int, list[Node | None]] = {}
        for region in graph.regions():
            for n in region.nodes:
                for x in n.inputs:
                    self.users.setdefault(x.id, []).append(n)
            for x in region.yields:
                self.users.setdefault(x.id, []).append(None)
        self.joins: dict[int, list[Node]] = {}
        self.group: dict[int, list[Node]] = {}
        self.roots: dict[int, list[Node]] = {}
        self.inner: set[int] = set()
        self.running: dict[int, Node] = {}
        for region in graph.regions():
            self._look(region)

    def _look(self, region: Region) -> None:
        place = {n.id: i for i, n in enumerate(region.nodes)}
        for n in reversed(region.nodes):
            if not _adds(n) or n.id in self.inner:
                continue
            terms, inner = self._terms(n, place)
            groups: dict[Any, list[Node]] = {}
            for x in terms:
                if x.op == "sum" and x.id in place and self.users[x.id] in ([n], *([i] for i in inner)):
                    source = x.inputs[0]
                    groups.setdefault((x.attrs["dim"], frozenset(source.dims), source.type), []).append(x)
            several = [sorted(g, key=lambda x: place[x.id]) for g in groups.values() if len(g) > 1]
            if not several:
                continue
            self.inner |= {i.id for i in inner}
            gone = {x.id for g in several for x in g[:-1]}
            self.roots[n.id] = [x for x in terms if x.id not in gone]
            for g in several:
                self.joins[g[-1].id] = g
                for x in g:
                    self.group[x.id] = g

    def _terms(self, n: Node, place: Mapping[int, int]) -> tuple[list[Node], list[Node]]:
        """What an addition adds, and the additions whose results nothing else uses."""
        terms: list[Node] = []
        inner: list[Node] = []
        work = [n]
        while work:
            x = work.pop()
            if x is n or (_adds(x) and x.id in place and x.dtype is n.dtype and len(self.users[x.id]) == 1):
                if x is not n:
                    inner.append(x)
                work += reversed(x.inputs)
            else:
                terms.append(x)
        return terms, inner

    def change(self, copy: Copy, n: Node) -> Node:
        g = self.group.get(n.id)
        if g is not None:
            return self._sum(copy, n, g)
        if n.id in self.inner:
            return copy.made[n.inputs[0].id]
        terms = self.roots.get(n.id)
        if terms is None:
            return copy.same(n)
        total = copy.made[terms[0].id]
        if len(terms) == 1:
            return total
        for x in terms[1:-1]:
            total = copy.add("add", (total, copy.made[x.id]), dict(n.attrs), _of_both(total, copy.made[x.id]), n.loc)
        return copy.same(n, (total, copy.made[terms[-1].id]))

    def _sum(self, copy: Copy, n: Node, g: list[Node]) -> Node:
        """A sum of a group: what has been added so far, and for the last one its sum."""
        x = n.inputs[0]
        so_far = self.running.get(g[0].id)
        now = copy.made[x.id]
        if so_far is not None:
            product = x.op == "mul" and x.dtype.is_float and len(self.users[x.id]) == 1
            if product:
                now = copy.add("fma", (*copy.of(x.inputs), so_far), {}, x.type, x.loc)
            else:
                now = copy.add("add", (so_far, now), {}, x.type, n.loc)
        self.running[g[0].id] = now
        return copy.same(n, (now,)) if n is g[-1] else now


def _adds(n: Node) -> bool:
    return n.op == "add" and len(n.inputs) == 2 and isinstance(n.type, ValueType) and n.dtype.bits >= 32


def _of_both(x: Node, y: Node) -> ValueType:
    assert isinstance(x.type, ValueType) and isinstance(y.type, ValueType)
    return ValueType((*x.type.dims, *(d for d in y.type.dims if d not in x.type.dims)), x.type.dtype)


__all__ = ["joined_sums"]
