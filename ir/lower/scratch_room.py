"""The shared memory that a kernel's exchanges and reductions take, known before anything is emitted.

In: a `Lowering` whose layouts stand. Out: bytes for conversions of a wave's values, bytes for what waves reduce
together, and the nodes that reduce. What is emitted later (`exchange`, `across_waves`, `lower_pick`) takes no more.
"""

from __future__ import annotations

from math import prod

from wavedsl.ir.dataflow.graph import PRODUCTS, Node
from wavedsl.ir.dataflow.ops import MADE_ANYWHERE, ROWS
from wavedsl.ir.dataflow.views import index_positions, is_tile
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.inference.row_layout import leading_layout
from wavedsl.ir.layouts.layout import WARP_BITS, Layout, high_lanes, moving_lanes
from wavedsl.ir.lower.exchange import regroup, route, tile_bytes
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.pick_ways import pick_bytes
from wavedsl.ir.lower.sliced_operands import sliced_positions
from wavedsl.ir.lower.sums_of_sums import OPS, left_to_the_next, together
from wavedsl.ir.lower.wave_meeting import Meeting

SUMMED_WORDS = 16
"""Registers that every wave puts into shared memory at a time where waves add what they hold of a product."""


def scratch_bytes(low: Lowering) -> tuple[int, int, list[Node]]:
    """Shared memory that (conversions, reductions across waves) of the kernel need: the largest of each kind; and the
    nodes that reduce. Raises ConstraintError, at the op that asks for most, where the chip has less.

    They do not overlap: a wave converts without waiting for others that may still read what it gave them to reduce.
    """
    asks: list[tuple[int, Node]] = []
    """Bytes that a wave's conversions take, with the ops that convert; those of all waves' reductions below."""
    reductions: list[tuple[int, Node]] = []
    warpgroup = low.target.wave_size == 4 << WARP_BITS
    layouts = low.inference.layouts
    pairs = [
        (layouts[user.inputs[position].id], wanted, user.inputs[position].dtype, user)
        for user in low.graph.all_nodes()
        for position in range(len(user.inputs))
        if user.inputs[position].op not in MADE_ANYWHERE
        and not (position in index_positions(user) and is_tile(low.graph, user))
        and not (user.op == "mma" and position in sliced_positions(low, user))
        and (wanted := low.inference.demands.get((user.id, position))) is not None
    ]
    for n in low.graph.all_nodes():
        if n.op in ROWS and (ROWS[n.op].index_rule == "project" or n.op in ("scan", "cumsum")):
            d = str(n.attrs["dim"])
            source = low.inference.operand_layout(n, 0)
            projected = source.project(d)
            kept = source if n.op in ("scan", "cumsum") else projected
            if not isinstance(n.type, tuple):
                pairs.append((kept, layouts[n.id], n.dtype, n))
            pairs += [(low.inference.operand_layout(n, i), source, x.dtype, n) for i, x in enumerate(n.inputs[1:], 1)]
            left = _reducing_bytes(low, n, source, projected)
            if left:
                reductions.append((left, n))
        elif n.op.startswith("atomic_") and low.users().get(n.id) and (low.partition.waves > 1 or warpgroup):
            lanes = low.target.wave_size * low.partition.waves
            reductions.append((layouts[n.id].elements_per_lane * lanes * max(4, n.dtype.bits // 8), n))
        elif n.op in PRODUCTS and (plan := low.inference.mmas[n.id]).spread is None and low.plans[plan.k].waves > 1:
            words = min(plan.atom.d_words, SUMMED_WORDS)
            reductions.append((words * 4 * low.target.wave_size * low.partition.waves, n))
        elif n.op == "sort":
            pairs.append((low.inference.operand_layout(n, 0), layouts[n.id], n.dtype, n))
        elif n.op == "result" and n.inputs[0].op in ("reduce", "scan"):
            source = low.inference.operand_layout(n.inputs[0], 0)
            kept = source if n.inputs[0].op == "scan" else source.project(str(n.inputs[0].attrs["dim"]))
            pairs.append((kept, layouts[n.id], n.dtype, n))
        elif n.op == "result" and n.inputs[0].op == "topk":
            sort = n.inputs[0]
            along, k = str(sort.attrs["dim"]), str(sort.attrs["k"])
            row = low.inference.operand_layout(sort, 0)
            pairs.append((leading_layout(row, along, k, low.plans[k].tile), layouts[n.id], n.dtype, n))
        elif n.op in ("extract", "shuffle"):
            alone, shared = pick_bytes(low, n)
            asks.append((alone, n))
            if shared:
                reductions.append((shared * low.partition.waves, n))
        elif n.op == "reshape":
            source = low.inference.operand_layout(n, 0)
            between = regroup(low, n, source)
            if between is None:
                asks.append((_regroup_bytes(low, n), n))
            else:
                pairs += [(source, between[0], n.dtype, n), (between[1], layouts[n.id], n.dtype, n)]
    for source, wanted, dtype, n in pairs:
        if route(source, wanted, dtype)[0].kind == "shared memory":
            asks.append((tile_bytes(source, wanted, dtype), n))
    converted = _most(low, [(low.partition.waves * size, n) for size, n in asks])
    return converted, _most(low, reductions), [n for _, n in reductions]


def _most(low: Lowering, asks: list[tuple[int, Node]]) -> int:
    """The most bytes that any of these ops takes, in whole lines of 128. Raises ConstraintError where the chip has
    less."""
    size, n = max(asks, key=lambda a: a[0], default=(0, None))
    if n is not None and size > low.target.shared_bytes and not low.partition.shared_rows:
        waves = low.partition.waves
        raise ConstraintError(
            f"{n.op} exchanges {size} bytes between the lanes of {waves} wave{'s' * (waves > 1)}, through shared "
            f"memory; a workgroup of {low.target.name} has {low.target.shared_bytes}", n.loc,
            "smaller tiles of its dimensions; those that have no constraint are in every wave as a whole",
        )  # fmt: skip
    return -(-size // 128) * 128


def _regroup_bytes(low: Lowering, n: Node) -> int:
    """Bytes of one wave's tile of a reshape that goes through shared memory."""
    tile = prod(low.plans[str(d)].wave for d in n.inputs[0].dims)
    return -(-tile * max(4, n.dtype.bits // 8) // 16) * 16


def _reducing_bytes(low: Lowering, n: Node, source: Layout, projected: Layout) -> int:
    """Shared memory in which all waves leave each other what they hold of a reduction or scan."""
    d, lanes, waves = str(n.attrs["dim"]), low.target.wave_size, low.partition.waves
    if n.op in OPS and left_to_the_next(low, n):
        return 0
    along = [str(x.attrs["dim"]) for x in together(low, n)] if n.op in OPS else [d]
    words = [max(1, x.dtype.bits // 32) for x in n.inputs] + [1] * (n.op in ("argmax", "argmin"))
    far = bool(high_lanes(moving_lanes(source, [d]), lanes))
    kept = None if far or n.op in ("scan", "cumsum") else moving_lanes(projected, projected.dims)
    meetings = [Meeting.of(lanes, low.plans[x].waves, waves, kept) for x in along if low.plans[x].waves > 1 or far]
    return projected.elements_per_lane * max((sum(map(m.bytes, words)) for m in meetings), default=0)
