"""Floats of 4 and 6 bits, and scales, by integer arithmetic: what a chip without instructions for them computes.

In: f32 numbers, or words of packed codes. Out: the other. Every step is exact but the one rounding, to nearest even
and saturating. A float of w bits is sign, exponent (bias as in OCP's MX formats), mantissa; it has denormals and
neither infinities nor NaN.

The idea: a code's exponent and mantissa, moved to where f32 has its own, are the number but for a power of two, and
multiplying by that is exact, denormals included. Backwards, adding 2^(23 - mantissa bits) times the number's own power
of two leaves the rounded mantissa in the low bits of the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import ml_dtypes
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.kernel_ir import B32, F32, I32, Value

if TYPE_CHECKING:
    from wavedsl.ir.kernel.build_values import Values

BIAS = {dt.f4e2m1: 1, dt.f6e2m3: 1, dt.f6e3m2: 3}
"""Exponent bias (OCP Microscaling Formats 1.0, section 5.3)."""
FORMATS = frozenset((*BIAS, dt.f8e8m0))
"""The formats that this file computes."""
_F32_BIAS, _F32_MANTISSA = 127, 23
_NAN = 0x7FC00000


def pack(b: Values, values: Sequence[Value], dtype: DType) -> Value:
    """A word of codes, the first number lowest."""
    encode = _encode_scale if dtype is dt.f8e8m0 else _encode
    word: Value | None = None
    for i, v in enumerate(values):
        if v.const == 0 and dtype is not dt.f8e8m0 and str(v.const)[0] != "-":
            continue
        code = b.shl(encode(b, v, dtype), i * dtype.slot)
        word = code if word is None else b.or_(word, code)
    return b.const(0, B32) if word is None else b.bitcast(word, B32)


def unpack(b: Values, word: Value, dtype: DType, index: int) -> Value:
    """Element `index` of a word of codes, as f32."""
    bits, at = b.bitcast(word, I32), index * dtype.slot
    if dtype is dt.f8e8m0:
        return _decode_scale(b, b.and_(b.lshr(bits, at), 255))
    width, m = dtype.bits, dtype.mantissa
    size = b.and_(_moved(b, bits, at, _F32_MANTISSA - m), (1 << width - 1) - 1 << _F32_MANTISSA - m)
    sign = b.and_(_moved(b, bits, at + width - 1, 31), 1 << 31)
    return b.fmul(b.bitcast(b.or_(sign, size), F32), b.const(2.0 ** (_F32_BIAS - BIAS[dtype]), F32))


def _moved(b: Values, bits: Value, at: int, to: int) -> Value:
    """The bits with bit `at` in place `to`."""
    return b.shl(bits, to - at) if to >= at else b.lshr(bits, at - to)


def _encode(b: Values, x: Value, dtype: DType) -> Value:
    m, bias = dtype.mantissa, BIAS[dtype]
    largest = b.const(float(ml_dtypes.finfo(dtype.numpy).max), F32)
    inside = b.fmax(b.fmin(x, largest), b.fneg(largest))  # a NaN becomes the largest number
    size = b.fabs(inside)
    # The power of two of the number, that of the smallest normal one for denormals, as f32 exponent bits.
    least = _F32_BIAS + 1 - bias << _F32_MANTISSA
    power = b.max_s(b.and_(b.bitcast(size, I32), 0x7F800000), least)
    magic = b.add(power, _F32_MANTISSA - m << _F32_MANTISSA)
    rounded = b.sub(b.bitcast(b.fadd(size, b.bitcast(magic, F32)), I32), magic)
    code = b.add(rounded, b.lshr(b.sub(power, least), _F32_MANTISSA - m))
    sign = b.and_(b.lshr(b.bitcast(inside, I32), 32 - dtype.bits), 1 << dtype.bits - 1)
    return b.or_(code, sign)


def _decode_scale(b: Values, code: Value) -> Value:
    """2^(code - 127): the code is f32's exponent, but 0 is the denormal 2^-127, and 255 NaN."""
    bits = b.max_s(b.shl(b.and_(code, 255), _F32_MANTISSA), 1 << _F32_MANTISSA - 1)
    return b.bitcast(b.select(b.cmp("eq", code, 255), b.i32(_NAN), bits), F32)


def _encode_scale(b: Values, x: Value, dtype: DType) -> Value:
    """The nearest power of two, ties up; zero, negative and too large numbers have none, and are NaN."""
    bits = b.bitcast(x, I32)
    half = 1 << _F32_MANTISSA - 1
    code = b.min_s(b.lshr(b.add(bits, half), _F32_MANTISSA), 255)
    code = b.select(b.cmp("sle", bits, half), b.i32(0), code)
    return b.select(b.cmp("sle", bits, 0), b.i32(255), code)


__all__ = ["BIAS", "FORMATS", "pack", "unpack"]
