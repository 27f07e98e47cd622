"""What to do when vector registers run out: compute again, keep in the accumulation file, or keep in scratch.

In: a `Program` before allocation, its liveness, the bundles that coalescing made, and how many registers there are.
Out: the program rewritten so that fewer registers are live where too many were; False when nothing is left to try.

The one idea: pressure is a number per point. Every bundle that is live across points with too much of it could leave;
one that leaves costs its accesses (ten times as dear per loop level) and frees its registers at those points, except
where it is accessed. Greedily the cheapest per freed register leaves, until pressure fits everywhere. Whole bundles
leave, because copies inside a bundle cost nothing in memory either: both sides have one home.

Before, values are made again that free a register where one lacks, as many as make the sum least: what they take and
what then has to leave. Where there is room anyway nothing is made again, however cheap it is.

Scratch words are shared by bundles that are never live together, within one round.

Sets of points are bit sets in Python ints, numbers per point arrays; `runs` and `positive` go between the two. Most
values live in a small part of the program, so what is asked of every bundle is asked of its bits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import field
from math import inf

import numpy as np
from wavedsl.codegen.amdgcn.allocate import Bundle, Pressure
from wavedsl.codegen.amdgcn.liveness import Liveness, runs
from wavedsl.codegen.amdgcn.machine import FILE_BASE, SCALAR_HOME, Program, Reg
from wavedsl.codegen.amdgcn.rematerialise import Candidate, candidates, independent, make_again, tail_of
from wavedsl.codegen.amdgcn.rows import Rows
from wavedsl.codegen.amdgcn.spill_rewrite import SCRATCH_WORDS, Home, open_scratch, remember, spill
from wavedsl.ir.quick_dataclass import dataclass

_SLACK = 4
_GROWTH, _MOST_SLACK = 1.5, 64
"""Registers below the limit that pressure should reach, since tuples need even places next to each other: so many in
the first round, more with every round that was not enough."""
_SCRATCH_PRICE = 8
"""Instructions that an access of scratch is worth: a copy in the accumulation file takes one."""
_RESERVE = 16
"""Accumulation registers left free by copies, for the same reason."""
MAX_ROUNDS = 16


@dataclass
class Choices:
    """One bundle that could leave."""

    bundle: Bundle
    cost: float
    frees: list[tuple[int, int]]
    """(points, how many registers are free there when it has left)."""
    words: int

    def helps(self, need: int) -> bool:
        """Whether it frees a register at one of these points."""
        return any(bits & need for bits, _ in self.frees)


@dataclass
class VectorSpill:
    """The state over rounds, and what was done: tuples made again, registers kept elsewhere, scratch words used."""

    program: Program
    rows: Rows
    rounds: dict[str, int] = field(default_factory=dict)
    made_again: dict[str, int] = field(default_factory=dict)
    """Rounds in which values were made again: what leaves is not more for them."""
    again: int = 0
    copied: int = 0
    stored: int = 0
    homes: set[int] = field(default_factory=set)
    """Ids of the tuples in the accumulation file that are homes."""

    def relieve(self, live: Liveness, failure: Pressure, limits: dict[str, int]) -> bool:
        """Make the program need fewer registers of the file that failed. `limits`: registers by file, `a` as far as it
        may grow.

        False when there is nothing (more) that could leave.
        """
        bundles, cls = failure.bundles, failure.cls
        rounds = self.rounds[cls] = self.rounds.get(cls, 0) + 1
        if rounds > MAX_ROUNDS:
            return False
        remember(self.program)
        count = 2 * live.instructions + 2
        slack = min(_MOST_SLACK, int(_SLACK * _GROWTH ** (rounds - self.made_again.get(cls, 0))))
        goal = limits[cls] - slack
        pressure = pressure_of(bundles, cls, count)
        elsewhere = SCRATCH_WORDS - self.program.scratch_bytes // 4 + (limits["a"] if cls == "v" else 0)
        if int(pressure.max()) - goal > elsewhere:  # there is not enough room in all places together
            return False
        over = pressure - goal
        # What is made again stays that way, so few values are taken at first: fewer than what is stored somewhere.
        few = pressure - (min(limits[cls], int(pressure.max())) - min(slack, 1 << (rounds - 1)))
        lacking = positive(pressure - limits[cls])
        if not (over > 0).any():  # it fits by numbers, but not by places
            over = pressure - (int(pressure.max()) - slack)
        if not lacking:  # so a register lacks wherever what found no place is live
            for bits in failure.bundle.live:
                lacking |= bits
        access = accesses(self.program, live)
        choices = self._choices(bundles, cls, over, access)
        if cls == "v":
            again = self._worth(self._again(live, few, lacking, access), choices, over, limits["a"])
            if again:
                self.again += len(again)
                self.made_again[cls] = self.made_again.get(cls, 0) + 1
                make_again(self.program, self.rows, again)
                return True
        homes: dict[int, Home] = {}
        # an accumulation file that has once been too full takes no more: what is put there would be driven out again
        if cls == "v" and not self.rounds.get("a"):
            over, choices = self._copy(choices, over, bundles, limits["a"], count, homes)
        self._store(choices, over, homes)
        if homes:
            spill(self.program, self.rows, homes)
        return bool(homes)

    # ---- compute again

    def _again(
        self, live: Liveness, over: np.ndarray, lacking: int, access: dict[int, list[int]]
    ) -> list[tuple[Candidate, int]]:
        """The cheapest values that can be made again, as many as are needed, of those that free a register at a point
        where one is `lacking`; the points that each frees."""
        found: list[tuple[float, int, Candidate, int]] = []
        first = bisect_right(live.starts, int(np.argmax(over > 0)) // 2) - 1
        need = positive(over)
        wanted = need & lacking
        for c in candidates(self.program, live, tail_of(self.program, first), wanted):
            points = live.live[live.first[c.reg.id]]
            if not points & wanted:
                continue
            cut = 2 * live.starts[c.tail]
            frees = (points >> cut << cut) & ~near(access.get(c.reg.id, ()))
            if frees & wanted:
                gain = (frees & need).bit_count() * c.reg.n
                found.append((max(0, c.cost) / gain, c.reg.id, c, frees))
        chosen: list[Candidate] = []
        freed: dict[int, int] = {}
        left = over.copy()
        for _, _, c, frees in sorted(found, key=lambda f: f[:2]):
            if not need & lacking:
                break
            if frees & need & lacking:
                chosen.append(c)
                freed[c.reg.id] = frees
                subtract(left, [(frees, c.reg.n)])
                need = positive(left)
        return [(c, freed[c.reg.id]) for c in independent(chosen)]

    def _worth(
        self, again: list[tuple[Candidate, int]], choices: list[Choices], over: np.ndarray, room: int
    ) -> list[Candidate]:
        """How many of them, the cheapest first, to make again, so that they and what has to leave then take the fewest
        instructions. Short-lived steps of an epilogue free a register here and there, and just as much has to leave."""
        best, most = len(again), inf
        for count in sorted({len(again) >> k for k in range(len(again).bit_length() + 1)}):
            left = over.copy()
            cost = float(sum(max(0, c.cost) for c, _ in again[:count]))
            for c, frees in again[:count]:
                subtract(left, [(frees, c.reg.n)])
            cost += _leaving(choices, left, room)
            if cost < most:
                best, most = count, cost
        return [c for c, _ in again[:best]]

    # ---- bundles that leave

    def _choices(
        self, bundles: list[Bundle], cls: str, over: np.ndarray, access: dict[int, list[int]]
    ) -> list[Choices]:
        """Bundles that free a register where one is missing, the cheapest per register first."""
        weight = weights(self.program)
        out: list[tuple[float, int, Choices]] = []
        need = positive(over)
        for bundle in bundles:
            first = bundle.members[0][0]
            if bundle.at >= 0 or first.cls != cls or not any(bits & need for bits in bundle.live):
                continue
            members = [reg for reg, _ in bundle.members]
            if any(reg.fixed or reg.origin is not None or reg.name == SCALAR_HOME for reg in members):
                continue
            touched = near(point for reg in members for point in access.get(reg.id, ()))
            frees = [(bits & ~touched, times) for bits, times in _distinct(bundle.live)]
            gain = sum(times * (bits & need).bit_count() for bits, times in frees)
            if not gain:
                continue
            cost = sum(weight.get(reg.id, 0.0) for reg in members)
            words = len(bundle.live)
            out.append((cost / gain, first.id, Choices(bundle, cost, frees, words)))
        return [choice for _, _, choice in sorted(out, key=lambda c: c[:2])]

    def _copy(
        self,
        choices: list[Choices],
        over: np.ndarray,
        bundles: list[Bundle],
        limit: int,
        count: int,
        homes: dict[int, Home],
    ) -> tuple[np.ndarray, list[Choices]]:
        """Homes in the accumulation file for as many as there is room for. Returns what is left to free, and to choose
        from."""
        room = limit - _RESERVE - pressure_of(bundles, "a", count)
        over = over.copy()
        need = positive(over)
        rest = []
        for i, choice in enumerate(choices):
            if not need:
                rest += choices[i:]
                break
            if not choice.helps(need):
                continue
            subtract(room, needs := _distinct(choice.bundle.live))
            if room.min() < 0:
                subtract(room, [(bits, -times) for bits, times in needs])
                rest.append(choice)
                continue
            subtract(over, choice.frees)
            need = positive(over)
            file = self._home(choice)
            for reg, offset in choice.bundle.members:
                homes[reg.id] = Home(file, offset)
            self.copied += choice.words
        return over, rest

    def _home(self, choice: Choices) -> Reg:
        first = choice.bundle.members[0][0]
        n = choice.words
        name = f"{first.name or 'value'} (spilled)"
        reg = Reg(len(self.program.regs), "a", n, 2 if n > 1 else 1, -1, name, first.loc)
        self.program.regs.append(reg)
        self.homes.add(reg.id)
        return reg

    def _store(self, choices: list[Choices], over: np.ndarray, homes: dict[int, Home]) -> None:
        """Homes in scratch for what is still too much."""
        base = self.program.scratch_bytes // 4
        taken: list[int] = []
        over = over.copy()
        need = positive(over)
        for choice in choices:
            if not need:
                break
            if not choice.helps(need):
                continue
            at = _words(choice.bundle, taken)
            if base + at + choice.words > SCRATCH_WORDS:
                continue
            taken += [0] * (at + choice.words - len(taken))
            for k, bits in enumerate(choice.bundle.live):
                taken[at + k] |= bits
            subtract(over, choice.frees)
            need = positive(over)
            for reg, offset in choice.bundle.members:
                homes[reg.id] = Home(None, base + at + offset)
            self.stored += choice.words
            if choice.bundle.members[0][0].id in self.homes:
                self.copied -= choice.words
        if taken:
            open_scratch(self.program, self.rows)
            self.program.scratch_bytes = 4 * (base + len(taken))


def _leaving(choices: list[Choices], over: np.ndarray, room: int) -> float:
    """Instructions for the bundles that have to leave, an access of scratch counted as what it is worth; `over` is
    used up. Infinite where all of them are not enough."""
    need = positive(over)
    words, cost = 0, 0.0
    for choice in choices:
        if not need:
            return cost
        if choice.helps(need):
            words += choice.words
            cost += choice.cost * (1 if words <= room else _SCRATCH_PRICE)
            subtract(over, choice.frees)
            need = positive(over)
    return inf if need else cost


def _words(bundle: Bundle, taken: list[int]) -> int:
    """The first scratch words that are free wherever the bundle is live."""
    n = len(bundle.live)
    if n == 1:
        points = bundle.live[0]
        return next((at for at, used in enumerate(taken) if not used & points), len(taken))
    at = 0
    while True:
        clash = next((k for k in range(n) if at + k < len(taken) and taken[at + k] & bundle.live[k]), None)
        if clash is None:
            return at
        at += clash + 1


# ---- points


def positive(numbers: np.ndarray) -> int:
    """The points with a number above 0."""
    return int.from_bytes(np.packbits(numbers > 0, bitorder="little").tobytes(), "little")


def subtract(numbers: np.ndarray, less: Iterable[tuple[int, int]]) -> None:
    """Lower the numbers of these points, in place."""
    for bits, times in less:
        for first, stop in runs(bits):
            numbers[first:stop] -= times


def _distinct(live: list[int]) -> list[tuple[int, int]]:
    """(points, how many registers have just these)."""
    if len(live) == 1:
        return [(live[0], 1)] if live[0] else []
    out: dict[int, int] = {}
    for bits in live:
        if bits:
            out[bits] = out.get(bits, 0) + 1
    return list(out.items())


def pressure_of(bundles: list[Bundle], cls: str, count: int) -> np.ndarray:
    """Live registers of a file at every point: from where their number changes, and by how much."""
    at: list[int] = []
    by: list[int] = []
    for bundle in bundles:
        if bundle.members[0][0].cls == cls and (bundle.at < 0 or bundle.at >= FILE_BASE[cls]):
            for bits, times in _distinct(bundle.live):
                for first, stop in runs(bits):
                    at += (first, stop)
                    by += (times, -times)
    change = np.zeros(count + 1, np.int32)
    np.add.at(change, np.array(at, np.int64), np.array(by, np.int32))
    return np.cumsum(change[:count], dtype=np.int32)


def accesses(program: Program, live: Liveness, files: str = "va") -> dict[int, list[int]]:
    """Tuple of one of these files → the first points of the instructions that read or write it."""
    out: dict[int, list[int]] = {}
    for b, block in enumerate(program.blocks):
        point = 2 * live.starts[b]
        for inst in block.insts:
            for ref in (*inst.uses, *inst.defs):
                if ref.reg.id >= 0 and ref.reg.cls in files:
                    out.setdefault(ref.reg.id, []).append(point)
            point += 2
    return out


def near(points: Iterable[int]) -> int:
    """Where a temporary would be live: at these accesses, two points each, and two points around them."""
    found = 0
    for point in points:
        found |= 63 << point
    return found >> 2


def weights(program: Program) -> dict[int, float]:
    """Tuple → registers that its instructions access, ten times as dear per loop level."""
    out: dict[int, float] = {}
    for block in program.blocks:
        price = 10.0**block.depth
        for inst in block.insts:
            for ref in (*inst.uses, *inst.defs):
                if ref.reg.id >= 0:
                    out[ref.reg.id] = out.get(ref.reg.id, 0.0) + price * ref.n
    return out
