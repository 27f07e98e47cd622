"""A read through a mapping some of whose elements are the same element of the array, as the halves of a byte are.

In: per element of the value the words that a load brought, in the array's order, and the position in them. Out: its
elements. The one idea: who computes with single elements takes each from where it was loaded, once for all that share
it; words of the value's own order are put together only for who asks for words.
"""

from __future__ import annotations

from collections.abc import Mapping

from wavedsl.ir.addresses.move_elements import join_register, join_word
from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.fragment import OnDemand, per_register
from wavedsl.ir.layouts.layout import Layout


class Repeated(OnDemand):
    """`home`: per element the loaded words and the position of its element of the array among those they hold."""

    def __init__(self, b: Builder, layout: Layout, dtype: DType, home: Mapping[int, tuple[Value, int]]):
        self.b, self.layout, self.dtype, self.home = b, layout, dtype, home
        self.joined: dict[int, Value] = {}
        self.elements: dict[tuple[int, int], Value] = {}

    def word(self, b: Builder, index: int) -> Value:
        found = self.joined.get(index)
        if found is None:
            found = self.joined[index] = join_register(b, self.layout, self.dtype, index, self.home.__getitem__)
        return found

    def element(self, b: Builder, index: int) -> Value:
        value, position = self.home[index]
        found = self.elements.get((value.id, position))
        if found is None:
            per = per_register(self.dtype)
            word = join_word(b, self.dtype, [(value, position // per * per)])
            found = word if per == 1 else b.unpack(word, self.dtype, position % per)
            self.elements[value.id, position] = found
        return found


__all__ = ["Repeated"]
