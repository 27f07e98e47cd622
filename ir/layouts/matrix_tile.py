"""Where a tile lies in shared memory so that asynchronous matrix instructions can read it, and how they are told.

In: the tile's extents, which dimension is contiguous, who uses it. Out: a `MatrixTile`: a `Place` and, per use, the
constant fields of its descriptors. A descriptor's `low` word holds the address / 16 and the leading byte offset / 16
(from bit 16), its `high` word the stride byte offset / 16 and the swizzle (CUTLASS, cute/arch/mma_sm90_desc.hpp).

The tile is cut along its contiguous dimension into panels as wide as the swizzle's span. A panel holds its rows one
after the other, so eight of them are one atom of the swizzle, and an atom is where bulk copies would put them. The
address bits that select a row within the atom are XORed into those that select 16 bytes of the row.

Invariant: every offset that an instruction adds (waves, rows, columns, steps along K) moves by whole atoms, or within
the span of K: then the swizzle, which works on address bits, does not see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.layouts.place import Piece, Place, Xor
from wavedsl.ir.quick_dataclass import dataclass

SPANS = (128, 64, 32, 16)
"""Bytes of a row that a swizzle permutes, widest first; 16 is none."""

ALIGN = 1024
"""Bytes that a tile's first byte must be a multiple of for its swizzle to start at bit 0 of the address."""

BOX = 256
"""Most elements of a bulk copy's box along a dimension (cuTensorMapEncodeTiled)."""

BOX_ALIGN = 128
"""Bytes that the place of a box in shared memory must be a multiple of."""

_MODE = {128: 1, 64: 2, 32: 3, 16: 0}


@dataclass(frozen=True)
class MatrixTile:
    """`fast` is the contiguous dimension, `other` the one across (empty: the tile is a row, `row_tile`); `panel` the
    bytes of a panel. `block`: in every so many rows the first pairs of each four stand before the second pairs (0: rows
    stand as they come)."""

    place: Place
    fast: str
    other: str
    span: int
    panel: int
    block: int = 0

    @property
    def width(self) -> int:
        """Elements of `fast` in a panel."""
        return (self.span if self.other else self.panel) // self.place.elsize

    @property
    def panels(self) -> int:
        """Panels along `fast`."""
        return self.place.extents[self.fast] // self.width

    def descriptor(self, k: str) -> tuple[int, int]:
        """(low word without the address, high word) for a use that contracts dimension `k`."""
        group = 8 * self.span
        if self.fast == k:
            leading, stride = (16, group) if self.span > 16 else (self.panel, group)
        else:
            leading, stride = (self.panel, group) if self.span > 16 else (group, self.panel)
        return (leading >> 4) << 16, stride >> 4 | _MODE[self.span] << 30

    def offset(self, at: Mapping[str, int]) -> int:
        """Bytes from the tile's start to where an instruction at these coordinates starts."""
        return self.place.linear_address({d: at.get(d, 0) for d in self.place.dims})


def matrix_tile(
    extents: Mapping[str, int], fast: str, elsize: int, unit: int, slots: int, block: int = 0
) -> MatrixTile:
    """A tile of `extents` elements with dimension `fast` contiguous. `unit`: elements of `fast` that every wave's and
    instruction's share is a multiple of, or the whole extent where the instructions step inside the span. `block`: see
    `MatrixTile`; a power of two from 16 on that divides the rows.

    Raises ConstraintError where the contiguous extent is not a multiple of 16 bytes.
    """
    (other,) = (d for d in extents if d != fast)
    run = gcd(extents[fast], unit) * elsize
    span = next((s for s in SPANS if run % s == 0), 0)
    if not span or extents[other] % 8:
        raise ConstraintError(
            f"a tile of {fast}={extents[fast]}, {other}={extents[other]} cannot be read by matrix instructions: "
            f"rows of {run} bytes, in groups of 8",
            hint=f"make the tile of {fast} a multiple of {16 // elsize} elements and that of {other} one of 8",
        )
    width = span // elsize
    panel = extents[other] * span
    panels = extents[fast] // width
    pieces = [Piece(fast, 1, width, elsize)]
    if block:
        pieces += [Piece(other, 1, 2, span), Piece(other, 2, 2, block // 2 * span)]
        pieces.append(Piece(other, 4, block // 4, 2 * span))
        if extents[other] > block:
            pieces.append(Piece(other, block, extents[other] // block, block * span))
    else:
        pieces.append(Piece(other, 1, extents[other], span))
    if panels > 1:
        pieces.append(Piece(fast, width, panels, panel))
    bits = (span // 16).bit_length() - 1
    xor: tuple[Xor, ...] = ((bits, 4, 3),) if bits else ()
    return MatrixTile(Place(tuple(pieces), xor, slots, elsize), fast, other, span, panel, block)


def row_tile(extent: int, dim: str, elsize: int, slots: int) -> MatrixTile:
    """A tile of one dimension, which lanes read: `extent` elements, in panels that a bulk copy brings each.

    Raises ConstraintError where no panel of a whole number of aligned boxes divides it.
    """
    fits = (w for w in range(min(BOX, extent), 0, -1) if extent % w == 0 and w * elsize % BOX_ALIGN == 0)
    width = next(fits, 0)
    if not width:
        raise ConstraintError(
            f"a row of {dim}={extent} has {extent * elsize} bytes: bulk copies bring it in multiples of {BOX_ALIGN}",
            hint=f"make the tile of {dim} a multiple of {BOX_ALIGN // elsize} elements",
        )
    place = Place((Piece(dim, 1, extent, elsize),), (), slots, elsize)
    return MatrixTile(place, dim, "", SPANS[-1], width * elsize)
