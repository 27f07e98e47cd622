"""Division of integers while building kernel IR: shifts, masks, multiplications; the op only by run-time divisors that
differ between lanes, or where the chip has no registers for what lanes have in common.

In: a builder, a value, a divisor. Out: a value whose range says what a quotient or remainder can be. INVARIANT: exact
for every input in the value's range, all of u32 included.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from wavedsl.ir.kernel.facts import BITS, MASKS, TRANSFER, normalise
from wavedsl.ir.kernel.kernel_ir import F32, I32, I64, Value

if TYPE_CHECKING:
    from wavedsl.ir.kernel.build_values import Values


@lru_cache(4096)
def division_magic(d: int, most: int = MASKS[32]) -> tuple[str, int, int]:
    """How to divide every 0 <= x <= most (at most 2**32 - 1) by d, not a power of two, exactly.

    Returns `(kind, m, p)`: x // d is `x * m >> p`, where for kind `mul` the product fits 32 bits, for `high` m does (so
    p >= 32), and for `high33` m has 33 bits.

    With m = ceil(2**p / d) and e = m d - 2**p, x m / 2**p exceeds x / d by x e / (d 2**p); the floor is right as long
    as that stays below the gap to the next integer, which is smallest, 1 / d, at the largest x = -1 mod d: e x < 2**p.
    """
    worst = (most + 1) // d * d - 1  # the largest x <= most with x % d == d - 1
    for p in range(65):
        m = -(-(1 << p) // d)
        if (m * d - (1 << p)) * worst >= 1 << p:
            continue
        if m * most <= MASKS[32]:
            return "mul", m, p
        for q in range(max(p, 32), 65):
            m = -(-(1 << q) // d)
            if m > MASKS[32]:
                break
            if (m * d - (1 << q)) * worst < 1 << q:
                return "high", m, q
        break
    q = 32 + d.bit_length()
    return "high33", -(-(1 << q) // d), q


def udiv(b: Values, a: Any, d: Any) -> Value:
    """Unsigned quotient of a value by a value or a Python int."""
    if a.__class__ is int:
        a = b.const(a, d.type if d.__class__ is not int else I32)
    c = d if d.__class__ is int else d.const
    if c is None:
        return _by_common(b, a, d)[0] if _is_common(b, a, d) else b._int("udiv", a, d)
    bits = BITS[a.type.kind]
    c &= MASKS[bits]
    if c == 0:
        raise b.fail("division by zero")
    if not c & (c - 1):
        return b.lshr(a, c.bit_length() - 1)
    if a.const is not None:
        return b.const((a.const & MASKS[bits]) // c, a.type)
    return _udiv32(b, a, c) if bits == 32 else _udiv64(b, a, c)


def _udiv32(b: Values, a: Value, c: int) -> Value:
    assert a.lo is not None and a.hi is not None
    most = a.hi if a.lo >= 0 else MASKS[32]
    if most < c:
        return b.const(0, I32)
    least = a.lo // c if a.lo >= 0 else 0
    kind, m, p = division_magic(c, most)
    if kind == "mul":
        q = b.lshr(b.mul(a, m), p)
    elif kind == "high":
        q = b.lshr(b.mulhi_u(a, m), p - 32)
    elif not c & 1:
        # An even divisor halves the dividend first, after which a 32-bit multiplier is exact.
        even = (c & -c).bit_length() - 1
        return udiv(b, b.lshr(a, even), c >> even)
    else:
        t = b.mulhi_u(a, m & MASKS[32])
        q = b.lshr(b.add(b.lshr(b.sub(a, t), 1), t), p - 33)
    return narrow(b, q, least, most // c)


def _udiv64(b: Values, a: Value, c: int) -> Value:
    assert a.lo is not None and a.hi is not None
    if a.lo >= 0 and a.hi <= MASKS[32] and c <= MASKS[32]:
        return b.zext(udiv(b, b.trunc(a), c))
    if a.lo < 0 or c >> 62:
        return b._int("udiv", a, b.const(c, I64))
    # With p = 63 + the divisor's bits, m = ceil(2**p / c) fits 64 bits and e = m c - 2**p < c, so that e x < 2**p for
    # all x < 2**63, which is what `division_magic` asks for.
    p = 63 + c.bit_length()
    q = b.lshr(_high_product(b, a, -(-(1 << p) // c)), p - 64)
    return narrow(b, q, a.lo // c, a.hi // c)


def _high_product(b: Values, a: Value, m: int) -> Value:
    """The high 64 bits of the unsigned product of 0 <= a < 2**63 and m < 2**64: no sum of parts leaves 64 bits."""
    low, high = b.trunc(a), b.trunc(b.lshr(a, 32))
    m_low, m_high = b.const(m & MASKS[32], I32), b.const(m >> 32, I32)
    first = b.add(b.mul_wide_u(high, m_low), b.lshr(b.mul_wide_u(low, m_low), 32))
    second = b.add(b.mul_wide_u(low, m_high), b.and_(first, MASKS[32]))
    return b.add(b.add(b.mul_wide_u(high, m_high), b.lshr(first, 32)), b.lshr(second, 32))


def _is_common(b: Values, a: Value, d: Value) -> bool:
    """Whether each lane divides by the same number of 32 bits, and scalar registers hold such."""
    return b.target is not None and b.target.scalar_registers and d.uniform and not a.uniform and a.type is I32


_BELOW = float.fromhex("0x1.fffff8p31")
"""2^32 less four units of f32's last place: more than the roundings of a divisor, its reciprocal and a product add."""


def _by_common(b: Values, a: Value, d: Value) -> tuple[Value, Value]:
    """Unsigned quotient and remainder by a divisor that lanes have in common, whose inverse is computed once, where the
    divisor is known: z = (2^32 - 1) // d. 2^32 / d is at most 1 above z, so a z / 2^32 is less than 1 below a / d, and
    one comparison mends its floor.

    An estimate of the inverse from f32 is no larger than 2^32 / d, and a Newton step leaves it at most 1 below z. Of a
    divisor that may be 0 (an extent, of which nobody then asks a remainder) ranges hold as if that were 1."""
    if d.lo == 0:
        d = b.max_s(d, 1)
    z = b.cvt(b.fmul(b.rcp(b.cvt(d, F32, unsigned=True)), b.f32(_BELOW)), I32, unsigned=True)
    z = b.add(z, b.mulhi_u(z, b.neg(b.mul(z, d))))
    z = b.select(b.cmp("ult", b.sub(-1, b.mul(z, d)), d), z, b.add(z, 1))
    q = b.mulhi_u(a, z)
    r = b.sub(a, b.mul(q, d))
    low = b.cmp("uge", r, d)
    quotient, rest = b.select(low, b.add(q, 1), q), b.select(low, b.sub(r, d), r)
    bounds = (TRANSFER[name]((a, d), {}, 32) for name in ("udiv", "urem"))
    return tuple(narrow(b, v, lo, hi) for v, (lo, hi, _) in zip((quotient, rest), bounds))  # type: ignore[return-value]


def urem(b: Values, a: Any, d: Any) -> Value:
    """Unsigned remainder of a value by a value or a Python int."""
    if a.__class__ is int:
        a = b.const(a, d.type if d.__class__ is not int else I32)
    c = d if d.__class__ is int else d.const
    if c is None:
        return _by_common(b, a, d)[1] if _is_common(b, a, d) else b._int("urem", a, d)
    bits = BITS[a.type.kind]
    c &= MASKS[bits]
    if c == 0:
        raise b.fail("division by zero")
    if not c & (c - 1):
        return b.and_(a, c - 1)
    if a.lo >= 0 and a.hi < c:
        return a
    r = b.sub(a, b.mul(udiv(b, a, c), c))
    return narrow(b, r, 0, c - 1) if c <= MASKS[bits] >> 1 else r


def floordiv(b: Values, a: Any, d: int) -> Value:
    """Quotient rounded towards minus infinity, by a positive Python int."""
    if a.__class__ is int:
        return b.const(a // d)
    _positive(b, d, a)
    if a.const is not None:
        return b.const(a.const // d, a.type)
    if not d & (d - 1):
        return b.ashr(a, d.bit_length() - 1)
    if a.lo >= 0:
        return udiv(b, a, d)
    bits = BITS[a.type.kind]
    s = b.ashr(a, bits - 1)
    # a ^ s is a for a >= 0 and -a - 1 below: never negative, and its quotient flips back to the floor.
    flipped = narrow(b, b.xor(a, s), 0, MASKS[bits] >> 1)
    return narrow(b, b.xor(udiv(b, flipped, d), s), a.lo // d, a.hi // d)


def floormod(b: Values, a: Any, d: int) -> Value:
    """Remainder of `floordiv`: 0 <= result < d."""
    if a.__class__ is int:
        return b.const(a % d)
    _positive(b, d, a)
    if not d & (d - 1):
        return b.and_(a, d - 1)
    if a.lo >= 0:
        return urem(b, a, d)
    return narrow(b, b.sub(a, b.mul(floordiv(b, a, d), d)), 0, d - 1)


def _positive(b: Values, d: int, a: Value) -> None:
    if d.__class__ is not int or not 0 < d <= MASKS[BITS[a.type.kind]] >> 1:
        raise b.fail(f"floor division of {a.type} by {d!r}: the divisor must be a positive constant that fits")


def narrow(b: Values, v: Value, lo: int, hi: int) -> Value:
    """Attach to v a range that the transfer functions cannot see; a constant if only one value is left."""
    assert v.lo is not None and v.hi is not None
    if v.op is None or v.op.name == "const":
        return v
    lo, hi = max(lo, v.lo), min(hi, v.hi)
    if lo == hi:
        return b.const(lo, v.type)
    v.lo, v.hi, v.zeros = normalise(lo, hi, v.zeros, BITS[v.type.kind])
    return v
