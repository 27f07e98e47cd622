"""Where memory results are waited for: the fewest, loosest `s_waitcnt` that keep every result behind its wait.

In: an allocated `Program` (physical registers in `Inst.reads` and `Inst.writes`, pseudo-instructions `COPY_COMMIT` and
`COPY_WAIT` still in place). Out: the same with `s_waitcnt` inserted just before the instructions that need them, and
the pseudo-instructions gone.

The one idea: both counters are queues. The state of one is a list, newest first, of the registers that the operation of
that age will write. Something that touches a register of age n needs "at most n operations outstanding", which is the
counter's operand, and shortens the list to n. Where paths join, the lists are united age by age: a register then has
its youngest age on any path, which is what the wait must assume. Loops are walked to a fixed point, so a wait in a
loop body knows what the previous trip left in flight.

(ENTRY) What was loaded in front of a loop is younger there than what the trip before has loaded, where trips store or
load something else as well: of the two ages every trip's wait must assume the younger one, and waits for loads that
have just begun. So what a loop wants first is waited for in front of it, and its own waits know trips alone
(`_fronts`).

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

from collections.abc import Callable

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

EARLY = 32
"""Instructions of a trip in front of a wait for what was loaded before the loop, at most, where that moves out of it:
the first trip no longer does them while it waits."""
LDS_WAIT = 16
"""How many of them the wait for something of LDS counts as."""

Queue = tuple[Access, ...]
"""Newest first: (registers that the operation writes, clock of its arrival relative to the end of the block)."""
Queues = tuple[Queue, Queue]


def insert_waits(program: Program, rows: Rows) -> None:
    """Insert the waits into `program`, in place."""
    blocks = program.blocks
    waves = -(-program.block_threads // WAVE)
    wants = [[_wanted(inst) for inst in block.insts] for block in blocks]
    paces = [_pace(block, waves) for block in blocks]
    fronts: dict[int, int] = {}

    def walk(b: int, state: Queues, out: list[Inst] | None = None) -> Queues:
        return _walk(blocks[b].insts, wants[b], state, out, rows, waves, paces[b], fronts.get(b, -1))

    entry = _entries(blocks, walk)
    if _fronts(blocks, wants, entry, walk, fronts):
        entry = _entries(blocks, walk)
    for b, block in enumerate(blocks):
        state = entry[b]
        if state is None:
            continue
        out: list[Inst] = []
        walk(b, state, out)
        block.insts = out


def _entries(blocks: list[Block], walk: Callable[[int, Queues], Queues]) -> list[Queues | None]:
    """What is on its way at the start of each block; None where none leads to it."""
    entry: list[Queues | None] = [None] * len(blocks)
    entry[0] = ((), ())
    work = [0]
    while work:
        b = min(work)
        work.remove(b)
        state = entry[b]
        assert state is not None
        after = walk(b, state)
        for s in blocks[b].succs:
            before = entry[s]
            met = after if before is None else (_unite(before[0], after[0]), _unite(before[1], after[1]))
            if met != before:
                entry[s] = met
                if s not in work:
                    work.append(s)
    return entry


def _fronts(
    blocks: list[Block], wants: list[list[int]], entry: list[Queues | None], walk: Callable[[int, Queues], Queues],
    fronts: dict[int, int],
) -> bool:  # fmt: skip
    """(ENTRY) Enter in `fronts` how many accesses to vector memory may be left at the end of blocks in front of loops,
    where that makes a loop's waits looser. Whether it does anywhere."""
    before: dict[int, list[int]] = {}
    for b, block in enumerate(blocks):
        for s in block.succs if entry[b] is not None else ():
            before.setdefault(s, []).append(b)
    for head, preds in before.items():
        into = [b for b in preds if b < head]
        if len(into) != 1 or len(into) == len(preds):
            continue
        trips: Queue = ()
        for b in preds:
            state = entry[b]
            if b >= head and state is not None:
                # The entry's accesses are in the state too; those that are younger than any of a trip's are its own.
                trips = _unite(trips, walk(b, state)[0])
        state = entry[into[0]]
        assert state is not None
        left = _stricter(blocks[head].insts, wants[head], list(walk(into[0], state)[0]), list(trips))
        if left is not None:
            fronts[into[0]] = left
    return bool(fronts)


def _stricter(insts: list[Inst], wants: list[int], entered: list[Access], trips: list[Access]) -> int | None:
    """How many of the accesses on their way may be left at a loop's entry, so that the first of its waits that are
    stricter for them than for a trip's own are not; None where there is none."""
    left: int | None = None
    own = lds = passed = 0
    for inst, wanted in zip(insts, wants):
        passed += LDS_WAIT if wanted & lds else 1
        if passed > EARLY or wanted & own:  # what the trip itself has loaded: all that came before is there
            break
        queue = queue_of(inst)
        own |= inst.writes if queue == "vm" else 0
        lds = (0 if wanted & lds else lds) | (inst.writes if queue == "lds" else 0)
        mine = next((i for i, (m, _) in enumerate(entered) if m & wanted), None)
        theirs = next((i for i, (m, _) in enumerate(trips) if m & wanted), None)
        younger = len(trips) if theirs is None else theirs
        if mine is not None and mine < younger and entered[mine][0] & wanted & _PLAIN:
            left = mine
            del entered[mine:]
        if theirs is not None:
            del entered[theirs:], trips[theirs:]
    return left


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
    insts: list[Inst], wants: list[int], state: Queues, out: list[Inst] | None, rows: Rows, waves: int, fetch: int,
    left: int = -1,
) -> Queues:  # fmt: skip
    """The queues after `insts`; with `out`, the instructions with their waits are appended to it. `fetch`: clocks in
    which memory gives a wave 16 bytes a lane. `left`: how many accesses to vector memory are left at the end, -1 for
    all."""
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
    if 0 <= left < len(vm):
        del vm[left:]
        if out is not None:
            jump = bool(out) and not isinstance(out[-1].row, str) and out[-1].row.unit is Unit.BRANCH
            out.insert(len(out) - jump, _wait(rows, left, -1, out[-1] if out else insts[-1]))
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
