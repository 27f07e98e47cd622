"""What only one branch reads is computed there.

In: a kernel. Out: the same, with vector arithmetic moved into the branch of an `if` that alone reads its results.
The builder puts every op where its operands are, which is right for loops; but an epilogue that one workgroup of many
carries out (the last to arrive at a tile) was computed by all of them.
INVARIANT: every op still comes after what it reads and is executed at most as often; nothing moves across a loop, where
it would hold more registers than its result. Ops with effects do not move, but for loads from shared memory into those
branches of which waves take one each (`inside`), across stores of other bytes alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from wavedsl.ir.kernel.dead_stores import overlap
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Value
from wavedsl.ir.target import Target

Reader = tuple[int, int]
"""Position of a reader in its region, and the number of the branch that it is in: -1 for none."""


def sink_into_branches(kernel: Kernel, target: Target | None = None) -> None:
    """Move pure vector ops into the branches of uniform conditions that alone need them, outermost region first.

    Where an assembler orders instructions, only into those of which waves take one each (`inside`): ptxas moves code
    between blocks itself, but not there.
    """
    if target is not None:
        _sink(kernel, kernel.body, not target.assembler_schedules)


def _sink(kernel: Kernel, region: Region, all_branches: bool) -> None:
    if any(op.regions and _takes(op, all_branches) for op in region.ops):
        _sink_here(kernel, region, all_branches)
    for op in region.ops:
        for body in op.regions:
            _sink(kernel, body, all_branches)


def _sink_here(kernel: Kernel, region: Region, all_branches: bool) -> None:
    """Into the branches of one region, what stands in it."""
    readers: dict[Value, set[Reader]] = {}

    def note(values: Iterable[Value], reader: Reader) -> None:
        for v in values:
            readers.setdefault(v, set()).add(reader)

    for i, op in enumerate(region.ops):
        note(op.args, (i, -1))
        for branch, body in enumerate(op.regions):
            for inner in body.walk():
                note(inner.args, (i, branch))
    loops = [i for i, op in enumerate(region.ops) if op.name != "if" and op.regions]
    moved: dict[Reader, list[Op]] = {}
    for i in range(len(region.ops) - 1, -1, -1):
        op = region.ops[i]
        load = op.name == "load.shared"
        if not (op.row.pure or load) or op.regions or not op.results or any(r.uniform for r in op.results):
            continue
        places = set().union(*(readers.get(r, ()) for r in op.results))
        if len(places) != 1:
            continue
        at, branch = place = next(iter(places))
        if branch < 0 or not _takes(region.ops[at], all_branches) or any(i < loop < at for loop in loops):
            continue
        inside = region.ops[at].attrs.get("inside")
        if load and not (inside and _reads_alike(kernel, op, region.ops[i + 1 : at])):
            continue
        moved.setdefault(place, []).append(op)
        region.ops[i] = None  # type: ignore[call-overload]
        for a in op.args:
            readers[a].discard((i, -1))
            readers[a].add(place)
    for (at, branch), ops in moved.items():
        region.ops[at].regions[branch].ops[:0] = reversed(ops)
    region.ops[:] = [op for op in region.ops if op is not None]


def _reads_alike(kernel: Kernel, load: Op, between: Iterable[Op | None]) -> bool:
    """Whether a load from shared memory finds the same behind these ops (None: one that has moved)."""
    for op in between:
        if op is None or op.row.effects <= {"read global", "read shared", "write global", "control"}:
            inner = () if op is None else op.regions
        elif op.name in ("store.shared", "atomic.shared") and not overlap(kernel, load, op):
            continue
        else:
            return False
        if not all(_reads_alike(kernel, load, body.ops) for body in inner):
            return False
    return True


def _takes(op: Op, all_branches: bool) -> bool:
    """Whether ops may move into an op: a branch that all lanes of a wave take or pass together, one of those of which
    waves take one each if not all such branches do."""
    return op.name == "if" and op.args[0].uniform and bool(all_branches or op.attrs.get("inside"))
