"""Many products in the order of a pipeline: what each multiplies is brought while others multiply.

In: the steps of a region without loops. Out: which *tap* each step belongs to, and an order of them. A tap is a product
for which something is loaded, with the products behind it that need nothing more. As straight code comes, all loads
stand first, and each tile of shared memory has a place of its own: registers hold the operands of all products, and
shared memory all tiles, until the last product has read its own. In taps' order loads start a few taps before their
users, so registers hold those of a few taps, and a tile's place is free for another one behind the barrier that follows
its tap. A loop's taps follow those of the trip before: what is loaded for its first ones starts in that trip.

Invariants: only the order changes, and what is made is made before it is used; no load passes a store to its array,
since stores stand behind all products here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.early_loads import is_load
from wavedsl.ir.schedule.steps import EARLY, Key, Step, shared_readers, shared_writers

LOADS, READS, COMPUTES, STORES = range(4)
"""Sections of a tap, in the order in which they stand: what starts loads and copies for later taps, reads of
shared memory that come first, what computes, and stores to shared memory of what was loaded."""


class Window(NamedTuple):
    """By how many taps `copies` to shared memory start before the tap that reads them, and `loads` to registers before
    the one that uses them (0: where they stand in the program). No copies ahead: no taps, all loads stand first.
    `rows`: whether gathered rows that several waves need are copied, too; `reads`: whether reads of shared memory stand
    in front of what their tap computes."""

    copies: int
    loads: int
    rows: bool = False
    reads: bool = False


NO_WINDOW = Window(0, 0)


@dataclass(frozen=True)
class Taps:
    """Per step its tap and section; `count` taps, behind which stands what follows the last product. Taps below 0 come
    before the first product; those of a loop (`cyclic`) stand in the trip before, so many taps from its end."""

    count: int
    of: tuple[int, ...]
    section: tuple[int, ...]
    order: tuple[int, ...]
    spans: dict[str, tuple[int, int]]
    """Shared buffer → its first tap of a copy or store, and its last of a read."""
    cyclic: bool = False

    @property
    def stages(self) -> list[int]:
        """Per step 1, or 0 for those of a loop that stand in the trip before, if there are any."""
        early = self.cyclic and min(self.of) < 0
        return [int(early and t >= 0) for t in self.of]

    @property
    def starts(self) -> list[int]:
        """Positions in the order where taps begin."""
        of = [self.stands(i) for i in self.order]
        return [0] * self.cyclic + [p for p in range(1, len(of)) if of[p] != of[p - 1]]

    def stands(self, i: int) -> int:
        """The tap in which a step stands."""
        return self.of[i] + self.count if self.cyclic and self.of[i] < 0 else self.of[i]

    def together(self, earlier: str, later: str) -> bool:
        """Whether two buffers are wanted at a time; of straight code the first is copied no later than the second."""
        (start, end), (first, last) = self.spans[earlier], self.spans[later]
        if not self.cyclic:
            return end >= first
        return (first - start) % self.count <= end - start or (start - first) % self.count <= last - first

    def behind_reads(self, steps: Sequence[Step]) -> list[int]:
        """The same, but a tap that reads shared memory ends behind its last read, in front of what it multiplies."""
        found = list(self.starts)
        for k, (start, end) in enumerate(pairwise(self.starts)):
            if self.stands(self.order[start]) >= 0:
                reads = [p for p in range(start, end) if steps[self.order[p]].kind == "sread"]
                found[k + 1] = max(reads, default=end - 1) + 1
        return found


def taps(steps: Sequence[Step], window: Window, cyclic: bool = False) -> Taps | None:
    """The steps' taps, of a loop's trip where they are `cyclic`; None where there are no such taps, or where what the
    region does beside may not change places with loads, or may not run ahead of its trip with them."""
    products = _products(steps)
    last = max((i for i, s in enumerate(steps) if s.kind == "mma"), default=-1)
    written = {array for s in steps for array in s.writes}
    if len(products) < 2 or any(s.loop or s.late or (s.kind == "effect" and i < last) for i, s in enumerate(steps)):
        return None
    if any(s.array in written for s in steps):
        return None
    found = _Order(steps, window, products)
    made = found.taps(cyclic) if found.count > 1 else None
    if made is None or not cyclic:
        return made
    ahead = [i for i, tap in enumerate(made.of) if tap < 0]
    if any(made.of[i] < -made.count or steps[i].kind not in EARLY for i in ahead):
        return None
    # A tile's only place is filled for the next trip when this one's readers are done.
    return made if all(last - first < made.count for first, last in made.spans.values()) else None


def _products(steps: Sequence[Step]) -> dict[int, int]:
    """Products by the number of their node, in the order in which they start."""
    found: dict[int, int] = {}
    for s in steps:
        if s.kind == "mma":
            found.setdefault(s.defs[0][1], len(found))
    return found


class _Order:
    """Walks the steps from the last one to the first, so that users are known before what they use."""

    def __init__(self, steps: Sequence[Step], window: Window, products: dict[int, int]):
        self.steps, self.window, self.products = steps, window, products
        self.users: dict[Key, list[int]] = {}
        for i, s in enumerate(steps):
            for key in s.uses:
                self.users.setdefault(key, []).append(i)
        self.readers = shared_readers(steps)
        first = self._first_products()
        fed = sorted({first[i] for i, s in enumerate(steps) if is_load(s) or s.kind in ("acopy", "sread")})
        fed = [p for p in fed if p < len(products)]
        self.count = len(fed)
        self.tap_of = {p: max(0, sum(q <= p for q in fed) - 1) for p in range(len(products))}
        self.tap_of[len(products)] = self.count

    def _after(self, i: int) -> list[int]:
        """The steps that wait for a step."""
        s = self.steps[i]
        found = [u for key in s.defs for u in self.users.get(key, ())]
        return found + self.readers.get(s.buffer, []) if s.kind in ("swrite", "acopy") else found

    def _first_products(self) -> list[int]:
        """Per step the first product that needs it; their number for what no product needs."""
        found = [len(self.products)] * len(self.steps)
        for i in reversed(range(len(self.steps))):
            s = self.steps[i]
            if s.kind == "mma":
                found[i] = self.products[s.defs[0][1]]
            else:
                found[i] = min((found[u] for u in self._after(i)), default=found[i])
        return found

    def taps(self, cyclic: bool) -> Taps:
        steps, count = self.steps, len(self.steps)
        of, section, depth = [self.count] * count, [COMPUTES] * count, [0] * count
        for i in reversed(range(count)):
            s, after = steps[i], self._after(i)
            soonest = min((of[u] for u in after), default=self.count)
            if s.kind == "mma":
                of[i] = self.tap_of[self.products[s.defs[0][1]]]
            elif is_load(s) or s.kind == "acopy":
                # What is stored to shared memory at a tap's end is on its way in that tap.
                ends = min((of[u] + (section[u] == STORES) for u in after), default=self.count)
                copied = s.kind == "acopy" or any(steps[u].kind == "swrite" for u in after)
                early = self.window.copies if copied else self.window.loads
                of[i], section[i] = ends - early, LOADS if early or s.kind == "gload" else COMPUTES
            elif s.kind == "swrite":
                of[i], section[i] = soonest - 1, STORES
            elif s.kind != "effect":
                of[i] = soonest
                section[i] = min((section[u] for u in after if of[u] == soonest), default=COMPUTES)
                if s.kind == "sread" and self.window.reads:
                    section[i] = min(section[i], READS)
        maker = {key: i for i, s in enumerate(steps) for key in s.defs}
        for i, s in enumerate(steps):  # of a tap's loads those that wait for nothing come before what places others
            if section[i] == LOADS:
                before = (maker[key] for key in s.uses if key in maker)
                most = max((depth[j] for j in before if (of[j], section[j]) == (of[i], LOADS)), default=0)
                depth[i] = most + (most % 2 != (not (is_load(s) or s.kind == "acopy")))
        at = [tap + self.count if cyclic and tap < 0 else tap for tap in of]
        order = sorted(range(count), key=lambda i: (at[i], section[i], depth[i], i))
        spans = {
            buffer: (min(of[i] for i in writers), max(of[i] for i in self.readers.get(buffer, writers)))
            for buffer, writers in shared_writers(steps).items()
        }
        return Taps(self.count, tuple(of), tuple(section), tuple(order), spans, cyclic)


__all__ = ["NO_WINDOW", "Taps", "Window", "taps"]
