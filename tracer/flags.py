"""Flags that loops and branches hand on: an i1 value has no registers of its own, so it travels as i32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Node, Region
from wavedsl.ir.loc import Loc
from wavedsl.tracer.builder import Builder
from wavedsl.tracer.proxy import Value


def words(b: Builder, nodes: Sequence[Node], loc: Loc | None, region: Region | None = None) -> list[Node]:
    """What is handed on of `nodes`, as it is made in a region (the open one)."""
    return _cast(b, nodes, [n.dtype is dt.i1 for n in nodes], dt.i32, loc, region)


def flags(
    b: Builder, values: Sequence[Value], like: Sequence[Node], loc: Loc | None, region: Region | None = None
) -> list[Value]:
    """What has been handed on, of the dtypes of `like`."""
    found = _cast(b, [v.node for v in values], [n.dtype is dt.i1 for n in like], dt.i1, loc, region)
    return [v if v.node is n else b.value(n) for v, n in zip(values, found)]


def _cast(
    b: Builder, nodes: Sequence[Node], which: Sequence[bool], dtype: Any, loc: Loc | None, region: Region | None
) -> list[Node]:
    b.regions.append(region or b.regions[-1])
    try:
        return [b.emit("cast", (n,), {"dtype": dtype}, loc) if flag else n for n, flag in zip(nodes, which)]
    finally:
        b.regions.pop()
