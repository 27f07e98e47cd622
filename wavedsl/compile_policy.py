"""When a call may compile, and what is said about it.

`WAVEDSL_STRICT=1`: a call that finds no compiled kernel raises instead of compiling; `precompile`, `compile` and tuning
are what the user asked for and go on. Every compile that a call starts is logged to the logger `wavedsl` at INFO with
the reason; `WAVEDSL_LOG=1` prints the lines to standard error.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

LOGGER = logging.getLogger("wavedsl")


class _Stderr(logging.Handler):
    """Prints to the standard error of the moment of printing, not of import."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"wavedsl: {record.getMessage()}", file=sys.stderr)


_HANDLER = _Stderr()


def strict() -> bool:
    """Whether calls must not compile."""
    return os.environ.get("WAVEDSL_STRICT", "") not in ("", "0")


def log(message: str, *values: Any) -> None:
    """One line at INFO."""
    printing = os.environ.get("WAVEDSL_LOG", "") not in ("", "0")
    if printing and _HANDLER not in LOGGER.handlers:
        LOGGER.addHandler(_HANDLER)
        LOGGER.setLevel(min(LOGGER.level or logging.INFO, logging.INFO))
    elif not printing and _HANDLER in LOGGER.handlers:
        LOGGER.removeHandler(_HANDLER)
    LOGGER.info(message, *values)
