"""Symbols: the names of dimensions and of compile-time sizes, and the few questions asked of expressions over them.

sympy is the language in which users write extents and tiles. Every symbol is a whole number and not negative, and sympy
knows no more than that: an extent is positive, but in an `IndexMapping` the symbol stands for an index, and sympy must
not make `N - 1` of `Max(N - 1, 0)`. Expressions become integers in `evaluate`, once per compile; nothing downstream of
that computes with sympy.
"""

from __future__ import annotations

import enum
import keyword
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import sympy
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.options import with_options
from wavedsl.ir.source import here

Dim = Any
"""The name of a dimension: a symbol, or for a derived extent (`K / 32`) the expression itself."""


class Dynamic(enum.Enum):
    """The value of a dimension that is an argument of the kernel and not known while compiling."""

    DYNAMIC = "dynamic"

    def __repr__(self) -> str:
        return "DYNAMIC"


DYNAMIC = Dynamic.DYNAMIC


class AddressSpace(enum.Enum):
    """Where the tiles of an array argument go on their way to registers."""

    GLOBAL = "global"
    SHARED = "shared"

    def __repr__(self) -> str:
        return self.name


GLOBAL = AddressSpace.GLOBAL
SHARED = AddressSpace.SHARED

_INTERNED: dict[str, sympy.Symbol] = {}


def symbol(name: str) -> sympy.Symbol:
    """The one symbol of this name, a whole number that is not negative: as an index it may be 0."""
    found = _INTERNED.get(name)
    if found is None:
        if not name.isidentifier() or keyword.iskeyword(name):
            said = f"{name!r} is not a name for a symbol"
            raise ConstraintError(said, here(calls=False), hint="use a Python identifier")
        found = _INTERNED[name] = sympy.Symbol(name, integer=True, nonnegative=True)
    return found


@with_options(example='wd.symbols("M N K"): sizes, whole and not negative')
def symbols(names: str) -> tuple[sympy.Symbol, ...]:
    """Symbols from names separated by blanks or commas: `M, N = symbols("M N")`.

    Always a tuple, also for one name. Equal names give equal symbols, wherever they are made.
    """
    if not isinstance(names, str):
        raise ConstraintError(f"symbols({names!r})", here(calls=False), hint='one text: wd.symbols("M N K")')
    found = tuple(symbol(name) for name in names.replace(",", " ").split())
    if not found:
        raise ConstraintError("symbols() got no names", here(calls=False), hint='name them: wd.symbols("M N K")')
    return found


def taken_apart(value: Any, otherwise: str) -> str:
    """What helps where `value` stands for a symbol: a tuple of one symbol is what `symbols("BM")` gave."""
    if isinstance(value, tuple) and len(value) == 1 and isinstance(value[0], sympy.Symbol):
        return f"wd.symbols gives a tuple; a single symbol is {value[0]} = wd.sym.{value[0]}"
    return otherwise


_FUNCTIONS = frozenset({"ceiling", "floor", "Min", "Max", "Mod"})
"""What expressions of extents are made of, beside sums, products and quotients."""


def parse(text: str) -> Any:
    """The expression that `str` has written. Symbols have names that sympy has for its own, such as N and S."""
    names = set(re.findall(r"[^\W\d]\w*", text)) - _FUNCTIONS
    return sympy.sympify(text, locals={name: symbol(name) for name in names})


class SymbolSource:
    """`sym.M` is the symbol named M."""

    def __getattr__(self, name: str) -> sympy.Symbol:
        if name.startswith("_"):
            raise AttributeError(name)
        return symbol(name)

    def __repr__(self) -> str:
        return "sym"


sym = SymbolSource()


def normalise(value: Any) -> Any:
    """`value` with foreign symbols (plain `sympy.symbols`) replaced by ours of the same name; ints become sympy's."""
    if isinstance(value, sympy.Symbol):
        return symbol(value.name)
    if isinstance(value, sympy.Expr):
        foreign = {s: symbol(s.name) for s in value.free_symbols if _INTERNED.get(s.name) != s}
        return value.xreplace(foreign) if foreign else value
    if isinstance(value, int) and not isinstance(value, bool):
        return sympy.Integer(value)
    raise TypeError(f"{value!r} is not an extent")


def is_dim(value: Any) -> bool:
    """Whether `value` can name or size a dimension: a symbol, an expression over symbols, a whole number."""
    return isinstance(value, sympy.Expr) or (isinstance(value, int) and not isinstance(value, bool))


def dim_name(dim: Any) -> str:
    """What `str` gives, without sympy's printer for a plain symbol."""
    return dim.name if type(dim) is sympy.Symbol else str(dim)


@lru_cache(maxsize=1024)
def free_names(expr: Any) -> tuple[str, ...]:
    """Names of the symbols in an expression, in order."""
    return tuple(sorted(map(dim_name, expr.free_symbols)))


def names(dims: Iterable[Any]) -> str:
    """`M, N` for messages and listings."""
    return ", ".join(map(dim_name, dims))


def evaluate(expr: Any, env: Mapping[sympy.Symbol, Any]) -> int | Dynamic | sympy.Expr:
    """`expr` under `env`: an int; DYNAMIC where it depends on a dynamic symbol; else the remaining expression.

    A value that is not whole stays a sympy number, for the caller to refuse with its own words.
    """
    if isinstance(expr, int):
        return expr
    if expr.is_Symbol:
        got = env.get(expr, expr)
        return int(got) if isinstance(got, sympy.Integer) else got
    if expr.is_Integer:
        return int(expr)
    known = {}
    for s in expr.free_symbols:
        value = env.get(s)
        if value is DYNAMIC:
            return DYNAMIC
        if value is not None:
            known[s] = sympy.Integer(value) if isinstance(value, int) else value
    result = expr.xreplace(known)
    if result.is_Integer:
        return int(result)
    return result


def with_numbers(expr: Any, env: Mapping[sympy.Symbol, Any]) -> Any:
    """`expr` with those of its symbols replaced that have a number."""
    return expr.xreplace({s: sympy.Integer(env[s]) for s in expr.free_symbols if isinstance(env.get(s), int)})


def is_whole(expr: Any) -> bool:
    """Whether `expr` is a whole number by its form, whatever its symbols are: `N / 2` is not, `N // 2` is."""
    if expr.is_Integer or expr.is_Symbol or expr.func.__name__ in ("floor", "ceiling"):
        return True
    if expr.is_Pow:
        return is_whole(expr.base) and bool(expr.exp.is_Integer) and not expr.exp.is_negative
    whole = expr.is_Add or expr.is_Mul or expr.func.__name__ in ("Mod", "Min", "Max", "Abs")
    return bool(whole) and all(map(is_whole, expr.args))


def evaluate_int(expr: Any, env: Mapping[sympy.Symbol, Any]) -> int:
    """`evaluate` where every symbol has a number. Raises TypeError where one has not."""
    found: Any = evaluate(expr, env)
    return int(found)


def solve(expr: Any, value: int) -> int | None:
    """The whole number for the one symbol of `expr` with which `expr` is `value`: 4 for `K / 32` is K = 128. None where
    there is no such number, or several."""
    (unknown,) = expr.free_symbols
    line = _line(expr, unknown)
    if line is not None:
        n = (value - line[1]) / line[0]
        return int(n) if n.is_Integer and n >= 0 else None
    try:
        solutions = sympy.solve(sympy.Eq(expr, value), unknown, dict=False)
    except NotImplementedError:  # sympy's word for equations that it cannot solve: those of `K // 32` have 32 solutions
        return None
    found = [n for n in solutions if n.is_Integer and n >= 0]
    return int(found[0]) if len(found) == 1 else None


@lru_cache(maxsize=1024)
def _line(expr: Any, unknown: Any) -> tuple[Any, Any] | None:
    """(slope, value at 0) of an expression that is a straight line in `unknown`: launches with extents that are new ask
    for them, and sympy's solver takes a millisecond."""
    start = expr.xreplace({unknown: sympy.Integer(0)})
    slope = sympy.cancel((expr - start) / unknown)
    return (slope, start) if slope.is_Rational and start.is_Rational else None


def scale_of(expr: Any, dim: sympy.Symbol) -> sympy.Expr | None:
    """The factor c with `expr == c * dim`, c free of `dim`; None where `expr` is no such multiple."""
    if expr == dim:
        return sympy.Integer(1)
    if not isinstance(expr, sympy.Expr) or dim not in expr.free_symbols:
        return None
    factor = sympy.cancel(expr / dim)
    return None if dim in factor.free_symbols else factor
