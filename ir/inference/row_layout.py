"""Layouts that operations on whole rows ask for, and those that follow from them.

`row_layout`: a dimension in a box of a power of two, every bit of its coordinate driven by one register or lane bit.
`leading_layout`: its first elements, under another name, with copies in the lanes that held the others.
`regrouped`: the same bits under other dimensions, for `reshape`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wavedsl.ir.dtypes import DType
from wavedsl.ir.layouts.bits import REGISTER_KINDS, Bits, bit, kind_of, number_of
from wavedsl.ir.layouts.chain import absorbed
from wavedsl.ir.layouts.layout import Layout, high_lanes


def power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def row_layout(
    order: Sequence[Any], along: Any, waves: Mapping[Any, int], dtype: DType, target: Any, least: int
) -> Layout:
    """Layout of one wave's tile with `along` (at least `least` long) in low register bits, lanes, then registers."""
    from wavedsl.ir.inference.coalesced import coalesced

    sizes = {d: power(max(waves[d], least)) if d == along else waves[d] for d in order}
    last = [d for d in order if d != along] + [along]
    found = absorbed(coalesced(last, sizes, max(dtype.bits, 16), target)).reorder([str(d) for d in order])
    return _within_warps(found, str(along))


def _within_warps(layout: Layout, along: str) -> Layout:
    """`layout` with lanes of one warp along a dimension, as far as the others have bits to give to the warps of a
    warpgroup: no shuffle crosses these, and what a row's elements need is one another."""
    inner = layout.inner
    cols = list(inner.cols)
    own = inner.coordinate_columns(along)
    lanes = [i for i, x in enumerate(inner.ins) if kind_of(x) == "l"]
    far = [i for i in lanes if high_lanes([number_of(inner.ins[i])], layout.lanes)]
    near = [i for i in lanes if i not in far and not own[i]]
    registers = [i for i, x in enumerate(inner.ins) if kind_of(x) in REGISTER_KINDS and not own[i]]
    for i, other in zip([i for i in far if own[i]], [*near, *registers]):
        cols[i], cols[other] = cols[other], cols[i]
    return Layout(Bits(inner.ins, inner.outs, cols), layout.digits, layout.extents)


def drivers(layout: Layout, dim: str) -> list[tuple[str, int]] | None:
    """What drives each bit of a coordinate inside the box, the lowest first: (kind, number) of an input bit. None where
    a bit has several sources or a source drives several."""
    found: dict[int, tuple[str, int]] = {}
    for x, own, whole in zip(layout.inner.ins, layout.inner.coordinate_columns(dim), layout.inner.cols):
        if not own:
            continue
        if own & (own - 1) or whole & (whole - 1) or own in found:
            return None
        found[own] = kind_of(x), number_of(x)
    if sorted(found) != [1 << k for k in range(layout.inner.width(dim))]:
        return None
    return [found[1 << k] for k in range(layout.inner.width(dim))]


def leading_layout(row: Layout, along: str, name: str, count: int) -> Layout:
    """The layout of the first `count` elements of `along` (padded to a power of two), as dimension `name`."""
    width = (power(count)).bit_length() - 1
    inner = row.inner
    outs = [o for o in inner.outs if kind_of(o) != along or number_of(o) < width]
    keep, cols = [], []
    for x, own in zip(inner.ins, inner.coordinate_columns(along)):
        if own >> width and kind_of(x) in REGISTER_KINDS:
            continue
        keep.append(x)
        column = inner.column(x)
        cols.append(sum(1 << j for j, o in enumerate(outs) if column >> inner.outs.index(o) & 1))
    names = [bit(name, number_of(o)) if kind_of(o) == along else o for o in outs]
    extents = tuple((name, 1 << width) if d == along else (d, n) for d, n in row.extents)
    return Layout(Bits(keep, names, cols), row.digits, extents)


def regrouped(layout: Layout, old: Sequence[tuple[str, int]], new: Sequence[tuple[str, int]]) -> Layout | None:
    """`layout` with the elements of `old` dimensions (outermost first, with their extents) counted by `new` ones; None
    where that is no renaming of bits. Registers keep their order."""
    if any(n & (n - 1) for _, n in (*old, *new)) or any(n < 1 for _, n in (*old, *new)):
        return None
    sizes = dict(layout.extents)
    if any(layout.box(d) != n or sizes[d] != n for d, n in old):
        return None
    if any(g.stride and g.dim in dict(old) for g in layout.digits):
        return None
    table: dict[int, int] = {}
    places = [bit(d, k) for d, n in reversed(new) for k in range(n.bit_length() - 1)]
    taken = [bit(d, k) for d, n in reversed(old) for k in range(n.bit_length() - 1)]
    table.update(zip(taken, places))
    names = dict(old)
    rest = tuple((d, n) for d, n in layout.extents if d not in names)
    inner = Bits(layout.inner.ins, (table.get(o, o) for o in layout.inner.outs), layout.inner.cols)
    return Layout(inner, layout.digits, rest + tuple(new))


__all__ = ["absorbed", "drivers", "leading_layout", "power", "regrouped", "row_layout"]
