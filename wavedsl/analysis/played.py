"""Clocks of a workgroup of AMD's chips before anything runs: its kernel IR played on the cycle model's compute unit.

In: a kernel's IR, the values of its hidden parameters, how the launch loads the chip. Out: `Played`.

Sums of what each unit does say nothing of a short loop: there waves wait for their first tiles, for the slowest wave at
barriers, and for their last stores. So every wave goes through the ops in order, with the rules of the cycle model of
emitted text (docs/cycle-model.md): a turn of four clocks per instruction, loads that complete in order and are waited
for where they are used, matrix units of the SIMDs, LDS and vector memory of the compute unit, L1 and the link behind.
Bank conflicts and cache lines come from the addresses (`lanes`). Long loops are played for a few trips at their
beginning and end, and the trips between count at the rate of the last.

What the IR does not show is left out: instructions that the back end adds (copies, hazards) or folds, but for the
loads and stores of spilled registers, which the text's resources count.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any

import numpy as np

from wavedsl.analysis.lanes import Frame, Threads, loop_counters
from wavedsl.analysis.pipes import MANY, SLOW
from wavedsl.ir.dataflow.split_k import SUMS
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Value
from wavedsl.ir.kernel.pair_floats import PAIRED
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target
from wavedsl.runtime.emulator.amdgcn.cycle_model import TURN
from wavedsl.runtime.emulator.cycle_chips import CHIPS, SIMDS, ChipModel
from wavedsl.runtime.emulator.cycle_queue import STORED, Launch, LineCache

FREE = frozenset(
    {"const", "vec", "slice", "buffer", "yield", "bitcast", "wave", "lane", "tid", "wgid", "undefined", "readfirst"}
)
"""Ops that name registers or are folded into others."""
FIRST, LAST, COUNTED = 5, 3, 2
"""Trips of a loop that are played at its beginning and at its end, and those before the end's that give the rate."""

EXPANDED = {**MANY, "fdiv": 13}
"""Vector instructions that an op expands into on AMD's chips: of a quotient ten, one of which is a reciprocal."""
Roots = tuple[int, ...]


@dataclass
class Played:
    """Clocks of one workgroup that has a compute unit to itself, and the units' busy clocks (of one SIMD for `mfma`,
    `valu`, `salu`; of the compute unit for `lds`, `vmem`, `memory`)."""

    clocks: float = 0.0
    busy: dict[str, float] = field(default_factory=dict)

    def scaled(self, factor: float) -> Played:
        """All clocks times a factor."""
        return self if factor == 1 else Played(self.clocks * factor, {u: c * factor for u, c in self.busy.items()})


class _Wave:
    __slots__ = (
        "at", "copies", "ending", "group", "lgkm", "lgkm_seen", "number", "products", "ready", "simd", "skipped", "vm",
        "vm_copied",
    )  # fmt: skip

    def __init__(self, number: int, group: int, simd: int):
        self.number, self.group, self.simd = number, group, simd
        self.at = 0.0
        self.ready: dict[int, float] = {}
        """Value → when it is there, of loads and slow instructions."""
        self.products: dict[int, float] = {}
        """The same of matrix instructions, whose sums another may take over at once."""
        self.vm = self.lgkm = 0.0
        """When the last access of each kind completes; they complete in order."""
        self.lgkm_seen = 0.0
        """Up to when accesses of LDS have been waited for."""
        self.vm_copied = 0.0
        self.copies: list[float] = []
        """When each group of copies without registers has arrived."""
        self.skipped = 0.0
        """Clocks of trips that were not played."""
        self.ending = True
        """Whether all loops around are in their last trip: whoever takes turns comes last to the tile of its last one
        if to any, since all begin together."""


class _Play:
    def __init__(
        self, kernel: Kernel, target: Target, threads: Threads, launch: Launch, chip: ChipModel,
        scratch: Mapping[int, int], last: bool = True,
    ):  # fmt: skip
        # Here, since NVIDIA's replay takes `Played` from this file and has no use for AMD's selector.
        from wavedsl.codegen.amdgcn.fuse import plan_fusions
        from wavedsl.codegen.amdgcn.select import count_uses

        self.scratch, self.is_last = scratch, last
        self.kernel, self.target, self.threads, self.chip = kernel, target, threads, chip
        self.atoms = {a.name: a for a in target.mma_atoms}
        notes = kernel.notes.get("lowering")
        self.trips = {x.label: x.trips for x in (notes.loops if notes else ())}
        used = launch.used_units or chip.units
        share = launch.memory_share
        rates = [chip.l1_rate, chip.l2_rate / used] + ([chip.dram_rate / used / share] if share else [])
        self.line_clocks, self.near_clocks = chip.line / min(rates), chip.line / min(rates[:2])
        """Clocks of a line from L2 and memory, and of one that L2 has."""
        self.miss = chip.hit_latency + share * (chip.memory_latency - chip.hit_latency)
        self.lds_free = self.memory_free = self.link_free = 0.0
        self.matrix_free = [0.0] * SIMDS
        self.vector_free = [0.0] * SIMDS
        self.busy: dict[str, float] = dict.fromkeys(("mfma", "valu", "salu", "lds", "vmem", "memory"), 0.0)
        self.skipped: dict[str, float] = {}
        self.cache = LineCache(self.chip.l1_lines)
        self.last = 0.0
        _, self.absorbed = plan_fusions(kernel, count_uses(kernel))
        """Values that the instructions of others compute."""
        self.rooted: dict[int, Roots] = {}
        self.alone = True
        """Whether every wave has a SIMD to itself."""
        self.valu = target.cost("valu").cycles
        self.lds_costs: dict[int, Any] = {}
        """Bytes of an access of LDS → what the target says of it."""
        self.near: dict[int, bool] = {}
        """Access (`id`) → whether it `comes_from_l2`."""

    # --------------------------------------------------------------------------------------------------------- values

    def roots(self, v: Value) -> Roots:
        """The values whose completion this one has to wait for."""
        found = self.rooted.get(v.id)
        if found is None:
            op = v.op
            gone = v.id in self.absorbed
            if op is None or op.regions or (op.name in _TRACKED and not gone):
                found = (v.id,)
            elif op.name in FREE or gone:
                found = tuple(dict.fromkeys(r for a in op.args for r in self.roots(a)))
            else:
                found = ()
            self.rooted[v.id] = found
        return found

    def settle(self, w: _Wave, args: Any) -> None:
        """Wait until the operands are there."""
        at = w.at
        for a in args:
            for r in self.roots(a):
                t = w.ready.get(r, 0.0)
                if t > at:
                    at = t
                t = w.products.get(r, 0.0)
                if t > at:
                    at = t
        if at > w.at:
            w.at = at

    # ---------------------------------------------------------------------------------------------------------- waves

    @np.errstate(all="ignore")
    def run(self, groups: int, resident: int) -> tuple[Played, list[float]]:
        """`groups` workgroups, of which `resident` start together and the others where one ends; and their ends."""
        frame = Frame(self.threads)
        count = self.kernel.waves
        self.alone = resident * count <= SIMDS
        waves = [_Wave(n % count, n // count, n % SIMDS) for n in range(groups * count)]
        walks = [self.whole(w, frame) for w in waves]
        turns: list[tuple[float, int]] = []
        arrived: list[list[int]] = [[] for _ in range(groups)]
        living = [count] * groups
        ends: list[float] = []
        waiting = iter(range(resident, groups))

        def begin(group: int, at: float) -> None:
            for n in range(group * count, (group + 1) * count):
                waves[n].at = at
                resume(n)

        def resume(n: int) -> None:
            """Let a wave go on until it needs what others may have: it then waits for its turn."""
            w = waves[n]
            what = next(walks[n], "end")
            if what == "barrier":
                arrived[w.group].append(n)
            elif what == "end":
                living[w.group] -= 1
                if not living[w.group]:
                    ends.append(max(x.at for x in waves[w.group * count : (w.group + 1) * count]))
                    following = next(waiting, None)
                    if following is not None:
                        begin(following, ends[-1])
            else:
                heapq.heappush(turns, (w.at, n))
                return
            here = arrived[w.group]
            if here and len(here) == living[w.group]:
                over = max(waves[k].at for k in here) + self.chip.barrier
                arrived[w.group] = []
                for k in here:
                    waves[k].at = over
                    resume(k)

        for group in range(resident):
            begin(group, 0.0)
        while turns:
            resume(heapq.heappop(turns)[1])
        end = max([self.last, *(w.at for w in waves)]) + max(w.skipped for w in waves)
        busy = {
            u: (c + self.skipped.get(u, 0.0)) / (SIMDS if u in ("mfma", "valu", "salu") else 1)
            for u, c in self.busy.items()
        }
        return Played(end, {u: c for u, c in busy.items() if c}), ends

    def whole(self, w: _Wave, frame: Frame) -> Iterator[str]:
        yield from self.region(w, self.kernel.body, frame)
        yield from self.spilled(w, OUTSIDE)

    def spilled(self, w: _Wave, where: int) -> Iterator[str]:
        """What a trip of this loop (by its op's `id`), or all outside of loops, loads and stores of spilled registers:
        a word of every lane each, behind each other, waited for once. So it is at least that."""
        count = self.scratch.get(where, 0)
        if not count:
            return
        yield "vmem"
        clocks = count * max(TURN, self.kernel.wave_size * 4 / self.chip.l1_rate)
        start = max(w.at, self.memory_free)
        self.memory_free = start + clocks
        self.busy["vmem"] += clocks
        w.at = start + clocks + self.chip.hit_latency
        self.last = max(self.last, w.at)

    def region(self, w: _Wave, region: Region, frame: Frame) -> Iterator[str]:
        for op in region.ops:
            name = op.name
            if name in FREE:
                continue
            if name == "mma" or name == "mma.scaled":
                self.settle(w, (op.args[0], op.args[1], *op.args[3:]))
                for r in self.roots(op.args[2]):
                    t = w.ready.get(r, 0.0)
                    if t > w.at:
                        w.at = t
                if not self.alone:
                    yield "mfma"
                self.matrix(w, op)
            elif name in ("load.shared", "store.shared", "atomic.shared"):
                self.settle_memory(w, op)
                yield "lds"
                self.shared_access(w, op, frame)
            elif name in _GLOBAL:
                self.settle_memory(w, op)
                yield "vmem"
                self.global_access(w, op, frame)
            elif name == "for":
                yield from self.loop(w, op, frame)
            elif name == "if":
                yield from self.branch(w, op, frame)
            elif name in ("barrier", "fence"):
                if w.lgkm > w.lgkm_seen:
                    w.at = max(w.at + TURN, w.lgkm + TURN)
                    w.lgkm_seen = w.lgkm
                w.at += TURN
                yield "barrier"
            elif name == "copy.commit":
                w.copies.append(w.vm_copied)
            elif name == "copy.wait":
                pending = op.attrs["pending"]
                due = w.copies[-pending - 1] if len(w.copies) > pending else 0.0
                w.at = max(w.at, due) + TURN
            elif name == "param":
                w.ready[op.results[0].id] = float(self.chip.scalar_latency)
            else:
                if op.results and op.results[0].id in self.absorbed:
                    continue
                before = w.at
                self.settle(w, op.args)
                if w.at > before and not self.alone:
                    yield "wait"  # others compute meanwhile
                self.plain(w, op)

    def plain(self, w: _Wave, op: Op) -> None:
        results = op.results
        uniform = bool(results) and all(r.uniform for r in results)
        words = max([1, *(r.type.n for r in results)])
        if op.name in PAIRED and self.target.packed_f32:
            words = (words + 1) // 2
        clocks = self.valu * words * EXPANDED.get(op.name, 1) * (4 if op.name in SLOW else 1)
        if op.row.effects and not results:
            clocks = TURN
        if uniform:
            self.busy["salu"] += clocks
        else:
            self.busy["valu"] += clocks
            w.at = max(w.at, self.vector_free[w.simd])
            self.vector_free[w.simd] = w.at + clocks
        w.at += clocks
        if op.name in ("shuffle_xor", "shuffle_index", "any_lane"):
            w.ready[results[0].id] = w.at + self.target.cost("load.shared", 4).latency

    def matrix(self, w: _Wave, op: Op) -> None:
        atom = self.atoms[op.attrs["atom"]] if isinstance(op.attrs["atom"], str) else op.attrs["atom"]
        start = max(w.at, self.matrix_free[w.simd])
        self.matrix_free[w.simd] = start + atom.cycles
        self.busy["mfma"] += atom.cycles
        w.at = start + TURN
        w.products[op.results[0].id] = start + atom.cycles + 16
        self.last = max(self.last, start + atom.cycles)

    # --------------------------------------------------------------------------------------------------------- memory

    def settle_memory(self, w: _Wave, op: Op) -> None:
        """Wait for an access's operands; a wait for loads is an instruction of its own."""
        before = w.at
        self.settle(w, op.args)
        if w.at > before:
            w.at += TURN

    def shared_access(self, w: _Wave, op: Op, frame: Frame) -> None:
        clocks = frame.shared(op, w.number)
        size = op.attrs["bytes"]
        cost = self.lds_costs.get(size)
        if cost is None:
            bytes = next((b for b in (1, 2, 4, 8, 12, 16) if b >= size), 16)
            cost = self.lds_costs[size] = self.target.cost("load.shared", bytes)
        start = max(w.at, self.lds_free)
        self.lds_free = start + clocks
        self.busy["lds"] += clocks
        w.lgkm = max(w.lgkm, start + clocks + max(0, cost.latency - cost.cycles))
        for r in op.results:
            w.ready[r.id] = w.lgkm
        w.at += TURN

    def global_access(self, w: _Wave, op: Op, frame: Frame) -> None:
        chip = self.chip
        lines = frame.lines(op, w.number)
        size = op.attrs["bytes"] * self.kernel.wave_size if lines else 0
        clocks = max(TURN, len(lines), -(-size // int(chip.l1_rate)))
        start = max(w.at, self.memory_free)
        self.memory_free = start + clocks
        self.busy["vmem"] += clocks
        shift = (w.group << 80) + (STORED if op.name.startswith("store") else 0)
        atomic = op.name == "atomic.global"  # which L2 carries out
        missed = len(lines) if atomic else self.cache.missed([x + shift for x in lines] if shift else lines)
        done = start + clocks
        if missed:
            near = self.near.get(id(op))
            if near is None:
                near = self.near[id(op)] = op.name.startswith("load") and comes_from_l2(self.kernel, op)
            transfer = missed * (self.near_clocks if near else self.line_clocks)
            self.link_free = max(start, self.link_free) + transfer
            self.busy["memory"] += transfer
            done = max(done, self.link_free) + (chip.hit_latency if near else self.miss)
        elif lines:
            done += chip.hit_latency
        w.vm = max(w.vm, done)
        self.last = max(self.last, w.vm)
        for r in op.results:
            w.ready[r.id] = w.vm
        w.at += TURN
        if op.name == "copy.async":
            w.at += TURN  # where in LDS the bytes go is set by an instruction
            arrival = max(2, self.kernel.wave_size * max(4, op.attrs["bytes"]) // 128)
            self.lds_free = max(self.lds_free, start) + arrival
            self.busy["lds"] += arrival
            w.vm_copied = w.vm

    # -------------------------------------------------------------------------------------------------------- control

    def branch(self, w: _Wave, op: Op, frame: Frame) -> Iterator[str]:
        taken = frame.of_wave(op.args[0], w.number)
        w.at += 2 * TURN
        if taken is None and op.attrs.get("one_of") and not (self.is_last and w.ending):
            taken = False
        region = op.regions[0] if taken is not False else op.regions[1] if len(op.regions) > 1 else None
        if region is None:
            return
        yield from self.region(w, region, frame)
        self.hand_over(w, op.results, region)

    def hand_over(self, w: _Wave, to: Any, region: Region) -> None:
        """What a region yields is what `to` waits for."""
        if not region.ops or region.ops[-1].name != "yield":
            return
        found = []
        for v in region.ops[-1].args:
            roots = self.roots(v)
            found.append((max((w.ready.get(r, 0.0) for r in roots), default=0.0),
                          max((w.products.get(r, 0.0) for r in roots), default=0.0)))  # fmt: skip
        for v, (ready, product) in zip(to, found):
            w.ready[v.id], w.products[v.id] = ready, product

    def counters(self, op: Op, frame: Frame) -> tuple[list[int], int]:
        """The loop counter in the trips that are played, and how many are left out behind the first `FIRST`."""
        values = loop_counters(op, frame, self.trips)
        if len(values) <= FIRST + LAST:
            return list(values), 0
        return [*values[:FIRST], *values[-LAST:]], len(values) - FIRST - LAST

    def loop(self, w: _Wave, op: Op, frame: Frame) -> Iterator[str]:
        body = op.regions[0]
        counters, left = self.counters(op, frame)
        for arg, init in zip(body.args[1:], op.args[3:]):
            roots = self.roots(init)
            w.ready[arg.id] = max((w.ready.get(r, 0.0) for r in roots), default=0.0)
            w.products[arg.id] = max((w.products.get(r, 0.0) for r in roots), default=0.0)
        before: Frame | None = None
        marks: list[tuple[float, dict[str, float]]] = []
        ending = w.ending
        for number, counter in enumerate(counters):
            w.ending = ending and number + 1 == len(counters)
            inner = frame.trip(op, number, counter, before)
            yield from self.region(w, body, inner)
            yield from self.spilled(w, id(op))
            self.hand_over(w, body.args[1:], body)
            before = inner
            w.at += 2 * TURN + (self.chip.taken_branch - TURN if number + 1 < len(counters) else 0)
            if left and FIRST - COUNTED - 1 <= number < FIRST:
                marks.append((w.at + w.skipped, dict(self.busy)))
            if left and number == FIRST - 1:
                trips = left / COUNTED
                w.skipped += (marks[-1][0] - marks[0][0]) * trips
                if w.number == w.group == 0:  # what units did meanwhile, they did for all workgroups
                    for unit, clocks in marks[-1][1].items():
                        self.skipped[unit] = self.skipped.get(unit, 0.0) + (clocks - marks[0][1][unit]) * trips
        w.ending = ending
        for r, arg in zip(op.results, body.args[1:]):
            w.ready[r.id], w.products[r.id] = w.ready.get(arg.id, 0.0), w.products.get(arg.id, 0.0)


_GLOBAL = frozenset(("load.global", "store.global", "load.far", "store.far", "copy.async", "atomic.global"))
_TRACKED = _GLOBAL | {"load.shared", "mma", "mma.scaled", "param", "shuffle_xor", "shuffle_index", "any_lane"}


OUTSIDE = 0
"""Of scratch accesses by loop: those outside of loops."""


def scratch_by_loop(kernel: Kernel, resources: Any) -> dict[int, int]:
    """Instructions per trip that load or store spilled registers, of each loop's own body: `id` of its op → how many,
    and of what lies outside of loops. Texts have the loops of their kernel in its order; where they do not, all of
    them count as outside."""
    total, left = resources.instructions["scratch"], [loop.instructions["scratch"] for loop in resources.loops]
    found: dict[int, int] = {}
    if not total or sum(op.name == "for" for op in kernel.body.walk()) != len(left):
        return {OUTSIDE: total} if total else {}

    def own(region: Region) -> int:
        """Accesses of the loops directly or further inside; those of each are noted."""
        inside = 0
        for op in region.ops:
            if op.name == "for":
                mine = left.pop(0)
                found[id(op)] = mine - own(op.regions[0])
                inside += mine
            else:
                inside += sum(own(r) for r in op.regions)
        return inside

    found[OUTSIDE] = total - own(kernel.body)
    return {where: count for where, count in found.items() if count > 0}


TOGETHER = 4
"""Workgroups that are played together at most."""
MOST_OPS = 20_000
"""Ops of all their waves, each counted once, beyond which fewer are."""
ROUNDS = 4
"""Of a kernel without loops, how many workgroups are played behind each other in the place of each that resides: they
get out of step, and one computes while another waits for memory."""
MOST_QUEUED = 60_000
"""Ops of all their waves at most."""


def play(
    kernel: Kernel, target: Target, launch: Launch, hidden: Mapping[int, int], grid: tuple[int, ...],
    chip: ChipModel | None = None, group: tuple[int, ...] = (0, 0, 0), scratch: Mapping[int, int] | None = None,
    last: bool = True,
) -> Played:  # fmt: skip
    """The workgroups of the compute unit that has most of them, while others load the chip as `launch` says.

    As many as reside together are played together, `TOGETHER` at most; the others follow at the same rate, or at that
    of the busiest pipe. Of kernels without loops, several rounds are played. `hidden`: values of hidden parameters by
    index; `group`: the workgroup that is played for all of them; `scratch`: what `scratch_by_loop` says of the text;
    `last`: whether it does what one of several does, who comes last. Raises KeyError for targets without a `ChipModel`.
    """
    chip = chip or CHIPS[target.name]
    threads = Threads(kernel, target.name, chip.line, hidden, grid, group)
    length = max(1, sum(1 for _ in kernel.body.walk()) * kernel.waves)
    new = partial(_Play, kernel, target, threads, launch, chip, scratch or {}, last)
    resident = max(1, min(launch.resident, launch.groups))
    queue = min(launch.groups, ROUNDS * resident, MOST_QUEUED // length)
    if queue > resident and not any(op.name == "for" for op in kernel.body.walk()):
        return _queued(*new().run(queue, resident), resident, launch)
    groups = together(launch, length)
    return of_launch(new().run(groups, groups)[0], groups, launch)


def _queued(played: Played, ends: list[float], resident: int, launch: Launch) -> Played:
    """The launch's workgroups, of which some rounds were played: others follow at the rate at which these ended behind
    the first round."""
    count = len(ends)
    ends = sorted(ends)
    rate = (ends[-1] - ends[resident - 1]) / (count - resident)
    busy = {unit: clocks / count * launch.groups for unit, clocks in played.busy.items()}
    return Played(played.clocks + rate * (launch.groups - count), busy)


def with_the_last(kernel: Kernel, launch: Launch, played: Callable[[Launch, bool], Played]) -> Played:
    """What `played` says of a launch, and of one workgroup of whether it is the last of several. A unit that has more
    than one of these has one that adds what the others have left, at the end."""
    if launch.groups == 1 or not any(op.name == "if" and op.attrs.get("one_of") for op in kernel.body.walk()):
        return played(launch, True)
    every, one = played(launch, False), replace(launch, groups=1)
    with_it, without = played(one, True), played(one, False)
    more = {unit: clocks - without.busy.get(unit, 0.0) for unit, clocks in with_it.busy.items()}
    busy = {unit: every.busy.get(unit, 0.0) + max(0.0, more.get(unit, 0.0)) for unit in {**every.busy, **more}}
    return Played(every.clocks + max(0.0, with_it.clocks - without.clocks), busy)


def comes_from_l2(kernel: Kernel, op: Op) -> bool:
    """Whether a load is of sums that other workgroups have just left."""
    base = op.args[0].op
    while base is not None and base.name != "param" and base.args:
        base = base.args[0].op
    return base is not None and base.name == "param" and kernel.params[base.attrs["index"]].source == SUMS


def together(launch: Launch, length: int) -> int:
    """How many workgroups are played together, each of so many ops."""
    return max(1, min(launch.resident, launch.groups, TOGETHER, MOST_OPS // max(1, length)))


def of_launch(one: Played, groups: int, launch: Launch) -> Played:
    """The launch's workgroups, of which so many were played: others follow at the same rate, or at that of the busiest
    pipe."""
    resident = max(1, min(launch.resident, launch.groups))
    if launch.groups == groups:
        return one
    busy = {unit: clocks / groups * launch.groups for unit, clocks in one.busy.items()}
    pipe = max(one.busy.values(), default=0.0)
    at_once = max(one.clocks, pipe / groups * resident + one.clocks - pipe) if resident > groups else one.clocks
    return Played(at_once * max(1.0, launch.groups / resident), busy)
