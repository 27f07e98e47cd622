"""Sorting along a dimension, and the k largest: a network over the bits of the coordinate.

A step compares each element with the one whose coordinate differs in the bits of a mask, the highest of which decides
who keeps the smaller. Register bits cost comparisons only, lane bits one exchange. What lies in a lane's registers is
sorted by Batcher's odd-even merges, the rest by bitonic ones. Elements travel as cells: an ordering key, for top-k also
the index; where both fit one word they share it, and the larger and the smaller of two need no comparison.

The k largest do not need the rest in order. Runs of 2^w >= k elements are sorted, then two runs at a time become one:
of each element of one and its mirror image in the other the better one stays. These are the better half of both as a
bitonic run, which w steps put in order. Runs in the same lane meet first: there is less to exchange between lanes then.
Where runs of two lanes meet, each keeps half of what stays, until all have one element; at the end every lane fetches
those that the layout of the result gives it. As cells carry their index, the network is free to count register bits
before lane bits, whatever the order in memory.

The network is written out in full and its cells stay in registers, so it has an end: MOST_STEPS and MOST_WORDS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.functions.order_keys import HIGHEST, LOWEST, element_key, from_key, highest_key, key_type, lowest_key
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.inference.row_layout import drivers, leading_layout
from wavedsl.ir.kernel.kernel_ir import B32, F64, I32, Value, vector
from wavedsl.ir.layouts.fragment import Fragment, from_elements, scalar_type
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.exchange import convert
from wavedsl.ir.lower.lower_reduce import (
    MOST_INDEX,
    Cell,
    constant,
    extreme,
    short_keys,
    shuffled,
    shuffled_index,
    within_workgroup,
)
from wavedsl.ir.lower.lower_values import emitter, index_elements, inside_masks, operand
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import Context

MOST_STEPS = 5000
"""Comparisons per lane and row that a network may have: about 30 000 instructions, and seconds of compile time."""

MOST_WORDS = 255
"""Words of 4 bytes that the cells of a row may take in a lane; with more, most of them would be spilled."""

Row = dict[int, Cell]
"""Cells of one lane by offset along the dimension."""


@dataclass
class _Network:
    """What steers the steps: what drives each coordinate bit, and whether a first cell belongs after a second; where
    one instruction gives the larger of two cells, also whether that one comes first.

    A lane bit's driver is a pair of masks: lanes that differ by `flips` differ in this bit of the coordinate alone,
    which is the parity of the lane's bits in `reads`. A register bit has none: it is this bit of the offset.
    """

    low: Lowering
    bits: list[tuple[str, int]]
    after: Callable[[Cell, Cell], Value]
    larger_first: bool | None = None
    spread: int = 0
    """Lanes over which the k largest are spread that every lane had before."""

    def __post_init__(self) -> None:
        self.flips = [1 << number if kind == "l" else 0 for kind, number in self.bits]
        self.reads = list(self.flips)

    def sort(self, row: Row, width: int | None = None) -> None:
        """The whole row, or each run of 2^width elements."""
        width = len(self.bits) if width is None else width
        own = self.own(width)
        for x, y in odd_even(own):
            for o in [o for o in row if o & (1 << own) - 1 == x]:
                self.order(row, o, o ^ x ^ y)
        for k in range(own, width):
            self.step(row, (2 << k) - 1)
            for j in reversed(range(k)):
                self.step(row, 1 << j)

    def own(self, width: int) -> int:
        """How many of the lowest coordinate bits, at most `width`, are register bits."""
        return next((k for k in range(width) if self.flips[k]), width)

    def first(self, row: Row, width: int) -> None:
        """The first 2^width elements of the row in order; those behind them are dropped from the registers."""
        self.sort(row, width)
        for k in sorted(range(width, len(self.bits)), key=lambda k: bool(self.flips[k])):
            self.meet(row, k, width)

    def steps(self, width: int | None = None) -> int:
        """Comparisons per lane and row."""
        cells = 1 << sum(kind != "l" for kind, _ in self.bits)
        count, width = cells, len(self.bits) if width is None else width
        own = self.own(width)
        count = (cells >> own) * len(odd_even(own)) + cells * sum(k + 1 for k in range(own, width))
        held = 1 << sum(kind != "l" for kind, _ in self.bits[:width])
        for kind, _ in sorted(self.bits[width:], key=lambda bit: bit[0] == "l"):
            cells = cells // 2 if kind != "l" or (held > 1 and cells > 1) else cells
            count += cells * (width + 1)
        return count

    def meet(self, row: Row, bit: int, width: int) -> None:
        """Of two sorted runs, whose coordinates differ in `bit`, the 2^width elements that come first, in order.

        Where lanes meet, both would have all of them. As long as a lane holds several it keeps half: those whose bit
        `half`, its highest register bit, is its own lane bit. In the upper lane that is the mirror image of what its
        registers had, so bits above `half`, all of them lane bits, count the other way round there; those below may
        stay, for what remains to be put in order is as bitonic read backwards.
        """
        lanes, registers = self.parts(1 << bit | (1 << width) - 1)
        half = next((k for k in reversed(range(width)) if not self.flips[k]), None) if self.flips[bit] else bit
        new: Row = {}
        for o in [o for o in row if half is None or not o >> half & 1]:
            new[o] = self.better(row[o], self.moved(row[o ^ registers], lanes))
        row.clear()
        row.update(new)
        if half is None or half == bit:
            half = width
        else:
            self.flips[half] = self.reads[half] = self.flips[bit]
            self.spread |= self.flips[bit]
            for k in range(half + 1, width):
                self.flips[half] ^= self.flips[k]
                self.reads[k] ^= self.flips[bit]
        for j in reversed(range(width)):
            self.step(row, (2 << j) - 1 if j == half else 1 << j)

    def gather(self, row: Row, wanted: Sequence[tuple[str, int]]) -> Row:
        """The row's cells as `wanted` drives the bits of their coordinates, and in every lane that held any of the row:
        register bits count in the offset of the result, lane bits have one number."""
        b, width = self.low.b, len(wanted)
        if not self.spread and list(wanted) == self.bits[:width]:
            return row
        own = sum(1 << number for kind, number in self.bits[:width] if kind == "l")
        among = self.spread | own
        home = b.and_(b.lane(), ~among)
        mine = {k: b.and_(b.lane(), 1 << number) for k, (kind, number) in enumerate(wanted) if kind == "l"}
        for k in mine:
            if self.flips[k]:
                home = b.xor(home, b.select(b.cmp("ne", mine[k], 0), b.const(self.flips[k], I32), b.const(0, I32)))
        new: Row = {}
        for o in range(1 << width):
            if any(o >> k & 1 for k in mine):
                continue
            found = {}
            either = [k for k in mine if not self.flips[k]]
            lane, _ = self.parts(o)
            fixed = sum(1 << k for k in range(width) if o >> k & 1 and not self.flips[k])
            for way in range(1 << len(either)):
                at = fixed | sum(1 << k for i, k in enumerate(either) if way >> i & 1)
                found[way] = tuple(shuffled_index(self.low, v, b.xor(home, lane), among) for v in row[at])
            for i in reversed(range(len(either))):
                set_ = b.cmp("ne", mine[either[i]], 0)
                for way in range(1 << i):
                    found[way] = tuple(b.select(set_, y, x) for x, y in zip(found[way], found[way | 1 << i]))
            new[o] = found[0]
        return new

    def parts(self, mask: int) -> tuple[int, int]:
        """What the bits of a coordinate's mask are in the lane, and those that are bits of the offset."""
        lanes = registers = 0
        for k, flips in enumerate(self.flips):
            if mask >> k & 1:
                lanes ^= flips
                registers |= 0 if flips else 1 << k
        return lanes, registers

    def moved(self, cell: Cell, lanes: int) -> Cell:
        return tuple(shuffled(self.low, v, lanes) for v in cell) if lanes else cell

    def better(self, x: Cell, y: Cell) -> Cell:
        """The one of both that comes first."""
        b = self.low.b
        if self.larger_first is not None:
            return (self.extreme(x, y, self.larger_first),)
        swap = self.after(x, y)
        return tuple(b.select(swap, q, p) for p, q in zip(x, y))

    def extreme(self, x: Cell, y: Cell, larger: bool) -> Value:
        b = self.low.b
        if x[0].type is F64:
            return (b.fmax if larger else b.fmin)(x[0], y[0])
        return (b.max_s if larger else b.min_s)(x[0], y[0])

    def order(self, row: Row, first: int, second: int) -> None:
        """Two cells of one lane in order."""
        b, x, y = self.low.b, row[first], row[second]
        if self.larger_first is not None:
            row[first], row[second] = self.better(x, y), (self.extreme(x, y, not self.larger_first),)
            return
        swap = self.after(x, y)
        row[first] = tuple(b.select(swap, q, p) for p, q in zip(x, y))
        row[second] = tuple(b.select(swap, p, q) for p, q in zip(x, y))

    def step(self, row: Row, mask: int) -> None:
        """Order each cell and the one at coordinate ^ mask."""
        b = self.low.b
        lanes, registers = self.parts(mask)
        top = mask.bit_length() - 1
        if not lanes:
            for o in [o for o in row if not o >> top & 1]:
                self.order(row, o, o ^ registers)
            return
        upper = self.upper(top) if self.flips[top] else None
        new: Row = {}
        for o, mine in row.items():
            other = self.moved(row[o ^ registers], lanes)
            take = self.after(mine, other)
            if upper is not None:
                take = b.pxor(take, upper)
            elif o >> top & 1:
                take = b.pnot(take)
            new[o] = tuple(b.select(take, q, p) for p, q in zip(mine, other))
        row.update(new)

    def upper(self, bit: int) -> Value:
        """Whether a lane's coordinate has this bit."""
        b, reads = self.low.b, self.reads[bit]
        at = b.and_(b.lane(), reads)
        return b.cmp("ne", at if not reads & (reads - 1) else b.and_(b.popcount(at), 1), 0)


def odd_even(width: int) -> list[tuple[int, int]]:
    """Batcher's odd-even merge sort of 2^width places: pairs to be put in order, a fifth fewer than a bitonic sort."""
    pairs = []
    for k in range(width):
        for j in reversed(range(k + 1)):
            for x in range(0, (1 << width) - (1 << j)):
                far = x ^ 1 << j if j == k else x + (1 << j)
                inside = x >> (k + 1) == far >> (k + 1)
                if inside and (not x >> j & 1 if j == k else x >> j & 1):
                    pairs.append((x, far))
    return pairs


def _rows(low: Lowering, n: Node, value: Fragment, cells: list[Cell]) -> tuple[list[Row], list[tuple[str, int]], int]:
    """Cells by line and offset, the bits of the coordinate, the axis."""
    d = str(n.attrs["dim"])
    layout = value.layout
    within_workgroup(low, n, d)
    if low.plans[d].waves > 1:
        raise CompileError(
            f"{n.op} along {d}, which several waves share", n.loc, f"wd.WaveConstraint({d}, {low.plans[d].tile})"
        )
    bits = drivers(layout, d)
    assert bits is not None, "inference asks for a row"
    axis = layout.dims.index(d)
    lines: dict[tuple[int, ...], Row] = {}
    for i, offsets in enumerate(layout.element_offsets()):
        rest = tuple(o for a, o in enumerate(offsets) if a != axis)
        lines.setdefault(rest, {})[offsets[axis]] = cells[i]
    return list(lines.values()), bits, axis


def _masks(low: Lowering, value: Fragment, d: str, context: Context) -> list[Value] | None:
    plan = low.plans[d]
    if plan.ragged or dict(value.layout.extents)[d] > plan.wave:
        return inside_masks(low, value.layout, d, context)
    return None


@emitter("sort")
def emit_sort(low: Lowering, n: Node, layout: Layout, context: Context) -> Fragment:
    b, d, dtype = low.b, str(n.attrs["dim"]), n.dtype
    value = operand(low, n, 0, context)
    inside = _masks(low, value, d, context)
    down = n.attrs["descending"]
    last = b.const(lowest_key(dtype) if down else highest_key(dtype), key_type(dtype))
    cells: list[Cell] = []
    for i in range(value.layout.elements_per_lane):
        key = element_key(b, value, i, HIGHEST, signed_zero=True)
        cells.append((key if inside is None else b.select(inside[i], key, last),))
    rows, bits, axis = _rows(low, n, value, cells)
    words = down if key_type(dtype) is I32 else None
    network = _Network(low, bits, lambda x, y: b.cmp("slt" if down else "sgt", x[0], y[0]), words)
    _fits(n, network, rows[0])
    for row in rows:
        network.sort(row)
    out = list(_ordered(value.layout, rows, axis).values())
    found = from_elements(b, value.layout, dtype, [from_key(b, c[0], dtype, signed_zero=True) for c in out])
    return found if same_layout(value.layout, layout) else convert(low, found, layout)


def _ordered(layout: Layout, rows: list[Row], axis: int) -> dict[tuple[int, ...], Cell]:
    """The cells that the rows have left, by the offsets of the layout's elements and in their order."""
    lines: dict[tuple[int, ...], Row] = {}
    it = iter(rows)
    out: dict[tuple[int, ...], Cell] = {}
    for offsets in layout.element_offsets():
        rest = tuple(o for a, o in enumerate(offsets) if a != axis)
        if rest not in lines:
            lines[rest] = next(it)
        if offsets[axis] in lines[rest]:
            out[offsets] = lines[rest][offsets[axis]]
    return out


def _fits(n: Node, network: _Network, row: Row, width: int | None = None) -> None:
    """Refuse what would take long to compile and be spilled for the most part."""
    words = sum(v.type.words for cell in row.values() for v in cell)
    steps = network.steps(width)
    if steps <= MOST_STEPS and words <= MOST_WORDS:
        return
    d = str(n.attrs["dim"])
    cut = f"cut the row: an array [..., {d} / 1024, 1024] of parts, each in a wave of its own, {n.op} of each part"
    raise CompileError(
        f"{n.op} along {d}: a row padded to {1 << len(network.bits)} elements takes {words} registers and {steps} "
        f"comparisons in each lane of a wave; at most {MOST_WORDS} and {MOST_STEPS}",
        n.loc,
        cut + (", then topk of what all parts found" if n.op == "topk" else ", then merge"),
    )


@dataclass
class _Form:
    """What top-k's cells are: how one is made, what stands for no element, whether one belongs after another, and the
    number, the place and whether there is none. `one`: a value of which an instruction gives the larger of two."""

    cell: Callable[[Fragment, int, Value], Cell]
    none: Cell
    after: Callable[[Cell, Cell], Value]
    parts: Callable[[Cell], tuple[Value, Value, Value]]
    one: bool = False


def _form(low: Lowering, dtype: DType, extent: int | None) -> _Form:
    b = low.b
    if short_keys(dtype, extent):
        least = b.const(-(1 << 31), I32)

        def short(value: Fragment, i: int, place: Value) -> Cell:
            return (b.or_(b.shl(element_key(b, value, i, LOWEST), 16), b.sub(0xFFFF, place)),)

        def of_short(cell: Cell) -> tuple[Value, Value, Value]:
            place = b.sub(0xFFFF, b.and_(cell[0], 0xFFFF))
            return from_key(b, b.ashr(cell[0], 16), dtype), place, b.cmp("eq", cell[0], least)

        return _Form(short, (least,), lambda x, y: b.cmp("slt", x[0], y[0]), of_short, True)
    if dtype is dt.f32 and low.target.doubles:
        return _as_doubles(low)

    def pair(value: Fragment, i: int, place: Value) -> Cell:
        return element_key(b, value, i, LOWEST), place

    def after(x: Cell, y: Cell) -> Value:
        return b.por(b.cmp("slt", x[0], y[0]), b.pand(b.cmp("eq", x[0], y[0]), b.cmp("sgt", x[1], y[1])))

    def of_pair(cell: Cell) -> tuple[Value, Value, Value]:
        return from_key(b, cell[0], dtype), cell[1], b.cmp("eq", cell[1], MOST_INDEX)

    none = b.const(lowest_key(dtype), key_type(dtype)), b.const(MOST_INDEX, I32)
    return _Form(pair, none, after, of_pair)


def _as_doubles(low: Lowering) -> _Form:
    """The bits of an f32 as the upper word of an f64, which orders alike, the place below: complemented where the
    number is positive, so that the earlier of equals is the larger. An infinity of f32 makes a finite f64; a NaN is
    the lowest of those there are, and nothing lower still. -0 counts as 0.

    Where an instruction gives the larger of two, cells are such numbers, else the two words."""
    b, whole = low.b, low.target.doubles == "extremes"
    nan = -(1 << 21)

    def joined(cell: Cell) -> Value:
        return cell[0] if whole else b.bitcast(b.vec(*(b.bitcast(v, B32) for v in cell)), F64)

    def made(low_word: Value, high: Value) -> Cell:
        return (b.bitcast(b.vec(*(b.bitcast(v, B32) for v in (low_word, high))), F64),) if whole else (low_word, high)

    def words(cell: Cell) -> Cell:
        if not whole:
            return cell
        pair = b.bitcast(cell[0], vector(2))
        return tuple(b.bitcast(b.slice(pair, i), I32) for i in range(2))

    def cell(value: Fragment, i: int, place: Value) -> Cell:
        bits = b.bitcast(value.element(b, i), I32)
        high = b.select(b.cmp("eq", bits, b.const(-(1 << 31), I32)), b.const(0, I32), bits)
        high = b.select(b.cmp("sgt", b.and_(bits, 0x7FFFFFFF), 0x7F800000), b.const(nan, I32), high)
        return made(b.xor(b.not_(b.ashr(high, 31)), place), high)

    def parts(cell: Cell) -> tuple[Value, Value, Value]:
        low_word, high = words(cell)
        place = b.xor(b.not_(b.ashr(high, 31)), low_word)
        number = b.select(b.cmp("eq", high, b.const(nan, I32)), b.const(0x7FFFFFFF, I32), high)
        return b.bitcast(number, scalar_type(dt.f32)), place, b.cmp("eq", place, MOST_INDEX)

    none = made(b.const(MOST_INDEX, I32), b.const(nan, I32))
    return _Form(cell, none, lambda x, y: b.fcmp("lt", joined(x), joined(y)), parts, whole)


@emitter("topk")
def emit_topk(low: Lowering, n: Node, layout: Layout | None, context: Context) -> tuple[Fragment, Fragment]:
    """The first k of each row in descending order, in every lane that held one of the row."""
    b, d, k = low.b, str(n.attrs["dim"]), str(n.attrs["k"])
    dtype: DType = n.inputs[0].dtype
    value = operand(low, n, 0, context)
    row = value.layout
    inside = _masks(low, value, d, context)
    places = index_elements(low, row, d, context)
    form = _form(low, dtype, low.plans[d].extent)
    cells = [form.cell(value, i, places[i]) for i in range(row.elements_per_lane)]
    if inside is not None:
        cells = [tuple(b.select(i, x, y) for x, y in zip(cell, form.none)) for i, cell in zip(inside, cells)]
    rows, bits, axis = _rows(low, n, value, cells)

    first = leading_layout(row, d, k, low.plans[k].tile)
    width = first.inner.width(k)
    order = sorted(range(len(bits)), key=lambda k: bits[k][0] == "l")
    networks = [_Network(low, [bits[k] for k in x], form.after) for x in (order, range(len(bits)))]
    moves = 1 << sum(kind != "l" for kind, _ in bits[:width])
    if networks[0].steps(width) + moves >= networks[1].steps(width):
        order = list(range(len(bits)))
    for i, line in enumerate(rows):
        network = _Network(low, [bits[k] for k in order], form.after, True if form.one else None)
        _fits(n, network, line, width)
        line = {sum((o >> k & 1) << at for at, k in enumerate(order)): cell for o, cell in line.items()}
        network.first(line, width)
        rows[i] = network.gather(line, bits[:width])
    ordered = _ordered(row, rows, axis)
    values, indices = [], []
    names = [k if x == d else x for x in row.dims]
    for offsets in first.reorder(names).element_offsets():
        cell = ordered[offsets]
        number, place, empty = form.parts(cell)
        nothing = constant(b, extreme("max", dtype), dtype)
        values.append(b.select(empty, nothing, number) if inside is not None else number)
        indices.append(b.select(empty, b.const(-1, I32), place) if inside is not None else place)
    kind = scalar_type(dtype)
    assert all(v.type is kind for v in values)
    first = first.reorder(names)
    index_dtype = n.type[1].dtype  # type: ignore[index]
    return from_elements(b, first, dtype, values), from_elements(b, first, index_dtype, indices)


@emitter("result")
def emit_result(low: Lowering, n: Node, layout: Layout, context: Context) -> Fragment:
    """One of the values of a node that gives several."""
    found: Fragment = context.env["v", n.inputs[0].id][n.attrs["position"]]
    return found if same_layout(found.layout, layout) else convert(low, found, layout)


__all__ = ["emit_sort", "emit_topk"]
