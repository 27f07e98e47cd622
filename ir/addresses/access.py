"""Accesses to array arguments: addresses and masks.

In: what is known of an array (`ArrayInfo`), the layout of a value, where the wave stands (`Position`). Out: a
`GlobalAccess`, which gives the operands of each load and store (`move_elements`).

An address is base + voff + soff + imm: voff per lane, soff uniform. A vector never crosses an extent: it is as wide
as the run of elements a lane holds, the alignment of pointer and strides, and the extents allow. A dimension is
masked only where a tile may stick out of it; where the chip's buffers check their end, the outermost dimension needs
no mask, and then its whole coordinate is in voff, because soff takes no part in that check. There a tile that ends at a
run-time row has a buffer that ends with it (`ended_buffer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

from wavedsl.ir.addresses.coordinates import bare_price, lane_coordinate, scaled, total
from wavedsl.ir.addresses.ended_buffer import Ended, ended, ended_buffer, ended_window, first_row
from wavedsl.ir.addresses.run_time_strides import wide_stride
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.facts import BITS, full, multiple_of
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.bit_columns import combine_columns
from wavedsl.ir.layouts.bits import number_of
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

OFFSET_LIMIT = 1 << 32
"""Bytes that the 32-bit offset of a lane reaches."""
NEAR = 1 << 20
"""Bytes from an array's start, along a dimension, that a lane's offset takes beside what its tile's do."""


@dataclass
class Position:
    """Where a wave's tile lies: per dimension the first coordinate of the workgroup's or trip's tile (`base`) and
    what the wave adds (`wave`), both uniform. Ints where they are known."""

    base: Mapping[str, Any]
    wave: Mapping[str, Any]


@dataclass(frozen=True)
class Columns:
    """Coordinates that are linear in the bits of a number: per dimension what each bit of `source` adds; XORs, where
    there are `flips`: a constant that is XORed as well."""

    source: Value
    by_dim: Mapping[str, Sequence[int]]
    flips: Mapping[str, int] | None = None

    def moves(self, d: str) -> bool:
        """Whether the coordinate is not always 0."""
        return any(self.by_dim.get(d, ())) or bool(self.flips and self.flips.get(d))


def _united(columns: Sequence[int]) -> int:
    out = 0
    for c in columns:
        out |= c
    return out


def _flipped(b: Builder, a: Any, flip: int) -> Any:
    """a ^ flip for ints and values."""
    if isinstance(a, int):
        return a ^ flip
    return b.xor(a, flip) if flip else a


class GlobalAccess:
    """One array seen through one layout at one position: gives the operands of its loads and stores.

    `lanes`: what a lane adds per dimension, where the layout does not say; `columns`: the same as columns of a number.
    `covers`: per dimension, elements reached from the position on and how many of them belong to it. `limits`: per
    dimension whose tile starts anywhere, even before the array, the coordinate at which it ends (not negative).
    """

    def __init__(
        self,
        b: Builder,
        info: ArrayInfo,
        layout: Layout,
        position: Position,
        plans: Mapping[str, DimPlan],
        target: Target,
        extents: Sequence[Any],
        strides: Sequence[Any],
        *,
        store: bool,
        lanes: Mapping[str, Any] | None = None,
        columns: Columns | None = None,
        covers: Mapping[str, tuple[int, int]] | None = None,
        limits: Mapping[str, Any] | None = None,
    ):
        self.b, self.info, self.layout, self.plans = b, info, layout, plans
        sizes = dict(layout.extents)
        self.covers = (
            covers if covers is not None else {d: (sizes.get(d, plans[d].wave), plans[d].wave) for d in info.names}
        )
        self._check_reach()
        self.strides = strides
        self.extents = extents
        self.position = position
        self.store = store
        self.names = info.names
        self._by_lane = lanes
        if columns is None and lanes is None:
            columns = Columns(b.lane(), {d: layout.lane_columns(d) for d in layout.dims})
        self._columns = columns
        self.limits = limits or {}
        self.ended = self._ended() if target.buffer_bounds else None
        self.masked, in_voff = self._checked(target)
        self.padded = [
            d for d in self.names
            if self.covers[d][0] > self.covers[d][1]
            and (store or info.written or plans[d].role == "loop" or plans[d].summed)
            and plans[d].role != "index"
        ]  # fmt: skip
        """Dimensions whose tile is padded: elements past the tile are another tile's to store, and no part of this
        trip, or of this workgroup's sum."""
        self.buffer, self.voff, self.soff = self._addressed(in_voff)
        least = self.voff if isinstance(self.voff, int) else self.voff.lo
        self.signed = bool(self.limits) and (least is None or least < 0)
        """Whether a lane's offset may be that of an element in front of the array: as an unsigned number it lies far
        behind its end, and an immediate would not bring it back."""
        self._in_voff = bool(in_voff)
        self._limits: dict[int, Any] = {}

    def _checked(self, target: Target) -> tuple[list[int], set[int]]:
        """(dimensions that need a compare, dimensions whose tile starts at a place that the lanes' offset must hold):
        where the buffer's end says what is outside, and where the tile may start before the array, since a scalar
        offset is neither checked nor negative."""
        free_outermost = target.buffer_bounds and self.info.rows_follow() and self.ended is None
        masked: list[int] = []
        in_voff: set[int] = set()
        for i, d in enumerate(self.names):
            plan = self.plans[d]
            if d in self.limits:
                in_voff.add(i)
                continue
            if plan.role == "index":
                continue
            reach, share = self.covers[d]
            sticks_out = plan.ragged or reach > share or d in self.info.cut
            if not sticks_out:
                continue
            if i == 0 and free_outermost:
                in_voff.add(i)
            else:
                masked.append(i)
        return masked, in_voff

    def _addressed(self, in_voff: set[int]) -> tuple[Value, Any, Any]:
        """(buffer, bytes that a lane adds, bytes that the wave adds) of the lane's first element."""
        b, info = self.b, self.info
        uniform = [None if info.large else scaled(b, self._first(d), s) for d, s in zip(self.names, self.strides)]
        lane_terms = self._lane_terms()
        if self.ended is not None:
            view, d = self.ended, self.names[self.ended.axis]
            end, reach = self.limits[d], self.covers[d][0]
            row = first_row(b, self._first(d), reach, end)
            soff: Any = 0
            if info.large:
                around = self._wide_offset([i for i in range(len(self.names)) if i != view.axis])
                buffer, row = ended_window(b, info, view, around, row, reach, end)
            else:
                buffer = ended_buffer(b, info, view, total(b, [uniform[i] for i in view.outer]), end)
                soff = total(b, [uniform[i] for i in view.inner])
            return buffer, total(b, [*lane_terms, scaled(b, row, view.stride)]), soff
        if info.large:
            near = self._near()
            apart = [i for i in range(len(self.names)) if i not in near]
            return self._buffer(self._wide_offset(apart)), total(b, [*lane_terms, sum(near.values())]), 0
        buffer = self._buffer(None)
        soff = total(b, [u for i, u in enumerate(uniform) if i not in in_voff])
        return buffer, total(b, lane_terms + [u for i, u in enumerate(uniform) if i in in_voff]), soff

    def _near(self) -> dict[int, int]:
        """Dimensions whose first coordinate is a number, such as a slice's of a record, and the bytes up to there: a
        lane's offset takes them, so that slices have one buffer."""
        found: dict[int, int] = {}
        for i, d in enumerate(self.names):
            first, stride = self._first(d), self.strides[i]
            if isinstance(first, int) and isinstance(stride, int) and 0 <= first * stride <= NEAR:
                found[i] = first * stride
        return found

    def _first(self, d: str) -> Any:
        """The first coordinate of this wave's tile."""
        return total(self.b, [self.position.base.get(d, 0), self.position.wave.get(d, 0)])

    def _wide_offset(self, axes: Sequence[int]) -> Value:
        """Bytes (i64) from the array's start to the first coordinates along some of its dimensions."""
        b, offset = self.b, self.b.i64(0)
        for i in axes:
            d = self.names[i]
            coordinate = self._first(d)
            widen = b.sext if d in self.limits else b.zext
            wide = widen(coordinate) if not isinstance(coordinate, int) else b.i64(coordinate)
            offset = b.add(offset, b.mul(wide, wide_stride(b, self.info, i)))
        return offset

    def _ended(self) -> Ended | None:
        """How a buffer may end where the tile does, in place of comparisons; None where it may not."""
        if len(self.limits) != 1:
            return None
        axis = self.names.index(next(iter(self.limits)))
        single = [i for i, d in enumerate(self.names) if self.plans[d].role == "index"]
        return ended(self.info, axis, self.covers[self.names[axis]][0], single)

    def lane(self, d: str) -> Any:
        """What a lane adds to the coordinate of dimension `d`."""
        if self._by_lane is not None:
            return self._by_lane.get(d, 0)
        return lane_coordinate(self.b, self.layout, d) if d in self.layout.dims else 0

    def _lane_terms(self) -> list[Any]:
        """The summands of a lane's offset in bytes: one where the strides are known."""
        columns = self._columns
        if columns is None or any(
            s.__class__ is not int and columns.moves(d) for d, s in zip(self.names, self.strides)
        ):
            return [scaled(self.b, self.lane(d), s) for d, s in zip(self.names, self.strides)]
        width = max((len(c) for c in columns.by_dim.values()), default=0)
        bytes = [0] * width
        if columns.flips is not None:
            return self._xored_terms(columns, bytes)
        for d, s in zip(self.names, self.strides):
            for i, c in enumerate(columns.by_dim.get(d, ())):
                if c:
                    bytes[i] += c * s
        return [combine_columns(self.b, bytes, columns.source, bare=bare_price(self.b, columns.source))]

    def _xored_terms(self, columns: Columns, bytes: list[int]) -> list[Any]:
        """The summands of a lane's offset where bits flip coordinates: those that meet in a coordinate are XORed, and
        coordinates are added; one XOR does both where their bytes are apart."""
        b, flips = self.b, columns.flips
        assert flips is not None
        bare = bare_price(b, columns.source)
        known = columns.by_dim
        parts = [(s, known.get(d, ()), flips.get(d, 0)) for d, s in zip(self.names, self.strides) if columns.moves(d)]
        used, apart = 0, True
        for s, found, flip in parts:
            reach = flip
            for c in found:
                reach |= c
            apart &= s & (s - 1) == 0 and not used & reach * s
            used |= reach * s
        if apart:
            flipped = 0
            for s, found, flip in parts:
                flipped |= flip * s
                for i, c in enumerate(found):
                    bytes[i] |= c * s
            return [_flipped(b, combine_columns(b, bytes, columns.source, xor=True, bare=bare), flipped)]
        terms = []
        for s, found, flip in parts:
            if flip or sum(found) != _united(found):
                coordinate = combine_columns(b, found, columns.source, xor=True, bare=bare)
                terms.append(scaled(b, _flipped(b, coordinate, flip), s))
                continue
            for i, c in enumerate(found):
                bytes[i] += c * s
        return [*terms, combine_columns(b, bytes, columns.source, bare=bare)]

    def _check_reach(self) -> None:
        """A lane's offset from its tile's first element has 32 bits. Raises CompileError where strides are too large
        for that."""
        info = self.info
        reach = info.elsize
        for d, n, s in zip(info.names, info.extents, info.strides):
            if n is not None and s is not None:
                reach += max(0, min(n, self.covers[d][0]) - 1) * s
        if reach > OFFSET_LIMIT:
            raise CompileError(
                f"argument {info.name}: the elements of one tile lie {reach} bytes apart (strides "
                f"{info.strides} bytes), but at most {OFFSET_LIMIT} can be addressed from one place",
                None,
                "pass an array with smaller strides: numpy.ascontiguousarray(…), or use smaller tiles",
            )

    def _buffer(self, offset: Value | None) -> Value:
        return whole_buffer(self.b, self.info, self.extents, offset)

    def _limit(self, i: int) -> Any:
        """Elements of dimension i from this wave's first coordinate to the array's end (may be negative)."""
        got = self._limits.get(i)
        if got is None:
            b, d = self.b, self.names[i]
            reach = total(b, [self.position.base.get(d, 0), self.position.wave.get(d, 0)])
            extent = self.extents[i]
            if isinstance(extent, int) and isinstance(reach, int):
                got = extent - reach
            else:
                got = b.sub(b.i32(extent) if isinstance(extent, int) else extent, reach)
            self._limits[i] = got
        return got

    def operands(self, offsets: Mapping[str, int]) -> tuple[Any, Any, Value]:
        """(voff, soff, mask) of the access whose element is `offsets` past the lane's first, per dimension."""
        b = self.b
        voff, soff = self.voff, self.soff
        fixed = 0
        for d, s in zip(self.names, self.strides):
            step = scaled(b, offsets.get(d, 0), s)
            if isinstance(step, int):
                fixed += step
            elif self._in_voff:
                voff = total(b, [voff, step])
            else:
                soff = total(b, [soff, step])
        mask = b.true
        for i in self.masked:
            d = self.names[i]
            mask = b.pand(mask, below(b, self.lane(d), offsets.get(d, 0), self._limit(i)))
        for d, limit in self.limits.items() if self.ended is None else ():
            first = [self.position.base.get(d, 0), self.position.wave.get(d, 0), offsets.get(d, 0)]
            at = total(b, [self.lane(d), *first])
            mask = b.pand(mask, b.cmp("ult", b.i32(at) if isinstance(at, int) else at, limit))
        for d in self.padded:
            mask = b.pand(mask, below(b, self.lane(d), offsets.get(d, 0), self.covers[d][1]))
        if self.store:
            mask = b.pand(mask, self._first_replica())
        return total(b, [voff, fixed]), soff, mask

    def _first_replica(self) -> Value:
        """Lanes that hold copies: only the first of each set stores."""
        b = self.b
        mask = sum(1 << number_of(x) for x in self.layout.replica_bits("l"))
        return b.cmp("eq", b.and_(b.lane(), mask), 0) if mask else b.true


def whole_buffer(
    b: Builder, info: ArrayInfo, extents: Sequence[Any], offset: Value | None = None
) -> Value:
    """The array as a buffer, from a byte offset (i64) on if one is given."""
    span = info.span()
    size: Value
    if span is not None:
        size = b.i64(span)
    else:
        # (n0 - 1) * s0 + ... + elsize, in 64 bits.
        size = b.i64(info.elsize)
        for i, n in enumerate(extents):
            last = b.zext(b.sub(n, 1)) if not isinstance(n, int) else b.i64(n - 1)
            size = b.add(size, b.mul(last, wide_stride(b, info, i)))
    base = b.param(info.param)
    if info.offset:
        base = b.add(base, b.i64(info.offset))
    if offset is None:
        return b.buffer(base, size, info.cache_stride)
    return b.buffer(b.add(base, offset), b.max_s(b.sub(size, offset), b.i64(0)), info.cache_stride)


def below(b: Builder, lane: Any, offset: int, limit: Any) -> Value:
    """lane + offset < limit. The offset joins the limit where scalar registers hold what is uniform. PTX has none: a
    number per offset would be kept there, through loops even; all offsets share lane - limit and are constants beside
    it. Where lane and limit are multiples of a number, offsets between two multiples of it are below together."""
    offset -= offset % max(1, gcd(*(x if isinstance(x, int) else multiple_of(x) for x in (lane, limit))))
    if isinstance(limit, int):
        return b.cmp("slt", b.i32(lane) if isinstance(lane, int) else lane, limit - offset)
    if isinstance(lane, int):
        lane = b.i32(lane)
    if offset and b.target is not None and not b.target.scalar_registers and _difference_fits(lane, limit):
        return b.cmp("slt", b.sub(lane, limit), -offset)
    return b.cmp("slt", lane, b.sub(limit, offset) if offset else limit)


def _difference_fits(x: Value, y: Value) -> bool:
    """Whether x - y does not wrap, by what is known of both."""
    lo, hi, _ = full(BITS[x.type.kind])
    if x.lo is None or x.hi is None or y.lo is None or y.hi is None:
        return False
    return lo <= x.lo - y.hi and x.hi - y.lo <= hi
