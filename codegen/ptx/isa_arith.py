"""Rows of PTX arithmetic, logic, comparison and selection, with their NumPy semantics.

Semantics see typed arrays `[threads]` (`[threads, 2]` for packed types) and return one. Approximate functions are
computed in float64 and rounded once: closer to the true value than the chip, whose error bound is in the row's doc
line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa_numerics as num
from wavedsl.codegen.ptx.isa import NUMPY, TYPE_BITS, Unit, inst

Mods = dict[str, Any]
Array = Any
_BENCH = "arXiv:2208.11174 (sm_80 microbenchmarks), unverified"
_INTS = "u16|s16|u32|s32|u64|s64"


def _legal_extreme(m: Mods) -> str:
    """Combinations of min and max."""
    if ("xorsign" in m) != ("abs" in m):
        return ".xorsign and .abs go together"
    if "relu" in m and m["type"] not in ("s32", "s16x2"):
        return ".relu is for .s32 and .s16x2"
    if m.get("type", "").startswith("bf") and "ftz" in m:
        return ".ftz is for .f16"
    return ""


def _bits(m: Mods, slot: str = "type") -> int:
    return TYPE_BITS[m[slot]]


# ---------------------------------------------------------------- integer add, subtract, multiply


@inst(
    "add{.sat}.type:u16|s16|u32|s32|u64|s64|u16x2|s16x2",
    "d:type <- a:type, b:type",
    Unit.ALU,
    source=_BENCH,
    legal=lambda m: "" if "sat" not in m or m["type"] == "s32" else ".sat is for .s32",
    doc="d = a + b, wrapping; .sat clamps to the range of s32",
)
def _add(m: Mods) -> Any:
    if "sat" in m:
        return lambda a, b: np.clip(a.astype(np.int64) + b, -(2**31), 2**31 - 1).astype(np.int32)
    return np.add


@inst(
    "sub{.sat}.type:u16|s16|u32|s32|u64|s64",
    "d:type <- a:type, b:type",
    Unit.ALU,
    source=_BENCH,
    legal=lambda m: "" if "sat" not in m or m["type"] == "s32" else ".sat is for .s32",
    doc="d = a - b, wrapping; .sat clamps to the range of s32",
)
def _sub(m: Mods) -> Any:
    if "sat" in m:
        return lambda a, b: np.clip(a.astype(np.int64) - b, -(2**31), 2**31 - 1).astype(np.int32)
    return np.subtract


def _unsigned(x: Array) -> Array:
    return x.view(x.dtype.str.replace("i", "u")) if x.dtype.kind == "i" else x


def _add_carry(a: Array, b: Array, carry_in: Array) -> tuple[Array, Array]:
    """Unsigned a + b + carry_in and the carry out."""
    a, b = _unsigned(a), _unsigned(b)
    s = a + b
    c1 = s < a
    t = s + carry_in.astype(s.dtype)
    return t, c1 | (t < s)


@inst(
    "add.cc.type:u32|s32|u64|s64",
    "d:type <- a:type, b:type",
    Unit.ALU,
    effects="carry",
    source=_BENCH,
    doc="d = a + b, carry out to CC.CF",
)
def _add_cc(m: Mods) -> Any:
    return lambda a, b, carry: _add_carry(a, b, np.zeros_like(carry))


@inst(
    "addc{.cc}.type:u32|s32|u64|s64",
    "d:type <- a:type, b:type",
    Unit.ALU,
    effects="carry",
    source=_BENCH,
    doc="d = a + b + CC.CF",
)
def _addc(m: Mods) -> Any:
    keep = "cc" not in m

    def run(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
        d, c = _add_carry(a, b, carry)
        return d, (carry if keep else c)

    return run


@inst(
    "sub.cc.type:u32|s32|u64|s64",
    "d:type <- a:type, b:type",
    Unit.ALU,
    effects="carry",
    source=_BENCH,
    doc="d = a - b, borrow out to CC.CF",
)
def _sub_cc(m: Mods) -> Any:
    return lambda a, b, carry: (_unsigned(a) - _unsigned(b), _unsigned(a) < _unsigned(b))


@inst(
    "subc{.cc}.type:u32|s32|u64|s64",
    "d:type <- a:type, b:type",
    Unit.ALU,
    effects="carry",
    source=_BENCH,
    doc="d = a - (b + CC.CF)",
)
def _subc(m: Mods) -> Any:
    keep = "cc" not in m

    def run(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
        a, b = _unsigned(a), _unsigned(b)
        d = a - b - carry.astype(a.dtype)
        return d, (carry if keep else (a < b) | ((a == b) & carry))

    return run


def _wide(x: Array) -> Array:
    return x.astype(f"{x.dtype.kind}{x.dtype.itemsize * 2}")


def mul_hi(a: Array, b: Array) -> Array:
    """Upper half of the double-width product."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        return (_wide(a) * _wide(b) >> np.array(bits, dtype=_wide(a).dtype)).astype(a.dtype)
    ua, ub = _unsigned(a), _unsigned(b)
    mask, sh = np.uint64(0xFFFFFFFF), np.uint64(32)
    al, ah, bl, bh = ua & mask, ua >> sh, ub & mask, ub >> sh
    mid = ah * bl + (al * bl >> sh)
    low = al * bh + (mid & mask)
    hi = ah * bh + (mid >> sh) + (low >> sh)
    if a.dtype.kind == "i":
        hi = hi - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
        return hi.view(np.int64)
    return hi


@inst(
    f"mul.half:lo|hi.type:{_INTS}",
    "d:type <- a:type, b:type",
    Unit.IMAD,
    latency=5,
    source=_BENCH,
    doc="d = low or high half of a * b",
)
def _mul(m: Mods) -> Any:
    return np.multiply if m["half"] == "lo" else mul_hi


@inst(
    "mul.wide.type:u16|s16|u32|s32",
    "d:wide(type) <- a:type, b:type",
    Unit.IMAD,
    latency=5,
    source=_BENCH,
    doc="d = a * b, twice as wide",
)
def _mul_wide(m: Mods) -> Any:
    return lambda a, b: _wide(a) * _wide(b)


@inst(
    f"mad.half:lo|hi{{.sat}}.type:{_INTS}",
    "d:type <- a:type, b:type, c:type",
    Unit.IMAD,
    latency=5,
    source=_BENCH,
    legal=lambda m: "" if "sat" not in m or (m["type"] == "s32" and m["half"] == "hi") else ".sat is for mad.hi.s32",
    doc="d = half of a * b, plus c",
)
def _mad(m: Mods) -> Any:
    if "sat" in m:
        return lambda a, b, c: np.clip(mul_hi(a, b).astype(np.int64) + c, -(2**31), 2**31 - 1).astype(np.int32)
    if m["half"] == "lo":
        return lambda a, b, c: a * b + c
    return lambda a, b, c: mul_hi(a, b) + c


@inst(
    "mad.wide.type:u16|s16|u32|s32",
    "d:wide(type) <- a:type, b:type, c:wide(type)",
    Unit.IMAD,
    latency=5,
    source=_BENCH,
    doc="d = a * b + c, twice as wide",
)
def _mad_wide(m: Mods) -> Any:
    return lambda a, b, c: _wide(a) * _wide(b) + c


@inst(
    "mad.half:lo|hi.cc.type:u32|s32|u64|s64",
    "d:type <- a:type, b:type, c:type",
    Unit.IMAD,
    latency=5,
    effects="carry",
    source=_BENCH,
    doc="d = half of a * b, plus c, carry out to CC.CF",
)
def _mad_cc(m: Mods) -> Any:
    half = np.multiply if m["half"] == "lo" else mul_hi
    return lambda a, b, c, carry: _add_carry(half(a, b), c, np.zeros_like(carry))


@inst(
    "madc.half:lo|hi{.cc}.type:u32|s32|u64|s64",
    "d:type <- a:type, b:type, c:type",
    Unit.IMAD,
    latency=5,
    effects="carry",
    source=_BENCH,
    doc="d = half of a * b, plus c, plus CC.CF",
)
def _madc(m: Mods) -> Any:
    half = np.multiply if m["half"] == "lo" else mul_hi
    keep = "cc" not in m

    def run(a: Array, b: Array, c: Array, carry: Array) -> tuple[Array, Array]:
        d, out = _add_carry(half(a, b), c, carry)
        return d, (carry if keep else out)

    return run


def _low24(x: Array) -> Array:
    """The low 24 bits as a number: sign-extended for signed operands, in 64 bits."""
    shift = np.array(40, dtype=np.int64)
    wide = x.astype(np.int64)
    return (wide << shift) >> shift if x.dtype.kind == "i" else wide & 0xFFFFFF


def _mul24(half: str, a: Array, b: Array) -> Array:
    p = _low24(a) * _low24(b)
    return (p if half == "lo" else p >> 16).astype(a.dtype)


@inst(
    "mul24.half:lo|hi.type:u32|s32",
    "d:type <- a:type, b:type",
    Unit.IMAD,
    latency=5,
    doc="d = 32 bits of a 24 x 24 bit product",
)
def _mul24_row(m: Mods) -> Any:
    return lambda a, b: _mul24(m["half"], a, b)


@inst(
    "mad24.half:lo|hi.type:u32|s32",
    "d:type <- a:type, b:type, c:type",
    Unit.IMAD,
    latency=5,
    doc="d = 32 bits of a 24 x 24 bit product, plus c",
)
def _mad24_row(m: Mods) -> Any:
    return lambda a, b, c: _mul24(m["half"], a, b) + c


@inst("sad.type:u16|s16|u32|s32|u64|s64", "d:type <- a:type, b:type, c:type", Unit.ALU, doc="d = |a - b| + c")
def _sad(m: Mods) -> Any:
    return lambda a, b, c: np.where(a < b, b - a, a - b) + c


def _magnitude(x: Array) -> Array:
    u = _unsigned(x)
    return np.where(x < 0, np.zeros_like(u) - u, u)


def _divide(a: Array, b: Array) -> tuple[Array, Array]:
    """Quotient truncated and remainder with the dividend's sign. By zero: all ones, and the dividend (as sm_80
    does).
    """
    signed = a.dtype.kind == "i"
    x, y = (_magnitude(a), _magnitude(b)) if signed else (a, b)
    zero = y == 0
    safe = np.where(zero, y.dtype.type(1), y)
    q, r = x // safe, x % safe
    if signed:
        q = np.where((a < 0) != (b < 0), np.zeros_like(q) - q, q).view(a.dtype)
        r = np.where(a < 0, np.zeros_like(r) - r, r).view(a.dtype)
    ones = np.array(-1).astype(a.dtype)
    return np.where(zero, ones, q), np.where(zero, a, r)


@inst(
    f"div.type:{_INTS}",
    "d:type <- a:type, b:type",
    Unit.IMAD,
    latency=120,
    interval=16,
    source="unverified: a subroutine of ptxas",
    doc="d = a / b, truncated; by zero all ones",
)
def _div(m: Mods) -> Any:
    return lambda a, b: _divide(a, b)[0]


@inst(
    f"rem.type:{_INTS}",
    "d:type <- a:type, b:type",
    Unit.IMAD,
    latency=130,
    interval=16,
    source="unverified: a subroutine of ptxas",
    doc="d = a % b, sign of a; by zero a",
)
def _rem(m: Mods) -> Any:
    return lambda a, b: _divide(a, b)[1]


@inst("abs.type:s16|s32|s64", "d:type <- a:type", Unit.ALU, doc="d = |a|, wrapping")
def _abs(m: Mods) -> Any:
    return np.absolute


@inst("neg.type:s16|s32|s64", "d:type <- a:type", Unit.ALU, doc="d = -a, wrapping")
def _neg(m: Mods) -> Any:
    return np.negative


@inst(
    "min{.relu}.type:u16|s16|u32|s32|u64|s64|u16x2|s16x2",
    "d:type <- a:type, b:type",
    Unit.ALU,
    legal=_legal_extreme,
    doc="d = lesser of a and b",
)
def _min(m: Mods) -> Any:
    if "relu" in m:
        return lambda a, b: np.maximum(np.minimum(a, b), 0)
    return np.minimum


@inst(
    "max{.relu}.type:u16|s16|u32|s32|u64|s64|u16x2|s16x2",
    "d:type <- a:type, b:type",
    Unit.ALU,
    legal=_legal_extreme,
    doc="d = greater of a and b",
)
def _max(m: Mods) -> Any:
    if "relu" in m:
        return lambda a, b: np.maximum(np.maximum(a, b), 0)
    return np.maximum


# ---------------------------------------------------------------- bits


def popcount(x: Array) -> Array:
    """Set bits of each unsigned element, as uint32."""
    n = x.dtype.itemsize
    bytes_ = np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, n)
    return np.take(_POPCOUNT, bytes_).sum(axis=-1, dtype=np.uint32)


_POPCOUNT = np.array([bin(i).count("1") for i in range(256)], dtype=np.uint8)
_REVERSE = np.array([int(f"{i:08b}"[::-1], 2) for i in range(256)], dtype=np.uint8)


def highest_bit(x: Array) -> Array:
    """Index of the most significant set bit of each unsigned element, -1 for zero; int32."""
    r = np.full(x.shape, -1, dtype=np.int32)
    for step in (32, 16, 8, 4, 2, 1):
        if step >= x.dtype.itemsize * 8:
            continue
        big = x >= x.dtype.type(1 << step)
        r = np.where(big, r + step, r)
        x = np.where(big, x >> x.dtype.type(step), x)
    return np.where(x != 0, r + 1, np.int32(-1))


@inst("popc.type:b32|b64", "d:u32 <- a:type", Unit.IMAD, latency=10, interval=4, doc="d = number of set bits")
def _popc(m: Mods) -> Any:
    return popcount


@inst("clz.type:b32|b64", "d:u32 <- a:type", Unit.IMAD, latency=10, interval=4, doc="d = number of leading zeros")
def _clz(m: Mods) -> Any:
    n = _bits(m)
    return lambda a: (n - 1 - highest_bit(a)).astype(np.uint32)


@inst(
    "bfind{.shiftamt}.type:u32|s32|u64|s64",
    "d:u32 <- a:type",
    Unit.IMAD,
    latency=10,
    interval=4,
    doc="d = position of the most significant non-sign bit, or -1; .shiftamt: shift that brings it to the top",
)
def _bfind(m: Mods) -> Any:
    n = _bits(m)

    def run(a: Array) -> Array:
        u = _unsigned(np.where(a < 0, ~a, a)) if a.dtype.kind == "i" else a
        h = highest_bit(u)
        if "shiftamt" in m:
            h = np.where(h < 0, h, n - 1 - h)
        return h.astype(np.int32).view(np.uint32)

    return run


@inst("brev.type:b32|b64", "d:type <- a:type", Unit.IMAD, latency=10, interval=4, doc="d = bits of a in reverse order")
def _brev(m: Mods) -> Any:
    n = _bits(m) // 8

    def run(a: Array) -> Array:
        b = np.take(_REVERSE, np.ascontiguousarray(a).view(np.uint8).reshape(-1, n))[:, ::-1]
        return np.ascontiguousarray(b).view(a.dtype).reshape(a.shape)

    return run


@inst(
    "fns.b32",
    "d:b32 <- mask:b32, base:b32, offset:s32",
    Unit.ALU,
    latency=30,
    doc="d = position of the n-th set bit from base, or -1",
)
def _fns(m: Mods) -> Any:
    def run(mask: Array, base: Array, offset: Array) -> Array:
        mask, base, offset = np.broadcast_arrays(mask, base, offset)
        out = np.full(mask.shape, 0xFFFFFFFF, dtype=np.uint32)
        for i in range(len(out)):
            b, o, w = int(base[i]), int(offset[i]), int(mask[i])
            order = range(b, 32) if o >= 0 or b > 31 else range(b, -1, -1)
            hits = [p for p in order if w >> p & 1]
            n = abs(o) - 1
            if o == 0:
                out[i] = b if b < 32 and w >> b & 1 else 0xFFFFFFFF
            elif n < len(hits):
                out[i] = hits[n]
        return out

    return run


@inst(
    "bfe.type:u32|s32|u64|s64",
    "d:type <- a:type, pos:u32, len:u32",
    Unit.ALU,
    source=_BENCH,
    doc="d = bits [pos, pos + len) of a, sign- or zero-extended",
)
def _bfe(m: Mods) -> Any:
    n = _bits(m)

    def run(a: Array, pos: Array, length: Array) -> Array:
        p, l = (pos & np.uint32(0xFF)).astype(np.int64), (length & np.uint32(0xFF)).astype(np.int64)
        if a.dtype.kind == "u":
            room = np.clip(n - l, 0, n)
            ones = np.array(2**n - 1, dtype=a.dtype)
            return (a >> np.minimum(p, n).astype(a.dtype)) & np.where(
                l == 0, a.dtype.type(0), ones >> room.astype(a.dtype)
            )
        # Positions beyond the top read the sign bit.
        up = np.clip(n - (p + l), 0, n - 1)
        wide = a >> np.minimum(p, n - 1).astype(a.dtype)
        inside = (a << up.astype(a.dtype)) >> np.clip(n - l, 0, n - 1).astype(a.dtype)
        return np.where(l == 0, a.dtype.type(0), np.where(p + l <= n, inside, wide))

    return run


@inst(
    "bfi.type:b32|b64",
    "d:type <- a:type, b:type, pos:u32, len:u32",
    Unit.ALU,
    source=_BENCH,
    doc="d = b with bits [pos, pos + len) replaced by the low bits of a",
)
def _bfi(m: Mods) -> Any:
    n = _bits(m)

    def run(a: Array, b: Array, pos: Array, length: Array) -> Array:
        p, l = (pos & np.uint32(0xFF)).astype(np.int64), (length & np.uint32(0xFF)).astype(np.int64)
        ones = np.array(2**n - 1, dtype=b.dtype)
        low = np.where(l == 0, b.dtype.type(0), ones >> np.clip(n - l, 0, n - 1).astype(b.dtype))
        mask = low << np.minimum(p, n).astype(b.dtype)
        return (b & ~mask) | ((a << np.minimum(p, n).astype(b.dtype)) & mask)

    return run


@inst(
    "bmsk.mode:clamp|wrap.b32", "d:b32 <- a:b32, b:b32", Unit.ALU, ptx=(7, 6), doc="d = mask of b bits from position a"
)
def _bmsk(m: Mods) -> Any:
    def run(a: Array, b: Array) -> Array:
        a, b = a.astype(np.uint64), b.astype(np.uint64)
        a, b = (a & 31, b & 31) if m["mode"] == "wrap" else (np.minimum(a, 32), np.minimum(b, 32))
        return ((((np.uint64(1) << b) - np.uint64(1)) << a) & np.uint64(0xFFFFFFFF)).astype(np.uint32)

    return run


_LOGIC = {
    "and": (np.bitwise_and, np.logical_and),
    "or": (np.bitwise_or, np.logical_or),
    "xor": (np.bitwise_xor, np.logical_xor),
}


def _logic(op: str) -> None:
    @inst(
        f"{op}.type:pred|b16|b32|b64",
        "d:type <- a:type, b:type",
        Unit.ALU,
        source=_BENCH,
        doc=f"d = a {op} b, bit by bit",
    )
    def _(m: Mods) -> Any:
        return _LOGIC[op][m["type"] == "pred"]


for _op in _LOGIC:
    _logic(_op)


@inst("not.type:pred|b16|b32|b64", "d:type <- a:type", Unit.ALU, doc="d = complement of a")
def _not(m: Mods) -> Any:
    return np.logical_not if m["type"] == "pred" else np.invert


@inst("cnot.type:b16|b32|b64", "d:type <- a:type", Unit.ALU, doc="d = 1 if a is 0, else 0")
def _cnot(m: Mods) -> Any:
    return lambda a: (a == 0).astype(a.dtype)


@inst(
    "lop3.b32",
    "d:b32 <- a:b32, b:b32, c:b32, lut:imm",
    Unit.ALU,
    source=_BENCH,
    doc="d = any function of three bits, by truth table",
)
def _lop3(m: Mods) -> Any:
    return lop3


def lop3(a: Array, b: Array, c: Array, lut: int) -> Array:
    """Bit (4a + 2b + c) of `lut` for every bit position."""
    invert = bin(lut & 255).count("1") > 4
    table = ~lut if invert else lut
    out = np.zeros(np.broadcast(a, b, c).shape, dtype=np.uint32)
    for i in range(8):
        if table >> i & 1:
            out |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return ~out if invert else out


def _shift(op: Any) -> Callable[[Array, Array], Array]:
    def run(a: Array, b: Array) -> Array:
        return op(a, np.minimum(b, np.uint32(64)).astype(a.dtype))

    return run


@inst(
    "shl.type:b16|b32|b64",
    "d:type <- a:type, b:u32",
    Unit.ALU,
    source=_BENCH,
    doc="d = a << b; 0 when b passes the width",
)
def _shl(m: Mods) -> Any:
    return _shift(np.left_shift)


@inst(
    "shr.type:b16|b32|b64|u16|u32|u64|s16|s32|s64",
    "d:type <- a:type, b:u32",
    Unit.ALU,
    source=_BENCH,
    doc="d = a >> b, arithmetic for signed; amounts past the width fill",
)
def _shr(m: Mods) -> Any:
    return _shift(np.right_shift)


@inst(
    "shf.dir:l|r.mode:clamp|wrap.b32",
    "d:b32 <- a:b32, b:b32, c:u32",
    Unit.ALU,
    doc="d = 32 bits of the pair b:a, shifted (funnel)",
)
def _shf(m: Mods) -> Any:
    def run(a: Array, b: Array, c: Array) -> Array:
        n = (c & np.uint32(31) if m["mode"] == "wrap" else np.minimum(c, np.uint32(32))).astype(np.uint64)
        pair = b.astype(np.uint64) << np.uint64(32) | a
        if m["dir"] == "l":
            return ((pair << n) >> np.uint64(32)).astype(np.uint32)
        return (pair >> n).astype(np.uint32)

    return run


_PRMT_MODE: dict[str, Callable[[Array, np.uint32], Array]] = {
    "f4e": lambda s, i: s + i,
    "b4e": lambda s, i: (s - i) & np.uint32(7),
    "rc8": lambda s, i: s,
    "ecl": np.maximum,
    "ecr": np.minimum,
    "rc16": lambda s, i: (s & np.uint32(1)) * np.uint32(2) + (i & np.uint32(1)),
}
"""Which byte result byte `i` takes in prmt's fixed patterns, from the selector's low two bits."""


@inst(
    "prmt.b32{.mode:f4e|b4e|rc8|ecl|ecr|rc16}",
    "d:b32 <- a:b32, b:b32, c:b32",
    Unit.ALU,
    source=_BENCH,
    doc="d = four bytes chosen from the pair b:a; bit 3 of a selector replicates the sign",
)
def _prmt(m: Mods) -> Any:
    mode = m.get("mode")

    def run(a: Array, b: Array, c: Array) -> Array:
        pair = b.astype(np.uint64) << np.uint64(32) | a
        out: Array = np.zeros(np.broadcast(a, b, c).shape, dtype=np.uint32)
        for i in range(4):
            sign: Any = False
            if mode is None:
                nibble = c >> np.uint32(4 * i)
                which, sign = nibble & np.uint32(7), (nibble & np.uint32(8)) != 0
            else:
                which = _PRMT_MODE[mode](c & np.uint32(3), np.uint32(i))
            byte = ((pair >> (which.astype(np.uint64) * np.uint64(8))) & np.uint64(0xFF)).astype(np.uint32)
            if mode is None:
                byte = np.where(sign, np.where(byte & np.uint32(0x80), np.uint32(0xFF), np.uint32(0)), byte)
            out |= byte << np.uint32(8 * i)
        return out

    return run


def _bytes_of(x: Array, type_: str) -> Array:
    """[threads, 4] bytes of a register, as int32."""
    dt = np.int8 if type_ == "s32" else np.uint8
    return np.ascontiguousarray(x).view(dt).reshape(*x.shape, 4).astype(np.int32)


@inst(
    "dp4a.at:u32|s32.bt:u32|s32",
    "d:s32 <- a:at, b:bt, c:s32",
    Unit.IMAD,
    latency=5,
    doc="d = c + dot product of four bytes",
)
def _dp4a(m: Mods) -> Any:
    return lambda a, b, c: ((_bytes_of(a, m["at"]) * _bytes_of(b, m["bt"])).sum(axis=-1, dtype=np.int32) + c).astype(
        np.int32
    )


@inst(
    "dp2a.half:lo|hi.at:u32|s32.bt:u32|s32",
    "d:s32 <- a:at, b:bt, c:s32",
    Unit.IMAD,
    latency=5,
    doc="d = c + two 16-bit of a times two bytes of b",
)
def _dp2a(m: Mods) -> Any:
    def run(a: Array, b: Array, c: Array) -> Array:
        halves = (
            np.ascontiguousarray(a)
            .view(np.int16 if m["at"] == "s32" else np.uint16)
            .reshape(*a.shape, 2)
            .astype(np.int32)
        )
        i = 2 * (m["half"] == "hi")
        return (halves * _bytes_of(b, m["bt"])[..., i : i + 2]).sum(axis=-1, dtype=np.int32) + c

    return run


# ---------------------------------------------------------------- compare and select

_CMP: dict[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
    "equ": np.equal,
    "neu": np.not_equal,
    "ltu": np.less,
    "leu": np.less_equal,
    "gtu": np.greater,
    "geu": np.greater_equal,
}
_CMPS = "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"
_COMPARED = "b16|b32|b64|u16|u32|u64|s16|s32|s64|f16|f32|f64"


def _compare(cmp: str, type_: str, ftz: bool) -> Callable[[Array, Array], Array]:
    if type_[0] in "bsu" and not type_.startswith("bf"):
        return _CMP[cmp]
    if cmp in ("num", "nan"):
        return lambda a, b: (np.isnan(a) | np.isnan(b)) == (cmp == "nan")
    fn = _CMP[cmp]
    if cmp == "ne":
        # Ordered: false when either is NaN.
        base = lambda a, b: (a < b) | (a > b)  # noqa: E731
    elif cmp.endswith("u") and cmp != "neu":
        base = lambda a, b: fn(a, b) | np.isnan(a) | np.isnan(b)  # noqa: E731
    else:
        base = fn
    return (lambda a, b: base(num.flush(a), num.flush(b))) if ftz else base


def _legal_compare(m: Mods) -> str:
    type_, cmp = str(m["stype"] if "stype" in m else m["type"]), m["cmp"]
    is_float = type_ in ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
    if not is_float and (cmp in ("num", "nan") or (cmp.endswith("u") and cmp not in ("hs",))):
        return f".{cmp} compares floats, not .{type_}"
    if is_float and cmp in ("lo", "ls", "hi", "hs"):
        return f".{cmp} compares unsigned integers, not .{type_}"
    if type_[0] == "b" and not is_float and cmp not in ("eq", "ne"):
        return f".{type_} compares for eq and ne only"
    if type_[0] == "s" and cmp in ("lo", "ls", "hi", "hs"):
        return f".{cmp} compares unsigned integers, not .{type_}"
    return "" if "ftz" not in m or type_ in ("f32", "f16", "f16x2") else ".ftz is for .f32 and .f16"


@inst(
    f"setp.cmp:{_CMPS}{{.bool:and|or|xor}}{{.ftz}}.type:{_COMPARED}",
    "p:pred, |q?:pred <- a:type, b:type, c?:pred",
    Unit.ALU,
    source=_BENCH,
    legal=_legal_compare,
    doc="p = (a cmp b) bool c; q = !(a cmp b) bool c",
)
def _setp(m: Mods) -> Any:
    compare = _compare(m["cmp"], m["type"], "ftz" in m)
    combine = _LOGIC[m["bool"]][1] if "bool" in m else None

    def run(a: Array, b: Array, c: Array = None) -> Any:
        t = compare(a, b)
        if combine is None:
            return t, ~t
        return combine(t, c), combine(~t, c)

    # Most have one destination and no third source: the comparison alone.
    run.single = compare if combine is None else lambda a, b, c: combine(compare(a, b), c)  # type: ignore[attr-defined]
    return run


inst(
    f"setp.cmp:{_CMPS}{{.bool:and|or|xor}}.type:bf16",
    "p:pred, |q?:pred <- a:type, b:type, c?:pred",
    Unit.ALU,
    source=_BENCH,
    legal=_legal_compare,
    ptx=(7, 8),
    sm=90,
    doc="p = (a cmp b) bool c, in bf16",
)(_setp)


@inst(
    f"setp.cmp:{_CMPS}{{.bool:and|or|xor}}{{.ftz}}.type:f16x2",
    "p:pred, |q:pred <- a:type, b:type, c?:pred",
    Unit.ALU,
    source=_BENCH,
    legal=_legal_compare,
    doc="p, q = comparison of the low and of the high halves",
)
def _setp_packed(m: Mods) -> Any:
    compare = _compare(m["cmp"], m["type"], "ftz" in m)
    combine = _LOGIC[m["bool"]][1] if "bool" in m else None

    def run(a: Array, b: Array, c: Array = None) -> Any:
        t = compare(a, b)
        pair = t[:, 0], t[:, 1]
        return pair if combine is None else tuple(combine(x, c) for x in pair)

    return run


inst(
    f"setp.cmp:{_CMPS}{{.bool:and|or|xor}}.type:bf16x2",
    "p:pred, |q:pred <- a:type, b:type, c?:pred",
    Unit.ALU,
    source=_BENCH,
    ptx=(7, 8),
    sm=90,
    legal=_legal_compare,
    doc="p, q = comparison of the low and of the high halves",
)(_setp_packed)


def _legal_set(m: Mods) -> str:
    d, a = m["dtype"], m["stype"]
    if d in ("u16", "s16") and a != "f16":
        return f".{d} results are for .f16 operands"
    if d == "f32" and a == "f16":
        return ".f16 operands give .f16 or an integer"
    return _legal_compare(m)


def _set(m: Mods) -> Any:
    compare = _compare(m["cmp"], m["stype"], "ftz" in m)
    want = np.dtype(NUMPY[m["dtype"]])
    one = want.type(1) if want.kind not in "iu" else want.type(-1) if want.kind == "i" else np.iinfo(want).max

    def run(a: Array, b: Array, c: Array = None) -> Array:
        t = compare(a, b)
        if "bool" in m:
            t = _LOGIC[m["bool"]][1](t, c[:, None] if t.ndim == 2 else c)
        if want.itemsize == 4 and t.ndim == 2:
            t32 = np.where(t, np.uint16(0xFFFF), np.uint16(0)).astype(np.uint16)
            return np.ascontiguousarray(t32).view(np.uint32)[:, 0].view(want)
        return np.where(t, np.array(one, dtype=want), want.type(0))

    return run


_SET = f"set.cmp:{_CMPS}{{.bool:and|or|xor}}"
_SET_DOC = "d = all ones (1.0 for a float) where a cmp b, else 0; by halves for packed types"
for _name, _sm, _ptx in (
    (f"{_SET}{{.ftz}}.dtype:u32|s32|f32|f16|u16|s16.stype:{_COMPARED}", 80, (7, 0)),
    (f"{_SET}.dtype:u32|s32|u16|s16|bf16.stype:bf16", 90, (7, 8)),
    (f"{_SET}{{.ftz}}.dtype:u32|s32|f16x2.stype:f16x2", 80, (7, 0)),
    (f"{_SET}.dtype:u32|s32|bf16x2.stype:bf16x2", 90, (7, 8)),
):
    inst(
        _name,
        "d:dtype <- a:stype, b:stype, c?:pred",
        Unit.ALU,
        legal=_legal_set if "f16|u16" in _name else _legal_compare,
        ptx=_ptx,
        sm=_sm,
        doc=_SET_DOC,
    )(_set)


@inst(
    "selp.type:b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64",
    "d:type <- a:type, b:type, c:pred",
    Unit.ALU,
    source=_BENCH,
    doc="d = c ? a : b",
)
def _selp(m: Mods) -> Any:
    return lambda a, b, c: np.where(c, a, b)


@inst(
    "slct{.ftz}.type:b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64.ctype:s32|f32",
    "d:type <- a:type, b:type, c:ctype",
    Unit.ALU,
    legal=lambda m: "" if "ftz" not in m or m["ctype"] == "f32" else ".ftz is for .f32",
    doc="d = c >= 0 ? a : b",
)
def _slct(m: Mods) -> Any:
    return lambda a, b, c: np.where((num.flush(c) if "ftz" in m else c) >= 0, a, b)


@inst(
    "mov.type:pred|b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64|b128",
    "d:type <- a:type",
    Unit.ALU,
    source=_BENCH,
    effects="move",
    doc="d = a: a register, a special register, an immediate, an address, or a vector packed or unpacked",
)
def _mov(m: Mods) -> Any:
    return np.positive


# ---------------------------------------------------------------- float32

_ROUND = "{.rnd:rn|rz|rm|rp}"


def _f32(fn: Callable[..., Array], m: Mods) -> Callable[..., Array]:
    """Wrap a float32 function with the row's .ftz and .sat."""
    ftz, sat = "ftz" in m, "sat" in m
    if not ftz and not sat:
        return fn

    def run(*args: Array) -> Array:
        r = fn(*[num.flush(x) for x in args]) if ftz else fn(*args)
        r = num.flush(r) if ftz else r
        return num.saturate(r) if sat else r

    return run


def _rounded_sum(sign: int, mode: str) -> Callable[[Array, Array], Array]:
    if mode == "rn":
        return np.add if sign > 0 else np.subtract
    return lambda a, b: num.round_f32(num.sum_odd(a.astype(np.float64), sign * np.asarray(b, np.float64)), mode)


@inst(f"add{_ROUND}{{.ftz}}{{.sat}}.f32", "d:f32 <- a:f32, b:f32", Unit.FMA, source=_BENCH, doc="d = a + b")
def _fadd(m: Mods) -> Any:
    return _f32(_rounded_sum(1, m.get("rnd", "rn")), m)


@inst(f"sub{_ROUND}{{.ftz}}{{.sat}}.f32", "d:f32 <- a:f32, b:f32", Unit.FMA, source=_BENCH, doc="d = a - b")
def _fsub(m: Mods) -> Any:
    return _f32(_rounded_sum(-1, m.get("rnd", "rn")), m)


@inst(f"mul{_ROUND}{{.ftz}}{{.sat}}.f32", "d:f32 <- a:f32, b:f32", Unit.FMA, source=_BENCH, doc="d = a * b")
def _fmul(m: Mods) -> Any:
    mode = m.get("rnd", "rn")
    if mode == "rn":
        return _f32(np.multiply, m)
    return _f32(lambda a, b: num.round_f32(a.astype(np.float64) * b, mode), m)


@inst(
    "fma.rnd:rn|rz|rm|rp{.ftz}{.sat}.f32",
    "d:f32 <- a:f32, b:f32, c:f32",
    Unit.FMA,
    source=_BENCH,
    doc="d = a * b + c, one rounding",
)
def _ffma(m: Mods) -> Any:
    mode = m["rnd"]
    return _f32(lambda a, b, c: num.fma_f32(a, b, c, mode), m)


@inst(
    "mad.rnd:rn|rz|rm|rp{.ftz}{.sat}.f32",
    "d:f32 <- a:f32, b:f32, c:f32",
    Unit.FMA,
    source=_BENCH,
    doc="d = a * b + c, fused, as fma",
)
def _fmad(m: Mods) -> Any:
    return _ffma(m)


@inst("abs{.ftz}.f32", "d:f32 <- a:f32", Unit.ALU, doc="d = |a|")
def _fabs(m: Mods) -> Any:
    return (lambda a: np.abs(num.flush(a))) if "ftz" in m else np.absolute


@inst("neg{.ftz}.f32", "d:f32 <- a:f32", Unit.ALU, doc="d = -a")
def _fneg(m: Mods) -> Any:
    return (lambda a: -num.flush(a)) if "ftz" in m else np.negative


def _extreme(m: Mods, base: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    fn = base
    if "xorsign" in m:

        def fn(a: Array, b: Array) -> Array:
            return np.copysign(
                base(np.abs(a), np.abs(b)), np.where(np.signbit(a) != np.signbit(b), -1, 1).astype(a.dtype)
            )

    if "NaN" in m:
        fn = num.nan_if_any(fn)
    return fn


@inst(
    "min{.ftz}{.NaN}{.xorsign}{.abs}.f32",
    "d:f32 <- a:f32, b:f32",
    Unit.ALU,
    source=_BENCH,
    legal=_legal_extreme,
    doc="d = lesser; the number where one is NaN, NaN with .NaN",
)
def _fmin(m: Mods) -> Any:
    return _f32(_extreme(m, num.float_min), m)


@inst(
    "max{.ftz}{.NaN}{.xorsign}{.abs}.f32",
    "d:f32 <- a:f32, b:f32",
    Unit.ALU,
    source=_BENCH,
    legal=_legal_extreme,
    doc="d = greater; the number where one is NaN, NaN with .NaN",
)
def _fmax(m: Mods) -> Any:
    return _f32(_extreme(m, num.float_max), m)


@inst(
    "div.rnd:rn|rz|rm|rp{.ftz}.f32",
    "d:f32 <- a:f32, b:f32",
    Unit.SFU,
    latency=60,
    interval=8,
    doc="d = a / b, correctly rounded",
)
def _fdiv(m: Mods) -> Any:
    return _f32(lambda a, b: num.quotient_f32(a, b, m["rnd"]), m)


@inst(
    "div.kind:approx|full{.ftz}.f32",
    "d:f32 <- a:f32, b:f32",
    Unit.SFU,
    latency=30,
    interval=4,
    doc="d = a / b within 2 ulp; approx: divisors of magnitude over 2^126 give 0",
)
def _fdiv_approx(m: Mods) -> Any:
    full = m["kind"] == "full"

    def run(a: Array, b: Array) -> Array:
        q = a / b
        if full:
            return q
        huge = (np.abs(b) > np.float32(2.0**126)) & (np.abs(b) < np.inf)
        if not huge.any():
            return q
        zero = np.where(np.isinf(a), np.float32(np.nan), np.copysign(np.float32(0), q))
        return np.where(huge & ~np.isnan(a), zero, q)

    return _f32(run, m)


def _sfu(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda a: fn(a.astype(np.float64)).astype(np.float32)


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


@inst(
    "rcp.kind:approx{.ftz}.f32",
    "d:f32 <- a:f32",
    Unit.SFU,
    latency=23,
    interval=4,
    source=_BENCH,
    doc="d = 1 / a within 1 ulp",
)
def _rcp_approx(m: Mods) -> Any:
    return _f32(_sfu(lambda x: 1.0 / x), m)


@inst(
    "rcp.rnd:rn|rz|rm|rp{.ftz}.f32",
    "d:f32 <- a:f32",
    Unit.SFU,
    latency=50,
    interval=8,
    doc="d = 1 / a, correctly rounded",
)
def _rcp(m: Mods) -> Any:
    return _f32(lambda a: num.quotient_f32(np.ones_like(a), a, m["rnd"]), m)


@inst(
    "sqrt.kind:approx{.ftz}.f32",
    "d:f32 <- a:f32",
    Unit.SFU,
    latency=23,
    interval=4,
    source=_BENCH,
    doc="d = square root within 1 ulp",
)
def _sqrt_approx(m: Mods) -> Any:
    return _f32(np.sqrt, m)


@inst(
    "sqrt.rnd:rn|rz|rm|rp{.ftz}.f32",
    "d:f32 <- a:f32",
    Unit.SFU,
    latency=60,
    interval=8,
    doc="d = square root, correctly rounded",
)
def _sqrt(m: Mods) -> Any:
    return _f32(np.sqrt if m["rnd"] == "rn" else lambda a: num.sqrt_f32(a, m["rnd"]), m)


@inst(
    "rsqrt.approx{.ftz}.f32",
    "d:f32 <- a:f32",
    Unit.SFU,
    latency=23,
    interval=4,
    source=_BENCH,
    doc="d = 1 / sqrt(a) within 2^-22.9 relative",
)
def _rsqrt_row(m: Mods) -> Any:
    return _f32(_sfu(_rsqrt), m)


@inst(
    "sin.approx{.ftz}.f32",
    "d:f32 <- a:f32",
    Unit.SFU,
    latency=23,
    interval=4,
    doc="d = sin a; chip within 2^-20.5 absolute in [-pi, pi]",
)
def _sin(m: Mods) -> Any:
    return _f32(_sfu(np.sin), m)


@inst(
    "cos.approx{.ftz}.f32",
    "d:f32 <- a:f32",
    Unit.SFU,
    latency=23,
    interval=4,
    doc="d = cos a; chip within 2^-20.5 absolute in [-pi, pi]",
)
def _cos(m: Mods) -> Any:
    return _f32(_sfu(np.cos), m)


@inst(
    "lg2.approx{.ftz}.f32",
    "d:f32 <- a:f32",
    Unit.SFU,
    latency=23,
    interval=4,
    doc="d = log2 a; chip within 2^-22 absolute or 2^-22 relative",
)
def _lg2(m: Mods) -> Any:
    return _f32(_sfu(np.log2), m)


@inst(
    "ex2.approx{.ftz}.f32",
    "d:f32 <- a:f32",
    Unit.SFU,
    latency=23,
    interval=4,
    source=_BENCH,
    doc="d = 2^a; chip within 2 ulp",
)
def _ex2(m: Mods) -> Any:
    return _f32(_sfu(np.exp2), m)


@inst(
    "tanh.approx.f32", "d:f32 <- a:f32", Unit.SFU, latency=23, interval=4, doc="d = tanh a; chip within 2^-11 relative"
)
def _tanh(m: Mods) -> Any:
    return _sfu(np.tanh)


@inst("copysign.type:f32|f64", "d:type <- a:type, b:type", Unit.ALU, doc="d = magnitude of b with the sign of a")
def _copysign(m: Mods) -> Any:
    return lambda a, b: np.copysign(b, a)


@inst(
    "testp.op:finite|infinite|number|notanumber|normal|subnormal.type:f32|f64",
    "p:pred <- a:type",
    Unit.ALU,
    doc="p = class of a",
)
def _testp(m: Mods) -> Any:
    def run(a: Array) -> Array:
        tiny = np.finfo(a.dtype).tiny
        return {
            "finite": lambda: np.isfinite(a),
            "infinite": lambda: np.isinf(a),
            "number": lambda: ~np.isnan(a),
            "notanumber": lambda: np.isnan(a),
            "normal": lambda: np.isfinite(a) & ((np.abs(a) >= tiny) | (a == 0)),  # zeros count as normal
            "subnormal": lambda: (a != 0) & (np.abs(a) < tiny),
        }[m["op"]]()

    return run


# ---------------------------------------------------------------- float64

_F64: dict[str, Any] = {"source": _BENCH, "latency": 8, "interval": 2}


@inst(f"add{_ROUND}.f64", "d:f64 <- a:f64, b:f64", Unit.F64, doc="d = a + b", **_F64)
def _dadd(m: Mods) -> Any:
    mode = m.get("rnd", "rn")
    return np.add if mode == "rn" else lambda a, b: num.add_f64(a, b, mode)


@inst(f"sub{_ROUND}.f64", "d:f64 <- a:f64, b:f64", Unit.F64, doc="d = a - b", **_F64)
def _dsub(m: Mods) -> Any:
    mode = m.get("rnd", "rn")
    return np.subtract if mode == "rn" else lambda a, b: num.add_f64(a, -b, mode)


@inst(f"mul{_ROUND}.f64", "d:f64 <- a:f64, b:f64", Unit.F64, doc="d = a * b", **_F64)
def _dmul(m: Mods) -> Any:
    mode = m.get("rnd", "rn")
    return np.multiply if mode == "rn" else num.via_f64(np.multiply, mode)


@inst("fma.rnd:rn|rz|rm|rp.f64", "d:f64 <- a:f64, b:f64, c:f64", Unit.F64, doc="d = a * b + c, one rounding", **_F64)
def _dfma(m: Mods) -> Any:
    return lambda a, b, c: num.fma_f64(a, b, c, m["rnd"])


@inst("mad.rnd:rn|rz|rm|rp.f64", "d:f64 <- a:f64, b:f64, c:f64", Unit.F64, doc="d = a * b + c, fused, as fma", **_F64)
def _dmad(m: Mods) -> Any:
    return _dfma(m)


@inst(
    "div.rnd:rn|rz|rm|rp.f64",
    "d:f64 <- a:f64, b:f64",
    Unit.F64,
    latency=200,
    interval=16,
    doc="d = a / b, correctly rounded",
)
def _ddiv(m: Mods) -> Any:
    return np.divide if m["rnd"] == "rn" else num.via_f64(np.divide, m["rnd"])


@inst(
    "sqrt.rnd:rn|rz|rm|rp.f64",
    "d:f64 <- a:f64",
    Unit.F64,
    latency=200,
    interval=16,
    doc="d = square root, correctly rounded",
)
def _dsqrt(m: Mods) -> Any:
    return np.sqrt if m["rnd"] == "rn" else num.via_f64(np.sqrt, m["rnd"])


@inst(
    "rcp.rnd:rn|rz|rm|rp.f64", "d:f64 <- a:f64", Unit.F64, latency=150, interval=16, doc="d = 1 / a, correctly rounded"
)
def _drcp(m: Mods) -> Any:
    divide = np.divide if m["rnd"] == "rn" else num.via_f64(np.divide, m["rnd"])
    return lambda a: divide(np.ones_like(a), a)


def _upper_half(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The 20-bit approximations of float64: only the upper 32 bits of the result are set, denormals flush."""

    def run(a: Array) -> Array:
        def cut(x: Array) -> Array:
            x = np.where(np.abs(x) < np.finfo(np.float64).tiny, np.copysign(0.0, x), x)
            return (np.ascontiguousarray(x).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)

        return cut(fn(cut(a)))

    return run


@inst(
    "rcp.approx.ftz.f64",
    "d:f64 <- a:f64",
    Unit.SFU,
    latency=40,
    interval=4,
    doc="d = 1 / a; chip to 20 bits, lower 32 bits zero",
)
def _drcp_approx(m: Mods) -> Any:
    return _upper_half(lambda x: 1.0 / x)


@inst(
    "rsqrt.approx{.ftz}.f64",
    "d:f64 <- a:f64",
    Unit.SFU,
    latency=40,
    interval=4,
    doc="d = 1 / sqrt(a); chip to about 22 bits",
)
def _drsqrt(m: Mods) -> Any:
    return _upper_half(_rsqrt) if "ftz" in m else _rsqrt


@inst("abs.f64", "d:f64 <- a:f64", Unit.F64, doc="d = |a|")
def _dabs(m: Mods) -> Any:
    return np.absolute


@inst("neg.f64", "d:f64 <- a:f64", Unit.F64, doc="d = -a")
def _dneg(m: Mods) -> Any:
    return np.negative


@inst("min.f64", "d:f64 <- a:f64, b:f64", Unit.F64, doc="d = lesser; the number where one is NaN")
def _dmin(m: Mods) -> Any:
    return num.float_min


@inst("max.f64", "d:f64 <- a:f64, b:f64", Unit.F64, doc="d = greater; the number where one is NaN")
def _dmax(m: Mods) -> Any:
    return num.float_max


# ---------------------------------------------------------------- f16, bf16 and their pairs

_HALF_TYPES = "f16|f16x2|bf16|bf16x2"


def _legal_half(m: Mods) -> str:
    if m["type"].startswith("bf") and ("ftz" in m or "sat" in m):
        return ".ftz and .sat are for .f16"
    return ""


def _narrow(exact: Callable[..., Array], m: Mods) -> Callable[..., Array]:
    """A 16-bit float function from one on float64 whose result is exact or rounded to odd."""
    back = num.to_bf16 if m["type"].startswith("bf") else num.to_f16
    ftz = "ftz" in m

    def run(*args: Array) -> Array:
        r = back(exact(*[(num.flush(x) if ftz else x).astype(np.float64) for x in args]))
        r = num.flush(r) if ftz else r
        if "sat" in m:
            r = num.saturate(r)
        if "relu" in m:
            r = np.where(np.isnan(r), num.canonical_nan(r.dtype), np.where(r > 0, r, r.dtype.type(0)))
        return r

    return run


def _half_row(op: str, doc: str, fn: Callable[..., Array]) -> None:
    """add, sub and mul of one 16-bit float type or a pair of them."""

    def semantics(m: Mods) -> Any:
        return _narrow(fn, m)

    operands = "d:type <- a:type, b:type"
    name = f"{op}{{.rnd:rn}}{{.ftz}}{{.sat}}.type:f16|f16x2"
    inst(name, operands, Unit.FMA, source=_BENCH, doc=f"{doc} in f16")(semantics)
    name = f"{op}{{.rnd:rn}}.type:bf16|bf16x2"
    inst(name, operands, Unit.FMA, source=_BENCH, ptx=(7, 8), sm=90, doc=f"{doc} in bf16")(semantics)


_half_row("add", "d = a + b", num.sum_odd)
_half_row("sub", "d = a - b", lambda a, b: num.sum_odd(a, -b))
_half_row("mul", "d = a * b", lambda a, b: a * b)


@inst(
    f"fma.rnd:rn{{.ftz}}{{.sat}}{{.relu}}{{.oob}}.type:{_HALF_TYPES}",
    "d:type <- a:type, b:type, c:type",
    Unit.FMA,
    source=_BENCH,
    legal=lambda m: ".oob is not in the tables" if "oob" in m else _legal_half(m),
    doc="d = a * b + c, one rounding; .relu clamps at 0",
)
def _hfma(m: Mods) -> Any:
    return _narrow(lambda a, b, c: num.sum_odd(a * b, c), m)


def _flushed(m: Mods, a: Array) -> Array:
    return num.flush(a) if "ftz" in m else a


@inst(f"neg{{.ftz}}.type:{_HALF_TYPES}", "d:type <- a:type", Unit.ALU, legal=_legal_half, doc="d = -a, by the sign bit")
def _hneg(m: Mods) -> Any:
    return lambda a: (np.ascontiguousarray(_flushed(m, a)).view(np.uint16) ^ np.uint16(0x8000)).view(a.dtype)


@inst(
    f"abs{{.ftz}}.type:{_HALF_TYPES}", "d:type <- a:type", Unit.ALU, legal=_legal_half, doc="d = |a|, by the sign bit"
)
def _habs(m: Mods) -> Any:
    return lambda a: (np.ascontiguousarray(_flushed(m, a)).view(np.uint16) & np.uint16(0x7FFF)).view(a.dtype)


def _half_extreme(m: Mods, fn: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    base = _extreme(m, fn)

    def run(a: Array, b: Array) -> Array:
        r = base(_flushed(m, a).astype(np.float32), _flushed(m, b).astype(np.float32)).astype(a.dtype)
        nan = np.isnan(r)
        return np.where(nan, num.canonical_nan(r.dtype), r) if nan.any() else r

    return run


@inst(
    f"min{{.ftz}}{{.NaN}}{{.xorsign}}{{.abs}}.type:{_HALF_TYPES}",
    "d:type <- a:type, b:type",
    Unit.ALU,
    legal=_legal_extreme,
    doc="d = lesser; the number where one is NaN, NaN with .NaN",
)
def _hmin(m: Mods) -> Any:
    return _half_extreme(m, num.float_min)


@inst(
    f"max{{.ftz}}{{.NaN}}{{.xorsign}}{{.abs}}.type:{_HALF_TYPES}",
    "d:type <- a:type, b:type",
    Unit.ALU,
    legal=_legal_extreme,
    doc="d = greater; the number where one is NaN, NaN with .NaN",
)
def _hmax(m: Mods) -> Any:
    return _half_extreme(m, num.float_max)


@inst(
    "ex2.approx.type:f16|f16x2",
    "d:type <- a:type",
    Unit.SFU,
    latency=23,
    interval=4,
    doc="d = 2^a in f16; chip within 2^-9.9 relative",
)
def _hex2(m: Mods) -> Any:
    return _narrow(np.exp2, m)


@inst(
    "ex2.approx.ftz.type:bf16|bf16x2",
    "d:type <- a:type",
    Unit.SFU,
    latency=23,
    interval=4,
    ptx=(7, 8),
    sm=90,
    doc="d = 2^a in bf16; chip within 2^-7 relative",
)
def _bex2(m: Mods) -> Any:
    return _narrow(np.exp2, {**m, "ftz": True})


@inst(
    "tanh.approx.type:f16|f16x2",
    "d:type <- a:type",
    Unit.SFU,
    latency=23,
    interval=4,
    doc="d = tanh a in f16; chip within 2^-10.987 absolute",
)
def _htanh(m: Mods) -> Any:
    return _narrow(np.tanh, m)


@inst(
    "tanh.approx.type:bf16|bf16x2",
    "d:type <- a:type",
    Unit.SFU,
    latency=23,
    interval=4,
    ptx=(7, 8),
    sm=90,
    doc="d = tanh a in bf16; chip within 2^-8 absolute",
)
def _btanh(m: Mods) -> Any:
    return _narrow(np.tanh, m)
