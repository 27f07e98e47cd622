"""Sorting along a dimension, and the k largest: a bitonic network over the bits of the coordinate.

A step compares each element with the one whose coordinate differs in the bits of a mask, the highest of which decides
who keeps the smaller. Register bits cost comparisons only, lane bits one exchange. Elements travel as cells: an
ordering key, for top-k also the index; where both fit one word they share it.

The k largest do not need the rest in order. Runs of 2^w >= k elements are sorted, then two runs at a time become one:
of each element of one and its mirror image in the other the better one stays. These are the better half of both as a
bitonic run, which w steps put in order. Runs in the same lane meet first: there is less to exchange between lanes then.

The network is written out in full and its cells stay in registers, so it has an end: MOST_STEPS and MOST_WORDS.
"""

from __future__ import annotations

from collections.abc import Callable

from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.functions.order_keys import HIGHEST, LOWEST, element_key, from_key, highest_key, key_type, lowest_key
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.inference.row_layout import drivers, leading_layout
from wavedsl.ir.kernel.kernel_ir import I32, Value
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
    """What steers the steps: (kind, number) per coordinate bit, and whether a first cell belongs after a second."""

    low: Lowering
    bits: list[tuple[str, int]]
    after: Callable[[Cell, Cell], Value]

    def sort(self, row: Row, width: int | None = None) -> None:
        """The whole row, or each run of 2^width elements."""
        for k in range(len(self.bits) if width is None else width):
            self.step(row, (2 << k) - 1)
            for j in reversed(range(k)):
                self.step(row, 1 << j)

    def first(self, row: Row, width: int) -> None:
        """The first 2^width elements of the row in order; those behind them are dropped from the registers."""
        self.sort(row, width)
        above = range(width, len(self.bits))
        for k in sorted(above, key=lambda k: self.bits[k][0] == "l"):
            self.meet(row, k, width)
            for j in reversed(range(width)):
                self.step(row, 1 << j)

    def steps(self, width: int | None = None) -> int:
        """Comparisons per lane and row."""
        cells = 1 << sum(kind != "l" for kind, _ in self.bits)
        if width is None:
            return cells * len(self.bits) * (len(self.bits) + 1) // 2
        count = cells * width * (width + 1) // 2
        for kind, _ in sorted(self.bits[width:], key=lambda bit: bit[0] == "l"):
            cells = cells if kind == "l" else cells // 2
            count += cells * (width + 1)
        return count

    def meet(self, row: Row, bit: int, width: int) -> None:
        """Of two sorted runs, whose coordinates differ in `bit`, the 2^width elements that come first, not in order."""
        mask = 1 << bit | (1 << width) - 1
        lanes, registers = self.parts(mask)
        here = list(row) if self.bits[bit][0] == "l" else [o for o in row if not o >> bit & 1]
        new: Row = {}
        for o in here:
            mine, other = row[o], row[o ^ registers]
            if lanes:
                other = tuple(shuffled(self.low, v, lanes) for v in other)
            swap = self.after(mine, other)
            new[o] = tuple(self.low.b.select(swap, q, p) for p, q in zip(mine, other))
        row.clear()
        row.update(new)

    def parts(self, mask: int) -> tuple[int, int]:
        """The bits of a coordinate's mask that are bits of the lane, and those that are bits of the offset."""
        lanes = sum(1 << number for k, (kind, number) in enumerate(self.bits) if kind == "l" and mask >> k & 1)
        return lanes, sum(1 << k for k, (kind, _) in enumerate(self.bits) if kind != "l" and mask >> k & 1)

    def step(self, row: Row, mask: int) -> None:
        """Order each cell and the one at coordinate ^ mask."""
        b = self.low.b
        lanes, registers = self.parts(mask)
        top = mask.bit_length() - 1
        kind, number = self.bits[top]
        new: Row = {}
        if not lanes:
            for o in row:
                if not o >> top & 1:
                    x, y = row[o], row[o ^ registers]
                    swap = self.after(x, y)
                    new[o] = tuple(b.select(swap, q, p) for p, q in zip(x, y))
                    new[o ^ registers] = tuple(b.select(swap, p, q) for p, q in zip(x, y))
            row.update(new)
            return
        upper = b.cmp("ne", b.and_(b.lane(), 1 << number), 0) if kind == "l" else None
        for o, mine in row.items():
            other = tuple(shuffled(self.low, v, lanes) for v in row[o ^ registers])
            take = self.after(mine, other)
            if upper is not None:
                take = b.pxor(take, upper)
            elif o >> top & 1:
                take = b.pnot(take)
            new[o] = tuple(b.select(take, q, p) for p, q in zip(mine, other))
        row.update(new)


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
    network = _Network(low, bits, lambda x, y: b.cmp("slt" if down else "sgt", x[0], y[0]))
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


@emitter("topk")
def emit_topk(low: Lowering, n: Node, layout: Layout | None, context: Context) -> tuple[Fragment, Fragment]:
    """The first k of each row in descending order, in every lane that held one of the row."""
    b, d, k = low.b, str(n.attrs["dim"]), str(n.attrs["k"])
    dtype: DType = n.inputs[0].dtype
    value = operand(low, n, 0, context)
    row = value.layout
    inside = _masks(low, value, d, context)
    places = index_elements(low, row, d, context)
    short = short_keys(dtype, low.plans[d].extent)
    cells: list[Cell] = []
    for i in range(row.elements_per_lane):
        key = element_key(b, value, i, LOWEST)
        if short:
            cell: Cell = (b.or_(b.shl(key, 16), b.sub(0xFFFF, places[i])),)
            none: Cell = (b.const(-(1 << 31), I32),)
        else:
            cell = key, places[i]
            none = b.const(lowest_key(dtype), key_type(dtype)), b.const(MOST_INDEX, I32)
        cells.append(cell if inside is None else tuple(b.select(inside[i], x, y) for x, y in zip(cell, none)))
    rows, bits, axis = _rows(low, n, value, cells)

    def after(x: Cell, y: Cell) -> Value:
        if short:
            return b.cmp("slt", x[0], y[0])
        return b.por(b.cmp("slt", x[0], y[0]), b.pand(b.cmp("eq", x[0], y[0]), b.cmp("sgt", x[1], y[1])))

    network = _Network(low, bits, after)
    first = leading_layout(row, d, k, low.plans[k].tile)
    width = first.inner.width(k)
    _fits(n, network, rows[0], width)
    for line in rows:
        network.first(line, width)  # lanes whose coordinates differ above the width have the same
    ordered = _ordered(row, rows, axis)
    values, indices = [], []
    names = [k if x == d else x for x in row.dims]
    for offsets in first.reorder(names).element_offsets():
        cell = ordered[offsets]
        if short:
            empty = b.cmp("eq", cell[0], b.const(-(1 << 31), I32))
            key, place = b.ashr(cell[0], 16), b.sub(0xFFFF, b.and_(cell[0], 0xFFFF))
        else:
            key, place = cell
            empty = b.cmp("eq", place, MOST_INDEX)
        number = from_key(b, key, dtype)
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
