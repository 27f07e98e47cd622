"""`extract`, `shuffle` and `repeat_interleave`: elements of a value in registers by their place along a dimension.

A number that is known and lies in registers of the same lane is a renaming; one that other lanes hold is one exchange
between lanes per element. So is a shuffle to `index ^ mask`, of which the bits that registers hold cost nothing, and
one along a dimension that lanes hold (`lane_gather`). Everything else goes through the wave's part of the scratch
buffer: every element is written at its number in the wave's tile, and read where the index says. A result along another
dimension than the one that the elements are taken along goes the same two ways. Of a dimension that waves share, other
waves' elements come as well (`wave_picks`).

Indices outside the dimension give 0, as elements beyond a bound are absent. Of a dimension that is spread over tiles,
`index ^ mask` is taken the same ways by places in the tile, where no element leaves it (`dataflow/picked_in_tiles.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from wavedsl.ir.addresses.access import below
from wavedsl.ir.addresses.coordinates import bare_price, lane_coordinate, scaled, total
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.picked_in_tiles import elsewhere, stays_in_tiles
from wavedsl.ir.dtypes import DType
from wavedsl.ir.inference.derived_layout import every_layout, keeps_places, same_layout
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.dead_stores import WRITES
from wavedsl.ir.kernel.kernel_ir import B32, PRED, Value
from wavedsl.ir.layouts.bit_columns import combine_columns
from wavedsl.ir.layouts.fragment import Fragment, OnDemand, from_elements, per_register, scalar_type
from wavedsl.ir.layouts.lane_gather import LaneGather, Origin
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.cells import cells_of, number_from
from wavedsl.ir.lower.exchange import SCRATCH, order
from wavedsl.ir.lower.lower_values import emitter, operand
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.pick_ways import gathered_in_lanes, lane_bits, picked_in_lanes, swap_mask
from wavedsl.ir.lower.wave_picks import between_waves, of_wave
from wavedsl.ir.schedule.steps import Context

LANE_BITS = 7
"""Of the number of a lane, at most: of a warpgroup's."""
_MovedBit = tuple[Value | None, int, int]
"""A number, the lane's own where it is None; which of its bits; and where that is wanted in another number."""


@emitter("extract")
def emit_extract(low: Lowering, n: Node, layout: Layout, context: Context) -> Fragment:
    b, dim = low.b, str(n.attrs["dim"])
    value = operand(low, n, 0, context)
    step, start = n.attrs["step"], n.attrs["start"]
    if keeps_places(n, low.partition):
        return _every(low, n, value, layout)
    extent = whole_dimension(low, n, dim)
    first: Any = start if start is not None else low.value(n.inputs[1], context.env).element(b, 0)
    spread = low.plans[dim].waves > 1
    if n.attrs["new"] is None:
        if spread:
            return of_one_wave(low, n, value, layout, dim, extent, first)
        found = one_element(low, value, layout, dim, first)
        if found is None:
            return through_scratch(low, n, value, layout, dim, extent, [first] * layout.elements_per_lane)
        return found if isinstance(first, int) else inside(low, found, b.cmp("ult", first, extent))
    new = str(n.attrs["new"])
    whole_dimension(low, n, new)
    axis = layout.dims.index(new)
    own = total(b, [lane_coordinate(b, layout, new), low.position([new]).wave[new]])
    wanted = [total(b, [first, scaled(b, own, step), o[axis] * step]) for o in layout.element_offsets()]
    if spread:
        return between_waves(low, n, value, layout, dim, extent, wanted)
    return through_scratch(low, n, value, layout, dim, extent, wanted)


def _every(low: Lowering, n: Node, value: Fragment, layout: Layout) -> Fragment:
    """Every `step`th element of what a wave has along a dimension."""
    b, dim, new = low.b, str(n.attrs["dim"]), str(n.attrs["new"])
    step, start = n.attrs["step"], n.attrs["start"]
    mine = every_layout(value.layout, n)
    if mine is not None and same_layout(mine, layout):
        out = []
        for offsets in layout.element_offsets():
            at = {dim if d == new else d: step * o + start if d == new else o for d, o in zip(layout.dims, offsets)}
            out.append(value.element(b, value.layout.element_at(at)))
        return from_elements(b, layout, n.dtype, out)
    axis, own = layout.dims.index(new), lane_coordinate(b, layout, new)
    wanted = [total(b, [start, scaled(b, own, step), o[axis] * step]) for o in layout.element_offsets()]
    return through_scratch(low, n, value, layout, dim, low.plans[dim].wave, wanted)


@emitter("shuffle")
def emit_shuffle(low: Lowering, n: Node, layout: Layout, context: Context) -> Fragment:
    b, dim = low.b, str(n.attrs["dim"])
    tiled = swapped_in_tiles(low, n, dim)
    extent = low.extent(dim) if tiled else whole_dimension(low, n, dim)
    value = operand(low, n, 0, context)
    mask, plan = swap_mask(low, n, value.layout, layout), low.plans[dim]
    if mask is not None:
        if plan.waves > 1 and mask >= plan.wave:
            value = of_wave(low, value, dim, lambda digit: b.xor(digit, mask // plan.wave))
        return swapped(low, n, value, layout, mask, extent, context)
    index = operand(low, n, 1, context)
    have = [layout.dims.index(d) for d in index.layout.dims]
    wanted = []
    for offsets in layout.element_offsets():
        e = index.layout.element_at(dict(zip(index.layout.dims, (offsets[a] for a in have)))) if have else 0
        wanted.append(index.element(b, e))
    if tiled:
        first = low.position([dim]).base[dim]
        wanted, extent = [b.sub(w, first) for w in wanted], b.sub(extent, first)
    if plan.waves > 1:
        return between_waves(low, n, value, layout, dim, extent, wanted)
    lanes = gathered_in_lanes(n, value.layout, layout)
    if lanes is not None:
        return between_lanes(low, value, layout, extent, wanted, lanes)
    return through_scratch(low, n, value, layout, dim, extent, wanted)


@emitter("repeat_interleave")
def emit_repeat(low: Lowering, n: Node, layout: Layout, context: Context) -> Fragment:
    """Every lane holds what it needs: the operand comes in the layout that `coarse_layout` gives."""
    b, dim = low.b, str(n.attrs["dim"])
    value = operand(low, n, 0, context)
    source = next(str(d) for d in n.inputs[0].dims if d not in n.dims)
    count = n.attrs["count"]
    out = []
    for offsets in layout.element_offsets():
        at = {source if d == dim else d: o // count if d == dim else o for d, o in zip(layout.dims, offsets)}
        out.append(value.element(b, value.layout.element_at(at)))
    return from_elements(b, layout, n.dtype, out) if per_register(n.dtype) == 1 else _Many(b, layout, n.dtype, out)


class _Many(OnDemand):
    """Elements of a narrow dtype, packed where somebody asks for a word: who computes with pairs of them waits for
    what is loaded there, not here."""

    def __init__(self, b: Builder, layout: Layout, dtype: DType, elements: Sequence[Value]):
        self.b, self.layout, self.dtype, self.elements = b, layout, dtype, elements

    def word(self, b: Builder, index: int) -> Value:
        per = per_register(self.dtype)
        group = list(self.elements[index * per : index * per + per])
        return b.pack(group + [b.zero(scalar_type(self.dtype))] * (per - len(group)), self.dtype)

    def element(self, b: Builder, index: int) -> Value:
        return self.elements[index]


def swapped_in_tiles(low: Lowering, n: Node, dim: str) -> bool:
    """Whether a shuffle along a dimension that is spread over tiles takes each element from its own tile."""
    plan = low.plans[dim]
    return plan.trips not in (0, 1) and stays_in_tiles(n, plan.tile)


def whole_dimension(low: Lowering, n: Node, dim: str) -> int:
    """The extent of a dimension that a workgroup holds as a whole. Raises CompileError where it does not."""
    plan = low.plans[dim]
    if plan.extent is None or plan.trips not in (0, 1):
        raise elsewhere(n, dim, plan.tile, plan.extent is not None)
    return plan.extent


def of_one_wave(
    low: Lowering, n: Node, value: Fragment, layout: Layout, dim: str, extent: int, at: Any
) -> Fragment:
    """The elements at coordinate `at` of a dimension that waves share: each takes what it has at the place of its own
    part, and then that of the wave whose part it is."""
    b, wave = low.b, low.plans[dim].wave
    owner: Any
    place: Any
    exists: Value | None
    if isinstance(at, int):
        if not 0 <= at < extent:
            return from_elements(b, layout, n.dtype, [b.zero(scalar_type(n.dtype))] * layout.elements_per_lane)
        owner, place, exists = at // wave, at % wave, None
    else:
        exists = b.cmp("ult", at, extent)
        at = b.select(exists, at, b.i32(0))
        owner = b.udiv(at, wave)
        place = b.sub(at, b.mul(owner, wave))
    found = one_element(low, value, layout, dim, place)
    if found is None:
        found = through_scratch(low, n, value, layout, dim, wave, [place] * layout.elements_per_lane)
    found = of_wave(low, found, dim, lambda _: owner)
    return found if exists is None else inside(low, found, exists)


def one_element(low: Lowering, value: Fragment, layout: Layout, dim: str, at: Any) -> Fragment | None:
    """The elements at coordinate `at` of `dim` for all lanes, a number or a value, which then has to exist; None where
    they go through shared memory. Of a value, the register is selected by halving those that come into question."""
    b, source = low.b, value.layout
    known = isinstance(at, int)
    if known and not 0 <= at < dict(source.extents)[dim]:
        return from_elements(b, layout, value.dtype, [b.zero(scalar_type(value.dtype))] * layout.elements_per_lane)
    if not picked_in_lanes(low, source, layout, dim):
        return None
    lanes = lane_bits(source, dim)
    taken = sum(1 << o for o in lanes)
    home: Value | None = None
    if lanes:
        chosen = sum(1 << lane for o, lane in lanes.items() if at >> o & 1) if known else 0
        bits = [] if known else [(at, o, lane) for o, lane in lanes.items()]
        home = b.or_(_moved_bits(low, [*_other_lanes(lanes.values()), *bits]), chosen)
    places = [at & ~taken] if known else [c for c in range(dict(source.extents)[dim]) if not c & taken]
    below = {} if known else {c: b.cmp("ult", b.and_(at, ~taken & 0x7FFFFFFF), c) for c in places[1:]}
    out = []
    for offsets in layout.element_offsets():
        own = dict(zip(layout.dims, offsets))
        elements = [value.element(b, source.element_at({**own, dim: c})) for c in places]
        out.append(moved_from(low, _selected(low, elements, places, below), home))
    return from_elements(b, layout, value.dtype, out)


def _selected(low: Lowering, elements: list[Value], places: list[int], below: dict[int, Value]) -> Value:
    """Of elements at some places the one at the place that `below` compares with each of them."""
    if len(elements) == 1:
        return elements[0]
    half = len(elements) // 2
    first = _selected(low, elements[:half], places[:half], below)
    return _either(low, below[places[half]], first, _selected(low, elements[half:], places[half:], below))


def inside(low: Lowering, value: Fragment, exists: Value) -> Fragment:
    """The value, 0 where what was asked for does not exist."""
    elements = [_or_zero(low, exists, value.element(low.b, i)) for i in range(value.layout.elements_per_lane)]
    return from_elements(low.b, value.layout, value.dtype, elements)


def between_lanes(
    low: Lowering, value: Fragment, layout: Layout, extent: Any, wanted: list[Value], plan: LaneGather
) -> Fragment:
    """A gather of which every element is pulled from the lane that has it, as `plan` says."""
    b, source = low.b, value.layout
    rest = _other_lanes(lane for lane, _ in plan.homes)
    out = []
    for offsets, index in zip(layout.element_offsets(), wanted):
        at = dict(zip(layout.dims, offsets))
        bits = [_bit_of(low, origin, at, index) for _, origin in plan.homes]
        home = _moved_bits(low, [*rest, *((number, bit, lane) for (number, bit), (lane, _) in zip(bits, plan.homes))])
        pulled = [from_lane(low, value, e, home) for e in plan.registers(source, at)]
        for origin in plan.choices:
            high = b.cmp("ne", _moved_bits(low, [(*_bit_of(low, origin, at, index), origin.bit)]), 0)
            pulled = [_either(low, high, y, x) for x, y in zip(pulled[::2], pulled[1::2])]
        out.append(_or_zero(low, b.cmp("ult", index, extent), pulled[0]))
    return from_elements(b, layout, value.dtype, out)


def _other_lanes(lanes: Iterable[int]) -> list[_MovedBit]:
    """The bits of a lane's own number but those of some lanes."""
    taken = set(lanes)
    return [(None, lane, lane) for lane in range(LANE_BITS) if lane not in taken]


def _bit_of(low: Lowering, origin: Origin, at: dict[str, int], index: Value) -> tuple[Value | None, int]:
    """A bit of the coordinate of what an element of the result is pulled from: that bit of which number."""
    if origin.gathered:
        return index, origin.bit
    if origin.lane is not None:
        return None, origin.lane
    return low.b.i32(at[origin.dim]), origin.bit


def _moved_bits(low: Lowering, moved: Iterable[_MovedBit]) -> Value:
    """Bits of numbers at other places of one number; those of one that move as far move together."""
    b = low.b
    known, columns = 0, dict[Value, list[int]]()
    for number, bit, place in moved:
        source = b.lane() if number is None else number
        if source.const is not None:
            known |= (int(source.const) >> bit & 1) << place
        else:
            columns.setdefault(source, [0] * 32)[bit] |= 1 << place
    found = b.i32(known)
    for source, adds in columns.items():
        found = b.or_(found, combine_columns(b, adds, source, xor=True, bare=bare_price(b, source)))
    return found


def _either(low: Lowering, condition: Value, x: Value, y: Value) -> Value:
    """x where the condition holds, else y."""
    b = low.b
    if x.type is PRED:
        return b.por(b.pand(condition, x), b.pand(b.pnot(condition), y))
    return b.select(condition, x, y)


def swapped(
    low: Lowering, n: Node, value: Fragment, layout: Layout, mask: int, extent: Any, context: Context
) -> Fragment:
    """Every element in the place of that at its coordinate ^ `mask`: registers are renamed, lanes exchange."""
    b, dim, source = low.b, str(n.attrs["dim"]), value.layout
    lanes, shared = lane_bits(source, dim), low.plans[dim].waves > 1
    own = mask % low.plans[dim].wave if shared else mask  # `of_wave` has brought what is in other waves
    far = sum(1 << lane for bit, lane in lanes.items() if own >> bit & 1)
    near = own & ~sum(1 << bit for bit in lanes)
    moved: dict[int, Value] = {}

    def taken(e: int) -> Value:
        if e not in moved:
            number = value.element(b, e)
            if far:
                number = number_from(b, tuple(b.shuffle_xor(c, far) for c in cells_of(b, number)), number)
            moved[e] = number
        return moved[e]

    even = isinstance(extent, int) and extent % (1 << mask.bit_length()) == 0
    index = None if even else operand(low, n, 1, context)
    out = []
    for offsets in layout.element_offsets():
        at = dict(zip(layout.dims, offsets))
        number = taken(source.element_at({**at, dim: at[dim] ^ near}))
        if index is not None:  # the partner may lie beyond the end
            place = index.element(b, index.layout.element_at({dim: at[dim]}))
            number = _or_zero(low, b.cmp("ult", place, extent), number)
        out.append(number)
    return from_elements(b, layout, value.dtype, out)


def from_lane(low: Lowering, value: Fragment, element: int, home: Value | None) -> Value:
    """An element as another lane holds it."""
    return moved_from(low, value.element(low.b, element), home)


def moved_from(low: Lowering, number: Value, home: Value | None) -> Value:
    """A number as another lane holds it."""
    b = low.b
    if home is None:
        return number
    moved = tuple(b.shuffle_index(c, home) for c in cells_of(b, number))
    return number_from(b, moved, number)


def _or_zero(low: Lowering, inside: Value, number: Value) -> Value:
    b = low.b
    return b.pand(inside, number) if number.type is PRED else b.select(inside, number, b.zero(number.type))


def _lies_in_scratch(low: Lowering, layout: Layout, numbers: Sequence[Value]) -> bool:
    """Whether these elements were written last to the wave's part of the scratch buffer, in the same straight code."""
    if low.room.in_scratch is None:
        return False
    region, laid, written, behind = low.room.in_scratch
    if region is not low.b.region or len(written) != len(numbers) or not same_layout(laid, layout):
        return False
    if any(x is not y for x, y in zip(written, numbers)):
        return False
    for op in reversed(region.ops):
        if op is behind:
            return True
        if op.regions or (WRITES in op.row.effects and "sync" not in op.row.effects):
            return False
    return False


def through_scratch(
    low: Lowering, n: Node, value: Fragment, layout: Layout, dim: str, extent: Any, wanted: list[Any]
) -> Fragment:
    """Write every element at its number in the wave's tile, unless they lie there, for what else is picked of the same
    value; read the ones that `wanted` names along `dim`."""
    b, source = low.b, value.layout
    kinds = scalar_type(value.dtype)
    words = 1 if kinds is PRED else kinds.words
    sizes = {d: dict(source.extents)[d] for d in source.dims}
    strides, step = {}, words * 4
    for d in reversed(source.dims):
        strides[d] = step
        step *= sizes[d]
    wave = b.wave() if low.partition.waves > 1 else 0
    base = total(b, [low.room.scratch, scaled(b, wave, low.room.scratch_share)])
    lanes = [scaled(b, lane_coordinate(b, source, d), strides[d]) for d in source.dims]
    numbers = [value.element(b, e) for e in range(source.elements_per_lane)]
    if not _lies_in_scratch(low, source, numbers):
        order(low)
        for number, offsets in zip(numbers, source.element_offsets()):
            at = total(b, [base, *lanes, sum(o * strides[d] for d, o in zip(source.dims, offsets))])
            cell = [b.bitcast(w, B32) if w.type is not B32 else w for w in cells_of(b, number)]
            b.store_shared(at, b.vec(*cell) if len(cell) > 1 else cell[0], bytes=4 * words, buffer=SCRATCH)
        order(low)
        low.room.in_scratch = b.region, source, numbers, b.region.ops[-1]
    kept = [d for d in layout.dims if d in strides and d != dim]
    moving = [scaled(b, lane_coordinate(b, layout, d), strides[d]) for d in kept]
    out = []
    for offsets, place in zip(layout.element_offsets(), wanted):
        at = dict(zip(layout.dims, offsets))
        inside = b.true
        if isinstance(place, int):
            inside = b.true if 0 <= place < extent else b.false
            place = min(max(place, 0), extent - 1)
        else:
            inside = b.cmp("ult", place, extent)
            place = b.select(inside, place, b.i32(0))
        for d in kept:
            if dict(layout.extents)[d] > sizes[d]:
                inside = b.pand(inside, below(b, lane_coordinate(b, layout, d), at[d], sizes[d]))
        where = total(b, [base, *moving, sum(at[d] * strides[d] for d in kept), scaled(b, place, strides[dim])])
        home = b.i32(base) if isinstance(base, int) else base
        safe = b.select(inside, b.i32(where) if isinstance(where, int) else where, home)
        got = b.load_shared(safe, bytes=4 * words, buffer=SCRATCH)
        held = tuple(b.slice(got, i) for i in range(words)) if words > 1 else (got,)
        out.append(_or_zero(low, inside, number_from(b, held, value.element(b, 0))))
    return from_elements(b, layout, n.dtype, out)


__all__ = ["through_scratch", "whole_dimension"]
