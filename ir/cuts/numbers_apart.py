"""Numbers of a loop that say where tiles lie and that something else is computed with: a load for each.

In: a traced graph whose loops are pipelines of loads, copies and what is computed. Out: a graph in which such a number
is read twice. A page's number is read, the page's tiles are copied from where it says, and the scores of a page that
does not exist become NaN. A register that is loaded in every trip is used up to one trip later: were it one load, what
is computed last would keep it, and with it the copies, one trip ahead, however many slots there are.

Invariant: the graph that was traced is not changed.
"""

from __future__ import annotations

from wavedsl.ir.dataflow.graph import Graph, Node, Region, ValueType
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dataflow.views import placement


def numbers_apart(graph: Graph) -> Graph:
    """`graph`, itself where no number is for both."""
    apart: dict[int, set[int]] = {}
    for region in graph.regions():
        if region.dim is not None:
            apart |= _for_both(graph, region)
    if not apart:
        return graph
    again: dict[int, Node] = {}
    """Number → the read of it that those in `apart` use."""

    def change(copy: Copy, n: Node) -> Node:
        inputs = tuple(again[x.id] if n.id in apart.get(x.id, ()) else copy.made[x.id] for x in n.inputs)
        node = copy.same(n, inputs)
        if n.id in apart:
            again[n.id] = copy.add(n.op, node.inputs, n.attrs, n.type, n.loc)
        return node

    return copied(graph, change)


def _for_both(graph: Graph, region: Region) -> dict[int, set[int]]:
    """Single numbers that a loop's body reads and that place tiles of its → the users that compute with them."""
    inside = {n.id for n in region.nodes}
    placed: dict[int, list[Node]] = {}
    """Access → the numbers that place its tile."""
    for n in region.nodes:
        if n.op in ("read", "write"):
            found = placement(graph, n)
            placed[n.id] = found.numbers() if found is not None else []
    placing: set[int] = set()
    work = [x for n in region.nodes if n.op == "read" for x in placed[n.id]]
    while work:
        x = work.pop()
        single = isinstance(x.type, ValueType) and not x.dims  # not what a branch gives, several values together
        if x.id in inside and x.id not in placing and single:
            placing.add(x.id)
            work += placed[x.id] if x.op == "read" else x.inputs
    out = {}
    for n in region.nodes:
        if n.op != "read" or n.id not in placing:
            continue
        users = [u for u in region.nodes if n in u.inputs]
        others = {u.id for u in users if u.id not in placing and not (u.op == "read" and n in placed[u.id])}
        if others and len(others) < len(users):
            out[n.id] = others
    return out


__all__ = ["numbers_apart"]
