"""Where waves leave what they hold of a reduction for each other: the bytes of shared memory that it takes."""

from __future__ import annotations

from collections.abc import Sequence

from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import VECTOR_BYTES

VECTOR = VECTOR_BYTES // 4
"""Words that a lane takes at a time."""
ALIKE = 4
"""Lanes that hold the same at the least, where one speaks for them: where fewer do, vectors of several waves' cells are
so far apart that lanes meet in the banks."""


@dataclass
class MeetingPlaces:
    """Shared memory of a kernel in which waves leave each other what they reduce together."""

    at: int = 0
    """Byte where it starts."""
    apart: int = 0
    """Bytes from there to a second such place, 0 where there is one."""
    buffer: str = ""
    """Name of the shared buffer that it is in."""
    meetings: int = 0
    """How often waves have been given a place to meet at."""

    def next(self) -> int:
        """Byte from which waves meet the next time: of two places each time the other one, so that nobody waits for
        those who still read what was there the time before."""
        self.meetings += 1
        return self.at + self.apart * (self.meetings % 2)


def lanes_speak(lanes: int, kept: Sequence[int] | None) -> bool:
    """Whether one lane speaks for all that hold the same, which differ in other bits than these."""
    return kept is not None and ALIKE << len(kept) <= lanes


@dataclass(frozen=True)
class Meeting:
    """Where cells lie while waves join them. `kept`: the lane bits that tell different cells apart, or None where
    every lane speaks for itself."""

    lanes: int
    count: int
    """Waves that meet."""
    waves: int
    kept: tuple[int, ...] | None

    @classmethod
    def of(cls, lanes: int, count: int, waves: int, kept: Sequence[int] | None) -> Meeting:
        """Where `count` of a workgroup's `waves` waves meet, whose lanes differ in these bits (None: in all)."""
        return cls(lanes, count, waves, tuple(kept or ()) if lanes_speak(lanes, kept) else None)

    def stride(self, words: int) -> int:
        """Bytes from the cells of one lane that speaks to those of the next, with `words` in a cell."""
        mine = words * self.count
        return 4 * (mine if mine <= 2 else -(-mine // VECTOR) * VECTOR)

    def bytes(self, words: int) -> int:
        """Shared memory for a cell of every lane and wave."""
        if self.kept is None:
            return 4 * words * self.lanes * self.waves
        return (self.stride(words) << len(self.kept)) * (self.waves // self.count)


__all__ = ["VECTOR", "Meeting", "lanes_speak"]
