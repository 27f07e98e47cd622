"""Runs the user's functions on proxies, and says in the user's terms what goes wrong in them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from inspect import signature
from types import CodeType, FunctionType, ModuleType, TracebackType
from typing import Any

from wavedsl.ir.errors import TraceError, WaveError
from wavedsl.ir.loc import Loc
from wavedsl.ir.source import from_traceback, is_library_module, locate
from wavedsl.tracer import advice
from wavedsl.tracer.annotations import suggest


def call_user(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Runs a user's function on proxies. What a mistake in it raises becomes a TraceError at the user's line."""
    try:
        return function(*arguments)
    except WaveError as error:
        if error.location is None:
            error.location = from_traceback(error.__traceback__)[0]
        raise
    except RecursionError as error:
        raise TraceError(
            "functions call each other without an end while the kernel is traced",
            _first_turn(error.__traceback__),
            hint="Python's recursion ends by numbers that are known then; what ends by a value is "
            "wd.while_loop(condition, body, init_args)",
        ) from error
    except (NameError, TypeError, AttributeError) as error:
        loc, ours = from_traceback(error.__traceback__)
        if loc is None or ours:
            raise
        text = str(error)
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        frame = traceback.tb_frame if traceback is not None else None
        hint = advice.for_exception(text, frame, loc)
        if "does not support ufuncs" in text:
            text = "a traced value is no array of NumPy's"
        if type(error) is NameError and error.name:
            space = {**frame.f_globals, **frame.f_locals} if frame is not None else {}
            hint = suggest(error.name, space, f"define {error.name} before it is used")
            text = text.split(". Did you mean")[0]
        elif isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
            name, module = str(error.name), error.obj.__name__
            hint = advice.for_missing(name, module) or suggest(name, dir(error.obj), f"see dir({module})")
        raise TraceError(text, loc, hint=hint) from error


def _first_turn(traceback: TracebackType | None) -> Loc | None:
    """Where functions that call each other without an end come round for the first time: of the user's frames the
    outermost ones as far as each is another place. (The innermost frame may be anybody's.)"""
    found: Loc | None = None
    seen: set[tuple[CodeType, int]] = set()
    while traceback is not None:
        frame = traceback.tb_frame
        module = str(frame.f_globals.get("__name__", ""))
        if is_library_module(module) or module.partition(".")[0] in sys.stdlib_module_names:
            traceback = traceback.tb_next
            continue
        if (frame.f_code, traceback.tb_lasti) in seen:
            break
        seen.add((frame.f_code, traceback.tb_lasti))
        found = locate(frame.f_code, traceback.tb_lasti, traceback.tb_lineno, found)
        traceback = traceback.tb_next
    return found


def parameter_at(code: CodeType, position: int) -> str:
    """Name of the parameter that takes a positional argument; that of `*rest` takes all behind the others."""
    last = code.co_argcount + code.co_kwonlyargcount
    return code.co_varnames[position if position < code.co_argcount else last]


def accepts(function: FunctionType, count: int) -> bool:
    """Whether a call with `count` positional arguments fits; parameters beyond them keep their default values."""
    try:
        signature(function).bind(*range(count))
    except TypeError:
        return False
    return True
