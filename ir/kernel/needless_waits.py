"""Removes waits for asynchronous copies that have nothing to wait for.

In: a kernel whose loops are unrolled. Out: the same kernel without each `copy.wait` at which no more groups of copies
can be in flight than it lets pass: the first one of a kernel that has copied nothing yet, one behind another that left
fewer. Barriers that only such a wait needed may go then (`needless_barriers.py`).

How many may be in flight is counted through loops and branches: the most of all ways, round a loop's back edge until it
grows no more. INVARIANT: groups are counted per lane, and lanes of one region pass the same commits and waits.
"""

from __future__ import annotations

from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region

MANY = 1 << 20
"""More than any count: of a loop that commits and never waits."""
ROUNDS = 16
"""Trips after which a number that still grows is taken for MANY."""


def remove_needless_waits(kernel: Kernel) -> int:
    """Delete them in place; returns how many went."""
    gone = needless_waits(kernel)
    if gone:
        for region in kernel.body.regions():
            region.ops[:] = [op for op in region.ops if op not in gone]
    return len(gone)


def needless_waits(kernel: Kernel) -> set[Op]:
    """The waits that have nothing to wait for."""
    every = {op for op in kernel.body.walk() if op.name == "copy.wait"}
    needed: set[Op] = set()
    if every:
        _along(kernel.body, 0, needed)
    return every - needed


def _along(region: Region, most: int, needed: set[Op]) -> int:
    """The most groups in flight behind a region, of `most` in front of it; collects the waits that wait."""
    for op in region.ops:
        if op.name == "copy.commit":
            most = min(most + 1, MANY)
        elif op.name == "copy.wait":
            if most > op.attrs["pending"]:
                needed.add(op)
                most = op.attrs["pending"]
        elif op.regions:
            most = _through(op, most, needed)
    return most


def _through(op: Op, most: int, needed: set[Op]) -> int:
    """The most behind an operation with regions, each of which may be passed by."""
    if op.name == "if":
        return max(most, *(_along(region, most, needed) for region in op.regions))
    for _ in range(ROUNDS):
        again = max(most, *(_along(region, most, needed) for region in op.regions))
        if again == most:
            return most
        most = again
    for region in op.regions:
        _along(region, MANY, needed)
    return MANY


__all__ = ["needless_waits", "remove_needless_waits"]
