"""Lowering of everything that is computed or stored element by element: arithmetic, indices, reductions, `write`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from importlib import import_module
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.addresses.access import GlobalAccess, below
from wavedsl.ir.addresses.coordinates import lane_coordinate, total
from wavedsl.ir.addresses.lower_index import lower_index
from wavedsl.ir.addresses.move_elements import store_value
from wavedsl.ir.addresses.packed_view import unit_fragment
from wavedsl.ir.dataflow.graph import Node, ValueType
from wavedsl.ir.dataflow.ops import ATOMIC_VALUES, ROWS
from wavedsl.ir.dataflow.views import is_tile
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.functions.lower_ops import cast, lower_elementwise
from wavedsl.ir.inference.derived_layout import project_to, same_layout
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, Value
from wavedsl.ir.layouts.fragment import (
    Fragment,
    Lazy,
    from_elements,
    from_words,
    per_register,
    register_type,
    scalar_type,
)
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.bulk_store import emit_outlet
from wavedsl.ir.lower.exchange import convert
from wavedsl.ir.lower.late_numbers import is_late_number
from wavedsl.ir.lower.late_stores import LateStore, store_late
from wavedsl.ir.lower.lowering import Lowering, both
from wavedsl.ir.lower.shared_divisors import divided, divided_late
from wavedsl.ir.lower.store_lanes import for_stores
from wavedsl.ir.lower.tile_views import located, tile_view
from wavedsl.ir.schedule.steps import Context
from wavedsl.ir.symbols import dim_name, evaluate, is_whole, symbol

Emitter = Callable[[Lowering, Node, Any, Context], Any]
EMITTERS: dict[str, Emitter] = {}
"""Operation → what emits a node of it, for operations of `LOWERED_IN` that have been met."""
LOWERED_IN: dict[str, str] = {
    op: file
    for file, ops in {
        "lower_atomic": ATOMIC_VALUES,
        "join_parts": ("join_parts",),
        "lower_log": ("device_print", "device_assert", "fence"),
        "lower_pick": ("extract", "shuffle", "repeat_interleave"),
        "lower_random": ("random",),
        "lower_reduce": ("sum", "max", "min", "argmax", "argmin", "any", "all", "reduce"),
        "lower_scan": ("cumsum", "scan"),
        "lower_shape": ("reshape",),
        "lower_sort": ("sort", "topk", "result"),
    }.items()
    for op in ops
}
"""Operation → the file that registers its emitter, imported when a kernel first has such an operation."""


def emitter(*ops: str) -> Callable[[Emitter], Emitter]:
    """Register a function as the lowering of operations."""

    def register(function: Emitter) -> Emitter:
        for op in ops:
            EMITTERS[op] = function
        return function

    return register


def emitter_of(op: str) -> Emitter | None:
    """What emits a node of an operation that has a file of its own."""
    if op in LOWERED_IN and op not in EMITTERS:
        import_module(f"wavedsl.ir.lower.{LOWERED_IN[op]}")
    return EMITTERS.get(op)


SKIPPED = 32
"""Registers from which on a multiplication is worth a branch around it: packed, they take 16 instructions or more."""


def skippable(low: Lowering, n: Node) -> bool:
    """Whether a multiplication should be left out by waves whose factors are all 1, where branches cost less: what a
    loop carries times a power, the same along a row, of a difference, which is 0 where a running maximum has not grown.
    The result is the same bit by bit: x · 1 is x, whatever x is."""
    if n.op != "mul" or low.loop_dim is None or not low.target.skips_work or n.dtype is not dt.f32:
        return False
    big, factor = n.inputs if n.inputs[0].op == "carry" else n.inputs[::-1]
    if big.op != "carry" or factor.op not in ("exp", "exp2") or factor.inputs[0].op != "sub":
        return False
    registers = low.layout(n).elements_per_lane
    return registers >= SKIPPED and low.layout(factor).elements_per_lane * 16 <= registers


def _unless_one(
    low: Lowering, n: Node, layout: Layout, operands: Sequence[Fragment], columns: Sequence[Sequence[int]]
) -> Fragment:
    """`operands[0] * operands[1]` in a branch that a wave takes if one of its factors is not 1."""
    b = low.b
    at = int(n.inputs[0].op != "carry")
    big, factor = operands[at], operands[1 - at]
    old = [big.element(b, i) for i in columns[at]]
    changed = [b.fcmp("ne", w, 1.0) for w in factor.words(b)]
    with b.if_(b.any_lane(reduce(b.por, changed)), stay=True) as branch:
        made = [b.fmul(x, factor.element(b, i)) for x, i in zip(old, columns[1 - at])]
        branch.yield_(from_elements(b, layout, n.dtype, made).chunks)
    with branch.orelse():
        branch.yield_(from_elements(b, layout, n.dtype, old).chunks)
    return Fragment(layout, n.dtype, list(branch.results))


def emit_node(low: Lowering, n: Node, context: Context) -> None:
    """The registers of a node: by its operation's own emitter, or element by element by the rule of its row."""
    b, env = low.b, context.env
    rule = ROWS[n.op].index_rule
    if n.op == "write":
        emit_write(low, n, context)
        return
    layout = low.layout(n) if isinstance(n.type, ValueType) else None
    own = emitter_of(n.op)
    if layout is None and own is not None:
        env[low.keys(n)[0]] = own(low, n, None, context)
        return
    if layout is None:  # an effect such as device_print: layouts belong to values
        raise CompileError(f"{n.op} is not lowered to instructions yet", n.loc, "kernel.evaluate runs it in NumPy")
    key = low.keys(n)[0]
    if n.op in ("fill", "constant"):
        env[key] = emit_fill(low, n, layout)
    elif n.op in ("scalar", "size"):
        env[key] = from_elements(b, layout, n.dtype, [launched_number(low, n)])
    elif n.op in ("tile_start", "tile_stop"):
        env[key] = from_elements(b, layout, n.dtype, [tile_end(low, n, context)])
    elif n.op == "index":
        env[key] = emit_index(low, n, layout, context)
    elif own is not None:
        env[key] = own(low, n, layout, context)
    elif n.op == "bitcast":
        value = operand(low, n, 0, context)
        to = register_type(n.dtype)
        env[key] = from_words(b, layout, n.dtype, [b.bitcast(w, to) if w.type is not to else w for w in value.words(b)])
    elif rule in ("same", "lift", "relabel"):
        operands = [operand(low, n, i, context) for i in range(len(n.inputs))]
        columns = [aligned_elements(x, v, layout) for x, v in zip(n.inputs, operands)]
        if is_late_value(low, n) or is_late_number(low, n):

            def compute(i: int) -> Value:
                with b.loc(n.loc):
                    return lower_elementwise(b, n, [v.element(b, c[i]) for v, c in zip(operands, columns)])

            each = divided_late(low, n, operands, columns, compute)
            env[key] = Lazy(layout, n.dtype, each, b, list(zip(operands, columns)))
            return
        if skippable(low, n):
            env[key] = _unless_one(low, n, layout, operands, columns)
            return
        quotients = divided(low, n, operands, columns)
        if quotients is not None:
            env[key] = from_elements(b, layout, n.dtype, quotients)
            return
        out = []
        cache: dict[tuple[int, ...], Value] = {}
        for i in range(layout.elements_per_lane):
            picked = tuple(c[i] for c in columns)
            got = cache.get(picked)
            if got is None:
                got = cache[picked] = lower_elementwise(b, n, [v.element(b, e) for v, e in zip(operands, picked)])
            out.append(got)
        env[key] = from_elements(b, layout, n.dtype, out)
    else:
        raise CompileError(f"{n.op} is not lowered to instructions yet", n.loc, "kernel.evaluate runs it in NumPy")


def is_late_value(low: Lowering, n: Node) -> bool:
    """Whether the elements of a node are computed when somebody asks for them. In a branch nobody outside its region
    does: what a nested region computed would be there only."""
    region = low.region_of(n)
    if not low.computes_late(region) or (n.dtype is dt.i1 and not low.streams):
        return False
    if region is low.graph.region:
        return low.loop_dim is None
    return all(low.region_of(u) is region for u in low.users().get(n.id, ()))


def operand(low: Lowering, user: Node, position: int, context: Context) -> Fragment:
    """The value of an operand in the layout its use demands. What every lane can make itself (`MADE_ANYWHERE`) is not
    exchanged."""
    source = user.inputs[position]
    wanted = low.inference.demands.get((user.id, position))
    if wanted is None:
        return low.value(source, context.env)
    if source.op == "index":
        return emit_index(low, source, wanted, context)
    if source.op in ("fill", "constant"):
        return emit_fill(low, source, wanted)
    return convert(low, low.value(source, context.env), wanted)


def emit_fill(low: Lowering, n: Node, layout: Layout) -> Fragment:
    """One number everywhere."""
    return from_elements(low.b, layout, n.dtype, [fill_number(low.b, n)] * layout.elements_per_lane)


def fill_number(b: Builder, n: Node) -> Value:
    """The number of a `fill` or `constant`, in its `scalar_type`."""
    number, kind = n.attrs["value"], scalar_type(n.dtype)
    if kind.is_float:
        return b.const(float(number), kind)
    return b.const(bool(number) if n.dtype is dt.i1 else int(number), kind)


def aligned_elements(n: Node, value: Fragment, layout: Layout) -> list[int]:
    """Per element of the result, the operand's element: the same, or the one with the same coordinates it has."""
    if not n.dims:
        return [0] * layout.elements_per_lane
    if same_layout(value.layout, layout) and value.layout.dims == layout.dims:
        return list(range(layout.elements_per_lane))
    names = layout.dims
    want = value.layout.dims
    axes = [names.index(d) for d in want]
    if not same_layout(value.layout, project_to(layout, want)):
        raise CompileError(f"%{n.id} ({n.op}) meets a value in another layout", n.loc)
    return [
        value.layout.element_at(dict(zip(want, (offsets[a] for a in axes)))) for offsets in layout.element_offsets()
    ]


def emit_index(low: Lowering, n: Node, layout: Layout, context: Context) -> Fragment:
    b, d = low.b, str(n.attrs["dim"])
    position = low.position([d], low.base_at(context.iteration))
    start = total(b, [position.base[d], position.wave[d]])
    if not n.dims:
        return from_elements(b, layout, n.dtype, [b.i32(start) if isinstance(start, int) else start])
    return from_elements(b, layout, n.dtype, index_elements(low, layout, d, context))


def index_elements(low: Lowering, layout: Layout, d: str, context: Context, alike: int = 1) -> list[Value]:
    """Every element's own index along `d`, or that of the first of its `alike` neighbours (`index_at`)."""
    at = index_at(low, layout, d, low.base_at(context.iteration), alike)
    return [at(i) for i in range(layout.elements_per_lane)]


def index_at(
    low: Lowering, layout: Layout, d: str, base: Mapping[str, Any], alike: int = 1
) -> Callable[[int], Value]:
    """What gives an element's own index along `d`, in the tile that starts at `base`. `alike`, a power of two: its last
    multiple instead, where waves start at multiples of it and lanes and registers share the bits below."""
    b = low.b
    position = low.position([d], base)
    start = total(b, [position.base[d], position.wave[d]])
    lane = lane_coordinate(b, layout, d)
    if alike > 1 and not isinstance(lane, int):
        lane = b.and_(lane, -alike)
    axis = layout.dims.index(d)
    offsets = layout.element_offsets()

    def at(i: int) -> Value:
        where = total(b, [start, lane, offsets[i][axis] & -alike])
        return b.i32(where) if isinstance(where, int) else where

    return at


def tile_end(low: Lowering, n: Node, context: Context) -> Value:
    """The first index of the tile at hand along a dimension, or the one after its last."""
    b, d = low.b, str(n.attrs["dim"])
    plan = low.plans.get(d)
    if plan is None:  # a part of a dimension: a symbol alone is one that a constraint or an array names
        raise ConstraintError(
            f"{n.op}: no array or value has the dimension {d}, so it has no tiles", n.loc,
            hint=f"count from those of a dimension that has: wd.{n.op}({min(n.attrs['dim'].free_symbols, key=str)})",
        )  # fmt: skip
    at: Any = low.base_at(context.iteration).get(d, 0)
    size = plan.tile
    if low.share_of_wave:
        at, size = total(b, [at, low.position([d]).wave[d]]), plan.wave
    if n.op == "tile_stop":
        extent = low.extent(d)
        at = total(b, [at, size])
        if isinstance(at, int) and isinstance(extent, int):
            at = min(at, extent)
        elif plan.ragged:
            at = b.min_s(b.i32(at) if isinstance(at, int) else at, extent)
    return b.i32(at) if isinstance(at, int) else at


def emit_write(low: Lowering, n: Node, context: Context) -> None:
    """A write: gathered places, buffers that bulk copies take, or stores, at once or with others that leave
    together."""
    b = low.b
    if not is_tile(low.graph, n):
        from wavedsl.ir.lower.lower_mapped import store_mapped

        store_mapped(low, n, operand(low, n, 0, context), context)
        return
    info, extents, strides = tile_view(low, n)
    value = operand(low, n, 0, context)
    if value.dtype is not info.dtype:  # rounded as it is stored
        wide = value
        value = Lazy(
            value.layout, info.dtype, lambda i: cast(b, wide.element(b, i), wide.dtype, info.dtype), b,
            [(wide, range(wide.layout.elements_per_lane))],
        )  # fmt: skip
    if n.id in low.writes.outlets:
        emit_outlet(low, low.writes.outlets[n.id], value, context)
        return
    position, inside, limits = located(low, n, context, low.base_at(context.iteration))
    layout, plans = value.layout, low.plans
    if info.dtype.packed:
        unit = low.units_for(n, layout)
        info, layout, plans = unit.info, unit.layout, unit.plans
        extents, strides = unit.extents(b, extents), unit.strides(strides)
        position, value = unit.position(b, position), unit_fragment(b, unit, value)
    else:
        value = for_stores(low, info, value, plans)
        layout = value.layout
    access = GlobalAccess(b, info, layout, position, plans, low.target, extents, strides, store=True, limits=limits)
    guard = both(b, one_writer(low, info.names), inside)
    if low.computes_late(low.region_of(n)):
        store_late(low, LateStore(n, access, value, guard))
    else:
        store_value(b, access, value, guard, n.attrs.get("cache"))


def one_writer(low: Lowering, dims: Sequence[str]) -> Value | None:
    """Only one wave stores where waves are spread over a dimension that neither the array nor the value has."""
    b = low.b
    guard: Value | None = None
    names = low.cut_along(dims)
    for d, digit in low.wave_digit.items():
        if d not in names and low.plans[d].waves > 1:
            first = b.cmp("eq", digit, 0)
            guard = first if guard is None else b.pand(guard, first)
    return guard


def zero_beyond(low: Lowering, value: Fragment, dim: str, context: Context, neutral: Any = 0) -> Fragment:
    """`value` with the elements past the end of `dim` replaced by `neutral`."""
    b, layout, per = low.b, value.layout, per_register(value.dtype)
    inside = inside_masks(low, layout, dim, context)
    count = layout.elements_per_lane
    kind = scalar_type(value.dtype)
    other = b.const(neutral, kind) if not kind.is_float else b.const(float(neutral), kind)

    def group(first: int) -> Value:
        """The register of the elements from `first` on: as a whole where all of them are inside, or none."""
        own = range(first, min(first + per, count))
        if per > 1 and not neutral and all(inside[i] is inside[first] for i in own):
            return b.select(inside[first], value.word(b, first // per), b.zero(B32))
        found = [b.select(inside[i], value.element(b, i), other) for i in own]
        return b.pack(found + [b.zero(kind)] * (per - len(found)), value.dtype) if per > 1 else found[0]

    return from_words(b, layout, value.dtype, [group(first) for first in range(0, count, per)])


def inside_masks(low: Lowering, layout: Layout, dim: str, context: Context, first: Any = 0) -> list[Value]:
    """Per element, whether its coordinate along `dim` exists: inside the array and inside the tile. `first`: where the
    layout starts in what the wave has of the tile."""
    b, plan = low.b, low.plans[dim]
    position = low.position([dim], low.base_at(context.iteration))
    lane = lane_coordinate(b, layout, dim)
    start = total(b, [position.base[dim], position.wave[dim], first])
    extent = low.extent(dim)
    if isinstance(extent, int) and isinstance(start, int):
        limit: Any = extent - start
    else:
        limit = b.sub(b.i32(extent) if isinstance(extent, int) else extent, start)
    padded = dict(layout.extents)[dim] > plan.wave
    axis = layout.dims.index(dim)
    masks: dict[int, Value] = {}
    out = []
    for offsets in layout.element_offsets():
        off = offsets[axis]
        if off not in masks:
            mask = below(b, lane, off, limit) if plan.ragged or padded else b.true
            if padded:
                mask = b.pand(mask, below(b, lane, off, plan.wave))
            masks[off] = mask
        out.append(masks[off])
    return out


def launched_number(low: Lowering, n: Node) -> Value:
    """The number of a `scalar` or `size`, in its `scalar_type`."""
    b = low.b
    if n.op == "size":
        extent = _size(low, n)
        return b.i32(extent) if isinstance(extent, int) else extent
    index = next(i for i, p in enumerate(low.kernel.params) if p.name == n.attrs["name"])
    number = b.param(index)
    if n.dtype is dt.i1:
        return b.cmp("ne", b.and_(number, 0xFF), 0)
    if n.dtype.bits < 32:
        return b.unpack(b.bitcast(number, B32) if number.type is not B32 else number, n.dtype, 0)
    return number


def _size(low: Lowering, n: Node) -> Any:
    """The value of a symbol that is used as a number: an int, or run-time extents combined."""
    expr = n.attrs["expr"]
    free = sorted(getattr(expr, "free_symbols", ()), key=dim_name)
    values = {d: low.extent(dim_name(d)) for d in free if dim_name(d) in low.plans}
    whole = evaluate(expr, {**low.graph.subs, **{d: v for d, v in values.items() if isinstance(v, int)}})
    if isinstance(whole, int):
        return whole
    # Quotients that are dimensions, such as K / 32, are whole: the launch sees to it.
    derived = {d: symbol(f"derived{i}") for i, d in enumerate(low.partition.dims) if not is_whole(d)}
    if not is_whole(whole) and not is_whole(expr.xreplace(derived)):
        number = getattr(whole, "is_number", False)
        known = f"{expr} is {whole}, no whole number" if number else f"{expr} need not be a whole number"
        raise CompileError(
            f"{known}, and stands beside integers",
            n.loc,
            "// rounds down; to compute with fractions cast the values beside it: wd.cast(x, wd.f32)",
        )
    return lower_index(low.b, whole, {d: v for d, v in values.items() if not isinstance(v, int)})
