"""Loads whose places the code computes, as early as these are known.

In: the steps of straight code, or of a loop in the program's order. Out: how early such loads, and what their places
are computed of, may stand; no other step is in it.

A wave waits for memory where a result is used, so loads that stand between uses of others cost the whole latency each:
nine fields of a record whose number was loaded took ten of them. Taken by depth, first what all the places are made of,
then all the fields, they take two. What may come early is computed element by element; a load behind anything else,
behind a loop or of an array that is written stays where it stands. So do loads beyond `EARLY_WORDS` registers, since
all are held together.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from wavedsl.ir.schedule.steps import Key, Step

EARLY_WORDS = 64
"""Registers of loads that come early: eight of 16 bytes, as many as are on their way where a kernel goes element by
element (`late_reads`)."""


def early_loads(steps: Sequence[Step], written: Collection[str]) -> dict[int, int]:
    """Depths of loads whose places are computed and of all that these are made of, loads and what computes: each step's
    is more than those of what it uses. Loads have even ones, so that those of one depth stand together, and 0 where
    they wait for nothing."""
    maker: dict[Key, int] = {}
    depths: list[int | None] = []
    wanted: list[int] = []
    words = 0
    for i, s in enumerate(steps):
        if s.loop:
            break
        depth = _depth(s, written, [depths[maker[key]] for key in s.uses if key in maker])
        if depth and is_load(s):
            words += s.words
            if words <= EARLY_WORDS:
                wanted.append(i)
            else:
                depth = None
        depths.append(depth)
        maker.update(dict.fromkeys(s.defs, i))
    found: dict[int, int] = {}
    while wanted:
        i = wanted.pop()
        depth = depths[i]
        if i not in found and depth is not None:
            found[i] = depth
            wanted += [maker[key] for key in steps[i].uses if key in maker]
    return found


def is_load(step: Step) -> bool:
    """Whether a step loads into registers, also from places that the same code computes."""
    return step.kind == "gload" or (step.kind == "compute" and bool(step.array))


def _depth(step: Step, written: Collection[str], makers: Sequence[int | None]) -> int | None:
    """The step's depth above those of what it uses, None where it stays where it stands."""
    load = is_load(step)
    if step.late or not (load or step.light) or (load and step.array in written):
        return None
    before = -1
    for depth in makers:
        if depth is None:
            return None
        before = max(before, depth)
    return before + 1 + ((before + 1) % 2 != (not load))


__all__ = ["early_loads", "is_load"]
