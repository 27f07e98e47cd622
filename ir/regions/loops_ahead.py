"""Which loops of a kernel load several trips ahead, straight into registers, and how many.

In: a kernel whose loads run a trip ahead, its target, how many workgroups a unit has of the grid. Out: labels with
numbers, by which it is lowered again (`Choices.ahead`): only the kernel shows how long its trips are.

Invariant: as many waves stay resident; where they take turns at a SIMD, a trip takes as long as those of all of them.
"""

from __future__ import annotations

from wavedsl.ir.kernel.kernel_ir import Kernel, Op
from wavedsl.ir.kernel.pressure import pressure
from wavedsl.ir.kernel.trip_clocks import trip_clocks, trips_to_cover
from wavedsl.ir.kernel.unit_clocks import UNKNOWN
from wavedsl.ir.lower.lowering_notes import LoopNote
from wavedsl.ir.schedule.body_stages import MANY_TRIPS
from wavedsl.ir.schedule.trips_ahead import MOST_AHEAD, ahead_problem, ahead_words
from wavedsl.ir.target import Target, wave_room

MOST_COUNTED = 60
"""Accesses to memory on their way that waits can tell apart, where they are instructions."""

SPARE = 32
"""Registers that ptxas wants beside those that values take together: parts of sums that took 233 so spilled."""


def loops_ahead(
    kernel: Kernel, target: Target, waves: int, groups: int, stages: int | None
) -> tuple[tuple[str, int], ...]:
    """Labels of a kernel's loops whose loads are to start more than a trip ahead, and how many trips: as many as pass
    while a load is on its way, up to half of the loop's. `groups`: workgroups that the grid has for a unit, 0 where
    nobody knows. `stages`: what the user asks for instead, the trip that uses the loads among them; then only a wave's
    registers are the limit."""
    notes = [note for note in kernel.notes["lowering"].loops if not ahead_problem(note.body, note.steps)]
    if not notes or target.asynchronous or stages == 1:
        return ()
    threads, held = waves * target.wave_size, pressure(kernel, target)
    room = wave_room(target, waves) - (SPARE if target.assembler_schedules else 0)
    resident = target.resident_waves(held, kernel.shared_bytes, threads)
    if groups:
        resident = min(resident, groups * waves)
    beside = max(waves, resident if groups else waves)
    loops = {op.attrs.get("label", ""): op for op in kernel.body.walk() if op.name == "for"}
    found: list[tuple[str, int]] = []
    for note in notes:
        if note.label not in loops:
            continue
        loop, words = loops[note.label], ahead_words(note.body, note.steps)
        trips = min(UNKNOWN, note.most or UNKNOWN) if note.trips is None else note.trips
        clocks = trip_clocks(loop, target, -(-beside // target.simds), beside)
        wanted = stages - 1 if stages else trips_to_cover(clocks, target, trips >= MANY_TRIPS)
        ahead = min(_most(note, trips, loop, target), wanted)
        while ahead > 1:
            taken = held + (ahead - 1) * words
            as_many = stages or target.resident_waves(taken, kernel.shared_bytes, threads) >= resident
            if taken <= room and as_many:
                break
            ahead -= 1
        if ahead > 1:
            found.append((note.label, ahead))
    return tuple(found)


def _most(note: LoopNote, trips: int, loop: Op, target: Target) -> int:
    """Trips that a loop's loads may run ahead: those that place others run ahead of these, each as far."""
    most = min(MOST_AHEAD, trips // 2 // (note.body.count - 1))
    if target.assembler_schedules:
        return most
    accesses = sum("global" in op.name or "far" in op.name for op in loop.regions[0].ops)
    return min(most, MOST_COUNTED // max(1, accesses))


__all__ = ["loops_ahead"]
