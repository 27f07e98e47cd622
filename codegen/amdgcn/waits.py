"""Where memory results are waited for: the fewest, loosest `s_waitcnt` that keep every result behind its wait.

In: an allocated `Program` (physical registers in `Inst.reads` and `Inst.writes`, pseudo-instructions `COPY_COMMIT` and
`COPY_WAIT` still in place). Out: the same with `s_waitcnt` inserted just before the instructions that need them, and
the pseudo-instructions gone.

The one idea: both counters are queues. The state of one is a list, newest first, of the registers that the operation of
that age will write. Something that touches a register of age n needs "at most n operations outstanding", which is the
counter's operand, and shortens the list to n. Where paths join, the lists are united age by age: a register then has
its youngest age on any path, which is what the wait must assume. Loops are walked to a fixed point, so a wait in a
loop body knows what the previous trip left in flight.

(MERGE) A wait that costs nothing more may be stricter than it must be: where results that the block will want as well
are estimated to have arrived by then, they are waited for together, and their own waits are not needed. The estimate
(`_Clock`) counts what each unit takes for the whole workgroup; arrivals within `SLACK_CLOCKS` count as arrived, because
the latencies are not known better. What was loaded together comes from vector memory one after the other: where there
is something to do with the first results, the others have waits of their own. In loops of matrix products it comes more
slowly, and one wait is for few results: what is stored for the next trip frees registers for the next load, and where
none is on its way memory is idle. (Matrix-vector products by multiply-adds keep nothing for the next trip: by the text
their clocks moved by -1.4 to +1.6 % with it.)

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
SLACK_CLOCKS = 16
"""Clocks by which a merged wait may come early: one LDS access."""
ISSUE_CLOCKS, FETCH_CLOCKS = 4, 16
"""Clocks between two instructions of a wave, and in which vector memory gives a wave 16 bytes a lane."""
SLOW = 2
"""How many times as long that takes in loops of products, as far as waits count on it: units share what lies behind
their ports."""
LONG_PRODUCTS = 2.25
"""Clocks of a trip's products, as a factor of its loads', beyond which the former leave these time enough."""
FEW = 4
"""Operations of such a loop on their way that memory is not to have fewer of; of more, half may be waited for at
once."""
LONG_AGO = -4096
"""Clocks after which an operation has surely completed."""

Queue = tuple[tuple[int, int], ...]
"""Newest first: (registers that the operation writes, clock of its arrival relative to the end of the block)."""
Queues = tuple[Queue, Queue]


class _Clock:
    """When instructions issue and results arrive: a wave that shares LDS and vector memory with those of its
    workgroup."""

    def __init__(self, waves: int, fetch: int):
        self.waves, self.fetch = waves, fetch
        self.now = 0
        self.matrix = 0
        self.memory = {"vm": 0, "lds": 0, "scalar": 0}
        self.turn = LONG_AGO
        """When the oldest result of vector memory that nobody has waited for can come."""

    def issue(self, inst: Inst, queue: str) -> int:
        """Pass an instruction; the clock at which its result arrives."""
        row = inst.row
        start = self.now
        if row.unit is Unit.MFMA:
            start = max(start, self.matrix)
            self.matrix = start + row.issue * -(-self.waves // SIMDS)
        self.now = start + 4
        if not queue:
            return self.now
        issue = row.issue * self.fetch // FETCH_CLOCKS if queue == "vm" else row.issue
        self.memory[queue] = max(start, self.memory[queue]) + issue * self.waves
        return max(start + row.latency, self.memory[queue])


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
    """Clocks in which memory gives a wave of this block 16 bytes a lane, as far as waits count on it."""
    rows = [inst for inst in block.insts if block.depth and not isinstance(inst.row, str)]
    products = sum(inst.row.issue for inst in rows if inst.row.unit is Unit.MFMA) * -(-waves // SIMDS)
    loads = sum(inst.row.issue for inst in rows if queue_of(inst) == "vm") * waves
    return FETCH_CLOCKS * (SLOW if 0 < products <= LONG_PRODUCTS * loads else 1)


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
    clock = _Clock(waves, fetch)
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
            came = LONG_AGO
            if need_vm >= 0:
                came = max(vm[need_vm][1], clock.turn + (len(vm) - 1 - need_vm) * fetch * waves)
                clock.now = max(clock.now, came)
            if need_lgkm >= 0:
                clock.now = max(clock.now, lgkm[need_lgkm][1])
            if need_vm > 0:
                clock.turn, oldest = came, need_vm
                together = len(vm) if fetch == FETCH_CLOCKS else max(0, len(vm) - FEW) // 2
                together = 0 if queue_of(inst) == "vm" else together
                need_vm = _merged(vm, need_vm, wants, at, clock.now, came, fetch * waves, together)
                clock.turn += (oldest - need_vm + 1) * fetch * waves
            if need_lgkm > 0:
                need_lgkm = _merged(lgkm, need_lgkm, wants, at, clock.now, clock.now, 0, len(insts))
            if need_vm >= 0:
                del vm[need_vm:]
                vm_any = _registers(vm)
            if need_lgkm >= 0:
                del lgkm[need_lgkm:]
                lgkm_any = _registers(lgkm)
            if out is not None:
                out.append(_wait(rows, need_vm, need_lgkm, inst))
        if inst.row == COPY_WAIT or inst.row == WAVE_BARRIER:
            continue
        queue = queue_of(inst)
        arrival = clock.issue(inst, queue)
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


def _merged(
    queue: list[tuple[int, int]], need: int, wants: list[int], at: int, now: int, came: int, apart: int,
    together: int,
) -> int:  # fmt: skip
    """The strictest count, at most `need`, that is due by now and spares a later wait of the block. The result that is
    waited for came at `came`, the next ones come `apart` clocks one after the other; `together` of those of accesses
    issued together are due all the same if they are read at once: to wait for them later would gain no more than a wait
    costs. None if what came first is stored to memory: the store then is on its way while the rest is still fetched."""
    at_once = 0
    for wanted in wants[at : at + SLACK_CLOCKS // ISSUE_CLOCKS]:
        at_once |= wanted & _PLAIN
    due = need
    while due > 0 and queue[due - 1][1] <= now + SLACK_CLOCKS:
        in_turn = came + (need - due + 1) * apart
        if in_turn > now + SLACK_CLOCKS and (not queue[due - 1][0] & at_once or need - due >= together):
            break
        due -= 1
    if due == need:
        return need
    younger = 0
    for m, _ in queue[due:need]:
        younger |= m
    younger &= _PLAIN
    best = need
    for wanted in wants[at + 1 :]:
        if wanted & younger:
            age = next(i for i, (m, _) in enumerate(queue[due:need], due) if m & wanted & _PLAIN)
            best = min(best, age)
            younger = 0
            for m, _ in queue[due:best]:
                younger |= m & _PLAIN
            if not younger:
                break
    return best


def _registers(queue: list[tuple[int, int]]) -> int:
    out = 0
    for m, _ in queue:
        out |= m
    return out


def _aged(queue: list[tuple[int, int]], now: int) -> Queue:
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
