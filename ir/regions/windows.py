"""Straight code whose products' operands come a few products ahead, in a ring of shared memory and a window of loads.

In: the steps of a kernel's outermost region, planned for this (`ReadPlans.window`). Out: their order with its barriers
(`taps`), and a place in shared memory for each tile: one whose last reader has been passed leaves its own to another.

Invariant: whoever writes to a place where another tile has been stands behind a barrier that all of its readers have
passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wavedsl.ir.addresses.staged import Staged
from wavedsl.ir.dataflow.graph import PRODUCTS, REGIONS, Graph, Node, factors
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.schedule.place_barriers import place_barriers
from wavedsl.ir.schedule.steps import BodySchedule, Step
from wavedsl.ir.schedule.taps import Taps, taps
from wavedsl.ir.staging.plan_reads import GAP, alignment, gap_fits
from wavedsl.ir.target import Target


class NoTaps(ConstraintError):
    """Straight code has no taps, in whatever window."""


MANY = 3
"""Products of straight code from which on their operands may be brought one after the other."""


def many_products(graph: Graph, target: Target) -> bool:
    """Whether a kernel is straight code in which many products bring reads of their own, by instructions that a wave
    waits for."""
    nodes = graph.region.nodes
    if target.asynchronous or any(n.op in REGIONS for n in nodes):
        return False
    seen: set[int] = set()
    return sum(_brings_reads(n, seen) for n in nodes if n.op in PRODUCTS) >= MANY


def _brings_reads(n: Node, seen: set[int]) -> bool:
    """Whether a product multiplies what is made of reads that none of the products before needs; adds to what has been
    `seen` of values that products need."""
    found, todo = False, [n.inputs[p] for p in factors(n)]
    while todo:
        x = todo.pop()
        if x.id not in seen and x.op not in PRODUCTS:
            seen.add(x.id)
            found |= x.op == "read" and bool(x.dims)
            todo += x.inputs
    return found


def in_window(low: Lowering, steps: Sequence[Step], slots: Mapping[str, int]) -> BodySchedule:
    """The steps' order. Raises ConstraintError where they are none of products that can follow each other so, or where
    shared memory has no room even for the tiles of a few."""
    found = taps(steps, low.reads.window)
    if found is None:
        raise NoTaps("no products whose loads could start some products ahead", low.graph.loc)
    over = low.notes.after = _placed(low, found.spans)
    kind = f"{low.reads.window.copies} products ahead"
    body = BodySchedule(list(found.order), [0] * len(steps), 1, {}, (), 0, 0, kind)
    place_barriers(body, steps, slots, cyclic=False, over=over, starts=_ends_of_taps(low, steps, found))
    return body


def _ends_of_taps(low: Lowering, steps: Sequence[Step], found: Taps) -> list[int]:
    """Where barriers may stand: between taps; of a workgroup that has the unit to itself in front of a tap's product,
    which some waves then multiply while others read for the next one, if copies come by themselves and early enough."""
    alone = low.target.resident_waves(1, low.room.top, low.kernel.block) < 2 * low.kernel.waves
    early = low.reads.window.copies > 1 and all(s.kind != "swrite" for s in steps)
    return found.behind_reads(steps) if alone and early else found.starts


def _placed(low: Lowering, spans: Mapping[str, tuple[int, int]]) -> dict[str, Sequence[str]]:
    """Give every tile its place, the first that is free from its first copy to its last reader; per buffer those whose
    places it takes."""
    copied = {low.room.buffers[i]: s for i, s in low.reads.staged.items() if s.copied_by is None}
    tiles = {name: copied[name] for name in sorted(copied, key=lambda name: spans[name])}
    found, top = _places(low.room.top, tiles, spans)
    if not low.room.top and any(s.direct is not None for s in tiles.values()) and gap_fits(low, top):
        found, top = _places(GAP, tiles, spans)
    if top > low.target.shared_bytes:
        raise ConstraintError(f"tiles of {low.reads.window.copies} products do not fit shared memory", low.graph.loc)
    over: dict[str, Sequence[str]] = {}
    for name, s in tiles.items():
        s.offset = found[name]
        over[name] = [other for other in over if _meet(s, tiles[other])]
        low.kernel.shared_names[name] = (s.offset, s.place.bytes)
    low.room.top = top
    return over


def _places(base: int, tiles: Mapping[str, Staged], spans: Mapping[str, tuple[int, int]]) -> tuple[dict[str, int], int]:
    """Where each tile begins, from byte `base` on, and where the last of them ends."""
    found: dict[str, int] = {}
    for name, s in tiles.items():
        align = alignment(s)
        at = -(-base // align) * align
        beside = [(found[x], found[x] + tiles[x].place.bytes) for x in found if spans[x][1] >= spans[name][0]]
        for start, end in sorted(beside):
            if at + s.place.bytes <= start:
                break
            at = max(at, -(-end // align) * align)
        found[name] = at
    return found, max((found[name] + s.place.bytes for name, s in tiles.items()), default=base)


def _meet(s: Staged, other: Staged) -> bool:
    return s.offset < other.offset + other.place.bytes and other.offset < s.offset + s.place.bytes


__all__ = ["NoTaps", "in_window", "many_products"]
