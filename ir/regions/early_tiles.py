"""What a loop finds in shared memory when it starts: tiles that were brought before it.

In: the schedule of a loop's body. Out: whether a barrier must stand before the loop. Mostly none need: asynchronous
copies that nobody has counted yet end with the first group that the loop counts, and the barrier that waits for that
group stands before their first reader, too. Where the loop brings nothing by asynchronous copies, or has no barrier
before the reader, nothing else waits for what came earlier.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from wavedsl.ir.addresses.staged import Staged
from wavedsl.ir.dataflow.graph import Region, region_nodes
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.regions.emit_loop import synchronise
from wavedsl.ir.schedule.steps import BodySchedule, Step


def wait_for_early_tiles(low: Lowering, region: Region, body: BodySchedule, steps: Sequence[Step]) -> None:
    """A barrier of the workgroup, in front of what `body` schedules, if its own do not separate it from early tiles.
    What the region reads itself is none: where that is moved out of a loop, it is waited for there."""
    read = {buffer for s in steps for buffer in s.reads}
    if not read:
        return
    inside = {n.id for n in region_nodes(region)}
    staged = low.reads.staged
    outside = [x for x in (*staged, *low.reads.made) if x not in inside and x not in low.reads.ring_of]
    early = {x: low.room.buffers[x] for x in outside}
    copied = {b for x, b in early.items() if b in read and x in staged and _asynchronous(staged[x])}
    stored = {b for b in early.values() if b in read} - copied
    place = {i: p for p, i in enumerate(body.order)}
    behind = False
    for i, s in enumerate(steps):
        wants = set(s.reads)
        stage, at = body.stages[i], place[i]
        if wants & copied and not _arrived(body, stage, at):
            low.b.copy_commit()
            synchronise(low.b, 0)
            return
        behind = behind or bool(wants & stored and not any(p <= at for p in body.barriers))
    if behind:
        synchronise(low.b, None)


def _asynchronous(tile: Staged) -> bool:
    return tile.asynchronous or tile.direct is not None


def _arrived(body: BodySchedule, stage: int, at: int) -> bool:
    """Whether the oldest group of copies has been waited for when a step of a stage is first carried out."""
    for p, pending in body.barriers.items():
        if p <= at and pending is not None:
            groups = stage * len(body.commits) + bisect_left(body.commits, p)
            if pending < groups:
                return True
    return False
