"""The split of an address in shared memory into lane fields, immediates and extra address registers.

Comes in: a `Place`, a load's `Bits`, a layout's digits. Goes out: an `AddressPlan`; an address needs no search,
because it is linear over GF(2) where the strides are powers of two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wavedsl.ir.errors import CompileError
from wavedsl.ir.layouts.bits import Bits, column_fields, kind_of, number_of, xor_all
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.layouts.place import Place
from wavedsl.ir.quick_dataclass import dataclass


@dataclass(frozen=True)
class Field:
    """Part of an address: `((source & mask) << shift) * scale`; a negative shift is to the right."""

    mask: int
    shift: int
    scale: int = 1

    def __call__(self, source: Any) -> Any:
        part = source & self.mask
        return (part << self.shift if self.shift >= 0 else part >> -self.shift) * self.scale


def lane_fields(cols: Sequence[int], xor: bool = True) -> tuple[Field, ...]:
    """Columns of consecutive source bits grouped into few fields, to be combined by XOR (`xor`) or by addition.

    By XOR every address bit of a column is its own (mask, shift); by addition a column is an odd scale times a power of
    two. Wide masks come first. `(l & 15) << 7 ^ (l & 7) << 4 ^ (l & 48)` are three fields.
    """
    fields = [Field(mask, shift, scale) for (shift, scale), mask in column_fields(cols, xor).items()]
    return tuple(sorted(fields, key=lambda f: (-f.mask.bit_count(), -f.shift, f.scale, f.mask)))


@dataclass(frozen=True)
class AddressPlan:
    """An access to a place as address code.

    address(item) = (lane fields ∘ wave fields ^ registers[item.register]) + digit sums + item.immediate, where ∘ is XOR
    when `xor`, else addition. `disjoint`: the fields share no bit, so OR and addition serve as well as XOR. `lane`:
    fields of the lane number; `wave`: fields of the w bits' value; `digits`: per wave digit of the layout either fields
    of its value (`xor` combination) or one field with a scale that is simply added.
    """

    xor: bool
    disjoint: bool
    lane: tuple[Field, ...]
    wave: tuple[Field, ...]
    digits: tuple[tuple[bool, tuple[Field, ...]], ...]
    """(combined by XOR like the lanes, fields) per wave digit."""
    registers: tuple[int, ...]
    """Constants XORed into the lane part: one address register each; 0 alone is the usual case."""
    items: tuple[tuple[int, int], ...]
    """Per requested offset: (index into `registers`, immediate bytes)."""

    def evaluate(self, lane: int, wave: int, digits: Sequence[int], item: int) -> int:
        """The address that the emitted code would compute; for checks."""
        moving = [f(lane) for f in self.lane] + [f(wave) for f in self.wave]
        added = 0
        for (joined, fields), value in zip(self.digits, digits):
            if joined:
                moving += [f(value) for f in fields]
            else:
                added += sum(f(value) for f in fields)
        register, immediate = self.items[item]
        base = (xor_all(moving) if self.xor else sum(moving)) ^ self.registers[register]
        return base + added + immediate


def plan_addresses(
    place: Place,
    address: Bits,
    offsets: Sequence[Mapping[str, int]],
    layout: Layout | None = None,
) -> AddressPlan:
    """Splits an access into lane fields, immediates and extra address registers.

    `address` maps lane bits (l or L) and wave bits to coordinates (a `LoadPlan.address`), `offsets` are the static
    coordinates of each instance, `layout` supplies the wave digits. An offset whose bytes are a multiple of the
    swizzle's window, or whose swizzled bytes miss every bit the lanes and waves reach, is an immediate; the rest shares
    one more address register per distinct pattern. Raises CompileError when offsets carry into bits that lanes use
    under a swizzle.
    """
    kind = "L" if address.count("L") else "l"
    _stays_between_cuts(place, address, offsets, layout)
    cols = dict(zip(address.ins, place.cols(address)))
    xor = place.xor_linear(address)
    window = place.window
    by_number = {number_of(b): cols[b] for b in address.ins if kind_of(b) == kind}
    lane_cols = [by_number.get(i, 0) for i in range(max(by_number, default=-1) + 1)]
    by_number = {number_of(b): cols[b] for b in address.ins if kind_of(b) == "w"}
    wave_cols = [by_number.get(i, 0) for i in range(max(by_number, default=-1) + 1)]
    raw = 0  # bits of the unswizzled address that vary, below the window
    for w, reached in zip(*_reached(place, address)):
        raw |= w if reached else 0
    image = 0
    for c in (*lane_cols, *wave_cols):
        image |= c
    digits: list[tuple[bool, tuple[Field, ...]]] = []
    for g in layout.wave_digits if layout is not None else ():
        step = place.linear_address({d: layout.step(g) * (d == g.dim) for d in place.dims}) if g.stride else 0  # type: ignore[union-attr]
        if not place.xor or step % window == 0:
            digits.append((False, lane_fields([step << i for i in range((g.extent - 1).bit_length())], False)))
            continue
        parts = [step << i for i in range((g.extent - 1).bit_length())]
        if any(p & (p - 1) or p & raw for p in parts):
            raise CompileError(f"{g} steps {step} bytes, which carries into bits that the swizzle reads")
        swizzled = [place.swizzle(p) for p in parts]
        for p, c in zip(parts, swizzled):
            raw, image = raw | p, image | c
        digits.append((True, lane_fields(swizzled)))
    registers: dict[int, int] = {}
    items = []
    pieces = [(p.dim, p.low, p.extent, p.stride) for p in place.pieces]
    for offset in offsets:
        linear = 0
        for dim, cut, extent, stride in pieces:
            linear += offset.get(dim, 0) // cut % extent * stride
        low = linear % window
        if not place.xor or not low:
            pattern, immediate = 0, linear
        else:
            if low & raw:
                raise CompileError(f"an offset of {dict(offset)} carries into bits that the swizzle reads")
            swizzled_low = place.swizzle(low)
            pattern, immediate = swizzled_low & image, (swizzled_low & ~image) + linear - low
        items.append((registers.setdefault(pattern, len(registers)), immediate))
    if not registers:
        registers[0] = 0
    lane, wave = lane_fields(lane_cols, xor), lane_fields(wave_cols, xor)
    used, disjoint = 0, True
    for fields, width in ((lane, len(lane_cols)), (wave, len(wave_cols)), *((f, 6) for j, f in digits if j)):
        for f in fields:
            reach = f((1 << width) - 1)
            disjoint &= f.scale == 1 and not reach & used
            used |= reach
    return AddressPlan(xor, disjoint and len(registers) == 1, lane, wave, tuple(digits), tuple(registers), tuple(items))


def _stays_between_cuts(
    place: Place, address: Bits, offsets: Sequence[Mapping[str, int]], layout: Layout | None
) -> None:
    """Bytes of lanes, waves and offsets add up only if their coordinates never carry across a cut of the place."""
    for dim in place.dims:
        for cut in place.cuts(dim):
            reach = 0
            for c in address.coordinate_columns(dim):
                reach |= c
            total = reach & (cut - 1) if not cut & (cut - 1) else reach
            for g in layout.wave_digits if layout is not None else ():
                if g.dim == dim and g.stride:
                    step = layout.step(g)  # type: ignore[union-attr]
                    total += max(count * step % cut for count in range(g.extent))
            total += max((offset.get(dim, 0) % cut for offset in offsets), default=0)
            if total >= cut:
                raise CompileError(f"coordinates of {dim} carry across the cut at {cut} of {place}")


def _reached(place: Place, address: Bits) -> tuple[tuple[int, ...], list[bool]]:
    """Unswizzled bytes of every coordinate bit, and whether lanes or waves drive it."""
    driven = 0
    for c in address.cols:
        driven |= c
    return place._weights(address)[0], [bool(driven >> j & 1) for j in range(len(address.outs))]
