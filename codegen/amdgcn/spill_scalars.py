"""Spills scalar registers to lanes of vector registers when the scalar file is too small.

In: a `Program` before allocation, its liveness, and the bundles that coalescing made. Out: the same with some bundles
kept in lanes: every write is followed by v_writelane, every reader gets fresh registers filled by v_readlane just
before it. Both ignore EXEC and scc. A copy inside a bundle costs nothing: both sides have one home.

As with vectors (`spill_vectors`), the pressure at every point decides who leaves: only what is live where registers
lack, by accesses (ten times as dear per loop level) per register that it frees there.

A vector register holds 64 words and is cleared at entry, so that its first v_writelane reads something.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.allocate import Bundle, Pressure
from wavedsl.codegen.amdgcn.liveness import Liveness
from wavedsl.codegen.amdgcn.machine import COPY, GONE, KEPT, SCALAR_HOME, SCRATCH_BASE, Inst, Program, Ref, Reg, copy
from wavedsl.codegen.amdgcn.rows import Rows
from wavedsl.codegen.amdgcn.spill_rewrite import Recent, moved_to, substitute, temporary
from wavedsl.codegen.amdgcn.spill_vectors import Choices, accesses, near, positive, pressure_of, runs, subtract, weights

LANES = 64
_SLACK, _MOST_SLACK = 2, 48
"""Registers below the limit that pressure should reach, since tuples need places of their alignment: so many in the
first round, twice as many with every round that was not enough, unless it was places that lacked."""
MAX_ROUNDS = 16

Place = tuple[Ref, int]
"""A vector register and a lane of it."""


class Spill:
    """Where spilled words go: the current vector register and its next free lane. `words` counts them all."""

    def __init__(self, program: Program, rows: Rows):
        self.program = program
        self.rows = rows
        self.home: Ref | None = None
        self.lane = LANES
        self.words = 0
        self.rounds = 0
        self.slack = _SLACK

    def relieve(self, live: Liveness, failure: Pressure) -> bool:
        """Spill bundles until the scalar file has room where it lacked some; False when none is left to spill."""
        if self.rounds == MAX_ROUNDS:
            return False
        self.rounds += 1
        pressure = _pressure(live, failure)
        lacking = positive(pressure - failure.limit)
        bundles, whole = failure.bundles, False
        if not lacking:
            bundles, over = self._by_places(failure, len(pressure))
            lacking = positive(over)
            whole = bool(lacking)
        if not whole:
            if not lacking:  # some must leave where what found no place is live
                bundles, lacking = failure.bundles, _anywhere(failure.bundle)
            most = max(int(pressure[first:stop].max()) for first, stop in runs(lacking))
            over = pressure - (min(failure.limit, most) - min(_MOST_SLACK, self.slack))
            self.slack *= 2
        need = positive(over) & lacking
        homes: dict[int, tuple[Place, ...]] = {}
        for choice in self._choices(bundles, live, need, whole):
            if not need:
                break
            if choice.helps(need):
                places = self._places(choice.words)
                for reg, offset in choice.bundle.members:
                    homes[reg.id] = places[offset : offset + reg.n]
                subtract(over, choice.frees)
                need = positive(over) & lacking
        self._rewrite_all(homes)
        return bool(homes)

    def part(self, live: Liveness, failure: Pressure) -> bool:
        """Where scalar registers are enough but lie badly: let what is live beside the bundle without a place be laid
        over wider tuples no more, if any was. A pair that lives long in front of a descriptor that does not takes
        one of the few places for four all its life; a copy into the descriptor is cheaper."""
        if (_pressure(live, failure) > failure.limit).any():
            return False
        points = _anywhere(failure.bundle)
        wide: set[int] = set()
        for bundle in failure.bundles:
            members = [reg for reg, _ in bundle.members]
            if members[0].cls == "s" and bundle.at < 0 and _anywhere(bundle) & points:
                most = max(reg.n for reg in members)
                if any(reg.n < most for reg in members):
                    wide |= {reg.id for reg in members if reg.n == most}
        self.program.apart |= wide
        return bool(wide)

    def _by_places(self, failure: Pressure, points: int) -> tuple[list[Bundle], np.ndarray]:
        """Where it fits by numbers, but not by places: the bundles that are as wide as the one that found no place, and
        by how many registers they lack places at every point. Of a descriptor whose size is made long before the rest,
        one register is live, and no other descriptor has a place there."""
        width = len(failure.bundle.live)
        wide = [b for b in failure.bundles if len(b.live) >= width and b.members[0][0].cls == "s" and b.at < 0]
        taken = np.zeros(points, np.int32)
        for bundle in wide:
            subtract(taken, [(_anywhere(bundle), -len(bundle.live))])
        return wide, taken - failure.limit // width * width

    def _choices(self, bundles: list[Bundle], live: Liveness, need: int, whole: bool = False) -> list[Choices]:
        """Bundles that free a register at one of these points, the cheapest per register first. `whole`: all of their
        registers where any is live."""
        price = weights(self.program)
        access = accesses(self.program, live, "s")
        found: list[tuple[float, int, Choices]] = []
        for bundle in bundles:
            members = [reg for reg, _ in bundle.members]
            if bundle.at >= 0 or members[0].cls != "s" or not any(bits & need for bits in bundle.live):
                continue
            if any(reg.fixed or reg.origin is not None or reg.name == SCRATCH_BASE for reg in members):
                continue
            touched = near(point for reg in members for point in access.get(reg.id, ()))
            frees = [(bits & ~touched, 1) for bits in bundle.live]
            if whole:
                frees = [(_anywhere(bundle) & ~touched, len(bundle.live))]
            gain = sum((bits & need).bit_count() * times for bits, times in frees)
            if gain:
                cost = sum(price.get(reg.id, 0.0) for reg in members)
                found.append((cost / gain, members[0].id, Choices(bundle, cost, frees, len(bundle.live))))
        return [choice for _, _, choice in sorted(found, key=lambda f: f[:2])]

    def _places(self, words: int) -> tuple[Place, ...]:
        found = []
        for _ in range(words):
            if self.home is None or self.lane == LANES:
                reg = Reg(len(self.program.regs), "v", 1, 1, -1, SCALAR_HOME)
                self.program.regs.append(reg)
                self.home, self.lane = Ref(reg, 0, 1), 0
                clear = copy(self.home, 0)
                clear.added = "setup"
                self.program.blocks[0].insts.insert(0, clear)
            found.append((self.home, self.lane))
            self.lane += 1
        self.words += words
        return tuple(found)

    def _rewrite_all(self, homes: dict[int, tuple[Place, ...]]) -> None:
        for block in self.program.blocks:
            out: list[Inst] = []
            recent: dict[int, Recent] = {}
            for inst in block.insts:
                if inst.row in (KEPT, GONE) or not any(r.reg.id in homes for r in (*inst.uses, *inst.defs)):
                    out.append(inst)
                elif inst.row is COPY and (places := _same_places(inst, homes)):
                    kept = Inst(KEPT, inst.ops, {"home": places}, inst.loc)
                    kept.uses = tuple(dict.fromkeys(home for home, _ in places))
                    out.append(kept)
                    recent.pop(inst.defs[0].reg.id, None)
                else:
                    self._rewrite(inst, homes, out, recent)
            block.insts = out

    def _rewrite(
        self, inst: Inst, homes: dict[int, tuple[Place, ...]], out: list[Inst], recent: dict[int, Recent]
    ) -> None:
        """Append an instruction that touches temporaries in place of spilled tuples, between what fills and what saves
        them. `recent`: tuple → its last temporary."""
        read, written = _words(inst.uses, homes), _words(inst.defs, homes)
        fresh: dict[int, tuple[Reg, int]] = {}

        def part(key: int, k: int) -> Ref:
            made, low = fresh[key]
            return Ref(made, k - low, 1)

        def move(row: Any, ops: tuple[Any, ...], added: str) -> None:
            made = self.rows.make(row, ops, None, inst.loc)
            made.added = added
            out.append(made)

        for reg in dict.fromkeys(ref.reg for ref in (*inst.uses, *inst.defs) if ref.reg.id in homes):
            wanted = [k for key, k in read if key == reg.id]
            changed = [k for key, k in written if key == reg.id]
            known = recent.pop(reg.id, None)
            if known is not None and known.serves(wanted, len(out)) and not changed:
                fresh[reg.id] = known.reg, known.low
                recent[reg.id] = replace(known, when=len(out))
                continue
            touched = frozenset((*wanted, *changed))
            low = min(touched) - min(touched) % min(reg.align, 2)
            made = temporary(self.program, reg, low, max(touched) + 1 - low)
            fresh[reg.id] = made, low
            recent[reg.id] = Recent(made, low, touched, len(out))
            for k in wanted:
                move(self.rows.v_readlane_b32, (part(reg.id, k), *homes[reg.id][k]), "reload")
        substitute(inst, moved_to(fresh))
        out.append(inst)
        for key, k in written:
            home, lane = homes[key][k]
            move(self.rows.v_writelane_b32, (home, part(key, k), lane), "spill")


def _pressure(live: Liveness, failure: Pressure) -> np.ndarray:
    """Live scalar registers at every point."""
    return pressure_of(failure.bundles, "s", 2 * live.instructions + 2)


def _anywhere(bundle: Bundle) -> int:
    """The points at which any register of a bundle is live."""
    return reduce(or_, bundle.live)


def _words(refs: tuple[Ref, ...], homes: dict[int, tuple[Place, ...]]) -> list[tuple[int, int]]:
    """(tuple, which register of it) of what these references cover of spilled tuples."""
    return sorted({(r.reg.id, k) for r in refs if r.reg.id in homes for k in range(r.start, r.start + r.n)})


def _same_places(inst: Inst, homes: dict[int, tuple[Place, ...]]) -> tuple[Place, ...]:
    """Where both sides of a copy live, if that is the same; else nothing."""
    dst, src = inst.ops
    if src.__class__ is not Ref or dst.reg.id not in homes or src.reg.id not in homes:
        return ()
    own, other = (homes[r.reg.id][r.start : r.start + r.n] for r in (dst, src))
    return own if own == other else ()
