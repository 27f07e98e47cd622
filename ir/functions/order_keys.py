"""Integers that order as numbers do: what argmax, sort and top-k compare.

In: elements of a fragment. Out: an i32 (i64 for 64-bit types) per element; keys compare, signed, as the numbers do. NaN
has a key of its own, below or above every number. `from_key` is the inverse.
"""

from __future__ import annotations

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, I32, I64, Type, Value
from wavedsl.ir.layouts.fragment import Fragment, per_register, scalar_type

LOWEST, HIGHEST = "lowest", "highest"
"""Where a NaN goes."""


def key_type(dtype: DType) -> Type:
    return I64 if dtype.bits == 64 else I32


def lowest_key(dtype: DType) -> int:
    """Below every number's key: a NaN's where NaN is lowest, and what lies beyond an end."""
    return -(1 << (64 if dtype.bits == 64 else 32 if dtype.bits == 32 else 16) - 1)


def highest_key(dtype: DType) -> int:
    return -lowest_key(dtype) - 1


def element_key(b: Builder, value: Fragment, index: int, nan: str, signed_zero: bool = False) -> Value:
    """The key of one element. With `signed_zero` -0 comes before +0, else the two are equal."""
    dtype = value.dtype
    if not dtype.is_float:
        number = value.element(b, index)
        flip = dtype.kind == "uint" and dtype.bits >= 32
        if dtype.kind == "uint" and dtype.bits == 16:
            return b.sub(number, 1 << 15)  # keys of 16 bits
        return b.xor(number, b.const(-(1 << (dtype.bits - 1)), number.type)) if flip else number
    return _float_key(b, _bits(b, value, index), dtype, nan, signed_zero)


def number_key(b: Builder, number: Value, nan: str) -> Value:
    """The key of a number of f32."""
    return _float_key(b, b.bitcast(number, I32), dt.f32, nan, False)


def _float_key(b: Builder, bits: Value, dtype: DType, nan: str, signed_zero: bool) -> Value:
    width = bits.type
    most = (1 << (dtype.bits - 1)) - 1
    infinity = ((1 << (dtype.bits - 1 - dtype.mantissa)) - 1) << dtype.mantissa
    size = b.and_(bits, b.const(most, width))
    sign = b.ashr(bits, 63 if width is I64 else 31)
    if signed_zero:
        key = b.xor(bits, b.and_(sign, b.const(most, width)))
    else:
        key = b.sub(b.xor(size, sign), sign)
    other = lowest_key(dtype) if nan == LOWEST else highest_key(dtype)
    return b.select(b.cmp("sgt", size, b.const(infinity, width)), b.const(other, width), key)


def _bits(b: Builder, value: Fragment, index: int) -> Value:
    """A float's bits as an integer, extended by its sign."""
    dtype, per = value.dtype, per_register(value.dtype)
    if per == 1:
        return b.bitcast(value.element(b, index), I64 if dtype.bits == 64 else I32)
    return b.unpack(value.words(b)[index // per], dt.i16, index % per)


def from_key(b: Builder, key: Value, dtype: DType, signed_zero: bool = False) -> Value:
    """The number behind a key, in `scalar_type`. A NaN comes out as the type's quiet one with all bits set."""
    kind = scalar_type(dtype)
    if not dtype.is_float:
        if dtype.kind == "uint" and dtype.bits == 16:
            return b.add(key, 1 << 15)
        flip = dtype.kind == "uint" and dtype.bits >= 32
        return b.xor(key, b.const(-(1 << (dtype.bits - 1)), key.type)) if flip else key
    most = (1 << (dtype.bits - 1)) - 1
    sign = b.ashr(key, 63 if key.type is I64 else 31)
    if signed_zero:
        bits = b.xor(key, b.and_(sign, b.const(most, key.type)))
    else:
        lowest = b.cmp("eq", key, b.const(lowest_key(dtype), key.type))
        size = b.sub(b.xor(key, sign), sign)
        bits = b.or_(size, b.and_(sign, b.const(-(1 << (dtype.bits - 1)), key.type)))
        bits = b.select(lowest, b.const(most, key.type), bits)
    if dtype.bits >= 32:
        return b.bitcast(bits, kind)
    return b.unpack(b.bitcast(b.and_(bits, 0xFFFF), B32), dtype, 0)
