"""`reshape`: the same elements in row-major order under other dimensions.

Dimensions that both sides list first or last stay as they are; the others are counted again. Where all of them are
powers of two that fill their boxes, a reshape renames bits and moves nothing by itself. Anything else goes through the
wave's part of the scratch buffer, written and read at an element's number in the row-major order.
"""

from __future__ import annotations

from math import prod
from typing import Any

from wavedsl.ir.addresses.access import below
from wavedsl.ir.addresses.coordinates import lane_coordinate, scaled, total
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.reshaped_places import counted_again
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.kernel.kernel_ir import B32, I32, PRED, Value, vector
from wavedsl.ir.layouts.fragment import Fragment, from_elements, from_words, scalar_type
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.exchange import SCRATCH, convert, order, regroup
from wavedsl.ir.lower.lower_values import emitter, operand
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.schedule.steps import Context


@emitter("reshape")
def emit_reshape(low: Lowering, n: Node, layout: Layout, context: Context) -> Fragment:
    b, dtype = low.b, n.dtype
    kept, old, new = changed_dims(low, n)
    value = operand(low, n, 0, context)
    between = regroup(low, n, value.layout)
    if between is not None:
        source, aim = between
        value = value if same_layout(value.layout, source) else convert(low, value, source)
        moved = from_words(b, aim, dtype, value.words(b))
        return moved if same_layout(aim, layout) else convert(low, moved, layout)
    wave = b.wave() if low.partition.waves > 1 else 0
    size = max(1, dtype.bits // 8) if scalar_type(dtype) is not PRED else 4
    base = total(b, [low.room.scratch, scaled(b, wave, low.room.scratch_share)])
    order(low)
    for i, (place, inside) in enumerate(_places(low, value.layout, kept, old)):
        where = total(b, [base, scaled(b, place, size)])
        b.store_shared(where, _raw(low, value, i), bytes=size, mask=inside, buffer=SCRATCH)
    order(low)
    out = []
    for place, inside in _places(low, layout, kept, new):
        where = total(b, [base, scaled(b, place, size)])
        home = b.i32(base) if isinstance(base, int) else base
        safe = b.select(inside, b.i32(where) if isinstance(where, int) else where, home)
        got = b.load_shared(safe, bytes=size, buffer=SCRATCH)
        number = _number(low, got, n)
        out.append(b.select(inside, number, b.zero(number.type)) if number.type is not PRED else b.pand(inside, number))
    return from_elements(b, layout, dtype, out)


def changed_dims(low: Lowering, n: Node) -> tuple[list[str], list[tuple[str, int]], list[tuple[str, int]]]:
    """(dimensions that stay, old ones and new ones with their extents). Raises where the products differ or a workgroup
    or wave holds only a part of a dimension that changes."""
    before, after = [str(d) for d in n.inputs[0].dims], [str(d) for d in n.dims]
    kept, *changed = ([str(d) for d in dims] for dims in counted_again(n))
    extents = {d: low.plans[d].extent for names in changed for d in names}
    whole = all(e is not None for e in extents.values())
    sizes = [[(d, extents[d] or 0) for d in names] for names in changed]
    old, new = sizes
    for d in extents:
        plan = low.plans[d]
        if plan.extent is None or plan.trips not in (0, 1) or plan.waves > 1:
            what = "is spread over workgroups, waves or trips" if plan.extent else "is known at run time only"
            raise CompileError(
                f"reshape of [{', '.join(before)}] to [{', '.join(after)}]: {d} {what}",
                n.loc,
                _help(d, kept, old, new, plan.trips not in (0, 1)) if whole else _AS_A_WHOLE,
            )
    if prod(s for _, s in old) != prod(s for _, s in new):
        raise ConstraintError(
            f"reshape: {' × '.join(f'{d} = {s}' for d, s in old)} elements do not fit "
            f"{' × '.join(f'{d} = {s}' for d, s in new)}",
            n.loc,
            "the products must be equal",
        )
    return kept, old, new


_AS_A_WHOLE = "dimensions that change lie in one wave as a whole; list those that stay first: wd.permute(x, …)"


def _help(d: str, kept: list[str], old: list[tuple[str, int]], new: list[tuple[str, int]], cut: bool) -> str:
    """What to write where a wave has a part of `d`. `cut`: the part is a tile of a workgroup or of a trip."""
    theirs, ours = prod(s for _, s in old), prod(s for _, s in new)
    names = [d for d, _ in new]
    if prod(s for other, s in old if other != d) == ours and d not in names:
        return f"name it in the result as well: wd.reshape(x, {', '.join([*kept, d, *names])})"
    if theirs != ours and cut and d in dict(old):
        place = " + ".join(
            f"wd.index({name})" + (f" * {prod(s for _, s in new[i + 1 :])}" if i + 1 < len(new) else "")
            for i, name in enumerate(names)
        )
        return f"a tile's elements in another shape are read at their places: a[wd.tile_start({d}) + {place}]"
    return _AS_A_WHOLE


def _places(
    low: Lowering, layout: Layout, kept: list[str], sizes: list[tuple[str, int]]
) -> list[tuple[Any, Value]]:
    """Per element, its number in the wave's tile in row-major order, and whether it exists."""
    b = low.b
    strides: dict[str, int] = {}
    step = 1
    for d, n in reversed(sizes):
        strides[d] = step
        step *= n
    for d in reversed(kept):
        strides[d] = step
        step *= low.plans[d].wave
    lanes = total(b, [scaled(b, lane_coordinate(b, layout, d), s) for d, s in strides.items()])
    # What lies past the array in a dimension that stays has its own place in the tile: the first place is always
    # written, so that masked reads have one to go to.
    limits = {**{d: low.plans[d].wave for d in kept}, **dict(sizes)}
    axes = [(a, d) for a, d in enumerate(layout.dims) if dict(layout.extents)[d] > limits[d]]
    out = []
    for offsets in layout.element_offsets():
        inside = b.true
        for a, d in axes:
            inside = b.pand(inside, below(b, lane_coordinate(b, layout, d), offsets[a], limits[d]))
        fixed = sum(o * strides[d] for o, d in zip(offsets, layout.dims))
        out.append((total(b, [lanes, fixed]), inside))
    return out


def _raw(low: Lowering, value: Fragment, i: int) -> Value:
    """One element's bits for a store."""
    b, dtype = low.b, value.dtype
    x = value.element(b, i)
    if x.type is PRED:
        return b.bitcast(b.select(x, b.const(1, I32), b.const(0, I32)), B32)
    if dtype.bits >= 32:
        return b.bitcast(x, vector(x.type.words))
    return b.pack([x] + [b.zero(x.type)] * (32 // dtype.slot - 1), dtype)


def _number(low: Lowering, got: Value, n: Node) -> Value:
    b, dtype = low.b, n.dtype
    kind = scalar_type(dtype)
    if kind is PRED:
        return b.cmp("ne", b.bitcast(got, I32), 0)
    return b.bitcast(got, kind) if dtype.bits >= 32 else b.unpack(got, dtype, 0)


__all__ = ["changed_dims", "emit_reshape"]
