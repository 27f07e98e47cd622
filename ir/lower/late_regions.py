"""Where values are computed as they are used, because results of products, rows that are held until their sum is known,
or long values of a kernel that goes element by element, fill much of the registers: a value made of all of them at once
would take as many again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wavedsl.ir.dataflow.constraints import ShareConstraint, TurnConstraint
from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Graph, Region, ValueType, region_nodes
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.layouts.fragment import register_count

if TYPE_CHECKING:
    from wavedsl.ir.inference.infer import Inference

MANY = 64
"""Registers of a lane that a product's result has, from which on what is made of it is computed as it is stored. By the
cycle models of gfx942 and sm_80, GELU of a product and a residual takes 5 % more clocks so in tiles of 64 x 64, whose
result has 16, and 5 % less in 128 x 128 with 64 or 128; a fifth in 256 x 256 with 128, which spilled."""

LONG_VALUES = "long_values"
"""Note of a kernel: `ROWS_HELD` until their sums are known, or long values that are `STREAMED`; none for others."""
CHAINS = ("scan", "cumsum", "cumprod", "sort", "topk")
"""Operations whose long chains ptxas takes apart, for up to twice the registers of the text: a radix sort's places, 104
by the text, spilled 88 bytes with 128."""
ROWS_HELD, STREAMED = "rows held", "streamed"
LONG = 32
"""Registers of a lane that a row has, from which on what is made of it is computed as it is stored. RMSNorm of 16384
columns of f16 in 4 warps took 238 registers of sm_90a so far (ptxas 13), layer_norm all of them and spills; so they
take 155 and 163, and an SM holds a workgroup more."""

BY_ELEMENT = ("read", "write", "index", "fill", "constant", "scalar", "size")
"""What a kernel that goes element by element consists of beside elementwise steps."""


def long_for(room: int) -> int:
    """Registers of a lane that a value has to have to be long, where the lane has `room`: a third of them, if that is
    fewer. LayerNorm of 28672 columns of f32 in 32 warps, 28 of 64, spilled 524 bytes."""
    return min(LONG, room // 3)


def row_registers(graph: Graph, inference: Inference, least: int) -> int:
    """Registers of the longest value that is held while one number of all of it is made (a sum, a maximum), in a kernel
    of nothing else: no products, loops or branches. 0 where they are fewer than `least`."""
    nodes = list(graph.all_nodes())
    if any(n.op in PRODUCTS or n.op in REGIONS for n in nodes):
        return 0
    rows = [n.inputs[0] for n in nodes if ROWS[n.op].index_rule == "project"]
    longest = max((register_count(inference.layouts[n.id], n.dtype) for n in rows), default=0)
    return longest if longest >= least else 0


def streams(graph: Graph, inference: Inference, least: int) -> bool:
    """Whether a kernel without products, loops and branches only computes elements of elements at the same place, and
    has a value, or loads, of `least` registers."""
    words = {True: [0], False: [0]}
    for n in graph.all_nodes():
        row = ROWS[n.op]
        if n.op in PRODUCTS or n.op in REGIONS or (n.op not in BY_ELEMENT and row.index_rule not in ("same", "lift")):
            return False
        if n.op != "write" and isinstance(n.type, ValueType) and n.dims:
            words[n.op == "read"].append(register_count(inference.layouts[n.id], n.dtype))
    return sum(words[True]) >= least or max(words[False]) >= least


def results_are_many(graph: Graph, inference: Inference) -> bool:
    """Whether some product's result takes many registers: any of a warpgroup's does."""
    if any(plan.atom.asynchronous for plan in inference.mmas.values()):
        return True
    results = [n for n in graph.all_nodes() if n.op in PRODUCTS]
    return any(register_count(inference.layouts[n.id], n.dtype) >= MANY for n in results)


def late_regions(graph: Graph) -> set[int]:
    """Regions, by `id`, whose values may be computed where they are used: the outermost one where all inside it are
    loops, and loops that place a workgroup's tile; else branches without products, and what is inside them. A loop
    that ends by itself and all in it is none."""
    turns = {c.dim for c in graph.constraints if isinstance(c, TurnConstraint | ShareConstraint)}
    plain = all(n.op not in REGIONS or n.op == "iterate" for n in graph.all_nodes())
    found = {id(graph.region)} if plain else set()

    def visit(region: Region, inside: bool) -> None:
        for n in region.nodes:
            body = n.attrs.get("body") if n.op in ("when", "iterate") else None
            if body is None:
                continue
            behind = inside or (n.op == "when" and all(x.op not in PRODUCTS for x in region_nodes(body)))
            places = plain and body.dim in turns and all(x.op not in PRODUCTS for x in body.nodes)
            if behind or places:
                found.add(id(body))
            visit(body, behind)

    visit(graph.region, False)
    return found


__all__ = [
    "CHAINS",
    "LONG_VALUES",
    "ROWS_HELD",
    "STREAMED",
    "late_regions",
    "long_for",
    "results_are_many",
    "row_registers",
    "streams",
]
