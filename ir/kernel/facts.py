"""Value ranges and known-zero bits of kernel IR integers: one transfer function per op, used by the builder.

In: the operands (with their facts), the op's attributes and the width of the result in bits. Out: `(lo, hi, zeros)`:
the inclusive range of the value read as a signed integer, over all lanes, and the mask of bits that are 0 in all.
A function that knows nothing returns the full range of its width. Integer values always carry a concrete range.

INVARIANT: facts are sound for wrapping arithmetic: a range that might wrap is the full range. The verifier does not use
this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wavedsl.ir.kernel.kernel_ir import Kernel, Type, Value

Facts = tuple[int, int, int]

MASKS = {32: (1 << 32) - 1, 64: (1 << 64) - 1}
BITS = {"i32": 32, "i64": 64, "b32": 32, "b64": 64}


def full(bits: int) -> Facts:
    """The facts of an unknown integer of `bits`."""
    half = 1 << (bits - 1)
    return -half, half - 1, 0


def wrap(value: int, bits: int) -> int:
    """`value` modulo 2**bits, read as a signed integer."""
    half = 1 << (bits - 1)
    if -half <= value < half:
        return value
    return ((value + half) & ((half << 1) - 1)) - half


def normalise(lo: int, hi: int, zeros: int, bits: int) -> Facts:
    """Let the range tell about bits and bits about the range. A range that left the type becomes the full range."""
    half = 1 << (bits - 1)
    if lo < -half or hi >= half:
        lo, hi = -half, half - 1
    if lo < 0 and zeros & half:
        lo = 0
    if lo >= 0:
        mask = (half << 1) - 1
        zeros |= mask & ~((1 << hi.bit_length()) - 1)
        limit = mask & ~zeros
        if limit < hi:
            hi = limit
    return lo, hi, zeros


def trailing_zeros(zeros: int) -> int:
    """How many low bits are known to be 0."""
    return ((zeros + 1) & ~zeros).bit_length() - 1


def multiple_of(value: Value) -> int:
    """The largest power of two that is known to divide the value (2**32 for zero)."""
    return 1 << min(trailing_zeros(value.zeros), 32)


def disjoint(a: Value, b: Value) -> bool:
    """Whether no bit can be set in both: then a + b = a | b = a ^ b."""
    return not ~a.zeros & ~b.zeros & MASKS[BITS[a.type.kind]]


def _span(a: Value, b: Value) -> int:
    """The smallest k such that both lie in [-2**k, 2**k)."""
    bounds = (v for v in (a.lo, a.hi, b.lo, b.hi) if v is not None)  # a value with facts has both
    return max((v if v >= 0 else ~v).bit_length() for v in bounds)


def _add(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, b = args
    mask = MASKS[bits]
    most_a, most_b = mask & ~a.zeros, mask & ~b.zeros
    carries = (most_a + most_b) ^ most_a ^ most_b  # positions a carry can reach
    return normalise(a.lo + b.lo, a.hi + b.hi, a.zeros & b.zeros & ~carries, bits)


def _sub(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, b = args
    low = min(trailing_zeros(a.zeros), trailing_zeros(b.zeros))
    return normalise(a.lo - b.hi, a.hi - b.lo, (1 << low) - 1, bits)


def _mul(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, b = args
    corners = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
    low = min(trailing_zeros(a.zeros) + trailing_zeros(b.zeros), bits)
    return normalise(min(corners), max(corners), (1 << low) - 1, bits)


def _mulhi_u(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, b = args
    if a.lo >= 0:
        top = b.hi if b.lo >= 0 else MASKS[bits]
        return normalise(a.lo * max(b.lo, 0) >> bits, a.hi * top >> bits, 0, bits)
    if b.lo >= 0:
        return normalise(0, MASKS[bits] * b.hi >> bits, 0, bits)
    return full(bits)


def _mul_wide_u(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    (alo, ahi), (blo, bhi) = _unsigned(args[0], 32), _unsigned(args[1], 32)
    low = min(trailing_zeros(args[0].zeros) + trailing_zeros(args[1].zeros), bits)
    return normalise(alo * blo, ahi * bhi, (1 << low) - 1, bits)


def _unsigned(a: Value, bits: int) -> tuple[int, int]:
    """The range of the value read as an unsigned integer."""
    assert a.lo is not None and a.hi is not None
    if a.lo >= 0:
        return a.lo, a.hi
    if a.hi < 0:
        return a.lo + (1 << bits), a.hi + (1 << bits)
    return 0, MASKS[bits]


def _and(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, b = args
    zeros = a.zeros | b.zeros
    if a.lo >= 0 and b.lo >= 0:
        return normalise(0, min(a.hi, b.hi), zeros, bits)
    if a.lo >= 0:
        return normalise(0, a.hi, zeros, bits)
    if b.lo >= 0:
        return normalise(0, b.hi, zeros, bits)
    return normalise(-(1 << _span(a, b)), max(a.hi, b.hi), zeros, bits)


def _or(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, b = args
    k = _span(a, b)
    if a.lo >= 0 and b.lo >= 0:
        return normalise(max(a.lo, b.lo), (1 << k) - 1, a.zeros & b.zeros, bits)
    return normalise(-(1 << k), (1 << k) - 1 if a.hi >= 0 and b.hi >= 0 else -1, a.zeros & b.zeros, bits)


def _xor(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, b = args
    k = _span(a, b)
    lo = 0 if a.lo >= 0 and b.lo >= 0 else -(1 << k)
    return normalise(lo, (1 << k) - 1, a.zeros & b.zeros, bits)


def _shl(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, s = args
    mask = MASKS[bits]
    if s.lo == s.hi:
        n = s.lo & (bits - 1)
        return normalise(a.lo << n, a.hi << n, (a.zeros << n | (1 << n) - 1) & mask, bits)
    if 0 <= s.lo and s.hi < bits:
        low = min(trailing_zeros(a.zeros) + s.lo, bits)
        return normalise(min(a.lo << s.hi, a.lo << s.lo), max(a.hi << s.hi, a.hi << s.lo), (1 << low) - 1, bits)
    return full(bits)


def _lshr(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, s = args
    if not (0 <= s.lo and s.hi < bits):
        return full(bits)
    lo, hi = _unsigned(a, bits)
    mask = MASKS[bits]
    zeros = (a.zeros >> s.lo | mask & ~(mask >> s.lo)) if s.lo == s.hi else 0
    return normalise(lo >> s.hi, hi >> s.lo, zeros, bits)


def _ashr(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, s = args
    if not (0 <= s.lo and s.hi < bits):
        return full(bits)
    zeros = a.zeros >> s.lo if s.lo == s.hi else 0
    return normalise(min(a.lo >> s.lo, a.lo >> s.hi), max(a.hi >> s.lo, a.hi >> s.hi), zeros, bits)


def _min_s(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, b = args
    return normalise(min(a.lo, b.lo), min(a.hi, b.hi), a.zeros & b.zeros, bits)


def _max_s(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, b = args
    return normalise(max(a.lo, b.lo), max(a.hi, b.hi), a.zeros & b.zeros, bits)


def _min_u(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, b = args
    if a.lo >= 0 and b.lo >= 0:
        return _min_s(args, attrs, bits)
    if a.lo >= 0 or b.lo >= 0:  # the other may be a large unsigned number
        return normalise(0, a.hi if a.lo >= 0 else b.hi, a.zeros & b.zeros, bits)
    return normalise(min(a.lo, b.lo), max(a.hi, b.hi), a.zeros & b.zeros, bits)


def _max_u(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, b = args
    if a.lo >= 0 and b.lo >= 0:
        return _max_s(args, attrs, bits)
    return normalise(min(a.lo, b.lo), max(a.hi, b.hi), a.zeros & b.zeros, bits)


def _udiv(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    (alo, ahi), (blo, bhi) = _unsigned(args[0], bits), _unsigned(args[1], bits)
    return normalise(alo // max(bhi, 1), ahi // max(blo, 1), 0, bits)


def _urem(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    (_, ahi), (_, bhi) = _unsigned(args[0], bits), _unsigned(args[1], bits)
    return normalise(0, min(ahi, max(bhi - 1, 0)), 0, bits)


def _zext(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    lo, hi = _unsigned(args[0], 32)
    return normalise(lo, hi, args[0].zeros, bits)


def _sext(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a = args[0]
    return normalise(a.lo, a.hi, a.zeros & 0x7FFFFFFF, bits)


def _trunc(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    return normalise(args[0].lo, args[0].hi, args[0].zeros & MASKS[bits], bits)


def _bfe(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a, start, width = args[0], attrs["start"], attrs["width"]
    half = 1 << (width - 1)
    if attrs["signed"]:
        return normalise(-half, half - 1, (a.zeros >> start) & (half - 1), bits)
    zeros = (a.zeros >> start | ~((half << 1) - 1)) & MASKS[bits]
    if a.lo >= 0 and a.hi >> start < half << 1:
        return normalise(a.lo >> start, a.hi >> start, zeros, bits)
    return normalise(0, (half << 1) - 1, zeros, bits)


def _popcount(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    (a,) = args
    if a.lo == a.hi:
        count = (a.lo & MASKS[bits]).bit_count()
        return normalise(count, count, 0, bits)
    return normalise(0 if _unsigned(a, bits)[0] == 0 else 1, (MASKS[bits] & ~a.zeros).bit_count(), 0, bits)


def _clz(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    low, high = _unsigned(args[0], bits)
    return normalise(bits - high.bit_length(), bits - low.bit_length(), 0, bits)


def _ctz(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    (a,) = args
    low, high = _unsigned(a, bits)
    if low == high and low:
        count = (low & -low).bit_length() - 1
        return normalise(count, count, 0, bits)
    return normalise(min(trailing_zeros(a.zeros), bits), high.bit_length() - 1 if low else bits, 0, bits)


def _brev(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    (a,) = args
    if a.lo == a.hi:
        value = wrap(_reversed(a.lo & MASKS[bits], bits), bits)
        return normalise(value, value, 0, bits)
    lo, hi, _ = full(bits)
    return normalise(lo, hi, _reversed(a.zeros & MASKS[bits], bits), bits)


def _reversed(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def _select(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    _, a, b = args
    return normalise(min(a.lo, b.lo), max(a.hi, b.hi), a.zeros & b.zeros, bits)


def _same(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    return args[0].lo, args[0].hi, args[0].zeros


def _unpack(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    dtype = attrs["dtype"]
    if dtype.kind == "int":
        return normalise(-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1, 0, bits)
    if dtype.kind in ("uint", "bool") and dtype.bits < bits:
        op, zeros = args[0].op, 0
        if op is not None and op.name == "bitcast" and op.args[0].type.kind == "i32":
            zeros = op.args[0].zeros >> attrs["index"] * dtype.bits & (1 << dtype.bits) - 1
        return normalise(0, (1 << dtype.bits) - 1, zeros, bits)
    return full(bits)


def _cvt(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    a = args[0]
    if a.type.kind == "i32" and bits == 64:
        return _zext(args, attrs, bits) if attrs.get("unsigned") else _sext(args, attrs, bits)
    if a.type.kind == "i64" and bits == 32:
        return _trunc(args, attrs, bits)
    return full(bits)


def _load(args: Sequence[Any], attrs: Mapping[str, Any], bits: int) -> Facts:
    """Loads below 4 bytes are zero-extended."""
    return normalise(0, (1 << 8 * attrs["bytes"]) - 1, 0, bits) if attrs["bytes"] < 4 else full(bits)


TRANSFER: dict[str, Callable[[Sequence[Any], Mapping[str, Any], int], Facts]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "mulhi_u": _mulhi_u,
    "mul_wide_u": _mul_wide_u,
    "and": _and,
    "or": _or,
    "xor": _xor,
    "shl": _shl,
    "lshr": _lshr,
    "ashr": _ashr,
    "min_s": _min_s,
    "max_s": _max_s,
    "min_u": _min_u,
    "max_u": _max_u,
    "udiv": _udiv,
    "urem": _urem,
    "zext": _zext,
    "sext": _sext,
    "trunc": _trunc,
    "bfe": _bfe,
    "popcount": _popcount,
    "clz": _clz,
    "ctz": _ctz,
    "brev": _brev,
    "select": _select,
    "readfirst": _same,
    "shuffle_xor": _same,
    "shuffle_index": _same,
    "unpack": _unpack,
    "cvt": _cvt,
    "load.global": _load,
    "load.far": _load,
    "load.shared": _load,
}


def leaf_facts(kernel: Kernel, name: str, attrs: Mapping[str, Any], type: Type) -> Facts:
    """Facts of ops without operands: indices of waves, lanes and workgroups, and parameters.

    A workgroup index is below 2**31 on every chip. Extents and sizes (`Param.source` begins with `extent`) are not
    negative; `lo`, `hi` and `multiple` among a param's attributes are what the launch checks of it.
    """
    bits = BITS[type.kind]
    if name == "lane":
        return normalise(0, kernel.wave_size - 1, 0, bits)
    if name == "wave":
        return normalise(0, kernel.waves - 1, 0, bits)
    if name == "tid":
        return normalise(0, kernel.block - 1, 0, bits)
    if name == "wgid":
        count = kernel.grid[attrs["axis"]]
        return normalise(0, max(0, count - 1) if isinstance(count, int) and count >= 0 else (1 << 31) - 2, 0, bits)
    if name == "cluster.rank":
        return normalise(0, kernel.cluster - 1, 0, bits)
    if name == "wgcount":
        count = kernel.grid[attrs["axis"]]
        return normalise(1, max(1, count) if isinstance(count, int) and count >= 0 else (1 << 31) - 1, 0, bits)
    if name == "param":
        lo, hi, _ = full(bits)
        index = attrs["index"]
        if index < len(kernel.params) and kernel.params[index].source.startswith("extent"):
            lo = 0
        lo = attrs.get("lo", lo)
        hi = attrs.get("hi", hi)
        multiple = attrs.get("multiple", 1)
        return normalise(lo, hi, (multiple & -multiple) - 1, bits)
    return full(bits)


def induction_facts(lo: Value, hi: Value, step: Value) -> Facts:
    """Facts of the induction variable of `for lo, hi, step`, inside the body (so at least one trip runs)."""
    assert lo.lo is not None and lo.hi is not None and hi.hi is not None and step.lo is not None
    first, last = lo.lo, hi.hi - 1
    if lo.lo == lo.hi and step.lo == step.hi and step.lo > 0 and last >= first:
        last = first + (last - first) // step.lo * step.lo
    low = min(trailing_zeros(lo.zeros), trailing_zeros(step.zeros), 31)
    return normalise(first, max(first, last), (1 << low) - 1, 32)
