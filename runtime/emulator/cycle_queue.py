"""What the replays of both vendors' text share: a queue of workgroups on one unit, and what is said of it.

In: recorded workgroups, how many share a unit. Out: `Timing`. A unit holds as many workgroups as reside together; the
next one starts where one ends. What a unit is, and how long an instruction takes there, its subclasses know.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from wavedsl.ir.quick_dataclass import dataclass

LIMIT_INSTRUCTIONS = 400_000
"""Instructions that one replay goes through at most; longer traces are cut, and the rest is extrapolated."""


STORED = 1 << 46
"""What is added to the number of a line that is stored to: nothing that a workgroup has read spares it the way to
memory, and what it stores is none of what it reads."""


class LineCache:
    """Which cache lines a unit's L1 holds: the `most` that were touched last. Without `most`, all that ever were."""

    def __init__(self, most: int = sys.maxsize):
        self.most = most
        self.lines: OrderedDict[int, None] = OrderedDict()

    def missed(self, lines: Iterable[int]) -> int:
        """How many of these lines are not there; they are now."""
        held = self.lines
        missed = 0
        for line in lines:
            if line in held:
                held.move_to_end(line)
            else:
                missed += 1
                held[line] = None
                if len(held) > self.most:
                    held.popitem(last=False)
        return missed


class SectorCache:
    """Which sectors of cache lines a unit's L1 holds: those of the `most` lines that were touched last. A line that is
    there may lack some of its sectors: each is brought when it is asked for. Without `most`, all that ever were."""

    def __init__(self, most: int = sys.maxsize):
        self.most = most
        self.lines: OrderedDict[int, int] = OrderedDict()
        """Line → the sectors of it that are there, a bit each."""

    def missed(self, lines: Iterable[int], sectors: Iterable[int], shift: int = 0) -> int:
        """How many of these sectors, a bit each of every line, are not there; they are now. `shift` is added to the
        lines' numbers."""
        held = self.lines
        missed = 0
        for line, asked in zip(lines, sectors):
            line += shift
            there = held.get(line)
            if there is None:
                missed += asked.bit_count()
                held[line] = asked
                if len(held) > self.most:
                    held.popitem(last=False)
                continue
            held.move_to_end(line)
            if asked & ~there:
                missed += (asked & ~there).bit_count()
                held[line] = there | asked
        return missed


@dataclass(frozen=True)
class Launch:
    """Around the replayed workgroups: `groups` per compute unit in all, `resident` of them at a time, and how much of
    what a workgroup asks for the first time misses L2. What it asks for again L2 has, if L1 has lost it."""

    groups: int
    resident: int
    memory_share: float = 1.0
    used_units: float | None = None
    """Compute units at work, on average; None: all."""
    turns: float = 0.0
    """Clocks that L2 takes on average for each change of a word that this unit asks for and nobody wants to know of: a
    word changes once a clock at most (NVIDIA's white paper of GK110 has one atomic a clock at a common address), those
    of a line, or sector, change in one place, and all units that share the L2 ask for their changes there."""


def sharing(total: int, units: int, rate: float, unit_rate: float) -> float:
    """Among how many units L2 and memory, which give `rate` bytes per clock, are divided on average of the rounds in
    which `units` take `total` workgroups. In the last round fewer do, none of which takes more than `unit_rate`."""
    rounds = -(-total // units)
    last = max(total - (rounds - 1) * units, min(units, rate / unit_rate))
    return ((rounds - 1) * units + last) / rounds


def fullest(words: Any, line: int) -> tuple[int, Any]:
    """(changes of the words [lane], all that wait for others in their line: of each line those of the word that has
    most; the lines). `line`: bits of a word's place in its line."""
    different, counts = np.unique(words, return_counts=True)
    lines = different >> line
    starts = np.flatnonzero(np.concatenate(([True], lines[1:] != lines[:-1])))
    return int(np.maximum.reduceat(counts, starts).sum()), lines[starts]


@dataclass
class Timing:
    """What a replay found. Clocks are of one compute unit from the first issue to the end of the last wave."""

    cycles: int = 0
    utilisation: dict[str, float] = field(default_factory=dict)
    """Unit → busy share: of the four SIMDs for `mfma`, `valu`, `salu`, `branch`; of the compute unit for the rest."""
    stalls: dict[str, int] = field(default_factory=dict)
    """Reason → clocks that waves could not issue, summed over waves."""
    lines: dict[int, int] = field(default_factory=dict)
    """Number of a static instruction → clocks that waves waited in front of it."""
    issued: dict[int, int] = field(default_factory=dict)
    """Number of a static instruction → how often it was issued."""
    matrix_window: float = 0.0
    """Busy share of the matrix units between the first and the last matrix instruction: prologue and epilogue aside."""
    extrapolated: bool = False
    """Whether only a part was replayed and the rest extended at the same rate."""

    def and_more(self, one: Timing, less: Timing) -> Timing:
        """This, and at its end what `one` takes beyond `less`."""
        cycles = self.cycles + max(0, one.cycles - less.cycles)
        busy = _plus(*({unit: x * t.cycles for unit, x in t.utilisation.items()} for t in (self, one, less)))
        return Timing(
            cycles,
            {unit: clocks / max(1, cycles) for unit, clocks in sorted(busy.items())},
            _plus(self.stalls, one.stalls, less.stalls),
            _plus(self.lines, one.lines, less.lines),
            _plus(self.issued, one.issued, less.issued),
            self.matrix_window,
            self.extrapolated or one.extrapolated,
        )


def _plus(these: Mapping[Any, Any], one: Mapping[Any, Any], less: Mapping[Any, Any]) -> dict[Any, Any]:
    """Numbers by what they are of, and by how much those of `one` are more than of `less`."""
    found = dict(these)
    for key, n in one.items():
        if n > less.get(key, 0):
            found[key] = found.get(key, 0) + n - less.get(key, 0)
    return found


class Queue(ABC):
    """Workgroups that take each other's places on a unit; what a unit is, its subclasses know."""

    launch: Launch
    waves: list[Any]
    """Those at work."""
    last: int
    turn = 1
    """Clocks that the last instruction of a wave takes."""
    begun = 0
    """Workgroups that are at work before `run` begins."""

    @abstractmethod
    def _length(self, number: int, group: Sequence[Any]) -> int:
        """Instructions of a recorded workgroup, which is the replay's number so and so."""

    @abstractmethod
    def _start(self, recorded: Sequence[Sequence[Any]], number: int, slot: int, at: int) -> None:
        """Put the launch's workgroup `number` to work at clock `at`, in place `slot` of those that reside together."""

    @abstractmethod
    def _step(self) -> tuple[int, Any]:
        """Issue one instruction. Returns its clock, and the workgroup that it ended, if any."""

    @abstractmethod
    def _timing(self, cycles: int) -> Timing:
        """What the replay of so many clocks amounts to."""

    def run(self, traces: Sequence[Sequence[Any]], most: int = LIMIT_INSTRUCTIONS) -> Timing:
        """Replay the workgroups, each of which is the list of its waves; the first of them again after the last.

        Where they have more than `most` instructions no more than twice those that reside together, and one, are.
        """
        launch = self.launch
        instructions = [self._length(number, group) for number, group in enumerate(traces)]
        total = 0
        wanted = 0
        while wanted < launch.groups and (wanted <= 2 * launch.resident or total < most):
            total += instructions[wanted % len(traces)]
            wanted += 1
        started = min(wanted, launch.resident)
        ends: list[int] = []
        for k in range(self.begun, started):
            self._start(traces, k, k, 0)
        clock = 0
        while self.waves:
            clock, ended = self._step()
            self.last = max(self.last, clock + self.turn)
            if ended is not None:
                ends.append(clock)
                if started < wanted:
                    self._start(traces, started, ended.slot, clock)
                    started += 1
        timing = self._timing(max([*ends, self.last]))
        if wanted < launch.groups:
            extend(timing, ends, launch)
        return timing


def extend(timing: Timing, ends: list[int], launch: Launch) -> None:
    """Workgroups that were not replayed end at the rate of those that ended behind the first residents."""
    ends.sort()
    first = min(launch.resident, len(ends) - 1)
    span = ends[-1] - ends[first - 1]
    rate = span / max(1, len(ends) - first)
    more = int(rate * (launch.groups - len(ends)))
    if not more:
        return
    scale = timing.cycles / (timing.cycles + more) * launch.groups / len(ends)
    timing.cycles += more
    timing.utilisation = {name: min(1.0, share * scale) for name, share in timing.utilisation.items()}
    timing.extrapolated = True


def longest_waits(timing: Timing, count: int = 12) -> Iterator[tuple[int, int, int]]:
    """The instructions in front of which waves waited longest: (number, clocks waited, times issued)."""
    for index, clocks in sorted(timing.lines.items(), key=lambda x: (-x[1], x[0]))[:count]:
        yield index, clocks, timing.issued[index]


def spread(total: int, wanted: int) -> list[int]:
    """`wanted` of the workgroups 0 … total - 1, evenly spread."""
    n = max(1, min(total, wanted))
    return sorted({i * total // n for i in range(n)})
