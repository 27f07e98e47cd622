"""Lowering of integer division by a run-time divisor: an estimate from a float reciprocal, mended in integers.

32 bits go through f32, 64 bits through f64. Both are exact for all operands; by 0 they give anything.
"""

from __future__ import annotations

from wavedsl.codegen.amdgcn.isa import Src
from wavedsl.codegen.amdgcn.machine import Operand, Ref
from wavedsl.codegen.amdgcn.select import Selector, lower
from wavedsl.codegen.amdgcn.select_int import add64
from wavedsl.ir.kernel.kernel_ir import I64, Op


@lower("udiv", "urem")
def division(s: Selector, op: Op) -> None:
    a, b = op.args
    want_quotient = op.name == "udiv"
    if a.type is I64:
        out = _divide64(s, s.vector(a), s.vector(b), want_quotient)
    else:
        out = _divide32(s, s.operand(a), s.vector(b), want_quotient)
    s.bind(op, s.to_scalar(out) if op.results[0].uniform else out)


def _divide32(s: Selector, x: Operand, y: Ref, want_quotient: bool) -> Ref:
    """x / y or x % y. z = 2^32 / y from a float reciprocal (scaled just below 2^32 so that it never exceeds it) and one
    Newton step; the estimate of the quotient is then at most two too small, which two compare-and-subtract steps
    mend."""
    r = s.rows
    z = s.one(r.v_cvt_f32_u32, y)
    z = s.one(r.v_rcp_iflag_f32, z)
    scaled = s.new("v")
    s.emit(r.v_mul_f32, scaled, 0x4F7FFFFE, z)
    z = s.one(r.v_cvt_u32_f32, scaled)
    minus = s.new("v")
    s.valu(r.v_sub_u32, minus, 0, y)
    error = s.temp(r.v_mul_lo_u32, minus, z)
    step = s.temp(r.v_mul_hi_u32, z, error)
    better = s.new("v")
    s.valu(r.v_add_u32, better, z, step, True)
    x = s.to_vector(x)
    q = s.temp(r.v_mul_hi_u32, x, better)
    product = s.temp(r.v_mul_lo_u32, q, y)
    rest = s.new("v")
    s.valu(r.v_sub_u32, rest, x, product)
    for _ in range(2):
        over = s.compare(r.v_cmp_ge_u32, rest, y)
        less = s.new("v")
        s.valu(r.v_sub_u32, less, rest, y)
        if want_quotient:
            more = s.new("v")
            s.valu(r.v_add_u32, more, 1, q)
            next_q = s.new("v")
            s.pick(next_q, over, more, q)
            q = next_q
        next_rest = s.new("v")
        s.pick(next_rest, over, less, rest)
        rest = next_rest
    return q if want_quotient else rest


BELOW = [0xFFFFFFF8, 0x3FEFFFFF]
"""1 - 2^-50 as the words of an f64."""


def _divide64(s: Selector, x: Ref, y: Ref, want_quotient: bool) -> Ref:
    """x / y or x % y. z is 1 / y in f64 times 1 - 2^-50. With the roundings of x, y, z and of the product, 2^-53 each,
    an estimate x z is not above the quotient and at most 2^-49 of it below: a remainder of less than 2^15 + y is left.
    Its own estimate, of less than 2^15 + 1, is at most one too small."""
    r = s.rows
    z = s.temp(r.v_mul_f64, _reciprocal(s, y), s.constant_pair(BELOW), n=2)
    estimate = s.temp(r.v_mul_f64, _float(s, x), z, n=2)
    scaled = s.temp(r.v_ldexp_f64, estimate, s.pooled(0xFFFFFFE0), n=2)  # times 2^-32
    high = s.one(r.v_floor_f64, scaled, 2)
    low = s.temp(r.v_fma_f64, high, s.constant_pair([0, 0xC1F00000]), estimate, n=2)  # - 2^32 * high
    quotient = s.new("v", 2)
    s.emit(r.v_cvt_u32_f64, quotient.part(0), low)
    s.emit(r.v_cvt_u32_f64, quotient.part(1), high)
    rest = _less(s, x, [quotient.part(0), quotient.part(1)], y)
    more = s.one(r.v_cvt_u32_f64, s.temp(r.v_mul_f64, _float(s, rest), z, n=2))
    rest = _less(s, rest, [more], y)
    last = s.compare(r.v_cmp_ge_u64, rest, y)
    out = s.new("v", 2)
    if want_quotient:
        one = s.new("v")
        s.pick(one, last, 1, 0)
        s.valu(r.v_add_u32, one, one, more, True)
        add64(s, out, [quotient.part(0), quotient.part(1)], [one, 0])
        return out
    difference = s.new("v", 2)
    add64(s, difference, [rest.part(0), rest.part(1)], [y.part(0), y.part(1)], True)
    for k in (0, 1):
        s.pick(out.part(k), last, difference.part(k), rest.part(k))
    return out


def _float(s: Selector, x: Ref) -> Ref:
    """An unsigned number in f64: both of its halves are exact there, their sum rounds once."""
    high, low = (s.one(s.rows.v_cvt_f64_u32, x.part(k), 2) for k in (1, 0))
    return s.temp(s.rows.v_add_f64, s.temp(s.rows.v_ldexp_f64, high, 32, n=2), low, n=2)


def _reciprocal(s: Selector, y: Ref) -> Ref:
    """1 / y within 2^-52: the chip's own is good for half of the digits at most, two Newton steps double them."""
    r = s.rows
    d = _float(s, y)
    z = s.one(r.v_rcp_f64, d, 2)
    for _ in range(2):
        error = s.new("v", 2)
        s.emit(r.v_fma_f64, error, Src(d, neg=True), z, 1.0)
        z = s.temp(r.v_fma_f64, z, error, z, n=2)
    return z


def _less(s: Selector, x: Ref, q: list[Ref], y: Ref) -> Ref:
    """x - q y, of which 64 bits are right, for a q of one word or two."""
    r = s.rows
    low = s.temp(r.v_mul_lo_u32, q[0], y.part(0))
    high = s.temp(r.v_mul_hi_u32, q[0], y.part(0))
    for one, other in ((q[0], y.part(1)), *((w, y.part(0)) for w in q[1:])):
        total = s.new("v")
        s.valu(r.v_add_u32, total, s.temp(r.v_mul_lo_u32, one, other), high, True)
        high = total
    out = s.new("v", 2)
    add64(s, out, [x.part(0), x.part(1)], [low, high], True)
    return out
