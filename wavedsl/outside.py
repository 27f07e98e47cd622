"""What a kernel's function reads from outside: globals and closed-over variables, its own and its helpers'.

They are read when the kernel is traced, so what was traced holds as long as they are what they were. In: a function.
Out: a `Snapshot`, which tells cheaply enough to be asked before every launch.

Followed are the names that the function, functions defined in it and plain functions called by name read. Not followed:
modules, classes, symbols, dtypes and wavedsl's own functions, which name things rather than hold values, and what lies
inside an object (an attribute, an element of a list): rebinding a name is seen, changing an object in place is not.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import sympy

from wavedsl.ir.dtypes import DType

_NAMES = (ModuleType, type, BuiltinFunctionType, sympy.Basic, DType)
"""Kinds of values that are not followed."""
_PLAIN = (int, float, complex, str, bytes, tuple, frozenset, np.generic)
"""Kinds of values that are the same where they are equal."""

Place = tuple[Any, str]
"""Where a value is read, and its name: (globals, name) or (cell, name)."""


class Snapshot:
    """The values that a function reads from outside, as they are now.

    `unchanged()` compares by identity, in some 20 ns per value; it is None where there is nothing to compare. `same`
    compares values, too, and then takes equal ones for those that it was made with.
    """

    unchanged: Callable[[], bool] | None
    different: tuple[str, ...] = ()
    """Names of the values that `same` found to be others."""

    def __init__(self, function: Callable[..., Any]):
        found = {(id(where), name): (where, name) for where, name in _places(function, set())}
        self._places = [p for p in found.values() if _followed(_value(p))]
        self._space: dict[str, Any] = {}
        self._take([_value(p) for p in self._places])
        self.unchanged = _comparison(self._places, self._space) if self._places else None

    def _take(self, values: list[Any]) -> None:
        self._values = values
        self._space.update((f"value{i}", value) for i, value in enumerate(values))

    def same(self) -> bool:
        """Whether every value is, or equals, what it was."""
        now = [_value(p) for p in self._places]
        changed = [name for (_, name), a, b in zip(self._places, now, self._values) if not _equal(a, b)]
        if changed:
            self.different = tuple(dict.fromkeys(changed))
            return False
        self._take(now)
        return True


_MISSING = object()


def _value(place: Place) -> Any:
    where, name = place
    if isinstance(where, dict):
        return where.get(name, _MISSING)
    try:
        return where.cell_contents
    except ValueError:  # not bound yet, or deleted
        return _MISSING


def _followed(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return not _ours(value)
    return value is not _MISSING and not isinstance(value, _NAMES)


def _ours(function: FunctionType) -> bool:
    module = function.__module__ or ""
    return module == "wavedsl" or module.startswith("wavedsl.")


def _equal(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, _PLAIN) and bool(np.all(a == b)))


def _places(function: Any, seen: set[int]) -> Iterator[Place]:
    """Every place that the function, or a plain function that it names, reads."""
    seen.add(id(function))
    own: list[Place] = [(function.__globals__, name) for name in _globals_read(function.__code__)]
    own += zip(function.__closure__ or (), function.__code__.co_freevars)
    for place in own:
        yield place
        value = _value(place)
        if isinstance(value, FunctionType) and id(value) not in seen and not _ours(value):
            yield from _places(value, seen)


def _globals_read(code: CodeType) -> dict[str, None]:
    """Names of globals that the code and code in it read, in order."""
    found = {str(i.argval): None for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _globals_read(constant)
    return found


def _comparison(places: list[Place], space: dict[str, Any]) -> Callable[[], bool]:
    """A function that compares each place with its value, written out: a loop would cost several times as much."""
    terms = []
    for i, (where, name) in enumerate(places):
        space[f"at{i}"] = where
        read = f"at{i}.cell_contents" if isinstance(where, CellType) else f"at{i}[{name!r}]"
        terms.append(f"{read} is value{i}")
    lines = ["def unchanged():", "    try:", f"        return {' and '.join(terms)}"]
    lines += ["    except (KeyError, ValueError):", "        return False"]
    exec("\n".join(lines), space)
    return space["unchanged"]
