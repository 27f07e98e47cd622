"""Where memory results are waited for: the fewest, loosest `s_waitcnt` that keep every result behind its wait.

In: an allocated `Program` (physical registers in `Inst.reads` and `Inst.writes`, pseudo-instructions `COPY_COMMIT` and
`COPY_WAIT` still in place). Out: the same with `s_waitcnt` inserted just before the instructions that need them, and
the pseudo-instructions gone.

The one idea: both counters are queues. The state of one is a list, newest first, of the registers that the operation of
that age will write. Something that touches a register of age n needs "at most n operations outstanding", which is the
counter's operand, and shortens the list to n. Where paths join, the lists are united age by age: a register then has
its youngest age on any path, which is what the wait must assume. Loops are walked to a fixed point, so a wait in a
loop body knows what the previous trip left in flight.

A wait that costs nothing more may be stricter than it must be: (MERGE) of `ir/schedule/merged_waits.py`.

Rules (CDNA 3 instruction set guide, `s_waitcnt`; LLVM's SIInsertWaitcnts):
* vmcnt counts global loads, stores and direct-to-LDS copies, in issue order; lgkmcnt counts LDS operations in issue
  order and scalar loads in none: with a scalar load in flight only lgkmcnt(0) says anything.
* (BARRIER) before `s_barrier` this wave's LDS operations are complete: writes visible, reads returned.
* (GROUPS) direct-to-LDS copies carry the number of `copy.commit`s since; a `copy.wait` of p waits for those older
  than p.
* Stores need no wait, not even at the end of the program.
"""

from __future__ import annotations

from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.codegen.amdgcn.machine import UNITS, Block, Inst, Program
from wavedsl.codegen.amdgcn.rows import Rows, is_barrier, queue_of
from wavedsl.codegen.amdgcn.target import SIMDS, WAVE
from wavedsl.ir.schedule.merged_waits import ISSUE_CLOCKS, LONG_AGO, Access, WaitClock, fetch_clocks

COPY_COMMIT = "copy.commit"
COPY_WAIT = "copy.wait"
WAVE_BARRIER = "barrier.wave"
"""A barrier of a workgroup of one wave: the wait without the instruction."""
VM_MAX, LGKM_MAX = 62, 14
"""Loosest waits: one below what the fields can say, because the largest number says "do not wait"."""
LDS_TOKEN = 1 << (UNITS + 1)
SCALAR = 1 << (UNITS + 2)
_GROUP = UNITS + 8
MAX_GROUPS = 32
"""Groups of copies that are told apart; older ones count as one."""
_GROUP_BITS = ((1 << MAX_GROUPS) - 1) << _GROUP

_PLAIN = (1 << UNITS) - 1
"""Registers: what a merged wait may be for. How many copies stay in flight is the schedule's decision."""

Queue = tuple[Access, ...]
"""Newest first: (registers that the operation writes, clock of its arrival relative to the end of the block)."""
Queues = tuple[Queue, Queue]


def insert_waits(program: Program, rows: Rows) -> None:
    """Insert the waits into `program`, in place."""
    blocks = program.blocks
    waves = -(-program.block_threads // WAVE)
    wants = [[_wanted(inst) for inst in block.insts] for block in blocks]
    paces = [_pace(block, waves) for block in blocks]
    entry: list[Queues | None] = [None] * len(blocks)
    entry[0] = ((), ())
    work = [0]
    while work:
        b = min(work)
        work.remove(b)
        state = entry[b]
        assert state is not None
        after = _walk(blocks[b].insts, wants[b], state, None, rows, waves, paces[b])
        for s in blocks[b].succs:
            before = entry[s]
            met = after if before is None else (_unite(before[0], after[0]), _unite(before[1], after[1]))
            if met != before:
                entry[s] = met
                if s not in work:
                    work.append(s)
    for b, block in enumerate(blocks):
        state = entry[b]
        if state is None:
            continue
        out: list[Inst] = []
        _walk(block.insts, wants[b], state, out, rows, waves, paces[b])
        block.insts = out


def _pace(block: Block, waves: int) -> int:
    """`fetch_clocks` of this block."""
    rows = [inst for inst in block.insts if block.depth and not isinstance(inst.row, str)]
    products = sum(inst.row.issue for inst in rows if inst.row.unit is Unit.MFMA) * -(-waves // SIMDS)
    loads = sum(inst.row.issue for inst in rows if queue_of(inst) == "vm") * waves
    return fetch_clocks(products, loads)


def _unite(a: Queue, b: Queue) -> Queue:
    """Age by age union; what arrives last counts."""
    if len(a) < len(b):
        a, b = b, a
    return tuple((x | y, max(s, t)) for (x, s), (y, t) in zip(a, b)) + a[len(b) :]


def _wanted(inst: Inst) -> int:
    """What must have arrived before an instruction: registers and tokens."""
    if inst.row == COPY_COMMIT:
        return 0
    if inst.row == COPY_WAIT:
        return (_GROUP_BITS >> (_GROUP + 1 + inst.ops[0])) << (_GROUP + 1 + inst.ops[0])
    if inst.row == WAVE_BARRIER or is_barrier(inst):
        return LDS_TOKEN
    return inst.reads | inst.writes


def _walk(
    insts: list[Inst], wants: list[int], state: Queues, out: list[Inst] | None, rows: Rows, waves: int, fetch: int
) -> Queues:
    """The queues after `insts`; with `out`, the instructions with their waits are appended to it. `fetch`: clocks in
    which memory gives a wave 16 bytes a lane."""
    vm, lgkm = list(state[0]), list(state[1])
    clock = WaitClock(waves, SIMDS, fetch, _PLAIN)
    vm_any, lgkm_any = _registers(vm), _registers(lgkm)
    for at, inst in enumerate(insts):
        if inst.row == COPY_COMMIT:
            # ages of groups grow by one; the oldest number absorbs the rest
            vm = [((m & ~_GROUP_BITS) | _older(m & _GROUP_BITS) if m & _GROUP_BITS else m, t) for m, t in vm]
            vm_any = _registers(vm)
            continue
        need_vm = need_lgkm = -1
        wanted = wants[at]
        if vm_any & wanted:
            need_vm = next(i for i, (m, _) in enumerate(vm) if m & wanted)
        if lgkm_any & wanted:
            need_lgkm = 0 if lgkm_any & SCALAR else next(i for i, (m, _) in enumerate(lgkm) if m & wanted)
        if need_vm >= 0 or need_lgkm >= 0:
            need_vm, need_lgkm = clock.wait(vm, lgkm, need_vm, need_lgkm, wants, at, queue_of(inst) == "vm")
            if need_vm >= 0:
                vm_any = _registers(vm)
            if need_lgkm >= 0:
                lgkm_any = _registers(lgkm)
            if out is not None:
                out.append(_wait(rows, need_vm, need_lgkm, inst))
        if inst.row == COPY_WAIT or inst.row == WAVE_BARRIER:
            continue
        queue = queue_of(inst)
        row = inst.row
        if not queue and row.unit is Unit.MFMA:
            clock.multiply(row.issue)
        elif not queue:
            clock.now += ISSUE_CLOCKS
        arrival = clock.access(queue, row.issue, row.latency) if queue else 0
        if queue == "vm":
            mask = inst.writes
            if inst.tokens:
                mask |= 1 << _GROUP
            vm.insert(0, (mask, arrival))
            if len(vm) > VM_MAX + 1:
                vm[VM_MAX] = (vm[VM_MAX][0] | vm[-1][0], vm[VM_MAX][1])
                vm.pop()
            vm_any |= mask
        elif queue:
            mask = inst.writes | (SCALAR if queue == "scalar" else LDS_TOKEN)
            lgkm.insert(0, (mask, arrival))
            if len(lgkm) > LGKM_MAX + 1:
                lgkm[LGKM_MAX] = (lgkm[LGKM_MAX][0] | lgkm[-1][0], lgkm[LGKM_MAX][1])
                lgkm.pop()
            lgkm_any |= mask
        if out is not None:
            out.append(inst)
    while vm and not vm[-1][0]:  # old stores: nobody waits for them
        vm.pop()
    return _aged(vm, clock.now), _aged(lgkm, clock.now)


def _registers(queue: list[Access]) -> int:
    out = 0
    for m, _ in queue:
        out |= m
    return out


def _aged(queue: list[Access], now: int) -> Queue:
    """The queue as the next block sees it: clocks count from its start."""
    return tuple((m, max(LONG_AGO, t - now)) for m, t in queue)


def _wait(rows: Rows, vm: int, lgkm: int, before: Inst) -> Inst:
    """One `s_waitcnt` for whichever counters are needed (-1: not)."""
    parts = ([f"vmcnt({vm})"] if vm >= 0 else []) + ([f"lgkmcnt({lgkm})"] if lgkm >= 0 else [])
    return rows.make(rows.s_waitcnt, (" ".join(parts),), None, before.loc)


def _older(groups: int) -> int:
    """Group ages after one more commit."""
    moved = (groups << 1) & _GROUP_BITS
    return moved | (groups & (1 << (_GROUP + MAX_GROUPS - 1)))
