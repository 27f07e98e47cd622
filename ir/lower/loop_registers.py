"""Registers of a wave in a loop: what loads may hold beside what is carried, and operands for which none are left."""

from __future__ import annotations

from collections.abc import Sequence

from wavedsl.ir.cuts.register_file import ADDRESSES
from wavedsl.ir.dataflow.graph import PRODUCTS, Node, Region, region_nodes
from wavedsl.ir.dataflow.views import is_tile
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.fragment import register_count
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.schedule.steps import Key
from wavedsl.ir.target import wave_room


def captured_tiles(low: Lowering, region: Region) -> list[Node]:
    """Values with dimensions that are made outside a region and stay in registers for it."""
    inside = {x.id for x in region_nodes(region)}
    used = {y.id: y for x in region_nodes(region) for y in x.inputs if y.id not in inside and y.dims}
    return [y for y in used.values() if low.keys(y)]


def room_for_loads(low: Lowering, carried: Sequence[tuple[Key, Value]]) -> int:
    """Registers that loads may hold beside the loop's carried values, at the occupancy of one workgroup; some stay free
    for addresses."""
    return wave_registers(low) - sum(v.type.words for _, v in carried) - ADDRESSES


def wave_registers(low: Lowering) -> int:
    """Registers of a lane at the occupancy of one workgroup."""
    return wave_room(low.target, low.partition.waves)


def scarce_registers(low: Lowering, region: Region, once: Sequence[Node], carried: Sequence[tuple[Key, Value]]) -> int:
    """Registers that loads may hold at the occupancy that shared memory allows, two waves per SIMD at most."""
    target = low.target
    groups = target.shared_bytes // max(1, low.room.top)
    waves = max(1, min(2, groups * low.partition.waves // target.simds))
    products = [n for n in region.nodes if n.op in PRODUCTS and n.id not in {y.id for y in region.yields}]
    others = sum(register_count(low.layout(n), n.dtype) for n in (*products, *once, *captured_tiles(low, region)))
    return target.registers // waves - sum(v.type.words for _, v in carried) - others - ADDRESSES


OPERANDS = 40
"""Registers for what products read next, beside those that stay and addresses: with 39 left causal dK of head sizes 192
and 128 spills on sm_80 (ptxas 13)."""


def kept_in_shared(
    low: Lowering, region: Region, once: Sequence[Node], carried: Sequence[tuple[Key, Value]]
) -> set[int]:
    """Which operands that do not change in a loop stay in shared memory, largest first, where what the loop carries,
    its products' results and all of them are more than a wave's registers. Not on chips that move accumulators to
    registers of their own, and not what matrix instructions read from shared memory themselves."""
    if low.target.accumulators_apart or low.matrix.strategy.bulk:
        return set()
    taken = low.inference.matrix_uses()
    once = [n for n in once if n.id not in taken]
    values = [n for n in region.nodes if n.op in PRODUCTS and n.id not in {y.id for y in region.yields}]
    size = {n: register_count(low.layout(n), n.dtype) for n in (*once, *values)}
    needed = sum(v.type.words for _, v in carried) + sum(size.values()) + ADDRESSES
    found: set[int] = set()
    for n in sorted(once, key=lambda n: (-size[n], n.id)):
        direct = any(u.op in PRODUCTS for u in low.users().get(n.id, ())) and is_tile(low.graph, n)
        if needed + OPERANDS > low.target.registers and direct and low.units(n) is None:
            found.add(n.id)
            needed -= size[n]
    return found
