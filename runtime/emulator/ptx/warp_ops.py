"""PTX instructions as the warp replay sees them, in the order in which an assembler may issue them.

In: a function, its rows, effects and blocks, a chip. Out: `WarpProgram`, which gives a block's `WarpOp`s and estimates
the registers of a thread.

PTX is virtual: ptxas chooses order and registers. Two assumptions stand for it. Within a basic block instructions are
list-scheduled: of the next `WINDOW` in the text, the one whose operands and pipe are there first goes first, ties in
order of the text; instructions that touch memory or synchronise keep their order among themselves, and a wait stays
behind all that is in front of it. And moves between
registers, packing and unpacking cost nothing, as register allocation makes most of them names.

Registers that the same instructions write are ready at the same time, so they share one *class*, which is what is
tracked.
"""

from __future__ import annotations

from collections.abc import Sequence

from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.isa import TYPE_BITS, Unit
from wavedsl.runtime.emulator.cycle_chips import SmModel
from wavedsl.runtime.emulator.ptx.flow import Flow, is_terminator
from wavedsl.runtime.emulator.ptx.module import Function, Imm, Inst, Reg, RegUse, Vector

WINDOW = 64
"""Instructions of the text among which the list schedule chooses. ptxas looks at whole blocks, but holds registers
down; our own text is in a good order already."""
PLAIN, PRODUCT, ACCESS, CLOSE, COPY, COMMIT, BULK_COMMIT = range(7)
"""Kinds that wait for registers, pipes and queues alone, and wake nobody."""
SIGNAL, BULK, BRANCH, BARRIER, CLUSTER_ARRIVE = range(7, 12)
"""Kinds that may wake others, and branches."""
PRODUCTS, COPIES, BULK_WAIT, FENCE, TEST, CLUSTER_WAIT = range(12, 18)
"""Kinds that wait for more, the first four for what their own warp has begun."""
NAME = 18
"""Another name for registers, no instruction."""
ORDERED = frozenset(range(NAME)) - {PLAIN}
"""Kinds that keep the order of the text among themselves."""
WAITS = frozenset((COPIES, TEST, BULK_WAIT, PRODUCTS, BARRIER, CLUSTER_WAIT, FENCE))
"""Kinds that nothing in front of them in the text comes behind: nobody puts a wait ahead of work."""
PORTS = ("issue", *(unit.value for unit in Unit))
"""Pipes that instructions name."""


NEIGHBOUR = "neighbour"
"""`WarpOp.memory` of accesses to the shared memory of another SM of the cluster."""


class WarpOp:
    """A static instruction."""

    __slots__ = (
        "busy", "bypass", "index", "kind", "latency", "limit", "memory", "near", "port", "reads", "stores", "traffic",
        "writes",
    )  # fmt: skip
    index: int
    kind: int
    port: str
    """Pipe of the sub-core, or of the SM for `lsu`."""
    busy: int
    """Clocks that the pipe is taken."""
    latency: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    """Classes of registers."""
    limit: int
    """Groups that a wait leaves; whether a barrier waits, a bulk wait is for sources only."""
    bypass: bool
    """Whether L1 is passed by."""
    stores: bool
    """Whether memory is stored to."""
    near: bool
    """Whether what is loaded was written shortly before, and comes from L2."""
    memory: str
    """What waits for the result are called."""
    traffic: int
    """Bytes that a warp's part of a warpgroup's product reads from shared memory."""


def stores(row: isa.Inst | None) -> bool:
    """Whether an instruction stores to memory, and does no more there."""
    return row is not None and "store" in row.effects and "atomic" not in row.effects


class WarpProgram:
    """The blocks of one function for one chip."""

    def __init__(
        self, function: Function, flow: Flow, rows: Sequence[isa.Inst | None],
        effects: Sequence[tuple[list[Reg], list[Reg]]], chip: SmModel,
    ):  # fmt: skip
        self.function, self.flow, self.rows, self.effects, self.chip = function, flow, rows, effects, chip
        writers: dict[int, list[int]] = {}
        for i, (defs, _) in enumerate(effects):
            for r in defs:
                writers.setdefault(r.index, []).append(i)
        numbers: dict[tuple[int, ...], int] = {}
        self.classes = {r: numbers.setdefault(tuple(w), len(numbers)) for r, w in writers.items()}
        self.count = len(numbers)
        self.sources = ["dependence"] * self.count
        """What a wait for a class is called."""
        self.known: dict[int, list[WarpOp]] = {}

    def ops(self, block: int) -> list[WarpOp]:
        """A block's instructions in the order of issue."""
        found = self.known.get(block)
        if found is None:
            b = self.flow.blocks[block]
            found = self.known[block] = scheduled([self._op(i) for i in range(b.start, b.end)], self._ends(b.end - 1))
        return found

    def _ends(self, last: int) -> bool:
        return is_terminator(self.function.insts[last].name)

    def _classes(self, registers: list[Reg]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.classes[r.index] for r in registers if r.index in self.classes))

    def _op(self, i: int) -> WarpOp:
        inst, row, (defs, uses) = self.function.insts[i], self.rows[i], self.effects[i]
        op = WarpOp()
        op.index, op.kind, op.port, op.busy, op.latency = i, PLAIN, "alu", 1, 4
        op.reads, op.writes = self._classes(uses), self._classes(defs)
        op.limit, op.bypass, op.near, op.memory, op.traffic = 0, False, False, "dependence", 0
        op.stores = stores(row)
        if row is None:
            return op
        op.port = {Unit.IMAD: "fma"}.get(row.unit, row.unit.value)
        op.busy = max(row.interval, self.chip.pipes.get(row.unit.value, 1))
        op.latency = row.latency
        self._kind(op, inst, row)
        for c in op.writes:
            if op.memory != "dependence":
                self.sources[c] = op.memory
        return op

    def _kind(self, op: WarpOp, inst: Inst, row: isa.Inst) -> None:
        effects = row.effects
        first = inst.args[0].value if inst.args and isinstance(inst.args[0], Imm) else 0
        if "wgmma" in effects:
            op.reads = op.writes = ()  # the accumulators are ready when a wait says so
            op.kind, op.limit, op.port, op.busy = PRODUCTS, first, "issue", 1
            if "multiply" in effects:
                what = row.row.data.what(row.mods)
                op.kind, op.busy = PRODUCT, row.interval
                from_shared = 0 if isinstance(inst.args[1], Vector) else what.m * what.k
                op.traffic = (from_shared + what.n * what.k) * what.a_dtype.bits // 32
            elif "commit" in effects:
                op.kind = CLOSE
            elif "fence" in effects:
                op.kind = PLAIN
        elif "move" in effects and (
            isinstance(inst.args[0], Vector) or isinstance(inst.args[-1], Vector | RegUse)
        ) and inst.guard is None:  # fmt: skip
            op.kind = NAME
        elif "matrix" in effects or "wmma" in effects:
            if effects & {"load", "store"}:
                op.kind, op.memory, op.port, op.busy = ACCESS, "shared", "lsu", 1
            else:
                op.memory = "matrix"
        elif "bulk" in effects:
            op.port, op.busy = "lsu", 1
            op.kind = BULK_COMMIT if "commit" in effects else BULK_WAIT if "wait" in effects else BULK
            op.limit = first << 1 | ("read" in inst.name.split("."))
        elif "mbarrier" in effects:
            op.kind, op.port, op.busy = TEST if "test" in effects else SIGNAL, "lsu", 1
        elif "async" in effects:
            op.kind, op.port, op.busy, op.bypass = COPY, "lsu", 1, row.mods.get("cop") == "cg"
        elif "commit" in effects:
            op.kind, op.port = COMMIT, "issue"
        elif "wait" in effects:
            op.kind, op.port, op.limit = COPIES, "issue", first
        elif "cluster" in effects:
            op.kind, op.port = CLUSTER_WAIT if "sync" in effects else CLUSTER_ARRIVE, "issue"
        elif "barrier" in effects:
            op.kind, op.port, op.limit = BARRIER, "issue", int("sync" in effects)
        elif effects & {"load", "store", "atomic"}:
            self._access(op, row)
        elif effects & {"branch", "exit"}:
            op.kind, op.port, op.busy = BRANCH, "issue", 1
        elif "fence" in effects:
            op.kind = FENCE if row.mods.get("scope", "cta") != "cta" and "initialised" not in effects else SIGNAL

    def _access(self, op: WarpOp, row: isa.Inst) -> None:
        space = row.mods.get("space", "generic").split("::")[0]
        op.busy = 1
        if space in ("param", "const"):
            op.port, op.latency = "uniform", self.chip.constant_latency
            return
        op.kind, op.port = ACCESS, "lsu"
        op.memory = "shared" if space == "shared" else "memory"
        if row.mods.get("space") == "shared::cluster":
            op.memory = NEIGHBOUR
        op.bypass = row.mods.get("cop") in ("cg", "cv") or bool(row.effects & {"atomic", "store"})


def registers(
    f: Function, flow: Flow, rows: Sequence[isa.Inst | None], effects: Sequence[tuple[list[Reg], list[Reg]]], most: int
) -> int:
    """32-bit registers of a thread: the most that are live at once, and a few for addresses that ptxas keeps; no more
    than `most`. Where warpgroups hand registers to each other they start with all of `most`."""
    if most and any(row is not None and "registers" in row.effects for row in rows):
        return most
    blocks = flow.blocks
    # What a warpgroup's product writes it has read as well.
    adds = [row is not None and "multiply" in row.effects for row in rows]
    effects = [([], [*d, *u]) if both else (d, u) for both, (d, u) in zip(adds, effects)]
    types = {r.index: r.type for defs, uses in effects for r in (*defs, *uses)}
    wide = {i: max(1, TYPE_BITS[t] // 32) for i, t in types.items() if t != "pred"}
    alive = [0] * len(blocks)
    high = 0
    changed = True
    while changed:
        changed, high = False, 0
        for b in range(len(blocks) - 1, -1, -1):
            live = 0
            for s in blocks[b].successors:
                live |= alive[s]
            for i in range(blocks[b].end - 1, blocks[b].start - 1, -1):
                defs, uses = effects[i]
                if f.insts[i].guard is None:
                    for r in defs:
                        live &= ~(1 << r.index)
                before = live
                for r in uses:
                    live |= 1 << r.index
                if live != before and live.bit_count() > high:
                    high = max(high, sum(n for r, n in wide.items() if live >> r & 1))
            if live != alive[b]:
                alive[b], changed = live, True
    return min(most or 255, 255, high + 16)


def scheduled(ops: list[WarpOp], ends: bool) -> list[WarpOp]:
    """A list schedule of a block. `ends`: whether its last instruction must stay there."""
    body, tail = (ops[:-1], ops[-1:]) if ends else (ops, [])
    n = len(body)
    after: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    missing = [0] * n
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    ordered, waited = -1, 0
    for i, op in enumerate(body):
        before: dict[int, int] = {}
        for c in op.reads:
            if c in writer:
                w = writer[c]
                before[w] = max(before.get(w, 0), body[w].latency if body[w].kind != NAME else 0)
        for c in op.writes:
            for r in readers.pop(c, ()):
                before.setdefault(r, 0)
            if c in writer:
                before.setdefault(writer[c], 0)
        if op.kind in ORDERED:
            if ordered >= 0:
                before.setdefault(ordered, 1)
            ordered = i
        if op.kind in WAITS:
            for j in range(waited, i):
                before.setdefault(j, 0)
            waited = i
        for c in op.reads:
            readers.setdefault(c, []).append(i)
        for c in op.writes:
            writer[c] = i
        before.pop(i, None)
        for j, latency in before.items():
            after[j].append((i, latency))
        missing[i] = len(before)
    start = [0] * n
    ready = [i for i in range(n) if not missing[i]]
    free: dict[str, int] = {}
    done = [False] * n
    out: list[WarpOp] = []
    oldest = clock = 0
    while len(out) < n:
        while done[oldest]:
            oldest += 1
        best = when = -1
        for i in ready:
            if i >= oldest + WINDOW:
                continue
            t = max(clock, start[i], free.get(body[i].port, 0))
            if best < 0 or t < when or (t == when and i < best):
                best, when = i, t
        op = body[best]
        ready.remove(best)
        done[best] = True
        out.append(op)
        if op.kind != NAME:
            clock = when + 1
            free[op.port] = when + op.busy
        for i, latency in after[best]:
            start[i] = max(start[i], when + latency)
            missing[i] -= 1
            if not missing[i]:
                ready.append(i)
    return out + tail
