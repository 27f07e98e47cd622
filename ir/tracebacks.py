"""Tracebacks without our frames, of errors that are not ours to look into.

Between the call of a kernel and the line in it that does not fit lie a dozen frames of this package, which tell a user
nothing that the error's text does not. What users call is `filtered`: of a WaveError, and of whatever the user's own
code raises while a kernel is traced, only the user's frames are left. Another exception that begins in this package is
a defect and keeps all of them, as everything does with WAVEDSL_TRACEBACK=full.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

from wavedsl.ir.errors import WaveError
from wavedsl.ir.source import is_library_module, is_ours

Called = TypeVar("Called", bound=Callable[..., Any])


def filtered(function: Called) -> Called:
    """A decorator for what users call, where a call may cost a frame more."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            only_users_frames(error)
            raise

    return call  # type: ignore[return-value]


def is_wrapper(frame: FrameType) -> bool:
    """Whether a frame is a call of what was `filtered`, on its way to the function itself."""
    return frame.f_globals is globals() and frame.f_code.co_name == "call"


def only_users_frames(error: Exception) -> None:
    """Takes our frames, and those of libraries that we called, out of an error's traceback.

    To be called where the error is caught, with a bare `raise` behind it: that adds no frame. Before Python 3.11 such a
    `raise` restores the traceback that was there.
    """
    if os.environ.get("WAVEDSL_TRACEBACK") == "full":
        return
    kept: list[TracebackType] = []
    inside = users = False
    at = error.__traceback__
    while at is not None:
        ours = is_ours(at.tb_frame)
        inside = inside or ours
        users = not (ours or (inside and _is_called_by_us(at)))
        if users:
            kept.append(at)
        at = at.tb_next
    if users or isinstance(error, WaveError):
        found: TracebackType | None = None
        for frame in reversed(kept):
            found = TracebackType(found, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
        error.__traceback__ = found


def _is_called_by_us(traceback: TracebackType) -> bool:
    name = str(traceback.tb_frame.f_globals.get("__name__", ""))
    return is_library_module(name) or name.split(".", 1)[0] in sys.stdlib_module_names
