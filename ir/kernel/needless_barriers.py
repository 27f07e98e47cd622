"""Removes barriers of the workgroup, and of a warp, that order nothing.

In: a kernel whose loops are unrolled. Out: the same kernel without the barriers that no two accesses to shared memory
need: nothing that may have happened since the barrier before it (or since the kernel began) touches bytes that what may
happen until the next one touches too, one of them writing. A barrier of a warp orders its lanes, as does any that the
whole warp comes to; waves it does not order, so between those of the workgroup it counts as nothing.

Every exchange between waves begins with a barrier for those who still read what was there before. The first one of a
kernel has nobody to wait for, nor has one behind a barrier after which only other buffers were touched.

What may have happened is followed through loops and branches: both ways past a region, and round a loop's back edge.
Accesses are told apart by the ranges of their addresses (`dead_stores.span`), and where those meet by the addresses of
every thread (`own_places.py`): what each has written or copied itself it may read without a barrier. Atomics of shared
memory need none among each other. A wait for asynchronous copies writes what any copy of the kernel does; an operation
that waits for something else, or of whose places nothing is known, counts as one that writes everywhere. A fence is a
barrier, too. INVARIANT: a barrier orders shared memory alone (`fence` orders global memory too, and stays), so whatever
it leaves is ordered by the barriers that are left. Those of warpgroups stay: what one thread of theirs tells a copy
engine is behind some. Of any kind, the second of two goes between which nothing happens to shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from wavedsl.ir.kernel.between import Between
from wavedsl.ir.kernel.dead_stores import READS, WRITES, span
from wavedsl.ir.kernel.kernel_ir import ROWS, Kernel, Op
from wavedsl.ir.kernel.own_places import PLACES, OwnPlaces

EVERYWHERE = (0, 1 << 40)
WARP = 32
"""Lanes of the longest wave whose own barriers are looked at."""
ROLE = frozenset(("id", "threads"))
"""Attributes that say which waves of the workgroup meet."""
HARMLESS = frozenset(("priority", "copy.commit", "bulk.commit", "matrix.commit", "fence", "warp.fence"))
"""Operations that are kept in their places and touch no shared memory."""
TOUCHING = (READS, WRITES, "sync")
"""Effects of operations that may touch shared memory."""
Touch = tuple[int, int, bool, Op]
"""First byte and the one behind the last that an operation may touch, whether it writes there, and the operation."""


def remove_needless_barriers(kernel: Kernel) -> int:
    """Delete them in place; returns how many went."""
    if not any(op.name in ("barrier", "wave.barrier") for op in kernel.body.walk()):
        return 0
    gone = 0
    every = _candidates(kernel)
    around = _Around(kernel)
    for op in every:
        if not around.needed(op):
            around.between.remove(op)
            gone += 1
    for op in list(_repeated(kernel, around)):
        around.between.remove(op)
        gone += 1
    return gone


def needless(kernel: Kernel) -> Iterator[Op]:
    """The barriers that order nothing, each by itself."""
    around = _Around(kernel)
    found = {op: None for op in _candidates(kernel) if not around.needed(op)}
    yield from found | dict.fromkeys(_repeated(kernel, around))


def _repeated(kernel: Kernel, around: _Around) -> Iterator[Op]:
    """Barriers that those who meet there have just met at, or at a fence, with nothing done to shared memory since.
    (Halves of a workgroup that are a barrier apart count each other's.)"""
    if any("half" in op.attrs for op in kernel.body.walk() if op.name == "barrier"):
        return
    for region in kernel.body.regions():
        last: object = None
        for op in region.ops:
            if op.name in ("barrier", "wave.barrier", "fence"):
                who = _meeting(kernel, op)
                if who == last and op.name != "fence":
                    yield op
                last = who
            elif op.regions or (not ROWS[op.name].pure and around.between.deeds(op)):
                last = None


def _meeting(kernel: Kernel, op: Op) -> object:
    """Who meets at a barrier or fence: the wave, or those that name the same barrier."""
    threads = op.attrs.get("threads", kernel.block)
    if op.name == "wave.barrier" or threads == kernel.wave_size:
        return "wave"
    return tuple(op.attrs.get(key) for key in sorted(ROLE))


def _candidates(kernel: Kernel) -> list[Op]:
    """Barriers that may go: of a warp, and of all waves of the workgroup or of a role, where all pass the same ones.
    (Groups of waves that are a barrier apart count each other's.)"""
    every = [op for op in kernel.body.walk() if op.name == "barrier"]
    of_all = every if all(op.attrs.keys() <= ROLE for op in every) else []
    if kernel.wave_size > WARP:
        return of_all
    return of_all + [op for op in kernel.body.walk() if op.name == "wave.barrier"]


def _divides(barrier: Op, op: Op) -> bool:
    """Whether those who meet at a barrier also meet at an operation: at another barrier of theirs, or at a fence."""
    if op.name not in ("barrier", "fence"):
        return False
    return all(op.attrs.get(key) == barrier.attrs.get(key) for key in ROLE)


def _divides_lanes(op: Op) -> bool:
    """Whether all lanes of a warp wait for each other here, with those of other warps or without."""
    return op.name in ("barrier", "fence", "wave.barrier", "warp.fence")


class _Around:
    """What may touch shared memory before and behind a barrier, up to the next ones."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        copies = (op for op in kernel.body.walk() if op.name == "copy.async")
        self.copied = tuple((*(span(kernel, op) or EVERYWHERE), True, op) for op in copies)
        self.own = OwnPlaces(kernel)
        self.between = Between(kernel, self.touched)

    def needed(self, op: Op) -> bool:
        divides = partial(_divides, op) if op.name == "barrier" else _divides_lanes
        before = self.between.reached(op, -1, divides)
        if not before:
            return False
        behind = self.between.reached(op, 1, divides)
        meeting = [
            (a, b)
            for low, high, writes, b in behind
            for first, last, wrote, a in before
            if (writes or wrote) and first < high and low < last
            and not a.name == b.name == "atomic.shared"
        ]  # fmt: skip
        if any(a.name not in PLACES or b.name not in PLACES for a, b in meeting):
            return True
        if op.name == "barrier" and self.kernel.waves > 1 and any(a.name == "copy.async" for a, _ in meeting):
            return True  # what copies bring to several waves is read behind a barrier (verify_copies.py)
        group = self.kernel.block if op.name == "barrier" else self.kernel.wave_size
        return not all(self.own.apart(a, b, group) for a, b in meeting)

    def touched(self, op: Op) -> tuple[Touch, ...]:
        effects = op.row.effects
        if op.regions or op.name in HARMLESS or effects.isdisjoint(TOUCHING):
            return ()
        if op.name == "wave.barrier" and self.kernel.wave_size <= WARP:
            return ()
        if op.name == "copy.wait":
            return self.copied
        if op.name not in ("load.shared", "store.shared", "copy.async", "atomic.shared"):
            return ((*EVERYWHERE, True, op),)
        low, high = span(self.kernel, op) or EVERYWHERE
        return ((low, high, WRITES in effects, op),)


__all__ = ["needless", "remove_needless_barriers"]
