"""Waves that hold the same elements of an array wait for each other before one of them writes these back.

In: a traced graph and how it is cut. Out: a graph with fences. Where waves are spread over a dimension that an array
lacks (they share K, and C has none), each of them reads all that it needs of the array, and one alone writes. A wave
that is late would read what has been written: C's new numbers for its old ones in `alpha * A B + beta * C`. So between
a read and the write behind it stands a fence of the workgroup's own scope; in a loop one stands behind the write as
well, for the next trip's reads. Fences between reads and writes of different elements are the tracer's
(`tracer/builder.py`), and of what nobody reads there is nothing to wait for.

Four warps that are one wave to the compiler (a warpgroup) share elements in the same way where a layout has replicas in
lanes of different warps, or a read or an earlier write has others than the write: what is read and written by layouts
is looked at then. So do the lanes of one warp, where the chip promises no order among them (PTX); those wait for each
other alone.

Invariant: the graph that was traced is not changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.dataflow.graph import REGIONS, Graph, Node, Region
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.dataflow.views import is_tile, view_dims
from wavedsl.ir.inference.infer import Inference
from wavedsl.ir.layouts.bits import number_of
from wavedsl.ir.layouts.layout import Layout

WARP = 32
"""Lanes that run together where four warps are one wave."""


def by_waves(graph: Graph, partition: Partition) -> Graph:
    """`graph`, itself where no waves share what one of them writes back."""
    found = [n for n, before in accessed_before(graph) if "read" in [x.op for x in before]]
    shared = {n.id: "workgroup" for n in found if _one_of_several(graph, partition, n)}
    return fenced(graph, shared) if shared else graph


def by_layouts(graph: Graph, inference: Inference, warpgroups: bool) -> Graph:
    """The same for the lanes of each warp, and for the warps of `warpgroups`, by the layouts of what they read and
    write.
    """
    scopes: dict[int, str] = {}
    every = accessed_before(graph, trips=True)
    known = {x.id: (_layout(inference, x) if is_tile(graph, x) else None, x.op == "read") for x in _all(every)}
    kinds = {kind: kind for kind in known.values()}
    known = {i: kinds[kind] for i, kind in known.items()}  # equal ones are the same: many accesses have few kinds

    def of(before: Collection[Node]) -> set[tuple[Layout | None, bool]]:
        return set({id(kind): kind for kind in [known[x.id] for x in before]}.values())

    once = _written_once(graph)
    for n, before in every:
        if n.attrs["memory"] in once:
            continue
        if not _same_agents(known[n.id][0], of(before), 1):
            scopes[n.id] = "warp"
    if warpgroups:
        for n, before in accessed_before(graph):
            if not _same_agents(known[n.id][0], of(before), WARP):
                scopes[n.id] = "workgroup"
    return fenced(graph, scopes) if scopes else graph


def _written_once(graph: Graph) -> set[str]:
    """Arrays of which nobody writes again what somebody has read or written: parts of sums, and results of a graph
    whose trips workgroups share, which write a tile where the traced graph does, once, in one branch or the other."""
    names = {a.name for a in graph.arguments if a.hidden}
    if graph.traced is None:
        return names
    accesses: dict[str, list[Node]] = {}
    for n in graph.traced.all_nodes():
        if "memory" in n.attrs:
            accesses.setdefault(n.attrs["memory"], []).append(n)
    own = {n.id for n in graph.traced.region.nodes}
    return names | {
        name for name, found in accesses.items() if len(found) == 1 and found[0].op == "write" and found[0].id in own
    }


def _all(found: Collection[tuple[Node, list[Node]]]) -> list[Node]:
    """Each access once."""
    return list({x.id: x for n, before in found for x in (n, *before)}.values())


def accessed_before(graph: Graph, trips: bool = False) -> list[tuple[Node, list[Node]]]:
    """Writes and atomics with the reads and writes of the same array in front of them, no fence between that is surely
    passed: one in a branch, or in a loop, may not be. `trips`: in earlier ones of a loop, too.
    """
    found: list[tuple[Node, list[Node]]] = []

    def walk(region: Region, known: dict[str, list[Node]]) -> None:
        for n in region.nodes:
            if n.op == "fence":
                known.clear()
            elif n.op in REGIONS:
                inner = {name: list(before) for name, before in known.items()}
                walk(n.attrs["body"], inner)
                if trips and n.op != "when":
                    walk(n.attrs["body"], inner)
                for name, before in inner.items():
                    here = known.setdefault(name, [])
                    here += [x for x in before if x not in here]
            elif "memory" in n.attrs:
                here = known.setdefault(n.attrs["memory"], [])
                if ROWS[n.op].effect and here:
                    found.append((n, list(here)))
                if n.op in ("read", "write"):
                    here.append(n)

    walk(graph.region, {})
    return found


def written_before(graph: Graph, access: Node) -> bool:
    """Whether a kernel may have written an array before it accesses it: in front of that, or in a loop around both."""
    return any(follows(graph, w, access) for w in writers(graph, access.attrs["memory"]) if w is not access)


def writers(graph: Graph, memory: str) -> list[Node]:
    """Writes and atomics of an array."""
    return [n for n in graph.all_nodes() if n.attrs.get("memory") == memory and ROWS[n.op].effect]


def follows(graph: Graph, early: Node, late: Node) -> bool:
    """Whether one node may run after another has: it stands behind it, or in a loop with it."""
    inside = _loops(graph)
    if early.id not in inside or late.id not in inside:
        return False
    order = {number: i for i, number in enumerate(inside)}
    around = inside[late.id]
    return order[early.id] < order[late.id] or any(r is x for r in inside[early.id] for x in around)


def loops_around(graph: Graph, n: Node) -> tuple[Region, ...]:
    """The bodies of the loops that a node is in, outermost first."""
    return _loops(graph)[n.id]


def _loops(graph: Graph) -> dict[int, tuple[Region, ...]]:
    """By node, in the order in which they stand."""
    inside: dict[int, tuple[Region, ...]] = {}

    def walk(region: Region, loops: tuple[Region, ...]) -> None:
        for n in region.nodes:
            inside[n.id] = loops
            if n.op in REGIONS:
                body = n.attrs["body"]
                walk(body, loops if n.op == "when" else (*loops, body))

    walk(graph.region, ())
    return inside


def fenced(graph: Graph, writes: Mapping[int, str]) -> Graph:
    """A copy with a fence of this scope in front of each of these writes. (Between trips the tracer has put those that
    it takes.)
    """

    def change(copy: Copy, n: Node) -> Node:
        if n.id in writes:
            copy.add("fence", (), {"scope": writes[n.id]}, None, n.loc)
        return copy.same(n)

    return copied(graph, change)


def _one_of_several(graph: Graph, partition: Partition, write: Node) -> bool:
    """Whether waves are spread over a dimension that the elements written do not have."""
    dims = view_dims(graph, write) if is_tile(graph, write) else write.inputs[0].dims
    own = {partition.derived[d][0] if d in partition.derived else partition.alike.get(d, d) for d in dims}
    return any(partition.dims[d].waves > 1 and d not in own for d in partition.order)


def _same_agents(layout: Layout | None, before: Collection[tuple[Layout | None, bool]], size: int) -> bool:
    """Whether each element is accessed `before`, by layouts and whether it is read, by those `size` lanes of a wave
    alone that write it, a warp or one. None: other elements than a tile's."""
    if layout is None or any(x is None for x, _ in before):
        return False
    if any(1 << number_of(b) >= size for b in layout.replica_bits("l")) and any(read for _, read in before):
        return False
    others = {x for x, _ in before if x != layout}
    if not others:
        return True
    owners = _owners(layout, size)
    every = [_owners(x, size) for x in others]
    return owners is not None and all(own is not None and np.array_equal(own, owners) for own in every)


def _layout(inference: Inference, n: Node) -> Layout | None:
    """The layout of what is read or written."""
    if n.op == "read":
        return inference.layouts[n.id]
    return inference.demands.get((n.id, 0), inference.layouts.get(n.inputs[0].id))


def _owners(layout: Layout | None, size: int) -> np.ndarray | None:
    """Every element with the `size` lanes of the wave that hold it, as one number each, in order; None where several
    such do.
    """
    if layout is None:
        return None
    table, extents = layout.table(), dict(layout.extents)
    place = np.zeros((), np.int64)
    for d in sorted(layout.dims):
        place = place * extents[d] + table[d]
    holders = (np.arange(layout.lanes) // size)[None, :, None]
    most = -(-layout.lanes // size)
    pairs = np.unique(place * most + holders)
    return pairs if len(pairs) == len(np.unique(pairs // most)) else None


__all__ = [
    "accessed_before", "by_layouts", "by_waves", "fenced", "follows", "loops_around", "writers", "written_before",
]  # fmt: skip
