"""Selection of conversions: casts, packing and unpacking of small numbers, arithmetic on pairs of halves.

16-bit floats are never in registers of their own except between two conversions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from wavedsl.codegen.ptx.isa import parse_target
from wavedsl.codegen.ptx.isa_convert import nan_as_int
from wavedsl.codegen.ptx.machine import Imm, Operand, Reg
from wavedsl.codegen.ptx.select_numbers import Select, extract, kind_of
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.half_pairs import added_to
from wavedsl.ir.kernel.kernel_ir import Op, Value
from wavedsl.ir.kernel.raised_pairs import fits

if TYPE_CHECKING:
    from wavedsl.codegen.ptx.select import Selector


def _cvt(s: Selector, op: Op) -> None:
    """int→float rounds to nearest, float→int truncates and saturates (the hardware's `.rzi`), int→int wraps or
    extends. NaN becomes 0: where the instruction makes something else of it, it is replaced before."""
    from_, to = op.args[0].type.kind, op.result.type.kind
    sign = "u" if op.attrs.get("unsigned") else "s"
    a_type = from_ if from_[0] == "f" else sign + from_[1:]
    d_type = to if to[0] == "f" else sign + to[1:]
    kind = kind_of(op.result.type)
    if from_ == to:
        s.values[op.result.id] = s.of(op.args[0])
        return
    if to[0] == "f" and (from_[0] == "i" or (from_, to) == ("f64", "f32")):
        words: tuple[str, ...] = ("cvt", "rn", d_type, a_type)
    elif from_[0] == "f" and to[0] == "i":
        words = ("cvt", "rzi", d_type, a_type)
    else:
        words = ("cvt", d_type, a_type)
    given = s.regs(op.args[0])
    if words[1] == "rzi" and nan_as_int(d_type, a_type):
        given = tuple(_number(s, r, from_) for r in given)
    s.values[op.result.id] = tuple(s.set(kind, words, r) for r in given)


def _number(s: Selector, r: Reg, kind: str) -> Reg:
    """`r`, or 0 for NaN."""
    is_number = s.set("pred", ("setp", "num", kind), r, r)
    return s.set("b32" if kind == "f32" else "b64", ("selp", kind), r, Imm(0.0, kind), is_number)


def _unsupported(s: Selector, op: Op, dtype: DType) -> CompileError:
    if dtype in (dt.f8e4m3, dt.f8e5m2):
        return CompileError(
            f"{dtype} needs sm_89 or later, the target is {s.target}", op.loc, "use f16 or bf16 on this chip"
        )
    return CompileError(
        f"{s.target} has no conversion for {dtype}", op.loc, "f16, bf16, f8e4m3, f8e5m2, i8, i16 and i4 are there"
    )


def _pack(s: Selector, op: Op) -> None:
    """Numbers as one word: by the chip's conversions to pairs, or by byte permutations and insertions."""
    dtype: DType = op.attrs["dtype"]
    kind = kind_of(op.args[0].type)
    v = [s.reg(c, kind) for a in op.args for c in s.of(a)]
    if dtype.bits == 32:
        s.values[op.result.id] = (v[0],)
        return
    if len(v) * dtype.bits != 32:
        raise CompileError(f"{len(v)} numbers of {dtype} do not fill a word", op.loc)
    if dtype in (dt.f16, dt.bf16):
        out = s.set("b32", ("cvt", "rn", f"{dtype.name}x2", "f32"), v[1], v[0])
    elif dtype in (dt.f8e4m3, dt.f8e5m2):
        if parse_target(s.target).number < 89:
            raise _unsupported(s, op, dtype)
        words = ("cvt", "rn", "satfinite", f"{dtype.name[2:]}x2", "f32")
        halves = tuple(s.set("b16", words, v[i + 1], v[i]) for i in (0, 2))
        out = s.set("b32", ("mov", "b32"), halves)
    elif dtype.bits == 16 and dtype.is_int:
        out = s.set("b32", ("prmt", "b32"), v[0], v[1], Imm(0x5410))
    elif dtype.bits == 8 and dtype.is_int:
        low = s.set("b32", ("prmt", "b32"), v[0], v[1], Imm(0x0040))
        high = s.set("b32", ("prmt", "b32"), v[2], v[3], Imm(0x0040))
        out = s.set("b32", ("prmt", "b32"), low, high, Imm(0x5410))
    elif dtype.bits == 4 and dtype.is_int:
        # Each insertion overwrites everything the one below left above its field.
        out = v[0]
        for i in range(1, 8):
            width = 4 if i < 7 else 32 - 4 * i
            out = s.set("b32", ("bfi", "b32"), v[i], out, Imm(4 * i), Imm(width))
    else:
        raise _unsupported(s, op, dtype)
    s.values[op.result.id] = (out,)


def _halves(s: Selector, word: Reg) -> tuple[Reg, Reg]:
    """The two 16-bit registers of a word, once per word."""

    def build() -> tuple[Reg, Reg]:
        pair = s.new("b16"), s.new("b16")
        s.emit(("mov", "b32"), pair, word)
        return pair

    return s.hoisted(("halves", word.id), word.level, build)


def pair_of_8(s: Selector, word: Reg, dtype: DType, pair: int) -> Reg:
    """The first or last two 8-bit floats of a word as f16, exactly, once per word."""
    half = _halves(s, word)[pair]
    words = ("cvt", "rn", "f16x2", f"{dtype.name[2:]}x2")
    return s.hoisted(("fp8", half.id, dtype.name), half.level, lambda: s.set("b32", words, half))


def _unpack(s: Selector, op: Op) -> None:
    """One number of a packed word."""
    dtype: DType = op.attrs["dtype"]
    index: int = op.attrs["index"]
    word = s.regs(op.args[0])[0]
    if dtype.bits == 32:
        out = word
    elif dtype is dt.f16:
        out = s.set("b32", ("cvt", "f32", "f16"), _halves(s, word)[index])
    elif dtype is dt.bf16:
        if index:
            out = s.set("b32", ("and", "b32"), word, Imm(0xFFFF0000))
        else:
            out = s.set("b32", ("shl", "b32"), word, Imm(16))
    elif dtype in (dt.f8e4m3, dt.f8e5m2):
        if parse_target(s.target).number < 89:
            raise _unsupported(s, op, dtype)
        pair = pair_of_8(s, word, dtype, index // 2)
        out = s.set("b32", ("cvt", "f32", "f16"), _halves(s, pair)[index % 2])
    elif dtype.is_int or dtype.kind == "bool":
        bits = 8 if dtype.kind == "bool" else dtype.bits
        out = extract(s, word, index * bits, bits, dtype.is_signed)
    else:
        raise _unsupported(s, op, dtype)
    s.values[op.result.id] = (out,)


PAIRS = {"fadd": ("add", "rn"), "fsub": ("sub", "rn"), "fmul": ("mul", "rn"), "fmin": ("min",), "fmax": ("max",)}
"""Operation on both halves of a word → opcode and rounding; the type is appended."""


def _pair(s: Selector, op: Op) -> None:
    made = next((a for a in op.args if a.op is not None and a.op.name == "widen" and _added(s, a.op)), None)
    if made is not None:  # the constant has been added where the number was made
        s.values[op.result.id] = s.of(made)
        return
    words = (*PAIRS[op.attrs["operation"]], f"{op.attrs['dtype'].name}x2")
    operands = [s.reg(s.one(a)) for a in op.args]
    first = op.args[0].op
    if first is not None and first.name == "widen" and _stays_raised(s, first):
        operands[1] = _raised_word(s, first, operands[1])
    s.values[op.result.id] = (s.set("b32", words, *operands),)


def _added(s: Selector, op: Op) -> int:
    """An integer that everything adds that takes a `widen`: it is added to what takes the power of two off. 0 where
    there is none, or the dtype does not hold that sum. The number itself, exact, and this one are rounded once, as it
    would be."""
    source, dtype = op.attrs["source"], op.attrs["dtype"]
    if source.is_float or (source.bits == 8 and dtype is dt.bf16):
        return 0
    constant = added_to(op.result, s.users.get(op.result.id, ()))
    taken_off = constant - _above(source, dtype)
    return constant if float(np.array(taken_off, dtype.numpy)) == taken_off else 0


def _stays_raised(s: Selector, op: Op) -> bool:
    """Whether what is subtracted from a `widen`'s numbers takes the power of two off, too."""
    taken = s.raised.get(op.result.id)
    source, dtype = op.attrs["source"], op.attrs["dtype"]
    if taken is None or (source.bits == 8 and dtype is dt.bf16):
        return False
    return fits(op, taken, _above(source, dtype))


def _raised_word(s: Selector, made: Op, taken: Reg) -> Reg:
    """What everybody subtracts from the numbers of a `widen`, and the power of two that these are made with."""
    dtype = made.attrs["dtype"]
    above = int(np.array(_above(made.attrs["source"], dtype), dtype.numpy).view(np.uint16)) * 0x10001

    def build() -> Reg:
        return s.set("b32", ("add", "rn", f"{dtype.name}x2"), taken, s.reg(Imm(above)))

    found: Reg = s.hoisted(("raised", taken.id, above), taken.level, build)
    return found


def _above(source: DType, dtype: DType) -> int:
    """What an integer of `source` has more where it is made: a power of two, and half of its range if it has signs."""
    return (1024 if dtype is dt.f16 else 128) + (1 << source.bits - 1 if source.is_signed else 0)


def _zero_above_byte(v: Value) -> bool:
    """Whether only the lowest byte of a word can hold bits."""
    return v.op is not None and v.op.name == "load.shared" and v.op.attrs["bytes"] == 1


def _widen(s: Selector, op: Op) -> None:
    """Two small numbers of a word become two halves. An integer n is put where the mantissa of a power of two ends,
    which is that power plus n; the power is taken off again. A sign bit that is flipped adds half of the range.

    Two 4-bit numbers lie in one byte. Integers: the word that is shifted by four has the upper one where it is wanted,
    or a byte alone is multiplied by 2^12 + 1. Floats of 4 bits: a multiplication by two powers of two brings the signs
    where halves have theirs, another the rest, and a power of two corrects the exponent; denormals and all, exactly.
    bf16 has no room for 8 bits: the sign is the lowest bit of the exponent of 128, so the seven others are added to
    128, and 128 or 256 is taken off.
    """
    source, dtype, index = op.attrs["source"], op.attrs["dtype"], op.attrs["index"]
    word = s.regs(op.args[0])[0]
    if source.is_float and source.bits == 8:
        words = ("cvt", "rn", "f16x2", f"{source.name[2:]}x2")
        s.values[op.result.id] = (s.set("b32", words, _halves(s, word)[index // 2]),)
        return

    def both(number: float) -> int:
        """A number twice, as a word."""
        return int(np.array(number, dtype.numpy).view(np.uint16)) * 0x10001

    def placed(x: Reg, keep: int, flip: int) -> Reg:
        """x & keep ^ flip; an instruction takes one constant, the other is in a register."""
        if keep == 0xFF:
            return s.set("b32", ("xor", "b32"), x, Imm(flip))
        return s.set("b32", ("lop3", "b32"), x, Imm(keep * 0x10001), s.reg(Imm(flip)), Imm(0x6A))

    def byte() -> Reg:
        """The byte of a pair of 4-bit numbers, alone in its word."""
        if _zero_above_byte(op.args[0]):
            return word
        return s.set("b32", ("bfe", "u32"), word, Imm(index // 2 * 8), Imm(8))

    def times(x: Reg, *powers: int) -> Reg:
        return s.set("b32", ("mul", "lo", "s32"), x, Imm(sum(1 << p for p in powers)))

    if source.is_float:
        mantissa = 7 if dtype is dt.bf16 else 10
        rest, x = mantissa - source.mantissa, byte()
        size, sign = times(x, rest, rest + 12), times(x, 12, 24)
        sized = s.set("b32", ("and", "b32"), size, Imm((7 << rest) * 0x10001))
        # sign & 0x8000 | sized, in both halves
        code = s.set("b32", ("lop3", "b32"), sign, Imm(0x80008000), sized, Imm(0xEA))
        bias = 127 if dtype is dt.bf16 else 15
        factor = s.reg(Imm(both(2.0 ** (bias - 1))))
        if dtype is dt.f16 or parse_target(s.target).number >= 90:
            made = s.set("b32", ("mul", "rn", f"{dtype.name}x2"), code, factor)
        else:  # less a zero, which leaves -0 what it is
            made = s.set("b32", ("fma", "rn", f"{dtype.name}x2"), code, factor, s.reg(Imm(both(-0.0))))
        s.values[op.result.id] = (made,)
        return
    base = 1024 if dtype is dt.f16 else 128
    half = 1 << source.bits - 1 if source.is_signed else 0
    off: Operand = Imm(both(_added(s, op) - _above(source, dtype)))
    if source.bits == 4 and _zero_above_byte(op.args[0]):
        made = placed(times(word, 0, 12), 0xF, both(base) ^ half * 0x10001)
    elif source.bits == 4:
        upper = s.hoisted(("nibbles", word.id), word.level, lambda: s.set("b32", ("shr", "u32"), word, Imm(4)))
        spread = s.set("b32", ("prmt", "b32"), word, upper, Imm(index // 2 * 0x1111 + 0x4400))
        made = placed(spread, 0xF, both(base) ^ half * 0x10001)
    else:
        spread = s.set("b32", ("prmt", "b32"), word, s.reg(Imm(0)), Imm(0x4040 | (index + 1) << 8 | index))
        if dtype is dt.f16:
            made = placed(spread, 0xFF, both(base) ^ half * 0x10001)
        else:
            made, off = placed(spread, 0x7F, both(base)), placed(spread, 0x80, both(-base))
    if _stays_raised(s, op):
        s.values[op.result.id] = (made,)
        return
    out = s.set("b32", ("add", "rn", f"{dtype.name}x2"), made, s.reg(off))
    s.values[op.result.id] = (out,)


def _round_tf32(s: Selector, op: Op) -> None:
    """`cvt.rna` leaves the low 13 bits undefined by the manual: the word is only good for the matrix unit, which
    ignores them, so they are cleared here to keep the op's promise."""
    out = []
    for r in s.regs(op.args[0]):
        rounded = s.set("b32", ("cvt", "rna", "tf32", "f32"), r)
        out.append(rounded if _only_matrix(s, op.result) else s.set("b32", ("and", "b32"), rounded, Imm(0xFFFFE000)))
    s.values[op.result.id] = tuple(out)


def _only_matrix(s: Selector, v: Value) -> bool:
    """Whether every user of a value, through tuples and bit casts, is a matrix instruction."""
    return all(
        user.name in ("mma", "matrix.start")
        or (user.name in ("vec", "slice", "bitcast") and _only_matrix(s, user.result))
        for user in s.users.get(v.id, ())
    )


SELECT: dict[str, Select] = {
    "cvt": _cvt,
    "pack": _pack,
    "unpack": _unpack,
    "round_tf32": _round_tf32,
    "widen": _widen,
    "pair": _pair,
}
