"""The options of a tuning run, checked before anything runs."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from wavedsl.ir.errors import ConstraintError
from wavedsl.tuning.progress import Progress


def check_options(options: dict[str, Any]) -> None:
    """Raises ConstraintError for an option of `tune` that has no meaning; those that are not there count as right."""
    for name, (legal, hint) in _LEGAL.items():
        if name in options and not legal(options[name]):
            raise ConstraintError(f"tune: {name}={options[name]!r}", hint=hint)
    check_reference(options.get("reference"), options.get("executor"))


def check_reference(reference: Any, executor: Any) -> None:
    """Raises ConstraintError for a reference that no worker process could call."""
    if reference is None:
        return
    if not callable(reference):
        raise ConstraintError(
            f"tune: reference={reference!r}", hint="a function of the arguments by name that makes the outputs in place"
        )
    if isinstance(executor, ThreadPoolExecutor):
        return
    try:
        pickle.dumps(reference)
    except Exception as error:
        raise ConstraintError(
            f"tune: the reference {getattr(reference, '__qualname__', repr(reference))} cannot be sent to a worker "
            f"process: {error}",
            hint="define it with def at the top level of a module, not as a lambda or inside a function",
        ) from None


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


_LEGAL = {
    "budget": (lambda v: _number(v) and v >= 0, "seconds of wall time, from 0 (try nothing) on"),
    "limit": (_count, "how many candidates are compiled at most: a whole number from 1 on"),
    "keep": (lambda v: _number(v) and 0 < v <= 1, "the share of compiled candidates that runs: above 0, at most 1"),
    "at_least": (_count, "how many candidates run at least: a whole number from 1 on"),
    "executor": (
        lambda v: v is None or isinstance(v, Executor), "a concurrent.futures.Executor, such as ProcessPoolExecutor(4)"
    ),
    "workers": (lambda v: v is None or _count(v), "how many processes: a whole number from 1 on"),
    "timeout": (lambda v: _number(v) and v > 0, "seconds that one step of one candidate may take, above 0"),
    "progress": (lambda v: v is None or isinstance(v, (bool, Progress)), "True, False, None or a Progress"),
}  # fmt: skip
