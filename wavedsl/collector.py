"""Python's cyclic garbage collector, held off while a kernel is compiled.

A compile makes a hundred thousand small objects and drops few cycles, but their number starts full collections that
look at everything the process holds: 40 ms with sympy and networkx alone. The idea: `with PAUSED:` around the compile.
Uses may nest and overlap over threads; the collector is as it was when the last one ends.

What is left when the first use of a process ends are modules, tables and the caches of both, which stay: they join the
oldest generation as they are. To find out that none of them is garbage would take the collector 15 ms, at once. Later
uses leave the young to it, so that cycles which compiles drop are found.
"""

from __future__ import annotations

import gc
import threading


class _Pause:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._resume = False
        self._first = True

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
                if self._first and not gc.get_freeze_count():  # what the user has frozen stays so
                    gc.freeze()
                    gc.unfreeze()  # to the oldest generation
                self._first = False
                gc.enable()


PAUSED = _Pause()

__all__ = ["PAUSED"]
