"""The builder's ops that make values from values: integers, predicates, floats, conversions, tuples.

Each folds by what is known of its operands before it is numbered and placed (`build_core.Core`); `builder.Builder` adds
what reads or changes the world. Wherever an integer operand is expected a Python int will do; it takes the type of the
other operand.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from wavedsl.ir.dtypes import DType, u4, u8
from wavedsl.ir.kernel import small_floats
from wavedsl.ir.kernel.address_parts import split_address, split_constant, split_uniform
from wavedsl.ir.kernel.build_core import Core, Operand
from wavedsl.ir.kernel.divide import floordiv, floormod, udiv, urem
from wavedsl.ir.kernel.facts import BITS, MASKS, disjoint, multiple_of, wrap
from wavedsl.ir.kernel.fold_matchers import FOLDERS
from wavedsl.ir.kernel.fold_rules import MIRROR, decided
from wavedsl.ir.kernel.half_pairs import before_permuting, loaded, packed_bytes, packed_pair, repeated
from wavedsl.ir.kernel.kernel_ir import B32, F32, I32, I64, PRED, ROWS, Type, Value, vector
from wavedsl.ir.kernel.open_regions import flatten
from wavedsl.ir.kernel.whole_floats import is_exact


class Values(Core):
    """See the module."""

    # ------------------------------------------------------------------------------------------------------- integers

    def add(self, a: Operand, b: Operand) -> Value:
        return self._int("add", a, b)

    def sub(self, a: Operand, b: Operand) -> Value:
        return self._int("sub", a, b)

    def mul(self, a: Operand, b: Operand) -> Value:
        return self._int("mul", a, b)

    def mulhi_u(self, a: Operand, b: Operand) -> Value:
        return self._int("mulhi_u", a, b)

    def and_(self, a: Operand, b: Operand) -> Value:
        return self._half_of_byte(a, b, 15, 0) or self._int("and", a, b)

    def or_(self, a: Operand, b: Operand) -> Value:
        return self._int("or", a, b)

    def xor(self, a: Operand, b: Operand) -> Value:
        return self._int("xor", a, b)

    def shl(self, a: Operand, s: Operand) -> Value:
        return self._int("shl", a, s)

    def lshr(self, a: Operand, s: Operand) -> Value:
        return self._half_of_byte(a, s, 4, 1) or self._int("lshr", a, s)

    def _half_of_byte(self, a: Operand, b: Operand, wanted: int, half: int) -> Value | None:
        """Four bits of a byte that was unpacked, which are unpacked at once; None where `b` is another constant."""
        if (b if isinstance(b, int) else b.const) != wanted or isinstance(a, int):
            return None
        op = a.op
        if op is None or op.name != "unpack" or op.attrs["dtype"] is not u8:
            return None
        return self.unpack(op.args[0], u4, 2 * op.attrs["index"] + half)

    def ashr(self, a: Operand, s: Operand) -> Value:
        return self._int("ashr", a, s)

    def min_s(self, a: Operand, b: Operand) -> Value:
        return self._int("min_s", a, b)

    def max_s(self, a: Operand, b: Operand) -> Value:
        return self._int("max_s", a, b)

    def min_u(self, a: Operand, b: Operand) -> Value:
        return self._int("min_u", a, b)

    def max_u(self, a: Operand, b: Operand) -> Value:
        return self._int("max_u", a, b)

    def neg(self, a: Value) -> Value:
        return self._int("sub", self.const(0, a.type), a)

    def not_(self, a: Value) -> Value:
        return self._int("xor", a, self.const(-1, a.type))

    def mul_wide_u(self, a: Operand, b: Operand) -> Value:
        """The 64-bit unsigned product of two i32."""
        a, b = self._i32(a), self._i32(b)
        if a.const is not None or (b.const is None and a.id > b.id):
            a, b = b, a
        if b.const is not None:
            c = b.const & MASKS[32]
            if c == 0:
                return self.const(0, I64)
            if not c & (c - 1):
                return self.shl(self.zext(a), c.bit_length() - 1)
        return self._pure("mul_wide_u", (a, b), I64)

    def zext(self, a: Operand) -> Value:
        a = self._i32(a)
        if a.const is not None:
            return self.const(a.const & MASKS[32], I64)
        return self._pure("zext", (a,), I64)

    def sext(self, a: Operand) -> Value:
        a = self._i32(a)
        if a.const is not None:
            return self.const(a.const, I64)
        return self._folded("sext", (a,), I64, 64)

    def trunc(self, a: Operand) -> Value:
        if a.__class__ is int:
            return self.const(a, I32)
        if a.const is not None:
            return self.const(a.const, I32)
        return self._folded("trunc", (a,), I32, 64)

    def bfe(self, a: Operand, start: int, width: int, signed: bool = False) -> Value:
        """Bits [start, start + width) of an i32, moved down; extended by sign if `signed`."""
        a = self._i32(a)
        if not (0 <= start and 0 < width and start + width <= 32):
            raise self.fail(
                f"bfe of bits [{start}, {start + width}): legal are 0 <= start, 0 < width, at most 32 in all"
            )
        if signed:
            if start + width == 32:
                return self.ashr(a, start)
            if a.const is not None:
                return self.const(wrap((a.const >> start) << (32 - width), 32) >> (32 - width))
        elif start + width == 32:
            return self.lshr(a, start)
        elif a.const is not None:
            return self.const((a.const >> start) & ((1 << width) - 1))
        return self._pure("bfe", (a,), I32, {"start": start, "width": width, "signed": bool(signed)})

    def popcount(self, a: Operand) -> Value:
        """How many bits of an i32 are set. This and the next three fold constants by their facts."""
        return self._pure("popcount", (self._i32(a),), I32)

    def clz(self, a: Operand) -> Value:
        """Zeros above the highest set bit of an i32, 32 for 0."""
        return self._pure("clz", (self._i32(a),), I32)

    def ctz(self, a: Operand) -> Value:
        """Zeros below the lowest set bit of an i32, 32 for 0."""
        return self._pure("ctz", (self._i32(a),), I32)

    def brev(self, a: Operand) -> Value:
        """The bits of an i32 in reverse order."""
        a = self._i32(a)
        if a.op is not None and a.op.name == "brev":
            return a.op.args[0]
        return self._pure("brev", (a,), I32)

    def funnel(self, hi: Operand, lo: Operand, s: Operand) -> Value:
        """The low word of hi:lo moved down by `s` modulo 32; of `hi` twice, a rotation."""
        hi, lo, s = self._i32(hi), self._i32(lo), self._i32(s)
        if s.const is not None and not s.const & 31:
            return lo
        if hi.const is not None and lo.const is not None and s.const is not None:
            return self.const(((hi.const & MASKS[32]) << 32 | lo.const & MASKS[32]) >> (s.const & 31) & MASKS[32])
        return self._pure("funnel", (hi, lo, s), I32)

    # ------------------------------------------------------------------------------------------------------- division

    def udiv(self, a: Operand, d: Operand) -> Value:
        """Unsigned quotient. By a constant: a shift, or a multiplication that is exact for all inputs in range."""
        return udiv(self, a, d)

    def urem(self, a: Operand, d: Operand) -> Value:
        """Unsigned remainder; by a constant from the quotient, by a power of two a mask."""
        return urem(self, a, d)

    def floordiv(self, a: Operand, d: int) -> Value:
        """Signed quotient rounded towards minus infinity, by a positive constant."""
        return floordiv(self, a, d)

    def floormod(self, a: Operand, d: int) -> Value:
        """Remainder of `floordiv`: 0 <= result < d."""
        return floormod(self, a, d)

    # ----------------------------------------------------------------------------------------------- known bits, parts

    @staticmethod
    def disjoint(a: Value, b: Value) -> bool:
        """Whether a + b is a | b."""
        return disjoint(a, b)

    @staticmethod
    def multiple_of(a: Value) -> int:
        """The largest power of two known to divide `a` (capped at 2**32)."""
        return multiple_of(a)

    @staticmethod
    def split_constant(v: Value) -> tuple[Value | None, int]:
        """v = base + const. The base of a constant is None."""
        return split_constant(v)

    def split_uniform(self, v: Value) -> tuple[Value, Value]:
        """v = lane + uniform, both non-negative; `(v, 0)` where that cannot be shown."""
        return split_uniform(self, v)

    def split_address(self, v: Operand, low: int, high: int) -> tuple[Value, int]:
        """v = base + imm with imm in [low, high] and base not negative: a memory op's address and immediate."""
        return split_address(self, v, low, high)

    def add_many(self, values: Sequence[Operand], type: Type = I32) -> Value:
        """The sum, built so that what is invariant or uniform is added first and constants last."""
        total = self.const(0, type)
        rest = [self.const(v, type) if v.__class__ is int else v for v in values]
        for v in sorted(rest, key=lambda v: (self._depth[v.id], not v.uniform)):
            total = self.add(total, v)
        return total

    # ------------------------------------------------------------------------------------------ comparison, predicates

    def cmp(self, how: str, a: Operand, b: Operand) -> Value:
        """Integer comparison: eq ne slt sle sgt sge ult ule ugt uge."""
        if b.__class__ is int:
            b = self.const(b, I32 if a.__class__ is int else a.type)
        if a.__class__ is int:
            a = self.const(a, b.type)
        if how not in MIRROR:
            raise self.fail(f"cmp {how}: legal are {' '.join(sorted(MIRROR))}")
        if a.type is not b.type or a.lo is None:
            raise self.fail(f"cmp of {a.type} and {b.type}: both operands must be integers of one type")
        bits = BITS[a.type.kind]
        if a.lo == a.hi and b.lo == b.hi:
            known = decided(how, a, b, bits)
            if known is not None:
                return self.true if known else self.false
        r = FOLDERS["cmp"](self, PRED, bits, how, a, b)
        if r is not None:
            return r
        if how in ("eq", "ne") and a.id > b.id and b.const is None:
            a, b = b, a
        return self._pure("cmp", (a, b), PRED, {"how": how})

    def select(self, c: Value, a: Operand, b: Operand) -> Value:
        """c ? a : b for any type."""
        if a.__class__ is int:
            a = self.const(a, I32 if b.__class__ is int else b.type)
        if b.__class__ is int:
            b = self.const(b, a.type)
        if a.type is not b.type:
            raise self.fail(f"select of {a.type} and {b.type}: both must have one type")
        return self._folded("select", (c, a, b), a.type)

    def pand(self, a: Value, b: Value) -> Value:
        return self._pred2("pand", a, b)

    def por(self, a: Value, b: Value) -> Value:
        return self._pred2("por", a, b)

    def pxor(self, a: Value, b: Value) -> Value:
        return self._pred2("pxor", a, b)

    def _pred2(self, name: str, a: Value, b: Value) -> Value:
        if a.const is not None or (b.const is None and a.id > b.id):
            a, b = b, a
        return self._folded(name, (a, b), PRED)

    def pnot(self, a: Value) -> Value:
        return self._folded("pnot", (a,), PRED)

    # --------------------------------------------------------------------------------------------------------- floats

    def _float2(self, name: str, a: Any, b: Any) -> Value:
        if b.__class__ in (int, float):
            b = self.const(float(b), a.type)
        if a.__class__ in (int, float):
            a = self.const(float(a), b.type)
        if a.type is not b.type:
            raise self.fail(f"{name} of {a.type} and {b.type}: both operands must have one type")
        if ROWS[name].commutes and (a.const is not None or (b.const is None and a.id > b.id)):
            a, b = b, a
        return self._folded(name, (a, b), a.type)

    def fadd(self, a: Any, b: Any) -> Value:
        return self._float2("fadd", a, b)

    def fsub(self, a: Any, b: Any) -> Value:
        return self._float2("fsub", a, b)

    def fmul(self, a: Any, b: Any) -> Value:
        return self._float2("fmul", a, b)

    def fdiv(self, a: Any, b: Any) -> Value:
        return self._float2("fdiv", a, b)

    def fmin(self, a: Any, b: Any) -> Value:
        return self._float2("fmin", a, b)

    def fmax(self, a: Any, b: Any) -> Value:
        return self._float2("fmax", a, b)

    def ffma(self, a: Value, b: Any, c: Any) -> Value:
        if b.__class__ in (int, float):
            b = self.const(float(b), a.type)
        if c.__class__ in (int, float):
            c = self.const(float(c), a.type)
        if a.const is not None:
            a, b = b, a
        if not a.type is b.type is c.type:
            raise self.fail(f"ffma of {a.type}, {b.type} and {c.type}: all operands must have one type")
        return self._folded("ffma", (a, b, c), a.type)

    def fcmp(self, how: str, a: Any, b: Any) -> Value:
        """Float comparison: eq ne lt le gt ge."""
        if b.__class__ in (int, float):
            b = self.const(float(b), a.type)
        if how not in ("eq", "ne", "lt", "le", "gt", "ge") or a.type is not b.type:
            raise self.fail(f"fcmp {how} of {a.type} and {b.type}: legal are eq ne lt le gt ge of one type")
        return self._pure("fcmp", (a, b), PRED, {"how": how})

    def fneg(self, a: Value) -> Value:
        return self._folded("fneg", (a,), a.type)

    def fabs(self, a: Value) -> Value:
        return self._folded("fabs", (a,), a.type)

    def ffloor(self, a: Value) -> Value:
        return self._pure("ffloor", (a,), a.type)

    def fceil(self, a: Value) -> Value:
        return self._pure("fceil", (a,), a.type)

    def frint(self, a: Value) -> Value:
        return self._pure("frint", (a,), a.type)

    def ftrunc(self, a: Value) -> Value:
        return self._pure("ftrunc", (a,), a.type)

    def ldexp(self, a: Value, n: Operand) -> Value:
        """a * 2 ** n of an f64, rounded once: an instruction of AMD's."""
        return self._pure("ldexp", (a, self._i32(n)), a.type)

    def exp2(self, a: Value) -> Value:
        return self._pure("exp2", (a,), a.type)

    def log2(self, a: Value) -> Value:
        return self._pure("log2", (a,), a.type)

    def rcp(self, a: Value) -> Value:
        return self._pure("rcp", (a,), a.type)

    def rsqrt(self, a: Value) -> Value:
        return self._pure("rsqrt", (a,), a.type)

    def sqrt(self, a: Value) -> Value:
        return self._pure("sqrt", (a,), a.type)

    def sqrt_approx(self, a: Value) -> Value:
        return self._pure("sqrt_approx", (a,), a.type)

    def sin(self, a: Value) -> Value:
        return self._pure("sin", (a,), a.type)

    def cos(self, a: Value) -> Value:
        return self._pure("cos", (a,), a.type)

    # ---------------------------------------------------------------------------------------------------- conversions

    def cvt(self, a: Value, type: Type, unsigned: bool = False) -> Value:
        """Number conversion between i32, i64, f32 and f64 (tuples element by element)."""
        if a.type is type:
            return a
        if a.const is not None and a.type.is_int and type.is_float and not unsigned and abs(a.const) < 1 << 24:
            return self.const(float(a.const), type)
        if a.type is I32 and type is I64:
            return self.zext(a) if unsigned else self.sext(a)
        if a.type is I64 and type is I32:
            return self.trunc(a)
        return self._pure("cvt", (a,), type, {"unsigned": bool(unsigned)})

    def pack(self, values: Sequence[Value], dtype: DType) -> Value:
        """Round or wrap 32 / dtype.bits numbers (f32 or i32) to `dtype` and pack them, the first lowest."""
        if len(values) * dtype.slot != 32:
            raise self.fail(f"pack of {len(values)} numbers to {dtype}: a word holds {32 // dtype.slot}")
        if dtype.kind != "scale" and all(v.const == 0 and str(v.const)[0] != "-" for v in values):
            return self.const(0, B32)
        first = values[0].op
        if (
            first is not None
            and first.name == "unpack"
            and all(
                v.op is not None
                and v.op.name == "unpack"
                and v.op.args == first.args
                and v.op.attrs == {"dtype": dtype, "index": i}
                for i, v in enumerate(values)
            )
        ):
            return first.args[0]
        if not self.packs(dtype):
            return small_floats.pack(self, values, dtype)
        found = packed_pair(self, values, dtype) or packed_bytes(self, values, dtype)
        return found if found is not None else self._pure("pack", tuple(values), B32, {"dtype": dtype})

    @property
    def _pairs(self) -> Collection[tuple[str, str]]:
        """What the chip computes of both halves of a word at once."""
        return self.target.pairs if self.target is not None else ()

    def packs(self, dtype: DType) -> bool:
        """Whether the chip has instructions that pack and unpack numbers of `dtype`; else integer arithmetic does."""
        return dtype not in small_floats.FORMATS or (self.target is not None and dtype.name in self.target.small_floats)

    def unpack(self, word: Value, dtype: DType, index: int) -> Value:
        """Element `index` of a packed word as f32 (float dtypes) or i32."""
        if not 0 <= index < 32 // dtype.slot:
            raise self.fail(f"unpack of element {index}: a word holds {32 // dtype.slot} {dtype}")
        if word.const == 0 and dtype.kind != "scale":
            return self.const(0, F32 if dtype.is_float else I32)
        if isinstance(word.const, int) and dtype.kind == "float" and dtype.bits == 16:
            bits = np.uint16(word.const >> 16 * index & 0xFFFF)
            number = float(bits.view(dtype.numpy))
            if number == number:  # which NaN it is, the chip says
                return self.const(number, F32)
        word, index = repeated(word, dtype, index)
        packed = word.op if word.op is not None and word.op.name == "pack" else None
        if packed is not None and packed.attrs["dtype"] is dtype and ("fadd", dtype.name) not in self._pairs:
            if is_exact(packed.args[index], dtype):
                return packed.args[index]
            if dtype.is_int and _wraps_nothing(packed.args[index], dtype):
                return packed.args[index]
        if not self.packs(dtype):
            found = small_floats.unpack(self, word, dtype, index)
            self.small[found.id] = word, dtype, index
            return found
        if dtype.is_float and dtype.bits == 8:
            word, even = loaded(word, dtype, index & ~1)
            index = even | index & 1
        return self._pure("unpack", (word,), F32 if dtype.is_float else I32, {"dtype": dtype, "index": index})

    def round_tf32(self, a: Value) -> Value:
        return self._pure("round_tf32", (a,), F32)

    def bitcast(self, a: Value, type: Type) -> Value:
        """The same bits as another type of the same width."""
        if a.type is type:
            return a
        if a.type.words != type.words:
            raise self.fail(f"bitcast of {a.type} to {type}: widths differ")
        if a.op is not None and a.op.name == "bitcast":
            return self.bitcast(a.op.args[0], type)
        if a.const is not None and (a.const == 0 and str(a.const)[0] != "-"):
            return self.const(0, type)
        if a.const is not None and a.type.kind in BITS and type.kind in BITS and BITS[a.type.kind] == BITS[type.kind]:
            return self.const(a.const, type)
        return self._pure("bitcast", (a,), type)

    def permute_bytes(self, hi: Value, lo: Value, selector: int) -> Value:
        """Result byte i is byte (selector >> 8 i) & 7 of hi:lo (0-3 are lo)."""
        if selector == 0x03020100:
            return lo
        if selector == 0x07060504:
            return hi
        upper = selector & 0x04040404
        if upper in (0, 0x04040404):  # bytes of one word alone
            lo = hi = hi if upper else lo
            selector &= 0x03030303
        if hi is lo and (found := before_permuting(lo, selector)) is not None:
            return self.permute_bytes(*found)
        return self._pure("permute_bytes", (hi, lo), B32, {"selector": selector})

    # --------------------------------------------------------------------------------------------------------- tuples

    def vec(self, *values: Any) -> Value:
        """Concatenate scalars and tuples of one kind. Consecutive slices of one tuple are that tuple (or a slice)."""
        parts = flatten(values)
        if len(parts) == 1:
            return parts[0]
        kind = parts[0].type.kind
        n = 0
        for p in parts:
            if p.type.kind != kind:
                raise self.fail(f"vec of {kind} and {p.type.kind}: all parts must be of one kind")
            n += p.type.n
        first = parts[0].const
        if first is not None and all(p.const == first and str(p.const) == str(first) for p in parts):
            return self.const(first, vector(n, kind))
        source, start, end = _slice_of(parts[0])
        if source is not None:
            for p in parts[1:]:
                other, s, e = _slice_of(p)
                if other is not source or s != end:
                    break
                end = e
            else:
                return self.slice(source, start, end - start)
        if n > 2:
            parts = tuple(self._joined_slices(parts))
        return self._pure("vec", tuple(parts), vector(n, kind))

    def _joined_slices(self, parts: Sequence[Value]) -> list[Value]:
        """Parts that are consecutive slices of one tuple, as one."""
        out: list[Value] = []
        runs: list[tuple[Value | None, int, int]] = []
        for p in parts:
            source, start, end = _slice_of(p)
            if source is not None and runs and runs[-1][0] is source and runs[-1][2] == start:
                runs[-1] = (source, runs[-1][1], end)
                out[-1] = self.slice(source, runs[-1][1], end - runs[-1][1])
            else:
                runs.append((source, start, end))
                out.append(p)
        return out

    def slice(self, v: Value, start: int, count: int = 1) -> Value:
        """`count` registers of a tuple from `start`."""
        n = v.type.n
        if not (0 <= start and 0 < count and start + count <= n):
            raise self.fail(f"slice [{start}, {start + count}) of {v.type}")
        if count == n:
            return v
        t = vector(count, v.type.kind)
        op = v.op
        if op is not None:
            if op.name == "const":
                return self.const(op.attrs["value"], t)
            if op.name == "slice":
                return self.slice(op.args[0], op.attrs["start"] + start, count)
            if op.name == "vec":
                if len(op.args) == n:  # one by one: many ask for each
                    return self.vec(*op.args[start : start + count])
                parts = []
                at = 0
                for p in op.args:
                    lo, hi = max(start, at), min(start + count, at + p.type.n)
                    if lo < hi:
                        parts.append(self.slice(p, lo - at, hi - lo))
                    at += p.type.n
                return self.vec(*parts)
        return self._pure("slice", (v,), t, {"start": start, "count": count})

    def elements(self, v: Value) -> tuple[Value, ...]:
        """The registers of a tuple, one by one."""
        if v.op is not None and v.op.name == "vec" and len(v.op.args) == v.type.n:
            return v.op.args
        return tuple(self.slice(v, i) for i in range(v.type.n))


def _wraps_nothing(v: Value, dtype: DType) -> bool:
    """Whether an integer is surely one of `dtype`, a type narrower than it."""
    low = -(1 << dtype.bits - 1) if dtype.is_signed else 0
    return v.lo is not None and v.hi is not None and low <= v.lo and v.hi < low + (1 << dtype.bits)


def _slice_of(v: Value) -> tuple[Value | None, int, int]:
    op = v.op
    if op is not None and op.name == "slice":
        start = op.attrs["start"]
        return op.args[0], start, start + op.attrs["count"]
    return None, 0, 0
