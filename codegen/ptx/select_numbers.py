"""Selection of arithmetic, bits, tuples and lane exchange (see `select`; conversions are in `select_convert`).

Ops on tuples work register by register. Rounding is always named: `.rn` on float add, sub, mul and fma. Approximate
functions but two keep denormals (no `.ftz`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from wavedsl.codegen.ptx.lane_reductions import WORDS
from wavedsl.codegen.ptx.machine import Imm, Operand, Reg
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
        start = s.reductions.starts.get(op.result.id)
        if start is not None:
            s.values[op.result.id] = (s.set("b32", ("redux", "sync", *WORDS[name]), s.reg(s.one(start)), FULL_WARP),)
            return
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
    "bitcast": _bitcast,
    "permute_bytes": _permute_bytes,
    "vec": _vec,
    "slice": _slice,
    "shuffle_xor": _shuffle_xor,
    "shuffle_index": _shuffle_index,
}
