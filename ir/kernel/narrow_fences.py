"""Fences among workgroups that order no more than somebody can tell.

In: a kernel. Out: the same kernel, its fences with what they are for (attribute `order`): "release" where only what was
written before has to be seen by others, "acquire" where only what others have released has to be seen after, both
(no attribute) or neither (`scope` "workgroup": the waves of this one still meet).

Workgroups learn of each other by atomic operations alone. What is written before a fence is released by the next
atomic behind it, so a fence that no atomic follows, up to the next fence, releases nothing. What an atomic gave is
acquired by the next fence, so one that no atomic whose result is used stands in front of, from the fence before, has
nothing to acquire. A fence whose `order` is known already, as those around the tickets of shared sums
(`dataflow/split_k.py`), stays as it is: whoever was not the last to arrive does not go on with what it learned, which
cannot be seen here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from wavedsl.ir.kernel.between import Between
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Value

TELLS, LEARNS = "tells", "learns"
"""What an atomic does: others may learn of it; its result says what others did."""


def narrow_fences(kernel: Kernel) -> int:
    """Give fences their order or scope, in place; returns how many have one now."""
    found = list(wide(kernel))
    for op, attrs in found:
        op.attrs.update(attrs)
    return len(found)


def wide(kernel: Kernel) -> Iterator[tuple[Op, dict[str, str]]]:
    """The fences that order more than somebody can tell, each with the attributes that say so."""
    fences = [op for op in kernel.body.walk() if op.name == "fence" and not op.attrs.keys() & {"scope", "order"}]
    if not fences:
        return
    used: set[Value] = set()
    for op in kernel.body.walk():
        used.update(op.args)

    def done(op: Op) -> tuple[str, ...]:
        if not (op.name in ("atomic.global", "atomic.far") or op.attrs.get("adds")):
            return ()
        return (TELLS, LEARNS) if not used.isdisjoint(op.results) else (TELLS,)

    between = Between(kernel, done)
    for op in fences:
        releases = TELLS in between.reached(op, 1, partial(_orders, "release"))
        acquires = LEARNS in between.reached(op, -1, partial(_orders, "acquire"))
        if not releases and not acquires:
            yield op, {"scope": "workgroup"}
        elif not (releases and acquires):
            yield op, {"order": "release" if releases else "acquire"}


def _orders(how: str, op: Op) -> bool:
    """Whether this is a fence among workgroups that releases, or acquires."""
    return op.name == "fence" and "scope" not in op.attrs and op.attrs.get("order", how) == how


__all__ = ["narrow_fences", "wide"]
