"""Results that leave through shared memory: registers to a swizzled tile, from there by bulk copies to the array.

In: the writes of a kernel whose operands come by bulk copies. Out: `Outlet`s with their place in shared memory, and the
code of a write. A wave stores the result of matrix instructions panel by panel, 64 rows of a swizzle's span each, in a
buffer of its own: it waits until the copy that had the buffer has read it, stores its registers there without bank
conflicts, makes them visible to bulk copies, and lets one thread start the copy, which drops what lies outside.
Direct stores of a fragment would fill half of each sector of memory.

Invariant: the thread that starts copies is the one that waits for them; a buffer's copies end in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wavedsl.ir.access import combine_fields, total
from wavedsl.ir.fragment import Fragment
from wavedsl.ir.graph import Node
from wavedsl.ir.kernel_ir import B32, TensorBoxes, Value
from wavedsl.ir.layout import Layout, kind_of, number_of
from wavedsl.ir.lowering import Lowering
from wavedsl.ir.matrix_tile import ALIGN, MatrixTile, matrix_tile
from wavedsl.ir.place import lane_fields

ROWS = 64
"""Rows of a panel: those of a matrix instruction."""
MATRIX_STORE = "stmatrix.x4"
"""The matrix store that moves 16 rows of 32 bytes of a warp."""
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
    param: int = -1
    offset: int = 0

    @property
    def wave_bytes(self) -> int:
        """Bytes of a wave's buffers."""
        return BUFFERS * self.tile.place.bytes


def plan_outlet(low: Lowering, n: Node) -> Outlet | None:
    """How a write can leave by bulk copies; None where it cannot and is stored from registers."""
    info = low.arrays[n.attrs["memory"]]
    if n.attrs.get("mapping") is not None or info.dtype.bits not in (16, 32) or len(n.inputs[0].dims) != 2:
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
    if not _fragment(layout, across, along) or any(
        plan.waves > 1 and d not in (across, along) for d, plan in low.plans.items()
    ):
        return None
    wave = low.plans[along].wave
    span = next((s for s in (128, 64, 32) if wave * info.elsize % s == 0), 0)
    if not span or low.plans[across].wave % ROWS:
        return None
    width = span // info.elsize
    tile = matrix_tile({across: ROWS, along: width}, along, info.elsize, width, 1)
    rest = [i for i in reversed(range(len(info.dims))) if i != c]
    sizes = {along: width, across: ROWS}
    order = (c, *rest)
    boxes = TensorBoxes(info.name, order, tuple(sizes.get(info.names[i], 1) for i in order), span)
    return Outlet(n, tile, across, along, boxes)


def _read_too(low: Lowering, name: str) -> bool:
    return any(n.op == "read" and n.attrs["memory"] == name for n in low.graph.all_nodes())


def _fragment(layout: Layout, across: str, along: str) -> bool:
    """Whether a value lies in registers as the result of a warpgroup's product, rows across."""
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
    width = tile.span // info.elsize
    rows, columns = low.plans[outlet.across].wave, low.plans[outlet.along].wave
    panels = [(r, c) for r in range(0, rows, ROWS) for c in range(0, columns, width)]
    wave_at = total(b, [outlet.offset, b.mul(b.wave(), outlet.wave_bytes)])
    inside_region = low.region_of(outlet.node) is not low.graph.region
    again = low.notes.order is not None or low.outlets_used > 0 or inside_region
    low.outlets_used += 1
    low.note(f"write {info.name}: {len(panels)} panels of {ROWS} rows through shared memory")
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
            inside = {outlet.across: r, outlet.along: c}
            at = [
                total(b, [position.base.get(d, 0), position.wave.get(d, 0), inside.get(d, 0)])
                for d in (info.names[i] for i in outlet.boxes.order)
            ]
            b.copy_bulk_store(b.param(outlet.param), place, at, cache=outlet.node.attrs.get("cache"))
            b.bulk_commit()
            one.yield_()


class PanelStores:
    """Stores of a wave's registers into a panel: 16-bit elements by a matrix store, 32-bit ones in pairs.

    A lane's byte in the panel is its row's first byte plus its bytes in the row XOR the swizzle of the row; columns
    further on differ in bits that XOR and addition treat alike, rows eight further on have the same swizzle.
    """

    def __init__(self, low: Lowering, outlet: Outlet, layout: Layout):
        self.low, self.outlet, self.layout = low, outlet, layout
        b, tile = low.b, outlet.tile
        self.size = low.arrays[outlet.node.attrs["memory"]].elsize
        lane = b.lane()
        if self.size == 2:
            # Lane l gives the address of row l % 16 of its warp, in the 16-byte column l / 16 of two.
            row = b.add(b.mul(b.lshr(lane, 5), 16), b.and_(lane, 15))
            column = b.mul(b.and_(b.lshr(lane, 4), 1), 16)
        else:
            row = combine_fields(b, lane_fields(layout.lane_columns(outlet.across)), lane)
            column = b.mul(combine_fields(b, lane_fields(layout.lane_columns(outlet.along)), lane), self.size)
        self.row = b.mul(row, tile.span)
        self.column = column
        for bits, m, shift in tile.place.xor:
            picked = b.and_(b.lshr(self.row, m + shift), (1 << bits) - 1)
            self.column = b.xor(self.column, b.shl(picked, m))

    def panel(self, base: Any, value: Fragment, r: int, c: int) -> None:
        """Store the panel that starts at row r, column c of the wave's tile."""
        b, tile = self.low.b, self.outlet.tile
        along, across = self.outlet.along, self.outlet.across
        width = tile.span // self.size
        per = 4 // self.size

        def word(row: int, column: int) -> Value:
            w = value.word(b, self.layout.element_at({across: r + row, along: c + column}) // per)
            return w if w.type is B32 else b.bitcast(w, B32)

        step = 32 // self.size  # columns of 32 bytes: two chunks of the swizzle
        for q in range(0, width, step):
            start = total(b, [base, self.row, b.xor(self.column, q * self.size)])
            if self.size == 2:
                four = b.vec(word(0, q), word(8, q), word(0, q + 8), word(8, q + 8))
                b.store_shared(start, four, buffer=BUFFER, atom=MATRIX_STORE)
                continue
            for row in (0, 8):
                two = b.vec(word(row, q), word(row, q + 1))
                b.store_shared(total(b, [start, row * tile.span]), two, buffer=BUFFER)


def finish(low: Lowering) -> None:
    """Before the kernel ends: the copies have read shared memory and written the array."""
    b = low.b
    if low.outlets_used:
        with b.if_(b.elect()) as one:
            b.bulk_wait(0, reading=False)
            one.yield_()
