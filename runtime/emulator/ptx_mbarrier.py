"""mbarriers in the PTX emulator: arrival counts and phases, without transaction counts.

In: an instruction with its row. Out: a closure `step(mask)`. An mbarrier's state is kept beside shared memory, by CTA
and address: its bits are opaque to programs. Arriving releases what the warp knows, a successful test acquires what the
completed phase gathered, so data handed over through an mbarrier is no race.
A test that fails again and again while nobody arrives anywhere is a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.ir.errors import CompileError
from wavedsl.runtime.emulator.ptx_machine import SHARED_WINDOW, WINDOW, Machine
from wavedsl.runtime.emulator.ptx_memory import Access, AsyncCopies
from wavedsl.runtime.emulator.ptx_operands import Destination, source
from wavedsl.runtime.emulator.ptx_parse import Address, Inst, Reg

Array = Any
Mask = Any
Step = Callable[[Mask], None]

TURN = 512
"""Failed tests in a row, per warp, with no warp doing anything else between them, before it counts as a deadlock: one
turn of a group (`ptx_run.QUANTUM` blocks), so that each of the others, at most one per warp, has had its own."""


class Deadlock(Exception):
    """Raised out of a step: nobody can arrive any more."""


class _Phase:
    """One mbarrier: arrivals still pending in this phase, arrivals per phase, number of completed phases."""

    __slots__ = ("completed", "expected", "gathered", "initialiser", "pending", "released")

    def __init__(self, expected: int, warps: int, initialiser: tuple[int, int]):
        self.expected = self.pending = expected
        self.completed = 0
        self.gathered = np.zeros(warps, np.int32)
        self.released = np.zeros(warps, np.int32)
        self.initialiser = initialiser

    def arrive(self, clocks: Array | None) -> None:
        if clocks is not None:
            np.maximum(self.gathered, clocks, out=self.gathered)
        self.pending -= 1
        if self.pending <= 0:
            self.completed += 1
            self.pending = self.expected
            np.maximum(self.released, self.gathered, out=self.released)
            self.gathered = np.zeros_like(self.gathered)


class MBarriers:
    """All mbarriers of a batch."""

    def __init__(self, m: Machine, copies: AsyncCopies):
        self.m, self.copies = m, copies
        self.known: dict[tuple[int, int], _Phase] = {}
        self.idle = 0

    def reset(self) -> None:
        self.known.clear()
        self.idle = 0

    def progress(self, mask: Mask) -> None:
        """A warp does something other than wait."""
        self.idle = 0

    def step(self, inst: Inst, row: isa.Inst, pc: int) -> Step:
        """The closure of one mbarrier instruction."""
        effects = row.effects
        address: Address = next(a for a in inst.args if isinstance(a, Address))
        space = "shared" if "space" in row.mods or not _is_wide(self.m, address) else "generic"
        access = Access(self.m, inst, pc, space, address, 8, False)
        if "init" in effects:
            return self._init(inst, access)
        if "inval" in effects:
            return self._each(inst, access, lambda key, phase, thread: self.known.pop(key, None))
        if "arrive" in effects:
            return self._arrive(inst, row, access)
        if "test" in effects:
            return self._test(inst, row, access)
        if "async" in effects:
            return self._after_copies(inst, row, access)
        raise CompileError(f"{row.name} has a row but the emulator does not execute it")

    def _keys(self, inst: Inst, access: Access, mask: Mask) -> list[tuple[int, tuple[int, int]]]:
        """[(thread, (CTA, byte offset))] of the lanes that execute."""
        m = self.m
        lanes = np.arange(m.T) if mask is None else m.lanes(mask)
        at = access.address(lanes)
        if access.space == "generic":
            inside = (at >= SHARED_WINDOW) & (at < SHARED_WINDOW + WINDOW)
            at = np.where(inside, at - SHARED_WINDOW, -1)
        offset, lanes = access.shared.check(at, 8, inst, lanes)
        return list(zip(lanes.tolist(), zip(m.cta_of[lanes].tolist(), offset.tolist())))

    def _each(self, inst: Inst, access: Access, action: Callable[[tuple[int, int], _Phase, int], Any]) -> Step:
        def run(mask: Mask) -> None:
            for thread, key in self._keys(inst, access, mask):
                phase = self._find(inst, key, thread)
                if phase is not None:
                    action(key, phase, thread)

        return run

    def _find(self, inst: Inst, key: tuple[int, int], thread: int) -> _Phase | None:
        m = self.m
        phase = self.known.get(key)
        if phase is None:
            if not m.seen("uninitialised-read", inst):
                m.report("uninitialised-read", inst, f"no mbarrier has been initialised at byte {key[1]}", thread)
            return None
        if m.checks:
            warp, clock = phase.initialiser
            own = int(m.warp_of[thread])
            if warp != own and m.shadow.know[key[0], own, warp] < clock and not m.seen("race", inst):
                m.report(
                    "race", inst, "uses an mbarrier that another warp initialises, with no barrier between", thread
                )
        return phase

    def _init(self, inst: Inst, access: Access) -> Step:
        m = self.m
        count = source(m, inst.args[1], "u32")

        def run(mask: Mask) -> None:
            values = np.broadcast_to(count() if callable(count) else count, (m.T,))
            for thread, key in self._keys(inst, access, mask):
                warp = int(m.warp_of[thread])
                clock = int(m.shadow.know[key[0], warp, warp]) if m.checks else 0
                self.known[key] = _Phase(int(values[thread]), m.warps, (warp, clock))

        return run

    def _release(self, threads: list[int]) -> dict[int, Array | None]:
        """What each arriving thread's warp knows; a new epoch of those warps begins."""
        m = self.m
        if not m.checks:
            return dict.fromkeys(threads)
        know = m.shadow.know.reshape(m.NW, m.warps)
        out: dict[int, Array | None] = {t: know[t // 32].copy() for t in threads}
        for w in sorted({t // 32 for t in threads}):
            know[w, w % m.warps] += 1
        return out

    def _arrive(self, inst: Inst, row: isa.Inst, access: Access) -> Step:
        m = self.m
        state = Destination(m, inst.args[0], "b64")
        count = source(m, inst.args[2], "u32") if len(inst.args) > 2 else np.ones(1, np.uint32)

        def run(mask: Mask) -> None:
            self.idle = 0
            values = np.broadcast_to(count() if callable(count) else count, (m.T,))
            tokens = np.zeros(m.T, np.uint64)
            pairs = self._keys(inst, access, mask)
            clocks = self._release([t for t, _ in pairs])
            for thread, key in pairs:
                phase = self._find(inst, key, thread)
                if phase is None:
                    continue
                tokens[thread] = phase.completed
                for _ in range(int(values[thread])):
                    phase.arrive(clocks[thread])
            state.put(tokens, mask)

        return run

    def _test(self, inst: Inst, row: isa.Inst, access: Access) -> Step:
        m = self.m
        by_parity = ".parity" in row.name
        done = Destination(m, inst.args[0], "pred")
        token = source(m, inst.args[2], "u32" if by_parity else "b64")

        def run(mask: Mask) -> None:
            values = np.broadcast_to(token() if callable(token) else token, (m.T,))
            result = np.zeros(m.T, np.bool_)
            for thread, key in self._keys(inst, access, mask):
                phase = self._find(inst, key, thread)
                if phase is None:
                    continue
                asked = int(values[thread])
                ready = (phase.completed & 1) != (asked & 1) if by_parity else phase.completed > asked
                result[thread] = ready
                if ready and m.checks:
                    know = m.shadow.know[key[0], int(m.warp_of[thread])]
                    np.maximum(know, phase.released, out=know)
            done.put(result, mask)
            self.idle = 0 if result.any() else self.idle + 1
            if self.idle > TURN * (m.NW + 2):
                thread, key = self._keys(inst, access, mask)[0]
                found = self.known.get(key)
                lacks = (
                    f"{found.pending} of {found.expected} arrivals are missing"
                    if found is not None
                    else "none is there"
                )
                m.report("deadlock", inst, f"the mbarrier at byte {key[1]} never completes its phase: {lacks}", thread)
                raise Deadlock

        return run

    def _after_copies(self, inst: Inst, row: isa.Inst, access: Access) -> Step:
        """Arrive when this thread's copies are done: they are taken as done here, ahead of the arrival they precede."""
        m = self.m

        def run(mask: Mask) -> None:
            self.idle = 0
            if m.checks:
                self.copies.wait(None)(mask)
            pairs = self._keys(inst, access, mask)
            clocks = self._release([t for t, _ in pairs])
            for thread, key in pairs:
                phase = self._find(inst, key, thread)
                if phase is None:
                    continue
                if "noinc" not in row.mods:
                    phase.pending += 1
                phase.arrive(clocks[thread])

        return run


def _is_wide(m: Machine, address: Address) -> bool:
    """Whether an address register is 64 bits: then the access is generic, else in the shared window."""
    return isinstance(address.base, Reg) and m.reg(address.base).dtype.itemsize == 8
