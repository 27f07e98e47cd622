"""mbarriers in the PTX emulator: arrivals, bytes of copies, phases and parities.

In: an instruction with its row. Out: a closure `step(mask)`. An mbarrier's state is kept beside shared memory, by CTA
and address: its bits are opaque to programs. A phase completes when no arrival and no byte is outstanding. Arriving
releases what the warp knows (of what it did itself, what the arriving lanes speak for), a successful test acquires what
the completed phases gathered, so data handed over through an mbarrier is no race. With checks on, a bulk copy may
arrive as late as when somebody has asked for it in vain: so whoever does not look at what a test says is found. A test
that fails makes its warps give way to others; when nothing but failing tests is left, that is a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.ir.errors import CompileError
from wavedsl.runtime.emulator.ptx.copies import AsyncCopies
from wavedsl.runtime.emulator.ptx.machine import SHARED_WINDOW, WINDOW, Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.memory import Access
from wavedsl.runtime.emulator.ptx.module import Address, Inst, Reg
from wavedsl.runtime.emulator.ptx.operands import Destination, source

Step = Callable[[Mask], None]

MAX_COUNT = (1 << 20) - 1
"""Arrivals that an mbarrier can expect, and bytes that a phase can be short of."""
SPINS = 16
"""Failed tests in a row that are no deadlock yet, on top of a few for every group of warps that could run."""


class Deadlock(Exception):
    """Raised out of a step: nobody can arrive any more."""


class Phase:
    """One mbarrier: arrivals and bytes that this phase still waits for, arrivals per phase, completed phases."""

    __slots__ = (
        "base",
        "bytes",
        "column",
        "completed",
        "expected",
        "gathered",
        "initialiser",
        "key",
        "late",
        "pending",
        "released",
        "unread",
    )

    def __init__(self, key: int, expected: int, columns: int, column: int, initialiser: tuple[int, int]):
        self.key = key
        self.expected = self.pending = expected
        self.bytes = 0
        self.completed = 0
        self.base = 0
        """Phases of mbarriers that were at this place before; clocks count on."""
        self.column = column
        self.gathered = np.zeros(columns, np.int32)
        self.released = np.zeros(columns, np.int32)
        self.initialiser = initialiser
        self.late: list[Any] = []
        """Copies under way that will signal this mbarrier."""
        self.unread: tuple[int, Inst, int] | None = None
        """Phase, instruction and thread of the last copy that signalled it."""

    def gather(self, clocks: Array) -> None:
        """What an arriving warp knows goes into the phase."""
        if len(clocks) > len(self.gathered):
            more = np.zeros(len(clocks) - len(self.gathered), np.int32)
            self.gathered, self.released = np.append(self.gathered, more), np.append(self.released, more)
        np.maximum(self.gathered, clocks, out=self.gathered)

    def settle(self) -> None:
        """Complete the phase if nothing is outstanding."""
        if self.pending == 0 and self.bytes == 0:
            self.completed += 1
            self.pending = self.expected
            np.maximum(self.released, self.gathered, out=self.released)
            self.gathered = np.zeros_like(self.gathered)

    def lacks(self) -> str:
        """What the current phase waits for, in words."""
        parts = []
        if self.pending:
            parts.append(f"{self.pending} of {self.expected} arrivals are missing")
        if self.bytes > 0:
            parts.append(f"{self.bytes} expected bytes have not come")
        if self.bytes < 0:
            parts.append(f"{-self.bytes} bytes came that nobody expects")
        return ", ".join(parts) or "nothing is missing"


class MBarriers:
    """All mbarriers of a batch, by byte of the batch's shared memory."""

    def __init__(self, m: Machine, copies: AsyncCopies):
        self.m, self.copies = m, copies
        self.known: dict[int, Phase] = {}
        self.places: dict[int, Phase] = {}
        """The last mbarrier of each place, also when it has been invalidated."""
        self.idle = 0
        self.failed = False
        """Whether the last test failed for all its threads."""
        self.blocked: dict[int, tuple[Inst, int, int, str]] = {}
        """Line -> instruction, thread, mbarrier and what is asked, of tests that failed since anybody made progress."""
        self.arrival = ("early", "late", "random")[int(m.rng.integers(3))] if m.checks else "early"

    def reset(self) -> None:
        self.known.clear()
        self.places.clear()
        self.blocked.clear()
        self.idle = 0

    def progress(self, mask: Mask) -> None:
        """A warp does something other than wait."""
        self.idle = 0
        self.blocked.clear()

    def step(self, inst: Inst, row: isa.Inst, pc: int) -> Step:
        """The closure of one mbarrier instruction."""
        effects = row.effects
        access = self.access(inst, row, pc, next(a for a in inst.args if isinstance(a, Address)))
        if "init" in effects:
            return self._init(inst, access)
        if "inval" in effects:
            return self._inval(inst, access)
        if "arrive" in effects:
            return self._arrive(inst, row, access)
        if "test" in effects:
            return self._test(inst, row, access)
        if "async" in effects:
            return self._after_copies(inst, row, access)
        if effects & {"expect", "complete"}:
            return self._count_bytes(inst, access, -1 if "complete" in effects else 1)
        raise CompileError(f"{row.name} has a row but the emulator does not execute it")

    def access(self, inst: Inst, row: isa.Inst, pc: int, address: Address) -> Access:
        """The access to an mbarrier through an address operand."""
        named = "space" in row.mods or "to" in row.mods or "remote" in row.effects
        space = "shared" if named or not _is_wide(self.m, address) else "generic"
        return Access(self.m, inst, pc, space, address, 8, False)

    # ------------------------------------------------------------------------------------------------ places

    def runs(self, inst: Inst, access: Access, mask: Mask) -> list[tuple[int, Array]]:
        """(mbarrier, threads) for neighbouring threads that name the same one."""
        m = self.m
        lanes = np.arange(m.T) if mask is None else m.lanes(mask)
        at = access.address(lanes)
        if access.space == "generic":
            inside = (at >= SHARED_WINDOW) & (at < SHARED_WINDOW + WINDOW)
            at = np.where(inside, at - SHARED_WINDOW, -1)
        offset, lanes = access.shared.check(at, 8, inst, lanes)
        if not len(offset):
            return []
        keys = m.cta_of[lanes] * m.shared_stride + offset
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        ends = np.append(starts[1:], len(keys))
        return [(k, lanes[a:b]) for k, a, b in zip(keys[starts].tolist(), starts.tolist(), ends.tolist())]

    def name(self, key: int) -> str:
        """An mbarrier by the variable that it lies in."""
        cta, offset = divmod(key, self.m.shared_stride)
        where = f" of CTA {cta % self.m.cluster} of the cluster" if self.m.cluster > 1 else ""
        return f"the mbarrier {self.m.place(offset)}{where}"

    def find(self, inst: Inst, key: int, threads: Array) -> Phase | None:
        """The mbarrier at a place, or None and a finding."""
        m = self.m
        phase = self.known.get(key)
        if phase is None:
            if not m.seen("uninitialised-read", inst):
                where = self.name(key).removeprefix("the mbarrier ")
                m.report("uninitialised-read", inst, f"no mbarrier has been initialised at {where}", int(threads[0]))
            return None
        if m.checks:
            self._initialised(inst, phase, threads)
        return phase

    def _initialised(self, inst: Inst, phase: Phase, threads: Array) -> None:
        """Whether the threads that use an mbarrier know that it has been initialised."""
        m, shadow = self.m, self.m.shadow
        by, clock = phase.initialiser
        column = (by >> 5) % shadow.warps
        alone = int(shadow.lane_table[column, by & 31])
        columns = [column, *([shadow.inits + column] if shadow.agents else []), *([alone] if alone else [])]
        for warp in np.unique(threads >> 5).tolist():
            mine = warp == by >> 5
            if (shadow.met[warp] if mine else shadow.know[warp, columns].max()) >= clock:
                continue
            for thread in threads[threads >> 5 == warp].tolist():
                if thread == by or shadow.known_by(thread)[columns].max() >= clock:
                    continue
                if not m.seen("race", inst):
                    who = "another lane of this warp" if mine else "another warp"
                    text = f"uses an mbarrier that {who} initialises, with no barrier between"
                    m.report("race", inst, text, thread)
                return

    # ------------------------------------------------------------------------------------------------ steps

    def _init(self, inst: Inst, access: Access) -> Step:
        m = self.m
        count = source(m, inst.args[1], "u32")

        def run(mask: Mask) -> None:
            values = np.broadcast_to(count() if callable(count) else count, (m.T,))
            for key, threads in self.runs(inst, access, mask):
                thread = int(threads[0])
                expected = int(values[thread])
                if not 1 <= expected <= MAX_COUNT:
                    m.report("hazard", inst, f"an mbarrier counts 1 to {MAX_COUNT} arrivals, not {expected}", thread)
                if m.checks:
                    if key in self.known:
                        text = f"initialises {self.name(key)}, which is one already: undefined without mbarrier.inval"
                        m.tell("hazard", inst, text, thread)
                    m.is_barrier(key, True)
                warp = int(m.global_warp[thread])
                column, columns, clock = 0, 1, 0
                if m.checks:
                    cta, offset = divmod(key, m.shared_stride)
                    slot = m.shadow.slot((cta % m.cluster, offset))
                    column = m.shadow.barrier_column(slot) if m.shadow.agents else 0
                    columns, clock = m.shadow.columns, int(m.shadow.know[warp, m.shadow.own[warp]])
                new = self.known[key] = Phase(key, expected, columns, column, (thread, clock))
                old = self.places.get(key)
                if old is not None:
                    new.base = old.base + old.completed + 1
                self.places[key] = new
                if m.trace is not None:
                    m.trace.signal(access.pc, threads, "init", key, expected)

        return run

    def _inval(self, inst: Inst, access: Access) -> Step:
        def run(mask: Mask) -> None:
            for key, threads in self.runs(inst, access, mask):
                if self.find(inst, key, threads) is not None:
                    del self.known[key]
                    if self.m.checks:
                        self.m.is_barrier(key, False)

        return run

    def arrive(self, inst: Inst, phase: Phase, threads: Array, count: int) -> Array:
        """Each thread arrives `count` times; gives the number of the phase that each arrived in."""
        m = self.m
        tokens = np.zeros(len(threads), np.uint64)
        if not 1 <= count <= MAX_COUNT:
            m.tell("hazard", inst, f"an arrival counts for 1 to {MAX_COUNT}, not {count}", int(threads[0]))
            return tokens
        phases = phase.completed
        warps = m.global_warp[threads]
        first = 0
        left = count
        while first < len(threads):
            if phase.pending == 0:
                # Only bytes are missing, so the phase cannot take another arrival.
                if not m.seen("hazard", inst):
                    text = f"arrives at {self.name(phase.key)} once more than it expects: {phase.lacks()}"
                    m.report("hazard", inst, text, int(threads[first]))
                break
            if left < count:
                # The first thread's arrivals began in the phase before.
                n, took = 1, min(left, phase.pending)
                left -= took
            else:
                tokens[first:] = phase.completed
                n = min(len(threads) - first, phase.pending // count)
                took = n * count
                if n == 0:
                    n, took = 1, phase.pending
                    left = count - took
            if m.checks:
                phase.gather(m.shadow.release(threads[first : first + n], m.live))
            phase.pending -= took
            phase.settle()
            if left in (0, count):
                first += n
                left = count
        if m.checks:
            m.shadow.advance(np.unique(warps))
            if phase.completed != phases and "noComplete" in inst.name:
                text = f"completes a phase of {self.name(phase.key)}, which .noComplete must not: undefined"
                m.tell("hazard", inst, text, int(threads[-1]))
        return tokens

    def _arrive(self, inst: Inst, row: isa.Inst, access: Access) -> Step:
        m = self.m
        state = Destination(m, inst.args[0], "b64")
        expects = "expect" in row.effects
        given = source(m, inst.args[2], "u32") if len(inst.args) > 2 else np.ones(1, np.uint32)

        def run(mask: Mask) -> None:
            self.progress(mask)
            values = np.broadcast_to(given() if callable(given) else given, (m.T,))
            tokens = np.zeros(m.T, np.uint64)
            for key, threads in self.runs(inst, access, mask):
                phase = self.find(inst, key, threads)
                if phase is None:
                    continue
                if expects:
                    for t in threads.tolist():
                        self.expect(inst, phase, int(values[t]), t)
                        tokens[t] = self.arrive(inst, phase, np.array([t]), 1)[0]
                    if m.trace is not None:
                        m.trace.signal(access.pc, threads, "arrive", key, 1, int(values[threads].sum()))
                    continue
                if m.trace is not None:
                    m.trace.signal(access.pc, threads, "arrive", key, int(values[threads[0]]), 0)
                if (values[threads] == values[threads[0]]).all():
                    tokens[threads] = self.arrive(inst, phase, threads, int(values[threads[0]]))
                else:
                    for t in threads.tolist():
                        tokens[t] = self.arrive(inst, phase, np.array([t]), int(values[t]))[0]
            state.put(tokens, mask)

        return run

    def expect(self, inst: Inst, phase: Phase, count: int, thread: int) -> None:
        """The phase waits for `count` more bytes (fewer, if negative)."""
        phase.bytes += count
        if abs(phase.bytes) > MAX_COUNT and not self.m.seen("hazard", inst):
            text = f"{self.name(phase.key)} counts {phase.bytes} bytes, more than {MAX_COUNT}"
            self.m.report("hazard", inst, text, thread)

    def _count_bytes(self, inst: Inst, access: Access, sign: int) -> Step:
        m = self.m
        given = source(m, inst.args[1], "u32")

        def run(mask: Mask) -> None:
            self.progress(mask)
            values = np.broadcast_to(given() if callable(given) else given, (m.T,))
            for key, threads in self.runs(inst, access, mask):
                phase = self.find(inst, key, threads)
                if phase is None:
                    continue
                if m.trace is not None:
                    m.trace.signal(access.pc, threads, "expect", key, sign * int(values[threads].sum()))
                for t in threads.tolist():
                    self.expect(inst, phase, sign * int(values[t]), t)
                    phase.settle()

        return run

    def complete(self, inst: Inst, phase: Phase, count: int, thread: int) -> None:
        """A copy has brought `count` bytes; they belong to the phase that is current."""
        if self.m.checks:
            phase.unread = (phase.base + phase.completed + 1, inst, thread)
            clocks = np.zeros(self.m.shadow.columns, np.int32)
            clocks[phase.column] = phase.base + phase.completed + 1
            phase.gather(clocks)
        self.expect(inst, phase, -count, thread)
        phase.settle()

    def _arrivals(self, phase: Phase) -> bool:
        """Let copies that somebody waits for arrive; True if any was under way."""
        if not phase.late:
            return False
        some = self.arrival == "random" and len(phase.late) > 1
        now = phase.late[: 1 + int(self.m.rng.integers(len(phase.late)))] if some else phase.late[:]
        del phase.late[: len(now)]
        for copy in now:
            copy.arrive()
        return True

    def _test(self, inst: Inst, row: isa.Inst, access: Access) -> Step:
        m = self.m
        by_parity = "parity" in row.effects
        done = Destination(m, inst.args[0], "pred")
        token = source(m, inst.args[2], "u32" if by_parity else "b64")

        def ready(phase: Phase, asked: Array) -> Array:
            if by_parity:
                return (phase.completed & 1) != (asked & 1)
            return phase.completed > asked

        def run(mask: Mask) -> None:
            values = np.broadcast_to(token() if callable(token) else token, (m.T,))
            result = np.zeros(m.T, np.bool_)
            moved = False
            blocked: tuple[Inst, int, int, str] | None = None
            for key, threads in self.runs(inst, access, mask):
                phase = self.find(inst, key, threads)
                asked = values[threads].astype(np.int64)
                now = np.zeros(len(threads), np.bool_) if phase is None else ready(phase, asked)
                if phase is not None and phase.late and not now.all():
                    moved |= self._arrivals(phase)  # behind this test, which fails
                result[threads] = now
                if phase is not None and m.trace is not None:
                    phases = phase.completed if by_parity else int(asked[0]) + 1
                    m.trace.test(access.pc, threads, now, key, phases)
                if phase is not None and m.checks and now.any():
                    m.shadow.learn(threads[now], phase.released)
                if blocked is None and not now.all():
                    which = int(np.argmin(now))
                    what = f"parity {int(asked[which]) & 1}" if by_parity else f"phase {int(asked[which])}"
                    blocked = inst, int(threads[which]), key, what
            done.put(result, mask)
            self.failed = not result.any() and blocked is not None
            if result.any() or moved:
                self.idle = 0
            else:
                self.idle += 1
            if blocked is not None:
                self.blocked[inst.line] = blocked

        return run

    def deadlock(self) -> None:
        """Name who waits for which phase of which mbarrier."""
        for inst, thread, key, what in self.blocked.values():
            phase = self.known.get(key)
            state = "nobody initialises it" if phase is None else f"in phase {phase.completed} {phase.lacks()}"
            self.m.report("deadlock", inst, f"{self.name(key)} never completes {what}: {state}", thread)

    def finish(self) -> None:
        """At the end of a batch: whoever ends must have waited for the copies into its shared memory."""
        m = self.m
        if not m.checks or not m.shadow.agents:
            return
        m.shadow.tell_all(m.shadow.rows)
        for phase in self.known.values():
            while phase.late:
                self._arrivals(phase)
            if phase.unread is None:
                continue
            clock, inst, thread = phase.unread
            cta = phase.key // m.shared_stride
            known = m.shadow.know.reshape(m.ctas, m.warps, -1)[cta, :, phase.column].max()
            if clock > known and not m.seen("missing-wait", inst):
                text = "the CTA ends while this copy may still write its shared memory: nobody waits for "
                text += self.name(phase.key)
                m.report("missing-wait", inst, text, thread)

    def _after_copies(self, inst: Inst, row: isa.Inst, access: Access) -> Step:
        """Arrive when this thread's copies are done: they are taken as done here, ahead of the arrival they precede."""
        m = self.m

        def run(mask: Mask) -> None:
            self.progress(mask)
            if m.checks:
                self.copies.wait(None)(mask)
            for key, threads in self.runs(inst, access, mask):
                phase = self.find(inst, key, threads)
                if phase is None:
                    continue
                if m.trace is not None:
                    m.trace.signal(access.pc, threads, "copied", key, "noinc" in row.mods)
                if "noinc" not in row.mods:
                    phase.pending += len(threads)
                self.arrive(inst, phase, threads, 1)

        return run


def _is_wide(m: Machine, address: Address) -> bool:
    """Whether an address register is 64 bits: then the access is generic, else in the shared window."""
    return isinstance(address.base, Reg) and m.reg(address.base).dtype.itemsize == 8
