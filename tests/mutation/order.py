"""Who touches which byte of shared memory between which barriers, and whether two of them may meet.

In: the accesses of a run, in program order. Out: the number of conflicts. An access lies in a span of epochs (barriers
its workgroup has passed): one epoch for an ordinary one, from the issue to the wait for an asynchronous copy. Two
accesses of different actors (waves of AMDGCN, threads of PTX) to one byte conflict when their spans meet and one of
them writes, unless both write what has the same name. Accesses of one actor are in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_NOBODY, _SEVERAL = -1, -2


@dataclass
class Access:
    """One executed shared-memory instruction; all arrays are over its active lanes."""

    writes: bool
    group: Any
    """Workgroup."""
    actor: Any
    first: Any
    """Epoch at issue."""
    last: Any
    """Epoch at which it is known to be done."""
    address: Any
    size: int
    names: Any = None
    """Of the bytes written, [byte, lane]."""


def conflicts(accesses: list[Access]) -> int:
    """How many bytes of accesses conflict with a write."""
    if not accesses:
        return 0
    groups = 1 + max(int(a.group.max(initial=0)) for a in accesses)
    reach = max(int(a.address.max(initial=0)) + a.size for a in accesses)
    epochs = 1 + max(int(a.last.max(initial=0)) for a in accesses)
    shape = (groups, reach, epochs)
    actor, name = np.full(shape, _NOBODY, np.int32), np.zeros(shape, np.uint64)
    found = 0
    for a in accesses:
        if a.writes:
            for b in range(a.size):
                for late in range(int((a.last - a.first).max(initial=0)) + 1):
                    on = a.first + late <= a.last
                    found += _write(actor, name, (a.group[on], a.address[on] + b, a.first[on] + late), a.actor[on],
                                    a.names[b][on])  # fmt: skip
    for a in accesses:
        if not a.writes:
            for b in range(a.size):
                there = actor[a.group, a.address + b, a.first]
                found += int(((there != _NOBODY) & (there != a.actor)).sum())
    return found


def _write(actor: Any, name: Any, cell: tuple[Any, Any, Any], who: Any, what: Any) -> int:
    """Note one byte per lane. Lanes of one instruction may share cells: none of them is last."""
    there = actor[cell]
    others = (there != _NOBODY) & (there != who)
    found = int((others & (name[cell] != what)).sum())
    actor[cell] = np.where(others, _SEVERAL, who)
    name[cell] = what
    found += int((name[cell] != what).sum())
    lost = actor[cell] != who
    actor[tuple(c[lost] for c in cell)] = _SEVERAL
    return found
