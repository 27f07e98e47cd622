"""Extents as numbers: an expression over symbols beside a traced value, such as `x / N` or `x * N**-0.5`.

In: an expression over known symbols and its partner's dtype. Out: a node of that dtype. A whole expression is one
`size`. Beside floats every other one is arithmetic on such sizes, in f32 (f64 beside f64) and rounded to the partner's
dtype at the end, so that it means the same whether its symbols are known while compiling or in the launch. Beside
integers it stays a `size`, which must turn out to be whole.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import TraceError
from wavedsl.ir.loc import Loc
from wavedsl.ir.symbols import is_whole
from wavedsl.tracer.operands import python_number

if TYPE_CHECKING:
    from wavedsl.tracer.builder import Builder

FUNCTIONS = {"Min": "minimum", "Max": "maximum", "Abs": "abs"}


def extent(builder: Builder, expr: Any, dtype: DType, op: str, loc: Loc | None) -> Node:
    """`expr` as a number of `dtype`. Raises TraceError where a function in it is none that extents may have."""
    whole = is_whole(expr)
    if not dtype.is_float and not whole and (expr.atoms(sympy.Float) or not expr.is_rational):
        raise TraceError(f"{op}: {expr} with {dtype} values", loc, hint="cast the value: wd.cast(x, wd.f32)")
    if not dtype.is_float or whole:
        return _cast(builder, builder.emit("size", (), {"expr": expr}, loc), dtype, loc)
    wide = dt.f64 if dtype is dt.f64 else dt.f32

    def joined(name: str, parts: Any) -> Node:
        return reduce(lambda x, y: builder.emit(name, (x, y), {}, loc), parts)

    def made(e: Any) -> Node:
        if e.is_number:
            return builder.emit("constant", (), {"value": python_number(e, wide, op, loc), "dtype": wide}, loc)
        if is_whole(e):
            return _cast(builder, builder.emit("size", (), {"expr": e}, loc), wide, loc)
        if e.is_Mul or (e.is_Pow and e.exp.is_number and e.exp.is_negative):
            top, bottom = sympy.fraction(e)  # one division, whatever the coefficient: N / 3 is not N times a third
            if bottom != 1:
                return joined("div", (made(top), made(bottom)))
            return joined("mul", map(made, e.args))
        if e.is_Add:
            return joined("add", map(made, e.args))
        if e.is_Pow and e.exp in (0.5, sympy.Rational(1, 2)):
            return builder.emit("sqrt", (made(e.base),), {}, loc)
        if e.is_Pow and e.exp.is_Integer:
            return joined("mul", [made(e.base)] * int(e.exp))
        if e.func.__name__ in FUNCTIONS:
            name = FUNCTIONS[e.func.__name__]
            parts = [made(a) for a in e.args]
            return joined(name, parts) if len(parts) > 1 else builder.emit(name, tuple(parts), {}, loc)
        raise TraceError(
            f"{op}: {e} is no number that an extent can become",
            loc,
            hint="sums, products, quotients, whole powers, square roots, floor, ceiling, Mod, Min, Max and Abs of "
            "symbols are; for other functions make a value of the extent first: wd.log(wd.Register[wd.f32](N))",
        )

    return _cast(builder, made(expr), dtype, loc)


def _cast(builder: Builder, node: Node, dtype: DType, loc: Loc | None) -> Node:
    return node if node.dtype is dtype else builder.emit("cast", (node,), {"dtype": dtype}, loc)
