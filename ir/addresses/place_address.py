"""The byte of an element in a place of shared memory, in ops: coordinates of lanes and constants by the swizzle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wavedsl.ir.addresses.access import Columns
from wavedsl.ir.addresses.coordinates import total
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.layouts.bit_columns import combine_columns
from wavedsl.ir.layouts.place import Place


def place_address(
    b: Builder, place: Place, lanes: Mapping[str, Any], fixed: Mapping[str, int], columns: Columns | None = None
) -> Any:
    """Byte in a slot of an element at lane part + constant part: constants leave the swizzle where they commute with
    it. `columns`: the lane part by bits, where it is known."""
    if columns is not None:
        by_bits = _address_by_bits(b, place, columns, fixed)
        if by_bits is not None:
            return by_bits
    window = place.window
    outside = 0
    inside = dict(fixed)
    linear_fixed = place.linear_address({d: fixed.get(d, 0) for d in place.dims})
    if (not place.xor or linear_fixed % window == 0) and not _carries(place, lanes, fixed):
        outside, inside = linear_fixed, {}
    address: Any = 0
    for p in place.pieces:
        part = lanes.get(p.dim, 0)
        add = inside.get(p.dim, 0)
        coordinate = total(b, [part, add])
        if isinstance(coordinate, int):
            address = total(b, [address, coordinate // p.low % p.extent * p.stride])
            continue
        whole = place.extents[p.dim]
        if p.low > 1:
            coordinate = b.udiv(coordinate, p.low)
        if p.low * p.extent < whole:
            coordinate = b.urem(coordinate, p.extent)
        address = total(b, [address, b.mul(coordinate, p.stride)])
    if place.xor and not isinstance(address, int):
        for bits, m, shift in place.xor:
            picked = b.shl(b.and_(b.lshr(address, m + shift), (1 << bits) - 1), m)
            address = b.xor(address, picked)
    elif place.xor:
        address = place.swizzle(address)
    return total(b, [address, outside])


def _carries(place: Place, lanes: Mapping[str, Any], fixed: Mapping[str, int]) -> bool:
    """Whether a lane part and its constant may have a bit in common along a dimension that is cut in pieces: their sum
    then lies elsewhere than the sum of their addresses."""
    for d in {p.dim for p in place.pieces}:
        part, constant = lanes.get(d, 0), fixed.get(d, 0)
        cuts = sum(p.dim == d for p in place.pieces)
        bits = part if isinstance(part, int) else ~part.zeros
        if cuts > 1 and bits & constant:
            return True
    return False


def _address_by_bits(b: Builder, place: Place, columns: Columns, fixed: Mapping[str, int]) -> Any:
    """The same as one expression of the thread's bits; None where a bit or a constant carries into another."""
    if any(p.low & (p.low - 1) or p.extent & (p.extent - 1) for p in place.pieces):
        return None
    width = max(len(c) for c in columns.by_dim.values())
    steps = [
        place.linear_address({d: columns.by_dim[d][i] if d in columns.by_dim else 0 for d in place.dims})
        for i in range(width)
    ]
    whole = place.linear_address({d: fixed.get(d, 0) for d in place.dims})
    for p in place.pieces:  # lanes and constants in one digit must not carry into the next piece
        reach = sum(c // p.low % p.extent for c in columns.by_dim.get(p.dim, ()))
        if reach + fixed.get(p.dim, 0) // p.low % p.extent >= p.extent:
            return None
    if not place.xor:
        return total(b, [combine_columns(b, steps, columns.source), whole])
    outside = whole - whole % place.window
    inside = whole - outside
    seen = inside
    for step in steps:
        if step & seen:
            return None
        seen |= step
    swizzled = [place.swizzle(step) for step in steps]
    address = combine_columns(b, swizzled, columns.source, xor=True)
    reach = 0
    for c in swizzled:
        reach |= c
    constant = place.swizzle(inside)
    if constant & reach:
        address = b.xor(address, constant & reach) if not isinstance(address, int) else address ^ (constant & reach)
    return total(b, [address, (constant & ~reach) + outside])
