"""Packed arrays as the memory sees them: units of whole bytes, each a fixed number of neighbouring elements.

In: a packed array (elements of 4 or 6 bits, along its last dimension), the layout of a value, the plans. Out: the same
three for an array of *units*, which every access handles like any other element: the packed dimension counts units, a
layout loses the register bits inside a unit.

A unit of 4-bit elements is a byte; one of 6-bit elements is 16 of them in 3 words. Both are the densest form, also of
a matrix operand, so a unit's words go into a matrix instruction as they are. `transposed` units are what the
transposing reads of gfx950 exchange among 16 lanes: 16 elements along the array's last dimension become 16 along
another.

Invariant: a unit never straddles a tile, a wave's share or an extent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from wavedsl.ir.addresses.access import Position
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.dtypes import DType, i4, u4, u8
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, I32, Value
from wavedsl.ir.layouts.bits import Bits, bit, kind_of, number_of
from wavedsl.ir.layouts.fragment import Fragment, from_words
from wavedsl.ir.layouts.layout import Digit, Layout
from wavedsl.ir.quick_dataclass import dataclass

WORDS_OF_SIX = 3
"""Words of 16 elements of 6 bits."""


@cache
def unit_dtype(bits: int) -> DType:
    """The element type of units of so many bits: nothing is computed in it."""
    return DType(f"unit{bits}", bits, "uint", np.uint8)


def unit_elements(dtype: DType) -> int:
    """Elements of one unit."""
    return 2 if dtype.bits == 4 else 16


def unit_bytes(dtype: DType) -> int:
    """Bytes of one unit."""
    return unit_elements(dtype) * dtype.bits // 8


@dataclass(frozen=True)
class PackedView:
    """How a read or write sees a packed array. `group` elements of `dim` are one unit."""

    info: ArrayInfo
    layout: Layout
    plans: Mapping[str, DimPlan]
    dim: str
    group: int
    atom: str = ""
    """The transposing read that serves the layout; empty: plain vectors."""
    half: int | None = None
    """The lane bit that says which half of each unit's byte a lane's element is; None: a lane has all of a unit."""

    @property
    def dtype(self) -> DType:
        return self.info.dtype

    def position(self, b: Builder, at: Position) -> Position:
        """Where a tile lies, counted in units."""
        return Position(self._counted(b, at.base), self._counted(b, at.wave))

    def _counted(self, b: Builder, at: Mapping[str, Any]) -> dict[str, Any]:
        return {d: quotient(b, v, self.group) if d == self.dim else v for d, v in at.items()}

    def extents(self, b: Builder, extents: Sequence[Any]) -> list[Any]:
        return [quotient(b, n, self.group) if d == self.dim else n for d, n in zip(self.info.names, extents)]

    def strides(self, strides: Sequence[Any]) -> list[Any]:
        size = self.dtype.bytes
        return [size if d == self.dim else s for d, s in zip(self.info.names, strides)]


def quotient(b: Builder, v: Any, group: int) -> Any:
    """A multiple of `group`, divided by it."""
    return v // group if isinstance(v, int) else b.udiv(v, group)


def unit_layout(layout: Layout, dim: str, group: int) -> Layout | None:
    """The layout in units of `group` elements along `dim`; None where a unit's elements are not neighbours in the
    registers of one lane, lowest first."""
    if dim not in layout.dims:
        return None
    low = group.bit_length() - 1
    inner = layout.inner
    coordinate = dict(zip(inner.ins, inner.coordinate_columns(dim)))
    gone = [bit("e", i) for i in range(low)]
    for i, e in enumerate(gone):
        alone = coordinate.get(e) == 1 << i and inner.column(e).bit_count() == 1
        if not alone or any(c >> i & 1 for b, c in coordinate.items() if b != e):
            return None
    return _narrowed(layout, inner.without(gone), dim, low)


def transposed_layout(layout: Layout, dim: str, group: int) -> Layout | None:
    """The layout in units of `group` elements along `dim` of which the lanes of a group of as many hold one each,
    and as many along another dimension in registers: every lane then supplies the unit of its own row. None where the
    lanes lie otherwise.

    A lane bit i that drives bit i of `dim` reads row bit i instead: what register bit i drives.
    """
    low = group.bit_length() - 1
    inner = layout.inner
    cols = dict(zip(inner.ins, inner.cols))
    coordinate = dict(zip(inner.ins, inner.coordinate_columns(dim)))
    gone = [bit("e", i) for i in range(low)]
    for i, e in enumerate(gone):
        lane = bit("l", i)
        if e not in cols or coordinate[e] or cols[e].bit_count() != 1:
            return None
        if coordinate.get(lane) != 1 << i or cols[lane].bit_count() != 1:
            return None
        if any(c >> i & 1 for b, c in coordinate.items() if b != lane):
            return None
        cols[lane] = cols[e]
    rest = [b for b in inner.ins if b not in gone]
    return _narrowed(layout, Bits(rest, inner.outs, [cols[b] for b in rest]), dim, low)


def halved_layout(layout: Layout, dim: str) -> tuple[Layout, int] | None:
    """(the layout in units of two elements along `dim` where neighbours lie in two lanes, both of which hold their
    unit; the lane bit that tells them apart). None where they lie otherwise."""
    if dim not in layout.dims:
        return None
    inner = layout.inner
    odd = [(x, whole) for x, whole, c in zip(inner.ins, inner.cols, inner.coordinate_columns(dim)) if c & 1]
    if len(odd) != 1 or kind_of(odd[0][0]) != "l" or odd[0][1].bit_count() != 1:
        return None
    return _narrowed(layout, inner, dim, 1, registers=False), number_of(odd[0][0])


def _narrowed(layout: Layout, inner: Bits, dim: str, low: int, registers: bool = True) -> Layout:
    """The layout without the `low` lowest bits of a dimension, its registers numbered from 0 where these bits were
    theirs."""
    keep = [j for j, o in enumerate(inner.outs) if kind_of(o) != dim or number_of(o) >= low]
    outs = [bit(dim, number_of(o) - low) if kind_of(o) == dim else o for o in (inner.outs[j] for j in keep)]
    cols = [sum((c >> j & 1) << n for n, j in enumerate(keep)) for c in inner.cols]
    ins = [bit("e", number_of(b) - low) if kind_of(b) == "e" and registers else b for b in inner.ins]
    digits = tuple(Digit(g.kind, g.extent, g.dim, g.stride) for g in layout.digits)
    extents = tuple((d, n >> low if d == dim else n) for d, n in layout.extents)
    return Layout(Bits(ins, outs, cols), digits, extents)


def packed_view(
    info: ArrayInfo, layout: Layout, plans: Mapping[str, DimPlan], *, transposing: Mapping[int, str] | None = None,
    load: bool = False,
) -> PackedView | None:  # fmt: skip
    """How a value in `layout` moves to or from a packed array; None where its elements do not lie in units.

    `transposing`: by width of an element in bits, the name of the chip's transposing read. `load`: several lanes may
    have a unit. Raises ConstraintError where a tile, a wave's share or the extent is no whole number of units.
    """
    dtype, dim = info.dtype, info.names[-1]
    group, atom, half = unit_elements(dtype), "", None
    view = unit_layout(layout, dim, group)
    halved = halved_layout(layout, dim) if view is None and load and dtype.bits == 4 else None
    if view is None and transposing and dtype.bits in transposing and (halved is None or _fill(info, plans, 16)):
        group, atom = 16, transposing[dtype.bits]
        view = transposed_layout(layout, dim, group)
    if view is None and halved is not None:
        group, atom = 2, ""
        view, half = halved
    if view is None:
        return None
    check_units(info, plans, group)
    return PackedView(unit_info(info, group), view, unit_plans(plans, dim, group), dim, group, atom, half)


def _fill(info: ArrayInfo, plans: Mapping[str, DimPlan], group: int) -> bool:
    try:
        check_units(info, plans, group)
    except ConstraintError:
        return False
    return True


def check_units(info: ArrayInfo, plans: Mapping[str, DimPlan], group: int) -> None:
    """Raise ConstraintError where units of `group` elements do not fill tiles, shares of waves and the extent."""
    dim, dtype = info.names[-1], info.dtype
    plan = plans[dim]
    multiple = info.extent_multiple(len(info.dims) - 1)
    given = f"an extent of {plan.extent}" if plan.extent is not None else "a run-time extent"
    if plan.role != "index" and multiple % group:
        raise ConstraintError(
            f"argument {info.name}: {given} elements along {dim} is no known multiple of the {group} {dtype} that are "
            "moved together",
            hint=f"pad {dim} to a multiple of {group}",
        )
    if dim in info.moved:
        raise ConstraintError(
            f"argument {info.name}: packed {dtype} cannot be read from any element along {dim} on",
            hint=f"begin and end at numbers that are known here, each a multiple of {group}, or move the tile along "
            "another dimension",
        )
    for size, what in ((plan.tile, "tile"), (plan.wave, "share of a wave")):
        if plan.role != "index" and size % group:
            raise ConstraintError(
                f"argument {info.name}: the {what} of {size} elements along {dim} is no multiple of the {group} "
                f"{dtype} that are moved together",
                plan.loc,
                hint=f"make it a multiple of {group}",
            )


def unit_plans(plans: Mapping[str, DimPlan], dim: str, group: int) -> dict[str, DimPlan]:
    plan = plans[dim]
    extent = None if plan.extent is None else plan.extent // group
    scaled = replace(plan, extent=extent, tile=plan.tile // group, wave=plan.wave // group)
    return {d: scaled if d == dim else p for d, p in plans.items()}


def unit_info(info: ArrayInfo, group: int) -> ArrayInfo:
    """The array of units."""
    last = len(info.dims) - 1
    dtype = unit_dtype(group * info.dtype.bits)
    extents = tuple(n // group if i == last and n is not None else n for i, n in enumerate(info.extents))
    strides = tuple(dtype.bytes if i == last else s for i, s in enumerate(info.strides))
    multiples = info.extent_multiples and (
        *info.extent_multiples[:-1], max(1, info.extent_multiples[-1] // group)
    )  # fmt: skip
    return replace(info, dtype=dtype, extents=extents, strides=strides, extent_multiples=multiples)


def unit_words(dtype: DType) -> int:
    """Words of one unit (0: several units share a word)."""
    return dtype.bits // 32


# ---- registers: units and single elements ----------------------------------------------------------------------------


def spread(b: Builder, layout: Layout, dtype: DType, dense: Sequence[Value]) -> Fragment:
    """A value from its densely packed words."""
    if dtype.bits != 6:
        return from_words(b, layout, dtype, dense)
    words = []
    for first in range(0, len(dense), WORDS_OF_SIX):
        a, c, d = (b.bitcast(w, I32) for w in dense[first : first + WORDS_OF_SIX])
        for four in (
            b.and_(a, 0xFFFFFF),
            b.or_(b.lshr(a, 24), b.and_(b.shl(c, 8), 0xFFFF00)),
            b.or_(b.lshr(c, 16), b.and_(b.shl(d, 16), 0xFF0000)),
            b.lshr(d, 8),
        ):
            word = b.and_(four, 0x3F)
            for i in (1, 2, 3):
                word = b.or_(word, b.and_(b.shl(four, 2 * i), 0x3F << 8 * i))
            words.append(b.bitcast(word, B32))
    return from_words(b, layout, dtype, words)


def halves(b: Builder, lane_bit: int, dtype: DType, bytes: Sequence[tuple[Value, int]]) -> Value:
    """A word of 4-bit elements, each the lane's half of a byte: given as (loaded words, number of the byte in them)."""
    shift = b.shl(b.and_(b.lshr(b.lane(), lane_bit), 1), 2)
    elements: list[Value] = []
    for loaded, position in bytes:
        word = b.bitcast(b.slice(loaded, position // 4) if loaded.type.n > 1 else loaded, I32)
        if dtype is i4:
            elements.append(b.ashr(b.shl(word, b.sub(28 - position % 4 * 8, shift)), 28))
        else:
            lower = b.and_(b.lshr(word, shift), 0x0F0F0F0F)
            elements.append(b.unpack(b.bitcast(lower, B32), u8, position % 4))
    elements += [b.i32(0)] * (8 - len(elements))
    return b.pack(elements, dtype if dtype.is_int else u4)  # codes, whatever they mean


def dense_words(b: Builder, value: Fragment) -> list[Value]:
    """A value's elements without gaps: 16 elements of 6 bits in 3 words."""
    words = value.words(b)
    if value.dtype.bits != 6:
        return words
    out = []
    for first in range(0, len(words), 4):
        fours = []
        for w in words[first : first + 4]:
            bits = b.bitcast(w, I32)
            four = b.and_(bits, 0x3F)
            for i in (1, 2, 3):
                four = b.or_(four, b.and_(b.lshr(bits, 2 * i), 0x3F << 6 * i))
            fours.append(four)
        p, q, r, s = fours
        out += [b.or_(p, b.shl(q, 24)), b.or_(b.lshr(q, 8), b.shl(r, 16)), b.or_(b.lshr(r, 16), b.shl(s, 8))]
    return [b.bitcast(w, B32) for w in out]


def unit_fragment(b: Builder, view: PackedView, value: Fragment) -> Fragment:
    """A value as units, for a store."""
    words, per = dense_words(b, value), unit_words(view.dtype)
    if per > 1:
        words = [b.vec(*words[i : i + per]) for i in range(0, len(words), per)]
    return Fragment(view.layout, view.dtype, list(words), list(words))


__all__ = [
    "PackedView", "check_units", "dense_words", "halved_layout", "halves", "packed_view", "quotient", "spread",
    "transposed_layout", "unit_elements", "unit_fragment", "unit_info", "unit_layout", "unit_words",
]  # fmt: skip
