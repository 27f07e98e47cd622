"""Which nodes have to be looked at again when a class of values gets its layout.

In: the values of a graph in order, with the classes that each of them looks at. Out: sweeps over the values, in order,
that leave out those for which nothing has changed since they were looked at last.

Invariant: a sweep does what one over all values would do. A value that was left out would have found the same layouts
as the last time, when it changed nothing, or what it changed is theirs. In a kernel of thousands of values with a class
per element of a matrix, chosen one after the other, a sweep over all for each class took most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.layouts.layout import Layout


class Chosen(dict[int, Layout]):
    """Class → its layout. `fresh`: classes that got one since somebody asked."""

    def __init__(self, known: Iterable[tuple[int, Layout]] = ()):
        super().__init__(known)
        self.fresh: list[int] = []

    def __setitem__(self, c: int, layout: Layout) -> None:
        super().__setitem__(c, layout)
        self.fresh.append(c)

    def take(self) -> Iterator[int]:
        """The fresh classes, which are none from then on."""
        while self.fresh:
            yield self.fresh.pop()


class Sweeps:
    """Sweeps over `values`; `looks_at` gives the classes whose layouts decide what happens at a value."""

    def __init__(self, values: Sequence[Node], looks_at: Callable[[Node], Iterable[int]], chosen: Chosen):
        self.values, self.chosen = values, chosen
        self.next: set[int] = set(range(len(values)))
        """Places of the values that the next sweep looks at."""
        self.users: dict[int, list[int]] = {}
        for i, n in enumerate(values):
            for c in {*looks_at(n)}:
                self.users.setdefault(c, []).append(i)

    def sweep(self, hand_on: Callable[[Node], bool]) -> bool:
        """`hand_on` for the values, in order; whether it changed anything."""
        self._note(-1, None)
        heap, self.next = [*self.next], set()
        heapify(heap)
        changed = False
        last = -1
        while heap:
            i = heappop(heap)
            if i == last:
                continue
            last = i
            changed |= hand_on(self.values[i])
            self._note(i, heap)
        return changed

    def _note(self, at: int, heap: list[int] | None) -> None:
        """What looks at fresh classes is looked at again: behind `at` in this sweep, up to there in the next one."""
        for c in self.chosen.take():
            for i in self.users.get(c, ()):
                if heap is not None and i > at:
                    heappush(heap, i)
                else:
                    self.next.add(i)
