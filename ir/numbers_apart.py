"""Numbers of a loop that say where tiles lie and that something else is computed with: a load for each.

In: a traced graph whose loops are pipelines of loads, copies and what is computed. Out: a graph in which such a number
is read twice. A page's number is read, the page's tiles are copied from where it says, and the scores of a page that
does not exist become NaN. A register that is loaded in every trip is used up to one trip later: were it one load, what
is computed last would keep it, and with it the copies, one trip ahead, however many slots there are.

Invariant: the graph that was traced is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from wavedsl.ir.graph import Graph, Node, Region
from wavedsl.ir.views import placement


def numbers_apart(graph: Graph) -> Graph:
    """`graph`, itself where no number is for both."""
    apart: dict[int, set[int]] = {}
    for region in graph.regions():
        if region.dim is not None:
            apart |= _for_both(graph, region)
    if not apart:
        return graph
    return replace(graph, region=_copied(graph.region, apart, {}, count(graph.next_id())))


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
        if x.id in inside and x.id not in placing and not x.dims:
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


def _copied(old: Region, apart: Mapping[int, set[int]], made: dict[int, Node], ids: Any) -> Region:
    """A copy of a region in which the users in `apart` have a read of their own. `made`: old node → its copy."""
    again: dict[int, Node] = {}

    def node(n: Node) -> Node:
        attrs = {k: _copied(v, apart, made, ids) if isinstance(v, Region) else v for k, v in n.attrs.items()}
        inputs = tuple(again[x.id] if n.id in apart.get(x.id, ()) else made[x.id] for x in n.inputs)
        made[n.id] = Node(n.id, n.op, inputs, attrs, n.type, n.loc)
        return made[n.id]

    new = Region(old.dim, [], [node(c) for c in old.carries], (), old.loc)
    for n in old.nodes:
        new.nodes.append(node(n))
        if n.id in apart:
            again[n.id] = Node(next(ids), n.op, made[n.id].inputs, n.attrs, n.type, n.loc)
            new.nodes.append(again[n.id])
    new.yields = tuple(made[y.id] for y in old.yields)
    return new


__all__ = ["numbers_apart"]
