"""Results that change lanes before they are stored, so that stores touch fewer cache lines.

In: a value in registers, the array that it is stored to. Out: the same value in a layout with which a store takes fewer
clocks of vector memory, where the chip exchanges lane bits with register bits (`Target.lane_swaps`) and that pays; else
the value itself.

A lane of a 32 x 32 product has its results in runs of four or eight neighbours and all 32 rows are in different lanes:
a store touches 32 lines for 512 or 1024 bytes. Vector memory takes a clock for each line and for every 64 bytes. Where
the top bit of the row's number moves to the registers, and a bit of the column's comes to the lanes for it, a store
touches 16 rows, 64 bytes of each.

Invariant: exchanges are done for the words of one store, or of a few, when the first of them is asked for; a chain that
ends in a store holds no more than that (`Lazy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from wavedsl.ir.addresses.vectors import vector_elements
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, PRED, Value
from wavedsl.ir.layouts.bits import REGISTER_KINDS, Bits, bit, kind_of
from wavedsl.ir.layouts.chain import absorbed
from wavedsl.ir.layouts.fragment import Fragment, Lazy, per_register, register_type
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.exchange import renamed
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.symbols import dim_name
from wavedsl.ir.target import Target

LINE = 128
"""Bytes of a cache line: vector memory takes a clock for each that an access touches."""

Swap = tuple[int, int]
"""(register bit of the element's number, lane bit) that change places."""


def for_stores(low: Lowering, info: ArrayInfo, value: Fragment, plans: Mapping[str, DimPlan]) -> Fragment:
    """The value in the layout in which storing it takes the fewest clocks, exchanges included."""
    kind = register_type(value.dtype)
    if not low.target.lane_swaps or kind is PRED or kind.words != 1 or info.contiguous() is None:
        return value
    waves = low.partition.waves
    least = value.layout.elements_per_lane * max(value.dtype.slot, 8) * value.layout.lanes // 8 // 64
    if store_clocks(info, value.layout, plans, low.target) <= least:
        return value
    layout = absorbed(value.layout)
    swaps = best_swaps(info, layout, plans, low.target, waves, per_register(value.dtype))
    if not swaps:
        return value
    held = renamed(value.layout, layout)
    if held is None or not _whole_words(held, per_register(value.dtype)):
        return value
    return Exchanged(low.b, value, held, exchanged(layout, swaps), swaps, info, plans)


def store_clocks(info: ArrayInfo, layout: Layout, plans: Mapping[str, DimPlan], target: Target) -> int:
    """Clocks of vector memory that a wave's stores take."""
    c = info.contiguous()
    assert c is not None
    width, _ = vector_elements(info, layout, plans, True)
    dim = dim_name(info.dims[c])
    run = width
    lanes = {
        step for x, step, whole in zip(layout.inner.ins, layout.inner.coordinate_columns(dim), layout.inner.cols)
        if kind_of(x) == "l" and whole.bit_count() == 1
    } if dim in layout.dims else set()  # fmt: skip
    while run in lanes and run * info.elsize < LINE:
        run *= 2
    lines = layout.lanes * width // run
    return layout.elements_per_lane // width * max(lines, target.cost("store.global", width * info.elsize).cycles)


def exchanged(layout: Layout, swaps: Sequence[Swap]) -> Layout:
    """The layout after the exchanges."""
    inner = layout.inner
    cols = list(inner.cols)
    registers = [i for i, x in enumerate(inner.ins) if kind_of(x) in REGISTER_KINDS]
    for register, lane in swaps:
        i, j = registers[register], inner.ins.index(bit("l", lane))
        cols[i], cols[j] = cols[j], cols[i]
    return Layout(Bits(inner.ins, inner.outs, cols), layout.digits, layout.extents)


def best_swaps(
    info: ArrayInfo, layout: Layout, plans: Mapping[str, DimPlan], target: Target, waves: int, per: int
) -> tuple[Swap, ...]:
    """The exchanges after which a workgroup's stores and the exchanges take the fewest clocks, at most one for each
    lane bit; empty where none pay. `per`: elements of a register, which stay together."""
    inner = layout.inner
    c = info.contiguous()
    assert c is not None
    dim = dim_name(info.dims[c])
    if dim not in inner.dims or not inner.monomial() or any(not x for x in inner.cols):
        return ()
    steps = dict(zip(inner.ins, inner.coordinate_columns(dim)))
    registers = [x for x in inner.ins if kind_of(x) in REGISTER_KINDS]
    # What a lane takes from the registers is to be a part of the line.
    near = [
        i for i, x in enumerate(registers)
        if i >= per.bit_length() - 1 and 0 < steps[x] and steps[x] * info.elsize < LINE
    ]  # fmt: skip
    words = -(-layout.elements_per_lane // per)
    valu = target.cost("valu").cycles * -(-waves // target.simds)
    lanes = [x for x in target.lane_swaps if bit("l", x) in inner.ins]
    most = min(len(near), len(lanes))
    tried = [()] + [
        tuple(zip(some, which))
        for n in range(1, most + 1) for which in permutations(lanes, n) if list(which) == sorted(which)
        for some in permutations(near, n)
    ]  # fmt: skip
    costs = [
        waves * store_clocks(info, exchanged(layout, swaps), plans, target) + len(swaps) * words // 2 * valu
        for swaps in tried
    ]
    return tried[costs.index(min(costs))]


def _whole_words(held: Sequence[int | None], per: int) -> bool:
    """Whether every register of the renamed value is one of the value's."""
    heads = held[::per]
    return len(held) % per == 0 and all(
        x is not None and x % per == 0 and list(held[i * per : i * per + per]) == list(range(x, x + per))
        for i, x in enumerate(heads)
    )


class Exchanged(Lazy):
    """A value after exchanges with other lanes. `held`: per element, in the order of the layout that `swaps` change,
    that of the value."""

    def __init__(
        self, b: Builder, value: Fragment, held: Sequence[int | None], layout: Layout, swaps: Sequence[Swap],
        info: ArrayInfo, plans: Mapping[str, DimPlan],
    ):  # fmt: skip
        self.value, self.held, self.swaps = value, held, swaps
        own = [self._first(i) for i in range(layout.elements_per_lane)]
        super().__init__(layout, value.dtype, self._number, b, [(value, own)])
        self.per = per_register(value.dtype)
        skip = self.per.bit_length() - 1
        registers = [x for x in layout.inner.ins if kind_of(x) in REGISTER_KINDS]
        stored = [registers.index(x) for x in vector_elements(info, layout, plans, True)[1]]
        together = dict.fromkeys([*stored, *(register for register, _ in swaps)])
        self.bits = [x - skip for x in together if x >= skip]
        """Bits of a register's number in which those differ that are exchanged at a time: first a store's."""

    def _first(self, element: int) -> int:
        found = self.held[element]
        assert found is not None
        return found

    def _members(self, index: int) -> list[int]:
        """The registers that are exchanged together with one."""
        mask = sum(1 << x for x in self.bits)
        out = [index & ~mask]
        for x in self.bits:
            out += [i | 1 << x for i in out]
        return out

    def word(self, b: Builder, index: int) -> Value:
        found = self.packed.get(index)
        if found is None:
            members = self._members(index)
            words = [self.value.word(b, self._first(i * self.per) // self.per) for i in members]
            kind = words[0].type
            moved = b.vec(*(w if kind is B32 else b.bitcast(w, B32) for w in words))
            skip = self.per.bit_length() - 1
            for register, lane in self.swaps:
                moved = b.swap_lanes(moved, self.bits.index(register - skip), lane)
            for n, i in enumerate(members):
                part = b.slice(moved, n)
                self.packed[i] = part if kind is B32 else b.bitcast(part, kind)
            found = self.packed[index]
        return found

    def element(self, b: Builder, index: int) -> Value:
        word = self.word(b, index // self.per)
        return word if self.per == 1 else b.unpack(word, self.dtype, index % self.per)

    def _number(self, index: int) -> Value:
        return self.element(self.b, index)

    def touch(self, index: int) -> None:
        for i in self._members(index // self.per):
            if i not in self.touched:
                self.touched.add(i)
                for e in range(i * self.per, i * self.per + self.per):
                    self.value.touch(self._first(e))


__all__ = ["Exchanged", "best_swaps", "exchanged", "for_stores", "store_clocks"]
