"""Loops over dimensions that are known to be empty leave the graph: each gives what it starts from. So do values that
nobody reads.

In: a graph and the numbers of its symbols. Out: a graph without such loops and without what was computed for them
alone, and what is left of a schedule then. Nobody downstream meets a loop that is known to have no trip: there is
nothing to stage, to lay out or to wait for. Nor is a reduction over waves lowered whose result has no reader: its
exchange through shared memory, with barriers, would look like an effect from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wavedsl.ir.choices import Choices
from wavedsl.ir.dataflow.constraints import HardwareConstraint
from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Graph, Node, Region, initial_values
from wavedsl.ir.dataflow.graph_copy import Copy, copied
from wavedsl.ir.symbols import evaluate


def without_empty_loops(graph: Graph, dims: Mapping[Any, Any]) -> Graph:
    """The graph without loops over dimensions of extent 0; the graph itself where there are none."""
    empty = {n.id for n in graph.loops() if evaluate(n.attrs["body"].dim, dims) == 0}
    if not empty:
        return graph

    def change(copy: Copy, n: Node) -> Node:
        if n.id in empty:
            return n  # nobody asks what stands for it: its results are what it starts from
        if n.op == "result" and n.inputs[0].id in empty:
            start = initial_values(n.inputs[0])[n.attrs["position"]]
            return copy.of((start,))[0]
        return copy.same(n)

    found = copied(graph, change)
    _leave_out(found.region, _unused(found.region))
    if _products(graph) and not _products(found):  # what they were asked to be binds nothing else
        asked = [replace(c, threads_per_wave=None, mma_type=None) if isinstance(c, HardwareConstraint) else c
                 for c in graph.constraints]  # fmt: skip
        found = replace(found, constraints=asked)
    return found


def _products(graph: Graph) -> bool:
    return any(n.op in PRODUCTS for n in graph.all_nodes())


def without_unused(graph: Graph) -> Graph:
    """The graph without what has neither an effect nor a reader; the graph itself where there is no such node."""
    unused = _unused(graph.region)
    if not unused:
        return graph
    found = copied(graph, lambda copy, n: copy.same(n))  # numbers stay
    _leave_out(found.region, unused)
    return found


def _unused(region: Region, used: set[int] | None = None) -> set[int]:
    """Numbers of the nodes of a region, and of those in it, that have neither an effect nor a reader. `used`: numbers
    of what is read behind it, to which what it reads is added."""
    used = set() if used is None else used
    used.update(y.id for y in region.yields)
    found = set()
    for n in reversed(region.nodes):
        if n.id not in used and n.type is not None and n.op not in REGIONS and not n.op.startswith("atomic_"):
            found.add(n.id)
            continue
        used.update(x.id for x in n.inputs)
        if "body" in n.attrs:
            found |= _unused(n.attrs["body"], used)
    return found


def _leave_out(region: Region, unused: set[int]) -> None:
    """Takes nodes of these numbers out of a region and those in it."""
    region.nodes[:] = [n for n in region.nodes if n.id not in unused]
    for n in region.nodes:
        if "body" in n.attrs:
            _leave_out(n.attrs["body"], unused)


def asked_of_the_rest(graph: Graph, rest: Graph, choices: Choices) -> Choices:
    """What of a schedule says something about `rest`, which is `graph` without empty loops: no parts of a loop that is
    gone, and where no product is left, no roles, clusters or turns."""
    if rest is graph:
        return choices
    choices = replace(choices, split=None, stream=None)
    if _products(graph) and not _products(rest):
        choices = replace(choices, specialize=None, registers=None, persistent=None, cluster=None, ping_pong=None)
    return choices
