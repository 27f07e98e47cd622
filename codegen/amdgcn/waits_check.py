"""Is every asynchronous result waited for before it is touched? A replay that shares nothing with `waits`.

In: a physical `Program` with its waits. Out: complaints, empty when all is well.

The one idea: per register, the smallest number of operations of its queue that may have been issued after the one that
writes it, over all paths that lead here. `s_waitcnt vmcnt(n)` completes every register whose number is at least n. A
register still in flight may be neither read nor written, and at a barrier no LDS operation of the wave may be.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.codegen.amdgcn.machine import Inst, Program

_FIELD = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_LDS = -1
"""Pseudo-register of LDS operations in flight, whatever they write."""
_OLD = 64
"""Younger operations that are told apart: more than a counter can say."""

State = tuple[dict[int, int], dict[int, int], dict[int, int]]
"""Register → smallest number of younger operations, for vector memory, LDS, and scalar memory, which is unordered."""


def check_waits(program: Program) -> list[str]:
    """Complaints about missing waits, each with the instruction and the register."""
    blocks = program.blocks
    entry: list[State | None] = [None] * len(blocks)
    entry[0] = {}, {}, {}
    found: list[list[str]] = [[] for _ in blocks]
    """Complaints of the last replay of each block: the one from what is in flight on any path."""
    work = [0]
    while work:
        b = min(work)
        work.remove(b)
        before = entry[b]
        assert before is not None
        found[b] = []
        after = _replay(blocks[b].insts, before, found[b])
        for s in blocks[b].succs:
            known = entry[s]
            if known is None:
                vm, lds, scalar = after
                entry[s] = dict(vm), dict(lds), dict(scalar)
                work.append(s)
                continue
            changed = False
            for mine, new in zip(known, after):
                for register, younger in new.items():
                    if mine.get(register, 1 << 30) > younger:
                        mine[register] = younger
                        changed = True
            if changed and s not in work:
                work.append(s)
    return [complaint for complaints in found for complaint in complaints]


def _replay(insts: Sequence[Inst], state: State, complaints: list[str]) -> State:
    """The state behind `insts`. Inside, a register has the number of operations that its counter had seen when it was
    loaded: what is younger is the difference to now."""
    vm, lds, scalar = ({register: -younger for register, younger in queue.items()} for queue in state)
    vm_seen = lgkm_seen = 0
    flying = _mask(vm) | _mask(lds) | _mask(scalar)
    for inst in insts:
        row = inst.row
        if row.unit is Unit.WAITCNT:
            limits = _limits(str(inst.ops[0]))
            if "vmcnt" in limits:
                last = vm_seen - limits["vmcnt"]
                vm = {register: at for register, at in vm.items() if at > last}
            # LDS and scalar operations share a counter; with scalar ones in flight only 0 says which are done
            if limits.get("lgkmcnt") == 0:
                lds, scalar = {}, {}
            elif "lgkmcnt" in limits and not scalar:
                last = lgkm_seen - limits["lgkmcnt"]
                lds = {register: at for register, at in lds.items() if at > last}
            flying = _mask(vm) | _mask(lds) | _mask(scalar)
            continue
        early = flying & (inst.reads | inst.writes)
        if early:
            complaints.append(f"`{inst}` touches register {early.bit_length() - 1}, which is still being loaded")
        if row.unit is Unit.BARRIER and _LDS in lds:
            complaints.append(f"`{inst}` is reached with LDS operations in flight")
        if "vmcnt" in row.counters:
            vm_seen += 1
            queue, now = vm, vm_seen
        elif "lgkmcnt" in row.counters:
            lgkm_seen += 1
            queue, now = scalar if row.unit is Unit.SMEM else lds, lgkm_seen
            if queue is lds:
                lds[_LDS] = now
        else:
            continue
        writes = inst.writes
        flying |= writes
        while writes:
            low = writes & -writes
            queue[low.bit_length() - 1] = now
            writes ^= low
    return _younger(vm, vm_seen), _younger(lds, lgkm_seen), _younger(scalar, lgkm_seen)


def _younger(queue: dict[int, int], seen: int) -> dict[int, int]:
    return {register: min(_OLD, seen - at) for register, at in queue.items()}


def _mask(queue: dict[int, int]) -> int:
    """The registers of a queue as a bit set."""
    out = 0
    for register in queue:
        if register >= 0:
            out |= 1 << register
    return out


@functools.cache
def _limits(text: str) -> dict[str, int]:
    """The counts that a wait names."""
    return {name: int(n) for name, n in _FIELD.findall(text)}
