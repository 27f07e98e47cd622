"""Buffers that end where a tile does: rows of a sequence among others, a part of an array.

In: an access whose tile starts anywhere along one dimension of its array and ends at a run-time coordinate (`limits` of
`access.GlobalAccess`), on a chip that checks the ends of buffers. Out: which other dimensions lie within a row and
which lie around all rows, and a buffer that ends behind the last row. Loads past it give 0 and stores past it do
nothing, so no lane compares its row, and no mask is kept.

(ROWS) The rows are the elements along the ended dimension. What lies within a row (`inner`) spans no more bytes than
the rows are apart; every other dimension (`outer`) has one coordinate for the whole tile, which moves the buffer's
base. An element is then inside the buffer if and only if its row is in front of the end.

(START) A row in front of the array has a negative offset. As an unsigned number that is 2^31 or more, past the end of
every buffer that (REACH) allows. Offsets are whole in the lanes' part: neither the scalar offset nor the immediate
holds a part of the row, because hardware adds those without wrapping around.

(REACH) The tile's first row is cut to -reach .. end before it is multiplied, `reach` the rows of a tile: one that
starts further away has no row inside before and after. So offsets do not wrap, if neither the array nor a tile spans
more than 2^31 bytes along the dimension.

(WINDOW) Of an array that is larger, or whose size is a run-time argument, the buffer starts with the tile, at the
array's first row at the earliest, and holds the rows of one tile at most. Then only what lies in front of the array is
left in the lanes' offset. Of other arrays one buffer serves all tiles of a loop.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from wavedsl.ir.array_info import LIMIT, ArrayInfo
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.quick_dataclass import dataclass


@dataclass(frozen=True)
class Ended:
    """`axis`: the dimension of the array along which its tile ends. `inner`, `outer`: the others (ROWS)."""

    axis: int
    stride: int
    inner: tuple[int, ...]
    outer: tuple[int, ...]


def ended(info: ArrayInfo, axis: int, reach: int, single: Collection[int]) -> Ended | None:
    """How an array is seen whose tile ends along one dimension; None where no buffer can end there. `reach`: rows of
    the tile; `single`: dimensions that have one coordinate for the whole tile."""
    stride = info.strides[axis]
    if stride is None or max(reach, 0 if info.large else info.extents[axis] or 0) * stride > LIMIT:
        return None
    inner, outer, width = [], [], info.elsize
    for i, (n, s) in enumerate(zip(info.extents, info.strides)):
        if i == axis:
            continue
        if n is not None and s is not None and s < stride:
            inner.append(i)
            width += max(n - 1, 0) * s
        elif i in single:
            outer.append(i)
        else:
            return None
    return Ended(axis, stride, tuple(inner), tuple(outer)) if width <= stride else None


def first_row(b: Builder, row: Any, reach: int, end: Any) -> Any:
    """The tile's first row, cut (REACH)."""
    return b.min_s(b.max_s(row, -reach), end)


def ended_buffer(b: Builder, info: ArrayInfo, view: Ended, around: Any, end: Value) -> Value:
    """The array up to row `end`; `around`: bytes that the coordinates of its outer dimensions add."""
    moved = b.i32(around) if isinstance(around, int) else around
    return b.buffer(b.add(_base(b, info), b.zext(moved)), b.zext(b.mul(end, view.stride)), info.cache_stride)


def ended_window(
    b: Builder, info: ArrayInfo, view: Ended, around: Value, row: Value, reach: int, end: Value
) -> tuple[Value, Value]:
    """The array from a tile's first row to row `end`, and that row counted from the buffer's first (WINDOW). `around`:
    bytes (i64) that the coordinates of its other dimensions add."""
    first = b.max_s(row, 0)
    start = b.add(around, b.mul(b.zext(first), b.i64(view.stride)))
    rows = b.min_s(b.sub(end, first), reach)
    size = b.zext(b.mul(rows, view.stride))
    return b.buffer(b.add(_base(b, info), start), size, info.cache_stride), b.min_s(row, 0)


def _base(b: Builder, info: ArrayInfo) -> Value:
    base = b.param(info.param)
    return b.add(base, b.i64(info.offset)) if info.offset else base
