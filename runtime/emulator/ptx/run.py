"""Scheduling of warps in the PTX emulator: divergence, reconvergence, and what never ends.

In: a machine and its decoded blocks. Out: the batch run to its end. The idea: a *group* is a set of threads at one
place, at first all threads of all CTAs of the batch. A branch on which threads differ parts a group; the parts meet
at a `Join`, the branch's immediate post-dominator. A warp is not held back by other warps: when nothing else can run,
the warps of a join whose own lanes have all come go on alone. So lock-step is an optimisation, never a constraint
between warps. Invariant: every live thread is in exactly one of: a runnable group, a join, a barrier.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.ptx import flow as ptx_flow
from wavedsl.runtime.emulator.ptx.cta_barriers import Barriers
from wavedsl.runtime.emulator.ptx.gather import Gathering
from wavedsl.runtime.emulator.ptx.machine import Array, Mask
from wavedsl.runtime.emulator.ptx.mbarrier import SPINS, Deadlock
from wavedsl.runtime.emulator.ptx.module import Inst
from wavedsl.runtime.emulator.ptx.operands import source
from wavedsl.runtime.emulator.ptx.program import Program, Stop
from wavedsl.runtime.emulator.ptx.trace import Tracer
from wavedsl.runtime.emulator.ptx.unwritten import blame

QUANTUM = 512
"""Blocks a group runs before others get a turn, so that a spinning warp cannot starve the one it waits for."""
LOOK_BLOCKS = 1 << 13
"""Basic blocks after which threads are compared with what they were."""
LOOK_FOR = 1 << 13
"""Basic blocks for which they are compared."""
MAX_BLOCKS = 2_000_000
"""Blocks one batch may execute before it counts as a livelock."""


@dataclass(eq=False)
class Join:
    """Threads that part at a branch and meet at instruction `at`. `expected` and `arrived` are masks."""

    at: int
    expected: Array
    arrived: Array
    parent: Join | None


@dataclass(eq=False)
class Group:
    """Threads (a mask; None: all) that are about to execute a block."""

    block: int
    mask: Mask
    join: Join | None


class Runner:
    """Runs one batch after another of a program."""

    def __init__(self, program: Program):
        self.p = program
        self.m = program.machine
        self.blocks = program.flow.blocks
        self.executed = [0] * len(self.blocks)
        self.runnable: list[Group] = []
        self.joins: list[Join] = []
        self.policy = ("first", "last", "random")[int(self.m.rng.integers(3))] if self.m.checks else "first"
        self.turns: list[Group] = []
        self.budget, self.look = MAX_BLOCKS, LOOK_BLOCKS
        self.held: tuple[Any, np.ndarray] | None = None
        self.tracer: Tracer | None = None
        self.gathering = Gathering(self.m, self._taken, self._add, self._go)
        self.barriers = Barriers(self.m, self._taken, self._start, self._go, self._die)
        self.ends = [self._end(b) for b in range(len(self.blocks))]

    # -------------------------------------------------------------------------------------------- batches

    def run(self, first: int) -> None:
        """Run CTAs `order[first : first + ctas]` to their end."""
        m = self.m
        m.start(first)
        m.trace = self.tracer if self.tracer is not None and self.tracer.new_batch(first, m.ctas) else None
        self.p.engines.reset()
        self.gathering.reset()
        self.barriers.reset()
        for index, state in m.undefined.items():
            state[:] = -1 if index in m.suspects else 0
        self.runnable, self.joins, self.turns = [], [], []
        mask = None if m.live.all() else m.live.copy()
        if mask is not None and not mask.any():
            return
        self.runnable.append(Group(0, mask, None))
        self.budget = MAX_BLOCKS
        self.look, self.held = LOOK_BLOCKS, None
        while True:
            if self.runnable:
                g = self._pick()
                ran = g.mask
                self._run_group(g)
                if MAX_BLOCKS - self.budget > self.look and not any(self.p.watches) and self._goes_round(ran):
                    return
            elif not (self._release_joins() or self.barriers.release()):
                break
            if self.budget < 0:
                self._livelock()
                return
        if self.barriers.waiting or self.gathering.holds():
            self._deadlock()
        self.p.engines.barriers.finish()
        m.farewell()

    def _pick(self) -> Group:
        groups = self.runnable
        if len(groups) == 1:
            return groups.pop()
        while self.turns:
            g = self.turns.pop(0)
            if g in groups:
                groups.remove(g)
                return g
        if self.policy == "random":
            return groups.pop(int(self.m.rng.integers(len(groups))))
        order = self.blocks
        key = [order[g.block].order for g in groups]
        return groups.pop(key.index(min(key) if self.policy == "first" else max(key)))

    def _add(self, g: Group) -> None:
        for other in self.runnable:
            if other.block == g.block and other.join is g.join:
                other.mask = None if other.mask is None or g.mask is None else other.mask | g.mask
                self._shrink(other)
                return
        self._shrink(g)
        self.runnable.append(g)

    def _start(self, block: int, mask: Mask, join: Join | None) -> None:
        self._add(Group(block, mask, join))

    def _shrink(self, g: Group) -> None:
        if g.mask is not None and g.mask.all():
            g.mask = None

    # -------------------------------------------------------------------------------------------- one group

    def _run_group(self, g: Group) -> None:
        m, blocks, steps, ends = self.m, self.blocks, self.p.steps, self.ends
        executed = self.executed
        watches, barriers = self.p.watches, self.p.engines.barriers
        quantum = QUANTUM if self.policy != "random" else int(m.rng.integers(1, 64))
        while True:
            join = g.join
            b = g.block
            if join is not None and blocks[b].start == join.at:
                g2 = self._arrive(g, join)
                if g2 is None:
                    return
                g = g2
                continue
            quantum -= 1
            alone = not (self.runnable or self.joins or self.barriers.waiting)
            if quantum < 0 and (not alone or MAX_BLOCKS - self.budget > self.look):
                # The others have a turn each before the policy chooses again, so that none starves.
                self._release_joins()
                self.turns = list(self.runnable)
                self._add(g)
                return
            self.budget -= 1
            if self.budget < 0:
                self.runnable.append(g)
                return
            mask = g.mask
            executed[b] += m.NW if mask is None else int(mask.reshape(m.NW, 32).any(axis=1).sum())
            m.clock += blocks[b].end - blocks[b].start
            if m.trace is not None:
                m.trace.enter(b, mask)
            for step in steps[b]:
                step(mask)
            if watches[b] and barriers.failed:
                # Whoever waits lets the others go first.
                quantum = 0
                if barriers.idle > SPINS + 4 * (len(self.runnable) + 1):
                    self._deadlock()
                    raise Deadlock
            if not ends[b](g):
                return

    def _arrive(self, g: Group, join: Join) -> Group | None:
        """A group reaches its join: the merged group when all are there, else None."""
        mask = g.mask if g.mask is not None else np.ones(self.m.T, bool)
        join.arrived = join.arrived | mask
        if (join.expected & self.m.live & ~join.arrived).any():
            return None
        self.joins.remove(join)
        g.mask, g.join = join.arrived & self.m.live, join.parent
        self._shrink(g)
        return g

    def _release_joins(self) -> bool:
        """Let warps whose own lanes have all come go on; True if any does."""
        m = self.m
        moved = False
        for join in list(self.joins):
            missing = (join.expected & m.live & ~join.arrived).reshape(m.NW, 32).any(axis=1)
            here = (join.arrived & m.live).reshape(m.NW, 32)
            ready = here.any(axis=1) & ~missing
            if ready.any():
                mask = (here & ready[:, None]).reshape(-1)
                join.expected = join.expected & ~mask
                join.arrived = join.arrived & ~mask
                self._add(Group(self.p.flow.block_at[join.at], mask, join.parent))
                moved = True
            if not (join.expected & m.live).any():
                self.joins.remove(join)
        return moved

    # -------------------------------------------------------------------------------------------- ends of blocks

    def _end(self, b: int) -> Any:
        """How a block ends: a function of the group, True if the group goes on (its `block` set)."""
        block = self.blocks[b]
        inst = self.m.function.insts[block.end - 1]
        row = self.p.rows[block.end - 1]
        at = self.p.flow.block_at
        follow = at.get(block.end, -1)
        if row is None or not ptx_flow.is_terminator(inst.name):
            return lambda g: self._go(g, follow)
        opcode = row.row.opcode
        if opcode == "bra":
            goal = at.get(self.m.function.labels[inst.args[0].name], -1)
            if inst.guard is None:
                return lambda g: self._go(g, goal)
            return self._conditional(block, inst, goal, follow)
        if opcode == "brx":
            goals = [at.get(self.m.function.labels[t], -1) for t in ptx_flow.target_of(self.m.function, inst)]
            return self._indexed(block, inst, goals, follow)
        if opcode in ("ret", "exit"):
            return self._exit(inst, follow)
        if opcode in ("trap", "brkpt"):
            return self._trap(inst, follow)
        if "wgmma" in row.effects:
            assert self.p.engines.wgmmas is not None
            return self.gathering.warpgroups(inst, b, self.p.collective[b], self.p.engines.wgmmas, follow)
        if "registers" in row.effects:
            return self.gathering.budget(inst, row, follow)
        if "cluster" in row.effects:
            return self.gathering.cluster(inst, row, follow)
        return self.barriers.end(block, inst, row, follow)

    def _go(self, g: Group, block: int) -> bool:
        if block < 0:
            self._die(g.mask)
            return False
        g.block = block
        return True

    def _taken(self, inst: Inst, mask: Mask) -> Array:
        reg, negated = inst.guard  # type: ignore[misc]
        p = self.m.reg(reg)
        state = self.m.undefined.get(reg.index)
        if state is not None:
            pc = self.m.function.insts.index(inst)
            blame(self.m, inst, pc, state, np.ones(self.m.T, bool) if mask is None else mask, [reg.name])
        on = ~p if negated else p
        return on.copy() if mask is None and not negated else on if mask is None else on & mask

    def _conditional(self, block: Any, inst: Inst, goal: int, follow: int) -> Any:
        m = self.m
        reg, negated = inst.guard  # type: ignore[misc]
        p = m.reg(reg)
        watched = reg.index in m.undefined

        def end(g: Group) -> bool:
            mask = g.mask
            if mask is None and not watched:
                if p.all():
                    return self._go(g, follow if negated else goal)
                if not p.any():
                    return self._go(g, goal if negated else follow)
            taken = self._taken(inst, mask)
            if not taken.any():
                return self._go(g, follow)
            rest = (~taken) if mask is None else (mask & ~taken)
            if not rest.any():
                return self._go(g, goal)
            self._part(g, block.reconverge, [(goal, taken), (follow, rest)])
            return False

        return end

    def _part(self, g: Group, reconverge: int, ways: list[tuple[int, Array]]) -> None:
        """Split a group; the parts meet at instruction `reconverge`."""
        join = g.join
        if reconverge >= 0 and (join is None or join.at != reconverge):
            mask = g.mask if g.mask is not None else np.ones(self.m.T, bool)
            join = Join(reconverge, mask, np.zeros(self.m.T, bool), g.join)
            self.joins.append(join)
        for block, mask in ways:
            if block < 0:
                self._die(mask)
            else:
                self._add(Group(block, mask, join))

    def _indexed(self, block: Any, inst: Inst, goals: list[int], follow: int) -> Any:
        m = self.m
        value = source(m, inst.args[0], "u32")

        def end(g: Group) -> bool:
            mask = g.mask if g.mask is not None else np.ones(m.T, bool)
            on = self._taken(inst, g.mask) if inst.guard is not None else mask
            index = np.broadcast_to(value() if callable(value) else value, (m.T,))
            beyond = on & (index >= len(goals))
            if beyond.any():
                m.report(
                    "out-of-bounds",
                    inst,
                    f"branch index {int(index[np.argmax(beyond)])} of {len(goals)} targets",
                    int(np.argmax(beyond)),
                )
                raise Stop
            ways = [(goal, on & (index == i)) for i, goal in enumerate(goals)]
            ways = [(goal, w) for goal, w in ways if w.any()]
            rest = mask & ~on
            if rest.any():
                ways.append((follow, rest))
            if len(ways) == 1:
                return self._go(g, ways[0][0])
            self._part(g, block.reconverge, ways)
            return False

        return end

    def _exit(self, inst: Inst, follow: int) -> Any:
        def end(g: Group) -> bool:
            if inst.guard is None:
                self._die(g.mask)
                return False
            gone = self._taken(inst, g.mask)
            if not gone.any():
                return self._go(g, follow)
            rest = ~gone if g.mask is None else g.mask & ~gone
            self._die(gone)
            if not rest.any():
                return False
            g.mask = rest
            return self._go(g, follow)

        return end

    def _die(self, mask: Mask) -> None:
        """Threads end. Joins and barriers that waited only for them go on."""
        m = self.m
        self.p.engines.bulk.ends(mask)
        m.live = np.zeros(m.T, bool) if mask is None else m.live & ~mask
        for join in list(self.joins):
            if not (join.expected & m.live & ~join.arrived).any():
                self.joins.remove(join)
                here = join.arrived & m.live
                if here.any():
                    self._add(Group(self.p.flow.block_at[join.at], here, join.parent))
        if self.barriers.waiting:
            self.barriers.release()
        self.gathering.release_clusters()

    def _trap(self, inst: Inst, follow: int) -> Any:
        m = self.m

        def end(g: Group) -> bool:
            hit = g.mask if inst.guard is None else self._taken(inst, g.mask)
            if hit is not None and not hit.any():
                return self._go(g, follow)
            m.report("assertion", inst, "the kernel trapped", 0 if hit is None else int(np.argmax(hit)))
            raise Stop

        return end

    # ------------------------------------------------------------------------------------- what does not end

    def _deadlock(self) -> None:
        """Name who waits where for whom."""
        self.p.engines.barriers.deadlock()
        self.gathering.deadlock()
        self.barriers.deadlock()

    def _goes_round(self, ran: np.ndarray | None) -> bool:
        """Whether the threads only loop: registers and shared memory come back bit for bit after each had its turn.
        Looked at for some turns, and again when twice as many blocks have been run."""
        m = self.m
        if MAX_BLOCKS - self.budget > self.look + LOOK_FOR:
            self.look, self.held = 2 * (MAX_BLOCKS - self.budget), None
            return False
        groups = sorted((g.block, b"" if g.mask is None else g.mask.tobytes()) for g in self.runnable)
        joins = sorted((j.at, j.arrived.tobytes()) for j in self.joins)
        state = groups, joins, [hash(r.tobytes()) for r in m.regs.values()], hash(m.shared.tobytes())
        if self.held is not None:
            self.held[1][...] |= True if ran is None else ran
        if self.held is None or self.held[0] != state:
            if self.held is None or self.budget % 8 == 0:
                self.held = state, np.zeros(m.T, bool)
            return False
        wanted = np.zeros(m.T, bool)
        for g in self.runnable:
            wanted |= True if g.mask is None else g.mask
        if not wanted.any() or (wanted & ~self.held[1]).any():
            return False
        self._livelock("a loop changes nothing any more")
        return True

    def _livelock(self, why: str = f"no end after {MAX_BLOCKS} basic blocks") -> None:
        g = self.runnable[0]
        inst = self.m.function.insts[self.blocks[g.block].start]
        thread = 0 if g.mask is None else int(np.argmax(g.mask))
        waiting = "".join(f"; other warps wait at line {w.inst.line}" for w in self.barriers.waiting[:1])
        self.m.report(
            "deadlock",
            inst,
            f"{why}: it waits for what never comes{waiting}",
            thread,
        )
        raise Stop
