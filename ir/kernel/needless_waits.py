"""Removes waits for asynchronous copies that have nothing to wait for, and groups without copies.

In: a kernel whose loops are unrolled. Out: the same kernel without each `copy.wait` at which no more groups of copies
can be in flight than it lets pass: the first one of a kernel that has copied nothing yet, one behind another that left
fewer; and without each `copy.commit` that closes a group of no copies while none is in flight. Barriers that only such
a wait needed may go then (`needless_barriers.py`).

How many may be in flight is counted through loops and branches: the most of all ways, round a loop's back edge until it
grows no more. INVARIANT: groups are counted per lane, and lanes of one region pass the same copies, commits and waits.
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
    """The waits that have nothing to wait for, and the groups that count for nothing."""
    every = {op for op in kernel.body.walk() if op.name in ("copy.wait", "copy.commit")}
    needed: set[Op] = set()
    if every:
        _along(kernel.body, (0, False), needed)
    return every - needed


State = tuple[int, bool]
"""The most groups in flight, counted from the oldest with copies on; whether one is open that has some."""


def _along(region: Region, state: State, needed: set[Op]) -> State:
    """What is in flight behind a region, of `state` in front of it; collects what is needed of it."""
    most, filled = state
    for op in region.ops:
        if op.name == "copy.async":
            filled = True
        elif op.name == "copy.commit":
            if most or filled:
                needed.add(op)
                most = min(most + 1, MANY)
            filled = False
        elif op.name == "copy.wait":
            if most > op.attrs["pending"]:
                needed.add(op)
                most = op.attrs["pending"]
        elif op.regions:
            most, filled = _through(op, (most, filled), needed)
    return most, filled


def _through(op: Op, state: State, needed: set[Op]) -> State:
    """What is in flight behind an operation with regions, each of which may be passed by."""

    def once(state: State) -> State:
        found = [state, *(_along(region, state, needed) for region in op.regions)]
        return max(most for most, _ in found), any(filled for _, filled in found)

    if op.name == "if":
        return once(state)
    for _ in range(ROUNDS):
        again = once(state)
        if again == state:
            return state
        state = again
    return once((MANY, True))


__all__ = ["needless_waits", "remove_needless_waits"]
