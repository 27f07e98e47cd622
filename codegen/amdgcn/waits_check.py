"""Is every asynchronous result waited for before it is touched? A replay that shares nothing with `waits`.

In: a physical `Program` with its waits. Out: complaints, empty when all is well.

The one idea: per register, the smallest number of operations of its queue that may have been issued after the one that
writes it, over all paths that lead here. `s_waitcnt vmcnt(n)` completes every register whose number is at least n. A
register still in flight may be neither read nor written, and at a barrier no LDS operation of the wave may be.
"""

from __future__ import annotations

import re

from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.codegen.amdgcn.machine import Program

_FIELD = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_LDS = -1
"""Pseudo-register of LDS operations in flight, whatever they write."""

State = dict[tuple[str, int], int]
"""(queue, register) → smallest number of younger operations. Queues: `vm`, `lds`, and `scalar`, which is unordered."""


def check_waits(program: Program) -> list[str]:
    """Complaints about missing waits, each with the instruction and the register."""
    entry: list[State | None] = [None] * len(program.blocks)
    entry[0] = {}
    work = [0]
    while work:
        b = work.pop()
        after = _replay(program, b, dict(entry[b] or {}), None)
        for s in program.blocks[b].succs:
            known = entry[s]
            if known is None:
                entry[s] = dict(after)
                work.append(s)
                continue
            changed = False
            for key, younger in after.items():
                if known.get(key, 1 << 30) > younger:
                    known[key] = younger
                    changed = True
            if changed:
                work.append(s)
    complaints: list[str] = []
    for b in range(len(program.blocks)):
        if entry[b] is not None:
            _replay(program, b, dict(entry[b] or {}), complaints)
    return complaints


def _replay(program: Program, b: int, state: State, complaints: list[str] | None) -> State:
    flying = 0
    for _, register in state:
        if register >= 0:
            flying |= 1 << register
    for inst in program.blocks[b].insts:
        row = inst.row
        if row.unit is Unit.WAITCNT:
            limits = {name: int(n) for name, n in _FIELD.findall(str(inst.ops[0]))}
            scalar = any(queue == "scalar" for queue, _ in state)
            kept: State = {}
            for key, younger in state.items():
                if key[0] == "vm":
                    done = younger >= limits.get("vmcnt", 1 << 30)
                else:
                    # LDS and scalar operations share a counter; with scalar ones in flight only 0 says which are done
                    done = limits.get("lgkmcnt") == 0 or (not scalar and younger >= limits.get("lgkmcnt", 1 << 30))
                if not done:
                    kept[key] = younger
            state = kept
            flying = 0
            for _, register in state:
                if register >= 0:
                    flying |= 1 << register
            continue
        if complaints is not None:
            early = flying & (inst.reads | inst.writes)
            if early:
                complaints.append(f"`{inst}` touches register {early.bit_length() - 1}, which is still being loaded")
            if row.unit is Unit.BARRIER and ("lds", _LDS) in state:
                complaints.append(f"`{inst}` is reached with LDS operations in flight")
        if "vmcnt" in row.counters:
            queue = "vm"
        elif "lgkmcnt" in row.counters:
            queue = "scalar" if row.unit is Unit.SMEM else "lds"
        else:
            continue
        shared = ("vm",) if queue == "vm" else ("lds", "scalar")
        for key in [k for k in state if k[0] in shared]:
            if state[key] < 64:
                state[key] += 1
        writes = inst.writes
        flying |= writes
        while writes:
            low = writes & -writes
            state[queue, low.bit_length() - 1] = 0
            writes ^= low
        if queue == "lds":
            state[queue, _LDS] = 0
    return state
