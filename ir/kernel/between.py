"""What may happen between an operation and those that divide it from the rest: barriers, or fences.

In: a kernel, and what each operation does, as a function. Out: everything that is done on some way from an operation to
the next ones that divide, forward or backward. Ways go through loops and branches: past a region, and round a loop's
back edge. INVARIANT: operations without effects neither do nor divide anything, so they are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from wavedsl.ir.kernel.kernel_ir import ROWS, Kernel, Op, Region

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
        self._ops: dict[Region, list[Op]] = {}
        """Those of a region that may do or divide something."""
        self._place: dict[Op, int] = {}
        """Where an operation stands among them."""
        self._owner: dict[Region, Op] = {}
        self._number(kernel.body)

    def _number(self, region: Region) -> None:
        ops = self._ops[region] = [op for op in region.ops if op.regions or not ROWS[op.name].pure]
        for i, op in enumerate(ops):
            self._home[op], self._place[op] = region, i
            for inner in op.regions:
                self._owner[inner] = op
                self._number(inner)

    def remove(self, op: Op) -> None:
        """Take an operation out of the kernel."""
        region = self._home[op]
        region.ops.remove(op)
        ops, at = self._ops[region], self._place[op]
        del ops[at]
        for i, later in enumerate(ops[at:], at):
            self._place[later] = i

    def reached(self, op: Op, step: int, divides: Divides) -> set[Deed]:
        """What may be done between an operation and the dividing ones behind it (`step` 1) or before it (-1)."""
        found: set[Deed] = set()
        region, at = self._home[op], self._place[op]
        while True:
            ops = self._ops[region]
            rest = ops[at + 1 :] if step > 0 else reversed(ops[:at])
            if self._along(rest, step, found, divides):
                return found
            parent = self._owner.get(region)
            if parent is None:
                return found
            if parent.name == "for":  # round the back edge
                self._along(ops[::step], step, found, divides)
            region, at = self._home[parent], self._place[parent]

    def _along(self, ops: Iterable[Op], step: int, found: set[Deed], divides: Divides) -> bool:
        """Adds what operations do, up to a dividing one; whether there is one. Regions may be passed by."""
        for op in ops:
            if divides(op):
                return True
            for inner in op.regions:
                self._along(self._ops[inner][::step], step, found, divides)
            found.update(self.deeds(op))
        return False

    def deeds(self, op: Op) -> tuple[Deed, ...]:
        """What an operation does."""
        deeds = self._deeds.get(op)
        if deeds is None:
            deeds = self._deeds[op] = tuple(self._done(op))
        return deeds


__all__ = ["Between", "Divides"]
