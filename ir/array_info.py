"""What the compiler knows of an array argument before launch: extents, strides, alignment."""

from __future__ import annotations

import sys
from functools import cached_property
from math import gcd
from typing import Any

from wavedsl.ir.dtypes import DType
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import dim_name

LIMIT = 1 << 31
"""Arrays that span fewer bytes are addressed by 32-bit offsets from their first element."""
NEAR = 0xFFFFE000
"""Bytes of an array that an access by index reaches by a 32-bit offset, and the most that a descriptor of AMD's holds;
elements of larger arrays have 64-bit addresses."""
EMPTY = 16
"""Elements that an empty dimension counts as in strides, which nothing is reached by: so they are multiples of whatever
a text may rely on."""
MASKED = "kernels see no mask: pass x.filled(…), or the data and the mask as two arguments"
"""What to do instead of passing a masked array."""


def is_masked(array: Any) -> bool:
    """Whether this is one of NumPy's masked arrays. There is none before `numpy.ma` has been imported."""
    module = sys.modules.get("numpy.ma")
    return module is not None and isinstance(array, module.MaskedArray)


@dataclass(frozen=True)
class ArrayInfo:
    """What the compiler knows of an array argument.

    `strides` in bytes and `extents` in elements per dimension of the annotation, None where they are run-time
    arguments.
    `align`: bytes by which the pointer is a multiple (a power of two up to 16). `multiples`: for a run-time extent or
    stride, a power of two it is known to be a multiple of.
    """

    name: str
    param: int
    dims: tuple[Any, ...]
    dtype: DType
    strides: tuple[int | None, ...]
    extents: tuple[int | None, ...]
    align: int = 16
    stride_multiples: tuple[int, ...] = ()
    extent_multiples: tuple[int, ...] = ()
    cache_stride: int = 0
    """The stride of the cache swizzle that its buffers ask for; 0: none."""
    offset: int = 0
    """Byte of the first element behind the argument's pointer: of a part of the array."""
    cut: frozenset[str] = frozenset()
    """Dimensions whose extent here is less than the dimension's own: elements past it are outside."""
    moved: frozenset[str] = frozenset()
    """Dimensions along which a tile may start anywhere: nothing is known of its alignment."""
    starts: tuple[tuple[str, int], ...] = ()
    """Of those of which it is known: the elements of which the tile's start is a multiple, wherever it is."""
    beyond: bool = False
    """Whether an array of run-time size may span more than `NEAR`: the one that it was compiled with does."""
    written: bool = False
    """Whether the kernel that reads it also writes it: what sticks out of a tile may be changing then."""
    counted: tuple[tuple[int, int] | None, ...] = ()
    """Of a run-time stride: the parameter that holds it in elements, and the bits of one. Of others None."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The dimensions as layouts and plans know them. Printing an expression is slow, and every access asks."""
        return tuple(map(dim_name, self.dims))

    @property
    def elsize(self) -> int:
        """Bytes of an element; of a packed array the byte that its last dimension's stride counts."""
        return 1 if self.dtype.packed else self.dtype.bytes

    def span(self) -> int | None:
        """Bytes from the first to past the last element; None when run-time arguments decide."""
        total = self.elsize
        for i, (n, s) in enumerate(zip(self.extents, self.strides)):
            if n is None or s is None:
                return None
            if n == 0:
                return 0
            if self.dtype.packed and i == len(self.dims) - 1:
                n = -(-n * self.dtype.bits // 8)
            total += (n - 1) * s
        return total

    @property
    def far(self) -> bool:
        """Whether elements that are picked by index have to have 64-bit addresses."""
        span = self.span()
        return self.beyond if span is None else span > NEAR

    def stride_multiple(self, i: int) -> int:
        s = self.strides[i]
        return s if s is not None else self.stride_multiples[i] if self.stride_multiples else 1

    def start_multiple(self, i: int) -> int:
        """Elements that divide where a tile starts along dimension `i` of the array, and where the array ends; 0 where
        the tile's own size says it."""
        if self.names[i] not in self.moved:
            return 0
        return gcd(dict(self.starts).get(self.names[i], 1), self.extent_multiple(i))

    def extent_multiple(self, i: int) -> int:
        n = self.extents[i]
        return n if n is not None else self.extent_multiples[i] if self.extent_multiples else 1

    @property
    def large(self) -> bool:
        """Whether 32-bit offsets may not reach every element."""
        span = self.span()
        return span is None or span >= LIMIT

    def contiguous(self) -> int | None:
        """The dimension whose neighbours are neighbours in memory: the last with that stride and more than one
        element."""
        fallback = None
        for i in reversed(range(len(self.dims))):
            if self.strides[i] == self.elsize:
                if self.extents[i] != 1:
                    return i
                fallback = i if fallback is None else fallback
        return fallback

    def row_elements(self) -> int:
        """Elements between neighbours along the dimension that is the next after the contiguous one; 0 where that is
        not known or no whole number."""
        c = self.contiguous()
        known = [s for i, s in enumerate(self.strides) if i != c]
        if not known or None in known:
            return 0
        least = min(s for s in known if s is not None)
        return least // self.elsize if least % self.elsize == 0 else 0

    def rows_follow(self) -> bool:
        """Whether a coordinate past the end of the outermost dimension is past the end of the array in memory."""
        if not self.dims or self.strides[0] is None:
            return False
        inner = self.elsize
        for n, s in zip(self.extents[1:], self.strides[1:]):
            if n is None or s is None:
                return False
            inner += max(n - 1, 0) * s
        return self.strides[0] >= inner
