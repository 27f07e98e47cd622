"""Python's cyclic garbage collector, held off while a kernel is compiled or predicted, and while modules are imported.

A compile makes a hundred thousand small objects and drops few cycles, but their number starts full collections that
look at everything the process holds: 40 ms with sympy and networkx alone. The traces that a prediction replays are as
many. The idea: `with PAUSED:` around the compile.

What importing sympy makes stays for good, a hundred thousand objects that each collection meanwhile looks at again.
`with lasting():` around it hands them to the oldest generation unseen.

Uses may nest and overlap over threads; the collector is as it was when the last one ends.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Pause:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._resume = False

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._resume = gc.isenabled()
                gc.disable()
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._resume:
                gc.enable()


PAUSED = _Pause()


@contextmanager
def lasting() -> Iterator[None]:
    """Around what makes objects that stay as long as the process."""
    with PAUSED:
        yield
        if gc.get_freeze_count() == 0:  # else somebody keeps objects from the collector, and wants them kept
            gc.freeze()
            gc.unfreeze()


__all__ = ["PAUSED", "lasting"]
