"""Why a surviving mutant is no defect: proofs that use nothing of the compiler's passes or the emulator's checks.

In: a case and a mutant that no run exposed. Out: the name of the proof in REASONS, or None: then a person has to look,
and the mutant is listed in survivors.json with what was found.

A proof is about the launch of the case: the text is compiled for its sizes, and no address or branch depends on data.
What only leaves all results of that launch right is no proof, and is not called one: see `same_results`.

A proof has two halves. Timing: no wait, hazard or order of shared memory is broken that the original keeps
(`amd_replay` for AMDGCN; for PTX, whose only asynchronous instructions are copies, the sequence of synchronising and
shared-memory instructions). Values: no other instruction reads anything else than before (`reads`), and the mutated one
touches no memory and decides no path, for nobody reads where it would store or fault.
"""

from __future__ import annotations

import functools
import re

import amd_replay
import reads
import trial
from mutants import Instruction, Mutant, instructions, split_operands

REASONS = {
    "covered": "on every path, all results are still waited for, and all wait states kept",
    "nothing shared follows": "no shared-memory access can follow on any path",
    "no wave meets another": "by addresses, no two waves touch the same LDS byte between the barriers that are left",
    "one warp": "the workgroup is one warp, whose lanes meet at the next `.sync` instruction anyway",
    "independent": "neighbours that share no register and no memory may change places",
    "commutes": "the operation commutes",
    "same reads": "in this launch every other instruction reads what it read before: the value is the same, or unused",
    "unused write": "a write of shared memory is gone, and every other instruction reads what it read before",
}
SYNCHRONISING = ("s_barrier", "bar.", "barrier.", "cp.async.wait", "cp.async.commit", "fence", "membar")
_COMMUTATIVE = re.compile(
    r"^(v|s)_(and|or|xor|add|mul|max|min)_|^v_(and|or|xor)_b32|^(add|and|or|xor|min|max|mul)\.|^v_mul_u32_u24"
)


SAME_RESULTS = "timing is kept, and all results of this launch are right: the change reaches only what is masked here"


def prove(case: trial.Case, mutant: Mutant) -> str | None:
    """The name of a proof that the mutant is as good as its source, or None."""
    before = {i.line: i for i in instructions(case.asm)}
    after = {i.line: i for i in instructions(mutant.text)}
    try:
        if not _one_warp(case, mutant, before) and not _timing(case, mutant, before, after):
            return None
    except amd_replay.Unknown:
        return None
    if _one_warp(case, mutant, before):
        return "one warp"
    if mutant.kind in ("delete-wait", "weaken-wait", "delete-nop", "shorten-nop"):
        return "covered" if case.target.startswith("gfx") else "nothing shared follows"
    if mutant.kind in ("delete-barrier", "delete-commit"):
        return "nothing shared follows" if not _shared_follows(case, mutant.lines[0]) else "no wave meets another"
    if mutant.kind == "swap-operands" and _commutes(before[mutant.lines[0]], after[mutant.lines[0]]):
        return "commutes"
    touched = [before[line] for line in mutant.lines]
    if mutant.kind == "swap-instructions":
        return "independent" if _independent(case, *touched) else None
    changed = [*touched, *(after[i.line] for i in touched if i.line in after)]
    if any(_decides(i) for i in changed):
        return None
    if any(_is_memory(i) for i in changed):
        unused = mutant.kind == "drop" and _is_shared(touched[0])
        return "unused write" if unused and _same_reads(case, mutant) else None
    return "same reads" if _same_reads(case, mutant) else None


def same_results(case: trial.Case, mutant: Mutant) -> bool:
    """Weaker than a proof: timing is kept as in one, and the launch of the case has the right results. A mutant that is
    wrong in another launch passes here, so these are counted apart. Only for mutants that no run has exposed."""
    before = {i.line: i for i in instructions(case.asm)}
    after = {i.line: i for i in instructions(mutant.text)}
    touched = set(mutant.lines)
    try:
        if not _timing(case, mutant, before, after):
            return False
        records = reads.trace(case, mutant.text)
        lines, were = ([x for x, _ in r if x not in touched] for r in (records, _original(case.name, case.target)))
        if lines != were:
            # Other paths were taken: the order of shared memory has to be looked at again, by addresses or, for PTX,
            # by that of a loop of several trips which makes more or fewer of the same.
            return not _races(case, mutant.text) if case.target.startswith("gfx") else set(lines) == set(were)
    except (amd_replay.Unknown, trial.Found):
        return False
    return True


def _decides(i: Instruction) -> bool:
    """Whether an instruction decides the path."""
    name = _name(i)
    return name in ("bra", "ret", "exit", "trap") or name.startswith(("s_endpgm", "s_branch", "s_cbranch"))


def _is_memory(i: Instruction) -> bool:
    """Whether an instruction touches memory of any kind."""
    name = _name(i)
    amd = ("buffer_", "global_", "flat_", "scratch_", "s_load", "s_store", "s_buffer", "ds_")
    return name.startswith((*amd, "ld.", "st.", "red.", "atom.", "cp.async.c", "ldmatrix")) and "commit" not in name


def _independent(case: trial.Case, a: Instruction, b: Instruction) -> bool:
    """Whether two neighbours share no register that one writes, no memory that one writes, and decide no path."""
    if _decides(a) or _decides(b):
        return False
    if case.target.startswith("gfx"):
        x, y = amd_replay.effect(a), amd_replay.effect(b)
        stores = any("_store" in e.name or e.lds == "write" for e in (x, y))
        return not (x.queue and y.queue and stores) and not x.writes & (y.reads | y.writes) and not y.writes & x.reads
    (xr, xw, x_stores), (yr, yw, y_stores) = _ptx_effect(a), _ptx_effect(b)
    both = _is_memory(a) and _is_memory(b) and (x_stores or y_stores)
    return not both and not xw & (yr | yw) and not yw & xr


_PTX_REGISTER = re.compile(r"%[a-z]+\d+")


def _ptx_effect(i: Instruction) -> tuple[set[str], set[str], bool]:
    """Registers read, registers written, and whether memory is, of a PTX instruction."""
    name, parts = _name(i), split_operands(i.operands)
    everything = set(_PTX_REGISTER.findall(i.mnemonic + " " + i.operands))
    if name.startswith(("st.", "cp.async", "bar", "red.", "atom.")):
        return everything, set(), True
    writes = set(_PTX_REGISTER.findall(parts[0])) if parts else set()
    rest = set(_PTX_REGISTER.findall(" ".join([i.mnemonic, *parts[1:]])))
    # under a predicate, what was there stays in the other lanes
    return (rest | writes if "@" in i.mnemonic else rest), writes, False


def _one_warp(case: trial.Case, mutant: Mutant, before: dict[int, Instruction]) -> bool:
    """Whether only a barrier of a workgroup of one warp is gone or has changed places with something else than a
    shared access. Each lane has waited for its copies before."""
    if case.target.startswith("gfx") or case.block[0] * case.block[1] * case.block[2] > 32:
        return False
    touched = [before[line] for line in mutant.lines]
    barriers = [i for i in touched if _name(i).startswith(("bar.", "barrier."))]
    gone = mutant.line_dropped or mutant.kind == "swap-instructions"
    return gone and bool(barriers) and not any(_is_shared(i) for i in touched)


# ---- values


@functools.lru_cache(maxsize=2)
def _original(case_name: str, target: str) -> tuple[reads.Record, ...]:
    case = trial.case(case_name, target)
    return tuple(reads.trace(case, case.asm))


def _same_reads(case: trial.Case, mutant: Mutant) -> bool:
    """Whether all instructions but the mutated ones read, in the same order, what they read in the original."""
    touched = set(mutant.lines)
    try:
        records = reads.trace(case, mutant.text)
    except (amd_replay.Unknown, trial.Found):
        return False
    original = _original(case.name, case.target)
    return [r for r in records if r[0] not in touched] == [r for r in original if r[0] not in touched]


def _races(case: trial.Case, text: str) -> int:
    """Conflicts of LDS accesses between two barriers, by addresses; AMDGCN only."""
    accesses: list[reads.Access] = []
    reads.trace(case, text, accesses)
    return reads.races(accesses)


def _commutes(before: Instruction, after: Instruction) -> bool:
    old, new = split_operands(before.operands), split_operands(after.operands)
    return (
        len(old) == 3 and bool(_COMMUTATIVE.match(before.mnemonic)) and old[0] == new[0] and sorted(old) == sorted(new)
    )


# ---- timing


def _timing(case: trial.Case, mutant: Mutant, before: dict[int, Instruction], after: dict[int, Instruction]) -> bool:
    """Whether what the original keeps of order and waits is kept."""
    if case.target.startswith("gfx"):
        if not amd_replay.broken(mutant.text, case.target) <= amd_replay.broken(case.asm, case.target):
            return False
        if mutant.kind.endswith(("-wait", "-nop")):
            return True  # the replay above knows all that these do
    old = [before[line] for line in mutant.lines]
    shared = [i for i in old if _is_shared(i)]
    synchronising = [i for i in old if _name(i).startswith(SYNCHRONISING)]
    if not shared and not synchronising:
        return not any(_is_shared(after[i.line]) for i in old if i.line in after and mutant.kind != "swap-instructions")
    if mutant.kind == "swap-instructions":
        if _name(old[0]).startswith("cp.async.commit") and _name(old[1]).startswith("cp.async.c"):
            return True  # the copy joins an older group, which is waited for no later
        # between the same two barriers before and after, for every instruction of other waves too
        return not synchronising or (not shared and len(synchronising) == 1)
    if all(_other_barrier(before[line], after.get(line)) for line in mutant.lines):
        return True
    if not synchronising and (mutant.line_dropped or all(_same_target(before[x], after[x]) for x in mutant.lines)):
        return True  # accesses become fewer, or are where they were
    if case.target.startswith("gfx") and not any(_name(i).startswith("s_waitcnt") for i in old):
        return not _races(case, mutant.text)
    return not any(_shared_follows(case, line) for line in mutant.lines)


def _other_barrier(old: Instruction, new: Instruction | None) -> bool:
    """Whether only the number of a barrier has changed: all threads come here, so they name the same one."""
    if new is None or not _name(old).startswith("bar.sync") or _name(new) != _name(old):
        return False
    return new.operands.isdigit() and int(new.operands) < 16


def _name(i: Instruction) -> str:
    return i.mnemonic.split()[-1]


def _is_shared(i: Instruction) -> bool:
    name = _name(i)
    return (name.startswith(("ds_", "ldmatrix", "cp.async.c")) and "commit" not in name) or ".shared" in name


def _same_target(old: Instruction, new: Instruction) -> bool:
    """Whether a shared access still goes to the same place: its mnemonic, address and offset are as before."""
    if _name(old) != _name(new):
        return False
    return _place(old) == _place(new)


def _place(i: Instruction) -> tuple[str, ...]:
    parts = split_operands(i.operands)
    name = _name(i)
    if name.startswith("ds_"):
        address = parts[0] if name.startswith("ds_write") else parts[1]
        offset = parts[-1].partition(" ")[2]
        return (address.split()[0], offset)
    return (parts[0],) if name.startswith(("st.", "cp.async")) else (parts[1],)


def _shared_follows(case: trial.Case, line: int) -> bool:
    """Whether a shared-memory access may be executed after a line of the original."""
    if case.target.startswith("gfx"):
        return any(e.lds for e in amd_replay.reachable(amd_replay.program(case.asm), line))
    found = instructions(case.asm)
    labels: dict[str, int] = {}
    for number, raw in enumerate(case.asm.split("\n")):
        if (word := raw.strip()).endswith(":"):
            labels[word[:-1]] = number
    work, seen = [line], set()
    while work:
        first = work.pop()
        for i in found:
            if i.line <= first:
                continue
            if i.line in seen:
                break
            seen.add(i.line)
            if _is_shared(i) and not _name(i).startswith("cp.async"):
                return True
            if _name(i) == "bra":
                work.append(labels[i.operands.strip()])
                if not i.mnemonic.startswith("@"):
                    break
            if _name(i) in ("ret", "exit"):
                break
    return False
