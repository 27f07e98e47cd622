"""The larger or the smaller of two floats kept in memory by atomics of integers, where the chip has none of floats.

In: an address, a mask and a float per lane. Out: the atomics, and what was there. Bits of numbers without a sign are
ordered as signed integers are, those of numbers with one the other way round as unsigned ones are, so

    keeps       x >= +0                 x <= -0
    the larger  maximum, signed         minimum, unsigned
    the smaller minimum, signed         maximum, unsigned

whatever number is in memory, with -0 below +0. No lane waits for another, and many may be on their way at once; a loop
around compare-and-swap waits for memory twice per element, and once more for each lane that was faster.

A number wins over NaN. A NaN in x accesses nothing, or only asks what is there. One in memory loses by its bits to
numbers, or wins over all of them if it has no sign (has one, of the smaller): a lane that finds such a one there tries
again by compare-and-swap, and when that is done no NaN is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import islice

from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.kernel_ir import I32, I64, Value
from wavedsl.ir.layouts.fragment import scalar_type
from wavedsl.ir.lower.lower_mapped import MappedAccess
from wavedsl.ir.lower.swaps import Change, carry_out

TOGETHER = 16
"""Elements that are on their way before a wave looks at their answers."""

INFINITY = {32: 0x7F80_0000, 64: 0x7FF0_0000_0000_0000}
"""Bits of +∞. What lies above it, read as a signed number, is NaN."""

Element = tuple[Value, Value, Value]
"""Byte offset, mask, float."""
Again = Callable[[Value, Value, Value], Change[Value]]
"""An `Element` → what was there: the same by compare-and-swap."""


class Extremes:
    """The elements of one atomic that keeps the larger, or the smaller, of floats. `used`: whether somebody asks what
    was there before."""

    def __init__(self, access: MappedAccess, larger: bool, dtype: DType, used: bool, again: Again):
        self.access, self.larger, self.used, self.again = access, larger, used, again
        self.kind = scalar_type(dtype)
        self.bits = I64 if dtype.bits == 64 else I32
        self.infinity = INFINITY[dtype.bits]
        self.lowest = self.infinity - (1 << dtype.bits - 1)
        """Bits of -∞ as a signed number."""

    def keep(self, elements: Iterable[Element]) -> list[tuple[Value]]:
        """Change them; what was there, and 0 where a lane's mask does not hold, if somebody asks."""
        waiting = iter(elements)
        found: list[tuple[Value]] = []
        while batch := list(islice(waiting, TOGETHER)):
            found += ((x,) for x in self._batch(batch))
        return found

    def _batch(self, elements: Sequence[Element]) -> list[Value]:
        b = self.access.b
        olds, pending = zip(*(self._once(*e) for e in elements))
        with b.if_(b.any_lane(reduce(b.por, pending))) as branch:
            if self.used:
                words = self._again((at, p, x) for (at, _, x), p in zip(elements, pending))
                branch.yield_(*(b.select(p, new, old) for p, new, old in zip(pending, words, olds)))
            else:
                # Of those that have won it changes nothing, and no masks are kept for it.
                self._again((at, b.pand(mask, b.fcmp("eq", x, x)), x) for at, mask, x in elements)
                branch.yield_()
        if not self.used:
            return [b.bitcast(x, self.kind) for x in olds]
        with branch.orelse():
            branch.yield_(*olds)
        zero = b.zero(self.kind)
        return [b.select(mask, b.bitcast(x, self.kind), zero) for (_, mask, _), x in zip(elements, branch.results)]

    def _again(self, elements: Iterable[Element]) -> list[Value]:
        """One at a time: few come here, and all pay for registers."""
        found = carry_out(self.access, (self.again(*e) for e in elements), together=1)
        return [self.access.b.bitcast(x, self.bits) for x in found]

    def _once(self, voff: Value, mask: Value, x: Value) -> tuple[Value, Value]:
        """(what was there, which lanes have to try again)."""
        b, word = self.access.b, self.access.b.bitcast(x, self.bits)
        plus = b.pand(mask, b.cmp("ule", word, b.const(self.infinity, self.bits)))
        minus = b.pand(mask, b.cmp("sle", word, b.const(self.lowest, self.bits)))
        signed, unsigned = ("max_s", "min_u") if self.larger else ("min_s", "max_u")
        old = self.access.atomic(voff, signed, word, mask=plus)
        old = b.select(plus, old, self.access.atomic(voff, unsigned, word, mask=minus))
        numbers = b.por(plus, minus)
        # A NaN over which a number has not won.
        limit = b.const(self.infinity if self.larger else self.lowest, self.bits)
        missed = b.pand(numbers, b.cmp("sgt" if self.larger else "ugt", old, limit))
        return old, b.por(missed, b.pand(mask, b.pnot(numbers))) if self.used else missed


__all__ = ["Element", "Extremes"]
