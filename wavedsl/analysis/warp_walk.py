"""What each warp of a workgroup runs, worked out of a kernel's IR: blocks one after the other, with their events.

In: a `Program` and the values that threads have (`lanes.Threads`). Out: a trace per warp, as emulation of emitted text
leaves them: addresses come from `lanes`, phases of mbarriers from the ring's own arithmetic. Of a long loop the first
and last trips are written down; what those left out count for is kept beside.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from wavedsl.analysis.lanes import Frame, Threads, loop_counters
from wavedsl.analysis.warp_program import BARRIERS, GLOBAL, SHARED, SIGNALS, WARP, Program
from wavedsl.ir.kernel.kernel_ir import Op, Region, Value
from wavedsl.ir.kernel.split_loops import per_wave
from wavedsl.runtime.emulator.ptx.trace import WarpTrace
from wavedsl.runtime.emulator.ptx.warp_events import lines_of

LONG, SHORT = (10, 2), (5, 2)
"""Trips at the beginning and end of a loop that are replayed, in the longer and in the shorter replay."""

Happened = Sequence[tuple[Any, ...]]
Visit = dict[int, Happened]
_NOTHING: Visit = {}
"""The events of a block that has none: shared, and never changed."""


class Events:
    """What the replay needs of `warp_events.Events`: visits belong to one warp here."""

    first = (0,)

    def of(self, visit: Visit, index: int, warp: int) -> Sequence[tuple[Any, ...]]:
        return visit.get(index, ())

    def rank(self, key: int, first: int) -> int:
        return 0


class Loop(NamedTuple):
    """A loop, and whether it stands in another one. `name` None: all such loops, where one wave copies for the others
    and takes their trips along."""

    name: Hashable
    inside: bool


class Walk:
    """Goes through a kernel wave by wave and writes down what each warp runs: of long loops `LONG` trips, of the one
    that is `short` `SHORT`. `last`: with what one of several workgroups does, who comes last."""

    def __init__(self, program: Program, threads: Threads, short: Loop | None = None, last: bool = True):
        self.program, self.threads, self.kernel = program, threads, program.kernel
        self.short, self.last = short, last
        self.ending = True
        """Whether all loops around are in their last trip: who takes turns comes last to the tile of its last one, if
        to any (as in `played`)."""
        self.depth = 0
        self.each = self.kernel.wave_size // WARP
        self.warps = [WarpTrace(i) for i in range(self.kernel.waves * self.each)]
        self.how: dict[str, Callable[[Op, Frame, int], Happened]] = {
            **dict.fromkeys(SHARED, self.on_shared),
            **dict.fromkeys(GLOBAL, self.on_global),
            **dict.fromkeys(BARRIERS, self.at_barrier),
            **dict.fromkeys((*SIGNALS, "signal.wait"), self.signal),
            "copy.bulk.store": self.bulk_store,
        }
        """What gives the events of one op and warp, as `warp_events` has them, by the op's name."""
        self.asked: dict[tuple[int, int], int] = {}
        """(warp, mbarrier) → the phases that it last waited for."""
        self.played = 0
        """Warp instructions that are replayed."""
        self.left: dict[Loop, int] = {}
        """By loop the warp instructions of trips that it leaves out: of one in a loop those of the trips around it that
        are replayed, of another one with all trips of loops in it."""
        notes = self.kernel.notes.get("lowering")
        self.trips = {x.label: x.trips for x in (notes.loops if notes else ())}
        self.dims = {x.label: x.dim for x in (notes.loops if notes else ())}
        copying = bool(notes and notes.strategy and notes.strategy.specialize)
        self.computing = self.kernel.waves - copying
        self.copied: dict[str, list[int]] = {}
        """By dimension, in order: how many trips computing waves leave out of each loop over it. The copying one, which
        comes last, leaves out as many."""

    @property
    def whole(self) -> int:
        """Warp instructions with all trips of loops in loops."""
        return self.played + sum(count for loop, count in self.left.items() if loop.inside)

    @property
    def total(self) -> int:
        """Those with all trips."""
        return self.played + sum(self.left.values())

    @np.errstate(all="ignore")
    def run(self) -> None:
        varies = per_wave(self.kernel)
        loops = [op for op in self.kernel.body.walk() if op.name == "for"]
        apart = any(bound in varies for op in loops for bound in op.args[:2])
        frame = Frame(self.threads)
        for wave in range(self.kernel.waves):
            if apart:  # loops leave other values in each wave
                frame = Frame(self.threads)
            self.region(self.kernel.body, frame, wave, range(wave * self.each, (wave + 1) * self.each))
        self.program.settle()

    def region(self, region: Region, frame: Frame, wave: int, warps: range) -> None:
        blocks = self.program.flow.blocks
        for item in self.program.region(region):
            op = item.control
            if op is None:
                length = len(warps) * (blocks[item.block].end - blocks[item.block].start)
                self.played += length
                for warp in warps:
                    visit = _NOTHING if not item.events else self.visit(item.events, frame, warp)
                    self.warps[warp].visits.append((item.block, visit))  # type: ignore[arg-type]
            elif op.name == "for":
                self.loop(op, region, frame, wave, warps)
            else:
                self.branch(op, frame, wave, warps)

    def visit(self, events: Sequence[tuple[int, Op]], frame: Frame, warp: int) -> Visit:
        """The events of a block as one warp runs it."""
        how = self.how
        return {index: found for index, what in events if (found := how[what.name](what, frame, warp))}

    def names(self, op: Op, what: str, values: Sequence[Value], to: Sequence[Value], warps: range) -> None:
        if to:
            block = self.program.hand_over(op, what, values, to)
            for warp in warps:
                self.warps[warp].visits.append((block, _NOTHING))  # type: ignore[arg-type]

    def branch(self, op: Op, frame: Frame, wave: int, warps: range) -> None:
        condition = op.args[0]
        taken = frame.of_wave(condition, wave)
        if taken is None and op.attrs.get("one_of") and not (self.last and self.ending):
            taken = False
        region = op.regions[0] if taken is not False else op.regions[1] if len(op.regions) > 1 else None
        if region is None:
            return
        inside = range(warps.start, warps.start + 1) if taken is None and _elected(condition) else warps
        self.region(region, frame, wave, inside)
        if region.ops and region.ops[-1].name == "yield":
            self.names(op, f"if {taken}", region.ops[-1].args, op.results, warps)
        frame.chosen(op)

    def counters(self, op: Op, region: Region, frame: Frame, wave: int) -> tuple[Loop, list[int], int, int]:
        """The loop, its counter in the trips of a wave that are replayed, and behind how many of these how many are
        left out."""
        values = loop_counters(op, frame, self.trips, wave)
        label = op.attrs.get("label", "")
        copies = self.copied.get(label[5:]) if label.startswith("copy_") else None
        apart = self.computing == self.kernel.waves
        loop = Loop((label if label in self.dims else id(op)) if apart else None, self.depth > 0)
        if copies:
            left = copies.pop(0)
            begin, _ = self.kept(loop)
        elif wave < self.computing and label in self.dims and values.step == 1:
            begin, left = self.common(op, region, frame, *self.kept(loop))
            if op is self.parts(op, region)[-1] and not wave and self.computing < self.kernel.waves:
                self.copied.setdefault(self.dims[label], []).append(left)
            begin -= values.start
        else:
            begin, end = self.kept(loop)
            left = len(values) - begin - end if len(values) > sum(LONG) else 0
        if left <= 0 or not 0 < begin <= len(values) - left:
            return loop, list(values), 0, 0
        return loop, [*values[:begin], *values[begin + left :]], begin, left

    def kept(self, loop: Loop) -> tuple[int, int]:
        """Trips at the beginning and end of a loop that are replayed."""
        return SHORT if loop == self.short else LONG

    def common(self, op: Op, region: Region, frame: Frame, begin: int, end: int) -> tuple[int, int]:
        """From which trip on how many are left out of a loop that may be cut in parts (`split_loops`), and whose trips
        may be others in each wave: trips that no wave masks, as many in all."""
        parts = self.parts(op, region)
        whole = next((x for x in parts if x.attrs.get("part") == "whole"), op)
        waves = range(self.computing)
        unmasked = [loop_counters(whole, frame, self.trips, w) for w in waves]
        start = min(loop_counters(parts[0], frame, self.trips, w).start for w in waves)
        first = max(start + begin, *(x.start + 1 for x in unmasked))
        most = max(sum(len(loop_counters(x, frame, self.trips, w)) for x in parts) for w in waves)
        left = min(x.stop for x in unmasked) - end - first
        return first, left if most > sum(LONG) else 0

    @staticmethod
    def parts(op: Op, region: Region) -> list[Op]:
        """The parts of a cut loop, in order; of another one itself."""
        if "part" not in op.attrs:
            return [op]
        label = op.attrs.get("label")
        return [x for x in region.ops if x.name == "for" and "part" in x.attrs and x.attrs.get("label") == label]

    def loop(self, op: Op, region: Region, frame: Frame, wave: int, warps: range) -> None:
        body = op.regions[0]
        of, counters, begin, left = self.counters(op, region, frame, wave)
        carried = body.args[1:]
        self.names(op, "enter", op.args[3:], carried, warps)
        before: Frame | None = None
        self.depth += 1
        ending = self.ending
        for number, counter in enumerate(counters):
            self.ending = ending and number + 1 == len(counters)
            inner = frame.trip(op, number, counter, before)
            played, inside = self.played, dict(self.left)
            self.region(body, inner, wave, warps)
            if carried:
                self.names(op, "again", body.ops[-1].args, carried, warps)
            before = inner
            if left and number == begin - 1:
                self.leave_out(of, left, played, inside)
        self.ending = ending
        self.depth -= 1
        frame.leave(op, before)
        self.names(op, "leave", carried, op.results, warps)

    def leave_out(self, loop: Loop, trips: int, played: int, inside: Mapping[Loop, int]) -> None:
        """Count trips like the last one, before which there was so much of everything."""
        new = {x: count - inside.get(x, 0) for x, count in self.left.items()}
        more = self.played - played
        if loop.inside:
            for x, count in new.items():
                self.left[x] += count * trips
        else:
            more += sum(new.values())
        self.left[loop] = self.left.get(loop, 0) + more * trips

    # ------------------------------------------------------------------------------------------------ events

    def on_shared(self, op: Op, frame: Frame, warp: int) -> Happened:
        return (("shared", frame.shared(op, warp)),)

    def on_global(self, op: Op, frame: Frame, warp: int) -> Happened:
        sectors = frame.lines(op, warp)
        if not sectors:
            return ()
        found: tuple[Any, ...] = ("global", 32 * len(sectors), *lines_of(sectors))
        if op.name == "copy.async":
            return found, ("shared", max(1, op.attrs["bytes"] * WARP // 128))
        return (found,)

    def at_barrier(self, op: Op, frame: Frame, warp: int) -> Happened:
        name, wave = op.name, warp // self.each
        if name == "wave.barrier":
            return (("barrier", WARP, 1 + wave, self.each),)
        if name in ("turn.take", "turn.give"):
            of = wave if name == "turn.take" else (wave + 1) % op.attrs["waves"]
            return (("barrier", WARP, 128 + of, 2 * self.each),)
        threads = op.attrs.get("threads")
        return (("barrier", WARP, 64 + int(op.attrs.get("id", 0)), threads // WARP),) if threads else ()

    def bulk_store(self, op: Op, frame: Frame, warp: int) -> Happened:
        lanes = self.lanes(op.args[2], frame, warp)
        return (("store", lanes, lanes * self.box(op), 0),) if lanes else ()

    def signal(self, op: Op, frame: Frame, warp: int) -> Happened:
        """What happens to an mbarrier."""
        name, wave = op.name, warp // self.each
        key = frame.uniform(op.args[2 if name == "copy.bulk" else 0], wave)
        if key is None:
            return ()
        if name == "signal.wait":
            parity = frame.uniform(op.args[1], wave)
            phases = self.asked.get((warp, key), -1) + 1
            if parity is not None and phases % 2 == parity % 2:
                phases += 1
            self.asked[warp, key] = phases
            return (("test", 1, key, phases),)
        if name == "signal.init":
            return (("init", 1, key, op.attrs["count"]),)
        if name == "signal.expect":
            return (("arrive", 1, key, 1, op.attrs["bytes"]),)
        if name == "signal.copied":
            return (("copied", WARP, key, True),)
        if name == "copy.bulk":
            return (("copy", 1, key, self.box(op) * op.attrs["receivers"], 0),)
        lanes = self.lanes(op.args[-1], frame, warp)
        return (("arrive", lanes, key, 1, 0, name == "signal.arrive.at"),) if lanes else ()

    def lanes(self, mask: Value, frame: Frame, warp: int) -> int:
        """Lanes of a warp whose mask is set; unknown: the first of the wave."""
        if mask.const is not None:
            return WARP if mask.const else 0
        found = frame.set_lanes(mask, WARP)
        return int(warp % self.each == 0) if found is None else found[warp]

    def box(self, op: Op) -> int:
        """Bytes of a tensor map's box."""
        source = op.args[0].op
        param = self.kernel.params[source.attrs["index"]] if source is not None and source.name == "param" else None
        return 0 if param is None or param.map is None else prod(param.map.box) * param.dtype.bits // 8


def _elected(v: Value) -> bool:
    """Whether a condition holds in one thread of a wave."""
    return v.op is not None and (v.op.name == "elect" or any(_elected(a) for a in v.op.args))
