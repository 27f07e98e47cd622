"""Running reductions along a dimension: `cumsum` and `scan`, from the start or, reversed, from the end.

The coordinate's bits are taken from the lowest up. Below bit k every block of 2^k neighbours has been scanned, and its
total is known. A register bit puts two blocks of one lane together; a lane bit exchanges totals with the partner lane,
whose total comes first where this lane has the bit set (nobody asks which is first where that makes no difference).
What has come from other lanes waits beside a block and is joined to its elements once, at the end. Register digits
follow one after the other, then waves, through shared memory. Reversed, the partner comes first where this lane has the
bit clear, and blocks and waves follow from the last; what lies beyond the end is the identity then.

INVARIANT: a function that minds the order gets the identity first, as what stands in front of the first element; of
f(x, identity) nothing is asked. So in sums of runs, pairs of a key and a sum of which the later key stays, no key need
give way. Lanes with nothing ahead take what comes to stand there as it is (`_Ahead`); where padding is summed with what
a wave hands on, elements say whether they are there (`_told`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.errors import CompileError
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import I32, Value
from wavedsl.ir.layouts.bits import kind_of, number_of
from wavedsl.ir.layouts.fragment import Fragment, from_elements
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower import across_waves
from wavedsl.ir.lower.cells import side_by_side
from wavedsl.ir.lower.exchange import convert
from wavedsl.ir.lower.identities import second_changes_nothing
from wavedsl.ir.lower.lower_reduce import (
    Cell,
    Together,
    constant,
    operands_together,
    shuffled,
    within_workgroup,
)
from wavedsl.ir.lower.lower_values import emitter, inside_masks, operand
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import Context

Join = Callable[[Cell, Cell], Cell]


@dataclass
class _Ahead:
    """What comes before some elements of a lane: `cell`, where `some` holds, and the identity elsewhere."""

    cell: Cell
    some: Value | None = None


@dataclass
class _Block:
    """Neighbours along the dimension. `parts`: elements scanned among themselves, and what comes before all of them."""

    parts: list[tuple[list[tuple[int, Cell]], _Ahead | None]]
    total: Cell


class _Joins:
    """How cells are joined, one that comes first and one that follows. Of sums and the like both orders are the same
    values: then `ordered` is False, once two blocks have been joined. `one_sided`: the identity may only come first."""

    def __init__(self, b: Builder, join: Join, one_sided: bool):
        self.b, self.join, self.one_sided, self.ordered = b, join, one_sided, False

    def either(self, mine: Value, x: Cell, y: Cell) -> Cell:
        """Two blocks, the former of them first where a lane says so. A function that once minded is not asked again."""
        if not self.ordered:
            found = self.join(x, y)
            if all(p is q for p, q in zip(found, self.join(y, x))):
                return found
            self.ordered = True
        return self.join(_chosen(self.b, mine, x, y), _chosen(self.b, mine, y, x))

    def before(self, first: Cell, ahead: _Ahead | None) -> Cell:
        """What comes before elements where `first` has come to stand in front of it all."""
        if ahead is None:
            return first
        found = self.join(first, ahead.cell)
        some = ahead.some if self.one_sided and self.ordered else None
        return found if some is None else _chosen(self.b, some, found, first)


@emitter("cumsum", "scan")
def emit_scan(low: Lowering, n: Node, layout: Layout | None, context: Context) -> Fragment | tuple[Fragment, ...]:
    """The value, or of a scan of several values as many."""
    b, d = low.b, str(n.attrs["dim"])
    within_workgroup(low, n, d)
    own, cells, how = _meaning(low, n, context)
    plan, reverse = low.plans[d], n.attrs.get("reverse", False)
    longer = dict(own.extents)[d] > plan.wave
    beyond = longer or plan.ragged if reverse else longer and plan.waves > 1
    inside = inside_masks(low, own, d, context) if beyond else None
    one_sided = n.op == "scan" and not second_changes_nothing(n.attrs["body"], n.attrs["identity"])
    within = _told(b, how) if one_sided and longer and plan.waves > 1 else how
    cells = cells if within is how else [(b.const(1, I32), *cell) for cell in cells]
    axis = own.dims.index(d)
    rows: dict[tuple[int, ...], dict[int, tuple[int, Cell]]] = {}
    for i, offsets in enumerate(own.element_offsets()):
        cell = cells[i] if inside is None else _chosen(b, inside[i], cells[i], within.neutral)
        rest = tuple(o for a, o in enumerate(offsets) if a != axis)
        rows.setdefault(rest, {})[offsets[axis]] = (i, cell)
    results: dict[int, Cell] = {}
    bits = _bits(own, d, n)
    joins = _Joins(b, within.join, one_sided)
    lines = [
        line
        for group in side_by_side(low.target, list(rows.values()))
        for line in _scan_lines(low, group, bits, joins, within.neutral, reverse)
    ]
    if within is not how:
        lines, joins.join, joins.ordered = [_untold(b, line) for line in lines], how.join, True
    before: list[Cell | None] = [None] * len(lines)
    if plan.waves > 1:
        before = _across_waves(low, d, [line.total for line in lines], how.join, how.neutral, reverse)
    for line, first in zip(lines, before):
        for elements, ahead in line.parts:
            if first is not None:
                ahead = _Ahead(joins.before(first, ahead))
            for i, cell in elements:
                results[i] = how.finish(cell if ahead is None else how.join(ahead.cell, cell))
    found = tuple(
        from_elements(b, own, x.dtype, [results[i][k] for i in range(own.elements_per_lane)])
        for k, x in enumerate(n.inputs)
    )
    if layout is None:
        return found
    return found[0] if same_layout(own, layout) else convert(low, found[0], layout)


def _meaning(low: Lowering, n: Node, context: Context) -> tuple[Layout, list[Cell], Together]:
    """The layout of what is scanned, a cell per element, and how cells are joined."""
    if n.op == "scan":
        return operands_together(low, n, context)
    b, dtype = low.b, n.dtype
    value = operand(low, n, 0, context)
    add: Any = b.fadd if dtype.is_float else b.add
    how = Together(tuple, lambda x, y: (add(x[0], y[0]),), lambda c: c, (constant(b, 0, dtype),))
    return value.layout, [(value.element(b, i),) for i in range(value.layout.elements_per_lane)], how


def _told(b: Builder, how: Together) -> Together:
    """The same of cells that first say whether there is an element: one that says no changes none on either side."""

    def join(x: Cell, y: Cell) -> Cell:
        found = how.join(x[1:], y[1:])
        there = [b.cmp("ne", c[0], 0) for c in (x, y)]
        return b.or_(x[0], y[0]), *_chosen(b, there[1], _chosen(b, there[0], found, y[1:]), x[1:])

    return Together(how.load, join, how.finish, (b.const(0, I32), *how.neutral))


def _untold(b: Builder, line: _Block) -> _Block:
    """A scanned line without what its cells say: nobody asks for an element that is not there."""
    parts: list[tuple[list[tuple[int, Cell]], _Ahead | None]] = []
    for elements, ahead in line.parts:
        before = None if ahead is None else _Ahead(ahead.cell[1:], b.cmp("ne", ahead.cell[0], 0))
        parts.append(([(i, cell[1:]) for i, cell in elements], before))
    return _Block(parts, line.total[1:])


def _chosen(b: Builder, condition: Value, x: Cell, y: Cell) -> Cell:
    return tuple(b.select(condition, p, q) for p, q in zip(x, y))


def _bits(layout: Layout, d: str, n: Node) -> list[tuple[str, int]]:
    """What drives each bit of the coordinate inside the box, from the lowest: (`l` or a register kind, its number)."""
    drivers: dict[int, tuple[str, int]] = {}
    for x, column in zip(layout.inner.ins, layout.inner.coordinate_columns(d)):
        if not column:
            continue
        if column & (column - 1) or column in drivers:
            raise CompileError(f"{n.op} along {d} in a layout that mixes its bits", n.loc)
        drivers[column] = kind_of(x), number_of(x)
    return [drivers[1 << k] for k in range(layout.inner.width(d))]


def _scan_lines(
    low: Lowering, rows: Sequence[dict[int, tuple[int, Cell]]], bits: list[tuple[str, int]], joins: _Joins,
    identity: Cell, reverse: bool,
) -> list[_Block]:  # fmt: skip
    """Some lines of elements along the dimension, each by offset: all of them take a step between lanes before one
    takes the next."""
    b = low.b
    run = next((k for k, (kind, _) in enumerate(bits) if kind == "l"), len(bits))
    lines = [_scan_runs(row, run, joins.join, reverse) for row in rows]
    for k, (kind, number) in list(enumerate(bits))[run:]:
        if kind == "l":
            mine = b.cmp("eq" if reverse else "ne", b.and_(b.lane(), 1 << number), 0)
            for group in side_by_side(low.target, [block for blocks in lines for block in blocks.values()]):
                others = [tuple(shuffled(low, v, 1 << number) for v in block.total) for block in group]
                for block, other in zip(group, others):
                    block.total = joins.either(mine, other, block.total)
                    block.parts = [(part, _also(joins, mine, other, ahead, identity)) for part, ahead in block.parts]
            continue
        for blocks in lines:
            for offset in [o for o in sorted(blocks) if not o >> k & 1]:
                pair = blocks[offset], blocks.pop(offset | 1 << k)
                first, second = reversed(pair) if reverse else pair
                blocks[offset] = _follow(first, second, joins)
    found = []
    for blocks in lines:
        ordered = [blocks[offset] for offset in sorted(blocks, reverse=reverse)]
        found.append(reduce(lambda first, second: _follow(first, second, joins), ordered))
    return found


def _scan_runs(row: dict[int, tuple[int, Cell]], run: int, join: Join, reverse: bool) -> dict[int, _Block]:
    """Neighbours of one line that a lane has, 2^`run` of them at a time, scanned among themselves; by the first one's
    offset."""
    blocks: dict[int, _Block] = {}
    for offset in sorted(row, reverse=reverse):
        i, x = row[offset]
        head = offset >> run << run
        block = blocks.get(head)
        if block is None:
            blocks[head] = _Block([([(i, x)], None)], x)
        else:
            block.total = join(block.total, x)
            block.parts[0][0].append((i, block.total))
    return blocks


def _also(joins: _Joins, mine: Value, other: Cell, ahead: _Ahead | None, identity: Cell) -> _Ahead:
    """What comes before elements where the partner's block does too, in lanes that say so."""
    b = joins.b
    if ahead is None:
        return _Ahead(_chosen(b, mine, other, identity), mine)
    some = None if ahead.some is None else b.por(ahead.some, mine)
    return _Ahead(_chosen(b, mine, joins.before(other, ahead), ahead.cell), some)


def _follow(first: _Block, second: _Block, joins: _Joins) -> _Block:
    """Two blocks of one lane, one after the other."""
    moved = [(elements, _Ahead(joins.before(first.total, ahead))) for elements, ahead in second.parts]
    return _Block([*first.parts, *moved], joins.join(first.total, second.total))


def _across_waves(
    low: Lowering, d: str, totals: list[Cell], join: Join, identity: Cell, reverse: bool
) -> list[Cell | None]:
    """Per line, the sum of what earlier waves hold; the identity in the first."""
    b = low.b
    digit = low.digit(d)
    out: list[Cell | None] = []
    for cells in across_waves.gathered(low, d, totals):
        per_wave = list(cells)
        before = identity
        running: Cell | None = None
        numbers = range(len(per_wave))
        for w, following in pairwise(numbers[::-1] if reverse else numbers):
            running = per_wave[w] if running is None else join(running, per_wave[w])
            before = _chosen(b, b.cmp("eq", digit, following), running, before)
        out.append(before)
    return out


__all__ = ["emit_scan"]
