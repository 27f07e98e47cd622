"""What may happen between an operation and those that divide it from the rest: barriers, or fences.

In: a kernel, and what each operation does, as a function. Out: everything that is done on some way from an operation to
the next ones that divide, forward or backward. Ways go through loops and branches: past a region, and round a loop's
back edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region

Deed = TypeVar("Deed")
Divides = Callable[[Op], bool]
"""Whether an operation divides what is before it from what is behind it."""


class Between(Generic[Deed]):
    """The ways through a kernel, for one notion of what an operation does."""

    def __init__(self, kernel: Kernel, done: Callable[[Op], Iterable[Deed]]):
        """`done`: what an operation does, without what lies in its regions; asked once per operation."""
        self._done = done
        self._deeds: dict[Op, tuple[Deed, ...]] = {}
        self._home: dict[Op, Region] = {}
        """The region that an operation stands in."""
        self._place: dict[Op, int] = {}
        self._owner: dict[Region, Op] = {}
        self._number(kernel.body)

    def _number(self, region: Region) -> None:
        for i, op in enumerate(region.ops):
            self._home[op], self._place[op] = region, i
            for inner in op.regions:
                self._owner[inner] = op
                self._number(inner)

    def remove(self, op: Op) -> None:
        """Take an operation out of the kernel."""
        region = self._home[op]
        del region.ops[self._place[op]]
        for i, later in enumerate(region.ops[self._place[op] :], self._place[op]):
            self._place[later] = i

    def reached(self, op: Op, step: int, divides: Divides) -> set[Deed]:
        """What may be done between an operation and the dividing ones behind it (`step` 1) or before it (-1)."""
        found: set[Deed] = set()
        region, at = self._home[op], self._place[op]
        while True:
            rest = region.ops[at + 1 :] if step > 0 else reversed(region.ops[:at])
            if self._along(rest, step, found, divides):
                return found
            parent = self._owner.get(region)
            if parent is None:
                return found
            if parent.name == "for":  # round the back edge
                self._along(region.ops[::step], step, found, divides)
            region, at = self._home[parent], self._place[parent]

    def _along(self, ops: Iterable[Op], step: int, found: set[Deed], divides: Divides) -> bool:
        """Adds what operations do, up to a dividing one; whether there is one. Regions may be passed by."""
        for op in ops:
            if divides(op):
                return True
            for inner in op.regions:
                self._along(inner.ops[::step], step, found, divides)
            if op not in self._deeds:
                self._deeds[op] = tuple(self._done(op))
            found.update(self._deeds[op])
        return False


__all__ = ["Between", "Divides"]
