"""The elements of a value that one access of an array moves: as wide as the array and the layout allow.

In: what is known of the array, the layout of the value, how its dimensions are cut. Out: elements per access, and their
numbers in the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.layouts.bits import REGISTER_KINDS, kind_of
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.symbols import dim_name


def vector_elements(
    info: ArrayInfo, layout: Layout, plans: Mapping[str, DimPlan], repeats: int = 1
) -> tuple[int, tuple[int, ...]]:
    """(elements per access, the element bits one access covers): a power of two up to 16 bytes. `repeats`: neighbours
    of the value that share one element of the array."""
    c = info.contiguous()
    if c is None:
        return 1, ()
    dim = dim_name(info.dims[c])
    if dim not in layout.dims or info.start_multiple(c) == 1:
        return 1, ()
    inner, plan, es = layout.inner, plans[dim], info.elsize
    columns = dict(zip(inner.ins, inner.coordinate_columns(dim)))
    whole = dict(zip(inner.ins, inner.cols))
    limit = gcd(min(info.align, 16) // es, info.start_multiple(c)) * repeats
    for i in range(len(info.dims)):
        if i != c:
            limit = (
                gcd(limit, info.stride_multiple(i) // gcd(info.stride_multiple(i), es) * repeats)
                if (info.stride_multiple(i) % es == 0)
                else repeats
            )
    limit = gcd(limit, gcd(plan.tile, plan.wave)) if plan.role in ("workgroup", "loop") else limit
    padded = dict(layout.extents)[dim] > plan.wave
    if plan.ragged or padded or dim in info.cut:
        limit = gcd(limit, info.extent_multiple(c) * repeats)
    if padded:
        limit = gcd(limit, plan.wave)
    limit = max(limit, 1)
    limit &= -limit
    bits: list[int] = []
    width = 1
    while width < limit:
        step = next(
            (x for x in inner.ins if kind_of(x) == "e" and columns[x] == width and whole[x].bit_count() == 1), None
        )
        if step is None:
            break
        others = [v for x, v in columns.items() if x not in (*bits, step)]
        steps = [layout.step(g) for g in layout.digits if g.dim == dim]
        if any(v % (2 * width) for v in (*others, *steps)):
            break
        bits.append(step)
        width *= 2
    return width, tuple(bits)


def element_groups(layout: Layout, bits: Sequence[int]) -> list[tuple[int, ...]]:
    """Element indices of each access, in memory order; accesses in order of their first element."""
    registers = [x for x in layout.inner.ins if kind_of(x) in REGISTER_KINDS]
    weight = {x: 1 << i for i, x in enumerate(registers)}
    inside = [0]
    for x in bits:
        inside += [y + weight[x] for y in inside]
    mask = sum(weight[x] for x in bits)
    box = 1 << len(registers)
    heads = [h for h in range(box) if not h & mask]
    return [tuple(d * box + h + y for y in inside) for d in range(layout.elements_per_lane // box) for h in heads]
