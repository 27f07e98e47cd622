"""Reductions along a dimension: elements of the lane first, then lanes by butterflies, then waves by shared memory.

What is reduced is a cell: a tuple of kernel IR values. A sum's cell is a number, an argmax's is an ordering key and an
index. A `Reduction` says how an element becomes a cell, how two are joined and what the last one means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from wavedsl.ir import dtypes as dt
from wavedsl.ir.addresses.coordinates import total
from wavedsl.ir.dataflow.constraints import TurnConstraint
from wavedsl.ir.dataflow.graph import PRODUCTS, Node, Region, loop_bounds
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.functions.lower_ops import lower_elementwise
from wavedsl.ir.functions.order_keys import LOWEST, element_key, key_type, lowest_key, number_key
from wavedsl.ir.inference.derived_layout import same_layout
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import F32, I32, PRED, Value, vector
from wavedsl.ir.layouts.fragment import Fragment, Lazy, from_elements, per_register, scalar_type
from wavedsl.ir.layouts.layout import Layout, high_lanes, moving_lanes
from wavedsl.ir.lower import across_waves
from wavedsl.ir.lower.cells import Cell, side_by_side
from wavedsl.ir.lower.exchange import convert
from wavedsl.ir.lower.in_place import sums_one
from wavedsl.ir.lower.lower_values import (
    aligned_elements,
    emitter,
    index_elements,
    inside_masks,
    is_late_value,
    launched_number,
    operand,
)
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.sums_of_sums import left_to_the_next
from wavedsl.ir.lower.sums_of_sums import together as reduced_together
from wavedsl.ir.lower.zeros_beyond import zero_beyond_the_end
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import Context

MOST_INDEX = (1 << 31) - 1
"""The index that stands for no element at all."""


class Joining(Protocol):
    """How two cells are joined, and what stands for one beyond an end (None: whoever loads cells sees to it)."""

    @property
    def join(self) -> Callable[[Cell, Cell], Cell]: ...

    @property
    def neutral(self) -> Cell | None: ...


@dataclass
class Reduction:
    """`load` gives the cell of an element, `neutral` what stands for one beyond an end (None: `load` sees to it), `run`
    the cell of several elements of a lane, in the order of their indices, where that takes less than to join theirs,
    `vote` that of all lanes of a wave from each one's, where an instruction gives it."""

    load: Callable[[Fragment, int], Cell]
    join: Callable[[Cell, Cell], Cell]
    finish: Callable[[Cell], Value]
    neutral: Cell | None
    run: Callable[[Fragment, Sequence[int]], Cell] | None = None
    vote: Callable[[Cell], Cell] | None = None


@emitter("sum", "max", "min", "argmax", "argmin", "any", "all", "reduce")
def emit_reduction(
    low: Lowering, n: Node, layout: Layout | None, context: Context
) -> Fragment | tuple[Fragment, ...]:
    """One value per remaining coordinate, or of a reduction of several values as many. Every lane, and every wave along
    the dimension, gets the result; of a sum that a loop adds up behind it (`late_sums`) each keeps its part."""
    b, d = low.b, str(n.attrs["dim"])
    plan = low.plans[d]
    within_workgroup(low, n, d)
    if layout is None:
        return _reduce_together(low, n, context)
    value = operand(low, n, 0, context)
    how = _reduction(low, n, value.layout, context)
    inside: list[Value] | None = None
    padded = dict(value.layout.extents)[d] > plan.wave
    # Padding of a wave's share of a tile may hold what the next wave adds.
    zeros = n.op == "sum" and not (padded and plan.waves > 1) and zero_beyond_the_end(n.inputs[0], d)
    if (plan.ragged or padded) and not zeros:
        inside = inside_masks(low, value.layout, d, context)

    if sums_one(low, n) and inside is None and is_late_value(low, n) and same_layout(value.layout.project(d), layout):
        places = [dict(zip(layout.dims, offsets)) for offsets in layout.element_offsets()]
        columns = [value.layout.element_at({**place, d: 0}) for place in places]
        return Lazy(layout, n.dtype, lambda i: value.element(b, columns[i]), b, [(value, columns)])
    # Where neighbours can be added as pairs a sum has two chains, of even and of odd elements; but one as a running sum
    # beside it has, which then gives what lanes tell each other.
    two = n.op == "sum" and n.dtype.name == "f32" and low.target.packed_f32 and not _runs_too(low, n)

    def load(i: int) -> Cell:
        if low.target.packed_f32 and i % 2 == 0:
            value.compute_together(range(i, min(i + 2, value.layout.elements_per_lane)))
        return how.load(value, i)

    run = None if how.run is None else partial(how.run, value)
    reduced = value.layout.project(d)
    late = n.id in low.matrix.late_sums
    parts = reduced_together(low, n)
    if late or left_to_the_next(low, n) or len(parts) > 1:
        cells = _joined_cells(low, n, value.layout, load, how, inside, two, True, run)
        if len(parts) > 1 and not late and not left_to_the_next(low, n):
            cells = _join_parts(low, parts, reduced, cells, how)
    else:
        cells = _joined_cells(low, n, value.layout, load, how, inside, two, False, run)
    found = from_elements(b, reduced, n.dtype, [how.finish(c) for c in cells])
    return found if same_layout(reduced, layout) else convert(low, found, layout)


def _runs_too(low: Lowering, n: Node) -> bool:
    """Whether there is a running sum of what `n` adds up."""
    others = (x for x in low.users().get(n.inputs[0].id, ()) if x.op == "cumsum" and not x.attrs.get("reverse"))
    return any(x.attrs["dim"] == n.attrs["dim"] for x in others)


def _joined_cells(
    low: Lowering, n: Node, layout: Layout, load: Callable[[int], Cell], how: Joining, inside: list[Value] | None,
    two: bool = False, late: bool = False, run: Callable[[Sequence[int]], Cell] | None = None,
) -> list[Cell]:  # fmt: skip
    """One cell per element of the layout without the dimension that `n` reduces. `load`: the cell of an element;
    `inside`: which elements are there; `two`: as two chains of even and odd elements; `late`: lanes and waves keep
    their parts; `run`: the cell of elements in the order of their indices, instead of joining their cells."""
    b, d = low.b, str(n.attrs["dim"])
    plan = low.plans[d]
    names = [x for x in layout.dims if x != d]
    axes = [layout.dims.index(x) for x in names]
    parts: dict[tuple[int, ...], Cell] = {}
    others: dict[tuple[int, ...], Cell] = {}
    places = [tuple(offsets[a] for a in axes) for offsets in layout.element_offsets()]
    two = two and places[:1] == places[1:2]  # else neighbours are of two sums, which are pairs
    if run is not None:
        parts |= {at: run(elements) for at, elements in _runs(layout, d, places)}
    for i, at in enumerate(places) if run is None else ():
        cell = load(i)
        if inside is not None and how.neutral is not None:
            cell = tuple(b.select(inside[i], x, other) for x, other in zip(cell, how.neutral))
        chain = others if two and i % 2 and at in parts else parts
        if at not in chain:
            chain[at] = cell
        else:
            chain[at] = _with_product(b, n, chain[at], cell) or how.join(chain[at], cell)
    for at, cell in others.items():
        parts[at] = how.join(parts[at], cell)
    reduced = layout.project(d)
    bits = [] if late else lane_bits(layout, d)
    far = high_lanes(bits, low.target.wave_size)
    cells = [parts[tuple(offsets[reduced.dims.index(x)] for x in names)] for offsets in reduced.element_offsets()]
    near = [bit for bit in bits if bit not in far]
    vote = how.vote if isinstance(how, Reduction) and 1 << len(near) == low.target.wave_size else None
    if vote is not None:
        cells = [vote(cell) for cell in cells]
    else:
        cells = [cell for group in side_by_side(low.target, cells) for cell in _butterflies(low, group, near, how)]
    if far:
        cells = across_warps(low, far, cells, how.join)
    if plan.waves > 1 and not late:
        cells = across_waves.joined(low, d, cells, how.join, moving_lanes(reduced, reduced.dims))
    return cells


def _join_parts(
    low: Lowering, parts: Sequence[Node], reduced: Layout, cells: list[Cell], how: Reduction
) -> list[Cell]:
    """What lanes and waves hold of several reductions, one behind the other, whose result lies like `reduced`."""
    along = [str(x.attrs["dim"]) for x in parts]
    for x, d in zip(reversed(parts), reversed(along)):
        bits = lane_bits(low.inference.operand_layout(x, 0), d)
        cells = [cell for group in side_by_side(low.target, cells) for cell in _butterflies(low, group, bits, how)]
    for d in along:
        if low.plans[d].waves > 1:
            cells = across_waves.joined(low, d, cells, how.join, moving_lanes(reduced, reduced.dims))
    return cells


def _butterflies(low: Lowering, cells: Sequence[Cell], bits: Sequence[int], how: Joining) -> Sequence[Cell]:
    """What lanes hold that differ in these bits, joined: all cells take a step before one takes the next."""
    for bit in steps_in_rows(low, bits):
        others = [tuple(shuffled(low, v, 1 << bit) for v in cell) for cell in cells]
        cells = [how.join(cell, other) for cell, other in zip(cells, others)]
    return cells


def _runs(layout: Layout, d: str, places: Sequence[tuple[int, ...]]) -> list[tuple[tuple[int, ...], list[int]]]:
    """A lane's elements by where they lie along the other dimensions, in the order of their indices along `d`."""
    found: dict[tuple[int, ...], list[int]] = {}
    along = [offsets[layout.dims.index(d)] for offsets in layout.element_offsets()]
    for i in sorted(range(len(places)), key=lambda i: (along[i], i)):
        found.setdefault(places[i], []).append(i)
    return list(found.items())


def _reduce_together(low: Lowering, n: Node, context: Context) -> tuple[Fragment, ...]:
    """`reduce` of several values: a cell has an element of each."""
    b, d = low.b, str(n.attrs["dim"])
    plan = low.plans[d]
    layout, loaded, pair = operands_together(low, n, context)
    inside: list[Value] | None = None
    if plan.ragged or dict(layout.extents)[d] > plan.wave:
        inside = inside_masks(low, layout, d, context)
    cells = [pair.finish(c) for c in _joined_cells(low, n, layout, loaded.__getitem__, pair, inside)]
    reduced = layout.project(d)
    return tuple(from_elements(b, reduced, x.dtype, [c[k] for c in cells]) for k, x in enumerate(n.inputs))


def within_workgroup(low: Lowering, n: Node, d: str) -> None:
    """Raise CompileError for an operation along a dimension that several workgroups share, or that one goes over in
    turns."""
    plan = low.plans[d]
    in_turn = any(isinstance(c, TurnConstraint) and str(c.dim) == d for c in low.graph.constraints)
    if (plan.role == "workgroup" or in_turn) and plan.trips not in (0, 1) and not n.attrs.get("partial"):
        hint = f"do not tile {d} over workgroups"
        dims = [str(x) for x in n.inputs[0].dims]
        size = plan.tile
        rows = f"make each workgroup's {size} elements a row of their own: an array [{d} / {size}, {size}] whose "
        rows += "first dimension has wd.WorkgroupConstraint(…, 1, …)"
        if n.op in ("sum", "max", "min"):
            atomic = "atomic_add" if n.op == "sum" else f"atomic_{n.op}"
            rest = [x for x in dims if x != d]
            before = "is 0 before" if n.op == "sum" else "holds the identity before"
            hint += f", or let the elements meet in an array [{', '.join(rest) or '1'}] that {before}: "
            each = f"wd.{atomic}(wd.{n.op}(x, dim={d}), out{'' if rest else '[0]'}), with nothing "
            each += "but factors on the way" if n.op == "sum" else "on the way"
            hint += f"{each}; for a result per tile, {rows}"
            if any(n in loop_bounds(u) for u in low.users().get(n.id, ())):
                hint = f"a loop's bounds of a tile: read what its ends name, for example a[wd.tile_start({d})]"
        elif n.op in PRODUCTS:
            hint += ", or let each workgroup add its part to an array that is 0 before: "
            hint += f"wd.atomic_add(wd.{n.op}(…), out), in 32 bits or more, the product from 0 and with nothing but "
            hint += f"factors on the way; for a result per tile, {rows}"
        else:
            hint += f", or {rows}"
        raise CompileError(f"{n.op} along {d}, which is spread over workgroups", n.loc, hint)


def lane_bits(layout: Layout, d: str) -> list[int]:
    """The lane bits that move along `d`."""
    return moving_lanes(layout, [d])


def steps_in_rows(low: Lowering, bits: Sequence[int]) -> list[int]:
    """The lane bits of a butterfly in the order of its steps. There is a pattern for what bit 3 moves, but for bit 2
    only where lanes agree that differ in bit 3, or in bits 0 and 1 (`codegen/amdgcn/lane_moves.py`): so bit 3 comes
    first where these two are not both moved."""
    if low.target.row_patterns and {2, 3} <= {*bits} and not {0, 1} <= {*bits}:
        swap = {2: 3, 3: 2}
        return [swap.get(bit, bit) for bit in bits]
    return list(bits)


def _reduction(low: Lowering, n: Node, layout: Layout, context: Context) -> Reduction:
    """How a reduction loads, joins and finishes its cells, and what is neutral to it."""
    b, dtype = low.b, n.inputs[0].dtype
    if n.op in ("argmax", "argmin"):
        return _arg_extreme(low, n, layout, context)
    if n.op in ("any", "all"):
        one = 1 if n.op == "all" else 0

        def vote(c: Cell) -> Cell:
            """Whether any lane has one, or none has a zero."""
            found = b.any_lane(b.cmp("ne", c[0], 0)) if not one else b.pnot(b.any_lane(b.cmp("eq", c[0], 0)))
            return (as_word(b, found),)

        return Reduction(
            lambda v, i: (b.select(v.element(b, i), b.const(1, I32), b.const(0, I32)),),
            lambda x, y: (b.and_(x[0], y[0]) if one else b.or_(x[0], y[0]),),
            lambda c: b.cmp("ne", c[0], 0),
            (b.const(one, I32),),
            vote=vote,
        )
    if n.op == "reduce":
        how = together(low, n)
        return Reduction(lambda v, i: how.load([v.element(b, i)]), how.join, lambda c: how.finish(c)[0], how.neutral)
    # A NaN gives way to any number, and is the answer where nothing but NaN is there: so it stands for what is absent.
    absent = math.nan if n.op != "sum" and dtype.is_float and low.plans[str(n.attrs["dim"])].extent != 0 else None
    neutral = constant(b, extreme(n.op, dtype) if absent is None else absent, dtype)
    return Reduction(
        lambda v, i: (v.element(b, i),), lambda x, y: (_joined(b, n.op, dtype, x[0], y[0]),), lambda c: c[0], (neutral,)
    )


def _with_product(b: Builder, n: Node, so_far: Cell, cell: Cell) -> Cell | None:
    """A sum's next cell where that is a product: one multiply-add instead of rounding the product first."""
    made = cell[0].op
    if n.op != "sum" or made is None or made.name != "fmul":
        return None
    x, y = made.args
    return (b.ffma(x, y, so_far[0]),)


def _joined(b: Builder, op: str, dtype: DType, x: Value, y: Value) -> Value:
    if op == "sum":
        return b.fadd(x, y) if dtype.is_float else b.add(x, y)
    if dtype.is_float:
        return b.fmax(x, y) if op == "max" else b.fmin(x, y)
    sign = "_u" if dtype.kind == "uint" else "_s"
    return getattr(b, op + sign)(x, y)


def constant(b: Builder, number: Any, dtype: DType) -> Value:
    """A number of a dtype as a kernel IR constant."""
    kind = scalar_type(dtype)
    if kind is PRED:
        return b.true if number else b.false
    return b.const(float(number) if kind.is_float else int(number), kind)


def extreme(op: str, dtype: DType) -> Any:
    """The identity of a reduction."""
    if op == "sum":
        return 0
    if dtype.is_float:
        return -math.inf if op == "max" else math.inf
    if dtype.kind == "uint":
        return 0 if op == "max" else (1 << dtype.bits) - 1
    top = (1 << (dtype.bits - 1)) - 1
    return -top - 1 if op == "max" else top


# ---- argmax, argmin


def _arg_extreme(low: Lowering, n: Node, layout: Layout, context: Context) -> Reduction:
    """The larger key, of equal ones the smaller index. Short keys and indices share one word, and a maximum joins."""
    b, d, dtype = low.b, str(n.attrs["dim"]), n.inputs[0].dtype
    plan = low.plans[d]
    places = index_elements(low, layout, d, context)
    inside = None
    if plan.ragged or dict(layout.extents)[d] > plan.wave:
        inside = inside_masks(low, layout, d, context)

    def key(v: Fragment, i: int) -> Value:
        found = element_key(b, v, i, LOWEST)
        if n.op == "argmin":
            # Backwards; what is lowest stays lowest.
            other = b.not_(found)
            if not dtype.is_float:
                return other
            lowest = b.const(lowest_key(dtype), found.type)
            return b.select(b.cmp("eq", found, lowest), lowest, other)
        return found

    along = [offsets[layout.dims.index(d)] for offsets in layout.element_offsets()]

    def most_of(v: Fragment, elements: Sequence[int]) -> tuple[Value, Value]:
        """The key of a lane's largest number, of floats, and its index: comparisons of numbers, one key."""
        best, step = _first_extreme(b, v, n.op, elements, along, inside)
        chosen = number_key(b, best, LOWEST)
        if n.op == "argmin":
            lowest = b.const(lowest_key(dt.f32), I32)
            chosen = b.select(b.cmp("eq", chosen, lowest), lowest, b.not_(chosen))
        return chosen, b.add(places[elements[0]], step)

    as_numbers = dtype.is_float and scalar_type(dtype) is F32
    several = layout.elements_per_lane // max(1, layout.project(d).elements_per_lane)
    if short_keys(dtype, plan.extent) and not (as_numbers and dtype is not dt.bf16 and several >= LONG_RUN):

        def packed(v: Fragment, i: int) -> Cell:
            word = b.or_(b.shl(key(v, i), 16), b.sub(0xFFFF, places[i]))
            return (word if inside is None else b.select(inside[i], word, b.const(-(1 << 31), I32)),)

        def packed_run(v: Fragment, elements: Sequence[int]) -> Cell:
            chosen, place = most_of(v, elements)  # a number of bf16 is the upper half of one of f32, and so is its key
            word = b.or_(b.and_(chosen, -1 << 16), b.sub(0xFFFF, place))
            return (word if inside is None else b.select(inside[elements[0]], word, b.const(-(1 << 31), I32)),)

        empty = b.const(-(1 << 31), I32)
        return Reduction(
            packed,
            lambda x, y: (b.max_s(x[0], y[0]),),
            lambda c: b.select(b.cmp("eq", c[0], empty), b.const(-1, I32), b.sub(0xFFFF, b.and_(c[0], 0xFFFF))),
            None,
            packed_run if dtype is dt.bf16 and several > 1 else None,
        )

    def load(v: Fragment, i: int) -> Cell:
        cell = key(v, i), places[i]
        if inside is None:
            return cell
        none = b.const(lowest_key(dtype), key_type(dtype)), b.const(MOST_INDEX, I32)
        return tuple(b.select(inside[i], x, other) for x, other in zip(cell, none))

    def join(x: Cell, y: Cell) -> Cell:
        better = b.por(
            b.cmp("sgt", y[0], x[0]), b.pand(b.cmp("eq", y[0], x[0]), b.cmp("slt", y[1], x[1]))
        )
        return b.select(better, y[0], x[0]), b.select(better, y[1], x[1])

    def finish(c: Cell) -> Value:
        return b.select(b.cmp("eq", c[1], MOST_INDEX), b.const(-1, I32), c[1]) if inside is not None else c[1]

    def run(v: Fragment, elements: Sequence[int]) -> Cell:
        chosen, place = most_of(v, elements)
        there = None if inside is None else inside[elements[0]]  # the first of them is there if any is
        return chosen, place if there is None else b.select(there, place, b.const(MOST_INDEX, I32))

    return Reduction(load, join, finish, None, run if as_numbers and several > 1 else None)


LONG_RUN = 8
"""Elements of a lane from which on its largest number of 16 bits is found first, although key and index then take two
words to move between lanes: an element takes 3 operations instead of 10, and a level of lanes 5 more."""


def _first_extreme(
    b: Builder, v: Fragment, op: str, elements: Sequence[int], along: Sequence[int], inside: Sequence[Value] | None
) -> tuple[Value, Value]:
    """The largest (smallest) number of a lane's elements, and how far the first such one lies from the first of them,
    joined in a tree, of which each half comes before the other. NaN gives way to any number, as maxima do it; what is
    beyond an end is NaN."""
    join = b.fmax if op == "argmax" else b.fmin

    def of(low: int, high: int) -> tuple[Value, Value]:
        if high - low == 1:
            i = elements[low]
            number = v.element(b, i)
            if inside is not None:
                number = b.select(inside[i], number, b.const(math.nan, F32))
            return number, b.const(along[i] - along[elements[0]], I32)
        middle = (low + high + 1) // 2
        (x, first), (y, second) = of(low, middle), of(middle, high)
        best = join(x, y)
        return best, b.select(b.fcmp("ne", best, x), second, first)

    best, step = of(0, len(elements))
    return best, b.select(b.fcmp("ne", best, best), b.const(0, I32), step)  # nothing but NaN: the first


def short_keys(dtype: DType, extent: int | None) -> bool:
    """Whether a key and an index fit one word, with the index 0xFFFF left to mean no element."""
    return dtype.bits <= 16 and extent is not None and extent < 0xFFFF


# ---- functions of the user


@dataclass
class Together:
    """The user's function on cells that have an element of each of its values; predicates in them are words."""

    load: Callable[[Sequence[Value]], Cell]
    join: Callable[[Cell, Cell], Cell]
    finish: Callable[[Cell], Cell]
    neutral: Cell


def together(low: Lowering, n: Node) -> Together:
    """How a `reduce` or `scan` combines what it takes."""
    b, body, numbers = low.b, n.attrs["body"], n.attrs["identity"]
    flags = [scalar_type(x.dtype) is PRED for x in n.inputs]
    numbers = numbers if isinstance(numbers, tuple) else (numbers,)

    def finish(cell: Cell) -> Cell:
        return tuple(from_word(b, x, flag) for x, flag in zip(cell, flags))

    def join(x: Cell, y: Cell) -> Cell:
        return tuple(as_word(b, v) for v in combined(low, body, (*finish(x), *finish(y))))

    return Together(
        lambda elements: tuple(as_word(b, x) for x in elements),
        join,
        finish,
        tuple(as_word(b, constant(b, number, x.dtype)) for number, x in zip(numbers, n.inputs)),
    )


def operands_together(low: Lowering, n: Node, context: Context) -> tuple[Layout, list[Cell], Together]:
    """What a `reduce` or `scan` takes: the layout of its operands, a cell per element, and how cells are combined."""
    values = [operand(low, n, i, context) for i in range(len(n.inputs))]
    layout = values[0].layout
    alike = [v if same_layout(v.layout, layout) else convert(low, v, layout) for v in values]
    columns = [aligned_elements(x, v, layout) for x, v in zip(n.inputs, alike)]
    how, b = together(low, n), low.b
    cells = [how.load([v.element(b, c[i]) for v, c in zip(alike, columns)]) for i in range(layout.elements_per_lane)]
    return layout, cells, how


def combined(low: Lowering, body: Region, elements: Sequence[Value]) -> Cell:
    """The user's combining function on the elements of two cells, one after the other; what is narrower than f32 is
    rounded after every operation."""
    b = low.b
    known: dict[int, Value] = {carry.id: x for carry, x in zip(body.carries, elements)}
    for node in body.nodes:
        if node.op == "constant":
            known[node.id] = constant(b, node.attrs["value"], node.dtype)
            continue
        if node.op in ("scalar", "size"):
            known[node.id] = launched_number(low, node)
            continue
        arguments = [known[i.id] for i in node.inputs]
        if node.op == "bitcast":
            known[node.id] = _bitcast(b, arguments[0], node.inputs[0].dtype, node.dtype)
        else:
            known[node.id] = settled(b, lower_elementwise(b, node, arguments), node.dtype)
    return tuple(known[last.id] for last in body.yields)


def settled(b: Builder, x: Value, dtype: DType) -> Value:
    """A number as it comes back from a register of its dtype."""
    if per_register(dtype) == 1:
        return x
    zero = b.zero(x.type)
    return b.unpack(b.pack([x] + [zero] * (per_register(dtype) - 1), dtype), dtype, 0)


def _bitcast(b: Builder, x: Value, source: DType, to: DType) -> Value:
    if per_register(source) == 1:
        return b.bitcast(x, scalar_type(to))
    zero = b.zero(x.type)
    return b.unpack(b.pack([x] + [zero] * (per_register(source) - 1), source), to, 0)


def as_word(b: Builder, x: Value) -> Value:
    """A predicate as 0 or 1, so that it can be moved between lanes; anything else as it is."""
    return b.select(x, b.const(1, I32), b.const(0, I32)) if x.type is PRED else x


def from_word(b: Builder, x: Value, flag: bool) -> Value:
    return b.cmp("ne", x, 0) if flag else x


# ---- between lanes and waves


def shuffled(low: Lowering, v: Value, mask: int) -> Value:
    """The value of lane ^ mask, of any width."""
    b = low.b
    within_warp(low, high_lanes([mask.bit_length() - 1], low.target.wave_size))
    if v.type.words == 1:
        return b.shuffle_xor(v, mask)
    pair = b.bitcast(v, vector(2))
    return b.bitcast(b.vec(*(b.shuffle_xor(b.slice(pair, i), mask) for i in range(2))), v.type)


def shuffled_index(low: Lowering, v: Value, lane: Value, among: int = -1) -> Value:
    """The value of a lane, of any width. The lane's number and the own one differ in the bits `among` at most."""
    b, wave = low.b, low.target.wave_size
    within_warp(low, high_lanes([k for k in range(wave.bit_length() - 1) if among >> k & 1], wave))
    if v.type.words == 1:
        return b.shuffle_index(v, lane)
    pair = b.bitcast(v, vector(2))
    return b.bitcast(b.vec(*(b.shuffle_index(b.slice(pair, i), lane) for i in range(2))), v.type)


def within_warp(low: Lowering, far: Sequence[int]) -> None:
    """Raise ConstraintError where lanes of several warps would be shuffled: the kernel is cut for warps then, unless
    the schedule asks for what warpgroups alone have."""
    if far:
        raise ConstraintError(
            "this takes elements of several warps of a warpgroup, whose lanes no shuffle reaches",
            low.b.current_loc or low.graph.loc,
            f"leave {', '.join(low.choices.roles) or 'lanes'} out of the schedule, which keeps the kernel from being "
            "cut for warps; or write the product, and go on in a kernel of its own",
        )


def across_warps(
    low: Lowering, bits: Sequence[int], cells: Sequence[Cell], join: Callable[[Cell, Cell], Cell]
) -> list[Cell]:
    """Join what lanes hold that differ in these lane bits, through shared memory: each in the same order."""
    b, lanes = low.b, low.target.wave_size
    flat = [v for cell in cells for v in cell]
    starts, size, home, buffer = [], 0, low.room.meeting.next(), low.room.meeting.buffer
    for v in flat:
        starts.append(size)
        size += lanes * v.type.words * 4

    def place(v: Value, start: int, lane: Value) -> Any:
        return total(b, [home, b.mul(lane, v.type.words * 4), b.mul(b.wave(), size), start])

    b.barrier()  # readers of what was there before are done
    for v, start in zip(flat, starts):
        b.store_shared(place(v, start, b.lane()), b.bitcast(v, vector(v.type.words)), buffer=buffer)
    b.barrier()
    first = b.and_(b.lane(), lanes - 1 - sum(1 << x for x in bits))
    out = []
    at = iter(zip(flat, starts))
    for cell in cells:
        mine = [next(at) for _ in cell]
        joined: Cell | None = None
        for k in range(1 << len(bits)):
            lane = b.add(first, sum(1 << x for j, x in enumerate(bits) if k >> j & 1))
            other = tuple(
                b.bitcast(b.load_shared(place(v, s, lane), bytes=v.type.words * 4, buffer=buffer), v.type)
                for v, s in mine
            )
            joined = other if joined is None else join(joined, other)
        assert joined is not None
        out.append(joined)
    return out


__all__ = ["Reduction", "combined", "emit_reduction"]
