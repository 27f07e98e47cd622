"""Lowering of everything that is computed or stored element by element: arithmetic, indices, reductions, `write`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.access import GlobalAccess, below, lane_coordinate, store_value, total
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.bulk_store import emit_outlet
from wavedsl.ir.errors import CompileError
from wavedsl.ir.exchange import SCRATCH, convert, high_lanes
from wavedsl.ir.fragment import Fragment, Lazy, from_elements, from_words, register_type, scalar_type
from wavedsl.ir.graph import Node, ValueType
from wavedsl.ir.infer import project_to, same_layout
from wavedsl.ir.kernel_ir import B32, Value, vector
from wavedsl.ir.layout import Layout, kind_of, number_of
from wavedsl.ir.loops import Context
from wavedsl.ir.lower_index import lower_index
from wavedsl.ir.lower_ops import cast, lower_elementwise
from wavedsl.ir.lowering import Lowering
from wavedsl.ir.ops import ROWS
from wavedsl.ir.symbols import evaluate


def emit_node(low: Lowering, n: Node, context: Context) -> None:
    b, env = low.b, context.env
    rule = ROWS[n.op].index_rule
    if n.op == "write":
        emit_write(low, n, context)
        return
    layout = low.layout(n) if isinstance(n.type, ValueType) else None
    if layout is None:  # an effect such as device_print: layouts belong to values
        raise CompileError(f"{n.op} is not lowered to instructions yet", n.loc, "kernel.evaluate runs it in NumPy")
    key = low.keys(n)[0]
    if n.op in ("fill", "constant"):
        env[key] = emit_fill(low, n, layout)
    elif n.op == "scalar":
        index = next(i for i, p in enumerate(low.kernel.params) if p.name == n.attrs["name"])
        number = b.param(index)
        if n.dtype.bits < 32 and n.dtype is not dt.i1:
            word = b.bitcast(number, B32) if number.type is not B32 else number
            number = b.unpack(word, n.dtype, 0)
        env[key] = from_elements(b, layout, n.dtype, [number])
    elif n.op == "size":
        extent = _size(low, n)
        env[key] = from_elements(b, layout, n.dtype, [b.i32(extent) if isinstance(extent, int) else extent])
    elif n.op == "index":
        env[key] = emit_index(low, n, layout, context)
    elif rule == "project":
        env[key] = emit_reduction(low, n, layout, context)
    elif n.op == "bitcast":
        value = operand(low, n, 0, context)
        to = register_type(n.dtype)
        env[key] = from_words(b, layout, n.dtype, [b.bitcast(w, to) if w.type is not to else w for w in value.words(b)])
    elif rule in ("same", "lift", "relabel"):
        operands = [operand(low, n, i, context) for i in range(len(n.inputs))]
        columns = [aligned_elements(low, x, v, layout) for x, v in zip(n.inputs, operands)]
        if low.strategy.bulk and low.loop_dim is None and n.dtype is not dt.i1:

            def compute(i: int) -> Value:
                with b.loc(n.loc):
                    return lower_elementwise(b, n, [v.element(b, c[i]) for v, c in zip(operands, columns)])

            env[key] = Lazy(layout, n.dtype, compute, b)
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


def operand(low: Lowering, user: Node, position: int, context: Context) -> Fragment:
    """The value of an operand in the layout its use demands. What every lane can make itself is not exchanged."""
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
    b, number, kind = low.b, n.attrs["value"], scalar_type(n.dtype)
    if kind.is_float:
        const = b.const(float(number), kind)
    else:
        const = b.const(bool(number) if n.dtype is dt.i1 else int(number), kind)
    return from_elements(b, layout, n.dtype, [const] * layout.elements_per_lane)


def aligned_elements(low: Lowering, n: Node, value: Fragment, layout: Layout) -> list[int]:
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
    lane = lane_coordinate(b, layout, d)
    axis = layout.dims.index(d)
    out = []
    for offsets in layout.element_offsets():
        where = total(b, [start, lane, offsets[axis]])
        out.append(b.i32(where) if isinstance(where, int) else where)
    return from_elements(b, layout, n.dtype, out)


def emit_reduction(low: Lowering, n: Node, layout: Layout, context: Context) -> Fragment:
    """Sum, max, min along a dimension: elements of the lane first, then lanes by butterflies, then waves."""
    b, d = low.b, str(n.attrs["dim"])
    if n.op not in ("sum", "max", "min"):
        raise CompileError(f"{n.op} is not lowered to instructions yet", n.loc, "kernel.evaluate runs it in NumPy")
    plan = low.plans[d]
    if plan.role == "workgroup" and plan.trips != 1:
        raise CompileError(
            f"{n.op} along {d}, which is spread over workgroups", n.loc, f"do not tile {d} over workgroups"
        )
    source = n.inputs[0]
    value = operand(low, n, 0, context)
    dtype = source.dtype
    neutral = _neutral(n.op, dtype)
    if plan.ragged or dict(value.layout.extents)[d] > plan.wave:
        value = zero_beyond(low, source, value, d, context, neutral)

    def join(x: Value, y: Value) -> Value:
        if n.op == "sum":
            return b.fadd(x, y) if dtype.is_float else b.add(x, y)
        if dtype.is_float:
            return b.fmax(x, y) if n.op == "max" else b.fmin(x, y)
        sign = "_u" if dtype.kind == "uint" else "_s"
        return getattr(b, n.op + sign)(x, y)

    names = [x for x in value.layout.dims if x != d]
    parts: dict[tuple[int, ...], Value] = {}
    order = value.layout.dims
    axes = [order.index(x) for x in names]
    for i, offsets in enumerate(value.layout.element_offsets()):
        at = tuple(offsets[a] for a in axes)
        e = value.element(b, i)
        parts[at] = join(parts[at], e) if at in parts else e
    inner = value.layout.inner
    lanes = [number_of(x) for x, c in zip(inner.ins, inner.coordinate_columns(d)) if kind_of(x) == "l" and c]
    reduced = value.layout.project(d)
    far = high_lanes(lanes, low.target.wave_size)
    out = []
    for offsets in reduced.element_offsets():
        v = parts[tuple(offsets[reduced.dims.index(x)] for x in names)]
        for bit in lanes:
            if bit not in far:
                v = join(v, shuffled(low, v, 1 << bit))
        out.append(v)
    if far:
        out = across_warps(low, far, out, join)
    if plan.waves > 1:
        out = across_waves(low, d, out, join)
    found = from_elements(b, reduced, n.dtype, out)
    return found if same_layout(reduced, layout) else convert(low, found, layout)


def shuffled(low: Lowering, v: Value, mask: int) -> Value:
    """The value of lane ^ mask, of any width."""
    b = low.b
    if v.type.words == 1:
        return b.shuffle_xor(v, mask)
    pair = b.bitcast(v, vector(2))
    return b.bitcast(b.vec(*(b.shuffle_xor(b.slice(pair, i), mask) for i in range(2))), v.type)


def across_warps(
    low: Lowering, bits: list[int], parts: list[Value], join: Callable[[Value, Value], Value]
) -> list[Value]:
    """Join what lanes hold that differ in these lane bits, through shared memory: each in the same order."""
    b = low.b
    lanes, words = low.target.wave_size, parts[0].type.words
    whole = low.partition.waves * lanes * words * 4
    mine = total(b, [low.reduced_at, b.mul(b.wave(), lanes * words * 4)])
    b.barrier()  # readers of what was there before are done
    for i, v in enumerate(parts):
        at = total(b, [mine, b.mul(b.lane(), words * 4), i * whole])
        b.store_shared(at, b.bitcast(v, vector(words)), buffer=SCRATCH)
    b.barrier()
    first = b.and_(b.lane(), lanes - 1 - sum(1 << x for x in bits))
    out: list[Value] = []
    for i, v in enumerate(parts):
        joined: Value | None = None
        for k in range(1 << len(bits)):
            other = sum(1 << x for j, x in enumerate(bits) if k >> j & 1)
            at = total(b, [mine, b.mul(b.add(first, other), words * 4), i * whole])
            part = b.bitcast(b.load_shared(at, bytes=words * 4, buffer=SCRATCH), v.type)
            joined = part if joined is None else join(joined, part)
        assert joined is not None
        out.append(joined)
    return out


def across_waves(low: Lowering, dim: str, parts: list[Value], join: Callable[[Value, Value], Value]) -> list[Value]:
    """Join what the waves along `dim` hold, each lane with the same lane of the others, through shared memory."""
    b, count = low.b, low.plans[dim].waves
    key = next(x for x in low.partition.dims if str(x) == dim)
    divisor, _ = low.partition.wave_radix(key)
    lanes, words = low.target.wave_size, parts[0].type.words
    whole = len(parts) * lanes * words * 4
    own = total(b, [low.reduced_at, b.mul(b.lane(), words * 4)])
    first = b.sub(b.wave(), b.mul(low.wave_digit[dim], divisor))
    b.barrier()  # readers of what was there before are done
    for i, v in enumerate(parts):
        raw = b.bitcast(v, vector(words))
        b.store_shared(total(b, [own, b.mul(b.wave(), whole), i * lanes * words * 4]), raw, buffer=SCRATCH)
    b.barrier()
    out: list[Value] = []
    for i, v in enumerate(parts):
        joined: Value | None = None
        for w in range(count):
            address = total(b, [own, b.mul(b.add(first, w * divisor), whole), i * lanes * words * 4])
            raw = b.load_shared(address, bytes=words * 4, buffer=SCRATCH)
            part = b.bitcast(raw, v.type)
            joined = part if joined is None else join(joined, part)
        assert joined is not None
        out.append(joined)
    return out


def emit_write(low: Lowering, n: Node, context: Context) -> None:
    b = low.b
    if n.attrs.get("mapping") is not None:
        raise CompileError(
            "a scatter through an IndexMapping is not lowered yet", n.loc, "kernel.evaluate runs it in NumPy"
        )
    info, extents, strides = low.array(n.attrs["memory"])
    value = operand(low, n, 0, context)
    source = n.inputs[0]
    if value.dtype is not info.dtype:
        wide = value
        value = Lazy(
            value.layout, info.dtype, lambda i: cast(b, wide.element(b, i), wide.dtype, info.dtype), b
        )  # rounded as it is stored
    del source
    if n.id in low.outlets:
        emit_outlet(low, low.outlets[n.id], value)
        return
    position = low.position(info.names, low.base_at(context.iteration))
    access = GlobalAccess(b, info, value.layout, position, low.plans, low.target, extents, strides, store=True)
    guard = one_writer(low, value.layout, info)
    store_value(b, access, value, guard)


def one_writer(low: Lowering, layout: Layout, info: ArrayInfo) -> Value | None:
    """Only one wave stores where waves are spread over a dimension that the array does not have."""
    b = low.b
    guard: Value | None = None
    names = set(info.names)
    for d, digit in low.wave_digit.items():
        if d not in names and low.plans[d].waves > 1:
            first = b.cmp("eq", digit, 0)
            guard = first if guard is None else b.pand(guard, first)
    return guard


def zero_beyond(low: Lowering, n: Node, value: Fragment, dim: str, context: Context, neutral: Any = 0) -> Fragment:
    """`value` with the elements past the end of `dim` replaced by `neutral`."""
    b, layout = low.b, value.layout
    inside = inside_masks(low, layout, dim, context)
    kind = scalar_type(value.dtype)
    other = b.const(neutral, kind) if not kind.is_float else b.const(float(neutral), kind)
    elements = [b.select(inside[i], value.element(b, i), other) for i in range(layout.elements_per_lane)]
    return from_elements(b, layout, value.dtype, elements)


def inside_masks(low: Lowering, layout: Layout, dim: str, context: Context) -> list[Value]:
    """Per element, whether its coordinate along `dim` exists: inside the array and inside the tile."""
    b, plan = low.b, low.plans[dim]
    position = low.position([dim], low.base_at(context.iteration))
    lane = lane_coordinate(b, layout, dim)
    start = total(b, [position.base[dim], position.wave[dim]])
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


def _neutral(op: str, dtype: dt.DType) -> Any:
    """The identity of a reduction."""
    if op == "sum":
        return 0
    if dtype.is_float:
        return -math.inf if op == "max" else math.inf
    if dtype.kind == "uint":
        return 0 if op == "max" else -1
    top = (1 << (dtype.bits - 1)) - 1
    return -top - 1 if op == "max" else top


def _size(low: Lowering, n: Node) -> Any:
    """The value of a symbol that is used as a number: an int, or run-time extents combined."""
    expr = n.attrs["expr"]
    values = {d: low.extent(str(d)) for d in sorted(getattr(expr, "free_symbols", ()), key=str) if str(d) in low.plans}
    whole = evaluate(expr, {**low.graph.subs, **{d: v for d, v in values.items() if isinstance(v, int)}})
    if isinstance(whole, int):
        return whole
    return lower_index(low.b, whole, {d: v for d, v in values.items() if not isinstance(v, int)})
