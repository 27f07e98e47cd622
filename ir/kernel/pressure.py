"""Registers that the values of a kernel take together, in the order in which it computes them.

In: kernel IR. Out: the most 32-bit registers of a lane that are live at one place. What a back end moves, folds or
computes again is not known here, so it is an estimate, but one of all that the lowering has made: masks, addresses, the
elements of every value.
"""

from __future__ import annotations

from itertools import accumulate

from wavedsl.ir.kernel.kernel_ir import I64, Kernel, Region, Value
from wavedsl.ir.target import Target

GLOBAL = frozenset({"load.global", "store.global", "atomic.global"})
NAMES = frozenset({"vec", "slice", "bitcast"})
"""Operations whose results are registers of what they are made of."""


def pressure(kernel: Kernel, target: Target) -> int:
    """The most words per lane that are live together. Where a chip has scalar registers, what all lanes of a wave have
    in common counts for nothing; where it has none, a lane's place in global memory is a 64-bit address, which those
    that access the same place share."""
    return pressures(kernel, target)[0]


def pressures(kernel: Kernel, target: Target) -> tuple[int, int]:
    """The same, and without constants, which take no registers where they are offsets of loads."""
    scalars = target.scalar_registers
    places: dict[tuple[int, int, int], Value] = {}
    """Base and offsets of an access → a name for the address."""
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    """Where a value is used for the last time, by its own name."""
    words: dict[Value, int] = {}
    literals: dict[Value, int] = {}
    """Of values that take registers, and of constants that do."""
    parts: list[Value] = []
    loops: list[set[Value]] = []
    """What has been used so far in the loops that are open, inner ones behind outer ones."""
    at = 0

    def walk(region: Region) -> None:
        nonlocal at
        for v in region.args:
            first[v] = at
            if not (scalars and v.uniform):
                words[v] = v.type.words
        for op in region.ops:
            at += 1  # what an op reads may end where what it writes begins
            args, name = op.args, op.name
            for v in args:
                last[v] = at
            if not scalars and name in GLOBAL and not args[1].uniform:
                key = args[0].id, args[1].id, args[2].id
                address = places.get(key)
                if address is None:
                    address = places[key] = Value(-1 - len(places), I64, False)
                    first[address], words[address] = at, I64.words
                last[address] = at
            if loops:
                loops[-1].update(args)
            started = at
            at += 1
            if op.regions:
                for body in op.regions:
                    if name == "for":
                        loops.append(set())
                    walk(body)
                    if name == "for":  # the next trip uses again what was made before the loop
                        before = [v for v in loops.pop() if first.get(v, 0) <= started]
                        last.update(dict.fromkeys(before, at))
                        if loops:
                            loops[-1].update(before)
                    at += 1
            for v in op.results:
                first[v] = at
                if name in NAMES:
                    parts.append(v)
                elif not (scalars and v.uniform):
                    (literals if name == "const" else words)[v] = v.type.words

    walk(kernel.body)
    for v in reversed(parts):  # who uses a name uses what it is made of
        end = last.get(v, 0)
        for part in v.op.args if end and v.op is not None else ():
            if last[part] < end:
                last[part] = end
    change = [0] * (at + 2)

    def hold(words: dict[Value, int]) -> int:
        """The most at one place, with these beside those before."""
        for v, n in words.items():
            start, end = first[v], last.get(v, 0)
            change[start] += n
            change[(end if end > start else start) + 1] -= n
        return max(accumulate(change))

    bare = hold(words)
    return (hold(literals) if literals else bare), bare


__all__ = ["pressure", "pressures"]
