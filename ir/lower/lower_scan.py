"""Running reductions along a dimension: `cumsum` and `scan`, from the start or, reversed, from the end.

The coordinate's bits are taken from the lowest up. Below bit k every block of 2^k neighbours has been scanned, and its
total is known. A register bit puts two blocks of one lane together; a lane bit exchanges totals with the partner lane,
whose total comes first where this lane has the bit set (nobody asks which is first where that makes no difference).
What has come from other lanes waits beside a block and is joined to its elements once, at the end. Register digits
follow one after the other, then waves, through shared memory. Reversed, the partner comes first where this lane has the
bit clear, and blocks and waves follow from the last; what lies beyond the end is the identity then.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.errors import CompileError
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.bits import kind_of, number_of
from wavedsl.ir.layouts.fragment import Fragment, from_elements
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower import across_waves
from wavedsl.ir.lower.exchange import convert
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
class _Block:
    """Neighbours along the dimension. `parts`: elements scanned among themselves, and what comes before all of them."""

    parts: list[tuple[list[tuple[int, Cell]], Cell | None]]
    total: Cell


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
    axis = own.dims.index(d)
    rows: dict[tuple[int, ...], dict[int, tuple[int, Cell]]] = {}
    for i, offsets in enumerate(own.element_offsets()):
        cell = cells[i] if inside is None else _chosen(b, inside[i], cells[i], how.neutral)
        rest = tuple(o for a, o in enumerate(offsets) if a != axis)
        rows.setdefault(rest, {})[offsets[axis]] = (i, cell)
    results: dict[int, Cell] = {}
    bits = _bits(own, d, n)
    joined = _either_way(b, how.join)
    lines = [_scan_line(low, row, bits, how.join, joined, how.neutral, reverse) for row in rows.values()]
    before: list[Cell | None] = [None] * len(lines)
    if plan.waves > 1:
        before = _across_waves(low, d, [line.total for line in lines], how.join, how.neutral, reverse)
    for line, first in zip(lines, before):
        for elements, ahead in line.parts:
            ahead = first if ahead is None else ahead if first is None else how.join(first, ahead)
            for i, cell in elements:
                results[i] = how.finish(cell if ahead is None else how.join(ahead, cell))
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


def _scan_line(
    low: Lowering, row: dict[int, tuple[int, Cell]], bits: list[tuple[str, int]], join: Join,
    joined: Callable[[Value, Cell, Cell], Cell], identity: Cell, reverse: bool,
) -> _Block:  # fmt: skip
    """One line of elements along the dimension, by offset."""
    b = low.b
    run = next((k for k, (kind, _) in enumerate(bits) if kind == "l"), len(bits))
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
    for k, (kind, number) in list(enumerate(bits))[run:]:
        if kind == "l":
            mine = b.cmp("eq" if reverse else "ne", b.and_(b.lane(), 1 << number), 0)
            for block in blocks.values():
                other = tuple(shuffled(low, v, 1 << number) for v in block.total)
                block.total = joined(mine, other, block.total)
                block.parts = [
                    (elements, _chosen(b, mine, other, identity) if ahead is None
                     else _chosen(b, mine, join(other, ahead), ahead))
                    for elements, ahead in block.parts
                ]  # fmt: skip
            continue
        for offset in [o for o in sorted(blocks) if not o >> k & 1]:
            pair = blocks[offset], blocks.pop(offset | 1 << k)
            first, second = reversed(pair) if reverse else pair
            blocks[offset] = _follow(first, second, join)
    line: _Block | None = None
    for offset in sorted(blocks, reverse=reverse):
        line = blocks[offset] if line is None else _follow(line, blocks[offset], join)
    assert line is not None
    return line


def _either_way(b: Builder, join: Join) -> Callable[[Value, Cell, Cell], Cell]:
    """What joins two blocks, the former of them first where a lane says so. Of sums and the like both orders are the
    same values; of a function that once gave others it is not asked again."""
    ordered = False

    def joined(mine: Value, x: Cell, y: Cell) -> Cell:
        nonlocal ordered
        if not ordered:
            found = join(x, y)
            if all(p is q for p, q in zip(found, join(y, x))):
                return found
            ordered = True
        return join(_chosen(b, mine, x, y), _chosen(b, mine, y, x))

    return joined


def _follow(first: _Block, second: _Block, join: Join) -> _Block:
    """Two blocks of one lane, one after the other."""
    moved: list[tuple[list[tuple[int, Cell]], Cell | None]] = [
        (elements, first.total if ahead is None else join(first.total, ahead)) for elements, ahead in second.parts
    ]
    return _Block(first.parts + moved, join(first.total, second.total))


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
