"""Removes barriers of the workgroup that order nothing.

In: a kernel whose loops are unrolled. Out: the same kernel without the barriers that no two accesses to shared memory
need: nothing that may have happened since the barrier before it (or since the kernel began) touches bytes that what may
happen until the next one touches too, one of them writing.

Every exchange between waves begins with a barrier for those who still read what was there before. The first one of a
kernel has nobody to wait for, nor has one behind a barrier after which only other buffers were touched.

What may have happened is followed through loops and branches: both ways past a region, and round a loop's back edge.
Accesses are told apart by the ranges of their addresses (`dead_stores.span`). A wait for asynchronous copies writes
what any copy of the kernel does; an operation that waits for something else, or of whose places nothing is known,
counts as one that writes everywhere. INVARIANT: a barrier orders shared memory alone
(`fence` orders global memory too, and stays), so whatever it leaves is ordered by the barriers that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wavedsl.ir.kernel.dead_stores import READS, WRITES, span
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region

EVERYWHERE = (0, 1 << 40)
HARMLESS = frozenset(("priority", "copy.commit", "bulk.commit", "matrix.commit"))
"""Operations that are kept in their places and touch no shared memory."""
Touch = tuple[int, int, bool]
"""First byte and the one behind the last that an operation may touch, and whether it writes there."""


def remove_needless_barriers(kernel: Kernel) -> int:
    """Delete them in place; returns how many went."""
    every = _candidates(kernel)
    if not every:
        return 0
    around = _Around(kernel)
    gone = 0
    for op in every:
        if not around.needed(op):
            around.remove(op)
            gone += 1
    return gone


def needless(kernel: Kernel) -> Iterator[Op]:
    """The barriers that order nothing, each by itself."""
    around = _Around(kernel)
    return (op for op in _candidates(kernel) if not around.needed(op))


def _candidates(kernel: Kernel) -> list[Op]:
    """Barriers that may go: of all waves, where all pass the same ones. (Groups of waves that are a barrier apart count
    each other's.)"""
    every = [op for op in kernel.body.walk() if op.name == "barrier"]
    return every if all(map(_divides, every)) else []


def _divides(op: Op) -> bool:
    """Whether all waves of the workgroup wait for each other here, and for nothing else."""
    return op.name == "barrier" and not op.attrs


class _Around:
    """What may happen before and behind an operation, up to the next barriers."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.home: dict[Op, Region] = {}
        """The region that an operation stands in."""
        self.place: dict[Op, int] = {}
        self.owner: dict[Region, Op] = {}
        self._number(kernel.body)
        self.touches: dict[Op, tuple[Touch, ...]] = {}
        copies = (op for op in self.home if op.name == "copy.async")
        self.copied = tuple({(*(span(kernel, op) or EVERYWHERE), True) for op in copies})

    def _number(self, region: Region) -> None:
        for i, op in enumerate(region.ops):
            self.home[op], self.place[op] = region, i
            for inner in op.regions:
                self.owner[inner] = op
                self._number(inner)

    def remove(self, op: Op) -> None:
        region = self.home[op]
        del region.ops[self.place[op]]
        for i, later in enumerate(region.ops[self.place[op] :], self.place[op]):
            self.place[later] = i

    def needed(self, op: Op) -> bool:
        before = self._reached(op, -1)
        if not before:
            return False
        return any(_meet(a, b) for b in self._reached(op, 1) for a in before)

    def _reached(self, op: Op, step: int) -> set[Touch]:
        """What may happen between an operation and the barriers behind it (`step` 1) or before it (-1)."""
        found: set[Touch] = set()
        region, at = self.home[op], self.place[op]
        while True:
            rest = region.ops[at + 1 :] if step > 0 else reversed(region.ops[:at])
            if self._along(rest, step, found.add):
                return found
            parent = self.owner.get(region)
            if parent is None:
                return found
            if parent.name == "for":  # round the back edge
                self._along(region.ops[::step], step, found.add)
            region, at = self.home[parent], self.place[parent]

    def _along(self, ops: Iterator[Op] | list[Op], step: int, add: Callable[[Touch], None]) -> bool:
        """Hands on what operations touch, up to a barrier; whether there is one. Regions may be passed by."""
        for op in ops:
            if _divides(op):
                return True
            for inner in op.regions:
                self._along(inner.ops[::step], step, add)
            if op not in self.touches:
                self.touches[op] = self._touched(op)
            for touch in self.touches[op]:
                add(touch)
        return False

    def _touched(self, op: Op) -> tuple[Touch, ...]:
        effects = op.row.effects
        if op.regions or op.name in HARMLESS or not effects & {READS, WRITES, "sync"}:
            return ()
        if op.name == "copy.wait":
            return self.copied
        if op.name not in ("load.shared", "store.shared", "copy.async"):
            return ((*EVERYWHERE, True),)
        low, high = span(self.kernel, op) or EVERYWHERE
        return ((low, high, WRITES in effects),)


def _meet(a: Touch, b: Touch) -> bool:
    return (a[2] or b[2]) and a[0] < b[1] and b[0] < a[1]


__all__ = ["needless", "remove_needless_barriers"]
