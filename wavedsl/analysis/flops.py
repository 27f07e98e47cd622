"""Floating-point work of a traced kernel, counted from its graph.

In: the graph, a number for every dimension, the loops around each node. Out: `Work`: FLOP by pipe and dtype, once as
the algorithm needs it (`minimal`: every element once) and once as the partition makes it (`actual`: padded tiles, and
again in every workgroup and trip that repeats it). Loops that the user gave a range count what every tile goes over
(`ranges`); what a condition guards counts as if it held, and the body of a `while_loop` once.

A multiply-add counts 2, every other arithmetic operation on floats 1, whatever it costs; moves, comparisons,
conversions and integer arithmetic count 0. A reduction counts 1 per element that it takes in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from math import prod
from typing import Any

from wavedsl.analysis.ranges import Ranges
from wavedsl.ir.dataflow.graph import REGIONS, Graph, Node, Region, ValueType
from wavedsl.ir.dataflow.views import unmapped_dims
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import evaluate_int

FLOPS = {
    **dict.fromkeys(("add", "sub", "mul", "div", "floordiv", "mod", "pow", "neg", "abs", "minimum", "maximum"), 1),
    **dict.fromkeys(("floor", "ceil", "trunc", "round", "exp", "exp2", "log", "log2"), 1),
    **dict.fromkeys(("sqrt", "rsqrt", "reciprocal"), 1),
    **dict.fromkeys(("tanh", "erf", "sigmoid", "sin", "cos", "expm1", "log1p", "log10"), 1),
    **dict.fromkeys(("atan", "atan2", "asin", "acos"), 1),
    "fma": 2,
    "clamp": 2,
}
"""FLOP per element of the result, where it is a float."""

PER_INPUT = frozenset({"sum", "max", "min", "cumsum", "reduce", "scan", "argmax", "argmin"})
"""One FLOP per element of the operand, where it is a float."""

PRODUCTS = frozenset({"mma", "scaled_mma"})


@dataclass
class Work:
    """FLOP by (pipe, dtype): pipe is `product` for contractions, else `vector`. `products` are the mma nodes."""

    minimal: dict[tuple[str, str], int] = field(default_factory=dict)
    actual: dict[tuple[str, str], int] = field(default_factory=dict)
    products: list[Node] = field(default_factory=list)
    of_product: list[int] = field(default_factory=list)
    """FLOP that the algorithm needs of each product."""

    @property
    def flops(self) -> int:
        """FLOP that the algorithm needs."""
        return sum(self.minimal.values())


def count_flops(graph: Graph, dims: Mapping[Any, Any], partition: Any = None) -> Work:
    """The work of `graph` with extents `dims`. Without a partition `actual` stays empty."""
    work = Work()
    index = set(graph.index_dims)
    outer = {d for d in dims if d in index}
    fixed = unmapped_dims(graph)

    ranges = Ranges(dims, partition, fixed, outer)

    def visit(region: Region, loops: tuple[Node, ...]) -> None:
        for node in region.nodes:
            if node.op in REGIONS:
                visit(node.attrs["body"], (*loops, node) if node.op == "iterate" else loops)
                continue
            over, per, key = _elements(node)
            if not per:
                continue
            if node.op in PRODUCTS:
                work.products.append(node)
            ranged = ranges.over(over, loops)
            done, needed, executed = ranged if ranged is not None else ((), 1, 1)
            left = [d for d in over if d not in done]
            repeats = [d for d in (n.attrs["dim"] for n in loops) if d not in over and d not in done]
            count = per * needed * prod(_extent(d, dims) for d in left)
            count *= prod(_extent(d, dims) for d in outer if d not in done)
            count *= prod(_trips(d, dims, partition) for d in repeats)
            _add(work.minimal, key, count)
            if node.op in PRODUCTS:
                work.of_product.append(count)
            if partition is not None:
                _add(work.actual, key, per * executed * _executed(left, repeats, done, fixed, dims, partition))

    visit(graph.region, ())
    return work


def _add(table: dict[tuple[str, str], int], key: tuple[str, str], count: int) -> None:
    table[key] = table.get(key, 0) + count


def _elements(node: Node) -> tuple[tuple[Any, ...], int, tuple[str, str]]:
    """Dimensions whose extents multiply to the node's elements, FLOP per element, and where they count."""
    if node.op in PRODUCTS:
        a, b = node.inputs[0], node.inputs[2 if node.op == "scaled_mma" else 1]
        over = tuple(dict.fromkeys((*a.dims, *b.dims)))
        return over, 2, ("product", a.dtype.name)
    if node.op in PER_INPUT and node.inputs[0].dtype.is_float:
        return node.inputs[0].dims, 1, ("vector", node.inputs[0].dtype.name)
    if isinstance(node.type, ValueType) and node.type.dtype.is_float and node.op in FLOPS:
        return node.dims, FLOPS[node.op], ("vector", node.dtype.name)
    return (), 0, ("", "")


def _extent(dim: Any, dims: Mapping[Any, Any]) -> int:
    return evaluate_int(dim, dims)


def _trips(dim: Any, dims: Mapping[Any, Any], partition: Any) -> int:
    """Trips of the loop over `dim`; one where nothing says how it is cut."""
    plan = partition.dims.get(dim) if partition is not None else None
    return 1 if plan is None else -(-_extent(dim, dims) // max(1, plan.tile))


def _executed(
    over: list[Any], repeats: list[Any], done: Collection[Any], fixed: Collection[Any], dims: Mapping[Any, Any],
    partition: Any,
) -> int:  # fmt: skip
    """Elements that are computed: whole tiles, once per workgroup and trip, but for dimensions that are `done` with.
    `fixed`: dimensions of arrays that no workgroup goes through (pages of a pool)."""
    total = 1
    for dim, plan in partition.dims.items():
        if dim in done:
            continue
        extent = _extent(dim, dims)
        tiles = -(-extent // max(1, plan.tile))
        if dim in over:
            total *= tiles * plan.tile
        elif (plan.role in ("workgroup", "index") and dim not in fixed) or dim in repeats:
            total *= tiles
    return total * prod(_extent(d, dims) for d in over if d not in partition.dims)
