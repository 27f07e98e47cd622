"""Barriers of a CTA in the PTX emulator: who has come, who waits, whom a barrier lets go, and what it reduces.

In: groups of threads that reach a `barrier` at the end of a block. Out: a function of a group that says whether it goes
on, as the scheduler (`run.py`) wants it. A barrier is complete when all live warps of the CTA have come, or as many
threads as are asked for; what those who came know is then known to those who waited. Invariant: a thread that waits
here is in no group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.operand_rules import used_operands
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.ptx.machine import Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.module import Imm, Inst
from wavedsl.runtime.emulator.ptx.operands import Destination, source
from wavedsl.runtime.emulator.ptx.program import Stop


@dataclass(eq=False)
class Waiting:
    """Threads blocked at a barrier, and where they go on."""

    barrier: int
    block: int
    mask: Array
    join: Any
    inst: Inst
    reduce: Any = None


@dataclass(eq=False)
class Barrier:
    """State of one barrier number in every CTA of the batch."""

    lanes: Array
    need: Array
    into: Array
    values: Array

    def fit(self, columns: int) -> None:
        """Room for columns that mbarriers have added since somebody came first."""
        if self.into.shape[1] < columns:
            self.into = np.pad(self.into, ((0, 0), (0, columns - self.into.shape[1])))


class Barriers:
    """The barriers of a batch's CTAs. `taken`: the threads of a mask for which a guard holds; `start` makes threads a
    group at a block; `go` sends a group on; `die` ends threads."""

    def __init__(
        self,
        m: Machine,
        taken: Callable[[Inst, Mask], Array],
        start: Callable[[int, Mask, Any], None],
        go: Callable[[Any, int], bool],
        die: Callable[[Mask], None],
    ):
        self.m, self._taken, self._start, self._go, self._die = m, taken, start, go, die
        self.reset()

    def reset(self) -> None:
        self.waiting: list[Waiting] = []
        self.open: dict[int, Barrier] = {}
        """Barriers at which somebody has come, by number."""

    def end(self, block: Any, inst: Inst, row: isa.Inst, follow: int) -> Callable[[Any], bool]:
        """What happens to a group that comes to a barrier."""
        m = self.m
        args = dict(zip([op.name for op in used_operands(row, len(inst.args))], inst.args))
        number = source(m, args["id"], "u32") if "id" in args else np.zeros(1, np.uint32)
        count = source(m, args["count"], "u32") if "count" in args else None
        waits = "sync" in row.effects
        aligned = "convergent" in row.effects or "aligned" in row.mods
        reduce = None
        if "reduce" in row.effects:
            op = row.mods.get("op", "popc")
            reduce = op, Destination(m, args["d"], "pred" if op != "popc" else "u32"), source(m, args["c"], "pred")
        plain = count is None and waits and reduce is None and isinstance(args.get("id"), Imm)

        def end(g: Any) -> bool:
            mask = g.mask
            if inst.guard is not None:
                on = self._taken(inst, mask)
                rest = ~on if mask is None else mask & ~on
                if not on.any():
                    return self._go(g, follow)
                if rest.any():
                    self._start(follow, rest, g.join)
                    mask = on
            if mask is None and plain and not self.waiting and not self.open:
                # Everybody is here: nothing to keep.
                if m.checks:
                    m.shadow.barrier_all()
                return self._go(g, follow)
            mask = np.ones(m.T, bool) if mask is None else mask
            ids = np.broadcast_to(number() if callable(number) else number, (m.T,))
            counts = (
                np.zeros(m.T, np.uint32)
                if count is None
                else np.broadcast_to(count() if callable(count) else count, (m.T,))
            )
            for n in np.unique(ids[mask]).tolist():
                if m.trace is not None:
                    on = np.flatnonzero(mask & (ids == n))
                    m.trace.signal(block.end - 1, on, "barrier", n, int(counts[on[0]]) // 32)
                self._meet(inst, int(n), counts, mask & (ids == n), waits, aligned, follow, g.join, reduce)
            if not waits:
                g.mask = None if mask.all() else mask
                self.release()
                return self._go(g, follow)
            self.release()
            return False

        return end

    def _meet(
        self,
        inst: Inst,
        n: int,
        counts: Array,
        mask: Array,
        waits: bool,
        aligned: bool,
        follow: int,
        join: Any,
        reduce: Any,
    ) -> None:
        m = self.m
        if n > 15:
            m.report("unsupported", inst, f"barrier {n}: a CTA has barriers 0 to 15", int(np.argmax(mask)))
            raise Stop
        lanes = mask.reshape(m.NW, 32)
        here = lanes.any(axis=1)
        if aligned:
            absent = here & (m.live.reshape(m.NW, 32) & ~lanes).any(axis=1)
            if absent.any() and not m.seen("barrier-divergence", inst):
                warp = int(np.argmax(absent))
                lane = int(np.argmax(m.live.reshape(m.NW, 32)[warp] & ~lanes[warp]))
                m.report(
                    "barrier-divergence",
                    inst,
                    f"barrier {n} is executed by part of a warp (lane {lane} is elsewhere)",
                    warp * 32 + int(np.argmax(lanes[warp])),
                )
        bar = self.open.get(n)
        if bar is None:
            bar = self.open[n] = Barrier(
                np.zeros(m.T, bool),
                np.zeros(m.ctas, np.int64),
                np.zeros((m.ctas, m.shadow.columns if m.checks else 1), np.int32),
                np.zeros(m.T, bool),
            )
        bar.lanes |= mask
        need = counts[mask]
        ctas = m.cta_of[mask]
        bar.need[ctas] = need
        if need.any() and (need % 32).any() and not m.seen("barrier-divergence", inst):
            m.report(
                "barrier-divergence",
                inst,
                f"barrier {n}: thread count {int(need[0])} is not a multiple of 32",
                int(np.argmax(mask)),
            )
        if reduce is not None:
            value = np.broadcast_to(reduce[2]() if callable(reduce[2]) else reduce[2], (m.T,))
            bar.values[mask] = value[mask]
        if m.checks:
            warps = np.flatnonzero(here)
            bar.fit(m.shadow.columns)
            m.shadow.arrive(bar.into, warps // m.warps, warps)
        if waits:
            self.waiting.append(Waiting(n, follow, mask, join, inst, reduce))

    def release(self) -> bool:
        """Complete the barriers that have everybody; True if any thread goes on."""
        m = self.m
        moved = False
        live = m.live.reshape(m.ctas, m.warps, 32)
        for n in sorted(self.open):
            bar = self.open[n]
            lanes = bar.lanes.reshape(m.ctas, m.warps, 32)
            come = lanes.any(axis=2) & ~(live & ~lanes).any(axis=2)
            everyone = (come | ~live.any(axis=2)).all(axis=1) & lanes.any(axis=(1, 2))
            enough = (come.sum(axis=1) * 32 >= bar.need) & (bar.need > 0)
            done = np.where(bar.need > 0, enough, everyone) & lanes.any(axis=(1, 2))
            if not done.any():
                continue
            threads = np.repeat(done, m.warps * 32)
            rest = []
            for w in self.waiting:
                if w.barrier != n or not (w.mask & threads).any():
                    rest.append(w)
                    continue
                go = w.mask & threads
                if m.checks:
                    warps = np.flatnonzero(go.reshape(m.NW, 32).any(axis=1))
                    bar.fit(m.shadow.columns)
                    m.shadow.acquire(bar.into, warps // m.warps, warps)
                if w.reduce is not None:
                    self._reduce(w, bar, go)
                if w.block < 0:
                    self._die(go)
                else:
                    self._start(w.block, go & m.live, w.join)
                moved = True
                stay = w.mask & ~threads
                if stay.any():
                    rest.append(Waiting(n, w.block, stay, w.join, w.inst, w.reduce))
            self.waiting = rest
            bar.lanes &= ~threads
            bar.into[done] = 0
            bar.need[done] = 0
            if not bar.lanes.any():
                del self.open[n]
        return moved

    def _reduce(self, w: Waiting, bar: Barrier, go: Array) -> None:
        m = self.m
        op, destination, _ = w.reduce
        per_cta = bar.values.reshape(m.ctas, -1)
        took_part = bar.lanes.reshape(m.ctas, -1)
        if op == "popc":
            value = (per_cta & took_part).sum(axis=1).astype(np.uint32)
        elif op == "and":
            value = (per_cta | ~took_part).all(axis=1)
        else:
            value = (per_cta & took_part).any(axis=1)
        destination.put(np.repeat(value, m.warps * 32), go)

    def deadlock(self) -> None:
        """Name who waits where for whom."""
        m = self.m
        for w in self.waiting:
            thread = int(np.argmax(w.mask))
            cta = int(m.cta_of[thread])
            bar = self.open[w.barrier]
            lanes = bar.lanes.reshape(m.ctas, m.warps, 32)[cta]
            come = [i for i in range(m.warps) if lanes[i].any()]
            live = m.live.reshape(m.ctas, m.warps, 32)[cta]
            missing = [i for i in range(m.warps) if live[i].any() and i not in come]
            need = int(bar.need[cta])
            wants = f"{need // 32} warps" if need else "every warp"
            lacks = f"; missing: warps {missing}, which wait elsewhere" if missing else "; the others have ended"
            m.report(
                "deadlock", w.inst, f"barrier {w.barrier} waits for {wants}, only warps {come} have come{lacks}", thread
            )
