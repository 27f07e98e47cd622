"""How a read or write that moves a tile sees its array: dimensions under the value's names, and where the tile lies.

In: a `Lowering` and the node. Out: what is known of the array as the value sees it (`tile_view`, `tile_info`), the
parts of it that numbers known here cut out (`windows`), and the position of this wave's tile in it (`located`).
Gathers, whose elements lie anywhere, are `lower_mapped`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wavedsl.ir.addresses.access import Position
from wavedsl.ir.addresses.coordinates import total
from wavedsl.ir.addresses.lower_index import lower_index
from wavedsl.ir.addresses.packed_view import unit_bytes, unit_elements
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.views import placement, static_number
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.schedule.steps import Context
from wavedsl.ir.symbols import dim_name

if TYPE_CHECKING:
    from wavedsl.ir.lower.lowering import Lowering


def tile_view(low: Lowering, n: Node) -> tuple[ArrayInfo, list[Any], list[Any]]:
    """`array` of a read or write that moves a tile, with its dimensions under the names that they have in the
    value."""
    _, extents, strides = low.array(n.attrs["memory"])
    info = low.view_info(n)
    part = bool(windows(low, n))
    return info, [known if known is not None and part else e for e, known in zip(extents, info.extents)], strides


def tile_info(low: Lowering, n: Node) -> ArrayInfo:
    """What is known of the array of a read or write that moves a tile, with its dimensions under the names that they
    have in the value."""
    info = low.arrays[n.attrs["memory"]]
    found = placement(low.graph, n)
    if found is None or not found.moved:
        return info
    dims = tuple(found.moved[dim_name(d)].dim if dim_name(d) in found.moved else d for d in info.dims)
    free = frozenset(dim_name(m.dim) for m in found.moved.values() if m.modulus is None)
    starts = tuple((dim_name(m.dim), m.step or m.multiple) for m in found.moved.values() if m.step or m.multiple)
    parts = windows(low, n)
    if not parts:
        return replace(info, dims=dims, moved=free, starts=starts)
    extents, offset, cut = list(info.extents), 0, set()
    inside: set[str] = set()
    for i, d in enumerate(info.dims):
        if dim_name(d) not in parts:
            continue
        first, length = parts[dim_name(d)]
        stride = info.strides[i]
        assert stride is not None
        name = str(dims[i])
        if info.dtype.packed and i == len(info.dims) - 1:  # no byte holds the elements of two units
            group = unit_elements(info.dtype)
            if first % group or length % group:
                inside.add(name)
                continue
            offset += first // group * unit_bytes(info.dtype) if length else 0
        else:
            offset += first * stride if length else 0
        whole = low.plans[name].extent
        assert whole is not None
        extents[i] = min(length, whole)
        if length < whole:
            cut.add(name)
    align = min(info.align, offset & -offset) if offset else info.align
    still = free - {str(found.moved[d].dim) for d in parts} | inside
    return replace(
        info, dims=dims, moved=still, starts=starts, extents=tuple(extents), offset=offset, cut=frozenset(cut),
        align=align,
    )


def windows(low: Lowering, n: Node) -> dict[str, tuple[int, int]]:
    """Per dimension of a tile's array that is moved by a number known here: (first coordinate, elements from there
    on that belong to it). Such a part of the array is addressed like an array of its own."""
    info = low.arrays[n.attrs["memory"]]
    found = placement(low.graph, n)
    out: dict[str, tuple[int, int]] = {}
    for i, d in enumerate(map(dim_name, info.dims)):
        m = found.moved.get(d) if found is not None else None
        extent = info.extents[i]
        if m is None or m.modulus is not None or extent is None or info.strides[i] is None:
            continue
        if low.plans[dim_name(m.dim)].extent is None:
            continue
        first = 0 if m.start is None else static_number(low.graph, m.start)
        count = extent if m.count is None else static_number(low.graph, m.count)
        if first is not None and first >= 0 and count is not None:
            out[d] = first, max(0, min(extent - first, count))
    return out


def located(
    low: Lowering, n: Node, context: Context, base: Mapping[str, Any] | None = None
) -> tuple[Position, Value | None, dict[str, Any]]:
    """Where this wave's tile of a read or write lies in its array; whether what the mapping fixes is inside (None:
    it surely is); per dimension that is moved, the coordinate at which the tile ends."""
    b, info = low.b, low.view_info(n)
    start = dict(low.base if base is None else base)
    inside: Value | None = None
    limits: dict[str, Any] = {}
    found = placement(low.graph, n)
    assert found is not None
    for d, c in found.fixed.items():
        if isinstance(c, Node):
            at: Any = low.uniform(c, context.env)
        else:
            at = int(c) if c.is_Integer else lower_index(b, c, _uniform_symbols(low))
        start[d] = at
        extent = low.extent(d)
        for bound in (b.cmp("sge", at, 0), b.cmp("slt", at, extent)):
            if bound.const is not True:
                inside = bound if inside is None else b.pand(inside, bound)
    parts = windows(low, n)
    for d, m in found.moved.items():
        name = dim_name(m.dim)
        if d in parts:
            continue
        if m.modulus is not None:
            at = start.get(name, 0)
            start[name] = at % m.modulus if isinstance(at, int) else b.urem(at, m.modulus)
            continue
        extent = low.extent(d)
        limit = b.i32(extent) if isinstance(extent, int) else extent
        first: Any = 0 if m.start is None else low.uniform(m.start, context.env)
        if m.count is not None:
            end = total(b, [first, low.uniform(m.count, context.env)])
            limit = b.max_s(b.min_s(limit, end), 0)
        if low.plans[name].ragged:  # elements past the value's own end are absent, wherever they would lie
            limit = b.max_s(b.min_s(limit, total(b, [first, low.extent(name)])), 0)
        start[name] = total(b, [start.get(name, 0), first])
        if not m.step or low.plans[name].ragged:  # else the part lies inside
            limits[name] = limit
    tile = low.position(info.names, start)
    moved = {dim_name(m.dim) for m in found.moved.values()}
    place = {d: start[d] for d in found.fixed if d in tile.wave and d not in moved}  # the same for all waves
    return Position({**tile.base, **place}, {**tile.wave, **dict.fromkeys(place, 0)}), inside, limits


def _uniform_symbols(low: Lowering) -> dict[str, Any]:
    """Numbers for an expression over index dimensions: these stand for their own index, others for what they are
    bound to."""
    own = {dim_name(d) for d in low.graph.index_dims}
    values: dict[str, Any] = {dim_name(k): v for k, v in low.graph.subs.items() if isinstance(v, int)}
    values |= {d: low.extent(d) for d in low.plans if d not in own}
    return values | {d: low.base[d] for d in own}
