"""Whether the functions of `reduce` and `scan` may be combined as kernels do it: on the data at hand.

A kernel reduces in whatever order its lanes and waves hold the elements, and scans in whatever groups. A function that
this does not suit has another result for every cut of the kernel and is right by chance, so the evaluator tries it:
some neighbours the other way round (`reduce`), three in both groups, and each with the identity. It warns at the
kernel's line, and goes on: results may differ in what nobody looks at, as in a search for any place of the largest.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from wavedsl.ir.dataflow.graph import Node

Arrays = list[Any]
SOME = 32
"""Neighbours along the dimension that are tried."""


class CombiningWarning(RuntimeWarning):
    """The result of a `reduce` or `scan` depends on how its elements are cut."""


def check_laws(
    node: Node, arrays: Arrays, identities: Sequence[Any], combined: Callable[[Arrays, Arrays], Arrays]
) -> None:
    """Warn where the combining function of `node` breaks a law on these elements, of which the last axis is combined.
    `combined`: the function, on arrays of elements."""
    count = arrays[0].shape[-1]
    if count < 2 or arrays[0].size == 0:
        return
    some = [x[..., : SOME + 2] for x in arrays]
    first, second = ([x[..., i : i + min(SOME, count - 1)] for x in some] for i in (0, 1))
    forwards = combined(first, second)
    if node.op == "reduce":
        backwards = combined(second, first)
        at = _differs(forwards, backwards, first, second)
        if at is not None:
            _warn(
                node, f"f({_at(first, at)}, {_at(second, at)}) is {_at(forwards, at)}, but the other way round "
                f"{_at(backwards, at)}: elements are reduced in any order",
                "operands must be able to change places; wd.scan keeps the order, and its last element is the whole",
            )  # fmt: skip
            return
    nothing = [np.full_like(x, i) for x, i in zip(first, identities)]
    sides = [(combined(nothing, first), "f(identity, {})")]  # a scan's end has nothing behind it
    if node.op == "reduce":
        sides.append((combined(first, nothing), "f({}, identity)"))
    for same, said in sides:
        at = _differs(same, first, first)
        if at is not None:
            _warn(
                node, f"{said.format(_at(first, at))} is {_at(same, at)}: what lies beyond a tile's end is the "
                f"identity, here {_text([np.asarray(i) for i in identities])}",
                "the identity is what changes no element: 0 for sums, 1 for products, NaN for wd.maximum",
            )  # fmt: skip
            return
    if count < 3:
        return
    a, b, c = ([x[..., i : i + min(SOME, count - 2)] for x in some] for i in (0, 1, 2))
    left, right = combined(combined(a, b), c), combined(a, combined(b, c))
    at = _differs(left, right, a, b, c)
    if at is not None:
        _warn(
            node, f"f(f({_at(a, at)}, {_at(b, at)}), {_at(c, at)}) is {_at(left, at)}, but grouped the other way "
            f"{_at(right, at)}: lanes combine groups of elements",
            "a function that is associative, such as that of a recurrence on (a, b) pairs; a loop goes one by one",
        )  # fmt: skip


def _differs(one: Arrays, other: Arrays, *given: Arrays) -> tuple[int, ...] | None:
    """Where two results are not the same, or for floats not within half of the digits of the largest number of the
    tuples: differences of means are made of means."""
    floats = [i for i, x in enumerate(one) if np.asarray(x).dtype.kind not in "biu"]
    size: Any = 0.0
    finite: Any = True
    with np.errstate(all="ignore"):
        for n, values in enumerate((one, other, *given)):
            for i in floats:
                numbers = np.abs(np.asarray(values[i]).astype(np.float64))
                size = np.maximum(size, np.where(np.isfinite(numbers), numbers, 0.0))
                if n > 1:
                    finite = finite & np.isfinite(numbers)
    for i, (x, y) in enumerate(zip(map(np.asarray, one), map(np.asarray, other))):
        if i not in floats:
            bad = x != y
        else:
            digits = {8: 52, 4: 23}.get(x.dtype.itemsize, 7)
            wide, also = x.astype(np.float64), y.astype(np.float64)
            with np.errstate(all="ignore"):
                bad = np.abs(wide - also) > size * 2.0 ** -(digits // 2)
            bad &= np.isfinite(wide) & np.isfinite(also)
            bad |= (np.isnan(wide) != np.isnan(also)) & finite
        if bad.any():
            return tuple(int(n) for n in np.argwhere(bad)[0])
    return None


def _at(arrays: Arrays, place: tuple[int, ...]) -> str:
    return _text([np.asarray(x)[place] for x in arrays])


def _text(values: Sequence[Any]) -> str:
    texts = [f"{v!s}" for v in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _warn(node: Node, what: str, hint: str) -> None:
    loc = node.loc
    said = f"{node.op}: {what}\n  help: {hint}"
    if loc is None:
        warnings.warn(said, CombiningWarning, stacklevel=2)
        return
    warnings.warn_explicit(said, CombiningWarning, loc.file, loc.line)


__all__ = ["CombiningWarning", "check_laws"]
