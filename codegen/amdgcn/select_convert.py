"""Lowering of conversions, packed words, tuples and lane exchanges.

Packed floats round to nearest even: f16 by v_cvt_f16_f32 (never the truncating pack), bf16 by gfx950's instruction
or by adding half of the last place, NaNs kept; 8-bit floats by the chip's own format (FNUZ on gfx942, OCP on gfx950).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn import roles
from wavedsl.codegen.amdgcn.isa import Src
from wavedsl.codegen.amdgcn.lane_moves import dpp_pattern
from wavedsl.codegen.amdgcn.machine import Operand, Ref
from wavedsl.codegen.amdgcn.select import Selector, f32_bits, lower
from wavedsl.codegen.amdgcn.select_int import add64
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.kernel_ir import Op, Value
from wavedsl.ir.kernel.raised_pairs import fits
from wavedsl.ir.kernel.whole_floats import has_quiet_nans, has_short_nans, is_exact

# ---------------------------------------------------------------------------------------------------- number conversion


@lower("cvt")
def cvt(s: Selector, op: Op) -> None:
    a, v = op.args[0], op.results[0]
    source, target = a.type.kind, v.type.kind
    unsigned = bool(op.attrs.get("unsigned"))
    if source == target:
        s.bind(op, s.operand(a))
    elif v.id in s.fusions:
        _converted_field(s, op)
    elif "i64" in (source, target):
        _cvt64(s, op, unsigned)
    else:
        mnemonic = roles.CONVERT[source, target][unsigned]
        _elementwise(s, op, mnemonic, a.type.element.words, v.type.element.words)


_LOW_HALVES = 0x0F0F0F0F


def _converted_field(s: Selector, op: Op) -> None:
    """An integer of a word as f32, by the instruction that takes it out. Of eight numbers of 4 bits every other one is
    masked away, so that the rest are bytes: two words, made once."""
    packed = op.args[0].op
    assert packed is not None
    dtype, index = packed.attrs["dtype"], packed.attrs["index"]
    word = s.to_vector(s.operand(packed.args[0]))
    if dtype.bits == 4:
        half = index % 2
        found = s.remember(("bytes of halves", word.reg.id, word.start, half), lambda: _bytes_of_halves(s, word, half))
        assert isinstance(found, Ref)
        word, index = found, index // 2
    if dtype.bits <= 8 and not dtype.is_signed:
        s.emit(s.rows.named(roles.CONVERT_BYTE[index]), s.result(op), word)
        return
    field: dict[str, Any] = {
        "dst_sel": "DWORD", "dst_unused": "UNUSED_PAD", "src0_sel": f"{'BYTE' if dtype.bits == 8 else 'WORD'}_{index}",
    }  # fmt: skip
    row = s.rows.named(roles.CONVERT_FIELD["i" if dtype.is_signed else "u"])
    s.emit(row, s.result(op), Src(word, sext=True) if dtype.is_signed else word, **field)


def _bytes_of_halves(s: Selector, word: Ref, half: int) -> Ref:
    """The lower or the upper 4 bits of every byte, as bytes."""
    if half:
        word = s.temp(s.rows.v_lshrrev_b32, 4, word)
    made = s.new("v")
    s.valu(s.rows.v_and_b32, made, _LOW_HALVES, word)
    return made


def _elementwise(s: Selector, op: Op, mnemonic: str, inputs: int, outputs: int) -> None:
    """One one-source instruction per element of `inputs` and `outputs` registers."""
    row = s.rows.named(mnemonic)
    a = op.args[0]
    dst = s.result(op)
    n = op.results[0].type.n
    if inputs == 1:
        sources = s.words(a)
    elif n == 1:
        sources = [s.source64(a)]
    else:
        ref = s.vector(a)
        sources = [ref.part(2 * k, 2) for k in range(n)]
    for k in range(n):
        s.emit(row, dst.part(outputs * k, outputs), sources[k])


def _cvt64(s: Selector, op: Op, unsigned: bool) -> None:
    """Conversions from or to i64, which no instruction makes."""
    a, v = op.args[0], op.results[0]
    if a.type.n != 1:
        raise s.unsupported(op, "tuples of i64 are not converted")
    if a.type.kind == "i64":
        x = s.vector(a)
        if v.type.kind == "f64":
            _int64_to_f64(s, s.result(op), x, unsigned)
        elif v.type.kind == "f32":
            s.bind(op, _int64_to_f32(s, x, unsigned))
        else:
            s.bind(op, x.part(0))
    elif a.type.kind == "i32":
        dst = s.result(op)
        word = s.operand(a)
        s.copy(dst.part(0), word)
        if unsigned:
            s.copy(dst.part(1), 0)
        else:
            s.valu(s.rows.v_ashrrev_i32, dst.part(1), 31, word)
    else:
        x = s.vector(a)
        if a.type.kind == "f32":
            x = s.one(s.rows.v_cvt_f64_f32, x, 2)
        _f64_to_int64(s, s.result(op), x, unsigned)


def _int64_to_f64(s: Selector, dst: Ref, x: Ref, unsigned: bool) -> None:
    """high * 2^32 + low: both terms are exact, the sum rounds once."""
    r = s.rows
    high = s.one(r.v_cvt_f64_u32 if unsigned else r.v_cvt_f64_i32, x.part(1), 2)
    low = s.one(r.v_cvt_f64_u32, x.part(0), 2)
    scaled = s.temp(r.v_ldexp_f64, high, 32, n=2)
    s.vop3(r.v_add_f64, dst, scaled, low)


def _int64_to_f32(s: Selector, x: Ref, unsigned: bool) -> Ref:
    """Normalise the magnitude, keep what is shifted out as a sticky bit, convert the top word, scale back."""
    r = s.rows
    magnitude = x
    negative: Ref | None = None
    if not unsigned:
        negative = s.new("v")
        s.valu(r.v_ashrrev_i32, negative, 31, x.part(1))
        flipped = s.new("v", 2)
        for k in (0, 1):
            s.valu(r.v_xor_b32, flipped.part(k), negative, x.part(k))
        magnitude = s.new("v", 2)
        add64(s, magnitude, [flipped.part(0), flipped.part(1)], [negative, negative], True)
    zeros = s.one(r.v_ffbh_u32, magnitude.part(1))
    shift = s.new("v")
    s.valu(r.v_min_u32, shift, 32, zeros)
    moved = s.temp(r.v_lshlrev_b64, shift, magnitude, n=2)
    sticky = s.new("v")
    s.valu(r.v_min_u32, sticky, 1, moved.part(0))
    top = s.new("v")
    s.valu(r.v_or_b32, top, sticky, moved.part(1))
    value = s.one(r.v_cvt_f32_u32, top)
    exponent = s.new("v")
    s.valu(r.v_sub_u32, exponent, 32, shift)
    out = s.temp(r.v_ldexp_f32, value, exponent)
    if negative is None:
        return out
    bit = s.new("v")
    s.valu(r.v_and_b32, bit, 0x80000000, negative)
    signed = s.new("v")
    s.valu(r.v_or_b32, signed, bit, out)
    return signed


def _f64_to_int64(s: Selector, dst: Ref, x: Ref, unsigned: bool) -> None:
    """Two words of the truncated number, then the ends: too large, too small (or NaN for unsigned), NaN."""
    r = s.rows
    whole = s.one(r.v_trunc_f64, x, 2)
    scaled = s.temp(r.v_ldexp_f64, whole, s.pooled(0xFFFFFFE0), n=2)  # times 2^-32
    high = s.one(r.v_floor_f64, scaled, 2)
    low = s.temp(r.v_fma_f64, high, s.constant_pair([0, 0xC1F00000]), whole, n=2)  # - 2^32 * high
    words = s.new("v", 2)
    s.emit(r.v_cvt_u32_f64, words.part(0), low)
    s.emit(r.v_cvt_u32_f64 if unsigned else r.v_cvt_i32_f64, words.part(1), high)
    top = 0x43F00000 if unsigned else 0x43E00000  # 2^64, 2^63
    over = s.compare(r.v_cmp_le_f64, s.constant_pair([0, top]), whole)
    under = s.compare(r.v_cmp_gt_f64, 0 if unsigned else s.constant_pair([0, 0xC3E00000]), whole)
    nan = s.compare(r.v_cmp_u_f64, x, x)
    most, least = ((0xFFFFFFFF, 0xFFFFFFFF), (0, 0)) if unsigned else ((0xFFFFFFFF, 0x7FFFFFFF), (0, 0x80000000))
    for k in (0, 1):
        one, two = s.new("v"), s.new("v")
        s.pick(one, over, -1 if most[k] == 0xFFFFFFFF else most[k], words.part(k))
        s.pick(two, under, least[k], one)
        s.pick(dst.part(k), nan, 0, two)


@lower("bitcast")
def bitcast(s: Selector, op: Op) -> None:
    a = op.args[0]
    if a.const is not None and a.type.words > 1:
        s.bind(op, s.vector(a))
        return
    held = s.operand(a)
    if held.__class__ is float:
        held = f32_bits(held)
    s.bind(op, held)


@lower("round_tf32")
def round_tf32(s: Selector, op: Op) -> None:
    """Add half of the last kept place to the magnitude, clear the 13 low bits; a NaN stays one."""
    r = s.rows
    x = s.vector(op.args[0])
    up = s.new("v")
    s.valu(r.v_add_u32, up, 0x1000, x)
    cut = s.new("v")
    s.valu(r.v_and_b32, cut, 0xFFFFE000, up)
    nan = s.compare(r.v_cmp_u_f32, x, x)
    s.pick(s.result(op), nan, s.to_vector(0x7FC00000), cut)


# -------------------------------------------------------------------------------------------------------- packed words

_FP8 = {"f8e4m3": "e4m3", "f8e5m2": "e5m2", "f8e4m3fnuz": "e4m3", "f8e5m2fnuz": "e5m2"}
_FP8_CHIP = {"gfx942": "fnuz", "gfx950": ""}


def _check_fp8(s: Selector, op: Op, dtype: DType) -> str:
    """The layout of an 8-bit float that the chip has: e4m3 or e5m2."""
    ending = _FP8_CHIP.get(s.chip)
    if ending is None:
        raise s.unsupported(op, f"{dtype} numbers cannot be converted", "8-bit floats need gfx942 or gfx950")
    if dtype.name.endswith("fnuz") != (ending == "fnuz"):
        instead = dtype.name + "fnuz" if ending else dtype.name.removesuffix("fnuz")
        raise s.unsupported(op, f"{dtype} is not the chip's 8-bit format", f"use {instead}")
    return _FP8[dtype.name]


@lower("pack")
def pack(s: Selector, op: Op) -> None:
    dtype: DType = op.attrs["dtype"]
    values: list[Operand] = []
    for arg in op.args:
        values += s.words(arg)
    name = dtype.name
    if dtype.bits == 32:
        s.bind(op, values[0])
    elif name in ("f16", "bf16"):
        known = _known_halves(op)
        low, high = known
        if low is not None and high is not None:
            s.copy(s.result(op), high << 16 | low)
        elif name == "f16":
            _pack_f16(s, s.result(op), values, known)
        else:
            kinds = [_kind(a, dtype) for a in op.args for _ in range(a.type.n)]
            _pack_bf16(s, s.result(op), values, kinds, known)
    elif name in _FP8:
        _pack_fp8(s, op, values, _check_fp8(s, op, dtype))
    elif name == "f4e2m1":
        _pack_fp4(s, op, values)
    elif dtype.is_int and dtype.bits == 16:
        s.vop3(s.rows.v_perm_b32, s.result(op), s.to_vector(values[1]), s.to_vector(values[0]), 0x05040100)
    elif dtype.is_int and dtype.bits == 8:
        v = [s.to_vector(x) for x in values]
        first = s.temp(s.rows.v_perm_b32, v[1], v[0], 0x0C0C0400)
        second = s.temp(s.rows.v_perm_b32, v[3], v[2], 0x04000C0C)
        s.valu(s.rows.v_or_b32, s.result(op), first, second)
    elif dtype.is_int:
        _pack_fields(s, op, values, dtype.bits)
    else:
        raise s.unsupported(op, f"{dtype} numbers cannot be packed")


def _pack_fields(s: Selector, op: Op, values: list[Operand], bits: int) -> None:
    """Fields below a byte, highest first: word = word << bits | field."""
    mask = (1 << bits) - 1
    word: Operand = None
    for value in reversed(values):
        field = s.new("v")
        s.valu(s.rows.v_and_b32, field, mask, s.to_vector(value))
        if word is None:
            word = field
        else:
            word = s.temp(s.rows.v_lshl_or_b32, word, bits, field)
    s.bind(op, word)


def _known_halves(op: Op) -> list[int | None]:
    """The bits of those numbers of a packed pair that are constants, but for NaN: which one it is, the chip says."""
    numbers = [a.const for a in op.args for _ in range(a.type.n)]
    kind = op.attrs["dtype"].numpy
    with np.errstate(over="ignore"):
        return [
            None if x is None or x != x else int(np.array(x, np.float32).astype(kind).view(np.uint16)) for x in numbers
        ]


def _same(a: Operand, b: Operand) -> bool:
    """Whether two operands are one register."""
    return a.__class__ is Ref and b.__class__ is Ref and (a.reg.id, a.start) == (b.reg.id, b.start)


def _pack_f16(s: Selector, dst: Ref, values: list[Operand], known: list[int | None]) -> None:
    low, high = values
    if s.rows.packs_rounded:
        s.vop3(s.rows.v_cvt_pk_f16_f32, dst, low, high)
        return
    halves: list[Operand] = []
    for value, bits in zip(values, known):
        if halves and _same(low, high):
            halves.append(halves[0])
        elif bits is None:
            halves.append(s.one(s.rows.v_cvt_f16_f32, value))
        else:
            halves.append(bits if bits == 0 else s.to_vector(bits))
    s.emit(s.rows.v_pack_b32_f16, dst, *halves)


def _is_power(a: Value) -> bool:
    """Whether numbers are powers: not below zero, and if they are NaN, a quiet one, whatever its sign."""
    while a.op is not None and a.op.name == "slice":
        a = a.op.args[0]
    if a.op is not None and a.op.name == "vec":
        return all(map(_is_power, a.op.args))
    return a.op is not None and a.op.name == "exp2" and a.type.kind == "f32"


_QUIET_NAN = 0x7FC00000
_UPPER_HALVES = 0x07060302
"""The upper halves of v_perm_b32's operands: the second's is the lower one."""
EXACT, SHORT_NANS, POWERS, QUIET, ANY = range(5)
"""Numbers that are rounded to bf16: those it holds, those whose NaNs have a lower half of zeros, powers, others whose
NaNs are quiet, and others."""


def _kind(a: Value, dtype: DType) -> int:
    if is_exact(a, dtype):
        return EXACT
    if has_short_nans(a):
        return SHORT_NANS
    return POWERS if _is_power(a) else QUIET if has_quiet_nans(a) else ANY


def _pack_bf16(s: Selector, dst: Ref, values: list[Operand], kinds: list[int], known: list[int | None]) -> None:
    """Round to nearest even by adding to the bits. That may make infinity or zero of a NaN: where there is one, all
    ones take the sum's place, an inline constant. Bits of powers above the first quiet NaN's are those of NaNs, so
    the smaller of both is what to round. Where a NaN's lower half is zero, what is added stays below its upper half.
    Of quiet NaNs the upper half is one as well: see `_larger_half`."""
    r = s.rows
    low, high = values
    if r.packs_rounded:
        s.vop3(r.v_cvt_pk_bf16_f32, dst, low, high)
        return
    same = _same(low, high)
    together = not same and known == [None, None] and QUIET in kinds and not {EXACT, ANY} & set(kinds)
    sources = [bits << 16 if bits is not None else s.to_vector(value) for value, bits in zip(values, known)]
    as_they_are = [bits is not None or kind == EXACT for bits, kind in zip(known, kinds)]
    nans = [  # made before they are read: a lane mask is there some instructions later
        s.compare(r.v_cmp_u_f32, x, x) if kind in (QUIET, ANY) and not (together or is_) else None
        for x, kind, is_ in zip(sources[: 2 - same], kinds, as_they_are)
    ]
    rounded: list[Operand] = []
    for x, kind, is_, nan in zip(sources, kinds, as_they_are, nans):
        if is_:
            rounded.append(x)
            continue
        if kind == POWERS and not together:
            least = s.new("v")
            s.valu(r.v_min_u32, least, _QUIET_NAN, x)
            x = least
        odd = s.temp(r.v_bfe_u32, x, 16, 1)
        up = s.temp(r.v_add3_u32, x, odd, 0x7FFF)
        if nan is not None:
            out = s.new("v")
            s.pick(out, nan, 0xFFFFFFFF, up)
            up = out
        rounded.append(up)
    if same:
        rounded.append(rounded[0])
    if rounded[1] == 0:
        s.valu(r.v_lshrrev_b32, dst, 16, rounded[0])
    elif rounded[0] == 0:
        s.valu(r.v_and_b32, dst, 0xFFFF0000, rounded[1])
    elif together:
        _larger_half(s, dst, s.temp(r.v_perm_b32, *reversed(rounded), _UPPER_HALVES), sources)
    else:
        s.vop3(r.v_perm_b32, dst, *(s.to_vector(x) for x in reversed(rounded)), _UPPER_HALVES)


def _larger_half(s: Selector, dst: Ref, rounded: Ref, sources: list[Operand]) -> None:
    """What two numbers are rounded to, or their upper halves where that has left the NaNs: it is those or one more, so
    the larger of both, but one more than a NaN may be the smallest half (without a sign 0x7fff + 1 is the smallest
    with one, with a sign 0xffff + 1 is the smallest without). One instruction less for two than a comparison and a
    selection for each, and no lane masks, which have to be waited for."""
    r = s.rows
    halves = s.temp(r.v_perm_b32, *reversed(sources), _UPPER_HALVES)
    s.vop3(r.v_pk_max_u16, dst, s.temp(r.v_pk_max_i16, rounded, halves), halves)


def _pack_fp8(s: Selector, op: Op, values: list[Operand], layout: str) -> None:
    """Two conversions write the halves of one register; the second keeps what the first wrote."""
    row = s.rows.named(roles.PACK_F8[layout])
    dst = s.result(op)
    s.copy(dst, 0)
    s.vop3(row, dst, values[0], values[1])
    s.vop3(row, dst, values[2], values[3], op_sel=(0, 0, 1))


def _pack_fp4(s: Selector, op: Op, values: list[Operand]) -> None:
    """Four conversions write the bytes of one register, each keeping what others wrote; the scale is one."""
    row = s.rows.named(roles.PACK_F4)
    dst = s.result(op)
    s.copy(dst, 0)
    for i in range(4):
        part = {"op_sel": (0, 0, i & 1, i >> 1)} if i else {}
        s.vop3(row, dst, values[2 * i], values[2 * i + 1], 1.0, **part)


def _unpacked_fp4(s: Selector, word: Any, byte: int) -> Ref:
    """Both numbers of one byte, once per word and byte."""
    row, held = s.rows.named(roles.UNPACK_F4), s.to_vector(word)

    def make() -> Ref:
        pair = s.new("v", 2)
        part = {"op_sel": (byte & 1, byte >> 1, 0)} if byte else {}
        s.vop3(row, pair, held, 1.0, **part)
        return pair

    made = s.remember(("fp4", held.reg.id, held.start, byte), make)
    assert isinstance(made, Ref)
    return made


@lower("unpack")
def unpack(s: Selector, op: Op) -> None:
    dtype: DType = op.attrs["dtype"]
    index = op.attrs["index"]
    r = s.rows
    name = dtype.name
    word = s.operand(op.args[0])
    if dtype.bits == 32:
        s.bind(op, word)
    elif name == "f16":
        if index == 0:
            s.emit(r.v_cvt_f32_f16, s.result(op), word)
        else:
            upper: dict[str, Any] = {"dst_sel": "DWORD", "dst_unused": "UNUSED_PAD", "src0_sel": "WORD_1"}
            s.emit(r.v_cvt_f32_f16_sdwa, s.result(op), s.to_vector(word), **upper)
    elif name == "bf16":
        if index == 0:
            s.valu(r.v_lshlrev_b32, s.result(op), 16, word)
        else:
            s.valu(r.v_and_b32, s.result(op), 0xFFFF0000, s.to_vector(word))
    elif name in _FP8:
        row = r.named(roles.UNPACK_F8[_check_fp8(s, op, dtype)])
        s.emit(row, s.result(op), s.to_vector(word), src0_sel=f"BYTE_{index}")
    elif name == "f4e2m1":
        s.bind(op, _unpacked_fp4(s, word, index // 2).part(index % 2))
    elif dtype.is_int:
        bits = dtype.bits
        if (index + 1) * bits == 32:
            row = r.v_ashrrev_i32 if dtype.is_signed and dtype.kind == "int" else r.v_lshrrev_b32
            s.valu(row, s.result(op), 32 - bits, s.to_vector(word))
        else:
            row = r.v_bfe_i32 if dtype.kind == "int" else r.v_bfe_u32
            s.vop3(row, s.result(op), word, index * bits, bits)
    else:
        raise s.unsupported(op, f"{dtype} numbers cannot be unpacked")


@lower("widen")
def widen(s: Selector, op: Op) -> None:
    """Two small integers of a word become two halves, exactly. An integer n is put where the mantissa of a power of two
    ends, which is that power plus n; the power is taken off again. A sign bit that is flipped adds half of the range.

    Two 4-bit numbers lie in one byte: it is put into both halves, and the upper one counts in sixteenths of 2^10.
    Floats of 4 bits are looked up. What everybody subtracts, if it is small integers, is made larger by these powers
    (`raised_pairs`), and they stay. A constant that everybody adds (a zero point, say) is added to what takes the
    powers off: the number itself, exact, and this one are rounded once, as they would be.
    """
    source, index, r = op.attrs["source"], op.attrs["index"], s.rows
    word = s.to_vector(s.operand(op.args[0]))
    if source.is_float:
        upper, lower = _looked_up(s, word, index // 4, op.attrs["dtype"])
        s.vop3(r.v_perm_b32, s.result(op), upper, lower, 0x07030602 if index % 4 else 0x05010400)
        return
    half = 0
    if source.is_signed:
        half = 1 << source.bits - 1
        key = "widen", word.reg.id, word.start, source.bits
        flipped = s.remember(key, lambda: _flipped(s, word, half * (0xFFFFFFFF // ((1 << source.bits) - 1))))
        assert isinstance(flipped, Ref)
        word = flipped
    if source.bits == 4:
        byte = index // 2
        both = s.temp(r.v_perm_b32, word, word, 0x0C000C00 | byte << 16 | byte)
        held, powers = s.temp(r.v_and_or_b32, both, 0x00F0000F, 0x54006400), (1024, 64)
    else:
        held, powers = s.temp(r.v_perm_b32, 0x64646464, word, 0x04000400 | index + 1 << 16 | index), (1024, 1024)
    if stays_raised(s, op):
        s.bind(op, held)
        return
    more = added_whole(s, op)
    low, high = (int(np.float16(more - power - half).view(np.uint16)) for power in powers)
    s.vop3(r.v_pk_add_f16, s.result(op), held, high << 16 | low)


def stays_raised(s: Selector, op: Op) -> bool:
    """Whether what is subtracted from a `widen`'s numbers takes the powers of two off, too."""
    taken = s.raised.get(op.results[0].id)
    source = op.attrs["source"]
    return taken is not None and fits(op, taken, 1024 + (1 << source.bits - 1 if source.is_signed else 0))


def raised_word(s: Selector, made: Op) -> Operand:
    """What everybody subtracts from the numbers of a `widen`, and the powers of two that these are made with."""
    source, taken = made.attrs["source"], s.raised[made.results[0].id]
    half = 1 << source.bits - 1 if source.is_signed else 0
    powers = (1024, 64 if source.bits == 4 else 1024)
    low, high = (int(np.float16(power + half).view(np.uint16)) for power in powers)
    word, constant = s.to_vector(s.operand(taken)), high << 16 | low
    return s.remember(("raised", taken.id, constant), lambda: s.temp(s.rows.v_pk_add_f16, word, constant))


def added_whole(s: Selector, op: Op) -> int:
    """What is added to a `widen`'s numbers as they are made; 0 where halves do not hold it less the powers of two."""
    source, more = op.attrs["source"], s.added.get(op.results[0].id, 0)
    half = 1 << source.bits - 1 if source.is_signed else 0
    held = all(float(np.float16(more - power - half)) == more - power - half for power in (1024, 64))
    return more if held and not source.is_float else 0


def _looked_up(s: Selector, word: Ref, four: int, dtype: DType) -> tuple[Ref, Operand]:
    """The upper and the lower bytes of four halves, those of four neighbouring floats of 4 bits, each by a table of
    eight bytes: a code without its sign is the number of a byte. Lower ones are zeros where all numbers' are."""
    r = s.rows
    halves = np.arange(8, dtype=np.uint8).view(dt.f4e2m1.numpy).astype(dtype.numpy).view(np.uint8).reshape(8, 2)

    def looked_up(byte: int) -> Operand:
        first, last = (int.from_bytes(halves[i : i + 4, byte].tobytes(), "little") for i in (0, 4))
        return s.temp(r.v_perm_b32, s.to_vector(last), first, sizes) if first or last else 0

    own = word.reg.id, word.start
    order = 0x07030602 if four else 0x05010400
    shifted = s.remember(("nibbles", *own), lambda: s.temp(r.v_lshrrev_b32, 4, word))
    codes = s.remember(("codes", *own, four), lambda: s.temp(r.v_perm_b32, shifted, word, order))
    sizes = s.remember(("sizes", *own, four), lambda: s.temp(r.v_and_b32, s.to_vector(0x07070707), codes))
    signs = s.remember(("signs", *own, four), lambda: s.temp(r.v_lshlrev_b32, 4, codes))
    key = *own, four, dtype.name
    upper = s.remember(("upper", *key), lambda: s.temp(r.v_and_or_b32, signs, 0x80808080, looked_up(1)))
    lower = s.remember(("lower", *key), lambda: looked_up(0))
    assert isinstance(upper, Ref)
    return upper, lower


def _flipped(s: Selector, word: Ref, signs: int) -> Ref:
    """A word with its numbers' sign bits flipped, once per word."""
    ref = s.new("v")
    s.valu(s.rows.v_xor_b32, ref, signs, word)
    return ref


@lower("permute_bytes")
def permute_bytes(s: Selector, op: Op) -> None:
    high, low = (s.operand(a) for a in op.args)
    s.vop3(s.rows.v_perm_b32, s.result(op), s.to_vector(high), s.to_vector(low), op.attrs["selector"])


# --------------------------------------------------------------------------------------------------------------- tuples


@lower("vec")
def vec(s: Selector, op: Op) -> None:
    """A tuple from parts: copies that the allocator removes, or the tuple itself when the parts are its registers in
    order."""
    parts: list[Operand] = []
    for arg in op.args:
        if arg.const is not None:
            parts += s.words(arg)
        else:
            parts.append(s.operand(arg))
    first = parts[0]
    if first.__class__ is Ref and first.reg.cls == "v":
        end = first.start
        for part in parts:
            if part.__class__ is not Ref or part.reg is not first.reg or part.start != end:
                break
            end += part.n
        else:
            if end - first.start == 1 or first.start % 2 == 0:
                s.bind(op, Ref(first.reg, first.start, end - first.start))
                return
    dst = s.result(op)
    at = 0
    for part in parts:
        width = part.n if part.__class__ is Ref else 1
        s.copy(dst.part(at, width), part)
        at += width


@lower("slice")
def slice_(s: Selector, op: Op) -> None:
    a = op.args[0]
    width = a.type.element.words
    start, count = op.attrs["start"] * width, op.attrs["count"] * width
    if a.const is not None:
        words = s.words(a)[start : start + count]
        if count == 1:
            s.bind(op, words[0])
            return
    ref = s.vector(a)
    part = ref.part(start, count)
    if count > 1 and part.start % 2:
        # an odd start: no instruction takes it as a tuple
        even = s.new("v", count, op.results[0].name)
        s.copy(even, part)
        part = even
    s.bind(op, part)


# ----------------------------------------------------------------------------------------------------------- cross-lane

@lower("shuffle_xor")
def shuffle_xor(s: Selector, op: Op) -> None:
    words = s.words(op.args[0])
    dst = s.result(op)
    for k, word in enumerate(words):
        exchange(s, dst.part(k), s.to_vector(word), op.attrs["mask"], dpp_pattern(op))


def exchange(s: Selector, dst: Ref, x: Ref, mask: int, pattern: str | None) -> None:
    """dst = x of the lane ^ mask, by a DPP pattern if there is one."""
    r = s.rows
    if pattern is not None:
        s.emit(r.v_mov_b32_dpp, dst, x, dpp=pattern, row_mask=15, bank_mask=15)
    elif mask < 32:
        s.emit(r.ds_swizzle_b32, dst, x, offset=mask << 10 | 0x1F)
    elif mask == 32 and r.swaps_halves:
        # both halves of a copy: low lanes of x meet its high lanes, and the half that came over is the answer
        other = s.new("v")
        s.copy(dst, x)
        s.copy(other, x)
        s.emit(r.v_permlane32_swap_b32, dst, other)
        low = s.remember("low lanes", lambda: s.compare(r.v_cmp_gt_u32, 32, s.lane()))
        picked = s.new("v")
        s.pick(picked, low, other, dst)
        s.copy(dst, picked)
    else:
        s.emit(r.ds_bpermute_b32, dst, _bpermute_address(s, mask), x)


def _bpermute_address(s: Selector, mask: int) -> Ref:
    def make() -> Ref:
        bytes_ = s.new("v")
        s.valu(s.rows.v_lshlrev_b32, bytes_, 2, s.lane())
        out = s.new("v")
        s.valu(s.rows.v_xor_b32, out, 4 * mask, bytes_)
        return out

    return s.remember(("bpermute", mask), make)


@lower("swap_lanes")
def swap_lanes(s: Selector, op: Op) -> None:
    """One instruction per pair of registers, in place."""
    row = s.rows.named(roles.LANE_SWAPS[op.attrs["lane"]])
    dst = s.result(op)
    s.copy(dst, s.vector(op.args[0]))
    for i in range(dst.n):
        if not i >> op.attrs["register"] & 1:
            s.emit(row, dst.part(i), dst.part(i | 1 << op.attrs["register"]))


@lower("shuffle_index")
def shuffle_index(s: Selector, op: Op) -> None:
    address = s.to_vector(s.operand(op.args[1]))
    if not op.attrs.get("bytes"):
        number, address = address, s.new("v")
        s.valu(s.rows.v_lshlrev_b32, address, 2, number)
    words = s.words(op.args[0])
    dst = s.result(op)
    for k, word in enumerate(words):
        s.emit(s.rows.ds_bpermute_b32, dst.part(k), address, s.to_vector(word))


@lower("readfirst")
def readfirst(s: Selector, op: Op) -> None:
    a = op.args[0]
    if a.type.kind == "pred":
        raise s.unsupported(op, "readfirst of a predicate")
    held = s.operand(a)
    if held.__class__ is not Ref or held.reg.cls == "s":
        s.bind(op, held)
        return
    dst = s.result(op, "s")
    s.copy(dst, held)
