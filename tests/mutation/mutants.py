"""Mutants of target text: what a compiler's slip would look like, one slip at a time.

In: AMDGCN or PTX text as the compiler prints it. Out: `Mutant`s, each a text that differs in one instruction or in the
order of two neighbours. The idea: mutations act on lines and tokens, with no knowledge of what instructions mean, so
that nothing the back ends believe can hide a slip. `synchronisation` gives every deletion and every weakening of a
wait, barrier or nop; `random_slips` gives a seeded sample of shifts, swaps and drops.

Invariant: a mutant's text differs from its source, and equal arguments give equal mutants in equal order.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

KINDS = ("shift-register", "shift-immediate", "swap-instructions", "swap-operands", "drop")
"""What `random_slips` does, in equal shares."""

_AMD_REGISTER = re.compile(r"(?<![\w.\[:])([vsa])(?:(\d+)\b|\[(\d+):(\d+)\])")
_PTX_REGISTER = re.compile(r"%(rd|rs|rh|r|p|fd|f|h)(\d+)\b")
_NUMBER = re.compile(r"(?<![\w.%$])(-?)(0x[0-9a-fA-F]+|\d+)\b(?!\.\d)")
_COUNTER = re.compile(r"(vmcnt|lgkmcnt|expcnt)\((\d+)\)")


@dataclass(frozen=True)
class Instruction:
    """One instruction line of a text: its number from 0, and its parts without comment or terminator."""

    line: int
    mnemonic: str
    operands: str

    def __str__(self) -> str:
        return f"{self.mnemonic} {self.operands}".strip()


@dataclass(frozen=True)
class Mutant:
    """`text` with one slip. `lines`: numbers, from 0 in the source text, of the instructions it touches."""

    kind: str
    what: str
    lines: tuple[int, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.kind}, line {self.lines[0] + 1}: {self.what}"

    @property
    def line_dropped(self) -> bool:
        return self.kind == "drop" or self.kind.startswith("delete-")


def instructions(text: str) -> list[Instruction]:
    """The instruction lines of a text, in order."""
    return [i for i in _scan(text) if i is not None]


def _scan(text: str) -> Iterator[Instruction | None]:
    """Instructions in order; None where something that may be jumped to lies between two of them."""
    amd = ".amdgcn_target" in text
    inside = False
    for number, raw in enumerate(text.split("\n")):
        line = re.sub(r"\s*(;|//).*$" if amd else r"\s*//.*$", "", raw).strip()
        if amd:
            if line.startswith(".section") or line.startswith(".size"):
                return
            inside = inside or line.endswith(":")
        else:
            inside = inside or line == "{"
        if not inside or not line or line.startswith((".", "{", "}")):
            continue
        if line.endswith(":"):
            yield None
            continue
        words = line.rstrip(";").split(None, 1)
        if words[0].startswith("@"):
            words = (words[0] + " " + words[1]).split(None, 2)
            words = [words[0] + " " + words[1], *words[2:]]
        yield Instruction(number, words[0], words[1] if len(words) > 1 else "")


def _with(text: str, changes: dict[int, str | None]) -> str:
    """The text with instruction lines replaced, or emptied (None), so that line numbers stay."""
    lines = text.split("\n")
    for number, new in changes.items():
        end = "" if new is None or ".amdgcn_target" in text else ";"
        lines[number] = "" if new is None else f"\t{new}{end}"
    return "\n".join(lines)


def _replace(text: str, old: Instruction, kind: str, mnemonic: str, operands: str) -> Mutant:
    new = f"{mnemonic} {operands}".strip()
    return Mutant(kind, f"{old} -> {new}", (old.line,), _with(text, {old.line: new}))


def _drop(text: str, old: Instruction, kind: str) -> Mutant:
    return Mutant(kind, str(old), (old.line,), _with(text, {old.line: None}))


# ---- every wait, barrier, nop


def synchronisation(text: str) -> list[Mutant]:
    """Each deletion of a wait, barrier, nop or commit, and each weakening of a wait or nop by one."""
    out: list[Mutant] = []
    for i in instructions(text):
        name = i.mnemonic.split()[-1]
        if name == "s_waitcnt":
            out.append(_drop(text, i, "delete-wait"))
            for m in _COUNTER.finditer(i.operands):
                weaker = f"{i.operands[: m.start(2)]}{int(m[2]) + 1}{i.operands[m.end(2) :]}"
                out.append(_replace(text, i, "weaken-wait", i.mnemonic, weaker))
        elif name == "s_barrier" or name.startswith(("bar.", "barrier.")):
            out.append(_drop(text, i, "delete-barrier"))
        elif name == "s_nop":
            out.append(_drop(text, i, "delete-nop"))
            if int(i.operands):
                out.append(_replace(text, i, "shorten-nop", i.mnemonic, str(int(i.operands) - 1)))
        elif name.startswith(("cp.async.wait", "cp.async.bulk.wait")):
            out.append(_drop(text, i, "delete-wait"))
            if i.operands:
                out.append(_replace(text, i, "weaken-wait", i.mnemonic, str(int(i.operands) + 1)))
            else:
                out.append(_replace(text, i, "weaken-wait", "cp.async.wait_group", "1"))
        elif name.startswith(("cp.async.commit", "cp.async.bulk.commit")):
            out.append(_drop(text, i, "delete-commit"))
    return out


# ---- random slips


def random_slips(text: str, count: int, seed: int) -> list[Mutant]:
    """`count` different mutants, of each of KINDS about as many; fewer where the text has no more to give."""
    rng = random.Random(seed)
    sequence = list(_scan(text))
    found = [i for i in sequence if i is not None]
    neighbours = [(sequence[n], sequence[n + 1]) for n in range(len(sequence) - 1)]
    pairs = [(a, b) for a, b in neighbours if a is not None and b is not None and str(a) != str(b)]
    out: list[Mutant] = []
    seen = {text}
    for attempt in range(50 * count):
        if len(out) == count:
            break
        kind = KINDS[attempt % len(KINDS)]
        mutant = None
        if kind == "swap-instructions" and pairs:
            a, b = pairs[rng.randrange(len(pairs))]
            mutant = Mutant(kind, f"{a} <-> {b}", (a.line, b.line), _with(text, {a.line: str(b), b.line: str(a)}))
        elif found:
            i = found[rng.randrange(len(found))]
            mutant = _drop(text, i, kind) if kind == "drop" else _one(text, i, kind, rng)
        if mutant is not None and mutant.text not in seen:
            seen.add(mutant.text)
            out.append(mutant)
    return out


def _one(text: str, i: Instruction, kind: str, rng: random.Random) -> Mutant | None:
    """A shift or an operand swap of one instruction; None where it has no such operand."""
    if kind == "swap-operands":
        parts = split_operands(i.operands)
        if len(parts) < 2:
            return None
        a, b = sorted(rng.sample(range(len(parts)), 2))
        if parts[a] == parts[b]:
            return None
        parts[a], parts[b] = parts[b], parts[a]
        return _replace(text, i, kind, i.mnemonic, ", ".join(parts))
    if kind == "shift-immediate":
        if i.mnemonic.startswith("s_waitcnt") or "cp.async.wait" in i.mnemonic:
            return None  # those are weakened one by one
        tokens = list(_NUMBER.finditer(i.operands))
        if not tokens:
            return None
        m = tokens[rng.randrange(len(tokens))]
        value = int(m[1] + m[2], 0) + rng.choice((1, -1, 2, 4, 8, 16, -16))
        if value < 0 and not m[1]:
            value = int(m[2], 0) + 1
        return _replace(text, i, kind, i.mnemonic, i.operands[: m.start()] + str(value) + i.operands[m.end() :])
    amd = ".amdgcn_target" in text
    whole = i.mnemonic + " " + i.operands if "@" in i.mnemonic else i.operands
    tokens = list((_AMD_REGISTER if amd else _PTX_REGISTER).finditer(whole))
    if not tokens:
        return None
    m = tokens[rng.randrange(len(tokens))]
    sign = rng.choice((1, -1))
    if not amd:
        number = int(m[2]) + sign
        shifted = f"%{m[1]}{number if number >= 0 else 1}"
    elif m[2] is not None:
        number = int(m[2]) + sign
        shifted = f"{m[1]}{number if number >= 0 else 1}"
    else:
        first, last = int(m[3]), int(m[4])
        step = 4 if m[1] == "s" and last - first >= 3 else 2
        first += sign * step if first + sign * step >= 0 else step
        shifted = f"{m[1]}[{first}:{first + last - int(m[3])}]"
    whole = whole[: m.start()] + shifted + whole[m.end() :]
    return _replace(text, i, kind, *(("", whole) if "@" in i.mnemonic else (i.mnemonic, whole)))


def split_operands(operands: str) -> list[str]:
    """Operands at commas outside brackets; modifiers stay with the last one."""
    out, depth, start = [], 0, 0
    for at, c in enumerate(operands):
        depth += (c in "[{(") - (c in "]})")
        if c == "," and not depth:
            out.append(operands[start:at].strip())
            start = at + 1
    out.append(operands[start:].strip())
    return [x for x in out if x]
