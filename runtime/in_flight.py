"""What launches use lives until their stream is done with it, and with a graph until the graph has died.

Drivers copy parameters while they are told to launch, tensor maps among them; arrays are what has to stay. Memory of
torch and CuPy goes back to their allocators in the order of the stream, so launches on it hold nothing. Arrays of
others are held until an event behind the launch has passed. Where launches of the same arrays follow each other on a
stream that is never destroyed, the event is recorded when other arrays come, for all of them at once: they are held a
launch longer then, and the launches cost nothing. A captured launch hands its arrays to the graph: the driver
posts a semaphore when the graph and all that was made of it are gone. (A callback into Python would have to wait for
the interpreter's lock on a thread of the driver's.)

What is done with is let go at the next launch on the stream that holds something, at captures, and by `release`.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from operator import is_
from typing import Any

from wavedsl.runtime.devices import Driver

_SEMAPHORE_BYTES = 64
"""Room for a `sem_t`: 32 bytes with glibc on 64-bit systems."""

FEW = 16
"""Captured launches that are always worth a look at whether their graph has died."""


@lru_cache(maxsize=1)
def _libc() -> Any:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = (ctypes.c_size_t,)
    for name in ("free", "sem_trywait", "sem_destroy"):
        getattr(libc, name).argtypes = (ctypes.c_void_p,)
    libc.sem_init.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint)
    return libc


class _Held:
    """What a launch may still use, and the mark behind it on its stream; `behind`: more launches of it may have come
    behind the mark."""

    __slots__ = ("addresses", "arrays", "behind", "exports", "mark")

    def __init__(self, mark: Any, arrays: Sequence[Any], exports: Sequence[Any], addresses: tuple[int, ...]):
        self.mark, self.arrays, self.exports, self.addresses = mark, arrays, exports, addresses
        self.behind = False


class InFlight:
    """Arrays that launches on one device may still use. All methods may be called from any thread."""

    def __init__(self, driver: Driver):
        self.driver = driver
        self._lock = threading.Lock()
        self._streams: dict[int, deque[_Held]] = {}
        self.again: dict[int, tuple[Any, ...]] = {}
        """Stream → what was launched on it last, if another launch of the same needs no `hold`: what is current in the
        thread and the addresses, then the arrays. To be looked at behind the launch."""
        self._graphs: dict[int, Any] = {}
        self._look_at = FEW

    def hold(
        self,
        stream: int,
        arrays: Sequence[Any],
        exports: Sequence[Any] = (),
        addresses: tuple[int, ...] = (),
        current: int | None = None,
    ) -> None:
        """Keep `arrays` until `stream` has passed what it has been given so far, and with them `exports`, what they
        gave to be read. `current` is what the driver says to be current in this thread, if that is known.

        A launch of the same arrays, at the same `addresses`, as the one before it moves that one's mark, or will when
        other arrays come. The first exports are kept then: as long as they live, nothing else is at their addresses.
        """
        driver = self.driver
        if current is None:
            current = driver.current()
        done: list[Any] = []  # arrays' own destructors run outside of the lock: they may launch or release themselves
        with self._lock:
            waiting = self._streams.get(stream)
            if waiting is None:
                waiting = self._streams[stream] = deque()
            elif waiting:
                last = waiting[-1]
                if addresses and last.addresses == addresses and all(map(is_, last.arrays, arrays)):
                    if driver.lasting(last.mark, stream, current):
                        last.behind = True
                        self.again[stream] = ((current, *addresses), *arrays)
                        return
                    if driver.move(last.mark, stream, current):
                        return
                self._settle(stream, last)
            while waiting and driver.passed(waiting[0].mark):
                done.append(waiting.popleft())
            waiting.append(_Held(driver.mark(stream, current), arrays, exports, addresses))

    def _settle(self, stream: int, last: _Held) -> None:
        """Set the mark of the last launches on a stream behind all of them.

        ORDER: who launches looks at `again` behind the launch, so what is no longer there is in front of the mark.
        """
        if last.behind:
            self.again.pop(stream, None)
            self.driver.move(last.mark, stream, None)
            last.behind = False

    def hold_for_graph(self, stream: int, kept: Any) -> None:
        """Keep `kept` until the graph that `stream` is being captured into has died."""
        libc = _libc()
        semaphore = libc.malloc(_SEMAPHORE_BYTES)
        libc.sem_init(semaphore, 0, 0)
        with self._lock:
            self._graphs[semaphore] = kept
        try:
            self.driver.at_end_of_graph(stream, ctypes.cast(libc.sem_post, ctypes.c_void_p).value or 0, semaphore)
        except BaseException:
            with self._lock:
                del self._graphs[semaphore]
            libc.free(semaphore)
            raise
        if len(self._graphs) >= self._look_at:  # a graph may have thousands of launches: not all in each of them
            self.release(settle=False)
            self._look_at = max(FEW, 2 * len(self._graphs))

    def release(self, settle: bool = True) -> None:
        """Let go of what is done with. Without `settle` nothing is given to a stream, as in a capture, and what was
        launched again and again on one that is never destroyed stays."""
        done: list[Any] = []
        with self._lock:
            for stream, waiting in list(self._streams.items()):
                if waiting and settle:
                    self._settle(stream, waiting[-1])
                while waiting and not waiting[0].behind and self.driver.passed(waiting[0].mark):
                    done.append(waiting.popleft())
                if not waiting:
                    del self._streams[stream]
            for semaphore in list(self._graphs):
                if _libc().sem_trywait(semaphore) == 0:
                    done.append(self._graphs.pop(semaphore))
                    _libc().sem_destroy(semaphore)
                    _libc().free(semaphore)
        del done

    def __len__(self) -> int:
        """Launches and graphs that something is held for."""
        with self._lock:
            return len(self._graphs) + sum(map(len, self._streams.values()))


_ALL: dict[int, InFlight] = {}


def of(driver: Driver) -> InFlight:
    """The one of a driver."""
    found = _ALL.get(id(driver))
    if found is None or found.driver is not driver:
        found = _ALL[id(driver)] = InFlight(driver)
    return found
