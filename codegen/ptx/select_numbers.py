"""Selection of arithmetic, conversions, packing and lane exchange (see `select`).

Ops on tuples work register by register. Rounding is always named: `.rn` on float add, sub, mul and fma. Approximate
functions but two keep denormals (no `.ftz`). 16-bit floats are never in registers of their own except between two
conversions.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from wavedsl.codegen.ptx.isa import parse_target
from wavedsl.codegen.ptx.isa_convert import nan_as_int
from wavedsl.codegen.ptx.machine import Imm, Operand, Reg
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.kernel_ir import Op, Type, Value

if TYPE_CHECKING:
    from wavedsl.codegen.ptx.select import Selector


Select = Callable[["Selector", Op], None]
FULL_WARP = Imm(0xFFFFFFFF)


def kind_of(type_: Type) -> str:
    """The register class of one element."""
    return {"pred": "pred", "i64": "b64", "f64": "b64", "b64": "b64", "buffer": "b64"}.get(type_.kind, "b32")


# ------------------------------------------------------------------------------------------------------- elementwise

_INT: dict[str, tuple[str, ...]] = {
    "add": ("add", "s"), "sub": ("sub", "s"), "mul": ("mul", "lo", "s"), "and": ("and", "b"), "or": ("or", "b"),
    "xor": ("xor", "b"), "shl": ("shl", "b"), "lshr": ("shr", "u"), "ashr": ("shr", "s"), "min_s": ("min", "s"),
    "max_s": ("max", "s"), "min_u": ("min", "u"), "max_u": ("max", "u"), "udiv": ("div", "u"), "urem": ("rem", "u"),
}  # fmt: skip
"""Integer op → opcode, modifiers and signedness letter; the width is appended."""

_FLOAT: dict[str, tuple[str, ...]] = {
    "fadd": ("add", "rn"), "fsub": ("sub", "rn"), "fmul": ("mul", "rn"), "ffma": ("fma", "rn"), "fdiv": ("div", "rn"),
    "fmin": ("min",), "fmax": ("max",), "fneg": ("neg",), "fabs": ("abs",), "sqrt": ("sqrt", "rn"),
}  # fmt: skip
"""Float op → opcode and rounding, the same for both widths; the type is appended."""

_APPROX = {"exp2": "ex2", "log2": "lg2", "rcp": "rcp", "rsqrt": "rsqrt", "sqrt_approx": "sqrt"}
_FLUSHED = ("exp2", "rcp")
"""Approximations that take denormals for zeros, as `ir/numerics.py` allows: one machine instruction each. Without .ftz
ptxas scales operand and result for them: 4 instructions for `ex2`, a softmax's most frequent, 8 for `rcp`."""
_ROUND = {"ffloor": "rmi", "fceil": "rpi", "frint": "rni", "ftrunc": "rzi"}


def _lanewise(s: Selector, op: Op, words: tuple[str, ...]) -> None:
    """One instruction per register of the (equally long) operands."""
    kind = kind_of(op.result.type)
    s.values[op.result.id] = tuple(s.set(kind, words, *args) for args in zip(*[s.of(v) for v in op.args]))


def _int(name: str) -> Select:
    *words, sign = _INT[name]
    by_width = {k: (*words, sign + k[1:]) for k in ("i32", "i64")}

    def select_int(s: Selector, op: Op) -> None:
        if name == "mul" and op.result.type.kind == "i32" and _feeds_add(s, op):
            s.values[op.result.id] = ()
            return
        if name == "add":
            for a, b in (op.args, op.args[::-1]):
                if a.op is not None and a.op.name in ("mul", "mul_wide_u") and a.id in s.values and not s.values[a.id]:
                    wide = a.op.name == "mul_wide_u"
                    x, y = (s.one(v) for v in a.op.args)
                    row = ("mad", "wide", "u32") if wide else ("mad", "lo", "s32")
                    s.values[op.result.id] = (s.set("b64" if wide else "b32", row, x, y, s.one(b)),)
                    return
        _lanewise(s, op, by_width[op.result.type.kind])

    return select_int


def _feeds_add(s: Selector, op: Op) -> bool:
    """Whether a product's only use is as one term of a sum in the same region; the sum then becomes a multiply-add."""
    users = s.users.get(op.result.id, ())
    if (
        len(users) != 1
        or op.result.type.n != 1
        or users[0].name != "add"
        or s.user_region[op.result.id] is not s.current
    ):
        return False
    a, b = users[0].args
    other = b if a is op.result else a
    return a is not b and (other.id not in s.values or bool(s.values[other.id]))


def _mul_wide(s: Selector, op: Op) -> None:
    if _feeds_add(s, op):
        s.values[op.result.id] = ()
        return
    s.values[op.result.id] = (s.set("b64", ("mul", "wide", "u32"), *[s.one(v) for v in op.args]),)


def _float(name: str) -> Select:
    words = _FLOAT[name]

    def select_float(s: Selector, op: Op) -> None:
        _lanewise(s, op, (*words, op.result.type.kind))

    return select_float


def _approx(name: str) -> Select:
    opcode = _APPROX[name]

    def select_approx(s: Selector, op: Op) -> None:
        if op.result.type.kind == "f32":
            _lanewise(s, op, (opcode, "approx", *(("ftz",) if name in _FLUSHED else ()), "f32"))
        elif name == "rcp":
            _lanewise(s, op, ("rcp", "rn", "f64"))
        elif name == "rsqrt":
            # The chip's own approximation has 22 bits; two correctly rounded steps are within 1 ulp.
            roots = [s.set("b64", ("sqrt", "rn", "f64"), c) for c in s.of(op.args[0])]
            s.values[op.result.id] = tuple(s.set("b64", ("rcp", "rn", "f64"), r) for r in roots)
        else:
            raise CompileError(f"{name} of f64 has no instruction on {s.target}", op.loc, "cast to f32 first")

    return select_approx


def _round_to_int(name: str) -> Select:
    def select_round(s: Selector, op: Op) -> None:
        t = op.result.type.kind
        _lanewise(s, op, ("cvt", _ROUND[name], t, t))

    return select_round


_TWO_PI_1 = float(np.float32(2 * math.pi))
_TWO_PI_2 = float(np.float32(2 * math.pi - _TWO_PI_1))


def _trig(name: str) -> Select:
    """The chip's sine is good in [-pi, pi]: subtract the nearest multiple of 2 pi, in two pieces, first."""

    def select_trig(s: Selector, op: Op) -> None:
        if op.result.type.kind != "f32":
            raise CompileError(f"{name} of f64 has no instruction on {s.target}", op.loc, "cast to f32 first")
        out = []
        for a in s.of(op.args[0]):
            turns = s.set("b32", ("mul", "rn", "f32"), a, Imm(1 / (2 * math.pi), "f32"))
            whole = s.set("b32", ("cvt", "rni", "f32", "f32"), turns)
            rest = s.set("b32", ("fma", "rn", "f32"), whole, Imm(-_TWO_PI_1, "f32"), a)
            rest = s.set("b32", ("fma", "rn", "f32"), whole, Imm(-_TWO_PI_2, "f32"), rest)
            out.append(s.set("b32", (name, "approx", "f32"), rest))
        s.values[op.result.id] = tuple(out)

    return select_trig


# --------------------------------------------------------------------------------------------- comparisons, predicates

_SIGNED = {"eq": ("eq", "s"), "ne": ("ne", "s")} | {f"{u}{c}": (c, u) for u in "su" for c in ("lt", "le", "gt", "ge")}


def _cmp(s: Selector, op: Op) -> None:
    how, sign = _SIGNED[op.attrs["how"]]
    words = ("setp", how, sign + op.args[0].type.kind[1:])
    s.values[op.result.id] = (s.set("pred", words, *[s.one(v) for v in op.args]),)


def _fcmp(s: Selector, op: Op) -> None:
    how = op.attrs["how"]
    words = ("setp", "neu" if how == "ne" else how, op.args[0].type.kind)
    s.values[op.result.id] = (s.set("pred", words, *[s.one(v) for v in op.args]),)


def _pred(name: str) -> Select:
    def select_pred(s: Selector, op: Op) -> None:
        a, b = (s.one(v) for v in op.args)
        if type(b) is Imm:
            a, b = b, a
        if type(a) is Imm and name != "pxor":
            absorbs = bool(a.value) == (name == "por")
            s.values[op.result.id] = (a if absorbs else b,)
            return
        out = s.set("pred", (name[1:], "pred"), s.reg(a, "pred"), s.reg(b, "pred"))
        s.values[op.result.id] = (out,)

    return select_pred


def _pnot(s: Selector, op: Op) -> None:
    a = s.one(op.args[0])
    s.values[op.result.id] = (Imm(int(not a.value)) if type(a) is Imm else s.set("pred", ("not", "pred"), a),)


def _select(s: Selector, op: Op) -> None:
    c, a, b = op.args
    condition = s.one(c)
    if type(condition) is Imm:
        s.values[op.result.id] = s.of(a if condition.value else b)
        return
    kind = kind_of(op.result.type)
    if kind == "pred":
        yes = s.set("pred", ("and", "pred"), condition, s.regs(a)[0])
        inverse = s.set("pred", ("not", "pred"), condition)
        no = s.set("pred", ("and", "pred"), inverse, s.regs(b)[0])
        s.values[op.result.id] = (s.set("pred", ("or", "pred"), yes, no),)
        return
    if op.result.type.kind == "f64" and s.tall_products:
        s.values[op.result.id] = tuple(_select_64(s, condition, x, y) for x, y in zip(s.of(a), s.of(b)))
        return
    type_ = {"f32": "f32", "f64": "f64"}.get(op.result.type.kind, kind)
    s.values[op.result.id] = tuple(s.set(kind, ("selp", type_), x, y, condition) for x, y in zip(s.of(a), s.of(b)))


def _select_64(s: Selector, condition: Reg, x: Operand, y: Operand) -> Operand:
    """`x` or `y`, one of which may be zero and the other C of a product of f64 with 16 rows: then by a mask.

    Of such a C, when all of it is selected with zero by one predicate of the warp, ptxas (13.0 and 13.5) makes a
    predicate of DMMA, and brings only the first two elements into its registers: the others are copies or words of the
    second. It knows a mask of 32 bits for a choice, one of 64 bits not (`runtime/emulator/ptx/matrix.py` reports such
    choices). Words of f64 are chosen by lane alone (`ir/lower/exchange.py`), and lanes' predicates stay choices.
    """
    zeros = tuple(type(v) is Imm and struct.pack("<d", v.value) == bytes(8) for v in (x, y))
    if all(zeros):
        return x
    if not any(zeros):
        return s.set("b64", ("selp", "f64"), x, y, condition)
    masks = (Imm(0), Imm(-1)) if zeros[0] else (Imm(-1), Imm(0))
    mask = s.hoisted(
        ("mask", condition.id, zeros[0]), condition.level, lambda: s.set("b64", ("selp", "b64"), *masks, condition)
    )
    return s.set("b64", ("and", "b64"), s.reg(y if zeros[0] else x, "b64"), mask)


# ------------------------------------------------------------------------------------------------------- widths, bits


def _zext(s: Selector, op: Op) -> None:
    a = s.one(op.args[0])
    s.values[op.result.id] = (Imm(int(a.value) & 0xFFFFFFFF) if type(a) is Imm else s.zext(a),)


def _sext(s: Selector, op: Op) -> None:
    a = s.one(op.args[0])
    if type(a) is Imm:
        value = int(a.value) & 0xFFFFFFFF
        s.values[op.result.id] = (Imm(value - ((value >> 31) << 32)),)
    else:
        s.values[op.result.id] = (s.set("b64", ("cvt", "s64", "s32"), a),)


def _trunc(s: Selector, op: Op) -> None:
    a = s.one(op.args[0])
    s.values[op.result.id] = (a if type(a) is Imm else s.set("b32", ("cvt", "u32", "u64"), a),)


def _mulhi(s: Selector, op: Op) -> None:
    s.values[op.result.id] = (s.set("b32", ("mul", "hi", "u32"), *[s.one(v) for v in op.args]),)


_BITS = {"popcount": ("popc",), "clz": ("clz",), "ctz": ("brev", "clz"), "brev": ("brev",)}
"""Op on the bits of a word → opcodes, one after the other."""


def _bit_op(name: str) -> Select:
    def select_bits(s: Selector, op: Op) -> None:
        value = s.regs(op.args[0])[0]
        for opcode in _BITS[name]:
            value = s.set("b32", (opcode, "b32"), value)
        s.values[op.result.id] = (value,)

    return select_bits


def _funnel(s: Selector, op: Op) -> None:
    high, low, count = (s.one(v) for v in op.args)
    out = s.set("b32", ("shf", "r", "wrap", "b32"), s.reg(low), s.reg(high), count)
    s.values[op.result.id] = (out,)


def extract(s: Selector, a: Reg, start: int, width: int, signed: bool) -> Reg:
    """Bits [start, start + width) of a word: a shift, a mask, a byte permutation, or else a bit-field extract."""
    if width == 32:
        return a
    if start + width == 32:
        return s.set("b32", ("shr", "s32" if signed else "u32"), a, Imm(start))
    if start == 0 and not signed:
        return s.set("b32", ("and", "b32"), a, Imm((1 << width) - 1))
    if start % 8 == 0 and width in (8, 16):
        # Selector nibble with bit 3 set repeats that byte's sign; bytes 4-7 are the second operand, zero.
        first = start // 8
        last = first + width // 8 - 1
        fill = (8 | last) if signed else 4
        nibbles = [first + i if i < width // 8 else fill for i in range(4)]
        chosen = sum(n << (4 * i) for i, n in enumerate(nibbles))
        return s.set("b32", ("prmt", "b32"), a, Imm(0), Imm(chosen))
    return s.set("b32", ("bfe", "s32" if signed else "u32"), a, Imm(start), Imm(width))


def _bfe(s: Selector, op: Op) -> None:
    a = s.regs(op.args[0])[0]
    s.values[op.result.id] = (extract(s, a, op.attrs["start"], op.attrs["width"], bool(op.attrs["signed"])),)


def split64(s: Selector, r: Reg) -> tuple[Reg, Reg]:
    """Low and high word of a 64-bit register."""
    lo, hi = s.new("b32"), s.new("b32")
    s.emit(("mov", "b64"), (lo, hi), r)
    return lo, hi


def join64(s: Selector, lo: Reg, hi: Reg) -> Reg:
    """The 64-bit register of two words, once per pair."""
    level = s.level_of(lo, hi)
    return s.hoisted(("join", lo.id, hi.id), level, lambda: s.set("b64", ("mov", "b64"), (lo, hi)))


def _bitcast(s: Selector, op: Op) -> None:
    a, from_, to = s.of(op.args[0]), op.args[0].type, op.result.type
    have, want = kind_of(from_), kind_of(to)
    if all(type(c) is Imm for c in a):
        bits = b"".join(_bits(c, have) for c in a)
        size = 4 if want == "b32" else 8
        words = [int.from_bytes(bits[i : i + size], "little") for i in range(0, len(bits), size)]
        s.values[op.result.id] = tuple(_from_bits(w, to.kind) for w in words)
    elif have == want:
        s.values[op.result.id] = a
    elif have == "b32":
        regs = s.regs(op.args[0])
        s.values[op.result.id] = tuple(join64(s, regs[i], regs[i + 1]) for i in range(0, len(regs), 2))
    else:
        s.values[op.result.id] = tuple(half for r in s.regs(op.args[0]) for half in split64(s, r))


def _bits(c: Imm, kind: str) -> bytes:
    if c.kind == "i":
        size = 4 if kind == "b32" else 8
        return (int(c.value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return struct.pack("<f" if c.kind == "f32" else "<d", c.value)


def _from_bits(word: int, kind: str) -> Imm:
    if kind == "f32":
        value = struct.unpack("<f", word.to_bytes(4, "little"))[0]
        return Imm(word) if math.isnan(value) else Imm(value, "f32")
    if kind == "f64":
        value = struct.unpack("<d", word.to_bytes(8, "little"))[0]
        return Imm(word) if math.isnan(value) else Imm(value, "f64")
    return Imm(word)


# -------------------------------------------------------------------------------------------------------- conversions


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
    s.values[op.result.id] = (s.set("b32", words, *(s.reg(s.one(a)) for a in op.args)),)


def _added(s: Selector, op: Op) -> int:
    """An integer that everything adds that takes a `widen`: it is added to what takes the power of two off. 0 where
    there is none, or the dtype does not hold that sum. The number itself, exact, and this one are rounded once, as it
    would be."""
    source, dtype = op.attrs["source"], op.attrs["dtype"]
    if source.is_float or (source.bits == 8 and dtype is dt.bf16):
        return 0
    found = {_constant_of(user, op.result) for user in s.users.get(op.result.id, ())}
    constant = found.pop() if len(found) == 1 else None
    if constant is None or constant != constant // 1:
        return 0
    taken_off = int(constant) - _above(source, dtype)
    return int(constant) if float(np.array(taken_off, dtype.numpy)) == taken_off else 0


def _constant_of(user: Op, pair: Value) -> float | None:
    """What a sum or difference adds to both numbers of a pair; None of anything else."""
    if user.name != "pair" or user.attrs["operation"] not in ("fadd", "fsub"):
        return None
    minus = user.attrs["operation"] == "fsub"
    other = user.args[1] if user.args[0] is pair else user.args[0]
    if not isinstance(other.const, int) or (minus and other is user.args[0]):
        return None
    low, high = (other.const >> shift & 0xFFFF for shift in (0, 16))
    number = float(np.array(low, np.uint16).view(user.attrs["dtype"].numpy))
    return None if low != high else -number if minus else number


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
        s.values[op.result.id] = (s.set("b32", ("mul", "rn", f"{dtype.name}x2"), code, factor),)
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


def _permute_bytes(s: Selector, op: Op) -> None:
    hi, lo = (s.one(v) for v in op.args)
    selector = op.attrs["selector"]
    nibbles = sum(((selector >> (8 * i)) & 7) << (4 * i) for i in range(4))
    s.values[op.result.id] = (s.set("b32", ("prmt", "b32"), s.reg(lo), s.reg(hi), Imm(nibbles)),)


# ------------------------------------------------------------------------------------------------------------- tuples


def _vec(s: Selector, op: Op) -> None:
    s.values[op.result.id] = tuple(c for v in op.args for c in s.of(v))


def _slice(s: Selector, op: Op) -> None:
    start = op.attrs["start"]
    s.values[op.result.id] = s.of(op.args[0])[start : start + op.attrs["count"]]


# --------------------------------------------------------------------------------------------------------- cross-lane


def shuffle(s: Selector, v: Value, mode: tuple[str, ...], lane: Operand) -> tuple[Reg, ...]:
    """Each register of a value from another lane; 64-bit ones by halves, predicates through a word."""

    def exchange(r: Reg) -> Reg:
        return s.set("b32", ("shfl", "sync", *mode, "b32"), r, lane, Imm(31), FULL_WARP)

    out = []
    for r in s.regs(v):
        if r.kind == "pred":
            moved = exchange(s.set("b32", ("selp", "b32"), Imm(1), Imm(0), r))
            out.append(s.set("pred", ("setp", "ne", "s32"), moved, Imm(0)))
        elif r.kind == "b64":
            lo, hi = split64(s, r)
            out.append(s.set("b64", ("mov", "b64"), (exchange(lo), exchange(hi))))
        else:
            out.append(exchange(r))
    return tuple(out)


def _shuffle_xor(s: Selector, op: Op) -> None:
    s.values[op.result.id] = shuffle(s, op.args[0], ("bfly",), Imm(op.attrs["mask"]))


def _shuffle_index(s: Selector, op: Op) -> None:
    s.values[op.result.id] = shuffle(s, op.args[0], ("idx",), s.one(op.args[1]))


SELECT: dict[str, Select] = {
    **{name: _int(name) for name in _INT},
    **{name: _float(name) for name in _FLOAT},
    **{name: _approx(name) for name in _APPROX},
    **{name: _round_to_int(name) for name in _ROUND},
    **{name: _pred(name) for name in ("pand", "por", "pxor")},
    "sin": _trig("sin"),
    "cos": _trig("cos"),
    "mulhi_u": _mulhi,
    "mul_wide_u": _mul_wide,
    "zext": _zext,
    "sext": _sext,
    "trunc": _trunc,
    "bfe": _bfe,
    **{name: _bit_op(name) for name in _BITS},
    "funnel": _funnel,
    "cmp": _cmp,
    "fcmp": _fcmp,
    "select": _select,
    "pnot": _pnot,
    "cvt": _cvt,
    "pack": _pack,
    "unpack": _unpack,
    "round_tf32": _round_tf32,
    "bitcast": _bitcast,
    "widen": _widen,
    "pair": _pair,
    "permute_bytes": _permute_bytes,
    "vec": _vec,
    "slice": _slice,
    "shuffle_xor": _shuffle_xor,
    "shuffle_index": _shuffle_index,
}
