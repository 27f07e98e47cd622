"""Which products may be carried out by instructions of column pairs: `MmaAtom.parts` of two.

Such an instruction takes words of two neighbouring columns of B, so a B whose rows are contiguous in memory is read as
it lies there. Its result has the even columns in one run of registers and the odd ones in the next, which elementwise
steps, reductions and stores read from its layout like any other. Whether one is taken is a question of price
(`mma_options.mma_options`).

A lane then reads one word of each of several rows. Two such reads are one instruction where both words lie within its
two short offsets, and these reach all of shared memory in steps of 64 words: so a lane's own rows should lie multiples
of 256 bytes apart (`rows_apart`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.dataflow.views import placement
from wavedsl.ir.layouts.bits import REGISTER_KINDS, kind_of
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.layouts.place import Piece, Place, Xor
from wavedsl.ir.target import MmaAtom

Rows = Mapping[int, str]
"""Read, by its id → the dimension along which its tile is contiguous in memory."""
NO_ROWS: Rows = MappingProxyType({})


def contiguous_rows(graph: Graph, arrays: Mapping[str, ArrayInfo], moved: bool = False) -> dict[int, str]:
    """The reads of plain tiles whose rows are contiguous in memory, with the dimension along which they are. `moved`:
    also of tiles that lie where numbers say, as slices do."""
    found = {}
    for n in graph.all_nodes():
        if n.op != "read" or n.dtype.packed or n.attrs["memory"] not in arrays:
            continue
        place, info = placement(graph, n), arrays[n.attrs["memory"]]
        c = info.contiguous()
        if place is not None and (moved or not place.moved) and c is not None and info.dims[c] in n.dims:
            found[n.id] = info.names[c]
    return found


def turned(atom: MmaAtom, operands: Sequence[tuple[Node, str]], k: str, rows: Rows) -> int:
    """Operands of a product that have to be turned on their way to an instruction: (node, its dimension beside K) of
    the instruction's A and B."""
    return sum(
        rows.get(n.id) == free and free != k and not (atom.parts > 1 and port == 1)
        for port, (n, free) in enumerate(operands)
    )


def may_take(atom: MmaAtom, operands: Sequence[tuple[Node, str]], rows: Rows) -> bool:
    """Whether an instruction suits the operands of its A and B: one of column pairs wants a B that has rows of them."""
    second, free = operands[1]
    return atom.parts == 1 or (bool(free) and rows.get(second.id) == free)


STEP = 256
"""Bytes that the offsets of paired accesses count together."""
WORD = 4
"""Bytes of a word of two columns: what lies inside is no step."""
LINE = 128
"""Bytes of a row that lie together: what all banks hold side by side."""


def rows_apart(extents: Mapping[str, int], elsize: int, fragment: Layout) -> list[Place]:
    """Places of a tile of two dimensions, the last contiguous, in which the rows that one lane reads lie multiples of
    `STEP` apart and other lanes' rows between them; with and without a term that moves every other of these by half a
    line. Rows are cut into panels of `LINE` bytes where a lane's columns are no multiples of `STEP` apart. None where
    rows are no power of two, or where lanes and registers share a bit of the row's number."""
    (outer, rows), (inner, columns) = extents.items()
    bits = fragment.inner
    steps = [c for b, c in zip(bits.ins, bits.coordinate_columns(inner)) if kind_of(b) in REGISTER_KINDS]
    steps += [fragment.step(g) for g in fragment.reg_digits if g.dim == inner]
    row = columns * elsize
    if row % LINE == 0 and (row & (row - 1) or any(c * elsize % STEP for c in steps if c * elsize >= WORD)):
        row = LINE
    if row & (row - 1) or rows & (rows - 1):
        return []
    along = list(zip(map(kind_of, bits.ins), bits.coordinate_columns(outer)))
    own = [c for kind, c in along if kind in REGISTER_KINDS and c]
    others = [c for kind, c in along if kind == "l" and c]
    if any(c & (c - 1) for c in (*own, *others)) or set(own) & set(others) or not others or not own:
        return []
    between = sorted(c for c in others if c > min(own))[: max(0, (STEP // row).bit_length() - 1)]
    order = [*between, *(1 << i for i in range(rows.bit_length() - 1) if 1 << i not in between)]
    pieces = [Piece(outer, low, 2, row << i) for i, low in enumerate(order)]
    panels = columns * elsize // row
    if panels > 1:
        pieces.append(Piece(inner, row // elsize, panels, rows * row))
    whole = Place((*reversed(pieces), Piece(inner, 1, row // elsize, elsize)), (), 1, elsize)
    terms: list[tuple[Xor, ...]] = [()]
    half, first = (LINE // 2).bit_length() - 1, (row << order.index(min(others))).bit_length() - 1
    if half < first and row > LINE // 2:
        terms.append(((1, half, first - half),))
    return [whole.varied(xor=x) for x in terms]
