"""The user's call of a kernel, for errors of its arguments: which line it is on, and where each argument stands in it.

A LaunchError inside of `with Passing(…)` moves from where an argument is declared to the call that passes it. Where
nobody's call is on the stack (a command line, a thread of ours) it stays as it is.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Sequence
from types import FrameType

from wavedsl.ir.errors import LaunchError
from wavedsl.ir.loc import Loc
from wavedsl.ir.source import is_ours, locate
from wavedsl.ir.tracebacks import is_wrapper

_DOORS = ("__call__", "compile", "bind", "evaluate", "emulate", "precompile")
"""Methods of kernels, tuned and compiled ones whose arguments are the kernel's, in its order."""

_STRATEGIES = "wavedsl.strategies"
_STARTS = ("threading", "concurrent", "multiprocessing", "runpy", "wavedsl.cli", "wavedsl.__main__")
"""Modules behind which no user's call is to be found."""


class Passing:
    """While the arguments of a kernel with these `parameters`, in order, are looked at: `argument` of them if given."""

    __slots__ = ("argument", "parameters")

    def __init__(self, parameters: Sequence[str], argument: str = ""):
        self.parameters, self.argument = parameters, argument

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, LaunchError) and not error.at_call:
            error.argument = error.argument or self.argument
            _point_at_call(error, self.parameters)


def _point_at_call(error: LaunchError, parameters: Sequence[str]) -> None:
    frame: FrameType | None = sys._getframe(1)
    door = ""
    while frame is not None and is_ours(frame):
        if _starts(frame):
            return
        door = door if is_wrapper(frame) else frame.f_code.co_name
        frame = frame.f_back
    if frame is None or _starts(frame):
        return
    error.at_call = True
    call = locate(frame.f_code, frame.f_lasti, frame.f_lineno)
    before = error.location
    if before is not None and before != call and not _is_inside(before):
        error.declared = before
    error.location = call
    if error.argument in parameters and door in _DOORS:
        error.location = _argument(frame, call, error.argument, parameters) or call


def _is_inside(loc: Loc) -> bool:
    """Whether a kernel of this package is declared there, which is no help to who called a function of it."""
    return any(
        name.startswith(_STRATEGIES) and getattr(module, "__file__", None) == loc.file
        for name, module in list(sys.modules.items())
    )


def _starts(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return any(name == start or name.startswith(start + ".") for start in _STARTS)


def _argument(frame: FrameType, call: Loc, name: str, parameters: Sequence[str]) -> Loc | None:
    """The expression that is passed for parameter `name` in the call at `call`; None where that cannot be seen."""
    node = _call_at(call)
    if node is None or any(isinstance(x, ast.Starred) for x in node.args):
        return None
    named = {k.arg: k.value for k in node.keywords}
    given: ast.expr | None = named.get(name)
    whole = len(node.args) + sum(p in named for p in parameters) == len(parameters)
    if given is None and (whole or _is_plain(node.func, frame)):
        at = parameters.index(name)
        given = node.args[at] if at < len(node.args) else None
    if given is None:
        return None
    raw = linecache.getline(call.file, given.lineno).encode()
    end = raw[: given.end_col_offset].decode(errors="replace") if given.end_lineno == given.lineno else ""
    return Loc(
        call.file, given.lineno, len(raw[: given.col_offset].decode(errors="replace")), len(end), call.function
    )


def _is_plain(function: ast.expr, frame: FrameType) -> bool:
    """Whether a call of `function` gives its first argument for the first parameter: not so of a `functools.partial`,
    to which a call that leaves arguments out may be."""
    if isinstance(function, ast.Attribute):
        return function.attr in _DOORS
    if not isinstance(function, ast.Name):
        return False
    found = frame.f_locals.get(function.id, frame.f_globals.get(function.id))
    return found is not None and not isinstance(found, functools.partial)


def _call_at(call: Loc) -> ast.Call | None:
    """The call expression that `call` is the location of: of those that begin there the one that ends there, else the
    longest."""
    try:
        tree = ast.parse("".join(linecache.getlines(call.file)))
    except (SyntaxError, ValueError):  # a notebook cell with magics
        return None
    text = call.text()
    begin, end = (len(text[:n].encode()) for n in (call.col, call.end_col))
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and (n.lineno, n.col_offset) == (call.line, begin)]
    ends = [n for n in found if n.end_lineno == call.line and n.end_col_offset == end]
    return max(ends or found, key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0), default=None)
