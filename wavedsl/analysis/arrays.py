"""The least that a kernel moves: its arrays, from the graph alone."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod
from typing import Any

from wavedsl.argument_facts import accesses
from wavedsl.ir.dataflow.graph import Graph
from wavedsl.ir.symbols import evaluate_int


def array_bytes(graph: Graph, sizes: Mapping[Any, Any]) -> list[tuple[str, int, int]]:
    """(name, bytes, directions) of each array argument of the user's; `sizes` has a number for every extent."""
    how = accesses(graph)
    found = []
    for a in graph.arguments:
        if a.kind == "scalar" or a.hidden:
            continue
        count = prod(evaluate_int(d, sizes) for d in a.dims)
        found.append((a.name, ceil(count * a.dtype.bits / 8), 2 if how.get(a.name) == "readwrite" else 1))
    return found


def least_bytes(graph: Graph, sizes: Mapping[Any, Any]) -> int:
    """The least that must cross the memory's port: every array's bytes once per direction."""
    return sum(size * directions for _, size, directions in array_bytes(graph, sizes))
