"""How many trips of a pipelined loop lie between two jumps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wavedsl.ir.kernel.kernel_ir import Kernel, Op
from wavedsl.ir.kernel.unroll import Turns, static_trips
from wavedsl.ir.schedule.steps import Step

OVERHEAD = 10
"""Instructions of a loop's own per trip: its counter and test, the guards and offsets of its copies."""
WORTH = 16
MOST = 512
"""Steps of an unrolled body; each is an instruction of about 8 bytes, and two compute units share 64 KiB of them."""


def ring_factor(kernel: Kernel) -> Callable[[Op], Turns]:
    """Trips per jump of each pipelined loop.

    At least as many as its shared buffers have slots, so that slot offsets are immediates; then twice as many as long
    as what a loop does for itself (`OVERHEAD`) is more than a part in `WORTH` of its body, the trips divide evenly and
    the body stays below `MOST` steps. The last trips, at least as many as copies run ahead, are plain code behind the
    loop where their copies for nobody cost time (`_copies_for_nobody`; `dead_stores` removes them); then the loop and
    they stay below `MOST` steps together, and the trips need not divide. Rings of more than two slots stay rolled: one
    addition per trip is cheaper than that much code. So do loops whose trip count is known at run time only, which
    would need a second loop for what is left.
    """
    notes = {x.label: x for x in kernel.notes["lowering"].loops}

    def factor(loop: Op) -> Turns:
        note = notes.get(loop.attrs.get("label", ""))
        # A part of a loop that was split runs its own number of trips, if that is known at all.
        trips = None if note is None else static_trips(loop) if "part" in loop.attrs else note.trips
        if note is None or note.slots != 2 or note.body.count <= 1 or trips is None:
            return Turns(1)
        found, size = note.slots, len(note.steps)
        ahead = note.body.count - 1 if _copies_for_nobody(note.steps) else 0

        def behind(found: int) -> int:
            """Trips behind the loop."""
            return ahead + (trips - ahead) % found if ahead else trips % found

        while (
            OVERHEAD * WORTH > size * found
            and (2 * found + behind(2 * found)) * size <= MOST
            and (ahead or trips % (2 * found) == 0)
            and trips - behind(2 * found) > 2 * found
        ):
            found *= 2
        return Turns(found, behind(found))

    return factor


def _copies_for_nobody(steps: Sequence[Step]) -> bool:
    """Whether a loop's copies past the end cost time: those that pass by the registers write shared memory also where
    they are switched off, and no product hides it where vector memory or LDS is busy for as long as the matrix units.
    Copies through registers are not worth the code by the cycle model (gfx942: 0.15 % more clocks to 0.04 % fewer)."""
    busy: dict[str, int] = {}
    for s in steps:
        for unit, clocks in s.resources:
            busy[unit] = busy.get(unit, 0) + clocks
    direct = any(s.kind == "acopy" for s in steps)
    return direct and 0 < busy.get("mfma", 0) <= max(busy.get("lds", 0), busy.get("vmem", 0))
