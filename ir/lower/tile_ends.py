"""Tiles that end before their array does, brought by bulk copies: rows of a sequence among others, a part of an array.

In: a read whose mapping moves a dimension, and counts its elements or has an extent that tiles do not divide. What
follows the end belongs to somebody else and must be zero here. Out: coordinates of a tensor map that has it so.

The idea: a tensor map fills with zeros what lies past its extents, so the tile's end has to lie there. The map names
the ended dimension twice, at the same stride: `x` with the array's extent L, and `y` with the same. An element `row`
of the array is the one at x = row + L - end, y = end - 1, counted from L - 1 rows in front of the array: x + y stays
the same whatever the end is, and x reaches L where the row reaches the end. An end at or before the array's start
makes y negative, so nothing is inside. (Triton's descriptors of ragged tensors add two dimensions for the same.)

Only where a tile starts in front of the array and has its end inside one map cannot cut both ends. Then the copying
thread waits for the tile itself and zeroes the rows past the end, before it tells anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wavedsl.ir.addresses.coordinates import scaled, total
from wavedsl.ir.addresses.packed_view import quotient
from wavedsl.ir.addresses.staged import Staged
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.views import Moved, placement, static_number
from wavedsl.ir.kernel.kernel_ir import B32, TensorBoxes, Value
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.tile_views import located, windows
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import Context

PAIR = "pair"
"""The place of a pair of rows in its four, beside the names of dimensions."""
CHUNK = 16
"""Bytes of the widest store."""


@dataclass(frozen=True)
class TileEnd:
    """`axis` of the array is the value's dimension `dim`, moved, and ends where its count or `dim` does."""

    axis: int
    dim: str
    moved: Moved


def tile_ends(low: Lowering, n: Node) -> list[TileEnd]:
    """The dimensions of a read's tile that may end before its array."""
    found = placement(low.graph, n)
    if found is None:
        return []
    info = low.arrays[n.attrs["memory"]]
    out = []
    for axis, d in enumerate(info.names):
        m = found.moved.get(d)
        if m is None or m.modulus is not None:
            continue
        name = str(m.dim)
        plan = low.plans[name]
        if m.count is None and not plan.ragged:
            continue
        extent, first = info.extents[axis], _known_start(low, m)
        lengths = [plan.extent] if plan.ragged else []
        lengths += [static_number(low.graph, m.count)] if m.count is not None else []
        ends = [None if first is None or length is None else first + length for length in lengths]
        if extent is None or first is None or first < 0 or any(end is None or end < extent for end in ends):
            out.append(TileEnd(axis, name, m))
    return out


def may_straddle(low: Lowering, n: Node) -> bool:
    """Whether a tile may start in front of its array and have its end inside."""
    starts = [_known_start(low, end.moved) for end in tile_ends(low, n)]
    return any(first is None or first < 0 for first in starts)


def _known_start(low: Lowering, moved: Moved) -> int | None:
    """By how much a dimension is moved, where that is known before launch."""
    return 0 if moved.start is None else static_number(low.graph, moved.start)


class Origin:
    """Where a tile starts in its tensor map, for an iteration; `base` is where the value does. `straddles`: whether
    rows past `end` have to be made zero, None where they surely are."""

    def __init__(self, low: Lowering, n: Node, staged: Staged, context: Context, base: Mapping[str, Any]):
        b = low.b
        self.low, self.names = low, staged.info.names
        position, *_ = located(low, n, context, base)
        self.base = dict(position.base)
        for d, (first, _) in windows(low, n).items():  # what is known before launch is no part of the position
            name = self.names[low.arrays[n.attrs["memory"]].names.index(d)]
            self.base[name] = total(b, [self.base.get(name, 0), first])
        unit = low.units(n)
        if unit is not None:  # the map counts units
            self.base[unit.dim] = quotient(b, self.base.get(unit.dim, 0), unit.group)
        self.ended: TileEnd | None = next(iter(tile_ends(low, n)), None)
        self.straddles: Value | None = None
        self.end: Any = 0
        if self.ended is None:
            return
        self.extent: Any = low.extent(low.arrays[n.attrs["memory"]].names[self.ended.axis])
        m, plan = self.ended.moved, low.plans[self.ended.dim]
        start: Any = 0 if m.start is None else low.uniform(m.start, context.env)
        lengths: list[Any] = [low.extent(self.ended.dim)] if plan.ragged else []
        lengths += [low.uniform(m.count, context.env)] if m.count is not None else []
        self.end = self.extent
        for length in lengths:
            self.end = least(low, self.end, total(b, [start, length]))
        at = self.base.get(self.ended.dim, 0)
        self.last: Any = self.end
        if not isinstance(at, int) and (at.lo is None or at.lo < 0) and may_straddle(low, n):
            rows = staged.extents[self.ended.dim]
            before = b.cmp("slt", at, 0)
            some = b.cmp("sgt", self.end, 0)
            self.last = b.select(before, b.select(some, self.extent, 0), self.end)
            inside = b.cmp("slt", self.end, least(low, self.extent, total(b, [at, rows])))
            self.straddles = b.pand(before, b.pand(some, inside))

    def coordinates(self, boxes: TensorBoxes, inside: Mapping[str, int], rows: Mapping[str, Any]) -> list[Any]:
        """Coordinates of the box that lies at `inside` of the tile, `rows` further."""
        b = self.low.b
        at = []
        for i in boxes.order:
            d = self.names[i]
            parts = [self.base.get(d, 0), inside.get(d, 0), rows.get(d, 0)]
            if self.ended is not None and i == self.ended.axis:
                parts.append(difference(self.low, self.extent, self.last))
            where = total(b, parts)
            if i == boxes.paired:
                where = where // 4 if isinstance(where, int) else b.udiv(where, 4)
            at.append(where)
        if boxes.paired is not None:
            at.insert(1, total(b, [inside[PAIR], rows.get(PAIR, 0)]))
        return [*at, total(b, [self.last, -1])] if self.ended is not None else at

    def zero_past_end(self, staged: Staged, start: Any, buffer: str) -> None:
        """Make the rows of the tile at byte `start` zero that lie past its end, if it straddles."""
        assert self.ended is not None and self.straddles is not None and staged.tile is not None
        b, tile = self.low.b, staged.tile
        rows = staged.extents[self.ended.dim]
        first = b.select(self.straddles, difference(self.low, self.end, self.base[self.ended.dim]), rows)
        zeros = b.vec(*[b.const(0, B32)] * (CHUNK // 4))
        with b.for_(first, rows, 1, label="zero") as loop:
            row = total(b, [start, scaled(b, loop.iv, tile.span)])
            for p in range(tile.panels):  # a swizzle permutes the bytes of a row
                for byte in range(0, tile.span, CHUNK):
                    b.store_shared(total(b, [row, p * tile.panel + byte]), zeros, buffer=buffer)
            loop.yield_([])


def least(low: Lowering, x: Any, y: Any) -> Any:
    """The smaller of two numbers."""
    return min(x, y) if isinstance(x, int) and isinstance(y, int) else low.b.min_s(x, y)


def difference(low: Lowering, x: Any, y: Any) -> Any:
    """x - y."""
    return x - y if isinstance(x, int) and isinstance(y, int) else low.b.sub(x, y)
