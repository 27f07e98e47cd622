"""`cp.async` of the PTX emulator: groups in flight, and what has not been waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    """Asynchronous copies in flight: threads, their group numbers, granules, and the data if it arrives late."""

    threads: Array
    group: Array
    granules: Array
    offset: Array
    words: Array | None
    window: Window
    width: int


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
        ignore = isinstance(take, RegUse) and take.reg.type == "pred"
        to = Access(m, inst, pc, "shared", dst, width, True)
        frm = Access(m, inst, pc, "global", src, width, False)

        def step(mask: Mask) -> None:
            lanes = None if mask is None else m.lanes(mask)
            offset, lanes = to.shared.check(to.address(lanes), width, inst, lanes)
            count = None
            if isinstance(take, Imm):
                count = np.full(len(offset), take.value, np.int64)
            elif ignore and isinstance(take, RegUse):
                p = pick(m.reg(take.reg), lanes) != take.negated
                count = np.where(p, 0, width)
            elif isinstance(take, RegUse):
                count = pick(m.reg(take.reg), lanes).astype(np.int64)
            words = self._read(frm, lanes, count, len(offset), width)
            if not m.checks:
                to.shared.store(offset, width, words, lanes)
                to.touch_shared(offset, lanes, None)
                return
            late = self.arrival == "late" or (self.arrival == "random" and bool(m.rng.integers(2)))
            to.shared.store(offset, width, np.full_like(words, 0x7FBADBAD) if late else words, lanes)
            g = to.touch_shared(offset, lanes, None, pending=True)
            if g is not None:
                threads = np.arange(m.T) if lanes is None else lanes
                self.pending.append(
                    Copy(threads, self.group[threads].copy(), g, offset, words if late else None, to.shared, width)
                )

        return step

    def _read(self, frm: Access, lanes: Array, count: Array, n: int, width: int) -> Array:
        """Words to copy; bytes from `count` on are zero, and a count of zero does not touch memory, though its address
        has to be aligned like any other.
        """
        m = self.m
        if count is None or bool((count >= width).all()):
            return self._global(frm, frm.address(lanes), lanes, width, n)
        words = np.zeros((width // 4, n), np.uint32)
        threads = np.arange(m.T) if lanes is None else lanes
        none = threads[count <= 0]
        if m.checks and len(none):
            frm._aligned(frm.address(none), none)
        for c in np.unique(count[count > 0]).tolist():
            at = np.flatnonzero(count == c)
            part = threads[at]
            if c >= width:
                words[:, at] = self._global(frm, frm.address(part), part, width, len(part))
                continue
            address, kept = frm._aligned(frm.address(part), part)
            at = at[positions_of(part, kept, m.T)]
            got, fault = m.memory.load(address, int(c))
            if fault is not None:
                frm._outside(fault, kept)
            elif m.globals is not None:
                m.globals.read(frm.inst, frm.pc, address, int(c), kept, False, False)
            words[: got.shape[0], at] = got
        return words

    def _global(self, frm: Access, address: Array, lanes: Array, width: int, n: int) -> Array:
        m = self.m
        kept_address, kept = frm._aligned(address, lanes)
        frm.record("global", kept_address, kept)
        got, fault = m.memory.load(kept_address, width)
        if fault is not None:
            frm._outside(fault, kept)
        if m.globals is not None:
            frm.watch(kept_address, kept, fault)
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
                whole = bool(done.all())
                self._arrive(c, slice(None) if whole else done)
                if not whole:
                    k = ~done
                    rest.append(
                        Copy(
                            c.threads[k],
                            c.group[k],
                            c.granules[k],
                            c.offset[k],
                            None if c.words is None else c.words[:, k],
                            c.window,
                            c.width,
                        )
                    )
            self.pending = rest

        return step

    def _arrive(self, c: Copy, which: Any) -> None:
        m = self.m
        threads = c.threads[which]
        if c.words is not None:
            c.window.store(c.offset[which], c.width, c.words[:, which], threads)
        m.shadow.settle(c.granules[which], m.global_warp[threads])
