"""Places of the PTX emulator where threads of several warps or CTAs come together: warpgroups, clusters, registers.

In: groups of threads that reach the end of a block. Out: functions of a group that say whether it goes on, as the
scheduler (`ptx_run`) wants them. A wgmma runs when all four warps of a warpgroup are there; the barrier of a cluster
counts arrivals by thread and completes phases by cluster; a larger register budget waits until the CTA has enough.
Invariant: a thread that waits here is in no group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.ptx.machine import Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.module import Inst
from wavedsl.runtime.emulator.ptx.wgmma import Wgmmas
from wavedsl.runtime.emulator.ptx.wgmma_layout import WARPS

REGISTER_FILE = 65536
"""Registers of an SM."""


@dataclass(eq=False)
class Held:
    """Threads that wait, and where they go on."""

    inst: Inst
    block: int
    mask: Array
    join: Any
    amount: int = 0
    """Registers per thread that they ask for."""


def entry_registers(f: Any, threads: int) -> int:
    """Registers per thread that a CTA starts with, or 0 where ptxas cannot know (and ignores budgets)."""
    if f.maxnreg:
        return int(f.maxnreg)
    if f.minnctapersm and (f.reqntid or f.maxntid):
        return min(256, REGISTER_FILE // (threads * int(f.minnctapersm)) // 8 * 8)
    return 0


class Gathering:
    """Threads of a batch that wait for each other other than at a CTA's barriers."""

    def __init__(
        self,
        m: Machine,
        taken: Callable[[Inst, Mask], Array],
        add: Callable[[Any], None],
        go: Callable[[Any, int], bool],
    ):
        self.m, self._taken, self._add, self._go = m, taken, add, go
        self.entry = entry_registers(m.function, m.threads_per_cta)
        self.reset()

    def reset(self) -> None:
        m = self.m
        self.warpgroup: dict[int, list[Held]] = {}
        self.at_cluster: list[Held] = []
        self.for_registers: list[Held] = []
        self.arrivals = np.zeros(m.T, np.int64)
        self.waits = np.zeros(m.T, np.int64)
        clusters = m.ctas // m.cluster
        self.phases = np.zeros(clusters, np.int64)
        self.budgets = np.full(m.NW, self.entry, np.int64)
        self.free = np.zeros(m.ctas, np.int64)
        columns = m.shadow.columns if m.checks and hasattr(m, "shadow") else 1
        self.gathered = np.zeros((clusters, columns), np.int32)
        self.released = np.zeros((clusters, columns), np.int32)

    def holds(self) -> bool:
        """Whether anybody waits here."""
        return bool(any(self.warpgroup.values()) or self.at_cluster or self.for_registers)

    def _guarded(self, inst: Inst, g: Any, follow: int) -> Mask:
        """The threads of a group that execute an instruction; the others go on. False: none does."""
        if inst.guard is None:
            return g.mask
        on = self._taken(inst, g.mask)
        if not on.any():
            return False
        rest = ~on if g.mask is None else g.mask & ~on
        if not rest.any():
            return g.mask
        self._add(type(g)(follow, rest, g.join))
        return on

    # ------------------------------------------------------------------------------------------------ warpgroups

    def warpgroups(self, inst: Inst, block: int, step: Any, wgmmas: Wgmmas, follow: int) -> Any:
        """The end of a block by an instruction that whole warpgroups execute."""

        def end(g: Any) -> bool:
            mask = self._guarded(inst, g, follow)
            if mask is False:
                return self._go(g, follow)
            held = self.warpgroup.get(block)
            if not held:
                whole, rest = wgmmas.split(mask)
                if rest is None or not rest.any():
                    step(mask)
                    g.mask = mask
                    return self._go(g, follow)
            if mask is None:
                mask = np.ones(self.m.T, bool)
            held = [*(held or []), Held(inst, follow, mask, g.join)]
            total = np.logical_or.reduce([h.mask for h in held])
            whole, _ = wgmmas.split(total)
            if whole is None or whole.all():
                whole = np.ones(self.m.T, bool)
            if whole.any():
                step(whole)
            left = []
            for h in held:
                ready = h.mask & whole
                if ready.any():
                    self._add(type(g)(follow, ready, h.join))
                waits = h.mask & ~whole
                if waits.any():
                    left.append(Held(inst, follow, waits, h.join))
            self.warpgroup[block] = left
            return False

        return end

    # ------------------------------------------------------------------------------------------------ clusters

    def cluster(self, inst: Inst, row: isa.Inst, follow: int) -> Any:
        """The end of a block by `barrier.cluster`."""
        m = self.m
        waits = "sync" in row.effects
        relaxed = row.mods.get("sem") == "relaxed"
        aligned = "aligned" in row.mods

        def end(g: Any) -> bool:
            mask = self._guarded(inst, g, follow)
            if mask is False:
                return self._go(g, follow)
            on = np.ones(m.T, bool) if mask is None else mask
            if aligned:
                self._aligned(inst, on)
            if waits:
                idle = on & (self.waits == self.arrivals)
                if idle.any() and not m.seen("hazard", inst):
                    m.report(
                        "hazard", inst, "waits at the cluster's barrier without having arrived", int(np.argmax(idle))
                    )
                self.at_cluster.append(Held(inst, follow, on, g.join))
                self.release_clusters(type(g))
                return False
            early = on & (self.arrivals > self.waits)
            if early.any() and not m.seen("hazard", inst):
                text = "arrives at the cluster's barrier again without having waited"
                m.report("hazard", inst, text, int(np.argmax(early)))
            self.arrivals[on] = self.waits[on] + 1
            if m.checks:
                warps = np.flatnonzero(on.reshape(m.NW, 32).any(axis=1))
                clusters = warps // (m.warps * m.cluster)
                self._fit()
                if relaxed:
                    m.shadow.arrive_inits(self.gathered, clusters, warps)
                else:
                    m.shadow.arrive(self.gathered, clusters, warps)
            g.mask = mask
            self.release_clusters(type(g))
            return self._go(g, follow)

        return end

    def _fit(self) -> None:
        """Room for columns that mbarriers have added."""
        more = self.m.shadow.columns - self.gathered.shape[1]
        if more:
            self.gathered = np.pad(self.gathered, ((0, 0), (0, more)))
            self.released = np.pad(self.released, ((0, 0), (0, more)))

    def _aligned(self, inst: Inst, on: Array) -> None:
        m = self.m
        lanes = on.reshape(m.NW, 32)
        absent = lanes.any(axis=1) & (m.live.reshape(m.NW, 32) & ~lanes).any(axis=1)
        if absent.any() and not m.seen("barrier-divergence", inst):
            warp = int(np.argmax(absent))
            text = "the cluster's barrier is executed by part of a warp"
            m.report("barrier-divergence", inst, text, warp * 32 + int(np.argmax(lanes[warp])))

    def release_clusters(self, group: Any = None) -> None:
        """Complete the phases at which every live thread of a cluster has arrived, and let those go who wait."""
        m = self.m
        if group is not None:
            self._group = group
        if not self.arrivals.any():
            return
        clusters = len(self.phases)
        come = (self.arrivals.reshape(clusters, -1) > self.phases[:, None]) | ~m.live.reshape(clusters, -1)
        done = come.all(axis=1) & m.live.reshape(clusters, -1).any(axis=1)
        if done.any():
            self.phases[done] += 1
            if m.checks:
                self._fit()
                self.released[done] = self.gathered[done]
                self.gathered[done] = 0
        if not self.at_cluster:
            return
        passed = self.arrivals <= np.repeat(self.phases, m.T // clusters)
        held, self.at_cluster = self.at_cluster, []
        for h in held:
            go, stay = h.mask & passed, h.mask & ~passed
            if stay.any():
                self.at_cluster.append(Held(h.inst, h.block, stay, h.join))
            if not go.any():
                continue
            self.waits[go] = self.arrivals[go]
            if m.checks:
                warps = np.flatnonzero(go.reshape(m.NW, 32).any(axis=1))
                m.shadow.acquire(self.released, warps // (m.warps * m.cluster), warps)
            self._add(self._group(h.block, go, h.join))

    # ------------------------------------------------------------------------------------------------ registers

    def budget(self, inst: Inst, row: isa.Inst, follow: int) -> Any:
        """The end of a block by `setmaxnreg`."""
        m = self.m
        amount = inst.args[0].value
        more = row.mods["action"] == "inc"

        def end(g: Any) -> bool:
            mask = self._guarded(inst, g, follow)
            if mask is False or not self.entry:
                return self._go(g, follow)
            on = np.ones(m.T, bool) if mask is None else mask
            warps = np.flatnonzero(on.reshape(m.NW, 32).any(axis=1))
            wrong = self.budgets[warps] > amount if more else self.budgets[warps] < amount
            if wrong.any() and not m.seen("hazard", inst):
                warp = int(warps[int(np.argmax(wrong))])
                text = f"{'raises' if more else 'lowers'} a budget of {int(self.budgets[warp])} registers to {amount}"
                m.report("hazard", inst, text, warp * 32)
            if not more:
                np.add.at(self.free, warps // m.warps, (self.budgets[warps] - amount) * 32)
                self.budgets[warps] = amount
                g.mask = mask
                self._grant(type(g))
                return self._go(g, follow)
            self.for_registers.append(Held(inst, follow, on, g.join, amount))
            self._grant(type(g))
            return False

        return end

    def _grant(self, group: Any) -> None:
        """Give registers to warps that wait for them, as far as their CTA has any."""
        m = self.m
        held, self.for_registers = self.for_registers, []
        for h in held:
            lanes = h.mask.reshape(m.NW, 32)
            given = np.zeros(m.NW, bool)
            for w in np.flatnonzero(lanes.any(axis=1)).tolist():
                need = max(0, (h.amount - int(self.budgets[w])) * 32)
                if need <= self.free[w // m.warps]:
                    self.free[w // m.warps] -= need
                    self.budgets[w] = max(h.amount, int(self.budgets[w]))
                    given[w] = True
            go = (lanes & given[:, None]).reshape(-1)
            stay = h.mask & ~go
            if stay.any():
                self.for_registers.append(Held(h.inst, h.block, stay, h.join, h.amount))
            if go.any():
                self._add(group(h.block, go, h.join))

    # ------------------------------------------------------------------------------------------------ deadlock

    def deadlock(self) -> None:
        """Name who waits here for what."""
        m = self.m
        for held in self.warpgroup.values():
            for h in held:
                thread = int(np.argmax(h.mask))
                first = int(m.warp_of[thread]) // WARPS * WARPS
                warps = h.mask.reshape(m.ctas, m.warps, 32)[int(m.cta_of[thread])].any(axis=1)
                come = [w for w in range(first, min(first + WARPS, m.warps)) if warps[w]]
                text = f"waits for all warps of the warpgroup {first} to {first + WARPS - 1}, only {come} have come"
                m.report("deadlock", h.inst, text, thread)
        for h in self.at_cluster:
            thread = int(np.argmax(h.mask))
            first = int(m.cta_of[thread]) // m.cluster * m.cluster
            late = (self.arrivals < self.arrivals[thread]) & m.live & (m.cta_of // m.cluster == first // m.cluster)
            who = sorted({(int(m.cta_of[t]) - first, int(m.warp_of[t])) for t in np.flatnonzero(late).tolist()})
            text = "the cluster's barrier waits for " + ", ".join(f"warp {w} of CTA {c}" for c, w in who[:8])
            m.report("deadlock", h.inst, text, thread)
        for h in self.for_registers:
            thread = int(np.argmax(h.mask))
            free = int(self.free[int(m.cta_of[thread])])
            short = (h.amount - int(self.budgets[int(m.global_warp[thread])])) * 32
            text = f"waits for {short} registers per warp to reach {h.amount} per thread, the CTA has {free} free"
            m.report("deadlock", h.inst, f"{text} (it started with {self.entry} per thread)", thread)
