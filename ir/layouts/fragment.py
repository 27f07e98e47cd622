"""A value of the graph while it is lowered: its layout and the registers that hold it.

Registers come in chunks: kernel IR tuples that stay together, such as one matrix fragment or one wide load. Elements
narrower than 32 bits are packed, lowest element in the lowest bits; predicates are one value per element.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from heapq import heappop, heappush
from itertools import count
from typing import Any

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, F32, F64, I32, I64, PRED, Type, Value, vector
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.quick_dataclass import dataclass

_CARRIER = {"f64": F64, "i64": I64, "u64": I64, "i32": I32, "u32": I32, "f32": F32, "tf32": F32, "i1": PRED}


def register_type(dtype: DType) -> Type:
    """The kernel IR type of one register of a value: its element's own, or a word of packed elements."""
    if dtype.bits > 32 and dtype.name not in _CARRIER:
        return vector(dtype.bits // 32)  # a unit of packed elements
    return _CARRIER.get(dtype.name, B32)


def scalar_type(dtype: DType) -> Type:
    """The kernel IR type that one element is computed in."""
    if dtype.name in _CARRIER:
        return _CARRIER[dtype.name]
    return F32 if dtype.is_float else I32


def per_register(dtype: DType) -> int:
    """Elements in one register of `register_type`."""
    return max(1, 32 // dtype.slot) if dtype is not dt.i1 else 1


@dataclass
class Fragment:
    """`layout` of one wave's tile; `chunks` hold its registers in element order."""

    layout: Layout
    dtype: DType
    chunks: list[Any]
    _words: list[Value] | None = field(default=None, repr=False)

    def words(self, b: Builder) -> list[Value]:
        """Every register as a scalar value."""
        if self._words is None:
            out: list[Value] = []
            for c in self.chunks:
                out += c if isinstance(c, (list, tuple)) else b.elements(c) if c.type.n > 1 else [c]
            self._words = out
        return self._words

    def word(self, b: Builder, index: int) -> Value:
        """One register."""
        return self.words(b)[index]

    def element(self, b: Builder, index: int) -> Value:
        """One element as a number in its `scalar_type`."""
        per = per_register(self.dtype)
        word = self.words(b)[index // per]
        return word if per == 1 else b.unpack(word, self.dtype, index % per)

    def touch(self, index: int) -> None:
        """One element will be asked for soon: what it is loaded from may be started."""

    def compute_together(self, elements: Sequence[int]) -> None:
        """Some elements will be asked for next: what computes them may do so operation by operation."""

    def compute_as_written(self, elements: Sequence[int]) -> bool:
        """Compute elements in the program's order if less is held so than by asking for each when it is needed: of two
        sums of the same terms one would be done, and all terms be held, before the other is begun. Whether they are
        computed."""
        return False


class OnDemand(Fragment):
    """A value whose registers are made one by one, by `word`, where somebody asks for them."""

    b: Builder

    @property
    def chunks(self) -> list[Any]:  # type: ignore[override]
        return list(from_words(self.b, self.layout, self.dtype, self.words(self.b)).chunks)

    def words(self, b: Builder) -> list[Value]:
        return [self.word(b, i) for i in range(register_count(self.layout, self.dtype))]


STEP = 32
"""Computed values on the longest way to one below which its elements are computed first, and not by asking for them."""

LONG_SUMS = 128
"""Elements that are computed together times the values on the longest way to them from which on it is looked at what is
held meanwhile: fewer always fit."""
_SERIALS = count()

Source = tuple[Fragment, Sequence[int]]
"""An operand of a computed value, and per element of the result which of the operand's it needs."""


class Lazy(OnDemand):
    """A value whose elements are computed when somebody asks for them: `compute(i)` gives element i in its
    `scalar_type`. A chain of them that ends in a store never holds more than what is stored next. `sources`: what they
    are computed from. `beside`: registers that are taken beside those of its sources while elements are computed."""

    def __init__(
        self, layout: Layout, dtype: DType, compute: Callable[[int], Value], b: Builder, sources: Sequence[Source] = (),
        beside: int = 0,
    ):  # fmt: skip
        self.layout, self.dtype, self.compute, self.b, self.sources = layout, dtype, compute, b, sources
        self.beside = beside
        self.elements: dict[int, Value] = {}
        self.packed: dict[int, Value] = {}
        self.touched: set[int] = set()
        self.serial = next(_SERIALS)
        behind: list[int] = [source.depth for source, _ in sources if isinstance(source, Lazy)]
        self.depth: int = 1 + max(behind, default=0)
        self.steps_down = any(depth // STEP != self.depth // STEP for depth in behind)

    def word(self, b: Builder, index: int) -> Value:
        per = per_register(self.dtype)
        if per == 1:
            return self._computed(index)
        found = self.packed.get(index)
        if found is None:
            count = self.layout.elements_per_lane
            group = [self._computed(i) for i in range(index * per, min(index * per + per, count))]
            zero = b.zero(scalar_type(self.dtype))
            found = self.packed[index] = b.pack(group + [zero] * (per - len(group)), self.dtype)
        return found

    def element(self, b: Builder, index: int) -> Value:
        """One element; of a narrow dtype as it is once packed, rounded or wrapped, as everybody else finds it."""
        per = per_register(self.dtype)
        return self.word(b, index) if per == 1 else b.unpack(self.word(b, index // per), self.dtype, index % per)

    def compute_as_written(self, elements: Sequence[int]) -> bool:
        if self.depth * len(elements) < LONG_SUMS:
            return False
        wanted = self._needed(elements)
        if _most_held([x for x, _ in wanted], wanted) >= _most_held(self._asked({x.serial for x, _ in wanted}), wanted):
            return False
        for x, todo in wanted:
            for i in todo:
                x._computed(i)
        return True

    def _needed(self, elements: Sequence[int]) -> list[tuple[Lazy, list[int]]]:
        """What has to be computed for some elements, and which elements of it, in the program's order."""
        todo: dict[int, dict[int, None]] = {self.serial: {i: None for i in elements if i not in self.elements}}
        heap: list[tuple[int, Lazy]] = [(-self.serial, self)]
        found: list[tuple[Lazy, list[int]]] = []
        while heap:
            _, x = heappop(heap)
            mine = list(todo[x.serial])
            found.append((x, mine))
            for source, own in x.sources:
                if not isinstance(source, Lazy):
                    continue
                more = [own[i] for i in mine if own[i] not in source.elements]
                if more and source.serial not in todo:
                    todo[source.serial] = {}
                    heappush(heap, (-source.serial, source))
                if more:
                    todo[source.serial].update(dict.fromkeys(more))
        return found[::-1]

    def _asked(self, wanted: Collection[int]) -> list[Lazy]:
        """What this is computed of and still wants elements computed, in the order in which it is asked for."""
        out: list[Lazy] = []
        seen: set[int] = set()
        work: list[tuple[Lazy, bool]] = [(self, False)]
        while work:
            x, ready = work.pop()
            if ready:
                out.append(x)
            elif x.serial not in seen:
                seen.add(x.serial)
                work.append((x, True))
                sources = (source for source, _ in reversed(x.sources) if isinstance(source, Lazy))
                work += [(source, False) for source in sources if source.serial in wanted]
        return out

    def _computed(self, index: int) -> Value:
        found = self.elements.get(index)
        if found is None:
            if self.steps_down:
                self._compute_behind(index)
            found = self.elements[index] = self.compute(index)
        return found

    def _compute_behind(self, index: int) -> None:
        """Compute what lies a step further down, the farthest first: each element asks those that it is made of, and
        Python's stack does not hold a chain of any length."""
        work: list[tuple[Lazy, int, bool]] = [(self, index, True)]
        seen: set[tuple[int, int]] = set()
        while work:
            x, i, compute = work.pop()
            if i in x.elements:
                continue
            if (id(x), i) in seen:
                if compute and x is not self:
                    x._computed(i)
                continue
            seen.add((id(x), i))
            if compute:
                work.append((x, i, True))
            for source, own in reversed(x.sources):
                if isinstance(source, Lazy):
                    below = source.depth // STEP != x.depth // STEP
                    work += [(source, j, below) for j in reversed(source.packed_with(own[i]))]

    def packed_with(self, index: int) -> Sequence[int]:
        """The elements of an element's register."""
        per = per_register(self.dtype)
        first = index // per * per
        return range(first, min(first + per, self.layout.elements_per_lane))

    def touch(self, index: int) -> None:
        work: list[tuple[Fragment, int]] = [(self, index)]
        while work:
            x, i = work.pop()
            if not isinstance(x, Lazy):
                x.touch(i)
            elif i not in x.touched:
                x.touched.add(i)
                work += [(source, elements[i]) for source, elements in reversed(x.sources)]

    def compute_together(self, elements: Sequence[int]) -> None:
        if self.compute_as_written(elements):
            return
        work: list[tuple[Fragment, Sequence[int], bool]] = [(self, elements, False)]
        while work:
            x, wanted, ready = work.pop()
            if not isinstance(x, Lazy):
                x.compute_together(wanted)
            elif todo := [i for i in wanted if i not in x.elements]:
                if ready:
                    for i in todo:
                        x._computed(i)
                else:
                    work.append((x, todo, True))
                    work += [(source, [own[i] for i in todo], False) for source, own in reversed(x.sources)]


def _most_held(order: Sequence[Lazy], wanted: Sequence[tuple[Lazy, list[int]]]) -> int:
    """Elements of those wanted that are held at a time, at most, where they are computed in an order."""
    sizes = {x.serial: len(todo) for x, todo in wanted}
    last: dict[int, int] = {}
    for p, x in enumerate(order):
        last[x.serial] = p
        last.update((source.serial, p) for source, _ in x.sources if isinstance(source, Lazy))
    ends: dict[int, int] = {}
    for serial, p in last.items():
        ends[p] = ends.get(p, 0) + sizes.get(serial, 0)
    held = most = 0
    for p, x in enumerate(order):
        held += sizes[x.serial]
        most = max(most, held)
        held -= ends.get(p, 0)
    return most


def chunk_elements(layout: Layout, dtype: DType) -> int:
    """Elements of the standard chunk: what one instruction holds of the layout's box, at least one register."""
    return max(1 << layout.inner.count("e"), per_register(dtype))


def chunk_count(layout: Layout, dtype: DType) -> int:
    return max(1, -(-layout.elements_per_lane // chunk_elements(layout, dtype)))


def register_count(layout: Layout, dtype: DType) -> int:
    """Registers (of `register_type`) that hold the value."""
    return -(-layout.elements_per_lane // per_register(dtype))


def from_words(b: Builder, layout: Layout, dtype: DType, words: Sequence[Value]) -> Fragment:
    """A fragment in standard chunks from its registers."""
    if dtype is dt.i1:
        return Fragment(layout, dtype, [tuple(words)], list(words))
    size = max(1, chunk_elements(layout, dtype) // per_register(dtype))
    chunks = [b.vec(*words[i : i + size]) if size > 1 else words[i] for i in range(0, len(words), size)]
    return Fragment(layout, dtype, chunks, list(words))


def from_elements(b: Builder, layout: Layout, dtype: DType, elements: Sequence[Value]) -> Fragment:
    """A fragment from one number per element, each in `scalar_type`: rounds and packs narrow ones."""
    per = per_register(dtype)
    if per == 1:
        return from_words(b, layout, dtype, elements)
    zero = b.zero(scalar_type(dtype))
    words = []
    for i in range(0, len(elements), per):
        group = list(elements[i : i + per])
        words.append(b.pack(group + [zero] * (per - len(group)), dtype))
    return from_words(b, layout, dtype, words)


def standard(b: Builder, value: Fragment) -> Fragment:
    """The same value in standard chunks, as loops carry it."""
    if value.dtype is dt.i1:
        raise CompileError("a loop cannot carry i1 values", hint="carry an i32 and compare it inside the loop")
    size = max(1, chunk_elements(value.layout, value.dtype) // per_register(value.dtype))
    if all(not isinstance(c, (list, tuple)) and c.type.n == size for c in value.chunks):
        return value
    return from_words(b, value.layout, value.dtype, value.words(b))
