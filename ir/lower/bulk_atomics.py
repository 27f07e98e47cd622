"""Sums that an atomic adds to an array by bulk reductions: through shared memory, one thread's instruction per panel.

In: an atomic of a warpgroup's product in a kernel whose operands come by bulk copies. Out: an `Outlet` in the buffers
of results (`bulk_store`), and the code. A wave stores a panel as it stores results, shows it to bulk copies, and one
thread has it added to the array, element by element, beside whatever the wave does next; what lies outside is dropped.
Lanes that add their own numbers (`lower_atomic`) fill a sector of memory per row of four lanes, and the warp issues
every one.

Invariant: all of the kernel's accesses to the array are such atomics, so nothing waits for them but its end.
"""

from __future__ import annotations

from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.addresses.coordinates import scaled, total
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.views import placement
from wavedsl.ir.kernel.kernel_ir import TensorBoxes, Value
from wavedsl.ir.layouts.fragment import Fragment
from wavedsl.ir.layouts.matrix_tile import matrix_tile
from wavedsl.ir.lower.bulk_store import BUFFER, BUFFERS, PANEL_BYTES, Outlet, used_before
from wavedsl.ir.lower.lower_atomic import shared_dims
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.panel_stores import ROWS, PanelForm, PanelStores, product_fragment
from wavedsl.ir.lower.tile_views import located
from wavedsl.ir.schedule.steps import Context
from wavedsl.ir.symbols import dim_name

SPAN = 128
"""Bytes of a panel's rows."""
COLUMNS = 8
"""Columns of an instruction, of which the height of a transposed panel is a multiple."""


def plan_reduction(low: Lowering, n: Node) -> Outlet | str:
    """How an atomic's sums leave by bulk reductions, or why each lane adds its own."""
    info = low.arrays[n.attrs["memory"]]
    name, value = info.name, n.inputs[0]
    if n.op != "atomic_add" or low.users().get(n.id) or value.dtype is not dt.f32:
        return f"{n.op} on {name} is no sum of f32 that nobody asks for"
    if any(x.attrs.get("memory") == name and x.op != "atomic_add" for x in low.graph.all_nodes()):
        return f"{name} is not only added to"
    found = placement(low.graph, n)
    if found is None or found.moved:
        return f"the mapping of {name} moves its elements"
    c, layout = info.contiguous(), low.layout(value)
    if c is None or info.names[c] not in layout.dims or len(layout.dims) != 2 or c != len(info.dims) - 1:
        return f"tiles of {name} are not contiguous along a dimension"
    if info.align < 16 or any(info.stride_multiple(i) % 16 for i in range(len(info.dims)) if i != c):
        return f"rows of {name} are not known to start at multiples of 16 bytes"
    if len(info.dims) > 5 or any(s == 0 and e != 1 for s, e in zip(info.strides, info.extents)):
        return f"no tensor map describes {name}"
    along = info.names[c]
    across = next(d for d in layout.dims if d != along)
    transposed = product_fragment(layout, along, across)
    right = transposed or product_fragment(layout, across, along)
    if not right or low.inference.demands.get((n.id, 0)) is not None:
        return f"what is added to {name} does not lie in registers as a warpgroup's product"
    spread = low.inference.spread.get(n.id)
    apart = {across, along} | ({dim_name(spread.over)} if spread is not None else set())
    if any(plan.waves > 1 and d not in apart for d, plan in low.plans.items()):
        return f"waves share sums of {name}"
    if not n.attrs.get("per_workgroup") and shared_dims(low, (*layout.dims, *n.attrs.get("joined", ()))):
        return f"one of several workgroups adds to {name}"
    rows, columns = (shares(low, n)[d] for d in (across, along))
    width, height = SPAN // info.elsize, ROWS
    if transposed:  # the instruction's rows lie along the array
        width, most = ROWS, PANEL_BYTES // (ROWS * info.elsize)
        height = next((h for h in range(most, 0, -COLUMNS) if rows % h == 0 and h % COLUMNS == 0), 0)
    if not height or rows % height or columns % width:
        return f"a wave's {rows} x {columns} sums are no panels of {height or COLUMNS} x {width}"
    tile = matrix_tile({across: height, along: width}, along, info.elsize, width, 1)
    order = tuple(reversed(range(len(info.dims))))
    sizes = {along: tile.span // info.elsize, across: height}
    box = tuple(sizes.get(info.names[i], 1) for i in order)
    return Outlet(n, tile, across, along, TensorBoxes(name, order, box, tile.span, None), transposed)


def shares(low: Lowering, n: Node) -> dict[str, int]:
    """What a wave has of each dimension of what an atomic adds."""
    spread = low.inference.spread.get(n.id)
    found = {d: low.plans[d].wave for d in low.layout(n.inputs[0]).dims}
    return found if spread is None else {**found, dim_name(spread.dim): spread.share}


def emit_reduction(low: Lowering, outlet: Outlet, value: Fragment, context: Context) -> None:
    """Have a value added to the array: as many panels at a time as there are buffers."""
    b, n, info = low.b, outlet.node, low.arrays[outlet.node.attrs["memory"]]
    sizes, spread = shares(low, n), low.inference.spread.get(n.id)
    tile = outlet.tile
    height, width = (tile.place.extents[d] for d in (outlet.across, outlet.along))
    form = PanelForm(tile, outlet.across, outlet.along, info.elsize, height, width, outlet.transposed)
    stores = PanelStores(low, form, value.layout, BUFFER)
    panels = [
        (r, c)
        for r in range(0, sizes[outlet.across], form.height)
        for c in range(0, sizes[outlet.along], form.width)
    ]
    position, inside, _ = located(low, n, context, low.base_at(context.iteration))
    first: dict[str, Any] = {}
    if spread is not None:
        first[dim_name(spread.dim)] = scaled(b, low.wave_digit[dim_name(spread.over)], spread.share)
    low.note(f"add to {info.name}: {len(panels)} panels of {height} rows through shared memory")
    again = used_before(low, n)
    low.writes.outlets_used += 1
    for start in range(0, len(panels), BUFFERS):
        batch = panels[start : start + BUFFERS]
        if start or again:
            b.bulk_wait(0, reading=True)
            b.wave_barrier()
        places: list[Value] = []
        for j, (r, c) in enumerate(batch):
            places.append(total(b, [outlet.offset, b.mul(b.wave(), outlet.wave_bytes), j * outlet.slot_bytes]))
            stores.panel(places[-1], value, r, c)
        b.proxy_fence()
        b.wave_barrier()
        boxes = [(place, r, c, i) for place, (r, c) in zip(places, batch) for i in range(tile.panels)]
        for place, r, c, i in boxes:
            own = {outlet.across: r, outlet.along: c + i * tile.span // info.elsize}
            at = [
                total(b, [position.base.get(d, 0), position.wave.get(d, 0), first.get(d, 0), own.get(d, 0)])
                for d in (info.names[x] for x in outlet.boxes.order)
            ]
            one = b.elect() if inside is None else b.pand(b.elect(), inside)
            b.copy_bulk_store(b.param(outlet.param), total(b, [place, i * tile.panel]), one, at, adds=True)
        b.bulk_commit()


__all__ = ["emit_reduction", "plan_reduction"]
