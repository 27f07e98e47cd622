"""Numbers of 64 bits that lie in shared memory come to registers of 64 bits, not as two words that are joined.

In: flat code with parallel copies. Out: the same code, in which pairs of words that are only ever loaded, split, copied
and joined together are registers of 64 bits. The kernel IR loads words; ptxas keeps those apart, and moves them into
the aligned registers that matrix instructions of f64 read as soon as the one before has been issued: the move then
waits until that has read its own.
Invariant: nothing but the width of registers changes. Both words of a pair are written, and read, by the same items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from wavedsl.codegen.ptx.isa import Inst
from wavedsl.codegen.ptx.machine import UNDEFINED, Copy, Ins, Reg, operands_of

Pair = tuple[Reg, Reg]
"""Registers of the low and the high word."""


def _loads(item: Ins) -> bool:
    """Whether it loads several words of shared memory, and nothing is asked of the caches."""
    mods = item.inst.mods
    plain = item.inst.effects == {"load"} and mods.keys() == {"space", "vec", "type"}
    return plain and mods["space"] == "shared" and mods["type"] == "b32"


def _moves(item: Ins) -> bool:
    """Whether it is a move of 64 bits."""
    return item.inst.effects == {"move"} and item.inst.mods["type"] == "b64"


def wide_words(code: list[Any], lookup: Callable[..., Inst], registers: int) -> list[Any]:
    """The code with pairs of words as 64-bit registers, which are numbered from `registers` + 1 on. `lookup` gives the
    instruction of an opcode's words."""
    pairs = _pairs(code)
    if not pairs:
        return code
    made = {lo.id: Reg(number, "b64", lo.level) for number, (lo, _) in enumerate(pairs.values(), registers + 1)}
    high = {hi.id for _, hi in pairs.values()}
    out: list[Any] = []
    for item in code:
        if type(item) is Copy:
            kept = [
                (made.get(dst.id, dst), made.get(src.id, src) if type(src) is Reg else src)
                for dst, src in item.pairs if dst.id not in high
            ]  # fmt: skip
            out.append(Copy(kept, item.loc, item.carried))
            continue
        words = _words(item)
        if not words or words[0].id not in made:
            out.append(item)
        elif _loads(item):
            regs = tuple(made[lo.id] for lo in words[::2])
            inst = lookup("ld", "shared", "b64") if len(regs) == 1 else lookup("ld", "shared", "v2", "b64")
            out.append(Ins(inst, (regs[0] if len(regs) == 1 else regs, *item.args[1:]), item.loc, note=item.note))
        elif type(item.args[0]) is tuple:
            out.append(Copy([(made[words[0].id], item.args[1])], item.loc))
        else:
            out.append(Copy([(item.args[0], made[words[0].id])], item.loc))
    return out


def _words(item: Any) -> tuple[Reg, ...]:
    """The words that an item splits, joins or loads: pairs of registers; none of any other item."""
    if type(item) is not Ins or item.guard is not None:
        return ()
    if _loads(item):
        found = item.args[0]
    elif _moves(item):
        found = next((x for x in item.args if type(x) is tuple), ())
    else:
        return ()
    return found if found and all(type(x) is Reg for x in found) else ()


def _pairs(code: Iterable[Any]) -> dict[int, Pair]:
    """Words that are joined, or copied to such, and otherwise only loaded, split and copied together, by the low one's
    id."""
    code = list(code)
    pairs: dict[int, Pair] = {}
    for item in code:
        words = _words(item)
        if words and _moves(item) and type(item.args[0]) is Reg:
            pairs[words[0].id] = words[0], words[1]
    grown = True
    while grown:
        grown = False
        for item in code:
            sources = {dst.id: src for dst, src in item.pairs} if type(item) is Copy else {}
            for lo, hi in [pairs[i] for i in sources if i in pairs]:
                two = sources[lo.id], sources.get(hi.id)
                if type(two[0]) is type(two[1]) is Reg and two[0].id not in pairs:
                    pairs[two[0].id] = two  # type: ignore[assignment]
                    grown = True
    while pairs:
        apart = _apart(code, pairs)
        if not apart:
            return pairs
        pairs = {i: pair for i, pair in pairs.items() if apart.isdisjoint((pair[0].id, pair[1].id))}
    return pairs


def _apart(code: Iterable[Any], pairs: dict[int, Pair]) -> set[int]:
    """Ids of words of `pairs` that some item writes or reads in another way than together."""
    partner = {lo.id: hi.id for lo, hi in pairs.values()}
    known = set(partner) | set(partner.values())
    apart = {i for i in partner if i in partner.values()}
    seen: set[int] = set()
    for hi in partner.values():
        (apart if hi in seen else seen).add(hi)

    def together(words: Iterable[tuple[Any, Any]]) -> bool:
        return all(type(lo) is type(hi) is Reg and partner.get(lo.id, -1) == hi.id for lo, hi in words)

    for item in code:
        if type(item) is Copy:
            sources = {dst.id: src for dst, src in item.pairs}
            for dst, src in item.pairs:
                if type(src) is Reg and src.id in known and dst.id not in known:
                    apart.add(src.id)
            for i in known & sources.keys():
                if i in partner and partner[i] in sources:
                    two = sources[i], sources[partner[i]]
                    if not (two[0] is two[1] is UNDEFINED or together([two])):
                        apart.add(i)
                        apart.update(x.id for x in two if type(x) is Reg and x.id in known)
                elif i in partner or not any(lo in sources for lo, hi in partner.items() if hi == i):
                    apart.add(i)
            continue
        if type(item) is not Ins:
            continue
        words = _words(item)
        if words and together(zip(words[::2], words[1::2])):
            continue
        writes, reads = operands_of(item)
        apart.update(r.id for r in (*writes, *reads) if r.id in known)
    return apart


__all__ = ["wide_words"]
