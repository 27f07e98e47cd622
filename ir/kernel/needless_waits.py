"""Removes waits for asynchronous copies and bulk stores that have nothing to wait for, and groups without any.

In: a kernel whose loops are unrolled. Out: the same kernel without each `copy.wait` (`bulk.wait`) at which no more
groups of copies (bulk stores) can be in flight than it lets pass: the first one of a kernel that has copied nothing
yet, one behind another that left fewer; and without each `copy.commit` (`bulk.commit`) that closes a group of none
while none is in flight. Barriers that only such a wait needed may go then (`needless_barriers.py`).

How many may be in flight is counted through loops and branches: the most of all ways, round a loop's back edge until it
grows no more. INVARIANT: groups are counted per lane, and lanes of one region pass the same copies, commits and waits
(or, of bulk stores, are fewer).
"""

from __future__ import annotations

from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region
from wavedsl.ir.quick_dataclass import dataclass

MANY = 1 << 20
"""More than any count: of a loop that commits and never waits."""
ROUNDS = 16
"""Trips after which a number that still grows is taken for MANY."""


@dataclass(frozen=True)
class Kind:
    """Names of the operations that start something, close a group, and wait for groups."""

    start: str
    commit: str
    wait: str


KINDS = Kind("copy.async", "copy.commit", "copy.wait"), Kind("copy.bulk.store", "bulk.commit", "bulk.wait")


def remove_needless_waits(kernel: Kernel) -> int:
    """Delete them in place; returns how many went."""
    gone = needless_waits(kernel)
    if gone:
        for region in kernel.body.regions():
            region.ops[:] = [op for op in region.ops if op not in gone]
    return len(gone)


def needless_waits(kernel: Kernel) -> set[Op]:
    """The waits that have nothing to wait for, and the groups that count for nothing."""
    found: set[Op] = set()
    ops = kernel.body.walk()
    for kind in KINDS:
        every = {op for op in ops if op.name in (kind.commit, kind.wait)}
        if every:
            needed: set[Op] = set()
            _along(kind, kernel.body, NOTHING, needed)
            found |= every - needed
    return found


@dataclass(frozen=True)
class State:
    """The most groups in flight, counted from the oldest with copies on: of which some may not have ended, and of which
    some may not have been read; whether one is open that has some."""

    running: int
    unread: int
    filled: bool


NOTHING = State(0, 0, False)
ANYTHING = State(MANY, MANY, True)


def _along(kind: Kind, region: Region, state: State, needed: set[Op]) -> State:
    """What is in flight behind a region, of `state` in front of it; collects what is needed of it."""
    running, unread, filled = state.running, state.unread, state.filled
    for op in region.ops:
        if op.name == kind.start:
            filled = True
        elif op.name == kind.commit:
            if running or filled:
                needed.add(op)
                running = min(running + 1, MANY)
            if unread or filled:
                unread = min(unread + 1, MANY)
            filled = False
        elif op.name == kind.wait:
            pending, reading = op.attrs["pending"], op.attrs.get("reading", False)
            if (unread if reading else running) > pending:
                needed.add(op)
            unread = min(unread, pending)
            if not reading:
                running = min(running, pending)
        elif op.regions:
            after = _through(kind, op, State(running, unread, filled), needed)
            running, unread, filled = after.running, after.unread, after.filled
    return State(running, unread, filled)


def _through(kind: Kind, op: Op, state: State, needed: set[Op]) -> State:
    """What is in flight behind an operation with regions, each of which may be passed by."""

    def once(state: State) -> State:
        found = [state, *(_along(kind, region, state, needed) for region in op.regions)]
        return State(max(s.running for s in found), max(s.unread for s in found), any(s.filled for s in found))

    if op.name == "if":
        return once(state)
    for _ in range(ROUNDS):
        again = once(state)
        if again == state:
            return state
        state = again
    return once(ANYTHING)


__all__ = ["needless_waits", "remove_needless_waits"]
