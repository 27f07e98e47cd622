"""When a replay had its warps wait, its matrix units work and its copies under way: a timeline for a trace viewer.

In: spans, as a replay (`cycle_model`, `warp_replay`) goes on. Out: `trace()`, in the Trace Event Format that Perfetto
(ui.perfetto.dev) and chrome://tracing open. One clock of the model is shown as one microsecond.

A workgroup's warps are tracks that alternate between issuing and waiting, each wait with its reason and the instruction
that had to wait; units have tracks of their own. Spans of one unit that overlap, as bulk copies do, take as many tracks
as they need; of what lanes load, store and copy there is how many bytes are on their way. Invariant: recording changes
no clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

from wavedsl.ir.quick_dataclass import dataclass

MOST = 200_000
"""Spans that are kept at most; a viewer takes no more with ease."""
SHORT = 8
"""Clocks of the shortest wait that is shown: others look like issuing."""


@dataclass
class _Warp:
    """A warp: its first and last clock, (from, until, reason, instruction) of its waits, what else it has made work."""

    group: int
    name: str
    begin: float
    end: float
    waits: list[tuple[float, float, str, int]] = field(default_factory=list)
    does: dict[str, None] = field(default_factory=dict)


class Timeline:
    """What a replay tells. `place(instruction)` gives (text, the user's line or "") of an instruction's number."""

    def __init__(self, place: Callable[[int], tuple[str, str]]):
        self.place = place
        self.warps: dict[int, _Warp] = {}
        """By the number that the replay gives a warp."""
        self.spans: dict[str, list[tuple[float, float, int, int]]] = {}
        """Unit → (from, until, instruction, bytes or 0)."""
        self.moves: dict[str, dict[float, int]] = {}
        """What is moved → clock → by how many bytes those on their way change."""
        self.count = 0
        self.full = False

    def begin(self, warp: int, group: int, name: str, at: float) -> None:
        """A warp of the replay's workgroup number `group` begins."""
        self.warps[warp] = _Warp(group, name, at, at)

    def wait(self, warp: int, begin: float, end: float, reason: str, instruction: int) -> None:
        """A warp could not issue an instruction from clock `begin` until `end`."""
        if end - begin >= SHORT and self._room():
            self.warps[warp].waits.append((begin, end, reason, instruction))

    def until(self, warp: int, at: float) -> None:
        """A warp has ended."""
        self.warps[warp].end = at

    def work(self, unit: str, warp: int, begin: float, end: float, instruction: int, size: int = 0) -> None:
        """A unit works for a warp; `size`: bytes that are moved."""
        if self._room():
            self.spans.setdefault(unit, []).append((begin, end, instruction, size))
            self.warps[warp].does[unit.split(" of ")[0]] = None

    def move(self, what: str, begin: float, end: float, size: int) -> None:
        """Bytes of lanes are on their way."""
        if size and self._room():
            moved = self.moves.setdefault(what, {})
            moved[begin] = moved.get(begin, 0) + size
            moved[end] = moved.get(end, 0) - size

    def _room(self) -> bool:
        self.count += 1
        self.full = self.count > MOST
        return not self.full

    def trace(self) -> dict[str, Any]:
        """The timeline in the Trace Event Format. Times are clocks; `metadata` says whether it ends early."""
        return {
            "traceEvents": list(self._events()),
            "displayTimeUnit": "ns",
            "metadata": {"unit": "1 us is one clock of the model", "complete": not self.full},
        }

    def _events(self) -> Iterator[dict[str, Any]]:
        groups = sorted({w.group for w in self.warps.values()})
        process = {g: i + 2 for i, g in enumerate(groups)}
        yield _name("process_name", 1, 0, "units")
        for g in groups:
            yield _name("process_name", process[g], 0, f"workgroup {g}")
        for number, w in sorted(self.warps.items()):
            does = f" ({', '.join(w.does)})" if w.does else ""
            yield _name("thread_name", process[w.group], number, w.name + does)
            at = w.begin
            for begin, end, reason, instruction in w.waits:
                if begin > at:
                    yield _span(process[w.group], number, "issues", "issue", at, begin)
                yield _span(process[w.group], number, reason, "wait", begin, end, self._what(instruction))
                at = end
            if w.end > at:
                yield _span(process[w.group], number, "issues", "issue", at, w.end)
        track = 0
        for unit in sorted(self.spans):
            rows = _rows(self.spans[unit])
            for i in range(1 + max(rows)):
                yield _name("thread_name", 1, track + i, unit if not i else f"{unit}, {i + 1}")
            for row, (begin, end, instruction, size) in zip(rows, sorted(self.spans[unit])):
                what = self._what(instruction) | ({"bytes": size} if size else {})
                name = str(what["instruction"]).split(maxsplit=1)[0]
                yield _span(1, track + row, name, unit, begin, end, what)
            track += 1 + max(rows)
        for moving, moved in sorted(self.moves.items()):
            there = 0
            for at, change in sorted(moved.items()):
                there += change
                yield {"ph": "C", "name": f"{moving}: bytes on their way", "pid": 1, "ts": at, "args": {"bytes": there}}

    def _what(self, instruction: int) -> dict[str, Any]:
        text, line = self.place(instruction)
        return {"instruction": " ".join(text.split())} | ({"line": line} if line else {})


def _rows(spans: list[tuple[float, float, int, int]]) -> list[int]:
    """For spans in order of their begin the row of each, so that none overlap in a row."""
    free: list[tuple[float, int]] = []
    out = []
    rows = 0
    for begin, end, *_ in sorted(spans):
        if free and free[0][0] <= begin:
            row = heapq.heappop(free)[1]
        else:
            row, rows = rows, rows + 1
        heapq.heappush(free, (end, row))
        out.append(row)
    return out


def _name(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}


def _span(
    process: int, track: int, name: str, category: str, begin: float, end: float, what: dict[str, Any] | None = None
) -> dict[str, Any]:
    found = {"ph": "X", "name": name, "cat": category, "pid": process, "tid": track, "ts": begin, "dur": end - begin}
    return found | ({"args": what} if what else {})
