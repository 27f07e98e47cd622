"""How an extract or a shuffle takes its elements: by registers, by exchanges between lanes or waves, or through memory.

In: the node, the layouts of its operand and its result. Out: which way there is, and the bytes of shared memory that it
takes. `lower_pick` and `wave_picks` emit what is said here.
"""

from __future__ import annotations

from math import prod

from wavedsl.ir.dataflow.graph import Node, xor_of_index
from wavedsl.ir.inference.derived_layout import every_layout, keeps_places, same_layout
from wavedsl.ir.kernel.kernel_ir import PRED
from wavedsl.ir.layouts.bits import kind_of, number_of
from wavedsl.ir.layouts.fragment import register_count, scalar_type
from wavedsl.ir.layouts.lane_gather import LaneGather, lane_gather
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.lowering import Lowering


def lane_bits(layout: Layout, dim: str) -> dict[int, int]:
    """Coordinate bit of `dim` → the lane bit that drives it."""
    columns = zip(layout.inner.ins, layout.inner.coordinate_columns(dim))
    return {c.bit_length() - 1: number_of(x) for x, c in columns if c and kind_of(x) == "l"}


def picked_in_lanes(low: Lowering, source: Layout, layout: Layout, dim: str) -> bool:
    """Whether elements at one place along `dim` are taken without shared memory, by an exchange between lanes."""
    near = all(1 << lane < low.target.shuffle_lanes for lane in lane_bits(source, dim).values())
    return near and source.inner.monomial() and same_layout(source.project(dim), layout)


def gathered_in_lanes(n: Node, source: Layout, layout: Layout) -> LaneGather | None:
    """How a shuffle takes its elements from other lanes; None where it goes through shared memory."""
    kind = scalar_type(n.dtype)
    return lane_gather(source, layout, str(n.attrs["dim"]), 1 if kind is PRED else kind.words)


def swap_mask(low: Lowering, n: Node, source: Layout, layout: Layout) -> int | None:
    """Of a shuffle that takes each element from `index ^ mask`, the mask, where the coordinate's bits in it are each
    driven by a register's, a lane's or a wave's: such elements change places without shared memory, or with all of the
    same lane of another wave."""
    dim, plan = n.attrs["dim"], low.plans[str(n.attrs["dim"])]
    whole = xor_of_index(n.inputs[1], dim)
    if whole is None or not source.inner.monomial():
        return None
    mask = whole
    if plan.waves > 1:
        if plan.wave & (plan.wave - 1) or plan.waves & (plan.waves - 1) or mask >= plan.tile:
            return None
        mask %= plan.wave
    if mask >> source.inner.width(str(dim)):  # beyond the box there are registers, by number
        places = dict(source.extents)[str(dim)]
        if places & (places - 1) or mask >= places or any(g.kind != "reg" for g in source.digits if g.dim == str(dim)):
            return None
    lanes = [lane for bit, lane in lane_bits(source, str(dim)).items() if mask >> bit & 1]
    near = all(1 << lane < low.target.shuffle_lanes for lane in lanes)
    return whole if near and same_layout(source, layout) else None


def pick_bytes(low: Lowering, n: Node) -> tuple[int, int]:
    """Bytes of shared memory that an extract or shuffle takes per wave: for exchanges of a wave's lanes, and of
    waves."""
    source, layout, plan = low.inference.operand_layout(n, 0), low.layout(n), low.plans[str(n.attrs["dim"])]
    kind = scalar_type(n.dtype)
    cell, spread = 4 if kind is PRED else 4 * kind.words, plan.waves > 1
    tile = -(-prod(size for _, size in source.extents) * cell // 16) * 16
    if n.op == "shuffle":
        mask = swap_mask(low, n, source, layout)
        if mask is not None:
            words = -(-register_count(source, n.dtype) * cell // 16) * 16
            return 0, words * source.lanes if spread and mask >= plan.wave else 0
        if spread:
            return 0, tile
        return 0 if gathered_in_lanes(n, source, layout) is not None else tile, 0
    if keeps_places(n, low.partition):
        mine = every_layout(source, n)
        return 0 if mine is not None and same_layout(mine, layout) else tile, 0
    if n.attrs["new"] is not None:
        return (0, tile) if spread else (tile, 0)
    near = picked_in_lanes(low, source, layout, str(n.attrs["dim"]))
    return 0 if near else tile, layout.elements_per_lane * cell * layout.lanes if spread else 0
