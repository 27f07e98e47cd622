"""Scratch in the place of tiles that are done with: what waves reduce together may lie there behind the last loop.

In: a `Lowering` before anything has a place, the nodes that reduce. Out: whether their buffer takes the tiles' bytes.

Tiles are all that large kernels have in shared memory, often to the last byte: the counter with which workgroups that
share a loop find the last of them would cost such a kernel a slot of its rings, though it is read behind the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wavedsl.ir.dataflow.graph import Node, region_nodes
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.staging.plan_reads import wants_shared


def behind_tiles(low: Lowering, nodes: Sequence[Node]) -> bool:
    """Whether all of `nodes` run when no tile in shared memory is wanted any more, on chips whose fences wait for
    copies: they stand outside of all loops behind a fence, and everything that goes through shared memory stands in
    loops before it.

    At the fence every wave has waited for its accesses of shared memory and for its copies ((COPIES) of the back end),
    so others may lie there.
    """
    if not low.target.fences_wait or not nodes:
        return False
    outer = low.graph.region.nodes
    place = {id(x): i for i, n in enumerate(outer) for x in (n, *_within(n))}
    if any(n not in outer for n in nodes):
        return False
    fences = [i for i, n in enumerate(outer) if n.op == "fence"]
    first = min(place[id(n)] for n in nodes)
    fence = max((i for i in fences if i < first), default=-1)
    reads = [n for n in low.graph.all_nodes() if n.op == "read"]
    staged = [n for n in reads if wants_shared(low, n) or wants_shared(low, n, True)]
    return bool(staged) and all(place[id(n)] < fence and low.region_of(n) is not low.graph.region for n in staged)


def _within(n: Node) -> Iterator[Node]:
    """The nodes of a loop or a conditional."""
    if "body" in n.attrs:
        yield from region_nodes(n.attrs["body"])
