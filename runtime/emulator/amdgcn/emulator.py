"""The AMDGCN emulator: launches a kernel's text on batches of workgroups and reports.

In: text, target, grid, block, arguments. Out: `EmulationReport`; arrays are changed in place.
The idea: all waves of a batch are one `State` while they are at the same place. Code is decoded into basic blocks of
closures. Where waves part, the group splits; the group with the lowest program counter runs first, and groups that
meet again merge. At `s_barrier` a group waits until every live wave of each of its workgroups has arrived.

ORDER: with checks on, workgroups are batched in a seeded random order, groups take turns at random, and each load's
data arrive at the earliest or the latest moment its wait allows.
With WAVEDSL_ORDER=apart a workgroup's waves run one after the other from barrier to barrier, in a seeded order, so that
what one of them reads or writes too early shows in the numbers. That takes as many times as long as there are waves.
"""

from __future__ import annotations

import functools
import math
import os
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.operand_rules import check_operands
from wavedsl.ir.errors import LaunchError
from wavedsl.runtime.emulator.amdgcn.checks import POISON, Checker
from wavedsl.runtime.emulator.amdgcn.cost import Cost
from wavedsl.runtime.emulator.amdgcn.decode import shared
from wavedsl.runtime.emulator.amdgcn.env import Env
from wavedsl.runtime.emulator.amdgcn.launch import Launch, counted_registers
from wavedsl.runtime.emulator.amdgcn.memory import MEMORY
from wavedsl.runtime.emulator.amdgcn.scalar import sets_overflow
from wavedsl.runtime.emulator.amdgcn.state import LANES, U8, U64, Registers, State, scalar_read
from wavedsl.runtime.emulator.amdgcn.step import Context, Step, Unsupported
from wavedsl.runtime.emulator.amdgcn.text import CODE_BASE, Kernel, Line, Program, parse
from wavedsl.runtime.emulator.memory import GlobalMemory
from wavedsl.runtime.emulator.report import Collector, EmulationReport, Finding, conclude, seed_or_default

BATCH_WAVES = 256
SPIN_LIMIT = 256
"""Consecutive blocks a group may run while others wait, before they get a turn."""
ALONE_BLOCKS = 1 << 12
"""Blocks that a group runs without looking around when it is the only one."""
DEADLOCK_TURNS = 1 << 12
"""Turns without a wave ending or a barrier passing after which the groups are compared with what they were."""
LOOK_TURNS = 256
"""Turns for which they are compared; a loop of more blocks than that is not recognised."""


class Stop(Exception):
    """The run cannot go on: an instruction without meaning was reached."""


class Block:
    """Straight-line code: closures, then what ends it."""

    __slots__ = ("first", "guard", "last", "steps", "term", "waits")

    def __init__(self, first: int, last: int, steps: list[Step], term: Any):
        self.first, self.last = first, last
        self.steps = steps
        self.term = term
        """(kind, data); None falls through to the next instruction."""
        self.guard: list[tuple[Step, int, Any]] | None = None
        """(closure, registers touched, info) per instruction, when checked."""


@functools.lru_cache(maxsize=64)
def _parsed(asm: str, target: str) -> Program:
    return parse(asm, target)


def run_amdgcn(
    asm: str,
    *,
    target: str,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Any],
    kernel: str | None = None,
    shared_bytes: int = 0,
    checks: bool | str = True,
    seed: int | None = None,
    workgroups: int | None = None,
    first: int = 0,
    kept: Collection[int] = (),
) -> EmulationReport:
    """Run AMDGCN text, or only so many `workgroups` of its grid, from number `first` on. `kept`: as in
    `runtime.emulator.run`. Raises EmulationError for findings when `checks` is
    True, LaunchError for arguments that do not fit.
    """
    program = _parsed(asm, target)
    entry = _entry(program, kernel)
    seed = seed_or_default(seed)
    report = EmulationReport(seed=seed)
    if 0 in tuple(grid):
        return report
    engine = _Engine(program, entry, target, _three(grid), _three(block), checks, seed, shared_bytes, workgroups, first)
    engine.launch.bind(args)
    engine.cost.kept = [args[i] for i in kept]
    with np.errstate(all="ignore"):
        engine.run()
    return conclude(engine.report(report), checks)


def _three(x: Sequence[int]) -> tuple[int, int, int]:
    x = (x,) if isinstance(x, int) else tuple(x)
    return (*x, 1, 1, 1)[:3]  # type: ignore[return-value]


def _entry(program: Program, name: str | None) -> Kernel:
    if name is None:
        if len(program.kernels) != 1:
            raise LaunchError(f"the text has kernels {', '.join(program.kernels) or '(none)'}: name one")
        name = next(iter(program.kernels))
    if name not in program.kernels:
        raise LaunchError(f"the text has no kernel {name}, it has {', '.join(program.kernels) or 'none'}")
    if name not in program.labels:
        raise LaunchError(f"the text describes kernel {name}, but has no label of that name")
    return program.kernels[name]


class _Engine:
    """One run of a kernel: its blocks, the groups of waves that are under way, what has been found."""

    def __init__(
        self, program: Program, kernel: Kernel, target: str, grid: tuple[int, int, int], block: tuple[int, int, int],
        checks: bool | str, seed: int, shared_bytes: int, workgroups: int | None = None,
        begin: int = 0,
    ):  # fmt: skip
        self.program, self.kernel, self.target = program, kernel, target
        self.grid, self.block = grid, block
        total = math.prod(grid)
        self.runs = total if workgroups is None else max(1, min(total, workgroups))
        """Workgroups that run, from number `begin` on."""
        self.begin = min(begin, total - self.runs)
        self.checks = bool(checks)
        self.apart = self.checks and os.environ.get("WAVEDSL_ORDER") == "apart"
        """Whether waves of a workgroup run one after the other."""
        self.collector = Collector()
        self.rng = np.random.default_rng(seed)
        self.memory = GlobalMemory()
        self.launch = Launch(program, kernel, target, grid, block, shared_bytes, self.memory)
        self.waves, self.lds, self.private = self.launch.waves, self.launch.lds, self.launch.private
        d = kernel.directives
        self.regs = Registers(*counted_registers(program))
        overflow = bool(int(d.get("fp16_overflow", 0))) or any(sets_overflow(line) for line in program.lines)
        self.context = Context(program, self.regs, target, int(d.get("float_denorm_mode_32", 0)) == 0, overflow)
        self.checker = Checker(self, seed) if self.checks else None
        self.env = Env(self.memory, self.checker)
        self.env.scratch_size = self.private
        self.cost = Cost(self, target)
        self.env.conflicts = self.cost.conflict
        self.env.atomics = self.cost.atomic
        self.env.accesses = self.cost.access
        self.blocks: dict[int, Block] = {}
        self.executed: dict[int, int] = {}
        self.meaningless: set[int] = set()
        """Lines that end the run as unsupported when they are reached."""
        leaders = set(program.labels.values())
        for i, line in enumerate(program.lines):
            if line.inst is not None and line.inst.special in _CONTROL:
                leaders.add(i + 1)
        self.leaders = leaders
        self.workgroup_of: np.ndarray = np.zeros((0, 3), np.int64)
        self.live: np.ndarray = np.zeros(0, np.int64)
        self.states: list[State] = []

    # ---- batches

    def initial(self, groups: np.ndarray) -> State:
        """The waves of some workgroups (linear ids) at the kernel's entry."""
        n = len(groups)
        st = State(self.regs.count, n * self.waves)
        if self.checker is not None:  # what nothing has written holds anything
            st.U[:] = POISON
            st.S32[:51] = POISON
            st.S32[53] = POISON
        gx, gy, _ = self.grid
        self.workgroup_of = np.stack((groups % gx, groups // gx % gy, groups // (gx * gy)), axis=1)
        self.live = np.full(n, self.waves, np.int64)
        self.cost.tracer.new_batch(groups)
        st.wg = np.repeat(np.arange(n), self.waves)
        st.wave = np.tile(np.arange(self.waves), n)
        self.env.new_batch(n, self.lds)
        if self.checker is not None and self.checker.globals is not None:
            self.checker.globals.new_batch(groups)
        st.lds_base = (st.wg * self.env.stride)[:, None]
        sgprs = self.launch.registers(st, self.workgroup_of)
        if self.private:
            st.scratch = np.full((st.waves, LANES, self.private), 0xA5 if self.checks else 0, U8)
        st.block = self.program.labels[self.kernel.name]
        if self.checker is not None:
            self.checker.start(st, sgprs)
        return st

    # ---- running

    def run(self) -> None:
        total = self.runs
        per = max(1, BATCH_WAVES // self.waves)
        order = self.rng.permutation(total) if self.checks and total <= 1 << 20 else np.arange(total)
        order += self.begin
        try:
            for first in range(0, total, per):
                self.states = [self.initial(order[first : first + per])]
                if self.apart:
                    self._take_apart(self.states[0])
                self._batch()
        except Stop:
            pass

    def _take_apart(self, st: State) -> None:
        """A group per number of a wave in its workgroup, in random order."""
        order = self.rng.permutation(self.waves)
        for wave in order[:-1]:
            self._part(st, st.wave == wave)
        for s in self.states:
            s.spins = 0

    def _batch(self) -> None:
        self.states[0].spins = 0
        self._idle, self._look = 0, DEADLOCK_TURNS
        self._seen: tuple[Any, set[int]] | None = None
        while states := self.states:
            ready = [s for s in states if not s.at_barrier]
            if not ready:
                self._release(states)
                self._idle, self._look, self._seen = 0, DEADLOCK_TURNS, None
                continue
            st = ready[0] if len(states) == 1 else self._choose(ready)
            self._advance(st, alone=len(states) == 1)
            if st.finished:
                self._idle, self._look, self._seen = 0, DEADLOCK_TURNS, None
                self.states = [s for s in self.states if not s.finished]
            elif len(self.states) > 1:
                self._meet(st)
            self._progress(st)

    def _progress(self, st: State) -> None:
        """Stop when groups only loop: registers and LDS of all of them come back bit for bit, and each had its turn."""
        self._idle += 1
        if self._idle < self._look or st.at_barrier:
            return
        if self._idle > self._look + LOOK_TURNS:
            # comparing is costly: look again when twice as much was done
            self._look, self._seen = 2 * self._idle, None
            return
        waiting = {id(s) for s in self.states if not s.at_barrier}
        digest = self._digest()
        if self._seen is not None and self._seen[0] == digest:
            self._seen[1].add(id(st))
            if self._seen[1] >= waiting:
                self.find("deadlock", st.block, "the waves loop without changing anything, for what never comes",
                           st, None)  # fmt: skip
                raise Stop
        elif self._seen is None or self._idle % 64 == 0:
            self._seen = (digest, set())
        else:
            self._seen[1].add(id(st))

    def _digest(self) -> tuple[Any, ...]:
        parts = [(s.block, hash(s.U.tobytes()), s.S.tobytes(), s.scc.tobytes()) for s in self.states]
        return (*sorted(parts), hash(self.env.lds8.tobytes()))

    def _choose(self, ready: list[State]) -> State:
        """The runnable group with the lowest program counter; one that keeps spinning lets others go first."""
        if self.apart:  # the same one as before, until it waits
            return next((s for s in ready if s.spins < SPIN_LIMIT), ready[int(self.rng.integers(len(ready)))])
        if self.checks and len(ready) > 1 and self.rng.random() < 0.1:
            return ready[int(self.rng.integers(len(ready)))]
        fresh = [s for s in ready if s.spins < SPIN_LIMIT]
        if not fresh:
            for s in ready:
                s.spins = 0
            fresh = ready
        return min(fresh, key=lambda s: s.block)

    def _meet(self, st: State) -> None:
        """Merge with a group at the same place, if operations in flight agree."""
        if st.finished or self.apart:
            return
        for other in self.states:
            if other is st or other.block != st.block or other.at_barrier != st.at_barrier or other.finished:
                continue
            if self.checker is not None and not self.checker.mergeable(st, other):
                continue
            self.states = [s for s in self.states if s is not st and s is not other]
            self.states.append(State.merge(other, st))
            return

    def _advance(self, st: State, alone: bool) -> None:
        """Run blocks: one when other groups wait for a turn, until something happens when there is no other group."""
        blocks, executed = self.blocks, self.executed
        checker = self.checker
        enter = self.cost.tracer.enter
        turns, limit = 0, min(ALONE_BLOCKS, max(1, self._look - self._idle))
        while True:
            block = blocks.get(st.block)
            if block is None:
                block = self._decode_block(st.block)
            executed[block.first] = executed.get(block.first, 0) + st.waves
            enter(st, block.first)
            if checker is None:
                for step in block.steps:
                    step(st)
            else:
                checker.run(st, block)
            if block.term is None:
                st.block = block.last + 1
            else:
                self._terminate(st, block)
            st.spins += 1
            if st.finished or st.at_barrier or not alone or len(self.states) > 1:
                return
            turns += 1
            if turns >= limit:
                self._idle += turns - 1
                return

    def _terminate(self, st: State, block: Block) -> None:
        kind, data = block.term
        if kind == "branch":
            test, to = data
            if test is None:
                st.block = to
                return
            taken = test(st)
            n = int(np.count_nonzero(taken))
            if n == st.waves:
                st.block = to
            elif n == 0:
                st.block = block.last + 1
            else:
                self._split(st, taken, to, block.last + 1)
        elif kind == "end":
            self._end(st)
        elif kind == "barrier":
            st.block = block.last + 1
            if len(self.states) == 1 and st.waves == int(self.live.sum()) and (self.live == self.waves).all():
                self._passed(st)
            else:
                st.at_barrier = True
        elif kind == "trap":
            number = data
            self.find(
                "assertion",
                block.last,
                f"s_trap {number}: an assertion failed, or code that must not be reached",
                st,
                None,
            )
            self._end(st)
        elif kind == "setpc":
            read, save = data
            targets = read(st)
            if save is not None:
                value = CODE_BASE + 8 * (block.last + 1)
                st.S[save] = U64(value)
            self._jump(st, targets, block.last)
        elif kind == "call":
            to, save = data
            st.S[save] = U64(CODE_BASE + 8 * (block.last + 1))
            st.block = to

    def _jump(self, st: State, targets: np.ndarray, at: int) -> None:
        first = int(targets[0])
        rest = targets != targets[0]
        if rest.any():
            other = self._part(st, rest)
            self._jump(other, targets[rest], at)
        index, odd = divmod(first - CODE_BASE, 8)
        if odd or not 0 <= index < len(self.program.lines):
            self.find("out-of-bounds", at, f"jumps to {first:#x}, where there is no code", st, None)
            self._end(st)
            return
        self.leaders.add(index)
        st.block = index

    def _part(self, st: State, away: np.ndarray) -> State:
        """Take waves out of a group; they become a group of their own."""
        if self.checker is not None:
            self.checker.settle(st)
        other = st.select(np.flatnonzero(away))
        stay = st.select(np.flatnonzero(~away))
        for name in State.__slots__:
            setattr(st, name, getattr(stay, name))
        self.states.append(other)
        return other

    def _split(self, st: State, taken: np.ndarray, to: int, fall: int) -> None:
        other = self._part(st, taken)
        other.block, st.block = to, fall

    def _end(self, st: State) -> None:
        np.subtract.at(self.live, st.wg, 1)
        st.finished = True

    def _passed(self, st: State) -> None:
        if self.checker is not None:
            self.checker.lds.barrier(st)
            if self.checker.globals is not None:
                self.checker.globals.barrier(st)
        st.epoch = st.epoch + 1

    def _release(self, states: list[State]) -> None:
        """Every group waits: let those workgroups go whose live waves have all arrived."""
        arrived = np.zeros_like(self.live)
        for s in states:
            np.add.at(arrived, s.wg, 1)
        complete = arrived == self.live
        early = complete & (self.live < self.waves) & (self.live > 0)
        if self.checker is not None and early.any():
            st = next(s for s in states if early[s.wg].any())
            wave = np.flatnonzero(early[st.wg])[0]
            lanes = np.zeros((st.waves, LANES), bool)
            lanes[wave, 0] = True
            self.find(
                "barrier-divergence",
                st.block - 1,
                "waits at a barrier that other waves of the workgroup have ended without reaching",
                st,
                lanes,
            )
        progress = False
        for s in list(states):
            ok = complete[s.wg]
            if ok.all():
                s.at_barrier = False
                self._passed(s)
                progress = True
            elif ok.any():
                self._part(s, ~ok)
                s.at_barrier = False
                self._passed(s)
                progress = True
        if not progress:
            self.find(
                "deadlock",
                states[0].block - 1,
                "waves wait at a barrier that the rest of the workgroup never reaches",
                states[0],
                None,
            )
            raise Stop
        for s in list(self.states):
            s.spins = 0
            self._meet(s)

    # ---- decoding

    def _decode_block(self, first: int) -> Block:
        lines = self.program.lines
        if first >= len(lines):
            self.find("out-of-bounds", len(lines) - 1, "runs past the end of the text", None, None)
            raise Stop
        steps: list[Step] = []
        i = first
        term: Any = None
        while True:
            line = lines[i]
            inst = line.inst
            if inst is not None and inst.special in _CONTROL and not self._illegal(line):
                term = self._control(line, i)
                break
            steps.append(self._decode(line, i))
            if i + 1 >= len(lines) or i + 1 in self.leaders:
                break
            i += 1
        block = Block(first, i, steps, term)
        if self.checker is not None:
            self.checker.prepare(block)
        self.blocks[first] = block
        return block

    def _illegal(self, line: Line) -> str:
        """What an assembler would refuse about the operands, in words."""
        assert line.inst is not None
        found = line.facts.get("illegal")
        if found is None:
            wrong = check_operands(line.inst, line.operands, self.target, line.modifiers)
            found = line.facts["illegal"] = f"`{line.text}`: {wrong[0]}" if wrong else ""
        return found

    def _decode(self, line: Line, index: int) -> Step:
        inst = line.inst
        message = line.problem
        if inst is not None:
            message = message or self._illegal(line)
        if inst is not None and not message:
            try:
                if inst.special in MEMORY:
                    return self._guarded(MEMORY[inst.special](self.context, self.env, line, index), index)
                if inst.special == "waitcnt":
                    if self.checker is None:
                        return lambda st: None
                    return self.checker.waitcnt(line, index)
                if inst.extra in ("writeback", "invalidate") and self.checker is not None and self.checker.globals:
                    return self.checker.globals.maintenance(line)
                return self._guarded(shared(self.context, line, index), index)
            except Unsupported as e:
                message = str(e)

        self.meaningless.add(index)

        def unsupported(st: State) -> None:
            self.find("unsupported", index, message or f"{line.mnemonic} has no meaning in the emulator", st, None)
            raise Stop

        return unsupported

    def _guarded(self, step: Step, index: int) -> Step:
        """Forms that only show at run time that they have no meaning."""
        inst = self.program.lines[index].inst
        if inst is None or not (inst.special == "setreg" or inst.extra == "buffer" or "index" in inst.position):
            return step

        def guarded(st: State) -> None:
            try:
                step(st)
            except Unsupported as e:
                self.find("unsupported", index, str(e), st, None)
                raise Stop from e

        return guarded

    def _control(self, line: Line, index: int) -> Any:
        inst = line.inst
        assert inst is not None
        kind = inst.special
        if kind == "branch":
            label = line.operands[0]
            to = self.program.index_of(label) if isinstance(label, str) else index + 1 + int(label)
            return "branch", (_TESTS[inst.extra], to)
        if kind == "endpgm":
            return "end", None
        if kind == "trap":
            number = line.operands[0] if line.operands else "code"
            return None if number == 3 else ("trap", number)
        if kind == "barrier":
            return "barrier", None
        if kind == "call":
            return "call", (self.program.index_of(line.operands[1]), line.operands[0].index >> 1)
        source = line.operands[-1]
        save = line.operands[0].index >> 1 if len(line.operands) > 1 else None
        return "setpc", (scalar_read(source, U64), save)

    # ---- findings

    def find(self, kind: str, index: int, message: str, st: State | None, lanes: np.ndarray | None) -> None:
        """List a finding of an instruction, once: shown by the first of `lanes` [wave, lane] of a group."""
        line = self.program.lines[index]
        if self.collector.has(kind, line.number):
            return
        workgroup = wave = lane = None
        if st is not None:
            w = 0
            if lanes is not None and lanes.any():
                w, lane = (int(x) for x in np.unravel_index(int(lanes.argmax()), lanes.shape))
            x, y, z = self.workgroup_of[int(st.wg[w])].tolist()
            workgroup, wave = (x, y, z), int(st.wave[w])
        self.collector.add(Finding(kind, message, line.text, line.location, workgroup, wave, lane, line.number))

    def report(self, report: EmulationReport) -> EmulationReport:
        report.findings = self.collector.findings
        counts: Counter[str] = Counter()
        lines = self.program.lines
        rows: set[str] = set()
        for first, times in self.executed.items():
            block = self.blocks[first]
            for i in range(block.first, block.last + 1):
                counts[lines[i].mnemonic] += times
                if lines[i].inst is not None:
                    rows.add(lines[i].inst.mnemonic)  # type: ignore[union-attr]
        report.instructions = counts
        report.coverage = frozenset(rows)
        self.cost.finish(report)
        return report


_CONTROL = frozenset(("branch", "endpgm", "barrier", "trap", "setpc", "call"))
_TESTS: dict[str, Any] = {
    "branch": None,
    "cbranch_scc0": lambda st: ~st.scc,
    "cbranch_scc1": lambda st: st.scc,
    "cbranch_vccz": lambda st: st.S[53] == 0,
    "cbranch_vccnz": lambda st: st.S[53] != 0,
    "cbranch_execz": lambda st: st.S[63] == 0,
    "cbranch_execnz": lambda st: st.S[63] != 0,
}
