"""A kernel's IR as the instructions of warps, for the warp replay.

In: the kernel, the target it was compiled for, how long the chip's instructions take. Out: a `Program`. Stretches of
the IR without control flow become blocks, in the order in which the list schedule of emitted text would issue them;
values become the classes that an instruction waits for. What the IR does not show is left out: instructions that the
back end adds or folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wavedsl.analysis.pipes import pipe_of
from wavedsl.analysis.played import comes_from_l2
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region, Value
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target
from wavedsl.runtime.emulator.cycle_chips import SmModel
from wavedsl.runtime.emulator.ptx import warp_ops as w
from wavedsl.runtime.emulator.ptx.flow import Block, Flow

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
GLOBAL = frozenset(("load.global", "store.global", "load.far", "store.far", "copy.async"))
GLOBAL |= {"atomic.global", "atomic.far"}
SIGNALS = frozenset(
    (
        "signal.init", "signal.expect", "signal.arrive", "signal.arrive.at", "signal.copied", "copy.bulk",
        "copy.bulk.store",
    )
)
BARRIERS = frozenset(("barrier", "fence", "wave.barrier", "turn.take", "turn.give"))
SHARED = frozenset(("load.shared", "store.shared", "atomic.shared", "load.peer"))
EVENTS = GLOBAL | SIGNALS | BARRIERS | SHARED | {"signal.wait"}


def _met_alone(kernel: Kernel) -> frozenset[str]:
    """Barriers to which one warp comes alone: its lanes go on together, so that nobody waits."""
    if kernel.wave_size > WARP:
        return frozenset(("warp.fence",))
    return frozenset(("wave.barrier", "warp.fence", *(("barrier", "fence") if kernel.waves == 1 else ())))


@dataclass
class Item:
    """Part of a region: a stretch of blocks (its number, and its ops that have events), or a `for` or `if`."""

    block: int = -1
    events: Sequence[tuple[int, Op]] = ()
    control: Op | None = None


class Program:
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
        self.items: dict[int, list[Item]] = {}
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
        op.stores = False
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

    def region(self, region: Region) -> list[Item]:
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
                found.append(Item(self.stretch(done), events))
            done, events = [], []

        alone = _met_alone(self.kernel)
        for op in region.ops:
            if op.regions:
                leave()
                found.append(Item(control=op))
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
            if op.name in EVENTS:
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
            made.bypass = op.attrs["bytes"] == 16 and not op.attrs.get("near")
        elif name == "load.peer":
            made = self.new(w.ACCESS, "lsu", chip.remote_latency)
            made.memory = w.NEIGHBOUR
        elif name in GLOBAL or name in SHARED:
            made = self.new(w.ACCESS, "lsu", chip.shared_latency if name.endswith("shared") else chip.hit_latency)
            made.memory = "shared" if name.endswith("shared") else "memory"
            made.bypass = not name.startswith("load")
            made.stores = name.startswith("store")
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
        elif name in SIGNALS:
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
