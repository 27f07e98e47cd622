"""Why a surviving mutant is no defect: proofs that use nothing of the compiler's passes or the emulator's checks.

In: a case and a mutant that no run exposed. Out: the name of the proof in REASONS, or None: then a person has to look,
and the mutant is listed in survivors.json with what was found.

A proof is about the text, which is compiled for its sizes, and all arrays it may be launched with. It has two halves.
Timing: no wait, hazard or order of shared memory is broken that the original keeps (`amd_replay` for AMDGCN on every
path; `order` by the addresses of shared memory, which do not depend on data). Values: a few changes keep them by their
form, and for all others both texts store bytes of the same names (`terms`).
"""

from __future__ import annotations

import functools
import re

import amd_replay
import terms
import trial
from mutants import Instruction, Mutant, instructions, split_operands
from names import Unknown

import wavedsl as wd

REASONS = {
    "covered": "on every path, all results are still waited for, and all wait states kept",
    "nothing shared follows": "no shared-memory access can follow on any path",
    "one warp": "the workgroup is one warp, whose lanes meet at the next `.sync` instruction anyway",
    "independent": "neighbours that share no register and no memory may change places",
    "commutes": "the operation commutes",
    "same terms": "for all data every array byte gets the same expression of the inputs; shared accesses stay in order",
}
SYNCHRONISING = ("s_barrier", "bar.", "barrier.", "cp.async.wait", "cp.async.commit", "fence", "membar")
_COMMUTATIVE = re.compile(
    r"^(v|s)_(and|or|xor|add|mul|max|min)_|^v_(and|or|xor)_b32|^(add|and|or|xor|min|max|mul)\.|^v_mul_u32_u24"
)


def prove(case: trial.Case, mutant: Mutant) -> str | None:
    """The name of a proof that the mutant is as good as its source, or None."""
    before = {i.line: i for i in instructions(case.asm)}
    after = {i.line: i for i in instructions(mutant.text)}
    amd = case.target.startswith("gfx")
    old = [before[line] for line in mutant.lines]
    if _one_warp(case, mutant, before):
        return "one warp"
    try:
        if amd and not amd_replay.broken(mutant.text, case.target) <= amd_replay.broken(case.asm, case.target):
            return None
        copied = amd and any(amd_replay.copies_to_lds(i) for i in before.values())
        if amd and mutant.kind.endswith(("-wait", "-nop")) and not (copied and mutant.kind.endswith("-wait")):
            return "covered"
        if mutant.kind in ("delete-wait", "weaken-wait", "delete-barrier", "delete-commit"):
            if not _shared_follows(case, mutant.lines[0]):
                return "nothing shared follows"
        if mutant.kind == "swap-operands" and _commutes(old[0], after[mutant.lines[0]]):
            return "commutes"
        counted = copied and _changes_a_count(*old)
        if mutant.kind == "swap-instructions" and _order_is_free(*old) and _independent(case, *old) and not counted:
            return "independent"
    except amd_replay.Unknown:
        return None
    return "same terms" if _same_terms(case, mutant.text) else None


def _changes_a_count(*touched: Instruction) -> bool:
    """Whether a wait is among instructions with what it may count, or with the barrier behind which others rely on it:
    then other copies to LDS may have arrived there."""
    others = (i for i in touched if _is_memory(i) or _name(i) == "s_barrier")
    return any(_name(i) == "s_waitcnt" for i in touched) and any(others)


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


def _order_is_free(a: Instruction, b: Instruction) -> bool:
    """Whether no shared access changes places with what orders them, nor two of those with each other."""
    synchronising = sum(_name(i).startswith(SYNCHRONISING) for i in (a, b))
    return synchronising == 0 or (synchronising == 1 and not _is_shared(a) and not _is_shared(b))


# ---- values


@functools.lru_cache(maxsize=2)
def _original(case_name: str, target: str) -> terms.Outcome:
    case = trial.case(case_name, target)
    return terms.outcome(case, case.asm)


def _same_terms(case: trial.Case, text: str) -> bool:
    """Whether a text stores what the original stores, for all data."""
    try:
        return terms.outcome(case, text).same(_original(case.name, case.target))
    except (Unknown, wd.WaveError):
        return False


def _commutes(before: Instruction, after: Instruction) -> bool:
    old, new = split_operands(before.operands), split_operands(after.operands)
    return (
        len(old) == 3 and bool(_COMMUTATIVE.match(before.mnemonic)) and old[0] == new[0] and sorted(old) == sorted(new)
    )


# ---- shared memory


def _name(i: Instruction) -> str:
    return i.mnemonic.split()[-1]


def _is_shared(i: Instruction) -> bool:
    name = _name(i)
    direct = amd_replay.copies_to_lds(i)
    return (name.startswith(("ds_", "ldmatrix", "cp.async.c")) and "commit" not in name) or ".shared" in name or direct


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
