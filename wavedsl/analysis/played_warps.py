"""Clocks of an SM before anything runs: a kernel's IR turned into warps' instructions, and replayed.

In: a kernel's IR, the values of its hidden parameters, how the launch loads the chip. Out: `Played`. What the warp
replay makes of emitted text (`emulator/ptx/warp_replay.py`) it makes of the IR as well (`warp_program`, `warp_walk`).
Of a long loop the first and last trips are replayed, twice: how much longer five more trips take is what those left out
count for. Where there are several such loops each has its own second replay.

Of a cluster one workgroup is replayed: what it does to the others they do to it, at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wavedsl.analysis.lanes import Threads
from wavedsl.analysis.played import MOST_OPS, Played, of_launch, together
from wavedsl.analysis.warp_program import WARP, Program
from wavedsl.analysis.warp_walk import Events, Loop, Walk
from wavedsl.ir.kernel.kernel_ir import Kernel
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target
from wavedsl.runtime.emulator.cycle_chips import SmModel
from wavedsl.runtime.emulator.cycle_queue import Launch, Timing
from wavedsl.runtime.emulator.ptx.warp_replay import WarpReplay
from wavedsl.runtime.emulator.ptx.warp_state import Fork, marks_of

QUEUED = 5
"""Times as many instructions are replayed where workgroups have no long loop: how they take each other's places then
decides."""


class Walks:
    """What the warps of a kernel run, whatever the chip's clock: each replay of it reads the same traces. `machine`
    describes what the kernel was compiled with, `chip` how long its instructions take. `group`: the workgroup that is
    replayed for all of them."""

    def __init__(
        self, kernel: Kernel, machine: Target, chip: SmModel, hidden: Mapping[int, int], grid: tuple[int, ...],
        group: tuple[int, ...] = (0, 0, 0),
    ):  # fmt: skip
        self.machine = machine
        self.program = Program(kernel, machine, chip)
        self.threads = Threads(kernel, machine.name, 32, hidden, grid, group, lanes=WARP)
        self.known: dict[tuple[Loop | None, bool], Walk] = {}
        self.marks: dict[Any, list[int]] = {}

    def walk(self, short: Loop | None = None, last: bool = True) -> Walk:
        found = self.known.get((short, last))
        if found is None:
            found = self.known[short, last] = Walk(self.program, self.threads, short, last)
            found.run()
        return found

    def fork(self, walk: Walk, less: Walk) -> Fork | None:
        """Where the replay of `walk` and that of `less` go different ways; None if they have nothing in common."""
        marks = self.marks.get((less.short, less.last))
        if marks is None:
            marks = marks_of(walk.warps, less.warps, self.program.ops)
            self.marks[less.short, less.last] = marks
        return Fork(less.warps, marks) if marks else None


def play_warps(walks: Walks, launch: Launch, chip: SmModel, shared_bytes: int, last: bool = True) -> Played:
    """The workgroups of the SM that has most of them, while others load the chip as `launch` says. `chip` may have
    other rates of L2 and memory than that of `walks`, but no other latencies."""
    walk = walks.walk(last=last)
    whole = launch.groups * walk.played <= MOST_OPS
    if walk.total == walk.played and (2 * launch.resident + 1) * walk.played <= QUEUED * MOST_OPS:
        whole = True  # they take each other's places, and what is not replayed goes on at their rate
    groups = launch.groups if whole else together(launch, walk.played)
    resident = min(groups, launch.resident) if whole else groups
    taken = resident * -(-shared_bytes // chip.line)
    here = Launch(groups, resident, launch.memory_share, launch.used_units)

    shorter = {loop: walks.walk(loop, last) for loop, count in walk.left.items() if count}

    def new() -> WarpReplay:
        lines = max(64, chip.l1_lines - taken)
        replay = WarpReplay(walks.program, Events(), chip, here, 1, lines)  # type: ignore[arg-type]
        replay.explains = False
        return replay

    replay = new()
    forks = {less.short: fork for less in shorter.values() if (fork := walks.fork(walk, less))}
    replay.forks = list(forks.values())

    def replayed(less: Walk) -> _Clocks:
        """The replay of fewer trips: what it has in common with that of more has been."""
        fork = forks.get(less.short)
        mine = fork.replay if fork is not None else None
        return _Clocks.of((mine or new()).run([less.warps], MOST_OPS))

    def with_inner(clocks: _Clocks, of: Walk) -> _Clocks:
        """`clocks` and those of the trips that loops in loops leave out."""
        for loop, one in each.items():
            clocks = clocks.plus(one, of.left.get(loop, 0))
        return clocks

    played = _Clocks.of(replay.run([walk.warps], MOST_OPS))
    each: dict[Loop, _Clocks] = {}
    """By loop in a loop: of an instruction of the trips that it leaves out."""
    for loop, less in shorter.items():
        if loop.inside and walk.played > less.played:
            each[loop] = played.beyond(replayed(less), 1 / (walk.played - less.played))
    found = full = with_inner(played, walk)
    for loop, less in shorter.items():
        if not loop.inside and walk.whole > less.whole:
            fewer = with_inner(replayed(less), less)
            found = found.plus(full.beyond(fewer, 1 / (walk.whole - less.whole)), walk.left[loop])
    return of_launch(Played(found.clocks, found.busy), groups, launch)


@dataclass
class _Clocks:
    """Clocks of a replay, and how many of them each unit is busy."""

    clocks: float
    busy: dict[str, float]

    @staticmethod
    def of(timing: Timing) -> _Clocks:
        return _Clocks(float(timing.cycles), {u: x * timing.cycles for u, x in timing.utilisation.items()})

    def beyond(self, less: _Clocks, scale: float) -> _Clocks:
        """`scale` times how much more this is than `less`."""
        busy = {u: max(0.0, x - less.busy.get(u, 0.0)) * scale for u, x in self.busy.items()}
        return _Clocks(max(0.0, self.clocks - less.clocks) * scale, busy)

    def plus(self, each: _Clocks, times: float) -> _Clocks:
        busy = {u: x + each.busy.get(u, 0.0) * times for u, x in self.busy.items()}
        return _Clocks(self.clocks + each.clocks * times, busy)
