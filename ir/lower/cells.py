"""What moves between lanes and waves: registers as the 32-bit words that shuffles and shared memory take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.kernel_ir import I32, PRED, Value, vector
from wavedsl.ir.layouts.fragment import register_type
from wavedsl.ir.target import Target

Cell = tuple[Value, ...]
"""What moves as one: the 32-bit words of one element, or one word of packed elements."""

SIDE_BY_SIDE = 8
"""Cells that take each step of an exchange between lanes together. What another lane hands over comes after a latency
(64 clocks through AMD's LDS), which one by one each would wait for; what is on its way takes registers."""

X = TypeVar("X")


def side_by_side(target: Target, cells: Sequence[X]) -> Iterator[Sequence[X]]:
    """What takes a step together, group by group; one by one where an assembler finds the order."""
    size = 1 if target.assembler_schedules else SIDE_BY_SIDE
    return (cells[i : i + size] for i in range(0, len(cells), size))


def cells_of(b: Any, word: Value) -> Cell:
    """A register as 32-bit words that can be shuffled."""
    if word.type is PRED:
        return (b.select(word, b.i32(1), b.i32(0)),)
    if word.type.words == 2:
        pair = b.bitcast(word, vector(2))
        return (b.slice(pair, 0), b.slice(pair, 1))
    return (word,)


def number_from(b: Any, cell: Cell, like: Value) -> Value:
    """What `cells_of` gives for a number of the type of `like`, as that number."""
    if like.type is PRED:
        return b.cmp("ne", b.bitcast(cell[0], I32), 0)
    whole = b.vec(*cell) if len(cell) > 1 else cell[0]
    return whole if whole.type is like.type else b.bitcast(whole, like.type)


def from_cell(b: Any, cell: Cell, dtype: DType) -> Value:
    """A register of a value from its `cells_of`."""
    kind = register_type(dtype)
    if kind is PRED:
        return b.cmp("ne", b.bitcast(cell[0], I32), 0)
    if len(cell) == 2:
        return b.bitcast(b.vec(*cell), kind)
    return cell[0] if cell[0].type is kind else b.bitcast(cell[0], kind)
