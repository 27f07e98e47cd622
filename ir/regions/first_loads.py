"""Which loops start all that they load for the next trip before they compute, although that is many registers.

In: a kernel whose list-scheduled loops load at a trip's end (`body_stages.loads_first`), its target, the workgroups
that the grid has for a unit. Out: their labels, by which it is lowered again (`Choices.first`), and what a trip takes
either way. A workgroup whose waves meet in every trip, as a norm's gradients do for the sums of its rows, computes
while nothing is on its way, and waits for memory while nothing is computed; another one beside it fills a part of that.

Invariant: where as many workgroups stay resident, nothing is lost by it; else clocks are compared.
"""

from __future__ import annotations

from wavedsl.ir.kernel.kernel_ir import Kernel, Op
from wavedsl.ir.kernel.pressure import pressure
from wavedsl.ir.kernel.trip_clocks import FROM_MEMORY, trip_clocks
from wavedsl.ir.lower.lowering_notes import LoopNote
from wavedsl.ir.schedule.body_stages import MANY_TRIPS, early_and_many
from wavedsl.ir.target import Target


def late_loads(kernel: Kernel, target: Target) -> tuple[str, ...]:
    """Labels of a kernel's list-scheduled loops of many trips that load for the next trip when they have computed."""
    if target.asynchronous or not target.memory_rate:
        return ()
    return tuple(n.label for n in kernel.notes["lowering"].loops if _loads_late(n) and n.label in _loops(kernel))


def resident_groups(kernel: Kernel, target: Target, groups: int) -> int:
    """Workgroups that a unit has of a kernel at a time, `groups` at the most; 0: nobody knows."""
    if groups == 1:
        return 1
    found = target.resident_waves(pressure(kernel, target), kernel.shared_bytes, kernel.block) // kernel.waves
    return max(1, min(found, groups) if groups else found)


def trip_time(kernel: Kernel, labels: tuple[str, ...], target: Target, groups: int, first: bool) -> float:
    """Clocks of a unit for a trip of each of these loops, per workgroup that it has at a time: memory's for all that is
    moved, or, longer, what a workgroup computes; and unless it loads first, one after the other."""
    resident = resident_groups(kernel, target, groups)
    waves = resident * kernel.waves
    latency = target.cost("load.global", 4).latency * FROM_MEMORY
    clocks = 0.0
    for label, loop in _loops(kernel).items():
        if label in labels:
            memory = moved_bytes(loop) * kernel.block * target.units / target.memory_rate
            alone = trip_clocks(loop, target, -(-kernel.waves // target.simds), kernel.waves)
            all_waves = trip_clocks(loop, target, -(-waves // target.simds), waves)
            one = max(alone, latency, memory) if first else alone + latency + memory
            clocks += max(resident * memory, all_waves, one) / resident
    return clocks


def moved_bytes(loop: Op) -> int:
    """Bytes that a lane loads and stores in a trip, but for what all lanes have in common."""
    ops = [op for op in loop.regions[0].walk() if op.name in ("load.global", "store.global") and not op.args[1].uniform]
    return sum(int(op.attrs["bytes"]) for op in ops)


def _loads_late(note: LoopNote) -> bool:
    many = note.trips is None or note.trips >= MANY_TRIPS
    return note.body.kind == "list" and early_and_many(note.steps, note.body.stages, many)


def _loops(kernel: Kernel) -> dict[str, Op]:
    return {op.attrs.get("label", ""): op for op in kernel.body.walk() if op.name == "for"}


__all__ = ["late_loads", "resident_groups", "trip_time"]
