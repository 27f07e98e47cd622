"""`extract` and `shuffle` along a dimension that waves share: elements that other waves hold, through shared memory.

In: a value whose waves each have a part of the dimension. Out: what each lane asks for. The one idea: every wave leaves
its words where all find them, at its own number, between two barriers of the workgroup. Whose lane and register is
known (`index ^ mask`, one element for all) leaves them lane by lane; else each element lies at its number in its wave's
tile, and the index says in whose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from wavedsl.ir.addresses.access import below
from wavedsl.ir.addresses.coordinates import lane_coordinate, scaled, total
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.kernel.kernel_ir import B32, PRED, Value
from wavedsl.ir.layouts.fragment import Fragment, from_elements, from_words, scalar_type
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.cells import cells_of, from_cell, number_from
from wavedsl.ir.lower.lowering import Lowering

VECTOR = 4
"""Words that a lane leaves, and takes, at a time."""


def of_wave(low: Lowering, value: Fragment, dim: str, owner: Callable[[Value], Any]) -> Fragment:
    """The value as the same lane of another wave along `dim` holds it: of the one that `owner` gives for the own one's
    number along `dim`."""
    b, lanes = low.b, value.layout.lanes
    cells = [cells_of(b, w) for w in value.words(b)]
    flat = [b.bitcast(c, B32) for cell in cells for c in cell]
    pieces = [flat[i : i + VECTOR] for i in range(0, len(flat), VECTOR)]
    first, divisor = low.waves_along(dim)
    other = total(b, [first, scaled(b, owner(low.digit(dim)), divisor)])
    home = low.room.meeting.next()

    def place(i: int, wave: Any) -> Any:
        lane = scaled(b, b.lane(), 4 * len(pieces[i]))
        return total(b, [home, lane, scaled(b, wave, 4 * lanes * len(flat)), i * VECTOR * 4 * lanes])

    b.barrier()  # readers of what was there before are done
    for i, piece in enumerate(pieces):
        data = b.vec(*piece) if len(piece) > 1 else piece[0]
        b.store_shared(place(i, b.wave()), data, bytes=4 * len(piece), buffer=low.room.meeting.buffer)
    b.barrier()
    got: list[Value] = []
    for i, piece in enumerate(pieces):
        word = b.load_shared(place(i, other), bytes=4 * len(piece), buffer=low.room.meeting.buffer)
        got += b.elements(word) if len(piece) > 1 else [word]
    words = []
    for cell in cells:
        words.append(from_cell(b, tuple(got[: len(cell)]), value.dtype))
        got = got[len(cell) :]
    return from_words(b, value.layout, value.dtype, words)


def between_waves(
    low: Lowering, n: Node, value: Fragment, layout: Layout, dim: str, extent: Any, wanted: Sequence[Any]
) -> Fragment:
    """Every element that `wanted` names along `dim`, from whichever wave has it."""
    b, source, plan = low.b, value.layout, low.plans[dim]
    kind = scalar_type(value.dtype)
    words = 1 if kind is PRED else kind.words
    sizes = dict(source.extents)
    strides, step = {}, words * 4
    for d in reversed(source.dims):
        strides[d] = step
        step *= sizes[d]
    share = -(-prod(sizes.values()) * words * 4 // 16) * 16
    first, divisor = low.waves_along(dim)
    lanes = [scaled(b, lane_coordinate(b, source, d), strides[d]) for d in source.dims]
    home = low.room.meeting.next()
    own = total(b, [home, scaled(b, b.wave(), share), *lanes])
    b.barrier()  # readers of what was there before are done
    for e, offsets in enumerate(source.element_offsets()):
        at = total(b, [own, sum(o * strides[d] for d, o in zip(source.dims, offsets))])
        cell = [b.bitcast(w, B32) if w.type is not B32 else w for w in cells_of(b, value.element(b, e))]
        data = b.vec(*cell) if len(cell) > 1 else cell[0]
        b.store_shared(at, data, bytes=4 * words, buffer=low.room.meeting.buffer)
    b.barrier()
    kept = [d for d in layout.dims if d in strides and d != dim]
    coordinates = {d: lane_coordinate(b, layout, d) for d in kept}
    base = total(b, [home, *(scaled(b, coordinates[d], strides[d]) for d in kept)])
    longer = [d for d in kept if dict(layout.extents)[d] > sizes[d]]
    chosen: dict[Any, tuple[Value, Value]] = {}
    starts: dict[Any, tuple[Any, int]] = {}
    """What elements that ask for the same index have in common: whether it is one, and which element stands for it;
    where that one lies, but for the other dimensions."""
    out = []
    for offsets, asked in zip(layout.element_offsets(), wanted):
        at = dict(zip(layout.dims, offsets))
        if asked not in chosen:
            index = b.i32(asked) if isinstance(asked, int) else asked
            inside = b.cmp("ult", index, extent)
            chosen[asked] = inside, b.select(inside, index, b.i32(0))
        inside, index = chosen[asked]
        for d in longer:
            inside = b.pand(inside, below(b, coordinates[d], at[d], sizes[d]))
        if asked not in starts:
            digit = b.udiv(index, plan.wave)
            within = b.sub(index, b.mul(digit, plan.wave))
            wave = total(b, [first, scaled(b, digit, divisor)])
            terms = [base, scaled(b, wave, share), scaled(b, within, strides[dim])]
            known = sum(t for t in terms if isinstance(t, int))
            starts[asked] = total(b, [t for t in terms if not isinstance(t, int)]), known
        start, known = starts[asked]
        where = total(b, [start, known + sum(at[d] * strides[d] for d in kept)])
        safe = b.select(inside, b.i32(where) if isinstance(where, int) else where, b.i32(home))
        got = b.load_shared(safe, bytes=4 * words, buffer=low.room.meeting.buffer)
        held = tuple(b.slice(got, i) for i in range(words)) if words > 1 else (got,)
        number = number_from(b, held, value.element(b, 0))
        zero = b.pand(inside, number) if number.type is PRED else b.select(inside, number, b.zero(number.type))
        out.append(zero)
    return from_elements(b, layout, n.dtype, out)


__all__ = ["between_waves", "of_wave"]
