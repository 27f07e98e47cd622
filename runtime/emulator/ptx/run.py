"""Scheduling of warps in the PTX emulator: divergence, reconvergence, barriers, and what was counted.

In: a machine and its decoded blocks. Out: the batch run to its end. The idea: a *group* is a set of threads at one
place, at first all threads of all CTAs of the batch. A branch on which threads differ parts a group; the parts meet
at a `Join`, the branch's immediate post-dominator. A warp is not held back by other warps: when nothing else can run,
the warps of a join whose own lanes have all come go on alone. So lock-step is an optimisation, never a constraint
between warps. Invariant: every live thread is in exactly one of: a runnable group, a join, a barrier.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.operand_rules import used_operands
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.ptx import flow as ptx_flow
from wavedsl.runtime.emulator.ptx.gather import Gathering
from wavedsl.runtime.emulator.ptx.machine import Array, Mask
from wavedsl.runtime.emulator.ptx.mbarrier import SPINS, Deadlock
from wavedsl.runtime.emulator.ptx.module import Imm, Inst
from wavedsl.runtime.emulator.ptx.operands import Destination, source
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


@dataclass(eq=False)
class Waiting:
    """Threads blocked at a barrier, and where they go on."""

    barrier: int
    block: int
    mask: Array
    join: Join | None
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


class Runner:
    """Runs one batch after another of a program."""

    def __init__(self, program: Program):
        self.p = program
        self.m = program.machine
        self.blocks = program.flow.blocks
        self.executed = [0] * len(self.blocks)
        self.runnable: list[Group] = []
        self.joins: list[Join] = []
        self.waiting: list[Waiting] = []
        self.barriers: dict[int, Barrier] = {}
        self.policy = ("first", "last", "random")[int(self.m.rng.integers(3))] if self.m.checks else "first"
        self.turns: list[Group] = []
        self.budget, self.look = MAX_BLOCKS, LOOK_BLOCKS
        self.held: tuple[Any, np.ndarray] | None = None
        self.tracer: Tracer | None = None
        self.gathering = Gathering(self.m, self._taken, self._add, self._go)
        self.ends = [self._end(b) for b in range(len(self.blocks))]

    # -------------------------------------------------------------------------------------------- batches

    def run(self, first: int) -> None:
        """Run CTAs `order[first : first + ctas]` to their end."""
        m = self.m
        m.start(first)
        m.trace = self.tracer if self.tracer is not None and self.tracer.new_batch(first, m.ctas) else None
        self.p.engines.reset()
        self.gathering.reset()
        for index, state in m.undefined.items():
            state[:] = -1 if index in m.suspects else 0
        self.runnable, self.joins, self.waiting, self.barriers, self.turns = [], [], [], {}, []
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
            elif not (self._release_joins() or self._release_barriers()):
                break
            if self.budget < 0:
                self._livelock()
                return
        if self.waiting or self.gathering.holds():
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
            alone = not (self.runnable or self.joins or self.waiting)
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
        return self._barrier(block, inst, row, follow)

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
        if self.waiting:
            self._release_barriers()
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

    # -------------------------------------------------------------------------------------------- barriers

    def _barrier(self, block: Any, inst: Inst, row: isa.Inst, follow: int) -> Any:
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

        def end(g: Group) -> bool:
            mask = g.mask
            if inst.guard is not None:
                on = self._taken(inst, mask)
                rest = ~on if mask is None else mask & ~on
                if not on.any():
                    return self._go(g, follow)
                if rest.any():
                    self._add(Group(follow, rest, g.join))
                    mask = on
            if mask is None and plain and not self.waiting and not self.barriers:
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
                g.mask = mask
                self._shrink(g)
                self._release_barriers()
                return self._go(g, follow)
            self._release_barriers()
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
        join: Join | None,
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
        bar = self.barriers.get(n)
        if bar is None:
            bar = self.barriers[n] = Barrier(
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

    def _release_barriers(self) -> bool:
        """Complete the barriers that have everybody; True if any thread goes on."""
        m = self.m
        moved = False
        live = m.live.reshape(m.ctas, m.warps, 32)
        for n in sorted(self.barriers):
            bar = self.barriers[n]
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
                    self._add(Group(w.block, go & m.live, w.join))
                moved = True
                stay = w.mask & ~threads
                if stay.any():
                    rest.append(Waiting(n, w.block, stay, w.join, w.inst, w.reduce))
            self.waiting = rest
            bar.lanes &= ~threads
            bar.into[done] = 0
            bar.into[done] = 0
            bar.need[done] = 0
            if not bar.lanes.any():
                del self.barriers[n]
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

    def _deadlock(self) -> None:
        """Name who waits where for whom."""
        m = self.m
        self.p.engines.barriers.deadlock()
        self.gathering.deadlock()
        for w in self.waiting:
            thread = int(np.argmax(w.mask))
            cta = int(m.cta_of[thread])
            bar = self.barriers[w.barrier]
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
        waiting = "".join(f"; other warps wait at line {w.inst.line}" for w in self.waiting[:1])
        self.m.report(
            "deadlock",
            inst,
            f"{why}: it waits for what never comes{waiting}",
            thread,
        )
        raise Stop
