"""How many trips of a pipelined loop lie between two jumps."""

from __future__ import annotations

from collections.abc import Callable

from wavedsl.ir.kernel_ir import Kernel, Op
from wavedsl.ir.unroll import static_trips

OVERHEAD = 10
"""Instructions of a loop's own per trip: its counter and test, the guards and offsets of its copies."""
WORTH = 16
MOST = 512
"""Steps of an unrolled body; each is an instruction of about 8 bytes, and two compute units share 64 KiB of them."""


def ring_factor(kernel: Kernel) -> Callable[[Op], int]:
    """Trips per jump of each pipelined loop.

    At least as many as its shared buffers have slots, so that slot offsets are immediates; then twice as many as long
    as what a loop does for itself (`OVERHEAD`) is more than a part in `WORTH` of its body, the trips divide evenly and
    the body stays below `MOST` steps. Rings of more than two slots stay rolled: one addition per trip is cheaper than
    that much code. So do loops whose trip count is known at run time only, which would need a second loop for what is
    left.
    """
    notes = {x.label: x for x in kernel.notes["lowering"].loops}

    def factor(loop: Op) -> int:
        note = notes.get(loop.attrs.get("label", ""))
        # A part of a loop that was split runs its own number of trips, if that is known at all.
        trips = None if note is None else static_trips(loop) if "part" in loop.attrs else note.trips
        if note is None or note.slots != 2 or note.body.count <= 1 or trips is None:
            return 1
        found, size = note.slots, len(note.steps)
        while (
            OVERHEAD * WORTH > size * found
            and 2 * found * size <= MOST
            and trips % (2 * found) == 0
            and trips > 2 * found
        ):
            found *= 2
        return found

    return factor
