"""Checker of layout inference: re-derives by enumeration that every element of every value is held, and stores have
one writer.

Shares no code with `infer`: it enumerates [lane, element] → coordinates in NumPy and compares sets.
"""

from __future__ import annotations

import numpy as np
from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.dataflow.graph import Graph, ValueType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.inference.infer import Inference
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.symbols import dim_name

_CHECKED: set[tuple[Layout, tuple[tuple[str, int], ...]]] = set()


def check_layouts(graph: Graph, partition: Partition, inference: Inference) -> None:
    """Raise CompileError at the node whose layout misses an element of its wave tile or holds one unevenly."""
    waves = {dim_name(d): p.wave for d, p in partition.dims.items()}
    for node in graph.all_nodes():
        if not isinstance(node.type, ValueType) or not node.dims:
            continue
        layout = inference.layouts[node.id]
        if set(layout.dims) != set(map(dim_name, node.dims)):
            raise CompileError(f"%{node.id} ({node.op}) has dimensions its layout lacks", node.loc)
        shares = {}
        if node.id in inference.spread:
            shares = {dim_name(inference.spread[node.id].dim): inference.spread[node.id].share}
        key = (layout, tuple((d, {**waves, **shares}[d]) for d in layout.dims))
        if key in _CHECKED:
            continue
        problem = coverage_problem(layout, {d: {**waves, **shares}[d] for d in layout.dims})
        if problem:
            raise CompileError(f"the layout of %{node.id} ({node.op}) {problem}", node.loc)
        _CHECKED.add(key)


def coverage_problem(layout: Layout, tile: dict[str, int]) -> str:
    """What is wrong with a layout as a cover of `tile`: empty when each element is held equally often."""
    table = layout.table()
    flat: np.ndarray | None = None
    total = 1
    for d in layout.dims:
        extent = dict(layout.extents)[d]
        if extent < tile[d]:
            return f"covers {extent} of {tile[d]} elements along {d}"
        if table[d].max() >= extent or table[d].min() < 0:
            return f"leaves its extent of {extent} along {d}"
        flat = table[d] if flat is None else flat * extent + table[d]
        total *= extent
    assert flat is not None
    counts = np.bincount(flat.reshape(-1), minlength=total)
    if counts.min() == 0:
        return f"misses {int((counts == 0).sum())} of {total} elements"
    if counts.min() != counts.max():
        return "holds some elements more often than others"
    return ""
