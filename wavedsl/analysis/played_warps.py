"""Clocks of an SM before anything runs: a kernel's IR turned into warps' instructions, and replayed.

In: a kernel's IR, the values of its hidden parameters, how the launch loads the chip. Out: `Played`. What the warp
replay makes of emitted text (`emulator/ptx/warp_replay.py`) it makes of the IR as well: stretches without control
flow are its blocks, the addresses of `lanes` its events, and mbarriers follow from the ring's own arithmetic. Of a
long loop the first and last trips are replayed, twice: how much longer five more trips take is what those left out
count for. Where there are several such loops each has its own second replay.

What the IR does not show is left out: instructions that the back end adds or folds. Of a cluster one workgroup is
replayed: what it does to the others they do to it, at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from wavedsl.analysis.lanes import Frame, Threads, loop_counters
from wavedsl.analysis.pipes import pipe_of
from wavedsl.analysis.played import MOST_OPS, Played, comes_from_l2, of_launch, together
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Value
from wavedsl.ir.kernel.split_loops import per_wave
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target
from wavedsl.runtime.emulator.cycle_chips import SMS, SmModel
from wavedsl.runtime.emulator.cycle_queue import Launch, Timing
from wavedsl.runtime.emulator.ptx import warp_ops as w
from wavedsl.runtime.emulator.ptx.flow import Block, Flow
from wavedsl.runtime.emulator.ptx.trace import WarpTrace
from wavedsl.runtime.emulator.ptx.warp_replay import WarpReplay
from wavedsl.runtime.emulator.ptx.warp_state import Fork, marks_of

WARP = 32
FREE = frozenset(
    {"const", "vec", "slice", "buffer", "bitcast", "wave", "lane", "tid", "wgid", "wgcount", "undefined", "readfirst"}
    | {"matrix.tile", "elect", "cluster.rank"}
)
"""Ops that name registers, are folded into others, or are hoisted out of everything."""
ENDS = frozenset(
    {"barrier", "fence", "wave.barrier", "turn.take", "turn.give", "signal.wait", "registers", "cluster.barrier"}
)
"""Ops behind which a block of the text ends."""
_GLOBAL = frozenset(("load.global", "store.global", "load.far", "store.far", "copy.async"))
_GLOBAL |= {"atomic.global", "atomic.far"}
_SIGNALS = frozenset(
    ("signal.init", "signal.expect", "signal.arrive", "signal.arrive.at", "copy.bulk", "copy.bulk.store")
)
_BARRIERS = frozenset(("barrier", "fence", "wave.barrier", "turn.take", "turn.give"))
_SHARED = frozenset(("load.shared", "store.shared", "load.peer"))
_EVENTS = _GLOBAL | _SIGNALS | _BARRIERS | _SHARED | {"signal.wait"}
QUEUED = 5
"""Times as many instructions are replayed where workgroups have no long loop: how they take each other's places then
decides."""
LONG, SHORT = (10, 2), (5, 2)
"""Trips at the beginning and end of a loop that are replayed, in the longer and in the shorter replay."""


def _met_alone(kernel: Kernel) -> frozenset[str]:
    """Barriers to which one warp comes alone: its lanes go on together, so that nobody waits."""
    if kernel.wave_size > WARP:
        return frozenset(("warp.fence",))
    return frozenset(("wave.barrier", "warp.fence", *(("barrier", "fence") if kernel.waves == 1 else ())))


@dataclass
class _Item:
    """Part of a region: a stretch of blocks (its number, and its ops that have events), or a `for` or `if`."""

    block: int = -1
    events: Sequence[tuple[int, Op]] = ()
    control: Op | None = None


class _Program:
    """What the replay needs of a `WarpProgram`: blocks of IR ops. Blocks that always follow each other are scheduled
    one by one, but make one `stretch`, which to the replay is a block."""

    def __init__(self, kernel: Kernel, machine: Target, chip: SmModel):
        self.kernel, self.chip = kernel, chip
        self.atoms = {a.name: a for a in machine.mma_atoms}
        self.flow = Flow([], {})
        self.known: list[list[w.WarpOp]] = []
        self.sources: list[str] = []
        self.held: dict[int, tuple[int, ...]] = {}
        self.names: dict[int, list[w.WarpOp]] = {}
        """Blocks of `hand_over`, whole."""
        self.settled = 0
        """Stretches there were when `settle` was last asked."""
        self.items: dict[int, list[_Item]] = {}
        self.moved: dict[tuple[int, str], int] = {}
        self.number = 0

    @property
    def count(self) -> int:
        return len(self.sources)

    def ops(self, block: int) -> list[w.WarpOp]:
        return self.known[block]

    def classes(self, v: Value) -> tuple[int, ...]:
        """What a reader of a value waits for."""
        found = self.held.get(v.id)
        if found is None:
            op = v.op
            if op is not None and not op.regions and op.name in FREE:
                found = tuple(dict.fromkeys(c for a in op.args for c in self.classes(a)))
            else:
                found = (len(self.sources),)
                self.sources.append("dependence")
            self.held[v.id] = found
        return found

    def new(self, kind: int, port: str = "issue", latency: int = 4, busy: int = 1) -> w.WarpOp:
        op = w.WarpOp()
        op.index, op.kind, op.port, op.busy, op.latency = self.number, kind, port, busy, latency
        op.reads = op.writes = ()
        op.limit, op.bypass, op.near, op.memory, op.traffic = 0, False, False, "dependence", 0
        self.number += 1
        return op

    def stretch(self, ops: list[w.WarpOp]) -> int:
        """The number of what has just been made, in the order of issue."""
        self.known.append(ops)
        self.flow.blocks.append(Block(self.number - len(ops), self.number, []))
        return len(self.known) - 1

    def settle(self) -> None:
        """Leave out names of values that are always there, as sums of warpgroups are to who does not wait for them: of
        classes that no instruction writes, and no name of one that another writes."""
        if self.settled == len(self.known):
            return
        self.settled = len(self.known)
        written = {c for ops in self.known for op in ops if op.kind != w.NAME for c in op.writes}
        names = [n for block in self.names.values() for n in block]
        before = -1
        while before != len(written):
            before = len(written)
            for name in names:
                if not written.isdisjoint(name.reads):
                    written.update(name.writes)
        for block, named in self.names.items():
            self.known[block] = [n for n in named if not written.isdisjoint(n.writes)]

    def hand_over(self, op: Op, what: str, values: Sequence[Value], to: Sequence[Value]) -> int:
        """The block of names by which values go on under others."""
        key = id(op), what
        found = self.moved.get(key)
        if found is None:
            names = []
            for v, target in zip(values, to):
                name = self.new(w.NAME)
                name.reads, name.writes = self.classes(v), self.classes(target)
                if name.reads != name.writes:
                    names.append(name)
            # Names that others still read come last; what goes round in a ring is a clock or two off.
            read = {c for n in names for c in n.reads}
            names.sort(key=lambda n: n.writes[0] in read)
            found = self.moved[key] = self.stretch(names)
            self.names[found] = names
        return found

    def region(self, region: Region) -> list[_Item]:
        """The stretches and control ops of a region, in order."""
        found = self.items.get(id(region))
        if found is not None:
            return found
        found = self.items[id(region)] = []
        ops: list[w.WarpOp] = []
        done: list[w.WarpOp] = []
        events: list[tuple[int, Op]] = []

        def close(ends: bool) -> None:
            nonlocal ops
            done.extend(w.scheduled(ops, ends))
            ops = []

        def leave() -> None:
            nonlocal done, events
            close(False)
            if done:
                found.append(_Item(self.stretch(done), events))
            done, events = [], []

        alone = _met_alone(self.kernel)
        for op in region.ops:
            if op.regions:
                leave()
                found.append(_Item(control=op))
                continue
            if op.name in FREE or op.name == "yield":
                continue
            if op.name == "fence" and "scope" not in op.attrs:  # of a warp's own accesses, before it meets the others
                ops.append(self.new(w.FENCE, "lsu", 20))
            half = op.attrs.get("half") if op.name == "cluster.barrier" else None
            if op.name == "cluster.barrier" and half != "wait":
                ops.append(self.new(w.CLUSTER_ARRIVE))
            if half == "arrive":
                close(True)
                continue
            if op.name in alone:
                ops.append(self.new(w.PLAIN, "barrier", 20))
                continue
            made = self.made(op)
            if op.name in _EVENTS:
                events.append((made.index, op))
            ops.append(made)
            if op.name in ENDS or op.name.startswith("matrix."):
                close(True)
        leave()
        return found

    # ------------------------------------------------------------------------------------------------ single ops

    def made(self, op: Op) -> w.WarpOp:
        """The warp instruction that an op becomes."""
        name, chip = op.name, self.chip
        if name in ("mma", "mma.scaled"):
            atom = self.atom(op)
            made = self.new(w.PLAIN, "tensor", atom.latency, atom.cycles)
            made.memory = "matrix"
        elif name == "copy.async":
            made = self.new(w.COPY, "lsu")
            made.bypass = op.attrs["bytes"] == 16
        elif name == "load.peer":
            made = self.new(w.ACCESS, "lsu", chip.remote_latency)
            made.memory = w.NEIGHBOUR
        elif name in _GLOBAL or name in _SHARED:
            made = self.new(w.ACCESS, "lsu", chip.shared_latency if name.endswith("shared") else chip.hit_latency)
            made.memory = "shared" if name.endswith("shared") else "memory"
            made.bypass = not name.startswith("load")
            made.near = name == "load.global" and comes_from_l2(self.kernel, op)
        elif name in _WAITS:
            made = self.new(_WAITS[name])
            made.limit = self.limit(op)
        elif name == "matrix.start":
            atom = self.atom(op)
            made = self.new(w.PRODUCT, busy=atom.cycles)
            elements = atom.k * atom.n + (atom.m * atom.k if op.args[0].type.kind == "i64" else 0)
            made.traffic = elements * atom.a_dtype.bits // 32
            return made  # its sum is there when a wait says so
        elif name in _SIGNALS:
            made = self.new(w.BULK if name.startswith("copy") else w.SIGNAL, "lsu")
        elif name == "param":
            made = self.new(w.PLAIN, "uniform", chip.constant_latency)
        elif name.startswith("shuffle") or name == "any_lane":
            made = self.new(w.PLAIN, "lsu", chip.shared_latency)
        elif op.row.effects and not op.results:
            made = self.new(w.SIGNAL, "lsu", 20)
        else:
            port, busy = pipe_of(op, chip.pipes)
            made = self.new(w.PLAIN, port, (20 if port == "sfu" else 4) + busy - chip.pipes.get(port, 1), busy)
        made.reads = tuple(dict.fromkeys(c for a in op.args for c in self.classes(a)))
        made.writes = tuple(dict.fromkeys(c for r in op.results for c in self.classes(r)))
        if made.memory != "dependence":
            for c in made.writes:
                self.sources[c] = made.memory
        return made

    def atom(self, op: Op) -> Any:
        found = op.attrs["atom"]
        return self.atoms[found] if isinstance(found, str) else found

    def limit(self, op: Op) -> int:
        if op.name == "bulk.wait":
            return int(op.attrs["pending"]) << 1 | bool(op.attrs["reading"])
        return int(op.attrs.get("pending", op.name != "turn.give"))


_WAITS = {
    "copy.commit": w.COMMIT, "copy.wait": w.COPIES, "barrier": w.BARRIER, "fence": w.BARRIER, "wave.barrier": w.BARRIER,
    "turn.take": w.BARRIER, "turn.give": w.BARRIER, "cluster.barrier": w.CLUSTER_WAIT, "matrix.commit": w.CLOSE,
    "matrix.wait": w.PRODUCTS, "signal.wait": w.TEST, "bulk.commit": w.BULK_COMMIT, "bulk.wait": w.BULK_WAIT,
}  # fmt: skip
Happened = Sequence[tuple[Any, ...]]
Visit = dict[int, Happened]
_NOTHING: Visit = {}
"""The events of a block that has none: shared, and never changed."""


class _Events:
    """What the replay needs of `warp_events.Events`: visits belong to one warp here."""

    first = (0,)

    def of(self, visit: Visit, index: int, warp: int) -> Sequence[tuple[Any, ...]]:
        return visit.get(index, ())

    def rank(self, key: int, first: int) -> int:
        return 0


class Loop(NamedTuple):
    """A loop, and whether it stands in another one. `name` None: all such loops, where one wave copies for the others
    and takes their trips along."""

    name: Hashable
    inside: bool


class _Walk:
    """Goes through a kernel wave by wave and writes down what each warp runs: of long loops `LONG` trips, of the one
    that is `short` `SHORT`. `last`: with what one of several workgroups does, who comes last."""

    def __init__(self, program: _Program, threads: Threads, short: Loop | None = None, last: bool = True):
        self.program, self.threads, self.kernel = program, threads, program.kernel
        self.short, self.last = short, last
        self.depth, self.ending = 0, True
        self.each = self.kernel.wave_size // WARP
        self.warps = [WarpTrace(i) for i in range(self.kernel.waves * self.each)]
        self.how: dict[str, Callable[[Op, Frame, int], Happened]] = {
            **dict.fromkeys(_SHARED, self.on_shared),
            **dict.fromkeys(_GLOBAL, self.on_global),
            **dict.fromkeys(_BARRIERS, self.at_barrier),
            **dict.fromkeys((*_SIGNALS, "signal.wait"), self.signal),
            "copy.bulk.store": self.bulk_store,
        }
        """What gives the events of one op and warp, as `warp_events` has them, by the op's name."""
        self.asked: dict[tuple[int, int], int] = {}
        """(warp, mbarrier) → the phases that it last waited for."""
        self.played = 0
        """Warp instructions that are replayed."""
        self.left: dict[Loop, int] = {}
        """By loop the warp instructions of trips that it leaves out: of one in a loop those of the trips around it that
        are replayed, of another one with all trips of loops in it."""
        notes = self.kernel.notes.get("lowering")
        self.trips = {x.label: x.trips for x in (notes.loops if notes else ())}
        self.dims = {x.label: x.dim for x in (notes.loops if notes else ())}
        copying = bool(notes and notes.strategy and notes.strategy.specialize)
        self.computing = self.kernel.waves - copying
        self.copied: dict[str, list[int]] = {}
        """By dimension, in order: how many trips computing waves leave out of each loop over it. The copying one, which
        comes last, leaves out as many."""

    @property
    def whole(self) -> int:
        """Warp instructions with all trips of loops in loops."""
        return self.played + sum(count for loop, count in self.left.items() if loop.inside)

    @property
    def total(self) -> int:
        """Those with all trips."""
        return self.played + sum(self.left.values())

    @np.errstate(all="ignore")
    def run(self) -> None:
        varies = per_wave(self.kernel)
        loops = [op for op in self.kernel.body.walk() if op.name == "for"]
        apart = any(bound in varies for op in loops for bound in op.args[:2])
        frame = Frame(self.threads)
        for wave in range(self.kernel.waves):
            if apart:  # loops leave other values in each wave
                frame = Frame(self.threads)
            self.region(self.kernel.body, frame, wave, range(wave * self.each, (wave + 1) * self.each))
        self.program.settle()

    def region(self, region: Region, frame: Frame, wave: int, warps: range) -> None:
        blocks = self.program.flow.blocks
        for item in self.program.region(region):
            op = item.control
            if op is None:
                length = len(warps) * (blocks[item.block].end - blocks[item.block].start)
                self.played += length
                for warp in warps:
                    visit = _NOTHING if not item.events else self.visit(item.events, frame, warp)
                    self.warps[warp].visits.append((item.block, visit))  # type: ignore[arg-type]
            elif op.name == "for":
                self.loop(op, region, frame, wave, warps)
            else:
                self.branch(op, frame, wave, warps)

    def visit(self, events: Sequence[tuple[int, Op]], frame: Frame, warp: int) -> Visit:
        """The events of a block as one warp runs it."""
        how = self.how
        return {index: found for index, what in events if (found := how[what.name](what, frame, warp))}

    def names(self, op: Op, what: str, values: Sequence[Value], to: Sequence[Value], warps: range) -> None:
        if to:
            block = self.program.hand_over(op, what, values, to)
            for warp in warps:
                self.warps[warp].visits.append((block, _NOTHING))  # type: ignore[arg-type]

    def branch(self, op: Op, frame: Frame, wave: int, warps: range) -> None:
        condition = op.args[0]
        taken = frame.of_wave(condition, wave)
        if taken is None and op.attrs.get("one_of") and not (self.last and self.ending):
            taken = False
        region = op.regions[0] if taken is not False else op.regions[1] if len(op.regions) > 1 else None
        if region is None:
            return
        inside = range(warps.start, warps.start + 1) if taken is None and _elected(condition) else warps
        self.region(region, frame, wave, inside)
        if region.ops and region.ops[-1].name == "yield":
            self.names(op, f"if {taken}", region.ops[-1].args, op.results, warps)
        frame.chosen(op)

    def counters(self, op: Op, region: Region, frame: Frame, wave: int) -> tuple[Loop, list[int], int, int]:
        """The loop, its counter in the trips of a wave that are replayed, and behind how many of these how many are
        left out."""
        values = loop_counters(op, frame, self.trips, wave)
        label = op.attrs.get("label", "")
        copies = self.copied.get(label[5:]) if label.startswith("copy_") else None
        apart = self.computing == self.kernel.waves
        loop = Loop((label if label in self.dims else id(op)) if apart else None, self.depth > 0)
        if copies:
            left = copies.pop(0)
            begin, _ = self.kept(loop)
        elif wave < self.computing and label in self.dims and values.step == 1:
            begin, left = self.common(op, region, frame, *self.kept(loop))
            if op is self.parts(op, region)[-1] and not wave and self.computing < self.kernel.waves:
                self.copied.setdefault(self.dims[label], []).append(left)
            begin -= values.start
        else:
            begin, end = self.kept(loop)
            left = len(values) - begin - end if len(values) > sum(LONG) else 0
        if left <= 0 or not 0 < begin <= len(values) - left:
            return loop, list(values), 0, 0
        return loop, [*values[:begin], *values[begin + left :]], begin, left

    def kept(self, loop: Loop) -> tuple[int, int]:
        """Trips at the beginning and end of a loop that are replayed."""
        return SHORT if loop == self.short else LONG

    def common(self, op: Op, region: Region, frame: Frame, begin: int, end: int) -> tuple[int, int]:
        """From which trip on how many are left out of a loop that may be cut in parts (`split_loops`), and whose trips
        may be others in each wave: trips that no wave masks, as many in all."""
        parts = self.parts(op, region)
        whole = next((x for x in parts if x.attrs.get("part") == "whole"), op)
        waves = range(self.computing)
        unmasked = [loop_counters(whole, frame, self.trips, w) for w in waves]
        start = min(loop_counters(parts[0], frame, self.trips, w).start for w in waves)
        first = max(start + begin, *(x.start + 1 for x in unmasked))
        most = max(sum(len(loop_counters(x, frame, self.trips, w)) for x in parts) for w in waves)
        left = min(x.stop for x in unmasked) - end - first
        return first, left if most > sum(LONG) else 0

    @staticmethod
    def parts(op: Op, region: Region) -> list[Op]:
        """The parts of a cut loop, in order; of another one itself."""
        if "part" not in op.attrs:
            return [op]
        label = op.attrs.get("label")
        return [x for x in region.ops if x.name == "for" and "part" in x.attrs and x.attrs.get("label") == label]

    def loop(self, op: Op, region: Region, frame: Frame, wave: int, warps: range) -> None:
        body = op.regions[0]
        of, counters, begin, left = self.counters(op, region, frame, wave)
        carried = body.args[1:]
        self.names(op, "enter", op.args[3:], carried, warps)
        before: Frame | None = None
        self.depth += 1
        ending = self.ending
        for number, counter in enumerate(counters):
            self.ending = ending and number + 1 == len(counters)
            inner = frame.trip(op, number, counter, before)
            played, inside = self.played, dict(self.left)
            self.region(body, inner, wave, warps)
            if carried:
                self.names(op, "again", body.ops[-1].args, carried, warps)
            before = inner
            if left and number == begin - 1:
                self.leave_out(of, left, played, inside)
        self.depth, self.ending = self.depth - 1, ending
        frame.leave(op, before)
        self.names(op, "leave", carried, op.results, warps)

    def leave_out(self, loop: Loop, trips: int, played: int, inside: Mapping[Loop, int]) -> None:
        """Count trips like the last one, before which there was so much of everything."""
        new = {x: count - inside.get(x, 0) for x, count in self.left.items()}
        more = self.played - played
        if loop.inside:
            for x, count in new.items():
                self.left[x] += count * trips
        else:
            more += sum(new.values())
        self.left[loop] = self.left.get(loop, 0) + more * trips

    # ------------------------------------------------------------------------------------------------ events

    def on_shared(self, op: Op, frame: Frame, warp: int) -> Happened:
        return (("shared", frame.shared(op, warp)),)

    def on_global(self, op: Op, frame: Frame, warp: int) -> Happened:
        sectors = frame.lines(op, warp)
        if not sectors:
            return ()
        lines = tuple(dict.fromkeys(s >> 2 for s in sectors))
        found: tuple[Any, ...] = ("global", 32 * len(sectors), lines, len(sectors))
        if op.name == "copy.async":
            return found, ("shared", max(1, op.attrs["bytes"] * WARP // 128))
        return (found,)

    def at_barrier(self, op: Op, frame: Frame, warp: int) -> Happened:
        name, wave = op.name, warp // self.each
        if name == "wave.barrier":
            return (("barrier", WARP, 1 + wave, self.each),)
        if name in ("turn.take", "turn.give"):  # between waves 0 and 1
            return (("barrier", WARP, 128 + (wave if name == "turn.take" else 1 - wave), 2 * self.each),)
        threads = op.attrs.get("threads")
        return (("barrier", WARP, 64 + int(op.attrs.get("id", 0)), threads // WARP),) if threads else ()

    def bulk_store(self, op: Op, frame: Frame, warp: int) -> Happened:
        lanes = self.lanes(op.args[2], frame, warp)
        return (("store", lanes, lanes * self.box(op), 0),) if lanes else ()

    def signal(self, op: Op, frame: Frame, warp: int) -> Happened:
        """What happens to an mbarrier."""
        name, wave = op.name, warp // self.each
        key = frame.uniform(op.args[2 if name == "copy.bulk" else 0], wave)
        if key is None:
            return ()
        if name == "signal.wait":
            parity = frame.uniform(op.args[1], wave)
            phases = self.asked.get((warp, key), -1) + 1
            if parity is not None and phases % 2 == parity % 2:
                phases += 1
            self.asked[warp, key] = phases
            return (("test", 1, key, phases),)
        if name == "signal.init":
            return (("init", 1, key, op.attrs["count"]),)
        if name == "signal.expect":
            return (("arrive", 1, key, 1, op.attrs["bytes"]),)
        if name == "copy.bulk":
            return (("copy", 1, key, self.box(op) * op.attrs["receivers"], 0),)
        lanes = self.lanes(op.args[-1], frame, warp)
        return (("arrive", lanes, key, 1, 0, name == "signal.arrive.at"),) if lanes else ()

    def lanes(self, mask: Value, frame: Frame, warp: int) -> int:
        """Lanes of a warp whose mask is set; unknown: the first of the wave."""
        if mask.const is not None:
            return WARP if mask.const else 0
        found = frame.set_lanes(mask, WARP)
        return int(warp % self.each == 0) if found is None else found[warp]

    def box(self, op: Op) -> int:
        """Bytes of a tensor map's box."""
        source = op.args[0].op
        param = self.kernel.params[source.attrs["index"]] if source is not None and source.name == "param" else None
        return 0 if param is None or param.map is None else prod(param.map.box) * param.dtype.bits // 8


def _elected(v: Value) -> bool:
    """Whether a condition holds in one thread of a wave."""
    return v.op is not None and (v.op.name == "elect" or any(_elected(a) for a in v.op.args))


PRODUCTS_OF_MATRIX = frozenset(("matrix.start", "mma", "mma.scaled"))
"""Ops that keep tensor cores busy."""
SAME = 0.02
"""By what share a clock may be off the one that the power limit leaves before a kernel is replayed again."""


def sm_of(product: Product, clock: float | None = None) -> SmModel | None:
    """The table's chip with a product's SMs, memory and L2 while its SMs run at `clock` Hz (default: the product's);
    None for chips without an `SmModel`. L2 and memory have clocks of their own."""
    chip = SMS.get(product.target)
    if chip is None:
        return None
    clock = clock or product.clock
    return replace(
        chip, units=product.units, gigahertz=clock / 1e9, dram_rate=product.reached * product.hbm / clock,
        l2_rate=chip.l2_rate * product.clock / clock,
    )  # fmt: skip


def power_of_products(kernel: Kernel, product: Product) -> float:
    """What a clock of the tensor cores takes of the product's power limit in this kernel, as a share of what it is at
    `PowerLimit.full`; 0 where they have nothing to do."""
    atoms = [op.attrs["atom"] for op in kernel.body.walk() if op.name in PRODUCTS_OF_MATRIX]
    doubles = 1.0 if product.power is None else product.power.doubles
    return max((doubles if atom.a_dtype.bits == 64 else 1.0 for atom in atoms), default=0.0)


def at_own_clock(
    product: Product, power_of: float, used: float, played: Callable[[SmModel], Played]
) -> Played | None:  # fmt: skip
    """What `played` says of the chip at the clock that its power limit leaves this kernel, in clocks of `product`; None
    for chips without an `SmModel`. `power_of`: see `power_of_products`; `used`: share of the SMs that are at work, on
    average."""
    power = product.power
    chip = sm_of(product)
    if chip is None or power is None:
        return None if chip is None else played(chip)
    clock = power.clock(power_of)
    for last in (False, False, True):
        chip = sm_of(product, clock)
        assert chip is not None
        found = played(chip)
        left = power.clock(power_of * min(1.0, used * found.busy.get("tensor", 0.0) / max(1.0, found.clocks)))
        if last or abs(left / clock - 1) < SAME:
            break
        clock = left
    return found.scaled(product.clock / clock)


class Walks:
    """What the warps of a kernel run, whatever the chip's clock: each replay of it reads the same traces. `machine`
    describes what the kernel was compiled with, `chip` how long its instructions take. `group`: the workgroup that is
    replayed for all of them."""

    def __init__(
        self, kernel: Kernel, machine: Target, chip: SmModel, hidden: Mapping[int, int], grid: tuple[int, ...],
        group: tuple[int, ...] = (0, 0, 0),
    ):  # fmt: skip
        self.machine = machine
        self.program = _Program(kernel, machine, chip)
        self.threads = Threads(kernel, machine.name, 32, hidden, grid, group, lanes=WARP)
        self.known: dict[tuple[Loop | None, bool], _Walk] = {}
        self.marks: dict[Any, list[int]] = {}

    def walk(self, short: Loop | None = None, last: bool = True) -> _Walk:
        found = self.known.get((short, last))
        if found is None:
            found = self.known[short, last] = _Walk(self.program, self.threads, short, last)
            found.run()
        return found

    def fork(self, walk: _Walk, less: _Walk) -> Fork | None:
        """Where the replay of `walk` and that of `less` go different ways; None if they have nothing in common."""
        marks = self.marks.get((less.short, less.last))
        if marks is None:
            marks = marks_of(walk.warps, less.warps, self.program.ops)
            self.marks[less.short, less.last] = marks
        return Fork(less.warps, marks) if marks else None


def play_warps(walks: Walks, launch: Launch, chip: SmModel, shared_bytes: int, last: bool = True) -> Played:
    """The workgroups of the SM that has most of them, while others load the chip as `launch` says. `chip` may have
    other rates of L2 and memory than that of `walks`, but no other latencies."""
    walk = walks.walk(last=last)
    whole = launch.groups * walk.played <= MOST_OPS
    if walk.total == walk.played and (2 * launch.resident + 1) * walk.played <= QUEUED * MOST_OPS:
        whole = True  # they take each other's places, and what is not replayed goes on at their rate
    groups = launch.groups if whole else together(launch, walk.played)
    resident = min(groups, launch.resident) if whole else groups
    taken = resident * -(-shared_bytes // chip.line)
    here = Launch(groups, resident, launch.memory_share, launch.used_units)

    shorter = {loop: walks.walk(loop, last) for loop, count in walk.left.items() if count}

    def new() -> WarpReplay:
        lines = max(64, chip.l1_lines - taken)
        replay = WarpReplay(walks.program, _Events(), chip, here, 1, lines)  # type: ignore[arg-type]
        replay.explains = False
        return replay

    replay = new()
    forks = {less.short: fork for less in shorter.values() if (fork := walks.fork(walk, less))}
    replay.forks = list(forks.values())

    def replayed(less: _Walk) -> _Clocks:
        """The replay of fewer trips: what it has in common with that of more has been."""
        fork = forks.get(less.short)
        mine = fork.replay if fork is not None else None
        return _Clocks.of((mine or new()).run([less.warps], MOST_OPS))

    def with_inner(clocks: _Clocks, of: _Walk) -> _Clocks:
        """`clocks` and those of the trips that loops in loops leave out."""
        for loop, one in each.items():
            clocks = clocks.plus(one, of.left.get(loop, 0))
        return clocks

    played = _Clocks.of(replay.run([walk.warps], MOST_OPS))
    each: dict[Loop, _Clocks] = {}
    """By loop in a loop: of an instruction of the trips that it leaves out."""
    for loop, less in shorter.items():
        if loop.inside and walk.played > less.played:
            each[loop] = played.beyond(replayed(less), 1 / (walk.played - less.played))
    found = full = with_inner(played, walk)
    for loop, less in shorter.items():
        if not loop.inside and walk.whole > less.whole:
            fewer = with_inner(replayed(less), less)
            found = found.plus(full.beyond(fewer, 1 / (walk.whole - less.whole)), walk.left[loop])
    return of_launch(Played(found.clocks, found.busy), groups, launch)


@dataclass
class _Clocks:
    """Clocks of a replay, and how many of them each unit is busy."""

    clocks: float
    busy: dict[str, float]

    @staticmethod
    def of(timing: Timing) -> _Clocks:
        return _Clocks(float(timing.cycles), {u: x * timing.cycles for u, x in timing.utilisation.items()})

    def beyond(self, less: _Clocks, scale: float) -> _Clocks:
        """`scale` times how much more this is than `less`."""
        busy = {u: max(0.0, x - less.busy.get(u, 0.0)) * scale for u, x in self.busy.items()}
        return _Clocks(max(0.0, self.clocks - less.clocks) * scale, busy)

    def plus(self, each: _Clocks, times: float) -> _Clocks:
        busy = {u: x + each.busy.get(u, 0.0) * times for u, x in self.busy.items()}
        return _Clocks(self.clocks + each.clocks * times, busy)
