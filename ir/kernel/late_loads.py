"""How far down loads of shared memory may move: to where what they read may have changed.

In: a region. Out: for each of its loads of shared memory the op in front of which it has to stand. What is stored
between is told apart by the ranges of addresses (`dead_stores.span`), so that a load of one place passes stores to
another, and the barriers around them.
INVARIANT: between where a load stood and where it may stand no wave writes what it reads: it comes before the last
barrier in front of the first op that may, since other waves come to that op as soon as they have passed the barrier,
and before that op itself where there is none between.
"""

from __future__ import annotations

from wavedsl.ir.kernel.dead_stores import WRITES, Span, meet, span
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region


def latest(kernel: Kernel, region: Region) -> dict[Op, Op]:
    """Per load of shared memory in a region the op in front of which it stands at the latest: the region's last one, if
    nothing else."""
    out: dict[Op, Op] = {}
    waiting: dict[tuple[Span, int], list[Op]] = {}
    """Loads that nothing stops yet, by what they read and the barriers in front of them."""
    barriers: list[Op] = []

    def stop(key: tuple[Span, int], op: Op) -> None:
        last = barriers[-1] if len(barriers) > key[1] else op
        out.update(dict.fromkeys(waiting.pop(key), last))

    for op in region.ops:
        if op.name == "load.shared":
            waiting.setdefault((span(kernel, op), len(barriers)), []).append(op)
        elif op.name == "barrier" and not op.attrs:
            barriers.append(op)
        elif op.name in ("store.shared", "atomic.shared"):
            written = span(kernel, op)
            for key in [key for key in waiting if meet(written, key[0])]:
                stop(key, op)
        elif _may_change(op):
            for key in [*waiting]:
                stop(key, op)
    for key in [*waiting]:
        stop(key, region.ops[-1])
    return out


def _may_change(op: Op) -> bool:
    """Whether an op, or one in it, does or waits for something of which its addresses do not tell where."""
    inside = (x for body in op.regions for x in body.walk())
    return any(x.row.effects & {WRITES, "sync", "control"} for x in (op, *inside))


__all__ = ["latest"]
