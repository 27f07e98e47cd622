"""Gathered elements that a mask throws away are not gathered.

In: a traced graph. Out: a graph in which `wd.where(mask, x[at] * w, 0.0)` reads `x[wd.where(mask, at, -1)]`, and at -1
nothing: the numbers of a row of a sparse matrix come in whole tiles, and what belongs to other rows had its line of
memory fetched. A read of a tile stays as it is, since a part of a line is no cheaper than all of it.

Only where the mask is known no later than the index: it is made of indices, extents and what is outside of the region,
or of reads that the index is made of (outside of loops of any tile's), and of nothing that a loop carries. Not in
kernels with products, whose gathered tiles are copied by lanes that make the numbers of their own rows, and not where
an array is gathered from by several indices.

Invariant: the graph that was traced is not changed. Where the mask does not hold, nobody sees what is read.
"""

from __future__ import annotations

from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Graph, Node, Region, ValueType
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import index_positions, is_tile
from wavedsl.ir.dataflow.walks import postorder
from wavedsl.ir.quick_dataclass import dataclass


@dataclass(frozen=True)
class _Masked:
    """Where an index counts. `holds`: whether that is where the mask does, or where it does not; `position`: the
    index's among a read's inputs."""

    mask: Node
    holds: bool
    position: int


def masked_gathers(graph: Graph) -> Graph:
    """`graph`, itself where no gather is masked so."""
    nodes = list(graph.all_nodes())
    if not any(n.op == "where" for n in nodes) or any(n.op in PRODUCTS for n in nodes):
        return graph
    if not any(n.op == "read" and index_positions(n) and not is_tile(graph, n) for n in nodes):
        return graph
    found = _Gathers(graph).found
    if not found:
        return graph
    return copied(graph, lambda copy, n: _masked(copy, n, found[n.id]) if n.id in found else copy.same(n))


class _Gathers:
    """`found`: number of a read → where its elements are wanted."""

    def __init__(self, graph: Graph):
        self.graph, self.found = graph, dict[int, _Masked]()
        self.users: dict[int, list[Node | None]] = {}
        self.place: dict[int, int] = {}
        regions = list(graph.regions())
        for n in graph.all_nodes():
            self.place[n.id] = len(self.place)
            for x in n.inputs:
                self.users.setdefault(x.id, []).append(n)
        for region in regions:
            for x in region.yields:
                self.users.setdefault(x.id, []).append(None)
        for region in regions:
            own = {n.id for n in region.nodes}
            for n in region.nodes:
                if n.op == "where":
                    for arm, holds in ((n.inputs[1], True), (n.inputs[2], False)):
                        self._look_at(n, arm, holds, region, own)
        # Of `x[4 * i]` and `x[4 * i + 1]` neighbours become one access (`join_accesses`), as long as a number tells one
        # place from the other.
        places: dict[str, set[tuple[int, ...]]] = {}
        for n in graph.all_nodes():
            if n.op == "read" and index_positions(n):
                indices = tuple(n.inputs[i].id for i in sorted(index_positions(n)))
                places.setdefault(n.attrs["memory"], set()).add(indices)
        for n in graph.all_nodes():
            if n.id in self.found and len(places[n.attrs["memory"]]) > 1:
                del self.found[n.id]

    def _look_at(self, where: Node, arm: Node, holds: bool, region: Region, own: set[int]) -> None:
        """Note the gathers that only this arm of a choice is made of."""
        mask = where.inputs[0]
        wanted = {where.id}
        work = [arm]
        while work:
            n = work.pop()
            if n.id in wanted or n.id not in own or sum(x is n for x in where.inputs) != (n is arm):
                continue
            if any(u is None or u.id not in wanted for u in self.users[n.id]):
                continue  # comes again when the last of its users is known
            if n.op == "read":
                self._mask(n, mask, holds, region)
                continue
            row = ROWS[n.op]
            if n.op in REGIONS or row.effect or row.index_rule not in ("same", "lift") or not n.inputs:
                continue
            wanted.add(n.id)
            work += n.inputs

    def _mask(self, n: Node, mask: Node, holds: bool, region: Region) -> None:
        if n.id in self.found or is_tile(self.graph, n) or self.place[mask.id] > self.place[n.id]:
            return
        for position in sorted(index_positions(n)):
            index = n.inputs[position]
            signed = index.dtype.kind == "int" and index.dtype.bits >= 32
            if signed and mask.dims and {*mask.dims} <= {*index.dims} and self._known(mask, index, region):
                self.found[n.id] = _Masked(mask, holds, position)
                return

    def _known(self, mask: Node, index: Node, region: Region) -> bool:
        """Whether a region knows the mask no later than the index."""
        own = {n.id for n in region.nodes}
        reads = {x.id for x in postorder(index, lambda x: x.inputs if x.id in own else (), ()) if x.op == "read"}
        carried = {c.id for c in region.carries}
        for x in postorder(mask, lambda x: x.inputs if x.id in own else (), ()):
            loaded = x.op == "read" and x.id in own and x.id not in reads
            if x.id in carried or (loaded and not (region is self.graph.region and is_tile(self.graph, x))):
                return False
            if x.id in own and x.op != "read" and (x.op in REGIONS or ROWS[x.op].index_rule == "project"):
                return False
        return True


def _masked(copy: Copy, n: Node, found: _Masked) -> Node:
    """A read whose index is nowhere where nobody wants what it reads."""
    inputs = list(copy.of(n.inputs))
    index, mask = inputs[found.position], copy.made[found.mask.id]
    nowhere = copy.add("constant", (), {"value": -1}, ValueType((), index.dtype), n.loc)
    arms = (index, nowhere) if found.holds else (nowhere, index)
    inputs[found.position] = copy.add("where", (mask, *arms), {}, ValueType(index.dims, index.dtype), n.loc)
    return copy.same(n, tuple(inputs))


__all__ = ["masked_gathers"]
