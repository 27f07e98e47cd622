"""What a schedule asks of products, where none of them is carried out.

In: a graph, the numbers of its symbols, what the user fixed. Out: what of that is left. A loop over a dimension known
to be empty gives its `init_args`, whoever would copy its operands and in whatever order: rows without elements have no
stride that bulk copies could rely on, which is nothing to refuse the kernel for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wavedsl.ir.choices import Choices
from wavedsl.ir.graph import Graph, region_nodes
from wavedsl.ir.symbols import evaluate

PRODUCTS = ("mma", "scaled_mma")


def asked_of_products(graph: Graph, dims: Mapping[Any, Any], choices: Choices) -> Choices:
    """`choices` without roles, clusters and turns where all products lie in loops that are known to have no trip."""
    products = {n.id for n in graph.all_nodes() if n.op in PRODUCTS}
    idle = {
        inside.id
        for n in graph.all_nodes()
        if n.op == "iterate" and evaluate(n.attrs["body"].dim, dims) == 0
        for inside in region_nodes(n.attrs["body"])
    }
    if not products or not products <= idle:
        return choices
    return replace(choices, specialize=None, registers=None, persistent=None, cluster=None, ping_pong=None)
