"""Tracebacks without our frames, of errors that are not ours to look into.

Between the call of a kernel and the line in it that does not fit lie a dozen frames of this package, which tell a user
nothing that the error's text does not. Of a WaveError that leaves the package, and of whatever the user's own
code raises while a kernel is traced, only the user's frames are left. Another exception that begins in this package is
a defect and keeps all of them, as everything does with WAVEDSL_TRACEBACK=full.
"""

from __future__ import annotations

import os
import sys
from types import FrameType, TracebackType

from wavedsl.ir.errors import WaveError
from wavedsl.ir.source import is_library_module, is_ours


def only_users_frames(error: Exception) -> None:
    """Takes our frames, and those of libraries that we called, out of an error's traceback, and out of those of the
    errors that it came from.

    To be called where the error is caught, with a bare `raise` behind it: that adds no frame. Before Python 3.11 such a
    `raise` restores the traceback that was there.
    """
    if os.environ.get("WAVEDSL_TRACEBACK") == "full":
        return
    found, users = _users_part(error.__traceback__)
    if not (users or isinstance(error, WaveError)):
        return
    error.__traceback__ = found
    seen: set[int] = set()
    cause: BaseException | None = error.__cause__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        cause.__traceback__, _ = _users_part(cause.__traceback__)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _users_part(traceback: TracebackType | None) -> tuple[TracebackType | None, bool]:
    """(a traceback of the user's frames alone, whether the innermost one is among them)."""
    kept: list[TracebackType] = []
    inside = users = False
    while traceback is not None:
        ours = is_ours(traceback.tb_frame)
        inside = inside or ours
        users = not (ours or (inside and is_library_code(traceback.tb_frame)))
        if users:
            kept.append(traceback)
        traceback = traceback.tb_next
    found: TracebackType | None = None
    for at in reversed(kept):
        found = TracebackType(found, at.tb_frame, at.tb_lasti, at.tb_lineno)
    return found, users


def is_library_code(frame: FrameType) -> bool:
    """Whether a frame runs code of this package, of Python's library, or of a library that users' expressions call."""
    name = str(frame.f_globals.get("__name__", ""))
    return is_library_module(name) or name.split(".", 1)[0] in sys.stdlib_module_names
