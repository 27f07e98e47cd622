"""What to do when vector registers run out: compute again, keep in the accumulation file, or keep in scratch.

In: a `Program` before allocation, its liveness, the bundles that coalescing made, and how many registers there are.
Out: the program rewritten so that fewer registers are live where too many were; False when nothing is left to try.

The one idea: pressure is a number per point. Every bundle that is live across points with too much of it could leave;
one that leaves costs its accesses (ten times as dear per loop level) and frees its registers at those points, except
where it is accessed. Greedily the cheapest per freed register leaves, until pressure fits everywhere. Whole bundles
leave, because copies inside a bundle cost nothing in memory either: both sides have one home.

Scratch words are shared by bundles that are never live together, within one round.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np
from wavedsl.codegen.amdgcn.allocate import Bundle
from wavedsl.codegen.amdgcn.liveness import Liveness
from wavedsl.codegen.amdgcn.machine import FILE_BASE, SCALAR_HOME, Program, Reg
from wavedsl.codegen.amdgcn.rematerialise import Candidate, candidates, independent, make_again, tail_of
from wavedsl.codegen.amdgcn.rows import Rows
from wavedsl.codegen.amdgcn.spill_rewrite import SCRATCH_WORDS, Home, open_scratch, remember, spill

_SLACK = 4
_GROWTH, _MOST_SLACK = 1.5, 64
"""Registers below the limit that pressure should reach, since tuples need even places next to each other: so many in
the first round, more with every round that was not enough."""
_RESERVE = 16
"""Accumulation registers left free by copies, for the same reason."""
MAX_ROUNDS = 16


@dataclass
class Choices:
    """One bundle that could leave: its points as a bit per point, and where it is accessed."""

    bundle: Bundle
    cost: float
    frees: np.ndarray
    """Registers that are free at each point when it has left."""
    words: int


@dataclass
class VectorSpill:
    """The state over rounds, and what was done: tuples made again, registers kept elsewhere, scratch words used."""

    program: Program
    rows: Rows
    rounds: dict[str, int] = field(default_factory=dict)
    again: int = 0
    copied: int = 0
    stored: int = 0
    homes: set[int] = field(default_factory=set)
    """Ids of the tuples in the accumulation file that are homes."""

    def relieve(self, live: Liveness, bundles: list[Bundle], cls: str, limits: dict[str, int]) -> bool:
        """Make the program need fewer registers of file `cls`. `limits`: registers by file, `a` as far as it may grow.

        False when there is nothing (more) that could leave.
        """
        rounds = self.rounds[cls] = self.rounds.get(cls, 0) + 1
        if rounds > MAX_ROUNDS:
            return False
        remember(self.program)
        count = 2 * live.instructions + 2
        slack = min(_MOST_SLACK, int(_SLACK * _GROWTH**rounds))
        goal = limits[cls] - slack
        pressure = pressure_of(bundles, cls, count)
        elsewhere = SCRATCH_WORDS - self.program.scratch_bytes // 4 + (limits["a"] if cls == "v" else 0)
        if int(pressure.max()) - goal > elsewhere:  # there is not enough room in all places together
            return False
        over = pressure - goal
        if not (over > 0).any():  # it fits by numbers, but not by places
            over = pressure - (int(pressure.max()) - slack)
        access = accesses(self.program, live, count)
        # What is made again stays that way, so few values are taken at first: fewer than what is stored somewhere.
        few = pressure - (min(limits[cls], int(pressure.max())) - min(slack, 1 << (rounds - 1)))
        if cls == "v" and self._compute_again(live, few, count, access):
            return True
        choices = self._choices(bundles, cls, over, count, access)
        homes: dict[int, Home] = {}
        # an accumulation file that has once been too full takes no more: what is put there would be driven out again
        if cls == "v" and not self.rounds.get("a"):
            over, choices = self._copy(choices, over, bundles, limits["a"], count, homes)
        self._store(choices, over, homes)
        if homes:
            spill(self.program, self.rows, homes)
        return bool(homes)

    # ---- compute again

    def _compute_again(self, live: Liveness, over: np.ndarray, count: int, access: dict[int, np.ndarray]) -> bool:
        """The cheapest values that can be made again, as many as are needed."""
        found: list[tuple[float, int, Candidate, np.ndarray]] = []
        first = bisect_right(live.starts, int(np.argmax(over > 0)) // 2) - 1
        for c in candidates(self.program, live, tail_of(self.program, first)):
            points = points_of(live.live[live.first[c.reg.id]], count)
            points[: 2 * live.starts[c.tail]] = False
            frees = points & ~_near(access.get(c.reg.id), count)
            gain = int((frees & (over > 0)).sum()) * c.reg.n
            if gain:
                found.append((max(0, c.cost) / gain, c.reg.id, c, frees))
        chosen = []
        left = over.copy()
        for _, _, c, frees in sorted(found, key=lambda f: f[:2]):
            if not (left > 0).any():
                break
            if (frees & (left > 0)).any():
                chosen.append(c)
                left = left - frees * c.reg.n
        chosen = independent(chosen)
        if not chosen:
            return False
        self.again += len(chosen)
        make_again(self.program, self.rows, chosen)
        return True

    # ---- bundles that leave

    def _choices(
        self, bundles: list[Bundle], cls: str, over: np.ndarray, count: int, access: dict[int, np.ndarray]
    ) -> list[Choices]:
        """Bundles that free a register where one is missing, the cheapest per register first."""
        weight = _weights(self.program)
        out: list[tuple[float, int, Choices]] = []
        need = over > 0
        for bundle in bundles:
            first = bundle.members[0][0]
            if bundle.at >= 0 or first.cls != cls:
                continue
            members = [reg for reg, _ in bundle.members]
            if any(reg.fixed or reg.origin is not None or reg.name == SCALAR_HOME for reg in members):
                continue
            touched = np.zeros(count, bool)
            for reg in members:
                if reg.id in access:
                    touched |= access[reg.id]
            touched = _near(touched, count)
            frees = np.zeros(count, np.int32)
            for bits, times in _distinct(bundle.live):
                frees += times * (points_of(bits, count) & ~touched)
            gain = int(frees[need].sum())
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
        rest = []
        for i, choice in enumerate(choices):
            if not (over > 0).any():
                rest += choices[i:]
                break
            if not choice.frees[over > 0].any():
                continue
            needs = _occupied(choice.bundle, count)
            if (needs > room).any():
                rest.append(choice)
                continue
            room = room - needs
            over = over - choice.frees
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
        for choice in choices:
            if not (over > 0).any():
                break
            if not choice.frees[over > 0].any():
                continue
            at = _words(choice.bundle, taken)
            if base + at + choice.words > SCRATCH_WORDS:
                continue
            taken += [0] * (at + choice.words - len(taken))
            for k, bits in enumerate(choice.bundle.live):
                taken[at + k] |= bits
            over = over - choice.frees
            for reg, offset in choice.bundle.members:
                homes[reg.id] = Home(None, base + at + offset)
            self.stored += choice.words
            if choice.bundle.members[0][0].id in self.homes:
                self.copied -= choice.words
        if taken:
            open_scratch(self.program, self.rows)
            self.program.scratch_bytes = 4 * (base + len(taken))


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


def points_of(bits: int, count: int) -> np.ndarray:
    """A set of points as an array of bools."""
    raw = np.frombuffer(bits.to_bytes(count // 8 + 1, "little"), np.uint8)
    return np.unpackbits(raw, bitorder="little")[:count].astype(bool)


def _distinct(live: list[int]) -> list[tuple[int, int]]:
    """(points, how many registers have just these)."""
    out: dict[int, int] = {}
    for bits in live:
        if bits:
            out[bits] = out.get(bits, 0) + 1
    return list(out.items())


def _occupied(bundle: Bundle, count: int) -> np.ndarray:
    out = np.zeros(count, np.int32)
    _occupy(out, bundle)
    return out


def _occupy(total: np.ndarray, bundle: Bundle) -> None:
    """Add a bundle's registers at its points. Most live in a small part of the program, which alone is looked at."""
    for bits, times in _distinct(bundle.live):
        first = (bits & -bits).bit_length() - 1
        points = points_of(bits >> first, bits.bit_length() - first)
        total[first : first + len(points)] += points * np.int32(times)


def pressure_of(bundles: list[Bundle], cls: str, count: int) -> np.ndarray:
    """Live registers of a file at every point."""
    total = np.zeros(count, np.int32)
    for bundle in bundles:
        if bundle.members[0][0].cls == cls and (bundle.at < 0 or bundle.at >= FILE_BASE[cls]):
            _occupy(total, bundle)
    return total


def accesses(program: Program, live: Liveness, count: int) -> dict[int, np.ndarray]:
    """Tuple → the points at which an instruction reads or writes it."""
    out: dict[int, np.ndarray] = {}
    for b, block in enumerate(program.blocks):
        point = 2 * live.starts[b]
        for inst in block.insts:
            for ref in (*inst.uses, *inst.defs):
                if ref.reg.id >= 0 and ref.reg.cls != "s":
                    marks = out.get(ref.reg.id)
                    if marks is None:
                        marks = out[ref.reg.id] = np.zeros(count, bool)
                    marks[point : point + 2] = True
            point += 2
    return out


def _near(marks: np.ndarray | None, count: int) -> np.ndarray:
    """Where a temporary would be live: at the accesses and around them."""
    if marks is None:
        return np.zeros(count, bool)
    out = marks.copy()
    for shift in (1, 2):
        out[shift:] |= marks[:-shift]
        out[:-shift] |= marks[shift:]
    return out


def _weights(program: Program) -> dict[int, float]:
    """Tuple → registers that its instructions access, ten times as dear per loop level."""
    out: dict[int, float] = {}
    for block in program.blocks:
        price = 10.0**block.depth
        for inst in block.insts:
            for ref in (*inst.uses, *inst.defs):
                if ref.reg.id >= 0:
                    out[ref.reg.id] = out.get(ref.reg.id, 0.0) + price * ref.n
    return out
