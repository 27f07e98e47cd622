"""Refuses `N == 16`: sympy compares names, so the answer is False whatever N is, and a branch would be silently wrong.

In: a kernel's function. Looked at are comparisons by `==` and `!=` in it, and in plain functions that it reads by name,
whose sides are made of numbers and of what lies outside of the functions. One side with a symbol beside one without is
refused; two symbols are compared by name, which is what is meant. `<` and the others have no truth value anyway.

The byte code is read, as that costs little where nothing is compared. What is not understood there is not refused.
"""

from __future__ import annotations

import dis
import operator
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import sympy
from wavedsl.ir.errors import TraceError
from wavedsl.ir.source import is_library_module, locate
from wavedsl.ir.symbols import SymbolSource

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow,
}  # fmt: skip
_OLD_NAMES = {
    "BINARY_ADD": "+", "BINARY_SUBTRACT": "-", "BINARY_MULTIPLY": "*", "BINARY_TRUE_DIVIDE": "/",
    "BINARY_FLOOR_DIVIDE": "//", "BINARY_MODULO": "%", "BINARY_POWER": "**",
}  # fmt: skip
"""What Python 3.10 calls them."""
_COMPARE = dis.opmap["COMPARE_OP"]
_STEPS = ("RESUME", "NOP", "CACHE", "PRECALL", "EXTENDED_ARG")
"""Instructions that leave the stack as it is."""

_LISTED: WeakKeyDictionary[CodeType, list[tuple[str, str, Any, int, int]]] = WeakKeyDictionary()
"""By code object that compares: operation, how it is written, argument, offset and line of each instruction."""


def refuse_number_tests(function: Callable[..., Any]) -> None:
    """Raises TraceError at the first comparison of a symbol with a number."""
    for each in _functions(function, set()):
        cells = dict(zip(each.__code__.co_freevars, each.__closure__ or ()))
        for code, local in _codes(each.__code__, frozenset()):
            _look(each, code, {name: cell for name, cell in cells.items() if name not in local})


def _functions(function: Any, seen: set[int]) -> Iterator[FunctionType]:
    """The function, and plain functions of the user's that it reads by name."""
    if not isinstance(function, FunctionType) or id(function) in seen or is_library_module(function.__module__):
        return
    seen.add(id(function))
    yield function
    for code, _ in _codes(function.__code__, frozenset()):
        for name in code.co_names:
            yield from _functions(function.__globals__.get(name), seen)
    for cell in function.__closure__ or ():
        yield from _functions(_content(cell), seen)


def _codes(code: CodeType, local: frozenset[str]) -> Iterator[tuple[CodeType, frozenset[str]]]:
    """A code object and those of functions defined in it, with the names that are variables of theirs."""
    local |= {*code.co_cellvars}
    yield code, local
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant, local)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _look(function: FunctionType, code: CodeType, cells: dict[str, Any]) -> None:
    """Follow what is known on Python's stack through the bytecode, and check each comparison of symbols."""
    if _COMPARE not in code.co_code[::2]:
        return
    listed = _LISTED.get(code)
    if listed is None:
        listed = _LISTED[code] = []
        line = code.co_firstlineno
        for i in dis.get_instructions(code):
            starts = getattr(i, "line_number", None) if hasattr(i, "line_number") else i.starts_line
            line = starts or line
            written = _OLD_NAMES.get(i.opname, i.argrepr)
            listed.append((i.opname, written, i.argval, i.offset, line))
    stack: list[Any] = []  # what is known of the top of Python's stack; None: something else
    for name, written, argument, offset, line in listed:
        if name in _STEPS:
            continue
        if name in ("LOAD_CONST", "LOAD_SMALL_INT"):
            stack.append(argument if type(argument) in (int, float) else None)
        elif name in ("LOAD_GLOBAL", "LOAD_NAME"):
            stack.append(_usable(function.__globals__.get(argument)))
        elif name == "LOAD_DEREF":
            stack.append(_usable(_content(cells[argument])) if argument in cells else None)
        elif name == "LOAD_ATTR" and stack:
            stack.append(_usable(_attribute(stack.pop(), argument)))
        elif written.removesuffix("=") in _BINARY and name.startswith("BINARY_") and len(stack) > 1:
            right, left = stack.pop(), stack.pop()
            stack.append(_result(_BINARY[written], left, right) if written in _BINARY else None)
        elif name == "UNARY_NEGATIVE" and stack:
            stack.append(_result(operator.mul, stack.pop(), -1))
        elif name == "COMPARE_OP" and len(stack) > 1:
            right, left = stack.pop(), stack.pop()
            if "==" in written or "!=" in written:
                _check(left, right, "!=" in written, code, offset, line)
            stack.append(None)
        else:
            stack.clear()


def _usable(value: Any) -> Any:
    """A number, an expression, or what leads to one by its attributes."""
    if type(value) in (int, float) or isinstance(value, (sympy.Expr, ModuleType, SymbolSource)):
        return value
    return None


def _attribute(value: Any, name: str) -> Any:
    """`wd.sym` and `wd.sym.N`; other attributes may be anything."""
    if isinstance(value, SymbolSource):
        return getattr(value, name, None)
    found = vars(value).get(name) if isinstance(value, ModuleType) else None
    return found if isinstance(found, (SymbolSource, sympy.Expr)) else None


def _result(how: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if not all(isinstance(x, (int, float, sympy.Expr)) for x in (left, right)):
        return None
    try:
        return how(left, right)
    except (ArithmeticError, TypeError, ValueError):
        return None


def _check(left: Any, right: Any, differs: bool, code: CodeType, offset: int, line: int) -> None:
    if not all(isinstance(x, (int, float, sympy.Expr)) for x in (left, right)):
        return
    symbolic = [bool(getattr(x, "free_symbols", ())) for x in (left, right)]
    if symbolic[0] == symbolic[1]:
        return
    symbol, number = (left, right) if symbolic[0] else (right, left)
    raise TraceError(
        f"{symbol} is a symbol while tracing and equals no number: the answer is {differs} whatever its value",
        locate(code, offset, line),
        hint=f"make the kernel in a function that takes a Python number, or choose while it runs: "
        f"wd.where(wd.Register[wd.i32]({symbol}) == {number}, x, y)",
    )
