"""Results that leave through shared memory: registers to a swizzled tile, from there by bulk copies to the array.

In: the writes of a kernel whose operands come by bulk copies. Out: `Outlet`s with their place in shared memory, and the
code of a write. A wave stores the result of matrix instructions panel by panel, 64 rows of a swizzle's span each, in a
buffer of its own: it waits until the copy that had the buffer has read it, stores its registers there without bank
conflicts, makes them visible to bulk copies, and lets one thread start the copy, which drops what lies outside.
Direct stores of a fragment would fill half of each sector of memory. Where the instruction's rows are the array's
contiguous dimension (operands were swapped), a panel is 64 elements wide and the stores transpose.

Invariant: the thread that starts copies is the one that waits for them; a buffer's copies end in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wavedsl.ir.access import combine_fields, total
from wavedsl.ir.fragment import Fragment
from wavedsl.ir.graph import Node
from wavedsl.ir.kernel_ir import B32, I32, TensorBoxes, Value
from wavedsl.ir.layout import Layout, kind_of, number_of
from wavedsl.ir.lowering import Lowering
from wavedsl.ir.matrix_tile import ALIGN, MatrixTile, matrix_tile
from wavedsl.ir.place import lane_fields

ROWS = 64
"""Rows of a matrix instruction: those of a panel, or its width where it is transposed."""
PANEL_BYTES = 8192
"""Most bytes of a transposed panel."""
MATRIX_STORE = {False: "stmatrix.x4", True: "stmatrix.x4.trans"}
"""Whether it transposes → the matrix store that moves 16 x 16 elements of two bytes of a warp."""
BUFFER = "results"
BUFFERS = 2
"""Panels of a wave that may be on their way."""


@dataclass
class Outlet:
    """One write. `across`, `along`: the dimensions of rows and of the contiguous columns."""

    node: Node
    tile: MatrixTile
    across: str
    along: str
    boxes: TensorBoxes
    transposed: bool = False
    """Whether the instruction's rows lie along the contiguous dimension."""
    param: int = -1
    offset: int = 0

    @property
    def wave_bytes(self) -> int:
        """Bytes of a wave's buffers."""
        return BUFFERS * self.tile.place.bytes


def plan_outlet(low: Lowering, n: Node) -> Outlet | None:
    """How a write can leave by bulk copies; None where it cannot and is stored from registers."""
    info = low.arrays[n.attrs["memory"]]
    if n.attrs.get("mapping") is not None or info.dtype.bits not in (8, 16, 32) or len(n.inputs[0].dims) != 2:
        return None
    if low.inference.demands.get((n.id, 0)) is not None or _read_too(low, info.name):
        return None
    layout = low.layout(n.inputs[0])
    c = info.contiguous()
    if c is None or info.align < 16 or info.names[c] not in layout.dims:
        return None
    if any(i != c and info.stride_multiple(i) % 16 for i in range(len(info.dims))) or len(info.dims) > 5:
        return None
    if any(s == 0 and e != 1 for s, e in zip(info.strides, info.extents)):
        return None
    along = info.names[c]
    across = next(d for d in layout.dims if d != along)
    transposed = _fragment(layout, along, across)
    if not (transposed or _fragment(layout, across, along)) or any(
        plan.waves > 1 and d not in (across, along) for d, plan in low.plans.items()
    ):
        return None
    rows, columns = low.plans[across].wave, low.plans[along].wave
    if (columns if transposed else rows) % ROWS:
        return None
    if transposed:
        width, unit = ROWS, 16 if info.elsize == 2 else 8
        most = min(ROWS, PANEL_BYTES // (width * info.elsize))
        height = next((h for h in range(most, 0, -unit) if rows % h == 0 and h % unit == 0), 0)
    else:
        span = next((s for s in (128, 64, 32) if columns * info.elsize % s == 0), 0)
        width, height = span // info.elsize, ROWS
    if not width or not height:
        return None
    tile = matrix_tile({across: height, along: width}, along, info.elsize, width, 1)
    rest = [i for i in reversed(range(len(info.dims))) if i != c]
    sizes = {along: tile.span // info.elsize, across: height}
    order = (c, *rest)
    boxes = TensorBoxes(info.name, order, tuple(sizes.get(info.names[i], 1) for i in order), tile.span)
    return Outlet(n, tile, across, along, boxes, transposed)


def _read_too(low: Lowering, name: str) -> bool:
    return any(n.op == "read" and n.attrs["memory"] == name for n in low.graph.all_nodes())


def _fragment(layout: Layout, across: str, along: str) -> bool:
    """Whether a value lies in registers as the result of a warpgroup's product, the instruction's rows along
    `across`."""
    columns = {d: layout.inner.coordinate_columns(d) for d in (across, along)}
    want = {"l0": (0, 2), "l1": (0, 4), "l2": (1, 0), "l3": (2, 0), "l4": (4, 0), "l5": (16, 0), "l6": (32, 0),
            "e0": (0, 1), "e1": (8, 0)}  # fmt: skip
    have = {
        f"{kind_of(x)}{number_of(x)}": (columns[across][i], columns[along][i]) for i, x in enumerate(layout.inner.ins)
    }
    return have == want


def reserve(low: Lowering, outlets: list[Outlet]) -> None:
    """Buffers in shared memory; all writes use the same."""
    if not outlets:
        return
    low.shared_top = -(-low.shared_top // ALIGN) * ALIGN
    most = max(o.wave_bytes for o in outlets) * low.partition.waves * low.strategy.teams
    for o in outlets:
        o.offset = low.shared_top
    low.kernel.shared_names[BUFFER] = (low.shared_top, most)
    low.shared_top += most


def emit_outlet(low: Lowering, outlet: Outlet, value: Fragment, base: Mapping[str, Any]) -> None:
    """Write a value. `value` has the array's dtype; `base`: where the tile starts."""
    b, tile = low.b, outlet.tile
    info = low.arrays[outlet.node.attrs["memory"]]
    layout = value.layout
    height, width = (tile.place.extents[d] for d in (outlet.across, outlet.along))
    rows, columns = low.plans[outlet.across].wave, low.plans[outlet.along].wave
    panels = [(r, c) for r in range(0, rows, height) for c in range(0, columns, width)]
    wave_at = total(b, [outlet.offset, b.mul(b.wave(), outlet.wave_bytes)])
    inside_region = low.region_of(outlet.node) is not low.graph.region
    again = low.notes.order is not None or low.outlets_used > 0 or inside_region
    low.outlets_used += 1
    low.note(f"write {info.name}: {len(panels)} panels of {height} rows through shared memory")
    stores = PanelStores(low, outlet, layout)
    for j, (r, c) in enumerate(panels):
        if j >= BUFFERS or again:
            fresh = j == 0 and (len(panels) % BUFFERS or len(low.outlets) > 1)
            with b.if_(b.elect()) as one:
                b.bulk_wait(0 if fresh else BUFFERS - 1, reading=True)
                one.yield_()
            b.wave_barrier()
        place = total(b, [wave_at, j % BUFFERS * tile.place.bytes])
        stores.panel(place, value, r, c)
        b.proxy_fence()
        b.wave_barrier()
        with b.if_(b.elect()) as one:
            position = low.position(info.names, base)
            for p in range(tile.panels):
                inside = {outlet.across: r, outlet.along: c + p * tile.span // info.elsize}
                at = [
                    total(b, [position.base.get(d, 0), position.wave.get(d, 0), inside.get(d, 0)])
                    for d in (info.names[i] for i in outlet.boxes.order)
                ]
                source = total(b, [place, p * tile.panel])
                b.copy_bulk_store(b.param(outlet.param), source, at, cache=outlet.node.attrs.get("cache"))
            b.bulk_commit()
            one.yield_()


class PanelStores:
    """Stores of a wave's registers into a panel: 16-bit elements by a matrix store, others in pairs, or one by one
    where the panel is transposed.

    A lane's byte in the panel is its row's first byte plus its bytes in the row XOR the swizzle of the row. What an
    element adds to row and column has no bit in common with what the lane does, so swizzles are XORed as well.
    """

    def __init__(self, low: Lowering, outlet: Outlet, layout: Layout):
        self.low, self.outlet, self.layout = low, outlet, layout
        b, tile = low.b, outlet.tile
        self.size = low.arrays[outlet.node.attrs["memory"]].elsize
        lane = b.lane()
        beyond: Any = 0
        if self.size == 2 and outlet.transposed:
            # Lane l of a warp gives the address of row l % 8 of matrix l / 8: of two side by side, then the two below.
            row = b.add(b.and_(lane, 7), b.mul(b.and_(b.lshr(lane, 4), 1), 8))
            column = b.add(b.mul(b.lshr(lane, 5), 32), b.mul(b.and_(b.lshr(lane, 3), 1), 16))
        elif self.size == 2:
            # Lane l gives the address of row l % 16 of its warp, in the 16-byte column l / 16 of two.
            row = b.add(b.mul(b.lshr(lane, 5), 16), b.and_(lane, 15))
            column = b.mul(b.and_(b.lshr(lane, 4), 1), 16)
        else:
            row = combine_fields(b, lane_fields(layout.lane_columns(outlet.across)), lane)
            columns = [n * self.size for n in layout.lane_columns(outlet.along)]
            column = combine_fields(b, lane_fields([n % tile.span for n in columns]), lane)
            if any(n >= tile.span for n in columns):
                beyond = combine_fields(b, lane_fields([n // tile.span * tile.panel for n in columns]), lane)
        self.row = b.mul(row, tile.span)
        self.column = column
        for bits, m, shift in tile.place.xor:
            picked = b.and_(b.lshr(self.row, m + shift), (1 << bits) - 1)
            self.column = b.xor(self.column, b.shl(picked, m))
        self.row = total(b, [self.row, beyond])

    def panel(self, base: Any, value: Fragment, r: int, c: int) -> None:
        """Store the panel that starts at row r, column c of the wave's tile."""
        b, tile = self.low.b, self.outlet.tile
        along, across = self.outlet.along, self.outlet.across
        height, width = tile.place.extents[across], tile.place.extents[along]
        per = 4 // self.size

        def at(row: int, column: int) -> int:
            return self.layout.element_at({across: r + row, along: c + column})

        def word(row: int, column: int) -> Value:
            w = value.word(b, at(row, column) // per)
            return w if w.type is B32 else b.bitcast(w, B32)

        def part(row: int, column: int) -> Value:
            """The word with an element narrower than 16 bits lowest."""
            shift = at(row, column) % per * 8
            return b.bitcast(b.lshr(b.bitcast(word(row, column), I32), shift), B32) if shift else word(row, column)

        def place(row: int, column: int) -> Any:
            """The lane's byte for what it has at these offsets of its own place."""
            inside = tile.place.swizzle(row * tile.span) % tile.span ^ column * self.size % tile.span
            start = total(b, [base, self.row, b.xor(self.column, inside)])
            return total(b, [start, row * tile.span, column * self.size // tile.span * tile.panel])

        if self.size == 2:
            down, right = (16, width) if self.outlet.transposed else (height, 16)
            for row in range(0, height, down):
                for q in range(0, width, right):
                    corners = ((0, 0), (0, 8), (8, 0), (8, 8)) if down == 16 else ((0, 0), (8, 0), (0, 8), (8, 8))
                    four = b.vec(*(word(row + i, q + j) for i, j in corners))
                    b.store_shared(place(row, q), four, buffer=BUFFER, atom=MATRIX_STORE[self.outlet.transposed])
            return
        if self.outlet.transposed:
            for row in (x + i for x in range(0, height, 8) for i in (0, 1)):
                for q in (0, 8):
                    data = part(row, q) if per > 1 else word(row, q)
                    b.store_shared(place(row, q), data, bytes=self.size, buffer=BUFFER)
            return
        for q in range(0, width, 8):
            for row in (0, 8):
                data = part(row, q) if per > 1 else b.vec(word(row, q), word(row, q + 1))
                b.store_shared(place(row, q), data, bytes=2 * self.size, buffer=BUFFER)


def finish(low: Lowering) -> None:
    """Before the kernel ends: the copies have read shared memory and written the array."""
    b = low.b
    if low.outlets_used:
        with b.if_(b.elect()) as one:
            b.bulk_wait(0, reading=False)
            one.yield_()
