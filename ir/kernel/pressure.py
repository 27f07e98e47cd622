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


def pressure(kernel: Kernel, target: Target, literals: bool = True) -> int:
    """The most words per lane that are live together. Where a chip has scalar registers, what all lanes of a wave have
    in common counts for nothing; where it has none, a lane's place in global memory is a 64-bit address, which those
    that access the same place share. `literals`: whether constants take registers, which offsets of loads do not."""
    scalars = target.scalar_registers
    places: dict[tuple[int, ...], Value] = {}
    """Base and offsets of an access → a name for the address."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    words: dict[int, int] = {}
    parts: dict[int, tuple[Value, ...]] = {}
    ends: list[tuple[int, list[Value]]] = []
    at = 0

    def define(v: Value) -> None:
        first[v.id] = last[v.id] = at
        words[v.id] = 0 if scalars and v.uniform else v.type.words

    def use(v: Value) -> None:
        if v.id not in parts:
            last[v.id] = at
            return
        work = [v]
        while work:
            x = work.pop()
            last[x.id] = at
            if x.id in parts:
                work += parts[x.id]

    def walk(region: Region) -> None:
        nonlocal at
        for v in region.args:
            define(v)
        for op in region.ops:
            at += 1  # what an op reads may end where what it writes begins
            for v in op.args:
                if v.id in parts:
                    use(v)
                else:
                    last[v.id] = at
            if not scalars and op.name in GLOBAL and not op.args[1].uniform:
                key = tuple(v.id for v in op.args[:3])
                address = places.get(key)
                if address is None:
                    address = places[key] = Value(-1 - len(places), I64, False)
                    define(address)
                use(address)
            if ends:
                ends[-1][1].extend(op.args)
            started = at
            at += 1
            if op.regions:
                for body in op.regions:
                    ends.append((started, []))
                    walk(body)
                    _, inside = ends.pop()
                    if op.name == "for":  # the next trip uses again what was made before the loop
                        for v in inside:
                            if first.get(v.id, 0) <= started:
                                use(v)
                    if ends:
                        ends[-1][1].extend(v for v in inside if first.get(v.id, 0) <= started)
                    at += 1
            for v in op.results:
                define(v)
                if op.name == "const" and not literals:
                    words[v.id] = 0
                if op.name in NAMES:
                    words[v.id] = 0
                    parts[v.id] = op.args

    walk(kernel.body)
    change = [0] * (at + 2)
    for i, n in words.items():
        if n:
            change[first[i]] += n
            change[last[i] + 1] -= n
    return max(accumulate(change))


__all__ = ["pressure"]
