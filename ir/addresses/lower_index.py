"""The boundary between sympy and the kernel IR: an index expression becomes integer values, once.

In: a sympy expression over symbols with known values (Add, Mul, Pow by a non-negative integer, floor, ceiling, Mod,
Min, Max, Abs, and quotients that are whole by contract, such as `K / 32`). Out: a `Value`. Nothing behind this computes
with sympy.

INVARIANT: floor, ceiling and Mod round as in mathematics, also for negative values; divisors that are not constants
must be positive. Arithmetic wraps at the width of the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.facts import BITS
from wavedsl.ir.kernel.kernel_ir import I32, I64, Type, Value


class IndexLowering:
    """Lowers expressions under one assignment of symbols, each distinct subexpression once.

    `values` maps symbols (or their names) to i32 or i64 values or Python ints. Inside a loop make a new one with
    `inside`: what was lowered there must not be used after the loop.
    """

    def __init__(self, b: Builder, values: Mapping[Any, Value | int], type: Type = I32):
        self.b = b
        self.type = type
        self.values = {str(k): v for k, v in values.items()}
        self._memo: dict[Any, Value | int] = {}

    def inside(self, values: Mapping[Any, Value | int]) -> IndexLowering:
        """The same with further (or other) symbols."""
        return IndexLowering(self.b, {**self.values, **{str(k): v for k, v in values.items()}}, self.type)

    def __call__(self, expr: Any) -> Value:
        """The value of `expr`. Raises CompileError naming a symbol without value or an unsupported function."""
        v = self._lower(expr)
        return self.b.const(v, self.type) if isinstance(v, int) else v

    def _lower(self, e: Any) -> Value | int:
        if isinstance(e, int):
            return e
        found = self._memo.get(e)
        if found is None:
            found = self._memo[e] = self._make(e)
        return found

    def _make(self, e: Any) -> Value | int:
        if e.is_Integer:
            return int(e)
        if e.is_Symbol:
            return self._symbol(e)
        b = self.b
        kind = e.func.__name__
        if kind in ("Add", "Mul"):
            top, bottom = _fraction(e)
            if bottom != 1:
                return self._floordiv(top, bottom)
            parts = [self._lower(a) for a in e.args]
            return self._sum(parts) if kind == "Add" else self._product(parts)
        if kind == "Pow":
            base, power = e.args
            if power.is_Integer and 0 <= power <= 8:
                return self._product([self._lower(base)] * int(power))
        elif kind == "floor":
            return self._floordiv(*_fraction(e.args[0]))
        elif kind == "ceiling":
            top, bottom = _fraction(e.args[0])
            return self._floordiv(top + bottom - 1, bottom)
        elif kind == "Mod":
            return self._floormod(*e.args)
        elif kind in ("Min", "Max"):
            parts = sorted((self._lower(a) for a in e.args), key=lambda v: isinstance(v, int))
            out = parts[0]
            for p in parts[1:]:
                if isinstance(out, int) and isinstance(p, int):
                    out = min(out, p) if kind == "Min" else max(out, p)
                else:
                    out = b.min_s(out, p) if kind == "Min" else b.max_s(out, p)
            return out
        elif kind == "Abs":
            v = self._value(e.args[0])
            return b.max_s(v, b.neg(v))
        raise CompileError(
            f"an index cannot contain {kind}: {e}",
            b.current_loc,
            "sums, products, whole powers, floor, ceiling, Mod, Min, Max and Abs of symbols and integers are supported",
        )

    def _symbol(self, e: Any) -> Value | int:
        v = self.values.get(e.name)
        if v is None:
            known = ", ".join(sorted(self.values)) or "none"
            raise CompileError(f"symbol {e.name} has no value here", self.b.current_loc, f"known symbols: {known}")
        if not isinstance(v, int) and v.type is not self.type:
            if v.type is I32 and self.type is I64:
                return self.b.sext(v)
            raise CompileError(f"symbol {e.name} is {v.type}, and the index is {self.type}", self.b.current_loc)
        return v

    def _value(self, e: Any) -> Value:
        v = self._lower(e)
        return self.b.const(v, self.type) if isinstance(v, int) else v

    def _sum(self, parts: list[Value | int]) -> Value | int:
        constant = sum(p for p in parts if isinstance(p, int))
        values = [p for p in parts if not isinstance(p, int)]
        return self.b.add(self.b.add_many(values, self.type), constant) if values else constant

    def _product(self, parts: list[Value | int]) -> Value | int:
        constant = 1
        out: Value | None = None
        for p in parts:
            if isinstance(p, int):
                constant *= p
            else:
                out = p if out is None else self.b.mul(out, p)
        return constant if out is None else self.b.mul(out, self.b.const(constant, self.type))

    def _floordiv(self, top: Any, bottom: Any) -> Value | int:
        t, d = self._lower(top), self._lower(bottom)
        b = self.b
        if isinstance(d, int) or d.const is not None:
            known: Any = d if isinstance(d, int) else d.const
            c = int(known)
            if c <= 0:
                raise CompileError(f"division by {c} in an index", b.current_loc, "divisors must be positive")
            return t // c if isinstance(t, int) else b.floordiv(t, c)
        v = b.const(t, self.type) if isinstance(t, int) else t
        if v.lo is not None and v.lo >= 0:
            return b.udiv(v, d)
        sign = b.ashr(v, BITS[self.type.kind] - 1)
        return b.xor(b.udiv(b.xor(v, sign), d), sign)  # v ^ sign is -v - 1 for v < 0

    def _floormod(self, x: Any, d: Any) -> Value | int:
        top, bottom = _fraction(x)
        if bottom != 1:
            raise CompileError(f"an index cannot contain Mod of the fraction {x}", self.b.current_loc)
        t, m = self._lower(top), self._lower(d)
        b = self.b
        if isinstance(m, int):
            if m <= 0:
                raise CompileError(f"modulo {m} in an index", b.current_loc, "moduli must be positive")
            return t % m if isinstance(t, int) else b.floormod(t, m)
        v = b.const(t, self.type) if isinstance(t, int) else t
        if v.lo is not None and v.lo >= 0:
            return b.urem(v, m)
        return b.sub(v, b.mul(self._value_of(self._floordiv(top, d)), m))

    def _value_of(self, v: Value | int) -> Value:
        return self.b.const(v, self.type) if isinstance(v, int) else v


def lower_index(b: Builder, expr: Any, values: Mapping[Any, Value | int], type: Type = I32) -> Value:
    """One expression; for several under the same symbols keep an `IndexLowering`."""
    return IndexLowering(b, values, type)(expr)


def _fraction(e: Any) -> tuple[Any, Any]:
    """Numerator and denominator with whole coefficients. sympy is asked only where a quotient is in sight."""
    if e.is_Integer or e.is_Symbol or not _has_quotient(e):
        return e, 1
    import sympy

    top, bottom = sympy.fraction(sympy.together(e))
    return top, (int(bottom) if bottom.is_Integer else bottom)


def _has_quotient(e: Any) -> bool:
    """Whether a sum or product contains a fraction outside floor, ceiling and Mod."""
    if e.is_Rational:
        return not e.is_Integer
    if e.is_Pow:
        return bool(e.args[1].is_negative) or _has_quotient(e.args[0])
    return (e.is_Add or e.is_Mul) and any(_has_quotient(a) for a in e.args)
