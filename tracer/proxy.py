"""Proxies: what the parameters and results of a kernel are while its function runs once to be traced.

A `Value` stands for a register value and records each operation on it; an `Array` stands for an array argument and
allows nothing but being read and written. Everything Python could do to a proxy that has no meaning while tracing
(truth, iteration, conversion, comparison with `is`-like idioms) raises a TraceError at the user's line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import sympy
from wavedsl.ir.dataflow.graph import Argument, Node
from wavedsl.ir.dataflow.ops import OPERATORS, ROWS
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import TraceError
from wavedsl.ir.source import here
from wavedsl.ir.symbols import names
from wavedsl.tracer import advice

if TYPE_CHECKING:
    from wavedsl.tracer.builder import Builder


def _giving_way(x: Any) -> Callable[[], NoReturn]:
    """`_sympy_` of what symbols give way to: `M * value` becomes `value.__rmul__(M)`. For `M == value` they only do so
    where it is missing."""
    if sys._getframe(2).f_code.co_name == "_do_eq_sympify":
        raise AttributeError("_sympy_")

    def give_way() -> NoReturn:
        raise sympy.SympifyError(x)

    return give_way


class Value:
    """A traced register value. `dims` are its dimensions (names, in no order of meaning), `dtype` its element type."""

    __slots__ = ("builder", "node")

    __array_ufunc__ = None
    """NumPy scalars leave `np.float32(2) * value` to this class."""

    def __init__(self, node: Node, builder: Builder):
        self.node = node
        self.builder = builder

    @property
    def dims(self) -> tuple[Any, ...]:
        return self.node.dims

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    def __repr__(self) -> str:
        return f"<traced value {self.node.type}>"

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        self._refuse("has no truth value while tracing", advice.for_truth(here(), not self.dims))

    def __iter__(self) -> NoReturn:
        self._refuse("cannot be iterated over or unpacked", advice.for_iteration(here(), self.dims))

    def __len__(self) -> NoReturn:
        self._refuse("has no len()", "its extent along M is the symbol M")

    def __getitem__(self, key: Any) -> NoReturn:
        self._refuse("cannot be indexed", advice.for_index(here(), self.dims))

    def __setitem__(self, key: Any, item: Any) -> NoReturn:
        self._refuse("cannot be assigned to by index", "make a new value: wd.where(wd.index(M) == i, x, value)")

    def __contains__(self, item: Any) -> NoReturn:
        self._refuse("has no `in`", "compare and reduce: wd.any(x == item, dim=M)")

    def __float__(self) -> NoReturn:
        self._refuse("is not a Python number", "use wd.cast(x, wd.f32), and wd.exp(x) rather than math.exp(x)")

    def __int__(self) -> NoReturn:
        self._refuse("is not a Python number", "use wd.cast(x, wd.i32)")

    def __index__(self) -> NoReturn:
        self._refuse("is not a Python number", advice.for_whole_number(here()))

    def __complex__(self) -> NoReturn:
        self._refuse("is not a Python number", "there are no complex values")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("is not a function", "a loop decorated with @wd.iterate has already run: its name is its result")

    def __round__(self, digits: Any = None) -> Any:
        if digits is not None:
            self._refuse("rounds to whole numbers only", "wd.round(x * 100) / 100")
        return self.builder.apply("round", (self,))

    def __floor__(self) -> Any:
        return self.builder.apply("floor", (self,))

    def __ceil__(self) -> Any:
        return self.builder.apply("ceil", (self,))

    def __trunc__(self) -> Any:
        return self.builder.apply("trunc", (self,))

    def __pow__(self, exponent: Any) -> Any:
        """Whole exponents of the source are products where they are small, so that negative bases have powers; larger
        ones are `pow` of the magnitude, with the sign of the base if they are odd. Others are `pow`.
        """
        whole = _whole(exponent)
        if whole is None or (whole < 0 and not self.dtype.is_float):
            return self.builder.apply("pow", (self, exponent))
        if whole == 0:
            attrs = {"dims": self.dims, "dtype": self.dtype, "value": 1}
            return self.builder.value(self.builder.emit("fill", (), attrs))
        if self.dtype.is_float and abs(whole) > 8:
            power = self.builder.apply("pow", (abs(self), float(whole)))
            return self._where_negative(-power, power) if whole % 2 else power
        power, square, rest = None, self, abs(whole)
        while rest:
            if rest & 1:
                power = square if power is None else self.builder.apply("mul", (power, square))
            rest >>= 1
            if rest:
                square = self.builder.apply("mul", (square, square))
        return power if whole > 0 else self.builder.apply("div", (1.0, power))

    def _where_negative(self, x: Value, y: Value) -> Any:
        low = self.builder.apply("lt", (self, 0.0))
        return self.builder.results(self.builder.emit("where", [low.node, x.node, y.node], {}))

    def __matmul__(self, other: Any) -> NoReturn:
        self._refuse("has no @", "wd.mma(x, y) contracts the dimensions that both have")

    def __rmatmul__(self, other: Any) -> NoReturn:
        self._refuse("has no @", "wd.mma(x, y) contracts the dimensions that both have")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("is not a NumPy array", advice.for_function(here()))

    @property
    def _sympy_(self) -> Callable[[], NoReturn]:
        return _giving_way(self)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in ROWS and ROWS[name].public:
            hint = f"wd.{name}(x, …) is a function"
        elif name in ("astype", "to"):
            hint = "wd.cast(x, …)"
        else:
            hint = advice.for_attribute(name, self.dims) or advice.for_method(name)
        raise TraceError(f"a traced value has no attribute {name}", here(), hint=hint)

    def _refuse(self, what: str, hint: str) -> NoReturn:
        raise TraceError(f"a traced value {what} (it is {self.node.type})", here(), hint=hint)


def _whole(exponent: Any) -> int | None:
    """A whole number of the source, whichever type it is written in, as an int."""
    if isinstance(exponent, (int, np.integer)) and not isinstance(exponent, bool):
        return int(exponent)
    if isinstance(exponent, (float, np.floating)) and float(exponent).is_integer():
        return int(exponent)
    return None


def _operator(row: str, swapped: bool, unary: bool) -> Callable[..., Any]:
    if unary:

        def method(self: Value) -> Any:
            return self.builder.apply(row, (self,))

    elif swapped:

        def method(self: Value, other: Any) -> Any:  # type: ignore[misc]
            return self.builder.apply(row, (other, self))

    else:

        def method(self: Value, other: Any) -> Any:  # type: ignore[misc]
            return self.builder.apply(row, (self, other))

    method.__doc__ = ROWS[row].doc
    return method


for _method, (_row, _swapped) in OPERATORS.items():
    if _method in vars(Value) and _method != "__hash__":
        continue  # written out above
    _unary = ROWS[_row].signature[0] in "-~" or _method == "__abs__"
    setattr(Value, _method, _operator(_row, _swapped, _unary))
setattr(Value, "__hash__", object.__hash__)  # noqa: B010  (__eq__ above unset it)


class Array:
    """An array argument while tracing: `wd.read(a)` and `wd.write(x, a)` are what can be done with it."""

    __slots__ = ("argument", "builder")

    __array_ufunc__ = None

    def __init__(self, argument: Argument, builder: Builder):
        self.argument = argument
        self.builder = builder

    @property
    def dims(self) -> tuple[Any, ...]:
        return self.argument.dims

    @property
    def dtype(self) -> DType:
        return self.argument.dtype

    def __repr__(self) -> str:
        return f"<array argument {self.argument.name}>"

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        a = self.argument
        name, what = (a.name, "an") if type(self) is Array else (f"{a.name}[…]", "a part of an")
        raise TraceError(
            f"{name} is {what} array argument ([{names(a.dims)}] {a.dtype}), not a value",
            here(),
            hint=f"read it first: wd.read({name}); store with wd.write(value, {name})",
        )

    def __setitem__(self, key: Any, item: Any) -> NoReturn:
        a = self.argument
        raise TraceError(
            f"{a.name}[…] = … assigns to an array argument ([{names(a.dims)}] {a.dtype})", here(),
            hint=f"wd.write(value, {a.name}) stores; wd.write(value, {a.name}[2:, :]) into a part, "
            f"wd.write(value, {a.name}[index]) at the places of a traced index",
        )  # fmt: skip

    def __getitem__(self, key: Any) -> Any:
        """A part of the array, for `read` and `write`: slices, whole numbers, expressions, traced integers."""
        from wavedsl.tracer.view import part

        return part(self, key)

    @property
    def _sympy_(self) -> Callable[[], NoReturn]:
        return _giving_way(self)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        hint = advice.for_attribute(name, self.dims)
        if hint:
            raise TraceError(f"the array argument {self.argument.name} has no attribute {name}", here(), hint=hint)
        self._refuse()

    def __len__(self) -> NoReturn:
        hint = advice.for_attribute("size", self.dims)
        raise TraceError(f"the array argument {self.argument.name} has no len()", here(), hint=hint)

    def __iter__(self) -> NoReturn:
        a = self.argument
        part = ", ".join(["i", *":" * (len(a.dims) - 1)])
        raise TraceError(
            f"the array argument {a.name} cannot be iterated over", here(),
            hint=f"over its tiles @wd.iterate({a.dims[0]}, init_args=[…]) loops; one row is wd.read({a.name}[{part}])",
        )  # fmt: skip

    __hash__ = object.__hash__


for _method in (
    *OPERATORS, "__bool__", "__float__", "__int__", "__index__",
    "__contains__", "__matmul__", "__rmatmul__", "__array__", "__call__",
):  # fmt: skip
    setattr(Array, _method, Array._refuse)
setattr(Array, "__hash__", object.__hash__)  # noqa: B010
