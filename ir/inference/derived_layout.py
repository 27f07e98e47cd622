"""Layouts that follow from another: without dimensions, with bits renamed by a reshape, coarser by a repetition."""

from __future__ import annotations

from collections.abc import Iterable

from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.reshaped_places import counted_again
from wavedsl.ir.errors import CompileError
from wavedsl.ir.inference.row_layout import regrouped
from wavedsl.ir.layouts.bits import REGISTER_KINDS, Bits, bit, kind_of, number_of
from wavedsl.ir.layouts.chain import absorbed as wide_box
from wavedsl.ir.layouts.layout import Digit, Layout
from wavedsl.ir.symbols import dim_name


def same_layout(a: Layout, b: Layout) -> bool:
    """Equal up to the order in which dimensions are listed."""
    if a.inner is b.inner and a.digits == b.digits and a.extents == b.extents:
        return True
    if a.digits != b.digits or dict(a.extents) != dict(b.extents):
        return False
    return _drives(a.inner) == _drives(b.inner)


def _drives(inner: Bits) -> dict[int, frozenset[int]]:
    """Input bit → the coordinate bits that it drives."""
    return {
        x: frozenset(o for j, o in enumerate(inner.outs) if column >> j & 1) for x, column in zip(inner.ins, inner.cols)
    }


def coarse_layout(layout: Layout, n: Node) -> Layout:
    """The layout in which a `repeat_interleave` takes its operand where it gives `layout`: every lane holds the
    elements that stand for its own."""
    dim, count = str(n.attrs["dim"]), n.attrs["count"]
    part = next(dim_name(d) for d in n.inputs[0].dims if d not in n.dims)
    if count & (count - 1):
        raise CompileError(
            f"repeat_interleave of {count} elements each, no power of two, of no read and in tiles of {dim}",
            n.loc,
            f"write it to an array and read that: wd.read(factors[…, wd.index({dim}) // {count}])",
        )
    low = count.bit_length() - 1
    if layout.inner.width(dim) < low:
        layout = wide_box(layout)
    if layout.inner.width(dim) < low or dict(layout.extents)[dim] % count:
        raise CompileError(
            f"repeat_interleave: a wave's {dict(layout.extents)[dim]} elements of {dim} are no multiple of {count}",
            n.loc,
            f"give a wave a multiple of {count}",
        )
    return _thinned(layout, dim, part, count)


def every_layout(layout: Layout, n: Node) -> Layout | None:
    """The layout of every `step`th element along a dimension (an `extract` of a run from a known place below `step` on)
    where the value lies in `layout`, and every lane, and every wave, has such elements of what it holds. None where
    they come from others."""
    step, start = n.attrs["step"], n.attrs["start"]
    if n.attrs["new"] is None or start is None or not 0 <= start < step or step & (step - 1):
        return None
    dim, low = str(n.attrs["dim"]), step.bit_length() - 1
    if layout.inner.width(dim) < low:
        layout = wide_box(layout)
    if layout.inner.width(dim) < low or dict(layout.extents)[dim] % step:
        return None
    below = [kind_of(o) == dim and number_of(o) < low for o in layout.inner.outs]
    for x, c in zip(layout.inner.ins, layout.inner.cols):
        touched = [b for j, b in enumerate(below) if c >> j & 1]
        if any(touched) and (kind_of(x) not in REGISTER_KINDS or not all(touched)):
            return None
    return _thinned(layout, dim, str(n.attrs["new"]), step)


def keeps_places(n: Node, partition: Partition) -> bool:
    """Whether workgroups, trips and waves that have a part of a dimension have the same part of a run of every
    `step`th element of it."""
    step, start = n.attrs["step"], n.attrs["start"]
    if n.attrs["new"] is None or start is None or not 0 <= start < step:
        return False
    whole, part = partition.dims[n.attrs["dim"]], partition.dims[n.attrs["new"]]
    if whole.trips == part.trips == 1 and whole.waves == part.waves == 1:
        return whole.extent is not None and part.extent is not None and whole.extent >= step * part.extent
    (base, of_whole), (other, of_part) = (partition.derived.get(d, (d, 1)) for d in (whole.dim, part.dim))
    follows = base == other and of_part * step == of_whole
    return follows and whole.wave == step * part.wave and whole.waves == part.waves


def _thinned(layout: Layout, dim: str, part: str, count: int) -> Layout:
    """The layout without the lowest bits of the coordinate of `dim`, which have `count` values; `part` takes its
    place."""
    low = count.bit_length() - 1
    inner = layout.inner
    keep = [j for j, o in enumerate(inner.outs) if kind_of(o) != dim or number_of(o) >= low]
    outs = [bit(part, number_of(o) - low) if kind_of(o) == dim else o for o in (inner.outs[j] for j in keep)]
    ins, cols = [], []
    for x, c in zip(inner.ins, inner.cols):
        column = sum((c >> j & 1) << i for i, j in enumerate(keep))
        if column or not c or kind_of(x) not in REGISTER_KINDS:
            ins.append(x)
            cols.append(column)
    digits = tuple(Digit(g.kind, g.extent, part if g.dim == dim else g.dim, g.stride) for g in layout.digits)
    extents = tuple((part, s // count) if d == dim else (d, s) for d, s in layout.extents)
    return Layout(Bits(ins, outs, cols), digits, extents)


def project_to(layout: Layout, dims: Iterable[str]) -> Layout:
    """`layout` without the dimensions that are not in `dims`."""
    keep = set(dims)
    for d in layout.dims:
        if d not in keep:
            layout = layout.project(d)
    return layout


def lifted(layout: Layout, dims: Iterable[str]) -> Layout:
    """`layout` with the dimensions of `dims` that it lacks, one element each."""
    order = list(dims)
    missing = [(d, 1) for d in order if d not in layout.dims]
    return Layout(layout.inner, layout.digits, (*missing, *layout.extents)).reorder(order)


def renamed_bits(n: Node, source: Layout, partition: Partition) -> Layout | None:
    """The layout that a reshape gives by renaming bits of its operand's; None where it must move elements."""
    _, before, after = counted_again(n)
    extents = {d: partition.dims[d].extent for d in (*before, *after)}
    if any(e is None for e in extents.values()) or any(partition.dims[d].wave != extents[d] for d in after):
        return None  # a tile larger than its dimension has places that no element of the operand goes to
    theirs, ours = ([(dim_name(d), extents[d] or 0) for d in dims] for dims in (before, after))
    aim = regrouped(source, theirs, ours)
    return None if aim is None else aim.reorder([dim_name(d) for d in n.dims])
