"""How many neighbouring elements of a value lie side by side in an array that is read or written through a mapping.

In: the coordinates of a mapping, expressions over the value's indices. Out: the largest power of two w such that along
a dimension, in each run of w elements that starts at a multiple of w, the contiguous coordinate counts up by one from a
multiple of w and no other coordinate changes. An access may then take w elements, and one comparison with each extent
decides for all of them where the contiguous extent is a multiple of w.

Two facts are derived of an expression over runs of w: it stays (`_stays`), or it counts (`_counts`).
"""

from __future__ import annotations

from typing import Any

MOST = 16
"""Elements of the longest run that is looked for: 16 bytes of the smallest dtype."""


def run_length(contiguous: Any, others: list[Any], along: Any) -> int:
    """The w above, for runs along the symbol `along`; 1 where there is none."""
    w = MOST
    while w > 1 and not (_counts(contiguous, along, w) and all(_stays(x, along, w) for x in others)):
        w //= 2
    return w


def _counts(e: Any, along: Any, w: int) -> bool:
    """Whether e is a multiple of w where a run starts and grows by one with each element."""
    if e == along:
        return True
    if e.is_Add:
        counting = [x for x in e.args if not _stays(x, along, w)]
        return len(counting) == 1 and _counts(counting[0], along, w) and all(
            _multiple(x, w) for x in e.args if x is not counting[0]
        )
    if e.func.__name__ == "Mod" and e.args[1].is_Integer:
        return int(e.args[1]) % w == 0 and _counts(e.args[0], along, w)
    return False


def _stays(e: Any, along: Any, w: int) -> bool:
    """Whether e is the same for all elements of a run."""
    if along not in e.free_symbols:
        return True
    if e.is_Add or e.is_Mul:
        return all(_stays(x, along, w) for x in e.args)
    if e.func.__name__ == "Mod":
        return all(_stays(x, along, w) for x in e.args)
    if e.func.__name__ == "floor":
        above, below = e.args[0].as_numer_denom()
        if _stays(above, along, w):
            return _stays(below, along, w)
        return below.is_Integer and int(below) % w == 0 and _counts(above, along, w)
    return False


def _multiple(e: Any, w: int) -> bool:
    """Whether the integer expression e is a multiple of w, as far as its literals say."""
    if e.is_Integer:
        return int(e) % w == 0
    if e.is_Add:
        return all(_multiple(x, w) for x in e.args)
    if e.is_Mul:  # of integers: a literal that is no integer would divide
        first = e.args[0]
        return bool(first.is_Integer) and int(first) % w == 0
    if e.func.__name__ == "Mod" and e.args[1].is_Integer:
        return int(e.args[1]) % w == 0 and _multiple(e.args[0], w)
    return False


__all__ = ["run_length"]
