"""What the emulator checks beyond computing: waits, hazards, uninitialised reads, LDS races, alignment.

In: every executed block and every memory access. Out: findings. Rules, by the names that the code cites:

(WAIT) A register that a load, a scalar load or an LDS read will write may not be read or written until a wait covers
  it. Counters are queues: `n` left means the oldest are done, except that scalar loads and flat accesses finish in
  any order, so only 0 covers them. A load may overwrite the target of an earlier load of the same ordered queue.
  Bytes of LDS that a direct copy will write may not be read before `vmcnt` covers it.
(HAZARD) Between two instructions lie at least the wait states of `hazard_rules`. The outcome of a block depends only
  on the instructions executed shortly before it, so it is computed once per block and such history.
(CLAUSE) Of memory instructions that follow one another, a load among them, none overwrites what one before it reads:
  a chip with XNACK issues them again after a page fault. Not asked of texts for `xnack-`.
(UNDEF) A register lane, or a byte of LDS, that was never written is undefined; values computed from it are undefined,
  lane by lane (`undefined.py`). It is a finding only where it matters: an address, data stored to global
  memory, a branch, EXEC, a buffer descriptor. The finding names the instruction that first read it. Partial writes
  (16-bit halves, bytes, lanes) count as writes.
(RACE) Two waves of a workgroup touch the same LDS byte between the same two barriers, at least one writing (another
  value). An access that was not waited for when its wave passed a barrier also belongs to the time after the barrier.
  Of global memory, see global_memory.py.

Registers that need attention are one bit mask, so an instruction that touches none costs one test.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn import hazard_rules
from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.runtime.emulator.amdgcn.global_memory import watched
from wavedsl.runtime.emulator.amdgcn.lds import LdsShadow
from wavedsl.runtime.emulator.amdgcn.marks import Flight, Info, Marks, bits_of, mask_of, name_of
from wavedsl.runtime.emulator.amdgcn.state import LANES, U32, State
from wavedsl.runtime.emulator.amdgcn.step import Step
from wavedsl.runtime.emulator.amdgcn.text import Line
from wavedsl.runtime.emulator.amdgcn.undefined import Undefined

POISON = 0x7FBADBAD
"""What a register holds while its load is under way: a NaN."""
SCC_BIT = 1 << 253
_SPECIAL = SCC_BIT | 3 << 126 | 1 << 124
"""What no load writes by name: SCC, EXEC, M0."""
LIMITS = {"vmcnt": 63, "lgkmcnt": 15}


class Checker:
    """One per run. `engine` gives the program, the batch and the place for findings."""

    def __init__(self, engine: Any, seed: int):
        self.engine = engine
        self.rng = np.random.default_rng((seed, 1))
        self.arrival = ("random", "latest", "earliest")[seed % 3]
        self.replays: bool = engine.program.replays
        self.infos: dict[int, Info] = engine.program.infos
        self.needs: dict[tuple[int, int], tuple[int, str]] = engine.program.needs
        self.hazards: dict[tuple[int, tuple], tuple[list, tuple]] = engine.program.hazards.setdefault(
            engine.kernel.name, {}
        )
        lines = engine.program.lines
        sizes = [
            x.inst.mem.bytes
            for x in lines
            if x.inst is not None and x.inst.mem is not None and x.inst.unit is not Unit.SMEM
        ]
        has_dma = any(x.inst is not None and x.inst.mem is not None and x.inst.mem.op == "dma" for x in lines)
        self.undefined = Undefined(engine)
        self.lds = LdsShadow(engine, min([4, *sizes]), has_dma, engine.waves > 1)
        self.globals = watched(engine, engine.memory)

    # ---- batches, blocks

    def new_batch(self, workgroups: int, stride: int) -> None:
        self.lds.new_batch(workgroups * stride)
        self.first: Flight | None = None
        """The first of two accesses of the instruction at hand."""

    def start(self, st: State, sgprs: int) -> None:
        """Only what the launch sets is defined: the first SGPRs, v0, EXEC."""
        marks = Marks()
        regs = self.engine.regs
        undef = ((1 << regs.vgprs) - 1) << 256 | ((1 << regs.agprs) - 1) << 512
        undef &= ~(1 << 256)
        undef |= ((1 << 102) - 1) & ~((1 << sgprs) - 1)
        undef |= SCC_BIT | (3 << 106) | (1 << 124)
        d = self.engine.kernel.directives
        defined = int(d.get("user_sgpr_kernarg_preload_length", 0))
        if defined:
            first = int(d.get("user_sgpr_count", 0)) - defined
            undef |= ((1 << defined) - 1) << max(0, first)
        marks.undef = marks.watch = undef
        st.check = marks

    def prepare(self, block: Any) -> None:
        lines = self.engine.program.lines
        block.guard = []
        for i in range(block.first, block.last + 1):
            line = lines[i]
            if line.inst is None or i in self.engine.meaningless:
                info = None
            else:
                info = self.infos.get(i)
                if info is None:
                    info = self.infos[i] = Info(line, i)
            step = block.steps[i - block.first] if i - block.first < len(block.steps) else None
            block.guard.append((step, info.touch if info is not None else 0, info))

    def run(self, st: State, block: Any) -> None:
        marks: Marks = st.check
        key = (block.first, marks.tail)
        outcome = self.hazards.get(key)
        if outcome is None:
            outcome = self.hazards[key] = self._walk(block, marks.tail)
        for index, message in outcome[0]:
            self.engine.find("hazard", index, message, st, None)
        marks.tail = outcome[1]
        for step, touch, info in block.guard:
            if marks.watch & touch:
                self._attend(st, marks, info)
            if step is not None:
                step(st)
                if info is not None and info.register:
                    self.flight(st, info.index)

    # ---- (HAZARD)

    def _need(self, p: Info, c: Info) -> tuple[int, str]:
        found = self.needs.get((p.index, c.index))
        if found is None:
            found = hazard_rules.explain(p.foot, c.foot, self.engine.target, p.classes, c.classes)
            self.needs[p.index, c.index] = found
        return found

    def _walk(
        self, block: Any, tail: tuple[tuple[int, int], ...]
    ) -> tuple[list[tuple[int, str]], tuple[tuple[int, int], ...]]:
        """Findings of a block after a history, and the history behind it: producers and the wait states since."""
        recent = [(self.infos[index], -distance) for index, distance in tail]
        history = len(recent)
        near = history  # what the block itself put in `recent` before this place is out of reach
        found = self._clauses(block) if self.replays else []
        at = 0
        for _, _, info in block.guard:
            if info is None:
                at += 1
                continue
            if info.inst.special == "nop":
                at += int(info.line.operands[0]) + 1
                continue
            while near < len(recent) and at - recent[near][1] - 1 >= hazard_rules.LONGEST:
                near += 1
            met = info.met
            for producer, when in chain(recent[:history], recent[near:]) if history else recent[near:]:
                between = at - when - 1
                if between >= hazard_rules.LONGEST or not (producer.met & met or producer.alone):
                    continue
                need, why = self._need(producer, info)
                if between < need:
                    other = producer.line
                    found.append(
                        (
                            info.index,
                            f"{need} wait states are needed after `{other.text}` (line {other.number}), "
                            f"there are {between}: {why}",
                        )
                    )
            if info.classes & hazard_rules.PRODUCERS:
                recent.append((info, at))
            at += 1
        reach = {True: hazard_rules.LONGEST, False: 6}
        out: dict[int, int] = {}
        for producer, when in recent:
            distance = at - when - 1 + 1
            long = "mfma" in producer.classes
            if distance <= reach[long]:
                index = producer.index
                out[index] = min(distance, out.get(index, distance))
        return found, tuple(sorted(out.items()))

    # ---- (CLAUSE)

    def _clauses(self, block: Any) -> list[tuple[int, str]]:
        """Findings of a block."""
        found: list[tuple[int, str]] = []
        row: list[Info] = []
        for _, _, info in block.guard:
            scalar = info is not None and info.inst.unit is Unit.SMEM
            if info is None or not (scalar or info.inst.unit in (Unit.VMEM, Unit.SCRATCH)):
                row = []
                continue
            if row and (row[0].inst.unit is Unit.SMEM) != scalar:
                row = []
            for other in row if any(x.loads for x in row) else ():
                common = info.foot.writes & other.foot.reads & ~_SPECIAL
                if common:
                    register, line = name_of(bits_of(common)[0]), other.line
                    which = f"overwrites {register}, which `{line.text}` (line {line.number}) reads in the same clause"
                    found.append((info.index, f"{which}: it may be issued again after a page fault"))
                    break
            row.append(info)
        return found

    # ---- attention: (WAIT) and (UNDEF)

    def _attend(self, st: State, marks: Marks, info: Info) -> None:
        if marks.pending & info.touch:
            self._waiting(st, marks, info)
        if marks.undef & info.touch:
            self.undefined.track(st, marks, info)

    def _waiting(self, st: State, marks: Marks, info: Info) -> None:
        hits = marks.pending & info.touch
        if info.loads and info.inst.mem is not None and len(info.counters) == 1 and info.inst.unit is not Unit.SMEM:
            queue, other = (st.vm, st.lgkm) if info.counters[0] == "vmcnt" else (st.lgkm, st.vm)
            own = foreign = 0
            for f in queue:
                if f.ordered:
                    own |= f.regs
                else:
                    foreign |= f.regs
            for f in other:
                foreign |= f.regs
            hits &= ~(info.writes & ~info.reads & own & ~foreign)
        if not hits:
            return
        first = bits_of(hits)[0]
        for name, queue in (("vmcnt", st.vm), ("lgkmcnt", st.lgkm)):
            for f in queue:
                if f.regs & hits:
                    if f.regs >> first & 1:
                        line = self.engine.program.lines[f.index]
                        verb = "reads" if info.reads >> first & 1 else "overwrites"
                        self.engine.find(
                            "missing-wait",
                            info.index,
                            f"{verb} {name_of(first)} before `{line.text}` (line "
                            f"{line.number}) has written it: no wait for {name} covers it",
                            st,
                            None,
                        )
                    self._arrive(st, f)
                    f.regs &= ~hits
        self._recount(st)

    def _recount(self, st: State) -> None:
        pending = 0
        for f in st.vm:
            pending |= f.regs
        for f in st.lgkm:
            pending |= f.regs
        marks = st.check
        marks.pending = pending
        marks.watch = pending | marks.undef

    # ---- operations in flight

    def _late(self) -> bool:
        return self.arrival == "latest" or (self.arrival == "random" and self.rng.random() < 0.5)

    def _launch(self, st: State, index: int, regs: int) -> Flight:
        info = self.infos[index]
        flat = len(info.counters) == 2
        flight = Flight(index, regs, info.inst.unit is not Unit.SMEM and not flat and info.inst.special != "nothing")
        for name in info.counters:
            queue = st.vm if name == "vmcnt" else st.lgkm
            queue.append(flight)
            if len(queue) > LIMITS[name]:
                self._drain(st, queue, LIMITS[name])
        marks = st.check
        marks.pending |= regs
        marks.watch = marks.pending | marks.undef
        return flight

    def _drain(self, st: State, queue: list[Flight], left: int) -> None:
        """(WAIT) At most `left` operations remain: those certainly done leave the queue, oldest first."""
        if len(queue) <= left and left:
            return
        younger = sum(f.ordered for f in queue)
        keep = []
        for f in queue:
            if f.ordered:
                younger -= 1
                done = younger >= left
            else:
                done = left == 0
            if done:
                self._done(st, f)
            else:
                keep.append(f)
        queue[:] = keep

    def _done(self, st: State, f: Flight) -> None:
        self._arrive(st, f)
        if f.position is not None and self.lds.has_dma:
            for part in f.places():
                g = self.lds.granules(part.position, part.size)
                g = g if part.active is None else g[part.active]
                if f.role == "dma":
                    self.lds.coming[g] = False
                else:
                    self.lds.unreturned[g] = False

    def _arrive(self, st: State, f: Flight) -> None:
        if f.late is not None:
            deliver, j, where, active = f.late
            f.late = None
            deliver(st, j, where, active)

    def waitcnt(self, line: Line, index: int) -> Step:
        m = line.modifiers
        vm, lgkm = m.get("vmcnt"), m.get("lgkmcnt")

        def step(st: State) -> None:
            if vm is not None and st.vm:
                self._drain(st, st.vm, vm)
            if lgkm is not None and st.lgkm:
                self._drain(st, st.lgkm, lgkm)
            if vm == 0 and self.globals is not None:
                self.globals.waited(st)
            self._recount(st)

        return step

    def settle(self, st: State) -> None:
        """Let late data arrive now: before a group splits or merges."""
        for f in (*st.vm, *st.lgkm):
            self._arrive(st, f)

    def mergeable(self, a: State, b: State) -> bool:
        for x, y in ((a.vm, b.vm), (a.lgkm, b.lgkm)):
            if [(f.index, f.ordered, f.position is None) for f in x] != [
                (f.index, f.ordered, f.position is None) for f in y
            ]:
                return False
        self.settle(a)
        self.settle(b)
        return True

    def flight(self, st: State, index: int) -> None:
        """An operation whose values are there already, but may not be touched before its wait."""
        info = self.infos[index]
        self._launch(st, index, info.writes & ~SCC_BIT)

    def permutation(self, n: int) -> np.ndarray:
        return self.rng.permutation(n)

    def fault(self, st: State, index: int, kind: str, message: str, lanes: np.ndarray | None) -> None:
        self.engine.find(kind, index, message, st, lanes)

    def aligned(self, st: State, index: int, address: np.ndarray, size: int, active: Any) -> None:
        wrong = (address & (size - 1)) != 0
        if active is not None:
            wrong = wrong & active
        if wrong.any():
            at = int(np.broadcast_to(address, wrong.shape)[wrong][0])
            self.engine.find("misaligned", index, f"address {at:#x} is not a multiple of {size}", st,
                              np.broadcast_to(wrong, (st.waves, LANES)))  # fmt: skip

    def smem(self, st: State, index: int, address: np.ndarray) -> None:
        wrong = (address & 3) != 0
        if wrong.any():
            lanes = np.zeros((st.waves, LANES), bool)
            lanes[:, 0] = wrong
            self.engine.find(
                "misaligned", index, f"address {int(address[wrong][0]):#x} is not a multiple of 4", st, lanes
            )

    def _poison(self, st: State, row: int, n: int, active: Any) -> None:
        for i in range(n):
            if active is None:
                st.U[row + i] = POISON
            else:
                np.copyto(st.U[row + i], U32(POISON), where=active)

    def _postpone(self, st: State, f: Flight, row: int, n: int, active: Any) -> None:
        """Take back what a load has just put into registers until it arrives. The data are those at issue: operations
        of one wave on one address happen in order, so a later write of the wave must not show.
        """
        f.late = (_put_back, row, st.U[row : row + n].copy(), active)
        self._poison(st, row, n, active)

    def _overtaken(self, st: State, queue: list[Flight], regs: int) -> None:
        """Ordered loads arrive in order: those under way that write some of `regs` do so before the next one."""
        for older in queue:
            if older.late is not None and older.regs & regs:
                self._arrive(st, older)

    def vm_load(
        self, st: State, index: int, at: np.ndarray, active: Any, deliver: Callable[..., None], row: int, n: int
    ) -> None:
        self._overtaken(st, st.vm, self.infos[index].writes)
        f = self._launch(st, index, self.infos[index].writes)
        whole = not (self.infos[index].inst.mem.convert)  # type: ignore[union-attr]
        deliver(st, 0, at, active)
        if whole and self._late():
            self._postpone(st, f, row, n, active)

    def vm_store(self, st: State, index: int, active: Any, row: int, n: int) -> None:
        info = self.infos[index]
        marks: Marks = st.check
        codes = info.foot.operands.get("data", ())
        for code in codes[:n]:
            if marks.undef >> code & 1:
                lanes = self.undefined.lanes(st, marks, code)
                lanes = lanes if active is None else lanes & active
                lanes = lanes if st.mask is None else lanes & st.mask
                if lanes.any() and info.inst.unit is Unit.VMEM:
                    self.undefined.report(st, marks, index, code, lanes)
                    self.undefined.define(st, marks, code, False, index, False)
        self._launch(st, index, info.writes)

    # ---- LDS: (RACE), (UNDEF), direct copies

    def lds_load(
        self, st: State, index: int, position: np.ndarray, size: int, active: Any, dead: Any, last: bool,
        deliver: Callable[..., None], j: int, row: int, n: int,
    ) -> None:  # fmt: skip
        """One address of an LDS read: check it, then deliver now or late. The last one of an instruction is its
        flight.
        """
        never = self.lds.read(st, index, position, size, active)
        marks: Marks = st.check
        info = self.infos[index]
        whole = not info.inst.mem.convert  # type: ignore[union-attr]
        if dead is not None and dead.any():
            for i in range(n):
                np.copyto(st.U[row + i], U32(0), where=dead)
        codes = list(info.foot.operands["d"])[j * n : j * n + n]
        if never is not None and whole:
            for code in codes:
                self.undefined.define(st, marks, code, never, index, True)
        regs = mask_of(codes)
        f = None
        self._overtaken(st, st.lgkm, regs)
        if last:
            f = self._launch(st, index, info.writes)
        else:
            # the first half shares the flight of the second: it arrives at once
            marks.pending |= regs
            self.first = _part(index, "read", position, active, size)
        deliver(st, j, position, active)
        if f is not None and whole and j == 0 and self._late():
            self._postpone(st, f, row, n, active)
        if f is not None:
            f.role, f.position, f.active, f.size = "read", position, active, size
            f.first, self.first = self.first, None
        self._under_way(position, size, active)

    def lds_store(
        self,
        st: State,
        index: int,
        position: np.ndarray,
        size: int,
        active: Any,
        words: np.ndarray,
        last: bool,
        row: int,
        n: int,
    ) -> None:
        self.covered(st, index, position, size, active)
        self.lds.write(st, index, position, size, active, words, True)
        self._undefined_data(st, index, position, size, active)
        if last:
            f = self._launch(st, index, 0)
            f.role, f.position, f.active, f.size = "write", position, active, size
            f.first, self.first = self.first, None
        else:
            self.first = _part(index, "write", position, active, size)
        self._under_way(position, size, active)

    def _undefined_data(self, st: State, index: int, position: np.ndarray, size: int, active: Any) -> None:
        """Places that get what is made of undefined lanes are as if nothing had written them."""
        marks: Marks = st.check
        for name in ("data", "data1"):
            for code in self.infos[index].foot.operands.get(name, ()):
                if marks.undef >> code & 1:
                    lanes = self.undefined.lanes(st, marks, code)
                    lanes = lanes if active is None else lanes & active
                    if lanes.any():
                        self.lds.unwrite(position, size, lanes)

    def lds_atomic(self, st: State, index: int, position: np.ndarray, size: int, active: Any) -> None:
        """An atomic of LDS, whose result is there already."""
        self._undefined_data(st, index, position, size, active)
        f = self._launch(st, index, self.infos[index].writes & ~SCC_BIT)
        f.role, f.position, f.active, f.size = "atomic", position, active, size
        self._under_way(position, size, active)

    def _under_way(self, position: np.ndarray, size: int, active: Any) -> None:
        """Cells of an LDS access that a direct copy must not overtake."""
        if self.lds.has_dma:
            g = self.lds.granules(position, size)
            self.lds.unreturned[g if active is None else g[active]] = True

    def covered(self, st: State, index: int, position: np.ndarray, size: int, active: Any) -> None:
        """A write to LDS that a direct copy may still write: which one comes last?"""
        if not self.lds.has_dma:
            return
        g = self.lds.granules(position, size)
        early = self.lds.coming[g if active is None else g[active]].reshape(-1, g.shape[-1])
        if early.any():
            lanes = self.lds.lane_mask(st, active, early.any(axis=1))
            what = "overwrites LDS that a direct copy has not written yet: no wait for vmcnt covers it"
            self.engine.find("missing-wait", index, what, st, lanes)

    def lds_touch(self, st: State, index: int, position: np.ndarray, size: int, active: Any, write: bool) -> None:
        """A flat access that turned out to lie in LDS."""
        if write:
            self.lds.write(st, index, position, size, active, None, False)
        else:
            self.lds.read(st, index, position, size, active)

    def dma(
        self,
        st: State,
        index: int,
        position: np.ndarray,
        size: int,
        active: Any,
        both: Any,
        deliver: Callable[..., None],
    ) -> None:
        """A copy straight to LDS: its bytes may not be read before vmcnt covers it."""
        self.lds.write(st, index, position, size, active, None, True)
        g = self.lds.granules(position, size)
        cells = g if active is None else g[active]
        if self.lds.unreturned[cells].any():
            lanes = self.lds.lane_mask(st, active, self.lds.unreturned[cells].reshape(-1, g.shape[-1]).any(axis=1))
            self.engine.find("race", index, "overwrites LDS that an earlier access of this wave has not finished with: "
                              "no wait for lgkmcnt covers it", st, lanes)  # fmt: skip
        self.lds.coming[cells] = True
        f = self._launch(st, index, 0)
        f.role, f.position, f.active, f.size = "dma", position, active, size
        if self._late():
            chosen = position if active is None else position[active]
            for i in range(0, size, 4):
                self.engine.env.lds32[(chosen + i) >> 2] = POISON
            f.late = (deliver, 0, both, active)
        else:
            deliver(st, 0, both, active)


def _part(index: int, role: str, position: Any, active: Any, size: int) -> Flight:
    """The first access of an instruction with two addresses."""
    f = Flight(index, 0, True)
    f.role, f.position, f.active, f.size = role, position, active, size
    return f


def _put_back(st: State, row: int, words: np.ndarray, active: Any) -> None:
    for i, word in enumerate(words):
        np.copyto(st.U[row + i], word, where=True if active is None else active)
