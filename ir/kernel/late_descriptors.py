"""Descriptors of many arrays are made where they are used: each moves down to its first reader, with what it is of.

In: a kernel. Out: the same, reordered. A descriptor takes four scalar registers on AMD, its address and size two each,
and often others have those too; the builder makes all of them as early as their operands are there, which a kernel of
few arrays has room for.
INVARIANT: every op still comes after what it reads and is executed at most as often. Nothing moves into a loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Value
from wavedsl.ir.target import Target

CROWD = 12
"""Descriptors of a kernel below which there is room for all of them: half of the scalar registers."""

Place = tuple[int, int]
"""Position of a reader in its region, and the number of the branch that it is in: -1 for none."""


def sink_descriptors(kernel: Kernel, target: Target | None = None) -> None:
    """Move descriptors, and uniform values that only they need, before their first readers, outermost region first.

    Only where descriptors live in registers: PTX has pointers.
    """
    if target is None or not target.scalar_registers:
        return
    if sum(op.name == "buffer" for op in kernel.body.walk()) > CROWD:
        _sink(kernel.body)


def _sink(region: Region) -> None:
    first: dict[Value, Place] = {}
    wanted: set[Value] = set()
    """What moves if its readers all come behind it: operands of what has moved."""
    before: dict[Place, list[Op]] = {}
    """Per place the ops that have sunk to it, last first."""
    for i in range(len(region.ops) - 1, -1, -1):
        op = region.ops[i]
        if op.row.pure and op.results and (op.name == "buffer" or any(r in wanted for r in op.results)):
            place = min((first[r] for r in op.results if r in first), default=(i, -1))
            if place[0] > i + 1 or place[1] >= 0:
                before.setdefault(place, []).append(op)
                region.ops[i] = None  # type: ignore[call-overload]
                wanted.update(a for a in op.args if a.uniform)
                for a in op.args:
                    first[a] = _earlier(first.get(a), place)
                continue
        for value, place in _reads(op, i):
            first[value] = _earlier(first.get(value), place)
    out: list[Op] = []
    for i, op in enumerate(region.ops):
        out += reversed(before.get((i, -1), ()))
        for branch, body in enumerate(op.regions if op is not None else ()):
            body.ops[:0] = reversed(before.get((i, branch), ()))
            _sink(body)
        if op is not None:
            out.append(op)
    region.ops[:] = out


def _reads(op: Op, position: int) -> Iterator[tuple[Value, Place]]:
    """What an op and its bodies read; a branch that all lanes of a wave take or pass together is a place of its own."""
    for a in op.args:
        yield a, (position, -1)
    own = op.name == "if" and op.args[0].uniform
    for branch, body in enumerate(op.regions):
        for inner in body.walk():
            for a in inner.args:
                yield a, (position, branch if own else -1)


def _earlier(known: Place | None, place: Place) -> Place:
    """The place from which both readers are reached: before an op whose branches both read it, or of which one does and
    something behind it too."""
    if known is None or known == place:
        return place
    return min(known[0], place[0]), -1
