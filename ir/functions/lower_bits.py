"""Operations on the bits of integers in kernel IR, whose own ops take 32 bits: narrower numbers are words with other
bits above theirs, wider ones two words. One function per row of `ops.py`, as in `lower_ops.py`.
"""

from __future__ import annotations

from wavedsl.ir.dtypes import DType
from wavedsl.ir.functions.lower_pieces import words_of
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.facts import BITS
from wavedsl.ir.kernel.kernel_ir import B32, I32, I64, Value


def _unsigned(dtype: DType) -> bool:
    return dtype.kind == "uint"


def _own(b: Builder, x: Value, dtype: DType) -> Value:
    """The bits of a narrow number, zeros above."""
    return x if dtype.bits >= 32 else b.and_(x, (1 << dtype.bits) - 1)


def popcount(b: Builder, dtype: DType, x: Value) -> Value:
    if dtype.bits == 64:
        low, high = words_of(b, x)
        return b.add(b.popcount(low), b.popcount(high))
    return b.popcount(_own(b, x, dtype))


def clz(b: Builder, dtype: DType, x: Value) -> Value:
    if dtype.bits == 64:
        low, high = words_of(b, x)
        return b.select(b.cmp("eq", high, 0), b.add(b.clz(low), 32), b.clz(high))
    return b.sub(b.clz(_own(b, x, dtype)), 32 - dtype.bits)


def ctz(b: Builder, dtype: DType, x: Value) -> Value:
    if dtype.bits == 64:
        low, high = words_of(b, x)
        return b.select(b.cmp("eq", low, 0), b.add(b.ctz(high), 32), b.ctz(low))
    return b.ctz(x if dtype.bits == 32 else b.or_(x, 1 << dtype.bits))  # a bit that ends the count


def bit_reverse(b: Builder, dtype: DType, x: Value) -> Value:
    if dtype.bits == 64:
        low, high = (b.bitcast(b.brev(word), B32) for word in words_of(b, x))
        return b.bitcast(b.vec(high, low), I64)
    return b.lshr(b.brev(x), 32 - dtype.bits)


def rotate_left(b: Builder, dtype: DType, x: Value, count: Value) -> Value:
    width = dtype.bits
    if width >= 32:
        down = b.sub(0, count if count.type is I32 else b.trunc(count))
        return b.funnel(x, x, down) if width == 32 else _rotate64(b, x, down)
    up = b.and_(count if count.type is I32 else b.trunc(count), width - 1)
    down = b.and_(b.sub(0, up), width - 1)
    own = _own(b, x, dtype)
    return b.or_(b.shl(own, up), b.lshr(own, down))


def _rotate64(b: Builder, x: Value, down: Value) -> Value:
    """To the right: the words change places from 32 on, then each takes bits of the other."""
    low, high = words_of(b, x)
    far = b.cmp("ne", b.and_(down, 32), 0)
    low, high = b.select(far, high, low), b.select(far, low, high)
    return b.bitcast(b.vec(*(b.bitcast(w, B32) for w in (b.funnel(high, low, down), b.funnel(low, high, down)))), I64)


def mulhi(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    """Of signed numbers the unsigned product's upper half, less the other operand for each that is negative."""
    if dtype.bits < 32:
        product = b.mul(x, y)
        return (b.lshr if _unsigned(dtype) else b.ashr)(product, dtype.bits)
    high = b.mulhi_u(x, y) if dtype.bits == 32 else _mulhi64(b, x, y)
    if _unsigned(dtype):
        return high
    sign = BITS[x.type.kind] - 1
    return b.sub(b.sub(high, b.and_(b.ashr(x, sign), y)), b.and_(b.ashr(y, sign), x))


def _mulhi64(b: Builder, x: Value, y: Value) -> Value:
    """From the four products of words; what the middle ones carry is added before it is cut off."""
    (xl, xh), (yl, yh) = words_of(b, x), words_of(b, y)
    middle = b.add(b.mul_wide_u(xh, yl), b.lshr(b.mul_wide_u(xl, yl), 32))
    other = b.add(b.mul_wide_u(xl, yh), b.zext(b.trunc(middle)))
    return b.add(b.add(b.mul_wide_u(xh, yh), b.lshr(middle, 32)), b.lshr(other, 32))


def saturating_add(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    return _saturated(b, dtype, x, y, b.add(x, y), True)


def saturating_sub(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    return _saturated(b, dtype, x, y, b.sub(x, y), False)


def _saturated(b: Builder, dtype: DType, x: Value, y: Value, result: Value, sum: bool) -> Value:
    """A narrow result is limited. A wide one has left the type where a sum is below a term, a difference above what it
    is taken from; of signed numbers, where its sign differs from that of x although y could not change it."""
    if dtype.bits < 32:
        least = 0 if _unsigned(dtype) else -(1 << dtype.bits - 1)
        return b.min_s(b.max_s(result, least), least + (1 << dtype.bits) - 1)
    if _unsigned(dtype):
        beyond = b.cmp("ult", result, x) if sum else b.cmp("ult", x, y)
        return b.select(beyond, b.const(-1 if sum else 0, x.type), result)
    sign = BITS[x.type.kind] - 1
    turned = b.and_(b.xor(x, result), b.xor(y, result) if sum else b.xor(x, y))
    limit = b.xor(b.ashr(x, sign), b.const((1 << sign) - 1, x.type))
    return b.select(b.cmp("slt", turned, 0), limit, result)


def permute_bytes(b: Builder, dtype: DType, x: Value, y: Value, selector: Value) -> Value:
    if isinstance(selector.const, int):
        places = sum((selector.const >> 4 * i & 7) << 8 * i for i in range(4))
        return b.bitcast(b.permute_bytes(b.bitcast(y, B32), b.bitcast(x, B32), places), I32)
    both = b.bitcast(b.vec(b.bitcast(x, B32), b.bitcast(y, B32)), I64)
    result = b.const(0)
    for i in range(4):
        place = b.shl(b.bfe(selector, 4 * i, 3), 3)
        byte = b.and_(b.trunc(b.lshr(both, place)), 0xFF)
        result = b.or_(result, b.shl(byte, 8 * i))
    return result
