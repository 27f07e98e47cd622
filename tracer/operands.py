"""What stands where a traced value should: numbers in the dtype of their partner, and words for everything else."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

import ml_dtypes
import numpy as np
import sympy
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import TraceError
from wavedsl.ir.loc import Loc
from wavedsl.ir.symbols import is_whole, names
from wavedsl.tracer.annotations import MemoryType, RegisterType, ScalarType
from wavedsl.tracer.proxy import Array, Value

NUMBERS = (bool, int, float, np.generic)


def describe(x: Any) -> tuple[str, str]:
    """What a thing is that should have been a value, and what to do about it."""
    if isinstance(x, Array):
        return f"{x.argument.name} is an array argument", f"read it first: wd.read({x.argument.name})"
    if x is None:
        return "None", "wd.write and loops that carry nothing give no value; a helper may lack its return"
    if isinstance(x, (FunctionType, BuiltinFunctionType)) or isinstance(x, type):
        return f"the function {getattr(x, '__name__', x)} itself", f"call it: {getattr(x, '__name__', x)}(…)"
    if isinstance(x, (RegisterType, MemoryType, ScalarType)):
        return f"the type {x}", "call it with a number: wd.Register[M, N, wd.f32](0.0)"
    if isinstance(x, (tuple, list)):
        return f"a {type(x).__name__} of {len(x)}", "unpack it: a loop with several carried values gives a tuple"
    if isinstance(x, np.ndarray):
        return "a NumPy array", "pass arrays as arguments of the kernel"
    if isinstance(x, (bool, np.bool_)):
        return f"the number {x}", "what is known now needs Python's if and else only"
    if isinstance(x, NUMBERS):
        dtype = "i32" if isinstance(x, (int, np.integer)) else "f32"
        one, tile = f"wd.Register[wd.{dtype}]({x})", f"wd.Register[M, N, wd.{dtype}]({x})"
        return f"the number {x}", f"make a value of it: {one}, or of a tile {tile}"
    if isinstance(x, sympy.Basic):
        return (
            f"the symbol or expression {x}",
            "use it in arithmetic with a value, or wd.index(M) for an element's index",
        )
    if isinstance(x, Value):
        return f"a value ([{names(x.dims)}] {x.dtype})", "this place takes something else"
    if callable(x):
        return f"{type(x).__name__} object", "call it first"
    return f"{x!r}", "operands are values, numbers and symbols"


def dtype_of_numbers(xs: Sequence[Any]) -> DType:
    """The dtype of a choice between numbers of the source or extents, none of which is a value: i1 of bools, i32 of
    whole numbers, f32 where one is a float or a fraction."""
    if all(isinstance(x, (bool, np.bool_)) for x in xs):
        return dt.i1
    whole = (bool, int, np.bool_, np.integer)
    return dt.i32 if all(is_whole(x) if isinstance(x, sympy.Basic) else isinstance(x, whole) for x in xs) else dt.f32


def python_number(x: Any, dtype: DType, op: str, loc: Loc | None) -> bool | int | float:
    """A number of the source as a Python number of `dtype`'s kind; a TraceError where that would change it."""
    if isinstance(x, (bool, np.bool_)):
        x = bool(x)
    elif isinstance(x, (int, np.integer)):
        x = int(x)
    else:
        x = float(x)
    if dtype.kind == "bool":
        if isinstance(x, bool) or x in (0, 1):
            return bool(x)
        raise TraceError(f"{op}: {x} is not an i1", loc, hint="True or False")
    if dtype.is_int:
        if isinstance(x, float):
            if not x.is_integer() or op != "Register":
                whole = f"write {int(x)}" if x.is_integer() else ""
                cast = "" if op.startswith(("iterate", "write", "atomic")) else "cast the value: wd.cast(x, wd.f32)"
                raise TraceError(
                    f"{op}: the number {x} with {dtype} values",
                    loc,
                    hint=", or ".join(filter(None, (cast, whole))) or "a whole number",
                )
            x = int(x)
        low, high = (
            (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)
        )
        if op in ("bitand", "atomic_and") and low == 0 > x:  # x & ~15 has no bit above the value's
            x &= high
        if not low <= x <= high:
            hint = f"{dtype} holds {low} to {high}"
            if -(1 << dtype.bits - 1) <= x < 1 << dtype.bits:
                hint += f"; the number of the same bits is {x - (1 << dtype.bits) if x > 0 else x + (1 << dtype.bits)}"
            raise TraceError(f"{op}: {x} does not fit {dtype}", loc, hint=hint)
        return int(x)
    if not isinstance(x, float) and abs(x) > 1 << 1023:
        raise TraceError(f"{op}: {x} does not fit {dtype}", loc, hint="use a smaller number")
    if dtype.kind == "float" and math.isfinite(x) and abs(x) >= _overflow(dtype):
        top = float(ml_dtypes.finfo(dtype.numpy).max)
        raise TraceError(
            f"{op}: {x} does not fit {dtype}",
            loc,
            hint=f"{dtype} holds up to {top:.6g}; compute in a wider dtype (wd.cast(x, wd.f32)), or mean float('inf')"
            if dtype not in (dt.f32, dt.f64)
            else f"{dtype} holds up to {top:.6g}; for infinity write float('inf')",
        )
    return float(x)


@functools.cache
def _overflow(dtype: DType) -> float:
    """The least number that rounds beyond the largest of a float dtype: half a step above it."""
    top = float(ml_dtypes.finfo(dtype.numpy).max)
    return top + 2.0 ** (math.frexp(top)[1] - 2 - dtype.mantissa)


def counted(n: int, thing: str) -> str:
    """`1 value`, `2 values`."""
    return f"{n} {thing}" + "s" * (n != 1)
