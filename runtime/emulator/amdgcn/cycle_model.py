"""Replays traces of waves on a model of one compute unit: clocks, busy shares of the units, and what waves waited for.

In: the program, `WaveTrace`s of a few workgroups, how many share a compute unit, the chip's rates. Out: `Timing`.

The model is a discrete-event simulation, one event per issued instruction:

* A compute unit has four SIMDs. Each may issue once in four clocks, at most one instruction per wave and one per port
  (vector and matrix, scalar, LDS, vector memory, branch), from the highest priority, then oldest wave that is ready.
* A wave issues in order. It is held by `s_waitcnt`, barriers, `s_nop`, taken branches, and by registers whose writer
  has not finished (rows' latencies); loads have no interlock, as on the chip: their waits are in the text.
* A matrix instruction takes one turn of the vector port and keeps the SIMD's matrix unit busy for its passes; one that
  accumulates into exactly the registers of another may follow when the unit is free.
* LDS and the vector memory pipe serve the four SIMDs in order of issue; an LDS access takes the clocks that its
  addresses need (bank conflicts included), a memory access one clock per cache line or per 64 bytes.
* Lines that the vector L1 does not hold come over a link that is as fast as the slowest of: L1's fill path, this unit's
  share of L2, this unit's share of memory for the part of the traffic that must come from there.

Caches below L1 have no state: `Launch.memory_share` says what part of the lines that a workgroup asks for the first
time misses L2, and such a miss has the mean of both latencies; lines that it has asked for before come from L2.
Instruction fetch, address translation, power and clock changes are not modelled.
docs/cycle-model.md lists every assumption with its source.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from wavedsl.codegen.amdgcn.isa import Inst, Reg, Src, Unit
from wavedsl.codegen.amdgcn.mfma import with_formats
from wavedsl.runtime.emulator.amdgcn.text import Line, Program
from wavedsl.runtime.emulator.amdgcn.trace import WaveTrace
from wavedsl.runtime.emulator.cycle_chips import SIMDS, ChipModel
from wavedsl.runtime.emulator.cycle_queue import Launch, LineCache, Queue, Timing
from wavedsl.runtime.emulator.timeline import Timeline

TURN = 4
"""Clocks between two turns of a SIMD."""
VECTOR, SCALAR, LDS, MEMORY, BRANCH, MATRIX, FREE = range(7)
"""Ports of a SIMD; MATRIX is its matrix unit, FREE what never blocks."""
PLAIN, WAIT, DS, VMEM, SMEM, BARRIER, END, SLEEP, PRIORITY, JUMP = range(10)
_PORT = {
    Unit.VALU: VECTOR, Unit.TRANS: VECTOR, Unit.ACCMOVE: VECTOR, Unit.MFMA: VECTOR, Unit.SALU: SCALAR,
    Unit.SMEM: SCALAR, Unit.VMEM: MEMORY, Unit.SCRATCH: MEMORY, Unit.DS: LDS, Unit.WAITCNT: FREE, Unit.NOP: FREE,
    Unit.BARRIER: FREE, Unit.BRANCH: BRANCH,
}  # fmt: skip
_NAMES = {VECTOR: "valu", SCALAR: "salu", BRANCH: "branch"}
COUNTER_LIMITS = {"vmcnt": 63, "lgkmcnt": 15}


class _Op:
    """A static instruction as the clock sees it."""

    __slots__ = (
        "addend", "arrival", "atomic", "busy", "events", "holds", "index", "kind", "latency", "limit", "pipe", "port",
        "reads", "second", "slow", "waits", "writes",
    )  # fmt: skip
    index: int
    kind: int
    port: int
    second: int
    """Another port that must be free: the matrix unit."""
    busy: int
    """Clocks that the port is taken."""
    holds: int
    """Clocks until the wave's next instruction."""
    latency: int
    """Clocks until the result; the new priority of a wave; see the row."""
    slow: bool
    """Whether readers of the result may have to wait."""
    pipe: int
    """Clocks of the matrix unit, or of LDS where no addresses were recorded."""
    arrival: int
    """Clocks of LDS when data arrive that were copied straight there."""
    events: int
    """Entries of the trace that belong to it."""
    waits: tuple[int | None, int | None] | None
    """vmcnt and lgkmcnt of a wait."""
    limit: str
    """The counter that it counts on."""
    atomic: bool
    """Whether it changes memory, which L2 does whatever L1 holds."""
    reads: int
    writes: int
    addend: int


def _bits(value: Any) -> int:
    if isinstance(value, Src):
        value = value.value
    return ((1 << value.count) - 1) << value.code if isinstance(value, Reg) else 0


def _op(line: Line, index: int, chip: ChipModel, target: str) -> _Op:
    """An instruction of the text as the model replays it."""
    inst = line.inst
    assert inst is not None
    op = _Op()
    op.index = index
    op.port, op.second = _PORT[inst.unit], FREE
    op.busy = op.holds = TURN
    op.latency = inst.latency
    op.kind, op.events, op.pipe, op.waits, op.limit = PLAIN, 0, 0, None, ""
    op.atomic = False
    op.addend = op.arrival = op.reads = op.writes = 0
    for o, value in zip(inst.explicit, line.operands):
        bits = _bits(value)
        if inst.unit is Unit.MFMA and (o.name == "c" or (o.writes and o.reads)):
            op.addend = bits
        elif o.reads:
            op.reads |= bits
        if o.writes:
            op.writes |= bits
    op.slow = inst.latency > TURN
    _kind(op, inst, line, chip, target)
    return op


def _kind(op: _Op, inst: Inst, line: Line, chip: ChipModel, target: str) -> None:
    """What an instruction does to the clock, by its row's special meaning or unit."""
    special, unit = inst.special, inst.unit
    if special == "waitcnt":
        values = line.modifiers
        op.kind, op.waits = WAIT, (values.get("vmcnt"), values.get("lgkmcnt"))
    elif special == "nop":
        op.holds = TURN * (1 + int(line.operands[0]))
    elif special == "barrier":
        op.kind = BARRIER
    elif special == "endpgm":
        op.kind = END
    elif unit is Unit.BRANCH:
        op.kind = JUMP
    elif inst.extra == "sleep":
        op.kind, op.holds = SLEEP, max(TURN, 64 * int(line.operands[0]))
    elif inst.extra == "priority":
        op.kind, op.latency = PRIORITY, int(line.operands[0])
    elif unit is Unit.MFMA:
        _matrix(op, inst, line, target)
    elif unit in (Unit.VALU, Unit.TRANS, Unit.ACCMOVE):
        op.busy = inst.issue
    elif unit is Unit.DS:
        op.kind, op.pipe, op.limit, op.slow = DS, inst.issue, "lgkmcnt", False
        if special in ("ds", "ds_transpose"):
            op.events = inst.mem.pieces if inst.mem is not None else 1
    elif unit in (Unit.VMEM, Unit.SCRATCH):
        op.kind, op.limit, op.slow = VMEM, "vmcnt", False
        op.events = int(special in ("vmem", "vmem_lds"))
        op.atomic = inst.mem is not None and inst.mem.op == "atomic"
        op.pipe = inst.issue
        if inst.mem is not None and inst.mem.op == "dma":
            op.arrival = max(2, 64 * max(4, inst.mem.bytes) // 128)  # clocks of LDS for what arrives
    elif unit is Unit.SMEM:
        op.kind, op.latency, op.limit, op.slow = SMEM, chip.scalar_latency, "lgkmcnt", False


def _matrix(op: _Op, inst: Inst, line: Line, target: str) -> None:
    """Passes by operand formats; f32 and f64 inputs leave the vector port no turn (AMD's matrix calculator)."""
    row = inst.extra
    if row.formats:
        row = with_formats(row, int(line.modifiers.get("cbsz", 0)), int(line.modifiers.get("blgp", 0)))
    clocks = row.cycles(target)
    op.second, op.pipe, op.latency = MATRIX, clocks, clocks + 16
    op.slow = True
    if row.kind != "xdl":
        op.busy = clocks


class _Wave:
    __slots__ = (
        "age", "at", "block", "blocks", "event", "events", "free", "group", "lgkm", "next", "op", "ops", "pending",
        "priority", "rank", "reason", "shift", "simd", "vm",
    )  # fmt: skip

    def __init__(self, trace: WaveTrace, group: _Group, simd: int, at: int, age: int, shift: int):
        self.shift = shift
        """Added to cache lines: a workgroup that stands for others touches lines of its own."""
        self.blocks, self.events = trace.blocks, trace.events
        self.group, self.simd, self.at, self.age = group, simd, at, age
        self.block = self.event = self.next = 0
        self.ops: Sequence[_Op] = ()
        self.op: _Op | None = None
        self.priority = 0
        self.rank = age
        self.free = at
        self.reason = ""
        self.vm: list[int] = []
        """When each vector memory operation in flight completes, in order of issue."""
        self.lgkm: list[tuple[int, bool]] = []
        """The same for LDS and scalar loads (marked)."""
        self.pending: list[tuple[int, int, bool]] = []
        """(registers, ready, matrix) of slow writers."""


class _Group:
    __slots__ = ("arrived", "ended", "latest", "slot", "touched", "waves")

    def __init__(self, slot: int):
        self.slot = slot
        self.waves: list[_Wave] = []
        self.arrived: list[_Wave] = []
        self.ended = 0
        self.latest = 0
        self.touched = LineCache()
        """What the workgroup has asked for: memory's part of that it has had."""


class Replay(Queue):
    """One compute unit at work on a queue of workgroups."""

    turn = TURN

    def __init__(self, program: Program, spans: Mapping[int, int], target: str, chip: ChipModel, launch: Launch):
        self.program, self.spans, self.target, self.chip, self.launch = program, spans, target, chip, launch
        self.decoded: dict[int, list[_Op]] = {}
        self.port_free = [[0] * 7 for _ in range(SIMDS)]
        self.lds_free = self.memory_free = 0
        self.link_free = self.far_free = 0.0
        self.lds_queue: deque[int] = deque(maxlen=chip.queue)
        self.memory_queue: deque[int] = deque(maxlen=chip.queue)
        self.cache = LineCache(chip.l1_lines)
        self.busy: dict[str, float] = {"mfma": 0, "valu": 0, "salu": 0, "branch": 0, "lds": 0, "vmem": 0, "memory": 0}
        self.stalls: dict[str, int] = {}
        self.lines: dict[int, int] = {}
        self.issued: dict[int, int] = {}
        self.matrix_first = self.matrix_last = -1
        self.timeline: Timeline | None = None
        self.waves: list[_Wave] = []
        self.count = self.last = 0
        used = launch.used_units or chip.units
        share = launch.memory_share
        self.line_clocks = chip.line / min(chip.l1_rate, chip.l2_rate / used)
        self.memory_clocks = chip.line * share * used / chip.dram_rate
        """Clocks of a line on the way from L2, and of memory's part of it."""
        self.miss_latency = chip.hit_latency + share * (chip.memory_latency - chip.hit_latency)

    def _decode(self, first: int) -> list[_Op]:
        found = self.decoded.get(first)
        if found is None:
            lines = self.program.lines
            found = self.decoded[first] = [
                _op(lines[i], i, self.chip, self.target)
                for i in range(first, self.spans[first] + 1)
                if lines[i].inst is not None
            ]
        return found

    # ---- workgroups come and go

    def _start(self, recorded: Sequence[Sequence[WaveTrace]], number: int, slot: int, at: int) -> None:
        again, which = divmod(number, len(recorded))
        traces = recorded[which]
        group = _Group(slot)
        load = [0] * SIMDS
        for w in self.waves:
            load[w.simd] += 1
        for trace in traces:
            simd = min(range(SIMDS), key=lambda s: load[s])
            load[simd] += 1
            wave = _Wave(trace, group, simd, at + (simd - at) % TURN, self.count, again << 48)
            if self.timeline is not None:
                self.timeline.begin(self.count, number, f"wave {len(group.waves)}", wave.at)
            self.count += 1
            group.waves.append(wave)
            if self._fetch(wave):
                self.waves.append(wave)
            else:
                group.ended += 1

    def _length(self, number: int, group: Sequence[WaveTrace]) -> int:
        return sum(self.spans[b] - b + 1 for w in group for b in w.blocks)

    # ---- one instruction

    def _step(self) -> tuple[int, _Group | None]:
        """Issue the instruction that can go first. Returns its clock, and the workgroup that it ended, if any."""
        ports = self.port_free
        best: _Wave | None = None
        when = 0
        for w in self.waves:
            free = ports[w.simd]
            op = w.op
            t = w.at
            if free[op.port] > t:  # type: ignore[union-attr]
                t = free[op.port]  # type: ignore[union-attr]
            if free[op.second] > t:  # type: ignore[union-attr]
                t = free[op.second]  # type: ignore[union-attr]
            if best is None or t < when or (t == when and w.rank < best.rank):
                best, when = w, t
        assert best is not None
        return when, self._issue(best, when)

    def _issue(self, w: _Wave, t: int) -> _Group | None:
        op = w.op
        assert op is not None
        waited = t - w.free
        if waited > 0:
            reason = w.reason if w.at > w.free else "port"
            if w.at > w.free and t > w.at:
                self.stalls["port"] = self.stalls.get("port", 0) + t - w.at
                self.stalls[reason] = self.stalls.get(reason, 0) + w.at - w.free
            else:
                self.stalls[reason] = self.stalls.get(reason, 0) + waited
            self.lines[op.index] = self.lines.get(op.index, 0) + waited
            if self.timeline is not None:
                self.timeline.wait(w.age, w.free, t, reason, op.index)
        self.issued[op.index] = self.issued.get(op.index, 0) + 1
        free = self.port_free[w.simd]
        kind = op.kind
        if op.port != FREE:
            free[op.port] = t + op.busy
            name = _NAMES.get(op.port)
            if name is not None and op.second != MATRIX:
                self.busy[name] += op.busy
        if op.second == MATRIX:
            free[MATRIX] = t + op.pipe
            self.busy["mfma"] += op.pipe
            if self.matrix_first < 0:
                self.matrix_first = t
            self.matrix_last = max(self.matrix_last, t + op.pipe)
            self.last = max(self.last, t + op.pipe)
            if self.timeline is not None:
                self.timeline.work(f"matrix unit of SIMD {w.simd}", w.age, t, t + op.pipe, op.index)
        if op.slow:
            w.pending.append((op.writes, t + op.latency, op.second == MATRIX))
        w.free = t + op.holds
        if kind == DS:
            self._lds(w, op, t)
        elif kind == VMEM:
            self._memory(w, op, t)
        elif kind == SMEM:
            w.lgkm.append((t + op.latency, True))
        elif kind == JUMP:
            if w.block < len(w.blocks) and w.blocks[w.block] != op.index + 1:
                w.free = t + self.chip.taken_branch
        elif kind == PRIORITY:
            w.priority = op.latency
            w.rank = w.age - (op.latency << 40)
        if kind == BARRIER:
            return self._arrive(w, t)
        if kind == END or not self._fetch(w):
            return self._end(w, t)
        return None

    def _arrive(self, w: _Wave, t: int) -> _Group | None:
        group = w.group
        self.waves.remove(w)
        group.arrived.append(w)
        group.latest = max(group.latest, t)
        return self._release(group)

    def _release(self, group: _Group) -> _Group | None:
        """Let the waves of a workgroup go when all that live have arrived."""
        if len(group.arrived) + group.ended < len(group.waves):
            return None
        over = group.latest + self.chip.barrier
        arrived, group.arrived = group.arrived, []
        ended = None
        for w in arrived:
            w.at = over
            if self._fetch(w, over, "barrier"):
                self.waves.append(w)
            elif self._finished(w, over):
                ended = group
        return ended

    def _end(self, w: _Wave, t: int) -> _Group | None:
        self.waves.remove(w)
        group = w.group
        group.latest = max(group.latest, t)
        if self._finished(w, t):
            return group
        return self._release(group) if group.arrived else None

    def _finished(self, w: _Wave, t: int) -> bool:
        if self.timeline is not None:
            self.timeline.until(w.age, t)
        w.group.ended += 1
        return w.group.ended == len(w.group.waves)

    def _fetch(self, w: _Wave, earliest: int = 0, reason: str = "") -> bool:
        """Load the next instruction of a wave and find when nothing of its own holds it. False at the trace's end."""
        while w.next >= len(w.ops):
            if w.block >= len(w.blocks):
                return False
            w.ops = self._decode(w.blocks[w.block])
            w.block += 1
            w.next = 0
        op = w.op = w.ops[w.next]
        w.next += 1
        at = w.free
        why = "issue"
        if earliest > at:
            at, why = earliest, reason
        if op.waits is not None:
            vm, lgkm = op.waits
            if vm is not None:
                t = self._vm_done(w, vm)
                if t > at:
                    at, why = t, "vmcnt"
            if lgkm is not None:
                t = self._lgkm_done(w, lgkm)
                if t > at:
                    at, why = t, "lgkmcnt"
        elif w.pending:
            at, why = self._dependences(w, op, at, why)
        if op.limit == "vmcnt":
            t = self._vm_done(w, COUNTER_LIMITS["vmcnt"] - 1) if len(w.vm) >= COUNTER_LIMITS["vmcnt"] else 0
            queue = self.memory_queue
            if len(queue) == queue.maxlen:
                t = max(t, queue[0])
            if t > at:
                at, why = t, "queue"
        elif op.limit == "lgkmcnt":
            t = self._lgkm_done(w, COUNTER_LIMITS["lgkmcnt"] - 1) if len(w.lgkm) >= COUNTER_LIMITS["lgkmcnt"] else 0
            if op.kind == DS:
                queue = self.lds_queue
                if len(queue) == queue.maxlen:
                    t = max(t, queue[0])
            if t > at:
                at, why = t, "queue"
        w.at = at + (w.simd - at) % TURN
        w.reason = why
        return True

    def _dependences(self, w: _Wave, op: _Op, at: int, why: str) -> tuple[int, str]:
        """The registers of slow writers that this instruction touches must be ready.

        A matrix instruction may follow another at once where it adds to, or overwrites, exactly what that one wrote.
        """
        keep = []
        touched = op.reads | op.writes | op.addend
        for entry in w.pending:
            bits, ready, matrix = entry
            if bits & touched and ready > at:
                chained = (
                    matrix
                    and op.second == MATRIX
                    and not bits & op.reads
                    and (bits == op.addend or not bits & op.addend)
                    and (bits == op.writes or not bits & op.writes)
                )
                if not chained:
                    at, why = ready, "dependence"
            if ready > at:
                keep.append(entry)
        w.pending = keep
        return at, why

    # ---- memory

    def _vm_done(self, w: _Wave, keep: int) -> int:
        """When at most `keep` vector memory operations are left."""
        queue = w.vm
        if len(queue) <= keep:
            return 0
        n = len(queue) - keep
        t = queue[n - 1]
        del queue[:n]
        return t

    def _lgkm_done(self, w: _Wave, keep: int) -> int:
        """When at most `keep` of the LDS and scalar operations are left. Scalar loads return in any order: all."""
        queue = w.lgkm
        if len(queue) <= keep:
            return 0
        if any(scalar for _, scalar in queue):
            t = max(t for t, _ in queue)
            queue.clear()
            return t
        n = len(queue) - keep
        t = queue[n - 1][0]
        del queue[:n]
        return t

    def _lds(self, w: _Wave, op: _Op, t: int) -> None:
        clocks = op.pipe
        if op.events:
            clocks = sum(w.events[w.event : w.event + op.events])
            w.event += op.events
        start = max(t, self.lds_free)
        self.lds_queue.append(start)
        self.lds_free = start + clocks
        self.busy["lds"] += clocks
        done = start + clocks + max(0, op.latency - op.pipe)
        if w.lgkm and not w.lgkm[-1][1]:
            done = max(done, w.lgkm[-1][0])
        w.lgkm.append((done, False))

    def _memory(self, w: _Wave, op: _Op, t: int) -> None:
        size = 0
        lines: Sequence[int] = ()
        turns: Sequence[int] = ()
        if op.events:
            size, lines, *turns = w.events[w.event]
            w.event += 1
        chip = self.chip
        clocks = max(TURN, len(lines), -(-size // int(chip.l1_rate)))
        start = max(t, self.memory_free)
        self.memory_queue.append(start)
        self.memory_free = start + clocks
        self.busy["vmem"] += clocks
        if w.shift:
            lines = [x + w.shift for x in lines]
        missed = len(lines) if op.atomic else self.cache.missed(lines)
        done = start + clocks
        if missed:
            new = w.group.touched.missed(lines)
            begin = max(float(start), self.link_free, self.far_free)
            brought = missed * self.line_clocks
            if turns:
                brought = max(brought, turns[0] * self.launch.turns)
            self.link_free = max(float(start), self.link_free) + brought
            if new:
                self.far_free = max(float(start), self.far_free) + new * self.memory_clocks
            brought = max(self.link_free, self.far_free)
            self.busy["memory"] += brought - begin
            latency = self.miss_latency if new else chip.hit_latency
            done = int(max(done + latency, brought + latency))
        else:
            done += chip.hit_latency if lines else 0
        if w.vm:
            done = max(done, w.vm[-1])
        w.vm.append(done)
        if self.timeline is not None:
            self.timeline.move("vector memory", t, done, size)
        self.last = max(self.last, done)  # a kernel has not ended before its stores have
        if op.arrival:
            self.lds_free = max(self.lds_free, t) + op.arrival
            self.busy["lds"] += op.arrival

    # ---- result

    def _timing(self, cycles: int) -> Timing:
        shares = {
            name: clocks / (cycles * (SIMDS if name in ("mfma", "valu", "salu", "branch") else 1))
            for name, clocks in self.busy.items()
            if clocks and cycles
        }
        window = self.matrix_last - self.matrix_first
        return Timing(
            cycles,
            dict(sorted(shares.items())),
            dict(sorted(self.stalls.items(), key=lambda s: -s[1])),
            self.lines,
            self.issued,
            self.busy["mfma"] / (SIMDS * window) if window > 0 else 0.0,
        )
