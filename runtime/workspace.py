"""Memory that kernels ask for beside their arguments: sums of parts, and counters that are 0 before and after a launch.

In: what a launch needs (`Room`s among its values) and the stream it goes to. Out: addresses. What a stream is given
runs in order, so one piece per device, context and stream serves all its launches; it grows, is never given back, and
its counters are cleared on the stream when it is made. Launches that are captured get a piece of their graph's, which
may run beside the stream later: it is cleared by the graph itself, lives as long as the graph (`in_flight`), and goes
to the next one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime import in_flight
from wavedsl.runtime.devices import Driver

SUMS, TICKETS = "sums", "tickets"
"""`Param.source` of sums of parts, and of counters."""
ROOMS = (SUMS, TICKETS)
ALIGN = 256
"""Bytes that arrays in a piece are aligned to, as the drivers' own."""
PER_THREAD = 2
"""The handle of CUDA's per-thread default stream: another one in each thread."""
UNWRITTEN = 0xFF
"""Bytes of sums on the emulator before a launch: NaN in every float."""


@dataclass(frozen=True)
class Room:
    """One hidden array of a launch, row-major."""

    name: str
    shape: tuple[int, ...]
    storage: np.dtype
    counters: bool

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.storage.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""
        return tuple(prod(self.shape[i + 1 :]) for i in range(len(self.shape)))

    def fresh(self, unwritten: bool = True, arrived: int = 0) -> np.ndarray:
        """The array as the emulator brings it: counters of those that have `arrived`, sums that show that nobody wrote
        them."""
        array = np.zeros(self.shape, self.storage)
        if self.counters:
            array[...] = arrived
        elif unwritten:
            array.view(np.uint8)[...] = UNWRITTEN
        return array


@dataclass(frozen=True)
class Need:
    """What one launch needs. `places`: per parameter that is a room, whether it holds counters, and its byte there."""

    counters: int
    sums: int
    places: tuple[tuple[int, bool, int], ...]


def need_of(values: Sequence[Any]) -> Need | None:
    """The rooms among a call's values; None where there is none."""
    tops = [0, 0]
    places = []
    for i, value in enumerate(values):
        if isinstance(value, Room):
            places.append((i, value.counters, tops[value.counters]))
            tops[value.counters] += -(-value.nbytes // ALIGN) * ALIGN
    return Need(tops[True], tops[False], tuple(places)) if places else None


class Loan:
    """A piece of memory: addresses of counters and of sums, and how many bytes there are of each."""

    __slots__ = ("__weakref__", "_spare", "counters", "sizes", "sums")

    def __init__(self, counters: int, sums: int, sizes: tuple[int, int], spare: list[Any] | None = None):
        self.counters, self.sums, self.sizes, self._spare = counters, sums, sizes, spare

    def fits(self, need: Need) -> bool:
        return need.counters <= self.sizes[0] and need.sums <= self.sizes[1]

    def addresses(self, need: Need) -> dict[int, int]:
        """Parameter → address."""
        return {i: (self.counters if counters else self.sums) + at for i, counters, at in need.places}

    def __del__(self) -> None:
        if self._spare is not None:
            self._spare.append((self.counters, self.sums, self.sizes))


class Workspaces:
    """The pieces of one device. `lend` may be called from any thread."""

    def __init__(self, driver: Driver):
        self.driver = driver
        self._lock = threading.Lock()
        self._loans: dict[Any, Loan] = {}
        self._outgrown: list[Loan] = []
        """Pieces that a stream may still use: they stay."""
        self._of_graphs: weakref.WeakValueDictionary[Any, Loan] = weakref.WeakValueDictionary()
        self._spare: dict[int, list[Any]] = {}
        """Per context, what dead graphs had."""

    def lend(self, stream: int, need: Need) -> Loan:
        """A piece for a launch on the stream. Whoever launches into a graph keeps it until the graph has died."""
        driver = self.driver
        graph = driver.capture(stream) if stream > 1 and driver.capturing(stream) else None
        thread = threading.get_ident() if stream == PER_THREAD else 0
        key = (driver.current(), stream, thread, graph)
        loans: Any = self._loans if graph is None else self._of_graphs
        found: Loan | None = loans.get(key)
        if found is not None and found.fits(need):
            return found
        if graph is not None:
            in_flight.of(driver).release(settle=False)  # what dead graphs had
        with self._lock:
            found = loans.get(key)
            if found is None or not found.fits(need):
                if found is not None and graph is None:
                    self._outgrown.append(found)
                old = (0, 0) if found is None else found.sizes
                made = self._new(need, old, key[0] if graph is not None else None)
                driver.clear(made.counters, made.sizes[0], stream)
                found = loans[key] = made
        return found

    def _new(self, need: Need, old: tuple[int, int], graph_of: int | None) -> Loan:
        """A piece as large as needed, in powers of two: what is outgrown adds up to less than what is in use."""
        spare = None if graph_of is None else self._spare.setdefault(graph_of, [])
        for i, (counters, sums, had) in enumerate(spare or ()):
            if spare is not None and need.counters <= had[0] and need.sums <= had[1]:
                del spare[i]
                return Loan(counters, sums, had, spare)
        sizes = _grown(need.counters, old[0]), _grown(need.sums, old[1])
        new = self.driver.allocate if graph_of is None else self.driver.allocate_in_capture
        return Loan(new(sizes[0]), new(sizes[1]), sizes, spare)


def _grown(need: int, had: int) -> int:
    return max(had, 1 << max(need - 1, ALIGN - 1).bit_length())


_ALL: dict[int, Workspaces] = {}


def of(driver: Driver) -> Workspaces:
    """Those of a driver."""
    found = _ALL.get(id(driver))
    if found is None or found.driver is not driver:
        found = _ALL[id(driver)] = Workspaces(driver)
    return found


def borrow(driver: Driver, values: Sequence[Any], stream: int) -> tuple[dict[int, int], Loan | None]:
    """(parameter → address of every room, what holds them) for one launch."""
    need = need_of(values)
    if need is None:
        return {}, None
    loan = of(driver).lend(stream, need)
    return loan.addresses(need), loan


__all__ = ["ROOMS", "SUMS", "TICKETS", "Loan", "Need", "Room", "Workspaces", "borrow", "need_of", "of"]
