"""Which code has many products that bring reads of their own: their operands may come one after the other.

In: a graph or one of its regions. Out: a yes or no. A filter's places are such products, and parts of one sum.
"""

from __future__ import annotations

from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Graph, Node, Region, factors

MANY = 3
"""Products from which on it matters when each gets what it multiplies."""


def many_products(graph: Graph) -> bool:
    """Whether a kernel is straight code of so many, or has loops of them."""
    return any(brings_many(graph, region) for region in graph.regions())


def brings_many(graph: Graph, region: Region) -> bool:
    """Whether a region that is the kernel's outermost or a loop's, with no others in it, has so many."""
    if (region.dim is None and region is not graph.region) or any(n.op in REGIONS for n in region.nodes):
        return False
    seen: set[int] = set()
    return sum(_brings_reads(n, seen) for n in region.nodes if n.op in PRODUCTS) >= MANY


def _brings_reads(n: Node, seen: set[int]) -> bool:
    """Whether a product multiplies what is made of reads that none of the products before needs; adds to what has been
    `seen` of values that products need."""
    found, todo = False, [n.inputs[p] for p in factors(n)]
    while todo:
        x = todo.pop()
        if x.id not in seen and x.op not in PRODUCTS:
            seen.add(x.id)
            found |= x.op == "read" and bool(x.dims)
            todo += x.inputs
    return found


__all__ = ["MANY", "brings_many", "many_products"]
