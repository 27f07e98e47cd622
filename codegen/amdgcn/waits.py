"""Where memory results are waited for: the fewest, loosest `s_waitcnt` that keep every result behind its wait.

In: an allocated `Program` (physical registers in `Inst.reads` and `Inst.writes`, pseudo-instructions `COPY_COMMIT` and
`COPY_WAIT` still in place). Out: the same with `s_waitcnt` inserted just before the instructions that need them, and
the pseudo-instructions gone.

The one idea: both counters are queues. The state of one is a list, newest first, of the registers that the operation of
that age will write. Something that touches a register of age n needs "at most n operations outstanding", which is the
counter's operand, and shortens the list to n. Where paths join, the lists are united age by age: a register then has
its youngest age on any path, which is what the wait must assume. Loops are walked to a fixed point, so a wait in a
loop body knows what the previous trip left in flight.

Rules (cdna.md section 4):
* vmcnt counts global loads, stores and direct-to-LDS copies, in issue order; lgkmcnt counts LDS operations in issue
  order and scalar loads in none: with a scalar load in flight only lgkmcnt(0) says anything.
* (BARRIER) before `s_barrier` this wave's LDS operations are complete: writes visible, reads returned.
* (GROUPS) direct-to-LDS copies carry the number of `copy.commit`s since; a `copy.wait` of p waits for those older
  than p.
* Stores need no wait, not even at the end of the program.
"""

from __future__ import annotations

from wavedsl.codegen.amdgcn.machine import UNITS, Inst, Program
from wavedsl.codegen.amdgcn.rows import Rows, is_barrier, queue_of

COPY_COMMIT = "copy.commit"
COPY_WAIT = "copy.wait"
WAVE_BARRIER = "barrier.wave"
"""A barrier of a workgroup of one wave: the wait without the instruction."""
VM_MAX, LGKM_MAX = 63, 15
LDS_TOKEN = 1 << (UNITS + 1)
SCALAR = 1 << (UNITS + 2)
_GROUP = UNITS + 8
MAX_GROUPS = 32
"""Groups of copies that are told apart; older ones count as one."""
_GROUP_BITS = ((1 << MAX_GROUPS) - 1) << _GROUP

Queues = tuple[tuple[int, ...], tuple[int, ...]]


def insert_waits(program: Program, rows: Rows) -> None:
    """Insert the waits into `program`, in place."""
    blocks = program.blocks
    entry: list[Queues | None] = [None] * len(blocks)
    entry[0] = ((), ())
    work = [0]
    while work:
        b = min(work)
        work.remove(b)
        state = entry[b]
        assert state is not None
        after = _walk(blocks[b].insts, state, None, rows)
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
        _walk(block.insts, state, out, rows)
        block.insts = out


def _unite(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Age by age union."""
    if len(a) < len(b):
        a, b = b, a
    return tuple(x | y for x, y in zip(a, b)) + a[len(b) :]


def _walk(insts: list[Inst], state: Queues, out: list[Inst] | None, rows: Rows) -> Queues:
    """The queues after `insts`; with `out`, the instructions with their waits are appended to it."""
    vm, lgkm = list(state[0]), list(state[1])
    vm_any = lgkm_any = 0
    for m in vm:
        vm_any |= m
    for m in lgkm:
        lgkm_any |= m
    for inst in insts:
        need_vm = need_lgkm = -1
        if inst.row == COPY_COMMIT:
            # ages of groups grow by one; the oldest number absorbs the rest
            vm = [(m & ~_GROUP_BITS) | _older(m & _GROUP_BITS) if m & _GROUP_BITS else m for m in vm]
            vm_any = 0
            for m in vm:
                vm_any |= m
            continue
        if inst.row == COPY_WAIT:
            wanted = (_GROUP_BITS >> (_GROUP + 1 + inst.ops[0])) << (_GROUP + 1 + inst.ops[0])
        elif inst.row == WAVE_BARRIER or is_barrier(inst):
            wanted = LDS_TOKEN
        else:
            wanted = inst.reads | inst.writes
        if vm_any & wanted:
            need_vm = next(i for i, m in enumerate(vm) if m & wanted)
        if lgkm_any & wanted:
            need_lgkm = 0 if lgkm_any & SCALAR else next(i for i, m in enumerate(lgkm) if m & wanted)
        if need_vm >= 0 or need_lgkm >= 0:
            if need_vm >= 0:
                del vm[need_vm:]
                vm_any = 0
                for m in vm:
                    vm_any |= m
            if need_lgkm >= 0:
                del lgkm[need_lgkm:]
                lgkm_any = 0
                for m in lgkm:
                    lgkm_any |= m
            if out is not None:
                out.append(_wait(rows, need_vm, need_lgkm, inst))
        if inst.row == COPY_WAIT or inst.row == WAVE_BARRIER:
            continue
        queue = queue_of(inst)
        if queue == "vm":
            mask = inst.writes
            if inst.tokens:
                mask |= 1 << _GROUP
            vm.insert(0, mask)
            if len(vm) > VM_MAX + 1:
                vm[VM_MAX] |= vm.pop()
            vm_any |= mask
        elif queue:
            mask = inst.writes | (SCALAR if queue == "scalar" else LDS_TOKEN)
            lgkm.insert(0, mask)
            if len(lgkm) > LGKM_MAX + 1:
                lgkm[LGKM_MAX] |= lgkm.pop()
            lgkm_any |= mask
        if out is not None:
            out.append(inst)
    while vm and not vm[-1]:  # old stores: nobody waits for them
        vm.pop()
    return tuple(vm), tuple(lgkm)


def _wait(rows: Rows, vm: int, lgkm: int, before: Inst) -> Inst:
    """One `s_waitcnt` for whichever counters are needed (-1: not)."""
    parts = ([f"vmcnt({vm})"] if vm >= 0 else []) + ([f"lgkmcnt({lgkm})"] if lgkm >= 0 else [])
    return rows.make(rows.s_waitcnt, (" ".join(parts),), None, before.loc)


def _older(groups: int) -> int:
    """Group ages after one more commit."""
    moved = (groups << 1) & _GROUP_BITS
    return moved | (groups & (1 << (_GROUP + MAX_GROUPS - 1)))
