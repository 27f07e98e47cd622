"""What users call of this package, and what its errors show them: their own line and their own frames.

`door` decorates such a function. An error that leaves it towards a user's frame points at that call where it points
nowhere; a LaunchError moves there from where the argument is declared, to the expression that was passed where it names
one (`Argument`). The traceback has the user's frames alone (`tracebacks`). Where this package calls a door of its own,
the error goes on to the door further out; where there is none (a command line, a thread of ours) it stays as it is.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, TypeVar

from wavedsl.ir.errors import LaunchError, WaveError
from wavedsl.ir.loc import Loc
from wavedsl.ir.source import is_ours, locate
from wavedsl.ir.tracebacks import is_library_code, only_users_frames

Called = TypeVar("Called", bound=Callable[..., Any])

_STRATEGIES = "wavedsl.strategies"


def door(function: Called) -> Called:
    """A decorator for a function that users call, or a method of a kernel, whose arguments then are the kernel's
    (`argument_names`)."""
    parameters = tuple(inspect.signature(function).parameters)
    method = parameters[:1] == ("self",)
    name = function.__name__

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            leave(error, args[0].argument_names if method else parameters, name)
            raise

    return call  # type: ignore[return-value]


def leave(error: Exception, parameters: Sequence[str], name: str) -> None:
    """What the door `name`, whose parameters these are, does to an error; a bare `raise` follows. For those that do so
    themselves, because a call must not cost another frame."""
    frame = sys._getframe(2)
    if is_ours(frame):
        return
    if not is_library_code(frame):
        if isinstance(error, LaunchError):
            if not error.at_call:
                _point_at_call(error, frame, parameters, name)
        elif isinstance(error, WaveError) and error.location is None:
            error.location = locate(frame.f_code, frame.f_lasti, frame.f_lineno)
    only_users_frames(error)


class Argument:
    """While the argument of that name is looked at: a LaunchError is about it."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, LaunchError):
            error.argument = error.argument or self.name


def _point_at_call(error: LaunchError, frame: FrameType, parameters: Sequence[str], name: str) -> None:
    error.at_call = True
    call = locate(frame.f_code, frame.f_lasti, frame.f_lineno)
    before = error.location
    if before is not None and before != call and not _is_inside(before):
        error.declared = before
    error.location = call
    if error.argument in parameters:
        error.location = _argument(frame, call, error.argument, parameters, name) or call


def _is_inside(loc: Loc) -> bool:
    """Whether a kernel of this package is declared there, which is no help to who called a function of it."""
    return any(
        name.startswith(_STRATEGIES) and getattr(module, "__file__", None) == loc.file
        for name, module in list(sys.modules.items())
    )


def _argument(frame: FrameType, call: Loc, name: str, parameters: Sequence[str], door: str) -> Loc | None:
    """The expression that is passed for parameter `name` in the call of `door` at `call`; None where that cannot be
    seen."""
    node = _call_at(call)
    if node is None or any(isinstance(x, ast.Starred) for x in node.args):
        return None
    named = {k.arg: k.value for k in node.keywords}
    given: ast.expr | None = named.get(name)
    whole = len(node.args) + sum(p in named for p in parameters) == len(parameters)
    if given is None and (whole or _is_plain(node.func, frame, door)):
        at = parameters.index(name)
        given = node.args[at] if at < len(node.args) else None
    if given is None:
        return None
    raw = linecache.getline(call.file, given.lineno).encode()
    end = raw[: given.end_col_offset].decode(errors="replace") if given.end_lineno == given.lineno else ""
    return Loc(
        call.file, given.lineno, len(raw[: given.col_offset].decode(errors="replace")), len(end), call.function
    )


def _is_plain(function: ast.expr, frame: FrameType, door: str) -> bool:
    """Whether a call of `function` gives its first argument for the first parameter: not so of a `functools.partial`,
    to which a call that leaves arguments out may be."""
    if isinstance(function, ast.Attribute):
        return function.attr == door
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
