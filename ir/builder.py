"""Builds kernel IR from method calls: folds, value-numbers and hoists every op while it is made.

The values this builder makes are the project's hash-consed integer expressions. A pure op is (1) folded by constants,
by its facts and by the rows of `fold_rules`, (2) looked up among the ops already there, (3) placed in the outermost
open region in which its operands exist: a loop is appended to its parent when it is closed, so what was hoisted out of
it stands before it. Ops with effects, and matrix instructions, stay where they are written.

CONSTANTS: of i32/i64 are signed Python ints (any int is wrapped), of b32/b64 unsigned bit patterns, of f32/f64 floats,
of pred bools. A constant of a tuple type repeats in every register. Wherever an integer operand is expected a Python
int will do; it takes the type of the other operand.

INVARIANTS: the same op on the same operands in scope is the same `Value`; integer values carry concrete `lo <= hi`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wavedsl.ir import small_floats
from wavedsl.ir.address_parts import split_address, split_constant, split_uniform
from wavedsl.ir.build_core import PINNED, Core, If, Loop, Operand, demote, flatten, new_kernel, uniform_operands
from wavedsl.ir.divide import division_magic, floordiv, floormod, udiv, urem
from wavedsl.ir.dtypes import DType
from wavedsl.ir.facts import BITS, MASKS, disjoint, multiple_of, wrap
from wavedsl.ir.fold_matchers import FOLDERS
from wavedsl.ir.fold_rules import CONSTANT, MIRROR, decided
from wavedsl.ir.kernel_ir import B32, BUFFER, F32, F64, I32, I64, PRED, ROWS, Op, Type, Value, linear_reach, vector
from wavedsl.ir.target import MmaAtom

__all__ = ["Builder", "If", "Loop", "Operand", "demote", "division_magic", "new_kernel", "uniform_operands"]


FIRST_WAVE_BARRIER = 2
"""Named barriers: 0 is the workgroup's, 1 a role's, then one per wave, of which there are at most eight, then turns."""
FIRST_TURN = 10


class Builder(Core):
    """See the module. Values come back for ops with a result, the `Op` for stores, copies and barriers."""

    def emit(
        self, name: str, args: Sequence[Any] = (), attrs: dict[str, Any] | None = None, type: Type | None = None
    ) -> Any:
        """Any op by name (not `for`, `if`, `yield`): checked against its row, folded, numbered and placed if pure.

        Returns the result `Value`, or the `Op` where there is none. `type` is the result's, for rows that say `attr`.
        """
        row = ROWS.get(name)
        if row is None:
            raise self.fail(f"the kernel IR has no op {name}")
        if name == "const":
            assert attrs is not None
            return self.const(attrs["value"], type or I32)
        if name in CONSTANT:
            return self._int(name, args[0], args[1])
        simple = _BY_NAME.get(name)
        if simple is not None:
            return simple(self, *args)
        attrs = dict(attrs or ())
        special = _BY_ATTRS.get(name)
        if special is not None:
            return special(self, args, attrs, type)
        values = self._values(row, args)
        result = self._result_type(row, values, type)
        if row.pure and name not in PINNED:
            assert result is not None
            return self._pure(name, values, result, {k: attrs[k] for k in (*row.attrs, *attrs) if k in attrs})
        op = self._effect(name, values, attrs, result)
        return op.results[0] if result is not None else op

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
        return self._int("and", a, b)

    def or_(self, a: Operand, b: Operand) -> Value:
        return self._int("or", a, b)

    def xor(self, a: Operand, b: Operand) -> Value:
        return self._int("xor", a, b)

    def shl(self, a: Operand, s: Operand) -> Value:
        return self._int("shl", a, s)

    def lshr(self, a: Operand, s: Operand) -> Value:
        return self._int("lshr", a, s)

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
        found = self._widened(values, dtype)
        return found if found is not None else self._pure("pack", tuple(values), B32, {"dtype": dtype})

    def _widened(self, values: Sequence[Value], dtype: DType) -> Value | None:
        """A pair of numbers as one step from the packed word that both come from; None where the chip has none."""
        if self.target is None or dtype.name not in ("f16", "bf16"):
            return None
        found: list[tuple[Value, DType, int]] = []
        for v in values:
            made = v.op.args[0].op if v.op is not None and v.op.name == "cvt" else v.op
            if made is None or made.name != "unpack" or (made is v.op) != made.attrs["dtype"].is_float:
                return None
            found.append((made.args[0], made.attrs["dtype"], made.attrs["index"]))
        (word, source, index), second = found
        if index % 2 or second != (word, source, index + 1) or (source.name, dtype.name) not in self.target.widens:
            return None
        return self._pure("widen", (word,), B32, {"source": source, "dtype": dtype, "index": index})

    def packs(self, dtype: DType) -> bool:
        """Whether the chip has instructions that pack and unpack numbers of `dtype`; else integer arithmetic does."""
        return dtype not in small_floats.FORMATS or (self.target is not None and dtype.name in self.target.small_floats)

    def unpack(self, word: Value, dtype: DType, index: int) -> Value:
        """Element `index` of a packed word as f32 (float dtypes) or i32."""
        if not 0 <= index < 32 // dtype.slot:
            raise self.fail(f"unpack of element {index}: a word holds {32 // dtype.slot} {dtype}")
        if word.const == 0 and dtype.kind != "scale":
            return self.const(0, F32 if dtype.is_float else I32)
        if not self.packs(dtype):
            return small_floats.unpack(self, word, dtype, index)
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
        return tuple(self.slice(v, i) for i in range(v.type.n))

    # ----------------------------------------------------------------------------------------------- where a wave is

    def tid(self) -> Value:
        return self._pure("tid", (), I32)

    def lane(self) -> Value:
        return self._pure("lane", (), I32)

    def wave(self) -> Value:
        return self._pure("wave", (), I32)

    def wgid(self, axis: int) -> Value:
        return self._pure("wgid", (), I32, {"axis": axis})

    def wgcount(self, axis: int) -> Value:
        """Workgroups launched along a grid axis: at most as many as the kernel says."""
        return self._pure("wgcount", (), I32, {"axis": axis})

    def param(self, index: int, type: Type | None = None, **facts: int) -> Value:
        """Parameter `index`; facts `lo`, `hi`, `multiple` are what the launch has checked of a scalar."""
        if type is None:
            p = self.kernel.params[index]
            kind = {"f32": F32, "f64": F64, "i64": I64, "u64": I64}
            type = I64 if p.kind in ("pointer", "tensormap") else kind.get(p.dtype.name, I32)
        return self._pure("param", (), type, {"index": index, **facts})

    def readfirst(self, v: Value, same: bool = False) -> Value:
        """The first active lane's value, uniform. `same` promises that all active lanes hold the same, as they do where
        only one thread runs."""
        if (same or self.one_thread) and not v.uniform:
            return self._pure("readfirst", (v,), v.type, {"same": True})
        return self._folded("readfirst", (v,), v.type)

    def shuffle_xor(self, v: Value, mask: int) -> Value:
        """The value of lane ^ mask (32-bit types)."""
        if mask == 0 or v.const is not None:
            return v
        return self._pure("shuffle_xor", (v,), v.type, {"mask": mask})

    def any_lane(self, p: Value, workgroup: bool = False) -> Value:
        """Whether `p` holds in any lane of the wave: a uniform predicate. `workgroup` promises that all waves agree."""
        if p.uniform and (not workgroup or p.const is not None):
            return p
        return self._pure("any_lane", (p,), PRED, {"workgroup": True} if workgroup else None)

    def shuffle_index(self, v: Value, lane: Operand) -> Value:
        """The value of the given lane (32-bit types)."""
        return self._pure("shuffle_index", (v, self._i32(lane)), v.type)

    # --------------------------------------------------------------------------------------------------------- memory

    def buffer(self, base: Value, bytes: Operand, cache_stride: int = 0) -> Value:
        """A global array: its address (i64) and its size in bytes (i64). `cache_stride`: that of the cache swizzle."""
        size = self.const(bytes, I64) if bytes.__class__ is int else bytes
        if base.type is not I64 or size.type is not I64:
            raise self.fail(f"buffer of {base.type} and {size.type}: address and size are i64")
        attrs = {"cache_stride": cache_stride} if cache_stride else None
        return self._pure("buffer", (base, size), BUFFER, attrs)

    def _global(
        self, voff: Operand, soff: Operand, imm: int, split: bool | None, most: int | None = None
    ) -> tuple[Value, Value, int]:
        """Split an address into per-lane part, uniform part and immediate (at most `most`)."""
        low, high = self.global_range
        high = high if most is None else min(high, most)
        voff, soff = self._i32(voff), self._i32(soff)
        if imm == 0:
            voff, imm = self.split_address(voff, low, high)
        if split is None:
            split = self.target is not None and self.target.vendor == "amd"
        if split:
            voff, uniform = self.split_uniform(voff)
            soff = self.add(soff, uniform)
        if imm == 0:
            soff, imm = self.split_address(soff, low, high)
        return voff, soff, imm

    def load_global(
        self, buf: Value, voff: Operand, soff: Operand = 0, *, bytes: int = 4, type: Type | None = None,
        mask: Value | None = None, guard: Value | None = None, imm: int = 0, split: bool | None = None,
        bounded: bool = False, cache: str | None = None,
    ) -> Value:  # fmt: skip
        """Load `bytes` per lane at voff + soff + imm. Constants of the offsets move to `imm` if it is not given.

        `split` moves uniform parts of voff to soff (default: on AMD targets). Type: b32 words unless given.
        """
        voff, soff, imm = self._global(voff, soff, imm, split)
        t = type or vector(max(bytes // 4, 1))
        args = (buf, voff, soff, mask or self.true, guard or self.true)
        attrs = {"bytes": bytes, "imm": imm} | ({"bounded": True} if bounded else {}) | _hinted(cache)
        return self._effect("load.global", args, attrs, t).results[0]

    def store_global(
        self, buf: Value, voff: Operand, value: Value, soff: Operand = 0, *, bytes: int | None = None,
        mask: Value | None = None, guard: Value | None = None, imm: int = 0, high: bool = False,
        split: bool | None = None, bounded: bool = False, cache: str | None = None,
    ) -> Op:  # fmt: skip
        """Store at voff + soff + imm; `bytes` defaults to the width of the value."""
        voff, soff, imm = self._global(voff, soff, imm, split)
        args = (buf, voff, soff, mask or self.true, guard or self.true, value)
        attrs = {"bytes": bytes or value.type.words * 4, "imm": imm, "high": high} | _hinted(cache)
        if bounded:
            attrs["bounded"] = True
        return self._effect("store.global", args, attrs)

    def load_far(self, addr: Value, *, bytes: int, cache: str | None = None) -> Value:
        """Load `bytes` at a 64-bit address of each lane, which must be valid in every lane."""
        t = vector(max(bytes // 4, 1))
        return self._effect("load.far", (addr,), {"bytes": bytes} | _hinted(cache), t).results[0]

    def store_far(
        self, addr: Value, value: Value, *, bytes: int, mask: Value, high: bool = False, cache: str | None = None
    ) -> Op:
        """Store `bytes` of `value` at a 64-bit address of each lane whose mask is set."""
        return self._effect("store.far", (addr, mask, value), {"bytes": bytes, "high": high} | _hinted(cache))

    def atomic_global(
        self, buf: Value, voff: Operand, how: str, *values: Value, mask: Value | None = None,
        guard: Value | None = None, soff: Operand = 0, imm: int = 0, split: bool | None = None,
    ) -> Value:  # fmt: skip
        """Change memory at voff + soff + imm indivisibly by `how` (see the op) and give what was there."""
        voff, soff, imm = self._global(voff, soff, imm, split)
        args = (buf, voff, soff, mask or self.true, guard or self.true, *values)
        attrs = {"bytes": values[0].type.words * 4, "imm": imm, "how": how}
        return self._effect("atomic.global", args, attrs, values[0].type).results[0]

    def atomic_far(self, addr: Value, how: str, *values: Value, mask: Value) -> Value:
        """`atomic_global` at a 64-bit address of each lane."""
        attrs = {"bytes": values[0].type.words * 4, "how": how}
        return self._effect("atomic.far", (addr, mask, *values), attrs, values[0].type).results[0]

    def copy_async(
        self, buf: Value, voff: Operand, saddr: Operand, soff: Operand = 0, *, bytes: int, buffer: str = "",
        mask: Value | None = None, guard: Value | None = None, imm: int = 0, simm: int = 0, split: bool | None = None,
        linear: bool = False, bounded: bool = False, cache: str | None = None,
    ) -> Op:  # fmt: skip
        """Copy `bytes` per lane from global to shared memory; completes at the copy_wait that covers its group.
        `linear`: `saddr` is the wave's, and each lane's bytes lie behind those of the lane before."""
        saddr = self._i32(saddr)
        if simm == 0:
            saddr, simm = self._shared(saddr)
        # The immediate of a linear copy counts for both addresses, and the base that it is taken off is not negative.
        if linear and imm == 0:
            voff, soff, imm = self._global(voff, soff, imm, split, linear_reach(saddr, simm))
        elif not linear:
            voff, soff, imm = self._global(voff, soff, imm, split)
        else:
            voff, soff = self._i32(voff), self._i32(soff)
        args = (buf, voff, soff, mask or self.true, guard or self.true, saddr)
        attrs = {"bytes": bytes, "imm": imm, "simm": simm, "buffer": buffer} | _hinted(cache)
        if linear:
            attrs["linear"] = True
        if bounded:
            attrs["bounded"] = True
        return self._effect("copy.async", args, attrs)

    def touch_global(
        self, buf: Value, voff: Operand, soff: Operand = 0, *, bytes: int, mask: Value | None = None,
        guard: Value | None = None,
    ) -> Op:  # fmt: skip
        """Bring `bytes` per lane into the second-level cache."""
        voff, soff, imm = self._global(voff, soff, 0, False)
        args = (buf, voff, soff, mask or self.true, guard or self.true)
        return self._effect("touch.global", args, {"bytes": bytes, "imm": imm})

    def copy_commit(self) -> Op:
        return self._effect("copy.commit", (), {})

    def copy_wait(self, pending: int = 0) -> Op:
        """Wait until at most `pending` committed groups of this lane are in flight."""
        return self._effect("copy.wait", (), {"pending": pending})

    def _shared(self, addr: Operand) -> tuple[Value, int]:
        low, high = self.shared_range
        return self.split_address(addr, low, high)

    def load_shared(
        self, addr: Operand, *, bytes: int = 4, type: Type | None = None, imm: int = 0, atom: str = "vector",
        buffer: str = "", slot: int = -1,
    ) -> Value:  # fmt: skip
        """Load `bytes` per lane from shared memory by load atom `atom`."""
        addr = self._i32(addr)
        if imm == 0:
            addr, imm = self._shared(addr)
        attrs = {"bytes": bytes, "imm": imm, "atom": atom, "buffer": buffer, "slot": slot}
        return self._effect("load.shared", (addr,), attrs, type or vector(max(bytes // 4, 1))).results[0]

    def store_shared(
        self, addr: Operand, value: Value, *, bytes: int | None = None, mask: Value | None = None, imm: int = 0,
        buffer: str = "", slot: int = -1, atom: str = "", high: bool = False,
    ) -> Op:  # fmt: skip
        """Store `bytes` (default: the width of the value) per lane to shared memory, by a matrix store if named.
        `high`: the upper half of a word."""
        addr = self._i32(addr)
        if imm == 0:
            addr, imm = self._shared(addr)
        attrs = {"bytes": bytes or value.type.words * 4, "imm": imm, "buffer": buffer, "slot": slot}
        if atom:
            attrs["atom"] = atom
        if high:
            attrs["high"] = True
        return self._effect("store.shared", (addr, mask or self.true, value), attrs)

    def barrier(self, half: int | None = None) -> Op:
        """All waves arrive: of the workgroup, or of the role that is being written. `half`: those of the lower (0) or
        upper (1) half, at one that the others pass at another place."""
        return self._effect("barrier", (), dict(self.role_barrier) if half is None else {"half": half})

    def priority(self, level: int) -> Op:
        """The wave's issue priority from here on, 0 (as launched) to 3."""
        return self._effect("priority", (), {"level": level})

    def fence(self) -> Op:
        """A barrier among the same waves as `barrier`, with what they wrote to global memory visible to all."""
        return self._effect("fence", (), dict(self.role_barrier))

    def mma(self, atom: MmaAtom, a: Value, b: Value, c: Value) -> Value:
        """D = A B + C on fragments of matrix instruction `atom`."""
        return self._effect("mma", (a, b, c), {"atom": atom}, c.type).results[0]

    def mma_scaled(
        self, atom: MmaAtom, a: Value, b: Value, c: Value, scales: tuple[Value, Value], bytes: tuple[int, int]
    ) -> Value:
        """D = A B + C with the scales of blocks of K in byte `bytes[i]` of word `scales[i]`."""
        attrs = {"atom": atom, "a_byte": bytes[0], "b_byte": bytes[1]}
        return self._effect("mma.scaled", (a, b, c, *scales), attrs, c.type).results[0]

    # ------------------------------------------------------------------------------- asynchronous matrix instructions

    def undefined(self, type: Type) -> Value:
        """Registers whose contents nobody relies on."""
        return self._pure("undefined", (), type)

    def mma_tile(self, addr: Operand, low: int, high: int) -> Value:
        """An operand tile in shared memory at byte `addr`, for `mma_async`."""
        return self._pure("matrix.tile", (self._i32(addr),), I64, {"low": low, "high": high})

    def mma_async(self, atom: MmaAtom, a: Value, b: Value, c: Value, keep: Value | None, majors: str) -> Value:
        """Start D = A B + C, or A B where `keep` is false. D is there after the wait for its group."""
        args = (a, b, c, keep if keep is not None else self.true)
        return self._effect("matrix.start", args, {"atom": atom, "majors": majors}, c.type).results[0]

    def mma_fence(self) -> Op:
        return self._effect("matrix.fence", (), {})

    def mma_commit(self) -> Op:
        return self._effect("matrix.commit", (), {})

    def mma_wait(self, pending: int = 0) -> Op:
        """Wait until at most `pending` committed groups of mma_async are in flight."""
        return self._effect("matrix.wait", (), {"pending": pending})

    # ----------------------------------------------------------------------------- barriers in memory and bulk copies

    def signal_init(self, addr: Operand, count: int) -> Op:
        return self._effect("signal.init", (self._i32(addr),), {"count": count})

    def signal_publish(self) -> Op:
        return self._effect("signal.publish", (), {})

    def signal_expect(self, addr: Operand, bytes: int) -> Op:
        """Arrive, and let the phase wait for `bytes` more."""
        return self._effect("signal.expect", (self._i32(addr),), {"bytes": bytes})

    def signal_arrive(self, addr: Operand, mask: Value | None = None) -> Op:
        return self._effect("signal.arrive", (self._i32(addr), mask or self.true), {})

    def signal_wait(self, addr: Operand, parity: Operand) -> Op:
        """Wait until the phase of this parity has ended."""
        return self._effect("signal.wait", (self._i32(addr), self._i32(parity)), {})

    def signal_arrive_at(self, addr: Operand, cta: Operand, mask: Value) -> Op:
        """Arrive at a barrier of another workgroup of the cluster."""
        return self._effect("signal.arrive.at", (self._i32(addr), self._i32(cta), mask), {})

    def cluster_rank(self) -> Value:
        return self._pure("cluster.rank", (), I32)

    def cluster_barrier(self) -> Op:
        return self._effect("cluster.barrier", (), {})

    def copy_bulk(
        self, map: Value, saddr: Operand, bar: Operand, at: Sequence[Operand], *, buffer: str = "", cluster: int = 0,
        cache: str | None = None,
    ) -> Op:  # fmt: skip
        """Copy a tensor map's box at coordinates `at`, innermost first; completes on the barrier at `bar`, in every
        workgroup of the mask `cluster`."""
        args = (map, self._i32(saddr), self._i32(bar), *(self._i32(x) for x in at))
        return self._effect("copy.bulk", args, {"buffer": buffer, "cluster": cluster} | _hinted(cache))

    def touch_bulk(self, map: Value, at: Sequence[Operand]) -> Op:
        """Bring a tensor map's box at coordinates `at`, innermost first, into the second-level cache."""
        return self._effect("touch.bulk", (map, *(self._i32(x) for x in at)), {})

    def copy_bulk_store(
        self, map: Value, saddr: Operand, mask: Value, at: Sequence[Operand], *, cache: str | None = None
    ) -> Op:  # fmt: skip
        """The lane of this mask copies shared memory to a tensor map's box at coordinates `at`, innermost first."""
        return self._effect(
            "copy.bulk.store", (map, self._i32(saddr), mask, *(self._i32(x) for x in at)), _hinted(cache)
        )

    def bulk_commit(self) -> Op:
        return self._effect("bulk.commit", (), {})

    def bulk_wait(self, pending: int, reading: bool) -> Op:
        """Wait until at most `pending` groups of this thread run, or still read shared memory."""
        return self._effect("bulk.wait", (), {"pending": pending, "reading": reading})

    def wave_barrier(self) -> Op:
        """All threads of this wave arrive."""
        return self._effect("wave.barrier", (), {"id": FIRST_WAVE_BARRIER})

    def turn_take(self) -> Op:
        """Wait for the turn, which the other of two waves gives."""
        return self._effect("turn.take", (), {"id": FIRST_TURN})

    def turn_give(self) -> Op:
        return self._effect("turn.give", (), {"id": FIRST_TURN})

    def elect(self) -> Value:
        """True in one thread of the wave."""
        return self._pure("elect", (), PRED)

    def registers(self, count: int, more: bool) -> Op:
        """Change this wave's registers per thread."""
        return self._effect("registers", (), {"count": count, "more": more})

    def grid_wait(self) -> Op:
        """Wait until the launch in front of this one has ended."""
        return self._effect("grid.wait", (), {})

    def grid_release(self) -> Op:
        """Let the launch behind this one begin, once every workgroup has said so or ended."""
        return self._effect("grid.release", (), {})

    def proxy_fence(self) -> Op:
        return self._effect("proxy.fence", (), {})

    def trap(self, mask: Value, message: str) -> Op | None:
        """Stop the kernel if any lane's mask is set; nothing if it never is."""
        if mask.const is False:
            return None
        return self._effect("trap", (mask,), {"message": message})


def _hinted(cache: str | None) -> dict[str, Any]:
    return {"cache": cache} if cache is not None else {}


def _slice_of(v: Value) -> tuple[Value | None, int, int]:
    op = v.op
    if op is not None and op.name == "slice":
        start = op.attrs["start"]
        return op.args[0], start, start + op.attrs["count"]
    return None, 0, 0


_BY_NAME: dict[str, Callable[..., Value]] = {
    name: getattr(Builder, name)
    for name in (
        "mul_wide_u", "zext", "sext", "trunc", "select", "pand", "por", "pxor", "pnot", "fadd", "fsub", "fmul", "fdiv",
        "fmin", "fmax", "ffma", "fneg", "fabs", "shuffle_index", "vec", "tid", "lane", "wave",
    )
}  # fmt: skip

_BY_ATTRS: dict[str, Callable[..., Value | Op | None]] = {
    "readfirst": lambda b, a, k, t: b.readfirst(a[0], k.get("same", False)),
    "buffer": lambda b, a, k, t: b.buffer(*a, k.get("cache_stride", 0)),
    "bfe": lambda b, a, k, t: b.bfe(a[0], k["start"], k["width"], k.get("signed", False)),
    "cmp": lambda b, a, k, t: b.cmp(k["how"], *a),
    "fcmp": lambda b, a, k, t: b.fcmp(k["how"], *a),
    "cvt": lambda b, a, k, t: b.cvt(a[0], t, k.get("unsigned", False)),
    "pack": lambda b, a, k, t: b.pack(a, k["dtype"]),
    "unpack": lambda b, a, k, t: b.unpack(a[0], k["dtype"], k["index"]),
    "bitcast": lambda b, a, k, t: b.bitcast(a[0], t),
    "widen": lambda b, a, k, t: b._pure("widen", tuple(a), B32, dict(k)),
    "permute_bytes": lambda b, a, k, t: b.permute_bytes(a[0], a[1], k["selector"]),
    "slice": lambda b, a, k, t: b.slice(a[0], k["start"], k["count"]),
    "shuffle_xor": lambda b, a, k, t: b.shuffle_xor(a[0], k["mask"]),
    "trap": lambda b, a, k, t: b.trap(a[0], k["message"]),
}
