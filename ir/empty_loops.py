"""Products that are never carried out, since they lie in loops over dimensions that are known to be empty.

In: a graph and the numbers of its symbols. Out: whether all of its products are such, and what of a schedule is left
then: a loop without trips gives its `init_args`, whoever would copy its operands and in whatever order. What is read in
front of it for its products has no readers, so nobody would wait for a bulk copy of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wavedsl.ir.choices import Choices
from wavedsl.ir.graph import PRODUCTS, Graph, region_nodes
from wavedsl.ir.symbols import evaluate


def idle_products(graph: Graph, dims: Mapping[Any, Any]) -> bool:
    """Whether there are products, all of them in loops that are known to have no trip."""
    products = {n.id for n in graph.all_nodes() if n.op in PRODUCTS}
    return bool(products) and products <= idle_nodes(graph, dims)


def idle_nodes(graph: Graph, dims: Mapping[Any, Any]) -> set[int]:
    """Numbers of the nodes in loops that are known to have no trip, and of what these alone use."""
    idle = {
        inside.id
        for n in graph.all_nodes()
        if n.op == "iterate" and evaluate(n.attrs["body"].dim, dims) == 0
        for inside in region_nodes(n.attrs["body"])
    }
    if not idle:
        return idle
    users: dict[int, set[int]] = {}
    for n in graph.all_nodes():
        for x in n.inputs:
            users.setdefault(x.id, set()).add(n.id)
    kept = {y.id for region in graph.regions() for y in region.yields}
    for n in reversed(list(graph.all_nodes())):
        if n.id in users and users[n.id] <= idle and n.id not in kept:
            idle.add(n.id)
    return idle


def asked_of_products(graph: Graph, dims: Mapping[Any, Any], choices: Choices) -> Choices:
    """`choices` without roles, clusters and turns where all products lie in loops that are known to have no trip."""
    if not idle_products(graph, dims):
        return choices
    return replace(choices, specialize=None, registers=None, persistent=None, cluster=None, ping_pong=None)
