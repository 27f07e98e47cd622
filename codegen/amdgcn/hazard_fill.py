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
from functools import lru_cache

from wavedsl.codegen.amdgcn.hazard_rules import LONGEST
from wavedsl.codegen.amdgcn.hazards import Fact, Flow, Producer, Recent, in_reach, missing, touched, walk
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
        if entry is None or not any(flow.pads[b]):
            continue
        facts = flow.facts[b]
        order = _overtaken(block.insts, facts, entry, loaded, flow.chip)
        order, pads = _stepped_in(order, block.insts, facts, entry, flow.chip)
        if sum(pads) < sum(flow.pads[b]):
            block.insts = [block.insts[i] for i in order]
            flow.facts[b] = [facts[i] for i in order]
            changed = True
    return changed


def _overtaken(
    insts: Sequence[Inst], facts: Sequence[Fact], entry: dict[int, tuple[Producer, int]], loaded: int, chip: str
) -> list[int]:
    """An order in which the first free instruction behind one that must wait goes first."""
    recent: Recent = [(p, -d) for p, d in entry.values()]
    met = touched(recent)
    left = list(range(len(insts)))
    order: list[int] = []
    time = at = 0
    while at < len(left):
        i = left[at]
        pad = 0
        if met & facts[i].meets:
            recent = in_reach(recent, time)
            met = touched(recent)
            pad = missing(facts[i], recent, time, chip)
            if pad:
                found = _free_one(left, at, insts, facts, recent, time, loaded, chip)
                if found is not None:
                    i, pad = left.pop(found), 0
                    left.insert(at, i)
        at += 1
        order.append(i)
        time += pad + facts[i].states
        producer = facts[i].producer
        if producer is not None:
            recent.append((producer, time))
            met |= producer.touch
    return order


def _free_one(
    left: Sequence[int], at: int, insts: Sequence[Inst], facts: Sequence[Fact], recent: Recent,
    time: int, loaded: int, chip: str,
) -> int | None:  # fmt: skip
    """The first of the instructions behind `left[at]` that may issue now and depends on none that it would pass."""
    first = insts[left[at]]
    if fixed(first):
        return None
    reads, writes = first.reads, first.writes
    waited = first.row.unit is Unit.WAITCNT
    for place in range(at + 1, min(len(left), at + WINDOW)):
        inst = insts[left[place]]
        free = movable(inst) and not (inst.writes & (reads | writes) or inst.reads & writes)
        if free and waited and (inst.reads | inst.writes) & loaded:
            free = False
        if free and not missing(facts[left[place]], recent, time, chip):
            return place
        if fixed(inst):
            return None
        reads |= inst.reads
        writes |= inst.writes
        waited = waited or inst.row.unit is Unit.WAITCNT
    return None


def _stepped_in(
    order: list[int], insts: Sequence[Inst], facts: Sequence[Fact], entry: dict[int, tuple[Producer, int]], chip: str
) -> tuple[list[int], list[int]]:
    """An order in which instructions from before a producer stand between it and who has to wait for it, and the wait
    states that it misses."""
    budget = _BUDGET
    ordered = [facts[i] for i in order]
    pads, _ = walk(ordered, entry, chip)
    at = 0
    while at < len(order):
        if not pads[at]:
            at += 1
            continue
        stepped = False
        reads = writes = 0
        waiting = insts[order[at]]
        for k in range(at - 1, max(-1, at - 1 - 2 * WINDOW), -1):
            inst = insts[order[k]]
            if fixed(inst):
                break
            free = movable(inst) and not (inst.writes & (reads | writes) or inst.reads & writes)
            meets = inst.writes & (waiting.reads | waiting.writes) | inst.reads & waiting.writes
            if free and not meets and k < at - 1 and budget > 0:
                budget -= len(order)
                trial = [*ordered[k + 1 : at], ordered[k]]
                changed = _pads_from(k, trial, ordered, pads, entry, chip)
                if sum(changed) < sum(pads[k : k + len(changed)]):
                    ordered[k:at] = trial
                    order = [*order[:k], *order[k + 1 : at], order[k], *order[at:]]
                    pads[k : k + len(changed)] = changed
                    stepped = True
                    break
            reads |= inst.reads
            writes |= inst.writes
        if not stepped:
            at += 1
    return order, pads


def _pads_from(
    k: int, trial: Sequence[Fact], facts: Sequence[Fact], pads: Sequence[int],
    entry: dict[int, tuple[Producer, int]], chip: str,
) -> list[int]:  # fmt: skip
    """The wait states missing from instruction k on where `trial` replaces as many facts from there, up to where they
    are as before (`pads`).

    What came more than `LONGEST` instructions before k is out of reach there. Behind the replaced ones, as many
    instructions that wait as they did leave the same producers at the same distances: the rest waits as before, too.
    """
    start = max(0, k - LONGEST - 1)
    recent: Recent = [(p, -d) for p, d in entry.values()] if start == 0 else []
    time = 0
    for fact, pad in zip(facts[start:k], pads[start:k]):
        time += pad + fact.states
        if fact.producer is not None:
            recent.append((fact.producer, time))
    recent = in_reach(recent, time)
    met = touched(recent)
    out: list[int] = []
    replaced = len(trial)
    same = 0
    for n in range(len(facts) - k):
        fact = trial[n] if n < replaced else facts[k + n]
        pad = 0
        if met & fact.meets:
            recent = in_reach(recent, time)
            met = touched(recent)
            pad = missing(fact, recent, time, chip)
        out.append(pad)
        if n >= replaced:
            same = same + 1 if pad == pads[k + n] else 0
            if same > LONGEST:
                break
        time += pad + fact.states
        if fact.producer is not None:
            recent.append((fact.producer, time))
            met |= fact.producer.touch
    return out


# ---- the checker


def check_order(before: Sequence[Sequence[Inst]], program: Program) -> list[str]:
    """Complaints about blocks of `program` whose instructions do not do what they did in the order of `before`.

    Shares nothing with the mover: both orders are run with instructions as values. Every instruction must find in every
    register that it reads, EXEC for what runs under it, what the same instruction left there; every register must end
    the block with the same writer; whatever is not pure arithmetic must come in the same order.
    """
    out: list[str] = []
    for old, block in zip(before, program.blocks):
        new = block.insts
        if all(a is b for a, b in zip(old, new)) and len(old) == len(new):
            continue
        if sorted(map(id, old)) != sorted(map(id, new)):
            out.append(f"{block.label}: instructions were lost or added")
            continue
        # what both orders begin with leaves the same behind: it need not be run
        same = next(i for i, (a, b) in enumerate(zip(old, new)) if a is not b)
        registers = {id(inst): _touched(inst) for inst in old[same:]}
        seen, end = _run(old[same:], registers)
        again, end_again = _run(new[same:], registers)
        other = [inst for inst in old[same:] if seen[id(inst)] != again[id(inst)]]
        out += [f"{block.label}: {inst!r} reads other values" for inst in other]
        if end != end_again:
            out.append(f"{block.label}: another instruction is the last to write a register")
        fixed_old, fixed_new = ([id(x) for x in insts if _effect(x)] for insts in (old, new))
        if fixed_old != fixed_new:
            out.append(f"{block.label}: accesses, waits or barriers changed places")
    return out


def _effect(inst: Inst) -> bool:
    return inst.row.unit not in _PURE or not inst.writes


_PURE = (*_LANES, Unit.MFMA, Unit.SALU)


def _touched(inst: Inst) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The registers that an instruction reads, EXEC if it runs under it, and those that it writes."""
    return members(inst.reads | (_EXEC if inst.row.reads_exec else 0)), members(inst.writes)


def _run(
    insts: Sequence[Inst], registers: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
) -> tuple[dict[int, list[int | None]], dict[int, int]]:
    """Per instruction the writers of the registers that it reads, and the last writer of every register."""
    writer: dict[int, int] = {}
    seen: dict[int, list[int | None]] = {}
    for inst in insts:
        key = id(inst)
        reads, writes = registers[key]
        seen[key] = list(map(writer.get, reads))
        writer.update(dict.fromkeys(writes, key))
    return seen, writer


@lru_cache(maxsize=4096)
def members(mask: int) -> tuple[int, ...]:
    """The members of a bit set, run by run. Kept: a program has few sets of registers, each many times."""
    out: list[int] = []
    while mask:
        first = (mask & -mask).bit_length() - 1
        rest = mask >> first
        n = (rest ^ (rest + 1)).bit_length() - 1
        out.extend(range(first, first + n))
        mask = rest >> n << first + n
    return tuple(out)
