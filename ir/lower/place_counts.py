"""Atomics at places that data decide, carried out in shared memory first: a workgroup keeps what it adds to an array
there, and behind everything else adds each place's sum, by one atomic of consecutive lanes for consecutive places.

In: the arrays of `Choices.counted` (`regions/counted_arrays.py` says which). Out: for each a buffer at the beginning of
shared memory in which every element lies at its offset in the array, code that makes it neutral in front of all else,
and code that adds it to the array at the end. In between `lower_atomic` changes it by `atomic.shared`. So it is with
minima, maxima and bits, and with sums of floats on chips that add these in shared memory. Where one of the array's
dimensions is the workgroup's own number, as for a histogram of each row, only what lies there is kept (`window`).

Invariant: nobody asks what was there, all that the kernel does to the array is such atomics, alike, and these leave the
same in any order, or nobody is promised one (`ANY_ORDER`), so the array ends as if each element had gone there by
itself, in some order. A place that was not touched is left alone: what it keeps is neutral.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.addresses.access import whole_buffer
from wavedsl.ir.addresses.coordinates import offset_of, scaled, total
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import I32, I64, Type, Value, vector
from wavedsl.ir.layouts.fragment import scalar_type
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import Context, Step
from wavedsl.ir.symbols import dim_name

LINE = 128
"""Bytes of which buffers are a multiple."""
TOGETHER = 8
"""Accesses of a thread that are written out one by one; more are a loop over so many each."""
WIDE = 16
"""Bytes that a thread stores at a time, where there are enough."""


@dataclass(frozen=True)
class PlaceCounts:
    """Where an array's elements lie in shared memory: `at` bytes from its beginning, as far apart as in the array.
    `own`: dimensions of the array along which they are the workgroup's alone. `how`: what its atomics do; `neutral`:
    what every element begins as."""

    memory: str
    own: tuple[int, ...]
    at: int
    bytes: int
    how: str
    type: Type
    neutral: int

    @property
    def buffer(self) -> str:
        return f"counts of {self.memory}"

    @property
    def bits(self) -> Type:
        """Integers of the elements' size."""
        return I64 if self.type.words == 2 else I32

    @property
    def room(self) -> int:
        return -(-self.bytes // LINE) * LINE


def how_of(op: str, dtype: dt.DType) -> str:
    """What an atomic does, in the kernel IR's words."""
    name = op.removeprefix("atomic_")
    if dtype.is_float:
        return "f" + name
    if name in ("min", "max"):
        return name + ("_u" if dtype.kind == "uint" else "_s")
    return name


def neutral_of(how: str, bits: int) -> int:
    """What an atomic leaves as it is, as an integer of the elements' bits."""
    return {"max_s": -1 << bits - 1, "min_s": (1 << bits - 1) - 1, "min_u": -1, "and": -1}.get(how, 0)


def window(info: ArrayInfo, atomics: Sequence[Node], dims: Mapping[Any, DimPlan]) -> tuple[tuple[int, ...], int | None]:
    """(dimensions of an array along which a workgroup's atomics stay at its own number, bytes of what lies there; None
    where run-time arguments decide)."""
    plans = {dim_name(d): p for d, p in dims.items()}
    own = tuple(
        i
        for i, name in enumerate(info.names)
        if name in plans and plans[name].role == "index" and plans[name].axis is not None
        if all(not isinstance(c := n.attrs["mapping"].coords[i], int) and dim_name(c) == name for n in atomics)
    )
    bytes = info.elsize
    for i, (extent, stride) in enumerate(zip(info.extents, info.strides)):
        if i in own:
            continue
        if extent is None or stride is None:
            return own, None
        if extent == 0:
            return own, 0
        bytes += (extent - 1) * stride
    return own, bytes


def place_counts(low: Lowering) -> None:
    """Give the arrays that are counted their place, in front of all else in shared memory."""
    for memory in low.choices.counted:
        atomics = [n for n in low.graph.all_nodes() if n.attrs.get("memory") == memory]
        dtype = low.arrays[memory].dtype
        own, span = window(low.arrays[memory], atomics, low.partition.dims)
        assert span is not None, "an array of a size that is known at run time only is not counted"
        how, type = how_of(atomics[0].op, dtype), scalar_type(dtype)
        found = PlaceCounts(memory, own, low.room.scratch, span, how, type, neutral_of(how, dtype.bits))
        low.room.counts[memory] = found
        low.room.scratch += found.room
        low.kernel.shared_names[found.buffer] = (found.at, found.room)


def begin_counts(low: Lowering) -> None:
    """Make all elements neutral, thread after thread."""
    b = low.b
    for counts in low.room.counts.values():
        element = 4 * counts.type.words
        size = next((s for s in (WIDE, WIDE // 2) if s > element and counts.room >= s * low.kernel.block), element)
        value = b.vec(*[b.bitcast(b.const(counts.neutral, counts.bits), vector(counts.type.words))] * (size // element))
        for first, mask in _shares(low, counts.room, size):
            b.store_shared(b.add(first, counts.at), value, bytes=size, mask=mask, buffer=counts.buffer)


def count(low: Lowering, counts: PlaceCounts, offset: Value, value: Value, mask: Value) -> None:
    """Carry out an atomic at a byte offset into the array."""
    b, start = low.b, _start(low, counts)
    place = offset_of(b, [offset, counts.at, scaled(b, start, -1)])
    b.atomic_shared(place, counts.how, value, mask=mask, buffer=counts.buffer)


def _start(low: Lowering, counts: PlaceCounts) -> Any:
    """Bytes from the array's first element to the first that the workgroup keeps."""
    info, _, strides = low.array(counts.memory)
    return total(low.b, [scaled(low.b, low.base[info.names[i]], strides[i]) for i in counts.own])


def end_counts(low: Lowering) -> None:
    """Add all elements to their arrays."""
    if low.room.counts:
        low.b.barrier()
    for counts in low.room.counts.values():
        _add_all(low, counts)


def _add_all(low: Lowering, counts: PlaceCounts) -> None:
    b = low.b
    info, extents, _ = low.array(counts.memory)
    buffer, element, start = whole_buffer(b, info, extents), 4 * counts.type.words, _start(low, counts)
    waiting: list[tuple[Value, Value, Value]] = []

    def add() -> None:
        for first, mask, found in waiting:
            changed = b.pand(mask, b.cmp("ne", found, b.const(counts.neutral, counts.bits)))
            sum = b.bitcast(found, counts.type)
            b.atomic_global(buffer, total(b, [start, first]), counts.how, sum, mask=changed)
        waiting.clear()

    for first, mask in _shares(low, counts.bytes, element, add):
        where = b.add(b.select(mask, first, b.i32(0)), counts.at)
        found = b.bitcast(b.load_shared(where, bytes=element, buffer=counts.buffer), counts.bits)
        waiting.append((first, mask, found))


def _shares(
    low: Lowering, bytes: int, size: int, behind: Callable[[], None] = lambda: None
) -> Iterator[tuple[Value, Value]]:
    """(offset of `size` bytes that a thread has of so many, whether they are there), as often as each has some:
    neighbours for neighbouring threads. What is done with each is emitted as they are handed out, then `behind` for all
    that are written out together."""
    b, step = low.b, size * low.kernel.block
    rounds = -(-bytes // step)
    own = b.mul(b.tid(), size)

    def share(start: Value | int, last: bool) -> tuple[Value, Value]:
        first = b.add(own, start)
        return first, b.cmp("ult", first, b.i32(bytes - size + 1)) if last else b.true

    looped = rounds // TOGETHER * TOGETHER if rounds > TOGETHER else 0
    if looped == rounds and bytes % step:
        looped -= TOGETHER
    if looped:
        with b.for_(0, looped * step, TOGETHER * step, label=f"counts{low.labels}", min_trips=1) as loop:
            for i in range(TOGETHER):
                yield share(b.add(loop.iv, i * step), False)
            behind()
            loop.yield_()
        low.labels += 1
    for i in range(looped, rounds):
        yield share(i * step, (i + 1) * step > bytes)
    behind()


def met(low: Lowering, steps: list[Step], order: Sequence[int]) -> None:
    """Let waves meet in front of the first step, in an order, that counts: all elements are neutral then."""
    for i in order:
        if any(memory in low.room.counts for memory in steps[i].writes):
            steps[i] = _behind_a_barrier(low.b, steps[i])
            return


def _behind_a_barrier(b: Builder, step: Step) -> Step:
    found = copy(step)

    def emit(context: Context) -> None:
        b.barrier()
        step.emit(context)

    found.emit = emit
    return found


def counts_of(low: Lowering, n: Node) -> PlaceCounts | None:
    """Where an atomic counts, if it does."""
    found: PlaceCounts | None = low.room.counts.get(n.attrs["memory"])
    return found


__all__ = ["begin_counts", "count", "counts_of", "end_counts", "how_of", "met", "neutral_of", "place_counts", "window"]
