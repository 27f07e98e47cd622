"""Rows are loaded again behind barriers where a second workgroup finds room so.

In: a kernel without loops, of which a unit holds one workgroup, for registers alone. Out: the same, holding next to
nothing over its barriers, and a note of it, if two fit then. A workgroup that is alone loads, waits for the others of
its waves, computes and stores, and memory does nothing meanwhile; a row of 32000 columns of bf16 is 16 words of a lane
in 32 warps, but 32 as the f32 that its sums are made of and its exponentials are, so that ptxas takes 56 registers.
Told of two workgroups it spills: it computes nothing again over a barrier and knows common subexpressions from one side
of it on the other. Loads it leaves there, and they find their lines in the unit's cache.
INVARIANT: that of `read_again`.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from wavedsl.ir.kernel.build_core import PINNED
from wavedsl.ir.kernel.element_order import Saved, order_regions
from wavedsl.ir.kernel.kernel_ir import Kernel, Op
from wavedsl.ir.kernel.pressure import pressure
from wavedsl.ir.kernel.read_again import DEAREST_BESIDE, constant_loads, read_again
from wavedsl.ir.kernel.unit_clocks import unit_clocks
from wavedsl.ir.target import Target, wave_room

BESIDE = "beside"
"""Note of a kernel: workgroups that a unit holds since rows are loaded again."""
FREE = 2
"""Registers that the text leaves: ptxas starts loads earlier, if there are any."""


def read_beside(kernel: Kernel, target: Target | None = None) -> Kernel | None:
    """None where rows are loaded again and a second workgroup fits; the kernel where it stays as it is."""
    if target is None or not target.assembler_schedules or target.asynchronous or not _alone(kernel, target):
        return kernel
    names = {op.name for op in kernel.body.walk()}
    if "barrier" not in names or not names.isdisjoint({"for", "copy.async", *PINNED}):
        return kernel
    loads = [op for op in constant_loads(kernel) if not op.args[1].uniform]
    loaded = _bytes(loads, kernel)
    if not loads or 2 * (loaded + kernel.shared_bytes) > target.shared_bytes:  # the cache is what is left of that
        return kernel
    stored = _bytes((op for op in kernel.body.walk() if op.name == "store.global"), kernel)
    memory = (loaded + stored) * target.units / target.memory_rate
    apart = memory + unit_clocks(kernel, target, 1)
    room = wave_room(target, 2 * kernel.waves)
    before = Saved(kernel)
    again = read_again(kernel, target, room, DEAREST_BESIDE)
    if again:
        order_regions(kernel, target, [*again, *constant_loads(kernel)])
        together = max(memory, unit_clocks(kernel, target, 2))
        if pressure(kernel, target) + FREE <= room and together < apart:
            kernel.notes[BESIDE] = 2
            return None
        before.restore()
    return kernel


def _alone(kernel: Kernel, target: Target) -> bool:
    """Whether a unit holds one workgroup of a kernel and would hold two, if there were registers, and the grid has
    them."""
    known = all(isinstance(n, int) and n > 0 for n in kernel.grid)  # else the launch says
    if not target.memory_rate or (known and prod(kernel.grid) <= target.units):
        return False

    def fit(registers: int) -> int:
        return target.resident_waves(registers, kernel.shared_bytes, kernel.block) // kernel.waves

    return fit(pressure(kernel, target)) <= 1 and fit(wave_room(target, 2 * kernel.waves)) >= 2


def _bytes(ops: Iterable[Op], kernel: Kernel) -> int:
    """Bytes that a workgroup's lanes move by ops, all of them."""
    return sum(int(op.attrs["bytes"]) for op in ops) * kernel.block


__all__ = ["BESIDE", "read_beside"]
