"""Runs the user's functions on proxies, and says in the user's terms what goes wrong in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType, ModuleType
from typing import Any

from wavedsl.ir.errors import TraceError, WaveError
from wavedsl.ir.source import from_traceback
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
    except (NameError, TypeError, AttributeError) as error:
        loc, ours = from_traceback(error.__traceback__)
        if loc is None or ours:
            raise
        text = str(error)
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        frame = traceback.tb_frame if traceback is not None else None
        hint = advice.for_exception(text, frame)
        if isinstance(error, NameError) and error.name:
            space = {**frame.f_globals, **frame.f_locals} if frame is not None else {}
            hint = suggest(error.name, space, f"define {error.name} before it is used")
            text = text.split(". Did you mean")[0]
        elif isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
            name, module = str(error.name), error.obj.__name__
            hint = advice.for_missing(name, module) or suggest(name, dir(error.obj), f"see dir({module})")
        raise TraceError(text, loc, hint=hint) from error


def parameter_at(code: CodeType, position: int) -> str:
    """Name of the parameter that takes a positional argument; that of `*rest` takes all behind the others."""
    last = code.co_argcount + code.co_kwonlyargcount
    return code.co_varnames[position if position < code.co_argcount else last]
