"""Useful instructions for the gaps that hazards ask for, before nops are spent on them.

In: a physical `Program` with its waits, and what `hazards` knows of every instruction. Out: the same program, some
instructions of a block in another order, never with more wait states missing than before.

The one idea: an instruction that may not issue yet is overtaken by a later one of its block that may, or an earlier one
steps in between it and its producer. Only instructions that do nothing but compute registers move (vector, matrix and
scalar arithmetic); memory, waits, barriers and branches keep their places, so counters, memory order and tickets stay
as they were. An instruction overtakes a wait only if no load writes a register that it touches.

`check_order` replays: every instruction must find each register as the same instruction left it.
"""

from __future__ import annotations

from collections.abc import Sequence

from wavedsl.codegen.amdgcn.hazard_rules import required
from wavedsl.codegen.amdgcn.hazards import Fact, Flow, Producer, walk
from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.codegen.amdgcn.machine import EXEC, Inst, Program

WINDOW = 24
"""Instructions that are looked at on either side of a gap: more than the longest gap has wait states."""
_BUDGET = 1 << 14
"""Instructions of a block that trials of steps in between may go through, all together."""
_EXEC = 3 << EXEC
_LANES = (Unit.VALU, Unit.TRANS, Unit.ACCMOVE)


def movable(inst: Inst) -> bool:
    """Whether all that an instruction does is to compute registers from registers."""
    row = inst.row
    if not inst.writes or inst.writes & _EXEC or "setreg" in row.hazard:
        return False
    return row.unit in _LANES or row.unit is Unit.MFMA or (row.unit is Unit.SALU and not row.special)


def fixed(inst: Inst) -> bool:
    """Whether no vector instruction may pass: it changes what every one of them depends on without naming it."""
    return bool(inst.writes & _EXEC) or "setreg" in inst.row.hazard or inst.row.unit is Unit.BRANCH


def fill_gaps(program: Program, flow: Flow) -> bool:
    """Reorder the blocks that need nops, in place, where that saves some. Whether any was."""
    changed = False
    loaded = 0
    for block in program.blocks:
        for inst in block.insts:
            if inst.row.counters:
                loaded |= inst.writes
    for b, block in enumerate(program.blocks):
        entry = flow.entry[b]
        if entry is None:
            continue
        facts = flow.facts[b]
        pads: list[int] = []
        walk(block.insts, facts, entry, flow.chip, pads=pads)
        before = sum(pads)
        if not before:
            continue
        order = _overtaken(block.insts, facts, entry, loaded, flow.chip)
        order = _stepped_in(order, block.insts, facts, entry, flow.chip)
        pads = []
        walk([block.insts[i] for i in order], [facts[i] for i in order], entry, flow.chip, pads=pads)
        if sum(pads) < before:
            block.insts = [block.insts[i] for i in order]
            flow.facts[b] = [facts[i] for i in order]
            changed = True
    return changed


def _overtaken(
    insts: Sequence[Inst], facts: Sequence[Fact], entry: dict[int, tuple[Producer, int]], loaded: int, chip: str
) -> list[int]:
    """An order in which the first free instruction behind one that must wait goes first."""
    recent = [(p, -d) for p, d in entry.values()]
    left = list(range(len(insts)))
    order: list[int] = []
    time = 0
    while left:
        pick = 0
        pad = _missing(insts[left[0]], facts[left[0]], recent, time, chip)
        if pad:
            found = _free_one(left, insts, facts, recent, time, loaded, chip)
            if found is not None:
                pick, pad = found, 0
        i = left.pop(pick)
        order.append(i)
        time += pad + _states(insts[i])
        producer = facts[i][2]
        if producer is not None:
            recent.append((producer, time))
        recent = [(p, since) for p, since in recent if time - since < p.reach]
    return order


def _free_one(
    left: Sequence[int], insts: Sequence[Inst], facts: Sequence[Fact], recent: Sequence[tuple[Producer, int]],
    time: int, loaded: int, chip: str,
) -> int | None:  # fmt: skip
    """The first of the next instructions that may issue now and depends on none that it would pass."""
    first = insts[left[0]]
    if fixed(first):
        return None
    reads, writes = first.reads, first.writes
    waited = first.row.unit is Unit.WAITCNT
    for at in range(1, min(len(left), WINDOW)):
        inst = insts[left[at]]
        free = movable(inst) and not (inst.writes & (reads | writes) or inst.reads & writes)
        if free and waited and (inst.reads | inst.writes) & loaded:
            free = False
        if free and not _missing(inst, facts[left[at]], recent, time, chip):
            return at
        if fixed(inst):
            return None
        reads |= inst.reads
        writes |= inst.writes
        waited = waited or inst.row.unit is Unit.WAITCNT
    return None


def _stepped_in(
    order: list[int], insts: Sequence[Inst], facts: Sequence[Fact], entry: dict[int, tuple[Producer, int]], chip: str
) -> list[int]:
    """An order in which instructions from before a producer stand between it and who has to wait for it."""

    def missing(trial: Sequence[int]) -> list[int]:
        pads: list[int] = []
        walk([insts[i] for i in trial], [facts[i] for i in trial], entry, chip, pads=pads)
        return pads

    budget = _BUDGET
    pads = missing(order)
    at = 0
    while at < len(order):
        if not pads[at]:
            at += 1
            continue
        moved = None
        reads = writes = 0
        for k in range(at - 1, max(-1, at - 1 - 2 * WINDOW), -1):
            inst = insts[order[k]]
            if fixed(inst):
                break
            free = movable(inst) and not (inst.writes & (reads | writes) or inst.reads & writes)
            meets = inst.writes & (insts[order[at]].reads | insts[order[at]].writes)
            meets |= inst.reads & insts[order[at]].writes
            if free and not meets and k < at - 1 and budget > 0:
                budget -= len(order)
                trial = [*order[:k], *order[k + 1 : at], order[k], *order[at:]]
                after = missing(trial)
                if sum(after) < sum(pads):
                    moved, pads = trial, after
                    break
            reads |= inst.reads
            writes |= inst.writes
        if moved is None:
            at += 1
        else:
            order = moved
    return order


def _states(inst: Inst) -> int:
    return inst.ops[0] + 1 if inst.row.unit is Unit.NOP else 1


def _missing(
    inst: Inst, fact: Fact, recent: Sequence[tuple[Producer, int]], time: int, chip: str
) -> int:
    """Wait states that an instruction lacks at this time."""
    footprint, marks, _ = fact
    meets = inst.reads | inst.writes
    pad = 0
    for other, since in recent:
        passed = time - since
        if passed < other.reach and (other.touch & meets or other.touch < 0):
            pad = max(pad, required(other.footprint, footprint, chip, other.marks, marks) - passed)
    return pad


# ---- the checker


def check_order(before: Sequence[Sequence[Inst]], program: Program) -> list[str]:
    """Complaints about blocks of `program` whose instructions do not do what they did in the order of `before`.

    Shares nothing with the mover: both orders are run with instructions as values. Every instruction must find in every
    register that it reads, EXEC for what runs under it, what the same instruction left there; every register must end
    the block with the same writer; whatever is not pure arithmetic must come in the same order.
    """
    out: list[str] = []
    for old, block in zip(before, program.blocks):
        if all(a is b for a, b in zip(old, block.insts)) and len(old) == len(block.insts):
            continue
        if sorted(map(id, old)) != sorted(map(id, block.insts)):
            out.append(f"{block.label}: instructions were lost or added")
            continue
        seen, end = _run(old)
        again, end_again = _run(block.insts)
        out += [f"{block.label}: {inst!r} reads other values" for inst in old if seen[id(inst)] != again[id(inst)]]
        if end != end_again:
            out.append(f"{block.label}: another instruction is the last to write a register")
        fixed_old, fixed_new = ([id(x) for x in insts if _effect(x)] for insts in (old, block.insts))
        if fixed_old != fixed_new:
            out.append(f"{block.label}: accesses, waits or barriers changed places")
    return out


def _effect(inst: Inst) -> bool:
    return inst.row.unit not in (*_LANES, Unit.MFMA, Unit.SALU) or not inst.writes


def _run(insts: Sequence[Inst]) -> tuple[dict[int, tuple[tuple[int, int], ...]], dict[int, int]]:
    """Per instruction the writers of the registers that it reads, and the last writer of every register."""
    writer: dict[int, int] = {}
    seen: dict[int, tuple[tuple[int, int], ...]] = {}
    for inst in insts:
        reads = inst.reads | (_EXEC if inst.row.reads_exec else 0)
        seen[id(inst)] = tuple((r, writer.get(r, 0)) for r in _registers(reads))
        for r in _registers(inst.writes):
            writer[r] = id(inst)
    return seen, writer


def _registers(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out
