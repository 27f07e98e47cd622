"""Gathers between lanes: which lane and register hold the element that an index names, inside the tile of one wave.

In: the layout of the value, that of the result, the dimension gathered along. Out: a `LaneGather`, or None where the
elements had better go through shared memory.

Every register of the result pulls from a register of the value, which must be the same in all lanes, in a lane that may
differ. Of the place's coordinates some bits are driven by lanes of the value: they say which lane. Others are driven by
its registers: where registers of the result drive the same bits, the register is known; where lanes of the result do,
and along the dimension gathered along, all registers that come into question are pulled and one is selected.
"""

from __future__ import annotations

from collections.abc import Mapping

from wavedsl.ir.layouts.bits import kind_of, number_of
from wavedsl.ir.layouts.layout import Layout, high_lanes
from wavedsl.ir.quick_dataclass import dataclass


@dataclass(frozen=True)
class Origin:
    """A bit of the coordinate of what an element is pulled from, and where it comes from in a lane of the result: the
    index (`gathered`), a bit of the lane's number (`lane`), or else what the result's register adds along `dim`."""

    dim: str
    bit: int
    gathered: bool
    lane: int | None


@dataclass(frozen=True)
class LaneGather:
    """`homes`: lane bit of the value → the coordinate bit that it drives, where this is not the lane's own bit.
    `choices`: bits of coordinates that say at run time which register of the value it is."""

    homes: tuple[tuple[int, Origin], ...]
    choices: tuple[Origin, ...]
    held: dict[str, int]
    """Per dimension, the bits of the coordinate that tell registers of the value apart and are known."""

    def registers(self, source: Layout, offsets: Mapping[str, int]) -> list[int]:
        """For a register of the result that adds `offsets` to its coordinates, the registers of the value in `source`
        that come into question: the choices' bits count them, the first of them fastest."""
        known = {d: offsets.get(d, 0) & bits for d, bits in self.held.items()}
        found = []
        for number in range(1 << len(self.choices)):
            at = dict(known)
            for i, origin in enumerate(self.choices):
                at[origin.dim] |= (number >> i & 1) << origin.bit
            found.append(source.element_at(at))
        return found

    def exchanges(self, layout: Layout, words: int) -> int:
        """Words that are pulled for a result in `layout` of elements of so many words."""
        return words * layout.elements_per_lane << len(self.choices)


def lane_gather(source: Layout, layout: Layout, dim: str, words: int) -> LaneGather | None:
    """How elements of `source` reach the places of `layout`, each from where its index along `dim` says, without shared
    memory. None where that cannot be, or takes more exchanges than every element's way to memory and back."""
    if not source.inner.monomial() or not layout.inner.monomial():
        return None
    own, theirs = _drivers(source), _drivers(layout)
    sizes, wanted = dict(source.extents), dict(layout.extents)
    choices, held = [], {}
    for d in source.dims:
        box = source.inner.width(d)
        known = -1
        if d == dim:
            if sizes[d] != source.box(d):
                return None
        elif sizes[d] < wanted[d] or any(at >= box for e, at in theirs if e == d and theirs[e, at][0] == "l"):
            return None
        for at in range(box):
            if (d, at) not in own:
                return None
            if own[d, at][0] == "l":
                known &= ~(1 << at)
            elif d == dim or theirs.get((d, at), ("", 0))[0] == "l":
                known &= ~(1 << at)
                choices.append(Origin(d, at, d == dim, None if d == dim else theirs[d, at][1]))
        held[d] = 0 if d == dim else known
    homes = []
    for (d, at), (kind, lane) in own.items():
        if kind != "l":
            continue
        driver = theirs.get((d, at), ("", 0))
        same = d != dim and driver == ("l", lane)
        if high_lanes([lane], source.lanes) and not same:
            return None
        if not same:
            homes.append((lane, Origin(d, at, d == dim, driver[1] if d != dim and driver[0] == "l" else None)))
    found = LaneGather(tuple(homes), tuple(choices), held)
    there_and_back = source.elements_per_lane + layout.elements_per_lane
    return found if found.exchanges(layout, words) <= there_and_back else None


def _drivers(layout: Layout) -> dict[tuple[str, int], tuple[str, int]]:
    """(dimension, bit of its coordinate) → what drives it: kind and number of an input bit, lanes as "l"."""
    found: dict[tuple[str, int], tuple[str, int]] = {}
    for d in layout.dims:
        for x, c in zip(layout.inner.ins, layout.inner.coordinate_columns(d)):
            if c:
                found[d, c.bit_length() - 1] = kind_of(x), number_of(x)
    return found
