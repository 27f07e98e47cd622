"""Lowering of atomics: one instruction where the chip has it, else a loop around compare-and-swap; in shared memory
where the workgroup counts there first (`place_counts`).

What is narrower than a word is changed inside the word that holds it. f16 and bf16 sums go two at a time where a lane
holds neighbours, else with -0 as the neighbour's addend, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.addresses.coordinates import total
from wavedsl.ir.cuts.tile_dims import CONDITIONAL, conditions, varying_dims
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dataflow.ops import ATOMIC_VALUES
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, I32, I64, Value, vector
from wavedsl.ir.layouts.bits import number_of
from wavedsl.ir.layouts.fragment import Fragment, from_elements, per_register, scalar_type
from wavedsl.ir.layouts.layout import Layout, high_lanes
from wavedsl.ir.lower.float_extremes import Extremes
from wavedsl.ir.lower.lower_mapped import MappedAccess, mapped_groups
from wavedsl.ir.lower.lower_reduce import shuffled_index
from wavedsl.ir.lower.lower_values import emitter, one_writer, operand
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.place_counts import count, counts_of, how_of
from wavedsl.ir.lower.swaps import Change, Swap, carry_out
from wavedsl.ir.schedule.steps import Context
from wavedsl.ir.symbols import dim_name, names


@emitter(*ATOMIC_VALUES)
def emit_atomic(low: Lowering, n: Node, layout: Layout, context: Context) -> Fragment:
    """The value of memory before, per element; 0 where nothing was accessed."""
    b = low.b
    values = [operand(low, n, i, context) for i in range(ATOMIC_VALUES[n.op])]
    if n.id in low.writes.outlets:
        from wavedsl.ir.lower.bulk_atomics import emit_reduction

        emit_reduction(low, low.writes.outlets[n.id], values[0], context)
        return _nothing(low, n, layout)
    work = _Elements(low, n, layout, context, values)
    counts = counts_of(low, n)
    if counts is not None:
        for e in range(layout.elements_per_lane):
            voff, mask = work.operands(e)
            count(low, counts, voff, values[0].element(b, e), mask)
        return _nothing(low, n, layout)
    old = work.changed()
    return from_elements(b, layout, n.dtype, _for_all_lanes(low, layout, old, work.wave_guard) if work.used else old)


def _nothing(low: Lowering, n: Node, layout: Layout) -> Fragment:
    """What was there, where nobody asks."""
    return from_elements(low.b, layout, n.dtype, [low.b.zero(scalar_type(n.dtype))] * layout.elements_per_lane)


class _Elements:
    """The elements of one atomic, each with its place, and who carries it out. `used`: whether somebody asks what was
    there."""

    def __init__(self, low: Lowering, n: Node, layout: Layout, context: Context, values: Sequence[Fragment]):
        self.low, self.n, self.layout, self.values = low, n, layout, values
        self.dtype = values[0].dtype
        self.access = MappedAccess(low, n, layout, context, store=True)
        self.used = bool(low.users().get(n.id))
        spread = low.inference.spread.get(n.id)
        self.wave_guard = one_writer(low, layout.dims if spread is None else (*layout.dims, dim_name(spread.over)))
        guards = [g for g in (self.wave_guard, _group_guard(low, n, layout, self.used)) if g is not None]
        self.guard = low.b.pand(*guards) if len(guards) == 2 else guards[0] if guards else None

    def operands(self, element: int) -> tuple[Value, Value]:
        """(byte offset from the array's first element, whether this lane changes it)."""
        voff, mask = self.access.operands(element)
        return voff, mask if self.guard is None else self.low.b.pand(mask, self.guard)

    def changed(self) -> list[Any]:
        """Changes memory; what was there, per element."""
        low, n = self.low, self.n
        width, groups, _ = mapped_groups(low, n, self.layout, True)
        pairs = n.op == "atomic_add" and self.dtype in (dt.f16, dt.bf16) and width >= 2
        pairs &= self.access.info.align % 4 == 0
        run = 2 if pairs else 1 if self.used else _run(low, n, self.dtype, width)
        parts: list[Sequence[int]] = [group[i : i + run] for group in groups for i in range(0, len(group), run)]
        extremes = _extremes(low, n, self.access, self.dtype, self.used)
        changed: Sequence[Sequence[Value]]
        if extremes is not None:
            changed = extremes.keep((*self.operands(e), self.values[0].element(low.b, e)) for (e,) in parts)
        else:
            changed = carry_out(self.access, (self._change(part, pairs) for part in parts))
        old: list[Any] = [None] * self.layout.elements_per_lane
        for part, found in zip(parts, changed):
            for e, x in zip(part, found):
                old[e] = x
        return old

    def _change(self, part: Sequence[int], pairs: bool) -> Change[Sequence[Value]]:
        """Of neighbours that go together."""
        low, b, n = self.low, self.low.b, self.n
        voff, mask = self.operands(part[0])
        numbers = [[v.element(b, e) for e in part] for v in self.values]
        if pairs:
            found = yield from _pair(low, self.access, voff, mask, self.dtype, numbers[0])
        elif len(part) > 1:
            how = how_of(n.op, self.dtype)
            found = b.elements(self.access.atomic(voff, how, b.vec(*numbers[0]), mask=mask))
        else:
            found = [(yield from _one(low, n, self.access, voff, mask, self.dtype, [x for (x,) in numbers]))]
        return [b.select(mask, x, b.zero(x.type)) for x in found] if self.used else found


def _group_guard(low: Lowering, n: Node, layout: Layout, used: bool) -> Value | None:
    """Which of the workgroups that share the value carries it out; None where each has its own."""
    # A counter of each output tile is every workgroup's business, and so is a workgroup's share of a sum.
    dims = (*layout.dims, *n.attrs.get("joined", ()))
    shared = () if n.attrs.get("per_workgroup") else shared_dims(low, dims)
    guard = one_workgroup(low, shared)
    if guard is not None and used:
        raise CompileError(
            f"the result of {n.op} is used, but only one of several workgroups carries it out",
            n.loc,
            "give the value the dimension that workgroups are spread over, or make that an index dimension (tile 1)",
        )
    differs = differing(low, n, shared)
    if differs:
        raise ConstraintError(
            f"{n.op} depends on a condition that may differ along {names(differs)}, and its value has no "
            f"{names(differs)}: of the workgroups along it, only the first would carry it out",
            n.loc,
            CONDITIONAL.format(dims=names(differs), op=n.op),
        )
    return guard


def _for_all_lanes(low: Lowering, layout: Layout, old: list[Any], wave_guard: Value | None) -> list[Any]:
    """What was there, in all lanes and waves that hold the element, from those that changed it."""
    b = low.b
    replicas = sum(1 << number_of(x) for x in layout.replica_bits("l"))
    source = b.and_(b.lane(), (low.target.wave_size - 1) & ~replicas) if replicas else b.lane()
    far = bool(high_lanes([i for i in range(replicas.bit_length()) if replicas >> i & 1], low.target.wave_size))
    if replicas and not far:
        old = [shuffled_index(low, x, source) for x in old]
    if wave_guard is not None or far:
        old = _from_writer(low, layout, old, wave_guard or b.true, source if far else b.lane())
    return old


def _run(low: Lowering, n: Node, dtype: DType, width: int) -> int:
    """Of `width` neighbours, how many one instruction adds that gives nothing back."""
    if dtype.bits != 32 or n.op in ("atomic_xchg", "atomic_cas"):
        return 1
    how, kind = how_of(n.op, dtype), scalar_type(dtype).kind
    return next((run for run in (4, 2) if run <= width and (how, f"{kind}x{run}") in low.target.atomics), 1)


def shared_dims(low: Lowering, dims: Sequence[str]) -> list[str]:
    """Dimensions that workgroups are spread over and a value does not have. (Index dimensions: every one has it.)"""
    own = low.cut_along(dims)
    return [
        d for d, p in low.plans.items()
        if p.role == "workgroup" and p.trips not in (0, 1) and d not in own and d not in low.followed
    ]  # fmt: skip


def differing(low: Lowering, n: Node, shared: Sequence[str]) -> list[str]:
    """Those of these dimensions along which workgroups may decide otherwise whether, or how often, they come to `n`."""
    deciding = conditions(low.graph, n) if shared else ()
    varying = varying_dims(low.graph, deciding) if deciding else set()
    return [d for d in shared if d in varying]


def one_workgroup(low: Lowering, shared: Sequence[str]) -> Value | None:
    """Only the first workgroup along these dimensions; None where there are none."""
    b = low.b
    guard: Value | None = None
    for d in shared:
        base = low.base[d]
        first = b.cmp("eq", b.i32(base) if isinstance(base, int) else base, 0)
        guard = first if guard is None else b.pand(guard, first)
    return guard


def _from_writer(low: Lowering, layout: Layout, values: list[Value], writes: Value, lane: Value) -> list[Value]:
    """What `lane` of the wave that carried an atomic out got, in every wave that shares it, through shared memory."""
    b, lanes = low.b, low.target.wave_size
    writer: Any = b.wave()
    own = low.cut_along(layout.dims)
    for d in low.partition.order:
        if low.plans[str(d)].waves > 1 and str(d) not in own:
            writer = b.sub(writer, b.mul(low.wave_digit[str(d)], low.partition.wave_radix(d)[0]))
    size = sum(v.type.words for v in values) * lanes * 4
    start, home = 0, low.room.meeting.next()
    places = []
    for v in values:
        step = v.type.words * 4
        base = total(b, [home, b.mul(writer, size), start])
        places.append([total(b, [base, b.mul(x, step)]) for x in (b.lane(), lane)])
        start += lanes * step
    b.barrier()  # readers of what was there before are done
    for v, (at, _) in zip(values, places):
        b.store_shared(at, b.bitcast(v, vector(v.type.words)), mask=writes, buffer=low.room.meeting.buffer)
    b.barrier()
    return [
        b.bitcast(b.load_shared(at, bytes=v.type.words * 4, buffer=low.room.meeting.buffer), v.type)
        for v, (_, at) in zip(values, places)
    ]


def _pair(
    low: Lowering, access: MappedAccess, voff: Value, mask: Value, dtype: DType, numbers: list[Value]
) -> Change[Sequence[Value]]:
    """Two neighbours that fill a word."""
    b = low.b
    word = yield from _add_word(low, access, voff, mask, dtype, b.pack(numbers, dtype))
    return [b.unpack(word, dtype, i) for i in (0, 1)]


def _add_word(
    low: Lowering, access: MappedAccess, voff: Value, mask: Value, dtype: DType, addends: Value
) -> Change[Value]:
    b = low.b
    how = f"pk_add_{dtype.name}"
    if (how, "b32") in low.target.atomics:
        return access.atomic(voff, how, addends, mask=mask)

    def sums(word: Value) -> Value:
        both = [b.fadd(b.unpack(b.bitcast(word, B32), dtype, i), b.unpack(addends, dtype, i)) for i in (0, 1)]
        return b.bitcast(b.pack(both, dtype), I32)

    return b.bitcast((yield Swap(voff, mask, I32, sums)), B32)


def _one(
    low: Lowering, n: Node, access: MappedAccess, voff: Value, mask: Value, dtype: DType, values: list[Value]
) -> Change[Value]:
    b = low.b
    if dtype.bits < 32:
        return (yield from _narrow(low, n, access, voff, mask, dtype, values))
    kind = scalar_type(dtype)
    bits = I64 if dtype.bits == 64 else I32
    if n.op in ("atomic_xchg", "atomic_cas"):
        words = [b.bitcast(v, bits) for v in values]
        return b.bitcast(access.atomic(voff, n.op[7:], *words, mask=mask), kind)
    how = how_of(n.op, dtype)
    if (how, kind.kind) in low.target.atomics:
        return access.atomic(voff, how, values[0], mask=mask)
    return (yield from _joined(b, n.op, dtype, voff, mask, values[0]))


def _joined(b: Builder, op: str, dtype: DType, voff: Value, mask: Value, x: Value) -> Change[Value]:
    """What the chip has no atomic for."""
    kind, bits = scalar_type(dtype), I64 if dtype.bits == 64 else I32
    join = _joins(b, op, dtype)

    def changed(word: Value) -> Value:
        return b.bitcast(join(b.bitcast(word, kind), x), bits)

    return b.bitcast((yield Swap(voff, mask, bits, changed)), kind)


def _extremes(low: Lowering, n: Node, access: MappedAccess, dtype: DType, used: bool) -> Extremes | None:
    """What keeps the larger or smaller of floats of a word and more, where the chip has no instruction for that."""
    if n.op not in ("atomic_max", "atomic_min") or not dtype.is_float or dtype.bits < 32:
        return None
    if (how_of(n.op, dtype), scalar_type(dtype).kind) in low.target.atomics:
        return None
    return Extremes(access, n.op == "atomic_max", dtype, used, partial(_joined, low.b, n.op, dtype))


def _joins(b: Builder, op: str, dtype: DType) -> Callable[[Value, Value], Value]:
    how = how_of(op, dtype)
    return getattr(b, {"and": "and_", "or": "or_"}.get(how, how))


def _narrow(
    low: Lowering, n: Node, access: MappedAccess, voff: Value, mask: Value, dtype: DType, values: list[Value]
) -> Change[Value]:
    """An element of 8 or 16 bits, inside the word that holds it."""
    b, info = low.b, access.info
    span = info.span()
    if info.align % 4 or span is None or span % 4:
        what = "of a size that is known at run time only" if span is None else f"of {span} bytes"
        raise CompileError(
            f"{n.op} on {info.name}, an array of {dtype} {what}: whole words are changed",
            n.loc,
            "pass an array that fills a multiple of 4 bytes and starts at one, or use a dtype of 32 bits",
        )
    per = per_register(dtype)
    far = voff.type is I64
    place = b.shl(b.and_(b.trunc(voff) if far else voff, 3), 3)
    word = b.and_(voff, b.i64(-4) if far else -4)
    field = (1 << dtype.bits) - 1

    def packed(x: Value) -> Value:
        return b.bitcast(b.pack([x] + [b.zero(x.type)] * (per - 1), dtype), I32)

    def number(bits: Value) -> Value:
        return b.unpack(b.bitcast(b.and_(b.lshr(bits, place), field), B32), dtype, 0)

    if n.op == "atomic_add" and dtype in (dt.f16, dt.bf16) and (f"pk_add_{dtype.name}", "b32") in low.target.atomics:
        other = b.select(b.cmp("eq", place, 0), b.i32(-0x80000000), b.i32(0x8000))  # -0 in the other half
        addends = b.bitcast(b.or_(b.shl(packed(values[0]), place), other), B32)
        return number(b.bitcast((yield from _add_word(low, access, word, mask, dtype, addends)), I32))
    hole = b.not_(b.shl(b.i32(field), place))

    def changed(bits: Value) -> Value:
        if n.op == "atomic_cas":
            swapped = b.or_(b.and_(bits, hole), b.shl(b.and_(packed(values[1]), field), place))
            return b.select(b.cmp("eq", number(bits), values[0]), swapped, bits)
        new = packed(values[0] if n.op == "atomic_xchg" else _joins(b, n.op, dtype)(number(bits), values[0]))
        return b.or_(b.and_(bits, hole), b.shl(b.and_(new, field), place))

    return number((yield Swap(word, mask, I32, changed)))


__all__ = ["differing", "emit_atomic", "one_workgroup", "shared_dims"]
