"""How an emulated PTX launch loads the chip, and its clocks when somebody asks.

In: a run that recorded some of its warps. Out: `timing`, by the warp replay, of the SM that has most workgroups. How
many reside together follows from shared memory, threads, and an estimate of the registers (`warp_ops.registers`): what
ptxas gives, the text does not say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.target import CHIPS, TARGETS
from wavedsl.runtime.emulator.cycle_chips import SmModel, model_of
from wavedsl.runtime.emulator.cycle_queue import Launch, Timing, sharing, spread
from wavedsl.runtime.emulator.ptx.gather import entry_registers
from wavedsl.runtime.emulator.ptx.module import Inst
from wavedsl.runtime.emulator.ptx.run import Runner
from wavedsl.runtime.emulator.ptx.trace import MAX_RECORDED, Tracer
from wavedsl.runtime.emulator.ptx.warp_events import SECTOR, Events
from wavedsl.runtime.emulator.ptx.warp_ops import WarpProgram, registers, stores
from wavedsl.runtime.emulator.ptx.warp_replay import WarpReplay
from wavedsl.runtime.emulator.timeline import Timeline


def chip_of(target: str) -> SmModel:
    """The replay's numbers for a target, with as many SMs as its own chip has."""
    number = isa.parse_target(target).number
    found = model_of(target)
    assert isinstance(found, SmModel)
    return replace(found, units=next((c.units for c in CHIPS if c.number == number), found.units))


def resident(target: str, registers: int, shared_bytes: int, threads: int) -> int:
    """Workgroups that an SM holds at a time."""
    number = isa.parse_target(target).number
    name = next((c.name for c in CHIPS if c.number == number), "sm_80")
    return max(1, TARGETS[name].occupancy(registers, shared_bytes, threads) // -(-threads // 32))


class Cost:
    """Chooses what a run records, and turns it into clocks. `order`: the workgroups that run, clusters in one piece.
    `registers`: of a thread, where they are known. `kept`: arrays that caches keep."""

    def __init__(
        self, runner: Runner, order: np.ndarray, total: int, registers: int = 0,
        kept: Sequence[np.ndarray] = (),
    ):  # fmt: skip
        self.kept = kept
        m = self.m = runner.m
        self.target = m.launch.target
        self.chip = chip_of(self.target)
        self.total = total
        """Workgroups of the grid, of which `order` may be a sample."""
        self.registers = registers
        ranks = m.cluster
        clusters = order.reshape(-1, ranks)[:, 0]
        chosen = np.sort(clusters)[spread(len(clusters), MAX_RECORDED)]
        self.flow, self.rows = runner.p.flow, runner.p.rows
        idle = [b.end - b.start == 1 and _goes(m.function.insts[b.start]) for b in self.flow.blocks]
        places = np.flatnonzero(np.isin(clusters, chosen)).tolist()
        self.tracer = Tracer(places, ranks, m.warps, m.shared_stride, idle)
        runner.tracer = self.tracer
        self.effects = runner.p.effects
        self.program: WarpProgram | None = None

    def _program(self, chip: SmModel) -> WarpProgram:
        if self.program is None or self.program.chip is not chip:
            self.program = WarpProgram(self.m.function, self.flow, self.rows, self.effects, chip)
        return self.program

    def launch(self, chip: SmModel | None = None) -> Launch:
        """How this launch loads the SM that has most workgroups."""
        chip = chip or self.chip
        m = self.m
        if not self.registers:
            most = entry_registers(m.function, m.threads_per_cta)
            self.registers = registers(m.function, self.flow, self.rows, self.effects, most)
        share = -(-self.total // chip.units)
        at_once = resident(self.target, self.registers, m.shared_bytes, m.threads_per_cta)
        missed = self._memory_share()
        rate = min(chip.l2_rate, chip.dram_rate / missed) if missed else chip.l2_rate
        used = sharing(self.total, chip.units, rate, chip.unit_rate)
        sectors = self._changed()
        return Launch(
            share, min(at_once, share), missed, used, min(self.total, chip.units) / sectors if sectors else 0.0
        )

    def _changed(self) -> int:
        """Sectors that recorded warps change by atomics that give nothing back."""
        visits = {id(v): v for cluster in self.tracer.clusters for w in cluster for _, v in w.visits}.values()
        events = [e for v in visits for e in chain.from_iterable(v.values()) if e[0] == "changes"]
        return len(np.unique(np.concatenate([e[2] for e in events]) >> SECTOR)) if events else 0

    def _memory_share(self) -> float:
        """How much of what workgroups ask for the first time must come from memory."""
        memory = self.m.memory
        asked: dict[tuple[int, bool], float] = {}
        scale = self.total / max(1, len(self.tracer.clusters) * self.m.cluster)

        def array(address: int) -> int:
            found = memory.find(address)
            return -1 if found is None else memory.allocations.index(found)

        def count(key: tuple[int, bool], size: float) -> None:
            asked[key] = asked.get(key, 0.0) + size * scale

        for cluster in self.tracer.clusters:
            touched: dict[tuple[int, bool], list[np.ndarray]] = {}
            first, last = cluster[0].warp, cluster[-1].warp  # other clusters may have run the same blocks with this one
            for visit in {id(v): v for w in cluster for _, v in w.visits}.values():
                for pc, event in ((pc, event) for pc, events in visit.items() for event in events):
                    if event[0] == "signal":
                        if not first <= event[1] <= last:
                            continue
                        if event[2] == "copy" and event[6]:
                            count((array(event[6]), False), event[5])
                        elif event[2] == "store":
                            count((array(event[5]), True), event[4])
                    elif event[0] not in ("shared", "atomic", "local", "param"):
                        warps = event[3] >> 5
                        mine = (first <= warps) & (warps <= last)
                        groups, sectors = warps[mine] // self.m.warps, event[2][mine] >> SECTOR
                        if len(groups):
                            key = array(int(sectors[0]) << SECTOR), stores(self.rows[pc])
                            touched.setdefault(key, []).append(np.unique(groups << 58 ^ sectors))
            for key, found in touched.items():
                count(key, len(np.unique(np.concatenate(found))) << SECTOR)
        return memory.share_of_memory(asked, self.kept)

    def place(self, instruction: int) -> tuple[str, str]:
        """The text of an instruction, and the user's line."""
        inst = self.m.function.insts[instruction]
        return inst.text, "" if inst.loc is None else str(self.m.launch.module.location(inst.loc, inst.line))

    def timing(
        self, launch: Launch | None = None, chip: SmModel | None = None, timeline: Timeline | None = None
    ) -> Timing:
        """Replay what was recorded; `launch` and `chip` replace what was run, for studies; `timeline` is told all."""
        traces = [warps for warps in self.tracer.clusters if any(w.visits for w in warps)]
        if not traces:
            return Timing()
        chip = chip or self.chip
        m = self.m
        launch = launch or self.launch(chip)
        taken = launch.resident * -(-m.shared_bytes // chip.line)
        replay = WarpReplay(
            self._program(chip), Events(self.tracer), chip, launch, m.cluster, max(64, chip.l1_lines - taken)
        )
        replay.timeline = timeline
        timing = replay.run(traces)
        recorded = sum(len(w.visits) for warps in traces for w in warps)
        left = sum(w.cut for warps in traces for w in warps)
        if left:
            timing.cycles = round(timing.cycles * (recorded + left) / recorded)
            timing.extrapolated = True
        return timing


def _goes(inst: Inst) -> bool:
    """Whether an instruction is a branch that is always taken."""
    return inst.name.split(".", 1)[0] == "bra" and inst.guard is None
