"""Code whose products' operands come a few products ahead, in a ring of shared memory and a window of loads.

In: the steps of a kernel's outermost region, or of a loop's body, planned for this (`ReadPlans.window`). Out: their
order with its barriers (`taps`), and a place in shared memory for each tile: one whose last reader has been passed
leaves its own to another, of a loop's in every trip.

Invariant: whoever writes to a place where another tile has been stands behind a barrier that all of its readers have
passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wavedsl.ir.addresses.staged import Staged
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.schedule.place_barriers import place_barriers
from wavedsl.ir.schedule.steps import BodySchedule, Step
from wavedsl.ir.schedule.taps import Taps, taps
from wavedsl.ir.staging.plan_reads import GAP, alignment, gap_fits


class NoTaps(ConstraintError):
    """Code has no taps; a longer window would have none either."""


def in_window(low: Lowering, steps: Sequence[Step], slots: Mapping[str, int], cyclic: bool = False) -> BodySchedule:
    """The steps' order, of a loop's trip where they are `cyclic`. Raises ConstraintError where they are none of
    products that can follow each other so, or where shared memory has no room even for the tiles of a few."""
    found = taps(steps, low.reads.window, cyclic)
    if found is None:
        raise NoTaps("no products whose loads could start some products ahead", low.graph.loc)
    over = _placed(low, found)
    low.notes.after |= over
    kind = f"{low.reads.window.copies} products ahead"
    stages = found.stages
    body = BodySchedule(list(found.order), stages, max(stages) + 1, {}, (), 0, 0, kind)
    place_barriers(body, steps, slots, cyclic=cyclic, over=over, starts=_ends_of_taps(low, steps, found))
    return body


def _ends_of_taps(low: Lowering, steps: Sequence[Step], found: Taps) -> list[int]:
    """Where barriers may stand: between taps; of a workgroup that has the unit to itself in front of a tap's product,
    which some waves then multiply while others read for the next one, if copies come by themselves and early enough."""
    alone = low.target.resident_waves(1, low.room.top, low.kernel.block) < 2 * low.kernel.waves
    early = low.reads.window.copies > 1 and all(s.kind != "swrite" for s in steps)
    return found.behind_reads(steps) if alone and early else found.starts


def _placed(low: Lowering, taken: Taps) -> dict[str, Sequence[str]]:
    """Give every tile its place, the first that is free from its first copy to its last reader; per buffer those whose
    places it takes."""
    spans = taken.spans
    copied = {low.room.buffers[i]: s for i, s in low.reads.staged.items() if s.copied_by is None}
    copied = {name: s for name, s in copied.items() if name in spans}
    tiles = {name: copied[name] for name in sorted(copied, key=lambda name: spans[name])}
    found, top = _places(low.room.top, tiles, taken)
    if not low.room.top and any(s.direct is not None for s in tiles.values()) and gap_fits(low, top):
        found, top = _places(GAP, tiles, taken)
    if top > low.target.shared_bytes:
        dims = tuple(dict.fromkeys(d for s in tiles.values() for d in s.extents))
        what = f"tiles of {low.reads.window.copies} products do not fit shared memory"
        raise ConstraintError(what, low.graph.loc, tile=dims)
    over: dict[str, Sequence[str]] = {}
    for name, s in tiles.items():
        s.offset = found[name]
        over[name] = [other for other in over if _meet(s, tiles[other])]
        low.kernel.shared_names[name] = (s.offset, s.place.bytes)
    low.room.top = top
    return over


def _places(base: int, tiles: Mapping[str, Staged], taken: Taps) -> tuple[dict[str, int], int]:
    """Where each tile begins, from byte `base` on, and where the last of them ends."""
    found: dict[str, int] = {}
    for name, s in tiles.items():
        align = alignment(s)
        at = -(-base // align) * align
        beside = [(found[x], found[x] + tiles[x].place.bytes) for x in found if taken.together(x, name)]
        for start, end in sorted(beside):
            if at + s.place.bytes <= start:
                break
            at = max(at, -(-end // align) * align)
        found[name] = at
    return found, max((found[name] + s.place.bytes for name, s in tiles.items()), default=base)


def _meet(s: Staged, other: Staged) -> bool:
    return s.offset < other.offset + other.place.bytes and other.offset < s.offset + s.place.bytes


__all__ = ["NoTaps", "in_window"]
