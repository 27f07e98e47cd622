"""Reads of registers that nothing was written to, and of fragments whose registers have changed since.

In: decoded steps with the registers that each reads and writes. Out: the steps, some of them wrapped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.runtime.emulator.ptx import flow as ptx_flow
from wavedsl.runtime.emulator.ptx.flow import Flow
from wavedsl.runtime.emulator.ptx.machine import Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.module import Inst, Reg, RegUse


def drop_stale_fragments(m: Machine, decoded: list[Any], effects: list[tuple[list[Reg], list[Reg]]]) -> None:
    """Writers of matrix operands forget the matrices that were made of the old values."""
    users, values = m.fragment_users, m.fragment_values
    if not users:
        return
    for i, step in enumerate(decoded):
        keys = [k for r in effects[i][0] for k in users.get(r.index, ())]
        if not keys or step is None:
            continue
        keys = list(dict.fromkeys(keys))

        def fresh(mask: Mask, step: Any = step, keys: list[Any] = keys) -> None:
            step(mask)
            for k in keys:
                values.pop(k, None)

        decoded[i] = fresh


_SINKS = frozenset(
    {"load", "store", "atomic", "async", "matrix", "wmma", "barrier", "branch", "exit", "bulk", "multiply", "mbarrier"}
)


def watch_unwritten(
    m: Machine, flow: Flow, decoded: list[Any], effects: list[tuple[list[Reg], list[Reg]]], rows: list[Any]
) -> None:
    """Follow values of registers that may be read before they are written, and report where one matters.

    A copy of such a value is harmless (compilers move undefined values about); an address, a stored value, a predicate
    or a matrix operand made of one is a defect. The finding names the instruction that first read the unwritten
    register.
    """
    suspects = ptx_flow.maybe_unwritten(m.function, flow, effects)
    if not suspects:
        return
    m.suspects = suspects
    tracked = set(suspects)
    changed = True
    while changed:
        changed = False
        for defs, uses in effects:
            if any(r.index in tracked for r in uses):
                for r in defs:
                    if r.index not in tracked:
                        tracked.add(r.index)
                        changed = True
    # Per thread: -1 not written, 0 defined, else 1 + the instruction that first read what was not written.
    m.undefined = {r: np.full(m.T, -1 if r in suspects else 0, np.int32) for r in sorted(tracked)}
    insts = m.function.insts
    for i, step in enumerate(decoded):
        defs, uses = effects[i]
        reads = [r for r in uses if r.index in tracked]
        writes = [r for r in defs if r.index in tracked]
        if step is None or not (reads or writes):
            continue
        row = rows[i]
        sink = row is None or bool(row.effects & _SINKS)
        guard = insts[i].guard
        chooser = row is not None and row.row.opcode == "selp"
        decoded[i] = _watched(m, insts[i], i, step, reads, writes, sink, guard, chooser)


def _watched(
    m: Machine,
    inst: Inst,
    pc: int,
    step: Any,
    reads: list[Reg],
    writes: list[Reg],
    sink: bool,
    guard: Any,
    chooser: bool,
) -> Any:
    data = [m.undefined[r.index] for r in reads if guard is None or r is not guard[0]]
    names = [r.name for r in reads if guard is None or r is not guard[0]]
    guard_state = m.undefined.get(guard[0].index) if guard is not None else None
    predicate = m.reg(guard[0]) if guard is not None else None
    outs = [m.undefined[r.index] for r in writes]
    choice = None
    if chooser and isinstance(inst.args[3], RegUse):
        choice = m.reg(inst.args[3].reg), inst.args[3].negated
        states = []
        for a in inst.args[1:3]:
            states.append(m.undefined.get(a.reg.index) if isinstance(a, RegUse) else None)

    def run(mask: Mask) -> None:
        on = np.ones(m.T, bool) if mask is None else mask
        if guard_state is not None:
            blame(m, inst, pc, guard_state, on, [guard[0].name])
        if predicate is not None:
            on = on & (predicate != guard[1])
        taint = np.zeros(m.T, np.int32)
        if choice is not None:
            first = choice[0] != choice[1]
            zero = np.zeros(m.T, np.int32)
            x, y = (zero if s is None else s for s in states)
            taint = np.where(first, x, y)
        else:
            for state in data:
                taint = np.where(taint != 0, taint, state)
        taint = np.where(taint == -1, np.int32(pc + 1), taint)
        if sink and data:
            blame(m, inst, pc, taint, on, names)
        for o in outs:
            o[on] = taint[on] if not sink else 0
        step(mask)

    return run


def blame(m: Machine, inst: Inst, pc: int, taint: Array, on: Array, names: list[str]) -> None:
    bad = (taint != 0) & on & m.live
    if not bad.any():
        return
    thread = int(np.argmax(bad))
    origin = int(taint[thread])
    first = m.function.insts[origin - 1] if origin > 0 else inst
    if not m.seen("uninitialised-read", first):
        via = "" if first is inst else f"; the value reaches line {inst.line}: {inst.text}"
        which = ", ".join(names) if first is inst else "a register"
        m.report("uninitialised-read", first, f"reads {which} before anything is written to it{via}", thread)
