"""Accesses through an `IndexMapping`: gathers, scatters and atomics.

In: a node with a mapping, the layout of its value, the fragments of its indices. Out: per group of elements the offset
into the array and whether the access happens. The coordinate along each dimension of the array is an expression over
the value's own indices, or a traced integer; one that may lie outside of the array is compared with its extent.

A group is as many elements as one access serves: neighbours along the array's contiguous dimension, as many as
`mapped_runs` finds side by side. A load may serve several elements with each that it brings (`Groups.repeats`): what is
loaded keeps the array's order, and elements are taken from it where they are computed with (`Repeated`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import Any, NamedTuple

import sympy
from wavedsl.ir.addresses.access import whole_buffer
from wavedsl.ir.addresses.coordinates import offset_of, scaled, total
from wavedsl.ir.addresses.lower_index import IndexLowering
from wavedsl.ir.addresses.mapped_runs import counted_along, longest_run, longest_stay, resolved, run_length, unit_dim
from wavedsl.ir.addresses.move_elements import gather_words, sub_word
from wavedsl.ir.addresses.packed_view import (
    PackedView,
    quotient,
    unit_bytes,
    unit_elements,
    unit_fragment,
    unit_info,
    unit_layout,
    unit_plans,
)
from wavedsl.ir.addresses.run_time_strides import wide_stride
from wavedsl.ir.addresses.vectors import element_groups, vector_elements
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.dataflow.graph import Mapping as ResolvedMapping
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dtypes import u4
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.kernel_ir import I32, I64, Value
from wavedsl.ir.layouts.bits import number_of
from wavedsl.ir.layouts.fragment import Fragment, from_elements, from_words, per_register
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.lower_values import aligned_elements, index_elements, inside_masks, one_writer, operand
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.schedule.steps import Context
from wavedsl.ir.symbols import dim_name, free_names


def mapping_of(low: Lowering, n: Node) -> ResolvedMapping:
    """The node's mapping, as `resolved`."""
    return resolved(low.graph, n)


def mapped_units(low: Lowering, n: Node, layout: Layout) -> PackedView | None:
    """How a gather or scatter moves whole units of a packed array where its value has this layout; None where its
    elements come one by one, or may end inside a unit."""
    info = low.arrays[n.attrs["memory"]]
    group, last = unit_elements(info.dtype), len(info.dims) - 1
    along = unit_dim(low.graph, n, group, layout.dims)
    view = None if along is None else unit_layout(layout, along, group)
    if along is None or view is None:
        return None
    plan = low.plans[along]
    ends = info.extent_multiple(last), 0 if info.names[last] == along else extent_multiple(low, along)
    if any(size % group for size in (*ends, plan.tile, plan.wave)):
        return None
    units = unit_info(info, group)
    units = replace(units, dims=tuple(_symbol(along) if i == last else d for i, d in enumerate(info.dims)))
    return PackedView(units, view, unit_plans(low.plans, along, group), along, group)


def _symbol(dim: str) -> Any:
    return sympy.Symbol(dim, integer=True, nonnegative=True)


def halves(low: Lowering, n: Node, bytes: Sequence[Value], context: Context) -> Fragment:
    """The value of such a read from its bytes, one per element."""
    b, layout = low.b, low.layout(n)
    access = MappedAccess(low, n, layout, context, store=False)
    last = len(access.info.dims) - 1
    elements = []
    for e, byte in enumerate(bytes):
        where, _ = access.coordinate(last, e)
        shift = b.shl(b.and_(where, 1), 2)
        elements.append(b.and_(b.lshr(b.bitcast(byte, I32), shift), 0xF))
    return from_words(b, layout, n.dtype, from_elements(b, layout, u4, elements).words(b))  # codes, whatever they mean

class Groups(NamedTuple):
    """`width`: elements of the array per access. `groups`: the elements of the value behind each access, of which
    `repeats` neighbours are the same element of the array."""

    width: int
    groups: list[tuple[int, ...]]
    repeats: int


def mapped_groups(low: Lowering, n: Node, layout: Layout, store: bool) -> Groups:
    """Which accesses there are; those of stores and atomics do not repeat."""
    key = n.id, id(layout), store
    if key not in low.mapped:
        low.mapped[key] = layout, _groups(low, n, layout, store)
    return low.mapped[key][1]


def _groups(low: Lowering, n: Node, layout: Layout, store: bool) -> Groups:
    if low.arrays[n.attrs["memory"]].dtype.packed:
        unit = mapped_units(low, n, layout)
        if unit is None:
            return Groups(1, element_groups(layout, ()), 1)
        width, bits = _units_of_vector(low, n, unit)
        return Groups(width, element_groups(unit.layout, bits), 1)
    width, bits, repeats = _vector(low, n, layout, store)
    return Groups(width // repeats, element_groups(layout, bits), repeats)


def _units_of_vector(low: Lowering, n: Node, unit: PackedView) -> tuple[int, tuple[int, ...]]:
    """(units per access, the element bits of their layout that it covers)."""
    coords, c = mapping_of(low, n).coords, len(unit.info.dims) - 1
    others = [x for x in coords[:c] if not isinstance(x, int)]
    width, bits = vector_elements(unit.info, unit.layout, unit.plans)
    if dim_name(coords[c]) != low.arrays[n.attrs["memory"]].names[c]:  # as in `_vector`
        longest = run_length(coords[c], others, unit.info.dims[c]) // unit.group
        width = gcd(width, unit.info.extent_multiple(c), longest, extent_multiple(low, unit.dim) // unit.group)
        width &= -width
    return width, bits[: width.bit_length() - 1]


def _vector(low: Lowering, n: Node, layout: Layout, store: bool) -> tuple[int, tuple[int, ...], int]:
    """(elements of the value per access, the element bits it covers, how many of them share one of the array)."""
    mapping = mapping_of(low, n)
    info = low.arrays[n.attrs["memory"]]
    c = info.contiguous()
    if c is None:
        return 1, (), 1
    coords = mapping.coords
    others = [x for i, x in enumerate(coords) if i != c and not isinstance(x, int)]
    runs = {
        d: (run_length(coords[c], others, d), 1) if store else longest_run(coords[c], others, d)
        for d in counted_along(n, coords, c, layout.dims)
    }
    along = max(runs, key=lambda d: runs[d][0], default=None)
    if along is None or runs[along][0] == 1:
        return 1, (), 1
    longest, repeats = runs[along]
    name = dim_name(along)
    seen = replace(info, dims=tuple(along if i == c else d for i, d in enumerate(info.dims)))
    width, bits = vector_elements(seen, layout, low.plans, repeats)
    if dim_name(coords[c]) != info.names[c]:
        # The array may end where the value's dimension does not, or begin again; and the other way round: the mask of
        # an access is that of its first element.
        most = gcd(width, info.extent_multiple(c) * repeats, longest, extent_multiple(low, name))
        most &= -most
        width, bits = most, bits[: most.bit_length() - 1]
    return width, bits, min(repeats, width)


def extent_multiple(low: Lowering, dim: str) -> int:
    """What a dimension's extent is known to be a multiple of; 0 where no tile sticks out of it."""
    plan = low.plans[dim]
    if plan.extent is not None:
        return plan.extent if plan.ragged else 0
    known = [info.extent_multiple(i) for info in low.arrays.values() for i, d in enumerate(info.names) if d == dim]
    return max(known, default=1)


class MappedAccess:
    """One array seen through a mapping: offsets and masks of the elements of `layout`."""

    def __init__(self, low: Lowering, n: Node, layout: Layout, context: Context, *, store: bool):
        b = self.b = low.b
        self.low, self.layout = low, layout
        self.info, extents, strides = low.array(n.attrs["memory"])
        if self.info.dtype.packed:
            _check_packed(low, n, layout, self.info)
        self.far = self.info.far
        self.mapping = mapping_of(low, n)
        self.extents, self.strides = extents, strides
        if self.far:
            self.strides = [wide_stride(b, self.info, i) for i in range(len(strides))]
        self.packed = unit_elements(self.info.dtype) if self.info.dtype.packed else 0
        """Elements of a unit of a packed array; 0: of none."""
        if self.packed:
            self.strides[-1] = unit_bytes(self.info.dtype)
        self._buffer = None if self.far else whole_buffer(b, self.info, extents)
        spread = low.inference.spread.get(n.id)
        self.starts: dict[str, Value] = {}
        """Where the value starts in what a wave has of a tile."""
        if spread is not None:  # each of the waves that share another dimension has a part of this one
            self.starts[dim_name(spread.dim)] = scaled(b, low.wave_digit[dim_name(spread.over)], spread.share)
        self.context = context
        self.own: dict[tuple[str, int], list[Value]] = {}
        self.alike: dict[tuple[Any, str], int] = {}
        self.base = low.base_at(context.iteration)
        self.columns: dict[int, tuple[Fragment, list[int]]] = {}
        for c in self.mapping.coords:
            if isinstance(c, int):
                index = operand(low, n, c, context)
                self.columns[c] = index, aligned_elements(n.inputs[c], index, layout)
        self.inputs = n.inputs
        self.inside = [
            inside_masks(low, layout, d, context, self.starts.get(d, 0))
            for d in layout.dims
            if low.plans[d].ragged or dict(layout.extents)[d] > low.plans[d].wave
        ]
        self.first = b.true
        if store:
            mask = sum(1 << number_of(x) for x in layout.replica_bits("l"))
            self.first = b.cmp("eq", b.and_(b.lane(), mask), 0) if mask else b.true
        self.symbols = symbols_of(low)
        coords = self.mapping.coords
        self.plain = [not isinstance(c, int) and dim_name(c) == name for c, name in zip(coords, self.info.names)]
        """Whether a coordinate is the array's own dimension."""
        self.known: dict[Any, Value] = {}

    @property
    def buffer(self) -> Value:
        assert self._buffer is not None, "far elements are in no buffer"
        return self._buffer

    def coordinate(self, i: int, element: int) -> tuple[Value, Value]:
        """(the coordinate along dimension i of the array as an i32, whether it lies inside the array)."""
        b, c, extent = self.b, self.mapping.coords[i], self.extents[i]
        if isinstance(c, int):
            fragment, column = self.columns[c]
            where = fragment.element(b, column[element])
            limit = b.const(extent, where.type) if isinstance(extent, int) else extent
            if where.type is I64 and limit.type is not I64:
                limit = b.zext(limit)
            inside = b.cmp("ult", where, limit)
            return (b.trunc(where) if where.type is I64 else where), inside
        where = self.expression(c, element)
        if self.plain[i]:
            return where, b.true  # what sticks out is masked with the value's
        return where, b.cmp("ult", where, b.const(extent, I32) if isinstance(extent, int) else extent)

    def expression(self, expr: Any, element: int) -> Value:
        values: dict[str, Any] = {}
        for name in free_names(expr):
            if name in self.layout.dims:
                values[name] = self._index(expr, name)[element]
            elif name in self.base:
                values[name] = self.base[name]
            else:
                values[name] = self.symbols[name]
        key = (expr, tuple(v if isinstance(v, int) else v.id for v in values.values()))
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = IndexLowering(self.b, values)(expr)
        return found

    def _index(self, expr: Any, d: str) -> list[Value]:
        """Per element, its index along d as far as an expression depends on it: that of the first of those that it does
        not tell apart."""
        alike = self.alike.get((expr, d))
        if alike is None:
            alike = self.alike[expr, d] = 1 if self.starts else run_alike(self.low, expr, d, self.layout)
        found = self.own.get((d, alike))
        if found is None:
            found = index_elements(self.low, self.layout, d, self.context, alike)
            if d in self.starts:
                found = [self.b.add(x, self.starts[d]) for x in found]
            self.own[d, alike] = found
        return found

    def operands(self, element: int) -> tuple[Value, Value]:
        """(byte offset from the array's first element, whether the element is accessed)."""
        b = self.b
        mask, terms = self.first, []
        for masks in self.inside:
            mask = b.pand(mask, masks[element])
        for i, stride in enumerate(self.strides):
            where, inside = self.coordinate(i, element)
            mask = b.pand(mask, inside)
            if self.packed and i == len(self.strides) - 1:
                where = quotient(b, where, self.packed)
            if not self.far:
                terms.append(b.mul(where, stride))
                continue
            wide = b.zext(where) if not isinstance(where, int) else b.i64(where)
            terms.append(b.mul(wide, stride))
        offset = total(b, terms) if self.far else offset_of(b, terms)
        return (b.i32(offset) if isinstance(offset, int) else offset), mask


    def load(self, element: int, bytes: int, guard: Value | None, cache: str | None) -> Value:
        """The `bytes` from an element on; 0 where it is not accessed."""
        b = self.b
        offset, mask = self.operands(element)
        if not self.far:
            return b.load_global(
                self.buffer, offset, bytes=bytes, mask=mask, guard=guard, split=False, bounded=True, cache=cache
            )
        mask = mask if guard is None else b.pand(mask, guard)
        first = b.param(self.info.param)
        found = b.load_far(b.add(first, b.select(mask, offset, b.i64(0))), bytes=bytes, cache=cache)
        words = b.elements(found) if found.type.n > 1 else (found,)
        kept = [b.select(mask, w, b.zero(w.type)) for w in words]
        return b.vec(*kept) if len(kept) > 1 else kept[0]

    def atomic(self, offset: Value, how: str, *values: Value, mask: Value) -> Value:
        """Change the word at a byte offset indivisibly; what was there."""
        b = self.b
        if not self.far:
            if (how, values[0].type.kind) not in self.low.target.atomics_at_addresses:
                return b.atomic_global(self.buffer, offset, how, *values, mask=mask)
            offset = b.zext(offset)
        return b.atomic_far(b.add(b.param(self.info.param), offset), how, *values, mask=mask)

    def store(self, element: int, data: Value, bytes: int, guard: Value | None, high: bool, cache: str | None) -> None:
        """Store from an element on."""
        b = self.b
        offset, mask = self.operands(element)
        mask = mask if guard is None else b.pand(mask, guard)
        if self.far:
            address = b.add(b.param(self.info.param), offset)
            b.store_far(address, data, bytes=bytes, mask=mask, high=high, cache=cache)
            return
        b.store_global(
            self.buffer, offset, data, bytes=bytes, mask=mask, high=high, split=False, bounded=True, cache=cache
        )


def run_alike(low: Lowering, expr: Any, d: str, layout: Layout) -> int:
    """For how many neighbours along d, a power of two, a coordinate is that of the first, a multiple of that. So
    `K // 128` in a tile of 64 is one number for all lanes and registers of a row: it is computed once, and if all
    coordinates are so, what lies there is loaded once."""
    w = longest_stay(expr, _symbol(d))
    plan = low.plans[d]
    if plan.role in ("workgroup", "loop"):
        w = gcd(w, plan.tile, plan.wave)
    for g in layout.wave_digits:
        w = gcd(w, layout.step(g)) if g.dim == d else w
    w &= -w
    while w > 1 and not _apart(layout, d, w):
        w //= 2
    return w


def _apart(layout: Layout, d: str, w: int) -> bool:
    """Whether what lanes and registers add to an index below a multiple of w stays below the next one."""
    lanes = 0
    for column in layout.lane_columns(d):
        lanes |= column % w
    axis = layout.dims.index(d)
    return lanes + max(offsets[axis] % w for offsets in layout.element_offsets()) < w


def symbols_of(low: Lowering) -> Mapping[str, Any]:
    """Numbers of symbols that are no dimension of the value: extents, and what `subs` binds."""
    if low.symbols is None:
        found: dict[str, Any] = {dim_name(k): v for k, v in low.graph.subs.items() if isinstance(v, int)}
        for d in map(dim_name, low.partition.dims):
            found.setdefault(d, _Late(low, d))
        low.symbols = _Resolved(found)
    return low.symbols


class _Late:
    def __init__(self, low: Lowering, dim: str):
        self.low, self.dim = low, dim


class _Resolved(dict[str, Any]):
    """Extents are asked for when they are needed: a run-time one is a parameter to load."""

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        return found.low.extent(found.dim) if isinstance(found, _Late) else found


def _check_packed(low: Lowering, n: Node, layout: Layout, info: ArrayInfo) -> None:
    """Raise CompileError for what would change a part of a byte, or take an element of 6 bits by itself."""
    if n.op not in ("read", "write"):
        raise CompileError(f"{n.op} of packed {info.dtype}", n.loc, "use a dtype of whole bytes")
    if mapped_units(low, n, layout) is not None or (n.op == "read" and info.dtype.bits == 4):
        return
    group, dim = unit_elements(info.dtype), info.names[-1]
    raise CompileError(
        f"{n.op} of {info.dtype} through an IndexMapping that takes single elements along {dim}",
        n.loc,
        f"{group} {info.dtype} are moved together: let a dimension of the value with a multiple of {group} elements "
        f"count along {dim}",
    )


def store_mapped(low: Lowering, n: Node, value: Fragment, context: Context) -> None:
    """A scatter: every element to its own place, vectors where neighbours stay neighbours."""
    b = low.b
    width, groups, _ = mapped_groups(low, n, value.layout, True)
    access = MappedAccess(low, n, value.layout, context, store=True)
    guard = one_writer(low, value.layout.dims)
    size, first = access.info.elsize, 1
    unit = mapped_units(low, n, value.layout) if access.packed else None
    if unit is not None:
        value = unit_fragment(b, unit, value)
        size, first = unit.info.elsize, unit.group
    size *= width
    words = value.words(b)
    per = per_register(value.dtype)
    for group in groups:
        high = False
        if size >= 4:
            data = [words[e // per] for e in group[::per]]
            if any(group[i] % per != i % per for i in range(len(group))):
                data = gather_words(b, value, group)
            packed = b.vec(*data) if len(data) > 1 else data[0]
        else:
            packed, high = sub_word(b, value, group)
        access.store(group[0] * first, packed, size, guard, high, n.attrs.get("cache"))


__all__ = ["MappedAccess", "extent_multiple", "mapped_groups", "mapping_of", "store_mapped", "symbols_of"]
