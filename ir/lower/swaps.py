"""Changes of words in memory by compare-and-swap, several at a time.

In: generators, one per change, that yield a `Swap` where they need one, take the word that it replaced, and return what
comes of it; those that need none return at once. Out: what they returned. The swaps of a batch share a loop, so that a
lane waits for memory once for all of them, and once more for each time that another was faster.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import reduce
from typing import NamedTuple, TypeVar

from wavedsl.ir.kernel.kernel_ir import ENDLESS, Type, Value
from wavedsl.ir.lower.lower_mapped import MappedAccess

TOGETHER = 8
"""Swaps of a loop at most: each keeps a word and a mask."""

T = TypeVar("T")


class Swap(NamedTuple):
    """A word at a byte offset is to become `changed` of it where the mask holds, indivisibly."""

    voff: Value
    mask: Value
    kind: Type
    changed: Callable[[Value], Value]


Change = Generator[Swap, Value, T]
"""Of at most one swap."""


def carry_out(access: MappedAccess, changes: Iterable[Change[T]], together: int = TOGETHER) -> list[T]:
    """What each change returns, in their order. `together`: swaps of a loop at most."""
    found: dict[int, T] = {}
    waiting: list[tuple[int, Change[T], Swap]] = []
    count = 0

    def finish() -> None:
        olds = _until_swapped(access, [swap for _, _, swap in waiting]) if waiting else []
        for (i, change, _), old in zip(waiting, olds):
            try:
                change.send(old)
            except StopIteration as end:
                found[i] = end.value
        waiting.clear()

    for i, change in enumerate(changes):
        count += 1
        try:
            waiting.append((i, change, next(change)))
        except StopIteration as end:
            found[i] = end.value
        if len(waiting) == together:
            finish()
    finish()
    return [found[i] for i in range(count)]


def _until_swapped(access: MappedAccess, swaps: Sequence[Swap]) -> list[Value]:
    """The words that were replaced. Lanes try until each has had its turn with each."""
    b, n = access.b, len(swaps)
    starts = []
    for s in swaps:  # a look that no other access races with
        zero = b.const(0, s.kind)
        starts.append(access.atomic(s.voff, "cas", zero, zero, mask=s.mask))
    inits, uniform = [b.true, *(s.mask for s in swaps), *starts], [True] + [False] * 2 * n
    with b.for_(0, ENDLESS, 1, inits, label="swap", again=True, uniform=uniform, min_trips=1) as loop:
        pending, olds = loop.carried[1 : n + 1], loop.carried[n + 1 :]
        tried = [
            access.atomic(s.voff, "cas", old, s.changed(old), mask=p) for s, p, old in zip(swaps, pending, olds)
        ]
        failed = [b.pand(p, b.cmp("ne", new, old)) for p, new, old in zip(pending, tried, olds)]
        left = [b.select(f, new, old) for f, new, old in zip(failed, tried, olds)]
        loop.yield_(b.any_lane(reduce(b.por, failed)), *failed, *left)
    return list(loop.results[n + 1 :])


__all__ = ["Change", "Swap", "carry_out"]
