"""NumPy meaning of the operations on the bits of integers, for the rows of `ops.py`.

Arrays come in their own integer type of 8 to 64 bits; counts are any integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any


def _bits(x: Array) -> tuple[Array, int]:
    """(the bits of each number, the lowest first, along a new first axis; how many)."""
    x = np.asarray(x, order="C")  # `ascontiguousarray` would give a single number a dimension
    width = 8 * x.dtype.itemsize
    unsigned = x.view(f"u{x.dtype.itemsize}").astype(np.uint64)
    return np.stack([unsigned >> np.uint64(i) & np.uint64(1) for i in range(width)]), width


def _number(bits: Array, like: Array) -> Array:
    total = sum(bit << np.uint64(i) for i, bit in enumerate(bits))
    return total.astype(f"u{like.dtype.itemsize}").view(like.dtype)


def popcount(x: Array) -> Array:
    return _bits(x)[0].sum(0).astype(np.int32)


def ctz(x: Array) -> Array:
    bits, width = _bits(x)
    return np.where(bits.any(0), bits.argmax(0), width).astype(np.int32)


def clz(x: Array) -> Array:
    bits, width = _bits(x)
    return np.where(bits.any(0), bits[::-1].argmax(0), width).astype(np.int32)


def bit_reverse(x: Array) -> Array:
    return _number(_bits(x)[0][::-1], np.asarray(x))


def rotate_left(x: Array, count: Array) -> Array:
    x, count = np.broadcast_arrays(x, count)
    bits, width = _bits(x)
    places = (np.arange(width).reshape(-1, *(1,) * x.ndim) - count.astype(object) % width).astype(np.int64) % width
    return _number(np.take_along_axis(bits, places, 0), x)


def _exactly(f: Callable[..., Any]) -> Callable[..., Array]:
    """`f` of Python's integers and the width; the results as the operands' type, wrapped."""

    def meaning(*operands: Array) -> Array:
        dtype = np.result_type(*operands)
        exact = f(*(np.asarray(x).astype(object) for x in operands), dtype)
        # Of a number without dimensions NumPy makes Python's own.
        wrapped = np.asarray(np.asarray(exact, object) & ((1 << 8 * dtype.itemsize) - 1), object)
        return wrapped.astype(f"u{dtype.itemsize}").view(dtype)

    return meaning


def _limited(x: Array, dtype: Any) -> Array:
    info = np.iinfo(dtype)
    return np.minimum(np.maximum(x, int(info.min)), int(info.max))


mulhi = _exactly(lambda x, y, dtype: x * y >> 8 * dtype.itemsize)
saturating_add = _exactly(lambda x, y, dtype: _limited(x + y, dtype))
saturating_sub = _exactly(lambda x, y, dtype: _limited(x - y, dtype))


def _permuted(x: Array, y: Array, selector: Array, dtype: Any) -> Array:
    both = (y & 0xFFFFFFFF) << 32 | x & 0xFFFFFFFF
    chosen = [(both >> 8 * ((selector >> 4 * i) & 7) & 0xFF) << 8 * i for i in range(4)]
    return chosen[0] | chosen[1] | chosen[2] | chosen[3]


permute_bytes = _exactly(_permuted)
