"""Layout conversions as instructions: a value is brought into the layout that a use demands.

In: a `Fragment` and a layout of the same dimensions. Out: the fragment in that layout. `plan_convert` says how:
renamings are free, exchanges between lanes are shuffles and selects, anything else goes through shared memory.

Both layouts describe the tile of one wave, so no conversion crosses waves: each wave has a part of the scratch buffer
to itself. On AMD the shared-memory accesses of a wave happen in order and its lanes in lockstep, so nothing is waited
for but the data; on NVIDIA the threads of a warp are on their own, so barriers of the wave stand around. Every loop
trips uniformly, so a barrier is legal wherever a value is computed.

Invariant: an element of the wanted layout that the value's layout does not hold (padding) is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.addresses.coordinates import combine_fields, lane_coordinate, scaled, total
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.inference.derived_layout import renamed_bits
from wavedsl.ir.kernel.kernel_ir import B32, I32, Value
from wavedsl.ir.layouts.bits import number_of
from wavedsl.ir.layouts.chain import absorbed
from wavedsl.ir.layouts.convert import SHARED, ConvertPlan, Keep, LaneMove, Rename, Spread, Swap, plan_convert
from wavedsl.ir.layouts.fragment import Fragment, from_words, per_register, register_type
from wavedsl.ir.layouts.layout import WARP_BITS, Layout, high_lanes
from wavedsl.ir.layouts.plan_addresses import lane_fields
from wavedsl.ir.lower.cells import Cell, cells_of, from_cell, side_by_side
from wavedsl.ir.lower.lowering import Lowering

SCRATCH = "scratch"
"""Name of the shared buffer for conversions and reductions across waves."""
OVER_TILES = "scratch over tiles"
"""Name of that for reductions where it lies in the place of tiles that are done with (`over_tiles`)."""
PARTS_OVER_TILES = "parts over tiles"
"""Name of that for sums that a cluster's workgroups add (`join_parts`), in the place of tiles that are done with."""

def regroup(low: Lowering, n: Node, layout: Layout) -> tuple[Layout, Layout] | None:
    """For a reshape of a value in `layout`: (the same with digits as bits, what renaming its bits gives), or None."""
    source = absorbed(layout)
    aim = renamed_bits(n, source, low.partition)
    return None if aim is None else (source, aim)


def convert(low: Lowering, value: Fragment, wanted: Layout) -> Fragment:
    """`value` in the layout `wanted`."""
    b, dtype = low.b, value.dtype
    held = renamed(value.layout, wanted)
    if held is not None:
        return rename(low, value, wanted, held)
    plan, source, aim = route(value.layout, wanted, dtype)
    if plan.kind == "shared memory":
        return through_shared(low, value, wanted)
    if source is not value.layout:
        first = renamed(value.layout, source)
        assert first is not None
        value = rename(low, value, source, first)
    per = per_register(dtype)
    boxes = max(1, len(plan.digits))  # a word must not reach from one box into the next
    full = source.elements_per_lane // boxes % per == 0 and aim.elements_per_lane // boxes % per == 0
    whole = per > 1 and full and _keeps_words(plan, per)
    cells: list[tuple[Value, ...]] = []
    if whole or per == 1:
        cells += _words(b, value)
    else:
        cells += [(_raw(b, value, i),) for i in range(source.elements_per_lane)]
    cells = _apply(low, plan, cells, per if whole else 1)
    if per > 1 and not whole:
        words = [_join([c[0] for c in cells[i : i + per]], dtype, low) for i in range(0, len(cells), per)]
        out = from_words(b, aim, dtype, [b.bitcast(w, register_type(dtype)) for w in words])
    else:
        out = from_words(b, aim, dtype, [from_cell(b, c, dtype) for c in cells])
    if aim is not wanted:
        last = renamed(aim, wanted)
        assert last is not None
        out = rename(low, out, wanted, last)
    return out


def route(source: Layout, wanted: Layout, dtype: DType) -> tuple[ConvertPlan, Layout, Layout]:
    """(plan, layout it starts from, layout it ends in): register digits become bits where the boxes differ otherwise.

    The two layouts may differ from the given ones in the order of registers only.
    """
    if renamed(source, wanted) is not None:
        return ConvertPlan("renaming"), source, wanted
    if dict(source.extents) != dict(wanted.extents):
        return SHARED, source, wanted
    size = max(1, dtype.bits // 8) if dtype is not dt.i1 else 4
    found = plan_convert(source, wanted, size)
    if found.kind != "shared memory" and not crosses_warps(found, source.lanes):
        return found, source, wanted
    a, c = absorbed(source), absorbed(wanted)
    found = plan_convert(a, c, size)
    words = max(1, source.elements_per_lane * dtype.slot // 32)
    dear = (found.exchanges + 2 * found.shuffles) * words > 64
    if found.kind == "shared memory" or dear or crosses_warps(found, source.lanes):
        return SHARED, source, wanted
    return found, a, c


def crosses_warps(plan: ConvertPlan, lanes: int) -> bool:
    """Whether a plan moves values between warps of a warpgroup by shuffles."""
    for step in plan.steps:
        if isinstance(step, (Swap, Spread)) and high_lanes([step.lane], lanes):
            return True
        if isinstance(step, LaneMove):
            table = dict(zip(step.source.ins, step.source.cols))
            moved = [number_of(x) for x, column in table.items() if column != 1 << number_of(x)]
            if lanes == 4 << WARP_BITS and moved:
                return True
    return False


def renamed(source: Layout, wanted: Layout) -> list[int | None] | None:
    """Per element of `wanted` the element of the same lane that holds it, None for padding; None as a whole where
    another lane holds one."""
    if set(source.dims) != set(wanted.dims) or source.lanes != wanted.lanes:
        return None
    if any(source.lane_columns(d) != wanted.lane_columns(d) for d in source.dims):
        return None
    aligned = wanted.reorder(source.dims)
    held: dict[tuple[int, ...], int] = {}
    for i, offset in enumerate(source.element_offsets()):
        held.setdefault(offset, i)
    sizes = dict(source.extents)
    out: list[int | None] = []
    for offset in aligned.element_offsets():
        found = held.get(offset)
        if found is None and all(o < sizes[d] for o, d in zip(offset, source.dims)):
            return None
        out.append(found)
    return out


def rename(low: Lowering, value: Fragment, wanted: Layout, held: Sequence[int | None]) -> Fragment:
    """Registers in another order; words are taken over whole where they can be."""
    b, dtype = low.b, value.dtype
    per = per_register(dtype)
    words = value.words(b)
    out = []
    for first in range(0, len(held), per):
        group = list(held[first : first + per])
        head = group[0]
        if head is not None and head % per == 0 and group == list(range(head, head + len(group))):
            out.append(words[head // per])
            continue
        if per == 1:
            out.append(b.zero(register_type(dtype)) if dtype is not dt.i1 else b.false)
            continue
        sources = list(dict.fromkeys(e // per for e in group if e is not None))
        whole = _bytes_of(group, per) if None not in group and len(group) == per else None
        if whole is not None and len(sources) <= 2 and words[0].type is B32:
            out.append(_by_bytes(b, words, sources, whole, min(per, 4)))
            continue
        raw = [b.i32(0) if e is None else _raw(b, value, e) for e in group]
        out.append(b.bitcast(_join(raw, dtype, low), register_type(dtype)))
    return from_words(b, wanted, dtype, out)


def _bytes_of(group: Sequence[Any], per: int) -> Sequence[int] | None:
    """The elements of a word, of 8 in pairs that fill a byte; None where elements of less than a byte part."""
    if per <= 4:
        return group
    pairs = list(zip(group[::2], group[1::2]))
    if per > 8 or any(low % 2 or high != low + 1 for low, high in pairs):
        return None
    return [low // 2 for low, _ in pairs]


def _by_bytes(b: Any, words: Sequence[Value], sources: Sequence[int], group: Sequence[Any], per: int) -> Value:
    """A word of packed elements that lie in one or two words: one byte permute."""
    size = 4 // per
    selector = 0
    for i, e in enumerate(group):
        start = (4 if e // per != sources[0] else 0) + e % per * size
        for j in range(size):
            selector |= start + j << 8 * (i * size + j)
    return b.permute_bytes(words[sources[-1]], words[sources[0]], selector)


# ---- between lanes ---------------------------------------------------------------------------------------------------


def _apply(low: Lowering, plan: ConvertPlan, cells: list[Cell], per: int) -> list[Cell]:
    """The steps of a plan (`convert.replay` is their meaning) on cells of `per` elements each."""
    b = low.b
    size = len(cells) // len(plan.digits)
    skip = per.bit_length() - 1
    out: list[Cell] = []
    for d in plan.digits:
        box = cells[d * size : (d + 1) * size]
        for step in plan.steps:
            if isinstance(step, Rename):
                box = [box[e // per] for e in step.source[::per]]
            elif isinstance(step, Swap):
                box = _swap(low, box, step.register - skip, step.lane)
            elif isinstance(step, Keep):
                if step.kind != "l":
                    raise CompileError("a conversion inside one wave asks for another wave's elements", b.current_loc)
                r, own = 1 << step.register - skip, _lane_bit(low, step.number)
                box = [_select(low, own, box[i | r], box[i]) for i in range(len(box)) if not i & r]
            elif isinstance(step, Spread):
                own = _lane_bit(low, step.lane)
                there = [tuple(b.shuffle_xor(w, 1 << step.lane) for w in c) for c in box]
                box = [_select(low, own, y, x) for x, y in zip(box, there)] + [
                    _select(low, own, x, y) for x, y in zip(box, there)
                ]
            else:
                assert isinstance(step, LaneMove)
                lane = combine_fields(b, lane_fields(step.source.cols), b.lane(), xor=True)
                box = [tuple(b.shuffle_index(w, lane) for w in c) for c in box]
        out += box
    return out


def _swap(low: Lowering, box: list[Cell], register: int, lane: int) -> list[Cell]:
    """Exchange of half the cells with the partner lane: one shuffle per pair."""
    b, r, own = low.b, 1 << register, _lane_bit(low, lane)
    out = list(box)
    lower = [i for i in range(len(box)) if not i & r]
    for group in side_by_side(low.target, lower):
        sent = [_select(low, own, box[i], box[i | r]) for i in group]
        got = [tuple(b.shuffle_xor(w, 1 << lane) for w in cell) for cell in sent]
        for i, cell in zip(group, got):
            out[i] = _select(low, own, cell, box[i])
            out[i | r] = _select(low, own, box[i | r], cell)
    return out


def _lane_bit(low: Lowering, number: int) -> Value:
    b = low.b
    return b.cmp("ne", b.and_(b.lane(), 1 << number), 0)


def _select(low: Lowering, mask: Value, x: Cell, y: Cell) -> Cell:
    return tuple(low.b.select(mask, p, q) for p, q in zip(x, y))


def _keeps_words(plan: ConvertPlan, per: int) -> bool:
    """Whether every step moves whole words of `per` packed elements."""
    for step in plan.steps:
        if isinstance(step, Swap | Keep) and 1 << step.register < per:
            return False
        if isinstance(step, Rename):
            heads = step.source[::per]
            if len(step.source) % per or any(
                h % per or step.source[i * per : i * per + per] != tuple(range(h, h + per)) for i, h in enumerate(heads)
            ):
                return False
    return True


# ---- through shared memory -------------------------------------------------------------------------------------------


def through_shared(low: Lowering, value: Fragment, wanted: Layout) -> Fragment:
    """Write every element where its coordinate says, read it where the other layout says."""
    b, dtype = low.b, value.dtype
    order(low)
    store_tile(low, value, wanted)
    order(low)
    loads = TileLoads(low, value, wanted)
    out = [cell for first in range(0, wanted.elements_per_lane, loads.count) for cell in loads.cells(first)]
    per = per_register(dtype)
    if per > 1:
        words = [_join([c[0] for c in out[i : i + per]], dtype, low) for i in range(0, len(out), per)]
        return from_words(b, wanted, dtype, [b.bitcast(w, register_type(dtype)) for w in words])
    return from_words(b, wanted, dtype, [from_cell(b, c, dtype) for c in out])


def own_scratch(low: Lowering, at: int = 0) -> Value | int:
    """Byte `at` of what a wave has of the scratch buffer."""
    wave = low.b.wave() if low.partition.waves > 1 else 0
    return total(low.b, [low.room.scratch + at, scaled(low.b, wave, low.room.scratch_share)])


def store_tile(low: Lowering, value: Fragment, wanted: Layout) -> None:
    """Put a value into the wave's scratch, for lanes that want it in another layout."""
    b, source = low.b, value.layout
    dims, pitch = _tile(source, wanted)
    size = _bytes(value.dtype)
    base = own_scratch(low)
    count = _run_length(source, dims, pitch, size)
    for first in range(0, source.elements_per_lane, count):
        address = total(b, [base, _address(low, source, dims, pitch, size, first)])
        parts = [_raw(b, value, first + i) if size < 4 else _cell(b, value, first + i) for i in range(count)]
        b.store_shared(address, _packed(b, parts, size), bytes=size * count, buffer=SCRATCH)


class TileLoads:
    """Loads, in the layout `wanted`, of what `store_tile` left: `count` elements each."""

    def __init__(self, low: Lowering, value: Fragment, wanted: Layout):
        self.low, self.wanted = low, wanted
        self.dims, self.pitch = _tile(value.layout, wanted)
        self.sizes = dict(value.layout.extents)
        have = dict(wanted.extents)
        self.beyond = [d for d in self.dims if have[d] > self.sizes[d]]
        """Dimensions with padding that nobody wrote."""
        self.size = _bytes(value.dtype)
        self.base = own_scratch(low)
        self.count = _run_length(wanted, self.dims, self.pitch, self.size, self.sizes[self.dims[-1]])

    def cells(self, first: int) -> list[Cell]:
        """`count` elements from element `first` on, a multiple of `count`."""
        b, wanted = self.low.b, self.wanted
        address = _address(self.low, wanted, self.dims, self.pitch, self.size, first)
        inside = b.true
        for d in self.beyond:
            where = total(b, [lane_coordinate(b, wanted, d), wanted.coords(first)[d]])
            where = b.i32(where) if isinstance(where, int) else where
            inside = b.pand(inside, b.cmp("slt", where, self.sizes[d]))
        if self.beyond:
            address = b.select(inside, b.i32(address) if isinstance(address, int) else address, b.i32(0))
        got = b.load_shared(total(b, [self.base, address]), bytes=self.size * self.count, buffer=SCRATCH)
        found = [_unpacked(b, got, i, self.size) for i in range(self.count)]
        return [tuple(b.select(inside, w, b.zero(w.type)) for w in c) for c in found] if self.beyond else found


def order(low: Lowering) -> None:
    """What lanes of a wave wrote before is there, what they read before is read. Waves do not wait for each other: a
    warpgroup that has its turn to start products (`ring_loops`) would wait for one that waits for its turn."""
    if not low.target.lockstep:
        low.b.wave_barrier()


def _tile(source: Layout, wanted: Layout) -> tuple[tuple[str, ...], dict[str, int]]:
    """Dimensions and their pitch in elements; rows have an odd number of extra words so that columns spread over
    banks."""
    dims = source.dims
    sizes = {d: max(dict(source.extents)[d], dict(wanted.extents)[d]) for d in dims}
    pitch, step = {}, 1
    for i, d in enumerate(reversed(dims)):
        pitch[d] = step
        step *= sizes[d] + (4 if i == 0 and len(dims) > 1 else 0)
    return dims, pitch


def tile_bytes(source: Layout, wanted: Layout, dtype: DType) -> int:
    dims, pitch = _tile(source, wanted)
    whole = prod(max(dict(source.extents)[d], dict(wanted.extents)[d]) for d in dims[:1]) * pitch[dims[0]]
    return -(-whole * _bytes(dtype) // 16) * 16


def _run_length(layout: Layout, dims: Sequence[str], pitch: dict[str, int], size: int, end: int = 0) -> int:
    """Elements of a lane that are neighbours in the tile, up to 16 bytes (and at least 4-byte aligned runs). `end`: of
    each row so many elements were written, and no run has some of these and some of the padding behind them."""
    offsets = layout.element_offsets()
    if size * 2 > 16 or layout.elements_per_lane == 1:
        return 1
    axis = {d: layout.dims.index(d) for d in dims}
    inner = dims[-1]
    lanes = layout.lane_columns(inner)
    linear = [sum(o[axis[d]] * pitch[d] for d in dims) for o in offsets]
    most = 1
    while most * 2 * size <= 16 and len(offsets) % (most * 2) == 0:
        n = most * 2
        runs = all(linear[i + j] == linear[i] + j for i in range(0, len(linear), n) for j in range(n))
        even = all(linear[i] % n == 0 for i in range(0, len(linear), n)) and all(c % n == 0 for c in lanes)
        if not runs or not even or any(pitch[d] % n for d in dims[:-1]) or dict(layout.extents)[inner] % n:
            break
        if end % n:
            break
        most = n
    return most


def _address(low: Lowering, layout: Layout, dims: Sequence[str], pitch: dict[str, int], size: int, element: int) -> Any:
    b = low.b
    lane = [scaled(b, lane_coordinate(b, layout, d), pitch[d] * size) for d in dims]
    offsets = layout.coords(element)
    return total(b, [*lane, sum(offsets[d] * pitch[d] for d in dims) * size])


# ---- bits ------------------------------------------------------------------------------------------------------------


def _bytes(dtype: DType) -> int:
    """Bytes of one element in the scratch buffer."""
    return 4 if dtype is dt.i1 else max(1, dtype.slot // 8)


def _raw(b: Any, value: Fragment, element: int) -> Value:
    """The bits of one narrow element in the low bits of an i32."""
    per, bits = per_register(value.dtype), value.dtype.slot
    word = b.bitcast(value.words(b)[element // per], I32)
    return b.and_(b.lshr(word, element % per * bits), (1 << bits) - 1)


def _join(raw: Sequence[Value], dtype: DType, low: Lowering) -> Value:
    """One i32 of packed elements."""
    b = low.b
    word = raw[0]
    for j, number in enumerate(raw[1:], 1):
        word = b.or_(word, b.shl(number, j * dtype.slot))
    return word


def _words(b: Any, value: Fragment) -> list[Cell]:
    return [cells_of(b, w) for w in value.words(b)]


def _cell(b: Any, value: Fragment, element: int) -> Cell:
    return cells_of(b, value.words(b)[element])


def _packed(b: Any, parts: Sequence[Any], size: int) -> Value:
    """Neighbouring elements as the words that are stored."""
    if size >= 4:
        words = [b.bitcast(w, B32) if w.type is not B32 else w for c in parts for w in c]
    else:
        per = 4 // size
        words = []
        for i in range(0, len(parts), per):
            word = parts[i]
            for j, number in enumerate(parts[i + 1 : i + per], 1):
                word = b.or_(word, b.shl(number, j * size * 8))
            words.append(b.bitcast(word, B32))
    return b.vec(*words) if len(words) > 1 else words[0]


def _unpacked(b: Any, got: Value, index: int, size: int) -> Cell:
    """Element `index` of a loaded run: 32-bit words, or the raw bits of a narrow element."""
    if size >= 4:
        n = size // 4
        return tuple(b.slice(got, index * n + j) if got.type.n > 1 else got for j in range(n))
    per = 4 // size
    word = b.slice(got, index // per) if got.type.n > 1 else got
    return (b.and_(b.lshr(b.bitcast(word, I32), index % per * size * 8), (1 << size * 8) - 1),)
