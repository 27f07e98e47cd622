"""Sums of parts that the workgroups of a cluster add through their shared memory (`dataflow/joined_parts.py`).

In: what a workgroup has of a tile's sums, in registers as its product left them. Out: its share of the tile, all parts
added in their order, in the layout in which it is stored to its array.

    all waves meet                  whoever reads tiles of operands is done: the sums lie where these were
    store                           a row of the tile behind the other, as far apart as the fewest lanes meet in a bank
    the cluster meets               the copying warpgroup, too (`roles`)
    load, add                       own rows, from every workgroup of the tile, `WORDS` registers on their way at a time
    tell the cluster                that the own reads are done
    ...
    wait for the cluster            at the end of the kernel: nobody's shared memory is gone while others read it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from wavedsl.ir.addresses.coordinates import lane_coordinate, scaled, total
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.kernel.kernel_ir import B32, Value
from wavedsl.ir.layouts.bits import number_of
from wavedsl.ir.layouts.fragment import Fragment, from_elements, scalar_type
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.exchange import PARTS_OVER_TILES
from wavedsl.ir.lower.lower_values import emitter, one_writer, operand
from wavedsl.ir.lower.lowering import Lowering, both
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import Context

SIZE = 4
"""Bytes of an element."""
WIDEST = 4
"""Elements of an access at most."""
WORDS = 64
"""Registers of parts that are on their way at a time."""
BANKS, SERVED = 32, 128
"""Banks of shared memory, and bytes that it serves at once: an access of 16 bytes takes a warp four times."""


@dataclass(frozen=True)
class PartsPlace:
    """Where a workgroup leaves its sums of a tile. `dims`: of the tile, the contiguous one last; `pitch`: elements from
    one place along a dimension to the next; `offset`: the first byte."""

    dims: tuple[str, ...]
    pitch: dict[str, int]
    offset: int
    bytes: int


def joins(low: Lowering) -> list[Node]:
    """The nodes at which a cluster's workgroups meet."""
    return [n for n in low.graph.all_nodes() if n.op == "join_parts"]


def plan_places(low: Lowering, offset: int) -> int:
    """Give the sums their places, from `offset` on, one behind the other; the byte behind them. Raises ConstraintError
    for sums that are no words."""
    for n in joins(low):
        place = _placed(low, n, offset)
        low.room.parts[n.id] = place
        offset = place.offset + place.bytes
    return offset


def _placed(low: Lowering, n: Node, offset: int) -> PartsPlace:
    value = n.inputs[0]
    if value.dtype.bits != 32:
        raise ConstraintError(
            f"sums of {value.dtype.name}: the workgroups of a cluster add words of 32 bits", n.loc,
            "sum in f32 or i32; or cut the loop without a cluster along the parts",
        )  # fmt: skip
    back = {str(n.attrs["share"]): str(n.attrs["dim"])}
    dims = tuple(back.get(d, d) for d in low.layout(n).dims)
    layout = low.layout(value)
    padded = [_pitched(low, dims, pad) for pad in range(0, BANKS, WIDEST)]
    pitch, elements = min(padded, key=lambda p: _clocks(layout, dims, p[0]))
    return PartsPlace(dims, pitch, offset, elements * SIZE)


def _pitched(low: Lowering, dims: Sequence[str], pad: int) -> tuple[dict[str, int], int]:
    """(pitches, elements in all) of a tile whose rows are so many elements longer than they need be."""
    pitch, step = {}, 1
    for i, d in enumerate(reversed(dims)):
        pitch[d] = step
        step *= low.plans[d].tile
        if i == 0 and len(dims) > 1:
            step = -(-step // WIDEST) * WIDEST + pad
    return pitch, step


def _clocks(layout: Layout, dims: Sequence[str], pitch: dict[str, int]) -> int:
    """Clocks that a warp's first store takes: of the lanes that are served together, those that meet in a bank."""
    count = _run(layout, dims, pitch)
    table = layout.table()
    lanes = min(BANKS, layout.lanes)
    at = np.zeros(lanes, np.int64)
    for d in dims:
        at += table[d][0, :lanes, 0] * pitch[d]
    together = max(1, SERVED // (count * SIZE))
    clocks = 0
    for first in range(0, lanes, together):
        words = np.unique((at[first : first + together, None] + np.arange(count)).ravel())
        clocks += int(np.bincount(words % BANKS).max())
    return clocks


def _run(layout: Layout, dims: Sequence[str], pitch: dict[str, int], aligned: int = WIDEST) -> int:
    """Elements of a lane that one access takes: neighbours in the tile, at a multiple of as many. `aligned`: elements
    that the places of waves are multiples of."""
    inner = dims[-1]
    along, offsets = layout.dims.index(inner), layout.element_offsets()
    linear = [sum(o[layout.dims.index(d)] * pitch[d] for d in dims) for o in offsets]
    lanes = layout.lane_columns(inner)
    for n in (4, 2):
        whole = len(offsets) % n == 0 and aligned % n == 0 and dict(layout.extents)[inner] % n == 0
        runs = whole and all(
            linear[i + j] == linear[i] + j and offsets[i][along] % n == 0
            for i in range(0, len(linear), n)
            for j in range(n)
        )
        if runs and all(c % n == 0 for c in lanes) and all(pitch[d] % n == 0 for d in dims[:-1]):
            return n
    return 1


@emitter("join_parts")
def emit_join(low: Lowering, n: Node, layout: Layout, context: Context) -> Fragment:
    """Leave the sums, meet, add the parts of the own share."""
    b, place = low.b, low.room.parts[n.id]
    b.barrier()
    _leave(low, n, operand(low, n, 0, context), place)
    b.cluster_barrier()
    parts = low.matrix.strategy.shape.sizes[0]
    low.note(f"leave {place.bytes} bytes of sums, meet the cluster, add {parts} parts of a share of the tile")
    found = _added(low, n, layout, place)
    if n is joins(low)[-1]:
        # Before results are stored: what releases would wait for these.
        b.cluster_barrier(half="arrive")
    return found


def _leave(low: Lowering, n: Node, value: Fragment, place: PartsPlace) -> None:
    """Store what this wave has. Lanes and waves that hold the same elements leave it to the first of them."""
    b, layout = low.b, value.layout
    names = dict(zip(layout.dims, layout.dims))
    start = _wave_start(low, place, names, {})
    count = _run(layout, place.dims, place.pitch, _aligned(low, place, names))
    replicas = sum(1 << number_of(x) for x in layout.replica_bits("l"))
    first = b.cmp("eq", b.and_(b.lane(), replicas), 0) if replicas else None
    mask = both(b, first, one_writer(low, layout.dims))
    for e in range(0, layout.elements_per_lane, count):
        words = [b.bitcast(w, B32) if w.type is not B32 else w for w in (value.element(b, e + i) for i in range(count))]
        inside = both(b, mask, _inside(low, layout, names, e))
        at = total(b, [start, _lane_place(low, layout, place, names, e)])
        b.store_shared(at, b.vec(*words) if count > 1 else words[0], mask=inside, buffer=PARTS_OVER_TILES)


def _added(low: Lowering, n: Node, layout: Layout, place: PartsPlace) -> Fragment:
    """The parts of this workgroup's share, added in their order."""
    b, dtype = low.b, n.dtype
    shape = low.matrix.strategy.shape
    parts, (part, beside) = shape.sizes[0], shape.place(b)
    share = str(n.attrs["share"])
    names = {d: str(n.attrs["dim"]) if d == share else d for d in layout.dims}
    own = scaled(b, part, low.plans[share].tile)
    start = _wave_start(low, place, names, {share: own})
    ranks = [total(b, [q, scaled(b, beside, parts)]) for q in range(parts)]
    count = _run(layout.relabel(names), place.dims, place.pitch, _aligned(low, place, names))
    ahead = max(1, WORDS // (parts * count))
    add = b.fadd if dtype.is_float else b.add
    kind, out = scalar_type(dtype), []
    runs = range(0, layout.elements_per_lane, count)
    for batch in (runs[i : i + ahead] for i in range(0, len(runs), ahead)):
        loaded = []
        for e in batch:
            at = total(b, [start, _lane_place(low, layout, place, names, e)])
            inside = _inside(low, layout, names, e)
            if inside is not None:
                at = b.select(inside, b.i32(at) if isinstance(at, int) else at, b.i32(place.offset))
            each = [b.load_peer(at, cta, bytes=count * SIZE, buffer=PARTS_OVER_TILES) for cta in ranks]
            loaded.append((each, inside))
        for each, inside in loaded:
            for i in range(count):
                terms = [b.bitcast(b.slice(x, i) if count > 1 else x, kind) for x in each]
                found = terms[0]
                for x in terms[1:]:
                    found = add(found, x)
                out.append(found if inside is None else b.select(inside, found, b.zero(kind)))
    return from_elements(b, layout, dtype, out)


def _wave_start(low: Lowering, place: PartsPlace, names: dict[str, str], more: dict[str, Any]) -> Any:
    """The byte at which this wave's tile starts. `names`: dimensions of its layout and what they are in the place;
    `more`: elements along some of them in front of it."""
    b = low.b
    terms: list[Any] = [place.offset]
    for d, own in names.items():
        first = total(b, [scaled(b, low.digit(d), low.plans[d].wave), more.get(d, 0)])
        terms.append(scaled(b, first, place.pitch[own] * SIZE))
    return total(b, terms)


def _aligned(low: Lowering, place: PartsPlace, names: dict[str, str]) -> int:
    """Elements that waves' and workgroups' places along the contiguous dimension are multiples of, up to `WIDEST`."""
    inner = next(d for d, own in names.items() if own == place.dims[-1])
    plan = low.plans[inner]
    return next(n for n in (4, 2, 1) if plan.wave % n == 0 and plan.tile % n == 0)


def _lane_place(low: Lowering, layout: Layout, place: PartsPlace, names: dict[str, str], element: int) -> Any:
    """Bytes from the wave's start to an element of the lane."""
    b, at = low.b, layout.coords(element)
    lane = [scaled(b, lane_coordinate(b, layout, d), place.pitch[names[d]] * SIZE) for d in layout.dims]
    return total(b, [*lane, sum(at[d] * place.pitch[names[d]] for d in layout.dims) * SIZE])


def _inside(low: Lowering, layout: Layout, names: dict[str, str], element: int) -> Value | None:
    """Whether an element is one of the wave's tile, and not of the layout's padding; None where all of them are."""
    b, found = low.b, None
    for d in names:
        if dict(layout.extents)[d] > low.plans[d].wave:
            where = total(b, [lane_coordinate(b, layout, d), layout.coords(element)[d]])
            known = b.i32(where) if isinstance(where, int) else where
            found = both(b, found, b.cmp("slt", known, low.plans[d].wave))
    return found


__all__ = ["PartsPlace", "emit_join", "joins", "plan_places"]
