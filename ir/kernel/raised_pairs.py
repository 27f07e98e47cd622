"""Pairs of halves that integers are widened to, and that take a power of two off together with what is subtracted.

In: the users of a value that `widen` makes. Out: the word that everybody subtracts from it, if its numbers are small
integers: zero points that differ between columns. An integer is made as a power of two plus itself
(`codegen/*/select_convert.py`); the power is then added to that word, once for all the words that it is subtracted
from, and no difference takes it off by itself. All sums are integers that the type holds, so no bit changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from wavedsl.ir.kernel.kernel_ir import Op, Value
from wavedsl.ir.kernel.whole_floats import EXACT, whole

_DEEP = 4
"""Operations one behind the other that are looked through."""


def raised(pairs: Iterable[Op], uses: Mapping[int, int]) -> dict[int, Value]:
    """Per number of a `widen`'s result the word that its only user, one of these `pair` operations, subtracts; `uses`
    counts values' users by number."""
    found: dict[int, Value] = {}
    for op in pairs:
        if op.name == "pair" and op.attrs["operation"] == "fsub":
            made, taken = op.args
            source = made.op.attrs["source"] if made.op is not None and made.op.name == "widen" else None
            if source is not None and source.is_int and taken.const is None and uses.get(made.id) == 1:
                found[made.id] = taken
    shared = Counter(v.id for v in found.values())
    return {i: v for i, v in found.items() if shared[v.id] > 1}


def fits(made: Op, taken: Value, power: int) -> bool:
    """Whether the type holds all sums where `power` is added to the numbers of a `widen` and to what is taken off."""
    source, dtype = made.attrs["source"], made.attrs["dtype"]
    ends = _ends(taken, _DEEP)
    most = power + (1 << source.bits)
    return ends is not None and max(-ends[0], ends[1]) + most <= EXACT[dtype.name]


def _ends(word: Value, deep: int) -> tuple[int, int] | None:
    """The least and the most that the integers in a word of halves may be; None where they may be no integers."""
    op = word.op
    if op is None or not deep:
        return None
    if op.name == "widen" and op.attrs["source"].is_int:
        source = op.attrs["source"]
        low = -(1 << source.bits - 1) if source.is_signed else 0
        return low, low + (1 << source.bits) - 1
    if op.name == "pack":
        found = [whole(v) for v in op.args]
    elif op.name == "permute_bytes":
        places = [op.attrs["selector"] >> 8 * i & 0xFF for i in range(4)]
        if any(p > 7 or p % 2 != i % 2 for i, p in enumerate(places)) or any(
            places[i] + 1 != places[i + 1] for i in (0, 2)
        ):
            return None
        found = [_ends(op.args[places[i] < 4], deep - 1) for i in (0, 2)]
    else:
        return None
    if any(ends is None for ends in found):
        return None
    known = [ends for ends in found if ends is not None]
    return min(low for low, _ in known), max(high for _, high in known)


__all__ = ["fits", "raised"]
