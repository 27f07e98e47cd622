"""Stores of a warpgroup's product, as it lies in registers, to a swizzled tile in shared memory.

In: the layout of a value (`product_fragment` tells which), the tile. Out: the code of its stores, without bank
conflicts: results on their way to an array (`bulk_store`), and operands that other products read (`made_tiles`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wavedsl.ir.addresses.coordinates import combine_fields, total
from wavedsl.ir.kernel.kernel_ir import B32, I32, Value
from wavedsl.ir.layouts.bits import kind_of, number_of
from wavedsl.ir.layouts.fragment import Fragment
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.layouts.matrix_tile import MatrixTile
from wavedsl.ir.layouts.plan_addresses import lane_fields
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.quick_dataclass import dataclass

ROWS = 64
"""Rows of a matrix instruction: those of a panel, or its width where it is transposed."""
MATRIX_STORE = {False: "stmatrix.x4", True: "stmatrix.x4.trans"}
"""Whether it transposes → the matrix store that moves 16 x 16 elements of two bytes of a warp."""


def product_fragment(layout: Layout, across: str, along: str) -> bool:
    """Whether a value lies in registers as the result of a warpgroup's product, the instruction's rows along
    `across`."""
    columns = {d: layout.inner.coordinate_columns(d) for d in (across, along)}
    want = {"l0": (0, 2), "l1": (0, 4), "l2": (1, 0), "l3": (2, 0), "l4": (4, 0), "l5": (16, 0), "l6": (32, 0),
            "e0": (0, 1), "e1": (8, 0)}  # fmt: skip
    have = {
        f"{kind_of(x)}{number_of(x)}": (columns[across][i], columns[along][i]) for i, x in enumerate(layout.inner.ins)
    }
    return have == want


@dataclass(frozen=True)
class PanelForm:
    """A panel of `height` x `width` elements of `size` bytes in a tile. `across`, `along`: the dimensions of rows and
    of the contiguous columns; `transposed`: the instruction's rows lie along the latter."""

    tile: MatrixTile
    across: str
    along: str
    size: int
    height: int
    width: int
    transposed: bool = False


class PanelStores:
    """Stores of a wave's registers into a panel: 16-bit elements by a matrix store, others in pairs, or one by one
    where the panel is transposed.

    A lane's byte in the panel is its row's first byte plus its bytes in the row XOR the swizzle of the row. What an
    element adds to row and column has no bit in common with what the lane does, so swizzles are XORed as well.
    `moving`: panels start elsewhere in every trip of a loop, so that one register is kept for all places.
    """

    def __init__(self, low: Lowering, form: PanelForm, layout: Layout, buffer: str, moving: bool = False):
        self.low, self.form, self.layout, self.buffer, self.moving = low, form, layout, buffer, moving
        b, tile = low.b, form.tile
        self.size = form.size
        lane = b.lane()
        beyond: Any = 0
        if self.size == 2 and form.transposed:
            # Lane l of a warp gives the address of row l % 8 of matrix l / 8: of two side by side, then the two below.
            row = b.add(b.and_(lane, 7), b.mul(b.and_(b.lshr(lane, 4), 1), 8))
            column = b.add(b.mul(b.lshr(lane, 5), 32), b.mul(b.and_(b.lshr(lane, 3), 1), 16))
        elif self.size == 2:
            # Lane l gives the address of row l % 16 of its warp, in the 16-byte column l / 16 of two.
            row = b.add(b.mul(b.lshr(lane, 5), 16), b.and_(lane, 15))
            column = b.mul(b.and_(b.lshr(lane, 4), 1), 16)
        else:
            row = combine_fields(b, lane_fields(layout.lane_columns(form.across)), lane)
            columns = [n * self.size for n in layout.lane_columns(form.along)]
            column = combine_fields(b, lane_fields([n % tile.span for n in columns]), lane)
            if any(n >= tile.span for n in columns):
                beyond = combine_fields(b, lane_fields([n // tile.span * tile.panel for n in columns]), lane)
        self.row = b.mul(row, tile.span)
        self.column = column
        for bits, m, shift in tile.place.xor:
            picked = b.and_(b.lshr(self.row, m + shift), (1 << bits) - 1)
            self.column = b.xor(self.column, b.shl(picked, m))
        self.row = total(b, [self.row, beyond])

    def corners(self) -> list[tuple[int, int, tuple[tuple[int, int], ...]]]:
        """The stores of a panel: row and column that it starts at, and the words that it takes, from there."""
        per, height, width = 4 // self.size, self.form.height, self.form.width
        if self.size == 2:
            down, right = (16, width) if self.form.transposed else (height, 16)
            four = ((0, 0), (0, 8), (8, 0), (8, 8)) if down == 16 else ((0, 0), (8, 0), (0, 8), (8, 8))
            return [(row, q, four) for row in range(0, height, down) for q in range(0, width, right)]
        if self.form.transposed:
            return [(x + i, q, ((0, 0),)) for x in range(0, height, 8) for i in (0, 1) for q in (0, 8)]
        two = ((0, 0), (0, 1)) if per == 1 else ((0, 0),)
        return [(row, q, two) for q in range(0, width, 8) for row in (0, 8)]

    def pieces(self, r: int, c: int) -> list[list[int]]:
        """Per store of the panel that starts at row r, column c of the wave's tile the elements that it takes, in the
        order in which `panel` stores them."""
        along, across = self.form.along, self.form.across
        per = 4 // self.size
        found = []
        for row, q, words in self.corners():
            first = [self.layout.element_at({across: r + row + i, along: c + q + j}) // per * per for i, j in words]
            found.append([e + k for e in first for k in range(per)])
        return found

    def panel(self, base: Any, value: Fragment, r: int, c: int, before: Callable[[], None] | None = None) -> None:
        """Store the panel that starts at row r, column c of the wave's tile; `before` is called before each store."""
        b, tile = self.low.b, self.form.tile
        along, across = self.form.along, self.form.across
        per = 4 // self.size
        whole = total(b, [base, self.row, self.column]) if self.moving else None

        def word(row: int, column: int) -> tuple[Value, int]:
            """The word with an element, and which of it that is."""
            e = self.layout.element_at({across: r + row, along: c + column})
            w = value.word(b, e // per)
            return w if w.type is B32 else b.bitcast(w, B32), e % per

        def place(row: int, column: int) -> Any:
            """The lane's byte for what it has at these offsets of its own place."""
            inside = tile.place.swizzle(row * tile.span) % tile.span ^ column * self.size % tile.span
            if whole is not None:
                return total(b, [b.xor(whole, inside), row * tile.span, column * self.size // tile.span * tile.panel])
            start = total(b, [base, self.row, b.xor(self.column, inside)])
            return total(b, [start, row * tile.span, column * self.size // tile.span * tile.panel])

        for row, q, corners in self.corners():
            if before is not None:
                before()
            words = [word(row + i, q + j) for i, j in corners]
            if self.size == 2:
                four = b.vec(*(w for w, _ in words))
                b.store_shared(place(row, q), four, buffer=self.buffer, atom=MATRIX_STORE[self.form.transposed])
                continue
            if per > 1:  # narrower than 16 bits: lowest in its word
                w, at = words[0]
                data = b.bitcast(b.lshr(b.bitcast(w, I32), at * 8), B32) if at else w
            else:
                data = b.vec(*(w for w, _ in words)) if len(words) > 1 else words[0][0]
            size = self.size if self.form.transposed else 2 * self.size
            b.store_shared(place(row, q), data, bytes=size, buffer=self.buffer)


__all__ = ["ROWS", "PanelForm", "PanelStores", "product_fragment"]
