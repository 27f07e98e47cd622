"""`cp.async` of the PTX emulator: groups in flight, and what has not been waited for.

A copy reads global memory at any time between its issue and the wait. Data are those of its issue; who changes them
before the wait is out of order, whoever it is, and so is who changes them behind the wait without knowing of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.ir.errors import CompileError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.ptx.machine import Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.memory import Access, Window, pick, positions_of
from wavedsl.runtime.emulator.ptx.module import Imm, Inst, RegUse

Step = Callable[[Mask], None]


@dataclass
class Copy:
    """Asynchronous copies in flight: threads, their group numbers, granules, the data, and whether it arrives late."""

    threads: Array
    group: Array
    granules: Array
    offset: Array
    words: Array
    late: bool
    source: Array
    """Addresses."""
    count: Array
    """Bytes that are read, None where all are."""
    window: Window
    frm: Access

    def some(self, which: Array) -> Copy:
        """Those of some threads, a mask."""
        return Copy(
            self.threads[which],
            self.group[which],
            self.granules[which],
            self.offset[which],
            self.words[:, which],
            self.late,
            self.source[which],
            None if self.count is None else self.count[which],
            self.window,
            self.frm,
        )


class AsyncCopies:
    """`cp.async` of every thread: which groups are open, which copies have not been waited for."""

    def __init__(self, m: Machine):
        self.m = m
        self.group = np.zeros(m.T, np.int32)
        self.pending: list[Copy] = []
        self.arrival = ("early", "late", "random")[int(m.rng.integers(3))]

    def reset(self) -> None:
        self.group[:] = 0
        self.pending.clear()

    def copy(self, inst: Inst, row: isa.Inst, pc: int) -> Step:
        m = self.m
        dst, src, size = inst.args[0], inst.args[1], inst.args[2]
        if not isinstance(size, Imm) or size.value not in (4, 8, 16):
            raise CompileError("cp.async copies 4, 8 or 16 bytes")
        if row.mods["cop"] == "cg" and size.value != 16:
            raise CompileError("cp.async.cg copies 16 bytes")
        if "cache_hint" in row.mods:
            raise CompileError("ptxas 13.0 can make an illegal instruction of cp.async with a cache policy")
        width = size.value
        take = inst.args[3] if len(inst.args) > 3 else None
        to = Access(m, inst, pc, "shared", dst, width, True)
        frm = Access(m, inst, pc, "global", src, width, False)

        def step(mask: Mask) -> None:
            lanes = None if mask is None else m.lanes(mask)
            offset, lanes = to.shared.check(to.address(lanes), width, inst, lanes)
            count = None
            if isinstance(take, Imm):
                count = np.full(len(offset), take.value, np.int64)
            elif isinstance(take, RegUse):
                count = pick(m.reg(take.reg), lanes).astype(np.int64)
            source = frm.address(lanes)
            if count is not None and m.checks and (count > width).any():
                i = int(np.argmax(count > width))
                text = f"asks for {int(count[i])} bytes of a copy of {width}: undefined"
                m.tell("out-of-bounds", inst, text, i if lanes is None else int(lanes[i]))
            words = self._read(frm, source, lanes, count, width)
            if not m.checks:
                to.shared.store(offset, width, words, lanes)
                to.touch_shared(offset, lanes, None)
                return
            late = self.arrival == "late" or (self.arrival == "random" and bool(m.rng.integers(2)))
            to.shared.store(offset, width, np.full_like(words, 0x7FBADBAD) if late else words, lanes)
            g = to.touch_shared(offset, lanes, None, pending=True)
            if g is not None:
                threads = np.arange(m.T) if lanes is None else lanes
                count = None if count is None or (count >= width).all() else np.clip(count, 0, width)
                group = self.group[threads].copy()
                self.pending.append(Copy(threads, group, g, offset, words, late, source, count, to.shared, frm))

        return step

    def _read(self, frm: Access, source: Array, lanes: Array, count: Array, width: int) -> Array:
        """Words to copy from addresses `source`; bytes from `count` on are zero, and a count of zero does not touch
        memory, though its address has to be aligned like any other.
        """
        m = self.m
        n = len(source)
        if count is None or bool((count >= width).all()):
            return self._global(frm, source, lanes, width, n)
        words = np.zeros((width // 4, n), np.uint32)
        threads = np.arange(m.T) if lanes is None else lanes
        none = count <= 0
        if m.checks and none.any():
            frm._aligned(source[none], threads[none])
        for c in np.unique(count[count > 0]).tolist():
            at = np.flatnonzero(count == c)
            part = threads[at]
            if c >= width:
                words[:, at] = self._global(frm, source[at], part, width, len(part))
                continue
            address, kept = frm._aligned(source[at], part)
            at = at[positions_of(part, kept, m.T)]
            got, fault = m.memory.load(address, int(c))
            if fault is not None:
                frm._outside(fault, kept)
            elif m.globals is not None:
                m.globals.copy_begins(frm.inst, frm.pc, address, int(c), kept)
            words[: got.shape[0], at] = got
        return words

    def _global(self, frm: Access, address: Array, lanes: Array, width: int, n: int) -> Array:
        m = self.m
        kept_address, kept = frm._aligned(address, lanes)
        frm.record("global", kept_address, kept)
        got, fault = m.memory.load(kept_address, width)
        if fault is not None:
            frm._outside(fault, kept)
        elif m.globals is not None:
            m.globals.copy_begins(frm.inst, frm.pc, kept_address, width, kept)
        if got.shape[1] == n:
            return got
        words = np.zeros((width // 4, n), np.uint32)
        words[:, positions_of(lanes, kept, m.T)] = got
        return words

    def commit(self, mask: Mask) -> None:
        if mask is None:
            self.group += 1
        else:
            self.group[mask] += 1

    def wait(self, keep: int | None) -> Step:
        """Wait until at most `keep` groups are pending; None waits for everything, committed or not."""

        def step(mask: Mask) -> None:
            if not self.pending:
                return
            rest = []
            for c in self.pending:
                done = c.group < (self.group[c.threads] - keep) if keep is not None else np.ones(len(c.threads), bool)
                if mask is not None:
                    done &= mask[c.threads]
                if not done.any():
                    rest.append(c)
                    continue
                if done.all():
                    self._arrive(c)
                else:
                    self._arrive(c.some(done))
                    rest.append(c.some(~done))
            self.pending = rest

        return step

    def _arrive(self, c: Copy) -> None:
        m = self.m
        if c.late:
            c.window.store(c.offset, c.frm.width, c.words, c.threads)
        m.shadow.settle(c.granules, m.global_warp[c.threads])
        if m.globals is None:
            return
        if c.count is None:
            m.globals.copy_ends(c.frm.inst, c.frm.pc, c.source, c.frm.width, c.threads, c.words)
            return
        for n in np.unique(c.count[c.count > 0]).tolist():
            on = c.count == n
            m.globals.copy_ends(c.frm.inst, c.frm.pc, c.source[on], n, c.threads[on], c.words[:, on])
