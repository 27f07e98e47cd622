"""Results that leave through shared memory: registers to a swizzled tile, from there by bulk copies to the array.

In: the writes of a kernel whose operands come by bulk copies. Out: `Outlet`s with their place in shared memory, and the
code of a write. A wave stores the result of matrix instructions panel by panel, 64 rows of a swizzle's span each, in a
buffer of its own: it waits until the copy that had the buffer has read it, stores its registers there without bank
conflicts, makes them visible to bulk copies, and lets one thread start the copy, which drops what lies outside.
Direct stores of a fragment would fill half of each sector of memory. Where the instruction's rows are the array's
contiguous dimension (operands were swapped), a panel is 64 elements wide and the stores transpose. Rows that are moved,
and end where a count does (a group's among others), leave by a map that ends there (`tile_ends`).

A result may take the place of what it is computed of (`in_place`). Each lane has read an element before it stores the
result to shared memory, all of a panel's lanes have stored when its copy is started, so a copy overwrites nothing that
is still to be read. Bulk copies keep no order: one that may go where another went waits until that has written. Where
ordinary stores have written to the array before, fences between the proxies are for global memory too; where they may
do so afterwards, the array's results are stored from registers.

Invariant: the thread that starts copies is one of those that wait for theirs; a buffer's copies end in order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from wavedsl.ir.addresses.coordinates import total
from wavedsl.ir.dataflow.graph import PRODUCTS, Node
from wavedsl.ir.dataflow.ops import ROWS as OPS
from wavedsl.ir.dataflow.views import placement
from wavedsl.ir.inference.write_back import follows, loops_around, writers
from wavedsl.ir.kernel.kernel_ir import TensorBoxes, Value
from wavedsl.ir.layouts.fragment import Fragment
from wavedsl.ir.layouts.matrix_tile import ALIGN, MatrixTile, matrix_tile
from wavedsl.ir.lower.in_place import bulk_problem
from wavedsl.ir.lower.late_reads import Ahead
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.panel_stores import ROWS, PanelForm, PanelStores, product_fragment
from wavedsl.ir.lower.tile_ends import difference, tile_ends
from wavedsl.ir.lower.tile_views import located, windows
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import Context

PANEL_BYTES = 8192
"""Most bytes of a transposed panel."""
BUFFER = "results"
BUFFERS = 2
"""Panels of a wave that may be on their way, where there is no room for all."""


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
    slot_bytes: int = 0
    """Bytes of a buffer: all writes have the same."""
    buffers: int = BUFFERS
    """Buffers of a wave, which all writes share."""

    @property
    def wave_bytes(self) -> int:
        """Bytes of a wave's buffers."""
        return self.buffers * self.slot_bytes


def plan_outlet(low: Lowering, n: Node) -> Outlet | str:
    """How a write can leave by bulk copies, or why it cannot and is stored from registers."""
    info = low.view_info(n)
    name = info.name
    if info.dtype.bits not in (8, 16, 32):
        return f"{name} has elements of {info.dtype.bits} bits"
    if len(n.inputs[0].dims) != 2:
        return f"a tile of {name} has {len(n.inputs[0].dims)} dimensions"
    if not _mapped(low, n):
        return f"no tensor map drops what the mapping of {name} does"
    if low.inference.demands.get((n.id, 0)) is not None:
        return f"the result is not stored to {name} as it lies in registers"
    if problem := bulk_problem(low, n):
        return problem
    layout = low.layout(n.inputs[0])
    c = info.contiguous()
    if c is None or info.names[c] not in layout.dims:
        return f"tiles of {name} are not contiguous along a dimension"
    if info.align < 16:
        return f"{name} is not known to start at a multiple of 16 bytes"
    ends = tile_ends(low, n)
    if any(i != c and info.stride_multiple(i) % 16 for i in range(len(info.dims))):
        return f"strides of {name} are no multiples of 16 bytes"
    if len(info.dims) + len(ends) > 5:
        return f"a tensor map of {name} would have more than five dimensions"
    if any(s == 0 and e != 1 for s, e in zip(info.strides, info.extents)):
        return f"elements of {name} lie in one place"
    along = info.names[c]
    across = next(d for d in layout.dims if d != along)
    transposed = product_fragment(layout, along, across)
    if not (transposed or product_fragment(layout, across, along)):
        return f"what is stored to {name} does not lie in registers as a warpgroup's product"
    shared = next((d for d, plan in low.plans.items() if plan.waves > 1 and d not in (across, along)), None)
    if shared is not None:
        return f"waves that share {shared} have the same elements of {name}"
    rows, columns = low.plans[across].wave, low.plans[along].wave
    if (columns if transposed else rows) % ROWS:
        return f"the instruction's rows of a wave's tile are no multiple of {ROWS}"
    if transposed:
        width, unit = ROWS, 16 if info.elsize == 2 else 8
        most = min(ROWS, PANEL_BYTES // (width * info.elsize))
        height = next((h for h in range(most, 0, -unit) if rows % h == 0 and h % unit == 0), 0)
    else:
        span = next((s for s in (128, 64, 32) if columns * info.elsize % s == 0), 0)
        width, height = span // info.elsize, ROWS
    if not width or not height:
        return f"a wave's tile of {rows} x {columns} has no panels of whole swizzles"
    tile = matrix_tile({across: height, along: width}, along, info.elsize, width, 1)
    rest = [i for i in reversed(range(len(info.dims))) if i != c]
    sizes = {along: tile.span // info.elsize, across: height}
    order = (c, *rest)
    box = [sizes.get(info.names[i], 1) for i in order] + [1] * len(ends)
    boxes = TensorBoxes(info.name, order, tuple(box), tile.span, ends[0].axis if ends else None)
    return Outlet(n, tile, across, along, boxes, transposed)


def _mapped(low: Lowering, n: Node) -> bool:
    """Whether maps drop what a write's mapping does: rows that are moved, by no negative number where they end before
    the array does (such a map cannot end in front of the array too)."""
    if n.attrs.get("mapping") is None:
        return True
    found = placement(low.graph, n)
    if found is None or found.fixed or windows(low, n) or any(m.modulus is not None for m in found.moved.values()):
        return False
    ends = tile_ends(low, n)
    c = low.arrays[n.attrs["memory"]].contiguous()
    return len(ends) <= 1 and all(end.axis != c and _not_negative(end.moved.start) for end in ends)


def _not_negative(x: Node | None) -> bool:
    """Whether a single integer is surely none below zero."""
    if x is None or x.op == "size":
        return True
    if x.op == "constant":
        return int(x.attrs["value"]) >= 0
    return x.op == "maximum" and any(_not_negative(part) for part in x.inputs)


def panel_count(low: Lowering, outlet: Outlet) -> int:
    """Panels of a wave's tile."""
    height, width = (outlet.tile.place.extents[d] for d in (outlet.across, outlet.along))
    return -(-low.plans[outlet.across].wave // height) * -(-low.plans[outlet.along].wave // width)


def reserve(low: Lowering, outlets: list[Outlet], buffers: int = BUFFERS) -> None:
    """Buffers in shared memory, so many for each wave, no more than there are panels; all writes use the same."""
    if not outlets:
        return
    buffers = min(buffers, sum(panel_count(low, o) for o in outlets))
    low.room.top = -(-low.room.top // ALIGN) * ALIGN
    most = max(o.tile.place.bytes for o in outlets)
    for o in outlets:
        o.offset, o.slot_bytes, o.buffers = low.room.top, most, buffers
    size = outlets[0].wave_bytes * low.partition.waves * low.matrix.strategy.teams
    low.kernel.shared_names[BUFFER] = (low.room.top, size)
    low.room.top += size


def together(low: Lowering, n: Node) -> list[Node]:
    """The writes that leave panel by panel with this one, in order: those of its region with only pure steps
    between, so that what two of them need is computed once and held no longer than a panel."""
    region = low.region_of(n)
    if not low.computes_late(region):
        return [n]
    group: list[Node] = []
    for x in region.nodes:
        if x.id in low.writes.outlets:
            if any(_one_place(low, x, y) for y in group):  # the second write is the later one
                if n in group:
                    break
                group = []
            group.append(x)
        elif OPS[x.op].effect or x.op in PRODUCTS:
            if n in group:
                break
            group = []
    return group


def emit_outlet(low: Lowering, outlet: Outlet, value: Fragment, context: Context) -> None:
    """Write a value, with others that leave together with it as soon as all are there. `value` has the array's
    dtype."""
    low.writes.outlets_waiting.append((outlet, value, context, dict(low.base_at(context.iteration))))
    group = together(low, outlet.node)
    if len(low.writes.outlets_waiting) < len(group):
        return
    waiting, low.writes.outlets_waiting = low.writes.outlets_waiting, []
    again = used_before(low, outlet.node)
    low.writes.outlets_used += len(group)
    alone = len(group) == len(low.writes.outlets)
    stored = any(ordinary_stores(low, w[0].node, low.writes.outlets) for w in waiting)
    over = any(_over(low, w[0].node) for w in waiting)
    panels = sorted(
        (p for w in waiting for p in _panels(low, *w)), key=lambda p: (p.r + p.height, p.c + p.width)
    )  # what ends first leaves first: neighbours have elements in common
    pieces = [(p.value, elements) for p in panels for elements in p.stores.pieces(p.r, p.c)]
    ahead = Ahead(low, pieces)
    b, buffers = low.b, outlet.buffers
    # All panels at once where each has a buffer, else half of the buffers at a time, so that the others may be read.
    run = len(panels) if len(panels) <= buffers else max(1, buffers // 2)
    groups = buffers // run
    for start in range(0, len(panels), run):
        batch = panels[start : start + run]
        if over and start == 0:
            b.bulk_wait(0, reading=False)
            b.wave_barrier()
        elif start + run > buffers or again:
            fresh = start == 0 and (-(-len(panels) // run) % groups or not alone)
            b.bulk_wait(0 if fresh else groups - 1, reading=True)
            b.wave_barrier()
        places = []
        for j, p in enumerate(batch, start):
            own = p.outlet
            places.append(total(b, [own.offset, b.mul(b.wave(), own.wave_bytes), j % buffers * own.slot_bytes]))
            p.stores.panel(places[-1], p.value, p.r, p.c, ahead.next)
        b.proxy_fence(everywhere=stored)
        b.wave_barrier()
        for p, place in zip(batch, places):
            _start(low, p, place)
        b.bulk_commit()


def used_before(low: Lowering, n: Node) -> bool:
    """Whether the buffers may be those of earlier panels when a node comes to use them."""
    inner = low.region_of(n) is not low.graph.region
    return low.notes.order is not None or low.writes.outlets_used > 0 or inner


def lasting(low: Lowering, outlets: list[Outlet]) -> list[Outlet]:
    """Those of which no element is written again by ordinary stores, unless a fence stands between: no thread that
    stores waits for another's copies. (Accesses of other places have their fences, `tracer/order.py`.)"""
    last = outlets
    while True:
        ids = {o.node.id for o in last}
        kept = [o for o in last if not any(_again(low, o.node, w) for w in ordinary_stores(low, o.node, ids))]
        if len(kept) == len(last):
            return kept
        last = kept


def _again(low: Lowering, n: Node, w: Node) -> bool:
    """Whether a write may store to the elements of another one behind it, with no fence between."""
    return w.op == "write" and _one_place(low, w, n) and follows(low.graph, n, w)


def _one_place(low: Lowering, x: Node, y: Node) -> bool:
    """Whether two writes may go to the same elements with no fence between: other places are apart, or have one, and
    copies of one write of the user's (of whole tiles, and of those that have parts) have tiles of their own."""
    if x.attrs["memory"] != y.attrs["memory"] or x.attrs.get("mapping") != y.attrs.get("mapping"):
        return False
    traced = low.graph.traced
    if traced is None or x.loc != y.loc:
        return True
    return sum(n.op == "write" and n.loc == x.loc for n in writers(traced, x.attrs["memory"])) != 1


def _over(low: Lowering, n: Node) -> bool:
    """Whether copies of a write may go to where earlier ones go that nobody has waited for: copies keep no order."""
    others = [o.node for o in low.writes.outlets.values() if o.node is not n and _one_place(low, o.node, n)]
    if any(follows(low.graph, x, n) for x in others):
        return True
    dims = {str(d) for d in low.graph.argument(n.attrs["memory"]).dims} if n.attrs.get("mapping") is None else set()
    traced = low.graph.traced
    known = None if traced is None else {r.dim for r in traced.regions()}  # loops over tiles are not the user's
    return any(str(r.dim) not in dims for r in loops_around(low.graph, n) if known is None or r.dim in known)


def ordinary_stores(low: Lowering, n: Node, outlets: Collection[int]) -> list[Node]:
    """Writes of the array that `n` writes, but by bulk copies."""
    return [w for w in writers(low.graph, n.attrs["memory"]) if w.id not in outlets]


@dataclass
class _Panel:
    """A panel of one write: where it starts in the wave's tile."""

    outlet: Outlet
    stores: PanelStores
    value: Fragment
    context: Context
    base: Mapping[str, Any]
    r: int
    c: int
    height: int
    width: int


def _panels(low: Lowering, outlet: Outlet, value: Fragment, context: Context, base: Mapping[str, Any]) -> list[_Panel]:
    height, width = (outlet.tile.place.extents[d] for d in (outlet.across, outlet.along))
    rows, columns = low.plans[outlet.across].wave, low.plans[outlet.along].wave
    size = low.arrays[outlet.node.attrs["memory"]].elsize
    form = PanelForm(outlet.tile, outlet.across, outlet.along, size, height, width, outlet.transposed)
    stores = PanelStores(low, form, value.layout, BUFFER)
    found = [
        _Panel(outlet, stores, value, context, base, r, c, height, width)
        for r in range(0, rows, height)
        for c in range(0, columns, width)
    ]
    low.note(f"write {outlet.node.attrs['memory']}: {len(found)} panels of {height} rows through shared memory")
    return found


def _start(low: Lowering, p: _Panel, place: Value) -> None:
    """The bulk copies of a panel, by one thread. (All close a group and wait for theirs, which costs nothing and needs
    no branch: across those ptxas 13 moves what later panels compute, until it spills.)"""
    b, outlet, tile = low.b, p.outlet, p.outlet.tile
    info = low.view_info(outlet.node)
    position, _, limits = located(low, outlet.node, p.context, p.base)
    moved: dict[str, Any] = {}
    more: list[Any] = []
    if (axis := outlet.boxes.ended) is not None:
        end, extent = limits[info.names[axis]], low.extent(low.arrays[outlet.node.attrs["memory"]].names[axis])
        moved, more = {info.names[axis]: difference(low, extent, end)}, [total(b, [end, -1])]
    for i in range(tile.panels):
        inside = {outlet.across: p.r, outlet.along: p.c + i * tile.span // info.elsize}
        at = [
            total(b, [position.base.get(d, 0), position.wave.get(d, 0), inside.get(d, 0), moved.get(d, 0)])
            for d in (info.names[x] for x in outlet.boxes.order)
        ] + more
        source = total(b, [place, i * tile.panel])
        b.copy_bulk_store(b.param(outlet.param), source, b.elect(), at, cache=outlet.node.attrs.get("cache"))


def finish(low: Lowering) -> None:
    """Before the kernel ends: the copies have read shared memory and written the array. All lanes wait, of which one
    has copies: which one it is would have to be known until then."""
    if low.writes.outlets_used:
        low.b.bulk_wait(0, reading=False)
